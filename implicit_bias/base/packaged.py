"""Files that come with the package: words and tables as text."""

import tomllib
from pathlib import Path
from typing import Any


def text_of(path: str) -> str:
    """Return the text of a file of this package."""
    return (Path(__file__).parents[1] / path).read_text("utf-8")


def table_of(path: str) -> dict[str, Any]:
    """Return what a .toml file of this package holds."""
    return tomllib.loads(text_of(path))
