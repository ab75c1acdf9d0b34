"""`implicit-bias compare`: train networks, solve the SVMs, compare, write a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from implicit_bias.cli.choices import load_data
from implicit_bias.cli.options import JsonOption, takes_config
from implicit_bias.cli.output import INTERRUPTED, cell, err, out, percent, print_json
from implicit_bias.runs.configuration import RunConfig

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison


@takes_config("Data", "Models", "Architecture", "Margin", "Training", "Solver")
def compare(
    config: RunConfig,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the report, the tables and the models.")
    ] = Path("implicit-bias-report"),
    as_json: JsonOption = False,
) -> None:
    """Train networks, solve the SVMs they should become, compare, and write a report."""
    data = load_data(config)
    from implicit_bias.runs.comparison_folder import fit_comparison, write_comparison

    def done(name: str) -> None:
        err.print(f"[bold]{name}[/] done", highlight=False)

    models = fit_comparison(folder, config, data, on_model=done, progress=True)
    comparison, page = write_comparison(folder, config, data, models)
    print_comparison(comparison, page, config, as_json)
    if any(model.interrupted for model in comparison.models):
        raise typer.Exit(INTERRUPTED)


def print_comparison(comparison: Comparison, page: Path, config: RunConfig, as_json: bool) -> None:
    """Print the tables of a comparison, or one JSON object."""
    if as_json:
        print_json(
            {
                "setting": config.metadata(),
                "models": comparison.model_frame().to_dict(orient="records"),
                "pairs": comparison.pair_frame().to_dict(orient="records"),
                "report": str(page),
            }
        )
        return
    out.print(_models_table(comparison))
    if comparison.pairs:
        out.print(_pairs_table(comparison))
    out.print(f"Report: {page}", soft_wrap=True, highlight=False)


def _models_table(comparison: Comparison) -> Table:
    """Lay out the columns that fit a terminal; the report has them all."""
    from implicit_bias.report.words import trained

    table = Table("model", "error", "on training", "norm", "excess", "units on", "status")
    for model in comparison.models:
        cells = [model.name, percent(model.error), percent(model.train_error)]
        margin = model.margin
        if margin is not None:
            units = f"{margin.active_units} / {len(margin.unit_norms)}"
            norm, excess = f"{margin.norm:.6g}", percent(margin.excess)
            status = margin.status.label if margin.status else trained(model)
            cells += [norm, excess, units, status]
        table.add_row(*cells)
    return table


def _pairs_table(comparison: Comparison) -> Table:
    table = Table("pair", "disagreement", "by chance", "kappa")
    for pair in comparison.pairs:
        table.add_row(
            f"{pair.first} / {pair.second}",
            percent(pair.disagreement),
            percent(pair.by_chance),
            cell(pair.kappa),
        )
    return table
