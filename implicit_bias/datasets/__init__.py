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
catalogue.py     all of them by name
===============  =======================================================================
"""

from implicit_bias.base.options import DATASET_NAMES
from implicit_bias.datasets.catalogue import load
from implicit_bias.datasets.dataset import (
    Dataset,
    Split,
    split,
    split_indices,
    standardized,
)
from implicit_bias.datasets.files import DATA_VARIABLE, DataError, download
from implicit_bias.datasets.images import load_digits, load_fashion_mnist, load_mnist
from implicit_bias.datasets.table import Table, load_own
from implicit_bias.datasets.toys import make_toy
