"""Reliability: extreme shapes, scales and margins, conflicts, memory, Ctrl-C."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cases
from implicit_bias import MarginProblem, Solution, Status, max_margin, solve, solvers
from implicit_bias.solvers.newton import Newton
from implicit_bias.solvers.working_set import WorkingSet
from oracles import check_optimal, check_overlap

# --- shapes and scales -----------------------------------------------------------------------


def test_more_groups_than_samples() -> None:
    problem = cases.free(cases.cloud(12, 3), list(range(300)))
    check_optimal(solve(problem, **cases.asked("rows", cases.GAP_LIMIT)))


@pytest.mark.parametrize(
    ("solver", "factor", "C", "tol"),
    [
        ("rows", 1e-6, np.inf, cases.GAP_LIMIT),
        # beyond the range of float32
        ("features", 1e-39, np.inf, 1e-6),
        ("working-set", 1e39, 0.3, 1e-6),
        ("feature-space", 1e-39, np.inf, 1e-6),
    ],
)
def test_scaled_inputs(solver: str, factor: float, C: float, tol: float) -> None:
    unscaled = cases.build(cases.cloud(), cases.gln(), C=C)
    problem = cases.build(cases.cloud(), cases.gln(), scale=factor, C=C / factor)
    found = solve(problem, **cases.asked(solver, tol))
    check_optimal(found, tol)
    expected = solve(unscaled, tol=cases.SOLVE_TOL).certificate.upper
    assert factor * found.certificate.upper == pytest.approx(
        expected, rel=max(2 * tol, cases.OBJECTIVE_RTOL)
    )


def test_a_working_set_whose_start_has_all_margins_above_1() -> None:
    """No sample violates, none is a support vector: the first set is chosen as without a start."""
    problem = cases.separable("linear-n-greater-d")
    cold = solve(problem, "working-set")
    wide = MarginProblem(10.0 * problem.X, problem.y, problem.gates, problem.groups)
    start = replace(cold, alpha=100.0 * cold.alpha, group_norms=100.0 * cold.group_norms)
    found = solve(wide, "working-set", start=start)
    check_optimal(found, 1e-6)
    assert 10.0 * found.certificate.upper == pytest.approx(cold.certificate.upper, rel=2e-6)


# --- nearly separable, and not separable -----------------------------------------------------


def close_pairs(size: float) -> MarginProblem:
    """Pair opposite samples, 2 * size apart in x_0 alone: the optimum is 1 / size."""
    X, y = cases.cloud(100, 6)
    X[1::2] = X[::2]
    X[:, 0] = size * y
    return cases.build((X, y), cases.linear)


@pytest.mark.parametrize("solver", cases.NATIVE)
def test_nearly_separable(solver: str) -> None:
    """It ends optimal, or with honest bounds."""
    size = 1e-6
    found = solve(close_pairs(size), **cases.asked(solver))
    assert found.status in (Status.OPTIMAL, Status.NUMERICAL_TROUBLE)
    assert found.certificate.lower <= (1 + 1e-9) / size
    assert found.certificate.upper >= (1 - 1e-9) / size
    assert found.certificate.gap < 1e-3


# --- Ctrl-C ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "step"), [("rows", 1), ("working-set", 1), ("feature-space", 3)]
)
def test_ctrl_c_while_reporting(solver: str, step: int) -> None:
    lines: list[solvers.BoundsAt] = []

    def press(line: solvers.BoundsAt) -> None:
        lines.append(line)
        if len(lines) == step:
            raise KeyboardInterrupt

    assert check_interrupted(solver, press, lines).stats.iterations == step


def test_ctrl_c_within_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    direction = Newton.direction

    def press(self: object, *arguments: object) -> object:
        steps.append(1)
        if len(steps) == 20:
            raise KeyboardInterrupt
        return direction(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Newton, "direction", press)
    lines: list[solvers.BoundsAt] = []
    check_interrupted("features", lines.append, lines)


def check_interrupted(
    solver: str, report: Callable[[solvers.BoundsAt], None], lines: list[solvers.BoundsAt]
) -> Solution:
    problem = cases.separable("gln-circles")
    found = solve(problem, **cases.asked(solver, cases.SOLVE_TOL), on_progress=report)
    assert found.status is Status.INTERRUPTED
    assert "Ctrl-C" in found.message
    assert found.certificate.lower > 0
    check_overlap(found.certificate, cases.best("gln-circles").certificate)
    # What a solver reports of its first steps is in float32.
    assert found.certificate.lower >= lines[-1].lower * (1 - 1e-5)
    return found


def test_no_samples_are_dropped_after_an_interrupted_relaxation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A soft margin cut short says nothing about which samples are in the way."""
    problem = cases.twin("gln")

    def pressed(posed: MarginProblem, *solving: Any) -> Solution:
        if posed.hard_margin:
            return solve(posed, *solving)

        def press(line: solvers.BoundsAt) -> None:
            if line.iteration == 1:
                raise KeyboardInterrupt

        return solve(posed, *solving, on_progress=press)

    monkeypatch.setattr(solvers.relaxation, "solve", pressed)
    relaxed = solvers.solve_relaxed(problem, "drop")
    assert relaxed.solution.status is Status.INTERRUPTED
    assert len(relaxed.dropped) == 0
    assert "Ctrl-C" in relaxed.message


# --- a working set ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_working_set_on_which_no_solve_succeeds_ends() -> None:
    """It had gone round, as what joins for its class could leave again: 76 s for 21 pairs."""
    X = np.array([7e-12, 2e-8, 7e17, -0.06, -7e-15, 6e13, -0.2])[:, None]
    C = np.array([446.0, 299.0, 2.6, 606.0, 2.9, 11.0, 15.0])
    problem = max_margin(X, [0, 1, 2, 2, 0, 3, 1], "spectral", C=C, intercept=True, classes=4)
    assert solve(problem, "working-set").status is not Status.ITERATION_LIMIT


def test_all_rows_join_where_a_few_rounds_would_cost_as_much() -> None:
    """Of noisy samples with a soft margin most support the solution: no set of few will do."""
    X, y = cases.noisy_table(250, 10, flipped=0.3)
    problem = max_margin(X, y, C=1.0)

    def solved(few_rounds: float) -> Solution:
        return solve(problem, WorkingSet(first_size=50, few_rounds=few_rounds))

    at_once, by_rounds = solved(2.0), solved(0.0)
    check_optimal(at_once, 1e-6)
    check_optimal(by_rounds, 1e-6)
    assert at_once.stats.iterations < by_rounds.stats.iterations
    check_overlap(at_once.certificate, by_rounds.certificate, 0.0)
