"""One C a sample: the program against CVXPY, its bounds against rationals, and what it equals."""

import itertools
import pickle
import warnings
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cases import GAP_LIMIT, OBJECTIVE_RTOL, asked, build, gln, mostly_slow, units
from implicit_bias import MarginProblem, Status, certify, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import dual_scale, repaired
from implicit_bias.bounds.exact import ExactAnswer, certify_exact
from implicit_bias.bounds.upper import best_scale, value_of_zero
from implicit_bias.solvers.paths import C_grid, path_over_C, smallest_C

N, D = 24, 4
GROUPS = np.array([0, 0, 1, 1])
NORMS = ("l2", "groups", "l1", "linf", "spectral", "nuclear")
CASES = list(itertools.product(NORMS, (2, 3), (False, True)))
FAST = [("groups", 2, True), ("linf", 3, True), ("nuclear", 3, False), ("l2", 2, False)]


def drawn(classes: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Draw samples that nothing separates, and a C of each over three decades."""
    rng = np.random.default_rng(seed)
    y = np.arange(N) % classes
    X = rng.normal(size=(N, D)) + 0.7 * np.eye(3, D)[y]
    labels = np.where(y == 1, 1.0, -1.0) if classes == 2 else y.astype(np.float64)
    return X, labels, np.asarray(10.0 ** rng.uniform(-2, 1, N), dtype=np.float64)


def posed(norm: str, classes: int, intercept: bool, seed: int = 0) -> MarginProblem:
    X, y, C = drawn(classes, seed)
    if norm == "groups":
        return max_margin(X, y, "l2", groups=GROUPS, C=C, intercept=intercept)
    return max_margin(X, y, norm, C=C, intercept=intercept)


def omega(norm: str, W: cp.Expression) -> cp.Expression:
    if norm == "groups":
        return sum(cp.norm(W[:, GROUPS == g], "fro") for g in range(2))
    of = {
        "l2": lambda W: cp.norm(W, "fro"),
        "l1": lambda W: cp.sum(cp.abs(W)),
        "linf": lambda W: cp.max(cp.abs(W)),
        "spectral": cp.sigma_max,
        "nuclear": cp.normNuc,
    }
    return of[norm](W)


def optimum(problem: MarginProblem, norm: str) -> float:
    """Return what CVXPY finds for the primal as the module's head writes it."""
    K = problem.classes or 1
    W, b, xi = cp.Variable((K, D)), cp.Variable((1, K)), cp.Variable(N, nonneg=True)
    f = problem.X @ W.T + np.ones((N, 1)) @ b
    if problem.classes is None:
        constraints = [cp.multiply(problem.y, f[:, 0]) >= 1 - xi]
    else:
        pairs = [(n, k) for n in range(N) for k in range(K) if k != problem.y[n]]
        constraints = [f[n, int(problem.y[n])] - f[n, k] >= 1 - xi[n] for n, k in pairs]
    constraints += [] if problem.intercept else [b == 0]
    program = cp.Problem(cp.Minimize(omega(norm, W) + problem.C @ xi), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(program.solve(solver="CLARABEL"))


@pytest.mark.parametrize("case", mostly_slow(CASES, FAST), ids=str)
def test_the_optimum_is_cvxpys(case: tuple[str, int, bool]) -> None:
    norm, _, _ = case
    problem = posed(*case)
    found = solve(problem, tol=1e-7)
    assert found.status is Status.OPTIMAL
    expected = optimum(problem, norm)
    assert found.certificate.upper == pytest.approx(expected, rel=1e-5)
    assert (problem.totals(found.alpha) <= problem.C).all()
    even = solve(replace(problem, C=float(np.mean(problem.C))))
    assert abs(even.certificate.upper / expected - 1.0) > 1e-3  # so the weights matter here


SOLVERS = {
    "interior-point": ("l2", "groups", "spectral", "nuclear"),
    "working-set": ("l2", "groups", "spectral", "nuclear"),
    "feature-space": ("l2", "spectral", "nuclear"),
    "active-set": ("l2", "groups"),
    "one-group": ("l2",),
    "highs": ("l1", "linf"),
    "multiprecision": ("l2", "linf"),
    "clarabel": NORMS,
}


@pytest.mark.parametrize(
    ("solver", "case"),
    [
        pytest.param(solver, case, marks=() if case[0] in names[:1] else pytest.mark.slow)
        for solver, names in SOLVERS.items()
        for case in CASES
        if case[0] in names and (solver != "active-set" or case[1] == 2)
    ],
    ids=str,
)
def test_every_solver_takes_weights(solver: str, case: tuple[str, int, bool]) -> None:
    problem = posed(*case)
    best = solve(problem, tol=GAP_LIMIT)
    found = solve(problem, **asked(solver, 1e-5))
    assert found.certificate.gap <= 1e-4
    assert found.certificate.upper == pytest.approx(best.certificate.upper, rel=1e-4)


@pytest.mark.parametrize("solver", ["auto", "working-set", "active-set", "ecos"])
def test_gated_programs_take_weights(solver: str) -> None:
    """ECOS solves the dual, so that it says the box in another way than the native methods."""
    X, y, C = drawn(2)
    problem = replace(build((X, y), gln(3)), C=C)
    assert problem.n_groups == 3
    found = solve(problem, **asked(solver, 1e-6))
    reference = solve(problem, "clarabel", 1e-7)
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(reference.certificate.upper, rel=1e-5)


# --- what it equals ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", mostly_slow(CASES, FAST[:2]), ids=str)
def test_a_sample_twice_has_twice_the_weight(case: tuple[str, int, bool]) -> None:
    problem = posed(*case)
    again = np.append(np.arange(N), [3, 7])
    twice = problem.subset(again)
    doubled = np.where(np.isin(np.arange(N), [3, 7]), 2.0, 1.0) * problem.C
    one, other = solve(twice, tol=GAP_LIMIT), solve(replace(problem, C=doubled), tol=GAP_LIMIT)
    assert one.certificate.upper == pytest.approx(other.certificate.upper, rel=OBJECTIVE_RTOL)


def test_equal_weights_are_a_number() -> None:
    problem = posed("l2", 2, True)
    for C in (np.full(N, 2.0), [2] * N, np.full(N, np.float32(2)), np.float64(2), np.array(2.0)):
        same = replace(problem, C=C)  # type: ignore[arg-type]
        assert isinstance(same.C, float)
        assert same.C == 2.0
    assert replace(problem, C=np.full(N, np.inf)).hard_margin
    assert problem.subset(np.array([0, 1])).C.shape == (2,)  # type: ignore[union-attr]


def test_weights_are_owned_and_kept() -> None:
    X, y, C = drawn(2)
    problem = max_margin(X, y, C=C)
    C[0] = 77.0
    assert problem.box[0] != 77.0
    again = pickle.loads(pickle.dumps(problem))
    np.testing.assert_array_equal(again.C, problem.C)
    for one in (problem, again):
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(one.C)[0] = 1.0
    assert "C=0.01" in repr(problem)
    np.testing.assert_array_equal(problem.subset(np.array([3, 1])).C, problem.box[[3, 1]])


REFUSED: dict[str, tuple[Any, str]] = {
    "mixed": (np.append(np.ones(N - 1), np.inf), "inf for some"),
    "zero": (np.append(np.ones(N - 1), 0.0), r"\(0, inf\].*weight 0"),
    "negative": (np.append(np.ones(N - 1), -1.0), r"\(0, inf\]"),
    "nan": (np.append(np.ones(N - 1), np.nan), r"\(0, inf\]"),
    "short": (np.ones(N - 1), "shape"),
    "matrix": (np.ones((N, 1)), "shape"),
    "tiny": (np.append(np.ones(N - 1), 1e-300), "between"),
    "masked": (np.ma.masked_less(np.ones(N), 0), "masked"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_weights_are_refused(name: str) -> None:
    C, match = REFUSED[name]
    X, y, _ = drawn(2)
    with pytest.raises(ValueError, match=match):
        max_margin(X, y, C=C)


# --- bounds, by brute force ----------------------------------------------------------------------


def exactly(values: Any) -> list[Fraction]:
    return [Fraction(value) for value in np.ravel(values).tolist()]


def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((p * q for p, q in zip(a, b, strict=True)), Fraction(0))


@pytest.mark.parametrize("seed", range(5))
def test_bounds_are_those_of_rationals(seed: int) -> None:
    """Of linf, whose value and dual are rational; the scale of zeta is tried at all kinks."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-3, 4, (6, 2)).astype(float), np.array([1.0, -1.0] * 3)
    problem = max_margin(X, y, "linf", C=rng.choice([0.1, 0.3, 0.7, 2.0], 6) + 0.05 * np.arange(6))
    coef, alpha = rng.integers(-2, 3, (1, 2)) + 0.3, rng.random(6)
    C, a, signs = exactly(problem.box), exactly(alpha), exactly(y)
    rows, w = [exactly(x) for x in X], exactly(coef)
    q = [s * dot(x, w) for s, x in zip(signs, rows, strict=True)]

    def value(c: Fraction) -> Fraction:
        losses = [max(Fraction(0), 1 - c * m) for m in q]
        return c * max(abs(part) for part in w) + dot(C, losses)

    upper = min(map(value, [Fraction(0), *(1 / m for m in q if m > 0)]))
    each = [p * s for p, s in zip(a, signs, strict=True)]
    V = [dot(each, [x[j] for x in rows]) for j in range(2)]
    scale = min(1 / (abs(V[0]) + abs(V[1])), *(c / p for c, p in zip(C, a, strict=True)))
    lower = scale * sum(a, Fraction(0))
    found = certify(problem, coef, alpha)
    assert Fraction(found.lower) <= lower <= upper <= Fraction(found.upper)
    assert found.lower == pytest.approx(float(lower), rel=1e-12)
    assert found.upper == pytest.approx(float(upper), rel=1e-12)
    assert dual_scale(problem, alpha) == pytest.approx(float(scale), rel=1e-12)
    stored: Any = [np.array(values, dtype=object) for values in ([w], a)]
    exact = certify_exact(problem, ExactAnswer(*stored))
    assert exact.lower == pytest.approx(float(lower), rel=1e-12)
    assert Fraction(exact.lower) <= lower
    assert exact.upper == pytest.approx(float(value(Fraction(1))), rel=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_value_of_zero_is_that_of_its_best_offsets(classes: int, intercept: bool) -> None:
    problem = posed("l2", classes, intercept)
    C = problem.box
    sums = [float(C[problem.owners == k].sum()) for k in range(classes)]
    best = min(sum(sums), *(2.0 * (sum(sums) - own) for own in sums)) if intercept else sum(sums)
    assert value_of_zero(problem) == pytest.approx(best, rel=1e-14)
    zero = certify(problem, np.zeros(problem.coef_shape))
    assert zero.upper == pytest.approx(best, rel=1e-14)


def test_scales_and_offsets_are_the_best() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        margins, C = rng.normal(size=9), 10.0 ** rng.uniform(-2, 2, 9)

        def value(c: float, margins: Array = margins, C: Array = C) -> float:
            return 0.5 * c + float(C @ np.maximum(0.0, 1.0 - c * margins))

        kinks = [0.0, *(1.0 / margins[margins > 0])]
        assert value(best_scale(0.5, margins, C)) == pytest.approx(min(map(value, kinks)))
    problem = posed("l2", 2, True)
    coef = rng.normal(size=(1, D))
    f = (problem.X @ coef.T)[:, 0]
    given = [certify(problem, coef, intercept=float(b)).upper for b in np.linspace(-3, 3, 601)]
    assert certify(problem, coef).upper <= min(given) * (1 + 1e-9)
    assert f.any()


def test_repaired_dual_variables_stay_in_their_boxes() -> None:
    for classes in (2, 3):
        problem = posed("l2", classes, True)
        rows = problem.constraints
        alpha = rows.alpha(np.random.default_rng(1).random(len(rows)))
        found = repaired(problem, alpha, problem.box)
        assert found.any()
        assert (problem.totals(found) <= problem.box * (1 + 1e-15)).all()
        assert certify(problem, alpha=found).lower > 0


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
def test_paths_scale_all_weights_alike(intercept: bool) -> None:
    X, y, C = drawn(2)
    X[:, 0] += 4.0 * y  # separable
    problem = max_margin(X, y, C=C, intercept=intercept)
    hard = solve(replace(problem, C=np.inf))
    grid = C_grid(problem, hard, 4)
    *_, last = path_over_C(problem, grid)
    assert last.certificate.upper == pytest.approx(hard.certificate.upper, rel=1e-5)
    np.testing.assert_allclose(last.problem.box, grid[-1] * C / C.max())  # type: ignore[union-attr]
    assert (problem.shares * grid[-1] >= hard.alpha * (1 - 1e-12)).all()
    below = replace(problem, C=0.999 * smallest_C(problem) * problem.shares)
    assert solve(below).certificate.lower == pytest.approx(value_of_zero(below), rel=1e-5)


def test_units_that_are_trained_keep_weights_in_a_subset() -> None:
    """The working set prices all samples, each at its own C."""
    X, y, C = drawn(2, seed=4)
    problem = replace(build((X, y), units(3)), C=C)
    small = solve(problem, **asked("working-set", 1e-7, 6))
    assert small.status is Status.OPTIMAL
    whole = solve(problem, tol=1e-7)
    assert small.certificate.upper == pytest.approx(whole.certificate.upper, rel=1e-6)
