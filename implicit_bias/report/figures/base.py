"""What figures are about, and what one is."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from implicit_bias.comparison import Comparison, Predicts
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.report.style import COLOURS, LINES, MARKERS, Look


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


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report is about.

    Attributes
    ----------
    comparison : Comparison
        Its numbers.
    models : mapping from name to fitted classifier
        The models compared.
    train : Dataset
        The samples the models were fitted to.
    """

    comparison: Comparison
    models: Mapping[str, Predicts]
    train: Dataset

    @property
    def fitted(self) -> dict[str, FittedMargin]:
        """The models that are solutions of a margin problem, by name."""
        return {m.name: m.fitted for m in self.comparison.models if m.fitted is not None}

    def look(self, name: str) -> Look:
        """Return how the model of this name is drawn."""
        i = [model.name for model in self.comparison.models].index(name)
        return Look(*(cycle[i % len(cycle)] for cycle in (COLOURS, LINES, MARKERS)))

    def draw(self, ax: Axes, name: str, x: ArrayLike, y: ArrayLike, **options: Any) -> None:
        """Draw a curve of the model of this name."""
        look = self.look(name)
        (line,) = ax.plot(x, y, look.line, color=look.colour, marker=look.marker, **options)
        line.set_label(short_label(name))

    def support(self, name: str) -> NDArray[np.int64]:
        """Support vectors of a model, as indices of the training samples; none for a network."""
        fitted = self.fitted.get(name)
        solution = None if fitted is None else fitted.solution
        if fitted is None or solution is None or len(solution.alpha) != len(self.train):
            return np.empty(0, dtype=np.int64)
        return fitted.support


def short_label(name: str) -> str:
    """Name that fits a figure: at most two short lines."""
    lines = textwrap.wrap(name, width=18, max_lines=2, placeholder="…") or ["(no name)"]
    # A label that begins with an underscore would be kept out of legends.
    return "\n".join(lines) if not name.startswith("_") else " " + "\n".join(lines)
