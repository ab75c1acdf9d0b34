"""Files of the user's own: every format gives the same data set, and every fault is named."""

import gzip
import os
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler

from implicit_bias.datasets import load_fashion_mnist, load_own
from implicit_bias.datasets.dataset import Dataset, Split, filled, split, standardized
from implicit_bias.datasets.own import find_class, two_classes
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data

RNG = np.random.default_rng(0)
X = RNG.integers(-5, 5, size=(12, 3)) / 4
KINDS = np.array(["Cat", "dog", "emu"] * 4)
NUMBERS = np.arange(12) % 3


def written(folder: Path, kind: str) -> tuple[Path, str | None]:
    """Write the samples in a format, and return the file and its target."""
    file = folder / f"animals{kind}"
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table.insert(1, "kind", NUMBERS)
    match kind:
        case ".csv" | ".csv.gz":
            table.to_csv(file, index=False)
        case ".tsv":
            table.to_csv(file, index=False, sep="\t")
        case ".parquet":
            table.to_parquet(file, index=False)
        case ".npz":
            np.savez(file, kind=NUMBERS, inputs=X.reshape(12, 3, 1))
        case ".svm":
            dump_svmlight_file(X, NUMBERS, str(file), zero_based=False)
            return file, None
    return file, "kind"


@pytest.mark.parametrize("kind", [".csv", ".csv.gz", ".tsv", ".parquet", ".npz", ".svm"])
def test_every_format_gives_the_same_samples(kind: str, tmp_path: Path) -> None:
    data = load_own(*written(tmp_path, kind), positive=[1], negative=["0"])
    kept = NUMBERS != 2
    np.testing.assert_array_equal(data.X, np.column_stack([X, np.ones(12)])[kept])
    np.testing.assert_array_equal(data.y, np.where(NUMBERS == 1, 1, -1)[kept])
    assert data.class_names == ("0", "1")
    assert data.has_constant


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("positive", [None, ["b"], ["b", "A"]])
@pytest.mark.parametrize("negative", [None, ["c"]])
def test_sides_by_brute_force(
    n_classes: int, positive: list[str] | None, negative: list[str] | None
) -> None:
    names, numbers = "Abcde"[:n_classes], RNG.integers(n_classes, size=30)
    if positive is None and negative is None and n_classes > 2:
        with pytest.raises(ValueError, match="--positive"):
            two_classes(names, numbers, positive, negative)
        return
    if negative and n_classes == 2:
        with pytest.raises(ValueError, match="no class is called"):
            two_classes(names, numbers, positive, negative)
        return
    if positive == ["b", "A"] and n_classes == 2:
        with pytest.raises(ValueError, match="other side"):
            two_classes(names, numbers, positive, negative)
        return
    signs, _ = two_classes(names, numbers, positive, negative)
    for sign, number in zip(signs, numbers, strict=True):
        name = names[number]
        is_plus = name in positive if positive else (name not in (negative or ["A"]))
        is_minus = name in negative if negative else not is_plus
        assert sign == (1 if is_plus else -1 if is_minus else 0)


def test_names_of_classes() -> None:
    assert find_class("DOG", ["cat", "dog"]) == 1
    assert find_class("Dog", ["dog", "Dog"]) == 1
    with pytest.raises(ValueError, match="no class"):
        find_class("DOG", ["dog", "Dog"])


TABLE = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=KINDS)


@pytest.mark.parametrize(
    ("table", "target", "message"),
    [
        (TABLE, "kinds", "'kinds': there are kind"),
        (TABLE, None, "--target"),
        (TABLE, "kind", "3 classes"),
        (TABLE.assign(a=TABLE["a"].where(TABLE["a"] > 0)), "kind", r"missing in a \("),
        (TABLE.assign(kind=TABLE["kind"].where(TABLE["a"] > 0)), "kind", r"missing in kind \("),
        (TABLE.assign(city="Bonn"), "kind", "text or dates: city"),
        (TABLE.assign(a=np.inf), "kind", "infinite at 12 places"),
        (TABLE[["kind"]], "kind", "no inputs"),
        (TABLE[["a", "kind"]][:0], "kind", "no inputs"),
        (TABLE[TABLE["kind"] == "dog"], "kind", "one class only, dog"),
    ],
)
def test_faults_of_tables_are_named(
    table: pd.DataFrame, target: str | None, message: str, tmp_path: Path
) -> None:
    table.to_csv(tmp_path / "own.csv", index=False)
    with pytest.raises(ValueError, match=message):
        load_own(tmp_path / "own.csv", target)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,kind\n1,2,3,x\n4,5,6,y\n", "line 2 has more fields"),
        ("a,b,kind\n1,2,3,4,x\n4,5,6,7,y\n", "line 2 has more fields"),
        ("a,b,kind\n1,2,3,x\n4,5,y\n", "line 2 has more fields"),
        ("a,b,kind\n1,2,x\n4,5,6,y\n", "line 3"),
        ("a,b,kind\n1,2,x\n4,5\n", r"kind \(1, the first in row 2"),
        ("a,kind,b,kind\n1,x,2,y\n3,y,4,x\n", "several columns are called 'kind'"),
        ("a,kind,b,kind \n1,x,2,y\n3,y,4,x\n", "several columns are called 'kind'"),
        (",a,kind\n0,1,x\n1,2,y\n", "number 1. Name them"),
        ("Unnamed: 0,a,kind\n0,1,x\n1,2,y\n", "without a name"),
        ("a;b;kind\n1;2;x\n3;4;y\n", "separated by commas"),
        ("a;b;kind\n1,5;2,5;x\n3,5;4,5;y\n", "more fields"),
        ("a\tb\tkind\n1\t2\tx\n3\t4\ty\n", "separated by commas"),
        ("sep=;\na;kind\n1;x\n2;y\n", "sep="),
        ("sep=,\na,kind\n1,x\n2,y\n", "sep="),
        ('a,kind\n"1,5",x\n"2,5",y\n', "text or dates: a"),
        ('a,kind\n"1,500",x\n"2,500",y\n', "text or dates: a"),
        ('a,kind\n1,"x\n2,y"\n3,z\n', "quote not closed"),
        ('a,kind\n1,"x\n2,y\n', "EOF inside string"),
        ("a,kind\n1,x\0\n2,y\n", "no name of a class"),
        ("a,kind\n1,\n2,y\n", "missing in kind"),
        ("a,kind\n1,inf\n2,0.5\n", "infinite"),
        ("a,kind\n1,9007199254740993.0\n2,9007199254740992.0\n", "too large"),
    ],
)
def test_tables_that_could_be_misread_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        load_own(tmp_path / "own.csv", "kind")
    assert "own.csv" in str(raised.value)


def test_a_refusal_names_all_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,place,b,kind\n1,x,,u\n2,y,3,v\n")
    with pytest.raises(ValueError, match="'king'.*missing in b.*place, kind"):
        load_own(tmp_path / "own.csv", "king")
    with pytest.raises(ValueError, match=r"missing in b.*dates: place\."):
        load_own(tmp_path / "own.csv", "kind")


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa,b,kind\n1,2.5,x\n3,4,y\n",
        '\ufeff"a","b","kind"\r\n"1","2.5","x"\r\n"3","4","y"\r\n',
        "a, b, kind \n1, 2.5,x\n\n 3,4 ,y\n",
        "a,b,kind,\n1,2.5,x,\n3,4,y,\n".replace("kind,", "kind"),  # a comma more in each row
        "a,a,kind\n1,2.5,x\n3,4,y",
        '"a\nb",b,kind\n1,2.5,x\n3,4,y\n',
    ],
)
def test_tables_that_are_read_right(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(text.encode())
    data = load_own(tmp_path / "own.csv", "kind")
    assert (data.X[:, :2].tolist(), data.y.tolist()) == ([[1, 2.5], [3, 4]], [-1, 1])


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".npz", ".svm"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_damaged_files_are_named(kind: str, packed: str, tmp_path: Path) -> None:
    """Cut, not gzipped, not text, or a folder."""
    file = tmp_path / f"own{kind}{packed}"
    table = pd.DataFrame(RNG.standard_normal((300, 4))).to_csv(index=False).encode()
    for content in (gzip.compress(table)[:-30], table, b"\xff\xfe\0" * 9, b"PAR1junkPAR1", b""):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=re.escape(str(file))):
            load_own(file, None if kind == ".svm" else "kind")


def test_white_space_makes_no_class(tmp_path: Path) -> None:
    kinds = ["cat", "dog ", " cat", "dog", "cat\t"]
    table = pd.DataFrame({"a": np.arange(5.0), "kind": kinds})
    table.to_csv(tmp_path / "own.csv", index=False)
    table.to_parquet(tmp_path / "own.parquet")
    np.savez(tmp_path / "own.npz", X=table[["a"]], kind=kinds)
    for file in ("own.csv", "own.parquet", "own.npz"):
        data = load_own(tmp_path / file, "kind")
        assert (data.class_names, data.y.tolist()) == (("cat", "dog"), [-1, 1, -1, 1, -1])


def test_labels_of_two_types_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.parquet"
    for kinds in (pd.to_datetime(["2020-01-01", "2020-01-02"]), [b"x", b"y"]):
        pd.DataFrame({"a": [1.0, 2.0], "kind": kinds}).to_parquet(file)
        with pytest.raises(ValueError, match="neither"):
            load_own(file, "kind")
    np.savez(tmp_path / "own.npz", X=np.eye(2), y=np.array([b"cat", b"dog"]))
    assert load_own(tmp_path / "own.npz").class_names == ("cat", "dog")
    many = "\n".join(["a,kind", *(f"{n},{n % 2}" for n in range(200_000)), "1,x"])
    (tmp_path / "own.csv").write_text(many)
    assert load_own(tmp_path / "own.csv", "kind", classes=["all"]).class_names == ("0", "1", "x")


def test_fractions_are_no_classes(tmp_path: Path) -> None:
    pd.DataFrame({"x": np.arange(50), "price": np.arange(50) / 7}).to_csv(
        tmp_path / "own.csv", index=False
    )
    with pytest.raises(ValueError, match="fractions"):
        load_own(tmp_path / "own.csv", "price")


@pytest.mark.parametrize(
    ("arrays", "target", "message"),
    [
        ({"X": X, "z": NUMBERS}, None, "no array is called 'y'"),
        ({"a": X, "b": X, "y": NUMBERS}, None, "Call it X"),
        ({"X": X[:5], "y": NUMBERS}, None, "shape"),
        ({"X": X, "y": np.full(12, np.nan)}, None, "labels are missing"),
        ({"X": X.astype(str), "y": NUMBERS}, None, "no numbers"),
        ({"X": X, "y": np.array([{}] * 12)}, None, "cannot be read"),
    ],
)
def test_faults_of_arrays_are_named(
    arrays: dict[str, Any], target: str | None, message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_own(tmp_path / "own.npz", target, positive=[1])


def test_faults_of_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("1.5,2,0\n2,3,1\n")
    with pytest.raises(ValueError, match="first line"):
        load_own(tmp_path / "own.csv", "y")
    (tmp_path / "own.xlsx").write_text("")
    with pytest.raises(ValueError, match="ending"):
        load_own(tmp_path / "own.xlsx", "y")
    (tmp_path / "own.svm").write_text("no numbers here\n")
    with pytest.raises(ValueError, match="libsvm"):
        load_own(tmp_path / "own.svm")
    with pytest.raises(ValueError, match="target"):
        load_own(tmp_path / "own.svm", "y")
    with pytest.raises(FileNotFoundError, match="absent"):
        load_own(tmp_path / "absent.csv", "y")


def test_labels_that_are_long_integers_stay_apart(tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    names = ("10000000000001", "10000000000002", "10000000000003")
    file.write_text("a,kind\n" + "".join(f"{i},{name}\n" for i, name in enumerate(names)))
    data = load_own(file, "kind", classes=["all"])
    assert data.class_names == names
    assert load_own(file, "kind", positive=[names[2]]).y.tolist() == [-1.0, -1.0, 1.0]


def test_archives_that_are_none_are_named(tmp_path: Path) -> None:
    whole, file = tmp_path / "whole.npz", tmp_path / "broken.npz"
    np.savez(whole, X=np.eye(2), y=np.arange(2))
    single = tmp_path / "single.npy"
    np.save(single, np.eye(2))
    other = tmp_path / "other.npz"
    other.write_bytes(whole.read_bytes())
    with ZipFile(other, "a") as archive:
        archive.writestr("notes", "no array")
    pieces = (whole.read_bytes()[:-40], b"PK\x03\x04junk", single.read_bytes())
    for content in (*pieces, other.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="arrays"):
            load_own(file)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    file = tmp_path / "own.npz"
    np.savez(file, X=np.eye(2), y=np.array(["é".encode(), b"e"]))
    assert load_own(file).class_names == ("e", "é")
    np.savez(file, X=np.eye(2), y=np.array([b"\xe9", b"e"]))
    with pytest.raises(ValueError, match="UTF-8"):
        load_own(file)


def test_an_array_that_claims_more_than_memory_holds(tmp_path: Path) -> None:
    file, head = tmp_path / "own.npz", BytesIO()
    claim: Any = {"descr": "<f8", "fortran_order": False, "shape": (10**15, 1000)}
    np.lib.format.write_array_header_1_0(head, claim)
    with ZipFile(file, "w") as archive:
        archive.writestr("X.npy", head.getvalue())
    with pytest.raises((MemoryError, ValueError), match="own.npz"):
        load_own(file)


PASSENGERS = """name,age,port,fare,kind
Ann,22,S,7.25,yes
Bob,38,C,71.3,no
Cy,,S,8.05,no
Di,35,,53.1,yes
Ed,54,Q,51.9,no
Flo,27,S,11.1,yes
"""


def test_text_is_encoded_and_gaps_are_filled_by_training_samples(tmp_path: Path) -> None:
    file = tmp_path / "passengers.csv"
    file.write_text(PASSENGERS)
    data = load_own(file, "kind", encode=True, missing="median", ignore=["name"])
    ports = [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]
    np.testing.assert_array_equal(data.X[:, 1:5], ports)  # C, Q, S, and none
    assert not data.complete
    parts = Split(data.take([0, 1, 2, 3]), data.take([4, 5]))
    train = filled(parts).train
    assert train.complete
    assert train.X[:, 0].tolist() == [22, 38, 35, 35]
    left = load_own(file, "kind", encode=True, missing="drop", ignore=["name"])
    assert left.X[:, 0].tolist() == [22, 38, 54, 27]
    assert left.n_features == 1 + 3 + 1 + 1
    np.savez(tmp_path / "own.npz", X=[[1.0], [np.nan], [3.0]], y=[0.0, 1.0, 1.0])
    assert load_own(tmp_path / "own.npz", missing="drop").X[:, 0].tolist() == [1, 3]
    assert np.isnan(load_own(tmp_path / "own.npz", missing="median").X[1, 0])


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        (["1,5", "2,5", "3"], {"encode": True}, "'1,5'|'2,5'"),
        (["1", "?", "3"], {"encode": True}, r"'\?'"),
        (["5 %", "7 %", "x"], {"encode": True}, "numbers as text"),
        ([f"id {n}" for n in range(101)], {"encode": True}, "101|100 different.*--ignore"),
        (["", "", ""], {"missing": "drop"}, "no value at all"),
        (["1", "2", "3"], {"ignore": ["ax"]}, "ax, which is no column"),
        (["1", "2", "3"], {"ignore": ["kind"]}, "target"),
        (["1", "2", "3"], {"missing": "mean"}, "missing"),
        (["1", "2", "3"], {"ignore": "a"}, "list"),
    ],
)
def test_columns_that_would_be_misread_are_refused(
    column: list[str], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    kinds = ["x", "y", *["x"] * (len(column) - 2)]
    pd.DataFrame({"a": column, "b": 1.5, "kind": kinds}).to_csv(tmp_path / "own.csv", index=False)
    with pytest.raises((ValueError, TypeError), match=message):
        load_own(tmp_path / "own.csv", "kind", **options)


def test_a_label_is_never_filled_in(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,kind\n1,x\n2,\n3,y\n")
    with pytest.raises(ValueError, match="labels are missing"):
        load_own(tmp_path / "own.csv", "kind", missing="median")
    assert len(load_own(tmp_path / "own.csv", "kind", missing="drop")) == 2


def test_what_is_no_label_or_number_is_named(tmp_path: Path) -> None:
    svm, table = tmp_path / "a.svm", tmp_path / "a.parquet"
    for line, word in (("nan 1:1", "missing"), ("1 99999999999:1", "libsvm")):
        svm.write_text(f"{line}\n-1 1:2\n")
        with pytest.raises(ValueError, match=word):
            load_own(svm)
    waits = pd.to_timedelta([1, 2], unit="s")
    pd.DataFrame({"wait": waits, "kind": ["x", "y"]}).to_parquet(table)
    with pytest.raises(ValueError, match="not numbers"):
        load_own(table, "kind")
    for given in ("positive", "negative", "classes"):
        options: dict[str, Any] = {given: "xy"}
        with pytest.raises(TypeError, match=given):
            load_own(table, "kind", **options)


def test_a_constant_that_is_there_is_not_appended_again(tmp_path: Path) -> None:
    TABLE.assign(one=1.0, kind=NUMBERS % 2).to_csv(tmp_path / "own.csv", index=False)
    assert load_own(tmp_path / "own.csv", "kind").n_features == 4


def test_standardized_by_training_samples_alone(tmp_path: Path) -> None:
    file, target = written(tmp_path, ".csv")
    config = RunConfig(data=str(file), target=target, positive=("1",), train_size=8)
    raw = load_data(RunConfig(**{**vars(config), "standardize": False})).parts
    scaler = StandardScaler().fit(raw.train.X[:, :-1])
    scaled = load_data(config).parts
    for part, other in ((raw.train, scaled.train), (raw.validation, scaled.validation)):
        np.testing.assert_allclose(other.X[:, :-1], scaler.transform(part.X[:, :-1]))
        assert (other.X[:, -1] == 1).all()
    np.testing.assert_allclose(scaled.train.X[:, :-1].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.train.X[:, :-1].std(axis=0), 1)
    flat = Dataset("flat", np.ones((4, 2)), np.array([1.0, -1, 1, -1]), ("a", "b"))
    assert not standardized(Split(flat, flat)).train.X[:, 0].any()
    assert len(split(flat, 3).train) == 3


@pytest.mark.slow
@pytest.mark.skipif("IMPLICIT_BIAS_DATA" not in os.environ, reason="needs Fashion-MNIST")
def test_garments_by_name() -> None:
    data = load_fashion_mnist(subset="test", positive=["sneaker"])
    assert data.class_names[1] == "Sneaker"
    assert int((data.y == 1).sum()) == 1000
    assert len(data) == 10_000
    pair = load_fashion_mnist(subset="test", positive=["bag"], negative=["Ankle boot"])
    assert len(pair) == 2000


@pytest.mark.parametrize(
    "options",
    [
        {"target": "y"},
        {"encode": True},
        {"missing": "drop"},
        {"ignore": ("id",)},
        {"data": "a.csv", "dataset": "moons"},
        {"dataset": "mnist", "protocol": "lippl2022", "standardize": True},
    ],
)
def test_contradictory_choices_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"data|--data"):
        RunConfig(**options)


def test_many_classes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "beasts.csv"
    file.write_text("legs,kind\n6,bee\n4,cow\n2,owl\n4,Cat\n6,bee\n")
    beasts = load_own(file, "kind", classes=["all"])
    assert beasts.class_names == ("Cat", "bee", "cow", "owl")
    assert beasts.y.tolist() == [1, 2, 3, 0, 1]
    some = load_own(file, "kind", classes=["owl", "cat", "bee"])
    assert some.class_names == ("Cat", "bee", "owl")
    assert some.y.tolist() == [1, 2, 0, 1]
    assert some.X[:, 0].tolist() == [6, 2, 4, 6]
    with pytest.raises(ValueError, match="classes"):
        load_own(file, "kind", classes=["bee"])
    with pytest.raises(ValueError, match="apart"):
        load_own(file, "kind", classes=["all"], positive=["bee"])
