"""CVXPY's solvers on the same `MarginProblem`: the reference, and the only user of cvxpy.

Primal, as in the source papers: minimise sum_g ||zeta_g|| + C sum(xi) over zeta (M, D), with
one second-order cone a group; the multipliers of the margin constraints are alpha. OSQP, which
has no cones, gets one group with a hard margin as the quadratic program min ||zeta||^2 / 2: its
multipliers are alpha times the norm.

If the solver finds no solution, it is asked for Gordan's proof: the alpha >= 0, sum(alpha) = 1,
with the smallest max_g ||V_g(alpha)||.

A metric enters through the equivalent plain gates (see `MarginProblem.root`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.certificate import Status
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Candidate, Report, Solver, silent


@dataclass(frozen=True)
class Backend:
    """How CVXPY calls a solver, its iteration option, and the options for a gap tolerance."""

    name: str
    iteration_option: str
    max_iterations: int
    tolerance_options: tuple[str, ...]


BACKENDS = {
    "ecos": Backend("ECOS", "max_iters", 200, ("abstol", "reltol", "feastol")),
    "osqp": Backend("OSQP", "max_iter", 200_000, ("eps_abs", "eps_rel")),
    "clarabel": Backend("CLARABEL", "max_iter", 200, ("tol_gap_abs", "tol_gap_rel", "tol_feas")),
    "scs": Backend("SCS", "max_iters", 200_000, ("eps_abs", "eps_rel")),
}
# A primal-dual solver's own tolerance bounds the certified gap only up to a factor.
SAFETY = 0.1


@dataclass(frozen=True, kw_only=True)
class Reference(Solver):
    """One of CVXPY's solvers: "ecos", "osqp", "clarabel" or "scs"."""

    backend: str

    def run(self, problem: MarginProblem, report: Report = silent) -> Candidate:
        """Solve the primal through CVXPY; ``report`` is not called.

        Raises
        ------
        ImportError
            The solver is not installed.
        ValueError
            OSQP on a problem with cones: several groups, or a soft margin.
        """
        backend = BACKENDS[self.backend]
        if backend.name not in cp.installed_solvers():
            raise ImportError(
                f"the solver {backend.name} is not installed: pip install {self.backend}"
            )
        quadratic = self.backend == "osqp"
        if quadratic and not (problem.hard_margin and problem.n_groups == 1):
            raise ValueError(
                "OSQP solves quadratic programs only: one group and a hard margin (C=inf); "
                "choose another solver for this problem"
            )
        # The scaling that every solver of fixed absolute tolerances needs.
        scale = problem.scale
        features = _features(problem) / scale
        groups = np.repeat(problem.plain_groups, problem.X.shape[1])  # row-major (M', D)
        coef = cp.Variable(features.shape[1])
        # Group by group, so that a cone's entries are the coefficients of exactly one group.
        norms = [cp.norm(coef[np.flatnonzero(groups == g)]) for g in range(problem.n_groups)]
        if quadratic:
            objective, slack = 0.5 * cp.sum_squares(coef), 0.0
        else:
            objective, slack = sum(norms), 0.0
        if not problem.hard_margin:
            slack = cp.Variable(problem.n_samples, nonneg=True)
            objective = objective + problem.C * scale * cp.sum(slack)
        margins = features @ coef + slack >= 1
        program = cp.Problem(cp.Minimize(objective), [margins])
        tolerance = SAFETY * self.tolerances.gap
        status, iterations = self._solve(program, backend, tolerance)
        if problem.hard_margin and status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            return self._gordan(problem, features, groups, status, backend)
        if coef.value is None:
            return Candidate(
                alpha=np.zeros(problem.n_samples),
                coef=np.zeros((problem.n_gates, problem.X.shape[1])),
                status=_status(status, iterations, self._limit(backend)),
                iterations=iterations,
                detail=status,
            )
        alpha = np.maximum(np.asarray(margins.dual_value), 0.0) / scale
        if quadratic:
            alpha = alpha / max(float(np.linalg.norm(coef.value)), np.finfo(float).tiny)
        plain = np.asarray(coef.value).reshape(-1, problem.X.shape[1])  # row-major (M', D)
        return Candidate(
            alpha=alpha,
            coef=np.asarray(problem.root @ plain) / scale,
            status=_status(status, iterations, self._limit(backend)),
            iterations=iterations,
            detail=status,
        )

    def _gordan(
        self,
        problem: MarginProblem,
        features: sp.csr_array,
        groups: NDArray[np.int64],
        status: str,
        backend: Backend,
    ) -> Candidate:
        alpha = cp.Variable(problem.n_samples, nonneg=True)
        V = features.T @ alpha
        norms = [cp.norm(V[np.flatnonzero(groups == g)]) for g in range(problem.n_groups)]
        program = cp.Problem(cp.Minimize(cp.maximum(*norms, 0.0)), [cp.sum(alpha) == 1])
        if self.backend == "osqp":
            program = cp.Problem(cp.Minimize(cp.sum_squares(V)), program.constraints)
        tolerance = SAFETY * self.tolerances.infeasibility
        _, iterations = self._solve(program, backend, tolerance)
        found = np.zeros(problem.n_samples) if alpha.value is None else np.asarray(alpha.value)
        return Candidate(
            alpha=np.maximum(found, 0.0),
            coef=np.zeros((problem.n_gates, problem.X.shape[1])),
            status=Status.NOT_SEPARABLE,
            iterations=iterations,
            detail=status,
        )

    def _limit(self, backend: Backend) -> int:
        return self.max_iterations or backend.max_iterations

    def _solve(self, program: cp.Problem, backend: Backend, tolerance: float) -> tuple[str, int]:
        options: dict[str, float] = {backend.iteration_option: self._limit(backend)}
        options |= dict.fromkeys(backend.tolerance_options, tolerance)
        with warnings.catch_warnings():
            # An inaccurate solution is no news: the certificate tells how inaccurate.
            warnings.simplefilter("ignore")
            try:
                program.solve(solver=backend.name, **options)
            except cp.SolverError as error:
                return f"solver error: {error}", 0
        return program.status, int(program.solver_stats.num_iters or 0)


def _features(problem: MarginProblem) -> sp.csr_array:
    """Signed features y_n z_mn x_n, shape (N, M' D), row-major in (m, d): CSR if sparse gates."""
    X, gates = problem.X, problem.plain_gates.tocsr()
    rows = [sp.kron(gates[[n]], problem.y[n] * X[n : n + 1]) for n in range(problem.n_samples)]
    return sp.csr_array(sp.vstack(rows))


def _status(status: str, iterations: int, limit: int) -> Status:
    if status == cp.OPTIMAL:
        return Status.OPTIMAL
    if status == cp.USER_LIMIT or iterations >= limit:
        return Status.ITERATION_LIMIT
    return Status.NUMERICAL_TROUBLE
