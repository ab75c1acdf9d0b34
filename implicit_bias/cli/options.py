"""Options of the commands that make a configuration: a type and a help text for each field.

A command names the fields that it takes in its signature, with the defaults of `RunConfig`, and
`configuration` makes a `RunConfig` of what the user chose.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from implicit_bias.base.options import (
    DATASET_NAMES,
    NORM_NAMES,
    OPTIMIZER_LIMITS,
    SOLVER_NAMES,
)
from implicit_bias.cli.output import err, usage_errors, warn
from implicit_bias.runs.configuration import MODEL_NAMES, RunConfig

if TYPE_CHECKING:
    from implicit_bias.runs.data import Data

NETWORK_NAMES = tuple(name for name in MODEL_NAMES if not name.startswith("svm-"))
# `RunConfig.models` as it is typed.
MODELS = ",".join(RunConfig.models)


def _limits_of_optimizers() -> str:
    """Name for each optimizer the norm whose margin it maximizes, if any."""
    found = []
    for name, limit in OPTIMIZER_LIMITS.items():
        words = limit.norm
        if limit.constrained:
            words = f"no margin (weight decay: the loss is minimized in an {limit.norm} box)"
        found.append(f"{name}: {words}")
    return ", ".join(found)


def _option(group: str, help: str, *flags: str, **how: Any) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=group, **how)


def _names(text: str) -> tuple[str, ...]:
    """Split names that are separated by commas."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def _labels(text: str) -> tuple[int, ...] | tuple[str, ...]:
    """Split labels of classes: numbers, where all are, or names.

    A number that is written otherwise, such as 01, may be the name of a class.
    """
    names = _names(text)
    if all(name.isdecimal() and name == str(int(name)) for name in names):
        return tuple(int(name) for name in names)
    return names


class Names(tuple[str, ...]):
    """What `_names` and `_labels` return: typer takes a class for the type of one option."""


# --- data --------------------------------------------------------------------------------------

Dataset = Annotated[str, _option("Data", f"Built-in data set. One of: {', '.join(DATASET_NAMES)}.")]
Table = Annotated[
    str | None,
    _option("Data", "Your table, instead of a built-in data set: CSV, TSV or Parquet.", "--data"),
]
Target = Annotated[str | None, _option("Data", "Column of the table that holds the labels.")]
Positive = Annotated[
    Names | None,
    _option(
        "Data",
        "Classes labelled +1, such as 0,1,2 or sneaker (default: 0,1,2,3,4; the second of two).",
        parser=_labels,
        metavar="CLASSES",
    ),
]
Negative = Annotated[
    Names | None,
    _option(
        "Data",
        "Classes labelled -1, such as 7,8 (default: 5,6,7,8,9; all others where names are given).",
        parser=_labels,
        metavar="CLASSES",
    ),
]
Classes = Annotated[
    Names | None,
    _option(
        "Data",
        "Instead of two classes, these, such as 0,1,2 or sneaker,bag,coat; or all.",
        parser=_labels,
        metavar="CLASSES",
    ),
]
Identifiers = Annotated[
    Names,
    _option(
        "Data",
        "Identifier columns, such as name,remark: not used as inputs, copied to predictions.csv.",
        "--id",
        parser=_names,
        metavar="COLUMNS",
    ),
]
Missing = Annotated[
    str,
    _option(
        "Data",
        "Rows with a missing value: refuse them, drop them, or fill in the median of the training "
        "samples. Rows without a label are left out by drop and median. One of: refuse, drop, "
        "median.",
    ),
]
Standardize = Annotated[
    bool | None,
    _option(
        "Data",
        "Scale each input to mean 0 and variance 1 over the training samples (default: numbers of "
        "a table are scaled, a built-in data set is not).",
        "--standardize/--no-standardize",
    ),
]
TrainSize = Annotated[
    int | None,
    _option(
        "Data",
        "Training samples N (default: 1000, at most 4/5 of the data). Another fifth of the same "
        "data are the test samples; of MNIST and Fashion-MNIST the data are the published "
        "training set.",
    ),
]
SplitSeed = Annotated[int, _option("Data", "Seed of the split into training and test samples.")]

# --- models and architecture -------------------------------------------------------------------

Models = Annotated[
    Names,
    _option(
        "Models",
        f"Models to compare, separated by commas. Of: {', '.join(MODEL_NAMES)}.",
        parser=_names,
        metavar="MODELS",
    ),
]
Units = Annotated[int, _option("Architecture", "Hidden units H.")]
Hyperplanes = Annotated[
    int, _option("Architecture", "Hyperplanes per unit, k: each unit has C = 2^k contexts.")
]
Threshold = Annotated[
    str,
    _option("Architecture", "Thresholds of the hyperplanes. One of: median, random, zero."),
]
Seed = Annotated[int, _option("Architecture", "Seed of gates, weights and batches.")]

# --- hard and soft margins ---------------------------------------------------------------------

C = Annotated[
    float,
    _option(
        "Margin",
        "Weight of the hinge loss; inf is the hard margin. Where samples are not separable and "
        "--on-failure is soft: 100 over the root mean square of the feature norms.",
        "--C",
    ),
]
OnFailure = Annotated[
    str | None,
    _option(
        "Margin",
        "Where samples are not separable: raise an error, warn and keep the proof, solve a soft "
        "margin, or drop the samples that it misclassifies (default: soft for a table, warn for a "
        "built-in data set). One of: raise, warn, soft, drop.",
    ),
]
# --- training ----------------------------------------------------------------------------------

Steps = Annotated[int, _option("Training", "Gradient steps.")]
BatchSize = Annotated[int | None, _option("Training", "Samples per step; 0 for all.")]
LearningRate = Annotated[
    float, _option("Training", "Step size, divided by 4 after half of the steps.")
]
Momentum = Annotated[float, _option("Training", "Momentum of gradient descent.")]
Optimizer = Annotated[
    str,
    _option(
        "Training",
        f"One of (with the norm whose margin it maximizes on separable data): "
        f"{_limits_of_optimizers()}.",
    ),
]

# --- solver, and what the commands share -------------------------------------------------------

Solver = Annotated[
    str, _option("Solver", f"Solver of the SVMs. One of: {', '.join(SOLVER_NAMES)}.")
]
Tolerance = Annotated[
    float, _option("Solver", "Relative gap between the certified bounds.", "--tol")
]
Device = Annotated[str, _option("Solver", "Where torch computes, such as cpu, cuda or cuda:1.")]
Norm = Annotated[
    str | None,
    typer.Option(
        help="Norm of a training to the limit; l2, the default, is that of gradient descent. "
        f"One of: {', '.join(NORM_NAMES)}."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def _network(model: str) -> str:
    """Refuse a model that is no network."""
    if model not in NETWORK_NAMES:
        raise typer.BadParameter(
            f"the model must be one of {', '.join(NETWORK_NAMES)}; got {model!r} (compare solves "
            "SVMs)"
        )
    return model


NetworkName = Annotated[
    str, typer.Argument(help=f"One of: {', '.join(NETWORK_NAMES)}.", callback=_network)
]
ModelFile = Annotated[Path | None, typer.Option("--out", help="File (MODEL.joblib).")]


def configuration(context: typer.Context, **others: Any) -> RunConfig:
    """Return the configuration that the options of a command, and other fields, make."""
    chosen = dict(others)
    for field in fields(RunConfig):
        if field.name in context.params:
            chosen[field.name] = context.params[field.name]
    with usage_errors():
        return RunConfig(**chosen)


def load_data(config: RunConfig) -> Data:
    """Load the data of a configuration, or refuse what the user asked of them."""
    from implicit_bias.runs.data import load_data, rows_left_out

    with usage_errors():
        data = load_data(config)
    if data.table is None:
        return data
    name = data.everything.name
    said = (
        f"{name}: {len(data.everything)} samples of {data.parts.train.n_features} inputs, the "
        "constant 1 included"
    )
    if config.standardize:
        said += (
            ", numbers scaled to mean 0 and variance 1 over the training samples, which changes "
            "the margin (--no-standardize leaves them as they are)"
        )
    err.print(said, highlight=False, markup=False)
    left_out = rows_left_out(data.table)
    if left_out:
        warn(f"{name}: left out {left_out}")
    return data
