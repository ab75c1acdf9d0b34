"""The folder of a comparison: setting, models, tables and page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from implicit_bias.cli.output import cell, out, percent, print_json

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison
    from implicit_bias.estimators.base import BinaryClassifier
    from implicit_bias.runs.configuration import Data, Setting

SETTING_FILE = "setting.json"
MODEL_SUFFIX = ".safetensors"


def model_file(folder: Path, name: str) -> Path:
    """Return where a comparison keeps a model."""
    return folder / "models" / f"{name}{MODEL_SUFFIX}"


def write_page(
    folder: Path, setting: Setting, loaded: Data, models: Mapping[str, BinaryClassifier]
) -> tuple[Comparison, Path]:
    """Compare fitted models, and write the page and the tables into the folder."""
    import numpy as np
    import torch

    from implicit_bias.comparison import compare as compare_models
    from implicit_bias.report.page import write_report

    train, validation = loaded.parts.train, loaded.parts.validation
    comparison = compare_models(models, validation.X, validation.y, train=(train.X, train.y))
    facts = {
        "hidden units": str(setting.units),
        "hyperplanes a unit": str(setting.hyperplanes),
        "thresholds": setting.threshold,
        "protocol": setting.protocol,
        "C": f"{setting.C:g}",
        "training": f"{setting.steps:,} steps of {setting.batch_size or 'all'} samples, step size "
        f"{setting.learning_rate:g}, momentum {setting.momentum:g}",
        "seeds": f"{setting.seed} (models), {setting.split_seed} (split)",
        "tolerance": f"{setting.tol:g} ({setting.solver})",
        "versions": f"torch {torch.__version__}, numpy {np.__version__}",
    }
    page = write_report(folder, comparison, models, train=train, evaluation=validation, facts=facts)
    return comparison, page


def print_comparison(comparison: Comparison, page: Path, setting: Setting, as_json: bool) -> None:
    """Print the tables of a comparison, or one JSON object."""
    if as_json:
        print_json(
            {
                "setting": setting.facts(),
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
    table = Table("model", "error", "on training", "norm", "excess", "units on", "status")
    for model in comparison.models:
        cells = [model.name, percent(model.error), percent(model.train_error)]
        margin = model.margin
        if margin is not None:
            units = f"{margin.active_units} / {len(margin.unit_norms)}"
            norm, excess = f"{margin.norm:.6g}", percent(margin.excess)
            cells += [norm, excess, units, margin.status.label if margin.status else "trained"]
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
