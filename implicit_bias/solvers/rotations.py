"""Gates of which one is constant once a group of them is rotated.

Where a group's C_g gates have a constant sum S_g, as one-hot contexts have 1, a rotation of its
columns makes one of them constant. The constant columns of all such groups are one column, so
M = H C gates become H (C - 1) + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Integers
from implicit_bias.problem.euclidean import euclidean_form

# Wider groups gain little from a rotation, which fills sparse gates.
WIDEST_ROTATION = 8


def feature_shape(problem: MarginProblem) -> tuple[int, int]:
    """Return how many gates and inputs a sample has once what is constant is merged into one."""
    features, groups = euclidean_form(problem)
    return Rotations.of(features.sparse_gates, groups).n_rotated, features.n_inputs


@dataclass(frozen=True, eq=False)
class Rotations:
    """Which groups of gates (n, M), in groups (K', M), are rotated: those whose sum is constant.

    Gates that all classes have in the same groups are one group here: rotated once for all classes.

    Attributes
    ----------
    columns : ndarray of int, shape (K', G')
        Group of the norm of each class's group of gates.
    owner : ndarray of int, shape (M,)
        Group of each gate, one numbering for all classes.
    used : ndarray of int
        Gates that are ever on.
    widths : ndarray of int, shape (G',)
        Used gates of each group.
    sums : ndarray of shape (G',)
        Sum of each group's gates at the first sample.
    rotate : ndarray of bool, shape (G',)
        Whether that is their sum at all samples.
    """

    columns: Integers
    owner: Integers
    used: Integers
    widths: Integers
    sums: Array
    rotate: NDArray[np.bool_]

    @classmethod
    def of(cls, gates: sp.csr_array, groups: Integers) -> Rotations:
        """Find them."""
        columns, own = np.unique(groups, axis=1, return_inverse=True)  # (K', G')
        owner = own.reshape(-1)
        n_own = columns.shape[1]
        size = np.bincount(gates.indices, np.abs(gates.data), minlength=gates.shape[1])
        used = np.flatnonzero(size)  # a gate that is always off has V_m = 0
        samples = np.repeat(np.arange(gates.shape[0]), np.diff(gates.indptr))  # of each entry
        places = samples * n_own + owner[gates.indices]
        sums = np.bincount(places, gates.data, minlength=gates.shape[0] * n_own)
        sums = sums.reshape(-1, n_own)  # (n, G')
        widths = np.bincount(owner[used], minlength=n_own)
        rotate = (sums == sums[0]).all(axis=0) & (widths > 0) & (widths <= WIDEST_ROTATION)
        return cls(columns, owner, used, widths, sums[0], rotate)

    @property
    def n_rotated(self) -> int:
        """Rotated gates, with the shared constant one if there is any."""
        return len(self.used) - int(self.rotate.sum()) + bool(self.rotate.any())


class RotatedGates:
    """Gates (n, M), in groups (K', M), rotated, with one shared constant, and the way back."""

    def __init__(self, gates: sp.csr_array, groups: Integers) -> None:
        found = Rotations.of(gates, groups)
        self.columns = found.columns
        self._owner = found.owner
        used = found.used
        widths = found.widths
        rotate = found.rotate
        total = np.where(rotate, found.sums, 0.0)  # S_g
        self.share = total**2 / np.maximum(widths, 1)
        # zeta's part along the constant column, for each gate: S_g / C_g.
        self._constant = np.zeros(gates.shape[1])
        self._constant[used] = (total / np.maximum(widths, 1))[self._owner[used]]
        # The rotation, one block a group: Helmert's rows are orthonormal and orthogonal to 1.
        order = used[np.argsort(self._owner[used], kind="stable")]
        left = widths - rotate
        first_row = np.cumsum(widths) - widths
        first_column = np.cumsum(left) - left
        rows: list[Integers] = []
        columns: list[Integers] = []
        values: list[Array] = []
        for width, turned in set(zip(widths.tolist(), rotate.tolist(), strict=True)):
            entries = sp.coo_array(sp.eye_array(width))
            if turned:
                entries = sp.coo_array(scipy.linalg.helmert(width).T)
            alike = np.flatnonzero((widths == width) & (rotate == turned))[:, None]
            rows.append(order[(first_row[alike] + entries.row).ravel()])
            columns.append((first_column[alike] + entries.col).ravel())
            values.append(np.tile(entries.data, len(alike)))
        self._rotation = sp.csc_array(  # (M, M')
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            (gates.shape[1], int(left.sum())),
        )
        self.own = np.repeat(np.arange(len(widths)), left)
        constant = np.ones((gates.shape[0], 1))
        self.rotated = np.hstack([(gates @ self._rotation).toarray(), constant])

    def expand(self, V: Array, d: Array) -> Array:
        """d_g V_g in the gates as they were, (K', M, D'), of rotated V (K', M' + 1, D')."""
        found = []
        for own, weights in zip(V, d[self.columns], strict=True):
            turned = self._rotation @ (own[:-1] * weights[self.own][:, None])
            constant = self._constant * weights[self._owner]
            found.append(turned + np.outer(constant, own[-1]))
        return np.asarray(found)
