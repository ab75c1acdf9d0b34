"""What docstrings need on the site: links to the source, links of names, short defaults."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes

PACKAGE = "implicit_bias"


def source_of(module: str, name: str) -> tuple[str, int, int] | None:
    """Return the file of an object below the repository's root, its first and its last line."""
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        found = inspect.unwrap(found)
        file = Path(inspect.getsourcefile(found) or "")
        lines, first = inspect.getsourcelines(found)
    except (AttributeError, OSError, TypeError):
        return None  # an attribute that is no code, or code of C
    root = Path(importlib.import_module(PACKAGE).__file__ or "").parents[1]
    if not file.is_relative_to(root / PACKAGE):
        return None
    return file.relative_to(root).as_posix(), first, first + len(lines) - 1


def find_page(app: Any, env: Any, node: Any, contnode: nodes.Element) -> nodes.Element | None:
    """Link a name of this package that the text writes without its module."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"].removesuffix("()")
    domain = env.get_domain("py")
    names = [f"{PACKAGE}.{target}"]
    # A name that one page alone ends in, such as `LimitPoint`.
    ends = [
        name
        for name, entry in domain.objects.items()
        if name.endswith(f".{target}") and entry.objtype in ("class", "exception", "function")
    ]
    if len(ends) == 1:
        names += ends
    for name in names:
        if name in domain.objects:
            entry = domain.objects[name]
            text = nodes.literal(node.rawsource or target, contnode.astext())
            reference = nodes.reference("", "", text, internal=True)
            reference["refuri"] = app.builder.get_relative_uri(node["refdoc"], entry.docname)
            reference["refuri"] += f"#{entry.node_id}"
            return reference
    return None


def escape_bars(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep the bars of an absolute value from being read as a substitution."""
    indentation_of_formula: int | None = None
    for number, line in enumerate(lines):
        indentation = len(line) - len(line.lstrip())
        if line.strip().startswith(".. math::") or line.rstrip().endswith("::"):
            indentation_of_formula = indentation
            continue
        if line.strip() and indentation_of_formula is not None:
            if indentation > indentation_of_formula:
                continue
            indentation_of_formula = None
        is_code = "`" in line or line.lstrip().startswith((">>>", "...", "|"))
        if not is_code:
            lines[number] = line.replace("|", "\\|")


def name_functions(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: Any
) -> tuple[str | None, Any]:
    """Write a function that is the default of a parameter by its name."""
    if signature is not None:
        signature = re.sub(r"<function ([\w.]+)[^<>]*>", r"\1", signature)
    return signature, returned


def setup(app: Any) -> dict[str, bool]:
    """Look a name up where Sphinx finds no page for it."""
    app.connect("missing-reference", find_page)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)
    app.connect("autodoc-process-signature", name_functions)
    return {"parallel_read_safe": True}
