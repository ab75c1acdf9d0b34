"""Correlation of a parity with one gated feature, exactly. Not in the paper; derived here."""

import decimal
import math
from decimal import Decimal

# Digits of parity correlations beyond the 2^-d to which the terms of their sum cancel.
GUARD_DIGITS = 30


def parity_correlation(n_inputs: int) -> float:
    r"""Root mean square of E_x[parity(x) z(x) x_i] over hard gates z, x uniform on {-1, 1}^d.

    This is the gradient of the population loss in one coefficient at W = 0, for GaLU networks and
    for ReLU networks alike (whose first gradient is that of their gates at initialisation, times
    the readout). For odd d it is 0 for every single gate with threshold 0, and stays so: such
    gates are 1/2 plus an odd function, so z(x) x_i and max(0, <w, x>) are a linear function plus
    an even one, to both of which the parity of d > 1 bits is orthogonal. For even d the mean is,
    by symmetry, a sum over the numbers j of -1 among d bits,

        E_u[.^2] = 2^-d sum_j binom(d, j) / d K_{d-1}(j) (1/2 - arccos(1 - 2j/d) / (2 pi)),

    K_{d-1}(j) = (-1)^j (d - 2j) the sum of all products of d - 1 bits. Its terms cancel to about
    2^-d, so it is computed in decimals. The statement and its proof are ours.

    Parameters
    ----------
    n_inputs : int
        d, at least 2: one bit is its own parity.
    """
    d = n_inputs
    if d % 2:
        return 0.0
    with decimal.localcontext() as context:
        context.prec = d + GUARD_DIGITS
        pi = 2 * _arcsin(Decimal(1))
        total = Decimal(0)
        for j in range(d + 1):
            # C(d, j) inputs with j bits -1; the d products of d - 1 bits sum to this.
            products = (-1) ** j * (d - 2 * j) * math.comb(d, j)
            open_on_both = Decimal("0.25") + _arcsin(Decimal(d - 2 * j) / d) / (2 * pi)
            total += products * open_on_both
        return math.sqrt(total / (d * 2**d))


def _arcsin(x: Decimal) -> Decimal:
    """Arcsine to the precision of the context."""
    t = x / (1 + (1 - x * x).sqrt())  # arcsin(x) = 2 arctan(t)
    factor = 2
    for _ in range(6):  # arctan(t) = 2 arctan(t / (1 + sqrt(1 + t^2))): a short series
        t, factor = t / (1 + (1 + t * t).sqrt()), 2 * factor
    total, power, n = t, t, 1
    while abs(power) > Decimal(10) ** -(decimal.getcontext().prec + 5):
        power *= -t * t
        n += 2
        total += power / n
    return factor * total
