"""The smallest norm that interpolates: by duality, closed forms, linear programs, brute force."""

import itertools
import math
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from flint import fmpq, fmpq_mat

from cases import Stranger
from drawn import normal
from implicit_bias import min_norm
from implicit_bias.base import package
from implicit_bias.base.validation import Array
from implicit_bias.interpolation import Interpolant, InterpolationStatus
from implicit_bias.interpolation.methods import LinearSystem, Point, cleaned
from implicit_bias.norms import (
    L1,
    L2,
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
from implicit_bias.problem.gating import UnitGates
from implicit_bias.solvers.cvxpy_solver import BACKENDS, CvxpyBackend

OPTIMAL = InterpolationStatus.OPTIMAL
# What is reached, far below the tolerance of 1e-6.
GAP = 1e-7

GROUPS = np.repeat(np.arange(4), 3)
NORMS: dict[str, Norm] = {
    "l1": L1(),
    "l2": L2(),
    "linf": LInf(),
    "l1.2": Lp(1.2),
    "l3": Lp(3),
    "l20": Lp(20),
    "spectral": Spectral(),
    "nuclear": Nuclear(),
    "l2 in groups": SumOverGroups(L2(), GROUPS, -1),
    "l1 in groups": SumOverGroups(L1(), GROUPS, -1),
    "linf in groups": SumOverGroups(LInf(), GROUPS, -1),
    "l3 in groups": SumOverGroups(Lp(3), GROUPS, -1),
    "nuclear in groups": SumOverGroups(Nuclear(), GROUPS, -1),
    "spectral in groups": SumOverGroups(Spectral(), GROUPS, -1),
    "largest l2 of groups": MaxOverGroups(L2(), GROUPS, -1),
    "largest l1 of groups": MaxOverGroups(L1(), GROUPS, -1),
    "largest l3 of groups": MaxOverGroups(Lp(3), GROUPS, -1),
    "largest spectral of groups": MaxOverGroups(Spectral(), GROUPS, -1),
    "largest nuclear of groups": MaxOverGroups(Nuclear(), GROUPS, -1),
}


def sizes_by_definition(norm: Any, coef: Array) -> tuple[float, float]:
    """Omega and Omega_* of coefficients (K, M, D): numbers of lists and singular values alone."""
    if isinstance(norm, SumOverGroups | MaxOverGroups):
        parts = []
        for g in range(max(norm.groups) + 1):
            places = np.flatnonzero(norm.groups == g)
            parts.append(sizes_by_definition(norm.norm, np.take(coef, places, axis=norm.axis)))
        values, duals = zip(*parts, strict=True)
        if isinstance(norm, SumOverGroups):
            return sum(values), max(duals)
        return max(values), sum(duals)
    if isinstance(norm, GroupNorm):  # apart: with groups of its own for each output
        over = SumOverGroups(L2(), norm.groups)
        outputs = [sizes_by_definition(over, of_output[None]) for of_output in coef]
        return sum(value for value, _ in outputs), max(dual for _, dual in outputs)
    entries: Any = coef.ravel()
    if isinstance(norm, Nuclear | Spectral):
        entries = np.linalg.svd(coef.reshape(len(coef), -1), compute_uv=False)
    exponents = {L1(): 1.0, L2(): 2.0, LInf(): math.inf, Nuclear(): 1.0, Spectral(): math.inf}
    p = norm.p if isinstance(norm, Lp) else exponents[norm]
    q = {1.0: math.inf, math.inf: 1.0}.get(p) or p / (p - 1)
    return float(np.linalg.norm(entries, p)), float(np.linalg.norm(entries, q))


def loop_predictions(found: Interpolant, X: Array, gates: Array, K: int) -> Array:
    """sum_m z_m(x_n) <zeta_km, x_n> + b_k, from the definition."""
    coef = found.coef.reshape(K, gates.shape[1], X.shape[1])
    offsets = np.atleast_1d(found.intercept)
    f = np.zeros((len(X), K))
    for n, k in np.ndindex(f.shape):
        f[n, k] = offsets[k]
        for m in range(gates.shape[1]):
            f[n, k] += gates[n, m] * (coef[k, m] @ X[n])
    return f


def check(
    found: Interpolant, X: Array, gates: Array, Y: Array, norm: Norm, intercept: bool = False
) -> None:
    """Check by weak duality that coefficients interpolate, and that no smaller ones do.

    <alpha, Y> = <zeta, V> <= Omega(zeta) Omega_*(V) for all zeta that interpolate, if sum_n alpha_n
    = 0 with an intercept: so no solver has to be believed.
    """
    K = Y.shape[1]
    f = loop_predictions(found, X, gates, K)
    assert np.abs(f - Y).max() < found.residual + 1e-12
    assert found.residual < 1e-11
    alpha = found.alpha.reshape(Y.shape)
    V = np.zeros((K, gates.shape[1], X.shape[1]))
    for n, k in np.ndindex(Y.shape):
        V[k] += alpha[n, k] * np.outer(gates[n], X[n])
    if intercept:
        np.testing.assert_allclose(alpha.sum(axis=0), 0, atol=1e-12 * np.abs(alpha).max())
    value = sizes_by_definition(norm, found.coef.reshape(V.shape))[0]
    dual = sizes_by_definition(norm, V)[1]
    assert float((alpha * Y).sum()) / dual == pytest.approx(value, rel=GAP)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.upper == pytest.approx(value, rel=1e-9)
    assert found.lower == pytest.approx(float((alpha * Y).sum()), rel=1e-9)
    assert dual == pytest.approx(1, abs=1e-10)
    assert found.status is OPTIMAL
    assert found.method in ("closed form", "clarabel")
    assert found.slack == 0
    assert found.gap < GAP
    assert found.lower <= found.upper


@pytest.mark.parametrize(
    ("name", "K", "intercept"),
    [
        *((name, 3, True) for name in NORMS),
        *((name, 1, False) for name in ("l1", "l2", "linf", "l3", "nuclear in groups")),
        ("largest spectral of groups", 3, False),
    ],
)
def test_linear_models(name: str, K: int, intercept: bool) -> None:
    X = normal(7, 12)
    Y = normal(7, K, seed=1)
    found = min_norm(X, Y, NORMS[name], intercept=intercept)
    check(found, X, np.ones((7, 1)), Y, NORMS[name], intercept)


@pytest.mark.parametrize(
    ("norm", "groups"),
    [
        ("l2", [0, 1, 1, 2]),
        ("nuclear", [0, 1, 1, 2]),
        ("l1", None),
        (GroupNorm(np.array([0, 1, 1, 2]), apart=True), None),
    ],
    ids=str,
)
def test_gated_models(norm: Any, groups: Any) -> None:
    X = normal(9, 5)
    gates = np.where(normal(9, 4, seed=2) > 0, 1.0, 0.0)
    gates[:, 0] = 1
    Y = normal(9, 2, seed=1)
    of_groups: Any = as_norm(norm)
    if groups is not None:
        of_groups = SumOverGroups(of_groups, np.array(groups))
    found = min_norm(X, Y, norm, gates=sp.csr_array(gates), groups=groups)
    check(found, X, gates, Y, of_groups)


@pytest.mark.parametrize(
    ("inner", "over"),
    [(L2(), SumOverGroups), (Nuclear(), MaxOverGroups), (Spectral(), SumOverGroups)],
    ids=str,
)
def test_groups_of_more_columns_than_samples(inner: Any, over: Any) -> None:
    """Of which a method sees as many columns as there are samples."""
    X = normal(4, 13)
    Y = normal(4, 2, seed=1)
    norm = over(inner, np.array([0, 1, 1, 0, 0, 2, 1, 0, 1, 0, 0, 1, 2]), -1)
    found = min_norm(X, Y, norm)
    check(found, X, np.ones((4, 1)), Y, norm)


@pytest.mark.parametrize("name", ["l1", "l20", "l3 in groups", "nuclear in groups"])
def test_samples_that_are_nearly_equal_have_enormous_coefficients(name: str) -> None:
    X = normal(7, 12)
    X[1] = X[0] + 1e-6 * X[1]
    found = min_norm(X, normal(7, 3, seed=1), NORMS[name], intercept=True)
    assert found.status is OPTIMAL
    assert found.lower > 1e4


# --- closed forms ------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["spectral", Schatten(3)], ids=str)
def test_norms_of_singular_values_have_the_pseudo_inverse(norm: Any) -> None:
    X = normal(6, 10)
    Y = normal(6, 3, seed=1)
    found = min_norm(X, Y, norm)
    np.testing.assert_allclose(found.coef[:, 0], (np.linalg.pinv(X) @ Y).T, atol=1e-12)
    assert found.gap < 1e-12


@pytest.mark.parametrize("norm", ["linf", "nuclear"])
def test_scales_of_inputs_and_values(norm: str) -> None:
    X = normal(5, 8)
    Y = normal(5, 2, seed=1)
    plain = min_norm(X, Y, norm, groups=[0, 0, 0, 0, 1, 1, 1, 1])
    scaled = min_norm(1e90 * X, 1e-60 * Y, norm, groups=[0, 0, 0, 0, 1, 1, 1, 1])
    assert scaled.upper * 1e150 == pytest.approx(plain.upper, rel=1e-8)
    assert scaled.status is OPTIMAL


def test_one_output_keeps_the_name_of_its_norm() -> None:
    found = min_norm([[3.0, 4.0]], [5.0], "nuclear")
    assert found.norm.value(found.coef) == pytest.approx(1.0)
    assert found.norm_name == "nuclear"
    assert "nuclear" in repr(found)


def test_scales_of_samples_do_not_matter() -> None:
    X = normal(8, 12)
    y = normal(8, 1, seed=1)[:, 0]
    size = 10.0 ** np.linspace(-8, 8, 8)
    found = min_norm(X * size[:, None], y * size, "l1")
    assert found.gap < GAP
    assert found.upper == pytest.approx(min_norm(X, y, "l1").upper, rel=1e-8)


def test_sparse_coefficients_are_recovered_with_exact_zeros() -> None:
    X = normal(60, 150)
    truth = np.zeros(150)
    truth[[3, 40, 77]] = [1.0, -2.0, 0.5]
    found = min_norm(X, X @ truth, "l1")
    assert np.flatnonzero(found.coef).tolist() == [3, 40, 77]
    np.testing.assert_allclose(found.coef[0], truth, atol=1e-13)
    groups = np.arange(150) // 5
    truth[40:45] = 1.0
    truth[[3, 77]] = 0.0
    found = min_norm(X, X @ truth, groups=groups)
    assert np.flatnonzero(found.coef).tolist() == [40, 41, 42, 43, 44]
    assert np.flatnonzero(found.group_norms).tolist() == [8]
    assert found.group_norms.sum() == pytest.approx(found.upper)


def test_entries_that_are_needed_are_not_set_to_0() -> None:
    """Of rough multipliers, as a time limit leaves them, most entries seem to be inactive."""
    system = LinearSystem(np.eye(3), np.array([[1.0], [0.5], [0.25]]), L1(), (1, 1, 3))
    rough = Point(system.Y.T, np.array([[1.0], [0.1], [0.1]]), "rough")
    np.testing.assert_array_equal(cleaned(system, rough, np.arange(3)[None]).zeta, system.Y.T)


# --- linear programs, KKT conditions -----------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("norm", ["l1", "linf"])
def test_linear_programs_by_highs(norm: str, intercept: bool) -> None:
    """With zeta = p - m: minimize the sum of p + m, or t with p + m <= t."""
    N, D = 8, 20
    X = normal(N, D)
    y = normal(N, 1, seed=1)[:, 0]
    offset = np.ones((N, 1)) * intercept
    A = np.hstack([X, -X, offset, np.zeros((N, 1))])
    cost = np.append(np.ones(2 * D), [0.0, 0.0])
    radii = None
    if norm == "linf":
        cost = np.append(np.zeros(2 * D + 1), 1.0)
        radii = np.hstack([np.eye(D), np.eye(D), np.zeros((D, 1)), -np.ones((D, 1))])
    program = scipy.optimize.linprog(
        cost,
        A_eq=A,
        b_eq=y,
        A_ub=radii,
        b_ub=None if radii is None else np.zeros(D),
        bounds=[(0, None)] * (2 * D) + [(None, None), (0, None)],
    )
    found = min_norm(X, y, norm, intercept=intercept)
    assert found.upper == pytest.approx(program.fun, rel=1e-9)
    if norm == "l1":  # a vertex: as many entries, the offset included, as equations
        zeta = program.x[:D] - program.x[D : 2 * D]
        np.testing.assert_allclose(found.coef[0], zeta, atol=1e-10)
        assert np.count_nonzero(found.coef) == N - intercept


def test_the_group_lasso_obeys_its_kkt_conditions() -> None:
    """zeta_g = ||zeta_g|| V_g, and ||V_g|| < 1 where zeta_g is 0: exactly 0."""
    X = normal(10, 40)
    found = min_norm(X, normal(10, 1, seed=1)[:, 0], groups=np.arange(40) // 4)
    V = found.alpha @ X
    n_zero = 0
    for g in range(10):
        zeta = found.coef[0, 4 * g : 4 * g + 4]
        of_group = V[4 * g : 4 * g + 4]
        if not zeta.any():
            n_zero += 1
            assert np.linalg.norm(of_group) < 1 - 1e-4
        else:
            # An error of zeta counts squared in the gap.
            np.testing.assert_allclose(zeta, np.linalg.norm(zeta) * of_group, atol=1e-5)
    assert 0 < n_zero < 10


# --- brute force in rational numbers -----------------------------------------------------------


def to_rational(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def exact_l1(X: Array, y: Array) -> Fraction:
    """Return the least l1 norm over all basic solutions."""
    N, D = X.shape
    b = fmpq_mat([[to_rational(value)] for value in y])
    best = []
    for columns in itertools.combinations(range(D), N):
        A = fmpq_mat([[to_rational(value) for value in row] for row in X[:, columns]])
        if A.det() != 0:
            w = A.solve(b).entries()
            sizes = [abs(Fraction(int(x.p), int(x.q))) for x in w]
            best.append(sum(sizes, Fraction(0)))
    return min(best)


@pytest.mark.parametrize("degenerate", [False, True])
def test_bounds_hold_of_exact_optima(degenerate: bool) -> None:
    X = normal(3, 6)
    y = normal(3, 1, seed=100)[:, 0]
    if degenerate:  # few digits, many ties
        X = np.round(2 * X)
        y = np.round(2 * y)
    found = min_norm(X, y, "l1")
    optimum = exact_l1(X, y)
    assert Fraction(found.lower) <= optimum <= Fraction(found.upper)
    assert found.gap < GAP


# --- what callers do -----------------------------------------------------------------------------


def test_shapes_follow_those_of_the_values() -> None:
    X = normal(4, 6)
    one = min_norm(X, X[:, 0])
    assert one.coef.shape == (1, 6)
    assert one.alpha.shape == (4,)
    assert one.predict(X).shape == (4,)
    column = min_norm(X, X[:, :1], intercept=True)
    assert column.coef.shape == (1, 1, 6)
    assert np.shape(column.intercept) == (1,)
    assert column.predict(X).shape == (4, 1)
    # One output has one row, (1, M, D), on which norms of singular values are Euclidean norms.
    gated = min_norm(X, X[:, 0], "nuclear", gates=normal(4, 3, seed=1))
    assert gated.coef.shape == (3, 6)
    assert gated.norm.value(gated.coef) == pytest.approx(gated.upper, rel=1e-9)


def test_predictions_take_gates_as_numbers_or_as_a_function() -> None:
    X = normal(5, 3)
    gating = UnitGates.random(X, 4, random_state=0)
    by_function = min_norm(X, X[:, 0], gates=gating, groups=gating.groups)
    by_numbers = min_norm(X, X[:, 0], gates=gating.gates(X), groups=gating.groups)
    np.testing.assert_array_equal(by_function.coef, by_numbers.coef)
    fresh = normal(3, 3, seed=5)
    expected = loop_predictions(by_function, fresh, np.asarray(gating.gates(fresh)), 1)[:, 0]
    np.testing.assert_allclose(by_function.predict(fresh), expected)
    np.testing.assert_allclose(by_numbers.predict(fresh, gating.gates(fresh)), expected)
    with pytest.raises(ValueError, match="5 gates"):
        by_numbers.predict(fresh)


def test_values_without_a_spread_have_the_norm_0() -> None:
    X = normal(4, 6)
    for found in (min_norm(X, np.zeros(4)), min_norm(X, np.full(4, 0.1), intercept=True)):
        assert found.status is OPTIMAL
        assert found.lower == found.upper == found.gap == found.residual == 0
        assert not found.coef.any()


@pytest.mark.parametrize("max_seconds", [1e-9, 0.1])
def test_a_time_limit_leaves_valid_bounds(max_seconds: float) -> None:
    """Before and during the solver's iterations."""
    X = normal(150, 400)
    y = normal(150, 1, seed=1)[:, 0]
    found = min_norm(X, y, Lp(3), max_seconds=max_seconds)
    assert found.status is InterpolationStatus.TIME_LIMIT
    assert found.residual < 1e-11
    optimum = min_norm(X, y, Lp(3))
    assert 0 < found.lower <= optimum.upper
    assert optimum.lower <= found.upper < np.inf


class Failing(CvxpyBackend):
    """A solver that finds nothing."""

    def solve(self, *arguments: Any, **options: Any) -> None:
        """Fail as CVXPY does."""
        raise cp.SolverError("no solution")


@pytest.mark.parametrize(
    ("failing", "method", "gap"),
    [(("clarabel",), "scs", GAP), (("clarabel", "scs"), "closed form", 10.0)],
    ids=["one", "both"],
)
def test_solvers_that_fail(
    failing: tuple[str, ...], method: str, gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = normal(6, 10)
    y = normal(6, 1, seed=1)[:, 0]
    optimum = min_norm(X, y, "l1")
    for name in failing:
        monkeypatch.setitem(BACKENDS, name, Failing(**vars(BACKENDS[name])))
    found = min_norm(X, y, "l1")
    assert found.method == method
    assert (found.status is OPTIMAL) == (method == "scs")
    assert found.gap < gap
    assert found.lower <= optimum.upper
    assert found.upper >= optimum.lower


def test_norms_without_a_closed_form_need_cvxpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is said before any work: here the coefficients would be 0."""
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    X = normal(4, 6)
    norm: Any
    for norm in ("l1", "linf", Lp(3), Stranger(3.0)):
        with pytest.raises(ImportError, match=r"implicit-bias\[cvxpy\]"):
            min_norm(X, np.zeros(4), norm)
    with pytest.raises(ImportError, match="cvxpy"):
        min_norm(X, np.zeros(4), groups=[0, 0, 0, 1, 1, 1])
    for norm in ("l2", "spectral", "nuclear", Schatten(3)):
        assert min_norm(X, normal(4, 2, seed=1), norm).status is OPTIMAL


def test_custom_norms_go_to_clarabel() -> None:
    X = normal(6, 10)
    y = normal(6, 1, seed=1)[:, 0]
    found = min_norm(X, y, Stranger(3.0))
    assert found.status is OPTIMAL
    assert found.method == "clarabel"
    assert found.upper == pytest.approx(3.0 * min_norm(X, y, "l2").upper, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "word"),
    [
        (([[np.nan]], [1.0]), {}, ValueError, "NaN"),
        (([[1.0]], [1.0, 2.0]), {}, ValueError, "one row"),
        (([[1.0]], [[[1.0]]]), {}, ValueError, "axes"),
        (([[1.0]], [1.0], "l7"), {}, ValueError, "norm"),
        (([[1.0, 2.0]], [1.0]), {"groups": [0]}, ValueError, "feature, 2, got 1"),
        (([[1.0, 2.0]], [1.0]), {"gates": [[1.0], [1.0]]}, ValueError, "gates"),
        (([[1.0]], [1.0]), {"intercept": "no"}, TypeError, "intercept"),
        (([[1.0]], [1.0]), {"tol": 0}, ValueError, "tol"),
        (([[1e-200]], [1.0]), {}, ValueError, "underflow"),
    ],
)
def test_what_is_refused(arguments: Any, options: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        min_norm(*arguments, **options)


def test_a_norm_that_no_method_takes_is_refused() -> None:
    X = normal(3, 6)
    norm = SumOverGroups(Schatten(3), np.array([0, 0, 0, 1, 1, 1]), -1)
    with pytest.raises(ValueError, match="Schatten"):
        min_norm(X, normal(3, 2, seed=1), norm)


def test_features_beyond_memory_are_refused() -> None:
    with pytest.raises(MemoryError, match="GiB"):
        min_norm(np.ones((2000, 100)), np.ones(2000), gates=np.ones((2000, 1000)))
