"""Training as released: the same draws, the same arithmetic, and the released values."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.lippl2022 import draws, released_training
from benchmarks.lippl2022.released_training import (
    released_gln,
    released_relu,
    released_shallow_gln,
    train_as_released,
)
from implicit_bias.base.validation import Array
from implicit_bias.networks import GLN, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts
from mnist import DIGIT, IMAGE, check_released, needs_mnist, parts
from mnist import contexts as published

N, D = 1500, 6
EPOCHS = 6


def samples() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return X, np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1.0, -1.0)


def contexts(n_units: int, n_hyperplanes: int, seed: int = 3) -> HyperplaneContexts:
    X, _ = samples()
    return draws.draw_contexts(
        X, n_units, n_hyperplanes, threshold="random", reference=X, seed=seed
    )


def start(name: str) -> GLN | ReLUNetwork:
    if name == "gln":
        return released_gln(contexts(4, 2), seed=3)
    if name == "shallow":
        return released_shallow_gln(contexts(1, 3), seed=3)
    return released_relu(D, 7, seed=3)


@pytest.mark.parametrize(("n_units", "n_hyperplanes"), [(3, 1), (20, 2)])
def test_gln_starts_as_torch_modules_do(n_units: int, n_hyperplanes: int) -> None:
    """The draws of a network made of torch's own layers, from the global generator."""
    seed, n_contexts = 5, 2**n_hyperplanes
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        hyperplanes = nn.Linear(D, n_units * n_hyperplanes, bias=False)
        nn.init.normal_(hyperplanes.weight, 0.0, 36.0)
        torch.empty(n_units, n_hyperplanes).normal_(0.0, 9.0)  # the thresholds
        hidden = nn.Linear(D, n_units * n_contexts, bias=False)
        readout = nn.Linear(n_units, 1)
        nn.init.orthogonal_(hidden.weight)
        nn.init.orthogonal_(readout.weight)
    drawn = contexts(n_units, n_hyperplanes, seed)
    network = released_gln(drawn, seed=seed)
    assert network.readout_bias is not None
    torch.testing.assert_close(network.hidden_weights[0], hidden.weight, rtol=0, atol=0)
    torch.testing.assert_close(network.readout, readout.weight, rtol=0, atol=0)
    torch.testing.assert_close(network.readout_bias, readout.bias[0], rtol=0, atol=0)


def plain_outputs(network: GLN | ReLUNetwork, inputs: Tensor, *rows: Tensor) -> Tensor:
    """Compute outputs (n,) by linear layers; without rows, of a ReLU whose gate is open at 0."""
    products = nn.functional.linear(inputs, network.hidden_weights[0])
    hidden = products.gather(1, rows[0]) if rows else products * (products >= 0)
    bias = None if network.readout_bias is None else network.readout_bias[None]
    return nn.functional.linear(hidden, network.readout, bias)[:, 0]


def plain_training(network: GLN | ReLUNetwork, momentum: float) -> list[float]:
    """Train with torch's optimiser and automatic differentiation; the last batches' losses."""
    X, y = samples()
    inputs = network.prepare(X)
    targets = torch.tensor(y > 0, dtype=torch.float32)
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(parameters, lr=0.04, momentum=momentum)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for epoch in range(EPOCHS):
        if epoch == EPOCHS // 2:
            optimiser.param_groups[0]["lr"] *= 0.25
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        order: Tensor = torch.randperm(N, generator=generator)
        for start in range(0, N, 128):
            batch = order[start : start + 128]
            p = torch.sigmoid(plain_outputs(network, *(t[batch] for t in inputs)))
            loss = nn.functional.binary_cross_entropy(p, targets[batch])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("name", "momentum"), [("gln", 0.0), ("shallow", 0.9), ("relu", 0.9)])
def test_same_as_automatic_differentiation(
    name: str, momentum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(released_training, "SAMPLES_SEEN", EPOCHS * N)
    plain, network = start(name), start(name)
    losses = plain_training(plain, momentum)
    training = train_as_released(network, *samples(), momentum=momentum)
    assert training.network is network
    assert training.steps == EPOCHS * math.ceil(N / 128) == training.config.steps
    # The shallow network's products are summed in another order; the others agree to the bit.
    rtol = 1e-4 if name == "shallow" else 0
    np.testing.assert_allclose(training.batch_losses, losses, rtol=rtol)
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol)


# --- the released values -------------------------------------------------------------------------


def accuracy(network: GLN | ReLUNetwork) -> float:
    validation = parts().validation
    return float(np.mean(validation.y * network.decision(validation.X) > 0))


def gln(train_size: int, n_units: int, n_hyperplanes: int, seed: int) -> GLN:
    gates = published(n_units, n_hyperplanes, seed, "median", train_size=train_size)
    return released_gln(gates, seed=seed)


@pytest.mark.slow
@needs_mnist
@pytest.mark.parametrize(
    ("train_size", "make", "momentum", "released", "within"),
    [
        (1000, lambda: gln(1000, 20, 1, 2), 0.0, 0.872000, DIGIT),
        (500, lambda: released_shallow_gln(published(1, 3), seed=1), 0.0, 0.798667, DIGIT),
        (500, lambda: released_relu(785, 50, seed=1), 0.0, 0.8875, IMAGE),
        # The last bit of the initial weights moves this network by 0.004.
        (1000, lambda: released_relu(785, 10, seed=1), 0.9, 0.868417, 0.005),
    ],
)
def test_released_networks(
    train_size: int, make: Any, momentum: float, released: float, within: float
) -> None:
    network, train = make(), parts(train_size).train
    train_as_released(network, train.X, train.y, momentum=momentum)
    check_released(accuracy(network), released, within)
