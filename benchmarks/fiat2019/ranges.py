"""The least and the largest of some values, as two numbers of a page."""

from collections.abc import Iterable

import numpy as np


def low_high(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return ``NAME_low`` and ``NAME_high``; values that are NaN are left out."""
    found = np.asarray(list(values), dtype=float)
    return {f"{name}_low": float(np.nanmin(found)), f"{name}_high": float(np.nanmax(found))}
