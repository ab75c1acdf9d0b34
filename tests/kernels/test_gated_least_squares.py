"""Least squares on gated features, the kernel of many gates, and losses that it predicts."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from drawn import hard, normal, sphere
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels import least_squares as fitted
from implicit_bias.kernels.dual_kernels import arc_cosine_kernel
from implicit_bias.problem import gated_linear
from implicit_bias.problem.gating import UnitGates

M, D, K = 60, 4, 7


def features(X: Array, gates: Array) -> Array:
    """Phi (m, k D), one column at a time."""
    columns = [gates[:, h] * X[:, i] for h in range(gates.shape[1]) for i in range(X.shape[1])]
    return np.stack(columns, axis=1)


def test_gram_is_of_the_features() -> None:
    X, gates = normal(M, D), normal(M, K, seed=1)
    phi = features(X, gates)
    np.testing.assert_array_equal(fitted.gated_features(X, gates), phi)
    np.testing.assert_allclose(fitted.gated_gram(X, gates), phi @ phi.T, atol=1e-12)
    sparse = sp.csr_array(np.where(gates > 0, gates, 0.0))
    np.testing.assert_allclose(fitted.gated_gram(X, sparse), fitted.gated_gram(X, sparse.toarray()))


@pytest.mark.parametrize("firing", [">", "sigmoid", np.tanh])
@pytest.mark.parametrize("n_filters", [1, 7, 15, 40])
def test_least_squares_is_the_pseudo_inverse(firing: object, n_filters: int) -> None:
    X, y = normal(M, D), normal(M, seed=2)
    gating = UnitGates(normal(n_filters, D, seed=1), np.zeros(n_filters), firing)  # type: ignore[arg-type]
    gates = gating.gates(X)
    found = fitted.least_squares(X, gates, y)
    phi = features(X, gates)
    expected = np.linalg.pinv(phi, rcond=1e-7) @ y
    # The Gram matrix squares the condition number, up to 1e5 here.
    np.testing.assert_allclose(found.coef.reshape(-1), expected, rtol=1e-5, atol=1e-6)
    assert found.rank == np.linalg.matrix_rank(phi) == min(M, n_filters * D)
    decision = gated_linear(X, gates, found.coef)
    assert found.loss == pytest.approx(np.mean((y - decision) ** 2), abs=1e-10)


def test_dependent_features() -> None:
    """A filter twice, and an input that repeats another: minimum norm shares the weight."""
    X, y = normal(M, D), normal(M, seed=2)
    X[:, 3] = X[:, 0]
    gates = hard(3).gates(X)
    twice = np.hstack([gates, gates])
    one, two = fitted.least_squares(X, gates, y), fitted.least_squares(X, twice, y)
    assert one.rank == two.rank == 9  # 3 filters, 3 inputs
    np.testing.assert_allclose(one.coef[:, 0], one.coef[:, 3], atol=1e-10)
    np.testing.assert_allclose(two.coef, np.vstack([one.coef, one.coef]) / 2, atol=1e-10)
    assert two.loss == pytest.approx(one.loss)


@pytest.mark.parametrize("of", [sp.csr_array, np.ndarray.tolist])
@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_gates_of_any_type(of: Callable[[NDArray[Any]], Any], dtype: type) -> None:
    """Truth values and bytes, of more units than a byte counts, both ways to the solution."""
    for n_samples, n_units in ((M, 3), (4, 300)):
        X, y = normal(n_samples, D), normal(n_samples, seed=2)
        gates = hard(n_units).gates(X)
        expected, found = (
            fitted.least_squares(X, given, y) for given in (gates, of(gates.astype(dtype)))
        )
        np.testing.assert_allclose(found.coef, expected.coef, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e200])
def test_squares_out_of_range(scale: float) -> None:
    with pytest.raises(ValueError, match="of X .* over- or underflow"):
        fitted.least_squares(scale * normal(4, D), np.ones((4, K)), np.ones(4))
    with pytest.raises(ValueError, match="of y over- or underflow"):
        fitted.least_squares(normal(4, D), np.ones((4, K)), scale * np.ones(4))


def test_all_gates_closed() -> None:
    found = fitted.least_squares(normal(M, D), np.zeros((M, K)), np.ones(M))
    assert (found.rank, found.loss) == (0, 1.0)
    assert not found.coef.any()


def test_decision() -> None:
    X, y, gates = normal(M, D), normal(M, seed=2), hard(K).gates(normal(M, D))
    fit = fitted.least_squares(X, gates, y)
    np.testing.assert_array_equal(fit.decision(X, gates), gated_linear(X, gates, fit.coef))
    assert np.mean((fit.decision(X, gates) - y) ** 2) == pytest.approx(fit.loss)
    np.testing.assert_array_equal(fit.decision(X, gates.tolist()), fit.decision(X, gates))
    for wrong, said in ((gates[1:], "rows"), (np.nan * gates, "NaN"), (gates[:, 1:], "unit")):
        with pytest.raises(ValueError, match=said):
            fit.decision(X, wrong)
    with pytest.raises(ValueError, match="features"):
        fit.decision(X[:, 1:], gates)


@pytest.mark.parametrize("n_units", [3, 40])
def test_ridge(n_units: int) -> None:
    """Both ways to the solution, by few features and by few samples."""
    X, Y, gates = normal(M, D), normal(M, 2, seed=2), hard(n_units).gates(normal(M, D))
    phi = features(X, gates)
    expected = np.linalg.solve(phi.T @ phi + 0.3 * np.eye(phi.shape[1]), phi.T @ Y)
    fit = fitted.least_squares(X, gates, Y, ridge=0.3)
    np.testing.assert_allclose(fit.coef.reshape(2, -1).T, expected, atol=1e-10)
    assert fit.loss == pytest.approx(np.mean((Y - phi @ expected) ** 2))
    with pytest.raises(ValueError, match="ridge"):
        fitted.least_squares(X, gates, Y, ridge=-1.0)


def test_rank_with_closed_gates() -> None:
    """Hard gates that are few leave out a sample whose gates are all closed."""
    X = normal(200, 100)
    gates = hard(3, 100).gates(X)
    silent = int(np.sum(~gates.any(axis=1)))
    assert silent > 0
    assert fitted.least_squares(X, gates, np.ones(200)).rank == 200 - silent


def test_limit_kernel_is_the_mean_over_filters() -> None:
    """Within five standard errors of a Monte Carlo mean, entry by entry, at any scale."""
    X = 3.0 * normal(6, 3)
    n_filters = 200_000
    gram = fitted.gated_gram(X, hard(n_filters, 3).gates(X)) / n_filters
    kappa = galu.limit_kernel(X)
    spread = np.abs(X @ X.T) / 2 / math.sqrt(n_filters)
    assert (np.abs(gram - kappa) <= 5 * spread).all()
    np.testing.assert_allclose(np.diag(kappa), np.sum(X**2, axis=1) / 2)


def test_limit_kernel_at_special_angles() -> None:
    X = np.array([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    expected = [0.5, 0.0, 0.0, 0.5 - 1 / 8, 0.0]  # opposite inputs share no filter
    np.testing.assert_allclose(galu.limit_kernel(X[:1], X)[0], expected, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_inputs_without_squares_have_no_limit_kernel(scale: float) -> None:
    with pytest.raises(ValueError, match="squares.*scale X"):
        galu.limit_kernel(scale * np.eye(2), np.eye(2))
    with pytest.raises(ValueError, match="squares.*scale X"):
        galu.limit_kernel(np.eye(2), scale * np.eye(2))


@pytest.mark.parametrize("theta", [4, [0.0, -1.0], math.nan])
def test_what_is_no_angle_is_refused(theta: object) -> None:
    with pytest.raises(ValueError, match=r"angles in \[0, pi\]"):
        arc_cosine_kernel(theta)  # type: ignore[arg-type]


def test_convergence_rate_of_finite_gates() -> None:
    """The mean square distance is sum p (1 - p) <x, x'>^2 / k."""
    X = sphere(10, 4)
    kappa, inner = galu.limit_kernel(X), X @ X.T
    both = kappa / inner
    for k in (10, 1000):
        squares = [
            np.sum((fitted.gated_gram(X, hard(k, 4, seed).gates(X)) / k - kappa) ** 2)
            for seed in range(200)
        ]
        assert np.mean(squares) == pytest.approx(np.sum(both * (1 - both) * inner**2) / k, rel=0.15)


def test_opposite_inputs() -> None:
    """A pair of opposite inputs shares no filter; up to D pairs that are independent do no harm."""
    X = sphere(4, 3)
    for pairs in (1, 2, 3):
        assert galu.smallest_eigenvalue(np.vstack([X, -X[:pairs]])) > 1e-4
    np.testing.assert_allclose(galu.limit_kernel(np.vstack([X[:1], -X[:1]])), np.eye(2) / 2)


def test_predicted_losses_are_the_linear_recursion() -> None:
    gram = galu.limit_kernel(sphere(8, 3))
    residual = normal(8, seed=2)
    step = 1.5 / np.linalg.eigvalsh(gram)[-1]
    steps = np.array([0, 1, 2, 7])
    expected = [
        np.mean((np.linalg.matrix_power(np.eye(8) - step * gram, t) @ residual) ** 2) for t in steps
    ]
    predicted = galu.predicted_losses(gram, residual, step_size=step, steps=steps)
    np.testing.assert_allclose(predicted, expected, rtol=1e-8)
    with pytest.raises(ValueError, match=r"step_size must be in \(0, 2 / l_max\)"):
        galu.predicted_losses(gram, residual, step_size=1.4 * step, steps=steps)
    with pytest.raises(ValueError, match="gram is not symmetric"):
        galu.modes(np.triu(np.ones((3, 3))), np.ones(3))
    with pytest.raises(ValueError, match="no rows"):
        galu.smallest_eigenvalue(np.zeros((0, 3)))
    with pytest.raises(ValueError, match=r"residual must have shape \(8,\), got \(3,\)"):
        galu.predicted_losses(gram, residual[:3], step_size=step, steps=steps)


def test_gradient_flow_is_the_solution_of_its_equation() -> None:
    gram = galu.limit_kernel(sphere(4, 3))
    start, times = np.array([1.0, -2.0, 0.5, 1.0]), np.array([0.0, 0.3, 2.0])
    exact = solve_ivp(lambda _, r: -gram @ r, (0, 2.0), start, t_eval=times, rtol=1e-10, atol=1e-12)
    found = galu.flow_losses(gram, start, times=times)
    np.testing.assert_allclose(found, (exact.y**2).mean(axis=0), rtol=1e-7)
    steps = np.array([0, 30000, 200000])
    descent = galu.predicted_losses(gram, start, step_size=1e-5, steps=steps)
    np.testing.assert_allclose(descent, found, rtol=1e-4)
    with pytest.raises(ValueError, match="residual"):
        galu.flow_losses(gram, start[:2], times=times)
    with pytest.raises(ValueError, match="times must be at least 0"):
        galu.flow_losses(gram, start, times=-times)
    with pytest.raises(ValueError, match="steps must be at least 0"):
        galu.predicted_losses(gram, start, step_size=1e-5, steps=-steps)
