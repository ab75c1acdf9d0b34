"""Bounds of Fiat et al. (2019) and (2018), as they are printed, against what they bound."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from benchmarks.fiat2019 import theorems_3_to_5 as bounds
from drawn import normal, sphere
from implicit_bias.base.validation import Array
from implicit_bias.datasets.parities import cube
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels.least_squares import gated_gram


def gates_of(X: Array, U: Array) -> Array:
    return (X @ U.T >= 0).astype(float)


# --- theorem 3 -------------------------------------------------------------------------------


def test_steps_of_the_proof_of_theorem_3() -> None:
    """At a width that runs: the theorem's own does not."""
    m, d, k = 20, 10, 4000
    X = sphere(m, d)
    infinite, smallest = galu.limit_kernel(X), galu.smallest_eigenvalue(X)
    y = infinite @ normal(m, seed=1)
    y /= np.abs(y).max()
    H = gated_gram(X, gates_of(X, normal(k, d, seed=2))) / k
    ratio = smallest / float(np.linalg.norm(H - infinite, 2))
    assert ratio > 1
    apart = np.linalg.norm(np.linalg.inv(H) - np.linalg.inv(infinite), 2)
    assert apart <= bounds.inverse_deviation(ratio, smallest)
    assert y @ np.linalg.solve(H, y) <= bounds.interpolant_norm_bound(infinite, y, ratio)
    # The largest correlation of signs with a ball of coefficients, ||w|| <= sqrt 2 M, is
    # sqrt 2 M ||Phi' signs|| / m.
    norm = math.sqrt(y @ np.linalg.solve(infinite, y))
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=(4000, m))
    sizes = np.sqrt(np.einsum("ri,ij,rj->r", signs, H, signs))
    complexity = math.sqrt(2) * norm * float(sizes.mean()) / m
    assert complexity <= bounds.kernel_rademacher(norm, m)


# --- linear predictors -----------------------------------------------------------------------


def test_rademacher_bounds_by_all_signs() -> None:
    """E sup_{||w||_p <= B} 1/m sum s_i <w, x_i>: the dual norm of the mean, over all signs."""
    X, B = normal(10, 4), 1.7
    sums = cube(10) @ X / 10
    two = B * np.mean(np.linalg.norm(sums, axis=1))
    one = B * np.mean(np.abs(sums).max(axis=1))
    assert two <= bounds.linear_rademacher(X, B, p=2)
    assert one <= bounds.linear_rademacher(X, B, p=1)
    largest = np.linalg.norm(X, axis=1).max()
    assert bounds.linear_rademacher(X, B, p=2) == pytest.approx(math.sqrt(B**2 * largest**2 / 10))
    entry = np.abs(X).max()
    expected = math.sqrt(2 * math.log(8) * B**2 * entry**2 / 10)
    assert bounds.linear_rademacher(X, B, p=1) == pytest.approx(expected)


# --- theorem 4 -------------------------------------------------------------------------------


def hinge(margins: torch.Tensor) -> torch.Tensor:
    return (1 - margins).relu()


@pytest.mark.parametrize(
    ("loss", "scale", "same"),
    [
        (hinge, 1.0, True),
        (hinge, 300.0, False),
        (lambda margins: softplus(-margins), 1.0, False),
    ],
    ids=["hinge", "hinge-of-large-outputs", "logistic"],
)
def test_theorem_4(loss: Callable[[torch.Tensor], torch.Tensor], scale: float, same: bool) -> None:
    """First gradients are the same by the hinge loss and outputs in [-1, 1], by no other."""
    m, d, k = 200, 20, 30
    rng = np.random.default_rng(0)
    X = sphere(m, d) * rng.random((m, 1)) ** (1 / d)
    y = rng.choice([-1.0, 1.0], m)
    U, W, a = rng.normal(size=(k, d)), rng.normal(size=(k, d)), rng.normal(size=k)
    a *= scale / max(bounds.largest_output(U, a), bounds.largest_output(W, a))
    inputs, labels, readout = torch.tensor(X), torch.tensor(y), torch.tensor(a)
    gates = torch.tensor(gates_of(X, U))
    slopes = []
    for start in (W, U):
        weights = torch.tensor(start, requires_grad=True)
        outputs = (gates * (inputs @ weights.T)) @ readout / math.sqrt(k)
        torch.autograd.backward(loss(labels * outputs).mean())
        assert weights.grad is not None
        slopes.append(weights.grad.numpy())
    apart = np.linalg.norm(slopes[0] - slopes[1]) / np.linalg.norm(slopes[1])
    assert apart < 1e-12 if same else apart > 0.03


# --- theorem 5 -------------------------------------------------------------------------------


def test_a_step_of_the_proof_of_theorem_5() -> None:
    """Slip (a): every gate within eps of x's hyperplane is flipped, by filters moved by eps."""
    d, eps, k = 20, 1.0, 20_000
    U, x = normal(k, d), np.eye(d)[0]
    near = U.copy()
    near[:, 0] -= eps * np.sign(U[:, 0])
    flipped = float(np.mean((U @ x >= 0) != (near @ x >= 0)))
    relu = np.maximum(near @ x, 0)
    gated = (U @ x >= 0) * (near @ x)
    apart = abs(float(np.sum(relu - gated))) / math.sqrt(k)
    largest = float(np.linalg.norm(near, axis=1).max())
    printed = bounds.relu_approximation_error(d, eps, largest=largest, n_units=k, printed=True)
    proved = bounds.relu_approximation_error(d, eps, largest=largest, n_units=k)
    assert printed < apart <= bounds.flipped_error(np.ones(k), eps, flipped) < proved
