"""From a configuration to its data, without torch: what is wrong with them is said at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from implicit_bias.datasets import load
from implicit_bias.datasets.dataset import Dataset, Split, split, standardized
from implicit_bias.datasets.files import KNOWN
from implicit_bias.datasets.table import Table, load_own
from implicit_bias.runs.configuration import RunConfig

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison
    from implicit_bias.estimators.base import BinaryClassifier


@dataclass(frozen=True, eq=False)
class Data:
    """The data of a configuration: all samples, and the split.

    ``everything`` has no inputs where the data are a ``table`` of the user's own, since these are
    made by what its training rows have.
    """

    everything: Dataset
    parts: Split
    table: Table | None = None

    def compare(self, models: Mapping[str, BinaryClassifier]) -> Comparison:
        """Compare models that were fitted to the training samples, on the validation samples."""
        from implicit_bias.comparison import compare

        train = self.parts.train
        validation = self.parts.validation
        found = compare(models, validation.X, validation.y, train=(train.X, train.y))
        if self.table is not None:
            found = replace(found, user_split=self.parts)
        return found


def load_data(config: RunConfig, default_size: int = 1000) -> Data:
    """Load and split the data of a configuration.

    Where that has no number of training samples, these are at most ``default_size``, and at most
    4/5 of the data.

    Raises
    ------
    DataError
        Missing or corrupt files.
    ValueError
        More training samples than there are; or a file of the user's own that is no data set (see
        `load_own`).
    """
    classes = config.chosen("positive", "negative", "classes")
    table: Table | None = None
    if config.data is None:
        everything = load(config.dataset, **classes)
    else:
        preparing = config.chosen("id", "missing")
        table = load_own(config.data, config.target, **classes, **preparing)
        everything = table.samples
    size = config.train_size
    if size is None:
        size = min(default_size, len(everything) * 4 // 5)
    if table is not None:
        parts = table.split(size, seed=config.split_seed, standardize=bool(config.standardize))
    else:
        parts = split(everything, size, seed=config.split_seed)
        if config.standardize:
            parts = standardized(parts)
    return Data(everything, parts, table)


def origin_of_samples(data: Data) -> str:
    """Say how many samples train and test, and of which samples they are drawn.

    Examples
    --------
    >>> print(origin_of_samples(load_data(RunConfig(dataset="digits"))))
    1,000 training and 359 test samples, drawn at random from the 1,797 samples of digits
    """
    everything = data.everything
    drawn = (
        f"{len(data.parts.train):,} training and {len(data.parts.validation):,} test samples, "
        f"drawn at random from the {len(everything):,} samples of {everything.name}"
    )
    # Data sets with files have a published test set, which a reader expects to be used.
    if data.table is None and everything.name in KNOWN:
        drawn += " in its published training set (its published test set is not used)"
    return drawn


def rows_left_out(table: Table) -> str:
    """Say how many rows of a file are left out, and why; empty for none."""
    left_out = table.n_unlabelled + table.n_incomplete
    if left_out == 0:
        return ""
    # Pandas reads these words as no value, also where one of them is the name of a class.
    return (
        f"{left_out} of {table.n_rows} rows: {table.n_unlabelled} without a label (an empty field, "
        f"NA, None or null), {table.n_incomplete} with another value missing"
    )
