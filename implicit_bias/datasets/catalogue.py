"""Data sets by name."""

from collections.abc import Collection

from implicit_bias.base.options import DATASET_NAMES, TOY_KINDS
from implicit_bias.base.validation import check_choice
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.files import Subset
from implicit_bias.datasets.images import load_images
from implicit_bias.datasets.own import ClassName
from implicit_bias.datasets.toys import make_toy


def load(
    name: str,
    *,
    positive: Collection[ClassName] | None = None,
    negative: Collection[ClassName] | None = None,
    classes: Collection[ClassName] | None = None,
    subset: Subset = "train",
) -> Dataset:
    """Load a data set by its name, for the command line.

    Parameters
    ----------
    name : str
        One of `DATASET_NAMES`.
    positive, negative, classes : collection of int or str, optional
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
    check_choice(name, "data set", DATASET_NAMES)
    if name not in TOY_KINDS:
        return load_images(
            name, subset=subset, positive=positive, negative=negative, classes=classes
        )
    if (subset, positive, negative, classes) != ("train", None, None, None):
        raise ValueError(f"{name} has no digits and no subsets: leave these options out")
    return make_toy(name)
