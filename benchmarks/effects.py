r"""Means with intervals: of several draws, and of paired differences whose draws share a seed.

Cells of one seed share contexts and training samples, so they are no independent draws: the seed is
the unit. Of d_s, the mean difference of the cells of seed s, S seeds give

    mean = 1/S sum_s d_s,    95 % interval  mean -+ t_{0.975, S-1} sd(d_s) / sqrt(S).

With three seeds t is 4.3: wide intervals, as three draws deserve.

Source: Student's interval of cluster means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from scipy import stats


@dataclass(frozen=True)
class Effect:
    """A mean and its 95 % interval, which writes itself: "+0.6 [+0.3, +1.0]".

    Attributes
    ----------
    mean, half : float
        The mean, and half the length of its interval; infinite for a single seed.
    seeds : int
        How many independent draws there are.
    """

    mean: float
    half: float
    seeds: int

    @classmethod
    def of(cls, values: pd.Series[float], seeds: pd.Series[int] | None = None) -> Effect:
        """Return the mean of values, and its interval by the means of their seeds.

        Parameters
        ----------
        values : Series
            One a cell; those that are NaN are left out.
        seeds : Series, optional
            The seed of each; by default each is a draw of its own.

        Raises
        ------
        ValueError
            No value.
        """
        found = values.dropna()
        if found.empty:
            raise ValueError("an effect needs at least one value: no cell has both models")
        if seeds is not None:
            found = found.groupby(seeds.loc[found.index].to_numpy()).mean()
        count = len(found)
        if count == 1:
            return cls(float(found.iloc[0]), math.inf, 1)
        error = float(found.std(ddof=1)) / math.sqrt(count)
        return cls(float(found.mean()), float(stats.t.ppf(0.975, count - 1)) * error, count)

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    def __format__(self, form: str) -> str:
        """Write the mean and its interval, each in a format; "%" stands for percentage points."""
        scale = 100 if form.endswith("%") else 1
        form = form.removesuffix("%") + "f" if form.endswith("%") else form

        def written(value: float) -> str:
            return format(scale * value + 0.0, form or "+.2f").replace("-", "\u2212")

        if math.isinf(self.half):
            return f"{written(self.mean)} (one seed)"
        return f"{written(self.mean)} [{written(self.low)}, {written(self.high)}]"


def side_by_side(
    frame: pd.DataFrame, column: str, across: str, keys: Sequence[str]
) -> pd.DataFrame:
    """Lay a column out by the values of another: a row for each value of the keys."""
    table = frame.dropna(subset=[column]).pivot_table(
        index=list(keys), columns=across, values=column, aggfunc="first"
    )
    return table.reset_index()


def paired(
    frame: pd.DataFrame, column: str, first: str, second: str, keys: Sequence[str]
) -> Effect:
    """Return the effect of one model over another in the cells that have both.

    Parameters
    ----------
    frame : DataFrame
        A row a cell and model: columns ``model``, ``seed``, the keys, and the measured column.
    column : str
        What is compared.
    first, second : str
        The models: first minus second.
    keys : sequence of str
        Columns that tell cells apart, ``seed`` among them.

    Raises
    ------
    ValueError
        No cell has both.
    """
    table = side_by_side(frame, column, "model", keys)
    table = table.reindex(columns=[*dict.fromkeys([*keys, "seed", first, second])])
    return Effect.of(table[first] - table[second], table["seed"])
