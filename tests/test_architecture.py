"""Imports go one way, and `import implicit_bias` is light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import implicit_bias

PACKAGE = Path(implicit_bias.__file__).parent

# Data flow one way: a module imports only those before it (or its own part).
FLOW = [
    "files",
    "validation",
    "datasets",
    "gating",
    "problem",
    "galu",
    "activation_gram",
    "certificate",
    "solvers",
    "paths",
    "networks",
    "predictors",
    "losses",
    "training",
    "parities",
    "stationarity",
    "limit",
    "estimators",
    "storage",
    "comparison",
    "report",
    "experiments",
    "cli",
    "__main__",
]
SOLVERS = [
    "base",
    "relaxation",
    "kernel",
    "interior_point",
    "working_set",
    "active_set",
    "reference",
    "__init__",
]
FILES = sorted(PACKAGE.rglob("*.py"))
LIGHT = ["torch", "sklearn", "cvxpy", "pandas", "matplotlib", "scipy"]


def imports(file: Path) -> Iterator[str]:
    """Full names of all modules that a file imports, at its head or inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import on line {node.lineno}"
            assert node.module is not None
            # `from package import name`: the name may be a module.
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts(file: Path) -> tuple[str, ...]:
    return file.relative_to(PACKAGE).with_suffix("").parts


def name_of(file: Path) -> str:
    return "/".join(parts(file))


def own(file: Path) -> list[tuple[str, ...]]:
    """Parts of the package's own modules that a file imports."""
    found = (module.split(".") for module in imports(file))
    return [tuple(module[1:]) for module in found if module[0] == "implicit_bias"]


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_imports_go_forward(file: Path) -> None:
    if parts(file) == ("__init__",):
        pytest.skip("the package's head exports its names lazily")
    here = parts(file)[0]
    assert here in FLOW, f"{here} has no place in the flow: add it to FLOW"
    for target in own(file):
        if not target or target == ("__version__",):  # names that the package's head exports
            continue
        assert target[0] in FLOW, f"import {'.'.join(target)} from its own module"
        forward = FLOW.index(target[0]) <= FLOW.index(here)
        assert forward, f"{name_of(file)} imports {'.'.join(target)}, which comes later"


def test_solvers_import_forward() -> None:
    for file in sorted((PACKAGE / "solvers").glob("*.py")):
        here = file.stem
        assert here in SOLVERS, f"solvers/{here} has no place in the flow"
        for target in own(file):
            if len(target) > 1 and target[0] == "solvers" and target[1] in SOLVERS:
                forward = SOLVERS.index(target[1]) < SOLVERS.index(here)
                assert forward, f"solvers/{here} imports solvers/{target[1]}"


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_only_the_reference_imports_cvxpy(file: Path) -> None:
    uses = any(module.split(".")[0] == "cvxpy" for module in imports(file))
    assert uses == (parts(file) == ("solvers", "reference"))


def test_import_is_light() -> None:
    code = f"import sys, implicit_bias; print([m for m in {LIGHT} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_native_solve_needs_no_cvxpy() -> None:
    code = (
        "import sys, numpy as np, implicit_bias as ib;"
        "p = ib.MarginProblem(np.eye(2), [1, -1], np.ones((2, 1)), [0]);"
        "assert ib.solve(p).status is ib.Status.OPTIMAL;"
        "print([m for m in ('cvxpy', 'sklearn', 'pandas') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("name", implicit_bias.__all__)
def test_public_names_exist(name: str) -> None:
    assert name in dir(implicit_bias)
    assert getattr(implicit_bias, name) is not None


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        implicit_bias.nonsense  # noqa: B018
