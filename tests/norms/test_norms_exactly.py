"""Directed bounds of every norm, against rational numbers and 60 digits, at any size of values."""

import math
from collections.abc import Callable, Sequence
from operator import mul
from typing import TypeAlias

import gmpy2
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from gmpy2 import mpfr, mpq
from numpy.typing import NDArray

from cases import random_metric
from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import certify
from implicit_bias.norms import (
    L1,
    L2,
    GroupL2,
    GroupNorm,
    InRows,
    LInf,
    Lp,
    MaxOverGroups,
    Norm,
    Nuclear,
    OverRows,
    Schatten,
    Spectral,
    SumOverGroups,
)
from implicit_bias.problem import MarginProblem, max_margin

Exact: TypeAlias = Callable[[Array], mpfr]

BITS = 300
# What the digits of the oracle leave open.
DIGITS = 1 + mpfr(2.0**-150)
EXPONENTS = [1.0, 1.0 + 2.0**-52, 1.5, 2.0, 3.0, 1e3, 1e16, 1e300, 1.7e308, math.inf]


@pytest.fixture(autouse=True)
def digits() -> object:
    with gmpy2.context(precision=BITS, emin=-(2**40), emax=2**40):
        yield


# --- norms by definition ---------------------------------------------------------------------


def power(p: float, conjugate: bool = False) -> Exact:
    """Return the p-th root of the sum of p-th powers, or the same of p / (p - 1)."""

    def norm(values: Array) -> mpfr:
        sizes = [abs(mpfr(v)) for v in values.ravel().tolist()]
        largest = max(sizes)
        one_over_p = 1 / mpfr(p)
        if conjugate:
            one_over_p = 1 - one_over_p
        if largest == 0 or one_over_p == 0:
            return largest
        if one_over_p == 1:
            return sum(sizes, mpfr(0))
        total = sum(((v / largest) ** (1 / one_over_p) for v in sizes), mpfr(0))
        return largest * total**one_over_p

    return norm


def singular_values(values: Array) -> list[mpfr]:
    """Roots of the eigenvalues of the smaller Gram matrix, to 300 digits, of the largest's size."""
    matrix = values.reshape(len(values), -1)
    matrix = matrix.T if len(matrix) > matrix.shape[1] else matrix
    largest = float(np.abs(matrix).max())
    if largest == 0:
        return [mpfr(0)]
    rows = [[mpq(v) / mpq(largest) for v in row] for row in matrix.tolist()]
    gram = [[sum(map(mul, a, b), mpq(0)) for a in rows] for b in rows]
    with mpmath.workdps(200):
        entries = [[mpmath.mpf(int(v.numerator)) / int(v.denominator) for v in r] for r in gram]
        squares = mpmath.eigsy(mpmath.matrix(entries), eigvals_only=True)
        roots = [mpmath.nstr(mpmath.sqrt(max(square, 0)), 120) for square in squares]
    return [mpfr(found) * mpfr(largest) for found in roots]


def numbers(values: list[mpfr]) -> Array:
    return np.array(values, dtype=object)


def singular(norm: Exact) -> Exact:
    return lambda values: norm(numbers(singular_values(values)))


def total(parts: Sequence[mpfr]) -> mpfr:
    return sum(parts, mpfr(0))


def over(
    groups: NDArray[np.int64], axis: int, norm: Exact, join: Callable[[list[mpfr]], mpfr]
) -> Exact:
    def joined(values: Array) -> mpfr:
        parts = (np.compress(groups == g, values, axis) for g in range(int(groups.max()) + 1))
        return join([norm(part) for part in parts])

    return joined


def moved(values: Array, by: Array) -> Array:
    """Return the real sum of two arrays."""
    sums = [mpfr(a) + mpfr(b) for a, b in zip(values.flat, by.flat, strict=True)]
    return np.array(sums, dtype=object).reshape(values.shape)


def spectral(values: Array) -> mpfr:
    return max(singular_values(values))


def nuclear(values: Array) -> mpfr:
    return total(singular_values(values))


def in_rows(norm: Exact, n_rows: int) -> Exact:
    return lambda values: norm(values.reshape(n_rows, -1, values.shape[-1]))


# One group of many columns and many of one, and the same of features.
WIDE = np.repeat(np.arange(61), [60, *[1] * 60])
GATES = np.array([0, 1, 0, 2])
METRIC = GroupNorm(GATES, {0: random_metric(2, 2)})
ENTRIES, COLUMNS, FEATURES = (3, 4, 5), (2, len(WIDE), 1), (2, 1, len(WIDE))

# A norm, the shape of its coefficients, and by definition its value and its dual.
Case: TypeAlias = tuple[Norm, tuple[int, ...], Exact, Exact]
euclid, largest, absolute = power(2.0), power(math.inf), power(1.0)
CASES: dict[str, Case] = {
    "l1": (L1(), ENTRIES, absolute, largest),
    "l2": (L2(), ENTRIES, euclid, euclid),
    "linf": (LInf(), ENTRIES, largest, absolute),
    **{f"l{p}": (Lp(p), ENTRIES, power(p), power(p, conjugate=True)) for p in EXPONENTS},
    **{
        f"schatten{p}": (Schatten(p), ENTRIES, singular(power(p)), singular(power(p, True)))
        for p in EXPONENTS
    },
    "rows": (
        OverRows(L2(), L1()),
        ENTRIES,
        lambda values: total([euclid(row) for row in values]),
        lambda values: max(euclid(row) for row in values),
    ),
    "columns": (
        OverRows(LInf(), Lp(3.0), "columns"),
        ENTRIES,
        lambda values: power(3.0)(numbers([largest(v) for v in values.reshape(3, -1).T])),
        lambda values: power(3.0, True)(numbers([absolute(v) for v in values.reshape(3, -1).T])),
    ),
    "many-classes": (Lp(3.0), (100, 2, 3), power(3.0), power(3.0, conjugate=True)),
    "spectral": (Spectral(), ENTRIES, spectral, nuclear),
    "nuclear": (Nuclear(), ENTRIES, nuclear, spectral),
    "spectral-of-many-classes": (Spectral(), (100, 1, 3), spectral, nuclear),
    "nuclear-of-one-row": (Nuclear(), (1, 4, 5), nuclear, spectral),
    "group-lasso": (
        GroupL2(WIDE),
        FEATURES,
        over(WIDE, -1, euclid, total),
        over(WIDE, -1, euclid, max),
    ),
    "largest-lp": (
        MaxOverGroups(Lp(1e16), WIDE),
        COLUMNS,
        over(WIDE, -2, power(1e16), max),
        over(WIDE, -2, power(1e16, conjugate=True), total),
    ),
    "nuclear-per-gate": (
        SumOverGroups(Nuclear(), GATES),
        ENTRIES,
        over(GATES, -2, nuclear, total),
        over(GATES, -2, spectral, max),
    ),
    "layers": (
        MaxOverGroups(Spectral(), GATES),
        ENTRIES,
        over(GATES, -2, spectral, max),
        over(GATES, -2, nuclear, total),
    ),
    "in-rows": (
        InRows(SumOverGroups(Spectral(), np.array([0, 1])), 2),
        (1, 4, 5),
        in_rows(over(np.array([0, 1]), -2, spectral, total), 2),
        in_rows(over(np.array([0, 1]), -2, nuclear, max), 2),
    ),
    "gates": (
        GroupNorm(WIDE),
        COLUMNS,
        over(WIDE, -2, euclid, total),
        over(WIDE, -2, euclid, max),
    ),
    "gates-apart": (
        GroupNorm(GATES, apart=True),
        ENTRIES,
        lambda values: total([over(GATES, -2, euclid, total)(part[None]) for part in values]),
        lambda values: max(over(GATES, -2, euclid, max)(part[None]) for part in values),
    ),
    "metric": (
        METRIC,
        ENTRIES,
        lambda coef: over(METRIC.plain_groups, -2, euclid, total)(METRIC.plain_coef(coef)),
        over(METRIC.plain_groups, -2, euclid, max),
    ),
}


def values_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of one size, or of many, from subnormal to huge ones, some equal and some 0."""
    exponent, spread = rng.integers(-1074, 900), rng.choice([0, 2, 60, 1000])
    sizes = rng.integers(-spread, spread + 1, shape).clip(-1070 - exponent, 1000 - exponent)
    values = rng.choice([rng.normal(size=shape), np.full(shape, 0.99), np.ones(shape)])
    kept = rng.random(shape) < rng.choice([0.3, 1.0])
    return np.asarray(np.ldexp(values, exponent + sizes) * kept)


def check(name: str, rng: np.random.Generator) -> None:
    norm, shape, value, dual = CASES[name]
    coef = values_of(rng, shape)
    bound = norm.value_bound(coef)
    exact = value(coef)
    assert mpfr(bound) * DIGITS >= exact
    assert bound <= exact * (1 + mpfr(1e-9)) + mpfr(2.0**-1000)
    V, radius = values_of(rng, shape), values_of(rng, shape)
    radius = np.abs(rng.choice([0.0 * V, 2.0**-40 * V, radius]))
    bound = float(norm.dual_bounds(Enclosure(V, radius)).max())
    for sign in (0.0 * V, np.sign(V), rng.choice([-1.0, 1.0], shape)):
        assert mpfr(bound) * DIGITS >= dual(moved(V, sign * radius))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CASES)
def test_bounds_are_above_the_exact_norms(name: str) -> None:
    rng = np.random.default_rng(CASES[name][1])
    for _ in range(12):
        check(name, rng)


# --- the upper bounds of problems ------------------------------------------------------------


def test_one_wide_group_of_many_classes() -> None:
    """Most groups have one column, and one of them a thousand."""
    groups, gates = np.repeat(np.arange(1001), [1000, *[1] * 1000]), np.zeros((1, 2000))
    gates[0, :1000] = 0.7
    coef = np.zeros((100, 2000, 1))
    coef[0, :1000], coef[1:, :1000] = 0.99, -0.01
    problem = MarginProblem([[1.0]], [0], gates, groups, classes=100)  # type: ignore[arg-type]
    # || zeta || over the margin, all classes alike: (0.99 + 0.01) 0.7 times 1000 columns.
    size = gmpy2.sqrt(1000 * (mpfr(0.99) ** 2 + 99 * mpfr(0.01) ** 2))
    margin = 1000 * mpfr(0.7) * (mpfr(0.99) + mpfr(0.01))
    assert certify(problem, coef).upper >= size / margin


@pytest.mark.parametrize("p", [1e16, 1e18, 1e300])
def test_a_huge_exponent_is_nearly_the_maximum(p: float) -> None:
    problem = max_margin(np.array([[1.0, 2.0], [-3.0, 1.0]]), np.array([1, -1]), Lp(p))
    found = certify(problem, np.array([[1.0, 0.5]]), np.array([1.0, 1.0]))
    assert found.lower == pytest.approx(0.4)
    assert found.upper == pytest.approx(0.5)
