"""Bounds in exact rational arithmetic, by nothing of what certifies them.

A float64 is an integer times a power of two. An array of them is kept as Python's integers with
one exponent, whose sums and products are exact. The numbers graded are those that a solution
stores, the program that of the stored data.

lower      sum(alpha) / Omega_*(V), and C sum(alpha) / max_n sum_k alpha_nk with a soft margin; 0
           where an intercept's equation is missed. The reported bound may not exceed it.
upper      Omega(zeta) / smallest margin, or Omega(zeta) + C sum_n xi_n with a soft margin. It may
           not exceed the reported bound.
norms      Rounded down (`least`), so that what is called a lie is one: the lower ends of intervals
           that hold roots, powers and singular values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias import MarginProblem
from implicit_bias.norms import GroupNorm, MaxOverGroups, Norm, Nuclear, Spectral, SumOverGroups

# Bits of roots, powers and eigenvalues.
BITS = 512


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
        for f, own in zip(zip(*scores, strict=True), problem.sample_classes.tolist(), strict=True)
    ]


def _weights(problem: MarginProblem, alpha: Exact) -> Exact | None:
    """Return what V weighs each sample with, (N, K); None where a class is its own rival."""
    if problem.classes is None:
        return alpha.times(Exact.of(problem.y)).shaped(-1, 1)
    own = np.arange(problem.n_samples), problem.sample_classes
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
    values = []
    with flint.ctx.workprec(BITS):
        # Roots of an integer polynomial are isolated whatever their sizes, and with multiplicities.
        for square, multiplicity in gram.charpoly().complex_roots():
            # The interval of an eigenvalue that is 0 may begin below 0.
            root = _root(max(_lower_end(square.real), Fraction(0)))
            values += [root] * multiplicity
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
