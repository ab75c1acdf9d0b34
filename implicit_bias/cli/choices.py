"""What the user chose, loaded or refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from implicit_bias.cli.output import err, usage_errors
from implicit_bias.runs.configuration import MODEL_NAMES, RunConfig

if TYPE_CHECKING:
    from implicit_bias.runs.data import Data
    from implicit_bias.runs.grid import Grid
    from implicit_bias.runs.store import Store

SVM_NAMES = tuple(name for name in MODEL_NAMES if name.startswith("svm-"))
NETWORK_NAMES = tuple(name for name in MODEL_NAMES if name not in SVM_NAMES)


def load_data(config: RunConfig) -> Data:
    """Load the data of a configuration, or refuse what the user asked of them."""
    from implicit_bias.runs.data import load_data

    with usage_errors():
        data = load_data(config)
    if config.data is not None:
        own = data.everything
        scaled = (
            ", scaled to mean 0 and variance 1 over the training samples, which changes the "
            "geometry (--no-standardize leaves them as they are)"
        )
        err.print(
            f"{own.name}: {len(own)} samples of {own.n_features} inputs, the constant 1 included"
            f"{scaled if config.standardize else ''}",
            highlight=False,
            markup=False,
        )
    return data


def open_grid(file: Path, folder: Path) -> tuple[Grid, Store]:
    """Read a grid and open the store of its results, or refuse them."""
    from implicit_bias.runs.grid import Grid
    from implicit_bias.runs.store import Store, StoreError

    with usage_errors(ValueError, OSError, StoreError):
        return Grid.read(file), Store(folder)


def check_model(model: str, known: tuple[str, ...], other: str) -> None:
    """Refuse a model of the other kind, which the command ``other`` takes."""
    if model not in known:
        raise typer.BadParameter(
            f"the model must be one of {', '.join(known)}; got {model!r} (see also: {other})"
        )
