"""Columns of a table as inputs, by scikit-learn's `ColumnTransformer`.

===========================  =======================================================
column                       inputs
===========================  =======================================================
numbers, decimals too        the number, or the median for a missing one; standardised
text, booleans, categories   1 for the value that stands there, 0 for each other one;
                             a missing value is a value of its own
===========================  =======================================================

Medians, means, scales and the values of text are those of the training rows alone, so that nothing
is learned of the rows that are held out. A constant 1 is the last input, because no model of the
command line has an offset outside its norm.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from implicit_bias.base.validation import Array, as_numbers
from implicit_bias.datasets.labels import listed

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.compose import ColumnTransformer

# Larger numbers have squares that overflow, so that they cannot be standardised.
LARGEST = 1e150


def numbers_or_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column as float64 or as text, with NaN for each value that is missing.

    Raises
    ------
    ValueError
        Neither numbers nor text; or numbers among which there is a value that is none, or infinite.
    """
    import pandas as pd

    if not is_text(column):
        numbers = as_numbers(column, f"column {column.name!r}")
        _refuse_spoilt(column, column.notna() & ~(np.abs(numbers) < LARGEST))
        return pd.Series(numbers, column.index, name=column.name)
    text = as_text(column)
    # Where most of the different values are numbers, the others are slips of the pen.
    different = pd.Series(text.dropna().unique(), dtype=object)
    if pd.to_numeric(different, errors="coerce").notna().mean() > 0.5:
        is_number = pd.to_numeric(text, errors="coerce").notna()
        _refuse_spoilt(text, text.notna() & ~is_number)
    return text


def _refuse_spoilt(column: pd.Series[Any], spoilt: pd.Series[bool]) -> None:
    if spoilt.any():
        value = column[spoilt].tolist()[0]
        raise ValueError(
            f"column {column.name!r} has numbers, but {value!r} in row {spoilt.idxmax()}, counted "
            f"from 1 below the names ({spoilt.sum()} such rows of {len(column)}): write a finite "
            "number with a decimal point, or nothing where it is missing; if these are codes and "
            "no numbers, write a letter before each"
        )


def is_text(column: pd.Series[Any]) -> bool:
    """Whether a column has text, booleans or categories; False for numbers.

    Raises
    ------
    ValueError
        Neither: dates, lists, bytes, complex numbers.
    """
    from pandas.api.types import infer_dtype

    kind = infer_dtype(column, skipna=True)
    if kind in ("string", "boolean", "categorical"):
        return True
    if kind in ("integer", "floating", "mixed-integer-float", "decimal"):
        return False
    raise ValueError(
        f"column {column.name!r} has {kind} values ({column.dtype}), which are neither numbers nor "
        "text: convert it, or leave it out by --id (in Python id=[...])"
    )


def as_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the values as text, and NaN for each that is missing, by None or pd.NA, too."""
    text = column.astype(object).where(column.notna(), np.nan)
    return text.map(str, na_action="ignore").astype(object)


def text_columns(columns: pd.DataFrame) -> tuple[str, ...]:
    """Return the names of the columns that become an input for each value."""
    return tuple(columns.select_dtypes(exclude="number").columns)


def column_transformer(columns: pd.DataFrame, *, standardize: bool) -> ColumnTransformer:
    """Return what makes inputs of columns of float64 and of text; it is not fitted yet."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    # A column without any number in the training rows becomes 0.
    impute = SimpleImputer(strategy="median", keep_empty_features=True)
    for_numbers = make_pipeline(impute, StandardScaler()) if standardize else impute
    # `warn_of_unseen` names the values that the encoder ignores.
    for_text = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    numbers = columns.select_dtypes("number").columns
    return ColumnTransformer(
        [("numbers", for_numbers, numbers), ("text", for_text, list(text_columns(columns)))]
    )


def inputs_of(columns: pd.DataFrame, transformer: ColumnTransformer) -> Array:
    """Return the inputs (n, D) of rows, the constant 1 included, by a fitted transformer."""
    inputs = transformer.transform(columns)
    return np.column_stack([inputs, np.ones(len(columns))])


def warn_of_unseen(train: pd.DataFrame, other: pd.DataFrame, table: str) -> None:
    """Warn of texts that no training row has: all inputs of their column are 0."""
    for name in text_columns(train):
        unseen = other[name][~other[name].isin(train[name])]
        if len(unseen):
            values = [repr(value) for value in unseen.unique()]
            warnings.warn(
                f"{table}: column {name!r} has values in {len(unseen)} of {len(other)} validation "
                f"rows that no training row has: {listed(values)} (the first in row "
                f"{unseen.index[0]}). All inputs of the column are 0 there; a column that names "
                "rows is left out by --id (in Python id=[...])",
                stacklevel=3,
            )
