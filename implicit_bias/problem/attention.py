r"""Attention as token selection: the margin problem of its scores.

One layer of attention weighs the tokens x_1 .. x_T of a sample by softmax(X W q), for a query q. In
the limit of training each sample attends to one token, its best one, and the direction of W is that
of the solution of

    minimize  ||W||   subject to  (x_best - x_t)' W q >= 1  for all other tokens t of each sample:

a margin problem in zeta = W', whose sample (n, t) has input x_best - x_t, gates q and label +1.

=========  ============  ===========================================================
tokens     (N, T, D)     x_nt
query      (N, E)        q_n
best       (N,)          the token that each sample is to attend to
zeta       (E, D)        W', so that f = sum_e q_e <zeta_e, x_best - x_t>
=========  ============  ===========================================================

Training W by gradient descent belongs to the l2 (Frobenius) norm. Training keys and queries apart,
W = K Q' with at least min(D, E) columns each, belongs to the nuclear norm: 1/2 (||K||^2 + ||Q||^2)
is at least ||W||_*, and equal to it for some K and Q with W = K Q'. Steepest descent in another
norm belongs to that norm of W, as for linear predictors.

Source: Tarzanagh, Li, Thrampoulidis, Oymak (2023), "Transformers as support vector machines".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array, as_finite, check_shape
from implicit_bias.norms import GroupNorm, HasValueAndDual, Norm, OwnNorm, Partition, as_norm
from implicit_bias.norms.entries import Entrywise
from implicit_bias.norms.norm import Shape, SumNorm
from implicit_bias.problem.margin_problem import MarginProblem


def attention_margin(
    tokens: ArrayLike,
    query: ArrayLike,
    best: ArrayLike,
    norm: Norm | HasValueAndDual | str = "l2",
    *,
    C: float = np.inf,
) -> MarginProblem:
    r"""Build the margin problem of one layer of attention that selects a token of each sample.

    .. math:: \min_W \; \Omega(W') \quad \text{subject to} \quad
        (x_{n, \text{best}} - x_{n, t})' \, W q_n \ge 1
        \text{ for all } n \text{ and } t \ne \text{best}

    Its solution is the smallest W whose scores x_t' W q are largest, by at least 1, at the best
    token of each sample.

    Parameters
    ----------
    tokens : array_like of shape (N, T, D)
        T tokens of each sample.
    query : array_like of shape (N, E)
        What each sample's tokens are compared with, such as its first token.
    best : array_like of int, shape (N,)
        Which token, 0 .. T - 1, each sample is to attend to.
    norm : Norm or str
        Of W' as a matrix (E, D): "l2" (gradient descent on W), "nuclear" (on keys and queries
        apart), "linf" (Adam), "spectral" (Muon), "l1", an object of `implicit_bias.norms`, or a
        custom norm, which gets coefficients (E, 1, D). Groups of gate columns are groups of the E
        rows.
    C : float
        Weight of the hinge loss in (0, inf]; inf is the hard margin. The norm is not squared, see
        `MarginProblem`.

    Returns
    -------
    MarginProblem
        Of N (T - 1) samples x_best - x_t, those of one sample together in the order of its
        tokens: ``alpha.reshape(N, T - 1)`` has the tokens as columns. Coefficients (E, D) are W'.

    Raises
    ------
    ValueError
        Shapes that do not fit, NaN, a single token, or ``best`` outside of 0 .. T - 1.
    TypeError
        Not a norm.

    Notes
    -----
    Source: Tarzanagh, Li, Thrampoulidis, Oymak (2023), "Transformers as support vector machines",
    for gradient descent on W, and on keys and queries apart. Training need not settle on the tokens
    of the largest score of the loss: pass those that it does attend to.

    Examples
    --------
    Of two tokens, (1, 0) is to be attended to, for the query (0, 2):

    >>> import numpy as np
    >>> from implicit_bias import attention_margin, solve
    >>> problem = attention_margin([[[1.0, 0.0], [0.0, 1.0]]], [[0.0, 2.0]], [0])
    >>> solve(problem).coef.round(6) + 0.0
    array([[ 0.  ,  0.  ],
           [ 0.25, -0.25]])
    """
    X = as_finite(tokens, "tokens", 3)
    q = as_finite(query, "query", 2)
    N, T, _ = X.shape
    if N == 0 or T < 2:
        raise ValueError(
            f"tokens must be of one sample or more, and at least two each, got shape {X.shape}: "
            "there is nothing to select; pass (samples, tokens, features)"
        )
    check_shape(q, "query", (N, q.shape[1]), f"pass one query for each of the {N} samples")
    # The differences x_best - x_t of all tokens. That of the best token itself is left out below.
    is_best = np.arange(T) == _as_places(best, N, T)[:, None]  # (N, T)
    differences = X[is_best][:, None] - X  # (N, T, D)
    norm = as_norm(norm)
    if not isinstance(norm, Entrywise | GroupNorm):  # these need no matrix of E rows
        norm = NormOfScores(norm)
    labels = np.ones(N * (T - 1))
    return MarginProblem(differences[~is_best], labels, np.repeat(q, T - 1, axis=0), C=C, norm=norm)


@dataclass(frozen=True, eq=False)
class NormOfScores(SumNorm):
    """A norm of W' (E, D) as a matrix of E rows.

    Norms of matrices take coefficients (K', M, D) as a matrix of K' rows. A problem of attention
    has K' = 1, M = E: this norm reshapes its coefficients (1, E, D) to the matrix first.

    Parameters
    ----------
    norm : Norm
        Of the matrix (E, D); a custom one of coefficients (E, 1, D), as it expects three axes.
    """

    norm: Norm

    def maximiser(self, V: Array) -> Array:
        """Return that of the matrix."""
        return self.norm.maximiser(self._as_matrix(V)).reshape(V.shape)

    def group_norms(self, coef: Array) -> Array:
        """Return the terms of the norm, shape (G,)."""
        return self.norm.group_norms(self._as_matrix(coef))

    def dual_norms(self, V: Array) -> Array:
        """Return the terms of the dual norm, shape (G,)."""
        return self.norm.dual_norms(self._as_matrix(V))

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on the norm, as a real number."""
        return self.norm.value_bound(self._as_matrix(coef))

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on the dual norms, shape (G,)."""
        return self.norm.dual_bounds(Enclosure(self._as_matrix(V.value), self._as_matrix(V.radius)))

    def partition(self, shape: Shape) -> Partition | None:
        """Return that of the matrix."""
        found = self.norm.partition(self._matrix_shape(shape))
        if found is None:
            return None
        return Partition(found.groups.reshape(shape), found.inner)

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY."""
        return self.norm.atom(zeta, self._matrix_shape(shape), cp)

    def _matrix_shape(self, shape: Shape) -> Shape:
        """Shape of the matrix, of coefficients (E, D) or (1, E, D)."""
        E, D = shape[-2:]
        if isinstance(self.norm, OwnNorm):
            return E, 1, D
        return E, D

    def _as_matrix(self, coef: Array) -> Array:
        """Return coefficients (E, D) or (1, E, D) as the matrix."""
        return coef.reshape(self._matrix_shape(coef.shape))


def _as_places(best: ArrayLike, n_samples: int, n_tokens: int) -> NDArray[np.int64]:
    """Convert the best tokens to integers (N,), and refuse what is no index of a token."""
    places = as_finite(best, "best", 1)
    check_shape(places, "best", (n_samples,), f"pass one token for each of {n_samples} samples")
    wrong = (places != np.floor(places)) | (places < 0) | (places >= n_tokens)
    if wrong.any():
        raise ValueError(
            f"best must have whole numbers from 0 to {n_tokens - 1}, places of tokens, got "
            f"{places[wrong][:5].tolist()}: pass scores.argmax(axis=1)"
        )
    return places.astype(np.int64)
