"""How much of the certified maximum margin gradient descent reaches, against width and steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.harness import Experiment, Verdict
from benchmarks.infinite_width.clusters import clusters, train
from benchmarks.sizes import at_sizes, margin_share, with_sizes
from implicit_bias.certificate import Certificate
from implicit_bias.report.style import COLOURS, GREY
from implicit_bias.report.words import percent
from implicit_bias.theory.infinite_width import max_margin
from implicit_bias.validation import Array

# Of the certified maximum: the rule of the verdict.
REACHED = 0.95


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: every grid of clusters with every number of samples and every width."""

    grids: tuple[int, ...] = (3, 4)
    samples: tuple[int, ...] = (32, 64, 128, 256)
    widths: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512, 1024)
    steps: int = 50_000
    draws: int = 20


WHOLE = Sizes()
QUICK = Sizes(grids=(3,), samples=(16, 32), widths=(8, 32), steps=300, draws=2)


@dataclass(frozen=True)
class Setting:
    """Networks that are trained on the same data sets."""

    k: int
    samples: int
    width: int


def settings(sizes: Sizes) -> list[Setting]:
    """Every setting once."""
    return [
        Setting(k, samples, width)
        for samples in sizes.samples
        for k in sizes.grids
        for width in sizes.widths
    ]


def rows(sizes: Sizes, setting: Setting) -> Iterator[dict[str, Any]]:
    """One row a draw and step: the share of the certified maximum."""
    data = [clusters(setting.k, setting.samples, draw) for draw in range(sizes.draws)]
    X, y = np.stack([X for X, _ in data]), np.stack([y for _, y in data])
    trained = train(X, y, setting.width, sizes.steps, seed=setting.width)
    for draw in range(sizes.draws):
        best, neurons = optimum(setting.k, setting.samples, draw)
        for step, margin in zip(trained.steps, trained.margins[:, draw], strict=True):
            yield {
                **asdict(setting),
                "draw": draw,
                "step": int(step),
                "share": margin * best.upper,
                "norm": best.upper,
                "gap": best.gap,
                "neurons": neurons,
            }


@lru_cache(maxsize=None)
def optimum(k: int, samples: int, draw: int) -> tuple[Certificate, int]:
    """Certified smallest norm of a data set, whatever the width, and its number of neurons."""
    found = max_margin(*clusters(k, samples, draw))
    return found.certificate, len(found.coef)


def draw(frame: pd.DataFrame) -> Figure:
    """Share of the maximum against steps by width, and at the end against width and samples."""
    grids = frame.groupby("k")
    figure = Figure(figsize=(3.9 * (2 + grids.ngroups), 3.6), layout="constrained")
    *of_grids, by_width, by_samples = figure.subplots(1, grids.ngroups + 2, sharey=True)
    samples, width = most_common(frame)
    most = frame["step"].max()
    ticks = [10**power for power in range(2, 7) if 10**power <= most]
    for ax, (k, of_grid) in zip(of_grids, grids, strict=True):
        at_samples = of_grid[of_grid["samples"] == samples]
        shades = _shades(at_samples["width"].nunique())
        for colour, (units, of_width) in zip(shades, at_samples.groupby("width"), strict=True):
            median = of_width.groupby("step")["share"].median()
            ax.plot(median.index, median, color=colour, label=str(units))
        ax.set(xscale="log", xlabel="steps", title=f"{k} × {k} clusters, {samples} samples")
        ax.set_xlim(min(100, 0.1 * most), most)
        ax.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        _reference(ax)
    of_grids[0].set_ylabel("margin / certified maximum")
    of_grids[0].legend(
        title="hidden units (medians)", ncols=2, loc="upper left", bbox_to_anchor=(0.0, 0.95)
    )
    last = frame[frame["step"] == most]
    _at_end(by_width, last[last["samples"] == samples], "width", "hidden units")
    _at_end(by_samples, last[last["width"] == width], "samples", "samples")
    by_width.set_title(f"after {most:,} steps, {samples} samples")
    by_samples.set_title(f"after {most:,} steps, {width:,} units")
    by_width.legend(title="clusters (median, range)", loc="lower right")
    return figure


def most_common(frame: pd.DataFrame) -> tuple[int, int]:
    """Return the number of samples of most widths, and the width of most numbers of samples."""
    widths = frame.groupby("samples")["width"].nunique()
    samples = frame.groupby("width")["samples"].nunique()
    return (
        int(widths.index.to_numpy()[widths.argmax()]),
        int(samples.index.to_numpy()[samples.argmax()]),
    )


def _at_end(ax: Axes, last: pd.DataFrame, by: str, name: str) -> None:
    """Median and range of the shares, a line a number of clusters."""
    for colour, marker, (k, rows) in zip(COLOURS, "o^s", last.groupby("k"), strict=False):
        shares = rows.groupby(by)["share"]
        middle, low, high = (shares.quantile(q) for q in (0.5, 0.0, 1.0))
        ax.errorbar(
            middle.index,
            middle,
            yerr=[middle - low, high - middle],
            color=colour,
            marker=marker,
            markersize=4,
            capsize=2,
            linewidth=1.2,
            label=f"{k} × {k}",
        )
    places = sorted(last[by].unique())
    ax.set(xscale="log", xlabel=name)
    ax.set_xticks(places, labels=[f"{place:,}" for place in places])
    _reference(ax)


def _reference(ax: Axes) -> None:
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set_ylim(0.0, 1.06)
    ax.set_xticks([], minor=True)
    ax.grid(axis="y")


def _shades(count: int) -> Array:
    """Colours (count, 4) from dark to light."""
    return np.asarray(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, count)))


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    samples, _ = most_common(frame)
    of_grids = []
    for k, of_grid in frame.groupby("k"):
        medians = at_end(of_grid).loc[k].loc[samples]["median"]
        few, many = of_grid["neurons"].agg(["min", "max"])
        of_grids.append(
            f"of {k} × {k} clusters the median margin is {percent(max(medians.iloc[0], 0.0))} of "
            f"the certified maximum with {medians.index[0]} hidden units and "
            f"{percent(medians.iloc[-1])} with {medians.index[-1]:,}, and the maximum itself needs "
            f"{few} to {many} neurons"
        )
    return (
        f"After {frame['step'].max():,} steps on {samples} samples {'; '.join(of_grids)}. No "
        f"network exceeds its maximum (the largest share is {percent(frame['share'].max())}). All "
        f"maxima are certified to a relative gap of {frame['gap'].max():.1g}."
    )


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Median, least and largest share at the last step, by clusters, samples and width."""
    last = frame[frame["step"] == frame["step"].max()]
    return last.groupby(["k", "samples", "width"])["share"].agg(["median", "min", "max"])


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    samples, _ = most_common(frame)
    medians = at_end(frame).xs(samples, level="samples")["median"].groupby("k")
    reached, narrowest = medians.last(), medians.first()
    return Verdict.of((reached >= REACHED).all(), (reached > narrowest).all())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Shares at the last step, by number of samples and width."""
    shares = at_end(frame)
    cells = {name: shares[name].map(margin_share) for name in shares}
    shown = pd.DataFrame(cells).reset_index().astype(str)
    return shown.rename(columns={"k": "k × k clusters"})


EXPERIMENT = Experiment(
    claim="Trained long, a wide network reaches the largest margin under the variation norm, which "
    "is a theorem in the limit of width and time. How near finite ones come is not in the paper, "
    "which has no certified maximum to compare with.",
    how="Full-batch gradient ascent on the soft minimum of the margins, by both layers, as "
    "published. The margin over the path norm is divided by the certified maximum, for several "
    "widths at one number of samples and several numbers of samples at one width; each draw has "
    "labels, data and weights of its own.",
    measure=at_sizes(settings, rows, quick=QUICK, whole=WHOLE),
    draw=draw,
    found=with_sizes(found),
    rule="It stands if for every number of clusters the widest network reaches 95 % of the "
    "certified maximum in the median at the last step, and in part if the widest reaches more than "
    "the narrowest.",
    verdict=verdict,
    tabulate=tabulate,
    alt="Share of the certified maximum margin against steps by width, and at the end by width and "
    "by samples; negative shares, of networks that do not separate the samples, are cut off",
)
