"""Decision regions of the models, for inputs in the plane.

Source: Lippl, Abbott, Chung (2022), figure 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import style
from implicit_bias.base.validation import Array
from implicit_bias.comparison import Comparison
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.report.figures.base import Plot, with_words
from implicit_bias.report.figures.support import support_vectors
from implicit_bias.report.words import class_names


def plane_plots(comparison: Comparison, train: Dataset, *, n_grid: int = 240) -> Iterator[Plot]:
    """Draw the decision regions of each model, by its predictions on an n_grid x n_grid grid."""
    # Two pixels would be two inputs as well, but no plane to look at.
    if train.n_features - train.has_constant != 2 or train.image_shape is not None:
        return
    low = train.X[:, :2].min(axis=0)
    high = train.X[:, :2].max(axis=0)
    if (low == high).any():  # no plane, or inputs that are no numbers
        return

    # A grid over the samples, with some room around them; y is the slow axis.
    room = 0.08 * np.maximum(high - low, 1e-9)
    x, y = np.linspace(low - room, high + room, n_grid).T
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    if train.has_constant:
        points = np.column_stack([points, np.ones(len(points))])
    inputs: ArrayLike = points
    if isinstance(comparison.X, pd.DataFrame):
        # Pipelines that were fitted to a frame choose columns by name.
        inputs = pd.DataFrame(points, columns=comparison.X.columns)

    n_classes = len(class_names(comparison, train))
    class_looks = [style.look(number) for number in range(n_classes)]
    # Files are numbered by the models of the comparison, of which some may have no predictor.
    for number, model in enumerate(comparison.models, 1):
        if not model.has_predictor:
            continue
        labels = np.asarray(comparison.estimators[model.name].predict(inputs))
        classes = np.searchsorted(comparison.classes, labels).reshape(n_grid, n_grid)
        figure, ax = style.panel(height=style.WIDTH - 0.3)
        ax.set_title(style.short_label(model.name))
        ax.set(xlabel="input 1", ylabel="input 2")
        draw_regions(ax, x, y, classes, [look.colour for look in class_looks])
        samples = []
        for (label, name), look in zip(train.names.items(), class_looks, strict=True):
            points_of_class = train.X[train.y == label, :2]
            samples.append((style.short_label(name), points_of_class, look))
        draw_samples(ax, samples)
        ring_x, ring_y = train.X[support_vectors(model, len(train)), :2].T
        ax.scatter(ring_x, ring_y, s=60, facecolors="none", edgecolors=style.BLACK, linewidths=1.2)
        style.legend(figure)
        yield with_words(f"regions-{number}", figure, "regions", model=model.name)


def draw_regions(
    ax: Axes, x: Array, y: Array, classes: NDArray[np.int64], colours: list[str], tint: float = 0.25
) -> None:
    """Draw the classes (Y, X) of the points of a grid, and the boundaries between them.

    ``tint`` is the fraction of a class's colour in its region, mixed with white.
    """
    tints: list[Any] = []
    for colour in colours:
        tints.append(1.0 - tint * (1.0 - np.array(to_rgb(colour))))
    # An image of the grid, not filled contours: between classes 0 and 2 a contour would draw a band
    # of class 1.
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
    # Of K classes the level sets {class >= k} have all boundaries between neighbouring regions.
    for label in np.unique(classes)[1:]:
        inside = (classes >= label).astype(float)
        ax.contour(x, y, inside, [0.5], colors=style.BLACK, linewidths=1.5)


def draw_samples(
    ax: Axes, samples: Sequence[tuple[str, Array, style.Look]], *, most_shapes: int = 2000
) -> None:
    """Draw name and samples (n, 2) of each class; more than ``most_shapes`` in all as pixels."""
    total = sum(len(points) for _, points, _ in samples)
    for name, points, look in samples:
        x, y = points.T
        marks = ax.scatter(x, y, s=14, c=look.colour, marker=look.marker, linewidths=0)
        # An SVG has a path for each shape: thousands of them make a page slow.
        marks.set(alpha=0.9, label=name, rasterized=total > most_shapes)
