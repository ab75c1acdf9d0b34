"""`implicit-bias status`: what a store has of a grid."""

from __future__ import annotations

from rich.table import Table

from implicit_bias.cli.choices import open_grid
from implicit_bias.cli.options import DEFAULT_STORE, GridArgument, JsonOption, StoreOption
from implicit_bias.cli.output import out, print_json


def status(
    grid_file: GridArgument,
    store_folder: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Say which cells of a grid are done, failed (and why), damaged or missing."""
    grid, store = open_grid(grid_file, store_folder)
    from implicit_bias.runs.runner import inventory

    found = inventory(grid, store)
    cells = grid.by_key()
    failed = {grid.label(cells[key]): item.outcome.error for key, item in found.failed.items()}
    if as_json:
        print_json(
            {
                "cells": len(cells),
                "done": len(found.done),
                "missing": len(found.missing),
                "failed": failed,
                "damaged": list(found.damaged.values()),
            }
        )
        return
    counts = Table("cells", "done", "failed", "damaged", "missing")
    numbers = (cells, found.done, found.failed, found.damaged, found.missing)
    counts.add_row(*(str(len(number)) for number in numbers))
    out.print(counts)
    if failed:
        table = Table("failed cell", "error")
        for label, error in failed.items():
            table.add_row(label, error)
        out.print(table)
    for reason in found.damaged.values():
        out.print(f"{reason}; `sweep` computes the cell again", soft_wrap=True, markup=False)
