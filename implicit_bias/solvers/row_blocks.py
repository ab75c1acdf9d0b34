"""Data of more rows than fit into memory: blocks of them, which Dask reads.

A function of each block is computed by the workers of a ``distributed.Client``, each holding a
block at a time; without one by the threads of this process. `out_of_core` prices rows so.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array, as_finite, check_count, labels_of_any_type
from implicit_bias.problem.constraints import spread

# Bytes of a block of a memory map, as float64.
BLOCK_BYTES = 2**25

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class SomeRows:
    """Some rows of the data, in memory.

    Attributes
    ----------
    index : ndarray of int, shape (n,)
        Which rows, ascending.
    X : ndarray of shape (n, D)
        Inputs.
    y : ndarray of shape (n,)
        Labels.
    """

    index: NDArray[np.int64]
    X: Array
    y: Array

    def __len__(self) -> int:
        """Return n."""
        return len(self.index)

    def of(self, places: NDArray[np.generic]) -> SomeRows:
        """Return those at some places, or where a mask says."""
        return SomeRows(self.index[places], self.X[places], self.y[places])

    def joined(self, *others: SomeRows) -> SomeRows:
        """Return all rows of several, each once, ascending."""
        parts = (self, *others)
        index, first = np.unique(np.concatenate([p.index for p in parts]), return_index=True)
        X, y = np.concatenate([p.X for p in parts]), np.concatenate([p.y for p in parts])
        return SomeRows(index, X[first], y[first])


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows of data in blocks that are read when they are needed.

    Attributes
    ----------
    parts : tuple of (inputs, labels)
        Delayed arrays of each block, (n, D) and (n,).
    starts : tuple of int
        The first row of each block.
    n_samples, n_features : int
        N and D.
    """

    parts: tuple[tuple[Any, Any], ...]
    starts: tuple[int, ...]
    n_samples: int
    n_features: int

    @classmethod
    def of(cls, X: Any, y: ArrayLike | Any, rows_a_block: int | None = None) -> Blocks:
        """Cut data into blocks.

        Parameters
        ----------
        X : dask.array.Array or numpy.memmap of shape (N, D)
            Inputs. A Dask array keeps its chunks.
        y : array_like or dask.array.Array of shape (N,)
            Labels.
        rows_a_block : int, optional
            Of a memory map; by default what takes 32 MiB as float64.

        Raises
        ------
        TypeError
            X is neither.
        ValueError
            Shapes that do not fit, no rows, chunks across features or of unknown sizes, or a memory
            map that is a part of another, not in C order, or of mode "c".
        ImportError
            Dask is not installed.
        """
        da = dask_array()
        if not isinstance(X, da.Array | np.memmap):
            raise TypeError(
                f"X must be a Dask array or a memory map (numpy.memmap), not a "
                f"{type(X).__name__}: data that are in memory go to max_margin and solve"
            )
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, got shape {X.shape}")
        if rows_a_block is not None:
            check_count(rows_a_block, "rows_a_block")
        in_a_file = isinstance(X, np.memmap)
        inputs, sizes = _of_memory_map(X, rows_a_block) if in_a_file else _chunks(X)
        n_samples, n_features = X.shape
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int).tolist()
        labels = _labels(y, n_samples, tuple(sizes), starts)
        kept = [b for b, size in enumerate(sizes) if size]
        parts = tuple((inputs[b], labels[b]) for b in kept)
        return cls(parts, tuple(starts[b] for b in kept), n_samples, n_features)

    def map(
        self, function: Callable[..., T], *arguments: Any, deadline: Deadline = NEVER
    ) -> list[T]:
        """Return function(inputs, labels, start, *arguments) of each block, computed by Dask.

        Raises
        ------
        TimeoutError
            The deadline has passed.
        """
        import dask

        client = _client()
        # Clocks of other machines say nothing here: there the results are waited for instead.
        timed = partial(_in_time, deadline if client is None else NEVER, function)
        task = dask.delayed(timed, pure=False)
        zipped = zip(self.parts, self.starts, strict=True)
        tasks = [task(X, y, start, *arguments) for (X, y), start in zipped]
        if client is None:
            return list(dask.compute(*tasks))
        # The labels travel with each pass: what only a worker has is lost when it dies.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            futures = client.compute(tasks)
        from distributed import as_completed

        try:
            found = dict(as_completed(futures, with_results=True, timeout=deadline.left))
        finally:
            client.cancel(futures)
        return [found[future] for future in futures]

    def spread(self, count: int, deadline: Deadline = NEVER) -> SomeRows:
        """Return rows spread over the blocks, about this many; of each block all its labels.

        Raises
        ------
        ValueError
            NaN or infinity in a block.
        TimeoutError
            The deadline has passed.
        """
        each = -(-count // len(self.parts))
        first, *others = self.map(_spread, each, deadline=deadline)
        return first.joined(*others)


def dask_array() -> ModuleType:
    """Import dask.array.

    Raises
    ------
    ImportError
        Dask is not installed.
    """
    try:
        import dask.array
    except ImportError as error:
        raise ImportError("data in blocks need Dask: pip install 'implicit-bias[dask]'") from error
    found: ModuleType = dask.array
    return found


def _client() -> Any:
    """Return the client whose workers compute; None where threads of this process do."""
    from dask.base import get_scheduler

    owner = getattr(get_scheduler(), "__self__", None)
    return owner if hasattr(owner, "compute") else None


# --- cutting into blocks -----------------------------------------------------------------------


def _chunks(X: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the chunks of a Dask array (N, D) as delayed arrays, and their rows."""
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise ValueError("the chunks of X have unknown sizes: call X.compute_chunk_sizes() first")
    if X.numblocks[1] != 1:
        raise ValueError(
            f"X has {X.numblocks[1]} chunks across its features, but a block needs all features "
            "of its rows: pass X.rechunk({1: -1})"
        )
    return X.to_delayed().ravel().tolist(), X.chunks[0]


def _of_memory_map(X: np.memmap[Any, Any], rows: int | None) -> tuple[list[Any], tuple[int, ...]]:
    """Return blocks of a memory map, which workers read from its file, and their rows."""
    import dask

    base: object = X.base  # numpy's types know of arrays only
    if not (isinstance(base, mmap.mmap) and X.flags.c_contiguous and X.filename):
        raise ValueError(
            "X is a part of a memory map, or one in Fortran order, whose place in the file is not "
            "known: pass the whole map in C order, or a Dask array"
        )
    if X.mode == "c":
        raise ValueError(
            "X is a memory map of mode 'c', whose changes are not in its file, which blocks are "
            "read from: map it with mode 'r', or write the changed inputs to a file"
        )
    n, D = X.shape
    rows = rows or max(1, BLOCK_BYTES // (8 * max(D, 1)))
    starts = range(0, n, rows)
    sizes = tuple(min(rows, n - start) for start in starts)
    read = dask.delayed(_read, pure=False)
    row_bytes = D * X.dtype.itemsize
    name, dtype = str(X.filename), X.dtype
    places = zip(starts, sizes, strict=True)
    return [read(name, dtype, X.offset + a * row_bytes, (k, D)) for a, k in places], sizes


def _read(
    name: str, dtype: np.dtype[Any], offset: int, shape: tuple[int, int]
) -> NDArray[np.generic]:
    """Read a block of a file: unlike a map of it, it leaves memory with the block."""
    values = np.fromfile(name, dtype, count=shape[0] * shape[1], offset=offset)
    if len(values) < shape[0] * shape[1]:
        raise ValueError(f"{name} ends before all rows of X: it was cut after it was mapped")
    return values.reshape(shape)  # C order


def _labels(y: Any, n_samples: int, sizes: tuple[int, ...], starts: list[int]) -> list[Any]:
    """Return the labels of each block."""
    da = dask_array()
    if isinstance(y, da.Array):
        if y.ndim != 1 or np.isnan(y.shape[0]):
            raise ValueError(
                f"y must have one dimension of known size, got shape {y.shape}: pass y.ravel(), "
                "and call y.compute_chunk_sizes() first"
            )
        fits = 0 < len(y) == n_samples
        found = y.rechunk((sizes,)).to_delayed().ravel().tolist() if fits else []
    else:
        whole = _compact(labels_of_any_type(y))
        fits = 0 < len(whole) == n_samples
        found = [whole[a : a + k] for a, k in zip(starts, sizes, strict=False)] if fits else []
    if not found:
        raise ValueError(
            f"X has {n_samples} rows and y has {len(y)} labels: pass one label a row, and at "
            "least one row"
        )
    return found


def _compact(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels in one byte each where that holds them: they travel to the workers."""
    if y.dtype.kind not in "biuf":
        raise ValueError(
            f"y must be numbers, got {y.dtype}: number the classes, as np.unique(y, "
            "return_inverse=True)[1] does"
        )
    fits = y.size and np.abs(y).max() <= np.iinfo(np.int8).max
    short = y.astype(np.int8) if fits else y
    return short if np.array_equal(short, y) else y


# --- what workers compute ----------------------------------------------------------------------


def _in_time(deadline: Deadline, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, unless the deadline has passed."""
    deadline.check()
    return function(*arguments)


def _spread(X: NDArray[Any], y: NDArray[Any], start: int, count: int) -> SomeRows:
    """Return rows of a block, as many of each label as of the others where it has them."""
    with of_rows(start, X):
        inputs, y = as_finite(X, "X", 2), as_finite(y, "y", 1)
    places = spread(y, -(-count // len(np.unique(y))))
    return SomeRows(start + places, inputs[places], y[places])


@contextmanager
def of_rows(start: int, X: NDArray[Any]) -> Iterator[None]:
    """Say of an error in which rows of the data it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"in rows {start} to {start + len(X) - 1}: {error}") from error
