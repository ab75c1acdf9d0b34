r"""The nuclear norm of zeta (r, F), of many classes, or of each group of gates: W is V itself.

Cone    T = I - W W' >= 0                           (||V|| <= 1, the dual norm)

KKT     zeta = R W,   R T = mu I

With U = dW, Nesterov and Todd's S, S T S = R, and dT = -(U W' + W U') + second order, zeta
changes by

        K U + ...,          K U = R U + S (U W' + W U') S W                                  (K)

With S = sum of size_i q_i q_i' and an orthonormal basis E_ij of the symmetric matrices,
E_ij ~ q_i q_j' + q_j q_i', this is R U + sum of z_ij E_ij W, z_ij entries of dR, and

        z_ij / (2 size_i size_j) - <E_ij W, U> = <mu R^-1 - T - slack, E_ij> / 2             (z)

z stay unknowns of the Newton system in the features: eliminated, the rounding of U would enter
them times size_i size_j, which grows like 1 / mu. In the rows they are a border, the inner products
<E_ij W, features of row p>. With q_i q_j' + q_j q_i' for E_ij these are
(b q_i) (v q_j) + (b q_j) (v q_i), b the row's label vector and v the inner products of its inputs
with W.

A sum of nuclear norms over G groups of gates has a cone for each group. Their W are put below each
other, (G r, F), each with 0 in the columns of the others: then W W', R, T and S are block
diagonal, (G r, G r), and all equations hold as they stand.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from implicit_bias.solvers.cones.classes import ClassCone, RightSides, columns_of_groups
from implicit_bias.solvers.cones.cone import ConeMatrix, ConePoint, Direction, Iterate
from implicit_bias.solvers.cones.matrices import (
    cholesky,
    cross_terms,
    multiplier_change,
    nesterov_todd,
    sum_free_basis,
    symmetric,
)
from implicit_bias.solvers.scaled_rows import TINY
from implicit_bias.solvers.scaling import ScaledProblem


class SymmetricBasis(NamedTuple):
    """The orthonormal E_ij = factor (q_i q_j' + q_j q_i'), i <= j, of one group's block of S."""

    q: Tensor  # eigenvectors of the block, (r, r)
    i: Tensor  # all pairs i <= j, (r (r + 1) / 2,)
    j: Tensor
    factor: Tensor  # (r (r + 1) / 2,)
    sizes: Tensor  # size_i size_j, (r (r + 1) / 2,)


class NuclearCone(ClassCone):
    """The nuclear norm of zeta, or of each group of gates: T = I - W W', and W is V."""

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled, sum_free_basis(scaled.layout.rows.width))
        r, n_features = self.shape
        self.columns = columns_of_groups(scaled)  # of each group
        # Rows of each group in W, R, T and S.
        self.blocks = [slice(start, start + r) for start in range(0, len(self.columns) * r, r)]
        self.stacked_shape = (len(self.columns) * r, n_features)
        self.eye = torch.eye(self.stacked_shape[0]).to(self.basis)
        self.no_t = scaled.full(0, 0.0)

    def stacked(self, V: Tensor) -> Tensor:
        """Put the groups' parts of (r, F) below each other.

        The singular values of all groups are those of the stacked matrix.
        """
        if len(self.columns) == 1:
            return V
        found = V.new_zeros(self.stacked_shape)
        for block, columns in zip(self.blocks, self.columns, strict=True):
            found[block, columns] = V[:, columns]
        return found

    def unstacked(self, W: Tensor) -> Tensor:
        """Return (r, F) of what has the shape of W."""
        return W.reshape(len(self.columns), *self.shape).sum(0)

    def parts(self, A: Tensor) -> list[Tensor]:
        """Return the columns of each group."""
        whole = self.unstacked(A)
        return [whole[:, columns] for columns in self.columns]

    # --- first points ----------------------------------------------------------------------------

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Return V and equal multipliers."""
        return ConePoint(V, self.no_t, total / len(self.eye) * self.eye, self.eye - V @ V.T)

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """V, its norm at most 1/2, and R and T of products mu."""
        # The residual V - W vanishes with the first long steps.
        W = V * min(1.0, 0.5 / max(self.dual_norm(V), TINY))
        T = self.eye - W @ W.T
        return ConePoint(W, self.no_t, symmetric(mu * torch.linalg.inv(T)), T)

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near zeta: R along the root of zeta zeta', as zeta = R V at an optimum."""
        T = symmetric(self.eye - V @ V.T)
        squares, turn = torch.linalg.eigh(primal @ primal.T)
        root = squares.clamp(min=0.0).sqrt()
        R = symmetric((turn * root) @ turn.T + mu * torch.linalg.inv(T))
        return ConePoint(V, self.no_t, R, T)

    # --- at an iterate ---------------------------------------------------------------------------

    def zeta(self) -> Tensor:
        """R W."""
        return self.conjugate

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        self.point = point
        self.conjugate = point.R @ point.W
        self.V_residual = V - point.W
        self.set_margins_and_norms(self.conjugate, V)

    def scale(self) -> None:
        """Compute S, and the slack that W has."""
        W = self.point.W
        self.S = nesterov_todd(self.point.R, self.point.T)
        self.SW = self.S @ W
        self.slack_of_W = symmetric(self.eye - W @ W.T)  # what T is to be

    def _second_order(self, predictor: Direction | None, weight: float) -> tuple[Tensor, Tensor]:
        """Return what T lacks to be I - W W', and the second-order term of zeta = R W."""
        slack = self.slack_of_W - self.point.T
        if predictor is None:
            return slack, torch.zeros_like(self.point.W)
        U = predictor.U
        return slack - weight * (U @ U.T), weight * (predictor.R @ U)

    def basis_of(self, block: slice) -> SymmetricBasis:
        """Return the symmetric matrices in the eigenvectors of one group's block of S."""
        size, q = torch.linalg.eigh(self.S[block, block])
        i, j = torch.triu_indices(len(size), len(size)).to(size.device)
        factor = torch.full_like(size[i], 0.5**0.5)
        factor[i == j] = 0.5
        return SymmetricBasis(q, i, j, factor, size[i] * size[j])

    # --- the Newton system in the rows -----------------------------------------------------------

    def times_K(self, U: Tensor) -> Tensor:
        """K U, equation (K)."""
        return self.point.R @ U + self.S @ cross_terms(U, self.point.W) @ self.SW

    def row_matrix(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K: the mask of R, and the borders of all groups."""
        rows = self.scaled.rows
        labels = self.labels
        borders = []
        slacks = []
        masks = []
        for block in self.blocks:
            q, i, j, factor, sizes = self.basis_of(block)
            # <E_ij W, features>, and what multiplies z_ij in equation (z).
            b = labels @ q
            v = rows.products(self.point.W[block]) @ q
            borders.append((b[:, i] * v[:, j] + b[:, j] * v[:, i]) * factor)
            slacks.append(0.5 / sizes)
            masks.append(labels @ self.point.R[block, block])
        A = rows.masked_by_labels(self.grams, masks, labels)
        return A, torch.hstack(borders), torch.cat(slacks)

    @cached_property
    def grams(self) -> list[Tensor]:
        """Inner products of the samples' inputs in each group, (n, n)."""
        parts = [self.scaled.rows.X[:, columns] for columns in self.columns]
        return [part @ part.T for part in parts]

    def right_sides(self, mu: float, predictor: Direction | None, weight: float) -> RightSides:
        """Right-hand sides of a step to mu."""
        slack, second = self._second_order(predictor, weight)
        R_change = multiplier_change(mu, self.point.R, self.point.T, self.S, slack)
        return RightSides(R_change @ self.point.W + second, 0.0, R_change, slack)

    def back_substitute(self, right: RightSides, U: Tensor) -> ConePoint:
        """Return what the cone's variables change by, in the rows."""
        cross = cross_terms(U, self.point.W)
        R = symmetric(right.R + self.S @ cross @ self.S)
        return ConePoint(U, self.no_t, R, symmetric(right.T - cross))

    # --- the Newton system in the features -------------------------------------------------------

    def feature_matrix(self) -> tuple[ConeMatrix, Tensor]:
        """Return the matrix of R U and z, equation (z), and the directions E_ij W."""
        bases = []
        all_sizes = []
        for block in self.blocks:
            q, i, j, factor, sizes = self.basis_of(block)
            outer = torch.einsum("ai,bi->iab", q[:, i], q[:, j])
            basis = q.new_zeros(len(i), len(self.eye), len(self.eye))
            basis[:, block, block] = (outer + outer.mT) * factor[:, None, None]
            bases.append(basis)
            all_sizes.append(sizes)
        # G r (r + 1) / 2 matrices E_ij of order G r, and size_i size_j of each.
        self.E = torch.cat(bases)
        self.sizes = torch.cat(all_sizes)
        self.R_inverse = torch.cholesky_inverse(cholesky(self.point.R))
        r, n_features = self.shape
        of_U = self.R_inverse.new_zeros(r, n_features, r, n_features)
        for block, columns in zip(self.blocks, self.columns, strict=True):
            of_U[:, columns, :, columns] = self.R_inverse[block, block]
        matrix = ConeMatrix(of_U.reshape(r * n_features, r * n_features), 0.5 / self.sizes)
        directions = [self.unstacked(direction).reshape(-1) for direction in self.E @ self.point.W]
        return matrix, torch.stack(directions)

    def feature_right_sides(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, Tensor]:
        """Right-hand sides of a step to mu; and what T lacks to be mu R^-1."""
        slack, second = self._second_order(predictor, weight)
        lacking = mu * self.R_inverse - self.point.T
        # Equation (z), with U = dV + V_residual: the system's unknown is dV alone.
        of_z = 0.5 * torch.einsum("qab,ab->q", self.E, lacking - slack)
        of_z = of_z + torch.einsum("qab,ab->q", self.E, self.V_residual @ self.point.W.T)
        of_U = self.unstacked(self.V_residual + self.R_inverse @ second).reshape(-1)
        return torch.cat([of_U, of_z]), lacking

    def feature_back_substitute(
        self, saved: Any, alpha: Tensor, x: Tensor
    ) -> tuple[ConePoint, Tensor]:
        """Return the change of W, R and T."""
        # dR = sum of z_ij E_ij, and S^-1 dR S^-1 has the entries z_ij / (size_i size_j).
        z = x[len(x) - len(self.sizes) :]
        U = self.dual_vectors(alpha) + self.V_residual
        R = torch.einsum("q,qab->ab", z, self.E)
        T = saved - torch.einsum("q,qab->ab", z / self.sizes, self.E)
        return ConePoint(U, self.no_t, symmetric(R), symmetric(T)), U
