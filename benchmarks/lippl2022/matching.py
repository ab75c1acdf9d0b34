"""Matched comparisons: effects of one model over another, nan where no cell has both."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from benchmarks.effects import Effect, side_by_side

GLN_KEYS = ("train_size", "units", "hyperplanes", "threshold", "seed")
RELU_KEYS = ("train_size", "units", "seed", "momentum")


def matched(frame: pd.DataFrame, column: str, keys: Sequence[str] = GLN_KEYS) -> pd.DataFrame:
    """Lay the models of a cell side by side: a row a cell, a column a model."""
    return side_by_side(frame, column, "model", keys)


def mean(values: pd.Series[float], seeds: pd.Series[int]) -> Effect | float:
    """Return the mean of values with its interval over the seeds; nan without a value."""
    if values.notna().any():
        return Effect.of(values, seeds)
    return math.nan


def minus(table: pd.DataFrame, first: Hashable, second: Hashable) -> Effect | float:
    """Return one column minus another, row by row, with the interval over the seeds."""
    if not {first, second} <= set(table.columns):
        return math.nan
    return mean(table[first] - table[second], table["seed"])


def least(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the least error over all settings of each N and seed: a column a model."""
    found = frame.groupby(["model", "train_size", "seed"])["error"].min()
    return side_by_side(found.reset_index(), "error", "model", ("train_size", "seed"))


def correlation(table: pd.DataFrame, first: str, second: str) -> float:
    """Return the correlation of two columns: the mean of Fisher's z over seeds, inverted."""
    z = mean(*_z_of_seeds(table, first, second))
    return math.tanh(z.mean) if isinstance(z, Effect) else math.nan


def correlation_text(table: pd.DataFrame, first: str, second: str) -> str:
    """Write a correlation and its interval over the seeds: "0.86 [0.80, 0.90]"."""
    z = mean(*_z_of_seeds(table, first, second))
    if not isinstance(z, Effect):
        return "-"
    middle, low, high = np.tanh([z.mean, z.low, z.high])
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def _z_of_seeds(
    table: pd.DataFrame, first: str, second: str
) -> tuple[pd.Series[float], pd.Series[int]]:
    """Fisher's z of the correlation within each seed."""
    found = {}
    if {first, second} <= set(table.columns):
        for seed, rows in table.dropna(subset=[first, second]).groupby("seed"):
            if len(rows) > 2:
                found[seed] = float(np.arctanh(rows[first].corr(rows[second])))
    z = pd.Series(found, dtype=float).replace([np.inf, -np.inf], np.nan)
    return z, z.index.to_series()
