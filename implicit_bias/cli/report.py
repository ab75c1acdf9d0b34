"""`implicit-bias report`: the report of a comparison again, from its saved models."""

from pathlib import Path
from typing import Annotated

import typer

from implicit_bias.cli.compare import print_comparison
from implicit_bias.cli.options import JsonOption, load_data
from implicit_bias.cli.output import usage_errors, warn


def report(
    folder: Annotated[Path, typer.Argument()] = Path("implicit-bias-report"),
    networks: Annotated[
        list[Path] | None, typer.Option("--network", exists=True, dir_okay=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a comparison again from its saved models.

    Parameters
    ----------
    folder
        A folder that compare wrote.
    networks
        A saved network of the same data and gates to compare as well, such as one that train
        --until-excess wrote; more than once for more.
    """
    from implicit_bias.runs.comparison_folder import FolderError, read_comparison, write_comparison

    with usage_errors(FolderError):
        config, models = read_comparison(folder, networks or ())
    if missing := [name for name in config.models if name not in models]:
        warn(f"left out, not finished or not of this comparison: {', '.join(missing)}")
    comparison, page = write_comparison(
        folder, config, load_data(config), models, networks=networks or ()
    )
    print_comparison(comparison, page, config, as_json)
