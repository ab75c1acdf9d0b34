"""How much of the certified maximum margin gradient descent reaches, against width and steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.harness import Experiment, Verdict
from benchmarks.infinite_width.clusters import clusters, train
from benchmarks.infinite_width.shared import SizeOptions, at_sizes, with_sizes
from implicit_bias.report.style import COLOURS, GREY
from implicit_bias.report.words import percent
from implicit_bias.theory.infinite_width import InfiniteWidthSolution, max_margin
from implicit_bias.validation import Array

# Of the certified maximum: the rule of the verdict.
REACHED = 0.95


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: widths at one number of samples, and numbers of samples at one width."""

    k: int = 3
    widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024)
    samples: int = 256
    sample_sizes: tuple[int, ...] = (32, 64, 128, 256)
    width: int = 1024
    steps: int = 50_000
    draws: int = 20


FULL = Sizes()
MINUTES = Sizes(
    widths=(8, 16, 32, 64, 128, 256, 512),
    samples=64,
    sample_sizes=(32, 128),
    width=128,
    draws=4,
    steps=30_000,
)
QUICK = Sizes(widths=(8, 32), samples=32, sample_sizes=(32,), width=32, steps=300, draws=2)


def measure(sizes: Sizes = FULL) -> pd.DataFrame:
    """One row a draw, width, number of samples and step: the share of the certified maximum."""
    settings = {(sizes.samples, width) for width in sizes.widths}
    settings |= {(samples, sizes.width) for samples in sizes.sample_sizes}
    optima = {
        samples: [max_margin(*clusters(sizes.k, samples, draw)) for draw in range(sizes.draws)]
        for samples in {samples for samples, _ in settings}
    }
    return pd.DataFrame(
        [
            row
            for samples, width in sorted(settings)
            for row in _of_setting(sizes, samples, width, optima[samples])
        ]
    )


def _of_setting(
    sizes: Sizes, samples: int, width: int, optima: list[InfiniteWidthSolution]
) -> Iterator[dict[str, Any]]:
    data = [clusters(sizes.k, samples, draw) for draw in range(sizes.draws)]
    X, y = np.stack([X for X, _ in data]), np.stack([y for _, y in data])
    trained = train(X, y, width, sizes.steps, seed=width)
    for draw, optimum in enumerate(optima):
        for step, margin in zip(trained.steps, trained.margins[:, draw], strict=True):
            yield {
                "samples": samples,
                "width": width,
                "draw": draw,
                "step": int(step),
                "share": margin * optimum.certificate.upper,
                "norm": optimum.certificate.upper,
                "gap": optimum.certificate.gap,
                "neurons": len(optimum.coef),
            }


def draw(frame: pd.DataFrame) -> Figure:
    """Share of the maximum against steps for each width, and at the end against width."""
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    many = frame.groupby("samples")["width"].nunique().idxmax()
    at_many = frame[frame["samples"] == many]
    for colour, (width, rows) in zip(
        _shades(at_many["width"].nunique()), at_many.groupby("width"), strict=True
    ):
        median = rows.groupby("step")["share"].median()
        left.plot(median.index, median, color=colour, label=str(width))
    most = frame["step"].max()
    ticks = [10**power for power in range(2, 7) if 10**power <= most]
    left.set(xscale="log", xlabel="steps", ylabel="margin / certified maximum")
    left.set_xlim(min(100, 0.1 * most), most)
    left.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    left.set_xticks([], minor=True)
    left.set_title(f"{many} samples, by width")
    _reference(left)
    left.legend(title="hidden units", ncols=2, loc="upper left", bbox_to_anchor=(0.0, 0.95))
    last = frame[frame["step"] == frame["step"].max()]
    for colour, (samples, rows) in zip(COLOURS, last.groupby("samples"), strict=False):
        by_width = rows.groupby("width")["share"]
        middle, low, high = (by_width.quantile(q) for q in (0.5, 0.0, 1.0))
        right.errorbar(
            middle.index,
            middle,
            yerr=[middle - low, high - middle],
            color=colour,
            marker="o",
            markersize=4,
            capsize=2,
            linewidth=1.2,
            label=str(samples),
        )
    right.set(xscale="log", xlabel="hidden units", ylabel="margin / certified maximum")
    right.set_title(f"after {last['step'].max():,} steps")
    widths = sorted(last["width"].unique())
    right.set_xticks(widths, labels=[str(width) for width in widths])
    right.set_xticks([], minor=True)
    right.legend(title="samples (median, range)", loc="lower right")
    _reference(right)
    return figure


def _reference(ax: Axes) -> None:
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set_ylim(0.0, 1.06)
    ax.grid(axis="y")


def _shades(count: int) -> Array:
    """Colours (count, 4) from dark to light."""
    return np.asarray(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, count)))


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = frame[frame["step"] == frame["step"].max()]
    medians = last.groupby(["samples", "width"])["share"].median()
    many = frame.groupby("samples")["width"].nunique().idxmax()
    narrow, wide = medians[many].iloc[0], medians[many].iloc[-1]
    widths = medians[many].index
    return (
        f"After {last['step'].max():,} steps on {many} samples the median margin is "
        f"{100 * narrow:.0f} % of the certified maximum with {widths[0]} hidden units and "
        f"{100 * wide:.0f} % with {widths[-1]}. The maximum itself needs "
        f"{last['neurons'].min()} to {last['neurons'].max()} neurons. All maxima are certified to "
        f"a relative gap of {frame['gap'].max():.1g}."
    )


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Median, least and largest share at the last step, by number of samples and width."""
    last = frame[frame["step"] == frame["step"].max()]
    return last.groupby(["samples", "width"])["share"].agg(["median", "min", "max"])


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    many = frame.groupby("samples")["width"].nunique().idxmax()
    medians = at_end(frame).xs(many)["median"]
    reached = medians.iloc[-1]
    return Verdict.of(reached >= REACHED, reached > medians.iloc[0])


def _share(share: float) -> str:
    """Write a share; a negative one has no size that means anything."""
    return percent(share) if share > 0 else "does not separate"


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Shares at the last step, by number of samples and width."""
    shares = at_end(frame)
    cells = {name: shares[name].map(_share) for name in shares}
    return pd.DataFrame(cells).reset_index().astype(str)


EXPERIMENT = Experiment(
    claim="Trained long, a wide network reaches the largest margin under the variation norm, which "
    "is a theorem in the limit of width and time. How near finite ones come is not in the paper, "
    "which has no certified maximum to compare with.",
    how="Full-batch gradient ascent on the soft minimum of the margins, by both layers, as "
    "published. The margin over the path norm is divided by the certified maximum, for several "
    "widths at one number of samples and several numbers of samples at one width.",
    measure=at_sizes(measure, quick=QUICK, minutes=MINUTES, full=FULL),
    draw=draw,
    found=with_sizes(found),
    rule="It stands if the widest network reaches 95 % of the certified maximum in the median at "
    "the last step, and in part if the widest reaches more than the narrowest.",
    verdict=verdict,
    tabulate=tabulate,
    alt="Share of the certified maximum margin against steps by width, and at the end by width; "
    "negative shares, of networks that do not separate the samples, are cut off",
    options=SizeOptions,
)
