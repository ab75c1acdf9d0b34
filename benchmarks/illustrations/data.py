"""Separable sets of many classes, with certified maximum margins."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import separable_set, ten_digits
from benchmarks.summaries import exponent
from implicit_bias import SolveError, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.datasets import DataError

NORMS = ("l2", "l1", "linf", "spectral", "nuclear")


def slope(steps: pd.Series[int], values: pd.Series[float]) -> float:
    """Exponent a of positive values like steps^a, fitted over the last decade of the steps.

    NaN where fewer than three points, or not only positive and finite ones, are there.
    """
    late = steps >= steps.max() / 10
    found = values[late].to_numpy()
    if len(found) < 3 or not (np.isfinite(found) & (found > 0)).all():
        return float("nan")
    return exponent(steps[late], found)


@cache
def samples(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Return inputs (N, D) and classes (N,) of a set.

    Parameters
    ----------
    name : str
        One of `SEPARABLE_SETS`; "mnist-N", the first N training
        images of the published split, ten digits, with the constant.

    Raises
    ------
    DataError
        The file is not there.
    """
    if name.startswith("mnist-"):
        return ten_digits(int(name.removeprefix("mnist-")))
    content = separable_set(name)
    return content["X"].astype(np.float64), content["y"].astype(np.int64)


def two_classes() -> tuple[Array, Array]:
    """Return the first two clusters of a published set: inputs (N, D), labels -1 and +1."""
    X, y = samples("k10-sigma1")
    chosen = y < 2
    return X[chosen], np.where(y[chosen] == 1, 1.0, -1.0)


def optimum(name: str, norm: str) -> tuple[float, float]:
    """Certify the smallest norm of a linear predictor of margin 1: lower and upper bound."""
    try:
        certificate = solve(max_margin(*samples(name), norm)).certificate
    except SolveError as error:
        raise DataError(f"no maximum margin of {name} under {norm}: {error}") from error
    return certificate.lower, certificate.upper
