"""Few numbers for many: ranges, exponents of power laws; and steps at which a run is measured."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray


def log_spaced(last: int, points: int, first: int = 1) -> NDArray[np.int64]:
    """Return steps about evenly spaced in the logarithm, each once; of one point, the last step."""
    return np.unique(np.geomspace(last, first, points).round().astype(np.int64))


def exponent(x: ArrayLike, y: ArrayLike) -> float:
    """Return the exponent p of y = c x^p, by least squares in the logarithms."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def low_high(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return ``NAME_low`` and ``NAME_high``; values that are NaN are left out."""
    found = pd.Series(list(values), dtype=float)
    return {f"{name}_low": float(found.min()), f"{name}_high": float(found.max())}
