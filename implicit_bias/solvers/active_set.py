r"""Newton's method on the support vectors, from the solution of a similar problem.

The KKT conditions (`interior_point`), written as projections, with any q_n, sigma > 0:

        alpha_n = min(max(alpha_n - (y_n f(x_n) - 1) / q_n, 0), C)
        d_g     = max(d_g + sigma (||V_g||^2 - 1), 0)

are piecewise smooth. At an iterate the arguments of min and max say which samples are free
(F, 0 < alpha_n < C) and which groups active (A). Newton's step takes the others to their bounds
and solves for the rest, to first order, y_n f(x_n) = 1 on F and ||V_g|| = 1 on A:

        [ Q(d)_FF   U_FA ] [dalpha_F]   [b]
        [ U_AF'     0    ] [dd_A    ] = [c]

by one Cholesky factorisation of order |F| and its Schur complement of order |A|. (With an
intercept beta, the equation e' alpha = 0 is one more row, and e one more column.) Along a step
alpha, d, V and U are linear, so the residual of the projections costs nothing to search; and F
changes by a few samples, so the inner products of its inputs are kept (`_Gram`). Once the sets
are right two steps reach rounding, and all is certified as any other answer.

From there most sets are right at the start, and |F| is a fraction of N: a step costs little beside
those of the interior point, which sees all samples. Where Newton makes no headway
(far from the start, as a change of a few gates in a thousand can be; data that are not
separable) the fall-back solves.

======  ==========  ======================================================================
alpha   (N,)        dual variables
d       (G,)        group scales
V       (M', D')    V_m = sum_n alpha_n y_n z_mn x_n
U       (N, G)      U_g = Q_g alpha; y_n f(x_n) = (U d)_n
======  ==========  ======================================================================

The data are scaled as in `scaled_problem`, so 1 is b_n and C is C nu_n there.

Source: Qi and Sun (1993), semismooth Newton; Hintermueller, Ito and Kunisch (2002), its sets.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.iteration import Approach, NativeSolver, Point, Run
from implicit_bias.solvers.scaled_problem import (
    TINY,
    Layout,
    ScaledProblem,
    ScaledRows,
    peak_memory,
)

# A start with a larger max_g ||V_g|| is too far away to warm-start from: at its own problem that
# was 1.
FARTHEST = 2.0
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
# What `SolveStats.detail` says where Newton's method makes no headway.
FELL_BACK = "no headway from the start: the fall-back solved"


@dataclass(frozen=True, kw_only=True)
class ActiveSet(NativeSolver):
    """The native solver where there is a start.

    Parameters
    ----------
    fallback : NativeSolver
        Solves where there is no start, or Newton's method does not converge from it. Its limit
        on iterations and its own tolerances are those of this solver.
    """

    fallback: NativeSolver

    name: ClassVar[str] = "active-set"

    @property
    def own_limit(self) -> int:
        """Newton steps and iterations of the fall-back, at most."""
        return MAX_STEPS + self.fallback.limit

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Leave all to the steps: without a start or enough room the fall-back solves."""
        return _ActiveSetRun(self, problem, start)


class _ActiveSetRun(Approach):
    """Newton's method from the start, then the fall-back if need be."""

    def __init__(self, solver: ActiveSet, problem: MarginProblem, start: Start | None) -> None:
        super().__init__(problem, solver.fallback, start)
        self._solver = solver

    def approach(self) -> Generator[tuple[float, float], None, bool]:
        """Newton steps until they converge or make no headway."""
        if self.start is None:
            return False
        converged = yield from self._newton_steps(self.start)
        if not converged:
            self.detail = FELL_BACK
        return converged

    def _newton_steps(self, start: Start) -> Generator[tuple[float, float], None, bool]:
        """Newton's method; False where it makes no headway, or its system has no room."""
        if not self._has_room(0):
            return False
        layout = Layout.of_groups(self.problem)
        scaled = ScaledProblem(layout, torch.device(self._solver.device))
        gram = _Gram(scaled.rows)
        point = _Point.of(scaled, start)
        view = _View(scaled, point)
        if float(view.squares.max()) > FARTHEST**2:
            return False
        best = _Best(point, view)
        self.found = lambda: scaled.answer(best.alpha, best.V, best.d, best.beta)
        for _ in range(MAX_STEPS):
            best.update(point, view)
            yield self.best_so_far(best.lower / scaled.scale, best.upper / scaled.scale)
            if self._converged(best):
                return True
            if not self._has_room(gram.size_with(view.free)):
                return False
            step = _newton(scaled, gram, point, view)
            found = None if step is None else _search(scaled, point, view, step)
            if found is None:
                return False
            point, view = found
        return False

    def _has_room(self, n_system: int) -> bool:
        n_samples = self.problem.n_samples
        return self._solver.fits(peak_memory(n_samples, self.problem, n_system, n_squares=3))

    def _converged(self, best: _Best) -> bool:
        tolerances = self._solver.tolerances
        feasible = best.violation <= tolerances.feasibility
        return feasible and best.upper <= (1 + AIM * tolerances.gap) * best.lower


@dataclass(frozen=True, eq=False)
class _Point(Point):
    """An iterate, or a direction."""

    alpha: Tensor
    d: Tensor
    V: Tensor
    U: Tensor
    beta: Tensor  # (1,), or (0,) without an intercept

    @classmethod
    def of(cls, scaled: ScaledProblem, start: Start) -> _Point:
        alpha = scaled.start_alpha(start)
        V = scaled.rows.dual_vectors(alpha)
        d = scaled.scale * scaled.tensor(start.group_norms)
        return cls(alpha, d, V, scaled.rows.group_products(V), scaled.offset(start))


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, scaled: ScaledProblem, point: _Point) -> None:
        alpha, d = point.alpha, point.d
        self.squares = scaled.rows.inner(point.V, point.V)  # (G,)
        margins = point.U @ d + scaled.e @ point.beta
        self.excess = margins - scaled.b  # (N,)
        self.clipped = torch.minimum(alpha.clamp(min=0.0), scaled.C)
        value = float(scaled.b @ self.clipped)
        # A group scale as the optimum has it: their sum is the value.
        scale = max(float(d.clamp(min=0.0).sum()), value) / scaled.n_groups
        self.floored = d.clamp(min=LEAST_SCALE * scale)
        # Where the projections take alpha and d.
        q = scaled.rows.curvature_diagonal(self.floored)
        aim = alpha - self.excess / (SHARE * q).clamp(min=TINY)
        self.at_zero, self.at_C = aim <= 0.0, aim >= scaled.C  # (N,)
        self.free = ~(self.at_zero | self.at_C)
        aim_d = d + scale * (self.squares - 1.0)
        self.active = aim_d > 0.0  # (G,)
        change = torch.minimum(aim.clamp(min=0.0), scaled.C) - alpha
        change_d = aim_d.clamp(min=0.0) - d
        size = float(q @ alpha.square()) + TINY
        by_d = float(change_d.square().mean()) / (scale**2 + TINY)
        self.residual = float(q @ change.square()) / size + by_d
        # The bounds.
        norm = float(torch.dot(d.abs(), self.squares.sqrt()))
        self.upper, self.violation = scaled.upper(norm, margins)
        # What clipping changes in V_g is at most what it takes: features have norm 1.
        outside = float((alpha - self.clipped).abs().sum())
        largest = float(self.squares.max().sqrt()) + outside
        self.lower = value / max(largest, 1.0 if scaled.soft else TINY)
        # The equation e' alpha = 0: its residual, and what it makes of the bound.
        imbalance = (scaled.e.T @ alpha).abs()
        weight = scaled.e.abs().T @ alpha.abs() + TINY
        self.residual += float((imbalance / weight).square().sum())
        if (imbalance + outside > scaled.balance_tolerance * weight).any():
            self.lower = 0.0


class _Best:
    """The best bounds so far and what attains them."""

    def __init__(self, point: _Point, view: _View) -> None:
        self.lower, self.alpha = view.lower, view.clipped
        self.upper, self.violation, self.V, self.d = view.upper, view.violation, point.V, point.d
        self.beta = point.beta

    def update(self, point: _Point, view: _View) -> None:
        if view.lower > self.lower:
            self.lower, self.alpha = view.lower, view.clipped
        if view.upper < self.upper:
            self.upper, self.violation = view.upper, view.violation
            self.V, self.d, self.beta = point.V, point.d, point.beta


class _Gram:
    """Inner products of the samples that were free so far, each computed once."""

    def __init__(self, everything: ScaledRows) -> None:
        self._everything = everything
        n, device = len(everything.X), everything.X.device
        self._seen = torch.zeros(0, dtype=torch.long, device=device)  # indices of samples, (S,)
        self._place = torch.full((n,), -1, device=device)  # (N,), where they stand there
        self._K = everything.X.new_zeros((0, 0))  # (S, S)

    def size_with(self, free: Tensor) -> int:
        """S, once these samples (N,) are in it."""
        return int((free | (self._place >= 0)).sum())

    def curvature(self, index: Tensor, rows: ScaledRows, d: Tensor) -> Tensor:
        """Q(d) of some samples (indices) and their rows, shape (F, F), by columns."""
        self._add(index[self._place[index] < 0])
        place = self._place[index]
        return rows.masked(self._K[place[:, None], place], d).T

    def _add(self, new: Tensor) -> None:
        before = len(self._seen)
        self._seen = torch.cat([self._seen, new])
        self._place[new] = torch.arange(before, len(self._seen), device=new.device)
        X = self._everything.X
        K = X.new_empty((len(self._seen), len(self._seen)))
        K[:before, :before] = self._K
        torch.mm(X[self._seen], X[new].T, out=K[:, before:])
        K[before:, :before] = K[:before, before:].T
        self._K = K


def _newton(scaled: ScaledProblem, gram: _Gram, point: _Point, view: _View) -> _Point | None:
    """Newton's step for the sets of an iterate; None where rounding forbids it."""
    everything, free, active = scaled.rows, view.free, view.active
    # What leaves its set goes to its bound, and moves V (dV) and so the equations of the rest.
    alpha = torch.where(view.at_C, scaled.C - point.alpha, -point.alpha)
    alpha = torch.where(free, 0.0, alpha)
    d = torch.where(active, 0.0, -point.d)
    moving = torch.nonzero(alpha)[:, 0]
    dV = everything.subset(moving).dual_vectors(alpha[moving])
    beta = torch.zeros_like(point.beta)
    index = torch.nonzero(free)[:, 0]
    if len(index):
        rows, U = everything.subset(index), point.U[index]
        b = -view.excess[index] - rows.group_products(dV) @ point.d - U @ d
        c = (0.5 * (1.0 - view.squares) - everything.inner(point.V, dV))[active]
        c = torch.cat([c, -scaled.e.T @ (point.alpha + alpha)])
        Q = gram.curvature(index, rows, view.floored * active)
        solved = _saddle(Q, torch.hstack([U[:, active], scaled.e[index]]), b, c)
        if solved is None:
            return None
        alpha[index], multipliers = solved
        d[active], beta = multipliers[: int(active.sum())], multipliers[int(active.sum()) :]
        dV = dV + rows.dual_vectors(solved[0])
    return _Point(alpha, d, dV, everything.group_products(dV), beta)


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
    """Lower factor, in place, of a matrix with a little more on its diagonal; None if none."""
    A.diagonal().add_(RIDGE * A.diagonal().mean())
    info = torch.empty((), dtype=torch.int32, device=A.device)
    torch.linalg.cholesky_ex(A, out=(A, info))
    return None if info else A


def _search(
    scaled: ScaledProblem, point: _Point, view: _View, step: _Point
) -> tuple[_Point, _View] | None:
    """Return the first point along a step that lowers the residual enough, or the best one.

    None where none is better.
    """
    best = None
    for length in 0.5 ** np.arange(HALVINGS + 1):
        moved = point.moved(step, float(length))
        seen = _View(scaled, moved)
        if seen.residual < (view.residual if best is None else best[1].residual):
            best = moved, seen
        if seen.residual <= (1.0 - DECREASE * length) * view.residual:
            break
    return best
