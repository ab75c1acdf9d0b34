"""Degrees of modules whose degrees are known, and the part that breaks homogeneity."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from example_modules import Computed, drawn, layers, linear, seeded
from implicit_bias.modules.homogeneity import (
    HomogeneityError,
    OtherGradientsError,
    degree_of,
    scales_far_beyond,
)
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.partial_degrees import degree_in, of_degree_0, scale_invariant

N, D = 12, 4
X = drawn(N, D)


def margins(module: nn.Module, seed: int = 1) -> Margins:
    return Margins(seeded(module, seed), (X,), np.where(np.arange(N) % 2, 1, -1))


DEGREES: dict[str, tuple[float, Callable[[], nn.Module]]] = {
    "linear": (1.0, lambda: linear(D)),
    "relu": (3.0, lambda: layers(D, 5, 5, 1)),
    "power": (2.5, lambda: Computed(lambda m, x: m.f(x).abs() ** 2.5, f=linear(D))),
}


@pytest.mark.parametrize("name", DEGREES)
def test_the_degree_is_that_of_the_formula(name: str) -> None:
    degree, build = DEGREES[name]
    function = margins(build())
    assert degree_of(function) == pytest.approx(degree, abs=1e-9)
    assert degree_of(function, degree) == degree
    with pytest.raises(HomogeneityError, match=f"degree {degree + 1:.4g}"):
        degree_of(function, degree + 1)


def test_gradients_of_another_function_are_refused() -> None:
    """The module scales, and so do its gradients; but half of them is kept from the optimizer."""
    detached = Computed(lambda m, x: m.f(x) * m.g(x).detach(), f=linear(D), g=linear(D))
    with pytest.raises(OtherGradientsError, match="Euler"):
        degree_of(margins(detached))


def test_gradients_that_are_not_finite_are_named() -> None:
    """A root is 0 where its unit is off, and has no derivative there."""

    def root(m: Any, x: Tensor) -> Tensor:
        g = m.g(x)
        outputs: Tensor = m.f(x) + (g * g.relu()).sqrt()
        return outputs

    with pytest.raises(OtherGradientsError, match=r"g\.weight"):
        degree_of(margins(Computed(root, f=linear(D), g=linear(D))))


def test_a_module_that_is_cut_off_far_above_is_refused() -> None:
    module = Computed(lambda m, x: m.f(x).clamp(-1e3, 1e3), f=linear(D))
    assert not scales_far_beyond(margins(module), 1.0)
    with pytest.raises(HomogeneityError, match="far larger"):
        degree_of(margins(module))
    assert scales_far_beyond(margins(linear(D)), 1.0)
    # A power of 25 times 2^1000 is beyond float64, which says nothing of the module.
    assert scales_far_beyond(
        margins(Computed(lambda m, x: (4.0 * m.f(x)) ** 25, f=linear(D))), 25.0
    )


# --- degrees in some parameters ------------------------------------------------------------------


def test_degrees_in_some_parameters() -> None:
    """Of <b, (W x)^2> + <c, x>, with b or c at 0."""
    module = Computed(
        lambda m, x: (m.W(x) ** 2) @ m.b + x @ m.c,
        W=linear(D, 3),
        b=torch.empty(3),
        c=torch.empty(D),
    )
    function = margins(module)
    assert degree_in(function, ["W.weight"], ["c"]) == pytest.approx(2.0)
    assert degree_in(function, ["W.weight", "b"], ["c"]) == pytest.approx(3.0)
    assert degree_in(function, ["c"], ["b"]) == pytest.approx(1.0)
    assert np.isnan(degree_in(function, ["c"]))
    assert np.isnan(degree_in(function, ["W.weight"], ["b", "c"]))  # of outputs that are 0


def test_directions_have_degree_0() -> None:
    """Weights that are normalized, and a pair of which only the ratio counts."""
    module = Computed(
        lambda m, x: m.f(x) * (x @ m.v / m.v.norm())[:, None] * m.a / m.b,
        f=linear(D),
        v=torch.empty(D),
        a=torch.empty(1),
        b=torch.empty(1),
    )
    function = margins(module)
    assert set(of_degree_0(function)) >= {"v"}
    assert "f.weight" not in of_degree_0(function)
    assert "v" in scale_invariant(function)


# --- causes --------------------------------------------------------------------------------------


def exponential(m: Any, x: Tensor) -> Tensor:
    outputs: Tensor = m.f(x).exp()
    return outputs


def residual(m: Any, x: Tensor) -> Tensor:
    outputs: Tensor = x + m.V(m.W(x).relu())
    return outputs


CAUSES: dict[str, tuple[Callable[[], nn.Module], str, bool]] = {
    "tanh": (lambda: nn.Sequential(linear(D, 5), nn.Tanh(), linear(5)), r"tanh in '1'", False),
    "block": (
        lambda: nn.Sequential(
            linear(D, 5), Computed(residual, W=linear(5, 5), V=linear(5, 5)), linear(5)
        ),
        r"outputs of '1'",
        True,
    ),
    "unknown": (lambda: Computed(exponential, f=linear(D)), "not homogeneous", False),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_found(name: str) -> None:
    build, match, leads = CAUSES[name]
    function = margins(build())
    with pytest.raises(HomogeneityError, match=match) as caught:
        degree_of(function)
    assert caught.value.leads == leads


def test_a_bias_that_is_0_is_found_by_its_gradient() -> None:
    module = nn.Sequential(linear(D, 5), nn.ReLU(), nn.Linear(5, 1))
    function = margins(module)
    parts = function.parameters(function.theta)
    parts["2.bias"] = torch.zeros_like(parts["2.bias"])
    at_0 = function.restricted(function.shapes, function.flat(parts))
    assert not at_0.parameters(at_0.theta)["2.bias"].any()
    with pytest.raises(HomogeneityError, match=r"2\.bias"):
        degree_of(at_0)
