"""What figures are about, and what one is."""

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import Array
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.report.style import Look, Role
from implicit_bias.report.words import class_names


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
        Its numbers, and the models compared.
    train : Dataset
        The samples the models were fitted to.
    """

    comparison: Comparison
    train: Dataset

    @property
    def fitted(self) -> dict[str, FittedMargin]:
        """The models that are solutions of a margin problem, by name."""
        return {m.name: m.fitted for m in self.comparison.models if m.fitted is not None}

    def draw(self, ax: Axes, name: str, x: ArrayLike, y: ArrayLike, **options: Any) -> None:
        """Draw a curve of the model of this name."""
        drawn = look(self.comparison, name)
        usual = {"linestyle": drawn.line, "color": drawn.colour, "marker": drawn.marker}
        (line,) = ax.plot(x, y, **{**usual, **options})
        line.set_label(short_label(name))

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of ``comparison.classes``."""
        return class_names(self.comparison, self.train)

    def predicted(self, name: str, X: Array) -> NDArray[np.int64]:
        """Class that a model gives to each input (n, D), by its place among all classes."""
        of = self.comparison.of
        inputs = pd.DataFrame(X, columns=of.X.columns) if isinstance(of.X, pd.DataFrame) else X
        given = np.asarray(of.models[name].predict(inputs))
        return np.searchsorted(self.comparison.classes, given)

    def support(self, name: str) -> NDArray[np.int64]:
        """Support vectors of a model, as indices of the training samples; none for a network."""
        fitted = self.fitted.get(name)
        solution = None if fitted is None else fitted.solution
        if fitted is None or solution is None or len(solution.alpha) != len(self.train):
            return np.empty(0, dtype=np.int64)
        return fitted.support


def role(comparison: Comparison, model: ModelResult) -> Role:
    """Return what a model is beside the others of a comparison."""
    if model.history:
        return Role.NETWORK
    if model.fitted is None:
        return Role.OTHER
    trained = [other for other in comparison.models if other.history]
    return Role.ITS_SVM if any(comparison.svm_of(n) is model for n in trained) else Role.OTHER_SVM


def look(comparison: Comparison, name: str) -> Look:
    """Return how the model of this name is drawn: by its role, and its number among these."""
    roles = {model.name: role(comparison, model) for model in comparison.models}
    mine = roles[name]
    number = [other for other, part in roles.items() if part is mine].index(name)
    colours, line, markers = mine.value
    drawn = line if number % 2 == 0 else (0, (1 + number, 2))
    return Look(colours[number % len(colours)], drawn, markers[number // 2 % len(markers)])


def short_label(name: str) -> str:
    """Name that fits a figure: at most two short lines."""
    lines = textwrap.wrap(name, width=18, max_lines=2, placeholder="…") or ["(no name)"]
    # A label that begins with an underscore would be kept out of legends.
    return "\n".join(lines) if not name.startswith("_") else " " + "\n".join(lines)
