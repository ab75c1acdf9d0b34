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
directions. As m grows, G converges to

    G_ij = <x_i, x_j> kappa(<x_i, x_j>) = sum_k c_k^2 <x_i, x_j>^(k + 1)          (||x_i|| = 1),

with kappa the dual activation of phi' (`dual_kernels.Dual`), and c_k the Hermite coefficients of
phi'. What follows of the eigenvalues is in `benchmarks/panigrahi2020/gram_spectrum.py`.

================  ========  =====================================================================
symbol            shape     meaning
================  ========  =====================================================================
X                 (n, d)    samples
W, a              (m, d)    first layer; readouts (m,), or (m, C) of C classes
G                 (n, n)    Gram matrix of the gradients in W
H                 (n, n)    Gram matrix of the gradients in the readouts
rho, theta                  correlation of u and v, and their angle arccos(rho)
kappa                       dual of phi' (`Dual`)
c                 (K,)      coefficients of phi' in the normalized Hermite polynomials
================  ========  =====================================================================

What [P] proves of G is in `benchmarks/panigrahi2020`.

Source: Panigrahi, Shetty, Goyal, "Effect of Activation Functions on the Training of
Overparametrized Neural Nets" (ICLR 2020), [P] above; the dynamics go back to Arora et al. (2019),
the setting of Gaussian readouts to Du et al. (2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional

from implicit_bias.base.validation import (
    Array,
    as_device,
    as_finite,
    as_numbers,
    check_count,
    check_flag,
    torch_generator,
)
from implicit_bias.kernels import dual_kernels

# Rows of W that are drawn at once.
ROWS = 2**12
# Entries of the gates that are held at once.
BLOCK = 2**20


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
        smooth but at 0, where it need not be differentiable.
    """

    name: str
    value: Callable[[Tensor], Tensor]

    def derivative(self, z: Tensor) -> Tensor:
        """Return phi' at z, of any shape."""
        with torch.enable_grad():  # the caller may have switched it off
            z = z.detach().clone().requires_grad_(True)
            # phi acts on each entry alone, so that the gradient of the sum is phi' at each entry.
            (slope,) = torch.autograd.grad(self.value(z).sum(), z)
        return slope

    @cached_property
    def kappa(self) -> dual_kernels.Dual:
        """Dual of phi': kappa(rho) = E phi'(u) phi'(v).

        Raises
        ------
        ValueError
            As `Dual.of`.
        """
        return dual_kernels.Dual.of(self.derivative, f"the derivative of {self.name}")

    @cached_property
    def hermite_squares(self) -> Array:
        """c_k^2, shape (HERMITE_TERMS,): kappa(rho) = sum_k c_k^2 rho^k."""
        return dual_kernels.hermite_coefficients(self.derivative, dual_kernels.HERMITE_TERMS) ** 2

    @cached_property
    def dual(self) -> dual_kernels.Dual:
        """Dual of phi itself: E phi(u) phi(v), the conjugate kernel on unit vectors.

        Raises
        ------
        ValueError
            As `Dual.of`.
        """
        return dual_kernels.Dual.of(self.value, self.name)

    @cached_property
    def covariance(self) -> dual_kernels.Dual:
        """Cov(phi(u), phi(v)) of the correlation rho.

        Raises
        ------
        ValueError
            As `Dual.of`.
        """
        # At rho = 0 u and v are independent, and E phi(u) phi(v) is the square of E phi(u).
        square_of_mean = float(self.dual(0.0))
        return dual_kernels.Dual(self.dual.series - square_of_mean)

    @cached_property
    def correlation_map(self) -> dual_kernels.Dual:
        """The map of a normalized hidden layer: Cov(phi(u), phi(v)) / Var(phi(u)) of rho."""
        return dual_kernels.Dual(self.covariance.series / float(self.covariance(1.0)))

    @property
    def expansion(self) -> float:
        """Slope of the map at rho = 1: by this factor a hidden layer drives close samples apart.

        It is kappa(1) / Var(phi(u)), which exceeds 1 unless phi is linear (Poincare).
        """
        return float(self.kappa(1.0)) / float(self.covariance(1.0))


def _check_activation(given: object) -> None:
    if not isinstance(given, Activation):
        raise TypeError(
            f"activation must be one of ACTIVATIONS, or an Activation, got {given!r:.99}"
        )


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


def normalise(X: ArrayLike) -> Array:
    """Scale each row of X (n, d) to length 1.

    Raises
    ------
    ValueError
        A row of zeros, which has no direction.
    """
    X = as_finite(X, "X", 2)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    if not lengths.all():
        raise ValueError(
            f"row {int(np.argmin(lengths))} of X is zero and has no direction: drop it, or append "
            "a constant column"
        )
    return X / lengths


# --- finite width --------------------------------------------------------------------------


def gaussian_weights(width: int, n_features: int, *, seed: int = 0) -> Iterator[Tensor]:
    """Draw W (width, n_features) from N(0, I) in float64, one block of `ROWS` rows at a time."""
    check_count(width, "width")
    check_count(n_features, "n_features")
    generator = torch_generator(seed)
    for start in range(0, width, ROWS):
        shape = (min(ROWS, width - start), n_features)
        # On the CPU wherever the Gram matrix is computed, so that a seed stands for one W.
        yield torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


def finite_gram(
    X: ArrayLike,
    activation: Activation,
    weights: Iterable[ArrayLike | Tensor],
    *,
    readouts: ArrayLike | Tensor | None = None,
    biases: ArrayLike | Tensor | None = None,
    train_readouts: bool = False,
    device: str = "cpu",
) -> Array:
    r"""Compute G of a finite network: its empirical neural tangent kernel, first layer.

    .. math:: G_{ij} = \langle x_i, x_j \rangle \, \frac{1}{m} \sum_k a_k^2 \,
        \varphi'(\langle w_k, x_i \rangle) \, \varphi'(\langle w_k, x_j \rangle)

    Parameters
    ----------
    X : array_like of shape (n, d)
        Samples of any length.
    activation : Activation
        phi.
    weights : iterable of array_like of shape (any, d)
        W in blocks of rows: those of `gaussian_weights`, or ``[W]`` of a trained network.
    readouts : array_like of shape (m,) or (m, C), optional
        a, or one column a class; -1 or +1, whose squares are 1, where not given.
    biases : array_like of shape (m,), optional
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

    Notes
    -----
    Panigrahi, Shetty, Goyal (2020), equation 2.

    Examples
    --------
    >>> from implicit_bias.kernels.gradient_gram import ACTIVATIONS, finite_gram
    >>> finite_gram(np.eye(3), ACTIVATIONS["relu"], gaussian_weights(1000, 3)).shape
    (3, 3)
    """
    _check_activation(activation)
    check_flag(train_readouts, "train_readouts")
    samples = torch.tensor(as_finite(X, "X", 2), device=as_device(device))
    n_classes = 1
    if readouts is not None:
        n_classes = math.prod(np.shape(readouts)[1:])
    size = n_classes * len(samples)
    agreement = samples.new_zeros((size, size))
    hidden = samples.new_zeros((len(samples), len(samples)))
    width = 0
    most = max(1, BLOCK // max(1, size))
    for inputs, gates in layer(samples, activation, weights, readouts, biases, most):
        width += inputs.shape[1]
        agreement += gates @ gates.T
        if train_readouts:
            values = activation.value(inputs)
            hidden += values @ values.T
    # Block (c, c') of G is (X X') o (Z_c Z_c'') / m, and H is the same for each class.
    gram = (samples @ samples.T).repeat(n_classes, n_classes) * agreement / width
    if train_readouts:
        gram += torch.kron(torch.eye(n_classes).to(samples), hidden / width)
    # Rounding may differ above and below the diagonal.
    return ((gram + gram.T) / 2).cpu().numpy()


def layer(
    samples: Tensor,
    activation: Activation,
    weights: Iterable[ArrayLike | Tensor],
    readouts: ArrayLike | Tensor | None,
    biases: ArrayLike | Tensor | None,
    most: int,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs (n, rows) and gates (C n, rows) of units, in blocks of at most this many."""
    parts = dict[str, Tensor]()
    if readouts is not None:
        axes = max(1, np.ndim(readouts))
        parts["readouts"] = torch.tensor(as_finite(readouts, "readouts", axes)).to(samples)
    if biases is not None:
        parts["biases"] = torch.tensor(as_finite(biases, "biases", 1)).to(samples)
    width = 0
    for given in weights:
        block = as_finite(given, "each block of weights", 2)
        if block.shape[1] != samples.shape[1]:
            raise ValueError(
                f"X has {samples.shape[1]} features, but weights have the shape {block.shape}: "
                "pass one row a unit, with as many columns as X"
            )
        for rows in torch.split(torch.tensor(block).to(samples), most):
            units = slice(width, width + len(rows))
            width += len(rows)
            for name, part in parts.items():
                if len(part) < width:
                    raise ValueError(f"there are fewer {name} than units: pass one a unit")
            inputs = samples @ rows.T
            if "biases" in parts:
                inputs += parts["biases"][units]
            gates = activation.derivative(inputs)
            if "readouts" in parts:
                scales = parts["readouts"][units].reshape(len(rows), -1)  # (rows, C)
                # Row-major: the class is the slow index of the rows of the gates.
                gates = (scales.T[:, None, :] * gates).reshape(-1, len(rows))
            yield inputs, gates
    if not width:
        raise ValueError("the network has no units: pass at least one row of weights")
    for name, part in parts.items():
        if len(part) != width:
            raise ValueError(f"there are {len(part)} {name} for {width} units: pass one a unit")


# --- infinite width ------------------------------------------------------------------------


def infinite_gram(
    X: ArrayLike,
    activation: Activation,
    *,
    readouts: ArrayLike = 1.0,
    train_readouts: bool = False,
    hidden_layers: int = 1,
) -> Array:
    r"""Compute the limit of `finite_gram` at infinite width: the neural tangent kernel.

    .. math:: G_{ij} = \langle x_i, x_j \rangle \; \mathrm{E}\bigl[a^2\bigr] \;
        \mathrm{E}_{w \sim N(0, I)}
        \bigl[\varphi'(\langle w, x_i \rangle) \, \varphi'(\langle w, x_j \rangle)\bigr]

    With more hidden layers, G is that of the gradients in the weights of the last one, whose inputs
    are the outputs of the one before. Each of those is shifted and scaled to mean 0 and variance
    1 over the draw of the weights, so that all hidden inputs are `correlations` of unit vectors.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Unit vectors (`normalize`).
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

    Notes
    -----
    Panigrahi, Shetty, Goyal (2020), section 3; theorem 3.1 is that of Du et al. (2019) for
    ReLU.

    Examples
    --------
    >>> infinite_gram(np.eye(3), ACTIVATIONS["relu"]).shape
    (3, 3)
    """
    check_count(hidden_layers, "hidden_layers")
    check_flag(train_readouts, "train_readouts")
    moment = dual_kernels.as_gram(np.atleast_2d(as_numbers(readouts, "readouts")), "readouts")
    # What the last hidden layer sees are unit vectors of these correlations.
    rho = next(islice(correlations(X, activation), hidden_layers - 1, None))
    gram = np.kron(moment, dual_kernels.gradient_kernel(rho, activation.kappa.at_angle))
    if train_readouts:
        gram += np.kron(np.eye(len(moment)), activation.dual(rho))
    return np.asarray(gram)


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
    _check_activation(activation)
    X = dual_kernels.unit_rows(X)
    rho = X @ X.T
    while True:
        np.fill_diagonal(rho, 1.0)
        rho = dual_kernels.without_rounding(rho)
        yield rho
        rho = activation.correlation_map(rho)


def eigenvalues(gram: Array) -> Array:
    """Return the eigenvalues (n,) of a Gram matrix (n, n), largest first.

    Raises
    ------
    ValueError
        A matrix that is not finite and symmetric.
    """
    return np.asarray(np.linalg.eigvalsh(dual_kernels.as_gram(gram))[::-1], dtype=np.float64)
