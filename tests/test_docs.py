"""The documentation: examples in docstrings, README and the pages, the examples, and the site."""

import doctest
import importlib
import inspect
import os
import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from docutils.utils.math.latex2mathml import tex2mathml  # type: ignore[import-untyped]

import implicit_bias
from benchmarks.links import dead_links
from browser import DARK, check_by_axe, needs_browser
from implicit_bias.base.options import ALL_OPTIMIZER_LIMITS, optimizer_tables

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if not {"_build", "gallery", "generated", "paper"} & set(page.parts)
]
NORMS = (
    *("Norm", "L1", "L2", "LInf", "Lp", "GroupL2", "Spectral", "Nuclear"),
    *("SumOverGroups", "MaxOverGroups", "as_norm"),
)
NAME = r"^   ([A-Za-z_][\w.]*)$"  # in a list of the page of the API
WITH_EXAMPLES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((ROOT / "implicit_bias").rglob("*.py"))
    if ">>> " in file.read_text("utf-8")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that writes the tables of the site."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_extensions"))
    return importlib.import_module("tables")


def test_the_tables_of_optimizers_are_those_of_the_package(tables: Any) -> None:
    shown = tables.cited(optimizer_tables())
    for limit in ALL_OPTIMIZER_LIMITS.values():
        first = f"| `{limit.classes[0]}`"
        row = next(
            line for line in shown.splitlines() if re.match(rf"{re.escape(first)}[ ,]", line)
        )
        assert row.count("{cite:t}") == len(re.findall(r"\d{4}", limit.sources))
    assert [path for path in PAGES if "| `SGD` |" in path.read_text("utf-8")] == []


WITH_CODE = [page for page in PAGES if "```python\n" in page.read_text("utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_code_of_the_pages_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The blocks of a page one after the other, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        exec(compile(block, str(page), "exec"), names)
    if page.stem == "README":
        assert "Not near a KKT point of the linf max-margin problem" in capsys.readouterr().out
        assert (tmp_path / "my-report" / "report.html").is_file()


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
    text = (ROOT / "docs" / "api.rst").read_text("utf-8")
    # What other functions return, base classes and errors are not called by users.
    called, _, others = text.partition("\nParts of results\n")
    assert others.count("autosummary::") == 4
    listed = re.findall(NAME, called, re.M)
    for name in re.findall(NAME, others, re.M):
        assert inspect.getdoc(pydoc.locate(f"implicit_bias.{name}")) or name.isupper(), name
    public = {name for name in dir(implicit_bias) if not name.startswith("_")}
    assert public | {f"norms.{name}" for name in NORMS} <= set(re.findall(NAME, text, re.M))
    found = {name: pydoc.locate(f"implicit_bias.{name}") for name in listed}
    lacking = [
        name
        for name, value in found.items()
        if value is None or (callable(value) and ">>>" not in (inspect.getdoc(value) or ""))
    ]
    assert lacking == []


def formulas(page: Path) -> list[str]:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text("utf-8"), flags=re.S)
    return re.findall(r"\$\$?([^$]+)\$\$?", text)


@pytest.mark.parametrize("page", [*filter(formulas, PAGES)], ids=lambda page: page.stem)
def test_formulas_are_mathml(page: Path) -> None:
    """In the part of LaTeX that docutils reads: a fraction has braces, or its end is misread."""
    for formula in formulas(page):
        assert not re.search(r"frac[^{\s]", formula), formula
        assert tex2mathml(formula.strip()).startswith("<math")


def test_links_to_the_repository_lead_to_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    address = rf"{re.escape(project['urls']['Repository'])}/(?:blob|tree|raw)/main/([\w./-]+)"
    found = [link for page in PAGES for link in re.findall(address, page.read_text("utf-8"))]
    assert len(found) > 5
    assert [link for link in found if not (ROOT / link).exists()] == []


def test_numbers_of_the_studies_are_in_their_pages() -> None:
    """Each number with a decimal point or a per cent sign stands in the study that is linked."""
    text = (ROOT / "docs" / "studies.md").read_text("utf-8")
    for section in text.split("\n## ")[1:]:
        links = re.findall(r"blob/main/(benchmarks/\w+)/README.md", section)
        pages = "".join((ROOT / link / "README.md").read_text("utf-8") for link in links)
        for line in section.splitlines():
            for number in re.findall(r"\d+\.\d+|\d+(?= (?:to [\d.]+ )?%)|\d+ of \d+", line):
                first, _, second = number.partition(" of ")
                assert first in pages, number
                assert second in pages, number


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site: the examples run, and every link between its pages leads somewhere."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "benchmarks", "site", "--folder", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_the_site_shows_what_has_run(site: Path) -> None:
    assert (site / "gallery" / "index.html").exists()
    # The tutorials have run, and show what they say.
    network = (site / "tutorials" / "my_network.html").read_text("utf-8")
    assert network.index("Near a KKT point") > network.index("Not near a KKT point")
    # No figure of the gallery is shown twice.
    for page in (site / "gallery").glob("plot_*.html"):
        names = re.findall(r'src="\.\./_images/(sphx_glr_\w+_\d+\.png)"', page.read_text("utf-8"))
        assert names, page
        shown = [(site / "_images" / name).read_bytes() for name in names]
        assert len(set(shown)) == len(shown), page
    # A browser needs no network.
    for page in site.rglob("*.html"):
        assert not re.search(r'<(script|img)[^>]*src="http', page.read_text("utf-8")), page


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("width", "flags"), [(1280, ()), (390, (DARK,))])
def test_a_screen_reader_can_follow_the_site(
    site: Path, width: int, flags: tuple[str, ...], tmp_path: Path
) -> None:
    pages = ("index", "tutorials/my_network", "gallery/index", "bibliography", "reference/norms")
    for page in (*pages, "generated/implicit_bias.solve"):
        check_by_axe(site / f"{page}.html", tmp_path, f"--window-size={width},900", *flags)


@pytest.mark.slow
def test_commands_of_the_first_page_run(tmp_path: Path) -> None:
    """The file of flowers that they name is written by the line before."""
    page = (ROOT / "docs" / "start.md").read_text("utf-8")
    (block,) = (b for b in re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S) if "flowers" in b)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    subprocess.run(
        ["bash", "-ec", block], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    assert (tmp_path / "implicit-bias-report" / "report.html").is_file()


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "one.html").write_text('<h1 id="top-1">One</h1><a href="../two.html">2</a>')
    links = ["a%20b/one.html#top-1", "#", "https://example.org/x", "mailto:x@example.org"]
    dead = ["a%20b/one.html#none", "three.html", "#none", "picture.png"]
    (tmp_path / "two.html").write_text("".join(f'<a href="{link}">.</a>' for link in links + dead))
    assert dead_links(tmp_path) == [f"two.html links to {link}" for link in dead]
