"""Citations by author and year, in round brackets, and a bibliography that is a list."""

from dataclasses import dataclass, field
from typing import Any

from docutils import nodes
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


def visit_citation(translator: Any, node: nodes.citation) -> None:
    """Begin an entry, and the list before the first one.

    The role that docutils gives an entry, doc-biblioentry, is deprecated: an entry is an item.
    """
    if not isinstance(node.previous_sibling(), nodes.citation):
        translator.body.append('<div role="list" class="citation-list">\n')
    translator.body.append(
        translator.starttag(node, "div", classes=[node.tagname], role="listitem")
    )


def setup(app: Any) -> dict[str, bool]:
    """Name the style."""
    register_plugin("sphinxcontrib.bibtex.style.referencing", "round_author_year", RoundAuthorYear)
    app.add_node(nodes.citation, override=True, html=(visit_citation, None))
    return {"parallel_read_safe": True}
