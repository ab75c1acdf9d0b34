r"""Linear margin problems of more samples than fit into memory: a working set, and blocks of rows.

The rounds are those of `rounds`. Their working set S is in memory, and so are the labels; the
inputs are not. Each round

1. solves the problem on S with `solve`. Its certified lower bound holds for all samples, with
   alpha 0 on the others. If S is not separable, all samples are not, with the same proof;
2. passes over all inputs, one block of rows in memory at a time. Each block gives its smallest
   margin less its rounding errors, and the rows that violate most. The norm over the smallest
   margin of all blocks is the certified upper bound;
3. exchanges: what is clearly no support vector leaves S, and the rows that violate most join it.

The bounds are those of `certify` on all samples at once: rigorous for the values as stored.

A block is what ``X[start:stop]`` reads: of a memory map from its file, of a Dask array by the
scheduler that Dask is set to.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import validation
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.rounding import up
from implicit_bias.bounds.certificate import Certificate, Status, margin_enclosures
from implicit_bias.bounds.separability import find_conflict
from implicit_bias.bounds.status import relative_gap
from implicit_bias.norms import HasValueAndDual, Norm
from implicit_bias.problem import MarginProblem, max_margin
from implicit_bias.problem.constraints import Integers, evenly_spaced
from implicit_bias.solvers.base import OnProgress, Solution, check_report, no_report, proof_among
from implicit_bias.solvers.iteration import follow, zero_answer
from implicit_bias.solvers.rounds import Exchange, Rounds
from implicit_bias.solvers.solve import solve


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OutOfCoreSolution(Solution):
    """A solved margin problem whose samples are not in memory.

    Its ``problem`` has the samples of the working set that proves the lower bound: ``alpha`` and
    ``support`` are theirs, and alpha is 0 on all other samples. Its ``certificate`` and status are
    those of all samples; its coefficients have unit margin on all of them.

    Attributes
    ----------
    index : ndarray of int, shape (n,)
        Which rows of the data the samples of ``problem`` are, ascending.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from implicit_bias import certify, solve_out_of_core
    >>> X = da.from_array(np.array([[2.0], [-1.0], [3.0]]), chunks=(2, 1))
    >>> solution = solve_out_of_core(X, np.array([1.0, -1.0, 1.0]))
    >>> solution.status.name, solution.index[solution.support].tolist()
    ('OPTIMAL', [1])
    >>> bool(certify(solution.problem, alpha=solution.alpha).lower == solution.certificate.lower)
    True
    """

    index: Integers


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what is infinite bounds nothing
def solve_out_of_core(
    X: Any,
    y: ArrayLike,
    norm: Norm | HasValueAndDual | str = "l2",
    *,
    groups: ArrayLike | None = None,
    intercept: bool = False,
    tol: float = 1e-6,
    rows_per_block: int = 10_000,
    max_seconds: float | None = None,
    on_progress: OnProgress = no_report,
) -> OutOfCoreSolution:
    r"""Solve the hard margin of a linear model on inputs that are never in memory as a whole.

    .. math:: \min_{w, b} \; \Omega(w) \quad \text{subject to}
        \quad y_n (\langle w, x_n \rangle + b) \ge 1 \text{ for all } n

    What `max_margin` formulates and `solve` solves, for a memory map or a Dask array.

    Parameters
    ----------
    X : numpy.memmap or dask.array.Array of shape (N, D)
        Inputs. One chunk of rows of a Dask array is in memory at a time.
    y : array_like of shape (N,)
        Labels, which are in memory: -1 and +1, or integers 0 .. K - 1 for K > 2 classes.
    norm, groups, intercept
        As in `max_margin`.
    tol : float
        Relative gap between the certified bounds at which to stop.
    rows_per_block : int
        Rows that are read at once of a memory map, 8 D bytes each.
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
    ValueError
        Shapes that do not fit or are unknown, labels other than those above, NaN.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from implicit_bias import solve_out_of_core
    >>> X = da.from_array(np.array([[2.0], [-1.0], [3.0], [-4.0]]), chunks=(2, 1))
    >>> solution = solve_out_of_core(X, np.array([1.0, -1.0, 1.0, -1.0]))
    >>> print(solution.status.label, solution.coef.round(6))
    optimal [[1.]]
    """
    began = time.perf_counter()
    validation.check_number(tol, "tol", "(0, 1)")
    validation.check_count(rows_per_block, "rows_per_block")
    check_report(on_progress)
    deadline = Deadline.asked(max_seconds)
    shape = np.shape(X)
    if len(shape) != 2 or np.isnan(shape[0]):
        raise ValueError(
            f"X must have two dimensions of known size, got shape {shape}: reshape it, or call "
            "compute_chunk_sizes() of a Dask array first"
        )
    labels, classes = validation.as_class_labels(y, shape[0])
    edges = np.append(np.arange(0, len(labels), rows_per_block), len(labels))
    if hasattr(X, "dask"):
        # No chunk is read twice. Filters of Dask leave empty ones, whose edges coincide.
        edges = np.unique(np.cumsum([0, *X.chunks[0]]))

    formulate = partial(max_margin, norm=norm, groups=groups, intercept=intercept, classes=classes)
    run = _BlockRounds(X, labels, edges, formulate, tol, deadline)
    # No row leaves the working set twice: the rounds end by themselves, and after much fewer.
    ended = follow(run, 100, on_progress, deadline=deadline)

    found = run.proof
    seconds = time.perf_counter() - began
    stats = replace(
        found.stats, iterations=ended.iterations, seconds=seconds, history=ended.history
    )
    if ended.status.inseparable:  # the plain cause, if there is one, by the rows of the data
        stats = replace(stats, conflict=find_conflict(found.problem, found.index))
    min_margin = 1.0 if np.isfinite(run.upper) else np.nan
    gap = relative_gap(run.lower, run.upper)
    dual_norms = found.certificate.dual_norms
    return replace(
        found,
        proof=proof_among(found.proof, found.index),
        coef=run.best.coef,
        intercept=run.best.intercept,
        group_norms=found.problem.group_norms(run.best.coef),
        status=ended.status,
        certificate=Certificate(run.lower, run.upper, gap, min_margin, dual_norms),
        stats=stats,
    )


class _BlockRounds(Rounds):
    """The rounds of one solve: the working set is in memory, all else in blocks.

    Attributes
    ----------
    problem : MarginProblem
        The problem on the working set.
    found : Solution
        Its solution.
    proof : OutOfCoreSolution
        The solution of the working set with the best lower bound.
    joining : ndarray of int
        Rows outside of the working set with a margin below 1 by ``found``, the smallest first.
    joining_inputs : ndarray of shape (n, D)
        Their inputs.
    """

    trouble: ClassVar[tuple[type[Exception], ...]] = ()  # what blocks lack is the caller's to mend

    # S is solved to this fraction of the tolerance: a pass over the data takes longer than a few
    # steps.
    inner_share = 0.1

    def __init__(
        self,
        X: Any,
        y: NDArray[Any],
        edges: Integers,
        formulate: Callable[..., MarginProblem],
        tolerance: float,
        deadline: Deadline,
    ) -> None:
        self.policy = Exchange(first_size=2000, growth=1.0)
        # The first working set has as many samples of each class.
        first = evenly_spaced(y, max(1, self.policy.first_size // len(np.unique(y))))
        inputs = validation.as_finite(X[first], "the first working set of X", 2)
        self.problem = formulate(inputs, y[first])
        super().__init__(zero_answer(self.problem), tolerance)
        self.rows = first
        self.X = X
        self.y = y
        self.edges = edges
        self.formulate = formulate
        self.deadline = deadline

    def solve_and_price(self) -> Status | None:
        """Solve on the working set, and pass over all blocks."""
        tol = self.inner_share * self.tolerance
        found = solve(self.problem, tol=tol, max_seconds=self.deadline.left)
        self.found = found
        if found.certificate.lower >= self.lower:
            self.improve_lower(found.certificate.lower, found.alpha)
            self.proof = OutOfCoreSolution(**vars(found), index=self.rows)
        # If these samples are not separable, neither are all. Coefficients without a margin price
        # nothing.
        if not np.isfinite(found.certificate.upper) or found.status is Status.INTERRUPTED:
            return found.status

        # A power of two near the largest coefficient: the division is exact, and the products
        # below neither overflow nor underflow. Unit margin becomes 1 / unit.
        unit = np.ldexp(1.0, int(np.frexp(np.abs(found.coef).max())[1]))
        coef = found.coef / unit
        offsets = found.intercept / unit
        smallest = np.inf  # margin of all samples, less what rounding may have added
        room = self.policy.room(len(self.rows), 0, len(self.y))
        joining = self.rows[:0]
        inputs = self.problem.X[:0]
        margins = np.zeros(0)
        for start, stop in itertools.pairwise(self.edges):
            self.deadline.check()
            X = validation.as_finite(self.X[start:stop], f"X[{start}:{stop}]", 2)
            block = max_margin(X, self.y[start:stop], classes=self.problem.classes)
            enclosure = margin_enclosures(block, coef, offsets)
            smallest = np.minimum(smallest, (enclosure.value - enclosure.radius).min())
            # Of the rows that violate, in this block and in those before, the worst ones stay.
            rows = np.arange(start, stop)
            violates = (enclosure.value < 1.0 / unit) & ~np.isin(rows, self.rows)
            margins = np.concatenate([margins, enclosure.value[violates]])
            worst = np.argsort(margins, kind="stable")[:room]
            margins = margins[worst]
            joining = np.concatenate([joining, rows[violates]])[worst]
            inputs = np.concatenate([inputs, X[violates]])[worst]
        self.joining = joining
        self.joining_inputs = inputs

        # Coefficients over it have at least unit margin on all samples, so that their norm, rounded
        # up, is an upper bound.
        if smallest > 0:
            norm = self.problem.norm.value_bound(coef.reshape(self.problem.norm_shape))
            self.improve_upper(up(norm / smallest), coef / smallest, offsets / smallest)
        return None

    def choose_next(self) -> Status | None:
        """Exchange the working set; a status where nothing is left to exchange."""
        problem = self.problem
        found = self.found
        # Nothing outside violates, and the gap is still too large: the inner solve did not reach
        # its tolerance.
        if len(self.joining) == 0:
            return Status.NUMERICAL_TROUBLE
        margins = problem.margins(problem.decision(found.coef), found.intercept)
        clear = self.policy.clear(margins, problem.totals(found.alpha))
        # A problem needs samples of every class: the nearest one of each stays.
        for label in np.unique(problem.y):
            members = np.flatnonzero(problem.y == label)
            clear[members[np.argmin(margins[members])]] = False
        kept = self.staying(clear)
        inputs = np.concatenate([problem.X[np.isin(self.rows, kept)], self.joining_inputs])
        order = np.argsort(np.concatenate([kept, self.joining]))
        self.exchange(kept, self.joining)  # ascending, as the inputs below
        self.problem = self.formulate(inputs[order], self.y[self.rows])
        return None
