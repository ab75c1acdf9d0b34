r"""The Newton systems of the interior point: in the space of the rows, or of the features.

The balls (`balls`) take a change U of V or zeta to K U of the other matrix, and the diagonal
D = diag(s / alpha), plus blocks xi / w of the samples with a soft margin, takes dalpha to changes
of the margins. So a step solves one of

        W = V       D dalpha + Phi (K U + ...) + e dbeta = ...,   U = Phi' dalpha + ...
        W = zeta    D dalpha + Phi (U + Y dt) + e dbeta = ...,    K U - pull dt = Phi' dalpha + ...

in the rows, with D + Phi K Phi' or D + Phi K^-1 Phi', or in the features, with K^-1 + Phi' D^-1 Phi
or K + Phi' D^-1 Phi: whichever `costs` estimates to be faster. With W = V the system in the
features keeps numbers of the ball as a border (`balls`). In the rows Phi (A (x) I) Phi' is the mask
(b A b') o (x x'); what K adds to it has the rank r (r + 1) / 2 (a border of the system, because it
grows like 1 / mu) or, inverted, r^2. With entries K is diagonal. The system of groups in the rows
is

        [ A   U       e ] [dalpha]   [right]        A = Q(R) + diag(s / alpha) + blocks xi / w
        [ U'  -T / R  0 ] [dR    ] = [c]
        [ e'  0       0 ] [dbeta ]   [-e' alpha]

solved by one Cholesky factorisation of A and one of its Schur complement. (Adding U diag(R / T) U'
to A instead costs as much and loses eight digits: R / T grows like 1 / mu.)

Mehrotra's predictor sets the centring; its second-order terms enter the corrector, which uses the
same factors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from implicit_bias.solvers.balls import (
    Ball,
    BallOfClasses,
    BallPoint,
    CentralPoint,
    ClassMatrices,
    Direction,
    GroupBalls,
    InFeatures,
    cholesky,
    factor,
)
from implicit_bias.solvers.iteration import Breakdown
from implicit_bias.solvers.scaled_problem import Boxes, ScaledRows

# A system is solved at most REFINEMENTS times: once, then for the residual. In the features the
# refinement ends after a correction below SETTLED of the solution: the next would be about its
# square. In the rows it ends when the rows' residual is below NEGLIGIBLE of their right-hand side;
# the equations of the ball and of the intercept hold to rounding after each solve.
REFINEMENTS, SETTLED, NEGLIGIBLE = 3, 1e-8, 1e-10
# Of products in float32 each refinement has to be smaller than the last by this factor.
DIVERGING = 1e-2

SomeBall = TypeVar("SomeBall", bound=Ball)


@dataclass(frozen=True, eq=False)
class System:
    """What a Newton system is made of, at one iterate: rows in it, and residuals.

    Attributes
    ----------
    rows : ScaledRows
        The F rows in the system.
    boxes : Boxes
        Of these rows.
    free : Tensor of int, shape (F,), or None
        Which of all rows they are; None for all.
    e : Tensor of shape (F, J)
        The equation of the intercept.
    residual : Tensor of shape (F,)
        What s less xi lacks to be what margins exceed b by.
    imbalance : Tensor of shape (J,)
        e' alpha of all rows.
    drifts : list of tuple of Tensor
        V and e' alpha of what rows outside of the system do on their own, at mu = 0 and by mu: of
        groups alone.
    coarse : bool
        Whether products of matrices may be summed in float32, in the features: the refinement of
        the solution makes up for it while the gap is coarse.
    """

    rows: ScaledRows
    boxes: Boxes
    free: Tensor | None
    e: Tensor
    residual: Tensor
    imbalance: Tensor
    drifts: list[tuple[Tensor, Tensor]]
    coarse: bool


class Target(NamedTuple):
    """The mu of a step, and the share of a predictor's second-order terms that it has."""

    mu: float
    predictor: Direction | None
    weight: float


class _Step(NamedTuple):
    """dalpha, dbeta, and the changes of the balls, with U."""

    alpha: Tensor
    beta: Tensor
    of_balls: BallPoint
    U: Tensor


class Newton(ABC, Generic[SomeBall]):
    """The factorised Newton system at one iterate.

    Attributes
    ----------
    coarse : bool
        Whether products in float32 were enough, of a coarse system.
    """

    def __init__(self, system: System, point: CentralPoint, ball: SomeBall) -> None:
        self.system, self.point, self.rows, self.boxes = system, point, system.rows, system.boxes
        self.ball, self.coarse = ball, system.coarse
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Factorise the system."""

    @abstractmethod
    def step(self, right: Tensor, imbalance: Tensor, target: Target) -> _Step:
        """Solve for a step, with the right-hand sides of the rows and of the intercept."""

    def direction(
        self, mu: float, predictor: Direction | None = None, weight: float = 1.0
    ) -> Direction:
        """Step towards the central path at mu, with the predictor's second-order terms.

        ``weight`` scales those terms, which hold for a full step of the predictor.
        """
        p, boxes, system = self.point, self.boxes, self.system
        at_alpha = mu - p.s * p.alpha
        if predictor is not None:
            at_alpha = at_alpha - weight * predictor.change.s * predictor.change.alpha
        right, imbalance = system.residual + at_alpha / p.alpha, system.imbalance
        if p.w.numel():
            at_w = mu - p.xi * p.w
            if predictor is not None:
                at_w = at_w - weight * predictor.change.xi * predictor.change.w
            right = right - boxes.of_rows(at_w / p.w)
        if system.drifts:
            imbalance = imbalance + system.drifts[0][1] + mu * system.drifts[1][1]
        alpha, beta, of_balls, U = self.step(right, imbalance, Target(mu, predictor, weight))
        w = xi = p.w
        if p.w.numel():
            pooled = boxes.pool(alpha)
            w, xi = -pooled, (at_w + p.xi * pooled) / p.w
        s = (at_alpha - p.s * alpha) / p.alpha
        return Direction(CentralPoint(**vars(of_balls), alpha=alpha, s=s, w=w, xi=xi, beta=beta), U)


class _InRows(Newton[SomeBall]):
    """By a Cholesky factorisation in the space of the rows, and one of a Schur complement."""

    def factorise(self, Q: Callable[[], Tensor], border: Tensor, slack: Tensor) -> None:
        """Factorise A and the Schur complement of a border and e, of this slack.

        ``Q`` returns what rows see of K, made anew.
        """
        p = self.point
        barrier, box = p.s / p.alpha, p.xi / p.w
        if self.boxes.index is None:
            barrier = barrier + self.boxes.of_rows(box)

        def matrix() -> Tensor:
            A = Q()
            A.diagonal().add_(barrier)
            return A if self.boxes.index is None else self.boxes.added_to(A, box)

        self.L = factor(matrix)
        border = torch.hstack([border, self.system.e])
        self.H = torch.linalg.solve_triangular(self.L, border, upper=False)
        schur = self.H.T @ self.H
        schur.diagonal()[: len(slack)] += slack
        self.schur = cholesky(schur) if len(schur) else schur

    def solve(self, right: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve A dalpha + border y = right, border' dalpha - slack y = c."""
        h = torch.linalg.solve_triangular(self.L, right[:, None], upper=False)
        y = torch.cholesky_solve(self.H.T @ h - c[:, None], self.schur) if len(c) else c[:, None]
        alpha = torch.linalg.solve_triangular(self.L.T, h - self.H @ y, upper=True)
        return alpha[:, 0], y[:, 0]


class GroupNewton(_InRows[GroupBalls]):
    """In the space of the rows, for sums of Euclidean norms over groups."""

    def prepare(self) -> None:
        """Factorise the system."""
        p, U, free = self.point, self.ball.U, self.system.free
        border = U if free is None else U[free]
        self.factorise(lambda: self.rows.curvature(p.R), border, p.T / p.R)

    def step(self, right: Tensor, imbalance: Tensor, target: Target) -> _Step:
        """Solve for a step."""
        (mu, predictor, weight), p, rows, ball = target, self.point, self.rows, self.ball
        at, residual = mu - p.R * p.T, ball.residual
        drifts = self.system.drifts  # change V, too
        if drifts:
            drift = drifts[0][0] + mu * drifts[1][0]
            right = right - rows.group_products(drift) @ p.R
            residual = residual - rows.inner(ball.V, drift)
        if predictor is not None:
            change = predictor.change
            dV = rows.dual_vectors(change.alpha)
            if drifts:
                dV = dV + drifts[0][0]
            at = at - weight * change.R * change.T
            residual = residual - 0.5 * weight * rows.inner(dV, dV)
            right = right - weight * (rows.group_products(dV) @ change.R)
        alpha, y = self.solve(right, torch.cat([residual - at / p.R, -imbalance]))
        R, beta = y[: len(p.R)], y[len(p.R) :]
        return _Step(alpha, beta, BallPoint(p.W, p.t, R, (at - p.T * R) / p.R), p.W)


class _OfClasses(Newton[BallOfClasses]):
    """Systems of the balls of many classes."""

    @property
    def balls(self) -> ClassMatrices:
        """The balls of all iterates."""
        return self.ball.balls

    def seen(self, values: Tensor) -> Tensor:
        """Return margins of (r, F), those of each radius apart: (P, radii)."""
        return torch.stack([self.balls.margins(part) for part in self.balls.apart(values)], 1)

    @abstractmethod
    def of_V(
        self, right: Tensor, fixed: Tensor, missing: Tensor, imbalance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for dalpha, U and dbeta.

        D dalpha + Phi (K U + fixed) + e dbeta = right and U = Phi' dalpha + missing.
        """

    @abstractmethod
    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: Tensor, imbalance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Solve for dalpha, U, dt and dbeta.

        D dalpha + Phi (U + Y dt) + e dbeta = right, K U - pull dt - Phi' dalpha = first, and
        tau dt - <pull, U> - <Y, Phi' dalpha> = of_t.
        """

    def step(self, right: Tensor, imbalance: Tensor, target: Target) -> _Step:
        """Solve for a step."""
        ball, terms = self.ball, self.ball.terms(*target)
        missing = ball.missing
        if self.balls.free_t:
            of_t = terms.of_t + self.balls.pool(missing * ball.Y)
            alpha, U, dt, beta = self.of_zeta(right, missing - terms.other, of_t, imbalance)
        else:
            alpha, U, beta = self.of_V(right, terms.other, missing, imbalance)
            dt = torch.zeros_like(self.point.t)
        return _Step(alpha, beta, ball.change(terms, U, dt), U)


class RowNewton(_InRows[BallOfClasses], _OfClasses):
    """In the space of the rows, for balls of many classes; refined by products with Phi."""

    def prepare(self) -> None:
        """Factorise the system."""
        ball = self.ball
        Q, border, slack = ball.in_rows()
        if self.balls.free_t:
            border = self.seen(ball.compliance(ball.pull) + ball.Y)
        self.n_border = border.shape[1]
        self.factorise(lambda: Q.clone().T, border, slack)

    def of_V(
        self, right: Tensor, fixed: Tensor, missing: Tensor, imbalance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for dalpha, U and dbeta."""
        balls, e, n = self.balls, self.system.e, self.n_border
        alpha, beta, U = torch.zeros_like(right), torch.zeros_like(imbalance), missing
        for again in range(REFINEMENTS):
            lacking = right - balls.margins(fixed + self.ball.along(U)) - self._over(alpha, beta)
            if again and lacking.norm() <= NEGLIGIBLE * right.norm():
                break
            change, y = self.solve(lacking, torch.cat([e.new_zeros(n), -imbalance - e.T @ alpha]))
            alpha, beta = alpha + change, beta + y[n:]
            U = balls.dual_vectors(alpha) + missing
        return alpha, U, beta

    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: Tensor, imbalance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Solve for dalpha, U, dt and dbeta."""
        balls, ball, e = self.balls, self.ball, self.system.e
        alpha, beta = torch.zeros_like(right), torch.zeros_like(imbalance)
        U, dt, V = torch.zeros_like(first), torch.zeros_like(of_t), torch.zeros_like(first)
        for again in range(REFINEMENTS):
            of_U = first + V + balls.spread(dt) * ball.pull - ball.along(U)
            moved = U + ball.compliance(of_U)
            seen = balls.margins(moved + ball.Y * balls.spread(dt))
            lacking = right - seen - self._over(alpha, beta)
            if again and lacking.norm() <= NEGLIGIBLE * right.norm():
                break
            along = of_t - ball.tau * dt + balls.pool(ball.pull * moved + ball.Y * V)
            change, y = self.solve(lacking, torch.cat([-along, -imbalance - e.T @ alpha]))
            more, offsets = y[: len(dt)], y[len(dt) :]
            dV = balls.dual_vectors(change)
            U = U + ball.compliance(dV + balls.spread(more) * ball.pull + of_U)
            alpha, beta, dt, V = alpha + change, beta + offsets, dt + more, V + dV
        return alpha, U, dt, beta

    def _over(self, alpha: Tensor, beta: Tensor) -> Tensor:
        """D alpha + e beta."""
        p, boxes = self.point, self.boxes
        of_samples = boxes.of_rows(boxes.pool(alpha)[: len(p.w)] * p.xi / p.w)
        return p.s / p.alpha * alpha + of_samples + self.system.e @ beta


class FeatureNewton(Newton[InFeatures]):
    """In the space of the features, of any balls.

    Time is linear in the samples: O(N K^2 F^2), and O((K F)^3).
    """

    def prepare(self) -> None:
        """Factorise the system."""
        p = self.point
        self.h = p.alpha / p.s
        self.loose: Tensor | None = None
        if len(p.w):
            self.loose, self.leading = p.w / p.xi, self.boxes.leading(self.h)
            self.total = self.loose + self.boxes.pool(self.h)
        self.of_ball, self.directions = self.ball.in_features()
        self.n, self.size = self.directions.shape[1], len(self.of_ball)
        try:
            self.L = self._factorised()
        except Breakdown:
            if not self.coarse:
                raise
            self._factorise_anew()

    def _factorise_anew(self) -> None:
        """Take float64 where products in float32 have too few digits."""
        self.coarse = False
        self.L = self._factorised()

    def _factorised(self) -> Tensor:
        """Factorise the matrix of all unknowns and offsets."""
        n, size, q = self.n, self.size, self.size - self.n
        normal = self.ball.coordinates.normal_matrix(self.h, self.loose, coarse=self.coarse)
        offsets = self.system.e.T  # (J, P)
        weighted = torch.stack([self._over(row) for row in offsets]) if len(offsets) else None

        def matrix() -> Tensor:
            """Return the upper triangle, by rows."""
            order = size + len(offsets)
            H = normal.new_zeros(order, order)
            H[:n, :n] = normal
            if q:
                turned = normal @ self.directions.T
                H[:n, n:size] = turned
                H[n:size, n:size] = self.directions @ turned
            if weighted is not None:
                pull = self.ball.coordinates.pull(weighted)
                H[:size, size:] = self._seen_by_unknowns(pull).T
                H[size:, size:] = weighted @ offsets.T
            self.of_ball.add_to(H)
            return H.T

        return factor(matrix)

    def step(self, right: Tensor, imbalance: Tensor, target: Target) -> _Step:
        """Solve for a step."""
        terms = self.ball.feature_terms(*target)
        alpha, x = self.solve(right, torch.cat([terms.right, imbalance]))
        size = len(terms.right)
        change, U = self.ball.feature_change(terms, alpha, x[:size])
        return _Step(alpha, x[size:], change, U)

    def solve(self, right: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        """Return dalpha and the unknowns, with the offsets, of the right-hand sides.

        D^-1 multiplies the rounding of the margins, so the equations are refined with dalpha.
        """
        phi, e, size, x = self.ball.coordinates, self.system.e, self.size, torch.zeros_like(whole)
        alpha = self._over(right)
        for again in range(REFINEMENTS):
            pull = self._seen_by_unknowns(phi.pull(alpha))
            residual = whole + torch.cat([pull, e.T @ alpha])
            residual[:size] -= self.of_ball.times(x[:size])
            # Twenty times as fast as torch.cholesky_solve, of one right-hand side.
            half = torch.linalg.solve_triangular(self.L, residual[:, None], upper=False)
            change = torch.linalg.solve_triangular(self.L.T, half, upper=True)[:, 0]
            x = x + change
            zeta = x[: self.n] + x[self.n : size] @ self.directions
            alpha = self._over(right - phi.margins(zeta) - e @ x[size:])
            moved, size_of_x = change.norm(), x.norm()
            if moved <= SETTLED * size_of_x:
                break
            if self.coarse and moved > DIVERGING**again * size_of_x:
                self._factorise_anew()
                return self.solve(right, whole)
        return alpha, x

    def _seen_by_unknowns(self, pull: Tensor) -> Tensor:
        """Return a pull (..., n) at the unknowns of zeta and at those of the ball, (..., n + q)."""
        return torch.cat([pull, pull @ self.directions.T], -1)

    def _over(self, values: Tensor) -> Tensor:
        """D^-1 v = h (v - m) of a vector (P,), m its mean in each box by h and ``loose``.

        At C one h is nearly all of its box, and m close to v of that row. So both are taken
        relative to it, where their difference would cancel.
        """
        if self.loose is None:
            return self.h * values
        boxes, h = self.boxes, self.h
        leading = values[self.leading]
        apart = values - boxes.of_rows(leading)
        beyond = (self.loose * leading - boxes.pool(h * apart)) / self.total
        return h * (apart + boxes.of_rows(beyond))
