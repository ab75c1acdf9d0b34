"""Rotations of groups of gates that make one gate of each group constant.

A Euclidean norm over a group of gates does not change when the group's columns are rotated. Where
the C_g gates of a group have the same sum S_g at all samples, as one-hot contexts have the sum 1, a
rotation makes one of its columns constant. All groups share one such column, so that M = H C gates
of H groups become H (C - 1) + 1.
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


def feature_shape(problem: MarginProblem) -> tuple[int, int]:
    """Return how many gates and inputs a sample has, constant gates counted as one."""
    features, groups = euclidean_form(problem)
    return Rotations.of(features.sparse_gates, groups).n_rotated, features.n_varying_inputs


@dataclass(frozen=True, eq=False)
class Rotations:
    """Which groups of the gates (n, M) are rotated: those whose sum is constant.

    The norm has the groups (K', M), which may differ from class to class. Here two gates are in one
    group where they are so in every class; each of these groups is rotated once, for all classes.

    Attributes
    ----------
    norm_groups : ndarray of int, shape (K', G')
        In each class, the group of the norm to which a group of gates belongs.
    group_of_gate : ndarray of int, shape (M,)
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

    norm_groups: Integers
    group_of_gate: Integers
    used: Integers
    widths: Integers
    sums: Array
    rotate: NDArray[np.bool_]

    @classmethod
    def of(cls, gates: sp.csr_array, groups: Integers, widest: int = 8) -> Rotations:
        """Find the groups of gates (n, M) whose sum is constant, in the norm's groups (K', M).

        Groups of more than ``widest`` gates gain little from a rotation, which fills sparse gates.
        """
        # Gates are in one group where the classes' groups, a column of ``groups``, agree.
        norm_groups, inverse = np.unique(groups, axis=1, return_inverse=True)  # (K', G')
        group_of_gate = inverse.reshape(-1)
        n_groups = norm_groups.shape[1]
        size = np.bincount(gates.indices, np.abs(gates.data), minlength=gates.shape[1])
        used = np.flatnonzero(size)  # a gate that is always off has V_m = 0
        # Sum the entries of each sample and group.
        samples = np.repeat(np.arange(gates.shape[0]), np.diff(gates.indptr))  # of each entry
        places = samples * n_groups + group_of_gate[gates.indices]
        sums = np.bincount(places, gates.data, minlength=gates.shape[0] * n_groups)
        sums = sums.reshape(-1, n_groups)  # (n, G')
        widths = np.bincount(group_of_gate[used], minlength=n_groups)
        rotate = (sums == sums[0]).all(axis=0) & (widths > 0) & (widths <= widest)
        return cls(norm_groups, group_of_gate, used, widths, sums[0], rotate)

    @property
    def n_rotated(self) -> int:
        """Rotated gates, with the shared constant one if there is any."""
        return len(self.used) - int(self.rotate.sum()) + bool(self.rotate.any())


class RotatedGates:
    """Gates (n, M), in groups (K', M), rotated, with one shared constant, and the way back.

    Attributes
    ----------
    rotated : ndarray of shape (n, M' + 1)
        The rotated gates; the last column is the shared constant, 1.
    groups : ndarray of int, shape (M',)
        Group of each rotated gate but the last, one numbering for all classes.
    share : ndarray of shape (G',)
        S_g^2 / C_g, the weight of the shared column in each group; 0 where a group is not rotated.
    norm_groups : ndarray of int, shape (K', G')
        As in `Rotations`.
    """

    def __init__(self, gates: sp.csr_array, groups: Integers) -> None:
        found = Rotations.of(gates, groups)
        self.norm_groups = found.norm_groups
        self._group_of_gate = found.group_of_gate
        used = found.used
        widths = found.widths
        rotate = found.rotate
        total = np.where(rotate, found.sums, 0.0)  # S_g
        self.share = total**2 / np.maximum(widths, 1)
        # Each gate of a rotated group has d_g S_g / C_g times V of the shared column in zeta.
        self._constant = np.zeros(gates.shape[1])
        self._constant[used] = (total / np.maximum(widths, 1))[found.group_of_gate[used]]
        # The rotation has a block for each group, the identity where it is not rotated. Helmert's
        # rows are orthonormal and orthogonal to 1, so that the constant column is left out. Blocks
        # of one width and kind are equal, and written together.
        order = used[np.argsort(found.group_of_gate[used], kind="stable")]
        n_columns = widths - rotate  # of each block
        first_row = np.cumsum(widths) - widths
        first_column = np.cumsum(n_columns) - n_columns
        rows: list[Integers] = []
        columns: list[Integers] = []
        values: list[Array] = []
        for width, is_rotated in set(zip(widths.tolist(), rotate.tolist(), strict=True)):
            entries = sp.coo_array(sp.eye_array(width))
            if is_rotated:
                entries = sp.coo_array(scipy.linalg.helmert(width).T)
            alike = np.flatnonzero((widths == width) & (rotate == is_rotated))[:, None]
            rows.append(order[(first_row[alike] + entries.row).ravel()])
            columns.append((first_column[alike] + entries.col).ravel())
            values.append(np.tile(entries.data, len(alike)))
        self._rotation = sp.csc_array(  # (M, M')
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            (gates.shape[1], int(n_columns.sum())),
        )
        self.groups = np.repeat(np.arange(len(widths)), n_columns)
        constant = np.ones((gates.shape[0], 1))
        self.rotated = np.hstack([(gates @ self._rotation).toarray(), constant])

    def expand(self, V: Array, d: Array) -> Array:
        """d_g V_g in the gates as they were, (K', M, D'), of rotated V (K', M' + 1, D')."""
        found = []
        for V_of_class, weights in zip(V, d[self.norm_groups], strict=True):
            rotated_back = self._rotation @ (V_of_class[:-1] * weights[self.groups][:, None])
            constant = self._constant * weights[self._group_of_gate]
            found.append(rotated_back + np.outer(constant, V_of_class[-1]))
        return np.asarray(found)
