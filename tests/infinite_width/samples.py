"""Samples in the plane, and margins by loops."""

import numpy as np

from implicit_bias import infinite_width as wide
from implicit_bias.base.validation import Array

GAP = 1e-6


def planar(n: int, seed: int, classes: int = 2) -> tuple[Array, Array]:
    """Points in the plane with a constant; labels of a curve, some redrawn, or of any classes."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    if classes > 2:
        return X, rng.integers(0, classes, n).astype(np.float64)
    y = np.where(np.sin(3 * X[:, 1]) > X[:, 2], 1.0, -1.0)
    y[rng.uniform(size=n) < 0.1] *= -1
    return X, y


def pair_margins(problem: wide.InfiniteWidthProblem, outputs: Array) -> list[Array]:
    """Margins over each rival, by loops."""
    if problem.classes is None:
        return [np.asarray(problem.y * outputs)]
    y = problem.y.astype(int)
    own = np.array([outputs[n, y[n]] for n in range(len(y))])
    return [np.where(y == k, np.inf, own - outputs[:, k]) for k in range(problem.classes)]
