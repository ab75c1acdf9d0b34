"""Eigenvalues of Gram matrices of finite networks, far below the rounding of the matrices."""

from collections.abc import Iterable, Sequence

import numpy as np
import scipy.linalg
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from implicit_bias.base.validation import Array, as_finite
from implicit_bias.kernels.gradient_gram import ROWS, Activation, layer


def polynomial(coefficients: Sequence[float]) -> Activation:
    """Return phi(z) = sum_l coefficients[l] z^l."""

    def value(z: Tensor) -> Tensor:
        result = torch.zeros_like(z)
        for coefficient in reversed(coefficients):  # Horner
            result = result * z + coefficient
        return result

    words = [f"{coefficient:g} z^{degree}" for degree, coefficient in enumerate(coefficients)]
    return Activation(" + ".join(words), value)


def finite_eigenvalues(
    X: ArrayLike,
    activation: Activation,
    weights: Iterable[ArrayLike | Tensor],
    *,
    readouts: ArrayLike | Tensor | None = None,
    biases: ArrayLike | Tensor | None = None,
    train_readouts: bool = False,
) -> Array:
    """Compute the eigenvalues of `gradient_gram.finite_gram` without squaring.

    lambda_i = sigma_i(M)^2 / m. The columns of M are the gradients vec(a_k phi'(<w_k, x_i>) x_i),
    with those in the readouts,
    phi(<w_k, x_i>), below where they are trained, too. Its singular values are right
    to 1e-15 of the largest, so that eigenvalues are to 1e-30, far below the rounding of G. M is
    reduced to a triangle block by block and never held as a whole.

    Parameters
    ----------
    X, activation, weights
        As in `gradient_gram.finite_gram`.
    readouts : array_like of shape (m,), optional
        a; squares of 1 where not given.
    biases : array_like of shape (m,), optional
        As in `gradient_gram.finite_gram`.
    train_readouts : bool
        Whether the eigenvalues are those of G + H.

    Returns
    -------
    ndarray of float64, shape (n,)
        Largest first.
    """
    X = as_finite(X, "X", 2)
    triangle = np.zeros((0, len(X)))
    width = 0
    for inputs, gates in layer(torch.tensor(X), activation, weights, readouts, biases, ROWS):
        width += inputs.shape[1]
        # Row-major: row k d + e of M is feature e of unit k.
        gradients = (gates.numpy().T[:, None, :] * X.T[None]).reshape(-1, len(X))
        # The triangle R of M = Q R has the singular values of M, so R with new rows below it has
        # those of M with these rows.
        rows = [triangle, gradients]
        if train_readouts:
            rows.append(activation.value(inputs).numpy().T)
        triangle = np.asarray(np.linalg.qr(np.vstack(rows), mode="r"))
    return squares_of_singular(triangle, len(X)) / width


def squares_of_singular(matrix: Array, count: int) -> Array:
    """Return the squares of all singular values, and zeros up to a count."""
    values = np.zeros(count)
    singular = scipy.linalg.svdvals(matrix)
    values[: len(singular)] = singular**2
    return values
