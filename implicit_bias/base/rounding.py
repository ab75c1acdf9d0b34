r"""Numbers with bounds on their rounding errors.

Every bound holds as a real number for the float64 values given, in whatever order a BLAS sums, with
or without fused multiply-add, for up to 2^40 terms: k roundings on the way to a number cost at most
gamma_k = k u / (1 - k u) of it, u = 2^-53. Products of features have theirs in `bounds.products`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import Array

# The unit roundoff of float64.
UNIT = 2.0**-53
# Above all that underflows in a product of scaled factors, below all that matters.
UNDERFLOW = 2.0**-400
# Products below this are rounded to a multiple of 2^-1074.
SMALLEST_NORMAL = 2.0**-1022
LARGEST = sys.float_info.max
# Relative size of what rounds in the computation of an error bound itself.
SAFETY = 1.01


def gamma(n: int) -> float:
    """Bound on the relative error of n roundings in sequence, n u / (1 - n u), rounded up."""
    return n * UNIT / (1.0 - (n + 4) * UNIT) * (1.0 + 8 * UNIT)


def up(value: float) -> float:
    """Return the next larger float64: above the real result of a rounded operation."""
    return math.nextafter(value, math.inf)


def down(value: float) -> float:
    """Return the next smaller float64, but not below 0 for what is at least 0."""
    if value == 0:
        return value
    return math.nextafter(value, -math.inf)


def times_two_to(values: float | Array, exponent: int) -> Array:
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
        rest = math.fsum([*terms, -total])
    except (OverflowError, ValueError):  # infinite less infinite
        return math.inf
    if rest > 0:
        return up(total)
    return total


def row_norms(A: Array) -> Array:
    """Euclidean norms of the rows, shape (n,); their squares may under- or overflow."""
    with np.errstate(over="ignore"):
        squares = np.einsum("nd,nd->n", A, A)
    unsafe = ~((squares > 1e-280) & (squares < 1e280))
    unsafe[unsafe] = A[unsafe].any(axis=1)  # the norm of zeros is right as it is
    norms: Array = np.sqrt(squares)
    if unsafe.any():
        rows = A[unsafe]
        exponents = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1]
        scaled = np.linalg.norm(np.ldexp(rows, -exponents[:, None]), axis=1)
        norms[unsafe] = np.ldexp(scaled, exponents)
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
        largest = max(
            float(np.abs(self.value).max(initial=0.0)),
            float(np.abs(self.radius).max(initial=0.0)),
        )
        exponent = math.frexp(largest)[1] + 1
        value = times_two_to(self.value, -exponent)
        radius = times_two_to(self.radius, -exponent)
        # The smallest ones may lose their last bits.
        lost = times_two_to(value, exponent) != self.value
        lost |= times_two_to(radius, exponent) != self.radius
        return Enclosure(value, radius + SMALLEST_NORMAL * lost), exponent
