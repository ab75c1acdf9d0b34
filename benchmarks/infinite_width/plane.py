"""What each norm makes of the same points in the plane.

A row of pictures: random features under the l2 norm, gates frozen at random, the variation norm,
a trained network, and the same one trained on. Each of the first three has the largest margin under
its own norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Row, Rows, Verdict
from benchmarks.infinite_width.clusters import clusters, path_margin, train, weights_of
from benchmarks.infinite_width.live_and_frozen import gated_optimum
from benchmarks.infinite_width.pictures import Plane, grid_inputs
from benchmarks.sizes import grid, margin_share, sized
from implicit_bias import LimitConfig, MarginProblem, solve, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.infinite_width import InfiniteWidthSolution, max_margin
from implicit_bias.networks import ReLUNetwork
from implicit_bias.problem import gated_linear

FEATURES, FROZEN, LIVE, TRAINED, TRAINED_ON = PREDICTORS = (
    "random features",
    "frozen gates",
    "variation norm",
    "trained network",
    "trained on",
)
# What a picture calls predictors, and their neurons, of which the table has older names.
IN_TITLES = {"frozen gates": "fixed gates", "trained on": "trained further", "live": "active"}
# Agreement of the trained network with the variation norm: the rule of the verdict.
AGREES = 0.95


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Data as in the published illustration, and what sees them."""

    k: int = 4
    samples: int = 100
    features: int = 2000
    gates: int = 400
    width: int = 500
    steps: int = 300_000
    steps_on: int = 1000
    draws: int = 20


QUICK = Sizes(k=2, samples=24, features=200, gates=30, width=64, steps=300, steps_on=20, draws=2)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A function of inputs (n, 3), a word on it, and its neurons."""

    decision: Callable[[Array], Array]
    detail: str
    directions: Array | None = None
    coef: Array | None = None


def settings(sizes: Sizes) -> list[Row]:
    """Draws."""
    return grid(draw=range(sizes.draws))


def rows(sizes: Sizes, draw: int) -> Rows:
    """One row a predictor: its agreement with the variation norm, and, of one draw, its picture."""
    X, y = clusters(sizes.k, sizes.samples, draw)
    found = predictors(X, y, sizes, draw)
    inputs = grid_inputs()
    sides = {name: predictor.decision(inputs) > 0 for name, predictor in found.items()}
    for name, predictor in found.items():
        shown = (predictor.decision, predictor.directions, predictor.coef)
        yield {
            "predictor": name,
            "detail": predictor.detail,
            "agreement": float((sides[name] == sides[LIVE]).mean()),
            "errors": float((y * predictor.decision(X) <= 0).mean()),
            **(Plane.of(X, y, *shown).cells() if draw == 0 else {}),
        }


def predictors(X: Array, y: Array, sizes: Sizes, seed: int) -> dict[str, Predictor]:
    """Random features, frozen random gates, all neurons live, training short and long."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(sizes.features, X.shape[1]))
    gates = rng.normal(size=(sizes.gates, X.shape[1]))
    live = max_margin(X, y)
    trained = train(X[None], y[None], sizes.width, sizes.steps, seed=seed)
    first, readout = trained.first[0], trained.readout[0] / sizes.width
    network = _trained_on(X, y, first, readout, sizes.steps_on)
    return {
        FEATURES: Predictor(random_features(X, y, weights), f"{len(weights):,} under the l2 norm"),
        FROZEN: Predictor(frozen_gates(X, y, gates), f"{len(gates)} at random, group norm"),
        LIVE: Predictor(
            live.decision, f"its {len(live.coef)} live neurons", live.directions, live.coef
        ),
        TRAINED: _network(X, y, live, first, readout),
        TRAINED_ON: _network(X, y, live, *network),
    }


def _trained_on(
    X: Array, y: Array, first: Array, readout: Array, steps: int
) -> tuple[Array, Array]:
    """Train a network (m, D), (m,) on by accelerated steps, from where its layers balance."""
    network = ReLUNetwork(X.shape[1], (len(readout),), dtype=torch.float64)
    balance = np.sqrt(np.abs(readout) / np.linalg.norm(first, axis=1))
    weights, outer = network.hidden_weights[0], network.readout
    with torch.no_grad():
        weights.copy_(torch.tensor(first * balance[:, None]).reshape(weights.shape))
        outer.copy_(torch.tensor(readout / balance).reshape(outer.shape))
    train_to_limit(network, X, y, LimitConfig(steps=steps))
    return weights_of(network)


def _network(
    X: Array, y: Array, live: InfiniteWidthSolution, first: Array, readout: Array
) -> Predictor:
    def decision(inputs: Array) -> Array:
        return np.asarray(np.maximum(inputs @ first.T, 0.0) @ readout)

    share = margin_share(path_margin(X, y, first, readout) * live.certificate.upper)
    return Predictor(decision, f"{len(readout)} units, {share} of the margin", first, readout)


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
    return lambda inputs: gated_linear(inputs, gates(inputs), coef)


def draw(frame: pd.DataFrame) -> Figure:
    """One panel a predictor of the first draw: values at margin 1, boundary, neurons' kinks."""
    shown = frame[frame["draw"] == 0]
    figure, (panels,) = subplots((2.0 * len(shown), 2.5), 1, len(shown), squeeze=False)
    figure.get_layout_engine().set(h_pad=0.1)
    for ax, (_, row) in zip(panels, shown.iterrows(), strict=True):
        Plane.of_row(row).draw(ax)
        title = f"{row['predictor']}\n{row['detail']}"
        for older, newer in IN_TITLES.items():
            title = title.replace(older, newer)
        ax.set_title(title, fontsize=7.5)
    return figure


def agreements(frame: pd.DataFrame) -> pd.DataFrame:
    """Agreement with the variation norm, a row a draw, a column a predictor."""
    return frame.pivot(index="draw", columns="predictor", values="agreement")


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    shares = agreements(frame)
    medians, ahead = shares.median(), int(in_front(shares).sum())
    return (
        "In the median the maximum under the variation norm decides on "
        f"{percent(medians[TRAINED])} of the square as the trained network does, on "
        f"{percent(medians[TRAINED_ON])} as one trained further, on {percent(medians[FROZEN])} as "
        f"frozen gates, and on {percent(medians[FEATURES])} as random features; the trained "
        f"network is nearer to it than these two on {ahead} of {len(shares)} draws. "
        "Random features bend smoothly; frozen gates jump at every half plane, since a gated unit "
        "may be negative on its active side; live neurons make it continuous and piecewise linear "
        "with few pieces."
    )


def in_front(shares: pd.DataFrame) -> pd.Series[bool]:
    """Whether the trained network agrees more than the two others, a row a draw."""
    ahead: pd.Series[bool] = shares[TRAINED] > shares[[FEATURES, FROZEN]].max(axis=1)
    return ahead


def verdict(frame: pd.DataFrame, least: float = AGREES) -> Verdict:
    """Judge the claim by the rule."""
    shares = agreements(frame)
    ahead = in_front(shares)
    return Verdict.of(ahead.all() and shares[TRAINED].median() >= least, ahead.mean() > 0.5)


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Median, least and largest agreement of each predictor, and its errors on the samples."""
    by_name = frame.groupby("predictor")
    stats = by_name["agreement"].agg(["median", "min", "max"]).map(percent)
    stats["samples misclassified"] = by_name["errors"].mean().map(percent)
    return stats.loc[list(PREDICTORS)].reset_index()


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
