"""From what the user chose to a setting and its data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from implicit_bias.cli.output import bad_use

if TYPE_CHECKING:
    from implicit_bias.runs.configuration import Data, Setting
    from implicit_bias.runs.grid import Grid
    from implicit_bias.runs.store import Store


def make_setting(*, positive: str | None, negative: str | None, **choices: Any) -> Setting:
    """Return the setting of the user's choices, or refuse them; digits are as they were typed."""
    from implicit_bias.runs.configuration import Setting

    positives, negatives = _digits(positive), _digits(negative)
    with bad_use():
        return Setting(positive=positives, negative=negatives, **choices)


def load_data(setting: Setting) -> Data:
    """Load the data of a setting, or refuse what the user asked of them."""
    from implicit_bias.runs.configuration import load_data

    with bad_use():
        return load_data(setting)


def open_grid(file: Path, folder: Path) -> tuple[Grid, Store]:
    """Read a grid and open the store of its results, or refuse them."""
    from implicit_bias.runs.grid import Grid
    from implicit_bias.runs.store import Store, StoreError

    try:
        return Grid.read(file), Store(folder)
    except (ValueError, OSError, StoreError) as error:
        raise typer.BadParameter(str(error)) from error


def _digits(text: str | None) -> tuple[int, ...] | None:
    """Read the digits of a class."""
    return None if text is None else numbers(text, "classes are digits")


def numbers(text: str, what: str) -> tuple[int, ...]:
    """Read numbers separated by commas; ``what`` begins the sentence that refuses others."""
    if not all(number.strip().isdecimal() for number in text.split(",")):
        raise typer.BadParameter(f"{what} separated by commas, such as 0,1,2; got {text!r}")
    return tuple(int(number) for number in text.split(","))


def check_kind(model: str, *, trained: bool) -> None:
    """Refuse a model of the other kind: `fit` takes SVMs, `train` networks."""
    from implicit_bias.runs.configuration import MODEL_NAMES

    known = [name for name in MODEL_NAMES if name.startswith("svm-") is not trained]
    if model not in known:
        other = "fit" if trained else "train"
        raise typer.BadParameter(
            f"the model must be one of {', '.join(known)}; got {model!r} (see also: {other})"
        )
