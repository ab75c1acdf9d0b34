"""Bounds of Fiat et al. (2019) and (2018), as they are printed; `constants` has what they bound."""

import math

import numpy as np
import pytest

from benchmarks.fiat2019 import theorems_3_to_5 as bounds
from drawn import normal
from implicit_bias.base.validation import Array
from implicit_bias.datasets.parities import cube
from implicit_bias.kernels.gradient_gram import normalise


def gates_of(X: Array, U: Array) -> Array:
    return (X @ U.T >= 0).astype(float)


# --- theorem 3 -------------------------------------------------------------------------------


def test_constants_of_theorem_3() -> None:
    width = bounds.interpolation_width(50, norm=2.0, eigenvalue=0.25, spectral=3.0, failure=0.1)
    assert width == pytest.approx((50 / (4 * 0.25) + 1) ** 2 * 32 * 9 / 0.0625 * math.log(500))
    risk = bounds.risk_bound(50, norm=2.0, failure=0.1)
    expected = 8 * math.log(50) ** 3 + (8 + math.sqrt(2) * 2) * math.log(10)
    assert risk == pytest.approx(expected / 50)
    assert bounds.kernel_rademacher(2.0, 50) == pytest.approx(2 * math.sqrt(2 / 50))
    assert bounds.inverse_deviation(3.0, 0.25) == pytest.approx(1 / (2 * 0.25))
    bound = bounds.interpolant_norm_bound(np.diag([0.5, 2.0]), np.array([1.0, -2.0]), 3.0)
    assert bound == pytest.approx(1 / 0.5 + 4 / 2.0 + 2 / (2 * 0.5))


# --- linear predictors -----------------------------------------------------------------------


def test_rademacher_bounds_by_all_signs() -> None:
    """E sup_{||w||_p <= B} 1/m sum s_i <w, x_i>: the dual norm of the mean, over all signs."""
    X, B = normal(10, 4), 1.7
    sums = cube(10) @ X / 10
    two = B * np.mean(np.linalg.norm(sums, axis=1))
    one = B * np.mean(np.abs(sums).max(axis=1))
    assert two <= bounds.linear_rademacher(X, B, p=2)
    assert one <= bounds.linear_rademacher(X, B, p=1)
    largest = np.linalg.norm(X, axis=1).max()
    assert bounds.linear_rademacher(X, B, p=2) == pytest.approx(math.sqrt(B**2 * largest**2 / 10))
    entry = np.abs(X).max()
    expected = math.sqrt(2 * math.log(8) * B**2 * entry**2 / 10)
    assert bounds.linear_rademacher(X, B, p=1) == pytest.approx(expected)


def test_two_samples_more_than_features() -> None:
    """Small training loss with signal and without, a test loss of s^2 (1 + d) alike."""
    assert bounds.linear_regression_losses(12, 10, 0.1) == pytest.approx((2 * 0.01 / 12, 0.11))


# --- theorem 4 -------------------------------------------------------------------------------


def test_largest_output_is_no_smaller_than_any() -> None:
    W, a = normal(5, 3), normal(5, seed=1)
    X = normalise(normal(2000, 3, seed=2))
    for seed in range(5):
        outputs = (gates_of(X, normal(5, 3, seed=seed)) * (X @ W.T)) @ a / math.sqrt(5)
        assert np.abs(outputs).max() <= bounds.largest_output(W, a)


# --- theorem 5 -------------------------------------------------------------------------------


def test_constants_of_theorem_5() -> None:
    d, eps, delta = 20, 1.0, 0.05
    width = bounds.relu_approximation_width(d, eps, delta)
    expected = math.pi / (math.sqrt(6) * d) * (math.log(40) + d * math.log(3))
    assert width == math.ceil(expected)
    change = bounds.gate_change_bound(d, eps)
    assert change == pytest.approx(5 * math.sqrt(math.sqrt(6) * d) / math.sqrt(2 * math.pi))
    printed = bounds.relu_approximation_error(d, eps, largest=2.0, n_units=9, printed=True)
    inside = 5 * math.sqrt(3 * d) * eps / math.sqrt(2 * math.pi)
    assert printed == pytest.approx(2 * math.sqrt(inside))
    corrected = bounds.relu_approximation_error(d, eps, largest=2.0, n_units=9)
    assert corrected == pytest.approx(3 * printed)
    with pytest.raises(ValueError, match="theorem 5 needs"):
        bounds.relu_approximation_width(3, 0.1, delta)


def test_norms_of_filters() -> None:
    """Slip (b): the printed B fails for large d; B^2 = 4.51 d holds for all, by exact tails."""
    assert pytest.approx(4.505, abs=1e-3) == bounds.NORM_SQUARE
    dimensions = (1, 2, 5, 20, 100, 300)
    printed = [bounds.filter_norm_failure(d, bounds.PRINTED_NORM_SQUARE) for d in dimensions]
    larger = [bounds.filter_norm_failure(d, bounds.NORM_SQUARE) for d in dimensions]
    assert any(p > math.exp(-d) for p, d in zip(printed, dimensions, strict=True))
    assert printed[-1] > math.exp(-300)
    assert all(p <= math.exp(-d) for p, d in zip(larger, dimensions, strict=True))
    norms = np.sum(normal(20_000, 3) ** 2, axis=1)
    assert bounds.filter_norm_failure(3, 2.0) == pytest.approx(np.mean(norms >= 6), abs=0.01)
