"""The certificate: bounds by definition, against brute force, and what it refuses."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from cases import ROUNDING, SEPARABLE, build, cloud, linear, noisy_table, plain, separable
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, certify, grade
from implicit_bias.bounds.separability import find_conflict
from implicit_bias.problem import Features, MarginProblem, max_margin
from implicit_bias.solvers import solve

EPSILON = float(np.finfo(np.float64).eps)


@pytest.fixture(params=SEPARABLE)
def problem(request: pytest.FixtureRequest) -> MarginProblem:
    return separable(request.param)


def random_alpha(problem: MarginProblem) -> Array:
    return np.random.default_rng(0).exponential(size=problem.n_samples)


# --- by definition ---------------------------------------------------------------------------


def test_lower_bound_by_definition(problem: MarginProblem) -> None:
    alpha = random_alpha(problem)
    norms = oracles.loop_dual_norms(problem, alpha)
    scale = min(1 / norms.max(), problem.C / alpha.max())
    certificate = certify(problem, alpha=alpha)
    assert certificate.lower == pytest.approx(scale * sum(alpha), rel=ROUNDING)
    np.testing.assert_allclose(certificate.dual_norms, scale * norms, rtol=1e-8, atol=1e-12)
    zero = np.inf if problem.hard_margin else problem.C * len(alpha)
    assert certificate.upper == pytest.approx(zero, rel=EPSILON)
    assert certificate.upper >= zero
    assert np.isnan(certificate.min_margin)


def test_upper_bound_by_definition(problem: MarginProblem) -> None:
    coef = problem.dual_vectors(random_alpha(problem))
    norm = oracles.loop_group_norms(problem, coef).sum()
    margins = problem.y * oracles.loop_decision(problem, coef)
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
    graded = grade(problem, coef, np.zeros(problem.n_samples), Status.OPTIMAL)
    if np.isfinite(expected):
        assert oracles.loop_primal(problem, graded.coef) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.parametrize("name", ["gln", "sparse-gates", "soft-scaled-up"])
def test_bounds_ignore_scale(name: str) -> None:
    problem = separable(name)
    alpha = random_alpha(problem)
    coef = problem.dual_vectors(alpha)
    one = certify(problem, coef, alpha)
    for a, b in [(1e5, 1e-5), (1e-100, 1e-100), (1e100, 1e100)]:
        other = certify(problem, a * coef, b * alpha)
        assert other.lower == pytest.approx(one.lower, rel=1e-12), a
        assert other.upper == pytest.approx(one.upper, rel=1e-12), a
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


# --- reasons for not being separable ---------------------------------------------------------


@pytest.mark.parametrize("gated", [True, False])
def test_samples_without_features_are_named(gated: bool) -> None:
    """By their gates, or by an input of zeros."""
    X, y = cloud(12, 4)
    gates = np.ones((12, 2))
    (gates if gated else X)[[3, 8]] = 0.0
    problem = MarginProblem(X, y, gates, np.arange(2))
    conflict = find_conflict(problem)
    assert conflict is not None
    assert conflict.samples.tolist() == np.flatnonzero(conflict.alpha).tolist() == [3, 8]
    assert certify(problem, alpha=conflict.alpha).lower == np.inf
    assert "always on" in conflict.cause


@pytest.mark.parametrize("stored", [np.asarray, sp.csr_array])
def test_opposite_duplicates_are_named(stored: Any) -> None:
    """Four identical inputs: the first has other gates, the last contradicts the two others."""
    X, y = cloud(12, 4)
    X[1, 1] = 0.0
    X[3] = X[5] = X[6] = X[1]
    X[6, 1] = -0.0  # equal to 0.0
    gates = np.ones((12, 2))
    gates[1, 1] = 0
    conflict = find_conflict(MarginProblem(X, y, stored(gates), np.arange(2)))
    assert conflict is not None
    assert conflict.samples.tolist() == [3, 6]
    assert "opposite labels" in conflict.cause
    assert conflict.alpha[[3, 6]].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("values", [2, 5])
def test_conflicts_among_many_samples_are_those_of_a_loop(values: int) -> None:
    """Small integers, of which float64 uses few bits; copies of the first rows come last."""
    rng = np.random.default_rng(values)
    X = rng.integers(1, values + 1, size=(5000, 12)).astype(np.float64)
    y = np.where(X @ rng.normal(size=12) > 0.3, 1.0, -1.0)  # equal rows have equal labels
    X[-3:], y[-3:] = X[:3], y[:3]
    agreeing = MarginProblem(X, y, np.ones((5000, 1)), np.zeros(1, dtype=int))
    assert find_conflict(agreeing) is None
    y[-2] *= -1
    conflict = find_conflict(MarginProblem(X, y, np.ones((5000, 1)), np.zeros(1, dtype=int)))
    assert conflict is not None
    same = [n for n in range(5000) if X[n].tolist() == X[1].tolist()]
    assert conflict.samples.tolist() == [same[0], 4998]


# --- candidates that exceed the constraints ----------------------------------------------------


def test_the_box_of_a_sample_is_that_of_its_total() -> None:
    """A total of 1.004 C costs .4 % of the bound, though none of its entries is beyond C."""
    X, y = noisy_table(90, k=3)
    problem = plain(X, y, 1e-3)
    alpha = np.full((90, 3), 0.4e-3)
    alpha[0] = 0.502e-3
    alpha[np.arange(90), y] = 0.0
    assert np.linalg.norm(problem.dual_vectors(alpha)) < 0.5  # so it is the box that binds
    expected = alpha.sum() / 1.004
    assert certify(problem, alpha=alpha).lower == pytest.approx(expected, rel=1e-12)
    found = grade(problem, np.zeros(problem.coef_shape), alpha, Status.OPTIMAL)
    assert found.certificate.lower == pytest.approx(expected, rel=1e-12)
    assert (problem.totals(found.alpha) <= 1e-3).all()


# --- statuses and errors ---------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
def test_a_status_is_what_the_gap_bears_out(intercept: bool) -> None:
    """A candidate is optimal at a tolerance above its gap, and not at one below."""
    problem = replace(build(cloud(shift=3.0), linear), intercept=intercept)
    best = solve(problem, tol=1e-10)
    alpha = best.alpha * (1 + 0.1 * np.random.default_rng(0).uniform(-1, 1, 30))
    offset = best.intercept if intercept else None
    gap = grade(problem, best.coef, alpha, Status.OPTIMAL, intercept=offset).certificate.gap
    assert 1e-6 < gap < 1e-1
    for claim in Status:
        above = grade(problem, best.coef, alpha, claim, intercept=offset, gap=1.001 * gap)
        below = grade(problem, best.coef, alpha, claim, intercept=offset, gap=0.999 * gap)
        assert above.status is Status.OPTIMAL
        if claim is Status.OPTIMAL or claim.inseparable:
            assert below.status is Status.NUMERICAL_TROUBLE
        else:
            assert below.status is claim


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"alpha": np.r_[-1e-12, np.ones(29)]}, "negative"),
        ({"alpha": np.ones(29)}, "shape"),
        ({"coef": np.full((8, 6), np.inf)}, "infinity"),
        ({"coef": np.ones((8, 6)), "intercept": 1.0}, "no intercept"),
    ],
)
def test_candidates_that_do_not_fit_are_refused(given: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        certify(separable("gln"), **given)
    with pytest.raises(TypeError, match="MarginProblem"):
        certify(np.eye(2), **given)  # type: ignore[arg-type]


def test_an_offset_of_a_problem_without_one_is_not_graded() -> None:
    """Its margins would be those of another problem, whose optimum is smaller."""
    problem = plain(np.array([[1.0], [2.0]]), [1.0, 1.0])
    found = grade(problem, np.array([[0.1]]), np.zeros(2), Status.OPTIMAL, intercept=10.0)
    assert found.certificate.upper == pytest.approx(1.0)
    assert found.intercept == 0.0


# --- where rounding could fool the certificate -----------------------------------------------


def test_bounds_that_contradict_each_other_have_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = separable("gln")
    solution = solve(problem)
    right = Features.scores
    monkeypatch.setattr(Features, "scores", lambda *given: 2 * right(*given))
    found = certify(problem, solution.coef, solution.alpha)
    assert np.isnan(found.gap)
    assert "contradict" in str(found)
    again = solve(problem, "interior-point")
    assert again.status is Status.NUMERICAL_TROUBLE
    assert "contradict" in again.message


# --- as real numbers -------------------------------------------------------------------------


def hold_and_lose_little(problem: MarginProblem, coef: Array, alpha: Array) -> None:
    """Check that bounds hold as real numbers, and lose little of the gap to rounding."""
    found = certify(problem, coef, alpha)
    oracles.hold(problem, found, coef, alpha)
    lower, upper = oracles.exact_bounds(problem, coef, alpha)
    loose = Fraction(1, 10**9)
    if lower < np.inf and upper < np.inf:
        loose += (Fraction(upper) - Fraction(lower)) / Fraction(lower) / 50
    assert lower == np.inf or found.lower >= lower * (1 - loose)
    assert upper == np.inf or found.upper <= upper * (1 + loose)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    exponents=st.tuples(st.integers(-160, 160), st.integers(-160, 160)),
    spread=st.integers(0, 10),
    offset=st.sampled_from([0.0, 1e4, 1e8]),
)
def test_bounds_hold_as_real_numbers(
    seed: int, exponents: tuple[int, int], spread: int, offset: float
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(7, 3)) * 10.0 ** rng.integers(-spread, spread + 1, 3) + offset
    y = rng.choice([-1.0, 1.0], 7)
    gates = rng.normal(size=(7, 3)) * (rng.random((7, 3)) < 0.8)
    problem = MarginProblem(X, y, gates, np.array([0, 1, 1]))
    alpha = rng.exponential(size=7) * 10.0 ** exponents[0]
    coef = problem.dual_vectors(np.ones(7)) * 10.0 ** exponents[1]
    hold_and_lose_little(problem, coef / np.abs(problem.dual_vectors(np.ones(7))).max(), alpha)


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6, 1e9])
def test_offsets_do_not_fool_the_bounds(offset: float) -> None:
    """X = [t, 1], t about a large offset: the optimum by hand, and dual variables near its own."""
    t = offset + np.array([-95.0, -40, -5, 5, 33, 95])
    y = np.array([-1.0, -1, -1, 1, 1, 1])
    problem = build((np.column_stack([t, np.ones(6)]), y), linear)
    w = Fraction(1, 5)
    b = 1 - w * Fraction(offset + 5)
    optimum = oracles.root(w**2 + b**2)
    # V = (w, b) has two equations for the two support vectors.
    plus = (w - b * Fraction(t[2])) / (Fraction(t[3]) - Fraction(t[2]))
    best = np.array([0, 0, float(plus - b), float(plus), 0, 0])
    rng = np.random.default_rng(0)
    for k in range(8):
        noise = 1 + (k > 0) * 1e-15 * rng.normal(size=6)
        alpha, coef = best * noise, np.array([[float(w), float(b)]]) * noise[:2]
        hold_and_lose_little(problem, coef, alpha)
        found = certify(problem, coef, alpha)
        assert found.lower <= optimum <= found.upper
    exact = certify(problem, [[1.0, -offset]])
    assert exact.upper == pytest.approx(
        float(oracles.root(1 + Fraction(offset) ** 2)) / 5, rel=1e-9
    )


def test_features_whose_squares_underflow_are_not_lost() -> None:
    """X = [[1, t], [1, 0]], labels 1 and -1: w = (-1, 2 / t), of norm sqrt(1 + 4 / t^2)."""
    problem = MarginProblem([[1.0, 1e-200], [1.0, 0.0]], [1, -1], np.ones((2, 1)), [0])  # type: ignore[arg-type]
    optimum = oracles.root(1 + 4 / Fraction(1e-200) ** 2)
    found = certify(problem, [[-1.0, 2e200]], [1.0, 1.0])
    assert found.lower <= optimum <= found.upper


@pytest.mark.parametrize("t", [2.0**-600, 3.3 * 2.0**-520])
def test_gates_whose_squares_underflow_are_not_lost(t: float) -> None:
    problem = MarginProblem([[1.0], [1.0]], [1, -1], [[1.0, t], [1.0, 0.0]], [0, 1])  # type: ignore[arg-type]
    optimum = 1 + 2 / Fraction(t)
    assert Fraction(certify(problem, alpha=[1.0, 1.0]).lower) <= optimum
    assert Fraction(solve(problem).certificate.lower) <= optimum


# --- candidates and problems at the ends of float64 ------------------------------------------


@pytest.mark.parametrize(
    ("C", "intercept", "classes", "size"),
    [
        (math.inf, False, 2, 1e-310),
        (math.inf, True, 3, 1e308),
        (1.0, True, 2, 1e308),
        (1.0, True, 3, 1e-310),
        (1.0, False, 3, 1e-100),
        (math.inf, True, 2, 1e-100),
    ],
)
def test_any_candidate_has_bounds(C: float, intercept: bool, classes: int, size: float) -> None:
    """Neither warnings nor exceptions, nor bounds that contradict those of a usual candidate."""
    X, y = cloud(12, 30)
    labels: Any = y if classes == 2 else np.arange(12) % 3
    problem = max_margin(X, labels, C=C, intercept=intercept)
    rng = np.random.default_rng(0)
    alpha = np.ones(problem.alpha_shape)
    if classes == 3:
        alpha[np.arange(12), labels] = 0.0
    coef = np.clip(rng.normal(size=problem.coef_shape), -1.0, 1.0)
    usual = certify(problem, problem.dual_vectors(alpha), alpha)
    spoilt = coef.copy()
    spoilt[..., 0] = np.nan
    for offset in (1.0, 1e308):
        offsets = np.full(classes if classes > 2 else (), offset) * intercept
        found = certify(problem, size * coef, size * alpha, offsets if intercept else None)
        graded = [
            grade(problem, part, size * alpha, Status.OPTIMAL, intercept=offsets).certificate
            for part in (size * coef, spoilt)
        ]
        for bounds in (found, *graded):
            assert bounds.lower <= min(usual.upper, bounds.upper) * (1 + ROUNDING)
            assert usual.lower <= bounds.upper * (1 + ROUNDING)


def test_a_soft_margin_says_that_its_optimum_has_hinge_losses() -> None:
    problem = separable("linear")
    assert "hinge" not in str(solve(problem).certificate)
    assert "hinge" in str(solve(replace(problem, C=0.7)).certificate)


def test_a_soft_margin_is_never_inseparable() -> None:
    problem = MarginProblem(np.ones((2, 1)), [1, -1], np.ones((2, 1)), [0], C=1e100)  # type: ignore[arg-type]
    found = grade(problem, np.full((1, 1), 1e308), np.ones(2), Status.NOT_SEPARABLE)
    assert found.certificate.lower <= 2e100 * (1 + ROUNDING) <= found.certificate.upper * 1.001
