"""Equations that follow from others, or contradict them: proofs, in rational numbers."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from drawn import normal
from implicit_bias import min_norm
from implicit_bias.base.validation import Array
from implicit_bias.interpolation import Interpolant, InterpolationStatus
from implicit_bias.interpolation.equations import sort_equations
from implicit_bias.interpolation.problem import interpolation_problem

OPTIMAL = InterpolationStatus.OPTIMAL
INCONSISTENT = InterpolationStatus.INCONSISTENT
WITHIN_SLACK = InterpolationStatus.WITHIN_SLACK
NEARLY = InterpolationStatus.NEARLY_INCONSISTENT


def check_proof(found: Interpolant, X: Array, gates: Array, Y: Array, intercept: bool) -> None:
    """Check that the multipliers cancel all features exactly, and not the values."""
    proof = found.inconsistency
    assert proof is not None
    assert proof.multipliers is not None
    pairs = list(zip(proof.samples.tolist(), proof.multipliers, strict=True))
    for m in range(gates.shape[1]):
        for d in range(X.shape[1]):
            terms = [x * Fraction(gates[n, m]) * Fraction(X[n, d]) for n, x in pairs]
            assert sum(terms) == 0
    if intercept:
        assert sum(x for _, x in pairs) == 0
    assert sum(x * Fraction(Y[n, proof.output]) for n, x in pairs) != 0
    assert np.isinf(found.lower)
    assert np.isinf(found.upper)


@pytest.mark.parametrize(("norm", "intercept"), [("l1", True), ("nuclear", False)])
def test_equal_samples_with_other_values(norm: str, intercept: bool) -> None:
    X = normal(5, 8)
    X[3] = X[1]
    Y = normal(5, 2, seed=1)
    Y[3, 0] = Y[1, 0]
    found = min_norm(X, Y, norm, intercept=intercept)
    assert found.status is INCONSISTENT
    check_proof(found, X, np.ones((5, 1)), Y, intercept)
    assert "samples 1 and 3 have the same features" in found.message
    assert found.inconsistency is not None
    assert found.inconsistency.output == 1
    assert not found.coef.any()


def test_a_combination_of_samples_with_another_value() -> None:
    X = np.round(8 * normal(5, 8)) / 8
    gates = np.round(4 * normal(5, 2, seed=3)) / 4
    gates[4] = gates[1] = gates[0]
    X[4] = 2 * X[0] - 3 * X[1]
    Y = normal(5, 1, seed=1)
    found = min_norm(X, Y[:, 0], gates=gates, groups=[0, 1])
    assert found.status is INCONSISTENT
    check_proof(found, X, gates, Y, False)
    # The same combination of the values is consistent, exactly: no slack.
    Y = np.round(8 * Y)
    Y[4] = 2 * Y[0] - 3 * Y[1]
    found = min_norm(X, Y[:, 0], gates=gates, groups=[0, 1])
    assert found.status is OPTIMAL
    assert found.slack == 0
    # With an offset 1 = 2 - 3 would have to hold, too.
    found = min_norm(X, Y[:, 0], gates=gates, groups=[0, 1], intercept=True)
    assert found.status is OPTIMAL


def test_many_samples_that_contradict_each_other_are_counted() -> None:
    X = np.round(8 * normal(16, 12))
    found = min_norm(X, normal(16, 1, seed=1)[:, 0])
    assert found.inconsistency is not None
    n = len(found.inconsistency.samples)
    assert n > 10
    assert f" and {n - 9} others" in found.message


def test_samples_without_features() -> None:
    X = normal(4, 6)
    gates = np.ones((4, 2))
    gates[2] = 0
    Y = normal(4, 1, seed=1)
    found = min_norm(X, Y[:, 0], gates=gates)
    assert found.status is INCONSISTENT
    check_proof(found, X, gates, Y, False)
    assert "sample 2 has no features" in found.message
    Y[2] = 0
    assert min_norm(X, Y[:, 0], gates=gates).status is OPTIMAL
    Y[2] = 1
    found = min_norm(X, Y[:, 0], gates=gates, intercept=True)
    assert found.status is OPTIMAL
    assert found.intercept == pytest.approx(1)


@pytest.mark.parametrize("D", [5, 80])
def test_noise_on_more_samples_than_features(D: int) -> None:
    """Few features: integers. Many: an interval for the value that the others imply."""
    X = normal(D + 30, D)
    Y = normal(D + 30, 1, seed=1)
    found = min_norm(X, Y[:, 0])
    assert found.status is INCONSISTENT
    assert found.inconsistency is not None
    if D == 5:
        check_proof(found, X, np.ones((len(X), 1)), Y, False)
    else:
        assert found.inconsistency.multipliers is None
        # Their best fit leaves what is no rounding.
        samples = found.inconsistency.samples
        left = np.linalg.lstsq(X[samples], Y[samples], rcond=None)[1]
        assert left[0] > 1e-6


@pytest.mark.parametrize(("D", "intercept"), [(5, True), (80, False)])
def test_values_that_fit_up_to_rounding(D: int, intercept: bool) -> None:
    X = normal(D + 30, D)
    truth = normal(D, 1, seed=1)
    Y = X @ truth + 2.0 * intercept
    found = min_norm(X, Y[:, 0], "l1", intercept=intercept)
    assert found.status is WITHIN_SLACK
    problem = interpolation_problem(X, Y, "l1", None, None, intercept)
    if D == 80:  # an interval for each further value, which holds what is given
        assert sort_equations(problem).inconsistency is None
    assert 0 < found.slack < 1e-12
    assert found.slack == found.residual
    np.testing.assert_allclose(found.coef[0], truth[:, 0], atol=1e-10)
    assert found.lower <= np.abs(truth).sum() * (1 + 1e-12)
    assert found.upper >= np.abs(truth).sum() * (1 - 1e-12)


def test_dependence_that_float64_does_not_hold() -> None:
    """Features of rank 6 but for rounding, and values that no six combinations fit."""
    X = normal(20, 6) @ normal(6, 60, seed=1)
    Y = normal(20, 1, seed=2)
    found = min_norm(X, Y[:, 0])
    assert found.status is NEARLY
    assert found.lower > 1e12
    assert found.upper == np.inf
    found = min_norm(X, X @ normal(60, 1, seed=3)[:, 0])
    assert found.status is WITHIN_SLACK


def test_the_right_inverse_bounds_the_smallest_singular_value() -> None:
    N = 30
    X = normal(N, 40)
    problem = interpolation_problem(X, normal(N, 2, seed=1), "l2", None, None, False)
    equations = sort_equations(problem)
    smallest = np.linalg.svd(equations.inverse.A, compute_uv=False)[-1]
    bound = 1.0 / equations.inverse.norm(40)
    assert bound <= smallest * (1 + 1e-12)
    assert bound >= smallest / (1.1 * np.sqrt(N))
    assert equations.inverse.defect < 1e-11


@pytest.mark.parametrize("change", ["B", "rank"])
def test_a_wrong_inverse_proves_nothing(change: str) -> None:
    X = normal(4, 6)
    problem = interpolation_problem(X, normal(4, 1, seed=1), "l2", None, None, False)
    inverse = sort_equations(problem).inverse
    wrong: Any
    if change == "B":
        wrong = replace(inverse, B=2.5 * inverse.B)
    else:
        A = inverse.A.copy()
        A[3] = A[0]
        wrong = replace(inverse, A=A)
    assert wrong.norm(6) == np.inf
