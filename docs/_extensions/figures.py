"""Figures of the gallery: those of pyplot, and those that an example holds under a name.

The package's own plots are figures that pyplot does not know, so that the scraper of Matplotlib
misses them. One scraper collects both kinds, each figure once.
"""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst, matplotlib_scraper

SHOWN = "_shown_on_the_page"


def _get_sg_image_scraper() -> Any:
    """Return what sphinx-gallery calls after each block of an example."""
    return scrape


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the new figures of an example, and return the lines that show them."""
    names = block_vars["example_globals"]
    shown = names.setdefault(SHOWN, [])
    # The scraper of Matplotlib closes what it saves, and a closed figure looks like one that
    # pyplot never knew: its figures are counted as shown before.
    shown.extend(plt.figure(number) for number in plt.get_fignums())
    lines = matplotlib_scraper(block, block_vars, gallery_conf)

    paths = []
    for value in list(names.values()):
        if isinstance(value, Figure) and not any(value is each for each in shown):
            path = next(block_vars["image_path_iterator"])
            value.savefig(path, format="png")
            shown.append(value)
            paths.append(path)
    return str(lines) + figure_rst(paths, gallery_conf["src_dir"])
