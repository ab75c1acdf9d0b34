r"""Proofs that no coefficients separate the data: exact solutions of Gordan's system.

Gordan's theorem: either some zeta and b have positive margins on all rows, or some alpha does

        alpha >= 0,  alpha != 0,  V(alpha) = sum_p alpha_p b_p (x) phi_n(p) = 0

(and sum_p alpha_p b_p = 0, where there is an intercept); never both. A small V proves nothing: then
any separator is merely large. So a proof here is a rational alpha whose V is 0 in exact arithmetic,
or a float64 alpha with a bound on how far from it a real solution is: for the data whose features
are the products of the stored float64 gates and inputs. The norm has no part in it.

Vertex    The solutions of sum 1 are a polytope, and a vertex of it has at most rank + 1 rows. A
          linear program in float64 finds the rows of one: the largest smallest margin of w in a
          box, with orthonormal features q_n that have the span of the features,

                max t   subject to   b_p (x) q_n(p) . w >= t  for all rows p,   |w_j| <= 1.

          Where t = 0 its dual variables are alpha. It is solved on some rows, which those join that
          w violates most. Two of many classes are tried first: a proof by their rows alone is one.
Exactly   On the rows of a vertex V = 0 has one solution up to a factor. It is found in rational
          numbers, by equations that are independent, and all equations are checked in integers.
Overlap   Where that takes long, or rounding hides equations from the linear program, most data have
          a solution in which every row has a part: `overlap` proves that there is one.

======  ===========  =============================================================================
F       (N, c)       features of the samples, gate times input, scaled by powers of two; a column of
                     ones for an intercept
Q       (N, r)       orthonormal columns that span F up to rounding
E       (S, c)       integers: features of some rows' samples, columns times powers of two
labels  (R, J)       b_p of the classes that the rows touch but the last, whose equation is the
                     others' negative sum
======  ===========  =============================================================================
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.rounding import SMALLEST_NORMAL
from implicit_bias.base.validation import Array
from implicit_bias.bounds.integers import (
    LOWEST,
    MANTISSA,
    Whole,
    as_floats,
    integer_products,
    pivoted,
    product,
    rank_of,
)
from implicit_bias.bounds.overlap import find_overlap
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.constraints import Integers

# Entries of F that are formed; with more no proof is sought on these rows.
MOST_ENTRIES = 20_000_000
# Rows of a linear program at first, for each equation.
ROWS_AN_EQUATION = 4
# Up to so many equations, or rows, a vertex is sought first; beyond, an overlap is.
FEW_EQUATIONS = 100
# A linear program whose largest smallest margin is below this has none, as HiGHS sees it.
NO_MARGIN = 1e-7
# A search takes seconds, most of it for linear programs; one that takes longer is given up.
MOST_SECONDS = 30.0
# From more equations than this, if there are more rows still, "auto" seeks no proof.
MOST_EQUATIONS = 3000
# A rational solution of a system of this order^3 times bits takes about so many seconds.
MOST_RATIONAL, RATIONAL_SECONDS = 1.2e10, 5.0
# Rows of a weight, alpha_p ||phi_p||, below this share of the largest are tried after the others.
HEAVY = 1e-6
# Pairs of classes that are tried before all classes together.
MOST_PAIRS = 3


@dataclass(frozen=True, eq=False)
class Proof:
    """No coefficients separate: some alpha >= 0, not 0, has V(alpha) = 0 in exact arithmetic.

    Attributes
    ----------
    rows : ndarray of int, shape (S,)
        Indices of the constraints, among all of the problem, that have a part in it.
    alpha : ndarray of shape (N,) or (N, K)
        Their dual variables, of sum 1, in the problem's shape: rounded.
    exact : tuple of Fraction, or None
        The same, positive, as they are; None where it is only proven that there are some.
    share : float
        Some solution is within this share of alpha in each entry, but for one rounding: below 1,
        and 0 where there are exact ones.
    """

    rows: Integers
    alpha: Array
    exact: tuple[Fraction, ...] | None = None
    share: float = 0.0


def prove_not_separable(
    problem: MarginProblem, alpha: Array | None = None, deadline: Deadline = NEVER
) -> Proof | None:
    """Prove that no coefficients separate the data, by a solution of Gordan's system.

    Parameters
    ----------
    problem : MarginProblem
        The problem, of any C: the proof is about the hard margin.
    alpha : ndarray of shape (N,) or (N, K), optional
        Dual variables of small V. Rows of which they are 0 are left out, and those of the largest
        weight are tried first.
    deadline : Deadline
        When to give up.

    Returns
    -------
    Proof or None
        None where there is no proof by these means, or not in time, which says nothing of the data.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin
    >>> print(prove_not_separable(max_margin(np.array([[1.0], [2.0]]), [1, -1])).alpha)
    [0.66666667 0.33333333]
    """
    try:
        return _proof(problem, alpha, deadline.within(MOST_SECONDS))
    except TimeoutError:
        return None


def nearly_a_proof(problem: MarginProblem, deadline: Deadline = NEVER) -> Array | None:
    """Return dual variables that are a proof but for the last digits of redundant columns.

    Columns that others fit up to rounding add to what is separable as real numbers, with huge
    coefficients. None where something else may separate the data, or in want of time.
    """
    rows = problem.constraints.narrowed()
    search = _Search(problem, rows, np.ones(len(rows)), deadline.within(MOST_SECONDS))
    try:
        found = search.by_overlap(without_redundant=True)
    except TimeoutError:
        return None
    return None if found is None else found.alpha


def takes_too_long(order: int, rows: int) -> bool:
    """Whether a proof by so many rows, whose V has so many entries, takes too long to be sought."""
    return MOST_EQUATIONS < order < rows


def _proof(problem: MarginProblem, alpha: Array | None, deadline: Deadline) -> Proof | None:
    """Return the proof on the rows of alpha.

    Raises
    ------
    TimeoutError
        The deadline has passed, or would pass.
    """
    rows = problem.constraints
    weights = np.ones(len(rows))
    if alpha is not None:
        alpha = np.where(np.isfinite(alpha), alpha, 0.0)
        shares = rows.values(alpha) / max(float(alpha.max()), SMALLEST_NORMAL)
        # A sample without features has no size, but all of a proof.
        norms = problem.feature_norms[rows.samples]
        weights = shares * np.where(norms > 0, norms, 1.0)
    top = float(weights.max(initial=0.0))
    heavy, some = weights > HEAVY * top, weights > 0
    for chosen in [heavy] if (heavy == some).all() else [heavy, some]:
        if chosen.any():
            among = rows.subset(chosen).narrowed()
            search = _Search(problem, among, weights[chosen], deadline)
            found = search.proof(by_any_means=alpha is None)
            if found is not None:
                return found
    return None


@dataclass(frozen=True, eq=False)
class _Search:
    """A search for a proof on some rows of a problem, with label vectors of all classes but one."""

    problem: MarginProblem
    rows: Constraints
    weights: Array
    deadline: Deadline

    def proof(self, *, by_any_means: bool) -> Proof | None:
        """Return a proof: of few equations by a vertex if possible, of more by an overlap.

        A linear program of many equations takes seconds: ``by_any_means`` says whether to spend
        them where the classes do not overlap.
        """
        equations = (self.rows.n_classes - 1) * self.problem.features.n_used
        if min(equations, len(self.rows)) <= FEW_EQUATIONS:
            return self._by_vertex() or self.by_overlap()
        found = self.by_overlap()
        return self._by_vertex() if found is None and by_any_means else found

    def by_overlap(self, *, without_redundant: bool = False) -> Proof | None:
        """Return a proof in which every row may have a part, or every one of two classes.

        With ``without_redundant`` it is one but for the last digits of redundant columns.
        """
        rows = self.rows
        for chosen in [np.ones(len(rows), dtype=bool), *self._pairs()]:
            among, weights = rows.subset(chosen), self.weights[chosen]
            found = find_overlap(
                self.problem, among, weights, self.deadline, without_redundant=without_redundant
            )
            if found is not None:
                index = np.flatnonzero(chosen)[found.rows]
                places, alpha = self._in_problem(index, found.alpha)
                return Proof(places, alpha, share=found.share)
        return None

    def _by_vertex(self) -> Proof | None:
        """Return an exact proof, by two classes' rows if those of some pair have one."""
        rows = self.rows
        system = _System.of(self.problem, rows, self.weights)
        if system is None:
            return None
        for chosen in [*self._pairs(), np.ones(len(rows), dtype=bool)]:
            found = system.solve_among(np.flatnonzero(chosen), self.deadline)
            if found is not None:
                index, exact = found
                rounded = np.array([float(value) for value in exact])
                places, alpha = self._in_problem(index, rounded)
                return Proof(places, alpha, exact)
        return None

    def _pairs(self) -> list[NDArray[np.bool_]]:
        """Rows of a few pairs of classes, those of the largest weight first."""
        rows, n = self.rows, self.rows.n_classes
        if n == 2:
            return []
        shared = np.zeros((n, n))
        np.add.at(shared, (rows.owners, rows.rivals), self.weights)
        both = np.minimum(shared, shared.T)  # neither class conflicts with itself
        pairs = [pair for pair in itertools.combinations(range(n), 2) if both[pair] > 0]
        chosen = sorted(pairs, key=lambda pair: -both[pair])[:MOST_PAIRS]
        return [np.isin(rows.owners, pair) & np.isin(rows.rivals, pair) for pair in chosen]

    def _in_problem(self, index: Integers, values: Array) -> tuple[Integers, Array]:
        """Return places of rows among all of the problem, and dual variables in its shape."""
        rows = self.rows.subset(index)
        return np.searchsorted(_places(self.problem.constraints), _places(rows)), rows.alpha(values)


def _places(rows: Constraints) -> Integers:
    """Return a number for each row that grows with its place among all of the problem."""
    return rows.samples * rows.n_classes + rows.rivals


# Rows of a system, and dual variables of which V is 0.
Combination: TypeAlias = tuple[Integers, tuple[Fraction, ...]]


@dataclass(frozen=True, eq=False)
class _System:
    """V(alpha) = 0 of some rows, in float64 and, row by row, in integers.

    Attributes
    ----------
    rows : Constraints
        The rows, with label vectors of all classes but the last.
    weights : ndarray of shape (R,)
        alpha_p ||phi_p|| of the dual variables that are known; 1 without them.
    gates, inputs : ndarray of shape (n, c)
        Factors of the columns of the samples that have rows: F is their product.
    place : ndarray of int, shape (R,)
        Sample of each row among these.
    sizes : ndarray of int, shape (n,)
        Exponents of the samples' largest features.
    Q : ndarray of shape (n, r)
        Orthonormal columns that span F.
    """

    rows: Constraints
    weights: Array
    gates: Array
    inputs: Array
    place: Integers
    sizes: Integers
    Q: Array

    @classmethod
    def of(cls, problem: MarginProblem, rows: Constraints, weights: Array) -> _System | None:
        """Return that of some rows of a problem; None where there are too many entries."""
        samples, place = np.unique(rows.samples, return_inverse=True)
        features = problem.features
        Z, X = features.sparse_gates[samples], features.X[samples]
        gates, inputs = np.unique(Z.indices[Z.data != 0]), np.flatnonzero(X.any(axis=0))
        if len(samples) * (len(gates) * len(inputs) + 1) > MOST_ENTRIES:
            return None
        dense = Z[:, gates].toarray()
        left = np.repeat(dense, len(inputs), axis=1)  # gate m times input d is column m D + d
        right = np.tile(X[:, inputs], len(gates))
        if problem.intercept:
            ones = np.ones((len(samples), 1))
            left, right = np.hstack([left, ones]), np.hstack([right, ones])
        both = (left != 0) & (right != 0)
        left, right = np.where(both, left, 0.0), np.where(both, right, 0.0)
        used = both.any(axis=0)
        left, right = left[:, used], right[:, used]
        products, exponent = _products(left, right)
        sizes = np.where(products != 0, exponent, LOWEST).max(axis=1, initial=LOWEST)
        sizes = np.where(sizes > LOWEST, sizes, 0)
        Q = _orthonormal(_of_size_1(products, exponent - sizes[:, None]))
        return cls(rows, weights, left, right, place, sizes, Q)

    def solve_among(self, index: Integers, deadline: Deadline) -> Combination | None:
        """Return an exact solution on some of these rows, if rational numbers can be theirs."""
        order = self.rows.subset(index).labels_of_touched().shape[1] * self.Q.shape[1]
        if min(order + 1, len(index)) ** 3 * MANTISSA > MOST_RATIONAL:
            return None
        vertex = self._vertex(index, deadline)
        return None if vertex is None else self._exact(vertex, deadline)

    # --- in float64

    def _vertex(self, index: Integers, deadline: Deadline) -> Integers | None:
        """Rows of a vertex of V = 0, up to rounding; None where w separates the rows."""
        rows, q = self.rows.subset(index), self.Q[self.place[index]]
        labels = rows.labels_of_touched()
        order = labels.shape[1] * q.shape[1]
        count = ROWS_AN_EQUATION * (order + 1)
        chosen = rows.heavy_and_spread(self.weights[index], count)
        while True:
            deadline.check()
            A = _row_products(labels[chosen], q[chosen])
            found = _largest_margin(A, deadline)
            if found is None:
                return None
            w, t, dual = found
            if t < NO_MARGIN:
                return index[chosen[dual > 0]]
            scores = q @ w.reshape(labels.shape[1], -1).T  # (R, J)
            margins = (labels * scores).sum(axis=1)
            margins[chosen] = np.inf
            worst = np.argsort(margins, kind="stable")[: max(len(chosen) // 2, count // 4)]
            joining = worst[margins[worst] < 0.5 * t]
            if len(joining) == 0:
                return None
            chosen = np.union1d(chosen, joining)

    # --- in integers

    def _equations(self, index: Integers) -> Whole:
        """b_p (x) E_p of some rows, (S, J c): equations x' (b (x) E) = 0."""
        at = self.place[index]
        E = integer_products(self.gates[at], self.inputs[at], self.sizes[at])
        labels = self.rows.subset(index).labels_of_touched()
        return _row_products(labels.astype(np.int64).astype(object), E)

    def _exact(self, index: Integers, deadline: Deadline) -> Combination | None:
        """Return the solution on the rows of a vertex, if these have one with one sign."""
        equations = self._equations(index)
        x = _null_vector(equations, deadline)
        if x is None or min(x) < 0 or product([x], equations).any():
            return None
        kept = np.flatnonzero(x)
        sizes = self.sizes[self.place[index[kept]]].tolist()
        # Of features over 2^size.
        exact = [Fraction(x[k]) / Fraction(2) ** size for k, size in zip(kept, sizes, strict=True)]
        total = sum(exact)
        return index[kept], tuple(value / total for value in exact)


# --- linear algebra in float64 ---------------------------------------------------------------


def _products(left: Array, right: Array) -> tuple[Array, Integers]:
    """Products of two factors as numbers of size 1, and exponents: nothing under- or overflows."""
    (a, i), (b, j) = np.frexp(left), np.frexp(right)
    return a * b, i.astype(np.int64) + j


def _of_size_1(values: Array, exponent: Integers) -> Array:
    """Return numbers times powers of two, columns scaled to a largest entry of about 1."""
    largest = np.where(values != 0, exponent, LOWEST).max(axis=0, initial=LOWEST)
    return np.ldexp(values, np.clip(exponent - largest, -2000, 0).astype(np.int32))


def _orthonormal(F: Array) -> Array:
    """Orthonormal columns that span those of F up to `DEPENDENT`, (n, r)."""
    norms = np.linalg.norm(F, axis=0)
    F = F[:, norms > 0] / norms[norms > 0]
    if F.shape[1] == 0:
        return np.zeros((len(F), 0))
    T, pivots = pivoted(F)
    rank = rank_of(T)
    return scipy.linalg.qr(F[:, pivots[:rank]], mode="economic", check_finite=False)[0]


def _row_products(labels: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """b_p (x) q_p of each row, (S, J r)."""
    return (labels[:, :, None] * columns[:, None, :]).reshape(len(labels), -1)


def _largest_margin(A: Array, deadline: Deadline) -> tuple[Array, float, Array] | None:
    """Largest smallest margin of the rows A (S, m) by w in a box: w, t, and dual variables (S,).

    None where HiGHS does not solve the program, or not in time.
    """
    n, m = A.shape
    found = scipy.optimize.linprog(
        np.append(np.zeros(m), -1.0),
        A_ub=sp.csr_array(np.hstack([-A, np.ones((n, 1))])),
        b_ub=np.zeros(n),
        bounds=[(-1.0, 1.0)] * m + [(None, 1.0)],
        method="highs-ds",
        options={"time_limit": deadline.left},
    )
    if found.status != 0:
        return None
    return found.x[:m], float(found.x[m]), -found.ineqlin.marginals


# --- linear algebra in integers --------------------------------------------------------------


def _null_vector(equations: Whole, deadline: Deadline) -> list[int] | None:
    """Integers x (S,), not 0, with x' E = 0 for S - 1 independent columns of E (S, m).

    The last one is positive. None where there are fewer columns, or a solution takes too long.

    Raises
    ------
    TimeoutError
        It would end after the deadline.
    """
    from flint import fmpq_mat, fmpz_mat

    S = len(equations)
    equations = equations[:, (equations != 0).any(axis=0)]
    if S == 1 or equations.shape[1] < S - 1:
        return [1] if equations.size == 0 else None
    F, units = as_floats(equations)
    _, T, pivots = scipy.linalg.qr(F / np.linalg.norm(F, axis=0), mode="economic", pivoting=True)
    operations = S**3 * max(units)
    if not abs(T[S - 2, S - 2]) > 0 or operations > MOST_RATIONAL:
        return None
    if not deadline.allows(RATIONAL_SECONDS * operations / MOST_RATIONAL):
        raise TimeoutError("a rational solution takes longer than there is time")
    chosen = equations[:, pivots[: S - 1]]
    # Of the transposed system; the last row's x is 1.
    matrix, right = fmpz_mat(chosen[:-1].T.tolist()), fmpz_mat((-chosen[-1:].T).tolist())
    try:
        found = fmpq_mat(matrix).solve(fmpq_mat(right), algorithm="dixon")
    except ZeroDivisionError:
        return None
    numerators, denominator = found.numer_denom()
    return [*(int(row[0]) for row in numerators.tolist()), int(denominator)]
