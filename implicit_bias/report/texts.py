"""What a page says: the files beside this one."""

import tomllib
from importlib import resources


def text_of(name: str) -> str:
    """Return the text of a file that lies beside this one."""
    return resources.files("implicit_bias.report").joinpath(name).read_text("utf-8")


# What is said of tables, sections, curves and verdicts.
WORDS = tomllib.loads(text_of("page.toml"))
