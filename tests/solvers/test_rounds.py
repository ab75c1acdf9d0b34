"""Working sets: what leaves them, what joins them, and when the rounds end."""

import numpy as np

from implicit_bias import max_margin
from implicit_bias.bounds.certificate import Status
from implicit_bias.solvers.base import Answer
from implicit_bias.solvers.rounds import Exchange, Rounds, RowRounds


class Alternating(Rounds):
    """Row 0 violates whenever it is outside, and is clearly no support whenever it is inside."""

    def __init__(self) -> None:
        super().__init__(Answer(np.zeros(3), np.zeros((1, 1))), tolerance=1e-6)
        self.rows = np.array([0, 1])
        self.sets: list[list[int]] = []

    def solve_and_price(self) -> Status | None:
        """Note the working set."""
        self.sets.append(self.rows.tolist())
        return None

    def choose_next(self) -> Status | None:
        """Let row 0 leave where it may, and join where it is outside."""
        kept = self.staying(self.rows == 0)
        joining = np.setdiff1d([0], self.rows)
        if len(kept) == len(self.rows) and not len(joining):
            return Status.NUMERICAL_TROUBLE
        self.exchange(kept, joining)
        return None


class OfRows(RowRounds):
    """Rounds on constraints in memory, which nothing solves."""

    def solve_and_price(self) -> Status | None:
        """End at once."""
        return Status.NUMERICAL_TROUBLE

    choose_next = solve_and_price


def test_no_row_leaves_twice() -> None:
    """So that the rounds end, although every exchange wants the next one."""
    rounds = Alternating()
    assert len(list(rounds.steps())) == 3
    assert rounds.sets == [[0, 1], [1], [0, 1]]


def test_what_had_to_come_back_stays_for_good() -> None:
    """Also after another row has come back."""
    rounds = Alternating()
    for row in (0, 1):
        rounds.exchange(np.setdiff1d(rounds.rows, [row]), np.array([], dtype=int))
        rounds.exchange(rounds.rows, np.array([row]))
    assert rounds.staying(np.array([True, True])).tolist() == [0, 1]


def test_violators_are_outside_of_the_working_set_and_margins_stay_as_they_are() -> None:
    problem = max_margin(np.arange(1.0, 5.0)[:, None], np.ones(4))
    rounds = OfRows(problem, tolerance=1e-6)
    rounds.rows = np.array([0])
    rounds.price(np.array([[0.3]]), 0.0)
    assert rounds.violators(5).tolist() == [1, 2]
    assert rounds.violators(1).tolist() == [1]
    np.testing.assert_allclose(rounds.margins, [0.3, 0.6, 0.9, 1.2])


def test_clear_rows_are_beyond_the_margin_with_little_weight() -> None:
    policy = Exchange(first_size=10, clear_margin=0.3, clear_alpha=0.1)
    margins = np.array([1.0, 1.2, 1.4, 1.4, 9.0])
    values = np.array([4.0, 0.0, 0.0, 1.0, 0.0])  # of mean 1
    assert policy.clear(margins, values).tolist() == [False, False, True, False, True]


def test_as_many_rows_join_as_there_is_room_for() -> None:
    policy = Exchange(first_size=10, growth=0.5)
    assert policy.room(4, 4, capacity=100) == 10  # the first size, at least
    assert policy.room(60, 50, capacity=100) == 30  # half of the set
    assert policy.room(60, 50, capacity=55) == 5  # what fits
    assert policy.room(60, 60, capacity=50) == 0
