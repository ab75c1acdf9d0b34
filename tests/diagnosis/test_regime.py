"""Lazy or rich: kernels by loops, the tangent-kernel SVM by solve, and trainings of both kinds."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import implicit_bias as ib
from diagnosis.asking import codes, descend, quiet, relu
from example_modules import Computed, drawn, linear, margins_by_hand, own_labels, weights_of
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis import Code, Regime
from implicit_bias.modules.margins import Margins

X = drawn(14, 5)


def regime(module: nn.Module, start: Any, inputs: Tensor = X, labels: Any = None) -> Regime:
    found = quiet(module, inputs, labels, start=start).regime
    assert found is not None
    return found


def kernel_by_hand(module: nn.Module, inputs: Tensor) -> Array:
    """Sum over outputs of the products of gradients, sample by sample."""
    outputs = module(inputs)
    features = []
    for n in range(len(inputs)):
        of_sample = []
        for output in outputs[n].reshape(-1):
            parts = torch.autograd.grad(output, list(module.parameters()), retain_graph=True)
            of_sample.append(nn.utils.parameters_to_vector(parts).numpy())
        features.append(of_sample)
    J = np.array(features)  # (N, K, P)
    return np.einsum("nkp, mkp -> nm", J, J)


def alignment_by_hand(first: Array, second: Array) -> float:
    H = np.eye(len(first)) - 1.0 / len(first)
    a, b = H @ first @ H, H @ second @ H
    return float(np.trace(a @ b) / np.sqrt(np.trace(a @ a) * np.trace(b @ b)))


def test_all_three_numbers_by_hand() -> None:
    module = relu(outputs=3)
    labels = own_labels(module, X)
    start = copy.deepcopy(module)
    for p in start.parameters():
        p.data += 0.2 * drawn(*p.shape, seed=7)
    found = regime(module, start, labels=labels)
    moved = weights_of(module) - weights_of(start)
    assert found.distance == pytest.approx(
        np.linalg.norm(moved) / np.linalg.norm(weights_of(start))
    )
    expected = alignment_by_hand(kernel_by_hand(start, X), kernel_by_hand(module, X))
    assert found.alignment == pytest.approx(expected, rel=1e-9)
    assert expected < 0.99
    _, J = margins_by_hand(start, X, labels)
    svm = ib.solve(ib.max_margin(J, np.ones(len(J))), tol=1e-10)
    maximum = 1.0 / svm.certificate.upper
    reached = (J @ moved).min() / np.linalg.norm(moved)
    assert found.share == pytest.approx(max(0.0, reached / maximum), rel=1e-6)
    assert found.samples == 14
    # The state of the start is as good as the start; the module is left as it is.
    assert regime(module, start.state_dict(), labels=labels) == found


def predict(module: Any, x: Tensor) -> Tensor:
    """Compute <u o u - v o v, x>."""
    return x @ (module.u**2 - module.v**2)


@pytest.mark.parametrize(("scale", "code"), [(30.0, Code.LAZY_REGIME), (0.05, Code.RICH_REGIME)])
def test_diagonal_networks_are_lazy_from_large_weights_and_rich_from_small_ones(
    scale: float, code: Code
) -> None:
    """Woodworth et al. (2020), figure 1: the scale of the start decides."""
    inputs = drawn(12, 20)
    labels = torch.sign(inputs[:, 0] + 0.5 * inputs[:, 1])
    ones = torch.ones(20, dtype=torch.float64)
    start = Computed(predict, u=scale * ones, v=scale * ones)
    module = copy.deepcopy(start)
    sgd = torch.optim.SGD(module.parameters(), lr=0.3 / max(1.0, scale**2))
    descend(sgd, lambda: nn.functional.softplus(-labels * module(inputs)).mean(), 300)
    found = quiet(module, inputs, labels, start=start)
    of_regime = [each for each in codes(found) if each in (Code.LAZY_REGIME, Code.RICH_REGIME)]
    assert of_regime == [code]
    assert found.regime is not None
    assert found.regime.lazy == (code is Code.LAZY_REGIME)
    assert found.regime.rich == (code is Code.RICH_REGIME)
    # Gradient descent on the tangent features nears their maximum margin.
    assert (found.regime.share > 0.8) == found.regime.lazy


def test_starts_without_a_measure() -> None:
    """The module itself has not moved."""
    module = relu()
    same = regime(module, module)
    assert same.distance == 0.0
    assert same.alignment == pytest.approx(1.0)
    assert math.isnan(same.share)
    with pytest.raises(ValueError, match="start is of another module"):
        regime(module, relu(outputs=3), labels=own_labels(module, X))


@pytest.mark.parametrize("in_time", [True, False])
def test_from_a_start_at_0_the_share_is_that_of_the_weights(
    in_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights (2, 1) have margin 1 / sqrt 5 on the unit vectors; (1, 1) has the maximum."""
    module = linear(2)
    module.weight.data = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    start = copy.deepcopy(module)
    start.weight.data.zero_()

    def late(*given: Any) -> None:
        raise TimeoutError

    if not in_time:
        monkeypatch.setattr(Margins, "inner_products", late)
    found = regime(module, start, torch.eye(2), [1, 1])
    assert found.distance == math.inf
    share = math.sqrt(2.0 / 5.0)
    if in_time:
        assert found.share == pytest.approx(share, rel=1e-6)
    else:
        assert math.isnan(found.alignment)
        assert 0.99 * share <= found.share <= share * (1 + 1e-9)
