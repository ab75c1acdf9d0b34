"""CVXPY's solvers in each formulation: factors of the Gram matrices, the case table, proofs."""

import itertools

import numpy as np
import pytest

from cases import (
    OBJECTIVE_RTOL,
    PROOF_LIMIT,
    ROUNDING,
    SEPARABLE,
    build,
    case_table,
    cloud,
    gln,
    loop_decision,
    loop_dual_norms,
    loop_feature_norms,
    loop_group_norms,
    separable,
    twin,
)
from implicit_bias.bounds.certificate import Certificate, Status, certify
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import Solution, Tolerances, solve
from implicit_bias.solvers.base import Candidate
from implicit_bias.solvers.cvxpy_solver import FORMULATIONS, CvxpySolver, Formulation

# Each solver with the gap that it is asked for, and the certified one that it can be relied on
# to reach then.
REACH = {
    "clarabel": (1e-9, 1e-7),
    "ecos": (1e-6, 1e-6),
    "scs": (1e-6, 1e-5),
    "osqp": (1e-6, 1e-7),
}
HANDFUL = ["gln", "linear-n-greater-d", "svm-l2", "dead-group", "soft-not-separable"]


def can_solve(backend: str, problem: MarginProblem) -> bool:
    return backend != "osqp" or (problem.n_groups == 1 and problem.hard_margin)


def answer(
    problem: MarginProblem,
    backend: str,
    formulation: Formulation,
    *,
    tol: float,
    max_iterations: int | None = None,
) -> Candidate:
    return CvxpySolver(
        backend=backend,
        formulation=formulation,
        tolerances=Tolerances(gap=tol),
        max_iterations=max_iterations,
    ).run(problem)


def native(problem: MarginProblem) -> Solution:
    return solve(problem, "interior-point", tol=1e-9)


def graded(problem: MarginProblem, found: Candidate) -> Certificate:
    return certify(problem, coef=found.coef, alpha=found.alpha)


# --- the case table --------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "formulation"), case_table(SEPARABLE, tuple(FORMULATIONS)))
def test_formulations_agree_with_the_native_solver(name: str, formulation: Formulation) -> None:
    problem = separable(name)
    tol, reach = REACH["clarabel"]
    found = answer(problem, "clarabel", formulation, tol=tol)
    certificate = graded(problem, found)
    assert certificate.gap <= reach
    best = native(problem).certificate
    assert certificate.upper == pytest.approx(best.upper, rel=OBJECTIVE_RTOL)
    assert certificate.lower == pytest.approx(best.lower, rel=OBJECTIVE_RTOL)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        (name, backend)
        for name, backend in itertools.product(HANDFUL, ["ecos", "scs", "osqp"])
        if can_solve(backend, separable(name))
    ],
)
def test_every_backend_solves_every_formulation(
    name: str, backend: str, formulation: Formulation
) -> None:
    problem = separable(name)
    tol, reach = REACH[backend]
    found = answer(problem, backend, formulation, tol=tol)
    certificate, best = graded(problem, found), native(problem).certificate
    assert found.status is Status.OPTIMAL
    assert found.iterations > 0
    assert certificate.gap <= reach
    assert best.lower * (1 - ROUNDING) <= certificate.upper <= best.upper * (1 + reach)
    assert certificate.lower <= best.upper * (1 + ROUNDING)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        (name, backend)
        for name, backend in itertools.product(["gln", "linear"], ["clarabel", "osqp"])
        if can_solve(backend, separable(name))
    ]
    + [pytest.param("svm-l2", backend, marks=pytest.mark.slow) for backend in ("clarabel", "osqp")],
)
def test_twins_are_not_separable(name: str, backend: str, formulation: Formulation) -> None:
    """The dual's program is unbounded there, the primals' are infeasible."""
    problem = twin(name)
    found = answer(problem, backend, formulation, tol=1e-6)
    assert found.status is Status.NOT_SEPARABLE
    assert "unbounded" in found.detail if formulation == "dual" else "infeasible" in found.detail
    alpha = found.alpha / found.alpha.sum()
    length = float(alpha @ loop_feature_norms(problem))
    assert loop_dual_norms(problem, alpha).max() <= PROOF_LIMIT * length


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(("backend", "limit"), [("clarabel", 2), ("ecos", 2), ("scs", 25)])
def test_iteration_limit_keeps_valid_bounds(
    backend: str, limit: int, formulation: Formulation
) -> None:
    problem = separable("gln")
    found = answer(problem, backend, formulation, tol=1e-9, max_iterations=limit)
    assert found.status is Status.ITERATION_LIMIT
    certificate, best = graded(problem, found), native(problem).certificate
    assert certificate.lower <= best.upper * (1 + ROUNDING)
    assert certificate.upper >= best.lower * (1 - ROUNDING)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_osqp_refuses_cones(formulation: Formulation) -> None:
    with pytest.raises(ValueError, match="OSQP solves quadratic programs only"):
        answer(build(cloud(), gln()), "osqp", formulation, tol=1e-6)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_soft_margin_without_features(formulation: Formulation) -> None:
    """All gates off: no coefficients do anything, and each sample costs C."""
    X, y = cloud(12, 4)
    problem = MarginProblem(X, y, np.zeros((12, 2)), np.array([0, 1]), C=2.0)
    certificate = graded(problem, answer(problem, "clarabel", formulation, tol=1e-9))
    assert certificate.upper == pytest.approx(24.0)
    assert certificate.lower == pytest.approx(24.0)


# --- the factors -----------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(
    "name",
    ["gln", "sparse-gates", "linear-n-greater-d", "rank-deficient-x", "metric-rank-deficient"],
)
def test_factors_are_coordinates_of_the_features(name: str, formulation: Formulation) -> None:
    """B B' is the Gram matrix; the coefficients of u have its norm, and the margins B u."""
    problem = separable(name)
    factors = [
        FORMULATIONS[formulation].factor(problem, group) for group in range(problem.n_groups)
    ]
    for g, factor in enumerate(factors):
        Q = problem.gram(g) / problem.scale**2
        np.testing.assert_allclose((factor.B @ factor.B.T).toarray(), Q, atol=1e-12)
        u = np.random.default_rng(g).normal(size=factor.B.shape[1])
        plain = np.zeros((len(problem.plain_groups), problem.X.shape[1]))
        plain[problem.plain_groups == g] = factor.lift(u)
        coef = np.asarray(problem.root @ plain) / problem.scale
        expected = np.linalg.norm(u) / problem.scale
        assert loop_group_norms(problem, coef)[g] == pytest.approx(expected, rel=1e-7)
        margins = problem.y * loop_decision(problem, coef)
        np.testing.assert_allclose(margins, factor.B @ u, atol=1e-9)


def test_a_cholesky_factor_is_as_wide_as_the_rank_and_as_sparse_as_the_contexts() -> None:
    """Samples of different contexts share no feature, and no entry of the factor."""
    problem = separable("linear-n-greater-d")  # 80 samples, 3 features
    assert FORMULATIONS["dual"].factor(problem, 0).B.shape == (80, 3)
    B = FORMULATIONS["reduced"].factor(separable("gln"), 0).B
    assert B.nnz < 0.6 * B.shape[0] * B.shape[1]
