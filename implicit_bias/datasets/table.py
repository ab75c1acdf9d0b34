"""A table of the user's own: read by pandas, prepared by scikit-learn's `ColumnTransformer`.

=================  =================================================================
file               read by
=================  =================================================================
.csv, .tsv         `pandas.read_csv`, also compressed; the first line has the names
.parquet           `pandas.read_parquet`
=================  =================================================================

===========================  =======================================================
column                       inputs
===========================  =======================================================
the target                   none: the labels
identifiers                  none: they are carried along
numbers                      the number, or the median for a missing one; standardized
all others                   1 for the value that stands there, 0 for each other one;
                             a missing value counts as one more value
===========================  =======================================================

A column with one word among its numbers is text to pandas. Medians, means, scales and the values of
text are those of the training rows alone, so that nothing is learned of the rows that are held
out. A constant 1 is the last input, because no model of the command line has an offset outside its
norm.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from implicit_bias.base.options import Missing
from implicit_bias.base.validation import check_choice
from implicit_bias.datasets.dataset import Dataset, Split, split
from implicit_bias.datasets.labels import ClassName, class_names, listed, select

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Table:
    r"""The rows of a file that have a label, before any of them are training rows.

    Attributes
    ----------
    inputs : DataFrame
        Columns of numbers and of text. Its index is the number of each row in the file, from 1
        below the names.
    samples : Dataset
        Labels, names of classes, and what is carried along; without inputs as yet.
    n_rows, n_unlabelled, n_incomplete : int
        Rows of the file; those left out because they lack a label; and further ones left out
        because they lack another value.

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

    @property
    def text_columns(self) -> list[str]:
        """Names of the columns that become an input for each value."""
        return list(self.inputs.select_dtypes(exclude="number").columns)

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
            With the constant 1 as the last feature. Where a validation row has a text that no
            training row has, all inputs of that column are 0, with a warning of scikit-learn.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        # A column without any number in the training rows becomes 0.
        for_numbers: Any = SimpleImputer(strategy="median", keep_empty_features=True)
        if standardize:
            for_numbers = make_pipeline(for_numbers, StandardScaler())
        # A value that only the test rows have is 0 in all of its inputs, and a warning.
        for_text = OneHotEncoder(handle_unknown="warn", sparse_output=False)
        numbers = self.inputs.select_dtypes("number").columns
        transformer = ColumnTransformer(
            [("numbers", for_numbers, numbers), ("text", for_text, self.text_columns)]
        )

        parts = split(self.samples, train_size, validation_size, seed)
        transformer.fit(self.inputs.loc[parts.train.carried["row"]])
        prepared = []
        for part in (parts.train, parts.validation):
            inputs = transformer.transform(self.inputs.loc[part.carried["row"]])
            X = np.column_stack([inputs, np.ones(len(part))])
            prepared.append(replace(part, X=X, has_constant=True))
        return Split(*prepared)


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
        Instead, labels that are one class each, ("all",) for all; see `several_classes`.
    id : collection of str
        Columns that are no inputs, but carried along: names of the rows, remarks.
    missing : {"refuse", "drop", "median"}
        What is done where values are missing: an error; rows that lack any are left out; or a
        number becomes the median of the training rows, and a missing text counts as one more
        value. Rows without a label are left out, and counted, but for "refuse".

    Returns
    -------
    Table
        ``load_own(...).split(train_size)`` has the inputs.

    Raises
    ------
    ValueError
        Another format, a file that pandas cannot read, no such column, missing values, fewer than
        two classes, more than two and neither ``positive`` nor ``classes``, or a class that does
        not occur.
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
    import pandas as pd

    check_choice(missing, "missing", get_args(Missing))
    file = Path(file)
    endings = [ending.lower() for ending in file.suffixes]
    if ".parquet" in endings:
        rows = pd.read_parquet(file)
        rows.columns = rows.columns.map(str)  # they may be numbers, which options name by text
    elif ".csv" in endings or ".tsv" in endings:
        separator = "\t" if ".tsv" in endings else ","
        with warnings.catch_warnings():
            # Of rows that are longer than the line of names pandas would leave out what is left.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            try:
                rows = pd.read_csv(
                    file, sep=separator, skipinitialspace=True, index_col=False, low_memory=False
                )
            except (pd.errors.ParserWarning, EOFError) as error:  # EOFError of a gzip cut short
                raise ValueError(f"{file} is damaged, or no table: {error}") from error
    else:
        raise ValueError(f"{file}: write the table as .csv, .tsv or .parquet")
    rows.index = pd.RangeIndex(1, len(rows) + 1)

    columns = rows.columns.tolist()
    if target is None:
        raise ValueError(f"--target (in Python target=) must name one column of {listed(columns)}")
    for name in (target, *id):
        if name not in columns:
            raise ValueError(
                f"no column is called {name!r}: there are {listed(columns, name)}; --target and "
                "--id (in Python target= and id=) name columns of the file"
            )
    inputs = rows.drop(columns=[target, *id])
    # scikit-learn knows NaN as missing, but not pandas' other marks.
    are_numbers = inputs.select_dtypes("number").columns
    are_text = inputs.columns.difference(are_numbers, sort=False)
    inputs[are_numbers] = inputs[are_numbers].astype(float)
    inputs[are_text] = inputs[are_text].astype(object).where(inputs[are_text].notna(), np.nan)

    # Which rows lack a label, which have one but lack another value, and which are kept.
    unlabelled = rows[target].isna()
    incomplete = inputs.isna().any(axis=1) & ~unlabelled
    kept = ~unlabelled
    if missing == "drop":
        kept &= ~incomplete
    if missing == "refuse" and (unlabelled | incomplete).any():
        counts = rows[[*inputs, target]].isna().sum()
        lacking = [f"{name} ({count} rows)" for name, count in counts[counts > 0].items()]
        raise ValueError(
            f"values are missing in {listed(lacking)}: leave these rows out by --missing drop, or "
            "fill in all but labels by --missing median (an empty field, NA, None or null is a "
            "missing value)"
        )

    known, numbers = class_names(rows[target][kept].to_numpy())
    if len(known) < 2:
        raise ValueError(f"two classes are needed, but {target!r} has {listed(known) or 'none'}")
    y, chosen, called = select(known, numbers, positive, negative, classes)
    inputs = inputs[kept][chosen]
    carried = {"row": inputs.index.to_numpy()}
    for name in id:
        carried[name] = rows[name][kept][chosen].to_numpy()
    if not set(called) <= set(known):  # a class is made of several labels
        carried["label in the file"] = np.array(known)[numbers[chosen]]
    # Inputs are made when the table is split: medians and scales are of training rows.
    no_inputs = np.empty((len(inputs), 0))
    return Table(
        inputs,
        Dataset(file.name, no_inputs, y, called, has_constant=False, carried=carried),
        n_rows=len(rows),
        n_unlabelled=int(unlabelled.sum()),
        n_incomplete=int((~kept & ~unlabelled).sum()),
    )
