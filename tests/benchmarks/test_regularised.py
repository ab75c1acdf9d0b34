"""Grades of answers to group-lasso programs: bounds against CVXPY and closed forms."""

import cvxpy as cp
import numpy as np
import pytest

from benchmarks.infinite_width.regularised import LOSSES, LossName, certify_regularised
from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem

NAMES: list[LossName] = ["squared", "logistic", "hinge"]


def gated(seed: int = 0, n: int = 25) -> MarginProblem:
    """Six gates in four groups, the first one always on."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    gates = (X @ rng.normal(size=(3, 6)) > 0).astype(float)
    gates[:, 0] = 1.0
    return MarginProblem(X, rng.choice([-1.0, 1.0], n), gates, np.array([0, 0, 1, 2, 2, 3]))


def optimum(
    problem: MarginProblem, loss: LossName, weight: float, targets: Array
) -> tuple[Array, float]:
    """Coefficients and value by a conic solver."""
    zeta = cp.Variable((problem.n_gates, problem.X.shape[1]))
    gates = np.asarray(problem.gates)
    f = cp.sum(cp.multiply(gates @ zeta, problem.X), axis=1)
    losses = {
        "squared": 0.5 * cp.sum_squares(targets - f),
        "logistic": cp.sum(cp.logistic(-cp.multiply(targets, f))),
        "hinge": cp.sum(cp.pos(1 - cp.multiply(targets, f))),
    }
    norms = [cp.norm(zeta[problem.groups == g], "fro") for g in range(problem.n_groups)]
    program = cp.Problem(cp.Minimize(losses[loss] + weight * sum(norms)))
    program.solve(solver=cp.CLARABEL)
    assert zeta.value is not None
    return np.asarray(zeta.value), float(program.value)


def test_real_targets() -> None:
    problem = gated()
    targets = np.random.default_rng(1).normal(size=25) * 3
    coef, value = optimum(problem, "squared", 1.0, targets)
    grade = certify_regularised(problem, coef, loss="squared", weight=1.0, targets=targets)
    assert grade.lower == pytest.approx(value, rel=1e-5)


@pytest.mark.fast("0-0.3-squared", "0-2.0-logistic", "0-0.3-hinge", "1-0.7-squared")
@pytest.mark.parametrize("loss", NAMES)
@pytest.mark.parametrize(
    ("seed", "weight"), [(0, 0.3), (0, 2.0), *((seed, 0.7) for seed in range(5))]
)
def test_bounds_hold_for_any_coefficients(loss: LossName, seed: int, weight: float) -> None:
    """Without noise those of two of these problems meet."""
    problem, rng = gated(seed), np.random.default_rng(seed)
    coef, value = optimum(problem, loss, weight, problem.y)
    for noise in (0.0, 1e-3, 0.3, 3.0):
        moved = coef + noise * rng.normal(size=coef.shape)
        grade = certify_regularised(problem, moved, loss=loss, weight=weight)
        assert grade.lower <= value * (1 + 1e-6) + 1e-9
        assert grade.upper >= value * (1 - 1e-6)
        assert 0 <= grade.gap <= 1
        if noise == 0.0 and weight != 0.7:
            assert grade.upper == pytest.approx(value, rel=1e-6)
            assert grade.gap < (1e-3 if loss == "hinge" else 1e-5)
        # The dual is feasible, and has the value that is claimed.
        assert problem.dual_norms(grade.dual * problem.y).max() <= weight * (1 + 1e-12)
        dual = LOSSES[loss].dual_values(problem.y, grade.dual).sum()
        assert grade.lower == pytest.approx(max(dual, 0.0))


@pytest.mark.parametrize("loss", NAMES)
def test_zero_is_optimal_under_a_heavy_weight(loss: LossName) -> None:
    """From the weight at which theta at f = 0 is feasible on, zeta = 0 is the optimum."""
    problem = gated()
    theta = LOSSES[loss].slopes(problem.y, np.zeros(25))
    weight = 1.01 * float(problem.dual_norms(theta * problem.y).max())
    zero = np.zeros((6, 3))
    assert certify_regularised(problem, zero, loss=loss, weight=weight).gap < 1e-12
    assert certify_regularised(problem, zero, loss=loss, weight=0.1 * weight).gap > 1e-3


def test_closed_form_of_soft_thresholding() -> None:
    """One sample x = 2, target 3: minimise 1/2 (3 - 2 z)^2 + weight |z|."""
    problem = MarginProblem(np.array([[2.0]]), np.ones(1), np.ones((1, 1)), np.array([0]))
    best = (3 * 2 - 1.5) / 4
    grade = certify_regularised(problem, [[best]], weight=1.5, targets=[3.0])
    assert grade.gap == pytest.approx(0, abs=1e-12)
    assert grade.upper == pytest.approx(0.5 * (3 - 2 * best) ** 2 + 1.5 * best)


def test_a_given_dual_counts() -> None:
    problem = gated()
    coef, _ = optimum(problem, "hinge", 0.7, problem.y)
    fitted = certify_regularised(problem, coef, loss="hinge", weight=0.7)
    again = certify_regularised(problem, coef, loss="hinge", weight=0.7, dual=3 * fitted.dual)
    assert again.lower == pytest.approx(fitted.lower)


def test_a_dual_that_nearly_contradicts_bounds_nothing_falsely() -> None:
    """Two samples nearly on one line, opposite labels: the optimum is at most 0.41858."""
    X = [[-0.5679981915794208, 0.6360520199475179], [-1.6677081196189951, 1.8675219989995666]]
    problem = MarginProblem(X, [1, -1], np.ones((2, 1)), [0])  # type: ignore[arg-type]
    found = certify_regularised(
        problem, [[0.0, 0.0]], loss="hinge", weight=1e-20, dual=[1.0, -0.3405860923128357]
    )
    assert found.lower <= 0.41858


def test_a_tiny_dual_is_scaled_up_not_lost() -> None:
    problem = MarginProblem(np.eye(2), [1, -1], np.ones((2, 1)), [0])  # type: ignore[arg-type]
    found = certify_regularised(
        problem, [[0.9, -0.9]], loss="hinge", weight=0.01, dual=[1e-170, -1e-170]
    )
    # The optimum is that of the hard margin, w = (1, -1): 0.01 sqrt(2).
    assert found.lower == pytest.approx(0.01 * 2**0.5, rel=1e-9)
    assert found.lower <= 0.01 * 2**0.5 * (1 + 1e-15) <= found.upper


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_coefficients_that_overflow_prove_nothing_above(loss: LossName) -> None:
    problem = MarginProblem(np.eye(2), np.array([1.0, -1.0]), np.ones((2, 1)), np.array([0]))
    grade = certify_regularised(problem, [[1e300, 1e300]], loss=loss, weight=1e9)
    assert grade.upper == np.inf
    assert grade.gap == 1.0
    assert 0 < grade.lower < np.inf
