r"""GaLU networks: fixed gates times a linear map, fitted by least squares.

    f(x) = sum_h z_h(x) <w_h, x>,   z_h(x) = sigma(<u_h, x>) with filters u_h that are not trained

is linear in the coefficients, so the least-squares problem

    minimise  1/m sum_n (y_n - f(x_n))^2        (smallest ||W|| where there is a choice)

has a closed form through the masked Gram matrix K that also stands behind the margin problem; the
feature matrix Phi (m, k D) is never formed for it.

=========  ==========  ======================================================================
X          (m, D)      inputs
Z          (m, k)      gates, any real numbers: `Gating.gates`
y          (m,)        targets
W          (k, D)      coefficients w_h; the minimum-norm ones are Phi^+ y
K          (m, m)      gated Gram matrix (X X') o (Z Z') = Phi Phi'
r                      rank of K, at most min(m, k D); equal for Gaussian inputs and filters
kappa                  limit of K / k for hard gates, isotropic filters and many of them:
                       kappa(x, x') = (1/2 - arccos(cos(x, x')) / (2 pi)) <x, x'>
lambda(X)              smallest eigenvalue of kappa on the rows of X
=========  ==========  ======================================================================

What is the paper's: the model; the expected loss 1 - r/m of random targets; kappa; the widths of
order m/d, up to logarithms, that suffice to memorise, and the linear rate of gradient descent that
follows from lambda(X); random-filter improvement and alternating convex search (their published
code). What is ours: all constants, which come from the textbook inequality that each docstring
names, and the statements on parities.

Source: Fiat, Malach, Shalev-Shwartz (2019), "Decoupling Gating from Linearity", arXiv:1906.05032,
and their submission to ICLR 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from implicit_bias.gating import GateMatrix, dense
from implicit_bias.masked_gram import masked_gram
from implicit_bias.norms import RANK_TOLERANCE
from implicit_bias.theory.dual_kernels import arc_cosine_kernel, gradient_kernel
from implicit_bias.validation import Array, as_features, as_finite

# Matrix Chernoff: the smallest eigenvalue falls below half of its mean with probability at most
# m (2 / e)^(mean / (2 R)), so with exponent mean / R times this number.
HALVING = (1.0 - math.log(2.0)) / 2.0
# Largest q of the bound on lambda(X): inputs that nearly coincide would ask for 1 / (1 - mu) terms.
MAX_POWER = 10**5


def gated_gram(X: Array, gates: GateMatrix) -> Array:
    """K = (X X') o (Z Z'), shape (m, m), of inputs X (m, D) and their gates Z (m, k)."""
    return masked_gram(X, dense(gates))


def gated_features(X: Array, gates: Array) -> Array:
    """Phi, shape (m, k D), of inputs X (m, D) and their gates (m, k).

    Row-major: column h * D + d is feature d of unit h.
    """
    return (gates[:, :, None] * X[:, None, :]).reshape(len(X), -1)


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The minimum-norm least-squares solution.

    Attributes
    ----------
    coef : ndarray of shape (k, D)
        W, for `implicit_bias.problem.gated_linear`.
    rank : int
        r, the numerical rank of K.
    loss : float
        Mean squared error on the training samples.
    """

    coef: Array
    rank: int
    loss: float


def least_squares(X: ArrayLike, gates: GateMatrix, y: ArrayLike) -> LeastSquares:
    """Fit targets by the coefficients of smallest norm among those of smallest squared error.

    Parameters
    ----------
    X : array_like of shape (m, D)
        Inputs.
    gates : ndarray or CSR array of shape (m, k)
        Their gates.
    y : array_like of shape (m,)
        Targets, any real numbers.

    Returns
    -------
    LeastSquares
        Eigenvalues of K below 1e-12 of the largest count as 0, so features whose singular value
        is below a millionth of the largest are left out.

    Raises
    ------
    ValueError
        NaN, or numbers of rows that differ.
    """
    X, y = as_finite(X, "X", 2), as_finite(y, "y", 1)
    check_rows(X=len(X), gates=gates.shape[0], y=len(y))
    values, vectors = positive_eigen(gated_gram(X, gates))
    inside = vectors.T @ y  # (r,)
    dual = vectors @ (inside / values)  # K^+ y
    coef = np.asarray(gates.T @ (X * dual[:, None]))
    residual = y - vectors @ inside
    return LeastSquares(coef, len(values), float(residual @ residual / len(y)))


def expected_loss(rank: int, n_samples: int) -> float:
    """1 - r/m: the mean loss of least squares on independent targets of mean 0 and variance 1.

    Theorem 2 of Fiat et al. (2019).

    The residual is (I - P) y with P the projector on the r-dimensional range of K, and
    E ||(I - P) y||^2 = tr(I - P), for any inputs and gates. For Gaussian inputs and filters the
    rank is min(m, k D).
    """
    return 1.0 - rank / n_samples


def gaussian_rank(n_samples: int, n_units: int, n_features: int) -> int:
    """min(m, k D): the rank of K for Gaussian inputs and filters.

    Almost surely so for sigmoid gates. Hard gates fall short where they are few: a share 2^-k of
    the samples has all gates closed, and no feature at all. So k must also exceed log2(m).
    """
    return min(n_samples, n_units * n_features)


def check_rows(**rows: int) -> None:
    """Refuse arrays of different numbers of rows, named by the keywords."""
    if len(set(rows.values())) > 1:
        counts = ", ".join(map(str, rows.values()))
        raise ValueError(f"{', '.join(rows)} must have one row a sample, got {counts} rows")


def positive_eigen(gram: Array) -> tuple[Array, Array]:
    """Positive eigenvalues (r,) of a Gram matrix (m, m) and their eigenvectors (m, r)."""
    values, vectors = scipy.linalg.eigh(gram)
    keep = values > RANK_TOLERANCE * max(values[-1], 0.0)
    return values[keep], vectors[:, keep]


def limit_kernel(X: ArrayLike, others: ArrayLike | None = None) -> Array:
    """Kappa between the rows of X (n, D) and those of ``others`` (n', D): shape (n, n').

    The probability that a random filter is open on both inputs, times their inner product. It is
    the mean of the gated kernel over isotropic filters with threshold 0, so K / k converges to it
    at the rate 1 / sqrt(k), whatever the scale of the filters and of the inputs.
    """
    X = as_finite(X, "X", 2)
    others = X if others is None else as_features(others, X.shape[1])
    lengths = (np.linalg.norm(X, axis=1), np.linalg.norm(others, axis=1))
    return gradient_kernel(X @ others.T, arc_cosine_kernel, lengths)


def smallest_eigenvalue(X: ArrayLike) -> float:
    """lambda(X): the smallest eigenvalue of kappa on the rows of X (m, D).

    It is 0 in three cases alone (ours): an input is 0; two inputs point in the same direction; or
    those inputs whose opposites occur, too, are linearly dependent, one of each pair taken. For
    kappa has all even powers of the cosine, which tell any two lines apart, but of the odd ones,
    which tell an input from its opposite, the first alone.
    """
    return float(scipy.linalg.eigvalsh(limit_kernel(X), subset_by_index=[0, 0])[0])


def eigenvalue_bound(X: ArrayLike) -> float:
    r"""Bound lambda(X) from below by the coherence of the rows of X (m, D), of norm 1.

    kappa(t) = t/4 + t arcsin(t) / (2 pi) = sum_p c_p t^p with all c_p >= 0. Schur powers of a
    Gram matrix are positive semi-definite, and by Gershgorin's theorem the p-th has no eigenvalue
    below 1 - (m - 1) mu^p, mu = max_{i != j} |<x_i, x_j>|. So for every q

        lambda(X) >= sum_{p > q} c_p (1 - (m - 1) mu^p),

    and the q that leaves out the negative terms is best, up to `MAX_POWER`. So the bound is 0 only
    where two inputs are equal or opposite, or nearly so. The inequality and its constants are ours.

    Raises
    ------
    ValueError
        Rows whose norm is not 1.
    """
    X = as_finite(X, "X", 2)
    gram = X @ X.T
    if not np.allclose(np.diag(gram), 1.0):
        raise ValueError("the bound is for rows of norm 1: divide each row of X by its norm")
    np.fill_diagonal(gram, 0.0)
    n, mu = len(X), min(float(np.abs(gram).max()), 1.0)
    diagonal, apart = 0.5, mu / 4 + mu * math.asin(mu) / (2 * math.pi)  # sums over all p
    for p, c in _kappa_series():
        if (n - 1) * mu**p <= 1.0 or p > MAX_POWER:
            break
        diagonal -= c
        apart -= c * mu**p
    return max(0.0, diagonal - (n - 1) * apart)


def _kappa_series() -> Iterator[tuple[int, float]]:
    """Powers p and coefficients c_p of kappa(t) = t/4 + t arcsin(t) / (2 pi)."""
    yield 1, 0.25
    ratio, j = 1.0, 0  # (2j)! / (4^j j!^2)
    while True:
        yield 2 * j + 2, ratio / (2 * j + 1) / (2 * math.pi)
        ratio *= (2 * j + 1) / (2 * j + 2)
        j += 1


def sufficient_width(X: ArrayLike, failure: float = 0.01) -> int:
    r"""Count the filters k at which K is positive definite, so that all targets are memorised.

    K is a sum of independent positive semi-definite matrices, one a filter, of mean kappa and of
    norm at most R = ||X||_2^2. By the matrix Chernoff inequality (Tropp 2012, theorem 1.1)

        P(lambda_min(K) <= k lambda(X) / 2) <= m exp(-c k lambda(X) / R),  c = (1 - log 2) / 2,

    so k = R log(m / failure) / (c lambda(X)) filters have lambda_min(K) >= k lambda(X) / 2 but
    with probability ``failure``. For random inputs on the sphere R is of the order of m/d and
    lambda(X) of that of 1: this is the paper's m/d up to logarithms, with our constants.

    Raises
    ------
    ValueError
        ``failure`` not in (0, 1), or lambda(X) = 0: see `smallest_eigenvalue`.
    """
    X = as_finite(X, "X", 2)
    if not 0 < failure < 1:
        raise ValueError(f"failure is a probability, in (0, 1), got {failure!r}")
    smallest, largest = smallest_eigenvalue(X), float(np.linalg.norm(X, 2) ** 2)
    if smallest <= RANK_TOLERANCE * largest:
        raise ValueError(
            "lambda(X) is 0, so no number of hard gates memorises all targets: an input is 0, two "
            "point in the same direction, or too many occur with their opposites; drop duplicates, "
            "or append a constant"
        )
    return math.ceil(largest * math.log(len(X) / failure) / (HALVING * smallest))


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


def predicted_losses(
    gram: Array, residual: ArrayLike, *, step_size: float, steps: NDArray[np.int64]
) -> Array:
    """Predict the losses of gradient descent on a model that is linear in what it trains.

    Such as `gradient_descent`. With a Gram matrix K = sum_i l_i v_i v_i' of the features the
    residual after t steps is (I - eta K)^t r_0, so the mean squared loss is

        1/m sum_i (1 - eta l_i)^(2t) <v_i, r_0>^2.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        K; for a network that is nearly linear, the Gram matrix of its gradients at the start.
    residual : array_like of shape (m,)
        r_0, targets less outputs at the start, or the opposite.
    step_size : float
        eta, below 2 / l_max.
    steps : ndarray of int, shape (T,)
        Steps t at which to predict.

    Returns
    -------
    ndarray of shape (T,)

    Raises
    ------
    ValueError
        A step size that is too long to descend, or a residual that does not fit K.
    """
    residual = as_finite(residual, "residual", 1)
    if len(residual) != len(gram):
        raise ValueError(
            f"residual has {len(residual)} entries for {len(gram)} samples of the Gram matrix"
        )
    values, vectors = scipy.linalg.eigh(gram)
    if not 0 < step_size < 2 / values[-1]:
        raise ValueError(
            f"step_size must be in (0, 2 / l_max) = (0, {2 / values[-1]:.3g}), got {step_size}"
        )
    energy = (vectors.T @ residual) ** 2 / len(residual)
    factors = np.abs(1.0 - step_size * values)[None, :] ** (2 * steps[:, None])
    return np.asarray(factors @ energy)


def rate_bound(eigenvalue: float, *, step_size: float, steps: int) -> Array:
    """Bound (1 - eta l)^(2t) on loss_t / loss_0, shape (steps + 1,), l <= lambda_min(K).

    For step sizes eta <= 1 / lambda_max(K). With l = k lambda(X) / 2 and the width of
    `sufficient_width` it holds before any filter is drawn, but with the probability given there.
    """
    return np.asarray((1.0 - step_size * eigenvalue) ** (2 * np.arange(steps + 1)))
