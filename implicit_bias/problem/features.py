r"""Features of samples, products of gates and inputs that are never formed.

        phi(x_n) = z(x_n) (x) x_n  in R^{M D},        f_k(x_n) = <zeta_k, phi(x_n)>

All that a problem needs of them are products with coefficients and with weights of samples, and
inner products, which are entries of a masked Gram matrix (`masked_gram`):

==================  ============================================  ==========
scores(zeta)        f_k(x_n) = sum_m z_m(x_n) <zeta_km, x_n>      (N, K)
adjoint(weights)    V_km = sum_n w_nk z_m(x_n) x_n                (K, M, D)
row_gram(g)         (X X') o (Z_g Z_g')                           (N, N)
matrix()            z_m(x_n) x_nd, where a solver must have it    (N, M D)
==================  ============================================  ==========

=========  ========  =====================================================
X          (N, D)    inputs
gates      (N, M)    z_m(x_n), dense or sparse
groups     (M,)      group of each gate column
=========  ========  =====================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.rounding import row_norms
from implicit_bias.base.validation import Array
from implicit_bias.problem.constraints import Constraints, Integers
from implicit_bias.problem.gating import GateMatrix, dense
from implicit_bias.problem.masked_gram import masked_gram

# Rows handled at once where a product needs a temporary of shape (rows, D) or (rows, M).
BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Features:
    """Inputs and gates of samples; see the module's head.

    Attributes
    ----------
    X : ndarray of shape (N, D)
        Inputs.
    gates : ndarray or CSR array of shape (N, M)
        Gates.
    groups : ndarray of int, shape (M,)
        Group of each gate column.
    """

    X: Array
    gates: GateMatrix
    groups: Integers

    def __len__(self) -> int:
        """N."""
        return len(self.X)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, D), that of the coefficients of a class."""
        return len(self.groups), self.X.shape[1]

    @cached_property
    def n_used(self) -> int:
        """Number of features of a sample, without those of gates that are off at all samples."""
        return len(np.unique(self.sparse_gates.indices)) * self.X.shape[1]

    @cached_property
    def n_varying_inputs(self) -> int:
        """Number of inputs that vary, and 1 more if any of the constant ones is not 0."""
        varying = (self.X != self.X[0]).any(axis=0)
        return int(varying.sum()) + bool(self.X[0][~varying].any())

    @cached_property
    def sparse_gates(self) -> sp.csr_array:
        """The gates (N, M), sparse."""
        if isinstance(self.gates, np.ndarray):
            return sp.csr_array(self.gates)
        return self.gates

    @cached_property
    def fast_gates(self) -> GateMatrix:
        """The gates (N, M), dense where that makes products with them faster."""
        return for_products(self.gates)

    def scores(self, coef: Array) -> Array:
        """f_k(x_n), shape (N, K), of coefficients (K, M, D)."""
        return scores(self.X, self.fast_gates, coef)

    def adjoint(self, weights: Array) -> Array:
        """Sum of w_nk z(x_n) (x) x_n, shape (K, M, D), of weights (N, K).

        Samples without features are left out: all that they add is rounding or overflow.
        """
        if self.zero.any():
            weights = np.where(self.zero[:, None], 0.0, weights)
        if self.gates.shape[1] == 1:  # one product of matrices for all classes
            weighted = weights.any(axis=1)
            used: slice | Integers = slice(None)  # no copy of X where all samples have weight
            if not weighted.all():
                used = np.flatnonzero(weighted)
            gated = dense(self.fast_gates[used]) * weights[used]
            return np.asarray(gated.T @ self.X[used])[:, None]
        return np.stack([_adjoint(self.X, self.fast_gates, of_class) for of_class in weights.T])

    def row_gram(self, group: int) -> Array:
        """Inner products of the samples' features in a group, (X X') o (Z_g Z_g'), (N, N)."""
        return masked_gram(
            self.X, self.sparse_gates[:, np.flatnonzero(self.groups == group)].toarray()
        )

    def matrix(self, columns: NDArray[np.bool_] | None = None) -> sp.csr_array:
        """Return the features themselves, (N, M D), of all gate columns m or of some.

        The features of a gate column are D consecutive columns.
        """
        gates = self.sparse_gates
        if columns is not None:
            gates = gates[:, np.flatnonzero(columns)]
        D = self.X.shape[1]
        # Each entry z_nm of the CSR array becomes the D entries z_nm x_nd, in columns from m D on.
        row = np.repeat(np.arange(len(self)), np.diff(gates.indptr))
        column = (gates.indices.astype(np.int64)[:, None] * D + np.arange(D)).ravel()
        data = (gates.data[:, None] * self.X[row]).ravel()
        starts = gates.indptr.astype(np.int64) * D
        found = sp.csr_array((data, column, starts), shape=(len(self), gates.shape[1] * D))
        found.eliminate_zeros()
        return found

    @cached_property
    def input_norms(self) -> Array:
        """Norm of each sample's inputs, (N,)."""
        return row_norms(self.X)

    @cached_property
    def norms(self) -> Array:
        """Norm of each sample's features, sqrt(sum_g Q_g[n, n]), shape (N,)."""
        # ||z (x) x|| = ||z|| ||x||.
        with np.errstate(over="ignore", invalid="ignore"):  # which `MarginProblem` refuses
            gate_squares = self.sparse_gates.power(2).sum(axis=1)
            return np.sqrt(gate_squares * np.einsum("nd,nd->n", self.X, self.X))

    @cached_property
    def zero(self) -> NDArray[np.bool_]:
        """Samples whose features are all 0 (gates off, or an input of zeros), shape (N,)."""
        no_gate = np.abs(self.sparse_gates).max(axis=1).toarray().reshape(-1) == 0
        zero: NDArray[np.bool_] = no_gate | (np.abs(self.X).max(axis=1) == 0)
        return zero

    def subset(self, samples: Integers) -> Features:
        """Return those of some samples."""
        return Features(self.X[samples], self.fast_gates[samples], self.groups)

    def of_rows(self, rows: Constraints) -> Features:
        """Return the features of constraints, b_p (x) phi(x_n(p)).

        Each class has separate gate columns, K' M in all. With coefficients (K' M, D), one class
        after the other, the scores of these features are the margins of the constraints. A group
        has the columns of all classes.
        """
        gates = rows.of_each_class(self.sparse_gates[rows.samples])
        return Features(self.X[rows.samples], gates, np.tile(self.groups, rows.width))


def scores(X: Array, gates: GateMatrix, coef: Array) -> Array:
    """Scores f_k(x_n), shape (n, K), of coefficients (K, M, D)."""
    if gates.shape[1] == 1:  # one product of matrices for all classes
        return np.asarray(dense(gates) * (X @ coef[:, 0].T))
    return np.stack([_scores_of_class(X, gates, part) for part in coef], axis=1)


def decision(X: Array, gates: GateMatrix, coef: Array) -> Array:
    """f(x_n), shape (n,) of coefficients (M, D), or f_k(x_n), shape (n, K) of (K, M, D)."""
    found = scores(X, gates, coef.reshape(-1, *coef.shape[-2:]))
    return found.reshape(len(X), *coef.shape[:-2])


def _scores_of_class(X: Array, gates: GateMatrix, coef: Array) -> Array:
    """Scores f(x_n) = sum_m z_m(x_n) <coef_m, x_n>, shape (n,), of coefficients (M, D)."""
    values = np.empty(len(X))
    sparse_first = sparse_is_faster(gates)
    for start in range(0, len(X), BLOCK):
        rows = slice(start, start + BLOCK)
        Z = gates
        if len(X) > BLOCK:  # in one block no gates are copied, which takes longer than the product
            Z = gates[rows]
        # The sum over gates and inputs, over gates first or over inputs first.
        if sparse_first:
            values[rows] = np.einsum("nd,nd->n", Z @ coef, X[rows])
        else:
            values[rows] = np.einsum("nm,nm->n", dense(Z), X[rows] @ coef.T)
    return values


def _adjoint(X: Array, gates: GateMatrix, weights: Array) -> Array:
    """Sum of weights_n z(x_n) (x) x_n, shape (M, D), of weights (N,)."""
    if sparse_is_faster(gates):
        return np.asarray(gates.T @ (X * weights[:, None]))
    V = np.zeros((gates.shape[1], X.shape[1]))
    used = np.flatnonzero(weights)  # support vectors: often few
    for start in range(0, len(used), BLOCK):
        rows = used[start : start + BLOCK]
        V += dense(gates[rows]).T @ (X[rows] * weights[rows, None])
    return V


def sparse_is_faster(gates: GateMatrix) -> bool:
    """Whether a sparse product with the gates takes less time than a dense one.

    It does if the gates are stored sparse, and less than a twentieth of them are not 0 (measured).
    """
    size = gates.shape[0] * gates.shape[1]
    return not isinstance(gates, np.ndarray) and bool(gates.nnz < 0.05 * size)


def for_products(gates: GateMatrix, small: int = 2**20) -> GateMatrix:
    """Return the gates, as a dense array if products with them are faster in that form.

    That is so up to ``small`` entries (8 MiB), unless hardly any of them differ from 0.
    """
    if gates.shape[0] * gates.shape[1] > small or sparse_is_faster(gates):
        return gates
    found = dense(gates)
    found.setflags(write=False)
    return found
