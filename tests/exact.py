"""Answers graded in exact rational arithmetic, by nothing of what certifies them.

A float64 is an integer times a power of two. An array of them is kept as Python's integers with
one exponent, whose sums and products are exact. The numbers graded are those that a solution
stores, the program that of the stored data.

lower      sum(alpha) / Omega_*(V), and C sum(alpha) / max_n sum_k alpha_nk with a soft margin; 0
           where an intercept's equation is missed. The reported bound may not exceed it.
upper      Omega(zeta) / smallest margin, or Omega(zeta) + C sum_n xi_n with a soft margin. It may
           not exceed the reported bound.
norms      Rounded down (`least`), so that what is called a lie is one: the lower ends of intervals
           that hold roots, powers and singular values.
optimal    The reported bounds are as near to each other as was asked for.
separable  Data are not separable where some alpha >= 0 has V = 0 (Gordan). It is looked for near
           the alpha that is given, among the basic solutions of a linear program, and near what
           the simplex method in integers finds; the equations are solved by elimination without
           fractions, and all of them are checked. They are where coefficients of a linear program,
           refined in rational numbers, have positive margins.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import flint
import numpy as np
import scipy.linalg
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

from implicit_bias import Certificate, MarginProblem, Solution, Status
from implicit_bias.base.validation import Array
from implicit_bias.bounds.gordan import prove_not_separable
from implicit_bias.norms import GroupNorm, MaxOverGroups, Norm, Nuclear, Spectral, SumOverGroups

# Bits of roots, powers and eigenvalues. Two equal eigenvalues are known to half of them.
BITS = 512
# What the division that makes a gap of two bounds may round.
GAP_ROUNDING = Fraction(1, 10**9)
# Rank in integers modulo a prime: of real numbers, but for one in 10^9 matrices.
PRIME = 2**31 - 1
# How often a linear program's solution is refined.
REFINEMENTS = 8
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

    def shaped(self, *shape: int) -> Exact:
        """Return the same numbers in another shape."""
        return Exact(self.integers.reshape(shape), self.exponent)

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
    if not certificate.lower <= max(lower_bound(problem, Exact.of(solution.alpha)), 0):
        lies.append("lower")
    offsets = [Fraction(b) for b in np.atleast_1d(solution.intercept).tolist()]
    least_upper = upper_bound(problem, Exact.of(solution.coef), offsets)
    if not (math.isinf(certificate.upper) or certificate.upper >= least_upper):
        lies.append("upper")
    if solution.status is Status.OPTIMAL and not _is_within(certificate, tol):
        lies.append("gap")
    return lies


def is_inseparable(problem: MarginProblem, alpha: Array) -> bool:
    """Whether a nonnegative combination of samples, near alpha or elsewhere, is exactly 0."""
    if (alpha >= 0).all() and alpha.any() and _is_zero(problem, alpha):
        return True
    table = _Features(problem)
    if any(table.vanishes_near(weights) for weights in table.candidates(table.weights(alpha))):
        return True
    # Where float64 leads to no basis. What comes of it is verified here, like any other.
    proof = prove_not_separable(problem)
    if proof is None:
        return False
    return any(map(table.vanishes_near, table.near(table.weights(proof.alpha))))


def has_optimum(problem: MarginProblem) -> bool:
    """Whether a problem has one: False where samples are proven not to be separable.

    Coefficients that separate them are looked for, to be quick.
    """
    if not problem.hard_margin or _Features(problem).separator_found():
        return True
    return not is_inseparable(problem, np.ones(problem.alpha_shape))


# --- bounds --------------------------------------------------------------------------------------


def lower_bound(problem: MarginProblem, alpha: Exact) -> Fraction | float:
    """Return what dual variables prove, scaled to be feasible; 0 where they prove nothing."""
    weights = _weights(problem, alpha)
    if (alpha.integers < 0).any() or not alpha.integers.any() or weights is None:
        return 0
    if problem.intercept and weights.integers.sum(axis=0).any():
        return 0
    totals = alpha.integers.reshape(problem.n_samples, -1).sum(axis=1)
    dual_norm = least(problem.norm, _dual_vectors(problem, weights), dual=True)
    scales = [1 / dual_norm] if dual_norm else []
    if not problem.hard_margin:
        boxes = zip(map(Fraction, problem.box.tolist()), totals, strict=True)
        scales += [C / _scaled(total, alpha.exponent) for C, total in boxes if total]
    return min(scales, default=math.inf) * _scaled(totals.sum(), alpha.exponent)


def upper_bound(
    problem: MarginProblem, plain: Exact, offsets: list[Fraction], *, best: bool = False
) -> Fraction | float:
    """Return what plain coefficients prove, with a soft margin as they are or at the best scale."""
    coef = plain.shaped(problem.classes or 1, -1, problem.X.shape[1])
    margins, norm = _margins(problem, coef, offsets), least(problem.norm, coef)
    if problem.hard_margin:
        return norm / min(margins) if min(margins) > 0 else math.inf
    # At the best scale some margin becomes 1, or it is 0.
    scales = [Fraction(0), *(1 / margin for margin in margins if margin > 0)]
    boxes = [Fraction(C) for C in problem.box.tolist()]
    return min(
        c * norm + sum(C * max(Fraction(0), 1 - c * q) for C, q in zip(boxes, margins, strict=True))
        for c in (scales if best else [Fraction(1)])
    )


def _margins(problem: MarginProblem, coef: Exact, offsets: list[Fraction]) -> list[Fraction]:
    """Return the smallest margin of each sample, of plain coefficients (K, M', D)."""
    gates, X = Exact.of(problem.features.sparse_gates.toarray()), Exact.of(problem.X)
    scores = []
    for part, offset in zip(coef.integers, offsets, strict=False):
        inner = X.matmul(Exact(part.T, coef.exponent)).times(gates)
        scores.append([_scaled(f, inner.exponent) + offset for f in inner.integers.sum(axis=1)])
    if problem.classes is None:
        return [int(sign) * f for f, sign in zip(scores[0], problem.y, strict=True)]
    return [
        f[own] - max(value for k, value in enumerate(f) if k != own)
        for f, own in zip(zip(*scores, strict=True), problem.owners.tolist(), strict=True)
    ]


def _is_within(certificate: Certificate, tol: float) -> bool:
    lower, upper = certificate.lower, certificate.upper
    if not (0 < lower < math.inf and upper < math.inf):
        return False
    gap = Fraction(upper) - Fraction(lower)
    return gap <= Fraction(tol) * (1 + GAP_ROUNDING) * Fraction(lower)


def _weights(problem: MarginProblem, alpha: Exact) -> Exact | None:
    """Return what V weighs each sample with, (N, K); None where a class is its own rival."""
    if problem.classes is None:
        return alpha.times(Exact.of(problem.y)).shaped(-1, 1)
    own = np.arange(problem.n_samples), problem.owners
    if alpha.integers[own].any():
        return None
    weights = -alpha.integers
    weights[own] = alpha.integers.sum(axis=1)
    return Exact(weights, alpha.exponent)


def _dual_vectors(problem: MarginProblem, weights: Exact) -> Exact:
    """V (K, M', D) of the plain gates."""
    gates, X = Exact.of(problem.features.sparse_gates.toarray()).transposed, Exact.of(problem.X)
    parts = [
        gates.matmul(Exact(column[:, None], weights.exponent).times(X))
        for column in weights.integers.T
    ]
    return Exact(np.stack([part.integers for part in parts]), parts[0].exponent)


def _is_zero(problem: MarginProblem, alpha: Array) -> bool:
    weights = _weights(problem, Exact.of(alpha))
    if weights is None or (problem.intercept and weights.integers.sum(axis=0).any()):
        return False
    return not _dual_vectors(problem, weights).integers.any()


# --- norms ---------------------------------------------------------------------------------------


def least(norm: Norm, A: Exact, *, dual: bool = False) -> Fraction:
    """Return a norm of plain coefficients (K, M', D), or the dual norm, rounded down."""
    if isinstance(norm, GroupNorm):
        K, M, _ = A.integers.shape
        groups = np.tile(norm.groups, (K, 1))
        if norm.apart:
            groups += np.arange(K)[:, None] * norm.n_groups
        values = [
            _least_power(A.integers[groups == g], A.exponent, Fraction(2))
            for g in range(int(groups.max()) + 1)
        ]
        return max(values) if dual else sum(values, Fraction(0))
    if isinstance(norm, SumOverGroups | MaxOverGroups):
        chosen = [norm.groups == g for g in range(int(norm.groups.max()) + 1)]
        values = [
            least(norm.norm, Exact(np.compress(part, A.integers, norm.axis), A.exponent), dual=dual)
            for part in chosen
        ]
        return sum(values, Fraction(0)) if isinstance(norm, SumOverGroups) != dual else max(values)
    if isinstance(norm, Spectral | Nuclear):
        return _least_of_matrix(A, total=isinstance(norm, Nuclear) != dual)
    p: float = norm.exponent  # type: ignore[attr-defined]  # one of entries
    exponent = None if math.isinf(p) else Fraction(p)
    if dual:
        exponent = Fraction(1) if exponent is None else exponent / (exponent - 1) if p > 1 else None
    return _least_power(A.integers, A.exponent, exponent)


def _least_power(values: NDArray[np.object_], scale: int, p: Fraction | None) -> Fraction:
    """Return (sum |v|^p)^(1/p) of v 2^scale, rounded down; p = None is infinity."""
    sizes = [abs(int(v)) for v in values.ravel() if v]
    if not sizes or p is None:
        return _scaled(max(sizes, default=0), scale)
    if p == 1:
        return _scaled(sum(sizes), scale)
    if p == 2:
        return _root(_scaled(sum(v * v for v in sizes), 2 * scale))
    top = max(sizes)
    with flint.ctx.workprec(BITS):
        power = flint.arb(flint.fmpq(p.numerator, p.denominator))
        total = flint.arb(0)
        for v in sizes:
            total += flint.arb(flint.fmpq(v, top)) ** power
        root = _lower_end(total ** (1 / power))
    return _scaled(root * top, scale)


def _least_of_matrix(A: Exact, *, total: bool) -> Fraction:
    """Return the sum of singular values of the matrix K x M'D, or the largest, rounded down."""
    matrix = A.integers.reshape(len(A.integers), -1)
    if len(matrix) > matrix.shape[1]:
        matrix = matrix.T
    gram = flint.fmpz_mat((matrix @ matrix.T).tolist())
    with flint.ctx.workprec(BITS):
        squares = flint.acb_mat(gram).eig(multiple=True)
        # The interval of an eigenvalue that is 0 may begin below 0.
        values = [_root(max(_lower_end(square.real), Fraction(0))) for square in squares]
    return _scaled(sum(values, Fraction(0)) if total else max(values), A.exponent)


def _lower_end(interval: flint.arb) -> Fraction:
    """Return the smallest number of an interval."""
    mantissa, exponent = interval.lower().man_exp()
    return _scaled(int(mantissa), int(exponent))


def _root(square: Fraction) -> Fraction:
    """Return a square root, rounded down."""
    with flint.ctx.workprec(BITS):
        return _lower_end(flint.arb(flint.fmpq(square.numerator, square.denominator)).sqrt())


def _scaled(value: int | Fraction, exponent: int) -> Fraction:
    return Fraction(value) * Fraction(2) ** exponent


# --- proofs that nothing separates --------------------------------------------------------------


def _features(problem: MarginProblem) -> NDArray[np.object_]:
    """Return phi_n, (N, P), with the constant of an intercept, as integers times a power of two."""
    Z, X = Exact.of(problem.features.sparse_gates.toarray()), Exact.of(problem.X)
    whole = (Z.integers[:, :, None] * X.integers[:, None, :]).reshape(problem.n_samples, -1)
    if problem.intercept:
        exponent = Z.exponent + X.exponent
        one = np.full((len(whole), 1), 2**-exponent if exponent < 0 else 1, dtype=object)
        whole = np.hstack([whole * (2**exponent if exponent > 0 else 1), one])
    return whole


class _Features:
    """y_n phi_n as integers: one row a feature, one column a sample, each times a power of two.

    With many classes (e_{y_n} - e_k) (x) phi_n, one column a pair.
    """

    def __init__(self, problem: MarginProblem) -> None:
        whole, y = _features(problem), problem.y.astype(np.int64)
        if problem.classes is None:
            self._pairs: tuple[NDArray[np.int64], ...] = (np.arange(len(y)),)
            whole = whole * y.astype(object)[:, None]
        else:
            n, k = self._pairs = np.nonzero(np.arange(problem.classes) != y[:, None])
            signs = (
                np.eye(problem.classes, dtype=int)[y[n]] - np.eye(problem.classes, dtype=int)[k]
            ).astype(object)
            whole = (signs[:, :, None] * whole[n][:, None, :]).reshape(len(n), -1)
        reduced = [row >> _trailing_zeros(row) for row in whole.T if any(row)]
        rows = {tuple(row): row for row in reduced}
        matrix = np.array(list(rows.values()), dtype=object).reshape(-1, len(whole))
        # Samples by powers of two, which change no sign of alpha.
        self.shifts = np.array([_trailing_zeros(column) for column in matrix.T], dtype=object)
        if len(matrix):
            matrix = matrix >> self.shifts
        self.integers = matrix
        self.rows = _pivots_modulo(matrix)

    def weights(self, alpha: Array) -> Array:
        """Return dual variables as those of the columns."""
        return np.asarray(alpha[self._pairs])

    def separator_found(self) -> bool:
        """Whether a linear program, refined in rational numbers, gives all columns a margin."""
        table, columns, tops = self._floats
        if table.size == 0:
            return False
        exact = [
            [_scaled(v, int(c) - int(top)) for v, c in zip(row, columns, strict=True)]
            for row, top in zip(self.integers[self.rows].tolist(), tops, strict=True)
        ]
        lacking = [Fraction(1)] * table.shape[1]  # 1 less the margins
        for _ in range(REFINEMENTS):
            most = max(lacking)
            found = scipy.optimize.linprog(
                np.ones(2 * len(table)),
                A_ub=np.hstack([-table.T, table.T]),
                b_ub=[-float(v / most) for v in lacking],
                method="highs-ds",
            )
            if found.x is None:
                return False
            step = [most * Fraction(w) for w in (found.x[: len(table)] - found.x[len(table) :])]
            for n in range(len(lacking)):
                lacking[n] -= sum(
                    (row[n] * w for row, w in zip(exact, step, strict=True) if w), Fraction(0)
                )
            if max(lacking) < 1:
                return True
        return False

    def candidates(self, alpha: Array) -> Iterator[list[Fraction]]:
        """Weights, near which a combination may vanish exactly: of the columns as scaled."""
        yield from self.near(alpha)
        yield from self._basic_solutions(*self._floats[:2])

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
    def _floats(self) -> tuple[Array, NDArray[np.int64], Array]:
        """Independent rows in float64, entries at most 1; the exponents of columns and rows."""
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
        return np.array(table).reshape(integers.shape), columns.astype(np.int64), tops

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
        chosen = _pivots_modulo(sub[rows][:, order].T)  # the first columns that span all
        if len(chosen) < len(rows):
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


def _trailing_zeros(values: NDArray[np.object_]) -> int:
    """How often all of some integers can be halved."""
    return min(((int(v) & -int(v)).bit_length() - 1 for v in values if v), default=0)


def _pivots_modulo(matrix: NDArray[np.object_]) -> list[int]:
    """Rows that are independent modulo a prime, the first ones that are."""
    if matrix.size == 0:
        return []
    # In the echelon form of the transposed matrix they are the columns that begin a row.
    columns = flint.nmod_mat(*matrix.T.shape, (matrix.T % PRIME).ravel().tolist(), PRIME)
    reduced, rank = columns.rref()
    pivots: list[int] = []
    for i in range(len(matrix)):
        if len(pivots) < rank and reduced[len(pivots), i] != 0:
            pivots.append(i)
    return pivots


def _solve(A: list[list[int]], right: list[int]) -> tuple[list[int], int] | None:
    """Solve A x = right: x times a common denominator, and this denominator, which is positive."""
    try:
        numerators, denominator = (
            flint.fmpz_mat(A).solve(flint.fmpz_mat([[value] for value in right])).numer_denom()
        )
    except ZeroDivisionError:
        return None
    return [int(value) for value in numerators.entries()], int(denominator)
