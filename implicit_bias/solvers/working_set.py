r"""A working set of samples around the interior point, for more samples than one factorisation.

At the optimum alpha is zero on all samples but the support vectors, so the problem on any set
S that contains them has the same solution. Each round

1. solves the problem on S, from where the last round ended, which gives alpha_S (padded with
   zeros: the global lower bound, which rises from round to round) and coefficients zeta;
2. computes the margins of zeta on all samples (their smallest one: the global upper bound);
3. drops from S what is clearly no support vector (but nothing that had to come back once) and
   adds the samples that violate most.

If the samples of S alone are not separable, neither are all, and alpha_S padded proves it.
The support vectors stay in S, so its optimum cannot fall but by the inner solves' tolerance,
and rises when a violator enters; no sample leaves twice: the rounds end.

Early rounds are solved loosely (in float32 alone), since their S is wrong anyway. Memory is that
of the interior point on S; a bound on it is a bound on the size of S.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import Status, certify, primal_bound
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Candidate, Start, WarmStart
from implicit_bias.solvers.interior_point import COARSE_GAP, InteriorPoint
from implicit_bias.solvers.iteration import GIB, Answer, NativeSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.scaled_problem import TINY, peak_memory

MAX_ROUNDS = 100
FIRST_SIZE = 1000
# In one round S gains at most this share of its size, or FIRST_SIZE if that is more.
GROWTH = 1.0
# A sample leaves S where its margin exceeds 1 by this much and its alpha is below this share of
# the mean on S.
CLEAR_MARGIN = 0.3
CLEAR_ALPHA = 0.1
# The inner tolerance follows the global gap down to this share of the final tolerance.
INNER_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class WorkingSet(NativeSolver):
    """The native solver beyond a few thousand samples; ``max_iterations`` counts rounds."""

    first_iteration: ClassVar[int] = 1

    name: ClassVar[str] = "working-set"
    own_limit: ClassVar[int] = MAX_ROUNDS

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Choose the first working set; refuse where not even that one fits."""
        return _WorkingSetRun(self, problem, self._capacity(problem), start)

    def _capacity(self, problem: MarginProblem) -> int:
        """Return the largest working set that the memory holds."""
        first = min(FIRST_SIZE, problem.n_samples)
        self.check_memory(peak_memory(first, problem))
        if self.max_memory is None:
            return problem.n_samples
        sizes, most = range(problem.n_samples + 1), self.max_memory * GIB
        return bisect_right(sizes, most, first + 1, key=lambda n: peak_memory(n, problem)) - 1


class _WorkingSetRun(Run):
    """The working set, and the best bounds so far with what attains them."""

    def __init__(
        self, solver: WorkingSet, problem: MarginProblem, capacity: int, start: Start | None
    ) -> None:
        self._tolerances, self._device = solver.tolerances, solver.device
        self.problem, self.capacity = problem, capacity
        n = problem.n_samples
        self._best = nothing_yet(problem)  # alpha is padded
        self.lower, self.upper = 0.0, np.inf
        self.warm: Start | None = None
        self._has_left = np.zeros(n, dtype=bool)
        self._stays = np.zeros(n, dtype=bool)  # left once, and had to come back
        if start is None:
            self.samples = _spread(problem)
        else:
            self._alpha = np.zeros(n)
            self._alpha[: len(start.alpha)] = start.alpha
            self._group_norms = start.group_scale
            coef = problem.coef_of(self._alpha, self._group_norms)
            self._intercept = start.intercept if problem.intercept else 0.0
            self._margins = problem.y * (problem.decision(coef) + self._intercept)
            self._mean_alpha = float(self._alpha.mean())
            self.samples = np.zeros(0, dtype=np.int64)
            self.advance()
            if len(self.samples) == 0:  # the start separates everything with room to spare
                self.samples, self.warm = _spread(problem), None

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self._best

    def steps(self) -> Steps:
        """Solve on the working set, and choose the next one, round by round."""
        final = INNER_SHARE * self._tolerances.gap
        inner_gap = max(COARSE_GAP, final)
        while True:
            # Which margins fall short is seen below, on all samples.
            feasibility = max(inner_gap, self._tolerances.feasibility)
            tolerances = replace(self._tolerances, gap=inner_gap, feasibility=feasibility)
            inner = InteriorPoint(tolerances=tolerances, device=self._device)
            candidate = inner.run(self.problem.subset(self.samples), start=self.warm)
            self.take(candidate)
            if candidate.status is Status.NOT_SEPARABLE:
                return Status.NOT_SEPARABLE
            yield self.lower, self.upper
            if candidate.status is Status.INTERRUPTED:
                return Status.INTERRUPTED
            if self.gap <= self._tolerances.gap:
                return Status.OPTIMAL
            changed, complete = self.advance()
            if not changed and not complete:
                return Status.MEMORY_LIMIT
            if not changed and inner_gap <= final:
                return Status.NUMERICAL_TROUBLE
            inner_gap = max(final, min(0.1 * self.gap, inner_gap * (1.0 if changed else 0.1)))

    @property
    def gap(self) -> float:
        """Relative gap between the global bounds."""
        return (self.upper - self.lower) / max(self.lower, TINY)

    def take(self, candidate: Candidate) -> None:
        """Take over what the solve on the working set has found."""
        problem = self.problem
        self._alpha = np.zeros(problem.n_samples)
        self._alpha[self.samples] = candidate.alpha
        if candidate.status is Status.NOT_SEPARABLE:
            self._best = replace(self._best, alpha=self._alpha)
            return
        lower = certify(problem.subset(self.samples), alpha=candidate.alpha).lower
        if lower >= self.lower:
            self.lower, self._best = lower, replace(self._best, alpha=self._alpha)
        margins = problem.y * (problem.decision(candidate.coef) + candidate.intercept)
        upper = primal_bound(problem, candidate.coef, margins)
        if upper <= self.upper:
            self.upper = upper
            self._best = Answer(self._best.alpha, candidate.coef, candidate.intercept)
        smallest = float(margins[self.samples].min())
        scale = smallest if problem.hard_margin and smallest > 0 else 1.0
        self._margins = margins / scale
        self._mean_alpha = float(candidate.alpha.mean())
        self._group_norms = problem.group_norms(candidate.coef) / scale
        self._intercept = candidate.intercept / scale

    def advance(self) -> tuple[bool, bool]:
        """Choose the next working set: whether it is another one, and has all that it should."""
        old, margins = self.samples, self._margins
        clear = (margins > 1 + CLEAR_MARGIN) & (self._alpha <= CLEAR_ALPHA * self._mean_alpha)
        inside = np.zeros(len(margins), dtype=bool)
        inside[old] = True
        keep = np.flatnonzero(inside & (~clear | self._stays))
        violators = np.flatnonzero(~inside & (margins < 1))
        room = min(max(FIRST_SIZE, int(GROWTH * len(old))), self.capacity - len(keep))
        worst = violators[np.argsort(margins[violators], kind="stable")[: max(room, 0)]]
        samples = np.concatenate([keep, worst])
        if self.problem.intercept and len(samples):  # an offset alone separates one class
            for label in (-1.0, 1.0):
                members = np.flatnonzero(self.problem.y == label)
                if not (self.problem.y[samples] == label).any():
                    samples = np.append(samples, members[np.argmin(margins[members])])
        self.samples = np.sort(samples)
        self._stays[worst] = self._has_left[worst]
        self._has_left[np.setdiff1d(old, keep)] = True
        self.warm = WarmStart(self._alpha[self.samples], self._group_norms, self._intercept)
        complete = len(worst) == len(violators) or room > 0
        return not np.array_equal(old, self.samples), complete


def _spread(problem: MarginProblem) -> NDArray[np.int64]:
    """Take samples spread evenly over each class, at most FIRST_SIZE in all, in order."""
    chosen = []
    for label in (-1.0, 1.0):
        members = np.flatnonzero(problem.y == label)
        count = min(len(members), FIRST_SIZE // 2)
        chosen.append(members[np.linspace(0, len(members) - 1, count).astype(np.int64)])
    return np.sort(np.concatenate(chosen))
