r"""What Panigrahi, Shetty and Goyal (2020) prove of the Gram matrix G of `gradient_gram`.

Statements with constants are returned as they are; where the paper has Omega(.) or O(.), the
hidden constant is taken as 1, so that such a value is a shape to compare with and not a bound on
one matrix. Each docstring says which of both it is.

==========  ============================================================================
symbol      meaning
==========  ============================================================================
n, d'       number of samples; dimension of their span
m           width
delta       separation of the samples (`gram_spectrum.separation`)
sigma       noise of smoothed data (`gram_spectrum.smoothed_points`)
kappa       probability of failure, here ``failure``
lambda      smallest eigenvalue of G
p           degree of a polynomial
c_k         Hermite coefficients of phi' (`Activation.hermite_squares` has their squares)
c1          share of the linear term in E phi(z)^2, phi of mean 0
==========  ============================================================================

Source: Panigrahi, Shetty, Goyal, "Effect of Activation Functions on the Training of
Overparametrized Neural Nets" (ICLR 2020); numbers of theorems are theirs.
"""

import math

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array
from implicit_bias.kernels.dual_kernels import HERMITE_TERMS, hermite_coefficients
from implicit_bias.kernels.gradient_gram import Activation

# --- dynamics ------------------------------------------------------------------------------


def descent_width(n_samples: int, eigenvalue: float, failure: float) -> float:
    """Width n^6 lambda^-4 kappa^-3 of theorem 3.1 (Du et al. 2019), up to a constant: a shape.

    With it and a step size eta of the order lambda / n^2 (their source; [P] print n^3), ReLU
    networks have ||y - u(t)||^2 <= (1 - eta lambda / 2)^t ||y - u(0)||^2.
    """
    return n_samples**6 * eigenvalue**-4 * failure**-3


def dynamics_width(n_samples: int, eigenvalue: float, failure: float, error: float) -> float:
    """Width n^5 kappa^-1 lambda^-4 eps^-2 of theorem 4.6, up to constants of phi: a shape.

    With it and a step size of at most the order lambda / n^2 the equation of theorem 4.6 is off by
    at most eps at all times, for phi in C^3 that is Lipschitz and smooth.
    """
    return n_samples**5 / failure * eigenvalue**-4 * error**-2


def drift_allowed(eigenvalue: float, n_samples: int, lipschitz: float, smoothness: float) -> float:
    """How far each row of W may move: lambda / (4 alpha beta n), of lemma M.1. A bound.

    As long as ||w_r(t) - w_r(0)|| is below it for all units, lambda_min(G(t)) is at least half of
    lambda_min(G(0)). alpha bounds |phi'| and beta |phi''|; unit vectors, readouts of +-1.
    """
    return eigenvalue / (4 * lipschitz * smoothness * n_samples)


# --- kinks ---------------------------------------------------------------------------------


def kink_bound(n_samples: int, separation: float, order: int) -> float:
    """Lower bound on lambda_min(G(0)) under condition J_r: theorems K.1 (r = 1) and 4.1 (r = 2).

    Parameters
    ----------
    n_samples : int
        n, at least 2.
    separation : float
        delta.
    order : int
        r: 1 for ReLU, leaky ReLU and SELU, 2 for ELU (`gram_spectrum.KINKS`).

    Returns
    -------
    float
        delta / n^3, or delta^3 n^-7 / log n: shapes. With probability
        1 - exp(-Omega(delta m / n^2)), from n^3 / delta log(n / delta^(1/4)) units on for r = 1;
        for r = 2 from the larger of n^3 / delta log(n / delta^(1/9)) (by the appendix; the main
        text has log(n / delta)) and n^2 / delta log d.

    Raises
    ------
    ValueError
        Another order: of those the paper says only that bounds degrade like n^(-2r).
    """
    if order == 1:
        return separation / n_samples**3
    if order == 2:
        return separation**3 * n_samples**-7.0 / math.log(n_samples)
    raise ValueError(f"the paper has bounds of order 1 and 2, not {order}")


def relu_bound(n_samples: int, separation: float) -> float:
    """Lower bound delta^1.5 log^-1.5 n on lambda_min(G(0)) for ReLU, a = +-1: theorem 4.2. A shape.

    With probability 1 - exp(-Omega(m delta^3 n^-2 log^-3 n)), from n^4 delta^-3 log^4 n units on.
    """
    return (separation / math.log(n_samples)) ** 1.5


def coherence_bound(activation: Activation, coherence: float, n_samples: int) -> float:
    """Bound lambda_min of `infinite_gram` from below by the coherence of unit vectors. A bound.

    The proof of theorem 4.2: by Gershgorin the p-th Hadamard power of X X' has no eigenvalue below
    1 - (n - 1) mu^p, mu = max_{i != j} |<x_i, x_j>|, so

        lambda_min >= sum_k c_k^2 max(0, 1 - (n - 1) mu^(k + 1)).

    The paper takes one power of the order log(2n) / delta; the sum and its constants are not in
    the paper; derived here. `HERMITE_TERMS` powers count. Assumption 2 gives mu = sqrt(1 -
    delta^2), not 1 - delta as the proof has it; then the power is of the order log(2n) / delta^2,
    and the proof gives delta^3 log^-1.5 n in the place of `relu_bound`.
    """
    powers = np.float64(coherence) ** np.arange(1, HERMITE_TERMS + 1)
    positive = np.clip(1 - (n_samples - 1) * powers, 0.0, None)
    return float(activation.hermite_squares @ positive)


# --- polynomials ---------------------------------------------------------------------------


def polynomial_constraints(degree: int, dimension: int) -> int:
    """Linear constraints C(d' + p, p) - 1 that put a vector into the kernel of G: theorem 4.3.

    It bounds rank G, for phi a polynomial of degree p, at any width; so if n exceeds it, which is
    C(d' + p, p) < n + 1, then lambda_min(G(0)) = 0. A bound. For p = 1 it is d' (lemma F.1).
    """
    return math.comb(dimension + degree, degree) - 1


def zero_index(
    n_samples: int, dimension: int, degree: int, *, train_readouts: bool = False
) -> int | None:
    """Index k from which lambda_k = 0 for a polynomial of degree p: theorem F.3.

    ceil(n / d') if C(d' + p, p) - 1 <= n / d'; ceil(2 n / d') for G + H (theorem M.3). Theorems 4.3
    and M.3 print d' = O(n^(1/p)), which is too wide. A bound, but for one case: where
    C(d' + p, p) - 1 equals n / d', the rank may be that number, and the eigenvalue of that very
    index, counted from 1, is not 0 (not in the paper; derived here).

    Returns
    -------
    int or None
        None where the theorem says nothing.
    """
    if polynomial_constraints(degree, dimension) > n_samples / dimension:
        return None
    return smooth_index(n_samples, dimension, train_readouts=train_readouts)


def smooth_index(n_samples: int, dimension: int, *, train_readouts: bool = False) -> int:
    """Index ceil(n / d') of corollary F.10.1, or ceil(2 n / d') of theorem M.4, at most n."""
    return min(n_samples, math.ceil((2 if train_readouts else 1) * n_samples / dimension))


def largest_degree(n_samples: int, dimension: int) -> int:
    """Largest p with C(d' + p, p) < n + 1: polynomials up to it have lambda_min(G(0)) = 0."""
    degree = 0
    while math.comb(dimension + degree + 1, degree + 1) < n_samples + 1:
        degree += 1
    return degree


# --- smooth activations in few dimensions ----------------------------------------------------


def smooth_exponent(n_samples: int, dimension: int) -> float:
    """n^(1/(2 d')): lambda_min(G(0)) <= exp(-Omega(this)) for tanh and swish (4.4, G.3). A shape.

    With probability 1 - n^-3.5, for d' = O(log^0.75 n) and any data; corollary F.10.1 has the same
    for all lambda_k from `smooth_index` on, with probability 1 - n^-2.5.
    """
    return float(n_samples ** (1 / (2 * dimension)))


def small_width_bound(n_samples: int, width: int, dimension: int) -> float:
    """Upper bound on lambda_min(G(0)) of tanh from theorem F.8, for narrow networks: a shape.

    n [(4 pi + 6 s) / (1 + (pi/3) / s)^p]^2 with p = `largest_degree` and s = sqrt(log(n m)), a
    third of the bound on the hidden inputs; with probability 1 - 2 (m n)^-3.5. With fan-out s is
    sqrt(log(n m) / m) (F.11), with fan-in sqrt(log(n m) / d), and n^2 stands in front (F.12).
    """
    s = math.sqrt(math.log(n_samples * width))
    p = largest_degree(n_samples, dimension)
    logarithm = math.log(4 * math.pi + 6 * s) - p * math.log1p(math.pi / 3 / s)
    return n_samples * math.exp(2 * logarithm)


def large_width_bound(n_samples: int, width: int, dimension: int) -> float:
    """Upper bound on lambda_min(G(0)) of tanh from theorem F.9, for wide networks: a shape.

    max(n log n log m / sqrt m, n^2 sqrt p exp(-(pi / (4 sqrt 2)) sqrt p)), p = `largest_degree`;
    with probability 1 - exp(-Omega(log^2 n)) - m^-3.5.
    """
    p = largest_degree(n_samples, dimension)
    random = n_samples * math.log(n_samples) * math.log(width) / math.sqrt(width)
    return max(random, n_samples**2 * tail_bound(p))


def coefficient_bound(k: int) -> float:
    """exp(-(pi/4) sqrt k), which bounds |c_k| of tanh up to a constant (F.7.1): a shape.

    By Hille's theorem on strips; the true rate is exp(-(pi/2) sqrt k) times powers of k.
    """
    return math.exp(-math.pi / 4 * math.sqrt(k))


def tail_bound(p: int) -> float:
    """Sqrt p exp(-(pi / (4 sqrt 2)) sqrt p), which bounds sum_{k > p} c_k^2 of tanh (F.7.2).

    Up to a constant: a shape. Theorem 6.4 has it as exp(-Omega(sqrt p)).
    """
    return math.sqrt(p) * math.exp(-math.pi / (4 * math.sqrt(2)) * math.sqrt(p))


def boyd_coefficient(k: int) -> float:
    """Equation 34, after Boyd: c_k of tanh as (2k + 1)^(-1/4) exp(-(pi/4) sqrt(2k + 1)). A shape.

    It does not hold for the normalised coefficients of `hermite_coefficients`, whose rate is
    exp(-(pi/2) sqrt k), about exp(-(pi/4) sqrt(4k)).
    """
    return float((2 * k + 1) ** -0.25 * math.exp(-math.pi / 4 * math.sqrt(2 * k + 1)))


def chebyshev_degree(scale: float, error: float, *, swish: bool = False) -> int:
    """Degree at which a Chebyshev series of sigmoid(k x) on [-1, 1] is right to an error (F.4).

    The smallest integer not below log((4 pi + 2 k) / (pi^2 eps)) / log(1 + pi / k). A bound. For
    swish'(k x), the derivative (G.1), the numerator is 4 pi k + 2 k^2.

    Parameters
    ----------
    scale : float
        k.
    error : float
        eps, the largest error on [-1, 1]. Products of two functions bounded by 1 are then right
        to 3 eps (F.5). So is tanh' = (1 + tanh)(1 - tanh), whose factors are bounded by 2, for
        eps <= 1: the error is |g - tanh| |g + tanh|.
    swish : bool
        Which of both.
    """
    numerator = (4 * math.pi + 2 * scale) * (scale if swish else 1.0)
    degree = math.log(numerator / (math.pi**2 * error)) / math.log1p(math.pi / scale)
    return max(0, math.ceil(degree))


# --- all activations -----------------------------------------------------------------------


def trace_bound(activation: Activation, n_samples: int) -> float:
    """Lower bound c n on tr G(0), 2 c = E phi'(z)^2: theorem 4.5. A bound.

    Of unit vectors, with probability 1 - exp(-Omega(m / (alpha^4 log^2 m))) - m^-3.5, phi
    alpha-Lipschitz. At infinite width the trace is 2 c n.
    """
    return n_samples * float(activation.kappa(1.0)) / 2


# --- smoothed data in many dimensions --------------------------------------------------------


def hadamard_bound(X: Array, activation: Activation, *, powers: int = 40) -> float:
    """Lower bound max_r c_r^2 lambda_min((X X')^(Hadamard r + 1)) on lambda_min(G_inf): lemma I.1.

    A bound, for unit vectors; by Weyl's inequality.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Unit vectors.
    activation : Activation
        phi.
    powers : int
        r below it count.
    """
    gram, power, best = X @ X.T, np.ones((len(X), len(X))), 0.0
    for square in activation.hermite_squares[:powers]:
        power = power * gram
        best = max(best, square * float(scipy.linalg.eigvalsh(power, subset_by_index=[0, 0])[0]))
    return best


def khatri_rao_bound(n_samples: int, degree: int, noise: float, failure: float) -> float:
    """Lower bound (1/sqrt n) (kappa sigma / (n p))^p on sigma_n of X^(*p): lemma I.2. A shape.

    sigma_n^2 is the smallest eigenvalue of (X X')^(Hadamard p). For smoothed data with
    C(d', p) >= n (`smoothed_degree`), with probability 1 - kappa, by the inequality of Carbery and
    Wright.
    """
    return (failure * noise / (n_samples * degree)) ** degree / math.sqrt(n_samples)


def smoothed_bound(
    n_samples: int, degree: int, noise: float, failure: float, *, coefficient: float = 1.0
) -> float:
    """Lower bound c^2 (1/n) (kappa sigma / (n p))^(2p) on lambda_min(G(0)) of smoothed data.

    Theorem I.3 for polynomials of degree p (c = 1); theorem I.4 for tanh with p = `smoothed_degree`
    and c = c_(p - 1)(tanh'). A shape.
    """
    return (coefficient * khatri_rao_bound(n_samples, degree, noise, failure)) ** 2


def smoothed_degree(n_samples: int, dimension: int) -> int:
    """Smallest odd p with C(d', p) >= n, the condition of theorem I.4.

    Equation 31 is read as the binomial coefficient: the proof of lemma I.2 takes n distinct
    products of p different coordinates, calls its number less than C(d' + p - 1, p), which d'^p
    never is, and theorem I.4 asks for d' >= Omega(log n), without which there is no such p.

    Raises
    ------
    ValueError
        There is no such p: d' is too small.
    """
    for degree in range(1, dimension + 1, 2):
        if math.comb(dimension, degree) >= n_samples:
            return degree
    raise ValueError(
        f"no odd p has C({dimension}, p) >= {n_samples}: theorem I.4 needs more dimensions"
    )


def smoothed_power(n_samples: int, separation: float, gamma: float) -> float:
    """delta^(2/gamma) n^(-3/gamma): theorem 4.7 in the main text, for d' >= n^gamma. A shape.

    Informal: the factor 1/n of corollary I.4.2 is dropped there.
    """
    return float(separation ** (2 / gamma) * n_samples ** (-3 / gamma))


# --- depth ---------------------------------------------------------------------------------


def linear_share(activation: Activation) -> float:
    """c1 = c_1(phi)^2 / sum_{a >= 1} c_a(phi)^2, Hermite coefficients of phi itself (lemma J.2).

    0.9305 for tanh.
    """
    first = hermite_coefficients(activation.value, 2)[1]
    return float(first**2 / activation.covariance(1.0))


def layer_bound(rho: ArrayLike, share: float) -> Array:
    """Bound (1 + c1)/2 |rho| + (1 - c1)/2 rho^2 on |correlation| after a layer: lemma J.2.

    A bound at infinite width, for phi of mean 0.
    """
    rho = np.abs(np.asarray(rho, dtype=np.float64))
    return np.asarray((1 + share) / 2 * rho + (1 - share) / 2 * rho**2)


def layers_until(separation: float, error: float, factor: float) -> int:
    """Count the steps of rho <- a rho + (1 - a) rho^2 from 1 - delta to eps: lemma J.4, exactly.

    The lemma has (1 / (1 - a)) max(O(log 1/delta), O(log 1/eps)).
    """
    rho, steps = 1 - separation, 0
    while rho > error:
        rho = factor * rho + (1 - factor) * rho**2
        steps += 1
    return steps


def sufficient_depth(activation: Activation, separation: float) -> float:
    """Hidden layers (2 / (1 - c1)) max(log 1/delta, 1) of theorem 4.8 for tanh: a shape.

    2 / (1 - c1) is 28.8. From there on lambda_min(G(0)) >= exp(-Omega(sqrt(log n))), for
    m >= 2^L n^4 log(n^2 L) log^2 m / delta^2, up to a constant.
    """
    return 2 / (1 - linear_share(activation)) * max(math.log(1 / separation), 1.0)
