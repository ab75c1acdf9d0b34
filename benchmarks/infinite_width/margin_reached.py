"""How much of the certified maximum margin gradient descent reaches, against width and steps."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from benchmarks.drawing import Figure, common_legend, subplots, tick_values
from benchmarks.harness import Judged, Row, Rows, Verdict, otherwise
from benchmarks.infinite_width.clusters import clusters, train
from benchmarks.sizes import grid, margin_share, sized
from benchmarks.words import span
from implicit_bias.base.wording import percent
from implicit_bias.bounds.certificate import Certificate
from implicit_bias.infinite_width import max_margin
from implicit_bias.report.style import COLOURS, GREY, MARKERS

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


QUICK = Sizes(grids=(3,), samples=(16, 32), widths=(8, 32), steps=300, draws=2)


def settings(sizes: Sizes) -> list[Row]:
    """Networks of each width, trained on the same data sets."""
    return grid(samples=sizes.samples, k=sizes.grids, width=sizes.widths)


def rows(sizes: Sizes, samples: int, k: int, width: int) -> Rows:
    """One row a draw and step: the share of the certified maximum."""
    data = [clusters(k, samples, draw) for draw in range(sizes.draws)]
    X, y = np.stack([X for X, _ in data]), np.stack([y for _, y in data])
    trained = train(X, y, width, sizes.steps, seed=width)
    for draw in range(sizes.draws):
        best, neurons = optimum(k, samples, draw)
        for step, margin in zip(trained.steps, trained.margins[:, draw], strict=True):
            yield {
                "draw": draw,
                "step": int(step),
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


def draw(frame: pd.DataFrame) -> Figure:
    """Shares by samples: of the widest networks against steps, of all at the end against width."""
    grids = list(frame.groupby("k"))
    size = (8.0, 3.2 * len(grids) + 0.6)
    figure, panels = subplots(size, len(grids), 2, sharey=True, squeeze=False, grid="y")
    last, widest = frame["step"].max(), frame["width"].max()
    decades = [10**power for power in range(2, 7)]
    for (k, of_grid), (ax, end) in zip(grids, panels, strict=True):
        ax.set_ylabel("margin / certified maximum")
        _by_samples(ax, of_grid[of_grid["width"] == widest], "step")
        tick_values(ax, decades, write="{:,}")
        ax.set(xlabel="steps", xlim=(0.02 * last, 1.1 * last))
        ax.set_title(f"{k} × {k} clusters, {widest:,} hidden units")
        _by_samples(end, of_grid[of_grid["step"] == last], "width", ranges=True)
        tick_values(end, frame["width"], write="{:,}", rotation=45)
        end.set(xlabel="hidden units", title=f"{k} × {k} clusters, {last:,} steps")
    return common_legend(figure, panels[0], 2)


def _by_samples(ax: Axes, rows: pd.DataFrame, along: str, *, ranges: bool = False) -> None:
    """Median shares against steps or width, with quartiles if wanted, a line a sample size."""
    by_samples = list(rows.groupby("samples"))
    for i, (samples, of_samples) in enumerate(by_samples):
        shares = of_samples.groupby(along)["share"]
        # A bar that runs off the picture says no more than where it begins.
        middle, low, high = (shares.quantile(q) for q in (0.5, 0.25, 0.75))
        low = low.clip(lower=middle.clip(upper=0.0))
        # Bars stand side by side.
        aside = 1.06 ** (i - 0.5 * (len(by_samples) - 1)) if ranges else 1.0
        ax.errorbar(
            middle.index.to_numpy() * aside,
            middle,
            yerr=[middle - low, high - middle] if ranges else None,
            color=COLOURS[i],
            marker=MARKERS[i],
            markersize=3.5,
            capsize=1.5,
            linewidth=1.1,
            elinewidth=0.7,
            label=f"{samples} samples (medians, bars: quartiles)",
        )
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set(xscale="log", ylim=(0.0, 1.06))


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    words = []
    for k, of_grid in frame.groupby("k"):
        medians = at_end(of_grid)["median"].loc[k]
        few, many = of_grid["neurons"].min(), of_grid["neurons"].max()
        samples = of_grid["samples"].max()
        shares = medians.loc[samples]
        narrow, wide = shares.index.min(), shares.index.max()
        widest = of_grid[(of_grid["samples"] == samples) & (of_grid["width"] == wide)]
        words.append(
            f"Of {k} × {k} clusters, whose maximum needs {few} to {many} neurons, the median "
            f"network on {samples} samples {_words(shares[narrow])} with {narrow} hidden units and "
            f"{_words(shares[wide])} with {wide:,} ({_on_the_way(widest)})."
        )
    return (
        f"{reached(frame)} {' '.join(words)} "
        f"No network exceeds its maximum (the largest share is {percent(frame['share'].max())}). "
        f"All maxima are certified to a relative gap of {frame['gap'].max():.1g}."
    )


def reached(frame: pd.DataFrame) -> str:
    """Say what the widest networks reach."""
    widest = at_end(frame)["median"].groupby(["k", "samples"]).last()
    ends = " and ".join(
        f"{span(of_grid, margin_share)} on {k} × {k} clusters" for k, of_grid in widest.groupby("k")
    )
    return (
        f"Of the certified maximum the widest networks reach {ends} after "
        f"{frame['step'].max():,} steps, in the median of each number of samples."
    )


def _on_the_way(rows: pd.DataFrame) -> str:
    """Median shares after about a tenth and a third of the steps."""
    medians = rows.groupby("step")["share"].median()
    most = medians.index.max()
    steps = [medians.index[medians.index >= most // part].min() for part in (10, 3)]
    return ", ".join(f"{_words(medians[step])} after {step:,} steps" for step in steps)


def _words(share: float) -> str:
    return f"reaches {percent(share)}" if share > 0 else "does not separate"


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Median, least and largest share at the last step, by clusters, samples and width."""
    last = frame[frame["step"] == frame["step"].max()]
    return last.groupby(["k", "samples", "width"])["share"].agg(["median", "min", "max"])


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge what finite networks reach; of the limit nothing is judged."""
    width, steps = frame["width"].max(), frame["step"].max()
    return {
        "limit": Judged(
            Verdict.UNTESTED, f"The widest networks have {width:,} units, and {steps:,} steps."
        ),
        "finite": Judged(
            verdict(frame), reached(frame), remark=otherwise(verdict(frame, 0.9), "90 %")
        ),
    }


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    widest = at_end(frame)["median"].groupby(["k", "samples"]).last()
    return Verdict.each((widest >= least).groupby("k").all())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Median shares at the last step, a column a width, and the range at the widest."""
    shares = at_end(frame)
    medians = shares["median"].map(margin_share).unstack()
    widest = shares.groupby(["k", "samples"]).last()
    table = medians.rename(columns=lambda width: f"{width:,} units").fillna("")
    table["range at the widest"] = [
        f"{margin_share(low)} to {margin_share(high)}"
        for low, high in zip(widest["min"], widest["max"], strict=True)
    ]
    last = frame[(frame["step"] == frame["step"].max()) & (frame["width"] == frame["width"].max())]
    separating = (last["share"] > 0).groupby([last["k"], last["samples"]]).mean()
    table["draws that separate at the widest"] = separating.map(percent)
    return table.reset_index().astype(str).rename(columns={"k": "k × k clusters"})


EXPERIMENT = sized(settings, rows, found, tabulate, draw=draw, judge=judge, quick=QUICK)
