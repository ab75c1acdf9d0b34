"""Infinitely wide networks: the exact oracle, the certificate, degenerate data, grades."""

import itertools
from fractions import Fraction
from math import hypot

import numpy as np
import pytest
from scipy.optimize import linprog, nnls

from cases import mostly_slow
from implicit_bias import MarginProblem, Status
from implicit_bias import solve as solve_gated
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import certify, max_margin
from implicit_bias.infinite_width.arrangement import (
    Kinked,
    Lines,
    cell_count,
    cell_signs,
    maximise,
)
from implicit_bias.infinite_width.sphere_search import ascend, flipped, relax, upper_bound
from implicit_bias.networks import ReLUNetwork

GAP = 1e-6
CHECKERBOARD = np.array([[1, i, j] for i in range(4) for j in range(4)])
ACTIVATIONS = ["relu", "leaky relu", "absolute value", "linear plus relu"]


def unit(points: Array) -> Array:
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def planar(n: int, seed: int, *, flips: float = 0.1) -> tuple[Array, Array]:
    """Points in the plane with a constant; labels of a curve, some of them flipped."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = np.where(np.sin(3 * X[:, 1]) > X[:, 2], 1.0, -1.0)
    y[rng.uniform(size=n) < flips] *= -1
    return X, y


def grid_clusters(k: int, n: int, seed: int) -> tuple[Array, Array]:
    """Draw the data of Chizat and Bach (2020): k x k clusters of random labels, with a constant."""
    rng = np.random.default_rng(seed)
    delta = 1.0 / (3 * k - 1)
    labels = np.ones(k * k)
    labels[rng.permutation(k * k)[: k * k // 2]] = -1.0
    cluster = rng.integers(0, k * k, n)
    angle, radius = rng.uniform(0, 2 * np.pi, n), delta * rng.uniform(0, 1, n)
    centre = delta * (1 + 3 * np.column_stack(np.divmod(cluster, k))) - 0.5
    spread = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return np.column_stack([np.ones(n), centre + spread]), labels[cluster]


def some_function(rank: int, n: int, seed: int) -> Kinked:
    """Random kinks on random lines; every second one with degenerate positions."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, rank))
    if seed % 2 and rank > 2:
        vectors = np.vstack([np.round(vectors), vectors[0] + 2 * vectors[1]])
    normals = Lines.of(vectors).normals
    kinks = rng.normal(size=len(normals)) * rng.choice([0, 1, 1], len(normals))
    return Kinked(rng.normal(size=rank) * rng.integers(0, 3), normals, kinks)


def attack(function: Kinked, n_points: int, seed: int) -> float:
    """Largest |h| over random directions and local ascent from the best of them."""
    rng = np.random.default_rng(seed)
    points = unit(rng.normal(size=(n_points, function.rank)))
    values = np.abs(function.values(points))
    best = points[np.argsort(-values)[:50]]
    return max(float(values.max()), float(ascend(function, best)[1].max()))


# The oracle.


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(6))
def test_oracle_is_not_beaten(rank: int, seed: int) -> None:
    function = some_function(rank, 8 if rank > 3 else 25, seed)
    peaks = maximise(function)
    found = attack(function, 10_000, seed)
    assert found <= peaks.upper
    assert found >= 0.97 * peaks.values[0]
    assert peaks.upper <= peaks.values[0] + 1e-8 * function.size
    np.testing.assert_allclose(np.linalg.norm(peaks.points, axis=1), 1.0)
    np.testing.assert_allclose(np.abs(function.values(peaks.points)), peaks.values)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_oracle_is_not_beaten_by_a_million_directions(seed: int) -> None:
    X, y = planar(20 + 20 * seed, seed)
    solution = max_margin(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP
    function = solution.problem.dual_function(solution.alpha)
    assert max(attack(function, 50_000, i) for i in range(20)) <= maximise(function).upper


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_oracle_against_all_sign_patterns(rank: int) -> None:
    """Maximise over every cell by a convex program of its own: a projection on a cone."""
    function = some_function(rank, 5, 2)
    best = 0.0
    for sign, *pattern in itertools.product([-1.0, 1.0], repeat=len(function.kinks) + 1):
        sides = np.array(pattern)
        gradient = sign * (function.offset + (sides * function.kinks) @ function.normals)
        # max <v, w> over ||w|| <= 1 in the cone {s_l <u_l, w> >= 0}: ||v + sum lambda_l s_l u_l||
        # at its smallest over lambda >= 0, a non-negative least squares problem.
        _, distance = nnls((sides[:, None] * function.normals).T, -gradient)
        best = max(best, distance)
    assert maximise(function).values[0] == pytest.approx(best, rel=1e-9)


def test_oracle_where_the_kinks_do_not_span() -> None:
    function = Kinked(np.array([0.3, -0.4, 2.0]), np.eye(2, 3), np.array([1.0, -0.5]))
    assert attack(function, 20_000, 0) <= maximise(function).upper
    linear = Kinked(np.array([3.0, 4.0]), np.eye(2), np.zeros(2))
    assert maximise(linear).values[0] == pytest.approx(5.0)
    negative = Kinked(np.array([0.0, 0.0, 1.0]), np.eye(2, 3), -np.ones(2))
    assert maximise(negative).values[0] == pytest.approx(np.sqrt(3.0))


@pytest.mark.parametrize("seed", range(20))
def test_offset_in_the_span_of_the_kinks_but_for_rounding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    normals = unit(rng.normal(size=(2, 3)))
    function = Kinked(rng.normal(size=2) @ normals, normals, rng.normal(size=2))
    points = maximise(function, floor=0.0).points
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0)


@pytest.mark.parametrize("seed", mostly_slow(range(30), range(3)))
def test_few_support_vectors(seed: int) -> None:
    solution = max_margin(*grid_clusters(2, 64, seed))
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP


@pytest.mark.parametrize("n", [3, 10, 40])
def test_cells_in_general_position(n: int) -> None:
    rng = np.random.default_rng(n)
    assert cell_count(rng.normal(size=(n, 2))) == 2 * n
    assert cell_count(rng.normal(size=(n, 3))) == n * n - n + 2
    assert len(cell_signs(rng.normal(size=(n, 3)))) == n * n - n + 2


def test_cells_of_rank_four() -> None:
    assert cell_count(np.random.default_rng(0).normal(size=(8, 4))) == 2 * (1 + 7 + 21 + 35)


def test_lines_join_proportional_vectors() -> None:
    lines = Lines.of(np.array([[1.0, 2.0], [-2.0, -4.0], [0.0, 0.0], [1.0, 0.0], [0.1, 0.2]]))
    assert len(lines.normals) == 2
    assert lines.line.tolist()[2] == -1
    assert lines.line[0] == lines.line[1] == lines.line[4] != lines.line[3]
    assert lines.lengths[0] * lines.lengths[1] < 0


@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_any_dimension_hold(seed: int) -> None:
    function = some_function(3, 12, seed).without_flat_lines()
    peaks = maximise(function)
    points, values = ascend(function, unit(np.random.default_rng(seed).normal(size=(500, 3))))
    assert upper_bound(function) <= function.size * (1 + 1e-11)
    assert values.max() <= peaks.upper <= upper_bound(function)
    np.testing.assert_allclose(np.abs(function.values(points)), values)


@pytest.mark.parametrize("seed", range(5))
def test_relaxation_is_above_h_and_its_slopes_are_those_of_lifted_directions(seed: int) -> None:
    """Where W = w w', what stands for |<u, w>| is |<u, w>|; in general sqrt(u' W u) >= ||W u||."""
    function = some_function(6, 15, seed).without_flat_lines()
    found, other = relax(function), relax(flipped(function))
    points = unit(np.random.default_rng(seed).normal(size=(20_000, 6)))
    assert function.values(points).max() <= found.bound
    assert (-function.values(points)).max() <= other.bound
    value = function.offset @ found.mean + function.kinks @ found.distances
    assert value <= found.bound
    assert value == pytest.approx(found.bound, rel=0.05)


def test_relaxation_of_one_rising_line_and_of_a_linear_function_is_exact() -> None:
    """Max |<u, w>| = 1 and max <c, w> = ||c||."""
    one = Kinked(np.zeros(4), np.eye(1, 4), np.ones(1))
    assert relax(one).bound == pytest.approx(1.0, abs=1e-6)
    linear = Kinked(np.array([3.0, 0.0, 4.0]), np.zeros((0, 3)), np.zeros(0))
    assert relax(linear).bound == pytest.approx(5.0, rel=1e-6)


# The maximum margin.


def over_a_grid(X: Array, y: Array, slopes: tuple[float, float], C: float) -> float:
    """Smallest norm over 4,000 directions of the plane, by one linear program."""
    angles = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    products = X @ np.array([np.cos(angles), np.sin(angles)])
    columns = y[:, None] * np.where(products > 0, slopes[1] * products, slopes[0] * products)
    cost, A = np.ones(8000), -np.column_stack([columns, -columns])
    if np.isfinite(C):
        cost, A = np.append(cost, np.full(len(y), C)), np.column_stack([A, -np.eye(len(y))])
    return float(linprog(cost, A_ub=A, b_ub=-np.ones(len(y))).fun)


@pytest.mark.parametrize("C", [np.inf, 2.0])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rank_two_against_a_grid_of_directions(activation: str, C: float) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(7, 2)), np.array([1.0, -1, 1, 1, -1, -1, 1])
    solution = max_margin(X, y, C, activation=activation)  # type: ignore[arg-type]
    value = over_a_grid(X, y, solution.problem.slopes, C)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.lower <= value
    assert solution.certificate.upper == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("activation", [*ACTIVATIONS, (-0.3, 0.7)])
def test_solution_is_what_it_says(activation: str | tuple[float, float]) -> None:
    X, y = planar(30, 1)
    solution = max_margin(X, y, activation=activation)  # type: ignore[arg-type]
    certificate = solution.certificate
    assert solution.status is Status.OPTIMAL
    assert certificate.gap < GAP
    assert solution.exact
    np.testing.assert_allclose(np.linalg.norm(solution.directions, axis=1), 1.0)
    assert np.min(y * solution.decision(X)) == pytest.approx(1.0, abs=1e-9)
    assert np.abs(solution.coef).sum() == pytest.approx(certificate.upper, rel=1e-9)
    assert solution.alpha.sum() == pytest.approx(certificate.lower, rel=1e-9)
    assert maximise(solution.problem.dual_function(solution.alpha)).upper <= 1 + 1e-9
    # Complementary slackness: |h| = 1 at every direction, alpha > 0 at margins of 1 alone.
    h = solution.problem.dual_values(solution.alpha, solution.directions)
    np.testing.assert_allclose(h, np.sign(solution.coef), atol=1e-4)
    surplus = solution.alpha * (y * solution.decision(X) - 1) / solution.alpha.sum()
    assert surplus.max() < 1e-5
    assert [point.lower for point in solution.history] == sorted(
        point.lower for point in solution.history
    )


def test_linear_activation_is_the_linear_machine() -> None:
    X, _ = planar(40, 2)
    y = np.where(X[:, 1] > 0.3 * X[:, 2], 1.0, -1.0)
    linear = solve_gated(MarginProblem(X, y, np.ones((40, 1)), np.zeros(1, dtype=np.int64)))
    solution = max_margin(X, y, activation=(1.0, 1.0))
    assert solution.certificate.upper == pytest.approx(linear.certificate.upper, rel=1e-5)
    assert len(solution.coef) == 1


def test_the_published_illustration() -> None:
    """Four by four clusters, 100 samples: the setting of figure 1 of Chizat and Bach."""
    X, y = grid_clusters(4, 100, 0)
    solution = max_margin(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP
    assert cell_count(solution.problem.lines.normals) == 9902
    assert len(solution.coef) < 60


def test_gated_relaxation_over_all_cells_is_lower() -> None:
    X, y = planar(12, 4)
    solution = max_margin(X, y)
    gates = cell_signs(solution.problem.lines.normals) * np.sign(solution.problem.lines.lengths)
    active = (gates[:, solution.problem.lines.line] > 0).T.astype(float)
    gated = solve_gated(MarginProblem(X, y, active, np.arange(active.shape[1])))
    assert gated.certificate.upper < solution.certificate.lower


@pytest.mark.parametrize("seed", mostly_slow(range(4), range(2)))
def test_small_random_sets(seed: int) -> None:
    solution = max_margin(*planar(20 + 20 * seed, seed))
    assert solution.certificate.gap < GAP


@pytest.mark.slow
def test_five_hundred_samples() -> None:
    solution = max_margin(*grid_clusters(4, 500, 0))
    assert solution.certificate.gap < GAP


@pytest.mark.slow
def test_scaling_and_rotation() -> None:
    X, y = planar(25, 5)
    norm = max_margin(X, y).certificate.upper
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0][:3]
    assert max_margin(7 * X, y).certificate.upper == pytest.approx(norm / 7, rel=3e-6)
    lifted = max_margin(X @ rotation, y)
    assert lifted.certificate.upper == pytest.approx(norm, rel=3e-6)
    assert lifted.directions.shape[1] == 6
    assert max_margin(np.vstack([X, X]), np.append(y, y)).certificate.upper == pytest.approx(
        norm, rel=3e-6
    )


@pytest.mark.parametrize("C", [0.05, 1.0, 1e6])
def test_soft_margin(C: float) -> None:
    X, y = planar(25, 5)
    hard, soft = max_margin(X, y), max_margin(X, y, C)
    assert soft.status is Status.OPTIMAL
    assert soft.alpha.max() <= C * (1 + 1e-9)
    hinge = np.maximum(0, 1 - y * soft.decision(X)).sum()
    value = np.abs(soft.coef).sum() + C * hinge
    assert soft.certificate.lower <= value <= hard.certificate.upper * (1 + 1e-5)
    assert value == pytest.approx(soft.certificate.upper, rel=1e-6)
    if C > 1e5:
        assert value == pytest.approx(hard.certificate.upper, rel=1e-5)


@pytest.mark.slow
def test_rank_four() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(25, 4)), rng.choice([-1.0, 1.0], 25)
    solution = max_margin(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.exact
    function = solution.problem.dual_function(solution.alpha)
    assert attack(function, 20_000, 0) <= 1 + 1e-9


@pytest.mark.slow
def test_higher_ranks_are_bounded_not_optimal() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 9)), rng.choice([-1.0, 1.0], 30)
    solution = max_margin(X, y, max_rounds=15)
    assert solution.status is not Status.OPTIMAL
    assert not solution.exact
    assert 0 < solution.certificate.lower < solution.certificate.upper
    assert np.min(y * solution.decision(X)) == pytest.approx(1.0)
    # The dual variables have the value of the lower bound, and no direction beats them.
    assert solution.alpha.sum() == pytest.approx(solution.certificate.lower, rel=1e-9)
    function = solution.problem.dual_function(solution.alpha)
    assert attack(function, 20_000, 0) <= solution.certificate.dual_norms[0] <= 1 + 1e-9
    assert "best provable" in solution.statement
    # Dual variables of the linear program alone prove less.
    first = next(point.lower for point in solution.history if point.lower > 0)
    assert solution.certificate.lower > first
    assert [point.lower for point in solution.history] == sorted(
        point.lower for point in solution.history
    )


@pytest.mark.slow
@pytest.mark.parametrize("C", [np.inf, 0.5])
def test_bounds_beyond_rank_five_contain_the_optimum_of_rank_three(C: float) -> None:
    """Data of rank 3 and a sixth direction in which nothing happens, nearly: the same optimum."""
    X, y = planar(12, 3)
    low = max_margin(X, y, C)
    rng = np.random.default_rng(0)
    lifted = np.column_stack([X, 1e-7 * rng.normal(size=(12, 3))])
    high = max_margin(lifted, y, C, max_rounds=15)
    assert high.problem.rank == 6
    assert not high.exact
    assert high.certificate.lower <= low.certificate.upper * (1 + 1e-4)
    assert high.certificate.upper >= low.certificate.lower * (1 - 1e-4)


def test_statements_say_what_is_proven() -> None:
    X, y = planar(10, 0)
    assert "certified" in max_margin(X, y).statement
    assert "No network" in max_margin([[1, 2], [1, 2]], [1, -1]).statement


# Degenerate data.


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 2], [1, 2], [1, 3]], [1, -1, 1]),
        ([[1, 2], [2, 4], [1, 3]], [1, -1, 1]),
        ([[0, 0], [2, 4], [1, 3]], [1, -1, 1]),
        ([[1, 1], [-1, -1], [1, 1], [1, 0]], [1, 1, -1, -1]),
        ([[0, 0], [0, 0]], [1, 1]),
    ],
    ids=["equal", "proportional", "zero", "among antipodal", "all zero"],
)
def test_data_that_no_network_separates(X: list[list[float]], y: list[int]) -> None:
    solution = max_margin(X, y)
    assert solution.status is Status.NOT_SEPARABLE
    assert solution.conflict is not None
    assert solution.certificate.upper == np.inf
    function = solution.problem.dual_function(solution.alpha)
    assert function.size < 1e-12
    assert solution.alpha.sum() == pytest.approx(1)
    assert max_margin(X, y, 1.0).status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 1], [-2, -2], [3, 3]], [1, -1, 1]),
        ([[1, 1], [-1, -1], [1, 0], [-1, 0]], [1, 1, -1, -1]),
        ([[1, 1]], [-1]),
        (np.ones((5, 3)).tolist(), [1] * 5),
        ([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [1, 0, 1]], [1, -1, 1, -1, 1]),
        (CHECKERBOARD.tolist(), np.prod(1 - 2 * (CHECKERBOARD[:, 1:] % 2), axis=1).tolist()),
    ],
    ids=["one line", "antipodal", "one sample", "equal", "collinear", "grid"],
)
def test_degenerate_positions(X: list[list[float]], y: list[int]) -> None:
    solution = max_margin(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP
    function = solution.problem.dual_function(solution.alpha)
    assert attack(function, 5000, 0) <= 1 + 1e-9


def test_even_activations_cannot_tell_antipodes() -> None:
    X, y = [[1, 1], [-1, -1], [1, 0]], [1, -1, 1]
    assert max_margin(X, y).status is Status.OPTIMAL
    assert max_margin(X, y, activation="absolute value").status is Status.NOT_SEPARABLE


def test_closed_form_of_one_sample() -> None:
    solution = max_margin([[3.0, 4.0]], [-1])
    assert solution.certificate.upper == pytest.approx(0.2)
    np.testing.assert_allclose(solution.directions, [[0.6, 0.8]], atol=1e-9)
    np.testing.assert_allclose(solution.coef, [-0.2])


@pytest.mark.parametrize(
    ("X", "activation", "norm", "statuses"),
    [
        # f = -1 on the middle input's ray and a kink there that adds 2 on both sides.
        pytest.param(
            [[1e6, 1], [1e6 - 1, 1], [1e6 - 2, 1]],
            "relu",
            4 * hypot(1, 1e6 - 1) + 1e-6,
            {Status.OPTIMAL, Status.NUMERICAL_TROUBLE},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [[2.0**53 - k, 1] for k in range(3)],
            "relu",
            4 * (2.0**53 - 1) + 1,
            {Status.NEARLY_INSEPARABLE},
            marks=pytest.mark.slow,
        ),
        ([[1, 1e-12], [1, 0]], "relu", 2e12, {Status.OPTIMAL, Status.NUMERICAL_TROUBLE}),
        ([[1e-14], [-1.0]], "relu", 1e14 + 1, {Status.OPTIMAL}),
        ([[1e-100], [-1e100]], "relu", 1e100, {Status.OPTIMAL}),
        ([[1.0, 0], [0, 1e-14]], "relu", 1e14 + 1, {Status.OPTIMAL}),
        ([[1, 1e-9], [1, -1e-9]], (1.0, 1.0), 1e9, {Status.OPTIMAL, Status.NUMERICAL_TROUBLE}),
        ([[0.1, 0.3], [0.3, 0.9]], "relu", np.inf, {Status.NEARLY_INSEPARABLE}),
    ],
    ids=["shift", "integers", "angle", "small", "sizes", "axes", "linear", "nearly proportional"],
)
def test_nearly_inseparable_data_are_not_called_inseparable(
    X: list[list[float]],
    activation: str | tuple[float, float],
    norm: float,
    statuses: set[Status],
) -> None:
    """``norm`` is that of a network of margin 1 at least, or exact arithmetic knows that one is."""
    y = [1, -1, 1][: len(X)]
    solution = max_margin(X, y, activation=activation)  # type: ignore[arg-type]
    assert solution.status in statuses
    assert solution.conflict is None
    assert 0 < solution.certificate.lower < np.inf
    assert solution.certificate.lower <= norm * (1 + 1e-15)
    assert solution.certificate.upper >= norm * (1 - 1e-9)


@pytest.mark.parametrize("apart", [1e-9, 1e-12])
def test_opposite_labels_so_near_that_rounding_decides(apart: float) -> None:
    """A solve ends early, says how much is hidden, and that is most of the gap."""
    X = [[1.0, 0.3], [1.0, 0.3 + apart], [1.0, 0.3 + 2 * apart]]
    solution = max_margin(X, [1, -1, 1])
    certificate = solution.certificate
    assert solution.status is Status.NUMERICAL_TROUBLE
    assert len(solution.history) < 50
    assert GAP < solution.rounding <= certificate.gap
    assert "rounding hides" in solution.statement
    # Both bounds in exact arithmetic: the network's margin, and h at its own directions, at those
    # orthogonal to an input and between, where the peaks are.
    zero = Fraction(0)
    inputs = [(Fraction(1), Fraction(x[1])) for x in X]
    units = [(Fraction(w[0]), Fraction(w[1])) for w in solution.directions.tolist()]

    def relu(w: tuple[Fraction, Fraction], x: tuple[Fraction, Fraction]) -> Fraction:
        return max(w[0] * x[0] + w[1] * x[1], zero)

    weights = [Fraction(c) for c in solution.coef.tolist()]
    outputs = [
        sum((c * relu(w, x) for c, w in zip(weights, units, strict=True)), zero) for x in inputs
    ]
    margin = min(outputs[0], -outputs[1], outputs[2])
    assert margin > 0
    assert float(np.abs(solution.coef).sum()) / float(margin) <= certificate.upper
    alpha = [Fraction(a) for a in solution.alpha.tolist()]
    between = [(x[0], (x[1] + z[1]) / 2) for x in inputs for z in inputs]
    around = [(sign * x[1], -sign * x[0]) for x in between for sign in (1, -1)]
    for w in units + around:
        h = sum(
            (a * y * relu(w, x) for a, y, x in zip(alpha, (1, -1, 1), inputs, strict=True)), zero
        )
        assert h * h <= (w[0] * w[0] + w[1] * w[1]) * (1 + Fraction(1, 10**12))


def test_rounding_is_no_excuse_for_ordinary_data() -> None:
    assert max_margin(*planar(20, 2)).rounding < 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_inputs_on_one_axis_of_very_different_sizes(seed: int) -> None:
    """The smallest input on each side decides."""
    rng = np.random.default_rng(seed)
    x = np.append([1.0, -1.0], rng.choice([-1.0, 1.0], 4)) * 10.0 ** rng.uniform(-30, 30, 6)
    norm = 1 / x[x > 0].min() + 1 / -x[x < 0].max()
    certificate = max_margin(x[:, None], np.sign(x)).certificate
    assert certificate.lower <= norm * (1 + 1e-15)
    assert certificate.upper >= norm * (1 - 1e-15)
    assert certificate.gap < GAP


@pytest.mark.parametrize("seed", mostly_slow(range(8), range(2)))
def test_two_inputs_of_nearly_one_direction(seed: int) -> None:
    """Each unit is orthogonal to the other input: norm (|x| + |z|) / |x cross z|."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=2) + 10.0 ** -rng.uniform(5, 17) * rng.normal(size=(2, 2))
    X *= 10.0 ** rng.uniform(-8, 8, (2, 1))
    (a, b), (c, d) = [[Fraction(v) for v in x] for x in X.tolist()]
    assert a * d != b * c
    norm = float(np.linalg.norm(X, axis=1).sum()) / abs(float(a * d - b * c))
    solution = max_margin(X, [1, -1])
    assert solution.status is not Status.NOT_SEPARABLE
    assert 0 < solution.certificate.lower <= norm * (1 + 1e-12)
    assert solution.certificate.upper >= norm * (1 - 1e-9)


@pytest.mark.parametrize("size", [1e160, 1e300, 1e-200, 1e-310])
def test_inputs_whose_squares_are_lost_are_refused(size: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        max_margin([[size], [-size]], [1, -1])


@pytest.mark.parametrize("activation", ["relu", "leaky relu", "linear plus relu", (1.0, 1.0)])
def test_what_antipodes_leave_is_a_linear_problem(activation: str | tuple[float, float]) -> None:
    """Opposite inputs of opposite labels let nothing but linear functions through."""
    half = np.array([[1.0, 0], [0, 1], [3, 3]])
    X = np.vstack([half, -half])
    for labels, separable in (([1.0, 1, 1], True), ([1.0, 1, -1], False)):
        y = np.append(labels, np.negative(labels))
        solution = max_margin(X, y, activation=activation)  # type: ignore[arg-type]
        assert (solution.status is Status.OPTIMAL) == separable
        assert (solution.status is Status.NOT_SEPARABLE) != separable
        if not separable:
            assert solution.certificate.lower == np.inf
            assert solution.problem.dual_function(solution.alpha).size < 1e-12


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"C": 0.0}, "C must"),
        ({"C": "a"}, "C must"),
        ({"C": None}, "C must"),
        ({"C": True}, "C must"),
        ({"activation": 3}, "two slopes"),
        ({"activation": (1.0, "a")}, "slope"),
        ({"activation": (np.nan, 1.0)}, "slopes"),
        ({"activation": (0.0, 1e200)}, "slopes"),
        ({"X": np.zeros((2, 0))}, "no columns"),
        ({"tol": 0.0}, "tol"),
        ({"tol": np.nan}, "tol"),
        ({"tol": "a"}, "tol"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"max_rounds": 1.5}, "max_rounds"),
        ({"start": [1.0]}, "start"),
        ({"start": [[1.0, 2.0]]}, "start"),
        ({"activation": "tanh"}, "must be one of"),
        ({"activation": (0.0, 0.0)}, "slopes"),
        ({"y": [1, 2]}, "labels"),
        ({"X": [[np.nan], [1.0]]}, "NaN"),
    ],
)
def test_bad_input(changes: dict[str, object], word: str) -> None:
    arguments: dict[str, object] = {"X": [[1.0], [2.0]], "y": [1, 1], **changes}
    with pytest.raises((ValueError, TypeError), match=word):
        max_margin(**arguments)  # type: ignore[arg-type]


# Grades of finite networks.


def test_grade_of_the_optimum_itself() -> None:
    X, y = planar(30, 1)
    solution = max_margin(X, y)
    grade = certify((solution.directions, solution.coef), X, y, solution=solution)
    assert grade.share[0] == pytest.approx(1, abs=1e-5)
    assert grade.refit_norm == pytest.approx(grade.norm, rel=1e-5)
    assert grade.escape_norm == pytest.approx(grade.norm, rel=1e-5)


def test_grade_of_a_random_network() -> None:
    X, y = planar(15, 1)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(200, 3))
    features = np.maximum(X @ weights.T, 0)
    readout = np.linalg.lstsq(features, y, rcond=None)[0]
    grade = certify((weights, readout), X, y)
    assert grade.min_margin == pytest.approx(1, abs=1e-6)
    assert grade.norm >= grade.refit_norm * (1 - 1e-9)
    assert grade.refit_norm >= grade.solution.certificate.lower
    assert 0 < grade.share[0] <= grade.share[1] < 1
    assert grade.escape_value > 1
    # One more unit in that direction, and the best second layer has a smaller norm.
    better = certify((np.vstack([weights, grade.escape]), np.append(readout, 0)), X, y)
    assert better.refit_norm == pytest.approx(grade.escape_norm, rel=1e-6)
    assert better.refit_norm < grade.refit_norm


def test_a_network_that_does_not_separate_lacks_a_unit() -> None:
    """Without a separator alpha has sum 1, and the oracle is above 0."""
    X, y = planar(15, 1)
    grade = certify(([[1.0, 0.0, 0.0]], [1.0]), X, y)
    assert grade.refit_norm == np.inf
    assert grade.alpha.sum() == pytest.approx(1.0)
    assert grade.escape_value > 0


def test_grade_of_a_torch_network() -> None:
    X, y = planar(15, 1)
    network = ReLUNetwork(3, [16], seed=1)
    grade = certify(network, X, y)
    assert grade.path_norm == pytest.approx(network.norm())
    assert grade.min_margin == pytest.approx(float(np.min(y * network.decision(X))))
    if grade.min_margin <= 0:
        assert grade.norm == np.inf
        assert grade.share == (0.0, 0.0)


def test_grade_refuses_what_does_not_fit() -> None:
    X, y = planar(10, 1)
    solution = max_margin(X, y)
    with pytest.raises(ValueError, match="weights"):
        certify((np.ones((2, 3)), np.ones(3)), X, y, solution=solution)
    with pytest.raises(ValueError, match="other data"):
        certify((np.ones((2, 3)), np.ones(2)), X, -y, solution=solution)
