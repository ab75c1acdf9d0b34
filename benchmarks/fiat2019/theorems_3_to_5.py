r"""GaLU networks: bounds on the test loss, and the relation to ReLU networks.

=========  ==========  =====================================================================
X          (m, d)      inputs; R = ||X||_2^2
Hinf       (m, m)      `gated_least_squares.limit_kernel`, lambda its smallest eigenvalue
Hk         (m, m)      finite gates: K / k
M                      bound on the norm of the labels f* in the RKHS of the kernel
U, W       (k, d)      filters, and linear weights of the units; a (k,) the readout
N^G        scalar      1/sqrt k sum_j a_j 1[<u_j, x> >= 0] <w_j, x>; N^R has W = U
=========  ==========  =====================================================================

===================  ============================================================================
statement            here
===================  ============================================================================
Theorem 3            `interpolation_width`, `risk_bound` (up to its constant C); its steps:
                     `inverse_deviation`, `interpolant_norm_bound`, `kernel_rademacher`
Theorem 4            `largest_output` for its assumption
Theorem 5            `relu_approximation_width`, `relu_approximation_error`
Lemma 11             `gate_change_bound`, `filter_norm_failure`
[C] section 4.2.1    `linear_rademacher`
[C] lemma 1          `linear_regression_losses`
===================  ============================================================================

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity": arXiv:1906.05032 (2019),
and [C], the submission of 2018. Slips of the paper are named in the docstrings.
"""

import math
from typing import Literal

import numpy as np
import scipy.optimize
from scipy.stats import chi2

from implicit_bias.base.validation import Array

# Printed: B^2 = sqrt(6) d bounds all ||u_j||^2 but with probability k e^-d. That fails for large d.
PRINTED_NORM_SQUARE = math.sqrt(6.0)
# Chernoff: P(||u||^2 >= t d) <= exp(-d/2 (t - 1 - log t)), which is e^-d for t - log t = 3.
NORM_SQUARE = float(scipy.optimize.brentq(lambda t: t - math.log(t) - 3.0, 1.0, 10.0))


# --- theorem 3 -------------------------------------------------------------------------------


def interpolation_width(
    n_samples: int, *, norm: float, eigenvalue: float, spectral: float, failure: float
) -> float:
    """Theorem 3's k >= (m / (M^2 lambda) + 1)^2 (32 R^2 / lambda^2) log(m / delta).

    Parameters
    ----------
    n_samples : int
        m.
    norm : float
        M.
    eigenvalue : float
        lambda(X).
    spectral : float
        R = ||X||^2, so that R^2 = ||X||^4.
    failure : float
        delta.
    """
    ratio = n_samples / (norm**2 * eigenvalue) + 1
    return ratio**2 * 32 * spectral**2 / eigenvalue**2 * math.log(n_samples / failure)


def inverse_deviation(ratio: float, eigenvalue: float) -> float:
    """1 / ((r - 1) lambda): bounds ||Hk^-1 - Hinf^-1|| where ||Hk - Hinf|| <= lambda / r."""
    return 1.0 / ((ratio - 1.0) * eigenvalue)


def interpolant_norm_bound(infinite: Array, y: Array, ratio: float) -> float:
    """Bound ||w*||^2 = y' Hk^-1 y by y' Hinf^-1 y + m / ((r - 1) lambda), for |y| <= 1.

    With r = m / (M^2 lambda) + 1 and labels of RKHS norm at most M it is at most 2 M^2.

    Parameters
    ----------
    infinite : ndarray of shape (m, m)
        Hinf.
    y : ndarray of shape (m,)
        Labels in [-1, 1].
    ratio : float
        r.
    """
    smallest = float(np.linalg.eigvalsh(infinite)[0])
    return float(y @ np.linalg.solve(infinite, y)) + len(y) * inverse_deviation(ratio, smallest)


def kernel_rademacher(norm: float, n_samples: int) -> float:
    """Bound the Rademacher complexity of networks of norm sqrt 2 M by sqrt 2 M / sqrt m.

    For ||x|| <= 1, where the normalised features have a norm of at most 1: `linear_rademacher`.
    """
    return math.sqrt(2.0) * norm / math.sqrt(n_samples)


def risk_bound(n_samples: int, *, norm: float, failure: float) -> float:
    """Theorem 3's bound on the test loss, without its constant C (from Srebro et al. 2010).

    [2 M^2 log^3 m + (2 M^2 + sqrt 2 M) log(1 / delta)] / m, of the loss (y - yhat)^2 / 2.
    """
    square = 2 * norm**2
    logarithms = square * math.log(n_samples) ** 3
    return (logarithms + (square + math.sqrt(square)) * math.log(1 / failure)) / n_samples


# --- linear predictors ([C] section 4.2) -------------------------------------------------------


def linear_rademacher(X: Array, radius: float, *, p: Literal[1, 2]) -> float:
    """Bound the Rademacher complexity of linear predictors ||w||_p <= B on inputs X (m, d).

    sqrt(B^2 max ||x||_2^2 / m) for p = 2, sqrt(2 log(2 d) B^2 max ||x||_inf^2 / m) for p = 1.
    It bounds the gap between test and training loss. d is the number of features: k d for GaLU.
    """
    m, d = X.shape
    if p == 2:
        return radius * float(np.linalg.norm(X, axis=1).max()) / math.sqrt(m)
    return radius * float(np.abs(X).max()) * math.sqrt(2 * math.log(2 * d) / m)


def linear_regression_losses(n_samples: int, n_features: int, noise: float) -> tuple[float, float]:
    """Return expected training and test loss of least squares, x ~ N(0, I_d), y = <x, b> + s e.

    [C] lemma 1 (after Rosset and Tibshirani 2018): s^2 (1 - d/m), and
    s^2 (1 + d/m + (d/m) (d + 1) / (m - d - 1)) = s^2 (1 + d / (m - d - 1)).

    Raises
    ------
    ValueError
        m <= d + 1: the test loss has no mean.
    """
    m, d = n_samples, n_features
    if m <= d + 1:
        raise ValueError(f"n_samples must exceed n_features + 1, got {m} and {d}")
    return noise**2 * (1 - d / m), noise**2 * (1 + d / (m - d - 1))


# --- relation to ReLU networks (theorems 4 and 5) ----------------------------------------------


def largest_output(weights: Array, readout: Array) -> float:
    """1/sqrt k sum_j |a_j| ||w_j||: no input of the unit ball has a larger output, by any gates."""
    return float(np.abs(readout) @ np.linalg.norm(weights, axis=1)) / math.sqrt(len(readout))


def relu_approximation_width(n_features: int, distance: float, failure: float) -> int:
    """Theorem 5's k >= pi / (sqrt 6 d eps^2) (log(2 / delta) + d log(3 / eps)).

    It also needs d > log(2 k / delta).

    Raises
    ------
    ValueError
        d is too small for that.
    """
    d = n_features
    logarithms = math.log(2 / failure) + d * math.log(3 / distance)
    width = math.ceil(math.pi / (math.sqrt(6) * d * distance**2) * logarithms)
    if d <= math.log(2 * width / failure):
        raise ValueError(
            f"theorem 5 needs d > log(2 k / delta) = {math.log(2 * width / failure):.3g}, got {d}"
        )
    return width


def gate_change_bound(n_features: int, distance: float) -> float:
    """Lemma 11's 5 B eps / sqrt(2 pi), on sup_x ||Phi_U(x) - Phi_W(x)||^2, ||x|| = 1.

    Phi is normalised by 1/sqrt k, all ||w_j - u_j|| <= eps. B^2 bounds all ||u_j||^2; the printed
    sqrt(6) d does with the stated probability only for small d (a slip of the paper), `NORM_SQUARE`
    d for all.
    """
    return 5 * math.sqrt(PRINTED_NORM_SQUARE * n_features) * distance / math.sqrt(2 * math.pi)


def filter_norm_failure(n_features: int, norm_square: float) -> float:
    """P(||u||^2 >= norm_square d) for u ~ N(0, I_d), to be compared with e^-d."""
    return float(chi2.sf(norm_square * n_features, n_features))


def relu_approximation_error(
    n_features: int,
    distance: float,
    *,
    largest: float,
    n_units: int,
    lipschitz: float = 1.0,
    printed: bool = False,
) -> float:
    """Theorem 5: how much the best GaLU network's loss may exceed the best ReLU network's.

    Printed is L sqrt(5 sqrt(3 d) eps / sqrt(2 pi)) max_j ||a_j u_j||. The proof divides by sqrt k
    twice (a slip of the paper): with 1/sqrt k in the network what it yields has a further factor
    sqrt k, and as printed it is for a network normalised by 1/k.

    Parameters
    ----------
    n_features : int
        d.
    distance : float
        eps, ||u_j* - u_j|| <= eps for all units.
    largest : float
        max_j ||a_j** u_j*|| of the best ReLU network.
    n_units : int
        k.
    lipschitz : float
        L.
    printed : bool
        Without the factor sqrt k.
    """
    change = 5 * math.sqrt(3 * n_features) * distance / math.sqrt(2 * math.pi)
    error = lipschitz * math.sqrt(change) * largest
    return error if printed else error * math.sqrt(n_units)


def flipped_error(readout: Array, distance: float, share: float) -> float:
    """Return sqrt k max_j |a_j| eps times the share of flipped units.

    Not in the paper; derived here. It bounds |N^R_{U*, a}(x) - N^G_{U*, U, a}(x)|, ||x|| <= 1: a
    unit whose gates by u_j and by u_j* differ has |<u_j*, x>| <= eps, as <u_j, x> is on the other
    side of 0.
    """
    return math.sqrt(len(readout)) * float(np.abs(readout).max()) * distance * share
