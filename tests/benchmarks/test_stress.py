"""The stress benchmark: its draws, and the exact grader against answers that lie."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import ArrayLike

from benchmarks import catalogue, harness
from benchmarks.__main__ import main
from benchmarks.speed import exact, stress
from cases import cloud, mostly_slow
from implicit_bias.certificate import Status
from implicit_bias.problem import MarginProblem
from implicit_bias.separability import gordan_vertex, prove_not_separable
from implicit_bias.solvers import Solution, solve
from implicit_bias.validation import Array

TOL = 1e-6


def linear(*, shift: float = 3.0, C: float = np.inf, intercept: bool = False) -> MarginProblem:
    X, y = cloud(shift=shift)
    return ungated(X[:, :-1], y, C, intercept)


def ungated(X: Array, y: ArrayLike, C: float = np.inf, intercept: bool = False) -> MarginProblem:
    one, group = np.ones((len(X), 1)), np.zeros(1, np.int64)
    return MarginProblem(X, np.array(y, dtype=float), one, group, C=C, intercept=intercept)


def lies(solution: Solution, problem: MarginProblem) -> list[str]:
    return exact.find_lies(solution, problem, TOL)


# --- numbers -----------------------------------------------------------------------------------


def test_floats_are_kept_exactly() -> None:
    values = np.array([[1e-300, -0.1], [0.0, 3e200]])
    kept = exact.Exact.of(values)
    assert [kept.fraction(i, j) for i in (0, 1) for j in (0, 1)] == [
        Fraction(value) for value in values.ravel()
    ]
    product = kept.matmul(kept)
    assert product.fraction(0, 1) == sum(
        Fraction(values[0, k]) * Fraction(values[k, 1]) for k in (0, 1)
    )


def test_condition_is_that_of_the_exact_rank() -> None:
    X = np.array([[1.0, 2.0], [2.0, 4.0], [-1.0, -2.0]])
    assert exact.condition(ungated(X, [1, 1, -1])) == pytest.approx(1.0)
    X[0, 1] += 2.0**-40
    assert exact.condition(ungated(X, [1, 1, -1])) > 1e10


# --- the grader --------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [np.inf, 0.3])
@pytest.mark.parametrize("intercept", [False, True])
def test_lies_are_caught(C: float, intercept: bool) -> None:
    problem = linear(C=C, shift=3.0 if np.isinf(C) else 0.3, intercept=intercept)
    solution = solve(problem)
    assert solution.status is Status.OPTIMAL
    assert lies(solution, problem) == []
    lower, upper = solution.certificate.lower, solution.certificate.upper

    def told(lower: float = lower, upper: float = upper) -> list[str]:
        certificate = replace(solution.certificate, lower=lower, upper=upper)
        return lies(replace(solution, certificate=certificate), problem)

    assert told(lower=lower * (1 + 2e-6)) == ["lower"]
    assert told(upper=upper * (1 - 2e-6)) == ["upper"]
    assert told(upper=upper * (1 + 3e-6)) == ["gap"]
    assert told(lower=np.inf, upper=np.inf) == ["lower", "gap"]
    assert "upper" in lies(replace(solution, coef=1.001 * solution.coef + 1e-3), problem)
    assert lies(replace(solution, alpha=-solution.alpha), problem) == ["lower"]
    if intercept:
        unbalanced = solution.alpha.copy()
        unbalanced[np.argmax(unbalanced)] *= 1 + 1e-15
        assert lies(replace(solution, alpha=unbalanced), problem) == ["lower"]


@pytest.mark.parametrize("intercept", [False, True])
def test_proofs(intercept: bool) -> None:
    separable, mixed = linear(intercept=intercept), linear(shift=0.0, intercept=intercept)
    solution = solve(mixed)
    assert solution.status is Status.NOT_SEPARABLE
    assert lies(solution, mixed) == []
    assert lies(solution, separable) == ["unproven"]
    assert lies(solution, replace(mixed, C=1.0)) == ["proof"]


@pytest.mark.parametrize("scale", [1.0, 1e-9])
@pytest.mark.parametrize("intercept", [False, True])
def test_exact_vertices(intercept: bool, scale: float) -> None:
    """What the simplex method finds is a proof; where samples are separable it finds nothing."""
    sizes = scale ** np.linspace(0, 1, 30)
    mixed = linear(shift=0.0, intercept=intercept)
    mixed = replace(mixed, X=mixed.X * sizes[:, None])
    alpha = gordan_vertex(mixed)
    assert (alpha is None) == (not exact.is_inseparable(mixed, np.ones(30)))
    if alpha is not None:
        assert alpha.min() >= 0
        assert alpha.sum() == pytest.approx(1)
        assert prove_not_separable(mixed, alpha) is not None
    assert gordan_vertex(linear(intercept=intercept)) is None


# --- draws and rows ------------------------------------------------------------------------------


def test_draws_are_reproducible() -> None:
    for index in (3, 4, 17):
        first, second = stress.draw(index), stress.draw(index)
        assert first.facts == second.facts
        np.testing.assert_array_equal(first.problem.X, second.problem.X)
        np.testing.assert_array_equal(first.problem.y, second.problem.y)
        assert (first.similar is None) == (second.similar is None)
    assert not np.array_equal(stress.draw(3).problem.y, stress.draw(4).problem.y)


def test_draws_are_of_all_kinds() -> None:
    facts = pd.DataFrame([stress.draw(index).facts for index in range(60)])
    assert facts["N"].between(1, stress.MOST).all()
    for name in ("intercept", "warm", "metric", "duplicates", "collinear", "labels", "scaled"):
        assert facts[name].nunique() > 1
    assert np.isinf(facts["C"]).any()
    assert np.isfinite(facts["C"]).any()


def test_soft_coefficients_attain_their_bound() -> None:
    """A large C weighs what rounding the coefficients costs: the bound is of those returned."""
    for index in (248, 297):
        drawn = stress.draw(index)
        row = stress.answer(drawn, "auto", TOL)
        assert row["lies"] == ""


def test_an_intercept_beside_small_samples() -> None:
    """Samples from 1e-12 to 1e12 and an offset: of a condition that float64 can master."""
    for index, status in [(36, "OPTIMAL"), (74, "OPTIMAL"), (130, "NOT_SEPARABLE")]:
        row = stress.answer(stress.draw(index), "auto", TOL)
        assert (row["status"], row["lies"]) == (status, "")


@pytest.mark.parametrize("index", [978, 1582, 1661])
def test_weights_of_a_proof_that_differ_by_20_digits(index: int) -> None:
    """The equation of an intercept, repaired in float64, must not round the small ones away."""
    row = stress.answer(stress.draw(index), "auto", TOL)
    assert (row["status"], row["lies"]) == ("NOT_SEPARABLE", "")


@pytest.mark.slow
def test_numbers_beyond_float32_and_enormous_separators() -> None:
    for index, status in [(16775, "NOT_SEPARABLE"), (17434, "OPTIMAL"), (17703, "OPTIMAL")]:
        row = stress.answer(stress.draw(index), "auto", TOL)
        assert (row["status"], row["lies"]) == (status, "")


@pytest.mark.parametrize(
    "index",
    mostly_slow([18, 70, 117, 194, 213, 275, 325, 473], [18]),
)
def test_answers_in_more_digits_than_float64(index: int) -> None:
    """Problems at which every solver in float64 fails."""
    row = stress.answer(stress.draw(index), "auto", TOL)
    assert (row["status"], row["lies"]) == ("OPTIMAL", "")
    assert row["solver"] == "multiprecision"


def test_a_start_that_leaves_one_class_in_the_working_set() -> None:
    row = stress.answer(stress.draw(40), "working-set", TOL)
    assert (row["status"], row["lies"]) == ("OPTIMAL", "")


def test_what_is_said() -> None:
    row = {
        "index": 0,
        "method": "auto",
        "status": "OPTIMAL",
        "lies": "",
        "detail": "",
        "rational": False,
    }
    rows = [{**row, "condition": 10.0, "seconds": 0.1}]
    assert stress.verdict(pd.DataFrame(rows)) is harness.Verdict.STANDS
    rows.append({**rows[0], "index": 1, "status": "NUMERICAL_TROUBLE"})
    assert stress.verdict(pd.DataFrame(rows)) is harness.Verdict.IN_PART
    rows.append({**rows[0], "index": 2, "lies": "lower"})
    assert stress.verdict(pd.DataFrame(rows)) is harness.Verdict.FALLS
    assert "1 lower" in stress.found(pd.DataFrame(rows))


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    study = catalogue.study("speed")
    for _ in range(2):
        assert (
            main(["speed", "stress", "--quick", "--problems", "6", "--folder", str(tmp_path)]) == 0
        )
        frame = harness.read(study, study.entry("stress"), tmp_path)
        assert frame["index"].nunique() == 6
        assert len(frame) == 6 + len(stress.NATIVE)
        assert (frame["lies"].fillna("") == "").all()
