"""What to solve where the hard margin has no solution: a soft margin, or fewer samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import Status
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Solution

OnFailure: TypeAlias = Literal["raise", "warn", "soft", "drop"]


@dataclass(frozen=True)
class Relaxed:
    """A solution, and what had to be given up for it.

    Attributes
    ----------
    solution : Solution
        Of the problem as posed, or of its relaxation; ``alpha`` has an entry for each sample of
        the problem as posed.
    C : float
        The C it was solved with.
    dropped : ndarray of int
        Samples left out.
    failure : Solution or None
        The proof of non-separability, where a relaxation was solved.
    """

    solution: Solution
    C: float
    dropped: NDArray[np.int64]
    failure: Solution | None = None

    @property
    def message(self) -> str:
        """What is wrong, and what was done about it; empty where nothing is."""
        if self.failure is None:
            optimal = self.solution.status is Status.OPTIMAL
            return "" if optimal else self.solution.message
        done = (
            f"left out {len(self.dropped)} samples that the soft margin misclassifies"
            if len(self.dropped)
            else f"solved the soft margin with C={self.C:g} instead"
        )
        return f"{self.failure.message}; {done}"


def relax(
    problem: MarginProblem,
    solve: Callable[[MarginProblem], Solution],
    on_failure: OnFailure,
    soft_C: float,
) -> Relaxed:
    """Solve a problem, or its relaxation where its samples are not separable."""
    solution = solve(problem)
    everything = Relaxed(solution, problem.C, np.zeros(0, dtype=np.int64))
    if solution.status is not Status.NOT_SEPARABLE or on_failure in ("raise", "warn"):
        return everything
    soft = solve(replace(problem, C=soft_C))
    if on_failure == "soft":
        return Relaxed(soft, soft_C, everything.dropped, failure=solution)
    # The soft margin's coefficients separate what they classify rightly.
    right = problem.y * problem.decision(soft.coef) > 0
    kept, dropped = np.flatnonzero(right), np.flatnonzero(~right)
    if len(kept) == 0:
        return everything
    reduced = solve(problem.subset(kept))
    alpha = np.zeros(problem.n_samples)
    alpha[kept] = reduced.alpha
    padded = replace(reduced, alpha=alpha, support=kept[reduced.support])
    return Relaxed(padded, problem.C, dropped, failure=solution)
