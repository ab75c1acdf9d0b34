"""Run a grid: compute the cells that a store lacks, and write each as soon as it is there.

What is done is never computed again, so a grid that was interrupted (Ctrl-C, kill -9, a full
disk) goes on where it was when it is run again. A cell that fails is written with its error, and
the rest goes on. Several runs may fill one store at a time: each cell is computed by the one that
claims it first.
"""

import warnings
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing

from implicit_bias.runs.backends import Backend
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.grid import Grid, cell_key
from implicit_bias.runs.store import DamagedRecord, Record, Store, StoreError


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
        The store cannot be written: no space left, say; or the file of the data has changed. What
        was written before is kept.
    BackendError
        No worker can compute.
    """
    found = store.inventory(grid.by_key)
    for reason in found.damaged.values():
        warnings.warn(f"{reason}; the cell is computed again", stacklevel=2)
    settled = found.done.keys() | (set() if retry_failed else found.failed.keys())
    cells = {key: cell for key, cell in grid.by_key.items() if key not in settled}
    if not cells:
        return
    store.prepare()
    claimed = _Claimed(store, cells, found.failed)
    try:
        with closing(backend.run(claimed)) as outcomes:
            for cell, outcome in outcomes:
                if cell_key(cell) != claimed.held[cell]:
                    raise StoreError(f"{cell.data} changed while the grid ran: run it again")
                record = store.write(cell, outcome)
                claimed.release(cell)
                yield record
    finally:
        claimed.release(*claimed.held)


class _Claimed(Collection[RunConfig]):
    """Cells; iterated are those that are still to compute, each claimed when it is its turn.

    So a backend that takes one at a time leaves the others to other runs.
    """

    def __init__(
        self, store: Store, cells: Mapping[str, RunConfig], before: Mapping[str, Record]
    ) -> None:
        self.store, self.cells, self.before = store, cells, before
        self.held: dict[RunConfig, str] = {}

    def __len__(self) -> int:
        return len(self.cells)

    def __contains__(self, cell: object) -> bool:
        return cell in self.cells.values()

    def __iter__(self) -> Iterator[RunConfig]:
        left = self.cells
        for _ in range(2):  # at the end once more those that another run had: it may have died
            elsewhere = {}
            for key, cell in left.items():
                if not self.store.claim(key):
                    elsewhere[key] = cell
                    continue
                self.held[cell] = key
                if self._is_written(key):
                    self.release(cell)
                else:
                    yield cell
            left = elsewhere

    def release(self, *cells: RunConfig) -> None:
        for cell in cells:
            self.store.release(self.held.pop(cell))

    def _is_written(self, key: str) -> bool:
        """Whether another run has written a cell since this one began."""
        try:
            record = self.store.read(key)
        except DamagedRecord:
            return False
        return record is not None and record != self.before.get(key)
