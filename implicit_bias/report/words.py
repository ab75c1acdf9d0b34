"""What a page calls models, classes and data."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from implicit_bias.base.package import VERSION
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.comparison.verdict import WORDS
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.labels import label_text
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.norms.named import name_of
from implicit_bias.problem import C_in_words


def names_of(models: Iterable[ModelResult]) -> str:
    """Join the models' names."""
    return ", ".join(model.name for model in models)


def training_in_words(model: ModelResult) -> str:
    """Say how long a network was trained, and whether it was interrupted."""
    if model.interrupted:
        words = "interrupted"
    elif model.steps:
        words = "finished"
    else:
        words = "unknown"
    return str(
        WORDS["training"][words].format(steps=model.steps, planned_steps=model.planned_steps)
    )


def problems_in_words(comparison: Comparison) -> dict[str, str]:
    """Name the optimization problem of each model: norm, gates and C."""
    found = {}
    for model in comparison.models:
        if model.fitted is not None:
            found[model.name] = _problem_in_words(model.fitted)
    return found


def _problem_in_words(fitted: FittedMargin) -> str:
    """Name the norm, the gates and C of a model's optimization problem."""
    model = fitted.architecture
    # Groups of the norm, if it has its own; else those of the gating, one for each unit.
    groups = model.groups
    if groups is None:
        groups = model.gating.groups
    norm = "l2"
    if model.norm is not None:
        norm = name_of(model.norm)
    elif groups.any():  # groups are numbered from 0 on: there is more than one
        norm = "l2 over groups"
    # The class `HyperplaneContexts` becomes "hyperplane contexts".
    gates = re.sub("(?<=[a-z])(?=[A-Z])", " ", type(model.gating).__name__).lower()
    margin = "hard margin"
    if np.isfinite(fitted.C).any():
        margin = f"C = {C_in_words(fitted.C)}"
    return f"{norm}, {gates}, {margin}"


# --- classes and data ----------------------------------------------------------------------------


def class_as_sign(label: float) -> str:
    """Write one of two classes as +1 or −1."""
    if label > 0:
        return "+1"
    return "−1"


def class_names(comparison: Comparison, data: Dataset) -> tuple[str, ...]:
    """Names of the classes (K,) of a comparison, by a data set that has as many."""
    # A data set of two classes names both, even if a model knows a third: then labels are clearer.
    if len(data.class_names) == len(comparison.classes):
        return data.class_names
    return tuple(map(label_text, comparison.classes.tolist()))


def has_class_names(data: Dataset) -> bool:
    """Whether the names of the classes say more than their labels do."""
    # "−1", with a minus sign, is the label -1 and no name.
    for label, name in data.names.items():
        if name.strip().replace("−", "-").lstrip("+") != str(label):
            return True
    return False


def class_note(data: Dataset) -> str:
    """Say what the classes of pictures are called."""
    if data.classes is not None:
        return str(WORDS["classes"]["many"])
    if not has_class_names(data):
        return ""
    negative, positive = data.class_names
    return str(WORDS["classes"]["named_two"].format(positive=positive, negative=negative))


def data_facts(train: Dataset | None, test: Dataset, given: Mapping[str, str]) -> dict[str, str]:
    """Return the facts that a page states of its data, by name, and those ``given`` last."""
    described = test
    if train is not None:
        described = train
    facts = {"data set": described.name}
    if train is not None:
        facts["training samples"] = f"{len(train):,}"
    facts["test samples"] = f"{len(test):,}"
    facts["inputs"] = f"{described.n_features - described.has_constant:,}"
    if described.has_constant:
        facts["inputs"] += " and the constant 1"
    if described.classes is not None:
        facts[f"{described.classes} classes"] = ", ".join(described.class_names)
    elif has_class_names(described):
        facts["class −1"], facts["class +1"] = described.class_names
    else:
        n_positive = int(np.count_nonzero(described.y == 1))
        facts["of class +1 / −1"] = f"{n_positive:,} / {len(described) - n_positive:,}"
    facts["implicit_bias"] = VERSION
    return facts | dict(given)
