"""Starts: the answers of solves without one, from the solution of a similar problem."""

from dataclasses import replace

import numpy as np
import pytest

import cases
from implicit_bias import Status, solve
from oracles import check_signs


@pytest.mark.every(11)
@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("name", cases.SEPARABLE)
def test_from_the_solution_with_other_inputs(name: str, noise: float) -> None:
    """With noise on the inputs, each of its own size; without any from its own solution."""
    problem = cases.separable(name)
    factors = 1 + noise * np.random.default_rng(4).normal(size=problem.X.shape)
    start = solve(replace(problem, X=problem.X * factors), tol=cases.SOLVE_TOL)
    found = solve(problem, tol=cases.GAP_LIMIT, start=start)
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(cases.best(name).certificate.upper, rel=1e-7)


@pytest.mark.parametrize("solver", ["auto", "interior-point", "working-set"])
def test_growing_data_start_from_the_smaller_solution(solver: str) -> None:
    problem = cases.separable("linear-n-greater-d+intercept")
    first = solve(problem.subset(np.arange(50)))
    found = solve(problem, solver, cases.SOLVE_TOL, start=first)
    assert found.certificate.upper == pytest.approx(0.5149529253, rel=cases.OBJECTIVE_RTOL)
    check_signs(problem, found.alpha)


def test_a_start_whose_bounds_are_far_apart_is_not_used() -> None:
    problem, known = cases.separable("gln"), cases.best("gln")
    far = replace(known, group_norms=100.0 * known.group_norms)
    found, cold = (solve(problem, "interior-point", start=start) for start in (far, None))
    np.testing.assert_array_equal(found.coef, cold.coef)


@pytest.mark.every(8)
@pytest.mark.parametrize("name", cases.HARD)
def test_data_that_are_not_separable_are_proven_so(name: str) -> None:
    found = solve(cases.twin(name), start=cases.best(name))
    assert found.status is Status.NOT_SEPARABLE
