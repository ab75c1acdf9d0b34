"""What frozen gates can and cannot say of live ones: norms of gated relaxations, certified.

A gated network with the gates of a ReLU network can do what that network does, so its optimum is at
most as large. But a gated unit need not have its weight on the active side of its gate: over all
cells the optimum is a lower bound of the variation norm, and a loose one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.harness import Row, Rows, Verdict
from benchmarks.infinite_width.clusters import clusters, train
from benchmarks.sizes import grid, sized
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate, Status, certify
from implicit_bias.infinite_width import InfiniteWidthSolution, max_margin
from implicit_bias.infinite_width.arrangement import cell_signs
from implicit_bias.problem import MarginProblem
from implicit_bias.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from implicit_bias.solvers import solve

LEARNED = "gates of a trained network (SVM-LC)"
RANDOM_GATES = (16, 64, 256, 1024)
LOOKS = {
    "16 random gates": (SKY, "v:"),
    "64 random gates": (BLUE, "^:"),
    "256 random gates": (PURPLE, "D:"),
    "1,024 random gates": (GREY, "x:"),
    LEARNED: (ORANGE, "P--"),
    "gates of the optimum": (GREEN, "s--"),
    "all cells": (VERMILION, "o-"),
}
GAP = 1e-4
# Gates with which a gated problem is solved at first, and that join at once.
AT_ONCE = 256
# The rule of the verdict: a ratio this near to 1.
NEAR = 0.05


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of samples, draws of each, and the training of the network that gives gates."""

    k: int = 3
    samples: tuple[int, ...] = (8, 16, 32, 64, 128)
    draws: int = 5
    width: int = 128
    steps: int = 5000


WHOLE = Sizes()
QUICK = Sizes(samples=(8, 16), draws=1, width=32, steps=200)


def settings(sizes: Sizes) -> list[Row]:
    """Numbers of samples."""
    return grid(samples=sizes.samples)


def rows(sizes: Sizes, samples: int) -> Rows:
    """One row a draw and family of gates: the gated norm and the ratio."""
    for draw in range(sizes.draws):
        yield from ({"draw": draw, **row} for row in _of_draw(sizes, samples, draw))


def _of_draw(sizes: Sizes, samples: int, draw: int) -> Rows:
    X, y = clusters(sizes.k, samples, draw)
    live = max_margin(X, y)
    trained = train(X[None], y[None], sizes.width, sizes.steps, seed=draw)
    rng = np.random.default_rng(draw)
    families = {
        f"{count:,} random gates": rng.normal(size=(count, X.shape[1])) for count in RANDOM_GATES
    } | {LEARNED: trained.first[0], "gates of the optimum": live.directions}
    gates = {name: gates_of(X, weights) for name, weights in families.items()}
    gates["all cells"] = all_gates(live)
    for name, Z in gates.items():
        _, certificate = gated_optimum(X, y, Z)
        yield {
            "gates": name,
            "n_gates": Z.shape[1],
            "norm": certificate.lower if np.isinf(certificate.upper) else certificate.upper,
            "separates": np.isfinite(certificate.upper),
            "gap": certificate.gap,
            "live": live.certificate.lower,
            "ratio": live.certificate.lower / certificate.upper,
            "trained_share": trained.margins[-1, 0] * live.certificate.upper,
        }


def gates_of(X: Array, weights: Array) -> Array:
    """Distinct gates of units on the data, and one that is always on: (n, M)."""
    active = (X @ weights.T > 0).astype(np.float64)
    return np.unique(np.column_stack([np.ones(len(X)), active]), axis=1)


def all_gates(live: InfiniteWidthSolution) -> Array:
    """Gates of all cells: (n, M)."""
    lines = live.problem.lines
    sides = cell_signs(lines.normals)[:, lines.line] * np.sign(lines.lengths)
    return np.unique((sides > 0).T.astype(np.float64), axis=1)


def gated_optimum(X: Array, y: Array, gates: Array) -> tuple[Array, Certificate]:
    """Solve the margin problem with one unit a gate: coefficients (M, D), graded over all gates.

    Of many gates few have weights. So the problem is solved over some of them, and those whose
    dual norm exceeds the bound join.
    """
    n_gates = gates.shape[1]
    problem = MarginProblem(X, y, gates, np.arange(n_gates))
    chosen = np.unique(np.linspace(0, n_gates - 1, AT_ONCE).astype(np.int64))
    while True:
        some = MarginProblem(X, y, gates[:, chosen], np.arange(len(chosen)))
        found = solve(some, tol=GAP / 10)
        coef = np.zeros((n_gates, X.shape[1]))
        coef[chosen] = found.coef
        if len(chosen) == n_gates:
            return coef, found.certificate
        if found.status is Status.NOT_SEPARABLE:  # its proof has no scale to compare norms with
            new = np.setdiff1d(np.arange(n_gates), chosen)[:AT_ONCE]
        else:
            norms = problem.dual_norms(found.alpha)
            above = np.flatnonzero(norms > 1.0 + GAP / 10)
            new = np.setdiff1d(above[np.argsort(-norms[above])][:AT_ONCE], chosen)
        if not len(new):
            return coef, certify(problem, coef=coef, alpha=found.alpha)
        chosen = np.append(chosen, new)


def draw(frame: pd.DataFrame) -> Figure:
    """Ratio of the live to the frozen norm against the number of samples, by family of gates."""
    figure, ax = subplots((6.4, 3.6))
    for name, (colour, look) in LOOKS.items():
        rows = frame[(frame["gates"] == name) & frame["separates"]]
        by_size = rows.groupby("samples")["ratio"].median()
        ax.plot(by_size.index, by_size, look, color=colour, label=name, markersize=5)
    ax.axhline(1.0, color=GREY, linewidth=1, label="live gates")
    sizes = sorted(frame["samples"].unique())
    ax.set(xscale="log", yscale="log", xlabel="samples", ylabel="variation norm / gated optimum")
    tick_values(ax, sizes)
    ratios = [ratio for ratio in (0.5, 1, 2, 5, 10, 20, 50) if ratio < 1.5 * frame["ratio"].max()]
    ax.set_yticks(ratios, labels=[f"{ratio:g}" for ratio in ratios])
    ax.set_yticks([], minor=True)
    ax.set_ylim(bottom=0.8)
    ax.grid(axis="y")
    figure.legend(loc="outside right upper")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    largest = frame[frame["samples"] == frame["samples"].max()]
    medians = largest.groupby("gates")["ratio"].median()
    return (
        f"With {frame['samples'].max()} samples the variation norm is {medians['all cells']:.1f} "
        "times the gated optimum over all cells, "
        f"{medians[LEARNED]:.2f} times that over the gates of a trained "
        f"network, and {medians['gates of the optimum']:.2f} times that over the gates of the "
        "optimal network itself (medians)."
    )


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Median ratio of the live to the frozen norm, a row a family of gates, a column a size.

    Where gates cannot separate the samples their norm is infinite, and the ratio 0.
    """
    return frame.groupby(["gates", "samples"])["ratio"].median().unstack().loc[list(LOOKS)]


def verdict(frame: pd.DataFrame, off: float = NEAR) -> Verdict:
    """Judge the claim by the rule."""
    near = ((ratios(frame) - 1.0).abs() < off).all(axis=1)
    return Verdict.of(near["gates of the optimum"] and near["all cells"], near.any())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Median ratios of each family of gates, by number of samples."""
    medians = ratios(frame)
    cells = {f"{samples} samples": medians[samples].map("{:.2f}".format) for samples in medians}
    return pd.DataFrame(cells).rename_axis("gates").reset_index()


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK, whole=WHOLE)
