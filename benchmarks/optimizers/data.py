"""Separable sets of many classes, with certified maximum margins in every norm."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from implicit_bias import SolveError, max_margin, solve
from implicit_bias.datasets import DATA_VARIABLE, DataError, load_mnist, split_indices
from implicit_bias.datasets.files import load_file
from implicit_bias.validation import Array

NORMS = ("l2", "l1", "linf", "spectral", "nuclear")
PUBLISHED = ("k10-sigma1", "k10-sigma01", "k15-sigma01")
# Images of MNIST among which each data set "mnist-N" is drawn, and the seed of the published split.
MNIST_IMAGES, SPLIT_SEED = 60_000, 1


@cache
def samples(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Return inputs (N, D) and classes (N,) of a set.

    Parameters
    ----------
    name : str
        One of `PUBLISHED`, Gaussian clusters in 25 dimensions; "mnist-N", the first N training
        images of the published split, ten digits, with the constant.

    Raises
    ------
    DataError
        The file is not there.
    """
    if name.startswith("mnist-"):
        count = int(name.removeprefix("mnist-"))
        rows, _ = split_indices(MNIST_IMAGES, count, 1, SPLIT_SEED)
        digits = load_file("mnist", "train-labels-idx1-ubyte")
        return load_mnist().X[rows], digits[rows].astype(np.int64)
    file = Path(os.environ.get(DATA_VARIABLE, "data")) / "multiclass-separable" / f"{name}.npz"
    if not file.is_file():
        raise DataError(f"{file} is missing: set {DATA_VARIABLE} to the folder that has it")
    with np.load(file) as content:
        return content["X"], content["y"].astype(np.int64)


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
