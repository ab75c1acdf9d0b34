"""GaLU networks in closed form keep scikit-learn's contract, and are the least squares they say."""

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from implicit_bias import GaLUClassifier, GaLURegressor
from implicit_bias.base.validation import Array


def data(n: int = 60, d: int = 3, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.abs(X[:, 0]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("gates", [">=", ">", "sigmoid", np.tanh])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("n_units", "ridge"), [(4, 0.0), (40, 0.0), (4, 0.5), (40, 0.5)])
def test_regressor_by_brute_force(
    gates: object, fit_intercept: bool, n_units: int, ridge: float
) -> None:
    """Against the normal equations of features written out column by column, and new inputs."""
    X, y = data()
    new = data(seed=1)[0]
    model = GaLURegressor(
        n_units,
        gates=gates,  # type: ignore[arg-type]
        fit_intercept=fit_intercept,
        ridge=ridge,
        random_state=3,
    ).fit(X, y)
    filters = model.gating_.weights

    def features(inputs: Array) -> Array:
        projections = inputs @ filters.T
        rule: dict[object, Array] = {
            ">=": np.where(projections >= 0, 1.0, 0.0),
            ">": np.where(projections > 0, 1.0, 0.0),
            "sigmoid": np.asarray(1 / (1 + np.exp(-projections))),
            np.tanh: np.asarray(np.tanh(projections)),
        }
        z = rule[gates]
        extended: Array = np.column_stack([inputs, np.ones(len(inputs))])
        linear = extended if fit_intercept else inputs
        columns = [z[:, h] * linear[:, i] for h in range(n_units) for i in range(linear.shape[1])]
        return np.stack(columns, axis=1)

    phi = features(X)
    if ridge:
        weights = np.linalg.solve(phi.T @ phi + ridge * np.eye(phi.shape[1]), phi.T @ y)
    else:
        weights = np.linalg.pinv(phi, rcond=1e-6) @ y
    # Without a ridge the Gram matrix squares the condition number, up to 1e6 here.
    np.testing.assert_allclose(model.predict(new), features(new) @ weights, rtol=1e-4, atol=1e-4)


def test_several_targets_are_fitted_one_by_one() -> None:
    X, y = data()
    Y = np.column_stack([y, y**2])
    together = GaLURegressor(5, random_state=0).fit(X, Y)
    assert together.coef_.shape == (2, 5, 4)
    for p in range(2):
        alone = GaLURegressor(5, random_state=0).fit(X, Y[:, p])
        np.testing.assert_allclose(together.predict(X)[:, p], alone.predict(X), atol=1e-9)


def test_classifier_of_three_classes() -> None:
    X, _ = data(200)
    labels = np.array(["low", "middle", "top"])[np.digitize(np.abs(X[:, 0]), [0.5, 1.2])]
    model = GaLUClassifier(30, ridge=1.0, random_state=0).fit(X, labels)
    assert model.decision_function(X).shape == (200, 3)
    assert model.score(X, labels) > 0.85
    two = GaLUClassifier(30, ridge=1.0, random_state=0).fit(X, labels == "top")
    assert two.decision_function(X).shape == (200,)
    assert cross_val_score(two, X, labels == "top").mean() > 0.8


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="one class"):
        GaLUClassifier().fit(np.ones((3, 2)), ["a", "a", "a"])
