"""Where narrow networks end: local minima, graded against the infinitely wide optimum.

The same data, many starts. The optimum has few neurons, so narrow networks could reach it; the
share of its margin that they do reach, and what a new second layer or one more unit would give,
tell why they do not.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Row, Rows, Verdict
from benchmarks.infinite_width.clusters import clusters, train
from benchmarks.sizes import grid, sized
from implicit_bias.base.wording import percent
from implicit_bias.infinite_width import certify, max_margin
from implicit_bias.report.style import BLUE, GREEN, GREY, VERMILION

# A unit that lowers the norm by less than this share is no escape.
LOWERS = 1e-3
# Of the certified maximum: the rule of the verdict.
REACHED = 0.95
LOOKS = {
    "share": ("as trained", VERMILION, "o"),
    "refit": ("second layer refitted", BLUE, "s"),
    "with_unit": ("and one unit added", GREEN, "^"),
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Data, widths, starts and steps."""

    k: int = 3
    samples: int = 64
    widths: tuple[int, ...] = (4, 8, 16, 32, 64)
    starts: int = 50
    steps: int = 50_000


QUICK = Sizes(samples=16, widths=(4, 16), starts=2, steps=300)


def settings(sizes: Sizes) -> list[Row]:
    """Widths."""
    return grid(width=sizes.widths)


def rows(sizes: Sizes, width: int) -> Rows:
    """One row a start: margins as shares of the certified maximum."""
    X, y = clusters(sizes.k, sizes.samples, 0)
    best = max_margin(X, y)
    copies = sizes.starts
    trained = train(np.stack([X] * copies), np.stack([y] * copies), width, sizes.steps, seed=width)
    for start in range(copies):
        grade = certify((trained.first[start], trained.readout[start] / width), X, y, solution=best)
        optimum = best.certificate.lower
        yield {
            "start": start,
            "neurons": len(best.coef),
            "separates": grade.min_margin > 0,
            "share": grade.share[0],
            "refit": optimum / grade.refit_norm,
            "with_unit": optimum / grade.escape_norm,
            "escapes": grade.escape_norm < (1.0 - LOWERS) * grade.refit_norm,
        }


def draw(frame: pd.DataFrame) -> Figure:
    """Shares of the maximum, one point a start, by width."""
    figure, ax = subplots((6.0, 3.5), grid="y")
    widths = sorted(frame["width"].unique())
    rng = np.random.default_rng(0)
    for i, (column, (name, colour, marker)) in enumerate(LOOKS.items()):
        places = np.searchsorted(widths, frame["width"]) + 0.25 * (i - 1)
        jitter = rng.uniform(-0.07, 0.07, len(frame))
        ax.scatter(
            places + jitter,
            frame[column],
            s=16,
            c=colour,
            marker=marker,
            alpha=0.65,
            linewidths=0,
            label=name,
        )
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set_xticks(range(len(widths)), labels=[str(width) for width in widths])
    ax.set(xlabel="hidden units", ylabel="margin / certified maximum", ylim=(-0.04, 1.08))
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    by_width = frame.groupby("width")
    failed = (1.0 - by_width["separates"].mean()).iloc[0]
    medians = by_width["share"].median()
    shares = ", ".join(f"{percent(share)} ({width} units)" for width, share in medians.items())
    return (
        f"**The optimum has {frame['neurons'].iloc[0]} neurons. Of its margin the median start "
        f"reaches {shares}.** With {medians.index[0]} units {100 * failed:.0f} % of the starts "
        f"fail to separate. One more unit provably lowers the norm of the best "
        f"second layer in {100 * frame['escapes'].mean():.0f} % of all ends."
    )


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    enough = frame[frame["width"] >= frame["neurons"]]
    return Verdict.each(enough.groupby("width")["share"].median() >= least)


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Separating starts, median shares of the maximum, and ends that one more unit would leave."""
    by_width = frame.groupby("width")
    means = by_width[["separates", "escapes"]].mean()
    return means.join(by_width[list(LOOKS)].median()).reset_index()


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
