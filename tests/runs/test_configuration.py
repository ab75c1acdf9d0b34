"""The configuration of a run: one home for defaults and choices."""

import json
import math
from dataclasses import fields

import pytest

from implicit_bias.base.options import SOLVER_NAMES, SolverOptions
from implicit_bias.cli.options import parameter_words
from implicit_bias.datasets import DATASET_NAMES
from implicit_bias.runs.configuration import RunConfig, group, typed
from implicit_bias.solvers import Tolerances
from implicit_bias.training import TrainingConfig


def test_choices_are_those_of_the_library() -> None:
    choices = {field.name: field.metadata["choices"] for field in fields(RunConfig)}
    assert choices["dataset"] == DATASET_NAMES
    assert choices["solver"] == SOLVER_NAMES
    assert RunConfig().solving == SolverOptions()
    assert RunConfig().tol == Tolerances().gap


def test_training_defaults_are_those_of_the_library() -> None:
    ours, theirs = RunConfig(), TrainingConfig()
    for name in ("steps", "batch_size", "learning_rate"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_each_field_has_a_group_and_a_help() -> None:
    words = parameter_words(RunConfig.__doc__)
    assert all(field.metadata["group"] and words[field.name] for field in fields(RunConfig))
    assert group("Training") == ("steps", "batch_size", "learning_rate", "momentum", "optimizer")
    assert group("device", "seed") == ("seed", "device")


def test_metadata_are_json() -> None:
    config = RunConfig(positive=(0, 1), negative=(7,), models=("svm-rc",), soft_C=2.0)
    metadata = config.metadata()
    assert metadata["C"] == "inf"
    assert metadata["positive"] == [0, 1]
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
    assert RunConfig(batch_size=0) == RunConfig(batch_size=None)  # all samples


def test_values_of_another_type_are_refused() -> None:
    """As a grid may have them."""
    assert typed("target", "inf") == "inf"  # a name here
    assert typed("C", "inf") == math.inf
    for name, value in (
        ("target", 3),
        ("positive", [None]),
        ("classes", [{}]),
        ("class_weight", [1]),
        ("tol", 10**400),
    ):
        with pytest.raises(ValueError, match=f"{name} cannot be"):
            typed(name, value)


def test_what_is_done_without_a_hard_margin_depends_on_the_data() -> None:
    """A file of one's own gets a soft margin, as by the estimators; built-in data the proof."""
    assert RunConfig().on_failure == "warn"
    assert RunConfig(data="own.csv").on_failure == "soft"


def test_metadata_name_the_file_and_no_built_in_data() -> None:
    config = RunConfig(data="own.csv", C=0.5)
    metadata = config.metadata()
    assert "dataset" not in metadata
    assert metadata["C"] == 0.5
    with pytest.raises(ValueError, match="soft_C"):
        RunConfig(soft_C=-1.0)
