"""Data sets: digit images, toy sets, tables of the user, and the published split.

===============  =======================================================================
file             what
===============  =======================================================================
dataset.py       `Dataset`, `Split`, and how samples are split
images.py        digits, MNIST and Fashion-MNIST
toys.py          toy sets in the plane
table.py         a table of the user's own: CSV or Parquet
labels.py        labels as classes: their names, and which are +1, -1, or 0 .. K - 1
files.py         where files are looked for, downloaded from, and verified
parities.py      sparse parities of bits
===============  =======================================================================
"""

from typing import Unpack

from implicit_bias.base.options import DATASET_NAMES, TOY_KINDS
from implicit_bias.base.validation import check_choice
from implicit_bias.datasets.dataset import (
    Dataset,
    Split,
    split,
    split_indices,
    standardized,
)
from implicit_bias.datasets.files import DATA_VARIABLE, DataError, download
from implicit_bias.datasets.images import (
    ImageOptions,
    load_digits,
    load_fashion_mnist,
    load_images,
    load_mnist,
)
from implicit_bias.datasets.table import Table, load_own
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
