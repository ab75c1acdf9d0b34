"""`implicit-bias export`: the results of a grid as tables."""

from pathlib import Path
from typing import Annotated

import typer

from implicit_bias.cli.choices import open_grid
from implicit_bias.cli.options import DEFAULT_STORE, GridArgument, JsonOption, StoreOption
from implicit_bias.cli.output import print_json, show, warn


def export(
    grid_file: GridArgument,
    store_folder: StoreOption = DEFAULT_STORE,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the tables.")] = Path(
        "implicit-bias-tables"
    ),
    as_json: JsonOption = False,
) -> None:
    """Write the results of a grid as Parquet and CSV: one row a cell, a model, and a pair."""
    grid, store = open_grid(grid_file, store_folder)
    from implicit_bias.runs.export import tables, write_tables
    from implicit_bias.runs.runner import inventory

    found = inventory(grid, store)
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
