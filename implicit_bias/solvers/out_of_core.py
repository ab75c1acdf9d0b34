r"""Linear margin problems of more samples than fit into memory: blocks of rows, which Dask reads.

The rounds are those of `rounds`. Their working set S is in memory, in one place; the data are not.
S is solved by `solve`, whose certified lower bound holds for all samples, with alpha 0 on the
others; and if S is not separable, all samples are not, with the same proof. `price_blocks` passes
over all data: each block gives its smallest margin less its rounding errors, and the few rows that
violate most. The norm over the smallest margin of all is the certified upper bound.

The bounds are those of `certify` on all samples at once, as real numbers of the stored values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import validation
from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.rounding import up
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate, Status, margin_enclosures
from implicit_bias.bounds.separability import Conflict, find_conflict
from implicit_bias.bounds.status import relative_gap
from implicit_bias.norms import HasValueAndDual, Norm, as_norm
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.constraints import worst_rows
from implicit_bias.problem.gating import NoGates
from implicit_bias.solvers.base import BoundsAt, OnProgress, Solution, check_report, no_report
from implicit_bias.solvers.iteration import follow, nothing_yet
from implicit_bias.solvers.rounds import Exchange, Rounds
from implicit_bias.solvers.row_blocks import Blocks, SomeRows, of_rows
from implicit_bias.solvers.solve import solve

FIRST_SIZE = 2000
MOST_ROWS = 100_000
# S is solved to this share of the tolerance: a pass over the data costs more than a few steps.
INNER_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class OutOfCoreSolution:
    """A solved margin problem whose samples are not in memory.

    Attributes
    ----------
    coef : ndarray of shape (1, D) or (K, 1, D)
        Coefficients, scaled to smallest margin 1 on all samples; zero where these are not
        separable.
    intercept : float or ndarray of shape (K,)
        The free offset; 0 without one.
    status : Status
        How it ended.
    certificate : Certificate
        Certified bounds on the optimum of all samples.
    working : MarginProblem
        The samples that prove the lower bound, a problem of their own.
    index : ndarray of int, shape (n,)
        Which rows of the data they are.
    alpha : ndarray of shape (n,) or (n, K)
        Their dual variables; those of all other samples are 0.
    support : ndarray of int
        Rows of the data that are support vectors.
    n_samples : int
        N.
    history : tuple of BoundsAt
        The bounds after each round.
    conflict : Conflict or None
        The plain cause of non-separability, if there is one: its samples are rows of the data.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from implicit_bias import certify, solve_out_of_core
    >>> X = da.from_array(np.array([[2.0], [-1.0], [3.0]]), chunks=(2, 1))
    >>> solution = solve_out_of_core(X, np.array([1.0, -1.0, 1.0]))
    >>> solution.status.name, solution.support.tolist()
    ('OPTIMAL', [1])
    >>> bool(certify(solution.working, alpha=solution.alpha).lower == solution.certificate.lower)
    True
    """

    coef: Array
    intercept: float | Array
    status: Status
    certificate: Certificate
    working: MarginProblem
    index: NDArray[np.int64]
    alpha: Array
    support: NDArray[np.int64]
    n_samples: int
    history: tuple[BoundsAt, ...]
    conflict: Conflict | None = None

    def __repr__(self) -> str:
        return (
            f"OutOfCoreSolution({self.status.name}: {self.certificate.statement}, gap "
            f"{self.certificate.gap:.2g}; {len(self.support)} of {self.n_samples} samples support "
            "it)"
        )

    @property
    def message(self) -> str:
        """The status in words, with cause and cure where they are known."""
        said = self.status.explain(self.certificate)
        return f"{said}: {self.conflict.cause}" if self.conflict else said

    def decision(self, X: Any) -> Any:
        """f(x_n) + b, shape (n,) or (n, K), of an array X (n, D), a memory map or Dask's array."""
        if not (isinstance(X, np.memmap) or hasattr(X, "dask")):
            X = validation.as_features(X, self.coef.shape[-1])
        return X @ self.coef[..., 0, :].T + self.intercept


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what is infinite bounds nothing
def solve_out_of_core(
    X: Any,
    y: ArrayLike | Any,
    norm: Norm | HasValueAndDual | str = "l2",
    *,
    groups: ArrayLike | None = None,
    intercept: bool = False,
    classes: int | None = None,
    tol: float = 1e-6,
    rows_a_block: int | None = None,
    most_rows: int = MOST_ROWS,
    max_rounds: int = 100,
    max_seconds: float | None = None,
    on_progress: OnProgress = no_report,
) -> OutOfCoreSolution:
    """Solve the hard margin of a linear model on data that are never in memory as a whole.

    What `max_margin` poses and `solve` solves, for a Dask array or a memory map. Blocks of rows are
    read and passed over by Dask: by the workers of a ``distributed.Client`` where there is one,
    else by threads of this process.

    Parameters
    ----------
    X : dask.array.Array or numpy.memmap of shape (N, D)
        Inputs; a Dask array in chunks of whole rows. Workers read a memory map's file themselves.
    y : array_like or dask.array.Array of shape (N,)
        Labels: -1 and +1, or integers 0 .. K - 1 for K > 2 classes.
    norm, groups, intercept
        As in `max_margin`.
    classes : int, optional
        K, where not all labels occur, or K = 2.
    tol : float
        Relative gap between the certified bounds at which to stop.
    rows_a_block : int, optional
        Rows that are read at once of a memory map; by default 32 MiB as float64.
    most_rows : int
        Samples of the working set, which are in memory.
    max_rounds : int
        Passes over the data.
    max_seconds : float, optional
        Limit on the time, seen between blocks: what was found by then is certified. A pass that it
        cuts short gives no upper bound.
    on_progress : callable, optional
        Called with the `BoundsAt` of each round.

    Returns
    -------
    OutOfCoreSolution
        Read its ``status``; the bounds in its certificate hold in every case.

    Raises
    ------
    TypeError
        X is in memory, or of another kind.
    ValueError
        Shapes that do not fit, labels other than those above, NaN, chunks across features or of
        unknown sizes.
    ImportError
        Dask is not installed.
    TimeoutError
        ``max_seconds`` passed before the first working set was read, so that there are no bounds.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from implicit_bias import solve_out_of_core
    >>> X = da.from_array(np.array([[2.0], [-1.0], [3.0], [-4.0]]), chunks=(2, 1))
    >>> solution = solve_out_of_core(X, np.array([1.0, -1.0, 1.0, -1.0]))
    >>> print(solution.status.label, solution.coef.round(6))
    optimal [[1.]]
    """
    validation.check_number(tol, "tol", "(0, 1)")
    check_report(on_progress)
    validation.check_count(most_rows, "most_rows")
    validation.check_count(max_rounds, "max_rounds")
    deadline = Deadline.asked(max_seconds)
    blocks = Blocks.of(X, y, rows_a_block)
    first = blocks.spread(min(FIRST_SIZE, most_rows), deadline)  # which has all labels
    count = validation.as_class_labels(first.y, len(first), classes)[1]
    model = Architecture(NoGates(blocks.n_features), norm=as_norm(norm, groups))

    def posed(rows: SomeRows) -> MarginProblem:
        y = rows.y if count is None else rows.y.astype(np.int64)
        return model.problem(rows.X, y, np.inf, intercept, count)

    policy = Exchange(FIRST_SIZE, growth=1.0)
    run = _BlockRounds(blocks, posed, first, policy, most_rows, tol, deadline)
    return run.solution(*follow(run.steps(), max_rounds, on_progress, deadline=deadline))


@dataclass(frozen=True, eq=False)
class Prices:
    """What pricing all rows of the data, or of a block, finds.

    Attributes
    ----------
    at_least : float
        No margin is smaller, as a real number.
    smallest : float
        The smallest margin as computed.
    rows : SomeRows
        Rows of the smallest margins.
    margins : ndarray of shape (n,)
        Theirs.
    """

    at_least: float
    smallest: float
    rows: SomeRows
    margins: Array


def price_blocks(
    blocks: Blocks,
    coef: Array,
    offsets: float | Array,
    classes: int | None,
    *,
    below: float,
    count: int,
    deadline: Deadline = NEVER,
) -> Prices:
    """Bound the margins of coefficients on all rows, and find the rows of the smallest margins.

    Parameters
    ----------
    blocks : Blocks
        The data.
    coef : ndarray of shape (1, D) or (K, 1, D)
        Coefficients, the largest about 1.
    offsets : float or ndarray of shape (K,)
        The intercept.
    classes : int or None
        K; None with labels -1 and +1.
    below : float
        Rows of this margin or more are none.
    count : int
        How many rows at most.
    deadline : Deadline
        When to give up.

    Raises
    ------
    ValueError
        Values or labels that no `MarginProblem` takes.
    TimeoutError
        The deadline has passed.
    """
    found = blocks.map(_priced, coef, offsets, classes, below, count, deadline=deadline)
    margins = np.concatenate([part.margins for part in found])
    first, *others = [part.rows for part in found]
    rows = first.joined(*others)  # in the order of the blocks, as the margins are
    best = worst_rows(margins, np.arange(len(margins)), below, count)
    return Prices(
        min(part.at_least for part in found),
        min(part.smallest for part in found),
        rows.of(best),
        margins[best],
    )


def _priced(
    X: NDArray[Any],
    y: NDArray[Any],
    start: int,
    coef: Array,
    offsets: float | Array,
    classes: int | None,
    limit: float,
    count: int,
) -> Prices:
    """Price a block, where it is read: as a problem of its own, which checks it."""
    with of_rows(start, X):
        block = MarginProblem(X, y, np.ones((len(X), 1)), np.zeros(1, np.int64), classes=classes)
    margins = margin_enclosures(block, coef, offsets)
    value = margins.value
    places = worst_rows(value, np.arange(len(value)), limit, count)
    rows = SomeRows(start + places, block.X[places], np.asarray(block.y[places], np.float64))
    low = float((value - margins.radius).min())
    return Prices(low, float(value.min()), rows, value[places])


class _BlockRounds(Rounds):
    """The rounds of one solve: the working set is in memory, all else in blocks.

    Attributes
    ----------
    held : SomeRows
        The working set.
    problem : MarginProblem
        Its problem.
    proof : tuple of SomeRows, MarginProblem, ndarray and ndarray
        The working set of the best lower bound, its problem, dual norms and support.
    """

    def __init__(
        self,
        blocks: Blocks,
        posed: Callable[[SomeRows], MarginProblem],
        first: SomeRows,
        policy: Exchange,
        most_rows: int,
        tolerance: float,
        deadline: Deadline,
    ) -> None:
        self.problem = posed(first)
        super().__init__(nothing_yet(self.problem), tolerance)
        self.blocks, self.posed, self.held, self.rows = blocks, posed, first, first.index
        self.policy, self.most_rows, self.deadline = policy, most_rows, deadline
        self.proof = first, self.problem, np.zeros(0), self.rows[:0]
        self.ended: Status | None = None

    def solve(self) -> Status | None:
        """Solve on the working set, and pass over all data."""
        self.problem = self.posed(self.held)
        inner = INNER_SHARE * self.tolerance
        self.found = found = solve(self.problem, tol=inner, max_seconds=self.deadline.left)
        if found.certificate.lower > self.lower:
            self.improve_lower(found.certificate.lower, found.alpha)
            support = self.rows[found.support]
            self.proof = self.held, self.problem, found.certificate.dual_norms, support
        if found.status.inseparable or not np.isfinite(found.certificate.upper):
            self.ended = found.status
            return None
        try:
            self.worst = self._pass(found)
        except TimeoutError:
            self.ended = Status.TIME_LIMIT
        return None

    def _pass(self, found: Solution) -> SomeRows:
        """Take the upper bound of all data, and return the rows that violate, worst ones first."""
        unit = np.ldexp(1.0, int(np.frexp(np.abs(found.coef).max())[1]))  # exact to divide by
        coef, offsets = found.coef / unit, found.intercept / unit
        priced = price_blocks(
            self.blocks,
            coef,
            offsets,
            self.problem.classes,
            below=1.0 / unit,
            count=max(self.policy.first_size, len(self.held)),
            deadline=self.deadline,
        )
        norm = self.problem.norm.value_bound(coef.reshape(self.problem.norm_shape))
        if priced.at_least > 0:
            upper = up(norm / priced.at_least)
            self.improve_upper(upper, coef / priced.smallest, offsets / priced.smallest)
        return priced.rows.of(np.argsort(priced.margins, kind="stable"))

    def advance(self) -> Status | None:
        """Choose the next working set; a status where there is none."""
        if self.ended is not None:
            return self.ended
        problem, found, y = self.problem, self.found, self.held.y
        margins = problem.margins(problem.decision(found.coef), found.intercept)
        clear = self.policy.clear(margins, problem.totals(found.alpha))
        for label in np.unique(y) if problem.intercept else ():  # which needs each class
            members = np.flatnonzero(y == label)
            clear[members[np.argmin(margins[members])]] = False
        kept = self.staying(clear)
        joining = self.worst.of(~np.isin(self.worst.index, self.rows))
        room = self.policy.room(len(self.rows), len(kept), self.most_rows)
        if len(joining) == 0 or room == 0:
            return Status.MEMORY_LIMIT if len(joining) else Status.NUMERICAL_TROUBLE
        joining = joining.of(np.arange(len(joining)) < room)
        self.held = self.held.of(np.isin(self.rows, kept)).joined(joining)
        self.exchange(kept, joining.index)
        return None

    def solution(self, status: Status, history: tuple[BoundsAt, ...]) -> OutOfCoreSolution:
        """Return what attains the best bounds."""
        held, working, dual_norms, support = self.proof
        gap = relative_gap(self.lower, self.upper)
        min_margin = 1.0 if self.upper < np.inf else np.nan
        return OutOfCoreSolution(
            coef=self.best.coef,
            intercept=self.best.intercept,
            status=status,
            certificate=Certificate(self.lower, self.upper, gap, min_margin, dual_norms),
            working=working,
            index=held.index,
            alpha=self.best.alpha,
            support=support,
            n_samples=self.blocks.n_samples,
            history=history,
            conflict=find_conflict(working, held.index) if self.lower == np.inf else None,
        )
