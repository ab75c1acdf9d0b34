"""Each layer alone, beside the margin problem that holds all others."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from example_modules import Computed, known, layers, of, own_labels
from implicit_bias import diagnose, max_margin, solve
from implicit_bias.base.validation import Array


def random_relu() -> tuple[Array, nn.Module, Any]:
    """Return inputs, two layers, and the labels that they give."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(15, 4))
    module = of(rng.normal(size=(5, 4)), rng.normal(size=(1, 5)), between=nn.ReLU)
    return X, module, own_labels(module, torch.tensor(X))


def test_the_bounds_of_the_layers_are_their_own_margin_problems() -> None:
    X, module, y = random_relu()
    found = diagnose(module, X, y)
    scale = found.min_margin**-0.5
    W, a = (scale * p.detach().numpy() for p in module.parameters())
    hidden = np.maximum(X @ W.T, 0.0)
    features = (((hidden > 0) * a)[:, :, None] * X[:, None, :]).reshape(15, -1)
    for name, inputs in (("0.weight", features), ("2.weight", hidden)):
        certificate = solve(max_margin(inputs, y), tol=1e-10).certificate
        assert found.bounds[name][0] == pytest.approx(certificate.lower, rel=1e-6)
    for name, (lower, norm) in found.bounds.items():
        assert lower <= norm
        size = float(module.get_parameter(name).detach().norm())
        assert norm == pytest.approx(scale * size)
    gaps = [1 - (lower / norm) ** 2 for lower, norm in found.bounds.values()]
    assert known(found.farthest_layer).gap == max(gaps)


@pytest.mark.every(2)
@pytest.mark.parametrize("norm", ["l2", "linf", "spectral"])
def test_the_direction_lowers_the_norm_and_no_margin(norm: str) -> None:
    X, module, y = random_relu()
    before = diagnose(module, X, y, norm=norm)
    readout = next(layer for layer in before.layers if layer.name == "2.weight")
    with torch.no_grad():
        module.get_parameter("2.weight").add_(known(readout.direction))
    after = diagnose(module, X, y, norm=norm)  # no gate depends on the readout
    assert after.min_margin >= before.min_margin * (1 - 1e-9)
    new = next(layer for layer in after.layers if layer.name == "2.weight")
    assert new.gap < 1e-6 < readout.gap


@pytest.mark.parametrize("norm", ["nuclear", "spectral"])
def test_layers_of_extreme_sizes_are_measured(norm: str) -> None:
    """Combinations of the gradients are near the least of float64, their multiples beyond it."""
    torch.manual_seed(0)
    module = layers(3, 6, 6, 2).double()
    with torch.no_grad():
        next(module.parameters()).mul_(1e-160)
    X = 1e-100 * torch.randn(17, 3, dtype=torch.float64)
    found = diagnose(module, X, module(X).argmax(1), norm=norm, max_seconds=2.0)
    assert 0.9 < found.gap <= 1.0


def test_a_normalised_margin_beyond_float64_is_infinite() -> None:
    weights = torch.tensor([1e-100, 2e-100], dtype=torch.float64)
    module = Computed(lambda it, x: (x @ it.w) ** 3, w=weights)
    X = 1e120 * torch.ones(3, 2, dtype=torch.float64)
    assert diagnose(module, X, np.ones(3)).normalised_margin == np.inf


def test_parameters_that_enter_twice_have_no_bound() -> None:
    weights = {"u": torch.tensor([1.0, 2.0]).double(), "v": torch.tensor([0.2, 0.7]).double()}
    module = Computed(lambda m, x: x @ (m.u**2 - m.v**2), **weights).eval()
    X = torch.eye(2, dtype=torch.float64)
    found = diagnose(module, X, own_labels(module, X))
    assert [np.isnan(layer.lower) for layer in found.layers] == [True, True]
    assert found.farthest_layer is None
    assert found.direction is None
