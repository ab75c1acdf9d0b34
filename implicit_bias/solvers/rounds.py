"""Rounds on some of the constraints: the bounds that they give for all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import primal_bound
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import row_index
from implicit_bias.solvers.iteration import Answer, Run, nothing_yet


class Rounds(Run):
    """A working set of rows, and the best global bounds so far with what attains them.

    Attributes
    ----------
    samples, rivals : ndarray of int, shape (P,)
        Of all rows, as in `rows`; ``rivals`` is None with two classes.
    rows : ndarray of int
        The working set: indices of rows, in order.
    margins : ndarray of shape (P,)
        Of all rows, by the coefficients of the last round.
    """

    margins: Array

    def __init__(self, problem: MarginProblem) -> None:
        self.problem = problem
        self.samples: NDArray[np.int64] = np.arange(problem.n_samples)
        self.rivals: NDArray[np.int64] | None = None
        if problem.classes is not None:
            self.samples, self.rivals = row_index(problem)
        self.rows: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.best = nothing_yet(problem)
        self.lower, self.upper = 0.0, np.inf

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self.best

    @property
    def gap(self) -> float:
        """Relative gap between the global bounds."""
        return (self.upper - self.lower) / self.lower if self.lower > 0 else np.inf

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Samples and rivals of the working set, with many classes."""
        assert self.rivals is not None
        return self.samples[self.rows], self.rivals[self.rows]

    def values(self, of_problem: Array) -> Array:
        """Return dual variables, or margins, of all rows (P,) from those of the problem."""
        if self.rivals is None:
            return of_problem
        return np.asarray(of_problem[self.samples, self.rivals])

    def margins_of(self, coef: Array, intercept: float | Array) -> Array:
        """Margins of all rows, (P,)."""
        decision = self.problem.decision(coef)
        if self.rivals is None:
            return self.problem.margins(decision, intercept)
        return self.values(self.problem.pair_margins(decision, intercept))

    def take(self, lower: float, alpha: Array, coef: Array, intercept: float | Array) -> None:
        """Take over dual variables with this lower bound, and coefficients, where they are best."""
        if lower >= self.lower:
            self.lower, self.best = lower, replace(self.best, alpha=alpha)
        self.margins = self.margins_of(coef, intercept)
        smallest = np.full(self.problem.n_samples, np.inf)
        np.minimum.at(smallest, self.samples, self.margins)
        upper = primal_bound(self.problem, coef, smallest)
        if upper <= self.upper:
            self.upper = upper
            self.best = replace(self.best, coef=coef, intercept=intercept)
