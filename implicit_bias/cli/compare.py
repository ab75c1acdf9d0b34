"""`implicit-bias compare`: train networks, solve the SVMs, compare, write a report."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from implicit_bias.cli import output
from implicit_bias.cli.interruption import INTERRUPTED
from implicit_bias.cli.options import JsonOption, load_data, takes_config
from implicit_bias.runs.configuration import RunConfig

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison


@takes_config("Data", "Models", "Architecture", "Margin", "Training", "Solver")
def compare(
    config: RunConfig,
    folder: Annotated[Path, typer.Option("--out")] = Path("implicit-bias-report"),
    to_limit: Annotated[bool, typer.Option("--to-limit")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train networks, solve the SVMs they should become, compare, and write a report.

    Nothing is overwritten: where the folder holds another report, the next number is added.

    Parameters
    ----------
    folder
        Folder of the report and the tables.
    to_limit
        Train the GLN on as well, in float64 and without a bias, until its norm is at most 1 % above
        the smallest possible, and compare it, too.
    """
    data = load_data(config)
    from implicit_bias.base.atomic import make_folder
    from implicit_bias.runs import comparison_folder
    from implicit_bias.runs.models import ModelFactory

    folder = output.numbered(folder, comparison_folder.free_folder)
    make_folder(folder)  # before the training, not after it
    fitted = {}
    with output.training_bar() as bar:
        for name, model in ModelFactory(config, data, on_progress=bar).fit():
            fitted[name] = model
            output.err.print(f"[bold]{name}[/] done", highlight=False)
        models = {name: fitted[name] for name in config.models}
        if to_limit:
            models |= comparison_folder.train_further(config, data, bar)
    option = " --to-limit" if to_limit else ""
    comparison, page = comparison_folder.write_comparison(folder, config, data, models, option)
    print_comparison(comparison, page, config, as_json)
    if any(model.interrupted for model in comparison.models):
        raise typer.Exit(INTERRUPTED)


def print_comparison(comparison: Comparison, page: Path, config: RunConfig, as_json: bool) -> None:
    """Print the tables of a comparison, or one JSON object."""
    if as_json:
        output.print_json(
            {
                "setting": config.metadata(),
                "models": comparison.model_frame().to_dict(orient="records"),
                "pairs": comparison.pair_frame().to_dict(orient="records"),
                "report": str(page),
            }
        )
        return
    from implicit_bias.comparison.verdict import WORDS
    from implicit_bias.report.tables import tables
    from implicit_bias.runs.command import train_on

    for table in tables(comparison, comparison.classes.tolist()):
        keys = [column.key for column in table.columns]
        shown = [keys.index(key) for key in WORDS["terminal"].get(table.caption, ()) if key in keys]
        # Narrow, so that what stands below it need not be broken.
        headings = [fill(table.columns[place].heading, 12) for place in shown]
        if shown:
            rows = ([row[place].text for place in shown] for row in table.rows)
            output.print_table(*headings, rows=rows)
        for note in table.short:
            output.show(note)
    onward = train_on(config, [model.name for model in comparison.models])
    for conclusion in comparison.conclusions(onward):
        output.show(str(conclusion))
    output.show(f"Report: {page}")
    output.show(f"Predictions of each sample: {page.parent / 'predictions.csv'}")
