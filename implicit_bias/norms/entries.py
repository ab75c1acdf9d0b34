"""Norms of entries: l1, l2, l_inf and all powers between."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from implicit_bias.base.rounding import (
    SAFETY,
    Enclosure,
    gamma,
)
from implicit_bias.base.validation import (
    Array,
    check_number,
)
from implicit_bias.norms.norm import ConjugatedNorm, InnerNorm, Partition, Shape

# A power takes this many roundings at most.
POWER_ROUNDINGS = 8


class _Entrywise(ConjugatedNorm):
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
    def conjugate(self) -> ConjugatedNorm:
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
