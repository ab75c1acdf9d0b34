"""Digits, MNIST and Fashion-MNIST as two classes, or as more.

Pixels are scaled to [-1, 1], labels are -1 and +1 (or 0 .. K - 1), and a constant 1 is appended as the last
column, because no model of this package has a bias of its own. Digits come with scikit-learn.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.files import FILE_PREFIXES, Subset, load_file
from implicit_bias.validation import Array, check_choice

POSITIVE_DIGITS = (0, 1, 2, 3, 4)
NEGATIVE_DIGITS = (5, 6, 7, 8, 9)
DIGIT_NAMES = tuple("0123456789")
GARMENT_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


class ImageOptions(TypedDict, total=False):
    """Options of the functions that load images.

    Attributes
    ----------
    subset : {"train", "test"}
        Which of the two published sets; scikit-learn's digits are one set, "train".
    positive, negative : collection of int
        The digits labelled +1 and -1, by default 0-4 and 5-9; samples of other digits are dropped,
        the order is kept.
    classes : collection of int
        Instead, the digits that are classes of their own, in ascending order: 0 .. K - 1, or, of
        two, -1 and +1.
    append_constant : bool
        Whether to append the constant 1 as the last column, as by default.
    """

    subset: Subset
    positive: Collection[int] | None
    negative: Collection[int] | None
    classes: Collection[int] | None
    append_constant: bool


def load_digits(**options: Unpack[ImageOptions]) -> Dataset:
    """Load the 1,797 digits of 8 x 8 pixels that come with scikit-learn.

    Parameters
    ----------
    **options
        See `ImageOptions`.

    Returns
    -------
    Dataset
        Pixels p in 0..16 as (p / 16 - 0.5) / 0.5.

    Raises
    ------
    ValueError
        A group of digits is empty or holds what is no digit, or the groups overlap; fewer than two
        classes, or classes beside groups.
    """
    return load_images("digits", **options)


def load_mnist(**options: Unpack[ImageOptions]) -> Dataset:
    """Load MNIST: 60,000 training or 10,000 test images of 28 x 28 pixels.

    Parameters
    ----------
    **options
        See `ImageOptions`.

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
    return load_images("mnist", **options)


def load_fashion_mnist(**options: Unpack[ImageOptions]) -> Dataset:
    """Load Fashion-MNIST: parameters, result and errors of `load_mnist`.

    The digits 0..9 stand for the garments in `GARMENT_NAMES`.
    """
    return load_images("fashion-mnist", **options)


def load_images(
    name: str,
    *,
    subset: Subset = "train",
    positive: Collection[int] | None = None,
    negative: Collection[int] | None = None,
    classes: Collection[int] | None = None,
    append_constant: bool = True,
) -> Dataset:
    """Select, label and scale the images of a set; see `load_digits` and `load_mnist`."""
    images, digits = _read(name, subset)
    groups = _groups(positive, negative, classes)
    labels = _label_digits(digits, groups)
    images, labels = images[labels >= 0], labels[labels >= 0]
    n_images, height, width = images.shape
    # Scaled in float32, as the published code does: its rounding is part of the published data.
    pixels = images.reshape(n_images, -1).astype(np.float32)  # C order: row after row
    maximum = np.float32(16.0 if name == "digits" else 255.0)
    X = np.ones((n_images, height * width + append_constant))
    X[:, : height * width] = (pixels / maximum - np.float32(0.5)) / np.float32(0.5)
    X.setflags(write=False)  # nobody else has it, so it need not be copied
    names = GARMENT_NAMES if name == "fashion-mnist" else DIGIT_NAMES
    return Dataset(
        name,
        X,
        labels if len(groups) > 2 else 2.0 * labels - 1.0,
        tuple(_join_names(group, names) for group in groups),
        image_shape=(height, width),
        has_constant=append_constant,
    )


def _read(name: str, subset: Subset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images (n, height, width) and their digits (n,)."""
    check_choice(subset, "subset", FILE_PREFIXES)
    if name != "digits":
        prefix = FILE_PREFIXES[subset]
        images = load_file(name, f"{prefix}-images-idx3-ubyte")
        return images, load_file(name, f"{prefix}-labels-idx1-ubyte")
    if subset != "train":
        raise ValueError(f"digits has no subset {subset!r}: load it whole and split it")
    from sklearn import datasets

    pixels, digits = datasets.load_digits(return_X_y=True)
    return pixels.reshape(-1, 8, 8), digits  # C order, as scikit-learn flattened them


def _groups(
    positive: Collection[int] | None,
    negative: Collection[int] | None,
    classes: Collection[int] | None,
) -> list[Collection[int]]:
    """Digits of each class: of the negative one and the positive one, or of one digit each."""
    if classes is not None:
        if (positive, negative) != (None, None):
            raise ValueError(
                "classes stand instead of positive and negative digits: leave those out"
            )
        if len(set(classes)) < 2 or not set(classes) <= set(range(10)):
            raise ValueError(f"classes={classes!r}: name two or more of the digits 0 to 9")
        return [(digit,) for digit in sorted(set(classes))]
    positive = POSITIVE_DIGITS if positive is None else positive
    negative = NEGATIVE_DIGITS if negative is None else negative
    for role, group in (("positive", positive), ("negative", negative)):
        if not group or not set(group) <= set(range(10)):
            raise ValueError(f"{role}={group!r}: name one or more of the digits 0 to 9")
    if common := set(positive) & set(negative):
        raise ValueError(
            f"digits {sorted(common)} are both positive and negative: name each in one group only"
        )
    return [negative, positive]


def _label_digits(
    digits: NDArray[Any], groups: Sequence[Collection[int]]
) -> NDArray[np.int64]:
    """Label digits (n,) with the number of their group, or with -1 for a digit of none."""
    label_of = np.full(10, -1)
    for label, group in enumerate(groups):
        label_of[list(group)] = label
    return label_of[digits]


def _join_names(group: Collection[int], digit_names: Sequence[str]) -> str:
    return ", ".join(digit_names[digit] for digit in sorted(set(group)))
