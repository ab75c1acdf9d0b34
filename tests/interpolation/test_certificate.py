"""Bounds on the smallest norm that interpolates: sound for any candidates, in rational numbers."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from drawn import normal
from implicit_bias import min_norm
from implicit_bias.base.rounding import LARGEST, Enclosure
from implicit_bias.base.validation import Array
from implicit_bias.interpolation.certificate import (
    euclidean_constant,
    lower_bound,
    residuals,
    summing_to_0,
    upper_bound,
)
from implicit_bias.interpolation.equations import sort_equations
from implicit_bias.interpolation.problem import InterpolationProblem, interpolation_problem
from implicit_bias.norms import L1, GroupNorm, MaxOverGroups, Norm, Nuclear
from implicit_bias.problem.gating import dense


def exact(value: Any) -> Fraction:
    return Fraction(float(value))


def drawn(norm: Any, intercept: bool, seed: int, K: int = 2) -> InterpolationProblem:
    X = normal(4, 3, seed=seed) * 10.0 ** normal(4, 1, seed=seed + 1)
    gates = normal(4, 3, seed=seed + 2)
    Y = normal(4, K, seed=seed + 3)
    return interpolation_problem(X, Y, norm, gates, None, intercept)


def exact_dual_vectors(problem: InterpolationProblem, alpha: Array) -> dict[Any, Fraction]:
    """V_kmd = sum_n alpha_nk z_nm x_nd, in rational numbers."""
    X = problem.features.X
    Z = dense(problem.features.gates)
    found = {}
    for k, m, d in np.ndindex(problem.norm_shape):
        terms = [exact(alpha[n, k]) * exact(Z[n, m]) * exact(X[n, d]) for n in range(len(X))]
        found[k, m, d] = sum(terms, Fraction(0))
    return found


@pytest.mark.parametrize(
    ("norm", "intercept", "seed"),
    [("l1", False, 0), ("linf", True, 20), ("l1", True, 36), ("linf", False, 36)],
)
def test_lower_bounds_hold_as_real_numbers(norm: str, intercept: bool, seed: int) -> None:
    """For any alpha: exactly <alpha, Y> / Omega_*(V), less what is relaxed, rounded down."""
    problem = drawn(norm, intercept, seed)
    alpha = normal(4, 2, seed=seed + 9) * 10.0 ** (seed - 20)
    if intercept:
        # Balanced already, so that the bound changes nothing.
        alpha = summing_to_0(alpha)
    slack = 0.01 * (seed % 8)
    total = Fraction(0)
    for n, k in np.ndindex(alpha.shape):
        total += exact(alpha[n, k]) * exact(problem.Y[n, k])
        total -= abs(exact(alpha[n, k])) * Fraction(slack)
    sizes = [abs(value) for value in exact_dual_vectors(problem, alpha).values()]
    dual = max(sizes) if norm == "l1" else sum(sizes, Fraction(0))
    found = lower_bound(problem, alpha, slack)
    if total <= 0:
        assert found == 0
        return
    assert Fraction(found) <= total / dual
    assert found >= float(total / dual) * (1 - 1e-9)


def test_multipliers_are_balanced_exactly() -> None:
    alpha = normal(50, 3) * 10.0 ** (5 * normal(50, 3, seed=50))
    found = summing_to_0(alpha)
    for k in range(3):
        assert sum(Fraction(value) for value in found[:, k]) == 0
        # All but the largest one moved by a unit of the grid at most.
        unit = np.abs(alpha[:, k]).max() * 2.0**-43
        moved = np.abs(found[:, k] - alpha[:, k])
        assert (np.sort(moved)[:-1] <= unit).all()


@pytest.mark.parametrize(("seed", "intercept"), [(0, True), (16, False)])
def test_residuals_are_enclosed(seed: int, intercept: bool) -> None:
    problem = drawn("l2", intercept, seed)
    coef = normal(2, 9, seed=seed + 5).reshape(2, 3, 3) * 10.0 ** (seed - 8)
    offsets = np.array([0.3, -0.7]) * intercept
    found = residuals(problem, coef, offsets)
    X = problem.features.X
    Z = dense(problem.features.gates)
    for n, k in np.ndindex(problem.Y.shape):
        f = exact(offsets[k])
        for m, d in np.ndindex(3, 3):
            f += exact(coef[k, m, d]) * exact(Z[n, m]) * exact(X[n, d])
        rest = exact(problem.Y[n, k]) - f
        assert abs(rest - exact(found.value[n, k])) <= Fraction(float(found.radius[n, k]))
        assert found.radius[n, k] <= 1e-14 * (abs(problem.Y[n, k]) + abs(float(f)) + 1)


@pytest.mark.parametrize(
    ("norm", "intercept"), [("l1", True), ("linf", False), (Nuclear(), True)], ids=str
)
def test_upper_bounds_hold_of_coefficients_that_miss(norm: Any, intercept: bool) -> None:
    """Coefficients moved off the equations: the bound is of an interpolating point nevertheless."""
    X = normal(5, 9)
    Y = normal(5, 2, seed=1)
    optimum = min_norm(X, Y, norm, intercept=intercept)
    problem = interpolation_problem(X, Y, norm, None, None, intercept)
    equations = sort_equations(problem)
    offsets = np.asarray(optimum.intercept) * np.ones(2)
    # Smaller coefficients, whose own norm is no bound.
    for size in (0.0, 1e-6, 1.0):
        coef = optimum.coef * (1 - size)
        rest = residuals(problem, coef, offsets)
        upper = upper_bound(problem, equations, coef, rest)
        assert upper >= optimum.lower
        assert upper <= optimum.upper * (1 + 1e-9 + 300 * size)


def test_exact_residuals_of_0_cost_nothing() -> None:
    X = np.eye(3)
    problem = interpolation_problem(X, [1.0, 2.0, 4.0], "l1", None, None, False)
    coef = np.array([[[1.0, 2.0, 4.0]]])
    zero = Enclosure(np.zeros((3, 1)), np.zeros((3, 1)))
    assert upper_bound(problem, sort_equations(problem), coef, zero) == pytest.approx(7, rel=1e-14)


def test_multipliers_that_prove_inconsistency_have_an_infinite_bound() -> None:
    problem = interpolation_problem([[1.0], [2.0]], [1.0, 3.0], "l2", None, None, False)
    assert lower_bound(problem, np.array([[-2.0], [1.0]])) == np.inf
    assert lower_bound(problem, np.zeros((2, 1))) == 0
    assert lower_bound(problem, np.full((2, 1), np.nan)) == 0


class TinyL1:
    """A custom norm: a number times the l1 norm."""

    def __init__(self, size: float) -> None:
        self.size = size

    def value(self, coef: Array) -> float:
        """Omega."""
        return self.size * float(np.abs(coef).sum())

    def dual(self, V: Array) -> float:
        """Omega_*."""
        with np.errstate(over="ignore"):
            return float(np.abs(V).max() / self.size)


@pytest.mark.parametrize("size", [1e-310, np.nextafter(0.25 / LARGEST, 1.0)])
def test_what_overflows_bounds_nothing(size: float) -> None:
    """Of the first size the dual norm of V overflows, of the second its upper bound alone."""
    problem = interpolation_problem([[0.5]], [1.0], TinyL1(size), None, None, False)
    with np.errstate(over="ignore", invalid="ignore"):
        assert lower_bound(problem, np.ones((1, 1))) == 0


@pytest.mark.parametrize(
    "norm",
    [L1(), Nuclear(), GroupNorm(np.array([0, 1, 1])), MaxOverGroups(L1(), np.array([0, 0, 1]))],
    ids=lambda norm: type(norm).__name__,
)
def test_norms_are_bounded_by_the_euclidean_one(norm: Norm) -> None:
    problem = drawn(norm, False, 3)
    constant = euclidean_constant(problem)
    for seed in range(20):
        delta = normal(2, 9, seed=seed).reshape(2, 3, 3)
        assert norm.value(delta) <= constant * np.linalg.norm(delta)


def test_multipliers_that_an_offset_does_not_see_bound_nothing() -> None:
    """With an intercept any multipliers are balanced first: large values alone prove nothing."""
    X = normal(4, 6)
    y = 1e6 + normal(4, 1, seed=10)[:, 0]
    optimum = min_norm(X, y, intercept=True)
    problem = interpolation_problem(X, y, "l2", None, None, True)
    for alpha in (np.eye(4)[:, :1], np.abs(normal(4, 1, seed=20)), optimum.alpha[:, None]):
        assert lower_bound(problem, alpha) <= optimum.upper
    # A little out of balance, a bound near the optimum is left.
    nearly = optimum.alpha[:, None] + 1e-13 * normal(4, 1, seed=30)
    assert lower_bound(problem, nearly) >= optimum.lower * (1 - 1e-5)
