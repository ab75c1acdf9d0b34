r"""Norms of coefficients, each with its dual: all that the two bounds of a certificate need.

upper = Omega(zeta) / smallest margin,   lower = sum(alpha) / Omega_*(V(alpha))

A norm has ``value(coef)``, Omega, and ``dual(V)``, Omega_* = max of <zeta, V> over Omega(zeta) = 1.

=========  ==========================================  ======================================
norm       Omega(zeta)                                 Omega_*(V)
=========  ==========================================  ======================================
GroupNorm  sum_g ||zeta_g||                            max_g ||V_g||
metric     ||zeta_g|| = sqrt(tr(zeta_g' P_g^+ zeta_g)),  ||V_g|| = sqrt(tr(V_g' P_g V_g))
           zeta_g in the range of P_g
=========  ==========================================  ======================================

A metric is a change of gates: with P_g = R_g R_g' of full column rank, zeta_g = R_g u_g has the
norm ||u_g||, and u_g's gates are Z_g R_g. The stored root R_g *is* the metric: P_g is R_g R_g'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from implicit_bias.validation import Array, as_finite

# Eigenvalues of a metric below this share of its largest one, times its size, count as zero.
RANK_TOLERANCE = 1e-12
# Coefficients outside the range of a metric by more than this share of their size have no norm.
RANGE_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class GroupNorm:
    """The sum of the Euclidean norms of groups of gate columns, each with a metric if it likes.

    Parameters
    ----------
    groups : array_like of int, shape (M,)
        Group of each column, 0 .. G - 1, none left out.
    metric : mapping from group to array_like of shape (M_g, M_g), optional
        Positive semi-definite P_g of the groups that have one; see the module's table. What
        rounding left of its null space (eigenvalues below 1e-12 M_g of the largest, or a little
        below 0) is cut off.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1, or a metric that is not symmetric positive semi-definite.
    """

    groups: NDArray[np.int64]
    metric: Mapping[int, Array] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        groups = _as_groups(self.groups)
        metric = {} if self.metric is None else _as_metric(self.metric, groups)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "metric", metric or None)

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.groups.max()) + 1

    def value(self, coef: Array) -> float:
        """Omega of coefficients (M, D); inf where a zeta_g leaves the range of its P_g."""
        return float(self.group_norms(coef).sum())

    def dual(self, V: Array) -> float:
        """Omega_* of V (M, D)."""
        return float(self.dual_norms(V).max())

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,); inf where zeta_g leaves the range of P_g."""
        norms = self.plain_norms(self.plain_coef(coef))
        for g, columns, root in self._roots:
            if root.excludes(coef[columns]):
                norms[g] = np.inf
        return norms

    def dual_norms(self, V: Array) -> Array:
        """||V_g|| of each group, shape (G,)."""
        return self.plain_norms(V if self.metric is None else self.root.T @ V)

    def projected(self, coef: Array) -> Array:
        """Coefficients (M, D) without what rounding put outside the ranges of the P_g."""
        return coef if self.metric is None else np.asarray(self.root @ self.plain_coef(coef))

    def aligned(self, V: Array, group_scale: Array) -> Array:
        """zeta_g = d_g P_g V_g, shape (M, D), of V (M, D) and d (G,), by KKT."""
        direction = V if self.metric is None else np.asarray(self.root @ (self.root.T @ V))
        return direction * group_scale[self.groups][:, None]

    # --- the equivalent norm without metric

    @cached_property
    def root(self) -> sp.csr_array:
        """R, shape (M, M'): block diagonal with P_g = R_g R_g'; coef = R @ plain coef."""
        if self.metric is None:
            return sp.eye_array(len(self.groups), format="csr")
        plain = np.flatnonzero(~np.isin(self.groups, list(self.metric)))
        blocks: list[tuple[NDArray[np.int64], Array]] = [(plain, np.eye(len(plain)))]
        blocks += [(columns, root.matrix) for _, columns, root in self._roots]
        widths = [R.shape[1] for _, R in blocks]
        whole = sp.lil_array((len(self.groups), sum(widths)))
        for (columns, R), start in zip(blocks, np.cumsum([0, *widths[:-1]]), strict=True):
            whole[np.ix_(columns, np.arange(start, start + R.shape[1]))] = R
        return whole.tocsr()

    @cached_property
    def plain_groups(self) -> NDArray[np.int64]:
        """Group of each column of R, shape (M',)."""
        if self.metric is None:
            return self.groups
        columns = self.root.tocsc()
        first_row = columns.indices[columns.indptr[:-1]]
        return self.groups[first_row]

    def plain_coef(self, coef: Array) -> Array:
        """Return u (M', D) with R u = coef (M, D), or nearest to it."""
        if self.metric is None:
            return coef
        plain = self.root.T @ coef
        for g, columns, root in self._roots:
            plain[self.plain_groups == g] = root.inverse @ coef[columns]
        return np.asarray(plain)

    def plain_norms(self, coef: Array) -> Array:
        """||u_g|| of each group, shape (G,), of u (M', D): primal and dual are the same here."""
        squares = np.einsum("md,md->m", coef, coef)
        sums = np.bincount(self.plain_groups, weights=squares, minlength=self.n_groups)
        return np.asarray(np.sqrt(sums), dtype=np.float64)

    def plain_gates(self, gates: sp.csr_array) -> sp.csr_array:
        """Gates Z R, shape (N, M'), of u.

        Where all of a sample's gates in a group cancel, what is left is rounding, which must not
        be scaled up. It is cut off, by its size relative to the gates that cancel: those that a
        column of R uses, times that column's largest entry.
        """
        plain = sp.csr_array(gates @ self.root)
        if self.metric is None:
            return plain
        reach = (self.root != 0) @ sp.diags_array(abs(self.root).max(axis=0).toarray().ravel())
        terms = sp.csr_array(abs(gates) @ reach)  # nonzero wherever `plain` is
        columns = np.arange(len(self.plain_groups))
        shape = (len(columns), self.n_groups)
        membership = sp.csr_array((np.ones(len(columns)), (columns, self.plain_groups)), shape)
        seen = sp.csr_array(abs(plain) > RANK_TOLERANCE * terms) @ membership  # (N, G)
        seen = sp.csr_array((seen > 0) @ membership.T)
        return sp.csr_array(plain.multiply(seen))

    @cached_property
    def _roots(self) -> list[tuple[int, NDArray[np.int64], _Root]]:
        return [
            (g, np.flatnonzero(self.groups == g), _Root.of(P))
            for g, P in (self.metric or {}).items()
        ]


@dataclass(frozen=True, eq=False)
class _Root:
    """A metric P (m, m) by its positive eigenvalues (r,) and their eigenvectors (m, r)."""

    values: Array
    vectors: Array

    @classmethod
    def of(cls, P: Array) -> _Root:
        values, vectors = scipy.linalg.eigh(P)
        keep = values > RANK_TOLERANCE * len(P) * values[-1]
        return cls(values[keep], vectors[:, keep])

    @property
    def matrix(self) -> Array:
        """R (m, r) of full column rank with P = R R'."""
        return np.asarray(self.vectors * np.sqrt(self.values))

    @property
    def inverse(self) -> Array:
        """R^+, shape (r, m)."""
        return np.asarray((self.vectors / np.sqrt(self.values)).T)

    def excludes(self, coef: Array) -> bool:
        """Whether coefficients (m, D) leave the range of P."""
        outside = np.linalg.norm(coef - self.vectors @ (self.vectors.T @ coef))
        return bool(outside > RANGE_TOLERANCE * np.linalg.norm(coef))


def _as_groups(groups: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(groups)
    if array.ndim != 1 or len(array) == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"groups must be a 1-D array of integers, got {array.dtype} {array.shape}")
    found = np.unique(array)
    if not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            f"groups must be numbered 0 .. G - 1 with none left out, got {found[:10]}: "
            "renumber with np.unique(groups, return_inverse=True)[1]"
        )
    return array.astype(np.int64)


def _as_metric(metric: Mapping[int, ArrayLike], groups: NDArray[np.int64]) -> dict[int, Array]:
    if not isinstance(metric, Mapping):
        raise ValueError(
            f"metric must map groups to matrices, as in {{0: P}}, got a {type(metric).__name__}"
        )
    checked = {}
    for g, P in metric.items():
        size = int(np.count_nonzero(groups == g))
        if size == 0:
            raise ValueError(f"metric names group {g!r}, but there is no such group")
        matrix = as_finite(P, f"metric of group {g}", 2)
        if matrix.shape != (size, size):
            raise ValueError(
                f"metric of group {g} must have shape ({size}, {size}), one row a gate column "
                f"of the group, got {matrix.shape}"
            )
        scale = np.abs(matrix).max()
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * scale):
            raise ValueError(f"metric of group {g} is not symmetric: pass (P + P') / 2")
        smallest = np.linalg.eigvalsh(matrix)[0]
        if scale == 0 or smallest < -1e-10 * scale * size:
            raise ValueError(
                f"metric of group {g} is not positive semi-definite (or zero): smallest "
                f"eigenvalue {smallest:.3g}"
            )
        root = _Root.of(matrix).matrix
        checked[int(g)] = root @ root.T
    return checked
