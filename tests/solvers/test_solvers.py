"""Solvers: every case of the table, its certificate recomputed by hand, twins, equivalences."""

import itertools
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.svm import SVC

from cases import (
    DECISION_ATOL,
    GAP_LIMIT,
    HANDFUL,
    HARD,
    METHODS,
    NATIVE,
    OBJECTIVE_RTOL,
    PROOF_LIMIT,
    ROUNDING,
    SEPARABLE,
    SOLVE_TOL,
    asked,
    build,
    case_table,
    cloud,
    dense,
    free,
    gln,
    linear,
    loop_decision,
    loop_dual_norms,
    loop_dual_vectors,
    loop_feature_norms,
    loop_group_norms,
    loop_groups,
    loop_primal,
    mostly_slow,
    near_twin,
    separable,
    svm_l2,
    twin,
    units,
    xor,
)
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.solvers import (
    SOLVER_NAMES,
    BoundsAt,
    Solution,
    SolveError,
    Tolerances,
    solve,
)

# What is left of bounds that were computed in float32.
SINGLE_RTOL = 1e-5


def solved(problem: MarginProblem, solver: str = "interior-point", **options: Any) -> Solution:
    return solve(problem, **asked(solver, **{"tol": SOLVE_TOL, **options}))


@cache
def solution(name: str, solver: str) -> Solution:
    return solved(separable(name), solver)


@cache
def reference(name: str) -> Solution:
    return solved(separable(name), "clarabel", tol=1e-9)


def optimum(problem: MarginProblem) -> float:
    found = solved(problem)
    assert found.certificate.gap <= GAP_LIMIT
    return found.certificate.upper


# --- the case table --------------------------------------------------------------------------


def test_table_is_large_enough() -> None:
    assert len(SEPARABLE) >= 25


@pytest.mark.parametrize(("name", "solver"), case_table(SEPARABLE, METHODS))
def test_objective_agrees_with_clarabel(name: str, solver: str) -> None:
    native, other = solution(name, solver), reference(name)
    assert native.certificate.gap <= GAP_LIMIT
    assert native.certificate.upper == pytest.approx(other.certificate.upper, rel=OBJECTIVE_RTOL)


@pytest.mark.parametrize(("name", "solver"), case_table(SEPARABLE, METHODS))
def test_status_is_the_gap_against_the_tolerance(name: str, solver: str) -> None:
    found = solution(name, solver)
    assert (found.status is Status.OPTIMAL) == (found.certificate.gap <= SOLVE_TOL)
    assert solved(separable(name), solver, tol=GAP_LIMIT).status is Status.OPTIMAL


@pytest.mark.parametrize(("name", "solver"), case_table(SEPARABLE, METHODS))
def test_certificate_recomputed_by_hand(name: str, solver: str) -> None:
    problem, found = separable(name), solution(name, solver)
    certificate, alpha, coef = found.certificate, found.alpha, found.coef
    # Lower bound: alpha is feasible, and its sum is the bound.
    assert alpha.min() >= 0
    assert alpha.max() <= problem.C * (1 + ROUNDING)
    dual_norms = loop_dual_norms(problem, alpha)
    np.testing.assert_allclose(certificate.dual_norms, dual_norms, rtol=1e-7, atol=1e-7)
    assert dual_norms.max() <= 1 + ROUNDING
    assert sum(alpha) == pytest.approx(certificate.lower, rel=ROUNDING)
    # Upper bound: coef is feasible, and its value is the bound.
    assert loop_primal(problem, coef) == pytest.approx(certificate.upper, rel=ROUNDING)
    by_hand = (loop_primal(problem, coef) - sum(alpha)) / sum(alpha)
    assert by_hand <= GAP_LIMIT
    assert certificate.gap == pytest.approx(by_hand, abs=2 * ROUNDING)
    margins = problem.y * loop_decision(problem, coef)
    assert certificate.min_margin == pytest.approx(margins.min(), abs=ROUNDING)
    np.testing.assert_allclose(
        found.group_norms, loop_group_norms(problem, coef), rtol=1e-7, atol=ROUNDING
    )


@pytest.mark.parametrize("name", [name for name, case in SEPARABLE.items() if case().metric])
def test_coefficients_lie_in_the_range_of_the_metric(name: str) -> None:
    problem, coef = separable(name), solution(name, "interior-point").coef
    for columns, P in loop_groups(problem):
        projected = P @ np.linalg.pinv(P, rcond=1e-10) @ coef[columns]
        np.testing.assert_allclose(projected, coef[columns], atol=1e-9)


@pytest.mark.parametrize("name", SEPARABLE)
def test_kkt_conditions(name: str) -> None:
    """Stationarity zeta_g = d_g P_g V_g, and both kinds of complementary slackness."""
    problem, found = separable(name), solution(name, "interior-point")
    size = max(np.abs(found.coef).max(), np.finfo(float).tiny)
    V = loop_dual_vectors(problem, found.alpha)
    for g, (columns, P) in enumerate(loop_groups(problem)):
        stationary = found.group_norms[g] * P @ V[columns]
        np.testing.assert_allclose(found.coef[columns] / size, stationary / size, atol=1e-4)
    value = found.certificate.upper
    switched_off = 1 - found.certificate.dual_norms
    assert found.group_norms @ switched_off <= 1e-6 * value
    excess = problem.y * loop_decision(problem, found.coef) - 1
    if problem.hard_margin:
        assert found.alpha @ excess <= 1e-6 * value
    assert set(np.flatnonzero(found.alpha > 1e-3 * found.alpha.max())) <= set(found.support)
    # What is no support vector may go: the optimum stays.
    if problem.hard_margin:
        smaller = optimum(problem.subset(found.support))
        assert smaller == pytest.approx(value, rel=OBJECTIVE_RTOL)


@pytest.mark.parametrize("name", SEPARABLE)
def test_solvers_agree_on_decisions(name: str) -> None:
    problem = separable(name)
    first, second = (problem.decision(solution(name, solver).coef) for solver in NATIVE)
    np.testing.assert_allclose(first, second, atol=DECISION_ATOL)


# Each reference with the certified gap that it can be relied on to reach.
REACH = {"ecos": 1e-6, "clarabel": 1e-8, "scs": 1e-5, "osqp": 1e-7}


def can_solve(solver: str, problem: MarginProblem) -> bool:
    return solver != "osqp" or (problem.n_groups == 1 and problem.hard_margin)


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        (name, solver)
        for name, solver in itertools.product(HANDFUL, REACH)
        if can_solve(solver, separable(name))
    ],
)
def test_reference_solvers(name: str, solver: str) -> None:
    tol = REACH[solver]
    found = solved(separable(name), solver, tol=tol)
    assert found.stats.solver == solver
    assert found.status is Status.OPTIMAL
    best = solution(name, "interior-point").certificate
    assert best.lower * (1 - ROUNDING) <= found.certificate.upper <= best.upper * (1 + tol)
    assert found.certificate.lower <= best.upper * (1 + ROUNDING)


@pytest.mark.parametrize(
    "problem",
    [build(cloud(), gln()), build(cloud(), linear, C=1.0)],
    ids=["several-groups", "soft-margin"],
)
def test_osqp_refuses_cones(problem: MarginProblem) -> None:
    with pytest.raises(ValueError, match="OSQP solves quadratic programs only.*another solver"):
        solve(problem, "osqp")


def test_auto_is_a_native_solver() -> None:
    found = solve(separable("gln"))
    assert found.stats.solver == "interior-point"
    assert found.status is Status.OPTIMAL


def test_working_set_beyond_its_first_set() -> None:
    """2,500 samples in the plane, with the working set's own sizes."""
    X, y = cloud(2500, 3, shift=6.0)
    problem = build((X, y), gln(3))
    found, other = solve(problem, "working-set", tol=1e-8), solve(problem, "interior-point", 1e-8)
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(other.certificate.upper, rel=OBJECTIVE_RTOL)


# --- data that are not separable -------------------------------------------------------------


# Of these every solver is tried in the fast run.
SOME = ("xor", "random-labels")


def assert_gordan(problem: MarginProblem, found: Solution) -> None:
    """Check that alpha >= 0, of sum 1, has every V_g practically 0, in loops."""
    assert found.status is Status.NOT_SEPARABLE
    assert found.alpha.min() >= 0
    assert sum(found.alpha) == pytest.approx(1)
    length = float(found.alpha @ loop_feature_norms(problem))
    assert loop_dual_norms(problem, found.alpha).max() <= PROOF_LIMIT * length
    assert not found.coef.any()
    assert found.certificate.upper == np.inf
    assert "not separable" in found.message


@pytest.mark.parametrize(("name", "solver"), case_table(HARD, [*METHODS, "clarabel", "ecos"]))
def test_twins_are_not_separable(name: str, solver: str) -> None:
    assert_gordan(twin(name), solved(twin(name), solver, tol=1e-8))


@pytest.mark.parametrize("name", HANDFUL[:6])
def test_near_twins_have_no_separator_that_float64_can_tell(name: str) -> None:
    found = solved(near_twin(name), tol=1e-8)
    assert found.status in (Status.NEARLY_INSEPARABLE, Status.NOT_SEPARABLE)
    assert found.certificate.lower * loop_feature_norms(near_twin(name)).max() > 1e6
    assert found.certificate.upper == np.inf


# OSQP does not reach PROOF_LIMIT on every twin.
@pytest.mark.parametrize("solver", mostly_slow(["scs", "osqp"], ["scs"]))
@pytest.mark.parametrize("name", ["linear", "svm-l2"])
def test_twins_of_one_group_are_not_separable(name: str, solver: str) -> None:
    assert_gordan(twin(name), solved(twin(name), solver, tol=1e-6))


def xor_without_gates(C: float) -> MarginProblem:
    return build(xor(), linear, C=C)


def random_labels(C: float) -> MarginProblem:
    X, y = cloud(300, 4)
    return build((X, np.random.default_rng(4).permutation(y)), linear, C=C)


def random_labels_gln(C: float) -> MarginProblem:
    return build(cloud(300, 4), gln(3), C=C)


def random_labels_units(C: float) -> MarginProblem:
    return build(cloud(200, 3), units(3, firing="sigmoid"), C=C)


def random_labels_l2(C: float) -> MarginProblem:
    return svm_l2(cloud(300, 4), 3, 1, C)


def gates_off(C: float) -> MarginProblem:
    X, y = cloud(12, 4)
    gates = np.ones((12, 2))
    gates[[3, 8]] = 0
    return MarginProblem(X, y, gates, np.array([0, 1]), C=C)


def opposite_duplicate(C: float) -> MarginProblem:
    X, y = cloud(12, 4)
    X[9] = X[2]
    return build((X, y), linear, C=C)


HOPELESS: dict[str, tuple[Callable[[float], MarginProblem], list[int] | None]] = {
    "gates-off": (gates_off, [3, 8]),
    "opposite-duplicate": (opposite_duplicate, [2, 9]),
    "xor": (xor_without_gates, None),
    "random-labels": (random_labels, None),
    "random-labels-gln": (random_labels_gln, None),
    "random-labels-sigmoid": (random_labels_units, None),
    "random-labels-l2": (random_labels_l2, None),
}


@pytest.mark.parametrize(("name", "solver"), case_table(HOPELESS, [*NATIVE, "clarabel"], SOME))
def test_hopeless_data(name: str, solver: str) -> None:
    make, samples = HOPELESS[name]
    problem = make(np.inf)
    found = solved(problem, solver, tol=1e-8)
    assert_gordan(problem, found)
    conflict = found.stats.conflict
    if samples is None:
        assert conflict is None
    else:
        assert conflict is not None
        assert conflict.samples.tolist() == samples
        assert all(str(n) in found.message for n in samples)
        assert set(np.flatnonzero(found.alpha)) == set(samples)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("name", "solver"), case_table(HOPELESS, NATIVE, SOME))
def test_soft_margin_forgives(name: str, C: float, solver: str) -> None:
    problem = HOPELESS[name][0](C)
    found = solved(problem, solver, tol=GAP_LIMIT)
    assert found.status is Status.OPTIMAL
    assert found.stats.conflict is None
    assert loop_primal(problem, found.coef) == pytest.approx(found.certificate.upper, rel=ROUNDING)


@pytest.mark.parametrize("solver", [*NATIVE, "clarabel"])
@pytest.mark.parametrize("C", [np.inf, 1.0], ids=["hard", "soft"])
def test_all_gates_off_everywhere(C: float, solver: str) -> None:
    X, y = cloud(10, 4)
    problem = MarginProblem(X, y, np.zeros((10, 2)), np.arange(2), C=C)
    found = solved(problem, solver, tol=GAP_LIMIT)
    if problem.hard_margin:
        assert_gordan(problem, found)
        assert "with all gates off" in found.message
    else:
        assert found.status is Status.OPTIMAL
        assert found.certificate.upper == pytest.approx(10)
        assert found.certificate.lower == pytest.approx(10)


@pytest.mark.parametrize("solver", NATIVE)
@pytest.mark.parametrize("seed", mostly_slow([0, 1, 2], [0]))
@pytest.mark.parametrize("factor", [1e-6, 1e-4, 1e-2, 1e2, 1e3, 1e4])
def test_one_sample_of_another_scale(factor: float, seed: int, solver: str) -> None:
    X, y = cloud(10, 4, seed=seed)
    X[0] *= factor
    gates = np.random.default_rng(seed).normal(size=(10, 4))
    problem = MarginProblem(X, y, gates, np.array([0, 0, 1, 1]))
    found = solve(problem, solver, tol=GAP_LIMIT)  # with the working set's own sizes
    assert found.status is Status.OPTIMAL
    other = solve(problem, "clarabel", tol=GAP_LIMIT).certificate
    assert other.lower * (1 - ROUNDING) <= found.certificate.upper
    assert found.certificate.lower <= other.upper * (1 + ROUNDING)


# --- equivalences ----------------------------------------------------------------------------


def test_one_group_is_the_classical_svm() -> None:
    """Against scikit-learn, on symmetric data, where its offset is 0."""
    X, y = cloud(20, 25)
    found = solved(build((X, y), linear))
    svc = SVC(kernel="linear", C=1e10, tol=1e-10).fit(np.vstack([X, -X]), np.append(y, -y))
    test = np.random.default_rng(1).normal(size=(50, 25))
    np.testing.assert_allclose(svc.intercept_, 0, atol=DECISION_ATOL)
    np.testing.assert_allclose(
        test @ found.coef[0], svc.decision_function(test), atol=DECISION_ATOL
    )


@pytest.mark.parametrize("metric", [None, {0: np.diag([0.5, 1.0, 2.0])}], ids=["plain", "metric"])
def test_gates_of_one_group_are_a_kernel(metric: dict[int, Array] | None) -> None:
    problem = free(cloud(12, 6), [0, 0, 0], metric=metric)
    Z, P = dense(problem.gates), np.eye(3) if metric is None else metric[0]
    kernel = (problem.X @ problem.X.T) * (Z @ P @ Z.T)
    symmetric = np.block([[kernel, -kernel], [-kernel, kernel]])
    svc = SVC(kernel="precomputed", C=1e10, tol=1e-10).fit(
        symmetric, np.append(problem.y, -problem.y)
    )
    np.testing.assert_allclose(
        problem.decision(solved(problem).coef),
        svc.decision_function(symmetric)[:12],
        atol=DECISION_ATOL,
    )


def test_no_gates_is_linear() -> None:
    """The constant gate, one context and units that are always on are all one linear model."""
    X, y = cloud(20, 25)
    expected = optimum(build((X, y), linear))
    assert optimum(build((X, y), gln(1, 0))) == pytest.approx(expected, rel=OBJECTIVE_RTOL)
    always = MarginProblem(X, y, np.ones((20, 3)), np.arange(3))
    assert optimum(always) == pytest.approx(expected, rel=OBJECTIVE_RTOL)


def same_decisions(problem: MarginProblem, other: MarginProblem, factor: float = 1.0) -> None:
    """Two problems with the same optimum, up to a factor, and the same predictions."""
    first, second = solved(problem), solved(other)
    assert first.status is second.status is Status.OPTIMAL
    assert second.certificate.upper == pytest.approx(
        factor * first.certificate.upper, rel=OBJECTIVE_RTOL
    )
    np.testing.assert_allclose(
        problem.decision(first.coef), other.decision(second.coef), atol=DECISION_ATOL
    )


EQUIVALENT = ["gln", "gated-relu", "sparse-gates", "dense-gates", "svm-l2", "linear"]


@pytest.fixture(params=EQUIVALENT)
def problem(request: pytest.FixtureRequest) -> MarginProblem:
    return separable(request.param)


def changed(problem: MarginProblem, **changes: object) -> MarginProblem:
    fields = {name: getattr(problem, name) for name in ("X", "y", "gates", "groups", "metric", "C")}
    return MarginProblem(**{**fields, **changes})


def test_duplicated_groups_change_nothing(problem: MarginProblem) -> None:
    gates = dense(problem.gates)
    metric = dict(problem.metric or {})
    metric |= {g + problem.n_groups: P for g, P in metric.items()}
    twice = changed(
        problem,
        gates=np.hstack([gates, gates]),
        groups=np.append(problem.groups, problem.groups + problem.n_groups),
        metric=metric,
    )
    same_decisions(problem, twice)


def test_permuted_groups_change_nothing(problem: MarginProblem) -> None:
    order = np.random.default_rng(0).permutation(problem.n_groups)
    metric = {int(order[g]): P for g, P in (problem.metric or {}).items()}
    same_decisions(problem, changed(problem, groups=order[problem.groups], metric=metric))


def test_permuted_columns_change_nothing(problem: MarginProblem) -> None:
    order = np.random.default_rng(0).permutation(problem.n_gates)
    metric = {}
    for g, P in (problem.metric or {}).items():
        before = np.flatnonzero(problem.groups == g).tolist()
        positions = [before.index(m) for m in order if problem.groups[m] == g]
        metric[g] = P[np.ix_(positions, positions)]
    permuted = changed(
        problem,
        gates=dense(problem.gates)[:, order],
        groups=problem.groups[order],
        metric=metric,
    )
    same_decisions(problem, permuted)


@pytest.mark.parametrize("factor", [1e-3, 0.5, 40.0])
def test_scaled_inputs_scale_the_optimum(problem: MarginProblem, factor: float) -> None:
    same_decisions(problem, changed(problem, X=factor * problem.X), 1 / factor)


def test_scaled_metric_scales_the_optimum() -> None:
    problem = separable("svm-l2")
    assert problem.metric is not None
    same_decisions(problem, changed(problem, metric={0: 4 * problem.metric[0]}), 1 / 2)


def test_identity_metric_is_none() -> None:
    problem = separable("dense-gates")
    same_decisions(problem, changed(problem, metric={g: np.eye(2) for g in range(3)}))


def test_metric_is_a_change_of_gates() -> None:
    problem = separable("metric-diagonal")
    scales = np.sqrt([1, 1, 1, 0.1, 1.0, 30.0])
    same_decisions(problem, changed(problem, gates=problem.gates * scales, metric=None))


def test_duplicated_samples_change_nothing(problem: MarginProblem) -> None:
    rows = np.append(np.arange(problem.n_samples), [0, 0, 3, 5])
    once, twice = solved(problem), solved(problem.subset(rows))
    assert twice.certificate.upper == pytest.approx(once.certificate.upper, rel=OBJECTIVE_RTOL)
    np.testing.assert_allclose(
        problem.decision(once.coef), problem.decision(twice.coef), atol=DECISION_ATOL
    )


def test_flipped_labels_flip_the_decisions(problem: MarginProblem) -> None:
    flipped = changed(problem, y=-problem.y)
    first, second = solved(problem), solved(flipped)
    assert second.certificate.upper == pytest.approx(first.certificate.upper, rel=OBJECTIVE_RTOL)
    np.testing.assert_allclose(
        problem.decision(first.coef), -problem.decision(second.coef), atol=DECISION_ATOL
    )


def test_sparse_and_dense_gates_are_one(problem: MarginProblem) -> None:
    gates = dense(problem.gates)
    same_decisions(changed(problem, gates=gates), changed(problem, gates=sp.csr_array(gates)))


def test_large_c_is_the_hard_margin(problem: MarginProblem) -> None:
    same_decisions(problem, changed(problem, C=1e6))


@pytest.mark.parametrize(("n_units", "n_hyperplanes"), [(2, 1), (4, 1), (3, 2)])
def test_svm_l2_against_all_joint_contexts(n_units: int, n_hyperplanes: int) -> None:
    """Minimise ||beta||_2 over all C^H contexts, beta_gamma = sum_h zeta_{h, gamma_h}."""
    X, y = cloud(16, 3)
    contexts = HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=3)
    n_contexts = 2**n_hyperplanes
    joint = list(itertools.product(range(n_contexts), repeat=n_units))
    spread = np.zeros((len(joint), n_units * n_contexts))
    for row, gamma in enumerate(joint):
        for h, c in enumerate(gamma):
            spread[row, h * n_contexts + c] = 1
    zeta = cp.Variable((n_units * n_contexts, X.shape[1]))
    beta = spread @ zeta
    own = [joint.index(tuple(map(int, gamma))) for gamma in contexts.contexts(X)]
    margins = cp.multiply(y, cp.sum(cp.multiply(beta[own], X), axis=1))
    program = cp.Problem(cp.Minimize(cp.sum_squares(beta)), [margins >= 1])
    program.solve(solver="CLARABEL", tol_gap_rel=1e-10, tol_gap_abs=1e-10, tol_feas=1e-10)
    expected = np.sqrt(program.value) / n_contexts ** ((n_units - 2) / 2)
    problem = svm_l2((X, y), n_units, n_hyperplanes)
    assert optimum(problem) == pytest.approx(expected, rel=OBJECTIVE_RTOL)


# --- statuses and options --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "limit"),
    [*((name, 2) for name in (*METHODS, "clarabel", "ecos")), ("scs", 30)],
)
@pytest.mark.parametrize("name", ["gln", "sparse-gates", "svm-l2", "soft-not-separable"])
def test_iteration_limit_keeps_valid_bounds(name: str, solver: str, limit: int) -> None:
    found = solved(separable(name), solver, max_iterations=limit)
    assert found.status is Status.ITERATION_LIMIT
    assert found.stats.iterations <= limit
    best = solution(name, "interior-point").certificate
    assert found.certificate.lower <= best.upper * (1 + ROUNDING)
    assert found.certificate.upper >= best.lower * (1 - ROUNDING)
    assert found.certificate.gap > SOLVE_TOL


@pytest.mark.parametrize("name", ["gln", "sparse-gates", "svm-l2", "soft-not-separable"])
@pytest.mark.parametrize("limit", [1, 3, 5])
def test_iteration_limit_keeps_the_bounds_that_were_reported(name: str, limit: int) -> None:
    # The first steps, and so their bounds, are computed in float32.
    found = solved(separable(name), "interior-point", max_iterations=limit)
    lower = max(line.lower for line in found.stats.history)
    upper = min(line.upper for line in found.stats.history)
    assert 0 < lower <= found.certificate.lower * (1 + SINGLE_RTOL)
    assert upper >= found.certificate.upper * (1 - SINGLE_RTOL)


# The working set never settles here, and takes ten times as long as the interior point.
@pytest.mark.parametrize(
    ("name", "solver"),
    [
        pytest.param(name, solver, marks=() if name in fast else pytest.mark.slow)
        for solver, fast in zip(NATIVE, [HANDFUL, ("gln", "soft-not-separable")], strict=True)
        for name in SEPARABLE
    ],
)
def test_unreachable_tolerance_ends(name: str, solver: str) -> None:
    found = solved(separable(name), solver, tol=1e-15)
    assert found.status in (Status.NUMERICAL_TROUBLE, Status.OPTIMAL)
    best = solution(name, "interior-point").certificate
    assert found.certificate.gap <= GAP_LIMIT
    assert found.certificate.upper == pytest.approx(best.upper, rel=OBJECTIVE_RTOL)


@pytest.mark.parametrize("solver", METHODS)
def test_progress_is_reported(solver: str) -> None:
    lines: list[BoundsAt] = []
    found = solve(separable("gln"), solver, on_progress=lines.append)
    assert tuple(lines) == found.stats.history
    assert len(lines) == found.stats.iterations
    upper = found.certificate.upper
    for line in lines:
        assert line.lower <= upper * (1 + ROUNDING)
        assert line.upper >= found.certificate.lower * (1 - ROUNDING)
    assert found.stats.seconds > 0
    assert found.message == Status.OPTIMAL.message


def test_solutions_do_not_depend_on_global_state() -> None:
    first = solve(separable("gln"), tol=SOLVE_TOL)
    torch.manual_seed(99)
    default: torch.dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        second = solve(separable("gln"), tol=SOLVE_TOL)
    finally:
        torch.set_default_dtype(default)
    np.testing.assert_array_equal(first.coef, second.coef)


def test_a_missing_solver_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvxpy.installed_solvers", lambda: ["CLARABEL"])
    with pytest.raises(
        ImportError, match=r"ECOS is not installed: pip install 'implicit-bias\[ecos\]'"
    ):
        solve(separable("gln"), "ecos")


def test_only_problems_are_solved() -> None:
    with pytest.raises(TypeError, match="solve takes a MarginProblem, not a ndarray: pass Margin"):
        solve(np.ones((3, 2)))  # type: ignore[arg-type]


def test_unknown_solver() -> None:
    with pytest.raises(ValueError, match=f"solver must be one of {', '.join(SOLVER_NAMES)}.*'qp'"):
        solve(separable("gln"), "qp")


@pytest.mark.parametrize("value", [0.0, -1e-3, 1.0, 2.0, np.nan])
@pytest.mark.parametrize("name", ["gap", "feasibility", "infeasibility"])
def test_tolerance_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"the {name} tolerance must be in"):
        Tolerances(**{name: value})
    option = "tol" if name == "gap" else f"{name}_tol"
    with pytest.raises(ValueError, match=f"the {name} tolerance"):
        solve(separable("gln"), **{option: value})  # type: ignore[arg-type]


def indices(mask: NDArray[np.bool_]) -> list[int]:
    return np.flatnonzero(mask).tolist()


def test_active_groups() -> None:
    found = solution("dead-group", "interior-point")
    assert not found.active[-1]
    assert found.group_norms[-1] == 0
    inactive = indices(~found.active)
    assert (found.group_norms[inactive] <= 1e-4 * found.group_norms.max()).all()


# --- what a review found ---------------------------------------------------------------------


@pytest.mark.parametrize("solver", METHODS)
def test_the_scale_of_single_samples_does_not_make_data_inseparable(solver: str) -> None:
    X = np.array([[1e10, 0.0], [0.0, 1.0]])
    problem = MarginProblem(X, np.ones(2), np.ones((2, 1)), np.zeros(1, dtype=int))
    found = solve(problem, solver)
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(1.0)


@pytest.mark.parametrize("C", [1e3, 1e4, 1e5])
def test_inseparable_data_with_a_large_C(C: float) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 3)), np.where(rng.random(80) < 0.5, 1.0, -1.0)
    found = solve(MarginProblem(X, y, np.ones((80, 1)), np.zeros(1, dtype=int), C=C))
    assert found.status is Status.OPTIMAL


@pytest.mark.parametrize("size", [1e160, 1e-200])
def test_data_beyond_the_range_of_squares_are_refused(size: float) -> None:
    with pytest.raises(ValueError, match="multiply X by a constant"):
        MarginProblem(size * np.eye(2), np.ones(2), np.ones((2, 1)), np.zeros(1, dtype=int))


def test_bad_options_are_refused() -> None:
    problem = SEPARABLE["gln"]()
    for device in ("nowhere", "meta"):
        with pytest.raises(ValueError, match=f"device '{device}' cannot be used.*choose 'cpu'"):
            solve(problem, device=device)
    for limit in (0, -1):
        with pytest.raises(ValueError, match="max_iterations must be at least 1"):
            solve(problem, max_iterations=limit)


def test_errors_reach_other_processes_whole() -> None:
    problem = build(xor(), linear)
    with pytest.raises(SolveError) as caught:
        solve(problem).raise_for_status()
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    np.testing.assert_array_equal(again.solution.alpha, caught.value.solution.alpha)


def test_cuda_gives_the_same_answer() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    for build_case in SEPARABLE.values():
        problem = build_case()
        cpu, cuda = solve(problem, tol=SOLVE_TOL), solve(problem, tol=SOLVE_TOL, device="cuda")
        assert cuda.certificate.upper == pytest.approx(cpu.certificate.upper, rel=1e-8)


def test_a_gate_in_the_metrics_null_space_is_no_feature() -> None:
    direction = np.array([0.3, 0.7, 0.1])
    gates = np.vstack([np.eye(3), [0.7, -0.3, 0.0]])
    metric = {0: np.outer(direction, direction)}
    X, y = np.ones((4, 1)), np.ones(4)
    problem = MarginProblem(X, y, gates, np.zeros(3, dtype=int), metric)
    found = solve(problem)
    assert found.status is Status.NOT_SEPARABLE
    assert found.stats.conflict is not None
    np.testing.assert_array_equal(found.stats.conflict.samples, [3])
    assert certify(problem, coef=found.coef + 1.0).upper == np.inf
