"""Blocks of rows: how data are cut, and what is refused."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.solvers.out_of_core import Blocks, price_blocks


def data(n: int = 23, d: int = 3) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def on_disk(X: Array, folder: Path, dtype: str = "float64") -> np.memmap[Any, Any]:
    file = folder / "X.npy"
    np.save(file, X.astype(dtype))
    return np.load(file, mmap_mode="r")


@pytest.mark.parametrize("rows", [None, 1, 7, 23, 100])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_memory_map_is_read_in_blocks(tmp_path: Path, rows: int | None, dtype: str) -> None:
    X, y = data()
    blocks = Blocks.of(on_disk(X, tmp_path, dtype), y, rows)
    read = blocks.map(lambda X, y, start: (X, y, start))
    np.testing.assert_array_equal(np.concatenate([part[0] for part in read]), X.astype(dtype))
    np.testing.assert_array_equal(np.concatenate([part[1] for part in read]), y)
    assert [part[2] for part in read] == list(range(0, 23, rows or 23))


def test_spread_rows_have_all_labels() -> None:
    X, y = data(100)
    y = np.where(np.arange(100) == 57, 3.0, np.arange(100) % 2)
    found = Blocks.of(da.from_array(X, chunks=(10, 3)), y).spread(20)
    assert set(found.y) == {0.0, 1.0, 3.0}
    assert 20 <= len(found) <= 30
    np.testing.assert_array_equal(found.X, X[found.index])
    np.testing.assert_array_equal(found.y, y[found.index])


def test_what_cannot_be_cut_is_refused(tmp_path: Path) -> None:
    X, y = data()
    array, file = da.from_array(X, chunks=(8, 3)), on_disk(X, tmp_path)
    np.save(tmp_path / "F.npy", np.asfortranarray(X))
    refused: dict[str, list[tuple[Any, ...]]] = {
        "across": [(array.rechunk((8, 2)), y)],
        "unknown": [(array[array[:, 0] > 0], y)],
        "labels": [(array, y[:-1]), (array, da.from_array(y[:-1]))],
        "2 dim": [(array[:, 0], y)],
        "dimension": [(array, y[:, None])],
        "text": [(array, np.where(y > 0, "a", "b"))],
        "part": [(file[2:], y[2:])],
        "rows_a_block": [(file, y, 0)],
        "at least one row": [(array[:0], y[:0]), (array[:0], da.from_array(y[:0]))],
        "Fortran": [(np.load(tmp_path / "F.npy", mmap_mode="r"), y)],
    }
    for word, cases in refused.items():
        for arguments in cases:
            with pytest.raises(ValueError, match=word):
                Blocks.of(*arguments)
    with pytest.raises(TypeError, match="max_margin"):
        Blocks.of(X, y)


def test_a_map_whose_file_has_other_values_is_refused(tmp_path: Path) -> None:
    X, y = data()
    file = on_disk(X, tmp_path)
    private = np.load(tmp_path / "X.npy", mmap_mode="c")
    private += 1.0  # in memory alone
    with pytest.raises(ValueError, match="mode 'c'"):
        Blocks.of(private, y)
    blocks = Blocks.of(file, y, 10)
    with (tmp_path / "X.npy").open("r+b") as opened:
        opened.truncate(300)
    with pytest.raises(ValueError, match="ends before"):
        blocks.spread(5)


def test_errors_of_a_block_name_its_rows() -> None:
    X, y = data()
    X[13, 1] = np.nan
    blocks = Blocks.of(da.from_array(X, chunks=(8, 3)), y)
    with pytest.raises(ValueError, match=r"rows 8 to 15.*NaN"):
        blocks.spread(5)
    with pytest.raises(ValueError, match="rows 8 to 15"):
        price_blocks(blocks, np.ones((1, 3)), 0.0, None, below=1.0, count=3)


def test_no_block_is_passed_over_when_the_time_is_up() -> None:
    X, y = data()
    blocks = Blocks.of(da.from_array(X, chunks=(5, -1)), y)
    seen: list[int] = []

    def see(X: Array, y: Array, start: int) -> None:
        seen.append(start)

    with pytest.raises(TimeoutError):
        blocks.map(see, deadline=Deadline.after(1e-9))
    assert seen == []
