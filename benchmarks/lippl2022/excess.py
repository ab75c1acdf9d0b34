"""Finite time, or other stationary points? Trainings towards the limit, step by step.

The cell has N = 500 samples of MNIST, two contexts a unit, and medians. The network, without the
bias of its readout, is trained from the same initial weights in each of these ways, the last one of
all seeds:

published training             3,200 steps in batches; the same with momentum 0.9: the end alone
plain, momentum                full-batch descent on the log of the loss
usual acceleration             Nesterov's, with the same friction for scale and direction
accelerated, one unit dead     as the next; the weights of one unit are 0 at the start, the unit
                               that the SVM gives the largest norm. Gradient descent cannot revive
                               it, so that the limit is another stationary point
accelerated                    with a larger friction for the scale, the default of
                               `implicit_bias.train_to_limit`

Each row is a step: ``excess`` of the norm at smallest margin 1 over the certified optimum,
``disagreement`` with the SVM on the validation images, KKT ``residual`` of theorem 3.1, deviation
from (18) (``balance``), and ``dead_level``, the excess of the certified optimum without that unit.

Source: Lippl, Abbott, Chung (2022), discussion, whose question it is; theorem 3.1 and (18).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.lippl2022 import draws
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.summaries import exponent
from implicit_bias.base.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, logarithmic
from implicit_bias.bounds.status import excess
from implicit_bias.modules.stationarity import certify_network, kkt_measure
from implicit_bias.networks import GLN
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.solvers import Solution, solve
from implicit_bias.training.limit import ComparisonPredictor, LimitConfig, train_to_limit
from implicit_bias.training.minibatch import train

COST = 15
# Trainings by the published protocol, and their momenta.
PUBLISHED = {"published training": 0.0, "published training, momentum 0.9": 0.9}
ACCELERATED, DEAD = "accelerated", "accelerated, one unit dead"
METHODS: dict[str, dict[str, Any]] = {
    "plain": {"method": "plain"},
    "momentum": {"method": "momentum"},
    "usual acceleration": {"friction": 3.0, "scale_friction": 3.0},
    DEAD: {},
    ACCELERATED: {},
}
RECORD = 10
LOOKS: dict[str, tuple[str, Any]] = {
    "plain": (BLUE, ":"),
    "momentum": (VERMILION, "-."),
    "usual acceleration": (GREEN, "--"),
    ACCELERATED: (BLACK, "-"),
    DEAD: (ORANGE, (0, (6, 1, 1, 1, 1, 1))),
}
PANELS = {
    "excess": "excess of the norm over the optimum",
    "disagreement": "disagreement with the SVM",
    "residual": "KKT residual",
    "balance": "deviation from |w| = ||W||",
}


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each training."""
    cell = {"dataset": "mnist", "train_size": 500, "units": 10}
    steps, accelerated_steps = 10_000, 30_000
    if quick:
        cell = {"dataset": "digits", "train_size": 100, "units": 4}
        steps, accelerated_steps = 100, 200
    for training in PUBLISHED:
        yield part(as_published, training=training, seed=1, **cell)
    for training in METHODS:
        planned = accelerated_steps if training == ACCELERATED else steps
        yield part(to_the_limit, training=training, seed=1, planned_steps=planned, **cell)
    last = {"training": ACCELERATED, "seed": 2, "planned_steps": accelerated_steps}
    yield part(to_the_limit, **last, **cell)


class Question:
    """A cell: its samples, certified solution, and where predictions are compared."""

    def __init__(self, **setting: Any) -> None:
        models = Models(Setting(**setting))
        self.samples, validation = models.data.parts.train, models.data.parts.validation
        self.contexts, self.seed = models.contexts, models.setting.seed
        architecture = Architecture(self.contexts)
        self.problem = architecture.problem(self.samples.X, self.samples.y)
        self.solution = _solved(self.problem)
        decision = architecture.decision(validation.X, self.solution.coef)
        self.reference = ComparisonPredictor(validation.X, decision)
        self.optimum = self.solution.certificate.lower
        # The unit that the SVM gives the largest norm.
        self.largest = int(self.problem.group_norms(self.solution.coef).argmax())

    def network(self) -> GLN:
        """Return the network with its initial weights."""
        return GLN([self.contexts], seed=self.seed)

    def without_largest(self) -> float:
        """Excess of the certified optimum of the SVM of the other units."""
        others = self.problem.groups != self.largest
        groups = np.unique(self.problem.groups[others], return_inverse=True)[1]
        gates = self.problem.gates[:, others]
        without = MarginProblem(self.samples.X, self.samples.y, gates, groups)
        return _solved(without).certificate.upper / self.optimum - 1.0


@lru_cache(maxsize=1)
def posed(**setting: Any) -> Question:
    """Return the question of a cell, which its trainings share."""
    return Question(**setting)


def as_published(training: str, **setting: Any) -> Iterator[dict[str, float]]:
    """Train by the published protocol: a row, of the end."""
    question = posed(**setting)
    network, samples = question.network(), question.samples
    config = draws.training_config(momentum=PUBLISHED[training])
    train(network, samples.X, samples.y, config)
    ended = certify_network(network, samples.X, samples.y, alpha=question.solution.alpha)
    reference = question.reference
    differs = (network.decision(reference.X) > 0) != (reference.decision > 0)
    yield {
        "step": config.steps,
        "excess": excess(ended.certificate.upper, ended.certificate.lower),
        "disagreement": float(differs.mean()),
    }


def to_the_limit(training: str, planned_steps: int, **setting: Any) -> pd.DataFrame:
    """Train towards infinite time: a row a recorded step."""
    question = posed(**setting)
    network, samples = question.network(), question.samples
    if training == DEAD:
        _kill(network, question.largest)
    trained = train_to_limit(
        network,
        samples.X,
        samples.y,
        LimitConfig(steps=planned_steps, record=RECORD, **METHODS[training]),
        optimum=question.optimum,
        reference=question.reference,
        measure=kkt_measure(samples.X, samples.y),
    )
    frame = trained.frame()
    columns = ["step", "norm", "min_margin", *PANELS]
    return frame[columns].assign(dead_level=question.without_largest())


def _kill(network: GLN, unit: int) -> None:
    """Set all weights of a unit to 0."""
    n_contexts = network.gatings[0].n_contexts
    with torch.no_grad():
        network.hidden_weights[0][unit * n_contexts : (unit + 1) * n_contexts] = 0.0
        network.readout[0, unit] = 0.0


def _solved(problem: MarginProblem) -> Solution:
    solution = solve(problem, tol=1e-9)
    solution.raise_for_status()
    return solution


def decay_exponent(
    steps: Sequence[float], values: Sequence[float], *, tail: float = 10.0, least_points: int = 3
) -> float:
    """Fit p of values ~ steps^p over the last steps; nan where it cannot be.

    Values that are not positive and finite have no logarithm and are left out.

    Parameters
    ----------
    steps, values : sequence of float
        The curve.
    tail : float
        Factor between the last step and the first one that counts.
    least_points : int
        Fewer points than these give no exponent.
    """
    x = np.asarray(steps, dtype=float)
    y = np.asarray(values, dtype=float)
    if len(x) == 0:
        return math.nan
    counts = (x > 0) & (x >= x.max() / tail) & (y > 0) & np.isfinite(y)
    if np.count_nonzero(counts) < least_points:
        return math.nan
    return exponent(x[counts], y[counts])


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say where each training ends, and how fast it goes there."""
    accelerated = frame[frame["training"] == ACCELERATED].groupby("seed").last()
    first = {name: rows for name, rows in frame[frame["seed"] == 1].groupby("training")}
    dead, plain = first[DEAD].iloc[-1], first["plain"].iloc[-1]
    return {
        "cells": len(accelerated),
        "steps": int(accelerated["step"].max()),
        "largest_excess": float(accelerated["excess"].max()),
        "largest_apart": float(accelerated["disagreement"].max()),
        "dead": float(dead["excess"]),
        "dead_level": float(dead["dead_level"]),
        "dead_residual": float(dead["residual"]),
        "plain": float(plain["excess"]),
        "plain_apart": float(plain["disagreement"]),
        "rate_plain": _rate(first["plain"]),
        "rate_accelerated": _rate(first[ACCELERATED]),
    }


def _rate(rows: pd.DataFrame) -> float:
    return decay_exponent(rows["step"].tolist(), rows["excess"].tolist())


def draw(frame: pd.DataFrame) -> Figure:
    """Draw each measure against the steps, a line a training."""
    frame = frame[(frame["seed"] == 1) & (frame["step"] > 0)]
    figure, axes = subplots((8.6, 6.4), 2, 2, sharex=True, x="steps")
    for ax, (column, label) in zip(axes.flat, PANELS.items(), strict=True):
        for name, (colour, line) in LOOKS.items():
            rows = frame[(frame["training"] == name) & (frame[column] > 0)]
            rows = rows[np.isfinite(rows[column])]
            if rows.empty:  # the training has not separated its samples
                continue
            shown = name if column == "excess" else "_"
            look = {"linestyle": line, "color": colour, "alpha": 0.85}
            ax.plot(rows["step"], rows[column], label=shown, **look)
        if not ax.lines:
            continue
        if column == "excess":
            level = frame["dead_level"].dropna().iloc[0]
            ax.axhline(level, color=GREY, linewidth=0.8, label="optimum without that unit")
        ax.set_ylabel(label)
        logarithmic(ax)
    return common_legend(figure, figure.axes, 3)
