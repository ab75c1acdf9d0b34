"""Least squares on gated features: the pseudo-inverse, ridge, and ranks that are not full."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from drawn import hard, normal
from implicit_bias.base.validation import Array
from implicit_bias.kernels.least_squares import gated_features, gated_gram, least_squares
from implicit_bias.problem import decision
from implicit_bias.problem.gating import UnitGates

M, D, K = 60, 4, 7


def features(X: Array, gates: Array) -> Array:
    """Phi (m, k D), one column at a time."""
    columns = []
    for h in range(gates.shape[1]):
        for i in range(X.shape[1]):
            columns.append(gates[:, h] * X[:, i])
    return np.stack(columns, axis=1)


def test_gram_is_of_the_features() -> None:
    X = normal(M, D)
    gates = normal(M, K, seed=1)
    phi = features(X, gates)
    np.testing.assert_array_equal(gated_features(X, gates), phi)
    np.testing.assert_allclose(gated_gram(X, gates), phi @ phi.T, atol=1e-12)
    sparse = sp.csr_array(np.where(gates > 0, gates, 0.0))
    np.testing.assert_allclose(gated_gram(X, sparse), gated_gram(X, sparse.toarray()))


@pytest.mark.parametrize(("firing", "n_filters"), [(">", 7), ("sigmoid", 15), (np.tanh, 40)])
def test_least_squares_is_the_pseudo_inverse(firing: Any, n_filters: int) -> None:
    X = normal(M, D)
    y = normal(M, seed=2)
    gates = UnitGates(normal(n_filters, D, seed=1), np.zeros(n_filters), firing).gates(X)
    found = least_squares(X, gates, y)
    phi = features(X, gates)
    expected = np.linalg.pinv(phi, rcond=1e-7) @ y
    # The Gram matrix squares the condition number, up to 1e5 here.
    np.testing.assert_allclose(found.coef.reshape(-1), expected, rtol=1e-5, atol=1e-6)
    assert found.rank == np.linalg.matrix_rank(phi) == min(M, n_filters * D)
    outputs = decision(X, gates, found.coef)
    np.testing.assert_array_equal(found.decision(X, gates), outputs)
    assert found.loss == pytest.approx(np.mean((y - outputs) ** 2), abs=1e-10)


@pytest.mark.parametrize("n_units", [3, 40])
def test_ridge_and_several_outputs(n_units: int) -> None:
    """Both ways to the solution, by few features and by few samples."""
    X = normal(M, D)
    Y = normal(M, 2, seed=2)
    gates = hard(n_units).gates(X)
    phi = features(X, gates)
    expected = np.linalg.solve(phi.T @ phi + 0.3 * np.eye(phi.shape[1]), phi.T @ Y)
    fit = least_squares(X, gates, Y, ridge=0.3)
    np.testing.assert_allclose(fit.coef.reshape(2, -1).T, expected, atol=1e-10)
    assert fit.loss == pytest.approx(np.mean((Y - phi @ expected) ** 2))


def test_dependent_features() -> None:
    """A filter twice, and an input that repeats another: minimum norm shares the weight."""
    X = normal(M, D)
    X[:, 3] = X[:, 0]
    y = normal(M, seed=2)
    gates = hard(3).gates(X)
    one = least_squares(X, gates, y)
    two = least_squares(X, np.hstack([gates, gates]), y)
    assert one.rank == two.rank == 9  # 3 filters, 3 inputs
    np.testing.assert_allclose(one.coef[:, 0], one.coef[:, 3], atol=1e-10)
    np.testing.assert_allclose(two.coef, np.vstack([one.coef, one.coef]) / 2, atol=1e-10)
    assert two.loss == pytest.approx(one.loss)


@pytest.mark.parametrize(("n_samples", "n_units"), [(M, 3), (4, 300)])
def test_gates_are_truth_values_bytes_or_sparse(n_samples: int, n_units: int) -> None:
    """Of more units than a byte counts, too: their products are no bytes."""
    X = normal(n_samples, D)
    y = normal(n_samples, seed=2)
    gates = hard(n_units).gates(X)
    expected = least_squares(X, gates, y).coef
    for given in (gates.astype(bool), gates.astype(np.uint8), sp.csr_array(gates.astype(bool))):
        np.testing.assert_allclose(least_squares(X, given, y).coef, expected, atol=1e-10)


def test_bad_use_is_refused() -> None:
    with pytest.raises(ValueError, match="ridge"):
        least_squares(normal(M, D), np.ones((M, K)), np.ones(M), ridge=-1.0)
