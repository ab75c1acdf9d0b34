r"""Linear programs by HiGHS, on a working set: norms that are sums of maxima, as l1 and l_inf.

Primal  minimise  sum_g t_g + C sum_n xi_n
        subject to  A zeta + E b + xi >= 1,   xi >= 0,   |zeta_j| <= t_g for all j in group g

Dual    maximise  sum_p alpha_p
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
the program on some rows, and on some columns where each entry is a group of its own: V of the
multipliers, padded with zeros, prices all columns, and those with |V_j| > 1 join.

If the rows of a round are not separable with all columns, neither are all: then the largest
margin of |zeta_j| <= 1 is 0, and the multipliers of that program are Gordan's proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array, UnsuitableError
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.solvers import base
from implicit_bias.solvers.iteration import drive
from implicit_bias.solvers.rounds import RowRounds

# What HiGHS calls a program without feasible points.
INFEASIBLE = 2
# HiGHS's own tolerances: its smallest ones.
TOLERANCE = 1e-10
# Programs that correct a solution, and what they may leave of a margin, as a share of it.
MOST_REFINEMENTS, DIGITS, GROWTH, BACK = 20, 1e-9, 2.0**20, 2.0**7
MOST_EFFORT = 2
# Rounding of a margin, as a share of its terms' sizes, and the smallest violation to correct.
ROUNDING, SMALLEST = 2.0**-50, 2.0**-200
# Rounds in which rows and columns are brought to one size.
SCALINGS = 5


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
        A row is violated, and a column missing, beyond this share of the gap tolerance.
    max_rounds : int
        Limit where ``max_iterations`` sets none.
    """

    first_rows: int = 400
    first_columns: float = 2.0
    slack_share: float = 0.1
    max_rounds: int = 100

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
        run, limit = (
            _WorkingProgram(self, problem, deadline),
            self.max_iterations or self.max_rounds,
        )
        found = drive(run, limit, on_progress, deadline=deadline)
        return replace(found, iterations=max(1, found.iterations))


class _WorkingProgram(RowRounds):
    """The program on a working set of rows and columns."""

    def __init__(self, solver: LinearProgram, problem: MarginProblem, deadline: Deadline) -> None:
        super().__init__(problem, solver.tolerances.gap)
        self.solver, self.deadline = solver, deadline
        self.slack = solver.slack_share * self.tolerance
        found = problem.norm.partition(problem.norm_shape)
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
        self.columns = np.arange(len(self.groups))
        if self.single:
            count = max(1, min(len(self.groups), int(solver.first_columns * len(self.rows))))
            self.columns = np.sort(np.argsort(-np.abs(V).ravel(), kind="stable")[:count])
        self._V = V.ravel()
        # Where a program fails: 1 refines it, 2 also brings its rows and columns to one size.
        self.effort = 0

    def solve_and_price(self) -> Status | None:
        """Solve the program; where it fails with more columns, or with more digits."""
        while True:
            self.detail = f"{len(self.rows)} rows, {len(self.columns)} columns in the last program"
            status, found = self._program()
            if status == INFEASIBLE and len(self.columns) < len(self.groups):
                others = np.setdiff1d(np.arange(len(self.groups)), self.columns)
                self._add_columns(others, 2 * len(self.columns))  # perhaps for want of columns
            elif found is not None or not self._try_harder():  # perhaps for want of digits
                break
        if status == INFEASIBLE:
            alpha = gordan(self.problem, self.working, self.deadline)
            self.best = replace(self.best, alpha=alpha)
            late = self.deadline.passed and not alpha.any()
            return Status.TIME_LIMIT if late else Status.NOT_SEPARABLE
        if found is None:
            return Status.TIME_LIMIT if self.deadline.passed else Status.NUMERICAL_TROUBLE
        alpha, coef, intercept = found
        # Rounding breaks the equation of an intercept, without which there is no bound.
        alpha = repaired(self.problem, alpha, self.problem.box)
        self.improve_lower(certify(self.problem, alpha=alpha).lower, alpha)
        self.price(coef, intercept)
        self._V = self.problem.dual_vectors(alpha).ravel()
        return None

    def choose_next(self) -> Status | None:
        """Add violated rows and missing columns; where there are none, try harder."""
        before, first = (len(self.rows), len(self.columns)), self.solver.first_rows
        joining = self.violators(max(first, len(self.rows)), 1.0 - self.slack)
        self.exchange(self.rows, joining)
        if self.single:
            missing = np.flatnonzero(np.abs(self._V) > 1.0 + self.slack)
            self._add_columns(missing, max(first, len(self.columns)))
        changed = before != (len(self.rows), len(self.columns))
        return None if changed or self._try_harder() else Status.NUMERICAL_TROUBLE

    def _try_harder(self) -> bool:
        """Spend more effort on the next program, if there is more."""
        harder = self.effort < MOST_EFFORT
        self.effort += harder
        return harder

    def _add_columns(self, wanted: NDArray[np.int64], count: int) -> None:
        """Add the columns with the largest |V_j| of some, at most this many."""
        order = np.argsort(-np.abs(self._V[wanted]), kind="stable")[:count]
        self.columns = np.union1d(self.columns, wanted[order])

    def _program(self) -> tuple[int, tuple[Array, Array, float | Array] | None]:
        """Solve the program on the working set: HiGHS's status; alpha, coef and intercept."""
        problem, rows = self.problem, self.working
        unit, n_offsets = problem.scale, rows.offsets.shape[1]
        A = problem.features.of_rows(rows).matrix()[:, self.columns] / unit
        groups = np.unique(self.groups[self.columns], return_inverse=True)[1]
        n_groups, n_columns = int(groups.max()) + 1, len(self.columns)
        # The variables in blocks: columns of the margins, cost of each, and lower bound.
        blocks: list[tuple[Any, Array, int | None]]
        limits: list[Any] = []
        if self.single:
            blocks = [(A, np.ones(n_columns), 0), (-A, np.ones(n_columns), 0)]
        else:
            member = sp.csr_array((np.ones(n_columns), (np.arange(n_columns), groups)))
            blocks = [(A, np.zeros(n_columns), 0), (-(A @ member), np.ones(n_groups), 0)]
            limits = [sp.eye_array(n_columns), -2.0 * member]
        if not problem.hard_margin:
            samples, index = np.unique(rows.samples, return_inverse=True)
            losses = sp.csr_array((np.ones(len(rows)), (np.arange(len(rows)), index)))
            blocks.append((losses, problem.box[samples] * unit, 0))
        if n_offsets:
            blocks.append((sp.csr_array(rows.offsets), np.zeros(n_offsets), None))
        cost = np.concatenate([costs for _, costs, _ in blocks])
        free = np.concatenate([np.full(len(costs), least is None) for _, costs, least in blocks])
        margins = sp.hstack([part for part, _, _ in blocks], format="csr")
        right = np.ones(len(rows))
        if limits:
            padding = sp.csr_array((n_columns, len(cost) - n_columns - n_groups))
            margins = sp.vstack([margins, -sp.hstack([*limits, padding])], format="csr")
            right = np.append(right, np.zeros(n_columns))
        count = MOST_REFINEMENTS if self.effort else 1
        sizes = equilibrating(margins) if self.effort == MOST_EFFORT else (1.0, 1.0)
        status, found = solve_refined(
            cost, margins, right, free, len(rows), count, self.deadline, *sizes
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
        return 0, (alpha, coef.reshape(problem.coef_shape), intercept)


def gordan(problem: MarginProblem, rows: Constraints, deadline: Deadline) -> Array:
    """Return alpha >= 0, sum 1, with the smallest sum of |V_j|, on some rows; 0 without one."""
    A, E = problem.features.of_rows(rows).matrix() / problem.scale, sp.csr_array(rows.offsets)
    # max s subject to A zeta + E b >= s, |zeta_j| <= 1: its multipliers are alpha. Neither the
    # sizes of rows nor those of columns matter, but that of the multipliers.
    whole = sp.hstack([A, E], format="csr")
    sizes, of_columns = equilibrating(whole)
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


def equilibrating(A: sp.csr_array) -> tuple[Array, Array]:
    """Powers of two that bring the largest entries of rows and of columns to about 1 (Ruiz)."""
    rows, columns = np.ones(A.shape[0]), np.ones(A.shape[1])
    size = abs(A).tocoo()
    for _ in range(SCALINGS):
        data = size.data * rows[size.row] * columns[size.col]
        for sizes, index in ((rows, size.row), (columns, size.col)):
            largest = np.zeros(len(sizes))
            np.maximum.at(largest, index, data)
            sizes *= np.where(largest > 0, np.exp2(-np.round(np.log2(largest) / 2)), 1.0)
    return rows, columns


def solve_refined(
    cost: Array,
    A: sp.csr_array,
    b: Array,
    free: NDArray[np.bool_],
    n_margins: int,
    count: int,
    deadline: Deadline = NEVER,
    rows: Array | float = 1.0,
    columns: Array | float = 1.0,
) -> tuple[int, tuple[Array, Array] | None]:
    """Minimise cost'x subject to A x >= b, and x >= 0 but where it is free, digit by digit.

    HiGHS's tolerances are absolute. So what is violated, and what the reduced costs lack, make
    another program around the solution, scaled up, whose solution corrects it (Gleixner, Steffy,
    Wolter 2016: iterative refinement). The first rows, of the margins, are to exceed b by what
    rounding may take from them. ``count`` programs are solved at most.

    Returns
    -------
    status : int
        HiGHS's.
    found : tuple of ndarray, or None
        x, and the multipliers of the rows.
    """
    b, cost = rows * b, columns * cost
    A = sp.csr_array(A.multiply(np.reshape(rows, (-1, 1))).multiply(np.reshape(columns, (1, -1))))
    unit, price = np.abs(b).max(), np.abs(cost).max()
    b, cost = b / unit, cost / price
    n, m = len(cost), len(b)
    # A x - s = b: with the slacks as variables all that can be violated are bounds.
    whole = sp.hstack([A, -sp.eye_array(m)], format="csr")
    costs, least = (
        np.append(cost, np.zeros(m)),
        np.append(np.where(free, -np.inf, 0.0), np.zeros(m)),
    )
    x, y = np.append(np.zeros(n), -b), np.zeros(m)
    unbounded, right = np.isinf(least), np.arange(m) < n_margins
    primal, dual = 1.0, 1.0
    best: tuple[Array, Array] | None = None
    for _ in range(count):
        found = scipy.optimize.linprog(
            dual * (costs - whole.T @ y),
            A_eq=whole,
            b_eq=np.zeros(m),
            bounds=np.column_stack([primal * (least - x), np.full(n + m, np.inf)]),
            method="highs",
            options={
                "primal_feasibility_tolerance": TOLERANCE,
                "dual_feasibility_tolerance": TOLERANCE,
                "time_limit": deadline.left,
            },
        )
        if found.status != 0 and (best is None or deadline.passed):
            return int(found.status), best
        if found.status != 0:  # scaled up too far
            primal, dual = primal / BACK, dual / BACK
            continue
        x, y = x + found.x / primal, y + found.eqlin.marginals / dual
        x[:n] = np.where(free, x[:n], np.maximum(x[:n], 0.0))
        size = abs(A) @ np.abs(x[:n])
        x[n:] = A @ x[:n] - b - np.where(right, ROUNDING * size, 0.0)
        best = x[:n] * columns * unit, np.maximum(y, 0.0) * rows * price
        reduced = costs - whole.T @ y
        lacking, missing = -x[n:], np.where(unbounded, np.abs(reduced), -reduced)
        excess = cost @ x[:n] - b @ y
        if (
            (lacking <= DIGITS * np.where(right, np.abs(b), size)).all()
            and (missing <= DIGITS * (costs + abs(whole).T @ np.abs(y))).all()
            and excess <= DIGITS * np.abs(cost @ x[:n])
        ):
            break
        missing = np.append(missing, excess / max(np.abs(x[:n]).sum(), SMALLEST))
        primal = min(1.0 / max(lacking.max(), SMALLEST), primal * GROWTH)
        dual = min(1.0 / max(missing.max(), SMALLEST), dual * GROWTH)
    return 0, best
