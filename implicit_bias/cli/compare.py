"""`implicit-bias compare`: train networks, solve the SVMs, compare, write a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from implicit_bias.cli import output
from implicit_bias.cli.choices import load_data
from implicit_bias.cli.interruption import INTERRUPTED
from implicit_bias.cli.options import JsonOption, takes_config
from implicit_bias.runs.configuration import RunConfig

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison, ModelResult, PairResult

MODEL_HEADINGS = ("model", "error", "on training", "norm", "excess", "C", "units on", "status")
PAIR_HEADINGS = (
    *("pair", "differ", "by chance", "kappa", "wrong alone", "difference of errors"),
    "wrong less often",
)


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
        Folder of the report, the tables and the models.
    to_limit
        Train the GLN on as well, in float64 and without a bias, until its norm is at most 1 % above
        the smallest possible, and compare it, too.
    """
    data = load_data(config)
    from implicit_bias.runs import comparison_folder
    from implicit_bias.runs.command import command_line

    folder = output.nothing_overwritten(folder, comparison_folder.free_folder)

    def done(name: str) -> None:
        output.err.print(f"[bold]{name}[/] done", highlight=False)

    models = comparison_folder.fit_comparison(folder, config, data, on_model=done, progress=True)
    command = ""
    if to_limit:
        models |= comparison_folder.train_further(folder, config, data)
        command = f"{command_line('compare', config, *comparison_folder.COMPARE_GROUPS)} --to-limit"
    comparison, page = comparison_folder.write_comparison(folder, config, data, models, command)
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
    output.print_table(*MODEL_HEADINGS, rows=map(_model_cells, comparison.models))
    from implicit_bias.report.tables import differences, short_notes
    from implicit_bias.report.words import WORDS, conclusions
    from implicit_bias.runs.command import train_on

    if comparison.pairs:
        apart = {(row["first"], row["second"]): row for row in differences(comparison)}
        rows = (
            _pair_cells(each, apart.get((each.first, each.second))) for each in comparison.pairs
        )
        output.print_table(*PAIR_HEADINGS, rows=rows)
        if any(row["left_open"] for row in apart.values()):
            output.show(WORDS["notes"]["undecided"])
    for note in short_notes(comparison):
        output.show(note)
    onward = train_on(config, page.parent, [model.name for model in comparison.models])
    for conclusion in conclusions(comparison, train_on=onward):
        output.show(str(conclusion))
    output.show(f"Report: {page}")
    output.show(f"Predictions of each sample: {page.parent / 'predictions.csv'}")


def _model_cells(model: ModelResult) -> list[str]:
    """Write what fits a terminal; the report has all columns."""
    import numpy as np

    from implicit_bias.report.words import trained

    margin = model.margin
    cells = [model.name, output.percent(model.error), output.percent(model.train_error)]
    if margin is not None:
        units = f"{margin.active_units} / {margin.units}"
        status = margin.status.label if margin.status else trained(model)
        C = "hard" if margin.hard_margin else output.cell(float(np.min(margin.C)))
        cells += [f"{margin.norm:.6g}", output.percent(margin.excess), C, units, status]
    return cells


def _pair_cells(pair: PairResult, apart: Mapping[str, Any] | None) -> list[str]:
    shares = (output.percent(pair.disagreement), output.percent(pair.by_chance))
    cells = [f"{pair.first} / {pair.second}", *shares, output.cell(pair.kappa)]
    if apart is not None:
        alone = f"{apart['only_first']} / {apart['only_second']}"
        cells += [alone, apart["difference_interval"], apart["decided"]]
    return cells
