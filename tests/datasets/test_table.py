"""Tables of the user's own: read by pandas, and prepared by what the training rows have."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from implicit_bias.datasets import load_own
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data, rows_left_out

RNG = np.random.default_rng(0)
KINDS = np.array(["Cat", "dog", "emu"] * 10)
TABLE = pd.DataFrame(RNG.integers(-5, 5, size=(30, 3)) / 4, columns=["a", "b", "c"])
TABLE = TABLE.assign(kind=KINDS)


def put(folder: Path, content: str | pd.DataFrame, suffix: str = ".csv") -> Path:
    """Write text or a table into a file."""
    file = folder / f"own{suffix}"
    if isinstance(content, str):
        file.write_text(content, "utf-8")
    elif suffix == ".parquet":
        content.to_parquet(file)
    else:
        content.to_csv(file, index=False, sep="\t" if ".tsv" in suffix else ",")
    return file


# --- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_every_format_gives_the_same_rows(suffix: str, tmp_path: Path) -> None:
    table = load_own(put(tmp_path, TABLE, suffix), "kind", positive=["EMU"], negative=["Cat"])
    kept = KINDS != "dog"
    np.testing.assert_array_equal(table.inputs, TABLE[["a", "b", "c"]][kept])
    np.testing.assert_array_equal(table.samples.y, np.where(KINDS == "emu", 1, -1)[kept])
    assert table.samples.class_names == ("Cat", "emu")
    assert table.inputs.index.tolist() == (np.flatnonzero(kept) + 1).tolist()


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff"a","b","kind"\r\n"1","2.5","x"\r\n"3","4","y"\r\n',
        "a, b, kind\n1, 2.5, x\n\n 3,4,y\n",
        "a,b,kind\n1,2.5,x,\n3,4,y,\n",  # a comma more in each row
        "a,a,kind\n1,2.5,x\n3,4,y",
    ],
)
def test_tables_that_are_read_right(text: str, tmp_path: Path) -> None:
    table = load_own(put(tmp_path, text), "kind")
    assert table.inputs.to_numpy().tolist() == [[1, 2.5], [3, 4]]
    assert table.samples.y.tolist() == [-1, 1]
    assert table.samples.class_names == ("x", "y")


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Error tokenizing"):  # pandas' own words
        load_own(put(tmp_path, "a,b,kind\n1,2,x\n4,5,6,y\n"), "kind")
    with pytest.raises(ValueError, match="parquet"):
        load_own(put(tmp_path, "", ".npz"), "kind")
    with pytest.raises(OSError, match="absent"):
        load_own(tmp_path / "absent.csv", "kind")


@pytest.mark.parametrize(
    ("labels", "y", "names"),
    [
        ([2.0, 1.0, 1.0, np.nan], [1, -1, -1], ("1", "2")),
        ([True, False, True, None], [1, -1, 1], ("False", "True")),
        (pd.Categorical(["b", None, "a", "b"], categories=["b", "a"]), [1, -1, 1], ("a", "b")),
    ],
)
def test_labels_of_every_kind(
    labels: Any, y: list[int], names: tuple[str, str], tmp_path: Path
) -> None:
    table = pd.DataFrame({"a": [1.0, 2, 3, 4], "kind": labels})
    found = load_own(put(tmp_path, table, ".parquet"), "kind", missing="drop").samples
    assert (found.class_names, found.y.tolist()) == (names, y)


# --- preparation -----------------------------------------------------------------------------


def prepared_by_loops(
    train: pd.DataFrame, rows: pd.DataFrame, *, standardize: bool
) -> np.ndarray[Any, Any]:
    """Prepare rows as the head of the module says, column after column."""
    inputs = []
    for name in ("age", "debt"):
        known = [float(value) for value in train[name] if not pd.isna(value)]
        median = float(np.median(known))
        filled = [median if pd.isna(value) else float(value) for value in train[name]]
        values = [median if pd.isna(value) else float(value) for value in rows[name]]
        shift, scale = (np.mean(filled), np.std(filled)) if standardize else (0.0, 1.0)
        inputs.append([(value - shift) / scale for value in values])
    for name in ("city", "member"):
        texts = ["missing" if pd.isna(value) else str(value) for value in train[name]]
        shown = ["missing" if pd.isna(value) else str(value) for value in rows[name]]
        # The missing one comes last.
        for text in sorted(set(texts), key=lambda text: (text == "missing", text)):
            inputs.append([float(value == text) for value in shown])
    inputs.append([1.0] * len(rows))
    return np.array(inputs).T


CLIENTS = pd.DataFrame(
    {
        "number": [f"C-{n}" for n in range(60)],
        "city": RNG.choice(["Bonn", "Kiel", "Ulm"], 60),
        "age": RNG.integers(20, 60, 60).astype(float),
        "member": RNG.choice([True, False], 60),
        "kind": np.tile(["good", "late", "bad"], 20),
        "debt": RNG.integers(0, 99, 60) / 8,
    }
)
GAPS = CLIENTS.astype({"member": object})
GAPS.loc[RNG.choice(60, 20, replace=False), "age"] = np.nan
GAPS.loc[RNG.choice(60, 20, replace=False), "city"] = None
GAPS.loc[RNG.choice(60, 20, replace=False), "member"] = None
GAPS.loc[[5, 6], "debt"] = None


@pytest.mark.parametrize(("suffix", "standardize"), [(".csv", False), (".parquet", True)])
def test_inputs_by_loops(suffix: str, standardize: bool, tmp_path: Path) -> None:
    """Of training and validation rows, by what the training rows have alone."""
    table = load_own(
        put(tmp_path, GAPS, suffix), "kind", classes=["all"], id=["number"], missing="median"
    )
    parts = table.split(40, 20, standardize=standardize)
    assert table.text_columns == ["city", "member"]
    train = GAPS.loc[parts.train.carried["row"] - 1]
    for part in (parts.train, parts.validation):
        rows = GAPS.loc[part.carried["row"] - 1]
        expected = prepared_by_loops(train, rows, standardize=standardize)
        np.testing.assert_allclose(part.X, expected, rtol=1e-12, atol=1e-12)
        assert [part.names[label] for label in part.y] == rows["kind"].tolist()
        assert part.carried["number"].tolist() == rows["number"].tolist()
        assert part.has_constant
    assert set(parts.train.carried["row"]) | set(parts.validation.carried["row"]) == {*range(1, 61)}


def test_labels_that_share_a_class_are_carried_along(tmp_path: Path) -> None:
    table = load_own(put(tmp_path, CLIENTS), "kind", positive=["bad"], id=["number"])
    assert (table.samples.carried["label in the file"] == CLIENTS["kind"]).all()
    two = load_own(put(tmp_path, CLIENTS), "kind", classes=["good", "bad"], id=["number", "age"])
    assert list(two.samples.carried) == ["row", "number", "age"]
    expected = CLIENTS["number"][CLIENTS["kind"] != "late"]
    assert two.samples.carried["number"].tolist() == expected.tolist()


def test_values_that_no_training_row_has_are_zeros(tmp_path: Path) -> None:
    content = TABLE.assign(kind=KINDS == "dog", city=["Bonn", "Kiel"] * 15, n=range(30))
    plain = load_own(put(tmp_path, content), "kind").split(20)
    content.loc[int(plain.validation.carried["row"][2]) - 1, "city"] = "Rom"
    with pytest.warns(UserWarning, match="unknown categories"):
        parts = load_own(put(tmp_path, content), "kind").split(20)
    assert parts.validation.X[:, 4:6].sum(axis=1).tolist() == [1, 1, 0, 1, 1, 1]
    np.testing.assert_array_equal(parts.train.X, plain.train.X)


def test_columns_without_any_or_with_one_value_in_training(tmp_path: Path) -> None:
    """Become 0, and nothing is divided by 0."""
    content = TABLE.assign(kind=KINDS == "dog", one=3.0)
    train = load_own(put(tmp_path, content), "kind").split(20).train.carried["row"]
    content.loc[train - 1, "a"] = np.nan
    parts = load_own(put(tmp_path, content), "kind", missing="median").split(20)
    assert not parts.train.X[:, [0, 3]].any()
    assert not parts.validation.X[:, 3].any()


# --- rows that are left out ------------------------------------------------------------------


def test_rows_left_out_are_counted(tmp_path: Path) -> None:
    """Without a label (None is a missing value to pandas), and with another gap."""
    content = TABLE.assign(kind=["None", "x", "y"] * 10)
    content.loc[[0, 1, 2], "a"] = np.nan  # of which one lacks its label, too
    file = put(tmp_path, content)
    with pytest.raises(ValueError, match=r"in a \(3 rows\), kind \(10 rows\)"):
        load_own(file, "kind")
    dropped, filled = (load_own(file, "kind", missing=how) for how in ("drop", "median"))
    assert (dropped.n_rows, dropped.n_unlabelled, dropped.n_incomplete) == (30, 10, 2)
    assert (filled.n_rows, filled.n_unlabelled, filled.n_incomplete) == (30, 10, 0)
    assert len(filled.samples) == 20
    assert dropped.samples.carried["row"].tolist() == [k for k in range(4, 31) if k % 3 != 1]
    assert rows_left_out(dropped).startswith("12 of 30 rows: 10 without a label")
    assert "2 with another" in rows_left_out(dropped)
    whole = load_own(put(tmp_path, TABLE), "kind", classes=["all"])
    assert rows_left_out(whole) == ""
    one_class = put(tmp_path, content.assign(kind=["None", "x", "None"] * 10))
    with pytest.raises(ValueError, match="two classes .* x$"):
        load_own(one_class, "kind", missing="drop")


# --- by a configuration ----------------------------------------------------------------------


def test_a_configuration_prepares_its_file(tmp_path: Path) -> None:
    file = put(tmp_path, GAPS)
    options: dict[str, Any] = {"missing": "median", "id": ("number",), "train_size": 40}
    config = RunConfig(data=str(file), target="kind", positive=("bad",), **options)
    parts = load_data(config).parts
    raw = load_data(RunConfig(**{**vars(config), "standardize": False})).parts
    table = load_own(file, "kind", positive=["bad"], missing="median", id=["number"])
    np.testing.assert_array_equal(parts.train.X, table.split(40).train.X)
    np.testing.assert_array_equal(raw.train.X, table.split(40, standardize=False).train.X)
    assert len(load_data(RunConfig(**{**vars(config), "train_size": None})).parts.train) == 48


def test_options_that_name_no_column_are_named(tmp_path: Path) -> None:
    file = put(tmp_path, CLIENTS)
    with pytest.raises(ValueError, match="--target"):
        load_own(file)
    with pytest.raises(ValueError, match="did you mean kind.*--target"):
        load_own(file, "kinds")
    with pytest.raises(ValueError, match="did you mean number.*--id"):
        load_own(file, "kind", id=["nmber"])


def test_what_pandas_would_cut_short_is_refused(tmp_path: Path) -> None:
    longer = tmp_path / "longer.csv"
    longer.write_text("a,kind\n1,x,9\n2,y,8\n")
    whole = gzip.compress(b"a,kind\n" + b"1,x\n2,y\n" * 5000)
    half = tmp_path / "half.csv.gz"
    half.write_bytes(whole[: len(whole) // 2])
    for file in (longer, half):
        with pytest.raises(ValueError, match="damaged"):
            load_own(file, "kind")
