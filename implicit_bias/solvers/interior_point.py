r"""A primal-dual interior point on the balls of a norm, for any number of classes.

Primal  minimise  Omega(zeta) + C sum_n xi_n
        subject to  <phi_p, zeta> + (e beta)_p >= b_p - xi_n for all rows p of sample n,   xi >= 0

Dual    maximise  sum_p b_p alpha_p
        subject to  alpha >= 0,  sum of a sample's alpha_p <= C,  Omega_*(V) <= 1,  e' alpha = 0,
                    V = sum_p alpha_p phi_p

KKT     <phi_p, zeta> + (e beta)_p - b_p + xi_n = s_p,   V and zeta by the balls' R and T
        s_p alpha_p = mu,   xi_n w_n = mu,   R T = mu I,   w_n = C - sum of a sample's alpha,
        mu -> 0

======  =======  ==========================================================================
phi     (P, F)   features of the rows, never formed; a row is a sample, or a pair of a sample and
                 a rival (`scaled_problem`: features have norm 1, and b_p is not 1)
alpha   (P,)     dual variables of the margin problem
s       (P,)     multipliers of alpha >= 0: what a margin exceeds b_p by
w       (B,)     slacks of the boxes (soft margin only): one a row with two classes, else a sample
xi      (B,)     their multipliers, the hinge losses (soft margin only)
R, T             multipliers and slacks of the balls, see `balls`: of groups, G numbers each, the
                 group scales R_g = d_g of zeta_g = d_g V_g and T_g = 1/2 - ||V_g||^2 / 2
W, t             the matrix in a ball, and its radius: V and 1, or zeta and its norm
beta    (J,)     multiplier of e' alpha = 0: the intercept; (0,) without one, and so e is (P, 0)
======  =======  ==========================================================================

A Newton step eliminates s, xi, w and T and solves one system in the space of the rows, or of the
features (`newton`). Mehrotra's predictor sets the centring; its second-order terms enter the
corrector. Typically 10 to 15 steps reach a gap of 1e-10.

For groups, in the rows, two things save time and change nothing else. Until the gap is coarse the
steps are computed in float32 (`float32_stage`). From there on, samples that are clearly no support
vectors are left out of the system (`_Split`): their alpha = mu / s is known, its drift as mu falls
enters the right-hand side, and their s is read off the margins.

A warm start begins at the solution of a similar problem, moved into the interior.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.validation import check_choice
from implicit_bias.bounds.certificate import Status
from implicit_bias.norms import BALLS, entries_of, nuclear_groups
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.solvers import costs
from implicit_bias.solvers.balls import (
    WARM_SHARE,
    Ball,
    Balls,
    CentralPoint,
    ClassMatrices,
    EuclideanGroups,
    GroupsInFeatures,
)
from implicit_bias.solvers.base import Answer, Start, Tolerances
from implicit_bias.solvers.float32_stage import coarse_tolerances, in_float64
from implicit_bias.solvers.iteration import Breakdown, RowSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.newton import FeatureNewton, GroupNewton, Newton, RowNewton, System
from implicit_bias.solvers.scaled_problem import (
    TINY,
    ScaledProblem,
    ScaledRows,
    peak_memory,
)

# A warm start is as far inside as the point of the central path with its gap, or this one.
LEAST_WARM = 1e-3
# A start whose bounds are farther apart than by this factor takes more steps than none.
FARTHEST_WARM = 10.0
# A sample becomes idle where its margin exceeds 1 by CLEAR, and s/alpha the diagonal of Q(d) by
# STIFFNESS, once so large a share of the system may go; it comes back below STILL_CLEAR.
CLEAR = 0.3
STIFFNESS = 10.0
LEAST_LEAVING = 0.1
STILL_CLEAR = 0.1
# The solver aims a little below the tolerance, because the certificate rounds differently; but a
# gap that has not fallen for this many steps will do.
AIM, SETTLED = 0.9, 2
# Progress of a bound or the gap in a step, relative; with less for a while, stagnation is
# attributed to rounding.
LEAST_PROGRESS = 1e-3
# Once the gap is below this, a smaller gap is not counted as progress.
NOISE = 1e-12
# A computed gap is reported as no less than this.
ROUNDING = 1e-14
# Hard margins begin with V so many times outside of the balls, and margins so far above 1.
FAR, FAR_MARGIN = 5e3, 30.0
# From inside the balls a separator is found in so many steps, or the way is long.
SOON = 10
# Beyond this Gordan ratio alpha without a separator are taken for the way to a proof of none.
SUSPICIOUS = 1e4
# An estimated time is one of no fewer steps.
FEWEST_STEPS = 15
# Alpha are repaired, to obey e' alpha = 0 exactly, where they lack no more than this share.
BALANCE = 1e-3


@dataclass(frozen=True)
class Steering:
    """How far and how boldly steps go.

    Attributes
    ----------
    boundary_share : float
        Share of the way to the boundary that a step may go.
    floor : float
        mu need not fall below this share of what the gap tolerance asks for.
    patience : int
        Steps without progress after which stagnation is attributed to rounding.
    short : float
        A step shorter than this is compared with more careful ones: 0 for none.
    damping : tuple of int
        Those that trust the predictor's second-order terms less, by its reach to these powers.
    centring : tuple of float
        Those that centre first, at these shares of mu.
    kept : bool
        Whether T keeps the equation of the spectral ball (`Balls.moved`), for which steps are cut.
    """

    boundary_share: float
    floor: float
    patience: int
    short: float = 0.0
    damping: tuple[int, ...] = ()
    centring: tuple[float, ...] = ()
    kept: bool = False


# Balls with a W of their own lose digits near the boundary.
WITHOUT_W = Steering(boundary_share=0.995, floor=0.05, patience=10)
CAUTIOUS = replace(WITHOUT_W, patience=30, short=0.1, damping=(1, 2), centring=(0.1, 1.0))
WITH_W = Steering(boundary_share=0.99, floor=0.2, patience=12, short=0.05, centring=(0.5,))
CAUTIOUS_WITH_W = replace(
    WITH_W, boundary_share=0.9, patience=30, short=0.5, centring=(0.3, 0.8), kept=True
)


def is_not_euclidean(problem: MarginProblem) -> bool:
    """Whether the interior point takes the norm by `ClassMatrices`: no sum of l2 norms."""
    matrices = problem.norm in BALLS or nuclear_groups(problem.norm) is not None
    entries = entries_of(problem.norm) is not None
    return entries or (problem.classes is not None and matrices)


def class_features(problem: MarginProblem) -> int:
    """Return K F, the order of the system in the space of the features at most."""
    return math.prod(problem.norm_shape)


def memory_of_features(problem: MarginProblem) -> int:
    """Bytes that a solve in the space of the features may take at most beside the problem."""
    sizes = costs.Sizes.of(problem)
    of_sample = sizes.features + 40 * (sizes.coordinates + 1)
    return 8 * (8 * sizes.order**2 + sizes.samples * of_sample)


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(RowSolver):
    """The native solver: a dozen Newton steps, each one Cholesky factorisation.

    It takes sums of Euclidean norms over groups, l_p, and, with many classes, nuclear norms (of
    all, or of groups of gates) and the spectral norm.

    Parameters
    ----------
    system : str
        Where a step is solved for: in the space of the "rows", of the "features", or by "auto" in
        the one that is estimated to take less time (`costs`).
    coarse_gap : float
        Down to this gap float32 is enough (0: never): of sums of Euclidean norms all steps in the
        rows are computed in it, and in the features the products that make the matrix of a step.
    coarse_rows : int
        With fewer rows all are computed in float64: the change would take longer than it saves.
    idle_gap : float
        From this gap on clear samples are left out of systems of the rows: all idle alpha together
        are a few percent there.
    """

    system: Literal["auto", "rows", "features"] = "auto"
    coarse_gap: float = 0.01
    coarse_rows: int = 200
    idle_gap: float = 0.02

    name: ClassVar[str] = "interior-point"
    takes_classes: ClassVar[bool] = True
    own_limit: ClassVar[int] = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.system, "system", ("auto", "rows", "features"))

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Those of balls."""
        return is_not_euclidean(problem)

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Choose the system, and check that there is room for its matrices."""
        rows, system = self.chosen(problem), self.system
        of_a_step = 0.0
        if system == "auto" or self.max_seconds is not None:
            sizes, kind = costs.Sizes.of(problem).of_rows(len(rows)), costs.kind_of(problem)
            if system == "auto":
                system = costs.cheaper_system(sizes, kind, hard=problem.hard_margin)
            seconds = costs.of_interior_point(sizes, kind, system, hard=problem.hard_margin)
            of_a_step = seconds / FEWEST_STEPS
        run = self._run(problem, rows, start, system)
        run.of_a_step = of_a_step
        return run

    def _run(
        self,
        problem: MarginProblem,
        rows: Constraints,
        start: Start | None,
        system: Literal["rows", "features"],
    ) -> _CentralPath:
        """Return a run of a system, where there is room for its matrices."""
        euclidean = not is_not_euclidean(problem)
        if system == "features":
            self.check_memory(memory_of_features(problem))
            balls = GroupsInFeatures if euclidean else ClassMatrices
            return _CentralPath(self, problem, rows, start, balls, FeatureNewton)
        if euclidean:
            self.check_memory(peak_memory(len(rows), problem))
            return _CentralPath(
                self,
                problem,
                rows,
                start,
                EuclideanGroups,
                GroupNewton,
                float32=self.coarse_gap > 0.0 and len(rows) >= self.coarse_rows,
                idle_gap=self.idle_gap,
            )
        self.check_memory(peak_memory(len(rows), problem) + _memory_of_balls(problem, rows))
        return _CentralPath(self, problem, rows, start, ClassMatrices, RowNewton)


def _memory_of_balls(problem: MarginProblem, rows: Constraints) -> int:
    """Bytes that the balls of several groups take beside what one ball does."""
    groups = nuclear_groups(problem.norm)
    if groups is None:
        return 0
    samples, features = len(np.unique(rows.samples)), len(groups) * problem.X.shape[1]
    return 8 * int(groups.max() + 1) * (samples**2 + 8 * rows.n_classes * features)


# How following the central path ended, and where, after bounds.
_Path: TypeAlias = Generator[tuple[float, float], None, tuple[Status, CentralPoint | None]]


class _CentralPath(Run):
    """The central path, for groups in the rows followed first in float32, then in float64."""

    def __init__(
        self,
        solver: InteriorPoint,
        problem: MarginProblem,
        rows: Constraints,
        start: Start | None,
        balls: type[EuclideanGroups | ClassMatrices],
        newton: type[Newton[Any]],
        *,
        float32: bool = False,
        idle_gap: float = 0.0,
    ) -> None:
        self._device, self._tolerances = torch.device(solver.device), solver.tolerances
        self._has_W = balls is not EuclideanGroups
        if balls is ClassMatrices and start is not None and start.coef.shape != problem.coef_shape:
            start = None  # of other features
        self._problem, self._start = problem, start
        self._balls, self._newton, self._layout = balls, newton, balls.layout(problem, rows)
        # Whether coarse steps are all in float32, and the gap from which on without idle rows.
        self._coarse_gap, self._float32, self._idle_gap = solver.coarse_gap, float32, idle_gap
        self._settled = nothing_yet(problem)
        self._best: _Best | None = None

    def answer(self) -> Answer:
        """Return what attains the best bounds of the present precision."""
        return self._settled if self._best is None else self._best.answer()

    def steps(self) -> Steps:
        """Compute steps in float32 until the gap is coarse, the others in float64."""
        point = None
        fine = self._tolerances
        if self._float32:
            coarse = coarse_tolerances(fine, self._coarse_gap, len(self._layout.norms))
            status, point = yield from self._in_float32(coarse)
            if status is Status.OPTIMAL and coarse == fine:
                return status
            reached = status in (Status.OPTIMAL, Status.NOT_SEPARABLE)
            point = point if reached else None
            self._settled, self._best = self.answer(), None  # whose memory is needed
        balls = self._balls(ScaledProblem(self._layout, self._device))
        steering, cautious = WITHOUT_W, CAUTIOUS
        if self._has_W:
            steering, cautious = WITH_W, CAUTIOUS_WITH_W
        if isinstance(balls, ClassMatrices) and not balls.data.soft and self._start is None:
            # Most hard margins under norms of entries or singular values take fewer steps so.
            status, _ = yield from self._follow(balls, _inside(balls), fine, steering, SOON)
            if status is not Status.NUMERICAL_TROUBLE:
                return status
        first = in_float64(point, balls.data) if point else _first(balls, self._start)
        status, _ = yield from self._follow(balls, first, fine, steering)
        if status is Status.NUMERICAL_TROUBLE:
            status, _ = yield from self._follow(balls, _cold(balls), fine, cautious)
        return status

    def _in_float32(self, coarse: Tolerances) -> _Path:
        scaled = ScaledProblem(self._layout, self._device, torch.float32)
        if not scaled.in_range:
            return Status.NUMERICAL_TROUBLE, None
        balls = self._balls(scaled)
        return (yield from self._follow(balls, _first(balls, self._start), coarse, WITHOUT_W))

    def _follow(
        self,
        balls: Balls,
        point: CentralPoint,
        tolerances: Tolerances,
        steering: Steering,
        soon: float = math.inf,
    ) -> _Path:
        """Follow the central path from a point until `_stop` says why not further.

        It ends as trouble, too, where no iterate separates the samples within ``soon`` steps.
        """
        scaled = balls.data
        best = self._best = self._best or _Best(balls)
        best.waited = 0
        split = _Split.none_idle(scaled)
        # Rows are left out only where each has a box of its own.
        all_rows = steering is CAUTIOUS or scaled.boxes.index is not None
        idle_gap = 0.0 if all_rows else self._idle_gap
        n_products = scaled.n_rows + scaled.n_boxes + point.order
        move = balls.moved if steering.kept else CentralPoint.moved
        try:
            while True:
                view = _View(balls, point, split)
                best.update(point, view)
                yield best.lower / scaled.scale, best.upper / scaled.scale
                if (stop := _stop(best, view, tolerances)) is not None:
                    return stop, split.whole(scaled, point, view)
                if best.steps > soon and math.isinf(best.upper):
                    return Status.NUMERICAL_TROUBLE, point
                if best.waited > steering.patience:
                    return _at_a_standstill(best, view), point
                if best.gap < idle_gap:
                    point, split = split.renewed(scaled, point, view)
                # On the way to a proof of inseparability alpha needs all digits.
                coarse = 0.0 < self._coarse_gap < best.gap < math.inf
                system = split.system(scaled, point, view, coarse=coarse)
                newton = self._newton(system, point, view.ball)
                mu = point.complementarity()
                predictor = newton.direction(0.0)
                reach = point.reach(predictor.change)
                after = point.moved(predictor.change, reach).complementarity()
                least = steering.floor * tolerances.gap * best.lower / n_products
                target = max(min((after / mu) ** 3, 1.0) * mu, least)
                step = newton.direction(target, predictor).change
                reached = point.reach(step)
                if reached < steering.short:
                    # The predictor overshot.
                    damped = [
                        newton.direction(target, predictor, reach**k) for k in steering.damping
                    ]
                    centred = [newton.direction(share * mu) for share in steering.centring]
                    step = max([step, *(x.change for x in damped + centred)], key=point.reach)
                    reached = point.reach(step)
                if coarse and not newton.coarse:  # nor will it be at later steps
                    self._coarse_gap = math.inf
                length = min(1.0, steering.boundary_share * reached)
                point = move(point, step, length)
                split = split.moved(view, target, length)
        except Breakdown:
            return _at_a_standstill(best, view), point


def _at_a_standstill(best: _Best, view: _View) -> Status:
    """How a method ends that rounding keeps from going on.

    Where alpha has grown far and no coefficients separate, there may be none that do: a claim, for
    which a proof is sought.
    """
    if view.gordan_ratio > SUSPICIOUS and math.isinf(best.upper):
        return Status.NOT_SEPARABLE
    return Status.NUMERICAL_TROUBLE


def _stop(best: _Best, view: _View, tolerances: Tolerances) -> Status | None:
    if view.gordan_ratio > 1.0 / tolerances.infeasibility:
        best.alpha = view.of_bound
        return Status.NOT_SEPARABLE
    aim = AIM if best.waited < SETTLED else 1.0
    if best.gap <= aim * tolerances.gap and view.violation <= tolerances.feasibility:
        return Status.OPTIMAL
    return None


def _cold(balls: Balls) -> CentralPoint:
    """Return a first point without a start.

    With W of its own all products are equal, and alpha need not have V inside of the balls: what V
    lacks to be W vanishes with the first long steps. Soft margins begin half way to C with losses
    of about 1, hard ones far outside of the balls and with large margins to lose: from alpha with V
    inside, which is far below the best one where samples are many, steps would be short.
    """
    scaled = balls.data
    ones = scaled.full(scaled.n_rows, 1.0)
    if scaled.soft:
        alpha = 0.5 * ones * scaled.boxes.of_rows(scaled.box_C / scaled.boxes.pool(ones))
        loss = 1.0
    else:
        equal = scaled.balanced_inside(ones)
        largest = balls.dual_norm(balls.dual_vectors(equal))
        if not largest > 0.0:
            return _inside(balls)
        alpha, loss = float(FAR / largest) * equal, FAR_MARGIN
    w = (scaled.box_C - scaled.boxes.pool(alpha))[: scaled.n_boxes]
    mu = loss * float(scaled.b @ alpha) / max(len(w), scaled.n_rows * (not scaled.soft))
    of_balls = balls.centred(balls.dual_vectors(alpha), mu)
    if of_balls is None:
        return _inside(balls)
    return CentralPoint(
        **vars(of_balls), alpha=alpha, s=mu / alpha, w=w, xi=mu / w, beta=scaled.offset()
    )


def _inside(balls: Balls) -> CentralPoint:
    """Equal alpha, half way to the boundary of the nearest ball (and to C)."""
    scaled = balls.data
    ones = scaled.full(scaled.n_rows, 1.0)
    equal = scaled.balanced_inside(ones)
    V = balls.dual_vectors(equal)
    largest = balls.dual_norm(V)
    within_box = 0.5 * float((scaled.box_C / scaled.boxes.pool(equal)).min())
    level = min(0.5 / largest if largest > 0 else 1.0, within_box)
    alpha = level * equal
    # Above the order of the lower bound, as the norm will be.
    total = 10.0 * level * float(scaled.b.sum())
    return CentralPoint(
        **vars(balls.cold(level * V, total)),
        alpha=alpha,
        s=ones,
        w=(scaled.box_C - scaled.boxes.pool(alpha))[: scaled.n_boxes],
        xi=ones[: scaled.n_boxes],
        beta=scaled.offset(),
    )


def _first(balls: Balls, start: Start | None) -> CentralPoint:
    return _cold(balls) if start is None else _warm(balls, start)


def _warm(balls: Balls, start: Start) -> CentralPoint:
    """Move the solution of a similar problem into the interior.

    Each complementary pair is raised to a product of mu at least, that of the start's own gap.
    """
    scaled = balls.data

    def inside(alpha: Tensor, most: float = math.inf) -> Tensor | None:
        """Return alpha just inside the boxes and the balls, times this at most; None if it is 0."""
        if scaled.soft:
            share = WARM_SHARE * scaled.box_C / scaled.boxes.pool(alpha).clamp(min=TINY)
            alpha = alpha * scaled.boxes.of_rows(share.clamp(max=1.0))
        largest = balls.dual_norm(balls.dual_vectors(alpha))
        if largest > 0.0 and scaled.soft:
            largest = max(largest, float((scaled.boxes.pool(alpha) / scaled.box_C).max()))
        return alpha * min(most, WARM_SHARE / largest) if largest > 0.0 else None

    alpha = inside(scaled.start_alpha(start))
    if alpha is None:
        return _cold(balls)
    primal, margins = balls.of_start(start, balls.dual_vectors(alpha))
    beta = scaled.offset(start)
    excess = margins + scaled.e @ beta - scaled.b
    # What violations cost, at the price of the dearest row.
    price = float(alpha.max())
    lower, norm = float(scaled.b @ alpha), balls.norm(primal)
    upper = norm + price * float((-excess).clamp(min=0.0).sum())
    if not (norm > 0.0 and upper < FARTHEST_WARM * lower):
        return _cold(balls)
    gap = min(max(upper / lower - 1.0, LEAST_WARM), 1.0)
    mu = gap * lower / (scaled.n_rows + scaled.n_boxes + balls.order(primal))
    floor = float(alpha.mean()) * gap
    raised = torch.maximum(alpha, mu / excess.clamp(min=mu / floor))
    raised = scaled.balanced_inside(raised)
    alpha = inside(raised, 1.0)
    if alpha is None:
        return _cold(balls)
    w = (scaled.box_C - scaled.boxes.pool(alpha))[: scaled.n_boxes]
    return CentralPoint(
        **vars(balls.warm(balls.dual_vectors(alpha), primal, mu)),
        alpha=alpha,
        s=torch.maximum(excess, mu / raised),  # what takes alpha inside is no change of margins
        w=w,
        xi=torch.maximum(scaled.boxes.largest(-excess)[: len(w)], mu / w),
        beta=beta,
    )


@dataclass(frozen=True, eq=False)
class _Split:
    """Which rows are in the Newton system.

    The others are idle: so clearly no support vectors (their diagonal s/alpha dwarfs Q(d)) that
    they follow the central path by themselves, with s what their margin exceeds 1 by, computed
    anew at each iterate, and alpha = mu / s. So leaving them out costs no dual feasibility.
    """

    everything: ScaledRows
    rows: ScaledRows
    free: Tensor  # (F,), indices of the rows in the system, in order
    idle: Tensor  # (P,), bool
    alpha: Tensor  # (P,), of the idle rows

    @classmethod
    def none_idle(cls, scaled: ScaledProblem) -> _Split:
        free = torch.arange(scaled.n_rows, device=scaled.device)
        nothing = scaled.full(scaled.n_rows, 0.0)
        return cls(scaled.rows, scaled.rows, free, nothing > 0, nothing)

    @property
    def any_idle(self) -> bool:
        """Whether there are idle rows."""
        return self.free.numel() < self.idle.numel()

    def full_alpha(self, point: CentralPoint) -> Tensor:
        """Return alpha of all rows, (P,)."""
        return self.alpha.index_copy(0, self.free, point.alpha) if self.any_idle else point.alpha

    def system(
        self, scaled: ScaledProblem, point: CentralPoint, view: _View, *, coarse: bool
    ) -> System:
        """Return the system of the free rows."""
        residual, e, drifts = -view.excess, scaled.e, []
        if self.any_idle:
            residual, e = residual[self.free], e[self.free]
            # Change of the idle alpha on their way to mu / s: a constant part, and one per mu.
            away = torch.where(self.idle, -self.alpha, 0.0)
            per_mu = torch.where(self.idle, 1.0 / view.excess, 0.0)
            drifts = [(self.everything.dual_vectors(a), scaled.e.T @ a) for a in (away, per_mu)]
        residual = residual + point.s - scaled.boxes.of_rows(point.xi)
        free = self.free if self.any_idle else None
        return System(self.rows, scaled.boxes, free, e, residual, view.imbalance, drifts, coarse)

    def moved(self, view: _View, mu: float, step: float) -> _Split:
        """Idle rows on their way to their place on the central path at mu."""
        if not self.any_idle:
            return self
        alpha = torch.where(self.idle, self.alpha + step * (mu / view.excess - self.alpha), 0.0)
        return replace(self, alpha=alpha)

    def whole(self, scaled: ScaledProblem, point: CentralPoint, view: _View) -> CentralPoint:
        """Return the iterate of all rows; none is idle where rows share boxes."""
        if not self.any_idle:
            return point
        mu = point.complementarity()
        s = torch.maximum(view.excess, mu / view.alpha).index_copy(0, self.free, point.s)
        w, xi = point.w, point.xi
        if scaled.soft:
            w = (scaled.C - view.alpha).index_copy(0, self.free, w)
            xi = (mu / w).index_copy(0, self.free, xi)
        return replace(point, alpha=view.alpha, s=s, w=w, xi=xi)

    def renewed(
        self, scaled: ScaledProblem, point: CentralPoint, view: _View
    ) -> tuple[CentralPoint, _Split]:
        """Choose again who is idle, if many became so or some must come back."""
        whole = self.whole(scaled, point, view)
        stiff = whole.s > STIFFNESS * whole.alpha * self.everything.curvature_diagonal(point.R)
        clear = (view.excess > CLEAR * scaled.b) & stiff
        still = self.idle & (view.excess > STILL_CLEAR * scaled.b)
        idle = clear | still
        leaving = int(idle.sum()) - int(still.sum())
        if torch.equal(still, self.idle) and leaving < LEAST_LEAVING * len(self.free):
            return point, self
        free = torch.nonzero(~idle)[:, 0]
        boxed = free if scaled.soft else free[:0]
        kept = replace(
            whole, alpha=whole.alpha[free], s=whole.s[free], w=whole.w[boxed], xi=whole.xi[boxed]
        )
        return kept, _Split(self.everything, self.everything.subset(free), free, idle, view.alpha)


class _View:
    """What the equations and the bounds say of an iterate."""

    ball: Ball

    def __init__(self, balls: Balls, point: CentralPoint, split: _Split) -> None:
        scaled = balls.data
        self.alpha = self.of_bound = split.full_alpha(point)  # (P,), idle rows included
        V = balls.dual_vectors(self.alpha)
        self.ball = balls.at(point, V)
        margins = self.ball.margins
        self.imbalance = scaled.e.T @ self.alpha  # (J,)
        balanced, largest = True, self.ball.dual_norm
        if scaled.n_offsets:
            margins = margins + scaled.e @ point.beta
            rest, size = self.imbalance.abs(), scaled.e.abs().T @ self.alpha
            balanced = not bool((rest > BALANCE * size).any())
            if balanced and (rest > scaled.balance_tolerance * size).any():
                self.of_bound = scaled.balanced(self.alpha)
                largest = balls.dual_norm(balls.dual_vectors(self.of_bound))
        self.excess = margins - scaled.b  # (P,)
        self.upper, self.violation = scaled.upper(self.ball.norm, margins)
        growth = 1.0 / largest if largest > 0 else np.inf
        # Rows have norm 1 here: that of a sample's features, times sqrt(2) with a rival's label. A
        # soft margin always has a solution.
        share = 1.0 if scaled.rows.signed else 0.5**0.5
        ratio = share * float(self.of_bound.sum()) * growth
        self.gordan_ratio = 0.0 if scaled.soft else ratio
        if scaled.soft:
            growth = min(growth, float((scaled.box_C / scaled.boxes.pool(self.of_bound)).min()))
        self.lower = float(scaled.b @ self.of_bound) * growth
        if not balanced:
            self.lower = self.gordan_ratio = 0.0  # of another problem, without the intercept


class _Best:
    """The best bounds so far and what attains them."""

    def __init__(self, balls: Balls) -> None:
        self._scaled = balls.data
        self.alpha = balls.data.full(balls.data.n_rows, 0.0)
        self.primal: tuple[Tensor, Tensor] | None = None
        self.beta = balls.data.offset()
        self.lower, self.upper, self.gap = 0.0, np.inf, np.inf
        self.steps = self.waited = 0

    def update(self, point: CentralPoint, view: _View) -> None:
        self.steps += 1
        better = view.lower > (1.0 + LEAST_PROGRESS) * self.lower
        if view.lower > self.lower:
            self.lower, self.alpha = view.lower, view.of_bound
        if view.upper <= self.upper:
            scale = self._scaled.to_margin_1(view.ball.norm, view.upper)
            V, d = view.ball.primal
            self.upper, self.primal, self.beta = view.upper, (V, scale * d), scale * point.beta
        gap = max((self.upper - self.lower) / self.lower, ROUNDING) if self.lower > 0 else np.inf
        better = better or (self.gap > NOISE and gap < (1.0 - LEAST_PROGRESS) * self.gap)
        self.waited = 0 if better else self.waited + 1
        self.gap = min(gap, self.gap)

    def answer(self) -> Answer:
        """Return it in the problem's units."""
        if self.primal is None:
            return replace(
                nothing_yet(self._scaled.layout.problem), alpha=self._scaled.alpha(self.alpha)
            )
        return self._scaled.answer(self.alpha, *self.primal, self.beta)
