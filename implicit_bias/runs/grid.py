"""A grid: the product of some values for some fields of a configuration.

A grid is written as a TOML or YAML file (or the same as a mapping) whose keys are fields of
`RunConfig`::

    dataset = "mnist"
    protocol = "lippl2022"
    train_size = [500, 1000, 2000]                  # N
    units = [10, 20, 50, 100]                       # H
    hyperplanes = [1, 2]                            # k
    seed = [1, 2, 3]
    threshold = ["median", "random"]
    models = ["gd-gln", "svm-gln", "svm-l2"]

A list is an axis, and the last axis runs fastest. Where one value is a list already (``models``,
``positive``, ``negative``, ``classes``), a list of lists is an axis. What is not named keeps its
default.

Each cell has a key, a hash of what its results depend on. The key does not depend on the order of
the axes, nor on the grid: cells that two grids share are computed once.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from reprlib import repr as cut
from typing import TYPE_CHECKING, Any, Self

from implicit_bias.base import strict_json
from implicit_bias.base.validation import existing_file
from implicit_bias.datasets.files import digest
from implicit_bias.datasets.labels import listed
from implicit_bias.runs.configuration import RunConfig, holds_list, typed

if TYPE_CHECKING:
    import yaml

# Part of each key: to be raised when the meaning of a configuration's field, or of a result,
# changes.
CELL_FORMAT = 1
# What does not change a cell's results, but for rounding.
WITHOUT_EFFECT = ("device",)
# Fields that older versions lack, and what they did: part of a key only where they are not this, so
# that what was computed before is found.
ADDED = {
    "data": None,
    "target": None,
    "classes": None,
    "encode": False,
    "missing": "refuse",
    "ignore": (),
    "id": (),
    "class_weight": None,
    "standardize": False,
    "optimizer": "sgd",
}
KEY_LENGTH = 20
# More is a mistake, or an attack: each cell takes seconds, and aliases in a YAML file can stand
# for any number of values.
MOST_CELLS = 100_000
MOST_NODES = 100_000
# What YAML takes for a number that is not written as one usually is: octal 010, 1_0 and 1:30.
ODD_NUMBER = re.compile(r"[-+]?0[0-9xb].*|.*[_:].*")

_FIELDS = tuple(field.name for field in fields(RunConfig))


@dataclass(frozen=True)
class Grid:
    """Cells to compute: the product of some axes.

    Parameters
    ----------
    axes : mapping from str to tuple
        The values of fields of `RunConfig`: of each at least one, no two equal. The last field
        runs fastest; fields without an axis keep their default.

    Raises
    ------
    ValueError
        An unknown field, or a value that it cannot have; more than `MOST_CELLS` cells, a cell that
        is no valid `RunConfig`, or two cells that would have the same results.
    """

    axes: Mapping[str, tuple[Any, ...]]

    def __post_init__(self) -> None:
        axes = {field: _checked(field, values) for field, values in self.axes.items()}
        object.__setattr__(self, "axes", axes)
        for field in WITHOUT_EFFECT:
            if len(axes.get(field, ())) > 1:
                raise ValueError(f"{field} changes no result, so it cannot be an axis")
        if (count := math.prod(map(len, axes.values()))) > MOST_CELLS:
            raise ValueError(
                f"a grid has at most {MOST_CELLS} cells, this one {count}: split it into several, "
                "which can share a store"
            )
        if len(self.by_key) < len(self.cells):
            raise ValueError("two cells have the same models, in another order: leave one out")

    @cached_property
    def cells(self) -> tuple[RunConfig, ...]:
        """The configuration of each cell."""
        cells = []
        for values in product(*self.axes.values()):
            chosen = dict(zip(self.axes, values, strict=True))
            try:
                cells.append(RunConfig(**chosen))
            except ValueError as error:
                label = textwrap.shorten(self._label(chosen), 200)
                raise ValueError(f"{error} (in the cell {label})") from error
        return tuple(cells)

    @cached_property
    def by_key(self) -> Mapping[str, RunConfig]:
        """The configuration of each cell under its key."""
        # The values of axes have their types already.
        return {_key(vars(cell)): cell for cell in self.cells}

    def label(self, cell: RunConfig) -> str:
        """Name a cell by the fields that differ between cells."""
        return self._label(vars(cell))

    def _label(self, values: Mapping[str, Any]) -> str:
        varying = [field for field, axis in self.axes.items() if len(axis) > 1]
        return ", ".join(f"{name} {_text(values[name])}" for name in varying) or "the only one"

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Make a grid of a mapping as in the module's head.

        Raises
        ------
        ValueError
            An unknown key (the nearest known one is named), an empty axis, a wrong value.
        """
        return cls({key: _axis(key, value) for key, value in values.items()})

    @classmethod
    def read(cls, file: str | Path) -> Self:
        """Read a grid from a TOML or YAML file.

        Raises
        ------
        ValueError
            Not such a file; or see `from_mapping`.
        OSError
            A file that cannot be read.
        """
        file = existing_file(file)
        try:
            return cls.from_mapping(_parse(file.suffix, file.read_text(encoding="utf-8-sig")))
        except RecursionError as error:
            raise ValueError(f"{file}: it is nested too deeply") from error
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error


def cell_key(config: RunConfig) -> str:
    """Hash what the results of a cell depend on."""
    return _key({name: typed(name, value) for name, value in vars(config).items()})


def _key(values: Mapping[str, Any]) -> str:
    """Hash the fields of a configuration, each of the type that it is declared with."""
    relevant = {name: value for name, value in values.items() if name not in WITHOUT_EFFECT}
    for name, before in ADDED.items():
        if values[name] == before:
            del relevant[name]
    relevant["models"] = sorted(values["models"])
    if values["data"] is not None:  # what is in the file counts, not where it lies
        relevant["data"] = digest(values["data"])
    relevant = strict_json.encode(relevant)
    text = json.dumps({"format": CELL_FORMAT, **relevant}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def _parse(suffix: str, text: str) -> dict[str, Any]:
    match suffix.lower():
        case ".toml":
            return tomllib.loads(text)
        case ".yaml" | ".yml":
            import yaml

            try:
                _check_nodes(yaml.compose(text, yaml.SafeLoader))
                values = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ValueError(f"not YAML: {error}") from error
            if isinstance(values, dict):
                return values
            raise ValueError("a grid is a mapping from configuration fields to their values")
    raise ValueError("a grid is a .toml or a .yaml file")


def _check_nodes(root: yaml.Node | None) -> None:
    """Refuse keys that are there twice, numbers that YAML reads as others, and too many nodes."""
    import yaml

    waiting = [] if root is None else [root]
    for _ in range(MOST_NODES):
        if not waiting:
            return
        node = waiting.pop()
        match node:
            case yaml.SequenceNode():
                waiting += node.value
            case yaml.MappingNode():
                keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
                if twice := {key for key in keys if keys.count(key) > 1}:
                    raise ValueError(f"the key {cut(min(twice))} is there twice: leave one out")
                waiting += [part for pair in node.value for part in pair]
            case yaml.ScalarNode() if node.tag.endswith((":int", ":float")):
                if ODD_NUMBER.fullmatch(node.value):
                    raise ValueError(
                        f"{cut(node.value)} is another number to YAML than it looks like: write a "
                        "number without leading zeros, underscores and colons, and text in quotes"
                    )
    raise ValueError(f"it stands for more than {MOST_NODES} values: write it without aliases")


def _axis(key: str, value: Any) -> tuple[Any, ...]:
    is_axis = isinstance(value, list) and (
        key not in _FIELDS or not holds_list(key) or all(isinstance(item, list) for item in value)
    )
    return tuple(value) if is_axis else (value,)


def _checked(field: str, axis: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the values of a field, each of its type."""
    if field not in _FIELDS:
        raise ValueError(f"unknown key {cut(field)}: the keys are {listed(_FIELDS, str(field))}")
    if not axis:
        raise ValueError(f"{field} has no value: an axis needs at least one")
    values = tuple(typed(field, value) for value in axis)
    if len(set(values)) < len(values):
        raise ValueError(f"{field} has a value twice: {cut(list(values))}")
    return values


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
