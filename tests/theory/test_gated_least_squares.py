"""GaLU networks: least squares, the limit kernel, rates, filter search, and parities."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from benchmarks.fiat2019 import search_procedures
from benchmarks.fiat2019.parity_correlation import parity_correlation
from implicit_bias.gating import UnitGates
from implicit_bias.networks import FrozenGateReLU, ReLUNetwork
from implicit_bias.problem import gated_linear
from implicit_bias.theory import gated_least_squares as galu
from implicit_bias.validation import Array

M, D, K = 60, 4, 7


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def hard(n_filters: int, n_features: int = D, seed: int = 1) -> UnitGates:
    return UnitGates(normal(n_filters, n_features, seed=seed), np.zeros(n_filters))


def sphere(m: int, d: int, seed: int = 0) -> Array:
    X = normal(m, d, seed=seed)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def features(X: Array, gates: Array) -> Array:
    """Phi (m, k D), one column at a time."""
    columns = [gates[:, h] * X[:, i] for h in range(gates.shape[1]) for i in range(X.shape[1])]
    return np.stack(columns, axis=1)


# --- least squares ---------------------------------------------------------------------------


def test_gram_is_of_the_features() -> None:
    X, gates = normal(M, D), normal(M, K, seed=1)
    phi = features(X, gates)
    np.testing.assert_array_equal(galu.gated_features(X, gates), phi)
    np.testing.assert_allclose(galu.gated_gram(X, gates), phi @ phi.T, atol=1e-12)
    sparse = sp.csr_array(np.where(gates > 0, gates, 0.0))
    np.testing.assert_allclose(galu.gated_gram(X, sparse), galu.gated_gram(X, sparse.toarray()))


@pytest.mark.parametrize("firing", [">", "sigmoid", np.tanh])
@pytest.mark.parametrize("n_filters", [1, 7, 15, 40])
def test_least_squares_is_the_pseudo_inverse(firing: object, n_filters: int) -> None:
    X, y = normal(M, D), normal(M, seed=2)
    gating = UnitGates(normal(n_filters, D, seed=1), np.zeros(n_filters), firing)  # type: ignore[arg-type]
    gates = gating.gates(X)
    found = galu.least_squares(X, gates, y)
    phi = features(X, gates)
    expected = np.linalg.pinv(phi, rcond=1e-7) @ y
    # The Gram matrix squares the condition number, up to 1e5 here.
    np.testing.assert_allclose(found.coef.reshape(-1), expected, rtol=1e-5, atol=1e-6)
    assert found.rank == np.linalg.matrix_rank(phi)
    decision = gated_linear(X, gates, found.coef)
    assert found.loss == pytest.approx(np.mean((y - decision) ** 2), abs=1e-10)


def test_dependent_features() -> None:
    """A filter twice, and an input that repeats another: minimum norm shares the weight."""
    X, y = normal(M, D), normal(M, seed=2)
    X[:, 3] = X[:, 0]
    gates = hard(3).gates(X)
    twice = np.hstack([gates, gates])
    one, two = galu.least_squares(X, gates, y), galu.least_squares(X, twice, y)
    assert one.rank == two.rank == 9  # 3 filters, 3 inputs
    np.testing.assert_allclose(one.coef[:, 0], one.coef[:, 3], atol=1e-10)
    np.testing.assert_allclose(two.coef, np.vstack([one.coef, one.coef]) / 2, atol=1e-10)
    assert two.loss == pytest.approx(one.loss)


def test_sparse_gates() -> None:
    X, y, gates = normal(M, D), normal(M, seed=2), hard(K).gates(normal(M, D))
    dense, sparse = galu.least_squares(X, gates, y), galu.least_squares(X, sp.csr_array(gates), y)
    np.testing.assert_allclose(sparse.coef, dense.coef, atol=1e-10)


def test_all_gates_closed() -> None:
    found = galu.least_squares(normal(M, D), np.zeros((M, K)), np.ones(M))
    assert (found.rank, found.loss) == (0, 1.0)
    assert not found.coef.any()


def test_decision() -> None:
    X, y, gates = normal(M, D), normal(M, seed=2), hard(K).gates(normal(M, D))
    fit = galu.least_squares(X, gates, y)
    np.testing.assert_array_equal(fit.decision(X, gates), gated_linear(X, gates, fit.coef))
    assert np.mean((fit.decision(X, gates) - y) ** 2) == pytest.approx(fit.loss)
    with pytest.raises(ValueError, match="rows"):
        fit.decision(X, gates[1:])
    with pytest.raises(ValueError, match="features"):
        fit.decision(X[:, 1:], gates)


@pytest.mark.parametrize("n_units", [3, 40])
def test_ridge(n_units: int) -> None:
    """Both ways to the solution, by few features and by few samples."""
    X, Y, gates = normal(M, D), normal(M, 2, seed=2), hard(n_units).gates(normal(M, D))
    phi = features(X, gates)
    expected = np.linalg.solve(phi.T @ phi + 0.3 * np.eye(phi.shape[1]), phi.T @ Y)
    fit = galu.least_squares(X, gates, Y, ridge=0.3)
    np.testing.assert_allclose(fit.coef.reshape(2, -1).T, expected, atol=1e-10)
    assert fit.loss == pytest.approx(np.mean((Y - phi @ expected) ** 2))
    with pytest.raises(ValueError, match="ridge"):
        galu.least_squares(X, gates, Y, ridge=-1.0)


def test_rows_must_fit() -> None:
    X, gates, y = normal(M, D), np.ones((M - 1, K)), normal(M)
    with pytest.raises(ValueError, match="X, gates, y must have one row a sample, got 60, 59, 60"):
        galu.least_squares(X, gates, y)
    with pytest.raises(ValueError, match="X, gates, y must have one row a sample, got 60, 59, 60"):
        galu.gradient_descent(X, gates, y, step_size=0.1, steps=1)
    with pytest.raises(ValueError, match="X, gates, Y must have one row a sample, got 60, 59, 60"):
        search_procedures.alternating_search(X, gates, y[:, None], iterations=1)
    with pytest.raises(ValueError, match="X, y must have one row a sample, got 60, 59"):
        search_procedures.improve_filters(hard(K), X, y[1:], proposals=1)


def test_expected_loss() -> None:
    """1 - r/m, exactly, as the mean over all sign vectors of a small case; rank-deficient too."""
    X, gates = normal(8, 2), hard(3, 2).gates(normal(8, 2))
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=8)))
    fits = [galu.least_squares(X, gates, y) for y in signs]
    rank = fits[0].rank
    assert 0 < rank < 8
    assert np.mean([fit.loss for fit in fits]) == pytest.approx(galu.expected_loss(rank, 8))


@pytest.mark.parametrize(("n_filters", "firing"), [(2, ">"), (10, ">"), (15, ">"), (4, "sigmoid")])
def test_rank_of_gaussian_data(n_filters: int, firing: object) -> None:
    X = normal(M, D)
    gating = UnitGates(normal(n_filters, D, seed=1), np.zeros(n_filters), firing)  # type: ignore[arg-type]
    found = galu.least_squares(X, gating.gates(X), normal(M, seed=2))
    assert found.rank == galu.largest_rank(M, n_filters, D)


def test_rank_with_closed_gates() -> None:
    """Hard gates that are few leave out a sample whose gates are all closed."""
    X = normal(200, 100)
    gates = hard(3, 100).gates(X)
    silent = int(np.sum(~gates.any(axis=1)))
    assert silent > 0
    assert galu.least_squares(X, gates, np.ones(200)).rank == 200 - silent
    assert galu.largest_rank(200, 3, 100) == 200


# --- the kernel ------------------------------------------------------------------------------


def test_limit_kernel_is_the_mean_over_filters() -> None:
    """Within five standard errors of a Monte Carlo mean, entry by entry, at any scale."""
    X = 3.0 * normal(6, 3)
    n_filters = 200_000
    gram = galu.gated_gram(X, hard(n_filters, 3).gates(X)) / n_filters
    kappa = galu.limit_kernel(X)
    spread = np.abs(X @ X.T) / 2 / math.sqrt(n_filters)
    assert (np.abs(gram - kappa) <= 5 * spread).all()
    np.testing.assert_allclose(np.diag(kappa), np.sum(X**2, axis=1) / 2)


def test_limit_kernel_at_special_angles() -> None:
    X = np.array([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    expected = [0.5, 0.0, 0.0, 0.5 - 1 / 8, 0.0]  # opposite inputs share no filter
    np.testing.assert_allclose(galu.limit_kernel(X[:1], X)[0], expected, atol=1e-12)


def test_convergence_rate_of_finite_gates() -> None:
    """The mean square distance is sum p (1 - p) <x, x'>^2 / k."""
    X = sphere(10, 4)
    kappa, inner = galu.limit_kernel(X), X @ X.T
    both = kappa / inner
    for k in (10, 1000):
        squares = [
            np.sum((galu.gated_gram(X, hard(k, 4, seed).gates(X)) / k - kappa) ** 2)
            for seed in range(200)
        ]
        assert np.mean(squares) == pytest.approx(np.sum(both * (1 - both) * inner**2) / k, rel=0.15)


@pytest.mark.parametrize(("m", "d"), [(10, 5), (200, 40), (50, 30), (30, 200)])
def test_khatri_rao_bound(m: int, d: int) -> None:
    """Against the product itself, row by row; below lambda(X), and below the sharper bound."""
    X = sphere(m, d)
    products = np.stack([np.kron(x, x) for x in X])
    smallest = np.linalg.svd(products, compute_uv=False)[-1]
    bound = galu.khatri_rao_bound(X)
    assert bound == pytest.approx(smallest**2 / (2 * math.pi), abs=1e-10)
    assert bound <= galu.smallest_eigenvalue(X)
    assert math.pi / 2 * bound <= galu.eigenvalue_bound(X) + 1e-12
    assert galu.coherence_bound(X) <= galu.eigenvalue_bound(X)


def test_khatri_rao_bound_at_the_sizes_of_the_facts() -> None:
    """For m = 200, d = 40, 80, 160, 320: .038 .088 .122 .139 (lambda .135 .195 .230 .260)."""
    found = [
        (galu.khatri_rao_bound(X), galu.smallest_eigenvalue(X))
        for X in (sphere(200, d) for d in (40, 80, 160, 320))
    ]
    expected = [(0.038, 0.135), (0.088, 0.195), (0.122, 0.230), (0.139, 0.260)]
    np.testing.assert_allclose(found, expected, atol=0.006)


def test_khatri_rao_bound_is_vacuous_for_many_inputs() -> None:
    """Products of d inputs span d (d + 1) / 2 dimensions."""
    assert galu.khatri_rao_bound(sphere(16, 5)) == 0.0
    assert galu.khatri_rao_bound(sphere(15, 5)) > 0.0


@pytest.mark.parametrize(("m", "d"), [(2, 2), (20, 5), (50, 30), (30, 200)])
def test_eigenvalue_bound(m: int, d: int) -> None:
    X = sphere(m, d)
    eigenvalue = galu.smallest_eigenvalue(X)
    assert eigenvalue == pytest.approx(np.linalg.eigvalsh(galu.limit_kernel(X))[0])
    assert 0 < galu.eigenvalue_bound(X) <= eigenvalue * (1 + 1e-12)


def test_eigenvalue_bound_is_sharp() -> None:
    """For orthogonal inputs kappa is half the identity; for equal ones there is no bound."""
    assert galu.eigenvalue_bound(np.eye(5)) == 0.5
    assert galu.eigenvalue_bound(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])) == 0.0
    with pytest.raises(ValueError, match="rows of norm 1"):
        galu.eigenvalue_bound(2 * np.eye(3))


def test_eigenvalue_bound_of_inputs_that_nearly_coincide() -> None:
    """The best q would be beyond all numbers of terms that can be summed; it is cut off."""
    angle = 1e-7
    X = np.array([[1.0, 0.0, 0.0], [math.cos(angle), math.sin(angle), 0.0], [0.0, 0.0, 1.0]])
    assert 0 <= galu.eigenvalue_bound(X) <= galu.smallest_eigenvalue(X) + 1e-12


def test_opposite_inputs() -> None:
    """A pair of opposite inputs shares no filter; up to D pairs that are independent do no harm."""
    X = sphere(4, 3)
    for pairs in (1, 2, 3):
        assert galu.smallest_eigenvalue(np.vstack([X, -X[:pairs]])) > 1e-4
    np.testing.assert_allclose(galu.limit_kernel(np.vstack([X[:1], -X[:1]])), np.eye(2) / 2)


def test_sufficient_width_suffices() -> None:
    """No failure of probability 1/2 or less in 20 draws; far fewer filters do fail."""
    X = sphere(12, 6)
    k, half = galu.sufficient_width(X, failure=0.5), galu.smallest_eigenvalue(X) / 2
    smallest = [
        np.linalg.eigvalsh(galu.gated_gram(X, hard(k, 6, seed).gates(X)))[0] for seed in range(20)
    ]
    assert min(smallest) >= k * half
    few = galu.gated_gram(X, hard(1, 6).gates(X))
    assert np.linalg.eigvalsh(few)[0] < half


def test_sufficient_width_of_hopeless_data() -> None:
    X = sphere(4, 3)
    for more in (2 * X[:1], np.zeros((1, 3)), -X):  # -X: four pairs in three dimensions
        with pytest.raises(ValueError, match=r"lambda\(X\) is 0"):
            galu.sufficient_width(np.vstack([X, more]))
    with pytest.raises(ValueError, match="failure must be in"):
        galu.sufficient_width(X, failure=1.0)


def test_constant_of_lemma_1() -> None:
    """8 as printed, 2 / log(e / 2) = 6.518 by its own inequality."""
    X = sphere(12, 6)
    ratio = np.linalg.norm(X, 2) ** 2 / galu.smallest_eigenvalue(X)
    printed = galu.sufficient_width(X, 0.1, constant=galu.PUBLISHED_CHERNOFF)
    assert printed == math.ceil(8 * ratio * math.log(120))
    assert pytest.approx(6.518, abs=1e-3) == galu.CHERNOFF
    assert galu.sufficient_width(X, 0.1) == math.ceil(galu.CHERNOFF * ratio * math.log(120))
    k = galu.sufficient_width(X, 0.1)
    assert galu.chernoff_failure(X, k) <= 0.1 < galu.chernoff_failure(X, k - 1)
    exponent = k / (2 * ratio)
    assert galu.chernoff_failure(X, k) == pytest.approx(12 * (math.e / 2) ** -exponent)


def test_failures_of_lemma_1() -> None:
    """At widths where the bound is below 1 no more draws fail than it allows."""
    X = sphere(6, 4)
    half = galu.smallest_eigenvalue(X) / 2
    for k in (20, 60, 100):
        failed = [
            np.linalg.eigvalsh(galu.gated_gram(X, hard(k, 4, seed).gates(X)))[0] <= k * half
            for seed in range(300)
        ]
        assert np.mean(failed) <= galu.chernoff_failure(X, k)


def test_constants_of_lemma_2_and_corollary_1() -> None:
    width = galu.sphere_width(400, 20, 0.1, c1=0.5)
    assert width == math.ceil(64 * math.pi / 0.25 * 20 * math.log(4000))
    samples = galu.memorised_samples(10**6, 20, 0.1, c1=0.5, c2=0.4)
    assert samples == math.floor(10**6 * 20 * 0.25 / (64 * math.pi) / math.log(0.4 * 400 / 0.1))
    # The corollary is the lemma read backwards: m' <= c2 d^2 samples need no more than this width.
    few = galu.memorised_samples(30_000, 20, 0.1, c1=0.5, c2=0.4)
    assert 20 <= few <= 0.4 * 20**2
    assert galu.sphere_width(few, 20, 0.1, c1=0.5) <= 30_000


# --- gradient descent ------------------------------------------------------------------------


def test_theorem_1() -> None:
    """By its own step and time, at its own width; and no faster than its sharper rate."""
    X, y = sphere(8, 6), np.sign(normal(8, seed=1))
    k = galu.sufficient_width(X, constant=galu.PUBLISHED_CHERNOFF)
    gates = hard(k, 6).gates(X)
    step = galu.published_step(X, k)
    assert step <= 1 / np.linalg.eigvalsh(galu.gated_gram(X, gates))[-1]
    distance = float(np.sum(galu.least_squares(X, gates, y).coef ** 2))
    for accuracy in (1e-2, 1e-6):
        steps = galu.sufficient_steps(X, k, distance_square=distance, accuracy=accuracy)
        R, smallest = np.linalg.norm(X, 2) ** 2, galu.smallest_eigenvalue(X)
        expected = 2 * R / smallest * math.log(k * R * distance / (8 * accuracy))
        assert steps == math.ceil(expected)
        losses = galu.gradient_descent(X, gates, y, step_size=step, steps=steps + 20)
        assert (losses[steps:] / 2 <= accuracy).all()  # F is half the mean square
    bound = galu.rate_bound(k * smallest / 2, step_size=step, steps=steps + 20)
    np.testing.assert_allclose(bound, (1 - smallest / (2 * R)) ** (2 * np.arange(steps + 21)))
    assert (losses <= losses[0] * bound * (1 + 1e-9)).all()


def test_the_null_space_never_decays() -> None:
    """Steps stay in the row space of the features, so a start outside it keeps its distance."""
    X, y = sphere(8, 6), normal(8, seed=1)
    phi = features(X, hard(20, 6).gates(X))
    step = 1 / np.linalg.norm(phi, 2) ** 2
    least = np.linalg.pinv(phi) @ y
    start = normal(120, seed=3)
    outside = start - np.linalg.pinv(phi) @ (phi @ start)
    w = start
    for _ in range(20_000):
        w = w - step * phi.T @ (phi @ w - y)
    np.testing.assert_allclose(w, least + outside, atol=1e-6)


def test_gradient_descent_as_predicted() -> None:
    X, y = sphere(15, 5), normal(15, seed=2)
    gates = hard(40, 5).gates(X)
    gram = galu.gated_gram(X, gates)
    values = np.linalg.eigvalsh(gram)
    step = 1 / values[-1]
    losses = galu.gradient_descent(X, gates, y, step_size=step, steps=50)
    predicted = galu.predicted_losses(gram, y, step_size=step, steps=np.arange(51))
    np.testing.assert_allclose(losses, predicted, rtol=1e-8)
    bound = galu.rate_bound(values[0], step_size=step, steps=50)
    assert (losses <= losses[0] * bound * (1 + 1e-12)).all()
    np.testing.assert_allclose(
        galu.gradient_descent(X, sp.csr_array(gates), y, step_size=step, steps=50), losses
    )


def test_predicted_losses_are_the_linear_recursion() -> None:
    gram = galu.limit_kernel(sphere(8, 3))
    residual = normal(8, seed=2)
    step = 1.5 / np.linalg.eigvalsh(gram)[-1]
    steps = np.array([0, 1, 2, 7])
    expected = [
        np.mean((np.linalg.matrix_power(np.eye(8) - step * gram, t) @ residual) ** 2) for t in steps
    ]
    predicted = galu.predicted_losses(gram, residual, step_size=step, steps=steps)
    np.testing.assert_allclose(predicted, expected, rtol=1e-8)
    with pytest.raises(ValueError, match=r"step_size must be in \(0, 2 / l_max\)"):
        galu.predicted_losses(gram, residual, step_size=1.4 * step, steps=steps)
    with pytest.raises(ValueError, match="residual has 3 entries for 8 samples"):
        galu.predicted_losses(gram, residual[:3], step_size=step, steps=steps)


def test_rate_bound_is_reached() -> None:
    """Targets along the last eigenvector decay at exactly that rate."""
    X = sphere(6, 3)
    gates = hard(30, 3).gates(X)
    values, vectors = np.linalg.eigh(galu.gated_gram(X, gates))
    step = 1 / values[-1]
    losses = galu.gradient_descent(X, gates, vectors[:, 0], step_size=step, steps=20)
    bound = galu.rate_bound(values[0], step_size=step, steps=20)
    np.testing.assert_allclose(losses / losses[0], bound, rtol=1e-6)


# --- filter search and alternating search ----------------------------------------------------


def test_filter_search_against_new_solves() -> None:
    """Repeat the search with a least-squares problem for each proposal, as published."""
    X, y = normal(M, D), normal(M, seed=2)
    gating = hard(5)
    search = search_procedures.improve_filters(gating, X, y, proposals=25, random_state=3)
    rng = np.random.default_rng(3)
    weights = gating.weights.copy()
    losses = [galu.least_squares(X, gating.gates(X), y).loss]
    for _ in range(25):
        h = int(rng.integers(5))
        proposed = weights.copy()
        proposed[h] = rng.normal(size=D)
        gates = UnitGates(proposed, np.zeros(5)).gates(X)
        loss = galu.least_squares(X, gates, y).loss
        if loss <= losses[-1]:
            weights = proposed
        losses.append(min(loss, losses[-1]))
    np.testing.assert_allclose(search.losses, losses, rtol=1e-8)
    np.testing.assert_array_equal(search.gating.weights, weights)
    assert losses[-1] < losses[0]


def test_filter_search_with_dependent_features() -> None:
    """Equal filters, an input that repeats another, and a filter that is open nowhere."""
    X, y = normal(M, D), normal(M, seed=2)
    X[:, 3], X[:, 0] = X[:, 1], 1.0
    weights = normal(5, D, seed=1)
    weights[1] = weights[0]
    weights[4] = [-100.0, 0, 0, 0]
    search = search_procedures.improve_filters(
        UnitGates(weights, np.zeros(5), always_on=True), X, y, proposals=40, random_state=0
    )
    assert (np.diff(search.losses) <= 1e-12).all()
    final = galu.least_squares(X, search.gating.gates(X), y)
    assert search.losses[-1] == pytest.approx(final.loss, rel=1e-8)
    assert search.losses[-1] < search.losses[0]


def test_one_output_of_alternating_search_is_least_squares() -> None:
    """With one output the scale is free, so the first hidden layer is already the best one."""
    X, y = normal(M, D), normal(M, seed=2)
    gates = hard(6).gates(X)
    found = search_procedures.alternating_search(X, gates, y[:, None], iterations=2, random_state=0)
    best = galu.least_squares(X, gates, y)
    np.testing.assert_allclose(found.losses[1:], best.loss, rtol=1e-6)
    np.testing.assert_allclose(
        found.decision(X, gates)[:, 0], gated_linear(X, gates, best.coef), atol=1e-6
    )


def test_alternating_search_never_rises() -> None:
    X, Y = normal(M, D), normal(M, 3, seed=2)
    gates = hard(5).gates(X)
    found = search_procedures.alternating_search(X, gates, Y, iterations=30, random_state=0)
    assert (np.diff(found.losses) <= 1e-12).all()
    assert found.losses[-1] == pytest.approx(np.mean((Y - found.decision(X, gates)) ** 2))
    separate = np.mean([galu.least_squares(X, gates, y).loss for y in Y.T])
    assert separate <= found.losses[-1] < 1.0  # outputs that share no weights can only do better


def test_alternating_search_recovers_a_network() -> None:
    X, gates = normal(M, D), hard(3).gates(normal(M, D))
    Y = (gates * (X @ normal(3, D, seed=5).T)) @ normal(3, 4, seed=6)
    found = search_procedures.alternating_search(X, gates, Y, iterations=100, random_state=0)
    assert found.losses[-1] < 1e-6 * found.losses[0]


# --- parities --------------------------------------------------------------------------------


def cube(d: int) -> Array:
    return np.array(list(itertools.product((-1.0, 1.0), repeat=d)))


@pytest.mark.parametrize("d", [2, 4, 6])
def test_parity_correlation(d: int) -> None:
    X = cube(d)
    gates = hard(20_000, d).gates(X)
    correlations = (X.prod(axis=1)[:, None] * gates).T @ X / len(X)
    measured = np.sqrt(np.mean(correlations**2))
    assert parity_correlation(d) == pytest.approx(measured, rel=0.03)


def test_two_bits() -> None:
    """On two bits a hard gate is open on a half of the square, so E[gate x_1] is 0 or 1/2."""
    assert parity_correlation(2) == pytest.approx(math.sqrt(1 / 8), rel=1e-14)


def test_parity_correlation_falls_by_half_a_bit() -> None:
    values = [parity_correlation(d) for d in range(2, 101, 2)]
    ratios = np.array(values[1:]) / values[:-1]
    assert (0.25 < ratios).all()
    assert (ratios < 0.5).all()
    assert 1e-17 < values[-1] < 1e-15


@pytest.mark.parametrize("d", [3, 5])
def test_odd_parities_are_orthogonal(d: int) -> None:
    """To every gated coordinate, and to every ReLU unit without a bias, whatever its weights."""
    X = cube(d)
    parity = X.prod(axis=1)
    weights = normal(50, d)
    gates = UnitGates(weights, np.zeros(50)).gates(X)
    np.testing.assert_allclose((parity[:, None] * gates).T @ X, 0.0, atol=1e-12)
    np.testing.assert_allclose(parity @ np.maximum(X @ weights.T, 0.0), 0.0, atol=1e-12)
    assert parity_correlation(d) == 0.0


def test_first_gradients_of_relu_and_galu_are_equal() -> None:
    X, y = torch.tensor(normal(20, D)), torch.tensor(normal(20, seed=2))
    relu = ReLUNetwork(D, [K], seed=0)
    frozen = FrozenGateReLU(relu)
    for network in (relu, frozen):
        loss = (network(*network.prepare(X.numpy())) - y).square().mean()
        torch.autograd.backward(loss)
    for live, fixed in zip(relu.parameters(), frozen.parameters(), strict=True):
        assert live.grad is not None
        assert fixed.grad is not None
        torch.testing.assert_close(live.grad, fixed.grad)


def test_one_bit_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2, got 1"):
        parity_correlation(1)
