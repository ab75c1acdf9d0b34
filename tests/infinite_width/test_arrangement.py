"""The oracle of infinite width: exact maxima over the cells, and bounds where they are too many."""

import itertools

import numpy as np
import pytest
from scipy.optimize import nnls

from implicit_bias.base.validation import Array
from implicit_bias.infinite_width.arrangement import Kinked, Lines, cell_signs, maximise, scattered
from implicit_bias.infinite_width.sphere_search import ascend, relax, upper_bound
from infinite_width.samples import attack, unit


def some_function(rank: int, K: int, seed: int, n: int = 20) -> Kinked:
    """Random kinks on random lines, some without; every second one with degenerate positions."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, rank))
    if seed % 2 and rank > 2:
        vectors = np.vstack([np.round(vectors), vectors[0] + 2 * vectors[1]])
    normals = Lines.of(vectors[vectors.any(axis=1)]).normals
    kinks = rng.normal(size=(len(normals), K)) * rng.choice([0, 1, 1], (len(normals), 1))
    return Kinked(rng.normal(size=(K, rank)) * (seed % 3), normals, kinks)


@pytest.mark.parametrize(
    ("rank", "K", "seed"),
    [(1, 1, 0), (2, 3, 1), (2, 1, 2), (3, 1, 1), (3, 3, 2), (4, 1, 0), (4, 3, 1)],
)
def test_oracle_is_not_beaten(rank: int, K: int, seed: int) -> None:
    function = some_function(rank, K, seed, 6 if rank > 3 else 20)
    peaks = maximise(function)
    found = attack(function, 2000, seed)
    assert peaks.values[0] * (1 - 1e-3) <= found <= peaks.upper
    assert peaks.upper <= peaks.values[0] + 1e-8 * function.size
    np.testing.assert_allclose(np.linalg.norm(peaks.points, axis=1), 1.0)
    np.testing.assert_allclose(function.lengths(peaks.points), peaks.values)
    # Turned outputs have the same lengths.
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(K, K)))[0]
    turned = Kinked(turn @ function.offset, function.normals, function.kinks @ turn.T)
    assert maximise(turned).values[0] == pytest.approx(peaks.values[0], rel=1e-12)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_oracle_against_all_sign_patterns(rank: int) -> None:
    """Maximize over every cell by a convex program of its own: a projection on a cone."""
    function = some_function(rank, 1, 2, 5)
    best = 0.0
    for sign, *pattern in itertools.product([-1.0, 1.0], repeat=len(function.kinks) + 1):
        sides = np.array(pattern)
        gradient = sign * (function.offset[0] + (sides * function.kinks[:, 0]) @ function.normals)
        # max <v, w> over ||w|| <= 1 in the cone {s_l <u_l, w> >= 0}: ||v + sum lambda_l s_l u_l||
        # at its smallest over lambda >= 0, a non-negative least squares problem.
        _, distance = nnls((sides[:, None] * function.normals).T, -gradient)
        best = max(best, distance)
    assert maximise(function).values[0] == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(
    ("offset", "normals", "kinks", "largest"),
    [
        ([3.0, 4.0], np.eye(2), [0.0, 0.0], 5.0),
        ([0.0, 0.0, 1.0], np.eye(2, 3), [-1.0, -1.0], np.sqrt(3.0)),
        ([0.0, 0.0, 0.0, 2.0], np.eye(1, 4), [1.0], np.sqrt(5.0)),
        ([0.3, -0.4, 2.0], np.zeros((0, 3)), [], np.hypot(0.5, 2.0)),
    ],
    ids=["no kinks", "negative", "rank four", "no lines"],
)
def test_kinks_that_do_not_span(
    offset: list[float], normals: Array, kinks: list[float], largest: float
) -> None:
    function = Kinked(np.array([offset]), normals, np.reshape(kinks, (-1, 1)))
    assert maximise(function).values[0] == pytest.approx(largest, rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_offset_in_the_span_of_the_kinks_but_for_rounding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    normals = unit(rng.normal(size=(2, 3)))
    function = Kinked(rng.normal(size=(1, 2)) @ normals, normals, rng.normal(size=(2, 1)))
    peaks = maximise(function, floor=0.0)
    np.testing.assert_allclose(np.linalg.norm(peaks.points, axis=1), 1.0)
    assert attack(function, 1000, seed) <= peaks.upper


@pytest.mark.parametrize(("n", "rank", "count"), [(40, 2, 80), (10, 3, 92), (8, 4, 128)])
def test_cells_in_general_position(n: int, rank: int, count: int) -> None:
    signs = cell_signs(np.random.default_rng(n).normal(size=(n, rank)))
    assert len(signs) == count
    assert signs.all()


def test_scattered_points_are_apart() -> None:
    points = np.array([[0.0], [0.4], [1.5], [1.0], [3.0]])
    np.testing.assert_array_equal(scattered(points, 1.0, 2), [[0.0], [1.5]])
    np.testing.assert_array_equal(scattered(points, 1.0, 9), [[0.0], [1.5], [3.0]])


def test_lines_join_proportional_vectors() -> None:
    lines = Lines.of(np.array([[1.0, 2.0], [-2.0, -4.0], [0.0, 0.0], [1.0, 0.0], [0.1, 0.2]]))
    assert len(lines.normals) == 2
    assert lines.line[2] == -1
    assert lines.line[0] == lines.line[1] == lines.line[4] != lines.line[3]
    assert lines.lengths[0] * lines.lengths[1] < 0
    assert lines.sums(np.arange(5.0))[lines.line[[0, 3]]].tolist() == [5.0, 3.0]


@pytest.mark.parametrize(("rank", "K", "seed"), [(3, 1, 1), (3, 3, 0), (4, 1, 2)])
def test_bounds_of_any_dimension_hold(rank: int, K: int, seed: int) -> None:
    function = some_function(rank, K, seed, 8)
    points, values = ascend(function, unit(np.random.default_rng(seed).normal(size=(500, rank))))
    peaks = maximise(function)
    assert 0.999 * peaks.values[0] <= values.max() <= peaks.upper
    assert peaks.values[0] <= upper_bound(function)
    np.testing.assert_allclose(function.lengths(points), values)


@pytest.mark.parametrize("seed", range(2))
def test_relaxation_is_above_h_and_is_attained_where_it_says(seed: int) -> None:
    function = some_function(6, 1, seed, 15).essential()
    found = relax(function)
    points = unit(np.random.default_rng(seed).normal(size=(20_000, 6)))
    assert function.values(points).max() <= found.bound <= function.size * (1 + 1e-11)
    value = function.offset[0] @ found.mean + function.kinks[:, 0] @ found.distances
    assert value == pytest.approx(found.bound, rel=0.05)
    assert value <= found.bound


def test_relaxation_of_one_rising_line_and_of_a_linear_function_is_exact() -> None:
    """Max |<u, w>| = 1 and max <c, w> = ||c||."""
    one = Kinked(np.zeros((1, 4)), np.eye(1, 4), np.ones((1, 1)))
    assert relax(one).bound == pytest.approx(1.0, abs=1e-6)
    linear = Kinked(np.array([[3.0, 0.0, 4.0]]), np.zeros((0, 3)), np.zeros((0, 1)))
    assert relax(linear).bound == pytest.approx(5.0, rel=1e-6)
