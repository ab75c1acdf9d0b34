"""The race: every solver has the optimum of the native one, and rows are graded as they should."""

from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.speed import races
from benchmarks.speed.conic import cholesky_factor
from benchmarks.speed.objective import Objective
from cases import separable
from implicit_bias import MarginProblem, max_margin, solve
from implicit_bias.problem.gating import HyperplaneContexts, l2_gates

rng = np.random.default_rng(0)
X = rng.normal(size=(24, 6))
TWO = np.where(X[:, 0] + 0.5 * rng.normal(size=24) > 0, 1, -1)
LINEAR = np.where(X @ rng.normal(size=6) > 0, 1, -1)
THREE = (X @ rng.normal(size=(6, 3))).argmax(axis=1)
CONTEXTS = HyperplaneContexts.random(X, n_units=3, random_state=0)
JOINT = l2_gates(CONTEXTS)
PROBLEMS: dict[str, MarginProblem] = {
    "soft l2": max_margin(X, TWO, C=0.3),
    "hard l2": max_margin(X, LINEAR),
    "soft classes": max_margin(X, THREE, C=0.3),
    "soft l1": max_margin(X, TWO, "l1", C=0.3),
    "hard linf, classes": max_margin(X, THREE, "linf"),
    "nuclear": max_margin(X, THREE, "nuclear"),
    "gln": MarginProblem(X, LINEAR, CONTEXTS.gates(X), CONTEXTS.groups),
    "joint": MarginProblem(X, LINEAR, JOINT.gates(X), JOINT.groups),
    "uneven groups": max_margin(X, LINEAR, groups=[0, 1, 1, 2, 2, 2]),
}
# Which peers take a problem.
TAKEN = {
    "soft l2": {"liblinear", "libsvm", "clarabel", "ecos", "scs"},
    "hard l2": {"liblinear", "libsvm", "osqp", "clarabel", "ecos", "scs"},
    "soft classes": {"liblinear", "clarabel", "ecos", "scs"},
    "soft l1": {"highs", "clarabel", "ecos", "scs"},
    "hard linf, classes": {"highs", "clarabel", "ecos", "scs"},
    "nuclear": {"clarabel", "scs"},
    "gln": {"clarabel", "ecos", "scs"},
    "joint": {"libsvm", "osqp", "clarabel", "ecos", "scs"},
    "uneven groups": {"clarabel", "ecos", "scs"},
}


def solver_of(name: str) -> Any:
    return import_module(f"benchmarks.speed.solvers.{name}").Solver


def suited(name: str, problem: MarginProblem) -> list[str]:
    formulations = solver_of(name).parameters["formulation"]
    return [each for each in formulations if not solver_of(name).unsuited(problem, each)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_solver_finds_the_optimum_of_the_native_one(name: str) -> None:
    """In each of its formulations: the squared norm has C', and its dual variables a scale."""
    problem = PROBLEMS[name]
    objective = Objective.get_instance()
    objective.set_data(problem=problem)
    optimum = solve(problem, tol=1e-9).certificate
    assert objective.reference.lower == pytest.approx(optimum.lower, rel=1e-7)
    assert {peer for peer in races.PEERS if suited(peer, problem)} == TAKEN[name]
    for peer in sorted(TAKEN[name]):
        for formulation in suited(peer, problem):
            answer = solver_of(peer).solve(problem, objective.reference, formulation, 1e-7)
            grade = objective.evaluate_result(**answer._asdict())
            assert abs(grade["excess"]) < 1e-5, (peer, formulation)
            assert grade["value"] >= optimum.lower * (1 - 1e-12)
            if answer.alpha is None:
                assert peer == "liblinear"
                assert grade["lower"] == 0.0
            else:
                assert grade["lower"] == pytest.approx(optimum.upper, rel=1e-4), peer


@pytest.mark.parametrize("name", ["gln", "linear-n-greater-d"])
def test_a_factor_is_one_of_the_gram_matrix(name: str) -> None:
    """And its coordinates stand for coefficients of the same norm and the same margins."""
    problem = separable(name)
    for g in range(problem.n_groups):
        factor = cholesky_factor(problem, g)
        B = factor.B.toarray() * problem.scale
        Q = problem.gram(g)
        np.testing.assert_allclose(B @ B.T, Q, atol=1e-9 * np.abs(Q).max())
        u = np.random.default_rng(g).normal(size=B.shape[1])
        coef = np.zeros(problem.coef_shape)
        coef[problem.groups == g] = factor.coefficients(u)
        margins = problem.margins(problem.decision(coef))
        np.testing.assert_allclose(margins, B @ u, atol=1e-7 * np.abs(margins).max())
        assert np.linalg.norm(coef) == pytest.approx(np.linalg.norm(u), rel=1e-7)


def test_the_excess_is_over_the_best_bound_of_any_solver() -> None:
    frame = pd.DataFrame(
        {"value": [1.1 + 1e-8, 1.2, np.nan], "lower": [1.1, 0.0, 0.0], "reference": 1.0}
    ).assign(problem="a", outcome=[races.ANSWERED, races.ANSWERED, races.UNSUITED])
    excess = races.graded(frame)["excess"].tolist()
    assert excess == pytest.approx([1e-8 / 1.1, 0.1 / 1.1], rel=1e-6)
