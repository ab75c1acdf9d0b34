r"""The Gram matrix that decides how fast a wide network of two layers learns, for any activation.

    f(x) = 1/sqrt(m) sum_k a_k phi(<w_k, x>),     a_k = -1 or +1 fixed, w_k ~ N(0, I) trained.

The gradients of f in W at two samples have the inner product

    G(W)_ij = <x_i, x_j> 1/m sum_k phi'(<w_k, x_i>) phi'(<w_k, x_j>),

the masked Gram (X X') o (Z Z') of this package, with real-valued gates Z_nk = phi'(<w_k, x_n>) /
sqrt(m): 0/1 gates for ReLU, sigmoid-like ones for swish. While the gates hardly move, a step s of
gradient descent on 1/2 ||u - y||^2, u = f(X), takes the residual r = u - y to (I - s G) r, so

    ||r_t||^2 = sum_i (1 - s lambda_i)^(2t) <v_i, r_0>^2                        (equation 3 of [P])

(`galu.predicted_losses`), and the small eigenvalues of G are the slow directions. As m grows, G(W)
goes to

    G_ij = <x_i, x_j> kappa(<x_i, x_j>) = sum_k c_k^2 <x_i, x_j>^(k + 1)          (||x_i|| = 1),

with kappa(rho) = E phi'(u) phi'(v) for standard normal u, v of correlation rho, and c_k the Hermite
coefficients of phi'. The k-th term is a polynomial of degree k + 1 in x: of low rank if the data
span few dimensions d'. From it follows what depends on the activation:

polynomial   finitely many terms: rank G does not exceed `polynomial_rank`, O(d'^p), and all other
             eigenvalues are 0, at any width (theorem 4.3 of [P]).
smooth       c_k^2 falls faster than any power of k, as exp(-pi sqrt(k)) for tanh: so does
             `eigenvalue_bounds`.
with a kink  kappa has a kink, too, where samples coincide: the eigenvalues fall only like powers.
             On a half circle lambda_min ~ n^(1 - 2r) where the r-th derivative of phi jumps:
             r = 1 for ReLU, leaky ReLU and SELU, r = 2 for ELU.

================  ========  =====================================================================
symbol            shape     meaning
================  ========  =====================================================================
X                 (n, d)    samples
d'                          dimension of their span
W                 (m, d)    first layer
G                 (n, n)    Gram matrix of the gradients in W
rho, theta                  correlation of u and v, and their angle arccos(rho)
kappa                       dual of phi' (`Dual`)
c                 (K,)      coefficients of phi' in the normalised Hermite polynomials
================  ========  =====================================================================

Source: Panigrahi, Shetty, Goyal, "Effect of Activation Functions on the Training of
Overparametrized Neural Nets" (ICLR 2020), [P] above; equation (3) goes back to Arora et al. (2019).
They say that all eigenvalues are large with a kink, that the smallest may be exponentially small
without one where the data span few dimensions, and that depth cures it. Their abstract and captions
were at hand, not the full text: bounds and exponents with constants are ours, derived here and
tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import scipy.stats
import torch
from numpy.polynomial import chebyshev, legendre
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional

from implicit_bias.theory.gated_least_squares import without_rounding
from implicit_bias.validation import Array, as_device, as_finite

# Rows of W that are drawn at once, and entries of the gates that are held at once.
ROWS, BLOCK = 2**12, 2**20
# Where exp(-r^2 / 2), even times a large power of r, has long been below rounding.
RADIUS = 13.0
# Nodes of the quadrature along the radius, and along each of the four sectors.
RADIAL, ANGULAR = 96, 48
# Degree of the interpolation of kappa in the angle.
DEGREE = 128
# What the quadrature may be off by, relative to kappa(1), before it is refused.
ACCURACY = 1e-9
# Hermite coefficients kept for bounds, and the size below which one is rounding.
HERMITE_TERMS, ROUNDING = 400, 1e-12
# Rows count as unit vectors up to this.
UNIT = 1e-9


# --- activations ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Activation:
    """An activation function.

    Parameters
    ----------
    name : str
        How it is called.
    value : callable
        phi, elementwise on tensors, differentiable by autograd. At infinite width phi must be
        smooth but at 0, where it may have any kink.
    """

    name: str
    value: Callable[[Tensor], Tensor]

    def derivative(self, z: Tensor) -> Tensor:
        """Return phi' at z, of any shape."""
        z = z.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(self.value(z).sum(), z)
        return slope

    @cached_property
    def kappa(self) -> Dual:
        """Dual of phi': kappa(rho) = E phi'(u) phi'(v).

        Raises
        ------
        ValueError
            As `Dual.of`.
        """
        return Dual.of(self.derivative, f"the derivative of {self.name}")

    @cached_property
    def hermite_squares(self) -> Array:
        """c_k^2, shape (HERMITE_TERMS,): kappa(rho) = sum_k c_k^2 rho^k."""
        return hermite_coefficients(self.derivative, HERMITE_TERMS) ** 2

    @cached_property
    def covariance(self) -> Dual:
        """Cov(phi(u), phi(v)) of the correlation rho.

        Raises
        ------
        ValueError
            As `Dual.of`.
        """
        dual = Dual.of(self.value, self.name)
        series = dual.series.copy()
        series[0] -= float(dual(0.0))  # the square of the mean
        return Dual(series)

    @cached_property
    def correlation_map(self) -> Dual:
        """The map of a normalised hidden layer: Cov(phi(u), phi(v)) / Var(phi(u)) of rho."""
        return Dual(self.covariance.series / float(self.covariance(1.0)))

    @property
    def expansion(self) -> float:
        """Slope of the map at rho = 1: by this factor a hidden layer drives close samples apart.

        It is kappa(1) / Var(phi(u)), which exceeds 1 unless phi is linear (Poincare).
        """
        return float(self.kappa(1.0)) / float(self.covariance(1.0))


def polynomial(coefficients: Sequence[float]) -> Activation:
    """Return phi(z) = sum_l coefficients[l] z^l.

    Raises
    ------
    ValueError
        Of degree 0: it has no gradient.
    """
    if not any(coefficients[1:]):
        raise ValueError(
            f"the polynomial with the coefficients {list(coefficients)} is constant: its degree "
            "must be at least 1"
        )

    def value(z: Tensor) -> Tensor:
        result = torch.zeros_like(z)
        for coefficient in reversed(coefficients):  # Horner
            result = result * z + coefficient
        return result

    name = " ".join(_term(b, degree) for degree, b in enumerate(coefficients) if b)
    return Activation(name.removeprefix("+ "), value)


def _term(coefficient: float, degree: int) -> str:
    """Write one term of a polynomial, sign first."""
    sign = "-" if coefficient < 0 else "+"
    power = ("", "z")[degree] if degree < 2 else f"z^{degree}"
    factor = "" if degree and abs(coefficient) == 1 else f"{abs(coefficient):g}"
    return " ".join(filter(None, (sign, factor, power)))


ACTIVATIONS = {
    "relu": Activation("relu", functional.relu),
    "leaky-relu": Activation("leaky-relu", lambda z: functional.leaky_relu(z, 0.1)),
    "selu": Activation("selu", functional.selu),
    "elu": Activation("elu", functional.elu),
    "swish": Activation("swish", functional.silu),
    "tanh": Activation("tanh", torch.tanh),
    "quadratic": Activation("quadratic", torch.square),
    "cubic": Activation("cubic", lambda z: z**3),
}


# --- data ----------------------------------------------------------------------------------


def circle_points(
    n_samples: int, n_features: int = 10, *, arc: float = math.pi, seed: int = 0
) -> Array:
    """Spread points evenly over an arc of the unit circle, in a random plane.

    Parameters
    ----------
    n_samples, n_features : int
        n and d.
    arc : float
        Angle that the points divide into n steps. An even number of points on the whole circle
        (2 pi) are pairs x, -x, whose separation is 0; half of it, the default, has no pairs.
    seed : int
        Of the plane.

    Returns
    -------
    ndarray of float64, shape (n_samples, n_features)
        Unit vectors; on the half circle their separation is sin(pi / n_samples).
    """
    angles = arc * np.arange(n_samples) / n_samples
    gaussian = np.random.default_rng(seed).standard_normal((n_features, 2))
    plane, _ = np.linalg.qr(gaussian)
    return np.column_stack([np.cos(angles), np.sin(angles)]) @ plane.T


def normalise(X: ArrayLike) -> Array:
    """Scale each row of X (n, d) to length 1.

    Raises
    ------
    ValueError
        A row of zeros, which has no direction.
    """
    X = as_finite(X, "X", 2)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    if not norms.all():
        raise ValueError(
            f"row {int(np.argmin(norms))} of X is zero and has no direction: drop it, or append "
            "a constant column"
        )
    return X / norms


def preprocess(X: ArrayLike) -> Array:
    """Prepare data for the assumption of the theorems: unit vectors, none opposite another.

    Each row is scaled to length 1, a 1 is appended, and the whole divided by sqrt(2). All inner
    products are then at least 0, and samples are separated as soon as their directions differ.

    Returns
    -------
    ndarray of float64, shape (n, d + 1)
        Unit vectors.

    Raises
    ------
    ValueError
        As `normalise`.
    """
    X = normalise(X)
    return np.column_stack([X, np.ones(len(X))]) / math.sqrt(2)


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
        Rows that are not of length 1, or only one.
    """
    X = _as_unit(X)
    if len(X) < 2:
        raise ValueError("one sample has no separation: pass at least two")
    rho = X @ X.T
    # Half the chord to the nearer of x and -x: exact where 1 - rho^2 cancels.
    nearest = np.argmax(np.abs(rho) - 2 * np.eye(len(X)), axis=1)
    sign = np.where(rho[np.arange(len(X)), nearest] < 0, -1.0, 1.0)
    chord = np.linalg.norm(X - sign[:, None] * X[nearest], axis=1).min()
    return float(chord * math.sqrt(1 - chord**2 / 4))


# --- finite width --------------------------------------------------------------------------


def gaussian_weights(width: int, n_features: int, *, seed: int = 0) -> Iterator[Tensor]:
    """Draw W (width, n_features) from N(0, I) in float64, one block of `ROWS` rows at a time."""
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, width, ROWS):
        shape = (min(ROWS, width - start), n_features)
        yield torch.randn(shape, generator=generator, dtype=torch.float64)


def activation_gram(
    X: ArrayLike, activation: Activation, weights: Iterable[Tensor], *, device: str = "cpu"
) -> Array:
    """Compute G(W) of a finite network.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Samples of any length.
    activation : Activation
        phi.
    weights : iterable of Tensor of shape (any, d)
        W in blocks of rows: those of `gaussian_weights`, or ``[W]`` of a trained network.
    device : str
        Where to compute.

    Returns
    -------
    ndarray of float64, shape (n, n)
        G(W), exactly symmetric. No more than `BLOCK` gates (or n) are held at once.

    Raises
    ------
    ValueError
        No units, weights of another number of features, or an unknown device.
    """
    X = as_finite(X, "X", 2)
    samples = torch.tensor(X, device=as_device(device))
    agreement = samples.new_zeros((len(X), len(X)))
    width = 0
    for block in weights:
        if block.ndim != 2 or block.shape[1] != X.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} features, but weights have the shape {tuple(block.shape)}: "
                "pass one row a unit, with as many columns as X"
            )
        width += len(block)
        for rows in torch.split(block, max(1, BLOCK // max(1, len(X)))):
            gates = activation.derivative(samples @ rows.to(samples).T)  # (n, rows)
            agreement += gates @ gates.T
    if not width:
        raise ValueError("the network has no units: pass at least one row of weights")
    gram = (samples @ samples.T) * agreement / width
    return ((gram + gram.T) / 2).cpu().numpy()


# --- infinite width ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dual:
    """kappa(rho) = E h(u) h(v), for standard normal u and v of correlation rho.

    In the polar coordinates u = r cos(alpha), v = r cos(alpha - theta) the kinks of h at 0 are
    the four rays on which u or v is 0. Between them the integrand is smooth, so that Gauss-Legendre
    rules on the four sectors and along the radius converge fast for any h that is smooth but at 0;
    a Gauss-Hermite rule for u and v would not, for ReLU. As a function of the angle, kappa is
    smooth up to both ends, and is kept as a Chebyshev series.

    Parameters
    ----------
    series : ndarray of shape (DEGREE + 1,)
        Chebyshev coefficients in 2 theta / pi - 1.
    """

    series: Array

    @classmethod
    def of(cls, function: Callable[[Tensor], Tensor], name: str) -> Dual:
        """Compute the dual of a function.

        Raises
        ------
        ValueError
            The quadrature does not converge: h is not smooth away from 0, or overflows.
        """
        # Chebyshev points of the first kind, at which the polynomials are orthogonal.
        phases = np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1)
        angles = (np.cos(phases) + 1) * np.pi / 2
        values = _gaussian_products(function, angles, RADIAL, ANGULAR)
        series = 2 * np.cos(np.outer(np.arange(DEGREE + 1), phases)) @ values / len(values)
        series[0] /= 2
        dual = cls(series)
        angles = np.linspace(0, np.pi, 7)
        finer = _gaussian_products(function, angles, RADIAL * 3 // 2, ANGULAR * 3 // 2)
        error = float(np.abs(dual.at_angle(angles) - finer).max()) / max(abs(finer[0]), 1e-300)
        if not error <= ACCURACY:
            raise ValueError(
                f"the quadrature for {name} is off by {error:.1e}: the function must be smooth "
                "but at 0, and of moderate growth. Use activation_gram at a finite width"
            )
        return dual

    def __call__(self, rho: ArrayLike) -> Array:
        """Kappa at correlations of any shape; within rounding of [-1, 1]."""
        return self.at_angle(np.arccos(np.clip(rho, -1.0, 1.0)))

    def at_angle(self, theta: ArrayLike) -> Array:
        """Kappa at angles in [0, pi]."""
        x = 2 * np.asarray(theta) / np.pi - 1
        return np.asarray(chebyshev.chebval(x, self.series), dtype=np.float64)


def infinite_gram(X: ArrayLike, activation: Activation, *, hidden_layers: int = 1) -> Array:
    """Compute the limit of G(W) at infinite width.

    With more hidden layers, G is that of the gradients in the weights of the last one, whose inputs
    are the outputs of the one before. Each of those is shifted and scaled to mean 0 and variance
    1 over the draw of the weights, so that all hidden inputs are `correlations` of unit vectors.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Unit vectors (`normalise`, `preprocess`).
    activation : Activation
        phi, smooth but at 0.
    hidden_layers : int
        At least 1.

    Returns
    -------
    ndarray of float64, shape (n, n)
        G.

    Raises
    ------
    ValueError
        Rows that are not of length 1, no hidden layer, or a phi that the quadrature refuses.
    """
    if hidden_layers < 1:
        raise ValueError(f"there must be at least one hidden layer, got {hidden_layers}")
    rho = next(islice(correlations(X, activation), hidden_layers - 1, None))
    return rho * activation.kappa(rho)


def correlations(X: ArrayLike, activation: Activation) -> Iterator[Array]:
    """Yield the Gram matrix of what each hidden layer sees: of X first, without end.

    Its smallest eigenvalue never falls from layer to layer: the map is a power series with
    non-negative coefficients that sum to 1, and by Schur's bound on elementwise products no
    elementwise power of a correlation matrix has a smaller eigenvalue than the matrix itself.

    Yields
    ------
    ndarray of float64, shape (n, n)
        Correlations, 1 on the diagonal.

    Raises
    ------
    ValueError
        As `infinite_gram`.
    """
    X = _as_unit(X)
    rho = X @ X.T
    while True:
        np.fill_diagonal(rho, 1.0)
        rho = without_rounding(rho)
        yield rho
        rho = activation.correlation_map(rho)


def hermite_coefficients(function: Callable[[Tensor], Tensor], n_terms: int) -> Array:
    """Expand a function that is smooth but at 0 in normalised Hermite polynomials.

    Returns
    -------
    ndarray of float64, shape (n_terms,)
        c_k = E h(u) He_k(u) / sqrt(k!), u standard normal; kappa(rho) = sum_k c_k^2 rho^k.
    """
    half, weights = _rule(RADIUS, 2 * HERMITE_TERMS)
    u = np.concatenate([-half, half])
    # He_k / sqrt(k!) times exp(-u^2 / 4): bounded, so that no degree overflows.
    previous, current = np.zeros_like(u), np.exp(-(u**2) / 4)
    integrand = _values(function, u) * np.tile(weights, 2) * current / math.sqrt(2 * np.pi)
    coefficients = np.empty(n_terms)
    for k in range(n_terms):
        coefficients[k] = integrand @ current
        following = (u * current - math.sqrt(k) * previous) / math.sqrt(k + 1)
        previous, current = current, following
    return coefficients


def _gaussian_products(
    function: Callable[[Tensor], Tensor], angles: Array, n_radial: int, n_angular: int
) -> Array:
    """Quadrature of E h(u) h(v) at angles (A,) between u and v."""
    r, radial_weights = _rule(RADIUS, n_radial)
    radial_weights = radial_weights * r * np.exp(-(r**2) / 2) / (2 * np.pi)
    unit, unit_weights = _rule(1.0, n_angular)
    products = np.empty(len(angles))
    for i, theta in enumerate(angles):
        # The sectors from -pi/2 between the rays on which cos(alpha) or cos(alpha - theta) is 0.
        widths = np.array([theta, np.pi - theta, theta, np.pi - theta])
        starts = np.array([-np.pi / 2, theta - np.pi / 2, np.pi / 2, theta + np.pi / 2])
        alpha = (starts[:, None] + np.outer(widths, unit)).reshape(-1)  # sector after sector
        angular_weights = np.outer(widths, unit_weights).reshape(-1)
        u = _values(function, np.outer(r, np.cos(alpha)))
        v = _values(function, np.outer(r, np.cos(alpha - theta)))
        products[i] = radial_weights @ (u * v) @ angular_weights
    return products


def _rule(length: float, n_nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [0, length]."""
    nodes, weights = legendre.leggauss(n_nodes)
    return length * (nodes + 1) / 2, length * weights / 2


def _values(function: Callable[[Tensor], Tensor], points: Array) -> Array:
    return function(torch.tensor(points)).detach().numpy()


# --- spectrum ------------------------------------------------------------------------------


def polynomial_rank(degrees: Iterable[int], dimension: int, *, unit_norm: bool = True) -> int:
    """Bound the rank of G for polynomial activations, at any width.

    phi = sum_l b_l z^l makes the features phi'(<w, x>) x polynomials in x, homogeneous of the
    degrees l with b_l != 0. There are C(d' + l - 1, l) monomials of degree l; on the unit sphere
    those of degree l - 2 are among those of degree l, so only the highest even and the highest
    odd degree count. All n - rank other eigenvalues are 0: theorem 4.3 of [P]. The exact number is
    ours, and generic samples attain it.

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

    Raises
    ------
    ValueError
        A degree below 1.
    """
    counted = set(degrees)
    if min(counted, default=1) < 1:
        raise ValueError(f"degrees must be at least 1, got {sorted(counted)}: leave out the others")
    if unit_norm:
        counted = {
            max(d for d in counted if d % 2 == parity) for parity in {d % 2 for d in counted}
        }
    return sum(math.comb(dimension + degree - 1, degree) for degree in counted)


def eigenvalue_bounds(activation: Activation, n_samples: int, dimension: int) -> Array:
    """Bound the eigenvalues of G at infinite width by the tail of the Hermite series of phi'.

    The terms of degree k < P have a rank R(P) of at most `polynomial_rank`, and the others a
    trace of n sum_{k >= P} c_k^2, so that by Weyl's inequality, for all P with R(P) < i,

        lambda_i <= n sum_{k >= P} c_k^2 / (i - R(P)).

    It holds for any unit vectors in d' dimensions. Ours.

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


def circle_eigenvalues(activation: Activation, n_samples: int) -> Array:
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
    squares = activation.hermite_squares
    if squares[-2:].sum() > ROUNDING * squares.sum():
        raise ValueError(
            f"the Hermite coefficients of the derivative of {activation.name} fall too slowly: it "
            "has a kink. Take the eigenvalues of infinite_gram"
        )
    folded = np.zeros(n_samples)
    for k, square in enumerate(squares):
        q = np.arange(k + 2)
        shares = scipy.stats.binom.pmf(q, k + 1, 0.5)
        np.add.at(folded, (k + 1 - 2 * q) % n_samples, square * shares)
    return np.sort(n_samples * folded)[::-1]


def eigenvalues(gram: Array) -> Array:
    """Return the eigenvalues (n,) of a Gram matrix (n, n), largest first."""
    return np.asarray(np.linalg.eigvalsh(gram)[::-1], dtype=np.float64)


def _as_unit(X: ArrayLike) -> Array:
    """Convert to float64 (n, d) and refuse rows that are not of length 1."""
    X = as_finite(X, "X", 2)
    norms = np.linalg.norm(X, axis=1)
    off = np.abs(norms - 1)
    if len(X) and off.max() > UNIT:
        raise ValueError(
            f"row {int(off.argmax())} of X has length {norms[off.argmax()]:.6g}, not 1: pass "
            "normalise(X) or preprocess(X)"
        )
    return X
