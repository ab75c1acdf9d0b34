"""Error bounds of products, against exact rational arithmetic."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_bias.base.rounding import Enclosure, gamma, row_norms
from implicit_bias.bounds import products
from implicit_bias.problem import decision
from oracles import fractions


def contains(found: Enclosure, expected: Any) -> None:
    assert (abs(fractions(found.value) - expected) <= fractions(found.radius)).all()


@pytest.mark.slow
@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    sizes=st.tuples(st.integers(-40, 40), st.integers(-40, 40)),
    spread=st.integers(0, 12),
    offset=st.sampled_from([0.0, 1e5, 1e12]),
    sparse=st.booleans(),
)
def test_enclosures_contain_the_real_products(
    seed: int, n: int, sizes: tuple[int, int], spread: int, offset: float, sparse: bool
) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.7) * 10.0 ** sizes[0]
    X = rng.normal(size=(n, 4)) * 10.0 ** rng.integers(-spread, spread + 1, 4) + offset
    X *= 10.0 ** sizes[1]
    gates = sp.csr_array(Z) if sparse else Z
    norms = row_norms(Z) * row_norms(X)
    weights = products.unit_weights(rng.exponential(size=n), norms) * rng.choice([-1.0, 1.0], n)
    weights[norms == 0] = 0.0  # samples without features are left out before
    exact_Z = fractions(Z)
    exact_X = fractions(X)
    V = exact_Z.T @ (fractions(weights)[:, None] * exact_X)
    rough = products.dual_vector_norms(gates, X, row_norms(X), weights, sparse)
    for m, row in enumerate(V):
        value, radius = (Fraction(float(each[m])) for each in (rough.value, rough.radius))
        assert max(value - radius, Fraction(0)) ** 2 <= row @ row <= (value + radius) ** 2
    for columns, fine in products.precise_dual_vectors(gates, X, weights):
        for m, row in enumerate(V):
            contains(Enclosure(fine.value[m], fine.radius[m]), row[columns])
        # Twice the working precision: what is left is the rounding of one sum.
        largest = np.abs(Z).max(axis=0)[:, None] * np.abs(weights[:, None] * X).max(axis=0)
        slack = fine.radius - 2.0**-52 * np.abs(fine.value)
        assert (slack <= 1e-24 * n * largest + 1e-110).all()
    coef = rng.normal(size=(3, 4))
    f = ((exact_Z @ fractions(coef)) * exact_X).sum(axis=1)
    errors = products.score_errors(gates, row_norms(X), coef)
    contains(Enclosure(decision(X, gates, coef), errors), f)
    contains(products.precise_predictions(gates, X, coef, np.arange(n)), f)


def test_blocks_of_samples_and_of_features() -> None:
    rng = np.random.default_rng(0)
    n = products.SUMMED_AT_ONCE + 5
    d = products.SUMMED_AT_ONCE + 3
    Z = rng.integers(-4, 5, (n, 2)).astype(float)
    X = rng.integers(-9, 10, (n, d)).astype(float)
    weights = rng.integers(-3, 4, n).astype(float)
    coef = rng.integers(-5, 6, (2, d)).astype(float)
    ((columns, V),) = products.precise_dual_vectors(Z, X, weights)
    np.testing.assert_array_equal(V.value, Z.T @ (weights[:, None] * X)[:, columns])
    assert not V.radius.any()  # integers: nothing is rounded
    found = products.precise_predictions(Z, X, coef, np.arange(3, n))
    np.testing.assert_array_equal(found.value, decision(X, Z, coef)[3:])
    assert (found.radius <= 1e-15 * np.abs(found.value) + 1e-100).all()


# Sums of which float64 keeps the first digits, or slices all but the last.
LAST_DIGITS: dict[str, tuple[list[float], list[float]]] = {
    "one rounding of the sum": ([1.0, 1.0], [1.0, 2.0**-54]),
    "below the last slice": ([1.0, 1.0, 1.0], [1.0, -1.0, 2.0**-120]),
    "a product of slices": ([1.0, 1.0, 1.0 + 2.0**-30], [1.0, -1.0, 2.0**-90]),
    "a product of last slices": ([1.0 + 2.0**-50, 1.0, 1.0], [1.0 + 2.0**-50, -1.0, -(2.0**-49)]),
}


@pytest.mark.parametrize("name", LAST_DIGITS)
@pytest.mark.parametrize("gated", [False, True])
def test_what_precise_products_drop_is_in_their_radius(name: str, gated: bool) -> None:
    """Whether the terms are those of one gate or of one gate each."""
    inputs, coef = (np.array(values) for values in LAST_DIGITS[name])
    expected = fractions(inputs) @ fractions(coef)
    X = inputs[None]
    Z = np.ones((1, 1))
    zeta = coef[None]
    if gated:
        X = np.ones((1, 1))
        Z = inputs[None]
        zeta = coef[:, None]
    contains(products.precise_predictions(Z, X, zeta, np.arange(1)), np.array([expected]))
    weighted = products.precise_dual_vectors(inputs[:, None], coef[:, None], np.ones(len(coef)))
    ((_, V),) = weighted
    contains(V, np.array([[expected]]))


def test_a_prediction_may_be_summed_in_any_order() -> None:
    """From the largest term on, each of the others is rounded away."""
    coef = np.array([[1.0, *[2.0**-53] * 200]])
    X = np.ones((1, 201))
    errors = products.score_errors(np.ones((1, 1)), row_norms(X), coef)
    contains(Enclosure(np.ones(1), errors), np.array([1 + 200 * Fraction(2) ** -53]))


def test_a_sum_over_samples_may_be_rounded_at_each_of_them() -> None:
    """From the largest term on, many of the others are rounded away."""
    terms = np.array([2.0**53, *np.ones(399)])
    found = products.dual_vectors(np.ones((400, 1)), terms[:, None], np.ones(400))
    contains(found, np.array([[2**53 + 399]]))


def test_columns_in_chunks() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(9, 4))
    X = rng.normal(size=(9, 5))
    weights = rng.normal(size=9)
    parts = list(products.precise_dual_vectors(Z, X, weights, most_entries=8))
    assert [columns.start for columns, _ in parts] == [0, 2, 4]
    whole = np.hstack([V.value for _, V in parts])
    np.testing.assert_allclose(whole, Z.T @ (weights[:, None] * X), rtol=1e-12, atol=1e-14)


def test_norms_of_rows_neither_over_nor_underflow() -> None:
    rows = np.array([[3.0, 4.0], [3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])
    np.testing.assert_allclose(row_norms(rows), [5.0, 5e200, 5e-200, 0.0])
    assert gamma(3) > 3 * 2.0**-53
