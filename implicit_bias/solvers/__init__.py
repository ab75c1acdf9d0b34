"""Solve a margin problem by name: the native solvers, and CVXPY's as a reference."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import (
    Certificate,
    Conflict,
    Status,
    certify,
    dual_scale,
    find_conflict,
    gordan_ratio,
    primal_scale,
)
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import (
    Candidate,
    Progress,
    Report,
    Solution,
    SolveError,
    Solver,
    SolveStats,
    Start,
    Tolerances,
    silent,
)
from implicit_bias.solvers.relaxation import OnFailure, Relaxed, relax
from implicit_bias.validation import Array, as_device

__all__ = [
    "SOLVER_NAMES",
    "OnFailure",
    "Progress",
    "Relaxed",
    "Solution",
    "SolveError",
    "SolveStats",
    "SolverName",
    "Tolerances",
    "solve",
    "solve_relaxed",
]

SolverName: TypeAlias = Literal[
    "auto",
    "interior-point",
    "feature-space",
    "working-set",
    "active-set",
    "ecos",
    "osqp",
    "clarabel",
    "scs",
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
    max_memory: float | None = None,
    start: Start | None = None,
    report: Report = silent,
) -> Solution:
    """Solve a margin problem, with a certificate of the result.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    solver : {"auto", "interior-point", "working-set", "active-set", "ecos", "osqp", ...}
        "auto" takes the interior point up to 3,000 samples and the working set beyond; with a
        start, the active set, which falls back on these. "feature-space" is for few features, or
        ill-conditioned ones. The others ("clarabel", "scs", too) go through CVXPY and are slow.
        OSQP takes hard margins of one group only.
    tol : float
        Relative gap between the certified bounds at which to stop.
    device : str
        Where the native solvers compute: "cpu", "cuda", "cuda:1", ...
    feasibility_tol, infeasibility_tol : float
        See `Tolerances`.
    max_iterations : int, optional
        Limit on the solver's iterations.
    max_memory : float, optional
        GiB that a native solver may allocate beside the problem.
    start : Solution, optional
        Of a problem nearby, for the native solvers to start from: another C, other gates of the
        same number of groups, or fewer samples (those of ``problem`` that it lacks come last).
    report : callable, optional
        Called with a `Progress` in each iteration of a native solver.

    Returns
    -------
    Solution
        Read its ``status``: only OPTIMAL means that the gap is at most ``tol``. The bounds in
        its certificate hold in every case.

    Raises
    ------
    TypeError
        Not a `MarginProblem`.
    ValueError
        A solver that does not exist or cannot solve this problem.
    ImportError
        The solver's package is not installed.
    MemoryError
        More than ``max_memory`` would be needed; raised before it is allocated.
    """
    if not isinstance(problem, MarginProblem):
        raise TypeError(
            f"solve takes a MarginProblem, not a {type(problem).__name__}: pass MarginProblem(X, "
            "y, gates, groups), or fit one of the classes to X and y"
        )
    tolerances = Tolerances(gap=tol, feasibility=feasibility_tol, infeasibility=infeasibility_tol)
    if max_iterations is not None and max_iterations < 1:
        raise ValueError(f"max_iterations must be at least 1, got {max_iterations}")
    began = time.perf_counter()
    by_size = "interior-point" if problem.n_samples <= INTERIOR_POINT_LIMIT else "working-set"
    if solver == "auto":
        solver = by_size if start is None else "active-set"
    _check_start(problem, start)
    method = _solver(solver, tolerances, device, max_iterations, max_memory, by_size)
    conflict = find_conflict(problem)
    if conflict is None:
        candidate = method.run(problem, report, start)
    else:
        candidate = _proof(problem, conflict)
    graded = _grade(problem, candidate, tolerances)
    group_scale = problem.group_norms(graded.coef)
    return Solution(
        problem=problem,
        alpha=graded.alpha,
        group_scale=group_scale,
        coef=graded.coef,
        support=_support(problem, graded),
        active=_above_mean(group_scale) > 1.0 - graded.certificate.dual_norms,
        status=graded.status,
        certificate=graded.certificate,
        stats=SolveStats(
            solver=solver,
            iterations=candidate.iterations,
            seconds=time.perf_counter() - began,
            history=candidate.history,
            conflict=conflict,
            detail=candidate.detail,
        ),
    )


def solve_relaxed(
    problem: MarginProblem,
    on_failure: OnFailure = "raise",
    soft_C: float | None = None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    device: str = "cpu",
) -> Relaxed:
    """Solve a margin problem; where its samples are not separable, a relaxation of it.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    on_failure : {"raise", "warn", "soft", "drop"}
        "raise" and "warn" (the caller does either) solve no relaxation; "soft" solves the soft
        margin; "drop" leaves out the samples that the soft margin misclassifies, and solves the
        hard margin on the rest.
    soft_C : float or None
        C of the soft margin, positive and finite; None is 100 over the root mean square of the
        feature norms.
    solver, tol, device
        As in `solve`.
    """

    def run(posed: MarginProblem) -> Solution:
        return solve(posed, solver, tol, device)

    return relax(problem, run, on_failure, soft_C)


def _solver(
    name: str,
    tolerances: Tolerances,
    device: str,
    max_iterations: int | None,
    max_memory: float | None,
    fallback: str,
) -> Solver:
    device = as_device(device)
    # Imported here: each pulls in a large library (torch, cvxpy) that the others do not need.
    if name not in SOLVER_NAMES:
        raise ValueError(f"solver must be one of {', '.join(SOLVER_NAMES)}; got {name!r}")
    if name == "interior-point":
        from implicit_bias.solvers.interior_point import InteriorPoint

        return InteriorPoint(
            tolerances=tolerances,
            device=device,
            max_iterations=max_iterations,
            max_memory=max_memory,
        )
    if name == "feature-space":
        from implicit_bias.solvers.feature_space import FeatureSpace

        return FeatureSpace(
            tolerances=tolerances,
            device=device,
            max_iterations=max_iterations,
            max_memory=max_memory,
        )
    if name == "working-set":
        from implicit_bias.solvers.working_set import WorkingSet

        return WorkingSet(
            tolerances=tolerances,
            device=device,
            max_iterations=max_iterations,
            max_memory=max_memory,
        )
    if name == "active-set":
        from implicit_bias.solvers.active_set import ActiveSet

        return ActiveSet(
            fallback=_solver(fallback, tolerances, device, max_iterations, max_memory, fallback),
            tolerances=tolerances,
            device=device,
            max_iterations=max_iterations,
            max_memory=max_memory,
        )
    from implicit_bias.solvers.cvxpy_solver import Reference

    return Reference(backend=name, tolerances=tolerances, max_iterations=max_iterations)


def _check_start(problem: MarginProblem, start: Start | None) -> None:
    if start is None:
        return
    if len(start.alpha) > problem.n_samples or len(start.group_scale) != problem.n_groups:
        raise ValueError(
            f"start has {len(start.alpha)} samples and {len(start.group_scale)} groups, the "
            f"problem {problem.n_samples} and {problem.n_groups}: it needs as many groups, and no "
            "more samples"
        )


def _proof(problem: MarginProblem, conflict: Conflict) -> Candidate:
    zero = np.zeros((problem.n_gates, problem.X.shape[1]))
    return Candidate(alpha=conflict.alpha, coef=zero, status=Status.NOT_SEPARABLE, iterations=0)


@dataclass(frozen=True)
class _Graded:
    """A candidate, scaled to be feasible, with the status that its bounds earn."""

    alpha: Array
    coef: Array
    certificate: Certificate
    status: Status


def _grade(problem: MarginProblem, candidate: Candidate, tolerances: Tolerances) -> _Graded:
    alpha = np.maximum(candidate.alpha, 0.0)
    dual_norms = problem.dual_norms(alpha)
    if problem.hard_margin and alpha.any():
        if gordan_ratio(problem, alpha, dual_norms) > 1.0 / tolerances.infeasibility:
            proof = alpha / alpha.sum()
            certificate = certify(problem, alpha=proof)
            coef = np.zeros_like(candidate.coef)
            return _Graded(proof, coef, certificate, Status.NOT_SEPARABLE)
    scale = primal_scale(problem, candidate.coef)
    # No scale makes a hard-margin candidate feasible that misclassifies: it stays as it is.
    coef = candidate.coef * (scale if scale > 0 or not problem.hard_margin else 1.0)
    if alpha.any():
        alpha = alpha * dual_scale(problem, alpha, dual_norms)
    certificate = certify(problem, coef=coef, alpha=alpha)
    status = candidate.status
    if certificate.gap <= tolerances.gap:
        status = Status.OPTIMAL
    elif status in (Status.OPTIMAL, Status.NOT_SEPARABLE):
        status = Status.NUMERICAL_TROUBLE  # the bounds do not bear out what the solver claims
    return _Graded(alpha, coef, certificate, status)


def _support(problem: MarginProblem, graded: _Graded) -> NDArray[np.int64]:
    excess = problem.y * problem.decision(graded.coef) - 1.0
    return np.flatnonzero(_above_mean(graded.alpha) > np.maximum(excess, 0.0))


def _above_mean(values: Array) -> Array:
    """Non-negative values relative to their mean; zeros stay zero."""
    return values / max(float(values.mean()), np.finfo(np.float64).tiny)
