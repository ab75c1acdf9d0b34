"""What is proved of activation Gram matrices: constants and formulas, by brute force."""

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from benchmarks.panigrahi2020 import gram_bounds
from benchmarks.panigrahi2020.finite_spectrum import polynomial
from benchmarks.panigrahi2020.gram_spectrum import circle_points, separation
from drawn import sphere
from example_modules import drawn
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.kernels.dual_kernels import arc_cosine_kernel, gradient_kernel


def test_shapes_of_the_lower_bounds() -> None:
    n, delta = 50, 0.1
    assert gram_bounds.kink_bound(n, delta, 1) == pytest.approx(0.1 / 125000)
    assert gram_bounds.kink_bound(n, delta, 2) == pytest.approx(1e-3 / 50**7 / math.log(50))
    assert gram_bounds.relu_bound(n, delta) == pytest.approx(0.1**1.5 * math.log(50) ** -1.5)
    assert gram_bounds.descent_width(10, 0.1, 0.5) == pytest.approx(10**6 * 10**4 * 8)
    assert gram_bounds.dynamics_width(10, 0.1, 0.5, 0.1) == pytest.approx(10**5 * 2 * 10**4 * 100)


def test_coherence_bounds_the_smallest_eigenvalue() -> None:
    X, phi = sphere(6, 12), grams.ACTIVATIONS["elu"]
    coherence = float(np.abs(X @ X.T - np.eye(6)).max())
    bound = gram_bounds.coherence_bound(phi, coherence, 6)
    # The powers one by one, by Gershgorin.
    powers = coherence ** np.arange(1, len(phi.hermite_squares) + 1)
    brute = phi.hermite_squares @ np.maximum(0.0, 1 - 5 * powers)
    assert bound == pytest.approx(brute)
    assert 0 < bound <= grams.eigenvalues(grams.infinite_gram(X, phi))[-1]
    # The slip: assumption 2 does not bound inner products by 1 - delta.
    assert 1 - separation(X) < coherence <= math.sqrt(1 - separation(X) ** 2) + 1e-12


@pytest.mark.parametrize(("degree", "dimension"), [(1, 3), (4, 2)])
def test_constraints_count_monomials(degree: int, dimension: int) -> None:
    monomials = 0
    for k in range(1, degree + 1):
        monomials += len(list(itertools.combinations_with_replacement(range(dimension), k)))
    assert gram_bounds.polynomial_constraints(degree, dimension) == monomials


def test_largest_degree() -> None:
    for n, dimension in itertools.product((3, 6, 7, 20, 100), (1, 2, 3)):
        p = gram_bounds.largest_degree(n, dimension)
        assert math.comb(dimension + p, p) < n + 1 <= math.comb(dimension + p + 1, p + 1)


def test_index_of_zero_eigenvalues() -> None:
    assert gram_bounds.zero_index(12, 2, 2) == 6
    assert gram_bounds.zero_index(12, 2, 2, train_readouts=True) == 12
    # The slip: with equality, 10 / 2 = C(4, 2) - 1 = 5, the fifth eigenvalue is not 0.
    values = grams.eigenvalues(grams.infinite_gram(circle_points(10), polynomial([0.0, 1.0, 1.0])))
    assert gram_bounds.zero_index(10, 2, 2) == 5
    assert values[4] > 0.01
    assert values[5] < 1e-10
    assert gram_bounds.smooth_index(10, 3) == 4
    assert gram_bounds.smooth_exponent(81, 2) == pytest.approx(3.0)


def test_upper_bounds_of_smooth_activations() -> None:
    n, m, d = 20, 100, 2
    p, s = gram_bounds.largest_degree(n, d), math.sqrt(math.log(n * m))
    brute = n * ((4 * math.pi + 6 * s) / (1 + (math.pi / 3) / s) ** p) ** 2
    assert gram_bounds.small_width_bound(n, m, d) == pytest.approx(brute)
    tail = n**2 * math.sqrt(p) * math.exp(-math.pi / (4 * math.sqrt(2)) * math.sqrt(p))
    random = n * math.log(n) * math.log(m) / math.sqrt(m)
    assert gram_bounds.large_width_bound(n, m, d) == pytest.approx(max(tail, random))


def test_hermite_coefficients_of_tanh_beside_the_rates() -> None:
    c = np.sqrt(grams.ACTIVATIONS["tanh"].hermite_squares)
    assert all(c[k] <= gram_bounds.coefficient_bound(k) for k in range(1, 200))
    tails = (c[::-1] ** 2).cumsum()[::-1]
    assert all(tails[p + 1] <= gram_bounds.tail_bound(p) for p in range(1, 200))
    # Equation 34 is not of these coefficients.
    ratios = [c[k] / gram_bounds.boyd_coefficient(k) for k in (20, 60, 100)]
    assert ratios[0] > 2 * ratios[1] > 4 * ratios[2]


@pytest.mark.parametrize(
    ("scale", "error", "swish"), [(0.5, 1e-2, False), (10.0, 1e-5, False), (3.0, 1e-5, True)]
)
def test_chebyshev_degrees(scale: float, error: float, swish: bool) -> None:
    """F.4 of the sigmoid, and G.1 of the derivative of swish, by autograd."""

    def function(x: Array) -> Array:
        z = torch.tensor(scale * x)
        slope = grams.ACTIVATIONS["swish"].derivative(z) if swish else torch.sigmoid(z)
        return np.asarray(slope.numpy())

    degree = gram_bounds.chebyshev_degree(scale, error, swish=swish)
    series = chebyshev.Chebyshev.interpolate(function, 500).coef[: degree + 1]
    x = np.linspace(-1, 1, 1001)
    assert np.abs(function(x) - chebyshev.chebval(x, series)).max() <= error


def test_trace() -> None:
    X, phi = sphere(6, 3), grams.ACTIVATIONS["tanh"]
    exact = float(np.trace(grams.infinite_gram(X, phi)))
    assert exact == pytest.approx(2 * gram_bounds.trace_bound(phi, 6))


def test_hadamard_powers_bound_the_smallest_eigenvalue() -> None:
    X, phi = sphere(6, 4), grams.ACTIVATIONS["tanh"]
    brute = max(
        phi.hermite_squares[r] * float(np.linalg.eigvalsh((X @ X.T) ** (r + 1))[0])
        for r in range(10)
    )
    bound = gram_bounds.hadamard_bound(X, phi, powers=10)
    assert bound == pytest.approx(brute)
    assert 0 < bound <= grams.eigenvalues(grams.infinite_gram(X, phi))[-1]


def test_bounds_of_smoothed_data() -> None:
    n, p, sigma, kappa = 20, 3, 0.1, 0.5
    singular = (kappa * sigma / (n * p)) ** p / math.sqrt(n)
    assert gram_bounds.khatri_rao_bound(n, p, sigma, kappa) == pytest.approx(singular)
    whole = gram_bounds.smoothed_bound(n, p, sigma, kappa, coefficient=0.2)
    assert whole == pytest.approx(0.04 / n * (kappa * sigma / (n * p)) ** (2 * p))
    # C(9, 1), C(9, 3) and C(9, 5) are 9, 84 and 126.
    assert [gram_bounds.smoothed_degree(n, 9) for n in (9, 10, 84, 85, 126)] == [1, 3, 3, 5, 5]
    assert gram_bounds.smoothed_power(100, 0.1, 0.5) == pytest.approx(1e-4 * 100**-6)
    # sigma_n of the Khatri-Rao power is the root of the eigenvalue of the Hadamard power.
    X = sphere(6, 3)
    columns = np.einsum("ia,ib->iab", X, X).reshape(6, -1)
    least = np.linalg.svd(columns, compute_uv=False)[-1]
    assert least**2 == pytest.approx(np.linalg.eigvalsh((X @ X.T) ** 2)[0], abs=1e-12)


def test_constants_of_depth() -> None:
    tanh = grams.ACTIVATIONS["tanh"]
    share = gram_bounds.linear_share(tanh)
    assert share == pytest.approx(0.9305, abs=5e-5)
    assert gram_bounds.sufficient_depth(tanh, 0.1) == pytest.approx(28.8 * math.log(10), rel=2e-3)
    assert gram_bounds.sufficient_depth(tanh, 0.9) == pytest.approx(28.8, rel=2e-3)


def test_a_layer_brings_correlations_below_its_bound() -> None:
    phi, rho = grams.ACTIVATIONS["tanh"], np.linspace(-1, 1, 401)
    bound = gram_bounds.layer_bound(rho, gram_bounds.linear_share(phi))
    assert (np.abs(phi.correlation_map(rho)) <= bound + 1e-10).all()


def test_steps_of_the_recursion() -> None:
    a, delta, eps = 0.9, 0.01, 0.1
    rho, steps = 1 - delta, 0
    while rho > eps:
        rho, steps = a * rho + (1 - a) * rho**2, steps + 1
    assert gram_bounds.layers_until(delta, eps, a) == steps
    assert steps <= 3 / (1 - a) * max(math.log(1 / delta), math.log(1 / eps))


def test_weights_may_move_as_far_as_allowed() -> None:
    """Lemma M.1 for random moves by exactly that much; for tanh beta = 4 / (3 sqrt 3)."""
    X, tanh = sphere(4, 3), grams.ACTIVATIONS["tanh"]
    (weights,) = grams.gaussian_weights(100, 3)
    before = float(grams.eigenvalues(grams.finite_gram(X, tanh, [weights]))[-1])
    allowed = gram_bounds.drift_allowed(before, 4, 1.0, 4 / (3 * math.sqrt(3)))
    for seed in range(3):
        way = drawn(*weights.shape, seed=seed)
        way *= allowed / torch.linalg.norm(way, dim=1, keepdim=True)
        assert grams.eigenvalues(grams.finite_gram(X, tanh, [weights + way]))[-1] >= before / 2


def test_one_kernel_for_gates_and_activations() -> None:
    X = sphere(5, 3)
    expected = grams.infinite_gram(X, grams.ACTIVATIONS["relu"])
    np.testing.assert_allclose(gradient_kernel(X @ X.T, arc_cosine_kernel), expected, atol=1e-7)
    lengths = np.array([1.0, 2.0, 0.0, 3.0, 1.0])
    scaled = X * lengths[:, None]
    found = gradient_kernel(scaled @ scaled.T, arc_cosine_kernel, (lengths, lengths))
    np.testing.assert_allclose(found, np.outer(lengths, lengths) * expected, atol=1e-6)
