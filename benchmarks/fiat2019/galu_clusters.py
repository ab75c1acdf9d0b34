r"""GaLU networks on clustered, piecewise linear data: the width depends on clusters, not samples.

A sample chooses one of n centres v_q on the unit sphere of R^d, by any law, then x on the sphere
with ||x - v_q|| <= r, and y = <x, l_q>, one linear map l_q a cluster. Where no filter u_j splits a
cluster (is open on some of it and closed on the rest), the gates are constant on each cluster, and
the network is one linear map a cluster, too.

=========  ==========  =====================================================================
V          (n, d)      centres, unit vectors
L          (n, d)      linear maps l_q
U          (k, d)      filters, uniform on the sphere (only their direction matters)
A          (n, k)      gates of the centres, A_ij = 1[<u_j, v_i> >= 0]
H          (n, n)      E A A' / k: H_ij = 1/2 - arccos<v_i, v_j> / (2 pi)
mu                     smallest eigenvalue of H
delta                  probability of failure
=========  ==========  =====================================================================

================  ===============================================================================
statement         here
================  ===============================================================================
Theorem 6         `sufficient_samples`, with `sufficient_width` and `largest_radius`
Theorem 7         `cluster_solution` exists; every exact solution predicts alike: tested
Lemma 3           `sufficient_dimension`, with the printed or the corrected constant
Lemma 4           sigma_min(A)^2 > k mu / 2: `smallest_eigenvalue`, `sufficient_width`
Lemma 5           `band_bound`, beside the exact `band_probability`
Lemmas 6, 7       `splits`
Lemma 8           `cluster_solution`: w_j = sum_i b_ij l_i with A B' = I
Lemma 9           uniqueness of the prediction: tested
Lemma 10          T = (I + 11') / 4 has T^-1 = 4 I - 4 / (n + 1) 11' (d + 1 is printed) and
                  ||T^-1|| = 4: tested
================  ===============================================================================

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity", arXiv:1906.05032 (2019),
appendix B.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import betainc

from implicit_bias.base.validation import Array, RandomState
from implicit_bias.kernels.dual_kernels import NEARLY_UNIT, unit_rows, without_rounding

# Lemma 3 is printed with the first constant, d >= n^2 / 2 log(2 n^2 / delta). Its proof uses
# Hoeffding's inequality with the exponent -8 d e^2; with the correct one, -d e^2 / 2, it needs
# the second. (A slip of the paper. The statement itself may well hold as printed.)
PRINTED_DIMENSION, CORRECTED_DIMENSION = 0.5, 8.0


def centre_kernel(V: Array) -> Array:
    """H (n, n): the probability that a random filter is open on both of two centres (n, d)."""
    V = unit_rows(V, "V", NEARLY_UNIT)
    return np.asarray(0.5 - np.arccos(without_rounding(np.clip(V @ V.T, -1, 1))) / (2 * math.pi))


def smallest_eigenvalue(V: Array) -> float:
    """Return mu, the smallest eigenvalue of H for centres V (n, d)."""
    return float(scipy.linalg.eigvalsh(centre_kernel(V))[0])


def centre_gates(filters: Array, V: Array) -> Array:
    """Return A (n, k): which filters (k, d) are open on which centres (n, d)."""
    return (V @ filters.T >= 0).astype(np.float64)


def sufficient_width(V: Array, failure: float) -> int:
    """Lemma 4's k >= (8 n / mu) log(n / delta), with which sigma_min(A)^2 > k mu / 2.

    Where mu is 0, as two centres coincide, no number of gates tells the centres apart.
    """
    mu = smallest_eigenvalue(V)
    return math.ceil(8 * len(V) / mu * math.log(len(V) / failure))


def largest_radius(n_clusters: int, n_units: int, n_features: int, failure: float) -> float:
    """Return r = delta / (n k sqrt d): no filter splits any cluster, but with probability delta."""
    return failure / (n_clusters * n_units * math.sqrt(n_features))


def sufficient_samples(
    n_clusters: int, n_features: int, accuracy: float, failure: float, *, constant: float = 1.0
) -> int:
    """Theorem 6's m = c (n d log(1/eps) + log(1/delta)) / eps.

    With it, the width and the radius above, the training loss is 0 and the test loss at most eps
    with probability at least 1 - 3 delta. We read the test loss as the probability of a wrong
    prediction. The paper says that c is universal, not what it is.
    """
    logarithms = n_clusters * n_features * math.log(1 / accuracy) + math.log(1 / failure)
    return math.ceil(constant * logarithms / accuracy)


def sufficient_dimension(
    n_clusters: int, failure: float, *, constant: float = CORRECTED_DIMENSION
) -> int:
    """Lemma 3's d >= c n^2 log(2 n^2 / delta), from which on mu >= 1/8 for random sign centres."""
    return math.ceil(constant * n_clusters**2 * math.log(2 * n_clusters**2 / failure))


def sign_centres(n_clusters: int, n_features: int, *, random_state: RandomState = None) -> Array:
    """Centres (n, d) uniform on {-1, 1}^d / sqrt d."""
    rng = np.random.default_rng(random_state)
    signs = rng.choice([-1.0, 1.0], size=(n_clusters, n_features))
    return signs / math.sqrt(n_features)


def band_bound(radius: float, n_features: int) -> float:
    """Lemma 5's bound r sqrt d on P(|<u, x>| <= r), u uniform on the sphere, ||x|| = 1."""
    return radius * math.sqrt(n_features)


def band_probability(radius: float, n_features: int) -> float:
    """P(|<u, x>| <= r) itself, u uniform on the sphere, ||x|| = 1: <u, x>^2 has a beta law."""
    return float(betainc(0.5, (n_features - 1) / 2, min(radius, 1.0) ** 2))


def splits(filters: Array, V: Array, radius: float) -> NDArray[np.bool_]:
    """Whether each filter (k, d) may split each cluster: shape (n, k).

    It can only where the centre is nearer than r to its hyperplane, |<u, v>| < r ||u||: as lemmas
    6 and 7 argue. One such filter is open on a part of the ball around the centre.
    """
    distances = np.abs(V @ filters.T) / np.linalg.norm(filters, axis=1)
    return np.asarray(distances < radius)


@dataclass(frozen=True, eq=False)
class Clusters:
    """Samples of clustered, piecewise linear data.

    Attributes
    ----------
    X : ndarray of shape (m, d)
        Inputs on the unit sphere.
    y : ndarray of shape (m,)
        Targets <x, l_q>.
    cluster : ndarray of int, shape (m,)
        q.
    """

    X: Array
    y: Array
    cluster: NDArray[np.int64]


def draw_clusters(
    V: Array, L: Array, n_samples: int, radius: float, *, random_state: RandomState = None
) -> Clusters:
    """Draw samples of the clusters around V (n, d), each with the same probability.

    The point is uniform in a ball around the centre and then put on the sphere; the ball has half
    the radius, as going to the sphere may double the distance.
    """
    rng = np.random.default_rng(random_state)
    n, d = V.shape
    cluster = rng.integers(n, size=n_samples)
    steps = rng.normal(size=(n_samples, d))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    sizes = radius / 2 * rng.random(n_samples) ** (1 / d)
    X = V[cluster] + steps * sizes[:, None]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Clusters(X, np.sum(X * L[cluster], axis=1), cluster)


def cluster_solution(A: Array, L: Array) -> Array:
    """Lemma 8's coefficients W (k, d): w_j = sum_i b_ij l_i with A B' = I.

    For x in cluster q, on which the gates are those of its centre, sum_j A_qj <w_j, x> is
    sum_i (A B')_qi <l_i, x> = <l_q, x>.

    Parameters
    ----------
    A : ndarray of shape (n, k)
        Gates of the centres.
    L : ndarray of shape (n, d)
        Linear maps.
    """
    return np.asarray(np.linalg.pinv(A) @ L)
