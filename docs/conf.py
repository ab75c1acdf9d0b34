"""How Sphinx builds the site: `python -m benchmarks site`."""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from code_links import source_of

import implicit_bias

project = "implicit_bias"
author = "the implicit_bias developers"
copyright = f"2026, {author}"
release = implicit_bias.__version__
repository = "https://github.com/implicit-bias/implicit-bias"
html_baseurl = "https://implicit-bias.github.io/implicit-bias/"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.linkcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
    # of this folder
    "citations",
    "code_links",
    "mathml",
    "tables",
]
exclude_patterns = ["_build", "_extensions", "_templates", "paper", "**.ipynb", "gallery/*.py"]
exclude_patterns += ["sg_execution_times.rst", "gallery/sg_execution_times.rst"]  # of older builds
templates_path = ["_templates"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
default_role = "py:obj"  # a name of the package in a docstring is a link to its page

# Inventories of other projects are read where the builder says that there is a network: without
# one, Sphinx warns, and warnings are errors.
if os.environ.get("IMPLICIT_BIAS_DOCS_ONLINE"):
    extensions.append("sphinx.ext.intersphinx")
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "scipy": ("https://docs.scipy.org/doc/scipy", None),
    "pandas": ("https://pandas.pydata.org/docs", None),
    "sklearn": ("https://scikit-learn.org/stable", None),
    "torch": ("https://docs.pytorch.org/docs/stable", None),
}

# Tutorials are notebooks. They run in each build: a kept output could be that of older code.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "round_author_year"

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say the types
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
# Types of parameters are links where they are classes of this package or of an inventory.
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {
    **{name: f"implicit_bias.{name}" for name in implicit_bias.__all__},
    "Norm": "implicit_bias.norms.Norm",
    "ndarray": "numpy.ndarray",
    "Tensor": "torch.Tensor",
    "Module": "torch.nn.Module",
    "nn.Module": "torch.nn.Module",
    "torch.optim.Optimizer": "torch.optim.Optimizer",
}
# Those that numpydoc knows are roles that only another site answers.
for name in ("None", "bool", "boolean", "True", "False", "list", "tuple", "str", "string", "dict"):
    numpydoc_xref_aliases[name] = name
for name in ("float", "int", "callable", "iterable", "sequence", "array-like", "array_like"):
    numpydoc_xref_aliases[name] = name
for name in ("generator", "scalar", "array", "contextmanager", "namedtuple", "numpy"):
    numpydoc_xref_aliases[name] = name

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "show_signature": False,
    "image_scrapers": ("figures",),
    "capture_repr": ("_repr_html_",),
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("implicit_bias",),
    "within_subsection_order": "figures.ByTopic",
    "write_computation_times": False,  # its page asks the network for scripts
}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"implicit_bias {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "github_url": repository,
    "logo": {"text": html_title},
    "show_prev_next": False,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "start": []}  # these are no sections


def linkcode_resolve(domain: str, info: dict[str, Any]) -> str | None:
    """Return the address of an object's source."""
    if domain != "py" or not info["module"]:
        return None
    source = source_of(info["module"], info["fullname"])
    if source is None:
        return None
    file, first, last = source
    return f"{repository}/blob/main/{file}#L{first}-L{last}"
