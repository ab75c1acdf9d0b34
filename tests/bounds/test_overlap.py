"""Proofs by an approximate solution, checked in rational numbers; separable data have none."""

import math
from dataclasses import replace

import numpy as np
import pytest
from flint import fmpz_mat
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import (
    build,
    clusters,
    gln,
    linear,
    noisy_table,
    plain,
    small_integers,
)
from implicit_bias import MarginProblem, max_margin
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.rounding import gamma
from implicit_bias.base.validation import Array
from implicit_bias.bounds import integers, overlap
from implicit_bias.bounds.gordan import Proof
from implicit_bias.bounds.overlap import Overlap, find_overlap
from oracles import check_proof, nearest_factors, separates


def found_in(
    problem: MarginProblem, weights: Array | None = None, most_entries: int = 20_000_000
) -> Overlap | None:
    """Return the overlap of all rows of a problem."""
    rows = problem.constraints.narrowed()
    begin = np.ones(len(rows)) if weights is None else weights
    return find_overlap(problem, rows, begin, Deadline.after(60.0), most_entries=most_entries)


def check_overlap(problem: MarginProblem, found: Overlap | None) -> None:
    """Check an overlap in rational numbers."""
    assert found is not None
    rows = problem.constraints.subset(found.rows)
    alpha = rows.alpha(found.alpha)
    samples = np.unique(rows.samples)
    proof = Proof(found.rows, samples, alpha, relative_error=found.relative_error)
    check_proof(problem, proof)


@pytest.mark.parametrize(("gated", "intercept"), [(False, False), (True, True)])
def test_noisy_data_overlap(gated: bool, intercept: bool) -> None:
    """Their redundant columns are independent as real numbers, and each counts."""
    data = build(noisy_table(120, 7, flipped=0.3), gln(2) if gated else linear)
    problem = replace(data, intercept=intercept)
    found = found_in(problem)
    check_overlap(problem, found)
    assert found is not None
    weights = found.alpha * problem.feature_norms
    near = found_in(problem, weights * np.random.default_rng(0).uniform(0.5, 2.0, 120))
    check_overlap(problem, near)


def test_classes_overlap() -> None:
    X, _ = clusters(60, 3)
    problem = max_margin(X, np.random.default_rng(0).integers(0, 4, 60), intercept=True)
    check_overlap(problem, found_in(problem))


def test_some_rows_are_enough() -> None:
    problem = plain(*noisy_table(300, 5, flipped=0.3))
    found = found_in(problem, most_entries=80 * 2 * 6)
    check_overlap(problem, found)
    assert found is not None
    assert len(found.rows) <= 81


# --- what separates has none -------------------------------------------------------------------


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 9),
    d=st.integers(1, 3),
    k=st.integers(2, 3),
    intercept=st.booleans(),
)
def test_what_separates_does_not_overlap(
    seed: int, n: int, d: int, k: int, intercept: bool
) -> None:
    """HiGHS decides safely whether small integers separate."""
    problem = small_integers(seed, n, d, k, intercept=intercept)
    found = found_in(problem)
    if separates(problem):
        assert found is None
    elif found is not None:  # others touch without an overlap
        check_overlap(problem, found)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_last_bits_of_a_column_may_separate(intercept: bool) -> None:
    """The second column is the first one, moved to the next number by the label."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=50), np.where(rng.random(50) < 0.5, -1.0, 1.0)
    same = max_margin(np.column_stack([x, x]), y, intercept=intercept)
    check_overlap(same, found_in(same))
    moved = max_margin(np.column_stack([x, np.nextafter(x, 9 * y)]), y, intercept=intercept)
    assert found_in(moved) is None
    of_some = np.where(rng.random(50) < 0.8, 9 * y, -9 * y)
    mixed = max_margin(np.column_stack([x, np.nextafter(x, of_some)]), y, intercept=intercept)
    check_overlap(mixed, found_in(mixed))


def test_an_intercept_that_gates_and_inputs_span_is_no_equation_of_its_own() -> None:
    """One gate of two is always on, and the inputs hold a constant: with a column of ones more."""
    X, y = noisy_table(100, 5, flipped=0.4)
    constant = np.column_stack([X, np.full(len(X), 3.0)])
    for inputs in (X, constant):
        problem = replace(build((inputs, y), gln(2)), intercept=True)
        check_overlap(problem, found_in(problem))


def test_products_that_lose_digits_prove_nothing() -> None:
    """Gate times input is subnormal on half of the rows, where other gates and inputs are not."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 1.0, (2, 40))
    gates = np.column_stack([np.full(40, 0.75), np.where(np.arange(40) < 20, a, a * 2.0**-1068)])
    X = np.column_stack(
        [rng.uniform(0.5, 0.99, 40), np.where(np.arange(40) < 20, 2.0**-1068, 1.0) * b]
    )
    y = rng.choice([-1.0, 1.0], 40)
    problem = MarginProblem(X, y, gates, [0, 0])  # type: ignore[arg-type]
    assert found_in(problem) is None


@pytest.mark.parametrize("power", [-150, 100])
def test_columns_of_any_size_count(power: int) -> None:
    """A column equal to the label separates, whatever its size; a column of noise does not."""
    X, y = noisy_table(60, 5, flipped=0.4)
    noise = np.column_stack([X, X[:, 0] ** 2 * 2.0**power])
    problem = max_margin(noise, y)
    check_overlap(problem, found_in(problem))
    assert found_in(max_margin(np.column_stack([X, y * 2.0**power]), y)) is None


def test_limits_of_size_and_time() -> None:
    problem = plain(*noisy_table(60, 5, flipped=0.4))
    assert found_in(problem, most_entries=5) is None
    rows = problem.constraints.narrowed()
    with pytest.raises(TimeoutError):
        find_overlap(problem, rows, np.ones(len(rows)), Deadline.after(1e-9))


# --- the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_the_norm_of_a_projection_is_bounded(condition: float) -> None:
    """Against rational numbers, and no more than a little above them."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(12, 3)) @ np.diag([1.0, 1.0, 1.0 / condition]) @ rng.normal(size=(3, 3))
    bound = overlap.projection_bound(W)
    factors = nearest_factors(W.tolist(), np.ones(12))
    exact = math.sqrt(sum((1 - factor) ** 2 for factor in factors))
    assert exact <= bound <= 1.02 * exact + 1e-9 * condition


def test_columns_that_are_dependent_up_to_rounding_have_no_bound() -> None:
    W = np.random.default_rng(0).normal(size=(20, 2))
    assert overlap.projection_bound(W) < math.inf
    assert overlap.projection_bound(np.column_stack([W, W.sum(axis=1)])) == math.inf
    assert overlap.projection_bound(np.column_stack([W, np.zeros(20)])) == math.inf


def test_columns_that_roundings_before_may_make_dependent_have_no_bound() -> None:
    """W' 1 = 0, and the columns differ by 2^-48: with roundings of 4 u each P may be another."""
    nearly = np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 2.0**-48], [0.0, -(2.0**-48)]])
    assert overlap.projection_bound(nearly) == math.inf
    nearly[2:] *= 2.0**8
    assert overlap.projection_bound(nearly) < 0.01


def test_a_bound_counts_the_roundings_before() -> None:
    """W = (1, -1)': with roundings of 4 u, ||P 1|| may be sqrt(2) gamma_4, though W' 1 = 0."""
    W = np.array([[1.0], [-1.0]])
    assert overlap.projection_bound(W) >= gamma(4) * math.sqrt(2)


# --- columns -----------------------------------------------------------------------------------


def test_columns_that_stay_dependent_are_not_all() -> None:
    """The second column differs from a multiple of the first in its last of 300 bits."""
    multiple = 3**190
    E = np.array([[1, multiple], [1, multiple], [1, multiple + 1]], dtype=object)
    found, all_of_them = integers.conditioned(E, rounds=2)
    assert found.shape == (3, 1)
    assert not all_of_them
    found, all_of_them = integers.conditioned(E, rounds=10)
    assert found.shape == (3, 2)
    assert all_of_them


def test_independent_columns_have_the_span_of_those_given() -> None:
    """In integers: their rank, that of both together, and that of those given are the same."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(20, 3))
    hidden = first @ [0.1, 0.7, -0.3]
    F = np.column_stack([first, hidden, 2.0 * first[:, 0], np.zeros(20), first[:, 0]]) / 8.0
    E = integers.integer_products(F, np.ones_like(F), np.zeros(20, dtype=np.int64))
    found, all_of_them = integers.conditioned(E)
    assert all_of_them
    both = np.hstack([E, found])
    ranks = [fmpz_mat(matrix.tolist()).rank() for matrix in (E, found, both)]
    assert ranks == [4, 4, 4]
    assert found.shape == (20, 4)
    columns = integers.independent(F)
    assert columns is not None
    assert np.linalg.cond(columns / np.linalg.norm(columns, axis=0)) < 100
    np.testing.assert_array_equal(columns, integers.as_floats(found)[0])
