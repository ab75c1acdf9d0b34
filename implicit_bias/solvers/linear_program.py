r"""Linear programs by HiGHS, on a working set: norms that are sums of maxima, as l1 and l_inf.

Primal  minimize  sum_g t_g + C sum_n xi_n
        subject to  A zeta + E b + xi >= 1,   xi >= 0,   |zeta_j| <= t_g for all j in group g

Dual    maximize  sum_p alpha_p
        subject to  alpha >= 0,  E' alpha = 0,  sum of alpha over a sample's rows <= C,
                    sum_(j in g) |V_j| <= 1 for all g,   V = A' alpha

l1 has one group an entry, l_inf one group of all. The variables are p_j, m_j >= 0 with
zeta_j = p_j - m_j in a group of one entry, and else w_j = zeta_j + t_g, 0 <= w_j <= 2 t_g.

======  =========  =========================================================================
A       (P, J)     features of the constraints, pairs of a sample and a rival
E       (P, k)     their offsets
xi      (N,)       hinge losses, one a sample (soft margin only)
alpha   (P,)       multipliers of the margins
======  =========  =========================================================================

At a vertex few rows are tight, and with l1 few entries are not 0. So the rounds (`rounds`) solve
the linear program on a working set of rows. Where each entry is a group of its own, they solve it
on a working set of columns, too: V of the multipliers, padded with zeros, prices all columns, and
those with |V_j| > 1 join.

HiGHS's tolerances are absolute. Where its answer is not good enough, iterative refinement corrects
it (Gleixner, Steffy, Wolter 2016): the violations and the negative reduced costs make another
linear program around the solution, which is scaled up.

If the rows of a round are not separable with all columns, all rows are not separable, either. Then
the maximum margin over |zeta_j| <= 1 is 0, and the multipliers of that linear program are Gordan's
proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array, UnsuitableError
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.constraints import Integers
from implicit_bias.solvers import base
from implicit_bias.solvers.iteration import follow
from implicit_bias.solvers.rounds import RowRounds


@dataclass(frozen=True, kw_only=True)
class LinearProgram(base.ExternalSolver):
    """HiGHS on a working set; ``max_iterations`` counts rounds.

    Parameters
    ----------
    first_rows : int
        Rows of the first round, at most; later rounds may double them.
    first_columns : float
        Columns of the first round, as a multiple of its rows, where columns are generated.
    slack_share : float
        A row is violated, and a column missing, beyond this fraction of the gap tolerance.
    max_rounds : int
        Limit where ``max_iterations`` sets none.
    highs_tolerance : float
        HiGHS's own tolerances, which are absolute: its smallest ones.
    refinements : int
        Linear programs, at most, that correct a solution.
    digits : float
        What corrections may leave of a margin or a reduced cost, as a fraction of its terms' sizes.
    growth, step_back : float
        A correction is scaled up at most so much more than the one before it, and by so much less
        where HiGHS fails on it.
    rounding : float
        Rounding of a margin, as a fraction of its terms' sizes.
    """

    first_rows: int = 400
    first_columns: float = 2.0
    slack_share: float = 0.1
    max_rounds: int = 100
    highs_tolerance: float = 1e-10
    refinements: int = 20
    digits: float = 1e-9
    growth: float = 2.0**20
    step_back: float = 2.0**7
    rounding: float = 2.0**-50

    name: ClassVar[str] = "highs"

    def run(
        self,
        problem: MarginProblem,
        on_progress: base.OnProgress = base.no_report,
        start: base.Start | None = None,
    ) -> base.Candidate:
        """Solve, reporting the global bounds of each round; ``start`` is not used.

        Raises
        ------
        ValueError
            A norm that is no sum of maxima over groups.
        """
        n_features = problem.n_gates * problem.X.shape[1]
        deadline = Deadline.after(self.seconds_for(len(problem.constraints) * n_features))
        rounds = _WorkingProgram(self, problem, deadline)
        limit = self.max_iterations or self.max_rounds
        found = follow(rounds, limit, on_progress, deadline=deadline)
        # A round that proves that nothing separates the rows ends without bounds, and counts, too.
        return replace(found, iterations=max(1, found.iterations))


class _WorkingProgram(RowRounds):
    """The linear program on a working set of rows and columns.

    Attributes
    ----------
    groups : ndarray of int, shape (J,)
        Group of each column.
    single : bool
        Whether each column is a group of its own: then columns are generated.
    columns : ndarray of int
        Those of the working set.
    V : ndarray of shape (J,)
        A' alpha of the last multipliers, which prices the columns.
    effort : int
        Where HiGHS fails: 1 refines its solution, 2 also scales rows and columns to one size.
    """

    most_effort = 2

    def __init__(self, solver: LinearProgram, problem: MarginProblem, deadline: Deadline) -> None:
        super().__init__(problem, solver.tolerances.gap)
        self.solver = solver
        self.deadline = deadline
        self.slack = solver.slack_share * self.tolerance
        self.effort = 0
        found = problem.partition
        if found is None or found.inner != "linf":
            raise UnsuitableError(
                f"HiGHS takes norms that are sums of maxima, such as l1 and linf, not "
                f"{problem.norm!r}: choose solver='auto'"
            )
        self.groups = found.groups.ravel()
        self.single = bool((np.bincount(self.groups) == 1).all())
        # The first rows: those that the mean of the classes' features separates worst.
        V = problem.dual_vectors(problem.constraints.equal_alpha())
        self.margins = self.margins_of(V, problem.no_offset)
        self.rows = self.worst(solver.first_rows)
        self.V = V.ravel()
        self.columns = np.arange(len(self.groups))
        if self.single:
            count = int(solver.first_columns * len(self.rows))
            self.columns = self.columns[:0]
            self._add_columns(np.arange(len(self.groups)), max(1, count))

    def solve_and_price(self) -> Status | None:
        """Solve on the working set; where that fails, with more columns or more digits."""
        infeasible = 2  # HiGHS's status of a problem without feasible points
        while True:
            size = f"{len(self.rows)} rows, {len(self.columns)} columns"
            self.detail = f"{size} in the last linear program"
            status, found = self._program()
            if status == infeasible and len(self.columns) < len(self.groups):
                # Perhaps columns are missing.
                others = np.setdiff1d(np.arange(len(self.groups)), self.columns)
                self._add_columns(others, 2 * len(self.columns))
            elif found is not None or not self._try_harder():
                # Solved; or perhaps for want of digits, and there is no more effort to spend.
                break
        if status == infeasible:
            alpha = approximate_gordan_solution(self.problem, self.working, self.deadline)
            self.best = replace(self.best, alpha=alpha)
            if self.deadline.passed and not alpha.any():
                return Status.TIME_LIMIT
            return Status.NOT_SEPARABLE
        if found is None:
            if self.deadline.passed:
                return Status.TIME_LIMIT
            return Status.NUMERICAL_TROUBLE
        # Rounding breaks the equation of an intercept, without which there is no bound.
        alpha = repaired(self.problem, found.alpha, self.problem.box)
        self.improve_lower(certify(self.problem, alpha=alpha).lower, alpha)
        self.price(found.coef, found.intercept)
        self.V = self.problem.dual_vectors(alpha).ravel()
        return None

    def choose_next(self) -> Status | None:
        """Add violated rows and missing columns; where there are none, try harder."""
        n_rows = len(self.rows)
        n_columns = len(self.columns)
        first = self.solver.first_rows
        self.exchange(self.rows, self.violators(max(first, n_rows), 1.0 - self.slack))
        if self.single:
            missing = np.flatnonzero(np.abs(self.V) > 1.0 + self.slack)
            self._add_columns(missing, max(first, n_columns))
        changed = len(self.rows) > n_rows or len(self.columns) > n_columns
        if changed or self._try_harder():
            return None
        return Status.NUMERICAL_TROUBLE

    def _try_harder(self) -> bool:
        """Spend more effort on the next linear program, if there is more."""
        if self.effort == self.most_effort:
            return False
        self.effort += 1
        return True

    def _add_columns(self, wanted: Integers, count: int) -> None:
        """Add the columns with the largest |V_j| of some, at most this many."""
        order = np.argsort(-np.abs(self.V[wanted]), kind="stable")[:count]
        self.columns = np.union1d(self.columns, wanted[order])

    def _program(self) -> tuple[int, base.Answer | None]:
        """Solve the linear program on the working set: HiGHS's status, and what it found."""
        problem = self.problem
        rows = self.working
        unit = problem.scale
        n_columns = len(self.columns)
        n_offsets = rows.offset_columns.shape[1]
        A = problem.features.of_rows(rows).matrix()[:, self.columns] / unit
        groups = np.unique(self.groups[self.columns], return_inverse=True)[1]
        n_groups = int(groups.max()) + 1

        # --- the variables, block by block: their columns of the margins, and their costs ------
        if self.single:  # p, m
            blocks = [A, -A]
            costs = [np.ones(n_columns), np.ones(n_columns)]
        else:  # w, t
            member = sp.csr_array((np.ones(n_columns), (np.arange(n_columns), groups)))
            blocks = [A, -(A @ member)]
            costs = [np.zeros(n_columns), np.ones(n_groups)]
        if not problem.hard_margin:  # xi
            samples, index = np.unique(rows.samples, return_inverse=True)
            blocks.append(sp.csr_array((np.ones(len(rows)), (np.arange(len(rows)), index))))
            costs.append(problem.box[samples] * unit)
        cost = np.concatenate([*costs, np.zeros(n_offsets)])
        free = np.arange(len(cost)) >= len(cost) - n_offsets
        if n_offsets:  # b
            blocks.append(sp.csr_array(rows.offset_columns))
        matrix = sp.hstack(blocks, format="csr")
        right = np.ones(len(rows))
        if not self.single:  # w <= 2 t
            zeros = sp.csr_array((n_columns, len(cost) - n_columns - n_groups))
            limits = sp.hstack([sp.eye_array(n_columns), -2.0 * member, zeros])
            matrix = sp.vstack([matrix, -limits], format="csr")
            right = np.append(right, np.zeros(n_columns))

        # --- its solution ------------------------------------------------------------------------
        program = _InequalityForm(cost, matrix, right, free, len(rows))
        status, found = program.solve(
            self.solver,
            self.deadline,
            count=self.solver.refinements if self.effort else 1,
            equilibrate=self.effort == self.most_effort,
        )
        if found is None:
            return status, None
        x, multipliers = found
        if self.single:
            zeta = x[:n_columns] - x[n_columns : 2 * n_columns]
        else:
            zeta = x[:n_columns] - x[n_columns : n_columns + n_groups][groups]
        coef = np.zeros(len(self.groups))
        coef[self.columns] = zeta / unit
        alpha = rows.alpha(multipliers[: len(rows)] / unit)
        intercept = problem.as_intercept(rows.of_classes(x[len(x) - n_offsets :]))
        return 0, base.Answer(alpha, coef.reshape(problem.coef_shape), intercept)


def approximate_gordan_solution(
    problem: MarginProblem, rows: Constraints, deadline: Deadline
) -> Array:
    """Return alpha >= 0 on some rows that nearly solve Gordan's system, V = 0 and e' alpha = 0.

    They have any scale, and are 0 where the linear program was not solved.
    """
    A = problem.features.of_rows(rows).matrix() / problem.scale
    E = sp.csr_array(rows.offset_columns)
    # max s subject to A zeta + E b >= s, |zeta_j| <= 1: its multipliers are alpha, of the smallest
    # sum of |V_j|. Rows and columns are equilibrated first, and the multipliers scaled back.
    whole = sp.hstack([A, E], format="csr")
    sizes, of_columns = _equilibration(whole)
    whole = sp.diags_array(sizes) @ whole @ sp.diags_array(of_columns)
    ones = sp.csr_array(np.ones((len(rows), 1)))
    found = scipy.optimize.linprog(
        np.append(np.zeros(whole.shape[1]), -1.0),
        sp.hstack([-whole, ones], format="csr"),
        np.zeros(len(rows)),
        bounds=[(-1, 1)] * A.shape[1] + [(None, None)] * (E.shape[1] + 1),
        method="highs",
        options={"time_limit": deadline.left},
    )
    if found.status != 0:
        return np.zeros(problem.alpha_shape)
    return rows.alpha(np.maximum(-found.ineqlin.marginals, 0.0) * sizes)


def _equilibration(A: sp.csr_array, rounds: int = 5) -> tuple[Array, Array]:
    """Powers of two that bring the largest entries of rows and of columns to about 1 (Ruiz)."""
    rows = np.ones(A.shape[0])
    columns = np.ones(A.shape[1])
    size = abs(A).tocoo()
    for _ in range(rounds):
        data = size.data * rows[size.row] * columns[size.col]
        for sizes, index in ((rows, size.row), (columns, size.col)):
            largest = np.zeros(len(sizes))
            np.maximum.at(largest, index, data)
            sizes *= np.where(largest > 0, np.exp2(-np.round(np.log2(largest) / 2)), 1.0)
    return rows, columns


@dataclass(frozen=True, eq=False)
class _InequalityForm:
    """Minimize cost'x subject to A x >= b, and x >= 0 but where it is free.

    The first rows, of the margins, are to exceed b by what rounding may take from them.
    """

    cost: Array  # (n,)
    A: sp.csr_array  # (m, n)
    b: Array  # (m,)
    free: NDArray[np.bool_]  # (n,)
    n_margins: int

    def solve(
        self, solver: LinearProgram, deadline: Deadline, *, count: int, equilibrate: bool
    ) -> tuple[int, tuple[Array, Array] | None]:
        """Solve digit by digit, by this many linear programs at most.

        Returns
        -------
        status : int
            HiGHS's.
        found : tuple of ndarray, or None
            x, and the multipliers of the rows.
        """
        # --- one size for all: in rows and columns, in b, in the costs ---------------------------
        rows: Array | float = 1.0
        columns: Array | float = 1.0
        if equilibrate:
            rows, columns = _equilibration(self.A)
        A = sp.csr_array(
            self.A.multiply(np.reshape(rows, (-1, 1))).multiply(np.reshape(columns, (1, -1)))
        )
        b = rows * self.b
        cost = columns * self.cost
        unit = np.abs(b).max()
        unit_of_cost = np.abs(cost).max()
        b = b / unit
        cost = cost / unit_of_cost

        # --- A x - s = b: with the slacks s as variables all that can be violated are bounds ------
        n = len(cost)
        m = len(b)
        whole = sp.hstack([A, -sp.eye_array(m)], format="csr")
        costs = np.append(cost, np.zeros(m))
        least = np.append(np.where(self.free, -np.inf, 0.0), np.zeros(m))
        unbounded = np.isinf(least)
        of_margins = np.arange(m) < self.n_margins
        smallest = 2.0**-200  # a violation in the place of 0, to divide by
        options: dict[str, Any] = {
            "primal_feasibility_tolerance": solver.highs_tolerance,
            "dual_feasibility_tolerance": solver.highs_tolerance,
        }

        x = np.append(np.zeros(n), -b)
        y = np.zeros(m)
        # How much the corrections of x and of y are scaled up.
        primal_scale = 1.0
        dual_scale = 1.0
        best: tuple[Array, Array] | None = None
        for _ in range(count):
            # --- the linear program of the correction --------------------------------------------
            # Around (x, y) the costs are the reduced costs and the bounds what x leaves of its own.
            # Scaled up, what HiGHS's absolute tolerances leave of it is little of x and y.
            correction = scipy.optimize.linprog(
                dual_scale * (costs - whole.T @ y),
                A_eq=whole,
                b_eq=np.zeros(m),
                bounds=np.column_stack([primal_scale * (least - x), np.full(n + m, np.inf)]),
                method="highs",
                options=options | {"time_limit": deadline.left},
            )
            if correction.status != 0:
                if best is None or deadline.passed:
                    return int(correction.status), best
                # It was scaled up too far.
                primal_scale /= solver.step_back
                dual_scale /= solver.step_back
                continue
            x = x + correction.x / primal_scale
            y = y + correction.eqlin.marginals / dual_scale

            # --- what is still violated ----------------------------------------------------------
            # Signs are made right, and s is A x - b by definition: less, for margins, what rounding
            # may take from them. What is left are s < 0, reduced costs < 0, and the duality gap.
            x[:n] = np.where(self.free, x[:n], np.maximum(x[:n], 0.0))
            size = abs(A) @ np.abs(x[:n])
            x[n:] = A @ x[:n] - b - np.where(of_margins, solver.rounding * size, 0.0)
            best = x[:n] * columns * unit, np.maximum(y, 0.0) * rows * unit_of_cost
            reduced = costs - whole.T @ y
            lacking = -x[n:]
            missing = np.where(unbounded, np.abs(reduced), -reduced)
            duality_gap = cost @ x[:n] - b @ y
            feasible = lacking <= solver.digits * np.where(of_margins, np.abs(b), size)
            sizes_of_costs = costs + abs(whole).T @ np.abs(y)
            dual_feasible = missing <= solver.digits * sizes_of_costs
            converged = duality_gap <= solver.digits * np.abs(cost @ x[:n])
            if feasible.all() and dual_feasible.all() and converged:
                break
            # The next correction makes the largest violation 1, but no step is too bold.
            worst = max(missing.max(), duality_gap / max(np.abs(x[:n]).sum(), smallest))
            primal_scale = min(1.0 / max(lacking.max(), smallest), primal_scale * solver.growth)
            dual_scale = min(1.0 / max(worst, smallest), dual_scale * solver.growth)
        return 0, best
