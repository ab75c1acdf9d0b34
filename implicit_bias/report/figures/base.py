"""What a figure of a page is, and how the models of a comparison are drawn in all of them."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.comparison.verdict import WORDS
from implicit_bias.report.style import Look, Role


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
    """Return how each model is drawn: by its role, and by its number among those of its role."""
    number_of_role: Counter[Role] = Counter()
    drawn = {}
    for model in comparison.models:
        role = _role(comparison, model)
        number = number_of_role[role]
        number_of_role[role] += 1
        colours, line, markers = role.value
        # The second of a role has the second colour and dashes of its own; the third the first
        # colour and the next marker.
        look = Look(colours[number % len(colours)], line, markers[number // 2 % len(markers)])
        if number % 2 == 1:
            look = replace(look, line=(0, (1 + number, 2)))
        drawn[model.name] = look
    return drawn


def _role(comparison: Comparison, model: ModelResult) -> Role:
    """Return what a model is beside the others of a comparison."""
    if model.history:
        return Role.NETWORK
    if model.fitted is None:
        return Role.OTHER
    for other in comparison.models:
        if other.history and comparison.svm_of(other) is model:
            return Role.ITS_SVM
    return Role.OTHER_SVM


def short_label(name: str) -> str:
    """Return a name that fits a figure: at most two short lines."""
    lines = textwrap.wrap(name, width=18, max_lines=2, placeholder="…") or ["(no name)"]
    label = "\n".join(lines)
    if name.startswith("_"):
        # Matplotlib keeps a label that begins with an underscore out of legends.
        return f" {label}"
    return label
