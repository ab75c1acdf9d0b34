"""The illustrations: each method is what it is said to be, and numbers are those of the runs."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.illustrations import (
    attention,
    data,
    descent,
    leading,
    linear,
    single_samples,
    weight_decay,
)
from example_modules import scale_weights
from implicit_bias import attention_margin, max_margin, solve
from implicit_bias.norms import Lp, as_norm


def small() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(12) % 3
    return rng.normal(size=(12, 4)) + 3.0 * np.eye(4)[y], y


@pytest.mark.parametrize("optimizer", descent.OPTIMIZERS, ids=lambda each: each.name)
def test_each_optimizer_descends_towards_its_own_norm(optimizer: descent.Optimizer) -> None:
    """From zero every step lowers the loss at first; the steepest ones have length 1."""
    gradient = np.random.default_rng(2).normal(size=(3, 4))
    step = optimizer.direction()(gradient)
    assert (step * gradient).sum() < 0
    if optimizer.name != "gradient descent":
        assert as_norm(optimizer.norm).value(step) == pytest.approx(1.0, rel=1e-6)


def test_slopes_are_those_of_autograd_and_outlast_rounding() -> None:
    y = np.array([0, 2])
    outputs = np.array([[2.0, 1.0, -1.0], [0.5, 0.0, 3.0]])
    tensor = torch.tensor(outputs, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(tensor, torch.tensor(y), reduction="sum")
    torch.autograd.backward(loss)
    assert tensor.grad is not None
    np.testing.assert_allclose(descent.slopes(outputs, y), tensor.grad, rtol=1e-12)
    # Where 1 - p rounds to 0 the sample's own slope is still that of its rivals.
    late = descent.slopes(100 * outputs, y)
    assert (late[[0, 1], y] < 0).all()
    np.testing.assert_allclose(late.sum(axis=1), 0, atol=1e-13 * np.abs(late).max())


def test_adam_is_that_of_torch() -> None:
    X, y = small()
    ours = next(each for each in descent.OPTIMIZERS if each.name == "Adam")
    steps = np.arange(1, 21)
    weights = [found for _, found in descent.iterates(X, y, ours, steps)][-1]
    theirs = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], ours.step_size)
    for t in steps:
        optimizer.param_groups[0]["lr"] = ours.step_size / t**0.5
        optimizer.zero_grad()
        outputs = torch.tensor(X) @ theirs.T
        torch.autograd.backward(torch.nn.functional.cross_entropy(outputs, torch.tensor(y)))
        optimizer.step()
    np.testing.assert_allclose(weights, theirs.detach().numpy(), rtol=1e-9)


def test_minimum_in_the_box_is_a_minimum() -> None:
    """No point of a grid over the box has a smaller loss."""
    X, y = torch.tensor([[1.0], [2.0], [-1.0]]).double(), torch.tensor([0, 1, 1])
    least = weight_decay.minimum_in_box(X, y, 0.5)
    grid = torch.linspace(-0.5, 0.5, 21).double()
    losses = [
        torch.nn.functional.cross_entropy(X @ torch.stack([a, b])[:, None].T, y).item()
        for a, b in product(grid, grid)
    ]
    assert least <= min(losses) + 1e-12
    assert least == pytest.approx(min(losses), abs=1e-3)


def test_single_samples_come_in_cyclic_order() -> None:
    """A first pass of Signum by hand: each sample's own slope, one after the other."""
    signed = np.array([[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]])
    ((_, found),) = single_samples.iterates(signed, "Signum, one sample", 1)
    decay, size = single_samples.MOMENTUM, single_samples.STEP_SIZE
    weights, mean = np.zeros(2), np.zeros(2)
    for t, z in enumerate(signed, start=1):
        mean = decay * mean - z / (1 + np.exp(z @ weights))
        weights = weights - size / t**0.5 * np.sign(mean)
    np.testing.assert_allclose(found, weights, rtol=1e-12)


def test_attention_is_trained_by_the_slopes_of_autograd() -> None:
    """One normalised step, of W and of the pair; the module has the margins of the problem."""
    rng = np.random.default_rng(0)
    tokens, query = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 5))
    problem = attention_margin(tokens, query, [0, 2, 1])
    parts = list(rng.normal(size=(2, 5, 5)))
    pair = attention.Pair(*parts)
    margins = pair(torch.tensor(problem.X), torch.tensor(problem.gates))
    found = problem.decision(attention.product(parts).T)
    np.testing.assert_allclose(margins.detach(), found, rtol=1e-10)
    slopes = torch.autograd.grad(torch.logsumexp(-margins, dim=0), list(pair.parameters()))
    length = sum(slope.square().sum() for slope in slopes) ** 0.5
    ((_, after),) = attention.iterates(problem, parts, "normalised descent", 1)
    for part, before, slope in zip(after, parts, slopes, strict=True):
        np.testing.assert_allclose(part - before, -slope / length, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("module", leading.MODULES)
def test_leading_parts_are_limits(module: str) -> None:
    """f(c theta) / c^L tends to the module that is written by hand, of squared relu."""
    whole, by_hand = (
        leading.built(module, "squared relu", 0, whole=whole) for whole in (True, False)
    )
    X = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    degree = 4 if module == "low-rank update" else 14
    expected = by_hand(X).detach()
    large = scale_weights(whole, 2.0**20)(X).detach()
    torch.testing.assert_close(large / 2.0 ** (20 * degree), expected, rtol=1e-4, atol=1e-6)


def test_shares_of_mirror_descent_are_margins_over_certified_maxima() -> None:
    rows = pd.DataFrame(list(linear.mirrored(linear.TWO_CLASSES, 50, "mirror descent, p = 3")))
    X, y = data.two_classes()
    *_, (step, w) = linear.mirror_iterates(X, y, 3.0, 50)
    last = rows[rows["step"] == step].set_index("norm")["share"]
    for p in (1.5, 3.0):
        largest = 1 / solve(max_margin(X, y, Lp(p)), tol=1e-9).certificate.upper
        length = (np.abs(w) ** p).sum() ** (1 / p)
        assert last[f"l{p:g}"] == pytest.approx((y * (X @ w)).min() / length / largest, rel=1e-5)
