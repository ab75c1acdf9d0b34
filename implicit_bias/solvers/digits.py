"""Numbers of many digits: FLINT's arb in numpy's arrays of objects, and its matrices for products.

Radii of arb's balls are not used: they grow, and what is found is certified afterwards. So what is
kept from step to step are midpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.object_]
Number = Any  # flint.arb, which has no type hints

number = flint.arb
# FLINT's precision is one for all threads.
_lock = threading.RLock()


@contextmanager
def precision_of(bits: int) -> Iterator[None]:
    """Compute with this precision, one thread at a time."""
    with _lock, flint.ctx.workprec(bits):
        yield


log = np.frompyfunc(flint.arb.log, 1, 1)
exp = np.frompyfunc(flint.arb.exp, 1, 1)
mid = np.frompyfunc(flint.arb.mid, 1, 1)
# Of midpoints: the ball of a square that is nearly 0 holds negative numbers, too.
root = np.frompyfunc(lambda v: v.mid().sqrt().mid(), 1, 1)


def numbers(values: Any) -> Vector:
    """Return float64 as they are, in many digits."""
    return np.asarray(np.frompyfunc(lambda v: number(float(v)), 1, 1)(values), dtype=object)


def zeros(*shape: int) -> Vector:
    """Return an array of zeros."""
    return np.full(shape, number(0), dtype=object)


def positive(values: Vector) -> bool:
    """Whether all numbers are."""
    return all(value.mid() > 0 for value in values)


def as_matrix(values: Vector) -> Any:
    """Return an array (n, m) as a matrix of FLINT's."""
    return flint.arb_mat(*values.shape, values.ravel().tolist())


def entries_of(found: Any) -> Vector:
    """Return the midpoints of a matrix of FLINT's."""
    values = np.array(found.entries(), dtype=object).reshape(found.nrows(), found.ncols())
    return np.asarray(mid(values))


def product(A: Vector, B: Vector) -> Vector:
    """Return A B of two matrices."""
    return entries_of(as_matrix(A) * as_matrix(B))


class Matrix:
    """A matrix whose products with vectors are FLINT's."""

    def __init__(self, values: Vector) -> None:
        self.values, self.shape, self._whole = values, values.shape, as_matrix(values)

    @cached_property
    def T(self) -> Matrix:  # noqa: N802 - as numpy calls it
        """The transpose."""
        return Matrix(self.values.T)

    def __getitem__(self, place: Any) -> Vector:
        return np.asarray(self.values[place])

    def __matmul__(self, vector: Vector) -> Vector:
        return np.asarray(entries_of(self._whole * as_matrix(vector[:, None]))[:, 0])


def solve(A: Vector, B: Vector) -> Vector:
    """Return A^-1 B; ZeroDivisionError where A is singular."""
    return entries_of(as_matrix(A).solve(as_matrix(B), algorithm="approx"))


def inverse_of(A: Vector) -> Vector:
    """Return A^-1."""
    return solve(A, np.eye(len(A), dtype=int).astype(object))


def log_det(A: Vector) -> Number | None:
    """Return log det of a symmetric matrix; None unless it is positive definite."""
    A, total = A.copy(), number(0)
    for k in range(len(A)):
        if not A[k, k].mid() > 0:
            return None
        total += A[k, k].log()
        column = A[k + 1 :, k]
        if len(column):
            A[k + 1 :, k + 1 :] = mid(A[k + 1 :, k + 1 :] - np.outer(column, column / A[k, k]))
    return total.mid()


def fractions(values: Vector) -> Vector:
    """Return the same real numbers as fractions."""

    def fraction(value: Number) -> Fraction:
        mantissa, exponent = value.mid().man_exp()
        return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)

    return np.asarray(np.frompyfunc(fraction, 1, 1)(values), dtype=object)
