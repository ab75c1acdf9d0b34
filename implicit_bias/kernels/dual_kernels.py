r"""Dual activations and the kernels that are made of them.

For a function h, and standard normal u and v of correlation rho = cos(theta),

    kappa(rho) = E h(u) h(v) = sum_k c_k^2 rho^k,       c_k = E h(u) He_k(u) / sqrt(k!),

is its *dual activation* (Daniely, Frostig, Singer 2016). The duals of the step and of ReLU are the
*arc-cosine kernels* of degree 0 and 1, up to a factor 2 (Cho, Saul 2009). Of an infinitely wide
layer phi(<w_k, x>) with w_k ~ N(0, I)

    <x, x'> kappa_{phi'}(cos(x, x'))    is the first layer's part of the *neural tangent kernel*,
    kappa_phi(cos(x, x'))               the output layer's part, or conjugate kernel,

on unit vectors (for step functions and gates on vectors of any length). `gradient_kernel` is the
first for any kappa: the limit of GaLU networks (`gated_least_squares.limit_kernel`) and of
networks with any activation (`gradient_gram.infinite_gram`) are both this function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.polynomial import Chebyshev, legendre
from numpy.typing import ArrayLike
from torch import Tensor

from implicit_bias.base.validation import Array, as_finite, as_numbers, check_shape

# Where exp(-r^2 / 2), even times a large power of r, has long been below rounding.
RADIUS = 13.0
# Hermite coefficients kept for bounds.
HERMITE_TERMS = 400
# Rows count as unit vectors up to this, or, where little depends on it, up to the second.
UNIT = 1e-9
NEARLY_UNIT = 5e-6


def unit_rows(X: ArrayLike, name: str = "X", tolerance: float = UNIT) -> Array:
    """Return samples whose rows must have norm 1, up to a tolerance.

    Raises
    ------
    ValueError
        A row of another norm.
    """
    X = as_finite(X, name, 2)
    norms = np.linalg.norm(X, axis=1)
    off = np.abs(norms - 1)
    if len(X) and off.max() > tolerance:
        raise ValueError(
            f"row {int(off.argmax())} of {name} has length {norms[off.argmax()]:.6g}, not 1: pass "
            f"normalize({name}), with rows of norm 1"
        )
    return X


def as_gram(gram: ArrayLike, name: str = "gram") -> Array:
    """Return a Gram matrix (n, n), and refuse what is not finite and symmetric."""
    gram = as_finite(gram, name, 2)
    rows = max(len(gram), 1)
    check_shape(gram, name, (rows, rows), "as many rows as columns")
    if not np.allclose(gram, gram.T, rtol=0.0, atol=1e-6 * np.abs(gram).max()):
        raise ValueError(f"{name} is not symmetric: pass inner products, or (K + K') / 2")
    return gram


def without_rounding(cosines: Array) -> Array:
    """Replace cosines that differ from -1 or 1 by rounding alone by -1 or 1.

    The arc cosine has a square root at its ends, which would turn an error of 1e-16 into 1e-8.
    """
    return np.where(np.abs(cosines) > 1.0 - 1e-14, np.sign(cosines), cosines)


def arc_cosine_kernel(theta: ArrayLike) -> Array:
    """Probability that a random half space holds both of two vectors at an angle theta.

    The dual activation of the step function, which is the derivative of ReLU; half of the
    arc-cosine kernel of degree 0 (Cho, Saul 2009).

    Parameters
    ----------
    theta : array_like
        Angles in [0, pi], of any shape.

    Returns
    -------
    ndarray of the same shape
        1/2 - theta / (2 pi).

    Raises
    ------
    ValueError
        Other angles.
    """
    theta = as_numbers(theta, "theta")
    if not ((theta >= 0) & (theta <= np.float32(math.pi))).all():
        raise ValueError("theta must be angles in [0, pi], as np.arccos of cosines gives them")
    return 0.5 - theta / (2 * math.pi)


def gradient_kernel(
    inner: Array, kappa: Callable[[Array], Array], lengths: tuple[Array, Array] | None = None
) -> Array:
    """Compute <x, x'> kappa(angle of x and x'): the first layer's part of a neural tangent kernel.

    Parameters
    ----------
    inner : ndarray of shape (n, n')
        Inner products <x, x'>.
    kappa : callable
        Dual activation of phi' as a function of the angle: `Dual.at_angle`, `arc_cosine_kernel`.
    lengths : tuple of ndarray, shapes (n,) and (n',), optional
        Lengths of the vectors; 1 where not given. Others are right only where phi' does not depend
        on the scale of its argument, as for ReLU.

    Returns
    -------
    ndarray of float64, shape (n, n')
        0 where a vector is 0.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> sizes = np.linalg.norm(X, axis=1)
    >>> gradient_kernel(X @ X.T, arc_cosine_kernel, (sizes, sizes))
    array([[0.5, 0. ],
           [0. , 2. ]])
    """
    # Of a vector of length 0 the cosine counts as 0: its inner products are 0 in any case.
    cosines = inner
    if lengths is not None:
        sizes = np.outer(*lengths)
        cosines = np.divide(inner, sizes, out=np.zeros_like(inner), where=sizes > 0)
    angles = np.arccos(np.clip(without_rounding(cosines), -1.0, 1.0))
    return np.asarray(kappa(angles) * inner)


@dataclass(frozen=True, eq=False)
class Dual:
    """kappa(rho) = E h(u) h(v), for standard normal u and v of correlation rho.

    In the polar coordinates u = r cos(alpha), v = r cos(alpha - theta) the integrand need not be
    differentiable on the four rays where u or v is 0. Between these rays it is smooth, so that
    Gauss-Legendre rules on the four sectors and along the radius converge fast for any h that is
    smooth but at 0; a Gauss-Hermite rule for u and v would not, for ReLU. As a function of the
    angle, kappa is smooth up to both ends, and is kept as a Chebyshev series.

    Parameters
    ----------
    series : numpy.polynomial.Chebyshev
        Kappa of the angle in [0, pi].
    """

    series: Chebyshev

    @classmethod
    def of(
        cls,
        function: Callable[[Tensor], Tensor],
        name: str,
        *,
        degree: int = 128,
        radial: int = 96,
        angular: int = 48,
        accuracy: float = 1e-9,
    ) -> Dual:
        """Compute the dual of a function.

        Parameters
        ----------
        function : callable
            h, elementwise on tensors.
        name : str
            How it is called in an error.
        degree : int
            Degree of the interpolation in the angle.
        radial, angular : int
            Nodes of the quadrature along the radius, and along each of the four sectors.
        accuracy : float
            What the quadrature may be off by, relative to kappa(1).

        Raises
        ------
        ValueError
            The quadrature does not converge: h is not smooth away from 0, or overflows.
        """

        def values(angles: Array) -> Array:
            return _gaussian_products(function, angles, radial, angular)

        dual = cls(Chebyshev.interpolate(values, degree, domain=[0.0, np.pi]))
        # A finer quadrature at a few angles says how accurate this one is.
        angles = np.linspace(0, np.pi, 7)
        finer = _gaussian_products(function, angles, radial * 3 // 2, angular * 3 // 2)
        # No |kappa| exceeds kappa(1), at the angle 0; 1e-300 lets the dual of the function 0 pass.
        error = float(np.abs(dual.at_angle(angles) - finer).max()) / max(abs(finer[0]), 1e-300)
        if not error <= accuracy:
            raise ValueError(
                f"the quadrature for {name} is off by {error:.1e}: the function must be smooth "
                "but at 0, and of moderate growth. Use finite_gram at a finite width"
            )
        return dual

    def __call__(self, rho: ArrayLike) -> Array:
        """Kappa at correlations of any shape; within rounding of [-1, 1]."""
        return self.at_angle(np.arccos(np.clip(rho, -1.0, 1.0)))

    def at_angle(self, theta: ArrayLike) -> Array:
        """Kappa at angles in [0, pi]."""
        return np.asarray(self.series(np.asarray(theta)), dtype=np.float64)


def hermite_coefficients(function: Callable[[Tensor], Tensor], n_terms: int) -> Array:
    """Expand a function that is smooth but at 0 in normalized Hermite polynomials.

    Returns
    -------
    ndarray of float64, shape (n_terms,)
        c_k = E h(u) He_k(u) / sqrt(k!), u standard normal; kappa(rho) = sum_k c_k^2 rho^k.
    """
    # Two Gauss-Legendre rules, on each side of 0, where the function may have a kink.
    half, weights = _rule(RADIUS, 2 * HERMITE_TERMS)
    u = np.concatenate([-half, half])
    # He_k / sqrt(k!) times exp(-u^2 / 4): bounded, so that no degree overflows.
    previous = np.zeros_like(u)
    current = np.exp(-(u**2) / 4)
    # One factor exp(-u^2 / 4) here and one in `current` make the normal density.
    integrand = _values(function, u) * np.tile(weights, 2) * current / math.sqrt(2 * np.pi)
    coefficients = np.empty(n_terms)
    for k in range(n_terms):
        coefficients[k] = integrand @ current
        # sqrt(k + 1) h_(k+1) = u h_k - sqrt(k) h_(k-1), of the normalized polynomials h_k.
        following = (u * current - math.sqrt(k) * previous) / math.sqrt(k + 1)
        previous = current
        current = following
    return coefficients


def _gaussian_products(
    function: Callable[[Tensor], Tensor], angles: Array, n_radial: int, n_angular: int
) -> Array:
    """Quadrature of E h(u) h(v) at angles (A,) between u and v."""
    # du dv exp(-(u^2 + v^2) / 2) / (2 pi) is r exp(-r^2 / 2) / (2 pi) dr dalpha.
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


@cache
def _rule(length: float, n_nodes: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [0, length]: eigenvalues of a matrix of this order."""
    nodes, weights = legendre.leggauss(n_nodes)
    return length * (nodes + 1) / 2, length * weights / 2


def _values(function: Callable[[Tensor], Tensor], points: Array) -> Array:
    return function(torch.tensor(points)).detach().numpy()
