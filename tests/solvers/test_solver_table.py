"""Solver by case: what each method solves, how near it comes, what it proves, what it refuses."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import cases
import oracles
from cases import asked
from exact import is_inseparable
from implicit_bias import MarginProblem, Solution, Status, certify, solve
from implicit_bias.solvers import BoundsAt

# What is left of bounds that were computed in float32.
SINGLE_RTOL = 1e-5
Names = Sequence[str]


def with_offsets(names: Names) -> list[str]:
    return [name + cases.OFFSET for name in names]


BALANCED = [f"{name}{cases.OFFSET}" for name in cases.SEPARABLE if name != "one-class"]
EUCLIDEAN = ["l2", "l2-intercept", "l2-soft", "l2-soft-intercept", "features"]
EUCLIDEAN += ["groups", "apart", "apart-soft"]
BINARY = ["features-binary", "l2-binary-soft-intercept", "spectral-binary"]
MATRIX = ["nuclear", "nuclear-intercept", "nuclear-two", "nuclear-gated", "nuclear-soft-intercept"]
MATRIX += ["spectral", "spectral-intercept", "spectral-soft", "spectral-gated-soft"]
ENTRIES = ["l1-intercept", "l1-soft", "linf", "linf-soft-intercept"]
LINEAR = ["l1", "l1-soft-intercept", "linf", "linf-intercept", "linf-soft", "maxima"]
LINEAR += ["l1-binary-intercept", "linf-binary-soft"]
PER_GATE = ["pergate", "pergate-intercept", "pergate-soft-intercept"]
POWERS = ["l3", "l3-binary", "l1.01-binary-soft-intercept", "l1.1-soft-intercept", "l1.5-gated"]
POWERS += ["l4-binary-intercept", "l10-gated-soft", "l100-intercept", "l1.01", "l1.5gates-gated"]
POWERS += ["l3features-intercept", "l1.5gates-gated-binary-soft", "l100-binary-soft", "l3features"]

TWO = (*cases.SEPARABLE, *BALANCED)
HARD_TWO = (
    *cases.HARD,
    *(name for name in BALANCED if name.removesuffix(cases.OFFSET) in cases.HARD),
)
THREE = tuple(dict.fromkeys((*EUCLIDEAN, *BINARY, *MATRIX, *ENTRIES, *LINEAR, *PER_GATE)))
L2_ALONE = [name for name in EUCLIDEAN if name.startswith("l2")]
BALLS = ("nuclear", "spectral", "linf", "l1", "l3", "l2", "l2-intercept")
WEIGHTED = cases.of_weights("l2", "l3", "features", "spectral", "nuclear")
FIVE = ("gln", "linear-n-greater-d", "svm-l2", "dead-group", "soft-not-separable")
LINES = ["linear-n-greater-d", "one-group", "svm-l2"]  # hard margins of one group
# How near any solver comes to the optimum of these that poses the right program.
SAME_PROGRAM = 1e-3


SYSTEMS = ("rows", "features")  # of an interior point


class Row(NamedTuple):
    """A method on cases, and the gap that it is asked for and reaches."""

    method: str
    names: Names
    asked: float
    reached: float


ROWS = [
    Row("rows", TWO, cases.SOLVE_TOL, cases.GAP_LIMIT),
    Row("rows", [*EUCLIDEAN, *BINARY], 1e-8, 1e-8),
    Row("rows", [*MATRIX, *ENTRIES], 1e-7, 1e-7),
    Row("rows", [*POWERS, "l1-binary", "linf-binary-soft", "maxima"], 1e-8, 1e-8),
    Row("rows", PER_GATE, 1e-9, 1e-9),
    Row("rows", WEIGHTED, 1e-5, 1e-4),
    Row("features", TWO, cases.SOLVE_TOL, cases.GAP_LIMIT),
    Row("features", [*EUCLIDEAN, *BINARY, *PER_GATE], 1e-8, 1e-8),
    # The normal equations of the features lose more digits than those of the pairs.
    Row("features", [*MATRIX, *ENTRIES, *POWERS, *LINEAR[-2:], "maxima"], 1e-6, 1e-6),
    Row("features", WEIGHTED, 1e-5, 1e-4),
    Row("working-set", TWO, cases.SOLVE_TOL, cases.GAP_LIMIT),
    Row("working-set", [*EUCLIDEAN, *BINARY, *MATRIX, *ENTRIES], 1e-7, 1e-7),
    Row("working-set", POWERS, 1e-7, 1e-7),
    Row("working-set", PER_GATE, 1e-9, 1e-9),
    Row("working-set", WEIGHTED, 1e-5, 1e-4),
    Row("feature-space", TWO, cases.SOLVE_TOL, cases.GAP_LIMIT),
    Row("feature-space", [*L2_ALONE, *MATRIX[:2], "groups"], 1e-7, 1e-7),
    Row("feature-space", cases.of_weights("l2", "l3", "spectral", "nuclear"), 1e-5, 1e-4),
    Row("one-group", cases.of_weights("l2"), 1e-5, 1e-4),
    Row("highs", LINEAR, 1e-8, 1e-8),
    Row("highs", cases.of_weights("l1", "linf"), 1e-5, 1e-4),
]


def table(rows: Sequence[Row]) -> list[Any]:
    return [
        pytest.param(row.method, name, row.asked, row.reached, id=f"{row.method}-{name}")
        for row in rows
        for name in row.names
    ]


# Other people's solvers, with what they are asked for.
EXTERNAL: list[tuple[str, Names, float]] = [
    ("clarabel", [*cases.SEPARABLE, *BALANCED], 1e-9),
    ("clarabel", cases.HANDFUL, 1e-8),
    ("clarabel", cases.WEIGHTED, 1e-5),
    ("ecos", cases.HANDFUL, 1e-6),
    ("scs", cases.HANDFUL, 1e-5),
    ("scs", ["nuclear"], 1e-4),
    ("osqp", LINES, 1e-7),
    ("ecos", [name for name in FIVE if name not in cases.HANDFUL], 1e-6),
    ("scs", FIVE, 1e-6),
]


def named(rows: Sequence[tuple[str, Names, float]]) -> list[Any]:
    return [
        pytest.param(method, name, tol, id=f"{method}-{name}-{tol:.0e}")
        for method, names, tol in rows
        for name in names
    ]


def is_external(method: str) -> bool:
    return method in ("clarabel", "ecos", "scs", "osqp")


def solved(problem: MarginProblem, method: str, tol: float, **options: Any) -> Solution:
    return solve(problem, **asked(method, tol, **options))


@pytest.mark.fast(
    *("rows-gln", "rows-sparse-gates", "rows-svm-l2", "rows-dead-group", "rows-one-class"),
    *("rows-soft-large-c", "rows-gln+intercept", "rows-soft-linear+intercept"),
    *("rows-features-binary", "rows-apart-soft", "rows-nuclear-two", "rows-spectral-intercept"),
    *("rows-l1-intercept", "rows-linf-soft-intercept", "rows-maxima", "rows-l3-binary"),
    *("rows-l1.1-soft-intercept", "rows-l1.5gates-gated", "rows-l3features"),
    *("rows-pergate-intercept", "rows-l2-weights", "features-gln", "features-svm-l2"),
    *("features-soft-not-separable", "features-linear+intercept", "features-l2-soft-intercept"),
    *("features-groups", "features-apart-soft", "features-spectral-soft", "features-linf"),
    *("features-l1.5-gated", "features-pergate", "features-features-binary-weights"),
    *("working-set-sparse-gates", "working-set-soft-svm-l2"),
    "working-set-gln-four-contexts+intercept",
    *("working-set-features-binary", "working-set-linf", "working-set-l3-binary"),
    *("working-set-spectral-binary", "working-set-pergate-soft-intercept"),
    *("working-set-l2-binary-weights", "feature-space-linear", "feature-space-dead-group"),
    *("feature-space-soft-svm-l2", "feature-space-gln+intercept"),
    *("feature-space-nuclear-intercept", "feature-space-groups"),
    *("feature-space-spectral-binary-weights", "one-group-l2-binary-weights"),
    *("one-group-l2-weights-intercept", "highs-l1", "highs-linf-intercept", "highs-linf-soft"),
    *("highs-maxima", "highs-l1-binary-intercept", "highs-l1-binary-weights-intercept"),
)
@pytest.mark.parametrize(("method", "name", "tol", "reach"), table(ROWS))
def test_every_solver_finds_the_optimum(method: str, name: str, tol: float, reach: float) -> None:
    problem = cases.separable(name)
    found = solved(problem, method, tol)
    certificate = found.certificate
    assert certificate.gap <= reach, found.message
    assert (found.status is Status.OPTIMAL) == (certificate.gap <= tol)
    if certificate.gap > tol and method in cases.METHODS:  # a native one, which knows its gap
        assert solved(problem, method, reach).status is Status.OPTIMAL
    if method in SYSTEMS:
        assert found.stats.solver == "interior-point"
    else:
        assert found.stats.solver == method
    assert found.stats.iterations > 0
    if method in cases.METHODS and found.status is Status.OPTIMAL:
        assert found.message == Status.OPTIMAL.message
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
    if name in TWO:
        oracles.check_overlap(found.certificate, cases.best(name).certificate)
    if name in cases.SEPARABLE and method == "working-set":
        other = problem.decision(cases.best(name).coef)
        np.testing.assert_allclose(problem.decision(found.coef), other, atol=cases.DECISION_ATOL)


@pytest.mark.fast(
    *("clarabel-gln-1e-09", "clarabel-sparse-gates-1e-09", "clarabel-linear-1e-09"),
    *("clarabel-svm-l2-1e-09", "clarabel-soft-linear-1e-09", "clarabel-soft-not-separable-1e-09"),
    *("clarabel-soft-svm-l2-1e-09", "clarabel-gln+intercept-1e-09"),
    *("clarabel-linear+intercept-1e-09", "clarabel-svm-l2+intercept-1e-09"),
    *("clarabel-soft-xor+intercept-1e-09", "clarabel-soft-linear+intercept-1e-09"),
    *("clarabel-soft-tiny-c+intercept-1e-09", "clarabel-l2-binary-weights-1e-05"),
    *("clarabel-features-weights-intercept-1e-05", "clarabel-l1-binary-weights-1e-05"),
    *("clarabel-linf-binary-weights-intercept-1e-05", "clarabel-spectral-weights-1e-05"),
    *("clarabel-nuclear-binary-weights-1e-05", "ecos-gln-1e-06", "ecos-sparse-gates-1e-06"),
    *("ecos-svm-l2-1e-06", "ecos-soft-not-separable-1e-06", "ecos-dead-group-1e-06"),
    *("scs-gln-1e-05", "scs-soft-not-separable-1e-05", "scs-nuclear-1e-04", "scs-svm-l2-1e-06"),
    *("scs-linear-n-greater-d-1e-06", "osqp-one-group-1e-07", "osqp-svm-l2-1e-07"),
)
@pytest.mark.parametrize(("method", "name", "tol"), named(EXTERNAL))
def test_what_an_external_solver_finds_is_judged_by_its_bounds(
    method: str, name: str, tol: float
) -> None:
    problem = cases.separable(name)
    found = solved(problem, method, tol)
    assert found.stats.solver == method
    assert found.coef.shape == problem.coef_shape
    oracles.check_judged(problem, found, tol)
    oracles.check_overlap(found.certificate, cases.best(name).certificate)
    assert name not in FIVE or found.certificate.gap <= SAME_PROGRAM


@pytest.mark.fast(
    *("l2-soft-intercept", "features", "groups", "apart-soft", "nuclear-intercept"),
    *("spectral-gated-soft", "l1-intercept", "linf-soft", "maxima", "l1-binary-intercept"),
    *("pergate-intercept", "l3-binary", "l1.1-soft-intercept", "l1.5gates-gated", "l3features"),
    *("l2-weights", "spectral-binary-weights"),
)
@pytest.mark.parametrize("name", [*THREE, *POWERS, *cases.WEIGHTED])
def test_the_optimum_under_any_norm_is_cvxpys(name: str) -> None:
    problem, tol = cases.separable(name), 1e-5 if name in POWERS else 1e-7
    found, optimum = solve(problem, tol=tol), oracles.cvxpy_optimum(problem).value
    assert found.status is Status.OPTIMAL, found.message
    assert found.certificate.upper == pytest.approx(optimum, rel=1e-4)
    if "weights" in name:
        even = solve(replace(problem, C=float(np.mean(problem.C))))
        assert abs(even.certificate.upper / optimum - 1.0) > 1e-3  # so the weights matter here


# --- what is not separable -------------------------------------------------------------------

LINES_AND_GATES = ["gln", "linear", "svm-l2", *with_offsets(["gln", "linear", "svm-l2"])]
TWINS: list[tuple[str, Names, float]] = [
    *((way, HARD_TWO, 1e-8) for way in cases.METHODS),
    *((backend, cases.HARD, 1e-8) for backend in ("clarabel", "ecos")),
    *((way, LINES, 1e-6) for way in ("osqp", "scs")),
    ("clarabel", LINES_AND_GATES, 1e-6),
    *((way, [*BALLS, *PER_GATE[:2]], 1e-6) for way in cases.NATIVE),
    ("feature-space", BALLS, 1e-6),
    ("highs", ["l1", "l1-intercept"], 1e-6),
    ("clarabel", ["l2", "l2-intercept"], 1e-6),
]


@pytest.mark.fast(
    *("rows-gln-1e-08", "rows-gln+intercept-1e-08", "rows-nuclear-1e-06", "rows-linf-1e-06"),
    *("features-gated-relu+intercept-1e-08", "features-l3-1e-06"),
    *("working-set-gln+intercept-1e-08", "working-set-linf-1e-06"),
    *("working-set-l2-intercept-1e-06", "feature-space-svm-l2-1e-08"),
    *("feature-space-svm-l2+intercept-1e-08", "feature-space-spectral-1e-06", "highs-l1-1e-06"),
    *("highs-l1-intercept-1e-06", "clarabel-gln-1e-08", "clarabel-linear-1e-06"),
    *("clarabel-gln+intercept-1e-06", "clarabel-svm-l2+intercept-1e-06"),
    *("clarabel-l2-intercept-1e-06", "ecos-linear-1e-08", "osqp-svm-l2-1e-06"),
    "scs-one-group-1e-06",
)
@pytest.mark.parametrize(("method", "name", "tol"), named(TWINS))
def test_twins_are_not_separable(method: str, name: str, tol: float) -> None:
    """What an external solver says of them is no proof, and no separator."""
    twin = cases.twin(name)
    found = solved(twin, method, tol)
    if is_external(method):
        oracles.check_judged(twin, found, tol)
        assert found.certificate.upper == np.inf
    else:
        oracles.check_gordan(twin, found)


@pytest.mark.fast("gln", "linear")
@pytest.mark.parametrize("name", cases.HANDFUL[:6])
def test_near_twins_have_no_separator_that_float64_can_tell(name: str) -> None:
    problem = cases.near_twin(name)
    found = solved(problem, "rows", 1e-8)
    assert found.certificate.upper == np.inf
    if found.status is Status.NOT_SEPARABLE:
        assert is_inseparable(problem, found.alpha)
    else:
        assert found.status is Status.NEARLY_INSEPARABLE
        assert 1e6 < found.certificate.lower * oracles.loop_feature_norms(problem).max() < np.inf


def random_labels(C: float) -> MarginProblem:
    X, y = cases.cloud(300, 4)
    return cases.build((X, np.random.default_rng(4).permutation(y)), cases.linear, C=C)


def gates_off(C: float) -> MarginProblem:
    X, y = cases.cloud(12, 4)
    gates = np.ones((12, 2))
    gates[[3, 8]] = 0
    return MarginProblem(X, y, gates, np.array([0, 1]), C=C)


def opposite_duplicate(C: float) -> MarginProblem:
    X, y = cases.cloud(12, 4)
    X[9] = X[2]
    return cases.build((X, y), cases.linear, C=C)


# Problems of a C, and the samples that are named where it is infinite.
HOPELESS: dict[str, tuple[Callable[[float], MarginProblem], list[int]]] = {
    "gates-off": (gates_off, [3, 8]),
    "opposite-duplicate": (opposite_duplicate, [2, 9]),
    "xor": (lambda C: cases.build(cases.xor(), cases.linear, C=C), []),
    "random-labels": (random_labels, []),
    "random-labels-gln": (lambda C: cases.build(cases.cloud(300, 4), cases.gln(3), C=C), []),
    "random-labels-sigmoid": (
        lambda C: cases.build(cases.cloud(200, 3), cases.units(3, firing="sigmoid"), C=C),
        [],
    ),
    "random-labels-l2": (lambda C: cases.svm_l2(cases.cloud(300, 4), 3, 1, C), []),
}


@pytest.mark.fast(
    *("rows-gates-off", "features-opposite-duplicate", "working-set-xor", "features-random-labels"),
    *("rows-random-labels-gln", "rows-random-labels-sigmoid", "working-set-random-labels-l2"),
)
@pytest.mark.parametrize("name", HOPELESS)
@pytest.mark.parametrize("solver", cases.NATIVE)
def test_hopeless_data(name: str, solver: str) -> None:
    make, samples = HOPELESS[name]
    problem = make(np.inf)
    found = solved(problem, solver, 1e-8)
    # As near to 0 as its rounding lets it come, and near to an exact proof.
    oracles.check_gordan(problem, found, 1e-8)
    assert is_inseparable(problem, found.alpha)
    conflict = found.stats.conflict
    assert ([] if conflict is None else conflict.samples.tolist()) == samples
    assert all(str(n) in found.message for n in samples)
    assert not samples or set(np.flatnonzero(found.alpha)) == set(samples)


@pytest.mark.fast(
    *("clarabel-gates-off", "clarabel-random-labels-l2", "ecos-opposite-duplicate", "ecos-xor"),
)
@pytest.mark.parametrize("name", HOPELESS)
@pytest.mark.parametrize("solver", ["clarabel", "ecos"])
def test_no_external_solver_separates_hopeless_data(name: str, solver: str) -> None:
    problem = HOPELESS[name][0](np.inf)
    found = solved(problem, solver, 1e-8)
    oracles.check_judged(problem, found, 1e-8)
    assert found.certificate.upper == np.inf


@pytest.mark.fast(
    *("rows-gates-off-0.001", "rows-random-labels-1.0", "features-opposite-duplicate-1000.0"),
    *("features-random-labels-gln-1.0", "working-set-xor-1000.0"),
    *("features-random-labels-sigmoid-0.001", "rows-random-labels-l2-1000.0"),
)
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", HOPELESS)
@pytest.mark.parametrize("solver", cases.NATIVE)
def test_soft_margin_forgives(name: str, C: float, solver: str) -> None:
    problem = HOPELESS[name][0](C)
    found = solved(problem, solver, cases.GAP_LIMIT)
    assert found.status is Status.OPTIMAL
    assert found.stats.conflict is None
    assert oracles.loop_primal(problem, found.coef) == pytest.approx(
        found.certificate.upper, rel=cases.ROUNDING
    )


@pytest.mark.parametrize("method", [*cases.METHODS, "clarabel"])
@pytest.mark.parametrize("C", [np.inf, 2.0], ids=["hard", "soft"])
def test_all_gates_off_everywhere(C: float, method: str) -> None:
    """No coefficients do anything, and each sample costs C."""
    problem = MarginProblem(*cases.cloud(10, 4), np.zeros((10, 2)), np.arange(2), C=C)
    found = solved(problem, method, cases.GAP_LIMIT)
    if problem.hard_margin:
        oracles.check_gordan(problem, found)
        assert "with all gates off" in found.message
        return
    assert found.certificate.upper == pytest.approx(20)
    if is_external(method):
        oracles.check_judged(problem, found, cases.GAP_LIMIT)
    else:
        assert found.status is Status.OPTIMAL
        assert found.certificate.lower == pytest.approx(20)


@pytest.mark.parametrize("method", cases.METHODS)
def test_inputs_that_are_all_0(method: str) -> None:
    X, y = cases.cloud(10, 4)
    found = solved(MarginProblem(0.0 * X, y, np.ones((10, 2)), np.arange(2), C=2.0), method, 1e-9)
    assert found.status is Status.OPTIMAL
    assert found.certificate.lower == pytest.approx(20)


# --- limits, and what a method does not take -------------------------------------------------


MANY = ["gln", "sparse-gates", "svm-l2", "soft-not-separable"]
LIMITS: list[tuple[str, int, Names]] = [
    *((system, limit, MANY) for system in SYSTEMS for limit in (1, 3, 5)),
    *((method, 2, MANY) for method in (*cases.METHODS, "clarabel", "ecos")),
    ("scs", 30, MANY),
]


@pytest.mark.fast(
    *("gln-rows-1", "sparse-gates-rows-3", "svm-l2-rows-5", "soft-not-separable-rows-2"),
    *("gln-features-1", "sparse-gates-features-3", "svm-l2-features-5"),
    *("soft-not-separable-features-2", "gln-working-set-2", "soft-not-separable-working-set-2"),
    *("svm-l2-feature-space-2", "soft-not-separable-feature-space-2", "svm-l2-clarabel-2"),
    *("soft-not-separable-clarabel-2", "gln-ecos-2", "sparse-gates-ecos-2", "gln-scs-30"),
)
@pytest.mark.parametrize(
    ("name", "method", "limit"),
    [(name, method, limit) for method, limit, names in LIMITS for name in names],
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
    assert found.stats.seconds > 0
    if told or method in cases.METHODS:
        assert len(told) == found.stats.iterations
        numbers = [line.iteration for line in told]
        assert numbers == list(range(numbers[0], numbers[0] + len(told)))
    if method == "rows":  # whose first bounds are computed in float32
        assert 0 < max(line.lower for line in told) <= found.certificate.lower * (1 + SINGLE_RTOL)
        assert min(line.upper for line in told) >= found.certificate.upper * (1 - SINGLE_RTOL)


@pytest.mark.parametrize(
    ("method", "name", "word"),
    [
        *((method, "layers-gated", "norm") for method in ("feature-space", *SYSTEMS)),
        ("highs", "l2", "norm"),
        ("osqp", "l2", "quadratic"),
        ("osqp", "soft-linear", "quadratic programs only.*another solver"),
        ("osqp", "gln", "quadratic"),
    ],
)
def test_what_a_method_does_not_take_is_refused(method: str, name: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        solve(cases.separable(name), **asked(method))
