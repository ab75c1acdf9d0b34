"""`implicit-bias status`: what a store has of a grid."""

from implicit_bias.cli.choices import open_grid
from implicit_bias.cli.options import DEFAULT_STORE, GridArgument, JsonOption, StoreOption
from implicit_bias.cli.output import print_json, print_table, show


def status(
    grid_file: GridArgument,
    store_folder: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> None:
    """Say which cells of a grid are done, failed (and why), damaged or missing."""
    grid, store = open_grid(grid_file, store_folder)
    from implicit_bias.runs.runner import inventory

    found = inventory(grid, store)
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
