"""How many neurons the maximum margin needs, and whether it is unique."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from benchmarks.drawing import Figure, median_bars, subplots, tick_values
from benchmarks.harness import Row, Rows, Verdict
from benchmarks.infinite_width.clusters import clusters
from benchmarks.sizes import grid, sized
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import InfiniteWidthSolution, max_margin
from implicit_bias.infinite_width.arrangement import Lines, maximise
from implicit_bias.report.style import BLUE, GREEN, VERMILION

# Peaks of |h| this near to 1 touch the bound; those nearer than this angle are one.
TOUCHES, SAME = 1e-4, 0.02


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Grids of clusters, samples and draws."""

    grids: tuple[int, ...] = (2, 3, 4)
    samples: tuple[int, ...] = (16, 32, 64, 128, 256)
    draws: int = 10


QUICK = Sizes(grids=(2, 3), samples=(16, 32), draws=2)


def settings(sizes: Sizes) -> list[Row]:
    """Grids and numbers of samples."""
    return grid(k=sizes.grids, samples=sizes.samples)


def rows(sizes: Sizes, k: int, samples: int) -> Rows:
    """One row a draw: neurons of the optimum, contacts of the dual bound, and uniqueness."""
    for draw in range(sizes.draws):
        live = max_margin(*clusters(k, samples, draw), tol=1e-8)
        contacts, rank, function_rank = contact_points(live)
        yield {
            "draw": draw,
            "norm": live.certificate.upper,
            "gap": live.certificate.gap,
            "seconds": live.seconds,
            "neurons": len(live.coef),
            "support": int((live.alpha > 1e-6 * live.alpha.max()).sum()),
            "contacts": contacts,
            "unique_measure": rank == contacts,
            "unique_function": rank == function_rank,
        }


def contact_points(live: InfiniteWidthSolution) -> tuple[int, int, int]:
    """Count directions at which |h| touches 1, and what their activations determine.

    Every optimal measure lives on these directions and has margin 1 on the support vectors. If the
    activations there have full rank, there is one optimal measure. If they have the rank of the
    functions themselves (a kink on the line of w, and a linear function), there is one
    optimal function.

    Returns
    -------
    contacts, rank, function_rank : int
        Directions, rank of their activations on the support vectors, rank of their functions.
    """
    peaks = maximise(live.problem.dual_function(live.alpha), floor=1.0 - TOUCHES)
    points = peaks.points[peaks.values >= 1.0 - TOUCHES]
    chosen: list[Array] = []
    while len(points):
        chosen.append(points[0])
        points = points[np.linalg.norm(points - points[0], axis=1) > SAME]
    directions = np.array(chosen)
    support = live.alpha > 1e-6 * live.alpha.max()
    activations = live.problem.activations(directions @ live.problem.basis.T)[support]
    kinks = np.eye(len(chosen))[:, Lines.of(directions, SAME).line]  # one row a line
    functions = np.column_stack([kinks.T, directions])
    return len(chosen), _rank(activations), _rank(functions)


def _rank(matrix: Array) -> int:
    return int(np.linalg.matrix_rank(matrix, tol=1e-6 * float(np.abs(matrix).max())))


def draw(frame: pd.DataFrame) -> Figure:
    """Neurons of the optimum against samples, by the number of clusters."""
    figure, ax = subplots((4.6, 3.3), grid="y")
    for colour, marker, (k, rows) in zip(
        (BLUE, VERMILION, GREEN), "o^s", frame.groupby("k"), strict=False
    ):
        look = {"color": colour, "markersize": 4, "capsize": 2, "linewidth": 1.2}
        words = f"{k} × {k}"
        median_bars(ax, rows["neurons"], rows["samples"], marker=marker, label=words, **look)
    ax.set(xscale="log", xlabel="samples", ylabel="neurons of the optimum")
    tick_values(ax, frame["samples"])
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(title="clusters (median, range)")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    largest = frame[frame["samples"] == frame["samples"].max()]
    counts = largest.groupby("k")["neurons"].median()
    words = ", ".join(f"{count:.0f} neurons for {k} × {k} clusters" for k, count in counts.items())
    ratios = (frame["neurons"] / frame["support"]).groupby(frame["samples"]).median()
    return (
        f"With {frame['samples'].max()} samples the optimum has {words} (medians). A basic optimum "
        "has no more neurons than support vectors, so that fewer than samples is no surprise: it "
        f"has {span(ratios, '.2f')} times as many in the median of each number of samples. "
        "Its function is unique, as the contact points tell, in "
        f"{100 * frame['unique_function'].mean():.0f} % of the draws, its measure in "
        f"{100 * frame['unique_measure'].mean():.0f} %: where h is even, w and -w can share a "
        "linear function in many ways at the same norm."
    )


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Median number of neurons, a row a number of samples, a column a number of clusters."""
    return frame.groupby(["samples", "k"])["neurons"].median().unstack()


def verdict(frame: pd.DataFrame, most: float = 2.0) -> Verdict:
    """Judge the claim by the rule."""
    counts = medians(frame)
    return Verdict.each(counts.iloc[-1] < most * counts.iloc[len(counts) // 2])


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Median number of neurons by samples and clusters, and the largest certified gap."""
    counts = medians(frame)
    cells = {f"{k} × {k} clusters": counts[k].map("{:.0f}".format) for k in counts}
    ratio = (frame["neurons"] / frame["support"]).groupby(frame["samples"]).median()
    cells["neurons / support vectors"] = ratio.map("{:.2f}".format)
    gaps = frame.groupby("samples")["gap"].max().map("{:.1e}".format)
    return pd.DataFrame({**cells, "largest gap": gaps}).reset_index().astype(str)


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
