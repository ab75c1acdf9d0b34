"""Packages that import what they offer on first use, so that importing them is quick."""

import sys
from collections.abc import Mapping
from dis import get_instructions
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType
from typing import Any


@cache
def homes(package: str) -> dict[str, str]:
    """Return the names that a package offers, and the module that each of them comes from.

    They are what its code imports from modules of ours under their own names, at once or for type
    checkers alone: but for this module, they are said nowhere else. The code is that which Python
    has compiled, since programs are also installed without their text.
    """
    loader: Any = sys.modules[package].__loader__
    found, module = dict[str, str](), ""
    code = (i for i in get_instructions(loader.get_code(package)) if i.opname != "EXTENDED_ARG")
    for one, following in pairwise(code):
        if one.opname == "IMPORT_NAME":
            module = one.argval
        imports = one.opname == "IMPORT_FROM" and module.startswith("implicit_bias.")
        if imports and one.argval == following.argval != "lazy":
            found[one.argval] = module
    return found


def find(package: str, name: str) -> Any:
    """Return what a package offers under a name: the body of its ``__getattr__``.

    Parameters
    ----------
    package : str
        The package's name.
    name : str
        What is asked for: one of the names that its code imports, or ``__all__`` of them.

    Raises
    ------
    AttributeError
        No such name.
    """
    if name == "__all__":
        return sorted(homes(package))
    if name in homes(package):
        return getattr(import_module(homes(package)[name]), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


class MovedModules:
    """Finds modules under their former names: ``import former`` gives the module as it is now.

    Parameters
    ----------
    moved : mapping from str to str
        Where the module of each former name is now.
    """

    def __init__(self, moved: Mapping[str, str]) -> None:
        self.moved = moved

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return what loads a module that has moved."""
        this: Any = self  # with no base of `importlib.abc`, which is slow to import
        return ModuleSpec(fullname, this) if fullname in self.moved else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import it under the name that it has now."""
        module = import_module(self.moved[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Keep the module's own specification, which the import has exchanged."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def add_former_names(package: str, moved: Mapping[str, str]) -> None:
    """Keep the former names of modules of a package."""
    names = {f"{package}.{old}": f"{package}.{new}" for old, new in moved.items()}
    sys.meta_path.append(MovedModules(names))
