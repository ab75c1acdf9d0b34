"""How figures look: size, colours of Okabe and Ito, lines, markers.

A model has one look in every figure of a report; line and marker say the same without colour.
Figures have a white ground, on a dark page, too.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

# The colours of Okabe and Ito.
BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
ORANGE = "#E69F00"
SKY = "#56B4E9"
BLACK = "#000000"
GREY = "#767676"  # no model has it
# Size of a panel in inches, at 96 CSS pixels an inch.
WIDTH = 4.2
HEIGHT = 3.2


@dataclass(frozen=True)
class Look:
    """How a model is drawn in every figure: each of the three tells it from its neighbours."""

    colour: str
    line: str
    marker: str


COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*", "<")


def look(number: int) -> Look:
    """Return how the model, or the class, of this number is drawn."""
    return Look(
        COLOURS[number % len(COLOURS)],
        LINES[number % len(LINES)],
        MARKERS[number % len(MARKERS)],
    )


def style() -> AbstractContextManager[None]:
    """Return the settings to draw and save figures under, whatever the user's own are."""
    return matplotlib.style.context(["default", "implicit_bias.report.page"])  # page.mplstyle


def panels(count: int, *, height: float = HEIGHT) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels side by side."""
    figure = Figure(figsize=(count * WIDTH, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def panel(*, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Make a figure of one panel."""
    figure, (only,) = panels(1, height=height)
    return figure, only


def legend(figure: Figure) -> None:
    """Name what the axes show, below them."""
    figure.legend(loc="outside lower center", ncols=2)


def logarithmic(ax: Axes, *, x: bool = True) -> None:
    """Make both axes logarithmic, or y alone, with at least three plain numbers beside each."""
    ax.set_yscale("log")
    if x:
        ax.set_xscale("log")
    ax.grid(True)
    axes: list[Axis] = [ax.yaxis]
    if x:
        axes.append(ax.xaxis)
    for axis in axes:
        # On less than three decades powers of ten are too few numbers. Within one decade there are
        # round numbers instead, beyond it 1, 2 and 5 times each power.
        low, high = sorted(axis.get_view_interval())
        if high < 10 * low:
            axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
        elif high < 1000 * low:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
