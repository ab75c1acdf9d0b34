"""Solvers as names and as objects, the automatic choice, and what the driver does for all."""

from typing import Any

import numpy as np
import pytest

from cases import Stub, cloud, plain, separable
from implicit_bias import MarginProblem, Status, attention_margin, max_margin, solve
from implicit_bias.norms import (
    L2,
    GroupL2,
    GroupNorm,
    Lp,
    MaxOverGroups,
    Norm,
    Schatten,
)
from implicit_bias.solvers import Solver, Tolerances, choice, choose_solver
from implicit_bias.solvers.base import Candidate
from implicit_bias.solvers.choice import FALL_BACK, choose
from implicit_bias.solvers.costs import estimates
from implicit_bias.solvers.interior_point import InteriorPoint

PROBLEM = separable("gln")
TIGHT = Tolerances(gap=1e-9)


def drawn(n: int, d: int, k: int = 2, norm: str | Norm = "l2", **options: Any) -> MarginProblem:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % k
    return max_margin(
        rng.normal(size=(n, d)), 2.0 * labels - 1.0 if k == 2 else labels, norm, **options
    )


def of_scores(width: int) -> MarginProblem:
    """Pose the nuclear norm of the weights of attention, (width, width)."""
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(2, 3, width))
    return attention_margin(tokens, rng.normal(size=(2, width)), np.zeros(2, int), "nuclear")


@pytest.mark.parametrize(
    ("problem", "expected", "system"),
    [
        # Few rows of many features, and the other way round.
        (drawn(3001, 2), "interior-point", "features"),
        (drawn(50_001, 2, C=1.0), "interior-point", "features"),
        (drawn(600, 5, 3), "interior-point", "features"),
        (separable("nuclear-soft-intercept"), "interior-point", "features"),
        (drawn(20, 30), "one-group", None),
        (drawn(5000, 1000), "working-set", None),
        (drawn(3001, 1600, norm=Lp(1.5)), "working-set", None),
        (drawn(20, 3, norm="linf"), "highs", None),
        (separable("l1"), "highs", None),
        (separable("layers-gated"), "clarabel", None),
        # Of W in attention, 40 queries by 40 inputs: a cone of order 80, of which Clarabel needs
        # much memory.
        (of_scores(40), "scs", None),
        (of_scores(10), "clarabel", None),
    ],
)
def test_the_automatic_choice(problem: MarginProblem, expected: str, system: str | None) -> None:
    assert choose_solver(problem) == expected
    assert choose(problem).system == system


def labelled(n: int, k: int, C: float = np.inf) -> MarginProblem:
    """Pose samples in the plane that are apart: k directions, and a length from 1 to 2."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % k
    angles = 2.0 * np.pi * (y + 0.5 * rng.random(n)) / k
    X = np.column_stack([np.cos(angles), np.sin(angles)]) * rng.uniform(1.0, 2.0, (n, 1))
    labels = y
    if k == 2:
        labels = 2 * y - 1
    return max_margin(X, labels, C=C)


def test_of_many_samples_and_few_features_few_are_worked_on() -> None:
    """From 50 samples and 100 rows for each row of a working set on, despite the estimates."""
    for k, features, factor in ((2, 2, 100), (3, 4, 50)):
        rows = int(500 + 1.5 * features)
        few = labelled(factor * rows - 50, k)
        many = labelled(factor * rows, k)
        assert min(estimates(many), key=lambda name: estimates(many)[name]) == "features"
        assert choose_solver(few) == "interior-point"
        assert choose_solver(many) == "working-set"
    # A soft margin has many more support vectors, and other norms were not measured.
    assert choose_solver(labelled(50 * 506, 3, C=1.0)) == "interior-point"
    found = solve(labelled(50 * 506, 3))
    assert found.status is Status.OPTIMAL
    assert found.stats.solver == "working-set"
    assert "samples" in found.stats.detail


def test_ill_conditioned_tables_go_to_the_embedding() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    # Two columns that differ by 1e-6 of their size, a condition number of some 1e6.
    X[:, 4] = X[:, 3] + 1e-6 * X[:, 4]
    ill_conditioned = max_margin(X, y)
    assert choose_solver(ill_conditioned) == "feature-space"
    assert solve(ill_conditioned).status is Status.OPTIMAL
    assert choose_solver(max_margin(X, y, C=1.0)) == "feature-space"
    classes = np.arange(200) % 3
    assert choose_solver(max_margin(X, classes)) == "feature-space"
    # It rotates the classes, and under a norm of one class at a time it does not.
    apart = GroupNorm(np.zeros(1, dtype=int), apart=True)
    assert choose_solver(max_margin(X, classes, apart)) != "feature-space"
    # Equal columns are no direction in which the samples differ, and an intercept absorbs what all
    # samples have in common.
    X[:, 4] = X[:, 3]
    assert choose_solver(max_margin(X, y)) != "feature-space"
    assert choose_solver(max_margin(X[:, :4] + 1e6, y, intercept=True)) != "feature-space"


def test_many_rows_of_few_features_are_not_multiplied_with_each_other() -> None:
    """Of many classes a Gram matrix of rank 26 in 300 is left out, and one of 200 in 300 is not."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    for C in (np.inf, 1.0):
        few = estimates(max_margin(rng.standard_normal((150, 13)), y, C=C))
        assert few.keys() == {"features"}
        many = estimates(max_margin(rng.standard_normal((150, 100)), y, C=C))
        assert "rows" in many


def test_one_gram_matrix_needs_a_box_for_each_row() -> None:
    """Rows of many classes share the box of their sample; without C there is no box to share."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 100))
    signs = rng.choice([-1.0, 1.0], 60)
    labels = np.arange(60) % 3
    assert "one-group" in estimates(max_margin(X, signs))
    assert "one-group" in estimates(max_margin(X, signs, C=1.0))
    assert "one-group" in estimates(max_margin(X, labels))
    assert "one-group" not in estimates(max_margin(X, labels, C=1.0))


def test_groups_of_one_feature_each_are_solved_as_l1() -> None:
    X, y = cloud(20, 12, shift=1.0)
    grouped = max_margin(X, y, GroupL2(np.arange(12)))
    found, other = solve(grouped), solve(max_margin(X, y, "l1"))
    assert found.stats.detail == other.stats.detail
    assert found.problem is grouped
    assert len(found.group_norms) == len(found.certificate.dual_norms) == 12
    np.testing.assert_allclose(found.group_norms, np.abs(found.coef).ravel(), rtol=1e-9)
    assert found.certificate.upper == pytest.approx(other.certificate.upper, rel=1e-6)
    classes = max_margin(X, np.arange(20) % 3, GroupL2(np.arange(12)))  # of three entries each
    assert choose_solver(classes) != "highs"


def test_where_one_solver_fails_another_is_tried_and_named() -> None:
    """Years and a constant 1: no method on inner products can separate them."""
    years = np.column_stack([np.arange(1900.0, 2020.0), np.ones(120)])
    problem = plain(years, np.where(years[:, 0] > 1959.5, 1.0, -1.0))
    alone = solve(problem, "one-group")
    assert alone.status is not Status.OPTIMAL
    found = solve(problem)
    assert found.status is Status.OPTIMAL
    assert found.stats.detail.startswith(str(choose(problem)))
    # The margin is a half, between 1959 and 1960: w = 2 and b = -2 * 1959.5, both in the norm.
    assert found.certificate.upper == pytest.approx(2 * np.hypot(1, 1959.5), rel=1e-6)


def test_one_other_method_follows_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedding; with more features than it takes an interior point, or a working set."""
    assert FALL_BACK.built_in(PROBLEM, "one-group") == "feature-space"
    y = np.tile([1.0, -1.0], 10)
    # Beside 500 rows and some for each feature, 20,000 are many.
    many = labelled(20_000, 2)
    assert FALL_BACK.built_in(many, "interior-point") == "working-set"
    assert FALL_BACK.built_in(many, "one-group") == "feature-space"
    soft = labelled(20_000, 2, C=1.0)
    assert FALL_BACK.built_in(soft, "interior-point") == "feature-space"
    wide = max_margin(np.random.default_rng(0).normal(size=(20, 1501)), y)
    assert FALL_BACK.built_in(wide, "one-group") == "interior-point"
    assert FALL_BACK.built_in(wide, "interior-point") is None
    assert FALL_BACK.built_in(PROBLEM, "feature-space") == "interior-point"
    monkeypatch.setattr(choice, "INTERIOR_POINT_LIMIT", 10)
    assert FALL_BACK.built_in(wide, "one-group") == "working-set"
    for norm in ("layers-gated", "maxima"):  # which no built-in method takes
        assert FALL_BACK.built_in(separable(norm), "clarabel") is None


@pytest.mark.parametrize(
    ("name", "solver", "near_gap", "then"),
    [
        ("gln", "interior-point", 5e-5, ["feature-space", "clarabel"]),
        ("layers-gated", "clarabel", 1e-3, ["clarabel"]),  # the only solver of this norm
    ],
)
def test_after_a_near_miss_each_solver_is_asked_once_for_more(
    name: str, solver: str, near_gap: float, then: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedding, then one external solver: the certificate rounds differently than they do."""
    problem = separable(name)
    near = solve(problem, solver, tol=near_gap)
    assert 1e-6 < near.certificate.gap < 1e-4
    asked: list[tuple[str, float]] = []

    def found(problem: MarginProblem) -> Candidate:
        return Candidate(near.alpha, near.coef, status=Status.OPTIMAL, iterations=1)

    def make(name: str, problem: MarginProblem, options: Any, system: Any = None) -> Solver:
        asked.append((name, options.tolerances.gap))
        return Stub(found=found, tolerances=options.tolerances)

    monkeypatch.setattr(choice, "make_solver", make)
    again = solve(problem)
    assert asked == [(solver, 1e-6), *((method, 1e-8) for method in then)]
    assert again.status is Status.NUMERICAL_TROUBLE
    assert again.certificate.gap == near.certificate.gap


@pytest.mark.parametrize(
    ("labels", "helps", "centre"),
    [([1, -1, -1, 1], False, 0.0), ([1, -1, -1, 1], False, 2.5), ([1, 1, -1, -1], True, 0.0)],
)
def test_an_offset_is_advised_only_where_it_separates(
    labels: list[int], helps: bool, centre: float
) -> None:
    """Around 0 the coefficients of a failed solve are 0, and so are all margins."""
    X = np.array([[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]]) + centre
    if helps:
        X[:, 0] += 1.0  # both classes are on one side of 0
    found = solve(max_margin(X, np.array(labels)))
    assert found.status is Status.NOT_SEPARABLE
    assert bool(found.stats.advice) == helps


def test_bounds_of_two_methods_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has the dual variables, the other the coefficients."""
    known = solve(PROBLEM)
    nothing = np.zeros(PROBLEM.alpha_shape), np.zeros(PROBLEM.coef_shape)

    def make(name: str, problem: MarginProblem, options: Any, system: Any = None) -> Solver:
        first = name == "interior-point"
        alpha = known.alpha if first else nothing[0]
        coef = nothing[1] if first else known.coef
        part = Candidate(alpha, coef, status=Status.NUMERICAL_TROUBLE, iterations=1)
        return Stub(found=lambda problem: part, tolerances=options.tolerances)

    monkeypatch.setattr(choice, "make_solver", make)
    found = solve(PROBLEM)
    assert found.status is Status.OPTIMAL
    assert found.certificate.gap == pytest.approx(known.certificate.gap, rel=1e-6)


def test_a_class_without_samples_is_refused() -> None:
    X, _ = cloud(12, 3, shift=3.0)
    some = max_margin(X, np.arange(12) % 3).subset(np.array([0, 2, 3, 5]))
    with pytest.raises(ValueError, match="class 1 of 3 has no samples: number the classes"):
        solve(some)


@pytest.mark.parametrize(
    ("solver", "word"), [("auto", "no solver takes it"), ("working-set", "sums of Euclidean norms")]
)
def test_norms_that_no_solver_takes_are_refused(solver: str, word: str) -> None:
    X = cloud(12, 3, shift=3.0)[0]
    with pytest.raises(ValueError, match=word):
        solve(max_margin(X, np.arange(12) % 3, Schatten(1.5)), solver)


def test_a_separator_in_doubt_under_a_norm_that_no_native_method_takes() -> None:
    """Beside a constant input the others are so small that a solver takes them for 0."""
    norm = MaxOverGroups(L2(), np.array([0, 1, 1]), axis=-1)
    size = 1e-9

    def of_size(size: float) -> MarginProblem:
        inputs = np.array([[1.0, 1.0, 2.0], [1.0, 1.0, -1.0], [1.0, -1.0, -2.0], [1.0, -1.0, 1.0]])
        return max_margin(inputs * [1.0, size, size], [0, 0, 1, 1], norm, classes=2)

    # The samples of class 1 are those of class 0, mirrored: the constant does not count.
    known = solve(of_size(1.0))
    assert known.status is Status.OPTIMAL
    found = solve(of_size(size)).certificate
    assert 0.0 < size * found.lower <= known.certificate.upper
    assert size * found.upper >= known.certificate.lower
    assert np.isfinite(found.upper)
    # The last sample is the mean of the first two.
    twin = np.array([[1.0, 1.0, 2.0], [1.0, -1.0, -2.0], [1.0, 0.0, 0.0]])
    inseparable = max_margin(twin * [1.0, size, size], [0, 0, 1], norm, classes=2)
    assert solve(inseparable).status is Status.NOT_SEPARABLE


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"problem": np.ones((3, 2))}, TypeError, "MarginProblem"),
        ({"solver": "qp"}, ValueError, "solver must be one of"),
        ({"solver": InteriorPoint}, TypeError, "name or a Solver"),
        ({"solver": InteriorPoint(), "tol": 1e-9}, ValueError, "its own options"),
        ({"tol": 1.0}, ValueError, "the gap tolerance"),
        ({"device": "nowhere"}, ValueError, "device"),
        ({"start": 5}, TypeError, "start"),
        ({"on_progress": 5}, TypeError, "on_progress"),
        ({"max_iterations": 0}, ValueError, "max_iterations"),
        ({"max_seconds": np.inf}, ValueError, "max_seconds"),
    ],
)
def test_wrong_arguments_are_refused(
    options: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        solve(**{"problem": PROBLEM, **options})


def test_labels_of_one_class_are_named() -> None:
    found = solve(max_margin([[1.0], [-1.0], [2.0]], [1, 1, 1]))
    assert found.status is Status.NOT_SEPARABLE
    assert "one class" in found.message
    assert "intercept" not in found.message


def test_coefficients_of_0_are_explained() -> None:
    """Without an intercept alpha is C everywhere, and 0 is optimal as long as ||V(C)|| <= 1."""
    largest = 1.0 / np.linalg.norm(drawn(20, 3).y @ drawn(20, 3).X)
    for factor in (0.1, 0.99):
        found = solve(drawn(20, 3, C=factor * largest))
        assert not found.coef.any()
        assert found.status is Status.OPTIMAL
        assert f"up to {1 / factor:.3g} times" in found.message
    found = solve(drawn(20, 3, C=1.01 * largest))
    assert found.coef.any()
    assert "coefficients" not in found.message
    xor = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    found = solve(max_margin(xor, np.array([1, 1, -1, -1]), C=1.0, intercept=True))
    assert "whatever C is" in found.message


def test_facts_of_a_run_are_shown_without_its_iterations() -> None:
    found = solve(drawn(20, 3, C=1.0))
    assert found.stats.history
    assert "BoundsAt" not in repr(found.stats)
    assert "; )" not in found.stats.detail


def test_a_solution_is_shown_without_its_arrays_and_with_the_cure() -> None:
    shown = repr(solve(plain(*cloud(200, 30, shift=3.0))))
    assert len(shown) < 250
    assert "OPTIMAL" in shown
    found = solve(max_margin([[1.0], [2.0], [3.0], [4.0]], [-1, -1, 1, 1]))
    assert "intercept=True" in str(found)
    assert "intercept=True" in found._repr_html_()
