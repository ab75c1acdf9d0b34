"""Threads of BLAS and torch: few for small matrices, for the time of a block alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from cases import noisy_table
from implicit_bias import MarginProblem, max_margin, solve
from implicit_bias.base.threads import SMALL_ORDER, threads, threads_for
from implicit_bias.solvers import InteriorPoint, costs
from implicit_bias.solvers.base import BoundsAt


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    with threadpool_limits(2):
        torch.set_num_threads(2)
        yield
        torch.set_num_threads(before)


def lent() -> set[int]:
    """Threads of torch and of each BLAS."""
    of_blas = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    return of_blas | {torch.get_num_threads()}


@pytest.mark.usefixtures("two_threads")
def test_all_libraries_have_as_many_and_then_what_they_had() -> None:
    before = lent()  # a BLAS may be built for one thread
    assert 2 in before
    with threads(1):
        assert lent() == {1}
    assert lent() == before
    with threads(None):
        assert lent() == before
    with pytest.raises(ZeroDivisionError), threads(1):
        raise ZeroDivisionError
    assert lent() == before


def test_small_orders_have_one_thread_unless_another_number_is_asked_for() -> None:
    assert threads_for(SMALL_ORDER - 1) == 1
    assert threads_for(SMALL_ORDER) is None
    assert threads_for(2, asked=4) == threads_for(SMALL_ORDER, asked=4) == 4


@pytest.mark.usefixtures("two_threads")
def test_a_small_solve_has_one_thread_and_leaves_the_others_alone() -> None:
    before, seen = lent(), list[set[int]]()

    def look(bounds: BoundsAt) -> None:
        seen.append(lent())

    problem = max_margin(*noisy_table(60, 5), C=1.0)
    solve(problem, on_progress=look)
    assert seen == [{1}] * len(seen) != []
    assert lent() == before
    seen.clear()
    solve(problem, InteriorPoint(threads=2), on_progress=look)
    assert seen == [before] * len(seen) != []


def test_features_that_are_merged_do_not_count_for_the_order() -> None:
    """Gates of a unit with two contexts are one gate and a constant that all units share."""
    X, y = noisy_table(2000, 50)
    side = np.stack([X[:, h : h + 1] > 0 for h in range(20)], axis=1).astype(float)
    gates = np.concatenate([side, 1.0 - side], axis=2).reshape(2000, -1)
    labels: Any = y
    problem = MarginProblem(X, labels, gates, np.repeat(np.arange(20), 2), C=1.0)
    assert costs.step_order(problem, 2000) == 21 * 50
    assert costs.step_order(problem, 10) == 10
