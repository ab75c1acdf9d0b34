"""The Gram matrix of an activation: brute force, its limit at infinite width, and depth."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from drawn import sphere
from example_modules import drawn
from implicit_bias.kernels import gradient_gram as module
from implicit_bias.kernels.gated_least_squares import limit_kernel
from implicit_bias.kernels.gradient_gram import (
    ACTIVATIONS,
    Activation,
    correlations,
    finite_gram,
    gaussian_weights,
    infinite_gram,
    normalise,
)

TIGHT = 1e-11
RHO = np.linspace(-1, 1, 41)
SINE = Activation("sine", torch.sin)

# --- finite width --------------------------------------------------------------------------


@pytest.mark.parametrize("phi", [*ACTIVATIONS.values(), SINE], ids=lambda phi: phi.name)
def test_gram_is_that_of_the_gradients(phi: Activation) -> None:
    """Equation 2 by the gradients themselves, with classes, biases and trained readouts, too."""
    X = np.random.default_rng(0).standard_normal((5, 3))  # of any length
    weights = drawn(7, 3).requires_grad_()
    readouts = drawn(7, 2, seed=1).requires_grad_()
    biases = drawn(7, seed=2)
    hidden = phi.value(torch.tensor(X) @ weights.T + biases)
    outputs = (hidden @ readouts / math.sqrt(7)).T.reshape(-1)  # class after class
    rows = [torch.autograd.grad(u, (weights, readouts), retain_graph=True) for u in outputs]
    first = torch.stack([row[0].reshape(-1) for row in rows]).numpy()
    second = torch.stack([row[1].reshape(-1) for row in rows]).numpy()
    W = [weights.detach()]
    whole = finite_gram(X, phi, W, readouts=readouts, biases=biases)
    np.testing.assert_allclose(whole, first @ first.T, atol=TIGHT)
    np.testing.assert_array_equal(whole, whole.T)
    both = finite_gram(X, phi, W, readouts=readouts, biases=biases, train_readouts=True)
    np.testing.assert_allclose(both, first @ first.T + second @ second.T, atol=TIGHT)
    single = finite_gram(X, phi, W, readouts=readouts[:, 1], biases=biases)
    np.testing.assert_allclose(single, whole[5:, 5:], atol=TIGHT)
    signs = torch.tensor([1.0, -1, 1, -1, 1, 1, 1])  # whose squares are 1
    plain = finite_gram(X, phi, W, readouts=signs)
    np.testing.assert_allclose(finite_gram(X, phi, W), plain, atol=TIGHT)


def test_blocks_of_weights_are_one_network() -> None:
    X = sphere(6, 3)
    W = torch.cat(list(gaussian_weights(40, 3)))
    readouts = torch.linspace(-2, 2, 40, dtype=torch.float64)
    options: Any = {"readouts": readouts, "biases": readouts / 3, "train_readouts": True}
    gram = finite_gram(X, SINE, [W], **options)
    parts = finite_gram(X, SINE, torch.split(W, 9), **options)
    np.testing.assert_allclose(parts, gram, atol=TIGHT)


def test_blocks_hold_few_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def seen(z: Tensor) -> Tensor:
        sizes.append(z.numel())
        return torch.tanh(z)

    X = sphere(7, 4)
    whole = finite_gram(X, ACTIVATIONS["tanh"], gaussian_weights(1000, 4))
    monkeypatch.setattr(module, "BLOCK", 100)
    blocks = finite_gram(X, Activation("seen", seen), gaussian_weights(1000, 4))
    assert max(sizes) <= 100
    np.testing.assert_allclose(blocks, whole, atol=TIGHT)


def test_weights_come_in_blocks_of_one_stream() -> None:
    width = module.ROWS + 10
    blocks = list(gaussian_weights(width, 3, seed=5))
    assert [len(block) for block in blocks] == [module.ROWS, 10]
    assert torch.equal(blocks[0], next(gaussian_weights(module.ROWS, 3, seed=5)))
    assert not torch.equal(blocks[0], next(gaussian_weights(module.ROWS, 3, seed=6)))
    assert float(torch.cat(blocks).var()) == pytest.approx(1.0, abs=0.05)


def test_gram_where_no_gradients_are_recorded() -> None:
    X = sphere(3, 2)
    expected = finite_gram(X, SINE, gaussian_weights(8, 2))
    with torch.no_grad():
        np.testing.assert_array_equal(finite_gram(X, SINE, gaussian_weights(8, 2)), expected)


def test_bad_use_is_refused() -> None:
    X = sphere(4, 3)
    W = drawn(8, 3)
    with pytest.raises(ValueError, match="no units"):
        finite_gram(X, SINE, [])
    with pytest.raises(ValueError, match="features"):
        finite_gram(X, SINE, [W[:, :2]])
    with pytest.raises(ValueError, match="readouts"):
        finite_gram(X, SINE, [W], readouts=np.ones(9))
    with pytest.raises(ValueError, match="normalize"):
        infinite_gram(2 * X, SINE)
    with pytest.raises(ValueError, match="direction"):
        normalise(0 * X)


# --- infinite width ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["selu", "tanh"])
def test_finite_width_converges_to_infinite_width(name: str) -> None:
    """Of one output, and of trained readouts of two, whose second moment is the identity."""
    X = sphere(10, 5)
    phi = ACTIVATIONS[name]
    readouts = drawn(2**16, 2, seed=1)
    both = infinite_gram(X, phi, readouts=np.eye(2), train_readouts=True)
    found = finite_gram(X, phi, gaussian_weights(2**16, 5), readouts=readouts, train_readouts=True)
    np.testing.assert_allclose(found, both, atol=0.05)
    limit = infinite_gram(X, phi)
    narrow = np.abs(finite_gram(X, phi, gaussian_weights(2**8, 5)) - limit).max()
    wide = np.abs(finite_gram(X, phi, gaussian_weights(2**16, 5)) - limit).max()
    # 16 times smaller on average; four standard deviations are below 4 max phi'^2 / 2^8.
    assert wide < 4 * 3.1 / 2**8
    assert wide < narrow / 4


def test_relu_at_infinite_width() -> None:
    X = sphere(6, 3)
    rho = X @ X.T
    expected = rho * (0.5 - np.arccos(np.clip(rho, -1, 1)) / (2 * np.pi))
    np.testing.assert_allclose(infinite_gram(X, ACTIVATIONS["relu"]), expected, atol=1e-7)
    np.testing.assert_allclose(limit_kernel(X), expected, atol=1e-7)  # GaLU's is the same


def test_classes_and_trained_readouts_at_infinite_width() -> None:
    X = sphere(5, 3)
    phi = ACTIVATIONS["relu"]
    first = infinite_gram(X, phi)
    np.testing.assert_allclose(infinite_gram(X, phi, readouts=4.0), 4 * first)
    moment = np.array([[2.0, 1.0], [1.0, 3.0]])
    whole = infinite_gram(X, phi, readouts=moment, train_readouts=True)
    expected = np.kron(moment, first) + np.kron(np.eye(2), phi.dual(X @ X.T))
    np.testing.assert_allclose(whole, expected, atol=1e-7)


# --- depth ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "swish"])
def test_layer_maps(name: str) -> None:
    phi = ACTIVATIONS[name]
    np.testing.assert_allclose(phi.correlation_map([0.0, 1.0]), [0, 1], atol=TIGHT)
    slope = (1 - float(phi.correlation_map(1 - 1e-6))) / 1e-6
    assert phi.expansion == pytest.approx(slope, rel=2e-3)
    assert phi.expansion > 1
    assert float(np.abs(phi.correlation_map(RHO)).max()) <= 1 + TIGHT


def test_depth_is_the_limit_of_wide_layers() -> None:
    X = sphere(6, 4)
    phi = ACTIVATIONS["relu"]
    width = 2**17
    weights = torch.cat(list(gaussian_weights(width, 4)))
    outputs = phi.value(torch.tensor(X) @ weights.T).numpy()  # (n, width)
    outputs = (outputs - outputs.mean()) / outputs.std()
    _, one, two = itertools.islice(correlations(X, phi), 3)
    np.testing.assert_allclose(outputs @ outputs.T / width, one, atol=8 / math.sqrt(width))
    # The next layer sees unit vectors of these correlations, and nothing else of the samples.
    inputs = np.linalg.cholesky(one)
    _, after = itertools.islice(correlations(inputs, phi), 2)
    np.testing.assert_allclose(two, after, atol=1e-7)
    last = infinite_gram(inputs, phi)
    np.testing.assert_allclose(infinite_gram(X, phi, hidden_layers=2), last, atol=1e-7)
