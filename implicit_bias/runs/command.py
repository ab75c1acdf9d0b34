"""The command line that makes a run, as a user would type it."""

import shlex
from dataclasses import fields
from typing import Any

from implicit_bias.runs.configuration import PROTOCOL_DEFAULTS, RunConfig, group

# How near to its limit a network is to be trained where it is not.
WANTED_EXCESS = 0.01
# Steps towards the limit of a network whose limit no program gives beforehand.
WANTED_STEPS = 100_000


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
    defaults = {field.name: field.default for field in fields(RunConfig)}
    defaults |= PROTOCOL_DEFAULTS.get(config.protocol, {})
    words = ["implicit-bias", *command.split()]
    for name in group(*groups):
        value = getattr(config, name)
        if value != defaults[name]:
            flag = f"--{name.replace('_', '-')}"
            words += [flag] if value is True else [flag, _text(value)]
    return shlex.join(words)


def train_on(config: RunConfig) -> dict[str, str]:
    """Write the command that trains each network of a run towards its limit, if it has one."""
    takes = ("Data", "Architecture", "device")
    ways = {
        "gd-gln": f"--until-excess {WANTED_EXCESS:g}",
        "gd-relu": f"--limit-steps {WANTED_STEPS}",
    }
    return {
        name: f"{command_line(f'train {name}', config, *takes)} {ways[name]}"
        for name in config.models
        if name in ways
    }


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "0" if value is None else str(value)
