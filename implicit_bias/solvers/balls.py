r"""The balls of norms along the central path: slack, multiplier, and how they change together.

Two norms have balls of one kind: that of the nuclear norm's V, V V' <= I, is that of the spectral
norm's zeta, zeta zeta' <= t^2 I with the smallest t. Call the matrix in the ball W; the ball's
multiplier R makes the other matrix of it. l2 is the nuclear norm of zeta written in one row, and a
sum of l2 over groups one of balls of order 1: its R and T are numbers, one a group. Under l_p each
entry of zeta has a ball of its own, of radius w_j, and ||w||_p = t; a sum of l_p over groups has a
t for each group.

        nuclear, l2, groups    W = V,     t = 1
        spectral, l_p          W = zeta,  t free

==============  ==================================  ==============================================
balls           slack T                             the other matrix, and what t asks of R
==============  ==================================  ==============================================
of groups       1/2 - ||W_g||^2 / 2, (G,)           R_g W_g
of singular     t I - W W' / t, order r             R W / t;  tr R (I + W W' / t^2) = 2
values
of entries      w - W and w + W, entry by entry     R_0 - R_1;  u = R_0 + R_1 = (w / t)^(p - 1),
                                                    sum of u w = t, in each group
==============  ==================================  ==============================================

======  ========  ==========================================================================
W, V    (r, F)    in the balls' coordinates: r = K - 1 orthonormal ones of the sum-free vectors,
                  or the K classes themselves for entries; (1, r F) for l2
R, T    (r, r)    multiplier and slack, positive definite; (2, r, F) for entries: of W <= t and of
                  W >= -t
S       (r, r)    Nesterov and Todd's scaling, S T S = R
Y       (r, F)    W / t; 0 for entries
======  ========  ==========================================================================

A sum of nuclear norms over G groups of gates has a ball for each group. Their W are put below each
other, (G r, F), each with 0 in the columns of the others: W W', R, T and S are block diagonal then,
(G r, G r), and all below holds as it stands.

With U = dW - Y dt the other matrix changes by

        K U - S (I - Y Y') S Y dt,      K U = R U / t + S (U Y' + Y U') S Y
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from implicit_bias.norms import Spectral, SumOverGroups, entries_of, nuclear_groups
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Constraints
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.iteration import Breakdown, Point
from implicit_bias.solvers.scaled_problem import (
    TINY,
    Layout,
    ScaledProblem,
    ScaledRows,
    Touching,
)

# What a diagonal may be raised by, as a share, where rounding made a matrix indefinite.
RIDGES = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11)
# l1 and l_inf are taken for l_p with these p: up to 1e-12 of log n they are the same.
NEAREST = (1.0 + 1e-12, 1e12)
# Of the interval of a radius that is looked for.
HALVINGS = 30
# A slack by its tangent is replaced by the true one unless they agree to this share; steps are
# shortened, by this factor and so many times, until the true one is at least that share of it.
STRAIGHT, SHORTER, SHORTENINGS, LEAST_SLACK = 1e-3, 0.8, 12, 0.1
# Under l1 the first norm is larger by this factor.
SPARSER = 10.0
# A point moved into the interior has norms of at most this share of the radius.
WARM_SHARE = 0.98


@dataclass(frozen=True, eq=False)
class BallPoint(Point):
    """What a point of the central path has of the balls.

    For groups t has length 0, and so has W in the rows, where it is V.
    """

    W: Tensor
    t: Tensor
    R: Tensor
    T: Tensor


@dataclass(frozen=True, eq=False)
class CentralPoint(BallPoint):
    """An iterate, or a direction; see `interior_point`.

    w and xi have length 0 with the hard margin, and beta without an intercept.
    """

    alpha: Tensor
    s: Tensor
    w: Tensor
    xi: Tensor
    beta: Tensor

    @property
    def order(self) -> int:
        """Count the complementary products of the balls."""
        return self.R.shape[0] if self.R.ndim == 2 else self.R.numel()

    def complementarity(self) -> float:
        """Mean of the eigenvalues of the complementary products, mu."""
        total = self.alpha @ self.s + self.w @ self.xi + (self.R * self.T).sum()
        return float(total) / (self.alpha.numel() + self.w.numel() + self.order)

    def reach(self, step: CentralPoint) -> float:
        """Longest step, at most 1, that keeps all variables positive (definite).

        One step for all variables: the other matrix is bilinear, and unequal steps would undo the
        progress of its residual.
        """
        rates = []
        for name in ("alpha", "s", "w", "xi", "t", "R", "T"):
            X, dX = getattr(self, name), getattr(step, name)
            if X.numel():
                rates.append(relative_eigenvalues(X, dX) if X.ndim == 2 else (dX / X).reshape(-1))
        least = float(torch.cat(rates).min())
        if not math.isfinite(least):
            raise Breakdown
        return 1.0 / max(1.0, -least)

    def to(self, dtype: torch.dtype) -> CentralPoint:
        """Return it in another precision."""
        return CentralPoint(**{name: x.to(dtype) for name, x in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Direction:
    """A direction; ``U`` is the change of W less Y dt, and empty for groups in the rows."""

    change: CentralPoint
    U: Tensor


class Balls(ABC):
    """The balls of a norm in the units of a scaled problem.

    Attributes
    ----------
    data : ScaledProblem
        The problem.
    free_t : bool
        Whether W is zeta.
    """

    data: ScaledProblem
    free_t: bool = False

    @staticmethod
    @abstractmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return the layout of a problem's rows that these balls take."""

    @abstractmethod
    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """Phi' alpha, in the shape of the balls."""

    @abstractmethod
    def norm(self, primal: Tensor) -> float:
        """Omega of zeta, or of the R of groups."""

    @abstractmethod
    def dual_norm(self, V: Tensor) -> float:
        """Omega_* of V."""

    @abstractmethod
    def at(self, point: CentralPoint, V: Tensor) -> Ball:
        """Return the balls at an iterate, of which V is Phi' alpha."""

    @abstractmethod
    def cold(self, V: Tensor, total: float) -> BallPoint:
        """Return a first point of this V, inside the balls, with a norm of about this total."""

    def centred(self, V: Tensor, mu: float) -> BallPoint | None:
        """Return a first point of equal products mu, near V but inside the balls.

        None where these know no other W than V.
        """
        return None

    @abstractmethod
    def of_start(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """Return zeta, or the R of groups, of a start, and its margins without the offset."""

    @abstractmethod
    def warm(self, V: Tensor, primal: Tensor, mu: float) -> BallPoint:
        """Return a point near what a start has, of complementary products mu at least."""

    @abstractmethod
    def order(self, primal: Tensor) -> int:
        """Count the complementary products."""

    def moved(self, point: CentralPoint, step: CentralPoint, length: float) -> CentralPoint:
        """Return the point at this length of a step, or of less, where it keeps all equations."""
        return point.moved(step, length)


class Ball(ABC):
    """The balls at one iterate.

    Attributes
    ----------
    margins : Tensor of shape (P,)
        Those of zeta, without the offset.
    norm, dual_norm : float
        Omega(zeta) and Omega_*(V).
    primal : tuple of Tensor
        V and d of `ScaledProblem.coef`.
    """

    margins: Tensor
    norm: float
    dual_norm: float
    primal: tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class FeatureTerms:
    """Right-hand sides of the system in the features, and what the ball keeps for its change."""

    right: Tensor
    of_ball: Any


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Phi in coordinates of the classes: r F numbers of each row, class coordinate first.

    Attributes
    ----------
    rows : ScaledRows
        With written features, F of a sample.
    basis : Tensor of shape (K', r)
        From the coordinates to the classes.
    """

    rows: ScaledRows
    basis: Tensor

    def margins(self, x: Tensor) -> Tensor:
        """Phi x, (..., P), of x (..., r F)."""
        return self.rows.margins(self.basis @ x.reshape(*x.shape[:-1], self.basis.shape[1], -1))

    def pull(self, alpha: Tensor) -> Tensor:
        """Phi' alpha, (..., r F), of alpha (..., P)."""
        return (self.basis.T @ self.rows.pulls(alpha)).flatten(-2)

    def normal_matrix(self, h: Tensor, loose: Tensor | None, *, coarse: bool) -> Tensor:
        """Phi' D^-1 Phi, (r F, r F), see `ScaledRows.normal_matrix`."""
        return self.rows.normal_matrix(h, loose, self.basis, coarse)


@dataclass(frozen=True, eq=False)
class BallMatrix:
    """The ball's matrix of the unknowns: n of zeta, and q of its own.

    Attributes
    ----------
    inner : Tensor of shape (n, n), or (n,)
        Of zeta; a diagonal one as a vector.
    corner : Tensor of shape (q,)
        The diagonal one of its own unknowns.
    border : Tensor of shape (q, n), or None
        Between these and zeta.
    """

    inner: Tensor
    corner: Tensor
    border: Tensor | None = None

    def __len__(self) -> int:
        """Count the unknowns, n + q."""
        return len(self.inner) + len(self.corner)

    def add_to(self, H: Tensor) -> None:
        """Add the upper triangle to a matrix whose first rows and columns are of the unknowns."""
        n, size = len(self.inner), len(self)
        if self.inner.ndim == 1:
            H.diagonal()[:n] += self.inner
        else:
            H[:n, :n] += self.inner
        H.diagonal()[n:size] += self.corner
        if self.border is not None:
            H[:n, n:size] += self.border.T

    def times(self, x: Tensor) -> Tensor:
        """Multiply the unknowns, (n + q,)."""
        of_zeta, own = x[: len(self.inner)], x[len(self.inner) :]
        inner = self.inner * of_zeta if self.inner.ndim == 1 else self.inner @ of_zeta
        corner = self.corner * own
        if self.border is not None:
            inner, corner = inner + own @ self.border, corner + self.border @ of_zeta
        return torch.cat([inner, corner])


class InFeatures(Ball):
    """Balls at an iterate whose Newton system may be one in the features.

    Its unknowns x are u, (n,), and q numbers a of the ball, such as radii or group scales. The
    margins change by Phi (u + directions' a).
    """

    @property
    @abstractmethod
    def coordinates(self) -> Coordinates:
        """Phi."""

    @abstractmethod
    def in_features(self) -> tuple[BallMatrix, Tensor]:
        """Return the ball's matrix of the unknowns, and the directions of zeta, (q, n)."""

    @abstractmethod
    def feature_terms(self, mu: float, predictor: Direction | None, weight: float) -> FeatureTerms:
        """Right-hand sides of a step to mu, with a share of the predictor's second-order terms."""

    @abstractmethod
    def feature_change(
        self, terms: FeatureTerms, alpha: Tensor, x: Tensor
    ) -> tuple[BallPoint, Tensor]:
        """Return what the balls change by, and U, of a change of alpha and of the unknowns."""


class EuclideanGroups(Balls):
    """A sum of Euclidean norms over groups: balls of order 1."""

    def __init__(self, data: ScaledProblem) -> None:
        self.data = data

    @staticmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return that of the groups."""
        return Layout.of_groups(problem, rows)

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V of all groups, (K', M' + 1, D')."""
        return self.data.rows.dual_vectors(alpha)

    def norm(self, primal: Tensor) -> float:
        """Omega at the optimum, where ||V_g|| is 1 or R_g is 0."""
        return float(primal.sum())

    def dual_norm(self, V: Tensor) -> float:
        """Largest ||V_g||."""
        return float(self.inner(V, V).max().sqrt())

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group, (G,)."""
        return self.data.rows.inner(V, W)

    def at(self, point: CentralPoint, V: Tensor) -> Ball:
        """Return the balls at an iterate."""
        return GroupBalls(self.data.rows, point, V)

    def cold(self, V: Tensor, total: float) -> BallPoint:
        """Equal group scales."""
        n_groups, none = self.data.n_groups, self.data.full(0, 0.0)
        slack = 0.5 * (1.0 - self.inner(V, V))
        return BallPoint(none, none, self.data.full(n_groups, total / n_groups), slack)

    def of_start(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """d, and margins of d_g V_g for the V of a start, its largest ||V_g|| 1."""
        d = self.data.scale * self.data.tensor(start.group_norms)
        return d, self.data.rows.group_products(V) @ (d / self.dual_norm(V))

    def warm(self, V: Tensor, primal: Tensor, mu: float) -> BallPoint:
        """Return a point near group scales d."""
        slack, none = 0.5 * (1.0 - self.inner(V, V)), self.data.full(0, 0.0)
        return BallPoint(none, none, torch.maximum(primal, mu / slack), slack)

    def order(self, primal: Tensor) -> int:
        """G."""
        return len(primal)


class GroupBalls(Ball):
    """T_g = 1/2 - ||V_g||^2 / 2 and the group scales R = d."""

    def __init__(self, rows: ScaledRows, point: CentralPoint, V: Tensor) -> None:
        self.V, self.d = V, point.R
        self.U = rows.group_products(V)
        self.squares = rows.inner(V, V)  # (G,)
        self.margins = self.U @ self.d
        norms = self.squares.sqrt()
        self.norm, self.dual_norm = float(torch.dot(self.d, norms)), float(norms.max())
        self.residual = 0.5 - point.T - 0.5 * self.squares
        self.primal = V, self.d


class GroupsInFeatures(EuclideanGroups):
    """The same balls in the space of the features, with a W of their own: V is (r, M', D').

    With a shared column of gates it is (r, M' + 1, D').

    Of the classes r = K - 1 coordinates, as of `ClassMatrices`, where all of them have the same
    groups, or else the classes themselves.
    """

    def __init__(self, data: ScaledProblem) -> None:
        super().__init__(data)
        rows, groups = data.rows, data.rows.layout
        K = len(groups.columns)
        basis = np.eye(K)
        if K > 1 and (groups.columns == groups.columns[0]).all():
            basis = np.asarray(scipy.linalg.helmert(K).T)
        self.members = groups.members[: basis.shape[1]]  # (r, M' + 1, G)
        self.n_gates = rows.Z.shape[1]
        if not groups.share.any():  # no group has a part in the shared column
            self.n_gates, self.members = self.n_gates - 1, self.members[:, :-1]
        self.shape = basis.shape[1], self.n_gates, rows.X.shape[1]
        features = rows.Z[:, : self.n_gates, None] * rows.X[:, None, :]
        constant = rows.Z.new_ones(len(rows.Z), 1)
        written = ScaledRows(features.flatten(1), constant, groups, rows.pairs)
        self.coordinates = Coordinates(written, data.tensor(basis))

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V in coordinates, (r, M', D')."""
        return self.coordinates.pull(alpha).reshape(self.shape)

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group, (G,)."""
        return torch.einsum("rm,rmg->g", (V * W).sum(2), self.members)

    def of_start(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """d, and margins of d_g V_g for the V of a start, its largest ||V_g|| 1."""
        d = self.data.scale * self.data.tensor(start.group_norms)
        zeta = (self.members @ d)[..., None] * V
        return d, self.coordinates.margins(zeta.reshape(-1)) / self.dual_norm(V)

    def cold(self, V: Tensor, total: float) -> BallPoint:
        """Equal group scales."""
        return replace(super().cold(V, total), W=V)

    def centred(self, V: Tensor, mu: float) -> BallPoint:
        """V, its norm at most 1/2, and what equal products make of the group scales."""
        W = V * min(1.0, 0.5 / max(self.dual_norm(V), TINY))
        T = 0.5 * (1.0 - self.inner(W, W))
        return BallPoint(W, self.data.full(0, 0.0), mu / T, T)

    def warm(self, V: Tensor, primal: Tensor, mu: float) -> BallPoint:
        """Return a point near group scales d."""
        return replace(super().warm(V, primal, mu), W=V)

    def at(self, point: CentralPoint, V: Tensor) -> Ball:
        """Return the balls at an iterate."""
        return GroupsInFeaturesBall(self, point, V)


class ClassMatrices(Balls):
    """Norms of entries; with many classes those of singular values, and l2, too."""

    def __init__(self, data: ScaledProblem) -> None:
        layout = data.layout
        problem = layout.problem
        self.data, norm = data, problem.norm
        entries = entries_of(norm)
        self.entries = entries is not None
        self.free_t = self.entries or norm == Spectral()
        p = 2.0 if entries is None else entries.exponent
        self.exponent = min(max(p, NEAREST[0]), NEAREST[1])
        # From coordinates to classes, (K', r): orthonormal ones of what sums to 0 over all classes.
        width = layout.rows.width
        basis = np.eye(width) if self.entries else np.asarray(scipy.linalg.helmert(width).T)
        self.coordinates = Coordinates(data.rows, data.tensor(basis))
        self._into = data.tensor(basis.T)  # (r, K'), and back
        r, F = basis.shape[1], data.rows.X.shape[1]
        self.shape = (r, F)
        self.columns: list[Tensor] = []  # of each group
        # The group of each column, where it has a radius of its own.
        self.radii: Tensor | None = None
        if isinstance(norm, SumOverGroups):
            of_gates = norm.groups[:, None] if norm.axis == -2 else norm.groups
            own = np.broadcast_to(of_gates, problem.norm_shape[1:]).reshape(-1)  # C order
            self.columns = [data.index(np.flatnonzero(own == g)) for g in range(own.max() + 1)]
            self.radii = data.index(own) if self.entries else None
        self.n_balls = 1 if self.entries else max(len(self.columns), 1)
        self.ball_shape = (self.n_balls * r, F)
        self._norm = norm.norm if isinstance(norm, SumOverGroups) else norm  # of each part

    @staticmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return that of features; rotations that merge constant ones leave these norms alone."""
        alone = nuclear_groups(problem.norm) is None and entries_of(problem.norm) is None
        return Layout.of_features(problem, rows, merge=alone)

    @property
    def basis(self) -> Tensor:
        """From coordinates to classes, (K', r)."""
        return self.coordinates.basis

    @cached_property
    def labels(self) -> Tensor:
        """The label vectors in coordinates, (P, r)."""
        return self.data.rows.labels @ self.basis

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """Phi' alpha, in the shape of the balls."""
        return self.inside(self.basis.T @ self.data.rows.dual_vectors(alpha)[:, 0])

    def margins(self, zeta: Tensor) -> Tensor:
        """Phi zeta, (P,)."""
        return self.data.rows.margins(self.basis @ self.whole(zeta))

    def norm(self, primal: Tensor) -> float:
        """Omega of zeta."""
        return sum(self._norm.value(part) for part in self._parts(primal))

    def dual_norm(self, V: Tensor) -> float:
        """Omega_* of V."""
        return max(self._norm.dual(part) for part in self._parts(V))

    def inside(self, V: Tensor) -> Tensor:
        """Matrices (r, F) in the shape of the balls; of several one below the other.

        Then each has its own columns, and 0 in those of the others: singular values of all are
        those of the whole matrix, and its products with itself are block diagonal.
        """
        if self.n_balls == 1:
            return V.reshape(self.ball_shape)
        r, found = len(V), V.new_zeros(self.ball_shape)
        for ball, columns in enumerate(self.columns):
            found[ball * r : (ball + 1) * r, columns] = V[:, columns]
        return found

    def whole(self, zeta: Tensor) -> Tensor:
        """Matrices (r, F) of those in the shape of the balls."""
        if self.n_balls == 1:
            return zeta.reshape(self.shape)
        return zeta.reshape(self.n_balls, *self.shape).sum(0)

    @cached_property
    def grams(self) -> list[Tensor]:
        """Inner products of the samples' inputs in each ball, (n, n)."""
        X = self.data.rows.X
        parts = [X[:, columns] for columns in self.columns] if self.n_balls > 1 else [X]
        return [part @ part.T for part in parts]

    @property
    def of_each(self) -> list[Tensor]:
        """Columns of each ball."""
        everything = torch.arange(self.shape[1], device=self.basis.device)
        return self.columns if self.n_balls > 1 else [everything]

    def flat(self, values: Tensor) -> Tensor:
        """Entries of (r, F), in C order."""
        return self.whole(values).reshape(-1)

    def shaped(self, entries: Tensor) -> Tensor:
        """Return entries (n,) in the shape of the balls."""
        return self.inside(entries.reshape(self.shape))

    def spread(self, t: Tensor) -> Tensor | float:
        """Return the radius of each column, (F,), or the only one."""
        return float(t) if self.radii is None else t[self.radii]

    def pool(self, values: Tensor) -> Tensor:
        """Sum (r, F) over the entries of each radius."""
        if self.radii is None:
            return values.sum()[None]
        found = values.new_zeros(len(self.columns))
        return found.index_add_(0, self.radii, values.sum(0))

    def apart(self, values: Tensor) -> Tensor:
        """Return (r, F) for each radius, 0 in the columns of the others, in a stack."""
        if self.radii is None:
            return values[None]
        return torch.stack([values * (self.radii == g) for g in range(len(self.columns))])

    def at(self, point: CentralPoint, V: Tensor) -> BallOfClasses:
        """Return the ball at an iterate."""
        if self.entries:
            return EntryBall(self, point, V)
        return MatrixBall(self, point, V) if self.free_t else FixedMatrixBall(self, point, V)

    def cold(self, V: Tensor, total: float) -> BallPoint:
        """Return V half way to the boundary, or zeta along it, and equal multipliers."""
        if self.entries:  # w and u of equal entries in each group
            n, p = self.pool(torch.ones_like(V)), self.exponent
            # Radii of sparse entries are far from equal ones: more of these are far enough inside.
            t = total * SPARSER ** max(2.0 / p - 1.0, 0.0) / V.numel() * n
            u, w = self.spread(n ** (1.0 / p - 1.0)), self.spread(t * n ** (-1.0 / p))
            half = 0.5 * (V / u).clamp(-1.0, 1.0)
            sides = torch.stack([1.0 + half, 1.0 - half])
            return BallPoint(w * half, t, 0.5 * u * sides, w * sides.flip(0))
        W, t = V, self.data.full(1, 1.0)
        if self.free_t:
            largest = self.norm(V)
            W, t = V * (0.5 * total / largest if largest > 0 else 0.0), total * t
        eye = torch.eye(len(V)).to(V)
        T = t * eye - W @ W.T / t
        R = total / len(eye) * eye
        if self.free_t:
            R = 2.0 * eye / (len(eye) + float((W * W).sum() / t**2))
        return BallPoint(W, t, R, T)

    def centred(self, V: Tensor, mu: float) -> BallPoint:
        """V, its norm at most 1/2, or zeta along it (0 for entries), and R and T of products mu."""
        if self.entries:
            return self.cold(0.0 * V, 2.0 * mu * V.numel())
        if self.free_t:
            return self.cold(V, 0.5 * mu * len(V))
        found = self.cold(V * min(1.0, 0.5 / max(self.dual_norm(V), TINY)), 1.0)
        return replace(found, R=symmetric(mu * torch.linalg.inv(found.T)))

    def of_start(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """Zeta of a start, and its margins."""
        zeta = self.inside(self._into @ self.data.start_coef(start))
        return zeta, self.margins(zeta)

    def warm(self, V: Tensor, primal: Tensor, mu: float) -> BallPoint:
        """Return a point near zeta."""
        if self.entries:
            parts = self._parts(primal)
            norms = self.data.tensor(np.array([self._norm.value(part) for part in parts]))
            t = norms.clamp(min=(1.0 - WARM_SHARE) * float(norms.max())) / WARM_SHARE
            w = self._radii_beside(primal, V, self.spread(t), mu)
            T = torch.stack([w - primal, w + primal])
            return BallPoint(primal, t, torch.stack([V, -V]).clamp(min=0.0) + mu / T, T)
        t = self.data.full(1, self.norm(primal) / WARM_SHARE if self.free_t else 1.0)
        W, other = (primal, V) if self.free_t else (V, primal)
        T = symmetric(t * torch.eye(len(W)).to(W) - W @ W.T / t)
        size, turned = torch.linalg.eigh(other @ other.T)
        root = size.clamp(min=0.0).sqrt()
        root = root / root.sum() if self.free_t else root
        return BallPoint(W, t, symmetric((turned * root) @ turned.T + mu * torch.linalg.inv(T)), T)

    def _radii_beside(self, W: Tensor, V: Tensor, t: Tensor | float, mu: float) -> Tensor:
        """Find w with u = abs(V) + mu / (w - W) + mu / (w + W) on the curve, by halving.

        Near its corner (w small at p near 1, u small at a large p) the iterate is to be beyond it:
        a tangent is taken where the curve is below.
        """
        size, multiplier = W.abs(), V.abs()
        low, high = size, (size + 2.0 * mu / (1.0 - multiplier)).clamp(min=t)
        for _ in range(HALVINGS):
            w = 0.5 * (low + high)
            u = multiplier + mu / (w - size) + mu / (w + size)
            below = (w / t) ** (self.exponent - 1.0) < u
            low, high = torch.where(below, w, low), torch.where(below, high, w)
        return low if self.exponent < 2.0 else high

    def order(self, primal: Tensor) -> int:
        """Eigenvalues of the slack, or its entries."""
        return 2 * primal.numel() if self.entries else len(primal)

    def moved(self, point: CentralPoint, step: CentralPoint, length: float) -> CentralPoint:
        """Return the point at this length of a step, where T and tr R keep their equations.

        Far from the central path, T by its tangent would let t fall below what W asks for.
        """
        if self.entries or not self.free_t:
            return point.moved(step, length)
        eye = torch.eye(len(point.W)).to(point.W)
        for _ in range(SHORTENINGS):
            found = point.moved(step, length)
            square = symmetric(found.W @ found.W.T / found.t**2)
            slack = found.t * (eye - square)
            share = relative_eigenvalues(found.T, slack)
            if float((share - 1.0).abs().max()) < STRAIGHT:  # rounding would be all of the change
                return found
            if float(share[0]) >= LEAST_SLACK:
                R = 2.0 * found.R / (found.R * (eye + square)).sum()
                return replace(found, R=R, T=slack)
            length *= SHORTER
        return point.moved(step, length)

    def _parts(self, A: Tensor) -> list[Any]:  # norms take tensors as arrays
        if not self.columns:
            return [A]
        whole = self.whole(A)
        return [whole[:, columns] for columns in self.columns]


@dataclass(frozen=True, eq=False)
class Terms:
    """Right-hand sides of a ball: what the other matrix and t's equation change by without U, t."""

    other: Tensor
    of_t: Tensor | float
    slack: Tensor
    fixed: Tensor


class GroupsInFeaturesBall(InFeatures):
    r"""T_g = 1/2 - ||W_g||^2 / 2 and the group scales R = d, in the space of the features.

    zeta = A W of all groups together, A diagonal: d_g, and in the shared column the sum of all d_g
    times the group's part of it. With G_g, (n,), the entries of W in group g, times their part, it
    changes by A U + G dd, where U changes W and

        (T / d) dd - G' U = mu / d - T - (1/2 - T - ||W_g||^2 / 2)

    dd stays an unknown of the Newton system: eliminated, the rounding of U would enter it times
    d / T, which grows like 1 / mu.
    """

    def __init__(self, balls: GroupsInFeatures, point: CentralPoint, V: Tensor) -> None:
        self.balls, self.W, self.d, self.T = balls, point.W, point.R, point.T
        self.G = (self.W[..., None] * balls.members[:, :, None]).flatten(0, 2)
        self.A = (balls.members @ self.d)[..., None].expand_as(V)
        self.margins = self.coordinates.margins((self.A * self.W).reshape(-1))
        squares = self.G.T @ self.W.reshape(-1)  # (G,)
        self.norm, self.dual_norm = float(self.d @ squares.sqrt()), balls.dual_norm(V)
        self.residual = 0.5 - self.T - 0.5 * squares
        self.missing = V - self.W

    @property
    def coordinates(self) -> Coordinates:
        """Phi."""
        return self.balls.coordinates

    @property
    def primal(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """V of the classes and of all rotated gates, (K', M' + 1, D'), and d."""
        V = torch.tensordot(self.coordinates.basis, self.W, 1)
        room = self.balls.data.rows.Z.shape[1] - self.balls.n_gates
        return torch.nn.functional.pad(V, (0, 0, 0, room)), self.d

    def in_features(self) -> tuple[BallMatrix, Tensor]:
        """Return the diagonal matrix of A U and dd, and G as directions of zeta."""
        return BallMatrix(1.0 / self.A.reshape(-1), self.T / self.d), self.G.T

    def feature_terms(self, mu: float, predictor: Direction | None, weight: float) -> FeatureTerms:
        """Right-hand sides of a step to mu, with a share of the predictor's second-order terms."""
        at, residual = mu - self.d * self.T, self.residual
        second = torch.zeros_like(self.W)
        if predictor is not None:
            change, dV = predictor.change, predictor.U
            at = at - weight * change.R * change.T
            residual = residual - 0.5 * weight * self.balls.inner(dV, dV)
            second = weight * (self.balls.members @ change.R)[..., None] * dV
        of_zeta = (self.missing + second / self.A).reshape(-1)
        of_d = at / self.d - residual + self.G.T @ self.missing.reshape(-1)
        return FeatureTerms(torch.cat([of_zeta, of_d]), at)

    def feature_change(
        self, terms: FeatureTerms, alpha: Tensor, x: Tensor
    ) -> tuple[BallPoint, Tensor]:
        """Return what the balls change by, and U, of a change of alpha and of the unknowns."""
        U, d = self.balls.dual_vectors(alpha) + self.missing, x[self.W.numel() :]
        return BallPoint(U, self.d[:0], d, (terms.of_ball - self.T * d) / self.d), U


class BallOfClasses(InFeatures):
    """The ball around W of radius t at one iterate, with its multiplier R.

    Attributes
    ----------
    Y : Tensor of shape (r, F)
        Of dW = U + Y dt.
    pull : Tensor of shape (r, F)
        The other matrix changes by K U - pull dt.
    other : Tensor of shape (r, F)
        The other matrix.
    missing : Tensor of shape (r, F)
        What V lacks to be W, or the other matrix.
    tau : float
        The curvature in t.
    """

    Y: Tensor
    pull: Tensor
    other: Tensor
    tau: Tensor | float
    t: Any  # of each column, or a number

    def __init__(self, balls: ClassMatrices, point: CentralPoint, V: Tensor) -> None:
        self.balls, self.point = balls, point
        self.W, self.t, self.R, self.T = point.W, balls.spread(point.t), point.R, point.T
        self.V = V
        self.prepare()
        zeta = self.W if balls.free_t else self.other
        self.missing = V - (self.other if balls.free_t else self.W)
        self.margins = balls.margins(zeta)
        self.norm, self.dual_norm = balls.norm(zeta), balls.dual_norm(V)
        of_classes = (balls.basis @ balls.whole(zeta))[:, None]
        self.primal = of_classes, of_classes.new_ones(1)

    @abstractmethod
    def prepare(self) -> None:
        """Set the attributes."""

    @abstractmethod
    def along(self, U: Tensor) -> Tensor:
        """K U."""

    @abstractmethod
    def stiffness(self) -> Tensor:
        """K, for U in C order: (r F, r F), or (r F,) where it is diagonal."""

    @property
    def coordinates(self) -> Coordinates:
        """Phi."""
        return self.balls.coordinates

    def in_features(self) -> tuple[BallMatrix, Tensor]:
        """Return the ball's matrix of the unknowns, which are U and dt: W is zeta."""
        pulls, directions = (self.balls.apart(part).flatten(1) for part in (self.pull, self.Y))
        corner = torch.as_tensor(self.tau).to(pulls).expand(len(pulls))
        return BallMatrix(self.stiffness(), corner, -pulls), directions

    def feature_terms(self, mu: float, predictor: Direction | None, weight: float) -> FeatureTerms:
        """Right-hand sides of a step to mu, with a share of the predictor's second-order terms."""
        terms, balls = self.terms(mu, predictor, weight), self.balls
        of_t = terms.of_t + balls.pool(self.missing * self.Y)
        return FeatureTerms(torch.cat([balls.flat(self.missing - terms.other), of_t]), terms)

    def feature_change(
        self, terms: FeatureTerms, alpha: Tensor, x: Tensor
    ) -> tuple[BallPoint, Tensor]:
        """Return what the balls change by, and U, of a change of alpha and of the unknowns."""
        dt = x[len(x) - len(self.point.t) :]
        U = self.balls.shaped(x[: len(x) - len(dt)])
        return self.change(terms.of_ball, U, dt), U

    @abstractmethod
    def in_rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return K, or K^-1 with a free t, as rows see it: a matrix, a border and its slack.

        Phi K Phi' is the matrix (P, P), of which the upper triangle counts, plus border (P, q)
        diag(1 / slack) border'. With a free t the slack is that of t, and the border is left to
        the caller.
        """

    @abstractmethod
    def compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of (r, F), after `in_rows`."""

    @abstractmethod
    def terms(self, mu: float, predictor: Direction | None, weight: float) -> Terms:
        """Right-hand sides of a step to mu, with a share of the predictor's second-order terms."""

    @abstractmethod
    def change(self, terms: Terms, U: Tensor, dt: Tensor) -> BallPoint:
        """Return what the balls change by."""


class MatrixBall(BallOfClasses):
    """T = t I - W W' / t and R of order r; see the module's head."""

    def prepare(self) -> None:
        """Set the other matrix."""
        self.Y = self.W / self.t
        self.other = self.R @ self.Y

    @cached_property
    def S(self) -> Tensor:
        """Nesterov and Todd's scaling, S T S = R."""
        left, right = cholesky(self.R), cholesky(self.T)
        _, size, turn = torch.linalg.svd(right.T @ left)
        half = left @ turn.T / size.sqrt()
        return half @ half.T

    @cached_property
    def SY(self) -> Tensor:
        """S Y."""
        return self.S @ self.Y

    @cached_property
    def rest(self) -> Tensor:
        """I - Y Y'."""
        return symmetric(torch.eye(len(self.R)).to(self.R) - self.Y @ self.Y.T)

    @cached_property
    def with_t(self) -> Tensor:
        """S (I - Y Y') S."""
        return symmetric(self.S @ self.rest @ self.S)

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

    def along(self, U: Tensor) -> Tensor:
        """K U."""
        return self.R @ U / self.t + self.S @ self.sides(U) @ self.SY

    def stiffness(self) -> Tensor:
        """K, for U in C order: (r F, r F)."""
        return self._matrix(self.Y)

    def _matrix(self, Y: Tensor) -> Tensor:
        """K of U (r, q), for a Y in as many columns: (r q, r q)."""
        (r, q), SY = Y.shape, self.S @ Y
        whole = torch.einsum("ij,fg->ifjg", self.S, Y.T @ SY)
        whole = whole + torch.einsum("ig,jf->ifjg", SY, SY)
        whole = whole.reshape(r * q, r * q)
        torch.einsum("ifjf->ijf", whole.view(r, q, r, q)).add_((self.R / self.t)[:, :, None])
        return symmetric(whole)

    def in_rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K^-1."""
        balls, rows = self.balls, self.balls.data.rows
        a = balls.labels
        # K differs from R / t only in the row space of Y: Q, (F, q).
        self.Q = torch.linalg.svd(self.Y, full_matrices=False)[2].T
        self.inner = cholesky(self._matrix(self.Y @ self.Q))
        self.outer = self.t * torch.cholesky_inverse(cholesky(self.R))
        inside = rows.X @ self.Q
        x = inside[rows.pairs.place]
        features = (a[:, :, None] * x[:, None, :]).reshape(len(a), -1)
        half = torch.linalg.solve_triangular(self.inner, features.T, upper=False)
        A = rows.masked_by_labels([balls.grams[0] - inside @ inside.T], [a @ self.outer], a)
        A.addmm_(half.T, half)
        eps = self.tau - float((self.pull * self.compliance(self.pull)).sum())
        return A, a[:, :0], A.new_full((1,), max(eps, 0.0))

    def compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of (r, F), after `in_rows`."""
        inner = pull @ self.Q
        solved = torch.cholesky_solve(inner.reshape(-1, 1), self.inner).reshape(inner.shape)
        return self.outer @ (pull - inner @ self.Q.T) + solved @ self.Q.T

    def terms(self, mu: float, predictor: Direction | None, weight: float) -> Terms:
        """Right-hand sides of a step to mu."""
        t, R, eye = self.t, self.R, torch.eye(len(self.R)).to(self.R)
        slack = t * self.rest - self.T
        second, along = torch.zeros_like(self.Y), 0.0
        if predictor is not None:
            change, U = predictor.change, predictor.U
            slack = slack - weight * (U @ U.T) / t
            second = weight * (change.R @ U - R @ U * (change.t / t)) / t
            along = -0.5 * weight * float((R * (U @ U.T)).sum()) / t**2
        inverse = torch.cholesky_inverse(cholesky(self.T))
        # Both halves of the step, `along` and `change`, must see the same matrix: S grows like
        # mu^(-1/2), and S of an asymmetry in the last digit would be lost on one side only.
        fixed = symmetric(mu * inverse - R - self.S @ slack @ self.S)
        of_t = 0.5 * float((R * (2.0 * eye - self.rest)).sum()) - 1.0
        of_t += 0.5 * float((fixed * self.rest).sum()) - along
        return Terms(fixed @ self.Y + second, of_t, slack, fixed)

    def change(self, terms: Terms, U: Tensor, dt: Tensor) -> BallPoint:
        """Return what the ball changes by."""
        sides = self.sides(U)
        R = terms.fixed - dt * self.with_t + self.S @ sides @ self.S
        T = terms.slack + dt * self.rest - sides
        return BallPoint(U + self.Y * dt, dt, symmetric(R), symmetric(T))


class FixedMatrixBall(MatrixBall):
    """Balls of radius 1: W is V, and the other matrix R W.

    With S = sum of size_i q_i q_i' and an orthonormal basis E_ij of the symmetric matrices,
    E_ij ~ q_i q_j' + q_j q_i', zeta changes by R U + sum of z_ij E_ij W, z_ij entries of dR, and

        z_ij / (2 size_i size_j) - <E_ij W, U> = <mu R^-1 - T - slack, E_ij> / 2

    z stay unknowns of the Newton system in the features: eliminated, the rounding of U would enter
    them times size_i size_j, which grows like 1 / mu.
    """

    @cached_property
    def own(self) -> list[slice]:
        """Rows of each ball in W, R, T and S."""
        r = len(self.W) // self.balls.n_balls
        return [slice(start, start + r) for start in range(0, len(self.W), r)]

    def in_rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K: the mask of R, and the borders of all balls."""
        balls, a = self.balls, self.balls.labels
        borders, slacks = zip(*[self._border(ball) for ball in self.own], strict=True)
        weighted = [a @ self.R[ball, ball] for ball in self.own]
        Q = balls.data.rows.masked_by_labels(balls.grams, weighted, a)
        return Q, torch.hstack(borders), torch.cat(slacks)

    def _border(self, own: slice) -> tuple[Tensor, Tensor]:
        """Return the border of one ball, of its own rows in S and Y, and its slack."""
        a = self.balls.labels
        size, turned = torch.linalg.eigh(self.S[own, own])
        i, j = torch.triu_indices(len(size), len(size)).to(size.device)
        twice = torch.where(i == j, 1.0, 2.0**0.5).to(size)
        b, v = a @ turned, self.balls.data.rows.products(self.Y[own]) @ turned
        border = (b[:, i] * v[:, j] + b[:, j] * v[:, i]) * twice  # (P, r (r + 1) / 2)
        return border, 2.0 / (size[i] * size[j])

    @cached_property
    def parts(self) -> tuple[Tensor, Tensor]:
        """E_ij of all balls, (q, len(W), len(W)), and size_i size_j, (q,)."""
        found, sizes = [], []
        for own in self.own:
            size, turned = torch.linalg.eigh(self.S[own, own])
            i, j = torch.triu_indices(len(size), len(size)).to(size.device)
            outer = torch.einsum("ai,bi->iab", turned[:, i], turned[:, j])
            share = torch.where(i == j, 0.5, 0.5**0.5).to(size)
            of_all = size.new_zeros(len(i), len(self.W), len(self.W))
            of_all[:, own, own] = (outer + outer.mT) * share[:, None, None]
            found.append(of_all)
            sizes.append(size[i] * size[j])
        return torch.cat(found), torch.cat(sizes)

    def in_features(self) -> tuple[BallMatrix, Tensor]:
        """Return the balls' matrix of R U and z, and the directions E_ij W."""
        E, sizes = self.parts
        inverse = torch.cholesky_inverse(cholesky(self.R))
        r, F = self.balls.shape
        of_U = inverse.new_zeros(r, F, r, F)
        for own, columns in zip(self.own, self.balls.of_each, strict=True):
            of_U[:, columns, :, columns] = inverse[own, own]
        matrix = BallMatrix(of_U.reshape(r * F, r * F), 0.5 / sizes)
        return matrix, torch.stack([self.balls.flat(direction) for direction in E @ self.W])

    def feature_terms(self, mu: float, predictor: Direction | None, weight: float) -> FeatureTerms:
        """Right-hand sides of a step to mu, with a share of the predictor's second-order terms."""
        slack, second = self.rest - self.T, torch.zeros_like(self.W)
        if predictor is not None:
            change, U = predictor.change, predictor.U
            slack = slack - weight * (U @ U.T)
            second = weight * (change.R @ U)
        inverse = torch.cholesky_inverse(cholesky(self.R))
        E, _ = self.parts
        lacking = mu * inverse - self.T
        of_z = 0.5 * torch.einsum("qab,ab->q", E, lacking - slack)
        of_z = of_z + torch.einsum("qab,ab->q", E, self.missing @ self.W.T)
        first = self.balls.flat(self.missing + inverse @ second)
        return FeatureTerms(torch.cat([first, of_z]), lacking)

    def feature_change(
        self, terms: FeatureTerms, alpha: Tensor, x: Tensor
    ) -> tuple[BallPoint, Tensor]:
        """Return what the balls change by, and U, of a change of alpha and of the unknowns."""
        E, sizes = self.parts
        z = x[len(x) - len(sizes) :]
        U = self.balls.dual_vectors(alpha) + self.missing
        R = torch.einsum("q,qab->ab", z, E)
        T = terms.of_ball - torch.einsum("q,qab->ab", z / sizes, E)
        return BallPoint(U, torch.zeros_like(self.point.t), symmetric(R), symmetric(T)), U


class EntryBall(BallOfClasses):
    """T = (w - W, w + W) and R entry by entry: the other matrix is R_0 - R_1, and K diagonal.

    w and u = R_0 + R_1 shall lie on the curve u = (w / t)^(p - 1). A step aims at its tangent where
    the curve is below both: at (t y, v), of which one is the iterate's.
    """

    def prepare(self) -> None:
        """Set the other matrix and K."""
        p, ratio = self.balls.exponent, self.R / self.T
        self.w, self.u = 0.5 * self.T.sum(0), self.R.sum(0)
        self.other, self.Y = self.R[0] - self.R[1], torch.zeros_like(self.W)
        self.y = torch.minimum(self.w / self.t, self.u ** (1.0 / (p - 1.0)))
        self.v = torch.minimum(self.u, (self.w / self.t) ** (p - 1.0))
        self.slope = (p - 1.0) * self.v / (self.t * self.y)
        both, across = ratio.sum(0), 4.0 * ratio.prod(0)
        # Of w, once R is eliminated; what w follows t by, and R_0 - R_1 and u each other's part.
        self.curvature, self.lean = self.slope + both, ratio[0] - ratio[1]
        self.follow = self.y * self.slope / self.curvature
        self.k = (both * self.slope + across) / self.curvature
        self.pull, self.tau = self.lean * self.follow, self.balls.pool(self.y * self.follow * both)
        # Of t, once U is eliminated.
        self.eps = self.balls.pool(self.y * self.follow * across / self.k)

    def along(self, U: Tensor) -> Tensor:
        """K U."""
        return self.k * U

    def stiffness(self) -> Tensor:
        """K, diagonal, for U in C order: (r F,)."""
        return self.k.reshape(-1)

    def in_rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K^-1."""
        rows = self.balls.data.rows
        k = self.balls.basis.diagonal()[:, None] ** 2 / self.k

        def of_class(c: int, touching: Touching) -> Tensor:
            at, sign = touching.at, touching.sign
            X = rows.X[touching.samples] * k[c].sqrt()
            return (X @ X.T)[at[:, None], at] * (sign[:, None] * sign)

        A = rows.over_classes(of_class, k.new_zeros(len(rows), len(rows)))
        return A, A[:, :0], self.eps

    def compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of (r, F)."""
        return pull / self.k

    def terms(self, mu: float, predictor: Direction | None, weight: float) -> Terms:
        """Right-hand sides of a step to mu."""
        at, p = mu - self.R * self.T, self.balls.exponent
        if predictor is not None:
            at = at - weight * predictor.change.R * predictor.change.T
        fixed, away = at / self.T, self.slope * (self.w - self.t * self.y)
        of_w = fixed.sum(0) + (self.u - self.v) - away
        missing = 1.0 - self.balls.pool(self.y * self.v)
        of_t = self.balls.pool(self.follow * of_w + self.y * away) - (1.0 - 1.0 / p) * missing
        w = of_w / self.curvature
        return Terms(fixed[0] - fixed[1] - self.lean * w, of_t, torch.stack([w, w]), fixed)

    def change(self, terms: Terms, U: Tensor, dt: Tensor) -> BallPoint:
        """Return what the balls change by."""
        w = self.follow * self.balls.spread(dt) + self.lean / self.curvature * U
        T = terms.slack + torch.stack([w - U, w + U])
        return BallPoint(U, dt, terms.fixed - self.R / self.T * T, T)


def symmetric(A: Tensor) -> Tensor:
    """Return the symmetric part."""
    return 0.5 * (A + A.T)


def relative_eigenvalues(A: Tensor, B: Tensor) -> Tensor:
    """Return the eigenvalues of A^-1 B, ascending, of a positive definite A and a symmetric B."""
    L = cholesky(A)
    half = torch.linalg.solve_triangular(L, B, upper=False)
    return torch.linalg.eigvalsh(symmetric(torch.linalg.solve_triangular(L, half.T, upper=False)))


def cholesky(A: Tensor) -> Tensor:
    """Lower factor of a symmetric matrix that is kept; see `factor`."""
    return factor(lambda: A.clone().T)


def factor(matrix: Callable[[], Tensor]) -> Tensor:
    """Return the lower factor of a matrix by columns, made anew for each trial, in its place.

    Raises
    ------
    Breakdown
        Not positive definite even with a little more on the diagonal.
    """
    for size in RIDGES:
        A = matrix()
        if size:
            A.diagonal().mul_(1.0 + size)
        info = torch.empty((), dtype=torch.int32, device=A.device)
        torch.linalg.cholesky_ex(A, out=(A, info))
        if not info:
            return A
    raise Breakdown
