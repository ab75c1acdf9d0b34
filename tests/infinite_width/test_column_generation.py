"""Maximum margins of infinitely wide networks: the certificate, any number of classes, any rank."""

import cvxpy as cp
import numpy as np
import pytest

from benchmarks.infinite_width.clusters import clusters
from implicit_bias import MarginProblem, Status
from implicit_bias import infinite_width as wide
from implicit_bias import solve as solve_gated
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width.arrangement import cell_signs, maximise
from infinite_width.samples import GAP, pair_margins, planar
from oracles import check_overlap


def over_a_grid(problem: wide.InfiniteWidthProblem, count: int) -> float:
    """Smallest norm over directions of the plane, with those of all kinks, by CVXPY."""
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    across = np.array([[1], [-1]]) * np.column_stack([-problem.X[:, 1], problem.X[:, 0]])[:, None]
    directions = np.vstack([np.column_stack([np.cos(angles), np.sin(angles)]), *across])
    products = problem.X @ (directions / np.linalg.norm(directions, axis=1)[:, None]).T
    a, b = problem.slopes
    features = np.where(products > 0, b * products, a * products)
    coef = cp.Variable((len(directions), problem.classes or 1))
    outputs, losses = features @ coef, cp.Variable(len(problem.y), nonneg=True)
    constraints = [] if np.isfinite(problem.C) else [losses == 0]
    if problem.classes is None:
        constraints.append(cp.multiply(problem.y, outputs[:, 0]) >= 1 - losses)
    else:
        for n, own in enumerate(problem.y.astype(int)):
            rivals = [k for k in range(problem.classes) if k != own]
            constraints.append(outputs[n, own] - outputs[n, rivals] >= 1 - losses[n])
    norms = cp.abs(coef) if problem.classes is None else cp.norm(coef, axis=1)
    cost = cp.sum(norms) + min(problem.C, 1e6) * cp.sum(losses)
    return float(cp.Problem(cp.Minimize(cost), constraints).solve("CLARABEL"))


@pytest.mark.parametrize(
    ("activation", "C", "classes"),
    [
        ("relu", np.inf, None),
        ("leaky relu", 0.7, None),
        ("linear plus relu", 0.7, None),
        ("absolute value", 0.7, 3),
        ("relu", 0.7, 3),
    ],
)
def test_rank_two_against_a_grid_of_directions(
    activation: wide.Activation, C: float, classes: int | None
) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(7, 2)), np.array([1.0, -1, 1, 1, -1, -1, 1])
    if classes:
        y = np.array([0, 1, 2, 1, 0, 2, 2])
    solution = wide.max_margin(X, y, C, activation=activation)
    count, tolerance = (240, 3e-4) if classes else (1000, 1e-4)
    value = over_a_grid(solution.problem, count)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.lower <= value * (1 + 1e-7)
    assert solution.certificate.upper == pytest.approx(value, rel=tolerance)


@pytest.mark.parametrize(
    ("activation", "classes", "C"),
    [
        ("relu", 2, np.inf),
        ("leaky relu", 2, 1.0),
        pytest.param((-0.3, 0.7), 2, 1.0, id="slopes"),
        pytest.param("absolute value", 2, np.inf, marks=pytest.mark.slow),
        pytest.param("relu", 3, np.inf, marks=pytest.mark.slow),
        pytest.param((-0.3, 0.7), 4, 1.0, marks=pytest.mark.slow, id="slopes, four classes"),
    ],
)
def test_solution_is_what_it_says(activation: wide.Activation, classes: int, C: float) -> None:
    X, y = planar(30 if classes == 2 else 15, 1, classes)
    # Two classes have a linear program, whose vertices are exact; more have an interior point.
    height, slack = (1e-4, 1e-5) if classes == 2 else (1e-2, 1e-4)
    solution = wide.max_margin(X, y, C, activation=activation)
    certificate, problem = solution.certificate, solution.problem
    assert solution.status is Status.OPTIMAL
    assert certificate.gap < GAP
    assert solution.exact
    assert solution.rounding < 1e-9
    np.testing.assert_allclose(np.linalg.norm(solution.directions, axis=1), 1.0)
    # The primal value, by loops over the rivals.
    margins = np.min(pair_margins(problem, solution.decision(X)), axis=0)
    weights = np.linalg.norm(solution.coef.reshape(len(solution.coef), -1), axis=1)
    losses = np.maximum(0.0, 1.0 - margins)
    assert weights.sum() + min(C, 1.0) * losses.sum() == pytest.approx(certificate.upper, rel=1e-9)
    assert margins.min() == pytest.approx(certificate.min_margin, abs=1e-9)
    # The dual value, and h by its definition, at each of the optimum's own directions.
    totals = solution.alpha.reshape(len(y), -1).sum(axis=1)
    assert totals.sum() == pytest.approx(certificate.lower, rel=1e-9)
    assert totals.max() <= C * (1 + 1e-9)
    products = solution.directions @ X.T
    low, high = problem.slopes
    a = np.zeros((len(y), classes))
    for n, k in np.ndindex(len(y), classes if classes > 2 else 0):
        a[n, int(y[n])] += solution.alpha[n, k]
        a[n, k] -= solution.alpha[n, k]
    if classes == 2:
        a = solution.alpha * y
    h = np.where(products > 0, high * products, low * products) @ a
    np.testing.assert_allclose(h.T, solution.coef.T / weights, atol=height)
    np.testing.assert_allclose(problem.dual_values(solution.alpha, solution.directions), h)
    inside = problem.dual_function(solution.alpha).values(solution.directions @ problem.basis)
    np.testing.assert_allclose(inside.ravel(), h.ravel(), atol=1e-12)
    assert maximise(problem.dual_function(solution.alpha)).upper <= 1 + 1e-9
    assert (totals * (margins - 1 + losses)).max() < slack * totals.sum()
    lower = [point.lower for point in solution.history]
    assert lower == sorted(lower)


def test_linear_activation_is_the_linear_machine() -> None:
    X, _ = planar(20, 2)
    y = np.where(X[:, 1] > 0.3 * X[:, 2], 1.0, -1.0)
    linear = solve_gated(MarginProblem(X, y, np.ones((20, 1)), np.zeros(1, dtype=np.int64)))
    solution = wide.max_margin(X, y, activation=(1.0, 1.0))
    assert solution.certificate.upper == pytest.approx(linear.certificate.upper, rel=1e-5)
    assert len(solution.coef) == 1


@pytest.mark.slow
def test_the_published_illustration() -> None:
    """Four by four clusters, 100 samples: the setting of figure 1 of Chizat and Bach."""
    X, y = clusters(4, 100, 0)
    solution = wide.max_margin(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP
    assert len(cell_signs(solution.problem.lines.normals)) == 9902
    assert len(solution.coef) < 60


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "n", "classes"), [(4, 25, 2), (5, 12, 2), (4, 12, 3)])
def test_rank_four_and_five(rank: int, n: int, classes: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], n) if classes == 2 else rng.integers(0, classes, n)
    solution = wide.max_margin(rng.normal(size=(n, rank)), y)
    assert solution.status is Status.OPTIMAL
    assert solution.exact
    assert maximise(solution.problem.dual_function(solution.alpha)).upper <= 1 + 1e-9


def of_rank_six(classes: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 6)), np.where(np.arange(12) % 2, 1.0, -1.0)
    return X, y if classes == 2 else rng.integers(0, classes, 12).astype(np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [np.inf, 0.5])
def test_higher_ranks_are_bounded_not_optimal(classes: int, C: float) -> None:
    X, y = of_rank_six(classes)
    solution = wide.max_margin(X, y, C, max_rounds=8)
    certificate = solution.certificate
    assert solution.status is not Status.OPTIMAL
    assert not solution.exact
    assert 0 < certificate.lower < certificate.upper < 2.5 * certificate.lower
    # The dual variables have the value of the lower bound, and no direction beats them.
    assert solution.alpha.sum() == pytest.approx(certificate.lower, rel=1e-9)
    assert (solution.alpha.reshape(12, -1).sum(axis=1) <= C * (1 + 1e-9)).all()
    function = solution.problem.dual_function(solution.alpha)
    points = np.random.default_rng(1).normal(size=(20_000, 6))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    assert function.lengths(points).max() <= certificate.dual_norms[0] <= 1 + 1e-9
    # Dual variables of the program alone prove less.
    lower = [point.lower for point in solution.history]
    assert lower == sorted(lower)
    assert certificate.lower > next(value for value in lower if value > 0)


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_errors_so_cheap_that_no_network_is_best(classes: int) -> None:
    """Beyond rank 5 too, where the lower bound is raised without a unit to start from."""
    solution = wide.max_margin(*of_rank_six(classes), 0.01, max_rounds=3)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.upper == pytest.approx(12 * 0.01)
    assert len(solution.coef) == 0


@pytest.mark.slow
@pytest.mark.parametrize("C", [np.inf, 0.5])
def test_bounds_beyond_rank_five_contain_the_optimum_of_rank_three(C: float) -> None:
    """Data of rank 3 and a sixth direction in which nothing happens, nearly: the same optimum."""
    X, y = planar(12, 3)
    low = wide.max_margin(X, y, C)
    rng = np.random.default_rng(0)
    lifted = np.column_stack([X, 1e-7 * rng.normal(size=(12, 3))])
    high = wide.max_margin(lifted, y, C, max_rounds=15)
    assert high.problem.rank == 6
    assert not high.exact
    check_overlap(high.certificate, low.certificate, 1e-4)


def test_time_ends_a_solve_with_the_bounds_so_far() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 6)), np.sign(rng.normal(size=20))
    stopped = wide.max_margin(X, y, max_seconds=1e-9)
    assert stopped.status is Status.TIME_LIMIT
    assert 0 < stopped.certificate.lower <= stopped.certificate.upper
    assert len(stopped.history) == 1


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"C": 0.0}, "C must"),
        ({"activation": "tanh"}, "activation"),
        ({"start": [[1.0, 2.0]]}, "start"),
        ({"y": [1, -2]}, "labels"),
        ({"max_seconds": 0}, "max_seconds"),
    ],
)
def test_bad_input(changes: dict[str, object], word: str) -> None:
    arguments: dict[str, object] = {"X": [[1.0], [2.0]], "y": [1, 1], **changes}
    with pytest.raises((ValueError, TypeError), match=word):
        wide.max_margin(**arguments)  # type: ignore[arg-type]
