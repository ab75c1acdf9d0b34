r"""Paths of margin problems, each solved from the solution before it.

A path may run over C, over growing data (the new samples come last), or over gates (the same
number of groups); `solve` with a ``start`` does the work, and every solution is certified like
any other. Over C a path has two ends, both exact:

smallest  Up to C_0 = 1 / max_g ||V_g(1)||, zeta = 0 is a solution: alpha = C 1 is feasible for
          the dual, and both values are C N. (The alpha_max of the group lasso, upside down.)
          With many classes any sum_k alpha_nk = C will do, and C_0 is that of rivals alike.
largest   From C_1 = max_n sum_k alpha_nk of a hard-margin solution on, the soft margin is the hard
          one: its zeta has no hinge loss, and its alpha is within the box.

Where a problem has one C a sample, the largest of them runs, and all keep their ratios to it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array, check_count, check_shape
from implicit_bias.bounds.certificate import Status, dual_scale
from implicit_bias.problem import MarginProblem, check_C, check_problem
from implicit_bias.solvers.base import Solution, Solver
from implicit_bias.solvers.solve import solve

T = TypeVar("T")


def solve_path(
    problems: Iterable[MarginProblem],
    solver: str | Solver = "auto",
    tol: float = 1e-6,
    device: str = "cpu",
    *,
    max_memory: float | None = None,
    max_seconds: float | None = None,
) -> Iterator[Solution]:
    """Solve problems in order, each from the last one's solution.

    Parameters
    ----------
    problems : iterable of MarginProblem
        Neighbours are alike: another C, other gates, or more samples, appended at the end; all
        have as many groups. Made one by one if the iterable is lazy.
    solver, tol, device, max_memory
        As in `solve`; the native solvers profit from a start.
    max_seconds : float, optional
        Limit on the time of the whole path, from its first problem on.

    Yields
    ------
    Solution
        One a problem, read its ``status``. After one that Ctrl-C or the limit on the time ended
        there are no more.

    Raises
    ------
    ValueError
        A problem with another number of groups than the one before it, or fewer samples.
    """
    start: Solution | None = None
    deadline = Deadline.asked(max_seconds)
    for problem in _each(problems, "problems"):
        limits: dict[str, Any] = {"max_memory": max_memory, "max_seconds": deadline.left}
        solution = solve(problem, solver, tol, device, start=start, **limits)
        yield solution
        if solution.status is Status.INTERRUPTED or deadline.passed:
            return
        if not solution.status.inseparable:  # such an alpha is no warm start
            start = solution


def path_over_C(
    problem: MarginProblem,
    Cs: Iterable[float],
    solver: str | Solver = "auto",
    tol: float = 1e-6,
    device: str = "cpu",
    *,
    max_memory: float | None = None,
    max_seconds: float | None = None,
) -> Iterator[Solution]:
    """Solve a problem for each C of a list, best in ascending or descending order.

    Parameters
    ----------
    problem : MarginProblem
        The problem. Of its own C, if it is one a sample, only the ratios matter.
    Cs : iterable of float
        Weights of the hinge loss, such as those of `C_grid`: the largest C of a sample.
    solver, tol, device, max_memory
        As in `solve`.
    max_seconds : float, optional
        Limit on the time of the whole path.

    Yields
    ------
    Solution
        One a C.

    Examples
    --------
    >>> from implicit_bias import max_margin
    >>> problem = max_margin([[1.0], [2.0], [-1.0]], [1, -1, -1])  # not separable
    >>> [len(found.support) for found in path_over_C(problem, [0.1, 1.0])]
    [3, 3]
    """
    check_problem(problem, "path_over_C")
    posed = (replace(problem, C=check_C(C) * problem.shares) for C in _each(Cs, "Cs"))
    limits: dict[str, Any] = {"max_memory": max_memory, "max_seconds": max_seconds}
    yield from solve_path(posed, solver, tol, device, **limits)


def smallest_C(problem: MarginProblem) -> float:
    """Return the largest C for which zeta = 0 is a solution; inf if it always is.

    With many classes, or with an intercept and classes of different sizes, a smaller one: the
    samples of a class then share its weight evenly, and its rivals share that of each sample.
    """
    check_problem(problem, "smallest_C")
    return dual_scale(replace(problem, C=np.inf), problem.constraints.alpha_of_zero(problem.shares))


def largest_C(solution: Solution, problem: MarginProblem | None = None) -> float:
    """Return a C from which on the soft margin has a hard-margin solution and its bounds.

    Parameters
    ----------
    solution : Solution
        Of the hard margin.
    problem : MarginProblem, optional
        One that has the ratios of the samples' C; equal ones by default.

    Raises
    ------
    ValueError
        The solution is not optimal: data that are not separable have no such C.
    """
    if not isinstance(solution, Solution):
        raise TypeError(f"largest_C takes a Solution, not a {type(solution).__name__}: call solve")
    if problem is not None:
        check_problem(problem, "largest_C")
        meaning = "pass the solution of this problem's hard margin"
        check_shape(solution.alpha, "alpha of the solution", problem.alpha_shape, meaning)
    if solution.status is not Status.OPTIMAL:
        raise ValueError(
            f"no C is known to be the hard margin ({solution.message}): choose the largest C "
            "yourself"
        )
    totals = solution.alpha.reshape(len(solution.alpha), -1).sum(axis=1)
    return float((totals if problem is None else totals / problem.shares).max())


def C_grid(problem: MarginProblem, solution: Solution, n_values: int = 50) -> Array:
    """Ascending geometric grid from `smallest_C` of a problem to `largest_C` of its hard margin.

    Parameters
    ----------
    problem : MarginProblem
        The problem. Of its own C, if it is one a sample, only the ratios matter.
    solution : Solution
        Of its hard margin.
    n_values : int
        Values of C, at least 2.

    Returns
    -------
    ndarray of shape (n_values,)

    Raises
    ------
    ValueError
        The hard margin has no solution, or fewer than 2 values.

    Examples
    --------
    >>> from implicit_bias import max_margin, solve
    >>> problem = max_margin([[1.0], [-2.0]], [1, -1])
    >>> len(C_grid(problem, solve(problem), 5))
    5
    """
    check_count(n_values, "n_values", 2)
    return np.geomspace(smallest_C(problem), largest_C(solution, problem), n_values)


def _each(values: Iterable[T], name: str) -> Iterable[T]:
    """Refuse a single one in the place of several."""
    if not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise TypeError(f"{name} must be a list, got {values!r}: pass [...]")
    return values
