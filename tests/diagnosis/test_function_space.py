"""A module's predictor beside the certified optimum of its own norm."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cases import clusters
from diagnosis.asking import finding
from example_modules import Computed, known, layers, of, own_labels, set_weights
from implicit_bias import Diagnosis, MarginProblem, diagnose, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis import Code
from implicit_bias.diagnosis.function_space import FunctionSpace, in_function_space
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.networks import GLN
from implicit_bias.norms import LInf, Spectral, as_norm
from implicit_bias.norms.tensors import ComposedNorm, as_parameter_norm
from implicit_bias.problem.gating import HyperplaneContexts, dense


def cloud(classes: int = 2) -> tuple[Array, Any]:
    return clusters(12, 4, classes, spread=0.2, seed=0)


@pytest.mark.parametrize(("norm", "classes"), [("l1", 3), ("spectral", 2)])
def test_the_excess_of_a_linear_classifier(norm: str, classes: int) -> None:
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


@pytest.mark.parametrize("norm", ["l2", "l1", "linf", "spectral", "nuclear"])
def test_the_optimum_of_two_classes_is_that_of_their_own_problem(norm: str) -> None:
    """It is computed from the binary problem, by a factor."""
    X, y = cloud()
    w = solve(max_margin(X, 2.0 * y - 1.0)).coef[0]
    space = space_of(of(np.stack([-w, w])), X, y, norm)
    groups = np.zeros(1, dtype=int)
    of_classes = MarginProblem(X, y, np.ones((len(X), 1)), groups, norm=as_norm(norm), classes=2)
    expected = solve(of_classes).certificate
    assert known(space.certificate).lower == pytest.approx(expected.lower, rel=1e-5)


def diagonal(made: Callable[..., Tensor]) -> nn.Module:
    """<beta, x>, beta made of u and v."""
    u, v = torch.tensor([[1.0, 2.0, 0.5, 1.0], [0.2, 0.1, 0.7, 0.3]]).double()
    return Computed(lambda m, x: x @ made(m.u, m.v), u=u, v=v).eval()


def own(module: nn.Module, X: Array) -> Diagnosis:
    return diagnose(module, X, own_labels(module, torch.tensor(X)))


def space_of(module: nn.Module, X: Array, y: Any, norm: Any) -> FunctionSpace:
    subject = Subject.of(margins_of(module.eval(), torch.tensor(X), torch.tensor(y)))
    return known(in_function_space(subject.at_margin_1(as_parameter_norm(norm))))


def deep_linear(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    return layers(*sizes, between=None).double()


@pytest.mark.parametrize("depth", [2, 3])
def test_deep_linear_networks_in_spectral_geometry(depth: int) -> None:
    """The product is the spectral SVM; balanced layers have the roots of its norm."""
    X, y = cloud(3)
    solution = solve(max_margin(X, y, "spectral"), tol=1e-10)
    W = solution.coef[:, 0]
    root = np.linalg.norm(W, 2) ** (1 / depth)
    module = of(W * root / root**depth, *[root * np.eye(3)] * (depth - 1))
    space = space_of(module, X, y, "spectral")
    assert (space.family, space.norm, space.obstacle) == ("deep linear", "spectral", "")
    lower = known(space.certificate).lower
    assert lower == pytest.approx(solution.certificate.lower, rel=1e-5)
    assert -1e-9 <= space.excess < 1e-5


@pytest.mark.parametrize(
    ("sizes", "geometry", "expected", "convex"),
    [
        ((4, 3, 3), ComposedNorm(Spectral(), LInf(), scale={"0": 3.0}), "spectral", True),
        ((4, 3, 3), "nuclear", "Schatten 0.5", False),
        ((4, 3, 3, 3), "l2", "Schatten 0.667", False),
        ((4, 3, 1), "spectral", "l2", True),
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


def test_what_only_looks_like_a_family_is_not_recognised() -> None:
    X = cloud()[0]
    space = known(own(diagonal(lambda u, v: u**2 - v**2), X).function_space)
    assert (space.family, space.norm) == ("diagonal", "l1")
    for module in (
        diagonal(lambda u, v: (u**2 - v**2).abs()),
        of(np.eye(4), np.ones((1, 4)), between=nn.ReLU),
    ):
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
    assert finding(found, Code.ABOVE_OPTIMUM).value == space.excess
    assert finding(found, Code.DEAD_UNITS).value == space.dead_units
    assert found.findings[0].code is Code.KKT_POINT
