"""Imports go one way, and `import implicit_bias` is light."""

import ast
import importlib
import py_compile
import pydoc
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import implicit_bias
from implicit_bias.base import lazy
from system import python

PACKAGE = Path(implicit_bias.__file__).parent

FILES = sorted(PACKAGE.rglob("*.py"))
FROZEN = (Path(__file__).parent / "fixtures" / "public_names.txt").read_text("utf-8").split()


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


def test_imports_go_one_way() -> None:
    """The contracts are in pyproject.toml."""
    assert lint_imports() == 0


@pytest.mark.slow
def test_only_the_reference_imports_cvxpy() -> None:
    using = [f for f in FILES if any(name.split(".")[0] == "cvxpy" for name in imports(f))]
    assert using == [PACKAGE / "solvers" / "cvxpy_solver.py"]


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


@pytest.mark.every(6)
@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import implicit_bias", "torch sklearn cvxpy pandas matplotlib scipy"),
        (f"import implicit_bias.training.configuration; {CONFIGURE}", "torch"),
        (SOLVE, "cvxpy sklearn pandas"),
        (TRAIN, "cvxpy sklearn sympy torch._dynamo"),
        ("import implicit_bias.report.words", "matplotlib"),
    ],
)
def test_what_does_not_need_a_package_does_not_load_it(code: str, absent: str) -> None:
    loaded = python(f"{code}\nimport sys; print(*sys.modules)").split()
    assert not {*absent.split()} & {*loaded}


def test_public_names_stay() -> None:
    """Scripts rely on them: a name may join the list, and none leaves it."""
    assert FROZEN
    assert [name for name in FROZEN if pydoc.locate(f"implicit_bias.{name}") is None] == []


@pytest.mark.parametrize("package", ["", ".solvers", ".training", ".report"])
def test_packages_offer_what_they_import_later(package: str) -> None:
    """`from package import *` brings all that it offers, and each is there."""
    module = importlib.import_module(f"implicit_bias{package}")
    imported: dict[str, object] = {}
    exec(f"from implicit_bias{package} import *", imported)
    assert {*module.__all__} == {*imported} - {"__builtins__"}


def test_what_a_package_offers_is_known_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen programs are installed as what Python has compiled."""
    text, home = tmp_path / "text.py", "implicit_bias.solvers"
    text.write_text(
        "from typing import TYPE_CHECKING as checking\nfrom implicit_bias.base import lazy\n"
        f"if checking:\n    from {home} import one, two as other, three\n    import os.path\n"
    )
    compiled = py_compile.compile(str(text), str(tmp_path / "textless.pyc"))
    text.unlink()
    monkeypatch.syspath_prepend(tmp_path)
    assert compiled is not None
    importlib.import_module("textless")
    assert lazy.homes("textless") == {"one": home, "three": home}


def test_names_are_listed_and_others_unknown() -> None:
    assert {*implicit_bias.__all__} <= {*dir(implicit_bias)}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        implicit_bias.nonsense  # noqa: B018
