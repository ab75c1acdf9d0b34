r"""Sums of Euclidean norms over groups: zeta_g = R_g V_g, the multipliers R are the group scales d.

Cone    T_g = 1/2 - ||V_g||^2 / 2 >= 0

KKT     zeta_g = R_g V_g,   R_g T_g = mu

In the space of the rows W is V itself, a function of alpha (`GroupCone`), and dR_g is an unknown of
the system (`newton`, equation (groups)). In the space of the features W is a variable of its own
(`FeatureGroupCone`), and W = V holds at the solution only. All groups together have zeta = A W with
a diagonal A. Its entry is d_g in a column of gates of one group, and the sum of p_g d_g in the
column that groups share, of which the part p_g is in group g. Let column g of H, (n, G), have the
entries of W in group g, times their part p_g. Then a change U of W and a change dd of the scales
change zeta by A U + H dd, and

        (T / d) dd - H' U = mu / d - T - (1/2 - T - ||W_g||^2 / 2)                           (d)

dd stays an unknown of the Newton system: eliminated, the rounding of U would enter it times d / T,
which grows like 1 / mu.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Constraints
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.cones.cone import (
    Cone,
    ConeMatrix,
    ConePoint,
    Coordinates,
    Direction,
    FeatureCone,
    Iterate,
)
from implicit_bias.solvers.cones.matrices import sum_free_basis
from implicit_bias.solvers.scaled_rows import TINY, ScaledRows
from implicit_bias.solvers.scaling import Layout, ScaledProblem


class GroupCone(Cone):
    """A sum of Euclidean norms over groups, in the space of the rows: W is V itself.

    Attributes
    ----------
    products : Tensor of shape (P, G)
        <V_g, features of the row in group g>: margins are their sum, weighted by R.
    slack_residual : Tensor of shape (G,)
        What T lacks to be 1/2 - ||V_g||^2 / 2.
    """

    has_W = False

    def __init__(self, scaled: ScaledProblem) -> None:
        self.scaled = scaled
        self.empty = scaled.full(0, 0.0)

    @staticmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return that of the groups."""
        return Layout.of_groups(problem, rows)

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V of all groups, (K', M' + 1, D')."""
        return self.scaled.rows.dual_vectors(alpha)

    def norm(self, primal: Tensor) -> float:
        """Omega at the optimum, where ||V_g|| is 1 or R_g is 0."""
        return float(primal.sum())

    def dual_norm(self, V: Tensor) -> float:
        """Largest ||V_g||."""
        return float(self.inner(V, V).max().sqrt())

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group, (G,)."""
        return self.scaled.rows.inner(V, W)

    def count_products(self, primal: Tensor) -> int:
        """G."""
        return len(primal)

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Equal group scales."""
        n_groups = self.scaled.n_groups
        R = self.scaled.full(n_groups, total / n_groups)
        slack = 0.5 * (1.0 - self.inner(V, V))
        return ConePoint(self.empty, self.empty, R, slack)

    def primal_of(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """d, and margins of d_g V_g for the V of a start, its largest ||V_g|| 1."""
        d = self.scaled.scale * self.scaled.tensor(start.group_norms)
        return d, self.scaled.rows.group_products(V) @ (d / self.dual_norm(V))

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near group scales d."""
        # R T >= mu in each group, and R = d where d is larger than mu / T.
        slack = 0.5 * (1.0 - self.inner(V, V))
        return ConePoint(self.empty, self.empty, torch.maximum(primal, mu / slack), slack)

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        rows = self.scaled.rows
        self.point = point
        self.V = V
        self.products = rows.group_products(V)
        # V is W here: the slack of (1 - ||V_g||^2) / 2 is smooth at V_g = 0, where ||V_g|| has a
        # kink.
        squares = rows.inner(V, V)  # (G,)
        norms = squares.sqrt()
        self.margins = self.products @ point.R
        self.norm_of_zeta = float(torch.dot(point.R, norms))
        self.norm_of_V = float(norms.max())
        self.slack_residual = 0.5 - point.T - 0.5 * squares

    def primal(self) -> tuple[Tensor, Tensor]:
        """V and d."""
        return self.V, self.point.R


class FeatureGroupCone(GroupCone, FeatureCone):
    """The same groups in the space of the features, which are formed explicitly.

    W is (r, M', D'), or (r, M' + 1, D') where groups share a column of gates. Of the classes
    r = K - 1 coordinates where all of them have the same groups, or else the classes themselves.
    """

    has_W = True

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled)
        rows = scaled.rows
        groups = rows.gate_groups
        n_classes = len(groups.norm_groups)
        # V sums to 0 over the classes: where their groups agree, one coordinate less will do.
        basis = np.eye(n_classes)
        if n_classes > 1 and (groups.norm_groups == groups.norm_groups[0]).all():
            basis = sum_free_basis(n_classes)
        self.members = groups.members[: basis.shape[1]]  # (r, M' + 1, G)
        self.n_gates = rows.Z.shape[1]
        if not groups.share.any():  # no group has a part in the shared column
            self.n_gates -= 1
            self.members = self.members[:, :-1]
        self.shape = basis.shape[1], self.n_gates, rows.X.shape[1]
        features = rows.Z[:, : self.n_gates, None] * rows.X[:, None, :]
        constant = rows.Z.new_ones(len(rows.Z), 1)
        explicit = ScaledRows(features.flatten(1), constant, groups, rows.pairs)
        self.coordinates = Coordinates(explicit, scaled.tensor(basis))

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V in coordinates, (r, M', D')."""
        return self.coordinates.adjoint(alpha).reshape(self.shape)

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group, (G,)."""
        return torch.einsum("rm,rmg->g", (V * W).sum(2), self.members)

    def scale_of_gates(self, d: Tensor) -> Tensor:
        """Return A for group scales d: the weight of each gate, (r, M', 1)."""
        return (self.members @ d)[..., None]

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Equal group scales."""
        return replace(super().inner_point(V, total), W=V)

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """V, its norm at most 1/2, and what equal products make of the group scales."""
        # The residual V - W vanishes with the first long steps.
        W = V * min(1.0, 0.5 / max(self.dual_norm(V), TINY))
        T = 0.5 * (1.0 - self.inner(W, W))
        return ConePoint(W, self.empty, mu / T, T)

    def primal_of(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """d, and margins of d_g V_g for the V of a start, its largest ||V_g|| 1."""
        d = self.scaled.scale * self.scaled.tensor(start.group_norms)
        zeta = self.scale_of_gates(d) * V
        return d, self.coordinates.apply(zeta.reshape(-1)) / self.dual_norm(V)

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near group scales d."""
        return replace(super().warm_point(V, primal, mu), W=V)

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        W = point.W
        self.point = point
        # The derivatives of zeta = A(d) W: H by d and A by W.
        self.H = (W[..., None] * self.members[:, :, None]).flatten(0, 2)  # (n, G)
        self.A = self.scale_of_gates(point.R).expand_as(V)
        squares = self.H.T @ W.reshape(-1)  # ||W_g||^2, (G,)
        self.margins = self.coordinates.apply((self.A * W).reshape(-1))
        self.norm_of_zeta = float(point.R @ squares.sqrt())
        self.norm_of_V = self.dual_norm(V)
        self.slack_residual = 0.5 - point.T - 0.5 * squares
        self.V_residual = V - W

    def primal(self) -> tuple[Tensor, Tensor]:
        """V of the classes and of all rotated gates, (K', M' + 1, D'), and d."""
        V = torch.tensordot(self.coordinates.basis, self.point.W, 1)
        n_left_out = self.scaled.rows.Z.shape[1] - self.n_gates
        return torch.nn.functional.pad(V, (0, 0, 0, n_left_out)), self.point.R

    def feature_matrix(self) -> tuple[ConeMatrix, Tensor]:
        """Return the diagonal matrix of A U and dd, equation (d), and H as directions of zeta."""
        return ConeMatrix(1.0 / self.A.reshape(-1), self.point.T / self.point.R), self.H.T

    def feature_right_sides(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, Tensor]:
        """Right-hand sides of a step to mu; and what R T must change by."""
        d = self.point.R
        products = mu - d * self.point.T
        slack = self.slack_residual
        second = torch.zeros_like(self.point.W)  # of zeta = A W
        if predictor is not None:
            dW = predictor.U
            products = products - weight * predictor.R * predictor.T
            slack = slack - 0.5 * weight * self.inner(dW, dW)
            second = weight * self.scale_of_gates(predictor.R) * dW
        # dzeta = A U + H dd + second, with A U the unknown: second counts as a change of A U.
        of_zeta = (self.V_residual + second / self.A).reshape(-1)
        # Equation (d) with U = dV + V_residual: the system's unknown is dV alone.
        of_d = products / d - slack + self.H.T @ self.V_residual.reshape(-1)
        return torch.cat([of_zeta, of_d]), products

    def feature_back_substitute(
        self, saved: Any, alpha: Tensor, x: Tensor
    ) -> tuple[ConePoint, Tensor]:
        """Return the change of W, of the group scales and of T."""
        U = self.dual_vectors(alpha) + self.V_residual  # W + U = V + dV
        d = x[self.point.W.numel() :]
        # d dT + T dd = what the products must change by.
        T = (saved - self.point.T * d) / self.point.R
        return ConePoint(U, self.empty, d, T), U
