"""Solve a margin problem by name: the native solvers, and CVXPY's as a reference."""

from __future__ import annotations

import time
from typing import Literal, TypeAlias, get_args

import numpy as np

from implicit_bias.certificate import (
    Certificate,
    Conflict,
    Status,
    certify,
    dual_scale,
    find_conflict,
    primal_scale,
)
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import (
    Candidate,
    Progress,
    Report,
    Solution,
    Solver,
    SolveStats,
    Tolerances,
    silent,
)
from implicit_bias.validation import Array

__all__ = [
    "SOLVER_NAMES",
    "Progress",
    "Solution",
    "SolveStats",
    "SolverName",
    "Tolerances",
    "solve",
]

SolverName: TypeAlias = Literal[
    "auto", "interior-point", "working-set", "ecos", "osqp", "clarabel", "scs"
]
SOLVER_NAMES: tuple[str, ...] = get_args(SolverName)
# Up to here one Cholesky factorisation of all samples is cheaper than rounds of smaller ones.
INTERIOR_POINT_LIMIT = 3000


def solve(
    problem: MarginProblem,
    solver: str = "auto",
    tol: float = 1e-6,
    device: str = "cpu",
    *,
    feasibility_tol: float = 1e-6,
    infeasibility_tol: float = 1e-9,
    max_iterations: int | None = None,
    report: Report = silent,
) -> Solution:
    """Solve a margin problem, with a certificate of the result.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    solver : {"auto", "interior-point", "working-set", "ecos", "osqp", "clarabel", "scs"}
        "auto" takes the interior point up to 3,000 samples and the working set beyond; the
        others go through CVXPY and are slow. OSQP takes hard margins of one group only.
    tol : float
        Relative gap between the certified bounds at which to stop.
    device : str
        Where the native solvers compute: "cpu", "cuda", "cuda:1", ...
    feasibility_tol, infeasibility_tol : float
        See `Tolerances`.
    max_iterations : int, optional
        Limit on the solver's iterations.
    report : callable, optional
        Called with a `Progress` in each iteration of a native solver.

    Returns
    -------
    Solution
        Read its ``status``: only OPTIMAL means that the gap is at most ``tol``. The bounds in
        its certificate hold in every case.

    Raises
    ------
    ValueError
        A solver that does not exist or cannot solve this problem.
    ImportError
        The solver's package is not installed.
    """
    tolerances = Tolerances(gap=tol, feasibility=feasibility_tol, infeasibility=infeasibility_tol)
    start = time.perf_counter()
    if solver == "auto":
        solver = "interior-point" if problem.n_samples <= INTERIOR_POINT_LIMIT else "working-set"
    method = _solver(solver, tolerances, device, max_iterations)
    conflict = find_conflict(problem)
    if conflict is None:
        candidate = method.run(problem, report)
    else:
        candidate = _proof(problem, conflict)
    alpha, coef, certificate, status = _grade(problem, candidate, tolerances)
    return Solution(
        alpha=alpha,
        group_scale=problem.group_norms(coef),
        coef=coef,
        status=status,
        certificate=certificate,
        stats=SolveStats(
            solver=solver,
            iterations=candidate.iterations,
            seconds=time.perf_counter() - start,
            history=candidate.history,
            conflict=conflict,
            detail=candidate.detail,
        ),
    )


def _solver(name: str, tolerances: Tolerances, device: str, max_iterations: int | None) -> Solver:
    # Imported here: each pulls in a large library (torch, cvxpy) that the others do not need.
    if name not in SOLVER_NAMES:
        raise ValueError(f"solver must be one of {', '.join(SOLVER_NAMES)}; got {name!r}")
    if name == "interior-point":
        from implicit_bias.solvers.interior_point import InteriorPoint

        return InteriorPoint(tolerances=tolerances, device=device, max_iterations=max_iterations)
    if name == "working-set":
        from implicit_bias.solvers.working_set import WorkingSet

        return WorkingSet(tolerances=tolerances, device=device, max_iterations=max_iterations)
    from implicit_bias.solvers.reference import Reference

    return Reference(backend=name, tolerances=tolerances, max_iterations=max_iterations)


def _proof(problem: MarginProblem, conflict: Conflict) -> Candidate:
    zero = np.zeros((problem.n_gates, problem.X.shape[1]))
    return Candidate(alpha=conflict.alpha, coef=zero, status=Status.NOT_SEPARABLE, iterations=0)


def _grade(
    problem: MarginProblem, candidate: Candidate, tolerances: Tolerances
) -> tuple[Array, Array, Certificate, Status]:
    """Certify a candidate, scale it to be feasible, and decide its status by the bounds."""
    alpha = np.maximum(candidate.alpha, 0.0)
    proof = problem.hard_margin and alpha.any()
    if proof:
        normalised = alpha / alpha.sum()
        separator_norm = certify(problem, alpha=normalised).lower
        scale = float(np.sqrt(np.mean(problem.feature_norms() ** 2)))
        if separator_norm * scale * tolerances.infeasibility > 1.0 or np.isinf(separator_norm):
            coef = np.zeros_like(candidate.coef)
            return normalised, coef, certify(problem, alpha=normalised), Status.NOT_SEPARABLE
    coef = candidate.coef * primal_scale(problem, candidate.coef)
    if alpha.any():
        alpha = alpha * dual_scale(problem, alpha)
    certificate = certify(problem, coef=coef, alpha=alpha)
    if certificate.gap <= tolerances.gap:
        return alpha, coef, certificate, Status.OPTIMAL
    claims_too_much = candidate.status in (Status.OPTIMAL, Status.NOT_SEPARABLE)
    status = Status.NUMERICAL_TROUBLE if claims_too_much else candidate.status
    return alpha, coef, certificate, status
