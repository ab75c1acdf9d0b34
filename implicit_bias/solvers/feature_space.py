r"""A primal-dual interior point in the space of the features, for problems with few of them.

The method is that of `homogeneous`, in float64. Its Newton step in v is the solution of a least
squares problem with the rows

        h^(1/2) B,   1/h = s/alpha + xi/beta,      and one block a cone, from W^-1

which are factored by QR and never squared: a Gram matrix of data whose margin is 1e-8 of their norm
holds nothing of it in float64. The factor's normal equations are refined with the rows themselves.

======  ==========  ==========================================================================
v       (P',)       of centred, equilibrated features, and the intercept last where there is one
phi_n   (P,)        features of sample n: the used gates times the inputs
nu      (N,)        powers of two near the features' norms; c_n = sigma / nu_n, the box is C nu_n
======  ==========  ==========================================================================

Two more things keep digits. Near the end alpha is corrected until V(alpha) is
right to rounding, and v until no margin falls short, both with weights that do not grow like 1/mu
(`_Polish`). And inputs that vary little around an offset, years say, are centred where something
absorbs the offset: the intercept, or a constant feature, whose penalty then is a row of T that is
not diagonal. The centring is exact by Sterbenz's lemma, all scalings are powers of two.

Time is linear in N, O(N P^2) a step, and memory that of B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.solvers import homogeneous
from implicit_bias.solvers.base import Answer, Start, Tolerances
from implicit_bias.solvers.interior_point import InteriorPoint, is_not_euclidean
from implicit_bias.solvers.iteration import Breakdown, RowSolver, Run, Steps
from implicit_bias.solvers.scaling import TINY, MergedInputs

# The solver aims below the tolerance, because the certificate rounds differently; but a gap that
# has not fallen for this many steps will do.
AIM = 0.1
SETTLED = 2
# This many steps without this relative progress, and stagnation is attributed to rounding.
PATIENCE = 12
LEAST_PROGRESS = 1e-3
ROUNDING = 1e-14
EPSILON = float(np.finfo(np.float64).eps)
# Each start: alpha beyond what the norms allow, and mu over the dual's value. Large alpha saves
# steps where the optimum is far from any guess; alpha within the norms is the safer start.
STARTS = ((1e6, 1e-2), (1.0, 1.0))
# Samples' alpha differ by this factor at most at the start.
UNEVEN = 100.0
# A solution is refined until its residual is this share of the first one, or stops falling.
REFINED = 1e-13
REFINEMENTS = 4
# Directions whose rows are below this share of their columns are left to the refinement.
RIDGE = 1e-15
# Rows factored at once, and what makes a row so heavy that it must come before the others.
BLOCK = 4096
HEAVY = 10.0
# From this gap, or this many times the separators' smallest norm, results are polished.
POLISHED_GAP = 1e-5
POLISHED_RATIO = 1e4
POLISHES = 3
# How much dearer it is to change V, or w, than alpha, or the margins.
POLISH_WEIGHT = 1e8
# Multiples of the rounding error by which polished margins exceed c.
SAFETIES = (0.0, 4.0, 16.0)
# The safest coefficients may be worse than the best ones by this share of the tolerance.
SAFETY_SHARE = 0.01
# Inputs are centred where the largest is at most this many times the smallest.
OFFSET_RATIO = 3.0


@dataclass(frozen=True, kw_only=True)
class FeatureSpace(RowSolver):
    """The homogeneous embedding in the space of the features: time linear in the samples.

    With two classes and sums of l2 features may have any scales, and a start is not used. Other
    problems go to `InteriorPoint` with its system in the features.
    """

    name: ClassVar[str] = "feature-space"
    takes_classes: ClassVar[bool] = True
    own_limit: ClassVar[int] = 150

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Those of the interior point that are no sums of l2."""
        return is_not_euclidean(problem)

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Check that there is room for the features."""
        if problem.classes is not None or is_not_euclidean(problem):
            options = {x.name: getattr(self, x.name) for x in fields(self)}
            return InteriorPoint(system="features", **options).prepare(problem, start)
        rows = self.chosen(problem)
        posed = problem if self.rows is None else problem.subset(rows.samples)
        self.check_memory(peak_memory(posed))
        return _FeatureSpaceRun(self, posed, rows)


class _FeatureSpaceRun(Run):
    """The central path, from one start and, in trouble, from a safer one."""

    def __init__(self, solver: FeatureSpace, problem: MarginProblem, rows: Constraints) -> None:
        self._tolerances, self._rows = solver.tolerances, rows
        self._program = _Program(problem, torch.device(solver.device))
        self._best = _Best(self._program)

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        v = self._best.safest(self._tolerances)
        coef, intercept = self._program.coefficients(v)
        alpha = self._rows.alpha(self._program.dual_variables(self._best.alpha))
        return Answer(alpha, coef, intercept)

    def steps(self) -> Steps:
        """Follow the central path from each start until one leads to an end."""
        status = Status.NUMERICAL_TROUBLE
        for excess, share in STARTS:
            if status is Status.NUMERICAL_TROUBLE:
                self._best.waited, self._best.closest = 0, np.inf
                status = yield from self._follow(_first(self._program, excess, share))
        return status

    def _follow(self, point: homogeneous.EmbeddingPoint) -> Steps:
        """Follow the central path from a point, and say why not further."""
        program, best, tolerances = self._program, self._best, self._tolerances
        try:
            while True:
                view = _View(program, point)
                best.update(point, view, tolerances)
                yield best.lower / program.sigma, best.upper / program.sigma
                if best.separable is False:
                    return Status.NOT_SEPARABLE
                if best.reached(tolerances):
                    return Status.OPTIMAL
                if best.waited > PATIENCE:
                    return Status.NUMERICAL_TROUBLE
                point = _Newton(program, point, view).next()
        except Breakdown:
            return Status.NUMERICAL_TROUBLE


def _first(program: _Program, excess: float, share: float) -> homogeneous.EmbeddingPoint:
    """All products equal, tau = 1, alpha ``excess`` times half way to the norm constraints."""
    alpha = (program.nu / program.nu.median()).clamp(1.0 / UNEVEN, UNEVEN)
    largest = float(program.group_norms(program.dual_vectors(program.B.T @ alpha)).max())
    alpha = alpha * (0.5 * excess / largest if largest > 0 else 1.0)
    alpha = alpha / (
        1.0 + homogeneous.lift(2.0 * program.boxed(alpha) / program.C)
    )  # at most half way to C
    beta = program.C - program.boxed(alpha)
    V = program.dual_vectors(program.B.T @ alpha)
    V = V * min(1.0, 0.5 / max(float(program.group_norms(V).max()), TINY))
    norms = program.group_norms(V)
    mu = share * float(alpha @ program.c)
    t = mu / (1.0 - norms**2)
    return homogeneous.EmbeddingPoint(
        v=program.from_coef(t[program.groups] * V),
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


class _View(homogeneous.Equations):
    """What the equations and the bounds say of an iterate."""

    def __init__(self, program: _Program, point: homogeneous.EmbeddingPoint) -> None:
        super().__init__(program, point)
        self.lower = program.lower(point.alpha)
        tau = point.tau
        self.upper, self.violation = program.upper(point.v / tau, self.margins / tau)


class _Best:
    """The best bounds so far and what attains them."""

    def __init__(self, program: _Program) -> None:
        self.program = program
        self.alpha, self.v = torch.zeros_like(program.c), program.B.new_zeros(program.B.shape[1])
        self.lower, self.upper, self.violation = 0.0, np.inf, np.inf
        self.gap, self.waited, self.closest = np.inf, 0, np.inf
        self.separable: bool | None = None
        self._safe: tuple[Tensor, float] = self.v, np.inf

    def safest(self, tolerances: Tolerances) -> Tensor:
        """Return v whose margins exceed c by most, if it is hardly worse than the best one.

        Rounding in the problem's own coordinates is not that of these.
        """
        v, upper = self._safe
        return v if upper <= self.upper * (1.0 + SAFETY_SHARE * tolerances.gap) else self.v

    def reached(self, tolerances: Tolerances) -> bool:
        """Whether a solver may stop: below the tolerance, or there and no longer falling."""
        aim = AIM if self.waited < SETTLED else 1.0
        return self.gap <= aim * tolerances.gap and self.violation <= tolerances.feasibility

    def update(
        self, point: homogeneous.EmbeddingPoint, view: _View, tolerances: Tolerances
    ) -> None:
        """Take over an iterate, and its polished versions where it is near its end."""
        lower, gap = self.lower, self.gap
        self._take_alpha(point.alpha / point.tau, view.lower)
        self._take_coef(point.v / point.tau, view.upper, view.violation)
        if self.upper < np.inf:
            self.separable = True
        if view.gap < POLISHED_GAP:
            polish = _Polish(self.program, point, view)
            alpha = polish.dual(point.alpha, point.V)
            self._take_alpha(alpha / point.tau, self.program.lower(alpha))
            for v in polish.primal(point.v / point.tau):
                upper, violation = self.program.upper(v, self.program.B @ v)
                self._take_coef(v, upper, violation)
                if upper <= self.upper * (1.0 + SAFETY_SHARE * tolerances.gap):
                    self._safe = v, upper
        elif self._seems_inseparable(point.alpha):
            alpha = _Polish(self.program, point, view).dual(point.alpha, 0.0 * point.V)
            for proof in (point.alpha, alpha):
                ratio = self.program.gordan_ratio(proof)
                if ratio > 1.0 / (AIM * tolerances.infeasibility):
                    self.alpha, self.separable = proof, False
        if self.lower > 0:
            self.gap = min(self.gap, max((self.upper - self.lower) / self.lower, ROUNDING))
        risen = self.lower > (1.0 + LEAST_PROGRESS) * lower
        closer = view.gap < (1.0 - LEAST_PROGRESS) * self.closest
        self.closest = min(self.closest, view.gap)
        moved = risen or closer or self.gap < (1.0 - LEAST_PROGRESS) * gap
        self.waited = 0 if moved else self.waited + 1

    def _seems_inseparable(self, alpha: Tensor) -> bool:
        """Whether alpha may be near a proof that there is no separator."""
        if self.separable or self.program.soft:
            return False
        return self.program.gordan_ratio(alpha) > POLISHED_RATIO

    def _take_alpha(self, alpha: Tensor, lower: float) -> None:
        if lower > self.lower:
            self.alpha, self.lower = alpha, lower

    def _take_coef(self, v: Tensor, upper: float, violation: float) -> None:
        if upper < self.upper:
            self.v, self.upper, self.violation = v, upper, violation


class _Polish:
    """Corrections to alpha and v by least squares, with weights alpha instead of alpha / s.

    The rows are h^(1/2) B and T over ||w_g||^(1/2): at the optimum sum_g ||w_g||^2 / d_g is least
    for the margins of the support vectors, with d_g = ||w_g||.
    """

    def __init__(self, program: _Program, point: homogeneous.EmbeddingPoint, view: _View) -> None:
        self.program = program
        free = point.alpha / (1.0 + homogeneous.lift(program.boxed(point.alpha) / point.beta))
        norms = program.group_norms(view.w)
        dear = (norms.max() / norms.clamp(min=TINY)).clamp(max=1.0 / EPSILON).sqrt()
        self.T = program.T * dear[program.groups, None]
        size = float(view.w.norm() / point.v.norm().clamp(min=TINY))
        self.h = POLISH_WEIGHT * size**2 * free / float(free.max())
        self.R = _triangle([self.T], program.B, self.h.sqrt())

    def dual(self, alpha: Tensor, V: Tensor) -> Tensor:
        """Return alpha with B' alpha = T' V to rounding, for V near the given one."""
        B = self.program.B
        pull = self.program.T.T @ V
        for _ in range(POLISHES):
            x = _normal_solve(self.R, B.T @ alpha - pull)
            alpha, pull = alpha - self.h * (B @ x), pull + self.T.T @ (self.T @ x)
        return alpha.clamp(min=0.0)

    def primal(self, v: Tensor) -> list[Tensor]:
        """Coefficients whose margins are c at least, by several multiples of rounding.

        Near v; and near the ones of least norm whose support vectors are those of v.
        """
        program, found = self.program, []
        noise = EPSILON * program.magnitudes(v)
        fitted = self._fitted(program.c)
        for first in (
            () if program.soft else (v, fitted + self._fitted(program.c - program.B @ fitted))
        ):
            for safety in SAFETIES:
                moved = first
                for _ in range(POLISHES):
                    lacking = program.c + safety * noise - program.B @ moved
                    moved = moved + self._fitted(lacking.clamp(min=0.0))
                found.append(moved)
        return found

    def _fitted(self, margins: Tensor) -> Tensor:
        """Return coefficients of least norm with some margins, where h is large."""
        B = self.program.B
        v = torch.zeros(B.shape[1], dtype=B.dtype, device=B.device)
        for _ in range(2):
            missing = B.T @ (self.h * (margins - B @ v))
            v = v + _normal_solve(self.R, missing - self.T.T @ (self.T @ v))
        return v


class _Newton(homogeneous.Newton):
    """By QR of the rows, and refinement with the rows themselves."""

    program: _Program

    def factorise(self) -> None:
        """Factorise the rows of the cones and those of the samples."""
        rows = _of_cones(self.cones, self.program)
        self.R = _triangle([rows], self.program.B, self.h.sqrt())

    def solve(
        self, q: Tensor, cone: homogeneous.ConeVectors, pull: Tensor, tau: float
    ) -> tuple[Tensor, Tensor, homogeneous.ConeVectors]:
        """dv, dalpha = h (q - B dv) and the cones' dual change, with B' dalpha = T' dV - pull."""
        program, cones = self.program, self.cones
        v, first, last = torch.zeros_like(pull), 0.0, np.inf
        answer = None
        for _ in range(REFINEMENTS):
            alpha = self.h * (q if answer is None else q - program.B @ v)
            z = cones.dual_change(cone, program.T @ v, tau)
            residual = pull + program.B.T @ alpha + program.T.T @ cones.tail(z)
            half = torch.linalg.solve_triangular(self.R.T, residual[:, None], upper=False)
            size = float(half.norm())
            if not size < 0.5 * last:
                break
            answer, last, first = (v, alpha, z), size, first or size
            if size <= REFINED * first:
                break
            v = v + torch.linalg.solve_triangular(self.R, half, upper=True)[:, 0]
        if answer is None:
            raise Breakdown
        return answer


def _of_cones(cones: homogeneous.Cones, program: _Program) -> Tensor:
    """Rows of the least squares problem, (G + P, P')."""
    T, axis = program.T, cones.axis[:, None]
    inner = program.member.T @ (axis * T)  # (G, P')
    along = (2.0 / (cones.minus**2 + cones.plus**2)).sqrt()[:, None] * inner
    rest = T - axis * inner[program.groups]
    return torch.cat([along, rest / cones.across[program.groups, None]])


def _normal_solve(R: Tensor, right: Tensor) -> Tensor:
    """Solve R' R x = right."""
    half = torch.linalg.solve_triangular(R.T, right[:, None], upper=False)
    return torch.linalg.solve_triangular(R, half, upper=True)[:, 0]


def _triangle(above: Sequence[Tensor], B: Tensor, weights: Tensor) -> Tensor:
    """R of a QR factorisation of some rows and those of diag(weights) B.

    Heavy rows come first: then rounding leaves the light ones their digits.

    Raises
    ------
    Breakdown
        R is singular, or not finite.
    """
    heavy = torch.nonzero(weights > HEAVY * weights.mean())[:, 0]
    heavy = heavy[weights[heavy].argsort(descending=True)]
    light = weights.index_fill(0, heavy, 0.0)
    R = B[:0]
    for start in range(0, len(heavy), BLOCK):
        rows = heavy[start : start + BLOCK]
        R = torch.linalg.qr(torch.cat([R, B[rows] * weights[rows, None]]), mode="r")[1]
    for start in range(0, len(B), BLOCK):
        block = slice(start, start + BLOCK)
        R = torch.linalg.qr(torch.cat([R, B[block] * light[block, None]]), mode="r")[1]
    rows = torch.cat([R, *above, (RIDGE * R.norm(dim=0)).diag()])
    order = rows.abs().amax(1).argsort(descending=True)
    R = torch.linalg.qr(rows[order], mode="r")[1]
    if not torch.isfinite(R).all() or (R.diagonal() == 0).any():
        raise Breakdown
    return R


class _Program(homogeneous.Program):
    """The problem in centred and equilibrated features; see the module's head."""

    def __init__(self, problem: MarginProblem, device: torch.device) -> None:
        self._problem = problem
        intercept = problem.intercept
        gates = sp.csc_array(problem.features.sparse_gates)
        self._used = _used_gates(gates)
        Z = gates[:, self._used].toarray()
        # A free intercept absorbs the offsets only where every gate is constant.
        absorbed = intercept and bool((Z == Z[0]).all())
        self._inputs = _Inputs(problem.X, absorbed)
        D = len(self._inputs.offsets)
        P = D * len(self._used)
        norms = problem.feature_norms
        smallest = float(norms[norms > 0].min()) if norms.any() else 1.0
        # The intercept's constant must not drown the features of any sample.
        norms = np.hypot(norms, smallest if intercept else 0.0)
        nu = _power_of_two(np.where(norms > 0, norms, smallest))
        B = np.empty((len(Z), P + intercept))
        inputs = self._inputs.of(problem.X, self._inputs.offsets[:-1])
        for m in range(len(self._used)):
            np.multiply(inputs, (problem.y * Z[:, m] / nu)[:, None], out=B[:, m * D : (m + 1) * D])
        B[:, P:] = (problem.y / nu)[:, None]
        sizes = np.sqrt(np.einsum("np,np->p", B, B))
        scale = 1.0 / _power_of_two(np.where(sizes > 0, sizes, 1.0))
        B *= scale
        # (w, b) = T v with all rows: scaled, then moved back by the offsets.
        whole = np.diag(scale)
        for m in range(len(self._used)):
            block = np.arange(m * D, (m + 1) * D)
            if absorbed:
                whole[-1, block] -= Z[0, m] * self._inputs.offsets * scale[block]
            elif self._inputs.norm > 0:
                whole[block[-1], block] -= self._inputs.offsets / self._inputs.norm * scale[block]
        groups = np.unique(problem.groups[self._used], return_inverse=True)[1]
        self.n_groups = int(groups.max()) + 1
        self.groups = torch.as_tensor(np.repeat(groups, D), device=device)
        self.member = torch.nn.functional.one_hot(self.groups, self.n_groups).double()
        self.B = torch.as_tensor(B, device=device)
        self._intercept = intercept
        self._whole = torch.as_tensor(whole, device=device)
        self._back = torch.linalg.inv(self._whole)
        self.T = self._whole[:P]
        self.sigma = float(nu.min())
        self.nu = torch.as_tensor(nu, device=device)
        self.soft = not problem.hard_margin
        self.c, self.C = self.sigma / self.nu, self.nu[:0]
        if self.soft:
            self.C = torch.tensor(problem.box, device=device) * self.nu

    def coef(self, v: Tensor) -> Tensor:
        """Return w = T v, (P,)."""
        return self.T @ v

    def pulled(self, V: Tensor) -> Tensor:
        """T' V, (P',)."""
        return self.T.T @ V

    def group_sums(self, values: Tensor) -> Tensor:
        """Sum the entries of each group, (G,)."""
        return self.member.T @ values

    def positive(self, values: Tensor) -> Tensor:
        """Return values of the smallest normal number at least."""
        return values.clamp(min=TINY)

    def dual_vectors(self, pull: Tensor) -> Tensor:
        """V (P,) from B' alpha."""
        return (self._back.T @ pull)[: len(self.T)]

    def from_coef(self, w: Tensor) -> Tensor:
        """Return v of w, without intercept."""
        return self._back[:, : len(w)] @ w

    def magnitudes(self, v: Tensor) -> Tensor:
        """Sum of the absolute terms of each margin in the problem's own coordinates, (N,)."""
        return self.B.abs() @ (self._back.abs() @ (self._whole @ v).abs())

    def lower(self, alpha: Tensor) -> float:
        """Return the lower bound from alpha; 0 where its dual vectors vanish."""
        alpha = self.balanced(alpha)
        value, largest = float(self.c @ alpha), self._largest(self._pull(alpha))
        growth = 1.0 / largest if largest > 0 else np.inf
        if self.soft and value > 0:
            growth = min(growth, float((self.C / alpha).min()))
        return value * growth if value > 0 and np.isfinite(growth) else 0.0

    def gordan_ratio(self, alpha: Tensor) -> float:
        """Return sum(alpha) over what is left of B' alpha, in the larger of both coordinates."""
        alpha = self.balanced(alpha)
        pull = self._pull(alpha)
        left = max(self._largest(pull), float(pull.norm()))
        return float(alpha.sum()) / left if left > 0 else np.inf

    def _pull(self, alpha: Tensor) -> Tensor:
        """B' alpha of balanced alpha, whose entry of the intercept is 0."""
        pull = self.B.T @ alpha
        if self._intercept:
            pull[-1] = 0.0
        return pull

    def _largest(self, pull: Tensor) -> float:
        """Return the largest norm of a group of the dual vectors."""
        return float(self.group_norms(self.dual_vectors(pull)).max())

    def upper(self, v: Tensor, margins: Tensor) -> tuple[float, float]:
        """Return the upper bound from v; and by how much a margin falls short."""
        norm = float(self.group_norms(self.T @ v).sum())
        if self.soft:
            return norm + float(self.C @ (self.c - margins).clamp(min=0.0)), 0.0
        smallest = float((margins / self.c).min())
        return (norm / smallest if smallest > 0 else np.inf), max(1.0 - smallest, 0.0)

    def dual_variables(self, alpha: Tensor) -> Array:
        """Return alpha of the samples, (N,), of the problem as posed."""
        return (self.balanced(alpha) / self.nu).cpu().numpy()

    def coefficients(self, v: Tensor) -> tuple[Array, float]:
        """Return zeta (M, D) and the intercept of the problem as posed."""
        whole = (self._whole @ v).cpu().numpy() / self.sigma
        w, b = whole[: len(self.T)], whole[len(self.T) :].sum()
        coef = np.zeros(self._problem.features.shape)
        coef[self._used] = self._inputs.expand(w.reshape(len(self._used), -1))
        return coef, float(b)


def peak_memory(problem: MarginProblem) -> int:
    """Bytes that a solve may take at most beside the problem."""
    N, D = problem.X.shape
    M = len(_used_gates(sp.csc_array(problem.features.sparse_gates)))
    P = M * (D + 1) + 1
    return 8 * (N * (P + M + D + 40) + 3 * BLOCK * P + 8 * P**2)


def _used_gates(gates: sp.csc_array) -> NDArray[np.int64]:
    """Columns that are on somewhere; the first one where there is none."""
    used = np.flatnonzero(np.abs(gates).max(axis=0).toarray().reshape(-1) > 0)
    return used if len(used) else np.zeros(1, dtype=np.int64)


def _power_of_two(values: Array) -> Array:
    """Powers of two near positive values."""
    return np.asarray(np.exp2(np.round(np.log2(values))))


class _Inputs(MergedInputs):
    """Merged inputs, centred where that is exact and free."""

    def __init__(self, X: Array, absorbed: bool) -> None:
        super().__init__(X)
        low, high = X[:, self.varying].min(axis=0), X[:, self.varying].max(axis=0)
        smallest = np.minimum(np.abs(low), np.abs(high))
        near = (low * high > 0) & (np.maximum(np.abs(low), np.abs(high)) <= OFFSET_RATIO * smallest)
        middle = np.where(near & (absorbed or self.norm > 0), 0.5 * low + 0.5 * high, 0.0)
        self.offsets = np.append(middle, 0.0)  # (D',)
