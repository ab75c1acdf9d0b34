r"""Norms of coefficients, each with its dual: all that the two bounds of a certificate need.

upper = Omega(zeta) / smallest margin,   lower = sum(alpha) / Omega_*(V(alpha))

A norm has ``value(coef)``, Omega, and ``dual(V)``, Omega_* = max of <zeta, V> over Omega(zeta) = 1.

==============  =============================  ==============  ===================================
norm            Omega(zeta)                    Omega_*(V)      training that goes there
==============  =============================  ==============  ===================================
L1              sum |zeta_j|                   LInf            coordinate descent, boosting
L2              root of the sum of squares     L2              gradient descent
LInf            max |zeta_j|                   L1              sign descent, Adam
Lp(p)           p-th root of sum |zeta_j|^p    Lp(p/(p-1))     steepest descent in it; mirror
                                                               descent with the p-th power
GroupL2         sum_g of L2 over groups of     max_g of L2     group lasso over features
                features
GroupNorm       sum_g ||zeta_g|| over groups   max_g ||V_g||   gradient descent on gated networks
                of gate columns
metric          ||zeta_g|| =                   ||V_g|| = sqrt(tr(V_g' P_g V_g))
                sqrt(tr(zeta_g' P_g^+ zeta_g)), zeta_g in the range of P_g
Spectral        largest singular value         Nuclear         spectral descent, Muon
Nuclear         sum of singular values         Spectral        nuclear steepest descent
SumOverGroups   sum_g of a norm                max_g of its    gated networks of several outputs
                                               dual            (nuclear)
MaxOverGroups   max_g of a norm                sum_g of its    Muon, over the layers
                                               dual
InRows          a norm of coefficients         the same of     gated readouts
                (R M, D) as (R, M, D)          its dual
==============  =============================  ==============  ===================================

Coefficients have shape (K, M, D), classes by gates by features, or (M, D) with two classes, which
spectral and nuclear norms see as (1, M, D): they are those of the matrix K x MD. An array (K, D)
without gates is that matrix already. All other norms ignore the shape, but for their groups.

A metric is a change of gates: with P_g = R_g R_g' of full column rank, zeta_g = R_g u_g has the
norm ||u_g||, and u_g's gates are Z_g R_g. The stored root R_g *is* the metric: P_g is R_g R_g'.

A norm of your own needs ``value(coef)`` and ``dual(V)`` alone (`HasValueAndDual`): that gives it
the certificate. If it can also say itself in CVXPY (`HasAtom`), it has a solver.

Bounds (`Norm.value_bound`, `Norm.dual_bounds`) are upper bounds as real numbers, whatever rounds.
Those of singular values come from the residuals of a computed decomposition A = U S V' + E,

    ||A||_2 <= ||U||_2 ||V||_2 s_1 + ||E||_F,
    ||A||_* <= ||U||_2 ||V||_2 sum(s) + sqrt(min(K, M D)) ||E||_F
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, cast, final, runtime_checkable

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from implicit_bias.rounding import (
    SAFETY,
    SMALLEST_NORMAL,
    UNDERFLOW,
    Enclosure,
    gamma,
    ldexp_up,
    root_sums,
    row_norms,
    sum_up,
)
from implicit_bias.validation import (
    Array,
    UnsuitableError,
    as_finite,
    check_choice,
    check_not_masked,
    check_number,
)

# Sparse matrices of at least this share of entries are multiplied as dense ones, which is faster.
FEW = 0.05
# Eigenvalues of a metric below this share of its largest one, times its size, count as zero.
RANK_TOLERANCE = 1e-12
# Coefficients outside the range of a metric by more than this share of their size have no norm.
RANGE_TOLERANCE = 1e-9
# Roundings that a norm of somebody else's may take an entry: its error is gamma of these.
OWN_ROUNDINGS = 16
# A power takes this many roundings at most.
POWER_ROUNDINGS = 8

Shape: TypeAlias = tuple[int, ...]
InnerNorm: TypeAlias = Literal["l2", "linf"]
NormName: TypeAlias = Literal["l1", "l2", "linf", "spectral", "nuclear"]


@dataclass(frozen=True, eq=False)
class Partition:
    """A norm as a sum over groups of entries: of their Euclidean norms, or of their maxima.

    Attributes
    ----------
    groups : ndarray of int, of the shape of the coefficients
        Group of each entry, 0 .. G - 1.
    inner : {"l2", "linf"}
        The norm within a group.
    """

    groups: NDArray[np.int64]
    inner: InnerNorm


class Norm(ABC):
    """A norm of coefficients, with its dual.

    Attributes
    ----------
    by_rows : bool
        Whether the dual norm depends on the norms of the rows of V alone, which cost less.
    treats_classes_alike : bool
        Whether exchanging two classes leaves the norm as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import L1, LInf, Norm
    >>> isinstance(L1(), Norm)
    True
    >>> coef = np.array([[3.0, -4.0]])
    >>> L1().value(coef) == LInf().dual(coef)
    True
    """

    by_rows: ClassVar[bool] = False
    treats_classes_alike: ClassVar[bool] = False

    @abstractmethod
    def value(self, coef: Array) -> float:
        """Omega of coefficients."""

    @abstractmethod
    def dual(self, V: Array) -> float:
        """Omega_* of V."""

    @abstractmethod
    def maximiser(self, V: Array) -> Array:
        """Coefficients of norm 1 whose inner product with V is Omega_*(V): steepest ascent.

        Raises
        ------
        NotImplementedError
            A norm of somebody else's, which does not say.
        """

    @abstractmethod
    def group_norms(self, coef: Array) -> Array:
        """Return the terms of Omega as a sum over groups, shape (G,); G = 1 where it is none."""

    @abstractmethod
    def dual_norms(self, V: Array) -> Array:
        """Return the terms of Omega_* as a maximum over groups, shape (G,)."""

    @abstractmethod
    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""

    @abstractmethod
    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on the `dual_norms` of all V in an enclosure, shape (G,)."""

    @abstractmethod
    def partition(self, shape: Shape) -> Partition | None:
        """Return the norm of coefficients of this shape as a sum over groups, if it is one."""

    @abstractmethod
    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return Omega as a CVXPY expression, convex in zeta.

        Parameters
        ----------
        zeta : cvxpy.Expression of shape (size,)
            The coefficients, flattened in C order.
        shape : tuple of int
            Their shape.
        cp : module
            ``cvxpy``, or `solvers.barrier.Epigraph`, which has some of its functions.

        Raises
        ------
        ValueError
            The norm cannot say itself in CVXPY.
        """


@runtime_checkable
class HasValueAndDual(Protocol):
    """What is asked of a norm of your own: both accurate to 16 roundings an entry."""

    def value(self, coef: Array) -> float:
        """Omega of coefficients (K, M, D); K = 1 with two classes."""

    def dual(self, V: Array) -> float:
        """Omega_* of V (K, M, D)."""


@runtime_checkable
class HasAtom(Protocol):
    """What a norm of your own needs for a solver."""

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """As in `Norm.atom`."""


def as_norm(norm: Norm | HasValueAndDual | str, groups: ArrayLike | None = None) -> Norm:
    """Return a norm from an object or a name.

    Parameters
    ----------
    norm : Norm, str, or object with ``value`` and ``dual``
        Names are "l1", "l2", "linf", "spectral" and "nuclear".
    groups : array_like of int, shape (D,), optional
        Group of each feature: the sum of the norm over these groups.

    Raises
    ------
    ValueError
        No such name, or groups for a norm that is a sum already, or somebody else's.
    TypeError
        Neither a name, nor a norm.

    Examples
    --------
    >>> as_norm("linf").dual(np.array([[3.0, -4.0]]))
    7.0
    """
    if groups is not None:
        return SumOverGroups(cast(_Conjugated, as_norm(norm)), np.asarray(groups), axis=-1)
    if isinstance(norm, str):
        check_choice(norm, "norm", NAMES, "an object such as Lp(3)")
        return NAMES[norm]
    if isinstance(norm, Norm):
        return norm
    if isinstance(norm, type) or not isinstance(norm, HasValueAndDual):
        raise TypeError(
            f"norm must be a name or an object with value(coef) and dual(V), got {norm!r}: pass "
            "one of implicit_bias.norms, such as L1()"
        )
    return OwnNorm(norm)


class _OneGroup(Norm):
    """A norm that is no sum over groups, or whose groups are not told."""

    @final
    def group_norms(self, coef: Array) -> Array:
        """Return Omega, shape (1,)."""
        return np.array([self.value(coef)])

    @final
    def dual_norms(self, V: Array) -> Array:
        """Return Omega_*, shape (1,)."""
        return np.array([self.dual(V)])


class _Sum(Norm):
    """A norm that is the sum of norms of groups."""

    @final
    def value(self, coef: Array) -> float:
        """Omega of coefficients; inf where a group has no norm."""
        return float(self.group_norms(coef).sum())

    @final
    def dual(self, V: Array) -> float:
        """Omega_* of V."""
        return float(self.dual_norms(V).max())


# --- norms that know their conjugate ---------------------------------------------------------


class _Bounded(Norm):
    """A norm with an upper bound over an enclosure."""

    @abstractmethod
    def _bound(self, A: Enclosure) -> float:
        """Return an upper bound on the norm of all arrays in an enclosure of numbers up to 1."""

    @final
    def bound(self, A: Enclosure) -> float:
        """Return an upper bound on the norm of all arrays in an enclosure."""
        scaled, exponent = A.scaled()
        return float(ldexp_up(self._bound(scaled), exponent))

    @final
    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        return self.bound(_exact(coef))


class _Conjugated(_OneGroup, _Bounded):
    """A norm whose dual is another norm of this module, in one group."""

    treats_classes_alike: ClassVar[bool] = True

    @property
    @abstractmethod
    def conjugate(self) -> _Conjugated:
        """The dual norm."""

    @final
    def dual(self, V: Array) -> float:
        """Omega_* of V."""
        return self.conjugate.value(V)

    @final
    def dual_bounds(self, V: Enclosure) -> Array:
        """Return an upper bound on Omega_*, shape (1,)."""
        return np.array([self.conjugate.bound(V)])


class _Entrywise(_Conjugated):
    """A root of the sum of powers of absolute values, of one exponent."""

    @property
    @abstractmethod
    def exponent(self) -> float:
        """Of the powers, 1 to infinity."""

    @final
    def partition(self, shape: Shape) -> Partition | None:
        """Return one group an entry, or one group of all with the exponents 2 and infinity."""
        if self.exponent == 1:
            return Partition(np.arange(math.prod(shape)).reshape(shape), "linf")
        inner = INNER.get(self.exponent)
        return None if inner is None else Partition(np.zeros(shape, dtype=np.int64), inner)

    @final
    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return cp.pnorm(zeta, self.exponent, approx=False)


INNER: Mapping[float, InnerNorm] = {2.0: "l2", math.inf: "linf"}


@dataclass(frozen=True)
class L1(_Entrywise):
    """Sum of absolute values; where coordinate descent and boosting go.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import L1
    >>> L1().value(np.array([[3.0, -4.0]])), L1().dual(np.array([[3.0, -4.0]]))
    (7.0, 4.0)
    """

    exponent: ClassVar[float] = 1.0

    @property
    def conjugate(self) -> LInf:
        """The largest absolute value."""
        return LInf()

    def value(self, coef: Array) -> float:
        """Sum of absolute values."""
        return float(np.abs(coef).sum())

    def _bound(self, A: Enclosure) -> float:
        return self.value(A.magnitude) * (1.0 + SAFETY * gamma(A.value.size + 2))

    def maximiser(self, V: Array) -> Array:
        """Return the sign of the largest entry."""
        found = np.zeros_like(V, dtype=np.float64)
        largest = np.unravel_index(np.abs(V).argmax(), V.shape)
        found[largest] = np.copysign(1.0, V[largest])
        return found


@dataclass(frozen=True)
class LInf(_Entrywise):
    """Largest absolute value; where sign descent and Adam go.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import LInf
    >>> LInf().value(np.array([[3.0, -4.0]])), LInf().dual(np.array([[3.0, -4.0]]))
    (4.0, 7.0)
    """

    exponent: ClassVar[float] = math.inf

    @property
    def conjugate(self) -> L1:
        """The sum of absolute values."""
        return L1()

    def value(self, coef: Array) -> float:
        """Largest absolute value."""
        return float(np.abs(coef).max(initial=0.0))

    def _bound(self, A: Enclosure) -> float:
        return self.value(A.magnitude)

    def maximiser(self, V: Array) -> Array:
        """Return the signs."""
        return np.sign(V)


@dataclass(frozen=True)
class L2(_Entrywise):
    """Root of the sum of squares (Frobenius); where gradient descent goes.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import L2
    >>> L2().value(np.array([[3.0, -4.0]]))
    5.0
    """

    exponent: ClassVar[float] = 2.0

    @property
    def conjugate(self) -> L2:
        """Itself."""
        return self

    def value(self, coef: Array) -> float:
        """Root of the sum of squares."""
        largest = float(np.abs(coef).max(initial=0.0))
        return largest * float(np.linalg.norm(coef / largest)) if largest > 0 else 0.0

    def _bound(self, A: Enclosure) -> float:
        return self.value(A.magnitude) * (1.0 + SAFETY * gamma(A.value.size + 8))

    def maximiser(self, V: Array) -> Array:
        """Return V over its norm."""
        return np.asarray(V / (self.value(V) or 1.0))


class _Power(_Entrywise):
    """A root of a sum of powers of any exponent."""

    def value(self, coef: Array) -> float:
        """Root of the sum of powers."""
        if math.isinf(self.exponent):
            return LInf().value(coef)
        return _power_norm(coef, self.exponent)

    def maximiser(self, V: Array) -> Array:
        """Return sign(V) abs(V)^(q - 1), q = p / (p - 1), over its norm."""
        if self.exponent == 1 or math.isinf(self.exponent):
            return (L1() if self.exponent == 1 else LInf()).maximiser(V)
        size = np.abs(V) / (LInf().value(V) or 1.0)
        found = np.copysign(size ** (1.0 / (self.exponent - 1.0)), V)
        return np.asarray(found / (self.value(found) or 1.0))


@dataclass(frozen=True)
class Lp(_Power):
    """The p-th root of the sum of p-th powers; steepest descent in it, and mirror descent.

    Parameters
    ----------
    p : float
        At least 1; inf is `LInf`.

    Raises
    ------
    ValueError
        p below 1.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import Lp
    >>> print(f"{Lp(3.0).value(np.array([[1.0, 1.0]])):.4f}")
    1.2599
    """

    p: float

    def __post_init__(self) -> None:
        check_number(self.p, "p", "[1, inf]")

    @property
    def exponent(self) -> float:
        """The same as p."""
        return self.p

    @property
    def conjugate(self) -> _Conjugated:
        """Lp of p / (p - 1)."""
        if self.p == 1:
            return LInf()
        return L1() if math.isinf(self.p) else _ConjugateLp(self.p)

    def _bound(self, A: Enclosure) -> float:
        return self.value(A.magnitude) * (1.0 + _power_rounding(A.value.size))


@dataclass(frozen=True)
class _ConjugateLp(_Power):
    """The dual of Lp(p), 1 < p < infinity: its exponent p / (p - 1) need not be a float64."""

    p: float

    @property
    def exponent(self) -> float:
        return self.p / (self.p - 1.0)

    @property
    def conjugate(self) -> Lp:
        return Lp(self.p)

    def _bound(self, A: Enclosure) -> float:
        # The norm falls with the exponent, so one that is a little too small bounds it.
        return Lp(max(1.0, self.exponent * (1.0 - gamma(4)))).bound(A)


def _power_norm(values: Array, p: float) -> float:
    """Return (sum |v|^p)^(1/p), the largest v brought to 1."""
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return 0.0
    return largest * float((np.abs(values / largest) ** p).sum()) ** (1.0 / p)


def _power_rounding(size: int) -> float:
    """Relative error of `_power_norm`: of the powers and their sum, then of 1 / p and the root.

    The p roundings that a power makes of the division's are one again after the root.
    """
    terms = POWER_ROUNDINGS + size + 4
    return SAFETY * (gamma(terms) + gamma(POWER_ROUNDINGS + 4) * (1.0 + math.log(max(size, 2))))


@dataclass(frozen=True)
class Spectral(_Conjugated):
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
class Nuclear(_Conjugated):
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


# --- sums and maxima over groups -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _OverGroups(Norm):
    """One norm of each of the groups of gate columns, or of features."""

    treats_classes_alike: ClassVar[bool] = True

    norm: _Conjugated
    groups: NDArray[np.int64]
    axis: int = -2

    def __post_init__(self) -> None:
        _check_parts(self.norm, self.axis)
        object.__setattr__(self, "groups", as_groups(self.groups))

    def _parts(self, coef: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the parts of coefficients that belong to each group, by group."""
        if coef.shape[self.axis] != len(self.groups):
            columns = "features" if self.axis == -1 else "gate columns"
            raise ValueError(
                f"the norm has groups of {len(self.groups)} {columns}, the coefficients "
                f"{coef.shape}"
            )
        groups = range(int(self.groups.max()) + 1)
        return [np.compress(self.groups == g, coef, axis=self.axis) for g in groups]

    def _bounds(self, norm: _Conjugated, A: Enclosure) -> list[float]:
        """Return upper bounds on the norms of the groups, over an enclosure."""
        parts = zip(self._parts(A.value), self._parts(A.radius), strict=True)
        return [norm.bound(Enclosure(*part)) for part in parts]

    def _put(self, array: NDArray[Any], g: int, part: NDArray[Any]) -> None:
        """Set one group's part of an array."""
        last = np.moveaxis(array, self.axis, -1)  # a view
        last[..., self.groups == g] = np.moveaxis(part, self.axis, -1)

    def _atoms(self, zeta: Any, shape: Shape, cp: Any) -> list[Any]:
        """Return the norms of the groups as CVXPY expressions."""
        places = self._parts(np.arange(math.prod(shape)).reshape(shape))
        return [self.norm.atom(zeta[part.ravel()], part.shape, cp) for part in places]


@dataclass(frozen=True, eq=False)
class SumOverGroups(_OverGroups, _Sum, _Bounded):
    """A sum of one norm over groups of gate columns, or of features.

    Parameters
    ----------
    norm : Norm
        That of each group: any of this module but `GroupNorm` and sums.
    groups : array_like of int, shape (M,) or (D,)
        Group of each gate column (or feature), 0 .. G - 1, none left out.
    axis : {-2, -1}
        -2 for gate columns, -1 for features.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1, or another axis.

    Examples
    --------
    >>> norm = SumOverGroups(Nuclear(), [0, 0, 1])  # of coefficients (K, 3, D)
    """

    def group_norms(self, coef: Array) -> Array:
        """Norm of each group, shape (G,)."""
        return np.array([self.norm.value(part) for part in self._parts(coef)])

    def dual_norms(self, V: Array) -> Array:
        """Dual norm of each group, shape (G,)."""
        return np.array([self.norm.dual(part) for part in self._parts(V)])

    def _bound(self, A: Enclosure) -> float:
        return sum_up(self._bounds(self.norm, A))

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on the groups' dual norms, shape (G,)."""
        return np.array(self._bounds(self.norm.conjugate, V))

    def maximiser(self, V: Array) -> Array:
        """Return that of the group with the largest dual norm."""
        best = int(self.dual_norms(V).argmax())
        found = np.zeros_like(V, dtype=np.float64)
        self._put(found, best, self.norm.maximiser(self._parts(V)[best]))
        return found

    def partition(self, shape: Shape) -> Partition | None:
        """Return the groups of the groups, where the norm of each is a sum over groups."""
        whole, count, inner = np.zeros(shape, dtype=np.int64), 0, INNER[2.0]
        for g, part in enumerate(self._parts(whole)):
            found = self.norm.partition(part.shape)
            if found is None:
                return None
            self._put(whole, g, count + found.groups)
            count, inner = count + int(found.groups.max()) + 1, found.inner
        return Partition(whole, inner)

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return sum(self._atoms(zeta, shape, cp))


@dataclass(frozen=True, eq=False)
class MaxOverGroups(_OverGroups, _Conjugated):
    """The maximum of one norm over groups of gate columns, or of features.

    Parameters
    ----------
    norm, groups, axis
        As in `SumOverGroups`.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import L2, MaxOverGroups
    >>> norm = MaxOverGroups(L2(), np.array([0, 0, 1]))
    >>> print(f"{norm.value(np.array([[3.0], [4.0], [6.0]])):.1f}")
    6.0
    """

    @property
    def conjugate(self) -> _Conjugated:
        """The sum of the groups' dual norms."""
        return _SumInOne(SumOverGroups(self.norm.conjugate, self.groups, self.axis))

    def value(self, coef: Array) -> float:
        """Maximum of the groups' norms."""
        return max(self.norm.value(part) for part in self._parts(coef))

    def _bound(self, A: Enclosure) -> float:
        return max(self._bounds(self.norm, A))

    def maximiser(self, V: Array) -> Array:
        """Return those of all groups."""
        found = np.zeros_like(V, dtype=np.float64)
        for g, part in enumerate(self._parts(V)):
            self._put(found, g, self.norm.maximiser(part))
        return found

    def partition(self, shape: Shape) -> Partition | None:
        """Return that of a single group's norm, if there is one group only, or maxima."""
        found = self.norm.partition(shape)
        single = self.groups.max() == 0 or (
            found is not None and found.inner == "linf" and found.groups.max() == 0
        )
        return found if single else None

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return cp.maximum(*self._atoms(zeta, shape, cp), 0.0)


@dataclass(frozen=True, eq=False)
class _SumInOne(_Conjugated):
    """A sum over groups as one norm: the dual of a maximum."""

    whole: SumOverGroups

    @property
    def conjugate(self) -> MaxOverGroups:
        return MaxOverGroups(self.whole.norm.conjugate, self.whole.groups, self.whole.axis)

    def value(self, coef: Array) -> float:
        return self.whole.value(coef)

    def _bound(self, A: Enclosure) -> float:
        return self.whole.bound(A)

    def maximiser(self, V: Array) -> Array:
        return self.whole.maximiser(V)

    def partition(self, shape: Shape) -> Partition | None:
        return self.whole.partition(shape)

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        return self.whole.atom(zeta, shape, cp)


def GroupL2(groups: ArrayLike) -> SumOverGroups:  # noqa: N802 - one of the norms
    """Return the sum of Euclidean norms over groups of features: the group lasso.

    Parameters
    ----------
    groups : array_like of int, shape (D,)
        Group of each feature, 0 .. G - 1, none left out.

    Examples
    --------
    >>> GroupL2([0, 0, 1]).value(np.array([[3.0, 4.0, -2.0]]))
    7.0
    """
    return SumOverGroups(L2(), np.asarray(groups), axis=-1)


def _check_parts(norm: object, axis: int) -> None:
    if not isinstance(norm, _Conjugated):
        raise ValueError(
            f"groups take one of L1, L2, LInf, Lp, Spectral and Nuclear, got {norm!r}: a sum of "
            "Euclidean norms with a metric is GroupNorm"
        )
    if axis not in (-1, -2):
        raise ValueError(f"axis must be -2 (gate columns) or -1 (features), got {axis!r}")


def _exact(values: Array) -> Enclosure:
    return Enclosure(values, np.zeros_like(values))


# --- a norm of somebody else's ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OwnNorm(_OneGroup):
    """A norm that is given by its value and its dual alone.

    The bounds trust both to OWN_ROUNDINGS roundings an entry. An enclosure of V is taken apart by
    entries: Omega_*(V + E) <= Omega_*(V) + sum_j radius_j Omega_*(e_j).

    Parameters
    ----------
    given : object with ``value(coef)`` and ``dual(V)``
        The norm; for a solver with ``atom(zeta, shape, cp)``, too.
    """

    given: HasValueAndDual
    _unit_duals: dict[Shape, Array] = field(default_factory=dict, init=False, repr=False)

    def value(self, coef: Array) -> float:
        """Omega of coefficients."""
        return float(self.given.value(coef))

    def dual(self, V: Array) -> float:
        """Omega_* of V."""
        return float(self.given.dual(V))

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as far as its value can be trusted."""
        return self.value(coef) * (1.0 + SAFETY * gamma(OWN_ROUNDINGS * (coef.size + 4)))

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return an upper bound on Omega_*, shape (1,)."""
        rounding = 1.0 + SAFETY * gamma(OWN_ROUNDINGS * (V.value.size + 4))
        rest = float((V.radius * self._units(V.value.shape)).sum()) if V.radius.any() else 0.0
        return np.array([(self.dual(V.value) + rest) * rounding])

    def maximiser(self, V: Array) -> Array:
        """Refuse: value and dual do not say."""
        raise NotImplementedError(f"{self.given!r} has no maximiser")

    def partition(self, shape: Shape) -> None:
        """Return None: nothing is known of its structure."""
        return

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY, where it can."""
        if not isinstance(self.given, HasAtom):
            raise UnsuitableError(
                f"{self.given!r} cannot say itself in CVXPY, so no solver takes it: give it a "
                "method atom(zeta, shape, cp), or certify coefficients of your own"
            )
        return self.given.atom(zeta, shape, cp)

    def _units(self, shape: Shape) -> Array:
        """Omega_* of each unit vector, of this shape."""
        if shape not in self._unit_duals:
            units, found = np.zeros(shape), np.zeros(shape)
            for place in np.ndindex(shape):
                units[place] = 1.0
                found[place] = self.dual(units)
                units[place] = 0.0
            self._unit_duals[shape] = found
        return self._unit_duals[shape]


@dataclass(frozen=True, eq=False)
class InRows(Norm):
    """A norm that takes the coefficients of two classes as a matrix of several rows.

    Of coefficients (R M, D), or (1, R M, D), it is the norm of (R, M, D): columns r M + m of the
    gates are column m of row r.

    Parameters
    ----------
    norm : Norm
        Of coefficients (R, M, D).
    n_rows : int
        R.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import InRows, L2, Nuclear
    >>> coef = np.array([[1.0, 0.0], [0.0, 1.0]])  # two rows of one gate column each
    >>> InRows(Nuclear(), 2).value(coef), round(L2().value(coef), 4)
    (2.0, 1.4142)
    """

    norm: Norm
    n_rows: int

    def value(self, coef: Array) -> float:
        """Omega of coefficients."""
        return self.norm.value(self._folded(coef))

    def dual(self, V: Array) -> float:
        """Omega_* of V."""
        return self.norm.dual(self._folded(V))

    def maximiser(self, V: Array) -> Array:
        """Return that of the rows."""
        return self.norm.maximiser(self._folded(V)).reshape(V.shape)

    def group_norms(self, coef: Array) -> Array:
        """Return the terms of Omega, shape (G,)."""
        return self.norm.group_norms(self._folded(coef))

    def dual_norms(self, V: Array) -> Array:
        """Return the terms of Omega_*, shape (G,)."""
        return self.norm.dual_norms(self._folded(V))

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        return self.norm.value_bound(self._folded(coef))

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on the dual norms, shape (G,)."""
        folded = Enclosure(self._folded(V.value), self._folded(V.radius))
        return self.norm.dual_bounds(folded)

    def partition(self, shape: Shape) -> Partition | None:
        """Return that of the rows."""
        found = self.norm.partition(self._folded_shape(shape))
        return None if found is None else Partition(found.groups.reshape(shape), found.inner)

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return self.norm.atom(zeta, self._folded_shape(shape), cp)

    def _folded_shape(self, shape: Shape) -> Shape:
        columns, rest = divmod(math.prod(shape[:-1]), self.n_rows)
        if rest:
            raise ValueError(
                f"a norm of {self.n_rows} rows needs as many times the same gate columns, got "
                f"coefficients {shape}"
            )
        return self.n_rows, columns, shape[-1]

    def _folded(self, coef: Array) -> Array:
        # Row-major: the columns of a row lie together.
        return coef.reshape(self._folded_shape(coef.shape))


NAMES: dict[str, Norm] = {
    "l1": L1(),
    "l2": L2(),
    "linf": LInf(),
    "spectral": Spectral(),
    "nuclear": Nuclear(),
}
# Norms of which the unit ball, or that of the dual, bounds each singular value or each entry.
BALLS: tuple[Norm, ...] = (Nuclear(), Spectral(), L1(), LInf())


def nuclear_groups(norm: Norm) -> NDArray[np.int64] | None:
    """Return the group of each gate column, if a norm is the sum of the groups' nuclear norms."""
    if isinstance(norm, SumOverGroups) and norm.norm == Nuclear() and norm.axis == -2:
        return np.asarray(norm.groups)
    return None


# --- groups of gate columns, with a metric ---------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupNorm(_Sum):
    """The sum of the Euclidean norms of groups of gate columns, each with a metric if it likes.

    Parameters
    ----------
    groups : array_like of int, shape (M,)
        Group of each column, 0 .. G - 1, none left out.
    metric : mapping from group to array_like of shape (M_g, M_g), optional
        Positive semi-definite P_g of the groups that have one; see the module's table. What
        rounding left of its null space (eigenvalues below 1e-12 M_g of the largest, or a little
        below 0) is cut off.
    apart : bool
        Whether each of K classes has groups of its own, (k, g), K G in all: one network a class.
        By default a group has the columns of all classes.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1, or a metric that is not symmetric positive semi-definite.

    Examples
    --------
    >>> import numpy as np
    >>> norm = GroupNorm(np.array([0, 0, 1]))  # two columns in the first group, one in the second
    >>> norm.value(np.array([[3.0], [4.0], [1.0]]))
    6.0
    """

    by_rows: ClassVar[bool] = True
    treats_classes_alike: ClassVar[bool] = True

    groups: NDArray[np.int64]
    metric: Mapping[int, Array] | None = field(default=None, repr=False)
    apart: bool = False

    def __post_init__(self) -> None:
        groups = as_groups(self.groups)
        metric = {} if self.metric is None else _as_metric(self.metric, groups)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "metric", metric or None)

    @property
    def n_groups(self) -> int:
        """G, of one class where they are apart."""
        return int(self.groups.max()) + 1

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,); inf where zeta_g leaves the range of P_g."""
        return self._where_in_range(coef, self.plain_norms(self.plain_coef(coef)))

    def dual_norms(self, V: Array) -> Array:
        """||V_g|| of each group, shape (G,)."""
        return self.plain_norms(V if self.metric is None else _times(self._factor.T, V))

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        bounds = self.dual_bounds(_exact(self.plain_coef(coef)))
        return sum_up(self._where_in_range(coef, bounds).tolist())

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on ||V_g||, shape (G,), of V of the plain gates."""
        scaled, exponent = V.scaled()
        norms = row_norms(scaled.value.reshape(-1, V.value.shape[-1]))
        radius = row_norms(scaled.radius.reshape(-1, V.value.shape[-1]))
        rounding = gamma(V.value.shape[-1] + 4) * (norms + radius)
        found = self.of_rows(Enclosure(norms, SAFETY * (radius + rounding)))
        return ldexp_up(found.magnitude, exponent)

    def of_rows(self, rows: Enclosure) -> Enclosure:
        """Return ||V_g|| (G,) from the norms of the rows of V (M', D), or of (K, M', D)."""
        groups = self.groups_of_rows(len(rows.value) // len(self.plain_groups))
        rounding = gamma(int(np.bincount(groups).max()) + 4)
        value, radius = root_sums(rows.value, groups), root_sums(rows.radius, groups)
        lost = SMALLEST_NORMAL * ((value > 0) | (radius > 0))
        return Enclosure(value, SAFETY * (radius + rounding * value) + lost)

    def maximiser(self, V: Array) -> Array:
        """Return P_g V_g over its norm, of the group with the largest dual norm."""
        norms = self.dual_norms(V)
        best = np.zeros(len(norms))
        best[norms.argmax()] = 1.0 / (norms.max() or 1.0)
        return self.aligned(V, best)

    def partition(self, shape: Shape) -> Partition | None:
        """Return the groups of gate columns; None with a metric."""
        if self.metric is not None:
            return None
        K = math.prod(shape[:-2])
        rows = self.groups_of_rows(K)
        return Partition(np.repeat(rows, shape[-1]).reshape(shape), "l2")

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY, of plain coefficients."""
        groups = self.groups_of_rows(math.prod(shape[:-2]))
        places = np.arange(math.prod(shape)).reshape(len(groups), shape[-1])
        return sum(
            cp.norm(zeta[places[groups == g].ravel()], 2) for g in range(int(groups.max()) + 1)
        )

    def of_plain(self, coef: Array) -> Array:
        """Return the coefficients R u of u (M', D) or (K, M', D)."""
        return _times(self._factor, coef)

    def projected(self, coef: Array) -> Array:
        """Coefficients without what rounding put outside the ranges of the P_g."""
        return coef if self.metric is None else self.of_plain(self.plain_coef(coef))

    def aligned(self, V: Array, group_norms: Array) -> Array:
        """zeta_g = d_g P_g V_g, of the shape of V, of V and d (G,), by KKT."""
        direction = V if self.metric is None else _times(self._factor, _times(self._factor.T, V))
        if self.apart:
            return direction * group_norms.reshape(-1, self.n_groups)[:, self.groups, None]
        return direction * group_norms[self.groups][:, None]

    # --- the equivalent norm without metric

    @cached_property
    def root(self) -> sp.csr_array:
        """R, shape (M, M'): block diagonal with P_g = R_g R_g'; coef = R @ plain coef."""
        if self.metric is None:
            return sp.eye_array(len(self.groups), format="csr")
        plain = self._without
        blocks: list[tuple[NDArray[np.int64], Array]] = [(plain, np.eye(len(plain)))]
        blocks += [(columns, root.matrix) for _, columns, root in self._roots]
        widths = [R.shape[1] for _, R in blocks]
        whole = sp.lil_array((len(self.groups), sum(widths)))
        for (columns, R), start in zip(blocks, np.cumsum([0, *widths[:-1]]), strict=True):
            whole[np.ix_(columns, np.arange(start, start + R.shape[1]))] = R
        return whole.tocsr()

    @cached_property
    def _factor(self) -> sp.csr_array | Array:
        """R, as the kind of array with which products take less time."""
        few = self.root.nnz < FEW * self.root.shape[0] * self.root.shape[1]
        return self.root if few else self.root.toarray()

    @cached_property
    def plain_groups(self) -> NDArray[np.int64]:
        """Group of each column of R, shape (M',)."""
        if self.metric is None:
            return self.groups
        columns = self.root.tocsc()
        first_row = columns.indices[columns.indptr[:-1]]
        return self.groups[first_row]

    def plain_coef(self, coef: Array) -> Array:
        """Return u (M', D) with R u = coef (M, D), or nearest to it; the same of (K, M, D)."""
        if self.metric is None:
            return coef
        plain = np.empty((*coef.shape[:-2], len(self.plain_groups), coef.shape[-1]))
        plain[..., : len(self._without), :] = coef[..., self._without, :]
        for g, columns, root in self._roots:
            plain[..., self.plain_groups == g, :] = root.inverse @ coef[..., columns, :]
        return plain

    def plain_norms(self, coef: Array) -> Array:
        """||u_g|| of each group, shape (G,), of u (M', D): primal and dual are the same here."""
        norms = row_norms(coef.reshape(-1, coef.shape[-1]))
        return root_sums(norms, self.groups_of_rows(len(norms) // len(self.plain_groups)))

    def plain_gates(self, gates: sp.csr_array) -> sp.csr_array:
        """Gates Z R, shape (N, M'), of u.

        Where all of a sample's gates in a group cancel, what is left is rounding, which must not
        be scaled up. It is cut off, by its size relative to the gates that cancel: those that a
        column of R uses, times that column's largest entry.
        """
        plain = sp.csr_array(gates @ self.root)
        if self.metric is None:
            return plain
        reach = (self.root != 0) @ sp.diags_array(abs(self.root).max(axis=0).toarray().ravel())
        terms = sp.csr_array(abs(gates) @ reach)  # nonzero wherever `plain` is
        columns = np.arange(len(self.plain_groups))
        shape = (len(columns), self.n_groups)
        membership = sp.csr_array((np.ones(len(columns)), (columns, self.plain_groups)), shape)
        seen = sp.csr_array(abs(plain) > RANK_TOLERANCE * terms) @ membership  # (N, G)
        seen = sp.csr_array((seen > 0) @ membership.T)
        return sp.csr_array(plain.multiply(seen))

    def _where_in_range(self, coef: Array, norms: Array) -> Array:
        """Return norms (G,) of the groups, in place, but inf where zeta_g leaves P_g's range."""
        by_class = norms.reshape(-1, self.n_groups)  # a view
        for g, columns, root in self._roots:
            parts = coef[..., columns, :].reshape(-1, len(columns), coef.shape[-1])
            outside = np.array([root.excludes(part) for part in parts])
            by_class[outside if self.apart else outside.any(keepdims=True), g] = np.inf
        return norms

    def groups_of_rows(self, n_classes: int) -> NDArray[np.int64]:
        """Group of each row of coefficients (K, M', D), flattened: (K M',)."""
        if n_classes == 1:
            return self.plain_groups
        groups = np.tile(self.plain_groups, n_classes)
        if not self.apart:
            return groups
        return groups + self.n_groups * np.repeat(np.arange(n_classes), len(self.plain_groups))

    @cached_property
    def _without(self) -> NDArray[np.int64]:
        """Columns of the groups that have no metric."""
        return np.flatnonzero(~np.isin(self.groups, list(self.metric or {})))

    @cached_property
    def _roots(self) -> list[tuple[int, NDArray[np.int64], _Root]]:
        return [
            (g, np.flatnonzero(self.groups == g), _Root.of(P))
            for g, P in (self.metric or {}).items()
        ]


def _times(R: sp.sparray | Array, A: Array) -> Array:
    """R A of A (M, D), or of each class of (K, M, D)."""
    if A.ndim == 2:
        return np.asarray(R @ A)
    return np.stack([np.asarray(R @ part) for part in A])


@dataclass(frozen=True, eq=False)
class _Root:
    """A metric P (m, m) by its positive eigenvalues (r,) and their eigenvectors (m, r).

    ``null`` (m, m - r) has the others.
    """

    values: Array
    vectors: Array
    null: Array

    @classmethod
    def of(cls, P: Array) -> _Root:
        values, vectors = scipy.linalg.eigh(P)
        keep = values > RANK_TOLERANCE * len(P) * values[-1]
        return cls(values[keep], vectors[:, keep], vectors[:, ~keep])

    @property
    def matrix(self) -> Array:
        """R (m, r) of full column rank with P = R R'."""
        return np.asarray(self.vectors * np.sqrt(self.values))

    @cached_property
    def inverse(self) -> Array:
        """R^+, shape (r, m)."""
        return np.asarray((self.vectors / np.sqrt(self.values)).T)

    def excludes(self, coef: Array) -> bool:
        """Whether coefficients (m, D) leave the range of P."""
        unit = coef / (np.abs(coef).max(initial=0.0) or 1.0)
        outside = np.linalg.norm(self.null.T @ unit)
        return bool(outside > RANGE_TOLERANCE * np.linalg.norm(unit))


def as_groups(groups: ArrayLike) -> NDArray[np.int64]:
    """Convert to groups (M,) and refuse all but 0 .. G - 1, none left out."""
    check_not_masked(groups, "groups")
    array = np.asarray(groups)
    if array.ndim != 1 or len(array) == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"groups must be a 1-D array of integers, got {array.dtype} {array.shape}")
    found = np.unique(array)
    if not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            f"groups must be numbered 0 .. G - 1 with none left out, got {found[:10]}: "
            "renumber with np.unique(groups, return_inverse=True)[1]"
        )
    return array.astype(np.int64)


def _as_metric(metric: Mapping[int, ArrayLike], groups: NDArray[np.int64]) -> dict[int, Array]:
    if not isinstance(metric, Mapping):
        raise ValueError(
            f"metric must map groups to matrices, as in {{0: P}}, got a {type(metric).__name__}"
        )
    checked = {}
    for g, P in metric.items():
        size = int(np.count_nonzero(groups == g))
        if size == 0:
            raise ValueError(f"metric names group {g!r}, but there is no such group")
        matrix = as_finite(P, f"metric of group {g}", 2)
        if matrix.shape != (size, size):
            raise ValueError(
                f"metric of group {g} must have shape ({size}, {size}), one row a gate column "
                f"of the group, got {matrix.shape}"
            )
        scale = np.abs(matrix).max()
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * scale):
            raise ValueError(f"metric of group {g} is not symmetric: pass (P + P') / 2")
        smallest = np.linalg.eigvalsh(matrix)[0]
        if scale == 0 or smallest < -1e-10 * scale * size:
            raise ValueError(
                f"metric of group {g} is not positive semi-definite (or zero): smallest "
                f"eigenvalue {smallest:.3g}"
            )
        root = _Root.of(matrix).matrix
        checked[int(g)] = root @ root.T
    return checked
