"""Sums of Euclidean norms over groups of gate columns.

A norm sqrt(tr(zeta_g' P_g^+ zeta_g)) with P_g = R_g R_g' is one of these for the gates Z_g R_g:
zeta_g = R_g u_g has the norm ||u_g|| (`gating.CombinedGates`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.rounding import (
    SAFETY,
    SMALLEST_NORMAL,
    Enclosure,
    gamma,
    root_sums,
    row_norms,
    sum_up,
)
from implicit_bias.base.validation import Array
from implicit_bias.norms.groups import as_groups
from implicit_bias.norms.norm import Partition, Shape, SumNorm


@dataclass(frozen=True, eq=False)
class GroupNorm(SumNorm):
    """The sum of the Euclidean norms of groups of gate columns.

    Parameters
    ----------
    groups : array_like of int, shape (M,)
        Group of each column, 0 .. G - 1, none left out.
    apart : bool
        Whether each of K classes has groups of its own, (k, g), K G in all: one network a class.
        By default a group has the columns of all classes.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1.

    Examples
    --------
    >>> import numpy as np
    >>> norm = GroupNorm(np.array([0, 0, 1]))  # two columns in the first group, one in the second
    >>> norm.value(np.array([[3.0], [4.0], [1.0]]))
    6.0
    """

    groups: NDArray[np.int64]
    apart: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", as_groups(self.groups))

    @property
    def n_groups(self) -> int:
        """G, of one class where they are apart."""
        return int(self.groups.max()) + 1

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,), of coefficients (M, D) or (K, M, D)."""
        norms = row_norms(coef.reshape(-1, coef.shape[-1]))
        return root_sums(norms, self.groups_of_rows(len(norms) // len(self.groups)))

    def dual_norms(self, V: Array) -> Array:
        """||V_g|| of each group, shape (G,): primal and dual are the same."""
        return self.group_norms(V)

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        norms, groups = self.group_norms(coef), self.groups_of_rows(math.prod(coef.shape[:-2]))
        rounding = gamma(coef.shape[-1] + int(np.bincount(groups).max()) + 10)
        return sum_up((norms * (1.0 + rounding) + SMALLEST_NORMAL * (norms > 0)).tolist())

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on ||V_g||, shape (G,)."""
        width = V.value.shape[-1]
        norms, radius = (row_norms(part.reshape(-1, width)) for part in (V.value, V.radius))
        rounding = gamma(width + 4) * (norms + radius)
        return self.of_rows(Enclosure(norms, SAFETY * (radius + rounding))).magnitude

    def of_rows(self, rows: Enclosure) -> Enclosure:
        """Return ||V_g|| (G,) from the norms of the rows of V (M, D), or of (K, M, D)."""
        groups = self.groups_of_rows(len(rows.value) // len(self.groups))
        rounding = gamma(int(np.bincount(groups).max()) + 4)
        value, radius = root_sums(rows.value, groups), root_sums(rows.radius, groups)
        lost = SMALLEST_NORMAL * ((value > 0) | (radius > 0))
        return Enclosure(value, SAFETY * (radius + rounding * value) + lost)

    def maximiser(self, V: Array) -> Array:
        """Return V_g over its norm, of the group with the largest dual norm."""
        norms = self.dual_norms(V)
        best = np.zeros(len(norms))
        best[norms.argmax()] = 1.0 / (norms.max() or 1.0)
        return self.aligned(V, best)

    def partition(self, shape: Shape) -> Partition:
        """Return the groups of gate columns."""
        K = math.prod(shape[:-2])
        rows = self.groups_of_rows(K)
        return Partition(np.repeat(rows, shape[-1]).reshape(shape), "l2")

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        groups = np.repeat(self.groups_of_rows(math.prod(shape[:-2])), shape[-1])  # of entries
        return sum(cp.norm(zeta[np.flatnonzero(groups == g)], 2) for g in np.unique(groups))

    def aligned(self, V: Array, group_norms: Array) -> Array:
        """zeta_g = d_g V_g, of the shape of V, of V and d (G,), by KKT."""
        if self.apart:
            return V * group_norms.reshape(-1, self.n_groups)[:, self.groups, None]
        return V * group_norms[self.groups][:, None]

    def groups_of_rows(self, n_classes: int) -> NDArray[np.int64]:
        """Group of each row of coefficients (K, M, D), flattened: (K M,)."""
        if n_classes == 1:
            return self.groups
        groups = np.tile(self.groups, n_classes)
        if not self.apart:
            return groups
        return groups + self.n_groups * np.repeat(np.arange(n_classes), len(self.groups))
