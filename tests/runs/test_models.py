"""The models of a configuration."""

from typing import Any, cast

import pytest

from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory


def test_models_of_a_configuration_say_how_far_they_are_and_print_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = RunConfig(train_size=40, units=4, steps=5, models=("gd-gln", "gd-relu", "svm-gln"))
    said: list[int] = []
    factory = ModelFactory(
        config, load_data(config), on_progress=lambda done, steps, _: said.append(done)
    )
    assert list(dict(factory.fit())) == ["gd-gln", "gd-relu", "svm-gln"]
    assert said == [0, 1, 2, 3, 4, 5] * 2
    assert capsys.readouterr() == ("", "")


def test_svms_of_a_configuration_have_no_intercept() -> None:
    """The data have a constant feature, which counts in the norm, as published."""
    config = RunConfig(dataset="moons", train_size=40, units=3, steps=5)
    factory = ModelFactory(config, load_data(config))
    relu = factory.fit_one("gd-relu")
    for name in ("svm-gln", "svm-l2", "svm-shallow", "svm-linear", "svm-rc", "svm-lc", "svm-hl"):
        assert factory.build(name, cast(Any, relu)).get_params()["fit_intercept"] is False
