"""What models predict in the plane of two inputs.

Source: Lippl, Abbott, Chung (2022), figure 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.report import style
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.words import has_class_names, signed

# The classes have colours of their own, as in the pictures of weights: no model has them.
NEGATIVE = "#5e3c99"
POSITIVE = "#b35806"
# Fraction of a class's colour in its region; the rest is white.
TINT = 0.25
# Points along each axis at which the predictions are computed.
GRID = 240
# Above this many samples a figure draws them as pixels, not as shapes.
MAX_SHAPES = 2000


def plane_plots(subject: Subject) -> Iterator[Plot]:
    """Draw the decision regions of each model, for inputs in the plane."""
    train = subject.train
    if train.n_features - train.has_constant != 2 or train.image_shape is not None:
        return
    low = train.X[:, :2].min(axis=0)
    high = train.X[:, :2].max(axis=0)
    if (low == high).any():  # no plane, or inputs that are no numbers
        return

    # A grid over the samples, with some room around them; y is the slow axis.
    room = 0.08 * np.maximum(high - low, 1e-9)
    x, y = np.linspace(low - room, high + room, GRID).T
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    if train.has_constant:
        points = np.column_stack([points, np.ones(len(points))])
    for i, model in enumerate(subject.comparison.models, 1):
        if model.has_predictor:
            classes = subject.predicted(model.name, points).reshape(GRID, GRID)
            yield Plot(
                f"regions-{i}",
                _decision_regions(subject, model.name, x, y, classes),
                f"Regions of the plane that {model.name} gives to each class, with the training "
                "samples",
                f"{model.name}: the class that it predicts. The line is its decision boundary.",
            )


def _decision_regions(
    subject: Subject, name: str, x: Array, y: Array, classes: NDArray[np.int64]
) -> Figure:
    """Draw the classes (GRID, GRID) that a model predicts at the points of a grid."""
    figure, ax = style.panel(height=style.WIDTH - 0.3)
    ax.set_title(short_label(name))
    ax.set(xlabel="input 1", ylabel="input 2")
    colours = np.array([to_rgb(look.colour) for look in _class_looks(subject)])
    tints: list[Any] = [*(1.0 - TINT * (1.0 - colours))]
    ax.imshow(
        classes,
        ListedColormap(tints),
        origin="lower",
        extent=(x[0], x[-1], y[0], y[-1]),
        vmin=0,
        vmax=len(tints) - 1,
        interpolation="nearest",
        aspect="auto",
    )
    for label in np.unique(classes)[1:]:
        inside = (classes >= label).astype(float)
        ax.contour(x, y, inside, [0.5], colors=style.BLACK, linewidths=1.5)
    _draw_samples(ax, subject, name)
    style.legend(figure)
    return figure


def _draw_samples(ax: Axes, subject: Subject, name: str) -> None:
    """Draw the training samples of each class, and a ring around each support vector."""
    train = subject.train
    for (label, class_name), look in zip(train.names.items(), _class_looks(subject), strict=True):
        if not has_class_names(train):
            class_name = f"class {signed(label) if train.classes is None else label}"
        x, y = train.X[train.y == label, :2].T
        points = ax.scatter(x, y, s=14, c=look.colour, marker=look.marker, alpha=0.9, linewidths=0)
        points.set(label=short_label(class_name), rasterized=len(train) > MAX_SHAPES)
    x, y = train.X[subject.support(name), :2].T
    ax.scatter(x, y, s=60, facecolors="none", edgecolors=style.BLACK, linewidths=1.2)


def _class_looks(subject: Subject) -> list[style.Look]:
    """How the samples of each class are drawn."""
    if subject.train.classes is None:
        return [style.Look(NEGATIVE, "", "o"), style.Look(POSITIVE, "", "^")]
    looks = []
    for k in range(len(subject.class_names)):
        colour = style.COLOURS[k % len(style.COLOURS)]
        marker = style.MARKERS[k % len(style.MARKERS)]
        looks.append(style.Look(colour, "", marker))
    return looks
