"""A file of the user's own as a data set, of two classes or more.

=============================  ==============================================================
file                           inputs and labels
=============================  ==============================================================
.csv, .csv.gz, .tsv            a line of column names; ``target`` is the column of the labels
.parquet                       the same
.npz                           two arrays: ``target`` (by default "y") of shape (n,), and the
                               inputs, the only other one, or the one called "X", (n, D)
.svm, .libsvm, .svmlight,      libsvm's text, ``label index:value ...``, as scikit-learn reads
.txt (.gz, .bz2)               it; the labels stand first, so there is no ``target``
=============================  ==============================================================

Every input must be a number, and none may be missing, unless the user says what to put in its
place (``encode``, ``missing``) or leaves the column out (``ignore``, or ``id`` for what names the
samples). A constant 1 is appended as
the last column, unless the last column is that already, because no model of the command line has an
offset outside its norm.
"""

from __future__ import annotations

import bz2
import gzip
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base import validation
from implicit_bias.base.options import Missing
from implicit_bias.base.validation import LARGEST_WHOLE, WHOLE, Array
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.labels import ClassName, alike, class_names, listed, select
from implicit_bias.datasets.preparation import Preparation, Texts, encode, first_date, texts_of

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".tsv", ".parquet")
LIBSVM = (".svm", ".libsvm", ".svmlight", ".txt")
COMPRESSED = (".gz", ".bz2")
# Signs that programs write between fields.
MARKS = {";": "semicolons", "\t": "tabs", ",": "commas"}
# How the labels of the file are called beside the classes that several of them are in.
WRITTEN = "label in the file"
# Values (8 bytes each) that a sparse file may have once its zeros are written out.
MOST_VALUES = 2**29
# What pandas calls a column without a name, such as an index that it has written.
UNNAMED = re.compile(r"(Unnamed: \d+)?")
# Columns of whole numbers that lack some stay whole numbers, where numpy would make them floats.
WITH_GAPS: Literal["numpy_nullable"] = "numpy_nullable"
# What pandas' infer_dtype calls objects that are numbers.
NUMBER_KINDS = ("integer", "floating", "mixed-integer-float")
# A value of libsvm's text that is a whole number, and that float64 may round.
LONG = re.compile(rb":([+-]?\d{16,})(?=\s|$)")
# Numbers that are written so that no program reads them as such: 1,5 and 1 500 and 15 %.
DIGITS = re.compile(r"[^0-9a-zA-Z]*[0-9]+([., '][0-9]+)*(e[+-]?[0-9]+)?[^0-9a-zA-Z]*")
# A number with zeros before it, as identifiers have them.
PADDED = re.compile(r"[+-]?0[0-9]")
# Different texts beyond which a column names its rows rather than kinds of them.
MOST_TEXTS = 100
# Rows from which on a column of whole numbers or texts that all differ is taken for their names.
LEAST_NAMED = 20
# 2020-01-31, 31.1.20 and the like, maybe with a time.
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T].*)?")
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T].*)?")


def load_own(
    file: str | Path,
    target: str | None = None,
    *,
    positive: Collection[ClassName] | None = None,
    negative: Collection[ClassName] | None = None,
    classes: Collection[ClassName] | None = None,
    encode: bool = False,
    missing: Missing = "refuse",
    ignore: Collection[str] = (),
    id: Collection[str] = (),
) -> Dataset:
    r"""Load a file of the user's own; the module's head has the formats.

    Parameters
    ----------
    file : str or Path
        The file.
    target : str, optional
        Name of the column, or of the array, that holds the labels.
    positive : collection of str or int, optional
        Labels of the class +1; capitals do not matter where they tell no two labels apart. By
        default the second of two labels, in the order of numbers or of the alphabet.
    negative : collection of str or int, optional
        Labels of the class -1, by default all others. Samples of neither class are dropped.
    classes : collection of str or int, optional
        Instead, labels that are classes of their own, ("all",) for all; see `several_classes`.
    encode : bool
        Whether a column of text becomes one input for each different text: 1 where it stands, else
        0; and one of dates such as 2020-01-31, with or without a time, the days since its first. By
        default such columns are refused.
    missing : {"refuse", "drop", "median"}
        What is done with samples that lack a value: an error; leaving them out; or keeping them,
        with NaN in the data set, which `filled` replaces by medians of training samples. A missing
        text is then a text of its own. A missing label is never filled in.
    ignore : collection of str
        Columns that are no inputs.
    id : collection of str
        Columns that are no inputs, but kept: names and numbers of the samples.

    Returns
    -------
    Dataset
        With the constant 1 as the last feature; not ``complete`` if a value is NaN. ``carried`` has
        the number of each sample's row, from 1, the columns ``id``, and, where a class is made of
        several labels, the label as the file has it. ``preparation`` does the same to other rows.

    Raises
    ------
    ValueError
        No such format or column; a missing value; a column of text; more than two classes and
        neither ``positive`` nor ``classes``; or a class that does not occur.
    TypeError
        A single name instead of a list of names.
    OSError
        A file that cannot be read.

    Warns
    -----
    UserWarning
        A column of whole numbers that all differ, as the numbers of rows do; a rare label that
        differs from another in capitals or spaces only.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "flowers.csv"
    ...     _ = file.write_text("width,kind\n0.2,setosa\n1.3,versicolor\n2.1,virginica\n")
    ...     flowers = load_own(file, "kind", positive=["setosa"])
    >>> flowers.class_names, flowers.y.tolist()
    (('versicolor, virginica', 'setosa'), [1.0, -1.0, -1.0])
    """
    lists = {"positive": positive, "negative": negative, "classes": classes}
    lists |= {"ignore": ignore, "id": id}
    for name, given in lists.items():
        is_list = isinstance(given, Collection) and getattr(given, "ndim", 1) == 1
        if isinstance(given, str) or not (given is None or is_list):
            raise TypeError(f"{name} must be a list of names, got {given!r}: pass [{given!r}]")
    if not isinstance(target, str | None):
        raise TypeError(f"target must be a name, got {target!r:.99}")
    validation.check_flag(encode, "encode")
    validation.check_choice(missing, "missing", get_args(Missing))

    def choose(labels: NDArray[Any]) -> tuple[Any, Any]:
        found = class_names(labels)
        return found, select(*found, positive, negative, classes)

    file = validation.existing_file(file)
    try:
        columns = Columns(encode, missing, frozenset(ignore), tuple(id), choose)
        found = _read(file, target, columns)
        (names, numbers), (y, chosen, called) = choose(found.labels)
    except (ValueError, MemoryError) as error:
        kind = MemoryError if isinstance(error, MemoryError) else ValueError
        raise kind(f"{file}: {error}") from error
    for said in (*found.doubts, *alike(names, numbers)):
        warnings.warn(f"{file.name}: {said}", stacklevel=2)
    kept, written = found.inputs[chosen], np.array(names)[numbers[chosen]]
    constant = not (kept.shape[1] and (kept[:, -1] == 1.0).all())
    if constant:
        kept = np.column_stack([kept, np.ones(len(kept))])
    carried = {name: values[chosen] for name, values in found.carried.items()}
    labels = np.array(called)
    if not set(called) <= set(names):
        carried[WRITTEN] = written
    elif found.labels.dtype.kind in "iuf":  # as numbers, as the file has them
        labels = labels.astype(found.labels.dtype)
    return Dataset(
        file.name,
        kept,
        y,
        called,
        complete=not np.isnan(kept).any(),
        carried=carried,
        preparation=Preparation(*found.columns, labels, constant),
    )


# --- reading -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columns:
    """What becomes of text, of missing values and of some columns; see `load_own`.

    ``choose`` makes classes of the labels, and refuses what are none.
    """

    encode: bool
    missing: Missing
    ignore: frozenset[str]
    id: tuple[str, ...]
    choose: Callable[[NDArray[Any]], Any]


@dataclass(frozen=True, eq=False)
class _Samples:
    """What a file holds: inputs (n, D) and labels (n,), and of a table its columns.

    ``columns`` are the names of the inputs' columns and their texts, and ``doubts`` sentences that
    say which of them may be no inputs.
    """

    inputs: Array
    labels: NDArray[Any]
    carried: Mapping[str, NDArray[Any]]
    columns: tuple[tuple[str, ...], tuple[Texts, ...]] = ((), ())
    doubts: tuple[str, ...] = ()


def _read(file: Path, target: str | None, columns: Columns) -> _Samples:
    """Return the samples of a file."""
    kind = _kind(file)
    if kind in TABLES:
        return _from_table(read_table(file, target, columns.id), target, columns)
    if columns.ignore or columns.id:
        raise ValueError("its inputs have no names: leave --ignore and --id out")
    if kind == ".npz":
        return _from_arrays(file, "y" if target is None else target, columns.missing)
    if kind in LIBSVM:
        if target is not None:
            raise ValueError("libsvm's text has its labels first in each line: leave --target out")
        return _from_libsvm(file, columns.missing)
    known = ", ".join((*TABLES, ".npz", *LIBSVM))
    raise ValueError(f"its ending {kind or 'is missing, which'} is none of {known}")


def _kind(file: Path) -> str:
    """Return the ending of a file before that of its compression."""
    return next((s.lower() for s in reversed(file.suffixes) if s.lower() not in COMPRESSED), "")


@contextmanager
def _parsing(what: str, cure: str = "") -> Iterator[None]:
    """Turn whatever a library raises at the content of a file into a ValueError."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"it does not fit into memory as {what}: {error}") from error
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"it cannot be read as {what} ({said}){cure and f': {cure}'}") from error


def read_table(file: Path, target: str | None = None, id: Collection[str] = ()) -> pd.DataFrame:
    """Read a CSV, TSV or Parquet file, and refuse what could be misread; see `load_own`.

    Columns ``id`` that are no whole numbers as Python writes them, such as 007, stay as they are.
    Columns of whole numbers beyond 2^53 beside fractions become objects: pandas would round them.
    """
    import pandas as pd

    if (kind := _kind(file)) == ".parquet":
        with _parsing("a Parquet table"):
            return pd.read_parquet(file, dtype_backend=WITH_GAPS)
    sign = "\t" if kind == ".tsv" else ","
    cure = f"separate fields by {MARKS[sign]}, quote those that hold one, and save it as UTF-8"

    def read(**options: Any) -> pd.DataFrame:
        return pd.read_csv(
            file, sep=sign, skipinitialspace=True, dtype_backend=WITH_GAPS, **options
        )

    with _parsing("a table", cure), warnings.catch_warnings():
        # So pandas says that it drops fields beyond those that have a name.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # Read apart, because pandas changes names that are there twice.
        head = read(header=None, nrows=1, dtype=str, na_filter=False)
        names = [name.strip() for name in head.iloc[0]]
        if names[0].startswith("sep="):
            raise ValueError("Excel's sep= in the first line: delete this line")
        others = [word for mark, word in MARKS.items() if mark != sign and mark in names[0]]
        if others and len(names) == 1 and target != names[0]:
            raise ValueError(f"its fields are separated by {others[0]}")
        try:
            table = read(index_col=False, low_memory=False)
        except pd.errors.ParserWarning as error:
            raise ValueError(
                f"line 2 has more fields than line 1 has names, {len(names)}"
            ) from error
    table.columns = pd.Index(names)
    if all(_is_number(name) for name in names):
        raise ValueError("its first line has numbers only: put the names of the columns there")
    asked = list[tuple[int, bool, bool]]()
    for place, name in enumerate(names):
        column = table.iloc[:, place]
        kind = _kind_of(column)
        label = name == target and kind in "iuf"
        large = name != target and kind == "f" and bool((column.abs() >= LARGEST_WHOLE).any())
        if label or large or name in id:
            asked.append((place, label, large))
    if not asked:
        return table
    # Once more for all of them: of a table with many, each reading of the file counts.
    written = read(index_col=False, usecols=[place for place, *_ in asked], dtype=str)
    for (place, label, large), (_, texts) in zip(asked, written.items(), strict=True):
        column = table.iloc[:, place]
        if label:
            _check_padding(texts.dropna().unique())
        elif names[place] in id and (texts.dropna() != column.dropna().astype(str)).any():
            table.isetitem(place, texts.array)
        elif large and texts.str.fullmatch(WHOLE).any():
            exact = [
                int(text) if WHOLE.fullmatch(text) else float(text) for text in texts.fillna("nan")
            ]
            table.isetitem(place, pd.Series(exact, dtype=object).array)
    return table


def _kind_of(column: pd.Series[Any]) -> str:
    """Return the letter of numpy for a column's type; f for objects of whole numbers and floats."""
    from pandas.api.types import infer_dtype

    kind = getattr(column.dtype, "kind", "O")
    return "f" if kind == "O" and infer_dtype(column) in NUMBER_KINDS else kind


def _check_padding(labels: Iterable[str]) -> None:
    """Refuse labels such as 01 and 1, which are two names and one number."""
    known = dict[Decimal, str]()
    for label in sorted({label.strip() for label in labels}, key=len):
        other = known.setdefault(Decimal(label), label)
        if other != label and PADDED.match(label):
            raise ValueError(
                f"the labels {other} and {label} are one number: write a class in one way, or, if "
                "these are two, put a letter before each number"
            )


@dataclass(frozen=True)
class _Roles:
    """What the columns of a table are, by their places; -1 for labels that are not there."""

    labels: int
    inputs: list[int]
    text: list[int]  # inputs of text, dates among them
    dates: set[int]
    doubts: tuple[str, ...]


def _roles(table: pd.DataFrame, target: str | None, columns: Columns) -> _Roles:
    """Tell what each column is, and say at once all that is wrong with them."""
    names = [str(name) for name in table.columns]
    if unnamed := [str(n) for n, name in enumerate(names, 1) if UNNAMED.fullmatch(name)]:
        raise ValueError(
            f"columns without a name: number {listed(unnamed)}. Name them, or leave them out (an "
            "index that pandas wrote: to_csv(..., index=False))"
        )
    if not len(table):
        raise ValueError("there are no inputs: the table has no rows")
    wrong = []
    aside = {*columns.ignore, *columns.id}
    if unknown := sorted(aside - set(names)):
        wrong.append(f"--ignore and --id name {listed(unknown)}, which is no column")
    if target in aside:
        wrong.append(f"{target} is the target: --ignore and --id cannot leave it out")
    if target is None:
        wrong.append(f"name the column of the labels by --target: {listed(names)}")
    elif names.count(target) != 1:
        what = "several columns are" if target in names else "no column is"
        wrong.append(f"{what} called {target!r}: there are {listed(names, target)}")
    inputs = [n for n, name in enumerate(names) if name not in {target, *aside}]
    # Durations count as numbers, but of a unit that is not seen.
    kinds = [_kind_of(table.iloc[:, n]) for n in range(table.shape[1])]
    text = [n for n in inputs if kinds[n] not in "biuf"]
    place = names.index(str(target)) if target in names else -1
    wrong += _gaps(table.iloc[:, sorted({*inputs, place} - {-1})], target, columns.missing)
    if place < 0 and len(text) == 1:
        text = []  # the only one is that of the labels, most likely
    naming = [n for n in inputs if kinds[n] not in "bf" and _names_rows(table.iloc[:, n])]
    said = {
        n: f"{names[n]} has as many values as rows ({len(table)}): if it names them, carry it "
        f"along by --id {names[n]} or leave it out by --ignore {names[n]}"
        for n in naming
    }
    wrong += [said.pop(n) for n in text if n in said]
    text = [n for n in text if n not in naming]
    dated = {n for n in text if _share(table.iloc[:, n], ISO_DATE) == 1.0}
    for odd, why in list(_not_kinds({n: table.iloc[:, n] for n in text if n not in dated})):
        wrong.append(why)
        text = [n for n in text if n not in odd]
    if text and not columns.encode:
        but = " (but for the labels)" if place < 0 else ""
        wrong.append(
            f"not numbers, but text or dates: {listed([names[n] for n in text])}. Encode these "
            f"columns{but} as one input a text, or the days of dates, by --encode (in Python "
            "encode=True), or leave them out by --ignore"
        )
    if wrong:  # and then what is wrong with the labels, and the doubts, too
        if place >= 0 and len(labels := table.iloc[:, place].dropna().to_numpy()):
            try:
                columns.choose(labels)
            except (ValueError, TypeError) as error:
                wrong.append(str(error))
        raise ValueError("; ".join((*wrong, *said.values())))
    return _Roles(place, inputs, text, dated, tuple(said.values()))


def _from_table(table: pd.DataFrame, target: str | None, columns: Columns) -> _Samples:
    roles, names = _roles(table, target, columns), [str(name) for name in table.columns]
    carried = {"row": np.arange(1, len(table) + 1)}
    carried |= {name: table.iloc[:, names.index(name)].to_numpy() for name in columns.id}
    if columns.missing == "drop":
        kept = ~table.iloc[:, [*roles.inputs, roles.labels]].isna().any(axis=1).to_numpy()
        table, carried = table[kept], {name: values[kept] for name, values in carried.items()}
        if not len(table):
            raise ValueError("each row lacks a value: leave columns out by --ignore")
    known: dict[int, Texts] = {
        n: first_date(column) if n in roles.dates else texts_of(column, columns.missing == "median")
        for n, column in ((n, table.iloc[:, n]) for n in roles.text)
    }
    texts = tuple(known.get(n) for n in roles.inputs)
    values = encode(table.iloc[:, roles.inputs], texts)
    found = _checked(values, table.iloc[:, roles.labels].to_numpy(), columns.missing, carried)
    of_inputs = (tuple(names[n] for n in roles.inputs), texts)
    return replace(found, columns=of_inputs, doubts=roles.doubts)


def _names_rows(column: pd.Series[Any]) -> bool:
    """Whether whole numbers, or texts that are no numbers or dates, differ from row to row."""
    if len(column) < LEAST_NAMED:
        return False
    if getattr(column.dtype, "kind", "O") in "iu":
        return bool(column.is_unique)
    return column.astype(str).is_unique and _share(column, DATE, DIGITS) < 0.5


def _share(column: pd.Series[Any], *patterns: re.Pattern[str]) -> float:
    """Return the share of a column's different texts that fit one of some patterns."""
    texts = {str(value).strip() for value in column.dropna()}
    return sum(any(p.fullmatch(text) for p in patterns) for text in texts) / max(len(texts), 1)


def _gaps(table: pd.DataFrame, target: str | None, missing: Missing) -> Iterator[str]:
    """Write which values of a table are missing and must not be."""
    gaps = table.isna().to_numpy()
    where = {
        name: f"{name} ({gap.sum()}, the first in row {gap.argmax() + 1} below the names)"
        for name, gap in zip(map(str, table.columns), gaps.T, strict=True)
        if gap.any()
    }
    if missing == "refuse" and where:
        yield (
            f"values are missing in {listed(list(where.values()))}: leave these rows out by "
            "--missing drop, fill them in by --missing median, or leave the columns out by "
            "--ignore (an empty field, NA, None or null is a missing value)"
        )
    if missing == "median" and target in where:
        yield f"labels are missing in {where[target]}: leave these rows out by --missing drop"
    if empty := [str(name) for name, gap in zip(table.columns, gaps.T, strict=True) if gap.all()]:
        yield f"{listed(empty)} has no value at all: leave it out by --ignore"


def _not_kinds(columns: Mapping[int, pd.Series[Any]]) -> Iterator[tuple[list[int], str]]:
    """Yield columns of text that name no kinds of samples, and so cannot be encoded, and why."""
    texts = {n: sorted({str(v).strip() for v in column.dropna()}) for n, column in columns.items()}

    def mostly(pattern: re.Pattern[str]) -> list[int]:
        return [n for n, column in columns.items() if _share(column, pattern) > 0.5]

    def said(odd: list[int], usual: re.Pattern[str]) -> str:
        examples = texts[odd[0]]
        example = next((text for text in examples if not usual.fullmatch(text)), examples[0])
        return f"such as {example[:50]!r} in {listed([str(columns[n].name) for n in odd])}"

    if dates := mostly(DATE):
        yield (
            dates,
            f"dates {said(dates, ISO_DATE)}: write them all as 2020-01-31, which --encode counts "
            "in days, or leave them out by --ignore",
        )
    if numbers := [n for n in mostly(DIGITS) if n not in dates]:
        yield (
            numbers,
            f"numbers as text {said(numbers, DIGITS)}: write them with a decimal point and "
            "without other signs, and what is missing as an empty field",
        )
    rest = (n for n in texts if n not in {*dates, *numbers})
    if many := [n for n in rest if len(texts[n]) > MOST_TEXTS]:
        names = listed([str(columns[n].name) for n in many])
        yield many, f"more than {MOST_TEXTS} different texts: leave {names} out by --ignore"


def _from_arrays(file: Path, target: str, missing: Missing) -> _Samples:
    # np.load leaves the file of a damaged archive open.
    with _parsing("arrays"), file.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("it holds a single array without a name: write it by numpy.savez")
        arrays = {name: archive[name] for name in archive.files}
        if len(arrays) < len(archive.files):
            raise ValueError("two of its arrays have one name")
        if other := [name for name in arrays if not isinstance(arrays[name], np.ndarray)]:
            raise ValueError(f"{listed(other)} is no array: leave it out")
    if target not in arrays:
        cure = listed(list(arrays), target)
        raise ValueError(f"no array is called {target!r}: name the labels by --target, of {cure}")
    labels = arrays.pop(target)
    if "X" not in arrays and len(arrays) != 1:
        raise ValueError(f"which array has the inputs, {listed(list(arrays))}? Call it X")
    inputs = arrays["X"] if "X" in arrays else next(iter(arrays.values()))
    if labels.ndim != 1 or inputs.ndim < 2 or len(labels) != len(inputs):
        raise ValueError(
            f"{target} has the shape {labels.shape} and the inputs {inputs.shape}: they must be "
            "(n,) and (n, D)"
        )
    if inputs.dtype.kind not in "biuf":
        raise ValueError(f"inputs of the type {inputs.dtype} are no numbers: convert them")
    # C order: an image row after row.
    rows = validation.as_numbers(inputs, "X").reshape(len(inputs), math.prod(inputs.shape[1:]))
    return _checked(rows, labels, missing)


def _from_libsvm(file: Path, missing: Missing) -> _Samples:
    from sklearn.datasets import load_svmlight_file

    unpack: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix, open)
    with _parsing("libsvm's text"):
        with unpack(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                values = line.partition(b"#")[0]
                if b"_" in values:
                    raise ValueError("an underscore, which Python would drop within a number")
                if long := LONG.findall(values):
                    validation.as_numbers(long, f"line {number}")  # refuses what it rounds
        inputs, labels, queries = load_svmlight_file(str(file), query_id=True)
    if len(queries):
        raise ValueError(
            "it has query numbers (qid:) of a ranking, within which samples are compared, which no "
            "model here does: delete them"
        )
    if np.prod(inputs.shape, dtype=float) > MOST_VALUES:
        raise ValueError(f"as a dense matrix its shape {inputs.shape} is too large")
    return _checked(inputs.toarray(), labels, missing)


def _checked(
    inputs: Array,
    labels: NDArray[Any],
    missing: Missing,
    carried: Mapping[str, NDArray[Any]] | None = None,
) -> _Samples:
    """Refuse inputs that are empty or not finite, and labels that are no names or numbers."""
    gaps, carried = np.isnan(inputs), carried or {"row": np.arange(1, len(inputs) + 1)}
    if missing == "drop":
        unlabelled = np.isnan(labels) if labels.dtype.kind == "f" else False
        kept = ~(gaps.any(axis=1) | unlabelled)
        inputs, labels, gaps = inputs[kept], labels[kept], gaps[kept]
        carried = {name: values[kept] for name, values in carried.items()}
    types = {type(label) for label in labels} if labels.dtype.kind == "O" else set()
    if labels.dtype.kind not in "biufUSO" or not (types <= {str} or types <= {bool, int}):
        raise ValueError(
            "the labels are neither all text nor all numbers: convert them to one of the two"
        )
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"labels are bytes that are no UTF-8 ({error}): write them as text or as numbers"
            ) from error
    if labels.dtype.kind == "f" and not (np.abs(labels, dtype=np.float64) < LARGEST_WHOLE).all():
        raise ValueError(
            "labels are missing (NaN), infinite or too large: leave these samples out, or write "
            "the labels as text or whole numbers"
        )
    if not inputs.size:
        raise ValueError(f"there are no inputs: their shape is {inputs.shape}")
    allowed = gaps if missing == "median" else False
    if bad := np.argwhere(~(np.isfinite(inputs) | allowed)).tolist():
        raise ValueError(
            f"values are missing or infinite at {len(bad)} places, the first in sample "
            f"{bad[0][0]}, input {bad[0][1]} (counted from 0): fill them in, or leave these out "
            "(missing ones by --missing drop or median)"
        )
    return _Samples(inputs, labels, carried)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
