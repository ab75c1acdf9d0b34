"""GaLU networks in closed form keep scikit-learn's contract, and are the least squares they say."""

from typing import Any

import numpy as np
import pytest

from implicit_bias import GaLUClassifier, GaLURegressor
from implicit_bias.base.validation import Array


def data(n: int = 60, d: int = 3, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.abs(X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("gates", "n_units", "ridge", "fit_intercept"),
    [
        (">=", 4, 0.0, True),
        (">", 40, 0.0, False),
        ("sigmoid", 40, 0.5, True),
        (np.tanh, 4, 0.5, False),
    ],
)
def test_regressor_by_brute_force(
    gates: Any, n_units: int, ridge: float, fit_intercept: bool
) -> None:
    """Against the normal equations of features written out column by column, and new inputs."""
    X, y = data()
    new = data(seed=1)[0]
    options: dict[str, Any] = {"gates": gates, "fit_intercept": fit_intercept, "ridge": ridge}
    model = GaLURegressor(n_units, random_state=3, **options).fit(X, y)
    rules: dict[object, Any] = {
        ">=": lambda p: (p >= 0).astype(float),
        ">": lambda p: (p > 0).astype(float),
        "sigmoid": lambda p: 1 / (1 + np.exp(-p)),
        np.tanh: np.tanh,
    }

    def features(inputs: Array) -> Array:
        z = rules[gates](inputs @ model.gating_.weights.T)
        linear = inputs
        if fit_intercept:
            linear = np.column_stack([inputs, np.ones(len(inputs))])
        columns = [z[:, h] * linear[:, i] for h in range(n_units) for i in range(linear.shape[1])]
        return np.stack(columns, axis=1)

    phi = features(X)
    if ridge:
        weights = np.linalg.solve(phi.T @ phi + ridge * np.eye(phi.shape[1]), phi.T @ y)
    else:
        weights = np.linalg.pinv(phi, rcond=1e-6) @ y
    # Without a ridge the Gram matrix squares the condition number, up to 1e6 here.
    np.testing.assert_allclose(model.predict(new), features(new) @ weights, rtol=1e-4, atol=1e-4)


def test_classifier_is_least_squares_of_one_against_all_others() -> None:
    X, _ = data(200)
    labels = np.array(["low", "middle", "top"])[np.digitize(np.abs(X[:, 0]), [0.5, 1.2])]
    model = GaLUClassifier(30, ridge=1.0, random_state=0).fit(X, labels)
    targets = np.where(labels[:, None] == model.classes_, 1.0, -1.0)
    squares = GaLURegressor(30, ridge=1.0, random_state=0).fit(X, targets).predict(X)
    np.testing.assert_allclose(model.decision_function(X), squares, atol=1e-9)
    assert model.score(X, labels) > 0.85
    two = GaLUClassifier(30, ridge=1.0, random_state=0).fit(X, labels == "top")
    np.testing.assert_allclose(two.decision_function(X), squares[:, 2], atol=1e-9)
