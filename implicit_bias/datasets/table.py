"""A table of the user's own, read by pandas.

=================  =================================================================
file               read by
=================  =================================================================
.csv, .tsv         `pandas.read_csv`, also compressed; the first line has the names
.parquet           `pandas.read_parquet`
=================  =================================================================

``target`` is the column of the labels, the columns ``id`` are carried along, and each other column
is an input or several: see `datasets.preparation`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from implicit_bias.base import validation
from implicit_bias.base.options import Missing
from implicit_bias.datasets.dataset import Dataset, Split, split
from implicit_bias.datasets.labels import ClassName, class_names, listed, select
from implicit_bias.datasets.preparation import (
    as_text,
    column_transformer,
    inputs_of,
    is_text,
    numbers_or_text,
    warn_of_unseen,
)

if TYPE_CHECKING:
    import pandas as pd

# How the labels of the file are called beside the classes that several of them are in.
WRITTEN = "label in the file"


@dataclass(frozen=True, eq=False)
class Table:
    r"""The rows of a file that have a label, before any of them are training rows.

    Attributes
    ----------
    inputs : DataFrame
        Columns of float64 (NaN where a number is missing) and of text. Its index is the number of
        each row in the file, from 1 below the names.
    samples : Dataset
        Labels, names of classes, and what is carried along; without inputs as yet.
    n_rows, n_unlabelled, n_incomplete : int
        Rows of the file; rows left out because they lack a label; and further ones left out because
        they lack another value.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "trees.csv"
    ...     _ = file.write_text("height,leaf,tree\n" + "9,round,lime\n8,long,ash\n" * 5)
    ...     table = load_own(file, "tree")
    >>> parts = table.split(8, standardize=False)  # height, long, round, the constant 1
    >>> parts.train.X[parts.train.carried["row"] == 1].tolist()
    [[9.0, 0.0, 1.0, 1.0]]
    """

    inputs: pd.DataFrame
    samples: Dataset
    n_rows: int
    n_unlabelled: int
    n_incomplete: int

    def split(
        self,
        train_size: int,
        validation_size: int | None = None,
        seed: int = 1,
        *,
        standardize: bool = True,
    ) -> Split:
        """Split the rows at random, and make inputs of both parts by what the training rows have.

        Parameters
        ----------
        train_size, validation_size, seed
            See `datasets.split`.
        standardize : bool
            Whether numbers have mean 0 and variance 1 over the training rows.

        Returns
        -------
        Split
            With the constant 1 as the last feature.

        Warns
        -----
        UserWarning
            A text of a validation row that no training row has: all inputs of its column are 0.
        """
        parts = split(self.samples, train_size, validation_size, seed)
        train_rows = self.inputs.loc[parts.train.carried["row"]]
        validation_rows = self.inputs.loc[parts.validation.carried["row"]]
        transformer = column_transformer(train_rows, standardize=standardize).fit(train_rows)
        warn_of_unseen(train_rows, validation_rows, self.samples.name)
        return Split(
            replace(parts.train, X=inputs_of(train_rows, transformer), has_constant=True),
            replace(parts.validation, X=inputs_of(validation_rows, transformer), has_constant=True),
        )


def load_own(
    file: str | Path,
    target: str | None = None,
    *,
    positive: Collection[ClassName] | None = None,
    negative: Collection[ClassName] | None = None,
    classes: Collection[ClassName] | None = None,
    id: Collection[str] = (),
    missing: Missing = "refuse",
) -> Table:
    r"""Read a table of the user's own; the head of the module says what becomes of its columns.

    Parameters
    ----------
    file : str or Path
        CSV, TSV or Parquet.
    target : str
        Name of the column that holds the labels.
    positive : collection of str or int, optional
        Labels of the class +1; capitals do not matter where they tell no two labels apart. By
        default the second of two labels, in the order of numbers or of the alphabet.
    negative : collection of str or int, optional
        Labels of the class -1, by default all others. Samples of neither class are dropped.
    classes : collection of str or int, optional
        Instead, labels that are classes of their own, ("all",) for all; see `several_classes`.
    id : collection of str
        Columns that are no inputs, but carried along: names of the rows, remarks.
    missing : {"refuse", "drop", "median"}
        What is done where values are missing: an error; rows that lack any are left out; or a
        number becomes the median of the training rows, and a text a value of its own. Rows without
        a label are left out, and counted, but for "refuse".

    Returns
    -------
    Table
        ``load_own(...).split(train_size)`` has the inputs.

    Raises
    ------
    ValueError
        Another format, a file that pandas cannot read, no such column, values that are missing or
        no numbers in a column of numbers, more than two classes and neither ``positive`` nor
        ``classes``, or a class that does not occur.
    TypeError
        A single name instead of a list of names.
    OSError
        A file that cannot be opened.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "flowers.csv"
    ...     _ = file.write_text("width,kind\n0.2,setosa\n1.3,versicolor\n2.1,virginica\n")
    ...     flowers = load_own(file, "kind", positive=["setosa"])
    >>> flowers.samples.class_names, flowers.samples.y.tolist()
    (('versicolor, virginica', 'setosa'), [1.0, -1.0, -1.0])
    """
    lists = {"positive": positive, "negative": negative, "classes": classes, "id": id}
    for name, given in lists.items():
        if given is not None and (isinstance(given, str) or not isinstance(given, Collection)):
            raise TypeError(f"{name} must be a list of names, got {given!r}: pass [{given!r}]")
    if not isinstance(target, str | None):
        raise TypeError(f"target must be a name, got {target!r:.99}")
    validation.check_choice(missing, "missing", get_args(Missing))
    file = validation.existing_file(file)
    import pandas as pd

    try:
        rows = _read(file, target)
        names = _input_names(rows, target, id)
        inputs = pd.DataFrame({name: numbers_or_text(rows[name]) for name in names})
        unlabelled = rows[target].isna()
        incomplete = inputs.isna().any(axis=1) & ~unlabelled
        if missing == "refuse":
            _refuse_gaps(rows[[*names, target]])
        kept = ~unlabelled
        if missing == "drop":
            kept &= ~incomplete
        labels = as_text(rows[target]) if is_text(rows[target]) else rows[target]
        known, numbers = class_names(labels[kept].to_numpy())
        if len(known) < 2:
            raise ValueError(
                f"two classes are needed: {kept.sum()} of its {len(rows)} rows are kept "
                f"({unlabelled.sum()} rows lack a label, {incomplete.sum()} another value), and "
                f"the classes of these are: {listed(known) or 'none'}"
            )
        y, chosen, called = select(known, numbers, positive, negative, classes)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{file}: {error}") from error
    rows, inputs = rows[kept][chosen], inputs[kept][chosen]
    carried = {"row": rows.index.to_numpy()} | {name: rows[name].to_numpy() for name in id}
    if not set(called) <= set(known):  # a class is made of several labels
        carried[WRITTEN] = np.array(known)[numbers[chosen]]
    no_inputs = np.empty((len(rows), 0))
    return Table(
        inputs,
        Dataset(file.name, no_inputs, y, called, has_constant=False, carried=carried),
        n_rows=len(kept),
        n_unlabelled=int(unlabelled.sum()),
        n_incomplete=int(incomplete.sum()) if missing == "drop" else 0,
    )


def _read(file: Path, target: str | None) -> pd.DataFrame:
    """Read the file, and refuse what pandas misreads without a word."""
    import pandas as pd

    endings = [ending.lower() for ending in file.suffixes]
    if ".parquet" in endings:
        rows = pd.read_parquet(file)
        rows.columns = rows.columns.map(str)
    elif ".csv" in endings or ".tsv" in endings:
        separator = "\t" if ".tsv" in endings else ","
        # pandas calls the second column of one name NAME.1.
        first = pd.read_csv(file, sep=separator, header=None, nrows=1, dtype=str).iloc[0]
        if (first.str.strip() == target).sum() > 1:
            raise ValueError(f"several columns are called {target!r}, which is the target")
        with warnings.catch_warnings():
            # Where rows have more fields than there are names, pandas would drop the last ones.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            try:
                rows = pd.read_csv(
                    file, sep=separator, index_col=False, skipinitialspace=True, low_memory=False
                )
            except pd.errors.ParserWarning as warning:
                raise ValueError(
                    f"its rows have more fields than the {len(first)} names of the first line"
                ) from warning
    else:
        raise ValueError("its ending is none of .csv, .tsv and .parquet: write it as one of these")
    if not len(rows):
        raise ValueError("it has no rows below the names")
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    return rows


def _input_names(rows: pd.DataFrame, target: str | None, id: Collection[str]) -> list[str]:
    """Return the columns that are inputs."""
    names = rows.columns.tolist()
    for name in (target, *id):
        if name not in names:
            raise ValueError(
                f"no column is called {name!r}: there are {listed(names, name)}; --target (in "
                "Python target=) names the one of the labels"
            )
    if target in id:
        raise ValueError(f"{target!r} is the target: leave it out of --id")
    inputs = [name for name in names if name != target and name not in id]
    for name in inputs:
        if name.startswith("Unnamed: "):  # so pandas calls it
            raise ValueError(
                f"a column has no name: leave it out by --id {name!r}, or, if it is an index that "
                "pandas wrote, by to_csv(..., index=False)"
            )
    if not inputs:
        raise ValueError(f"there are no inputs: its columns are {listed(names)}")
    return inputs


def _refuse_gaps(rows: pd.DataFrame) -> None:
    counts = rows.isna().sum()
    lacking = [f"{name} ({count} of {len(rows)} rows)" for name, count in counts.items() if count]
    if lacking:
        raise ValueError(
            f"values are missing in {listed(lacking)}: leave these rows out by --missing drop, or "
            "fill in all but labels by --missing median (an empty field, NA, None or null is a "
            "missing value)"
        )
