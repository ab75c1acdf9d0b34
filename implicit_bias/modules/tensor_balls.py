r"""The largest margin in the unit ball of a norm that is the largest over tensors.

    max m   subject to   J w >= m,   ||w_p|| <= 1 for every tensor p,

by a primal-dual interior point. J are n rows, the norm of a tensor that of its entries (l_inf) or
of its singular values. With multipliers lambda >= 0 of the rows, of sum 1, and P >= 0 of the balls:

===============  =================================  ============================================
ball             slack X                            what P pulls at w, J' lambda at the optimum
===============  =================================  ============================================
entries          1 - w and 1 + w                    P_0 - P_1
singular values  I - D(w), D(W) = [0, W; W', 0]     2 P_12 of P, symmetric and of X's order
===============  =================================  ============================================

A step solves  K dw = J' y - g,  with y the new lambda, g what P would pull at the products asked
for, and K from Nesterov and Todd's scaling S, where S X S = P: P / X entry by entry, or

    K U = 2 (S D(U) S)_12 = 2 (S_11 U S_22 + S_12 U' S_12).

Between S_11^(-1/2) and S_22^(-1/2) that is 2 (Y + C Y' C'), where Y is C's shape, and in the bases
of C's singular vectors it takes each pair (Y_ij, Y_ji) to its sum and difference times
2 (1 +- c_i c_j). So powers of K are cheap, the rows see  J K^-1 J' + diag(s / lambda),  and a step
costs O(n^2 + n (a + b)) times the number of entries, with tensors of shape (a, b).

Source: Todd, Toh, Tutuncu (1998), "On the Nesterov-Todd direction in semidefinite programming", for
the scaling and the second-order terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from implicit_bias.norms import LInf, Norm, Spectral
from implicit_bias.norms.tensors import ComposedNorm, ParameterNorm, matrix_shape
from implicit_bias.solvers.cones import cholesky, relative_eigenvalues, symmetric
from implicit_bias.solvers.iteration import Breakdown

# Most rows and columns of a tensor, together, whose singular values are bounded.
LARGEST_ORDER = 512
# Share of the way to the boundary that a step goes.
BOUNDARY_SHARE = 0.95
# The multiple of mu at which a row that joins is, at least, below its margin.
ROOM = 10.0


# A ball is that of one tensor at an iterate: slack X, multipliers P, the count of their products.


class EntryBall:
    """|w| <= 1, entry by entry."""

    def __init__(self, w: Tensor, P: Tensor | None, mu: float) -> None:
        self.X = torch.stack([1.0 - w, 1.0 + w])
        self.P = mu / self.X if P is None else P
        self.count, self._ratio = self.X.numel(), self.P / self.X
        self._k = self._ratio.sum(0)

    def scaled(self, rows: Tensor) -> Tensor:
        """Rows (n, size) times K^(-1/2)."""
        return rows * self._k.rsqrt()

    def solved(self, v: Tensor) -> Tensor:
        """K^-1 v."""
        return v / self._k

    def at_products(self, mu: float, predictor: tuple[Tensor, Tensor] | None) -> Tensor:
        """P of products mu at this X, less the second-order terms of a predicted dw and dP."""
        if predictor is None:
            return mu / self.X
        dw, dP = predictor
        return (mu - self._slack(dw) * dP) / self.X

    def pull(self, P: Tensor) -> Tensor:
        """Return what P pulls at w, P_0 - P_1."""
        return P[0] - P[1]

    def change(self, P: Tensor, dw: Tensor) -> Tensor:
        """Return the change of P to these, and by what dw changes of X."""
        return P - self.P - self._ratio * self._slack(dw)

    def rates(self, dw: Tensor, dP: Tensor) -> list[float]:
        """One over the longest steps for X and P."""
        return [float((-self._slack(dw) / self.X).max()), float((-dP / self.P).max())]

    @staticmethod
    def _slack(dw: Tensor) -> Tensor:
        return torch.stack([-dw, dw])


class SingularBall:
    """Singular values of at most 1, of the matrix of a tensor."""

    def __init__(self, shape: tuple[int, int], w: Tensor, P: Tensor | None, mu: float) -> None:
        self._flat, self._rows = shape, min(shape)
        self.X = torch.eye(sum(shape)).to(w) + self._slack(w)
        L = cholesky(self.X)
        self._inverse = torch.cholesky_inverse(L)
        self.P = mu * self._inverse if P is None else P
        self.count = len(self.X)
        # With G = L V d^(-1/2), G^-1 X G^-1' = d = G' P G.
        R = cholesky(self.P)
        _, self._d, right = torch.linalg.svd(R.T @ L)
        root = self._d.sqrt()[:, None]
        self._G = L @ (right.T / root.T)
        self._into = torch.linalg.solve_triangular(L, root * right, upper=False, left=False)
        self._S = self._into.T @ self._into
        k = self._rows
        left, below = _inverse_root(self._S[:k, :k]), _inverse_root(self._S[k:, k:])
        U, self._c, Vt = torch.linalg.svd(left @ self._S[:k, k:] @ below)
        self._left, self._right = U.T @ left, below @ Vt.T

    def scaled(self, rows: Tensor) -> Tensor:
        """Rows (n, size) times K^(-1/2), between the bases of C."""
        return self._power(self._left @ self._matrix(rows) @ self._right, -0.5).reshape(rows.shape)

    def solved(self, v: Tensor) -> Tensor:
        """K^-1 v."""
        inner = self._power(self._left @ self._matrix(v) @ self._right, -1.0)
        return self._vector(self._left.T @ inner @ self._right.T)

    def at_products(self, mu: float, predictor: tuple[Tensor, Tensor] | None) -> Tensor:
        """P of products mu at this X, less the second-order terms of a predicted dw and dP."""
        if predictor is None:
            return mu * self._inverse
        dw, dP = predictor
        product = (self._into @ self._slack(dw) @ self._into.T) @ (self._G.T @ dP @ self._G)
        second = (product + product.T) / (self._d[:, None] + self._d)
        return mu * self._inverse - self._into.T @ second @ self._into

    def pull(self, P: Tensor) -> Tensor:
        """Return what P pulls at w, 2 P_12."""
        return self._vector(2.0 * P[: self._rows, self._rows :])

    def change(self, P: Tensor, dw: Tensor) -> Tensor:
        """Return the change of P to these, and by what dw changes of X."""
        return symmetric(P - self.P - self._S @ self._slack(dw) @ self._S)

    def rates(self, dw: Tensor, dP: Tensor) -> list[float]:
        """One over the longest steps for X and P."""
        pairs = (self.X, self._slack(dw)), (self.P, dP)
        return [-float(relative_eigenvalues(A, B)[0]) for A, B in pairs]

    def _matrix(self, v: Tensor) -> Tensor:
        """Vectors (..., size) as matrices with no more rows than columns."""
        found = v.reshape(*v.shape[:-1], *self._flat)
        return found if self._flat[0] == self._rows else found.mT

    def _vector(self, W: Tensor) -> Tensor:
        return (W if self._flat[0] == self._rows else W.mT).reshape(-1)

    def _slack(self, dw: Tensor) -> Tensor:
        """-D(dw)."""
        W, k = self._matrix(dw), self._rows
        found = W.new_zeros(sum(W.shape), sum(W.shape))
        found[:k, k:], found[k:, :k] = -W, -W.T
        return found

    def _power(self, Y: Tensor, exponent: float) -> Tensor:
        """K to a power, of Y between the bases of C."""
        products = self._c[:, None] * self._c
        square, rest = Y[..., : self._rows], Y[..., self._rows :]
        same = (2.0 + 2.0 * products) ** exponent * (square + square.mT)
        apart = (2.0 - 2.0 * products) ** exponent * (square - square.mT)
        return torch.cat([0.5 * (same + apart), 2.0**exponent * rest], dim=-1)


def _inverse_root(A: Tensor) -> Tensor:
    """A^(-1/2)."""
    sizes, Q = torch.linalg.eigh(A)
    if not sizes[0] > 0:
        raise Breakdown
    return (Q * sizes.rsqrt()) @ Q.T


@dataclass(frozen=True, eq=False)
class _Step:
    """Changes of w, m, s = J w - m, lambda, and w and P of each ball; its longest multiple <= 1."""

    w: Tensor
    m: Tensor
    s: Tensor
    weights: Tensor
    of_balls: list[tuple[Tensor, Tensor]]
    reach: float


class CentralPath:
    """An iterate, from the centre of the balls on.

    Parameters
    ----------
    norm : ComposedNorm
        One that `has_balls`.
    shapes : mapping from name to torch.Size
        The tensors, in the order of w.
    J : Tensor of shape (n, P)
        Rows, in units of the tensors' scales.
    bound : float
        An upper bound on m.

    Attributes
    ----------
    w : Tensor of shape (P,)
        In the balls, in these units.
    m : float
        Less than each of J w.
    weights : Tensor of shape (n,)
        lambda > 0.
    """

    def __init__(
        self, norm: ComposedNorm, shapes: dict[str, torch.Size], J: Tensor, bound: float
    ) -> None:
        self._sizes = [shape.numel() for shape in shapes.values()]
        self._kinds = [
            EntryBall
            if norm.inner_of(name) == LInf()
            else partial(SingularBall, matrix_shape(shape))
            for name, shape in shapes.items()
        ]
        self.J, self.w, self.m = J, J.new_zeros(J.shape[1]), -bound
        self.weights = J.new_full((len(J),), 1.0 / len(J))
        self.mu = bound / len(J)
        self._multipliers: Sequence[Tensor | None] = [None] * len(shapes)

    def join(self, rows: Tensor) -> None:
        """Add rows, with products mu."""
        self.m = min(self.m, float((rows @ self.w).min()) - ROOM * self.mu)
        self.J = torch.cat([self.J, rows])
        joined = self.mu / (rows @ self.w - self.m)
        self.weights = torch.cat([self.weights, joined])

    def advance(self) -> None:
        """Make a step, by predictor and corrector.

        Raises
        ------
        Breakdown
            Rounding has made a matrix indefinite.
        """
        parts = zip(self._kinds, self._parts(self.w), self._multipliers, strict=True)
        balls = [kind(w, P, self.mu) for kind, w, P in parts]
        J = self.J
        s = J @ self.w - self.m
        products = float(self.weights @ s) + sum(float((x.X * x.P).sum()) for x in balls)
        self.mu = products / (len(s) + sum(ball.count for ball in balls))
        scaled = [ball.scaled(rows) for ball, rows in zip(balls, self._parts(J), strict=True)]
        system = sum(rows @ rows.T for rows in scaled)
        L = cholesky(system + torch.diag(s / self.weights))

        def solved(v: Tensor) -> Tensor:
            return torch.cat([x.solved(p) for x, p in zip(balls, self._parts(v), strict=True)])

        def step(mu: float, last: _Step | None = None) -> _Step:
            predicted = [None] * len(balls) if last is None else last.of_balls
            fixed = [x.at_products(mu, p) for x, p in zip(balls, predicted, strict=True)]
            of_rows = mu - (0.0 if last is None else last.weights * last.s)
            g = torch.cat([x.pull(P) for x, P in zip(balls, fixed, strict=True)])
            right = torch.stack([J @ solved(g) + of_rows / self.weights, torch.ones_like(s)], 1)
            y, one = torch.cholesky_solve(right, L).T
            m = (1.0 - y.sum()) / one.sum()
            y = y + m * one
            w = solved(J.T @ y - g)
            ds, weights = J @ w - m, y - self.weights
            rates = [float((-ds / s).max()), float((-weights / self.weights).max())]
            changes = list[tuple[Tensor, Tensor]]()
            for ball, P, dw in zip(balls, fixed, self._parts(w), strict=True):
                changes.append((dw, ball.change(P, dw)))
                rates += ball.rates(*changes[-1])
            return _Step(w, m, ds, weights, changes, 1.0 / max(1.0, *rates))

        predictor = step(0.0)
        found = step((1.0 - predictor.reach) ** 3 * self.mu, predictor)
        length = min(1.0, BOUNDARY_SHARE * found.reach)
        self.w = self.w + length * found.w
        self.m += length * float(found.m)
        self.weights = self.weights + length * found.weights
        changes = zip(balls, found.of_balls, strict=True)
        self._multipliers = [ball.P + length * dP for ball, (_, dP) in changes]
        if not torch.isfinite(self.w).all():
            raise Breakdown

    def _parts(self, v: Tensor) -> tuple[Tensor, ...]:
        return torch.split(v, self._sizes, dim=-1)


def has_balls(norm: ParameterNorm, shapes: dict[str, torch.Size]) -> bool:
    """Whether a norm is the largest over tensors, each of entries or of few singular values."""

    def fits(inner: Norm, shape: torch.Size) -> bool:
        return inner == LInf() or (
            inner == Spectral() and sum(matrix_shape(shape)) <= LARGEST_ORDER
        )

    return (
        isinstance(norm, ComposedNorm)
        and norm.outer == LInf()
        and all(fits(norm.inner_of(name), shape) for name, shape in shapes.items())
    )
