"""The configuration of a run: one home for defaults and choices, and its old names."""

from dataclasses import fields

import pytest

from implicit_bias.datasets import DATASET_NAMES
from implicit_bias.options import SOLVER_NAMES, SolverOptions
from implicit_bias.runs import configuration, grid, models, runner
from implicit_bias.runs.configuration import RunConfig, group
from implicit_bias.runs.grid import Grid
from implicit_bias.runs.models import ModelFactory, load_data
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
    assert all(field.metadata["group"] and field.metadata["help"] for field in fields(RunConfig))
    assert group("Training") == ("steps", "batch_size", "learning_rate", "momentum", "optimizer")
    assert group("device", "seed") == ("seed", "device")


def test_metadata_come_back() -> None:
    config = RunConfig(positive=(0, 1), negative=(7,), models=("svm-rc",), soft_C=2.0)
    assert config.metadata()["C"] == "inf"
    assert config.metadata()["positive"] == [0, 1]
    assert RunConfig.from_metadata(config.metadata()) == config


def test_a_batch_of_zero_samples_is_all_of_them() -> None:
    assert RunConfig(batch_size=0) == RunConfig(batch_size=None)


def test_old_names_warn() -> None:
    with pytest.warns(DeprecationWarning, match="RunConfig"):
        assert configuration.Setting is RunConfig
    with pytest.warns(DeprecationWarning, match="ModelFactory"):
        assert configuration.Builders is ModelFactory
    with pytest.warns(DeprecationWarning, match="load_data"):
        assert configuration.load_data is models.load_data
    with pytest.warns(DeprecationWarning, match="inventory"):
        assert runner.take_stock is runner.inventory
    config = RunConfig(dataset="blobs", train_size=20)
    with pytest.warns(DeprecationWarning, match="metadata"):
        assert config.facts() == config.metadata()
    with pytest.warns(DeprecationWarning, match="from_metadata"):
        assert RunConfig.from_facts(config.metadata()) == config
    with pytest.warns(DeprecationWarning, match="from_mapping"):
        assert Grid.from_facts({"seed": [1, 2]}) == grid.Grid.from_mapping({"seed": [1, 2]})
    factory = ModelFactory(config, load_data(config))
    with pytest.warns(DeprecationWarning, match="config"):
        assert factory.setting is config
    with pytest.warns(DeprecationWarning, match="svm_options"):
        assert factory.solving() == factory.svm_options()
    with pytest.raises(AttributeError, match="nonsense"):
        configuration.nonsense  # noqa: B018
