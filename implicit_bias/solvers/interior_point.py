r"""A primal-dual interior point on the cone of a norm, for any number of classes.

Primal  minimize  Omega(zeta) + C sum_n xi_n
        subject to  <phi_p, zeta> + (e beta)_p >= b_p - xi_n for all rows p of sample n,   xi >= 0

Dual    maximize  sum_p b_p alpha_p
        subject to  alpha >= 0,  sum of a sample's alpha_p <= C,  Omega_*(V) <= 1,  e' alpha = 0,
                    V = sum_p alpha_p phi_p

KKT     <phi_p, zeta> + (e beta)_p - b_p + xi_n = s_p,   V and zeta by the cone   (margins)
        w_n = C - sum of a sample's alpha,   e' alpha = 0                            (box)
        s_p alpha_p = mu,   xi_n w_n = mu,   R T = mu I,   mu -> 0                   (path)

======  =======  ==========================================================================
phi     (P, F)   features of the rows, never formed; a row is a sample, or a pair of a sample and
                 a rival (`scaling`: features have norm 1, and b_p is not 1)
alpha   (P,)     dual variables of the margin problem
s       (P,)     multipliers of alpha >= 0: what a margin exceeds b_p by
w       (B,)     slacks of the boxes (soft margin only): one a row with two classes, else a sample
xi      (B,)     their multipliers, the hinge losses (soft margin only)
R, T             multiplier and slack of the cone, see `cones`: of groups, G numbers each, the
                 group scales R_g = d_g of zeta_g = d_g V_g and T_g = 1/2 - ||V_g||^2 / 2
W, t             the matrix in the cone, and its radius: V and 1, or zeta and its norm
beta    (J,)     multiplier of e' alpha = 0: the intercept; (0,) without one, and so e is (P, 0)
Q(d)    (P, P)   what rows see of d at Euclidean groups: the sum of d_g times the Gram matrix of the
                 rows' features in group g (`scaled_rows`)
======  =======  ==========================================================================

A Newton step eliminates s, xi, w and T and solves one system in the space of the rows, or of the
features (`newton`). Mehrotra's predictor sets the centring; its second-order terms enter the
corrector. Typically 10 to 15 steps reach a gap of 1e-10.

Each iterate yields two bounds. The upper bound is the objective of zeta, scaled to unit margin; the
lower bound is b' alpha, scaled into Omega_*(V) <= 1 and the boxes.

For groups, in the rows, two things save time and change nothing else.

Float32   Far from the optimum half the digits give as good a step. So the first steps are computed
          in float32, in half the time, until the gap is coarse, or it is doubtful whether the data
          are separable. With many rows, and a tolerance that float32 can reach, all of them are.
          Then float64 has only to compute the bounds of the last iterate.
Idle      When the gap is coarse, samples that are clearly no support vectors (s / alpha dwarfs the
rows      diagonal of Q(d)) are left out of the system. They follow the central path by themselves:
          their s is what their margin exceeds b by, their alpha tends to mu / s, and its
          drift enters the right-hand side. So leaving them out costs no dual feasibility.

A warm start begins at the solution of a similar problem, moved into the interior.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from implicit_bias.base.validation import check_choice
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.solvers import costs
from implicit_bias.solvers.base import Answer, Start, Tolerances
from implicit_bias.solvers.cones import (
    ClassCone,
    Cone,
    EntryCone,
    FeatureGroupCone,
    GroupCone,
    Iterate,
    NuclearCone,
    SpectralCone,
    class_cone,
)
from implicit_bias.solvers.iteration import Breakdown, RowSolver, Run, Steps, zero_answer
from implicit_bias.solvers.newton import (
    Drift,
    FeatureNewton,
    FixedRadiusRowNewton,
    FreeRadiusRowNewton,
    GroupRowNewton,
    Newton,
)
from implicit_bias.solvers.scaled_rows import TINY
from implicit_bias.solvers.scaling import ScaledProblem


def has_class_cone(problem: MarginProblem) -> bool:
    """Whether a `ClassCone` takes the norm; all others have to be sums of Euclidean norms."""
    return costs.kind_of(problem) in ("entries", "matrices")


@dataclass(frozen=True)
class StepRule:
    """How far steps go, and what replaces a short one.

    Attributes
    ----------
    boundary_share : float
        Fraction of the way to the boundary that a step may go.
    floor : float
        mu need not fall below this fraction of what the gap tolerance asks for.
    patience : int
        Steps without progress after which stagnation is attributed to rounding.
    short : float
        A step shorter than this is compared with more careful ones: 0 for none.
    damping : tuple of int
        Those that trust the predictor's second-order terms less, by its length to these powers.
    centre_first : tuple of float
        Those that centre first, at these fractions of mu.
    keeps_equations : bool
        Whether T keeps the equation of the spectral cone (`Cone.moved`), for which steps are cut.
    """

    boundary_share: float
    floor: float
    patience: int
    short: float = 0.0
    damping: tuple[int, ...] = ()
    centre_first: tuple[float, ...] = ()
    keeps_equations: bool = False


@dataclass(frozen=True)
class Stage:
    """One way to follow the central path.

    Attributes
    ----------
    dtype : torch.dtype
        The precision.
    first : str
        The first iterate: that of the "start" (from scratch where there is none), from "scratch",
        or "inside" of the cone.
    tolerances : Tolerances
        When it ends.
    step_rule : StepRule
        How far steps go.
    idle_gap : float
        From this gap on rows may be idle.
    soon : float
        It gives up where no iterate separates the samples within so many steps.
    """

    dtype: torch.dtype
    first: Literal["start", "scratch", "inside"]
    tolerances: Tolerances
    step_rule: StepRule
    idle_gap: float = 0.0
    soon: float = math.inf


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(RowSolver):
    """The built-in solver: a dozen Newton steps, each one Cholesky factorization.

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
    float32_gap, many_rows : float, int
        From so many rows on a tolerance down to this gap is reached in float32.
    coarse_infeasibility : float
        The doubt, as a tolerance, whether the data are separable, with which float32 ends.
    idle_gap : float
        From this gap on clear samples are left out of systems of the rows: all idle alpha together
        are a few percent there.
    clear, stiffness : float
        A row becomes idle where its margin exceeds b by the fraction ``clear``, and s / alpha the
        diagonal of Q(d) by the factor ``stiffness``.
    least_leaving : float
        Rows leave the system only when they are at least this fraction of it: the smaller system
        needs a Gram matrix of its own.
    still_clear : float
        An idle row comes back where its margin exceeds b by less than this fraction.
    aim, settled : float, int
        The solver aims at this fraction of the tolerance, because the certificate rounds
        differently; but a gap that has not fallen for so many steps will do.
    least_progress : float
        Progress of a bound or of the gap in a step, relative; with less for a while, stagnation is
        attributed to rounding.
    noise : float
        Once the gap is below this, a smaller gap does not count as progress.
    rounding : float
        A computed gap is reported as no less than this.
    balance : float
        Alpha are repaired, to obey e' alpha = 0 exactly, where they lack no more than this
        fraction.
    suspicious : float
        A stage that stalls without a separator ends as "not separable" where the Gordan ratio of
        its alpha is above this: then `solve` looks for a proof.
    far, far_margin : float
        A hard margin with a W begins at alpha whose V has this many times the radius of the cone,
        and at s of this many times the mean of b alpha, over alpha.
    soon : int
        A stage that begins inside of the cone gives up where it has no separator after so many
        steps: from elsewhere the way is shorter then.
    least_warm : float
        A warm start is moved as far inside as a point of the central path whose gap is that of the
        start, or this one if it is larger.
    farthest_warm : float
        A start whose bounds are farther apart than by this factor takes more steps than none.
    fewest_steps : int
        The estimated time of a solve is taken to be that of so many steps: to know the time of one.
    """

    system: Literal["auto", "rows", "features"] = "auto"
    coarse_gap: float = 0.01
    coarse_rows: int = 200
    float32_gap: float = 1e-4
    many_rows: int = 1000
    coarse_infeasibility: float = 1e-4
    idle_gap: float = 0.02
    clear: float = 0.3
    stiffness: float = 10.0
    least_leaving: float = 0.1
    still_clear: float = 0.1
    aim: float = 0.9
    settled: int = 2
    least_progress: float = 1e-3
    noise: float = 1e-12
    rounding: float = 1e-14
    balance: float = 1e-3
    suspicious: float = 1e4
    far: float = 5e3
    far_margin: float = 30.0
    soon: int = 10
    least_warm: float = 1e-3
    farthest_warm: float = 10.0
    fewest_steps: int = 15

    name: ClassVar[str] = "interior-point"
    takes_classes: ClassVar[bool] = True
    own_limit: ClassVar[int] = 100
    # The first try, and the one that follows the path again where the first ends in numerical
    # trouble. Cones with a W of their own lose digits near the boundary: they keep away from it.
    bold: ClassVar[StepRule] = StepRule(boundary_share=0.995, floor=0.05, patience=10)
    cautious: ClassVar[StepRule] = replace(
        bold, patience=30, short=0.1, damping=(1, 2), centre_first=(0.1, 1.0)
    )
    bold_with_W: ClassVar[StepRule] = StepRule(  # noqa: N815 - W is a name
        boundary_share=0.99, floor=0.2, patience=12, short=0.05, centre_first=(0.5,)
    )
    cautious_with_W: ClassVar[StepRule] = replace(  # noqa: N815
        bold_with_W,
        boundary_share=0.9,
        patience=30,
        short=0.5,
        centre_first=(0.3, 0.8),
        keeps_equations=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.system, "system", ("auto", "rows", "features"))

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Whether the norm is one of entries, or of the classes' singular values."""
        return has_class_cone(problem)

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Choose the system and the cone."""
        rows = self.chosen(problem)
        by_class_cone = has_class_cone(problem)
        system = self.system
        seconds_per_step = 0.0
        if system == "auto" or self.max_seconds is not None:
            sizes = costs.Sizes.of(problem).with_rows(len(rows))
            kind = costs.kind_of(problem)
            if system == "auto":
                system = costs.cheaper_system(sizes, kind, hard=problem.hard_margin)
            seconds = costs.of_interior_point(sizes, kind, system, hard=problem.hard_margin)
            seconds_per_step = seconds / self.fewest_steps
        cone: type[GroupCone | EntryCone | SpectralCone | NuclearCone]
        newton: type[Newton[Any]]
        if by_class_cone:
            cone = class_cone(problem)
        elif system == "features":
            cone = FeatureGroupCone
        else:
            cone = GroupCone
        if system == "features":
            newton = FeatureNewton
        elif not by_class_cone:
            newton = GroupRowNewton
        elif cone is NuclearCone:
            newton = FixedRadiusRowNewton
        else:
            newton = FreeRadiusRowNewton
        # A class cone begins at the coefficients of a start. Those of other features say nothing.
        if by_class_cone and start is not None and start.coef.shape != problem.coef_shape:
            start = None
        run = CentralPath(self, problem, rows, start, cone, newton)
        run.seconds_per_step = seconds_per_step
        return run


class CentralPath(Run):
    """One solve: the central path, followed in stages, and the best bounds so far."""

    def __init__(
        self,
        solver: InteriorPoint,
        problem: MarginProblem,
        rows: Constraints,
        start: Start | None,
        cone: type[GroupCone | EntryCone | SpectralCone | NuclearCone],
        newton: type[Newton[Any]],
    ) -> None:
        self.solver = solver
        self.start = start
        self.cone_type = cone
        self.newton_type = newton
        self.layout = cone.layout(problem, rows)
        self.found = zero_answer(problem)  # in an earlier precision
        self.scaled: ScaledProblem | None = None

    def reset_bounds(self, scaled: ScaledProblem) -> None:
        """Begin with no bounds, in the precision of a scaled problem."""
        self.scaled = scaled
        self.lower = 0.0
        self.upper = math.inf
        self.gap = math.inf
        self.alpha = scaled.full(scaled.n_rows, 0.0)
        # V and d, of which zeta is d V, and beta. A class cone has zeta itself, and d = 1.
        self.primal: tuple[Tensor, Tensor, Tensor] | None = None

    def answer(self) -> Answer:
        """Return what attains the best bounds of the present precision, in the problem's units."""
        if self.scaled is None:
            return self.found
        if self.primal is None:
            zero = zero_answer(self.layout.problem)
            return replace(zero, alpha=self.scaled.alpha_of(self.alpha))
        return self.scaled.answer(self.alpha, *self.primal)

    def stages(self) -> list[Stage]:
        """Return the ways to follow the path, in the order in which they are tried.

        A stage in float32 hands its iterate to the first one in float64, unless it has reached the
        tolerances. Each later stage is tried only where the one before it ended in trouble.
        """
        solver = self.solver
        fine = solver.tolerances
        in_rows = self.newton_type is GroupRowNewton
        bold = solver.bold
        cautious = solver.cautious
        if self.cone_type.has_W:
            bold = solver.bold_with_W
            cautious = solver.cautious_with_W
        idle_gap = 0.0
        if in_rows:
            idle_gap = solver.idle_gap
        stages = []
        n_rows = len(self.layout.norms)
        if in_rows and solver.coarse_gap > 0.0 and n_rows >= solver.coarse_rows:
            # Float32 goes all the way to a tolerance that it can reach, else to the coarse gap.
            reachable = solver.coarse_gap
            if n_rows >= solver.many_rows:
                reachable = solver.float32_gap
            gap = fine.gap
            if fine.gap < reachable:
                gap = max(solver.coarse_gap, fine.gap)
            coarse = Tolerances(
                gap=gap,
                feasibility=max(solver.coarse_gap, fine.feasibility),
                infeasibility=max(solver.coarse_infeasibility, fine.infeasibility),
            )
            stages.append(Stage(torch.float32, "start", coarse, bold, idle_gap))
        hard = self.layout.problem.hard_margin
        if issubclass(self.cone_type, ClassCone) and hard and self.start is None:
            # Most hard margins under norms of entries or singular values take fewer steps so.
            stages.append(Stage(torch.float64, "inside", fine, bold, soon=solver.soon))
        stages.append(Stage(torch.float64, "start", fine, bold, idle_gap))
        stages.append(Stage(torch.float64, "scratch", fine, cautious))
        return stages

    def steps(self) -> Steps:
        """Follow the central path in stages until one ends otherwise than in trouble."""
        solver = self.solver
        # Whether float32 has had digits enough for the products of a step in the features.
        coarse_enough = True
        status = Status.NUMERICAL_TROUBLE
        dtype: torch.dtype | None = None
        reached: Iterate | None = None  # by the steps in float32
        newton: Newton[Any] | None = None
        for stage in self.stages():
            # --- Stage: the scaled problem, the cone, and the first iterate -----------------------
            if stage.dtype != dtype:
                dtype = stage.dtype
                scaled = ScaledProblem(self.layout, torch.device(solver.device), dtype)
                if dtype is torch.float32 and not scaled.in_range:
                    continue
                cone = self.cone_type(scaled)
                self.reset_bounds(scaled)
            if stage.first == "inside":
                point = self.interior_start(cone)
            elif stage.first == "start" and reached is not None:
                point = in_float64(reached, scaled)
            elif stage.first == "start" and self.start is not None:
                point = self.warm_start(cone, self.start)
            else:
                point = self.cold_start(cone)
            tolerances = stage.tolerances
            step_rule = stage.step_rule
            n_products = scaled.n_rows + scaled.n_boxes + point.n_cone_products
            n_steps = 0
            # Steps since the last progress, which is over the best of all stages of this precision.
            n_waited = 0
            # No row is idle at first: all are in the system, in order.
            rows = scaled.rows
            free = torch.arange(scaled.n_rows, device=scaled.device)
            idle = torch.zeros(scaled.n_rows, dtype=torch.bool, device=scaled.device)
            idle_alpha = scaled.full(scaled.n_rows, 0.0)
            stalled = False

            while True:
                # --- Equations (margins) and (box) at the iterate ---------------------------------
                some_idle = len(free) < scaled.n_rows
                alpha = point.alpha
                if some_idle:
                    alpha = idle_alpha.index_copy(0, free, alpha)
                cone.update(point, cone.dual_vectors(alpha))
                margins = cone.margins
                if scaled.n_offsets:
                    margins = margins + scaled.e @ point.beta
                excess = margins - scaled.b  # (P,), what s less xi is to be
                imbalance = scaled.e.T @ alpha  # (J,), what is to be 0

                # --- Bounds of the iterate --------------------------------------------------------
                upper, violation = scaled.upper(cone.norm_of_zeta, margins)
                # Alpha bounds the problem with an intercept only where e' alpha = 0. A little that
                # rounding has left of e' alpha is repaired; with more there is no lower bound.
                bound_alpha = alpha
                largest = cone.norm_of_V
                unbalanced = False
                if scaled.n_offsets:
                    size = scaled.e.abs().T @ alpha
                    unbalanced = bool((imbalance.abs() > solver.balance * size).any())
                    rounded = (imbalance.abs() > scaled.balance_tolerance * size).any()
                    if rounded and not unbalanced:
                        bound_alpha = scaled.balanced(alpha)
                        largest = cone.dual_norm(cone.dual_vectors(bound_alpha))
                growth = math.inf  # what alpha may be scaled by
                if largest > 0:
                    growth = 1.0 / largest
                # Gordan's ratio sum(alpha) ||phi_n|| / ||V|| is bounded if the data are separable.
                # The features of a row have norm 1 here. With many classes their label vector, of
                # norm sqrt(2), is part of that, and the features of the sample have sqrt(1/2).
                gordan_ratio = 0.0
                if not scaled.soft and not unbalanced:
                    share = 1.0
                    if not scaled.rows.signed:
                        share = 0.5**0.5
                    gordan_ratio = share * float(bound_alpha.sum()) * growth
                if scaled.soft:
                    room = scaled.box_C / scaled.boxes.sums(bound_alpha)
                    growth = min(growth, float(room.min()))
                lower = 0.0
                if not unbalanced:
                    lower = float(scaled.b @ bound_alpha) * growth

                # --- The best bounds so far -------------------------------------------------------
                better = lower > (1.0 + solver.least_progress) * self.lower
                if lower > self.lower:
                    self.lower = lower
                    self.alpha = bound_alpha
                if upper <= self.upper:
                    V, d = cone.primal()
                    to_margin_1 = scaled.to_margin_1(cone.norm_of_zeta, upper)
                    self.upper = upper
                    self.primal = V, to_margin_1 * d, to_margin_1 * point.beta
                gap = math.inf
                if self.lower > 0:
                    gap = max((self.upper - self.lower) / self.lower, solver.rounding)
                # Below the noise of rounding a smaller gap is luck.
                if self.gap > solver.noise and gap < (1.0 - solver.least_progress) * self.gap:
                    better = True
                self.gap = min(gap, self.gap)
                n_steps += 1
                n_waited += 1
                if better:
                    n_waited = 0
                yield self.lower / scaled.scale, self.upper / scaled.scale

                # --- Stop? ------------------------------------------------------------------------
                if gordan_ratio > 1.0 / tolerances.infeasibility:
                    self.alpha = bound_alpha
                    status = Status.NOT_SEPARABLE
                    break
                aim = 1.0
                if n_waited < solver.settled:
                    aim = solver.aim
                if self.gap <= aim * tolerances.gap and violation <= tolerances.feasibility:
                    status = Status.OPTIMAL
                    break
                if n_steps > stage.soon and math.isinf(self.upper):
                    status = Status.NUMERICAL_TROUBLE
                    break
                if n_waited > step_rule.patience:
                    stalled = True
                    break

                # --- Idle rows: those that are clearly no support vectors leave the system --------
                if self.gap < stage.idle_gap and scaled.boxes.index is None:
                    whole = point
                    if some_idle:
                        whole = with_idle_rows(point, scaled, alpha, excess, free)
                    diagonal = scaled.rows.curvature_diagonal(point.R)  # of Q(d)
                    stiff = whole.s > solver.stiffness * whole.alpha * diagonal
                    # To leave takes a clearer margin than to stay away: no row goes to and fro.
                    still_idle = idle & (excess > solver.still_clear * scaled.b)
                    chosen = still_idle | (stiff & (excess > solver.clear * scaled.b))
                    n_leaving = int(chosen.sum()) - int(still_idle.sum())
                    back = not torch.equal(still_idle, idle)
                    if back or n_leaving >= solver.least_leaving * len(free):
                        idle = chosen
                        idle_alpha = alpha
                        free = torch.nonzero(~idle)[:, 0]
                        rows = scaled.rows.subset(free)
                        some_idle = len(free) < scaled.n_rows
                        boxed = free[:0]
                        if scaled.soft:
                            boxed = free
                        point = replace(
                            whole,
                            alpha=whole.alpha[free],
                            s=whole.s[free],
                            w=whole.w[boxed],
                            xi=whole.xi[boxed],
                        )

                # Rounding may make a matrix singular or indefinite.
                try:
                    # --- The Newton system (`newton`) ---------------------------------------------
                    e = scaled.e
                    residual = -excess
                    drifts = None
                    if some_idle:
                        e = e[free]
                        residual = residual[free]
                        # A full step takes the idle alpha to mu / s: they change by -alpha, and
                        # by 1 / s for each unit of mu.
                        away = torch.where(idle, -idle_alpha, 0.0)
                        by_mu = torch.where(idle, 1.0 / excess, 0.0)
                        drifts = (
                            Drift(scaled.rows.dual_vectors(away), scaled.e.T @ away),
                            Drift(scaled.rows.dual_vectors(by_mu), scaled.e.T @ by_mu),
                        )
                    # Products in float32 while the gap is coarse; but not while there is none, as
                    # a proof of inseparability needs all digits of alpha.
                    gap_is_coarse = 0.0 < solver.coarse_gap < self.gap < math.inf
                    coarse = coarse_enough and gap_is_coarse
                    cone.scale()
                    newton = self.newton_type(
                        cone=cone,
                        point=point,
                        rows=rows,
                        free=free if some_idle else None,
                        boxes=scaled.boxes,
                        e=e,
                        residual=residual + point.s - scaled.boxes.per_row(point.xi),
                        imbalance=imbalance,
                        drifts=drifts,
                        coarse=coarse,
                    )

                    # --- Predictor: the centring by the progress of a step to mu = 0 --------------
                    mu = point.complementarity()
                    predictor = newton.direction(0.0)
                    length = point.step_to_boundary(predictor)
                    mu_after = point.moved(predictor, length).complementarity()
                    least_mu = step_rule.floor * tolerances.gap * self.lower / n_products
                    # Mehrotra's rule: the farther the predictor gets, the less centring.
                    target = max(min((mu_after / mu) ** 3, 1.0) * mu, least_mu)

                    # --- Corrector: with the predictor's second-order terms -----------------------
                    step = newton.direction(target, predictor)
                    to_boundary = point.step_to_boundary(step)
                    if to_boundary < step_rule.short:
                        # A short step: of several that trust the predictor less, or centre first,
                        # the one that goes farthest is taken. Their aims differ from ``target``,
                        # to which idle rows move: with idle rows ``short`` is 0.
                        candidates = [step]
                        for power in step_rule.damping:
                            weight = length**power
                            candidates.append(newton.direction(target, predictor, weight))
                        for share in step_rule.centre_first:
                            candidates.append(newton.direction(share * mu))
                        step = max(candidates, key=point.step_to_boundary)
                        to_boundary = point.step_to_boundary(step)
                    if coarse and not newton.coarse:
                        # Float32 has too few digits for later steps, too.
                        coarse_enough = False

                    # --- Step ---------------------------------------------------------------------
                    # One length for primal and dual: the equations are bilinear in both.
                    length = min(1.0, step_rule.boundary_share * to_boundary)
                    if step_rule.keeps_equations:
                        point = cone.moved(point, step, length)
                    else:
                        point = point.moved(step, length)
                    if some_idle:
                        # A full step would take them to mu / s, with the new mu.
                        moved = idle_alpha + length * (target / excess - idle_alpha)
                        idle_alpha = torch.where(idle, moved, 0.0)
                except Breakdown:
                    stalled = True
                    break

            # --- How the stage ended --------------------------------------------------------------
            if stalled:
                status = Status.NUMERICAL_TROUBLE
                if gordan_ratio > solver.suspicious and math.isinf(self.upper):
                    # Alpha grows without bound, as it does where nothing separates: a claim, for
                    # which `solve` looks for a proof.
                    status = Status.NOT_SEPARABLE
            if dtype is torch.float64 and status is not Status.NUMERICAL_TROUBLE:
                return status
            if dtype is torch.float32:
                if status is Status.OPTIMAL and tolerances == solver.tolerances:
                    return status
                reached = None
                if status in (Status.OPTIMAL, Status.NOT_SEPARABLE):
                    reached = point
                    if not stalled and some_idle:
                        reached = with_idle_rows(point, scaled, alpha, excess, free)
                # The answer is kept, and the matrices make room for those of float64.
                self.found = self.answer()
                self.scaled = None
                newton = None
                del cone, scaled, rows
        return status

    # --- first iterates --------------------------------------------------------------------------

    def cold_start(self, cone: Cone) -> Iterate:
        """Return a first iterate without a start.

        A cone with a W of its own begins with all products equal to mu. W is inside of the cone, V
        of alpha need not be: the first long steps remove the residual V - W. So alpha need not be
        small. With a soft margin it is half way to C, with losses of about 1. With a hard margin it
        is large, and so is s: where samples are many, alpha with V inside of the cone is far below
        the optimal one, and steps from there would be short.
        """
        scaled = cone.scaled
        ones = scaled.full(scaled.n_rows, 1.0)
        if scaled.soft:
            room = scaled.box_C / scaled.boxes.sums(ones)
            alpha = 0.5 * ones * scaled.boxes.per_row(room)
            w = (scaled.box_C - scaled.boxes.sums(alpha))[: scaled.n_boxes]
            mu = float(scaled.b @ alpha) / len(w)
        else:
            equal = scaled.balanced_inside(ones)
            largest = cone.dual_norm(cone.dual_vectors(equal))
            if not largest > 0.0:
                return self.interior_start(cone)
            alpha = float(self.solver.far / largest) * equal
            w = alpha[:0]
            mu = self.solver.far_margin * float(scaled.b @ alpha) / scaled.n_rows
        of_cone = cone.centred_point(cone.dual_vectors(alpha), mu)
        if of_cone is None:
            return self.interior_start(cone)
        return Iterate(
            **vars(of_cone), alpha=alpha, s=mu / alpha, w=w, xi=mu / w, beta=scaled.offset()
        )

    def interior_start(self, cone: Cone) -> Iterate:
        """Return equal alpha, half way to the boundary of the cone (and to C)."""
        scaled = cone.scaled
        ones = scaled.full(scaled.n_rows, 1.0)
        equal = scaled.balanced_inside(ones)
        V = cone.dual_vectors(equal)
        largest = cone.dual_norm(V)
        within_box = 0.5 * float((scaled.box_C / scaled.boxes.sums(equal)).min())
        level = min(1.0, within_box)
        if largest > 0:
            level = min(0.5 / largest, within_box)
        alpha = level * equal
        # The norm begins above the lower bound's order of magnitude, as an upper bound does.
        total = 10.0 * level * float(scaled.b.sum())
        return Iterate(
            **vars(cone.inner_point(level * V, total)),
            alpha=alpha,
            s=ones,
            w=(scaled.box_C - scaled.boxes.sums(alpha))[: scaled.n_boxes],
            xi=ones[: scaled.n_boxes],
            beta=scaled.offset(),
        )

    def warm_start(self, cone: Cone, start: Start) -> Iterate:
        """Move the solution of a similar problem into the interior.

        Of each complementary pair one is raised until their product is mu, which is that of the
        start's own gap. The s are those of alpha before they are moved inside, after which s alpha
        may be below mu: with s of the moved alpha a solve takes a step or two more.
        """
        solver = self.solver
        scaled = cone.scaled
        alpha = just_inside(cone, scaled.start_alpha(start))
        if alpha is None:
            return self.cold_start(cone)
        primal, margins = cone.primal_of(start, cone.dual_vectors(alpha))
        beta = scaled.offset(start)
        excess = margins + scaled.e @ beta - scaled.b
        # An exact penalty: the norm, and each violation at the price of the largest alpha.
        price = float(alpha.max())
        lower = float(scaled.b @ alpha)
        norm = cone.norm(primal)
        upper = norm + price * float((-excess).clamp(min=0.0).sum())
        if not (norm > 0.0 and upper < solver.farthest_warm * lower):
            return self.cold_start(cone)
        gap = min(max(upper / lower - 1.0, solver.least_warm), 1.0)
        mu = gap * lower / (scaled.n_rows + scaled.n_boxes + cone.count_products(primal))
        floor = float(alpha.mean()) * gap
        raised = torch.maximum(alpha, mu / excess.clamp(min=mu / floor))
        raised = scaled.balanced_inside(raised)
        alpha = just_inside(cone, raised, 1.0)
        if alpha is None:
            return self.cold_start(cone)
        w = (scaled.box_C - scaled.boxes.sums(alpha))[: scaled.n_boxes]
        return Iterate(
            **vars(cone.warm_point(cone.dual_vectors(alpha), primal, mu)),
            alpha=alpha,
            s=torch.maximum(excess, mu / raised),
            w=w,
            xi=torch.maximum(scaled.boxes.largest(-excess)[: len(w)], mu / w),
            beta=beta,
        )


def just_inside(cone: Cone, alpha: Tensor, most: float = math.inf) -> Tensor | None:
    """Return alpha scaled to be just inside the boxes and the cone; None where its V is 0.

    With a soft margin alpha are first cut to their boxes. The factor is at most ``most``.
    """
    scaled = cone.scaled
    if scaled.soft:
        share = cone.warm_share * scaled.box_C / scaled.boxes.sums(alpha).clamp(min=TINY)
        alpha = alpha * scaled.boxes.per_row(share.clamp(max=1.0))
    largest = cone.dual_norm(cone.dual_vectors(alpha))
    if not largest > 0.0:
        return None
    if scaled.soft:
        largest = max(largest, float((scaled.boxes.sums(alpha) / scaled.box_C).max()))
    return alpha * min(most, cone.warm_share / largest)


def with_idle_rows(
    point: Iterate, scaled: ScaledProblem, alpha: Tensor, excess: Tensor, free: Tensor
) -> Iterate:
    """Return the iterate of all rows, some of which are idle.

    Each row has a box of its own: with shared boxes no row is ever idle.

    Parameters
    ----------
    point : Iterate
        Of the rows in the system.
    scaled : ScaledProblem
        The problem.
    alpha, excess : Tensor of shape (P,)
        Dual variables of all rows, and what their margins exceed b by.
    free : Tensor of int
        The rows in the system.
    """
    mu = point.complementarity()
    s = torch.maximum(excess, mu / alpha).index_copy(0, free, point.s)
    w = point.w
    xi = point.xi
    if scaled.soft:
        w = (scaled.C - alpha).index_copy(0, free, w)
        xi = (mu / w).index_copy(0, free, xi)
    return replace(point, alpha=alpha, s=s, w=w, xi=xi)


def in_float64(point: Iterate, scaled: ScaledProblem) -> Iterate:
    """Return the iterate of the steps in float32 from which those in float64 go on."""
    point = point.to(torch.float64)
    if not scaled.soft:
        return point
    # As float32 rounds it, w is not what alpha leaves of C, which no later step mends.
    w = scaled.box_C - scaled.boxes.sums(point.alpha)
    return replace(point, w=torch.where(w > 0.0, w, point.w))
