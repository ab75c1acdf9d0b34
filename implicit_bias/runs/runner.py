"""Run a grid: compute the cells that a store lacks, and write each as soon as it is there.

What is done is never computed again, so a grid that was interrupted (Ctrl-C, kill -9, a full
disk) goes on where it was when it is run again. A cell that fails is written with its error, and
the rest goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import closing

from implicit_bias._deprecated import renamed
from implicit_bias.runs.backends import Backend
from implicit_bias.runs.grid import Grid
from implicit_bias.runs.store import Inventory, Record, Store


def inventory(grid: Grid, store: Store) -> Inventory:
    """Return what a store has of a grid."""
    return store.inventory(grid.by_key())


def run_grid(
    grid: Grid, store: Store, backend: Backend, *, retry_failed: bool = False
) -> Generator[Record, None, None]:
    """Compute the cells of a grid that are neither done nor, unless asked for, failed.

    A damaged record warns, and its cell is computed again.

    Parameters
    ----------
    grid : Grid
        The cells.
    store : Store
        Where their records are and will be; only this process writes to it.
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
    found = inventory(grid, store)
    for reason in found.damaged.values():
        warnings.warn(f"{reason}; the cell is computed again", stacklevel=2)
    settled = found.done.keys() | (set() if retry_failed else found.failed.keys())
    cells = tuple(cell for key, cell in grid.by_key().items() if key not in settled)
    if not cells:
        return
    store.prepare()
    with closing(backend.run(cells)) as outcomes:
        for cell, outcome in outcomes:
            yield store.write(cell, outcome)


__getattr__ = renamed(__name__, {"take_stock": "runs.runner.inventory"})
