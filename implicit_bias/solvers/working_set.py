r"""A working set of constraints around the interior point, for more than one factorisation holds.

At the optimum alpha is zero on all constraints but those of the support vectors, so the problem
on any set S that contains them has the same solution. The constraints are `rows`: samples, or with
many classes pairs of a sample and a rival, of which few have alpha > 0, too. Each round

1. solves the problem on S, from where the last round ended, which gives alpha_S (padded with
   zeros: the global lower bound, which rises from round to round) and coefficients zeta;
2. computes the margins of zeta on all rows (their smallest one: the global upper bound);
3. drops from S what is clearly no support vector (but nothing that had to come back once) and
   adds the rows that violate most, of pairs each sample's worst rival first.

S begins with samples spread over the classes, or with each sample's worst rival for the
coefficients V of equal alpha; with a start, with what its margins or its V say. Under a norm of
`norm_path` it begins with the pairs near the margin of the Euclidean norm.

If the rows of S alone are not separable, neither are all, and alpha_S padded proves it.
The support vectors stay in S, so its optimum cannot fall but by the inner solves' tolerance,
and rises when a violator enters; no row leaves twice: the rounds end.

Early rounds are solved loosely (in float32 alone), since their S is wrong anyway. Memory is that
of the interior point on S; a bound on it is a bound on the size of S.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, certify, repaired
from implicit_bias.bounds.separability import prove_not_separable
from implicit_bias.norms import L2
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import equal_alpha, grouped_rows, worst_rows
from implicit_bias.solvers.active_set import OneGroup
from implicit_bias.solvers.base import (
    MANY_SAMPLES,
    Candidate,
    Start,
    Tolerances,
    WarmStart,
    are_few_features,
)
from implicit_bias.solvers.feature_space import FeatureSpace
from implicit_bias.solvers.interior_point import (
    COARSE_GAP,
    ClassFeatureSpace,
    InteriorPoint,
    class_features,
    has_ball,
    has_features,
)
from implicit_bias.solvers.iteration import GIB, NativeSolver, Run, Steps
from implicit_bias.solvers.rounds import Rounds
from implicit_bias.solvers.scaled_problem import peak_memory

MAX_ROUNDS = 100
# The first S: samples of two classes, or pairs.
FIRST_SIZE, FIRST_PAIRS = 1000, 800
# With fewer rows an interior point takes milliseconds, too.
MANY_ROWS = 500
# In one round S gains at most this share of its size, or that of the first one if that is more.
GROWTH = 0.5
# A row leaves S where its margin exceeds 1 by this much and its alpha is below this share of the
# mean on S.
CLEAR_MARGIN = 0.3
CLEAR_ALPHA = 0.1
# A working set has settled where the rows that violate are no more than this share of it. Then it
# takes in all those whose margins exceed 1 by less than this, too.
SETTLED, NEAR_MARGIN = 0.1, 0.1
# The inner tolerance follows the global gap down to this share of the final tolerance.
INNER_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class WorkingSet(NativeSolver):
    """The native solver beyond a few thousand constraints; ``max_iterations`` counts rounds."""

    first_iteration: ClassVar[int] = 1
    takes_classes: ClassVar[bool] = True

    name: ClassVar[str] = "working-set"
    own_limit: ClassVar[int] = MAX_ROUNDS

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Choose the first working set; refuse where not even that one fits."""
        if problem.classes is None:
            return _Samples(self, problem, start, FIRST_SIZE)
        return _Pairs(self, problem, start, FIRST_PAIRS)

    def capacity(self, problem: MarginProblem, first: int) -> int:
        """Return the largest working set that the memory holds: at least the first one.

        Raises
        ------
        MemoryError
            Not even the first one fits.
        """
        most = problem.n_samples * ((problem.classes or 2) - 1)
        first = min(first, most)
        self.check_memory(peak_memory(first, problem))
        if self.max_memory is None:
            return most
        sizes, room = range(most + 1), self.max_memory * GIB
        return bisect_right(sizes, room, first + 1, key=lambda n: peak_memory(n, problem)) - 1


class _WorkingRows(Rounds):
    """The working set of one solve; what it begins with is of samples, or of pairs."""

    def __init__(
        self,
        solver: WorkingSet,
        problem: MarginProblem,
        start: Start | None,
        first_size: int,
    ) -> None:
        super().__init__(problem)
        self.tolerances, self.device = solver.tolerances, solver.device
        self.deadline = Deadline.after(solver.max_seconds)
        self.first_size = first_size
        self.capacity = solver.capacity(problem, first_size)
        self.warm = start
        self.settled = False  # few rows violate, and S has those that soon may
        # Whether one Gram matrix may solve, and whether it did so in the last round.
        self.one_group = problem.hard_margin and problem.n_groups == 1
        self.by_one_group = False
        self._has_left = np.zeros(len(self.samples), dtype=bool)
        self._stays = np.zeros(len(self.samples), dtype=bool)  # left once, and had to come back
        self.begin(start)

    @abstractmethod
    def begin(self, start: Start | None) -> None:
        """Choose the first working set."""

    @abstractmethod
    def solve(self, tolerances: Tolerances) -> Candidate:
        """Solve on the working set, from where the last round ended; alpha as of all rows."""

    @abstractmethod
    def lower_bound(self, alpha: Array) -> float:
        """Return the certified lower bound of dual variables that are 0 off the working set."""

    def method(
        self,
        tolerances: Tolerances,
        pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> NativeSolver:
        """Return what solves on the working set under sums of Euclidean norms."""
        options = self.options(tolerances)
        inner = InteriorPoint(**options, pairs=pairs)
        self.by_one_group = self.one_group and len(self.rows) >= MANY_ROWS
        if not self.by_one_group:
            return inner
        rows = None if pairs is None else grouped_rows(self.problem, pairs)
        return OneGroup(**options, rows=rows, fallback=inner)

    def options(self, tolerances: Tolerances) -> dict[str, Any]:
        """Return those of a solve on the working set, which has the time that is left."""
        return {
            "tolerances": tolerances,
            "device": self.device,
            "max_seconds": self.deadline.left,
        }

    def steps(self) -> Steps:
        """Solve on the working set, and choose the next one, round by round."""
        final = INNER_SHARE * self.tolerances.gap
        inner_gap = max(COARSE_GAP, final)
        while True:
            # Which margins fall short is seen below, on all rows.
            feasibility = max(inner_gap, self.tolerances.feasibility)
            found = self.solve(replace(self.tolerances, gap=inner_gap, feasibility=feasibility))
            if found.status is Status.NOT_SEPARABLE:
                self.best = replace(self.best, alpha=found.alpha)
                if prove_not_separable(self.problem, found.alpha) or not self.doubled():
                    return Status.NOT_SEPARABLE
                continue
            self.take_over(found)
            yield self.lower, self.upper
            if found.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
                return found.status
            if self.gap <= self.tolerances.gap:
                return Status.OPTIMAL
            changed = self.advance(found.alpha)
            if not changed and len(self.violators(1)):
                return Status.MEMORY_LIMIT
            if not changed and inner_gap <= final:
                if not self.by_one_group:
                    return Status.NUMERICAL_TROUBLE
                self.one_group = self.by_one_group = False  # it may have lost digits that matter
            # A warm start begins at a gap of LEAST_WARM again: a set that has settled is solved to
            # the end at once.
            next_gap = min(0.1 * self.gap, inner_gap * (1.0 if changed else 0.1))
            inner_gap = final if self.settled else max(final, next_gap)

    def take_over(self, found: Candidate) -> None:
        """Take over what the solve on the working set has found."""
        problem = self.problem
        # Rounding in the solve's own units may break the equation of an intercept again.
        alpha = repaired(problem, found.alpha, problem.C)
        self.take(self.lower_bound(alpha), alpha, found.coef, found.intercept)
        inside = float(self.margins[self.rows].min())
        scale = inside if problem.hard_margin and inside > 0 else 1.0
        self.margins = self.margins / scale
        norms = problem.group_norms(found.coef) / scale
        intercept = np.asarray(found.intercept) / scale
        self.warm = WarmStart(found.alpha, norms, intercept, found.coef / scale)

    def advance(self, alpha: Array) -> bool:
        """Choose the next working set, from dual variables: whether it is another one."""
        old = self.rows
        clear = clearly_no_support(self.margins[old], self.values(alpha)[old])
        keep = old[~clear | self._stays[old]]
        room = min(max(self.first_size, int(GROWTH * len(old))), self.capacity - len(keep))
        worst = self.violators(max(room, 0))
        self.settled = 0 < len(worst) <= SETTLED * len(keep)
        if self.settled:  # those that may violate in the next round, too
            worst = self.violators(max(room, 0), 1.0 + NEAR_MARGIN)
        self.rows = self.completed(np.union1d(keep, worst))
        self._stays[worst] = self._has_left[worst]
        self._has_left[np.setdiff1d(old, keep)] = True
        return not np.array_equal(old, self.rows)

    def doubled(self) -> bool:
        """Take twice the rows, which may prove what few do not: whether there are more."""
        room = min(max(self.first_size, len(self.rows)), self.capacity - len(self.rows))
        more = self.violators(max(room, 0), np.inf)
        self.rows, self.warm = np.union1d(self.rows, more), None
        return len(more) > 0

    def violators(self, most: int, below: float = 1.0) -> NDArray[np.int64]:
        """Return the rows outside of the working set that violate most, at most this many."""
        margins = self.margins.copy()
        margins[self.rows] = np.inf
        return worst_rows(margins, self.samples, below, most)

    @abstractmethod
    def completed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a working set with what it lacks for a problem that can be solved."""


class _Samples(_WorkingRows):
    """A working set of samples, of two classes."""

    def begin(self, start: Start | None) -> None:
        """Take what the start's margins ask for, or samples spread over both classes."""
        problem = self.problem
        if start is not None:
            alpha = np.zeros(problem.n_samples)
            alpha[: len(start.alpha)] = start.alpha
            coef = problem.coef_of(alpha, start.group_norms)
            intercept = start.intercept if problem.intercept else 0.0
            self.margins = self.margins_of(coef, intercept)
            self.advance(alpha)
            self.warm = WarmStart(alpha, start.group_norms, intercept, coef)
        if len(self.rows) == 0:  # also where the start separates everything with room to spare
            self.rows, self.warm = _spread(problem, self.first_size), None

    def solve(self, tolerances: Tolerances) -> Candidate:
        """Solve the problem of these samples."""
        found = self._solve_subset(self.problem.subset(self.rows), tolerances)
        alpha = np.zeros(self.problem.n_samples)
        alpha[self.rows] = found.alpha
        return replace(found, alpha=alpha)

    def _solve_subset(self, subset: MarginProblem, tolerances: Tolerances) -> Candidate:
        """Solve in the space of the features where they are few, which takes any scales of them."""
        features, count = subset.plain_gates.shape[1] * subset.X.shape[1], len(self.rows)
        if count >= MANY_SAMPLES and are_few_features(features, count):
            return FeatureSpace(**self.options(tolerances)).run(subset)
        start = self.warm
        if start is not None:
            alpha, norms = start.alpha[self.rows], start.group_norms
            start = WarmStart(alpha, norms, start.intercept, start.coef)
        return self.method(tolerances).run(subset, start=start)

    def lower_bound(self, alpha: Array) -> float:
        """Return that of the problem of these samples."""
        return certify(self.problem.subset(self.rows), alpha=alpha[self.rows]).lower

    def completed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add a sample of a class that is missing, which an offset alone would separate."""
        problem = self.problem
        if problem.intercept and len(rows):
            for label in (-1.0, 1.0):
                members = np.flatnonzero(problem.y == label)
                if not (problem.y[rows] == label).any():
                    rows = np.append(rows, members[np.argmin(self.margins[members])])
        return np.sort(rows)


class _Pairs(_WorkingRows):
    """A working set of pairs of samples and rivals, of many classes."""

    def begin(self, start: Start | None) -> None:
        """Take each sample's worst rivals for the V of equal alpha, or of the start's."""
        alpha = equal_alpha(self.problem)
        if start is not None:
            alpha[: len(start.alpha)] = start.alpha
        self.margins = self.margins_of(self.problem.dual_vectors(alpha), self.problem.no_offset)
        self.rows = worst_rows(self.margins, self.samples, np.inf, self.first_size)
        self._proof = self._begin_with_euclidean() if has_ball(self.problem) else None

    def _begin_with_euclidean(self) -> Candidate | None:
        """Take the pairs that are near the margin of the Euclidean norm, which is solved faster.

        Nearly all support vectors of the other norms are among them. Returns the proof that no
        norm separates the pairs, if that is what is found.
        """
        tolerances = replace(self.tolerances, gap=max(COARSE_GAP, self.tolerances.gap))
        inner = WorkingSet(**self.options(tolerances))
        found = inner.run(replace(self.problem, norm=L2()))
        if found.status is Status.NOT_SEPARABLE:
            return found if prove_not_separable(self.problem, found.alpha) else None
        margins = self.margins_of(found.coef, found.intercept)
        smallest = float(margins.min())
        if self.problem.hard_margin and smallest <= 0:
            return None
        self.margins = margins / smallest if self.problem.hard_margin else margins
        # There are hardly more support vectors than features.
        room = min(max(self.first_size, class_features(self.problem)), self.capacity)
        near = worst_rows(self.margins, self.samples, 1.0 + CLEAR_MARGIN, room)
        self.rows = near if len(near) else self.rows
        return None

    def solve(self, tolerances: Tolerances) -> Candidate:
        """Solve with these pairs."""
        problem, pairs = self.problem, self.pairs
        if self._proof is not None:
            return self._proof
        few = has_features(problem) and class_features(problem) <= len(self.rows)
        if problem.norm == L2():  # where a system of the pairs is cheaper than with other norms
            many = len(self.rows) >= MANY_SAMPLES
            few = many and are_few_features(class_features(problem), len(self.rows))
        if has_ball(problem) or (few and problem.norm == L2()):
            method: Callable[..., NativeSolver] = ClassFeatureSpace if few else InteriorPoint
            return method(**self.options(tolerances), pairs=pairs).run(problem, start=self.warm)
        return self.method(tolerances, pairs).run(problem, start=self.warm)

    def lower_bound(self, alpha: Array) -> float:
        """Return that of the problem of the samples that have pairs."""
        if self.problem.intercept:  # whose equation needs samples of more than one class
            return certify(self.problem, alpha=alpha).lower
        samples = np.unique(self.samples[self.rows])
        return certify(self.problem.subset(samples), alpha=alpha[samples]).lower

    def completed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pairs: no class needs to be there."""
        return rows


def clearly_no_support(margins: Array, values: Array) -> NDArray[np.bool_]:
    """Whether rows (n,) are far beyond the margin, with next to nothing of the dual variables."""
    mean = values.mean() if len(values) else 0.0
    return (margins > 1.0 + CLEAR_MARGIN) & (values <= CLEAR_ALPHA * mean)


def _spread(problem: MarginProblem, size: int) -> NDArray[np.int64]:
    """Take samples spread evenly over each class, at most this many in all, in order."""
    chosen = []
    for label in (-1.0, 1.0):
        members = np.flatnonzero(problem.y == label)
        count = min(len(members), size // 2)
        chosen.append(members[np.linspace(0, len(members) - 1, count).astype(np.int64)])
    return np.sort(np.concatenate(chosen))
