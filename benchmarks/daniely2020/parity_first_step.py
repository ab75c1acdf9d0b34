r"""The first step of gradient descent on a sparse parity: lemmas 5 to 11 of the source, exactly.

A network of two layers starts from the source's own weights and takes one step on the whole
distribution D_A (`datasets.parities`; x are the bits over sqrt(n), so ||x|| = 1):

    g(x) = sum_i u_i sigma(<w_i, x> + b_i),   sigma(t) = min(max(t, 0), 6)       (ReLU6)
    w_i uniform in {-1, 0, 1}^n,   b_i = 1/(8k),   u_i uniform in [-n/k, n/k],   i = 1 .. q

and q more units, so paired that g = 0: the same w and b, and -u.  (**As printed** the pairs are
(-w, -b, -u).  Then g = sum_i u_i clip(<w_i, x> + b_i, -6, 6), which is not 0; but the proof takes
the first gradient for the plain correlation with the label, as it is where g = 0.)

As g = 0, every sample has an active hinge. Weights and readout decay by the factor
1 - 2 eta_1 lambda_1 = 0, so that the step forgets them; biases are not regularised:

    w_i <- eta_1 u_i E[y sigma'(<w_i, x> + b_i) x]        b_i <- b_i + eta_1 u_i E[y sigma'(.)]
    u_i <- eta_1 E[y sigma(<w_i, x> + b_i)]

============  =================  ===============================================================
symbol        shape              meaning
============  =================  ===============================================================
s             (H, n)             initial weights, -1, 0 or +1
a             (H,)               sum of s over A; a unit with a = 0 is *good*
J             (H,) sizes         bits off A with s != 0
alpha         (H,)               1/2 P[sigma' = 1 | easy half]: alpha u / sqrt(n) is the common
                                 part of the weights on A after the step
psi_r, phi_r  function of z      max(0, |r| - sign(r) z), z the sum of the bits in A
============  =================  ===============================================================

**What the lemmas say, and what computes it here.** n odd and k odd where the source says so.

- Lemma 5 (uniform half; a bit off A, or the bias): |E| <= c / sqrt(binom(n-1, k)) with probability
  1 - 1/c over w: `correlation_bound`. Not in the paper; derived here: the second moment over w is
  at most 1 / binom(n-1, k), by the symmetry of the bits and Parseval, so that by Chebyshev the
  probability is 1 - 1/c^2.
- Lemma 6: all bits off A and the bias at once, c = C (n-1), with probability 1 - 1/C.
- Lemma 7: in the easy half both are exactly 0 for good units.
- Lemma 8: |E[h sigma'] - E[h] phi| <= C k / sqrt(|J|) for h a function of the bits in A of values
  +-1, phi = P[k/sqrt(n) < sum_J w_j x_j + b < 6 - k/sqrt(n)]: `open_share`. Not in the paper;
  derived here: C = 2 sqrt(2/pi), as sigma' and the event differ on two half-open intervals with k
  points of the lattice each, each of probability at most sqrt(2 / (pi |J|)): `OPEN_SHARE_ERROR`.
- Lemma 9: after the step a unit has, with probability at least 1/(14 sqrt(k)), weights near
  alpha u / sqrt(n) on A up to a constant C_1, with alpha in [1/4, 1], off A at most C_2/(n-1), and
  a bias moved by at most C_3/sqrt(n): `first_step`, `good_share`. As |u| <= n/k and x_j is
  1/sqrt(n) in size, lemma 8 gives C_1 = (n/k)(1/sqrt n)(C k/sqrt|J|) = C sqrt(n/|J|). Not in the
  paper; derived here: the common part is that of the easy half, so that alpha <= 1/2.
- Lemma 10: the share eps/(8 k^2) of all u makes (|r|/b) sigma(alpha u z / n + b) an eps-close copy
  of phi_r on [-k, k]: `near_readouts`. With max(0, .) in phi_r it holds: the share is
  eps/(8 k |r| alpha), which is the printed one where |r| alpha = k. The text that we have writes
  sigma, which is ReLU6 elsewhere. So read it fails for |r| + k > 6, so for every k >= 5 and some r:
  by `ceiling_error` no u at all is nearer than h (|r| + k - 6) / (h + k), h = max(|r|, 6 - |r|),
  for k = |r| = 7 nearer than 4. (Not in the paper; derived here.) Which of the two is meant we
  cannot tell; nothing that follows uses the ceiling.
- Lemma 11: units as they are, and all x: the share eps/(112 k^(5/2)) is 2 eps-close to psi_r:
  `worst_errors`.

Averages are exact sums over binomial probabilities, for any n: no input is listed.

Source: Daniely and Malach (2020), "Learning parities with neural networks", sections 2 and 5.1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from implicit_bias.base.validation import Array, as_features
from implicit_bias.datasets.parities import ParityDistribution, cube

# Where ReLU6 saturates.
CEILING = 6.0
# C of lemma 8.
OPEN_SHARE_ERROR = 2.0 * math.sqrt(2.0 / math.pi)


def relu6(t: Array) -> Array:
    """min(max(t, 0), 6)."""
    return np.clip(t, 0.0, CEILING)


def gate(t: Array) -> Array:
    """Return the derivative of ReLU6: 1 between 0 and 6, else 0."""
    return np.asarray((t > 0) & (t < CEILING), dtype=np.float64)


# --- networks ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TwoLayers:
    """Weights of g(x) = <u, ReLU6(W x + b)>, x the bits over sqrt(n).

    Attributes
    ----------
    weights : ndarray of shape (H, n)
        W.
    biases, readout : ndarray of shape (H,)
        b and u.
    """

    weights: Array
    biases: Array
    readout: Array

    def hidden(self, bits: ArrayLike) -> Array:
        """Compute the outputs of the hidden units, shape (m, H), of bits (m, n)."""
        n = self.weights.shape[1]
        return relu6(as_features(bits, n) @ self.weights.T / math.sqrt(n) + self.biases)

    def outputs(self, bits: ArrayLike) -> Array:
        """g(x), shape (m,), of bits (m, n)."""
        return self.hidden(bits) @ self.readout


def start(
    n_bits: int, k: int, pairs: int, *, printed: bool = False, random_state: int = 0
) -> TwoLayers:
    """Draw the start of theorem 3.

    Parameters
    ----------
    n_bits, k : int
        n and k.
    pairs : int
        q: half the number of units. Unit q + i is the other one of unit i.
    printed : bool
        Whether the pairs are (-w, -b, -u), as printed, or (w, b, -u), so that g = 0.
    random_state : int
        Seed of the draws.

    Examples
    --------
    >>> bool(abs(start(5, 3, 4).outputs(cube(5))).max() < 1e-12)
    True
    """
    rng = np.random.default_rng(random_state)
    w = rng.integers(-1, 2, size=(pairs, n_bits)).astype(np.float64)
    u = rng.uniform(-n_bits / k, n_bits / k, pairs)
    b = np.full(pairs, 1.0 / (8.0 * k))
    sign = -1.0 if printed else 1.0
    return TwoLayers(
        np.concatenate([w, sign * w]), np.concatenate([b, sign * b]), np.concatenate([u, -u])
    )


def first_step(distribution: ParityDistribution, initial: TwoLayers) -> TwoLayers:
    """Take the first step from a start with g = 0, in expectation over D_A: eta_1 = 1.

    Parameters
    ----------
    distribution : ParityDistribution
        D_A.
    initial : TwoLayers
        Weights -1, 0 and 1, and g = 0; the latter is not checked.

    Raises
    ------
    ValueError
        Other weights.
    """
    scale = 1.0 / math.sqrt(distribution.n_bits)
    at = (distribution, initial.weights, scale, initial.biases)
    gates = label_averages(*at).mean
    return TwoLayers(
        initial.readout[:, None] * gates[:, :-1] * scale,
        initial.biases + initial.readout * gates[:, -1],
        label_averages(*at, function=relu6).mean[:, -1],
    )


# --- exact averages ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabelAverages:
    """E[y h(<w, x> + b) z_j] in each half of D_A; z are the bits, and one column is the constant.

    Attributes
    ----------
    uniform, easy : ndarray of shape (H, n + 1)
        In column j < n that of bit j, in column n that of 1 (for a bias, or a readout).
    """

    uniform: Array
    easy: Array

    @property
    def mean(self) -> Array:
        """Over D_A."""
        return (self.uniform + self.easy) / 2.0


def label_averages(
    distribution: ParityDistribution,
    signs: ArrayLike,
    scale: float,
    biases: ArrayLike,
    *,
    function: Callable[[Array], Array] = gate,
) -> LabelAverages:
    r"""Average the label times a function of a unit's input, exactly, and times each bit.

    With w = scale * s, s in {-1, 0, 1}^n, and z = s o x on the bits with s != 0, h is a function
    of a sum of z's, and every expectation a sum over binomial probabilities. With P_m the average
    over the sum T of m such signs, M the number of bits with s != 0, J those of them off A, and a
    the sum of s over A,

        uniform half   E = prod_S s_i * 2^-l sum_r (-1)^r binom(l, r) P_{M-l}[h(l - 2r + T)],
                       l = |S|, S = A without j (j in A), A and j (j not in A), A (constant)
        easy half      E = 1/2 sum_{e = +-1} P_{|J|}[h(e a + T)]                     (j in A)
                       E = s_j 1/4 sum_{e, z = +-1} e z P_{|J|-1}[h(e a + z + T)]    (j not in A)
                       E = 1/2 sum_{e = +-1} e P_{|J|}[h(e a + T)]                   (constant)

    Not in the paper; derived here.

    Parameters
    ----------
    distribution : ParityDistribution
        D_A.
    signs : array_like of shape (H, n)
        s of each unit.
    scale : float
        The magnitude of all weights on bits, positive: 1/sqrt(n) for the source's.
    biases : array_like of shape (H,)
        b.
    function : callable
        h, of arrays entry by entry: `gate` for gradients of weights and biases, `relu6` for those
        of the readout.

    Returns
    -------
    LabelAverages
    """
    s, b = np.asarray(signs, dtype=np.float64), np.asarray(biases, dtype=np.float64)
    n, k, on_A = distribution.n_bits, distribution.k, list(distribution.relevant)
    off_A = np.setdiff1d(np.arange(n), on_A)
    active, active_off = (s != 0).sum(axis=1), (s[:, off_A] != 0).sum(axis=1)
    sum_A, product_A = s[:, on_A].sum(axis=1), s[:, on_A].prod(axis=1)
    products_without = np.stack(
        [np.delete(s[:, on_A], i, axis=1).prod(axis=1) for i in range(k)], axis=1
    )

    def average(m: NDArray[np.int64], shift: Array | float) -> Array:
        """P_m[h(shift + T)] of each unit, shape (H,); m below 0 only where its factor is 0."""
        m = np.maximum(m, 0)
        t = m[:, None] - 2.0 * np.arange(m.max() + 1)
        shifts = np.broadcast_to(shift, len(m))[:, None]
        values = function(scale * (shifts + t) + b[:, None])
        return np.asarray((values * _binomial_shares(m)).sum(axis=1))

    def walsh(level: int) -> Array:
        """Level-l Walsh coefficient of h as a function of z, shape (H,)."""
        terms = [
            (-1) ** r * share * average(active - level, level - 2.0 * r)
            for r, share in enumerate(_binomial_shares(np.array([level]))[0])
        ]
        return np.asarray(sum(terms))

    sides = (-1.0, 1.0)
    easy_sides = {e: average(active_off, e * sum_A) for e in sides}
    easy_off = sum(
        e * z * average(active_off - 1, e * sum_A + z) / 4.0 for e in sides for z in sides
    )
    uniform, easy = np.empty((len(s), n + 1)), np.empty((len(s), n + 1))
    uniform[:, on_A] = products_without * walsh(k - 1)[:, None]
    easy[:, on_A] = ((easy_sides[1.0] + easy_sides[-1.0]) / 2.0)[:, None]
    uniform[:, off_A] = (product_A * walsh(k + 1))[:, None] * s[:, off_A]
    easy[:, off_A] = np.asarray(easy_off)[:, None] * s[:, off_A]
    uniform[:, n] = product_A * walsh(k)
    easy[:, n] = (easy_sides[1.0] - easy_sides[-1.0]) / 2.0
    return LabelAverages(uniform, easy)


def _binomial_shares(m: NDArray[np.int64]) -> Array:
    """binom(m, r) / 2^m for r = 0 .. max m, shape (len(m), max m + 1); 0 for r > m."""
    m, r = m[:, None], np.arange(m.max() + 1)
    # For r > m the last term is minus infinity.
    logarithms = gammaln(m + 1) - gammaln(r + 1) - m * math.log(2.0) - gammaln(m - r + 1)
    return np.exp(logarithms)


# --- lemmas 5 to 9 -----------------------------------------------------------------------------


def correlation_bound(n_bits: int, k: int, c: float = 1.0) -> float:
    """Lemma 5: c / sqrt(binom(n-1, k)), for the uniform half off A; lemma 6: c = C (n-1)."""
    return c / math.sqrt(math.comb(n_bits - 1, k))


def is_good(distribution: ParityDistribution, signs: ArrayLike) -> NDArray[np.bool_]:
    """Whether the initial weights of each unit sum to 0 over A, shape (H,): lemma 7."""
    s = as_features(signs, distribution.n_bits)
    return np.asarray(s[:, list(distribution.relevant)].sum(axis=1) == 0)


def good_share(k: int) -> float:
    """Probability that k weights uniform in {-1, 0, 1} sum to 0, to be held against 1/(14 sqrt k).

    Examples
    --------
    >>> round(27 * good_share(3))
    7
    """
    ways = sum(math.comb(k, 2 * j) * math.comb(2 * j, j) for j in range(k // 2 + 1))
    return ways / 3**k


def open_share(n_bits: int, k: int, active: int, bias: float) -> float:
    """Phi of lemma 8, for a unit with this many weights -1 or +1 off A."""
    edge, t = k / math.sqrt(n_bits), active - 2.0 * np.arange(active + 1)
    before = t / math.sqrt(n_bits) + bias
    inside = (before > edge) & (before < CEILING - edge)
    return float(inside @ _binomial_shares(np.array([active]))[0])


# --- lemmas 10 and 11 --------------------------------------------------------------------------


def psi(r: int, z: ArrayLike, ceiling: float = math.inf) -> Array:
    """max(0, |r| - sign(r) z); the source's min(., 6) if the ceiling is 6."""
    return np.clip(abs(r) - np.sign(r) * np.asarray(z, dtype=np.float64), 0.0, ceiling)


def ceiling_error(k: int, r: int) -> float:
    """Compute how near a unit comes to min(psi_r, 6): h (|r| + k - 6) / (h + k), or 0.

    The least over all u of the largest error on [-k, k], h = max(|r|, 6 - |r|). (Not in the paper;
    derived here.) Between its own floor 0 and ceiling 48 k |r| the copy
    (|r|/b) sigma(alpha u z / n + b) is |r| - sign(r) c z, c a multiple of u. At z = -sign(r) k the
    target is 6, and the error at least |r| + k c - 6; at z = r, where the target is 0, or at
    z = r - 6 sign(r), where it comes to 6, the error is at least h (1 - c). With the weights
    h / (h + k) and k / (h + k) these two add up to the value above, whatever c, so that one of them
    is as large; c = (h + 6 - |r|) / (h + k) attains it. (A copy at its own ceiling is further off.)

    Examples
    --------
    >>> ceiling_error(7, 7), ceiling_error(5, 3), ceiling_error(3, 3)
    (4.0, 0.75, 0.0)
    """
    longest = max(abs(r), CEILING - abs(r))
    return longest * max(0.0, abs(r) + k - CEILING) / (longest + k)


def near_readouts(n_bits: int, k: int, r: int, alpha: float, eps: float) -> tuple[float, float]:
    """Return the u for which a unit copies psi_r up to eps: an interval, lemma 10.

    For u in it |(|r|/b) ReLU6(alpha u z / n + b) - psi_r(z)| <= eps on [-k, k], b = 1/(8k). Its
    length is the share eps/(8 k |r| alpha), at least eps/(8 k^2), of [-n/k, n/k], in which it lies
    as long as eps <= k |r| and alpha is in [1/4, 1].
    """
    # (|r|/b) alpha u z / n must be -sign(r) z up to eps, for |z| <= k.
    slope = abs(r) * 8.0 * k * alpha / n_bits
    centre, width = -np.sign(r) / slope, eps / (k * slope)
    return float(centre - width), float(centre + width)


def hidden_ranges(distribution: ParityDistribution, units: TwoLayers) -> tuple[Array, Array, Array]:
    """Return z of all settings of the bits in A, and each unit's range over all other bits.

    Returns
    -------
    z : ndarray of shape (2^k,)
    lowest, highest : ndarray of shape (2^k, H)
        Both are attained, each unit by itself.
    """
    bits = cube(distribution.k)
    on_A, root = list(distribution.relevant), math.sqrt(distribution.n_bits)
    off_A = np.setdiff1d(np.arange(distribution.n_bits), on_A)
    middle = bits @ units.weights[:, on_A].T / root + units.biases
    reach = np.abs(units.weights[:, off_A]).sum(axis=1) / root
    return bits.sum(axis=1), relu6(middle - reach), relu6(middle + reach)


def worst_errors(distribution: ParityDistribution, units: TwoLayers, r: int) -> Array:
    """Return max over all x of |(|r|/b) ReLU6(<w, x> + b') - psi_r(x)|, shape (H,): lemma 11.

    b = 1/(8k) is the bias at the start, b' that of the units, after the first step.
    """
    z, lowest, highest = hidden_ranges(distribution, units)
    factor = abs(r) * 8.0 * distribution.k
    target = psi(r, z)[:, None]
    # ReLU6 does not decrease, so the error is largest at an end of the range.
    errors = np.maximum(np.abs(factor * lowest - target), np.abs(factor * highest - target))
    return np.asarray(errors.max(axis=0))
