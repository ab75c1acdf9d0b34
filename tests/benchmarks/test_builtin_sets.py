"""The benchmark of scikit-learn's built-in sets: its cases, and what is said of them."""

import numpy as np
import pytest

from benchmarks.speed import builtin_sets
from benchmarks.speed.exact import find_lies
from implicit_bias import Status, solve


def test_cases() -> None:
    cases = list(builtin_sets.cases())
    assert len(cases) == len(set(cases)) == 4 * (3 + 3 + 1 + 45)
    raw = builtin_sets.Case("digits", 0, 1, standardised=False, intercept=True).problem()
    scaled = builtin_sets.Case("digits", 0, 1, standardised=True, intercept=False).problem()
    assert (raw.intercept, scaled.intercept) == (True, False)
    np.testing.assert_allclose(scaled.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_array_equal(raw.y, scaled.y)


@pytest.mark.parametrize(
    ("data", "first", "second", "status"),
    [
        ("iris", 0, 1, Status.OPTIMAL),
        ("iris", 1, 2, Status.NOT_SEPARABLE),
        ("wine", 0, 2, Status.OPTIMAL),
        ("breast cancer", 0, 1, Status.OPTIMAL),
    ],
)
def test_raw_sets_are_answered(data: str, first: int, second: int, status: Status) -> None:
    case = builtin_sets.Case(data, first, second, standardised=False, intercept=True)
    problem = case.problem()
    solution = solve(problem)
    assert solution.status is status
    assert find_lies(solution, problem, builtin_sets.TOLERANCE) == []
