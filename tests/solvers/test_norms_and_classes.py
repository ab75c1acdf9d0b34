"""Every solver on many classes and all norms: its answer, certified, against CVXPY's optimum."""

import math
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cases import asked, case_table, dense
from implicit_bias import Status, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.norms import (
    L1,
    L2,
    GroupNorm,
    LInf,
    Lp,
    MaxOverGroups,
    Norm,
    Nuclear,
    Spectral,
    SumOverGroups,
)
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.masked_gram import masked_gram
from implicit_bias.solvers.base import Solution, Solver, Tolerances
from implicit_bias.solvers.choice import choose_solver
from implicit_bias.solvers.linear_program import LinearProgram

DATA = Path(os.environ.get("IMPLICIT_BIAS_DATA", "data")) / "multiclass-separable"
FEATURES = np.array([0, 0, 1, 2, 1])
GATES = np.array([0, 1, 0])
HARD, SOFT = math.inf, 0.05


def clusters(n: int = 45, d: int = 5, k: int = 3, spread: float = 0.5) -> tuple[Array, Any]:
    rng = np.random.default_rng(1)
    y = np.arange(n) % k
    return 2.0 * rng.normal(size=(k, d))[y] + spread * rng.normal(size=(n, d)), y


def linear(norm: Norm, C: float = HARD, *, intercept: bool = False, k: int = 3) -> MarginProblem:
    X, y = clusters(k=k)
    labels = 2 * y - 1 if k == 2 else y
    return max_margin(X, labels, norm, C=C, intercept=intercept)


def gated(C: float = HARD, *, apart: bool = False) -> MarginProblem:
    X, y = clusters()
    gates = (np.random.default_rng(2).random((45, 3)) < 0.7) + 0.1
    norm = GroupNorm(GATES, apart=apart)
    return MarginProblem(X, y, gates, GATES, C=C, norm=norm)


NATIVE: dict[str, MarginProblem] = {
    "l2": linear(L2()),
    "l2-intercept": linear(L2(), intercept=True),
    "l2-soft": linear(L2(), SOFT),
    "l2-soft-intercept": linear(L2(), SOFT, intercept=True),
    "features": linear(SumOverGroups(L2(), FEATURES, axis=-1)),
    "gated": gated(),
    "gated-apart": gated(apart=True),
    "gated-soft": gated(SOFT, apart=True),
}
TWO = {
    "features": linear(SumOverGroups(L2(), FEATURES, axis=-1), k=2),
    "l2": linear(L2(), SOFT, intercept=True, k=2),
    "spectral": linear(Spectral(), k=2),
}
LINEAR: dict[str, MarginProblem] = {
    "l1": linear(L1()),
    "l1-soft": linear(L1(), SOFT, intercept=True),
    "linf": linear(LInf()),
    "linf-intercept": linear(LInf(), intercept=True),
    "linf-soft": linear(LInf(), SOFT),
    "linf-of-features": linear(SumOverGroups(LInf(), FEATURES, axis=-1)),
    "l1-two": linear(L1(), k=2, intercept=True),
    "linf-two": linear(LInf(), SOFT, k=2),
}
BALLS: dict[str, MarginProblem] = {
    "nuclear": linear(Nuclear()),
    "nuclear-intercept": linear(Nuclear(), intercept=True),
    "nuclear-two": replace(linear(Nuclear(), k=2), y=clusters(k=2)[1], norm=Nuclear(), classes=2),
    "nuclear-gated": replace(gated(), norm=Nuclear()),
    "nuclear-soft": linear(Nuclear(), SOFT, intercept=True),
    "spectral": linear(Spectral()),
    "spectral-intercept": linear(Spectral(), intercept=True),
    "spectral-soft": linear(Spectral(), SOFT),
    "spectral-gated": replace(gated(SOFT), norm=Spectral()),
    "l1": linear(L1(), intercept=True),
    "l1-soft": linear(L1(), SOFT),
    "linf": linear(LInf()),
    "linf-soft": linear(LInf(), SOFT, intercept=True),
}
PER_GATE = SumOverGroups(Nuclear(), GATES)
# One ball for each group of gates.
BALLS_OF_GROUPS: dict[str, MarginProblem] = {
    "hard": replace(gated(), norm=PER_GATE),
    "intercept": replace(gated(), norm=PER_GATE, intercept=True),
    "soft": replace(gated(SOFT), norm=PER_GATE, intercept=True),
}
CONIC: dict[str, MarginProblem] = {
    "l3": linear(Lp(3.0)),
    "l3-two": linear(Lp(3.0), k=2),
}


@cache
def reference(problem: MarginProblem) -> Solution:
    return solve(problem, "clarabel", 1e-6)


def agrees(problem: MarginProblem, solver: str | Solver, tol: float = 1e-8) -> None:
    known = reference(problem)
    assert known.certificate.gap <= 1e-4, known.message
    by = asked(solver, tol, 15) if isinstance(solver, str) else {"solver": solver}
    found = solve(problem, **by)
    assert found.status is Status.OPTIMAL, found.message
    assert found.certificate.lower <= known.certificate.upper * (1 + 1e-12)
    assert found.certificate.upper >= known.certificate.lower * (1 - 1e-12)
    assert found.coef.shape == problem.coef_shape
    assert found.alpha.shape == problem.alpha_shape
    margins = problem.margins(problem.decision(found.coef), found.intercept)
    assert set(np.flatnonzero(margins < 1 - 1e-6)) <= set(found.support)


@pytest.mark.parametrize("name", NATIVE)
def test_interior_point(name: str) -> None:
    agrees(NATIVE[name], "interior-point")


@pytest.mark.parametrize("name", ["l2", "l2-soft-intercept", "gated-apart"])
def test_working_set_of_pairs(name: str) -> None:
    agrees(NATIVE[name], "working-set", 1e-7)


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("solver", ["auto", "interior-point"])
def test_two_classes_under_sums_of_euclidean_norms(name: str, solver: str) -> None:
    agrees(TWO[name], solver)


@pytest.mark.parametrize("name", LINEAR)
def test_linear_programs(name: str) -> None:
    tolerances = Tolerances(gap=1e-8)
    agrees(LINEAR[name], LinearProgram(tolerances=tolerances, first_rows=12, first_columns=0.2))


@pytest.mark.parametrize("name", CONIC)
def test_other_norms_are_solved_by_default(name: str) -> None:
    found = solve(CONIC[name], tol=1e-5)
    assert found.status is Status.OPTIMAL, found.message


def test_scs_takes_any_norm() -> None:
    agrees(BALLS["nuclear"], "scs", 1e-4)


@pytest.mark.parametrize(
    ("name", "solver"),
    case_table(
        BALLS,
        ["interior-point", "feature-space", "working-set"],
        ["nuclear-intercept", "nuclear-gated", "spectral-soft", "linf"],
    ),
)
def test_norms_with_a_ball(name: str, solver: str) -> None:
    # The normal equations of the features lose more digits than those of the pairs.
    agrees(BALLS[name], solver, 1e-6 if solver == "feature-space" else 1e-7)


@pytest.mark.parametrize("solver", ["interior-point", "working-set"])
@pytest.mark.parametrize("name", BALLS_OF_GROUPS)
def test_nuclear_norms_of_groups(name: str, solver: str) -> None:
    agrees(BALLS_OF_GROUPS[name], solver, 1e-9)


def test_one_group_of_gates_has_one_nuclear_norm() -> None:
    problem = BALLS["nuclear-gated"]
    one = replace(problem, norm=SumOverGroups(Nuclear(), np.zeros(3, dtype=int)))
    first, second = (solve(posed, "interior-point", 1e-9).certificate for posed in (problem, one))
    assert first.upper == pytest.approx(second.upper, rel=1e-8)


def test_groups_of_gates_that_separate_nothing() -> None:
    problem = BALLS_OF_GROUPS["hard"]
    X = problem.X.copy()
    X[3], gates = X[0], dense(problem.gates)
    gates[3] = gates[0]
    y = np.asarray(problem.y).copy()
    y[3] = (y[0] + 1) % 3
    twins = replace(problem, X=X, y=y, gates=gates)
    X[3] *= 2.0  # not the same features, and not separable either
    scaled = replace(twins, X=X)
    for posed in (twins, scaled):
        assert solve(posed).status is Status.NOT_SEPARABLE


@pytest.mark.parametrize("name", ["l2", "l2-intercept", "l2-soft", "l2-soft-intercept"])
def test_euclidean_norm_in_the_space_of_the_features(name: str) -> None:
    agrees(NATIVE[name], "feature-space", 1e-7)


@pytest.mark.parametrize("norm", ["l2", "nuclear", "spectral", "l1", "linf"])
@pytest.mark.parametrize("solver", ["feature-space", "working-set"])
def test_optima_known_by_symmetry(norm: str, solver: str) -> None:
    """Of the three unit vectors: zeta is I - 1/3, or for l1 I and for l_inf the signs over 2."""
    optimum = {"l2": 2**0.5, "nuclear": 2.0, "spectral": 1.0, "l1": 3.0, "linf": 0.5}[norm]
    found = solve(max_margin(np.eye(3), [0, 1, 2], norm), solver, 1e-7)
    assert found.certificate.lower <= optimum <= found.certificate.upper
    assert found.certificate.gap <= 1e-7


@pytest.mark.parametrize("solver", ["interior-point", "feature-space"])
def test_norms_of_singular_values_are_one_for_two_classes(solver: str) -> None:
    X, y = clusters(k=2)
    ones, zero = np.ones((45, 1)), np.zeros(1, dtype=int)
    binary = solve(max_margin(X, 2 * y - 1), tol=1e-9).certificate.upper
    for norm in (Nuclear(), Spectral()):
        posed = MarginProblem(X, y, ones, zero, norm=norm, classes=2)
        found = solve(posed, solver, 1e-8).certificate.upper
        assert found == pytest.approx(binary / 2**0.5, rel=1e-7)


@pytest.mark.parametrize("norm", ["nuclear", "spectral", "linf", "l1"])
@pytest.mark.parametrize("solver", ["interior-point", "feature-space", "working-set"])
def test_balls_of_samples_that_are_not_separable(norm: str, solver: str) -> None:
    X, y = clusters()
    X = np.round(8 * X)
    X[[0, 3]] = 2 * np.round(X[[0, 3]] / 2)
    X[1] = (X[0] + X[3]) / 2
    found = solve(max_margin(X, y, norm), solver)
    assert found.status is Status.NOT_SEPARABLE, found.message


@pytest.mark.slow
@given(
    norm=st.sampled_from(["nuclear", "spectral", "l1", "linf", "l2"]),
    solver=st.sampled_from(["feature-space", "working-set", "auto"]),
    K=st.integers(2, 5),
    D=st.integers(1, 6),
    soft=st.booleans(),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
@example(norm="nuclear", solver="working-set", K=4, D=2, soft=False, intercept=True, seed=4443)
@example(norm="spectral", solver="working-set", K=5, D=2, soft=True, intercept=True, seed=990)
@example(norm="spectral", solver="working-set", K=5, D=2, soft=True, intercept=True, seed=28)
@settings(max_examples=60, deadline=None)
def test_balls_of_random_problems(
    norm: str, solver: str, K: int, D: int, soft: bool, intercept: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y: Any = np.arange(20) % K
    X = 3.0 * rng.normal(size=(K, D))[y] + rng.normal(size=(20, D))
    C = 10.0 ** rng.uniform(-2, 1) if soft else HARD
    ones, zero = np.ones((20, 1)), np.zeros(1, dtype=int)
    posed = max_margin(X, np.arange(20) % 3, norm).norm
    problem = MarginProblem(X, y, ones, zero, C=C, norm=posed, intercept=intercept, classes=K)
    found, known = solve(problem, solver), solve(problem, "clarabel")
    if solver == "auto" or known.status is Status.OPTIMAL:
        assert found.status in (Status.OPTIMAL, Status.NOT_SEPARABLE), found.message
    assert found.certificate.lower <= known.certificate.upper * (1 + 1e-12)
    assert found.certificate.upper >= known.certificate.lower * (1 - 1e-12)


@pytest.mark.slow
@given(
    solver=st.sampled_from(["interior-point", "working-set", "auto"]),
    K=st.integers(3, 5),
    groups=st.lists(st.integers(0, 2), min_size=3, max_size=5).filter(
        lambda g: set(g) == {0, 1, 2}
    ),
    soft=st.booleans(),
    intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
@example(solver="working-set", K=5, groups=[0, 1, 2], soft=False, intercept=True, seed=517)
@settings(max_examples=30, deadline=None)
def test_groups_of_random_problems(
    solver: str, K: int, groups: list[int], soft: bool, intercept: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y: Any = np.arange(20) % K
    X = 3.0 * rng.normal(size=(K, 3))[y] + rng.normal(size=(20, 3))
    gates = rng.normal(size=(20, len(groups))) * (rng.random((20, len(groups))) < 0.8)
    of_gates = np.array(groups)
    norm = SumOverGroups(Nuclear(), of_gates)
    C = 10.0 ** rng.uniform(-2, 1) if soft else HARD
    problem = MarginProblem(X, y, gates, of_gates, C=C, norm=norm, intercept=intercept)
    found, known = solve(problem, solver), solve(problem, "clarabel")
    if solver == "auto" or known.status is Status.OPTIMAL:
        assert found.status in (Status.OPTIMAL, Status.NOT_SEPARABLE), found.message
    assert found.certificate.lower <= known.certificate.upper * (1 + 1e-12)
    assert found.certificate.upper >= known.certificate.lower * (1 - 1e-12)


def test_choices() -> None:
    assert choose_solver(LINEAR["l1"]) == "highs"
    assert choose_solver(CONIC["l3"]) == "clarabel"
    for axis in (-1, -2):  # cones of order 154, of which Clarabel needs 20 GiB
        sums, labels = SumOverGroups(Spectral(), np.arange(4), axis), cast(Any, np.arange(5))
        ones = np.ones((5, 4))
        many = MarginProblem(ones, labels, ones, np.arange(4), norm=sums, classes=150)
        assert choose_solver(many) == "scs"
    assert choose_solver(BALLS["nuclear-soft"]) == "feature-space"
    assert choose_solver(replace(BALLS["nuclear"], X=np.ones((45, 600)))) == "working-set"
    assert choose_solver(NATIVE["l2"]) == "one-group"
    assert choose_solver(BALLS_OF_GROUPS["hard"]) == "interior-point"
    assert choose_solver(max_margin(*clusters(600))) == "feature-space"
    assert choose_solver(max_margin(*clusters(600, d=100))) == "working-set"
    for norm in ("l1", "linf"):
        assert choose_solver(max_margin(*clusters(600), norm)) == "feature-space"
    for problem, solver in [(CONIC["l3"], "interior-point"), (NATIVE["l2"], "highs")]:
        with pytest.raises(ValueError, match="norm"):
            solve(problem, solver)


def test_the_space_of_the_features_refuses_other_norms() -> None:
    for problem in (CONIC["l3"], NATIVE["gated"], BALLS_OF_GROUPS["hard"]):
        with pytest.raises(ValueError, match="norm"):
            solve(problem, "feature-space")


@pytest.mark.parametrize("solver", ["active-set", "osqp"])
def test_methods_for_two_classes_refuse_more(solver: str) -> None:
    with pytest.raises(ValueError, match="two classes|quadratic"):
        solve(NATIVE["l2"], solver)


@pytest.mark.parametrize("solver", ["interior-point", "working-set", "highs", "clarabel"])
@pytest.mark.parametrize("intercept", [False, True])
def test_classes_that_are_not_separable_are_proven(solver: str, intercept: bool) -> None:
    X, y = clusters()
    X = np.round(8 * X)
    X[[0, 3]] = 2 * np.round(X[[0, 3]] / 2)
    X[1] = (X[0] + X[3]) / 2  # amid two samples of class 0
    norm = "l1" if solver == "highs" else "l2"
    found = solve(max_margin(X, y, norm, intercept=intercept), solver)
    assert found.status is Status.NOT_SEPARABLE, found.message
    assert found.certificate.lower == math.inf
    assert found.alpha.sum() == pytest.approx(1)


def test_a_class_without_samples_never_wins() -> None:
    X, y = clusters()
    for C in (HARD, SOFT):
        whole = max_margin(X, np.where(y == 1, 3, y), C=C, intercept=True)  # no class 1
        found = solve(whole, "interior-point")
        same = solve(max_margin(X, np.where(y == 1, 1, y), C=C, intercept=True), "interior-point")
        assert found.certificate.upper == pytest.approx(same.certificate.upper, rel=1e-5)


def test_equivalent_problems_have_one_optimum() -> None:
    X, y = clusters()
    plain = solve(max_margin(X, y), tol=1e-9).certificate.upper
    assert solve(max_margin(3.0 * X, y), tol=1e-9).certificate.upper == pytest.approx(plain / 3)
    twice = np.repeat(np.arange(45), 2)
    assert solve(max_margin(X[twice], y[twice]), tol=1e-9).certificate.upper == pytest.approx(plain)
    order = np.array([2, 0, 1])
    assert solve(max_margin(X, order[y]), tol=1e-9).certificate.upper == pytest.approx(plain)
    binary = 2 * (y > 0) - 1
    for norm, factor in [("l2", 2**-0.5), ("l1", 1.0), ("linf", 0.5)]:
        two = solve(max_margin(X, binary, norm), tol=1e-9).certificate.upper
        ones, zero = np.ones((45, 1)), np.zeros(1, dtype=int)
        labels: Any = (binary > 0).astype(int)
        posed = MarginProblem(X, labels, ones, zero, norm=max_margin(X, y, norm).norm, classes=2)
        assert solve(posed, tol=1e-9).certificate.upper == pytest.approx(factor * two)


# --- the parts -------------------------------------------------------------------------------


def test_the_class_mask_on_one_gram_matrix() -> None:
    """Q[(n,k),(m,l)] = <e_yn - e_k, e_ym - e_l> (Z Z')_nm (X X')_nm."""
    problem = gated()
    rows = problem.constraints
    features = problem.features.of_rows(rows)
    Z, X, K = np.asarray(problem.gates), problem.X, np.eye(3)
    found = masked_gram(features.X, features.sparse_gates.toarray())
    pairs = list(zip(rows.samples, rows.rivals, strict=True))
    for p, (n, k) in enumerate(pairs[:20]):
        for q, (m, j) in enumerate(pairs[:20]):
            mask = (K[problem.owners[n]] - K[k]) @ (K[problem.owners[m]] - K[j])
            assert found[p, q] == pytest.approx(mask * (Z[n] @ Z[m]) * (X[n] @ X[m]))


# --- published sets --------------------------------------------------------------------------

STORED = [
    (name, norm)
    for name, norms in [
        ("k10-sigma1", ("l2", "linf", "nuclear", "spectral")),
        ("k10-sigma01", ("l2", "linf", "spectral")),
        ("k15-sigma01", ("l2", "linf", "nuclear", "spectral")),
    ]
    for norm in norms
]


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the published sets are not here")
@pytest.mark.parametrize(("name", "norm"), STORED)
def test_stored_margins(name: str, norm: str) -> None:
    """All stored margins are right to 1e-5 but one, which is not the maximum."""
    stored = np.load(DATA / f"{name}.npz")
    found = solve(max_margin(stored["X"], stored["y"], norm), tol=1e-7)
    assert found.status is Status.OPTIMAL
    margin = float(stored[f"margin_{norm}"])
    if (name, norm) == ("k10-sigma01", "linf"):
        assert 1 / found.certificate.upper == pytest.approx(14.708888, rel=1e-6)
        assert margin < 0.1 / found.certificate.upper
    else:
        assert 1 / found.certificate.upper == pytest.approx(margin, rel=1e-5)


# --- sizes far apart -------------------------------------------------------------------------


def mixed_gates(norm: Norm, by: str, classes: int) -> MarginProblem:
    """Gates of 1e-8, 1 and 1e8, one size an entry or one a sample."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 3))
    sizes = 10.0 ** rng.choice([-8, 0, 8], size=(8, 3) if by == "entry" else (8, 1))
    y: Any = rng.choice([-1, 1], 8) if classes == 2 else np.arange(8) % classes
    return MarginProblem(X, y, rng.normal(size=(8, 3)) * sizes, np.array([0, 1, 0]), norm=norm)


@pytest.mark.parametrize("norm", [L1(), LInf()])
@pytest.mark.parametrize("by", ["entry", "sample"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_programs_of_gates_of_many_sizes(norm: Norm, by: str, classes: int) -> None:
    assert solve(mixed_gates(norm, by, classes), "highs").status is Status.OPTIMAL


@pytest.mark.parametrize("norm", [Lp(3.0), MaxOverGroups(L2(), np.array([0, 1, 0]))])
def test_a_separator_bounds_every_norm(norm: Norm) -> None:
    assert solve(mixed_gates(norm, "sample", 2)).certificate.upper < np.inf


@pytest.mark.parametrize("p", [1 + 2.0**-52, 1.001, 1e5, 1e16, 1e300])
@pytest.mark.parametrize("classes", [2, 3])
def test_powers_of_any_exponent(p: float, classes: int) -> None:
    X = np.random.default_rng(1).normal(size=(8, 12))
    y = np.arange(8) % classes
    problem = max_margin(X, 2 * y - 1 if classes == 2 else y, Lp(p))
    assert solve(problem).status is Status.OPTIMAL
