"""Infinitely wide networks of several outputs: the oracle of lengths, bounds, degenerate data."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cases import mostly_slow
from implicit_bias import MarginProblem, Status
from implicit_bias import solve as solve_gated
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import ClassesProblem, max_margin, max_margin_of_classes
from implicit_bias.infinite_width.arrangement import Kinked, Lines, maximise
from implicit_bias.infinite_width.classes import primal_bound
from implicit_bias.infinite_width.sphere_search import ascend_length, length_bound, upper_bound
from implicit_bias.infinite_width.vector_arrangement import KinkedVectors, maximise_length

GAP = 1e-6


def unit(points: Array) -> Array:
    return np.asarray(points / np.linalg.norm(points, axis=-1, keepdims=True))


def some_function(rank: int, K: int, seed: int) -> KinkedVectors:
    """Random kinks on random lines, some without; every second one with degenerate positions."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(20, rank))
    if seed % 2:
        vectors = np.round(2 * vectors)
    normals = Lines.of(vectors[vectors.any(axis=1)]).normals
    kinks = rng.normal(size=(len(normals), K)) * rng.choice([0, 1, 1], (len(normals), 1))
    return KinkedVectors(rng.normal(size=(K, rank)) * (seed % 3), normals, kinks)


def attack(function: KinkedVectors, n_points: int, seed: int) -> float:
    """Largest ||h|| over random directions, and random moves from the best of them."""
    rng = np.random.default_rng(seed)
    points = unit(rng.normal(size=(n_points, function.rank)))
    best = points[np.argsort(-function.lengths(points))[:20]]
    for size in np.geomspace(0.1, 1e-8, 40):
        moves = size * rng.normal(size=(len(best), 30, function.rank))
        tries = unit(np.concatenate([best[:, None], best[:, None] + moves], axis=1))
        lengths = function.lengths(tries.reshape(-1, function.rank)).reshape(tries.shape[:2])
        best = tries[np.arange(len(best)), lengths.argmax(axis=1)]
    return float(function.lengths(best).max())


def planar(n: int, seed: int, n_classes: int) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    return X, rng.integers(0, n_classes, n)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("K", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_oracle_is_not_beaten(rank: int, K: int, seed: int) -> None:
    function = some_function(rank, K, seed)
    peaks = maximise_length(function)
    found = attack(function, 3000, seed)
    assert found <= peaks.upper
    assert found >= peaks.values[0] * (1 - 1e-6)
    assert peaks.upper <= peaks.values[0] * (1 + 1e-11)
    np.testing.assert_allclose(function.lengths(peaks.points), peaks.values)


def test_values_by_loops() -> None:
    function = some_function(3, 2, 2)
    point = unit(np.array([1.0, -2.0, 0.5]))
    value = function.offset @ point
    for normal, kink in zip(function.normals, function.kinks, strict=True):
        value = value + abs(float(normal @ point)) * kink
    np.testing.assert_allclose(function.values(point[None])[0], value)
    jump = function.jumps[3].reshape(2, 3)
    np.testing.assert_allclose(jump, np.outer(function.kinks[3], function.normals[3]))


@pytest.mark.parametrize("seed", range(3))
def test_one_component_is_the_scalar_oracle(seed: int) -> None:
    vectors = some_function(3, 1, seed)
    scalar = Kinked(vectors.offset[0], vectors.normals, vectors.kinks[:, 0])
    assert maximise_length(vectors).values[0] == pytest.approx(maximise(scalar).values[0])


@pytest.mark.parametrize("seed", range(2))
def test_components_that_are_turned_have_the_same_lengths(seed: int) -> None:
    function = some_function(3, 3, seed)
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    turned = KinkedVectors(turn @ function.offset, function.normals, function.kinks @ turn.T)
    peaks = maximise_length(function)
    assert maximise_length(turned).values[0] == pytest.approx(peaks.values[0])


def test_ranks_above_three_are_refused() -> None:
    with pytest.raises(ValueError, match="rank 4"):
        maximise_length(KinkedVectors(np.zeros((2, 4)), np.eye(4), np.ones((4, 2))))


@pytest.mark.parametrize("C", [np.inf, 0.7])
@pytest.mark.parametrize("activation", mostly_slow(["linear plus relu", "relu"], ["relu"]))
def test_rank_two_against_a_grid_of_directions(activation: str, C: float) -> None:
    """All of 200 directions of the plane in one program of the package."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(6, 2)), np.array([0, 1, 2, 1, 0, 2])
    solution = max_margin_of_classes(X, y, C, activation=activation)  # type: ignore[arg-type]
    angles = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    gates = solution.problem.units.activations(directions)
    every = MarginProblem(np.ones((6, 1)), y, gates, np.arange(200), C=C, classes=3)
    value = solve_gated(every, tol=1e-7).certificate
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.lower <= value.upper
    assert solution.certificate.upper == pytest.approx(value.lower, rel=4e-3)


@pytest.mark.slow
@pytest.mark.parametrize("C", [np.inf, 2.0])
def test_two_classes_are_the_binary_problem(C: float) -> None:
    X, y = planar(8, 3, 2)
    binary = max_margin(X, 2 * y - 1, C).certificate
    found = max_margin_of_classes(X, y, C * np.sqrt(0.5)).certificate
    assert found.lower <= binary.upper * np.sqrt(0.5)
    assert found.upper >= binary.lower * np.sqrt(0.5)
    assert found.gap < GAP


@pytest.mark.slow
def test_solution_is_what_it_says() -> None:
    X, y = planar(15, 1, 3)
    solution = max_margin_of_classes(X, y)
    certificate = solution.certificate
    assert solution.status is Status.OPTIMAL
    assert certificate.gap < GAP
    np.testing.assert_allclose(np.linalg.norm(solution.directions, axis=1), 1.0)
    outputs = solution.decision(X)
    margins = [
        outputs[n, y[n]] - outputs[n, k] for n in range(len(y)) for k in range(3) if k != y[n]
    ]
    assert min(margins) == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(
        solution.problem.margins(outputs).min(), min(margins), rtol=1e-12, atol=1e-12
    )
    assert np.linalg.norm(solution.coef, axis=1).sum() == pytest.approx(certificate.upper)
    assert solution.alpha.sum() == pytest.approx(certificate.lower)
    function = solution.problem.dual_function(solution.alpha)
    assert attack(function, 3000, 0) <= certificate.dual_norms[0] <= 1 + 1e-12
    # h by its definition, at each of the optimum's own directions: the readout over its length.
    a = np.zeros((len(y), 3))
    for n in range(len(y)):
        for k in range(3):
            a[n, y[n]] += solution.alpha[n, k]
            a[n, k] -= solution.alpha[n, k]
    h = np.maximum(solution.directions @ X.T, 0.0) @ a
    np.testing.assert_allclose(h, unit(solution.coef), atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_oracle_is_not_beaten_by_a_million_directions(seed: int) -> None:
    X, y = planar(30 + 30 * seed, seed, 3)
    solution = max_margin_of_classes(X, y)
    assert solution.certificate.gap < GAP
    function = solution.problem.dual_function(solution.alpha)
    assert max(attack(function, 50_000, i) for i in range(20)) <= maximise_length(function).upper


@pytest.mark.slow
def test_scaling_and_rotation() -> None:
    X, y = planar(6, 4, 3)
    norm = max_margin_of_classes(X, y).certificate.upper
    rotation = 1e6 * np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0][:3]
    lifted = max_margin_of_classes(X @ rotation, 2 - y)
    norm *= 1e-6
    assert lifted.certificate.upper == pytest.approx(norm, rel=3e-6)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 2], [1, 2], [1, 3]], [0, 2, 1]),
        ([[1, 2], [2, 4], [1, 3]], [0, 1, 2]),
        ([[0, 0], [2, 4], [1, 3]], [0, 1, 2]),
        ([[1, 1], [-1, -1], [1, 1], [1, 0]], [0, 0, 1, 2]),
    ],
    ids=["equal", "proportional", "zero", "among antipodal"],
)
def test_data_that_no_network_separates(X: list[list[float]], y: list[int]) -> None:
    solution = max_margin_of_classes(X, y)
    assert solution.status is Status.NOT_SEPARABLE
    assert solution.conflict is not None
    assert solution.certificate.lower == np.inf
    assert solution.problem.dual_function(solution.alpha).size < 1e-12
    assert solution.alpha.sum() == pytest.approx(1)
    assert solution.alpha.min() >= 0
    assert max_margin_of_classes(X, y, 1.0).status is Status.OPTIMAL


def test_inseparable_by_three_classes_alone_is_no_optimum() -> None:
    """Opposite inputs of opposite order: linear functions alone, and they contradict each other."""
    half = np.array([[1.0, 0], [0, 1], [-1, -1]])
    X, y = np.vstack([half, -half]), [0, 1, 2, 1, 2, 0]
    solution = max_margin_of_classes(X, y)
    assert solution.certificate.lower > 0
    if solution.status is Status.OPTIMAL:
        assert solution.problem.margins(solution.decision(X)).min() >= 1 - 1e-9
    else:
        assert solution.certificate.upper == np.inf


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 1], [-2, -2], [3, 3]], [0, 1, 0]),
        ([[1.0]] * 4, [0, 0, 0, 0]),
        ([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0]], [0, 1, 2, 0]),
        (np.repeat([[1.0, 0], [0, 1], [1, 1]], 3, axis=0).tolist(), [0, 0, 0, 1, 1, 1, 2, 2, 2]),
    ],
    ids=["one line", "one class", "collinear", "repeated"],
)
def test_degenerate_positions(X: list[list[float]], y: list[int]) -> None:
    if len(set(y)) == 1:
        with pytest.raises(ValueError, match="two classes"):
            max_margin_of_classes(X, y)
        return
    solution = max_margin_of_classes(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP


@pytest.mark.parametrize("C", [np.inf, 0.3])
def test_bounds_beyond_the_exact_oracle(C: float) -> None:
    """They hold, as two classes are the binary problem."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 4)), np.arange(12) % 2
    found = max_margin_of_classes(X, y, C * np.sqrt(0.5), max_rounds=10)
    best = max_margin(X, 2 * y - 1, C).certificate
    assert not found.exact
    assert 0 < found.certificate.lower * np.sqrt(2) <= best.upper * (1 + GAP)
    assert found.certificate.upper * np.sqrt(2) >= best.lower * (1 - GAP)
    assert found.certificate.upper * np.sqrt(2) <= 1.1 * best.upper


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_lengths_is_above_all_points(seed: int) -> None:
    function = some_function(4, 3, seed)
    points = unit(np.random.default_rng(seed).normal(size=(2000, 4)))
    _, values = ascend_length(function, points)
    assert function.lengths(points).max() <= values.max() <= length_bound(function)
    # Of one component it is the bound of the scalar relaxation.
    one = KinkedVectors(function.offset[:1], function.normals, function.kinks[:, :1])
    scalar = Kinked(function.offset[0], function.normals, function.kinks[:, 0])
    assert length_bound(one) == pytest.approx(upper_bound(scalar), rel=1e-9)


def test_inputs_that_are_all_zero_cost_what_C_says() -> None:
    solution = max_margin_of_classes(np.zeros((3, 2)), [0, 1, 2], 0.5)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.upper == pytest.approx(1.5)
    assert primal_bound(solution.problem, solution.directions, solution.coef)[0] == (
        pytest.approx(1.5)
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"C": 0.0}, "C must"),
        ({"tol": 0.0}, "tol"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"activation": "tanh"}, "must be one of"),
        ({"y": [0, 1, 1.5]}, "integers"),
        ({"y": [-1, 1, 1]}, "integers"),
        ({"y": ["a", "b", "c"]}, "text"),
        ({"y": [0, 1]}, "labels"),
        ({"X": [[np.nan], [1.0], [2.0]]}, "NaN"),
    ],
)
def test_bad_input(changes: dict[str, object], word: str) -> None:
    arguments: dict[str, object] = {"X": [[1.0], [2.0], [-1.0]], "y": [0, 0, 1], **changes}
    with pytest.raises((ValueError, TypeError), match=word):
        max_margin_of_classes(**arguments)  # type: ignore[arg-type]


def test_dual_function_by_loops() -> None:
    X, y = planar(6, 0, 3)
    problem = ClassesProblem(X, y, activation=(-0.3, 0.7))
    alpha = np.random.default_rng(0).uniform(size=(6, 3))
    alpha[np.arange(6), y] = 0.0
    w = unit(np.array([0.2, -1.0, 0.6]))
    value = np.zeros(3)
    for n in range(6):
        product = float(X[n] @ w)
        sigma = 0.7 * product if product > 0 else -0.3 * product
        for k in range(3):
            value[y[n]] += alpha[n, k] * sigma
            value[k] -= alpha[n, k] * sigma
    inside = (w @ problem.units.basis)[None]
    np.testing.assert_allclose(problem.dual_function(alpha).values(inside)[0], value, atol=1e-12)
