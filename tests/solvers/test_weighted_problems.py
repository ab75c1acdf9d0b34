"""One C a sample: what such a problem equals, its bounds against rationals, and its paths."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import cases
from implicit_bias import MarginProblem, Status, certify, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import grade
from implicit_bias.bounds.upper import best_scale
from implicit_bias.problem.gating import Gating
from oracles import check_judged, check_overlap, exact_bounds

TWO, THREE = cases.separable("l2-binary-weights-intercept"), cases.separable("l2-weights-intercept")
N = TWO.n_samples


@pytest.mark.fast("auto-gln", "working-set-units", "ecos-gln")
@pytest.mark.parametrize("gating", [cases.gln(3), cases.units(3)], ids=["gln", "units"])
@pytest.mark.parametrize("solver", ["auto", "working-set", "ecos"])
def test_gated_programs_take_weights(solver: str, gating: Callable[[Array], Gating]) -> None:
    problem = replace(cases.build((TWO.X, TWO.y), gating), C=TWO.C)
    assert problem.n_groups >= 3
    found = solve(problem, **cases.asked(solver, 1e-6, 6))
    check_judged(problem, found, 1e-6)
    assert found.status is Status.OPTIMAL or solver == "ecos"
    check_overlap(found.certificate, solve(problem, "clarabel", 1e-7).certificate)
    check_overlap(found.certificate, solve(problem, "interior-point", 1e-7).certificate)


# --- what it equals ------------------------------------------------------------------------------


@pytest.mark.fast(
    *("l2-binary-weights", "features-binary-weights-intercept", "l1-binary-weights-intercept"),
    *("linf-weights", "spectral-binary-weights", "nuclear-binary-weights-intercept"),
)
@pytest.mark.parametrize("name", cases.WEIGHTED)
def test_a_sample_twice_has_twice_the_weight(name: str) -> None:
    problem = cases.separable(name)
    again = np.append(np.arange(N), [3, 7])
    twice = problem.subset(again)
    doubled = np.where(np.isin(np.arange(N), [3, 7]), 2.0, 1.0) * problem.C
    one, other = (
        solve(twice, tol=cases.GAP_LIMIT),
        solve(replace(problem, C=doubled), tol=cases.GAP_LIMIT),
    )
    assert one.certificate.upper == pytest.approx(other.certificate.upper, rel=cases.OBJECTIVE_RTOL)


def test_equal_weights_are_a_number() -> None:
    for C in (np.full(N, 2.0), [2] * N, np.full(N, np.float32(2)), np.float64(2)):
        same = replace(TWO, C=C)  # type: ignore[arg-type]
        assert isinstance(same.C, float)
        assert same.C == 2.0
    assert replace(TWO, C=np.full(N, np.inf)).hard_margin
    assert TWO.subset(np.array([0, 1])).C.shape == (2,)  # type: ignore[union-attr]


def test_weights_are_owned_and_kept() -> None:
    C = TWO.box.copy()
    problem = replace(TWO, C=C)
    C[0] = 77.0
    assert problem.box[0] != 77.0
    again = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(again.C, problem.C)
    for one in (problem, again):
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(one.C)[0] = 1.0
    assert "C=0.01" in repr(problem)
    np.testing.assert_array_equal(problem.subset(np.array([3, 2])).C, problem.box[[3, 2]])


# --- bounds, by brute force ----------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["linf", "l1", "l2"])
@pytest.mark.parametrize("seed", range(5))
def test_bounds_are_those_of_rationals(seed: int, norm: str) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-3, 4, (6, 2)).astype(float), np.array([1.0, -1.0] * 3)
    problem = max_margin(X, y, norm, C=rng.choice([0.1, 0.3, 0.7, 2.0], 6) + 0.05 * np.arange(6))
    coef, alpha = rng.integers(-2, 3, (1, 2)) + 0.3, rng.random(6)
    lower, upper = exact_bounds(problem, coef, alpha)
    found = certify(problem, coef, alpha)
    assert Fraction(found.lower) <= lower <= upper <= Fraction(found.upper)
    assert found.lower == pytest.approx(float(lower), rel=1e-12)
    assert found.upper == pytest.approx(float(upper), rel=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "problem", [TWO, THREE, replace(TWO, C=2.0)], ids=["two", "three", "equal weights"]
)
def test_the_value_of_zero_is_that_of_its_best_offsets(
    problem: MarginProblem, intercept: bool
) -> None:
    problem = replace(problem, intercept=intercept)
    sums = [float(problem.box[problem.owners == k].sum()) for k in set(problem.owners)]
    best = min(sum(sums), *(2.0 * (sum(sums) - own) for own in sums)) if intercept else sum(sums)
    assert problem.value_of_zero == pytest.approx(best, rel=1e-14)
    coef = np.zeros(problem.coef_shape)
    assert certify(problem, coef).upper == pytest.approx(best, rel=1e-14)
    graded = grade(problem, coef, np.zeros(problem.alpha_shape), Status.ITERATION_LIMIT)
    losses = np.maximum(0.0, 1.0 - problem.margins(problem.decision(coef), graded.intercept))
    assert problem.box @ losses == pytest.approx(graded.certificate.upper)


@pytest.mark.slow
def test_scales_and_offsets_are_the_best() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        margins, C = rng.normal(size=9), 10.0 ** rng.uniform(-2, 2, 9)

        def value(c: float, margins: Array = margins, C: Array = C) -> float:
            return 0.5 * c + float(C @ np.maximum(0.0, 1.0 - c * margins))

        kinks = [0.0, *(1.0 / margins[margins > 0])]
        assert value(best_scale(0.5, margins, C)) == pytest.approx(min(map(value, kinks)))
    coef = rng.normal(size=TWO.coef_shape)
    given = [certify(TWO, coef, intercept=float(b)).upper for b in np.linspace(-3, 3, 601)]
    assert certify(TWO, coef).upper <= min(given) * (1 + 1e-9)
