r"""Exact maxima of piecewise linear functions over the cells of a hyperplane arrangement.

Function  h(w) = <c, w> + sum_l q_l |<u_l, w>|   on the unit sphere of R^r
Maximum   max_{||w|| = 1} |h(w)|

=========  =========  ==========================================================================
u          (L, r)     unit normals of distinct hyperplanes; u and -u are the same hyperplane
q          (L,)       kinks: half of the jump of the slope across the hyperplane
c          (r,)       offset: the part of h that is linear everywhere
s          (L,)       signs of <u_l, w> in a cell, where h(w) = <c + sum_l s_l q_l u_l, w>
=========  =========  ==========================================================================

The hyperplanes cut the sphere into cells. On a face of a cell h is linear with gradient v = c + S,
S = sum_l s_l q_l u_l, so its maximum over the face is either ||P v|| at P v / ||P v||, with P the
projection on the span of the face, where that point lies in the face, or it lies on the face's
boundary. So the candidates are

    vertices              end points of the arcs
    arcs                  P v on the two-dimensional subspaces in which r - 2 hyperplanes meet
    faces and cells       P v and v themselves

and |h| is evaluated *at the candidate points*: a point that does not lie in the face that suggested
it has a true value nevertheless, and the maximum is among them. The antipode of a cell has
signs -s and gradient c - S; since |h| is maximised, w and -w are tried together, and half
of the cells need a visit.

Every cell has an arc on its boundary, so a sweep over the arcs visits all cells. On a circle the
hyperplanes become pairs of antipodal points; sorted by angle they give all sums S of the circle
as one cumulative sum. Rank 3: L circles of L arcs each. Rank 4 and more: each hyperplane holds an
arrangement of rank r - 1, whose cells have two cells of the whole arrangement as neighbours.

Rounding. Signs of <u_l, w> are wrong only where |<u_l, w>| is of the order of 1e-16, and there the
wrong sign changes h by as little. `Peaks.upper` adds an allowance for this and for the
hyperplanes that are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from implicit_bias.base.validation import Array

# Unit normals this close are the same hyperplane: they differ by rounding. What merging changes is
# measured and goes into the slack, so this is no tolerance of a bound.
SAME_LINE = 2e-15
# The same inside a hyperplane, where normals are projections and rounding weighs more.
SAME_RESTRICTED_LINE = 1e-10
# Candidate points evaluated at once, and arcs swept at once.
BLOCK = 4096
ARC_BLOCK = 400_000
# Angles in radians within which a candidate belongs to an arc.
ANGLE_SLACK = 1e-9
EPS = float(np.finfo(np.float64).eps)
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Lines:
    """Vectors grouped by the line through 0 on which they lie.

    Attributes
    ----------
    normals : ndarray of shape (L, r)
        A unit vector of each line.
    line : ndarray of int, shape (N,)
        Line of each vector; -1 for vectors of length 0.
    lengths : ndarray of shape (N,)
        Signed lengths t_n with x_n = t_n u_line(n); 0 for vectors of length 0.
    spread : float
        Largest distance of a vector from its line, as a share of its length: what was rounded.
    """

    normals: Array
    line: NDArray[np.int64]
    lengths: Array
    spread: float

    @classmethod
    def of(cls, vectors: Array, tolerance: float = SAME_LINE, zero: float = 0.0) -> Lines:
        """Group vectors (N, r); those of length up to ``zero`` count as 0."""
        sizes = np.linalg.norm(vectors, axis=1)
        line = np.full(len(vectors), -1, dtype=np.int64)
        lengths = np.zeros(len(vectors))
        some = np.flatnonzero(sizes > zero)
        if not len(some):
            return cls(np.zeros((0, vectors.shape[1])), line, lengths, 0.0)
        units = vectors[some] / sizes[some, None]
        n = len(units)
        # Both orientations go into the tree; a pair in either orientation joins two lines.
        pairs = cKDTree(np.vstack([units, -units])).query_pairs(tolerance, output_type="ndarray")
        pairs = pairs % n
        graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
        _, label = connected_components(graph, directed=False)
        _, first = np.unique(label, return_index=True)
        normals = units[first]
        line[some] = label
        sides = np.sign(np.einsum("nr,nr->n", units, normals[label]))
        lengths[some] = sizes[some] * sides
        spread = np.linalg.norm(units - sides[:, None] * normals[label], axis=1).max()
        return cls(normals, line, lengths, float(spread))

    def sums(self, values: Array) -> Array:
        """Sum values (N, ...) over the vectors of each line: (L, ...)."""
        inside = self.line >= 0
        totals = np.zeros((len(self.normals), *values.shape[1:]))
        np.add.at(totals, self.line[inside], values[inside])
        return totals


@dataclass(frozen=True, eq=False)
class Kinked:
    """h(w) = <offset, w> + sum_l kinks_l |<normals_l, w>|.

    Attributes
    ----------
    offset : ndarray of shape (r,)
        c.
    normals : ndarray of shape (L, r)
        Unit vectors u of distinct lines.
    kinks : ndarray of shape (L,)
        q.
    slack : float
        What h may differ by from the function meant: rounding, and nearly equal hyperplanes merged.
    """

    offset: Array
    normals: Array
    kinks: Array
    slack: float = 0.0

    @property
    def rank(self) -> int:
        """Return r, the dimension of the points."""
        return len(self.offset)

    @property
    def size(self) -> float:
        """||c|| + sum |q|, an upper bound of |h| on the sphere and the scale of its rounding."""
        return float(np.linalg.norm(self.offset) + np.abs(self.kinks).sum())

    def parts(self, points: Array) -> tuple[Array, Array]:
        """Return the linear part of h at points (k, r), and the kinked one."""
        return points @ self.offset, np.abs(points @ self.normals.T) @ self.kinks

    def values(self, points: Array) -> Array:
        """Return h at points (k, r)."""
        linear, kinked = self.parts(points)
        return np.asarray(linear + kinked)

    def without_flat_lines(self) -> Kinked:
        """Leave out the hyperplanes across which the slope does not jump."""
        kept = np.abs(self.kinks) > EPS * self.size
        return Kinked(self.offset, self.normals[kept], self.kinks[kept], self.slack)

    def restricted(self, basis: Array, tolerance: float) -> Kinked:
        """Return h on the span of the orthonormal columns of ``basis`` (r, k)."""
        inside = self.normals @ basis
        lines = Lines.of(inside, tolerance, tolerance)
        kinks = lines.sums(self.kinks * np.abs(lines.lengths))
        # Hyperplanes left out had normals of length up to the tolerance.
        slack = self.slack + (lines.spread + tolerance) * float(np.abs(self.kinks).sum())
        return Kinked(basis.T @ self.offset, lines.normals, kinks, slack)


@dataclass(frozen=True, eq=False)
class Peaks:
    """Points of large |h| and an upper bound of |h| on the whole sphere.

    Attributes
    ----------
    points : ndarray of shape (k, r)
        Unit vectors, by falling value.
    values : ndarray of shape (k,)
        |h| there; the first one is the maximum up to rounding.
    upper : float
        No |h| is larger.
    """

    points: Array
    values: Array
    upper: float

    @classmethod
    def of(cls, points: Array, values: Array, floor: float, allowance: float) -> Peaks:
        """Order points (k, r); those below the floor are left out, but for the best one.

        ``allowance`` bounds what rounding may hide of the largest value.
        """
        order = np.argsort(-values)
        order = order[values[order] >= min(floor, float(values.max()))]
        points, values = points[order], values[order]
        return cls(points, values, float(values[0]) + allowance)


def maximise(function: Kinked, *, floor: float = np.inf) -> Peaks:
    """Find max |h| over the sphere, and other local maxima.

    Parameters
    ----------
    function : Kinked
        h.
    floor : float
        Local maxima of at least this value are wanted, too; they lie among the returned points.

    Returns
    -------
    Peaks
        At least one point; exact up to the rounding allowance in ``upper``.
    """
    lean = function.without_flat_lines()
    span = _span(lean.normals, function.rank)
    inner = lean.restricted(span, SAME_LINE) if span.shape[1] < function.rank else lean
    # Orthogonal to all normals h is linear: there is one direction to go, and its part is known.
    beyond = lean.offset - span @ (span.T @ lean.offset) if span.shape[1] < function.rank else None
    cut = np.linalg.norm(lean.normals - (lean.normals @ span) @ span.T, axis=1)
    allowance = _allowance(function) + inner.slack + float(np.abs(lean.kinks) @ cut)
    points = _candidates(inner, floor) if inner.rank else np.zeros((0, 0))
    if beyond is not None:
        points = _tilted(inner, points, span, beyond)
    points = np.vstack([points, -points])  # where c = 0, h is even
    return Peaks.of(points, np.abs(function.values(points)), floor, allowance)


def row_space(vectors: Array) -> Array:
    """Orthonormal basis (D, r) of the span of unit or zero rows (N, D), but for rounding errors."""
    _, values, rows = np.linalg.svd(vectors, full_matrices=False)
    rank = int(np.count_nonzero(values > 2.0 * EPS * max(vectors.shape) * values[0]))
    if rank == vectors.shape[1] <= 3:
        return np.eye(rank)  # a change of variables would round
    return np.asarray(rows[:rank].T)


def scattered(points: Array, apart: float, count: int) -> Array:
    """Choose the first of the points (k, r) that are apart from each other, at most this many."""
    chosen: list[Array] = []
    while len(points) and len(chosen) < count:
        chosen.append(points[0])
        points = points[np.linalg.norm(points - points[0], axis=1) > apart]
    return np.array(chosen).reshape(len(chosen), points.shape[1])


def cell_count(normals: Array) -> int:
    """Count the cells into which hyperplanes of distinct normals (L, r) cut the sphere."""
    powers = np.exp(1j * np.arange(len(normals)) ** 2)[:, None]  # a number for each sign pattern
    keys = np.column_stack([powers.real, powers.imag])
    sums = np.vstack(list(cell_sums(normals, keys)))
    return 2 * len(np.unique(np.round(_canonical(sums), 6), axis=0))


def cell_signs(normals: Array) -> NDArray[np.int8]:
    """Signs (cells, L) of <u_l, w> in all cells; distinct normals (L, r) of rank r."""
    sums = np.vstack(list(cell_sums(normals, np.eye(len(normals)))))
    half = np.unique(np.sign(np.round(sums)).astype(np.int8), axis=0)
    return np.unique(np.vstack([half, -half]), axis=0)


def _canonical(sums: Array) -> Array:
    """Orient rows so that antipodal ones become equal."""
    rounded = np.round(sums, 6)
    first = np.where(rounded[:, 0] != 0, rounded[:, 0], rounded[:, 1])
    return sums * np.where(first < 0, -1.0, 1.0)[:, None] + 0.0


def _allowance(function: Kinked) -> float:
    """Bound the rounding of the maximum: sums of L terms, and signs that were tied in sweeps."""
    tied = 2.0 * SAME_RESTRICTED_LINE * max(function.rank - 3, 0)
    return (4.0 * EPS * (len(function.kinks) + 16) + tied) * function.size


def _span(normals: Array, rank: int) -> Array:
    """Orthonormal basis (r, k) of the span of the normals."""
    if not len(normals):
        return np.zeros((rank, 0))
    return row_space(normals)


def _tilted(inner: Kinked, points: Array, span: Array, beyond: Array) -> Array:
    """Points of the whole sphere from the candidates inside the span of the normals.

    With w = cos t w_1 + sin t w_2, w_1 in the span, the best w_2 is the direction of ``beyond`` and
    h = cos t h(w_1) + sin t ||beyond||: the best t is known for each w_1.
    """
    length = float(np.linalg.norm(beyond))
    if length <= 16.0 * EPS * inner.size:  # rounding, and of any direction
        if len(points):
            return points @ span.T
        return np.eye(1, len(beyond))
    beyond = beyond - span @ (span.T @ beyond)  # again: the first time left rounding behind
    lone = (beyond / np.linalg.norm(beyond))[None, :]
    if not len(points):
        return lone
    both = np.vstack([points, -points])
    values = inner.values(both)
    sign = np.where(values < 0, -1.0, 1.0)  # of |h|, so a negative peak pairs with -beyond
    size = np.hypot(values, length)
    tilted = (both @ span.T) * (np.abs(values) / size)[:, None]
    return np.vstack([lone, tilted + lone * (sign * length / size)[:, None]])


def _candidates(function: Kinked, floor: float) -> Array:
    """Points (k, r) among which lie the maximum of |h| and its local maxima above ``floor``.

    The normals must span R^r.
    """
    if function.rank == 1:
        return _both_signs(function, np.ones((1, 1)))
    if function.rank == 2:
        points = _circle_candidates(function, np.eye(2)[None], np.array([-1]), floor)
    elif function.rank == 3:
        points = _rank_three_faces(function, floor)
    else:
        points = _restricted_candidates(function, floor)
    best = _kept(function, points, floor)
    if function.rank == 2:  # its cells are its arcs
        return best
    found = [best]
    threshold = min(floor, float(np.abs(function.values(best)).max()))
    for sums in cell_sums(function.normals, function.kinks[:, None] * function.normals):
        for sign in (1.0, -1.0):
            gradients = function.offset + sign * sums
            sizes = np.linalg.norm(gradients, axis=1)
            large = sizes >= threshold
            inside = _own_gradient(function, gradients[large], sizes[large])
            if len(inside):
                found.append(inside)
                best_here = float(np.abs(function.values(inside)).max())
                threshold = min(floor, max(threshold, best_here))
    return _kept(function, np.vstack(found), floor)


def _own_gradient(function: Kinked, gradients: Array, sizes: Array) -> Array:
    """Directions of those gradients (k, r) that lie in a cell where |h| is at least as large."""
    found = []
    for start in range(0, len(gradients), BLOCK):
        rows = slice(start, start + BLOCK)
        points = gradients[rows] / np.maximum(sizes[rows, None], TINY)
        linear, kinked = function.parts(points)
        values = np.maximum(np.abs(kinked + linear), np.abs(kinked - linear))
        found.append(points[values >= sizes[rows] - 1e-9 * function.size])
    points = np.vstack(found) if found else np.zeros((0, function.rank))
    return _both_signs(function, points)


def _both_signs(function: Kinked, points: Array) -> Array:
    """Replace w by -w where |h| is larger there."""
    linear, kinked = function.parts(points)
    return np.where((linear * kinked < 0)[:, None], -points, points)


def _kept(function: Kinked, points: Array, floor: float) -> Array:
    """Points whose |h| reaches the floor, and the best one at least."""
    values = np.abs(function.values(points))
    return points[values >= min(floor, float(values.max()))]


def _rank_three_faces(function: Kinked, floor: float) -> Array:
    """Candidates on the circles of all hyperplanes of R^3."""
    found = []
    for block, bases in circles(function.normals):
        points = _circle_candidates(function, bases, block, floor)
        found.append(points)
        floor = min(floor, max(float(np.abs(function.values(points)).max()), 0.0))
    return np.vstack(found)


def _restricted_candidates(function: Kinked, floor: float) -> Array:
    """Candidates on all hyperplanes of R^r, r > 3, one after the other."""
    found = []
    for normal in function.normals:
        basis = scipy.linalg.null_space(normal[None, :])
        inside = function.restricted(basis, SAME_RESTRICTED_LINE)
        points = _candidates(inside, floor) @ basis.T
        found.append(points)
    return np.vstack(found)


def circles(normals: Array) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Yield the circles of rank 3, in blocks whose arcs fit the memory, with their bases."""
    step = max(1, ARC_BLOCK // max(len(normals), 1))
    for start in range(0, len(normals), step):
        block = np.arange(start, min(start + step, len(normals)))
        yield block, _circle_bases(normals[block])


def _circle_bases(normals: Array) -> Array:
    """Orthonormal bases (K, 3, 2) of the planes orthogonal to unit normals (K, 3)."""
    axis = np.eye(3)[np.argmin(np.abs(normals), axis=1)]
    first = np.cross(normals, axis)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    return np.stack([first, np.cross(normals, first)], axis=2)


def _circle_candidates(
    function: Kinked, bases: Array, own: NDArray[np.int64], floor: float
) -> Array:
    """Vertices and maxima of arcs on the circles spanned by ``bases`` (K, r, 2).

    ``own`` names the hyperplane that holds each circle; -1 for none.
    """
    kinked = function.kinks[:, None] * function.normals
    angles, sums = swept(function.normals, kinked, bases, own)  # (K, A + 1), (K, A, r)
    inside = np.einsum("kar,krd->kad", sums, bases)  # S on the plane of the circle
    offset = np.einsum("r,krd->kd", function.offset, bases)[:, None, :]
    # Vertices, at the arcs' ends; <S, w> and <c, w> have one sign at w or at -w.
    ends = np.stack([np.cos(angles[:, :-1]), np.sin(angles[:, :-1])], axis=2)
    at_ends = np.abs((inside * ends).sum(axis=2)) + np.abs((offset * ends).sum(axis=2))
    peaks: list[tuple[Array, Array]] = [(ends, at_ends)]
    for sign in (1.0, -1.0):
        gradient = sign * inside + offset
        sizes = np.linalg.norm(gradient, axis=2)
        turn = np.mod(np.arctan2(gradient[..., 1], gradient[..., 0]), np.pi)
        points = gradient / np.where(sizes > 0, sizes, 1.0)[..., None]
        peaks.append((points, np.where(on_arcs(turn, angles), sizes, -np.inf)))
    floor = min(floor, max(float(values.max()) for _, values in peaks))
    found = []
    for points, values in peaks:
        circle, arc = np.nonzero(values >= floor - 1e-9 * function.size)
        found.append(np.einsum("krd,kd->kr", bases[circle], points[circle, arc]))
    return _both_signs(function, np.vstack(found))


def swept(
    normals: Array, jumps: Array, bases: Array, own: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Angles at which the signs change on circles, and sum_l s_l jumps_l between them.

    Parameters
    ----------
    normals : ndarray of shape (L, r)
        u.
    jumps : ndarray of shape (L, R)
        What is summed with the signs.
    bases : ndarray of shape (K, r, 2)
        Orthonormal bases of the circles' planes.
    own : ndarray of int, shape (K,)
        The hyperplane that holds each circle and is left out; -1 for none.

    Returns
    -------
    angles : ndarray of shape (K, L + 2)
        Rising, from 0 to pi.
    sums : ndarray of shape (K, L + 1, R)
        Of the arcs between them; those of the other half of the circle are the negatives.
    """
    # <u_l, w(t)> = p cos t + q sin t. Adding 0.0 turns -0.0, whose angle is -pi, to 0.0.
    p, q = np.moveaxis(np.einsum("lr,krd->kld", normals, bases), 2, 0) + 0.0
    signs = np.where(p >= 0, 1.0, -1.0)  # just after angle 0; p = 0 > q flips there at once
    turn = np.where(p >= 0, np.arctan2(p, -q), np.arctan2(-p, q))
    held = np.flatnonzero(own >= 0)
    signs[held, own[held]] = 0.0
    order = np.argsort(turn, axis=1)
    K, L = turn.shape
    sums = np.empty((K, L + 1, jumps.shape[1]))
    sums[:, 0] = signs @ jumps
    ordered = np.take_along_axis(signs, order, axis=1)
    np.multiply(-2.0 * ordered[..., None], jumps[order], out=sums[:, 1:])
    np.cumsum(sums, axis=1, out=sums)
    angles = np.empty((K, L + 2))
    angles[:, 0], angles[:, -1] = 0.0, np.pi
    angles[:, 1:-1] = np.take_along_axis(turn, order, axis=1)
    return angles, sums


def on_arcs(turn: Array, angles: Array) -> NDArray[np.bool_]:
    """Whether lines at angles (K, L + 1) are on the arcs that `swept` returns, one by one."""
    low, high = angles[:, :-1] - ANGLE_SLACK, angles[:, 1:] + ANGLE_SLACK
    turns = (turn - np.pi, turn, turn + np.pi)  # of lines: pi is 0 again
    return np.any([(low <= each) & (each <= high) for each in turns], axis=0)


def cell_sums(normals: Array, jumps: Array) -> Iterator[Array]:
    """Yield sum_l s_l jumps_l of all cells, in blocks (k, R); one of antipodal cells at least.

    The normals (L, r) are distinct lines that span R^r; most cells occur more than once.
    """
    rank = normals.shape[1]
    if rank == 1:
        yield np.sign(normals[:, 0]) @ jumps[:, None, :]
    elif rank == 2:
        yield swept(normals, jumps, np.eye(2)[None], np.array([-1]))[1][0]
    elif rank == 3:
        for block, bases in circles(normals):
            _, sums = swept(normals, jumps, bases, block)
            for sign in (1.0, -1.0):
                yield (sums + sign * jumps[block][:, None, :]).reshape(-1, jumps.shape[1])
    else:
        for n, normal in enumerate(normals):
            others = np.arange(len(normals)) != n
            basis = scipy.linalg.null_space(normal[None, :])
            inside = normals[others] @ basis
            lines = Lines.of(inside, SAME_RESTRICTED_LINE, SAME_RESTRICTED_LINE)
            # Lines that fall together inside the hyperplane change their signs together there.
            merged = lines.sums(jumps[others] * np.sign(lines.lengths)[:, None])
            for sums in cell_sums(lines.normals, merged):
                yield sums + jumps[n]
                yield sums - jumps[n]
