"""How figures look: size, colours of Okabe and Ito, lines, markers.

A model has one look in every figure of a report; line and marker say the same without colour.
Figures have a white ground, on a dark page, too.
"""

import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from implicit_bias.base.validation import Array

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
    return matplotlib.style.context(["default", "implicit_bias.base.style"])  # style.mplstyle


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


def short_label(name: str) -> str:
    """Return a name that fits a figure: at most two short lines."""
    lines = textwrap.wrap(name, width=18, max_lines=2, placeholder="…") or ["(no name)"]
    label = "\n".join(lines)
    if name.startswith("_"):
        # Matplotlib keeps a label that begins with an underscore out of legends.
        return f" {label}"
    return label


def image_grid(
    title: str,
    tiles: Sequence[tuple[str, Array]],
    *,
    colours: str,
    limits: tuple[float, float],
    a_row: int = 4,
) -> Figure:
    """Draw images in rows, each under its own title.

    Parameters
    ----------
    title : str
        Title of the whole.
    tiles : sequence of (str, ndarray)
        Title and pixels of each image.
    colours : str
        Name of the colormap of images of one channel.
    limits : tuple of two float
        The values of its first and last colour.
    a_row : int
        Most images in a row.
    """
    n_columns = max(1, min(a_row, len(tiles)))
    n_rows = max(1, -(-len(tiles) // n_columns))
    side = min(WIDTH / n_columns, WIDTH / 2.6)  # one or two images do not fill the width
    figure = Figure(figsize=(WIDTH, 0.4 + n_rows * (side + 0.2)), layout="constrained")
    figure.suptitle(short_label(title), fontsize=10, fontweight="bold")
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in panels[len(tiles) :]:
        ax.set_axis_off()
    for ax, (name, image) in zip(panels, tiles, strict=False):
        ax.imshow(image, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        ax.set_title(name, fontsize=8.5, fontweight="normal", pad=3)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=GREY)
    return figure
