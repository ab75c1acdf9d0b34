"""What lies beyond a KKT point: other units, the optimum in function space; and how it is shown."""

import html
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cases import clusters
from example_modules import Computed, known, layers, of, own_labels, set_weights
from implicit_bias import Diagnosis, MarginProblem, diagnose, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis.function_space import FourierL1, FunctionSpace, in_function_space
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.networks import GLN
from implicit_bias.norms import LInf, Spectral
from implicit_bias.norms.tensors import ComposedNorm, as_parameter_norm
from implicit_bias.problem.gating import HyperplaneContexts, dense


def relu(hidden: Any, readout: Any) -> nn.Module:
    """Two layers of these weights."""
    return of(np.array(hidden), np.array(readout), between=nn.ReLU)


def random_relu() -> tuple[Array, nn.Module, Any]:
    """Return inputs, two layers, and the labels that they give."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(15, 4))
    module = relu(rng.normal(size=(5, 4)), rng.normal(size=(1, 5)))
    return X, module, own_labels(module, torch.tensor(X))


# --- one more unit ---------------------------------------------------------------------------

SAMPLES = np.array([[1.0, -3.0], [1.0, 0.0], [1.0, 3.0]])


def test_a_unit_that_some_multipliers_suggest_is_not_claimed() -> None:
    """The network is the best one, which only the multipliers (0, 1, 0) prove."""
    found = diagnose(relu([[1.0, 0.0]], [[1.0]]), SAMPLES, [1, 1, 1])
    assert found.gap < 1e-9
    escape = known(found.escape)
    assert not escape.claimed
    assert escape.saving == 0.0
    # Euclidean pulls of the two candidates in DESIGN's example
    pull = SAMPLES.T @ (np.array([0.5, 0.0, 0.5]) * (SAMPLES @ [0.1, 0.995] > 0))
    assert np.linalg.norm(pull) == pytest.approx(1.58, abs=5e-3)


@pytest.mark.slow
def test_a_unit_that_helps_is_claimed_with_its_saving() -> None:
    """One unit for two far samples and the near one; a unit of the far one's own is cheaper."""
    X, y = np.array([[1.0, 3.0], [1.0, -3.0]]), [1, 1]
    # By symmetry the unit (1, 0) is a KKT point; one unit a sample has norm 2 / sqrt 10 < 1.
    found = diagnose(relu([[1.0, 0.0]], [[1.0]]), X, y)
    assert found.gap < 1e-9
    escape = known(found.escape)
    assert escape.pull > 1.5
    assert escape.claimed
    assert escape.unit is not None
    assert "one more ReLU unit" in found.verdict
    assert 0 < escape.saving < 1 - (2 / np.sqrt(10)) ** 0.5 + 1e-6


def test_far_from_a_kkt_point_nobody_asks() -> None:
    assert diagnose(relu([[3.0, 2.0]], [[1.0]]), SAMPLES[1:], [1, 1]).escape is None


# --- function space --------------------------------------------------------------------------


def cloud(classes: int = 2) -> tuple[Array, Any]:
    return clusters(12, 4, classes, spread=0.2, seed=0)


@pytest.mark.every(5)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("norm", ["l2", "l1", "linf", "spectral"])
def test_the_excess_of_a_linear_classifier(classes: int, norm: str) -> None:
    X, y = cloud(classes)
    if classes == 2:
        w = solve(max_margin(X, 2.0 * y - 1.0)).coef[0] / 2
        W = np.stack([-w, w])
    else:
        W = solve(max_margin(X, y)).coef[:, 0]
    W = W + 0.02 * np.abs(W).max() * np.random.default_rng(1).normal(size=W.shape)
    found = diagnose(of(W), X, y, norm=norm)
    space = known(found.function_space)
    certificate = known(space.certificate)
    assert space.value == pytest.approx(found.parameter_norm)
    # the parameters are the predictor, so the gap is that of the certified optimum
    optimum = found.parameter_norm * np.sqrt(1 - found.gap)
    assert certificate.lower <= optimum * (1 + 1e-6)
    assert certificate.upper >= optimum * (1 - 1e-6)
    assert space.excess == pytest.approx((1 - found.gap) ** -0.5 - 1, rel=1e-4)


def powers(power: int, made: Callable[[Tensor], Tensor] = Tensor.clone) -> nn.Module:
    """<u^p - v^p, x>, or what is made of the predictor."""
    u, v = torch.tensor([[1.0, 2.0, 0.5, 1.0], [0.2, 0.1, 0.7, 0.3]]).double()
    return Computed(lambda m, x: x @ made(m.u**power - m.v**power), u=u, v=v).eval()


def own(module: nn.Module, X: Array) -> Diagnosis:
    return diagnose(module, X, own_labels(module, torch.tensor(X)))


def space_of(module: nn.Module, X: Array, y: Any, norm: Any) -> FunctionSpace:
    subject = Subject.of(margins_of(module.eval(), torch.tensor(X), torch.tensor(y)))
    return known(in_function_space(subject.at_margin_1(as_parameter_norm(norm))))


def deep_linear(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    return layers(*sizes, between=None).double()


@pytest.mark.parametrize("inner", [(3,), (3, 3)])
def test_deep_linear_networks_in_spectral_geometry(inner: tuple[int, ...]) -> None:
    """Spectral descent brings the product towards the largest spectral margin, at any depth."""
    X, y = cloud(3)
    inputs, own = torch.tensor(X), torch.eye(3, dtype=torch.bool)[y]
    module = deep_linear(4, *inner, 3)
    for step in range(1, 301):
        module.zero_grad()
        outputs = module(inputs)
        (outputs - outputs[own][:, None])[~own].logsumexp(0).backward()
        for weight in module.parameters():
            U, _, Vt = torch.linalg.svd(known(weight.grad), full_matrices=False)
            weight.data -= 0.1 / step**0.5 * U @ Vt
    space = space_of(module, X, y, "spectral")
    optimum = solve(max_margin(X, y, "spectral")).certificate
    assert (space.family, space.norm, space.obstacle) == ("deep linear", "spectral", "")
    assert known(space.certificate).lower == pytest.approx(optimum.lower, rel=1e-5)
    assert -1e-9 <= space.excess < 0.3


@pytest.mark.parametrize(
    ("sizes", "geometry", "expected", "convex"),
    [
        ((4, 3, 3), ComposedNorm(Spectral(), LInf(), scale={"0": 3.0}), "spectral", True),
        ((4, 3, 3), "nuclear", "Schatten 0.5", False),
        ((4, 3, 3, 3), "l2", "Schatten 0.667", False),
        ((4, 3, 1), "spectral", "l2", True),
        ((4, 3, 1), "nuclear", "l2", True),
    ],
)
def test_the_norm_of_a_deep_linear_network(
    sizes: tuple[int, ...], geometry: Any, expected: str, convex: bool
) -> None:
    X, module = np.random.default_rng(3).normal(size=(40, 4)), deep_linear(*sizes)
    space = space_of(module, X, own_labels(module, torch.tensor(X)), geometry)
    assert (space.family, space.norm) == ("deep linear", expected)
    assert (space.certificate is not None) == convex
    assert not space.excess < 0


def test_a_deep_linear_network_that_is_too_narrow_is_told() -> None:
    """Two hidden units tell four classes apart, though an optimum may have rank three."""
    rng = np.random.default_rng(3)
    X, module = (
        rng.normal(size=(40, 4)),
        of(rng.normal(size=(2, 4)), np.vstack([np.eye(2), -np.eye(2)])),
    )
    space = space_of(module, X, own_labels(module, torch.tensor(X)), "spectral")
    assert "2 hidden units" in space.obstacle
    assert space.excess > 0


def test_a_class_without_samples_leaves_no_optimum() -> None:
    X, y = cloud(2)
    w = solve(max_margin(X, 2.0 * y - 1.0)).coef[0] / 2
    space = space_of(of(np.stack([-w, w, 0 * w, 0 * w])), X, y, "spectral")
    assert space.certificate is None
    assert "has no samples" in space.obstacle


def test_quasi_norms_are_named_and_have_no_optimum() -> None:
    space = known(own(powers(3), cloud()[0]).function_space)
    assert (space.family, space.norm) == ("diagonal", "l_0.667")
    assert space.certificate is None
    assert "not convex" in space.obstacle
    assert np.isnan(space.excess)


def test_what_only_looks_like_a_family_is_not_recognised() -> None:
    X = cloud()[0]
    for module in (powers(2, torch.abs), relu(np.eye(4), np.ones((1, 4)))):
        assert own(module, X).function_space is None


@pytest.mark.parametrize("trained", [True, False], ids=["all", "first layer"])
def test_the_excess_of_a_gated_network_and_its_dead_units(trained: bool) -> None:
    """The optimum without one unit is a KKT point where that is 0, but not the optimum."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 6))
    y = np.where(rng.random(20) > 0.5, 1.0, -1.0)
    network = GLN([HyperplaneContexts.random(X, 6, 1, random_state=0)], seed=1)
    network.readout.requires_grad_(trained)
    problem = network.architecture().problem(X, y)
    solution = solve(problem)
    victim = int(np.flatnonzero(solution.active)[0])
    gates = dense(problem.gates) * (problem.groups != victim)
    without = solve(MarginProblem(X, y, gates, problem.groups), tol=1e-10)
    set_weights(network, without.coef)
    found = diagnose(network.eval(), network.prepare(X), y)
    space = known(found.function_space)
    expected = without.certificate.upper / solution.certificate.lower - 1
    assert space.excess == pytest.approx(expected, rel=1e-4)
    assert space.dead_units >= 1
    assert found.degree == (2.0 if trained else 1.0)
    assert found.gap < 1e-6
    if trained:
        assert "dead unit" in found.verdict
        assert "above the optimum" in found.verdict


def test_the_norm_of_the_fourier_transform() -> None:
    rng = np.random.default_rng(0)
    beta, V, norm = rng.normal(size=5), rng.normal(size=5), FourierL1()
    assert norm.value(beta) == pytest.approx(np.abs(np.fft.fft(beta)).sum())
    assert beta @ V <= norm.value(beta) * norm.dual(V)
    solution = solve(max_margin(V[None], np.ones(1), norm))
    assert solution.certificate.upper == pytest.approx(1 / norm.dual(V))


# --- layers ----------------------------------------------------------------------------------


def test_the_bounds_of_the_layers_are_their_own_margin_problems() -> None:
    X, module, y = random_relu()
    found = diagnose(module, X, y)
    scale = found.min_margin**-0.5
    W, a = (scale * p.detach().numpy() for p in module.parameters())
    hidden = np.maximum(X @ W.T, 0.0)
    features = (((hidden > 0) * a)[:, :, None] * X[:, None, :]).reshape(15, -1)
    for name, inputs in (("0.weight", features), ("2.weight", hidden)):
        certificate = solve(max_margin(inputs, y), tol=1e-10).certificate
        assert found.bounds[name][0] == pytest.approx(certificate.lower, rel=1e-6)
    for name, (lower, norm) in found.bounds.items():
        assert lower <= norm
        size = float(module.get_parameter(name).detach().norm())
        assert norm == pytest.approx(scale * size)
    gaps = [1 - (lower / norm) ** 2 for lower, norm in found.bounds.values()]
    assert known(found.farthest_layer).gap == max(gaps)


@pytest.mark.every(2)
@pytest.mark.parametrize("norm", ["l2", "linf", "spectral"])
def test_the_direction_lowers_the_norm_and_no_margin(norm: str) -> None:
    X, module, y = random_relu()
    before = diagnose(module, X, y, norm=norm)
    readout = next(layer for layer in before.layers if layer.name == "2.weight")
    with torch.no_grad():
        module.get_parameter("2.weight").add_(known(readout.direction))
    after = diagnose(module, X, y, norm=norm)  # no gate depends on the readout
    assert after.min_margin >= before.min_margin * (1 - 1e-9)
    new = next(layer for layer in after.layers if layer.name == "2.weight")
    assert new.gap < 1e-6 < readout.gap


@pytest.mark.parametrize("norm", ["nuclear", "spectral"])
def test_layers_of_extreme_sizes_are_measured(norm: str) -> None:
    """Combinations of the gradients are near the least of float64, their multiples beyond it."""
    torch.manual_seed(0)
    module = layers(3, 6, 6, 2).double()
    with torch.no_grad():
        next(module.parameters()).mul_(1e-160)
    X = 1e-100 * torch.randn(17, 3, dtype=torch.float64)
    found = diagnose(module, X, module(X).argmax(1), norm=norm, max_seconds=2.0)
    assert 0.9 < found.gap <= 1.0


def test_a_normalised_margin_beyond_float64_is_infinite() -> None:
    weights = torch.tensor([1e-100, 2e-100], dtype=torch.float64)
    module = Computed(lambda it, x: (x @ it.w) ** 3, w=weights)
    X = 1e120 * torch.ones(3, 2, dtype=torch.float64)
    assert diagnose(module, X, np.ones(3)).normalised_margin == np.inf


def test_parameters_that_enter_twice_have_no_bound() -> None:
    found = own(powers(2), cloud()[0])
    assert [np.isnan(layer.lower) for layer in found.layers] == [True, True]
    assert found.farthest_layer is None
    assert found.direction is None


# --- how it is shown -------------------------------------------------------------------------


@pytest.mark.slow
def test_words_a_page_and_a_picture(tmp_path: Path) -> None:
    X, y = cloud(3)
    rng = np.random.default_rng(2)
    module = relu(rng.normal(size=(9, 4)), rng.normal(size=(3, 9)))
    labels = own_labels(module, torch.tensor(X))
    found = diagnose(module, X, labels, norm="linf")
    assert repr(found).startswith("Diagnosis(norm='linf', degree=2")
    assert found.verdict in repr(found)
    assert len(repr(found)) < 300
    page = found._repr_html_()
    for text in (found.verdict, "0.weight", "2.weight", "gap in spectral"):
        assert html.escape(text) in page
    of_part = "smallest margin of the leading part"
    assert (of_part in page, of_part in replace(found, rest=0.1)._repr_html_()) == (False, True)
    figure = found.plot()
    assert [ax.get_title() for ax in figure.axes] == [
        "Who is at the margin",
        "In which geometry",
        "Which layer can shrink",
    ]
    assert [ax.get_xlim() for ax in figure.axes[1:]] == [(0, 1)] * 2
    assert "the farthest layer alone" in found.verdict
    figure.savefig(tmp_path / "diagnosis.png")
    assert len(replace(found, layers=()).plot().axes) == 2
    assert found.margins.shape == found.multipliers.shape == (12, 3)
    assert np.isinf(found.margins[np.arange(12), labels]).all()
    assert not found.multipliers[np.arange(12), labels].any()
    assert found.margins.min() == pytest.approx(1.0)
    assert (found.multipliers[tuple(found.support.T)] > 0).all()


def test_the_verdict_names_another_geometry() -> None:
    """A linear classifier at the limit of sign descent, asked for in l2."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 200)) + 0.2 * np.sign(rng.normal(size=200))
    y = np.ones(30)
    module = of(solve(max_margin(X, y, "linf")).coef)
    verdict = diagnose(module, X, y).verdict
    assert "geometry of sign descent" in verdict
    assert "not of gradient descent" in verdict
    assert "sign descent" not in diagnose(module, X, y, norm="linf").verdict
