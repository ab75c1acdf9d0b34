"""GaLU networks as torch modules: layers by hand, what is trained, general gates."""

from typing import Any

import pytest
import torch

from benchmarks.fiat2019.gated_layers import GatedLayers, Kind


def inputs(n: int = 5) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("kind", "gate", "gates_see"),
    [
        ("hard", lambda t: (t >= 0).float(), "previous"),
        ("sigmoid", torch.sigmoid, "input"),
        (torch.tanh, torch.tanh, "input"),
    ],
)
def test_gates_by_hand(kind: Kind, gate: Any, gates_see: Any) -> None:
    """GaLU0 looks at the network's input in all layers, GaLU at the layer before."""
    x = inputs()
    network: Any = GatedLayers(
        [3, 4, 4, 2], kind, bias=True, gates_see=gates_see, sharpness=2.0, seed=1
    )
    first, second, readout = network.layers
    one, two = network.filters
    hidden = first(x) * gate(x @ one[:, :3].T)
    seen = x if gates_see == "input" else hidden
    expected = readout(second(hidden) * gate(seen @ two[:, : seen.shape[1]].T))
    torch.testing.assert_close(network(x), expected)
    assert not network.filters.requires_grad


def test_at_least_as_expressive_as_relu() -> None:
    """f_w = g_{w, w}: with the weights for filters a GaLU network is the ReLU network."""
    x = inputs(50)
    relu: Any = GatedLayers([3, 4, 1], "relu", bias=False, seed=1)
    gated: Any = GatedLayers([3, 4, 1], "hard", bias=False, seed=1)
    gated.filters[0] = relu.layers[0].weight.detach()
    torch.testing.assert_close(gated(x), relu(x))
