"""Solvers: certificates recomputed by hand, equivalent problems, statuses and options."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import cases
import oracles
from implicit_bias import MarginProblem, Solution, SolveError, Status, solve

Change: TypeAlias = Callable[[MarginProblem], MarginProblem]


def solved(problem: MarginProblem, solver: str = "interior-point", **options: Any) -> Solution:
    return solve(problem, **cases.asked(solver, **{"tol": cases.SOLVE_TOL, **options}))


def optimum(problem: MarginProblem) -> float:
    found = solved(problem)
    assert found.certificate.gap <= cases.GAP_LIMIT
    return found.certificate.upper


# --- the case table --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*cases.HANDFUL, "dead-group", "one-class", "soft-large-c"])
def test_kkt_conditions(name: str) -> None:
    """Stationarity zeta_g = d_g V_g, and both kinds of complementary slackness."""
    problem, found = cases.separable(name), cases.best(name)
    size = max(np.abs(found.coef).max(), np.finfo(float).tiny)
    V = oracles.loop_dual_vectors(problem, found.alpha)
    for g, columns in enumerate(oracles.loop_groups(problem)):
        stationary = found.group_norms[g] * V[columns]
        np.testing.assert_allclose(found.coef[columns] / size, stationary / size, atol=1e-4)
    value = found.certificate.upper
    switched_off = 1 - found.certificate.dual_norms
    assert found.group_norms @ switched_off <= 1e-6 * value
    excess = problem.y * oracles.loop_decision(problem, found.coef) - 1
    if problem.hard_margin:
        assert found.alpha @ excess <= 1e-6 * value
    assert set(np.flatnonzero(found.alpha > 1e-3 * found.alpha.max())) <= set(found.support)
    # What is no support vector may go: the optimum stays.
    if problem.hard_margin:
        smaller = optimum(problem.subset(found.support))
        assert smaller == pytest.approx(value, rel=cases.OBJECTIVE_RTOL)


# --- equivalences ----------------------------------------------------------------------------


# Without the norm of the groups that were.
regrouped = partial(replace, norm=None)


def of_more_groups(problem: MarginProblem) -> MarginProblem:
    """Have every group twice."""
    groups = np.append(problem.groups, problem.groups + problem.n_groups)
    gates = np.hstack([cases.dense(problem.gates)] * 2)
    return regrouped(problem, gates=gates, groups=groups)


def of_permuted_groups(problem: MarginProblem) -> MarginProblem:
    order = np.random.default_rng(0).permutation(problem.n_groups)
    return regrouped(problem, groups=order[problem.groups])


def of_permuted_columns(problem: MarginProblem) -> MarginProblem:
    order = np.random.default_rng(0).permutation(problem.n_gates)
    gates, groups = cases.dense(problem.gates)[:, order], problem.groups[order]
    return regrouped(problem, gates=gates, groups=groups)


def of_gates_stored_otherwise(problem: MarginProblem) -> MarginProblem:
    gates = problem.gates
    return replace(problem, gates=cases.dense(gates) if sp.issparse(gates) else sp.csr_array(gates))


def scaled(factor: float) -> Change:
    return lambda problem: replace(problem, X=factor * problem.X)


# What changes a problem, what it multiplies the optimum with, and of which problems.
EQUIVALENT: list[tuple[str, Change, float, list[str]]] = [
    ("more groups", of_more_groups, 1.0, ["svm-l2"]),
    ("permuted groups", of_permuted_groups, 1.0, ["gated-relu"]),
    ("permuted columns", of_permuted_columns, 1.0, ["dense-gates"]),
    (
        "repeated samples",
        lambda problem: problem.subset(np.r_[: problem.n_samples, 0, 0, 3, 5]),
        1.0,
        ["gln", "nuclear"],
    ),
    ("scaled by 0.001", scaled(1e-3), 1e3, ["svm-l2"]),
    ("scaled by 40", scaled(40.0), 1 / 40, ["nuclear"]),
    ("other signs", lambda problem: replace(problem, y=-problem.y), 1.0, ["sparse-gates"]),
    (
        "other classes",
        lambda problem: replace(problem, y=(problem.y + 1) % 3),
        1.0,
        ["l2"],
    ),
    ("gates stored otherwise", of_gates_stored_otherwise, 1.0, ["sparse-gates"]),
    ("large C", lambda problem: replace(problem, C=1e6), 1.0, ["gln", "nuclear"]),
    ("doubled gates", lambda problem: replace(problem, gates=2 * problem.gates), 0.5, ["svm-l2"]),
]


@pytest.mark.parametrize(
    ("change", "factor", "name"),
    [
        pytest.param(change, factor, name, id=f"{what}-{name}")
        for what, change, factor, names in EQUIVALENT
        for name in names
    ],
)
def test_equivalent_problems_have_one_optimum(change: Change, factor: float, name: str) -> None:
    """Up to a factor, and the same predictions."""
    problem, first = cases.separable(name), cases.best(name)
    other = change(problem)
    second = solved(other, tol=1e-9 if name == "nuclear" else cases.SOLVE_TOL)
    assert first.status is second.status is Status.OPTIMAL
    assert second.certificate.upper == pytest.approx(
        factor * first.certificate.upper, rel=cases.OBJECTIVE_RTOL
    )
    margins = other.margins(other.decision(second.coef))[: problem.n_samples]
    np.testing.assert_allclose(
        problem.margins(problem.decision(first.coef)), margins, atol=cases.DECISION_ATOL
    )


# --- statuses and options --------------------------------------------------------------------


def test_solutions_do_not_depend_on_global_state() -> None:
    first = solve(cases.separable("gln"), tol=cases.SOLVE_TOL)
    torch.manual_seed(99)
    default: torch.dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        second = solve(cases.separable("gln"), tol=cases.SOLVE_TOL)
    finally:
        torch.set_default_dtype(default)
    np.testing.assert_array_equal(first.coef, second.coef)


def test_a_missing_solver_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvxpy.installed_solvers", lambda: ["CLARABEL"])
    with pytest.raises(
        ImportError, match=r"ECOS is not installed: pip install 'implicit-bias\[ecos\]'"
    ):
        solve(cases.separable("gln"), "ecos")


# --- what a review found ---------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["rows", "feature-space"])
def test_the_scale_of_single_samples_does_not_make_data_inseparable(solver: str) -> None:
    found = solve(cases.plain(np.diag([1e10, 1.0]), np.ones(2)), **cases.asked(solver))
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(1.0)


def test_errors_reach_other_processes_whole() -> None:
    problem = cases.build(cases.xor(), cases.linear)
    with pytest.raises(SolveError) as caught:
        solve(problem).raise_for_status()
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    np.testing.assert_array_equal(again.solution.alpha, caught.value.solution.alpha)
