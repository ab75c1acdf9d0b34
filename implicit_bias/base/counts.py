"""Counts out of a number of samples, their intervals, and paired differences between two models.

===========  ===============================================================================
symbol       meaning
===========  ===============================================================================
n            samples that both models were evaluated on
b, c         samples on which only the first, only the second model is wrong
e, d         samples on which both, or neither, are wrong; e + b + c + d = n
===========  ===============================================================================

An interval of a fraction is Wilson's score interval. The difference of two fractions on the same
samples is (b - c) / n; its interval combines the two score intervals with the correlation phi of
the errors (method 10 of Newcombe). Whether one model has the lower error is decided by McNemar's
exact test, under which b is binomial with b + c trials and probability 1/2.

Source: Wilson (1927), "Probable inference, the law of succession, and statistical inference";
Newcombe (1998), "Improved confidence intervals for the difference between binomial proportions
based on paired data"; McNemar (1947).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

# Probability with which an interval covers the fraction; 1 minus the level of the test.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Count:
    """A number of samples out of a total; as text "12 of 1,000".

    Examples
    --------
    >>> low, high = Count(12, 359).interval
    >>> print(f"{Count(12, 359).share:.3f}, between {low:.3f} and {high:.3f}")
    0.033, between 0.019 and 0.058
    >>> str(Count(12, 1000))
    '12 of 1,000'
    """

    count: int
    total: int

    def __str__(self) -> str:
        return f"{self.count:,} of {self.total:,}"

    @property
    def share(self) -> float:
        """Count / total; nan of no samples."""
        return self.count / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval of the true fraction; (0, 1) without samples."""
        from scipy.stats import binomtest  # here: a plain import of this package needs no scipy

        if not self.total:
            return 0.0, 1.0
        found = binomtest(self.count, self.total).proportion_ci(CONFIDENCE, method="wilson")
        return float(found.low), float(found.high)


@dataclass(frozen=True)
class PairedDifference:
    """How much more often the first of two models is wrong than the second.

    Attributes
    ----------
    both, only_first, only_second, neither : int
        Samples on which they are wrong.

    Examples
    --------
    >>> PairedDifference(both=3, only_first=9, only_second=1, neither=346).decided
    False
    >>> PairedDifference(both=3, only_first=19, only_second=1, neither=336).decided
    True
    """

    both: int
    only_first: int
    only_second: int
    neither: int

    @classmethod
    def of(cls, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Self:
        """Count two arrays (n,) that say on which samples each model is wrong."""
        return cls(
            both=int(np.count_nonzero(first & second)),
            only_first=int(np.count_nonzero(first & ~second)),
            only_second=int(np.count_nonzero(~first & second)),
            neither=int(np.count_nonzero(~first & ~second)),
        )

    @property
    def total(self) -> int:
        """n, the number of samples."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float:
        """Error of the first less error of the second."""
        return (self.only_first - self.only_second) / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Newcombe's interval of the difference."""
        first = Count(self.both + self.only_first, self.total)
        second = Count(self.both + self.only_second, self.total)
        low_1, high_1 = first.interval
        low_2, high_2 = second.interval
        # The distances of the two shares' ends are joined as sides of a triangle, by phi.
        down = self._joined(first.share - low_1, high_2 - second.share)
        up = self._joined(high_1 - first.share, second.share - low_2)
        return self.difference - down, self.difference + up

    @property
    def decided(self) -> bool:
        """Whether one is wrong less often, and would be if one sample had gone the other way."""
        from scipy.stats import binomtest

        more = max(self.only_first, self.only_second)
        less = min(self.only_first, self.only_second)
        # With one sample gone the other way neither would be ahead.
        if more - 1 <= less + 1:
            return False
        # McNemar: where only one model is wrong, chance would make it either with probability 1/2.
        return bool(binomtest(less + 1, more + less).pvalue <= 1 - CONFIDENCE)

    def _joined(self, below: float, above: float) -> float:
        """Return the distance of both shares together from those of each."""
        square = below**2 - 2 * self._correlation() * below * above + above**2
        # As |phi| is at most 1, rounding alone makes the square negative.
        return math.sqrt(max(square, 0.0))

    def _correlation(self) -> float:
        """Return phi of the errors, corrected for continuity where it is positive."""
        e = self.both
        b = self.only_first
        c = self.only_second
        d = self.neither
        product = (e + b) * (c + d) * (e + c) * (b + d)
        if not product:
            return 0.0
        excess: float = e * d - b * c
        if excess > 0:
            excess = max(excess - self.total / 2, 0.0)
        return excess / math.sqrt(product)
