"""Each layer alone, beside the margin problem that holds all others."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from example_modules import Computed, known, of, own_labels
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
        (layer,) = (each for each in found.layers if each.name == name)
        assert layer.lower == pytest.approx(certificate.lower, rel=1e-6)
        assert layer.lower <= layer.norm
        size = float(module.get_parameter(name).detach().norm())
        assert layer.norm == pytest.approx(scale * size)
        assert layer.gap == pytest.approx(1 - (layer.lower / layer.norm) ** 2)
    assert known(found.farthest_layer).gap == max(layer.gap for layer in found.layers)


@pytest.mark.fast("l2", "linf")
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


def test_parameters_that_enter_twice_have_no_bound() -> None:
    weights = {"u": torch.tensor([1.0, 2.0]).double(), "v": torch.tensor([0.2, 0.7]).double()}
    module = Computed(lambda m, x: x @ (m.u**2 - m.v**2), **weights).eval()
    X = torch.eye(2, dtype=torch.float64)
    found = diagnose(module, X, own_labels(module, X))
    assert [np.isnan(layer.lower) for layer in found.layers] == [True, True]
    assert found.farthest_layer is None
    assert found.direction is None
