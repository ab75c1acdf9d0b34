"""The search procedures of the paper's published code: filter improvement, alternating search.

Source: Fiat, Malach, Shalev-Shwartz (2019), algorithm 1 and their published code.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from implicit_bias.base.validation import Array, RandomState
from implicit_bias.kernels.least_squares import gated_features, positive_eigen
from implicit_bias.norms import RANK_TOLERANCE
from implicit_bias.problem.gating import GateMatrix, UnitGates, dense


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
    X: Array,
    y: Array,
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
    X : ndarray of shape (m, D)
        Inputs.
    y : ndarray of shape (m,)
        Targets.
    proposals : int
        How often a random filter is redrawn.
    random_state : int, numpy Generator or None
        Seed.
    """
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
    X: Array,
    gates: GateMatrix,
    Y: Array,
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
    X : ndarray of shape (m, D)
        Inputs.
    gates : ndarray or CSR array of shape (m, k)
        Their gates.
    Y : ndarray of shape (m, p)
        Targets.
    iterations : int
        Of both halves.
    random_state : int, numpy Generator or None
        Seed of the initial A, whose entries are N(0, 1/D).
    """
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
