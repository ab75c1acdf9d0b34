"""The log loss of any module as a function of its weights: gradients, chunks, what is trained."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from example_modules import Computed, drawn, frozen, weights_of
from implicit_bias import LimitConfig, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.modules.stationarity import stationarity
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.training.losses import LOSSES, MarginLoss
from implicit_bias.training.trainee import as_trainee
from training.samples import GATING, LABELS, SIGNS, X2, X4, X, Y, flat, two_layers

NETWORKS: dict[str, Callable[[], Network]] = {
    "GLN": lambda: GLN([GATING]),
    "deep GLN": lambda: GLN([GATING, GATING]),
    "GLN with bias": lambda: GLN([GATING], readout_bias=True),
    "ReLU": lambda: ReLUNetwork(X.shape[1], [8, 4]),
    "frozen gates": lambda: FrozenGateReLU(ReLUNetwork(X.shape[1], [8, 4])),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_gradient_is_that_of_the_log_loss(build: Callable[[], Network], loss: MarginLoss) -> None:
    """Along a random direction, by central differences; F itself from the definition."""
    network = build()
    trainee = as_trainee(network, X, Y, loss=loss)
    weights = trainee.start().weights
    log_loss, gradient, _ = trainee.differentiate(weights)
    assert trainee.evaluate(weights)[0] == log_loss
    losses = np.exp(-Y * network.decision(X))
    if loss.name == "logistic":
        losses = np.log1p(losses)
    assert log_loss == pytest.approx(np.log(losses.mean()), rel=1e-12)
    direction = torch.randn(weights.shape, generator=torch.Generator().manual_seed(0)).double()
    ahead = trainee.evaluate(weights + 1e-6 * direction)[0]
    behind = trainee.evaluate(weights - 1e-6 * direction)[0]
    assert (gradient @ direction).item() == pytest.approx((ahead - behind) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_chunks_are_the_full_batch_to_rounding(scale: float) -> None:
    """Also at margins whose losses have underflowed in all chunks but one."""
    module = two_layers()
    whole = as_trainee(module, X4, LABELS)
    parts = as_trainee(module, X4, LABELS, chunk=7)
    weights = scale * whole.start().weights
    assert parts.evaluate(weights)[:2] == pytest.approx(whole.evaluate(weights)[:2], rel=1e-12)
    expected = whole.differentiate(weights)
    for found, value in zip(parts.differentiate(weights), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(value), rtol=1e-10, atol=1e-12)


def test_a_network_of_this_package_is_a_module_like_any_other() -> None:
    """The same log losses, steps and margins as by its prepared arguments."""
    own = ReLUNetwork(5, [6])
    other = ReLUNetwork(5, [6])
    wrapped = Computed(lambda m, x: m.inner(x), inner=other)
    config = LimitConfig(steps=10)
    expected = train_to_limit(own, X2, SIGNS, config).frame()
    found = train_to_limit(wrapped, (torch.tensor(X2),), torch.tensor(SIGNS), config).frame()
    np.testing.assert_array_equal(weights_of(own), weights_of(other))
    same = ["step", "loss", "error", "min_margin", "log_loss", "step_size", "evaluations"]
    assert found[same].equals(expected[same])


def test_two_classes_are_the_binary_training() -> None:
    """One output for two classes is f_1 - f_0 of a module of two outputs."""
    classes = two_layers(2)
    binary = two_layers(2)
    single = Computed(lambda m, x: m.both(x)[:, 1] - m.both(x)[:, 0], both=binary)
    config = LimitConfig(steps=10, loss="cross-entropy")
    first = train_to_limit(classes, X2, (SIGNS > 0).astype(int), config)
    second = train_to_limit(single, X2, SIGNS, config)
    np.testing.assert_allclose(weights_of(classes), weights_of(binary), rtol=1e-9)
    assert first.history[-1].min_margin == pytest.approx(second.history[-1].min_margin)


def test_what_gets_no_gradient_is_left_alone() -> None:
    """Neither the weights of hard gates, which are a Parameter, nor a frozen layer is trained."""
    module = Computed(
        lambda m, x: ((x @ m.gates.T > 0).double() * (x @ m.units.T)) @ m.last,
        gates=drawn(6, 5),
        units=drawn(6, 5, seed=1),
        last=torch.ones(6).double(),
    )
    result = train_to_limit(frozen(module, "last"), X2, SIGNS, LimitConfig(steps=60))
    assert torch.equal(module.get_parameter("gates"), drawn(6, 5))
    size = module.get_parameter("units").norm().item()
    assert result.history[-1].norm == pytest.approx(size)
    found = as_trainee(module, X2, SIGNS)
    assert list(found.parameters) == ["units"]
    expected = stationarity(frozen(module, "gates"), (torch.tensor(X2),), SIGNS)
    assert found.gap() == pytest.approx(expected.gap, abs=1e-9)


@pytest.mark.parametrize(
    ("module", "labels", "word"),
    [
        (nn.Linear(5, 1, bias=False), SIGNS, "float64"),
        (flat(4), LABELS[:-1], "samples"),
        (nn.Sequential(flat(4, 1.0), nn.Dropout()), LABELS, "eval"),
        (flat().requires_grad_(False), SIGNS, "gradient"),
    ],
)
def test_bad_use_is_refused(module: nn.Module, labels: Array, word: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=word):
        train_to_limit(module, X4, labels, LimitConfig(steps=9))
