"""Solved limits have a gap of 0 in their own norm, and not in the others."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import example_modules as modules
from cases import clusters
from implicit_bias import Diagnosis, diagnose, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.diagnosis import Code
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts

NORMS = ("l2", "l1", "linf", "spectral")
D, K = 5, 3
AT_LIMIT, ELSEWHERE = 1e-6, 1e-3


def samples(n: int = 14, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    y = np.where(X @ rng.normal(size=D) > 0, 1.0, -1.0)
    return X + 0.3 * y[:, None] * rng.random(D), y


X, Y = samples(seed=2)


classes = partial(clusters, 15, D, K, seed=3)


def only_in(
    own: str, module: nn.Module, inputs: object, labels: NDArray[Any], also: tuple[str, ...] = ()
) -> Diagnosis:
    """Check that the gap is 0 in one norm only (and in some others); return the diagnosis there."""
    found = {norm: diagnose(module, inputs, labels, norm=norm) for norm in NORMS}  # type: ignore[arg-type]
    assert found[own].gap <= AT_LIMIT
    for norm in NORMS:
        assert 0 <= found[norm].gap_lower <= found[norm].gap <= 1
        assert (found[norm].gap <= AT_LIMIT) == (norm == own or norm in also)
        assert norm == own or norm in also or found[norm].gap > ELSEWHERE
        # the bounds that come for free contain the exact gap
        assert found[own].gaps[norm] >= found[norm].gap * (1 - 1e-9) - 1e-9
    assert found[own].findings[0].code is Code.KKT_POINT
    return found[own]


def deep_linear() -> tuple[nn.Module, object]:
    """Balanced layers of rank 1 whose product is the l2 SVM."""
    w = solve(max_margin(X, Y), tol=1e-10).coef[0]
    size, rng = np.linalg.norm(w) ** (1 / 3), np.random.default_rng(0)
    a, b = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 4)))
    unit = w / np.linalg.norm(w)
    return modules.of(size * np.outer(a, unit), size * np.outer(b, a), size * b[None]), X


def difference(beta: Array) -> nn.Module:
    """Return the module <u * u - v * v, x> that computes <beta, x>."""
    u, v = (torch.tensor(np.sqrt(np.maximum(side, 0.0))) for side in (beta, -beta))
    return modules.Computed(lambda m, x: x @ (m.u**2 - m.v**2), u=u, v=v).eval()


def matrices() -> tuple[nn.Module, object]:
    """Two layers of several outputs: the roots of the nuclear SVM."""
    X, y = classes()
    zeta = solve(max_margin(X, y, "nuclear"), tol=1e-10).coef[:, 0]
    U, s, Vt = np.linalg.svd(zeta, full_matrices=False)
    root = np.sqrt(s)
    return modules.of(root[:, None] * Vt, U * root), X


def diagonal() -> tuple[nn.Module, object]:
    return difference(solve(max_margin(X, Y, "l1"), tol=1e-10).coef[0]), X


def gated() -> tuple[nn.Module, object]:
    network = GLN([HyperplaneContexts.random(X, 3, 1, random_state=3)], seed=2)
    modules.set_weights(network, solve(network.architecture().problem(X, Y), tol=1e-10).coef)
    return network.eval(), network.prepare(X)


# Balanced matrices of rank 1 are a KKT point in the spectral norm, too.
LIMITS: dict[str, tuple[str, float, tuple[str, ...], Callable[[], tuple[nn.Module, object]]]] = {
    "deep linear": ("deep linear", 3.0, ("spectral",), deep_linear),
    "matrices": ("deep linear", 2.0, (), matrices),
    "diagonal": ("diagonal", 2.0, (), diagonal),
    "gated": ("gated network", 2.0, (), gated),
}


@pytest.mark.fast("gated")
@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_gradient_descent(name: str) -> None:
    family, degree, also, build = LIMITS[name]
    module, inputs = build()
    labels = classes()[1] if name == "matrices" else Y
    found = only_in("l2", module, inputs, labels, also)
    assert found.degree == pytest.approx(degree)
    space = modules.known(found.function_space)
    assert space.family == family
    assert space.excess == pytest.approx(0.0, abs=1e-5)
    assert found.findings[1].code is Code.AT_OPTIMUM


def network(outputs: int) -> nn.Module:
    """Without a kink, where programs of gradients could stop short of a KKT point."""
    return modules.seeded(modules.layers(D, 4, outputs, between=modules.Square), 5)


def test_labels_of_one_class_are_named() -> None:
    module = torch.nn.Linear(2, 1, bias=False)
    module.weight.data.fill_(1.0)
    found = diagnose(module, torch.eye(2), [1, 1])
    assert Code.ONE_CLASS in [each.code for each in found.findings]
