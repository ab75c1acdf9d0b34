"""Data files: looked for, downloaded, verified, and read; and those that are damaged."""

import gzip
import hashlib
import http.server
import re
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from implicit_bias.datasets import DataError, files
from implicit_bias.datasets.files import DATA_VARIABLE, download
from implicit_bias.datasets.images import load_mnist

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


def test_damaged_files_are_named_and_never_used_or_replaced(mirror: Path, cache: Path) -> None:
    path = write_files(cache / "mnist") / f"{LABELS}.gz"
    truncated = path.read_bytes()[:-4]
    for content in (truncated, gzip.compress(b"something else")):
        path.write_bytes(content)
        for use in (load_mnist, partial(download, "mnist")):
            with pytest.raises(DataError, match=f"(?s){path} is unusable.*Delete it"):
                use()
        assert path.read_bytes() == content


def test_what_is_missing_is_downloaded_from_the_mirrors_in_turn(mirror: Path, cache: Path) -> None:
    download("mnist")
    found = {path.name for path in (cache / "mnist").iterdir()}
    assert found == {f"{file}.gz" for file in TINY_FILES}
    assert len(load_mnist()) == len(TINY_DIGITS)


def test_a_bad_download_leaves_nothing_behind(mirror: Path, cache: Path) -> None:
    (mirror / f"{IMAGES}.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match="expected") as caught:
        download("mnist")
    assert "404" in str(caught.value)
    assert list((cache / "mnist").iterdir()) == []
