r"""Primal-dual interior point on the dual QCQP in N variables.

Primal  minimise  sum_g ||zeta_g|| + C sum_n xi_n
        subject to  y_n (f(x_n) + beta) >= 1 - xi_n,   xi >= 0

Dual    maximise  sum_n alpha_n
        subject to  0 <= alpha_n <= C,   ||V_g(alpha)||^2 / 2 <= 1/2,   e' alpha = 0

KKT     Q(d) alpha + e beta - b = s - r,   Q(d) = sum_g d_g Q_g
        ||V_g(alpha)||^2 / 2 + t_g = 1/2,   e' alpha = 0
        s_n alpha_n = mu,   r_n w_n = mu,   d_g t_g = mu,      b = 1, e = y, mu -> 0

        Then zeta_g = d_g V_g and y_n (f(x_n) + beta) = (Q(d) alpha + e beta)_n = b_n + s_n - r_n.
        The intercept beta and the equation e' alpha = 0 are there only if the problem has one.

======  =======  ==========================================================================
alpha   (N,)     dual variables of the margin problem
s       (N,)     multipliers of alpha >= 0: what a margin exceeds 1 by
w       (N,)     C - alpha (soft margin only)
r       (N,)     multipliers of alpha <= C: the hinge losses (soft margin only)
t       (G,)     slacks of the norm constraints
d       (G,)     their multipliers: the group scales
beta    (1,)     multiplier of e' alpha = 0: the intercept; (0,) without one, and so e is (N, 0)
V       (M, D)   V_m = sum_n alpha_n y_n z_mn x_n
U       (N, G)   U_g = Q_g alpha = y o sum_(m in g) z_m o (X V_m): through feature space
K       (N, N)   (y y') o (X X')
======  =======  ==========================================================================

A Newton step eliminates s, r, w and t and leaves

        [ A   U           e ] [dalpha]   [b]        A = K o (Z diag(d) Z') + diag(s/alpha + r/w)
        [ U'  -diag(t/d)  0 ] [dd    ] = [c]
        [ e'  0           0 ] [dbeta ]   [-e' alpha]

solved by one Cholesky factorisation of A and one of its Schur complement of order G + 1. (Adding
U diag(d/t) U' to A instead costs as much and loses eight digits: d/t grows like 1/mu.)
Mehrotra's predictor sets the centring; its second-order terms, those of ||V||^2 and Q(d) alpha
included, enter the corrector, which uses the same factors. Typically 10 to 15 steps reach a gap
of 1e-10.

Three things save time and change nothing else. Until the gap is COARSE_GAP the steps are computed
in float32, if its range holds the scales of the samples. From there on, samples that are clearly
no support vectors are left out of the system (`_Split`): their alpha = mu / s is known, its drift
as mu falls enters the right-hand side, and their s is read off the margins. And the products are
those of `scaled_problem`: inside, features have norm 1 and b_n is not 1 (see there).

A warm start begins at the solution of a similar problem, moved into the interior.

With many classes the rows are pairs of samples and rivals (`rows`), e has K - 1 columns, and w and
r are one a sample: diag(r/w) becomes one constant block a sample (`Boxes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import Rows, grouped_rows
from implicit_bias.solvers.base import Start, Tolerances
from implicit_bias.solvers.iteration import Answer, NativeSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.scaled_pairs import ScaledPairs
from implicit_bias.solvers.scaled_problem import Boxes, ScaledProblem, ScaledSamples, peak_memory

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
# Where this saves time, with many rows, a tolerance that float32 can hold is reached in it, and
# float64 has only to verify the bounds.
COARSE_GAP, FLOAT32_GAP, MANY_ROWS = 0.01, 1e-4, 1000
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
# After this many steps without this relative progress in a bound or the gap, stagnation is
# attributed to rounding.
PATIENCE = 10
CAUTIOUS_PATIENCE = 30
LEAST_PROGRESS = 1e-3
# Below this a gap changes by rounding alone.
NOISE = 1e-12
TINY = float(np.finfo(np.float64).tiny)
# Gaps below this one are of rounding.
ROUNDING = 1e-14


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(NativeSolver):
    """The native solver: a dozen Newton steps, each one Cholesky factorisation of order N.

    Parameters
    ----------
    rows : Rows, optional
        The constraints to solve with, from `grouped_rows`: a working set. All by default.
    """

    takes_classes: ClassVar[bool] = True

    rows: Rows | None = None

    name: ClassVar[str] = "interior-point"
    own_limit: ClassVar[int] = MAX_ITERATIONS

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Check that there is room for the matrices of order N."""
        rows = grouped_rows(problem) if self.rows is None else self.rows
        self.check_memory(peak_memory(len(rows), problem))
        return _InteriorPointRun(self, problem, rows, start)


class _InteriorPointRun(Run):
    """The central path, followed first in float32 and then in float64."""

    def __init__(
        self, solver: InteriorPoint, problem: MarginProblem, rows: Rows, start: Start | None
    ) -> None:
        self._device, self._tolerances = torch.device(solver.device), solver.tolerances
        self._problem, self._rows, self._start = problem, rows, start
        self._settled = nothing_yet(problem)
        self._current: tuple[ScaledProblem, _Best] | None = None

    def answer(self) -> Answer:
        """Return what attains the best bounds of the present precision."""
        if self._current is None:
            return self._settled
        scaled, best = self._current
        return scaled.answer(best.alpha, best.V, best.d, best.beta)

    def steps(self) -> Steps:
        """Compute steps in float32 until the gap is coarse, the others in float64."""
        fine = self._tolerances
        enough = FLOAT32_GAP if len(self._rows) >= MANY_ROWS else COARSE_GAP
        coarse = Tolerances(
            gap=fine.gap if fine.gap >= enough else max(COARSE_GAP, fine.gap),
            feasibility=max(COARSE_GAP, fine.feasibility),
            infeasibility=max(COARSE_INFEASIBILITY, fine.infeasibility),
        )
        point: _Point | None = None
        scaled = ScaledProblem(self._problem, self._device, torch.float32, self._rows)
        if scaled.in_range:
            path = yield from self._follow(scaled, _first(scaled, self._start), coarse)
            if path.status is Status.OPTIMAL and coarse == fine:
                return Status.OPTIMAL
            reached = path.status in (Status.OPTIMAL, Status.NOT_SEPARABLE)
            point = path.point.to(torch.float64) if reached else None
            self._settled, self._current = self.answer(), None
            del path
        layout = scaled.layout
        del scaled  # its memory is needed
        scaled = ScaledProblem(self._problem, self._device, layout=layout)
        path = yield from self._follow(scaled, point or _first(scaled, self._start), fine)
        if path.status is Status.NUMERICAL_TROUBLE:
            cold = _cold(scaled)
            path = yield from self._follow(scaled, cold, fine, path.best, cautious=True)
        return path.status

    def _follow(
        self,
        scaled: ScaledProblem,
        point: _Point,
        tolerances: Tolerances,
        best: _Best | None = None,
        *,
        cautious: bool = False,
    ) -> Generator[tuple[float, float], None, _Path]:
        """Follow the central path from a point until `_stop` says why not further."""
        best = best or _Best(scaled)
        best.waited = 0
        split = _Split.none_idle(scaled)
        try:
            while True:
                view = _View(scaled, point, split)
                best.update(point, view)
                self._current = scaled, best
                yield best.lower / scaled.scale, best.upper / scaled.scale
                if (stop := _stop(best, view, tolerances)) is not None:
                    return _Path(stop, split.whole(scaled, point, view), best)
                if best.waited > (CAUTIOUS_PATIENCE if cautious else PATIENCE):
                    return _Path(Status.NUMERICAL_TROUBLE, point, best)
                if best.gap < IDLE_GAP and not cautious and scaled.boxes.index is None:
                    point, split = split.renewed(scaled, point, view)
                newton = _Newton(split, point, view, scaled.boxes)
                mu = point.complementarity()
                predictor = newton.direction(0.0)
                reach = point.reach(predictor)
                after = point.moved(predictor, reach).complementarity()
                enough = CENTRING_FLOOR * tolerances.gap * best.lower / scaled.n_pairs
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
            return _Path(Status.NUMERICAL_TROUBLE, point, best)


def _stop(best: _Best, view: _View, tolerances: Tolerances) -> Status | None:
    if view.gordan_ratio > 1.0 / tolerances.infeasibility:
        best.alpha = view.alpha
        return Status.NOT_SEPARABLE
    if best.gap <= AIM * tolerances.gap and view.violation <= tolerances.feasibility:
        return Status.OPTIMAL
    return None


@dataclass(frozen=True, eq=False)
class _Path:
    """How following the central path ended, and where."""

    status: Status
    point: _Point
    best: _Best


class _Breakdown(ArithmeticError):
    """Rounding has made the Newton system indefinite."""


@dataclass(frozen=True, eq=False)
class _Point:
    """An iterate, or a direction.

    w and r have length 0 with the hard margin, and beta without an intercept.
    """

    alpha: Tensor
    t: Tensor
    w: Tensor
    s: Tensor
    d: Tensor
    r: Tensor
    beta: Tensor

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
        rates = [-float((dx / x).min()) for x, dx in zip(values, changes, strict=True) if len(x)]
        return 1.0 / max(1.0, *rates)

    def moved(self, direction: _Point, step: float) -> _Point:
        values, changes = self._all, direction._all
        return _Point(*(x + step * dx for x, dx in zip(values, changes, strict=True)))

    def of(self, samples: Tensor) -> _Point:
        """Restrict it to some samples (indices)."""
        parts = (x[samples] if len(x) else x for x in (self.alpha, self.w, self.s, self.r))
        alpha, w, s, r = parts
        return _Point(alpha, self.t, w, s, self.d, r, self.beta)

    def to(self, dtype: torch.dtype) -> _Point:
        return _Point(*(x.to(dtype) for x in self._all))

    @property
    def _all(self) -> tuple[Tensor, ...]:
        return (*self.primal, *self.dual, self.beta)


def _cold(scaled: ScaledProblem) -> _Point:
    """Equal alpha, half way to the nearest norm constraint (and to C); equal group scales."""
    ones = scaled.full(scaled.n_samples, 1.0)
    equal = scaled.balanced(ones)
    V = scaled.rows.dual_vectors(equal)
    largest = float(scaled.rows.inner(V, V).max().sqrt())
    within_box = 0.5 * float((scaled.box_C / scaled.boxes.pool(equal)).min())
    level = min(0.5 / largest if largest > 0 else 1.0, within_box)
    alpha = level * equal
    # Above the order of the lower bound, as sum(d) will be.
    total = 10.0 * level * float(scaled.b.sum())
    return _Point(
        alpha=alpha,
        t=0.5 * (1.0 - level**2 * scaled.rows.inner(V, V)),
        w=(scaled.box_C - scaled.boxes.pool(alpha))[: scaled.n_boxes],
        s=ones,
        d=scaled.full(scaled.n_groups, total / scaled.n_groups),
        r=ones[: scaled.n_boxes],
        beta=scaled.offset(),
    )


def _first(scaled: ScaledProblem, start: Start | None) -> _Point:
    return _cold(scaled) if start is None else _warm(scaled, start)


def _warm(scaled: ScaledProblem, start: Start) -> _Point:
    """Move the solution of a similar problem into the interior.

    Each complementary pair is raised to a product of mu at least, that of the start's own gap.
    """
    alpha = _within(scaled, scaled.start_alpha(start))
    V = scaled.rows.dual_vectors(alpha)
    largest = float(scaled.rows.inner(V, V).max().sqrt())
    if largest == 0.0:
        return _cold(scaled)
    alpha *= WARM_SHARE / largest
    d = scaled.scale * scaled.tensor(start.group_norms)
    beta = scaled.offset(start)
    # Margins beyond 1.
    excess = scaled.rows.group_products(V) @ (d / largest) + scaled.e @ beta - scaled.b
    # What violations cost, at the price of the dearest sample.
    price = float(alpha.max())
    lower = float(scaled.b @ alpha)
    upper = float(d.sum()) + price * float((-excess).clamp(min=0.0).sum())
    if not (lower > 0.0 and math.isfinite(upper)):  # in float32, perhaps
        return _cold(scaled)
    gap = min(max(upper / lower - 1.0, LEAST_WARM), 1.0)
    mu = gap * lower / scaled.n_pairs
    floor = float(alpha.mean()) * gap
    alpha = torch.maximum(alpha, mu / excess.clamp(min=mu / floor))
    alpha = _within(scaled, alpha)
    alpha = scaled.balanced(alpha)
    s = torch.maximum(excess, mu / alpha)
    V = scaled.rows.dual_vectors(alpha)
    squares = scaled.rows.inner(V, V)
    largest = float(squares.max().sqrt())
    if largest == 0.0:
        return _cold(scaled)
    shrink = min(1.0, WARM_SHARE / largest)
    alpha *= shrink
    t = 0.5 * (1.0 - shrink**2 * squares)
    w = (scaled.box_C - scaled.boxes.pool(alpha))[: scaled.n_boxes]
    return _Point(
        alpha=alpha,
        t=t,
        w=w,
        s=s,
        d=torch.maximum(d, mu / t),
        r=torch.maximum(scaled.boxes.largest(-excess)[: len(w)], mu / w),
        beta=beta,
    )


def _within(scaled: ScaledProblem, alpha: Tensor) -> Tensor:
    """Return alpha (N,) inside the boxes."""
    if scaled.boxes.index is None:
        return alpha.clamp(max=WARM_SHARE * scaled.C)
    share = WARM_SHARE * scaled.box_C / scaled.boxes.pool(alpha).clamp(min=TINY)
    return alpha * scaled.boxes.lift(share.clamp(max=1.0))


@dataclass(frozen=True, eq=False)
class _Split:
    """Which samples are in the Newton system.

    The others are idle: so clearly no support vectors (their diagonal s/alpha dwarfs Q(d)) that
    they follow the central path by themselves, with s what their margin exceeds 1 by, computed
    anew at each iterate, and alpha = mu / s. So leaving them out costs no dual feasibility.
    """

    everything: ScaledSamples | ScaledPairs
    rows: ScaledSamples | ScaledPairs
    e: Tensor  # (N, 1) or (N, 0)
    free: Tensor  # (F,), indices of the samples in the system, in order
    idle: Tensor  # (N,), bool
    alpha: Tensor  # (N,), of the idle samples

    @classmethod
    def none_idle(cls, scaled: ScaledProblem) -> _Split:
        free = torch.arange(scaled.n_samples, device=scaled.device)
        nothing = scaled.full(scaled.n_samples, 0.0)
        return cls(scaled.rows, scaled.rows, scaled.e, free, nothing > 0, nothing)

    @property
    def any_idle(self) -> bool:
        """Whether there are idle samples."""
        return len(self.free) < len(self.idle)

    def full_alpha(self, point: _Point) -> Tensor:
        """Return alpha of all samples, (N,)."""
        return self.alpha.index_copy(0, self.free, point.alpha) if self.any_idle else point.alpha

    def of_free(self, values: Tensor) -> Tensor:
        """Restrict values of all samples, (N, ...), to those in the system, (F, ...)."""
        return values[self.free] if self.any_idle else values

    def drift(self, view: _View) -> tuple[Tensor, Tensor]:
        """Change of the idle alpha (N,) when they go to mu / s, as its parts at mu = 0 and 1."""
        away = torch.where(self.idle, -self.alpha, 0.0)
        return away, torch.where(self.idle, 1.0 / view.excess, 0.0)

    def moved(self, view: _View, mu: float, step: float) -> _Split:
        """Idle samples on their way to their place on the central path at mu."""
        if not self.any_idle:
            return self
        alpha = torch.where(self.idle, self.alpha + step * (mu / view.excess - self.alpha), 0.0)
        return _Split(self.everything, self.rows, self.e, self.free, self.idle, alpha)

    def whole(self, scaled: ScaledProblem, point: _Point, view: _View) -> _Point:
        """Return the iterate of all samples; none is idle where samples share boxes."""
        if scaled.boxes.index is not None:
            return point
        mu = point.complementarity()
        s = torch.maximum(view.excess, mu / view.alpha).index_copy(0, self.free, point.s)
        w, r = point.w, point.r
        if scaled.soft:
            w = (scaled.C - view.alpha).index_copy(0, self.free, w)
            r = (mu / w).index_copy(0, self.free, r)
        return _Point(alpha=view.alpha, t=point.t, w=w, s=s, d=point.d, r=r, beta=point.beta)

    def renewed(self, scaled: ScaledProblem, point: _Point, view: _View) -> tuple[_Point, _Split]:
        """Choose again who is idle, if many became so or some must come back."""
        whole = self.whole(scaled, point, view)
        stiff = whole.s > STIFFNESS * whole.alpha * self.everything.curvature_diagonal(point.d)
        clear = (view.excess > CLEAR * scaled.b) & stiff
        still = self.idle & (view.excess > STILL_CLEAR * scaled.b)
        idle = clear | still
        leaving = int(idle.sum()) - int(still.sum())
        if torch.equal(still, self.idle) and leaving < LEAST_LEAVING * len(self.free):
            return point, self
        free = torch.nonzero(~idle)[:, 0]
        rows = self.everything.subset(free)
        return whole.of(free), _Split(self.everything, rows, self.e, free, idle, view.alpha)


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, scaled: ScaledProblem, point: _Point, split: _Split) -> None:
        self.alpha = split.full_alpha(point)  # (N,), idle samples included
        self.V = scaled.rows.dual_vectors(self.alpha)
        self.U = scaled.rows.group_products(self.V)
        squares = scaled.rows.inner(self.V, self.V)
        margins = self.U @ point.d
        if scaled.n_offsets:
            margins = margins + scaled.e @ point.beta
        self.excess = margins - scaled.b  # (N,)
        self.imbalance = scaled.e.T @ self.alpha  # (1,) or (0,)
        self.primal_residual = 0.5 - point.t - 0.5 * squares  # (G,)
        norm = float(torch.dot(point.d, squares.sqrt()))
        self.upper, self.violation = scaled.upper(norm, margins)
        largest = float(squares.max().sqrt())
        growth = 1.0 / largest if largest > 0 else np.inf
        # Features have norm 1 here. A soft margin always has a solution.
        self.gordan_ratio = 0.0 if scaled.soft else float(self.alpha.sum()) * growth
        if scaled.soft:
            growth = min(growth, float((scaled.box_C / scaled.boxes.pool(self.alpha)).min()))
        self.lower = float(scaled.b @ self.alpha) * growth
        if scaled.n_offsets:
            size = scaled.e.abs().T @ self.alpha
            if (self.imbalance.abs() > scaled.balance_tolerance * size).any():
                self.lower = self.gordan_ratio = 0.0  # of another problem, without the intercept


class _Best:
    """The best bounds so far and what attains them."""

    def __init__(self, scaled: ScaledProblem) -> None:
        self.alpha = scaled.full(scaled.n_samples, 0.0)
        self.V = scaled.rows.dual_vectors(self.alpha)
        self.d = scaled.full(scaled.n_groups, 0.0)
        self.beta = scaled.offset()
        self.lower, self.upper, self.gap, self.waited = 0.0, np.inf, np.inf, 0

    def update(self, point: _Point, view: _View) -> None:
        better = view.lower > (1.0 + LEAST_PROGRESS) * self.lower
        if view.lower > self.lower:
            self.lower, self.alpha = view.lower, view.alpha
        if view.upper <= self.upper:
            self.upper, self.V, self.d, self.beta = view.upper, view.V, point.d, point.beta
        gap = max((self.upper - self.lower) / self.lower, ROUNDING) if self.lower > 0 else np.inf
        better = better or (self.gap > NOISE and gap < (1.0 - LEAST_PROGRESS) * self.gap)
        self.waited = 0 if better else self.waited + 1
        self.gap = min(gap, self.gap)


class _Newton:
    """The factorised Newton system at one iterate."""

    def __init__(self, split: _Split, point: _Point, view: _View, boxes: Boxes) -> None:
        self.rows, self.point, self.V, self.boxes = split.rows, point, view.V, boxes
        self.dual_residual = point.s - boxes.lift(point.r) - split.of_free(view.excess)  # (F,)
        self.primal_residual = view.primal_residual  # (G,)
        self.imbalance = view.imbalance
        # V (M' + 1, D') and e' alpha of what the idle samples do on their own, at mu = 0 and 1.
        drifts = split.drift(view) if split.any_idle else ()
        self.drifts = [(split.everything.dual_vectors(a), split.e.T @ a) for a in drifts]
        barrier, box = point.s / point.alpha, point.r / point.w

        def curvature() -> Tensor:
            Q = split.rows.curvature(point.d)
            return Q if boxes.index is None else boxes.added_to(Q, box)

        if boxes.index is None:
            barrier = barrier + boxes.lift(box)
        self.L = _factor(curvature, barrier)
        border = split.of_free(torch.hstack([view.U, split.e]))  # (F, G) or (F, G + 1)
        W = torch.linalg.solve_triangular(self.L, border, upper=False)
        slack = torch.cat([point.t / point.d, torch.zeros_like(point.beta)])
        self.schur = _factor(lambda: W.T @ W, slack)
        self.W = W

    def direction(self, mu: float, predictor: _Point | None = None, weight: float = 1.0) -> _Point:
        """Step towards the central path at mu, with the predictor's second-order terms.

        ``weight`` scales those terms, which hold for a full step of the predictor.
        """
        p, rows = self.point, self.rows
        at_alpha, at_t, at_w = mu - p.s * p.alpha, mu - p.d * p.t, mu - p.r * p.w
        dual_residual, primal_residual = self.dual_residual, self.primal_residual
        imbalance = self.imbalance
        if self.drifts:
            drift, more = (at_0 + mu * at_1 for at_0, at_1 in zip(*self.drifts, strict=True))
            dual_residual = dual_residual - rows.group_products(drift) @ p.d
            primal_residual = primal_residual - rows.inner(self.V, drift)
            imbalance = imbalance + more
        if predictor is not None:
            at_alpha = at_alpha - weight * predictor.s * predictor.alpha
            at_t = at_t - weight * predictor.d * predictor.t
            at_w = at_w - weight * predictor.r * predictor.w
            dV = rows.dual_vectors(predictor.alpha)
            if self.drifts:
                dV = dV + self.drifts[0][0]
            primal_residual = primal_residual - 0.5 * weight * rows.inner(dV, dV)
            curvature = rows.group_products(dV) @ predictor.d
            dual_residual = dual_residual - weight * curvature
        b = dual_residual + at_alpha / p.alpha - self.boxes.lift(at_w / p.w)
        c = torch.cat([primal_residual - at_t / p.d, -imbalance])
        alpha, multipliers = self._solve(b, c)
        d, beta = multipliers[: len(p.d)], multipliers[len(p.d) :]
        return _Point(
            alpha=alpha,
            t=(at_t - p.t * d) / p.d,
            w=-self.boxes.pool(alpha)[: len(p.w)],
            s=(at_alpha - p.s * alpha) / p.alpha,
            d=d,
            r=(at_w + p.r * self.boxes.pool(alpha)[: len(p.w)]) / p.w,
            beta=beta,
        )

    def _solve(self, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.linalg.solve_triangular(self.L, b[:, None], upper=False)
        d = torch.cholesky_solve(self.W.T @ h - c[:, None], self.schur)
        alpha = torch.linalg.solve_triangular(self.L.T, h - self.W @ d, upper=True)
        return alpha[:, 0], d[:, 0]


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
        if size:
            A.diagonal().add_(size * A.diagonal().mean())
        torch.linalg.cholesky_ex(A, out=(A, info))  # in place
        if not info:
            return A
    raise _Breakdown
