"""`implicit-bias trajectory`: the contexts that a ReLU network learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from implicit_bias.cli.choices import load_data
from implicit_bias.cli.options import JsonOption, numbers, takes_config
from implicit_bias.cli.output import err, out, percent, print_json
from implicit_bias.runs.configuration import RunConfig


@takes_config("Data", "units", "seed", "protocol", "Training", "Solver")
def trajectory(
    config: RunConfig,
    at: Annotated[
        str, typer.Option(help="Steps at which to take the gates, separated by commas.")
    ] = "0,10,30,100,300,1000,3200",
    folder: Annotated[Path, typer.Option("--out", help="Folder of table and picture.")] = Path(
        "implicit-bias-trajectory"
    ),
    as_json: JsonOption = False,
) -> None:
    """Follow the contexts that a ReLU network learns: SVM-LC along its training."""
    config = replace(config, models=("gd-relu", "svm-lc"))
    asked = numbers(at, "--at takes steps")
    chosen = tuple(step for step in asked if step <= config.steps)
    if not chosen:
        raise typer.BadParameter(f"--at names no step up to --steps {config.steps}: {at}")
    if len(chosen) < len(asked):
        warning = f"training ends at step {config.steps}; later ones are skipped"
        err.print(f"implicit-bias: warning: {warning}")
    data = load_data(config)
    import pandas as pd

    from implicit_bias.report.page import write_trajectory
    from implicit_bias.runs.trajectory import context_trajectory

    points = []
    for point in context_trajectory(config, data, chosen, progress=True):
        points.append(vars(point))
        picture = write_trajectory(folder, pd.DataFrame(points))
        err.print(f"gates of step {point.step} done", highlight=False)
    if as_json:
        print_json({"setting": config.metadata(), "points": points, "picture": picture})
    else:
        out.print(_trajectory_table(points))
        out.print(f"Picture: {picture}", soft_wrap=True, highlight=False)


def _trajectory_table(points: Sequence[Mapping[str, Any]]) -> Table:
    shares = {
        "gates changed": "gates_changed",
        "network error": "network_error",
        "SVM error": "error",
        "SVM vs network": "disagreement",
        "SVM vs its end": "disagreement_at_end",
    }
    table = Table("step", *shares, "optimum", "left out")
    for point in points:
        cells = [percent(point[key]) for key in shares.values()]
        table.add_row(str(point["step"]), *cells, f"{point['optimum']:.4g}", str(point["dropped"]))
    return table
