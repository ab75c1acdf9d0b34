"""How much of the certified maximum margin gradient descent reaches, against width and steps.

The measure of a network is its margin over the path norm sum_j |a_j| ||w_j||, divided by the
largest margin under the variation norm, which is certified: at most 1. Training is as published,
and beside it accelerated, by `train_to_limit` from weights of its own on the same samples.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes

from benchmarks.bench import Part, part, rows_of
from benchmarks.drawing import Figure, common_legend, subplots, tick_values
from benchmarks.effects import Effect
from benchmarks.fill import written
from benchmarks.infinite_width.clusters import clusters, path_margin, train, weights_of
from implicit_bias import LimitConfig, train_to_limit
from implicit_bias.base.style import BLACK, COLOURS, GREY, MARKERS
from implicit_bias.bounds.certificate import Certificate
from implicit_bias.infinite_width import max_margin
from implicit_bias.networks import ReLUNetwork

COST = 40.0
PUBLISHED, ACCELERATED = "published", "accelerated"


def measure(quick: bool) -> Iterator[Part]:
    """Train as published at every width, and accelerated at one on the larger grid."""
    draws = 2 if quick else 20
    samples = (16, 32) if quick else (32, 64, 128, 256)
    widths = (8, 16) if quick else (8, 16, 32, 64, 128, 256, 512, 1024)
    steps = 200 if quick else 50_000
    for n, k, width in product(samples, (3, 4), widths):
        points = 40 if width == widths[-1] else 1
        setting = {"method": PUBLISHED, "samples": n, "k": k, "width": width}
        yield part(published, **setting, steps=steps, points=points, draws=draws)
    width = 16 if quick else 256
    for n in samples[:3]:
        setting = {"method": ACCELERATED, "samples": n, "k": 4, "width": width}
        yield part(accelerated, **setting, steps=30 if quick else 1000, points=1, draws=draws)


def published(
    method: str, samples: int, k: int, width: int, steps: int, points: int, draws: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each draw and step: all draws are trained side by side."""
    data = [clusters(k, samples, draw) for draw in range(draws)]
    X = np.stack([inputs for inputs, _ in data])
    y = np.stack([labels for _, labels in data])
    trained = train(X, y, width, steps, seed=width, n_points=points)
    for draw in range(draws):
        for step, margin in zip(trained.steps, trained.margins[:, draw], strict=True):
            yield measured(k, samples, draw, int(step), float(margin))


def accelerated(
    method: str, samples: int, k: int, width: int, steps: int, points: int, draws: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each draw: its margin after accelerated steps."""
    for draw in range(draws):
        X, y = clusters(k, samples, draw)
        torch.manual_seed(draw)
        network = ReLUNetwork(X.shape[1], (width,), seed=draw, dtype=torch.float64)
        train_to_limit(network, X, y, LimitConfig(steps=steps, record=10))
        yield measured(k, samples, draw, steps, path_margin(X, y, *weights_of(network)))


def measured(k: int, samples: int, draw: int, step: int, margin: float) -> dict[str, Any]:
    """Return a margin as a share of the certified maximum, and facts of the latter."""
    best, neurons = optimum(k, samples, draw)
    return {
        "draw": draw,
        "step": step,
        "share": margin * best.upper,
        "norm": best.upper,
        "gap": best.gap,
        "neurons": neurons,
    }


@cache
def optimum(k: int, samples: int, draw: int) -> tuple[Certificate, int]:
    """Certified smallest norm of a data set, whatever the width, and its number of neurons."""
    found = max_margin(*clusters(k, samples, draw))
    return found.certificate, len(found.coef)


# --- what the page says --------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Median shares at the last step, what accelerated steps add, neurons of the optimum."""
    ends = at_end(frame)
    medians = ends.groupby(["k", "samples", "width"])["share"].median()
    widest = medians.groupby(["k", "samples"]).last()
    found: dict[str, Any] = {}
    for row in rows_of(medians.reset_index()):
        found[f"median_{row['k']}_{row['samples']}_{row['width']}"] = row["share"]
    for k, shares in widest.groupby("k"):
        found[f"lowest_{k}"] = shares.min()
        found[f"highest_{k}"] = shares.max()
    of_most = ends[ends["samples"] == ends["samples"].max()]
    for k, neurons in of_most.groupby("k")["neurons"]:
        found[f"neurons_{k}"] = neurons.median()
    last = ends[ends["width"] == ends["width"].max()]
    for (k, n), shares in last.groupby(["k", "samples"])["share"]:
        found[f"separate_{k}_{n}"] = (shares > 0).mean()
    return found | {
        "short_least": 1.0 - widest.max(),
        "short_most": 1.0 - widest.min(),
        "largest": frame["share"].max(),
        "gap": frame["gap"].max(),
        "shares": shares_at_the_end(ends),
        **by_accelerated_steps(frame),
    }


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of published training at its last step."""
    of_method = frame[frame["method"] == PUBLISHED]
    return of_method[of_method["step"] == of_method["steps"]]


def by_accelerated_steps(frame: pd.DataFrame) -> dict[str, Any]:
    """Compare both ways of training on the same samples, at the width that both have.

    A network that does not separate the samples has a negative share; in the mean difference it
    counts as 0, as a network that separates nothing.
    """
    fast = frame[frame["method"] == ACCELERATED].set_index(["samples", "draw"])
    slow = at_end(frame)
    same = (slow["k"] == fast["k"].iloc[0]) & (slow["width"] == fast["width"].iloc[0])
    shares = pd.DataFrame(
        {
            PUBLISHED: slow[same].set_index(["samples", "draw"])["share"],
            ACCELERATED: fast["share"],
        }
    ).dropna()
    medians = shares.groupby("samples").median()
    gained = shares[ACCELERATED].clip(lower=0.0) - shares[PUBLISHED].clip(lower=0.0)
    draws = pd.Series(shares.index.get_level_values("draw"), index=shares.index)
    found: dict[str, Any] = {
        "gained": Effect.of(gained, draws),
        "ahead": (shares[ACCELERATED] > shares[PUBLISHED]).sum(),
        "draws": len(shares),
    }
    for method, of_method in medians.items():
        found[f"{method}_low"] = of_method.min()
        found[f"{method}_high"] = of_method.max()
    return found


def shares_at_the_end(ends: pd.DataFrame) -> pd.DataFrame:
    """Median share by clusters, samples and width; "-" where it does not separate."""

    def text(share: float) -> str:
        return written(share, ".0%") if share > 0 else "-"

    rows = []
    for (k, n), of_size in ends.groupby(["k", "samples"]):
        medians = of_size.groupby("width")["share"].median()
        widest = of_size[of_size["width"] == of_size["width"].max()]["share"]
        cells = {"clusters": f"{k} × {k}", "samples": str(n)}
        cells |= {f"{width:,} units": text(share) for width, share in medians.items()}
        cells["least to largest, widest"] = f"{text(widest.min())} to {text(widest.max())}"
        cells["neurons of the optimum"] = f"{of_size['neurons'].median():g}"
        rows.append(cells)
    return pd.DataFrame(rows)


# --- the picture ---------------------------------------------------------------------------------


def draw(frame: pd.DataFrame) -> Figure:
    """Shares by samples: of the widest networks against steps, of all at the end against width."""
    slow, ends = frame[frame["method"] == PUBLISHED], at_end(frame)
    fast = frame[frame["method"] == ACCELERATED]
    fast_steps = fast["step"].max()
    grids, counts = sorted(slow["k"].unique()), sorted(slow["samples"].unique())
    size = (8.0, 3.2 * len(grids) + 0.6)
    figure, panels = subplots(size, len(grids), 2, sharey=True, squeeze=False, grid="y")
    last, widest = slow["step"].max(), slow["width"].max()
    for k, (left, right) in zip(grids, panels, strict=True):
        left.set_ylabel("margin / certified maximum")
        by_samples(left, slow[(slow["k"] == k) & (slow["width"] == widest)], "step")
        tick_values(left, [10**power for power in range(2, 7)], write="{:,}")
        left.set(xlabel="steps", xlim=(0.02 * last, 1.1 * last))
        left.set_title(f"{k} × {k} clusters, {widest:,} hidden units")
        by_samples(right, ends[ends["k"] == k], "width", ranges=True)
        medians = fast[fast["k"] == k].groupby(["width", "samples"])["share"].median()
        for (width, n), share in medians.items():
            place = counts.index(n)
            look = {"marker": "*", "markersize": 9, "color": COLOURS[place], "zorder": 3}
            right.plot(width * aside(place, len(counts)), share, markeredgecolor=BLACK, **look)
        tick_values(right, ends["width"], write="{:,}", rotation=45)
        right.set(xlabel="hidden units", title=f"{k} × {k} clusters, {last:,} steps")
    panels[-1, 1].plot(
        [], [], "k*", markersize=9, label=f"{fast_steps:,} accelerated steps (medians)"
    )
    return common_legend(figure, panels[-1], 2)


def aside(place: int, count: int) -> float:
    """Return the factor by which one of several bars stands beside the width that they share."""
    return float(1.06 ** (place - 0.5 * (count - 1)))


def by_samples(ax: Axes, rows: pd.DataFrame, along: str, *, ranges: bool = False) -> None:
    """Median shares against steps or width, with quartiles if wanted, a line a sample size."""
    groups = list(rows.groupby("samples"))
    for place, (samples, of_samples) in enumerate(groups):
        shares = of_samples.groupby(along)["share"]
        middle = shares.median()
        high = shares.quantile(0.75)
        # A bar that runs off the picture says no more than where it begins.
        low = shares.quantile(0.25).clip(lower=middle.clip(upper=0.0))
        shift = aside(place, len(groups)) if ranges else 1.0
        ax.errorbar(
            middle.index.to_numpy() * shift,
            middle,
            yerr=[middle - low, high - middle] if ranges else None,
            color=COLOURS[place],
            marker=MARKERS[place],
            markersize=3.5,
            capsize=1.5,
            linewidth=1.1,
            elinewidth=0.7,
            label=f"{samples} samples (medians, bars: quartiles)",
        )
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set(xscale="log", ylim=(0.0, 1.06))
