r"""A working set of constraints around the interior point, for more than one factorization holds.

The rounds are those of `rounds`, on constraints in memory, of which few have alpha > 0. Each one
solves the problem on a working set S from where the last one ended; each sample's worst rival joins
first.

S begins with the constraints of the smallest margins by the coefficients of a start. Without a
start it begins with samples spread over the classes, or with each sample's worst rivals by V of
equal alpha. Under other norms than sums of l2 it begins with the pairs near the margin of the
Euclidean norm.

If the rows of S alone are not separable, neither are all, and alpha_S padded proves it.

Early rounds are solved to a loose tolerance, because the S of an early round is far from the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.bounds.gordan import prove_not_separable
from implicit_bias.norms import L2
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Integers, evenly_spaced
from implicit_bias.problem.euclidean import euclidean_form
from implicit_bias.solvers import base, costs, interior_point
from implicit_bias.solvers.feature_space import FeatureSpace
from implicit_bias.solvers.iteration import NativeSolver, Run
from implicit_bias.solvers.one_group import OneGroup
from implicit_bias.solvers.rounds import Exchange, RowRounds


@dataclass(frozen=True, kw_only=True)
class WorkingSet(NativeSolver):
    """The built-in solver beyond a few thousand constraints; ``max_iterations`` counts rounds.

    Parameters
    ----------
    first_size : int
        Constraints of the first working set, and that may join at least.
    many_rows : int
        With fewer constraints an interior point takes milliseconds, as one Gram matrix does.
    settled, near_margin : float
        A working set has settled where the rows that violate are no more than this fraction of it.
        Then it takes in all those whose margins exceed 1 by less than ``near_margin``, too.
    inner_share : float
        The inner tolerance follows the global gap down to this fraction of the final tolerance.
    few_rounds : float
        All rows join where one solve on them takes no longer than so many on the next set.
    max_rounds : int
        Limit where ``max_iterations`` sets none.
    """

    takes_classes: ClassVar[bool] = True

    first_size: int = 500
    many_rows: int = 200
    settled: float = 0.1
    near_margin: float = 0.1
    inner_share: float = 0.1
    few_rounds: float = 2.0
    max_rounds: int = 100

    name: ClassVar[str] = "working-set"

    @property
    def own_limit(self) -> int:
        """Rounds, at most."""
        return self.max_rounds

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Whether the interior point takes the norm as it is."""
        return interior_point.has_class_cone(problem)

    def prepare(self, problem: MarginProblem, start: base.Start | None) -> Run:
        """Choose the first working set."""
        return _WorkingRows(self, problem, start)


class _WorkingRows(RowRounds):
    """The working set of one solve.

    Attributes
    ----------
    inner_gap : float
        The relative gap that the next solve on the working set is asked for.
    warm : Start or None
        What it starts from.
    found : Candidate
        What the last one found.
    """

    found: base.Candidate

    def __init__(
        self, solver: WorkingSet, problem: MarginProblem, start: base.Start | None
    ) -> None:
        super().__init__(problem, solver.tolerances.gap)
        self.solver = solver
        self.policy = Exchange(solver.first_size)
        self.deadline = Deadline.after(solver.max_seconds)
        self.final_gap = solver.inner_share * solver.tolerances.gap
        self.inner_gap = max(interior_point.InteriorPoint.coarse_gap, self.final_gap)
        self.warm = start
        self.sizes = costs.Sizes.of(problem)
        self.kind = costs.kind_of(problem)
        # Whether one Gram matrix may solve, and whether it did so in the last round.
        by_class_cone = interior_point.has_class_cone(problem)
        self.one_group = problem.hard_margin and problem.n_groups == 1 and not by_class_cone
        self.by_one_group = False
        # Whether the homogeneous embedding solves, after trouble.
        self.embedded = False
        self._choose_first(start)
        # What a solve under l2 has found, if that proves that nothing separates the rows. Under
        # another norm nothing does, either.
        self._inseparable: base.Candidate | None = None
        if by_class_cone:
            self._inseparable = self._choose_by_euclidean()

    # --- the first working set -----------------------------------------------------------------

    def _choose_first(self, start: base.Start | None) -> None:
        """Take the smallest margins by a start's coefficients, or what is likely without one."""
        problem = self.problem
        rows = self.constraints
        size = self.solver.first_size
        self.margins = np.zeros(len(rows))
        from_start = False
        if start is not None and not interior_point.has_class_cone(problem):
            euclidean_form(problem)  # refuses other norms, as the inner solver would
            alpha = np.zeros(problem.alpha_shape)
            alpha[: len(start.alpha)] = start.alpha
            coef = problem.coef_of(alpha, start.group_norms)
            intercept = start.intercept if problem.intercept else problem.no_offset
            self.margins = self.margins_of(coef, intercept)
            # Margins that are all 0, or that overflow, choose no rows.
            from_start = bool(self.margins.any() and np.isfinite(self.margins).all())
        if rows.width == 1 and not from_start:
            # With two classes, samples of small margins by V are no better a choice than any.
            self.rows = evenly_spaced(rows.owners, max(1, size // rows.n_classes))
            return
        if not from_start:
            V = problem.dual_vectors(rows.equal_alpha())
            self.margins = self.margins_of(V, problem.no_offset)
        self.rows = self._with_all_classes(self.worst(size))

    def _choose_by_euclidean(self) -> base.Candidate | None:
        """Take the pairs that are near the margin of the Euclidean norm, which is solved faster.

        Nearly all support vectors of the other norms are among them. Returns the proof that no
        norm separates the pairs, if that is what is found.
        """
        problem = self.problem
        gap = max(interior_point.InteriorPoint.coarse_gap, self.tolerance)
        options = self._options(replace(self.solver.tolerances, gap=gap))
        euclidean = replace(self.solver, **options, max_iterations=None)
        found = euclidean.run(replace(problem, norm=L2()))
        if found.status is Status.NOT_SEPARABLE:
            proof = prove_not_separable(problem, found.alpha, self.deadline)
            if proof is None:
                return None
            return replace(found, alpha=proof.alpha, proof=proof)
        margins = self.margins_of(found.coef, found.intercept)
        if problem.hard_margin:
            smallest = float(margins.min())
            if smallest <= 0:
                return None
            margins = margins / smallest
        self.margins = margins
        # There are hardly more support vectors than coefficients.
        room = max(self.solver.first_size, math.prod(problem.norm_shape))
        near = self.worst(room, 1.0 + self.policy.clear_margin)
        if len(near):
            self.rows = near
        return None

    def _with_all_classes(self, rows: Integers) -> Integers:
        """Return rows and, with an intercept, one of each class that has none among them.

        Without rows of a class nothing bounds its offset.
        """
        if not self.problem.intercept:
            return rows
        owners = self.constraints.owners
        more = []
        for k in np.setdiff1d(owners, owners[rows]):
            members = np.flatnonzero(owners == k)
            more.append(members[np.argmin(self.margins[members])])
        return np.union1d(rows, np.array(more, dtype=np.int64))

    # --- solve on the working set, and price all -----------------------------------------------

    def solve_and_price(self) -> Status | None:
        """Solve on the working set, or on twice the rows where it alone is not separable."""
        tolerances = self.solver.tolerances
        # Which margins fall short is seen on all rows.
        feasibility = max(self.inner_gap, tolerances.feasibility)
        inner = replace(tolerances, gap=self.inner_gap, feasibility=feasibility)
        while True:
            found = self._solve_on_rows(inner)
            if found.status in (Status.NUMERICAL_TROUBLE, Status.ITERATION_LIMIT):
                if self._begin_embedding():
                    continue
            if found.status is not Status.NOT_SEPARABLE:
                break
            proof = prove_not_separable(self.problem, found.alpha, self.deadline)
            if proof is not None:
                self.best = replace(self.best, alpha=proof.alpha, proof=proof)
                return Status.NOT_SEPARABLE
            self.best = replace(self.best, alpha=found.alpha, proof=None)
            # What is not proven may be rounding; and what few rows do not prove, more may.
            if not (self._begin_embedding() or self._double()):
                return Status.NOT_SEPARABLE
        self.found = found
        problem = self.problem
        # Rounding in the solve's own units may break the equation of an intercept again.
        alpha = repaired(problem, found.alpha, problem.box)
        self.improve_lower(self._lower_bound(alpha), alpha)
        self.price(found.coef, found.intercept)
        # The next round starts from coefficients of unit margin on these rows.
        inside = float(self.margins[self.rows].min())
        scale = 1.0
        if problem.hard_margin and inside > 0:
            scale = inside
        self.margins = self.margins / scale
        self.warm = base.Start(
            alpha=found.alpha,
            group_norms=problem.group_norms(found.coef) / scale,
            coef=found.coef / scale,
            intercept=np.asarray(found.intercept) / scale,
        )
        return None

    def _solve_on_rows(self, tolerances: base.Tolerances) -> base.Candidate:
        """Solve on the working set; without the start where no step leads on from it."""
        if self._inseparable is not None:
            return self._inseparable
        found = self._method(tolerances).run(self.problem, start=self.warm)
        if found.status is Status.NUMERICAL_TROUBLE and self.warm is not None:
            self.warm = None
            found = self._method(tolerances).run(self.problem)
        return found

    def _begin_embedding(self) -> bool:
        """Solve by the homogeneous embedding from now on, where it takes the rows: whether it will.

        It keeps digits that the interior point loses where the margin is thin.
        """
        if self.embedded or not FeatureSpace().embeds(self.problem, self.working):
            return False
        self.embedded = True
        self.warm = None
        self.detail = "the homogeneous embedding solves on the working set"
        return True

    def _options(self, tolerances: base.Tolerances) -> dict[str, Any]:
        """Return the options of a solve on the working set, which has the time that is left."""
        seconds = self.deadline.left
        return {"tolerances": tolerances, "device": self.solver.device, "max_seconds": seconds}

    def _method(self, tolerances: base.Tolerances) -> NativeSolver:
        """Return what solves on the working set."""
        size = len(self.rows)
        options = self._options(tolerances) | {"rows": self.working}
        if self.embedded:
            self.by_one_group = False
            return FeatureSpace(**options)
        hard = self.problem.hard_margin
        system = costs.cheaper_system(self.sizes.with_rows(size), self.kind, hard=hard)
        inner = interior_point.InteriorPoint(system=system, **options)
        many = size >= self.solver.many_rows and system == "rows"
        self.by_one_group = self.one_group and many
        if self.by_one_group:
            return OneGroup(**options, fallback=inner)
        return inner

    def _lower_bound(self, alpha: Array) -> float:
        """Return the certified lower bound of dual variables that are 0 off the working set."""
        samples = np.unique(self.working.samples)
        owners = self.problem.sample_classes[samples]
        if self.problem.intercept and (owners == owners[0]).all():
            return certify(self.problem, alpha=alpha).lower
        return certify(self.problem.subset(samples), alpha=alpha[samples]).lower

    # --- choose the next working set -----------------------------------------------------------

    def choose_next(self) -> Status | None:
        """Choose the next working set, or solve this one to the end."""
        if self.found.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
            return self.found.status
        old = self.rows
        settled = self._exchange_rows(self.found.alpha)
        if np.array_equal(old, self.rows):
            # The same rows would end in the same trouble: a smaller gap is no help.
            if self.found.status is Status.NUMERICAL_TROUBLE:
                return Status.NUMERICAL_TROUBLE
            if self.inner_gap <= self.final_gap:
                if not self.by_one_group:
                    return Status.NUMERICAL_TROUBLE
                # One Gram matrix may have lost digits that matter: the interior point goes on.
                self.one_group = False
                self.by_one_group = False
            next_gap = 0.1 * self.inner_gap
        else:
            next_gap = self.inner_gap
        # The inner gap follows the global one. A set that has settled is solved to the end at once:
        # a warm start would begin at a larger gap again.
        next_gap = max(self.final_gap, min(0.1 * self.gap, next_gap))
        if settled:
            next_gap = self.final_gap
        self.inner_gap = next_gap
        return None

    def _exchange_rows(self, alpha: Array) -> bool:
        """Choose the next working set, from dual variables: whether it has settled."""
        values = self.constraints.alpha_of_rows(alpha)[self.rows]
        kept = self.staying(self.policy.clear(self.margins[self.rows], values))
        room = self.policy.room(len(self.rows), len(kept), len(self.constraints))
        worst = self.violators(room)
        settled = 0 < len(worst) <= self.solver.settled * len(kept)
        if settled:  # those that may violate in the next round, too
            worst = self.violators(room, 1.0 + self.solver.near_margin)
        # A row that joins for its class is exchanged like the others: so it leaves once at most.
        rows = self._with_all_classes(np.union1d(kept, worst))
        if self._cheaper_at_once(len(rows)):
            rows = np.arange(len(self.constraints))
            settled = True
        self.exchange(kept, np.setdiff1d(rows, kept))
        return settled

    def _cheaper_at_once(self, size: int) -> bool:
        """Whether a solve on all rows takes no longer than a few rounds on so many of them."""
        hard = self.problem.hard_margin
        some = costs.of_interior_point(self.sizes.with_rows(size), self.kind, hard=hard)
        whole = costs.of_interior_point(self.sizes, self.kind, hard=hard)
        return whole <= self.solver.few_rounds * some

    def _double(self) -> bool:
        """Take twice the rows, which may prove what few do not: whether there are more."""
        size = len(self.rows)
        room = replace(self.policy, growth=1.0).room(size, size, len(self.constraints))
        more = self.violators(room, np.inf)
        self.exchange(self.rows, more)
        self.warm = None
        return len(more) > 0
