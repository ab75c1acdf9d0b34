"""The commands on a grid and its store.

================  ==========================================
sweep             compute the cells that the store lacks
status            what it has of the grid
export            its results as tables
================  ==========================================
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress

from implicit_bias.cli.options import JsonOption
from implicit_bias.cli.output import err, percent, print_json, print_table, show, usage_errors, warn

if TYPE_CHECKING:
    from implicit_bias.runs.backends import Backend
    from implicit_bias.runs.grid import Grid
    from implicit_bias.runs.store import Record, Store

GridArgument = Annotated[
    Path,
    typer.Argument(help="A .toml or .yaml file: fields of a configuration, a list for each axis."),
]
StoreOption = Annotated[Path, typer.Option("--store", help="Folder with one file a cell.")]
DEFAULT_STORE = Path("implicit-bias-sweep")
COLUMNS = (
    *("{task.description}", progress.BarColumn(), progress.MofNCompleteColumn()),
    *(progress.TimeElapsedColumn(), progress.TimeRemainingColumn()),
)


def _opened(file: Path, folder: Path) -> tuple[Grid, Store]:
    """Read a grid and open the store of its results, or refuse them."""
    from implicit_bias.runs.grid import Grid
    from implicit_bias.runs.store import Store, StoreError

    with usage_errors(ValueError, OSError, StoreError):
        return Grid.read(file), Store(folder)


def sweep(
    grid_file: GridArgument,
    store_folder: StoreOption = DEFAULT_STORE,
    processes: int | None = None,
    scheduler: str | None = None,
    retry: Annotated[bool, typer.Option("--retry")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compute the cells of a grid; run it again to go on where it was interrupted.

    Parameters
    ----------
    processes
        Processes on this machine (default: one a core).
    scheduler
        Dask scheduler to compute on, such as tcp://10.0.0.1:8786.
    retry
        Compute failed cells again.
    """
    grid, store = _opened(grid_file, store_folder)
    backend = _backend(processes, scheduler)
    from implicit_bias.runs.command import written
    from implicit_bias.runs.runner import run_grid

    before, computed = store.inventory(grid.by_key), 0
    settled = len(before.done) + (0 if retry else len(before.failed))
    labels = {key: grid.label(cell) for key, cell in grid.by_key.items()}
    try:
        with (
            closing(run_grid(grid, store, backend, retry_failed=retry)) as records,
            progress.Progress(*COLUMNS, console=err, transient=not err.is_terminal) as bar,
        ):
            task = bar.add_task(f"cells on {backend.name}", total=len(labels), completed=settled)
            for computed, record in enumerate(records, 1):
                line = f"{computed}: {labels[record.key]}; {_words(record)}"
                bar.console.print(line, highlight=False, soft_wrap=True, markup=False)
                bar.advance(task)
    except KeyboardInterrupt:
        err.print("finished cells are kept: the same command goes on from there")
        raise
    found = store.inventory(grid.by_key)
    facts = {
        "cells": len(grid.cells),
        "computed": computed,
        "done": len(found.done),
        "failed": len(found.failed),
        "store": str(store.folder),
    }
    if as_json:
        print_json(facts)
    else:
        show(", ".join(f"{name} {value}" for name, value in facts.items()))
    if found.failed:
        raise RuntimeError(
            f"{len(found.failed)} cells failed: "
            f"`{written('status', grid_file, '--store', store.folder)}` says why, and "
            "`sweep --retry` computes them again"
        )
    if left := len(found.missing) + len(found.damaged):
        raise RuntimeError(
            f"{left} cells are still computed by another sweep of this store: the same command "
            "computes what that leaves"
        )


def _backend(processes: int | None, scheduler: str | None) -> Backend:
    if processes is not None and scheduler is not None:
        raise typer.BadParameter("--processes is for this machine: leave it out with --scheduler")
    from implicit_bias.runs.backends import DaskScheduler, LocalProcesses

    with usage_errors():
        return LocalProcesses(processes) if scheduler is None else DaskScheduler(scheduler)


def _words(record: Record) -> str:
    """Say in a line what came of a cell."""
    outcome = record.outcome
    found = (f"{row['model']} {percent(row['validation_error'])}" for row in outcome.models)
    what = outcome.error or ", ".join(found)
    return f"{outcome.status}; {outcome.seconds:.1f} s; {what}"


def status(
    grid_file: GridArgument,
    store_folder: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Say which cells of a grid are done, failed (and why), damaged or missing."""
    grid, store = _opened(grid_file, store_folder)

    found = store.inventory(grid.by_key)
    cells = grid.by_key
    failed = {grid.label(cells[key]): item.outcome.error for key, item in found.failed.items()}
    if as_json:
        counts = {"cells": len(cells), "done": len(found.done), "missing": len(found.missing)}
        print_json({**counts, "failed": failed, "damaged": list(found.damaged.values())})
        return
    counted = (cells, found.done, found.failed, found.damaged, found.missing)
    numbers = [str(len(items)) for items in counted]
    print_table("cells", "done", "failed", "damaged", "missing", rows=[numbers])
    if failed:
        print_table("failed cell", "error", rows=[(name, str(why)) for name, why in failed.items()])
    for reason in found.damaged.values():
        show(f"{reason}; `sweep` computes the cell again")


def export(
    grid_file: GridArgument,
    store_folder: StoreOption = DEFAULT_STORE,
    folder: Annotated[Path, typer.Option("--out")] = Path("implicit-bias-tables"),
    as_json: JsonOption = False,
) -> None:
    """Write the results of a grid as Parquet and CSV: one row a cell, a model, and a pair.

    Parameters
    ----------
    folder
        Folder of the tables.
    """
    grid, store = _opened(grid_file, store_folder)
    from implicit_bias.base.atomic import write_tables
    from implicit_bias.runs.export import tables

    found = store.inventory(grid.by_key)
    recorded = {**found.done, **found.failed}
    if not recorded:
        raise RuntimeError(f"{store.folder} has no cell of {grid_file}: run `sweep` first")
    if absent := len(found.missing) + len(found.damaged):
        warn(f"{absent} cells have no results yet")
    frames = tables(recorded[key] for key in grid.by_key if key in recorded)
    files = write_tables(folder, frames)
    if as_json:
        rows = {name: len(frame) for name, frame in frames.items()}
        print_json({"rows": rows, "files": list(map(str, files))})
        return
    for name, frame in frames.items():
        show(f"{folder / name}: {len(frame)} rows (.parquet, .csv)")
