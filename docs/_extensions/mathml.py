"""Formulas as MathML, which browsers draw themselves: without a script, and offline."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app: Any) -> dict[str, bool]:
    """Write formulas as MathML."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(block, None)
    )
    return {"parallel_read_safe": True}


def inline(translator: Any, node: nodes.math) -> None:
    """Write a formula of a sentence."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, which scrolls by itself where it is wider than the page."""
    formula = tex2mathml(node.astext(), as_block=True)
    # What scrolls is reached from the keyboard, too.
    translator.body.append(f'<div class="formula" tabindex="0">{formula}</div>')
    raise nodes.SkipNode
