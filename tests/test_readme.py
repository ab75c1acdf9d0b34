"""The README leads where it says, and names one address and one version with all others."""

import re
import tomllib
from pathlib import Path

import implicit_bias

README = Path(__file__).parents[1] / "README.md"


def test_links_are_absolute_and_lead_somewhere() -> None:
    """So that they work on a package index, which has no files beside the page."""
    project = tomllib.loads((README.parent / "pyproject.toml").read_text("utf-8"))["project"]
    home = project["urls"]["Repository"]
    site = project["urls"]["Documentation"]
    links = re.findall(r"\]\(([^)]+)\)", README.read_text("utf-8"))
    assert len(links) > 10
    for link in links:
        assert link.startswith("https://")
        if link.startswith(home):
            kind, branch, path = link.removeprefix(f"{home}/").split("/", 2)
            assert (kind in ("blob", "tree", "raw"), branch) == (True, "main")
            assert (README.parent / path).exists()
        elif link.startswith(site):
            page = link.removeprefix(site).removesuffix(".html")
            assert page == "gallery/index" or list((README.parent / "docs").glob(f"{page}.*"))


def test_the_address_is_one_everywhere() -> None:
    root = README.parent
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    home = project["urls"]["Repository"]
    site = project["urls"]["Documentation"].rstrip("/")
    assert all(url.startswith((home, site)) for url in project["urls"].values())
    assert f'html_baseurl = "{site}/"' in (root / "docs" / "conf.py").read_text("utf-8")
    pages = [README, root / "CITATION.cff", root / "CONTRIBUTING.md", *root.glob("docs/**/*.md")]
    name = re.escape(home.rpartition("/")[2])
    for page in pages:
        found = re.findall(rf"https://[\w./-]*/{name}\b", page.read_text("utf-8"))
        assert set(found) <= {home, site}, page
    assert f'repository-code: "{home}"' in (root / "CITATION.cff").read_text("utf-8")


def test_the_version_stands_everywhere() -> None:
    root = README.parent
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == implicit_bias.__version__
    assert f"version: {implicit_bias.__version__}" in (root / "CITATION.cff").read_text("utf-8")
    assert f"## {implicit_bias.__version__}" in (root / "CHANGELOG.md").read_text("utf-8")
