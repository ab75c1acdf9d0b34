r"""Bounds on piecewise linear functions over spheres of any dimension, exact in neither direction.

For h(w) = <c, w> + sum_l q_l |<u_l, w>| as in `arrangement`, where the cells are too many:

below  local ascent of |h| from many points, then projections on the nearest faces;
above  |t| <= (t^2 / d + d) / 2 for every d > 0, and -|t| <= -t^2 for |t| <= 1, so that
       h(w) <= <c, w> + w' M w + const,
       M = sum_{q > 0} q/(2 d) u u' - sum_{q < 0} |q| u u',  const = sum_{q > 0} q d / 2,
       whose maximum over the sphere is at most mu + 1/4 c' (mu I - M)^-1 c + const for every
       mu > lambda_max(M). Any d and mu give a bound; good ones are searched.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from implicit_bias.theory.arrangement import Kinked
from implicit_bias.validation import Array

ASCENT_STEPS = 60
# Rounds in which the d of the bound follow the maximiser.
BOUND_ROUNDS = 30


def ascend(function: Kinked, starts: Array) -> tuple[Array, Array]:
    """Climb |h| from unit vectors (k, r): points (k, r) and the values |h| there (k,)."""
    points = starts * np.where(function.values(starts) < 0, -1.0, 1.0)[:, None]
    sign = np.where(function.values(points) < 0, -1.0, 1.0)  # of h where h < 0 at w and at -w
    best, best_values = points, np.abs(function.values(points))
    for step in range(ASCENT_STEPS):
        gradients = sign[:, None] * _gradients(function, points)
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        points = points + gradients / np.maximum(lengths, 1e-300) * (1.0 / (1.0 + step))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        best, best_values = _better(function, best, best_values, points)
    for n_faces in range(len(function.offset)):
        moved = _projected_gradients(function, best, n_faces)
        best, best_values = _better(function, best, best_values, moved)
    return best, best_values


def upper_bound(function: Kinked, guess: Array) -> float:
    """Bound max |h| over the sphere from above; ``guess`` (r,) is near a maximiser."""
    flipped = Kinked(-function.offset, function.normals, -function.kinks)
    return max(_one_sided(function, guess), _one_sided(flipped, guess))


def _gradients(function: Kinked, points: Array) -> Array:
    signs = np.sign(points @ function.normals.T)
    return np.asarray(function.offset + (signs * function.kinks) @ function.normals)


def _projected_gradients(function: Kinked, points: Array, n_faces: int) -> Array:
    """Maxima of h on the faces at the ``n_faces`` nearest lines of each point."""
    gradients = _gradients(function, points)
    if n_faces:
        distances = np.abs(points @ function.normals.T)
        nearest = np.argsort(distances, axis=1)[:, :n_faces]
        faces = np.swapaxes(function.normals[nearest], 1, 2)  # (k, r, n_faces)
        bases = np.linalg.qr(faces)[0]
        inside = np.einsum("krf,kr->kf", bases, gradients)
        gradients = gradients - np.einsum("krf,kf->kr", bases, inside)
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return np.where(lengths > 0, gradients / np.maximum(lengths, 1e-300), points)


def _better(function: Kinked, best: Array, values: Array, points: Array) -> tuple[Array, Array]:
    found = np.abs(function.values(points))
    return np.where((found > values)[:, None], points, best), np.maximum(found, values)


def _one_sided(function: Kinked, guess: Array) -> float:
    """Bound max h over the sphere from above."""
    rising = function.kinks > 0
    up, q = function.normals[rising], function.kinks[rising]
    down = function.normals[~rising]
    falling = (down * function.kinks[~rising, None]).T @ down
    d = np.full(len(q), 1.0 / np.sqrt(function.rank))
    at_guess = np.abs(up @ guess)
    best = function.size
    for _ in range(BOUND_ROUNDS):
        values, vectors = np.linalg.eigh(falling + (up * (q / (2.0 * d))[:, None]).T @ up)
        c = vectors.T @ function.offset
        mu = _best_shift(values, c)
        bound = mu + 0.25 * float(np.sum(c**2 / (mu - values))) + 0.5 * float(q @ d)
        best = min(best, bound * (1.0 + 1e-12) + 1e-12 * function.size)
        if not np.any(c):
            point = vectors[:, -1]
        else:
            point = vectors @ (c / (2.0 * (mu - values)))
        length = float(np.linalg.norm(point))
        target = np.abs(up @ point) / length if length > 0 else at_guess
        d = 0.5 * d + 0.5 * np.maximum(target, 1e-3)
    return best


def _best_shift(values: Array, c: Array) -> float:
    """Find nearly the smallest mu + 1/4 sum c^2 / (mu - values) over mu > max(values)."""
    top, length = float(values[-1]), float(np.linalg.norm(c))
    tiny = 1e-9 * (abs(top) + float(np.abs(values).max()) + length + 1e-300)
    found = minimize_scalar(
        lambda mu: mu + 0.25 * float(np.sum(c**2 / (mu - values))),
        bounds=(top + tiny, top + length + 2.0 * tiny),
        method="bounded",
    )
    return float(found.x)
