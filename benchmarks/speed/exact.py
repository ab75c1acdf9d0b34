"""Answers graded in exact rational arithmetic, by nothing of what certifies them.

A float64 is an integer times a power of two. An array of them is kept as Python's integers with
one exponent, whose sums and products are exact; roots are enclosed by integers of 256 bits. The
numbers graded are those that a solution stores (its rational ones where it says that these attain
the bounds), the program that of the stored data (with a metric: of its plain gates).

lower      sum(alpha) / max_g ||V_g||, and C sum(alpha) / max(alpha) with a soft margin; 0 where an
           intercept's equation is missed. The reported bound may not exceed it.
upper      Omega(zeta) / min_n y_n (f(x_n) + b), or Omega(zeta) + C sum_n xi_n with a soft margin.
           It may not exceed the reported bound.
optimal    The reported bounds are as near to each other as was asked for.
separable  Data are not separable where some alpha >= 0 has V = 0 (Gordan). It is looked for near
           the alpha that is given, among the basic solutions of a linear program, and near what
           the simplex method in integers finds; the equations are solved by elimination without
           fractions, and all of them are checked.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

from implicit_bias.certificate import Certificate, Status
from implicit_bias.problem import MarginProblem
from implicit_bias.separability import gordan_vertex
from implicit_bias.solvers import Solution
from implicit_bias.validation import Array

# Bits of a root's enclosure.
ROOT_BITS = 256
# What the division that makes a gap of two bounds may round.
GAP_ROUNDING = Fraction(1, 10**9)
# Rank in integers modulo a prime: of real numbers, but for one in 10^9 matrices.
PRIME = 2**31 - 1
# Weights below this share of the largest are not tried in a proof.
SHARES = (0.0, 1e-14, 1e-9, 1e-6, 1e-3)


@dataclass(frozen=True, eq=False)
class Exact:
    """Real numbers: integers (of type object) times 2^exponent."""

    integers: NDArray[np.object_]
    exponent: int

    @classmethod
    def of(cls, values: ArrayLike) -> Exact:
        """Take over float64 as they are."""
        mantissa, exponents = np.frexp(np.asarray(values, dtype=np.float64))
        integers = np.ldexp(mantissa, 53).astype(np.int64).astype(object)
        exponents = np.where(mantissa == 0, 2000, exponents)
        common = min(int(exponents.min(initial=2000)), 2000)
        shifts = np.where(mantissa == 0, 0, exponents - common).astype(object)
        return cls(np.asarray(integers << shifts, dtype=object), common - 53)

    @classmethod
    def of_fractions(cls, values: NDArray[np.object_]) -> Exact:
        """Take over fractions whose denominators are powers of two."""
        fractions: list[Fraction] = values.ravel().tolist()
        most = max(value.denominator for value in fractions)
        integers = [value * most for value in fractions]
        if most & (most - 1) or any(value.denominator > 1 for value in integers):
            raise ValueError("denominators must be powers of two")
        whole = np.array([value.numerator for value in integers], dtype=object)
        return cls(whole.reshape(values.shape), 1 - most.bit_length())

    def fraction(self, *index: int) -> Fraction:
        """Return one of them."""
        return _scaled(self.integers[index], self.exponent)

    def times(self, other: Exact) -> Exact:
        """Multiply entry by entry."""
        return Exact(self.integers * other.integers, self.exponent + other.exponent)

    def matmul(self, other: Exact) -> Exact:
        """Multiply two matrices."""
        return Exact(self.integers @ other.integers, self.exponent + other.exponent)

    def column(self) -> Exact:
        """Return a vector as a matrix of one column."""
        return Exact(self.integers[:, None], self.exponent)

    @property
    def transposed(self) -> Exact:
        """The transposed matrix."""
        return Exact(self.integers.T, self.exponent)


def find_lies(solution: Solution, problem: MarginProblem, tol: float) -> list[str]:
    """Name what of a solution is not true: "lower", "upper", "gap", "proof", "unproven".

    "unproven" is a claim that the data are not separable for which no proof was found here, which
    leaves open whether it is true; "proof" one of a soft margin, which always has a solution.
    """
    certificate, lies = solution.certificate, []
    if solution.status is Status.NOT_SEPARABLE:
        if not problem.hard_margin:
            return ["proof"]
        return [] if is_inseparable(problem, solution.alpha) else ["unproven"]
    if math.isinf(certificate.lower) or math.isnan(certificate.lower):
        lies.append("lower")
    elif not _attains_lower(problem, _alpha(solution), certificate.lower):
        lies.append("lower")
    if not math.isinf(certificate.upper) and not _attains_upper(
        problem, *_predictor(solution, problem), certificate.upper
    ):
        lies.append("upper")
    if solution.status is Status.OPTIMAL and not _is_within(certificate, tol):
        lies.append("gap")
    return lies


def is_inseparable(problem: MarginProblem, alpha: Array) -> bool:
    """Whether a nonnegative combination of samples, near alpha or elsewhere, is exactly 0."""
    if (alpha >= 0).all() and alpha.any() and _is_zero(problem, alpha):
        return True
    table = _Features(problem)
    if any(table.vanishes_near(weights) for weights in table.candidates(alpha)):
        return True
    # Where float64 leads to no basis. What comes of it is verified here, like any other.
    vertex = gordan_vertex(problem)
    return vertex is not None and any(map(table.vanishes_near, table.near(vertex)))


def condition(problem: MarginProblem) -> float:
    """Largest over smallest nonzero singular value of the features as given, (N, P).

    How many are not zero is the exact rank.
    """
    Z, X = problem.plain_gates.toarray(), problem.X
    Phi = (Z[:, :, None] * X[:, None, :]).reshape(len(X), -1)
    if problem.intercept:
        Phi = np.hstack([Phi, np.ones((len(X), 1))])
    rank = len(_pivots_modulo(_Features(problem).integers))
    if rank == 0:
        return 1.0
    values = scipy.linalg.svdvals(Phi / np.abs(Phi).max())
    return float(values[0] / values[rank - 1]) if values[rank - 1] > 0 else math.inf


# --- bounds --------------------------------------------------------------------------------------


def _alpha(solution: Solution) -> Exact:
    """Return the dual variables that are said to attain the lower bound."""
    if solution.exact is None:
        return Exact.of(solution.alpha)
    return Exact.of_fractions(solution.exact.alpha)


def _predictor(solution: Solution, problem: MarginProblem) -> tuple[Exact, Fraction]:
    """Return the plain coefficients and the offset that are said to attain the upper bound."""
    if solution.exact is None:
        plain = problem.plain_coef(solution.coef)
        return Exact.of(plain), Fraction(float(solution.intercept))
    return Exact.of_fractions(solution.exact.plain_coef), solution.exact.intercept


def _attains_lower(problem: MarginProblem, exact: Exact, bound: float) -> bool:
    """Whether dual variables prove a lower bound."""
    if bound <= 0:
        return True
    if (exact.integers < 0).any() or not exact.integers.any():
        return False
    y = Exact.of(problem.y)
    if problem.intercept and exact.times(y).integers.sum() != 0:
        return False
    total = _scaled(exact.integers.sum(), exact.exponent)
    squares = _group_squares(problem, _dual_vectors(problem, exact))
    if Fraction(bound) ** 2 * max(squares) > total**2:
        return False
    return problem.hard_margin or (
        Fraction(bound) * _scaled(exact.integers.max(), exact.exponent)
        <= Fraction(problem.C) * total
    )


def _attains_upper(problem: MarginProblem, plain: Exact, intercept: Fraction, bound: float) -> bool:
    """Whether coefficients prove an upper bound."""
    norm = sum(_root(square) for square in _group_squares(problem, plain))
    gates, X, y = Exact.of(problem.plain_gates.toarray()), Exact.of(problem.X), problem.y
    inner = X.matmul(plain.transposed).times(gates)
    f = inner.integers.sum(axis=1)
    margins = [
        int(sign) * (_scaled(value, inner.exponent) + intercept)
        for value, sign in zip(f, y, strict=True)
    ]
    if problem.hard_margin:
        smallest = min(margins)
        return smallest > 0 and norm <= Fraction(bound) * smallest
    losses = sum((max(Fraction(0), 1 - margin) for margin in margins), Fraction(0))
    return norm + Fraction(problem.C) * losses <= Fraction(bound)


def _is_within(certificate: Certificate, tol: float) -> bool:
    lower, upper = certificate.lower, certificate.upper
    if not (0 < lower < math.inf and upper < math.inf):
        return False
    gap = Fraction(upper) - Fraction(lower)
    return gap <= Fraction(tol) * (1 + GAP_ROUNDING) * Fraction(lower)


def _dual_vectors(problem: MarginProblem, alpha: Exact) -> Exact:
    """V (M', D) of the plain gates."""
    weighted = alpha.times(Exact.of(problem.y)).column().times(Exact.of(problem.X))
    return Exact.of(problem.plain_gates.toarray()).transposed.matmul(weighted)


def _is_zero(problem: MarginProblem, alpha: Array) -> bool:
    balance = Exact.of(alpha * problem.y).integers.sum() if problem.intercept else 0
    return bool(balance == 0 and not _dual_vectors(problem, Exact.of(alpha)).integers.any())


def _group_squares(problem: MarginProblem, rows: Exact) -> list[Fraction]:
    """Return ||row_g||^2 of each group."""
    squares = (rows.integers**2).sum(axis=1)
    sums = [0] * problem.n_groups
    for group, square in zip(problem.plain_groups, squares, strict=True):
        sums[group] += square
    return [_scaled(value, 2 * rows.exponent) for value in sums]


def _root(square: Fraction) -> Fraction:
    """Return a square root, rounded down, of an integer times a power of two."""
    if square == 0:
        return square
    shift = max(0, 2 * ROOT_BITS - square.numerator.bit_length()) + square.denominator.bit_length()
    shift += shift % 2
    return Fraction(
        math.isqrt((square.numerator << shift) // square.denominator), 2 ** (shift // 2)
    )


def _scaled(value: int | Fraction, exponent: int) -> Fraction:
    return Fraction(value) * Fraction(2) ** exponent


# --- proofs that nothing separates --------------------------------------------------------------


class _Features:
    """y_n phi_n as integers: one row a feature, one column a sample, each times a power of two."""

    def __init__(self, problem: MarginProblem) -> None:
        Z, X = Exact.of(problem.plain_gates.toarray()), Exact.of(problem.X)
        signs = problem.y.astype(np.int64).astype(object)
        n = len(signs)
        whole = (Z.integers[:, :, None] * X.integers[:, None, :]).reshape(n, -1) * signs[:, None]
        if problem.intercept:
            exponent = Z.exponent + X.exponent
            one = 2**-exponent if exponent < 0 else 1
            whole = whole * (2**exponent if exponent > 0 else 1)
            whole = np.hstack([whole, (one * signs)[:, None]])
        rows = {tuple(row): row for row in (_reduced(row) for row in whole.T) if any(row)}
        matrix = np.array(list(rows.values()), dtype=object).reshape(-1, n)
        # Samples by powers of two, which change no sign of alpha.
        self.shifts = np.array([_trailing_zeros(column) for column in matrix.T], dtype=object)
        if len(matrix):
            matrix = matrix >> self.shifts
        self.integers = matrix
        self.rows = _pivots_modulo(matrix)

    def candidates(self, alpha: Array) -> Iterator[list[Fraction]]:
        """Weights, near which a combination may vanish exactly: of the columns as scaled."""
        yield from self.near(alpha)
        yield from self._basic_solutions(*self._floats)

    def near(self, alpha: Array) -> Iterator[list[Fraction]]:
        """Weights of those samples whose share in alpha is not too small, of several measures."""
        columns = self._floats[1]
        exact = zip(map(Fraction, alpha.tolist()), self.shifts.tolist(), strict=True)
        weights = [_scaled(a, int(shift)) for a, shift in exact]
        sizes = [_scaled(w, -int(c)) for w, c in zip(weights, columns, strict=True)]
        largest = max(sizes)
        for share in SHARES:
            least = Fraction(share) * largest
            yield [w if s > least else Fraction(0) for w, s in zip(weights, sizes, strict=True)]

    @cached_property
    def _floats(self) -> tuple[Array, NDArray[np.int64]]:
        """Independent rows in float64, entries at most 1 in size; the columns' exponents."""
        integers = self.integers[self.rows]
        bits = np.array([[int(v).bit_length() if v else -np.inf for v in row] for row in integers])
        bits = bits.reshape(integers.shape)
        columns = np.zeros(integers.shape[1])
        tops = np.zeros(len(integers))
        for _ in range(3):
            tops = (bits + columns).max(axis=1, initial=-np.inf)
            columns = -(bits - tops[:, None]).max(axis=0, initial=-np.inf)
            columns[np.isinf(columns)] = 0.0
        table = [
            [_ldexp(int(v), int(c - top)) for v, c in zip(row, columns, strict=True)]
            for row, top in zip(integers, tops, strict=True)
        ]
        return np.array(table).reshape(integers.shape), columns.astype(np.int64)

    @staticmethod
    def _basic_solutions(table: Array, columns: NDArray[np.int64]) -> Iterator[list[Fraction]]:
        """Vertices of {a >= 0: table a = 0, sum a = 1}, as weights."""
        if table.size == 0:
            return
        Q = scipy.linalg.qr(table.T, mode="economic", pivoting=True)[0]
        for method in ("highs-ds", "highs-ipm"):
            found = scipy.optimize.linprog(
                -np.random.default_rng(0).random(table.shape[1]),
                A_eq=np.vstack([Q.T, np.ones(len(Q))]),
                b_eq=np.append(np.zeros(Q.shape[1]), 1.0),
                method=method,
            )
            if found.x is None:
                continue
            for least in (0.0, 1e-12, 1e-8):
                yield [
                    _scaled(Fraction(x), int(c)) if x > least else Fraction(0)
                    for x, c in zip(found.x.tolist(), columns, strict=True)
                ]

    def vanishes_near(self, weights: list[Fraction]) -> bool:
        """Whether some nonnegative weights, equal to these on all but a basis, sum to exactly 0."""
        support = [n for n, w in enumerate(weights) if w > 0]
        if not support:
            return False
        sub = self.integers[:, support]
        rows = _pivots_modulo(sub)
        table = [[v * weights[n] for v, n in zip(row, support, strict=True)] for row in sub[rows]]
        tops = [max(map(abs, row)) for row in table]
        floats = [[float(v / top) for v in row] for row, top in zip(table, tops, strict=True)]
        order = np.arange(len(support))
        if floats:
            order = scipy.linalg.qr(np.array(floats), mode="r", pivoting=True)[1]
        chosen = _first_independent(sub[rows][:, order], len(rows))
        if chosen is None:
            return False
        basis = [int(order[k]) for k in chosen]
        free = [k for k in range(len(support)) if k not in set(basis)]
        if not free:
            return False
        common = math.lcm(*(weights[support[k]].denominator for k in free))
        whole = [int(weights[support[k]] * common) for k in free]
        right = [-sum(map(operator.mul, row[free], whole)) for row in sub[rows]]
        solved = _solve([list(row[basis]) for row in sub[rows]], right)
        if solved is None:
            return False
        values, determinant = solved
        found = [0] * len(support)
        for k, value in zip(basis, values, strict=True):
            found[k] = value
        for k, value in zip(free, whole, strict=True):
            found[k] = value * determinant
        if min(found) < 0:
            return False
        return all(sum(map(operator.mul, row, found)) == 0 for row in sub)


def _ldexp(value: int, exponent: int) -> float:
    """Return value * 2^exponent in float64; 0 where it underflows."""
    excess = max(abs(value).bit_length() - 60, 0)
    return math.ldexp(float(value >> excess), max(min(exponent + excess, 900), -2000))


def _reduced(row: NDArray[np.object_]) -> NDArray[np.object_]:
    return row >> _trailing_zeros(row)


def _trailing_zeros(values: NDArray[np.object_]) -> int:
    """How often all of some integers can be halved."""
    return min(((int(v) & -int(v)).bit_length() - 1 for v in values if v), default=0)


def _pivots_modulo(matrix: NDArray[np.object_]) -> list[int]:
    """Rows that are independent modulo a prime, the first ones that are."""
    if matrix.size == 0:
        return []
    rest = (matrix % PRIME).astype(np.int64)
    pivots = []
    for i in range(len(rest)):
        row = rest[i]
        columns = np.flatnonzero(row)
        if len(columns) == 0:
            continue
        pivots.append(i)
        j = columns[0]
        inverse = pow(int(row[j]), -1, PRIME)
        unit = row * inverse % PRIME
        below = rest[i + 1 :]
        factor = below[:, j].copy()
        hit = np.flatnonzero(factor)
        below[hit] = (below[hit] - factor[hit, None] * unit % PRIME) % PRIME
        if len(pivots) == matrix.shape[1]:
            break
    return pivots


def _first_independent(matrix: NDArray[np.object_], rank: int) -> list[int] | None:
    """Return the first columns that span those of a matrix of full row rank."""
    chosen = _pivots_modulo(matrix.T)
    return chosen if len(chosen) == rank else None


def _solve(A: list[list[int]], right: list[int]) -> tuple[list[int], int] | None:
    """Solve A x = right by elimination without fractions (Bareiss): x times |det|, and |det|."""
    rows, last = [[*row, b] for row, b in zip(A, right, strict=True)], 1
    n = len(rows)
    for j in range(n):
        pivot = next((i for i in range(j, n) if rows[i][j]), None)
        if pivot is None:
            return None
        rows[j], rows[pivot] = rows[pivot], rows[j]
        lead, top = rows[j][j], rows[j]
        for i in range(j + 1, n):
            factor = rows[i][j]
            rows[i] = [0] * (j + 1) + [
                (lead * rows[i][k] - factor * top[k]) // last for k in range(j + 1, n + 1)
            ]
        last = lead
    # Back substitution for x * det, which is integral by Cramer's rule.
    x = [0] * n
    for i in reversed(range(n)):
        rest = rows[i][n] * last - sum(rows[i][k] * x[k] for k in range(i + 1, n))
        x[i] = rest // rows[i][i]
    return ([-value for value in x], -last) if last < 0 else (x, last)
