"""`implicit-bias sweep`: compute the cells of a grid that its store lacks."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer
from rich import progress

from implicit_bias.cli.choices import open_grid
from implicit_bias.cli.options import DEFAULT_STORE, GridArgument, JsonOption, StoreOption
from implicit_bias.cli.output import err, percent, print_json, show, usage_errors

if TYPE_CHECKING:
    from implicit_bias.runs.backends import Backend
    from implicit_bias.runs.store import Record

COLUMNS = (
    *("{task.description}", progress.BarColumn(), progress.MofNCompleteColumn()),
    *(progress.TimeElapsedColumn(), progress.TimeRemainingColumn()),
)


def sweep(
    grid_file: GridArgument,
    store_folder: StoreOption = DEFAULT_STORE,
    processes: Annotated[
        int | None, typer.Option(help="Processes on this machine (default: one a core).")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Dask scheduler to compute on, such as tcp://10.0.0.1:8786.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Compute failed cells again.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compute the cells of a grid; run it again to go on where it was interrupted."""
    grid, store = open_grid(grid_file, store_folder)
    backend = _backend(processes, scheduler)
    from implicit_bias.runs.command import written
    from implicit_bias.runs.runner import inventory, run_grid

    before, computed = inventory(grid, store), 0
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
    found = inventory(grid, store)
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
