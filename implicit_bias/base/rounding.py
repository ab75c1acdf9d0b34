r"""Products and sums with bounds on their rounding errors.

Every bound holds as real numbers for the float64 values given, in whatever order a BLAS sums, with
or without fused multiply-add, for up to 2^40 terms.

plain    |fl(A'B) - A'B| <= gamma_k |A|'|B| with k roundings on the way to each entry and
         gamma_k = k u / (1 - k u), u = 2^-53. Of |A|'|B| only the norms of rows are needed; by
         Cauchy and Schwarz these cost no product with the inputs.
precise  Each factor is split into slices of SLICE_BITS bits, counted from the largest entry of its
         column, so that the products of slices are exact in float64 (Ozaki, Ogita, Oishi and Rump
         2012: error-free transformations of matrix multiplication). They are added in twice the
         working precision, and what is dropped is below 2^-92 of the largest terms.

==========  ============  ====================================================================
gates       (N, M)        z_m(x_n), dense or CSR
X           (N, D)        inputs
weights     (N,)          alpha_n y_n
coef        (M, D)        coefficients
V           (M, D)        sum_n weights_n z_nm x_n
f           (N,)          sum_m z_nm <coef_m, x_n>
==========  ============  ====================================================================

Underflow: the caller scales weights and coefficients to about 1, and the sizes of features that
`MarginProblem` accepts leave what underflows below UNDERFLOW, which the bounds include.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.validation import Array

# The unit roundoff of float64.
UNIT = 2.0**-53
# Above all that underflows in a product of scaled factors, below all that matters.
UNDERFLOW = 2.0**-400
# Products below this are rounded to a multiple of 2^-1074.
SMALLEST_NORMAL = 2.0**-1022
# Products of smaller numbers, or the slices of their last bits, may underflow.
TINY = 2.0**-850
LARGEST = sys.float_info.max
# Relative size of what rounds in the computation of an error bound itself.
SAFETY = 1.01
# Samples (or features) summed at once: the error of a plain sum grows with this length and with
# the number of such blocks, and up to here products of slices are exact.
BLOCK = 512
SLICE_BITS = 21
# Pairs of slices (i, j) with i + j below this are multiplied.
ORDERS = 5
# A scale that differs from 1 by less is a solver's own rounding: what it found is graded as it is.
NEAR = 1e-11
# Entries of a precise product held at once.
CHUNK = 2**22


def gamma(n: int) -> float:
    """Bound on the relative error of n roundings in sequence, n u / (1 - n u), rounded up."""
    return n * UNIT / (1.0 - (n + 4) * UNIT) * (1.0 + 8 * UNIT)


def up(value: float) -> float:
    """Return the next larger float64: above the real result of a rounded operation."""
    return math.nextafter(value, math.inf)


def down(value: float) -> float:
    """Return the next smaller float64, but not below 0 for what is at least 0."""
    return value if value == 0 else math.nextafter(value, -math.inf)


def ldexp(values: float | Array, exponent: int) -> Array:
    """Return numbers times 2^exponent, as numpy's function does, which takes five times as long."""
    if -1022 <= exponent <= 1023:
        return np.asarray(values * math.ldexp(1.0, exponent))
    return np.asarray(np.ldexp(values, exponent))


def ldexp_up(value: float | Array, exponent: int) -> Array:
    """Return numbers from 0 on times 2^exponent, rounded up; inf where that overflows."""
    with np.errstate(over="ignore"):
        found = np.ldexp(value, exponent)
    return np.where(np.ldexp(found, -exponent) < value, np.nextafter(found, np.inf), found)


def sum_up(terms: list[float]) -> float:
    """Return the sum of numbers from 0 on, rounded up if at all; inf where that overflows."""
    try:
        total = math.fsum(terms)
        return up(total) if math.fsum([*terms, -total]) > 0 else total
    except (OverflowError, ValueError):  # infinite less infinite
        return math.inf


def unit_weights(alpha: Array, norms: Array) -> Array:
    """Return alpha times a power of two such that the largest alpha_n norms_n is about 1."""
    sizes = np.where(norms > 0, np.frexp(alpha)[1] + np.frexp(norms)[1], np.frexp(alpha)[1] - 900)
    return np.asarray(np.ldexp(alpha, -int(sizes[alpha > 0].max(initial=-5000))))


def row_norms(A: Array) -> Array:
    """Euclidean norms of the rows, shape (n,); their squares may under- or overflow."""
    with np.errstate(over="ignore"):
        squares = np.einsum("nd,nd->n", A, A)
    unsafe = ~((squares > 1e-280) & (squares < 1e280))
    unsafe[unsafe] = A[unsafe].any(axis=1)  # of zeros the root is right
    norms: Array = np.sqrt(squares)
    if unsafe.any():
        rows = A[unsafe]
        exponents = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1]
        norms[unsafe] = np.ldexp(
            np.linalg.norm(np.ldexp(rows, -exponents[:, None]), axis=1), exponents
        )
    return norms


def root_sums(norms: Array, groups: NDArray[np.int64]) -> Array:
    """Root of the sum of squares of each group's norms, shape (G,), whatever their size."""
    unit = np.zeros(int(groups.max()) + 1)
    np.maximum.at(unit, groups, norms)
    shares = norms / np.where(unit > 0, unit, 1.0)[groups]
    # At least the largest one, also where that is infinite and its share is not a number.
    return np.fmax(unit * np.sqrt(np.bincount(groups, weights=np.square(shares))), unit)


@dataclass(frozen=True, eq=False)
class Enclosure:
    """Numbers and how far they may be from the real ones: arrays of one shape."""

    value: Array
    radius: Array

    @property
    def magnitude(self) -> Array:
        """Upper bounds on the absolute values."""
        return np.asarray((np.abs(self.value) + self.radius) * (1.0 + 4 * UNIT))

    def scaled(self) -> tuple[Enclosure, int]:
        """Return them over a power of two, so that none exceeds 1, and its exponent."""
        sizes = [float(np.abs(part).max(initial=0.0)) for part in (self.value, self.radius)]
        exponent = math.frexp(max(sizes))[1] + 1
        value, radius = ldexp(self.value, -exponent), ldexp(self.radius, -exponent)
        # The smallest ones may lose their last bits.
        lost = ldexp(value, exponent) != self.value
        lost |= ldexp(radius, exponent) != self.radius
        return Enclosure(value, radius + SMALLEST_NORMAL * lost), exponent


# --- in plain float64 ------------------------------------------------------------------------


def dual_vector_norms(
    gates: Array | sp.csr_array,
    X: Array,
    sizes: Array,
    weights: Array,
    few: bool,
    roundings: int = 0,
) -> Enclosure:
    """||V_m||, shape (M,): the norms of the rows of V, and what rounding may add to each row.

    ``sizes``: the norms of the inputs, (N,). ``few``: the gates are sparse enough for a sparse
    product. ``roundings``: those that are in the weights already.
    """
    active = np.flatnonzero(weights)
    V = np.zeros((gates.shape[1], X.shape[1]))
    size = np.zeros(gates.shape[1])  # sum_n |weights_n z_nm| ||x_n||
    step = len(active) if few else BLOCK
    for start in range(0, len(active), max(step, 1)):
        rows = active[start : start + step]
        Z = _some(gates, rows) if few else _dense(_some(gates, rows))
        w, inputs = weights[rows], _some(X, rows)
        size += np.asarray(np.abs(Z).T @ (np.abs(w) * sizes[rows]))
        V += np.asarray(Z.T @ (inputs * w[:, None]))
    terms = len(active) if few else min(BLOCK, len(active)) + len(active) // BLOCK + 1
    if few:
        used = sp.csr_array(gates)[active]
        terms = int(np.bincount(used.indices, minlength=1).max(initial=0))
    norms = row_norms(V)
    if len(active) == 0:
        return Enclosure(norms, np.zeros_like(norms))
    rounding = gamma(terms + 2 + roundings) * size + gamma(X.shape[1] + 4) * norms
    return Enclosure(norms, SAFETY * rounding + UNDERFLOW)


def dual_vectors(
    gates: Array | sp.csr_array, X: Array, weights: Array, roundings: int = 0
) -> Enclosure:
    """V (M, D), and what rounding may add to each entry: gamma times |Z|' (|w| |X|).

    ``roundings``: those that are in the weights already.
    """
    V = np.zeros((gates.shape[1], X.shape[1]))
    size = np.zeros_like(V)
    active = np.flatnonzero(weights)
    for start in range(0, len(active), BLOCK):
        rows = active[start : start + BLOCK]
        Z, inputs = gates[rows], X[rows] * weights[rows, None]
        V += np.asarray(Z.T @ inputs)
        size += np.asarray(np.abs(Z).T @ np.abs(inputs))
    terms = min(BLOCK, len(active)) + len(active) // BLOCK + 3 + roundings
    return Enclosure(V, SAFETY * gamma(terms) * size + UNDERFLOW * (len(active) > 0))


def predictions(gates: Array | sp.csr_array, sizes: Array, coef: Array, values: Array) -> Enclosure:
    """F (N,): its values as they were computed in float64, with the bound on their errors.

    ``sizes``: the norms of the inputs, (N,).
    """
    norms = row_norms(coef)
    few = sp.csr_array(gates) if sp.issparse(gates) else None
    # Of each sample; products with 0 are exact.
    terms = np.count_nonzero(gates, axis=1) if few is None else np.diff(few.indptr)
    reach = gamma(coef.shape[1] + int(terms.max()) + 3) * norms + UNDERFLOW
    if few is not None:
        size = np.asarray(abs(few) @ reach)
    else:
        starts = range(0, len(sizes), 8 * BLOCK)  # the absolute values are a copy
        size = np.concatenate([np.abs(gates[n : n + 8 * BLOCK]) @ reach for n in starts])
    return Enclosure(values, SAFETY * size * sizes)


# --- in higher precision ---------------------------------------------------------------------


def precise_dual_vectors(
    gates: Array | sp.csr_array, X: Array, weights: Array
) -> Iterator[tuple[slice, Enclosure]]:
    """V (M, D), some of its columns at a time, to about 28 digits of its largest terms.

    The radius is 0 where nothing was rounded.
    """
    active = np.flatnonzero(weights)
    width = max(1, CHUNK // gates.shape[1])
    for start in range(0, X.shape[1], width):
        columns = slice(start, start + width)
        V = _Sum((gates.shape[1], X[:1, columns].shape[1]))
        for first in range(0, len(active), BLOCK):
            rows = active[first : first + BLOCK]
            used, Z = _used_gates(gates[rows])
            inputs = X[rows, columns]
            product, rest = _two_product(weights[rows][:, None], inputs)
            V.add_product(used, _sliced(Z), _sliced(product, rest))
            if _least(product) * _least(Z) < TINY or _any_lost(product, weights[rows], inputs):
                V.error[used] += UNDERFLOW
        yield columns, V.enclosure()


def precise_predictions(
    gates: Array | sp.csr_array, X: Array, coef: Array, rows: NDArray[np.int64]
) -> Enclosure:
    """F (rows,) to about 28 digits of the largest terms."""
    values, radii = [np.zeros(0)], [np.zeros(0)]
    for first in range(0, len(rows), BLOCK):
        block = rows[first : first + BLOCK]
        used, Z = _used_gates(gates[block])
        inputs = X[block]
        # Rows and then columns are brought to one size by powers of two, the columns' against
        # those of coef.
        sizes = np.frexp(np.abs(inputs).max(axis=1))[1]
        inputs = np.ldexp(inputs, -sizes[:, None])
        exponents = np.frexp(np.abs(inputs).max(axis=0))[1]
        inputs, coefs = np.ldexp(inputs, -exponents).T, np.ldexp(coef[used], exponents).T
        inner = _Sum((len(block), len(used)))  # <coef_m, x_n>
        for d in range(0, len(inputs), BLOCK):
            features = slice(d, d + BLOCK)
            inner.add_product(slice(None), _sliced(inputs[features]), _sliced(coefs[features]))
        product, rest = _two_product(Z, inner.high)
        low = Z * inner.low
        value = np.array([math.fsum(terms) for terms in np.hstack([product, rest, low]).tolist()])
        radius = (np.abs(Z) * inner.error + UNIT * np.abs(low)).sum(axis=1) + UNIT * np.abs(value)
        values.append(np.ldexp(value, sizes))
        radii.append(np.ldexp(SAFETY * radius + UNDERFLOW * row_norms(Z), sizes))
    return Enclosure(np.concatenate(values), np.concatenate(radii))


def _used_gates(Z: Array | sp.csr_array) -> tuple[NDArray[np.int64], Array]:
    """Return the columns of some gates that are not all zero, and these dense."""
    if sp.issparse(Z):
        sparse = sp.csr_array(Z)
        used = np.unique(sparse.indices).astype(np.int64)
        return used, sparse[:, used].toarray()
    used = np.flatnonzero(Z.any(axis=0))
    return used, Z[:, used]


def _least(values: Array) -> float:
    """Smallest absolute value that is not 0; inf where all are."""
    return float(np.abs(values[values != 0]).min(initial=np.inf))


def _any_lost(product: Array, weights: Array, inputs: Array) -> bool:
    """Whether a product of numbers that are not 0 may have underflowed."""
    small = np.abs(product) < TINY
    return bool((small & (weights[:, None] != 0) & (inputs != 0)).any())


@dataclass(frozen=True, eq=False)
class _Slices:
    """A (k, m) as a sum of slices, each exact; ``top`` (m,) bounds the columns' entries."""

    parts: list[Array]
    top: Array
    complete: bool


def _sliced(values: Array, low: Array | None = None) -> _Slices:
    """Slice a matrix; ``low`` is what values lack of an unevaluated sum."""
    rest, low = values, np.zeros(()) if low is None else low
    exponents = np.frexp(np.abs(values).max(axis=0, initial=0.0))[1]
    top = np.where(values.any(axis=0), np.ldexp(1.0, exponents), 0.0)
    parts: list[Array] = []
    while len(parts) < ORDERS and (rest.any() or low.any()):
        # Adding and subtracting 1.5 * 2^52 units rounds to a multiple of the unit.
        shift = 1.5 * 2.0**52 * np.ldexp(1.0, exponents - SLICE_BITS * (len(parts) + 1) + 1)
        parts.append((rest + shift) - shift)
        rest = rest - parts[-1]
        if low.ndim:
            rest, low = _two_sum(rest, low)
    return _Slices(parts, top, not rest.any() and not low.any())


class _Sum:
    """A matrix in twice the working precision: high + low, with an error below SAFETY * error."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.high, self.low, self.error = np.zeros(shape), np.zeros(shape), np.zeros(shape)

    def add_product(self, rows: NDArray[np.int64] | slice, A: _Slices, B: _Slices) -> None:
        """Add A'B to some of the rows; A and B have at most BLOCK rows."""
        high, low, error = self.high[rows], self.low[rows], self.error[rows]
        for i, left in enumerate(A.parts):
            for right in B.parts[: ORDERS - i]:
                high, rest = _two_sum(high, left.T @ right)
                low = low + rest
                error = error + UNIT * np.abs(low)
        dropped = len(A.parts) + len(B.parts) > ORDERS + 1
        if dropped or not (A.complete and B.complete):
            scale = BLOCK * 16 * 2.0 ** (-SLICE_BITS * ORDERS)
            error = error + np.outer(A.top, scale * B.top)
        self.high[rows], self.low[rows], self.error[rows] = high, low, error

    def enclosure(self) -> Enclosure:
        """Return the sum as one float64, and its error."""
        value, rest = _two_sum(self.high, self.low)
        return Enclosure(value, SAFETY * (self.error + np.abs(rest)))


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b as float64 and the rest, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a * b as float64 and the rest, exactly unless it underflows (Dekker)."""
    product = a * b
    a_high, b_high = _upper_half(a), _upper_half(b)
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def _upper_half(a: Array) -> Array:
    scaled = a * (2.0**27 + 1.0)
    return np.asarray(scaled - (scaled - a))


def _some(A: Array | sp.csr_array, rows: NDArray[np.int64]) -> Array | sp.csr_array:
    """Return some of the rows, in order: no copy of all, which takes longer than small products."""
    return A if len(rows) == A.shape[0] else A[rows]


def _dense(A: Array | sp.csr_array) -> Array:
    return sp.csr_array(A).toarray() if sp.issparse(A) else np.asarray(A)
