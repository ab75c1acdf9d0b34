"""Networks of many classes: against loops over classes and units, and networks of two classes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from implicit_bias import solve
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import certify
from implicit_bias.measure.stationarity import balance, certify_network, layer_norms, stationarity
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts

K, D = 3, 5
X = np.random.default_rng(0).normal(size=(20, D))
Y = np.arange(20) % K


def contexts(n_units: int, n_hyperplanes: int = 1, seed: int = 0) -> HyperplaneContexts:
    return HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=seed)


def drifted(shared: bool) -> FrozenGateReLU:
    """Weights far from those that decide the gates."""
    network = FrozenGateReLU(ReLUNetwork(D, [4], classes=K, shared=shared, seed=3))
    other = ReLUNetwork(D, [4], classes=K, shared=shared, seed=4)
    network.load_state_dict(other.state_dict(), strict=False)
    return network


NETWORKS: dict[str, Callable[[], Network]] = {
    "gln": lambda: GLN([contexts(4, 2)], classes=K),
    "gln-bias": lambda: GLN([contexts(4, 2)], classes=K, readout_bias=True),
    "gln-shared": lambda: GLN([contexts(4, 2)], classes=K, shared=True, readout_bias=True),
    "gln-deep": lambda: GLN([contexts(4, 2), contexts(3, 1, seed=1)], classes=K),
    "gln-deep-shared": lambda: GLN([contexts(4), contexts(3, seed=1)], classes=K, shared=True),
    "relu": lambda: ReLUNetwork(D, [4], classes=K),
    "relu-shared": lambda: ReLUNetwork(D, [4], classes=K, shared=True),
    "relu-deep": lambda: ReLUNetwork(D, [4, 3], classes=K),
    "frozen": lambda: drifted(shared=False),
    "frozen-shared": lambda: drifted(shared=True),
}
ONE_HIDDEN_LAYER = [name for name in NETWORKS if "deep" not in name]


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    return with_bias(NETWORKS[request.param]())


@pytest.fixture(params=ONE_HIDDEN_LAYER)
def shallow(request: pytest.FixtureRequest) -> Network:
    return with_bias(NETWORKS[request.param]())


def with_bias(network: Network) -> Network:
    if network.readout_bias is not None:
        with torch.no_grad():
            network.readout_bias.copy_(torch.tensor([0.3, -0.2, 0.1]))
    return network


def loop_gates(network: Network, layer: int, x: Array, products: Array, unit: int) -> float:
    """Output of one unit from its products with the layer before it, (C,)."""
    if isinstance(network, GLN):
        gating = network.gatings[layer]
        h, context = unit % gating.n_units, 0
        for normal, threshold in zip(gating.weights[h], gating.thresholds[h], strict=True):
            context = 2 * context + int(normal @ x > threshold)
        return float(products[context])
    if isinstance(network, FrozenGateReLU):  # of one hidden layer
        return float(products[0] * (network.gate_weights[0][unit].numpy() @ x > 0))
    return max(0.0, float(products[0]))


def loop(network: Network, x: Array) -> list[float]:
    """One sample through the networks of all classes, unit by unit."""
    outputs = []
    bias = np.zeros(K) if network.readout_bias is None else network.readout_bias.detach().numpy()
    for k in range(K):
        previous = x
        for layer, weights in enumerate(network.hidden_weights):
            matrix = weights.detach().numpy()
            rows = len(matrix) // network.n_networks
            n_contexts = network.gatings[layer].n_contexts if isinstance(network, GLN) else 1
            first = 0 if network.shared else k * rows
            units = []
            for start in range(first, first + rows, n_contexts):
                products = matrix[start : start + n_contexts] @ previous
                units.append(loop_gates(network, layer, x, products, start // n_contexts))
            previous = np.array(units)
        outputs.append(float(network.readout.detach().numpy()[k] @ previous + bias[k]))
    return outputs


def test_outputs_equal_loops(network: Network) -> None:
    decision = network.decision(X)
    assert decision.shape == (len(X), K)
    np.testing.assert_allclose(decision, [loop(network, x) for x in X], rtol=1e-12, atol=1e-14)
    batch = torch.tensor([5, 0, 19])
    some = network(*(t[batch] for t in network.prepare(X))).detach().numpy()
    np.testing.assert_allclose(some, decision[batch.numpy()], rtol=1e-12)


def test_outputs_and_norm_are_those_of_the_margin_problem(shallow: Network) -> None:
    architecture, coef = shallow.architecture(), shallow.coef()
    bias = 0.0 if shallow.readout_bias is None else shallow.readout_bias.detach().numpy()
    assert coef.shape == (K, len(shallow.gating().groups), D)
    predicted = architecture.decision(X, coef) + bias
    np.testing.assert_allclose(shallow.decision(X), predicted, rtol=1e-12, atol=1e-14)
    problem = architecture.problem(X, Y, classes=K)
    assert problem.group_norms(coef).sum() == pytest.approx(shallow.norm(), rel=1e-12)
    found = problem.group_norms(coef)[shallow.unit_groups()]
    np.testing.assert_allclose(found, loop_norms(shallow), rtol=1e-12)


def loop_norms(network: Network) -> list[float]:
    """Norm of each unit: |w_kh| ||W_kh|| of class k, or the nuclear norm of w_h (x) W_h."""
    readout = network.readout.detach().numpy()
    n_units = readout.shape[1]
    first = network.hidden_weights[0].detach().numpy()
    blocks = [first[rows] for rows in np.split(np.arange(len(first)), network.n_networks * n_units)]
    if not network.shared:
        return [
            abs(readout[k, h]) * float(np.linalg.norm(blocks[k * n_units + h]))
            for k in range(K)
            for h in range(n_units)
        ]
    matrices = [np.outer(readout[:, h], blocks[h].ravel()) for h in range(n_units)]
    return [float(np.linalg.svd(matrix, compute_uv=False).sum()) for matrix in matrices]


def test_groups_are_one_a_class_and_unit() -> None:
    gln = NETWORKS["gln"]()
    assert gln.architecture().problem(X, Y, classes=K).n_groups == K * 4
    np.testing.assert_array_equal(gln.unit_groups(), np.arange(K * 4))
    assert NETWORKS["gln-shared"]().architecture().problem(X, Y, classes=K).n_groups == 4
    relu = NETWORKS["relu"]()
    assert relu.architecture().problem(X, Y, classes=K).n_groups == K * K * 4
    expected = [k * K * 4 + k * 4 + h for k in range(K) for h in range(4)]
    assert relu.unit_groups().tolist() == expected
    relaxed = {name: make().relaxed for name, make in NETWORKS.items()}
    assert {name for name, value in relaxed.items() if not value} == {"gln", "gln-bias", "gln-deep"}


def test_the_first_class_has_the_weights_of_a_network_of_two_classes() -> None:
    many, one = GLN([contexts(4, 2)], classes=K, seed=5), GLN([contexts(4, 2)], seed=5)
    first = len(one.hidden_weights[0])
    assert torch.equal(many.hidden_weights[0][:first], one.hidden_weights[0])
    assert torch.equal(many.readout[:1], one.readout)
    blocks = many.hidden_weights[0].reshape(K, first, D)
    assert not torch.equal(blocks[0], blocks[1])


def test_two_classes_are_the_binary_network() -> None:
    """F = f_1 - f_0: margins, norm and bounds agree, up to the factors of the two programs."""
    y = Y % 2
    two = GLN([contexts(4)], classes=2, seed=1)
    with torch.no_grad():  # W_0 = W_1, w_0 = -w_1: then f_1 = -f_0
        half = len(two.hidden_weights[0]) // 2
        two.hidden_weights[0][:half] = two.hidden_weights[0][half:]
        two.readout[0] = -two.readout[1]
    one = GLN([contexts(4)])
    one.load_state_dict(
        {"hidden_weights.0": two.hidden_weights[0][half:], "readout": two.readout[1:]}
    )
    np.testing.assert_allclose(
        two.decision(X), np.column_stack([-one.decision(X), one.decision(X)])
    )
    _, labels = two.prepare_samples(X, y)
    _, signs = one.prepare_samples(X, 2 * y - 1)
    margins = [n.smallest_margin(n(*n.prepare(X)), t) for n, t in ((two, labels), (one, signs))]
    assert margins[0] == pytest.approx(2 * margins[1])
    assert two.norm() == pytest.approx(2 * one.norm())
    many, binary = (
        solve(n.architecture().problem(X, t, classes=n.classes), tol=1e-9)
        for n, t in ((two, y), (one, 2 * y - 1))
    )
    # Groups of each class: both classes pay for half of the binary coefficients.
    assert many.certificate.upper == pytest.approx(binary.certificate.upper, rel=1e-7)


def test_permuted_classes_permute_everything(shallow: Network) -> None:
    order = np.array([2, 0, 1])
    problem = shallow.architecture().problem(X, Y, classes=K)
    other = shallow.architecture().problem(X, np.argsort(order)[Y], classes=K)
    coef = shallow.coef()
    np.testing.assert_allclose(
        problem.margins(problem.decision(coef)), other.margins(other.decision(coef[order]))
    )
    assert other.norm.value(coef[order]) == pytest.approx(shallow.norm())


def test_smallest_margin_is_that_of_a_loop(network: Network) -> None:
    inputs, labels = network.prepare_samples(X, Y)
    bias = 0.0 if network.readout_bias is None else network.readout_bias.detach().numpy()
    decision = network.decision(X) - bias
    expected = min(
        f[y] - f[k] for f, y in zip(decision, Y, strict=True) for k in range(K) if k != y
    )
    assert network.smallest_margin(network(*inputs), labels) == pytest.approx(expected)
    assert labels.dtype == torch.int64


def test_a_unit_of_all_networks_predicts_by_itself() -> None:
    network = NETWORKS["gln-deep"]()
    inputs = network.prepare(X)
    outputs = network.unit_outputs(*inputs)
    assert outputs.shape == (len(X), 4 + 3 + 1, K)
    first, second = (layer.detach() for layer in network.hidden_layers(*inputs))
    for k in range(K):
        torch.testing.assert_close(outputs[:, :4, k], first[:, 4 * k : 4 * k + 4])
        torch.testing.assert_close(outputs[:, 4:7, k], second[:, 3 * k : 3 * k + 3])
    torch.testing.assert_close(outputs[:, 7], network(*inputs))
    (gradient,) = torch.autograd.grad(outputs[:, 2, 1].sum(), network.hidden_weights[0])
    moved = torch.nonzero(gradient.abs().sum(dim=1)).flatten().tolist()
    assert set(moved) <= {(4 + 2) * 4 + c for c in range(4)}
    with pytest.raises(ValueError, match="shared"):
        NETWORKS["gln-shared"]().unit_outputs(*inputs[:2])


def test_a_frozen_copy_starts_as_its_network() -> None:
    for shared in (False, True):
        relu = ReLUNetwork(D, [4, 3], classes=K, shared=shared, seed=2)
        np.testing.assert_allclose(FrozenGateReLU(relu).decision(X), relu.decision(X))


def test_balance_is_that_of_loops(shallow: Network) -> None:
    inward, outward = next(layer_norms(shallow))
    np.testing.assert_allclose(inward * outward, loop_norms(shallow), rtol=1e-12)
    active = inward * outward >= 0.01 * (inward * outward).max()
    apart = (np.abs(inward - outward) / np.maximum(inward, outward))[active]
    assert balance(shallow) == pytest.approx(apart.max())


def test_bounds_of_a_network_hold() -> None:
    rng = np.random.default_rng(1)
    centres = 3.0 * rng.normal(size=(K, D))
    points = centres[Y] + 0.3 * rng.normal(size=(len(Y), D))
    network = GLN([HyperplaneContexts.random(points, 4, random_state=0)], classes=K)
    with torch.no_grad():  # each class's network is that of its centre
        network.readout.fill_(1.0)
        network.hidden_weights[0].copy_(torch.tensor(centres).repeat_interleave(8, dim=0))
    found = certify_network(network, points, Y)
    optimum = solve(found.problem, tol=1e-9).certificate
    assert found.stationarity is not None
    assert found.by_multipliers is not None
    assert 0 < found.by_multipliers.lower <= optimum.upper
    assert found.certificate.upper >= optimum.lower
    assert found.certificate.upper == pytest.approx(network.norm() / found.stationarity.min_margin)
    assert 0 < found.stationarity.gap <= 1
    assert found.unit_norms.shape == found.dual_norms.shape == (K * 4,)
    again = certify(found.problem, network.coef())
    assert again.upper == found.certificate.upper
    with pytest.raises(ValueError, match="labels"):
        stationarity(network, network.prepare(points), 2 * (Y % 2) - 1, classes=K)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="classes"):
        ReLUNetwork(D, [4], shared=True)
    with pytest.raises(ValueError, match="classes"):
        ReLUNetwork(D, [4], classes=1)
    with pytest.raises(ValueError, match="labels"):
        NETWORKS["gln"]().prepare_samples(X, 2 * (Y % 2) - 1)
