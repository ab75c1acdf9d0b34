"""Data sets by name."""

from __future__ import annotations

from collections.abc import Collection

from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.files import MIRRORS, Subset
from implicit_bias.datasets.images import (
    NEGATIVE_DIGITS,
    POSITIVE_DIGITS,
    load_digits,
    load_fashion_mnist,
    load_mnist,
)
from implicit_bias.datasets.toys import TOY_KINDS, make_toy

DATASET_NAMES: tuple[str, ...] = ("digits", "mnist", "fashion-mnist", *TOY_KINDS)


def load(
    name: str,
    *,
    positive: Collection[int] | None = None,
    negative: Collection[int] | None = None,
    subset: Subset = "train",
) -> Dataset:
    """Load a data set by its name, for the command line.

    Parameters
    ----------
    name : str
        One of `DATASET_NAMES`.
    positive, negative : collection of int, optional
        See `load_digits`; by default 0-4 and 5-9. Image sets only.
    subset : {"train", "test"}
        See `load_mnist`. Only MNIST and Fashion-MNIST have a test set.

    Returns
    -------
    Dataset
        The data with the constant appended.

    Raises
    ------
    ValueError
        Unknown name, or an option that this data set does not have.
    DataError
        See `load_mnist`.
    """
    if name not in DATASET_NAMES:
        raise ValueError(f"data set {name!r} is unknown: choose one of {', '.join(DATASET_NAMES)}")
    if subset != "train" and name not in MIRRORS:
        raise ValueError(f"{name} has no subset {subset!r}: load it whole and split it")
    if name in TOY_KINDS:
        if positive is not None or negative is not None:
            raise ValueError(f"{name} has no digits: leave out positive and negative")
        return make_toy(name)
    positive = POSITIVE_DIGITS if positive is None else positive
    negative = NEGATIVE_DIGITS if negative is None else negative
    if name == "digits":
        return load_digits(positive=positive, negative=negative)
    loader = load_mnist if name == "mnist" else load_fashion_mnist
    return loader(subset=subset, positive=positive, negative=negative)
