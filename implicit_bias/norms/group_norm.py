"""Sums of Euclidean norms over groups of gate columns, each with a metric or without.

A group's metric P_g = R_g R_g' makes its norm sqrt(tr(zeta_g' P_g^+ zeta_g)) for zeta_g in the
range of P_g, and its dual norm sqrt(tr(V_g' P_g V_g)). In the coefficients u of zeta = R u it is
the Euclidean norm again: `plain` is the norm of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from implicit_bias.base.rounding import (
    SAFETY,
    SMALLEST_NORMAL,
    Enclosure,
    gamma,
    root_sums,
    row_norms,
    sum_up,
)
from implicit_bias.base.validation import Array, as_finite, check_count, check_shape
from implicit_bias.norms.groups import as_groups
from implicit_bias.norms.norm import RANK_TOLERANCE, Partition, Shape, SumNorm

# Sparse matrices of at least this share of entries are multiplied as dense ones, which is faster.
FEW = 0.05


# Coefficients outside the range of a metric by more than this share of their size have no norm.
RANGE_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class GroupNorm(SumNorm):
    """The sum of the Euclidean norms of groups of gate columns, each of which may have a metric.

    Parameters
    ----------
    groups : array_like of int, shape (M,)
        Group of each column, 0 .. G - 1, none left out.
    metric : mapping from group to array_like of shape (M_g, M_g), optional
        Positive semi-definite P_g of the groups that have one; see the module's table. What
        rounding left of its null space (eigenvalues below 1e-12 M_g of the largest, or a little
        below 0) is cut off, of each diagonal block by itself.
    apart : bool
        Whether each of K classes has groups of its own, (k, g), K G in all: one network a class.
        By default a group has the columns of all classes.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1, or a metric that is not symmetric positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> norm = GroupNorm(np.array([0, 0, 1]))  # two columns in the first group, one in the second
    >>> norm.value(np.array([[3.0], [4.0], [1.0]]))
    6.0
    """

    treats_classes_alike: ClassVar[bool] = True

    groups: NDArray[np.int64]
    metric: Mapping[int, Array] | None = field(default=None, repr=False)
    apart: bool = False

    def __post_init__(self) -> None:
        groups = as_groups(self.groups)
        metric = {} if self.metric is None else _as_metric(self.metric, groups)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "metric", metric or None)

    @property
    def n_groups(self) -> int:
        """G, of one class where they are apart."""
        return int(self.groups.max()) + 1

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,); inf where zeta_g leaves the range of P_g."""
        norms = self.plain_norms(self.plain_coef(coef))
        if self.metric is not None:
            euclidean = GroupNorm(self.groups, apart=self.apart)
            vectors = _for_products(self._basis[0])
            outside = euclidean.plain_norms(coef - _times(vectors, _times(vectors.T, coef)))
            norms[outside > RANGE_TOLERANCE * euclidean.plain_norms(coef)] = np.inf
        return norms

    def dual_norms(self, V: Array) -> Array:
        """||V_g|| of each group, shape (G,)."""
        return self.plain_norms(self._pulled_back(V))

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        norms, groups = self.group_norms(coef), self.groups_of_rows(math.prod(coef.shape[:-2]))
        rounding = gamma(coef.shape[-1] + int(np.bincount(groups).max()) + 10)
        return sum_up((norms * (1.0 + rounding) + SMALLEST_NORMAL * (norms > 0)).tolist())

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on ||V_g||, shape (G,), of V of the plain gates."""
        width = V.value.shape[-1]
        norms, radius = (row_norms(part.reshape(-1, width)) for part in (V.value, V.radius))
        rounding = gamma(width + 4) * (norms + radius)
        return self.of_rows(Enclosure(norms, SAFETY * (radius + rounding))).magnitude

    def of_rows(self, rows: Enclosure) -> Enclosure:
        """Return ||V_g|| (G,) from the norms of the rows of V (M', D), or of (K, M', D)."""
        groups = self.groups_of_rows(len(rows.value) // len(self.plain_groups))
        rounding = gamma(int(np.bincount(groups).max()) + 4)
        value, radius = root_sums(rows.value, groups), root_sums(rows.radius, groups)
        lost = SMALLEST_NORMAL * ((value > 0) | (radius > 0))
        return Enclosure(value, SAFETY * (radius + rounding * value) + lost)

    def maximiser(self, V: Array) -> Array:
        """Return P_g V_g over its norm, of the group with the largest dual norm."""
        norms = self.dual_norms(V)
        best = np.zeros(len(norms))
        best[norms.argmax()] = 1.0 / (norms.max() or 1.0)
        return self.aligned(V, best)

    def partition(self, shape: Shape) -> Partition | None:
        """Return the groups of gate columns; None with a metric."""
        if self.metric is not None:
            return None
        K = math.prod(shape[:-2])
        rows = self.groups_of_rows(K)
        return Partition(np.repeat(rows, shape[-1]).reshape(shape), "l2")

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY, of plain coefficients."""
        groups = np.repeat(self.groups_of_rows(math.prod(shape[:-2])), shape[-1])  # of entries
        return sum(cp.norm(zeta[np.flatnonzero(groups == g)], 2) for g in np.unique(groups))

    def _pulled_back(self, V: Array) -> Array:
        """Return R' V, what V is to the plain coefficients."""
        return V if self.metric is None else _times(self._factor.T, V)

    def of_plain(self, coef: Array) -> Array:
        """Return the coefficients R u of u (M', D) or (K, M', D)."""
        return coef if self.metric is None else _times(self._factor, coef)

    def projected(self, coef: Array) -> Array:
        """Coefficients without what rounding put outside the ranges of the P_g."""
        return self.of_plain(self.plain_coef(coef))

    def aligned(self, V: Array, group_norms: Array) -> Array:
        """zeta_g = d_g P_g V_g, of the shape of V, of V and d (G,), by KKT."""
        direction = self.of_plain(self._pulled_back(V))
        if self.apart:
            return direction * group_norms.reshape(-1, self.n_groups)[:, self.groups, None]
        return direction * group_norms[self.groups][:, None]

    # --- the equivalent norm without metric

    @cached_property
    def _basis(self) -> tuple[sp.csr_array, Array]:
        """Eigenvectors of the metric (M, M'), block diagonal, and eigenvalues (M',), without null.

        Columns of groups without a metric, which come first, are those of the identity.
        """
        metric = self.metric or {}
        columns = [np.flatnonzero(~np.isin(self.groups, list(metric)))]
        blocks, values = [sp.eye_array(len(columns[0]))], [np.ones(len(columns[0]))]
        for g, P in metric.items():
            of_group, vectors = _kept(P)
            columns.append(np.flatnonzero(self.groups == g))
            blocks.append(sp.csr_array(vectors))
            values.append(of_group)
        whole = sp.csr_array(sp.block_diag(blocks, format="csr"))
        return whole[np.argsort(np.concatenate(columns))], np.concatenate(values)

    @cached_property
    def root(self) -> sp.csr_array:
        """R, shape (M, M'): block diagonal with P_g = R_g R_g'; coef = R @ plain coef."""
        vectors, values = self._basis
        return sp.csr_array(vectors @ sp.diags_array(np.sqrt(values)))

    @cached_property
    def _factor(self) -> sp.csr_array | Array:
        """R, as the kind of array with which products take less time."""
        return _for_products(self.root)

    @cached_property
    def _inverse(self) -> sp.csr_array | Array:
        """R^+, shape (M', M), in the same way."""
        vectors, values = self._basis
        return _for_products(sp.csr_array((vectors @ sp.diags_array(1.0 / np.sqrt(values))).T))

    @cached_property
    def plain_groups(self) -> NDArray[np.int64]:
        """Group of each column of R, shape (M',)."""
        if self.metric is None:
            return self.groups
        columns = self.root.tocsc()
        first_row = columns.indices[columns.indptr[:-1]]
        return self.groups[first_row]

    def plain_coef(self, coef: Array) -> Array:
        """Return u (M', D) with R u = coef (M, D), or nearest to it; the same of (K, M, D)."""
        return coef if self.metric is None else _times(self._inverse, coef)

    def plain_norms(self, coef: Array) -> Array:
        """||u_g|| of each group, shape (G,), of u (M', D): primal and dual are the same here."""
        norms = row_norms(coef.reshape(-1, coef.shape[-1]))
        return root_sums(norms, self.groups_of_rows(len(norms) // len(self.plain_groups)))

    @cached_property
    def plain(self) -> GroupNorm:
        """The same norm of u, which has no metric."""
        return self if self.metric is None else GroupNorm(self.plain_groups, apart=self.apart)

    def plain_gates(self, gates: Array | sp.csr_array) -> Array | sp.csr_array:
        """Gates Z R, shape (N, M'), of u: those given, without a metric.

        Where all of a sample's gates in a group cancel, what is left is rounding, which must not
        be scaled up. It is cut off, by its size relative to the gates that cancel: those that a
        column of R uses, times that column's largest entry.
        """
        if self.metric is None:
            return gates
        gates = sp.csr_array(gates)
        plain = sp.csr_array(gates @ self.root)
        reach = (self.root != 0) @ sp.diags_array(abs(self.root).max(axis=0).toarray().ravel())
        terms = sp.csr_array(abs(gates) @ reach)  # nonzero wherever `plain` is
        columns = np.arange(len(self.plain_groups))
        shape = (len(columns), self.n_groups)
        membership = sp.csr_array((np.ones(len(columns)), (columns, self.plain_groups)), shape)
        seen = sp.csr_array(abs(plain) > RANK_TOLERANCE * terms) @ membership  # (N, G)
        seen = sp.csr_array((seen > 0) @ membership.T)
        return sp.csr_array(plain.multiply(seen))

    def groups_of_rows(self, n_classes: int) -> NDArray[np.int64]:
        """Group of each row of coefficients (K, M', D), flattened: (K M',)."""
        if n_classes == 1:
            return self.plain_groups
        groups = np.tile(self.plain_groups, n_classes)
        if not self.apart:
            return groups
        return groups + self.n_groups * np.repeat(np.arange(n_classes), len(self.plain_groups))


def _times(R: sp.sparray | Array, A: Array) -> Array:
    """R A of A (M, D), or of each class of (K, M, D)."""
    if A.ndim == 2:
        return np.asarray(R @ A)
    return np.stack([np.asarray(R @ part) for part in A])


def _for_products(R: sp.csr_array) -> sp.csr_array | Array:
    """Return a matrix as the kind of array with which products take less time."""
    return R if R.nnz < FEW * R.shape[0] * R.shape[1] else R.toarray()


def _kept(P: Array) -> tuple[Array, Array]:
    """Positive eigenvalues (r,) of a metric P (m, m), and their eigenvectors (m, r).

    Directions that P leaves apart are not rounded beside each other: each block has its own null
    space.
    """
    n_blocks, block = connected_components(sp.csr_array(P != 0), directed=False)
    found, blocks = [], []
    columns = [np.flatnonzero(block == k) for k in range(n_blocks)]
    for of_block in columns:
        values, vectors = scipy.linalg.eigh(P[np.ix_(of_block, of_block)])
        keep = values > RANK_TOLERANCE * len(of_block) * max(values[-1], 0.0)
        found.append(values[keep])
        blocks.append(vectors[:, keep])
    whole = scipy.linalg.block_diag(*blocks)
    return np.concatenate(found), whole[np.argsort(np.concatenate(columns))]


def _as_metric(metric: Mapping[int, ArrayLike], groups: NDArray[np.int64]) -> dict[int, Array]:
    if not isinstance(metric, Mapping):
        raise ValueError(
            f"metric must map groups to matrices, as in {{0: P}}, got a {type(metric).__name__}"
        )
    checked = {}
    for g, P in metric.items():
        if not isinstance(g, float):  # as groups may be
            check_count(g, "a group that metric names", 0)
        size = int(np.count_nonzero(groups == g))
        if size == 0:
            raise ValueError(f"metric names group {g!r}, but there is no such group")
        matrix = as_finite(P, f"metric of group {g}", 2)
        of_columns = "one row a gate column of the group"
        check_shape(matrix, f"metric of group {g}", (size, size), of_columns)
        scale = np.abs(matrix).max()
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * scale):
            raise ValueError(f"metric of group {g} is not symmetric: pass (P + P') / 2")
        smallest = np.linalg.eigvalsh(matrix)[0]
        if scale == 0 or smallest < -1e-10 * scale * size:
            raise ValueError(
                f"metric of group {g} is not positive semi-definite (or zero): smallest "
                f"eigenvalue {smallest:.3g}"
            )
        values, vectors = _kept(matrix)
        root = vectors * np.sqrt(values)
        checked[int(g)] = root @ root.T
    return checked
