"""Certificates of many classes and of all norms: by definition, by CVXPY, in exact arithmetic."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from cases import GATES, ROUNDING, Stranger
from cases import NORMS as OF_NAMES
from cases import clusters as of_clusters
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.certificate import Status, certify, grade
from implicit_bias.bounds.lower import in_box
from implicit_bias.bounds.separability import find_conflict
from implicit_bias.norms import as_norm
from implicit_bias.problem import MarginProblem, max_margin
from oracles import check_signs, cvxpy_optimum, fractions

NORMS: dict[str, Any] = {**OF_NAMES, "groups": None, "own": as_norm(Stranger(2.0))}
clusters = partial(of_clusters, 24, spread=0.3, seed=0)


def clusters_under(
    name: str,
    C: float = math.inf,
    intercept: bool = False,
    *,
    binary: bool = False,
) -> MarginProblem:
    """Clusters with three gates of any sign, under one of the norms."""
    X, y = clusters(k=2 if binary else 3)
    gates = np.random.default_rng(1).normal(size=(24, 3))
    labels = 2 * y - 1 if binary else y
    return MarginProblem(X, labels, gates, GATES, C, NORMS[name], intercept)


# --- every norm, both margins ----------------------------------------------------------------


# Norms, each with some of the words soft, intercept and binary.
MEETING = (
    *("l1-intercept", "l1-soft-binary", "l2", "l2-soft-intercept-binary", "linf-intercept-binary"),
    *("l3-soft-intercept-binary", "spectral-soft-intercept", "nuclear-intercept-binary"),
    *("groups-intercept", "apart-soft", "own-soft-intercept"),
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


def test_candidates_that_do_not_fit_are_refused() -> None:
    problem = max_margin(X0, Y0, "linf")
    with pytest.raises(ValueError, match="own class"):
        certify(problem, alpha=np.ones((24, 3)))
    with pytest.raises(ValueError, match="shape"):
        certify(replace(problem, intercept=True), np.ones((3, 1, 5)), intercept=0.0)
