"""Old names of version 0.1: they still work, with a DeprecationWarning."""

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

PACKAGE = "implicit_bias."
# Old name to new name, below the package.
MOVED = {
    "activation_gram": "theory.gradient_gram",
    "experiments": "runs",
    "experiments.backends": "runs.backends",
    "experiments.cell": "runs.cell",
    "experiments.export": "runs.export",
    "experiments.grid": "runs.grid",
    "experiments.runner": "runs.runner",
    "experiments.setting": "runs.configuration",
    "experiments.store": "runs.store",
    "experiments.trajectory": "runs.trajectory",
    "files": "storage.atomic",
    "galu": "theory.gated_least_squares",
    "limit": "training.limit",
    "losses": "training.losses",
    "parities": "theory.sparse_parities",
    "paths": "solvers.paths",
    "predictors": "theory.gln_predictors",
    "report.limit_figures": "report.figures.limit",
    "solvers.kernel": "solvers.scaled_problem",
    "solvers.nuclear": "solvers.norm_path",
    "solvers.pair_set": "solvers.working_set",
    "solvers.reference": "solvers.cvxpy_solver",
}


class _OldNames(MetaPathFinder, Loader):
    """Finds a moved module under its old name, and hands out the module itself."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return a specification for the old names, and None for all others."""
        old = fullname.removeprefix(PACKAGE)
        if old == fullname or old not in MOVED:
            return None
        return spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module whose names are those of the new one."""
        new = PACKAGE + MOVED[spec.name.removeprefix(PACKAGE)]
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        module = ModuleType(spec.name)
        module.__dict__.update(vars(import_module(new)))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


class OldAttribute:
    """An attribute of a class under the name that it had; ``new`` is the one that it has."""

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self.old = name

    def __get__(self, instance: object, owner: type) -> Any:
        message = f"{owner.__name__}.{self.old} is now {owner.__name__}.{self.new}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(owner if instance is None else instance, self.new)


def redirect_old_names() -> None:
    """Let the old names import."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.append(_OldNames())


def renamed(module: str, **new_names: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module some of whose names are new, or elsewhere now.

    A new name without a dot is one of the same module; others are below the package.
    """

    def find(name: str) -> Any:
        if name not in new_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = new_names[name]
        home = "" if "." in new else f"{module.removeprefix(PACKAGE)}."
        return _now(f"{module}.{name}", f"{home}{new}")

    return find


def moved_classmethod(old: str, new: str) -> Any:
    """Return a class method that calls the function of the package which replaces it."""
    return classmethod(lambda cls, *values, **options: _now(old, new)(*values, **options))


def _now(old: str, new: str) -> Any:
    """Return what has a new name, with a warning to whoever used the old one."""
    warnings.warn(f"{old} is now {PACKAGE}{new}", DeprecationWarning, stacklevel=3)
    module, _, name = new.rpartition(".")
    return getattr(import_module(PACKAGE + module), name)
