"""The solver in feature space: offsets, ill-conditioned data, scales, limits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer

import cases
from implicit_bias import MarginProblem, Solution, Status, certify, max_margin, solve
from implicit_bias.solvers import Tolerances, choose_solver
from implicit_bias.solvers.base import Candidate
from implicit_bias.solvers.feature_space import (
    Embedding,
    EmbeddingNewton,
    FeatureSpace,
)
from implicit_bias.solvers.second_order import SecondOrderCones
from oracles import check_optimal


def solved(problem: MarginProblem, gap: float = cases.GAP_LIMIT) -> Solution:
    """Solve, and check that the answer is optimal."""
    found = solve(problem, "feature-space", tol=gap)
    check_optimal(found, gap)
    return found


def run(problem: MarginProblem, tol: float = cases.GAP_LIMIT) -> Candidate:
    return FeatureSpace(tolerances=Tolerances(gap=tol)).run(problem)


# --- intercepts ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shift"), [("linear-n-greater-d", 1e5), ("soft-linear", 1e2)])
def test_an_intercept_absorbs_offsets(name: str, shift: float) -> None:
    problem = replace(cases.separable(name), intercept=True)
    moved = run(replace(problem, X=problem.X + shift))
    still = run(problem)
    np.testing.assert_allclose(moved.coef[:, :-1], still.coef[:, :-1], rtol=1e-3, atol=1e-5)
    assert moved.history[-1].upper == pytest.approx(still.history[-1].upper, rel=1e-6)


# --- ill-conditioned data --------------------------------------------------------------------


@pytest.mark.parametrize("constant", [False, True], ids=["raw", "with-constant"])
def test_raw_breast_cancer(constant: bool) -> None:
    data = load_breast_cancer()
    X = np.column_stack([data.data, np.ones(len(data.data))]) if constant else data.data
    y = 2.0 * data.target - 1.0
    certificate = solved(cases.plain(X, y), 1e-6).certificate
    assert certificate.lower <= 24706.2436
    if constant:
        assert certificate.upper < 24706.2436
        solved(cases.plain(X, y, 1e-4), 1e-6)
    else:
        assert certificate.upper >= 24706.2407


@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_offsets(offset: float) -> None:
    """Primal right to 1e-9, up to the rounding of the data's products: margins of 1 from 1e8."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(30) % 2, 1.0, -1.0)
    t = np.round(offset + y * rng.uniform(5, 95, 30))
    above = t[y > 0].min()
    below = t[y < 0].max()
    exact = np.hypot(2.0, above + below) / (above - below)
    problem = cases.plain(np.column_stack([t, np.ones(30)]), y)
    found = run(problem, cases.SOLVE_TOL)
    upper = float(np.linalg.norm(found.coef)) / float((y * problem.decision(found.coef)).min())
    rounding = 2e-16 * offset
    assert upper == pytest.approx(exact, rel=1e-9 + rounding)


@pytest.mark.parametrize("n_features", [3, 10, 40])
def test_a_proof_of_inseparability_on_uneven_and_shifted_features(n_features: int) -> None:
    """V(alpha) is 0 to rounding, in a few steps: no solver behind it helps here."""
    rng = np.random.default_rng(0)
    sizes = np.exp(2.0 * rng.standard_normal(n_features))
    X = sizes * (5.0 + rng.standard_normal((5 * n_features + 40, n_features)))
    problem = max_margin(X, rng.choice([-1.0, 1.0], len(X)), intercept=True)
    found = run(problem)
    assert found.status is Status.NOT_SEPARABLE
    assert found.iterations <= 15
    left = np.abs(problem.dual_vectors(found.alpha)).max()
    assert left <= Tolerances().infeasibility * (found.alpha @ np.linalg.norm(X, axis=1))
    assert abs(found.alpha @ problem.y) <= 1e-12 * found.alpha.sum()


def test_inseparable_data_with_a_large_C() -> None:
    X, y = cases.cloud(60, 3)
    problem = cases.plain(X, y)
    solved(cases.plain(X, y, 1e8 / problem.scale), 1e-6)


@pytest.mark.parametrize(
    ("what", "decades"),
    [("samples", 12), ("features", 6), ("groups", 6)],
    ids=["samples", "features", "groups"],
)
def test_wide_ranges(what: str, decades: int) -> None:
    rng = np.random.default_rng(0)
    problem = cases.build(cases.cloud(), cases.gln())
    X = problem.X
    gates = cases.dense(problem.gates)
    if what == "samples":
        X = X * 10.0 ** rng.uniform(-decades, decades, (len(X), 1))
    elif what == "features":
        X = X * 10.0 ** rng.uniform(-decades, decades, X.shape[1])
    else:
        scales = 10.0 ** rng.uniform(-decades, decades, problem.n_groups)
        gates = gates * scales[problem.groups]
    hard = MarginProblem(X, problem.y, gates, problem.groups)
    for scaled in (hard, replace(hard, C=1.0 / hard.scale)):
        found = run(scaled, 1e-6)
        assert found.status is Status.OPTIMAL
        assert certify(scaled, coef=found.coef, alpha=found.alpha).gap <= 1e-6


@pytest.mark.parametrize("C", [np.inf, 1.0])
def test_ill_conditioned_features_of_many_classes(C: float) -> None:
    """Products of samples, with which the interior point works, have no digits left."""
    rng = np.random.default_rng(3)
    decades = np.logspace(0, 6, 10)
    X = rng.normal(size=(100, 10)) * decades
    y = (X @ (rng.normal(size=(3, 10)) / decades).T).argmax(axis=1)
    problem = max_margin(X, y, C=C, intercept=True)
    solved(problem)
    assert choose_solver(problem) == "feature-space"


# --- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "gap", "C"), [("l2", 1e-10, 0.01), ("nuclear", 1e-10, 0.1), ("spectral", 1e-8, 1.0)]
)
def test_soft_margins_of_many_classes_keep_their_digits(norm: str, gap: float, C: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10))
    matrix = rng.normal(size=(10, 5))
    y = np.where(rng.random(200) < 0.05, rng.integers(0, 5, 200), (X @ matrix).argmax(axis=1))
    solved(max_margin(X, y, norm, C=C), gap)


# --- the Newton system -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "gln",
        "linear-n-greater-d+intercept",
        "soft-linear+intercept",
        "dead-group",
        "l2-intercept",
        "groups-soft-intercept",
    ],
)
@pytest.mark.parametrize("corrected", [False, True])
def test_a_direction_solves_the_linearised_embedding(name: str, corrected: bool) -> None:
    """All equations of the module's head keep the share ``centring`` of what they lack."""
    problem = cases.separable(name)
    run = Embedding(FeatureSpace(), problem, problem.constraints)
    p = run.first_iterate(1.0, 1.0)
    scaled = run.scaled
    torch.manual_seed(0)
    moved = {name: x * (1.0 + 0.1 * torch.rand_like(x)) for name, x in vars(p).items()}
    p = replace(p, **moved)
    B = scaled.B
    T = scaled.T
    c = scaled.c
    C = scaled.C
    tau = p.tau[0]
    cones = SecondOrderCones(scaled.groups, T @ p.v, p.V, p.e, tau - scaled.groups.norms(p.V))
    E = torch.zeros(len(B), len(C), dtype=B.dtype)  # which rows share a box
    if len(C):
        E[range(len(B)), problem.constraints.samples] = 1.0
    equations = {
        "stationarity": B.T @ p.alpha - T.T @ p.V,
        "margins": B @ p.v + E @ p.xi - tau * c - p.s,
        "box": tau * C - E.T @ p.alpha - p.beta,
        "gap": c @ p.alpha - cones.t.sum() - C @ p.xi - p.kappa,
    }
    mu = torch.tensor(0.3, dtype=torch.float64)
    newton = EmbeddingNewton(scaled=scaled, point=p, cones=cones, mu=mu, **equations)
    predictor = newton.direction(0.0) if corrected else None
    centring = 0.2
    d = newton.direction(centring, predictor)
    left = {
        "stationarity": B.T @ d.alpha + T.T @ cones.tail(d.dz),
        "margins": B @ d.v + E @ d.xi - d.tau * c - d.s,
        "box": d.tau * C - E.T @ d.alpha - d.beta,
        "gap": c @ d.alpha - d.ds.head.sum() - C @ d.xi - d.kappa,
    }
    for equation, lacking in equations.items():
        np.testing.assert_allclose(left[equation], (centring - 1.0) * lacking, atol=1e-9)
    np.testing.assert_allclose(cones.tail(d.ds), T @ d.v, atol=1e-9)
    np.testing.assert_allclose(d.dz.head, d.tau.expand(len(d.dz.head)), atol=1e-9)
    for k, ((a, b), (da, db)) in enumerate(zip(p.pairs, d.pairs, strict=True)):
        second = 0.0 * a
        if predictor is not None:
            second = predictor.pairs[k][0] * predictor.pairs[k][1]
        np.testing.assert_allclose(a * b + a * db + b * da + second, centring * mu, atol=1e-9)
    of_cones = (predictor.ds, predictor.dz) if predictor is not None else None
    target = cones.target(centring * mu, of_cones)
    for part in ("minus", "plus", "across"):
        scaled_dz = getattr(cones.squares, part) * getattr(d.dz, part)
        found = scaled_dz + getattr(d.ds, part)
        np.testing.assert_allclose(found, getattr(target, part), atol=1e-9)
