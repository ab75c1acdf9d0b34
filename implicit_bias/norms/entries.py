r"""Norms of entries: l1, l2, l_inf and all powers between.

Omega(zeta) = (sum_j |zeta_j|^p)^(1/p),     Omega_* is the same of q = p / (p - 1).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from implicit_bias.base.rounding import SAFETY, Enclosure, gamma
from implicit_bias.base.validation import Array, check_number
from implicit_bias.norms.norm import Partition, Shape, UndividedNorm


class Entrywise(UndividedNorm):
    """A root of the sum of powers of absolute values.

    Value and maximiser are made of operations that numpy's arrays and torch's tensors share.

    Attributes
    ----------
    exponent : float
        The p of the head, 1 to infinity.
    """

    @property
    @abstractmethod
    def exponent(self) -> float:
        """The p of the head, 1 to infinity."""

    @property
    @abstractmethod
    def conjugate(self) -> Entrywise:
        """The norm of the conjugate exponent."""

    @final
    def value(self, coef: Array) -> float:
        """Root of the sum of powers of absolute values."""
        sizes = abs(coef)
        if self.exponent == 1:
            return float(sizes.sum())
        # Entries are divided by the largest one, so that no power over- or underflows. Without
        # entries there is no largest one.
        largest = 0.0
        if len(sizes.reshape(-1)):
            largest = float(sizes.max())
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
        signs = V / (sizes + (sizes == 0))  # 0 where V is 0
        if self.exponent == 1:
            found = 0.0 * signs
            place = np.unravel_index(int(sizes.argmax()), tuple(sizes.shape))
            found[place] = signs[place]
            return found
        # The power q - 1 is 1 / (p - 1). For p = infinity it is 0, which leaves the signs. Both
        # divisors are 1 instead of 0 where V is 0.
        largest = LInf().value(V) or 1.0
        found = signs * (sizes / largest) ** (1.0 / (self.exponent - 1.0))
        return found / (self.value(found) or 1.0)

    @final
    def _bound(self, A: Enclosure) -> float:
        if math.isinf(self.exponent):
            return self.value(A.magnitude)
        # The relative error of the powers and their sum. A power multiplies the rounding of the
        # division by p, and the root divides it by p again: it counts once.
        size = A.value.size
        of_power = 8  # the roundings of a power, at most
        of_sum = gamma(of_power + size + 4)
        # The relative error of the root. Its exponent 1 / p is rounded, and so is the p of a dual
        # norm, p / (p - 1), twice. An exponent p' in the place of p changes the norm of n entries
        # by a factor n^|1 / p - 1 / p'| at most: hence the logarithm of n.
        of_root = gamma(of_power + 4) * (1.0 + math.log(max(size, 2)))
        return self.value(A.magnitude) * (1.0 + SAFETY * (of_sum + of_root))

    @final
    def partition(self, shape: Shape) -> Partition | None:
        """Return one group per entry (l1), or one group of all (l2, l_inf)."""
        if self.exponent == 1:
            return Partition(np.arange(math.prod(shape)).reshape(shape), "linf")
        if self.exponent == 2:
            return Partition(np.zeros(shape, dtype=np.int64), "l2")
        if math.isinf(self.exponent):
            return Partition(np.zeros(shape, dtype=np.int64), "linf")
        return None

    @final
    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY."""
        return cp.pnorm(zeta, self.exponent, approx=False)


@dataclass(frozen=True)
class L1(Entrywise):
    r"""Sum of absolute values: implicit bias of coordinate descent and of boosting.

    .. math:: \Omega(\zeta) = \sum_j |\zeta_j|, \qquad \Omega_*(V) = \max_j |V_j|

    Notes
    -----
    Telgarsky (2013) for boosting; Gunasekar et al. (2018) for coordinate descent.

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
        """The largest of absolute values."""
        return LInf()


@dataclass(frozen=True)
class LInf(Entrywise):
    r"""Largest absolute value: implicit bias of sign descent and of Adam.

    .. math:: \Omega(\zeta) = \max_j |\zeta_j|, \qquad \Omega_*(V) = \sum_j |V_j|

    Notes
    -----
    Gunasekar et al. (2018) for sign descent; Zhang, Zou, Cao (2024) for Adam.

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


@dataclass(frozen=True)
class L2(Entrywise):
    r"""Root of the sum of squares (Frobenius): implicit bias of gradient descent.

    .. math:: \Omega(\zeta) = \left(\sum_j \zeta_j^2\right)^{1/2}, \qquad \Omega_* = \Omega

    Notes
    -----
    Soudry et al. (2018) for gradient descent.

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
        """L2 itself."""
        return L2()


@dataclass(frozen=True)
class Lp(Entrywise):
    r"""The p-th root of the sum of p-th powers; steepest descent in it, and mirror descent.

    .. math:: \Omega(\zeta) = \left(\sum_j |\zeta_j|^p\right)^{1/p}, \qquad
        \Omega_*(V) = \left(\sum_j |V_j|^q\right)^{1/q}, \quad 1/p + 1/q = 1

    Parameters
    ----------
    p : float
        At least 1; inf is `LInf`.

    Raises
    ------
    ValueError
        p below 1.

    Notes
    -----
    Gunasekar et al. (2018) for steepest descent; Sun et al. (2022) for mirror descent.

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
        """The power p."""
        return self.p

    @property
    def conjugate(self) -> Lp:
        """The norm of the conjugate exponent p / (p - 1), which is rounded twice."""
        return Lp(conjugate_exponent(self.p))


def conjugate_exponent(p: float) -> float:
    """Return p / (p - 1), rounded twice, which the bounds of norms count."""
    if p == 1:
        return math.inf
    if math.isinf(p):
        return 1.0
    return p / (p - 1.0)
