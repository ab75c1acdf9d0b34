r"""Norms of matrices: of their singular values.

Their bounds come from the residual of a computed decomposition A = U S V' + E,

    ||A||_2 <= ||U||_2 ||V||_2 s_1 + ||E||_F,
    ||A||_* <= ||U||_2 ||V||_2 sum(s) + sqrt(min(K, M D)) ||E||_F,
    ||A||   <= ||U||_2 ||V||_2 ||s||_p + c ||E||_F   for any p,   c = max ||E|| over ||E||_F = 1.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from implicit_bias.base.rounding import SAFETY, UNDERFLOW, Enclosure, gamma
from implicit_bias.base.validation import Array, UnsuitableError, check_number
from implicit_bias.norms.entries import L1, L2, Entrywise, LInf, Lp, conjugate_exponent
from implicit_bias.norms.norm import (
    RANK_TOLERANCE,
    ConjugatedNorm,
    Partition,
    Shape,
    UndividedNorm,
    exactly,
)


class OfSingularValues(UndividedNorm):
    """An l_p norm of the singular values of the matrix K x MD, in numpy or in torch.

    Attributes
    ----------
    entries : L1, LInf or Lp
        The norm of the singular values, as entries.
    """

    entries: Entrywise

    def value(self, coef: Array) -> float:
        """Norm of the singular values."""
        return self.entries.value(_linalg(coef).svdvals(as_matrix(coef)))

    def maximiser(self, V: Array) -> Array:
        """Return U diag(a) W', V = U diag(s) W', where a is the maximiser at the values s."""
        U, s, Vt = _linalg(V).svd(as_matrix(V), full_matrices=False)
        # Singular values that are 0 but for rounding would have a = 1 in the spectral norm. A dtype
        # of torch has the name of numpy's, with a prefix.
        eps = float(np.finfo(str(s.dtype).removeprefix("torch.")).eps)
        tolerance = max(RANK_TOLERANCE, eps * max(len(U), Vt.shape[1]))
        a = self.entries.maximiser(s * (s > tolerance * s[0]))
        return ((U * a) @ Vt).reshape(V.shape)

    def partition(self, shape: Shape) -> Partition | None:
        """Return one group for a matrix of one row, whose singular value is its Euclidean norm."""
        if shape[0] > 1:
            return None
        return L2().partition(shape)

    def _bound(self, A: Enclosure) -> float:
        """Return an upper bound on the norm of all matrices in an enclosure."""
        matrix = as_matrix(A.value)
        radius = as_matrix(A.radius)
        if not np.isfinite(matrix).all() or not np.isfinite(radius).all():
            return math.inf
        # V = 0 proves that samples are not separable (Gordan): it is 0 exactly, without a radius.
        if not matrix.any() and not radius.any():
            return 0.0
        # ||E|| <= c ||E||_F: for p < 2 the worst E has equal singular values, for p > 2 only one.
        rank = min(matrix.shape)
        c = max(1.0, self.entries.bound(exactly(np.ones(rank))) / math.sqrt(rank))
        try:
            U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
        except np.linalg.LinAlgError:  # no convergence
            return c * L2().bound(A) * (1.0 + gamma(8))
        norms_of_UV = _norm_of_orthonormal(U) * _norm_of_orthonormal(Vt.T)
        # ||E||_F: what is computed of it, the rounding of U S V', and what the enclosure adds.
        residual = matrix - (U * s) @ Vt
        total = float(s.sum()) * (1.0 + gamma(rank + 2))
        norm_of_E = float(np.linalg.norm(residual)) * (1.0 + gamma(residual.size + 4))
        norm_of_E += gamma(rank + 5) * total * norms_of_UV
        norm_of_E += float(np.linalg.norm(radius)) * (1.0 + gamma(radius.size + 4))
        norm_of_E = SAFETY * norm_of_E + UNDERFLOW
        # The bound of the head; the last factor covers the roundings of this line.
        bound = self.entries.bound(exactly(s)) * norms_of_UV + c * norm_of_E
        return bound * (1.0 + 8 * gamma(8))


@dataclass(frozen=True)
class Spectral(OfSingularValues):
    r"""Largest singular value of the matrix K x MD: implicit bias of spectral descent and Muon.

    .. math:: \Omega(\zeta) = \max_i \sigma_i(\zeta), \qquad \Omega_*(V) = \sum_i \sigma_i(V)

    Notes
    -----
    Fan, Schmidt, Thrampoulidis (2025) for spectral descent and Muon in linear models.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import Spectral
    >>> coef = np.diag([3.0, 4.0])
    >>> print(f"{Spectral().value(coef):.4f}, {Spectral().dual(coef):.4f}")
    4.0000, 7.0000
    """

    entries: ClassVar[Entrywise] = LInf()  # type: ignore[misc]

    @property
    def conjugate(self) -> Nuclear:
        """The sum of singular values."""
        return Nuclear()

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY."""
        return cp.sigma_max(_matrix_expression(zeta, shape, cp))


@dataclass(frozen=True)
class Nuclear(OfSingularValues):
    r"""Sum of singular values of the matrix K x MD.

    .. math:: \Omega(\zeta) = \sum_i \sigma_i(\zeta), \qquad \Omega_*(V) = \max_i \sigma_i(V)

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import Nuclear
    >>> coef = np.diag([3.0, 4.0])
    >>> print(f"{Nuclear().value(coef):.4f}, {Nuclear().dual(coef):.4f}")
    7.0000, 4.0000
    """

    entries: ClassVar[Entrywise] = L1()  # type: ignore[misc]

    @property
    def conjugate(self) -> Spectral:
        """The largest singular value."""
        return Spectral()

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY."""
        return cp.normNuc(_matrix_expression(zeta, shape, cp))


@dataclass(frozen=True)
class Schatten(OfSingularValues):
    r"""The l_p norm of the singular values of the matrix K x MD; between `Nuclear` and `Spectral`.

    .. math:: \Omega(\zeta) = \left(\sum_i \sigma_i(\zeta)^p\right)^{1/p}, \qquad
        \Omega_*(V) = \left(\sum_i \sigma_i(V)^q\right)^{1/q}, \quad 1/p + 1/q = 1

    Parameters
    ----------
    p : float
        At least 1.

    Raises
    ------
    ValueError
        p below 1.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import Schatten
    >>> coef = np.diag([3.0, 4.0])
    >>> print(f"{Schatten(2).value(coef):.4f}, {Schatten(4).dual(coef):.4f}")
    5.0000, 5.9063
    """

    p: float

    def __post_init__(self) -> None:
        check_number(self.p, "p", "[1, inf]")

    @property
    def entries(self) -> Entrywise:  # type: ignore[override]
        """The l_p norm."""
        return Lp(self.p)

    @property
    def conjugate(self) -> Schatten:
        """The norm of the exponent p / (p - 1)."""
        return Schatten(conjugate_exponent(self.p))

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY, which has no Schatten norms but three."""
        same: dict[float, ConjugatedNorm] = {1.0: Nuclear(), 2.0: L2(), math.inf: Spectral()}
        if self.p not in same:
            raise UnsuitableError(
                f"CVXPY has no expression for {self!r}, so no solver takes it beside many classes "
                "or gates: take p = 1, 2 or inf, or certify your coefficients"
            )
        return same[self.p].atom(zeta, shape, cp)


def as_matrix(coef: Array) -> Array:
    """Return coefficients (K, M, D) as the matrix (K, M D), and a matrix as it is."""
    return coef.reshape(coef.shape[0], -1)


def _matrix_expression(zeta: Any, shape: Shape, cp: Any) -> Any:
    """Return flattened coefficients of this shape as the matrix of `as_matrix`, in CVXPY."""
    return cp.reshape(zeta, (shape[0], math.prod(shape[1:])), order="C")


def _linalg(array: object) -> Any:
    """Linear algebra of numpy, or of torch for its tensors."""
    torch = sys.modules.get("torch")  # without it, nothing is a tensor
    if torch and isinstance(array, torch.Tensor):
        return torch.linalg
    return np.linalg


def _norm_of_orthonormal(U: Array) -> float:
    """Return an upper bound on ||U||_2, whose square is at most 1 + ||U'U - I||_F."""
    rows, columns = U.shape
    defect = float(np.linalg.norm(U.T @ U - np.eye(columns)))
    return 1.0 + SAFETY * (defect + gamma(rows + 4) * 2.0 * columns)
