"""The base classes of benchopt, or what is used of them where it is not installed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias


class Parametrized:
    """A class with parameters, as benchopt's bases are.

    Attributes
    ----------
    name : str
        What benchopt calls it.
    parameters : dict
        Values of each parameter. A key "N, D" has tuples of values of both.
    test_parameters : dict
        Those of a quick run.
    """

    name: str
    parameters: ClassVar[dict[str, list[Any]]] = {}
    test_parameters: ClassVar[dict[str, list[Any]]] = {}

    @classmethod
    def get_instance(cls, **parameters: Any) -> Self:
        """Return an instance that has these parameters as attributes."""
        instance = cls()
        for name, value in parameters.items():
            setattr(instance, name, value)
        return instance


if TYPE_CHECKING:
    BaseDataset: TypeAlias = Parametrized
    BaseObjective: TypeAlias = Parametrized
    BaseSolver: TypeAlias = Parametrized
else:
    try:
        from benchopt import BaseDataset, BaseObjective, BaseSolver
    except ImportError:
        BaseDataset = BaseObjective = BaseSolver = Parametrized


def settings(parameters: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield all combinations of parameters, the last one changing fastest."""
    for values in itertools.product(*parameters.values()):
        setting = dict[str, Any]()
        for names, value in zip(parameters, values, strict=True):
            if "," in names:
                setting |= dict(zip(names.split(", "), value, strict=True))
            else:
                setting[names] = value
        yield setting
