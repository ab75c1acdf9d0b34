r"""Products of features with bounds on their rounding errors.

plain    |fl(A'B) - A'B| <= gamma_k |A|'|B| with k roundings on the way to each entry. Of |A|'|B|
         only the norms of rows are needed; by Cauchy and Schwarz these cost no product with the
         inputs.
precise  Each factor is split into slices of 21 bits, counted from the largest entry of its
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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias.base.rounding import SAFETY, UNDERFLOW, UNIT, Enclosure, gamma, row_norms
from implicit_bias.base.validation import Array
from implicit_bias.problem.gating import dense

# Samples (or features) summed at once: the error of a plain sum grows with this length and with
# the number of such blocks, and up to here products of slices are exact.
SUMMED_AT_ONCE = 512


def unit_weights(alpha: Array, norms: Array) -> Array:
    """Return alpha times a power of two such that the largest alpha_n norms_n is about 1."""
    # A sample without features counts with the norm 2^-900: where it alone has weight, its alpha
    # stays finite.
    norm_exponents = np.where(norms > 0, np.frexp(norms)[1], -900)
    exponents = np.frexp(alpha)[1] + norm_exponents
    # Where all weights are 0 any power of two does.
    largest = int(exponents[alpha > 0].max(initial=-5000))
    return np.asarray(np.ldexp(alpha, -largest))


# --- in plain float64 ------------------------------------------------------------------------


def dual_vector_norms(
    gates: Array | sp.csr_array,
    X: Array,
    input_norms: Array,
    weights: Array,
    sparse_product: bool,
    roundings: int = 0,
) -> Enclosure:
    """||V_m||, shape (M,): the norms of the rows of V, and what rounding may add to each row.

    ``input_norms`` are those of the samples, (N,). ``sparse_product``: whether the gates are
    multiplied as a sparse matrix. Each of the weights was rounded ``roundings`` times before.
    """
    active = np.flatnonzero(weights)
    V = np.zeros((gates.shape[1], X.shape[1]))
    size = np.zeros(gates.shape[1])  # sum_n |weights_n z_nm| ||x_n||
    if len(active) == 0:
        return Enclosure(size, size)
    step = SUMMED_AT_ONCE
    if sparse_product:
        step = len(active)
    for start in range(0, len(active), step):
        rows = active[start : start + step]
        Z = _some(gates, rows)
        if not sparse_product:
            Z = dense(Z)
        w = weights[rows]
        size += np.asarray(np.abs(Z).T @ (np.abs(w) * input_norms[rows]))
        V += np.asarray(Z.T @ (_some(X, rows) * w[:, None]))
    # Terms of the longest sum, for the k of gamma_k.
    if sparse_product:  # it adds the gates of a column that are not 0, one after the other
        used = sp.csr_array(gates)[active]
        terms = int(np.bincount(used.indices, minlength=1).max(initial=0))
    else:
        terms = min(SUMMED_AT_ONCE, len(active)) + len(active) // SUMMED_AT_ONCE + 1
    norms = row_norms(V)
    rounding = gamma(terms + 2 + roundings) * size + gamma(X.shape[1] + 4) * norms
    return Enclosure(norms, SAFETY * rounding + UNDERFLOW)


def dual_vectors(
    gates: Array | sp.csr_array, X: Array, weights: Array, roundings: int = 0
) -> Enclosure:
    """V (M, D), and what rounding may add to each entry: gamma times |Z|' (|w| |X|).

    Each of the weights was rounded ``roundings`` times before.
    """
    V = np.zeros((gates.shape[1], X.shape[1]))
    size = np.zeros_like(V)
    active = np.flatnonzero(weights)
    for start in range(0, len(active), SUMMED_AT_ONCE):
        rows = active[start : start + SUMMED_AT_ONCE]
        Z = gates[rows]
        inputs = X[rows] * weights[rows, None]
        V += np.asarray(Z.T @ inputs)
        size += np.asarray(np.abs(Z).T @ np.abs(inputs))
    terms = min(SUMMED_AT_ONCE, len(active)) + len(active) // SUMMED_AT_ONCE + 3 + roundings
    return Enclosure(V, SAFETY * gamma(terms) * size + UNDERFLOW * (len(active) > 0))


def score_errors(gates: Array | sp.csr_array, input_norms: Array, coef: Array) -> Array:
    """Bounds, (N,), on the rounding errors of scores f that were computed in float64.

    ``input_norms`` are those of the samples, (N,).
    """
    sparse = sp.issparse(gates)
    # Terms of each sample; products with 0 are exact.
    if sparse:
        terms = np.diff(sp.csr_array(gates).indptr)
    else:
        terms = np.count_nonzero(gates, axis=1)
    # |f| errs by gamma sum_m |z_nm| ||coef_m|| ||x_n|| at most.
    reach = gamma(coef.shape[1] + int(terms.max()) + 3) * row_norms(coef) + UNDERFLOW
    if sparse:
        size = np.asarray(abs(sp.csr_array(gates)) @ reach)
    else:
        # In blocks, as the absolute values are a copy.
        starts = range(0, len(input_norms), 8 * SUMMED_AT_ONCE)
        size = np.concatenate([np.abs(gates[n : n + 8 * SUMMED_AT_ONCE]) @ reach for n in starts])
    return np.asarray(SAFETY * size * input_norms)


# --- in higher precision ---------------------------------------------------------------------


def precise_dual_vectors(
    gates: Array | sp.csr_array, X: Array, weights: Array, most_entries: int = 2**22
) -> Iterator[tuple[slice, Enclosure]]:
    """V (M, D), some of its columns at a time, to about 28 digits of its largest terms.

    At most ``most_entries`` of V are held at a time. The radius is 0 where nothing was rounded.
    """
    active = np.flatnonzero(weights)
    width = max(1, most_entries // gates.shape[1])
    for start in range(0, X.shape[1], width):
        columns = slice(start, start + width)
        V = _Sum((gates.shape[1], X[:1, columns].shape[1]))
        for first in range(0, len(active), SUMMED_AT_ONCE):
            rows = active[first : first + SUMMED_AT_ONCE]
            used, Z = _used_gates(gates[rows])
            inputs = X[rows, columns]
            product, rest = _two_product(weights[rows][:, None], inputs)
            V.add_product(used, _sliced(Z), _sliced(product, rest))
            # Products below 2^-850, or the slices of their last bits, may underflow.
            smallest = 2.0**-850
            lost = (np.abs(product) < smallest) & (weights[rows][:, None] != 0) & (inputs != 0)
            if _smallest_size(product) * _smallest_size(Z) < smallest or lost.any():
                V.error[used] += UNDERFLOW
        yield columns, V.enclosure()


def precise_predictions(
    gates: Array | sp.csr_array, X: Array, coef: Array, rows: NDArray[np.int64]
) -> Enclosure:
    """Scores f of some samples, (rows,), to about 28 digits of the largest terms."""
    values = [np.zeros(0)]
    radii = [np.zeros(0)]
    for first in range(0, len(rows), SUMMED_AT_ONCE):
        block = rows[first : first + SUMMED_AT_ONCE]
        used, Z = _used_gates(gates[block])
        # Rows and then columns of the inputs are brought to one size by powers of two, the columns'
        # against those of coef.
        inputs = X[block]
        sizes = np.frexp(np.abs(inputs).max(axis=1))[1]
        inputs = np.ldexp(inputs, -sizes[:, None])
        exponents = np.frexp(np.abs(inputs).max(axis=0))[1]
        inputs = np.ldexp(inputs, -exponents).T
        coefs = np.ldexp(coef[used], exponents).T
        inner = _Sum((len(block), len(used)))  # <coef_m, x_n>
        for d in range(0, len(inputs), SUMMED_AT_ONCE):
            features = slice(d, d + SUMMED_AT_ONCE)
            inner.add_product(slice(None), _sliced(inputs[features]), _sliced(coefs[features]))
        # f_n = sum_m z_nm (high + low)_nm: the high part in exact products, the low part in plain.
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


def _smallest_size(values: Array) -> float:
    """Smallest absolute value that is not 0; inf where all are."""
    return float(np.abs(values[values != 0]).min(initial=np.inf))


@dataclass(frozen=True, eq=False)
class _Slices:
    """A matrix (k, m) as a sum of slices, each of ``bits`` bits.

    ``top`` (m,) bounds the entries of each column. ``complete``: the slices add up to the matrix.
    """

    # 21 + 21 bits, and 9 of the carries of a sum of 512 products, fit into the 53 of a float64.
    bits: ClassVar[int] = 21
    # Pairs of slices (i, j) with i + j below this are multiplied.
    orders: ClassVar[int] = 5

    parts: list[Array]
    top: Array
    complete: bool


def _sliced(values: Array, low: Array | None = None) -> _Slices:
    """Slice a matrix ``values`` or, where ``low`` is given, the unevaluated sum of both."""
    exponents = np.frexp(np.abs(values).max(axis=0, initial=0.0))[1]
    top = np.where(values.any(axis=0), np.ldexp(1.0, exponents), 0.0)
    parts: list[Array] = []
    rest = values
    while len(parts) < _Slices.orders and (rest.any() or (low is not None and low.any())):
        # Adding and subtracting 1.5 * 2^52 units rounds to a multiple of the unit.
        shift = 1.5 * 2.0**52 * np.ldexp(1.0, exponents - _Slices.bits * (len(parts) + 1) + 1)
        part = (rest + shift) - shift
        parts.append(part)
        rest = rest - part
        if low is not None:
            rest, low = _two_sum(rest, low)
    complete = not rest.any() and (low is None or not low.any())
    return _Slices(parts, top, complete)


class _Sum:
    """A matrix in twice the working precision: high + low, with an error below SAFETY * error."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.high = np.zeros(shape)
        self.low = np.zeros(shape)
        self.error = np.zeros(shape)

    def add_product(self, rows: NDArray[np.int64] | slice, A: _Slices, B: _Slices) -> None:
        """Add A'B to some of the rows; A and B have at most SUMMED_AT_ONCE rows."""
        high = self.high[rows]
        low = self.low[rows]
        error = self.error[rows]
        for i, left in enumerate(A.parts):
            for right in B.parts[: A.orders - i]:
                high, rest = _two_sum(high, left.T @ right)
                low = low + rest
                error = error + UNIT * np.abs(low)
        dropped = len(A.parts) + len(B.parts) > A.orders + 1
        if dropped or not (A.complete and B.complete):
            # Slice i is below 2^(-bits i) of its column's top. The largest products that are left
            # out have the order i + j = orders: 4 pairs of slices, and what lies beyond the
            # last slice of either factor. The factor 16 leaves room for all higher orders.
            scale = SUMMED_AT_ONCE * 16 * 2.0 ** (-A.bits * A.orders)
            error = error + np.outer(A.top, scale * B.top)
        self.high[rows] = high
        self.low[rows] = low
        self.error[rows] = error

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
    a_high = _upper_half(a)
    b_high = _upper_half(b)
    a_low = a - a_high
    b_low = b - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def _upper_half(a: Array) -> Array:
    """Return the upper 26 bits of each number (Veltkamp)."""
    scaled = a * (2.0**27 + 1.0)
    return np.asarray(scaled - (scaled - a))


def _some(A: Array | sp.csr_array, rows: NDArray[np.int64]) -> Array | sp.csr_array:
    """Return some of the rows, in order: no copy of all, which takes longer than small products."""
    if len(rows) == A.shape[0]:
        return A
    return A[rows]
