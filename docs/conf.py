"""How Sphinx builds the site: `python -m benchmarks site`."""

import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

sys.path.insert(0, str(Path(__file__).parent))  # for figures.py

project = "implicit_bias"
author = "the implicit_bias developers"
copyright = f"2026, {author}"
release = installed("implicit-bias")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "paper"]
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
default_role = "code"

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say the types
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "show_signature": False,
    "image_scrapers": ("matplotlib", "figures"),
    "capture_repr": ("_repr_html_",),
}

# Browsers draw MathML themselves: formulas need neither a script nor the network.
html_math_renderer = "mathml"

html_theme = "pydata_sphinx_theme"
html_title = "implicit_bias"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
}
html_sidebars = {"start": [], "concepts": [], "glossary": []}


def setup(app: Any) -> None:
    """Write formulas as MathML."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    formula = tex2mathml(node.astext(), as_block=True)
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode
