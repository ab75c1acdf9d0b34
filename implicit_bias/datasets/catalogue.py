"""Data sets by name."""

from typing import Unpack

from implicit_bias.base.options import DATASET_NAMES, TOY_KINDS
from implicit_bias.base.validation import check_choice
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.images import ImageOptions, load_images
from implicit_bias.datasets.toys import make_toy


def load(name: str, **options: Unpack[ImageOptions]) -> Dataset:
    """Load a data set by its name, for the command line.

    Parameters
    ----------
    name : str
        One of `DATASET_NAMES`.
    **options
        See `ImageOptions`; for image sets only.

    Returns
    -------
    Dataset
        The data, if not asked otherwise with the constant appended.

    Raises
    ------
    ValueError
        Unknown name, or an option that this data set does not have.
    DataError
        See `load_mnist`.
    """
    check_choice(name, "data set", DATASET_NAMES)
    if name not in TOY_KINDS:
        return load_images(name, **options)
    if any(value not in (None, "train") for value in options.values()):
        raise ValueError(f"{name} has no digits and no subsets: leave these options out")
    return make_toy(name)
