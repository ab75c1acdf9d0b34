"""Dual activations: closed forms, Hermite series, and what the quadrature refuses."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from implicit_bias.base.validation import Array
from implicit_bias.kernels.dual_kernels import (
    HERMITE_TERMS,
    Dual,
    arc_cosine_kernel,
)
from implicit_bias.kernels.gradient_gram import ACTIVATIONS, Activation

RHO = np.linspace(-1, 1, 41)
SINE = Activation("sine", torch.sin)
CUBIC = Activation("1 + 2 z - z^3", lambda z: 1.0 + 2.0 * z - z**3)


def kappa_relu(rho: Array) -> Array:
    return 0.5 - np.arccos(rho) / (2 * np.pi)


CLOSED_FORMS: list[tuple[Activation, Callable[[Array], Array]]] = [
    (ACTIVATIONS["relu"], kappa_relu),
    (ACTIVATIONS["leaky-relu"], lambda rho: 0.01 + 0.09 + 0.81 * kappa_relu(rho)),
    (ACTIVATIONS["quadratic"], lambda rho: 4 * rho),
    (CUBIC, lambda rho: 4 - 12 + 9 * (1 + 2 * rho**2)),
    (SINE, lambda rho: np.cosh(rho) / math.e),
    (Activation("erf", torch.erf), lambda rho: 4 / np.pi / np.sqrt(9 - 4 * rho**2)),
]


@pytest.mark.parametrize(
    ("phi", "form"), CLOSED_FORMS, ids=lambda value: getattr(value, "name", "")
)
def test_kappa_in_closed_form(phi: Activation, form: Callable[[Array], Array]) -> None:
    np.testing.assert_allclose(phi.kappa(RHO), form(RHO), atol=1e-11)


@pytest.mark.parametrize("phi", [ACTIVATIONS["tanh"], SINE], ids=lambda phi: phi.name)
def test_kappa_is_its_hermite_series(phi: Activation) -> None:
    powers = RHO[:, None] ** np.arange(HERMITE_TERMS)
    np.testing.assert_allclose(powers @ phi.hermite_squares, phi.kappa(RHO), atol=1e-9)


def test_covariance_of_relu() -> None:
    theta = np.arccos(RHO)
    products = (np.sin(theta) + (np.pi - theta) * RHO) / (2 * np.pi)  # arc-cosine kernel
    found = ACTIVATIONS["relu"].covariance(RHO)
    np.testing.assert_allclose(found, products - 1 / (2 * np.pi), atol=1e-11)


def test_duals_are_bounded_at_their_ends() -> None:
    """Correlations that rounding pushed out of [-1, 1] count as -1 or 1."""
    dual = Dual.of(torch.tanh, "tanh")
    assert float(dual(1 + 1e-15)) == float(dual(1.0))


@pytest.mark.parametrize(
    "function",
    [lambda z: functional.relu(z - 1), lambda z: torch.exp(z**2)],
    ids=["kink off 0", "no second moment"],
)
def test_quadrature_refuses(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="quadrature"):
        Activation("bad", function).kappa  # noqa: B018


def test_what_is_no_angle_is_refused() -> None:
    with pytest.raises(ValueError, match="angles"):
        arc_cosine_kernel([0.0, -1.0])
