"""Pages in a headless browser: their document once scripts have run, and what axe finds in them."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium binary")
# A flag of `opened`, for those who prefer a dark page.
DARK = "--blink-settings=preferredColorScheme=0"

RUN_AXE = """
<script>{axe}</script>
<script>
// After the page's own scripts, which make what scrolls focusable.
addEventListener("load", () => setTimeout(async () => {{
  const rules = {{runOnly: ["wcag2a", "wcag2aa", "best-practice"]}};
  const found = await axe.run(document, rules);
  const said = found.violations.map((v) => v.id + " " + v.nodes[0].html.slice(0, 200));
  document.documentElement.dataset.found =
    JSON.stringify({{passed: found.passes.map((rule) => rule.id), violations: said}});
}}, 500));
</script>
"""


class Page(HTMLParser):
    """Tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.text += data

    def attributes(self, tag: str, name: str) -> list[str]:
        """Return the values of an attribute in all tags of a name that have it."""
        values = (attrs.get(name) for found, attrs in self.tags if found == tag)
        return [value for value in values if value is not None]


def opened(page: Path, folder: Path, *flags: str) -> str:
    """Open a page in the browser, and return its document once its scripts are done."""
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--allow-file-access-from-files"),
        *("--hide-scrollbars", "--enable-logging=stderr", "--v=0"),
        *(f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"),
        *("--virtual-time-budget=20000", *flags, "--dump-dom", page.as_uri()),
    ]
    ran = subprocess.run(
        [str(CHROMIUM), *options], capture_output=True, text=True, timeout=120, check=True
    )
    # The browser's own pages say so where there is no network, and the theme of the site says
    # whether it is dark.
    expected = re.compile(r"source: (chrome://|\S*/pydata-sphinx-theme\.js)")
    told = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in told if not expected.search(line)] == []
    return ran.stdout


def check_by_axe(page: Path, folder: Path, *flags: str) -> None:
    """Judge a page by axe: its names, roles, headings, landmarks, contrast and focus.

    A copy of the page beside it runs axe, without the policy under which no script may run.
    """
    package = pytest.importorskip("axe_core_python")
    axe = (Path(package.__file__).parent / "axe.min.js").read_text("utf-8")
    html = re.sub("<meta http-equiv[^>]*>", "", page.read_text("utf-8"))
    copy_of = page.with_name(f"axe-{page.name}")
    copy_of.write_text(html.replace("</body>", RUN_AXE.format(axe=axe) + "</body>"), "utf-8")
    try:
        (found,) = Page(opened(copy_of, folder, *flags)).attributes("html", "data-found")
    finally:
        copy_of.unlink()
    result = json.loads(found)
    assert result["violations"] == []
    assert "color-contrast" in result["passed"]
