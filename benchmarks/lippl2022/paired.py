r"""Paired differences over matched cells, with intervals that know what a seed shares.

Cells of one seed share their contexts (the first hyperplanes of a wide network are those of a
narrow one) and, at all N, a part of their training samples: they are no independent draws. So the
seed is the unit of resampling: of d_s, the mean difference of the cells of seed s, S seeds give

    mean = 1/S sum_s d_s,    95 % interval  mean -+ t_{0.975, S-1} sd(d_s) / sqrt(S).

With the three seeds of the source t is 4.3: wide intervals, as three draws deserve. The interval is
of the seed alone; all cells have one split of the data, whose own variation the grid of further
splits shows.

Source: the interval is Student's for cluster means.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.harness import Verdict
from benchmarks.words import half_interval


@dataclass(frozen=True)
class Paired:
    """A mean difference, and how sure it is.

    Attributes
    ----------
    mean, low, high : float
        Mean over the seeds' means, and its interval; infinite with fewer than two seeds.
    cells, positive, negative, seeds : int
        Matched cells, those with a difference above and below 0, and seeds.
    """

    mean: float
    low: float
    high: float
    cells: int
    positive: int
    negative: int
    seeds: int

    @classmethod
    def of(cls, differences: pd.Series[float], seeds: pd.Series[int]) -> Paired:
        """Summarise differences, one a matched cell, by their seeds.

        Raises
        ------
        ValueError
            No difference.
        """
        known = differences.notna()
        differences, seeds = differences[known], seeds[known]
        if differences.empty:
            raise ValueError("no matched cell has a difference")
        by_seed = differences.groupby(seeds.to_numpy()).mean()
        mean, n = float(by_seed.mean()), len(by_seed)
        half = half_interval(by_seed) if n > 1 else np.inf
        positive, negative = int((differences > 0).sum()), int((differences < 0).sum())
        return cls(mean, mean - half, mean + half, len(differences), positive, negative, n)

    def judged(self, sign: int = 1) -> Verdict:
        """Judge a claim on the sign: it stands if the interval is on that side of 0.

        It stands in part if only the mean is, and two thirds of the cells, and falls otherwise: the
        mean alone is on that side every other time by chance.
        """
        low, mean = (self.low, self.mean) if sign > 0 else (-self.high, -self.mean)
        there = self.positive if sign > 0 else self.negative
        return Verdict.of(low > 0, mean > 0 and 3 * there >= 2 * self.cells)

    def __str__(self) -> str:
        """Percentage points, with interval and counts."""
        interval = (
            f"{_end(self.low)} to {_end(self.high)}"
            if np.isfinite(self.low)
            else "one seed, no interval"
        )
        more = max(self.positive, self.negative)
        side = "above" if self.positive >= self.negative else "below"
        return (
            f"{signed(self.mean)}\u00a0points [{interval}; {more} of {self.cells} cells {side} 0]"
        )


def matched(values: pd.DataFrame, column: str, keys: Sequence[str]) -> pd.DataFrame:
    """Lay the models of a cell side by side: a row a cell, a column a model."""
    return side_by_side(values, column, "model", keys)


def side_by_side(
    values: pd.DataFrame, column: str, across: str, keys: Sequence[str]
) -> pd.DataFrame:
    """Lay a column out by the values of another: a row for each value of the keys."""
    table = values.dropna(subset=[column]).pivot_table(
        index=list(keys), columns=across, values=column, aggfunc="first"
    )
    return table.reset_index()


def difference(table: pd.DataFrame, first: Hashable, second: Hashable) -> Paired | None:
    """First minus second over the rows of `matched`; None where no cell has both."""
    if not {first, second} <= set(table.columns):
        return None
    both = table.dropna(subset=[first, second])
    return minus(both, first, second) if len(both) else None


def minus(table: pd.DataFrame, first: Hashable, second: Hashable) -> Paired:
    """First minus second where both have a column, and some cell has both."""
    return Paired.of(table[first] - table[second], table["seed"])


def signed(share: float, digits: int = 1) -> str:
    """Write a share in percentage points with its sign: "+0.8"."""
    text = f"{100 * share:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def _end(share: float) -> str:
    """Write the end of an interval so that its side of 0 is told: "−0.04" where one digit is 0."""
    return signed(share, 2 if abs(share) < 5e-4 else 1)


class Pairs(dict[str, Paired]):
    """Paired differences of several parts, which are judged and written together.

    Parameters
    ----------
    parts : mapping from str to Paired
        By name.
    words, joint : str
        How one is written, and what stands between two.
    """

    def __init__(
        self,
        parts: Mapping[str, Paired],
        words: str = "{pair} ({name})",
        joint: str = " and ",
    ) -> None:
        super().__init__(parts)
        self._words, self._joint = words, joint

    @classmethod
    def by(
        cls, table: pd.DataFrame, column: str, first: Hashable, second: Hashable, *words: str
    ) -> Pairs:
        """First minus second for each value of a column that has a matched cell."""
        groups = table.groupby(column) if column in table else ()
        found = {
            f"{value:,}" if isinstance(value, int) else str(value): difference(part, first, second)
            for value, part in groups
        }
        return cls({name: each for name, each in found.items() if each is not None}, *words)

    def judged(self, sign: int = 1) -> Verdict:
        """Judge all by their signs: in part if one holds at least in part."""
        return all_of(each.judged(sign) for each in self.values())

    def __str__(self) -> str:
        listed = (self._words.format(pair=pair, name=name) for name, pair in self.items())
        return self._joint.join(listed) or "not measured"


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Return what becomes of several: stands if all do, in part if one does at least in part."""
    known = list(verdicts)
    if not known:
        return Verdict.OPEN
    return Verdict.of(
        all(each is Verdict.STANDS for each in known),
        any(each in (Verdict.STANDS, Verdict.IN_PART) for each in known),
    )
