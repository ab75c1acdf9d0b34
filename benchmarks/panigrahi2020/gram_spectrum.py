r"""The eigenvalues of the Gram matrix G of `kernels.gradient_gram`, and the samples they are of.

    G_ij = <x_i, x_j> kappa(<x_i, x_j>) = sum_k c_k^2 <x_i, x_j>^(k + 1)          (||x_i|| = 1),

in the symbols of that module. The k-th term is a polynomial of degree k + 1 in x: of low rank if
the data span few dimensions d'. From it follows what depends on the activation:

polynomial   finitely many terms: rank G does not exceed `polynomial_rank`, O(d'^p), and all other
             eigenvalues are 0, at any width (theorem 4.3 of [P]; the exact number is not in the
             paper; derived here).
smooth       c_k^2 falls faster than any power of k, as exp(-pi sqrt(k)) for tanh: so does
             `eigenvalue_bounds` (not in the paper, which has theorem 4.4; derived here).
with a kink  kappa has a kink, too, where samples coincide: the eigenvalues fall only like powers.
             On a half circle lambda_min ~ n^(1 - 2r) where the r-th derivative of phi jumps
             (condition J_r of [P], `KINKS`): r = 1 for ReLU, leaky ReLU and SELU, r = 2 for ELU
             (these powers are not in the paper; derived here).

Source: Panigrahi, Shetty, Goyal, "Effect of Activation Functions on the Training of
Overparametrized Neural Nets" (ICLR 2020), [P] above; the setting of Gaussian readouts goes back to
Du et al. (2019).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.stats
import torch
from numpy.typing import ArrayLike
from scipy.special import gammaln
from torch import Tensor

from benchmarks.panigrahi2020.finite_spectrum import squares_of_singular
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.kernels.dual_kernels import UNIT, unit_rows, without_rounding

# Size below which a Hermite coefficient is rounding.
ROUNDING = 1e-12
# Share of the largest eigenvalue of a harmonic's matrix below which another is rounding.
LEAST_HARMONIC = 1e-13


# Share of the trace below which harmonics are added up as matrices, whose rounding is 1e-16 of it.
SMALL_SHARE = 1e-8


# Condition J_r of [P]: the r at which the r-th derivative of phi is the first one to jump, at 0.
KINKS = {"relu": 1, "leaky-relu": 1, "selu": 1, "elu": 2}


def circle_points(n_samples: int, n_features: int = 10, *, arc: float = math.pi) -> Array:
    """Spread points evenly over an arc of the unit circle, in a random plane.

    Parameters
    ----------
    n_samples, n_features : int
        n and d.
    arc : float
        Angle that the points divide into n steps. An even number of points on the whole circle
        (2 pi) are pairs x, -x, whose separation is 0; half of it, the default, has no pairs.

    Returns
    -------
    ndarray of float64, shape (n_samples, n_features)
        Unit vectors; on the half circle their separation is sin(pi / n_samples).
    """
    angles = arc * np.arange(n_samples) / n_samples
    gaussian = np.random.default_rng(0).standard_normal((n_features, 2))
    plane, _ = np.linalg.qr(gaussian)
    return np.column_stack([np.cos(angles), np.sin(angles)]) @ plane.T


def preprocess(X: ArrayLike) -> Array:
    """Prepare data for the assumptions of the theorems, as [P] do: scale, fill, append.

    All rows are scaled by one factor to length at most 1/sqrt(2); a coordinate is appended that
    makes each length exactly 1/sqrt(2); and a further coordinate 1/sqrt(2). All inner products are
    then at least 0, so two samples at distance D have the separation D sqrt(1 - D^2 / 4), between
    D / sqrt(2) and D (not in the paper, which says that D >= delta implies assumption 2; derived
    here).

    Returns
    -------
    ndarray of float64, shape (n, d + 2)
        Unit vectors.

    Examples
    --------
    >>> preprocess([[3.0], [0.0]]).round(3)
    array([[0.707, 0.   , 0.707],
           [0.   , 0.707, 0.707]])
    """
    X = np.asarray(X, dtype=np.float64)
    scaled: Array = X / (np.linalg.norm(X, axis=1).max() * math.sqrt(2))
    missing = 0.5 - np.sum(scaled**2, axis=1)
    # Of the longest rows only rounding is missing, whose root would be a coordinate of 1e-8.
    fill = np.sqrt(np.where(missing > ROUNDING, missing, 0.0))
    return np.column_stack([scaled, fill, np.full(len(scaled), math.sqrt(0.5))])


def smoothed_points(X: ArrayLike, noise: float, *, seed: int = 0) -> Array:
    """Perturb unit vectors inside their span, and scale them to length 1: assumption 3 of [P].

    Parameters
    ----------
    X : array_like of shape (n, d)
        Unit vectors x'_i, which span V.
    noise : float
        sigma: the standard deviation of each of the d' coordinates in V. [P] have
        delta / (2 sqrt n), up to a constant.
    seed : int
        Of the noise.

    Returns
    -------
    ndarray of float64, shape (n, d)
        Unit vectors in V.

    Raises
    ------
    ValueError
        Rows that are not of length 1.
    """
    X = unit_rows(X)
    basis = _span(X)
    gaussian = np.random.default_rng(seed).standard_normal((len(X), len(basis)))
    return grams.normalise(X + noise * gaussian @ basis)


def separation(X: ArrayLike) -> float:
    """Return delta, the least distance of a unit vector from the line through another one.

    delta = min_{i != j} ||(I - x_i x_i') x_j||, the sine of the smallest angle between two lines.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Unit vectors, at least two.

    Raises
    ------
    ValueError
        Rows that are not of length 1.
    """
    X = unit_rows(X)
    rho = X @ X.T
    # Half the chord to the nearer of x and -x: exact where 1 - rho^2 cancels.
    nearest = np.argmax(np.abs(rho) - 2 * np.eye(len(X)), axis=1)
    sign = np.where(rho[np.arange(len(X)), nearest] < 0, -1.0, 1.0)
    chord = np.linalg.norm(X - sign[:, None] * X[nearest], axis=1).min()
    return float(chord * math.sqrt(1 - chord**2 / 4))


@dataclass(frozen=True)
class Initialisation:
    """Variances of a first layer and its biases at the start, in units that leave G of order 1.

    The readouts are N(0, 1) with the factor 1/sqrt(m) of F: with fan-in they are N(0, 1/m)
    without that factor; with fan-out N(0, 1) without it, at a rate 1/m instead of 1. Both give
    the same G (appendix D of [P]).

    Parameters
    ----------
    weights, biases : callable
        Variance of an entry, of the width m and the number of features d.
    """

    weights: Callable[[int, int], float]
    biases: Callable[[int, int], float]

    def draw(self, width: int, n_features: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Draw weights (m, d), biases (m,) and readouts (m,) in float64."""
        weights = torch.cat(list(grams.gaussian_weights(width, n_features, seed=seed)))
        generator = torch.Generator().manual_seed(seed + 1)
        biases, readouts = torch.randn((2, width), generator=generator, dtype=torch.float64)
        return (
            weights * math.sqrt(self.weights(width, n_features)),
            biases * math.sqrt(self.biases(width, n_features)),
            readouts,
        )


# Du et al. (2019), and appendix D of [P].
INITIALISATIONS = {
    "dzps": Initialisation(lambda m, d: 1.0, lambda m, d: 0.0),
    "fan-in": Initialisation(lambda m, d: 1 / d, lambda m, d: 0.01),
    "fan-out": Initialisation(lambda m, d: 1 / m, lambda m, d: 1 / m),
}


def polynomial_rank(degrees: Iterable[int], dimension: int, *, unit_norm: bool = True) -> int:
    """Bound the rank of G for polynomial activations, at any width.

    phi = sum_l b_l z^l makes the features phi'(<w, x>) x polynomials in x, homogeneous of the
    degrees l with b_l != 0. There are C(d' + l - 1, l) monomials of degree l; on the unit sphere
    those of degree l - 2 are among those of degree l, so only the highest even and the highest
    odd degree count. All n - rank other eigenvalues are 0. The exact number, which generic samples
    attain, is not in the paper; derived here. Theorem 4.3 of [P] has the larger
    `benchmarks/panigrahi2020/gram_bounds.py`.

    Parameters
    ----------
    degrees : iterable of int
        The l >= 1 with b_l != 0: of phi = z^p that is p alone. A constant has no gradient, so
        l = 0 does not count.
    dimension : int
        d', the dimension of the span of the samples.
    unit_norm : bool
        Whether the samples are unit vectors.

    Returns
    -------
    int
        Dimension of the span of the features.
    """
    counted = set(degrees)
    if unit_norm:
        counted = {
            max(d for d in counted if d % 2 == parity) for parity in {d % 2 for d in counted}
        }
    return sum(math.comb(dimension + degree - 1, degree) for degree in counted)


def eigenvalue_bounds(activation: grams.Activation, n_samples: int, dimension: int) -> Array:
    """Bound the eigenvalues of G at infinite width by the tail of the Hermite series of phi'.

    The terms of degree k < P have a rank R(P) of at most `polynomial_rank`, and the others a
    trace of n sum_{k >= P} c_k^2, so that by Weyl's inequality, for all P with R(P) < i,

        lambda_i <= n sum_{k >= P} c_k^2 / (i - R(P)).

    It holds for any unit vectors in d' dimensions. Not in the paper; derived here.

    Parameters
    ----------
    activation : Activation
        phi.
    n_samples, dimension : int
        n and d'.

    Returns
    -------
    ndarray of float64, shape (n_samples,)
        Bounds, largest eigenvalue first. Below n * 1e-16 they are rounding.
    """
    squares, total = activation.hermite_squares, float(activation.kappa(1.0))
    rest = max(total - squares.sum(), 0.0)  # the terms that were not computed
    tails = np.append(squares[::-1].cumsum()[::-1], 0.0) + rest
    bounds = np.full(n_samples, np.inf)
    index = np.arange(1, n_samples + 1)
    degrees: list[int] = []
    for k, tail in enumerate(tails):
        rank = polynomial_rank(degrees, dimension)
        if rank >= n_samples:
            break
        bounds[rank:] = np.minimum(bounds[rank:], n_samples * tail / (index[rank:] - rank))
        if k < len(squares) and squares[k] > ROUNDING**2 * total:
            degrees.append(k + 1)
    return bounds


def circle_eigenvalues(activation: grams.Activation, n_samples: int) -> Array:
    """Compute the eigenvalues of G for n points, spread evenly over the whole circle.

    G is circulant, so they are n times the Fourier coefficients of the kernel, folded at n: of
    cos(theta)^p, p = k + 1, at frequency p - 2 q it is C(p, q) / 2^p. All terms are positive, so
    that eigenvalues far below the rounding of a matrix are right, too: to 1e-24 of the largest.

    Half of 2 n points are the half circle of n, and G of these is a block of the large
    one. By Cauchy's interlacing the i-th value for 2 n bounds its i-th eigenvalue from above. If
    phi' is even, as for tanh, opposite points have opposite rows, and the eigenvalues of the half
    circle are exactly half of the n largest. For tanh they fall as exp(-3/2 pi^(2/3) j^(2/3)) at
    frequency j, which is the largest term exp(-pi sqrt(k) - j^2 / 2k) of the sum over k.

    Parameters
    ----------
    activation : Activation
        phi, without a kink.
    n_samples : int
        n.

    Returns
    -------
    ndarray of float64, shape (n_samples,)
        Eigenvalues, largest first.

    Raises
    ------
    ValueError
        The Hermite series of phi' is too long: phi has a kink.
    """
    # Of cos(j theta) half is at frequency j, and half at -j.
    halves = _harmonic_shares(_fast_squares(activation), 2) / 2
    j = np.arange(len(halves))
    folded = np.zeros(n_samples)
    np.add.at(folded, np.concatenate([j, -j]) % n_samples, np.tile(halves, 2))
    return np.sort(n_samples * folded)[::-1]


def sphere_eigenvalues(X: ArrayLike, activation: grams.Activation) -> Array:
    """Compute the eigenvalues of `infinite_gram` far below its rounding, for smooth activations.

    On the unit sphere of d' dimensions <x, x'>^p is a sum of the zonal harmonics P_j, j <= p, with
    positive coefficients, so that G = sum_j mu_j P_j(rho) with mu_j right to its last digits. P_j
    has the rank N_j of the harmonics of degree j, or n, so that a factor B_j B_j' of it is at hand,
    and the singular values of the columns sqrt(mu_j) B_j side by side, to 1e-15 of the largest,
    are the roots of the eigenvalues. `circle_eigenvalues` is the case of the whole circle. Not in
    the paper; derived here.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Unit vectors.
    activation : Activation
        phi, without a kink.

    Returns
    -------
    ndarray of float64, shape (n,)
        Largest first; right to 1e-23 of the largest, and to 1e-15 of the largest mu_j with
        N_j >= n, which is the better the fewer dimensions there are.

    Raises
    ------
    ValueError
        Rows that are not of length 1, or a phi with a kink.
    """
    X = unit_rows(X)
    squares = _fast_squares(activation)
    dimension = max(2, len(_span(X)))
    rho = without_rounding(np.clip(X @ X.T, -1.0, 1.0))
    shares = _harmonic_shares(squares, dimension)
    columns, rest = [], np.zeros_like(rho)
    before, now = np.ones_like(rho), rho  # P_0, P_1
    for j, share in enumerate(shares):
        if share > SMALL_SHARE * shares.sum():
            values, vectors = scipy.linalg.eigh(before)
            kept = slice(max(0, len(X) - _n_harmonics(j, dimension)), None)
            # On samples with symmetries the rank is less, and the root of rounding is 1e-8.
            values[values < LEAST_HARMONIC * values[-1]] = 0.0
            columns.append(vectors[:, kept] * np.sqrt(share * np.clip(values[kept], 0.0, None)))
        else:  # the rounding of all these together is small enough
            rest += share * before
        order = j + 1  # the recursion of the Gegenbauer polynomials, scaled to 1 at 1
        following = (2 * order + dimension - 2) * rho * now - order * before
        before, now = now, following / (order + dimension - 2)
    values, vectors = scipy.linalg.eigh(rest)
    columns.append(vectors * np.sqrt(np.clip(values, 0.0, None)))
    return squares_of_singular(np.concatenate(columns, axis=1), len(X))


def _n_harmonics(degree: int, dimension: int) -> int:
    """Dimension of the harmonics of a degree on the unit sphere."""
    fewer = math.comb(dimension + degree - 3, degree - 2) if degree > 1 else 0
    return math.comb(dimension + degree - 1, degree) - fewer


def _harmonic_shares(squares: Array, dimension: int) -> Array:
    """mu_j, shape (K + 1,), of sum_k squares_k t^(k + 1) = sum_j mu_j P_j(t), P_j(1) = 1."""
    shares = np.zeros(len(squares) + 1)
    half = dimension / 2 - 1
    # On the circle, where half is 0, t^p is a binomial sum of cosines: ``beyond`` is 0 there.
    sizes = np.array([math.log(_n_harmonics(j, dimension)) for j in range(len(shares))])
    for p, square in enumerate(squares, start=1):
        q = np.arange(p // 2 + 1)
        beyond = gammaln(half + 1) + gammaln(p - q + 1) - gammaln(half + p - q + 1)
        weights = scipy.stats.binom.pmf(q, p, 0.5) * np.exp(sizes[p - 2 * q] + beyond)
        shares[p - 2 * q] += square * weights
    return shares


def _fast_squares(activation: grams.Activation) -> Array:
    """Return the squares of the Hermite coefficients of phi', if they fall fast."""
    squares = activation.hermite_squares
    if squares[-2:].sum() > ROUNDING * squares.sum():
        raise ValueError(
            f"the Hermite coefficients of the derivative of {activation.name} fall too slowly: it "
            "has a kink. Take the eigenvalues of infinite_gram"
        )
    return squares


def _span(X: Array) -> Array:
    """Return an orthonormal basis (d', d) of the span of the rows of X."""
    _, values, basis = np.linalg.svd(X, full_matrices=False)
    return np.asarray(basis[values > UNIT * values.max(initial=0.0)])
