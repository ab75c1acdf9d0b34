"""Data files: where they are looked for, downloaded from, verified, and read (IDX).

Files are looked for in ``$IMPLICIT_BIAS_DATA``, then in the cache, then at the mirrors
(``data/README.md``), and verified against the checksums in ``files.toml`` at each load.
"""

import gzip
import hashlib
import os
import struct
import tempfile
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.package import check_installed, table_of
from implicit_bias.base.validation import check_choice

Subset: TypeAlias = Literal["train", "test"]
DATA_VARIABLE = "IMPLICIT_BIAS_DATA"
FILE_PREFIXES: dict[Subset, str] = {"train": "train", "test": "t10k"}
# Of each data set with files its mirrors, and the SHA-256 of the uncompressed content of each file.
KNOWN = table_of("datasets/files.toml")
# The cache of a source checkout; an installed package has no project around it.
CHECKOUT = Path(__file__).parents[2] / "data"


class DataError(RuntimeError):
    """A data file is missing or damaged; the message names the file, the cause and the cure."""


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
    check_choice(name, "a data set with files to download", KNOWN)
    for file in KNOWN[name]["sha256"]:
        load_file(name, file)


def load_file(dataset: str, file: str) -> NDArray[np.uint8]:
    """Find or download a known file, verify it and parse it."""
    checksum = KNOWN[dataset]["sha256"][file]
    path = _find(dataset, file)
    if path is None:
        path = _fetch(dataset, file, checksum)
    try:
        content = _verified(path.read_bytes(), checksum)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is unusable: {error}. Delete it and call "
            f'implicit_bias.datasets.download("{dataset}")'
        ) from error
    # IDX: two zero bytes, the type, the number of dimensions, the sizes as big-endian uint32, and
    # then the values in C order (http://yann.lecun.com/exdb/mnist/).
    shape = struct.unpack_from(f">{content[3]}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def _import_pooch() -> ModuleType:
    check_installed(
        "pooch",
        "images are downloaded by pooch",
        "images",
        f", or set {DATA_VARIABLE} to a folder that has them",
    )
    import pooch

    return pooch


def _folders(dataset: str) -> Iterator[Path]:
    """Where the files of a data set are looked for, in this order; the last is the cache."""
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen:
        yield Path(chosen).expanduser() / dataset
    # Pooch knows the cache of an installed package; it is not needed for files that are found.
    if (CHECKOUT.parent / "pyproject.toml").is_file():
        yield CHECKOUT / dataset
    else:
        yield Path(_import_pooch().os_cache("implicit_bias")) / dataset


def _find(dataset: str, file: str) -> Path | None:
    for folder in _folders(dataset):
        for path in (folder / f"{file}.gz", folder / file):
            if path.is_file():
                return path
    return None


def _fetch(dataset: str, file: str, checksum: str) -> Path:
    """Download a file into the cache from the first mirror that gives it intact."""
    fetch = _import_pooch().HTTPDownloader()
    *_, folder = _folders(dataset)
    failures: list[str] = []
    for mirror in KNOWN[dataset]["mirrors"]:
        url = f"{mirror}{file}.gz"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as partial:
                path = Path(partial) / f"{file}.gz"
                fetch(url, str(path), None)
                _verified(path.read_bytes(), checksum)
                return path.replace(folder / path.name)
        except (OSError, ValueError) as error:  # of requests too: they derive from OSError
            failures.append(f"  {url}: {textwrap.shorten(str(error), 200)}")
    looked = "\n".join(f"  {place}: no such file" for place in _folders(dataset))
    raise DataError(
        f"{file} of {dataset} is missing. Looked in\n{looked}\nand tried to download\n"
        + "\n".join(failures)
        + f"\nPut {file}.gz into a folder FOLDER/{dataset} and set {DATA_VARIABLE}=FOLDER, or "
        f'call implicit_bias.datasets.download("{dataset}") where there is a network'
    )


def _verified(raw: bytes, checksum: str) -> bytes:
    """Return the content of a file, which may be gzipped.

    Raises
    ------
    ValueError
        Its SHA-256 is not the checksum, or the gzip file is damaged.
    """
    content = raw
    if raw.startswith(b"\x1f\x8b"):  # how a gzip file begins
        try:
            content = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"damaged or truncated gzip file ({error})") from error
    found = hashlib.sha256(content).hexdigest()
    if found != checksum:
        raise ValueError(f"its uncompressed content has the SHA-256 {found}, expected {checksum}")
    return content
