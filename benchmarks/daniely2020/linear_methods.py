r"""What no linear method learns of parities: Walsh coefficients, and theorem 2 of the source.

D_A, A and k are those of `implicit_bias.datasets.parities`.

=============  ==================  =============================================================
symbol         shape               meaning
=============  ==================  =============================================================
psi(x)         (N,)                features of a linear method in [-1, 1], fixed before A is known
w              (N,)                h(x) = <w, psi(x)>, ||w||_2 <= B
c_S            (N,)                E[chi_S(x) psi(x)] over uniform bits: Walsh coefficients
=============  ==================  =============================================================

**Linear methods.** Theorem 2 of the source: if k <= n/16, there is an A of size k for which the
hinge loss of every such h is at least 1/2 - sqrt(N) B / (sqrt(2) 2^k).
Not in the paper; derived here, without k <= n/16:

    L_{D_A}(h) >= 1/2 E_uniform[1 - y h(x)] = 1/2 - 1/2 <w, c_A> >= 1/2 - B/2 ||c_A||

for every A, because the hinge loss is neither negative nor below 1 - y h; and by Parseval the
squares ||c_A||^2 of all A of size k sum to at most N, so that the smallest is at most
N / binom(n, k) (`hinge_lower_bound` of `guaranteed_correlation`). As binom(n, k) >= (n/k)^k >= 16^k
this is below the published bound nowhere: sqrt(N) B / (2 4^k) against sqrt(N) B / (sqrt(2) 2^k).
Random features, frozen gates z(x) x and with them the SVM under the group norm, whose Omega(zeta)
is at least ||zeta||_2, are such linear methods.

Source: Daniely and Malach (2020), "Learning parities with neural networks", section 2 and 4.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import Array
from implicit_bias.datasets.parities import cube


def walsh_coefficients(values: ArrayLike) -> Array:
    """Coefficients c_S = E[chi_S(x) psi(x)] over uniform bits, by the fast Walsh transform.

    Parameters
    ----------
    values : array_like of shape (2^n, N)
        Features on all inputs, in the order of `cube`.

    Returns
    -------
    ndarray of shape (2^n, N)
        In row r those of the set S of all bits i with the binary digit 2^i in r.
    """
    coefficients = np.array(values, dtype=np.float64)
    n_points, n_features = coefficients.shape
    stride = 1
    while stride < n_points:
        # Row-major: the two values of the bit in question are `stride` rows apart.
        pairs = coefficients.reshape(-1, 2, stride, n_features)
        pairs[:, 0], pairs[:, 1] = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
        stride *= 2
    return coefficients / n_points


def sets_of_size(n_bits: int, k: int) -> NDArray[np.int64]:
    """Rows of the Walsh coefficients of all sets of k of n bits, shape (binom(n, k),)."""
    return np.flatnonzero((cube(n_bits) < 0).sum(axis=1) == k)


def published_lower_bound(n_bits: int, k: int, n_features: int, norm: ArrayLike) -> Array:
    """Theorem 2 with the source's constants: for some A no h has a smaller hinge loss on D_A.

    Parameters
    ----------
    n_bits, k : int
        n and k <= n/16.
    n_features : int
        N.
    norm : array_like
        B, the largest ||w||_2.

    Returns
    -------
    ndarray
        max(0, 1/2 - sqrt(N) B / (sqrt(2) 2^k)).

    Raises
    ------
    ValueError
        k above n/16, for which the source claims nothing.

    Examples
    --------
    >>> float(published_lower_bound(64, 4, 2, 4.0))
    0.25
    """
    if not 0 <= 16 * k <= n_bits:
        raise ValueError(f"k must be in 0 .. n/16 = {n_bits / 16:g}, got {k}")
    return np.maximum(0.0, 0.5 - math.sqrt(n_features / 2.0) / 2**k * np.asarray(norm))


def guaranteed_correlation(n_bits: int, k: int, n_features: int) -> float:
    """Bound sqrt(N / binom(n, k)) on the smallest ||c_A|| of N features in [-1, 1]."""
    return math.sqrt(n_features / math.comb(n_bits, k))


def hinge_lower_bound(correlation: ArrayLike, norm: ArrayLike) -> Array:
    """Bound the hinge loss on D_A of linear predictors of this norm from below; derived here.

    Parameters
    ----------
    correlation : array_like
        ||c_A|| of the features, or a bound on it.
    norm : array_like
        B, the largest ||w||_2.

    Returns
    -------
    ndarray
        max(0, 1/2 - B ||c_A|| / 2): proved at the head.
    """
    return np.maximum(0.0, 0.5 - 0.5 * np.asarray(norm) * np.asarray(correlation))


def hinge_loss(y: Array, outputs: Array, probabilities: Array | None = None) -> float:
    """Mean of max(0, 1 - y f(x)) over samples (m,), with these probabilities or equal ones."""
    return float(np.average(np.maximum(0.0, 1.0 - y * outputs), weights=probabilities))


def least_hinge_loss(y: Array, outputs: Array) -> float:
    """Mean hinge loss of the best multiple c f of a predictor, c >= 0: its scale is left out.

    In c the loss is convex and piecewise linear, so that the best c is 0 or a c at which one
    sample has margin 1; all are tried.
    """
    margins = np.sort(y * outputs)[::-1]
    positive = margins[margins > 0]
    # At c = 1 / positive[j] samples 0 .. j have no loss, the others 1 - c * margin.
    rest = len(margins) - 1 - np.arange(len(positive))
    losses = (rest - (margins.sum() - np.cumsum(positive)) / positive) / len(margins)
    return float(max(0.0, losses.min(initial=1.0)))
