r"""The Gram matrix that decides how fast a wide network of two layers learns, for any activation.

    F(x) = 1/sqrt(m) sum_k a_k phi(<w_k, x>),     w_k ~ N(0, I) trained, a_k fixed,

with a_k ~ N(0, 1), or -1 and +1. The gradients of F in W at two samples have the inner product

    G_ij = <x_i, x_j> 1/m sum_k a_k^2 phi'(<w_k, x_i>) phi'(<w_k, x_j>)         (equation 2 of [P]),

the first layer's part of the *neural tangent kernel*. It is the masked Gram (X X') o (Z Z') of this
package, with real-valued gates Z_nk = a_k phi'(<w_k, x_n>) / sqrt(m): 0/1 gates for ReLU and
readouts of +-1, sigmoid-like ones for swish. Trained readouts add H, the conjugate kernel
(`finite_gram`). While the gates hardly move, a step s of gradient descent on 1/2 ||u - y||^2,
u = F(X), takes the residual r = u - y to (I - s G) r, so

    ||r_t||^2 = sum_i (1 - s lambda_i)^(2t) <v_i, r_0>^2                     (theorem 4.6 of [P])

(`gated_least_squares.predicted_losses`), and in gradient flow the factor is exp(-2 lambda_i t)
(equation 3 of [P], `gated_least_squares.flow_losses`): the small eigenvalues of G are the slow
directions. As m grows, G goes to

    G_ij = <x_i, x_j> kappa(<x_i, x_j>) = sum_k c_k^2 <x_i, x_j>^(k + 1)          (||x_i|| = 1),

with kappa the dual activation of phi' (`dual_kernels.Dual`), and c_k the Hermite coefficients of
phi'. The k-th term is a polynomial of degree k + 1 in x: of low rank if the data span few
dimensions d'. From it follows what depends on the activation:

polynomial   finitely many terms: rank G does not exceed `polynomial_rank`, O(d'^p), and all other
             eigenvalues are 0, at any width (theorem 4.3 of [P]; the exact number is not in the
             paper; derived here).
smooth       c_k^2 falls faster than any power of k, as exp(-pi sqrt(k)) for tanh: so does
             `eigenvalue_bounds` (not in the paper, which has theorem 4.4; derived here).
with a kink  kappa has a kink, too, where samples coincide: the eigenvalues fall only like powers.
             On a half circle lambda_min ~ n^(1 - 2r) where the r-th derivative of phi jumps
             (condition J_r of [P], `KINKS`): r = 1 for ReLU, leaky ReLU and SELU, r = 2 for ELU
             (these powers are not in the paper; derived here).

================  ========  =====================================================================
symbol            shape     meaning
================  ========  =====================================================================
X                 (n, d)    samples
d'                          dimension of their span
W, a              (m, d)    first layer; readouts (m,), or (m, C) of C classes
G                 (n, n)    Gram matrix of the gradients in W
H                 (n, n)    Gram matrix of the gradients in the readouts
rho, theta                  correlation of u and v, and their angle arccos(rho)
kappa                       dual of phi' (`Dual`)
c                 (K,)      coefficients of phi' in the normalised Hermite polynomials
================  ========  =====================================================================

What [P] proves of G is in `benchmarks/panigrahi2020`.

Source: Panigrahi, Shetty, Goyal, "Effect of Activation Functions on the Training of
Overparametrized Neural Nets" (ICLR 2020), [P] above; the dynamics go back to Arora et al. (2019),
the setting of Gaussian readouts to Du et al. (2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import scipy.linalg
import scipy.stats
import torch
from numpy.typing import ArrayLike
from scipy.special import gammaln
from torch import Tensor
from torch.nn import functional

from implicit_bias.base.validation import Array, as_device, as_finite, check_count
from implicit_bias.kernels.dual_kernels import (
    HERMITE_TERMS,
    UNIT,
    Dual,
    gradient_kernel,
    hermite_coefficients,
    unit_rows,
    without_rounding,
)

# Rows of W that are drawn at once, and entries of the gates that are held at once.
ROWS, BLOCK = 2**12, 2**20
# Size below which a Hermite coefficient is rounding.
ROUNDING = 1e-12
# Share of the largest eigenvalue of a harmonic's matrix below which another is rounding.
LEAST_HARMONIC = 1e-13
# Share of the trace below which harmonics are added up as matrices, whose rounding is 1e-16 of it.
SMALL_SHARE = 1e-8


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
    def dual(self) -> Dual:
        """Dual of phi itself: E phi(u) phi(v), the conjugate kernel on unit vectors.

        Raises
        ------
        ValueError
            As `Dual.of`.
        """
        return Dual.of(self.value, self.name)

    @cached_property
    def covariance(self) -> Dual:
        """Cov(phi(u), phi(v)) of the correlation rho.

        Raises
        ------
        ValueError
            As `Dual.of`.
        """
        return Dual(self.dual.series - float(self.dual(0.0)))  # without the square of the mean

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

# Condition J_r of [P]: the r at which the r-th derivative of phi is the first one to jump, at 0.
KINKS = {"relu": 1, "leaky-relu": 1, "selu": 1, "elu": 2}


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

    Raises
    ------
    ValueError
        All rows are zero: there is no scale.

    Examples
    --------
    >>> preprocess([[3.0], [0.0]]).round(3)
    array([[0.707, 0.   , 0.707],
           [0.   , 0.707, 0.707]])
    """
    X = as_finite(X, "X", 2)
    longest = np.linalg.norm(X, axis=1).max(initial=0.0)
    if not longest:
        raise ValueError("all rows of X are zero, so there is no scale: pass other samples")
    scaled: Array = X / (longest * math.sqrt(2))
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
    return normalise(X + noise * gaussian @ basis)


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
    X = unit_rows(X)
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
        weights = torch.cat(list(gaussian_weights(width, n_features, seed=seed)))
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


def finite_gram(
    X: ArrayLike,
    activation: Activation,
    weights: Iterable[Tensor],
    *,
    readouts: Tensor | None = None,
    biases: Tensor | None = None,
    train_readouts: bool = False,
    device: str = "cpu",
) -> Array:
    """Compute G of a finite network: its empirical neural tangent kernel, first layer.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Samples of any length.
    activation : Activation
        phi.
    weights : iterable of Tensor of shape (any, d)
        W in blocks of rows: those of `gaussian_weights`, or ``[W]`` of a trained network.
    readouts : Tensor of shape (m,) or (m, C), optional
        a, or one column a class; -1 or +1, whose squares are 1, where not given.
    biases : Tensor of shape (m,), optional
        b_k of phi(<w_k, x> + b_k); none where not given. They are held fixed.
    train_readouts : bool
        Whether the readouts are trained, too: the Gram matrix is then G + H with
        H_ij = 1/m sum_k phi(<w_k, x_i>) phi(<w_k, x_j>) (appendix M.2 of [P]).
    device : str
        Where to compute.

    Returns
    -------
    ndarray of float64, shape (n, n) or (C n, C n)
        Exactly symmetric. With C columns of readouts row c n + i is output c at sample i: block
        (c, c') has a_kc a_kc' in the place of a_k^2 (appendix M.3 of [P]). No more than `BLOCK`
        gates (or C n) are held at once.

    Raises
    ------
    ValueError
        No units; weights of another number of features; readouts or biases of another number of
        units; or an unknown device.

    Examples
    --------
    >>> from implicit_bias.kernels.gradient_gram import ACTIVATIONS, circle_points, finite_gram
    >>> finite_gram(circle_points(3), ACTIVATIONS["relu"], gaussian_weights(1000, 10)).shape
    (3, 3)
    """
    samples = torch.tensor(as_finite(X, "X", 2), device=as_device(device))
    n_classes = 1 if readouts is None else math.prod(readouts.shape[1:])
    agreement = samples.new_zeros((n_classes * len(samples),) * 2)
    hidden = samples.new_zeros((len(samples), len(samples)))
    width, most = 0, max(1, BLOCK // max(1, len(agreement)))
    for inputs, gates in _layer(samples, activation, weights, readouts, biases, most):
        width += inputs.shape[1]
        agreement += gates @ gates.T
        if train_readouts:
            values = activation.value(inputs)
            hidden += values @ values.T
    gram = (samples @ samples.T).repeat(n_classes, n_classes) * agreement / width
    if train_readouts:
        gram += torch.kron(torch.eye(n_classes).to(samples), hidden / width)
    return ((gram + gram.T) / 2).cpu().numpy()


def _layer(
    samples: Tensor,
    activation: Activation,
    weights: Iterable[Tensor],
    readouts: Tensor | None,
    biases: Tensor | None,
    most: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs (n, rows) and gates (C n, rows) of units, in blocks of at most this many."""
    given, width = {"readouts": readouts, "biases": biases}, 0
    parts = {name: part.detach() for name, part in given.items() if part is not None}
    for block in weights:
        if block.ndim != 2 or block.shape[1] != samples.shape[1]:
            raise ValueError(
                f"X has {samples.shape[1]} features, but weights have the shape "
                f"{tuple(block.shape)}: pass one row a unit, with as many columns as X"
            )
        for rows in torch.split(block, most):
            units = slice(width, width := width + len(rows))
            for name in [name for name, part in parts.items() if len(part) < width]:
                raise ValueError(f"there are fewer {name} than units: pass one a unit")
            inputs = samples @ rows.to(samples).T
            if "biases" in parts:
                inputs += parts["biases"][units].to(samples)
            gates = activation.derivative(inputs)
            if "readouts" in parts:
                scales = parts["readouts"][units].to(samples).reshape(len(rows), -1)  # (rows, C)
                # Row-major: the class is the slow index of the rows of the gates.
                gates = (scales.T[:, None, :] * gates).reshape(-1, len(rows))
            yield inputs, gates
    if not width:
        raise ValueError("the network has no units: pass at least one row of weights")
    for name, part in parts.items():
        if len(part) != width:
            raise ValueError(f"there are {len(part)} {name} for {width} units: pass one a unit")


def finite_eigenvalues(
    X: ArrayLike,
    activation: Activation,
    weights: Iterable[Tensor],
    *,
    readouts: Tensor | None = None,
    biases: Tensor | None = None,
    train_readouts: bool = False,
) -> Array:
    """Compute the eigenvalues of `finite_gram` without squaring: lambda_i = sigma_i(M)^2 / m.

    The columns of M are the gradients vec(a_k phi'(<w_k, x_i>) x_i), with those in the readouts,
    phi(<w_k, x_i>), below where they are trained, too. Its singular values are right
    to 1e-15 of the largest, so that eigenvalues are to 1e-30, far below the rounding of G. M is
    reduced to a triangle block by block and never held as a whole.

    Parameters
    ----------
    X, activation, weights
        As in `finite_gram`.
    readouts : Tensor of shape (m,), optional
        a; squares of 1 where not given.
    biases : Tensor of shape (m,), optional
        As in `finite_gram`.
    train_readouts : bool
        Whether the eigenvalues are those of G + H.

    Returns
    -------
    ndarray of float64, shape (n,)
        Largest first.

    Raises
    ------
    ValueError
        As `finite_gram`.
    """
    X = as_finite(X, "X", 2)
    triangle, width = np.zeros((0, len(X))), 0
    for inputs, gates in _layer(torch.tensor(X), activation, weights, readouts, biases, ROWS):
        width += inputs.shape[1]
        # Row-major: row k d + e of M is feature e of unit k.
        gradients = (gates.numpy().T[:, None, :] * X.T[None]).reshape(-1, len(X))
        values = [activation.value(inputs).numpy().T] if train_readouts else []
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, gradients, *values]), mode="r"))
    return _squares_of_singular(triangle, len(X)) / width


# --- infinite width ------------------------------------------------------------------------


def infinite_gram(
    X: ArrayLike,
    activation: Activation,
    *,
    readouts: ArrayLike = 1.0,
    train_readouts: bool = False,
    hidden_layers: int = 1,
) -> Array:
    """Compute the limit of `finite_gram` at infinite width: the neural tangent kernel.

    With more hidden layers, G is that of the gradients in the weights of the last one, whose inputs
    are the outputs of the one before. Each of those is shifted and scaled to mean 0 and variance
    1 over the draw of the weights, so that all hidden inputs are `correlations` of unit vectors.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Unit vectors (`normalise`, `preprocess`).
    activation : Activation
        phi, smooth but at 0.
    readouts : array_like of shape () or (C, C)
        The second moment E a_k^2 of the readouts, 1 for N(0, 1) and for -1 and +1; of C classes
        the matrix E a_kc a_kc'. For independent N(0, 1) that is the identity, and the Gram matrix
        is block diagonal with a block G a class.
    train_readouts : bool
        Whether the readouts are trained, too: G + H, H the conjugate kernel.
    hidden_layers : int
        At least 1.

    Returns
    -------
    ndarray of float64, shape (n, n) or (C n, C n)
        Rows as in `finite_gram`.

    Raises
    ------
    ValueError
        Rows that are not of length 1, no hidden layer, or a phi that the quadrature refuses.

    Examples
    --------
    >>> infinite_gram(circle_points(3), ACTIVATIONS["relu"]).shape
    (3, 3)
    """
    check_count(hidden_layers, "hidden_layers")
    moment = np.atleast_2d(np.asarray(readouts, dtype=np.float64))
    rho = next(islice(correlations(X, activation), hidden_layers - 1, None))
    gram = np.asarray(np.kron(moment, gradient_kernel(rho, activation.kappa.at_angle)), np.float64)
    if train_readouts:
        gram += np.kron(np.eye(len(moment)), activation.dual(rho))
    return gram


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
    X = unit_rows(X)
    rho = X @ X.T
    while True:
        np.fill_diagonal(rho, 1.0)
        rho = without_rounding(rho)
        yield rho
        rho = activation.correlation_map(rho)


# --- spectrum ------------------------------------------------------------------------------


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
    # Of cos(j theta) half is at frequency j, and half at -j.
    halves = _harmonic_shares(_fast_squares(activation), 2) / 2
    j = np.arange(len(halves))
    folded = np.zeros(n_samples)
    np.add.at(folded, np.concatenate([j, -j]) % n_samples, np.tile(halves, 2))
    return np.sort(n_samples * folded)[::-1]


def sphere_eigenvalues(X: ArrayLike, activation: Activation) -> Array:
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
    return _squares_of_singular(np.concatenate(columns, axis=1), len(X))


def _squares_of_singular(matrix: Array, count: int) -> Array:
    """Return the squares of all singular values, and zeros up to a count."""
    values = np.zeros(count)
    singular = scipy.linalg.svdvals(matrix)
    values[: len(singular)] = singular**2
    return values


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


def _fast_squares(activation: Activation) -> Array:
    """Return the squares of the Hermite coefficients of phi', if they fall fast."""
    squares = activation.hermite_squares
    if squares[-2:].sum() > ROUNDING * squares.sum():
        raise ValueError(
            f"the Hermite coefficients of the derivative of {activation.name} fall too slowly: it "
            "has a kink. Take the eigenvalues of infinite_gram"
        )
    return squares


def eigenvalues(gram: Array) -> Array:
    """Return the eigenvalues (n,) of a Gram matrix (n, n), largest first."""
    return np.asarray(np.linalg.eigvalsh(gram)[::-1], dtype=np.float64)


def _span(X: Array) -> Array:
    """Return an orthonormal basis (d', d) of the span of the rows of X."""
    _, values, basis = np.linalg.svd(X, full_matrices=False)
    return np.asarray(basis[values > UNIT * values.max(initial=0.0)])
