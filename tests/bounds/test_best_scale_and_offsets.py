"""The best scale and the best offsets of coefficients, by brute force."""

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cases import separable
from implicit_bias import MarginProblem, Status, certify, max_margin
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import grade, primal_estimate
from implicit_bias.bounds.upper import best_scale, golden_section, offsets_of_zero
from oracles import exact_bounds

WEIGHTED = separable("l2-binary-weights-intercept")


def of_totals(totals: list[float], *, intercept: bool = True) -> MarginProblem:
    """Two samples a class, whose C sum to the total of the class; two classes are binary."""
    k = len(totals)
    y = np.repeat(np.arange(k), 2)
    labels: Any = y
    if k == 2:
        labels = np.where(y == 0, 1, -1)
    C = np.repeat(totals, 2) * np.tile([0.25, 0.75], k)
    return max_margin(np.ones((2 * k, 1)), labels, C=C, intercept=intercept)


def value_at(problem: MarginProblem, offsets: Array) -> float:
    """Sum of the losses of coefficients 0, sample by sample and rival by rival."""
    value = 0.0
    for n, own in enumerate(problem.sample_classes):
        if problem.classes is None:
            margin = problem.y[n] * offsets[0]
        else:
            margin = min(offsets[own] - b for k, b in enumerate(offsets) if k != own)
        value += problem.box[n] * max(0.0, 1.0 - margin)
    return value


@pytest.mark.parametrize(
    "totals",
    [
        [3.0, 1.0],
        [1.0, 3.0],
        [2.0, 2.0],
        [4.0, 1.0, 2.0],
        [1.0, 4.0, 2.0],
        [1.0, 2.0, 4.0],
        [2.0, 3.0, 2.0],
        [1.0, 1.0, 1.0, 4.0],
    ],
)
def test_offsets_of_coefficients_0_are_the_best(totals: list[float]) -> None:
    problem = of_totals(totals)
    # Losses have their kinks where offsets differ by 1, so that some best ones are whole numbers.
    grid = itertools.product(np.arange(-2.0, 3.0), repeat=problem.norm_shape[0])
    best = min(value_at(problem, np.array(offsets)) for offsets in grid)
    assert value_at(problem, offsets_of_zero(problem)) == pytest.approx(best, rel=1e-14)
    assert problem.value_of_zero == pytest.approx(best, rel=1e-14)
    coef = np.zeros(problem.coef_shape)
    assert certify(problem, coef).upper == pytest.approx(best, rel=1e-14)
    graded = grade(problem, coef, np.zeros(problem.alpha_shape), Status.ITERATION_LIMIT)
    assert value_at(problem, np.atleast_1d(graded.intercept)) == pytest.approx(best, rel=1e-14)
    without = of_totals(totals, intercept=False)
    assert not offsets_of_zero(without).any()
    assert without.value_of_zero == pytest.approx(sum(totals))


def test_scales_are_the_best() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        margins, C = rng.normal(size=9), 10.0 ** rng.uniform(-2, 2, 9)

        def value(c: float, margins: Array = margins, C: Array = C) -> float:
            return 0.5 * c + float(C @ np.maximum(0.0, 1.0 - c * margins))

        kinks = [0.0, *(1.0 / margins[margins > 0])]
        assert value(best_scale(0.5, margins, C)) == pytest.approx(min(map(value, kinks)))
    assert best_scale(0.5, np.array([2.0, 4.0]), np.inf) == 0.5
    assert best_scale(0.5, np.array([-2.0, 4.0]), np.inf) == 0.0
    assert best_scale(np.inf, np.array([2.0, 4.0]), 1.0) == 0.0


@pytest.mark.parametrize("best", [0.0, 0.3, 2.9, 4.0])
def test_golden_section_finds_the_minimum_of_a_convex_function(best: float) -> None:
    assert golden_section(lambda c: abs(c - best), 4.0) == pytest.approx(best, abs=1e-12)


def test_offsets_of_coefficients_are_the_best() -> None:
    coef = np.random.default_rng(2).normal(size=WEIGHTED.coef_shape)
    given = [certify(WEIGHTED, coef, intercept=float(b)).upper for b in np.linspace(-3, 3, 121)]
    assert min(given) * (1 - 0.01) <= certify(WEIGHTED, coef).upper <= min(given) * (1 + 1e-9)


def test_progress_of_a_solver_is_the_upper_bound_but_for_rounding() -> None:
    problem = replace(WEIGHTED, intercept=False)
    coef = problem.dual_vectors(problem.box)
    margins = problem.margins(problem.decision(coef))
    expected = certify(problem, coef).upper
    assert expected < 0.99 * problem.value_of_zero
    assert primal_estimate(problem, coef, margins) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("C", [1e6, 1e12])
def test_margins_that_rounding_may_have_left_below_1_cost_no_loss(C: float) -> None:
    """At a large C a scale that is larger by a rounding costs less than the loss."""
    problem = max_margin([[3.0, 0.1], [-3.0, -0.1]], [1, -1], C=C)
    coef = np.array([[0.3, 0.7]])
    hard = certify(replace(problem, C=np.inf), coef).upper
    assert hard <= certify(problem, coef).upper * (1 + 1e-15)
    assert certify(problem, coef).upper == pytest.approx(hard, rel=1e-12)


def test_margins_that_cancel_have_their_losses_to_all_digits() -> None:
    """Margins of 1, 1 and 1/2 are differences of products of 2e8."""
    X = np.array([[1e9 + 5.0, 1e9], [1e9 - 5.0, 1e9], [1e9 + 2.5, 1e9]])
    problem = max_margin(X, [1, -1, 1], C=0.2)
    coef = np.array([[0.2, -0.2]])
    found = certify(problem, coef).upper
    _, exact = exact_bounds(problem, coef, np.zeros(3))
    assert exact <= Fraction(found) <= exact * Fraction(1 + 1e-12)


@pytest.mark.parametrize("norm", ["linf", "l1", "l2"])
@pytest.mark.parametrize("seed", range(2))
def test_bounds_with_a_weight_per_sample_are_those_of_rationals(seed: int, norm: str) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-3, 4, (6, 2)).astype(float), np.array([1.0, -1.0] * 3)
    problem = max_margin(X, y, norm, C=rng.choice([0.1, 0.3, 0.7, 2.0], 6) + 0.05 * np.arange(6))
    coef, alpha = rng.integers(-2, 3, (1, 2)) + 0.3, rng.random(6)
    lower, upper = exact_bounds(problem, coef, alpha)
    found = certify(problem, coef, alpha)
    assert Fraction(found.lower) <= lower <= upper <= Fraction(found.upper)
    assert found.lower == pytest.approx(float(lower), rel=1e-12)
    assert found.upper == pytest.approx(float(upper), rel=1e-12)
