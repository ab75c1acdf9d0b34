"""`implicit-bias sweep`: compute the cells of a grid that its store lacks."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from implicit_bias.cli.choices import open_grid
from implicit_bias.cli.options import DEFAULT_STORE, GridArgument, JsonOption, StoreOption
from implicit_bias.cli.output import err, percent, print_json, show, usage_errors

if TYPE_CHECKING:
    from implicit_bias.runs.backends import Backend
    from implicit_bias.runs.grid import Grid
    from implicit_bias.runs.store import Record

# Rows of the live table.
RECENT = 10


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
    from implicit_bias.runs.runner import inventory, run_grid

    before = inventory(grid, store)
    settled = len(before.done) + (0 if retry else len(before.failed))
    view = _View(grid, settled, backend.name)
    records = run_grid(grid, store, backend, retry_failed=retry)
    try:
        with (
            closing(records),
            Live(view.picture(), console=err, transient=not err.is_terminal) as live,
        ):
            for record in records:
                view.add(record)
                live.update(view.picture())
                if not err.is_terminal:  # a log wants lines, not a picture
                    live.console.print(view.line(record), highlight=False, soft_wrap=True)
    except KeyboardInterrupt:
        err.print("finished cells are kept: the same command goes on from there")
        raise
    found = inventory(grid, store)
    facts = {
        "cells": len(grid.cells()),
        "computed": view.computed,
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
            f"{len(found.failed)} cells failed: `implicit-bias status {grid_file} --store "
            f"{store.folder}` says why, and `sweep --retry` computes them again"
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


class _View:
    """What is shown of a sweep while it runs."""

    def __init__(self, grid: Grid, settled: int, where: str) -> None:
        self.grid, self.where = grid, where
        self.labels = {key: grid.label(cell) for key, cell in grid.by_key().items()}
        self.computed = 0
        self.recent: deque[Record] = deque(maxlen=RECENT)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=err,
        )
        self.task = self.bar.add_task("cells", total=len(self.labels), completed=settled)

    def add(self, record: Record) -> None:
        """Take in a record that was just written."""
        self.computed += 1
        self.recent.append(record)
        self.bar.advance(self.task)

    def picture(self) -> Group:
        """Return the table of the last cells, and the bar."""
        table = Table("cell", "status", "seconds", "validation errors", title=f"on {self.where}")
        for record in self.recent:
            table.add_row(*self._words(record))
        return Group(table, self.bar)

    def line(self, record: Record) -> str:
        """Return a record as a line of a log."""
        return f"{self.computed}: {'; '.join(self._words(record))}"

    def _words(self, record: Record) -> tuple[str, str, str, str]:
        outcome = record.outcome
        found = (f"{row['model']} {percent(row['validation_error'])}" for row in outcome.models)
        what = outcome.error or ", ".join(found)
        return self.labels[record.key], outcome.status, f"{outcome.seconds:.1f}", what
