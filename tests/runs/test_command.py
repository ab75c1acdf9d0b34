"""Commands that a report shows make what they say."""

import math
import shlex
import sys
from typing import Any

import pytest

from implicit_bias.cli import options as cli_options
from implicit_bias.cli.app import app
from implicit_bias.runs.command import command_line, program, train_on
from implicit_bias.runs.configuration import RunConfig


class Loaded(Exception):
    """Ends a command where it would load its data."""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"positive": (0, 1), "negative": (7,), "train_size": 100, "batch_size": None},
        {"data": "/tmp/a file.csv", "target": "the kind", "positive": ("two words", "x")},
        {"dataset": "mnist", "momentum": 0.0, "C": 2.5},
        {"models": ("svm-rc",), "units": 3, "C": math.inf, "soft_C": 1.5, "standardize": True},
        {"C": 0.5, "class_weight": ("a b=2", "c=0.5"), "on_failure": "raise"},
        {"data": "/tmp/own.csv", "id": ("first name", "number"), "on_failure": "warn"},
    ],
)
def test_a_command_makes_its_configuration(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[RunConfig] = []

    def load(config: RunConfig) -> None:
        found.append(config)
        raise Loaded

    monkeypatch.setattr(cli_options, "load_data", load)
    expected = RunConfig(**options)
    words = shlex.split(command_line("compare", expected))
    assert words[:2] == ["implicit-bias", "compare"]
    with pytest.raises(Loaded):
        app(words[1:], standalone_mode=False)
    assert found == [expected]


def test_networks_that_have_a_limit_are_trained_towards_it() -> None:
    config = RunConfig(models=("gd-gln", "local-gln", "gd-relu", "svm-gln"), units=7)
    assert train_on(config) == {
        "gd-gln": "implicit-bias compare --models gd-gln,local-gln,gd-relu,svm-gln --units 7 "
        "--to-limit",
        "gd-relu": "implicit-bias train gd-relu --units 7 --to-limit",
    }
    assert train_on(config, ["gd-gln-limit"]).keys() == {"gd-relu"}


def test_the_program_is_called_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/implicit_bias/__main__.py"])
    assert program() == [sys.orig_argv[0], "-m", "implicit_bias"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/implicit-bias"])
    assert program() == ["implicit-bias"]
