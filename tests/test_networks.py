"""Networks: against loops, autograd and the predictor of the margin problem.

Of two classes, and of `K`, whose networks share their hidden units or have their own.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from example_modules import scale_weights
from implicit_bias.base.validation import Array
from implicit_bias.modules.stationarity import layer_norms
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts

N_FEATURES, K = 5, 3
X = np.random.default_rng(0).normal(size=(23, N_FEATURES))
Y = np.arange(len(X)) % K


def contexts(n_units: int, n_hyperplanes: int = 1, seed: int = 0) -> HyperplaneContexts:
    return HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=seed)


def deep_gln(readout_bias: bool = False) -> GLN:
    return GLN([contexts(4, 2), contexts(3, 1, seed=1)], readout_bias=readout_bias, seed=2)


def drifted(widths: list[int], **options: Any) -> FrozenGateReLU:
    """Weights far from those that decide the gates."""
    network = FrozenGateReLU(ReLUNetwork(N_FEATURES, widths, seed=3, **options))
    other = ReLUNetwork(N_FEATURES, widths, seed=4, **options)
    network.load_state_dict(other.state_dict(), strict=False)
    return network


SHARED: dict[str, Any] = {"classes": K, "shared": True}
NETWORKS: dict[str, Callable[[], Network]] = {
    "gln": lambda: GLN([contexts(4, 2)]),
    "gln-bias": lambda: GLN([contexts(4, 2)], readout_bias=True),
    "gln-deep": deep_gln,
    "relu": lambda: ReLUNetwork(N_FEATURES, [4]),
    "relu-deep": lambda: ReLUNetwork(N_FEATURES, [4, 3, 2]),
    "frozen-deep": lambda: drifted([4, 3, 2]),
    "classes-gln-bias": lambda: GLN([contexts(4, 2)], classes=K, readout_bias=True),
    "classes-gln-shared": lambda: GLN([contexts(4, 2)], readout_bias=True, **SHARED),
    "classes-gln-deep-shared": lambda: GLN([contexts(4), contexts(3, seed=1)], **SHARED),
    "classes-relu-shared": lambda: ReLUNetwork(N_FEATURES, [4], **SHARED),
    "classes-frozen": lambda: drifted([4], classes=K),
}


def make(name: str) -> Network:
    """Make a network of the table, with a bias of 0.3, -0.2, 0.1 where it has one."""
    network = NETWORKS[name]()
    if network.readout_bias is not None:
        with torch.no_grad():
            bias = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
            network.readout_bias.copy_(bias[: network.readout_bias.numel()].squeeze())
    return network


def bias_of(network: Network) -> Array:
    """Bias of each output, (1,) or (K,)."""
    if network.readout_bias is None:
        return np.zeros(network.classes or 1)
    return np.atleast_1d(network.readout_bias.detach().numpy())


def samples(network: Network) -> tuple[Array, Any]:
    return X, Y if network.classes else 2 * (Y % 2) - 1


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    return make(request.param)


@pytest.fixture(params=[name for name in NETWORKS if "deep" not in name])
def shallow(request: pytest.FixtureRequest) -> Network:
    return make(request.param)


# --- outputs ---------------------------------------------------------------------------------


def loop(network: Network, x: Array) -> tuple[list[float], Array]:
    """One sample through the networks of all classes, unit by unit; and the last hidden outputs."""
    outputs = []
    readout = network.readout.detach().numpy()
    for k in range(network.classes or 1):
        previous = x
        frozen = x  # the outputs of the network that decides frozen gates
        for layer, weights in enumerate(network.hidden_weights):
            rows = len(weights) // network.n_networks
            start = k * rows if network.n_networks > 1 else 0
            products = weights.detach().numpy()[start : start + rows] @ previous
            if isinstance(network, GLN):
                gating = network.gatings[layer]
                previous = np.empty(gating.n_units)
                for h in range(gating.n_units):
                    context = 0
                    for normal, threshold in zip(
                        gating.weights[h], gating.thresholds[h], strict=True
                    ):
                        context = 2 * context + int(normal @ x > threshold)
                    previous[h] = products[h * gating.n_contexts + context]
            elif isinstance(network, FrozenGateReLU):
                gate_weights = network.gate_weights[layer].numpy()[start : start + rows]
                frozen = np.maximum(gate_weights @ frozen, 0.0)
                previous = products * (frozen > 0)
            else:
                previous = np.maximum(products, 0.0)
        outputs.append(float(readout[k] @ previous + bias_of(network)[k]))
    return outputs, previous


def test_outputs_equal_loops(network: Network) -> None:
    found = [loop(network, x) for x in X]
    expected = np.array([outputs for outputs, _ in found])
    if network.classes is None:
        hidden = np.array([activations for _, activations in found])
        np.testing.assert_allclose(network.hidden_activations(X), hidden, rtol=1e-12, atol=1e-14)
        expected = expected[:, 0]
    np.testing.assert_allclose(network.decision(X), expected, rtol=1e-12, atol=1e-14)


def test_outputs_and_norm_are_those_of_the_margin_problem(shallow: Network) -> None:
    architecture, coef = shallow.architecture(), shallow.coef()
    assert coef.shape[-2:] == (len(shallow.gating().groups), N_FEATURES)
    predicted = architecture.decision(X, coef) + bias_of(shallow)
    np.testing.assert_allclose(shallow.decision(X), predicted, rtol=1e-12, atol=1e-14)
    problem = architecture.problem(*samples(shallow), classes=shallow.classes)
    assert problem.norm.value(coef) == pytest.approx(shallow.norm(), rel=1e-12)
    norms = loop_norms(shallow)
    assert shallow.norm() == pytest.approx(sum(norms), rel=1e-12)
    if shallow.classes:
        found = problem.group_norms(coef)[shallow.unit_groups()]
        np.testing.assert_allclose(found, norms, rtol=1e-12)
    inward, outward = next(layer_norms(shallow))
    np.testing.assert_allclose(inward * outward, norms, rtol=1e-12)


def loop_norms(network: Network) -> list[float]:
    """Norm of each unit: |w_kh| ||W_kh|| of class k, or the nuclear norm of w_h (x) W_h."""
    readout = network.readout.detach().numpy()
    first = network.hidden_weights[0].detach().numpy()
    n_units = readout.shape[1]
    norms = []
    for j, block in enumerate(np.split(first, network.n_networks * n_units)):
        k, h = divmod(j, n_units)
        column = readout[k, h] if network.n_networks > 1 else readout[:, h]
        norms.append(float(np.linalg.norm(np.outer(column, block), "nuc")))
    return norms


# --- structure -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"classes": K}, SHARED, {"dtype": torch.float32}], ids=str)
def test_a_frozen_network_starts_as_the_live_one(options: dict[str, Any]) -> None:
    live = ReLUNetwork(N_FEATURES, [6, 4, 3], seed=1, **options)
    frozen = FrozenGateReLU(live)
    assert frozen.dtype == live.dtype
    values = live.decision(X)
    np.testing.assert_array_equal(frozen.decision(X), values)
    np.testing.assert_array_equal(
        frozen.gate_pattern(*frozen.prepare(X)), live.gate_pattern(*live.prepare(X))
    )
    scale_weights(live, -2.0)  # which the frozen one does not follow
    np.testing.assert_array_equal(frozen.decision(X), values)


def test_gate_patterns() -> None:
    deep = ReLUNetwork(N_FEATURES, [4, 3])
    first, second = (weights.detach().numpy() for weights in deep.hidden_weights)
    hidden = np.maximum(X @ first.T, 0)
    on = np.hstack([hidden > 0, hidden @ second.T > 0])
    np.testing.assert_array_equal(deep.gate_pattern(*deep.prepare(X)), on)

    network = deep_gln()
    pattern = network.gate_pattern(*network.prepare(X)).numpy()
    assert pattern.shape == (len(X), 4 + 3)
    np.testing.assert_array_equal(pattern[:, :4] % 4, network.gatings[0].contexts(X))
    np.testing.assert_array_equal(pattern[:, 4:] % 2, network.gatings[1].contexts(X))


def test_a_deep_network_has_no_margin_structure() -> None:
    network = deep_gln()
    assert not network.has_margin_structure
    with pytest.raises(ValueError, match="one hidden layer"):
        network.coef()


def test_networks_of_classes_with_gates_of_their_own_are_relaxed() -> None:
    assert not GLN([contexts(4)], classes=K).relaxed
    assert ReLUNetwork(N_FEATURES, [4], classes=K).relaxed
    assert ReLUNetwork(N_FEATURES, [4], **SHARED).relaxed
    assert not ReLUNetwork(N_FEATURES, [4], classes=2, shared=True).relaxed
    assert GLN([contexts(4)]).readout_bias_value == 0.0


def test_homogeneity(network: Network) -> None:
    assert network.homogeneous == (network.readout_bias is None)
    values, norm = network.decision(X), network.norm()
    scale_weights(network, 3.0)
    factor = 3.0**network.n_layers
    assert np.allclose(network.decision(X), factor * values) == network.homogeneous
    assert network.norm() == pytest.approx(factor * norm)


# --- initialization --------------------------------------------------------------------------


def test_the_seed_sets_the_weights_and_the_global_generator_stays() -> None:
    state = torch.get_rng_state()
    seeds: tuple[Any, ...] = (1, np.int64(1), 2)
    first, again, other = (ReLUNetwork(N_FEATURES, [4], seed=seed) for seed in seeds)
    GLN([contexts(4)])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.readout, again.readout)
    assert not torch.equal(first.readout, other.readout)


# --- refusals --------------------------------------------------------------------------------


def test_impossible_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="same inputs"):
        GLN([contexts(2), HyperplaneContexts.random(X[:, :3], 2)])
    with pytest.raises(ValueError, match="dtype"):
        ReLUNetwork(N_FEATURES, [3], dtype=torch.float16)


def test_inputs_are_checked() -> None:
    network = deep_gln()
    with pytest.raises(ValueError, match="labels"):
        network.prepare_samples(X, Y + 0.5)
    with pytest.raises(ValueError, match="features"):
        network.decision(X[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        network.prepare(np.full((2, N_FEATURES), np.nan))


def test_the_norm_of_a_network_that_has_diverged_is_infinite() -> None:
    network = ReLUNetwork(2, [3, 3], seed=0)
    for weights in network.parameters():
        torch.nn.init.constant_(weights, 1e150)
    assert network.norm() == math.inf
