"""`implicit-bias sweep`: compute the runs of a grid in parallel, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from implicit_bias.cli.options import Json
from implicit_bias.cli.output import err, percent, print_json, print_table, show, usage_errors

if TYPE_CHECKING:
    import pandas as pd


def sweep(
    grid_file: Annotated[
        Path,
        typer.Argument(help="TOML file: fields of a configuration, with a list for each axis."),
    ],
    folder: Annotated[
        Path,
        typer.Option("--out", help="Folder of the results: a file per run, and tables of all."),
    ] = Path("implicit-bias-sweep"),
    backend: Annotated[
        Literal["loky", "dask"],
        typer.Option(help="Where to compute: in processes of this machine, or on a Dask cluster."),
    ] = "loky",
    address: Annotated[
        str | None, typer.Option(help="Dask scheduler, such as tcp://10.0.0.1:8786.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes (default: one per core); a cluster uses all it has."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute all runs of a grid; after an interruption the same command continues."""
    if (backend == "dask") != (address is not None):
        raise typer.BadParameter("--backend dask and --address go together")
    if backend == "dask" and workers is not None:
        raise typer.BadParameter("--workers is for this machine: a Dask cluster uses all it has")
    from implicit_bias.runs import sweep as runs

    with usage_errors(ValueError, TypeError, OSError):
        axes = runs.read_grid(grid_file)
        cells = runs.keyed(runs.cells_of(axes))
        runs.check_folder(folder)
    missing = {key: cell for key, cell in cells.items() if not runs.cell_file(folder, key).exists()}
    varying = [name for name, values in axes.items() if len(values) > 1]
    failed: list[Path] = []
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=err, transient=not err.is_terminal) as bar,
        closing(runs.run_cells(missing, folder, workers=workers, address=address)) as finished,
    ):
        task = bar.add_task("runs", total=len(cells), completed=len(cells) - len(missing))
        for key, error in finished:
            bar.advance(task)
            if error is not None:
                failed.append(runs.error_file(folder, key))
                label = ", ".join(f"{name} {getattr(cells[key], name)}" for name in varying)
                bar.console.print(f"failed: {label or key}: {error}", markup=False, soft_wrap=True)
    frames = runs.write_results(folder, cells)
    if as_json:
        facts = {"cells": len(cells), "computed": len(missing), "failed": len(failed)}
        print_json({**facts, "folder": str(folder)})
    elif frames:
        # The table shows means over the seeds.
        shown = [name for name in varying if name not in ("seed", "split_seed")]
        _print_means(frames["models"], shown)
        show(f"Tables: {folder / 'models.parquet'}, {folder / 'pairs.parquet'}, and as .csv")
    if failed:
        raise RuntimeError(
            f"{len(failed)} of {len(cells)} runs failed; the files in {failed[0].parent} say why. "
            "The same command computes them again"
        )


def _print_means(models: pd.DataFrame, axes: Sequence[str]) -> None:
    """Print a row for each model and each value of the axes: means over seeds."""
    keys = [*axes, "model"]
    means = models.groupby(keys, sort=False, dropna=False).agg(
        cells=("cell", "size"), error=("validation_error", "mean"), excess=("excess", "mean")
    )
    rows = []
    for *names, cells, error, excess in means.reset_index().to_numpy().tolist():
        rows.append([*map(str, names), str(cells), percent(error), percent(excess)])
    print_table(*keys, "runs", "mean error", "mean excess", rows=rows)
