r"""The Newton systems of the interior point: in the space of the rows, or of the features.

Linearized at an iterate, a cone (`cones`) maps U, the change of its matrix W, to K U, the change of
W's conjugate. Once s, xi and w are eliminated, the rows map dalpha to D dalpha, a change of their
margins: D is diag(s / alpha) plus, with a soft margin, a block xi / w for each box. A step solves

        D dalpha + Phi (K U + ...) + e dbeta = ...,   U = Phi' dalpha + ...           (W = V)
        D dalpha + Phi (U + Y dt) + e dbeta = ...,    K U - k_t dt = Phi' dalpha + ...  (W = zeta)

by eliminating U or dalpha, whichever `costs` estimates to be faster. What is left has the matrix

        space      W = V                   W = zeta
        rows       D + Phi K Phi'          D + Phi K^-1 Phi'
        features   K^-1 + Phi' D^-1 Phi    K + Phi' D^-1 Phi

nuclear    K is R (x) I and a matrix of rank r (r + 1) / 2, which grows like 1 / mu. Added up, the
           two would lose digits: in both spaces the second one is a border of the system. In the
           rows Phi (R (x) I) Phi' is the mask (b R b') o (x x')
spectral   K^-1 is t R^-1 (x) I but for a matrix of rank r^2. In the rows that one is added to the
           mask of t R^-1; dt is a border in both spaces
entries    K is diagonal; dt is a border in both spaces

The system of Euclidean groups in the rows is

        [ A   Pi      e ] [dalpha]   [right]        A = Q(R) + diag(s / alpha) + blocks xi / w
        [ Pi' -T / R  0 ] [dR    ] = [c]                                                  (groups)
        [ e'  0       0 ] [dbeta ]   [-e' alpha]

with Pi (P, G) the inner products <V_g, features of the row in g>. It is solved by one Cholesky
factorization of A and one of its Schur complement. (Adding Pi diag(R / T) Pi' to A instead costs as
much and loses eight digits: R / T grows like 1 / mu.)

Mehrotra's predictor sets the centring; its second-order terms enter the corrector, which uses the
same factors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from implicit_bias.solvers.cones import (
    ClassCone,
    Cone,
    ConePoint,
    Direction,
    FeatureCone,
    FreeRadiusCone,
    GroupCone,
    Iterate,
    NuclearCone,
    cholesky,
    factor,
)
from implicit_bias.solvers.iteration import Breakdown
from implicit_bias.solvers.scaled_rows import ScaledRows
from implicit_bias.solvers.scaling import Boxes

AnyCone = TypeVar("AnyCone", bound=Cone)
AnyClassCone = TypeVar("AnyClassCone", bound=ClassCone)
# dalpha, dbeta, and the changes of the cone's variables, with U.
Changes: TypeAlias = tuple[Tensor, Tensor, ConePoint, Tensor]


class Drift(NamedTuple):
    """What the rows outside of the system change on their own: a change of V, and of e' alpha."""

    V: Tensor
    imbalance: Tensor


@dataclass(eq=False, kw_only=True)
class Newton(ABC, Generic[AnyCone]):
    """The factorized Newton system at one iterate.

    P counts the rows in the system; those outside of it are idle (`interior_point`).

    Attributes
    ----------
    cone : Cone
        The cone, scaled at the iterate.
    point : Iterate
        The iterate, of the rows in the system.
    rows : ScaledRows
        These rows.
    free : Tensor of int, shape (P,), or None
        Which of all rows they are; None for all.
    boxes : Boxes
        Of these rows.
    e : Tensor of shape (P, J)
        The equation of the intercept.
    residual : Tensor of shape (P,)
        Residual of the equation (margins): s - xi less what the margins exceed b by.
    imbalance : Tensor of shape (J,)
        e' alpha of all rows.
    drifts : tuple of two Drift, or None
        Of a step to mu = 0, and what each unit of mu adds. None where no row is idle.
    coarse : bool
        Whether products of matrices may be summed in float32, in the features: the refinement of
        the solution makes up for it while the gap is coarse. It becomes false where the refinement
        does not, and the matrix is made anew in float64.
    """

    cone: AnyCone
    point: Iterate
    rows: ScaledRows
    free: Tensor | None
    boxes: Boxes
    e: Tensor
    residual: Tensor
    imbalance: Tensor
    drifts: tuple[Drift, Drift] | None
    coarse: bool

    # A system is solved at most so often: once, and then again for what is left of the residual.
    refinements: ClassVar[int] = 3

    def __post_init__(self) -> None:
        self.factorise()

    @abstractmethod
    def factorise(self) -> None:
        """Factorize the system."""

    @abstractmethod
    def changes(
        self,
        right: Tensor,
        imbalance: Tensor,
        mu: float,
        predictor: Direction | None,
        weight: float,
    ) -> Changes:
        """Solve for a step to mu, with the right-hand sides of the rows and of the intercept."""

    def direction(
        self, mu: float, predictor: Direction | None = None, weight: float = 1.0
    ) -> Direction:
        """Step towards the central path at mu, with the predictor's second-order terms.

        ``weight`` scales those terms, which hold for a full step of the predictor.
        """
        p = self.point
        # s alpha = mu and xi w = mu, linearized: what the products must change by.
        s_alpha = mu - p.s * p.alpha
        xi_w = mu - p.xi * p.w
        if predictor is not None:
            s_alpha = s_alpha - weight * predictor.s * predictor.alpha
            xi_w = xi_w - weight * predictor.xi * predictor.w
        # s, xi and w are eliminated from the equation of the margins.
        right = self.residual + s_alpha / p.alpha
        if len(p.w):
            right = right - self.boxes.per_row(xi_w / p.w)
        imbalance = self.imbalance
        if self.drifts is not None:
            drift, drift_by_mu = self.drifts
            imbalance = imbalance + drift.imbalance + mu * drift_by_mu.imbalance
        # What is left are the equations of the head, which each system solves in its own space.
        alpha, beta, change, U = self.changes(right, imbalance, mu, predictor, weight)
        # Back substitution: s alpha and xi w change as asked for, and w by what its box loses.
        s = (s_alpha - p.s * alpha) / p.alpha
        w = p.w  # empty, as xi is, with a hard margin
        xi = p.xi
        if len(p.w):
            pooled = self.boxes.sums(alpha)
            w = -pooled
            xi = (xi_w + p.xi * pooled) / p.w
        return Direction(**vars(change), alpha=alpha, s=s, w=w, xi=xi, beta=beta, U=U)


# --- in the space of the rows --------------------------------------------------------------------


class RowNewton(Newton[AnyCone]):
    """By a Cholesky factorization in the space of the rows, and one of a Schur complement."""

    def factorise_with(self, Q: Callable[[], Tensor], border: Tensor, slack: Tensor) -> None:
        """Factorize A = Q + D, and the Schur complement of a border and e, of this slack.

        ``Q`` returns what rows see of the cone, made anew and stored by columns (`factor`).
        """
        p = self.point
        # The diagonal of D, and its blocks where several rows share a box.
        # A loose box, w far above xi, adds nothing: its row is as one of a hard margin.
        box = p.xi / p.w
        diagonal = p.s / p.alpha
        if self.boxes.index is None:
            diagonal = diagonal + self.boxes.per_row(box)

        def matrix() -> Tensor:
            A = Q()
            A.diagonal().add_(diagonal)
            if self.boxes.index is None:
                return A
            return self.boxes.added_to(A, box)

        # A = L L'; the Schur complement of the border is slack + H' H with H = L^-1 [border, e].
        self.L = factor(matrix)
        self.H = torch.linalg.solve_triangular(self.L, torch.hstack([border, self.e]), upper=False)
        # A sum of squares, so it is definite whatever rounding does to A. It is empty where there
        # is neither a border nor an offset.
        self.schur = self.H.T @ self.H
        self.schur.diagonal()[: len(slack)] += slack
        if len(self.schur):
            self.schur = cholesky(self.schur)

    def solve(self, right: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve A dalpha + border y = right, border' dalpha - slack y = c."""
        h = torch.linalg.solve_triangular(self.L, right[:, None], upper=False)
        y = c[:, None]
        if len(c):
            y = torch.cholesky_solve(self.H.T @ h - y, self.schur)
        alpha = torch.linalg.solve_triangular(self.L.T, h - self.H @ y, upper=True)
        return alpha[:, 0], y[:, 0]


class GroupRowNewton(RowNewton[GroupCone]):
    """Of sums of Euclidean norms over groups: equation (groups), where dV is Phi' dalpha."""

    def factorise(self) -> None:
        """Factorize the system, of which the groups' products are the border."""
        p = self.point
        border = self.cone.products
        if self.free is not None:
            border = border[self.free]
        self.factorise_with(lambda: self.rows.curvature(p.R), border, p.T / p.R)

    def changes(
        self,
        right: Tensor,
        imbalance: Tensor,
        mu: float,
        predictor: Direction | None,
        weight: float,
    ) -> Changes:
        """Solve for a step to mu."""
        p = self.point
        rows = self.rows
        cone = self.cone
        products = mu - p.R * p.T  # what R T must change by
        slack = cone.slack_residual
        if self.drifts is not None:
            # Idle rows change V, too: margins and slacks with it.
            drift, drift_by_mu = self.drifts
            dV = drift.V + mu * drift_by_mu.V
            right = right - rows.group_products(dV) @ p.R
            slack = slack - rows.inner(cone.V, dV)
        if predictor is not None:
            # Second-order terms of R T, of the slack, and of the margins R <V, features>.
            dV = rows.dual_vectors(predictor.alpha)
            if self.drifts is not None:
                dV = dV + self.drifts[0].V  # the predictor aims at mu = 0
            products = products - weight * predictor.R * predictor.T
            slack = slack - 0.5 * weight * rows.inner(dV, dV)
            right = right - weight * (rows.group_products(dV) @ predictor.R)
        alpha, y = self.solve(right, torch.cat([slack - products / p.R, -imbalance]))
        R = y[: len(p.R)]
        beta = y[len(p.R) :]
        change = ConePoint(p.W, p.t, R, (products - p.T * R) / p.R)
        return alpha, beta, change, p.W


class ClassRowNewton(RowNewton[AnyClassCone]):
    """Of matrices of the classes; refined by products with Phi.

    The equations of the cone and of the intercept hold to rounding after each solve.
    """

    # The refinement ends when the rows' residual is below this fraction of their right-hand side.
    negligible: ClassVar[float] = 1e-10

    def factorise(self) -> None:
        """Factorize the system."""
        Q, border, slack = self.cone.row_matrix()
        self.n_border = border.shape[1]
        # By columns, as `factor` asks for: the upper triangle, which counts, becomes the lower one.
        self.factorise_with(lambda: Q.clone().T, border, slack)

    def times_D(self, alpha: Tensor, beta: Tensor) -> Tensor:
        """D alpha + e beta."""
        p = self.point
        of_boxes = self.boxes.per_row(self.boxes.sums(alpha)[: len(p.w)] * p.xi / p.w)
        return p.s / p.alpha * alpha + of_boxes + self.e @ beta


class FixedRadiusRowNewton(ClassRowNewton[NuclearCone]):
    """Of the cone around V, whose radius is 1."""

    def changes(
        self,
        right: Tensor,
        imbalance: Tensor,
        mu: float,
        predictor: Direction | None,
        weight: float,
    ) -> Changes:
        """Solve for dalpha and dbeta, where U is known once dalpha is.

        D dalpha + Phi (K U + right_zeta) + e dbeta = right and U = Phi' dalpha + V_residual.
        """
        cone = self.cone
        e = self.e
        right_of_cone = cone.right_sides(mu, predictor, weight)
        alpha = torch.zeros_like(right)
        beta = torch.zeros_like(imbalance)
        U = cone.V_residual
        for refinement in range(self.refinements):
            # The residual is computed by products with Phi, not with A: what the matrix A has lost
            # in forming Phi K Phi' the refinement brings back.
            margins = cone.apply(right_of_cone.conjugate + cone.times_K(U))
            residual = right - margins - self.times_D(alpha, beta)
            if refinement > 0 and residual.norm() <= self.negligible * right.norm():
                break
            # The border's own equations hold: only alpha and the offsets are corrected.
            of_border = e.new_zeros(self.n_border)
            of_offsets = -imbalance - e.T @ alpha
            correction, y = self.solve(residual, torch.cat([of_border, of_offsets]))
            alpha = alpha + correction
            beta = beta + y[self.n_border :]
            U = cone.dual_vectors(alpha) + cone.V_residual
        return alpha, beta, cone.back_substitute(right_of_cone, U), U


class FreeRadiusRowNewton(ClassRowNewton[FreeRadiusCone]):
    """Of the cone around zeta, whose radius t is free."""

    def changes(
        self,
        right: Tensor,
        imbalance: Tensor,
        mu: float,
        predictor: Direction | None,
        weight: float,
    ) -> Changes:
        """Solve for dalpha, U, dt and dbeta, with dV = Phi' dalpha.

        D dalpha + Phi (U + Y dt) + e dbeta = right,
        K U - k_t dt - dV = right_U   and   k_tt dt - <k_t, U> - <Y, dV> = right_t.
        """
        cone = self.cone
        e = self.e
        right_of_cone = cone.right_sides(mu, predictor, weight)
        right_U = cone.V_residual - right_of_cone.conjugate
        right_t = right_of_cone.radius + cone.sum_per_radius(cone.V_residual * cone.Y)
        alpha = torch.zeros_like(right)
        beta = torch.zeros_like(imbalance)
        U = torch.zeros_like(right_U)
        dV = torch.zeros_like(right_U)
        dt = torch.zeros_like(self.point.t)
        for refinement in range(self.refinements):
            # The second equation is solved for U exactly; the others see the corrected U.
            residual_U = right_U + dV + cone.radius_of_columns(dt) * cone.k_t - cone.times_K(U)
            corrected_U = U + cone.solve_K(residual_U)
            margins = cone.apply(corrected_U + cone.Y * cone.radius_of_columns(dt))
            residual = right - margins - self.times_D(alpha, beta)
            if refinement > 0 and residual.norm() <= self.negligible * right.norm():
                break
            curved = cone.sum_per_radius(cone.k_t * corrected_U + cone.Y * dV)
            residual_t = right_t - cone.k_tt * dt + curved
            of_offsets = -imbalance - e.T @ alpha
            correction, y = self.solve(residual, torch.cat([-residual_t, of_offsets]))
            # Back substitution of U, for the corrections of alpha and dt.
            more_dt = y[: len(dt)]
            more_dV = cone.dual_vectors(correction)
            of_U = more_dV + cone.radius_of_columns(more_dt) * cone.k_t + residual_U
            U = U + cone.solve_K(of_U)
            alpha = alpha + correction
            beta = beta + y[len(dt) :]
            dt = dt + more_dt
            dV = dV + more_dV
        return alpha, beta, cone.back_substitute(right_of_cone, U, dt), U


# --- in the space of the features ----------------------------------------------------------------


class FeatureNewton(Newton[FeatureCone]):
    """In the space of the features, of any cone.

    The unknowns are u, n = r F numbers of zeta, and q numbers of the cone's own (`FeatureCone`),
    n + q = ``size`` in all; dbeta follows them. dalpha = D^-1 (right - Phi dzeta - e dbeta) is
    eliminated. Time is linear in the samples: O(N K^2 F^2), and O((K F)^3).

    Attributes
    ----------
    h : Tensor of shape (P,)
        alpha / s, the inverse of D without its blocks.
    loose : Tensor of shape (B,) or None
        w / xi of the boxes: the larger, the less a box binds. None with a hard margin.
    """

    h: Tensor
    loose: Tensor | None

    # The refinement ends after a correction below this fraction of the solution: the next one would
    # be about its square.
    negligible: ClassVar[float] = 1e-8
    # Of products in float32 each refinement has to be smaller than the last by this factor.
    shrinking: ClassVar[float] = 1e-2

    def factorise(self) -> None:
        """Factorize the system, with products in float64 where those in float32 break down."""
        # D^-1, with the blocks of the boxes by Sherman and Morrison; see `over_D`.
        p = self.point
        self.h = p.alpha / p.s
        self.loose = None
        if len(p.w):
            self.loose = p.w / p.xi
            self.leading = self.boxes.leading(self.h)
            self.sum_of_weights = self.loose + self.boxes.sums(self.h)
        self.cone_matrix, self.directions = self.cone.feature_matrix()
        self.n = self.directions.shape[1]
        self.size = len(self.cone_matrix)
        try:
            self.L = self._factor()
        except Breakdown:
            if not self.coarse:
                raise
            self._factorise_in_float64()

    def _factorise_in_float64(self) -> None:
        """Factorize the system with products in float64."""
        self.coarse = False
        self.L = self._factor()

    def _factor(self) -> Tensor:
        """Factorize the matrix of all unknowns and offsets."""
        n = self.n
        size = self.size
        phi = self.cone.coordinates
        normal = phi.normal_matrix(self.h, self.loose, coarse=self.coarse)
        offsets = self.e.T  # (J, P)
        weighted = None
        if len(offsets):
            weighted = torch.stack([self.over_D(row) for row in offsets])

        def matrix() -> Tensor:
            """Return the upper triangle, by rows."""
            order = size + len(offsets)
            H = normal.new_zeros(order, order)
            H[:n, :n] = normal
            # Phi' D^-1 Phi along the directions of zeta that the cone's own unknowns move.
            if size > n:
                along = normal @ self.directions.T
                H[:n, n:size] = along
                H[n:size, n:size] = self.directions @ along
            if weighted is not None:
                # e' D^-1 Phi and e' D^-1 e, of the offsets.
                H[:size, size:] = self.at_unknowns(phi.adjoint(weighted)).T
                H[size:, size:] = weighted @ offsets.T
            self.cone_matrix.add_to(H)
            return H.T

        return factor(matrix)

    def changes(
        self,
        right: Tensor,
        imbalance: Tensor,
        mu: float,
        predictor: Direction | None,
        weight: float,
    ) -> Changes:
        """Solve for a step to mu."""
        of_cone, saved = self.cone.feature_right_sides(mu, predictor, weight)
        alpha, x = self.solve(right, torch.cat([of_cone, imbalance]))
        change, U = self.cone.feature_back_substitute(saved, alpha, x[: self.size])
        return alpha, x[self.size :], change, U

    def solve(self, right: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """Return dalpha and the unknowns, with the offsets, of the right-hand sides.

        D^-1 multiplies the rounding of the margins, so the equations are refined with dalpha.
        """
        phi = self.cone.coordinates
        e = self.e
        size = self.size
        x = torch.zeros_like(whole)
        alpha = self.over_D(right)
        for refinement in range(self.refinements):
            of_alpha = self.at_unknowns(phi.adjoint(alpha))
            residual = whole + torch.cat([of_alpha, e.T @ alpha])
            # Of the offsets the matrix has no part of its own.
            residual[:size] -= self.cone_matrix.times(x[:size])
            # Twenty times as fast as torch.cholesky_solve, of one right-hand side.
            half = torch.linalg.solve_triangular(self.L, residual[:, None], upper=False)
            change = torch.linalg.solve_triangular(self.L.T, half, upper=True)[:, 0]
            x = x + change
            # dalpha from D dalpha + Phi zeta + e dbeta = right.
            zeta = x[: self.n] + x[self.n : size] @ self.directions
            alpha = self.over_D(right - phi.apply(zeta) - e @ x[size:])
            correction = change.norm()
            size_of_x = x.norm()
            if correction <= self.negligible * size_of_x:
                break
            if self.coarse and correction > self.shrinking**refinement * size_of_x:
                self._factorise_in_float64()
                return self.solve(right, whole)
        return alpha, x

    def at_unknowns(self, values: Tensor) -> Tensor:
        """Return Phi' v (..., n) at the unknowns of zeta and at the cone's own, (..., n + q)."""
        return torch.cat([values, values @ self.directions.T], -1)

    def over_D(self, values: Tensor) -> Tensor:
        """D^-1 v = h (v - m) of a vector (P,), m its weighted mean in each box.

        The weights are h, and ``loose`` for a value of 0: m is sum h v / (loose + sum h).

        Where alpha is near C, one row has nearly all of the h of its box, and m is close to v of
        that row: v - m would cancel. So both are taken relative to v of the row of the largest h.
        """
        if self.loose is None:
            return self.h * values
        leading = values[self.leading]
        apart = values - self.boxes.per_row(leading)
        beyond = (self.loose * leading - self.boxes.sums(self.h * apart)) / self.sum_of_weights
        return self.h * (apart + self.boxes.per_row(beyond))
