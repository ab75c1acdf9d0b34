"""Stationarity: 0 at the KKT points with the SVM's multipliers, and not 0 elsewhere."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import implicit_bias as ib
from cases import ROUNDING, SOLVE_TOL, cloud, plain
from example_modules import (
    frozen,
    known,
    linear,
    of,
    own_labels,
    scale_weights,
    seeded,
    set_weights,
)
from implicit_bias.base.validation import Array
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.stationarity import (
    active_units,
    balance,
    kkt_measure,
    stationarity,
)
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts

X, Y = cloud()
N, D = X.shape
# Residuals are roots of gaps: an SVM solved to 1e-10 leaves 1e-5 of them.
KKT_TOLERANCE = 1e-4
CONTEXTS = HyperplaneContexts.random(X, 5, 1, random_state=3)


def frozen_relu(widths: list[int], seed: int = 3) -> FrozenGateReLU:
    return FrozenGateReLU(ReLUNetwork(D, widths, seed=seed))


GATED: dict[str, Callable[[], Network]] = {
    "gln": lambda: GLN([CONTEXTS], seed=2),
    "gln-four-contexts": lambda: GLN([HyperplaneContexts.random(X, 3, 2, random_state=3)], seed=2),
    "frozen-relu": lambda: frozen_relu([40]),
}


def program(network: Network) -> ib.MarginProblem:
    return network.architecture().problem(X, Y)


def at_limit(network: Network) -> tuple[Network, ib.Solution]:
    """Turn a network into the solution of its own margin problem."""
    solution = ib.solve(program(network), tol=SOLVE_TOL)
    solution.raise_for_status()
    set_weights(network, solution.coef)
    return network, solution


# --- gated networks in the limit -------------------------------------------------------------


@pytest.mark.parametrize("name", GATED)
def test_the_svm_is_a_kkt_point_with_its_dual_variables(name: str) -> None:
    network, solution = at_limit(GATED[name]())
    found = ib.certify_network(network, X, Y)
    point = known(found.stationarity)
    assert point.program.degree == 2.0
    assert point.residual < KKT_TOLERANCE
    assert point.slackness < KKT_TOLERANCE**2
    assert point.epsilon < KKT_TOLERANCE * point.program.size
    assert point.delta < KKT_TOLERANCE
    measures = {"residual": point.residual, "slackness": point.slackness}
    assert kkt_measure(X, Y)(network) == pytest.approx(measures, abs=1e-9)
    assert point.program.size**2 / 2 == pytest.approx(solution.certificate.upper)
    largest = solution.alpha.max()
    np.testing.assert_allclose(point.weights, solution.alpha, rtol=0, atol=1e-2 * largest)
    assert found.certificate is found.by_multipliers
    assert found.given.lower == 0.0
    np.testing.assert_allclose(found.problem.group_norms(network.coef()), found.unit_norms)
    assert found.certificate.gap < KKT_TOLERANCE
    assert found.certificate.upper == pytest.approx(solution.certificate.upper)
    assert found.balance < ROUNDING
    np.testing.assert_allclose(found.dual_norms[found.active], 1.0, atol=1e-3)
    assert (found.dual_norms < 1.001).all()
    np.testing.assert_array_equal(found.dead, np.flatnonzero(solution.group_norms < 1e-6))


def test_a_dead_unit_is_the_mark_of_another_stationary_point() -> None:
    """The SVM without its largest unit is a KKT point of the whole network, and not its optimum."""
    network = GATED["gln"]()
    whole = ib.solve(program(network), tol=SOLVE_TOL)
    victim = int(whole.group_norms.argmax())
    problem = program(network)
    gates = problem.gates * (problem.groups != victim)
    without = ib.solve(ib.MarginProblem(X, Y, gates, problem.groups), tol=SOLVE_TOL)
    set_weights(network, without.coef)

    found = ib.certify_network(network, X, Y)
    point = known(found.stationarity)
    assert point.residual < KKT_TOLERANCE
    assert point.slackness < KKT_TOLERANCE**2
    np.testing.assert_array_equal(found.dead, [victim])
    reach = found.dual_norms[victim]
    assert reach > 1.01
    excess = found.certificate.upper / whole.certificate.lower - 1.0
    assert found.certificate.gap == pytest.approx(reach - 1.0, abs=1e-3)
    assert found.certificate.gap > excess > 0.01
    tighter = ib.certify_network(network, X, Y, alpha=whole.alpha)
    assert tighter.certificate.gap == pytest.approx(excess, abs=KKT_TOLERANCE)
    np.testing.assert_array_equal(tighter.dual_norms, found.dual_norms)


def test_a_certificate_without_multipliers() -> None:
    network, solution = at_limit(GATED["gln"]())
    found = ib.certify_network(network, X, Y, alpha=solution.alpha, multipliers=False)
    assert found.certificate is found.given
    assert (found.by_multipliers, found.stationarity, found.obstacle) == (None, None, "")
    assert np.isnan(found.dual_norms).all()
    assert found.certificate.lower == pytest.approx(solution.certificate.lower)


# --- broken signs ----------------------------------------------------------------------------


def test_a_negative_multiplier_is_not_allowed() -> None:
    """Both samples are at the margin and span theta, but one of them would have to push back."""
    X, y = np.array([[1.0, 0.0], [10.0, 1.0]]), np.ones(2)
    found = stationarity(of(np.array([[1.0, -9.0]])), (torch.tensor(X),), y)
    np.testing.assert_allclose(found.program.margins, 1.0)
    np.testing.assert_allclose(found.weights, [1.0, 0.0], atol=1e-12)
    assert found.gap == pytest.approx(1 - 1 / 82)


def test_multipliers_away_from_the_margin_count_as_slackness() -> None:
    """Theta is a combination of the samples exactly, but one of them is not at the margin."""
    X, y = np.eye(2), np.ones(2)
    found = stationarity(of(np.array([[1.0, 3.0]])), (torch.tensor(X),), y)
    np.testing.assert_allclose(found.weights, [1.0, 1.0])
    assert found.epsilon == pytest.approx(2.0)
    assert found.delta == pytest.approx(2.0)
    assert found.residual == pytest.approx(2 / np.sqrt(10))
    assert found.slackness == pytest.approx(2 / 10)
    assert found.gap == pytest.approx(1 - 2 / 10)


def test_a_flipped_label_is_named() -> None:
    network, _ = at_limit(GATED["gln"]())
    y = Y.copy()
    y[7] *= -1.0
    with pytest.raises(ib.SeparationError, match="1 of 30 samples"):
        stationarity(network, network.prepare(X), y)
    assert np.isnan(list(kkt_measure(X, y)(network).values())).all()
    found = ib.certify_network(network, X, y)
    assert found.stationarity is None
    assert "1 of 30 samples" in found.obstacle
    assert np.isnan(found.dual_norms).all()
    assert (found.certificate.lower, found.certificate.upper) == (0.0, np.inf)
    assert ib.certify_network(network, X, y, alpha=np.ones(N)).certificate.lower > 0


# --- any module ------------------------------------------------------------------------------


def generic(build: Callable[[], nn.Module]) -> tuple[nn.Module, tuple[Tensor, ...], Array]:
    module = build()
    inputs = module.prepare(X) if isinstance(module, Network) else (torch.tensor(X),)
    return module, inputs, own_labels(module, *inputs)


MODULES: dict[str, tuple[float, Callable[[], nn.Module]]] = {
    "gln-deep": (3.0, lambda: GLN([CONTEXTS, CONTEXTS], seed=1)),
    "fixed-readout": (2.0, lambda: frozen(GLN([CONTEXTS, CONTEXTS], seed=1), "readout")),
    "relu-deep": (4.0, lambda: ReLUNetwork(D, [6, 5, 4], seed=1)),
    "float32": (2.0, lambda: ReLUNetwork(D, [6], seed=1, dtype=torch.float32)),
    "first-layer-bias": (2.0, lambda: seeded(nn.Sequential(nn.Linear(D, 9), nn.ReLU(), linear(9)))),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_gap_is_that_of_the_svm_on_the_gradients(name: str) -> None:
    degree, build = MODULES[name]
    module, inputs, y = generic(build)
    found = stationarity(module, inputs, y)
    assert found.program.degree == degree
    function = Margins(module, inputs, y)
    theta = function.theta * found.program.min_margin ** (-1 / degree)
    J = function.rows(theta, np.arange(N))
    np.testing.assert_allclose(J @ theta.numpy(), degree * found.program.margins, rtol=1e-6)
    size = float(theta.norm())
    assert (found.program.margins.min(), found.program.size) == pytest.approx((1.0, size))
    assert found.program.normalised_margin == pytest.approx(size**-degree)
    w = J.T @ found.weights
    assert found.epsilon == pytest.approx(np.linalg.norm(theta.numpy() - w))
    assert found.gap == pytest.approx(found.residual**2 + 2 * found.slackness, abs=1e-9)
    optimum = degree * ib.solve(plain(J, np.ones(N)), tol=SOLVE_TOL).certificate.lower
    assert found.program.size * np.sqrt(1 - found.gap) == pytest.approx(optimum, rel=1e-6)


@pytest.mark.parametrize(("name", "scale"), [("gln-deep", 30.0), ("relu-deep", 1e-3)])
def test_scale_invariance(name: str, scale: float) -> None:
    network, inputs, y = generic(MODULES[name][1])
    before = stationarity(network, inputs, y)
    scale_weights(network, scale)
    after = stationarity(network, inputs, y)
    factor = scale**before.program.degree
    assert after.program.min_margin == pytest.approx(before.program.min_margin * factor)
    for field in ("normalised_margin", "size"):
        expected = pytest.approx(getattr(before.program, field), rel=1e-6)
        assert getattr(after.program, field) == expected
    for field in ("epsilon", "delta", "residual", "slackness"):
        assert getattr(after, field) == pytest.approx(getattr(before, field), rel=1e-6)
    np.testing.assert_allclose(after.weights, before.weights, rtol=1e-6, atol=1e-9)


def biased(value: float) -> GLN:
    network = GLN([CONTEXTS], readout_bias=True, seed=2)
    assert network.readout_bias is not None
    nn.init.constant_(network.readout_bias, value)
    return network


def test_homogeneity_is_asked_before_separation() -> None:
    """A training that measures it is refused at step 0, not once the samples are separated."""
    network = biased(0.0)
    assert (Y * network.decision(X)).min() < 0
    with pytest.raises(ib.HomogeneityError):
        ib.train_to_limit(network, X, Y, ib.LimitConfig(steps=1), measure=kkt_measure(X, Y))


def test_a_network_with_a_readout_bias_gets_no_lower_bound() -> None:
    found = ib.certify_network(biased(0.1), X, own_labels(biased(0.1), *biased(0.1).prepare(X)))
    assert found.stationarity is None
    assert "not homogeneous" in found.obstacle
    assert found.certificate.lower == 0.0


def test_networks_without_a_margin_problem_have_no_certificate() -> None:
    with pytest.raises(TypeError, match="network_"):
        ib.certify_network(cast(Any, ib.GLNClassifier(3)), X, Y)
    with pytest.raises(ValueError, match="one hidden layer"):
        ib.certify_network(GLN([CONTEXTS, CONTEXTS]), X, Y)


# --- balance ---------------------------------------------------------------------------------


def test_balance_is_the_largest_deviation_of_an_active_unit() -> None:
    network, solution = at_limit(GATED["frozen-relu"]())
    unit, dead = int(solution.group_norms.argmax()), int(solution.group_norms.argmin())
    with torch.no_grad():
        network.readout[0, unit] *= -2.0
        network.hidden_weights[0][unit] /= 2.0
        network.readout[0, dead] = 0.0
    assert balance(network) == pytest.approx(3 / 4)


def test_of_units_that_are_all_0_none_is_active() -> None:
    assert not active_units(np.zeros(3)).any()
    assert active_units(np.array([1.0, 0.01, 0.009, 0.0])).tolist() == [True, True, False, False]


@pytest.mark.parametrize("longer", [0, 3])
def test_balance_of_deep_networks_looks_at_each_hidden_unit(longer: int) -> None:
    """Whichever of the layers has the longest weights."""
    network = GLN([CONTEXTS, CONTEXTS, CONTEXTS], seed=1)
    H, C = CONTEXTS.n_units, CONTEXTS.n_contexts
    weights = [*network.hidden_weights, network.readout]
    weights[longer].data.mul_(1e4)
    matrices = [p.detach().numpy() for p in weights]
    worst = 0.0
    for inward, outward in pairwise(matrices):
        for h in range(H):
            a = float(np.linalg.norm(inward[h * C : (h + 1) * C]))
            b = float(np.linalg.norm(outward[:, h]))
            worst = max(worst, abs(a - b) / max(a, b))
    assert balance(network) == pytest.approx(worst)
    assert worst > 0.1
