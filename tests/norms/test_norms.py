"""Norms and their duals: by random arrays, by CVXPY, and at the edges where two of them agree."""

import math
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cases import random_metric
from implicit_bias import Status, max_margin, solve
from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array
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
    as_norm,
)

GROUPS = np.array([0, 1, 0, 1, 1, 2])


@pytest.fixture(params=[None, 3, 2], ids=["plain", "metric", "singular-metric"])
def norm(request: pytest.FixtureRequest) -> GroupNorm:
    rank = request.param
    return GroupNorm(GROUPS, None if rank is None else {1: random_metric(3, rank)})


def test_value_and_dual_are_sums_and_maxima(norm: GroupNorm) -> None:
    coef = norm.projected(np.random.default_rng(0).normal(size=(6, 4)))
    assert norm.n_groups == 3
    assert norm.value(coef) == pytest.approx(norm.group_norms(coef).sum())
    assert norm.dual(coef) == pytest.approx(norm.dual_norms(coef).max())


def test_dual_norm_is_attained(norm: GroupNorm) -> None:
    """<zeta, V> <= Omega(zeta) Omega_*(V), with equality for zeta along one group's P_g V_g."""
    rng = np.random.default_rng(1)
    V = rng.normal(size=(6, 4))
    for _ in range(20):
        coef = norm.projected(rng.normal(size=(6, 4)))
        assert np.sum(coef * V) <= norm.value(coef) * norm.dual(V) * (1 + 1e-12)
    largest = np.eye(3)[norm.dual_norms(V).argmax()]
    best = norm.aligned(V, largest)
    assert np.sum(best * V) == pytest.approx(norm.value(best) * norm.dual(V))


def test_root_turns_a_metric_into_gates(norm: GroupNorm) -> None:
    u = np.random.default_rng(2).normal(size=(len(norm.plain_groups), 4))
    np.testing.assert_allclose(norm.plain_coef(norm.root @ u), u, atol=1e-9)
    np.testing.assert_allclose(norm.group_norms(norm.root @ u), norm.plain_norms(u))


def test_outside_a_singular_metric_the_norm_is_infinite() -> None:
    norm = GroupNorm(np.zeros(2, dtype=int), {0: np.ones((2, 2))})
    assert norm.value(np.array([[1.0], [0.0]])) == np.inf
    assert norm.dual(np.array([[1.0], [-1.0]])) == pytest.approx(0, abs=1e-12)


def test_groups_are_checked() -> None:
    with pytest.raises(ValueError, match="numbered"):
        GroupNorm(np.array([0, 2]))


# --- all norms -------------------------------------------------------------------------------

SHAPE = (3, 4, 5)
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


class WeightedWithAtom(Weighted):
    """The same, and it says itself in CVXPY."""

    def atom(self, zeta: Any, shape: tuple[int, ...], cp: Any) -> Any:
        """Weighted sum."""
        return cp.norm1(cp.multiply(self.weights.ravel(), zeta))


ALL: dict[str, Norm] = {
    "l1": L1(),
    "l2": L2(),
    "linf": LInf(),
    "l1.5": Lp(1.5),
    "l7": Lp(7.0),
    "lp-1": Lp(1),
    "lp-inf": Lp(math.inf),
    "spectral": Spectral(),
    "nuclear": Nuclear(),
    "schatten1.5": Schatten(1.5),
    "schatten4": Schatten(4.0),
    "schatten-2": Schatten(2.0),
    "rows": OverRows(L2(), L1()),
    "largest-row": OverRows(L2(), LInf()),
    "maxima-of-columns": OverRows(LInf(), L1(), "columns"),
    "l1-of-columns": OverRows(L1(), Lp(3.0), "columns"),
    "features": GroupL2(FEATURES),
    "nuclear-per-gate": SumOverGroups(Nuclear(), GATES),
    "linf-of-features": SumOverGroups(LInf(), FEATURES, axis=-1),
    "layers": MaxOverGroups(Spectral(), GATES),
    "largest-l1": MaxOverGroups(L1(), FEATURES, axis=-1),
    "nuclear-in-rows": InRows(SumOverGroups(Nuclear(), np.array([0, 1, 1, 0, 2, 2])), 2),
    "l1-in-rows": InRows(L1(), 2),
    "gates": GroupNorm(GATES),
    "gates-apart": GroupNorm(GATES, apart=True),
    "metric": GroupNorm(GATES, {0: random_metric(2, 2)}),
    "metric-apart": GroupNorm(GATES, {0: random_metric(2, 1)}, apart=True),
    "own": as_norm(Weighted()),
    "own-with-atom": as_norm(WeightedWithAtom()),
}


# In CVXPY.
UNSAID = ("own", "schatten1.5", "schatten4")
# As sums over groups.
NO_SUMS = {
    *("l1.5", "l7", "spectral", "nuclear", "nuclear-per-gate", "layers", "nuclear-in-rows"),
    *("largest-l1", "metric", "metric-apart", "own", "own-with-atom", "schatten1.5", "schatten4"),
    *("schatten-2", "largest-row", "l1-of-columns"),
}


def arrays(seed: int, norm: Norm) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    coef, V = rng.normal(size=(2, *SHAPE)) * 10.0 ** rng.uniform(-3, 3, size=(2, 1, 1, 1))
    project = getattr(norm, "projected", lambda values: values)
    return project(coef), V


@pytest.mark.parametrize("name", ALL)
def test_hoelder_holds_and_is_attained(name: str) -> None:
    """<zeta, V> <= Omega(zeta) Omega_*(V), with equality at the maximiser."""
    norm = ALL[name]
    for seed in range(20):
        coef, V = arrays(seed, norm)
        assert abs(np.sum(coef * V)) <= norm.value(coef) * norm.dual(V) * (1 + 1e-12)
    if not name.startswith("own"):
        best = norm.maximiser(V)
        assert best.shape == V.shape
        assert norm.value(best) == pytest.approx(1, rel=1e-9)
        assert np.sum(best * V) == pytest.approx(norm.dual(V), rel=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_norms_are_sums_over_their_groups(name: str) -> None:
    norm = ALL[name]
    coef, V = arrays(0, norm)
    assert norm.group_norms(coef).sum() == pytest.approx(norm.value(coef))
    assert norm.dual_norms(V).max() == pytest.approx(norm.dual(V))
    assert norm.group_norms(coef).shape == norm.dual_norms(V).shape


@pytest.mark.parametrize("name", ALL)
def test_bounds_hold_over_their_enclosure_and_are_tight(name: str) -> None:
    norm = ALL[name]
    coef, V = arrays(1, norm)
    assert norm.value(coef) * (1 - 1e-15) <= norm.value_bound(coef) <= norm.value(coef) * (1 + 1e-9)
    if name.startswith("metric"):  # those of V are of the plain gates
        norm = GroupNorm(GATES)
    radius = 1e-3 * np.abs(V)
    rng = np.random.default_rng(2)
    bounds = norm.dual_bounds(Enclosure(V, radius))
    for signs in [*rng.choice([-1.0, 1.0], size=(20, *SHAPE)), np.sign(V)]:
        assert (norm.dual_norms(V + signs * radius) <= bounds * (1 + 1e-14)).all()
    exact = norm.dual_bounds(Enclosure(V, 0 * V))
    np.testing.assert_allclose(exact, norm.dual_norms(V), rtol=1e-12)
    assert (exact >= norm.dual_norms(V) * (1 - 1e-15)).all()


@pytest.mark.parametrize("name", ["spectral", "nuclear", "l1", "l2", "linf"])
def test_the_bound_of_nothing_is_exactly_0(name: str) -> None:
    """So that a sample of zeros proves its problem to have no solution."""
    norm, zeros = ALL[name], np.zeros((3, 1, 2))
    assert norm.value_bound(zeros) == norm.dual_bounds(Enclosure(zeros, zeros)).max() == 0.0
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert solve(max_margin(X, [0, 1, 2], name)).status is Status.NOT_SEPARABLE


@pytest.mark.parametrize("name", ["spectral", "nuclear"])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_singular_values_are_bounded_in_exact_arithmetic(name: str, scale: float) -> None:
    """A row (3, 4) has the singular value 5; so has its outer product with (1, 0)."""
    norm = ALL[name]
    for A in (np.array([[3.0, 4.0]]), np.array([[3.0, 4.0], [0.0, 0.0]])):
        bound = norm.value_bound(A * scale)
        assert 25 * Fraction(scale) ** 2 <= Fraction(bound) ** 2 * (1 + Fraction(1, 2**51))
        assert bound == pytest.approx(5 * scale, rel=1e-13)
    ill = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-15]])
    squares = sum(Fraction(x) ** 2 for x in ill.ravel())
    assert Fraction(Nuclear().value_bound(ill)) ** 2 >= squares  # the nuclear norm is larger


@pytest.mark.parametrize("name", [k for k in ALL if k not in UNSAID and "metric" not in k])
def test_atoms_say_the_same(name: str) -> None:
    norm = ALL[name]
    coef, _ = arrays(3, norm)
    zeta = cp.Variable(coef.size)
    zeta.value = coef.ravel()
    assert norm.atom(zeta, SHAPE, cp).value == pytest.approx(norm.value(coef), rel=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_partitions_are_the_norm(name: str) -> None:
    norm = ALL[name]
    coef, _ = arrays(4, norm)
    found = norm.partition(SHAPE)
    if found is None:
        assert name in NO_SUMS
        return
    inner: Any = {"l2": np.linalg.norm, "linf": lambda part: np.abs(part).max()}[found.inner]
    parts = [inner(coef[found.groups == g]) for g in range(found.groups.max() + 1)]
    assert sum(parts) == pytest.approx(norm.value(coef))


def test_degenerate_norms_agree() -> None:
    coef, _ = arrays(5, L2())
    for p, same in [(1, Nuclear()), (2, L2()), (math.inf, Spectral())]:
        assert Schatten(p).value(coef) == pytest.approx(same.value(coef))
        assert Schatten(p).dual(coef) == pytest.approx(same.dual(coef))
    for p, same in [(1, L1()), (2, L2()), (math.inf, LInf())]:
        assert Lp(p).value(coef) == pytest.approx(same.value(coef))
        assert Lp(p).dual(coef) == pytest.approx(same.dual(coef))
    row = coef[:1]
    for norm in (Spectral(), Nuclear(), GroupNorm(np.zeros(4, dtype=int))):
        assert norm.value(row) == pytest.approx(L2().value(row))
        assert norm.dual(row) == pytest.approx(L2().value(row))
    assert Nuclear().value(coef[:, 0]) == pytest.approx(np.linalg.norm(coef[:, 0], "nuc"))
    assert GroupNorm(GATES).value(coef) == pytest.approx(SumOverGroups(L2(), GATES).value(coef))
    apart = sum(GroupNorm(GATES).value(part) for part in coef)
    assert GroupNorm(GATES, apart=True).value(coef) == pytest.approx(apart)


def test_names_and_objects_are_norms() -> None:
    assert as_norm("l1") == L1()
    assert as_norm(Lp(3)) == Lp(3)
    assert as_norm(Weighted()).value(np.ones(SHAPE)) == Weighted.weights.sum()
    for wrong, error in [("l3", ValueError), (3, TypeError), (L1, TypeError)]:
        with pytest.raises(error, match="norm"):
            as_norm(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="p must be in"):
        Lp(0.5)
    with pytest.raises(ValueError, match="axis"):
        SumOverGroups(L2(), GATES, axis=0)
    with pytest.raises(ValueError, match="GroupNorm"):
        SumOverGroups(GroupNorm(GATES), GATES)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="features"):
        GroupL2(FEATURES).value(np.ones((1, 4)))
    with pytest.raises(ValueError, match="CVXPY"):
        ALL["own"].atom(None, SHAPE, cp)
    with pytest.raises(NotImplementedError):
        ALL["own"].maximiser(np.ones(SHAPE))
