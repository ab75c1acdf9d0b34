r"""Sums over groups of Euclidean or nuclear norms: their central path, with V itself in the cone.

Primal  minimise    sum_g ||zeta_g||_*           subject to  A zeta_k = y_k for all outputs k
Dual    maximise    <alpha, Y>                   subject to  T_g = I - V_g V_g' >= 0,  V = alpha' A

KKT     A (R V)_k = y_k,   zeta_g = R_g V_g                                             (equations)
        R_g T_g = mu I,    mu -> 0                                                           (path)

A Euclidean norm is the nuclear norm of a matrix of one row: R_g, T_g are numbers then, and V_g V_g'
is ||V_g||^2. It is the dual of the margin problem (`solvers.cones.nuclear`) without alpha >= 0:
the Newton matrix is the masked Gram matrix without the diagonal s / alpha.

With U the change of V and S the geometric mean of R and T^-1, S T S = R (Nesterov and Todd), a step
solves

        dR = mu T^-1 - R + S (U V' + V U' + U_p U_p') S                                       (dR)
        A (R U + dR V + dR_p U_p) = Y - A (R V),   U = dalpha' A                         (Newton)

with the predictor's second-order terms U_p and dR_p in the corrector (Mehrotra). In eigenvectors
q_i and eigenvalues s_i of S, and an orthonormal basis E_ij ~ q_i q_j' + q_j q_i' of the symmetric
matrices, S (U V' + V U') S is the sum of 2 s_i s_j <E_ij V, U> E_ij. So the matrix is
that of U -> R U, which has full rank, plus a border of one column A (E_ij V)' per i <= j and group.
Their coefficients z_ij stay unknowns, with the equation z_ij / (2 s_i s_j) = <E_ij V, U>: computed
from U, they would have its rounding times s_i s_j, which grows like 1 / mu.

The first point is the one of least Euclidean norm: with alpha a multiple of Y and R a
multiple of I the equations hold exactly, and V is well inside.

======  ==========  ========================================================================
R, T    (G, r, r)   multipliers and slacks: r = 1 of Euclidean norms, r = K of nuclear ones
V, U    (K, F)      dual vectors and their change
======  ==========  ========================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from implicit_bias.base.validation import Array
from implicit_bias.interpolation.interior_point import (
    NewtonMatrix,
    Path,
    Step,
    longest_inside,
    nesterov_todd,
    step_in_cone,
)
from implicit_bias.interpolation.system import LinearSystem
from implicit_bias.problem.constraints import Integers


class Terms(ABC):
    """The terms of the norm: which entries of (K, F) are in a group, and how R acts on them."""

    n_groups: int
    order: int  # r

    @abstractmethod
    def products(self, V: Array, W: Array) -> Array:
        """V_g W_g', (G, r, r)."""

    @abstractmethod
    def times(self, R: Array, V: Array) -> Array:
        """R_g V_g, (K, F)."""

    @abstractmethod
    def gram(self, A: Array, R: Array) -> list[Array]:
        """Return the matrix of U -> A (R U)', (n, n) for each output, or one of (K n, K n)."""

    @abstractmethod
    def border(self, A: Array, Q: Array, V: Array) -> Array:
        """Return A (E_ij V)' of all i <= j and groups, (K, n, q), for eigenvectors Q (G, r, r)."""


@final
@dataclass(frozen=True, eq=False)
class EuclideanTerms(Terms):
    """Groups of any entries, (K, F), under their Euclidean norms."""

    groups: Integers
    n_groups: int
    order: int = 1

    def products(self, V: Array, W: Array) -> Array:
        """<V_g, W_g>."""
        flat = (V * W).ravel()
        sums = np.bincount(self.groups.ravel(), flat, self.n_groups).astype(np.float64)
        return sums[:, None, None]

    def times(self, R: Array, V: Array) -> Array:
        """R_g V_g."""
        return np.asarray(R[self.groups, 0, 0] * V)

    def gram(self, A: Array, R: Array) -> list[Array]:
        """Return A diag(R) A' of each output; one for all where their groups are the same."""
        outputs = self.groups
        # Groups of inputs or gates are the same for each output: one matrix and one factor do for
        # all.
        if (outputs == outputs[0]).all():
            outputs = outputs[:1]
        return [(A * R[groups, 0, 0]) @ A.T for groups in outputs]

    def border(self, A: Array, Q: Array, V: Array) -> Array:
        """Return A V_g', as the only direction is V_g itself."""
        found = np.zeros((len(V), len(A), self.n_groups))
        for k, groups in enumerate(self.groups):
            # Columns of a group side by side are summed at once.
            order = np.argsort(groups, kind="stable")
            present, starts = np.unique(groups[order], return_index=True)
            found[k][:, present] = np.add.reduceat((A * V[k])[:, order], starts, axis=1)
        return found


@dataclass(frozen=True, eq=False)
class MatrixTerms(Terms):
    """Groups of columns, (F,), under the nuclear norms of their matrices of K rows."""

    groups: Integers
    n_groups: int
    order: int

    @final
    def products(self, V: Array, W: Array) -> Array:
        """V_g W_g'."""
        V = V.reshape(self.order, -1)
        W = W.reshape(self.order, -1)
        found = [V[:, self.groups == g] @ W[:, self.groups == g].T for g in range(self.n_groups)]
        return np.stack(found)

    @final
    def times(self, R: Array, V: Array) -> Array:
        """R_g V_g."""
        whole = V.reshape(self.order, -1)
        found = np.empty_like(whole)
        for g, R_g in enumerate(R):
            found[:, self.groups == g] = R_g @ whole[:, self.groups == g]
        return found.reshape(V.shape)


@final
class NuclearTerms(MatrixTerms):
    """Those of a system whose equations are of one output each, with the same rows for all."""

    def gram(self, A: Array, R: Array) -> list[Array]:
        """Block (k, l) is A diag(R_kl) A'."""
        n = len(A)
        K = self.order
        found = np.empty((K, n, K, n))
        for k in range(K):
            # R is symmetric, and with it the matrix of blocks.
            for m in range(k + 1):
                block = (A * R[self.groups, k, m]) @ A.T
                found[k, :, m] = block
                found[m, :, k] = block
        return [found.reshape(K * n, K * n)]

    def border(self, A: Array, Q: Array, V: Array) -> Array:
        """Return A (E_ij V_g)' of each group."""
        K = self.order
        i, j = np.triu_indices(K)
        # E_ij has norm 1. Where i = j, the sum below has the same term twice.
        scale = np.where(i == j, 0.5, 0.5**0.5)
        found = []
        for g, q in enumerate(Q):
            columns = self.groups == g
            inner = A[:, columns] @ V[:, columns].T @ q  # A_g V_g' q_i, (n, K)
            # (E_ij V)' = scale (V' q_j q_i' + V' q_i q_j').
            both = inner[:, None, j] * q[:, i] + inner[:, None, i] * q[:, j]  # (n, K, q)
            found.append((scale * both).transpose(1, 0, 2))
        return np.concatenate(found, axis=2)


@final
class CoupledNuclearTerms(MatrixTerms):
    """Those of a system of one output, whose rows (n, K F) are of all rows of the matrices."""

    def gram(self, A: Array, R: Array) -> list[Array]:
        """Return the matrix of U -> A (R U)', (n, n)."""
        whole = A.reshape(len(A), self.order, -1)
        scaled = np.einsum("fkl,nlf->nkf", R[self.groups], whole).reshape(A.shape)
        return [scaled @ A.T]

    def border(self, A: Array, Q: Array, V: Array) -> Array:
        """Return <A, E_ij V_g> of each row and group."""
        whole = A.reshape(len(A), self.order, -1)
        V = V.reshape(self.order, -1)
        i, j = np.triu_indices(self.order)
        # E_ij has norm 1. Where i = j, the sum below has the same term twice.
        scale = np.where(i == j, 0.5, 0.5**0.5)
        found = []
        for g, q in enumerate(Q):
            columns = self.groups == g
            # q_i' A V_g' q_j, (n, K, K).
            inner = q.T @ (whole[:, :, columns] @ V[:, columns].T) @ q
            found.append(scale * (inner[:, i, j] + inner[:, j, i]))
        return np.concatenate(found, axis=1)[None]


class GroupPath(Path):
    """The iterate alpha and R; V and T are functions of alpha.

    Parameters
    ----------
    system : LinearSystem
        The equations and the norm.
    terms : Terms
        Its groups.
    first_norm : float
        Dual norm of the first point.
    """

    def __init__(self, system: LinearSystem, terms: Terms, first_norm: float = 0.5) -> None:
        self.system = system
        self.terms = terms
        self.eye = np.eye(terms.order)
        self.n_products = terms.n_groups * terms.order
        alpha = system.Y  # alpha' A is the solution of least Euclidean norm
        scale = first_norm / system.dual(system.dual_vectors(alpha))
        self.alpha = scale * alpha
        # R V = (1 / scale) scale Y' A: the equations hold from the first step on.
        self.R = np.broadcast_to(self.eye / scale, (terms.n_groups, *self.eye.shape))
        self._update()

    def _update(self) -> None:
        self.V = self.system.dual_vectors(self.alpha)
        self.T = self._slack(self.V)

    def _slack(self, V: Array) -> Array:
        """T of V."""
        return self.eye - self.terms.products(V, V)

    def zeta(self) -> Array:
        """R V."""
        return self.terms.times(self.R, self.V)

    def mean_product(self, step: Step | None = None, length: float = 0.0) -> float:
        """Mean of the eigenvalues of R T."""
        R = self.R
        T = self.T
        if step is not None:
            _, dR, U = step
            R = R + length * dR
            # T is quadratic in V, and exact here: a tangent would promise products that the step
            # does not reach.
            T = self._slack(self.V + length * U)
        return float((R * T).sum()) / self.n_products

    def factorise(self) -> None:
        """Factorise the system of the module's head."""
        self.S, self.T_inverse, self.inverse_root = nesterov_todd(self.R, self.T)
        sizes, self.Q = np.linalg.eigh(self.S)
        i, j = np.triu_indices(self.terms.order)
        A = self.system.A
        self.matrix = NewtonMatrix(
            self.terms.gram(A, self.R),
            self.terms.border(A, self.Q, self.V),
            (0.5 / (sizes[:, i] * sizes[:, j])).ravel(),
        )

    def direction(self, mu: float, predictor: Step | None) -> Step:
        """Return dalpha, dR and U."""
        terms = self.terms
        A = self.system.A
        # dR of U = 0: what is left of equation (dR).
        constant = mu * self.T_inverse - self.R
        right = self.system.residual(self.zeta())
        if predictor is not None:
            _, dR, dV = predictor
            constant = constant + self.S @ terms.products(dV, dV) @ self.S
            right = right - A @ terms.times(dR, dV).T
        right = right - A @ terms.times(constant, self.V).T
        alpha, z = self.matrix.solve(
            right, lambda alpha: A @ terms.times(self.R, self.system.dual_vectors(alpha)).T
        )
        U = self.system.dual_vectors(alpha)
        # By z, not by U: see the head.
        return alpha, constant + self._of_directions(z), U

    def _of_directions(self, z: Array) -> Array:
        """Sum of z_ij E_ij, (G, r, r)."""
        i, j = np.triu_indices(self.terms.order)
        inner = np.zeros_like(self.Q)
        # Half of the diagonal, as inner + inner' counts it twice; sqrt(1/2) makes the others of
        # norm 1.
        inner[:, i, j] = np.where(i == j, 0.5, 0.5**0.5) * z.reshape(len(self.Q), -1)
        return self.Q @ (inner + inner.mT) @ self.Q.mT

    def step_to_boundary(self, step: Step) -> float:
        """Return the longest multiple of a step that keeps R and T positive definite."""
        _, dR, U = step
        products = self.terms.products(U, self.V)
        # T^-1/2 T(l) T^-1/2 = I - l cross - l^2 square, whose eigenvalues are well scaled near the
        # boundary.
        cross = self.inverse_root @ (products + products.mT) @ self.inverse_root
        square = self.inverse_root @ self.terms.products(U, U) @ self.inverse_root

        def inside(length: float) -> bool:
            T = self.eye - length * cross - length**2 * square
            return bool(np.linalg.eigvalsh(T).min() > 0)

        # T is concave in V: the lengths that keep it positive are an interval.
        return longest_inside(inside, step_in_cone(self.R, dR))

    def move(self, step: Step, length: float) -> None:
        """Go this length of a step."""
        self.alpha = self.alpha + length * step[0]
        self.R = self.R + length * step[1]
        self._update()
