"""Digits, MNIST and Fashion-MNIST as two classes.

Pixels are scaled to [-1, 1], labels are -1 and +1, and a constant 1 is appended as the last
column, because no model of this package has a bias of its own. Digits come with scikit-learn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.files import FILE_PREFIXES, Subset, load_file
from implicit_bias.validation import Array

POSITIVE_DIGITS = (0, 1, 2, 3, 4)
NEGATIVE_DIGITS = (5, 6, 7, 8, 9)
DIGIT_NAMES = tuple("0123456789")
GARMENT_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def load_digits(
    *,
    positive: Collection[int] = POSITIVE_DIGITS,
    negative: Collection[int] = NEGATIVE_DIGITS,
    append_constant: bool = True,
) -> Dataset:
    """Load the 1,797 digits of 8 x 8 pixels that come with scikit-learn.

    Parameters
    ----------
    positive, negative : collection of int
        The digits labelled +1 and -1; samples of other digits are dropped, the order is kept.
    append_constant : bool
        Whether to append the constant 1 as the last column.

    Returns
    -------
    Dataset
        Pixels p in 0..16 as (p / 16 - 0.5) / 0.5.

    Raises
    ------
    ValueError
        A group of digits is empty or holds what is no digit, or the groups overlap.
    """
    from sklearn import datasets

    images, digits = datasets.load_digits(return_X_y=True)
    return _image_dataset(
        "digits",
        images.reshape(-1, 8, 8),  # C order, as scikit-learn flattened them
        digits,
        DIGIT_NAMES,
        pixel_maximum=16.0,
        positive=positive,
        negative=negative,
        append_constant=append_constant,
    )


def load_mnist(
    *,
    subset: Subset = "train",
    positive: Collection[int] = POSITIVE_DIGITS,
    negative: Collection[int] = NEGATIVE_DIGITS,
    append_constant: bool = True,
) -> Dataset:
    """Load MNIST: 60,000 training or 10,000 test images of 28 x 28 pixels.

    Parameters
    ----------
    subset : {"train", "test"}
        Which of the two published sets.
    positive, negative, append_constant
        See `load_digits`.

    Returns
    -------
    Dataset
        Pixels p in 0..255 as (p / 255 - 0.5) / 0.5, in float64.

    Raises
    ------
    ValueError
        Unknown `subset`, or as `load_digits`.
    DataError
        A file is damaged, or is missing and cannot be downloaded.
    """
    return _load_idx_images("mnist", DIGIT_NAMES, subset, positive, negative, append_constant)


def load_fashion_mnist(
    *,
    subset: Subset = "train",
    positive: Collection[int] = POSITIVE_DIGITS,
    negative: Collection[int] = NEGATIVE_DIGITS,
    append_constant: bool = True,
) -> Dataset:
    """Load Fashion-MNIST: parameters, result and errors of `load_mnist`.

    The digits 0..9 stand for the garments in `GARMENT_NAMES`.
    """
    return _load_idx_images(
        "fashion-mnist", GARMENT_NAMES, subset, positive, negative, append_constant
    )


def _load_idx_images(
    dataset: str,
    digit_names: Sequence[str],
    subset: Subset,
    positive: Collection[int],
    negative: Collection[int],
    append_constant: bool,
) -> Dataset:
    if subset not in FILE_PREFIXES:
        raise ValueError(f"subset {subset!r} is unknown: choose one of {', '.join(FILE_PREFIXES)}")
    prefix = FILE_PREFIXES[subset]
    return _image_dataset(
        dataset,
        load_file(dataset, f"{prefix}-images-idx3-ubyte"),
        load_file(dataset, f"{prefix}-labels-idx1-ubyte"),
        digit_names,
        pixel_maximum=255.0,
        positive=positive,
        negative=negative,
        append_constant=append_constant,
    )


def _image_dataset(
    name: str,
    images: NDArray[Any],
    digits: NDArray[Any],
    digit_names: Sequence[str],
    *,
    pixel_maximum: float,
    positive: Collection[int],
    negative: Collection[int],
    append_constant: bool,
) -> Dataset:
    """Select, label and scale images (n, height, width) of digits (n,)."""
    labels = _label_digits(digits, positive, negative)
    images = images[labels != 0]
    n_images, height, width = images.shape
    # Scaled in float32, as the published code does: its rounding is part of the published data.
    pixels = images.reshape(n_images, -1).astype(np.float32)  # C order: row after row
    pixels = (pixels / np.float32(pixel_maximum) - np.float32(0.5)) / np.float32(0.5)
    X = np.ones((n_images, height * width + append_constant))
    X[:, : height * width] = pixels
    X.setflags(write=False)  # nobody else has it, so it need not be copied
    return Dataset(
        name,
        X,
        labels[labels != 0],
        (_join_names(negative, digit_names), _join_names(positive, digit_names)),
        image_shape=(height, width),
        has_constant=append_constant,
    )


def _label_digits(
    digits: NDArray[Any], positive: Collection[int], negative: Collection[int]
) -> Array:
    """Label digits (n,) with +1, -1, or 0 for a digit of neither group."""
    for role, group in (("positive", positive), ("negative", negative)):
        if not group or not set(group) <= set(range(10)):
            raise ValueError(f"{role}={group!r}: name one or more of the digits 0 to 9")
    if common := set(positive) & set(negative):
        raise ValueError(
            f"digits {sorted(common)} are both positive and negative: name each in one group only"
        )
    return np.isin(digits, list(positive)).astype(np.float64) - np.isin(digits, list(negative))


def _join_names(group: Collection[int], digit_names: Sequence[str]) -> str:
    return ", ".join(digit_names[digit] for digit in sorted(set(group)))
