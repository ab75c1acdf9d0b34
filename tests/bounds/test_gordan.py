"""Proofs that no coefficients separate, each checked in rational numbers; and what has none."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import (
    build,
    clusters,
    gln,
    linear,
    near_twin,
    noisy_table,
    plain,
    separable,
    small_integers,
)
from implicit_bias import MarginProblem, Status, certify, max_margin, solve
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds import certificate, gordan
from implicit_bias.bounds.certificate import grade
from implicit_bias.bounds.gordan import ProofLimits, prove_not_separable
from implicit_bias.bounds.separability import scaling_advice
from oracles import check_proof, feature_scale, fractions, separates

Data: TypeAlias = tuple[Array, Array]


def random_labels(n: int, d: int, change: Callable[[Array], Array] = np.copy) -> Data:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[:, -1] = 1.0
    return change(X), rng.choice([-1.0, 1.0], n)


def of_classes(n: int, d: int, k: int) -> MarginProblem:
    X, _ = clusters(n, d)
    return max_margin(X, np.random.default_rng(1).integers(0, k, n))


INSEPARABLE: dict[str, Callable[[], MarginProblem]] = {
    "linear": lambda: build(random_labels(60, 5), linear),
    "offset": lambda: build(random_labels(40, 3, lambda X: 1e6 + X), linear),
    "wide-ranges": lambda: build(random_labels(40, 3, lambda X: X * [1e9, 1e-9, 1.0]), linear),
    "wide-samples": lambda: build(
        random_labels(40, 3, lambda X: X * 10.0 ** np.linspace(-12, 12, 40)[:, None]), linear
    ),
    "contexts": lambda: build(random_labels(100, 3), gln(4)),
    "real-gates": lambda: MarginProblem(
        *random_labels(60, 3), np.random.default_rng(2).normal(size=(60, 4)), np.arange(4)
    ),
    "redundant-gated": lambda: build(noisy_table(100, 7, flipped=0.4), gln(2)),
    "redundant-classes": lambda: plain(*noisy_table(60, 10, 3, flipped=0.5)),
    "many-classes": lambda: of_classes(60, 3, 5),
}


# Each once, with an offset where that is another case: of gates and classes that sum to it or not.
WITH_OFFSET = ("contexts", "real-gates", "redundant-gated", "many-classes")


@pytest.mark.parametrize(
    ("name", "intercept"),
    [("linear", True), *((name, name in WITH_OFFSET) for name in INSEPARABLE)],
)
def test_inseparable_data_are_proven_inseparable(name: str, intercept: bool) -> None:
    problem = replace(INSEPARABLE[name](), intercept=intercept)
    proof = prove_not_separable(problem)
    check_proof(problem, proof)
    assert proof is not None
    found = certify(problem, alpha=proof.alpha)
    assert found.lower == found.upper == np.inf
    graded = grade(problem, np.zeros(problem.coef_shape), proof.alpha, Status.ITERATION_LIMIT)
    assert graded.status is Status.NOT_SEPARABLE
    solved = solve(problem)
    assert solved.status is Status.NOT_SEPARABLE
    check_proof(problem, solved.proof)
    check_proof(problem, prove_not_separable(problem, solved.alpha))


def test_a_proof_by_two_of_many_classes_has_their_rows_alone() -> None:
    problem = of_classes(60, 3, 5)
    proof = prove_not_separable(problem)
    assert proof is not None
    assert len(proof.rows) <= 3 + 1
    assert len(np.unique(problem.constraints.owners[proof.rows])) == 2
    message = solve(problem).message
    assert f"{len(proof.samples)} samples" in message
    assert str(proof.samples[0]) in message
    assert len(repr(proof)) < 200


def test_two_classes_may_overlap_apart_from_a_third() -> None:
    """Redundant columns hide the proof from a vertex, and the third class has no part in it."""
    X, y = noisy_table(66, 11, flipped=0.5)
    labels: Any = np.where(y > 0, 1, 0)
    far = np.vstack([X, np.full((5, 11), 1e3)])
    problem = max_margin(np.column_stack([far, np.ones(len(far))]), np.append(labels, [2] * 5))
    proof = prove_not_separable(problem)
    check_proof(problem, proof)
    assert proof is not None
    assert set(problem.constraints.owners[proof.rows]) == {0, 1}
    assert solve(problem).status is Status.NOT_SEPARABLE


def test_classes_may_be_inseparable_though_each_two_are_not() -> None:
    """Three hyperplanes separate the pairs; none of them is the sum of the other two."""
    X = [[0, 1, -2], [-2, 3, -1], [-3, -3, 2], [3, 2, 2], [0, -3, -3], [1, 2, 0]]
    y = np.array([0, 1, 2, 0, 1, 2])
    problem = max_margin(X, y)
    for k in range(3):
        pair = y != k
        assert separates(max_margin(problem.X[pair], np.where(y[pair] == max(y[pair]), 1, -1)))
    assert not separates(problem)
    proof = prove_not_separable(problem)
    check_proof(problem, proof)
    assert proof is not None
    assert len(np.unique(problem.constraints.owners[proof.rows])) == 3


@pytest.mark.slow
@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 9),
    d=st.integers(1, 3),
    k=st.integers(2, 4),
    intercept=st.booleans(),
)
def test_proofs_agree_with_a_linear_program(
    seed: int, n: int, d: int, k: int, intercept: bool
) -> None:
    """HiGHS decides safely whether small integers separate."""
    problem = small_integers(seed, n, d, k, intercept=intercept)
    proof = prove_not_separable(problem)
    assert (proof is None) == separates(problem)
    if proof is not None:
        check_proof(problem, proof)


# --- no proofs of what separates ---------------------------------------------------------------


@pytest.mark.parametrize("offset", [1e4, 1e6, 1.7e9])
def test_offsets_are_not_taken_for_inseparability(offset: float) -> None:
    """X = [t, 1] with integers t about an offset, which w = (1, -offset) separates exactly."""
    rng = np.random.default_rng(0)
    k = rng.choice(np.concatenate([np.arange(-95, -4), np.arange(5, 96)]), 60, replace=False)
    t = np.round(offset + k)
    problem = build((np.column_stack([t, np.ones(60)]), np.sign(k)), linear)
    assert ((fractions(t) - fractions(offset)) * np.sign(k) > 0).all()
    near = np.zeros(60)
    near[[np.argmax(np.where(k < 0, k, -np.inf)), np.argmin(np.where(k > 0, k, np.inf))]] = 0.5
    for alpha in (near, np.ones(60)):
        assert prove_not_separable(problem, alpha) is None
        graded = grade(problem, np.zeros((1, 2)), alpha, Status.NOT_SEPARABLE)
        assert graded.status in (Status.NEARLY_INSEPARABLE, Status.NUMERICAL_TROUBLE)
        assert np.isfinite(graded.certificate.lower)
    exact = grade(problem, np.array([[1.0, -offset]]), near, Status.ITERATION_LIMIT)
    assert np.isfinite(exact.certificate.upper)
    advice = scaling_advice(problem)
    if offset > 1e5:
        assert advice is not None
        assert "center features 0" in advice


def test_nearly_collinear_points_prove_nothing() -> None:
    """A point between two others, rounded, of the other label: as stored, the three separate."""
    problem = near_twin("linear")
    n = problem.n_samples
    alpha = np.zeros(n)
    alpha[[0, n - 2, n - 1]] = [0.3, 0.7, 1.0]
    assert prove_not_separable(problem, alpha) is None
    assert prove_not_separable(problem) is None
    graded = grade(problem, np.zeros((1, 25)), alpha, Status.NOT_SEPARABLE)
    assert graded.status is Status.NEARLY_INSEPARABLE
    assert 1e12 < graded.certificate.lower * feature_scale(problem) < np.inf
    X = np.vstack([problem.X[:-2], 2 * problem.X[0]])
    exact = MarginProblem(X, [*problem.y[:-2], -problem.y[0]], np.ones((n - 1, 1)), [0])  # type: ignore[arg-type]
    check_proof(exact, prove_not_separable(exact, np.array([2.0, *np.zeros(n - 3), 1.0])))


@pytest.mark.parametrize("size", [1e-3, 1e-9])
def test_a_null_vector_of_mixed_signs_is_no_proof(size: float) -> None:
    """The middle of three points on a line has the other label, or the last one, near to it."""
    near = 1.0 + size
    between = max_margin([[1.0, 0.0], [1.0, 1.0], [1.0, near]], [1, -1, 1])
    check_proof(between, prove_not_separable(between))
    beyond = max_margin([[1.0, 0.0], [1.0, 1.0], [1.0, near]], [-1, -1, 1])
    for alpha in (np.ones(3), np.array([1e-16, 1.0, 1.0])):
        assert prove_not_separable(beyond, alpha) is None
        assert certify(beyond, alpha=alpha).lower < np.inf


def test_a_linear_program_that_is_wrong_leads_to_no_wrong_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names all rows, of which one combination vanishes: of mixed signs where w separates."""
    everything = SimpleNamespace(
        status=0, x=np.zeros(3), ineqlin=SimpleNamespace(marginals=np.full(3, -1.0))
    )
    monkeypatch.setattr(scipy.optimize, "linprog", lambda *_, **__: everything)
    points = [[1.0, 0.0], [1.0, 1.0], [1.0, 3.0]]
    for labels in itertools.product([-1, 1], repeat=3):
        problem = max_margin(points, labels)
        proof = prove_not_separable(problem)
        if labels in ((1, -1, 1), (-1, 1, -1)):
            check_proof(problem, proof)
        else:
            assert proof is None


def test_separable_data_are_never_proven_inseparable() -> None:
    for name in ("gln", "linear", "duplicated-rows", "small-margin"):
        problem = separable(name)
        assert prove_not_separable(problem) is None
        assert prove_not_separable(problem, np.zeros(problem.n_samples)) is None


def test_columns_that_are_equal_but_for_rounding_are_two() -> None:
    """Gates next to each other times one input round to one float64; their difference separates."""
    z, x = 1.9, 1.2
    above = np.nextafter(z, 2.0)
    while z * x != above * x:
        z, above = above, np.nextafter(above, 2.0)
    problem = MarginProblem([[x], [x]], [1, -1], [[z, z], [z, above]], [0, 1])  # type: ignore[arg-type]
    assert prove_not_separable(problem) is None
    assert solve(problem).status is not Status.NOT_SEPARABLE


def test_features_that_underflow_are_not_taken_for_zeros() -> None:
    """Gate times input is 0 in float64; as a real number it separates the two samples."""
    gates = np.array([[1.0, 1e-200], [1.0, -1e-200]])
    X: Any = [[1.0, 1e-200], [1.0, 1e-200]]
    problem = MarginProblem(X, [1, -1], gates, [0, 1])  # type: ignore[arg-type]
    assert (gates[:, 1] * 1e-200 == 0).all()
    assert prove_not_separable(problem) is None
    assert certify(problem, alpha=np.ones(2)).lower < np.inf


def test_the_last_digits_of_a_redundant_column_are_no_answer() -> None:
    """They separate the samples, by coefficients of 1e15, which float64 cannot find."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=50), np.where(rng.random(50) < 0.5, -1.0, 1.0)
    moved = max_margin(np.column_stack([x, np.nextafter(x, 9 * y), rng.normal(size=50)]), y)
    assert prove_not_separable(moved) is None
    found = solve(moved)
    assert found.status is Status.NEARLY_INSEPARABLE
    assert found.certificate.lower > 1e13
    assert "last digits of redundant columns" in found.stats.detail
    noisy = plain(*noisy_table(120, 5, flipped=0.4))
    assert gordan.nearly_a_proof(noisy) is not None
    assert gordan.nearly_a_proof(separable("linear")) is None
    assert gordan.nearly_a_proof(noisy, Deadline.after(1e-9)) is None


@pytest.mark.parametrize("offset", [2e14, 1e15])
def test_integers_about_an_offset_are_no_last_digits(offset: float) -> None:
    """[t + s, s] with integers t is separated by (1, -1)."""
    t = np.concatenate([np.arange(-20.0, 0.0), np.arange(1.0, 21.0)])
    problem = max_margin(np.column_stack([t + offset, np.full(40, offset)]), np.sign(t))
    assert gordan.nearly_a_proof(problem) is None
    X = np.random.default_rng(0).normal(size=(400, 2))
    one_row = np.column_stack([X, X[:, 1]])
    one_row[0, 2] += 1e-12
    assert gordan.nearly_a_proof(max_margin(one_row, np.sign(X[:, 0]))) is None


def test_two_rows_of_many_features_are_a_proof() -> None:
    """Twins of opposite labels do not overlap with the others, and have more features than rows."""
    X = np.random.default_rng(0).normal(size=(300, 150))
    problem = max_margin(np.vstack([X, X[:1]]), np.append(np.ones(300), -1.0))
    alpha = np.zeros(301)
    alpha[[0, 300]] = 1.0
    check_proof(problem, prove_not_separable(problem, alpha))


# --- limits ------------------------------------------------------------------------------------


def test_a_support_that_is_too_large_for_rationals_has_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = build(random_labels(120, 12), linear)
    few = ProofLimits(rational_operations=12**3)
    proof = prove_not_separable(problem, limits=few)
    check_proof(problem, proof)
    assert proof is not None
    assert proof.exact is None
    monkeypatch.setattr(gordan, "find_overlap", lambda *_, **__: None)
    assert prove_not_separable(problem, limits=few) is None
    # Without a proof nearly vanishing V excludes large margins only.
    monkeypatch.setattr(certificate, "prove_not_separable", lambda *_: None)
    zero = np.zeros(problem.coef_shape)
    graded = grade(problem, zero, proof.alpha, Status.NOT_SEPARABLE)
    assert graded.status is Status.NEARLY_INSEPARABLE
    assert 1e5 < graded.certificate.lower * problem.scale < np.inf


def test_the_search_ends_when_its_time_is_up() -> None:
    mixed = INSEPARABLE["linear"]()
    assert prove_not_separable(mixed, deadline=Deadline.after(None)) is not None
    assert prove_not_separable(mixed, deadline=Deadline.after(1e-9)) is None
    # What would take longer than there is time is not begun.
    assert prove_not_separable(mixed, limits=ProofLimits(rational_seconds=1e12)) is None
