"""Packages that import what they offer on first use, so that importing them is quick."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any


def find(package: str, homes: Mapping[str, Sequence[str]], name: str) -> Any:
    """Return what a package offers under a name: the body of its ``__getattr__``.

    Parameters
    ----------
    package : str
        The package's name.
    homes : mapping from module to names
        What each module of the package gives to it. All of these together are its ``__all__``.
    name : str
        What is asked for.

    Raises
    ------
    AttributeError
        No such name.
    """
    if name == "__all__":
        return sorted(offered for names in homes.values() for offered in names)
    for module, names in homes.items():
        if name in names:
            return getattr(import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
