"""Norms of entries: l1, l2, l_inf and all powers between."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from implicit_bias.base.rounding import SAFETY, Enclosure, gamma
from implicit_bias.base.validation import Array, check_number
from implicit_bias.norms.norm import InnerNorm, Partition, Shape, UndividedNorm

# A power takes this many roundings at most.
POWER_ROUNDINGS = 8


class Entrywise(UndividedNorm):
    """A root of the sum of powers of absolute values, of one exponent.

    Value and maximiser are made of operations that numpy's arrays and torch's tensors share.

    Attributes
    ----------
    exponent : float
        Of the powers, 1 to infinity.
    exact : bool
        Whether that is a float64, so that ``exponent`` is not rounded.
    """

    exact: ClassVar[bool] = True

    @property
    @abstractmethod
    def exponent(self) -> float:
        """Of the powers, 1 to infinity."""

    @property
    @abstractmethod
    def conjugate(self) -> Entrywise:
        """That of the conjugate exponent."""

    @final
    def value(self, coef: Array) -> float:
        """Root of the sum of powers of absolute values, of which the largest is brought to 1."""
        sizes = abs(coef)
        if self.exponent == 1:
            return float(sizes.sum())
        largest = float(sizes.max()) if math.prod(sizes.shape) else 0.0
        if largest in (0.0, math.inf) or math.isinf(self.exponent):
            return largest
        shares = (sizes / largest) ** self.exponent
        return largest * float(shares.sum()) ** (1.0 / self.exponent)

    @final
    def maximiser(self, V: Array) -> Array:
        """Return sign(V) abs(V)^(q - 1) over its norm, q = p / (p - 1).

        These are the signs for p = infinity, V over its norm for p = 2, and the sign of the largest
        entry for p = 1.
        """
        sizes = abs(V)
        signs = V / (sizes + (sizes == 0))
        if self.exponent == 1:
            found = 0.0 * signs
            place = np.unravel_index(int(sizes.argmax()), tuple(sizes.shape))
            found[place] = signs[place]
            return found
        found = signs * (sizes / (LInf().value(sizes) or 1.0)) ** (1.0 / (self.exponent - 1.0))
        return found / (self.value(found) or 1.0)

    @final
    def _bound(self, A: Enclosure) -> float:
        if math.isinf(self.exponent):
            return self.value(A.magnitude)
        # The norm falls with the exponent, so one that is a little too small bounds it.
        norm = self if self.exact else Lp(max(1.0, self.exponent * (1.0 - gamma(4))))
        return norm.value(A.magnitude) * (1.0 + _power_rounding(A.value.size))

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


class _OfGivenExponent(Entrywise):
    """One whose exponent is a float64, so that the dual norm is known by it."""

    @final
    @property
    def conjugate(self) -> Entrywise:
        """The norm of the conjugate exponent."""
        return CONJUGATES.get(self.exponent) or _ConjugateLp(self.exponent)


INNER: Mapping[float, InnerNorm] = {2.0: "l2", math.inf: "linf"}


@dataclass(frozen=True)
class L1(_OfGivenExponent):
    """Sum of absolute values; where coordinate descent and boosting go.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import L1
    >>> L1().value(np.array([[3.0, -4.0]])), L1().dual(np.array([[3.0, -4.0]]))
    (7.0, 4.0)
    """

    exponent: ClassVar[float] = 1.0


@dataclass(frozen=True)
class LInf(_OfGivenExponent):
    """Largest absolute value; where sign descent and Adam go.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import LInf
    >>> LInf().value(np.array([[3.0, -4.0]])), LInf().dual(np.array([[3.0, -4.0]]))
    (4.0, 7.0)
    """

    exponent: ClassVar[float] = math.inf


@dataclass(frozen=True)
class L2(_OfGivenExponent):
    """Root of the sum of squares (Frobenius); where gradient descent goes.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import L2
    >>> L2().value(np.array([[3.0, -4.0]]))
    5.0
    """

    exponent: ClassVar[float] = 2.0


@dataclass(frozen=True)
class Lp(_OfGivenExponent):
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
        if not isinstance(self.p, int):  # a float32 would round what is made of it
            object.__setattr__(self, "p", float(self.p))

    @property
    def exponent(self) -> float:
        """The same as p."""
        return self.p


@dataclass(frozen=True)
class _ConjugateLp(Entrywise):
    """The dual of Lp(p), 1 < p < infinity: its exponent p / (p - 1) need not be a float64."""

    exact: ClassVar[bool] = False

    p: float

    @property
    def exponent(self) -> float:
        return self.p / (self.p - 1.0)

    @property
    def conjugate(self) -> Lp:
        return Lp(self.p)


CONJUGATES: Mapping[float, Entrywise] = {1.0: LInf(), 2.0: L2(), math.inf: L1()}


def _power_rounding(size: int) -> float:
    """Relative error of a norm of entries: of the powers and their sum, then of 1 / p and the root.

    The p roundings that a power makes of the division's are one again after the root.
    """
    terms = POWER_ROUNDINGS + size + 4
    return SAFETY * (gamma(terms) + gamma(POWER_ROUNDINGS + 4) * (1.0 + math.log(max(size, 2))))
