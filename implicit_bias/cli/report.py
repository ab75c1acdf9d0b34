"""`implicit-bias report`: the report of a comparison again, from its saved models."""

from pathlib import Path
from typing import Annotated

import typer

from implicit_bias.cli.choices import load_data
from implicit_bias.cli.compare import print_comparison
from implicit_bias.cli.options import JsonOption
from implicit_bias.cli.output import usage_errors


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that compare wrote.")] = Path(
        "implicit-bias-report"
    ),
    as_json: JsonOption = False,
) -> None:
    """Write the report of a comparison again from its saved models."""
    from implicit_bias.runs.comparison_folder import FolderError, read_comparison, write_comparison

    with usage_errors(FolderError):
        config, models = read_comparison(folder)
    comparison, page = write_comparison(folder, config, load_data(config), models)
    print_comparison(comparison, page, config, as_json)
