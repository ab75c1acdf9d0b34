"""Networks: against loops, autograd and the predictor of the margin problem."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from implicit_bias.gating import HyperplaneContexts
from implicit_bias.networks import GLN, Network, ReLUNetwork
from implicit_bias.problem import BLOCK, gated_linear
from implicit_bias.validation import Array

N_FEATURES = 5
X = np.random.default_rng(0).normal(size=(23, N_FEATURES))


def contexts(n_units: int, n_hyperplanes: int = 1, seed: int = 0) -> HyperplaneContexts:
    return HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=seed)


def deep_gln(readout_bias: bool = False) -> GLN:
    return GLN([contexts(4, 2), contexts(3, 1, seed=1)], readout_bias=readout_bias, seed=2)


NETWORKS: dict[str, Callable[[], Network]] = {
    "gln": lambda: GLN([contexts(4, 2)]),
    "gln-bias": lambda: GLN([contexts(4, 2)], readout_bias=True),
    "gln-deep": deep_gln,
    "relu": lambda: ReLUNetwork(N_FEATURES, [4]),
    "relu-deep": lambda: ReLUNetwork(N_FEATURES, [4, 3, 2]),
}
ONE_HIDDEN_LAYER = ["gln", "gln-bias", "relu"]


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    return NETWORKS[request.param]()


@pytest.fixture(params=ONE_HIDDEN_LAYER)
def shallow(request: pytest.FixtureRequest) -> Network:
    return NETWORKS[request.param]()


def set_bias(network: Network, value: float) -> None:
    if network.readout_bias is not None:
        torch.nn.init.constant_(network.readout_bias, value)


def scale_weights(network: Network, factor: float) -> None:
    with torch.no_grad():
        for weights in network.parameters():
            weights.mul_(factor)


# --- outputs ---------------------------------------------------------------------------------


def loop_gln(network: GLN, x: Array) -> float:
    """One sample through a GLN, unit by unit, hyperplane by hyperplane."""
    outputs = x
    for gating, layer in zip(network.gatings, network.hidden_weights, strict=True):
        units = []
        for h in range(gating.n_units):
            context = 0
            for normal, threshold in zip(gating.weights[h], gating.thresholds[h], strict=True):
                context = 2 * context + int(normal @ x > threshold)
            row = layer.detach().numpy()[h * gating.n_contexts + context]
            units.append(sum(weight * value for weight, value in zip(row, outputs, strict=True)))
        outputs = np.array(units)
    return float(network.readout.detach().numpy()[0] @ outputs + network.readout_bias_value)


@pytest.mark.parametrize("name", ["gln", "gln-bias", "gln-deep"])
def test_gln_equals_a_loop(name: str) -> None:
    network = NETWORKS[name]()
    assert isinstance(network, GLN)
    set_bias(network, 0.7)
    np.testing.assert_allclose(network.decision(X), [loop_gln(network, x) for x in X], rtol=1e-12)


def test_relu_network_equals_its_formula() -> None:
    network = ReLUNetwork(N_FEATURES, [4, 3], seed=1)
    first, second = (weights.detach().numpy() for weights in network.hidden_weights)
    hidden = np.maximum(np.maximum(X @ first.T, 0) @ second.T, 0)
    np.testing.assert_allclose(network.hidden_activations(X), hidden, rtol=1e-12)
    np.testing.assert_allclose(
        network.decision(X), hidden @ network.readout.detach().numpy()[0], rtol=1e-12
    )


def test_outputs_are_those_of_the_margin_structure(shallow: Network) -> None:
    set_bias(shallow, -0.3)
    coef = shallow.coef()
    assert coef.shape == (len(shallow.gating().groups), N_FEATURES)
    predicted = gated_linear(X, shallow.gating().gates(X), coef) + shallow.readout_bias_value
    np.testing.assert_allclose(shallow.decision(X), predicted, rtol=1e-12)


def test_hidden_activations_give_the_output(network: Network) -> None:
    hidden = network.hidden_activations(X)
    assert hidden.shape == (len(X), network.readout.shape[1])
    np.testing.assert_allclose(
        network.decision(X), hidden @ network.readout.detach().numpy()[0], rtol=1e-12
    )


def test_a_batch_is_an_index_into_what_was_prepared(network: Network) -> None:
    prepared = network.prepare(X)
    batch = torch.tensor([5, 0, 22])
    outputs = network(*(t[batch] for t in prepared)).detach().numpy()
    np.testing.assert_allclose(outputs, network.decision(X)[batch.numpy()], rtol=1e-12)


def test_decision_by_blocks_of_rows() -> None:
    network = deep_gln()
    many = np.random.default_rng(1).normal(size=(BLOCK + 7, N_FEATURES))
    values = network.decision(many)
    assert values.shape == (BLOCK + 7,)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values[-3:], network.decision(many[-3:]), rtol=1e-12)
    assert network.decision(many[:0]).shape == (0,)


def test_single_precision() -> None:
    single = GLN([contexts(4)], dtype=torch.float32)
    assert single.decision(X).dtype == np.float64
    predicted = gated_linear(X, single.gating().gates(X), single.coef())
    np.testing.assert_allclose(single.decision(X), predicted, atol=1e-5)
    relu = ReLUNetwork(N_FEATURES, [4], dtype=torch.float32)
    predicted = gated_linear(X, relu.gating().gates(X), relu.coef())
    np.testing.assert_allclose(relu.decision(X), predicted, atol=1e-5)


# --- structure -------------------------------------------------------------------------------


def test_one_unit_without_hyperplanes_is_linear() -> None:
    network = GLN([contexts(1, 0)])
    assert network.hidden_weights[0].shape == (1, N_FEATURES)
    np.testing.assert_allclose(network.decision(X), X @ network.coef()[0], rtol=1e-12)


def test_deep_gln_is_linear_where_no_context_changes() -> None:
    network = deep_gln()
    inputs, *rows = network.prepare(X)
    same = [layer[:1].expand(len(X), -1) for layer in rows]  # the contexts of sample 0
    outputs = network(inputs, *same).detach().numpy()
    residual = np.linalg.lstsq(X, outputs, rcond=None)[1]
    assert residual < 1e-20


def test_gating_of_a_relu_network_is_its_activation_pattern() -> None:
    network = ReLUNetwork(N_FEATURES, [4])
    gates = network.gating().gates(X)
    np.testing.assert_array_equal(gates, network.hidden_activations(X) > 0)
    np.testing.assert_array_equal(network.gating().groups, np.arange(4))


def test_what_is_handed_out_does_not_follow_the_training() -> None:
    network = ReLUNetwork(N_FEATURES, [4])
    gating, coef = network.gating(), network.coef()
    gates, before = gating.gates(X), coef.copy()
    scale_weights(network, -1.0)
    np.testing.assert_array_equal(gating.gates(X), gates)
    np.testing.assert_array_equal(coef, before)


@pytest.mark.parametrize("name", ["gln-deep", "relu-deep"])
def test_deep_networks_have_no_margin_structure(name: str) -> None:
    network = NETWORKS[name]()
    assert not network.has_margin_structure
    with pytest.raises(ValueError, match="use one hidden layer"):
        network.coef()
    with pytest.raises(ValueError, match="use one hidden layer"):
        network.gating()


def test_homogeneity(network: Network) -> None:
    assert network.homogeneous == (network.readout_bias is None)
    set_bias(network, 1.0)
    values, norm = network.decision(X), network.norm()
    scale_weights(network, 3.0)
    factor = 3.0**network.n_layers
    assert np.allclose(network.decision(X), factor * values) == network.homogeneous
    assert network.norm() == pytest.approx(factor * norm)


def test_norm_of_one_hidden_layer_is_the_group_norm(shallow: Network) -> None:
    coef, groups = shallow.coef(), shallow.gating().groups
    expected = sum(np.linalg.norm(coef[groups == g]) for g in np.unique(groups))
    assert shallow.norm() == pytest.approx(expected)


def test_norm_of_deeper_networks() -> None:
    network = ReLUNetwork(N_FEATURES, [4, 3])
    squares = sum(float(weights.detach().square().sum()) for weights in network.parameters())
    assert network.norm() == pytest.approx((squares / 3) ** 1.5)


def test_gates_are_no_parameters() -> None:
    shapes = [tuple(weights.shape) for weights in deep_gln(readout_bias=True).parameters()]
    assert sorted(shapes) == sorted([(4 * 4, N_FEATURES), (3 * 2, 4), (1, 3), ()])


# --- gradient --------------------------------------------------------------------------------


def test_gradient_is_that_of_the_gate_formula() -> None:
    network = GLN([contexts(4, 2)])
    torch.autograd.backward(network(*network.prepare(X)).square().sum())

    first = network.hidden_weights[0].detach().clone().requires_grad_()
    readout = network.readout.detach().clone().requires_grad_()
    gates = torch.tensor(network.gatings[0].gates(X).toarray())
    coef = readout[0].repeat_interleave(4)[:, None] * first
    torch.autograd.backward(
        torch.einsum("nm,md,nd->n", gates, coef, torch.tensor(X)).square().sum()
    )

    torch.testing.assert_close(network.hidden_weights[0].grad, first.grad)
    torch.testing.assert_close(network.readout.grad, readout.grad)


# --- initialisation --------------------------------------------------------------------------


def test_orthogonal_initialisation() -> None:
    network = GLN([contexts(2, 1)])
    first, readout = network.hidden_weights[0].detach(), network.readout.detach()
    torch.testing.assert_close(first @ first.T, torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(readout @ readout.T, torch.eye(1, dtype=torch.float64))


def test_the_seed_sets_the_weights_and_the_global_generator_stays() -> None:
    state = torch.get_rng_state()
    first, again, other = (ReLUNetwork(N_FEATURES, [4], seed=seed) for seed in (1, 1, 2))
    GLN([contexts(4)])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.readout, again.readout)
    assert not torch.equal(first.readout, other.readout)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GLN([]), "one gating a hidden layer"),
        (
            lambda: GLN([contexts(2), HyperplaneContexts.random(X[:, :3], 2)]),
            r"all of the same inputs.*\[3, 5\]",
        ),
        (lambda: ReLUNetwork(N_FEATURES, []), "one hidden layer"),
        (lambda: ReLUNetwork(N_FEATURES, [3, 0]), "one unit"),
        (
            lambda: ReLUNetwork(N_FEATURES, [3], init="uniform"),  # type: ignore[arg-type]
            "init must be one of",
        ),
        (lambda: ReLUNetwork(N_FEATURES, [3], dtype=torch.float16), "dtype must be"),
    ],
)
def test_impossible_networks_are_refused(build: Callable[[], Network], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_inputs_are_checked(network: Network) -> None:
    with pytest.raises(ValueError, match="features"):
        network.decision(X[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        network.prepare(np.full((2, N_FEATURES), np.nan))
