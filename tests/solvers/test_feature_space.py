"""The solver in feature space: case table, intercepts, ill-conditioned data, scales, limits."""

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer

from cases import (
    DECISION_ATOL,
    GAP_LIMIT,
    HARD,
    OBJECTIVE_RTOL,
    PROOF_LIMIT,
    SEPARABLE,
    SOLVE_TOL,
    build,
    cloud,
    dense,
    gln,
    linear,
    loop_decision,
    loop_dual_norms,
    loop_dual_vectors,
    loop_feature_norms,
    loop_groups,
    loop_primal,
    mostly_slow,
    separable,
    twin,
)
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import BoundsAt, Solution, Tolerances, solve
from implicit_bias.solvers.base import Candidate
from implicit_bias.solvers.choice import count_features
from implicit_bias.solvers.cvxpy_solver import CvxpySolver
from implicit_bias.solvers.feature_space import FeatureSpace, peak_memory

GIB = 2**30
# The slow run has all of the case table.
MOST = mostly_slow(SEPARABLE)


def solved(problem: MarginProblem, tol: float = GAP_LIMIT) -> Solution:
    return solve(problem, "feature-space", tol=tol)


def assert_optimal(problem: MarginProblem, gap: float = GAP_LIMIT) -> Solution:
    found = solved(problem, gap)
    assert found.status is Status.OPTIMAL
    assert found.certificate.gap <= gap
    return found


def plain(X: Array, y: Array, C: float = np.inf) -> MarginProblem:
    """One always-on gate: the classical SVM without offset."""
    return MarginProblem(X, y, np.ones((len(X), 1)), np.zeros(1, dtype=int), C=C)


# --- the case table --------------------------------------------------------------------------


@pytest.mark.parametrize("name", MOST)
def test_objective_agrees_with_clarabel(name: str) -> None:
    problem = separable(name)
    found = assert_optimal(problem)
    other = CvxpySolver(backend="clarabel", tolerances=Tolerances(gap=1e-9)).run(problem)
    reference = certify(problem, coef=other.coef).upper
    assert found.certificate.upper == pytest.approx(reference, rel=OBJECTIVE_RTOL)
    # Bounds by the definitions.
    assert loop_primal(problem, found.coef) == pytest.approx(found.certificate.upper, rel=1e-9)
    assert found.alpha.min() >= 0
    assert found.alpha.max() <= problem.C * (1 + 1e-9)
    assert loop_dual_norms(problem, found.alpha).max() <= 1 + 1e-9


@pytest.mark.parametrize("name", MOST)
def test_agrees_with_the_interior_point(name: str) -> None:
    problem = separable(name)
    # A gap of 1e-12 leaves decisions 1e-6 of the coefficients' norm.
    found, other = solved(problem, 1e-12), solve(problem, "interior-point", tol=SOLVE_TOL)
    decisions = problem.decision(found.coef), problem.decision(other.coef)
    np.testing.assert_allclose(*decisions, atol=DECISION_ATOL)


@pytest.mark.parametrize("name", MOST)
def test_stationarity(name: str) -> None:
    """zeta_g = d_g P_g V_g."""
    problem = separable(name)
    found = solved(problem, SOLVE_TOL)
    size = max(np.abs(found.coef).max(), np.finfo(float).tiny)
    V = loop_dual_vectors(problem, found.alpha)
    for g, (columns, P) in enumerate(loop_groups(problem)):
        stationary = found.group_norms[g] * P @ V[columns]
        np.testing.assert_allclose(found.coef[columns] / size, stationary / size, atol=1e-4)


@pytest.mark.parametrize("name", mostly_slow(HARD))
def test_twins_are_not_separable(name: str) -> None:
    problem = twin(name)
    found = solved(problem)
    assert found.status is Status.NOT_SEPARABLE
    alpha = found.alpha / found.alpha.sum()
    length = float(alpha @ loop_feature_norms(problem))
    assert loop_dual_norms(problem, alpha).max() <= PROOF_LIMIT * length


@pytest.mark.parametrize("name", ["dead-group", "sparse-gates", "metric-rank-deficient"])
def test_features_are_those_of_used_plain_gates(name: str) -> None:
    problem = separable(name)
    used = np.abs(sp.csr_array(problem.plain_gates)).sum(axis=0) > 0
    # `cloud` has one constant input, which stays one feature.
    assert count_features(problem) == np.count_nonzero(used) * problem.X.shape[1]


def test_a_soft_margin_without_features() -> None:
    X, y = cloud(12, 4)
    problem = MarginProblem(X, y, np.zeros((12, 2)), np.array([0, 1]), C=2.0)
    assert assert_optimal(problem).certificate.upper == pytest.approx(24.0)


@pytest.mark.parametrize("C", [1e-3, 1.0])
def test_silent_samples_cost_C_each(C: float) -> None:
    X, y = cloud(40, 4, shift=4.0)
    X[:3] = 0.0
    found = assert_optimal(plain(X, y, C))
    np.testing.assert_allclose(found.alpha[:3], C, rtol=1e-6)


# --- intercepts ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WithIntercept(MarginProblem):
    """A problem whose margins are y_n (f(x_n) + b)."""

    intercept: bool = True


def with_intercept(problem: MarginProblem, shift: float = 0.0) -> WithIntercept:
    p = problem
    return WithIntercept(p.X + shift, p.y, p.gates, p.groups, p.metric, p.C)


def run(problem: MarginProblem, tol: float = GAP_LIMIT) -> Candidate:
    return FeatureSpace(tolerances=Tolerances(gap=tol)).run(problem)


def optimum_with_intercept(problem: MarginProblem) -> float:
    """Return the optimum by CVXPY, from the plain gates' features."""
    Z, groups = problem.plain_gates.toarray(), problem.plain_groups
    W = [cp.Variable(problem.X.shape[1]) for _ in groups]
    xi, b = cp.Variable(problem.n_samples, nonneg=True), cp.Variable()
    f = sum(cp.multiply(Z[:, m], problem.X @ W[m]) for m in range(len(W))) + b
    norms = [cp.norm(cp.hstack([W[m] for m in np.flatnonzero(groups == g)])) for g in set(groups)]
    soft = problem.C * cp.sum(xi) if not problem.hard_margin else 0.0
    slack = xi if not problem.hard_margin else 0.0
    program = cp.Problem(cp.Minimize(sum(norms) + soft), [cp.multiply(problem.y, f) >= 1 - slack])
    program.solve(solver="CLARABEL")
    return float(program.value)


@pytest.mark.parametrize(
    "name",
    ["linear-n-greater-d", "gln", "metric-rank-deficient", "soft-linear", "soft-svm-l2"],
)
def test_intercept_against_cvxpy(name: str) -> None:
    problem = with_intercept(separable(name))
    found, expected = run(problem), optimum_with_intercept(problem)
    coef = found.coef
    norm = float(problem.group_norms(coef).sum())
    margins = problem.y * (loop_decision(problem, coef) + found.intercept)
    if problem.hard_margin:
        upper = norm / margins.min()
    else:
        upper = norm + problem.C * np.maximum(0.0, 1.0 - margins).sum()
    assert upper == pytest.approx(expected, rel=OBJECTIVE_RTOL)
    assert found.alpha @ problem.y == pytest.approx(0.0, abs=1e-12 * found.alpha.sum())
    scale = min(1.0 / loop_dual_norms(problem, found.alpha).max(), problem.C / found.alpha.max())
    assert scale * found.alpha.sum() == pytest.approx(expected, rel=OBJECTIVE_RTOL)


@pytest.mark.parametrize("shift", [1e2, 1e5])
@pytest.mark.parametrize("name", ["linear-n-greater-d", "soft-linear"])
def test_an_intercept_absorbs_offsets(name: str, shift: float) -> None:
    moved = run(with_intercept(separable(name), shift))
    still = run(with_intercept(separable(name)))
    np.testing.assert_allclose(moved.coef[:, :-1], still.coef[:, :-1], rtol=1e-3, atol=1e-5)
    assert moved.history[-1].upper == pytest.approx(still.history[-1].upper, rel=1e-6)


# --- ill-conditioned data --------------------------------------------------------------------


def breast_cancer(*, constant: bool = False, C: float = np.inf) -> MarginProblem:
    data = load_breast_cancer()
    X = np.column_stack([data.data, np.ones(len(data.data))]) if constant else data.data
    return plain(X, 2.0 * data.target - 1.0, C)


def test_raw_breast_cancer() -> None:
    certificate = assert_optimal(breast_cancer(), 1e-6).certificate
    assert certificate.lower <= 24706.2436
    assert certificate.upper >= 24706.2407


def test_raw_breast_cancer_with_a_constant() -> None:
    assert assert_optimal(breast_cancer(constant=True), 1e-6).certificate.upper < 24706.2436


@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
def test_raw_breast_cancer_with_a_soft_margin(C: float) -> None:
    assert_optimal(breast_cancer(constant=True, C=C), 1e-6)


def test_years_with_a_constant() -> None:
    years = np.arange(1900.0, 2020.0)
    X = np.column_stack([years, np.ones(len(years))])
    found = assert_optimal(plain(X, np.where(years < 1950, -1.0, 1.0)))
    # The boundary is half way between 1949 and 1950: w = (2, -3899).
    assert found.certificate.upper == pytest.approx(np.hypot(2.0, 3899.0), rel=GAP_LIMIT)


@pytest.mark.parametrize("seed", mostly_slow(range(3), [0]))
@pytest.mark.parametrize("exponent", range(4, 9))
def test_offsets(exponent: int, seed: int) -> None:
    """Primal right to 1e-9, up to the rounding of the data's products: margins of 1 from 1e8."""
    rng = np.random.default_rng(seed)
    offset = 10.0**exponent
    y = np.where(np.arange(30) % 2, 1.0, -1.0)
    t = np.round(offset + y * rng.uniform(5, 95, 30))
    above, below = t[y > 0].min(), t[y < 0].max()
    exact = np.hypot(2.0, above + below) / (above - below)
    problem = plain(np.column_stack([t, np.ones(30)]), y)
    found = run(problem, SOLVE_TOL)
    upper = float(np.linalg.norm(found.coef)) / float((y * problem.decision(found.coef)).min())
    rounding = 2e-16 * offset
    assert upper == pytest.approx(exact, rel=1e-9 + rounding)


@pytest.mark.parametrize("factor", [1e5, 1e8])
def test_inseparable_data_with_a_large_C(factor: float) -> None:
    X, y = cloud(60, 3)
    problem = plain(X, y)
    assert_optimal(plain(X, y, factor / problem.scale), 1e-6)


@pytest.mark.parametrize("seed", mostly_slow(range(6), [0]))
@pytest.mark.parametrize(("what", "decades"), [("samples", 12), ("features", 6), ("groups", 6)])
def test_wide_ranges(what: str, decades: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = build(cloud(), gln())
    X, gates = problem.X, dense(problem.gates)
    if what == "samples":
        X = X * 10.0 ** rng.uniform(-decades, decades, (len(X), 1))
    elif what == "features":
        X = X * 10.0 ** rng.uniform(-decades, decades, X.shape[1])
    else:
        scales = 10.0 ** rng.uniform(-decades, decades, problem.n_groups)
        gates = gates * scales[problem.groups]
    hard = MarginProblem(X, problem.y, gates, problem.groups)
    for scaled in (hard, replace(hard, C=1.0 / hard.scale)):
        found = run(scaled, 1e-6)
        assert found.status is Status.OPTIMAL
        assert certify(scaled, coef=found.coef, alpha=found.alpha).gap <= 1e-6


@pytest.mark.parametrize("factor", [1e-140, 1e-39, 1e39, 1e140])
@pytest.mark.parametrize("C", [np.inf, 0.3], ids=["hard", "soft"])
def test_scaled_inputs_scale_the_optimum(C: float, factor: float) -> None:
    once = assert_optimal(build(cloud(), gln(), C=C)).certificate.upper
    found = assert_optimal(build(cloud(), gln(), scale=factor, C=C / factor))
    assert factor * found.certificate.upper == pytest.approx(once, rel=OBJECTIVE_RTOL)


def test_duplicated_and_collinear_features_change_nothing() -> None:
    X, y = cloud(60, 4, shift=3.0)
    once = assert_optimal(plain(X, y)).certificate.upper
    wide = np.column_stack([X, X]) / np.sqrt(2.0)
    assert assert_optimal(plain(wide, y)).certificate.upper == pytest.approx(once, rel=1e-7)


# --- limits ----------------------------------------------------------------------------------


def blobs(n: int, d: int, *, flipped: float = 0.0) -> tuple[Array, Array]:
    """Gaussian points on both sides of a plane, at least 0.3 from it, some labels flipped."""
    rng = np.random.default_rng(0)
    X, normal = rng.normal(size=(n, d)), rng.normal(size=d)
    f = X @ normal
    X, f = X[np.abs(f) > 0.3], f[np.abs(f) > 0.3]
    return X, np.sign(f) * np.where(rng.random(len(f)) < flipped, -1.0, 1.0)


def test_two_features_and_a_small_C() -> None:
    X, y = blobs(5000, 2, flipped=0.1)
    assert_optimal(plain(X, y, 2.8e-4), 1e-6)


@pytest.mark.parametrize(
    "n", mostly_slow([10_000, 100_000, 1_000_000], [10_000]), ids=["1e4", "1e5", "1e6"]
)
@pytest.mark.parametrize("C", mostly_slow([np.inf, 1.0], [np.inf]), ids=["hard", "soft"])
def test_many_samples(C: float, n: int) -> None:
    X, y = blobs(n, 20, flipped=0.0 if np.isinf(C) else 0.05)
    assert_optimal(plain(X, y, C), 1e-6)


def test_memory_is_refused_before_it_is_allocated() -> None:
    problem = build(cloud(60, 3, shift=4.0), linear)
    needed = peak_memory(problem) / GIB
    assert solve(problem, "feature-space", max_memory=needed).status is Status.OPTIMAL
    with pytest.raises(MemoryError, match="max_memory"):
        solve(problem, "feature-space", max_memory=0.99 * needed)


@pytest.mark.parametrize("limit", [1, 5])
def test_iteration_limit_keeps_valid_bounds(limit: int) -> None:
    problem = separable("gln")
    best = solved(problem).certificate
    found = solve(problem, "feature-space", max_iterations=limit)
    assert found.status is Status.ITERATION_LIMIT
    assert found.stats.iterations == limit
    assert found.certificate.lower <= best.upper
    assert found.certificate.upper >= best.lower
    last = found.stats.history[-1]
    assert found.certificate.lower == pytest.approx(last.lower, rel=1e-9)


def test_progress_is_reported() -> None:
    lines: list[BoundsAt] = []
    found = solve(separable("gln"), "feature-space", on_progress=lines.append)
    assert tuple(lines) == found.stats.history
    lower, upper = ([getattr(line, side) for line in lines] for side in ("lower", "upper"))
    assert lower == sorted(lower)
    assert upper == sorted(upper, reverse=True)


def test_ctrl_c_keeps_the_best_so_far() -> None:
    seen: list[BoundsAt] = []

    def interrupt(progress: BoundsAt) -> None:
        seen.append(progress)
        if len(seen) == 8:
            raise KeyboardInterrupt

    found = solve(separable("gln"), "feature-space", on_progress=interrupt)
    assert found.status is Status.INTERRUPTED
    assert found.certificate.lower == pytest.approx(seen[-1].lower, rel=1e-9)
    assert found.certificate.upper == pytest.approx(seen[-1].upper, rel=1e-9)
