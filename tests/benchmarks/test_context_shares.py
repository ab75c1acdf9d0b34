"""Contexts of different degrees: the counterexample, the repaired statement, the lemma's bound."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from benchmarks.lippl2022 import context_shares as shares
from implicit_bias.training.losses import LOSSES

LOGISTIC = LOSSES["logistic"].log_loss


def angle(w: torch.Tensor) -> float:
    return math.degrees(math.atan2(float(w[1]), float(w[0])))


def path(norms: list[float]) -> list[torch.Tensor]:
    """Gradient flow on the counterexample, from 45 degrees."""
    return shares.gradient_path(shares.counterexample(), [1.0, 1.0], norms, log_loss=LOGISTIC)


def test_gradient_flow_goes_elsewhere_than_the_stationary_point() -> None:
    """Program (6) has its stationary point at 45 degrees; the flow goes to 20."""
    early, middle, late = path([27.0, 128.0, 1e6])
    assert angle(early) == pytest.approx(45.0, abs=1.0)
    assert angle(middle) == pytest.approx(27.0, abs=0.2)
    assert angle(late) == pytest.approx(20.0, abs=0.01)


def test_shares_go_to_the_least_degree_whatever_the_margins() -> None:
    early, late = (
        shares.record(shares.counterexample(), w, [0, 1], log_loss=LOGISTIC)
        for w in path([30.0, 1e4])
    )
    np.testing.assert_allclose(late.degrees, [1.0, 2.0])
    assert (late.margins > 0).all()
    assert late.margins[1] < late.margins[0]  # the second context has the least margin
    assert early.shares[1] > late.shares[1]
    assert late.shares[0] > 0.9
    np.testing.assert_array_equal(shares.limit_contexts(late.degrees), [0])


@pytest.mark.parametrize(
    ("degree", "scales", "n_tight"),
    [(1, (1.0, 1.0), 2), (2, (1.0, 10.0), 1), (3, (10.0, 1.0), 1)],
    ids=["equal", "first-least", "second-least"],
)
def test_with_equal_degrees_the_limit_is_stationary(
    degree: int, scales: tuple[float, float], n_tight: int
) -> None:
    """The theorem: samples of least margin alone have multipliers, whatever their contexts."""
    X = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)

    def margins(w: torch.Tensor) -> torch.Tensor:
        return torch.tensor(scales) * (X @ w) ** degree

    (w,) = shares.gradient_path(margins, [1.0, 1.0], [100.0])
    w = (w * margins(w).min() ** (-1 / degree)).requires_grad_()
    q = margins(w)
    gradients = torch.stack([torch.autograd.grad(one, w, retain_graph=True)[0] for one in q])
    tight = (q < 1.02).numpy()
    multipliers, residual = nnls(gradients.numpy()[tight].T, w.detach().numpy())
    assert residual < 0.03 * float(w.detach().norm())
    assert (multipliers > 0).all()
    assert tight.sum() == n_tight


def test_the_gradient_is_as_near_to_its_tail_as_the_lemma_says() -> None:
    """The logistic loss: c = a = 1, delta = -1 / (1 + e^m), by brute force."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 4)) + np.array([2.5, 0, 0, 0])
    u = np.array([1.0, 0, 0, 0])
    X = X[X @ u > 0.2]
    for scale in (1.0, 3.0, 10.0):
        m = scale * X @ u
        tail = np.exp(-m)
        delta = -1 / (1 + np.exp(m))
        exact, part = (tail * (1 + delta)) @ X, tail @ X
        q = torch.tensor(m, requires_grad=True)
        (slopes,) = torch.autograd.grad(LOSSES["logistic"](q).sum(), q)
        np.testing.assert_allclose(-slopes.numpy() @ X, exact, rtol=1e-10)
        relative = np.linalg.norm(exact - part) / np.linalg.norm(part)
        assert relative <= shares.tail_deviation(delta, X, float((X @ u).min()))
