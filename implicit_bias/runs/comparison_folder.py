"""The folder of a comparison: its configuration, its models, and the report on them.

::

    FOLDER/setting.json                  the configuration
    FOLDER/models/NAME.safetensors       each fitted model
    FOLDER/limit/NAME-limit.safetensors  networks that were trained on, with pictures of that
    FOLDER/report.html, models.csv, ...  see `implicit_bias.report.page`
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from implicit_bias.base import strict_json
from implicit_bias.base.atomic import free_path, write_text
from implicit_bias.base.options import limit_words
from implicit_bias.comparison import Comparison
from implicit_bias.datasets.preparation import text_columns
from implicit_bias.datasets.table import Table
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import NetworkClassifier
from implicit_bias.estimators.saved_models import load_model, save_model
from implicit_bias.report.page import WRITTEN, write_limit, write_report
from implicit_bias.report.words import names_of
from implicit_bias.runs import command
from implicit_bias.runs.beside_svm import train_beside_svm
from implicit_bias.runs.configuration import MODEL_MEANINGS, RunConfig, chosen, group
from implicit_bias.runs.data import Data, rows_left_out
from implicit_bias.runs.models import ModelFactory
from implicit_bias.training.limit import LimitConfig, LimitResult

# Fields of a configuration that `implicit-bias compare` takes.
COMPARE_GROUPS = ("Data", "Models", "Architecture", "Margin", "Training", "Solver")
MODELS = "models"
MODEL_SUFFIX = ".safetensors"
GLN = "gd-gln"


# What a network is that was trained on.
TRAINED_ON = "a saved network with the same gates, on the same data"


class FolderError(ValueError):
    """A folder that holds no comparison; the message has the cure."""


def free_folder(folder: Path) -> Path:
    """Return a folder where a comparison overwrites nothing: this one, or the next of its name.

    Parameters
    ----------
    folder : Path
        Where files of other names are no obstacle. If it holds an earlier comparison, or any
        other file of a name that a comparison writes, FOLDER-2, FOLDER-3, ... are tried.
    """
    kept = (command.CONFIG_FILE, MODELS, *WRITTEN)
    return free_path(folder, lambda there: any((there / name).exists() for name in kept))


def fit_comparison(
    folder: Path, config: RunConfig, data: Data, on_model: Callable[[str], None]
) -> dict[str, BinaryClassifier]:
    """Fit the models of a configuration, with progress bars, and save each once it is done.

    Parameters
    ----------
    folder : Path
        Made if need be.
    config : RunConfig
        What to compare.
    data : Data
        From `load_data`.
    on_model : callable
        Called with the name of each model that is done.

    Returns
    -------
    dict from name to fitted classifier
        In the order of ``config.models``.
    """
    fitted: dict[str, BinaryClassifier] = {}
    write_text(folder / command.CONFIG_FILE, strict_json.dumps(config.metadata(), indent=2))
    for name, model in ModelFactory(config, data, progress=True).fit():
        fitted[name] = model
        save_model(model_file(folder, name), model, config.metadata())
        on_model(name)
    return {name: fitted[name] for name in config.models}


def train_and_save(
    config: RunConfig, data: Data, file: Path, limit: LimitConfig, **goals: Any
) -> tuple[NetworkClassifier, tuple[Path, ...]]:
    """Train the one network of a configuration towards its limit, with a progress bar; save it.

    Pictures of the way are written beside its file, and returned, too; ``goals`` are those of
    `train_beside_svm`.
    """
    samples, config = data.parts.train, replace(config, steps=limit.steps, batch_size=None)
    goals |= {"compare_on": data.parts.validation.X, "solving": config.solving, "progress": True}
    classifier = ModelFactory(config, data).build_network(config.models[0], homogeneous=True)
    classifier.fit_by(
        samples.X,
        samples.y,
        lambda network, X, y: train_beside_svm(network, X, y, limit, **goals)[0],
    )
    save_model(file, classifier, config.metadata())
    assert isinstance(classifier.training_, LimitResult)
    name = re.sub(rf"{command.LIMIT_SUFFIX}(?=(-\d+)?$)", "", file.stem)
    return classifier, write_limit(file.parent, name, classifier.training_)


def train_further(folder: Path, config: RunConfig, data: Data) -> dict[str, BinaryClassifier]:
    """Train the GLN of a comparison, if it has one, until it is near the SVM; see `train_on`."""
    if GLN not in config.models:
        return {}
    file, limit = command.limit_file(folder, GLN), LimitConfig(steps=command.WANTED_STEPS)
    alone = RunConfig(models=(GLN,), **chosen(config, *command.TRAIN_GROUPS))
    network, _ = train_and_save(alone, data, file, limit, until_excess=command.WANTED_EXCESS)
    return {file.stem: network}


def read_comparison(
    folder: Path, networks: Sequence[Path] = ()
) -> tuple[RunConfig, dict[str, BinaryClassifier]]:
    """Return the configuration that a folder keeps, and its finished models.

    Parameters
    ----------
    folder : Path
        Of a comparison.
    networks : sequence of Path
        Saved models to compare beside them, such as networks that were trained on; each is called
        as its file is.

    Raises
    ------
    FolderError
        The folder holds no configuration, or no model of it; or a network has other data or gates,
        or the name of another model.
    """
    file = folder / command.CONFIG_FILE
    if not file.is_file():
        raise FolderError(
            f"{folder} holds no {command.CONFIG_FILE}: give a folder that "
            f"`{command.written('compare')}` wrote"
        )
    config = _config_of(file)
    files = {name: model_file(folder, name) for name in config.models}
    saved = {name: load_model(file) for name, file in files.items() if file.is_file()}
    # An interrupted run leaves the models of the run before it.
    found = {
        name: item.model
        for name, item in saved.items()
        if _config_of(files[name], item.facts) == config
    }
    if not found:
        raise FolderError(f"{folder} holds no finished model of its setting: run `compare` again")
    for file in networks:
        item = load_model(file)
        theirs = _config_of(file, item.facts)
        same = group("Data", "Architecture")
        other = [name for name in same if getattr(theirs, name) != getattr(config, name)]
        if other:
            raise FolderError(f"{file} differs from the models of {folder} in {', '.join(other)}")
        if file.stem in found:
            raise FolderError(f"{folder} has a model {file.stem}: give {file} another name")
        found[file.stem] = item.model
    return config, found


def _config_of(file: Path, facts: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the configuration of a saved model, or that of a folder's own file."""
    try:
        if facts is None:
            facts = strict_json.loads(file.read_text("utf-8"))
        return RunConfig.from_metadata(facts)
    except (ValueError, TypeError) as error:
        raise FolderError(f"{file} is no configuration of a comparison: {error}") from error


def write_comparison(
    folder: Path,
    config: RunConfig,
    data: Data,
    models: Mapping[str, BinaryClassifier],
    option: str = "",
    networks: Sequence[Path] = (),
) -> tuple[Comparison, Path]:
    """Compare fitted models, write report and tables into the folder, and return the page, too.

    ``option`` ends the command of the comparison. With ``networks`` of `read_comparison` the page
    is that of `report`, since the options of their training are not known.
    """
    comparison = data.compare(models)
    weights = ", ".join(config.class_weight or ())
    facts = {
        "intercept": "none: the inputs carry a constant 1, which counts in the norm"
        if data.parts.train.has_constant
        else "none",
        "inputs scaled": "to mean 0, variance 1" if config.standardize else "no",
        **_preparation(config, data.table),
        "hidden units": str(config.units),
        "hyperplanes a unit": str(config.hyperplanes),
        "thresholds": config.threshold,
        "C": str(config.C),
        **({"class weights": f"{weights} (in hinge losses: of no hard margin)"} if weights else {}),
        "training": f"{config.steps:,} steps of {config.batch_size or 'all'} samples, step size "
        f"{config.learning_rate:g}, momentum {config.momentum:g}",
        "optimizer": f"{config.optimizer}: {limit_words(config.optimizer)}",
        "seeds": f"{config.seed} (models), {config.split_seed} (split)",
        "tolerance": f"{config.tol:g} ({config.solver})",
        "versions": f"torch {torch.__version__}, numpy {np.__version__}",
    }
    if stopped := [model for model in comparison.models if model.interrupted]:
        facts["interrupted"] = f"{names_of(stopped)}: not trained or solved to the end"
    train, held_out = data.parts.train, data.parts.validation
    page = write_report(
        folder,
        comparison,
        train=train,
        evaluation=held_out,
        facts=facts,
        made=_made(folder, models),
        command=command.report_again(folder, networks)
        if networks
        else command.command_line("compare", config, *COMPARE_GROUPS) + option,
        train_on=command.train_on(config, folder, models),
        meanings={name: MODEL_MEANINGS.get(name, TRAINED_ON) for name in models},
    )
    return comparison, page


def _preparation(config: RunConfig, table: Table | None) -> dict[str, str]:
    """Say what was done to the rows and columns of a file of the user's own."""
    facts = dict[str, str]()
    if table is None:
        return facts
    if text := text_columns(table.inputs):
        facts["0 or 1 for each value of"] = ", ".join(text)
    if config.missing == "median":
        facts["missing numbers"] = "medians of the training samples"
    if left_out := rows_left_out(table):
        facts["rows left out"] = left_out
    if config.id:
        facts["columns that are no inputs"] = ", ".join(config.id)
    return facts


def _made(folder: Path, models: Mapping[str, BinaryClassifier]) -> datetime | None:
    """When the last of the models was saved, so that a page written again has the same date."""
    files = [file for name in models if (file := model_file(folder, name)).is_file()]
    return max((datetime.fromtimestamp(f.stat().st_mtime, UTC) for f in files), default=None)


def model_file(folder: Path, name: str) -> Path:
    """Return where a folder keeps a model."""
    return folder / MODELS / f"{name}{MODEL_SUFFIX}"
