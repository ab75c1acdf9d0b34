"""Solver by case: what each method solves, how near it comes, what it proves, what it refuses."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import cases
import oracles
from cases import asked
from implicit_bias import MarginProblem, Solution, Status, certify, solve
from implicit_bias.solvers import BoundsAt

# What is left of bounds that were computed in float32.
SINGLE_RTOL = 1e-5
# How near any solver comes to the optimum of these that poses the right program.
SAME_PROGRAM = 1e-3
Names = Sequence[str]

SYSTEMS = ("rows", "features")  # of an interior point
EUCLIDEAN = ["l2", "l2-intercept", "l2-soft", "features", "groups", "apart", "features-binary"]
MATRIX = ["nuclear", "nuclear-two", "nuclear-gated", "nuclear-soft-intercept"]
MATRIX += ["spectral", "spectral-soft", "spectral-gated-soft"]
ENTRIES = ["l1-intercept", "l1-soft", "linf", "l1-binary-intercept", "maxima"]
POWERS = ["l1.01-binary-soft-intercept", "l10-gated-soft", "l100-intercept"]
POWERS += ["l3features-intercept", "l1.5-gated"]


class Row(NamedTuple):
    """A method on cases, and the gap that it is asked for and reaches."""

    method: str
    names: Names
    asked: float
    reached: float = np.inf


Case = tuple[str, str, float, float]


def table(*rows: Row) -> dict[str, Case]:
    return {
        f"{row.method}-{name}": (row.method, name, row.asked, row.reached)
        for row in rows
        for name in row.names
    }


# Each method with each kind of norm, margin, label and offset that it takes: in pairs.
FAST = table(
    Row("rows", ["gln", "svm-l2", "dead-group"], 1e-10, 1e-8),
    Row("rows", ["gln+intercept", "soft-linear+intercept"], 1e-10, 1e-8),
    Row("rows", ["nuclear-two", "spectral-intercept", "linf-soft-intercept"], 1e-7, 1e-7),
    Row("rows", ["apart-soft", "l3-binary", "l1.5gates-gated"], 1e-8, 1e-8),
    Row("rows", ["pergate-intercept"], 1e-9, 1e-9),
    Row("rows", ["l2-weights"], 1e-5, 1e-4),
    Row("features", ["gln", "soft-not-separable", "linear+intercept"], 1e-10, 1e-8),
    Row("features", ["l2-soft-intercept", "groups", "pergate"], 1e-8, 1e-8),
    # The normal equations of the features lose more digits than those of the pairs.
    Row("features", ["spectral-soft", "linf", "l1.1-soft-intercept"], 1e-6, 1e-6),
    Row("features", ["features-binary-weights"], 1e-5, 1e-4),
    Row("working-set", ["sparse-gates", "soft-svm-l2", "gln-four-contexts+intercept"], 1e-10, 1e-8),
    Row("working-set", ["features-binary", "linf", "l3-binary", "spectral-binary"], 1e-7, 1e-7),
    Row("working-set", ["pergate-intercept"], 1e-9, 1e-9),
    Row("working-set", ["l2-binary-weights"], 1e-5, 1e-4),
    Row("feature-space", ["linear", "soft-svm-l2", "gln+intercept"], 1e-10, 1e-8),
    Row("feature-space", ["nuclear-intercept", "groups"], 1e-7, 1e-7),
    Row("feature-space", ["spectral-binary-weights"], 1e-5, 1e-4),
    Row("one-group", ["l2-weights-intercept"], 1e-5, 1e-4),
    Row("highs", ["linf-intercept", "linf-soft", "maxima"], 1e-8, 1e-8),
    Row("highs", ["l1-binary-weights-intercept"], 1e-5, 1e-4),
)
# The interior point on all cases, the other methods on a handful.
ALL = (
    table(
        Row("rows", [*cases.SEPARABLE], 1e-10, 1e-8),
        Row("rows", ["two-samples+intercept", "gated-relu+intercept"], 1e-10, 1e-8),
        Row("rows", [*MATRIX, *ENTRIES], 1e-7, 1e-7),
        Row("rows", [*EUCLIDEAN, *POWERS], 1e-8, 1e-8),
        Row("rows", cases.WEIGHTED, 1e-5, 1e-4),
        *(Row(method, cases.HANDFUL, 1e-10, 1e-8) for method in cases.METHODS[1:]),
        Row("features", ["nuclear-gated", "spectral-gated-soft", *POWERS], 1e-6, 1e-6),
        Row("working-set", ["apart", "nuclear-gated", "l1-soft", "l10-gated-soft"], 1e-7, 1e-7),
    )
    | FAST
)
# Other people's solvers, with what they are asked for.
EXTERNAL = table(
    Row("clarabel", ["gln", "soft-not-separable"], 1e-9, SAME_PROGRAM),
    Row("clarabel", ["sparse-gates", "gln+intercept"], 1e-9),
    Row("clarabel", ["features-weights-intercept", "spectral-weights"], 1e-5),
    Row("ecos", ["svm-l2", "soft-not-separable"], 1e-6, SAME_PROGRAM),
    Row("scs", ["soft-not-separable"], 1e-6, SAME_PROGRAM),
    Row("scs", ["nuclear"], 1e-4),
    Row("osqp", ["svm-l2"], 1e-7, SAME_PROGRAM),
)


def is_external(method: str) -> bool:
    return method in ("clarabel", "ecos", "scs", "osqp")


def solved(problem: MarginProblem, method: str, tol: float, **options: Any) -> Solution:
    return solve(problem, **asked(method, tol, **options))


@pytest.mark.fast(*FAST)
@pytest.mark.parametrize(("method", "name", "tol", "reach"), ALL.values(), ids=ALL)
def test_every_solver_finds_the_optimum(method: str, name: str, tol: float, reach: float) -> None:
    problem = cases.separable(name)
    found = solved(problem, method, tol)
    certificate = found.certificate
    assert certificate.gap <= reach, found.message
    assert (found.status is Status.OPTIMAL) == (certificate.gap <= tol)
    assert found.stats.solver == ("interior-point" if method in SYSTEMS else method)
    assert found.stats.iterations > 0
    assert found.coef.shape == problem.coef_shape
    oracles.check_signs(problem, found.alpha)
    oracles.check_attained(problem, found)
    margins = problem.margins(problem.decision(found.coef), found.intercept)
    assert set(np.flatnonzero(margins < 1 - 1e-6)) <= set(found.support)
    # The same grade, but for the last digits of slacks times C, which `certify` may rescale.
    offset = found.intercept if problem.intercept else None
    again = certify(problem, found.coef, found.alpha, offset)
    assert again.lower == certificate.lower
    assert again.upper == pytest.approx(certificate.upper, rel=1e-12)
    assert again.min_margin == certificate.min_margin
    if problem.is_binary_group_lasso:
        oracles.check_overlap(found.certificate, cases.best(name).certificate)


@pytest.mark.parametrize(("method", "name", "tol", "reach"), EXTERNAL.values(), ids=EXTERNAL)
def test_what_an_external_solver_finds_is_judged_by_its_bounds(
    method: str, name: str, tol: float, reach: float
) -> None:
    problem = cases.separable(name)
    found = solved(problem, method, tol)
    assert found.stats.solver == method
    assert found.coef.shape == problem.coef_shape
    oracles.check_judged(problem, found, tol)
    oracles.check_overlap(found.certificate, cases.best(name).certificate)
    assert found.certificate.gap <= reach


@pytest.mark.parametrize(
    "name",
    [
        *("l2-soft-intercept", "features", "groups", "apart-soft", "nuclear-intercept"),
        *("spectral-gated-soft", "l1-intercept", "linf-soft-intercept", "maxima"),
        *("pergate-intercept", "l3-binary", "l1.1-soft-intercept", "l1.5gates-gated"),
        *("l3features-intercept", "l2-weights", "spectral-binary-weights"),
    ],
)
def test_the_optimum_under_any_norm_is_cvxpys(name: str) -> None:
    problem = cases.separable(name)
    found, optimum = solve(problem, tol=1e-5), oracles.cvxpy_optimum(problem).value
    assert found.status is Status.OPTIMAL, found.message
    assert found.certificate.upper == pytest.approx(optimum, rel=1e-4)
    if "weights" in name:
        even = solve(replace(problem, C=float(np.mean(problem.C))))
        assert abs(even.certificate.upper / optimum - 1.0) > 1e-3  # so the weights matter here


# --- what is not separable -------------------------------------------------------------------

TWINS = table(
    Row("rows", ["gln", "gln+intercept"], 1e-8),
    Row("rows", ["nuclear"], 1e-6),
    Row("features", ["gated-relu+intercept"], 1e-8),
    Row("features", ["l3"], 1e-6),
    Row("working-set", ["gln+intercept"], 1e-8),
    Row("working-set", ["linf", "l2-intercept"], 1e-6),
    Row("feature-space", ["svm-l2"], 1e-8),
    Row("feature-space", ["spectral"], 1e-6),
    Row("highs", ["l1-intercept"], 1e-6),
    Row("clarabel", ["linear", "l2-intercept"], 1e-6),
    Row("osqp", ["svm-l2"], 1e-6),
)
ALL_TWINS = (
    table(
        Row("rows", cases.HARD, 1e-8),
        Row("rows", ["linf", "pergate"], 1e-6),
        Row("feature-space", ["gln+intercept", "l2-intercept"], 1e-6),
    )
    | TWINS
)


@pytest.mark.fast(*TWINS)
@pytest.mark.parametrize("twin", ALL_TWINS.values(), ids=ALL_TWINS)
def test_twins_are_not_separable(twin: Case) -> None:
    """What an external solver says of them is no proof, and no separator."""
    method, name, tol, _ = twin
    problem = cases.twin(name)
    found = solved(problem, method, tol)
    if is_external(method):
        oracles.check_judged(problem, found, tol)
        assert found.certificate.upper == np.inf
    else:
        oracles.check_inseparable(problem, found)


@pytest.mark.parametrize("name", ["gln", "linear"])
def test_near_twins_have_no_separator_that_float64_can_tell(name: str) -> None:
    problem = cases.near_twin(name)
    found = solved(problem, "rows", 1e-8)
    assert found.certificate.upper == np.inf
    if found.status is Status.NOT_SEPARABLE:
        oracles.check_proof(problem, found.proof)
    else:
        assert found.status is Status.NEARLY_INSEPARABLE
        assert 1e6 < found.certificate.lower * oracles.loop_feature_norms(problem).max() < np.inf


def gates_off(C: float) -> MarginProblem:
    X, y = cases.cloud(12, 4)
    gates = np.ones((12, 2))
    gates[[3, 8]] = 0
    return MarginProblem(X, y, gates, np.array([0, 1]), C=C)


def opposite_duplicate(C: float) -> MarginProblem:
    X, y = cases.cloud(12, 4)
    X[9] = X[2]
    return cases.build((X, y), cases.linear, C=C)


# Problems of a C, the samples that are named where it is infinite, a method, and a finite C.
HOPELESS: dict[str, tuple[Callable[[float], MarginProblem], list[int], str, float]] = {
    "gates-off": (gates_off, [3, 8], "rows", 1e-3),
    "opposite-duplicate": (opposite_duplicate, [2, 9], "features", 1e3),
    "xor": (lambda C: cases.build(cases.xor(), cases.linear, C=C), [], "working-set", 1e3),
    "random-labels": (
        lambda C: cases.build(cases.cloud(60, 4), cases.gln(3), C=C),
        [],
        "rows",
        1.0,
    ),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_data_and_the_soft_margin_that_forgives(name: str) -> None:
    make, samples, method, C = HOPELESS[name]
    problem = make(np.inf)
    found = solved(problem, method, 1e-8)
    oracles.check_inseparable(problem, found)
    conflict = found.stats.conflict
    assert ([] if conflict is None else conflict.samples.tolist()) == samples
    assert all(str(n) in found.message for n in samples)
    assert not samples or set(np.flatnonzero(found.alpha)) == set(samples)
    problem = make(C)
    found = solved(problem, method, cases.GAP_LIMIT)
    assert found.status is Status.OPTIMAL
    assert found.stats.conflict is None
    assert oracles.loop_primal(problem, found.coef) == pytest.approx(
        found.certificate.upper, rel=cases.ROUNDING
    )


@pytest.mark.parametrize(
    ("zeros", "method"),
    [
        ("gates", "rows"),
        ("inputs", "features"),
        ("gates", "working-set"),
        ("inputs", "feature-space"),
        ("gates", "clarabel"),
    ],
)
def test_without_features_each_sample_costs_C(zeros: str, method: str) -> None:
    X, y = cases.cloud(10, 4)
    gates = np.ones((10, 2))
    (gates if zeros == "gates" else X)[:] = 0.0
    problem = MarginProblem(X, y, gates, np.arange(2), C=2.0)
    found = solved(problem, method, cases.GAP_LIMIT)
    assert found.certificate.upper == pytest.approx(20)
    if is_external(method):
        oracles.check_judged(problem, found, cases.GAP_LIMIT)
    else:
        assert found.status is Status.OPTIMAL
        assert found.certificate.lower == pytest.approx(20)


# --- limits, and what a method does not take -------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method", "limit"),
    [
        ("gln", "rows", 1),
        ("sparse-gates", "features", 3),
        ("soft-not-separable", "working-set", 2),
        ("svm-l2", "feature-space", 2),
        ("soft-not-separable", "clarabel", 2),
        ("gln", "scs", 30),
    ],
)
def test_iteration_limit_keeps_valid_bounds(name: str, method: str, limit: int) -> None:
    told: list[BoundsAt] = []
    options = asked(method, cases.SOLVE_TOL, max_iterations=limit)
    problem = cases.separable(name)
    found = solve(problem, **options, on_progress=told.append)
    assert found.stats.iterations <= limit
    if is_external(method):
        oracles.check_judged(problem, found, cases.SOLVE_TOL)
    else:
        assert found.status is Status.ITERATION_LIMIT
        assert found.certificate.gap > cases.SOLVE_TOL
    bounds: list[Any] = [found.certificate, *told]
    for one in bounds:
        oracles.check_overlap(one, cases.best(name).certificate)
    assert tuple(told) == found.stats.history
    assert [line.iteration for line in told] == list(range(1, len(told) + 1))
    if told or method in cases.METHODS:
        assert len(told) == found.stats.iterations
    if method == "rows":  # whose first bounds are computed in float32
        assert 0 < max(line.lower for line in told) <= found.certificate.lower * (1 + SINGLE_RTOL)
        assert min(line.upper for line in told) >= found.certificate.upper * (1 - SINGLE_RTOL)


@pytest.mark.parametrize(
    ("method", "name", "word"),
    [
        ("feature-space", "layers-gated", "norm"),
        ("rows", "layers-gated", "norm"),
        ("highs", "l2", "norm"),
        ("osqp", "gln", "quadratic"),
    ],
)
def test_what_a_method_does_not_take_is_refused(method: str, name: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        solve(cases.separable(name), **asked(method))
