"""Matrices of integers: float64 numbers are integers times powers of two.

A column that is a combination of others up to rounding may still be independent of them, in digits
that float64 computations lose. In integers the difference is exact, and is scaled to size 1 again.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.problem.constraints import Integers

# Bits of the numbers of a float64.
MANTISSA = 53
# Python's integers, in an array of objects.
Whole: TypeAlias = NDArray[np.object_]


def integer_products(left: Array, right: Array, row_exponents: Integers) -> Whole:
    """Return the entrywise products of two factors as integers, each column over a power of two.

    Each row is divided by 2^exponent, with the given exponent of the row.
    """
    # A float64 is a mantissa of 53 bits, an integer, times a power of two.
    mantissa_left, exponent_left = np.frexp(left)
    mantissa_right, exponent_right = np.frexp(right)
    whole_left = np.ldexp(mantissa_left, MANTISSA).astype(np.int64).astype(object)
    whole_right = np.ldexp(mantissa_right, MANTISSA).astype(np.int64).astype(object)
    exponent = exponent_left.astype(np.int64) + exponent_right - row_exponents[:, None]
    is_product = (left != 0) & (right != 0)
    # The power of two of a column is its lowest one, so that all shifts go to the left.
    # A product that is 0 has none: it gets one above all others, so that it is never the lowest.
    above_all = 2**40
    lowest = np.where(is_product, exponent, above_all).min(axis=0, initial=above_all)
    shifts = np.where(is_product, exponent - lowest, 0).astype(object)
    return np.asarray(whole_left * whole_right << shifts)


def as_floats(E: Whole) -> tuple[Array, list[int]]:
    """Return integers (S, m) over 2^bits of each column, entries up to 1, and these bits (m,)."""
    bits = [max(map(int.bit_length, column)) for column in E.T.tolist()]
    powers = np.array([1 << each for each in bits], dtype=object)
    return (E / powers).astype(np.float64), bits


def product(left: Any, right: Whole) -> Whole:
    """Return the product of two matrices of integers."""
    from flint import fmpz_mat

    found = fmpz_mat(np.asarray(left, dtype=object).tolist()) * fmpz_mat(right.tolist())
    return np.array([[int(value) for value in row] for row in found.tolist()], dtype=object)


def rank_of(T: Array, dependent: float = 1e-7) -> int:
    """Rank of columns of norm 1, from the triangle of their pivoted QR decomposition.

    A column that others fit up to the fraction ``dependent`` of its size counts as dependent.
    """
    diagonal = np.abs(np.diag(T))
    if len(diagonal) == 0:
        return 0
    return int(np.count_nonzero(diagonal > dependent * diagonal[0]))


def conditioned(
    E: Whole,
    deadline: Deadline = NEVER,
    *,
    rounds: int = 4,
    fit_bits: int = 60,
    few_bits: int = 10,
    nearly: float = 1e-9,
) -> tuple[Whole, bool]:
    """Return columns that float64 sees as independent, with the same solutions x of x' E = 0.

    A column that the others fit up to rounding is replaced by its exact residual, in integers. If
    that is 0, the column is left out. So is one that is still dependent after the last round: then
    an equation is missing, and what solves the others need not solve x' E = 0.

    Parameters
    ----------
    E : ndarray of Python's integers, shape (S, c)
        Columns.
    deadline : Deadline
        When to give up.
    rounds : int
        How often a column may be replaced.
    fit_bits : int
        Bits of a fit's coefficients.
    few_bits, nearly : int, float
        A coefficient this near to a multiple of 2^-few_bits is rounded to it, so that an exact
        combination leaves exactly 0.

    Returns
    -------
    ndarray of Python's integers, shape (S, m)
    bool
        Whether no equation is missing.

    Raises
    ------
    TimeoutError
        The deadline has passed.
    """
    for _ in range(rounds):
        deadline.check()
        # A pivoted QR decomposition divides the columns into a basis and those that it fits.
        E = E[:, (E != 0).any(axis=0)]
        F, bits = as_floats(E)
        norms = np.linalg.norm(F, axis=0)
        T, pivots = pivoted(F / norms)
        rank = rank_of(T)
        basis = pivots[:rank]
        rest = pivots[rank:]
        if len(rest) == 0:
            return E, True
        fit = scipy.linalg.solve_triangular(T[:rank, :rank], T[:rank, rank:])
        fit = fit * norms[rest] / norms[basis, None]  # of the columns of F
        multiple = np.round(fit * 2**few_bits)
        near = np.abs(fit * 2**few_bits - multiple) < nearly * 2**few_bits
        fit = np.where(near, multiple / 2**few_bits, fit)

        # The fit times 2^fit_bits, in integers.
        mantissa, exponent = np.frexp(fit)
        shift = exponent.astype(np.int64) - MANTISSA + fit_bits
        whole = np.ldexp(mantissa, MANTISSA).astype(np.int64).astype(object)
        whole = whole << np.maximum(shift, 0).astype(object)
        whole = whole >> np.maximum(-shift, 0).astype(object)

        # The residual, given - fitted, replaces the column. F is E over 2^bits: all columns are
        # brought to the largest of these powers of two.
        top = max(bits)
        below = np.array([top - each for each in bits], dtype=object)
        given = E[:, rest] << (below[rest] + fit_bits)
        fitted = product(E[:, basis], whole << below[basis, None])
        E = np.hstack([E[:, basis], given - fitted])
    return E[:, :rank], not (E[:, rank:] != 0).any()


def independent(F: Array, deadline: Deadline = NEVER) -> Array | None:
    """Return columns (S, m) with the span of F (S, c), which float64 sees as independent.

    Entries are in [-1, 1], and 0 or at least 2^-400 in size, if those of F are. Each may be rounded
    once, and each column has a power of two as a factor. None where such columns are not found.

    Raises
    ------
    TimeoutError
        The deadline has passed.
    """
    deadline.check()
    F = of_size_1(F)
    if F.shape[1] == 0 or rank_of(pivoted(F / np.linalg.norm(F, axis=0))[0]) == F.shape[1]:
        return F
    whole_numbers = integer_products(F, np.ones_like(F), np.zeros(len(F), np.int64))
    E, all_of_them = conditioned(whole_numbers, deadline)
    found, _ = as_floats(E)
    if all_of_them and (np.abs(found[E != 0]) >= 2.0**-400).all():
        return found
    return None


def of_size_1(F: Array) -> Array:
    """Return the columns that are not 0, each times a power of two: the largest entry about 1."""
    F = F[:, F.any(axis=0)]
    return np.ldexp(F, -np.frexp(np.abs(F).max(axis=0, initial=0.0))[1])


def without_redundant(F: Array, roundings: int = 64) -> Array:
    """Return the columns of F (S, c), in [-1, 1], without redundant ones.

    A column is redundant if the others fit each of its entries up to ``roundings`` rounding errors.
    Where one that looks dependent is not redundant, all columns are returned.
    """
    F = of_size_1(F)
    if F.shape[1] == 0:
        return F
    norms = np.linalg.norm(F, axis=0)
    T, pivots = pivoted(F / norms)
    rank = rank_of(T)
    basis = np.sort(pivots[:rank])
    rest = pivots[rank:]
    if len(rest) == 0:
        return F
    fit = scipy.linalg.lstsq(F[:, basis], F[:, rest], check_finite=False)[0]
    lacking = np.abs(F[:, rest] - F[:, basis] @ fit)
    size = np.abs(F[:, basis]) @ np.abs(fit)
    if (lacking <= roundings * 2.0**-MANTISSA * np.maximum(size, 1.0)).all():
        return F[:, basis]
    return F


def pivoted(F: Array) -> tuple[Array, Integers]:
    """Return the triangle and the order of columns of a pivoted QR decomposition.

    It is taken of the triangle of a plain one: pivoting on all rows takes several times as long.
    """
    if F.shape[1] <= len(F):
        F = scipy.linalg.qr(F, mode="r", check_finite=False)[0][: F.shape[1]]
    T, pivots = scipy.linalg.qr(F, mode="r", pivoting=True, check_finite=False)
    return T, pivots
