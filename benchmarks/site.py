"""Build the documentation with Sphinx: warnings are errors, and links between pages are checked."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.links import dead_links

DOCS = Path(__file__).parent.parent / "docs"


def build(words: Sequence[str]) -> int:
    """Build the site, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks site",
        description="Build the documentation: its pages, the API, and the examples, which run.",
    )
    parser.add_argument("--folder", type=Path, default=DOCS / "_build", help="where the site goes")
    folder = parser.parse_args(words).folder
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the examples are too small to share
    try:
        from sphinx.cmd.build import main as sphinx
    except ImportError:
        print("error: Sphinx is missing: pip install -e '.[docs]'", file=sys.stderr)
        return 1
    # Pages of names that are listed no more are in no table of contents.
    shutil.rmtree(DOCS / "generated", ignore_errors=True)
    if sphinx(["-W", "--keep-going", "-q", str(DOCS), str(folder)]):
        return 1
    dead = dead_links(folder)
    for link in dead:
        print(f"error: {link}", file=sys.stderr)
    print(folder / "index.html")
    return 1 if dead else 0
