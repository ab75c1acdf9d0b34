"""How figures look: size, colours of Okabe and Ito, lines, markers.

Line, marker and hatch say the same as colour, without it.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Size of a panel in inches, at 96 CSS pixels an inch.
WIDTH, HEIGHT = 4.2, 3.2
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
GREY = "#767676"
STYLE: dict[str, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.markerscale": 1.4,
    "hatch.linewidth": 0.7,
    "savefig.dpi": 160,
    "svg.hashsalt": "implicit_bias",  # the same identifiers in each run
    "text.parse_math": False,  # a dollar sign in a model's name is a dollar sign
}


@dataclass(frozen=True)
class Look:
    """How a model is drawn in every figure: each of the three tells it from its neighbours."""

    colour: str
    line: str
    marker: str


COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
# What the studies draw the main models in; a report gives colours in the order of its models.
MODEL_COLOURS = {"gd-gln": BLUE, "svm-gln": VERMILION, "svm-l2": GREEN}
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*", "<")


def style() -> AbstractContextManager[None]:
    """Return the settings to draw and save figures under, whatever the user's own are."""
    return matplotlib.style.context(["default", STYLE])


def panel(*, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Make a figure of one panel."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def legend(figure: Figure) -> None:
    """Name what the only axes show, below them."""
    (ax,) = figure.axes
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
