"""Local learning: every unit of a GLN is an online logistic regression of its own."""

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from implicit_bias.estimators.networks import GLNClassifier
from implicit_bias.networks import GLN, FrozenGateReLU, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.minibatch import TrainingConfig, shuffled_batches, train
from training.samples import X, Y

LOCAL = TrainingConfig(steps=40, batch_size=1, learning_rate=0.1, rule="local")


def gating(n_units: int, seed: int = 0) -> HyperplaneContexts:
    return HyperplaneContexts.random(X, n_units, 1, random_state=seed)


def test_an_online_epoch_is_geometric_mixing() -> None:
    """The update of Veness et al., with probabilities and logits, one sample after another."""
    network = GLN([gating(3), gating(2, seed=1)], seed=1)
    layers = [*network.hidden_weights, network.readout]
    by_hand = [weights.detach().numpy().copy() for weights in layers]
    contexts = [layer.contexts(X) for layer in network.gatings]
    contexts.append(np.zeros((len(X), 1), dtype=np.int64))  # the readout has one context
    train(network, X, Y, LOCAL)

    order = [
        int(np.asarray(batch)[0]) for batch in islice(shuffled_batches(len(X), LOCAL), LOCAL.steps)
    ]
    assert sorted(order) == list(range(40))
    for step, n in enumerate(order):
        target, previous = (Y[n] + 1) / 2, expit(X[n])
        for weights, chosen in zip(by_hand, contexts, strict=True):
            n_units = chosen.shape[1]
            rows = np.arange(n_units) * (len(weights) // n_units) + chosen[n]
            inputs = logit(previous)
            previous = expit(weights[rows] @ inputs)
            weights[rows] -= LOCAL.step_size(step) * np.outer(previous - target, inputs)

    for trained, expected in zip(layers, by_hand, strict=True):
        np.testing.assert_allclose(trained.detach().numpy(), expected, rtol=1e-8, atol=1e-10)


def test_a_unit_is_a_logistic_regression_of_its_own_context() -> None:
    network = GLN([gating(2)], seed=1)
    weights = network.hidden_weights[0].detach().numpy()[1].copy()  # unit 0, context 1
    mine = network.gatings[0].contexts(X)[:, 0] == 1
    config = replace(LOCAL, batch_size=None, momentum=0.5)
    velocity = np.zeros_like(weights)
    for step in range(config.steps):
        errors = Y[mine] * expit(-Y[mine] * (X[mine] @ weights))
        velocity = 0.5 * velocity + errors @ X[mine] / len(X)
        weights += config.step_size(step) * velocity
    train(network, X, Y, config)
    np.testing.assert_allclose(network.hidden_weights[0].detach()[1], weights, rtol=1e-10)


def test_with_classes_each_unit_descends_its_own_cross_entropy() -> None:
    network, labels = GLN([gating(3)], classes=4, seed=1), torch.arange(len(Y)) % 4
    (hidden,) = network.hidden_layers(*network.prepare(X))
    units = hidden.reshape(len(X), 4, 3).unbind(2)  # unit h of all networks together
    losses = [torch.nn.functional.cross_entropy(unit, labels) for unit in units]
    (slope,) = torch.autograd.grad(sum(losses), network.hidden_weights[0])  # type: ignore[arg-type]
    before = network.hidden_weights[0].detach().clone()
    config = replace(LOCAL, steps=1, batch_size=None, decay_at=1.0, loss="cross-entropy")
    train(network, X, labels.numpy(), config)
    expected = before - config.step_size(0) * slope
    torch.testing.assert_close(network.hidden_weights[0].detach(), expected)


def test_units_with_trained_gates_cannot_learn_locally() -> None:
    network = ReLUNetwork(X.shape[1], [4])
    with pytest.raises(ValueError, match="GLN"):
        train(network, X, Y, LOCAL)
    train(FrozenGateReLU(network), X, Y, LOCAL)


def test_the_classifier_passes_the_rule_on() -> None:
    same: Any = {"steps": 40, "batch_size": 1, "learning_rate": 0.1, "random_state": 0}
    models = [GLNClassifier(4, **same, rule="local").fit(X, Y), GLNClassifier(4, **same).fit(X, Y)]
    configs: list[Any] = [model.training_.config for model in models]
    assert [config.rule for config in configs] == ["local", "gradient"]
    local, by_gradient = (model.decision_function(X) for model in models)
    assert not np.allclose(local, by_gradient)
    with pytest.raises(ValueError, match="rule"):
        GLNClassifier(rule="hebb").fit(X, Y)  # type: ignore[arg-type]
