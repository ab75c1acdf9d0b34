r"""The point of a cone's base that is nearest to 0, from a Gram matrix.

    primal  min 1/2 a' G a - sum(a)   s.t.  a >= 0
    KKT     G a - 1 = s,   a >= 0,  s >= 0,  a_i s_i = 0

G = R R' are the inner products of the rows of R. Up to a factor a is the dual solution of the
hard-margin problem  min ||w|| s.t. R w >= 1, and w = R' a. For any a >= 0

    sum(a) / sqrt(a' G a)  <=  min ||w||  <=  sqrt(a' G a) / min(G a),

and the relative gap between the two is what both methods end by.

The *active set* is guessed: where a is 0 or positive. Solving G a = 1 there says where a leaves 0
and where a constraint is broken, which makes the next set. This is Newton's method on
min(a, G a - 1) = 0. Where most rows are in, or from the solution of fewer of them, it ends after
some steps; for more rows than columns, or rows that are nearly the same, it need not end. Then a
*primal-dual interior point* (Mehrotra's predictor and corrector) takes about 15 steps, with

    (G + diag(s / a)) da = -(G a - 1 - s) + r / a,

a matrix that has full rank whatever the rank of G is.

======  ======  ===================================
G       (n, n)  inner products
a       (n,)    multipliers
s       (n,)    slack of the constraints
======  ======  ===================================

Source: Hintermüller, Ito, Kunisch (2003), "The primal-dual active set strategy as a semismooth
Newton method"; Mehrotra (1992), "On the implementation of a primal-dual interior point method".
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.validation import Array

# Relative gap at which the methods end, if no other one is given.
TOLERANCE = 1e-12
# Steps of the interior point.
INTERIOR_STEPS = 60
# Share of the way to the boundary that is gone, and the first slack.
STEP, FIRST_SLACK = 0.99, 0.5


def nonnegative_squares(
    gram: Array,
    guess: Array | None = None,
    deadline: Deadline = NEVER,
    *,
    tolerance: float = TOLERANCE,
) -> Array:
    """Minimise 1/2 a' G a - sum(a) over a >= 0, up to a factor.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        G, positive semi-definite, with some a that has G a > 0; or 0, where squares underflowed.
    guess : ndarray of shape (n,), optional
        Multipliers: where these are positive the search for the active set starts.
    deadline : Deadline
        When to end with the best a so far.
    tolerance : float
        Relative gap at which it ends.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> nonnegative_squares(np.array([[1.0, 1.0], [1.0, 4.0]]))
    array([1., 0.])
    """
    G = torch.as_tensor(gram)
    first = torch.ones(len(G)).to(G) if guess is None else torch.as_tensor(guess)
    found = _by_active_sets(G, first > 0, tolerance, deadline)
    if found is None:
        found = _by_interior_point(G, tolerance, deadline)
    return np.asarray(found.numpy())


def _gap(a: Tensor, Ga: Tensor) -> float:
    """Relative gap between the bounds of a (n,); infinite where a proves nothing."""
    least = float(Ga.min())
    return float(a @ Ga) / (float(a.sum()) * least) - 1.0 if least > 0 else math.inf


def _by_active_sets(
    G: Tensor, active: Tensor, tolerance: float, deadline: Deadline
) -> Tensor | None:
    """Guess where a (n,) is positive, as long as ever fewer guesses change; None if that fails."""
    fewest, count = len(G) + 1, len(G)
    while count < fewest and active.any() and not deadline.passed:
        rows = torch.nonzero(active)[:, 0]
        matrix = G if len(rows) == len(G) else G[rows][:, rows]
        root, failed = torch.linalg.cholesky_ex(matrix)
        if failed:
            break
        a = torch.zeros(len(G)).to(G)
        a[rows] = torch.cholesky_solve(torch.ones(len(rows), 1).to(G), root)[:, 0]
        changed = (a < 0) | (~active & (G @ a < 1.0))
        positive, fewest, count = a.clamp_min(0.0), count, int(changed.sum())
        if count == 0 or _gap(positive, G @ positive) <= tolerance:
            return positive
        active = active ^ changed
    return None


def _by_interior_point(G: Tensor, tolerance: float, deadline: Deadline) -> Tensor:
    """Follow the central path to its end; the a (n,) of the best lower bound on the way."""
    n, ridge = len(G), torch.finfo(G.dtype).eps * float(G.trace())
    a, s = torch.ones(n).to(G), torch.full((n,), FIRST_SLACK).to(G)
    if not (total := float(G.sum())) > 0.0:
        return a  # squares have underflowed: no multipliers are better than others
    a *= n / total
    best, bound = a, 0.0
    for _ in range(INTERIOR_STEPS):
        Ga = G @ a
        lower = float(a.sum()) / math.sqrt(float(a @ Ga))
        if lower > bound:
            best, bound = a, lower
        if _gap(a, Ga) <= tolerance or deadline.passed:
            break
        M = G.clone()
        M.diagonal().add_(s / a + ridge)
        root, failed = torch.linalg.cholesky_ex(M)
        if failed:  # the accuracy of float64 is reached
            break
        residual = Ga - 1.0 - s
        da, ds = _direction(root, a, s, residual, -a * s)
        length = min(_longest(a, da), _longest(s, ds), 1.0)
        mean = float(a @ s) / n
        centring = (float((a + length * da) @ (s + length * ds)) / (n * mean)) ** 3
        da, ds = _direction(root, a, s, residual, centring * mean - a * s - da * ds)
        length = min(STEP * _longest(a, da), STEP * _longest(s, ds), 1.0)
        a, s = a + length * da, s + length * ds
    return best


def _direction(
    root: Tensor, a: Tensor, s: Tensor, residual: Tensor, r: Tensor
) -> tuple[Tensor, Tensor]:
    """Change a and s (n,) so that G a - 1 - s  becomes 0, and a s changes by r."""
    da = torch.cholesky_solve((r / a - residual)[:, None], root)[:, 0]
    return da, (r - s * da) / a


def _longest(v: Tensor, change: Tensor) -> float:
    """Largest t with v + t change >= 0."""
    steepest = float((change / v).min())
    return -1.0 / steepest if steepest < 0 else math.inf
