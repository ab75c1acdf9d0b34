"""What a figure of a page is, and how the models of a comparison are drawn in all of them."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from implicit_bias.base.style import Look, look
from implicit_bias.comparison import Comparison
from implicit_bias.comparison.verdict import WORDS


@dataclass(frozen=True, eq=False)
class Plot:
    """One figure.

    Attributes
    ----------
    name : str
        Stem of its file, unique in a report.
    figure : Figure
        What was drawn.
    alt : str
        What it shows, as alternative text.
    caption : str
        What to look for in it.
    raster : bool
        Whether it is made of pixels, so that PNG serves it better than SVG.
    """

    name: str
    figure: Figure
    alt: str
    caption: str
    raster: bool = False


@dataclass(frozen=True, eq=False)
class Section:
    """Figures that belong together, with a heading and an introduction."""

    name: str
    title: str
    note: str
    plots: tuple[Plot, ...]


def with_words(
    name: str, figure: Figure, words: str, *, raster: bool = False, **facts: object
) -> Plot:
    """Give a figure the two texts that words.toml has under ``[figures.WORDS]``, filled in."""
    texts = WORDS["figures"][words]
    alt = texts["alt"].format(**facts)
    caption = texts["caption"].format(**facts)
    return Plot(name, figure, alt, caption, raster)


def looks(comparison: Comparison) -> dict[str, Look]:
    """Return how each model is drawn, by its place in the comparison."""
    return {model.name: look(number) for number, model in enumerate(comparison.models)}
