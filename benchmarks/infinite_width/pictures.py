"""Functions of the plane, inputs (1, x1, x2), on a grid: what tables keep of them, and pictures."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.report.style import BLACK, BLUE, GREY, VERMILION

# Points along each axis of a picture, and the picture's half width.
GRID, HALF = 120, 0.56
AXIS = np.linspace(-HALF, HALF, GRID)
EXTENT = (-HALF, HALF, -HALF, HALF)
# Neurons of less weight than this share of the largest are not drawn.
FAINT = 0.02
Floats = NDArray[np.float32]


def grid_inputs() -> Array:
    """Return inputs (GRID * GRID, 3) of a picture's points, one row of it after the other."""
    one, two = np.meshgrid(AXIS, AXIS)
    return np.column_stack([np.ones(one.size), one.ravel(), two.ravel()])


@dataclass(frozen=True)
class Plane:
    """A function of the plane with the samples and its neurons: flat arrays, a cell each.

    Attributes
    ----------
    values : ndarray of shape (GRID * GRID,)
        At `grid_inputs`, over the absolute smallest margin, if that is not 0.
    points : ndarray of shape (n * 2,)
        The samples' two coordinates.
    labels : ndarray of shape (n,)
        -1 or +1.
    neurons : ndarray of shape (J * 3,)
        Directions (J, 3) times the absolute weights; none where there are too many to draw.
    """

    values: Floats
    points: Floats
    labels: Floats
    neurons: Floats

    @classmethod
    def of(
        cls,
        X: Array,
        y: Array,
        decision: Callable[[Array], Array],
        directions: Array | None = None,
        coef: Array | None = None,
    ) -> Self:
        """Evaluate a function of inputs (n, 3) on the grid and at samples X (n, 3), y (n,)."""
        margin = abs(float(np.min(y * decision(X)))) or 1.0  # a network may be 0 somewhere
        neurons = np.zeros(0)
        if directions is not None and coef is not None:
            neurons = np.abs(coef)[:, None] * directions
        cells = (decision(grid_inputs()) / margin, X[:, 1:], y, neurons)
        return cls(*(np.asarray(cell, dtype=np.float32).ravel() for cell in cells))

    @classmethod
    def of_row(cls, row: Any) -> Self:
        """Read it from a row of a table."""
        return cls(row["values"], row["points"], row["labels"], row["neurons"])

    def cells(self) -> dict[str, Floats]:
        """Return what a row of a table keeps."""
        return asdict(self)

    def draw(self, ax: Axes) -> None:
        """Draw values, decision boundary, margins, samples, and where the neurons have kinks."""
        values = self.values.reshape(GRID, GRID)
        ax.imshow(
            np.tanh(0.7 * values),
            cmap="RdBu_r",
            vmin=-1.6,
            vmax=1.6,
            extent=EXTENT,
            origin="lower",
            interpolation="bilinear",
        )
        neurons = self.neurons.reshape(-1, 3)
        weights = np.linalg.norm(neurons, axis=1)
        for neuron, strength in zip(neurons, weights / weights.max(initial=1e-300), strict=True):
            if strength > FAINT:
                kink(ax, neuron, color=GREY, linewidth=0.3 + 1.5 * strength, alpha=0.55)
        ax.contour(AXIS, AXIS, values, [-1.0, 1.0], colors=BLACK, linewidths=0.6, linestyles=":")
        ax.contour(AXIS, AXIS, values, [0.0], colors=BLACK, linewidths=1.6)
        points = self.points.reshape(-1, 2)
        for label, colour, marker in ((-1, BLUE, "o"), (1, VERMILION, "^")):
            one, two = points[self.labels == label].T
            look: dict[str, Any] = {"s": 17, "linewidths": 0.5, "edgecolors": "white", "zorder": 3}
            ax.scatter(one, two, c=colour, marker=marker, **look)
        bare(ax)


def kink(ax: Axes, direction: Array | Floats, **look: Any) -> None:
    """Draw the line on which a unit of inputs (1, x1, x2) changes its slope."""
    offset, normal = direction[0], direction[1:3]
    length = float(np.linalg.norm(normal))
    if length == 0:
        return
    foot = -offset * normal / length**2
    along = np.array([-normal[1], normal[0]]) / length * 3.0
    ax.plot(*np.column_stack([foot - along, foot + along]), zorder=2, **look)


def bare(ax: Axes) -> None:
    """Leave out what a picture of the plane needs no words for."""
    ax.set(xlim=(-HALF, HALF), ylim=(-HALF, HALF), xticks=[], yticks=[], aspect="equal")
    for spine in ax.spines.values():
        spine.set_visible(False)
