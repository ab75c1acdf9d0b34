r"""Definition B.10 of Lippl et al. (2022): losses of a tight exponential tail.

Lippl et al. call their class the same as the exponential-like losses (B3) of Lyu and Li, which
`training.losses` checks. It is a smaller one: l decreases to 0, l' is Lipschitz, and there are
c, a, mu+, mu-, u+, u- > 0 with

    -l'(u) <= c (1 + exp(-mu+ u)) exp(-a u)   for u > u+,
    -l'(u) >= c (1 - exp(-mu- u)) exp(-a u)   for u > u-.

The logistic loss has it with c = a = mu = 1, the exponential loss on half-lines u >= u0 only (its
derivative is not Lipschitz on all of R). exp(-q^2), exp(-q^3), exp(-sqrt q) and (1+q)^-3 exp(-q)
are exponential-like by (B3) and have no tight tail. As in `training.losses`, l(q) = exp(-f(q)).

Source: Lippl, Abbott, Chung (2022), definition B.10.
"""

import math
from dataclasses import dataclass

import numpy as np

from implicit_bias.base.validation import Array
from implicit_bias.training import losses

# The tail begins in the middle of the range; what rounding may take from f', relative to it.
MIDDLE = 1e5
ROUNDING = 1e-7


@dataclass(frozen=True)
class TightTail:
    """Constants of a tight exponential tail: -l'(u) is near c exp(-a u), see the module's head.

    Attributes
    ----------
    c, a : float
        Factor and rate.
    mu_upper, mu_lower : float
        mu+ and mu-: how fast the relative deviation vanishes, above and below; infinity where
        there is none.
    """

    c: float
    a: float
    mu_upper: float
    mu_lower: float


def tight_tail(loss: losses.MarginLoss) -> TightTail:
    """Find the constants of definition B.10 numerically, on margins from 1 to 1e8.

    As with `check_exponential_like`, no finite check is a proof.

    Raises
    ------
    LossError
        -l'(u) exp(a u) has no limit that it reaches exponentially.

    Examples
    --------
    >>> from implicit_bias.training.losses import LOSSES
    >>> tail = tight_tail(LOSSES["logistic"])
    >>> round(tail.c, 6), round(tail.a, 6), tail.mu_upper
    (1.0, 1.0, inf)
    """
    q = np.geomspace(1.0, 1e8, 3200)
    f, slope = losses.f_and_slope(loss, q)
    if slope.min() <= 0:
        first = int(slope.argmin())
        raise losses.LossError(loss, "f'(q) must be positive", slope[first], q[first])
    middle = int(np.searchsorted(q, MIDDLE))
    a = float(slope[-1])
    if abs(slope[middle] - a) > ROUNDING * a:
        raise losses.LossError(
            loss,
            "f'(q) must reach its limit exponentially (definition B.10 of Lippl et al. 2022; it "
            f"must be {a:.6g}, as at the end of the range)",
            slope[middle],
            q[middle],
        )
    # log(-l'(u) exp(a u)): f and a u lose digits alike, so they are subtracted first.
    logarithm = np.log(slope) - (f - a * q)
    deviation = np.expm1(np.clip(logarithm - logarithm[middle], -losses.TAIL, losses.TAIL))
    rounding = 4.0 * np.finfo(float).eps * (f + a * q)
    rounding += rounding[middle]  # the limit's own
    late = np.abs(deviation[middle:]) > rounding[middle:]
    if late.any():
        first = middle + int(late.argmax())
        raise losses.LossError(
            loss,
            "-l'(u) exp(a u) must reach its limit exponentially (definition B.10 of Lippl et al. "
            "2022; relative deviation from its value in the middle of the range: 0)",
            deviation[first],
            q[first],
        )
    # The limit c is the value in the middle, where the deviation itself has long vanished.
    return TightTail(
        c=float(np.exp(logarithm[middle])),
        a=a,
        mu_upper=_rate(q, deviation, rounding),
        mu_lower=_rate(q, -deviation, rounding),
    )


def _rate(q: Array, deviation: Array, rounding: Array) -> float:
    """Largest mu with deviation <= exp(-mu u) wherever it is more than rounding."""
    seen = deviation > rounding
    return float(np.min(-np.log(deviation[seen]) / q[seen], initial=math.inf))
