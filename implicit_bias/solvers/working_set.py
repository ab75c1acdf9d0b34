r"""A working set of constraints around the interior point, for more than one factorisation holds.

The rounds are those of `rounds`, on constraints in memory: samples, or with many classes pairs of a
sample and a rival, of which few have alpha > 0, too. Each one solves the problem on a working set S
from where the last one ended; of pairs each sample's worst rival joins first.

S begins with samples spread over the classes, or with each sample's worst rival for the
coefficients V of equal alpha; with a start, with what its margins or its V say. Under a norm of
`balls` it begins with the pairs near the margin of the Euclidean norm.

If the rows of S alone are not separable, neither are all, and alpha_S padded proves it.

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

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, certify, repaired
from implicit_bias.bounds.separability import prove_not_separable
from implicit_bias.norms import L2
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import equal_alpha, grouped_rows
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
from implicit_bias.solvers.iteration import GIB, NativeSolver, Run
from implicit_bias.solvers.rounds import Exchange, Integers, RowRounds
from implicit_bias.solvers.scaled_problem import peak_memory


@dataclass(frozen=True, kw_only=True)
class WorkingSet(NativeSolver):
    """The native solver beyond a few thousand constraints; ``max_iterations`` counts rounds.

    Parameters
    ----------
    first_size, first_pairs : int
        Constraints of the first working set: samples of two classes, or pairs.
    many_rows : int
        With fewer constraints an interior point takes milliseconds, as one Gram matrix does.
    settled, near_margin : float
        A working set has settled where the rows that violate are no more than this share of it.
        Then it takes in all those whose margins exceed 1 by less than ``near_margin``, too.
    inner_share : float
        The inner tolerance follows the global gap down to this share of the final tolerance.
    max_rounds : int
        Limit where ``max_iterations`` sets none.
    """

    first_iteration: ClassVar[int] = 1
    takes_classes: ClassVar[bool] = True

    first_size: int = 1000
    first_pairs: int = 800
    many_rows: int = 500
    settled: float = 0.1
    near_margin: float = 0.1
    inner_share: float = 0.1
    max_rounds: int = 100

    name: ClassVar[str] = "working-set"

    @property
    def own_limit(self) -> int:
        """Rounds, at most."""
        return self.max_rounds

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Choose the first working set; refuse where not even that one fits."""
        if problem.classes is None:
            return _Samples(self, problem, start, Exchange(self.first_size))
        return _Pairs(self, problem, start, Exchange(self.first_pairs))

    def capacity(self, problem: MarginProblem, first: int) -> int:
        """Return the largest working set that the memory holds: at least the first one.

        Raises
        ------
        MemoryError
            Not even the first one fits.
        """
        most = len(problem.constraints)
        first = min(first, most)
        self.check_memory(peak_memory(first, problem))
        if self.max_memory is None:
            return most
        sizes, room = range(most + 1), self.max_memory * GIB
        return bisect_right(sizes, room, first + 1, key=lambda n: peak_memory(n, problem)) - 1


class _WorkingRows(RowRounds):
    """The working set of one solve; what it begins with is of samples, or of pairs."""

    def __init__(
        self, solver: WorkingSet, problem: MarginProblem, start: Start | None, policy: Exchange
    ) -> None:
        super().__init__(problem, solver.tolerances.gap)
        self.solver, self.policy = solver, policy
        self.deadline = Deadline.after(solver.max_seconds)
        self.capacity = solver.capacity(problem, policy.first_size)
        self.final_gap = solver.inner_share * solver.tolerances.gap
        self.inner_gap = max(COARSE_GAP, self.final_gap)
        self.warm = start
        self.found: Candidate  # what the last solve on the working set said
        # Whether one Gram matrix may solve, and whether it did so in the last round.
        self.one_group = problem.hard_margin and problem.n_groups == 1
        self.by_one_group = False
        self.begin(start)

    @abstractmethod
    def begin(self, start: Start | None) -> None:
        """Choose the first working set."""

    @abstractmethod
    def solve_rows(self, tolerances: Tolerances) -> Candidate:
        """Solve on the working set, from where the last round ended; alpha as of all rows."""

    @abstractmethod
    def lower_bound(self, alpha: Array) -> float:
        """Return the certified lower bound of dual variables that are 0 off the working set."""

    @abstractmethod
    def lacking(self, rows: Integers) -> Integers:
        """Return what rows lack for a problem that can be solved."""

    def method(
        self, tolerances: Tolerances, pairs: tuple[Integers, Integers] | None = None
    ) -> NativeSolver:
        """Return what solves on the working set under sums of Euclidean norms."""
        options = self.options(tolerances)
        inner = InteriorPoint(**options, pairs=pairs)
        self.by_one_group = self.one_group and len(self.rows) >= self.solver.many_rows
        if not self.by_one_group:
            return inner
        rows = None if pairs is None else grouped_rows(self.problem, pairs)
        return OneGroup(**options, rows=rows, fallback=inner)

    def options(self, tolerances: Tolerances) -> dict[str, Any]:
        """Return those of a solve on the working set, which has the time that is left."""
        seconds = self.deadline.left
        return {"tolerances": tolerances, "device": self.solver.device, "max_seconds": seconds}

    def solve(self) -> Status | None:
        """Solve on the working set, or on twice the rows where it alone is not separable."""
        tolerances = self.solver.tolerances
        # Which margins fall short is seen on all rows.
        feasibility = max(self.inner_gap, tolerances.feasibility)
        inner = replace(tolerances, gap=self.inner_gap, feasibility=feasibility)
        while (found := self._from_warm(inner)).status is Status.NOT_SEPARABLE:
            self.best = replace(self.best, alpha=found.alpha)
            if prove_not_separable(self.problem, found.alpha) or not self.double():
                return Status.NOT_SEPARABLE
        self.found, problem = found, self.problem
        # Rounding in the solve's own units may break the equation of an intercept again.
        alpha = repaired(problem, found.alpha, problem.box)
        self.improve_lower(self.lower_bound(alpha), alpha)
        self.price(found.coef, found.intercept)
        inside = float(self.margins[self.rows].min())
        scale = inside if problem.hard_margin and inside > 0 else 1.0
        self.margins = self.margins / scale
        intercept = np.asarray(found.intercept) / scale
        norms, coef = problem.group_norms(found.coef) / scale, found.coef / scale
        self.warm = WarmStart(found.alpha, norms, intercept, coef)
        return None

    def _from_warm(self, tolerances: Tolerances) -> Candidate:
        """Solve on the working set; without the start where no step leads on from it."""
        found = self.solve_rows(tolerances)
        if found.status is Status.NUMERICAL_TROUBLE and self.warm is not None:
            self.warm = None
            found = self.solve_rows(tolerances)
        return found

    def advance(self) -> Status | None:
        """Choose the next working set, or solve this one to the end."""
        if self.found.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
            return self.found.status
        old = self.rows
        settled = self.choose(self.found.alpha)
        changed = not np.array_equal(old, self.rows)
        if not changed and len(self.violators(1)):
            return Status.MEMORY_LIMIT
        if not changed and self.inner_gap <= self.final_gap:
            if not self.by_one_group:
                return Status.NUMERICAL_TROUBLE
            self.one_group = self.by_one_group = False  # it may have lost digits that matter
        # A warm start begins at a gap of LEAST_WARM again: a set that has settled is solved to
        # the end at once.
        next_gap = min(0.1 * self.gap, self.inner_gap * (1.0 if changed else 0.1))
        self.inner_gap = self.final_gap if settled else max(self.final_gap, next_gap)
        return None

    def choose(self, alpha: Array) -> bool:
        """Choose the next working set, from dual variables: whether it has settled."""
        values = self.constraints.values(alpha)[self.rows]
        kept = self.staying(self.policy.clear(self.margins[self.rows], values))
        room = self.policy.room(len(self.rows), len(kept), self.capacity)
        worst = self.violators(room)
        settled = 0 < len(worst) <= self.solver.settled * len(kept)
        if settled:  # those that may violate in the next round, too
            worst = self.violators(room, 1.0 + self.solver.near_margin)
        self.exchange(kept, worst)
        self.rows = np.union1d(self.rows, self.lacking(self.rows))
        return settled

    def double(self) -> bool:
        """Take twice the rows, which may prove what few do not: whether there are more."""
        size = len(self.rows)
        more = self.violators(
            replace(self.policy, growth=1.0).room(size, size, self.capacity), np.inf
        )
        self.exchange(self.rows, more)
        self.warm = None
        return len(more) > 0


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
            self.choose(alpha)
            self.warm = WarmStart(alpha, start.group_norms, intercept, coef)
        if len(self.rows) == 0:  # also where the start separates everything with room to spare
            self.rows, self.warm = _spread(problem, self.policy.first_size), None

    def solve_rows(self, tolerances: Tolerances) -> Candidate:
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

    def lacking(self, rows: Integers) -> Integers:
        """Return a sample of a class that is missing, which an offset alone would separate."""
        y, wanted = self.problem.y, (-1.0, 1.0) if self.problem.intercept and len(rows) else ()
        missing = [np.flatnonzero(y == label) for label in wanted if label not in y[rows]]
        return np.array([of[np.argmin(self.margins[of])] for of in missing], dtype=np.int64)


class _Pairs(_WorkingRows):
    """A working set of pairs of samples and rivals, of many classes."""

    def begin(self, start: Start | None) -> None:
        """Take each sample's worst rivals for the V of equal alpha, or of the start's."""
        alpha = equal_alpha(self.problem)
        if start is not None:
            alpha[: len(start.alpha)] = start.alpha
        self.margins = self.margins_of(self.problem.dual_vectors(alpha), self.problem.no_offset)
        self.rows = self.worst(self.policy.first_size)
        self._proof = self._begin_with_euclidean() if has_ball(self.problem) else None

    def _begin_with_euclidean(self) -> Candidate | None:
        """Take the pairs that are near the margin of the Euclidean norm, which is solved faster.

        Nearly all support vectors of the other norms are among them. Returns the proof that no
        norm separates the pairs, if that is what is found.
        """
        tolerances = replace(self.solver.tolerances, gap=max(COARSE_GAP, self.tolerance))
        own = self.options(tolerances) | {"max_iterations": None, "max_memory": None}
        found = replace(self.solver, **own).run(replace(self.problem, norm=L2()))
        if found.status is Status.NOT_SEPARABLE:
            return found if prove_not_separable(self.problem, found.alpha) else None
        margins = self.margins_of(found.coef, found.intercept)
        smallest = float(margins.min())
        if self.problem.hard_margin and smallest <= 0:
            return None
        self.margins = margins / smallest if self.problem.hard_margin else margins
        # There are hardly more support vectors than features.
        room = min(max(self.policy.first_size, class_features(self.problem)), self.capacity)
        near = self.worst(room, 1.0 + self.policy.clear_margin)
        self.rows = near if len(near) else self.rows
        return None

    def solve_rows(self, tolerances: Tolerances) -> Candidate:
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
        samples = np.unique(self.pairs[0])
        return certify(self.problem.subset(samples), alpha=alpha[samples]).lower

    def lacking(self, rows: Integers) -> Integers:
        """Return nothing: no class needs to be there."""
        return rows[:0]


def _spread(problem: MarginProblem, size: int) -> Integers:
    """Take samples spread evenly over each class, at most this many in all, in order."""
    chosen = []
    for label in (-1.0, 1.0):
        members = np.flatnonzero(problem.y == label)
        count = min(len(members), size // 2)
        chosen.append(members[np.linspace(0, len(members) - 1, count).astype(np.int64)])
    return np.sort(np.concatenate(chosen))
