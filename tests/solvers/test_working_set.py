"""What a working set holds: all classes where offsets are free, more rows without a proof."""

from typing import Any

import numpy as np
import pytest

from implicit_bias import Status, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.bounds.gordan import prove_not_separable
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.solvers import WorkingSet, working_set
from implicit_bias.solvers.iteration import RowSolver


def a_far_class() -> tuple[Array, Array]:
    """Return two classes that are near each other, and a third one far from both."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [150, 150, 5])
    centres = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 60.0]])
    return centres[y] + rng.normal(size=(len(y), 2)), y


@pytest.mark.parametrize("intercept", [True, False])
def test_each_class_has_a_row_where_an_offset_alone_would_win_it(
    monkeypatch: pytest.MonkeyPatch, *, intercept: bool
) -> None:
    counts: list[int] = []
    chosen = RowSolver.chosen

    def spy(self: RowSolver, problem: MarginProblem) -> Constraints:
        rows = chosen(self, problem)
        # The working set's own are all rows.
        if not isinstance(self, WorkingSet):
            counts.append(len(np.unique(rows.owners)))
        return rows

    monkeypatch.setattr(RowSolver, "chosen", spy)
    problem = max_margin(*a_far_class(), intercept=intercept)
    found = WorkingSet(first_size=4, few_rounds=0.0).run(problem)
    assert found.status is Status.OPTIMAL
    assert len(counts) > 1
    # Without offsets the far class does without.
    assert min(counts) == (3 if intercept else 2)


def test_what_few_rows_do_not_prove_more_may(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(150, 3))
    problem = max_margin(X, np.tile([1.0, -1.0], 75))
    supports: list[int] = []

    def reluctant(problem: Any, alpha: Array, *arguments: Any) -> Any:
        supports.append(int(np.count_nonzero(alpha)))
        if len(supports) <= 2:
            return None
        return prove_not_separable(problem, alpha, *arguments)

    monkeypatch.setattr(working_set, "prove_not_separable", reluctant)
    found = WorkingSet(first_size=20).run(problem)
    assert found.status is Status.NOT_SEPARABLE
    assert found.proof is not None
    assert len(supports) == 3
    assert supports[0] <= 20
    assert supports[1] <= 40


@pytest.mark.parametrize(("norm", "first_size"), [("l2", 1), ("linf", 2)])
def test_a_first_working_set_of_one_class_has_bounds(norm: str, first_size: int) -> None:
    """Copies of one sample are all that is near the margin of the Euclidean norm."""
    X = np.array([[1.0, 0.1], [1.0, 0.1], [1.0, 0.1], [1.0, 0.1], [-1.0, 0.2], [-1.5, 0.3]])
    problem = max_margin(X, [1, 1, 1, 1, -1, -1], norm, intercept=True)
    found = solve(problem, WorkingSet(first_size=first_size, few_rounds=0.0))
    assert found.status is Status.OPTIMAL
    other = solve(problem, "interior-point" if norm == "l2" else "highs")
    assert found.certificate.upper == pytest.approx(other.certificate.upper, rel=1e-5)


@pytest.mark.parametrize("margin", [1e-6, 1e-8])
def test_a_thin_margin_is_found_on_working_sets(margin: float) -> None:
    """Two samples beside the boundary of two classes leave a margin that costs digits."""
    rng = np.random.default_rng(1)
    W = rng.normal(size=(4, 3))
    X = rng.normal(size=(300, 3))
    scores = np.sort(X @ W.T)
    n = np.argmin(scores[:, -1] - scores[:, -2])
    second, first = np.argsort(X[n] @ W.T)[-2:]
    across = W[first] - W[second]
    on_boundary = X[n] - (across @ X[n]) / (across @ across) * across
    X = np.vstack([X, on_boundary + margin * across, on_boundary - margin * across])
    problem = max_margin(X, (X @ W.T).argmax(axis=1))
    found = solve(problem, WorkingSet(first_size=50, few_rounds=0.0))
    assert found.status is Status.OPTIMAL
    # W / c separates with margin 1, c the smallest margin by W.
    rows = np.arange(len(X))
    by_class = X @ W.T
    others = by_class.copy()
    others[rows, problem.y] = -np.inf
    smallest = (by_class[rows, problem.y] - others.max(axis=1)).min()
    assert found.certificate.lower <= np.linalg.norm(W) / smallest
    whole = solve(problem, "feature-space")
    assert found.certificate.upper == pytest.approx(whole.certificate.upper, rel=2e-6)
