"""Finite time, or other stationary points? Why GLNs of the published size differ from their SVM.

Cells of the published grid (binary MNIST, C = 2, median thresholds). At H = 10 the
source reports that network and SVM disagree on 14 % of the labels. Here the network, without the
bias of its readout, is trained by the published protocol, and then, from the same initial weights,
towards infinite time by the methods of `implicit_bias.training.limit`:

plain, momentum    full-batch descent on the log of the loss;
usual              Nesterov's acceleration, with the same friction for scale and direction;
accelerated        with a larger friction for the scale, the default, in each cell;
one unit dead      the same with the weights of one unit set to 0 at the start: the unit that the
                   SVM gives the largest norm. Gradient descent cannot revive it, so that the limit
                   is another stationary point: the SVM of the other units, drawn dotted.

Source: Lippl, Abbott, Chung (2022), section 4, whose question it is; theorem 3.1 and eq. (18).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import harness
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Frames, Judged, Options, Rows, Run, Verdict
from benchmarks.lippl2022 import draws
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.sizes import grid
from implicit_bias.base.wording import percent
from implicit_bias.bounds.status import excess
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.modules.stationarity import certify_network, kkt_measure
from implicit_bias.networks import GLN
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, logarithmic
from implicit_bias.solvers import Solution, solve
from implicit_bias.training.limit import ComparisonPredictor, LimitConfig, train_to_limit
from implicit_bias.training.minibatch import train

# Steps at which the table has a row, where a training gets that far.
SHOWN = (1_000, 2_000, 5_000, 10_000, 30_000)
# Of the excess and the disagreement at the end.
MOST, LESS = 1e-3, 1e-4
# Trainings by the published protocol, of which only the end is kept, and their momenta.
PUBLISHED = {"published training": 0.0, "published training, momentum 0.9": 0.9}
PANELS = {
    "excess": "excess of the norm over the optimum",
    "disagreement": "disagreement with the SVM",
    "residual": "KKT residual",
    "balance": "deviation from |w| = ||W||",
}
LOOKS: dict[str, tuple[str, Any]] = {
    "plain": (BLUE, ":"),
    "momentum": (VERMILION, "-."),
    "usual acceleration": (GREEN, "--"),
    "accelerated": (BLACK, "-"),
    "accelerated, one unit dead": (ORANGE, (0, (6, 1, 1, 1, 1, 1))),
}


@dataclass(frozen=True)
class Case:
    """A training to follow: how, and whether one unit is dead from the start."""

    name: str
    config: LimitConfig
    dead: bool = False


@dataclass(frozen=True, kw_only=True)
class ExcessOptions(Options):
    """What one can ask of it."""

    units: tuple[int, ...] = harness.option((10,), "H: 10, 20, 50 or 100 (hours)")
    seeds: tuple[int, ...] = harness.option((1, 2), "seeds of contexts and initial weights")
    steps: int = harness.option(10_000, "steps of each method, of the first H and seed")
    accelerated_steps: int = harness.option(30_000, "steps of the default one, of all")


@dataclass(frozen=True)
class Question:
    """A problem, its certified solution, and where predictions are compared."""

    setting: Setting
    contexts: HyperplaneContexts
    samples: Dataset
    problem: MarginProblem
    solution: Solution
    reference: ComparisonPredictor

    @classmethod
    def pose(cls, setting: Setting) -> Question:
        """Load the data, draw the contexts, and solve."""
        models = Models(setting)
        samples, validation = models.data.parts.train, models.data.parts.validation
        contexts = models.contexts
        architecture = Architecture(contexts)
        problem = architecture.problem(samples.X, samples.y)
        solution = _solved(problem)
        reference = ComparisonPredictor(
            validation.X, architecture.decision(validation.X, solution.coef)
        )
        return cls(setting, contexts, samples, problem, solution, reference)

    @property
    def optimum(self) -> float:
        """Certified lower bound on the norm."""
        return self.solution.certificate.lower

    @property
    def largest(self) -> int:
        """The unit that the SVM gives the largest norm."""
        return int(self.problem.group_norms(self.solution.coef).argmax())

    def network(self) -> GLN:
        """Return the network with its initial weights."""
        return GLN([self.contexts], seed=self.setting.seed)

    @cached_property
    def without_largest(self) -> float:
        """Excess of the certified optimum of the SVM of the other units."""
        others = self.problem.groups != self.largest
        groups = np.unique(self.problem.groups[others], return_inverse=True)[1]
        without = MarginProblem(
            self.samples.X, self.samples.y, self.problem.gates[:, others], groups
        )
        return _solved(without).certificate.upper / self.optimum - 1.0

    def as_published(self, momentum: float) -> pd.DataFrame:
        """Train by the published protocol: a row, of the end."""
        network, samples = self.network(), self.samples
        config = draws.training_config(momentum=momentum)
        train(network, samples.X, samples.y, config)
        ended = certify_network(network, samples.X, samples.y, alpha=self.solution.alpha)
        differs = (network.decision(self.reference.X) > 0) != (self.reference.decision > 0)
        over = excess(ended.certificate.upper, ended.certificate.lower)
        row = {"step": config.steps, "excess": over, "disagreement": differs.mean()}
        return pd.DataFrame([row])

    def to_the_limit(self, case: Case) -> pd.DataFrame:
        """Train towards infinite time: a row a recorded step."""
        network, samples = self.network(), self.samples
        if case.dead:
            _kill(network, self.largest)
        return train_to_limit(
            network,
            samples.X,
            samples.y,
            case.config,
            optimum=self.optimum,
            reference=self.reference,
            measure=kkt_measure(samples.X, samples.y),
        ).frame()


def measure(run: Run[ExcessOptions]) -> Frames:
    """Train by all methods whose end is not in the table; a method's points are kept together."""
    asked = run.options
    setting = Setting(train_size=500)
    if run.quick:
        asked = replace(asked, units=(4,), seeds=(1, 2), steps=100, accelerated_steps=200)
        setting = Setting(dataset="digits", train_size=100)
    cases = {case.name: case for case in _cases(asked.steps, asked.accelerated_steps)}

    @lru_cache(maxsize=1)
    def posed(units: int, seed: int) -> Question:
        return Question.pose(replace(setting, units=units, seed=seed))

    def trained(training: str, units: int, seed: int) -> pd.DataFrame:
        question = posed(units, seed)
        rows = (
            question.to_the_limit(cases[training])
            if training in cases
            else question.as_published(PUBLISHED[training])
        )
        return rows.assign(dead_level=question.without_largest)

    def enough(rows: pd.DataFrame, of: Mapping[str, Any]) -> bool:
        case = cases.get(of["training"])
        return case is None or rows["step"].max() >= case.config.steps

    first, *others = grid(units=asked.units, seed=asked.seeds)
    wanted = [{"training": name} | first for name in (*PUBLISHED, *cases)]
    wanted += [{"training": "accelerated"} | cell for cell in others]
    return harness.growing(run, wanted, trained, enough=enough)


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the first cell, which has all trainings."""
    return frame[(frame[["units", "seed"]] == frame[["units", "seed"]].iloc[0]).all(axis=1)]


def _ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Excess and disagreement at the end of the accelerated training, a row a cell."""
    ends = frame[frame["training"] == "accelerated"].groupby(["units", "seed"]).last()
    return ends[["excess", "disagreement"]]


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
    return float(np.polyfit(np.log(x[counts]), np.log(y[counts]), 1)[0])


def _rate(rows: pd.DataFrame) -> str:
    rate = decay_exponent(rows["step"].tolist(), rows["excess"].tolist())
    return f"steps^{rate:.1f}"


def found(frame: pd.DataFrame) -> str:
    """Say where each training goes."""
    runs = {str(name): rows for name, rows in _shown(frame).groupby("training", sort=False)}
    ends = {name: rows.iloc[-1] for name, rows in runs.items()}
    best, dead, momentum = ends["accelerated"], ends["accelerated, one unit dead"], ends["momentum"]
    optimum = best["norm"] / best["min_margin"] / (1.0 + best["excess"])
    published = " and ".join(
        f"{percent(ends[name]['excess'])}, {percent(ends[name]['disagreement'])} ({name})"
        for name in PUBLISHED
    )
    return (
        f"H = {best['units']:.0f}, seed {best['seed']:.0f}, optimum {optimum:.7g}. Published "
        f"training ends at an excess and a disagreement of {published}. From the same initial "
        "weights, full batches on the log of the exponential loss:\n\n"
        f"- {_accelerated(frame)}\n"
        f"- Here the excess goes like {_rate(runs['accelerated'])}, the KKT residual of theorem "
        f"3.1 down to {best['residual']:.0e}, and |w| = ||W|| to {best['balance']:.0e}.\n"
        f"- Plain descent is on its way there: its excess goes like {_rate(runs['plain'])}, and is "
        f"{percent(ends['plain']['excess'])} after {ends['plain']['step']:,.0f} steps, with "
        f"{percent(ends['plain']['disagreement'])} of the labels in dispute. With momentum a norm "
        f"{percent(momentum['excess'])} above the optimum still leaves "
        f"{percent(momentum['disagreement'])}.\n"
        "- Usual acceleration (Nesterov's, one friction for everything) creeps at "
        f"{_rate(runs['usual acceleration'])}. The loss has no minimum, so most of what is "
        "accelerated is the scale of the weights; the soft minimum of the margins hardens before "
        "the direction has turned. The default brakes the scale more than the direction (see "
        "`implicit_bias/training/limit.py`).\n"
        "- There are other stationary points: a unit whose weights are all 0 gets no gradient. "
        "With the largest unit dead from the start, the KKT residual goes to "
        f"{dead['residual']:.0e} and the balance to {dead['balance']:.0e}, but the norm stays "
        f"{percent(dead['excess'])} above the optimum; the certified optimum of the SVM of "
        "the other units is "
        f"{percent(dead['dead_level'])} above. Neither training nor the KKT residual tells; "
        "`certify` does, by the unit's dual norm above 1."
    )


def _accelerated(frame: pd.DataFrame) -> str:
    """Say where accelerated training ends in each cell."""
    cells, steps = _ends(frame), frame.loc[frame["training"] == "accelerated", "step"].max()
    each = "; ".join(f"H = {units}, seed {seed}" for units, seed in cells.index)
    return (
        f"In {(cells < MOST).all(axis=1).sum()} of {len(cells)} cells ({each}) accelerated "
        f"training from the initial weights ends at the SVM: after {steps:,.0f} steps the "
        f"excess of the norm is at most {percent(cells['excess'].max())}, and at most "
        f"{percent(cells['disagreement'].max())} of the predictions differ."
    )


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge the claim by the rule, for the cells that are measured."""
    cells = _ends(frame)
    found, other = (Verdict.each((cells < most).all(axis=1)) for most in (MOST, LESS))
    remark = f" as to finite time, in {len(cells)} cells" + harness.otherwise(other, percent(LESS))
    return {"finite": Judged(found, _accelerated(frame), remark=remark)}


def tabulate(frame: pd.DataFrame) -> Rows:
    """Excess and disagreement of each training at some steps; those recorded are near them."""
    runs = dict(list(_shown(frame).groupby("training", sort=False)))
    for step in SHOWN:
        row = {"steps": f"{step:,}"}
        for name in LOOKS:
            nearest = runs[name].iloc[(runs[name]["step"] - step).abs().argmin()]
            near = abs(nearest["step"] - step) <= 0.05 * step
            words = f"{percent(nearest['excess'])}, {percent(nearest['disagreement'])}"
            row[name] = words if near else ""
        yield row


def draw(frame: pd.DataFrame) -> Figure:
    """Draw each measure against the steps, a line a training."""
    frame = _shown(frame)
    figure, axes = subplots((8.6, 6.4), 2, 2, sharex=True, x="steps")
    for ax, (column, label) in zip(axes.flat, PANELS.items(), strict=True):
        for name, (colour, line) in LOOKS.items():
            rows = frame[(frame["training"] == name) & (frame["step"] > 0) & (frame[column] > 0)]
            rows = rows[np.isfinite(rows[column])]
            if rows.empty:
                continue
            ax.plot(
                rows["step"],
                rows[column],
                linestyle=line,
                color=colour,
                label=name if column == "excess" else "_",
                alpha=0.85,
            )
        if not ax.lines:  # no training separated its samples
            continue
        if column == "excess":
            level = frame["dead_level"].iloc[0]
            ax.axhline(level, color=GREY, linewidth=0.8, label="optimum without that unit")
        ax.set_ylabel(label)
        logarithmic(ax)
    return common_legend(figure, figure.axes, 3)


def _cases(steps: int, accelerated_steps: int) -> Iterator[Case]:
    record = 10
    yield Case("plain", LimitConfig(steps=steps, method="plain", record=record))
    yield Case("momentum", LimitConfig(steps=steps, method="momentum", record=record))
    usual = LimitConfig(steps=steps, friction=3.0, scale_friction=3.0, record=record)
    yield Case("usual acceleration", usual)
    yield Case("accelerated", LimitConfig(steps=accelerated_steps, record=record))
    yield Case("accelerated, one unit dead", LimitConfig(steps=steps, record=record), dead=True)


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


EXPERIMENT = Experiment(measure, found, tabulate, draw=draw, judge=judge, options=ExcessOptions)
