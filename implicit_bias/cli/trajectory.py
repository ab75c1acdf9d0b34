"""`implicit-bias trajectory`: the contexts that a ReLU network learns."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from implicit_bias.cli.options import JsonOption, load_data, numbers, takes_config
from implicit_bias.cli.output import err, numbered, percent, print_json, print_table, show, warn
from implicit_bias.runs.configuration import RunConfig

COLUMNS = {
    "step": "step",
    "gates_changed": "gates changed",
    "gates_left": "gates to change",
    "network_error": "network error",
    "error": "SVM error",
    "disagreement": "SVM vs network",
    "disagreement_at_end": "SVM vs its end",
    "optimum": "optimum",
    "dropped": "left out",
}


@takes_config("Data", "units", "seed", "Training", "Solver")
def trajectory(
    config: RunConfig,
    at: str = "0,10,30,100,300,1000,3200",
    folder: Annotated[Path, typer.Option("--out")] = Path("implicit-bias-trajectory"),
    as_json: JsonOption = False,
) -> None:
    """Follow the contexts that a ReLU network learns: SVM-LC along its training.

    Parameters
    ----------
    at
        Steps at which to take the gates, separated by commas.
    folder
        Folder of table and picture.
    """
    config = replace(config, models=("gd-relu", "svm-lc"))
    asked = numbers(at, "--at takes steps")
    chosen = tuple(step for step in asked if step <= config.steps)
    if not chosen:
        raise typer.BadParameter(f"--at names no step up to --steps {config.steps}: {at}")
    if len(chosen) < len(asked):
        warn(f"training ends at step {config.steps}; later ones are skipped")
    data = load_data(config)
    import pandas as pd

    from implicit_bias.base.atomic import free_path, make_folder
    from implicit_bias.report.page import write_trajectory
    from implicit_bias.runs.trajectory import context_trajectory

    free = partial(free_path, taken=lambda there: (there / "trajectory.csv").exists())
    folder = numbered(folder, free)
    make_folder(folder)  # before the training, not after it
    points = []
    for point in context_trajectory(config, data, chosen, progress=True):
        points.append(vars(point))
        picture = write_trajectory(folder, pd.DataFrame(points))
        err.print(f"gates of step {point.step} done", highlight=False)
    if as_json:
        print_json({"setting": config.metadata(), "points": points, "picture": picture})
    else:
        rows = [[_cell(name, point[name]) for name in COLUMNS] for point in points]
        print_table(*COLUMNS.values(), rows=rows)
        show(f"Picture: {picture}")


def _cell(name: str, value: float) -> str:
    if name in ("step", "dropped"):
        return str(value)
    return f"{value:.4g}" if name == "optimum" else percent(value)
