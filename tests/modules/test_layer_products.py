"""Inner products of gradients in the weights of layers, without the gradients."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from example_modules import Computed, drawn, linear
from implicit_bias.modules.layer_products import LayerProducts, WatchedProducts
from implicit_bias.modules.margins import Margins

N, CLASSES = 7, 3


def tokens() -> nn.Module:
    """Build two linear layers on each of five tokens, one by the transpose, and their mean."""
    parts = {"first": nn.Linear(4, 6), "last": linear(6, CLASSES)}
    return Computed(
        lambda m, x: m.last((m.first(x).relu() @ m.middle.T).relu().mean(dim=1)),
        **parts,
        middle=torch.randn(6, 6),
    )


def images(**options: object) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        first = nn.Conv2d(2, 4, 3, **options)  # type: ignore[arg-type]
        return nn.Sequential(
            first, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES)
        )

    return build


IMAGE = (2, 6, 7)
# Modules, the shape of a sample, and the parameters whose gradients are sums of outer products.
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "tokens": (tokens, (5, 4), "first.weight first.bias last.weight middle"),
    "stride": (images(stride=2, padding=1, bias=False), IMAGE, "0.weight 4.weight 4.bias"),
    "bias": (images(dilation=2, padding=(1, 2)), IMAGE, "0.weight 0.bias 4.weight 4.bias"),
    "circular": (
        images(padding=1, padding_mode="circular"),
        *(IMAGE, "0.weight 0.bias 4.weight 4.bias"),
    ),
    "groups": (images(groups=2), IMAGE, "4.weight 4.bias"),
}


@pytest.mark.parametrize("name", CASES)
def test_gram_of_a_module(name: str) -> None:
    build, shape, expected = CASES[name]
    torch.manual_seed(0)
    module, inputs = build(), torch.randn(N, *shape, dtype=torch.float64)
    gradients = Margins(module, (inputs,), np.arange(N) % CLASSES, CLASSES)
    parameters = {
        k: part.clone().requires_grad_()
        for k, part in gradients.parameters(gradients.theta).items()
    }
    with WatchedProducts(parameters) as watched:
        torch.func.functional_call(module, parameters, (inputs,))
    assert set(watched.of_samples(N)) == {*expected.split()}
    chosen, others = np.array([5, 0, 13, 1, 8, 12]), np.array([2, 5, 0])
    J = gradients.rows(gradients.theta, np.arange(len(gradients.pairs)))
    scale = {next(iter(gradients.shapes)): 3.0}
    S = gradients.flat(
        {k: torch.full(shape, scale.get(k, 1.0)) for k, shape in gradients.shapes.items()}
    ).numpy()
    found = gradients.gram(gradients.theta, chosen, scale, others)
    np.testing.assert_allclose(found, (S * J[chosen]) @ (S * J[others]).T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("positions", "rows", "columns"), [(1, 3, 4), (9, 3, 4)])
def test_both_ways_to_inner_products(positions: int, rows: int, columns: int) -> None:
    """For one position by a masked Gram matrix, for several by the gradients themselves."""
    given = drawn(5, positions, columns)
    products = LayerProducts(drawn(8, positions, rows, seed=1), given, torch.arange(8) % 5)
    J = products.gradients()
    for pair, sample in enumerate(products.samples):
        by_hand = sum(
            torch.outer(products.slopes[pair, t], given[sample, t]) for t in range(positions)
        )
        assert torch.allclose(J[pair], torch.as_tensor(by_hand).reshape(-1))
    others = products.of(torch.tensor([6, 2, 2]))
    assert torch.allclose(products.gram(others), J @ J[[6, 2, 2]].T)
    order = torch.tensor([9, 3, 0])
    both = LayerProducts.joined([products, others], order)
    assert torch.allclose(both.gradients(), torch.cat([J, J[[6, 2, 2]]])[order])
    assert torch.allclose(
        products.times(torch.arange(8.0)).gradients(), torch.arange(8.0)[:, None] * J
    )
