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
numbers, decimals too        the number, or the median for a missing one; standardised
text, booleans, categories   1 for the value that stands there, 0 for each other one;
                             a missing value counts as one more value
===========================  =======================================================

Medians, means, scales and the values of text are those of the training rows alone, so that nothing
is learned of the rows that are held out. A constant 1 is the last input, because no model of the
command line has an offset outside its norm.
"""

from __future__ import annotations

import shlex
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
    from sklearn.compose import ColumnTransformer

# Name of the carried labels of the file, where several of them are one class.
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
        Rows of the file; those left out because they lack a label; and further ones left out
        because they lack another value.
    lost_classes : tuple of str
        Labels of the file whose rows all lack another value, so that none is left.

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
    lost_classes: tuple[str, ...] = ()

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
        parts = split(self.samples, train_size, validation_size, seed)
        train_rows = self.inputs.loc[parts.train.carried["row"]]
        validation_rows = self.inputs.loc[parts.validation.carried["row"]]
        transformer = _column_transformer(train_rows, standardize).fit(train_rows)

        def with_inputs(part: Dataset, rows: pd.DataFrame) -> Dataset:
            X = np.column_stack([transformer.transform(rows), np.ones(len(rows))])
            return replace(part, X=X, has_constant=True)

        return Split(
            with_inputs(parts.train, train_rows), with_inputs(parts.validation, validation_rows)
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

    Warns
    -----
    UserWarning
        Each row of a class lacks a value, so that ``missing="drop"`` leaves no row of it. A column
        of text has another value in each of 10 rows or more, as an identifier has.

    Raises
    ------
    ValueError
        Another format, a file that pandas cannot read or would misread, no such column, values
        that are missing or no numbers in a column of numbers, more than two classes and neither
        ``positive`` nor ``classes``, or a class that does not occur.
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
    try:
        rows = _read(file, target)
        names = _input_names(rows, target, id)
        # Before rows are left out: an error names the row of the file.
        inputs = pd.DataFrame({name: _numbers_or_text(rows[name]) for name in names})

        # Which rows lack a label, which have one but lack another value, and which are kept.
        unlabelled = rows[target].isna()
        incomplete = inputs.isna().any(axis=1) & ~unlabelled
        if missing == "refuse":
            _refuse_gaps(rows[[*names, target]])
        kept = ~unlabelled
        if missing == "drop":
            kept &= ~incomplete

        labels = rows[target]
        if _is_text(labels):
            labels = _as_text(labels)
        known, numbers = class_names(labels[kept].to_numpy())
        # A class may vanish with the rows that are left out: fewer classes are another problem.
        in_file, _ = class_names(labels[~unlabelled].to_numpy())
        lost = tuple(name for name in in_file if name not in known)
        if len(known) < 2:
            raise ValueError(
                f"two classes are needed: {kept.sum()} of its {len(rows)} rows are kept "
                f"({unlabelled.sum()} rows lack a label, {incomplete.sum()} another value), and "
                f"the classes of these are: {listed(known) or 'none'}"
            )
        if lost:
            warnings.warn(
                f"{file.name}: no row is left of {listed(lost)}, because each lacks a value other "
                "than its label: fill in numbers by --missing median (in Python "
                'missing="median"), or leave the columns with gaps out by --id (id=[...])',
                stacklevel=2,
            )
        y, chosen, called = select(known, numbers, positive, negative, classes)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{file}: {error}") from error

    _warn_of_identifiers(file, inputs[kept][chosen])
    rows = rows[kept][chosen]
    carried = {"row": rows.index.to_numpy()}
    for name in id:
        carried[name] = rows[name].to_numpy()
    if not set(called) <= set(known):  # a class is made of several labels
        carried[WRITTEN] = np.array(known)[numbers[chosen]]
    # Inputs are made when the table is split: medians and standard deviations are of training rows.
    no_inputs = np.empty((len(rows), 0))
    return Table(
        inputs[kept][chosen],
        Dataset(file.name, no_inputs, y, called, has_constant=False, carried=carried),
        n_rows=len(kept),
        n_unlabelled=int(unlabelled.sum()),
        n_incomplete=int(incomplete.sum()) if missing == "drop" else 0,
        lost_classes=lost,
    )


# --- reading -----------------------------------------------------------------------------------


def _read(file: Path, target: str | None) -> pd.DataFrame:
    """Return the rows of a file, numbered from 1, or refuse what pandas would misread."""
    import pandas as pd

    endings = [ending.lower() for ending in file.suffixes]
    if ".parquet" in endings:
        rows = pd.read_parquet(file)
        # Columns of a Parquet file may be numbered; options name them by text.
        rows.columns = rows.columns.map(str)
    elif ".csv" in endings or ".tsv" in endings:
        options: dict[str, Any] = {"sep": ",", "skipinitialspace": True}
        if ".tsv" in endings:
            options["sep"] = "\t"
        # Of two columns with one name pandas renames the second, which would be an input.
        names = pd.read_csv(file, header=None, nrows=1, dtype=str, **options).iloc[0]
        if (names == target).sum() > 1:
            raise ValueError(
                f"{(names == target).sum()} columns are called {target!r}, the target: leave one "
                "of this name"
            )
        with warnings.catch_warnings():
            # Without an index pandas drops the last fields of longer rows, and only warns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            try:
                # Else a comma at the end of each row would make an index of the first column.
                rows = pd.read_csv(file, index_col=False, low_memory=False, **options)
            except pd.errors.ParserWarning as error:
                raise ValueError(
                    f"rows have more fields than the {len(names)} names in its first line: name "
                    "each column, and quote a value that has the separator in it"
                ) from error
    else:
        raise ValueError("its ending is none of .csv, .tsv and .parquet: write it as one of these")
    if not len(rows):
        raise ValueError("it has no rows below the names")
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    return rows


def _input_names(rows: pd.DataFrame, target: str | None, id: Collection[str]) -> list[str]:
    """Return the columns that are inputs."""
    names = rows.columns.tolist()
    if target is None:
        raise ValueError(
            f"--target is required (in Python target=): it names the column of the labels, one of "
            f"{listed(names)}"
        )
    if target not in names:
        raise ValueError(
            f"no column is called {target!r}: there are {listed(names, target)}; --target (in "
            "Python target=) names the one of the labels"
        )
    for name in id:
        if name not in names:
            raise ValueError(
                f"no column is called {name!r}: there are {listed(names, name)}; --id (in Python "
                "id=[...]) names columns that are no inputs, separated by commas"
            )
    inputs = [name for name in names if name != target and name not in id]
    for name in inputs:
        if name.startswith("Unnamed: "):  # so pandas calls it
            raise ValueError(
                f"a column has no name: leave it out by --id {name!r}, or, if it is an index that "
                "pandas wrote, by to_csv(..., index=False)"
            )
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


# --- columns -----------------------------------------------------------------------------------


def _warn_of_identifiers(file: Path, columns: pd.DataFrame, fewest_rows: int = 10) -> None:
    """Warn of columns of text with another value in each row, of ``fewest_rows`` or more."""
    n_rows = len(columns)
    if n_rows < fewest_rows:
        return
    for name in text_columns(columns):
        if columns[name].nunique() == n_rows:
            warnings.warn(
                f"{file.name}: column {name!r} has another text in each of its {n_rows} rows, as "
                "an identifier has, and becomes one input for each of them: leave it out by --id "
                f"{shlex.quote(name)} (in Python id=[{name!r}])",
                stacklevel=3,
            )


def text_columns(columns: pd.DataFrame) -> tuple[str, ...]:
    """Return the names of the columns that become an input for each value."""
    return tuple(columns.select_dtypes(exclude="number").columns)


def _column_transformer(columns: pd.DataFrame, standardize: bool) -> ColumnTransformer:
    """Return what makes inputs of columns of float64 and of text; it is not fitted yet."""
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
    numbers = columns.select_dtypes("number").columns
    return ColumnTransformer(
        [("numbers", for_numbers, numbers), ("text", for_text, list(text_columns(columns)))]
    )


def _numbers_or_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column as float64 or as text, with NaN for each value that is missing.

    Raises
    ------
    ValueError
        Neither numbers nor text; or words among numbers, which would make a text of them all.
    """
    import pandas as pd

    if not _is_text(column):
        return column.astype(float)
    text = _as_text(column)
    is_number = pd.to_numeric(text, errors="coerce").notna()
    words = text[text.notna() & ~is_number]
    # Few words among many numbers are marks of missing values, or slips. More words than numbers
    # are text, such as codes of which some have digits alone.
    if 0 < len(words) < is_number.sum():
        raise ValueError(
            f"column {column.name!r} has numbers, but {words.iloc[0]!r} in row {words.index[0]}, "
            "counted from 1 below the names: write numbers with a decimal point, and nothing where "
            "one is missing; if these are codes and no numbers, write a letter before each"
        )
    return text


def _is_text(column: pd.Series[Any]) -> bool:
    """Whether a column has text, booleans or categories; False for numbers.

    Raises
    ------
    ValueError
        Neither: dates, lists, bytes, complex numbers.
    """
    from pandas.api.types import infer_dtype

    kind = infer_dtype(column, skipna=True)
    if kind in ("string", "boolean", "categorical"):
        return True
    if kind in ("integer", "floating", "mixed-integer-float", "decimal"):
        return False
    raise ValueError(
        f"column {column.name!r} has {kind} values ({column.dtype}), which are neither numbers nor "
        "text: convert it, or leave it out by --id (in Python id=[...])"
    )


def _as_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return the values as text, and NaN for each that is missing, by None or pd.NA, too."""
    text = column.astype(object).where(column.notna(), np.nan)
    return text.map(str, na_action="ignore").astype(object)
