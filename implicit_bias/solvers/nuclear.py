r"""An interior point for the nuclear norm of many classes, with one small matrix of multipliers.

Primal  minimise  ||zeta||_*   subject to  <a_p x_p', zeta> + (E b)_p >= 1 for all pairs p
Dual    maximise  sum_p alpha_p   subject to  alpha >= 0,  V V' <= I,  E' alpha = 0

KKT     <a_p x_p', S V> + (E b)_p - 1 = s_p,     V = sum_p alpha_p a_p x_p'
        T + V V' = I,   E' alpha = 0
        s_p alpha_p = mu,   S T = mu I,   mu -> 0;     then zeta = S V

======  =========  =========================================================================
a       (P, r)     e_{y_n} - e_k in r = K - 1 orthonormal coordinates of the sum-free vectors
x       (P, F)     features z(x_n) (x) x_n of the pair's sample
V       (r, F)     dual matrix
S, T    (r, r)     multipliers of V V' <= I, and its slack; both positive definite
G       (r, r)     Nesterov and Todd's scaling, G T G = S, with eigenvalues g and vectors O
v       (P, r)     V x_p
W_p     (r, r)     a_p v_p' + v_p a_p': how V V' changes with alpha_p
E       (P, J)     offsets; b (J,), with an intercept
======  =========  =========================================================================

Where the group norms have one multiplier d_g a group, the nuclear norm has the matrix S: curvature
in alpha is the mask <a_p, S a_q> on the Gram matrix, and the border U becomes the r (r + 1) / 2
entries of W_p. With dS = mu T^-1 - S - G dT G a Newton step is, in the coordinates O,

        [ A    W/2          E ] [dalpha]         A = (a S a') o (x x') + diag(s/alpha)
        [ W'/2  -1/(2 g g')  0 ] [  .   ]        (each pair i < j of coordinates counts twice)
        [ E'   0            0 ] [ db   ]

solved by one Cholesky factorisation of A and one of its Schur complement, as in `interior_point`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from implicit_bias.certificate import Status
from implicit_bias.norms import L2, Nuclear
from implicit_bias.problem import MarginProblem
from implicit_bias.rows import Rows, all_rows
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.interior_point import InteriorPoint
from implicit_bias.solvers.iteration import Answer, NativeSolver, Point, Run, Steps, nothing_yet
from implicit_bias.solvers.scaled_problem import peak_memory
from implicit_bias.validation import Array

MAX_ITERATIONS = 100
# Share of the way to the boundary that a step may go.
BOUNDARY_SHARE = 0.99
# mu need not fall below this share of what the gap tolerance asks for.
CENTRING_FLOOR = 0.2
# The solver aims a little below the tolerance, because the certificate rounds differently.
AIM = 0.9
# After this many steps without progress in the gap, stagnation is attributed to rounding.
PATIENCE = 12
# The share of E' alpha that rounding alone may leave.
BALANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class NuclearInteriorPoint(NativeSolver):
    """The native solver of the nuclear norm with many classes and a hard margin.

    Parameters
    ----------
    rows : Rows, optional
        The pairs to solve with: a working set. All by default.
    """

    takes_classes: ClassVar[bool] = True

    rows: Rows | None = None

    name: ClassVar[str] = "interior-point"
    own_limit: ClassVar[int] = MAX_ITERATIONS

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Check that there is room for the matrices of order P.

        Raises
        ------
        ValueError
            Another norm, or a soft margin.
        """
        if not is_nuclear(problem):
            raise ValueError(
                "this method takes the nuclear norm, many classes and a hard margin: choose "
                "solver='auto'"
            )
        rows = all_rows(problem) if self.rows is None else self.rows
        self.check_memory(peak_memory(len(rows), problem))
        return _NuclearRun(self, problem, rows)


def is_nuclear(problem: MarginProblem) -> bool:
    """Whether a problem is one of the nuclear norm, many classes and a hard margin."""
    return problem.norm == Nuclear() and problem.classes is not None and problem.hard_margin


class _NuclearRun(Run):
    """The central path."""

    def __init__(self, solver: NuclearInteriorPoint, problem: MarginProblem, rows: Rows) -> None:
        self._problem, self._rows, self._tolerances = problem, rows, solver.tolerances
        self._best = nothing_yet(problem)
        self._data = _Data(problem, rows, torch.device(solver.device))

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self._best

    def steps(self) -> Steps:
        """Follow the central path."""
        data, point = self._data, _Point.cold(self._data)
        lower, upper, gap, waited = 0.0, np.inf, np.inf, 0
        # A smaller mu gains nothing, and loses digits of T.
        floor = CENTRING_FLOOR * self._tolerances.gap / (len(point.alpha) + len(point.S))
        while True:
            view = _View(data, point)
            if view.lower > lower:
                lower = view.lower
                self._best = replace(self._best, alpha=data.alpha(point.alpha))
            if view.upper < upper:
                upper = view.upper
                coef, intercept = data.coef(point.S @ view.V), data.intercept(point.b)
                self._best = replace(self._best, coef=coef, intercept=intercept)
            before, gap = gap, (upper - lower) / lower if lower > 0 else np.inf
            waited = 0 if gap < (1 - 1e-3) * before or not np.isfinite(gap) else waited + 1
            yield lower / data.scale, upper / data.scale
            if view.gordan_ratio > 1.0 / self._tolerances.infeasibility:
                self._best = replace(self._best, alpha=data.alpha(point.alpha))
                return Status.NOT_SEPARABLE
            if gap <= AIM * self._tolerances.gap:
                return Status.OPTIMAL
            newton = _Newton(data, point, view)
            if waited > PATIENCE or newton.broken:
                return Status.NUMERICAL_TROUBLE if np.isfinite(upper) else self._by_another_norm()
            mu = point.complementarity()
            predictor = newton.direction(0.0)
            after = point.moved(predictor, point.reach(predictor)).complementarity()
            target = max(min((after / mu) ** 3, 1.0) * mu, floor * max(lower, view.lower))
            step = newton.direction(target, predictor)
            length = BOUNDARY_SHARE * point.reach(step)
            if length < 0.05:  # the predictor overshot: centre first
                centred = newton.direction(0.5 * mu)
                longer = BOUNDARY_SHARE * point.reach(centred)
                step, length = max([(step, length), (centred, longer)], key=lambda x: x[1])
            point = point.moved(step, min(1.0, length))

    def _by_another_norm(self) -> Status:
        """Ask with the Euclidean norm whether the pairs are separable: no norm changes that."""
        inner = InteriorPoint(
            tolerances=self._tolerances, device=self._data.a.device.type, rows=self._rows
        )
        found = inner.run(replace(self._problem, norm=L2()))
        if found.status is not Status.NOT_SEPARABLE:
            return Status.NUMERICAL_TROUBLE
        self._best = replace(self._best, alpha=found.alpha)
        return Status.NOT_SEPARABLE


class _Data:
    """Pairs and features on the device; features have a root mean square norm of 1."""

    def __init__(self, problem: MarginProblem, rows: Rows, device: torch.device) -> None:
        assert rows.rivals is not None
        self._problem, self._rows = problem, rows
        self.scale = problem.scale
        K = problem.classes or 2
        # Columns orthonormal and orthogonal to 1: coordinates of what sums to 0 over the classes.
        self.basis = scipy.linalg.helmert(K).T  # (K, r)
        owners = problem.owners[rows.samples]
        used, place = np.unique(rows.samples, return_inverse=True)
        Z = problem.plain_gates[used].toarray()
        X = (Z[:, :, None] * problem.X[used][:, None, :]).reshape(len(used), -1) / self.scale

        def tensor(values: Array) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)

        self.a = tensor(self.basis[owners] - self.basis[rows.rivals])  # (P, r)
        self.X, self.place = tensor(X), torch.tensor(place, device=device)
        self.E = tensor(rows.offsets)
        self.norms = self.X.norm(dim=1)[self.place]

    @cached_property
    def gram(self) -> Tensor:
        """Inner products of the pairs' features, (P, P)."""
        return (self.X @ self.X.T)[self.place[:, None], self.place]

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V (r, F) of alpha (P,)."""
        weights = self.X.new_zeros((len(self.X), self.a.shape[1]))
        weights.index_add_(0, self.place, alpha[:, None] * self.a)
        return weights.T @ self.X

    def products(self, V: Tensor) -> Tensor:
        """V x_p, (P, r)."""
        return (self.X @ V.T)[self.place]

    def alpha(self, values: Tensor) -> Array:
        """Dual variables of the problem."""
        return self._rows.alpha(values.cpu().numpy() / self.scale)

    def coef(self, zeta: Tensor) -> Array:
        """Coefficients (K, M, D) of zeta (r, F)."""
        whole = self.basis @ zeta.cpu().numpy() / self.scale
        return np.asarray(whole.reshape(self._problem.coef_shape))

    def intercept(self, b: Tensor) -> float | Array:
        """Offsets (K,) of the problem."""
        return self._rows.intercept(b.cpu().numpy())


@dataclass(frozen=True)
class _Point(Point):
    """An iterate, or a direction."""

    alpha: Tensor
    s: Tensor
    S: Tensor
    T: Tensor
    b: Tensor

    @classmethod
    def cold(cls, data: _Data) -> _Point:
        """Equal alpha, with V half way to the boundary."""
        alpha = data.a.new_ones(len(data.a))
        V = data.dual_vectors(alpha)
        largest = float(torch.linalg.matrix_norm(V, 2))
        alpha = alpha * (0.5 / largest if largest > 0 else 1.0)
        V, eye = data.dual_vectors(alpha), torch.eye(data.a.shape[1]).to(data.a)
        total = 10.0 * float(alpha.sum()) / len(eye)
        ones = torch.ones_like(alpha)
        return cls(alpha, ones, total * eye, eye - V @ V.T, data.a.new_zeros(data.E.shape[1]))

    def complementarity(self) -> float:
        """Mean of the eigenvalues of the complementary products, mu."""
        total = float(self.alpha @ self.s) + float((self.S * self.T).sum())
        return total / (len(self.alpha) + len(self.S))

    def reach(self, step: _Point) -> float:
        """Longest step, at most 1, that keeps all variables positive (definite)."""
        rates = [float((-step.alpha / self.alpha).max()), float((-step.s / self.s).max())]
        for X, dX in ((self.S, step.S), (self.T, step.T)):
            L = torch.linalg.cholesky_ex(X)[0]
            half = torch.linalg.solve_triangular(L, dX, upper=False)
            whole = torch.linalg.solve_triangular(L, half.T, upper=False)
            rates.append(-float(torch.linalg.eigvalsh(0.5 * (whole + whole.T))[0]))
        return 1.0 / max(1.0, *rates)


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, data: _Data, point: _Point) -> None:
        self.V = data.dual_vectors(point.alpha)
        self.v = data.products(self.V)  # (P, r)
        margins = ((data.a @ point.S) * self.v).sum(1) + data.E @ point.b
        self.residual = 1.0 + point.s - margins
        self.imbalance = -(data.E.T @ point.alpha)
        total = float(point.alpha.sum())
        largest = float(torch.linalg.matrix_norm(self.V, 2))
        balanced = not (self.imbalance.abs() > BALANCE * total).any()
        growth = 1.0 / largest if largest > 0 else np.inf
        self.lower = total * growth if balanced else 0.0
        self.gordan_ratio = float(point.alpha @ data.norms) * growth if balanced else 0.0
        smallest = float(margins.min())
        norm = float(torch.linalg.matrix_norm(point.S @ self.V, "nuc"))
        self.upper = norm / smallest if smallest > 0 else np.inf


class _Newton:
    """The factorised Newton system at one iterate."""

    def __init__(self, data: _Data, point: _Point, view: _View) -> None:
        self.data, self.point, self.view = data, point, view
        self.broken = True
        left, failed = torch.linalg.cholesky_ex(point.S)
        right, failed_too = torch.linalg.cholesky_ex(point.T)
        if failed or failed_too:
            return
        self.inverse = torch.cholesky_inverse(right)  # of T
        _, size, turn = torch.linalg.svd(right.T @ left)
        half = left @ turn.T / size.sqrt()
        self.G = half @ half.T
        g, turned = torch.linalg.eigh(self.G)
        i, j = torch.triu_indices(len(g), len(g)).to(g.device)
        twice = torch.where(i == j, 1.0, 2.0**0.5).to(g)
        a, v = data.a @ turned, view.v @ turned
        B = (a[:, i] * v[:, j] + a[:, j] * v[:, i]) * twice  # (P, r (r + 1) / 2)
        A = data.gram * (data.a @ point.S @ data.a.T)
        A.diagonal().add_(point.s / point.alpha)
        self.L, broken = torch.linalg.cholesky_ex(A)
        self.border = torch.hstack([B, data.E])
        self.H = torch.linalg.solve_triangular(self.L, self.border, upper=False)
        slack = torch.cat([2.0 / (g[i] * g[j]), g.new_zeros(data.E.shape[1])])
        schur = self.H.T @ self.H + torch.diag(slack)
        self.schur, broken_too = torch.linalg.cholesky_ex(schur)
        self.broken = bool(broken or broken_too)

    def direction(self, mu: float, predictor: _Point | None = None) -> _Point:
        """Step towards the central path at mu, with the predictor's second-order terms."""
        data, p, V = self.data, self.point, self.view.V
        rest = torch.eye(len(p.S)).to(p.S) - p.T - V @ V.T
        residual, at_alpha = self.view.residual, mu - p.alpha * p.s
        if predictor is not None:
            dV = data.dual_vectors(predictor.alpha)
            rest = rest - dV @ dV.T
            residual = residual - ((data.a @ predictor.S) * data.products(dV)).sum(1)
            at_alpha = at_alpha - predictor.alpha * predictor.s
        fixed = mu * self.inverse - p.S - self.G @ rest @ self.G  # dS without that of dalpha
        right = residual + at_alpha / p.alpha - ((data.a @ fixed) * self.view.v).sum(1)
        h = torch.linalg.solve_triangular(self.L, right[:, None], upper=False)
        n_matrix = self.border.shape[1] - data.E.shape[1]
        c = torch.cat([h.new_zeros(n_matrix), self.view.imbalance])
        y = torch.cholesky_solve(self.H.T @ h - c[:, None], self.schur)
        alpha = torch.linalg.solve_triangular(self.L.T, h - self.H @ y, upper=True)[:, 0]
        change = data.dual_vectors(alpha) @ V.T
        T = rest - change - change.T
        S = mu * self.inverse - p.S - self.G @ T @ self.G
        s = (at_alpha - p.s * alpha) / p.alpha
        return _Point(alpha, s, 0.5 * (S + S.T), 0.5 * (T + T.T), y[n_matrix:, 0])
