"""Which unit a narrow network lacks: the direction in which the oracle exceeds 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Row, Rows, Verdict, rows_of
from benchmarks.infinite_width.clusters import clusters, train
from benchmarks.infinite_width.pictures import AXIS, EXTENT, GRID, Plane, bare, grid_inputs, kink
from benchmarks.sizes import grid, sized
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.infinite_width import NetworkGrade, certify, max_margin
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY

# Units tried through each point of the picture of |h|.
ANGLES = 400
# Of the certified maximum: the rule of the verdict.
REACHED = 0.99
# Oracle values up to this are 1 but for rounding.
ONE = 1.0 + 1e-6
# Numbers of units of which the table has a row.
SHOWN = (0, 1, 2, 4, 8, 12, 16, 20, 24)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Data, width, starts, steps, and how many units the oracle may add."""

    k: int = 3
    samples: int = 64
    width: int = 8
    starts: int = 10
    steps: int = 20_000
    added: int = 24


QUICK = Sizes(samples=16, starts=2, steps=300, added=3)


def settings(sizes: Sizes) -> list[Row]:
    """List the starts."""
    return grid(start=range(sizes.starts))


def rows(sizes: Sizes, start: int) -> Rows:
    """One row for each unit that is added: the best second layer, and what the oracle says."""
    X, y = clusters(sizes.k, sizes.samples, 0)
    best = max_margin(X, y)
    trained = train(X[None], y[None], sizes.width, sizes.steps, seed=start)
    weights, readout = trained.first[0], trained.readout[0] / sizes.width
    for added in range(sizes.added + 1):
        grade = certify((weights, readout), X, y, solution=best)
        shown: dict[str, Any] = {}
        if not added:
            shown = {
                **Plane.of(X, y, _network(weights, readout), weights, readout).cells(),
                "oracle": largest_through(grade, grid_inputs()).astype(np.float32),
            }
        yield {
            "added": added,
            "share": grade.share[0],
            "refit": best.certificate.lower / grade.refit_norm,
            "with_unit": best.certificate.lower / grade.escape_norm,
            "oracle_value": grade.escape_value,
            "escape": grade.escape.astype(np.float32),
            **shown,
        }
        if np.isfinite(grade.refit_norm) and grade.escape_value <= ONE:
            return
        weights = np.vstack([weights, grade.escape])
        readout = np.append(readout, 0.0)


def _network(weights: Array, readout: Array) -> Callable[[Array], Array]:
    return lambda inputs: np.asarray(np.maximum(inputs @ weights.T, 0.0) @ readout)


def largest_through(grade: NetworkGrade, inputs: Array) -> Array:
    """Max |h| over units whose kink passes the point of each input (n, 3), on some of them."""
    problem = grade.solution.problem
    first = np.cross(inputs, np.array([0.3, -0.5, 0.81]))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(inputs, first)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    best = np.zeros(len(inputs))
    for angle in np.linspace(0.0, 2.0 * np.pi, ANGLES, endpoint=False):
        units = np.cos(angle) * first + np.sin(angle) * second
        best = np.maximum(best, np.abs(problem.dual_values(grade.alpha, units)))
    return best


def draw(frame: pd.DataFrame) -> Figure:
    """Show the network and the unit it lacks, max |h| over the plane, and the way to the maximum.

    The network shown is, of those that separate the samples, the one where the oracle is above 1
    on the least part of the plane but not on none.
    """
    figure, (left, middle, right) = subplots((10, 3.4), 1, 3)
    ends = frame[frame["added"] == 0]
    row = min(rows_of(ends), key=_part_above)
    Plane.of_row(row).draw(left)
    kink(left, row["escape"], color=GREEN, linewidth=2.2)
    left.set_title(
        f"{percent(row['share'])} of the maximum; straight\nand thick: kink of the missing unit"
    )
    oracle = row["oracle"].reshape(GRID, GRID)
    image = middle.imshow(oracle, extent=EXTENT, origin="lower", cmap="viridis")
    middle.contour(AXIS, AXIS, oracle, [ONE], colors="white", linewidths=1)
    kink(middle, row["escape"], color=GREEN, linewidth=2.2)
    figure.colorbar(image, ax=middle, shrink=0.8, label="largest |h| of a unit with its kink here")
    middle.set_title(f"the oracle: {row['oracle_value']:.3g} at most;\nwhite: where it is 1")
    bare(middle)
    for _, of_start in frame.groupby("start"):
        right.plot(of_start["added"], of_start["refit"], color=BLUE, linewidth=0.8, alpha=0.6)
    medians = by_added(frame).median(axis=1)
    right.plot(medians.index, medians, color=BLACK, linewidth=1.8, label="median")
    right.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    right.set(xlabel="units that the oracle added", ylabel="margin / certified maximum")
    right.set(ylim=(-0.03, 1.06), title="second layer refitted,\none line a start")
    right.legend(loc="lower right")
    right.grid(axis="y")
    return figure


def _part_above(row: dict[str, Any]) -> float:
    """Part of the plane where the oracle is above 1; 2 of a network that is not to be shown."""
    part = float((row["oracle"] > ONE).mean())
    return part if row["share"] > 0 and part > 0 else 2.0


def by_added(frame: pd.DataFrame) -> pd.DataFrame:
    """Share with the second layer refitted: a row a number of units added, a column a start.

    A start whose oracle finds nothing more keeps its last share.
    """
    return frame.pivot(index="added", columns="start", values="refit").ffill()


def needed(frame: pd.DataFrame, least: float = REACHED) -> pd.Series[float]:
    """Units added until a start reaches the rule's share; infinite where it does not."""
    reached = by_added(frame) >= least
    return reached.idxmax().astype(float).where(reached.any(), np.inf)


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    ends = frame[frame["added"] == 0]
    counts = needed(frame)
    finite = counts[np.isfinite(counts)]
    words = f"{len(finite)} of {len(counts)} starts reach {percent(REACHED)} of the maximum"
    if len(finite):
        words += f" with {span(finite, '.0f')} units added"
    missing = ((ends["oracle_value"] > ONE) | (ends["refit"] == 0)).sum()
    separating = ends.loc[ends["refit"] > 0, "oracle_value"].median()
    lowers = (frame["with_unit"] >= frame["refit"] * (1.0 - 1e-9)).mean()
    return (
        f"**The oracle finds a missing unit at the end of {missing} of {len(ends)} starts, by the "
        f"largest |h|, whose median is {separating:.2f} where they separate. {words}.** A "
        f"unit of the oracle never raises the norm ({percent(lowers)} of all additions); where the "
        "multipliers are not unique, it may leave it as it is."
    )


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    counts = needed(frame, least)
    return Verdict.of(np.isfinite(counts).all(), np.isfinite(counts.median()))


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians over the starts after some numbers of units."""
    shares = by_added(frame)
    # Without a separator the dual variables have no scale, nor has the oracle's value.
    oracle = frame[frame["refit"] > 0].groupby("added")["oracle_value"].median()
    reached = (shares >= REACHED).sum(axis=1)
    table = pd.DataFrame({"refit": shares.median(axis=1), "oracle": oracle, "reached": reached})
    return table[table.index.isin(SHOWN)].reset_index(names="added")


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
