r"""Linear margin problems of more samples than fit into memory: blocks of rows, which Dask reads.

The rounds are those of `rounds`. Their working set S is in memory, in one place; the data are not.

1. `solve` solves the problem on S. Its certified lower bound holds for all samples, with alpha 0 on
   the others; and if S is not separable, all samples are not, with the same proof.
2. `price_blocks` passes over all data. Each block gives its smallest margin less its rounding
   errors, and the few rows that violate most. The norm over the smallest margin of all is the
   certified upper bound.
3. The rows that violate most join S, and what is clearly no support vector leaves it.

The bounds are those of `certify` on all samples at once: rigorous for the values as stored.

A block is a chunk of a Dask array, or a part of a memory map's file. A function of each block is
computed by the workers of a ``distributed.Client``, each holding a block at a time; without a
client by the threads of this process.
"""

from __future__ import annotations

import mmap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import validation
from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.extras import check_installed
from implicit_bias.base.rounding import up
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate, Status, margin_enclosures
from implicit_bias.bounds.separability import Conflict, find_conflict
from implicit_bias.bounds.status import relative_gap
from implicit_bias.norms import HasValueAndDual, Norm, as_norm
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.constraints import Integers, evenly_spaced, worst_rows
from implicit_bias.problem.gating import NoGates
from implicit_bias.solvers.base import BoundsAt, OnProgress, Solution, check_report, no_report
from implicit_bias.solvers.iteration import follow, zero_answer
from implicit_bias.solvers.rounds import Exchange, Rounds
from implicit_bias.solvers.solve import solve

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class OutOfCoreSolution:
    """A solved margin problem whose samples are not in memory.

    Attributes
    ----------
    coef : ndarray of shape (1, D) or (K, 1, D)
        Coefficients, scaled to unit margin on all samples; zero where these are not
        separable.
    intercept : float or ndarray of shape (K,)
        The unpenalized intercept; 0 without one.
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
    index: Integers
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
        message = self.status.explain(self.certificate)
        if self.conflict is not None:
            message += f": {self.conflict.cause}"
        return message

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
    most_rows: int = 100_000,
    max_rounds: int = 100,
    max_seconds: float | None = None,
    on_progress: OnProgress = no_report,
) -> OutOfCoreSolution:
    r"""Solve the hard margin of a linear model on data that are never in memory as a whole.

    .. math:: \min_{w, b} \; \Omega(w) \quad \text{subject to}
        \quad y_n (\langle w, x_n \rangle + b) \ge 1 \text{ for all } n

    What `max_margin` formulates and `solve` solves, for a Dask array or a memory map. Blocks of
    rows are read and passed over by Dask: by the workers of a ``distributed.Client`` where there is
    one, else by threads of this process.

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
    policy = Exchange(first_size=2000, growth=1.0)
    blocks = Blocks.of(X, y, rows_a_block)
    # The first working set has all labels that there are.
    first = blocks.sample_evenly(min(policy.first_size, most_rows), deadline)
    count = validation.as_class_labels(first.y, len(first), classes)[1]
    model = Architecture(NoGates(blocks.n_features), norm=as_norm(norm, groups))

    def problem_on(rows: SomeRows) -> MarginProblem:
        labels = rows.y
        if count is not None:
            labels = labels.astype(np.int64)
        return model.problem(rows.X, labels, np.inf, intercept, count)

    run = _BlockRounds(blocks, problem_on, first, policy, most_rows, tol, deadline)
    found = follow(run, max_rounds, on_progress, deadline=deadline)
    working = run.proof.problem
    conflict = None
    if run.lower == np.inf:
        conflict = find_conflict(working, run.proof.rows.index)
    return OutOfCoreSolution(
        coef=run.best.coef,
        intercept=run.best.intercept,
        status=found.status,
        certificate=Certificate(
            run.lower,
            run.upper,
            relative_gap(run.lower, run.upper),
            1.0 if run.upper < np.inf else np.nan,
            run.proof.dual_norms,
        ),
        working=working,
        index=run.proof.rows.index,
        alpha=run.best.alpha,
        support=run.proof.support,
        n_samples=blocks.n_samples,
        history=found.history,
        conflict=conflict,
    )


# --- rounds --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _LowerBound:
    """What attains the best lower bound: rows of the data, their problem, ||V_g|| and support."""

    rows: SomeRows
    problem: MarginProblem
    dual_norms: Array
    support: Integers


class _BlockRounds(Rounds):
    """The rounds of one solve: the working set is in memory, all else in blocks.

    Attributes
    ----------
    working : SomeRows
        The working set.
    problem : MarginProblem
        Its problem.
    proof : _LowerBound
        What attains the best lower bound.
    found : Solution
        Of the last working set.
    violators : SomeRows
        Rows of all data whose margins by it are too small, the smallest first.
    ended : Status or None
        What ends the rounds, where the last one ends them.
    """

    found: Solution
    violators: SomeRows
    trouble: ClassVar[tuple[type[Exception], ...]] = ()  # what blocks lack is the caller's to mend

    # S is solved to this fraction of the tolerance: a pass over the data costs more than a few
    # steps.
    inner_share = 0.1

    def __init__(
        self,
        blocks: Blocks,
        problem_on: Callable[[SomeRows], MarginProblem],
        first: SomeRows,
        policy: Exchange,
        most_rows: int,
        tolerance: float,
        deadline: Deadline,
    ) -> None:
        self.problem = problem_on(first)
        super().__init__(zero_answer(self.problem), tolerance)
        self.blocks = blocks
        self.problem_on = problem_on
        self.working = first
        self.rows = first.index
        self.policy = policy
        self.most_rows = most_rows
        self.deadline = deadline
        self.proof = _LowerBound(first, self.problem, np.zeros(0), first.index[:0])
        self.ended: Status | None = None

    def solve_and_price(self) -> Status | None:
        """Solve on the working set, and pass over all data."""
        self.problem = self.problem_on(self.working)
        inner = self.inner_share * self.tolerance
        # "auto" again: the working set is an ordinary problem in memory, with all the fall-backs.
        found = solve(self.problem, tol=inner, max_seconds=self.deadline.left)
        self.found = found
        if found.certificate.lower > self.lower:
            self.improve_lower(found.certificate.lower, found.alpha)
            support = self.rows[found.support]
            dual_norms = found.certificate.dual_norms
            self.proof = _LowerBound(self.working, self.problem, dual_norms, support)
        # If these samples are not separable, neither are all. Coefficients without a margin price
        # nothing.
        if found.status.inseparable or not np.isfinite(found.certificate.upper):
            self.ended = found.status  # once the bounds of this round are reported
            return None
        self.violators = self._pass(found)
        return None

    def _pass(self, found: Solution) -> SomeRows:
        """Take the upper bound of all data, and return the rows that violate, worst ones first."""
        # A power of two near the largest coefficient: the division is exact, and the products of
        # `price_blocks` neither overflow nor underflow.
        unit = np.ldexp(1.0, int(np.frexp(np.abs(found.coef).max())[1]))
        coef = found.coef / unit
        offsets = found.intercept / unit
        priced = price_blocks(
            self.blocks,
            coef,
            offsets,
            self.problem.classes,
            below=1.0 / unit,
            count=max(self.policy.first_size, len(self.working)),
            deadline=self.deadline,
        )
        # The smallest margin as a real number, rounding subtracted: zeta over it has margin 1 on
        # all samples, and its norm, rounded up, is a bound.
        if priced.at_least > 0:
            norm = self.problem.norm.value_bound(coef.reshape(self.problem.norm_shape))
            upper = up(norm / priced.at_least)
            self.improve_upper(upper, coef / priced.smallest, offsets / priced.smallest)
        return priced.rows.take(np.argsort(priced.margins, kind="stable"))

    def choose_next(self) -> Status | None:
        """Choose the next working set; a status where there is none."""
        if self.ended is not None:
            return self.ended
        problem = self.problem
        found = self.found
        margins = problem.margins(problem.decision(found.coef), found.intercept)
        clear = self.policy.clear(margins, problem.totals(found.alpha))
        if problem.intercept:
            # Without samples of a class nothing bounds its offset: the nearest one of each stays.
            for label in np.unique(self.working.y):
                members = np.flatnonzero(self.working.y == label)
                clear[members[np.argmin(margins[members])]] = False
        kept = self.staying(clear)
        # Rows of the working set may miss margin 1 by the inner tolerance.
        joining = self.violators.take(~np.isin(self.violators.index, self.rows))
        # Nothing outside violates, and the gap is still too large: the inner solve did not reach
        # its tolerance.
        if len(joining) == 0:
            return Status.NUMERICAL_TROUBLE
        room = self.policy.room(len(self.rows), len(kept), self.most_rows)
        if room == 0:
            return Status.MEMORY_LIMIT
        joining = joining.take(np.arange(min(room, len(joining))))
        self.working = self.working.take(np.isin(self.rows, kept)).joined(joining)
        self.exchange(kept, joining.index)
        return None


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
        Only rows of smaller margins are returned.
    count : int
        Most rows that are returned, those of the smallest margins.
    deadline : Deadline
        When to give up.

    Raises
    ------
    ValueError
        Values or labels that no `MarginProblem` takes.
    TimeoutError
        The deadline has passed.
    """
    found = blocks.map(_price_block, coef, offsets, classes, below, count, deadline=deadline)
    margins = np.concatenate([part.margins for part in found])
    first, *others = [part.rows for part in found]
    rows = first.joined(*others)  # in the order of the blocks, as the margins are
    best = worst_rows(margins, np.arange(len(margins)), below, count)
    return Prices(
        min(part.at_least for part in found),
        min(part.smallest for part in found),
        rows.take(best),
        margins[best],
    )


# --- blocks --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SomeRows:
    """Some rows of the data, in memory.

    Attributes
    ----------
    index : ndarray of int, shape (n,)
        Which rows, ascending.
    X : ndarray of shape (n, D)
        Inputs.
    y : ndarray of shape (n,)
        Labels.
    """

    index: Integers
    X: Array
    y: Array

    def __len__(self) -> int:
        """Return n."""
        return len(self.index)

    def take(self, places: NDArray[np.generic]) -> SomeRows:
        """Return those at some places, or where a mask says."""
        return SomeRows(self.index[places], self.X[places], self.y[places])

    def joined(self, *others: SomeRows) -> SomeRows:
        """Return all rows of several, each once, ascending."""
        parts = (self, *others)
        index, first = np.unique(np.concatenate([p.index for p in parts]), return_index=True)
        X = np.concatenate([p.X for p in parts])
        y = np.concatenate([p.y for p in parts])
        return SomeRows(index, X[first], y[first])


@dataclass(frozen=True, eq=False)
class Blocks:
    """Rows of data in blocks that are read when they are needed.

    Attributes
    ----------
    parts : list of (inputs, labels, start)
        Delayed arrays of each block, (n, D) and (n,), and its first row.
    n_samples, n_features : int
        N and D.
    """

    parts: list[tuple[Any, Any, int]]
    n_samples: int
    n_features: int

    @classmethod
    def of(cls, X: Any, y: ArrayLike | Any, rows_a_block: int | None = None) -> Blocks:
        """Cut data into blocks; see `solve_out_of_core`."""
        check_installed("dask", "data in blocks need Dask", "dask")
        import dask.array as da

        if not isinstance(X, da.Array | np.memmap):
            raise TypeError(
                f"X must be a Dask array or a memory map (numpy.memmap), not a "
                f"{type(X).__name__}: data that are in memory go to max_margin and solve"
            )
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions, got shape {X.shape}")
        if isinstance(X, np.memmap):
            X = _lazily_read(X, rows_a_block)
        if np.isnan(X.shape[0]):
            raise ValueError(
                "the chunks of X have unknown sizes: call X.compute_chunk_sizes() first"
            )
        if X.numblocks[1] != 1:
            raise ValueError(
                f"X has {X.numblocks[1]} chunks across its features, but a block needs all "
                "features of its rows: pass X.rechunk({1: -1})"
            )
        if not isinstance(y, da.Array):
            whole = validation.labels_of_any_type(y)
            validation.check_not_text(whole, "y", "number the classes from 0 on")
            y = da.from_array(whole, chunks=-1)
        if y.ndim != 1 or np.isnan(y.shape[0]):
            raise ValueError(
                f"y must have one dimension of known size, got shape {y.shape}: pass y.ravel(), "
                "and call y.compute_chunk_sizes() first"
            )
        n_samples, n_features = X.shape
        if n_samples == 0 or len(y) != n_samples:
            raise ValueError(
                f"X has {n_samples} rows and y has {len(y)} labels: pass one label a row, and at "
                "least one row"
            )
        sizes = X.chunks[0]
        inputs = X.to_delayed().ravel()
        # Cut where the inputs are cut, so that a block has both.
        labels = y.rechunk((sizes,)).to_delayed().ravel()
        starts = np.cumsum(sizes) - sizes
        # Dask's filters leave chunks without rows, which have no smallest margin.
        parts = [(inputs[b], labels[b], int(starts[b])) for b, size in enumerate(sizes) if size > 0]
        return cls(parts, n_samples, n_features)

    def map(
        self, function: Callable[..., Found], *arguments: Any, deadline: Deadline = NEVER
    ) -> list[Found]:
        """Return function(inputs, labels, start, *arguments) of each block, computed by Dask.

        Raises
        ------
        ValueError
            The function's own, with the rows of its block.
        TimeoutError
            The deadline has passed.
        """
        import dask
        from dask.base import get_scheduler

        # The client whose workers compute, if there is one.
        client: Any = getattr(get_scheduler(), "__self__", None)
        if not hasattr(client, "compute"):
            task = dask.delayed(partial(_in_block, function, deadline), pure=False)
            return list(dask.compute(*[task(*part, *arguments) for part in self.parts]))
        from distributed import as_completed

        # Clocks of other machines say nothing here: there the results are waited for instead.
        task = dask.delayed(partial(_in_block, function, NEVER), pure=False)
        # The labels travel with each pass: what only a worker has is lost when it dies.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            futures = client.compute([task(*part, *arguments) for part in self.parts])
        try:
            found = dict(as_completed(futures, with_results=True, timeout=deadline.left))
        finally:
            client.cancel(futures)
        return [found[future] for future in futures]

    def sample_evenly(self, count: int, deadline: Deadline = NEVER) -> SomeRows:
        """Return rows spread over the blocks, about this many; of each block all its labels."""
        each = -(-count // len(self.parts))
        first, *others = self.map(_sample_block, each, deadline=deadline)
        return first.joined(*others)


def _lazily_read(X: np.memmap[Any, Any], rows: int | None, block_bytes: int = 2**25) -> Any:
    """Return the Dask array of a memory map, whose blocks the workers read from its file."""
    import dask
    import dask.array as da

    base: object = X.base  # numpy's types know of arrays only
    if not (isinstance(base, mmap.mmap) and X.flags.c_contiguous and X.filename):
        raise ValueError(
            "X is a part of a memory map, or one in Fortran order, whose place in the file is not "
            "known: pass the whole map in C order, or a Dask array"
        )
    if X.mode == "c":
        raise ValueError(
            "X is a memory map of mode 'c', whose changes are not in its file, which blocks are "
            "read from: map it with mode 'r', or write the changed inputs to a file"
        )
    n, D = X.shape
    if rows is None:
        rows = max(1, block_bytes // (8 * max(D, 1)))
    validation.check_count(rows, "rows_a_block")
    read = dask.delayed(_read, pure=False)
    parts = []
    for start in range(0, n, rows):
        shape = (min(rows, n - start), D)
        offset = X.offset + start * D * X.dtype.itemsize
        part = read(str(X.filename), X.dtype, offset, shape)
        parts.append(da.from_delayed(part, shape, X.dtype))
    return da.concatenate(parts)


# --- what workers compute ------------------------------------------------------------------------


def _read(
    name: str, dtype: np.dtype[Any], offset: int, shape: tuple[int, int]
) -> NDArray[np.generic]:
    """Read a block of a file: unlike a map of it, it leaves memory with the block."""
    values = np.fromfile(name, dtype, count=shape[0] * shape[1], offset=offset)
    if len(values) < shape[0] * shape[1]:
        raise ValueError(f"{name} ends before all rows of X: it was cut after it was mapped")
    return values.reshape(shape)  # C order


def _in_block(
    function: Callable[..., Found],
    deadline: Deadline,
    X: NDArray[Any],
    y: NDArray[Any],
    start: int,
    *arguments: Any,
) -> Found:
    """Call a function of a block, unless the deadline has passed; its errors name the rows."""
    deadline.check()
    try:
        return function(X, y, start, *arguments)
    except ValueError as error:
        raise ValueError(f"in rows {start} to {start + len(X) - 1}: {error}") from error


def _sample_block(X: NDArray[Any], y: NDArray[Any], start: int, count: int) -> SomeRows:
    """Return rows of a block, as many of each label as of the others where it has them."""
    inputs = validation.as_finite(X, "X", 2)
    labels = validation.as_finite(y, "y", 1)
    # Data sorted by label have blocks of one label only: each block gives its share of rows all the
    # same.
    places = evenly_spaced(labels, -(-count // len(np.unique(labels))))
    return SomeRows(start + places, inputs[places], labels[places])


def _price_block(
    X: NDArray[Any],
    y: NDArray[Any],
    start: int,
    coef: Array,
    offsets: float | Array,
    classes: int | None,
    below: float,
    count: int,
) -> Prices:
    """Price a block, where it is read: as a problem of its own, which checks it."""
    one_gate = np.ones((len(X), 1))
    block = MarginProblem(X, y, one_gate, np.zeros(1, np.int64), classes=classes)
    margins = margin_enclosures(block, coef, offsets)
    value = margins.value
    places = worst_rows(value, np.arange(len(value)), below, count)
    rows = SomeRows(start + places, block.X[places], np.asarray(block.y[places], np.float64))
    at_least = float((value - margins.radius).min())
    return Prices(at_least, float(value.min()), rows, value[places])
