"""The certificate: bounds by definition, against brute force, and what it refuses."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cases import (
    OBJECTIVE_RTOL,
    ROUNDING,
    SEPARABLE,
    build,
    cloud,
    feature_scale,
    free,
    gln,
    linear,
    loop_decision,
    loop_dual_norms,
    loop_group_norms,
    loop_groups,
    loop_primal,
    separable,
    twin,
)
from implicit_bias.certificate import (
    Status,
    certify,
    dual_scale,
    find_conflict,
    primal_scale,
)
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import solve
from implicit_bias.validation import Array

RANDOM_PROBLEMS = 300


@pytest.fixture(params=SEPARABLE)
def problem(request: pytest.FixtureRequest) -> MarginProblem:
    return separable(request.param)


def aligned(problem: MarginProblem, alpha: Array) -> Array:
    """Coefficients P_g V_g(alpha): in the range of every metric, and often of positive margin."""
    V = problem.dual_vectors(alpha)
    coef = V.copy()
    for columns, P in loop_groups(problem):
        coef[columns] = P @ V[columns]
    return coef


def random_alpha(problem: MarginProblem, seed: int = 0) -> Array:
    return np.random.default_rng(seed).exponential(size=problem.n_samples)


# --- by definition ---------------------------------------------------------------------------


def test_lower_bound_by_definition(problem: MarginProblem) -> None:
    alpha = random_alpha(problem)
    norms = loop_dual_norms(problem, alpha)
    scale = min(1 / norms.max(), problem.C / alpha.max())
    certificate = certify(problem, alpha=alpha)
    assert certificate.lower == pytest.approx(scale * sum(alpha), rel=ROUNDING)
    np.testing.assert_allclose(certificate.dual_norms, scale * norms, rtol=1e-8, atol=1e-12)
    assert certificate.upper == (np.inf if problem.hard_margin else problem.C * len(alpha))
    assert np.isnan(certificate.min_margin)
    assert dual_scale(problem, alpha) == pytest.approx(scale, rel=ROUNDING)


def test_upper_bound_by_definition(problem: MarginProblem) -> None:
    coef = aligned(problem, random_alpha(problem))
    norm = loop_group_norms(problem, coef).sum()
    margins = problem.y * loop_decision(problem, coef)
    certificate = certify(problem, coef=coef)
    assert certificate.min_margin == pytest.approx(margins.min(), rel=1e-7)
    assert certificate.lower == 0
    assert certificate.gap == np.inf
    assert np.isnan(certificate.dual_norms).all()
    if problem.hard_margin:
        expected = norm / margins.min() if margins.min() > 0 else np.inf
    else:
        # The best c >= 0 lies at a kink, where some margin becomes 1, or at 0.
        kinks = [0.0, *(1 / margin for margin in margins if margin > 0)]
        expected = min(
            c * norm + problem.C * sum(max(0.0, 1 - c * margin) for margin in margins)
            for c in kinks
        )
    assert certificate.upper == pytest.approx(expected, rel=ROUNDING)
    scale = primal_scale(problem, coef)
    if scale > 0:
        assert loop_primal(problem, scale * coef) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("C", [1e-4, 1e-2, 0.1, 1.0, 100.0])
def test_best_scale_against_scipy(C: float) -> None:
    problem = build(cloud(60, 4), gln(2), C=C)
    coef = aligned(problem, random_alpha(problem))
    found = scipy.optimize.minimize_scalar(
        lambda c: loop_primal(problem, c * coef), bounds=(0, 5), options={"xatol": 1e-10}
    )
    upper = certify(problem, coef=coef).upper
    assert upper <= found.fun * (1 + ROUNDING)
    assert upper == pytest.approx(found.fun, rel=1e-6)


def test_bounds_ignore_scale(problem: MarginProblem) -> None:
    alpha = random_alpha(problem)
    coef = aligned(problem, alpha)
    one, other = certify(problem, coef, alpha), certify(problem, 1e5 * coef, 1e-5 * alpha)
    assert other.lower == pytest.approx(one.lower, rel=ROUNDING)
    assert other.upper == pytest.approx(one.upper, rel=ROUNDING)
    assert one.lower <= one.upper
    if np.isfinite(one.upper):
        assert one.gap == pytest.approx((one.upper - one.lower) / one.lower)


def test_nothing_bounds_nothing() -> None:
    certificate = certify(separable("gln"))
    assert (certificate.lower, certificate.upper, certificate.gap) == (0, np.inf, np.inf)
    assert np.isnan(certificate.min_margin)
    zero = certify(separable("gln"), np.zeros((8, 6)), np.zeros(30))
    assert (zero.lower, zero.upper, zero.gap, zero.min_margin) == (0, np.inf, np.inf, 0)
    soft = certify(separable("soft-small-c"))
    assert soft.upper == pytest.approx(0.03 * 30)


def test_coefficients_outside_the_metric_bound_nothing() -> None:
    ones = np.ones((2, 2))
    problem = MarginProblem(np.ones((1, 1)), [1.0], [[1.0, 0.0]], [0, 0], {0: ones})  # type: ignore[arg-type]
    assert certify(problem, [[1.0], [1.0]]).upper == pytest.approx(1)
    outside = certify(problem, [[1.0], [0.0]])
    assert (outside.upper, outside.min_margin) == (np.inf, 1)


def test_inputs_are_left_alone() -> None:
    problem = separable("gln")
    alpha = random_alpha(problem)
    coef = aligned(problem, alpha)
    before = alpha.copy(), coef.copy()
    certify(problem, coef, alpha)
    np.testing.assert_array_equal(before[0], alpha)
    np.testing.assert_array_equal(before[1], coef)


# --- random problems bracket CVXPY's optimum -------------------------------------------------


def cvxpy_optimum(
    X: Array, y: Array, Z: Array, groups: NDArray[np.int64], C: float
) -> tuple[float, Array | None]:
    """Solve the primal as it stands in the problem's definition, by CLARABEL; inf: infeasible."""
    zeta = cp.Variable((Z.shape[1], X.shape[1]))
    slack = cp.Variable(len(y), nonneg=True) if np.isfinite(C) else np.zeros(len(y))
    margins = cp.multiply(y, cp.sum(cp.multiply(Z @ zeta, X), axis=1))
    norm = sum(cp.norm(zeta[np.flatnonzero(groups == g)], "fro") for g in range(groups.max() + 1))
    cost = norm + C * cp.sum(slack) if np.isfinite(C) else norm
    program = cp.Problem(cp.Minimize(cost), [margins + slack >= 1])
    program.solve(solver="CLARABEL")
    if program.status == cp.INFEASIBLE:
        return np.inf, None
    assert program.status == cp.OPTIMAL
    return float(program.value), zeta.value


@settings(max_examples=RANDOM_PROBLEMS, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 6),
    d=st.integers(1, 3),
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    density=st.sampled_from([0.4, 0.8, 1.0]),
    binary=st.booleans(),
    C=st.sampled_from([np.inf, np.inf, 0.1, 5.0]),
)
def test_random_bounds_bracket_the_optimum(
    seed: int, n: int, d: int, labels: list[int], density: float, binary: bool, C: float
) -> None:
    rng = np.random.default_rng(seed)
    groups = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    shape = (n, len(groups))
    Z = np.where(rng.random(shape) < density, 1.0 if binary else rng.normal(size=shape), 0.0)
    X, y = rng.normal(size=(n, d)), rng.choice([-1.0, 1.0], n)
    problem = MarginProblem(X, y, sp.csr_array(Z) if density < 1 else Z, groups, C=C)
    optimum, zeta = cvxpy_optimum(X, y, Z, groups, C)
    above, below = optimum * (1 + 1e-6), optimum * (1 - 1e-6)
    for _ in range(5):
        alpha = rng.exponential(size=n) * (rng.random(n) < 0.8)
        noise = rng.normal(size=(len(groups), d))
        guesses = [noise, problem.dual_vectors(alpha)]
        if zeta is not None:
            guesses.append(zeta + 0.1 * noise)
        for coef in guesses:
            certificate = certify(problem, coef, alpha)
            assert certificate.lower <= above
            assert certificate.upper >= below
            assert certificate.gap >= 0
    if zeta is not None:
        assert certify(problem, zeta).upper <= optimum * (1 + 1e-5)


# --- reasons for not being separable ---------------------------------------------------------


def test_gates_off_are_named() -> None:
    X, y = cloud(12, 4)
    gates = np.ones((12, 2))
    gates[[3, 8]] = 0
    conflict = find_conflict(MarginProblem(X, y, gates, np.arange(2)))
    assert conflict is not None
    assert conflict.samples.tolist() == [3, 8]
    assert conflict.cause.startswith("samples 3, 8 with all gates off")
    assert "add a unit that is always on" in conflict.cause
    assert "the classes do so with on_failure='drop'" in conflict.cause
    assert conflict.alpha.sum() == pytest.approx(1)
    assert np.flatnonzero(conflict.alpha).tolist() == [3, 8]


def test_many_gates_off_are_counted() -> None:
    X, y = cloud(12, 4)
    gates = np.zeros((12, 2))
    gates[:3] = 1
    conflict = find_conflict(MarginProblem(X, y, gates, np.arange(2)))
    assert conflict is not None
    assert conflict.cause.startswith("samples 3, 4, 5, 6, 7 and 4 more with all gates off")
    one = find_conflict(MarginProblem(X * (np.arange(12) != 5)[:, None], y, gates + 1, [0, 1]))  # type: ignore[arg-type]
    assert one is not None
    assert one.cause.startswith("sample 5 with all gates off (or an input of zeros)")


@pytest.mark.parametrize("gates", [np.ones((12, 1)), sp.csr_array(np.ones((12, 1)))])
def test_opposite_duplicates_are_named(gates: Any) -> None:
    X, y = cloud(12, 4)
    X[2, 1], X[9] = 0.0, X[2]
    X[9, 1] = -0.0  # equal to 0.0
    X[4] = X[6] = X[2]  # the same label as 2: no conflict
    X[9, 0] = X[2, 0]
    conflict = find_conflict(MarginProblem(X, y, gates, np.zeros(1, dtype=int)))
    assert conflict is not None
    assert conflict.samples.tolist() == [2, 9]
    assert "samples 2 and 9 are identical but have opposite labels: drop one" in conflict.cause
    assert conflict.alpha[[2, 9]].tolist() == [0.5, 0.5]


def test_duplicates_with_other_gates_are_no_conflict() -> None:
    X, y = cloud(12, 4)
    X[9] = X[2]
    gates = np.ones((12, 2))
    gates[9, 1] = 0
    assert find_conflict(MarginProblem(X, y, gates, np.arange(2))) is None


def test_agreeing_duplicates_do_not_hide_a_conflict() -> None:
    """Three identical inputs; the first two differ in their gates, the last contradicts one."""
    X, y = cloud(12, 4)
    X[3] = X[5] = X[6] = X[1]
    gates = np.ones((12, 2))
    gates[1, 1] = 0  # 1, 3 and 5 have one label, 6 the other; only 1 has other gates
    conflict = find_conflict(MarginProblem(X, y, gates, np.arange(2)))
    assert conflict is not None
    assert conflict.samples[1] == 6
    assert conflict.samples[0] in (3, 5)


def test_soft_margin_forgives_conflicts() -> None:
    X, y = cloud(12, 4)
    X[9] = X[2]
    assert find_conflict(build((X, y), linear, C=1.0)) is None


def test_separable_data_have_no_conflict(problem: MarginProblem) -> None:
    assert find_conflict(problem) is None


def test_gordan_makes_the_lower_bound_large() -> None:
    """Where V is practically 0, the bound says that any separator is huge."""
    problem = twin("linear")
    n = problem.n_samples
    alpha = np.zeros(n)
    alpha[[0, n - 2, n - 1]] = [0.3, 0.7, 1.0]
    certificate = certify(problem, alpha=alpha)
    assert certificate.lower * feature_scale(problem) > 1e12
    duplicate = MarginProblem([[1.0], [1.0]], [1, -1], np.ones((2, 1)), [0])  # type: ignore[arg-type]
    assert certify(duplicate, alpha=[0.5, 0.5]).lower == np.inf


# --- messages and errors ---------------------------------------------------------------------


@pytest.mark.parametrize("status", Status)
def test_statuses_speak(status: Status) -> None:
    assert status.message == status.value
    assert len(status.message) > 20


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "negative-alpha": ({"alpha": -np.ones(30)}, "alpha must not be negative, got -1: clip it at 0"),
    "short-alpha": ({"alpha": np.ones(29)}, r"alpha must have shape \(30,\), got \(29,\)"),
    "nan-alpha": ({"alpha": np.full(30, np.nan)}, "alpha contains NaN"),
    "2d-alpha": ({"alpha": np.ones((30, 1))}, "alpha must have 1 dimension"),
    "short-coef": ({"coef": np.ones((7, 6))}, r"coef must have shape \(8, 6\), got \(7, 6\)"),
    "flat-coef": ({"coef": np.ones(48)}, "coef must have 2 dimension"),
    "inf-coef": ({"coef": np.full((8, 6), np.inf)}, "coef contains NaN or infinity"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_errors_name_cause_and_cure(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify(separable("gln"), **arguments)


def test_cvxpy_oracle_is_sound() -> None:
    """The oracle of the random test, on a case of the table."""
    problem = free(cloud(12, 3), [0, 1, 1, 2])
    optimum, zeta = cvxpy_optimum(
        problem.X, problem.y, np.asarray(problem.gates), problem.groups, np.inf
    )
    assert zeta is not None
    assert certify(problem, zeta).upper == pytest.approx(optimum, rel=100 * OBJECTIVE_RTOL)


# --- where rounding could fool the certificate -----------------------------------------------


def test_what_the_metric_does_not_see_does_not_predict() -> None:
    singular = {0: np.diag([1.0, 0.0])}
    gates = np.array([[1e-6, 1e4], [1e-6, 1e4]])
    problem = MarginProblem(np.ones((2, 1)), np.ones(2), gates, np.zeros(2, dtype=int), singular)
    # The second coefficient is within rounding of the metric's range, yet it makes the margins.
    found = certify(problem, coef=[[1.0], [5e-10]], alpha=[1.0, 1.0])
    assert found.lower == pytest.approx(1e6)
    assert found.upper == pytest.approx(1e6)


def test_a_metric_rounded_below_zero_is_cut_off() -> None:
    rounded = {0: np.diag([1.0, -1.9e-10])}
    gates = np.array([[1.0, 1e5], [1.0, 1e5]])
    problem = MarginProblem(np.ones((2, 1)), np.ones(2), gates, np.zeros(2, dtype=int), rounded)
    found = certify(problem, coef=[[1.0], [0.0]], alpha=[0.5, 0.5])
    assert found.lower == pytest.approx(1.0)
    assert found.upper == pytest.approx(1.0)


def test_bounds_that_contradict_each_other_have_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = separable("gln")
    solution = solve(problem)
    halved = solution.certificate.upper / 2
    monkeypatch.setattr("implicit_bias.certificate._primal_value", lambda *_: halved)
    assert np.isnan(certify(problem, solution.coef, solution.alpha).gap)
    assert solve(problem).status is Status.NUMERICAL_TROUBLE
