"""The configuration of a run: one home for defaults, and one check of its values."""

import json
from typing import Any

import pytest

from implicit_bias.base.options import SolverOptions
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.solvers import Tolerances
from implicit_bias.training import TrainingConfig


def test_defaults_are_those_of_the_library() -> None:
    ours = RunConfig()
    theirs = TrainingConfig()
    for name in ("steps", "batch_size", "learning_rate"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.solving == SolverOptions()
    assert ours.tol == Tolerances().gap


def test_metadata_are_json() -> None:
    config = RunConfig(positive=(0, 1), negative=(7,), models=("svm-rc",))
    metadata = config.metadata()
    assert metadata["C"] == "inf"
    assert metadata["positive"] == [0, 1]
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
    assert "dataset" not in RunConfig(data="own.csv").metadata()


def test_equal_choices_are_equal_however_they_are_written() -> None:
    """A list is a tuple, a whole number a decimal, and 0 is how a file says all samples."""
    lists: Any = {"models": ["svm-gln"], "positive": [0, 1]}
    config = RunConfig(momentum=0, batch_size=0, **lists)
    same = RunConfig(momentum=0.0, batch_size=None, models=("svm-gln",), positive=(0, 1))
    assert config == same
    assert json.dumps(config.metadata()) == json.dumps(same.metadata())


def test_what_is_done_without_a_hard_margin_depends_on_the_data() -> None:
    """A table gets a soft margin, as by the estimators; built-in data the proof."""
    assert (RunConfig().on_failure, RunConfig().standardize) == ("warn", False)
    own = RunConfig(data="own.csv")
    assert (own.on_failure, own.standardize) == ("soft", True)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"models": ()}, "models"),
        ({"models": ("svm-gln", "svm-gln")}, "once"),
        ({"threshold": "meridian"}, "'median'"),
        ({"units": "many"}, "units"),
        ({"tol": 2.0}, "tolerance"),
        ({"momentum": 1.0}, "momentum"),
        ({"models": ("local-gln",), "optimizer": "muon"}, "muon"),
        ({"target": "y"}, "--data"),
        ({"data": "a.csv", "dataset": "moons"}, "choose one"),
    ],
)
def test_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises((TypeError, ValueError), match=word):
        RunConfig(**options)
