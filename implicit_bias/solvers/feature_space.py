r"""The homogeneous embedding in the space of the features, for ill-scaled or inseparable data.

Primal  minimize  sum_g t_g + sum_n C_n xi_n
        subject to  <b_p (x) phi_n(p), w> + <b_p, b> >= 1 - xi_n(p),   xi >= 0,   ||w_g|| <= t_g

Dual    maximize  sum_p alpha_p
        subject to  E' alpha + beta = C,   alpha, beta >= 0,   ||V_g|| <= 1
        (and sum_p alpha_p b_p = 0 where there are offsets b),
        V = sum_p alpha_p b_p (x) phi_n(p)

with a row p for each pair of a sample and a rival class (`problem.constraints`), of two classes for
each sample; E adds up the rows of a sample. Both, homogeneous (Ye, Todd, Mizuno 1994): find
tau, kappa >= 0 and the above with

        B' alpha = T' V                                        (stationarity)
        B v + E xi - tau c = s,   w = T v                      (margins)
        E' alpha + beta = tau C                                (box)
        c' alpha - sum_g t_g - C' xi = kappa                   (gap)
        ||w_g|| <= t_g,   ||V_g|| <= tau                       (cones)
KKT     s alpha = xi beta = tau kappa = mu,  (t_g, w_g) o (tau, -V_g) = (mu, 0),      mu -> 0

Everything over tau is a solution where tau > 0. Where tau -> 0, alpha proves by Gordan that there
is none: the iteration needs no feasible start, nor one of the right scale, and ends in either case.

======  ==========  ==========================================================================
v       (P',)       coefficients in centred, equilibrated features (`equilibration`), the
                    offsets last
w, V    (P,)        coefficients, the norm's argument, w = T v; dual vectors
B       (R, P')     scaled features of the rows, times their label vectors
c, C    (R,), (N,)  right sides of the scaled rows; boxes of the scaled samples, none (0,) with a
                    hard margin
alpha   (R,)        dual variables; s (R,) what a margin exceeds c by
beta    (N,)        C - E' alpha; xi (N,) the hinge losses (soft margin only)
e, f    (G,)        t - ||w_g|| and tau - ||V_g||, kept apart: they are tiny at the end
======  ==========  ==========================================================================

With the cones' scaling W (`second_order`) a Newton step is a linear system in v,

        (B' H B + T' D T) dv = ...,      D from W^-2,                          (step)
        H^-1 = diag(s/alpha) + E diag(xi/beta) E'

that is, the solution of a least squares problem with the rows H^(1/2) B and W^-1 T. They are
factored by QR and never squared: a Gram matrix of data whose margin is 1e-8 of their norm holds
nothing of it in float64. The factor's normal equations are refined with the rows themselves.
Mehrotra's predictor sets the centring, and its second-order terms enter the corrector.

Near the end alpha is corrected until V(alpha) is right to rounding, and v until no margin falls
short, both with weights that do not grow like 1/mu (`Polish`).

Time is linear in R, O(R P^2) a step, and memory that of B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.euclidean import classes_share_groups
from implicit_bias.solvers.base import Answer, Start
from implicit_bias.solvers.equilibration import EquilibratedProblem
from implicit_bias.solvers.interior_point import InteriorPoint, has_class_cone
from implicit_bias.solvers.iteration import Breakdown, RowSolver, Run, Steps
from implicit_bias.solvers.scaled_rows import TINY
from implicit_bias.solvers.second_order import ConeVectors, SecondOrderCones


@dataclass(frozen=True, kw_only=True)
class FeatureSpace(RowSolver):
    """The homogeneous embedding in the space of the features: time linear in the samples.

    With sums of l2 features may have any scales, and a start is not used. Other norms go to
    `InteriorPoint` with its system in the features; of many classes also those of ``most_entries``
    and more, and groups that each have the coefficients of one class.

    Parameters
    ----------
    starts : tuple of tuple of float
        Two numbers for each start: the factor by which alpha exceeds half of what the norms allow,
        and mu over the dual's value. Large alpha saves steps where the optimum is far from any
        guess; alpha within the norms is safer.
    uneven : float
        Samples' alpha differ by this factor at most at the start.
    boundary_share : float
        Fraction of the way to the boundary that a step may go.
    least_centring : float
        Least fraction of mu that a step aims at.
    aim, settled : float, int
        The solver aims at this fraction of the tolerance, because the certificate rounds
        differently; but a gap that has not fallen for so many steps will do.
    patience, least_progress : int, float
        So many steps without this relative progress, and stagnation is attributed to rounding.
    rounding : float
        A computed gap is reported as no less than this.
    polished_gap, polished_ratio : float
        From this gap, or this Gordan ratio, results are polished.
    most_entries : int
        With many classes the embedding takes up to so many entries of B.
    safety_share : float
        The safest coefficients may be worse than the best ones by this fraction of the tolerance.
    """

    starts: tuple[tuple[float, float], ...] = ((1e6, 1e-2), (1.0, 1.0))
    uneven: float = 100.0
    boundary_share: float = 0.99
    least_centring: float = 1e-8
    aim: float = 0.1
    settled: int = 2
    patience: int = 12
    least_progress: float = 1e-3
    rounding: float = 1e-14
    polished_gap: float = 1e-5
    polished_ratio: float = 1e4
    safety_share: float = 0.01
    most_entries: int = 2**24

    name: ClassVar[str] = "feature-space"
    takes_classes: ClassVar[bool] = True
    own_limit: ClassVar[int] = 150

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Whether the interior point takes the norm as it is."""
        return has_class_cone(problem)

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Take sums of l2; the interior point takes all else."""
        rows = self.chosen(problem)
        if not self.embeds(problem, rows):
            options = {x.name: getattr(self, x.name) for x in fields(RowSolver)}
            run = InteriorPoint(system="features", **options).prepare(problem, start)
            run.detail = "no embedding: the interior point in the space of the features"
            return run
        return Embedding(self, problem, rows)

    def embeds(self, problem: MarginProblem, rows: Constraints) -> bool:
        """Whether the embedding takes a problem; see `FeatureSpace`."""
        if has_class_cone(problem) or not classes_share_groups(problem):
            return False
        if problem.classes is None:
            return True
        return len(rows) * math.prod(problem.coef_shape) <= self.most_entries


@dataclass(frozen=True, eq=False, kw_only=True)
class Complements:
    """The complementary numbers, of an iterate (positive) or a direction.

    xi and beta have length 0 with the hard margin; tau and kappa have length 1.
    """

    s: Tensor
    alpha: Tensor
    xi: Tensor
    beta: Tensor
    tau: Tensor
    kappa: Tensor

    @property
    def pairs(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Those whose products are to become mu."""
        return (self.s, self.alpha), (self.xi, self.beta), (self.tau, self.kappa)


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddingIterate(Complements):
    """An iterate."""

    v: Tensor
    V: Tensor
    e: Tensor
    f: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddingDirection(Complements):
    """A direction; ``ds`` and ``dz`` are those of the cones' (t, w) and (tau, -V)."""

    v: Tensor
    ds: ConeVectors
    dz: ConeVectors


class Embedding(Run):
    """One solve: the central path from one start and, in trouble, from a safer one."""

    def __init__(self, solver: FeatureSpace, problem: MarginProblem, rows: Constraints) -> None:
        self.solver = solver
        self.rows = rows
        self.scaled = EquilibratedProblem(problem, rows, torch.device(solver.device))
        # The best bounds so far, and what attains them.
        self.lower = 0.0
        self.upper = math.inf
        self.gap = math.inf
        self.violation = math.inf
        self.alpha = torch.zeros_like(self.scaled.c)
        self.v = self.scaled.B.new_zeros(self.scaled.B.shape[1])
        # Polished coefficients whose margins exceed c by most, and their bound.
        self.safe_v = self.v
        self.safe_upper = math.inf

    def answer(self) -> Answer:
        """Return what attains the best bounds.

        The safest coefficients, if they are hardly worse than the best ones: rounding in the
        problem's own coordinates is not that of these.
        """
        v = self.v
        if self.safe_upper <= self.nearly(self.upper):
            v = self.safe_v
        coef, intercept = self.scaled.coefficients(v)
        alpha = self.rows.alpha(self.scaled.dual_variables(self.alpha))
        return Answer(alpha, coef, intercept)

    def nearly(self, upper: float) -> float:
        """Return a bound that is hardly worse than this one."""
        return upper * (1.0 + self.solver.safety_share * self.solver.tolerances.gap)

    def improve_lower(self, alpha: Tensor, lower: float) -> None:
        """Keep dual variables with this lower bound, if it is the best one."""
        if lower > self.lower:
            self.alpha = alpha
            self.lower = lower

    def improve_upper(self, v: Tensor, upper: float, violation: float) -> None:
        """Keep coefficients with this upper bound, if it is the best one."""
        if upper < self.upper:
            self.v = v
            self.upper = upper
            self.violation = violation

    def steps(self) -> Steps:
        """Follow the central path from each start until one leads to an end."""
        solver = self.solver
        scaled = self.scaled
        tolerances = solver.tolerances
        for factor, share in solver.starts:
            point = self.first_iterate(factor, share)
            n_waited = 0  # steps since the last progress
            closest = math.inf  # the smallest gap of an iterate
            # Rounding may make a factor singular.
            try:
                while True:
                    # --- Equations at the iterate -------------------------------------------------
                    tau = point.tau[0]
                    w = scaled.T @ point.v
                    cones = SecondOrderCones(scaled.groups, w, point.V, point.e, point.f)
                    margins = scaled.B @ point.v
                    value = scaled.c @ point.alpha
                    products = cones.products.sum() + sum(a @ b for a, b in point.pairs)
                    n_products = scaled.groups.count + sum(len(a) for a, _ in point.pairs)
                    # The gap that would be left if the equations held.
                    central_gap = float(products / (tau * value))

                    # --- Bounds -------------------------------------------------------------------
                    last_lower = self.lower
                    last_gap = self.gap
                    self.improve_lower(point.alpha / tau, scaled.lower(point.alpha))
                    self.improve_upper(point.v / tau, *scaled.upper(point.v / tau, margins / tau))
                    no_separator = self.upper == math.inf and not scaled.soft
                    inseparable = False
                    if central_gap < solver.polished_gap:
                        # Near the end: results that are right to rounding.
                        polish = Polish(scaled, point, w)
                        alpha = polish.dual(point.alpha, point.V)
                        self.improve_lower(alpha / tau, scaled.lower(alpha))
                        for v in polish.primal(point.v / tau):
                            upper, violation = scaled.upper(v, scaled.B @ v)
                            self.improve_upper(v, upper, violation)
                            if upper <= self.nearly(self.upper):
                                self.safe_v = v
                                self.safe_upper = upper
                    elif no_separator and scaled.gordan_ratio(point.alpha) > solver.polished_ratio:
                        # Near a proof that nothing separates the samples.
                        polish = Polish(scaled, point, w)
                        for proof in (point.alpha, polish.dual(point.alpha, 0.0 * point.V)):
                            ratio = scaled.gordan_ratio(proof)
                            if ratio > 1.0 / (solver.aim * tolerances.infeasibility):
                                self.alpha = proof
                                inseparable = True
                    if self.lower > 0:
                        gap = (self.upper - self.lower) / self.lower
                        self.gap = min(self.gap, max(gap, solver.rounding))
                    # Progress: of the lower bound, of the iterate, or of the gap.
                    at_most = 1.0 - solver.least_progress
                    better = (
                        self.lower > (1.0 + solver.least_progress) * last_lower
                        or central_gap < at_most * closest
                        or self.gap < at_most * last_gap
                    )
                    closest = min(closest, central_gap)
                    n_waited += 1
                    if better:
                        n_waited = 0
                    yield self.lower / scaled.sigma, self.upper / scaled.sigma

                    # --- Stop? --------------------------------------------------------------------
                    if inseparable:
                        return Status.NOT_SEPARABLE
                    aim = 1.0
                    if n_waited < solver.settled:
                        aim = solver.aim
                    feasible = self.violation <= tolerances.feasibility
                    if feasible and self.gap <= aim * tolerances.gap:
                        return Status.OPTIMAL
                    if n_waited > solver.patience:
                        break

                    # --- The Newton system (step) -------------------------------------------------
                    xi = scaled.per_sample(point.xi)
                    newton = EmbeddingNewton(
                        scaled=scaled,
                        point=point,
                        cones=cones,
                        mu=products / n_products,
                        stationarity=scaled.B.T @ point.alpha - scaled.T.T @ point.V,
                        margins=margins + xi - tau * scaled.c - point.s,
                        box=tau * scaled.C - scaled.boxed(point.alpha) - point.beta,
                        gap=value - cones.t.sum() - scaled.C @ point.xi - point.kappa,
                    )

                    # --- Predictor, corrector, step -----------------------------------------------
                    predictor = newton.direction(0.0)
                    length = newton.step_to_boundary(predictor)
                    # Mehrotra's rule: the predictor of this length leaves 1 - length of mu.
                    centring = max((1.0 - length) ** 3, solver.least_centring)
                    step = newton.direction(centring, predictor)
                    length = min(1.0, solver.boundary_share * newton.step_to_boundary(step))
                    point = newton.moved(step, length)
            except Breakdown:
                continue
        return Status.NUMERICAL_TROUBLE

    def first_iterate(self, factor: float, share: float) -> EmbeddingIterate:
        """All products equal, tau = 1; alpha is ``factor`` times half of what the norms allow."""
        scaled = self.scaled
        norms_of = scaled.groups.norms
        uneven = self.solver.uneven
        alpha = (scaled.nu / scaled.nu.median()).clamp(1.0 / uneven, uneven)
        largest = float(norms_of(scaled.dual_vectors(scaled.B.T @ alpha)).max())
        if largest > 0:
            alpha = alpha * (0.5 * factor / largest)
        # At most half way to C.
        alpha = alpha / (1.0 + scaled.per_sample(2.0 * scaled.boxed(alpha) / scaled.C))
        beta = scaled.C - scaled.boxed(alpha)
        V = scaled.dual_vectors(scaled.B.T @ alpha)
        # V is a variable of its own: inside of the cones, however large alpha is.
        V = V * min(1.0, 0.5 / max(float(norms_of(V).max()), TINY))
        norms = norms_of(V)
        mu = share * float(alpha @ scaled.c)
        # (t, w) = mu (1, V) / (1 - ||V||^2) is mu over (1, -V): all products are mu.
        t = mu / (1.0 - norms**2)
        return EmbeddingIterate(
            v=scaled.from_coef(t[scaled.groups.index] * V),
            V=V,
            e=t * (1.0 - norms),
            f=1.0 - norms,
            s=mu / alpha,
            alpha=alpha,
            xi=mu / beta,
            beta=beta,
            tau=t.new_ones(1),
            kappa=t.new_full((1,), mu),
        )


class RowWeights:
    """The matrix H of a Newton step, at one iterate: diagonal where each row has a box of its own.

    Where the rows of a sample share its box, H^-1 = diag(s/alpha) + E diag(xi/beta) E'. With
    a = alpha/s, A = E' a and b = beta/xi, the rows of one sample have

        q' H q  =  sum_p a_p (q_p - m)^2  +  m^2 / (1/A + 1/b),      m = sum_p a_p q_p / A.

    One a_p may exceed the others by any factor, and its q_p - m is then rounding alone. So the row
    of the largest a_p is the pivot * of its sample: d_p = q_p - q_* is 0 there, and the sum is
    sum_p a_p d_p^2 - (sum_p a_p d_p)^2 / A, over the other rows.

    Parameters
    ----------
    scaled : EquilibratedProblem
        The problem.
    point : EmbeddingIterate
        The iterate.
    """

    def __init__(self, scaled: EquilibratedProblem, point: EmbeddingIterate) -> None:
        self.scaled = scaled
        if not scaled.shares_boxes:
            box = scaled.per_sample(point.xi / point.beta)
            self.a = 1.0 / (point.s / point.alpha + box)
            return
        self.a = point.alpha / point.s
        self.totals = scaled.boxed(self.a)
        self.of_means = 1.0 / (1.0 / self.totals + point.xi / point.beta)
        # The row of largest a of each sample, the last one where several have it.
        largest = self.totals.scatter_reduce(0, scaled.samples, self.a, "amax", include_self=False)
        numbers = torch.arange(len(self.a), device=self.a.device)
        numbers = torch.where(self.a == largest[scaled.samples], numbers, -1)
        self.pivots = torch.zeros_like(scaled.samples[: len(largest)]).scatter_reduce(
            0, scaled.samples, numbers, "amax", include_self=False
        )

    def times(self, q: Tensor, of_boxes: Tensor) -> Tensor:
        """H (q + E g) (R,), of q (R,) and the numbers g (N,) of shared boxes.

        The g of a full box is by far larger than q, and drops out of the differences d. Where each
        row has its own box q has g already.
        """
        if not self.scaled.shares_boxes:
            return self.a * q
        samples = self.scaled.samples
        d = q - q[self.pivots][samples]
        mean = self.scaled.boxed(self.a * d) / self.totals
        m = q[self.pivots] + of_boxes + mean
        return self.a * (d - mean[samples] + (self.of_means / self.totals * m)[samples])

    def roots(self, B: Tensor) -> tuple[Tensor, Tensor]:
        """Return rows S (R, P') and weights w (R,) with B' H B = S' diag(w^2) S."""
        if not self.scaled.shares_boxes:
            return B, self.a.sqrt()
        samples = self.scaled.samples
        others = self.a.index_fill(0, self.pivots, 0.0)
        of_others = self.scaled.boxed(others)
        of_pivots = B.index_select(0, self.pivots)
        rows = B - of_pivots.index_select(0, samples)
        sums = torch.zeros_like(of_pivots).index_add_(0, samples, others[:, None] * rows)
        # With u = (a_p)^(1/2) of the other rows, I - u u' / A has the root I - u u' (1 - r) / u'u,
        # r^2 = a_* / A, which is 1 over the number of rows at least: nothing is lost.
        r = (self.a[self.pivots] / self.totals).sqrt()
        shift = sums * ((1.0 - r) / of_others.clamp(min=TINY))[:, None]
        rows -= shift.index_select(0, samples)
        rows.index_copy_(0, self.pivots, of_pivots + sums / self.totals[:, None])
        weights = others.sqrt().index_copy(0, self.pivots, self.of_means.sqrt())
        return rows, weights


@dataclass(eq=False, kw_only=True)
class EmbeddingNewton:
    """The factored Newton system at one iterate: by QR, refined with the rows themselves.

    With s, xi, beta, kappa and the cones eliminated the unknowns are dv and dtau. The system is
    linear in dtau, so it is solved twice: for the right-hand side with dtau = 0, in each
    `direction`, and once for the direction of tau.

    Attributes
    ----------
    scaled : EquilibratedProblem
        The problem.
    point : EmbeddingIterate
        The iterate.
    cones : SecondOrderCones
        Its cones, and their scaling.
    mu : Tensor
        Mean of its complementary products.
    stationarity, margins, box, gap : Tensor
        Residuals of the equations of these names in the module's head.
    """

    scaled: EquilibratedProblem
    point: EmbeddingIterate
    cones: SecondOrderCones
    mu: Tensor
    stationarity: Tensor
    margins: Tensor
    box: Tensor
    gap: Tensor

    # A solution is refined until its residual is this fraction of the first one, or stops falling.
    refined: ClassVar[float] = 1e-13
    refinements: ClassVar[int] = 4

    def __post_init__(self) -> None:
        p = self.point
        scaled = self.scaled
        tau = p.tau[0]
        self.H = RowWeights(scaled, p)
        rows, weights = self.H.roots(scaled.B)
        self.triangle = qr_factor(self.cones.weighted(scaled.T), rows, weights)
        # The direction of tau: the right-hand sides that dtau = 1 has in (margins), (box) and
        # (cones). It is v / tau plus what is solved for here. B v / tau is known from the iterate:
        # s - xi + tau c and the residual, over tau. Computed with B, its rounding would be
        # multiplied by H. Likewise for the cones.
        of_boxes = p.xi / p.beta * scaled.C
        if scaled.shares_boxes:
            # xi is the same within a sample: apart from q it does not round its differences.
            q = (-p.s - self.margins) / tau
            of_boxes = p.xi / tau + of_boxes
        else:
            # xi and the residual cancel in each row: they are added first.
            q = (scaled.per_sample(p.xi) - p.s - self.margins) / tau
        inverse = -1.0 / p.tau
        cone = self.cones.s.times(inverse, inverse, inverse)
        v, alpha, z = self.solve(q, of_boxes, cone, torch.zeros_like(p.v), 1.0)
        self.v_by_tau = v + p.v / tau
        self.alpha_by_tau = alpha
        self.z_by_tau = z
        beta = scaled.C - scaled.boxed(alpha)
        # What the gap falls by for dtau = 1: a sum of squares, so that dtau is well defined.
        slope = (p.s / p.alpha) @ (alpha * alpha)
        self.slope = slope + self.cones.square(z) + (p.xi / p.beta) @ (beta * beta)

    def solve(
        self, q: Tensor, of_boxes: Tensor, cone: ConeVectors, pull: Tensor, tau: float
    ) -> tuple[Tensor, Tensor, ConeVectors]:
        """dv, dalpha = H (q + E g - B dv), and the change of z, with B' dalpha = T' dV - pull."""
        B = self.scaled.B
        T = self.scaled.T
        if not self.scaled.shares_boxes:
            q = q + self.scaled.per_sample(of_boxes)
        v = torch.zeros_like(pull)
        answer = None
        first = 0.0
        last = math.inf
        for _ in range(self.refinements):
            alpha = self.H.times(q, of_boxes)
            if answer is not None:  # at first v is 0, and so is B v
                alpha = self.H.times(q - B @ v, of_boxes)
            z = self.cones.dual_change(cone, T @ v, tau)
            residual = pull + B.T @ alpha + T.T @ self.cones.tail(z)
            half = torch.linalg.solve_triangular(self.triangle.T, residual[:, None], upper=False)
            size = float(half.norm())
            if not size < 0.5 * last:
                break
            answer = v, alpha, z
            last = size
            first = first or size
            if size <= self.refined * first:
                break
            v = v + torch.linalg.solve_triangular(self.triangle, half, upper=True)[:, 0]
        if answer is None:
            raise Breakdown
        return answer

    def direction(
        self, centring: float, predictor: EmbeddingDirection | None = None
    ) -> EmbeddingDirection:
        """Step to the central path at centring * mu, with the predictor's second-order terms."""
        p = self.point
        scaled = self.scaled
        cones = self.cones
        mu = centring * self.mu
        removed = 1.0 - centring  # the fraction of the residuals that the step removes
        # s alpha = xi beta = tau kappa = mu, linearized: what the products must change by.
        s_alpha = mu - p.s * p.alpha
        xi_beta = mu - p.xi * p.beta
        tau_kappa = mu - p.tau * p.kappa
        of_cones = None
        if predictor is not None:
            s_alpha = s_alpha - predictor.s * predictor.alpha
            xi_beta = xi_beta - predictor.xi * predictor.beta
            tau_kappa = tau_kappa - predictor.tau * predictor.kappa
            of_cones = predictor.ds, predictor.dz
        cone = cones.target(mu, of_cones)
        # s, xi and beta are eliminated from the equation of the margins.
        box = removed * self.box
        q = s_alpha / p.alpha - removed * self.margins
        of_boxes = (p.xi * box - xi_beta) / p.beta
        v, alpha, z = self.solve(q, of_boxes, cone, removed * self.stationarity, 0.0)
        # dtau from the equations of the gap and of tau kappa: along the direction of tau the gap
        # falls by ``slope``.
        t = cones.primal_change(cone, scaled.T @ v, z).head.sum()
        xi = (xi_beta - p.xi * (box - scaled.boxed(alpha))) / p.beta
        kappa = scaled.c @ alpha - t - scaled.C @ xi + removed * self.gap
        tau = (tau_kappa - p.tau * kappa) / (p.kappa + p.tau * self.slope)
        v = v + tau * self.v_by_tau
        alpha = alpha + tau * self.alpha_by_tau
        z = z.moved(self.z_by_tau, tau)
        # Back substitution.
        beta = tau * scaled.C - scaled.boxed(alpha) + box
        return EmbeddingDirection(
            v=v,
            ds=cones.primal_change(cone, scaled.T @ v, z),
            dz=z,
            s=(s_alpha - p.s * alpha) / p.alpha,
            alpha=alpha,
            xi=(xi_beta - p.xi * beta) / p.beta,
            beta=beta,
            tau=tau,
            kappa=(tau_kappa - p.kappa * tau) / p.tau,
        )

    def step_to_boundary(self, step: EmbeddingDirection) -> float:
        """Longest multiple of a step, at most 1, that stays in the cones."""
        cones = self.cones
        rates = [
            cones.rate(cones.s, cones.s_size, step.ds),
            cones.rate(cones.z, cones.z_size, step.dz),
        ]
        for values, changes in zip(self.point.pairs, step.pairs, strict=True):
            for x, dx in zip(values, changes, strict=True):
                if len(x):
                    rates.append(float((-dx / x).max()))
        if not np.isfinite(rates).all():
            raise Breakdown
        return 1.0 / max(1.0, *rates)

    def moved(self, step: EmbeddingDirection, length: float) -> EmbeddingIterate:
        """Return the iterate after a step of some length."""
        p = self.point
        cones = self.cones
        norms_of = self.scaled.groups.norms
        v = p.v + length * step.v
        V = p.V - length * cones.tail(step.dz)
        numbers = {}
        for x in fields(Complements):
            numbers[x.name] = getattr(p, x.name) + length * getattr(step, x.name)
        return EmbeddingIterate(
            v=v,
            V=V,
            e=cones.head_less_tail(cones.s.moved(step.ds, length), norms_of(self.scaled.T @ v)),
            f=cones.head_less_tail(cones.z.moved(step.dz, length), norms_of(V)),
            **numbers,
        )


class Polish:
    """Corrections to alpha and v by least squares, with weights alpha instead of alpha / s.

    The rows are h^(1/2) B and T over ||w_g||^(1/2): at the optimum sum_g ||w_g||^2 / d_g is least
    for the margins of the support vectors, with d_g = ||w_g||.
    """

    corrections: ClassVar[int] = 3
    # The price of a change of V, or w, over that of a change of alpha, or the margins.
    dearer: ClassVar[float] = 1e8
    # The relative rounding error of float64.
    rounding: ClassVar[float] = 2.0**-52
    # Multiples of the rounding error by which polished margins exceed c.
    safeties: ClassVar[tuple[float, ...]] = (0.0, 4.0, 16.0)

    def __init__(self, scaled: EquilibratedProblem, point: EmbeddingIterate, w: Tensor) -> None:
        self.scaled = scaled
        free = point.alpha / (1.0 + scaled.per_sample(scaled.boxed(point.alpha) / point.beta))
        norms = scaled.groups.norms(w)
        price = (norms.max() / norms.clamp(min=TINY)).clamp(max=1.0 / self.rounding).sqrt()
        self.T = scaled.T * price[scaled.groups.index, None]
        size = float(w.norm() / point.v.norm().clamp(min=TINY))
        self.h = self.dearer * size**2 * free / float(free.max())
        self.triangle = qr_factor(self.T, scaled.B, self.h.sqrt())

    def dual(self, alpha: Tensor, V: Tensor) -> Tensor:
        """Return alpha with B' alpha = T' V to rounding, for V near the given one."""
        B = self.scaled.B
        pull = self.scaled.T.T @ V
        # Least squares: the smallest weighted change of alpha and V that makes the equation hold.
        for _ in range(self.corrections):
            x = solve_normal(self.triangle, B.T @ alpha - pull)
            alpha = alpha - self.h * (B @ x)
            pull = pull + self.T.T @ (self.T @ x)
        return alpha.clamp(min=0.0)

    def primal(self, v: Tensor) -> list[Tensor]:
        """Return coefficients whose margins are at least c, and exceed it by multiples of rounding.

        They are near v, and near the coefficients of least norm with the support vectors of v. With
        a soft margin no margin has to be reached, and there are none.
        """
        scaled = self.scaled
        if scaled.soft:
            return []
        # What rounding can take from a margin in the problem's own coordinates.
        noise = self.rounding * scaled.magnitudes(v)
        fitted = self._fitted(scaled.c)
        fitted = fitted + self._fitted(scaled.c - scaled.B @ fitted)
        found = []
        for first in (v, fitted):
            for safety in self.safeties:
                moved = first
                for _ in range(self.corrections):
                    lacking = scaled.c + safety * noise - scaled.B @ moved
                    moved = moved + self._fitted(lacking.clamp(min=0.0))
                found.append(moved)
        return found

    def _fitted(self, margins: Tensor) -> Tensor:
        """Return coefficients of least norm with some margins, where h is large."""
        B = self.scaled.B
        v = B.new_zeros(B.shape[1])
        for _ in range(2):
            missing = B.T @ (self.h * (margins - B @ v))
            v = v + solve_normal(self.triangle, missing - self.T.T @ (self.T @ v))
        return v


def solve_normal(triangle: Tensor, right: Tensor) -> Tensor:
    """Solve A' A x = right, of the triangle of A's QR factorization."""
    half = torch.linalg.solve_triangular(triangle.T, right[:, None], upper=False)
    return torch.linalg.solve_triangular(triangle, half, upper=True)[:, 0]


def qr_factor(
    T: Tensor,
    B: Tensor,
    weights: Tensor,
    *,
    heavy_share: float = 10.0,
    ridge: float = 1e-15,
    block_rows: int = 4096,
) -> Tensor:
    """Return the triangle of a QR factorization of the rows T and diag(weights) B.

    Heavy rows come first, those whose weights exceed ``heavy_share`` times the mean: then rounding
    leaves the light ones their digits. A ridge of ``ridge`` times the norms of the columns keeps it
    regular, and the refinement makes up for it. At most ``block_rows`` rows are factored at once.

    Raises
    ------
    Breakdown
        The triangle is singular, or not finite.
    """
    heavy = torch.nonzero(weights > heavy_share * weights.mean())[:, 0]
    heavy = heavy[weights[heavy].argsort(descending=True)]
    light = weights.index_fill(0, heavy, 0.0)
    triangle = B[:0]
    for start in range(0, len(heavy), block_rows):
        rows = heavy[start : start + block_rows]
        more = torch.cat([triangle, B[rows] * weights[rows, None]])
        triangle = torch.linalg.qr(more, mode="r")[1]
    for start in range(0, len(B), block_rows):
        block = slice(start, start + block_rows)
        more = torch.cat([triangle, B[block] * light[block, None]])
        triangle = torch.linalg.qr(more, mode="r")[1]
    rows = torch.cat([triangle, T, (ridge * triangle.norm(dim=0)).diag()])
    order = rows.abs().amax(1).argsort(descending=True)
    triangle = torch.linalg.qr(rows[order], mode="r")[1]
    if not torch.isfinite(triangle).all() or (triangle.diagonal() == 0).any():
        raise Breakdown
    return triangle
