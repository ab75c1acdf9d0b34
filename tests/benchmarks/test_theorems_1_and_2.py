"""What is proved of GaLU networks: bounds, rates, filter search, and parities."""

import math

import numpy as np
import pytest

from benchmarks.fiat2019 import search_procedures, theorems_1_and_2
from benchmarks.fiat2019.parity_correlation import parity_correlation
from drawn import hard, normal, sphere
from implicit_bias.datasets.parities import cube
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels import least_squares as fitted
from implicit_bias.problem import decision
from implicit_bias.problem.gating import UnitGates

CHERNOFF = theorems_1_and_2.CHERNOFF
M, D = 60, 4


def test_expected_loss() -> None:
    """1 - r/m, exactly, as the mean over all sign vectors of a small case; rank-deficient too."""
    X, gates = normal(8, 2), hard(3, 2).gates(normal(8, 2))
    fits = [fitted.least_squares(X, gates, y) for y in cube(8)]
    rank = fits[0].rank
    assert 0 < rank < 8
    assert np.mean([fit.loss for fit in fits]) == pytest.approx(
        theorems_1_and_2.expected_loss(rank, 8)
    )


@pytest.mark.parametrize(("m", "d"), [(10, 5), (16, 5)])
def test_khatri_rao_bound(m: int, d: int) -> None:
    """Against the product itself, row by row; below lambda(X)."""
    X = sphere(m, d)
    products = np.stack([np.kron(x, x) for x in X])
    smallest = np.linalg.svd(products, compute_uv=False)[-1]
    bound = theorems_1_and_2.khatri_rao_bound(X)
    assert bound == pytest.approx(smallest**2 / (2 * math.pi), abs=1e-10)
    eigenvalue = galu.smallest_eigenvalue(X)
    assert eigenvalue == pytest.approx(np.linalg.eigvalsh(galu.limit_kernel(X))[0])
    assert bound <= eigenvalue


def test_theorem_1() -> None:
    """By its own step and time, at its own width; and no faster than its sharper rate."""
    X, y = sphere(8, 6), np.sign(normal(8, seed=1))
    k = theorems_1_and_2.sufficient_width(X, constant=theorems_1_and_2.PUBLISHED_CHERNOFF)
    gates = hard(k, 6).gates(X)
    step = theorems_1_and_2.published_step(X, k)
    assert step <= 1 / np.linalg.eigvalsh(fitted.gated_gram(X, gates))[-1]
    distance = float(np.sum(fitted.least_squares(X, gates, y).coef ** 2))
    for accuracy in (1e-2, 1e-6):
        steps = theorems_1_and_2.sufficient_steps(X, k, distance_square=distance, accuracy=accuracy)
        R, smallest = np.linalg.norm(X, 2) ** 2, galu.smallest_eigenvalue(X)
        expected = 2 * R / smallest * math.log(k * R * distance / (8 * accuracy))
        assert steps == math.ceil(expected)
        losses = theorems_1_and_2.gradient_descent(X, gates, y, step_size=step, steps=steps + 20)
        assert (losses[steps:] / 2 <= accuracy).all()  # F is half the mean square
    bound = theorems_1_and_2.rate_bound(k * smallest / 2, step_size=step, steps=steps + 20)
    np.testing.assert_allclose(bound, (1 - smallest / (2 * R)) ** (2 * np.arange(steps + 21)))
    assert (losses <= losses[0] * bound * (1 + 1e-9)).all()


def test_gradient_descent_as_predicted() -> None:
    X, y = sphere(15, 5), normal(15, seed=2)
    gates = hard(40, 5).gates(X)
    gram = fitted.gated_gram(X, gates)
    values = np.linalg.eigvalsh(gram)
    step = 1 / values[-1]
    losses = theorems_1_and_2.gradient_descent(X, gates, y, step_size=step, steps=50)
    predicted = galu.predicted_losses(gram, y, step_size=step, steps=np.arange(51))
    np.testing.assert_allclose(losses, predicted, rtol=1e-8)
    bound = theorems_1_and_2.rate_bound(values[0], step_size=step, steps=50)
    assert (losses <= losses[0] * bound * (1 + 1e-12)).all()


def test_filter_search_against_new_solves() -> None:
    """Repeat the search with a least-squares problem for each proposal, as published."""
    X, y = normal(M, D), normal(M, seed=2)
    gating = hard(5)
    search = search_procedures.improve_filters(gating, X, y, proposals=25, random_state=3)
    rng = np.random.default_rng(3)
    weights = gating.weights.copy()
    losses = [fitted.least_squares(X, gating.gates(X), y).loss]
    for _ in range(25):
        h = int(rng.integers(5))
        proposed = weights.copy()
        proposed[h] = rng.normal(size=D)
        gates = UnitGates(proposed, np.zeros(5)).gates(X)
        loss = fitted.least_squares(X, gates, y).loss
        if loss <= losses[-1]:
            weights = proposed
        losses.append(min(loss, losses[-1]))
    np.testing.assert_allclose(search.losses, losses, rtol=1e-8)
    np.testing.assert_array_equal(search.gating.weights, weights)


def test_one_output_of_alternating_search_is_least_squares() -> None:
    """With one output the scale is free, so the first hidden layer is already the best one."""
    X, y = normal(M, D), normal(M, seed=2)
    gates = hard(6).gates(X)
    found = search_procedures.alternating_search(X, gates, y[:, None], iterations=2, random_state=0)
    best = fitted.least_squares(X, gates, y)
    np.testing.assert_allclose(found.losses[1:], best.loss, rtol=1e-6)
    np.testing.assert_allclose(
        found.decision(X, gates)[:, 0], decision(X, gates, best.coef), atol=1e-6
    )


def test_parity_correlation_falls_by_half_a_bit() -> None:
    """On two bits a hard gate is open on a half of the square, so E[gate x_1] is 0 or 1/2."""
    assert parity_correlation(5) == 0.0  # as of every odd number of bits
    values = [parity_correlation(d) for d in range(2, 31, 2)]
    assert values[0] == pytest.approx(math.sqrt(1 / 8), rel=1e-14)
    # arcsin(1 / 2) = pi / 6, so that the sum over the numbers of bits -1 is 2 - 8/3 + 4/3.
    assert values[1] == pytest.approx(math.sqrt(1 / 96), rel=1e-14)
    ratios = np.array(values[1:]) / values[:-1]
    assert (0.25 < ratios).all()
    assert (ratios < 0.5).all()
    assert 1e-17 < parity_correlation(100) < 1e-15
