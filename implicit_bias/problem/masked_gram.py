r"""The masked Gram matrix, on which every method of this package rests.

The features of a sample are the products of its gates and its inputs, phi_n = z(x_n) (x) x_n, so
their inner products are entries of a Hadamard product of two small Gram matrices,

    <phi_n, phi_m> = <z(x_n), z(x_m)> <x_n, x_m>,        Phi Phi' = (Z Z') o (X X'),

and the feature matrix (N, M D) is never needed: the gates of a model are a mask Z Z' on one Gram
matrix X X'. The gradient of a network in a weight matrix is such an outer product, too
(`modules.layer_products`).

======  ========  ==============================
X       (n, D)    inputs
Z       (n, M)    gates
======  ========  ==============================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from implicit_bias.base.validation import Array

if TYPE_CHECKING:
    import torch

    # numpy's and torch's matrices multiply alike.
    Matrix = TypeVar("Matrix", Array, torch.Tensor)
else:
    Matrix = TypeVar("Matrix", bound=Any)


def masked_gram(X: Matrix, Z: Matrix, others: tuple[Matrix, Matrix] | None = None) -> Matrix:
    """Inner products of outer products: (X X') o (Z Z').

    Parameters
    ----------
    X : ndarray or Tensor of shape (n, D)
        First factors.
    Z : ndarray or Tensor of shape (n, M)
        Second factors, dense.
    others : tuple of ndarray or Tensor, shapes (m, D) and (m, M), optional
        The factors to multiply with; the same ones where not given.

    Returns
    -------
    ndarray or Tensor of shape (n, n) or (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> X, Z = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> masked_gram(X, Z)
    array([[ 5., 11.],
           [11., 50.]])
    """
    if others is None:
        others = (X, Z)
    other_X, other_Z = others
    gram = X @ other_X.T
    gram *= Z @ other_Z.T
    return gram


def mask_into(
    out: torch.Tensor, gram: torch.Tensor, Z: torch.Tensor, other_Z: torch.Tensor
) -> None:
    """Write gram o (Z other_Z') into ``out``, of gates (n, M) and (m, M), without a temporary."""
    import torch

    torch.mm(Z, other_Z.T, out=out).mul_(gram)
