"""Infinitely wide networks: the certificate, degenerate data, any number of classes, grades."""

from fractions import Fraction
from math import hypot

import cvxpy as cp
import numpy as np
import pytest
from numpy.typing import ArrayLike

from benchmarks.infinite_width.clusters import clusters
from implicit_bias import MarginProblem, Status
from implicit_bias import infinite_width as wide
from implicit_bias import solve as solve_gated
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width.arrangement import cell_signs, maximise
from implicit_bias.networks import ReLUNetwork
from oracles import check_overlap, fractions

GAP = 1e-6
CHECKERBOARD = np.array([[1, i, j] for i in range(4) for j in range(4)])
ACTIVATIONS: list[wide.Activation] = ["relu", "leaky relu", "absolute value", "linear plus relu"]


def planar(n: int, seed: int, classes: int = 2) -> tuple[Array, Array]:
    """Points in the plane with a constant; labels of a curve, some redrawn, or of any classes."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    if classes > 2:
        return X, rng.integers(0, classes, n).astype(np.float64)
    y = np.where(np.sin(3 * X[:, 1]) > X[:, 2], 1.0, -1.0)
    y[rng.uniform(size=n) < 0.1] *= -1
    return X, y


def pair_margins(problem: wide.InfiniteWidthProblem, outputs: Array) -> list[Array]:
    """Margins over each rival, by loops."""
    if problem.classes is None:
        return [np.asarray(problem.y * outputs)]
    y = problem.y.astype(int)
    own = np.array([outputs[n, y[n]] for n in range(len(y))])
    return [np.where(y == k, np.inf, own - outputs[:, k]) for k in range(problem.classes)]


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


@pytest.mark.every(7)
@pytest.mark.parametrize("C", [np.inf, 0.7])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("classes", [None, 3])
def test_rank_two_against_a_grid_of_directions(
    activation: wide.Activation, C: float, classes: int | None
) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(7, 2)), np.array([1.0, -1, 1, 1, -1, -1, 1])
    if classes:
        y = np.array([0, 1, 2, 1, 0, 2, 2])
    solution = wide.max_margin(X, y, C, activation=activation)
    count, tolerance = (240, 3e-4) if classes else (4000, 1e-4)
    value = over_a_grid(solution.problem, count)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.lower <= value * (1 + 1e-7)
    assert solution.certificate.upper == pytest.approx(value, rel=tolerance)


@pytest.mark.every(9)
@pytest.mark.parametrize(
    ("activation", "classes"),
    [*((each, 2) for each in (*ACTIVATIONS, (-0.3, 0.7))), ("relu", 3), ((-0.3, 0.7), 4)],
)
@pytest.mark.parametrize("C", [np.inf, 1.0])
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
    assert "certified" in solution.statement
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
    X, _ = planar(40, 2)
    y = np.where(X[:, 1] > 0.3 * X[:, 2], 1.0, -1.0)
    linear = solve_gated(MarginProblem(X, y, np.ones((40, 1)), np.zeros(1, dtype=np.int64)))
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


def test_gated_relaxation_over_all_cells_is_lower() -> None:
    X, y = planar(12, 4)
    solution = wide.max_margin(X, y)
    lines = solution.problem.lines
    active = (cell_signs(lines.normals)[:, lines.line] * np.sign(lines.lengths) > 0).T
    gated = solve_gated(MarginProblem(X, y, active.astype(float), np.arange(active.shape[1])))
    assert gated.certificate.upper < solution.certificate.lower


@pytest.mark.slow
@pytest.mark.parametrize(("n", "classes"), [(40, 2), (60, 2), (80, 2), (30, 3), (60, 3), (30, 4)])
def test_more_samples(n: int, classes: int) -> None:
    assert wide.max_margin(*planar(n, n, classes)).certificate.gap < GAP


@pytest.mark.slow
def test_five_hundred_samples() -> None:
    assert wide.max_margin(*clusters(4, 500, 0)).certificate.gap < GAP


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_scaling_and_rotation(classes: int) -> None:
    X, y = planar(12, 4, classes)
    norm = wide.max_margin(X, y).certificate.upper
    rotation = 7.0 * np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0][:3]
    lifted = wide.max_margin(np.vstack([X, X]) @ rotation, np.append(y, y))
    assert lifted.certificate.upper == pytest.approx(norm / 7, rel=3e-6)
    assert lifted.directions.shape[1] == 6


@pytest.mark.slow
@pytest.mark.parametrize("C", [np.inf, 2.0])
def test_two_classes_with_two_outputs(C: float) -> None:
    """The optimum is that of one output over the root of 2."""
    X, y = planar(8, 3)
    with pytest.raises(ValueError, match="0 .. 1"):
        wide.max_margin(X, y, C, classes=2)
    binary = wide.max_margin(X, y, C).certificate
    found = wide.max_margin(X, (y + 1) / 2, C * np.sqrt(0.5), classes=2).certificate
    assert found.lower <= binary.upper * np.sqrt(0.5)
    assert found.upper >= binary.lower * np.sqrt(0.5)
    assert found.gap < GAP


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high"), [(0.05, 1.0), (1.0, 1e6), (1e6, np.inf)])
def test_soft_margin_rises_to_the_hard_one(low: float, high: float) -> None:
    X, y = planar(25, 5)
    first, second = wide.max_margin(X, y, low).certificate, wide.max_margin(X, y, high).certificate
    assert first.lower <= second.upper
    if low == 1e6:
        assert first.upper == pytest.approx(second.upper, rel=1e-5)


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
    assert "best provable" in solution.statement
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
@pytest.mark.parametrize("C", [1e-6, 0.01])
def test_errors_so_cheap_that_no_network_is_best(classes: int, C: float) -> None:
    """Beyond rank 5 too, where the lower bound is raised without a unit to start from."""
    solution = wide.max_margin(*of_rank_six(classes), C, max_rounds=3)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.upper == pytest.approx(12 * C)
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


# Degenerate data.


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 2], [1, 2], [1, 3]], [1, -1, 1]),
        ([[1, 2], [2, 4], [1, 3]], [1, -1, 1]),
        ([[0, 0], [2, 4], [1, 3]], [1, -1, 1]),
        ([[1, 1], [-1, -1], [1, 1], [1, 0]], [1, 1, -1, -1]),
        ([[0, 0], [0, 0]], [1, 1]),
        ([[1, 2], [1, 2], [1, 3]], [0, 2, 1]),
        ([[1, 2], [2, 4], [1, 3]], [0, 1, 2]),
        ([[0, 0], [2, 4], [1, 3]], [0, 1, 2]),
        ([[1, 1], [-1, -1], [1, 1], [1, 0]], [0, 0, 1, 2]),
        ([[0, 0], [0, 0], [0, 0]], [0, 1, 2]),
    ],
)
def test_data_that_no_network_separates(X: list[list[float]], y: list[int]) -> None:
    solution = wide.max_margin(X, y)
    assert solution.status is Status.NOT_SEPARABLE
    assert solution.conflict is not None
    assert "No network" in solution.statement
    assert solution.certificate.lower == solution.certificate.upper == np.inf
    assert solution.problem.dual_function(solution.alpha).size < 1e-12
    assert solution.alpha.sum() == pytest.approx(1)
    assert solution.alpha.min() >= 0
    soft = wide.max_margin(X, y, 0.5)
    assert soft.status is Status.OPTIMAL
    if not np.any(X):
        assert soft.certificate.upper == pytest.approx(0.5 * len(y))
        assert len(soft.coef) == 0


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 1], [-2, -2], [3, 3]], [1, -1, 1]),
        ([[1, 1], [-1, -1], [1, 0], [-1, 0]], [1, 1, -1, -1]),
        ([[1, 1]], [-1]),
        (np.ones((5, 3)), [1] * 5),
        ([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [1, 0, 1]], [1, -1, 1, -1, 1]),
        (CHECKERBOARD, np.prod(1 - 2 * (CHECKERBOARD[:, 1:] % 2), axis=1)),
        ([[1, 1], [-2, -2], [3, 3], [0, 1]], [0, 1, 0, 2]),
        ([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0]], [0, 1, 2, 0]),
        (np.repeat([[1.0, 0], [0, 1], [1, 1]], 3, axis=0), np.repeat([0, 1, 2], 3)),
    ],
)
def test_degenerate_positions(X: ArrayLike, y: ArrayLike) -> None:
    solution = wide.max_margin(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP
    assert maximise(solution.problem.dual_function(solution.alpha)).upper <= 1 + 1e-9


def test_inseparable_by_three_classes_alone_is_no_optimum() -> None:
    """Opposite inputs of opposite order: linear functions alone, and they contradict each other."""
    half = np.array([[1.0, 0], [0, 1], [-1, -1]])
    X, y = np.vstack([half, -half]), [0, 1, 2, 1, 2, 0]
    solution = wide.max_margin(X, y)
    assert solution.certificate.lower > 0
    if solution.status is Status.OPTIMAL:
        margins = pair_margins(solution.problem, solution.decision(X))
        assert np.min(margins) >= 1 - 1e-9
    else:
        assert solution.certificate.upper == np.inf


def test_even_activations_cannot_tell_antipodes() -> None:
    X, y = [[1, 1], [-1, -1], [1, 0]], [1, -1, 1]
    assert wide.max_margin(X, y).status is Status.OPTIMAL
    assert wide.max_margin(X, y, activation="absolute value").status is Status.NOT_SEPARABLE


def test_closed_form_of_one_sample() -> None:
    solution = wide.max_margin([[3.0, 4.0]], [-1])
    assert solution.certificate.upper == pytest.approx(0.2)
    np.testing.assert_allclose(solution.directions, [[0.6, 0.8]], atol=1e-9)
    np.testing.assert_allclose(solution.coef, [-0.2])


@pytest.mark.parametrize(
    ("X", "activation", "norm", "statuses"),
    [
        ([[1, 1e-12], [1, 0]], "relu", 2e12, {Status.OPTIMAL, Status.NUMERICAL_TROUBLE}),
        # f = -1 on the middle input's ray and a kink there that adds 2 on both sides.
        (
            *([[1e6, 1], [1e6 - 1, 1], [1e6 - 2, 1]], "relu", 4 * hypot(1, 1e6 - 1) + 1e-6),
            {Status.OPTIMAL, Status.NUMERICAL_TROUBLE},
        ),
        (
            *([[2.0**53 - k, 1] for k in range(3)], "relu", 4 * (2.0**53 - 1) + 1),
            {Status.NEARLY_INSEPARABLE},
        ),
        ([[1e-14], [-1.0]], "relu", 1e14 + 1, {Status.OPTIMAL}),
        ([[1e-100], [-1e100]], "relu", 1e100, {Status.OPTIMAL}),
        ([[1.0, 0], [0, 1e-14]], "relu", 1e14 + 1, {Status.OPTIMAL}),
        ([[1, 1e-9], [1, -1e-9]], (1.0, 1.0), 1e9, {Status.OPTIMAL, Status.NUMERICAL_TROUBLE}),
        ([[0.1, 0.3], [0.3, 0.9]], "relu", np.inf, {Status.NEARLY_INSEPARABLE}),
    ],
    ids=["angle", "shift", "integers", "small", "sizes", "axes", "linear", "nearly proportional"],
)
def test_nearly_inseparable_data_are_not_called_inseparable(
    X: list[list[float]],
    activation: wide.Activation,
    norm: float,
    statuses: set[Status],
) -> None:
    """``norm`` is that of a network of margin 1 at least, or exact arithmetic knows that one is."""
    y = [1, -1, 1][: len(X)]
    solution = wide.max_margin(X, y, activation=activation)
    assert solution.status in statuses
    assert solution.conflict is None
    assert 0 < solution.certificate.lower < np.inf
    assert solution.certificate.lower <= norm * (1 + 1e-15)
    assert solution.certificate.upper >= norm * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1e-9, 1e-11])
def test_opposite_labels_so_near_that_rounding_decides(apart: float) -> None:
    """A solve ends early, says how much is hidden, and that is most of the gap."""
    X = [[1.0, 0.3], [1.0, 0.3 + apart], [1.0, 0.3 + 2 * apart]]
    solution = wide.max_margin(X, [1, -1, 1])
    certificate = solution.certificate
    assert solution.status is Status.NUMERICAL_TROUBLE
    assert len(solution.history) < 50
    assert GAP < solution.rounding <= certificate.gap
    assert "rounding hides" in solution.statement
    # Both bounds in exact arithmetic: the network's margin, and h at its own directions, at those
    # orthogonal to an input and between, where the peaks are.
    inputs, units, y = fractions(X), fractions(solution.directions), np.array([1, -1, 1])
    margin = (y * (np.maximum(inputs @ units.T, 0) @ fractions(solution.coef))).min()
    assert margin > 0
    assert float(np.abs(solution.coef).sum()) / float(margin) <= certificate.upper
    between = (inputs[:, None] + inputs).reshape(-1, 2) / 2
    across = between[:, ::-1] * np.array([1, -1])
    directions = np.vstack([units, across, -across])
    h = np.maximum(directions @ inputs.T, 0) @ (y * fractions(solution.alpha))
    assert (h**2 <= (directions**2).sum(axis=1) * (1 + Fraction(1, 10**12))).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_inputs_on_one_axis_of_very_different_sizes(seed: int) -> None:
    """The smallest input on each side decides."""
    rng = np.random.default_rng(seed)
    x = np.append([1.0, -1.0], rng.choice([-1.0, 1.0], 4)) * 10.0 ** rng.uniform(-30, 30, 6)
    norm = 1 / x[x > 0].min() + 1 / -x[x < 0].max()
    certificate = wide.max_margin(x[:, None], np.sign(x)).certificate
    assert certificate.lower <= norm * (1 + 1e-15)
    assert certificate.upper >= norm * (1 - 1e-15)
    assert certificate.gap < GAP


@pytest.mark.every(4)
@pytest.mark.parametrize("seed", range(8))
def test_two_inputs_of_nearly_one_direction(seed: int) -> None:
    """Each unit is orthogonal to the other input: norm (|x| + |z|) / |x cross z|."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=2) + 10.0 ** -rng.uniform(5, 17) * rng.normal(size=(2, 2))
    X *= 10.0 ** rng.uniform(-8, 8, (2, 1))
    (a, b), (c, d) = fractions(X)
    assert a * d != b * c
    norm = float(np.linalg.norm(X, axis=1).sum()) / abs(float(a * d - b * c))
    solution = wide.max_margin(X, [1, -1])
    assert solution.status is not Status.NOT_SEPARABLE
    assert 0 < solution.certificate.lower <= norm * (1 + 1e-12)
    assert solution.certificate.upper >= norm * (1 - 1e-9)


@pytest.mark.parametrize("size", [1e160, 1e300, 1e-200, 1e-310])
def test_inputs_whose_squares_are_lost_are_refused(size: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        wide.max_margin([[size], [-size]], [1, -1])


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["relu", "leaky relu", "linear plus relu", (1.0, 1.0)])
def test_what_antipodes_leave_is_a_linear_problem(activation: wide.Activation) -> None:
    """Opposite inputs of opposite labels let nothing but linear functions through."""
    half = np.array([[1.0, 0], [0, 1], [3, 3]])
    X = np.vstack([half, -half])
    for labels, separable in (([1.0, 1, 1], True), ([1.0, 1, -1], False)):
        y = np.append(labels, np.negative(labels))
        solution = wide.max_margin(X, y, activation=activation)
        assert (solution.status is Status.OPTIMAL) == separable
        assert (solution.status is Status.NOT_SEPARABLE) != separable
        if not separable:
            assert solution.certificate.lower == np.inf
            assert solution.problem.dual_function(solution.alpha).size < 1e-12


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        *(({"C": C}, "C must") for C in (0.0, "a", None, True, 1e308)),
        ({"activation": 3}, "two slopes"),
        ({"activation": (1.0, "a")}, "slope"),
        ({"activation": (np.nan, 1.0)}, "slopes"),
        ({"activation": (0.0, 1e200)}, "slopes"),
        ({"activation": "tanh"}, "must be one of"),
        ({"activation": (0.0, 0.0)}, "slopes"),
        *(({"tol": tol}, "tol") for tol in (0.0, np.nan, "a")),
        *(({"max_rounds": rounds}, "max_rounds") for rounds in (0, 1.5)),
        *(({"start": start}, "start") for start in ([1.0], [[1.0, 2.0]])),
        ({"X": np.zeros((2, 0))}, "no columns"),
        ({"X": [[np.nan], [1.0]]}, "NaN"),
        ({"y": [1, -2]}, "labels"),
        ({"y": [1]}, "labels"),
        ({"y": ["a", "b"]}, "text"),
        ({"y": [0, 1.5], "classes": 3}, "integers"),
        ({"y": [-1, 1], "classes": 2}, "integers"),
    ],
)
def test_bad_input(changes: dict[str, object], word: str) -> None:
    arguments: dict[str, object] = {"X": [[1.0], [2.0]], "y": [1, 1], **changes}
    with pytest.raises((ValueError, TypeError), match=word):
        wide.max_margin(**arguments)  # type: ignore[arg-type]


# Grades of finite networks.


def test_time_ends_a_solve_with_the_bounds_so_far() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 6)), np.sign(rng.normal(size=40))
    stopped = wide.max_margin(X, y, max_seconds=1e-9)
    assert stopped.status is Status.TIME_LIMIT
    assert 0 < stopped.certificate.lower <= stopped.certificate.upper
    assert len(stopped.history) == 1
    with pytest.raises(ValueError, match="max_seconds"):
        wide.max_margin(X, y, max_seconds=0)


def test_grade_of_the_optimum_itself() -> None:
    X, y = planar(30, 1)
    solution = wide.max_margin(X, y)
    grade = wide.certify((solution.directions, solution.coef), X, y, solution=solution)
    assert grade.share[0] == pytest.approx(1, abs=1e-5)
    assert grade.refit_norm == pytest.approx(grade.norm, rel=1e-5)
    assert grade.escape_norm == pytest.approx(grade.norm, rel=1e-5)


@pytest.mark.slow
def test_grade_of_a_random_network() -> None:
    X, y = planar(15, 1)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(200, 3))
    features = np.maximum(X @ weights.T, 0)
    readout = np.linalg.lstsq(features, y, rcond=None)[0]
    grade = wide.certify((weights, readout), X, y)
    assert grade.min_margin == pytest.approx(1, abs=1e-6)
    assert grade.norm >= grade.refit_norm * (1 - 1e-9)
    assert grade.refit_norm >= grade.solution.certificate.lower
    assert 0 < grade.share[0] <= grade.share[1] < 1
    assert grade.escape_value > 1
    # One more unit in that direction, and the best second layer has a smaller norm.
    better = wide.certify((np.vstack([weights, grade.escape]), np.append(readout, 0)), X, y)
    assert better.refit_norm == pytest.approx(grade.escape_norm, rel=1e-6)
    assert better.refit_norm < grade.refit_norm


def test_a_network_that_does_not_separate_lacks_a_unit() -> None:
    """Without a separator alpha has sum 1, and the oracle is above 0."""
    X, y = planar(15, 1)
    grade = wide.certify(([[1.0, 0.0, 0.0]], [1.0]), X, y)
    assert grade.refit_norm == np.inf
    assert grade.alpha.sum() == pytest.approx(1.0)
    assert grade.escape_value > 0


def test_grade_of_a_torch_network() -> None:
    X, y = planar(15, 1)
    network = ReLUNetwork(3, [16], seed=1)
    grade = wide.certify(network, X, y)
    assert grade.path_norm == pytest.approx(network.norm())
    assert grade.min_margin == pytest.approx(float(np.min(y * network.decision(X))))
    if grade.min_margin <= 0:
        assert grade.norm == np.inf
        assert grade.share == (0.0, 0.0)


def test_grade_refuses_what_does_not_fit() -> None:
    X, y = planar(10, 1)
    solution = wide.max_margin(X, y)
    with pytest.raises(ValueError, match="weights"):
        wide.certify((np.ones((2, 3)), np.ones(3)), X, y, solution=solution)
    with pytest.raises(ValueError, match="other data"):
        wide.certify((np.ones((2, 3)), np.ones(2)), X, -y, solution=solution)
