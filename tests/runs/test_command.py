"""Commands that a report shows make what they say."""

import math
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from implicit_bias.cli.options import takes_config
from implicit_bias.runs.command import command_line, program, train_on
from implicit_bias.runs.configuration import RunConfig

GROUPS = ("Data", "Models", "Architecture", "Margin", "Training", "Solver")


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
        "gd-gln": "implicit-bias compare --models gd-gln,local-gln,gd-relu,svm-gln --units 7 "
        "--to-limit",
        "gd-relu": "implicit-bias train gd-relu --units 7 --to-limit",
    }
    assert train_on(config, ["gd-gln-limit"]).keys() == {"gd-relu"}


def test_the_program_is_called_as_it_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path where the shell knows no such name, by its name where it does."""
    script = tmp_path / "bin" / "implicit-bias"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [os.path.join("bin", "implicit-bias"), "compare"])
    monkeypatch.setenv("PATH", "")
    assert program() == [os.path.join("bin", "implicit-bias")]
    monkeypatch.setenv("PATH", str(script.parent))
    if os.name == "posix":
        assert program() == ["implicit-bias"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/implicit_bias/__main__.py"])
    assert program() == [sys.orig_argv[0], "-m", "implicit_bias"]
