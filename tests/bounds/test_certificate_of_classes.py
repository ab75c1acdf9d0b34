"""Certificates of many classes and of all norms: by definition, by CVXPY, in exact arithmetic."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import FEATURES, GATES, ROUNDING, Stranger
from cases import NORMS as OF_NAMES
from cases import clusters as of_clusters
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.certificate import Status, certify, grade
from implicit_bias.bounds.gordan import prove_not_separable
from implicit_bias.bounds.lower import in_box
from implicit_bias.bounds.separability import find_conflict
from implicit_bias.norms import L2, GroupNorm, SumOverGroups, as_norm
from implicit_bias.problem import MarginProblem, max_margin
from oracles import check_proof, check_signs, cvxpy_optimum, exact_bounds, fractions, hold

NORMS: dict[str, Any] = {**OF_NAMES, "groups": None, "own": as_norm(Stranger(2.0))}
clusters = partial(of_clusters, 24, spread=0.3, seed=0)


def clusters_under(
    name: str,
    C: float = math.inf,
    intercept: bool = False,
    *,
    binary: bool = False,
    n: int = 24,
    **more: Any,
) -> MarginProblem:
    """Clusters with three gates of any sign, under one of the norms."""
    X, y = of_clusters(n, k=2 if binary else 3, **{"spread": 0.3, "seed": 0, **more})
    gates = np.random.default_rng(1).normal(size=(n, 3))
    labels = 2 * y - 1 if binary else y
    return MarginProblem(X, labels, gates, GATES, C, NORMS[name], intercept)


# --- every norm, both margins ----------------------------------------------------------------


# Norms, each with some of the words soft, intercept and binary.
MEETING = (
    *("l1-intercept", "l1-soft-binary", "l2", "l2-soft-intercept-binary", "linf-intercept-binary"),
    *("l1.01-soft-binary", "l3-soft-intercept-binary", "l10-intercept", "l3features-soft"),
    *("l1.5gates-soft-binary", "spectral-soft-intercept", "nuclear-intercept-binary"),
    *("nuclear-soft", "features", "maxima-binary", "groups-intercept", "apart-soft-intercept"),
    *("layers-soft-binary", "own-soft-intercept"),
)


@pytest.mark.parametrize("case", MEETING)
def test_bounds_meet_at_the_optimum(case: str) -> None:
    name, *words = case.split("-")
    C = 0.2 if "soft" in words else math.inf
    intercept = "intercept" in words
    binary = "binary" in words
    problem = clusters_under(name, C, intercept, binary=binary)
    optimum, coef, b, alpha = cvxpy_optimum(problem)
    near = 1e-5 if name == "l2" else 1e-4
    # No offsets are given where the best ones are found: those of the losses of classes are not.
    found = intercept and (binary or problem.hard_margin)
    for offset in [problem.as_intercept(b * intercept)] + [None] * found:
        graded = grade(problem, coef, alpha, Status.OPTIMAL, intercept=offset, gap=1e-4)
        assert graded.status is Status.OPTIMAL
        assert graded.certificate.lower == pytest.approx(optimum, rel=near)
        assert graded.certificate.upper == pytest.approx(optimum, rel=near)
        again = certify(problem, graded.coef, graded.alpha, graded.intercept if intercept else None)
        assert again.lower == graded.certificate.lower
        assert again.upper == pytest.approx(graded.certificate.upper, rel=ROUNDING)
        check_signs(problem, graded.alpha)
        assert (problem.totals(graded.alpha) <= C * (1 + 1e-14)).all()
        margins = problem.margins(problem.decision(graded.coef), graded.intercept)
        loss = 0.0 if problem.hard_margin else C * np.maximum(0, 1 - margins).sum()
        norm = problem.norm.value(graded.coef)
        assert norm + loss == pytest.approx(graded.certificate.upper, rel=1e-9)
        np.testing.assert_allclose(graded.margins, margins, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.one_of(st.just("groups"), st.sampled_from(sorted(NORMS))),
    C=st.sampled_from([math.inf, math.inf, 0.1, 3.0]),
    intercept=st.booleans(),
    binary=st.booleans(),
    more=st.fixed_dictionaries({"n": st.integers(3, 9), "spread": st.sampled_from([0.1, 3.0])}),
    density=st.sampled_from([0.4, 1.0]),
)
def test_random_bounds_bracket_the_optimum(
    seed: int,
    name: str,
    C: float,
    intercept: bool,
    binary: bool,
    more: dict[str, Any],
    density: float,
) -> None:
    """Near the optimum and anywhere, where it is infinite too, of gates that are often off."""
    rng = np.random.default_rng(seed)
    problem = clusters_under(name, C, intercept, binary=binary, seed=seed % 1000, **more)
    kept = rng.random((more["n"], 3)) < density
    problem = replace(problem, gates=sp.csr_array(np.asarray(problem.gates) * kept))
    optimum, coef, b, alpha = cvxpy_optimum(problem)
    rows = problem.constraints
    near = np.abs(coef).max() or 1.0, alpha.max() or 1.0
    for size in (0.0, 1e-2, 1.0):
        noise = rng.normal(size=coef.shape), rng.exponential(size=len(rows))
        guess = coef + size * near[0] * noise[0]
        weights = alpha + size * near[1] * rows.alpha(noise[1] * (rng.random(len(rows)) < 0.8))
        offsets = problem.as_intercept(b + size * rng.normal(size=b.shape))
        for given_offsets in (offsets if intercept else None, None):
            graded = grade(problem, guess, weights, Status.OPTIMAL, intercept=given_offsets)
            assert graded.certificate.lower <= optimum * (1 + 1e-6)
            assert graded.certificate.upper >= optimum * (1 - 1e-6)
            assert graded.certificate.gap >= 0


# --- equivalences ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["l1", "l3", "groups", "nuclear", "own"])
def test_permuted_classes_and_duplicated_samples_change_nothing(name: str) -> None:
    problem = clusters_under(name)
    rng = np.random.default_rng(5)
    coef, alpha = rng.normal(size=problem.coef_shape), rng.exponential(size=problem.alpha_shape)
    alpha[np.arange(24), problem.owners] = 0.0
    order = np.array([2, 0, 1])
    permuted = replace(problem, y=np.argsort(order)[problem.owners])  # type: ignore[arg-type]
    one, two = certify(problem, coef, alpha), certify(permuted, coef[order], alpha[:, order])
    assert two.lower == pytest.approx(one.lower, rel=1e-12)
    assert two.min_margin == pytest.approx(one.min_margin)
    twice = np.repeat(np.arange(24), 2)
    halves = certify(problem.subset(twice), coef, alpha[twice] / 2)
    assert halves.lower == pytest.approx(one.lower, rel=1e-12)
    assert halves.min_margin == pytest.approx(one.min_margin)


# --- with more digits, and exactly -----------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), offset=st.sampled_from([0.0, 1.0, 1e6, 1e12]))
def test_bounds_hold_in_exact_arithmetic(seed: int, offset: float) -> None:
    """Entrywise norms of a linear model: both bounds against rational numbers."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(5, 3)) + offset, np.array([0, 1, 2, 1, 0])
    alpha = rng.exponential(size=(5, 3))
    alpha[np.arange(5), y] = 0.0
    alpha = repaired(max_margin(X, y, intercept=True), alpha)  # V then cancels the offset
    coef = rng.normal(size=(3, 1, 3))
    coef -= coef.mean(axis=2, keepdims=True)
    for name in ("l1", "linf"):
        problem = max_margin(X, y, name)
        if certify(problem, alpha=alpha).lower == np.inf:
            check_proof(problem, prove_not_separable(problem, alpha))
            continue
        hold(problem, certify(problem, coef, alpha), coef, alpha)
        alone = certify(problem, alpha=alpha)  # digits that no gap to an upper bound hides
        hold(problem, alone, 0.0 * coef, alpha)
        assert alone.lower >= exact_bounds(problem, coef, alpha)[0] * Fraction(1 - 1e-9)


@pytest.mark.parametrize("value", [math.nan, 1e308])
def test_flows_that_are_not_finite_are_none(value: float) -> None:
    alpha = np.where(np.eye(3) > 0, 0.0, value)
    with np.errstate(over="ignore", invalid="ignore"):
        assert not repaired(max_margin(np.eye(3), np.arange(3), intercept=True), alpha).any()


# --- no separator ----------------------------------------------------------------------------


def test_twins_of_two_classes_are_named() -> None:
    X, y = clusters()
    X[7] = X[3]
    y[3], y[7] = 2, 0
    conflict = find_conflict(max_margin(X, y, "nuclear"))
    assert conflict is not None
    assert conflict.samples.tolist() == [3, 7]
    assert "classes 2 and 0" in conflict.cause
    found = certify(max_margin(X, y, "nuclear"), alpha=conflict.alpha)
    assert found.lower == math.inf


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("integers", [False, True])
def test_a_point_between_is_proven(intercept: bool, integers: bool) -> None:
    """A sample of class 1 amid samples of class 0: no linear model separates them, proven."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(9, 4))
    X = np.round(8 * X) if integers else X
    y = np.array([0, 0, 1, 2, 2, 1, 0, 2, 1])
    X[2] = (X[0] + X[1]) / 2
    problem = max_margin(X, y, "l1", intercept=intercept)
    alpha = np.zeros((9, 3))
    alpha[0, 1] = alpha[1, 1] = 0.5
    alpha[2, 0] = 1.0
    proof = prove_not_separable(problem, alpha * (1 + 1e-9 * rng.normal(size=alpha.shape)))
    if integers:
        check_proof(problem, proof)
        assert certify(problem, alpha=alpha).lower == math.inf
        graded = grade(problem, np.zeros(problem.coef_shape), alpha, Status.NOT_SEPARABLE)
        assert graded.status is Status.NOT_SEPARABLE
    else:  # the point was rounded: a huge separator exists
        assert proof is None
        found = certify(problem, alpha=alpha)
        assert 0 <= found.lower < np.inf
        assert intercept or found.lower > 1e10


def test_zero_features_are_named() -> None:
    X, y = clusters()
    X[4] = 0.0
    conflict = find_conflict(max_margin(X, y))
    assert conflict is not None
    assert conflict.samples.tolist() == [4]
    assert certify(max_margin(X, y), alpha=conflict.alpha).lower == math.inf
    assert find_conflict(max_margin(X, y, intercept=True)) is None


# --- rounding of sums over classes -----------------------------------------------------------


@pytest.mark.parametrize(("input", "C"), [(1.0, 1e30), (1e-3, 1.0)])
def test_sums_over_the_rivals_of_a_sample_are_rounded_safely(input: float, C: float) -> None:
    """The optimum is 1: by the dual norm, which is the sum of alpha, or by the box of the sample.

    From the largest alpha on, each of the others is rounded away in the sum.
    """
    problem = max_margin([[input]], [0], "l1", C=C, classes=40)
    alpha = np.array([[0.0, 1.0, *[2.0**-53] * 38]])
    assert certify(problem, alpha=alpha).lower <= 1.0


def test_the_rounding_of_a_sample_s_own_weight_counts() -> None:
    """V_0 = 2^-52 + 2^-54, of two samples that nearly cancel, is the largest entry of V."""
    alpha = np.array([[0.0, 1.0 + 2.0**-52, 2.0**-54], [1.0, 0.0, 0.0]])
    problem = max_margin([[1.0], [1.0]], [0, 1], "l1", C=1e30, classes=3)
    bound = fractions(alpha).sum() / (Fraction(2) ** -52 + Fraction(2) ** -54)
    found = certify(problem, alpha=alpha).lower
    assert bound * Fraction(1 - ROUNDING) <= Fraction(found) <= bound


def test_a_box_holds_as_a_real_number() -> None:
    """Totals of six alpha, scaled to fit in the boxes, do not exceed them by a rounding."""
    rng = np.random.default_rng(0)
    C = rng.uniform(0.5, 1.0, 100)
    problem = max_margin(np.ones((100, 1)), np.zeros(100), C=C, classes=7)
    for _ in range(20):
        found = in_box(problem, rng.uniform(size=600))
        totals = fractions(found).reshape(100, 6).sum(axis=1)
        assert (totals <= fractions(C)).all()


# --- refusals --------------------------------------------------------------------------------

X0, Y0 = clusters()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"y": Y0, "classes": 2}, "labels of 2 classes"),
        ({"norm": GroupNorm(np.array([0, 1]))}, "other groups"),
        ({"norm": SumOverGroups(L2(), FEATURES[:4], axis=-1)}, "features"),
        ({"y": np.full(24, 2), "intercept": True, "classes": 3}, "all labels are equal"),
    ],
)
def test_problems_that_make_no_sense_are_refused(more: dict[str, Any], word: str) -> None:
    arguments: dict[str, Any] = {"X": X0, "y": Y0, "gates": np.ones((24, 1)), "groups": [0]}
    with pytest.raises(ValueError, match=word):
        MarginProblem(**{**arguments, **more})


def test_candidates_that_do_not_fit_are_refused() -> None:
    problem = max_margin(X0, Y0, "linf")
    with pytest.raises(ValueError, match="own class"):
        certify(problem, alpha=np.ones((24, 3)))
    with pytest.raises(ValueError, match="shape"):
        certify(replace(problem, intercept=True), np.ones((3, 1, 5)), intercept=0.0)
