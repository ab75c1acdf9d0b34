r"""Exact maxima of the length of piecewise linear vectors over the cells of an arrangement.

Function  h(w) = C w + sum_l q_l |<u_l, w>|   from the unit sphere of R^r, r <= 3, to R^K
Maximum   max_{||w|| = 1} ||h(w)||_2

=========  =========  ==========================================================================
u          (L, r)     unit normals of distinct hyperplanes that span R^r
q          (L, K)     kinks: half of the jump of the slope across a hyperplane
C          (K, r)     offset: the part of h that is linear everywhere
s          (L,)       signs of <u_l, w> in a cell, where h(w) = (C + sum_l s_l q_l u_l') w
=========  =========  ==========================================================================

`arrangement` is the case K = 1. On a face of a cell h(w) = G w, and ||G w||^2 is a quadratic form:
on the sphere of the face's span its only local maxima are the eigenvectors of its largest
eigenvalue, all others being saddles or minima. So the maximum over a face is such an eigenvector,
where it lies in the face, or lies on the face's boundary; and the candidates are again vertices,
one eigenvector of each arc and one of each cell, although ||h|| is convex on a cell. Where the
largest eigenvalue is double, the way along its eigenvectors to the boundary changes nothing.

Not in the paper of `solve`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.infinite_width.arrangement import (
    BLOCK,
    EPS,
    Peaks,
    cell_sums,
    circles,
    on_arcs,
    swept,
)

# Values up to this share of the size below the best are evaluated again: they may be the best.
NEARLY_BEST = 1e-9


@dataclass(frozen=True, eq=False)
class KinkedVectors:
    """h(w) = offset w + sum_l kinks_l |<normals_l, w>|.

    Attributes
    ----------
    offset : ndarray of shape (K, r)
        C.
    normals : ndarray of shape (L, r)
        Unit vectors u of distinct lines, which span R^r.
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

    @property
    def size(self) -> float:
        """Upper bound of ||h|| on the sphere, and the scale of its rounding."""
        lengths = np.linalg.norm(self.kinks, axis=1)
        return float(np.linalg.norm(self.offset) + lengths.sum())

    @property
    def jumps(self) -> Array:
        """q_l u_l', flattened, the component before the coordinate: shape (L, K r)."""
        jumps = self.kinks[:, :, None] * self.normals[:, None, :]
        return jumps.reshape(len(self.kinks), -1)

    def values(self, points: Array) -> Array:
        """Return h at points (k, r): shape (k, K)."""
        return np.asarray(points @ self.offset.T + np.abs(points @ self.normals.T) @ self.kinks)

    def lengths(self, points: Array) -> Array:
        """||h|| at points (k, r): shape (k,)."""
        found = np.empty(len(points))
        for start in range(0, len(points), BLOCK):
            rows = slice(start, start + BLOCK)
            found[rows] = np.linalg.norm(self.values(points[rows]), axis=1)
        return found


def maximise_length(function: KinkedVectors, *, floor: float = np.inf) -> Peaks:
    """Find max ||h|| over the sphere, and other local maxima.

    Parameters
    ----------
    function : KinkedVectors
        h, of rank 3 at most.
    floor : float
        Local maxima of at least this value are wanted, too; they lie among the returned points.

    Returns
    -------
    Peaks
        At least one point; exact up to the rounding allowance in ``upper``.

    Raises
    ------
    ValueError
        A rank above 3.
    """
    if function.rank > 3:
        raise ValueError(f"the cells of rank {function.rank} are not visited: 3 at most")
    # Sums of L terms are rounded, and so are eigenvectors, whose values are stationary.
    allowance = 16.0 * EPS * (len(function.kinks) + 16) * function.size + function.slack
    if function.rank == 1:
        points = np.ones((1, 1))
    elif function.rank == 2:
        points = _on_circles(function, np.eye(2)[None], np.array([-1]), floor)
    else:
        points = _in_rank_three(function, floor)
    points = np.vstack([points, -points])
    return Peaks.of(points, function.lengths(points), floor, allowance)


def _in_rank_three(function: KinkedVectors, floor: float) -> Array:
    """Candidates on all circles, and in all cells."""
    K, rank = function.offset.shape
    found = []
    best = floor
    for block, bases in circles(function.normals):
        for start in range(0, len(block), step := max(1, len(block) // K)):
            some = slice(start, start + step)
            points = _on_circles(function, bases[some], block[some], best)
            found.append(points)
            best = min(best, _longest(function, points))
    for sums in cell_sums(function.normals, function.jumps):
        matrices = sums.reshape(-1, K, rank)
        for sign in (1.0, -1.0):
            points = _in_cells(function, function.offset + sign * matrices, best)
            if len(points):
                found.append(points)
                best = min(best, _longest(function, points))
    return np.vstack(found)


def _longest(function: KinkedVectors, points: Array) -> float:
    """Max ||h|| over points (k, r) and their antipodes."""
    return float(max(function.lengths(points).max(), function.lengths(-points).max()))


def _in_cells(function: KinkedVectors, matrices: Array, floor: float) -> Array:
    """Eigenvectors of G' G, of matrices (k, K, r), where ||h|| is as large as ||G w||."""
    enough = max(floor - NEARLY_BEST * function.size, 0.0) ** 2
    matrices = matrices[np.einsum("kij,kij->k", matrices, matrices) >= enough]
    squares, vectors = np.linalg.eigh(np.einsum("kir,kis->krs", matrices, matrices))
    high = squares[:, -1] >= enough
    points, lengths = vectors[high, :, -1], np.sqrt(squares[high, -1])
    values = np.maximum(function.lengths(points), function.lengths(-points))
    return np.asarray(points[values >= lengths - NEARLY_BEST * function.size])


def _on_circles(
    function: KinkedVectors, bases: Array, own: NDArray[np.int64], floor: float
) -> Array:
    """Vertices and eigenvectors of arcs on the circles spanned by ``bases`` (C, r, 2).

    ``own`` names the hyperplane that holds each circle; -1 for none.
    """
    K, rank = function.offset.shape
    angles, sums = swept(function.normals, function.jumps, bases, own)  # (C, A + 1), (C, A, K r)
    sums = sums.reshape(*sums.shape[:2], K, rank)
    inside = np.einsum("cakr,crd->cakd", sums, bases)
    offset = np.einsum("kr,crd->ckd", function.offset, bases)[:, None]
    starts = angles[:, :-1]
    tries: list[tuple[Array, Array]] = []  # angles, and ||h|| there or at the antipode
    for sign in (1.0, -1.0):
        matrices = sign * inside + offset
        a, b = np.moveaxis(matrices, 3, 0)
        aa, ab, bb = (a * a).sum(axis=2), (a * b).sum(axis=2), (b * b).sum(axis=2)
        cos, sin = np.cos(starts), np.sin(starts)
        at_start = aa * cos**2 + 2.0 * ab * cos * sin + bb * sin**2
        tries.append((starts, np.sqrt(np.maximum(at_start, 0.0))))
        turn = np.mod(0.5 * np.arctan2(2.0 * ab, aa - bb), np.pi)
        largest = np.sqrt(0.5 * (aa + bb + np.hypot(aa - bb, 2.0 * ab)))
        tries.append((turn, np.where(on_arcs(turn, angles), largest, -np.inf)))
    enough = min(floor, max(float(lengths.max()) for _, lengths in tries))
    found = []
    for turns, lengths in tries:
        circle, arc = np.nonzero(lengths >= enough - NEARLY_BEST * function.size)
        turn = turns[circle, arc]
        flat = np.column_stack([np.cos(turn), np.sin(turn)])
        found.append(np.einsum("crd,cd->cr", bases[circle], flat))
    return np.vstack(found)
