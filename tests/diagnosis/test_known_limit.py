"""What papers compute by hand: angles to a limit, margin errors, (epsilon, delta)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import implicit_bias as ib
from cases import clusters
from diagnosis.asking import quiet, relu
from example_modules import drawn, known, layers, margins_by_hand, own_labels, seeded, weights_of
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts

X, LABELS = clusters(18, 4, spread=0.2, seed=0)
SIGNS = np.where(LABELS == 0, 1, -1)


def cosine(first: Any, second: Any) -> float:
    a, b = np.asarray(first).reshape(-1), np.asarray(second).reshape(-1)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def row(module: nn.Module, labels: Any, **options: Any) -> dict[str, float]:
    return ib.Recorder(module, X, labels, ["l2"], gaps=False, **options).record()


def test_the_angle_with_parameters() -> None:
    """As one vector, by name, or those of a module."""
    module = relu(outputs=3)
    inputs = drawn(12, 5)
    other = relu(outputs=3)
    for p in other.parameters():
        p.data += 0.3 * drawn(*p.shape, seed=5)
    expected = cosine(weights_of(module), weights_of(other))
    labels = own_labels(module, inputs)
    for limit in (weights_of(other), other, other.state_dict()):
        recorder = ib.Recorder(module, inputs, labels, ["l2"], gaps=False, limit=limit)
        assert recorder.record()["cosine"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="no parameter '0.weight'"):
        ib.Recorder(module, inputs, labels, limit={"w": np.ones(12)})


def test_the_angle_with_a_solution() -> None:
    """Of predictors: deep linear and gated."""
    binary = ib.solve(ib.max_margin(X, SIGNS, "l1"))
    deep = seeded(layers(4, 4, 1, between=None), 1)
    first, last = (p.detach().numpy() for p in deep.parameters())
    assert row(deep, SIGNS, limit=binary)["cosine"] == pytest.approx(
        cosine(last @ first, binary.coef)
    )
    network = GLN([HyperplaneContexts.random(X, 3, 1, random_state=0)], seed=1).double()
    problem = network.architecture().problem(X, SIGNS)
    solution = ib.solve(problem)
    coef = network.coef()
    assert row(network, SIGNS, limit=solution)["cosine"] == pytest.approx(
        cosine(coef, solution.coef)
    )


def test_the_margin_error_by_the_optimum() -> None:
    """1 - margin / maximum margin in the norm of the predictor, solved for once."""
    module = nn.Linear(4, 1, bias=False).double()
    optimum = ib.solve(ib.max_margin(X, SIGNS), tol=1e-9)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(optimum.coef) + 0.05 * drawn(1, 4))
    recorder = ib.Recorder(module, X, SIGNS, ["l2"], gaps=False, function_space=True)
    maximum = 1.0 / np.linalg.norm(optimum.coef)
    for _ in range(2):
        w = weights_of(module)
        margin = (SIGNS * (X @ w)).min() / np.linalg.norm(w)
        found = recorder.record()
        assert margin > 0
        assert found["margin_error"] == pytest.approx(1.0 - margin / maximum, abs=1e-6)
        module.weight.data += 0.02 * drawn(1, 4, seed=3)
    diagnosed = known(quiet(module, torch.tensor(X), SIGNS).function_space)
    assert diagnosed.margin_error == pytest.approx(recorder.record()["margin_error"])
    module.weight.data *= -1.0
    assert math.isnan(recorder.record()["margin_error"])


def test_epsilon_and_delta_by_hand() -> None:
    """||theta - J' lambda|| and max lambda (q - 1), with the multipliers of the diagnosis."""
    module = relu(outputs=3)
    inputs = drawn(12, 5)
    labels = own_labels(module, inputs)
    found = quiet(module, inputs, labels)
    q, J = margins_by_hand(module, inputs, labels)
    scale = q.min() ** (1.0 / 3.0)
    theta = weights_of(module) / scale
    weights = found.multipliers[np.arange(3) != labels[:, None]]
    epsilon = np.linalg.norm(theta - weights @ J / scale**2)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert found.delta == pytest.approx((weights * (q / q.min() - 1.0)).max(), rel=1e-6)
    # epsilon^2 / ||theta||^2 is the KKT gap, less what the products of delta add.
    products = 2.0 * found.degree * (weights * (q / q.min() - 1.0)).sum()
    in_units = (found.epsilon**2 + products) / found.parameter_norm**2
    assert in_units == pytest.approx(found.gap, abs=1e-6)
    recorded = ib.Recorder(module, inputs, labels, ["l2"]).record()
    assert recorded["epsilon"] == pytest.approx(found.epsilon, rel=1e-4)
    assert recorded["delta"] == pytest.approx(found.delta, rel=1e-3, abs=1e-9)
    assert math.isnan(quiet(module, inputs, labels, norm="linf").epsilon)
