"""Eigenvalues of activation Gram matrices, and the samples of their paper."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.panigrahi2020.finite_spectrum import finite_eigenvalues, polynomial
from benchmarks.panigrahi2020.gram_spectrum import (
    KINKS,
    circle_eigenvalues,
    circle_points,
    polynomial_rank,
    preprocess,
    separation,
    sphere_eigenvalues,
)
from drawn import sphere
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams

# Closed forms and quadrature agree to this; matrices of moderate size to the second.
TIGHT, CLOSE = 1e-11, 1e-9


def monomials(X: Array, degree: int) -> Array:
    """All products of so many columns."""
    indices = itertools.combinations_with_replacement(range(X.shape[1]), degree)
    return np.column_stack([X[:, list(index)].prod(axis=1) for index in indices])


def test_eigenvalues_without_squaring_are_those_of_the_matrix() -> None:
    X = sphere(6, 3)
    phi = grams.ACTIVATIONS["tanh"]
    weights = list(grams.gaussian_weights(40, 3))
    readouts = np.linspace(-2, 2, 40)
    options: Any = {"readouts": readouts, "biases": readouts / 3, "train_readouts": True}
    found = finite_eigenvalues(X, phi, weights, **options)
    gram = grams.finite_gram(X, phi, weights, **options)
    np.testing.assert_allclose(found, grams.eigenvalues(gram), atol=TIGHT)
    few = finite_eigenvalues(X, phi, [weights[0][:1]])
    expected = grams.eigenvalues(grams.finite_gram(X, phi, [weights[0][:1]]))
    np.testing.assert_allclose(few, expected, atol=TIGHT)


def test_eigenvalues_far_below_the_rounding_of_a_matrix() -> None:
    """At a width of one, rank 2: what is 0 is below 1e-30 of the largest, not below 1e-16."""
    X = circle_points(9, 2)
    values = finite_eigenvalues(X, polynomial([0.0, 0.0, 1.0]), grams.gaussian_weights(30, 2))
    assert values[2] > 1e-3 * values[0]
    assert (values[3:] < 1e-28 * values[0]).all()


@pytest.mark.parametrize(("name", "dimension"), [("tanh", 7), ("swish", 3), ("cubic", 2)])
def test_eigenvalues_by_harmonics(name: str, dimension: int) -> None:
    phi = grams.ACTIVATIONS[name]
    X = sphere(12, dimension)
    lifted = np.hstack([X, np.zeros((12, 2))])
    expected = grams.eigenvalues(grams.infinite_gram(X, phi))
    np.testing.assert_allclose(sphere_eigenvalues(lifted, phi), expected, atol=CLOSE * expected[0])


def test_eigenvalues_by_harmonics_are_those_of_the_circle() -> None:
    """Far below the rounding of a matrix: 1e-17 of the largest."""
    tanh = grams.ACTIVATIONS["tanh"]
    found = sphere_eigenvalues(circle_points(64), tanh)
    expected = circle_eigenvalues(tanh, 128)[:64] / 2
    assert found[-1] < 1e-17 * found[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_separation_of_samples_that_nearly_coincide() -> None:
    angle = 1e-9  # its square is below the rounding of 1 - rho^2
    X = np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)], [0.0, 1.0]])
    assert separation(X) == pytest.approx(angle, rel=1e-6)
    assert separation([[1.0, 0.0], [-1.0, 0.0]]) == 0.0


def test_preprocessing_scales_fills_and_appends() -> None:
    """The paper's: one scale for all rows, a coordinate that fills up, a constant."""
    X = circle_points(10, arc=2 * math.pi)
    rows = np.vstack([3 * X, 1.5 * X[:1]])
    prepared = preprocess(rows)
    assert prepared.shape == (11, 12)
    np.testing.assert_allclose(prepared[:, :10], rows / (3 * math.sqrt(2)), atol=TIGHT)
    np.testing.assert_allclose(prepared[:10, 10], 0.0, atol=TIGHT)
    np.testing.assert_allclose(prepared[10, 10] ** 2, 0.5 - 0.125, atol=TIGHT)
    np.testing.assert_allclose(prepared[:, 11], math.sqrt(0.5), atol=TIGHT)
    assert preprocess([[1.0, 0.0], [0.0, 0.0]])[1] == pytest.approx([0, 0, 0.5**0.5, 0.5**0.5])


@pytest.mark.parametrize(
    ("degrees", "dimension", "unit_norm"),
    [((3,), 1, True), ((1, 3), 2, True), ((1, 2, 4), 2, False), ((1, 3), 3, True)],
    ids=str,
)
def test_zero_eigenvalues_of_polynomials(
    degrees: tuple[int, ...], dimension: int, unit_norm: bool
) -> None:
    """Theorem 4.3 with the exact number: at a finite width, and of the features themselves."""
    rng = np.random.default_rng(0)
    n = 40
    X = rng.standard_normal((n, dimension))
    X = grams.normalise(X) if unit_norm else X
    rank = polynomial_rank(degrees, dimension, unit_norm=unit_norm)
    features = np.column_stack([monomials(X, degree) for degree in degrees])
    assert np.linalg.matrix_rank(features) == rank < n
    phi = polynomial([float(degree in degrees) for degree in range(max(degrees) + 1)])
    basis, _ = np.linalg.qr(rng.standard_normal((6, dimension)))
    lifted = X @ basis.T
    gram = grams.finite_gram(lifted, phi, grams.gaussian_weights(500, 6))
    assert np.linalg.matrix_rank(gram, hermitian=True, tol=1e-11 * np.linalg.norm(gram)) == rank


@pytest.mark.parametrize("name", KINKS)
def test_power_of_a_kink(name: str) -> None:
    n = np.array([64, 96, 128])
    smallest = [
        grams.eigenvalues(grams.infinite_gram(circle_points(k), grams.ACTIVATIONS[name]))[-1]
        for k in n
    ]
    slope = np.polyfit(np.log(n), np.log(smallest), 1)[0]
    assert slope == pytest.approx(1 - 2 * KINKS[name], abs=0.1)
