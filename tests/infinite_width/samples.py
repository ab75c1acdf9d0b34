"""Samples in the plane, margins by loops, and a search that shares no code with the oracle."""

import numpy as np

from implicit_bias import infinite_width as wide
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width.arrangement import Kinked

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


def unit(points: Array) -> Array:
    return np.asarray(points / np.linalg.norm(points, axis=-1, keepdims=True))


def attack(function: Kinked, n_directions: int, seed: int = 0) -> float:
    """Largest ||h|| over random directions, and over random moves from the best and all lines."""
    rng = np.random.default_rng(seed)
    points = unit(rng.normal(size=(n_directions, function.rank)))
    best = points[np.argsort(-function.lengths(points))[:50]]
    largest = float(function.lengths(best).max())
    best = np.vstack([best, function.normals])
    for length in np.geomspace(0.1, 1e-8, 40):
        moves = length * rng.normal(size=(len(best), 30, function.rank))
        tries = unit(np.concatenate([best[:, None], best[:, None] + moves], axis=1))
        values = function.lengths(tries.reshape(-1, function.rank)).reshape(tries.shape[:2])
        best = tries[np.arange(len(best)), values.argmax(axis=1)]
    return max(largest, float(function.lengths(best).max()))
