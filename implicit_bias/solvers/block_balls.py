r"""A primal-dual interior point for the largest of norms of blocks: entries, or singular values.

    maximize  m   subject to   J w >= m,   ||w_b|| <= 1 for every block b,

whose solution w / m is that of  minimize max_b ||zeta_b|| s.t. J zeta >= 1.  J are the P signed
rows; the norm of a block is that of its entries (l_inf) or of its singular values (spectral). With
multipliers lambda >= 0 of the rows, of sum 1, and R >= 0 of the balls:

===============  =================================  ============================================
block            slack X of its ball                what R pulls at w; J' lambda at the optimum
===============  =================================  ============================================
entries          1 - w and 1 + w                    R_0 - R_1
singular values  I - D(w), D(W) = [0, W; W', 0]     2 R_12 of R, symmetric and of X's order
===============  =================================  ============================================

KKT     (J w - m)_p lambda_p = mu,    X R = mu I,    J' lambda = what the R pull,   mu -> 0

A Newton step solves

    (1)   K dw = J' y - g,         y the new lambda, g what R would pull at the products asked for,
    (2)   (J K^-1 J' + diag(s / lambda)) y = J K^-1 g + mu / lambda + dm 1,      sum(y) = 1,

with s = J w - m and K from Nesterov and Todd's scaling S of each ball, where S X S = R: R / X entry
by entry, or

    (3)   K U = 2 (S D(U) S)_12 = 2 (S_11 U S_22 + S_12 U' S_12).

With U = S_11^(-1/2) Y S_22^(-1/2) and C = S_11^(-1/2) S_12 S_22^(-1/2),

    (4)   S_11^(-1/2) (K U) S_22^(-1/2) = 2 (Y + C Y' C).

In the bases of C's singular vectors C is diagonal, with the singular values c. There (4) multiplies
the sum Y_ij + Y_ji by 2 (1 + c_i c_j) and the difference Y_ij - Y_ji by 2 (1 - c_i c_j); the other
columns of Y are multiplied by 2. So powers of K are cheap, and a step costs
O(n^2 + n (a + b)) times the number of entries, of n rows and blocks of shape (a, b).

The system begins with some rows. Others join on the way, as w comes near to their margin; the
bounds are those of all rows at every step.

`modules.multipliers` solves with it for the KKT gap of a network in such a norm.

Source: Todd, Toh, Tutuncu (1998), "On the Nesterov-Todd direction in semidefinite programming", for
the scaling and the second-order terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.validation import UnsuitableError
from implicit_bias.bounds.certificate import Status
from implicit_bias.norms import LInf, Spectral
from implicit_bias.norms.blocks import OverBlocks
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.base import Answer, Start
from implicit_bias.solvers.cones.matrices import cholesky, relative_eigenvalues, symmetric
from implicit_bias.solvers.iteration import Breakdown, NativeSolver, Run, Steps, zero_answer


def has_block_balls(norm: object, largest_order: int = 512) -> bool:
    """Whether a norm is the largest over blocks, each of entries or of few singular values.

    Few are those of a block of up to ``largest_order`` rows and columns together.
    """
    if not isinstance(norm, OverBlocks) or norm.outer != LInf():
        return False
    for block in norm.blocks:
        small = block.norm == Spectral() and sum(block.shape) <= largest_order
        if block.norm != LInf() and not small:
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class BlockBalls(NativeSolver):
    """An interior point for a norm that `has_block_balls`; two classes, hard margin, no gates.

    Parameters
    ----------
    first_rows : int
        Rows that the system begins with: the first ones of the problem, which should be those that
        are likely to be support vectors.
    near : float
        A row joins where its margin exceeds the smallest one by less than this fraction of what the
        median row of the system has.
    growth : float
        Fraction of its size by which the system may grow in a step.
    room : float
        A row that joins is this multiple of mu above the margin m, at least.
    boundary_share : float
        Fraction of the way to the boundary that a step goes.
    halving_from : float
        From this gap on a step counts as progress where it halves the gap; before, where mu falls
        by `least_fall`, or there is no upper bound yet.
    least_fall : float
        Fraction of mu that is left at most after a step that counts as progress.
    patience : int
        Steps without progress after which rounding is taken for the cause.
    """

    own_limit: ClassVar[int] = 100
    name: ClassVar[str] = "block-balls"

    first_rows: int = 256
    near: float = 0.1
    growth: float = 0.25
    room: float = 10.0
    boundary_share: float = 0.95
    halving_from: float = 1e-6
    least_fall: float = 0.9
    patience: int = 4

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Take all norms as they are; `prepare` refuses those without balls."""
        return True

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Begin at the centre of the balls: a start is not used."""
        plain = problem.hard_margin and problem.n_gates == 1 and not problem.intercept
        if not (plain and has_block_balls(problem.norm)):
            raise UnsuitableError(
                f"{self.name} takes hard margins of two classes without gates or an intercept, "
                "under the largest of norms of blocks: choose solver='auto'"
            )
        return _CentralPath(self, problem)


# --- the balls -----------------------------------------------------------------------------------

# A ball belongs to one block and one iterate. It has the slack X, the multipliers R, and the number
# of their products. The first iterate has no R yet (None): there all products are made to be mu.


class EntryBall:
    """|w| <= 1, entry by entry."""

    def __init__(self, w: Tensor, R: Tensor | None, mu: float) -> None:
        self.X = torch.stack([1.0 - w, 1.0 + w])
        if R is None:
            R = mu / self.X
        self.R = R
        self.count = self.X.numel()
        self._ratio = self.R / self.X
        self._diagonal = self._ratio.sum(0)  # of K

    def scaled(self, rows: Tensor) -> Tensor:
        """Rows (n, size) times K^(-1/2)."""
        return rows * self._diagonal.rsqrt()

    def solved(self, v: Tensor) -> Tensor:
        """K^-1 v."""
        return v / self._diagonal

    def at_products(self, mu: float, predictor: tuple[Tensor, Tensor] | None) -> Tensor:
        """R of products mu at this X, less the second-order terms of a predicted dw and dR."""
        if predictor is None:
            return mu / self.X
        dw, dR = predictor
        return (mu - self._change_of_slack(dw) * dR) / self.X

    def pull(self, R: Tensor) -> Tensor:
        """Return what R pulls at w, R_0 - R_1."""
        return R[0] - R[1]

    def change(self, R: Tensor, dw: Tensor) -> Tensor:
        """Return what the multipliers change by: to R at this X, less S dX S of the step dw."""
        return R - self.R - self._ratio * self._change_of_slack(dw)

    def rates(self, dw: Tensor, dR: Tensor) -> list[float]:
        """One over the longest steps for X and R."""
        of_slack = float((-self._change_of_slack(dw) / self.X).max())
        return [of_slack, float((-dR / self.R).max())]

    @staticmethod
    def _change_of_slack(dw: Tensor) -> Tensor:
        return torch.stack([-dw, dw])


class SingularBall:
    """Singular values of at most 1, of a block as a matrix of the given shape."""

    def __init__(self, shape: tuple[int, int], w: Tensor, R: Tensor | None, mu: float) -> None:
        self._shape = shape
        self._n_rows = min(shape)
        self.X = torch.eye(sum(shape)).to(w) + self._change_of_slack(w)
        L = cholesky(self.X)
        self._inverse = torch.cholesky_inverse(L)
        if R is None:
            R = mu * self._inverse
        self.R = R
        self.count = len(self.X)
        # With G = L V d^(-1/2), G^-1 X G^-1' = d = G' R G: the scaling S is G^-1' G^-1.
        root_of_R = cholesky(self.R)
        _, self._d, right = torch.linalg.svd(root_of_R.T @ L)
        root = self._d.sqrt()[:, None]
        self._G = L @ (right.T / root.T)
        self._G_inverse = torch.linalg.solve_triangular(L, root * right, upper=False, left=False)
        self._S = self._G_inverse.T @ self._G_inverse
        # The bases of (4): Y = left (K U) right there.
        k = self._n_rows
        left = _inverse_root(self._S[:k, :k])
        below = _inverse_root(self._S[k:, k:])
        U, self._c, Vt = torch.linalg.svd(left @ self._S[:k, k:] @ below)
        self._left = U.T @ left
        self._right = below @ Vt.T

    def scaled(self, rows: Tensor) -> Tensor:
        """Rows (n, size) times K^(-1/2), in the bases of C, which leave inner products alone."""
        return self._power(self._left @ self._matrix(rows) @ self._right, -0.5).reshape(rows.shape)

    def solved(self, v: Tensor) -> Tensor:
        """K^-1 v."""
        inner = self._power(self._left @ self._matrix(v) @ self._right, -1.0)
        return self._vector(self._left.T @ inner @ self._right.T)

    def at_products(self, mu: float, predictor: tuple[Tensor, Tensor] | None) -> Tensor:
        """R of products mu at this X, less the second-order terms of a predicted dw and dR."""
        if predictor is None:
            return mu * self._inverse
        dw, dR = predictor
        scaled_dX = self._G_inverse @ self._change_of_slack(dw) @ self._G_inverse.T
        product = scaled_dX @ (self._G.T @ dR @ self._G)
        second = (product + product.T) / (self._d[:, None] + self._d)
        return mu * self._inverse - self._G_inverse.T @ second @ self._G_inverse

    def pull(self, R: Tensor) -> Tensor:
        """Return what R pulls at w, 2 R_12."""
        return self._vector(2.0 * R[: self._n_rows, self._n_rows :])

    def change(self, R: Tensor, dw: Tensor) -> Tensor:
        """Return what the multipliers change by: to R at this X, less S dX S of the step dw."""
        return symmetric(R - self.R - self._S @ self._change_of_slack(dw) @ self._S)

    def rates(self, dw: Tensor, dR: Tensor) -> list[float]:
        """One over the longest steps for X and R."""
        of_slack = -float(relative_eigenvalues(self.X, self._change_of_slack(dw))[0])
        return [of_slack, -float(relative_eigenvalues(self.R, dR)[0])]

    def _matrix(self, v: Tensor) -> Tensor:
        """Vectors (..., size) as matrices with no more rows than columns."""
        found = v.reshape(*v.shape[:-1], *self._shape)
        if self._shape[0] == self._n_rows:
            return found
        return found.mT

    def _vector(self, W: Tensor) -> Tensor:
        """Undo `_matrix`."""
        if self._shape[0] != self._n_rows:
            W = W.mT
        return W.reshape(-1)

    def _change_of_slack(self, dw: Tensor) -> Tensor:
        """-D(dw)."""
        W = self._matrix(dw)
        k = self._n_rows
        found = W.new_zeros(sum(W.shape), sum(W.shape))
        found[:k, k:] = -W
        found[k:, :k] = -W.T
        return found

    def _power(self, Y: Tensor, exponent: float) -> Tensor:
        """K to a power, equation (4), of Y in the bases of C."""
        products = self._c[:, None] * self._c
        square = Y[..., : self._n_rows]
        rest = Y[..., self._n_rows :]
        sums = (2.0 + 2.0 * products) ** exponent * (square + square.mT)
        differences = (2.0 - 2.0 * products) ** exponent * (square - square.mT)
        return torch.cat([0.5 * (sums + differences), 2.0**exponent * rest], dim=-1)


Ball: TypeAlias = EntryBall | SingularBall


def _inverse_root(A: Tensor) -> Tensor:
    """A^(-1/2)."""
    sizes, Q = torch.linalg.eigh(A)
    if not sizes[0] > 0:
        raise Breakdown
    return (Q * sizes.rsqrt()) @ Q.T


# --- the path ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Direction:
    """Changes of w, m, s = J w - m, lambda, and w and R of each ball."""

    w: Tensor
    m: float
    s: Tensor
    weights: Tensor  # lambda
    of_balls: list[tuple[Tensor, Tensor]]
    reach: float  # its longest multiple, at most 1, that stays inside


class _CentralPath(Run):
    """The central path, from the centre of the balls on."""

    def __init__(self, solver: BlockBalls, problem: MarginProblem) -> None:
        assert isinstance(problem.norm, OverBlocks)
        self.solver = solver
        self.problem = problem
        self.norm = problem.norm
        self.J = torch.tensor(problem.X * problem.y[:, None], device=solver.device)
        self._best = zero_answer(problem)

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self._best

    def steps(self) -> Steps:
        """Follow the path until the bounds meet, or rounding keeps them apart."""
        solver = self.solver
        norm = self.norm
        sizes = [block.size for block in norm.blocks]
        makers: list[Callable[..., Ball]] = []  # of the ball of each block
        for block in norm.blocks:
            if block.norm == LInf():
                makers.append(EntryBall)
            else:
                makers.append(partial(SingularBall, block.shape))

        # --- the first point: w = 0, equal lambda, and m far below all margins
        n_rows = len(self.J)
        system = np.arange(min(solver.first_rows, n_rows))
        J = self.J[: len(system)]
        w = J.new_zeros(J.shape[1])
        weights = J.new_full((len(J),), 1.0 / len(J))
        bound = norm.dual((J.T @ weights).cpu().numpy())  # the optimum is not larger
        m = -bound
        mu = bound / len(J)
        multipliers: list[Tensor | None] = [None] * len(makers)
        lower = 0.0
        upper = math.inf
        gap = math.inf
        waited = 0
        while True:
            # --- the balls and the system (2) at this point
            balls = list[Ball]()
            for make, part, R in zip(makers, torch.split(w, sizes), multipliers, strict=True):
                balls.append(make(part, R, mu))
            s = J @ w - m
            products = float(weights @ s) + sum(float((ball.X * ball.R).sum()) for ball in balls)
            mu_before = mu
            mu = products / (len(s) + sum(ball.count for ball in balls))
            # J K^-1 J' is the product of J K^(-1/2) with its transpose, block by block.
            matrix = torch.diag(s / weights)
            for ball, rows in zip(balls, torch.split(J, sizes, dim=-1), strict=True):
                scaled = ball.scaled(rows)
                matrix += scaled @ scaled.T
            point = _Point(J, sizes, balls, s, weights, cholesky(matrix))

            # --- predictor, and corrector with its second-order terms (Mehrotra)
            predictor = point.direction(0.0)
            # Where the equations hold the predictor leaves 1 - reach of mu.
            found = point.direction((1.0 - predictor.reach) ** 3 * mu, predictor)
            length = min(1.0, solver.boundary_share * found.reach)
            w = w + length * found.w
            m += length * found.m
            weights = weights + length * found.weights
            multipliers = []
            for ball, (_, dR) in zip(balls, found.of_balls, strict=True):
                multipliers.append(ball.R + length * dR)

            # --- bounds for all rows
            margins = (self.J @ w).cpu().numpy()
            # Lambda over the dual norm of J' lambda is feasible for the dual of min ||zeta||.
            v = J.T @ weights
            dual = norm.dual(v.cpu().numpy())
            if float(weights.sum()) > lower * dual:
                lower = float(weights.sum()) / dual
                alpha = np.zeros(n_rows)
                alpha[system] = weights.cpu().numpy() / dual
                self._best = Answer(alpha, self._best.coef)
            smallest = float(margins.min())
            size = norm.value(w.cpu().numpy())
            if smallest > 0 and size < upper * smallest:
                upper = size / smallest
                coef = (w / smallest).cpu().numpy()
                self._best = Answer(self._best.alpha, coef.reshape(self.problem.coef_shape))
            yield lower, upper

            # --- whether to go on
            gap_before = gap
            gap = upper / lower - 1.0
            if gap <= solver.tolerances.gap:
                return Status.OPTIMAL
            progress = math.isinf(gap) or 0.0 < mu < solver.least_fall * mu_before
            if gap <= solver.halving_from:
                progress = gap < gap_before / 2.0
            waited += 1
            if progress:
                waited = 0
            if waited == solver.patience:
                return Status.NUMERICAL_TROUBLE

            # --- rows that w comes near to join, with products mu
            near = m + solver.near * float(np.median(margins[system] - m))
            margins[system] = np.inf
            count = int(solver.growth * len(system)) + 1
            joining = np.argsort(margins, kind="stable")[:count]
            joining = joining[margins[joining] < near]
            if len(joining):
                # m falls below their margins where it has to, so that all s stay positive.
                system = np.append(system, joining)
                rows = self.J[torch.tensor(joining, device=self.J.device)]
                m = min(m, float((rows @ w).min()) - solver.room * mu)
                weights = torch.cat([weights, mu / (rows @ w - m)])
                J = torch.cat([J, rows])


@dataclass(frozen=True, eq=False)
class _Point:
    """A point of the path, with what all directions from it need."""

    J: Tensor
    sizes: list[int]
    balls: list[Ball]
    s: Tensor
    weights: Tensor
    L: Tensor  # the Cholesky factor of (2)

    def direction(self, mu: float, predictor: _Direction | None = None) -> _Direction:
        """Solve (1) and (2) for products mu, with the second-order terms of a predictor."""
        if predictor is None:
            of_rows: Tensor | float = mu
            fixed = [ball.at_products(mu, None) for ball in self.balls]
        else:
            of_rows = mu - predictor.weights * predictor.s
            changes = zip(self.balls, predictor.of_balls, strict=True)
            fixed = [ball.at_products(mu, change) for ball, change in changes]
        g = torch.cat([ball.pull(R) for ball, R in zip(self.balls, fixed, strict=True)])
        right = self.J @ self._solved(g) + of_rows / self.weights
        both = torch.stack([right, torch.ones_like(right)], 1)
        # y is affine in dm, and sum(y) = 1 determines dm.
        y, one = torch.cholesky_solve(both, self.L).T
        m = float((1.0 - y.sum()) / one.sum())
        y = y + m * one
        w = self._solved(self.J.T @ y - g)
        s = self.J @ w - m
        weights = y - self.weights
        rates = [float((-s / self.s).max()), float((-weights / self.weights).max())]
        of_balls = list[tuple[Tensor, Tensor]]()
        for ball, R, dw in zip(self.balls, fixed, torch.split(w, self.sizes), strict=True):
            dR = ball.change(R, dw)
            of_balls.append((dw, dR))
            rates += ball.rates(dw, dR)
        # The line below would take NaN for a full step: max(1.0, NaN) is 1.0 in Python.
        if not np.isfinite(rates).all():
            raise Breakdown
        return _Direction(w, m, s, weights, of_balls, 1.0 / max(1.0, *rates))

    def _solved(self, v: Tensor) -> Tensor:
        """K^-1 v."""
        parts = zip(self.balls, torch.split(v, self.sizes), strict=True)
        return torch.cat([ball.solved(part) for ball, part in parts])
