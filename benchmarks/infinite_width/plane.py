"""What each norm makes of the same points in the plane.

A row of pictures: random features under the l2 norm, gates frozen at random, the variation norm,
a trained network, and the same one trained further. Each of the first three has the largest margin
under its own norm. Inputs are (1, x1, x2); the points are those of the published illustration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, subplots
from benchmarks.effects import Effect
from benchmarks.fill import written
from benchmarks.infinite_width.clusters import clusters, path_margin, train, weights_of
from benchmarks.infinite_width.live_and_frozen import gated_optimum
from implicit_bias import LimitConfig, MarginProblem, solve, train_to_limit
from implicit_bias.base.style import BLACK, BLUE, GREY, VERMILION
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import InfiniteWidthSolution, max_margin
from implicit_bias.networks import ReLUNetwork
from implicit_bias.problem import decision

COST = 7.0
FEATURES, FROZEN, LIVE, TRAINED, FURTHER = (
    "random features",
    "frozen gates",
    "variation norm",
    "trained network",
    "trained further",
)
# Points along each axis of a picture, and the picture's half width.
GRID, HALF = 120, 0.56
AXIS = np.linspace(-HALF, HALF, GRID)
EXTENT = (-HALF, HALF, -HALF, HALF)
# Neurons of less weight than this share of the largest are not drawn.
FAINT = 0.02


@dataclass(frozen=True, eq=False)
class Predictor:
    """A function of inputs (n, 3), a word on it, and its neurons if they are few enough to draw."""

    decision: Callable[[Array], Array]
    detail: str
    directions: Array | None = None
    coef: Array | None = None


def measure(quick: bool) -> Iterator[Part]:
    """Compare the predictors on several draws of the points."""
    sizes = {"samples": 100, "features": 2000, "gates": 400, "width": 500, "steps": 300_000}
    sizes |= {"k": 4, "further": 1000}
    if quick:
        sizes = {"samples": 24, "features": 200, "gates": 30, "width": 64, "steps": 300}
        sizes |= {"k": 2, "further": 20}
    for draw in range(2 if quick else 20):
        yield part(predictions, draw=draw, **sizes)


def predictions(
    draw: int,
    samples: int,
    features: int,
    gates: int,
    width: int,
    steps: int,
    k: int,
    further: int,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each predictor: how much of the square it decides as the variation norm does.

    The first draw also has what its picture needs.
    """
    X, y = clusters(k, samples, draw)
    rng = np.random.default_rng(draw)
    weights = rng.normal(size=(features, X.shape[1]))
    gate_weights = rng.normal(size=(gates, X.shape[1]))
    live = max_margin(X, y)
    trained = train(X[None], y[None], width, steps, seed=draw)
    first, readout = trained.first[0], trained.readout[0] / width
    neurons = f"its {len(live.coef)} live neurons"
    found = {
        FEATURES: Predictor(random_features(X, y, weights), f"{features:,} under the l2 norm"),
        FROZEN: Predictor(frozen_gates(X, y, gate_weights), f"{gates} at random, group norm"),
        LIVE: Predictor(live.decision, neurons, live.directions, live.coef),
        TRAINED: network(X, y, live, first, readout),
        FURTHER: network(X, y, live, *trained_further(X, y, first, readout, further)),
    }
    square = grid_inputs()
    of_maximum = live.decision(square) > 0
    for name, predictor in found.items():
        yield {
            "predictor": name,
            "detail": predictor.detail,
            "agreement": float(((predictor.decision(square) > 0) == of_maximum).mean()),
            "errors": float((y * predictor.decision(X) <= 0).mean()),
            **(picture_of(predictor, X, y) if draw == 0 else {}),
        }


def grid_inputs() -> Array:
    """Return inputs (GRID * GRID, 3) of a picture's points, one row of it after the other."""
    one, two = np.meshgrid(AXIS, AXIS)
    return np.column_stack([np.ones(one.size), one.ravel(), two.ravel()])


def picture_of(predictor: Predictor, X: Array, y: Array) -> dict[str, NDArray[Any]]:
    """Return what a picture needs, flat: values over the smallest margin, samples, neurons."""
    margin = abs(float(np.min(y * predictor.decision(X)))) or 1.0  # a network may be 0 somewhere
    neurons = np.zeros(0)
    if predictor.directions is not None and predictor.coef is not None:
        neurons = np.abs(predictor.coef)[:, None] * predictor.directions
    return {
        "values": (predictor.decision(grid_inputs()) / margin).astype(np.float16),
        "points": X[:, 1:].astype(np.float32).ravel(),
        "labels": y.astype(np.int8),
        "neurons": neurons.astype(np.float32).ravel(),
    }


# --- the predictors ------------------------------------------------------------------------------


def random_features(X: Array, y: Array, weights: Array) -> Callable[[Array], Array]:
    """Maximise the margin under the l2 norm over fixed random ReLU features."""

    def features(inputs: Array) -> Array:
        return np.maximum(inputs @ weights.T, 0.0) / np.sqrt(len(weights))

    problem = MarginProblem(features(X), y, np.ones((len(X), 1)), np.zeros(1, dtype=np.int64))
    coef = solve(problem, tol=1e-4).coef[0]
    return lambda inputs: features(inputs) @ coef


def frozen_gates(X: Array, y: Array, weights: Array) -> Callable[[Array], Array]:
    """Maximise the margin under the group norm over units whose gates are fixed half planes."""

    def gates(inputs: Array) -> Array:
        return (inputs @ weights.T > 0).astype(np.float64)

    coef, _ = gated_optimum(X, y, gates(X))
    return lambda inputs: decision(inputs, gates(inputs), coef)


def network(
    X: Array, y: Array, live: InfiniteWidthSolution, first: Array, readout: Array
) -> Predictor:
    """Return a network (m, 3), (m,) with its share of the certified maximum."""

    def decision(inputs: Array) -> Array:
        return np.asarray(np.maximum(inputs @ first.T, 0.0) @ readout)

    share = path_margin(X, y, first, readout) * live.certificate.upper
    reached = f"{written(share, '.0%')} of the margin" if share > 0 else "does not separate"
    return Predictor(decision, f"{len(readout)} units, {reached}", first, readout)


def trained_further(
    X: Array, y: Array, first: Array, readout: Array, steps: int
) -> tuple[Array, Array]:
    """Train a network (m, D), (m,) further by accelerated steps, from where its layers balance."""
    network = ReLUNetwork(X.shape[1], (len(readout),), dtype=torch.float64)
    balance = np.sqrt(np.abs(readout) / np.linalg.norm(first, axis=1))
    weights, outer = network.hidden_weights[0], network.readout
    with torch.no_grad():
        weights.copy_(torch.tensor(first * balance[:, None]).reshape(weights.shape))
        outer.copy_(torch.tensor(readout / balance).reshape(outer.shape))
    train_to_limit(network, X, y, LimitConfig(steps=steps))
    return weights_of(network)


# --- what the page says --------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Agreement of each predictor with the variation norm: medians, least, paired differences."""
    shares = frame.pivot(index="draw", columns="predictor", values="agreement")
    medians, least = shares.median(), shares.min()
    ahead = shares[TRAINED] > shares[[FEATURES, FROZEN]].max(axis=1)
    return {
        "features": medians[FEATURES],
        "frozen": medians[FROZEN],
        "trained": medians[TRAINED],
        "further": medians[FURTHER],
        "frozen_least": least[FROZEN],
        "trained_least": least[TRAINED],
        "over_frozen": Effect.of(shares[TRAINED] - shares[FROZEN]),
        "over_features": Effect.of(shares[TRAINED] - shares[FEATURES]),
        "ahead": ahead.sum(),
        "draws": len(shares),
        "errors": frame["errors"].max(),
    }


# --- the picture ---------------------------------------------------------------------------------


def draw(frame: pd.DataFrame) -> Figure:
    """One panel a predictor of the first draw: values at margin 1, boundary, neurons' kinks."""
    shown = frame[frame["draw"] == 0]
    figure, (panels,) = subplots((2.0 * len(shown), 2.5), 1, len(shown), squeeze=False)
    figure.get_layout_engine().set(h_pad=0.1)
    for ax, (_, row) in zip(panels, shown.iterrows(), strict=True):
        plane(ax, row)
        ax.set_title(f"{row['predictor']}\n{row['detail']}", fontsize=7.5)
    return figure


def plane(ax: Axes, row: Any) -> None:
    """Draw values, decision boundary, margins, samples, and where the neurons have kinks."""
    values = np.reshape(row["values"], (GRID, GRID)).astype(np.float64)
    look: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -1.6, "vmax": 1.6, "origin": "lower"}
    ax.imshow(np.tanh(0.7 * values), extent=EXTENT, interpolation="bilinear", **look)
    neurons = np.reshape(row["neurons"], (-1, 3))
    weights = np.linalg.norm(neurons, axis=1)
    for neuron, strength in zip(neurons, weights / weights.max(initial=1e-300), strict=True):
        if strength > FAINT:
            kink(ax, neuron, color=GREY, linewidth=0.3 + 1.5 * strength, alpha=0.55)
    ax.contour(AXIS, AXIS, values, [-1.0, 1.0], colors=BLACK, linewidths=0.6, linestyles=":")
    ax.contour(AXIS, AXIS, values, [0.0], colors=BLACK, linewidths=1.6)
    points = np.reshape(row["points"], (-1, 2))
    for label, colour, marker in ((-1, BLUE, "o"), (1, VERMILION, "^")):
        one, two = points[row["labels"] == label].T
        look = {"s": 17, "linewidths": 0.5, "edgecolors": "white", "zorder": 3}
        ax.scatter(one, two, c=colour, marker=marker, **look)
    ax.set(xlim=(-HALF, HALF), ylim=(-HALF, HALF), xticks=[], yticks=[], aspect="equal")
    for spine in ax.spines.values():
        spine.set_visible(False)


def kink(ax: Axes, direction: Array, **look: Any) -> None:
    """Draw the line on which a unit of inputs (1, x1, x2) is not differentiable."""
    offset, normal = direction[0], direction[1:3]
    length = float(np.linalg.norm(normal))
    if length == 0:
        return
    foot = -offset * normal / length**2
    along = np.array([-normal[1], normal[0]]) / length * 3.0
    ax.plot(*np.column_stack([foot - along, foot + along]), zorder=2, **look)
