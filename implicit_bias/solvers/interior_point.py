r"""Primal-dual interior point on the dual QCQP in N variables.

Primal  minimise  sum_g ||zeta_g|| + C sum_n xi_n
        subject to  y_n f(x_n) >= 1 - xi_n,   xi >= 0

Dual    maximise  sum_n alpha_n
        subject to  0 <= alpha_n <= C,   ||V_g(alpha)||^2 / 2 <= 1/2

KKT     Q(d) alpha - b = s - r,   Q(d) = sum_g d_g Q_g,   b = 1
        ||V_g(alpha)||^2 / 2 + t_g = 1/2
        s_n alpha_n = mu,   r_n w_n = mu,   d_g t_g = mu,      mu -> 0

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

The data are scaled inside: each sample's features to norm 1, by nu_n, and the norm of zeta by
the root mean square sigma of nu. Then b_n = sigma / nu_n, the dual maximises sum_n b_n alpha_n,
and the box is alpha_n <= C nu_n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.certificate import Status
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Candidate, Progress, Report, Solver, silent

MAX_ITERATIONS = 100
# Share of the way to the boundary that a step may go.
BOUNDARY_SHARE = 0.995
# A cautious step shorter than this is compared with more careful ones.
SHORT = 0.1
# mu need not fall below this share of what the gap tolerance asks for.
CENTRING_FLOOR = 0.05
# The solver aims a little below the tolerance, because the certificate rounds differently.
AIM = 0.9
# So many steps without this relative progress in a bound or the gap, and rounding has won.
PATIENCE = 10
CAUTIOUS_PATIENCE = 30
LEAST_PROGRESS = 1e-3


@dataclass(frozen=True, kw_only=True)
class InteriorPoint(Solver):
    """The native solver: a dozen Newton steps, each one Cholesky factorisation of order N."""

    def run(self, problem: MarginProblem, report: Report = silent) -> Candidate:
        """Solve on ``device`` in float64; the module's head explains the method."""
        kernel = _Kernel(problem, torch.device(self.device))
        best = _Best()
        history: list[Progress] = []

        def record() -> None:
            progress = Progress(len(history), best.lower / kernel.scale, best.upper / kernel.scale)
            history.append(progress)
            report(progress)

        status = self._iterate(kernel, best, record, cautious=False)
        if status is Status.NUMERICAL_TROUBLE:
            status = self._iterate(kernel, best, record, cautious=True)
        return Candidate(
            alpha=(best.alpha / kernel.nu).cpu().numpy(),
            coef=np.asarray(problem.root @ best.coef.cpu().numpy()) / kernel.scale,
            status=status,
            iterations=len(history),
            history=tuple(history),
        )

    def _iterate(
        self, kernel: _Kernel, best: _Best, record: Callable[[], None], *, cautious: bool
    ) -> Status:
        """Follow the central path from the start; stop as `_stop` says."""
        point = _start(kernel)
        best.waited = 0
        for _ in range(self.max_iterations or MAX_ITERATIONS):
            view = _View(kernel, point)
            best.update(point, view)
            record()
            if (stop := self._stop(best, view)) is not None:
                return stop
            if best.waited > (CAUTIOUS_PATIENCE if cautious else PATIENCE):
                return Status.NUMERICAL_TROUBLE
            try:
                newton = _Newton(kernel, point, view)
            except _Breakdown:
                return Status.NUMERICAL_TROUBLE
            mu = point.complementarity()
            predictor = newton.direction(0.0)
            reach = point.reach(predictor)
            after = point.moved(predictor, reach).complementarity()
            enough = CENTRING_FLOOR * self.tolerances.gap * best.lower / kernel.n_pairs
            target = max((after / mu) ** 3 * mu, enough)
            step = newton.direction(target, predictor)
            if cautious and point.reach(step) < SHORT:
                # The predictor overshot: trust its second-order terms less, or centre first.
                shorter = [newton.direction(target, predictor, reach**k) for k in (1, 2)]
                centred = [newton.direction(share * mu) for share in (0.1, 1.0)]
                step = max([step, *shorter, *centred], key=point.reach)
            point = point.moved(step, min(1.0, BOUNDARY_SHARE * point.reach(step)))
        return Status.ITERATION_LIMIT

    def _stop(self, best: _Best, view: _View) -> Status | None:
        if view.gordan_ratio > 1.0 / self.tolerances.infeasibility:
            best.alpha = view.alpha
            return Status.NOT_SEPARABLE
        if best.gap <= AIM * self.tolerances.gap and view.violation <= self.tolerances.feasibility:
            return Status.OPTIMAL
        return None


class _Breakdown(ArithmeticError):
    """Rounding has made the Newton system indefinite."""


class _Kernel:
    """The scaled problem on the device, and its products; everything that costs time."""

    def __init__(self, problem: MarginProblem, device: torch.device) -> None:
        def move(array: NDArray[Any]) -> Tensor:
            return torch.tensor(array, device=device)

        self.scale = problem.scale
        norms = problem.feature_norms
        self.nu = move(np.where(norms > 0, norms, self.scale))  # (N,)
        self.b = self.scale / self.nu
        self.C = problem.C * self.nu
        self.yX = move(problem.X * problem.y[:, None]) / self.nu[:, None]  # (N, D)
        self.Z = move(problem.plain_gates.toarray())  # (N, M)
        self.groups = move(problem.plain_groups)  # (M,)
        self.K = self.yX @ self.yX.T  # (N, N)
        self.soft = not problem.hard_margin
        self.n_samples, self.n_groups = problem.n_samples, problem.n_groups
        self.n_pairs = self.n_samples * (1 + self.soft) + self.n_groups

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V (M, D) of alpha (N,)."""
        return self.Z.T @ (self.yX * alpha[:, None])

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group (G,)."""
        return self._zeros(self.n_groups).index_add_(0, self.groups, (V * W).sum(1))

    def group_products(self, V: Tensor) -> Tensor:
        """U (N, G): y_n <V_g, features of n in group g>."""
        products = (self.yX @ V.T).mul_(self.Z)  # (N, M)
        return self._zeros(self.n_samples, self.n_groups).index_add_(1, self.groups, products)

    def curvature(self, d: Tensor) -> Tensor:
        """Q(d) = K o (Z diag(d) Z'), shape (N, N)."""
        return torch.mm(self.Z * d[self.groups], self.Z.T).mul_(self.K)

    def full(self, size: int, value: float) -> Tensor:
        return torch.full((size,), value, dtype=self.K.dtype, device=self.K.device)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.K.dtype, device=self.K.device)


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


def _start(kernel: _Kernel) -> _Point:
    """Equal alpha, half way to the nearest norm constraint (and to C); equal group scales."""
    ones = kernel.full(kernel.n_samples, 1.0)
    V = kernel.dual_vectors(ones)
    largest = float(kernel.inner(V, V).max().sqrt())
    level = min(0.5 / largest if largest > 0 else 1.0, 0.5 * float(kernel.C.min()))
    alpha = level * ones
    # Above the order of the lower bound, as sum(d) will be.
    total = 10.0 * level * float(kernel.b.sum())
    n_box = kernel.n_samples if kernel.soft else 0
    return _Point(
        alpha=alpha,
        t=0.5 * (1.0 - level**2 * kernel.inner(V, V)),
        w=(kernel.C - level)[:n_box],
        s=ones,
        d=kernel.full(kernel.n_groups, total / kernel.n_groups),
        r=ones[:n_box],
    )


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, kernel: _Kernel, point: _Point) -> None:
        self.V = kernel.dual_vectors(point.alpha)
        self.U = kernel.group_products(self.V)
        squares = kernel.inner(self.V, self.V)
        margins = self.U @ point.d
        self.dual_residual = kernel.b + point.s - _lift(point.r) - margins  # (N,)
        self.primal_residual = 0.5 - point.t - 0.5 * squares  # (G,)
        self.coef = self.V * point.d[kernel.groups][:, None]  # zeta_g = d_g V_g
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
        self.alpha = point.alpha
        self.gordan_ratio = 0.0 if kernel.soft else float(point.alpha.sum()) * growth
        within_box = float((kernel.C / point.alpha).min())
        self.lower = float(kernel.b @ point.alpha) * min(growth, within_box)


class _Best:
    """The best bounds so far and what attains them."""

    alpha: Tensor
    coef: Tensor

    def __init__(self) -> None:
        self.lower, self.upper, self.gap, self.waited = 0.0, np.inf, np.inf, 0

    def update(self, point: _Point, view: _View) -> None:
        better = view.lower > (1.0 + LEAST_PROGRESS) * self.lower
        if view.lower > self.lower:
            self.lower, self.alpha = view.lower, point.alpha
        if view.upper <= self.upper:
            self.upper, self.coef = view.upper, view.coef
        gap = (self.upper - self.lower) / self.lower
        better = better or gap < (1.0 - LEAST_PROGRESS) * self.gap
        self.waited = 0 if better else self.waited + 1
        self.gap = min(gap, self.gap)


class _Newton:
    """The factorised Newton system at one iterate."""

    def __init__(self, kernel: _Kernel, point: _Point, view: _View) -> None:
        self.kernel, self.point, self.view = kernel, point, view
        A = kernel.curvature(point.d)
        A.diagonal().add_(point.s / point.alpha + _lift(point.r / point.w))
        self.L = _cholesky(A)
        self.W = torch.linalg.solve_triangular(self.L, view.U, upper=False)  # (N, G)
        self.schur = _cholesky(self.W.T @ self.W + torch.diag(point.t / point.d))

    def direction(self, mu: float, predictor: _Point | None = None, weight: float = 1.0) -> _Point:
        """Step towards the central path at mu, with the predictor's second-order terms.

        ``weight`` scales those terms, which hold for a full step of the predictor.
        """
        p, view, kernel = self.point, self.view, self.kernel
        at_alpha, at_t, at_w = mu - p.s * p.alpha, mu - p.d * p.t, mu - p.r * p.w
        dual_residual, primal_residual = view.dual_residual, view.primal_residual
        if predictor is not None:
            at_alpha = at_alpha - weight * predictor.s * predictor.alpha
            at_t = at_t - weight * predictor.d * predictor.t
            at_w = at_w - weight * predictor.r * predictor.w
            dV = kernel.dual_vectors(predictor.alpha)
            primal_residual = primal_residual - 0.5 * weight * kernel.inner(dV, dV)
            curvature = kernel.group_products(dV) @ predictor.d
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


def _cholesky(matrix: Tensor) -> Tensor:
    """Lower factor; rounding may ask for a little more on the diagonal.

    Raises
    ------
    _Breakdown
        Not positive definite even so.
    """
    for size in (0.0, 1e-15, 1e-13, 1e-11):
        diagonal = matrix.diagonal()
        diagonal.add_(size * diagonal.mean())
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not info:
            return factor
    raise _Breakdown
