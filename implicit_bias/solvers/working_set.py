r"""A working set of samples around the interior point, for more samples than one factorisation.

At the optimum alpha is zero on all samples but the support vectors, so the problem on any set
S that contains them has the same solution. Each round

1. solves the problem on S, which gives alpha_S (padded with zeros: the global lower bound,
   which rises from round to round) and coefficients zeta;
2. computes the margins of zeta on all samples (their smallest one: the global upper bound);
3. drops from S what is clearly no support vector (but nothing that had to come back once) and
   adds the samples that violate most.

If the samples of S alone are not separable, neither are all, and alpha_S padded proves it.
The support vectors stay in S, so its optimum cannot fall but by the inner solves' tolerance,
and rises when a violator enters; no sample leaves twice: the rounds end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import Status, certify
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Candidate, Progress, Report, Solver, Tolerances, silent
from implicit_bias.solvers.interior_point import InteriorPoint

MAX_ROUNDS = 100
TINY = float(np.finfo(np.float64).tiny)
FIRST_SIZE = 1000
# In one round S grows by at most this factor (and by FIRST_SIZE at least).
GROWTH = 0.5
# A sample leaves S where its margin exceeds 1 by this much and its alpha is below this share of
# the largest one.
CLEAR_MARGIN = 0.3
CLEAR_ALPHA = 1e-6
# The inner tolerance follows the global gap down to this share of the final tolerance.
INNER_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class WorkingSet(Solver):
    """The native solver beyond a few thousand samples; ``max_iterations`` counts rounds."""

    def run(self, problem: MarginProblem, report: Report = silent) -> Candidate:
        """Solve round by round, reporting the global bounds."""
        final = INNER_SHARE * self.tolerances.gap
        inner_gap = max(1e-3, final)
        samples = _first(problem)
        best_coef = np.zeros((problem.n_gates, problem.X.shape[1]))
        best_upper = np.inf
        history: list[Progress] = []
        status = Status.ITERATION_LIMIT
        alpha = np.zeros(problem.n_samples)
        has_left = np.zeros(problem.n_samples, dtype=bool)
        stays = np.zeros(problem.n_samples, dtype=bool)  # left once, and had to come back
        rounds = 0
        while rounds < (self.max_iterations or MAX_ROUNDS):
            rounds += 1
            tolerances: Tolerances = replace(self.tolerances, gap=inner_gap)
            inner = InteriorPoint(tolerances=tolerances, device=self.device)
            candidate = inner.run(problem.subset(samples))
            alpha = np.zeros(problem.n_samples)
            alpha[samples] = candidate.alpha
            if candidate.status is Status.NOT_SEPARABLE:
                status = Status.NOT_SEPARABLE
                break
            certificate = certify(problem, coef=candidate.coef, alpha=alpha)
            if certificate.upper <= best_upper:
                best_upper, best_coef = certificate.upper, candidate.coef
            progress = Progress(rounds, certificate.lower, best_upper)
            history.append(progress)
            report(progress)
            gap = (best_upper - certificate.lower) / max(certificate.lower, TINY)
            if gap <= self.tolerances.gap:
                status = Status.OPTIMAL
                break
            margins = problem.y * problem.decision(candidate.coef)
            smallest = margins[samples].min()
            scale = smallest if problem.hard_margin and smallest > 0 else 1.0
            grown = _next(samples, margins / scale, candidate.alpha, stays)
            entered = np.setdiff1d(grown, samples)
            stays[entered] = has_left[entered]
            has_left[np.setdiff1d(samples, grown)] = True
            unchanged = np.array_equal(grown, samples)
            if unchanged and inner_gap <= final:
                status = Status.NUMERICAL_TROUBLE
                break
            inner_gap = max(final, min(0.1 * gap, inner_gap * (0.1 if unchanged else 1.0)))
            samples = grown
        return Candidate(
            alpha=alpha,
            coef=best_coef,
            status=status,
            iterations=rounds,
            history=tuple(history),
        )


def _first(problem: MarginProblem) -> NDArray[np.int64]:
    """Take samples spread evenly over each class, at most FIRST_SIZE in all, in order."""
    chosen = []
    for label in (-1.0, 1.0):
        members = np.flatnonzero(problem.y == label)
        count = min(len(members), FIRST_SIZE // 2)
        chosen.append(members[np.linspace(0, len(members) - 1, count).astype(np.int64)])
    return np.sort(np.concatenate(chosen))


def _next(
    samples: NDArray[np.int64],
    margins: NDArray[np.float64],
    alpha: NDArray[np.float64],
    stays: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """S of the next round: without the clear samples, with the worst violators."""
    clear = (margins[samples] > 1 + CLEAR_MARGIN) & (alpha <= CLEAR_ALPHA * alpha.max())
    keep = samples[~clear | stays[samples]]
    outside = np.ones(len(margins), dtype=bool)
    outside[samples] = False
    violators = np.flatnonzero(outside & (margins < 1))
    room = max(FIRST_SIZE, int(GROWTH * len(samples)))
    worst = violators[np.argsort(margins[violators], kind="stable")[:room]]
    return np.sort(np.concatenate([keep, worst]))
