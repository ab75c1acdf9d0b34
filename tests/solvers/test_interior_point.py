"""The interior point: stages, float32, idle rows and starts change nothing but the time."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

import cases
from implicit_bias import MarginProblem, Solution, Status, max_margin, solve, solvers
from implicit_bias.solvers.newton import FeatureNewton
from implicit_bias.solvers.scaled_rows import ScaledRows
from oracles import check_optimal


def same(first: Solution, second: Solution) -> None:
    check_optimal(first)
    check_optimal(second)
    assert first.certificate.upper == pytest.approx(
        second.certificate.upper, rel=cases.OBJECTIVE_RTOL
    )
    size = np.abs(second.coef).max()
    np.testing.assert_allclose(first.coef / size, second.coef / size, atol=1e-4)


@pytest.mark.parametrize(
    "problem",
    [
        cases.build(cases.cloud(300, 10, shift=3.0), cases.gln(5)),
        cases.build(cases.cloud(300, 10, shift=1.0), cases.units(5), C=0.1),
    ],
    ids=["hard", "soft"],
)
def test_idle_samples_change_nothing(
    problem: MarginProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of enough samples with clear margins many become idle."""
    orders: list[int] = []
    subset = ScaledRows.subset

    def spy(self: ScaledRows, index: torch.Tensor) -> ScaledRows:
        orders.append(len(index))
        return subset(self, index)

    monkeypatch.setattr(ScaledRows, "subset", spy)
    tolerances = solvers.Tolerances(gap=cases.SOLVE_TOL)
    split = solve(problem, solvers.InteriorPoint(system="rows", tolerances=tolerances))
    assert min(orders) < 0.7 * problem.n_samples
    orders.clear()
    method = solvers.InteriorPoint(system="rows", tolerances=tolerances, idle_gap=0.0)
    whole = solve(problem, method)
    assert not orders
    same(split, whole)
    assert split.stats.iterations <= whole.stats.iterations + 2


@pytest.mark.parametrize(
    ("name", "coarse"),
    [("gln", 1e-6), ("sparse-gates", 0.9), ("soft-large-c", 1e-6)],
)
def test_the_float32_phase_changes_nothing(name: str, coarse: float) -> None:
    """Wherever it ends: at the first iterates (0.9), or beyond what float32 can do (1e-6)."""
    problem = cases.separable(name)
    tolerances = solvers.Tolerances(gap=cases.GAP_LIMIT)
    method = solvers.InteriorPoint(tolerances=tolerances, coarse_gap=coarse, coarse_rows=0)
    found = solve(problem, method)
    same(found, solve(problem, "interior-point", tol=cases.GAP_LIMIT))


def test_products_with_too_few_digits_are_summed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refinements that do not shrink tell: once for all steps, which are those of float64 then."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    scores = X @ rng.normal(size=(6, 3)) + rng.normal(size=(200, 3))
    problem = max_margin(X, scores.argmax(axis=1), C=1.0)
    method = solvers.InteriorPoint(
        system="features", tolerances=solvers.Tolerances(gap=cases.GAP_LIMIT)
    )
    fine = solve(problem, replace(method, coarse_gap=0.0))
    same(solve(problem, method), fine)
    anew = []
    own = FeatureNewton._factorise_in_float64

    def counted(system: FeatureNewton) -> None:
        anew.append(system)
        own(system)

    monkeypatch.setattr(FeatureNewton, "_factorise_in_float64", counted)
    monkeypatch.setattr(ScaledRows, "_coarse_X", property(lambda rows: 0.1 * rows.X.float()))
    wrong = solve(problem, method)
    same(wrong, fine)
    assert len(anew) == 1
    assert wrong.stats.iterations == pytest.approx(fine.stats.iterations, abs=1)


def test_soft_margins_go_on_in_float64() -> None:
    """Slacks as float32 rounds them are not what alpha leaves of C: the steps had stalled."""
    rng = np.random.default_rng(5)
    y = np.arange(250) % 3
    X = rng.normal(size=(3, 6))[y] + rng.normal(size=(250, 6))
    gates = (rng.random((250, 4)) > 0.4) * 1.0
    gates[:, 0] = 1.0
    problem = MarginProblem(X, y.astype(np.float64), gates, np.array([0, 0, 1, 1]), C=5.0)
    check_optimal(solve(problem, "interior-point"), 1e-6)


def test_with_a_separator_at_hand_no_stall_is_a_sign_of_inseparability() -> None:
    """Of a gap that no float64 reaches, with all dual variables suspected of being a proof."""
    problem = cases.separable("gln")
    method = solvers.InteriorPoint(
        system="rows", tolerances=solvers.Tolerances(gap=1e-16), suspicious=0.0
    )
    found = method.run(problem)
    assert found.status is Status.NUMERICAL_TROUBLE
    assert solve(problem, method).certificate.gap < cases.GAP_LIMIT


@pytest.mark.parametrize("system", ["rows", "features"])
def test_it_ends_by_itself_in_a_few_steps(system: Literal["rows", "features"]) -> None:
    """Before any grade: one stage is enough, and its bounds meet."""
    problem = cases.build(cases.cloud(60, 4, shift=1.0), cases.units(3), C=0.1)
    tolerances = solvers.Tolerances(gap=cases.SOLVE_TOL)
    found = solvers.InteriorPoint(system=system, tolerances=tolerances).run(problem)
    last = found.history[-1]
    assert found.status is Status.OPTIMAL
    assert last.upper / last.lower - 1.0 <= cases.SOLVE_TOL
    assert found.iterations <= 20
