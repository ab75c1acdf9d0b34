"""`implicit-bias report`: the report of a comparison again, from its saved models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from implicit_bias.cli.choices import load_data
from implicit_bias.cli.folder import SETTING_FILE, model_file, print_comparison, write_page
from implicit_bias.cli.options import (
    JsonOption,
)
from implicit_bias.cli.output import bad_use

if TYPE_CHECKING:
    from implicit_bias.runs.configuration import Setting


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that compare wrote.")] = Path(
        "implicit-bias-report"
    ),
    as_json: JsonOption = False,
) -> None:
    """Write the report of a comparison again from its saved models."""
    from implicit_bias.runs.configuration import Setting
    from implicit_bias.saved_models import load_model

    setting_file = folder / SETTING_FILE
    if not setting_file.is_file():
        raise typer.BadParameter(f"{folder} holds no {SETTING_FILE}: give a folder of `compare`")
    with bad_use():
        setting = Setting.from_facts(json.loads(setting_file.read_text()))
    files = {name: model_file(folder, name) for name in setting.models}
    saved = {name: load_model(file) for name, file in files.items() if file.is_file()}
    # An interrupted run leaves the models of the run before it.
    found = {name: item.model for name, item in saved.items() if _is_of(item.facts, setting)}
    if not found:
        raise typer.BadParameter(
            f"{folder} holds no finished model of its setting: run `compare` again"
        )
    data = load_data(setting)
    comparison, page = write_page(folder, setting, data, found)
    print_comparison(comparison, page, setting, as_json)


def _is_of(facts: Mapping[str, Any], setting: Setting) -> bool:
    return type(setting).from_facts(facts) == setting
