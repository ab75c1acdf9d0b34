"""Training runs and networks that certify themselves: the optimum, CVXPY's, rational numbers."""

from functools import partial

import numpy as np
import pytest
import torch

from cases import clusters as of_clusters
from implicit_bias import certify_run, max_margin, solve
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.run_certificate import loss_weights
from implicit_bias.norms import L1, L2, LInf, Norm, Spectral
from oracles import check_overlap, hold

clusters = partial(of_clusters, 30, spread=0.2, seed=0)


def test_steepest_descent_certifies_itself() -> None:
    """Normalized steepest descent on cross-entropy: bounds close in on the optimum of its norm."""
    norm = Spectral()
    problem = max_margin(*clusters(), norm)
    optimum = solve(problem, tol=1e-6).certificate
    W = np.zeros(problem.coef_shape)
    for step in range(1, 401):
        alpha = loss_weights(problem, W, np.zeros(3))
        W = W + 2.0 / step**0.5 * norm.maximiser(problem.dual_vectors(alpha))
    found = certify_run(problem, W)
    check_overlap(found, optimum, 1e-12)
    assert found.lower >= 0.95 * optimum.lower
    assert found.upper <= 1.05 * optimum.upper


def test_weights_are_those_of_autograd() -> None:
    problem = max_margin(*clusters())
    layer = torch.nn.Linear(5, 3, bias=False, dtype=torch.float64)
    X, y = torch.tensor(problem.X), torch.tensor(problem.sample_classes)
    loss = torch.nn.functional.cross_entropy(layer(X), y, reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    coef = layer.weight.detach().numpy()[:, None]
    V = problem.dual_vectors(loss_weights(problem, coef, np.zeros(3)))
    gradient = -layer.weight.grad.numpy()[:, None]
    np.testing.assert_allclose(V / np.linalg.norm(V), gradient / np.linalg.norm(gradient))
    X2, y2 = clusters(k=2)
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
    zero = np.zeros((3, 5))
    weights = loss_weights(plain, zero[:, None], np.zeros(3))
    assert certify_run(plain, zero).lower == certify_run(plain, zero, weights=weights).lower
    with pytest.raises(ValueError, match="no intercept"):
        certify_run(plain, layer)
    with pytest.raises(ValueError, match="loss"):
        certify_run(plain, layer.weight, loss="hinge")  # type: ignore[arg-type]


# --- in exact arithmetic -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "intercept", "classes", "offset"),
    [(L1(), False, 2, 0.0), (L1(), True, 3, 1e3), (L2(), False, 3, 1e3), (LInf(), True, 2, 1e3)],
)
def test_bounds_of_a_run_in_exact_arithmetic(
    norm: Norm, intercept: bool, classes: int, offset: float
) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = np.arange(6) % classes
        X = (rng.normal(size=(classes, 3))[y] + 0.2 * rng.normal(size=(6, 3))) + offset
        problem = max_margin(X, y if classes > 2 else 2 * y - 1, norm, intercept=intercept)
        coef = rng.normal(size=problem.coef_shape) * 10.0 ** rng.integers(-3, 3)
        if seed % 2:
            centres = np.array([X[y == k].mean(axis=0) for k in range(classes)])
            apart = centres - centres.mean(axis=0) if classes > 2 else centres[1] - centres[0]
            coef = apart.reshape(problem.coef_shape)
        b = rng.normal(size=np.shape(problem.no_offset)) if intercept else problem.no_offset
        found = certify_run(problem, coef, b if intercept else None)
        alpha = loss_weights(problem, coef, b if classes > 2 else float(b))
        hold(problem, found, coef, repaired(problem, alpha), b)


def test_weights_of_a_run_have_any_scale_and_no_sign() -> None:
    problem = max_margin([[2.0], [-1.0]], [1, -1], intercept=True)
    found = certify_run(problem, [[1.0]], weights=[1e200, 1e200])
    assert found.lower == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="negative"):
        certify_run(problem, [[1.0]], weights=[-1.0, 1.0])
