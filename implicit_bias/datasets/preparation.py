"""What becomes of the columns of a file before a model sees them, kept for further rows.

Each text of a column of texts becomes an input of 0 and 1, a date the days since the first of its
file, and a constant 1 is appended. Then come steps that fill in what is missing, or shift and scale
each input. The texts and first dates are those of the whole file, the numbers of the steps those of
its training samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import Array, as_numbers

if TYPE_CHECKING:
    import pandas as pd

# The texts of a column, each an input, and None for a missing one; None where it has numbers; of
# dates the first one, alone.
Texts: TypeAlias = tuple[str | None, ...] | str | None


@dataclass(frozen=True, eq=False)
class Step:
    """What each input is changed by: (x - shift) / scale, with ``fill`` for an x that is missing.

    Attributes
    ----------
    fill, shift, scale : ndarray of shape (D,), or float
        Of each input, or of all; ``fill`` is NaN where nothing is filled in.
    """

    fill: Array | float = np.nan
    shift: Array | float = 0.0
    scale: Array | float = 1.0

    def __call__(self, X: Array) -> Array:
        """Return the changed inputs (n, D)."""
        return np.asarray((np.where(np.isnan(X), self.fill, X) - self.shift) / self.scale)


@dataclass(frozen=True, eq=False)
class Preparation:
    """What was done to the rows of a file; called with rows of the same columns, it does it again.

    Attributes
    ----------
    names : tuple of str
        The columns that became inputs, in their order; empty where they have no names.
    texts : tuple
        Of each of these columns its texts, its first date, or None.
    labels : ndarray of shape (K,)
        The classes, -1 before +1, as the file has them; of several in one class their names.
    constant : bool
        Whether a constant 1 was appended.
    steps : tuple of Step
        What follows, in this order.
    """

    names: tuple[str, ...]
    texts: tuple[Texts, ...]
    labels: NDArray[Any]
    constant: bool
    steps: tuple[Step, ...] = ()

    def __call__(self, rows: ArrayLike | pd.DataFrame) -> Array:
        """Return the inputs (n, D) of rows with the columns of the file.

        Parameters
        ----------
        rows : DataFrame or array_like of shape (n, d)
            A frame has at least the columns ``names``, in any order.

        Raises
        ------
        ValueError
            A column is missing or holds no numbers, or a whole number that float64 would round; a
            value is missing that no step fills in, or there is another number of inputs.

        Warns
        -----
        UserWarning
            A text that the file does not have: all inputs of its column are 0 then.
        """
        import pandas as pd

        if not self.names:
            inputs = as_numbers(rows, "rows")
        elif isinstance(rows, pd.DataFrame):
            inputs = encode(self._columns(rows), self.texts)
        else:
            raise ValueError(f"pass a pandas frame with the columns {', '.join(self.names)}")
        if self.constant:
            inputs = np.column_stack([inputs, np.ones(len(inputs))])
        for step in self.steps:
            inputs = step(inputs)
        if len(bad := np.flatnonzero(~np.isfinite(inputs).all(axis=1))):
            raise ValueError(
                f"{len(bad)} rows lack a value or have an infinite one, the first is row "
                f"{bad[0] + 1}: fill it in, or leave these rows out"
            )
        return inputs

    def _columns(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the columns that are inputs, in their order; of one name the first comes first."""
        places: dict[str, list[int]] = {}
        for place, name in enumerate(map(str, rows.columns)):
            places.setdefault(name, []).append(place)
        chosen = [places[name].pop(0) if places.get(name) else -1 for name in self.names]
        if lacking := [n for n, place in zip(self.names, chosen, strict=True) if place < 0]:
            raise ValueError(f"columns are missing: {', '.join(lacking)}")
        return rows.iloc[:, chosen]


def texts_of(column: pd.Series[Any], missing: bool) -> tuple[str | None, ...]:
    """Return the texts of a column, in the order of the alphabet; last None for a missing one.

    Parameters
    ----------
    column : Series
        The column.
    missing : bool
        Whether what is missing is a text of its own.
    """
    found = _stripped(column)
    lacking = (None,) if missing and bool(found.isna().any()) else ()
    return (*sorted(set(found.dropna())), *lacking)


def first_date(column: pd.Series[Any]) -> str:
    """Return the first of a column's dates, of which one at least is there, as text."""
    return str(_dates(column).min())


def encode(columns: pd.DataFrame, texts: Sequence[Texts]) -> Array:
    """Return the inputs (n, D) of some columns, of which some hold texts; NaN where one is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"size": [1.5, 2.0], "colour": ["red", "blue"]})
    >>> encode(rows, (None, ("blue", "red"))).tolist()
    [[1.5, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """
    pairs = zip((columns.iloc[:, n] for n in range(columns.shape[1])), texts, strict=True)
    parts = [part for column, known in pairs for part in _inputs(column, known)]
    return np.column_stack(parts).astype(np.float64) if parts else np.empty((len(columns), 0))


def _inputs(column: pd.Series[Any], texts: Texts) -> Iterator[Array]:
    import pandas as pd

    if texts is None:
        yield as_numbers(column, str(column.name))
        return
    if isinstance(texts, str):
        days = (_dates(column) - pd.Timestamp(texts)) / pd.Timedelta(days=1)
        yield np.asarray(days, dtype=np.float64)
        return
    found = _stripped(column)
    unknown = sorted(set(found.dropna()) - set(texts))
    if unknown or (found.isna().any() and None not in texts):
        what = f"the texts {', '.join(unknown)}" if unknown else "missing texts"
        warnings.warn(
            f"{column.name} has {what}, which the model has not seen: it takes them for none of "
            "those that it knows",
            stacklevel=2,
        )
    for text in texts:
        yield np.asarray(found.isna() if text is None else found == text, dtype=np.float64)


def _stripped(column: pd.Series[Any]) -> pd.Series[Any]:
    return column.astype(object).map(lambda value: str(value).strip(), na_action="ignore")


def _dates(column: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    texts = _stripped(column)
    dates = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    if len(odd := texts[dates.isna() & texts.notna()]):
        raise ValueError(f"{column.name} holds no dates as 2020-01-31, but {odd.iloc[0]!r}")
    return dates
