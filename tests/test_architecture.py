"""Imports go one way, and `import implicit_bias` is light."""

import ast
import importlib
import pydoc
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import implicit_bias
from system import python

PACKAGE = Path(implicit_bias.__file__).parent

FROZEN = (Path(__file__).parent / "fixtures" / "public_names.txt").read_text("utf-8").split()


def test_imports_go_one_way() -> None:
    """The contracts are in pyproject.toml."""
    assert lint_imports() == 0


CONFIGURE = "import implicit_bias.training as t; t.LimitConfig(), t.TrainingConfig()"
SOLVE = (
    "import numpy as np, implicit_bias as ib;"
    "p = ib.MarginProblem(np.eye(2), [1, -1], np.ones((2, 1)), [0]);"
    "assert ib.solve(p).status is ib.Status.OPTIMAL"
)

TRAIN = (
    "import torch, implicit_bias as ib;"
    "m = torch.nn.Linear(2, 1, bias=False).double();"
    "ib.train_to_limit(m, torch.eye(2).double(), [1, -1], ib.LimitConfig(steps=2))"
)


@pytest.mark.fast("package", "configuration")
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import implicit_bias", "torch sklearn cvxpy pandas matplotlib scipy"),
        ("import implicit_bias.datasets", "torch sklearn scipy"),
        (f"import implicit_bias.training.configuration; {CONFIGURE}", "torch"),
        (SOLVE, "cvxpy sklearn pandas"),
        (TRAIN, "cvxpy sklearn sympy torch._dynamo"),
        ("import implicit_bias.report.conclusion", "matplotlib"),
    ],
    ids=["package", "datasets", "configuration", "solve", "train", "conclusion"],
)
def test_what_does_not_need_a_package_does_not_load_it(code: str, absent: str) -> None:
    loaded = python(f"{code}\nimport sys; print(*sys.modules)").split()
    assert not {*absent.split()} & {*loaded}


def test_solvers_that_are_not_installed_are_told_with_their_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = implicit_bias.max_margin([[1.0, 0.0], [0.0, 1.0]], [1, -1])
    # As in a process that has not imported it yet.
    monkeypatch.delitem(sys.modules, "implicit_bias.solvers.cvxpy_solver", raising=False)
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r"implicit-bias\[cvxpy\]"):
        implicit_bias.solve(problem, "clarabel")


def test_public_names_stay() -> None:
    """Scripts rely on them: a name may join the list, and none leaves it."""
    assert FROZEN
    assert [name for name in FROZEN if pydoc.locate(f"implicit_bias.{name}") is None] == []
    assert sorted({*implicit_bias.__all__} - {*FROZEN}) == []


@pytest.mark.parametrize("package", ["", ".solvers"])
def test_a_package_has_the_names_that_it_imports_later(package: str) -> None:
    """Type checkers read imports, and Python a table: both have the same names and modules."""
    module = importlib.import_module(f"implicit_bias{package}")
    assert module.__file__ is not None
    parsed = ast.parse(Path(module.__file__).read_text("utf-8"))
    (for_checkers,) = [node for node in parsed.body if isinstance(node, ast.If)]
    expected = {}
    for node in for_checkers.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            expected[alias.name] = node.module
    assert expected == module.HOMES
    for name in expected:
        assert hasattr(module, name)


def test_names_are_listed_and_others_unknown() -> None:
    assert {*implicit_bias.__all__} <= {*dir(implicit_bias)}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        implicit_bias.nonsense  # noqa: B018
