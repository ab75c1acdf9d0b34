"""`implicit-bias trajectory`: the contexts that a ReLU network learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from implicit_bias.cli.choices import load_data, make_setting, numbers
from implicit_bias.cli.options import (
    BatchSizeOption,
    DatasetOption,
    DeviceOption,
    JsonOption,
    LearningRateOption,
    MomentumOption,
    NegativeOption,
    PositiveOption,
    ProtocolOption,
    SeedOption,
    SolverOption,
    SplitSeedOption,
    StepsOption,
    TolOption,
    TrainSizeOption,
    UnitsOption,
)
from implicit_bias.cli.output import err, out, percent, print_json


def trajectory(
    dataset: DatasetOption = "digits",
    positive: PositiveOption = None,
    negative: NegativeOption = None,
    train_size: TrainSizeOption = None,
    units: UnitsOption = 20,
    seed: SeedOption = 1,
    split_seed: SplitSeedOption = 1,
    protocol: ProtocolOption = "default",
    steps: StepsOption = 3200,
    batch_size: BatchSizeOption = 128,
    learning_rate: LearningRateOption = 0.04,
    momentum: MomentumOption = 0.9,
    at: Annotated[
        str, typer.Option(help="Steps at which to take the gates, separated by commas.")
    ] = "0,10,30,100,300,1000,3200",
    solver: SolverOption = "auto",
    tol: TolOption = 1e-6,
    device: DeviceOption = "cpu",
    folder: Annotated[Path, typer.Option("--out", help="Folder of table and picture.")] = Path(
        "implicit-bias-trajectory"
    ),
    as_json: JsonOption = False,
) -> None:
    """Follow the contexts that a ReLU network learns: SVM-LC along its training."""
    setting = make_setting(
        dataset=dataset,
        positive=positive,
        negative=negative,
        train_size=train_size,
        models=("gd-relu", "svm-lc"),
        units=units,
        seed=seed,
        split_seed=split_seed,
        protocol=protocol,
        steps=steps,
        batch_size=batch_size or None,
        learning_rate=learning_rate,
        momentum=momentum,
        solver=solver,
        tol=tol,
        device=device,
    )
    asked = numbers(at, "--at takes steps")
    chosen = tuple(step for step in asked if step <= steps)
    if not chosen:
        raise typer.BadParameter(f"--at names no step up to --steps {steps}: {at}")
    if len(chosen) < len(asked):
        err.print(f"implicit-bias: warning: training ends at step {steps}; later ones are skipped")
    data = load_data(setting)
    import pandas as pd

    from implicit_bias.report.page import write_trajectory
    from implicit_bias.runs.trajectory import context_trajectory

    points = []
    for point in context_trajectory(setting, data, chosen, progress=True):
        points.append(vars(point))
        picture = write_trajectory(folder, pd.DataFrame(points))
        err.print(f"gates of step {point.step} done", highlight=False)
    if as_json:
        print_json({"setting": setting.facts(), "points": points, "picture": str(picture)})
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
