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
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams


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


def test_hadamard_powers_bound_the_smallest_eigenvalue() -> None:
    X, phi = sphere(6, 4), grams.ACTIVATIONS["tanh"]
    brute = max(
        phi.hermite_squares[r] * float(np.linalg.eigvalsh((X @ X.T) ** (r + 1))[0])
        for r in range(10)
    )
    bound = gram_bounds.hadamard_bound(X, phi, powers=10)
    assert bound == pytest.approx(brute)
    assert 0 < bound <= grams.eigenvalues(grams.infinite_gram(X, phi))[-1]


def test_a_layer_brings_correlations_below_its_bound() -> None:
    phi, rho = grams.ACTIVATIONS["tanh"], np.linspace(-1, 1, 401)
    bound = gram_bounds.layer_bound(rho, gram_bounds.linear_share(phi))
    assert (np.abs(phi.correlation_map(rho)) <= bound + 1e-10).all()
