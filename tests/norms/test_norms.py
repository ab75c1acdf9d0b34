"""Norms, their duals and their directed bounds, beside rational numbers and 60 digits."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import mul
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import cvxpy as cp
import gmpy2
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from gmpy2 import mpfr, mpq

from implicit_bias import Status, max_margin, solve
from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array
from implicit_bias.norms import (
    L1,
    L2,
    GroupL2,
    GroupNorm,
    LInf,
    Lp,
    MaxOverGroups,
    Norm,
    Nuclear,
    Schatten,
    Spectral,
    SumOverGroups,
    as_norm,
)
from implicit_bias.norms.groups import as_groups
from implicit_bias.norms.named import AtomError

# Values of a norm and of its dual.
Pair: TypeAlias = tuple[Callable[[Array], mpfr], Callable[[Array], mpfr]]

BITS = 300
# What the digits of the oracle leave open.
DIGITS = 1 + mpfr(2.0**-150)
USUAL_EXPONENTS = [1.0, 1.5, 2.0, 3.0, math.inf]
EXPONENTS = [*USUAL_EXPONENTS, 1.0 + 2.0**-52, 1e3, 1e16]


@pytest.fixture(autouse=True)
def digits() -> object:
    with gmpy2.context(precision=BITS, emin=-(2**40), emax=2**40):
        yield


# --- norms by definition ---------------------------------------------------------------------


def root_of_powers(values: Array, one_over_p: mpfr) -> mpfr:
    sizes = [abs(mpfr(v)) for v in values.ravel().tolist()]
    largest = max(sizes)
    if largest == 0 or one_over_p == 0:
        return largest
    if one_over_p == 1:
        return total(sizes)
    return largest * total([(v / largest) ** (1 / one_over_p) for v in sizes]) ** one_over_p


def powers(p: float) -> Pair:
    """Return the p-th root of the sum of p-th powers, and the same of p / (p - 1)."""
    return (
        lambda values: root_of_powers(values, 1 / mpfr(p)),
        lambda values: root_of_powers(values, 1 - 1 / mpfr(p)),
    )


def singular_values(values: Array) -> Array:
    """Roots of the eigenvalues of the smaller Gram matrix, to 300 digits, of the largest's size."""
    matrix = values.reshape(len(values), -1)
    matrix = matrix.T if len(matrix) > matrix.shape[1] else matrix
    largest = float(np.abs(matrix).max())
    if largest == 0:
        return numbers([mpfr(0)])
    rows = [[mpq(v) / mpq(largest) for v in row] for row in matrix.tolist()]
    gram = [[sum(map(mul, a, b), mpq(0)) for a in rows] for b in rows]
    with mpmath.workdps(200):
        entries = [[mpmath.mpf(int(v.numerator)) / int(v.denominator) for v in r] for r in gram]
        squares = mpmath.eigsy(mpmath.matrix(entries), eigvals_only=True)
        roots = [mpmath.nstr(mpmath.sqrt(max(square, 0)), 120) for square in squares]
    return numbers([mpfr(found) * mpfr(largest) for found in roots])


def numbers(values: list[mpfr]) -> Array:
    return np.array(values, dtype=object)


def total(parts: Sequence[mpfr]) -> mpfr:
    return sum(parts, mpfr(0))


def moved(values: Array, by: Array) -> Array:
    """Return the real sum of two arrays."""
    sums = [mpfr(a) + mpfr(b) for a, b in zip(values.flat, by.flat, strict=True)]
    return np.array(sums, dtype=object).reshape(values.shape)


def of(change: Callable[[Array], Array], pair: Pair) -> Pair:
    """Return the norms of what is made of an array."""
    return lambda values: pair[0](change(values)), lambda values: pair[1](change(values))


def over(groups: Any, pair: Pair, axis: int = -2, outer: Pair | None = None) -> Pair:
    """Sum of a norm over groups, or another norm of these."""
    joins = ABSOLUTE if outer is None else outer

    def joined(values: Array, place: int) -> mpfr:
        parts = (np.compress(groups == g, values, axis) for g in range(int(max(groups)) + 1))
        return joins[place](numbers([pair[place](part) for part in parts]))

    return partial(joined, place=0), partial(joined, place=1)


EUCLID, LARGEST, ABSOLUTE, CUBES = powers(2.0), powers(math.inf), powers(1.0), powers(3.0)
SPECTRAL, NUCLEAR = of(singular_values, LARGEST), of(singular_values, ABSOLUTE)
SHAPE = (3, 4, 5)
# One group of many columns and many of one, and the same of features.
WIDE = np.repeat(np.arange(61), [60, *[1] * 60])
GATES, FEATURES = np.array([0, 1, 0, 2]), np.array([1, 0, 0, 2, 1])


class Weighted:
    """A norm of somebody else's: the weighted sum of absolute values."""

    weights = np.arange(1.0, 61.0).reshape(SHAPE)

    def value(self, coef: Array) -> float:
        """Weighted sum."""
        return float((self.weights * np.abs(coef)).sum())

    def dual(self, V: Array) -> float:
        """Largest of what the weights divide."""
        return float((np.abs(V) / self.weights).max())

    def atom(self, zeta: Any, shape: tuple[int, ...], cp: Any) -> Any:
        """Say it in CVXPY."""
        return cp.norm1(cp.multiply(self.weights.ravel(), zeta))


def weighted_sum(coef: Array) -> mpfr:
    weights = Weighted.weights.ravel().tolist()
    return total([mpfr(w) * abs(mpfr(v)) for w, v in zip(weights, coef.flat, strict=True)])


def weighted_maximum(V: Array) -> mpfr:
    weights = Weighted.weights.ravel().tolist()
    return max(abs(mpfr(v)) / w for w, v in zip(weights, V.flat, strict=True))


class WeightedBySum(Weighted):
    """Its weights are of another shape than the coefficients that CVXPY has, which are flat."""

    weights = np.ones((1, 2))

    def atom(self, zeta: Any, shape: tuple[int, ...], cp: Any) -> Any:
        """Fail."""
        return cp.sum(cp.multiply(np.ones(3), zeta))


class Case(NamedTuple):
    """A norm, by definition with its dual, and the shape of its coefficients."""

    norm: Norm
    pair: Pair
    shape: tuple[int, ...] = SHAPE


def of_gates(norm: GroupNorm, shape: tuple[int, ...] = SHAPE) -> Case:
    """Return the sum over the groups of gates; apart, those of each class count."""
    definition = over(norm.groups, EUCLID)
    if norm.apart:
        definition = over(np.arange(shape[0]), definition, -3)
    return Case(norm, definition, shape)


CASES: dict[str, Case] = {
    "l1": Case(L1(), ABSOLUTE),
    "l2": Case(L2(), EUCLID),
    "linf": Case(LInf(), LARGEST),
    **{f"lp{p}": Case(Lp(p), powers(p)) for p in EXPONENTS},
    **{f"schatten{p}": Case(Schatten(p), of(singular_values, powers(p))) for p in EXPONENTS},
    "many-classes": Case(Lp(3.0), CUBES, (100, 2, 3)),
    "spectral": Case(Spectral(), SPECTRAL),
    "nuclear": Case(Nuclear(), NUCLEAR),
    "spectral-of-many-classes": Case(Spectral(), SPECTRAL, (100, 1, 3)),
    "nuclear-of-one-row": Case(Nuclear(), NUCLEAR, (1, 4, 5)),
    "features": Case(GroupL2(FEATURES), over(FEATURES, EUCLID, -1)),
    "group-lasso": Case(GroupL2(WIDE), over(WIDE, EUCLID, -1), (2, 1, len(WIDE))),
    "linf-of-features": Case(SumOverGroups(LInf(), FEATURES, -1), over(FEATURES, LARGEST, -1)),
    "l1-of-gates": Case(SumOverGroups(L1(), GATES), over(GATES, ABSOLUTE)),
    "largest-l1": Case(MaxOverGroups(L1(), FEATURES, -1), over(FEATURES, ABSOLUTE, -1, LARGEST)),
    "largest-lp": Case(
        MaxOverGroups(Lp(1e16), WIDE),
        over(WIDE, powers(1e16), outer=LARGEST),
        (2, len(WIDE), 1),
    ),
    "nuclear-per-gate": Case(SumOverGroups(Nuclear(), GATES), over(GATES, NUCLEAR)),
    "layers": Case(MaxOverGroups(Spectral(), GATES), over(GATES, SPECTRAL, outer=LARGEST)),
    "gates": of_gates(GroupNorm(GATES)),
    "wide-gates": of_gates(GroupNorm(WIDE), (2, len(WIDE), 1)),
    "gates-apart": of_gates(GroupNorm(GATES, apart=True)),
    "own": Case(as_norm(Weighted()), (weighted_sum, weighted_maximum)),
}
RARE = {f"{kind}{p}" for kind in ("lp", "schatten") for p in EXPONENTS if p not in USUAL_EXPONENTS}
USUAL = [name for name, case in CASES.items() if case.shape == SHAPE and name not in RARE]
# Not said in CVXPY.
WITHOUT_ATOM = ("schatten1.5", "schatten3.0")
# Not as sums over groups.
NO_SUMS = {
    *("lp1.5", "lp3.0", "spectral", "nuclear", "nuclear-per-gate", "layers"),
    *("largest-l1", "own", *(f"schatten{p}" for p in EXPONENTS)),
}


def arrays(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    coef, V = rng.normal(size=(2, *SHAPE)) * 10.0 ** rng.uniform(-3, 3, size=(2, 1, 1, 1))
    return coef, V


@pytest.mark.parametrize("name", USUAL)
def test_values_and_duals_are_those_of_the_definition(name: str) -> None:
    norm, (value, dual), _ = CASES[name]
    coef, V = arrays(0)
    assert norm.value(coef) == pytest.approx(float(value(coef)), rel=1e-9)
    assert norm.group_norms(coef).sum() == pytest.approx(norm.value(coef))
    assert norm.dual_norms(V).max() == pytest.approx(norm.dual(V))
    assert norm.group_norms(coef).shape == norm.dual_norms(V).shape
    assert norm.value(coef) * (1 - 1e-15) <= norm.value_bound(coef)
    assert norm.dual(V) == pytest.approx(float(dual(V)), rel=1e-9)
    bounds = norm.dual_bounds(Enclosure(V, 0 * V))
    np.testing.assert_allclose(bounds, norm.dual_norms(V), rtol=1e-12)
    assert (bounds >= norm.dual_norms(V) * (1 - 1e-15)).all()


@pytest.mark.parametrize("name", USUAL)
def test_hoelder_holds_and_is_attained(name: str) -> None:
    """<zeta, V> <= Omega(zeta) Omega_*(V), with equality at the maximiser."""
    norm = CASES[name].norm
    for seed in range(20):
        coef, V = arrays(seed)
        assert abs(np.sum(coef * V)) <= norm.value(coef) * norm.dual(V) * (1 + 1e-12)
    if name != "own":
        best = norm.maximiser(V)
        assert best.shape == V.shape
        assert norm.value(best) == pytest.approx(1, rel=1e-9)
        assert np.sum(best * V) == pytest.approx(norm.dual(V), rel=1e-9)


@pytest.mark.parametrize("name", [k for k in USUAL if k not in WITHOUT_ATOM])
def test_atoms_are_the_norm(name: str) -> None:
    norm = CASES[name].norm
    coef, _ = arrays(3)
    zeta = cp.Variable(coef.size)
    zeta.value = coef.ravel()
    assert norm.atom(zeta, SHAPE, cp).value == pytest.approx(norm.value(coef), rel=1e-9)


@pytest.mark.parametrize("name", USUAL)
def test_partitions_are_the_norm(name: str) -> None:
    norm = CASES[name].norm
    coef, _ = arrays(4)
    found = norm.partition(SHAPE)
    if found is None:
        assert name in NO_SUMS
        return
    inner: Any = {"l2": np.linalg.norm, "linf": lambda part: np.abs(part).max()}[found.inner]
    parts = [inner(coef[found.groups == g]) for g in range(found.groups.max() + 1)]
    assert sum(parts) == pytest.approx(norm.value(coef))


# --- directed bounds -------------------------------------------------------------------------


def values_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of one size, or of many, from subnormal to huge ones, some equal and some 0."""
    exponent, spread = rng.integers(-1074, 900), rng.choice([0, 2, 60, 1000])
    sizes = rng.integers(-spread, spread + 1, shape).clip(-1070 - exponent, 1000 - exponent)
    values = rng.choice([rng.normal(size=shape), np.full(shape, 0.99), np.ones(shape)])
    kept = rng.random(shape) < rng.choice([0.3, 1.0])
    return np.asarray(np.ldexp(values, exponent + sizes) * kept)


def check(name: str, rng: np.random.Generator) -> None:
    norm, (value, dual), shape = CASES[name]
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


@pytest.mark.fast(
    *("l1", "l2", "linf", "lp1.5", "lp1.0000000000000002", "lp1000.0", "lp1e+16", "schatten1.5"),
    *("schatten1e+16", "features", "linf-of-features", "l1-of-gates", "largest-l1"),
    *("nuclear-per-gate", "layers", "gates", "gates-apart", "own"),
)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CASES)
def test_bounds_are_above_the_exact_norms(name: str) -> None:
    rng = np.random.default_rng(CASES[name].shape)
    for _ in range(8):
        check(name, rng)


@pytest.mark.parametrize("size", [12, 100_000])
@pytest.mark.parametrize("p", [1.0 + 2.0**-52, 1.5, 3.0, 1e3])
def test_bounds_hold_for_powers_of_8_roundings(p: float, size: int) -> None:
    """The value may be as far below the norm as roundings of this number take it."""
    norm = Lp(p)
    coef = np.ones((1, 1, size))
    down = 1 - mpfr(2.0**-53)
    # Division by the largest entry, powers, their sum; the root of it.
    worst = down * (down ** (8 + size - 1)) ** (1 / mpfr(p))
    # The root's exponent is rounded once, and that of a dual norm twice before.
    worst *= mpfr(size) ** (-3 * mpfr(2.0**-53))
    worst *= down**8 * down
    assert mpfr(norm.value_bound(coef)) / mpfr(norm.value(coef)) * worst >= 1


def test_norms_of_groups_are_enclosed_with_the_rounding_of_their_sums() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 4, 200)
    rows = rng.exponential(size=200)
    found = GroupNorm(groups).from_row_norms(Enclosure(rows, 0.0 * rows))
    for g in range(4):
        squared = sum(mpq(value) ** 2 for value in rows[groups == g].tolist())
        value, radius = mpq(float(found.value[g])), mpq(float(found.radius[g]))
        assert (value - radius) ** 2 <= squared <= (value + radius) ** 2
        assert 0 < radius < 1e-13 * value


@pytest.mark.parametrize("norm", [GroupNorm([0, 0]), L2(), Lp(2.0)])  # type: ignore[arg-type]
@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 2, 1)])
def test_a_square_that_is_rounded_away_is_in_the_bound(norm: Norm, shape: tuple[int, ...]) -> None:
    """Within a row of coefficients, and over the rows of a group."""
    coef = np.array([1.0, 2.0**-27])
    if isinstance(norm, GroupNorm) and shape[1] == 1:
        norm = GroupNorm([0])  # type: ignore[arg-type]
    assert norm.value(coef.reshape(shape)) == 1.0
    bound = mpq(norm.value_bound(coef.reshape(shape)))
    assert bound**2 >= 1 + mpq(2) ** -54


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_singular_values_that_are_rounding_do_not_count_in_a_maximiser(size: float) -> None:
    """The polar factor of a product of vectors is that of the vectors over their norms."""
    left = np.array([0.1, 0.2, 0.3])
    right = np.array([0.7, 0.9, 1.1])
    expected = np.outer(left / np.linalg.norm(left), right / np.linalg.norm(right))
    found = Spectral().maximiser(size * np.outer(left, right))
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize(("norm", "expected"), [(Spectral(), 4.0), (Nuclear(), 7.0)])
def test_singular_vectors_need_not_be_orthonormal(
    norm: Norm, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product of the factors is right, with singular values that are too small."""
    decompose = np.linalg.svd
    error = 1.0 + 1e-9

    def stretched(matrix: Array, *, full_matrices: bool) -> tuple[Array, Array, Array]:
        U, s, Vt = decompose(matrix, full_matrices=full_matrices)
        return U * error, s / error, Vt

    monkeypatch.setattr(np.linalg, "svd", stretched)
    assert expected <= norm.value_bound(np.diag([4.0, 3.0])) <= expected * (1 + 1e-8)


@pytest.mark.parametrize("name", ["spectral", "nuclear", "l1", "l2", "linf"])
def test_the_bound_of_nothing_is_exactly_0(name: str) -> None:
    """So that a sample of zeros proves its problem to have no solution."""
    norm, zeros = CASES[name].norm, np.zeros((3, 1, 2))
    assert norm.value_bound(zeros) == norm.dual_bounds(Enclosure(zeros, zeros)).max() == 0.0
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert solve(max_margin(X, [0, 1, 2], name)).status is Status.NOT_SEPARABLE


def test_names_and_objects_are_norms() -> None:
    assert as_norm("l1") == L1()
    assert as_norm(Lp(3)) == Lp(3)
    assert as_norm(Weighted()).value(np.ones(SHAPE)) == Weighted.weights.sum()
    for wrong, error in [("l3", ValueError), (3, TypeError), (L1, TypeError)]:
        with pytest.raises(error, match="norm"):
            as_norm(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="p must be in"):
        Lp(0.5)
    with pytest.raises(ValueError, match="GroupNorm"):
        SumOverGroups(GroupNorm(GATES), GATES)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one entry per feature, 4, got 5"):
        GroupL2(FEATURES).value(np.ones((1, 4)))
    with pytest.raises(ValueError, match="none left out"):
        GroupNorm([0, 2])  # type: ignore[arg-type]
    without_atom = SimpleNamespace(value=np.linalg.norm, dual=np.linalg.norm)
    with pytest.raises(ValueError, match="CVXPY"):
        as_norm(without_atom).atom(None, SHAPE, cp)
    with pytest.raises(NotImplementedError):
        CASES["own"].norm.maximiser(np.ones(SHAPE))
    with pytest.raises(AtomError, match="flattened in C order"):  # no trouble of a solver
        solve(max_margin(np.eye(2), [1, -1], WeightedBySum()))


# --- names and groups ------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [[[0, 1, 2], [3], [4, 5]], ["a", "a", None, "b"], [2, 2, 2]])
def test_groups_that_are_not_one_name_or_number_a_feature_are_refused(groups: Any) -> None:
    """Also lists of the features of each group, and sizes, as celer and skglm take."""
    with pytest.raises(ValueError, match="per feature"):
        as_groups(groups)


@pytest.mark.parametrize("groups", [["b", "a", "b"], [1.0, 0.0, 1.0]])
def test_names_and_numbers_of_groups_are_numbered(groups: Any) -> None:
    assert as_groups(groups).tolist() == [1, 0, 1]
