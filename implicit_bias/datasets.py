"""Two-class data sets: digit images, toy sets in the plane, and the published split.

Pixels are scaled to [-1, 1], labels are -1 and +1, and a constant 1 is appended as the last
column, because no model of this package has a bias of its own.

Digits come with scikit-learn. MNIST and Fashion-MNIST are IDX files, looked for in
``$IMPLICIT_BIAS_DATA``, then in the cache, then at the mirrors (``data/README.md``), and
verified against ``data/checksums.json`` at each load.

Source: Lippl, Abbott, Chung (2022), section 4, and their published code.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import struct
import tempfile
import textwrap
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.validation import Array, as_finite, as_labels

Subset: TypeAlias = Literal["train", "test"]
ToyKind: TypeAlias = Literal["xor", "circles", "moons", "spirals", "blobs"]
FileState: TypeAlias = Literal["ok", "missing", "corrupt"]

TOY_KINDS: tuple[ToyKind, ...] = get_args(ToyKind)
DATASET_NAMES: tuple[str, ...] = ("digits", "mnist", "fashion-mnist", *TOY_KINDS)

POSITIVE_DIGITS = (0, 1, 2, 3, 4)
NEGATIVE_DIGITS = (5, 6, 7, 8, 9)
DIGIT_NAMES = tuple("0123456789")
GARMENT_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

DATA_VARIABLE = "IMPLICIT_BIAS_DATA"
MIRRORS = {
    "mnist": (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    "fashion-mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
}
FILE_PREFIXES: dict[Subset, str] = {"train": "train", "test": "t10k"}
IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP_MAGIC = b"\x1f\x8b"

# A wheel carries the checksums inside the package; a source checkout has them beside it.
_WHEEL_DATA = Path(__file__).parent / "data"
_CHECKOUT_DATA = Path(__file__).parent.parent / "data"
CHECKSUMS_FILE = (_WHEEL_DATA if _WHEEL_DATA.is_dir() else _CHECKOUT_DATA) / "checksums.json"


class DataError(RuntimeError):
    """A data file is missing or damaged; the message names the file, the cause and the cure."""


# --- data sets and splits ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dataset:
    """A two-class data set; its arrays are read-only.

    Parameters
    ----------
    name : str
        Name for tables and plots.
    X : ndarray of float64, shape (n, D)
        Inputs, one sample a row, no unit (pixels are scaled to [-1, 1]).
    y : ndarray of float64, shape (n,)
        Labels, -1 or +1.
    class_names : tuple of two str
        Names of the classes -1 and +1, in this order.
    image_shape : tuple of two int, optional
        Height and width in pixels, if a row of X (without the constant) is an image in C order.
    has_constant : bool
        Whether the last column of X is the constant 1.

    Raises
    ------
    ValueError
        Shapes that do not fit, values that are not finite, labels other than -1 and +1, no
        samples, or a last column that is not the constant it is said to be.
    """

    name: str
    X: Array = field(repr=False)
    y: Array = field(repr=False)
    class_names: tuple[str, str]
    image_shape: tuple[int, int] | None = None
    has_constant: bool = True

    def __post_init__(self) -> None:
        # Views, so that the caller's own arrays stay writeable.
        X = as_finite(self.X, "X", 2).view()
        y = as_labels(self.y, len(X)).view()
        if self.has_constant and not (X.shape[1] and (X[:, -1] == 1.0).all()):
            raise ValueError(
                "the last column of X is not the constant 1: append it or pass has_constant=False"
            )
        n_inputs = X.shape[1] - self.has_constant
        if self.image_shape is not None and math.prod(self.image_shape) != n_inputs:
            raise ValueError(
                f"image_shape {self.image_shape} does not fit the {n_inputs} inputs of a sample"
            )
        for name, array in (("X", X), ("y", y)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_samples(self) -> int:
        """n, the number of samples."""
        return len(self)

    @property
    def n_features(self) -> int:
        """D, the number of columns of X, the constant included."""
        return int(self.X.shape[1])

    def take(self, indices: ArrayLike) -> Dataset:
        """Return the samples with these indices (or this boolean mask), in this order."""
        rows = np.asarray(indices)
        return replace(self, X=self.X[rows], y=self.y[rows])


@dataclass(frozen=True)
class Split:
    """Two disjoint parts of one data set."""

    train: Dataset
    validation: Dataset


def split_indices(
    n_samples: int, train_size: int, validation_size: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the training and the validation indices of the published split.

    Both come from one ``torch.randperm(n_samples)``: training is its first `train_size`
    entries, validation its last `validation_size`. Validation therefore stays the same when
    the training set grows.

    Parameters
    ----------
    n_samples, train_size, validation_size : int
        Numbers of samples.
    seed : int
        Seed of the torch generator, the data seed of the publication (there 1).

    Returns
    -------
    train : ndarray of int64, shape (train_size,)
        Indices of the training samples.
    validation : ndarray of int64, shape (validation_size,)
        Indices of the validation samples.

    Raises
    ------
    ValueError
        A part is empty or the two would overlap.
    """
    import torch

    if min(train_size, validation_size) < 1:
        raise ValueError(
            f"train_size={train_size} and validation_size={validation_size} must be at least 1"
        )
    if train_size + validation_size > n_samples:
        raise ValueError(
            f"train_size={train_size} and validation_size={validation_size} overlap in "
            f"{n_samples} samples: choose sizes that sum to at most {n_samples}"
        )
    generator = torch.Generator().manual_seed(seed)
    order: NDArray[np.int64] = torch.randperm(n_samples, generator=generator).numpy()
    return order[:train_size], order[n_samples - validation_size :]


def split(
    dataset: Dataset, train_size: int, validation_size: int | None = None, seed: int = 1
) -> Split:
    """Split a data set at random, as published.

    Parameters
    ----------
    dataset : Dataset
        What to split.
    train_size : int
        Number of training samples.
    validation_size : int, optional
        Number of validation samples; by default a fifth of the data, rounded, which is the
        published 12,000 for the 60,000 images of MNIST.
    seed : int
        See `split_indices`.

    Returns
    -------
    Split
        The training and the validation set.

    Raises
    ------
    ValueError
        As `split_indices`, or a class has no training sample.
    """
    if validation_size is None:
        validation_size = round(len(dataset) / 5)
        largest = len(dataset) - validation_size
        if train_size > largest:
            raise ValueError(
                f"train_size={train_size} is too large: choose at most {largest} of the "
                f"{len(dataset)} samples, a fifth of which is for validation"
            )
    train, validation = map(
        dataset.take, split_indices(len(dataset), train_size, validation_size, seed)
    )
    for label, class_name in zip((-1, 1), dataset.class_names, strict=True):
        if label not in train.y:
            raise ValueError(
                f"class {label:+d} ({class_name}) of {dataset.name} has none of the {train_size} "
                f"training samples: take more of them or another seed than {seed}"
            )
    return Split(train, validation)


# --- images --------------------------------------------------------------------------------


def load_digits(
    *,
    positive: Collection[int] = POSITIVE_DIGITS,
    negative: Collection[int] = NEGATIVE_DIGITS,
    append_constant: bool = True,
) -> Dataset:
    """Load the 1,797 digits of 8 x 8 pixels that come with scikit-learn.

    Parameters
    ----------
    positive, negative : collection of int
        The digits labelled +1 and -1; samples of other digits are dropped, the order is kept.
    append_constant : bool
        Whether to append the constant 1 as the last column.

    Returns
    -------
    Dataset
        Pixels p in 0..16 as (p / 16 - 0.5) / 0.5.

    Raises
    ------
    ValueError
        A group of digits is empty or holds what is no digit, or the groups overlap.
    """
    from sklearn import datasets

    images, digits = datasets.load_digits(return_X_y=True)
    return _image_dataset(
        "digits",
        images.reshape(-1, 8, 8),  # C order, as scikit-learn flattened them
        digits,
        DIGIT_NAMES,
        pixel_maximum=16.0,
        positive=positive,
        negative=negative,
        append_constant=append_constant,
    )


def load_mnist(
    *,
    subset: Subset = "train",
    positive: Collection[int] = POSITIVE_DIGITS,
    negative: Collection[int] = NEGATIVE_DIGITS,
    append_constant: bool = True,
) -> Dataset:
    """Load MNIST: 60,000 training or 10,000 test images of 28 x 28 pixels.

    Parameters
    ----------
    subset : {"train", "test"}
        Which of the two published sets.
    positive, negative, append_constant
        See `load_digits`.

    Returns
    -------
    Dataset
        Pixels p in 0..255 as (p / 255 - 0.5) / 0.5, in float64.

    Raises
    ------
    ValueError
        Unknown `subset`, or as `load_digits`.
    DataError
        A file is damaged, or is missing and cannot be downloaded.
    """
    return _load_idx_images("mnist", DIGIT_NAMES, subset, positive, negative, append_constant)


def load_fashion_mnist(
    *,
    subset: Subset = "train",
    positive: Collection[int] = POSITIVE_DIGITS,
    negative: Collection[int] = NEGATIVE_DIGITS,
    append_constant: bool = True,
) -> Dataset:
    """Load Fashion-MNIST: parameters, result and errors of `load_mnist`.

    The digits 0..9 stand for the garments in `GARMENT_NAMES`.
    """
    return _load_idx_images(
        "fashion-mnist", GARMENT_NAMES, subset, positive, negative, append_constant
    )


def _load_idx_images(
    dataset: str,
    digit_names: Sequence[str],
    subset: Subset,
    positive: Collection[int],
    negative: Collection[int],
    append_constant: bool,
) -> Dataset:
    if subset not in FILE_PREFIXES:
        raise ValueError(f"subset {subset!r} is unknown: choose one of {', '.join(FILE_PREFIXES)}")
    prefix = FILE_PREFIXES[subset]
    return _image_dataset(
        dataset,
        _load_file(dataset, f"{prefix}-images-idx3-ubyte"),
        _load_file(dataset, f"{prefix}-labels-idx1-ubyte"),
        digit_names,
        pixel_maximum=255.0,
        positive=positive,
        negative=negative,
        append_constant=append_constant,
    )


def _image_dataset(
    name: str,
    images: NDArray[Any],
    digits: NDArray[Any],
    digit_names: Sequence[str],
    *,
    pixel_maximum: float,
    positive: Collection[int],
    negative: Collection[int],
    append_constant: bool,
) -> Dataset:
    """Select, label and scale images (n, height, width) of digits (n,)."""
    labels = _label_digits(digits, positive, negative)
    images = images[labels != 0]
    n_images, height, width = images.shape
    # Scaled in float32, as the published code does: its rounding is part of the published data.
    pixels = images.reshape(n_images, -1).astype(np.float32)  # C order: row after row
    pixels = (pixels / np.float32(pixel_maximum) - np.float32(0.5)) / np.float32(0.5)
    X = np.ones((n_images, height * width + append_constant))
    X[:, : height * width] = pixels
    return Dataset(
        name,
        X,
        labels[labels != 0],
        (_join_names(negative, digit_names), _join_names(positive, digit_names)),
        image_shape=(height, width),
        has_constant=append_constant,
    )


def _label_digits(
    digits: NDArray[Any], positive: Collection[int], negative: Collection[int]
) -> Array:
    """Label digits (n,) with +1, -1, or 0 for a digit of neither group."""
    for role, group in (("positive", positive), ("negative", negative)):
        if not group or not set(group) <= set(range(10)):
            raise ValueError(f"{role}={group!r}: name one or more of the digits 0 to 9")
    if common := set(positive) & set(negative):
        raise ValueError(
            f"digits {sorted(common)} are both positive and negative: name each in one group only"
        )
    return np.isin(digits, list(positive)).astype(np.float64) - np.isin(digits, list(negative))


def _join_names(group: Collection[int], digit_names: Sequence[str]) -> str:
    return ", ".join(digit_names[digit] for digit in sorted(set(group)))


# --- toy sets in the plane -----------------------------------------------------------------


def make_toy(
    kind: ToyKind,
    n_samples: int = 200,
    *,
    noise: float = 0.1,
    random_state: int = 0,
    append_constant: bool = True,
) -> Dataset:
    """Draw a toy set in the plane, at most a few units across.

    The labels alternate, so that every prefix is balanced. Only "blobs" is linearly separable.
    No two points of opposite labels coincide: the noiseless shapes are disjoint, and noise has
    a density.

    Parameters
    ----------
    kind : {"xor", "circles", "moons", "spirals", "blobs"}
        Squares at the four corners, concentric circles, two half circles, two spiral arms, or
        squares at two corners.
    n_samples : int
        Number of points, at least 2.
    noise : float
        Standard deviation of the Gaussian noise on each coordinate.
    random_state : int
        Seed of the generator.
    append_constant : bool
        Whether to append the constant 1 as the last column.

    Returns
    -------
    Dataset
        X of shape (n_samples, 2 + append_constant).

    Raises
    ------
    ValueError
        Unknown `kind`, fewer than 2 samples, or noise that is negative or not finite.
    """
    if kind not in TOY_KINDS:
        raise ValueError(f"toy set {kind!r} is unknown: choose one of {', '.join(TOY_KINDS)}")
    if n_samples < 2:
        raise ValueError(f"n_samples={n_samples}: draw at least 2 points, one of each class")
    if not 0.0 <= noise < math.inf:
        raise ValueError(f"noise={noise} must be a finite standard deviation, 0 or more")
    rng = np.random.default_rng(random_state)
    y = np.where(np.arange(n_samples) % 2 == 0, 1.0, -1.0)
    points = _toy_shape(kind, y, rng) + noise * rng.standard_normal((n_samples, 2))
    X = np.column_stack([points, np.ones(n_samples)]) if append_constant else points
    return Dataset(kind, X, y, ("-1", "+1"), has_constant=append_constant)


def _toy_shape(kind: ToyKind, y: Array, rng: np.random.Generator) -> Array:
    """Draw noiseless points (n, 2) for the labels y (n,)."""
    u = rng.random(len(y))
    match kind:
        case "xor" | "blobs":
            side = rng.choice((-1.0, 1.0), len(y)) if kind == "xor" else y
            square = rng.random((len(y), 2)) - 0.5
            return np.column_stack([side, side * y if kind == "xor" else y]) + square
        case "circles":
            return _polar(np.where(y > 0, 0.5, 1.0), 2 * np.pi * u)
        case "moons":
            arc = _polar(np.ones_like(u), np.pi * u)
            return np.where(y[:, None] > 0, arc, np.array([1.0, 0.5]) - arc)
        case "spirals":
            radius = 0.3 + 1.7 * u  # away from the origin, which the arms would share
            return _polar(y * radius, 2 * np.pi * u)


def _polar(radius: Array, angle: Array) -> Array:
    """Points (n, 2) from polar coordinates (n,), the angle in radians."""
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


# --- by name -------------------------------------------------------------------------------


def load(
    name: str,
    *,
    positive: Collection[int] | None = None,
    negative: Collection[int] | None = None,
    subset: Subset = "train",
) -> Dataset:
    """Load a data set by its name, for the command line.

    Parameters
    ----------
    name : str
        One of `DATASET_NAMES`.
    positive, negative : collection of int, optional
        See `load_digits`; by default 0-4 and 5-9. Image sets only.
    subset : {"train", "test"}
        See `load_mnist`. Only MNIST and Fashion-MNIST have a test set.

    Returns
    -------
    Dataset
        The data with the constant appended.

    Raises
    ------
    ValueError
        Unknown name, or an option that this data set does not have.
    DataError
        See `load_mnist`.
    """
    if name not in DATASET_NAMES:
        raise ValueError(f"data set {name!r} is unknown: choose one of {', '.join(DATASET_NAMES)}")
    if subset != "train" and name not in MIRRORS:
        raise ValueError(f"{name} has no subset {subset!r}: load it whole and split it")
    if name in TOY_KINDS:
        if positive is not None or negative is not None:
            raise ValueError(f"{name} has no digits: leave out positive and negative")
        return make_toy(name)
    positive = POSITIVE_DIGITS if positive is None else positive
    negative = NEGATIVE_DIGITS if negative is None else negative
    if name == "digits":
        return load_digits(positive=positive, negative=negative)
    loader = load_mnist if name == "mnist" else load_fashion_mnist
    return loader(subset=subset, positive=positive, negative=negative)


# --- files ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileStatus:
    """State of one known data file: where it was found and whether its checksum is right."""

    dataset: str
    file: str
    path: Path | None
    state: FileState
    detail: str


def data_status() -> list[FileStatus]:
    """Look for every known data file and verify it; nothing is downloaded or raised."""
    return [
        _file_status(dataset, file, checksum)
        for dataset, files in _checksums().items()
        for file, checksum in files.items()
    ]


def download(name: str) -> None:
    """Download the files of a data set that are nowhere yet into the cache.

    Files already there are verified and left alone. A download appears under its final name
    only after its checksum was verified.

    Parameters
    ----------
    name : {"mnist", "fashion-mnist"}
        The data set.

    Raises
    ------
    ValueError
        A data set without files.
    DataError
        A file is damaged, or no mirror gave a good one.
    """
    if name not in MIRRORS:
        raise ValueError(f"{name!r} has no files to download: choose one of {', '.join(MIRRORS)}")
    for file in _checksums()[name]:
        _load_file(name, file)


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read an IDX file, plain or gzipped.

    Parameters
    ----------
    path : str or Path
        The file. Format: http://yann.lecun.com/exdb/mnist/ (two zero bytes, type, number of
        dimensions, sizes as big-endian uint32, then the values in C order, big-endian).

    Returns
    -------
    ndarray
        Of the shape and type the file states, in native byte order.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    DataError
        The file is not IDX, or is longer or shorter than it states.
    """
    try:
        return _parse_idx(_decompress(Path(path).read_bytes()))
    except ValueError as error:
        raise DataError(f"{path} is unusable: {error}. Replace it with a good copy") from error


def _checksums() -> dict[str, dict[str, str]]:
    """SHA-256 of the uncompressed content, by data set and file."""
    checksums: dict[str, dict[str, str]] = json.loads(CHECKSUMS_FILE.read_text("utf-8"))
    return checksums


def _cache_folder() -> Path:
    if CHECKSUMS_FILE.parent != _WHEEL_DATA:
        return CHECKSUMS_FILE.parent
    import pooch

    return Path(pooch.os_cache("implicit_bias"))


def _folders(dataset: str) -> list[Path]:
    """Where the files of a data set are looked for, in this order."""
    chosen = os.environ.get(DATA_VARIABLE)
    roots = [Path(chosen).expanduser()] if chosen else []
    return [root / dataset for root in (*roots, _cache_folder())]


def _find(dataset: str, file: str) -> Path | None:
    places = (folder / name for folder in _folders(dataset) for name in (f"{file}.gz", file))
    return next((path for path in places if path.is_file()), None)


def _load_file(dataset: str, file: str) -> NDArray[Any]:
    """Find or download a known file, verify it and parse it."""
    checksum = _checksums()[dataset][file]
    path = _find(dataset, file) or _fetch(dataset, file, checksum)
    return _parse_idx(_read_verified(path, checksum))


def _file_status(dataset: str, file: str, checksum: str) -> FileStatus:
    path = _find(dataset, file)
    if path is None:
        looked = ", ".join(map(str, _folders(dataset)))
        return FileStatus(dataset, file, None, "missing", f"looked in {looked}")
    try:
        _read_verified(path, checksum)
    except DataError as error:
        return FileStatus(dataset, file, path, "corrupt", str(error))
    return FileStatus(dataset, file, path, "ok", "checksum verified")


def _fetch(dataset: str, file: str, checksum: str) -> Path:
    """Download a file into the cache from the first mirror that gives it intact."""
    import pooch

    fetch = pooch.HTTPDownloader()
    folder = _cache_folder() / dataset
    failures: list[str] = []
    for mirror in MIRRORS[dataset]:
        url = f"{mirror}{file}.gz"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as partial:
                path = Path(partial) / f"{file}.gz"
                fetch(url, str(path), None)
                _verify(_decompress(path.read_bytes()), checksum)
                return path.replace(folder / path.name)
        except (OSError, ValueError) as error:  # of requests too: they derive from OSError
            failures.append(f"  {url}: {textwrap.shorten(str(error), 200)}")
    looked = "\n".join(f"  {place}: no such file" for place in _folders(dataset))
    raise DataError(
        f"{file} of {dataset} is missing. Looked in\n{looked}\nand tried to download\n"
        + "\n".join(failures)
        + f"\nPut {file}.gz into a folder FOLDER/{dataset} and set {DATA_VARIABLE}=FOLDER, or run "
        f"`implicit-bias data --download {dataset}` where there is a network"
    )


def _read_verified(path: Path, checksum: str) -> bytes:
    """Return the uncompressed content of a file, or raise DataError if it is not as known."""
    try:
        content = _decompress(path.read_bytes())
        _verify(content, checksum)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is unusable: {error}. Delete it and run "
            f"`implicit-bias data --download {path.parent.name}`"
        ) from error
    return content


def _decompress(raw: bytes) -> bytes:
    """Undo gzip where the bytes are gzipped; ValueError if they are damaged."""
    if not raw.startswith(GZIP_MAGIC):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"damaged or truncated gzip file ({error})") from error


def _verify(content: bytes, checksum: str) -> None:
    """Raise ValueError unless the SHA-256 of the content is the checksum."""
    found = hashlib.sha256(content).hexdigest()
    if found != checksum:
        raise ValueError(f"its uncompressed content has the SHA-256 {found}, expected {checksum}")


def _parse_idx(content: bytes) -> NDArray[Any]:
    """Parse IDX (`read_idx` has the format); ValueError if the content is not as it states."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise ValueError(f"not an IDX file, it starts with the bytes {content[:4].hex(' ')!r}")
    dtype, n_dims = np.dtype(IDX_TYPES[content[2]]), content[3]
    header = 4 + 4 * n_dims
    if len(content) < header:
        raise ValueError(f"truncated IDX header: {len(content)} bytes of {header}")
    shape = struct.unpack_from(f">{n_dims}I", content, 4)
    expected = header + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise ValueError(
            f"an IDX file of shape {shape} has {expected} bytes, this one {len(content)}"
        )
    values = np.frombuffer(content, dtype, offset=header).reshape(shape)  # C order
    return values.astype(dtype.newbyteorder("="), copy=False)
