"""Training runs that certify themselves, against the optimum."""

from typing import Any

import numpy as np
import pytest
import torch

from implicit_bias import certify_run, max_margin, solve
from implicit_bias.norms import L1, L2, LInf, Norm, Spectral
from implicit_bias.problem import MarginProblem
from implicit_bias.run_certificate import loss_weights
from implicit_bias.validation import Array


def clusters(k: int = 3) -> tuple[Array, Any]:
    rng = np.random.default_rng(0)
    y = np.arange(30) % k
    return 2.0 * rng.normal(size=(k, 5))[y] + 0.2 * rng.normal(size=(30, 5)), y


@pytest.mark.parametrize("norm", [L1(), L2(), LInf(), Spectral()])
@pytest.mark.parametrize("intercept", [False, True])
def test_steepest_descent_certifies_itself(norm: Norm, intercept: bool) -> None:
    """Normalised steepest descent on cross-entropy: bounds close in on the optimum of its norm."""
    problem = max_margin(*clusters(), norm, intercept=intercept)
    optimum = solve(problem, tol=1e-6).certificate
    W, b = np.zeros(problem.coef_shape), np.zeros(3)
    gaps = []
    for step in range(1, 1501):
        alpha = loss_weights(problem, W, b)
        W = W + 2.0 / step**0.5 * norm.maximiser(problem.dual_vectors(alpha))
        if intercept:
            gradient = problem.weights(alpha).sum(axis=0)
            b = b + 0.3 / step**0.5 * gradient / max(np.abs(gradient).max(), 1e-300)
        if step in (10, 1500):
            found = certify_run(problem, W, b if intercept else None)
            assert found.lower <= optimum.upper * (1 + 1e-12)
            assert found.upper >= optimum.lower * (1 - 1e-12)
            gaps.append(found.gap)
    assert found.lower > 0
    assert intercept or gaps[-1] < min(gaps[0], 1.0)


def test_weights_are_those_of_autograd() -> None:
    problem = max_margin(*clusters())
    layer = torch.nn.Linear(5, 3, bias=False, dtype=torch.float64)
    X, y = torch.tensor(problem.X), torch.tensor(problem.owners)
    loss = torch.nn.functional.cross_entropy(layer(X), y, reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    coef = layer.weight.detach().numpy()[:, None]
    V = problem.dual_vectors(loss_weights(problem, coef, np.zeros(3)))
    gradient = -layer.weight.grad.numpy()[:, None]
    np.testing.assert_allclose(V / np.linalg.norm(V), gradient / np.linalg.norm(gradient))
    X2, y2 = clusters(2)
    binary = max_margin(X2, 2 * y2 - 1)
    w = np.random.default_rng(1).normal(size=(1, 5))
    q = binary.margins(binary.decision(w))
    for name, expected in [("logistic", 1 / (1 + np.exp(q))), ("exponential", np.exp(-q))]:
        found = loss_weights(binary, w, 0.0, name)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected / expected.max())


def test_late_iterates_do_not_underflow() -> None:
    problem = max_margin(*clusters())
    best = solve(problem, tol=1e-9)
    for scale in (1e2, 1e4, 1e8):
        found = certify_run(problem, scale * best.coef)
        assert found.lower > 0
        assert found.gap < 2.0
    early, late = certify_run(problem, 10 * best.coef), certify_run(problem, 300 * best.coef)
    assert late.upper == pytest.approx(early.upper)


def test_layers_with_offsets_and_own_weights() -> None:
    X, y = clusters()
    problem = max_margin(X, y, intercept=True)
    layer = torch.nn.Linear(5, 3)
    found = certify_run(problem, layer)
    same = certify_run(problem, layer.weight, layer.bias)
    assert found.lower == same.lower
    assert found.min_margin == same.min_margin
    plain = max_margin(X, y)
    weights = loss_weights(plain, np.zeros((3, 1, 5)), np.zeros(3))
    assert (
        certify_run(plain, np.zeros((3, 5))).lower
        == certify_run(plain, np.zeros((3, 5)), weights=weights).lower
    )
    with pytest.raises(ValueError, match="no intercept"):
        certify_run(plain, layer)
    with pytest.raises(ValueError, match="loss"):
        certify_run(plain, layer.weight, loss="hinge")  # type: ignore[arg-type]


def test_gated_models_and_two_classes() -> None:
    X, y = clusters(2)
    gates = np.random.default_rng(2).random((30, 3))
    problem = MarginProblem(X, 2.0 * y - 1, gates, np.array([0, 1, 1]), intercept=True)
    coef = np.random.default_rng(3).normal(size=(3, 5))
    optimum = solve(problem).certificate
    found = certify_run(problem, torch.tensor(coef), 0.3, loss="exponential")
    assert 0 < found.lower <= optimum.upper
