r"""The protocol of norms: value, dual, maximiser, atom.

`NormOf` is the protocol for points of any kind: `Norm` is that of arrays, `tensors.ParameterNorm`
that of tensors by name. A norm of arrays also has

- its terms as a sum over groups, sum_g Omega_g, whose dual norm is max_g Omega_g*;
- bounds on value and dual that include all rounding, for certificates;
- a `Partition`, the structure that a solver may use: sums of Euclidean norms or of maxima.

What classes of norms share:

==============  ========================================  ==========================================
class           terms of the sum over groups              dual norm
==============  ========================================  ==========================================
OneGroupNorm    one, the norm itself                      any
SumNorm         ``group_norms`` and ``dual_norms``        the largest of ``dual_norms``
ConjugatedNorm  any                                       ``conjugate``, another norm of the package
UndividedNorm   one                                       ``conjugate``
==============  ========================================  ==========================================

The groups of a `Partition` are others than these terms: they say what a solver may use, and are as
small as they can be. So l1 has one term, itself, and a partition with a group for each entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.rounding import Enclosure, ldexp_up
from implicit_bias.base.validation import Array

# Singular values, and eigenvalues of a Gram matrix, below this fraction of the largest one count as
# zero. It is some 5,000 roundings, more than make up what is computed instead of 0.
RANK_TOLERANCE = 1e-12

Shape: TypeAlias = tuple[int, ...]
InnerNorm: TypeAlias = Literal["l2", "linf"]
NormName: TypeAlias = Literal["l1", "l2", "linf", "spectral", "nuclear"]
Point = TypeVar("Point")
PointShape = TypeVar("PointShape")


@dataclass(frozen=True, eq=False)
class Partition:
    """A norm that is a sum over groups of entries: of a Euclidean norm, or of a maximum, of each.

    The l1 norm has a group for each entry; l2 and l_inf have one group of all entries.

    Attributes
    ----------
    groups : ndarray of int, of the shape of the coefficients
        Group of each entry, 0 .. G - 1.
    inner : {"l2", "linf"}
        The norm within a group.
    """

    groups: NDArray[np.int64]
    inner: InnerNorm


class NormOf(ABC, Generic[Point, PointShape]):
    """A norm of points of one kind, with its dual: arrays, or tensors by name."""

    @abstractmethod
    def value(self, coef: Point) -> float:
        """Omega of a point."""

    @abstractmethod
    def dual(self, V: Point) -> float:
        """Omega_* of V, the largest <zeta, V> over Omega(zeta) = 1."""

    @abstractmethod
    def maximiser(self, V: Point) -> Point:
        """Return a zeta of norm 1 with <zeta, V> = Omega_*(V), the direction of steepest ascent.

        It is 0 for V = 0. Under l1 it is the unit vector of the first of the largest entries.

        Raises
        ------
        NotImplementedError
            A custom norm, whose value and dual do not determine it.
        """

    @abstractmethod
    def atom(self, zeta: Any, shape: PointShape, cp: Any) -> Any:
        """Return Omega as a CVXPY expression, convex in zeta.

        Parameters
        ----------
        zeta : cvxpy.Expression of shape (size,), or mapping from name to such
            The coefficients, flattened in C order.
        shape : tuple of int, or mapping from name to such
            Their shape.
        cp : module
            ``cvxpy``.

        Raises
        ------
        ValueError
            CVXPY has no expression for the norm.
        """


class Norm(NormOf[Array, Shape]):
    r"""A norm of coefficients, with its dual.

    .. math:: \Omega_*(V) = \max \, \{ \langle \zeta, V \rangle : \Omega(\zeta) \le 1 \}

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

    @abstractmethod
    def group_norms(self, coef: Array) -> Array:
        """Return the terms of Omega as a sum over groups, (G,); G = 1 if it is no such sum."""

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
        """Return the groups of coefficients of this shape; None where the norm sums no groups."""


@runtime_checkable
class HasValueAndDual(Protocol):
    """What a custom norm must have, each accurate to 16 roundings per entry."""

    def value(self, coef: Array) -> float:
        """Omega of coefficients (K, M, D); K = 1 with two classes."""

    def dual(self, V: Array) -> float:
        """Omega_* of V (K, M, D)."""


@runtime_checkable
class HasAtom(Protocol):
    """What a custom norm needs for a solver."""

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """As in `Norm.atom`."""


class OneGroupNorm(Norm):
    """A norm with one term: itself, whether or not it is a sum over groups.

    A subclass defines all other methods: value, dual, maximiser, atom, both bounds, partition.
    """

    @final
    def group_norms(self, coef: Array) -> Array:
        """Return Omega, shape (1,)."""
        return np.array([self.value(coef)])

    @final
    def dual_norms(self, V: Array) -> Array:
        """Return Omega_*, shape (1,)."""
        return np.array([self.dual(V)])


class SumNorm(Norm):
    """A norm that is given by its terms: Omega is their sum, Omega_* the largest dual norm."""

    @final
    def value(self, coef: Array) -> float:
        """Omega of coefficients; inf where the norm of a group is."""
        return float(self.group_norms(coef).sum())

    @final
    def dual(self, V: Array) -> float:
        """Omega_* of V."""
        return float(self.dual_norms(V).max())


class ConjugatedNorm(Norm):
    """A norm whose dual is another norm of this package, with a bound over an enclosure."""

    @property
    @abstractmethod
    def conjugate(self) -> ConjugatedNorm:
        """The dual norm."""

    @abstractmethod
    def _bound(self, A: Enclosure) -> float:
        """Return an upper bound on the norm of all arrays in an enclosure of entries up to 1."""

    @final
    def bound(self, A: Enclosure) -> float:
        """Return an upper bound on the norm of all arrays in an enclosure."""
        # Over a power of two, so that no square or power overflows.
        scaled, exponent = A.scaled()
        return float(ldexp_up(self._bound(scaled), exponent))

    @final
    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        return self.bound(exactly(coef))

    @final
    def dual(self, V: Array) -> float:
        """Omega_* of V."""
        return self.conjugate.value(V)


class UndividedNorm(OneGroupNorm, ConjugatedNorm):
    """A norm whose dual is another norm of this package, in one group."""

    @final
    def dual_bounds(self, V: Enclosure) -> Array:
        """Return an upper bound on Omega_*, shape (1,)."""
        return np.array([self.conjugate.bound(V)])


def exactly(values: Array) -> Enclosure:
    """Return numbers as an enclosure of radius 0: rounding has no part in them."""
    return Enclosure(values, np.zeros_like(values))
