"""Proofs that no coefficients separate, and what they must not prove."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import build, cloud, gln, linear, near_twin, separable
from implicit_bias import MarginProblem, Status, certify, max_margin, solve
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds import separability
from implicit_bias.bounds.certificate import grade
from oracles import feature_scale, fractions

Data: TypeAlias = tuple[Array, Array]


def best_alpha(problem: MarginProblem) -> Array:
    """Convex combination with the V nearest to 0, in the largest norm, by a linear program."""
    Z, n = problem.plain_gates.toarray(), problem.n_samples
    Phi = np.einsum("nm,nd->nmd", Z, problem.X).reshape(n, -1) * problem.y[:, None]
    if problem.intercept:
        Phi = np.column_stack([Phi, problem.y])
    Phi /= np.maximum(np.abs(Phi).max(axis=0), 1e-300)
    k = Phi.shape[1]
    found = scipy.optimize.linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.block([[Phi.T, -np.ones((k, 1))], [-Phi.T, -np.ones((k, 1))]]),
        b_ub=np.zeros(2 * k),
        A_eq=[[*np.ones(n), 0.0]],
        b_eq=[1.0],
        method="highs-ipm",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return np.asarray(np.maximum(found.x[:-1], 0.0))


def random_labels(n: int, d: int, change: Callable[[Array], Array] = np.copy) -> Data:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[:, -1] = 1.0
    return change(X), rng.choice([-1.0, 1.0], n)


INSEPARABLE = {
    "linear": lambda: build(random_labels(60, 5), linear),
    "integers": lambda: build(random_labels(60, 5, lambda X: np.round(3 * X)), linear),
    "offset": lambda: build(random_labels(40, 3, lambda X: 1e6 + X), linear),
    "wide-ranges": lambda: build(random_labels(40, 3, lambda X: X * [1e9, 1e-9, 1.0]), linear),
    "contexts": lambda: build(random_labels(300, 3), gln(4)),
    "many-features": lambda: build(random_labels(300, 70), linear),
    "many-contexts": lambda: build(random_labels(500, 8), gln(9)),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", INSEPARABLE)
@pytest.mark.parametrize("intercept", [False, True])
def test_inseparable_data_are_proven_inseparable(name: str, intercept: bool) -> None:
    problem = replace(INSEPARABLE[name](), intercept=intercept)
    alpha = best_alpha(problem) + 1e-9 / problem.n_samples
    proof = separability.prove_not_separable(problem, alpha)
    assert proof is not None
    assert proof.correction < 1
    assert (proof.alpha >= 0).all()
    assert proof.alpha.sum() == pytest.approx(1)
    small = problem.dual_norms(proof.alpha).max()
    assert small <= 1e-5 * float(proof.alpha @ problem.feature_norms)
    assert (proof.method == "interval") == name.startswith("many")
    found = certify(problem, alpha=alpha)
    assert found.lower == found.upper == np.inf
    zero = np.zeros((problem.n_gates, problem.X.shape[1]))
    assert grade(problem, zero, alpha, Status.NOT_SEPARABLE).status is Status.NOT_SEPARABLE


@pytest.mark.every(5)
@pytest.mark.parametrize("offset", [1e4, 1e5, 1e6, 1.7e9])
@pytest.mark.parametrize("seed", range(4))
def test_offsets_are_not_taken_for_inseparability(offset: float, seed: int) -> None:
    """X = [t, 1] with integers t about an offset, which w = (1, -offset) separates exactly."""
    rng = np.random.default_rng(seed)
    k = rng.choice(np.concatenate([np.arange(-95, -4), np.arange(5, 96)]), 60, replace=False)
    t = np.round(offset + k)
    problem = build((np.column_stack([t, np.ones(60)]), np.sign(k)), linear)
    assert ((fractions(t) - fractions(offset)) * np.sign(k) > 0).all()
    near = np.zeros(60)
    near[[np.argmax(np.where(k < 0, k, -np.inf)), np.argmin(np.where(k > 0, k, np.inf))]] = 0.5
    for alpha in (near, best_alpha(problem), np.ones(60)):
        assert separability.prove_not_separable(problem, alpha) is None
        graded = grade(problem, np.zeros((1, 2)), alpha, Status.NOT_SEPARABLE)
        assert graded.status in (Status.NEARLY_INSEPARABLE, Status.NUMERICAL_TROUBLE)
        assert np.isfinite(graded.certificate.lower)
    exact = grade(problem, np.array([[1.0, -offset]]), near, Status.ITERATION_LIMIT)
    assert np.isfinite(exact.certificate.upper)
    advice = separability.scaling_advice(problem)
    if offset > 1e5:
        assert advice is not None
        assert "center features 0" in advice


@pytest.mark.slow
@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 7),
    d=st.integers(1, 3),
    intercept=st.booleans(),
)
def test_proofs_agree_with_a_linear_program(seed: int, n: int, d: int, intercept: bool) -> None:
    """Small integers, whose separability HiGHS decides safely."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-3, 4, (n, d)).astype(float), rng.choice([-1.0, 1.0], n)
    y[:2] = [-1.0, 1.0]
    problem = MarginProblem(X, y, np.ones((n, 1)), np.zeros(1, dtype=int), intercept=intercept)
    columns = np.column_stack([X, np.ones(n)]) if intercept else X
    separator = scipy.optimize.linprog(
        np.zeros(columns.shape[1]),
        A_ub=-y[:, None] * columns,
        b_ub=-np.ones(n),
        bounds=(None, None),
    )
    proof = separability.prove_not_separable(problem, best_alpha(problem))
    assert (proof is None) == (separator.status == 0)


def test_nearly_collinear_points_prove_nothing() -> None:
    """A point between two others, rounded, of the other label: as stored, the three separate."""
    problem = near_twin("linear")
    n = problem.n_samples
    alpha = np.zeros(n)
    alpha[[0, n - 2, n - 1]] = [0.3, 0.7, 1.0]
    assert separability.prove_not_separable(problem, alpha) is None
    graded = grade(problem, np.zeros((1, 25)), alpha, Status.NOT_SEPARABLE)
    assert graded.status is Status.NEARLY_INSEPARABLE
    assert graded.certificate.lower * feature_scale(problem) > 1e12  # any separator is huge
    X = np.vstack([problem.X[:-2], 2 * problem.X[0]])
    exact = MarginProblem(X, [*problem.y[:-2], -problem.y[0]], np.ones((n - 1, 1)), [0])  # type: ignore[arg-type]
    proof = separability.prove_not_separable(exact, np.array([2.0, *np.zeros(n - 3), 1.0]))
    assert proof is not None
    assert proof.method == "exact"


def test_separable_data_are_never_proven_inseparable() -> None:
    for name in ("gln", "linear", "metric-rank-deficient", "duplicated-rows", "small-margin"):
        problem = separable(name)
        assert separability.prove_not_separable(problem, np.ones(problem.n_samples)) is None
        assert separability.prove_not_separable(problem, np.zeros(problem.n_samples)) is None


def test_columns_that_are_equal_but_for_rounding_are_two() -> None:
    """Gates next to each other times one input round to one float64; their difference separates."""
    z, x = 1.9, 1.2
    above = np.nextafter(z, 2.0)
    while z * x != above * x:
        z, above = above, np.nextafter(above, 2.0)
    problem = MarginProblem([[x], [x]], [1, -1], [[z, z], [z, above]], [0, 1])  # type: ignore[arg-type]
    assert separability.prove_not_separable(problem, np.ones(2)) is None
    assert separability.gordan_vertex(problem) is None
    assert solve(problem).status is not Status.NOT_SEPARABLE


@pytest.mark.parametrize("unit", [5e-324, 2.0**-1060])
def test_subnormal_features_are_proven_not_to_separate(unit: float) -> None:
    """Of samples at 1, 2 and 3 units the one between has the other label."""
    X = np.column_stack([np.ones(3), unit * np.array([1.0, 2.0, 3.0])])
    problem = max_margin(X, [1, -1, 1])
    assert separability.gordan_vertex(problem) is not None
    assert solve(problem).status is Status.NOT_SEPARABLE
    assert separability.gordan_vertex(max_margin(X, [1, 1, -1])) is None


def test_the_search_for_a_vertex_ends_when_its_time_is_up() -> None:
    mixed = INSEPARABLE["linear"]()
    assert separability.gordan_vertex(mixed, Deadline.after(None)) is not None
    with pytest.raises(TimeoutError):
        separability.gordan_vertex(mixed, Deadline.after(1e-9))


def test_an_intercept_predicts_where_no_gate_is_on() -> None:
    X, y = cloud(12, 4)
    gates = np.ones((12, 1))
    gates[3] = 0
    groups = np.zeros(1, dtype=int)
    assert separability.find_conflict(MarginProblem(X, y, gates, groups)) is not None
    assert separability.find_conflict(MarginProblem(X, y, gates, groups, intercept=True)) is None
    gates[4] = 0
    conflict = separability.find_conflict(MarginProblem(X, y, gates, groups, intercept=True))
    assert conflict is not None
    assert conflict.samples.tolist() == [3, 4]


def test_advice_names_offsets_and_ranges() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 6)), rng.choice([-1.0, 1.0], 50)
    assert separability.scaling_advice(build((X, y), linear)) is None
    X[:, 2] += 1e7
    X[:, 4] *= 1e8
    advice = separability.scaling_advice(build((X, y), linear))
    assert advice is not None
    assert "center features 2 (mean 1e+07" in advice
    assert "scale features 4" in advice
    assert separability.scaling_advice(build((np.ones((4, 2)), y[:4]), linear)) is None


def test_constants_are_recognised() -> None:
    X, y = cloud()
    assert not separability.lacks_constant(build((X, y), linear))
    assert separability.lacks_constant(build((X[:, :-1], y), linear))
    without = MarginProblem(X[:, :-1], y, np.ones((30, 1)), np.zeros(1, dtype=int), intercept=True)
    assert not separability.lacks_constant(without)


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_two_of_many_classes_that_conflict_are_enough(intercept: bool, gated: bool) -> None:
    """The others, and their columns, have no part in the proof: no weight, or hardly any."""
    given = build(random_labels(500, 8), gln(9)) if gated else build(random_labels(300, 70), linear)
    two = replace(given, intercept=intercept)
    rng = np.random.default_rng(1)
    n, more = given.n_samples, 40
    others = rng.normal(size=(more, given.X.shape[1]))
    Z = given.plain_gates.toarray()
    gates = np.vstack([Z, Z[:more]])
    y = np.append((given.y > 0).astype(int), rng.integers(2, 4, more))
    problem = MarginProblem(
        np.vstack([given.X, others]), y, gates, given.groups, intercept=intercept
    )
    alpha = np.zeros(problem.alpha_shape)
    alpha[np.arange(n), 1 - y[:n]] = best_alpha(two) + 1e-9 / n
    for light in (0.0, 1e-12):
        alpha[n:, 0] = light
        proof = separability.prove_not_separable(problem, alpha)
        assert proof is not None
        assert proof.method == "interval"
        assert proof.correction < 1
        assert certify(problem, alpha=alpha).lower == np.inf


@pytest.mark.slow
def test_contexts_of_many_classes_are_proven() -> None:
    """The contexts of a unit sum to 1: with classes, to the same signs for every unit."""
    given = build(random_labels(400, 6), gln(9))
    y = (np.arange(400) % 3).astype(np.float64)
    problem = MarginProblem(given.X, y, given.gates, given.groups)
    found = solve(problem, "interior-point", infeasibility_tol=1e-8)
    assert found.status is Status.NOT_SEPARABLE
    proof = separability.prove_not_separable(problem, found.alpha)
    assert proof is not None
    assert proof.method == "interval"
