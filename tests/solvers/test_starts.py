"""Starts: the answers of solves without one, from the solution of a similar problem."""

from dataclasses import replace

import numpy as np
import pytest

import cases
from implicit_bias import MarginProblem, Status, max_margin, solve
from implicit_bias.solvers.base import Start
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


def start_of(problem: MarginProblem, alpha: float, scale: float) -> Start:
    rng = np.random.default_rng(8)
    return Start(
        alpha=alpha * rng.random(problem.n_samples),
        group_norms=scale * rng.random(problem.n_groups),
        coef=np.zeros(problem.coef_shape),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "solver", "alpha", "scale"),
    [
        ("sparse-gates", "interior-point", 0, 0),
        ("soft-not-separable", "working-set", 0, 1),
        ("soft-not-separable", "interior-point", 1e9, 1e-9),
        ("sparse-gates", "working-set", 1, 1e300),
    ],
)
def test_a_senseless_start_does_no_harm(name: str, solver: str, alpha: float, scale: float) -> None:
    problem = cases.separable(name)
    found = solve(problem, solver, tol=cases.GAP_LIMIT, start=start_of(problem, alpha, scale))
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(cases.best(name).certificate.upper, rel=1e-7)


def test_a_start_whose_bounds_are_far_apart_is_not_used() -> None:
    problem, known = cases.separable("gln"), cases.best("gln")
    far = replace(known, group_norms=100.0 * known.group_norms)
    found, cold = (solve(problem, "interior-point", start=start) for start in (far, None))
    np.testing.assert_array_equal(found.coef, cold.coef)


def test_data_that_are_not_separable_are_proven_so() -> None:
    found = solve(cases.twin("svm-l2"), start=cases.best("svm-l2"))
    assert found.status is Status.NOT_SEPARABLE


@pytest.mark.parametrize("norm", ["spectral", "nuclear"])
def test_from_its_own_solution_a_matrix_norm_takes_few_steps(norm: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    problem = max_margin(X, (X @ rng.standard_normal((6, 4))).argmax(axis=1), norm=norm)
    cold = solve(problem, "interior-point")
    warm = solve(problem, "interior-point", start=cold)
    assert warm.status is Status.OPTIMAL
    assert warm.certificate.upper == pytest.approx(cold.certificate.upper, rel=1e-6)
    assert warm.stats.iterations < cold.stats.iterations
