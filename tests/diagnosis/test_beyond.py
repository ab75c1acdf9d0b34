"""What lies beyond a KKT point: other units, the optimum in function space; and how it is shown."""

import html
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from implicit_bias import Diagnosis, MarginProblem, diagnose, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis.function_space import FourierL1, FunctionSpace, in_function_space
from implicit_bias.measure.subject import Subject, margins_of
from implicit_bias.networks import GLN
from implicit_bias.norms import LInf, Spectral
from implicit_bias.norms.tensors import ComposedNorm, as_parameter_norm
from implicit_bias.problem.gating import HyperplaneContexts, dense
from measure.test_stationarity import set_weights


def two_layers(hidden: Array, readout: Array) -> nn.Module:
    hidden, readout = np.atleast_2d(hidden), np.atleast_2d(readout)
    module = nn.Sequential(
        nn.Linear(hidden.shape[1], len(hidden), bias=False),
        nn.ReLU(),
        nn.Linear(len(hidden), len(readout), bias=False),
    ).double()
    module.get_parameter("0.weight").data.copy_(torch.tensor(hidden))
    module.get_parameter("2.weight").data.copy_(torch.tensor(readout))
    return module.eval()


# --- one more unit ---------------------------------------------------------------------------

SAMPLES = np.array([[1.0, -3.0], [1.0, 0.0], [1.0, 3.0]])


def test_a_unit_that_some_multipliers_suggest_is_not_claimed() -> None:
    """The network is the best one, which only the multipliers (0, 1, 0) prove."""
    found = diagnose(two_layers(np.array([1.0, 0.0]), np.array([1.0])), SAMPLES, [1, 1, 1])
    assert found.gap < 1e-9
    assert found.escape is not None
    assert not found.escape.claimed
    assert found.escape.saving == 0.0
    # Euclidean pulls of the two candidates in DESIGN's example
    pull = SAMPLES.T @ (np.array([0.5, 0.0, 0.5]) * (SAMPLES @ [0.1, 0.995] > 0))
    assert np.linalg.norm(pull) == pytest.approx(1.58, abs=5e-3)


def test_a_unit_that_helps_is_claimed_with_its_saving() -> None:
    """One unit for two far samples and the near one; a unit of the far one's own is cheaper."""
    X, y = np.array([[1.0, 3.0], [1.0, -3.0]]), [1, 1]
    # By symmetry the unit (1, 0) is a KKT point; one unit a sample has norm 2 / sqrt 10 < 1.
    module = two_layers(np.array([1.0, 0.0]), np.array([1.0]))
    found = diagnose(module, X, y)
    assert found.gap < 1e-9
    assert found.escape is not None
    assert found.escape.pull > 1.5
    assert found.escape.claimed
    assert found.escape.unit is not None
    assert "one more ReLU unit" in found.verdict
    assert 0 < found.escape.saving < 1 - (2 / np.sqrt(10)) ** 0.5 + 1e-6


def test_far_from_a_kkt_point_nobody_asks() -> None:
    module = two_layers(np.array([3.0, 2.0]), np.array([1.0]))
    assert diagnose(module, SAMPLES[1:], [1, 1]).escape is None


# --- function space --------------------------------------------------------------------------


def cloud(classes: int = 2) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    y = np.arange(12) % classes
    return 3.0 * rng.normal(size=(classes, 4))[y] + 0.3 * rng.normal(size=(12, 4)), y


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
    module = nn.Linear(4, classes, bias=False).double().eval()
    module.weight.data.copy_(torch.tensor(W))
    found = diagnose(module, X, y, norm=norm)
    space = found.function_space
    assert space is not None
    assert space.certificate is not None
    assert space.value == pytest.approx(found.parameter_norm)
    # the parameters are the predictor, so the gap is that of the certified optimum
    optimum = found.parameter_norm * np.sqrt(1 - found.gap)
    assert space.certificate.lower <= optimum * (1 + 1e-6)
    assert space.certificate.upper >= optimum * (1 - 1e-6)
    assert space.excess == pytest.approx((1 - found.gap) ** -0.5 - 1, rel=1e-4)


class Power(nn.Module):
    """<u^p - v^p, x>."""

    def __init__(self, power: int) -> None:
        super().__init__()
        self.power = power
        self.u = nn.Parameter(torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64))
        self.v = nn.Parameter(torch.tensor([0.2, 0.1, 0.7, 0.3], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n,)."""
        return x @ (self.u**self.power - self.v**self.power)


def own(module: nn.Module, X: Array) -> Diagnosis:
    labels = np.where(module(torch.tensor(X)).detach().reshape(-1) > 0, 1, -1)
    return diagnose(module, X, labels)


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize(("power", "over"), [(np.inf, np.max), (1.0, np.mean)])
def test_factorisations_of_a_matrix(depth: int, power: float, over: Any) -> None:
    """None is below ||W||_(p/L) of the singular values, and the one of the head has it."""
    rng = np.random.default_rng(depth)

    def norm(matrix: Array) -> float:
        return float(np.linalg.norm(np.linalg.svd(matrix, compute_uv=False), power))

    W = rng.normal(size=(3, 4))
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    least = (s ** (power / depth)).sum() ** (depth / power) if power < np.inf else s[0]
    root = np.diag(s ** (1 / depth))
    balanced = [root @ Vt, *[root] * (depth - 2), U @ root]
    found = over([norm(part) for part in balanced]) ** depth
    np.testing.assert_allclose(np.linalg.multi_dot([*balanced[::-1], np.eye(4)]), W)
    assert found == pytest.approx(least)
    for draw in range(200):  # all others of this width have regular matrices in between
        mixes = [np.eye(3) + 0.01 * draw * rng.normal(size=(3, 3)) for _ in balanced[1:]]
        before, after = [np.eye(4), *mixes], [*mixes, np.eye(3)]
        parts = [
            mix @ part @ np.linalg.inv(undo)
            for undo, part, mix in zip(before, balanced, after, strict=True)
        ]
        assert over([norm(part) for part in parts]) ** depth >= least * (1 - 1e-9)


def space_of(module: nn.Module, X: Array, y: Array | NDArray[np.int64], norm: Any) -> FunctionSpace:
    subject = Subject.of(margins_of(module.eval(), torch.tensor(X), torch.tensor(y)))
    found = in_function_space(subject.at_margin_1(as_parameter_norm(norm)))
    assert found is not None
    return found


def deep_linear(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(*shape, bias=False) for shape in itertools.pairwise(sizes)]
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("inner", [(3,), (3, 3)])
def test_deep_linear_networks_in_spectral_geometry(inner: tuple[int, ...]) -> None:
    """Spectral descent brings the product towards the largest spectral margin, at any depth."""
    X, y = cloud(3)
    inputs, own, module = (
        torch.tensor(X),
        torch.eye(3, dtype=torch.bool)[y],
        deep_linear(4, *inner, 3),
    )
    for step in range(1, 301):
        module.zero_grad()
        outputs = module(inputs)
        (outputs - outputs[own][:, None])[~own].logsumexp(0).backward()
        for weight in module.parameters():
            assert weight.grad is not None
            U, _, Vt = torch.linalg.svd(weight.grad, full_matrices=False)
            weight.data -= 0.1 / step**0.5 * U @ Vt
    space = space_of(module, X, y, "spectral")
    optimum = solve(max_margin(X, y, "spectral")).certificate
    assert space.certificate is not None
    assert (space.family, space.norm, space.obstacle) == ("deep linear", "spectral", "")
    assert space.certificate.lower == pytest.approx(optimum.lower, rel=1e-5)
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
    space = space_of(module, X, decided(module, X), geometry)
    assert (space.family, space.norm) == ("deep linear", expected)
    assert (space.certificate is not None) == convex
    assert not space.excess < 0


def decided(module: nn.Module, X: Array) -> Array | NDArray[np.int64]:
    outputs = module(torch.tensor(X)).detach()
    return (outputs[:, 0].sign() if outputs.shape[1] == 1 else outputs.argmax(1)).numpy()


def test_a_deep_linear_network_that_is_too_narrow_is_told() -> None:
    """Two hidden units tell four classes apart, though an optimum may have rank three."""
    X, module = np.random.default_rng(3).normal(size=(40, 4)), deep_linear(4, 2, 4)
    readout = module.get_parameter("1.weight")
    readout.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]).to(readout)
    space = space_of(module, X, decided(module, X), "spectral")
    assert "2 hidden units" in space.obstacle
    assert space.excess > 0


@pytest.mark.parametrize("present", [2, 3])
def test_classes_without_samples_are_rivals(present: int) -> None:
    """The optimum has them, also where two classes have samples: there was none of these."""
    X, module = cloud(present)[0], nn.Linear(4, 4, bias=False).double()
    y = cloud(present)[1]
    problem = MarginProblem(X, y.astype(float), np.ones((12, 1)), norm=Spectral(), classes=4)
    optimum = solve(problem)
    module.weight.data.copy_(torch.tensor(optimum.coef[:, 0]))
    space = space_of(module, X, y, "spectral")
    assert space.certificate is not None
    assert space.certificate.lower == pytest.approx(optimum.certificate.lower, rel=1e-6)
    assert 0 <= space.excess + 1e-9 < 1e-4


def test_quasi_norms_are_named_and_have_no_optimum() -> None:
    X = cloud()[0]
    space = own(Power(3).eval(), X).function_space
    assert space is not None
    assert (space.family, space.norm) == ("diagonal", "l_0.667")
    assert space.certificate is None
    assert "not convex" in space.obstacle
    assert np.isnan(space.excess)


def test_what_only_looks_like_a_family_is_not_recognised() -> None:
    class Looks(Power):
        def forward(self, x: Tensor) -> Tensor:
            return x @ (self.u**2 - self.v**2).abs()

    X = cloud()[0]
    assert own(Looks(2).eval(), X).function_space is None
    assert own(two_layers(np.eye(4), np.ones(4)), X).function_space is None


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
    assert found.degree == (2.0 if trained else 1.0)
    assert found.gap < 1e-6 or not trained
    space = found.function_space
    assert space is not None
    expected = without.certificate.upper / solution.certificate.lower - 1
    assert space.excess == pytest.approx(expected, rel=1e-4)
    assert space.dead_units >= 1
    assert not trained or "dead unit" in found.verdict
    assert not trained or "above the optimum" in found.verdict


def test_the_norm_of_the_fourier_transform() -> None:
    rng = np.random.default_rng(0)
    beta, V, norm = rng.normal(size=5), rng.normal(size=5), FourierL1()
    assert norm.value(beta) == pytest.approx(np.abs(np.fft.fft(beta)).sum())
    assert beta @ V <= norm.value(beta) * norm.dual(V)
    solution = solve(max_margin(V[None], np.ones(1), norm))
    assert solution.certificate.upper == pytest.approx(1 / norm.dual(V))


# --- layers ----------------------------------------------------------------------------------


def test_the_bounds_of_the_layers_are_their_own_margin_problems() -> None:
    rng = np.random.default_rng(1)
    X, module = (
        rng.normal(size=(15, 4)),
        two_layers(rng.normal(size=(5, 4)), rng.normal(size=(1, 5))),
    )
    found = own(module, X)
    y = np.where(module(torch.tensor(X)).detach()[:, 0] > 0, 1.0, -1.0)
    scale = found.min_margin**-0.5
    hidden = np.maximum(X @ (scale * module.get_parameter("0.weight").detach().numpy()).T, 0.0)
    readout = solve(max_margin(hidden, y), tol=1e-10).certificate
    gates = (hidden > 0) * (scale * module.get_parameter("2.weight").detach().numpy())
    features = (gates[:, :, None] * X[:, None, :]).reshape(15, -1)
    first = solve(max_margin(features, y), tol=1e-10).certificate
    assert found.bounds["2.weight"][0] == pytest.approx(readout.lower, rel=1e-6)
    assert found.bounds["0.weight"][0] == pytest.approx(first.lower, rel=1e-6)
    for name, (lower, norm) in found.bounds.items():
        assert lower <= norm
        size = float(module.get_parameter(name).detach().norm())
        assert norm == pytest.approx(scale * size)
    layer = found.farthest_layer
    assert layer is not None
    assert layer.gap == max(1 - (lower / norm) ** 2 for lower, norm in found.bounds.values())


@pytest.mark.parametrize("norm", ["l2", "linf", "spectral"])
def test_the_direction_lowers_the_norm_and_no_margin(norm: str) -> None:
    rng = np.random.default_rng(1)
    X, module = (
        rng.normal(size=(15, 4)),
        two_layers(rng.normal(size=(5, 4)), rng.normal(size=(1, 5))),
    )
    y = np.where(module(torch.tensor(X)).detach()[:, 0] > 0, 1, -1)
    before = diagnose(module, X, y, norm=norm)
    readout = next(layer for layer in before.layers if layer.name == "2.weight")
    assert readout.direction is not None
    with torch.no_grad():
        module.get_parameter("2.weight").add_(readout.direction)
    after = diagnose(module, X, y, norm=norm)  # no gate depends on the readout
    assert after.min_margin >= before.min_margin * (1 - 1e-9)
    new = next(layer for layer in after.layers if layer.name == "2.weight")
    assert new.gap < 1e-6 < readout.gap


def test_parameters_that_enter_twice_have_no_bound() -> None:
    found = own(Power(2).eval(), cloud()[0])
    assert [np.isnan(layer.lower) for layer in found.layers] == [True, True]
    assert found.farthest_layer is None
    assert found.direction is None


# --- how it is shown -------------------------------------------------------------------------


def test_words_a_page_and_a_picture(tmp_path: Path) -> None:
    X, y = cloud(3)
    rng = np.random.default_rng(2)
    module = two_layers(rng.normal(size=(9, 4)), rng.normal(size=(3, 9)))
    labels = module(torch.tensor(X)).argmax(dim=1)
    found = diagnose(module, X, labels, norm="linf")
    assert repr(found).startswith("Diagnosis(norm='linf', degree=2")
    assert found.verdict in repr(found)
    assert len(repr(found)) < 300
    page = found._repr_html_()
    for text in (found.verdict, "0.weight", "2.weight", "gap in spectral"):
        assert html.escape(text) in page
    figure = found.plot()
    assert [ax.get_title() for ax in figure.axes] == [
        "Who is at the margin",
        "In which geometry",
        "Which layer can shrink",
    ]
    figure.savefig(tmp_path / "diagnosis.png")
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
    module = nn.Linear(200, 1, bias=False).double().eval()
    coef = solve(max_margin(X, y, "linf")).coef
    module.weight.data.copy_(torch.tensor(coef))
    verdict = diagnose(module, X, y).verdict
    assert "geometry of sign descent" in verdict
    assert "not of gradient descent" in verdict
    assert "sign descent" not in diagnose(module, X, y, norm="linf").verdict
