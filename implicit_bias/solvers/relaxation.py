"""What to solve where the hard margin has no solution: a soft margin, or fewer samples."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from implicit_bias.base.options import DEFAULTS, OnFailure, SolverOptions
from implicit_bias.base.validation import Array, check_number
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import C_in_words, MarginProblem
from implicit_bias.problem.constraints import Integers
from implicit_bias.solvers.base import Solution
from implicit_bias.solvers.solve import solve


@dataclass(frozen=True, eq=False)
class Relaxed:
    """A solution, and what had to be given up for it.

    Attributes
    ----------
    solution : Solution
        Of the problem itself, or of its relaxation; ``alpha`` has an entry for each of its samples.
    C : float or ndarray of shape (N,)
        The C it was solved with.
    dropped : ndarray of int
        Samples left out.
    failure : Solution or None
        The proof of non-separability: ``solution`` itself where no relaxation was solved.
    done : str
        What was done about it, in words.
    """

    solution: Solution
    C: float | Array
    dropped: Integers
    failure: Solution | None = None
    done: str = ""

    def among(self, n_samples: int, kept: Integers) -> Relaxed:
        """Return the same of this many samples, of which the problem has these (N,)."""
        solution = self.solution.among(n_samples, kept)
        failure = self.failure
        if failure is self.solution:
            failure = solution
        elif failure is not None:
            failure = failure.among(n_samples, kept)
        dropped = np.setdiff1d(np.arange(n_samples), np.delete(kept, self.dropped))
        return replace(self, solution=solution, failure=failure, dropped=dropped)

    @property
    def message(self) -> str:
        """What is wrong, and what was done about it; empty where nothing is."""
        parts = []
        if self.failure is not None:
            parts = [self.failure.message]
            if self.done:
                parts.append(self.done)
        if self.solution.status is not Status.OPTIMAL and self.solution is not self.failure:
            parts.append(self.solution.message)
        return "; ".join(parts)


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
        # In units of one over the features' norm: then it does not depend on the data's scale.
        soft_C = 100.0 / problem.scale
    check_number(soft_C, "soft_C", "(0, inf)")
    solution = solve(problem, *solving)
    none: Integers = np.zeros(0, dtype=np.int64)
    # A time limit or numerical trouble is no reason for another problem: only samples that nothing
    # separates are.
    if not solution.status.inseparable:
        return Relaxed(solution, problem.C, none)
    if on_failure in ("raise", "warn"):
        return Relaxed(solution, problem.C, none, solution)

    # --- the soft margin -------------------------------------------------------------------------
    relaxed = replace(problem, C=soft_C * weights)
    soft = solve(relaxed, *solving)
    C = C_in_words(relaxed.C)
    if on_failure == "soft":
        done = f"solved the soft margin with C={C} instead"
        return Relaxed(soft, relaxed.C, none, solution, done)

    # --- the hard margin of what its coefficients separate ---------------------------------------
    # Margins of an unfinished solve may be wrong for samples that the solution gets right.
    if soft.status is Status.INTERRUPTED:
        return Relaxed(soft, relaxed.C, none, solution, "no samples were left out")
    separated = problem.margins(problem.decision(soft.coef), soft.intercept) > 0
    kept = np.flatnonzero(separated)
    dropped = np.flatnonzero(~separated)
    # Without samples of a class the rest would be another problem, of fewer classes.
    lost = np.setdiff1d(problem.y, problem.y[kept])
    if len(lost):
        done = (
            f"the soft margin with C={C} classifies no sample of class {lost[0]:g} rightly: try a "
            "larger soft_C"
        )
        return Relaxed(solution, problem.C, none, solution, done)
    hard = solve(problem.subset(kept), *solving).among(problem.n_samples, kept)
    left_out = f"{len(dropped)} samples"
    if len(dropped) == 1:
        left_out = "1 sample"
    done = f"left out {left_out} that the soft margin misclassifies"
    return Relaxed(hard, problem.C, dropped, solution, done)
