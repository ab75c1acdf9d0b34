r"""Least squares on gated features, in closed form.

    f(x) = sum_h z_h(x) <w_h, x>

is linear in the coefficients, so the problem

    minimize  1/m sum_n (y_n - f(x_n))^2 + ridge / m ||W||^2    (ridge 0: the smallest ||W||)

has a closed form: by the masked Gram matrix K that also stands behind the margin problem, where
there are more features than samples, and by that of the features otherwise.

=========  ==========  =====================================================================
X          (m, D)      inputs
Z          (m, k)      gates, any real numbers: `Gating.gates`
y          (m,)        targets; (m, p) for several outputs, which share the gates
W          (k, D)      coefficients w_h; (p, k, D) for several outputs
Phi        (m, k D)    gated features z_h(x) x_d
K          (m, m)      gated Gram matrix (X X') o (Z Z') = Phi Phi'
r                      rank of K, at most min(m, k D)
=========  ==========  =====================================================================

Source: Fiat, Malach, Shalev-Shwartz (2019), "Decoupling Gating from Linearity": random gates that
are not trained, and least squares for what is linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike

from implicit_bias.base import validation
from implicit_bias.base.validation import Array
from implicit_bias.norms import RANK_TOLERANCE
from implicit_bias.problem import decision
from implicit_bias.problem.gating import GateMatrix, dense
from implicit_bias.problem.masked_gram import masked_gram


def gated_gram(X: Array, gates: GateMatrix) -> Array:
    """K = (X X') o (Z Z'), shape (m, m), of inputs X (m, D) and their gates Z (m, k)."""
    return masked_gram(X, np.asarray(dense(gates), dtype=np.float64))


def gated_features(X: Array, gates: Array) -> Array:
    """Phi, shape (m, k D), of inputs X (m, D) and their gates (m, k).

    Row-major: column h * D + d is feature d of unit h.
    """
    return (gates[:, :, None] * X[:, None, :]).reshape(len(X), -1)


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """A least-squares solution, and its predictor.

    Attributes
    ----------
    coef : ndarray of shape (k, D) or (p, k, D)
        W, for `implicit_bias.problem.decision`.
    rank : int
        r, the numerical rank of K.
    loss : float
        Mean squared error on the training samples and outputs.
    """

    coef: Array
    rank: int
    loss: float

    def decision(self, X: ArrayLike, gates: GateMatrix | ArrayLike) -> Array:
        """f(x_n), shape (n,) or (n, p), of inputs X (n, D) and their gates (n, k)."""
        X = validation.as_features(X, self.coef.shape[-1])
        gates = _as_gates(gates)
        check_rows(X=len(X), gates=len(gates))
        validation.check_shape(gates, "gates", (len(X), self.coef.shape[-2]), "one column a unit")
        return decision(X, gates, self.coef)


def least_squares(
    X: ArrayLike, gates: GateMatrix | ArrayLike, y: ArrayLike, *, ridge: float = 0.0
) -> LeastSquares:
    r"""Fit targets by the coefficients of smallest norm among those of smallest squared error.

    .. math:: \min_W \; \sum_n (y_n - f(x_n))^2 + \text{ridge} \, \|W\|^2, \qquad
        f(x) = \sum_h z_h(x) \langle w_h, x \rangle

    Parameters
    ----------
    X : array_like of shape (m, D)
        Inputs.
    gates : array_like or scipy sparse array of shape (m, k)
        Their gates, numbers or truth values.
    y : array_like of shape (m,) or (m, p)
        Targets, any real numbers.
    ridge : float
        Weight of ||W||^2 against the sum of squared errors.

    Returns
    -------
    LeastSquares
        Eigenvalues of K below 1e-12 of the largest count as 0, so features whose singular value
        is below a millionth of the largest are left out.

    Raises
    ------
    ValueError
        NaN, nothing in an array, numbers of rows that differ, or a negative ridge.

    Notes
    -----
    Fiat, Malach, Shalev-Shwartz (2019): random gates that are not trained.

    Examples
    --------
    >>> import numpy as np
    >>> X, gates = np.array([[1.0], [2.0], [-1.0]]), np.array([[1.0], [1.0], [0.0]])
    >>> fit = least_squares(X, gates, np.array([1.0, 2.0, 3.0]))
    >>> fit.coef, fit.rank, round(fit.loss, 6)
    (array([[1.]]), 1, 3.0)
    """
    X = validation.as_finite(X, "X", 2)
    n_axes = 2 if validation.as_numbers(y, "y").ndim == 2 else 1
    y = validation.as_finite(y, "y", n_axes)
    gates = _as_gates(gates)
    check_rows(X=len(X), gates=len(gates), y=len(y))
    validation.check_number(ridge, "ridge", "[0, inf]")
    if 0 in (X.size, gates.size, y.size):
        raise ValueError(f"nothing to fit: X has shape {X.shape}, gates {gates.shape}, y {y.shape}")
    targets = y.reshape(len(y), -1)  # (m, p)
    # The smaller one of the Gram matrices of features (k D, k D) and of samples (m, m).
    n_units = gates.shape[1]
    n_features = X.shape[1]
    if n_units * n_features < len(X):
        # W = (Phi' Phi + ridge)^-1 Phi' y, on the eigenvectors of positive eigenvalue
        features = gated_features(X, gates)
        values, vectors = positive_eigen(features.T @ features)
        flat = vectors @ ((vectors.T @ (features.T @ targets)) / (values + ridge)[:, None])
        coef = flat.T.reshape(-1, n_units, n_features)
        residual = targets - features @ flat
    else:
        # W = Phi' (K + ridge)^-1 y
        values, vectors = positive_eigen(gated_gram(X, gates))
        inside = vectors.T @ targets  # (r, p)
        dual = vectors @ (inside / (values + ridge)[:, None])  # K^+ y where there is no ridge
        coef = np.stack([gates.T @ (X * column[:, None]) for column in dual.T])
        residual = targets - vectors @ (inside * (values / (values + ridge))[:, None])
    if y.ndim == 1:
        coef = coef[0]
    return LeastSquares(coef, len(values), float(np.mean(residual**2)))


def _as_gates(gates: GateMatrix | ArrayLike) -> Array:
    """Return gates (n, k) as numbers: products of truth values or small integers are such again."""
    if sp.issparse(gates):
        gates = sp.csr_array(gates).toarray()
    return validation.as_finite(gates, "gates", 2)


def check_rows(**rows: int) -> None:
    """Refuse arrays of different numbers of rows, named by the keywords."""
    if len(set(rows.values())) > 1:
        counts = ", ".join(map(str, rows.values()))
        raise ValueError(f"{', '.join(rows)} must have one row a sample, got {counts} rows")


def positive_eigen(gram: Array) -> tuple[Array, Array]:
    """Positive eigenvalues (r,) of a Gram matrix (m, m) and their eigenvectors (m, r)."""
    values, vectors = scipy.linalg.eigh(gram)
    # The largest eigenvalue of a matrix of zeros may round to below 0, and keeps none then.
    keep = values > RANK_TOLERANCE * max(values[-1], 0.0)
    return values[keep], vectors[:, keep]
