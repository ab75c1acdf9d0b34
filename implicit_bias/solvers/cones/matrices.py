"""Symmetric matrices on the central path: factors, scalings, and how far a step may go."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.solvers.iteration import Breakdown


def sum_free_basis(n_classes: int) -> Array:
    """Orthonormal coordinates of what sums to 0 over all classes, (K, K - 1)."""
    return np.asarray(scipy.linalg.helmert(n_classes).T)


def nesterov_todd(R: Tensor, T: Tensor) -> Tensor:
    """Nesterov and Todd's scaling S, the geometric mean of R and T^-1: S T S = R.

    With R = A A', T = B B' and the singular values B' A = P diag(size) Q' it is H H' of
    H = A Q diag(size)^(-1/2).
    """
    # Then H' T H = diag(size) = H^-1 R H^-T, so that S T S = H diag(size) H' = R. With factors no
    # matrix is squared: R and T are nearly singular at the end.
    A = cholesky(R)
    B = cholesky(T)
    _, size, Q_transposed = torch.linalg.svd(B.T @ A)
    H = A @ Q_transposed.T / size.sqrt()
    return H @ H.T


def multiplier_change(mu: float, R: Tensor, T: Tensor, S: Tensor, slack: Tensor) -> Tensor:
    """Return mu T^-1 - R - S slack S, what R changes by where U and dt are 0.

    Both halves of a step, of the conjugate and of R, must see the same matrix: S grows like
    mu^(-1/2), and S of an asymmetry in the last digit would be lost on one side only.
    """
    return symmetric(mu * torch.cholesky_inverse(cholesky(T)) - R - S @ slack @ S)


def cross_terms(U: Tensor, Y: Tensor) -> Tensor:
    """U Y' + Y U', the first-order change of Y Y'."""
    product = U @ Y.T
    return product + product.T


def symmetric(A: Tensor) -> Tensor:
    """Return the symmetric part."""
    return 0.5 * (A + A.T)


def relative_eigenvalues(A: Tensor, B: Tensor) -> Tensor:
    """Return the eigenvalues of A^-1 B, ascending, of a positive definite A and a symmetric B."""
    # Those of the symmetric matrix L^-1 B L^-T, with A = L L'.
    L = cholesky(A)
    half = torch.linalg.solve_triangular(L, B, upper=False)
    return torch.linalg.eigvalsh(symmetric(torch.linalg.solve_triangular(L, half.T, upper=False)))


def cholesky(A: Tensor) -> Tensor:
    """Return the lower Cholesky factor L of a symmetric A = L L', which is left as it is."""
    # LAPACK overwrites a matrix in place only where it is stored by columns. The transpose of a
    # copy by rows is such a matrix, and equal to A.
    return factor(lambda: A.clone().T)


def factor(
    matrix: Callable[[], Tensor],
    ridges: tuple[float, ...] = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11),
) -> Tensor:
    """Return the lower Cholesky factor of a matrix, computed in its place.

    Parameters
    ----------
    matrix : callable
        Returns the matrix, stored by columns; its lower triangle counts. Each trial overwrites one.
    ridges : tuple of float
        Fractions by which the diagonal is raised, one trial each, until the matrix is definite:
        rounding may have made it indefinite.

    Raises
    ------
    Breakdown
        Not positive definite even with a little more on the diagonal.
    """
    for ridge in ridges:
        # A factorization that fails has overwritten its matrix.
        A = matrix()
        if ridge:
            A.diagonal().mul_(1.0 + ridge)
        info = torch.empty((), dtype=torch.int32, device=A.device)
        torch.linalg.cholesky_ex(A, out=(A, info))
        if not info:
            return A
    raise Breakdown
