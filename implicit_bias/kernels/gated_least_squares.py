r"""Fixed gates: the kernel of many, and gradient descent.

    f(x) = sum_h z_h(x) <w_h, x>,   z_h(x) = sigma(<u_h, x>) with filters u_h that are not trained

is a GaLU network, or a ReLU network with fixed gates, linear in the coefficients, which
`implicit_bias.kernels.least_squares` fits. Here is the Gram matrix K of such features for many
gates, and the losses that it predicts for gradient descent and gradient flow. The theorems of the
source are in `benchmarks/fiat2019`.

=========  ==========  ======================================================================
X          (m, D)      inputs
Z          (m, k)      gates, any real numbers: `Gating.gates`
y          (m,)        targets
W          (k, D)      coefficients w_h; the minimum-norm ones are Phi^+ y
K          (m, m)      gated Gram matrix (X X') o (Z Z') = Phi Phi'; Xbar Xbar' in the paper
r                      rank of K, at most min(m, k D)
kappa                  limit of K / k for hard gates, isotropic filters and many of them: the
                       neural tangent kernel of a ReLU network's first layer,
                       kappa(x, x') = (1/2 - arccos(cos(x, x')) / (2 pi)) <x, x'>
lambda(X)              smallest eigenvalue of kappa on the rows of X
=========  ==========  ======================================================================

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity", arXiv:1906.05032 (2019);
numbers of statements are that version's.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import Array, as_features, as_finite, check_number, check_shape
from implicit_bias.kernels.dual_kernels import arc_cosine_kernel, as_gram, gradient_kernel


def limit_kernel(X: ArrayLike, others: ArrayLike | None = None) -> Array:
    """Kappa between the rows of X (n, D) and those of ``others`` (n', D): shape (n, n').

    The probability that a random filter is open on both inputs, times their inner product. It is
    the mean of the gated kernel over isotropic filters with threshold 0, so K / k converges to it
    at the rate 1 / sqrt(k), whatever the scale of the filters and of the inputs.

    Raises
    ------
    ValueError
        Inputs that are not finite, or of another number of features.
    """
    X = as_finite(X, "X", 2)
    if others is None:
        others = X
    else:
        others = as_features(others, X.shape[1])
    lengths = (np.linalg.norm(X, axis=1), np.linalg.norm(others, axis=1))
    return gradient_kernel(X @ others.T, arc_cosine_kernel, lengths)


def smallest_eigenvalue(X: ArrayLike) -> float:
    """lambda(X): the smallest eigenvalue of kappa on the rows of X (m, D).

    It is 0 in three cases alone: an input is 0; two inputs point in the same direction; or those
    inputs whose opposites occur, too, are linearly dependent, one of each pair taken. For kappa
    has all even powers of the cosine, which distinguish any two lines, but only the first of the
    odd ones, which distinguish an input from its opposite. (Not in the paper; derived here.)

    Raises
    ------
    ValueError
        No inputs.
    """
    kernel = limit_kernel(X)
    if not len(kernel):
        raise ValueError("X has no rows, and a kernel without inputs no eigenvalue: pass some")
    return float(scipy.linalg.eigvalsh(kernel, subset_by_index=[0, 0])[0])


def modes(gram: Array, residual: ArrayLike) -> tuple[Array, Array]:
    """Return the eigenvalues of a Gram matrix, and the loss of a residual along each of its modes.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        The Gram matrix.
    residual : array_like of shape (n,)
        Targets minus outputs; their mean square is the sum of the losses.

    Raises
    ------
    ValueError
        Not one entry a sample, or a matrix that is not finite and symmetric.
    """
    gram = as_gram(gram)
    residual = as_finite(residual, "residual", 1)
    check_shape(residual, "residual", gram.shape[:1], "one entry a sample of the Gram matrix")
    values, vectors = scipy.linalg.eigh(gram)
    return values, (vectors.T @ residual) ** 2 / len(residual)


def predicted_losses(
    gram: Array, residual: ArrayLike, *, step_size: float, steps: NDArray[np.int64]
) -> Array:
    """Predict the losses of gradient descent on a model that is linear in what it trains.

    With a Gram matrix K = sum_i l_i v_i v_i' of the features the
    residual after t steps is (I - eta K)^t r_0, so the mean squared loss is

        1/m sum_i (1 - eta l_i)^(2t) <v_i, r_0>^2.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        K; for a network that is nearly linear, the Gram matrix of its gradients at the start.
    residual : array_like of shape (m,)
        r_0, targets less outputs at the start, or the opposite.
    step_size : float
        eta, below 2 / l_max.
    steps : ndarray of int, shape (T,)
        Steps t at which to predict.

    Returns
    -------
    ndarray of shape (T,)

    Raises
    ------
    ValueError
        A step size that is too long to descend, a residual that does not fit K, or steps before 0.
    """
    values, energy = modes(gram, residual)
    times = _from_0(steps, "steps")
    check_number(step_size, "step_size")
    if not 0 < step_size < 2 / values[-1]:
        raise ValueError(
            f"step_size must be in (0, 2 / l_max) = (0, {2 / values[-1]:.3g}), got {step_size}"
        )
    # The power is even: the sign of a factor, of a mode that oscillates, does not matter.
    factors = np.abs(1.0 - step_size * values)[None, :] ** (2 * times[:, None])
    return np.asarray(factors @ energy)


def _from_0(values: ArrayLike, name: str) -> Array:
    times = as_finite(values, name, 1)
    if (times < 0).any():
        raise ValueError(f"{name} must be at least 0, got {times.min()}: the start is at 0")
    return times


def flow_losses(gram: Array, residual: ArrayLike, *, times: Array) -> Array:
    """Predict the losses of gradient flow on 1/2 ||u - y||^2.

    y - u(t) = sum_i exp(-lambda_i t) v_i v_i' (y - u(0)). The discrete form for gradient descent
    is `predicted_losses`. For wide networks: equation 3 and theorem 4.6 of Panigrahi et al. (2020).

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        G.
    residual : array_like of shape (n,)
        y - u(0), or the opposite.
    times : ndarray of shape (T,)
        Times t: step size times steps.

    Returns
    -------
    ndarray of shape (T,)
        ||y - u(t)||^2 / n.

    Raises
    ------
    ValueError
        A residual that does not fit G, or times before 0.

    Examples
    --------
    >>> import numpy as np
    >>> flow_losses(np.eye(2), [1.0, 1.0], times=np.array([0.0, 0.5])).round(3)
    array([1.   , 0.368])
    """
    values, energy = modes(gram, residual)
    times = _from_0(times, "times")
    # An eigenvalue of 0 may round to below 0, where a loss would grow.
    return np.asarray(np.exp(-2 * np.outer(times, np.clip(values, 0.0, None))) @ energy)
