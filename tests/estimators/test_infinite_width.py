"""The infinitely wide network keeps scikit-learn's contract, and is the optimum that it says."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from implicit_bias import InfiniteWidthSVC, SolveError, Status
from implicit_bias.datasets import make_toy
from implicit_bias.infinite_width import Activation, max_margin

MOONS = make_toy("moons", 40, noise=0.05)
X, Y = MOONS.X[:, :2], MOONS.y


@pytest.mark.parametrize(
    ("C", "activation", "low", "high"),
    [(0.5, "relu", 0.0, 1.0), (np.inf, (0.5, 2.0), 0.5, 2.0)],
    ids=["relu-soft", "slopes-hard"],
)
def test_two_classes(C: float, activation: Activation, low: float, high: float) -> None:
    """The network has the norm that the solver certifies, and decides as its units say."""
    model = InfiniteWidthSVC(C, activation).fit(X, np.where(Y > 0, "b", "a"))
    inputs = np.column_stack([X, np.ones(len(X))])
    expected = max_margin(inputs, Y, C, activation=activation)
    assert model.solution_.status is Status.OPTIMAL
    assert model.solution_.certificate.upper == pytest.approx(expected.certificate.upper, rel=1e-5)
    products = inputs @ model.directions_.T
    decision = np.where(products > 0, high, low) * products @ model.coef_
    np.testing.assert_allclose(model.decision_function(X), decision, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), np.where(decision > 0, "b", "a"))
    assert np.isin(np.flatnonzero(Y * decision < 1 - 1e-3), model.support_).all()


def test_more_classes() -> None:
    inputs, labels = [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], ["a", "a", "b", "c"]
    model = InfiniteWidthSVC(fit_intercept=False).fit(inputs, labels)
    expected = max_margin(inputs, [0, 0, 1, 2]).certificate
    assert model.predict(inputs).tolist() == labels
    assert model.support_.tolist() == [0, 1, 2, 3]
    assert model.coef_.shape == (len(model.directions_), 3)
    assert model.solution_.certificate.upper == pytest.approx(expected.upper, rel=1e-5)


def test_an_input_with_two_labels() -> None:
    """The hard margin does not exist, and the soft one does."""
    inputs, labels = [[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]], ["a", "b", "a"]
    hard = InfiniteWidthSVC()
    with pytest.raises(SolveError, match="finite C") as raised:
        hard.fit(inputs, labels)
    assert raised.value.solution.status is Status.NOT_SEPARABLE
    soft = clone(hard).set_params(C=1.0).fit(inputs, labels)
    assert soft.solution_.status is Status.OPTIMAL


@pytest.mark.slow
def test_bounds_that_do_not_meet_are_told() -> None:
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(8, 4)), np.repeat(["a", "b"], 4)
    model = InfiniteWidthSVC(random_state=0, max_rounds=2)
    with pytest.warns(ConvergenceWarning, match="iteration limit"):
        model.fit(inputs, labels)
    assert model.score(inputs, labels) == 1.0
