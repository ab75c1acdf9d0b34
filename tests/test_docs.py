"""The documentation: examples in docstrings, README and the pages, the examples, and the site."""

import doctest
import importlib
import inspect
import pkgutil
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import implicit_bias
from benchmarks.links import dead_links
from implicit_bias.runs.configuration import MODEL_MEANINGS

ROOT = Path(__file__).parents[1]
# The paper is typeset by pandoc, and is no page of the site.
PAGES = sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / "docs/paper/paper.md"})
NORMS = (
    *("Norm", "L1", "L2", "LInf", "Lp", "GroupL2", "Spectral", "Nuclear"),
    *("SumOverGroups", "MaxOverGroups", "as_norm"),
)
MODULES = [
    module.name
    for module in pkgutil.walk_packages(implicit_bias.__path__, "implicit_bias.")
    if not module.name.endswith("__main__")
]


@pytest.mark.every(4)
@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_the_page_of_own_data_says_what_the_models_are() -> None:
    page = (ROOT / "docs" / "howto" / "own_data.md").read_text("utf-8")
    for name, meaning in MODEL_MEANINGS.items():
        assert f"| `{name}` | {meaning} |" in page


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


@pytest.mark.slow
def test_readme_shows_what_its_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Up to numbers, whose last digits are of the processor."""
    page = (ROOT / "README.md").read_text("utf-8")
    names: dict[str, object] = {}
    pairs = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", page, re.M | re.S)
    assert len(pairs) == 3
    for block, shown in pairs:
        exec(compile(block, "README.md", "exec"), names)
        printed = capsys.readouterr().out
        assert re.sub(r"[\d.]+(e-\d+)?", "#", printed) == re.sub(r"[\d.]+(e-\d+)?", "#", shown)


def test_public_names_are_on_the_site_with_examples() -> None:
    """Each public class and function shows how it is used; the examples run as doctests."""
    listed = re.findall(r"^   ([A-Za-z_][\w.]*)$", (ROOT / "docs/api.rst").read_text("utf-8"), re.M)
    public = {name for name in dir(implicit_bias) if not name.startswith("_")}
    assert public | {f"norms.{name}" for name in NORMS} <= set(listed)
    found = {name: pydoc.locate(f"implicit_bias.{name}") for name in listed}
    lacking = [
        name
        for name, value in found.items()
        if value is None or (callable(value) and ">>>" not in (inspect.getdoc(value) or ""))
    ]
    assert lacking == []


def test_the_list_of_how_tos_is_whole() -> None:
    """Each page has a line that says what it is for."""
    listed = (ROOT / "docs" / "howto" / "index.md").read_text("utf-8")
    for page in (ROOT / "docs" / "howto").glob("*.md"):
        if page.stem != "index":
            assert listed.count(f"{{doc}}`{page.stem}`") == listed.count(f"\n{page.stem}\n") == 1


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """The examples run, too, and every link between its pages leads somewhere."""
    command = [sys.executable, "-m", "benchmarks", "site", "--folder", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "gallery" / "index.html").exists()
    concepts = (tmp_path / "concepts.html").read_text("utf-8")
    assert "<mfrac>" in concepts  # formulas are drawn by the browser itself,
    assert not re.search(r'<script[^>]*src="http', concepts)  # without the network


@pytest.mark.slow
def test_commands_of_the_first_page_run(tmp_path: Path) -> None:
    """The file of flowers that they name is written by the line before."""
    page = (ROOT / "docs" / "start.md").read_text("utf-8")
    (block,) = (b for b in re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S) if "flowers" in b)
    script = block.replace(".venv/bin", str(Path(sys.executable).parent))
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "implicit-bias-report" / "report.html").is_file()


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "one.html").write_text('<h1 id="top-1">One</h1><a href="../two.html">2</a>')
    links = ["a%20b/one.html#top-1", "#", "https://example.org/x", "mailto:x@example.org"]
    dead = ["a%20b/one.html#none", "three.html", "#none", "picture.png"]
    (tmp_path / "two.html").write_text("".join(f'<a href="{link}">.</a>' for link in links + dead))
    assert dead_links(tmp_path) == [f"two.html links to {link}" for link in dead]
