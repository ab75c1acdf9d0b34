r"""A working set of pairs around a native method, for many classes.

A sample has K - 1 rivals, and at the optimum most of its margins are larger than 1: of N (K - 1)
pairs few have alpha > 0. Each round

1. solves the problem on a set S of pairs, from where the last round ended, which gives alpha_S
   (padded with zeros: the global lower bound) and coefficients zeta;
2. computes the margins of zeta on all pairs (their smallest one: the global upper bound);
3. drops from S what is clearly no support vector (but nothing that had to come back once) and adds
   the pairs that violate most, each sample's worst rival first.

S begins with each sample's worst rival for the coefficients V of equal alpha. As in `working_set`,
early rounds are solved loosely, no pair leaves twice, and the rounds end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from implicit_bias.certificate import Status, certify, primal_bound
from implicit_bias.norms import L2
from implicit_bias.problem import MarginProblem
from implicit_bias.rows import equal_alpha, grouped_rows, row_index, worst_rows
from implicit_bias.solvers.base import Candidate, Start, Tolerances, WarmStart
from implicit_bias.solvers.interior_point import COARSE_GAP, InteriorPoint
from implicit_bias.solvers.iteration import Answer, NativeSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.norm_path import (
    NormFeatureSpace,
    NormInteriorPoint,
    class_features,
    has_ball,
)
from implicit_bias.solvers.scaled_problem import TINY, peak_memory
from implicit_bias.validation import Array

MAX_ROUNDS = 100
FIRST_SIZE = 800
# In one round S gains at most this share of its size, or FIRST_SIZE if that is more.
GROWTH = 0.5
# A pair leaves S where its margin exceeds 1 by this much and its alpha is below this share of the
# mean on S.
CLEAR_MARGIN = 0.3
CLEAR_ALPHA = 0.1
# The inner tolerance follows the global gap down to this share of the final tolerance.
INNER_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class PairSet(NativeSolver):
    """The native solver for many classes; ``max_iterations`` counts rounds."""

    first_iteration: ClassVar[int] = 1
    takes_classes: ClassVar[bool] = True

    name: ClassVar[str] = "working-set"
    own_limit: ClassVar[int] = MAX_ROUNDS

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Choose the first working set; refuse where not even that one fits.

        Raises
        ------
        ValueError
            Two classes.
        """
        if problem.classes is None:
            raise ValueError("a working set of pairs is for many classes: choose 'working-set'")
        self.check_memory(peak_memory(min(FIRST_SIZE, problem.n_samples), problem))
        return _PairSetRun(self, problem, start)


class _PairSetRun(Run):
    """The working set, and the best bounds so far with what attains them."""

    def __init__(self, solver: PairSet, problem: MarginProblem, start: Start | None) -> None:
        self._solver, self._tolerances, self.problem = solver, solver.tolerances, problem
        self.samples, self.rivals = row_index(problem)
        self.best = nothing_yet(problem)
        self.lower, self.upper = 0.0, np.inf
        self.warm = start
        # A start's own V are coefficients as good as any to find the worst rivals.
        alpha = equal_alpha(problem)
        if start is not None:
            alpha[: len(start.alpha)] = start.alpha
        self._margins = self._margins_of(problem.dual_vectors(alpha), problem.no_offset)
        self.pairs = worst_rows(self._margins, self.samples, np.inf, FIRST_SIZE)
        self._near: Answer | None = None
        self._separable = not has_ball(problem) or self._begin_with_euclidean()
        self._has_left = np.zeros(len(self.samples), dtype=bool)
        self._stays = np.zeros(len(self.samples), dtype=bool)  # left once, and had to come back

    def _begin_with_euclidean(self) -> bool:
        """Take the pairs that are near the margin of the Euclidean norm, which is solved faster.

        Nearly all support vectors of the other norms are among them. Returns whether the pairs may
        be separable, which no norm changes.
        """
        posed = replace(self.problem, norm=L2())
        tolerances = replace(self._tolerances, gap=max(COARSE_GAP, self._tolerances.gap))
        found = replace(self._solver, tolerances=tolerances, max_iterations=None).run(posed)
        if found.status is Status.NOT_SEPARABLE:
            self.best = replace(self.best, alpha=found.alpha)
            return False
        margins = self._margins_of(found.coef, found.intercept)
        smallest = float(margins.min())
        if self.problem.hard_margin and smallest > 0:
            margins = margins / smallest
        elif self.problem.hard_margin:
            return True
        self._margins = margins
        # There are hardly more support vectors than features.
        room = max(FIRST_SIZE, class_features(self.problem))
        near = worst_rows(margins, self.samples, 1.0 + CLEAR_MARGIN, room)
        self.pairs = near if len(near) else self.pairs
        return True

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self.best

    def steps(self) -> Steps:
        """Solve on the working set, and choose the next one, round by round."""
        final = INNER_SHARE * self._tolerances.gap
        inner_gap = max(COARSE_GAP, final)
        if not self._separable:
            return Status.NOT_SEPARABLE
        while True:
            feasibility = max(inner_gap, self._tolerances.feasibility)
            tolerances = replace(self._tolerances, gap=inner_gap, feasibility=feasibility)
            candidate = self._inner(tolerances)
            if candidate.status is Status.NOT_SEPARABLE:
                self.best = Answer(candidate.alpha, 0.0 * self.best.coef, self.problem.no_offset)
                return Status.NOT_SEPARABLE
            self.take(candidate)
            yield self.lower, self.upper
            if candidate.status is Status.INTERRUPTED:
                return Status.INTERRUPTED
            if self.gap <= self._tolerances.gap:
                return Status.OPTIMAL
            changed = self.advance(candidate.alpha[self.samples, self.rivals])
            if not self._solver.fits(peak_memory(len(self.pairs), self.problem)):
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
        lower = certify(problem, alpha=candidate.alpha).lower
        if lower >= self.lower:
            self.lower, self.best = lower, replace(self.best, alpha=candidate.alpha)
        self._margins = self._margins_of(candidate.coef, candidate.intercept)
        smallest = np.full(problem.n_samples, np.inf)
        np.minimum.at(smallest, self.samples, self._margins)
        upper = primal_bound(problem, candidate.coef, smallest)
        if upper <= self.upper:
            self.upper = upper
            self.best = replace(self.best, coef=candidate.coef, intercept=candidate.intercept)
        inside = float(self._margins[self.pairs].min())
        scale = inside if problem.hard_margin and inside > 0 else 1.0
        self._margins = self._margins / scale
        norms = problem.group_norms(candidate.coef) / scale
        intercept = np.asarray(candidate.intercept) / scale
        self.warm = WarmStart(candidate.alpha, norms, intercept)
        self._near = Answer(candidate.alpha, candidate.coef / scale, intercept)

    def advance(self, alpha: Array) -> bool:
        """Choose the next working set, from alpha of all pairs: whether it is another one."""
        old, margins = self.pairs, self._margins
        mean = float(alpha[old].mean())
        clear = (margins[old] > 1 + CLEAR_MARGIN) & (alpha[old] <= CLEAR_ALPHA * mean)
        keep = old[~clear | self._stays[old]]
        outside = np.ones(len(margins), dtype=bool)
        outside[old] = False
        room = max(FIRST_SIZE, int(GROWTH * len(old)))
        worst = worst_rows(np.where(outside, margins, np.inf), self.samples, 1.0, room)
        self.pairs = np.union1d(keep, worst)
        self._stays[worst] = self._has_left[worst]
        self._has_left[np.setdiff1d(old, keep)] = True
        return not np.array_equal(old, self.pairs)

    def _inner(self, tolerances: Tolerances) -> Candidate:
        pairs, device = (self.samples[self.pairs], self.rivals[self.pairs]), self._solver.device
        if has_ball(self.problem):
            few = class_features(self.problem) <= len(self.pairs)
            method: Callable[..., NativeSolver] = NormFeatureSpace if few else NormInteriorPoint
            inside = method(tolerances=tolerances, device=device, pairs=pairs, near=self._near)
            return inside.run(self.problem)
        rows = grouped_rows(self.problem, pairs)
        inner = InteriorPoint(tolerances=tolerances, device=device, rows=rows)
        return inner.run(self.problem, start=self.warm)

    def _margins_of(self, coef: Array, intercept: float | Array) -> Array:
        margins = self.problem.pair_margins(self.problem.decision(coef), intercept)
        return np.asarray(margins[self.samples, self.rivals])
