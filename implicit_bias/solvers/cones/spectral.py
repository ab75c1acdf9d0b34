r"""The spectral norm of zeta (r, F), of many classes: the radius t is a variable, W is zeta.

Cone    T = t I - W W' / t >= 0                     (its Schur complement: ||W|| <= t)

KKT     V = R W / t,   tr R (I + W W' / t^2) = 2,   R T = mu I

With Y = W / t, dW = U + Y dt and Nesterov and Todd's S, S T S = R, the linearized products and
slack are

        dR + S dT S = mu T^-1 - R
        dT = (I - Y Y') dt - (U Y' + Y U') + second order

so that the conjugate R W / t changes by

        K U - k_t dt,       k_t = S (I - Y Y') S Y,     K U = R U / t + S (U Y' + Y U') S Y     (K)

and the equation of t by k_tt dt - <k_t, U>, with k_tt = tr (S (I - Y Y') S (I - Y Y')) / 2.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from implicit_bias.solvers.cones.classes import FreeRadiusCone, RightSides
from implicit_bias.solvers.cones.cone import ConePoint, Direction, Iterate
from implicit_bias.solvers.cones.matrices import (
    cholesky,
    cross_terms,
    multiplier_change,
    nesterov_todd,
    relative_eigenvalues,
    sum_free_basis,
    symmetric,
)
from implicit_bias.solvers.scaling import ScaledProblem


class SpectralCone(FreeRadiusCone):
    """The spectral norm of zeta: T = t I - W W' / t and R of order r."""

    # A slack by its tangent is replaced by the true one unless they agree to this fraction.
    straight: ClassVar[float] = 1e-3
    # Steps are shortened, by this factor and so many times, until the true slack is at least this
    # share of that by the tangent.
    shorter: ClassVar[float] = 0.8
    shortenings: ClassVar[int] = 12
    least_slack: ClassVar[float] = 0.1

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled, sum_free_basis(scaled.layout.rows.width))
        self.eye = torch.eye(self.shape[0]).to(self.basis)

    def parts(self, A: Tensor) -> list[Tensor]:
        """All columns: there is one radius."""
        return [A]

    def radius_of_columns(self, t: Tensor) -> float:
        """Return the only radius."""
        return float(t)

    def sum_per_radius(self, values: Tensor) -> Tensor:
        """Sum all entries."""
        return values.sum()[None]

    def split_by_radius(self, values: Tensor) -> Tensor:
        """Return all columns."""
        return values[None]

    # --- first points ----------------------------------------------------------------------------

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Return zeta along V, half way to the boundary, and equal multipliers."""
        largest = self.norm(V)
        W = 0.0 * V
        if largest > 0:
            W = V * (0.5 * total / largest)
        t = total * self.scaled.full(1, 1.0)
        # tr R (I + W W' / t^2) = 2, with a multiple of I.
        R = 2.0 * self.eye / (len(self.eye) + float((W * W).sum() / t**2))
        return ConePoint(W, t, R, t * self.eye - W @ W.T / t)

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """Return zeta along V, half way to the boundary, and R and T of products near mu."""
        return self.inner_point(V, 0.5 * mu * len(V))

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near zeta: R along the root of V V', as V = R W / t of an optimum."""
        t = self.scaled.full(1, self.norm(primal) / self.warm_share)
        T = symmetric(t * self.eye - primal @ primal.T / t)
        squares, turn = torch.linalg.eigh(V @ V.T)
        root = squares.clamp(min=0.0).sqrt()
        root = root / root.sum()
        R = symmetric((turn * root) @ turn.T + mu * torch.linalg.inv(T))
        return ConePoint(primal, t, R, T)

    # --- at an iterate ---------------------------------------------------------------------------

    def moved(self, point: Iterate, step: Iterate, length: float) -> Iterate:
        """Return the point at this length of a step, where T and tr R keep their equations.

        Far from the central path, T by its tangent would let t fall below what W asks for. After
        ``shortenings`` cuts the point is that of the plain step.
        """
        for _ in range(self.shortenings):
            found = point.moved(step, length)
            square = symmetric(found.W @ found.W.T / found.t**2)
            slack = found.t * (self.eye - square)
            share = relative_eigenvalues(found.T, slack)
            if float((share - 1.0).abs().max()) < self.straight:
                return found  # rounding would be all of the change
            if float(share[0]) >= self.least_slack:
                R = 2.0 * found.R / (found.R * (self.eye + square)).sum()
                return replace(found, R=R, T=slack)
            length *= self.shorter
        return point.moved(step, length)

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        self.point = point
        self.Y = point.W / float(point.t)
        self.V_residual = V - point.R @ self.Y
        self.set_margins_and_norms(point.W, V)

    def scale(self) -> None:
        """Compute S, and with it the derivatives by t."""
        R = self.point.R
        self.S = nesterov_todd(R, self.point.T)
        self.SY = self.S @ self.Y
        self.unit_slack = symmetric(self.eye - self.Y @ self.Y.T)  # dT / dt
        self.R_by_t = symmetric(self.S @ self.unit_slack @ self.S)  # -dR / dt
        self.k_t = self.R_by_t @ self.Y
        self.k_tt = 0.5 * (self.R_by_t * self.unit_slack).sum()[None]

    # --- Newton systems --------------------------------------------------------------------------

    def times_K(self, U: Tensor) -> Tensor:
        """K U, equation (K)."""
        return self.point.R @ U / float(self.point.t) + self.S @ cross_terms(U, self.Y) @ self.SY

    def matrix_K(self) -> Tensor:
        """K, for U in C order: (r F, r F)."""
        return self._matrix_K(self.Y)

    def _matrix_K(self, Y: Tensor) -> Tensor:
        """K of U (r, q), for a Y in as many columns: (r q, r q)."""
        r, q = Y.shape
        SY = self.S @ Y
        # S U Y' S Y and S Y U' S Y, entry (i, f) by entry (j, g).
        whole = torch.einsum("ij,fg->ifjg", self.S, Y.T @ SY)
        whole = whole + torch.einsum("ig,jf->ifjg", SY, SY)
        whole = whole.reshape(r * q, r * q)
        # R U / t acts on each column on its own.
        same_column = torch.einsum("ifjf->ijf", whole.view(r, q, r, q))
        same_column.add_((self.point.R / float(self.point.t))[:, :, None])
        return symmetric(whole)

    def row_matrix(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K^-1.

        K differs from R / t only in the row space of Y. So K^-1 is the mask of t R^-1 outside of
        that space, and of rank r^2 within.
        """
        rows = self.scaled.rows
        labels = self.labels
        # An orthonormal basis, (F, q).
        self.row_space = torch.linalg.svd(self.Y, full_matrices=False)[2].T
        self.K_inside = cholesky(self._matrix_K(self.Y @ self.row_space))
        self.K_outside = float(self.point.t) * torch.cholesky_inverse(cholesky(self.point.R))
        inside = rows.X @ self.row_space
        outside_gram = self.gram - inside @ inside.T
        inputs_of_rows = inside[rows.pairs.place]
        features = (labels[:, :, None] * inputs_of_rows[:, None, :]).reshape(len(labels), -1)
        # The mask of t R^-1 outside of the row space, and features K_inside^-1 features' within.
        half = torch.linalg.solve_triangular(self.K_inside, features.T, upper=False)
        A = rows.masked_by_labels([outside_gram], [labels @ self.K_outside], labels)
        A.addmm_(half.T, half)
        # Of t, once U is eliminated; rounding may take it below 0.
        slack = float(self.k_tt) - float((self.k_t * self.solve_K(self.k_t)).sum())
        return A, self.radius_border(), A.new_full((1,), max(slack, 0.0))

    @cached_property
    def gram(self) -> Tensor:
        """Inner products of the samples' inputs, (n, n)."""
        return self.scaled.rows.X @ self.scaled.rows.X.T

    def solve_K(self, values: Tensor) -> Tensor:
        """K^-1 of (r, F), after `row_matrix`."""
        inside = values @ self.row_space
        solved = torch.cholesky_solve(inside.reshape(-1, 1), self.K_inside).reshape(inside.shape)
        return self.K_outside @ (values - inside @ self.row_space.T) + solved @ self.row_space.T

    def right_sides(self, mu: float, predictor: Direction | None, weight: float) -> RightSides:
        """Right-hand sides of a step to mu."""
        R = self.point.R
        T = self.point.T
        t = float(self.point.t)
        slack = t * self.unit_slack - T
        second_of_V = torch.zeros_like(self.Y)
        second_of_t = 0.0
        if predictor is not None:
            U = predictor.U
            slack = slack - weight * (U @ U.T) / t
            second_of_V = weight * (predictor.R @ U - R @ U * (predictor.t / t)) / t
            second_of_t = 0.5 * weight * float((R * (U @ U.T)).sum()) / t**2
        R_change = multiplier_change(mu, R, T, self.S, slack)
        # tr R (I + Y Y') / 2 - 1, with I + Y Y' = 2 I - (I - Y Y').
        radius = 0.5 * float((R * (2.0 * self.eye - self.unit_slack)).sum()) - 1.0
        radius += 0.5 * float((R_change * self.unit_slack).sum()) + second_of_t
        return RightSides(R_change @ self.Y + second_of_V, radius, R_change, slack)

    def back_substitute(self, right: RightSides, U: Tensor, dt: Tensor) -> ConePoint:
        """Return what the cone's variables change by."""
        cross = cross_terms(U, self.Y)
        R = right.R - dt * self.R_by_t + self.S @ cross @ self.S
        T = right.T + dt * self.unit_slack - cross
        return ConePoint(U + self.Y * dt, dt, symmetric(R), symmetric(T))
