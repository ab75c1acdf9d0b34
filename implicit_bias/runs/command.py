"""The command line that makes a run, as a user would type it."""

import shlex
import shutil
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

from implicit_bias.runs.configuration import RunConfig, group

# How near to its limit a network is to be trained where it is not.
WANTED_EXCESS = 0.01
# Most steps of a training towards the limit, where no other number is asked for.
WANTED_STEPS = 100_000
PROGRAM = "implicit-bias"
# What the name of a model ends with that was trained towards its limit.
LIMIT_SUFFIX = "-limit"
# Fields of a configuration that `implicit-bias compare` takes, and a training towards the limit.
COMPARE_GROUPS = ("Data", "Models", "Architecture", "Margin", "Training", "Solver")
TRAIN_GROUPS = ("Data", "Architecture", "device")


def program() -> list[str]:
    """Return the words that start this program again, from the same folder and the same shell.

    Its path as it was typed, where the shell would not find it by its name alone.

    Examples
    --------
    >>> program()  # where another program, such as a notebook, has imported the package
    ['implicit-bias']
    """
    typed = Path(sys.argv[0])
    if typed.parts[-2:] == ("implicit_bias", "__main__.py"):
        return [sys.orig_argv[0], "-m", "implicit_bias"]
    if typed.stem != PROGRAM or not typed.is_file():
        return [PROGRAM]
    found = shutil.which(PROGRAM)
    return [PROGRAM] if found and typed.samefile(found) else [str(typed)]


def written(*words: str | Path) -> str:
    """Write a command of this program, given its arguments, for a shell."""
    return shlex.join([*program(), *map(str, words)])


def command_line(command: str, config: RunConfig, *groups: str) -> str:
    """Write a command with the options that are not at their defaults.

    Parameters
    ----------
    command : str
        The command and its arguments, such as "train gd-gln".
    config : RunConfig
        What to run.
    *groups : str
        Groups or names of the fields that the command takes; see `configuration.group`.

    Examples
    --------
    >>> config = RunConfig(units=5, positive=(0, 1), batch_size=0)
    >>> print(command_line("compare", config, "Data", "Architecture", "Training"))
    implicit-bias compare --positive 0,1 --units 5 --batch-size 0
    """
    defaults = config.defaults
    words: list[str] = command.split()
    for name in group(*groups):
        value = getattr(config, name)
        if value != defaults[name]:
            flag = name.replace("_", "-")
            match value:
                case True:
                    words += [f"--{flag}"]
                case False:
                    words += [f"--no-{flag}"]
                case _:
                    words += [f"--{flag}", _text(value)]
    return written(*words)


def train_on(config: RunConfig, models: Container[str] = ()) -> dict[str, str]:
    """Write the command that trains each network of a run towards its limit, if it has one.

    Parameters
    ----------
    config : RunConfig
        Of the run.
    models : container of str
        Names of the models that are there; a network is not trained on twice.
    """
    commands = {
        "gd-gln": f"{command_line('compare', config, *COMPARE_GROUPS)} --to-limit",
        "gd-relu": f"{command_line('train gd-relu', config, *TRAIN_GROUPS)} --to-limit",
    }
    return {
        name: words
        for name, words in commands.items()
        if name in config.models and f"{name}{LIMIT_SUFFIX}" not in models
    }


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "0" if value is None else str(value)
