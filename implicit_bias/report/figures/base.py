"""What the figures of a report are about, and what one is."""

from __future__ import annotations

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
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of ``comparison.classes``."""
        return class_names(self.comparison, self.train)

    def predicted(self, name: str, X: Array) -> NDArray[np.int64]:
        """Class that a model gives to each input (n, D), by its place among all classes."""
        of = self.comparison.of
        inputs: ArrayLike = X
        if isinstance(of.X, pd.DataFrame):
            inputs = pd.DataFrame(X, columns=of.X.columns)
        labels = np.asarray(of.models[name].predict(inputs))
        return np.searchsorted(self.comparison.classes, labels)

    def support(self, name: str) -> NDArray[np.int64]:
        """Support vectors of a model, as indices of the training samples; none for a network."""
        fitted = self.comparison.model(name).fitted
        if fitted is None or fitted.solution is None:
            return np.empty(0, dtype=np.int64)
        if len(fitted.solution.alpha) != len(self.train):  # the samples of the test are shown
            return np.empty(0, dtype=np.int64)
        return fitted.support

    def draw(self, ax: Axes, name: str, x: ArrayLike, y: ArrayLike, **options: Any) -> None:
        """Draw a curve of the model of this name."""
        drawn = look(self.comparison, name)
        (line,) = ax.plot(
            x, y, linestyle=drawn.line, color=drawn.colour, marker=drawn.marker, **options
        )
        line.set_label(short_label(name))


def role(comparison: Comparison, model: ModelResult) -> Role:
    """Return what a model is beside the others of a comparison."""
    if model.history:
        return Role.NETWORK
    if model.fitted is None:
        return Role.OTHER
    for other in comparison.models:
        if other.history and comparison.svm_of(other) is model:
            return Role.ITS_SVM
    return Role.OTHER_SVM


def look(comparison: Comparison, name: str) -> Look:
    """Return how the model of this name is drawn: by its role, and its number among these."""
    roles = {model.name: role(comparison, model) for model in comparison.models}
    colours, line, markers = roles[name].value
    same_role = [other for other, its_role in roles.items() if its_role is roles[name]]
    number = same_role.index(name)
    # The second of a role has the second colour and dashes of its own; the third the next marker.
    drawn = line if number % 2 == 0 else (0, (1 + number, 2))
    return Look(colours[number % len(colours)], drawn, markers[number // 2 % len(markers)])


def short_label(name: str) -> str:
    """Return a name that fits a figure: at most two short lines."""
    lines = textwrap.wrap(name, width=18, max_lines=2, placeholder="…") or ["(no name)"]
    label = "\n".join(lines)
    # Matplotlib keeps a label that begins with an underscore out of legends.
    return f" {label}" if name.startswith("_") else label
