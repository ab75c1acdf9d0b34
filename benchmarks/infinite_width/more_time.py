"""Whether what gradient descent leaves of the maximum margin is time: accelerated training."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Row, Rows, Tabular, Verdict
from benchmarks.infinite_width.clusters import clusters, path_margin, train, weights_of
from benchmarks.infinite_width.margin_reached import optimum
from benchmarks.sizes import grid, margin_share, sized
from benchmarks.words import span
from implicit_bias import LimitConfig, train_to_limit
from implicit_bias.networks import ReLUNetwork
from implicit_bias.report.style import COLOURS, GREY, MARKERS

PUBLISHED, ACCELERATED = "published", "accelerated"
# Of the certified maximum: the rule of the verdict.
REACHED = 0.9


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: networks that published training leaves far from the maximum."""

    k: int = 4
    samples: tuple[int, ...] = (32, 64, 128)
    width: int = 256
    published_steps: int = 50_000
    steps: int = 1000
    draws: int = 20


QUICK = Sizes(k=3, samples=(16,), width=16, published_steps=200, steps=30, draws=2)


def settings(sizes: Sizes) -> list[Row]:
    """Every number of samples, every draw."""
    return grid(samples=sizes.samples, draw=range(sizes.draws))


def rows(sizes: Sizes, samples: int, draw: int) -> Rows:
    """One row a method and step: the share of the certified maximum."""
    X, y = clusters(sizes.k, samples, draw)
    best, _ = optimum(sizes.k, samples, draw)
    slow = train(X[None], y[None], sizes.width, sizes.published_steps, seed=sizes.width + draw)
    for step, margin in zip(slow.steps, slow.margins[:, 0], strict=True):
        yield {"method": PUBLISHED, "step": int(step), "share": margin * best.upper}
    torch.manual_seed(draw)
    network = ReLUNetwork(X.shape[1], (sizes.width,), seed=draw, dtype=torch.float64)
    config = LimitConfig(steps=sizes.steps, record=10)

    def measured(of: ReLUNetwork) -> dict[str, float]:
        return {"path": path_margin(X, y, *weights_of(of))}

    result = train_to_limit(network, X, y, config, measure=measured)
    for point in result.history:
        share = point.measures["path"] * best.upper
        yield {"method": ACCELERATED, "step": point.step, "share": share}


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Return shares at the end: a row a number of samples and a draw, a column a method."""
    last = frame.groupby(["samples", "draw", "method"], sort=False)["share"].last()
    return last.unstack()[[PUBLISHED, ACCELERATED]]


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    table = ends(frame)
    said = (
        f"{span(table[method].groupby('samples').median(), margin_share)} after "
        f"{frame.loc[frame['method'] == method, 'step'].max():,} {method} steps"
        for method in (PUBLISHED, ACCELERATED)
    )
    ahead = (table[ACCELERATED] > table[PUBLISHED]).sum()
    return (
        f"Of the certified maximum the same draws reach {' and '.join(said)} (medians by samples); "
        f"accelerated training ends ahead on {ahead} of {len(table)} draws."
    )


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    table = ends(frame)
    more = table[ACCELERATED] > table[PUBLISHED]
    median = table[ACCELERATED].groupby("samples").median()
    return Verdict.of(more.all() and (median >= least).all(), more.mean() > 0.5)


def tabulate(frame: pd.DataFrame) -> Tabular:
    """Shares at the end, by the number of samples: median and range of the draws."""
    by_size = ends(frame).groupby("samples")
    cells = {
        f"{method} steps": [
            f"{margin_share(shares.median())} ({span(shares, margin_share)})"
            for _, shares in by_size[method]
        ]
        for method in (PUBLISHED, ACCELERATED)
    }
    return {"samples": [str(samples) for samples in by_size.groups], **cells}


def draw(frame: pd.DataFrame) -> Figure:
    """Shares against steps, a panel a number of samples: medians of the draws, and their quarters.

    Shares below 0, of networks that do not separate the samples, are cut off.
    """
    panels = frame[frame["step"] > 0].groupby("samples")
    figure, axes = subplots((2.4 * len(panels) + 0.6, 3.0), 1, len(panels), sharey=True)
    for ax, (samples, part) in zip(np.atleast_1d(axes), panels, strict=True):
        for place, (method, runs) in enumerate(part.groupby("method", sort=False)):
            shares = runs.pivot(index="step", columns="draw", values="share").ffill()
            quarters = shares.quantile([0.25, 0.5, 0.75], axis=1).T
            look: dict[str, Any] = {"color": COLOURS[place]}
            ax.plot(quarters[0.5], MARKERS[place] + "-", markersize=3, label=method, **look)
            low, high = quarters[0.25], quarters[0.75]
            ax.fill_between(quarters.index, low, high, alpha=0.2, linewidth=0, **look)
        ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
        ax.set(xscale="log", xlabel="steps", ylim=(0.0, 1.06), title=f"{samples} samples")
        ax.set_xlim(left=0.2 * frame["step"].max() ** 0.5)
        ax.grid(axis="y")
    np.atleast_1d(axes)[0].set_ylabel("margin / certified maximum")
    return common_legend(figure, np.atleast_1d(axes)[:1], 2)


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
