"""Digits, MNIST and Fashion-MNIST as two classes, or as more.

Pixels are scaled to [-1, 1], labels are -1 and +1 (or 0 .. K - 1), and a constant 1 is appended as
the last column: hidden layers of this package have no biases. Digits come with scikit-learn.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import check_choice
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.files import FILE_PREFIXES, Subset, load_file
from implicit_bias.datasets.labels import ClassName, select

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


class ImageOptions(TypedDict, total=False):
    """Options of the functions that load images.

    Attributes
    ----------
    subset : {"train", "test"}
        Which of the two published sets; scikit-learn's digits are one set, "train".
    positive, negative : collection of int or str
        The digits labelled +1 and -1, by default 0-4 and 5-9; samples of other digits are dropped,
        the order is kept. The garments of Fashion-MNIST may be called by their names, such as
        "sneaker". Where ``positive`` has names and there is no ``negative``, all other classes
        are -1: one against the rest.
    classes : collection of int or str
        Instead, the digits that are one class each, ("all",) for all: 0 .. K - 1 in their order,
        or, of two, -1 and +1.
    append_constant : bool
        Whether to append the constant 1 as the last column, as by default.
    """

    subset: Subset
    positive: Collection[ClassName] | None
    negative: Collection[ClassName] | None
    classes: Collection[ClassName] | None
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

    Examples
    --------
    >>> digits = load_digits(positive=(8,), negative=(3,))
    >>> digits.X.shape, digits.class_names
    ((357, 65), ('3', '8'))
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

    Examples
    --------
    >>> digits = load_mnist(subset="test")  # doctest: +SKIP
    """
    return load_images("mnist", **options)


def load_fashion_mnist(**options: Unpack[ImageOptions]) -> Dataset:
    """Load Fashion-MNIST: parameters, result and errors of `load_mnist`.

    The digits 0..9 stand for the garments in `GARMENT_NAMES`.

    Examples
    --------
    >>> clothes = load_fashion_mnist(positive=("sneaker",))  # doctest: +SKIP
    """
    return load_images("fashion-mnist", **options)


def load_images(
    name: str,
    *,
    subset: Subset = "train",
    positive: Collection[ClassName] | None = None,
    negative: Collection[ClassName] | None = None,
    classes: Collection[ClassName] | None = None,
    append_constant: bool = True,
) -> Dataset:
    """Select, label and scale the images of a set; see `load_digits` and `load_mnist`."""
    images, digits = _read(name, subset)
    names = tuple("0123456789")
    if name == "fashion-mnist":
        names = GARMENT_NAMES
    if classes is None:
        by_name = any(isinstance(item, str) for item in positive or ())
        if negative is None and not by_name:
            negative = range(5, 10)
        if positive is None:
            positive = range(5)
    y, chosen, called = select(
        names,
        digits,
        _as_names("positive", positive, names),
        _as_names("negative", negative, names),
        _as_names("classes", classes, names),
    )
    images = images[chosen]
    n_images, height, width = images.shape
    # Scaled in float32, as the published code does: its rounding is part of the published data.
    pixels = images.reshape(n_images, -1).astype(np.float32)  # C order: row after row
    maximum = np.float32(16.0 if name == "digits" else 255.0)
    X = np.ones((n_images, height * width + append_constant))
    X[:, : height * width] = (pixels / maximum - np.float32(0.5)) / np.float32(0.5)
    X.setflags(write=False)  # nobody else has it, so it need not be copied
    return Dataset(
        name,
        X,
        y,
        called,
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


def _as_names(
    role: str, group: Collection[ClassName] | None, names: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the names of some classes, which a user gives as digits or as names."""
    if group is None:
        return None
    chosen: list[str] = []
    for item in group:
        if isinstance(item, str):
            chosen.append(item)
        elif item in range(10):
            chosen.append(names[item])
        else:
            raise ValueError(f"{role}={group!r}: the digits are 0 to 9")
    if not chosen:
        raise ValueError(f"{role} is empty: name one or more of the digits 0 to 9")
    return tuple(chosen)
