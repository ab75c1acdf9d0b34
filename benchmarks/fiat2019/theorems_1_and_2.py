"""What Fiat, Malach and Shalev-Shwartz (2019) prove of GaLU networks with many gates.

Symbols are those of `implicit_bias.kernels.gated_least_squares`, which has the kernel and the
losses of gradient descent; R = ||X||_2^2.

==========================  =====================================================================
statement                   here
==========================  =====================================================================
Lemma 1                     `sufficient_width`
Lemma 2                     `khatri_rao_bound`
Theorem 1                   `published_step`, `sufficient_steps`; the sharper `rate_bound`
Theorem 2                   `expected_loss`
==========================  =====================================================================

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity", arXiv:1906.05032 (2019);
numbers of statements are that version's. Theorem 2 is theorem 1 of the submission of 2018.
"""

import math
from typing import Any

import numpy as np
import scipy.linalg

from implicit_bias.base.validation import Array
from implicit_bias.kernels.dual_kernels import NEARLY_UNIT, unit_rows
from implicit_bias.kernels.gated_least_squares import smallest_eigenvalue
from implicit_bias.norms import RANK_TOLERANCE
from implicit_bias.problem.gating import GateMatrix, dense

# Matrix Chernoff: the smallest eigenvalue falls below half of its mean with probability at most
# m (e / 2)^(-mean / (2 R)) = m exp(-mean / (R c)), with this c; lemma 1 is printed with 8.
CHERNOFF = 2.0 / (1.0 - math.log(2.0))
PUBLISHED_CHERNOFF = 8.0


def sufficient_width(X: Array, failure: float = 0.01, *, constant: float = CHERNOFF) -> int:
    r"""Count the filters k at which K is positive definite, so that all targets are memorised.

    K is a sum of independent positive semi-definite matrices, one a filter, of mean kappa and of
    norm at most R = ||X||_2^2. By the matrix Chernoff inequality (Tropp 2012, theorem 1.1)

        P(lambda_min(K) <= k lambda(X) / 2) <= m (e / 2)^(-k lambda(X) / (2 R)),

    so k = c R / lambda(X) log(m / failure) filters have sigma_min(Xbar)^2 = lambda_min(K) >=
    k lambda(X) / 2 but with probability ``failure``: lemma 1, where c = 8. By the inequality
    c = 2 / log(e / 2) = 6.518 suffices.

    Parameters
    ----------
    X : ndarray of shape (m, D)
        Inputs, not 0.
    failure : float
        delta, in (0, 1).
    constant : float
        c; `PUBLISHED_CHERNOFF` is the paper's.

    Raises
    ------
    ValueError
        lambda(X) = 0: see `smallest_eigenvalue`.
    """
    smallest, largest = smallest_eigenvalue(X), spectral_square(X)
    if smallest <= RANK_TOLERANCE * largest:
        raise ValueError(
            "lambda(X) is 0, so no number of hard gates memorises all targets: an input is 0, two "
            "point in the same direction, or too many occur with their opposites; drop duplicates, "
            "or append a constant"
        )
    return math.ceil(constant * largest / smallest * math.log(len(X) / failure))


def spectral_square(X: Array) -> float:
    """R = ||X||_2^2, the largest eigenvalue of X X'."""
    return float(np.linalg.norm(X, 2) ** 2)


def expected_loss(rank: Any, n_samples: Any) -> Any:
    """1 - r/m: the mean loss of least squares on independent N(0, 1) targets (theorem 2).

    The residual is (I - P) y with P the projector on the r-dimensional range of K, and
    E ||(I - P) y||^2 = tr(I - P), for any inputs and gates. Only mean 0, variance 1 and no
    correlation of the targets are used. Numbers, or columns of a table.
    """
    return 1.0 - rank / n_samples


def khatri_rao_bound(X: Array) -> float:
    r"""Bound lambda(X) from below by sigma_min(X * X)^2 / (2 pi), for rows of norm 1.

    X * X is the row-wise Khatri-Rao product (m, D^2), so its Gram matrix is (X X') o (X X'). This
    is the middle step of lemma 2 (from Oymak and Soltanolkotabi 2019). It is the term t^2 / (2 pi)
    of the series of kappa alone, and 0 for m > D (D + 1) / 2.

    Raises
    ------
    ValueError
        Rows whose norm is not 1.
    """
    X = unit_rows(X, tolerance=NEARLY_UNIT)
    values = scipy.linalg.eigvalsh((X @ X.T) ** 2)
    # Less what rounding may have added.
    smallest = values[0] - len(values) * np.finfo(np.float64).eps * values[-1]
    return max(0.0, float(smallest)) / (2 * math.pi)


def published_step(X: Array, n_units: int) -> float:
    """1 / (k R), the step of theorem 1 for `gradient_descent`, known without the gates.

    The paper's step is m / (k R) on F = ||Xbar w - y||^2 / (2 m), m times smaller than the
    objective here. It is at most 1 / lambda_max(K), as K is a sum of k matrices of norm R at most.
    """
    return 1.0 / (n_units * spectral_square(X))


def sufficient_steps(X: Array, n_units: int, *, distance_square: float, accuracy: float) -> int:
    """Theorem 1's number of steps t = (2 R / lambda) log(k R ||w_0 - w*||^2 / (m eps)).

    From then on F(w_t) <= eps, F half the mean squared error, with the probability and the width
    of lemma 1, by the step `published_step`.

    Parameters
    ----------
    X : ndarray of shape (m, D)
        Inputs.
    n_units : int
        k.
    distance_square : float
        ||w_0 - w*||^2, w* the minimum-norm solution. Where k D > m, w_0 must be in the row space
        of Phi, as 0 is: what w_0 has in the null space never decays.
    accuracy : float
        eps.
    """
    largest, smallest = spectral_square(X), smallest_eigenvalue(X)
    ratio = n_units * largest * distance_square / (len(X) * accuracy)
    return max(0, math.ceil(2 * largest / smallest * math.log(ratio)))


def gradient_descent(
    X: Array, gates: GateMatrix, y: Array, *, step_size: float, steps: int
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
    """
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
