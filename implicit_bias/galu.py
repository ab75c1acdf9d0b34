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

import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from implicit_bias.gating import GateMatrix, RandomState, UnitGates, dense
from implicit_bias.problem import RANK_TOLERANCE
from implicit_bias.validation import Array, as_features, as_finite

# Matrix Chernoff: the smallest eigenvalue falls below half of its mean with probability at most
# m (2 / e)^(mean / (2 R)), so with exponent mean / R times this number.
HALVING = (1.0 - math.log(2.0)) / 2.0
# Cosines this near to 1 or -1 are taken for it: rounding alone keeps parallel inputs from it, and
# the square root that the arc cosine has there would raise 1e-16 to 1e-8.
PARALLEL = 1e-14
# Largest q of the bound on lambda(X): inputs that nearly coincide would ask for 1 / (1 - mu) terms.
MAX_POWER = 10**5
# Digits of parity correlations beyond the 2^-d to which the terms of their sum cancel.
GUARD_DIGITS = 30


# --- least squares ---------------------------------------------------------------------------


def gated_gram(X: Array, gates: GateMatrix) -> Array:
    """K = (X X') o (Z Z'), shape (m, m), of inputs X (m, D) and their gates Z (m, k)."""
    return (X @ X.T) * dense(gates @ gates.T)


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
    _check_rows(X=len(X), gates=gates.shape[0], y=len(y))
    values, vectors = positive_eigen(gated_gram(X, gates))
    inside = vectors.T @ y  # (r,)
    dual = vectors @ (inside / values)  # K^+ y
    coef = np.asarray(gates.T @ (X * dual[:, None]))
    residual = y - vectors @ inside
    return LeastSquares(coef, len(values), float(residual @ residual / len(y)))


def expected_loss(rank: int, n_samples: int) -> float:
    """1 - r/m: the mean loss of least squares on independent targets of mean 0 and variance 1.

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


def _check_rows(**rows: int) -> None:
    if len(set(rows.values())) > 1:
        counts = ", ".join(map(str, rows.values()))
        raise ValueError(f"{', '.join(rows)} must have one row a sample, got {counts} rows")


def positive_eigen(gram: Array) -> tuple[Array, Array]:
    """Positive eigenvalues (r,) of a Gram matrix (m, m) and their eigenvectors (m, r)."""
    values, vectors = scipy.linalg.eigh(gram)
    keep = values > RANK_TOLERANCE * max(values[-1], 0.0)
    return values[keep], vectors[:, keep]


# --- the kernel of infinitely many hard gates ------------------------------------------------


def limit_kernel(X: ArrayLike, others: ArrayLike | None = None) -> Array:
    """Kappa between the rows of X (n, D) and those of ``others`` (n', D): shape (n, n').

    The probability that a random filter is open on both inputs, times their inner product. It is
    the mean of the gated kernel over isotropic filters with threshold 0, so K / k converges to it
    at the rate 1 / sqrt(k), whatever the scale of the filters and of the inputs.
    """
    X = as_finite(X, "X", 2)
    others = X if others is None else as_features(others, X.shape[1])
    inner = X @ others.T
    sizes = np.outer(np.linalg.norm(X, axis=1), np.linalg.norm(others, axis=1))
    cosines = np.divide(inner, sizes, out=np.zeros_like(inner), where=sizes > 0)
    angles = np.arccos(without_rounding(cosines))
    return np.asarray((0.5 - angles / (2 * math.pi)) * inner)


def without_rounding(cosines: Array) -> Array:
    """Put cosines that rounding keeps from -1 or 1 there."""
    return np.where(np.abs(cosines) > 1.0 - PARALLEL, np.sign(cosines), cosines)


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


# --- gradient descent ------------------------------------------------------------------------


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
    _check_rows(X=len(X), gates=gates.shape[0], y=len(y))
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


# --- better filters, and more outputs --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FilterSearch:
    """Filters that random improvement has found.

    Attributes
    ----------
    gating : UnitGates
        The filters.
    losses : ndarray of shape (proposals + 1,)
        Training loss of least squares before the search and after each proposal.
    """

    gating: UnitGates
    losses: Array


def improve_filters(
    gating: UnitGates,
    X: ArrayLike,
    y: ArrayLike,
    *,
    proposals: int,
    random_state: RandomState = None,
) -> FilterSearch:
    r"""Redraw one filter after the other, and keep what does not raise the least-squares loss.

    The paper's algorithm 1. There every proposal is a new least-squares problem in k D features.
    Here it changes a projector P by rank 2 D. With the singular vectors Phi = U S V' of the
    current features,

        what filter h alone contributes:  E, a basis of U S^-1 q, q the right singular vectors
                                          of V_h (D, r) whose singular value is 1,
        what the new one adds:            F, a basis of (I - P + E E') (z_new o X),
        loss of the proposal:             (||y||^2 - ||U'y||^2 + ||E'y||^2 - ||F'y||^2) / m,

    at cost O(m r D) in place of O(m (k D)^2); only an accepted one is factorised. (V'V = I, so
    such a q lies in the null space of all other V_g', and U S^-1 q is orthogonal to all other
    features.) Dependent features are no exception: there are fewer q then.

    Parameters
    ----------
    gating : UnitGates
        Filters to begin with; new ones are Gaussian, of the same thresholds. An always-on unit
        is kept.
    X : array_like of shape (m, D)
        Inputs.
    y : array_like of shape (m,)
        Targets.
    proposals : int
        How often a random filter is redrawn.
    random_state : int, numpy Generator or None
        Seed.

    Raises
    ------
    ValueError
        NaN, or a number of features or targets that does not fit.
    """
    X, y = as_features(X, gating.n_features), as_finite(y, "y", 1)
    _check_rows(X=len(X), y=len(y))
    rng = np.random.default_rng(random_state)
    n_filters, n_features = gating.weights.shape
    losses = np.empty(proposals + 1)
    U, S, V = _features_svd(X, gating)
    losses[0] = loss = _share_outside(y, U)
    for proposal in range(1, proposals + 1):
        h = int(rng.integers(n_filters))
        weights = gating.weights.copy()
        weights[h] = rng.normal(size=n_features)
        proposed = replace(gating, weights=weights)
        block = proposed.gates(X)[:, h, None] * X
        _, sizes, own = np.linalg.svd(V[h], full_matrices=False)  # V_h (D, r)
        # Its cosine: what all other filters add is then below a millionth.
        alone = own[sizes > 1.0 - RANK_TOLERANCE]
        E = U @ np.linalg.qr((alone / S).T)[0]
        added = _basis_outside(block, U, E)
        candidate = loss + float(np.sum((E.T @ y) ** 2) - np.sum((added.T @ y) ** 2)) / len(y)
        if candidate <= loss:
            gating = proposed
            U, S, V = _features_svd(X, gating)
            loss = _share_outside(y, U)  # not the candidate: no error builds up
        losses[proposal] = loss
    return FilterSearch(gating, losses)


def _features_svd(X: Array, gating: UnitGates) -> tuple[Array, Array, Array]:
    """U (m, r), S (r,) and V (k, D, r) of the features z_h(x) x_d = U S V'."""
    gates = gating.gates(X)
    U, sizes, Vt = np.linalg.svd(gated_features(X, gates), full_matrices=False)
    keep = sizes > np.sqrt(RANK_TOLERANCE) * sizes[0]
    return U[:, keep], sizes[keep], Vt[keep].T.reshape(gates.shape[1], X.shape[1], -1)


def _share_outside(y: Array, U: Array) -> float:
    """Mean square of what of y (m,) lies outside the range of U (m, r)."""
    residual = y - U @ (U.T @ y)
    return float(residual @ residual / len(y))


def _basis_outside(block: Array, U: Array, E: Array) -> Array:
    """Orthonormal basis (m, <= D) of (I - U U' + E E') block."""
    outside = block
    for _ in range(2):  # twice is enough for orthogonality to rounding
        outside = outside - U @ (U.T @ outside) + E @ (E.T @ outside)
    basis, sizes, _ = np.linalg.svd(outside, full_matrices=False)
    return basis[:, sizes > np.sqrt(RANK_TOLERANCE) * np.linalg.norm(block)]


@dataclass(frozen=True, eq=False)
class VectorGaLU:
    """A GaLU network f(x) = B (z(x) o A x) with several outputs.

    Attributes
    ----------
    hidden : ndarray of shape (k, D)
        A.
    readout : ndarray of shape (p, k)
        B.
    losses : ndarray of shape (iterations + 1,)
        Mean squared error over samples and outputs, before the first iteration and after each.
    """

    hidden: Array
    readout: Array
    losses: Array

    def decision(self, X: Array, gates: GateMatrix) -> Array:
        """f(x_n), shape (n, p), of inputs X (n, D) and their gates (n, k)."""
        return _hidden_outputs(X, gates, self.hidden) @ self.readout.T


def alternating_search(
    X: ArrayLike,
    gates: GateMatrix,
    Y: ArrayLike,
    *,
    iterations: int,
    random_state: RandomState = None,
) -> VectorGaLU:
    r"""Fit several outputs by alternating convex search: the readout, then the hidden layer.

    Each half is a least-squares problem, solved exactly (with the smallest norm), so the loss
    never rises; it need not reach the smallest one. In the hidden layer the normal equations are
    ((B'B) o blocks of Phi'Phi) vec(A) = Phi' (Y B), k D of them.

    Parameters
    ----------
    X : array_like of shape (m, D)
        Inputs.
    gates : ndarray or CSR array of shape (m, k)
        Their gates.
    Y : array_like of shape (m, p)
        Targets.
    iterations : int
        Of both halves.
    random_state : int, numpy Generator or None
        Seed of the initial A, whose entries are N(0, 1/D).

    Raises
    ------
    ValueError
        NaN, or numbers of rows that differ.
    """
    X, Y = as_finite(X, "X", 2), as_finite(Y, "Y", 2)
    _check_rows(X=len(X), gates=gates.shape[0], Y=len(Y))
    rng = np.random.default_rng(random_state)
    n_units, n_features = gates.shape[1], X.shape[1]
    Z = dense(gates)
    features = gated_features(X, Z)
    covariance = features.T @ features
    A = rng.normal(0.0, 1.0 / math.sqrt(n_features), (n_units, n_features))
    losses = np.empty(iterations + 1)
    B: Array = np.zeros((Y.shape[1], n_units))
    losses[0] = np.mean(Y**2)
    for iteration in range(1, iterations + 1):
        B = np.asarray(np.linalg.lstsq(_hidden_outputs(X, Z, A), Y, rcond=None)[0].T)
        coupling = np.kron(B.T @ B, np.ones((n_features, n_features)))
        pulled = (Z * (Y @ B)).T @ X  # (k, D)
        values, vectors = positive_eigen(coupling * covariance)
        A = (vectors @ ((vectors.T @ pulled.reshape(-1)) / values)).reshape(A.shape)
        losses[iteration] = np.mean((Y - _hidden_outputs(X, Z, A) @ B.T) ** 2)
    return VectorGaLU(A, B, losses)


def _hidden_outputs(X: Array, gates: GateMatrix, hidden: Array) -> Array:
    """Compute z(x) o A x, the outputs (m, k) of the hidden layer."""
    return dense(gates) * (X @ hidden.T)


# --- parities --------------------------------------------------------------------------------


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
        d, at least 2.

    Raises
    ------
    ValueError
        d below 2.
    """
    d = n_inputs
    if d < 2:
        raise ValueError(f"n_inputs must be at least 2, got {d}: one bit is its own parity")
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
