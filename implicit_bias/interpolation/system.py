r"""The linear system that a method gets: orthonormal rows, without an offset.

        A zeta_k = y_k  for all outputs k,        zeta = (K, F),  F = M D in C order

The equations of a problem, rows Phi and values Y, are replaced by equivalent ones. An unpenalized
intercept is eliminated first: with d its column in the rows and H an orthonormal basis of what is
orthogonal to d, they are H Phi zeta_k = H y_k. Then Phi' = Q R gives A = Q' and R^-T Y: however
badly conditioned the features are, no method squares it. Multipliers go the other way: R^-1 alpha,
and then H' times it, whose product with d is 0.

======  ========  ==========================================================================
A       (n, F)    orthonormal rows: A A' = I, so that A' is a right inverse
Y       (n, K)    values
zeta    (K, F)    coefficients
alpha   (n, K)    multipliers; V = alpha' A, (K, F)
======  ========  ==========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array
from implicit_bias.norms import Norm


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """Equations A zeta_k = y_k with orthonormal rows, and the norm; see the module's head.

    Attributes
    ----------
    A : ndarray of shape (n, F)
        Rows.
    Y : ndarray of shape (n, K)
        Values.
    norm : Norm
        Omega.
    shape : tuple of int
        (K, M, D), in which the norm sees the coefficients.
    tolerance : float
        Relative gap at which a method may stop.
    deadline : Deadline
        When it has to.
    """

    A: Array
    Y: Array
    norm: Norm
    shape: tuple[int, int, int]
    tolerance: float = 1e-9
    deadline: Deadline = NEVER

    @property
    def flat(self) -> tuple[int, int]:
        """(K, F)."""
        return self.Y.shape[1], self.A.shape[1]

    def value(self, zeta: Array) -> float:
        """Omega of (K, F)."""
        return self.norm.value(zeta.reshape(self.shape))

    def dual(self, V: Array) -> float:
        """Omega_* of (K, F)."""
        return self.norm.dual(V.reshape(self.shape))

    def dual_vectors(self, alpha: Array) -> Array:
        """V, (K, F)."""
        return alpha.T @ self.A

    def residual(self, zeta: Array) -> Array:
        """Y - A zeta, (n, K)."""
        return self.Y - self.A @ zeta.T

    def corrected(self, zeta: Array) -> Array:
        """Return zeta moved onto the equations, by the least Euclidean change."""
        # The rows of A are orthonormal, so that A' is its pseudo-inverse.
        return zeta + self.residual(zeta).T @ self.A

    def gap(self, zeta: Array, alpha: Array) -> float:
        """Relative gap of zeta, which obeys the equations, and of any alpha; without rounding."""
        dual = self.dual(self.dual_vectors(alpha))
        lower = float((alpha * self.Y).sum())
        if not (dual > 0 and lower > 0):
            return np.inf
        # The bounds are Omega(zeta), and <alpha, Y> / Omega_*(V) at any scale of alpha.
        return self.value(zeta) * dual / lower - 1.0


def least_change(A: Array, rest: Array) -> Array:
    """Return x of least norm with A x near what is left, (n,): a small correction, of a few digits.

    Of more columns than rows by their Gram matrix, which takes the fewest operations.
    """
    n, columns = A.shape
    if columns == 0:
        return np.zeros(0)
    if columns > n:
        try:
            factor = scipy.linalg.cho_factor(A @ A.T, check_finite=False)
            return np.asarray(A.T @ scipy.linalg.cho_solve(factor, rest, check_finite=False))
        except np.linalg.LinAlgError:
            pass  # the rows are dependent in these columns
    found = scipy.linalg.lstsq(A, rest, lapack_driver="gelsy", check_finite=False)[0]
    return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Point:
    """What a method found: coefficients (K, F) and multipliers (n, K), and how.

    Attributes
    ----------
    zeta : ndarray of shape (K, F)
        Coefficients.
    alpha : ndarray of shape (n, K)
        Multipliers.
    method : str
        Its name.
    iterations : int
        Its iterations; 0 of a closed form.
    """

    zeta: Array
    alpha: Array
    method: str
    iterations: int = 0
