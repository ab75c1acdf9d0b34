"""Training by mini-batches: reproducible, kept when interrupted, loud when diverged, local."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from torch.nn.functional import cross_entropy

from example_modules import weights_of
from implicit_bias.base.validation import Array
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.history import HistoryPoint
from implicit_bias.training.losses import LossName
from implicit_bias.training.minibatch import (
    TrainingConfig,
    TrainingDiverged,
    shuffled_batches,
    train,
)
from system import stop_at
from training.samples import X, Y, gln

SHORT = TrainingConfig(steps=30, batch_size=16, record=8)
LOCAL = TrainingConfig(steps=40, batch_size=1, learning_rate=0.1, rule="local")


def weights_after(config: TrainingConfig, network: Network | None = None) -> Array:
    return weights_of(train(network or gln(), X, Y, config).network)


# --- batches ---------------------------------------------------------------------------------


def test_an_epoch_takes_each_sample_once() -> None:
    batches = [np.asarray(batch) for batch in islice(shuffled_batches(40, SHORT), 6)]
    assert [len(batch) for batch in batches] == [16, 16, 8, 16, 16, 8]
    first = np.concatenate(batches[:3])
    second = np.concatenate(batches[3:])
    assert sorted(first) == sorted(second) == list(range(40))
    assert not np.array_equal(first, second)


def test_training_is_reproducible_and_the_global_generator_stays() -> None:
    state = torch.get_rng_state()
    first = weights_after(SHORT)
    np.testing.assert_array_equal(first, weights_after(SHORT))
    assert torch.equal(torch.get_rng_state(), state)
    assert not np.array_equal(first, weights_after(replace(SHORT, seed=1)))
    assert not np.array_equal(first, weights_after(SHORT, gln(seed=1)))


# --- the local rule --------------------------------------------------------------------------


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

    for step, batch in enumerate(islice(shuffled_batches(len(X), LOCAL), LOCAL.steps)):
        n = int(np.asarray(batch)[0])
        target = (Y[n] + 1) / 2
        previous = expit(X[n])
        for weights, chosen in zip(by_hand, contexts, strict=True):
            n_units = chosen.shape[1]
            rows = np.arange(n_units) * (len(weights) // n_units) + chosen[n]
            inputs = logit(previous)
            previous = expit(weights[rows] @ inputs)
            weights[rows] -= LOCAL.step_size(step) * np.outer(previous - target, inputs)

    for trained, expected in zip(layers, by_hand, strict=True):
        np.testing.assert_allclose(trained.detach().numpy(), expected, rtol=1e-8, atol=1e-10)


def test_with_classes_each_unit_descends_its_own_cross_entropy() -> None:
    network = GLN([gating(3)], classes=4, seed=1)
    labels = torch.arange(len(Y)) % 4
    (hidden,) = network.hidden_layers(*network.prepare(X))
    units = hidden.reshape(len(X), 4, 3)  # unit h of all networks together
    loss = torch.stack([cross_entropy(units[:, :, h], labels) for h in range(3)]).sum()
    (slope,) = torch.autograd.grad(loss, network.hidden_weights[0])
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


# --- history ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("record", "classes"), [(8, None), ((3, 17), 4)])
def test_history_describes_the_network(record: int | tuple[int, ...], classes: int | None) -> None:
    points: list[HistoryPoint] = []
    progress: list[tuple[int, int]] = []
    network = ReLUNetwork(X.shape[1], [6], classes=classes)
    y = Y if classes is None else np.arange(len(Y)) % 4
    config = replace(SHORT, record=record)
    result = train(
        network,
        *(X, y, config),
        on_point=points.append,
        on_progress=lambda done, steps, _: progress.append((done, steps)),
    )
    assert result.history == tuple(points)
    assert [point.step for point in points] == sorted(config.recorded_steps)
    assert progress == [(done, SHORT.steps) for done in range(SHORT.steps + 1)]
    assert (result.steps, result.interrupted) == (SHORT.steps, False)
    last = points[-1]
    f = network.decision(X)
    if classes is None:
        margins = y * f
        loss = np.log1p(np.exp(-margins)).mean()
    else:
        margins = np.array([row[k] - np.delete(row, k).max() for row, k in zip(f, y, strict=True)])
        loss = cross_entropy(torch.tensor(f), torch.tensor(y)).item()
    assert last.loss == pytest.approx(loss)
    assert last.error == np.mean(margins <= 0)
    assert last.min_margin == pytest.approx(margins.min())
    assert last.norm == pytest.approx(network.norm())
    assert last.normalised_margin == pytest.approx(margins.min() / network.norm())


def test_changed_gates_are_counted() -> None:
    network = ReLUNetwork(X.shape[1], [8, 4], seed=1)
    start = network.gate_pattern(*network.prepare(X))
    last = train(network, X, Y, replace(SHORT, learning_rate=0.5)).history[-1]
    changed = network.gate_pattern(*network.prepare(X)) != start
    assert last.gates_changed == pytest.approx(changed.double().mean().item())
    assert last.gates_changed > 0.0
    fixed = train(FrozenGateReLU(network), X, Y, SHORT)
    assert fixed.history[-1].gates_changed == 0.0


# --- when it ends early ----------------------------------------------------------------------


def test_interruption_at_a_point_keeps_the_history() -> None:
    complete = train(gln(), X, Y, SHORT)
    stop = complete.history[4].step
    result = train(gln(), X, Y, SHORT, on_point=stop_at(stop))
    assert (result.interrupted, result.steps) == (True, stop)
    assert result.history == complete.history[:5]


@pytest.mark.parametrize(("loss", "learning_rate"), [("exponential", 1e4), ("logistic", 1e200)])
def test_divergence_is_named(loss: LossName, learning_rate: float) -> None:
    config = replace(SHORT, loss=loss, learning_rate=learning_rate)
    with pytest.raises(TrainingDiverged, match="learning_rate"):
        train(gln(), X, -Y, config)
