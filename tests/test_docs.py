"""The documentation: examples in docstrings, the examples, and the site."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import implicit_bias
from implicit_bias import norms

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))
NORMS = (
    *("Norm", "L1", "L2", "LInf", "Lp", "GroupL2", "Spectral", "Nuclear"),
    *("SumOverGroups", "MaxOverGroups", "as_norm"),
)
MODULES = [
    module.name
    for module in pkgutil.walk_packages(implicit_bias.__path__, "implicit_bias.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 40


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_the_pages_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page one after the other, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        exec(compile(block, str(page), "exec"), names)


def test_public_names_have_examples() -> None:
    """Each public class and function shows how it is used; the examples run as doctests."""
    public = {name: getattr(implicit_bias, name) for name in dir(implicit_bias)}
    public |= {name: getattr(norms, name) for name in NORMS}
    lacking = [
        name
        for name, value in public.items()
        if callable(value) and ">>>" not in (inspect.getdoc(value) or "")
    ]
    assert lacking == []


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """The examples run, too."""
    command = [sys.executable, "-m", "sphinx", "-W", "-q", str(ROOT / "docs"), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "gallery" / "index.html").exists()
