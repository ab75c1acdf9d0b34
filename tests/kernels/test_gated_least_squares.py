"""The kernel of many gates, its smallest eigenvalue, and the losses that a Gram matrix predicts."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from drawn import hard, normal, sphere
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels.least_squares import gated_gram


def test_limit_kernel_is_the_mean_over_filters() -> None:
    """Within five standard errors of a Monte Carlo mean, entry by entry, at any scale."""
    X = 3.0 * normal(6, 3)
    n_filters = 200_000
    gram = gated_gram(X, hard(n_filters, 3).gates(X)) / n_filters
    kappa = galu.limit_kernel(X)
    deviation = np.abs(X @ X.T) / 2 / math.sqrt(n_filters)
    assert (np.abs(gram - kappa) <= 5 * deviation).all()
    np.testing.assert_allclose(np.diag(kappa), np.sum(X**2, axis=1) / 2)


def test_limit_kernel_at_special_angles() -> None:
    X = np.array([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    expected = [0.5, 0.0, 0.0, 0.5 - 1 / 8, 0.0]  # opposite inputs share no filter
    np.testing.assert_allclose(galu.limit_kernel(X[:1], X)[0], expected, atol=1e-12)


def test_opposite_inputs() -> None:
    """A pair of opposite inputs shares no filter; up to D pairs that are independent do no harm."""
    X = sphere(4, 3)
    for pairs in (1, 2, 3):
        assert galu.smallest_eigenvalue(np.vstack([X, -X[:pairs]])) > 1e-4


def test_predicted_losses_are_the_linear_recursion() -> None:
    gram = galu.limit_kernel(sphere(8, 3))
    start = normal(8, seed=2)
    step = 1.5 / np.linalg.eigvalsh(gram)[-1]
    expected = []
    residual = start
    for _ in range(8):
        expected.append(np.mean(residual**2))
        residual = residual - step * gram @ residual
    found = galu.predicted_losses(gram, start, step_size=step, steps=np.arange(8))
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_gradient_flow_is_the_solution_of_its_equation() -> None:
    gram = galu.limit_kernel(sphere(4, 3))
    start = np.array([1.0, -2.0, 0.5, 1.0])
    times = np.array([0.0, 0.3, 2.0])
    exact = solve_ivp(lambda _, r: -gram @ r, (0, 2.0), start, t_eval=times, rtol=1e-10, atol=1e-12)
    found = galu.flow_losses(gram, start, times=times)
    np.testing.assert_allclose(found, (exact.y**2).mean(axis=0), rtol=1e-7)


def test_bad_use_is_refused() -> None:
    gram = np.eye(3)
    start = np.ones(3)
    with pytest.raises(ValueError, match="no rows"):
        galu.smallest_eigenvalue(np.zeros((0, 3)))
    with pytest.raises(ValueError, match="symmetric"):
        galu.modes(np.triu(np.ones((3, 3))), start)
    with pytest.raises(ValueError, match="times"):
        galu.flow_losses(gram, start, times=-np.arange(3.0))
    with pytest.raises(ValueError, match="step_size"):
        galu.predicted_losses(gram, start, step_size=2.1, steps=np.arange(3))
