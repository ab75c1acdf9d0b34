"""What models predict in the plane of two inputs.

Source: Lippl, Abbott, Chung (2022), figure 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.report import style
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.words import has_class_names, signed

# The classes have colours of their own, as in the pictures of weights: no model has them.
NEGATIVE, POSITIVE = "#5e3c99", "#b35806"
# Share of a class's colour in its region, where there are many classes.
TINT = 0.25
# Points along each axis at which a picture of the plane is computed.
GRID = 240
# Above this many samples a picture draws them as pixels, not as shapes.
MAX_SHAPES = 2000


@dataclass(frozen=True, eq=False)
class Plane:
    """A grid over the training samples of two inputs.

    Attributes
    ----------
    x, y : ndarray of shape (GRID,)
        Coordinates along the axes.
    has_constant : bool
        Whether inputs end with a constant 1.
    """

    x: Array
    y: Array
    has_constant: bool

    @classmethod
    def around(cls, data: Dataset) -> Plane:
        """Cover the samples, with some room."""
        low, high = data.X[:, :2].min(axis=0), data.X[:, :2].max(axis=0)
        room = 0.08 * np.maximum(high - low, 1e-9)
        x, y = np.linspace(low - room, high + room, GRID).T
        return cls(x, y, data.has_constant)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top."""
        return self.x[0], self.x[-1], self.y[0], self.y[-1]

    def points(self) -> Array:
        """Return the inputs (GRID^2, D) at the grid's points: y is the slow axis."""
        x, y = np.meshgrid(self.x, self.y)
        points = np.column_stack([x.ravel(), y.ravel()])
        return np.column_stack([points, np.ones(len(points))]) if self.has_constant else points


def plane_plots(subject: Subject) -> Iterator[Plot]:
    """Draw the decision regions of each model, for inputs in the plane."""
    train = subject.train
    if train.n_features - train.has_constant != 2 or train.image_shape is not None:
        return
    if not np.ptp(train.X[:, :2], axis=0).all():  # no plane, or inputs that are no numbers
        return
    plane = Plane.around(train)
    for i, model in enumerate(subject.comparison.models, 1):
        if model.has_predictor:
            yield Plot(
                f"regions-{i}",
                _decision_regions(subject, model.name, plane),
                f"Regions of the plane that {model.name} gives to each class, with the training "
                "samples",
                f"{model.name}: what it predicts. The line is its decision boundary.",
            )


def _decision_regions(subject: Subject, name: str, plane: Plane) -> Figure:
    figure, ax = _plane_panel(name)
    given = subject.predicted(name, plane.points()).reshape(GRID, GRID)
    colours = np.array([to_rgb(look.colour) for look in _class_looks(subject)])
    tints = [*(1.0 - TINT * (1.0 - colours))]  # with much white in them
    _tint(ax, plane, given, tints)
    for label in np.unique(given)[1:]:
        _boundary(ax, plane, given >= label, colors=style.BLACK, linewidths=1.5)
    _samples(ax, subject, name)
    style.legend(figure)
    return figure


def _tint(ax: Axes, plane: Plane, numbers: NDArray[Any], tints: Sequence[Any]) -> None:
    """Colour the plane by whole numbers (GRID, GRID), each the index of a tint."""
    picture = ax.imshow(numbers, ListedColormap(tints), origin="lower", extent=plane.extent)
    picture.set(clim=(0, len(tints) - 1), interpolation="nearest")
    ax.set_aspect("auto")


def _boundary(ax: Axes, plane: Plane, inside: NDArray[np.bool_], **options: Any) -> None:
    if inside.any() and not inside.all():
        ax.contour(plane.x, plane.y, inside.astype(float), [0.5], **options)


def _samples(ax: Axes, subject: Subject, name: str) -> None:
    train = subject.train
    names = train.class_names
    if not has_class_names(train):
        names = tuple(f"class {signed(k) if train.classes is None else k}" for k in train.names)
    for label, look, class_name in zip(train.names, _class_looks(subject), names, strict=True):
        x, y = train.X[train.y == label, :2].T
        points = ax.scatter(x, y, s=14, c=look.colour, marker=look.marker)
        points.set(
            alpha=0.9,
            linewidths=0,
            label=short_label(class_name),
            rasterized=len(train) > MAX_SHAPES,
        )
    support = subject.support(name)
    x, y = train.X[support, :2].T
    ax.scatter(x, y, s=60, facecolors="none", edgecolors=style.BLACK, linewidths=1.2)


def _class_looks(subject: Subject) -> list[style.Look]:
    """How the samples of each class are drawn."""
    if subject.train.classes is None:
        return [style.Look(NEGATIVE, "", "o"), style.Look(POSITIVE, "", "^")]
    places = range(len(subject.class_names))
    return [
        style.Look(style.COLOURS[k % len(style.COLOURS)], "", style.MARKERS[k % len(style.MARKERS)])
        for k in places
    ]


def _plane_panel(name: str) -> tuple[Figure, Axes]:
    figure, ax = style.panel(height=style.WIDTH - 0.3)
    ax.set_title(short_label(name))
    ax.set(xlabel="input 1", ylabel="input 2")
    return figure, ax
