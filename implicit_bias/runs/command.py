"""The command line that makes a run, as a user would type it."""

import shlex
import sys
from collections.abc import Container, Iterable
from dataclasses import fields
from pathlib import Path

from implicit_bias.runs.configuration import ARCHITECTURE, DATA, RunConfig

# Relative suboptimality of the norm down to which a network is trained towards its limit, and the
# most steps of that where no other number is asked for.
WANTED_EXCESS = 0.01
WANTED_STEPS = 100_000
# What the name of a model ends with that was trained towards its limit.
LIMIT_SUFFIX = "-limit"
# Fields that a training towards the limit takes.
LIMIT_FIELDS = (*DATA, *ARCHITECTURE, "device")


def program() -> list[str]:
    """Return the words that start this program again.

    Examples
    --------
    >>> program()  # unless it was started by python -m implicit_bias
    ['implicit-bias']
    """
    if Path(sys.argv[0]).parts[-2:] == ("implicit_bias", "__main__.py"):
        return [sys.orig_argv[0], "-m", "implicit_bias"]
    return ["implicit-bias"]


def command_line(command: str, config: RunConfig, names: Iterable[str] | None = None) -> str:
    """Write a command with the options that are not at their defaults.

    Parameters
    ----------
    command : str
        The command and its arguments, such as "train gd-gln".
    config : RunConfig
        What to run.
    names : iterable of str, optional
        Fields that the command takes; all, where not given.

    Examples
    --------
    >>> config = RunConfig(units=5, positive=(0, 1), batch_size=0)
    >>> print(command_line("compare", config))
    implicit-bias compare --positive 0,1 --units 5 --batch-size 0
    """
    if names is None:
        names = [field.name for field in fields(RunConfig)]
    # Some defaults depend on whether the data are a table.
    defaults = vars(RunConfig(data=config.data)) | {"data": None}
    words = [*program(), *command.split()]
    for name in names:
        value = getattr(config, name)
        option = name.replace("_", "-")
        if value == defaults[name]:
            continue
        if value is True:
            words += [f"--{option}"]
        elif value is False:
            words += [f"--no-{option}"]
        elif value is None:  # all samples
            words += [f"--{option}", "0"]
        elif isinstance(value, tuple):
            words += [f"--{option}", ",".join(map(str, value))]
        else:
            words += [f"--{option}", str(value)]
    return shlex.join(words)


def train_on(config: RunConfig, models: Container[str] = ()) -> dict[str, str]:
    """Return the commands that continue the training of a run's networks towards their limits.

    Parameters
    ----------
    config : RunConfig
        Of the run.
    models : container of str
        Names of the models that are there: for a network whose training was continued there is no
        command.
    """
    commands: dict[str, str] = {}
    if "gd-gln" in config.models and f"gd-gln{LIMIT_SUFFIX}" not in models:
        commands["gd-gln"] = command_line("compare", config) + " --to-limit"
    if "gd-relu" in config.models and f"gd-relu{LIMIT_SUFFIX}" not in models:
        commands["gd-relu"] = command_line("train gd-relu", config, LIMIT_FIELDS) + " --to-limit"
    return commands
