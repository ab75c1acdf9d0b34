"""Data sets: digit images, toy sets, one's own files, and the published split.

=============  =============================================================================
file           what
=============  =============================================================================
dataset.py     `Dataset`, `Split`, and how samples are split
images.py      digits, MNIST and Fashion-MNIST
toys.py        toy sets in the plane
own.py         a file of the user's own: CSV, Parquet, NPZ, libsvm's text
labels.py      its labels as classes: their names, and which are on which side
files.py       where files are looked for, downloaded from, and verified
catalogue.py   all of them by name
=============  =============================================================================
"""

from implicit_bias.base.options import DATASET_NAMES
from implicit_bias.datasets.catalogue import load
from implicit_bias.datasets.dataset import (
    Dataset,
    Split,
    filled,
    split,
    split_indices,
    standardized,
)
from implicit_bias.datasets.files import (
    DATA_VARIABLE,
    DataError,
    FileStatus,
    data_status,
    download,
)
from implicit_bias.datasets.images import load_digits, load_fashion_mnist, load_mnist
from implicit_bias.datasets.own import load_own
from implicit_bias.datasets.toys import make_toy
