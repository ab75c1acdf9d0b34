"""What figures are about, and what one is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from implicit_bias.certificate import Status
from implicit_bias.comparison import Comparison, MarginResult, ModelResult, Predicts
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.estimators.base import MarginView
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
        What it shows, for who cannot see it.
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
    """Figures that belong together, with a heading and a word of introduction."""

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
    views : mapping from name to MarginView
        The margin problem's side of those that have one.
    train : Dataset
        The samples the models were fitted to.
    """

    comparison: Comparison
    models: Mapping[str, Predicts]
    views: Mapping[str, MarginView]
    train: Dataset

    def look(self, name: str) -> Look:
        """Return how the model of this name is drawn."""
        i = [model.name for model in self.comparison.models].index(name)
        return Look(*(cycle[i % len(cycle)] for cycle in (COLOURS, LINES, MARKERS)))


def short_label(name: str) -> str:
    """Name that fits a figure: at most two short lines."""
    lines = textwrap.wrap(name, width=18, max_lines=2, placeholder="…") or ["(no name)"]
    # A label that begins with an underscore would be kept out of legends.
    return "\n".join(lines) if not name.startswith("_") else " " + "\n".join(lines)


def signed(label: float) -> str:
    """Write a class as +1 or −1."""
    return "+1" if label > 0 else "−1"


def names_of(models: Iterable[ModelResult]) -> str:
    """Join the models' names."""
    return ", ".join(model.name for model in models)


def class_note(data: Dataset) -> str:
    """Say which class is +1, where the classes have names."""
    negative, positive = data.class_names
    return f"+1 is {positive}, −1 is {negative}." if has_class_names(data) else ""


def has_class_names(data: Dataset) -> bool:
    """Whether the names of the classes say more than their signs do."""
    return any(
        name.strip().replace("−", "-").lstrip("+") != sign
        for name, sign in zip(data.class_names, ("-1", "1"), strict=True)
    )


def margin_of(model: ModelResult) -> MarginResult:
    """Return the margin problem's side of a model that has one."""
    if model.margin is None:
        raise ValueError(f"{model.name} has no margin structure")
    return model.margin


def support_of(subject: Subject, name: str) -> NDArray[np.int64]:
    """Support vectors of a model, as indices of the training samples; none for a network."""
    view = subject.views.get(name)
    solution = None if view is None else view.solution
    if (
        solution is None
        or solution.status is Status.NOT_SEPARABLE
        or len(solution.alpha) != len(subject.train)
    ):
        return np.empty(0, dtype=np.int64)
    return solution.support
