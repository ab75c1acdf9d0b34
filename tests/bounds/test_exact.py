"""Bounds in rational arithmetic: against the definitions, float64 bounds, and by hand."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import GAP_LIMIT, SEPARABLE, SOLVE_TOL, cloud, plain, separable
from implicit_bias import MarginProblem, certify, solve
from implicit_bias.base.validation import Array
from implicit_bias.bounds.exact import ExactAnswer, certify_exact, nearest
from oracles import exact_bounds, fractions


def answer(plain_coef: Array, alpha: Array, intercept: float = 0.0) -> ExactAnswer:
    return ExactAnswer(fractions(plain_coef), fractions(alpha), Fraction(intercept))


@pytest.mark.every(4)
@pytest.mark.parametrize("name", SEPARABLE)
def test_agrees_with_float64(name: str) -> None:
    problem = separable(name)
    found = solve(problem, tol=SOLVE_TOL)
    plain = problem.plain_coef(found.coef)
    bounds = certify_exact(problem, answer(plain, found.alpha))
    usual = certify(problem, found.coef, found.alpha)
    assert usual.lower <= bounds.lower * (1 + 1e-15)
    assert bounds.upper <= usual.upper * (1 + 1e-9)  # of scale 1, of a soft margin
    assert bounds.gap <= GAP_LIMIT
    np.testing.assert_allclose(bounds.dual_norms, usual.dual_norms, atol=1e-6)


@pytest.mark.slow
@given(
    st.lists(st.integers(-9, 9), min_size=6, max_size=6),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.booleans(),
)
def test_the_definitions_in_fractions(x: list[int], alpha: list[int], soft: bool) -> None:
    X, y = np.array(x, dtype=float).reshape(3, 2), np.array([1.0, -1.0, 1.0])
    gates = np.array([[1.0, 0.5], [0.0, 1.0], [2.0, 1.0]])
    if not X.any():
        return
    problem = MarginProblem(X, y, gates, np.array([0, 1]), C=0.75 if soft else math.inf)
    coef = np.array([[1.0, -2.0], [0.5, 3.0]])
    bounds = certify_exact(problem, answer(coef, np.array(alpha, dtype=float), 0.0))
    lower, upper = exact_bounds(problem, coef, np.array(alpha), best=False)
    # Rounded down, and the next float64 is not below.
    assert bounds.lower <= lower
    assert math.nextafter(bounds.lower, math.inf) >= lower * (1 - Fraction(1, 2**200))
    assert bounds.upper == pytest.approx(float(upper), rel=1e-14)


def test_an_intercept_needs_its_equation_exactly() -> None:
    X, y = cloud(6, 3, shift=3.0)
    problem = plain(X, y, intercept=True)
    alpha = fractions(np.ones(6))
    coef = fractions(np.array([[1.0, 0.0, 0.0]]))
    assert certify_exact(problem, ExactAnswer(coef, alpha)).lower > 0
    alpha[0] += Fraction(1, 10**30)
    assert certify_exact(problem, ExactAnswer(coef, alpha)).lower == 0


def test_more_digits_than_float64() -> None:
    """A third is no float64: V of what is rounded is not that of the exact numbers."""
    X = np.array([[1e15], [1e15 + 2.0], [1e15 + 4.0]])
    problem = plain(X, [-1.0, 1.0, 1.0], intercept=True)
    third = fractions(np.array([0.5, 0.5, 0.0]))
    third[0], third[1], third[2] = Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)
    found = ExactAnswer(fractions(np.array([[1.0]])), third, -Fraction(10**15 + 1))
    bounds = certify_exact(problem, found)
    assert bounds.lower == pytest.approx(1 / (Fraction(2, 3) + Fraction(4, 6)), rel=1e-15)
    assert bounds.upper == 1.0


WRONG = {
    "coef": (None, ExactAnswer(fractions(np.ones((1, 2))), fractions(np.ones(6)))),
    "alpha must": (None, ExactAnswer(fractions(np.ones((1, 3))), fractions(np.ones(5)))),
    "negative": (None, answer(np.ones((1, 3)), -np.ones(6))),
    "'a' is no rational": (None, ExactAnswer(np.full((1, 3), "a"), fractions(np.ones(6)))),
    "nan is no rational": (None, ExactAnswer(np.full((1, 3), math.nan), fractions(np.ones(6)))),
    "None is no rational": (None, ExactAnswer(fractions(np.ones((1, 3))), None)),  # type: ignore[arg-type]
    "no intercept": (None, answer(np.ones((1, 3)), np.ones(6), intercept=-3.0)),
    "intercept must": (3, answer(np.ones((3, 1, 3)), np.zeros((6, 3)))),
    "own class": (
        3,
        replace(answer(np.ones((3, 1, 3)), np.ones((6, 3))), intercept=fractions(np.zeros(3))),
    ),
}


@pytest.mark.parametrize("word", WRONG)
def test_refuses_what_no_bound_may_rest_on(word: str) -> None:
    X, y = cloud(6, 3)
    classes, wrong = WRONG[word]
    problem = plain(X, y if classes is None else np.arange(6) % classes)
    with pytest.raises(ValueError, match=word):
        certify_exact(problem, wrong)


def test_refuses_what_is_no_answer() -> None:
    X, y = cloud(6, 3)
    problem = plain(X, y)
    for posed, wrong, word in [
        (None, answer(np.ones((1, 3)), np.ones(6)), "MarginProblem"),
        (problem, solve(problem).exact, "ExactAnswer"),
    ]:
        with pytest.raises(TypeError, match=word):
            certify_exact(posed, wrong)  # type: ignore[arg-type]


def test_bounds_beyond_float64() -> None:
    X, y = cloud(6, 3, shift=5.0)
    problem = plain(X, y)
    found = answer(np.array([[1.0, 0.0, 0.0]]), np.ones(6))
    tiny = replace(found, alpha=found.alpha * Fraction(1, 10**400))
    assert certify_exact(problem, tiny).lower == certify_exact(problem, found).lower
    soft = replace(problem, C=1.0)
    large = replace(found, plain_coef=found.plain_coef * 10**400)
    assert certify_exact(soft, large).upper == math.inf


def test_numbers_beyond_float64_become_its_largest() -> None:
    largest, huge = np.finfo(float).max, Fraction(10) ** 400
    found = nearest(np.array([huge, -huge, Fraction(1, 2)], dtype=object))
    assert found.tolist() == [largest, -largest, 0.5]
