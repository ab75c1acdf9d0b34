"""Classifiers that train a network: what they build, how they train it, and what is kept."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score

import implicit_bias as ib
from implicit_bias.base.validation import Array
from implicit_bias.datasets import load_digits, make_toy
from implicit_bias.estimators import NetworkClassifier
from implicit_bias.networks import Network
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.configuration import OwnLoop
from implicit_bias.training.minibatch import TrainingDiverged

MOONS = make_toy("moons", 60, noise=0.05)
DIGITS = load_digits(classes=["all"]).take(np.arange(120))
NETWORKS: dict[str, NetworkClassifier] = {
    "gln-bias": ib.GLNClassifier(3, steps=60, learning_rate=0.3, readout_bias=True, random_state=0),
    "gln-local": ib.GLNClassifier(3, steps=60, learning_rate=0.3, rule="local", random_state=0),
    "relu-shared": ib.ReLUClassifier(12, steps=60, shared=True, random_state=0),
    "deep": ib.ReLUClassifier((6, 5), steps=200, random_state=0),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_learn_ten_digits(name: str) -> None:
    X, labels = DIGITS.X, np.array([*"abcdefghij"])[DIGITS.y]
    model = clone(NETWORKS[name]).fit(X, labels)
    assert model.score(X, labels) > 0.4
    assert model.history()[-1].loss < model.history()[0].loss
    assert model.history()[-1].error == np.mean(model.predict(X) != labels)
    decision = model.decision_function(X)
    shares = model.predict_proba(X)
    softmax = np.exp(decision) / np.exp(decision).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, softmax)
    assert model.predict(X).tolist() == model.classes_[shares.argmax(axis=1)].tolist()
    view = model.margin_view()
    if view is None:
        return
    problem = view.problem(X, model.signs(labels))
    assert problem.classes == 10
    if model.network_.readout_bias is None:
        np.testing.assert_allclose(problem.decision(view.coef), decision, rtol=1e-9, atol=1e-9)


def test_two_classes_have_one_output_and_probabilities() -> None:
    two = ib.GLNClassifier(3, steps=20, shared=True, random_state=0).fit(MOONS.X, MOONS.y)
    assert two.network_.classes is None
    f = two.decision_function(MOONS.X)
    np.testing.assert_allclose(two.predict_proba(MOONS.X)[:, 1], 1 / (1 + np.exp(-f)))
    with pytest.raises(AttributeError, match="predict_proba"):
        two.set_params(loss="exponential").predict_proba(MOONS.X)


def test_networks_and_svms_draw_the_same_contexts() -> None:
    svm = ib.GLNSVC(n_units=5, n_hyperplanes=2, random_state=3).fit(MOONS.X, MOONS.y)
    network = ib.GLNClassifier(5, 2, random_state=3, steps=1).fit(MOONS.X, MOONS.y)
    drawn = svm.architecture_.gating
    trained = network.gating()
    assert isinstance(drawn, HyperplaneContexts)
    assert isinstance(trained, HyperplaneContexts)
    np.testing.assert_array_equal(drawn.weights, trained.weights)
    np.testing.assert_array_equal(drawn.thresholds, trained.thresholds)


def test_a_gln_keeps_checkpoints_and_a_relu_network_has_one_rule() -> None:
    model = ib.GLNClassifier(2, steps=5, checkpoints=(0, 5), random_state=0).fit(MOONS.X, MOONS.y)
    assert set(model.checkpoints_) == {0, 5}
    np.testing.assert_array_equal(model.checkpoints_[5].coef(), model.network_.coef())
    assert not np.array_equal(model.checkpoints_[0].coef(), model.network_.coef())
    assert "rule" not in ib.ReLUClassifier().get_params()


@pytest.mark.slow
def test_svms_on_learned_gates_and_on_the_hidden_layer() -> None:
    """Scikit-learn un-fits what it clones: there the network is passed itself."""
    network = ib.ReLUClassifier(20, random_state=0, steps=2000).fit(MOONS.X, MOONS.y)
    learned = ib.GatedReLUSVC(gates=network, on_failure="raise").fit(MOONS.X, MOONS.y)
    gates = cast(Any, learned.architecture_.gating).weights
    np.testing.assert_array_equal(gates, cast(Any, network.network_.gating()).weights)
    activations = network.hidden_activations(MOONS.X)
    hidden = ib.HiddenLayerSVC(network).fit(MOONS.X, MOONS.y)
    explicit = ib.GatedSVC().fit(activations, MOONS.y)
    np.testing.assert_allclose(
        hidden.decision_function(MOONS.X), explicit.decision_function(activations), atol=1e-5
    )
    for model in (
        ib.GatedReLUSVC(gates=network.network_, C=10.0),
        ib.HiddenLayerSVC(network.network_, C=10.0),
    ):
        assert cross_val_score(model, MOONS.X, MOONS.y, cv=3).mean() > 0.8
    with pytest.raises(NotFittedError, match="network_"):
        clone(ib.HiddenLayerSVC(network)).fit(MOONS.X, MOONS.y)


@pytest.mark.usefixtures("ctrl_c")
def test_interrupted_training_says_so_and_is_kept() -> None:
    model = ib.GLNClassifier(2, steps=500, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"interrupted after \d+ of 500 steps"):
        model.fit(MOONS.X, MOONS.y)
    assert model.training_.interrupted
    assert 0 < model.n_iter_ < 500
    assert model.predict(MOONS.X).shape == (60,)


def test_steps_of_large_inputs_are_smaller() -> None:
    """And a step size of one's own that diverges is named beside the size of the inputs."""
    large = 300.0 * MOONS.X
    size = np.sqrt((large**2).sum(axis=1).mean())
    model = ib.GLNClassifier(5, steps=200, random_state=0).fit(large, MOONS.y)
    assert model.score(large, MOONS.y) > 0.7
    for X, expected in ((MOONS.X, 0.04), (large, 2.0 / size)):
        config: Any = model.set_params(steps=2).fit(X, MOONS.y).training_.config
        assert config.learning_rate == pytest.approx(expected)
    with pytest.raises(TrainingDiverged, match=f"norm of about {size:.3g}"):
        ib.GLNClassifier(5, steps=200, learning_rate=1e6, random_state=0).fit(large, MOONS.y)


def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        ib.ReLUClassifier(learning_rate=cast(Any, "fast")).fit(MOONS.X, MOONS.y)


# --- a loop of the user's own ------------------------------------------------------------------


def own_loop(network: Network, X: Array, y: Array) -> int:
    inputs, labels = network.prepare_samples(X, y)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(25):
        optimizer.zero_grad()
        torch.autograd.backward(torch.exp(-labels * network(*inputs)).mean())
        optimizer.step()
    return 25


def test_a_loop_of_your_own() -> None:
    model = ib.GLNClassifier(4, random_state=0).fit_by(MOONS.X, MOONS.y, own_loop)
    assert model.n_iter_ == 25
    assert model.training_.config == OwnLoop(steps=25)
    (point,) = model.history()
    assert point.min_margin == pytest.approx((MOONS.y * model.decision_function(MOONS.X)).min())
    assert point.norm == model.network_.norm()
