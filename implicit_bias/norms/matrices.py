"""Norms of singular values: spectral and nuclear."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from implicit_bias.base.rounding import (
    SAFETY,
    UNDERFLOW,
    Enclosure,
    gamma,
)
from implicit_bias.base.validation import (
    Array,
)
from implicit_bias.norms.entries import L2
from implicit_bias.norms.norm import RANK_TOLERANCE, ConjugatedNorm, Partition, Shape


@dataclass(frozen=True)
class Spectral(ConjugatedNorm):
    """Largest singular value of the matrix K x MD; where spectral descent and Muon go.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import Spectral
    >>> coef = np.diag([3.0, 4.0])
    >>> print(f"{Spectral().value(coef):.4f}, {Spectral().dual(coef):.4f}")
    4.0000, 7.0000
    """

    @property
    def conjugate(self) -> Nuclear:
        """The sum of singular values."""
        return Nuclear()

    def value(self, coef: Array) -> float:
        """Largest singular value."""
        return float(_singular_values(coef).max(initial=0.0))

    def _bound(self, A: Enclosure) -> float:
        return _Decomposition.of(A).largest

    def maximiser(self, V: Array) -> Array:
        """Return the polar factor: all singular values of V that are not 0 become 1."""
        U, s, Vt = np.linalg.svd(as_matrix(V), full_matrices=False)
        rank = np.count_nonzero(s > RANK_TOLERANCE * s[0])
        return np.asarray((U[:, :rank] @ Vt[:rank]).reshape(V.shape))

    def partition(self, shape: Shape) -> Partition | None:
        """Return that of the Euclidean norm, for a matrix of one row."""
        return L2().partition(shape) if shape[0] == 1 else None

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return cp.sigma_max(_matrix_of(zeta, shape, cp))


@dataclass(frozen=True)
class Nuclear(ConjugatedNorm):
    """Sum of singular values of the matrix K x MD.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import Nuclear
    >>> coef = np.diag([3.0, 4.0])
    >>> print(f"{Nuclear().value(coef):.4f}, {Nuclear().dual(coef):.4f}")
    7.0000, 4.0000
    """

    @property
    def conjugate(self) -> Spectral:
        """The largest singular value."""
        return Spectral()

    def value(self, coef: Array) -> float:
        """Sum of singular values."""
        return float(_singular_values(coef).sum())

    def _bound(self, A: Enclosure) -> float:
        return _Decomposition.of(A).total

    def maximiser(self, V: Array) -> Array:
        """Return the first pair of singular vectors."""
        U, _, Vt = np.linalg.svd(as_matrix(V), full_matrices=False)
        return np.outer(U[:, 0], Vt[0]).reshape(V.shape)

    def partition(self, shape: Shape) -> Partition | None:
        """Return that of the Euclidean norm, for a matrix of one row."""
        return L2().partition(shape) if shape[0] == 1 else None

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return cp.normNuc(_matrix_of(zeta, shape, cp))


def as_matrix(coef: Array) -> Array:
    """Coefficients (K, M, D) as the matrix (K, M D) of spectral and nuclear norms."""
    return coef.reshape(coef.shape[0], -1)


def _matrix_of(zeta: Any, shape: Shape, cp: Any) -> Any:
    return cp.reshape(zeta, (shape[0], math.prod(shape[1:])), order="C")


def _singular_values(coef: Array) -> Array:
    return np.asarray(np.linalg.svd(as_matrix(coef), compute_uv=False))


@dataclass(frozen=True)
class _Decomposition:
    """Upper bounds on the largest singular value and on their sum, of numbers up to 1."""

    largest: float
    total: float

    @classmethod
    def of(cls, A: Enclosure) -> _Decomposition:
        matrix, radius = as_matrix(A.value), as_matrix(A.radius)
        if not np.isfinite(matrix).all() or not np.isfinite(radius).all():
            return cls(math.inf, math.inf)
        # Exactly 0 is no rounding: it proves that samples are not separable (Gordan).
        if not matrix.any() and not radius.any():
            return cls(0.0, 0.0)
        rank = min(matrix.shape)
        try:
            U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
        except np.linalg.LinAlgError:  # no convergence
            size = L2().bound(A)
            return cls(size, math.sqrt(rank) * size * (1.0 + gamma(4)))
        total = float(s.sum()) * (1.0 + gamma(rank + 2))
        stretch = _norm_of_orthonormal(U) * _norm_of_orthonormal(Vt.T)
        residual = matrix - (U * s) @ Vt
        size = float(np.linalg.norm(residual))
        rest = size * (1.0 + gamma(residual.size + 4)) + gamma(rank + 5) * total * stretch
        rest += float(np.linalg.norm(radius)) * (1.0 + gamma(radius.size + 4))
        rest = SAFETY * rest + UNDERFLOW
        slack = 1.0 + 8 * gamma(8)
        largest = (float(s.max(initial=0.0)) * stretch + rest) * slack
        whole = (total * stretch + math.sqrt(rank) * rest) * slack
        return cls(largest, whole)


def _norm_of_orthonormal(U: Array) -> float:
    """Return an upper bound on ||U||_2, whose square is at most 1 + ||U'U - I||_F."""
    rows, columns = U.shape
    defect = float(np.linalg.norm(U.T @ U - np.eye(columns)))
    return 1.0 + SAFETY * (defect + gamma(rows + 4) * 2.0 * columns)
