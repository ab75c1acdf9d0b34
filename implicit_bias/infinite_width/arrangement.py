r"""Exact maxima of piecewise linear functions over the cells of a hyperplane arrangement.

Function  h(w) = C w + sum_l q_l |<u_l, w>|   from the unit sphere of R^r to R^K
Maximum   max_{||w|| = 1} ||h(w)||_2          (two classes have one output: K = 1, |h|)

=========  =========  ==========================================================================
u          (L, r)     unit normals of distinct hyperplanes; u and -u are the same hyperplane
q          (L, K)     kinks: half of the jump of the slope across a hyperplane
C          (K, r)     offset: the part of h that is linear everywhere
s          (L,)       signs of <u_l, w> in a cell, where h(w) = (C + S) w, S = sum_l s_l q_l u_l'
=========  =========  ==========================================================================

The hyperplanes cut the sphere into cells. On a face of a cell h(w) = G w, and ||G w||^2 is a
quadratic form: on the sphere of the face's span its only local maxima are the eigenvectors of its
largest eigenvalue, all others being saddles or minima. So the maximum over a face is such an
eigenvector, where it lies in the face, or lies on the face's boundary. (With K = 1 the eigenvector
is the gradient's own direction.) Where the largest eigenvalue is double, the way along its
eigenvectors to the boundary changes nothing. So the candidates are

    vertices              end points of the arcs
    arcs                  eigenvectors on the planes in which r - 2 hyperplanes meet
    faces and cells       eigenvectors on the faces' spans, and of the cells

and ||h|| is evaluated *at the candidate points*: a point that does not lie in the face that
suggested it has a true value nevertheless, and the maximum is among them. The antipode of a cell
has signs -s and the matrix C - S; w and -w are tried together, and half of the cells need a visit.

Every cell has an arc on its boundary, so a sweep over the arcs visits all cells. On a circle the
hyperplanes become pairs of antipodal points; sorted by angle they give all sums S of the circle
as one cumulative sum. Rank 3: L circles of L arcs each. Rank 4 and more: each hyperplane holds an
arrangement of rank r - 1, whose cells have two cells of the whole arrangement as neighbours.
Hyperplanes without a kink are left out; some without one join where the others do not span R^r.

Rounding. Signs of <u_l, w> are wrong only where |<u_l, w>| is of the order of 1e-16, and there the
wrong sign changes h by as little. `Peaks.upper` adds an allowance for this and for the
hyperplanes that are merged.

Several outputs are not in the paper of `column_generation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from implicit_bias.base.validation import Array

# Unit normals this close are the same hyperplane, inside of another one: there normals are
# projections, in which rounding weighs more.
SAME_RESTRICTED_LINE = 1e-10
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
    deviation : float
        Largest distance of a vector from its line, relative to its length: what was rounded.
    """

    normals: Array
    line: NDArray[np.int64]
    lengths: Array
    deviation: float

    @classmethod
    def of(cls, vectors: Array, tolerance: float = 2e-15, zero: float = 0.0) -> Lines:
        """Group vectors (N, r); those of length up to ``zero`` count as 0.

        Unit normals within ``tolerance`` are the same hyperplane: they differ by rounding. What
        merging changes is measured and goes into the slack, so this is no tolerance of a bound.
        """
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
        deviation = np.linalg.norm(units - sides[:, None] * normals[label], axis=1).max()
        return cls(normals, line, lengths, float(deviation))

    def sums(self, values: Array) -> Array:
        """Sum values (N, ...) over the vectors of each line: (L, ...)."""
        inside = self.line >= 0
        totals = np.zeros((len(self.normals), *values.shape[1:]))
        np.add.at(totals, self.line[inside], values[inside])
        return totals


@dataclass(frozen=True, eq=False)
class Kinked:
    """h(w) = offset w + sum_l kinks_l |<normals_l, w>|.

    Attributes
    ----------
    offset : ndarray of shape (K, r)
        C.
    normals : ndarray of shape (L, r)
        Unit vectors u of distinct lines.
    kinks : ndarray of shape (L, K)
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
        return self.offset.shape[1]

    @cached_property
    def size(self) -> float:
        """||C|| + sum ||q||: no ||h|| on the sphere is larger, and rounding scales with it."""
        return float(np.linalg.norm(self.offset) + np.linalg.norm(self.kinks, axis=1).sum())

    @property
    def jumps(self) -> Array:
        """q_l u_l', flattened, the component before the coordinate: shape (L, K r)."""
        jumps = self.kinks[:, :, None] * self.normals[:, None, :]
        return jumps.reshape(len(self.kinks), -1)

    def values(self, points: Array) -> Array:
        """Return h at points (k, r): shape (k, K)."""
        return np.asarray(points @ self.offset.T + np.abs(points @ self.normals.T) @ self.kinks)

    def lengths(self, points: Array, *, either: bool = False, block: int = 4096) -> Array:
        """||h|| at points (k, r), or the larger one of each and its antipode: shape (k,)."""
        found = np.empty(len(points))
        for start in range(0, len(points), block):
            some = points[start : start + block]
            linear = some @ self.offset.T
            kinked = np.abs(some @ self.normals.T) @ self.kinks
            if either:  # the linear part alone changes its sign
                linear *= np.where((linear * kinked).sum(axis=1) < 0, -1.0, 1.0)[:, None]
            found[start : start + block] = np.linalg.norm(linear + kinked, axis=1)
        return found

    def along(self, axis: Array) -> Kinked:
        """Return the component <axis, h>."""
        return Kinked(
            axis[None] @ self.offset, self.normals, self.kinks @ axis[:, None], self.slack
        )

    @property
    def doubt(self) -> float:
        """Values up to this far below the best are evaluated again: one may be the best."""
        return 1e-9 * self.size

    def essential(self) -> Kinked:
        """Leave out the hyperplanes without a kink; the normals of what is returned span R^r."""
        kept = np.linalg.norm(self.kinks, axis=1) > EPS * self.size
        # `cell_sums` needs normals that span R^r: those that are missing have kinks of 0.
        others = scipy.linalg.null_space(self.normals[kept]).T
        kinks = np.vstack([self.kinks[kept], np.zeros((len(others), len(self.offset)))])
        return Kinked(self.offset, np.vstack([self.normals[kept], others]), kinks, self.slack)

    def restricted(self, basis: Array) -> Kinked:
        """Return h on the span of the orthonormal columns of ``basis`` (r, k)."""
        lines = Lines.of(self.normals @ basis, SAME_RESTRICTED_LINE, SAME_RESTRICTED_LINE)
        kinks = lines.sums(self.kinks * np.abs(lines.lengths)[:, None])
        return Kinked(self.offset @ basis, lines.normals, kinks, self.slack)


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
        return cls(points[order], values[order], float(values[order[0]]) + allowance)


def maximise(function: Kinked, *, floor: float = np.inf) -> Peaks:
    """Find max ||h|| over the sphere, and other local maxima.

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
    # Sums of L terms are rounded, and signs that were tied in sweeps may be wrong.
    tied = 2.0 * SAME_RESTRICTED_LINE * max(function.rank - 3, 0)
    allowance = (4.0 * EPS * (len(function.kinks) + 16) + tied) * function.size + function.slack
    points = _candidates(function.essential(), floor)
    # Candidates are found up to their sign, and h is neither even nor odd.
    points = np.vstack([points, -points])
    return Peaks.of(points, function.lengths(points), floor, allowance)


def unit(vectors: Array) -> Array:
    """Vectors (k, r) of length 1 in the same directions; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(lengths > 0, vectors / np.maximum(lengths, TINY), 0.0)


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


def cell_signs(normals: Array) -> NDArray[np.int8]:
    """Signs (cells, L) of <u_l, w> in all cells; distinct normals (L, r) of rank r."""
    sums = np.vstack(list(cell_sums(normals, np.eye(len(normals)))))
    half = np.unique(np.sign(np.round(sums)).astype(np.int8), axis=0)
    return np.unique(np.vstack([half, -half]), axis=0)


def _candidates(function: Kinked, floor: float) -> Array:
    """Points (k, r) among which lie, up to sign, max ||h|| and the local maxima above ``floor``."""
    function = function.essential()
    if function.rank == 1:
        return np.ones((1, 1))
    if function.rank == 2:  # its cells are its arcs
        return _on_circles(function, np.eye(2)[None], np.array([-1]), floor)
    found = list(_on_faces(function, floor))
    best = max(float(function.lengths(points, either=True).max()) for points in found)
    # What is neither above the best face nor above the floor need not be looked at.
    for sums in cell_sums(function.normals, function.jumps):
        matrices = sums.reshape(-1, *function.offset.shape)
        for sign in (1.0, -1.0):
            points = _in_cells(function, function.offset + sign * matrices, min(floor, best))
            if len(points):
                found.append(points)
                best = max(best, float(function.lengths(points, either=True).max()))
    return np.vstack(found)


def _on_faces(function: Kinked, floor: float) -> Iterator[Array]:
    """Candidates on the hyperplanes of R^r, r > 2: many circles at once, or one after the other."""
    if function.rank == 3:
        for block, bases in circles(function.normals, function.jumps.shape[1]):
            yield _on_circles(function, bases, block, floor)
        return
    for normal in function.normals:
        basis = scipy.linalg.null_space(normal[None, :])
        yield _candidates(function.restricted(basis), floor) @ basis.T


def _in_cells(function: Kinked, matrices: Array, floor: float) -> Array:
    """Eigenvectors of G' G, of matrices (k, K, r), where ||h|| is as large as ||G w||."""
    enough = max(floor - function.doubt, 0.0) ** 2
    # The Frobenius norm is at least the spectral one, and takes no decomposition: a first sieve.
    matrices = matrices[np.einsum("kij,kij->k", matrices, matrices) >= enough]
    if matrices.shape[1] == 1:
        points = matrices[:, 0]
        lengths = np.linalg.norm(points, axis=1)
        points = unit(points)
    else:
        squares, vectors = np.linalg.eigh(np.einsum("kir,kis->krs", matrices, matrices))
        high = squares[:, -1] >= enough
        points = vectors[high, :, -1]
        lengths = np.sqrt(squares[high, -1])
    # Where ||h|| is smaller than ||G w||, w lies in another cell than that of G.
    reached = function.lengths(points, either=True) + function.doubt
    return np.asarray(points[reached >= lengths])


def circles(
    normals: Array, width: int, entries: int = 1_200_000
) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Yield the circles of rank 3 and their bases, in blocks whose sums have so many entries.

    A circle has an arc a normal (L, 3), and a sum on it has the given width.
    """
    step = max(1, entries // max(len(normals) * width, 1))
    for start in range(0, len(normals), step):
        block = np.arange(start, min(start + step, len(normals)))
        yield block, _circle_bases(normals[block])


def _circle_bases(normals: Array) -> Array:
    """Orthonormal bases (K, 3, 2) of the planes orthogonal to unit normals (K, 3)."""
    # The axis that is farthest from the normal, so that the cross product does not cancel.
    axis = np.eye(3)[np.argmin(np.abs(normals), axis=1)]
    first = np.cross(normals, axis)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    return np.stack([first, np.cross(normals, first)], axis=2)


def _on_circles(function: Kinked, bases: Array, own: NDArray[np.int64], floor: float) -> Array:
    """Vertices and eigenvectors of arcs on the circles spanned by ``bases`` (c, r, 2).

    ``own`` names the hyperplane that holds each circle; -1 for none.
    """
    angles, sums = swept(function.normals, function.jumps, bases, own)  # (c, A + 1), (c, A, K r)
    low = angles[:, :-1]
    high = angles[:, 1:]
    sums = sums.reshape(*low.shape, *function.offset.shape)
    inside = np.einsum("cakr,crd->cakd", sums, bases)  # S on the plane of the circle
    offset = np.einsum("kr,crd->ckd", function.offset, bases)[:, None]
    # Vertices, at the arcs' starts: at w or at -w the angle between C w and S w is acute.
    starts = np.stack([np.cos(low), np.sin(low)], axis=2)
    linear = np.einsum("cakd,cad->cak", np.broadcast_to(offset, inside.shape), starts)
    kinked = np.einsum("cakd,cad->cak", inside, starts)
    squares = (linear**2 + kinked**2).sum(axis=2) + 2.0 * np.abs((linear * kinked).sum(axis=2))
    tries = [(low, squares)]
    for sign in (1.0, -1.0):
        a, b = np.moveaxis(offset + sign * inside, 3, 0)
        # The larger eigenvalue of the 2 x 2 matrix with these entries, and its eigenvector's angle.
        aa = (a * a).sum(axis=2)
        ab = (a * b).sum(axis=2)
        bb = (b * b).sum(axis=2)
        turn = np.mod(0.5 * np.arctan2(2.0 * ab, aa - bb), np.pi)
        largest = 0.5 * (aa + bb + np.hypot(aa - bb, 2.0 * ab))
        tries.append((turn, np.where(_between(turn, low, high), largest, -np.inf)))
    most = np.sqrt(max(float(squares.max()) for _, squares in tries))
    enough = max(min(floor, most) - function.doubt, 0.0) ** 2
    found = []
    for turn, squares in tries:
        circle, arc = np.nonzero(squares >= enough)
        angle = turn[circle, arc]
        flat = np.column_stack([np.cos(angle), np.sin(angle)])
        found.append(np.einsum("crd,cd->cr", bases[circle], flat))
    return np.vstack(found)


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
    # A hyperplane is 0 on its own circle, and changes no sum there.
    signs[held, own[held]] = 0.0
    order = np.argsort(turn, axis=1)
    K, L = turn.shape
    sums = np.empty((K, L + 1, jumps.shape[1]))
    sums[:, 0] = signs @ jumps
    ordered = np.take_along_axis(signs, order, axis=1)
    # Where s_l turns to -s_l the sum changes by -2 s_l jumps_l.
    np.multiply(-2.0 * ordered[..., None], jumps[order], out=sums[:, 1:])
    np.cumsum(sums, axis=1, out=sums)
    angles = np.empty((K, L + 2))
    angles[:, 0] = 0.0
    angles[:, -1] = np.pi
    angles[:, 1:-1] = np.take_along_axis(turn, order, axis=1)
    return angles, sums


def _between(turn: Array, low: Array, high: Array) -> NDArray[np.bool_]:
    """Whether lines at angles in [0, pi) are on the arcs from low to high."""
    # Ends are rounded: a turn on two arcs is evaluated twice, one on none could be the maximum.
    slack = 1e-9
    turns = np.stack([turn - np.pi, turn, turn + np.pi])  # of lines: pi is 0 again
    return np.asarray(((low - slack <= turns) & (turns <= high + slack)).any(axis=0))


def cell_sums(normals: Array, jumps: Array) -> Iterator[Array]:
    """Yield sum_l s_l jumps_l of all cells, in blocks (k, R); one of antipodal cells at least.

    The normals (L, r) are distinct lines that span R^r; most cells occur more than once.
    """
    rank = normals.shape[1]
    if not len(normals):
        yield np.zeros((1, jumps.shape[1]))
    elif rank == 1:
        yield np.sign(normals[:, 0]) @ jumps[:, None, :]
    elif rank == 2:
        yield swept(normals, jumps, np.eye(2)[None], np.array([-1]))[1][0]
    elif rank == 3:
        for block, bases in circles(normals, jumps.shape[1]):
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
