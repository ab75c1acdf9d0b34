"""Figures that an example holds under a name: the package's own, which pyplot does not know."""

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

SHOWN = "_shown_on_the_page"


def _get_sg_image_scraper() -> Any:
    """Return what sphinx-gallery calls after each block of an example."""
    return scrape


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the new figures among the names of an example, and return the lines that show them."""
    names = block_vars["example_globals"]
    shown = names.setdefault(SHOWN, [])
    held = [value for value in list(names.values()) if isinstance(value, Figure)]
    new = [each for each in held if each.canvas.manager is None and each not in shown]
    paths = []
    for figure, path in zip(new, block_vars["image_path_iterator"], strict=False):
        figure.savefig(path, format="png")
        shown.append(figure)
        paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"])
