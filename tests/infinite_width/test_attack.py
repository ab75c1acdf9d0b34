"""A search that shares no code with the exact oracle finds no neuron above the certified bound."""

import numpy as np
import pytest

from benchmarks.infinite_width.certified import Case, cases, degenerate
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width.arrangement import Kinked

# Directions evaluated at once, and the best ones from which the search climbs.
BLOCK, CLIMBS = 10_000, 100
# Random moves from each of the best directions, at each of some falling lengths.
MOVES, LENGTHS = 30, np.geomspace(0.1, 1e-8, 50)


def attack(function: Kinked, n_directions: int) -> float:
    """Largest ||h|| over random directions, and over random moves from the best and all lines."""
    best, largest = best_of_random(function, n_directions)
    best = np.vstack([best, function.normals])
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        moves = length * rng.normal(size=(len(best), MOVES, function.rank))
        tries = np.concatenate([best[:, None], best[:, None] + moves], axis=1)
        tries /= np.linalg.norm(tries, axis=2, keepdims=True)
        values = function.lengths(tries.reshape(-1, function.rank)).reshape(tries.shape[:2])
        best = tries[np.arange(len(best)), values.argmax(axis=1)]
    return max(largest, float(function.lengths(best).max()))


def best_of_random(function: Kinked, n_directions: int) -> tuple[Array, float]:
    """Best of random unit vectors, shape (CLIMBS, rank), and the largest value."""
    rng = np.random.default_rng(0)
    best, best_values = np.zeros((0, function.rank)), np.zeros(0)
    for start in range(0, n_directions, BLOCK):
        points = rng.normal(size=(min(BLOCK, n_directions - start), function.rank))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        values = np.append(best_values, function.lengths(points))
        points = np.vstack([best, points])
        order = np.argsort(-values)[:CLIMBS]
        best, best_values = points[order], values[order]
    return best, float(best_values.max())


def name_of(case: Case) -> str:
    return f"{case.kind}: {case.name}".replace("×", "x")


def check(case: Case, n_directions: int) -> None:
    found = case.solution()
    if case.expected is not None:
        assert found.status is case.expected
    if found.conflict is not None:
        return
    bound = float(found.certificate.dual_norms[0])
    largest = attack(found.problem.dual_function(found.alpha), n_directions)
    assert largest <= bound
    if found.exact and case.expected is not None:  # the bound is attained, so a search comes near
        assert largest > 0.99 * bound


@pytest.mark.fast("random points: 20 samples", "published clusters: 4 x 4, 40 samples")
@pytest.mark.parametrize("case", cases(quick=True), ids=name_of)
def test_no_search_exceeds_the_bound(case: Case) -> None:
    check(case, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(quick=False), ids=name_of)
def test_no_longer_search_exceeds_it(case: Case) -> None:
    check(case, 1_000_000)


def test_degenerate_sets_are_among_them() -> None:
    statuses = {case.expected for case in degenerate()}
    assert len(statuses) == 3
