"""Matrices of integers: what float64 numbers are, over powers of two.

Columns that are combinations of others up to rounding are independent ones as real numbers, and
invisible in float64. In integers the difference is found, and brought to size 1 again.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.rounding import SMALLEST_NORMAL
from implicit_bias.base.validation import Array
from implicit_bias.problem.constraints import Integers

# Bits of the numbers of a float64.
MANTISSA = 53
# A column that others fit to this share of its size is one of them in float64.
DEPENDENT = 1e-7
# One that they fit to so many roundings of each of its numbers is redundant.
REDUNDANT = 64 * 2.0**-MANTISSA
# A fit's coefficients have FIT_BITS bits. One within NEARLY of a multiple of 2^-FEW_BITS is rounded
# to it, so that an exact combination leaves exactly 0.
FIT_BITS, FEW_BITS, NEARLY = 60, 10, 1e-9
# So many times a column may be replaced by what its fit lacks.
ROUNDS = 4
# Below the exponent of any number.
LOWEST = -(2**40)
# Python's integers, in an array of objects.
Whole: TypeAlias = NDArray[np.object_]


def integer_products(left: Array, right: Array, sizes: Integers) -> Whole:
    """Products of two factors over 2^size of each row, as integers: columns times powers of two."""
    (a, i), (b, j) = np.frexp(left), np.frexp(right)
    mantissas = [np.ldexp(part, MANTISSA).astype(np.int64).astype(object) for part in (a, b)]
    exponent = i.astype(np.int64) + j - sizes[:, None]
    some = (a != 0) & (b != 0)
    lowest = np.where(some, exponent, -LOWEST).min(axis=0, initial=-LOWEST)
    shifts = np.where(some, exponent - lowest, 0).astype(object)
    return np.asarray(mantissas[0] * mantissas[1] << shifts)


def as_floats(E: Whole) -> tuple[Array, list[int]]:
    """Integers (S, m) over 2^unit of each column, near its largest entry; and the units (m,)."""
    units = [max(map(int.bit_length, column)) for column in E.T.tolist()]
    sizes = np.array([1 << unit for unit in units], dtype=object)
    return (E / sizes).astype(np.float64), units


def product(left: Any, right: Whole) -> Whole:
    """Return the product of two matrices of integers."""
    from flint import fmpz_mat

    found = fmpz_mat(np.asarray(left, dtype=object).tolist()) * fmpz_mat(right.tolist())
    return np.array([[int(value) for value in row] for row in found.tolist()], dtype=object)


def rank_of(T: Array) -> int:
    """Rank of a triangle whose columns of norm 1 were pivoted."""
    diagonal = np.abs(np.diag(T))
    return int(np.count_nonzero(diagonal > DEPENDENT * diagonal[0])) if len(diagonal) else 0


def conditioned(E: Whole, deadline: Deadline = NEVER) -> tuple[Whole, bool]:
    """Return columns with the solutions x of x' E = 0, independent in float64 as they are exactly.

    A column that the others fit up to rounding is replaced by what the fit lacks, exactly; one that
    lacks nothing is left out. What is still dependent after `ROUNDS` rounds is left out, too: then
    they are not all, and have more solutions than E may have.

    Returns
    -------
    ndarray of Python's integers, shape (S, m)
    bool
        Whether they are all.

    Raises
    ------
    TimeoutError
        The deadline has passed.
    """
    for _ in range(ROUNDS):
        deadline.check()
        E = E[:, (E != 0).any(axis=0)]
        F, units = as_floats(E)
        norms = np.linalg.norm(F, axis=0)
        T, pivots = pivoted(F / norms)
        rank = rank_of(T)
        basis, rest = pivots[:rank], pivots[rank:]
        if len(rest) == 0:
            return E, True
        fit = scipy.linalg.solve_triangular(T[:rank, :rank], T[:rank, rank:])
        fit = fit * norms[rest] / norms[basis, None]  # of the columns of F
        # F is E over 2^units. All are brought to one power of two, at which the fit is whole.
        few = np.round(fit * 2**FEW_BITS)
        near = np.abs(fit * 2**FEW_BITS - few) < NEARLY * 2**FEW_BITS
        mantissa, exponent = np.frexp(np.where(near, few / 2**FEW_BITS, fit))
        shift = exponent.astype(np.int64) - MANTISSA + FIT_BITS
        whole = np.ldexp(mantissa, MANTISSA).astype(np.int64).astype(object)
        left, right = np.maximum(shift, 0).astype(object), np.maximum(-shift, 0).astype(object)
        whole = whole << left >> right
        top = max(units)
        below = np.array([top - unit for unit in units], dtype=object)
        lacking = (E[:, rest] << below[rest] + FIT_BITS) - product(
            E[:, basis], whole << below[basis, None]
        )
        E = np.hstack([E[:, basis], lacking])
    return E[:, :rank], not (E[:, rank:] != 0).any()


def independent(F: Array, deadline: Deadline = NEVER) -> Array | None:
    """Columns (S, m) of the span of F (S, c) in [-1, 1], independent in float64 as they are.

    Up to one rounding of each entry, and powers of two. None where they are not found.

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
    found = as_floats(E)[0]
    whole = all_of_them and (np.abs(found[E != 0]) >= SMALLEST_NORMAL).all()
    return found if whole else None


def of_size_1(F: Array) -> Array:
    """Return the columns in [-1, 1] that are not 0, times powers of two: the largest about 1."""
    F = F[:, F.any(axis=0)]
    return np.ldexp(F, -np.frexp(np.abs(F).max(axis=0, initial=0.0))[1])


def leading(F: Array) -> Array:
    """Return the columns of F (S, c), in [-1, 1], but redundant ones; all if it is doubtful."""
    F = of_size_1(F)
    if F.shape[1] == 0:
        return F
    norms = np.linalg.norm(F, axis=0)
    T, pivots = pivoted(F / norms)
    rank = rank_of(T)
    basis, rest = np.sort(pivots[:rank]), pivots[rank:]
    if len(rest) == 0:
        return F
    fit = scipy.linalg.lstsq(F[:, basis], F[:, rest], check_finite=False)[0]
    lacking, size = np.abs(F[:, rest] - F[:, basis] @ fit), np.abs(F[:, basis]) @ np.abs(fit)
    return F[:, basis] if (lacking <= REDUNDANT * np.maximum(size, 1.0)).all() else F


def pivoted(F: Array) -> tuple[Array, Integers]:
    """Return the triangle and the order of columns of a pivoted QR decomposition.

    It is taken of the triangle of a plain one: pivoting on all rows takes several times as long.
    """
    R = F if F.shape[1] > len(F) else scipy.linalg.qr(F, mode="r", check_finite=False)[0]
    T, pivots = scipy.linalg.qr(R[: F.shape[1]], mode="r", pivoting=True, check_finite=False)
    return T, pivots
