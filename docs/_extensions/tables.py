"""Tables that are written at build from the package itself, so that no page keeps a copy.

``{optimizer-limits}`` are the tables of optimizers and the norms of their max-margin problems;
``{command-line}`` lists the options of a command; ``{model-names}`` the models of ``compare``.
"""

import re
from pathlib import Path
from typing import Any

import typer
from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from implicit_bias.base.options import optimizer_tables
from implicit_bias.runs.configuration import MODEL_MEANINGS

BIBLIOGRAPHY = Path(__file__).parents[1] / "references.bib"
# "Fan, Schmidt and Thrampoulidis 2025": the first author and the year are the key of the entry.
CITATION = re.compile(r"([A-Z][a-z]+)(?:(?:, | and | et al\.)[A-Za-z., ]*?)? (\d{4})")


def cited(sources: str) -> str:
    """Replace each "Authors year" by a role that cites the entry of the bibliography.

    Raises
    ------
    ExtensionError
        A paper that the bibliography does not have.
    """
    keys = set(re.findall(r"^@\w+\{(\w+),$", BIBLIOGRAPHY.read_text("utf-8"), re.M))

    def role(found: re.Match[str]) -> str:
        key = found[1].lower() + found[2]
        if key not in keys:
            raise ExtensionError(f"docs/references.bib has no entry {key!r}, which is cited")
        return f"{{cite:t}}`{key}`"

    return CITATION.sub(role, sources)


def model_table() -> str:
    """Return the models of the command line and what they are, in Markdown."""
    lines = ["| model | what it is |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in MODEL_MEANINGS.items()]
    return "\n".join(lines)


def option_table(command: str) -> str:
    """Return the options of a command in Markdown."""
    from implicit_bias.cli.app import app

    found: Any = typer.main.get_command(app)
    lines = ["| option | what it does | default |", "|---|---|---|"]
    for option in found.commands[command].params:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        help_text = " ".join((option.help or "").split()).replace("|", r"\|").replace("<", r"\<")
        default = ""
        if option.default not in (None, False, (), "") and not callable(option.default):
            default = f"`{option.default}`"
        if option.param_type_name == "argument":
            names = f"`{option.name.upper()}`"
        lines.append(f"| {names} | {help_text} | {default} |")
    return "\n".join(lines)


class OptimizerLimits(SphinxDirective):
    """The tables of optimizers: their norms and conditions, or why no limit is known."""

    def run(self) -> list[nodes.Node]:
        """Parse the table as a part of the page."""
        return self.parse_text_to_nodes(cited(optimizer_tables()))


class ModelNames(SphinxDirective):
    """The models of the command line."""

    def run(self) -> list[nodes.Node]:
        """Parse the table as a part of the page."""
        return self.parse_text_to_nodes(model_table())


class CommandLine(SphinxDirective):
    """The options of the command that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse the table as a part of the page."""
        return self.parse_text_to_nodes(option_table(self.arguments[0]))


def setup(app: Any) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("optimizer-limits", OptimizerLimits)
    app.add_directive("model-names", ModelNames)
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
