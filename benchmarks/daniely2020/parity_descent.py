r"""Gradient descent on a sparse parity after its first step: theorem 3 of the source, in numbers.

The start and the first step are in `parity_first_step`. From t = 2 on all weights, biases
included, descend L_{D_A}(g) + lambda_t (||u||^2 + sum_i ||w_i||^2) with

    eta_t = k^2 / (T sqrt(q)),   lambda_t <= k / n    (eta_1 = 1, lambda_1 = 1/2).

**Theorem 3.** If n >= Omega(1), 7 <= k <= O(n^(1/10)) and q >= Omega(k^7 log(k/delta)), then with
probability 1 - delta over the start there is a t <= T with

    P[sign g_t != chi_A] <= L_{D_A}(g_t) <= O(k^10/q + k^8/sqrt(q) + q k/sqrt(n) + k^2 sqrt(q)/T).

Its proof adds up six terms (`theorem_3_terms`), with constants B and B' of lemma 12 that are not
given: L(g_t) <= the loss of lemma 12's second layer u*, which is 0 after the first step, plus its
share of the regulariser, plus what moving the hidden layer costs it (lemma 16), plus the regret of
online gradient descent on the second layer (theorem 13).

**Corollary 4.** For n large enough the loss is at most eps with q and T polynomial in k, 1/eps and
log 1/delta. It follows: `sizes_for` has such sizes. Its proof is one line, q =
Theta(eps^-1 k^16 log(k/delta)), T = Theta(eps^-2 k^10 log(k/delta)) and n >=
Omega(eps^-4 k^34 log(k/delta)), **whose exponents do not match the bound**: k^8/sqrt(q) <= eps
takes q >= eps^-2 k^16, and then q k/sqrt(n) <= eps takes n >= eps^-6 k^34; T is right for that q.
At the sizes of the proof the bound is of the order of sqrt(eps).

**Theorem 13** (online gradient descent, theta_(t+1) = theta_t - eta grad f_t(theta_t), convex f_t):

    mean f_t(theta_t) <= mean f_t(theta*) + ||theta*||^2 / (2 eta T) + ||theta_1|| mean ||grad f_t||
                         + eta mean ||grad f_t||^2.

Not in the paper; derived here: eta/2 is enough in the last term, by the usual proof for the path
theta_t - theta_1, which starts at 0 (`online_descent_bound`).

**Lemmas 14 to 16** (eta, lambda in [0, 1/2] after the first step; t counts the first one):

    |u_i| after the first step is at most k/sqrt(n);
    |u_i| <= 6 eta t + k/sqrt(n);
    ||w_i - w_i after the first step|| <= 6 eta^2 t^2 + eta t k/sqrt(n) + 2 eta t lambda n/k;
    |b_i - b_i after the first step| <= 6 eta^2 t^2 + eta t k/sqrt(n);
    |L(g_{u*}) - L(g_{u*} after the first step)|
        <= 2 ||u*||_2 sqrt(||u*||_0) (6 eta^2 t^2 + eta t k/sqrt(n) + eta t lambda n/k).

Source: Daniely and Malach (2020), "Learning parities with neural networks", sections 3 and 5.2.
"""

import math
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import ArrayLike


def published_step(k: int, pairs: int, steps: int) -> float:
    """Step size eta_t = k^2 / (T sqrt(q)) of all steps after the first."""
    return k**2 / (steps * math.sqrt(pairs))


def largest_decay(n_bits: int, k: int) -> float:
    """Largest lambda_t = k/n after the first step."""
    return k / n_bits


# --- what is guaranteed ------------------------------------------------------------------------


@dataclass(frozen=True)
class Theorem3Terms:
    """Terms of the bound on the loss, with its constants 1 where the source gives none.

    Attributes
    ----------
    regulariser : float
        B^2 k^10 / (2 q): of u*.
    moved_units, moved_by_decay : float
        6 B' k^8 / q and B' k^6 / sqrt(q): lemma 16.
    comparison : float
        B^2 k^8 / (2 sqrt(q)): ||u*||^2 / (2 eta T).
    first_layer : float
        6 sqrt(2) q k / sqrt(n): where the second layer starts.
    gradients : float
        36 k^2 sqrt(q) / T: the length of the steps.
    """

    regulariser: float
    moved_units: float
    moved_by_decay: float
    comparison: float
    first_layer: float
    gradients: float

    @property
    def total(self) -> float:
        """The bound. The loss of g = 0 is 1: from there on it says nothing."""
        return math.fsum(astuple(self))


def theorem_3_terms(
    n_bits: int, k: int, pairs: int, steps: int, *, B: float = 1.0, B_moved: float = 1.0
) -> Theorem3Terms:
    """Terms of the bound of theorem 3, as its proof has them.

    Parameters
    ----------
    n_bits, k, pairs, steps : int
        n, k, q and T.
    B, B_moved : float
        B and B' of lemma 12: ||u*||_2 sqrt(q) / k^5, and its product with the root of
        ||u*||_0 k^(5/2) / q.

    Examples
    --------
    >>> theorem_3_terms(10**6, 3, 100, 400).total > 1000
    True
    """
    root = math.sqrt(pairs)
    return Theorem3Terms(
        regulariser=B**2 * k**10 / (2 * pairs),
        moved_units=6 * B_moved * k**8 / pairs,
        moved_by_decay=B_moved * k**6 / root,
        comparison=B**2 * k**8 / (2 * root),
        first_layer=6 * math.sqrt(2) * pairs * k / math.sqrt(n_bits),
        gradients=36 * k**2 * root / steps,
    )


def theorem_3_order(n_bits: float, k: int, pairs: float, steps: float) -> float:
    """k^10/q + k^8/sqrt(q) + q k/sqrt(n) + k^2 sqrt(q)/T: the bound in the theorem's statement."""
    root = math.sqrt(pairs)
    return k**10 / pairs + k**8 / root + pairs * k / math.sqrt(n_bits) + k**2 * root / steps


@dataclass(frozen=True)
class ParitySizes:
    """How many pairs of units q, steps T and bits n."""

    pairs: float
    steps: float
    n_bits: float


def corollary_4_sizes(eps: float, k: int, delta: float) -> ParitySizes:
    """Sizes of the proof of corollary 4 as printed, with its constants 1."""
    logarithm = math.log(k / delta)
    return ParitySizes(
        pairs=k**16 * logarithm / eps,
        steps=k**10 * logarithm / eps**2,
        n_bits=k**34 * logarithm / eps**4,
    )


def sizes_for(eps: float, k: int, delta: float) -> ParitySizes:
    """Least sizes for which theorem 3 applies and each term of `theorem_3_order` is at most eps/4.

    Not in the paper; derived here: q is of the order of eps^-2 k^16 + k^7 log(k/delta), T of
    k^2 sqrt(q) / eps, n of (q k / eps)^2. All constants of the theorem are 1.

    Examples
    --------
    >>> sizes = sizes_for(0.5, 7, 0.1)
    >>> theorem_3_order(sizes.n_bits, 7, sizes.pairs, sizes.steps) <= 0.5
    True
    """
    part = eps / 4.0
    pairs = max((k**8 / part) ** 2, k**7 * math.log(k / delta))  # (k^8/part)^2 > k^10/part
    return ParitySizes(
        pairs=pairs,
        steps=k**2 * math.sqrt(pairs) / part,
        n_bits=max((pairs * k / part) ** 2, k**10),
    )


# --- the steps of the proof --------------------------------------------------------------------


def online_descent_bound(
    losses_at: ArrayLike,
    norm: float,
    start_norm: float,
    gradient_norms: ArrayLike,
    eta: float,
    *,
    sharper: bool = False,
) -> float:
    """Theorem 13: bound on mean f_t(theta_t) by any theta*.

    Parameters
    ----------
    losses_at : array_like of shape (T,)
        f_t(theta*).
    norm, start_norm : float
        ||theta*|| and ||theta_1||.
    gradient_norms : array_like of shape (T,)
        ||grad f_t(theta_t)||.
    eta : float
        Step size.
    sharper : bool
        Whether with eta/2 in the last term.
    """
    norms = np.asarray(gradient_norms, dtype=np.float64)
    regret = norm**2 / (2.0 * eta * len(norms)) + start_norm * norms.mean()
    at_comparison = np.asarray(losses_at, dtype=np.float64).mean()
    return float(at_comparison + regret + (0.5 if sharper else 1.0) * eta * (norms**2).mean())


def first_readout_bound(n_bits: int, k: int) -> float:
    """Lemma 14: k/sqrt(n), for |u_i| after the first step."""
    return k / math.sqrt(n_bits)


@dataclass(frozen=True)
class Movement:
    """How large |u_i| can be, and how far w_i and b_i from where the first step left them."""

    readout: float
    weights: float
    bias: float


def movement_bound(n_bits: int, k: int, eta: float, decay: float, step: int) -> Movement:
    """Lemma 15.

    Parameters
    ----------
    n_bits, k : int
        n and k.
    eta, decay : float
        eta_t and lambda_t of the steps after the first, both in [0, 1/2].
    step : int
        t, the first step included.
    """
    way, u = eta * step, first_readout_bound(n_bits, k)
    bias = 6 * way**2 + way * u
    return Movement(6 * way + u, bias + 2 * way * decay * n_bits / k, bias)


def moved_loss_bound(movement: Movement, norm: float, n_used: int) -> float:
    """Lemma 16: how much the loss of a fixed second layer changes as the hidden layer moves.

    Parameters
    ----------
    movement : Movement
        Of lemma 15.
    norm, n_used : float, int
        ||u*||_2 and ||u*||_0.
    """
    # 2 (6 eta^2 t^2 + eta t k/sqrt(n) + eta t lambda n/k) is the sum of both movements.
    return norm * math.sqrt(n_used) * (movement.weights + movement.bias)
