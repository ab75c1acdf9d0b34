"""Data sets: labels, scaling, the published split, and files that are missing or damaged."""

import gzip
import hashlib
import http.server
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from implicit_bias.base.options import DATASET_NAMES, TOY_KINDS, ToyKind
from implicit_bias.datasets import (
    DataError,
    Dataset,
    Split,
    files,
    load,
    make_toy,
    split,
    split_indices,
    standardized,
)
from implicit_bias.datasets.files import DATA_VARIABLE, KNOWN, download
from implicit_bias.datasets.images import GARMENT_NAMES, load_digits, load_fashion_mnist, load_mnist
from system import python

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TINY_DIGITS = np.array([5, 0, 4, 1, 9], dtype=np.uint8)
TINY_IMAGES = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3) * 8


def idx_bytes(values: NDArray[np.uint8]) -> bytes:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 0x08, values.ndim, *values.shape)
    return header + values.tobytes()


TINY_FILES = {IMAGES: idx_bytes(TINY_IMAGES), LABELS: idx_bytes(TINY_DIGITS)}


def write_files(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file, content in TINY_FILES.items():
        (folder / f"{file}.gz").write_bytes(gzip.compress(content))
    return folder


def toy_dataset(n: int = 10) -> Dataset:
    return make_toy("blobs", n)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an empty cache in place that knows two tiny files, and no mirror."""
    folder = tmp_path / "cache"
    folder.mkdir()
    checksums = {file: hashlib.sha256(content).hexdigest() for file, content in TINY_FILES.items()}
    monkeypatch.setattr(files, "KNOWN", {"mnist": {"mirrors": [], "sha256": checksums}})
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(files, "CHECKOUT", folder)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    return folder


@pytest.fixture
def mirror(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a folder on this machine, after a mirror that has no file at all."""
    folder = write_files(tmp_path / "mirror")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    handler = partial(Handler, directory=str(folder))
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setitem(files.KNOWN["mnist"], "mirrors", [f"{url}empty/", url])
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield folder
        server.shutdown()
        thread.join()


# --- Dataset -------------------------------------------------------------------------------


def test_dataset_is_read_only_and_leaves_the_callers_array_alone() -> None:
    X, y = np.ones((2, 3)), np.array([1.0, -1.0])
    data = Dataset("d", X, y, ("a", "b"), image_shape=(1, 2))
    assert (len(data), data.n_samples, data.n_features) == (2, 2, 3)
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        data.y[0] = -1.0
    assert X.flags.writeable
    assert y.flags.writeable


def test_take_keeps_the_order_asked_for() -> None:
    data = toy_dataset()
    part = data.take([7, 2])
    np.testing.assert_array_equal(part.X, data.X[[7, 2]])
    np.testing.assert_array_equal(part.y, data.y[[7, 2]])
    assert (part.name, part.class_names) == (data.name, data.class_names)
    np.testing.assert_array_equal(data.take(data.y > 0).y, np.ones(5))


# --- splits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "train_size", "validation_size"), [(60_000, 500, None), (7, 3, 4), (50, 20, None)]
)
def test_splits_are_the_published_ones(
    n: int, train_size: int, validation_size: int | None
) -> None:
    """By default a fifth is for validation; the global generator stays as it is."""
    import torch

    before = torch.get_rng_state()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1)).numpy()
    train, validation = split_indices(n, train_size, validation_size or n // 5, seed=1)
    np.testing.assert_array_equal(train, order[:train_size])
    np.testing.assert_array_equal(validation, order[-(validation_size or n // 5) :])
    assert train.dtype == validation.dtype == np.int64
    X, y = np.column_stack([np.arange(1.0 * n), np.ones(n)]), np.where(np.arange(n) % 2, 1.0, -1.0)
    data = Dataset("d", X, y, ("a", "b"))
    parts = split(data, train_size, validation_size, seed=1)
    np.testing.assert_array_equal(parts.train.X[:, 0], train)
    np.testing.assert_array_equal(parts.validation.y, data.y[validation])
    assert torch.equal(before, torch.get_rng_state())


# --- images --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names", "labels"),
    [
        ({}, ("5, 6, 7, 8, 9", "0, 1, 2, 3, 4"), {k: 1 if k < 5 else -1 for k in range(10)}),
        ({"positive": [3], "negative": {8, 1}}, ("1, 8", "3"), {3: 1, 1: -1, 8: -1}),
        ({"classes": (7, 1)}, ("1", "7"), {1: -1, 7: 1}),
        ({"classes": (7, 1, 4)}, ("1", "4", "7"), {1: 0, 4: 1, 7: 2}),
        ({"classes": ["all"]}, tuple("0123456789"), {k: k for k in range(10)}),
    ],
)
def test_digits(options: dict[str, Any], names: tuple[str, ...], labels: dict[int, int]) -> None:
    from sklearn import datasets as sklearn_datasets

    bunch = sklearn_datasets.load_digits()
    data, bare = load_digits(**options), load_digits(**options, append_constant=False)
    kept = np.isin(bunch.target, list(labels))
    assert data.image_shape == (8, 8)
    assert data.class_names == names
    assert data.classes == (len(names) if len(names) > 2 else None)
    assert (bare.n_features, bare.has_constant) == (64, False)
    np.testing.assert_array_equal(bare.X, (bunch.data[kept] / 16 - 0.5) / 0.5)
    np.testing.assert_array_equal(data.X[:, :-1], bare.X)
    np.testing.assert_array_equal(data.X[:, -1], 1.0)
    np.testing.assert_array_equal(data.y, [labels[k] for k in bunch.target[kept].tolist()])
    assert set(split(data, 200).train.y) == set(labels.values())


@pytest.mark.parametrize("compressed", [True, False])
def test_mnist_files_give_scaled_images(cache: Path, compressed: bool) -> None:
    folder = write_files(cache / "mnist")
    if not compressed:
        for path in folder.iterdir():
            path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
            path.unlink()
    data = load_mnist()
    pixels = TINY_IMAGES.reshape(5, 6).astype(np.float32)  # rounded as in the published code
    expected = (pixels / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
    np.testing.assert_array_equal(data.X[:, :-1], expected.astype(np.float64))
    assert data.X.dtype == np.float64
    np.testing.assert_array_equal(data.y, [-1.0, 1.0, 1.0, 1.0, -1.0])
    assert data.image_shape == (2, 3)


# --- toy sets ------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("kind", TOY_KINDS)
def test_toy_sets_are_balanced_and_free_of_contradictions(kind: ToyKind, noise: float) -> None:
    data = make_toy(kind, 301, noise=noise)
    assert data.X.shape == (301, 3)
    assert data.y.sum() == 1.0
    positive, negative = data.X[data.y > 0], data.X[data.y < 0]
    assert (np.abs(positive[:, None] - negative[None]).max(axis=2) > 0).all()
    np.testing.assert_array_equal(data.X, make_toy(kind, 301, noise=noise).X)
    assert not np.array_equal(data.X, make_toy(kind, 301, noise=noise, random_state=1).X)
    assert make_toy(kind, noise=noise, append_constant=False).X.shape == (200, 2)


@pytest.mark.parametrize(("kind", "separable"), [("blobs", True), ("xor", False)])
def test_only_blobs_are_linearly_separable(kind: ToyKind, separable: bool) -> None:
    data = make_toy(kind)
    fit = np.linalg.lstsq(data.X, data.y)[0]
    assert bool((data.y * (data.X @ fit) > 0).all()) is separable


# --- by name -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in DATASET_NAMES if name not in KNOWN])
def test_load_by_name(name: str) -> None:
    assert load(name).name == name


def test_load_by_name_passes_its_options(cache: Path) -> None:
    write_files(cache / "mnist")
    assert len(load("mnist", positive=(0,), negative=(9,))) == 2


# --- files ---------------------------------------------------------------------------------


def test_the_chosen_folder_comes_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged one there is named, and no good one is taken from the cache in its place."""
    chosen = write_files(tmp_path / "chosen" / "mnist")
    write_files(cache / "mnist")
    (chosen / f"{LABELS}.gz").unlink()
    monkeypatch.setenv(DATA_VARIABLE, str(chosen.parent))
    assert len(load_mnist()) == len(TINY_DIGITS)
    (chosen / f"{IMAGES}.gz").write_bytes(b"")
    with pytest.raises(DataError, match=re.escape(str(chosen / f"{IMAGES}.gz"))):
        load_mnist()


def test_an_installed_package_uses_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    monkeypatch.setattr(files, "CHECKOUT", tmp_path / "data")
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert files._folders("mnist") == [Path(pooch.os_cache("implicit_bias")) / "mnist"]


def test_missing_files_name_every_place_looked_at(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "chosen"))
    monkeypatch.setitem(files.KNOWN["mnist"], "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(DataError) as caught:
        load_mnist()
    for part in (
        str(tmp_path / "chosen" / "mnist"),
        str(cache / "mnist"),
        f"http://127.0.0.1:9/{IMAGES}.gz",
        DATA_VARIABLE,
        'download("mnist")',
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("damage", ["truncated", "another file", "empty"])
def test_damaged_files_are_named_and_never_used_or_replaced(
    mirror: Path, cache: Path, damage: str
) -> None:
    path = write_files(cache / "mnist") / f"{LABELS}.gz"
    other = gzip.compress(b"something else")
    good = path.read_bytes()
    content = {"truncated": good[:-4], "another file": other, "empty": b""}[damage]
    path.write_bytes(content)
    for use in (load_mnist, partial(download, "mnist")):
        with pytest.raises(DataError, match=f"(?s){path} is unusable.*Delete it") as caught:
            use()
        if damage == "another file":  # both hashes
            for found in (b"something else", TINY_FILES[LABELS]):
                assert hashlib.sha256(found).hexdigest() in str(caught.value)
    assert path.read_bytes() == content


def test_download_tries_the_mirrors_in_turn(mirror: Path, cache: Path) -> None:
    download("mnist")
    assert {path.name for path in (cache / "mnist").iterdir()} == {
        f"{file}.gz" for file in TINY_FILES
    }
    assert len(load_mnist()) == len(TINY_DIGITS)


def test_loading_downloads_what_is_missing(mirror: Path, cache: Path) -> None:
    assert len(load_mnist()) == len(TINY_DIGITS)


def test_a_bad_download_leaves_nothing_behind(mirror: Path, cache: Path) -> None:
    (mirror / f"{IMAGES}.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match="expected") as caught:
        download("mnist")
    assert "404" in str(caught.value)
    assert list((cache / "mnist").iterdir()) == []


def test_every_file_of_the_loaders_has_a_checksum() -> None:
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    expected = {f"{prefix}-{kind}" for prefix in ("train", "t10k") for kind in kinds}
    assert all(set(known["sha256"]) == expected for known in files.KNOWN.values())
    assert set(files.KNOWN) == {"mnist", "fashion-mnist"}


def test_import_needs_numpy_only() -> None:
    """Judge this module alone: an empty package stands in for what `implicit_bias` imports."""
    package = Path(files.__file__).parents[1]
    code = f"""
import sys, types
sys.modules["implicit_bias"] = types.ModuleType("implicit_bias")
sys.modules["implicit_bias"].__path__ = [{str(package)!r}]
import implicit_bias.datasets
print(sorted({{"torch", "sklearn", "pooch", "scipy"}} & sys.modules.keys()))
"""
    assert python(code) == "[]"


# --- the real files ------------------------------------------------------------------------

real_data = pytest.mark.skipif(
    DATA_VARIABLE not in os.environ,
    reason=f"set {DATA_VARIABLE} to a folder with mnist/ and fashion-mnist/",
)


@pytest.mark.slow
@real_data
def test_real_files() -> None:
    data = load_mnist()
    assert data.X.shape == (60_000, 785)
    assert data.image_shape == (28, 28)
    assert (data.X.min(), data.X.max()) == (-1.0, 1.0)
    # The first training labels of MNIST are 5, 0, 4, 1, 9.
    np.testing.assert_array_equal(data.y[:5], [-1.0, 1.0, 1.0, 1.0, -1.0])
    fashion = load_fashion_mnist(subset="test", positive=[0], negative=[9])
    assert fashion.X.shape == (2_000, 785)
    assert fashion.class_names == (GARMENT_NAMES[9], GARMENT_NAMES[0])
    sneakers = load_fashion_mnist(subset="test", positive=["sneaker"])
    assert sneakers.class_names[1] == "Sneaker"
    assert int((sneakers.y == 1).sum()) == 1000
    assert len(sneakers) == 10_000
    assert len(load_fashion_mnist(subset="test", positive=["bag"], negative=["Ankle boot"])) == 2000


# --- what is refused ---------------------------------------------------------------------------


def dataset(**changes: Any) -> Dataset:
    good: dict[str, Any] = {"X": np.ones((2, 3)), "y": np.array([1.0, -1.0])}
    return Dataset(**({"name": "d", "class_names": ("a", "b")} | good | changes))


@pytest.mark.parametrize(
    ("call", "arguments", "word"),
    [
        (dataset, {"X": np.full((2, 3), np.nan)}, "NaN"),
        (dataset, {"X": np.ones((3, 3))}, "one label a row"),
        (dataset, {"X": np.zeros((2, 3))}, "has_constant=False"),
        (dataset, {"X": np.ones((2, 0))}, "has_constant=False"),
        (dataset, {"y": np.array([0.0, 1.0])}, "labels"),
        (dataset, {"image_shape": (2, 2)}, "image_shape"),
        (dataset, {"y": np.array([0, 3]), "class_names": tuple("abc")}, "labels"),
        (dataset, {"y": np.array([0, 2])}, "classes"),
        (split, {"train_size": 8, "validation_size": 3}, "at most 10"),
        (split, {"train_size": 5, "seed": 2**70}, "seed"),
        (split, {"train_size": 9}, "at most 8"),
        (split, {"train_size": 0, "validation_size": 3}, "train_size"),
        (split, {"train_size": 3, "validation_size": 0}, "validation_size"),
        (split, {"train_size": 1, "validation_size": 2}, "each class needs one"),
        (load_digits, {"positive": (), "negative": (1,)}, "positive"),
        (load_digits, {"positive": (1, 10), "negative": (2,)}, "0 to 9"),
        (load_digits, {"positive": (1, 2), "negative": (2, 3)}, "both"),
        (load_digits, {"positive": (7,)}, "both"),
        (load_digits, {"classes": [3]}, "two classes"),
        (load_digits, {"classes": [1, 2], "positive": [3]}, "apart"),
        (load_digits, {"subset": "test"}, "split it"),
        (load_mnist, {"subset": "validation"}, "subset"),
        (make_toy, {"kind": "rings"}, "xor"),
        (make_toy, {"kind": "xor", "n_samples": 1}, "n_samples"),
        (make_toy, {"kind": "xor", "noise": float("nan")}, "noise"),
        (load, {"name": "minst"}, "'mnist'"),
        (load, {"name": "xor", "positive": (1,)}, "no digits"),
        (download, {"name": "digits"}, "mnist"),
    ],
)
def test_refused(call: Callable[..., object], arguments: dict[str, Any], word: str) -> None:
    if call is split:
        arguments = {"dataset": toy_dataset(10), **arguments}
    with pytest.raises(ValueError, match=word):
        call(**arguments)


def test_what_is_carried_has_a_value_for_each_sample() -> None:
    with pytest.raises(ValueError, match="row"):
        dataset(carried={"row": np.arange(3)})


def test_standardized_by_training_samples_alone() -> None:
    parts = split(make_toy("moons", 50), 30)
    scaled = standardized(parts)
    scaler = StandardScaler().fit(parts.train.X[:, :-1])
    for part, raw in ((scaled.train, parts.train), (scaled.validation, parts.validation)):
        np.testing.assert_allclose(part.X[:, :-1], scaler.transform(raw.X[:, :-1]))
        assert (part.X[:, -1] == 1).all()
    np.testing.assert_allclose(scaled.train.X[:, :-1].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.train.X[:, :-1].std(axis=0), 1)
    flat = dataset(X=np.ones((2, 2)))
    assert not standardized(Split(flat, flat)).train.X[:, 0].any()
    huge = dataset(X=np.array([[1e200, 1.0], [3e200, 1.0]]))
    with pytest.raises(ValueError, match="overflow"):
        standardized(Split(huge, huge))


def test_labels_fit_the_named_classes() -> None:
    X = np.eye(3)
    data = Dataset("three", X, np.array([0, 1, 2]), ("a", "b", "c"), has_constant=False)
    assert data.y.dtype == np.int64
    fewer = Dataset("two of three", X, np.array([0, 1, 1]), ("a", "b", "c"), has_constant=False)
    assert fewer.classes == 3
    with pytest.raises(ValueError, match=r"class 2 \(c\)"):
        split(data.take([0, 1, 1, 0]), 2, 1)
