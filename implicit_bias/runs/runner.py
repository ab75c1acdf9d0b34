"""Run a grid: compute the cells that a store lacks, and write each as soon as it is there.

What is done is never computed again, so a grid that was interrupted (Ctrl-C, kill -9, a full
disk) goes on where it was when it is run again. A cell that fails is written with its error, and
the rest goes on. Several runs may fill one store at a time: each cell is computed by the one that
claims it first.
"""

import warnings
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing

from implicit_bias.runs.backends import Backend
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.grid import Grid, cell_key
from implicit_bias.runs.store import Inventory, Record, Store


def inventory(grid: Grid, store: Store) -> Inventory:
    """Return what a store has of a grid."""
    return store.inventory(grid.by_key())


def run_grid(
    grid: Grid, store: Store, backend: Backend, *, retry_failed: bool = False
) -> Generator[Record, None, None]:
    """Compute the cells of a grid that are neither done nor, unless asked for, failed.

    A damaged record warns, and its cell is computed again. Cells that another run has claimed are
    left to it.

    Parameters
    ----------
    grid : Grid
        The cells.
    store : Store
        Where their records are and will be.
    backend : Backend
        Where to compute.
    retry_failed : bool
        Whether to compute cells again that failed in an earlier run.

    Yields
    ------
    Record
        As soon as it is on the disk.

    Raises
    ------
    StoreError
        The store cannot be written: no space left, say. What was written before is kept.
    BackendError
        No worker can compute.
    """
    before = {key: _stamp(store, key) for key in grid.by_key()}
    found = inventory(grid, store)
    for reason in found.damaged.values():
        warnings.warn(f"{reason}; the cell is computed again", stacklevel=2)
    settled = found.done.keys() | (set() if retry_failed else found.failed.keys())
    cells = tuple(cell for key, cell in grid.by_key().items() if key not in settled)
    if not cells:
        return
    store.prepare()
    claimed = _Claimed(store, cells, before)
    try:
        with closing(backend.run(claimed)) as outcomes:
            for cell, outcome in outcomes:
                record = store.write(cell, outcome)
                claimed.release(record.key)
                yield record
    finally:
        claimed.release(*claimed.held)


class _Claimed(Collection[RunConfig]):
    """Cells; iterated are those that are still to compute, each claimed when it is its turn.

    So a backend that takes one at a time leaves the others to other runs.
    """

    def __init__(self, store: Store, cells: Sequence[RunConfig], before: Mapping[str, int]) -> None:
        self.store, self.cells, self.before = store, cells, before
        self.held = set[str]()

    def __len__(self) -> int:
        return len(self.cells)

    def __contains__(self, cell: object) -> bool:
        return cell in self.cells

    def __iter__(self) -> Iterator[RunConfig]:
        for cell in self.cells:
            key = cell_key(cell)
            if not self.store.claim(key):
                continue
            self.held.add(key)
            # Another run may have written it, and released it, since this one began.
            if _stamp(self.store, key) == self.before[key]:
                yield cell
            else:
                self.release(key)

    def release(self, *keys: str) -> None:
        for key in keys:
            self.held.discard(key)
            self.store.release(key)


def _stamp(store: Store, key: str) -> int:
    """Return when the record of a cell was written; 0 where there is none."""
    try:
        return store.file(key).stat().st_mtime_ns
    except OSError:
        return 0
