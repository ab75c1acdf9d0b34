"""What Fiat, Malach and Shalev-Shwartz (2019) prove of GaLU networks with many gates.

Symbols are those of `implicit_bias.kernels.gated_least_squares`, which has the kernel, the width of
lemma 1 and the losses of gradient descent.

==========================  =====================================================================
statement                   here
==========================  =====================================================================
Lemma 2                     `khatri_rao_bound`
Theorem 1                   `published_step`, `sufficient_steps`; the sharper `rate_bound`
Theorem 2                   `expected_loss`
not in the paper            `coherence_bound`, the constant 1/4 of `eigenvalue_bound`
==========================  =====================================================================

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity", arXiv:1906.05032 (2019);
numbers of statements are that version's. Theorem 2 is theorem 1 of the submission of 2018.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array, as_finite
from implicit_bias.kernels.dual_kernels import NEARLY_UNIT, unit_rows
from implicit_bias.kernels.gated_least_squares import smallest_eigenvalue, spectral_square
from implicit_bias.kernels.least_squares import check_rows
from implicit_bias.problem.gating import GateMatrix, dense

# Largest q of the bound on lambda(X): inputs that nearly coincide would ask for 1 / (1 - mu) terms.
MAX_POWER = 10**5


def expected_loss(rank: int, n_samples: int) -> float:
    """1 - r/m: the mean loss of least squares on independent N(0, 1) targets (theorem 2).

    The residual is (I - P) y with P the projector on the r-dimensional range of K, and
    E ||(I - P) y||^2 = tr(I - P), for any inputs and gates. Only mean 0, variance 1 and no
    correlation of the targets are used.
    """
    return 1.0 - rank / n_samples


def khatri_rao_bound(X: ArrayLike) -> float:
    r"""Bound lambda(X) from below by sigma_min(X * X)^2 / (2 pi), for rows of norm 1.

    X * X is the row-wise Khatri-Rao product (m, D^2), so its Gram matrix is (X X') o (X X'). This
    is the middle step of lemma 2 (from Oymak and Soltanolkotabi 2019). It is the term t^2 / (2 pi)
    of the series of kappa alone, and 0 for m > D (D + 1) / 2.

    Raises
    ------
    ValueError
        Rows whose norm is not 1.
    """
    return max(0.0, _smallest(_unit_gram(X) ** 2)) / (2 * math.pi)


def eigenvalue_bound(X: ArrayLike) -> float:
    r"""Bound lambda(X) from below, for rows of norm 1: the larger of two bounds.

    The first sharpens `khatri_rao_bound`. (Not in the paper; derived here.) With G = X X' and
    kappa = sum_p c_p G^(o p), all c_p >= 0 and sum_p c_p = 1/2, c_1 = 1/4: by Schur's theorem no
    elementwise power G^(o p), p >= 2, has a smaller eigenvalue than G o G, as both factors of
    G^(o p) = (G o G) o G^(o (p - 2)) are positive semi-definite and the second has ones on its
    diagonal. So

        lambda(X) >= (lambda_min(G) + lambda_min(G o G)) / 4,

    pi / 2 times the paper's bound at least. The second is `coherence_bound`.

    Raises
    ------
    ValueError
        Rows whose norm is not 1.
    """
    gram = _unit_gram(X)
    powers = max(0.0, _smallest(gram)) + max(0.0, _smallest(gram**2))
    return max(powers / 4, coherence_bound(X))


def coherence_bound(X: ArrayLike) -> float:
    r"""Bound lambda(X) from below by the coherence of the rows of X (m, D), of norm 1.

    kappa(t) = t/4 + t arcsin(t) / (2 pi) = sum_p c_p t^p with all c_p >= 0. Schur powers of a
    Gram matrix are positive semi-definite, and by Gershgorin's theorem the p-th has no eigenvalue
    below 1 - (m - 1) mu^p, mu = max_{i != j} |<x_i, x_j>|. So for every q

        lambda(X) >= sum_{p > q} c_p (1 - (m - 1) mu^p),

    and the q that leaves out the negative terms is best, up to `MAX_POWER`. So the bound is 0 only
    where two inputs are equal or opposite, or nearly so. (Not in the paper; derived here.)

    Raises
    ------
    ValueError
        Rows whose norm is not 1.
    """
    gram = _unit_gram(X)
    np.fill_diagonal(gram, 0.0)
    n, mu = len(gram), min(float(np.abs(gram).max()), 1.0)
    diagonal, apart = 0.5, mu / 4 + mu * math.asin(mu) / (2 * math.pi)  # sums over all p
    for p, c in _kappa_series():
        if (n - 1) * mu**p <= 1.0 or p > MAX_POWER:
            break
        diagonal -= c
        apart -= c * mu**p
    return max(0.0, diagonal - (n - 1) * apart)


def _unit_gram(X: ArrayLike) -> Array:
    X = unit_rows(X, tolerance=NEARLY_UNIT)
    return X @ X.T


def _smallest(symmetric: Array) -> float:
    """Smallest eigenvalue of a symmetric matrix, less what rounding may have added."""
    values = scipy.linalg.eigvalsh(symmetric)
    return float(values[0] - len(values) * np.finfo(np.float64).eps * values[-1])


def _kappa_series() -> Iterator[tuple[int, float]]:
    """Powers p and coefficients c_p of kappa(t) = t/4 + t arcsin(t) / (2 pi)."""
    yield 1, 0.25
    ratio, j = 1.0, 0  # (2j)! / (4^j j!^2)
    while True:
        yield 2 * j + 2, ratio / (2 * j + 1) / (2 * math.pi)
        ratio *= (2 * j + 1) / (2 * j + 2)
        j += 1


def published_step(X: ArrayLike, n_units: int) -> float:
    """1 / (k R), the step of theorem 1 for `gradient_descent`, known without the gates.

    The paper's step is m / (k R) on F = ||Xbar w - y||^2 / (2 m), m times smaller than the
    objective here. It is at most 1 / lambda_max(K), as K is a sum of k matrices of norm R at most.
    """
    return 1.0 / (n_units * spectral_square(X))


def sufficient_steps(X: ArrayLike, n_units: int, *, distance_square: float, accuracy: float) -> int:
    """Theorem 1's number of steps t = (2 R / lambda) log(k R ||w_0 - w*||^2 / (m eps)).

    From then on F(w_t) <= eps, F half the mean squared error, with the probability and the width
    of lemma 1, by the step `published_step`.

    Parameters
    ----------
    X : array_like of shape (m, D)
        Inputs.
    n_units : int
        k.
    distance_square : float
        ||w_0 - w*||^2, w* the minimum-norm solution. Where k D > m, w_0 must be in the row space
        of Phi, as 0 is: what w_0 has in the null space never decays.
    accuracy : float
        eps.
    """
    X = as_finite(X, "X", 2)
    largest, smallest = spectral_square(X), smallest_eigenvalue(X)
    ratio = n_units * largest * distance_square / (len(X) * accuracy)
    return max(0, math.ceil(2 * largest / smallest * math.log(ratio)))


def gradient_descent(
    X: ArrayLike, gates: GateMatrix, y: ArrayLike, *, step_size: float, steps: int
) -> Array:
    """Descend from W = 0 on 1/2 sum_n (y_n - f(x_n))^2.

    Parameters
    ----------
    X, gates, y
        As in `least_squares`.
    step_size : float
        eta. From 2 / lambda_max(K) on the losses grow without end.
    steps : int
        Their number.

    Returns
    -------
    ndarray of shape (steps + 1,)
        Losses before the first step and after each: means of squares, as in `LeastSquares`.

    Raises
    ------
    ValueError
        NaN, or numbers of rows that differ.
    """
    X, y = as_finite(X, "X", 2), as_finite(y, "y", 1)
    check_rows(X=len(X), gates=gates.shape[0], y=len(y))
    Z = dense(gates)
    coef = np.zeros((Z.shape[1], X.shape[1]))
    losses = np.empty(steps + 1)
    for step in range(steps + 1):
        residual = y - np.einsum("nk,nk->n", Z, X @ coef.T)
        losses[step] = residual @ residual / len(y)
        coef += step_size * (Z.T @ (X * residual[:, None]))
    return losses


def rate_bound(eigenvalue: float, *, step_size: float, steps: int) -> Array:
    """Bound (1 - eta l)^(2t) on loss_t / loss_0, shape (steps + 1,), l <= lambda_min(K).

    For step sizes eta <= 1 / lambda_max(K). With l = k lambda(X) / 2, the width of
    `sufficient_width` and the step `published_step` it is (1 - lambda / (2 R))^(2t) and holds
    before any filter is drawn, but with the probability given there. (Not in the paper; derived
    here. Theorem 1 has exp(-t lambda / (2 R)) k R ||w_0 - w*||^2 / m for F itself.)
    """
    return np.asarray((1.0 - step_size * eigenvalue) ** (2 * np.arange(steps + 1)))
