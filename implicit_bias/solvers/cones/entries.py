r"""l_p of all entries of zeta (r, F), or its sum over groups; zeta is W, in the classes themselves.

Each entry of zeta has a radius rho_j of its own, |W_j| <= rho_j, and each group a radius
t = ||rho||_p.

Cone    T_0 = rho - W >= 0,   T_1 = rho + W >= 0,   ||rho||_p <= t

KKT     V = R_0 - R_1,   R_i T_i = mu,   u = R_0 + R_1 = (rho / t)^(p - 1),   <u, rho> = t

The norm ||rho||_p is the smallest value over t of

        phi(rho, t) = sum of rho^p t^(1 - p) / p + (1 - 1/p) t.                            (phi)

So u is the derivative of phi by rho, and its derivative by t, (1 - 1/p) (1 - <u, rho> / t), is 0.

rho and u shall lie on the curve u = (rho / t)^(p - 1), which is linearized at

        y = min(rho / t, u^(1 / (p - 1))),      v = min(u, (rho / t)^(p - 1)),

a point of the curve: at the iterate's rho where the curve lies below its u, else at its u. The
minima are finite for every p, and the larger values need not be. With slope = (p - 1) v / (t y) the
tangent is du = slope (drho - y dt) + ...; with q_i = R_i / T_i the products give
dR_i = (mu - R_i T_i) / T_i - q_i dT_i. So

        (slope + q_0 + q_1) drho = slope y dt + (q_0 - q_1) U + ...                        (rho)

and V changes by K U - k_t dt, K diagonal,

        K = ((q_0 + q_1) slope + 4 q_0 q_1) / (slope + q_0 + q_1),
        k_t = (q_0 - q_1) y slope / (slope + q_0 + q_1)                                      (K)

and the equation of t by k_tt dt - <k_t, U>, k_tt = sum of y^2 slope (q_0 + q_1) / (slope + q_0 +
q_1).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from implicit_bias.norms import entries_of
from implicit_bias.solvers.cones.classes import FreeRadiusCone, RightSides, columns_of_groups
from implicit_bias.solvers.cones.cone import ConePoint, Direction, Iterate
from implicit_bias.solvers.scaled_rows import Touching
from implicit_bias.solvers.scaling import ScaledProblem


class EntryCone(FreeRadiusCone):
    """l_p of the entries, or its sum over groups: T = (rho - W, rho + W) and R entry by entry."""

    # l1 and l_inf are taken for l_p with these p: the norms of n entries differ by a factor of
    # n^1e-12 at most.
    nearest_to_1: ClassVar[float] = 1.0 + 1e-12
    nearest_to_inf: ClassVar[float] = 1e12
    # Under l1 the first norm is larger by this factor.
    sparser: ClassVar[float] = 10.0
    # Of the interval of a radius that a warm start looks for.
    halvings: ClassVar[int] = 30

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled, np.eye(scaled.layout.rows.width))
        norm = scaled.layout.problem.norm
        entries = entries_of(norm)
        assert entries is not None
        self.exponent = min(max(entries.exponent, self.nearest_to_1), self.nearest_to_inf)
        self.columns = columns_of_groups(scaled)
        self.group = torch.zeros(self.shape[1], dtype=torch.int64, device=scaled.device)
        for g, columns in enumerate(self.columns):
            self.group[columns] = g

    def parts(self, A: Tensor) -> list[Tensor]:
        """Return the columns of each group."""
        return [A[:, columns] for columns in self.columns]

    def count_products(self, primal: Tensor) -> int:
        """Count both slacks of each entry."""
        return 2 * primal.numel()

    def radius_of_columns(self, t: Tensor) -> Tensor:
        """Return the radius of each column, (F,)."""
        return t[self.group]

    def sum_per_radius(self, values: Tensor) -> Tensor:
        """Sum (r, F) over the entries of each radius."""
        if len(self.columns) == 1:
            return values.sum()[None]
        return values.new_zeros(len(self.columns)).index_add_(0, self.group, values.sum(0))

    def split_by_radius(self, values: Tensor) -> Tensor:
        """Return (r, F) for each radius, 0 in the columns of the others, in a stack."""
        return torch.stack([values * (self.group == g) for g in range(len(self.columns))])

    # --- first points ----------------------------------------------------------------------------

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Return rho and u of equal entries in each group, and zeta along V."""
        n = self.sum_per_radius(torch.ones_like(V))
        p = self.exponent
        # Radii of sparse entries are far from equal ones: more of these are far enough inside.
        t = total * self.sparser ** max(2.0 / p - 1.0, 0.0) / V.numel() * n
        u = self.radius_of_columns(n ** (1.0 / p - 1.0))
        rho = self.radius_of_columns(t * n ** (-1.0 / p))
        # R_0 - R_1 is half of V, or half of u where |V| is beyond it.
        half = 0.5 * (V / u).clamp(-1.0, 1.0)
        both = torch.stack([1.0 + half, 1.0 - half])
        return ConePoint(rho * half, t, 0.5 * u * both, rho * both.flip(0))

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """Return zeta = 0, and R and T of products mu."""
        return self.inner_point(0.0 * V, 2.0 * mu * V.numel())

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near zeta.

        The entries' radii satisfy u = |V| + mu / (rho - W) + mu / (rho + W) on the curve, found by
        halving. Near its corner (rho small at p near 1, u small at a large p) the iterate is to be
        beyond it: a tangent is taken where the curve is below.
        """
        norm: Any = self.part_norm
        norms = self.scaled.tensor(np.array([norm.value(part) for part in self.parts(primal)]))
        t = norms.clamp(min=(1.0 - self.warm_share) * float(norms.max())) / self.warm_share
        radius = self.radius_of_columns(t)
        # At rho = |W| the curve is below the multipliers, which grow without bound there.
        size = primal.abs()
        multiplier = V.abs()
        low = size
        high = (size + 2.0 * mu / (1.0 - multiplier)).clamp(min=radius)
        for _ in range(self.halvings):
            rho = 0.5 * (low + high)
            u = multiplier + mu / (rho - size) + mu / (rho + size)
            below = (rho / radius) ** (self.exponent - 1.0) < u
            low = torch.where(below, rho, low)
            high = torch.where(below, high, rho)
        rho = high
        if self.exponent < 2.0:
            rho = low
        T = torch.stack([rho - primal, rho + primal])
        return ConePoint(primal, t, torch.stack([V, -V]).clamp(min=0.0) + mu / T, T)

    # --- at an iterate ---------------------------------------------------------------------------

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        self.point = point
        self.t = self.radius_of_columns(point.t)
        self.rho = 0.5 * point.T.sum(0)
        self.u = point.R.sum(0)
        self.Y = torch.zeros_like(point.W)
        self.V_residual = V - (point.R[0] - point.R[1])
        self.set_margins_and_norms(point.W, V)

    def scale(self) -> None:
        """Compute K and the derivatives by t, equations (rho) and (K)."""
        p = self.exponent
        q = self.point.R / self.point.T
        self.q_sum = q.sum(0)
        self.q_difference = q[0] - q[1]
        four_q_product = 4.0 * q.prod(0)
        # The tangent's point on the curve, and its slope there.
        self.y = torch.minimum(self.rho / self.t, self.u ** (1.0 / (p - 1.0)))
        self.v = torch.minimum(self.u, (self.rho / self.t) ** (p - 1.0))
        self.slope = (p - 1.0) * self.v / (self.t * self.y)
        self.curvature = self.slope + self.q_sum  # of rho, once R is eliminated
        self.rho_by_t = self.y * self.slope / self.curvature  # drho / dt
        self.K = (self.q_sum * self.slope + four_q_product) / self.curvature
        self.k_t = self.q_difference * self.rho_by_t
        self.k_tt = self.sum_per_radius(self.y * self.rho_by_t * self.q_sum)
        # k_tt - k_t^2 / K: of t, once U is eliminated. No difference: nothing cancels.
        self.slack_of_t = self.sum_per_radius(self.y * self.rho_by_t * four_q_product / self.K)

    # --- Newton systems --------------------------------------------------------------------------

    def times_K(self, U: Tensor) -> Tensor:
        """K U."""
        return self.K * U

    def matrix_K(self) -> Tensor:
        """K, diagonal, for U in C order: (r F,)."""
        return self.K.reshape(-1)

    def solve_K(self, values: Tensor) -> Tensor:
        """K^-1 of (r, F)."""
        return values / self.K

    def row_matrix(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K^-1: a product of weighted inputs for each class."""
        rows = self.scaled.rows
        weights = 1.0 / self.K

        def matrix_of_class(c: int, touching: Touching) -> Tensor:
            at = touching.at
            sign = touching.sign
            X = rows.X[touching.samples] * weights[c].sqrt()
            return (X @ X.T)[at[:, None], at] * (sign[:, None] * sign)

        A = rows.over_classes(matrix_of_class, weights.new_zeros(len(rows), len(rows)))
        return A, self.radius_border(), self.slack_of_t

    def right_sides(self, mu: float, predictor: Direction | None, weight: float) -> RightSides:
        """Right-hand sides of a step to mu."""
        products = mu - self.point.R * self.point.T
        if predictor is not None:
            products = products - weight * predictor.R * predictor.T
        R_change = products / self.point.T
        # What rho is beyond the tangent's point, times the slope.
        beyond = self.slope * (self.rho - self.t * self.y)
        of_rho = R_change.sum(0) + (self.u - self.v) - beyond
        radius = self.sum_per_radius(self.rho_by_t * of_rho + self.y * beyond)
        # The derivative of (phi) by t, at the tangent's point.
        phi_by_t = (1.0 - 1.0 / self.exponent) * (1.0 - self.sum_per_radius(self.y * self.v))
        rho = of_rho / self.curvature
        conjugate = R_change[0] - R_change[1] - self.q_difference * rho
        return RightSides(conjugate, radius - phi_by_t, R_change, torch.stack([rho, rho]))

    def back_substitute(self, right: RightSides, U: Tensor, dt: Tensor) -> ConePoint:
        """Return what the cone's variables change by."""
        rho = self.rho_by_t * self.radius_of_columns(dt) + self.q_difference / self.curvature * U
        T = right.T + torch.stack([rho - U, rho + U])
        return ConePoint(U, dt, right.R - self.point.R / self.point.T * T, T)
