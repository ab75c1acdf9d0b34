r"""l_p of the entries, or its sum over groups: the central path, with zeta in the cone.

For 1 <= p <= inf. Each entry has a radius w_j, |zeta_j| <= w_j, and each group a radius
t = ||w||_p.

Cone    T_0 = w - zeta >= 0,   T_1 = w + zeta >= 0,   ||w||_p <= t

KKT     V = R_0 - R_1,   R_i T_i = mu,   u = R_0 + R_1 = (w / t)^(p - 1),   <u, w> = t,   A zeta = y

It is the cone of `solvers.cones.entries`, whose head derives what follows. On the tangent of the
curve u = (w / t)^(p - 1), at w = t y and u = v of which one is the iterate's, with
slope = (p - 1) v / (t y) and q_i = R_i / T_i,

        V changes by K dzeta - k_t dt,                          K diagonal,
        K = ((q_0 + q_1) slope + 4 q_0 q_1) / (slope + q_0 + q_1),
        k_t = (q_0 - q_1) y slope / (slope + q_0 + q_1)                                         (K)

and the equation of t by k_tt dt - <k_t, dzeta>. With dzeta eliminated, a step solves

        A K^-1 A' dalpha + A K^-1 k_t dt = Y - A zeta - A K^-1 right_zeta
        (k_tt - <k_t, K^-1 k_t>) dt - (A K^-1 k_t)' dalpha = right_t + <k_t, K^-1 right_zeta>

The first point is zeta of least Euclidean norm, in radii that are equal within each group: with a
multiple of Y as alpha its equations hold, but that V of several groups need not match.

======  ===========  =======================================================================
R, T    (2, K, F)    multipliers and slacks, of zeta <= w and of zeta >= -w
t       (G,)         radii of the groups
======  ===========  =======================================================================
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from implicit_bias.base.validation import Array
from implicit_bias.interpolation.interior_point import NewtonMatrix, Path, Step
from implicit_bias.interpolation.system import LinearSystem
from implicit_bias.problem.constraints import Integers


class EntryPath(Path):
    """The iterate alpha, zeta, t, R and T.

    Parameters
    ----------
    system : LinearSystem
        The equations and the norm.
    p : float
        The exponent.
    groups : ndarray of int, shape (K, F)
        Group of each entry.
    """

    # l1 and l_inf are taken for l_p with these p: up to 1e-12 of log n they are the same.
    nearest_to_1: ClassVar[float] = 1.0 + 1e-12
    nearest_to_inf: ClassVar[float] = 1e12
    # Radii of the first point over the largest entry of zeta.
    first_radius: ClassVar[float] = 2.0

    def __init__(self, system: LinearSystem, p: float, groups: Integers) -> None:
        self.system = system
        self.groups = groups
        self.p = min(max(p, self.nearest_to_1), self.nearest_to_inf)
        counts = np.bincount(groups.ravel()).astype(np.float64)
        self.n_groups = len(counts)
        self.n_products = 2 * groups.size
        alpha = system.Y  # alpha' A is the solution of least Euclidean norm
        zeta = system.dual_vectors(alpha)
        # Twice the largest entry: all of them are well inside.
        w = self.first_radius * float(np.abs(zeta).max())
        # Equal radii w in a group of n have t = n^(1/p) w, and (w / t)^(p - 1) is this.
        u = (counts ** (1.0 / self.p - 1.0))[groups]
        self.point = zeta
        self.t = w * counts ** (1.0 / self.p)
        self.T = np.stack([w - zeta, w + zeta])
        # So that R_0 + R_1 = u and R_0 - R_1 = u zeta / w, of the sign of V.
        self.R = 0.5 * u / w * self.T[::-1]
        self.alpha = alpha * (float(u.mean()) / w)

    def zeta(self) -> Array:
        """Return the coefficients."""
        return self.point

    def mean_product(self, step: Step | None = None, length: float = 0.0) -> float:
        """Mean of R T."""
        R = self.R
        T = self.T
        if step is not None:
            R = R + length * step[3]
            T = T + length * step[4]
        return float((R * T).sum()) / self.n_products

    def _sums(self, values: Array) -> Array:
        """Sum (K, F) over each group."""
        return np.bincount(self.groups.ravel(), values.ravel(), self.n_groups).astype(np.float64)

    def factorise(self) -> None:
        """Compute K and the derivatives by t, and factorise the system of the module's head."""
        p = self.p
        A = self.system.A
        q = self.R / self.T
        self.q_sum = q.sum(0)
        self.q_difference = q[0] - q[1]
        four_q_product = 4.0 * q.prod(0)
        self.w = 0.5 * self.T.sum(0)
        self.u = self.R.sum(0)
        t = self.t[self.groups]
        # The tangent's point: of the two that the iterate gives, w / t and u, the one at which the
        # curve is below both.
        self.y = np.minimum(self.w / t, self.u ** (1.0 / (p - 1.0)))
        self.v = np.minimum(self.u, (self.w / t) ** (p - 1.0))
        self.slope = (p - 1.0) * self.v / (t * self.y)
        self.curvature = self.slope + self.q_sum  # of w, once R is eliminated
        self.w_by_t = self.y * self.slope / self.curvature  # dw / dt
        self.K = (self.q_sum * self.slope + four_q_product) / self.curvature
        self.k_t = self.q_difference * self.w_by_t
        # k_tt - k_t^2 / K without a difference, so that nothing cancels.
        slack_of_t = self._sums(self.y * self.w_by_t * four_q_product / self.K)
        # Near p = 1 and p = inf powers of small numbers leave float64 at the end.
        if not (np.isfinite(self.K).all() and np.isfinite(slack_of_t).all()):
            raise np.linalg.LinAlgError("the scaling leaves float64")
        border = np.zeros((len(self.point), len(A), self.n_groups))
        for k, groups in enumerate(self.groups):
            # Columns of a group side by side are summed at once.
            order = np.argsort(groups, kind="stable")
            present, starts = np.unique(groups[order], return_index=True)
            columns = A * (self.k_t[k] / self.K[k])
            border[k][:, present] = np.add.reduceat(columns[:, order], starts, axis=1)
        self.matrix = NewtonMatrix([(A / K) @ A.T for K in self.K], border, slack_of_t)

    def direction(self, mu: float, predictor: Step | None) -> Step:
        """Return the changes of alpha, zeta, t, R and T."""
        system = self.system
        A = system.A
        products = mu - self.R * self.T
        if predictor is not None:
            products = products - predictor[3] * predictor[4]
        R_change = products / self.T
        # What w is beyond the tangent's point, times the slope.
        beyond = self.slope * (self.w - self.t[self.groups] * self.y)
        of_w = R_change.sum(0) + (self.u - self.v) - beyond
        lacking = 1.0 - self._sums(self.y * self.v)
        right_t = self._sums(self.w_by_t * of_w + self.y * beyond) - (1.0 - 1.0 / self.p) * lacking
        w = of_w / self.curvature
        conjugate = R_change[0] - R_change[1] - self.q_difference * w
        V_lacks = system.dual_vectors(self.alpha) - (self.R[0] - self.R[1])
        right_zeta = V_lacks - conjugate
        # alpha and t, with zeta eliminated; once, and for the residual of the solution.
        alpha, dt = self.matrix.solve(
            system.residual(self.point) - A @ (right_zeta / self.K).T,
            lambda alpha: A @ (system.dual_vectors(alpha) / self.K).T,
            right_t + self._sums(self.k_t * right_zeta / self.K),
        )
        zeta = (right_zeta + system.dual_vectors(alpha) + self.k_t * dt[self.groups]) / self.K
        # Back substitution.
        dw = w + self.w_by_t * dt[self.groups] + self.q_difference / self.curvature * zeta
        T = np.stack([dw - zeta, dw + zeta])
        return alpha, zeta, dt, R_change - self.R / self.T * T, T

    def step_to_boundary(self, step: Step) -> float:
        """Return the longest multiple of a step that keeps t, R and T positive."""
        _, _, t, R, T = step
        # x + l dx stays positive up to l = 1 / max(-dx / x).
        least = min((t / self.t).min(), (R / self.R).min(), (T / self.T).min())
        if not np.isfinite(least):
            raise np.linalg.LinAlgError("the step is not finite")
        return 1.0 / max(1.0, -float(least))

    def move(self, step: Step, length: float) -> None:
        """Go this length of a step."""
        self.alpha = self.alpha + length * step[0]
        self.point = self.point + length * step[1]
        self.t = self.t + length * step[2]
        self.R = self.R + length * step[3]
        self.T = self.T + length * step[4]
