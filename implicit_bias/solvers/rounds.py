r"""Solve on some of the constraints, price all, exchange: the loop around every working set.

At the optimum alpha is zero on all constraints but a few, so the problem on any set S that has
these has the same solution. Each round

1. solves the problem on S. alpha, padded with zeros, is a lower bound for all constraints;
2. prices all constraints, those in memory at once or others block by block: the margins of the
   coefficients on all of them make an upper bound, and say which are violated;
3. exchanges: what is clearly no support leaves S (but nothing that had to come back once), and the
   constraints that violate most join it.

The optimum of S cannot fall but by the inner solves' tolerance, and rises when a violated
constraint joins; none leaves twice: the rounds end. Columns can be priced like rows
(`linear_program`).

`Rounds` is the loop with its bounds: of constraints in memory for `working_set` and
`linear_program` (`RowRounds`), of blocks of samples for `out_of_core`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, primal_estimate
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.constraints import Integers, worst_rows
from implicit_bias.solvers.base import Answer
from implicit_bias.solvers.iteration import Run, Steps, zero_answer


@dataclass(frozen=True)
class Exchange:
    """What leaves a working set, and how much joins it.

    Attributes
    ----------
    first_size : int
        Rows of the first set, and how many may join at least.
    growth : float
        In one round this fraction of its size may join, if that is more.
    clear_margin, clear_alpha : float
        A row leaves where its margin exceeds 1 by this much and its alpha is below this fraction of
        the mean.
    """

    first_size: int
    growth: float = 0.5
    clear_margin: float = 0.3
    clear_alpha: float = 0.1

    def clear(self, margins: Array, values: Array) -> NDArray[np.bool_]:
        """Whether rows (n,) of these margins and dual variables are clearly no support."""
        mean = values.mean() if len(values) else 0.0
        return (margins > 1.0 + self.clear_margin) & (values <= self.clear_alpha * mean)

    def room(self, size: int, kept: int, capacity: int) -> int:
        """Return how many rows may join a set of this size, of which so many stay."""
        # Never less than the first size, so that small sets do not need many rounds to grow.
        wanted = max(self.first_size, int(self.growth * size))
        return max(0, min(wanted, capacity - kept))


class Rounds(Run):
    """A working set of rows, and the best bounds so far for all rows, with what attains them.

    Attributes
    ----------
    tolerance : float
        Relative gap at which the rounds end.
    rows : ndarray of int
        The working set: indices of rows, in order.
    lower, upper : float
        Bounds for all rows.
    best : Answer
        What attains them.
    """

    def __init__(self, nothing: Answer, tolerance: float) -> None:
        self.tolerance = tolerance
        self.best = nothing
        self.lower = 0.0
        self.upper = np.inf
        none = np.zeros(0, dtype=np.int64)
        self.rows: Integers = none
        self._left = none  # rows that left once
        self._stays = none  # rows of these that had to come back

    @abstractmethod
    def solve_and_price(self) -> Status | None:
        """Solve on the working set, and price all rows; a status where that ends the rounds."""

    @abstractmethod
    def choose_next(self) -> Status | None:
        """Choose the next working set; a status where there is none."""

    @final
    def steps(self) -> Steps:
        """Go from round to round."""
        while True:
            ended = self.solve_and_price()
            if ended is not None:
                return ended
            yield self.lower, self.upper
            if self.gap <= self.tolerance:
                return Status.OPTIMAL
            ended = self.choose_next()
            if ended is not None:
                return ended

    @final
    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self.best

    @property
    def gap(self) -> float:
        """Relative gap between the bounds."""
        if self.lower <= 0:
            return np.inf
        return (self.upper - self.lower) / self.lower

    def improve_lower(self, lower: float, alpha: Array) -> None:
        """Take over dual variables with this lower bound, if they are as good as any."""
        # Equal ones count: the first bound of a run may be 0, and what has it is the answer until
        # then.
        if lower >= self.lower:
            self.lower = lower
            self.best = replace(self.best, alpha=alpha)

    def improve_upper(self, upper: float, coef: Array, intercept: float | Array) -> None:
        """Take over coefficients with this upper bound, if they are as good as any."""
        if upper <= self.upper:
            self.upper = upper
            self.best = replace(self.best, coef=coef, intercept=intercept)

    def staying(self, clear: NDArray[np.bool_]) -> Integers:
        """Return the rows of the working set but the clear ones, which leave it once only."""
        return self.rows[~clear | np.isin(self.rows, self._stays)]

    def exchange(self, kept: Integers, joining: Integers) -> None:
        """Make a working set of what is kept of it and what joins it."""
        # A row that joins after it had left was needed after all: it stays from now on. So no row
        # leaves twice, and the rounds end.
        self._stays = np.union1d(self._stays, np.intersect1d(joining, self._left))
        self._left = np.union1d(self._left, np.setdiff1d(self.rows, kept))
        self.rows = np.union1d(kept, joining)


class RowRounds(Rounds):
    """Rounds on constraints that are in memory.

    Attributes
    ----------
    constraints : Constraints
        All rows, but those whose rival no sample has where there is an intercept: the equation of
        that rival's offset makes their dual variables 0.
    margins : ndarray of shape (P,)
        Of all rows, by the coefficients of the last round.
    """

    margins: Array

    def __init__(self, problem: MarginProblem, tolerance: float) -> None:
        super().__init__(zero_answer(problem), tolerance)
        self.problem = problem
        self.constraints = problem.constraints

    @property
    def working(self) -> Constraints:
        """The working set."""
        return self.constraints.subset(self.rows)

    def margins_of(self, coef: Array, intercept: float | Array) -> Array:
        """Margins of all rows, (P,)."""
        scores = self.problem.decision(coef) + intercept
        return self.constraints.margins(scores.reshape(self.problem.n_samples, -1))

    def price(self, coef: Array, intercept: float | Array) -> None:
        """Compute the margins of coefficients on all rows, and the upper bound that they make."""
        self.margins = self.margins_of(coef, intercept)
        smallest = self.constraints.smallest(self.margins)
        self.improve_upper(primal_estimate(self.problem, coef, smallest), coef, intercept)

    def worst(self, most: int, below: float = np.inf) -> Integers:
        """Return the rows of the smallest margins, each sample's first: at most this many."""
        return worst_rows(self.margins, self.constraints.samples, below, most)

    def violators(self, most: int, below: float = 1.0) -> Integers:
        """Return the rows outside of the working set that violate most: at most this many."""
        outside = self.margins.copy()
        outside[self.rows] = np.inf  # no row of the working set is among the smallest
        return worst_rows(outside, self.constraints.samples, below, most)
