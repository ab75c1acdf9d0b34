r"""Proofs that no coefficients separate the data: exact solutions of Gordan's system.

Gordan's theorem: either some zeta and b have positive margins on all rows, or some alpha does

        alpha >= 0,  alpha != 0,  V(alpha) = sum_p alpha_p b_p (x) phi_n(p) = 0

(and sum_p alpha_p b_p = 0, where there is an intercept); never both. A small V proves nothing: then
any separator is merely large. So a proof here is a rational alpha whose V is 0 in exact arithmetic,
for the data whose features are the products of the stored float64 gates and inputs. The norm has no
part in it.

Vertex    The solutions of sum 1 are a polytope, and a vertex of it has at most rank + 1 rows. A
          linear program in float64 finds the rows of one: the largest smallest margin of w in a
          box, with orthonormal features q_n that have the span of the features,

                max t   subject to   b_p (x) q_n(p) . w >= t  for all rows p,   |w_j| <= 1.

          Where t = 0 its dual variables are alpha. It is solved on some rows, which those join that
          w violates most. Two of many classes are tried first: a proof by their rows alone is one.
Exactly   On the rows of a vertex V = 0 has one solution up to a factor. It is found in rational
          numbers, by equations that are independent, and all equations are checked in integers.
Hidden    Features that are combinations of others up to rounding, as a table's redundant columns
columns   are, or small beside an offset, are independent ones as real numbers, and invisible in
          float64. Where a vertex fails for that reason, each such column is replaced by what it
          exactly lacks of its fit by the others, in integers, which changes no solution; a linear
          program on more rows then finds a vertex of all equations.

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
from implicit_bias.base.validation import Array
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.constraints import Integers, spread

# Entries of F that are formed; with more no proof is sought on these rows.
MOST_ENTRIES = 20_000_000
# Entries of E that are formed: a second of work.
MOST_INTEGERS = 2_000_000
# A column that others fit to this share of its size is one of them in float64.
DEPENDENT = 1e-7
# Rows of a linear program at first, for each equation.
ROWS_AN_EQUATION = 4
# A linear program whose largest smallest margin is below this has none, as HiGHS sees it.
NO_MARGIN = 1e-7
# A search takes seconds, most of it for linear programs; one that takes longer is given up.
MOST_SECONDS = 30.0
# A rational solution of a system of this order^3 times bits takes about so many seconds.
MOST_RATIONAL, RATIONAL_SECONDS = 1.2e10, 5.0
# Rows of a weight, alpha_p ||phi_p||, below this share of the largest are tried after the others.
HEAVY = 1e-6
# Bits of the coefficients of a fit, and how near to few bits a coefficient is taken for them.
FIT_BITS, FEW_BITS, NEARLY = 60, 10, 1e-9
# So many times a column may be replaced by what its fit lacks.
ROUNDS = 4
# Pairs of classes that are tried before all classes together.
MOST_PAIRS = 3
# Bits of the numbers of a float64.
MANTISSA = 53
# Below the exponent of any number.
LOWEST = -(2**40)


@dataclass(frozen=True, eq=False)
class Proof:
    """No coefficients separate: some alpha >= 0, not 0, has V(alpha) = 0 in exact arithmetic.

    Attributes
    ----------
    rows : ndarray of int, shape (S,)
        Indices of the constraints, among all of the problem, that have a part in it.
    exact : tuple of Fraction
        Their dual variables, positive, of sum 1.
    alpha : ndarray of shape (N,) or (N, K)
        The same, rounded, in the problem's shape.
    """

    rows: Integers
    exact: tuple[Fraction, ...]
    alpha: Array


def prove_not_separable(
    problem: MarginProblem, alpha: Array | None = None, deadline: Deadline = NEVER
) -> Proof | None:
    """Prove that no coefficients separate the data, by a vertex of Gordan's system.

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


def takes_too_long(order: int, rows: int) -> bool:
    """Whether a vertex of so many equations takes more than `RATIONAL_SECONDS` in rationals."""
    return min(order + 1, rows) ** 3 * MANTISSA > MOST_RATIONAL


def _proof(problem: MarginProblem, alpha: Array | None, deadline: Deadline) -> Proof | None:
    """Return the proof on the rows of alpha.

    Raises
    ------
    TimeoutError
        The deadline has passed, or would pass.
    """
    rows = problem.constraints.undecided()
    weights = np.ones(len(rows))
    if alpha is not None:
        weights = rows.values(alpha) * problem.feature_norms[rows.samples]
        # A sample without features has no size, but all of a proof.
        weights = np.where(problem.feature_norms[rows.samples] > 0, weights, rows.values(alpha))
    top = float(weights.max(initial=0.0))
    heavy, some = weights > HEAVY * top, weights > 0
    for chosen in [heavy] if (heavy == some).all() else [heavy, some]:
        kept = np.flatnonzero(chosen)
        if len(kept) == 0:
            continue
        system = _System.of(problem, rows.subset(kept), weights[kept])
        found = None if system is None else system.solve(deadline)
        if found is not None:
            index, values = found
            whole = rows.subset(kept[index])
            shares = np.array([float(value) for value in values])
            places = np.searchsorted(_places(problem.constraints), _places(whole))
            return Proof(places, values, whole.alpha(shares))
    return None


def _places(rows: Constraints) -> Integers:
    """Return a number for each row that grows with its place among all of the problem."""
    return rows.samples * rows.n_classes + rows.rivals


# Python's integers, in an array of objects.
Whole: TypeAlias = NDArray[np.object_]
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
        rows = rows.narrowed()
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
        product, exponent = _products(left, right)
        sizes = np.where(product != 0, exponent, LOWEST).max(axis=1, initial=LOWEST)
        sizes = np.where(sizes > LOWEST, sizes, 0)
        Q = _orthonormal(_of_size_1(product, exponent - sizes[:, None]))
        return cls(rows, weights, left, right, place, sizes, Q)

    def solve(self, deadline: Deadline) -> Combination | None:
        """Return an exact solution, of two classes' rows if those of some pair have one."""
        rows = self.rows
        for i, j in self._pairs():
            among = np.isin(rows.owners, [i, j]) & np.isin(rows.rivals, [i, j])
            index = np.flatnonzero(among)
            found = self._solve_among(index, deadline)
            if found is not None:
                return found
        return self._solve_among(np.arange(len(rows)), deadline)

    def _pairs(self) -> list[tuple[int, int]]:
        """Pairs of classes to try before all, those of the largest weight first."""
        rows, n = self.rows, self.rows.n_classes
        if n == 2:
            return []
        shared = np.zeros((n, n))
        np.add.at(shared, (rows.owners, rows.rivals), self.weights)
        both = np.minimum(shared, shared.T)  # neither class conflicts with itself
        pairs = [pair for pair in itertools.combinations(range(n), 2) if both[pair] > 0]
        return sorted(pairs, key=lambda pair: -both[pair])[:MOST_PAIRS]

    def _solve_among(self, index: Integers, deadline: Deadline) -> Combination | None:
        """Return an exact solution on some of these rows, if rational numbers can be theirs."""
        order = self._labels(index).shape[1] * self.Q.shape[1]
        if takes_too_long(order, len(index)):
            return None
        vertex = self._vertex(index, deadline)
        if vertex is None:
            return None
        found = self._exact(vertex, self._integers(vertex), deadline)
        if found is not None:
            return found
        # Hidden columns may ask for more rows: ever more are taken, in a fixed random order.
        others = np.setdiff1d(index, vertex)
        others = np.random.default_rng(0).permutation(others)
        count = len(vertex)
        while True:
            deadline.check()
            chosen = np.sort(np.append(vertex, others[:count]))
            if len(chosen) * self.gates.shape[1] > MOST_INTEGERS:
                return None
            found = self._with_hidden_columns(chosen, deadline)
            if found is not None or count >= len(others):
                return found
            count *= 2

    # --- in float64

    def _labels(self, index: Integers) -> Array:
        """b_p of some rows, of the classes that these rows touch but one, (S, J)."""
        rows = self.rows
        touched = np.unique(np.append(rows.owners[index], rows.rivals[index]))[:-1]
        own = rows.owners[index, None] == touched
        return own - (rows.rivals[index, None] == touched).astype(np.float64)

    def _vertex(self, index: Integers, deadline: Deadline) -> Integers | None:
        """Rows of a vertex of V = 0, up to rounding; None where w separates the rows."""
        labels, q = self._labels(index), self.Q[self.place[index]]
        order = labels.shape[1] * q.shape[1]
        count = ROWS_AN_EQUATION * (order + 1)
        if len(index) <= count:
            chosen = np.arange(len(index))
        else:
            heaviest = np.argsort(-self.weights[index], kind="stable")[: count // 2]
            classes = self.rows.owners[index]
            chosen = np.union1d(heaviest, spread(classes, count // (2 * len(np.unique(classes)))))
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

    def _integers(self, index: Integers) -> Whole:
        """E of the samples of some rows, over 2^size of each: integers, (S, c)."""
        samples = self.place[index]
        return _integer_products(self.gates[samples], self.inputs[samples], self.sizes[samples])

    def _equations(self, index: Integers, E: Whole) -> Whole:
        """b_p (x) E_p of some rows, (S, J c): equations x' (b (x) E) = 0."""
        signs = self._labels(index).astype(np.int64).astype(object)
        return _row_products(signs, E)

    def _exact(
        self, index: Integers, E: Whole, deadline: Deadline, hidden: Whole | None = None
    ) -> Combination | None:
        """Return the solution on the rows of a vertex, if these have one with one sign.

        ``hidden`` are columns to solve with in the place of E: the same equations, better
        conditioned.
        """
        x = _null_vector(self._equations(index, E if hidden is None else hidden), deadline)
        if x is None or min(x) < 0 or _product([x], self._equations(index, E)).any():
            return None
        kept = np.flatnonzero(x)
        sizes = self.sizes[self.place[index[kept]]].tolist()
        # Of features over 2^size.
        exact = [Fraction(x[k]) / Fraction(2) ** size for k, size in zip(kept, sizes, strict=True)]
        total = sum(exact)
        return index[kept], tuple(value / total for value in exact)

    def _with_hidden_columns(self, index: Integers, deadline: Deadline) -> Combination | None:
        """Return a solution on some of these rows, by a vertex of all their equations."""
        E = self._integers(index)
        conditioned = _conditioned(E)
        A = _row_products(self._labels(index), _as_floats(conditioned)[0])
        if A.shape[1] >= len(index):  # more independent equations than rows
            return None
        found = _largest_margin(A / np.linalg.norm(A, axis=0), deadline)
        if found is None or found[1] >= NO_MARGIN:
            return None
        kept = np.flatnonzero(found[2] > 0)
        return self._exact(index[kept], E[kept], deadline, conditioned[kept])


# --- linear algebra in float64 ---------------------------------------------------------------


def _products(left: Array, right: Array) -> tuple[Array, Integers]:
    """Products of two factors as numbers of size 1, and exponents: nothing under- or overflows."""
    (a, i), (b, j) = np.frexp(left), np.frexp(right)
    return a * b, i.astype(np.int64) + j


def _of_size_1(product: Array, exponent: Integers) -> Array:
    """Return numbers times powers of two, columns scaled to a largest entry of about 1."""
    largest = np.where(product != 0, exponent, LOWEST).max(axis=0, initial=LOWEST)
    return np.ldexp(product, np.clip(exponent - largest, -2000, 0).astype(np.int32))


def _orthonormal(F: Array) -> Array:
    """Orthonormal columns that span those of F up to `DEPENDENT`, (n, r)."""
    norms = np.linalg.norm(F, axis=0)
    F = F[:, norms > 0] / norms[norms > 0]
    if F.shape[1] == 0:
        return np.zeros((len(F), 0))
    R = F if F.shape[1] > len(F) else scipy.linalg.qr(F, mode="r", check_finite=False)[0]
    R = R[: F.shape[1]]
    # Pivots of the small triangle: of all rows the search would take several times as long.
    _, T, pivots = scipy.linalg.qr(R, mode="economic", pivoting=True, check_finite=False)
    rank = _rank(T)
    return scipy.linalg.qr(F[:, pivots[:rank]], mode="economic", check_finite=False)[0]


def _rank(T: Array) -> int:
    """Rank of a triangle whose columns of norm 1 were pivoted."""
    diagonal = np.abs(np.diag(T))
    return int(np.count_nonzero(diagonal > DEPENDENT * diagonal[0])) if len(diagonal) else 0


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


def _integer_products(left: Array, right: Array, sizes: Integers) -> Whole:
    """Products of two factors over 2^size of each row, as integers: columns times powers of two."""
    (a, i), (b, j) = np.frexp(left), np.frexp(right)
    mantissas = [np.ldexp(part, 53).astype(np.int64).astype(object) for part in (a, b)]
    exponent = i.astype(np.int64) + j - sizes[:, None]
    some = (a != 0) & (b != 0)
    lowest = np.where(some, exponent, -LOWEST).min(axis=0, initial=-LOWEST)
    shifts = np.where(some, exponent - lowest, 0).astype(object)
    return np.asarray(mantissas[0] * mantissas[1] << shifts)


def _as_floats(E: Whole) -> tuple[Array, list[int]]:
    """Integers (S, m) over 2^unit of each column, near its largest entry; and the units (m,)."""
    units = [max(map(int.bit_length, column)) for column in E.T.tolist()]
    sizes = np.array([1 << unit for unit in units], dtype=object)
    return (E / sizes).astype(np.float64), units


def _product(left: Any, right: Whole) -> Whole:
    """Return the product of two matrices of integers."""
    from flint import fmpz_mat

    found = fmpz_mat(np.asarray(left, dtype=object).tolist()) * fmpz_mat(right.tolist())
    return np.array([[int(value) for value in row] for row in found.tolist()], dtype=object)


def _conditioned(E: Whole) -> Whole:
    """Columns with the solutions of x' E = 0, independent in float64 as they are in real numbers.

    A column that the others fit up to rounding is replaced by what the fit lacks, exactly; one that
    lacks nothing is left out. What is still dependent after `ROUNDS` rounds is left out, too: that
    its equation holds has to be checked.
    """
    for _ in range(ROUNDS):
        E = E[:, (E != 0).any(axis=0)]
        F, units = _as_floats(E)
        norms = np.linalg.norm(F, axis=0)
        _, T, pivots = scipy.linalg.qr(F / norms, mode="economic", pivoting=True)
        rank = _rank(T)
        basis, rest = pivots[:rank], pivots[rank:]
        if len(rest) == 0:
            break
        fit = scipy.linalg.solve_triangular(T[:rank, :rank], T[:rank, rank:])
        fit = fit * norms[rest] / norms[basis, None]  # of the columns of F
        # F is E over 2^units. All are brought to one power of two, at which the fit is whole.
        few = np.round(fit * 2**FEW_BITS)
        near = np.abs(fit * 2**FEW_BITS - few) < NEARLY * 2**FEW_BITS
        mantissa, exponent = np.frexp(np.where(near, few / 2**FEW_BITS, fit))
        shift = exponent.astype(np.int64) - 53 + FIT_BITS
        whole = np.ldexp(mantissa, 53).astype(np.int64).astype(object)
        left, right = np.maximum(shift, 0).astype(object), np.maximum(-shift, 0).astype(object)
        whole = whole << left >> right
        top = max(units)
        below = np.array([top - unit for unit in units], dtype=object)
        lacking = (E[:, rest] << below[rest] + FIT_BITS) - _product(
            E[:, basis], whole << below[basis, None]
        )
        E = np.hstack([E[:, basis], lacking])
    else:
        E = E[:, :rank]
    return E


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
    F, units = _as_floats(equations)
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
