"""Data that several studies read: files of the data folder, and MNIST's ten digits."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.datasets import DATA_VARIABLE, DataError, load_mnist, split_indices

# Separable sets of many classes, Gaussian clusters in 25 dimensions, with stored margins: those of
# the code of Xie, Wu, Chen, Tang (2026, arXiv 2603.22824).
SEPARABLE_SETS = ("k10-sigma1", "k10-sigma01", "k15-sigma01")
SPLIT_SEED = 1


def data_file(name: str) -> Path:
    """Return a file of the data folder.

    Raises
    ------
    DataError
        It is not there.
    """
    file = Path(os.environ.get(DATA_VARIABLE, "data")) / name
    if not file.is_file():
        raise DataError(f"{file} is missing: set {DATA_VARIABLE} to the folder that has it")
    return file


def separable_set(name: str) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of one of `SEPARABLE_SETS`: X, y, and the stored margins and matrices."""
    with np.load(data_file(f"multiclass-separable/{name}.npz")) as content:
        return dict(content)


def ten_digits(count: int) -> tuple[Array, NDArray[np.int64]]:
    """Return the first images of the published split (count, D), with the constant, and digits.

    All images, where that many are asked for: their order is that of the split.
    """
    everything = load_mnist(classes=("all",))
    n = len(everything.y)
    part = everything.take(np.concatenate(split_indices(n, n - 1, 1, SPLIT_SEED))[:count])
    return part.X, part.y.astype(np.int64)
