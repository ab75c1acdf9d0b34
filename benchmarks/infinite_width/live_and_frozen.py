"""What frozen gates can and cannot say of live ones: norms of gated relaxations, certified.

A gated network with the gates of a ReLU network can do what that network does, so its optimum is at
most as large. But a gated unit need not have its weight on the active side of its gate: over all
cells the optimum is a lower bound of the variation norm, and a loose one. With the constraints that
it leaves out, a cone per unit, it is the variation norm (Pilanci and Ergen, 2020).

The kinks of the optimum pass through samples, and those of trained networks come near: rounding
decides on which side of a gate such a sample is. So the ratios over these two families differ
between machines where samples are few.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.effects import Effect
from benchmarks.infinite_width.clusters import clusters, path_margin, train
from implicit_bias import Certificate, MarginProblem, Status, certify, solve
from implicit_bias.base.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import InfiniteWidthSolution, max_margin
from implicit_bias.infinite_width.arrangement import cell_signs

COST = 1.5
CLUSTERS, GAUSSIAN = "clusters", "Gaussian"
LEARNED = "gates of a trained network (SVM-LC)"
OPTIMAL = "gates of the optimum"
ALL = "all cells"
IN_CONES = "all cells, weights in their cones"
RANDOM_GATES = (16, 64, 256, 1024)
LOOKS = {
    "16 random gates": (SKY, "v:"),
    "64 random gates": (BLUE, "^:"),
    "256 random gates": (PURPLE, "D:"),
    "1,024 random gates": (GREY, "x:"),
    LEARNED: (ORANGE, "P--"),
    OPTIMAL: (GREEN, "s--"),
    ALL: (VERMILION, "o-"),
    IN_CONES: (BLACK, "*-"),
}
GAP = 1e-4
# Gates with which a gated problem is solved at first, and that join at once.
AT_ONCE = 256
# Samples for which the problem with cones is solved, by a solver of general convex problems.
MOST_IN_CONES = 32


def measure(quick: bool) -> Iterator[Part]:
    """Compare on clusters and on Gaussian data, with few and with many samples."""
    sizes = {"k": 3, "draws": 1, "width": 32, "steps": 200} if quick else {}
    sizes = {"k": 3, "draws": 5, "width": 128, "steps": 5000} | sizes
    for data, n in product((CLUSTERS, GAUSSIAN), (8, 16) if quick else (8, 16, 32, 64, 128)):
        yield part(families, data=data, samples=n, **sizes)


def families(
    data: str, samples: int, k: int, draws: int, width: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each draw and family of gates: the gated norm and the ratio."""
    for draw in range(draws):
        X, y = clusters(k, samples, draw) if data == CLUSTERS else gaussian(samples, draw)
        for row in of_draw(X, y, draw, width, steps):
            yield {"draw": draw, **row}


def gaussian(samples: int, seed: int) -> tuple[Array, Array]:
    """Draw standard normal inputs (n, 3), a random half of them labelled -1."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 3)), np.sign(rng.permutation(samples) - samples // 2 + 0.5)


def of_draw(X: Array, y: Array, draw: int, width: int, steps: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each family of gates on samples X (n, 3), y (n,)."""
    live = max_margin(X, y)
    lower = live.certificate.lower
    trained = train(X[None], y[None], width, steps, seed=draw)
    rng = np.random.default_rng(draw)
    gates = {
        f"{count:,} random gates": gates_of(X, rng.normal(size=(count, X.shape[1])))
        for count in RANDOM_GATES
    }
    gates[LEARNED] = gates_of(X, trained.first[0])
    gates[OPTIMAL] = gates_of(X, live.directions)
    gates[ALL] = all_gates(live)
    for name, Z in gates.items():
        _, certificate = gated_optimum(X, y, Z)
        separates = bool(np.isfinite(certificate.upper))
        yield {
            "gates": name,
            "n_gates": Z.shape[1],
            "norm": certificate.upper if separates else certificate.lower,
            "separates": separates,
            "gap": certificate.gap,
            "ratio": lower / certificate.upper,
        }
    if len(X) <= MOST_IN_CONES:
        norm = norm_in_cones(X, y, gates[ALL])
        exact = {"gates": IN_CONES, "n_gates": gates[ALL].shape[1], "separates": True}
        yield exact | {"norm": norm, "ratio": lower / norm}


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
    """Solve the margin problem with one unit per gate: coefficients (M, D), graded over all gates.

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


def norm_in_cones(X: Array, y: Array, gates: Array) -> float:
    """Norm at margin 1 of the best network whose units stay on the active side of gates (n, M).

    By CVXPY with Clarabel; the norm is that of the units found, whatever they are worth.
    """
    import cvxpy as cp

    plus, minus = (cp.Variable((X.shape[1], gates.shape[1])) for _ in range(2))
    outputs = cp.sum(cp.multiply(gates, X @ (plus - minus)), axis=1)
    in_cones = [cp.multiply(2 * gates - 1, X @ units) >= 0 for units in (plus, minus)]
    norm = cp.sum(cp.norm(cp.hstack([plus, minus]), axis=0))
    cp.Problem(cp.Minimize(norm), [cp.multiply(y, outputs) >= 1, *in_cones]).solve(cp.CLARABEL)
    units = np.hstack([plus.value, minus.value]).T
    return 1.0 / path_margin(X, y, units, np.repeat([1.0, -1.0], gates.shape[1]))


# --- what the page says --------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Medians of the ratio; where gates cannot separate the samples it is 0."""
    medians = frame.groupby(["data", "gates", "samples"])["ratio"].median()
    few, many = frame["samples"].min(), frame["samples"].max()
    of_many = (frame["samples"] == many) & (frame["data"] == CLUSTERS) & (frame["gates"] == ALL)
    in_cones = frame[frame["gates"] == IN_CONES]
    return {
        "all_cells": medians[CLUSTERS, ALL, many],
        "all_cells_mean": Effect.of(frame.loc[of_many, "ratio"]),
        "trained": medians[CLUSTERS, LEARNED, many],
        "optimal": medians[CLUSTERS, OPTIMAL, many],
        "in_cones_low": in_cones["ratio"].min(),
        "in_cones_high": in_cones["ratio"].max(),
        "in_cones_off": (in_cones["ratio"] - 1.0).abs().max(),
        "n_in_cones": len(in_cones),
        "gaussian_few": medians[GAUSSIAN, ALL, few],
        "gaussian_many": medians[GAUSSIAN, ALL, many],
        "random_many": medians[GAUSSIAN, "1,024 random gates", many],
        "root_few": np.sqrt(np.log(few)),
        "root_many": np.sqrt(np.log(many)),
    }


def draw(frame: pd.DataFrame) -> Figure:
    """Ratio of the live to the frozen norm against the number of samples, by family of gates."""
    figure, axes = subplots(
        (8.6, 3.4), 1, 2, sharey=True, grid="y", y="variation norm / gated optimum"
    )
    for ax, data in zip(axes, (CLUSTERS, GAUSSIAN), strict=True):
        for name, (colour, look) in LOOKS.items():
            rows = frame[(frame["data"] == data) & (frame["gates"] == name) & frame["separates"]]
            by_size = rows.groupby("samples")["ratio"].median()
            label = name if ax is axes[0] else None
            ax.plot(by_size.index, by_size, look, color=colour, label=label, markersize=5)
        ax.axhline(1.0, color=GREY, linewidth=1)
        ax.set(xscale="log", yscale="log", xlabel="samples", title=data, ylim=(0.8, None))
        tick_values(ax, frame["samples"])
    ratios = [ratio for ratio in (1, 2, 5, 10, 20, 50, 100) if ratio < 1.5 * frame["ratio"].max()]
    tick_values(axes[0], ratios, along="y")
    figure.legend(loc="outside right upper")
    return figure
