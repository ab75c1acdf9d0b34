"""Options that several commands share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DatasetOption = Annotated[
    str, typer.Option(help="digits, mnist, fashion-mnist, xor, circles, moons, spirals, blobs.")
]
PositiveOption = Annotated[
    str | None, typer.Option(help="Digits of the class +1, such as 0,1,2 (default 0,1,2,3,4).")
]
NegativeOption = Annotated[
    str | None, typer.Option(help="Digits of the class -1, such as 7,8 (default 5,6,7,8,9).")
]
TrainSizeOption = Annotated[
    int | None, typer.Option(help="Training samples (default 1000, at most 4/5 of the data).")
]
UnitsOption = Annotated[int, typer.Option(help="Hidden units H.")]
HyperplanesOption = Annotated[int, typer.Option(help="Hyperplanes a unit, k: C = 2^k contexts.")]
ThresholdOption = Annotated[str, typer.Option(help="Thresholds: median, random or zero.")]
SeedOption = Annotated[int, typer.Option(help="Seed of gates, weights and batches.")]
SplitSeedOption = Annotated[int, typer.Option(help="Seed of the training/validation split.")]
ProtocolOption = Annotated[
    str, typer.Option(help="default, or lippl2022: the published split, draws and training.")
]
SoftOption = Annotated[float, typer.Option("--C", help="Weight of the hinge loss; inf: hard.")]
FailureOption = Annotated[
    str,
    typer.Option(
        help="Where samples are not separable: warn; soft (solve the soft margin); or drop (the "
        "samples that the soft margin misclassifies)."
    ),
]
SoftCOption = Annotated[
    float | None,
    typer.Option(
        "--soft-C",
        help="C of the soft margin that soft and drop solve (default 100 / rms feature norm).",
    ),
]
StepsOption = Annotated[int, typer.Option(help="Gradient steps.")]
BatchSizeOption = Annotated[int, typer.Option(help="Samples a step; 0 for all.")]
LearningRateOption = Annotated[float, typer.Option(help="Step size; a quarter from half way.")]
MomentumOption = Annotated[float, typer.Option(help="Momentum of gradient descent.")]
SolverOption = Annotated[
    str,
    typer.Option(
        help="auto, interior-point, working-set, active-set, ecos, osqp, clarabel or scs."
    ),
]
TolOption = Annotated[float, typer.Option(help="Relative gap between the certified bounds.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output.")
]
GridArgument = Annotated[
    Path, typer.Argument(help="A .toml or .yaml file: fields of a setting, a list for each axis.")
]
StoreOption = Annotated[Path, typer.Option("--store", help="Folder with one file a cell.")]
DEFAULT_STORE = Path("implicit-bias-sweep")
