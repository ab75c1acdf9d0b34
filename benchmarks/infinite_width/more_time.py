"""Whether what gradient descent leaves of the maximum margin is time: accelerated training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Row, Rows, Tabular, Verdict
from benchmarks.infinite_width.clusters import clusters, train
from benchmarks.infinite_width.margin_reached import optimum
from benchmarks.sizes import grid, margin_share, sized
from benchmarks.words import span
from implicit_bias import LimitConfig, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.networks import ReLUNetwork
from implicit_bias.report.style import COLOURS, GREY, MARKERS

PUBLISHED, ACCELERATED = "published", "accelerated"
# Of the certified maximum: the rule of the verdict.
REACHED = 0.9


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: networks that published training leaves far from the maximum."""

    k: int = 4
    samples: int = 64
    width: int = 256
    published_steps: int = 50_000
    steps: int = 1000
    draws: int = 4


WHOLE = Sizes()
QUICK = Sizes(k=3, samples=16, width=16, published_steps=200, steps=30, draws=2)


def settings(sizes: Sizes) -> list[Row]:
    """Every draw."""
    return grid(draw=range(sizes.draws))


def rows(sizes: Sizes, draw: int) -> Rows:
    """One row a method and step: the share of the certified maximum."""
    X, y = clusters(sizes.k, sizes.samples, draw)
    best, _ = optimum(sizes.k, sizes.samples, draw)
    slow = train(X[None], y[None], sizes.width, sizes.published_steps, seed=sizes.width + draw)
    for step, margin in zip(slow.steps, slow.margins[:, 0], strict=True):
        yield {"method": PUBLISHED, "step": int(step), "share": margin * best.upper}
    torch.manual_seed(draw)
    network = ReLUNetwork(X.shape[1], (sizes.width,), seed=draw, dtype=torch.float64)
    config = LimitConfig(steps=sizes.steps, record=10)
    result = train_to_limit(network, X, y, config, measure=lambda net: {"path": _share(net, X, y)})
    for point in result.history:
        share = point.measures["path"] * best.upper
        yield {"method": ACCELERATED, "step": point.step, "share": share}


def _share(network: ReLUNetwork, X: Array, y: Array) -> float:
    """Smallest margin over the path norm."""
    W = network.hidden_weights[0].detach().numpy().reshape(-1, X.shape[1])
    a = network.readout.detach().numpy().reshape(-1)
    margin = (y * (np.maximum(X @ W.T, 0.0) @ a)).min()
    return float(margin / (np.abs(a) * np.linalg.norm(W, axis=1)).sum())


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Return shares at the end: a row a draw, a column a method."""
    last = frame.groupby(["draw", "method"], sort=False)["share"].last()
    return last.unstack()[[PUBLISHED, ACCELERATED]]


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    table = ends(frame)
    said = (
        f"{margin_share(table[method].median())} in the median "
        f"({span(table[method], margin_share)}) after "
        f"{frame.loc[frame['method'] == method, 'step'].max():,} {method} steps"
        for method in (PUBLISHED, ACCELERATED)
    )
    return f"Of the certified maximum the same draws reach {' and '.join(said)}."


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    table = ends(frame)
    more = table[ACCELERATED] > table[PUBLISHED]
    return Verdict.of(more.all() and table[ACCELERATED].median() >= least, more.mean() > 0.5)


def tabulate(frame: pd.DataFrame) -> Tabular:
    """Shares at the end of each draw."""
    table = ends(frame)
    cells = {f"{method} steps": table[method].map(margin_share) for method in table}
    return {"draw": [str(draw) for draw in table.index], **cells}


def draw(frame: pd.DataFrame) -> Figure:
    """Shares against steps, a line a draw."""
    figure, ax = subplots((5.2, 3.4))
    for place, (method, runs) in enumerate(frame.groupby("method", sort=False)):
        for i, (_, run) in enumerate(runs.groupby("draw")):
            run = run[run["step"] > 0]
            look = {"color": COLOURS[place], "marker": MARKERS[place], "markersize": 2.5}
            label = f"{method}" if i == 0 else None
            ax.plot(run["step"], run["share"].clip(lower=0.0), linewidth=1.0, label=label, **look)
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set(xscale="log", xlabel="steps", ylabel="margin / certified maximum", ylim=(0.0, 1.06))
    ax.set_xlim(left=0.2 * frame["step"].max() ** 0.5)
    ax.grid(axis="y")
    ax.legend(loc="center left")
    return figure


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK, whole=WHOLE)
