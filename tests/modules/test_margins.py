"""Margins as an operator, against gradients by brute force."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from example_modules import Computed, frozen, linear, of, own_labels, seeded
from implicit_bias.modules.margins import Margins
from modules.programs import CASES, D, N, X, check_products, labelled, relu, scaled


@pytest.mark.parametrize("blocks", [None, 3])
@pytest.mark.parametrize("name", CASES)
def test_products_with_the_gradients(name: str, blocks: int | None) -> None:
    degree, build = CASES[name]
    program, J = scaled(build(), degree)
    function, theta = program.function, program.theta
    function.entries = function.entries if blocks is None else blocks * len(theta)
    check_products(function, theta, J)
    chosen, others = np.array([4, 0, 7, 5]), np.array([1, 7, 2])
    gram = function.gram(theta, chosen, others=others)
    close = {"rtol": 1e-10, "atol": 1e-10 * gram.max()}
    np.testing.assert_allclose(gram, J[chosen] @ J[others].T, **close)
    np.testing.assert_allclose(J @ theta.numpy(), degree * function.margins(theta), rtol=1e-9)


def test_restricted_margins_hold_the_other_parameters() -> None:
    program, J = scaled(CASES["mixed-classes"][1](), 4.0)
    alone = program.function.restricted(["conv.weight"], program.theta)
    np.testing.assert_allclose(alone.margins(alone.theta), program.margins)
    columns = [program.function.parameters(torch.tensor(row))["conv.weight"] for row in J]
    expected = torch.stack(columns).flatten(1)
    np.testing.assert_allclose(alone.rows(alone.theta, np.arange(len(J))), expected, atol=1e-9)


def test_a_homogeneous_module_is_the_same_at_any_scale_in_some_parameters() -> None:
    """What is held fast is scaled as well: f(c theta) / c^L of all of theta."""
    program, J = scaled(CASES["mixed-classes"][1](), 4.0)
    every = np.arange(len(J))
    for scale in (2.0**-3, 2.0**40):
        other = program.function.at_scale(scale, 4.0)
        alone = other.restricted(["conv.weight"], program.theta)
        np.testing.assert_allclose(alone.margins(alone.theta), program.margins)
        np.testing.assert_allclose(other.rows(program.theta, every), J, atol=1e-9)
        gram = other.gram(program.theta, every)
        np.testing.assert_allclose(gram, J @ J.T, rtol=1e-9, atol=1e-9)


def used_twice() -> nn.Module:
    """Use a matrix as one and entry by entry: its gradient is no outer product."""
    return Computed(
        lambda m, x: m.last(nn.functional.linear(x, m.matrix) + (m.matrix * x[:, None]).sum(2)),
        matrix=torch.empty(D, D),
        last=linear(D),
    )


@pytest.mark.parametrize(
    "build",
    [
        used_twice,
        lambda: nn.Sequential(*[linear(D, D)] * 2, linear(D)),
        lambda: nn.Sequential(nn.Linear(D, 5), nn.ReLU(), linear(5, 3)),
    ],
    ids=["twice", "tied", "bias"],
)
def test_grams_of_matrices_that_are_used_twice(build: Callable[[], nn.Module]) -> None:
    function = labelled(seeded(build(), 2))
    every = np.arange(len(function.pairs))
    J = function.rows(function.theta, every)
    np.testing.assert_allclose(function.gram(function.theta, every), J @ J.T, rtol=1e-9)


def test_two_classes_are_two_labels() -> None:
    """One output f and two outputs (-f / 2, f / 2) have the same margins, so the same gap."""
    single = relu(1)
    W, a = (p.detach().numpy() for p in single.parameters())
    both, y = of(W, np.vstack([-a / 2, a / 2]), between=nn.ReLU), own_labels(single, X)
    of_two = Margins(both, (X,), (y + 1) // 2, 2)
    of_one = Margins(single, (X,), y)
    np.testing.assert_allclose(of_two.margins(of_two.theta), of_one.margins(of_one.theta))
    # with the readout's two rows as one direction, its gradient is shorter by the root of 2
    weights = np.random.default_rng(0).random(N)
    v1 = of_one.parameters(of_one.vjp(of_one.theta, weights))
    v2 = of_two.parameters(of_two.vjp(of_two.theta, weights))
    np.testing.assert_allclose(v2["0.weight"], v1["0.weight"], atol=1e-12)
    np.testing.assert_allclose(v2["2.weight"], torch.cat([-v1["2.weight"], v1["2.weight"]]))


def test_margins_of_some_samples_are_some_of_the_margins() -> None:
    whole, J = scaled(relu(3), 2.0)
    samples = np.array([7, 2, 4])
    pairs = (2 * samples[:, None] + np.arange(2)).reshape(-1)
    some = whole.function.of_samples(samples)
    np.testing.assert_allclose(some.margins(whole.theta), whole.margins[pairs])
    np.testing.assert_allclose(some.rows(whole.theta, np.arange(6)), J[pairs], atol=1e-12)


def test_a_module_is_reread_with_its_parameters_of_now() -> None:
    module = relu(1)
    before = labelled(module)
    with torch.no_grad():
        module.get_parameter("0.weight").mul_(2.0)
    now = before.reread(module)
    np.testing.assert_allclose(now.margins(now.theta), 2.0 * before.margins(before.theta))
    frozen(module, "2.weight")
    with pytest.raises(ValueError, match="other parameters"):
        before.reread(module)
