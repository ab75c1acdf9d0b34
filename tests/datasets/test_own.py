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
from implicit_bias.datasets.labels import find_class, listed, two_classes
from implicit_bias.datasets.own import read_table
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from modules import known

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
    refusals = {
        "--positive": not positive and not negative and n_classes > 2,
        "no class is called": negative and n_classes == 2,
        "other side": positive == ["b", "A"] and n_classes == 2,
    }
    if said := next(filter(refusals.get, refusals), ""):
        with pytest.raises(ValueError, match=said):
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
    with pytest.raises(ValueError, match=r"are good, bad \(did you mean good\?\)"):
        find_class("God", ["bad", "good"])
    assert listed(["", "a"]) == ", a"


TABLE = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=KINDS)


def put(folder: Path, content: Any, suffix: str = ".csv") -> Path:
    """Write text, bytes, a table or an archive of arrays into a file."""
    file = folder / f"own{suffix}"
    if isinstance(content, str):
        file.write_text(content)
    elif isinstance(content, bytes):
        file.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(file, **content)
    elif suffix == ".parquet":
        content.to_parquet(file)
    else:
        content.to_csv(file, index=False)
    return file


def column(values: list[str]) -> pd.DataFrame:
    kinds = ["x", "y", *["x"] * (len(values) - 2)]
    return pd.DataFrame({"a": values, "b": 1.5, "kind": kinds})


def days(kinds: Any) -> pd.DataFrame:
    return pd.DataFrame({"a": [1.0, 2.0], "kind": kinds})


def saved(**arrays: Any) -> bytes:
    file = BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def with_a_note(archive: bytes) -> bytes:
    file = BytesIO(archive)
    with ZipFile(file, "a") as opened:
        opened.writestr("notes", "no array")
    return file.getvalue()


def huge() -> bytes:
    """Claim more than memory holds."""
    file, head = BytesIO(), BytesIO()
    claim: Any = {"descr": "<f8", "fortran_order": False, "shape": (10**15, 1000)}
    np.lib.format.write_array_header_1_0(head, claim)
    with ZipFile(file, "w") as archive:
        archive.writestr("X.npy", head.getvalue())
    return file.getvalue()


def single() -> bytes:
    file = BytesIO()
    np.save(file, np.eye(2))
    return file.getvalue()


WHOLE = saved(X=np.eye(2), y=np.arange(2))
TIMES = pd.DataFrame({"wait": pd.to_timedelta([1, 2], unit="s"), "kind": ["x", "y"]})
# Contents that have a target called kind, and what is said of them.
MISREAD = [
    ("a,b,kind\n1,2,3,x\n4,5,6,y\n", "line 2 has more fields"),
    ("a,b,kind\n1,2,3,4,x\n4,5,6,7,y\n", "line 2 has more fields"),
    ("a,b,kind\n1,2,3,x\n4,5,y\n", "line 2 has more fields"),
    ("a,b,kind\n1,2,x\n4,5,6,y\n", "line 3"),
    ("a,b,kind\n1,2,x\n4,5\n", r"kind \(1, the first in row 2"),
    ("a,kind,b,kind\n1,x,2,y\n3,y,4,x\n", "several columns are called 'kind'"),
    ("a,kind,b,kind \n1,x,2,y\n3,y,4,x\n", "several columns are called 'kind'"),
    (",a,kind\n0,1,x\n1,2,y\n", "number 1. Name them"),
    ("Unnamed: 0,a,kind\n0,1,x\n1,2,y\n", "without a name"),
    ("a;b;kind\n1;2;x\n3;4;y\n", "by semicolons"),
    ("a;b;kind\n1,5;2,5;x\n3,5;4,5;y\n", "by semicolons"),
    ("a\tb\tkind\n1\t2\tx\n3\t4\ty\n", "by tabs"),
    ("sep=;\na;kind\n1;x\n2;y\n", "sep="),
    ("sep=,\na,kind\n1,x\n2,y\n", "sep="),
    ('a,kind\n"1,5",x\n"2,5",y\n', "numbers as text such as '1,5' in a"),
    ('a,kind\n"1,500",x\n"2,500",y\n', "numbers as text.* in a"),
    ('a,kind\n1,"x\n2,y"\n3,z\n', "quote not closed"),
    ('a,kind\n1,"x\n2,y\n', "EOF inside string"),
    ("a,kind\n1,x\0\n2,y\n", "no name of a class"),
    ("a,kind\n1,\n2,y\n", "missing in kind"),
    ("a,kind\n1,inf\n2,0.5\n", "infinite"),
    ("a,kind\n9007199254740993,x\n9007199254740992,y\n", "a has whole numbers beyond"),
    ("a,kind\n9007199254740993,x\n0.5,y\n", "a has whole numbers beyond"),
    ("a,kind\n1,9007199254740993.0\n2,9007199254740992.0\n", "too large"),
    ("a,kind\n1,01\n2,1\n3,2\n", "1 and 01 are one number"),
    ("a,kind\n1,-7\n2,-007\n3,2\n", "-7 and -007 are one number"),
    ("a,kind\n" + "".join(f"{n},{n / 7}\n" for n in range(50)), "fractions"),
    ("a,place,b,kind\n1,x,,u\n2,y,3,v\n", r"missing in b.*dates: place\."),
    ("1.5,2,0\n2,3,1\n", "first line"),
    (TABLE, "3 classes"),
    (TABLE.assign(a=TABLE["a"].where(TABLE["a"] > 0)), r"missing in a \("),
    (TABLE.assign(kind=TABLE["kind"].where(TABLE["a"] > 0)), r"missing in kind \("),
    (TABLE.assign(city="Bonn"), "text or dates: city"),
    (TABLE.assign(a=np.inf), "infinite at 12 places"),
    (TABLE[["kind"]], "no inputs"),
    (TABLE[["a", "kind"]][:0], "no inputs"),
    (TABLE[TABLE["kind"] == "dog"], "one class only, dog"),
]


@pytest.mark.parametrize(
    ("content", "suffix", "options", "message"),
    [
        *((content, ".csv", {"target": "kind"}, message) for content, message in MISREAD),
        (TABLE, ".csv", {"target": "kinds"}, "'kinds': there are kind"),
        (TABLE, ".csv", {}, "--target"),
        (
            "a,place,b,kind\n1,x,,u\n2,y,3,v\n",
            *(".csv", {"target": "king"}, "'king'.*missing in b.*place, kind"),
        ),
        *(
            (column(values), ".csv", {"target": "kind", **options}, message)
            for values, options, message in (
                (["1,5", "2,5", "3"], {"encode": True}, "'1,5'|'2,5'"),
                (["1", "?", "3"], {"encode": True}, r"'\?'"),
                (["5 %", "7 %", "x"], {"encode": True}, "numbers as text"),
                ([f"id {n}" for n in range(101)], {"encode": True}, "101|100 different.*--ignore"),
                (["", "", ""], {"missing": "drop"}, "no value at all"),
                ([f"id {n}" for n in range(20)], {}, "a has as many values as rows.*--id a"),
                ([f"2020-02-{n}" for n in range(10, 30)], {}, "text or dates: a.*days"),
                ([f"{n}/2/2020" for n in range(1, 29)], {"encode": True}, "such as '1/2/2020'"),
                ([f"{n},5" for n in range(20)], {}, "numbers as text.* in a"),
                ([f"{n}" for n in range(19)] + ["x"], {"id": ["b"]}, "such as 'x' in a"),
                (["1", "2", "3"], {"ignore": ["ax"]}, "ax, which is no column"),
                (["1", "2", "3"], {"id": ["ax"]}, "ax, which is no column"),
                (["1", "2", "3"], {"id": ["kind"]}, "target"),
                (["1", "2", "3"], {"id": "a"}, "list"),
                (["1", "2", "3"], {"ignore": ["kind"]}, "target"),
                (["1", "2", "3"], {"missing": "mean"}, "missing"),
                (["1", "2", "3"], {"ignore": "a"}, "list"),
                (["1", "2", "3"], {"positive": "xy"}, "positive"),
                (["1", "2", "3"], {"negative": "xy"}, "negative"),
                (["1", "2", "3"], {"classes": "xy"}, "classes"),
                (["1", "2", "3"], {"classes": np.array(1)}, "classes"),
                ([f"{2**53 + 1}", "2", ""], {"missing": "drop"}, "a has whole numbers beyond"),
                ([f"{2**53 + 1}", "2", ""], {"missing": "median"}, "a has whole numbers beyond"),
            )
        ),
        *(
            (arrays, ".npz", {"positive": [1]}, message)
            for arrays, message in (
                ({"X": X, "z": NUMBERS}, "no array is called 'y'"),
                ({"a": X, "b": X, "y": NUMBERS}, "Call it X"),
                ({"X": X[:5], "y": NUMBERS}, "shape"),
                ({"X": X, "y": np.full(12, np.nan)}, "labels are missing"),
                ({"X": X.astype(str), "y": NUMBERS}, "no numbers"),
                ({"X": np.full((12, 2), 2**63 + 1, np.uint64), "y": NUMBERS}, "whole numbers"),
                ({"X": X, "y": np.array([{}] * 12)}, "cannot be read"),
            )
        ),
        *(
            (content, ".npz", {}, message)
            for content, message in (
                (WHOLE[:-40], "arrays"),
                (b"PK\x03\x04junk", "arrays"),
                (single(), "arrays"),
                (with_a_note(WHOLE), "arrays"),
                (saved(X=np.eye(2), y=np.array([b"\xe9", b"e"])), "UTF-8"),
                (huge(), "own.npz"),
            )
        ),
        ("", ".xlsx", {"target": "y"}, "ending"),
        ("no numbers here\n", ".svm", {}, "libsvm"),
        ("no numbers here\n", ".svm", {"target": "y"}, "target"),
        ("nan 1:1\n-1 1:2\n", ".svm", {}, "missing"),
        ("1 qid:1 1:1\n-1 qid:2 1:2\n", ".svm", {}, "qid"),
        ("1 99999999999:1\n-1 1:2\n", ".svm", {}, "libsvm"),
        ("1 1:9007199254740993\n-1 1:0.5\n", ".svm", {}, "whole numbers beyond"),
        *((f"{n}\n-1 1:2\n", ".svm", {}, "underscore") for n in ("1_0 1:1", "1 1_0:1", "1 1:1_0")),
        *(
            (table, ".parquet", {"target": "kind"}, message)
            for table, message in (
                (TIMES, "not numbers"),
                (days(pd.to_datetime(["2020-01-01", "2020-01-02"])), "neither"),
                (days([b"x", b"y"]), "neither"),
            )
        ),
    ],
)
def test_what_could_be_misread_is_refused(
    content: Any, suffix: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError, MemoryError), match=message) as raised:
        load_own(put(tmp_path, content, suffix), **options)
    assert not isinstance(content, str) or suffix != ".csv" or "own.csv" in str(raised.value)


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
    data = load_own(put(tmp_path, text.encode()), "kind")
    assert (data.X[:, :2].tolist(), data.y.tolist()) == ([[1, 2.5], [3, 4]], [-1, 1])


@pytest.mark.parametrize("name", ["petal length", "a|b", "length, cm"])
def test_a_table_of_one_column_is_read(name: str, tmp_path: Path) -> None:
    """One to predict has no target beside its only input."""
    assert [*read_table(put(tmp_path, f'"{name}"\n1\n2\n'), "kind")] == [name]


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


def test_whole_numbers_stay_whole_where_some_are_missing(tmp_path: Path) -> None:
    text = f"a,kind\n1,{2**53 + 1}\n2,{2**53}\n3,\n4,{2**53 + 1}\n"
    data = load_own(put(tmp_path, text.encode()), "kind", missing="drop")
    assert data.class_names == (f"{2**53}", f"{2**53 + 1}")
    assert data.y.tolist() == [1, -1, 1]


def test_a_class_is_found_as_it_is_written(tmp_path: Path) -> None:
    """Text keeps its zeros; of numbers, the zeros before them are none."""
    texts = put(tmp_path, {"X": np.ones((3, 1)), "kind": ["01", "1", "2"]}, ".npz")
    numbers = put(tmp_path, b"a,kind\n1,01\n2,02\n")
    for file, asked, y in ((texts, "01", [1, -1, -1]), (texts, 1, [-1, 1, -1])):
        assert load_own(file, "kind", positive=[asked]).y.tolist() == y
    assert load_own(numbers, "kind", positive=["01"]).y.tolist() == [1, -1]


def test_what_is_not_seen_makes_no_class(tmp_path: Path) -> None:
    kinds = ["caf\u00e9", "cafe\u0301", "tea\u200b", "\ufefftea"]
    named = put(tmp_path, {"X": np.ones((4, 1)), "kind": kinds}, ".npz")
    data = load_own(named, "kind", positive=["cafe\u0301"])
    assert (data.class_names, data.y.tolist()) == (("tea", "caf\u00e9"), [1, 1, -1, -1])
    numbered = put(tmp_path, {"X": np.ones((4, 1)), "kind": [-0.0, 0.0, 1.0, 1.0]}, ".npz")
    assert load_own(numbered, "kind").class_names == ("0", "1")


def test_white_space_makes_no_class(tmp_path: Path) -> None:
    kinds = ["cat", "dog ", " cat", "dog", "cat\t"]
    table = pd.DataFrame({"a": np.arange(5.0), "kind": kinds})
    arrays = {"X": table[["a"]], "kind": kinds}
    for content, suffix in ((table, ".csv"), (table, ".parquet"), (arrays, ".npz")):
        data = load_own(put(tmp_path, content, suffix), "kind")
        assert (data.class_names, data.y.tolist()) == (("cat", "dog"), [-1, 1, -1, 1, -1])


def test_labels_of_bytes_and_of_long_columns(tmp_path: Path) -> None:
    for labels, names in (([b"cat", b"dog"], ("cat", "dog")), (["é".encode(), b"e"], ("e", "é"))):
        arrays = {"X": np.eye(2), "y": np.array(labels)}
        assert load_own(put(tmp_path, arrays, ".npz")).class_names == names
    many = "\n".join(["a,kind", *(f"{n},{n % 2}" for n in range(200_000)), "1,x"])
    found = load_own(put(tmp_path, many), "kind", classes=["all"])
    assert found.class_names == ("0", "1", "x")


def test_labels_that_are_long_integers_stay_apart(tmp_path: Path) -> None:
    names = ("10000000000001", "10000000000002", "10000000000003")
    lines = "".join(f"{i},{name}\n" for i, name in enumerate(names))
    file = put(tmp_path, f"a,kind\n{lines}")
    assert load_own(file, "kind", classes=["all"]).class_names == names
    assert load_own(file, "kind", positive=[names[2]]).y.tolist() == [-1.0, -1.0, 1.0]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        load_own(tmp_path / "absent.csv", "y")


PASSENGERS = """name,age,port,fare,kind
Ann,22,S,7.25,yes
Bob,38,C,71.3,no
Cy,,S,8.05,no
Di,35,,53.1,yes
Ed,54,Q,51.9,no
Flo,27,S,11.1,yes
"""


def test_text_is_encoded_and_gaps_are_filled_by_training_samples(tmp_path: Path) -> None:
    file = put(tmp_path, PASSENGERS)
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
    gap = put(tmp_path, {"X": [[1.0], [np.nan], [3.0]], "y": [0.0, 1.0, 1.0]}, ".npz")
    assert load_own(gap, missing="drop").X[:, 0].tolist() == [1, 3]
    assert np.isnan(load_own(gap, missing="median").X[1, 0])


def test_a_label_is_never_filled_in(tmp_path: Path) -> None:
    file = put(tmp_path, "a,kind\n1,x\n2,\n3,y\n")
    with pytest.raises(ValueError, match="labels are missing"):
        load_own(file, "kind", missing="median")
    assert len(load_own(file, "kind", missing="drop")) == 2


def test_a_constant_that_is_there_is_not_appended_again(tmp_path: Path) -> None:
    file = put(tmp_path, TABLE.assign(one=1.0, kind=NUMBERS % 2))
    assert load_own(file, "kind").n_features == 4


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


def test_inputs_that_cannot_be_standardized(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": 1.0, "kind": ["x", "y"] * 6})
    assert load_data(RunConfig(data=str(put(tmp_path, table)), target="kind")).parts.train.X.all()
    huge = put(tmp_path, table.assign(a=1e200 * np.arange(12.0)))
    with pytest.raises(ValueError, match="overflow"):
        load_data(RunConfig(data=str(huge), target="kind"))


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
    ],
)
def test_contradictory_choices_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"data|--data"):
        RunConfig(**options)


def test_many_classes_of_a_file(tmp_path: Path) -> None:
    file = put(tmp_path, "legs,kind\n6,bee\n4,cow\n2,owl\n4,Cat\n6,bee\n")
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


# --- what is carried along, and the way to further rows --------------------------------------

CLIENTS = pd.DataFrame(
    {
        "number": [f"C-{n}" for n in range(30)],
        "age": RNG.integers(20, 60, 30).astype(float),
        "city": RNG.choice(["Bonn", "Kiel", " Ulm"], 30),
        "kind": np.tile(["good", "late", "bad"], 10),
    }
)


@pytest.mark.parametrize("missing", ["refuse", "drop", "median"])
@pytest.mark.parametrize("sides", [{"positive": ["bad"]}, {"classes": ["bad", "good"]}])
def test_each_sample_keeps_its_row_and_names(
    missing: Any, sides: dict[str, Any], tmp_path: Path
) -> None:
    table = CLIENTS.copy()
    if missing != "refuse":
        table.loc[[3, 8], "age"] = np.nan
    cleaning: dict[str, Any] = {"missing": missing, "encode": True, "id": ["number"]}
    data = load_own(put(tmp_path, table), "kind", **sides, **cleaning)
    rows = data.carried["row"]
    kept = table.iloc[rows - 1]
    assert (kept["number"] == data.carried["number"]).all()
    assert data.n_features == 1 + 3 + 1, "the names are no inputs"
    np.testing.assert_array_equal(data.X[:, 0], kept["age"])
    assert len(rows) == (30 if "positive" in sides else 20) - 2 * (missing == "drop")
    if "positive" in sides:
        assert (data.carried["label in the file"] == kept["kind"]).all()
    else:
        assert list(data.carried) == ["row", "number"]
    part = data.take([4, 0])
    assert part.carried["row"].tolist() == [rows[4], rows[0]]


def test_numbers_that_may_name_the_rows_are_inputs_with_a_warning(tmp_path: Path) -> None:
    numbered = CLIENTS[["age", "kind"]].assign(place=RNG.permutation(30))
    with pytest.warns(UserWarning, match="place has as many values as rows.*--id place"):
        assert load_own(put(tmp_path, numbered), "kind", classes=["all"]).n_features == 3


def test_a_preparation_does_to_rows_what_was_done_to_the_file(tmp_path: Path) -> None:
    """To the rows of training and validation, in any order of the columns."""
    table = CLIENTS.copy()
    table.loc[[3, 8], "age"] = np.nan
    table.loc[5, "city"] = None
    options: dict[str, Any] = {"encode": True, "missing": "median", "id": ("number",)}
    file = put(tmp_path, table)
    config = RunConfig(data=str(file), target="kind", classes=("all",), train_size=20, **options)
    parts = load_data(config).parts
    for part in (parts.train, parts.validation):
        made, raw = known(part.preparation), table.iloc[part.carried["row"] - 1]
        np.testing.assert_array_equal(made(raw), part.X)
        np.testing.assert_array_equal(made(raw[raw.columns[::-1]]), part.X)
        assert made.labels[part.y].tolist() == raw["kind"].tolist()
        with pytest.raises(ValueError, match="missing: city"):
            made(raw.drop(columns="city"))
        with pytest.raises(ValueError, match="frame"):
            made(part.X)
        with pytest.raises(ValueError, match="age is not a numeric array"):
            made(raw.assign(age="old"))
        with pytest.raises(ValueError, match="age has whole numbers beyond"):
            made(raw.assign(age=[2**53 + 1] * len(raw)))
        with pytest.raises(ValueError, match="first is row 1"):
            made(raw.assign(age=np.inf))
        with pytest.warns(UserWarning, match="city has the texts Rom"):
            unseen = made(raw.assign(city="Rom"))
        assert len(np.unique(unseen[:, 1:5], axis=0)) == 1


def test_dates_are_days_since_the_first_one_in_a_later_file_too(tmp_path: Path) -> None:
    table = pd.DataFrame({"since": ["2020-03-01", "2020-02-28 12:00", ""], "kind": list("xyx")})
    options: dict[str, Any] = {"encode": True, "missing": "median"}
    data = load_own(put(tmp_path, table), "kind", **options)
    np.testing.assert_array_equal(data.X[:, 0], [1.5, 0.0, np.nan])
    made, later = known(data.preparation), pd.DataFrame({"since": ["2021-02-28T00:00Z"]})
    assert made(later).tolist() == [[365.5, 1.0]]
    as_times = later.assign(since=pd.to_datetime(later["since"]))
    np.testing.assert_array_equal(made(as_times), made(later))
    with pytest.raises(ValueError, match="since holds no dates as 2020-01-31, but 'soon'$"):
        made(later.assign(since="soon"))


def test_all_that_is_wrong_with_columns_and_labels_is_said_at_once(tmp_path: Path) -> None:
    """Whether columns are encoded or not, in a sentence each."""
    names = [f"text {n}" for n in range(102)]
    columns = {"seen": "03.05.2022", "price": "1,5", "remark": names, "city": "Bonn"}
    table = pd.DataFrame({**columns, "day": "2020-01-31", "kind": [*"xyz", *99 * "x"]}).iloc[:-1]
    file = put(tmp_path, pd.concat([table, table.tail(1)]))
    said = r"such as '03.05.2022' in seen:.*'1,5' in price:.*leave remark out.*classes=\['all'\]"
    for encode in (False, True):
        with pytest.raises(ValueError, match=said) as raised:
            load_own(file, "kind", encode=encode)
        assert ("text or dates: city, day." in str(raised.value)) is not encode


def test_a_label_that_may_be_a_slip_is_asked_about(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": range(19), "kind": [*10 * ["stays"], *8 * ["goes"], "Stays"]})
    with pytest.warns(UserWarning, match="'Stays' is the label of 1 .*'stays' of 10"):
        assert len(load_own(put(tmp_path, table), "kind", classes=["all"]).class_names) == 3


def test_a_preparation_of_arrays_and_of_columns_of_one_name(tmp_path: Path) -> None:
    data = load_own(put(tmp_path, {"X": X, "y": NUMBERS}, ".npz"), classes=["all"])
    made = known(data.preparation)
    np.testing.assert_array_equal(made(X), data.X)
    assert made.labels.dtype.kind == "i", "as the file has them"
    twice = load_own(put(tmp_path, "a,a,kind\n1,2.5,x\n3,4,y\n"), "kind")
    raw = pd.DataFrame([[1, "x", 2.5], [3, "y", 4]], columns=["a", "kind", "a"])
    np.testing.assert_array_equal(known(twice.preparation)(raw), twice.X)


def test_what_is_carried_has_a_value_for_each_sample() -> None:
    with pytest.raises(ValueError, match="row"):
        Dataset("two", np.ones((2, 1)), np.array([1.0, -1.0]), ("a", "b"), carried={"row": X[0]})


@pytest.mark.parametrize("names", [["007", "7", "0100"], ["1.50", "1.5", "2"], ["1e5", "2", "3"]])
def test_names_of_rows_stay_as_they_are_written(tmp_path: Path, names: list[str]) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"{name},{n},{'ab'[n % 2]}" for n, name in enumerate(names)]
    file.write_text("\n".join(["key,x,y", *lines]))
    assert load_own(file, "y", id=["key"]).carried["key"].tolist() == names
