"""Starts: the answers of solves without one, from the solution of a similar problem."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import cases
from implicit_bias import MarginProblem, Status, max_margin, solve
from oracles import check_signs


@pytest.mark.parametrize("name", ["sparse-gates", "svm-l2", "soft-not-separable"])
def test_from_the_solution_with_other_inputs(name: str) -> None:
    """With noise on the inputs, each of its own size."""
    problem = cases.separable(name)
    factors = 1 + 0.01 * np.random.default_rng(4).normal(size=problem.X.shape)
    start = solve(replace(problem, X=problem.X * factors), tol=cases.SOLVE_TOL)
    found = solve(problem, tol=cases.GAP_LIMIT, start=start)
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(cases.best(name).certificate.upper, rel=1e-7)


@pytest.mark.parametrize("solver", ["auto", "working-set"])
def test_growing_data_start_from_the_smaller_solution(solver: str) -> None:
    problem = cases.separable("linear-n-greater-d+intercept")
    first = solve(problem.subset(np.arange(50)))
    found = solve(problem, solver, cases.SOLVE_TOL, start=first)
    assert found.certificate.upper == pytest.approx(
        cases.best("linear-n-greater-d+intercept").certificate.upper, rel=cases.OBJECTIVE_RTOL
    )
    check_signs(problem, found.alpha)


def test_a_start_whose_bounds_are_far_apart_is_not_used() -> None:
    problem, known = cases.separable("gln"), cases.best("gln")
    far = replace(known, group_norms=100.0 * known.group_norms)
    found, cold = (solve(problem, "interior-point", start=start) for start in (far, None))
    np.testing.assert_array_equal(found.coef, cold.coef)


def of_four_classes(norm: str) -> MarginProblem:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    return max_margin(X, (X @ rng.standard_normal((6, 4))).argmax(axis=1), norm)


def wider_than_long() -> MarginProblem:
    X, y = cases.cloud(60, 90)
    return max_margin(X, y, C=0.05)


FEWER_STEPS: dict[str, tuple[Callable[[], MarginProblem], str]] = {
    "spectral": (lambda: of_four_classes("spectral"), "interior-point"),
    "nuclear": (lambda: of_four_classes("nuclear"), "interior-point"),
    "pergate": (lambda: cases.separable("pergate"), "features"),
    "l2-soft-intercept": (lambda: cases.separable("l2-soft-intercept"), "features"),
    "one-group": (wider_than_long, "one-group"),
}


@pytest.mark.parametrize("name", FEWER_STEPS)
def test_from_a_rough_solution_there_are_fewer_steps(name: str) -> None:
    make, method = FEWER_STEPS[name]
    problem = make()
    rough = solve(problem, **cases.asked(method, 1e-4))
    cold = solve(problem, **cases.asked(method, 1e-8))
    warm = solve(problem, start=rough, **cases.asked(method, 1e-8))
    assert warm.status is Status.OPTIMAL
    assert warm.certificate.upper == pytest.approx(cold.certificate.upper, rel=1e-7)
    assert warm.stats.iterations < cold.stats.iterations


def test_data_that_are_not_separable_are_proven_so() -> None:
    found = solve(cases.twin("svm-l2"), start=cases.best("svm-l2"))
    assert found.status is Status.NOT_SEPARABLE
