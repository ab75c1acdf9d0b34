r"""Newton's method on the support vectors, from the solution of a problem nearby.

The KKT conditions (`interior_point`), written as projections, with any q_n, sigma > 0:

        alpha_n = min(max(alpha_n - (y_n f(x_n) - 1) / q_n, 0), C)
        d_g     = max(d_g + sigma (||V_g||^2 - 1), 0)

are piecewise smooth. At an iterate the arguments of min and max say which samples are free
(F, 0 < alpha_n < C) and which groups active (A). Newton's step takes the others to their bounds
and solves for the rest, to first order, y_n f(x_n) = 1 on F and ||V_g|| = 1 on A:

        [ Q(d)_FF   U_FA ] [dalpha_F]   [b]
        [ U_AF'     0    ] [dd_A    ] = [c]

by one Cholesky factorisation of order |F| and its Schur complement of order |A|. Along a step
alpha, d, V and U are linear, so the residual of the projections costs nothing to search. Once
the sets are right two steps reach rounding, and all is certified as any other answer.

From a solution nearby most sets are right at the start, and |F| is a fraction of N: a step costs
little beside those of the interior point, which sees all samples. Where Newton makes no headway
(far from the start, data that are not separable) the fall-back solves.

======  ==========  ======================================================================
alpha   (N,)        dual variables
d       (G,)        group scales
V       (M', D')    V_m = sum_n alpha_n y_n z_mn x_n
U       (N, G)      U_g = Q_g alpha; y_n f(x_n) = (U d)_n
======  ==========  ======================================================================

The data are scaled as in `kernel`, so 1 is b_n and C is C nu_n there.

Source: Qi and Sun (1993), semismooth Newton; Hintermueller, Ito and Kunisch (2002), its sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from implicit_bias.certificate import Status
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Candidate, Progress, Report, Solver, Start, silent
from implicit_bias.solvers.kernel import Kernel, peak_memory

TINY = float(np.finfo(np.float64).tiny)
# By then the fall-back would have been the better choice.
MAX_STEPS = 20
# q_n as a share of the diagonal of Q(d): the smaller, the more margins decide over alpha.
SHARE = 0.3
# A group scale counts as this share of the mean one at least.
LEAST_SCALE = 1e-3
# Added to the diagonals, as a share of their mean, for free samples that depend on each other.
RIDGE = 1e-8
# The residual must fall by this share of the step's length, which is halved so often.
DECREASE = 0.2
HALVINGS = 6
# The solver aims a little below the tolerance, because the certificate rounds differently.
AIM = 0.9
# Share of alpha that may lie outside its bounds, which is of rounding.
OUTSIDE = 1e-12


@dataclass(frozen=True, kw_only=True)
class ActiveSet(Solver):
    """The native solver where there is a start.

    Parameters
    ----------
    fallback : Solver
        Solves where there is no start, or Newton's method does not converge from it.
    """

    fallback: Solver

    def run(
        self, problem: MarginProblem, report: Report = silent, start: Start | None = None
    ) -> Candidate:
        """Solve from ``start`` on ``device``; the module's head explains the method."""
        history: list[Progress] = []

        def tell(lower: float, upper: float) -> None:
            history.append(Progress(len(history), lower, upper))
            report(history[-1])

        if start is not None and self.fits(peak_memory(problem.n_samples, problem, 0)):
            kernel = Kernel(problem, torch.device(self.device))
            point = _Point.of(kernel, start)
            view = _View(kernel, point)
            status: Status | None = None
            try:
                while len(history) < min(self.max_iterations or MAX_STEPS, MAX_STEPS):
                    tell(view.lower / kernel.scale, view.upper / kernel.scale)
                    if self._converged(view):
                        status = Status.OPTIMAL
                        break
                    n_free = int(view.free.sum())
                    if not self.fits(peak_memory(problem.n_samples, problem, n_free)):
                        break
                    step = _newton(kernel, point, view)
                    better = None if step is None else _search(kernel, point, view, step)
                    if better is None:
                        break
                    point, view = better
            except KeyboardInterrupt:
                status = Status.INTERRUPTED
            if status is None and len(history) == self.max_iterations:
                status = Status.ITERATION_LIMIT
            if status is not None:
                return _candidate(kernel, point, view, status, history)
            del kernel, point, view  # their memory is needed
        left = None if self.max_iterations is None else self.max_iterations - len(history)
        solver = replace(self.fallback, max_iterations=left)
        found = solver.run(problem, lambda line: tell(line.lower, line.upper), start)
        return replace(found, iterations=len(history), history=tuple(history))

    def _converged(self, view: _View) -> bool:
        gap = self.tolerances.gap
        feasible = view.violation <= max(self.tolerances.feasibility, gap)
        return feasible and view.outside <= OUTSIDE and view.upper <= (1 + AIM * gap) * view.lower


def _candidate(
    kernel: Kernel, point: _Point, view: _View, status: Status, history: list[Progress]
) -> Candidate:
    return Candidate(
        alpha=(view.clipped / kernel.nu).cpu().numpy(),
        coef=kernel.coef(point.V, point.d.clamp(min=0.0)) / kernel.scale,
        status=status,
        iterations=len(history),
        history=tuple(history),
    )


@dataclass(frozen=True)
class _Point:
    """An iterate, or a direction."""

    alpha: Tensor
    d: Tensor
    V: Tensor
    U: Tensor

    @classmethod
    def of(cls, kernel: Kernel, start: Start) -> _Point:
        alpha = kernel.full(kernel.n_samples, 0.0)
        alpha[: len(start.alpha)] = kernel.tensor(start.alpha)
        alpha *= kernel.nu
        V = kernel.rows.dual_vectors(alpha)
        d = kernel.scale * kernel.tensor(start.group_scale)
        return cls(alpha, d, V, kernel.rows.group_products(V))

    def moved(self, step: _Point, length: float) -> _Point:
        return _Point(
            self.alpha + length * step.alpha,
            self.d + length * step.d,
            self.V + length * step.V,
            self.U + length * step.U,
        )


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, kernel: Kernel, point: _Point) -> None:
        alpha, d = point.alpha, point.d
        self.squares = kernel.rows.inner(point.V, point.V)  # (G,)
        margins = point.U @ d
        self.excess = margins - kernel.b  # (N,)
        self.clipped = torch.minimum(alpha.clamp(min=0.0), kernel.C)
        value = float(kernel.b @ self.clipped)
        # A group scale as the optimum has it: their sum is the value.
        scale = max(float(d.clamp(min=0.0).sum()), value) / kernel.n_groups
        self.floored = d.clamp(min=LEAST_SCALE * scale)
        # Where the projections take alpha and d.
        q = kernel.rows.curvature_diagonal(self.floored)
        aim = alpha - self.excess / (SHARE * q).clamp(min=TINY)
        self.at_zero, self.at_C = aim <= 0.0, aim >= kernel.C  # (N,)
        self.free = ~(self.at_zero | self.at_C)
        aim_d = d + scale * (self.squares - 1.0)
        self.active = aim_d > 0.0  # (G,)
        change = torch.minimum(aim.clamp(min=0.0), kernel.C) - alpha
        change_d = aim_d.clamp(min=0.0) - d
        size = float(q @ alpha.square()) + TINY
        by_d = float(change_d.square().mean()) / (scale**2 + TINY)
        self.residual = float(q @ change.square()) / size + by_d
        # The bounds.
        self.outside = float((alpha - self.clipped).abs().sum()) / (
            float(self.clipped.sum()) + TINY
        )
        norm = float(torch.dot(d.abs(), self.squares.sqrt()))
        smallest = float((margins / kernel.b).min())
        if kernel.soft:
            self.violation = 0.0
            self.upper = norm + float(kernel.C @ (-self.excess).clamp(min=0.0))
        else:
            self.violation = max(1.0 - smallest, 0.0)
            self.upper = norm / smallest if smallest > 0 else np.inf
        largest = float(self.squares.max().sqrt())
        self.lower = value / max(largest, 1.0 if kernel.soft else TINY)


def _newton(kernel: Kernel, point: _Point, view: _View) -> _Point | None:
    """Newton's step for the sets of an iterate; None where rounding forbids it."""
    everything, free, active = kernel.rows, view.free, view.active
    # What leaves its set goes to its bound, and moves V (dV) and so the equations of the rest.
    alpha = torch.where(view.at_C, kernel.C - point.alpha, -point.alpha)
    alpha = torch.where(free, 0.0, alpha)
    d = torch.where(active, 0.0, -point.d)
    moving = torch.nonzero(alpha)[:, 0]
    dV = everything.subset(moving).dual_vectors(alpha[moving])
    index = torch.nonzero(free)[:, 0]
    if len(index):
        rows, U = everything.subset(index), point.U[index]
        b = -view.excess[index] - rows.group_products(dV) @ point.d - U @ d
        c = (0.5 * (1.0 - view.squares) - everything.inner(point.V, dV))[active]
        solved = _saddle(rows.curvature(view.floored * active), U[:, active], b, c)
        if solved is None:
            return None
        alpha[index], d[active] = solved
        dV = dV + rows.dual_vectors(solved[0])
    return _Point(alpha, d, dV, everything.group_products(dV))


def _saddle(Q: Tensor, U: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor] | None:
    """Solve Q x + U y = b, U' x = c; None if rounding has made it indefinite. Overwrites Q."""
    L = _cholesky(Q)
    if L is None:
        return None
    W = torch.linalg.solve_triangular(L, U, upper=False)
    h = torch.linalg.solve_triangular(L, b[:, None], upper=False)
    y = torch.zeros_like(c)[:, None]
    if len(c):
        schur = _cholesky(W.T @ W)
        if schur is None:
            return None
        y = torch.cholesky_solve(W.T @ h - c[:, None], schur)
    x = torch.linalg.solve_triangular(L.T, h - W @ y, upper=True)
    return x[:, 0], y[:, 0]


def _cholesky(A: Tensor) -> Tensor | None:
    """Lower factor of a matrix with a little more on its diagonal; None if there is none."""
    A.diagonal().add_(RIDGE * A.diagonal().mean())
    L, info = torch.linalg.cholesky_ex(A)
    return None if info else L


def _search(
    kernel: Kernel, point: _Point, view: _View, step: _Point
) -> tuple[_Point, _View] | None:
    """Return the first point along a step that lowers the residual enough, or the best one.

    None where none is better.
    """
    best = None
    for length in 0.5 ** np.arange(HALVINGS + 1):
        moved = point.moved(step, float(length))
        seen = _View(kernel, moved)
        if seen.residual < (view.residual if best is None else best[1].residual):
            best = moved, seen
        if seen.residual <= (1.0 - DECREASE * length) * view.residual:
            break
    return best
