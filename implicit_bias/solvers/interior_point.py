r"""Primal-dual interior point on the dual QCQP in N variables.

Primal  minimise  sum_g ||zeta_g|| + C sum_n xi_n
        subject to  y_n f(x_n) >= 1 - xi_n,   xi >= 0

Dual    maximise  sum_n alpha_n
        subject to  0 <= alpha_n <= C,   ||V_g(alpha)||^2 / 2 <= 1/2

KKT     Q(d) alpha - b = s - r,   Q(d) = sum_g d_g Q_g
        ||V_g(alpha)||^2 / 2 + t_g = 1/2
        s_n alpha_n = mu,   r_n w_n = mu,   d_g t_g = mu,      b = 1, mu -> 0

        Then zeta_g = d_g V_g and y_n f(x_n) = (Q(d) alpha)_n = b_n + s_n - r_n.

======  =======  ==========================================================================
alpha   (N,)     dual variables of the margin problem
s       (N,)     multipliers of alpha >= 0: what a margin exceeds 1 by
w       (N,)     C - alpha (soft margin only)
r       (N,)     multipliers of alpha <= C: the hinge losses (soft margin only)
t       (G,)     slacks of the norm constraints
d       (G,)     their multipliers: the group scales
V       (M, D)   V_m = sum_n alpha_n y_n z_mn x_n
U       (N, G)   U_g = Q_g alpha = y o sum_(m in g) z_m o (X V_m): through feature space
K       (N, N)   (y y') o (X X')
======  =======  ==========================================================================

A Newton step eliminates s, r, w and t and leaves

        [ A   U         ] [dalpha]   [b]        A = K o (Z diag(d) Z') + diag(s/alpha + r/w)
        [ U'  -diag(t/d)] [dd    ] = [c]

solved by one Cholesky factorisation of A and one of its Schur complement of order G. (Adding
U diag(d/t) U' to A instead costs as much and loses eight digits: d/t grows like 1/mu.)
Mehrotra's predictor sets the centring; its second-order terms, those of ||V||^2 and Q(d) alpha
included, enter the corrector, which uses the same factors. Typically 10 to 15 steps reach a gap
of 1e-10.

Three things save time and change nothing else. Until the gap is COARSE_GAP the steps are computed
in float32, if its range holds the scales of the samples. From there on, samples that are clearly
no support vectors are left out of the system (`_Split`): their alpha = mu / s is known, its drift
as mu falls enters the right-hand side, and their s is read off the margins. And the products are
those of `kernel`: inside, features have norm 1 and b_n is not 1 (see there).

A warm start begins at the solution of a problem nearby, moved into the interior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from implicit_bias.certificate import Status
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import (
    Candidate,
    Log,
    Report,
    Solver,
    Start,
    Tolerances,
    silent,
)
from implicit_bias.solvers.scaled_problem import Kernel, Rows, peak_memory

MAX_ITERATIONS = 100
# Share of the way to the boundary that a step may go.
BOUNDARY_SHARE = 0.995
# A cautious step shorter than this is compared with more careful ones.
SHORT = 0.1
# mu need not fall below this share of what the gap tolerance asks for.
CENTRING_FLOOR = 0.05
# A warm start is as far inside as the point of the central path with its gap, or this one.
LEAST_WARM = 1e-3
WARM_SHARE = 0.98
# Down to this gap and violation, and to a doubt as large whether the data are separable, the steps
# are computed in float32: far from the optimum half the digits steer as well, in half the time.
COARSE_GAP = 0.01
COARSE_INFEASIBILITY = 1e-4
# Below this gap, where all idle alpha together are a few percent, a sample becomes idle where its
# margin exceeds 1 by CLEAR, and s/alpha the diagonal of Q(d) by STIFFNESS, once so large a share of
# the system may go; it comes back below STILL_CLEAR.
IDLE_GAP = 0.02
CLEAR = 0.3
STIFFNESS = 10.0
LEAST_LEAVING = 0.1
STILL_CLEAR = 0.1
# The solver aims a little below the tolerance, because the certificate rounds differently.
AIM = 0.9
# So many steps without this relative progress in a bound or the gap, and rounding has won.
PATIENCE = 10
CAUTIOUS_PATIENCE = 30
LEAST_PROGRESS = 1e-3
# Gaps below this one are of rounding.
ROUNDING = 1e-14


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(Solver):
    """The native solver: a dozen Newton steps, each one Cholesky factorisation of order N."""

    def run(
        self, problem: MarginProblem, report: Report = silent, start: Start | None = None
    ) -> Candidate:
        """Solve on ``device``; the module's head explains the method."""
        self.check_memory(peak_memory(problem.n_samples, problem))
        device = torch.device(self.device)
        log = Log(report)
        fine = self.tolerances
        coarse = Tolerances(
            gap=max(COARSE_GAP, fine.gap),
            feasibility=max(COARSE_GAP, fine.feasibility),
            infeasibility=max(COARSE_INFEASIBILITY, fine.infeasibility),
        )
        kernel = Kernel(problem, device, torch.float32)
        found, point = _nothing(problem), None
        if kernel.in_range:
            run = self._follow(kernel, _first(kernel, start), log, coarse)
            found = _candidate(kernel, run, log)
            stopped = run.status in (Status.INTERRUPTED, Status.ITERATION_LIMIT)
            if stopped or (run.status is Status.OPTIMAL and coarse == fine):
                return found
            reached = run.status in (Status.OPTIMAL, Status.NOT_SEPARABLE)
            point = run.point.to(torch.float64) if reached else None
            del run
        del kernel  # its memory is needed
        try:
            kernel = Kernel(problem, device)
            run = self._follow(kernel, point or _first(kernel, start), log, fine)
            if run.status is Status.NUMERICAL_TROUBLE:
                run = self._follow(kernel, _cold(kernel), log, fine, run.best, cautious=True)
            if len(log.history) > found.iterations:
                found = _candidate(kernel, run, log)
            return replace(found, status=run.status)
        except KeyboardInterrupt:  # outside of the steps
            return replace(found, status=Status.INTERRUPTED)

    def _follow(
        self,
        kernel: Kernel,
        point: _Point,
        log: Log,
        tolerances: Tolerances,
        best: _Best | None = None,
        *,
        cautious: bool = False,
    ) -> _Run:
        """Follow the central path from a point until `_stop` says why not further."""
        best = best or _Best(kernel)
        best.waited = 0
        split = _Split.none_idle(kernel)
        try:
            while len(log.history) < (self.max_iterations or MAX_ITERATIONS):
                view = _View(kernel, point, split)
                best.update(point, view)
                log.add(best.lower / kernel.scale, best.upper / kernel.scale)
                if (stop := _stop(best, view, tolerances)) is not None:
                    return _Run(stop, split.whole(kernel, point, view), best)
                if best.waited > (CAUTIOUS_PATIENCE if cautious else PATIENCE):
                    return _Run(Status.NUMERICAL_TROUBLE, point, best)
                if best.gap < IDLE_GAP and not cautious:
                    point, split = split.renewed(kernel, point, view)
                newton = _Newton(split, point, view)
                mu = point.complementarity()
                predictor = newton.direction(0.0)
                reach = point.reach(predictor)
                after = point.moved(predictor, reach).complementarity()
                enough = CENTRING_FLOOR * tolerances.gap * best.lower / kernel.n_pairs
                target = max((after / mu) ** 3 * mu, enough)
                step = newton.direction(target, predictor)
                if cautious and point.reach(step) < SHORT:
                    # The predictor overshot: trust its second-order terms less, or centre first.
                    shorter = [newton.direction(target, predictor, reach**k) for k in (1, 2)]
                    centred = [newton.direction(share * mu) for share in (0.1, 1.0)]
                    step = max([step, *shorter, *centred], key=point.reach)
                length = min(1.0, BOUNDARY_SHARE * point.reach(step))
                point = point.moved(step, length)
                split = split.moved(view, target, length)
        except _Breakdown:
            return _Run(Status.NUMERICAL_TROUBLE, point, best)
        except KeyboardInterrupt:
            return _Run(Status.INTERRUPTED, point, best)
        return _Run(Status.ITERATION_LIMIT, point, best)


def _stop(best: _Best, view: _View, tolerances: Tolerances) -> Status | None:
    if view.gordan_ratio > 1.0 / tolerances.infeasibility:
        best.alpha = view.alpha
        return Status.NOT_SEPARABLE
    if best.gap <= AIM * tolerances.gap and view.violation <= tolerances.feasibility:
        return Status.OPTIMAL
    return None


@dataclass(frozen=True, eq=False)
class _Run:
    """How following the central path ended, and where."""

    status: Status
    point: _Point
    best: _Best


def _candidate(kernel: Kernel, run: _Run, log: Log) -> Candidate:
    best = run.best
    return Candidate(
        alpha=(best.alpha / kernel.nu).cpu().double().numpy(),
        coef=kernel.coef(best.V, best.d) / kernel.scale,
        status=run.status,
        iterations=len(log.history),
        history=tuple(log.history),
    )


def _nothing(problem: MarginProblem) -> Candidate:
    """Return what is known before the first step."""
    return Candidate(
        alpha=np.zeros(problem.n_samples),
        coef=np.zeros((problem.n_gates, problem.X.shape[1])),
        status=Status.NUMERICAL_TROUBLE,
        iterations=0,
    )


class _Breakdown(ArithmeticError):
    """Rounding has made the Newton system indefinite."""


@dataclass(frozen=True)
class _Point:
    """An iterate, or a direction. w and r have length 0 with the hard margin."""

    alpha: Tensor
    t: Tensor
    w: Tensor
    s: Tensor
    d: Tensor
    r: Tensor

    @property
    def primal(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.alpha, self.t, self.w

    @property
    def dual(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.s, self.d, self.r

    def complementarity(self) -> float:
        """Mean product of the complementary pairs, mu."""
        pairs = list(zip(self.primal, self.dual, strict=True))
        return float(sum(torch.dot(a, b) for a, b in pairs)) / sum(len(a) for a, _ in pairs)

    def reach(self, direction: _Point) -> float:
        """Longest step, at most 1, that keeps all variables non-negative.

        One step for all variables: Q(d) alpha is bilinear, and unequal steps in d and alpha
        would undo the progress of its residual.
        """
        values, changes = self.primal + self.dual, direction.primal + direction.dual
        rates = [float((-dx / x).max()) for x, dx in zip(values, changes, strict=True) if len(x)]
        return 1.0 / max(1.0, *rates)

    def moved(self, direction: _Point, step: float) -> _Point:
        values, changes = self.primal + self.dual, direction.primal + direction.dual
        return _Point(*(x + step * dx for x, dx in zip(values, changes, strict=True)))

    def of(self, samples: Tensor) -> _Point:
        """Restrict it to some samples (indices)."""
        parts = (x[samples] if len(x) else x for x in (self.alpha, self.w, self.s, self.r))
        alpha, w, s, r = parts
        return _Point(alpha, self.t, w, s, self.d, r)

    def to(self, dtype: torch.dtype) -> _Point:
        return _Point(*(x.to(dtype) for x in self.primal + self.dual))


def _cold(kernel: Kernel) -> _Point:
    """Equal alpha, half way to the nearest norm constraint (and to C); equal group scales."""
    ones = kernel.full(kernel.n_samples, 1.0)
    V = kernel.rows.dual_vectors(ones)
    largest = float(kernel.rows.inner(V, V).max().sqrt())
    level = min(0.5 / largest if largest > 0 else 1.0, 0.5 * float(kernel.C.min()))
    alpha = level * ones
    # Above the order of the lower bound, as sum(d) will be.
    total = 10.0 * level * float(kernel.b.sum())
    n_box = kernel.n_samples if kernel.soft else 0
    return _Point(
        alpha=alpha,
        t=0.5 * (1.0 - level**2 * kernel.rows.inner(V, V)),
        w=(kernel.C - level)[:n_box],
        s=ones,
        d=kernel.full(kernel.n_groups, total / kernel.n_groups),
        r=ones[:n_box],
    )


def _first(kernel: Kernel, start: Start | None) -> _Point:
    return _cold(kernel) if start is None else _warm(kernel, start)


def _warm(kernel: Kernel, start: Start) -> _Point:
    """Move the solution of a problem nearby into the interior.

    Each complementary pair is raised to a product of mu at least, that of the start's own gap.
    """
    alpha = kernel.full(kernel.n_samples, 0.0)
    alpha[: len(start.alpha)] = kernel.tensor(start.alpha)
    alpha = (alpha * kernel.nu).clamp(max=WARM_SHARE * kernel.C)
    V = kernel.rows.dual_vectors(alpha)
    largest = float(kernel.rows.inner(V, V).max().sqrt())
    if largest == 0.0:
        return _cold(kernel)
    alpha *= WARM_SHARE / largest
    d = kernel.scale * kernel.tensor(start.group_scale)
    excess = kernel.rows.group_products(V) @ (d / largest) - kernel.b  # margins beyond 1
    # What violations cost, at the price of the dearest sample.
    price = float(alpha.max())
    lower = float(kernel.b @ alpha)
    upper = float(d.sum()) + price * float((-excess).clamp(min=0.0).sum())
    gap = min(max(upper / lower - 1.0, LEAST_WARM), 1.0)
    mu = gap * lower / kernel.n_pairs
    floor = float(alpha.mean()) * gap
    alpha = torch.maximum(alpha, mu / excess.clamp(min=mu / floor))
    alpha = alpha.clamp(max=WARM_SHARE * kernel.C)
    s = torch.maximum(excess, mu / alpha)
    V = kernel.rows.dual_vectors(alpha)
    squares = kernel.rows.inner(V, V)
    shrink = min(1.0, WARM_SHARE / float(squares.max().sqrt()))
    alpha *= shrink
    t = 0.5 * (1.0 - shrink**2 * squares)
    w = (kernel.C - alpha)[: kernel.n_samples if kernel.soft else 0]
    return _Point(
        alpha=alpha,
        t=t,
        w=w,
        s=s,
        d=torch.maximum(d, mu / t),
        r=torch.maximum(-excess[: len(w)], mu / w),
    )


@dataclass(frozen=True, eq=False)
class _Split:
    """Which samples are in the Newton system.

    The others are idle: so clearly no support vectors (their diagonal s/alpha dwarfs Q(d)) that
    they follow the central path by themselves, with s what their margin exceeds 1 by, computed
    anew at each iterate, and alpha = mu / s. So leaving them out costs no dual feasibility.
    """

    everything: Rows
    rows: Rows
    free: Tensor  # (F,), indices of the samples in the system, in order
    idle: Tensor  # (N,), bool
    alpha: Tensor  # (N,), of the idle samples

    @classmethod
    def none_idle(cls, kernel: Kernel) -> _Split:
        free = torch.arange(kernel.n_samples, device=kernel.device)
        nothing = kernel.full(kernel.n_samples, 0.0)
        return cls(kernel.rows, kernel.rows, free, nothing > 0, nothing)

    def full_alpha(self, point: _Point) -> Tensor:
        """Return alpha of all samples, (N,)."""
        return self.alpha.index_copy(0, self.free, point.alpha)

    def drift(self, view: _View) -> tuple[Tensor, Tensor]:
        """Change of V when the idle alpha go to mu / s, as its parts at mu = 0 and 1."""
        away = torch.where(self.idle, -self.alpha, 0.0)
        inverse = torch.where(self.idle, 1.0 / view.excess, 0.0)
        return self.everything.dual_vectors(away), self.everything.dual_vectors(inverse)

    def moved(self, view: _View, mu: float, step: float) -> _Split:
        """Idle samples on their way to their place on the central path at mu."""
        alpha = torch.where(self.idle, self.alpha + step * (mu / view.excess - self.alpha), 0.0)
        return _Split(self.everything, self.rows, self.free, self.idle, alpha)

    def whole(self, kernel: Kernel, point: _Point, view: _View) -> _Point:
        """Return the iterate of all samples."""
        mu = point.complementarity()
        s = torch.maximum(view.excess, mu / view.alpha).index_copy(0, self.free, point.s)
        w, r = point.w, point.r
        if kernel.soft:
            w = (kernel.C - view.alpha).index_copy(0, self.free, w)
            r = (mu / w).index_copy(0, self.free, r)
        return _Point(alpha=view.alpha, t=point.t, w=w, s=s, d=point.d, r=r)

    def renewed(self, kernel: Kernel, point: _Point, view: _View) -> tuple[_Point, _Split]:
        """Choose again who is idle, if many became so or some must come back."""
        whole = self.whole(kernel, point, view)
        stiff = whole.s > STIFFNESS * whole.alpha * self.everything.curvature_diagonal(point.d)
        clear = (view.excess > CLEAR * kernel.b) & stiff
        still = self.idle & (view.excess > STILL_CLEAR * kernel.b)
        idle = clear | still
        leaving = int(idle.sum()) - int(still.sum())
        if torch.equal(still, self.idle) and leaving < LEAST_LEAVING * len(self.free):
            return point, self
        free = torch.nonzero(~idle)[:, 0]
        rows = self.everything.subset(free)
        return whole.of(free), _Split(self.everything, rows, free, idle, view.alpha)


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, kernel: Kernel, point: _Point, split: _Split) -> None:
        self.alpha = split.full_alpha(point)  # (N,), idle samples included
        self.V = kernel.rows.dual_vectors(self.alpha)
        self.U = kernel.rows.group_products(self.V)
        squares = kernel.rows.inner(self.V, self.V)
        margins = self.U @ point.d
        self.excess = margins - kernel.b  # (N,)
        self.primal_residual = 0.5 - point.t - 0.5 * squares  # (G,)
        norm = float(torch.dot(point.d, squares.sqrt()))
        smallest = float((margins / kernel.b).min())
        if kernel.soft:
            self.violation = 0.0
            self.upper = norm + float(kernel.C @ (kernel.b - margins).clamp(min=0.0))
        else:
            self.violation = max(1.0 - smallest, 0.0)
            self.upper = norm / smallest if smallest > 0 else np.inf
        largest = float(squares.max().sqrt())
        growth = 1.0 / largest if largest > 0 else np.inf
        # Features have norm 1 here. A soft margin always has a solution.
        self.gordan_ratio = 0.0 if kernel.soft else float(self.alpha.sum()) * growth
        within_box = float((kernel.C / self.alpha).min())
        self.lower = float(kernel.b @ self.alpha) * min(growth, within_box)


class _Best:
    """The best bounds so far and what attains them."""

    def __init__(self, kernel: Kernel) -> None:
        self.alpha = kernel.full(kernel.n_samples, 0.0)
        self.V = kernel.rows.dual_vectors(self.alpha)
        self.d = kernel.full(kernel.n_groups, 0.0)
        self.lower, self.upper, self.gap, self.waited = 0.0, np.inf, np.inf, 0

    def update(self, point: _Point, view: _View) -> None:
        better = view.lower > (1.0 + LEAST_PROGRESS) * self.lower
        if view.lower > self.lower:
            self.lower, self.alpha = view.lower, view.alpha
        if view.upper <= self.upper:
            self.upper, self.V, self.d = view.upper, view.V, point.d
        gap = max((self.upper - self.lower) / self.lower, ROUNDING)
        better = better or gap < (1.0 - LEAST_PROGRESS) * self.gap
        self.waited = 0 if better else self.waited + 1
        self.gap = min(gap, self.gap)


class _Newton:
    """The factorised Newton system at one iterate."""

    def __init__(self, split: _Split, point: _Point, view: _View) -> None:
        self.rows, self.point, self.V = split.rows, point, view.V
        self.dual_residual = point.s - _lift(point.r) - view.excess[split.free]  # (F,)
        self.primal_residual = view.primal_residual  # (G,)
        self.drift = split.drift(view)
        barrier = point.s / point.alpha + _lift(point.r / point.w)
        self.L = _factor(lambda: split.rows.curvature(point.d), barrier)
        W = torch.linalg.solve_triangular(self.L, view.U[split.free], upper=False)  # (F, G)
        self.schur = _factor(lambda: W.T @ W, point.t / point.d)
        self.W = W

    def direction(self, mu: float, predictor: _Point | None = None, weight: float = 1.0) -> _Point:
        """Step towards the central path at mu, with the predictor's second-order terms.

        ``weight`` scales those terms, which hold for a full step of the predictor.
        """
        p, rows = self.point, self.rows
        at_alpha, at_t, at_w = mu - p.s * p.alpha, mu - p.d * p.t, mu - p.r * p.w
        # What the idle samples do on their own.
        drift = self.drift[0] + mu * self.drift[1]  # (M' + 1, D')
        dual_residual = self.dual_residual - rows.group_products(drift) @ p.d
        primal_residual = self.primal_residual - rows.inner(self.V, drift)
        if predictor is not None:
            at_alpha = at_alpha - weight * predictor.s * predictor.alpha
            at_t = at_t - weight * predictor.d * predictor.t
            at_w = at_w - weight * predictor.r * predictor.w
            dV = rows.dual_vectors(predictor.alpha) + self.drift[0]
            primal_residual = primal_residual - 0.5 * weight * rows.inner(dV, dV)
            curvature = rows.group_products(dV) @ predictor.d
            dual_residual = dual_residual - weight * curvature
        b = dual_residual + at_alpha / p.alpha - _lift(at_w / p.w)
        c = primal_residual - at_t / p.d
        alpha, d = self._solve(b, c)
        return _Point(
            alpha=alpha,
            t=(at_t - p.t * d) / p.d,
            w=-alpha[: len(p.w)],
            s=(at_alpha - p.s * alpha) / p.alpha,
            d=d,
            r=(at_w + p.r * alpha[: len(p.w)]) / p.w,
        )

    def _solve(self, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.linalg.solve_triangular(self.L, b[:, None], upper=False)
        d = torch.cholesky_solve(self.W.T @ h - c[:, None], self.schur)
        alpha = torch.linalg.solve_triangular(self.L.T, h - self.W @ d, upper=True)
        return alpha[:, 0], d[:, 0]


def _lift(values: Tensor) -> Tensor | float:
    """Box multipliers as a vector over the samples: 0 where there is no box."""
    return values if len(values) else 0.0


def _factor(matrix: Callable[[], Tensor], diagonal: Tensor) -> Tensor:
    """Lower factor of a matrix, made anew for each trial, plus a diagonal.

    Rounding may ask for a little more on the diagonal.

    Raises
    ------
    _Breakdown
        Not positive definite even so.
    """
    info = torch.empty((), dtype=torch.int32, device=diagonal.device)
    for size in (0.0, 1e-15, 1e-13, 1e-11):
        A = matrix()
        A.diagonal().add_(diagonal)
        A.diagonal().add_(size * A.diagonal().mean())
        torch.linalg.cholesky_ex(A, out=(A, info))  # in place
        if not info:
            return A
    raise _Breakdown
