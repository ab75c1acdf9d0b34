"""Separable sets of many classes, with certified maximum margins in every norm."""

from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import separable_set, ten_digits
from implicit_bias import SolveError, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.datasets import DataError

NORMS = ("l2", "l1", "linf", "spectral", "nuclear")


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


def optimum(name: str, norm: str) -> tuple[float, float]:
    """Certify the smallest norm of a linear predictor of margin 1: lower and upper bound."""
    try:
        certificate = solve(max_margin(*samples(name), norm)).certificate
    except SolveError as error:
        raise DataError(f"no maximum margin of {name} under {norm}: {error}") from error
    return certificate.lower, certificate.upper


def optima(name: str) -> pd.DataFrame:
    """Certify the optimum in each of `NORMS`: columns norm, lower, upper."""
    return pd.DataFrame(
        [(norm, *optimum(name, norm)) for norm in NORMS], columns=["norm", "lower", "upper"]
    )
