"""Optimizers by name: torch's own steps, signs by hand, and what names depend on."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, softplus
from torch.optim import Optimizer

from example_modules import weights_of
from implicit_bias.base.options import OptimizerName
from implicit_bias.base.validation import Array
from implicit_bias.networks import GLN, Network, ReLUNetwork
from implicit_bias.training import TrainingConfig
from implicit_bias.training.losses import LossName
from implicit_bias.training.minibatch import train
from training.samples import GATING, X, Y, gln

STEPS = 6
needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="came with torch 2.9")


def by_hand(network: Network, y: Any, optimizer: OptimizerName, loss: LossName) -> Array:
    """Full batches by torch's own optimizer, its step size cut half way."""
    matrices: list[Any] = list(network.parameters())
    made: Optimizer = torch.optim.SGD(matrices, lr=0.1, momentum=0.5)
    if optimizer == "adam":
        made = torch.optim.Adam(matrices, lr=0.1)
    elif optimizer == "muon":
        # torch lengthens the steps of tall matrices: here all are to be 0.1 long.
        groups = [
            {"params": [w], "lr": 0.1 / max(1.0, len(w) / w.shape[1]) ** 0.5} for w in matrices
        ]
        made = cast(Optimizer, torch.optim.Muon(groups, momentum=0.5, weight_decay=0.0))
    inputs, labels = network.prepare_samples(X, y)
    average = [torch.zeros_like(w) for w in matrices]
    for step in range(STEPS):
        if step == STEPS // 2:
            for group in made.param_groups:
                group["lr"] *= 0.25
        made.zero_grad()
        outputs = network(*inputs)
        if loss == "cross-entropy":
            mean = cross_entropy(outputs, labels)
        elif loss == "exponential":
            mean = torch.exp(-labels * outputs).mean()
        else:
            mean = softplus(-labels * outputs).mean()
        torch.autograd.backward(mean)
        if optimizer == "sign":
            with torch.no_grad():
                for w, m in zip(matrices, average, strict=True):
                    m.mul_(0.5).add_(w.grad)
                    w.sub_(made.param_groups[0]["lr"] * m.sign())
        else:
            made.step()
    return weights_of(network)


@pytest.mark.parametrize(
    ("build", "optimizer", "loss"),
    [
        (gln, "sgd", "logistic"),
        (gln, "sign", "logistic"),
        (gln, "adam", "logistic"),
        pytest.param(gln, "muon", "logistic", marks=needs_muon),
        (gln, "sgd", "exponential"),
        (lambda: ReLUNetwork(X.shape[1], [8, 4]), "sgd", "logistic"),
        (lambda: GLN([GATING, GATING], readout_bias=True), "sgd", "logistic"),
        (lambda: GLN([GATING], classes=4, shared=True, seed=1), "sgd", "cross-entropy"),
    ],
)
def test_steps_are_those_of_torch(
    build: Callable[[], Network], optimizer: Any, loss: LossName
) -> None:
    network = build()
    y = np.arange(len(Y)) % 4 if loss == "cross-entropy" else Y
    config = TrainingConfig(
        steps=STEPS,
        batch_size=None,
        learning_rate=0.1,
        momentum=0.5,
        optimizer=optimizer,
        loss=loss,
    )
    train(network, X, y, config)
    expected = by_hand(build(), y, optimizer, loss)
    np.testing.assert_allclose(weights_of(network), expected, rtol=1e-10)


def test_a_torch_without_muon_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch 2.6, the oldest that is supported, is."""
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(ImportError, match=r"torch>=2\.9"):
        train(gln(), X, Y, TrainingConfig(steps=1, optimizer="muon"))
