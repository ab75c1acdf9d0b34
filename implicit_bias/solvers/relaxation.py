"""What to solve where the hard margin has no solution: a soft margin, or fewer samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.options import DEFAULTS, OnFailure, SolverOptions
from implicit_bias.base.validation import Array, check_number
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import C_in_words, MarginProblem
from implicit_bias.solvers.base import Solution
from implicit_bias.solvers.solve import solve

# C of the soft margin where the user names none, in units of 1 / (root mean square feature norm):
# then it does not depend on the scale of the data.
DEFAULT_SOFT_C = 100.0


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A solution, and what had to be given up for it.

    Attributes
    ----------
    solution : Solution
        Of the problem as posed, or of its relaxation; ``alpha`` has an entry for each sample of
        the problem as posed.
    C : float or ndarray of shape (N,)
        The C it was solved with.
    dropped : ndarray of int
        Samples left out.
    failure : Solution or None
        The proof of non-separability, where a relaxation was tried.
    done : str
        What was done about it, in words.
    """

    solution: Solution
    C: float | Array
    dropped: NDArray[np.int64]
    failure: Solution | None = None
    done: str = ""

    def among(self, n_samples: int, kept: NDArray[np.int64]) -> Relaxed:
        """Return the same of this many samples, of which the problem as posed has these (N,)."""
        solution, failure = self.solution.among(n_samples, kept), self.failure
        if failure is not None:
            same = failure is self.solution
            failure = solution if same else failure.among(n_samples, kept)
        dropped = np.setdiff1d(np.arange(n_samples), np.delete(kept, self.dropped))
        return replace(self, solution=solution, failure=failure, dropped=dropped)

    @property
    def message(self) -> str:
        """What is wrong, and what was done about it; empty where nothing is."""
        first = [f"{self.failure.message}; {self.done}"] if self.failure is not None else []
        said = self.solution.status is Status.OPTIMAL or self.solution is self.failure
        return "; ".join(first if said else [*first, self.solution.message])


def solve_relaxed(
    problem: MarginProblem,
    on_failure: OnFailure = "raise",
    soft_C: float | None = None,
    solving: SolverOptions = DEFAULTS,
    weights: Array | float = 1.0,
) -> Relaxed:
    """Solve a margin problem; where its samples are not separable, a relaxation of it.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    on_failure : {"raise", "warn", "soft", "drop"}
        "raise" and "warn" (the caller does either) solve no relaxation; "soft" solves the soft
        margin; "drop" leaves out the samples that the soft margin misclassifies, and solves the
        hard margin on the rest.
    soft_C : float or None
        C of the soft margin, positive and finite; None is 100 over the root mean square of the
        feature norms.
    solving : SolverOptions
        Solver, tolerance and device, as in `solve`.
    weights : float or ndarray of shape (N,)
        Of the samples in the soft margin: their C is ``soft_C`` times these.
    """
    if soft_C is None:
        soft_C = DEFAULT_SOFT_C / problem.scale
    check_number(soft_C, "soft_C", "(0, inf)")
    solution = solve(problem, *solving)
    nothing = np.zeros(0, dtype=np.int64)
    if not solution.status.inseparable or on_failure in ("raise", "warn"):
        return Relaxed(solution, problem.C, nothing)
    posed = replace(problem, C=soft_C * weights)
    soft, said = solve(posed, *solving), C_in_words(posed.C)
    if on_failure == "soft":
        done = f"solved the soft margin with C={said} instead"
        return Relaxed(soft, posed.C, nothing, solution, done)
    if soft.status is Status.INTERRUPTED:
        return Relaxed(soft, posed.C, nothing, solution, "no samples were left out")
    # The soft margin's coefficients separate what they classify rightly.
    right = problem.margins(problem.decision(soft.coef), soft.intercept) > 0
    kept, dropped = np.flatnonzero(right), np.flatnonzero(~right)
    lost = np.setdiff1d(problem.y, problem.y[kept])
    if len(lost):
        done = (
            f"the soft margin with C={said} classifies no sample of class {lost[0]:g} rightly: try "
            "a larger soft_C"
        )
        return Relaxed(solution, problem.C, nothing, solution, done)
    padded = solve(problem.subset(kept), *solving).among(problem.n_samples, kept)
    done = f"left out {len(dropped)} samples that the soft margin misclassifies"
    return Relaxed(padded, problem.C, dropped, solution, done)
