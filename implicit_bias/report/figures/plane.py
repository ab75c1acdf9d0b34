"""What models make of two inputs.

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
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.problem.gating import dense
from implicit_bias.report import style
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.figures.predictors import reads_inputs
from implicit_bias.report.words import has_class_names, signed

# The classes have colours of their own, as in the pictures of weights: no model has them.
NEGATIVE, POSITIVE = "#5e3c99", "#b35806"
CONTEXT_TINTS = ("#f4f4f4", "#e2ecf3", "#f7eedd", "#e0f0ea", "#f6e6ee", "#e3e3e3", "#fbf6d9")
# Share of a class's colour in its region, where there are many classes.
TINT = 0.25
# Points along each axis at which a picture of the plane is computed.
GRID = 240
# With more contexts than this their hyperplanes are drawn only where they rule.
MAX_EXTENDED = 8
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
        return self.inputs(np.column_stack([x.ravel(), y.ravel()]))

    def inputs(self, points: Array) -> Array:
        """Points (n, 2) with the constant, where there is one."""
        return np.column_stack([points, np.ones(len(points))]) if self.has_constant else points

    def line(self, coef: Array, intercept: float = 0.0) -> Array:
        """Points (n, 2) of <coef, x> + b = 0 that cross the grid; none where there is no line."""
        normal, offset = coef[:2], intercept + (coef[2] if self.has_constant else 0.0)
        square = float(normal @ normal)
        if square == 0:
            return np.empty((0, 2))
        centre = np.array([self.x.mean(), self.y.mean()])
        foot = centre - (normal @ centre + offset) / square * normal
        reach = np.hypot(np.ptp(self.x), np.ptp(self.y))
        along = np.linspace(-reach, reach, 8 * GRID) / np.sqrt(square)
        return foot + along[:, None] * np.array([-normal[1], normal[0]])


def plane_plots(subject: Subject) -> Iterator[Plot]:
    """Decision regions and contexts, for inputs in the plane."""
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
    for i, (name, fitted) in enumerate(subject.on_inputs.items(), 1):
        if _has_contexts(fitted, plane):
            yield Plot(
                f"contexts-{i}",
                _contexts(subject, name, plane),
                f"Contexts of {name}: the cells cut by the gates, and the hyperplane of each",
                f"{name}: the gates cut the plane into cells (dashed). In each cell rules one "
                "linear predictor; its zero set is solid where it rules, and, where the cells are "
                "few, dotted elsewhere.",
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


def _contexts(subject: Subject, name: str, plane: Plane) -> Figure:
    figure, ax = _plane_panel(name)
    fitted = subject.fitted[name]
    gates = _gates(fitted, plane.points())
    cells, cell = distinct_rows(gates)
    _tint(ax, plane, cell.reshape(GRID, GRID) % len(CONTEXT_TINTS), CONTEXT_TINTS)
    # A gate and its complement share their boundary.
    for changed in distinct_rows(np.abs(gates - gates[0]).T)[0]:
        edges = changed.reshape(GRID, GRID) > 0
        _boundary(ax, plane, edges, colors=style.GREY, linewidths=0.9, linestyles="dashed")
    _samples(ax, subject, name, faint=True)
    for code in cells:
        line = plane.line(code @ fitted.coef, float(fitted.offset))
        if not len(line):
            continue
        rules = (_gates(fitted, plane.inputs(line)) == code).all(axis=1)
        if len(cells) <= MAX_EXTENDED:
            ax.plot(*line.T, color=style.GREEN, linestyle=":", linewidth=1)
        ax.plot(*np.where(rules[:, None], line, np.nan).T, color=style.BLACK, linewidth=2)
    ax.set(xlim=plane.extent[:2], ylim=plane.extent[2:])
    style.legend(figure)
    return figure


def distinct_rows(gates: Array) -> tuple[Array, NDArray[np.intp]]:
    """Distinct rows (k, M) of numbers 0 and 1 (n, M), in order, and which of them each row is.

    As `numpy.unique` along the first axis, which takes ten times as long: it sorts rows of floats,
    here they are sorted as strings of bits.
    """
    bits = np.packbits(gates > 0, axis=1)
    strings = np.ascontiguousarray(bits).view(f"S{bits.shape[1]}")[:, 0]
    _, first, index = np.unique(strings, return_index=True, return_inverse=True)
    return gates[first], index


def _gates(fitted: FittedMargin, X: Array) -> Array:
    """Gates (n, M) of inputs (n, D), dense."""
    return dense(fitted.architecture.gating.gates(X))


def _has_contexts(fitted: FittedMargin, plane: Plane) -> bool:
    """Whether the gates are functions of the inputs that cut the plane in pieces."""
    # With many classes a cell has several predictors: their regions are drawn instead.
    if not reads_inputs(fitted) or fitted.coef.ndim == 3:
        return False
    gates = _gates(fitted, plane.points())
    return bool(np.isin(gates, (0.0, 1.0)).all() and (gates != gates[0]).any())


def _tint(ax: Axes, plane: Plane, numbers: NDArray[Any], tints: Sequence[Any]) -> None:
    """Colour the plane by whole numbers (GRID, GRID), each the index of a tint."""
    picture = ax.imshow(numbers, ListedColormap(tints), origin="lower", extent=plane.extent)
    picture.set(clim=(0, len(tints) - 1), interpolation="nearest")
    ax.set_aspect("auto")


def _boundary(ax: Axes, plane: Plane, inside: NDArray[np.bool_], **options: Any) -> None:
    if inside.any() and not inside.all():
        ax.contour(plane.x, plane.y, inside.astype(float), [0.5], **options)


def _samples(ax: Axes, subject: Subject, name: str, *, faint: bool = False) -> None:
    train = subject.train
    names = train.class_names
    if not has_class_names(train):
        names = tuple(f"class {signed(k) if train.classes is None else k}" for k in train.names)
    for label, look, class_name in zip(train.names, _class_looks(subject), names, strict=True):
        x, y = train.X[train.y == label, :2].T
        points = ax.scatter(x, y, s=14, c=look.colour, marker=look.marker)
        points.set(alpha=0.5 if faint else 0.9)
        points.set(linewidths=0, label=short_label(class_name), rasterized=len(train) > MAX_SHAPES)
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
