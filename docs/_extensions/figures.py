"""Figures of the gallery: those of pyplot, and those that an example holds under a name.

The package's own plots are figures that pyplot does not know, so that the scraper of Matplotlib
misses them. One scraper collects both kinds, each figure once.
"""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst, matplotlib_scraper

SHOWN = "_shown_on_the_page"
# The order of the gallery: linear models, networks, solutions and their certificates.
ORDER = (
    "linear_under_five_norms",
    "ten_classes",
    "adam_against_gradient_descent",
    "diagonal_network_goes_to_l1",
    "deep_linear",
    "gated_network_in_the_plane",
    "infinite_time",
    "my_own_module",
    "what_a_network_remembers",
    "relu_contexts_learned",
    "attention_selects_tokens",
    "certify_any_solution",
    "a_reference_that_was_wrong",
    "dates_and_other_offsets",
)


class ByTopic:
    """Key that sorts examples by `ORDER`; others come last."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[int, str]:
        """Return the place of an example."""
        name = file.removeprefix("plot_").removesuffix(".py")
        return (ORDER.index(name) if name in ORDER else len(ORDER)), file


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
