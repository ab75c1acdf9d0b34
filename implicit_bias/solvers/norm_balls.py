r"""The balls of norms along the central path: slack, multiplier, and how they change together.

See `norm_path` for the symbols. One of the two matrices V and zeta, X, is in the ball of radius t;
the multiplier R of the ball gives the other matrix.

==============  ==================================  ==============================================
ball            slack T                             the other matrix, and what t asks of R
==============  ==================================  ==============================================
of singular     t I - X X' / t, order r             R X / t;  tr R (I + X X' / t^2) = 2
values
of entries      t - X and t + X, entry by entry     R_0 - R_1;  sum of R_0 + R_1 = 1
==============  ==================================  ==============================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from implicit_bias.solvers.class_pairs import ClassPairs

# What a diagonal may be raised by, as a share, where rounding made a matrix indefinite.
RIDGES = (0.0, 1e-15, 1e-14, 1e-13, 1e-12)


class Breakdown(ArithmeticError):
    """Rounding has made a matrix indefinite."""


@dataclass(frozen=True, eq=False)
class Point:
    """An iterate, or a direction; w and xi have length 0 with the hard margin."""

    alpha: Tensor
    s: Tensor
    w: Tensor
    xi: Tensor
    X: Tensor
    t: Tensor
    R: Tensor
    T: Tensor
    b: Tensor

    @property
    def n_pairs(self) -> int:
        """Count the complementary products."""
        of_ball = len(self.R) if self.R.ndim == 2 else self.R.numel()
        return len(self.alpha) + len(self.w) + of_ball

    def complementarity(self) -> float:
        """Mean of the eigenvalues of the complementary products, mu."""
        total = self.alpha @ self.s + self.w @ self.xi + (self.R * self.T).sum()
        return float(total) / self.n_pairs

    def reach(self, step: Point) -> float:
        """Longest step, at most 1, that keeps all variables positive (definite)."""
        rates = [
            float((-dx / x).max())
            for x, dx in [
                (self.alpha, step.alpha),
                (self.s, step.s),
                (self.w, step.w),
                (self.xi, step.xi),
                (self.t, step.t),
            ]
            if len(x)
        ]
        for X, dX in ((self.R, step.R), (self.T, step.T)):
            if X.ndim > 2:
                rates.append(float((-dX / X).max()))
                continue
            L = cholesky(X)
            half = torch.linalg.solve_triangular(L, dX, upper=False)
            whole = torch.linalg.solve_triangular(L, half.T, upper=False)
            rates.append(-float(torch.linalg.eigvalsh(0.5 * (whole + whole.T))[0]))
        if not np.isfinite(rates).all():
            raise Breakdown
        return 1.0 / max(1.0, *rates)

    def moved(self, step: Point, length: float) -> Point:
        """Return the iterate after a step."""
        names = [x.name for x in fields(self)]
        return Point(*(getattr(self, x) + length * getattr(step, x) for x in names))


@dataclass(frozen=True, eq=False)
class Direction:
    """A direction; ``U`` is what X changes by beside the change of t."""

    change: Point
    U: Tensor


@dataclass(frozen=True, eq=False)
class Terms:
    """Right-hand sides of a ball: what the other matrix and t's equation change by without U, t."""

    other: Tensor
    of_t: float
    slack: Tensor
    fixed: Tensor


class Ball(ABC):
    """The ball around X of radius t at one iterate, with its multiplier R.

    Attributes
    ----------
    Y : Tensor of shape (r, F)
        Of dX = U + Y dt.
    pull : Tensor of shape (r, F)
        The other matrix changes by K U - pull dt.
    value : Tensor of shape (r, F)
        The other matrix.
    tau : float
        The curvature in t.
    """

    Y: Tensor
    pull: Tensor
    value: Tensor
    tau: float

    @abstractmethod
    def other(self, U: Tensor) -> Tensor:
        """K U."""

    @abstractmethod
    def matrix(self) -> Tensor:
        """K, for U in C order: (r F, r F)."""

    @abstractmethod
    def in_pairs(self, data: ClassPairs) -> tuple[Tensor, Tensor, Tensor]:
        """Return K, or K^-1 with a free t, as pairs see it: a matrix, a border and its slack.

        Phi K Phi' is the matrix (P, P) plus border (P, q) diag(1 / slack) border'. With a free t
        the slack is that of t, and the border is left to the caller.
        """

    @abstractmethod
    def compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of (r, F), after `in_pairs`."""

    @abstractmethod
    def terms(self, mu: float, predictor: Direction | None) -> Terms:
        """Right-hand sides of a step to mu, with the predictor's second-order terms."""

    @abstractmethod
    def change(self, terms: Terms, U: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        """Return the changes of R and T."""


class MatrixBall(Ball):
    """T = t I - X X' / t and R of order r; see the module's head."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.R, self.X, self.t, self.T = point.R, point.X, float(point.t), point.T
        self.Y = point.X / self.t
        self.value = self.R @ self.Y

    @cached_property
    def G(self) -> Tensor:
        """Nesterov and Todd's scaling, G T G = R."""
        left, right = cholesky(self.R), cholesky(self.T)
        _, size, turn = torch.linalg.svd(right.T @ left)
        half = left @ turn.T / size.sqrt()
        return half @ half.T

    @cached_property
    def GY(self) -> Tensor:
        """G Y."""
        return self.G @ self.Y

    @cached_property
    def rest(self) -> Tensor:
        """I - Y Y'."""
        return symmetric(torch.eye(len(self.R)).to(self.R) - self.Y @ self.Y.T)

    @cached_property
    def with_t(self) -> Tensor:
        """G (I - Y Y') G."""
        return symmetric(self.G @ self.rest @ self.G)

    @cached_property
    def pull(self) -> Tensor:  # type: ignore[override]
        """What a change of t takes from the other matrix."""
        return self.with_t @ self.Y

    @cached_property
    def tau(self) -> float:  # type: ignore[override]
        """The curvature in t."""
        return 0.5 * float((self.with_t * self.rest).sum())

    def sides(self, U: Tensor) -> Tensor:
        """U Y' + Y U'."""
        product = U @ self.Y.T
        return product + product.T

    def other(self, U: Tensor) -> Tensor:
        """K U."""
        return self.R @ U / self.t + self.G @ self.sides(U) @ self.GY

    def matrix(self) -> Tensor:
        """K, for U in C order: (r F, r F)."""
        b, F = self.Y.shape
        whole = torch.einsum("ij,fg->ifjg", self.G, self.Y.T @ self.GY)
        whole = whole + torch.einsum("ig,jf->ifjg", self.GY, self.GY)
        whole = whole.reshape(b * F, b * F)
        torch.einsum("ifjf->ijf", whole.view(b, F, b, F)).add_((self.R / self.t)[:, :, None])
        return symmetric(whole)

    def in_pairs(self, data: ClassPairs) -> tuple[Tensor, Tensor, Tensor]:
        """Return what pairs see of K, or of K^-1."""
        a = data.a
        if not data.free_t:
            parts = [self._block(data, a, ball) for ball in range(data.n_balls)]
            curvatures, borders, slacks = zip(*parts, strict=True)
            return sum(curvatures[1:], curvatures[0]), torch.hstack(borders), torch.cat(slacks)
        self.W = torch.linalg.svd(self.Y, full_matrices=False)[2].T  # (F, q): its row space
        small = MatrixBall(replace(self.point, X=self.X @ self.W))
        self.inner = cholesky(small.matrix())
        self.outer = self.t * torch.cholesky_inverse(cholesky(self.R))
        x = (data.X @ self.W)[data.place]
        features = (a[:, :, None] * x[:, None, :]).reshape(len(a), -1)
        half = torch.linalg.solve_triangular(self.inner, features.T, upper=False)
        A = (data.gram - x @ x.T) * (a @ self.outer @ a.T) + half.T @ half
        eps = self.tau - float((self.pull * self.compliance(self.pull)).sum())
        return A, a[:, :0], A.new_full((1,), max(eps, 0.0))

    def _block(self, data: ClassPairs, a: Tensor, ball: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return what pairs see of one ball, whose rows R, G and Y have below each other."""
        r = len(self.R) // data.n_balls
        rows = slice(ball * r, (ball + 1) * r)
        g, turned = torch.linalg.eigh(self.G[rows, rows])
        i, j = torch.triu_indices(len(g), len(g)).to(g.device)
        twice = torch.where(i == j, 1.0, 2.0**0.5).to(g)
        b, v = a @ turned, data.products(self.Y[rows]) @ turned
        border = (b[:, i] * v[:, j] + b[:, j] * v[:, i]) * twice  # (P, r (r + 1) / 2)
        return data.gram_of(ball) * (a @ self.R[rows, rows] @ a.T), border, 2.0 / (g[i] * g[j])

    def compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of (r, F), after `in_pairs`."""
        inner = pull @ self.W
        solved = torch.cholesky_solve(inner.reshape(-1, 1), self.inner).reshape(inner.shape)
        return self.outer @ (pull - inner @ self.W.T) + solved @ self.W.T

    def terms(self, mu: float, predictor: Direction | None) -> Terms:
        """Right-hand sides of a step to mu."""
        t, R, eye = self.t, self.R, torch.eye(len(self.R)).to(self.R)
        slack = t * self.rest - self.T
        second, along = torch.zeros_like(self.Y), 0.0
        if predictor is not None:
            change, U = predictor.change, predictor.U
            slack = slack - U @ U.T / t
            second = (change.R @ U - R @ U * (change.t / t)) / t
            along = -0.5 * float((R * (U @ U.T)).sum()) / t**2
        inverse = torch.cholesky_inverse(cholesky(self.T))
        # Both halves of the step, `other` and `change`, must see the same matrix: G grows like
        # mu^(-1/2), and G of an asymmetry in the last digit would be lost on one side only.
        fixed = symmetric(mu * inverse - R - self.G @ slack @ self.G)
        of_t = 0.5 * float((R * (2.0 * eye - self.rest)).sum()) - 1.0
        of_t += 0.5 * float((fixed * self.rest).sum()) - along
        return Terms(fixed @ self.Y + second, of_t, slack, fixed)

    def change(self, terms: Terms, U: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        """Return the changes of R and T."""
        sides = self.sides(U)
        R = terms.fixed - dt * self.with_t + self.G @ sides @ self.G
        return symmetric(R), symmetric(terms.slack + dt * self.rest - sides)


class EntryBall(Ball):
    """T = (t - X, t + X) and R entry by entry: the other matrix is R_0 - R_1."""

    def __init__(self, point: Point) -> None:
        self.R, self.T = point.R, point.T
        self.exact = torch.stack([point.t - point.X, point.t + point.X])
        self.value = self.R[0] - self.R[1]
        self.Y = torch.zeros_like(self.value)
        ratio = self.R / self.T
        self.k, self.pull = ratio[0] + ratio[1], ratio[0] - ratio[1]
        self.tau = float(self.k.sum())
        # Of t, once U is eliminated.
        self.eps = float((4.0 * ratio[0] * ratio[1] / self.k).sum())

    def other(self, U: Tensor) -> Tensor:
        """K U."""
        return self.k * U

    def matrix(self) -> Tensor:
        """K, for U in C order: (r F, r F)."""
        return torch.diag(self.k.reshape(-1))

    def in_pairs(self, data: ClassPairs) -> tuple[Tensor, Tensor, Tensor]:
        """Return what pairs see of K, or of K^-1."""
        A = data.masked(1.0 / self.k if data.free_t else self.k)
        return A, A[:, :0], self.k.new_full((int(data.free_t),), self.eps)

    def compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of (r, F), after `in_pairs`."""
        return pull / self.k

    def terms(self, mu: float, predictor: Direction | None) -> Terms:
        """Right-hand sides of a step to mu."""
        at = mu - self.R * self.T
        if predictor is not None:
            at = at - predictor.change.R * predictor.change.T
        slack = self.exact - self.T
        fixed = (at - self.R * slack) / self.T
        of_t = float(fixed.sum() + self.R.sum()) - 1.0
        return Terms(fixed[0] - fixed[1], of_t, slack, fixed)

    def change(self, terms: Terms, U: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        """Return the changes of R and T."""
        moved = torch.stack([dt - U, dt + U])
        return terms.fixed - self.R / self.T * moved, terms.slack + moved


def multipliers(
    X: Tensor, t: Tensor, other: Tensor, mu: float, *, entries: bool, free_t: bool
) -> tuple[Tensor, Tensor]:
    """Return R and T near the boundary of a ball, where R takes X / t to the other matrix."""
    if entries:
        T = torch.stack([t - X, t + X])
        parts = torch.stack([other.clamp(min=0.0), (-other).clamp(min=0.0)])
        return parts + mu / T, T
    T = t * torch.eye(len(X)).to(X) - X @ X.T / t
    size, turned = torch.linalg.eigh(other @ other.T)
    root = size.clamp(min=0.0).sqrt()
    root = root / root.sum() if free_t else root
    R = (turned * root) @ turned.T + mu * torch.linalg.inv(T)
    return symmetric(R), symmetric(T)


def ball_of(point: Point, *, entries: bool) -> Ball:
    """Return the ball at an iterate: of entries, or of singular values."""
    return EntryBall(point) if entries else MatrixBall(point)


def symmetric(A: Tensor) -> Tensor:
    """Return the symmetric part."""
    return 0.5 * (A + A.T)


def cholesky(A: Tensor) -> Tensor:
    """Lower factor; rounding may ask for a little more on the diagonal.

    Raises
    ------
    Breakdown
        Not positive definite even so.
    """
    diagonal = A.diagonal()
    for size in RIDGES:
        L, failed = torch.linalg.cholesky_ex(A + torch.diag(size * diagonal) if size else A)
        if not failed:
            return L
    raise Breakdown
