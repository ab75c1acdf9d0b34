r"""Bounds on piecewise linear functions over spheres of any dimension, exact in neither direction.

For h as in `arrangement`, where the cells are too many:

below  local ascent of ||h|| from many points, then projections on the nearest faces;
above  with one output, h(w) = <c, w> + sum_l q_l |<u_l, w>|, a relaxation: w w' becomes any
       matrix W >= 0 of trace 1 with W - w w' >= 0. For ||u|| = 1
       |<u, w>| is sqrt(u' W u) and ||W u|| where W = w w'; the first is concave in W, the second
       convex, so that
       F(W, w) = <c, w> + sum_{q > 0} q sqrt(u' W u) - sum_{q < 0} |q| ||W u||
       is concave, and its maximum is at least that of h.

F is maximized by Frank-Wolfe steps. Its linearization at any W, with d = sqrt(u' W u) and
v = W u / ||W u||, is an upper bound, and stays one for other d > 0 and ||v|| <= 1:
       F <= <c, w> + <M, W> + const,    const = sum_{q > 0} q d / 2,
       M = sum_{q > 0} q/(2 d) u u' - sum_{q < 0} |q| (u v' + v u') / 2,
which is at most mu + 1/4 c' (mu I - M)^-1 c + const for every mu > lambda_max(M).

With several outputs ||h|| is at most the root of the sum of the squares of its components' bounds,
along any axes.

The relaxation is not in the paper of `column_generation`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from implicit_bias.base.validation import Array
from implicit_bias.infinite_width.arrangement import EPS, TINY, Kinked, unit


def ascend(function: Kinked, starts: Array, steps: int = 60) -> tuple[Array, Array]:
    """Climb ||h|| from unit vectors (k, r): points (k, r) and the values ||h|| there (k,)."""
    # Steps of length 1 / (1 + step) along the gradient. Then, for each k, the projection of the
    # gradient on the face where the k nearest hyperplanes meet: of one output, which is linear in a
    # face, the largest value on the face's span is there.
    points = starts
    best = starts
    best_values = function.lengths(starts)
    for step in range(steps):
        points = unit(points + unit(_gradients(function, points)) / (1.0 + step))
        best, best_values = _better(function, best, best_values, points)
    for n_faces in range(function.rank):
        moved = _projected_gradients(function, best, n_faces)
        best, best_values = _better(function, best, best_values, moved)
    return best, best_values


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Where the relaxation of h is largest, nearly.

    Attributes
    ----------
    bound : float
        No h is larger on the sphere.
    mean : ndarray of shape (r,)
        w.
    distances : ndarray of shape (L,)
        What stands for |<u_l, w>|: sqrt(u' W u) where the kink is positive, ||W u|| elsewhere.
    """

    bound: float
    mean: Array
    distances: Array


def upper_bound(function: Kinked) -> float:
    """Bound max ||h|| over the sphere from above, without its slack."""
    bounds = []
    for axis in main_axes(function):
        above = relax(function.along(axis)).bound
        below = relax(function.along(-axis)).bound
        bounds.append(max(above, below))
    return float(np.linalg.norm(bounds))


def main_axes(function: Kinked) -> Array:
    """Axes of R^K along which few components hold most of h, so that sums of squares are small."""
    whole = np.vstack([function.kinks, function.offset.T])
    return np.asarray(np.linalg.svd(whole, full_matrices=False)[2])


def relax(function: Kinked, rounds: int = 60) -> Relaxed:
    """Maximize the relaxation of h, of one output, over the sphere; without its slack."""
    q = np.abs(function.kinks[:, 0])
    c = function.offset[0]
    rising = function.kinks[:, 0] > 0
    up = function.normals[rising]
    down = function.normals[~rising]
    W = np.eye(function.rank) / function.rank
    w = np.zeros(function.rank)
    best = function.size
    step_sizes = np.append(np.linspace(1.0, 0.1, 10), 0.1 * 0.5 ** np.arange(1, 9))
    for _ in range(rounds):
        # F is linear at (W, w), with the matrix M: a bound, and the (S, s) that nearly reach it.
        d = np.maximum(_roots(up, W), EPS)
        images = down @ W
        falling = (down * q[~rising, None]).T @ unit(images)
        M = (up * (q[rising] / (2.0 * d))[:, None]).T @ up - 0.5 * (falling + falling.T)
        bound, S, s = _linear_maximum(M, c)
        # All of it is rounded by less than this: every sum is at most the size.
        bound += 0.5 * float(q[rising] @ d) + 1e-12 * function.size
        best = min(best, bound)
        # F along the segment from (W, w) to (S, s): both squares are polynomials of the step.
        t = step_sizes[:, None]
        roots = (1.0 - t) * d**2 + t * _roots(up, S) ** 2
        move = down @ S - images
        lengths = (images**2).sum(axis=1) + 2.0 * t * (images * move).sum(axis=1)
        lengths = lengths + t**2 * (move**2).sum(axis=1)
        along = np.sqrt(roots) @ q[rising] + t[:, 0] * float(c @ (s - w))
        along -= np.sqrt(np.maximum(lengths, 0.0)) @ q[~rising]
        t_best = float(step_sizes[int(along.argmax())])
        W = W + t_best * (S - W)
        w = w + t_best * (s - w)
    distances = np.empty(len(q))
    distances[rising] = _roots(up, W)
    distances[~rising] = np.linalg.norm(down @ W, axis=1)
    return Relaxed(best, w, distances)


def _roots(normals: Array, W: Array) -> Array:
    """sqrt(u' W u) of normals (L, r): shape (L,)."""
    return np.asarray(np.sqrt(np.maximum(((normals @ W) * normals).sum(axis=1), 0.0)))


def _gradients(function: Kinked, points: Array) -> Array:
    """Gradients of half of ||h||^2 at points (k, r)."""
    values = function.values(points)
    slopes = values @ function.kinks.T * np.sign(points @ function.normals.T)
    return np.asarray(values @ function.offset + slopes @ function.normals)


def _projected_gradients(function: Kinked, points: Array, n_faces: int) -> Array:
    """Return unit gradients of ||h|| on the faces at the ``n_faces`` nearest lines of points."""
    gradients = _gradients(function, points)
    if n_faces:
        distances = np.abs(points @ function.normals.T)
        nearest = np.argsort(distances, axis=1)[:, :n_faces]
        faces = np.swapaxes(function.normals[nearest], 1, 2)  # (k, r, n_faces)
        bases = np.linalg.qr(faces)[0]
        inside = np.einsum("krf,kr->kf", bases, gradients)
        gradients = gradients - np.einsum("krf,kf->kr", bases, inside)
    directions = unit(gradients)
    return np.where(directions.any(axis=1, keepdims=True), directions, points)


def _better(function: Kinked, best: Array, values: Array, points: Array) -> tuple[Array, Array]:
    found = function.lengths(points)
    return np.where((found > values)[:, None], points, best), np.maximum(found, values)


def _linear_maximum(M: Array, c: Array) -> tuple[float, Array, Array]:
    """Bound <c, w> + <M, W> over the relaxed sphere; W (r, r), w (r,) that nearly reach it."""
    values, vectors = np.linalg.eigh(M)
    # The computed eigenvalues and vectors are exact for a matrix this near to M.
    values = values + 8.0 * EPS * len(c) * float(np.abs(values).max())
    rotated = vectors.T @ c
    mu = _best_shift(values, rotated)
    bound = mu + 0.25 * float(np.sum(rotated**2 / (mu - values)))
    point = vectors @ (rotated / (2.0 * (mu - values)))
    length = float(np.linalg.norm(point))
    if length > 1.0:
        point /= length
        length = 1.0
    top = vectors[:, -1]
    W = np.outer(point, point) + (1.0 - length**2) * np.outer(top, top)
    return bound, W, point


def _best_shift(values: Array, c: Array, steps: int = 8) -> float:
    """Find nearly the smallest mu + 1/4 sum c^2 / (mu - values) over mu > max(values).

    Its derivative vanishes where ||c / (mu - values)|| = 2: Newton's method on the inverse of the
    norm, which is nearly linear, from below the root, or from where the top eigenvalue rounds.
    """
    top = float(values[-1])
    tiny = 1e-9 * (float(np.abs(values).max()) + float(np.linalg.norm(c)) + TINY)
    mu = top + max(tiny, 0.5 * abs(float(c[-1])))
    for _ in range(steps):
        point = 0.5 * c / (mu - values)
        square = float(point @ point)
        if square <= 1.0:  # the root is at the left end, or reached
            break
        mu += square / float(point @ (point / (mu - values))) * (np.sqrt(square) - 1.0)
    return mu
