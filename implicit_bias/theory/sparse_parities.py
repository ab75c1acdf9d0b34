r"""Sparse parities: hard for every linear method, learned by gradient descent on two layers.

The label is the parity of k of n bits, chi_A(x) = prod_{i in A} x_i, and the inputs come from

    D_A = 1/2 (uniform bits) + 1/2 (all bits in A equal, uniform otherwise),    k = |A| odd.

=============  ==================  =============================================================
symbol         shape               meaning
=============  ==================  =============================================================
x              (n,)                bits, -1 or +1
A              k indices           relevant bits; the label is y = chi_A(x)
psi(x)         (N,)                features of a linear method, fixed before A is known
c_S            (N,)                E[chi_S(x) psi(x)] over uniform bits: Walsh coefficients
W, b, u        (H, n), (H,), (H,)  f(x) = <u, sigma(W x + b)>, sigma(t) = min(max(t, 0), 6)
G              (H, n)              G_h = E[y sigma'(<w_h, x> + b_h) x], expectation over D_A
=============  ==================  =============================================================

**Linear methods** (theorem 2 of the source). Of any fixed features in [-1, 1]^N, and of the linear
predictors with ||w||_2 <= B on them, some A of size k admits none of small hinge loss. We prove it
with these constants:

    L_{D_A}(h) >= 1/2 E_uniform[1 - y h(x)] = 1/2 - 1/2 <w, c_A> >= 1/2 - B/2 ||c_A||,

because the hinge loss is neither negative nor below 1 - y h; and by Parseval the squares ||c_A||^2
of all A of size k sum to at most N, so that the smallest is at most N / binom(n, k). Random
features, frozen gates z(x) x and with them the SVM under the group norm, whose Omega(zeta) is at
least ||zeta||_2, are such linear methods.

**Gradient descent** (theorem 3). All weights go down the hinge loss plus lambda_t (||W||^2 +
||u||^2). At the start the units come in pairs (w, b, u), (w, b, -u), so f = 0, every sample is
active, and the gradient in w_h is -u_h G_h. In the easy half y = x_i for all i in A, so that on A
the entries of G are about half the share of inputs that pass the gate; off A they vanish with n.
The first step has 2 eta_1 lambda_1 = 1: it forgets the initial weights and leaves a gradient that
points to A. What remains is a problem in the sum of k bits, which the following steps solve.

What is the source's, and what is ours: D_A, the bounded features, ReLU6, the hinge loss, a first
step of its own step size and regularisation, and the claims are the source's. The constants of the
bound, the distribution of the initial weights and the step sizes are ours, chosen so that they can
be checked; we have not compared them with those that the source proves its theorems for.
`gate_correlations` is the exact G for our weights, `limiting_correlations` what becomes of it with
many bits.

Source: Daniely and Malach (2020), "Learning parities with neural networks".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import gammaln

from implicit_bias.datasets.dataset import Dataset
from implicit_bias.validation import Array, as_features, as_finite, as_labels

# 2^20 points of the cube are 168 MB of bits.
MAX_CUBE_BITS = 20
# Where ReLU6 saturates.
CEILING = 6.0


@dataclass(frozen=True)
class ParityDistribution:
    """D_A, and the parity of the bits in A.

    Parameters
    ----------
    n_bits : int
        n.
    relevant : tuple of int
        A: an odd number of different bits, 0 .. n - 1. (Of an even number the easy half has one
        label only, and the gradient at the start does not point to A.)

    Raises
    ------
    ValueError
        An even number of relevant bits, a bit twice, or one that does not exist.
    """

    n_bits: int
    relevant: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "relevant", tuple(sorted(self.relevant)))
        if len(set(self.relevant)) != len(self.relevant) or len(self.relevant) % 2 == 0:
            raise ValueError(
                f"relevant must name an odd number of different bits, got {self.relevant}"
            )
        if not 0 <= self.relevant[0] <= self.relevant[-1] < self.n_bits:
            raise ValueError(
                f"relevant must name bits from 0 to {self.n_bits - 1}, got {self.relevant}"
            )

    @classmethod
    def random(cls, n_bits: int, k: int, *, random_state: int = 0) -> ParityDistribution:
        """Draw A among all sets of k of the n bits, each with equal probability.

        Raises
        ------
        ValueError
            More relevant bits than bits, or an even number of them.
        """
        _check_size(n_bits, k)
        drawn = np.random.default_rng(random_state).choice(n_bits, size=k, replace=False)
        return cls(n_bits, tuple(drawn.tolist()))

    @property
    def k(self) -> int:
        """Number of relevant bits."""
        return len(self.relevant)

    @property
    def mask(self) -> int:
        """Row of A in Walsh coefficients: the sum of 2^i over i in A."""
        return sum(1 << i for i in self.relevant)

    def labels(self, bits: ArrayLike) -> Array:
        """Parities chi_A(x), shape (m,), of bits (m, n)."""
        return np.asarray(self._relevant_bits(bits).prod(axis=1))

    def probabilities(self, bits: ArrayLike) -> Array:
        """Probability under D_A of each row of bits (m, n): shape (m,)."""
        equal = np.abs(self._relevant_bits(bits).sum(axis=1)) == self.k
        return 0.5 * 2.0**-self.n_bits + 0.5 * equal * 2.0 ** -(self.n_bits - self.k + 1)

    def sample(
        self, n_samples: int, *, random_state: int = 0, append_constant: bool = True
    ) -> Dataset:
        """Draw labelled samples from D_A.

        Parameters
        ----------
        n_samples : int
            Their number.
        random_state : int
            Seed of the generator.
        append_constant : bool
            Whether to append the constant 1 as the last column.
        """
        rng = np.random.default_rng(random_state)
        bits = rng.choice((-1.0, 1.0), size=(n_samples, self.n_bits))
        easy = rng.random(n_samples) < 0.5
        # In the easy half all relevant bits copy the first of them.
        bits[np.ix_(easy, np.asarray(self.relevant))] = bits[easy, self.relevant[0]][:, None]
        X = np.column_stack([bits, np.ones(n_samples)]) if append_constant else bits
        return Dataset(
            f"parity of {self.k} of {self.n_bits} bits",
            X,
            self.labels(bits),
            ("odd", "even"),  # the number of bits that are -1
            has_constant=append_constant,
        )

    def _relevant_bits(self, bits: ArrayLike) -> Array:
        columns: Array = as_features(bits, self.n_bits)[:, list(self.relevant)]
        return columns


def _check_size(n_bits: int, k: int) -> None:
    if not 0 <= k <= n_bits:
        raise ValueError(f"k must be in 0 .. {n_bits}, the number of bits, got {k}")


def cube(n_bits: int) -> Array:
    """All inputs, shape (2^n, n): in row r bit i is -1 where r has the binary digit 2^i.

    Raises
    ------
    ValueError
        No bits, or more than `MAX_CUBE_BITS`.
    """
    if not 1 <= n_bits <= MAX_CUBE_BITS:
        raise ValueError(f"n_bits must be in 1 .. {MAX_CUBE_BITS} to list all inputs, got {n_bits}")
    digits = np.arange(2**n_bits)[:, None] >> np.arange(n_bits) & 1
    return np.asarray(1.0 - 2.0 * digits, dtype=np.float64)


def walsh_coefficients(values: ArrayLike) -> Array:
    """Coefficients c_S = E[chi_S(x) psi(x)] over uniform bits, by the fast Walsh transform.

    Parameters
    ----------
    values : array_like of shape (2^n, N)
        Features on all inputs, in the order of `cube`.

    Returns
    -------
    ndarray of shape (2^n, N)
        In row r those of the set S of all bits i with the binary digit 2^i in r.

    Raises
    ------
    ValueError
        The number of rows is no power of two.
    """
    coefficients = as_finite(values, "values", 2).copy()
    n_points, n_features = coefficients.shape
    if n_points < 1 or n_points & (n_points - 1):
        raise ValueError(f"values must have a row for each of 2^n inputs, got {n_points} rows")
    stride = 1
    while stride < n_points:
        # Row-major: the two values of the bit in question are `stride` rows apart.
        pairs = coefficients.reshape(-1, 2, stride, n_features)
        pairs[:, 0], pairs[:, 1] = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
        stride *= 2
    return coefficients / n_points


def sets_of_size(n_bits: int, k: int) -> NDArray[np.int64]:
    """Rows of the Walsh coefficients of all sets of k of n bits, shape (binom(n, k),)."""
    return np.flatnonzero((cube(n_bits) < 0).sum(axis=1) == k)


def guaranteed_correlation(n_bits: int, k: int, n_features: int) -> float:
    """Bound sqrt(N / binom(n, k)) on the smallest ||c_A|| of N features in [-1, 1].

    Raises
    ------
    ValueError
        More relevant bits than bits.
    """
    _check_size(n_bits, k)
    return math.sqrt(n_features / math.comb(n_bits, k))


def hinge_lower_bound(correlation: ArrayLike, norm: ArrayLike) -> Array:
    """Theorem 2: the least hinge loss on D_A that linear predictors of this norm can have.

    Parameters
    ----------
    correlation : array_like
        ||c_A|| of the features, or a bound on it.
    norm : array_like
        B, the largest ||w||_2.

    Returns
    -------
    ndarray
        max(0, 1/2 - B ||c_A|| / 2); the constants are ours, proved at the head.
    """
    return np.maximum(0.0, 0.5 - 0.5 * np.asarray(norm) * np.asarray(correlation))


def gate_correlations(
    distribution: ParityDistribution, signs: ArrayLike, scale: float, biases: ArrayLike
) -> Array:
    r"""G_h = E[y sigma'(<w_h, x> + b_h) x] under D_A, exactly, of weights of one magnitude.

    With w = scale * s, s in {-1, +1}^n, and z = s o x, uniform like x, the gate is a function of
    a sum of z's, and every expectation a sum over binomial probabilities. With P_m the average
    over the sum T of m such signs, g(t) = 1 where 0 < scale * t + b < 6 (else 0), and a the sum
    of s over A,

        uniform half   E = prod_S s_i * 2^-l sum_r (-1)^r binom(l, r) P_{n-l}[g(l - 2r + T)],
                       l = |S|, S = A without j (j in A) or A and j (j not in A)
        easy half      E = 1/2 sum_{e = +-1} P_{n-k}[g(e a + T)]                       (j in A)
                       E = s_j 1/4 sum_{e, z = +-1} e z P_{n-k-1}[g(e a + z + T)]      (j not in A)

    and G is the mean of the two halves. Ours.

    Parameters
    ----------
    distribution : ParityDistribution
        D_A.
    signs : array_like of shape (H, n)
        s of each unit.
    scale : float
        The magnitude of all weights, positive.
    biases : array_like of shape (H,)
        b.

    Returns
    -------
    ndarray of shape (H, n)

    Raises
    ------
    ValueError
        Shapes that do not fit, or signs other than -1 and +1.
    """
    s, b = signs_and_biases(distribution, signs, biases)
    n, k, on_A = distribution.n_bits, distribution.k, list(distribution.relevant)
    sum_A, product_A = s[:, on_A].sum(axis=1), s[:, on_A].prod(axis=1)

    def passes(m: int, shift: Array) -> Array:
        """P_m[g(shift + T)], shape (H,), of shifts (H,)."""
        t = m - 2.0 * np.arange(m + 1)
        before = scale * (shift[:, None] + t) + b[:, None]
        return np.asarray(((before > 0) & (before < CEILING)) @ _binomial_shares(m))

    def walsh(level: int) -> Array:
        """Level-l Walsh coefficient of the gate as a function of z, shape (H,)."""
        terms = [
            (-1) ** r * share * passes(n - level, np.full(len(b), level - 2.0 * r))
            for r, share in enumerate(_binomial_shares(level))
        ]
        return np.asarray(sum(terms))

    sides = (-1.0, 1.0)
    easy_on = np.mean([passes(n - k, e * sum_A) for e in sides], axis=0)
    G = np.empty_like(s)
    # The product of the signs over A without j is product_A s_j.
    G[:, on_A] = 0.5 * (product_A * walsh(k - 1))[:, None] * s[:, on_A] + 0.5 * easy_on[:, None]
    off_A = np.setdiff1d(np.arange(n), on_A)
    if len(off_A):
        easy_off = np.mean(
            [e * z * passes(n - k - 1, e * sum_A + z) for e in sides for z in sides], axis=0
        )
        G[:, off_A] = 0.5 * (product_A * walsh(k + 1) + easy_off)[:, None] * s[:, off_A]
    return G


def limiting_correlations(
    distribution: ParityDistribution, signs: ArrayLike, biases: ArrayLike
) -> Array:
    r"""Leading order of `gate_correlations` on many bits, for weights s / sqrt(n).

    A sum of many bits over sqrt(n) is nearly normal. With F(b) = Phi(6 - b) - Phi(-b), the share
    of inputs that pass the gate,

        G_j = F(b) / 2              (j in A),    F''(b) = -b phi(b) - (6 - b) phi(6 - b),
        G_j = s_j a F''(b) / (2 n)  (j not in A),

    each up to a relative error of order n^-1/2, the width of the lattice that the sums live on.
    The uniform half is of higher order, as long as k is at least 3. Ours.

    Parameters
    ----------
    distribution, signs, biases
        As in `gate_correlations`.

    Returns
    -------
    ndarray of shape (H, n)

    Raises
    ------
    ValueError
        As `gate_correlations`, or a single relevant bit: then the uniform half is as large as
        the easy one.
    """
    if distribution.k < 3:
        raise ValueError("the limit is of parities of at least 3 bits: use gate_correlations")
    s, b = signs_and_biases(distribution, signs, biases)
    n, on_A = distribution.n_bits, list(distribution.relevant)
    share = stats.norm.cdf(CEILING - b) - stats.norm.cdf(-b)
    curvature = -b * stats.norm.pdf(b) - (CEILING - b) * stats.norm.pdf(CEILING - b)
    G = s * (s[:, on_A].sum(axis=1) * curvature / (2 * n))[:, None]
    G[:, on_A] = share[:, None] / 2
    return np.asarray(G)


def signs_and_biases(
    distribution: ParityDistribution, signs: ArrayLike, biases: ArrayLike
) -> tuple[Array, Array]:
    """Signs (H, n) and biases (H,), checked."""
    s = as_features(signs, distribution.n_bits)
    b = as_finite(biases, "biases", 1)
    if len(b) != len(s) or not np.isin(s, (-1.0, 1.0)).all():
        raise ValueError("signs must be -1 or +1, and biases one number for each of their rows")
    return s, b


def _binomial_shares(m: int) -> Array:
    """binom(m, r) / 2^m for r = 0 .. m."""
    r = np.arange(m + 1)
    return np.exp(gammaln(m + 1) - gammaln(r + 1) - gammaln(m - r + 1) - m * math.log(2.0))


def sample_shares(probabilities: ArrayLike | None, n_samples: int) -> Array:
    """Return the weight of each sample, checked; equal ones where not given."""
    if probabilities is None:
        return np.full(n_samples, 1.0 / n_samples)
    shares = as_finite(probabilities, "probabilities", 1)
    if len(shares) != n_samples or (shares < 0).any() or not math.isclose(shares.sum(), 1.0):
        raise ValueError(
            f"probabilities must be {n_samples} numbers, 0 or more, that sum to 1: divide them by "
            "their sum"
        )
    return shares


def hinge_loss(y: ArrayLike, outputs: ArrayLike, probabilities: ArrayLike | None = None) -> float:
    """Mean of max(0, 1 - y f(x)) over samples (m,), with these probabilities or equal ones.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, no samples, probabilities that
        are negative or do not sum to 1.
    """
    losses = np.maximum(0.0, 1.0 - _margins(y, outputs))
    return float(sample_shares(probabilities, len(losses)) @ losses)


def least_hinge_loss(y: ArrayLike, outputs: ArrayLike) -> float:
    """Mean hinge loss of the best multiple c f of a predictor, c >= 0: its scale is left out.

    In c the loss is convex and piecewise linear, so that the best c is 0 or a c at which one
    sample has margin 1; all are tried.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, or no samples.
    """
    margins = np.sort(_margins(y, outputs))[::-1]
    positive = margins[margins > 0]
    # At c = 1 / positive[j] samples 0 .. j have no loss, the others 1 - c * margin.
    rest = len(margins) - 1 - np.arange(len(positive))
    losses = (rest - (margins.sum() - np.cumsum(positive)) / positive) / len(margins)
    return float(max(0.0, losses.min(initial=1.0)))


def _margins(y: ArrayLike, outputs: ArrayLike) -> Array:
    """Margins y f(x), shape (m,)."""
    outputs = as_finite(outputs, "outputs", 1)
    return as_labels(y, len(outputs)) * outputs


def error_of_parity(error: ArrayLike, k: int) -> Array:
    """Error (1 - (1 - 2 e)^k) / 2 of a product of k labels, each wrong by itself with error e."""
    return (1.0 - (1.0 - 2.0 * np.asarray(error)) ** k) / 2.0
