"""What no linear method learns of parities: Walsh coefficients, and theorem 2 of the source.

Symbols and the sharper bound are those of `implicit_bias.datasets.parities`.

Source: Daniely and Malach (2020), "Learning parities with neural networks", section 2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import Array, as_finite
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

    Raises
    ------
    ValueError
        The number of rows is no power of two.
    """
    coefficients = as_finite(values, "values", 2).copy()
    n_points, n_features = coefficients.shape
    if n_points < 1 or n_points & (n_points - 1):
        raise ValueError(f"values must have a row for each of 2^n inputs, got {n_points} rows")
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
