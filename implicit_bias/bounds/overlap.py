r"""Proofs that no coefficients separate the data, by an approximate solution of Gordan's system.

Where the classes overlap, Gordan's system has a solution that is positive on every row. It need not
be known exactly. Let a_p = b_p (x) phi_n(p), alpha > 0, W = diag(alpha) A, and P the
orthogonal projection onto the columns of W. Then

        W' (1 - P 1) = 0,        so that    alpha_p (1 - (P 1)_p)    solves Gordan's system

if ||P 1|| < 1: then no entry is negative, and each is alpha_p up to this fraction of it. So a proof
is an alpha and a bound on one norm, which float64 gives safely, whatever the number of rows.

Centre    ||P 1|| is the Newton decrement of the barrier - sum_p log s_p of the polytope

                { w : s_p = h_p + <a_p, w> > 0 },            alpha_p = 1 / s_p,

          at w. If the classes overlap, and only then, the polytope is bounded: it has an analytic
          centre, where the decrement is 0, and Newton's method converges to it from any h > 0. If
          something separates the rows, Newton's method diverges to infinity, along a separator.
Bound     For any nonsingular T, with Q = W T near to orthonormal, ||P 1||^2 is at most ||Q' 1||^2
          over the smallest eigenvalue of Q' Q. T is the inverse of the triangular factor of W, and
          all roundings of Q, Q' Q and Q' 1 are counted.
Columns   P depends on the span of the exact columns. A column of gates or inputs that is a
          combination of others up to rounding is replaced by its exact residual, in integers, and
          left out where that is 0 (`integers.conditioned`).

======  ======  ==================================================================================
F       (n, c)  features of the rows' samples, over powers of two
A       (R, m)  rows a_p', over the same powers, columns in [-1, 1]
W       (S, m)  diag(alpha) A of the rows that are kept
T       (m, m)  upper triangular
======  ======  ==================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.linalg
import scipy.optimize

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.rounding import SAFETY, UNDERFLOW, gamma
from implicit_bias.base.validation import Array
from implicit_bias.bounds import integers
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.constraints import Integers


@dataclass(frozen=True, eq=False)
class Overlap:
    """Some solution of Gordan's system is within a fraction of alpha, in each entry.

    Attributes
    ----------
    rows : ndarray of int, shape (S,)
        Rows, among those given, that have a part in it.
    alpha : ndarray of shape (S,)
        Positive.
    relative_error : float
        Bound on ||P 1||, below 1.
    """

    rows: Integers
    alpha: Array
    relative_error: float


def find_overlap(
    problem: MarginProblem,
    rows: Constraints,
    weights: Array,
    deadline: Deadline,
    *,
    without_redundant: bool = False,
    most_entries: int = 20_000_000,
    light: float = 1e-10,
) -> Overlap | None:
    """Prove that nothing separates some rows of a problem, if their classes overlap.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    rows : Constraints
        Some of its rows, with label vectors of all classes but the last.
    weights : ndarray of shape (R,)
        Positive: estimates of alpha_p ||phi_p|| to begin with, of any scale.
    deadline : Deadline
        When to give up.
    without_redundant : bool
        Leave out columns that others fit up to rounding. Then the result is no proof, but says that
        any separator needs the last digits of these columns.
    most_entries : int
        Entries of A that are formed: of more rows some are taken.
    light : float
        Rows with a smaller fraction of the largest alpha are left out of the proof.

    Returns
    -------
    Overlap or None
        None where no proof was found, which says nothing of the data.

    Raises
    ------
    TimeoutError
        The deadline has passed.
    """
    columns = rows.n_classes * (problem.features.n_used + 1)
    index = rows.heaviest_and_some_of_each_class(weights, most_entries // columns)
    if len(index) == 0:
        return None
    equations = _equations(problem, rows.subset(index), without_redundant, deadline)
    if equations is None:
        return None
    A, exponents = equations
    some = A.any(axis=1) & (weights[index] > 0)
    # With as many independent columns as rows P is the identity, and ||P 1|| is not below 1.
    if A.shape[1] == 0 or A.shape[1] >= some.sum():
        return None
    index = index[some]
    A = A[some]
    exponents = exponents[some]

    alpha = _centred(A, weights[index] / np.linalg.norm(A, axis=1), deadline)
    if alpha is None:
        return None
    alpha = alpha / alpha.max()
    kept = alpha > light
    W = A[kept] * alpha[kept, None]
    relative_error = projection_bound(W[:, A[kept].any(axis=0)])
    if not relative_error < 1.0:
        return None
    # A has features divided by 2^exponent: alpha for the features themselves is divided by it, too.
    alpha = np.ldexp(alpha[kept], exponents[kept].min() - exponents[kept])
    return Overlap(index[kept], alpha / alpha.sum(), relative_error)


def _equations(
    problem: MarginProblem, rows: Constraints, without_redundant: bool, deadline: Deadline
) -> tuple[Array, Integers] | None:
    """Return A (R, m) of some rows over powers of two, columns in [-1, 1], and exponents (R,)."""
    columns_of: Callable[[Array], Array | None] = partial(integers.independent, deadline=deadline)
    if without_redundant:
        columns_of = integers.without_redundant
    features = _features(problem, rows, columns_of)
    if features is None:
        return None
    F, exponents = features
    place = np.unique(rows.samples, return_inverse=True)[1]
    A = (rows.label_entries_of_touched()[:, :, None] * F[place][:, None, :]).reshape(len(rows), -1)
    return integers.of_size_1(A), exponents[place]


def _features(
    problem: MarginProblem,
    rows: Constraints,
    columns_of: Callable[[Array], Array | None],
) -> tuple[Array, Integers] | None:
    """Return features of the rows' samples over powers of two, (n, c), and the exponents (n,).

    Their columns are the products of those that ``columns_of`` returns for the gates and for the
    inputs. With `integers.independent` these span the products of gates and inputs. An intercept
    adds a column of ones, unless the others span it. None where ``columns_of`` finds none, or where
    entries that are not 0 are not between 2^-200 and 2^200.
    """
    samples = np.unique(rows.samples)
    gates = problem.features.sparse_gates[samples]
    factors = []
    exponents = np.zeros(len(samples), dtype=np.int64)
    # Whether the columns of gates and those of inputs both span a column of ones. Then their
    # products do, and an intercept adds no column. It is asked only if there is an intercept.
    spans_ones = problem.intercept
    # Over powers of two of their rows the entries are 2^-401 at least, products of two of them
    # 2^-802, and W 2^-840: none loses a digit to underflow, which scaling its column would magnify.
    finest = 2.0**-200
    for given in (gates[:, np.unique(gates.indices)].toarray(), problem.features.X[samples]):
        entries = np.abs(given[given != 0])
        if (entries < finest).any() or (entries > 1.0 / finest).any():
            return None
        # A constant column spans ones, whatever its value. As ones it does so exactly, and a fit of
        # few digits finds it.
        same = (given == given[0]).all(axis=0) & (given[0] != 0.0)
        factor = np.where(same, 1.0, given)
        row_exponents = np.frexp(np.abs(factor).max(axis=1, initial=0.0))[1].astype(np.int64)
        scaled = np.ldexp(factor, -row_exponents[:, None])
        found = columns_of(scaled)
        if found is None:
            return None
        if spans_ones:
            ones = np.ldexp(1.0, -row_exponents)[:, None]
            with_ones = columns_of(np.hstack([scaled, ones]))
            spans_ones = with_ones is not None and with_ones.shape[1] == found.shape[1]
        factors.append(found)
        exponents = exponents + row_exponents
    left, right = factors
    product = (left[:, :, None] * right[:, None, :]).reshape(len(samples), -1)
    exponents = np.where(product.any(axis=1), exponents, 0)
    if problem.intercept and not spans_ones:
        product = np.hstack([product, np.ldexp(1.0, -exponents)[:, None]])
    return product, exponents


def _centred(
    A: Array,
    alpha: Array,
    deadline: Deadline,
    *,
    most_steps: int = 60,
    close: float = 0.1,
    inside: float = 1.0 - 1e-9,
) -> Array | None:
    """Return alpha that solves Gordan's system up to rounding, by Newton's method from a given one.

    None where Newton's method diverges to infinity, or takes too many steps.

    Parameters
    ----------
    A : ndarray of shape (R, m)
        Rows.
    alpha : ndarray of shape (R,)
        Where to start: 1 / h of the head.
    deadline : Deadline
        When to give up.
    most_steps : int
        Steps at most.
    close : float
        Newton's method is close to the centre below this decrement.
    inside : float
        A step goes no farther than this fraction of the way to the boundary.

    Raises
    ------
    TimeoutError
        The deadline has passed.
    """
    start = alpha
    for _ in range(most_steps):
        deadline.check()
        W = A * alpha[:, None]
        try:
            factor = scipy.linalg.cho_factor(W.T @ W, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        # Newton's step from s = 1 / alpha multiplies s_p by 1 + (P 1)_p, and one of another length
        # by 1 + length (P 1)_p.
        change = W @ scipy.linalg.cho_solve(factor, W.sum(axis=0), check_finite=False)  # P 1
        decrement = math.sqrt(max(float(change.sum()), 0.0))  # 1' P 1 = ||P 1||^2
        if decrement < close and np.abs(change).max() < close:
            return np.asarray(alpha * (1.0 - change))  # as in the head
        if not change.min() < 0.0:
            return None  # every s_p grows with the length, without end: the step is a separator
        length = _best_length(change, inside / -float(change.min()))
        alpha = alpha / (1.0 + length * change)
        if (alpha < start).all():
            return None  # s_p > h_p on all rows, so that <a_p, w> > 0: w separates them
        # Neither the centre nor the comparison depends on a common factor.
        largest = alpha.max()
        alpha = alpha / largest
        start = start / largest
    return None


def _best_length(change: Array, longest: float) -> float:
    """Return the minimiser of - sum_p log(1 + length change_p), up to the longest one."""

    def slope(length: float) -> float:
        return -float((change / (1.0 + length * change)).sum())

    if slope(longest) <= 0.0:
        return longest
    return float(scipy.optimize.brentq(slope, 0.0, longest, rtol=1e-3))


@np.errstate(over="ignore", invalid="ignore")  # a bound that overflows is inf, and no proof
def projection_bound(W: Array, roundings: int = 4) -> float:
    """Return an upper bound on ||P 1||, P the projection onto the columns of the exact W.

    The W (S, m) that is given has up to so many ``roundings`` in each entry: those of gate, input,
    their product, and that with alpha.
    """
    S, m = W.shape
    triangle = scipy.linalg.qr(W, mode="r", check_finite=False)[0][:m]
    # A triangle without zeros on its diagonal: nonsingular, whatever was rounded.
    T, failed = scipy.linalg.lapack.dtrtri(triangle)
    T = np.triu(T)
    if failed or not np.isfinite(T).all() or not np.diag(T).all():
        return math.inf
    # The bound holds for any nonsingular T, so that T has no error: Q alone is rounded.
    Q = W @ T

    # ||Q - the real product||_F.
    size_of_T = float(np.linalg.norm(T))
    error = gamma(m + roundings) * float(np.linalg.norm(W)) * size_of_T
    error = SAFETY * (error + UNDERFLOW * S * m * (1.0 + size_of_T))

    # Q'Q differs from 1 by the defect, with its roundings and those of Q.
    size = SAFETY * float(np.linalg.norm(Q))
    defect = float(np.linalg.norm(Q.T @ Q - np.eye(m))) + gamma(S + 1) * size**2
    smallest = 1.0 - SAFETY * (defect + 2.0 * error * size + error**2)
    if not smallest > 0.0:
        return math.inf

    # ||Q'1||, with its roundings and those of Q.
    sums = float(np.linalg.norm(Q.sum(axis=0))) + math.sqrt(S) * (gamma(S) * size + error)
    return SAFETY * sums / math.sqrt(smallest)
