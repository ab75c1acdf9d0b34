"""Problems with an intercept: every solver, the exact equation, inseparable data, paths."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from cases import (
    GAP_LIMIT,
    HARD,
    OBJECTIVE_RTOL,
    ROUNDING,
    SEPARABLE,
    SOLVE_TOL,
    asked,
    build,
    case_table,
    cloud,
    gln,
    linear,
    loop_decision,
    loop_dual_norms,
    loop_group_norms,
    separable,
    twin,
)
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import Solution, Tolerances, solve
from implicit_bias.solvers.cvxpy_solver import CvxpySolver
from implicit_bias.solvers.paths import C_grid, path_over_C, smallest_C

NAMES = [name for name in SEPARABLE if len(np.unique(separable(name).y)) == 2]
# With these cases all methods are in the fast run.
FEW = ("gln", "linear", "sparse-gates", "soft-not-separable")
TWINS = [name for name in HARD if name in NAMES]
NATIVE = ("interior-point", "working-set", "active-set", "feature-space", "multiprecision")
REFERENCES = {
    f"clarabel-{formulation}": CvxpySolver(
        backend="clarabel", formulation=formulation, tolerances=Tolerances(gap=1e-9)
    )
    for formulation in ("primal", "reduced", "dual")
}


def posed(name: str) -> MarginProblem:
    return replace(separable(name), intercept=True)


def solved(problem: MarginProblem, method: str, tol: float = SOLVE_TOL) -> Solution:
    if method in REFERENCES:
        return solve(problem, REFERENCES[method])
    if method != "active-set":
        return solve(problem, **asked(method, tol))
    found = solve(problem, tol=1e-4)
    alpha = found.alpha * np.random.default_rng(0).uniform(0.9, 1.1, len(found.alpha))
    return solve(problem, method, tol, start=replace(found, alpha=alpha, intercept=0.0))


@cache
def best(name: str) -> Solution:
    return solved(posed(name), NATIVE[0])


def assert_balanced(problem: MarginProblem, found: Solution) -> None:
    """Check that alpha >= 0 has no part outside the box, and sum_n alpha_n y_n = 0 as rationals."""
    assert found.alpha.min() >= 0
    assert sum(map(Fraction, (found.alpha * problem.y).tolist())) == 0


@pytest.mark.parametrize(("name", "method"), case_table(NAMES, [*NATIVE, *REFERENCES], FEW))
def test_every_solver_finds_the_optimum(name: str, method: str) -> None:
    problem, found = posed(name), solved(posed(name), method)
    certificate = found.certificate
    again = certify(problem, found.coef, found.alpha, found.intercept)
    # The same grade, but for the last digits of slacks times C, which `certify` may rescale.
    assert again.lower == certificate.lower
    assert again.upper == pytest.approx(certificate.upper, rel=1e-12)
    assert again.min_margin == certificate.min_margin
    assert certificate.gap <= GAP_LIMIT
    assert certificate.upper == pytest.approx(best(name).certificate.upper, rel=OBJECTIVE_RTOL)
    assert_balanced(problem, found)
    # The bounds, from the definitions: alpha is feasible, and the coefficients attain the upper.
    assert found.alpha.max() <= problem.C
    assert loop_dual_norms(problem, found.alpha).max() <= 1 + ROUNDING
    assert sum(found.alpha) == pytest.approx(certificate.lower, rel=ROUNDING)
    margins = problem.y * (loop_decision(problem, found.coef) + found.intercept)
    value = float(loop_group_norms(problem, found.coef).sum())
    if problem.hard_margin:
        assert margins.min() >= 1 - ROUNDING
    else:
        value += float(problem.box @ np.maximum(0.0, 1.0 - margins))
    assert value == pytest.approx(certificate.upper, rel=ROUNDING)


@pytest.mark.parametrize("name", NAMES)
def test_an_offset_can_only_lower_the_norm(name: str) -> None:
    without = solve(separable(name), tol=SOLVE_TOL).certificate
    assert best(name).certificate.lower <= without.upper * (1 + ROUNDING)


@pytest.mark.parametrize("name", ["linear", "soft-linear", "linear-n-greater-d"])
def test_the_limit_of_ever_larger_constants_in_the_norm(name: str) -> None:
    """A constant feature s adds |b / s| to the coefficients, which vanishes as s grows."""
    problem = separable(name)
    constant = np.full((problem.n_samples, 1), 1e5)
    in_the_norm = solve(replace(problem, X=np.hstack([problem.X, constant])), tol=1e-8)
    found = best(name)
    assert in_the_norm.certificate.upper == pytest.approx(found.certificate.upper, rel=1e-6)
    assert 1e5 * in_the_norm.coef[0, -1] == pytest.approx(found.intercept, abs=1e-2)


@pytest.mark.parametrize(
    ("name", "method"), case_table(TWINS, [name for name in NATIVE if name != "active-set"], FEW)
)
def test_twins_are_not_separable_by_an_offset(name: str, method: str) -> None:
    problem = replace(twin(name), intercept=True)
    found = solved(problem, method, 1e-8)
    assert found.status is Status.NOT_SEPARABLE
    assert found.certificate.lower == np.inf
    assert found.certificate.upper == np.inf
    assert found.alpha.sum() == pytest.approx(1)
    assert not found.coef.any()
    assert found.intercept == 0


@pytest.mark.parametrize("name", ["gln", "linear", "svm-l2"])
@pytest.mark.parametrize("method", REFERENCES)
def test_reference_solvers_prove_twins(name: str, method: str) -> None:
    assert solved(replace(twin(name), intercept=True), method).status is Status.NOT_SEPARABLE


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(build(cloud(60, 3, shift=0.5), linear), marks=pytest.mark.slow),
        build(cloud(40, 4), gln()),
    ],
    ids=["linear", "gln"],
)
def test_paths_over_C(problem: MarginProblem) -> None:
    problem = replace(problem, intercept=True).subset(np.arange(3, problem.n_samples))
    grid = C_grid(problem, solve(replace(problem, C=10.0)), 12)
    found = list(path_over_C(problem, grid, tol=1e-8))
    assert len(found) == len(grid)
    for C, solution in zip(grid, found, strict=True):
        assert solution.status is Status.OPTIMAL
        assert_balanced(problem, solution)
        alone = solve(replace(problem, C=float(C)), tol=1e-8)
        upper = alone.certificate.upper
        assert solution.certificate.upper == pytest.approx(upper, rel=OBJECTIVE_RTOL)


@pytest.mark.parametrize("n", [60, 47])
def test_zero_is_a_solution_up_to_the_smallest_C(n: int) -> None:
    X, y = cloud(n, 3, shift=0.5)
    problem = replace(build((X, np.where(np.arange(n) < 20, -1.0, y)), linear), intercept=True)
    C = smallest_C(problem)
    minority = min(np.count_nonzero(problem.y > 0), np.count_nonzero(problem.y < 0))
    found = solve(replace(problem, C=0.999 * C), tol=1e-8).certificate.upper
    assert found == pytest.approx(0.999 * C * 2 * minority, rel=OBJECTIVE_RTOL)


def test_growing_data_start_from_the_smaller_solution() -> None:
    problem = posed("linear-n-greater-d")
    first = solve(problem.subset(np.arange(50)))
    found = solve(problem, "active-set", SOLVE_TOL, start=first)
    assert found.certificate.upper == pytest.approx(0.5149529253, rel=OBJECTIVE_RTOL)
    assert_balanced(problem, found)
