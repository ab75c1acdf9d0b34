"""Problems that are hard in float64: no answer of a native method is untrue.

Each answer is graded in exact arithmetic (`exact`). The slow run takes a sample of a minute or two;
``STRESS_PROBLEMS=20000 pytest -m slow tests/solvers/test_stress.py`` takes more, in hours.
"""

import os

import numpy as np
import pandas as pd
import pytest

import hard_problems
from hard_problems import draw, graded
from implicit_bias import Status

# Problems of the general family, and a fifth as many of each other one.
PROBLEMS = int(os.environ.get("STRESS_PROBLEMS", "150"))
# The share without an answer that is few: more than float64 has needs scaled data.
FEW = 0.1
# Seconds of a solve, on a busy machine.
LONGEST = 60.0


@pytest.mark.parametrize("family", ["general", *hard_problems.FAMILIES])
def test_draws_are_reproducible(family: str) -> None:
    for index in (3, 4, 17):
        first, second = draw(index, family), draw(index, family)
        assert first.facts == second.facts
        np.testing.assert_array_equal(first.problem.X, second.problem.X)
        np.testing.assert_array_equal(first.problem.y, second.problem.y)
        assert (first.similar is None) == (second.similar is None)
    one, other = draw(3, family).problem, draw(4, family).problem
    assert not np.array_equal(one.X, other.X)


@pytest.mark.slow
@pytest.mark.parametrize("family", hard_problems.FAMILIES)
def test_other_families_are_of_many_norms(family: str) -> None:
    facts = pd.DataFrame([draw(index, family).facts for index in range(40)])
    assert facts["norm"].nunique() > 8 or family == "combined"
    assert np.isfinite(facts["C"]).any()


def test_draws_are_of_all_kinds() -> None:
    facts = pd.DataFrame([draw(index).facts for index in range(60)])
    assert facts["N"].between(1, hard_problems.MOST).all()
    for name in ("intercept", "warm", "combined", "duplicates", "collinear", "labels", "scaled"):
        assert facts[name].nunique() > 1
    assert np.isinf(facts["C"]).any()
    assert np.isfinite(facts["C"]).any()


@pytest.mark.slow
def test_soft_coefficients_attain_their_bound() -> None:
    """A large C weighs what rounding the coefficients costs: the bound is of those returned."""
    for index in (248, 297):
        assert graded(draw(index)).lies == []


# How a method must answer a draw, whose answers nothing else has to grade: numbers of the draws.
ANSWERED: list[tuple[str, str, list[int]]] = [
    # Samples from 1e-12 to 1e12 and an offset: of a condition that float64 can master.
    ("auto", "OPTIMAL", [36]),
    ("auto", "NOT_SEPARABLE", [130]),
    # A start that leaves one class in the working set.
    ("working-set", "OPTIMAL", [40]),
    ("auto", "OPTIMAL", [74]),
    # Weights of a proof that differ by 20 digits: the equation of an intercept, repaired in
    # float64, must not round the small ones away.
    ("auto", "NOT_SEPARABLE", [1582]),
    # Numbers beyond float32, and enormous separators.
    ("auto", "NOT_SEPARABLE", [16775]),
    ("auto", "OPTIMAL", [17434]),
]


@pytest.mark.fast("auto-OPTIMAL-36", "auto-NOT_SEPARABLE-130", "working-set-OPTIMAL-40")
@pytest.mark.parametrize(
    ("method", "status", "index"),
    [(method, status, index) for method, status, indices in ANSWERED for index in indices],
)
def test_answers_are_found_and_do_not_lie(method: str, status: str, index: int) -> None:
    found = graded(draw(index), method)
    assert (found.solution.status.name, found.lies) == (status, [])


@pytest.mark.slow
def test_a_working_set_does_not_return_to_rows_that_it_left() -> None:
    # Some of its samples seem inseparable by rounding: twice the samples, some leave, and so on.
    found = graded(draw(2550), "working-set")
    assert found.solution.status is not Status.ITERATION_LIMIT


@pytest.mark.slow
def test_a_status_names_no_limit_that_was_not_given() -> None:
    """A similar problem, under the Euclidean norm, has a limit of its own."""
    assert graded(draw(67, "classes")).solution.status is not Status.TIME_LIMIT


# --- the sample ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("family", ["general", *hard_problems.FAMILIES])
def test_no_answer_is_untrue_and_few_are_missing(family: str) -> None:
    """Nothing warns, nothing raises, and nothing takes a minute."""
    count = PROBLEMS if family == "general" else PROBLEMS // 5
    missed = 0
    for index in range(count):
        found = graded(draw(index, family))
        assert found.lies == [], index
        assert found.seconds < LONGEST, index
        missed += found.missed
    assert missed <= FEW * count


@pytest.mark.slow
@pytest.mark.parametrize("method", ["interior-point", "feature-space", "working-set"])
def test_no_native_method_is_untrue(method: str) -> None:
    for index in range(0, PROBLEMS, 10):
        assert graded(draw(index), method).lies == [], index
