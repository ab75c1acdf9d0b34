"""Commands that a report shows make what they say."""

import math
import shlex
from typing import Any

import pytest
import typer

from implicit_bias.cli.options import takes_config
from implicit_bias.runs.command import command_line, train_on
from implicit_bias.runs.configuration import RunConfig

GROUPS = ("Data", "Models", "Architecture", "Margin", "Training", "Solver")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"positive": (0, 1), "negative": (7,), "train_size": 100, "batch_size": None},
        {"data": "/tmp/a file.csv", "target": "the kind", "positive": ("two words", "x")},
        {"dataset": "mnist", "protocol": "lippl2022", "momentum": 0.0, "C": 2.5},
        {"models": ("svm-rc",), "units": 3, "C": math.inf, "soft_C": 1.5, "standardize": True},
        {"dataset": "mnist", "protocol": "lippl2022", "momentum": 0.9, "tol": 1e-8},
    ],
)
def test_a_command_makes_its_configuration(options: dict[str, Any]) -> None:
    found: list[RunConfig] = []
    app = typer.Typer()
    app.command()(takes_config(*GROUPS)(found.append))
    expected = RunConfig(**options)
    words = shlex.split(command_line("compare", expected, *GROUPS))
    assert words[:2] == ["implicit-bias", "compare"]
    app(words[2:], standalone_mode=False)
    assert found == [expected]


def test_networks_that_have_a_limit_are_trained_towards_it() -> None:
    config = RunConfig(models=("gd-gln", "local-gln", "gd-relu", "svm-gln"), units=7)
    assert train_on(config) == {
        "gd-gln": "implicit-bias train gd-gln --units 7 --until-excess 0.01",
        "gd-relu": "implicit-bias train gd-relu --units 7 --limit-steps 100000",
    }
