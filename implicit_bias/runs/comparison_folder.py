"""The report of a run in a new folder."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from implicit_bias.base.atomic import free_path
from implicit_bias.base.options import limit_words
from implicit_bias.comparison import Comparison
from implicit_bias.datasets.table import Table
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.report.page import WRITTEN, write_report
from implicit_bias.report.words import names_of
from implicit_bias.runs.beside_svm import fit_beside_svm
from implicit_bias.runs.configuration import (
    LIMIT,
    LIMIT_MEANING,
    LIMIT_SUFFIX,
    MODEL_MEANINGS,
    WANTED_EXCESS,
    WANTED_STEPS,
    RunConfig,
)
from implicit_bias.runs.data import Data, origin_of_samples, rows_left_out
from implicit_bias.training.history import OnProgress
from implicit_bias.training.limit import LimitConfig

# Fields of the configuration that a page states.
FACTS = (
    *("standardize", "units", "hyperplanes", "threshold", "C", "steps", "batch_size"),
    *("learning_rate", "momentum", "seed", "split_seed", "solver", "tol"),
)


def free_folder(folder: Path) -> Path:
    """Return a folder where a comparison overwrites nothing: this one, or the next of its name.

    Parameters
    ----------
    folder : Path
        Where files of other names are no obstacle. If it holds an earlier comparison, or any
        other file of a name that a comparison writes, FOLDER-2, FOLDER-3, ... are tried.
    """
    return free_path(folder, lambda there: any((there / name).exists() for name in WRITTEN))


def train_again_to_limit(
    config: RunConfig, data: Data, on_progress: OnProgress | None = None
) -> dict[str, BinaryClassifier]:
    """Train the GLN of a comparison, if it has one, again until it is near its SVM.

    The initial weights are those of ``gd-gln``, since both are drawn from the same seed. The
    weights that ``gd-gln`` has reached are not used.
    """
    if "gd-gln" not in config.models:
        return {}
    alone = RunConfig(models=("gd-gln",), **config.chosen(*LIMIT))
    limit = LimitConfig(steps=WANTED_STEPS)
    network, _ = fit_beside_svm(
        alone, data, limit, until_excess=WANTED_EXCESS, on_progress=on_progress
    )
    return {f"gd-gln{LIMIT_SUFFIX}": network}


def write_comparison(
    folder: Path,
    config: RunConfig,
    data: Data,
    models: Mapping[str, BinaryClassifier],
    command: str = "",
    to_limit: Mapping[str, str] | None = None,
) -> tuple[Comparison, Path]:
    """Compare fitted models, write report and tables into the folder, and return the page, too.

    ``command`` is what the user typed, ``to_limit`` what trains each network to its limit.
    """
    comparison = data.compare(models)
    facts: dict[str, str] = {}
    for name, value in config.metadata().items():
        if name in FACTS and value is not None:
            facts[name.replace("_", " ")] = str(value)
    facts |= {
        "split": origin_of_samples(data),
        "intercept": "none: the inputs carry a constant 1, which counts in the norm",
        **_preparation(data.table, config.missing),
        "optimizer": f"{config.optimizer}: {limit_words(config.optimizer)}",
        "versions": f"torch {torch.__version__}, numpy {np.__version__}",
    }
    stopped = [model for model in comparison.models if model.interrupted]
    if stopped:
        facts["interrupted"] = f"{names_of(stopped)}: not trained or solved to the end"

    meanings = {}
    for name in models:
        meanings[name] = MODEL_MEANINGS.get(name, LIMIT_MEANING)
    page = write_report(
        folder,
        comparison,
        train=data.parts.train,
        evaluation=data.parts.validation,
        facts=facts,
        command=command,
        to_limit=to_limit,
        meanings=meanings,
    )
    return comparison, page


def _preparation(table: Table | None, missing: str) -> dict[str, str]:
    """Say what was done to the rows and columns of a file of the user's own."""
    facts: dict[str, str] = {}
    if table is None:
        return facts
    facts["missing values"] = missing
    if table.text_columns:
        facts["0 or 1 for each value of"] = ", ".join(table.text_columns)
    left_out = rows_left_out(table)
    if left_out:
        facts["rows left out"] = left_out
    return facts
