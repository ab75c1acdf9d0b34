"""Training with many classes: cross-entropy, by network and by unit."""

import numpy as np
import pytest
import torch

from implicit_bias.networks import GLN, Network, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.runs.beside_svm import train_beside_svm
from implicit_bias.training.configuration import LimitConfig, Rule, TrainingConfig
from implicit_bias.training.minibatch import train

K, D, N = 4, 3, 24
X = np.random.default_rng(0).normal(size=(N, D))
Y = np.arange(N) % K
CONTEXTS = HyperplaneContexts.random(X, 3, 1, random_state=0)


def one_step(network: Network, rule: Rule = "gradient") -> list[torch.Tensor]:
    """Weights after one step of full-batch descent with step size 1."""
    config = TrainingConfig(
        steps=1, batch_size=None, learning_rate=1.0, decay_at=1.0, loss="cross-entropy", rule=rule
    )
    train(network, X, Y, config)
    return [weights.detach().clone() for weights in network.parameters()]


@pytest.mark.parametrize("shared", [False, True])
def test_a_step_descends_torchs_cross_entropy(shared: bool) -> None:
    network = GLN([CONTEXTS], classes=K, shared=shared, seed=1)
    labels = torch.tensor(Y)
    loss = torch.nn.functional.cross_entropy(network(*network.prepare(X)), labels)
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    expected = [w.detach() - g for w, g in zip(network.parameters(), gradients, strict=True)]
    for found, weights in zip(one_step(network), expected, strict=True):
        torch.testing.assert_close(found, weights)


def test_locally_each_unit_descends_its_own_cross_entropy() -> None:
    network = GLN([CONTEXTS], classes=K, seed=1)
    inputs, labels = network.prepare(X), torch.tensor(Y)
    (hidden,) = network.hidden_layers(*inputs)
    losses = [  # unit h of all networks together
        torch.nn.functional.cross_entropy(hidden.reshape(N, K, 3)[:, :, h], labels)
        for h in range(3)
    ]
    (expected,) = torch.autograd.grad(torch.stack(losses).sum(), network.hidden_weights[0])
    before = network.hidden_weights[0].detach().clone()
    one_step(network, "local")
    torch.testing.assert_close(network.hidden_weights[0].detach(), before - expected)


def test_histories_count_wrong_samples_and_margins() -> None:
    network = ReLUNetwork(D, [6], classes=K, seed=0)
    result = train(network, X, Y, TrainingConfig(steps=5, record=(0, 5)))
    decision = network.decision(X)
    margins = [f[y] - np.delete(f, y).max() for f, y in zip(decision, Y, strict=True)]
    last = result.history[-1]
    assert last.error == np.mean(np.array(margins) <= 0)
    assert last.min_margin == pytest.approx(min(margins))
    labels = torch.tensor(Y)
    expected = torch.nn.functional.cross_entropy(torch.tensor(decision), labels).item()
    assert last.loss == pytest.approx(expected)


@pytest.mark.slow
def test_towards_the_svm_of_groups_of_class_and_unit() -> None:
    """The norm of one network a class comes down to the certified optimum, from above."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(K, 6))
    points = centres[Y] + 0.1 * rng.normal(size=(N, 6))
    contexts = HyperplaneContexts.random(points, 3, 1, random_state=0)
    network = GLN([contexts], classes=K, seed=0)
    found = train_beside_svm(network, points, Y, LimitConfig(steps=600))
    assert found.solution is not None
    assert found.solution.problem is not None
    assert found.solution.problem.n_groups == K * 3
    excess = [point.excess for point in found.limit.history if np.isfinite(point.excess)]
    assert min(excess) >= -1e-9
    assert found.excess < 0.05
    assert found.limit.history[-1].disagreement == 0
    assert found.limit.history[-1].measures["residual"] < 0.2


def test_no_svm_is_solved_for_a_network_that_it_does_not_bound() -> None:
    network = GLN([CONTEXTS], classes=K, shared=True, seed=0)
    found = train_beside_svm(network, X, Y, LimitConfig(steps=3))
    assert found.solution is None
    assert np.isnan(found.excess)
