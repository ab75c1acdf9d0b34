r"""An interior point for many classes under one norm: a ball, and a small multiplier of it.

Primal  minimise  Omega(zeta) + C sum_n xi_n
        subject to  <a_p x_p', zeta> + (E b)_p >= 1 - xi_n for all pairs p of n,   xi >= 0
Dual    maximise  sum_p alpha_p
        subject to  alpha >= 0,  sum of a sample's alpha_p <= C,  Omega_*(V) <= 1,  E' alpha = 0,
                    V = sum_p alpha_p a_p x_p'

Two norms have balls of one kind: that of the nuclear norm's V, V V' <= I, is that of the spectral
norm's zeta, zeta zeta' <= t^2 I with the smallest t. Call the matrix in the ball X; the ball's
multiplier R makes the other matrix of it. So with l1 and l_inf, entry by entry; l2 is the nuclear
norm of zeta written in one row.

        nuclear, l1, l2    X = V,     t = 1
        spectral, l_inf    X = zeta,  t free

KKT     T = t I - X X' / t,   Y = X / t,   <a_p x_p', zeta> + (E b)_p - 1 + xi_n = s_p,
        the other matrix is R Y, and tr R (I + Y Y') = 2 where t is free,
        R T = mu I,   s_p alpha_p = mu,   xi_n w_n = mu,   w_n = C - sum of alpha_p,     mu -> 0

======  =========  =========================================================================
a       (P, r)     e_{y_n} - e_k in r = K - 1 orthonormal coordinates of the sum-free vectors;
                   in the K classes themselves for l1 and l_inf
x       (P, F)     features z(x_n) (x) x_n of the pair's sample
V, X    (r, F)     matrices in these coordinates; (1, r F) for l2
R, T    (r, r)     multipliers of the ball, and its slack, both positive definite; for l1 and l_inf
                   (2, r, F): of X <= t and of X >= -t (`norm_balls`)
G       (r, r)     Nesterov and Todd's scaling, G T G = R
Phi     (P, r F)   the pairs' features, never formed
E       (P, J)     offsets; b (J,), with an intercept
======  =========  =========================================================================

A sum of nuclear norms over G groups of gates has a ball for each group. Their X are put below each
other, (G r, F), each with 0 in the columns of the others: X X', R, T and G are block diagonal then,
(G r, G r), and all below holds as it stands; Phi K Phi' is a sum of masks, one a group.

With U = dX - Y dt the other matrix changes by

        K U - G (I - Y Y') G Y dt,      K U = R U / t + G (U Y' + Y U') G Y

and D = diag(s / alpha) + the blocks xi / w of the samples takes dalpha to changes of the margins.
So a Newton step needs D + Phi K Phi' (X = V) or D + Phi K^-1 Phi' (X = zeta) in the space of the
pairs, and K^-1 + Phi' D^-1 Phi or K + Phi' D^-1 Phi in that of the features: whichever is smaller.
There Phi (A (x) I) Phi' is the mask (a A a') o (x x') in the space of the pairs; what K adds has
the rank r (r + 1) / 2 (a border of the system, because it grows like 1 / mu) or, inverted, r^2: K
differs from R / t only in the row space of Y. With l1 and l_inf K is diagonal.

Mehrotra's predictor sets the centring; its second-order terms enter the corrector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import UnsuitableError
from implicit_bias.bounds.certificate import Status
from implicit_bias.norms import BALLS, L2, nuclear_groups
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import count_kinds, grouped_rows, merged_pairs, row_index
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.class_pairs import ClassPairs, Integers, memory_of_balls
from implicit_bias.solvers.interior_point import InteriorPoint
from implicit_bias.solvers.iteration import Answer, NativeSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.norm_balls import (
    Breakdown,
    Direction,
    Point,
    ball_of,
    cholesky,
    multipliers,
)
from implicit_bias.solvers.scaled_problem import peak_memory

MAX_ITERATIONS = 100
# Share of the way to the boundary that a step may go.
BOUNDARY_SHARE = 0.99
# A step shorter than this is compared with one that only centres.
SHORT = 0.05
# A warm start is as far inside as the point of the central path with its gap, or this one.
LEAST_WARM = 1e-3
WARM_SHARE = 0.98
# mu need not fall below this share of what the gap tolerance asks for.
CENTRING_FLOOR = 0.2
# The solver aims a little below the tolerance, because the certificate rounds differently.
AIM = 0.9
# After this many steps without progress in the gap, stagnation is attributed to rounding.
PATIENCE = 12
# Up to this many pairs the Euclidean norm is asked whether they are separable.
MOST_PAIRS = 3000
# Alpha are repaired, to obey E' alpha = 0 exactly, where they lack no more than this share.
BALANCE = 1e-3
# Times that a solution in the space of the features is computed again from what it lacks.
REFINEMENTS = 3


def has_ball(problem: MarginProblem) -> bool:
    """Whether the space of the pairs takes a problem: many classes, and a norm other than l2."""
    one = problem.norm in BALLS
    return problem.classes is not None and (one or nuclear_groups(problem.norm) is not None)


def has_features(problem: MarginProblem) -> bool:
    """Whether the space of the features takes a problem: many classes, and one ball, or l2."""
    return problem.classes is not None and problem.norm in (*BALLS, L2())


def class_features(problem: MarginProblem) -> int:
    """Return K F, the order of the system in the space of the features at most.

    All classes without samples are one.
    """
    return count_kinds(problem) * problem.plain_gates.shape[1] * problem.X.shape[1]


@dataclass(frozen=True, kw_only=True)
class _NormPath(NativeSolver):
    """The central path of these norms.

    Parameters
    ----------
    pairs : tuple of two ndarrays of int, shape (P,), optional
        Samples and rivals to solve with: a working set. All by default.
    near : Answer, optional
        The answer of a similar problem, its margins scaled to 1, to start from.
    """

    takes_classes: ClassVar[bool] = True

    pairs: tuple[Integers, Integers] | None = None
    near: Answer | None = None

    own_limit: ClassVar[int] = MAX_ITERATIONS

    def merged(self, problem: MarginProblem) -> tuple[Integers, Integers]:
        """Return the pairs to solve with, all classes without samples merged into one."""
        return merged_pairs(problem, row_index(problem) if self.pairs is None else self.pairs)


@dataclass(frozen=True, kw_only=True)
class NormInteriorPoint(_NormPath):
    """The native solver of nuclear and spectral norms, l1 and l_inf in the space of the pairs."""

    name: ClassVar[str] = "interior-point"

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Check that there is room for the matrices of order P.

        Raises
        ------
        ValueError
            Another norm, or two classes.
        """
        if not has_ball(problem):
            raise UnsuitableError(
                "this method takes the nuclear norm (of all, or of groups of gates), the spectral "
                "one, l1 and l_inf of many classes: choose solver='auto'"
            )
        pairs = self.merged(problem)
        self.check_memory(peak_memory(len(pairs[0]), problem) + memory_of_balls(problem, pairs))
        return _CentralPath(self, problem, pairs, _PairNewton)


@dataclass(frozen=True, kw_only=True)
class NormFeatureSpace(_NormPath):
    """The native solver of those norms and l2 in the space of the features.

    Time is linear in the samples: O(N K F^2) a step, and O((K F)^3).
    """

    name: ClassVar[str] = "feature-space"

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Check that there is room for the features and for matrices of their order.

        Raises
        ------
        ValueError
            Another norm, or two classes.
        """
        if not has_features(problem):
            raise UnsuitableError(
                "this method takes many classes under the nuclear or spectral norm, l1, l2 or "
                f"linf, not {problem.norm!r}: choose solver='auto'"
            )
        order, K = class_features(problem), count_kinds(problem)
        self.check_memory(8 * (8 * order**2 + problem.n_samples * (order // K + 40 * K)))
        pairs = self.merged(problem)
        return _CentralPath(self, problem, pairs, _FeatureNewton)


class _CentralPath(Run):
    """The central path from a cold start."""

    def __init__(
        self,
        solver: _NormPath,
        problem: MarginProblem,
        pairs: tuple[Integers, Integers],
        newton: type[_Newton],
    ) -> None:
        self._problem, self._pairs, self._tolerances = problem, pairs, solver.tolerances
        self._deadline = Deadline.after(solver.max_seconds)
        self._best, self._newton = nothing_yet(problem), newton
        self._data = ClassPairs(problem, pairs, torch.device(solver.device))
        near = solver.near
        self._first = _cold(self._data) if near is None else _warm(self._data, near)

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self._best

    def steps(self) -> Steps:
        """Follow the central path."""
        data, point = self._data, self._first
        lower, upper, gap, waited = 0.0, np.inf, np.inf, 0
        # A smaller mu gains nothing, and loses digits of T.
        floor = CENTRING_FLOOR * self._tolerances.gap / point.n_pairs
        while True:
            view = _View(data, point)
            if view.lower > lower:
                lower = view.lower
                self._best = Answer(data.alpha(view.alpha), self._best.coef, self._best.intercept)
            if view.upper < upper:
                upper = view.upper
                coef, intercept = data.coef(view.zeta), data.intercept(point.b)
                self._best = Answer(self._best.alpha, coef, intercept)
            before, gap = gap, (upper - lower) / lower if lower > 0 else np.inf
            waited = 0 if gap < (1 - 1e-3) * before or not np.isfinite(gap) else waited + 1
            yield lower / data.scale, upper / data.scale
            if view.gordan_ratio > 1.0 / self._tolerances.infeasibility:
                alpha = data.alpha(view.alpha)
                self._best = Answer(alpha, 0.0 * self._best.coef, self._problem.no_offset)
                return Status.NOT_SEPARABLE
            if gap <= AIM * self._tolerances.gap:
                return Status.OPTIMAL
            try:
                if waited > PATIENCE:
                    raise Breakdown
                point = self._step(point, view, floor * max(lower, view.lower))
            except Breakdown:
                return Status.NUMERICAL_TROUBLE if np.isfinite(upper) else self._by_another_norm()

    def _step(self, point: Point, view: _View, floor: float) -> Point:
        newton = self._newton(self._data, point, view)
        mu = point.complementarity()
        predictor = newton.direction(0.0)
        after = point.moved(predictor.change, point.reach(predictor.change)).complementarity()
        target = max(min((after / mu) ** 3, 1.0) * mu, floor)
        step = newton.direction(target, predictor).change
        length = BOUNDARY_SHARE * point.reach(step)
        if length < SHORT:  # the predictor overshot: centre first
            centred = newton.direction(0.5 * mu).change
            longer = BOUNDARY_SHARE * point.reach(centred)
            step, length = max([(step, length), (centred, longer)], key=lambda x: x[1])
        return point.moved(step, min(1.0, length))

    def _by_another_norm(self) -> Status:
        """Ask with the Euclidean norm whether the pairs are separable: no norm changes that."""
        if len(self._pairs[0]) > MOST_PAIRS:  # a working set of pairs asks first
            return Status.NUMERICAL_TROUBLE
        posed = replace(self._problem, norm=L2())
        inner = InteriorPoint(
            tolerances=self._tolerances,
            max_seconds=self._deadline.left,
            device=self._data.X.device.type,
            rows=grouped_rows(posed, self._pairs),
        )
        found = inner.run(posed)
        if found.status is not Status.NOT_SEPARABLE:
            return Status.NUMERICAL_TROUBLE
        self._best = replace(self._best, alpha=found.alpha)
        return Status.NOT_SEPARABLE


def _cold(data: ClassPairs) -> Point:
    """Equal alpha, with V half way to the boundary (and to C)."""
    alpha = data.X.new_ones(len(data.place))
    V = data.dual_vectors(alpha)
    largest = data.dual_norm(V)
    level = 0.5 / largest if largest > 0 else 1.0
    if data.n_boxes:
        level = min(level, 0.5 * data.C / float(data.boxes.pool(alpha).max()))
    alpha, V = level * alpha, level * V
    total = 10.0 * float(alpha.sum())
    one = data.X.new_ones(1)
    w = (data.C - data.boxes.pool(alpha))[: data.n_boxes]
    X, t = V, one
    if data.free_t:
        largest = data.norm(V)
        X, t = V * (0.5 * total / largest if largest > 0 else 0.0), total * one
    if data.entries:
        T = torch.stack([t - X, t + X])
        R = torch.full_like(T, total / X.numel())
        if data.free_t:  # V = R_0 - R_1 and sum of R = 1
            share = 0.5 * (1.0 - data.dual_norm(V)) / X.numel()
            R = torch.stack([V.clamp(min=0.0), (-V).clamp(min=0.0)]) + share
    else:
        eye = torch.eye(len(V)).to(V)
        T = t * eye - X @ X.T / t
        R = total / len(eye) * eye
        if data.free_t:
            R = 2.0 * eye / (len(eye) + float((X * X).sum() / t**2))
    return Point(
        alpha=alpha,
        s=torch.ones_like(alpha),
        w=w,
        xi=torch.ones_like(w),
        X=X,
        t=t,
        R=R,
        T=T,
        b=data.X.new_zeros(data.E.shape[1]),
    )


def _warm(data: ClassPairs, near: Answer) -> Point:
    """Move the answer of a similar problem into the interior, on the central path of its gap."""
    alpha, zeta, b = data.of_answer(near)

    def inside(alpha: Tensor) -> Tensor:
        largest = data.dual_norm(data.dual_vectors(alpha))
        if data.n_boxes:
            largest = max(largest, float(data.boxes.pool(alpha).max()) / data.C)
        return alpha * (WARM_SHARE / largest) if largest > 0 else alpha

    alpha = inside(alpha)
    excess = data.margins(zeta) + data.E @ b - 1.0
    lower, norm = float(alpha.sum()), data.norm(zeta)
    if not (lower > 0 and norm > 0):
        return _cold(data)
    # What violations cost, at the price of the dearest pair.
    upper = norm + float(alpha.max()) * float((-excess).clamp(min=0.0).sum())
    gap = min(max(upper / lower - 1.0, LEAST_WARM), 1.0)
    mu = (
        gap
        * lower
        / (len(alpha) + data.n_boxes + (2 * zeta.numel() if data.entries else len(zeta)))
    )
    floor = float(alpha.mean()) * gap
    alpha = inside(torch.maximum(alpha, mu / excess.clamp(min=mu / floor)))
    w = (data.C - data.boxes.pool(alpha))[: data.n_boxes]
    V, one = data.dual_vectors(alpha), alpha.new_ones(1)
    X, other = (zeta, V) if data.free_t else (V, zeta)
    t = one * norm / WARM_SHARE if data.free_t else one
    R, T = multipliers(X, t, other, mu, entries=data.entries, free_t=data.free_t)
    return Point(
        alpha=alpha,
        s=torch.maximum(excess, mu / alpha),
        w=w,
        xi=torch.maximum(data.boxes.largest(-excess)[: len(w)], mu / w),
        X=X,
        t=t,
        R=R,
        T=T,
        b=b,
    )


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, data: ClassPairs, point: Point) -> None:
        p = point
        self.V = data.dual_vectors(p.alpha)
        self.imbalance = -(data.E.T @ p.alpha)
        # What is left of the equation as rounding leaves it would void the bound.
        self.alpha, of_bound = p.alpha, self.V
        balanced = not (self.imbalance.abs() > BALANCE * p.alpha.sum()).any()
        if balanced and len(self.imbalance):
            self.alpha = data.balanced(p.alpha)
            of_bound = data.dual_vectors(self.alpha)
        self.zeta = p.X if data.free_t else ball_of(p, entries=data.entries).value
        margins = data.margins(self.zeta) + data.E @ p.b
        self.residual = 1.0 + p.s - data.boxes.lift(p.xi) - margins
        total = float(self.alpha.sum())
        largest, norm = data.dual_norm(of_bound), data.norm(self.zeta)
        growth = 1.0 / largest if largest > 0 else np.inf
        self.gordan_ratio = float(self.alpha @ data.norms) * growth if balanced else 0.0
        if data.n_boxes:
            growth = min(growth, data.C / float(data.boxes.pool(self.alpha).max()))
            self.gordan_ratio = 0.0
            losses = data.boxes.largest(1.0 - margins).clamp(min=0.0)
            self.upper = norm + data.C * float(losses.sum())
        else:
            smallest = float(margins.min())
            self.upper = norm / smallest if smallest > 0 else np.inf
        self.lower = total * growth if balanced else 0.0


class _Newton(ABC):
    """The factorised Newton system at one iterate."""

    def __init__(self, data: ClassPairs, point: Point, view: _View) -> None:
        self.data, self.point, self.view = data, point, view
        self.ball = ball_of(point, entries=data.entries)
        self.factor()

    @abstractmethod
    def factor(self) -> None:
        """Factorise the system."""

    @abstractmethod
    def of_V(self, right: Tensor, fixed: Tensor, missing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for dalpha, U and db.

        D dalpha + Phi (K U + fixed) + E db = right and U = Phi' dalpha + missing.
        """

    @abstractmethod
    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        """Solve for dalpha, U, dt and db.

        D dalpha + Phi (U + Y dt) + E db = right, K U - pull dt - Phi' dalpha = first, and
        tau dt - <pull, U> - <Y, Phi' dalpha> = of_t.
        """

    def direction(self, mu: float, predictor: Direction | None = None) -> Direction:
        """Step towards the central path at mu, with the predictor's second-order terms."""
        data, p, ball, view = self.data, self.point, self.ball, self.view
        at_alpha, at_w = mu - p.alpha * p.s, mu - p.w * p.xi
        if predictor is not None:
            at_alpha = at_alpha - predictor.change.alpha * predictor.change.s
            at_w = at_w - predictor.change.w * predictor.change.xi
        terms = ball.terms(mu, predictor)
        right = view.residual + at_alpha / p.alpha - data.boxes.lift(at_w / p.w)
        if data.free_t:
            missing = view.V - ball.value
            of_t = terms.of_t + float((missing * ball.Y).sum())
            alpha, U, dt, b = self.of_zeta(right, missing - terms.other, of_t)
        else:
            alpha, U, b = self.of_V(right, terms.other, view.V - p.X)
            dt = 0.0
        R, T = ball.change(terms, U, dt)
        pooled = data.boxes.pool(alpha)[: len(p.w)]
        change = Point(
            alpha=alpha,
            s=(at_alpha - p.s * alpha) / p.alpha,
            w=-pooled,
            xi=(at_w + p.xi * pooled) / p.w,
            X=U + ball.Y * dt,
            t=torch.full_like(p.t, dt),
            R=R,
            T=T,
            b=b,
        )
        return Direction(change, U)


class _PairNewton(_Newton):
    """In the space of the pairs."""

    def factor(self) -> None:
        data, p, ball = self.data, self.point, self.ball
        A, border, slack = ball.in_pairs(data)
        if data.free_t:
            self.of_pull = ball.compliance(ball.pull)
            border = data.margins(self.of_pull + ball.Y)[:, None]
        A.diagonal().add_(p.s / p.alpha)
        if data.n_boxes:
            A = data.boxes.added_to(A, p.xi / p.w)
        self.L, self.border = cholesky(A), torch.hstack([border, data.E])
        self.H = torch.linalg.solve_triangular(self.L, self.border, upper=False)
        schur = self.H.T @ self.H
        schur.diagonal()[: len(slack)] += slack
        self.schur = cholesky(schur) if len(schur) else schur

    def of_V(self, right: Tensor, fixed: Tensor, missing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        data, n = self.data, self.border.shape[1] - self.data.E.shape[1]
        alpha, b, U = torch.zeros_like(right), torch.zeros_like(self.view.imbalance), missing
        for _ in range(REFINEMENTS):
            lacking = right - data.margins(fixed + self.ball.other(U)) - self._over_pairs(alpha, b)
            c = torch.cat([right.new_zeros(n), self.view.imbalance - data.E.T @ alpha])
            change, y = self._solve(lacking, c)
            alpha, b = alpha + change, b + y[n:]
            U = data.dual_vectors(alpha) + missing
        return alpha, U, b

    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        data, ball = self.data, self.ball
        alpha, b = torch.zeros_like(right), torch.zeros_like(self.view.imbalance)
        U, dt, V = torch.zeros_like(first), 0.0, torch.zeros_like(first)
        for _ in range(REFINEMENTS):
            of_alpha = right - data.margins(U + ball.Y * dt) - self._over_pairs(alpha, b)
            of_U = first + V + dt * ball.pull - ball.other(U)
            along = of_t - ball.tau * dt + float((ball.pull * U + ball.Y * V).sum())
            moved = ball.compliance(of_U)
            along += float((ball.pull * moved).sum())
            imbalance = self.view.imbalance - data.E.T @ alpha
            c = torch.cat([right.new_full((1,), -along), imbalance])
            change, y = self._solve(of_alpha - data.margins(moved), c)
            pull = data.dual_vectors(change) + float(y[0]) * ball.pull + of_U
            U, dt = U + ball.compliance(pull), dt + float(y[0])
            alpha, b = alpha + change, b + y[1:]
            V = data.dual_vectors(alpha)
        return alpha, U, dt, b

    def _over_pairs(self, alpha: Tensor, b: Tensor) -> Tensor:
        """D alpha + E b."""
        p, data = self.point, self.data
        of_samples = data.boxes.lift(data.boxes.pool(alpha)[: len(p.w)] * p.xi / p.w)
        return p.s / p.alpha * alpha + of_samples + data.E @ b

    def _solve(self, right: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Solve A dalpha + border y = right, border' dalpha - slack y = c."""
        h = torch.linalg.solve_triangular(self.L, right[:, None], upper=False)
        y = h.new_zeros(len(c), 1)
        if len(c):
            y = torch.cholesky_solve(self.H.T @ h - c[:, None], self.schur)
        alpha = torch.linalg.solve_triangular(self.L.T, h - self.H @ y, upper=True)
        return alpha[:, 0], y[:, 0]


class _FeatureNewton(_Newton):
    """In the space of the features."""

    def factor(self) -> None:
        data, p, ball = self.data, self.point, self.ball
        self.h = p.alpha / p.s
        self.shares: Tensor | None = None
        if data.n_boxes:
            self.shares = 1.0 / (p.w / p.xi + data.boxes.pool(self.h))
        self.extra = data.E
        if data.free_t:
            self.extra = torch.hstack([data.margins(ball.Y)[:, None], data.E])
            inner = ball.matrix()
        else:
            self.K = cholesky(ball.matrix())
            inner = torch.cholesky_inverse(self.K)
        n, q = len(inner), self.extra.shape[1]
        self.stiffness = inner.new_zeros(n + q, n + q)  # of (U, t, b) or (zeta, b)
        self.stiffness[:n, :n] = inner
        if data.free_t:
            self.stiffness[:n, n] = self.stiffness[n, :n] = -ball.pull.reshape(-1)
            self.stiffness[n, n] = ball.tau
        H = self.stiffness.clone()
        H[:n, :n] += data.normal_matrix(self.h, self.shares)
        for k, column in enumerate(self.extra.T):
            weighted = self._over(column)
            across = data.dual_vectors(weighted).reshape(-1)
            H[:n, n + k] += across
            H[n + k, :n] += across
            H[n:, n + k] += self.extra.T @ weighted
        self.L = cholesky(H)

    def of_V(self, right: Tensor, fixed: Tensor, missing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first = missing.reshape(-1) + self._over_K(fixed)
        alpha, zeta, b = self._solve(right, first, -self.view.imbalance)
        return alpha, self._over_K(zeta.reshape(fixed.shape) - fixed).reshape(fixed.shape), b

    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        more = torch.cat([right.new_full((1,), of_t), -self.view.imbalance])
        alpha, U, y = self._solve(right, first.reshape(-1), more)
        return alpha, U.reshape(first.shape), float(y[0]), y[1:]

    def _over_K(self, values: Tensor) -> Tensor:
        return torch.cholesky_solve(values.reshape(-1, 1), self.K)[:, 0]

    def _over(self, values: Tensor) -> Tensor:
        """D^-1 of a vector (P,)."""
        weighted = self.h * values
        if self.shares is None:
            return weighted
        return weighted - self.h * (self.shares * self.data.boxes.pool(weighted))[self.data.place]

    def _solve(self, right: Tensor, first: Tensor, more: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return dalpha, coefficients, and t and b, of the right-hand sides.

        D^-1 multiplies the rounding of the margins, so the equations are refined with dalpha.
        """
        data, n = self.data, len(first)
        whole = torch.cat([first, more])
        x = torch.zeros_like(whole)
        alpha = self._over(right)
        for _ in range(REFINEMENTS):
            pull = torch.cat([data.dual_vectors(alpha).reshape(-1), self.extra.T @ alpha])
            residual = whole + pull - self.stiffness @ x
            x = x + torch.cholesky_solve(residual[:, None], self.L)[:, 0]
            alpha = self._over(right - data.margins(x[:n]) - self.extra @ x[n:])
        return alpha, x[:n], x[n:]
