"""The grader in exact arithmetic, which must catch answers that lie."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import exact
from cases import cloud, plain
from implicit_bias import MarginProblem, Solution, Status, max_margin, norms, solve
from oracles import find_lies, fractions

TOL = 1e-6


def linear(*, shift: float = 3.0, C: float = np.inf, intercept: bool = False) -> MarginProblem:
    X, y = cloud(shift=shift)
    return plain(X[:, :-1], y, C, intercept=intercept)


def lies(solution: Solution, problem: MarginProblem) -> list[str]:
    return find_lies(problem, solution, TOL)


# --- numbers -----------------------------------------------------------------------------------


def test_floats_are_kept_exactly() -> None:
    values = np.array([[1e-300, -0.1], [0.0, 3e200]])
    kept = exact.Exact.of(values)
    expected = fractions(values)
    assert [kept.fraction(i, j) for i in (0, 1) for j in (0, 1)] == [*expected.flat]
    assert kept.matmul(kept).fraction(0, 1) == (expected @ expected)[0, 1]


GROUPS = np.array([0, 0, 1])
INNER: list[Any] = [norms.L2(), norms.Lp(3.0), norms.Spectral(), norms.Nuclear()]
EVERY_NORM = [
    norms.L1(),
    norms.LInf(),
    norms.Lp(1.01),
    *INNER,
    norms.GroupNorm(GROUPS),
    norms.GroupNorm(GROUPS, apart=True),
    norms.GroupL2([0, 1]),
    *[norms.SumOverGroups(norm, GROUPS) for norm in INNER],
    *[norms.MaxOverGroups(norm, GROUPS) for norm in INNER],
]


@pytest.mark.parametrize("norm", EVERY_NORM, ids=repr)
def test_norms_are_rounded_down(norm: norms.Norm) -> None:
    """By hardly anything: the wide ones agree with float64, and no bound of it is smaller."""
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(4, 3, 2)) * 10.0 ** rng.uniform(-6, 6, size=(4, 3, 2))
    coef[3] = coef[2] - coef[1]  # exactly or not, almost of rank 3
    A = exact.Exact.of(coef)
    value, dual = exact.least(norm, A), exact.least(norm, A, dual=True)
    assert float(value) == pytest.approx(norm.value(coef), rel=1e-13)
    assert float(dual) == pytest.approx(norm.dual(coef), rel=1e-13)
    assert value <= Fraction(norm.value_bound(coef))


@pytest.mark.parametrize("sizes", [(3.0, 4.0), (3e-300, 4e300)])
def test_singular_values_are_those_of_a_rotated_diagonal(sizes: tuple[float, float]) -> None:
    """[[a, a], [b, -b]] has the singular values a and b times the root of 2, exactly."""
    a, b = sizes
    A = exact.Exact.of([[[a, a]], [[b, -b]]])
    root = Fraction(math.isqrt(2 << 600), 1 << 300)
    for norm, value in [
        (norms.Nuclear(), Fraction(a) + Fraction(b)),
        (norms.Spectral(), Fraction(b)),
    ]:
        assert value * root * (1 - Fraction(1, 2**150)) <= exact.least(norm, A)
        assert exact.least(norm, A) <= value * root * (1 + Fraction(1, 2**150))


# --- the grader --------------------------------------------------------------------------------


@pytest.mark.parametrize("C", [np.inf, 0.3])
@pytest.mark.parametrize("intercept", [False, True])
def test_lies_are_caught(C: float, intercept: bool) -> None:
    problem = linear(C=C, shift=3.0 if np.isinf(C) else 0.3, intercept=intercept)
    solution = solve(problem)
    assert solution.status is Status.OPTIMAL
    assert lies(solution, problem) == []
    lower, upper = solution.certificate.lower, solution.certificate.upper

    def told(lower: float = lower, upper: float = upper) -> list[str]:
        certificate = replace(solution.certificate, lower=lower, upper=upper)
        return lies(replace(solution, certificate=certificate), problem)

    assert told(lower=lower * (1 + 2e-6)) == ["lower"]
    assert told(upper=upper * (1 - 2e-6)) == ["upper"]
    assert told(upper=upper * (1 + 3e-6)) == ["gap"]
    assert told(lower=np.inf, upper=np.inf) == ["lower", "gap"]
    assert "upper" in lies(replace(solution, coef=1.001 * solution.coef + 1e-3), problem)
    assert lies(replace(solution, alpha=-solution.alpha), problem) == ["lower"]
    if intercept:
        unbalanced = solution.alpha.copy()
        unbalanced[np.argmax(unbalanced)] *= 1 + 1e-15
        assert lies(replace(solution, alpha=unbalanced), problem) == ["lower"]


@pytest.mark.parametrize(
    ("name", "C"),
    [("l1", np.inf), ("l2", 0.3), ("linf", 0.3), ("spectral", np.inf), ("nuclear", 0.3)],
)
def test_lies_about_many_classes_are_caught(name: str, C: float) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(12) % 4
    problem = max_margin(
        4.0 * np.eye(4)[y] + rng.normal(size=(12, 4)), y, name, C=C, intercept=True
    )
    solution = solve(problem)
    assert solution.status is Status.OPTIMAL
    assert lies(solution, problem) == []
    bounds = solution.certificate
    for wrong, named in [
        (replace(bounds, lower=bounds.lower * (1 + 2e-6)), "lower"),
        (replace(bounds, upper=bounds.upper * (1 - 2e-6)), "upper"),
    ]:
        assert named in lies(replace(solution, certificate=wrong), problem)
    unbalanced = solution.alpha.copy()
    unbalanced[np.unravel_index(unbalanced.argmax(), unbalanced.shape)] *= 1 + 1e-15
    assert lies(replace(solution, alpha=unbalanced), problem) == ["lower"]


@pytest.mark.parametrize("intercept", [False, True])
def test_proofs(intercept: bool) -> None:
    separable, mixed = linear(intercept=intercept), linear(shift=0.0, intercept=intercept)
    solution = solve(mixed)
    assert solution.status is Status.NOT_SEPARABLE
    assert lies(solution, mixed) == []
    assert lies(solution, separable) == ["proof"]
    assert lies(solution, replace(mixed, C=1.0)) == ["proof"]
