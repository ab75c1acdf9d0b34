"""Citations by author and year, in round brackets."""

from dataclasses import dataclass, field
from typing import Any

from sphinxcontrib.bibtex.plugin import register_plugin
from sphinxcontrib.bibtex.style.referencing import BracketStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle


def round_brackets() -> BracketStyle:
    """Return the brackets of a citation."""
    return BracketStyle(left="(", right=")")


@dataclass
class RoundAuthorYear(AuthorYearReferenceStyle):
    """Soudry et al. (2018), or (Soudry et al., 2018)."""

    bracket_textual: BracketStyle = field(default_factory=round_brackets)
    bracket_parenthetical: BracketStyle = field(default_factory=round_brackets)


def setup(app: Any) -> dict[str, bool]:
    """Name the style."""
    register_plugin("sphinxcontrib.bibtex.style.referencing", "round_author_year", RoundAuthorYear)
    return {"parallel_read_safe": True}
