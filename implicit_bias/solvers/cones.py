r"""The cones of norms along the central path: slack, multiplier, and how they change together.

A norm constrains a matrix W by a cone with the radius t. The multiplier R of its slack T makes the
conjugate matrix of W: zeta where W is V, and V where W is zeta.

==========  =======  =======================  ===================================================
cone        W, t     slack T                  conjugate, and the equation of a free t
==========  =======  =======================  ===================================================
Euclidean   V, 1     1/2 - ||W_g||^2 / 2      R_g W_g
groups
nuclear     V, 1     I - W W', order r        R W
spectral    zeta, t  t I - W W' / t, order r  R W / t;  tr R (I + W W' / t^2) = 2
l_p         zeta, t  w - W and w + W, entry   R_0 - R_1;  u = R_0 + R_1 = (w / t)^(p - 1), and the
                     by entry                 sum of u w is t
==========  =======  =======================  ===================================================

Under l_p each entry of zeta has a radius w_j of its own, and ||w||_p = t; a sum of l_p over groups
has a t for each group. A sum of nuclear norms over G groups of gates has a cone for each group.
Their W are put below each other, (G r, F), each with 0 in the columns of the others: then W W', R,
T and S are block diagonal, (G r, G r), and all equations hold as they stand.

======  ========  ==========================================================================
W, V    (r, F)    in class coordinates: r = K - 1 orthonormal ones of the sum-free vectors, or the
                  K classes themselves for entries
R, T    (r, r)    multiplier and slack, positive definite; (G,) for groups; (2, r, F) for entries,
                  of W <= w and of W >= -w
S       (r, r)    Nesterov and Todd's scaling, S T S = R
Y       (r, F)    W / t; 0 for entries
U       (r, F)    dW - Y dt, the change of W at a fixed t
======  ========  ==========================================================================

With U the conjugate changes by

        K U - k_t dt,       k_t = S (I - Y Y') S Y,     K U = R U / t + S (U Y' + Y U') S Y     (K)

and the equation of t by k_tt dt - <k_t, U>. K is diagonal for entries.

A cone object belongs to one scaled problem. `Cone.update` sets what it says of an iterate, and
`Cone.scale` what a Newton system needs beside that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.norms import Spectral, SumOverGroups, entries_of, nuclear_groups
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Constraints
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.iteration import Breakdown, Point
from implicit_bias.solvers.scaling import TINY, Layout, ScaledProblem, ScaledRows, Touching

# A point that is moved into the interior has norms of at most this share of the radius.
WARM_SHARE = 0.98


@dataclass(frozen=True, eq=False)
class ConePoint(Point):
    """The variables of a cone, or a direction of them.

    t has length 0 where the radius is 1, and W where it is V itself (Euclidean groups in the rows).
    """

    W: Tensor
    t: Tensor
    R: Tensor
    T: Tensor


@dataclass(frozen=True, eq=False)
class Iterate(ConePoint):
    """An iterate of the interior point; see the table of symbols in `interior_point`.

    w and xi have length 0 with the hard margin, and beta without an intercept.
    """

    alpha: Tensor
    s: Tensor
    w: Tensor
    xi: Tensor
    beta: Tensor

    @property
    def order(self) -> int:
        """Count the complementary products of the cone."""
        if self.R.ndim == 2:
            return len(self.R)
        return self.R.numel()

    def complementarity(self) -> float:
        """Mean of the complementary products, mu: of their eigenvalues where they are matrices."""
        total = self.alpha @ self.s + self.w @ self.xi + (self.R * self.T).sum()
        return float(total) / (self.alpha.numel() + self.w.numel() + self.order)

    def reach(self, step: Iterate) -> float:
        """Longest step, at most 1, that keeps all variables positive (definite).

        One step for all variables: the conjugate is bilinear, and unequal steps would undo the
        progress of its residual.
        """
        rates = []
        for name in ("alpha", "s", "w", "xi", "t", "R", "T"):
            value, change = getattr(self, name), getattr(step, name)
            if not value.numel():
                continue
            if value.ndim == 2:
                rates.append(relative_eigenvalues(value, change))
            else:
                rates.append((change / value).reshape(-1))
        least = float(torch.cat(rates).min())
        if not math.isfinite(least):
            raise Breakdown
        return 1.0 / max(1.0, -least)

    def to(self, dtype: torch.dtype) -> Iterate:
        """Return it in another precision."""
        return Iterate(**{name: x.to(dtype) for name, x in vars(self).items()})


@dataclass(frozen=True, eq=False)
class Direction(Iterate):
    """A direction; ``U`` is the change of W less Y dt, and empty for groups in the rows."""

    U: Tensor


# --- the methods of a cone -----------------------------------------------------------------------


class Cone(ABC):
    """The cone of a norm, and what it says of the present iterate.

    Attributes
    ----------
    scaled : ScaledProblem
        The problem.
    has_W : bool
        Whether W is a variable beside alpha.
    margins : Tensor of shape (P,)
        Those of zeta at the iterate, without the offset.
    norm_of_zeta, norm_of_V : float
        Omega(zeta) and Omega_*(V) at the iterate.
    """

    scaled: ScaledProblem
    has_W: ClassVar[bool] = True
    point: Iterate
    margins: Tensor
    norm_of_zeta: float
    norm_of_V: float

    @staticmethod
    @abstractmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return the layout of a problem's rows that this cone takes."""

    @abstractmethod
    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V = Phi' alpha, in the shape of W."""

    @abstractmethod
    def norm(self, primal: Tensor) -> float:
        """Omega of zeta, or of the group scales."""

    @abstractmethod
    def dual_norm(self, V: Tensor) -> float:
        """Omega_* of V."""

    @abstractmethod
    def order_at(self, primal: Tensor) -> int:
        """Count the complementary products."""

    # First points

    @abstractmethod
    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Return a point of this V, inside the cone, with a norm of about this total."""

    def centred_point(self, V: Tensor, mu: float) -> ConePoint | None:
        """Return a point of equal products mu, near V but inside the cone; None without a W."""
        return None

    @abstractmethod
    def primal_of(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """Return zeta, or the group scales, of a start, and its margins without the offset."""

    @abstractmethod
    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near what a start has, of complementary products mu at least."""

    # At an iterate

    @abstractmethod
    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate, of which V is Phi' alpha: set margins, norms and residuals."""

    @abstractmethod
    def primal(self) -> tuple[Tensor, Tensor]:
        """Return V and d of `ScaledProblem.coef` at the iterate."""

    def scale(self) -> None:  # noqa: B027 - some cones need nothing more
        """Compute the scaling of the iterate, which its Newton systems share."""

    def moved(self, point: Iterate, step: Iterate, length: float) -> Iterate:
        """Return the point at this length of a step, or of less, where it keeps all equations."""
        return point.moved(step, length)


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

    def apply(self, x: Tensor) -> Tensor:
        """Phi x, (..., P), of x (..., r F)."""
        return self.rows.apply(self.basis @ x.reshape(*x.shape[:-1], self.basis.shape[1], -1))

    def adjoint(self, alpha: Tensor) -> Tensor:
        """Phi' alpha, (..., r F), of alpha (..., P)."""
        return (self.basis.T @ self.rows.adjoint(alpha)).flatten(-2)

    def normal_matrix(self, h: Tensor, loose: Tensor | None, *, coarse: bool) -> Tensor:
        """Phi' D^-1 Phi, (r F, r F), see `ScaledRows.normal_matrix`."""
        return self.rows.normal_matrix(h, loose, self.basis, coarse)


@dataclass(frozen=True, eq=False)
class ConeMatrix:
    """The cone's matrix of the unknowns of a system in the features: n of zeta, q of its own.

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
        n = len(self.inner)
        size = len(self)
        if self.inner.ndim == 1:
            H.diagonal()[:n] += self.inner
        else:
            H[:n, :n] += self.inner
        H.diagonal()[n:size] += self.corner
        if self.border is not None:
            H[:n, n:size] += self.border.T

    def times(self, x: Tensor) -> Tensor:
        """Multiply the unknowns, (n + q,)."""
        of_zeta = x[: len(self.inner)]
        own = x[len(self.inner) :]
        if self.inner.ndim == 1:
            inner = self.inner * of_zeta
        else:
            inner = self.inner @ of_zeta
        corner = self.corner * own
        if self.border is not None:
            inner = inner + own @ self.border
            corner = corner + self.border @ of_zeta
        return torch.cat([inner, corner])


class FeatureCone(Cone):
    """A cone whose Newton system may be one in the features.

    The unknowns x are u, (n,), and q numbers a of the cone, such as radii or group scales. The
    margins change by Phi (u + directions' a).

    Attributes
    ----------
    coordinates : Coordinates
        Phi.
    """

    coordinates: Coordinates

    @abstractmethod
    def feature_matrix(self) -> tuple[ConeMatrix, Tensor]:
        """Return the cone's matrix of the unknowns, and the directions of zeta, (q, n)."""

    @abstractmethod
    def feature_terms(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, Any]:
        """Right-hand sides of a step to mu, with a share of the predictor's second-order terms.

        And what `feature_change` needs of them.
        """

    @abstractmethod
    def feature_change(self, kept: Any, alpha: Tensor, x: Tensor) -> tuple[ConePoint, Tensor]:
        """Return the change of the cone's variables, and U, of a change of alpha and of x."""


# --- Euclidean groups ----------------------------------------------------------------------------


class GroupCone(Cone):
    """A sum of Euclidean norms over groups, in the space of the rows: W is V itself.

    zeta_g = R_g V_g, with T_g = 1/2 - ||V_g||^2 / 2: the multipliers R are the group scales d.
    """

    has_W = False

    def __init__(self, scaled: ScaledProblem) -> None:
        self.scaled = scaled
        self.none = scaled.full(0, 0.0)

    @staticmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return that of the groups."""
        return Layout.of_groups(problem, rows)

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V of all groups, (K', M' + 1, D')."""
        return self.scaled.rows.dual_vectors(alpha)

    def norm(self, primal: Tensor) -> float:
        """Omega at the optimum, where ||V_g|| is 1 or R_g is 0."""
        return float(primal.sum())

    def dual_norm(self, V: Tensor) -> float:
        """Largest ||V_g||."""
        return float(self.inner(V, V).max().sqrt())

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group, (G,)."""
        return self.scaled.rows.inner(V, W)

    def order_at(self, primal: Tensor) -> int:
        """G."""
        return len(primal)

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Equal group scales."""
        n_groups = self.scaled.n_groups
        slack = 0.5 * (1.0 - self.inner(V, V))
        return ConePoint(self.none, self.none, self.scaled.full(n_groups, total / n_groups), slack)

    def primal_of(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """d, and margins of d_g V_g for the V of a start, its largest ||V_g|| 1."""
        d = self.scaled.scale * self.scaled.tensor(start.group_norms)
        return d, self.scaled.rows.group_products(V) @ (d / self.dual_norm(V))

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near group scales d."""
        slack = 0.5 * (1.0 - self.inner(V, V))
        return ConePoint(self.none, self.none, torch.maximum(primal, mu / slack), slack)

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        rows = self.scaled.rows
        self.point = point
        self.V = V
        self.products = rows.group_products(V)  # (P, G)
        squares = rows.inner(V, V)  # (G,)
        norms = squares.sqrt()
        self.margins = self.products @ point.R
        self.norm_of_zeta = float(torch.dot(point.R, norms))
        self.norm_of_V = float(norms.max())
        self.residual = 0.5 - point.T - 0.5 * squares

    def primal(self) -> tuple[Tensor, Tensor]:
        """V and d."""
        return self.V, self.point.R


class WrittenGroupCone(GroupCone, FeatureCone):
    r"""The same groups in the space of the features: W is (r, M', D'), a variable of its own.

    With a shared column of gates it is (r, M' + 1, D'). Of the classes r = K - 1 coordinates where
    all of them have the same groups, or else the classes themselves.

    zeta = A W of all groups together, A diagonal: d_g, and in the shared column the sum of all d_g
    times the group's part of it. With G_g, (n,), the entries of W in group g, times their part, it
    changes by A U + G dd, where U changes W and

        (T / d) dd - G' U = mu / d - T - (1/2 - T - ||W_g||^2 / 2)

    dd stays an unknown of the Newton system: eliminated, the rounding of U would enter it times
    d / T, which grows like 1 / mu.
    """

    has_W = True

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled)
        rows, groups = scaled.rows, scaled.rows.layout
        n_classes = len(groups.columns)
        basis = np.eye(n_classes)
        if n_classes > 1 and (groups.columns == groups.columns[0]).all():
            basis = sum_free_basis(n_classes)
        self.members = groups.members[: basis.shape[1]]  # (r, M' + 1, G)
        self.n_gates = rows.Z.shape[1]
        if not groups.share.any():  # no group has a part in the shared column
            self.n_gates -= 1
            self.members = self.members[:, :-1]
        self.shape = basis.shape[1], self.n_gates, rows.X.shape[1]
        features = rows.Z[:, : self.n_gates, None] * rows.X[:, None, :]
        constant = rows.Z.new_ones(len(rows.Z), 1)
        written = ScaledRows(features.flatten(1), constant, groups, rows.pairs)
        self.coordinates = Coordinates(written, scaled.tensor(basis))

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V in coordinates, (r, M', D')."""
        return self.coordinates.adjoint(alpha).reshape(self.shape)

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group, (G,)."""
        return torch.einsum("rm,rmg->g", (V * W).sum(2), self.members)

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Equal group scales."""
        return replace(super().inner_point(V, total), W=V)

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """V, its norm at most 1/2, and what equal products make of the group scales."""
        W = V * min(1.0, 0.5 / max(self.dual_norm(V), TINY))
        T = 0.5 * (1.0 - self.inner(W, W))
        return ConePoint(W, self.none, mu / T, T)

    def primal_of(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """d, and margins of d_g V_g for the V of a start, its largest ||V_g|| 1."""
        d = self.scaled.scale * self.scaled.tensor(start.group_norms)
        zeta = (self.members @ d)[..., None] * V
        return d, self.coordinates.apply(zeta.reshape(-1)) / self.dual_norm(V)

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near group scales d."""
        return replace(super().warm_point(V, primal, mu), W=V)

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        W = point.W
        self.point = point
        self.G = (W[..., None] * self.members[:, :, None]).flatten(0, 2)
        self.A = (self.members @ point.R)[..., None].expand_as(V)
        squares = self.G.T @ W.reshape(-1)  # (G,)
        self.margins = self.coordinates.apply((self.A * W).reshape(-1))
        self.norm_of_zeta = float(point.R @ squares.sqrt())
        self.norm_of_V = self.dual_norm(V)
        self.residual = 0.5 - point.T - 0.5 * squares
        self.missing = V - W

    def primal(self) -> tuple[Tensor, Tensor]:
        """V of the classes and of all rotated gates, (K', M' + 1, D'), and d."""
        V = torch.tensordot(self.coordinates.basis, self.point.W, 1)
        room = self.scaled.rows.Z.shape[1] - self.n_gates
        return torch.nn.functional.pad(V, (0, 0, 0, room)), self.point.R

    def feature_matrix(self) -> tuple[ConeMatrix, Tensor]:
        """Return the diagonal matrix of A U and dd, and G as directions of zeta."""
        return ConeMatrix(1.0 / self.A.reshape(-1), self.point.T / self.point.R), self.G.T

    def feature_terms(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, Tensor]:
        """Right-hand sides of a step to mu; what R T must change by is kept."""
        d, T = self.point.R, self.point.T
        products = mu - d * T
        residual = self.residual
        second = torch.zeros_like(self.point.W)
        if predictor is not None:
            dV = predictor.U
            products = products - weight * predictor.R * predictor.T
            residual = residual - 0.5 * weight * self.inner(dV, dV)
            second = weight * (self.members @ predictor.R)[..., None] * dV
        of_zeta = (self.missing + second / self.A).reshape(-1)
        of_d = products / d - residual + self.G.T @ self.missing.reshape(-1)
        return torch.cat([of_zeta, of_d]), products

    def feature_change(self, kept: Any, alpha: Tensor, x: Tensor) -> tuple[ConePoint, Tensor]:
        """Return the change of W, of the group scales and of T."""
        U = self.dual_vectors(alpha) + self.missing
        d = x[self.point.W.numel() :]
        T = (kept - self.point.T * d) / self.point.R
        return ConePoint(U, self.none, d, T), U


# --- matrices of the classes ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ConeTerms:
    """Right-hand sides of a step: what variables change by where U and dt are 0.

    Attributes
    ----------
    conjugate : Tensor
        Of the conjugate of W.
    radius : Tensor or float
        Of the equation of t.
    R, T : Tensor
        Of multiplier and slack; T of the entries' own radii under l_p.
    """

    conjugate: Tensor
    radius: Tensor | float
    R: Tensor
    T: Tensor


class ClassCone(FeatureCone):
    """A cone of the matrix of all classes' coefficients: entries, or singular values.

    Attributes
    ----------
    shape : tuple of int
        (r, F) of zeta.
    Y, conjugate : Tensor
        Those of the iterate; see the module's head.
    missing : Tensor
        What V lacks to be W, or to be the conjugate.
    """

    shape: tuple[int, int]
    Y: Tensor
    conjugate: Tensor
    missing: Tensor

    def __init__(self, scaled: ScaledProblem, basis: Array) -> None:
        norm = scaled.layout.problem.norm
        self.scaled = scaled
        self.part_norm = norm.norm if isinstance(norm, SumOverGroups) else norm
        self.coordinates = Coordinates(scaled.rows, scaled.tensor(basis))
        self.basis = self.coordinates.basis  # from coordinates to classes, (K', r)
        self.into_coordinates = scaled.tensor(basis.T)
        self.shape = (basis.shape[1], scaled.rows.X.shape[1])

    @staticmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return that of features; rotations that merge constant ones leave these norms alone."""
        invariant = nuclear_groups(problem.norm) is None and entries_of(problem.norm) is None
        return Layout.of_features(problem, rows, merge=invariant)

    @abstractmethod
    def parts(self, A: Tensor) -> list[Tensor]:
        """Return the columns of each group's part of zeta or V."""

    def stacked(self, V: Tensor) -> Tensor:
        """Return (r, F) in the shape of W."""
        return V

    def unstacked(self, W: Tensor) -> Tensor:
        """Return (r, F) of what has the shape of W."""
        return W

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """Phi' alpha, in the shape of W."""
        return self.stacked(self.basis.T @ self.scaled.rows.adjoint(alpha))

    def apply(self, zeta: Tensor) -> Tensor:
        """Phi zeta, (P,)."""
        return self.scaled.rows.apply(self.basis @ self.unstacked(zeta))

    def norm(self, primal: Tensor) -> float:
        """Omega of zeta."""
        norm: Any = self.part_norm  # which takes tensors as arrays
        return sum(norm.value(part) for part in self.parts(primal))

    def dual_norm(self, V: Tensor) -> float:
        """Omega_* of V."""
        norm: Any = self.part_norm
        return max(norm.dual(part) for part in self.parts(V))

    def primal_of(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """Zeta of a start, and its margins."""
        zeta = self.stacked(self.into_coordinates @ self.scaled.start_coef(start))
        return zeta, self.apply(zeta)

    def order_at(self, primal: Tensor) -> int:
        """Count the eigenvalues of the slack."""
        return len(primal)

    @abstractmethod
    def zeta(self) -> Tensor:
        """W or its conjugate."""

    def set_margins(self, zeta: Tensor, V: Tensor) -> None:
        """Set margins and norms."""
        self.margins = self.apply(zeta)
        self.norm_of_zeta = self.norm(zeta)
        self.norm_of_V = self.dual_norm(V)

    def primal(self) -> tuple[Tensor, Tensor]:
        """Zeta of the classes, (K', 1, F), and a scale of 1."""
        of_classes = (self.basis @ self.unstacked(self.zeta()))[:, None]
        return of_classes, of_classes.new_ones(1)

    # The Newton system in the rows

    @cached_property
    def labels(self) -> Tensor:
        """The label vectors in coordinates, (P, r)."""
        return self.scaled.rows.labels @ self.basis

    @abstractmethod
    def row_matrix(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return K, or K^-1 with a free radius, as rows see it: a matrix, a border and its slack.

        Phi K Phi' is the matrix (P, P), of which the upper triangle counts, plus border (P, q)
        diag(1 / slack) border'. With a free radius Phi K^-1 Phi' is the matrix, the border is
        `FreeRadiusCone.radius_border`, and the slack is that of t.
        """

    @abstractmethod
    def times_K(self, U: Tensor) -> Tensor:
        """K U."""

    @abstractmethod
    def terms(self, mu: float, predictor: Direction | None, weight: float) -> ConeTerms:
        """Right-hand sides of a step to mu, with a share of the predictor's second-order terms."""


class FreeRadiusCone(ClassCone):
    """A cone around zeta, of which the radius t is a variable: W is zeta.

    Attributes
    ----------
    k_t : Tensor of shape (r, F)
        The conjugate changes by K U - k_t dt.
    k_tt : Tensor
        Curvature of each radius.
    """

    k_t: Tensor
    k_tt: Tensor

    def zeta(self) -> Tensor:
        """W."""
        return self.point.W

    @abstractmethod
    def of_columns(self, t: Tensor) -> Tensor | float:
        """Return the radius of each column, (F,), or the only one."""

    @abstractmethod
    def of_radii(self, values: Tensor) -> Tensor:
        """Sum (r, F) over the entries of each radius."""

    @abstractmethod
    def by_radius(self, values: Tensor) -> Tensor:
        """Return (r, F) for each radius, 0 in the columns of the others, in a stack."""

    @abstractmethod
    def matrix_K(self) -> Tensor:
        """K, for U in C order: (r F, r F), or (r F,) where it is diagonal."""

    @abstractmethod
    def solve_K(self, values: Tensor) -> Tensor:
        """K^-1 of (r, F), after `row_matrix`."""

    def radius_border(self) -> Tensor:
        """Phi (K^-1 k_t + Y) of each radius, (P, q)."""
        parts = self.by_radius(self.solve_K(self.k_t) + self.Y)
        return torch.stack([self.apply(part) for part in parts], 1)

    @abstractmethod
    def change(self, terms: ConeTerms, U: Tensor, dt: Tensor) -> ConePoint:
        """Return what the cone's variables change by."""

    def feature_matrix(self) -> tuple[ConeMatrix, Tensor]:
        """Return the matrix of U and dt, and Y as directions of zeta."""
        border = self.by_radius(self.k_t).flatten(1)
        return ConeMatrix(self.matrix_K(), self.k_tt, -border), self.by_radius(self.Y).flatten(1)

    def feature_terms(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, ConeTerms]:
        """Right-hand sides of a step to mu; the terms are kept."""
        terms = self.terms(mu, predictor, weight)
        of_t = terms.radius + self.of_radii(self.missing * self.Y)
        return torch.cat([(self.missing - terms.conjugate).reshape(-1), of_t]), terms

    def feature_change(self, kept: Any, alpha: Tensor, x: Tensor) -> tuple[ConePoint, Tensor]:
        """Return the change of the cone's variables, and U."""
        n = len(x) - len(self.point.t)
        U = x[:n].reshape(self.shape)
        return self.change(kept, U, x[n:]), U


class SpectralCone(FreeRadiusCone):
    """The spectral norm of zeta: T = t I - W W' / t and R of order r."""

    # A slack by its tangent is replaced by the true one unless they agree to this share.
    straight: ClassVar[float] = 1e-3
    # Steps are shortened, by this factor and so many times, until the true slack is at least this
    # share of that by the tangent.
    shorter: ClassVar[float] = 0.8
    shortenings: ClassVar[int] = 12
    least_slack: ClassVar[float] = 0.1

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled, sum_free_basis(scaled.layout.rows.width))
        self.eye = torch.eye(self.shape[0]).to(self.basis)

    def parts(self, A: Tensor) -> list[Tensor]:
        """All columns: there is one radius."""
        return [A]

    def of_columns(self, t: Tensor) -> float:
        """Return the only radius."""
        return float(t)

    def of_radii(self, values: Tensor) -> Tensor:
        """Sum all entries."""
        return values.sum()[None]

    def by_radius(self, values: Tensor) -> Tensor:
        """Return all columns."""
        return values[None]

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Return zeta along V, half way to the boundary, and equal multipliers."""
        largest = self.norm(V)
        W = V * (0.5 * total / largest if largest > 0 else 0.0)
        t = total * self.scaled.full(1, 1.0)
        R = 2.0 * self.eye / (len(self.eye) + float((W * W).sum() / t**2))
        return ConePoint(W, t, R, t * self.eye - W @ W.T / t)

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """Return zeta along V, and R and T of products mu."""
        return self.inner_point(V, 0.5 * mu * len(V))

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near zeta."""
        t = self.scaled.full(1, self.norm(primal) / WARM_SHARE)
        T = symmetric(t * self.eye - primal @ primal.T / t)
        size, turn = torch.linalg.eigh(V @ V.T)
        root = size.clamp(min=0.0).sqrt()
        root = root / root.sum()
        R = symmetric((turn * root) @ turn.T + mu * torch.linalg.inv(T))
        return ConePoint(primal, t, R, T)

    def moved(self, point: Iterate, step: Iterate, length: float) -> Iterate:
        """Return the point at this length of a step, where T and tr R keep their equations.

        Far from the central path, T by its tangent would let t fall below what W asks for.
        """
        for _ in range(self.shortenings):
            found = point.moved(step, length)
            square = symmetric(found.W @ found.W.T / found.t**2)
            slack = found.t * (self.eye - square)
            share = relative_eigenvalues(found.T, slack)
            if float((share - 1.0).abs().max()) < self.straight:
                return found  # rounding would be all of the change
            if float(share[0]) >= self.least_slack:
                R = 2.0 * found.R / (found.R * (self.eye + square)).sum()
                return replace(found, R=R, T=slack)
            length *= self.shorter
        return point.moved(step, length)

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        self.point = point
        self.Y = point.W / float(point.t)
        self.conjugate = point.R @ self.Y
        self.missing = V - self.conjugate
        self.set_margins(point.W, V)

    def scale(self) -> None:
        """Compute S, and with it the derivatives by t."""
        R = self.point.R
        self.S = scaling(R, self.point.T)
        self.SY = self.S @ self.Y
        self.rest = symmetric(torch.eye(len(R)).to(R) - self.Y @ self.Y.T)  # I - Y Y'
        self.R_by_t = symmetric(self.S @ self.rest @ self.S)
        self.k_t = self.R_by_t @ self.Y
        self.k_tt = 0.5 * (self.R_by_t * self.rest).sum()[None]

    def times_K(self, U: Tensor) -> Tensor:
        """K U."""
        return self.point.R @ U / float(self.point.t) + self.S @ sides(U, self.Y) @ self.SY

    def matrix_K(self) -> Tensor:
        """K, for U in C order: (r F, r F)."""
        return self._matrix_K(self.Y)

    def _matrix_K(self, Y: Tensor) -> Tensor:
        """K of U (r, q), for a Y in as many columns: (r q, r q)."""
        r, q = Y.shape
        SY = self.S @ Y
        whole = torch.einsum("ij,fg->ifjg", self.S, Y.T @ SY)
        whole = whole + torch.einsum("ig,jf->ifjg", SY, SY)
        whole = whole.reshape(r * q, r * q)
        blocks = torch.einsum("ifjf->ijf", whole.view(r, q, r, q))
        blocks.add_((self.point.R / float(self.point.t))[:, :, None])
        return symmetric(whole)

    def row_matrix(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K^-1.

        K differs from R / t only in the row space Q of Y, (F, q): K^-1 is the mask of t R^-1
        outside of it, and of rank r^2 within.
        """
        rows = self.scaled.rows
        labels = self.labels
        self.Q = torch.linalg.svd(self.Y, full_matrices=False)[2].T
        self.K_inside = cholesky(self._matrix_K(self.Y @ self.Q))
        self.K_outside = float(self.point.t) * torch.cholesky_inverse(cholesky(self.point.R))
        inside = rows.X @ self.Q
        gram = self.gram - inside @ inside.T
        of_rows = inside[rows.pairs.place]
        features = (labels[:, :, None] * of_rows[:, None, :]).reshape(len(labels), -1)
        half = torch.linalg.solve_triangular(self.K_inside, features.T, upper=False)
        A = rows.masked_by_labels([gram], [labels @ self.K_outside], labels)
        A.addmm_(half.T, half)
        slack = float(self.k_tt) - float((self.k_t * self.solve_K(self.k_t)).sum())
        return A, self.radius_border(), A.new_full((1,), max(slack, 0.0))

    @cached_property
    def gram(self) -> Tensor:
        """Inner products of the samples' inputs, (n, n)."""
        return self.scaled.rows.X @ self.scaled.rows.X.T

    def solve_K(self, values: Tensor) -> Tensor:
        """K^-1 of (r, F), after `row_matrix`."""
        inner = values @ self.Q
        solved = torch.cholesky_solve(inner.reshape(-1, 1), self.K_inside).reshape(inner.shape)
        return self.K_outside @ (values - inner @ self.Q.T) + solved @ self.Q.T

    def terms(self, mu: float, predictor: Direction | None, weight: float) -> ConeTerms:
        """Right-hand sides of a step to mu."""
        R, T = self.point.R, self.point.T
        t = float(self.point.t)
        slack = t * self.rest - T
        second = torch.zeros_like(self.Y)
        along = 0.0
        if predictor is not None:
            U = predictor.U
            slack = slack - weight * (U @ U.T) / t
            second = weight * (predictor.R @ U - R @ U * (predictor.t / t)) / t
            along = -0.5 * weight * float((R * (U @ U.T)).sum()) / t**2
        fixed = scaled_products(mu, R, T, self.S, slack)
        radius = 0.5 * float((R * (2.0 * self.eye - self.rest)).sum()) - 1.0
        radius += 0.5 * float((fixed * self.rest).sum()) - along
        return ConeTerms(fixed @ self.Y + second, radius, fixed, slack)

    def change(self, terms: ConeTerms, U: Tensor, dt: Tensor) -> ConePoint:
        """Return what the cone's variables change by."""
        both = sides(U, self.Y)
        R = terms.R - dt * self.R_by_t + self.S @ both @ self.S
        T = terms.T + dt * self.rest - both
        return ConePoint(U + self.Y * dt, dt, symmetric(R), symmetric(T))


class NuclearCone(ClassCone):
    """The nuclear norm of zeta, or of each group of gates: T = I - W W', and W is V.

    With S = sum of size_i q_i q_i' and an orthonormal basis E_ij of the symmetric matrices,
    E_ij ~ q_i q_j' + q_j q_i', zeta changes by R U + sum of z_ij E_ij W, z_ij entries of dR, and

        z_ij / (2 size_i size_j) - <E_ij W, U> = <mu R^-1 - T - slack, E_ij> / 2

    z stay unknowns of the Newton system in the features: eliminated, the rounding of U would enter
    them times size_i size_j, which grows like 1 / mu.
    """

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled, sum_free_basis(scaled.layout.rows.width))
        r, n_features = self.shape
        self.columns = columns_of_groups(scaled)  # of each group
        # Rows of each group in W, R, T and S.
        self.own = [slice(start, start + r) for start in range(0, len(self.columns) * r, r)]
        self.stacked_shape = (len(self.columns) * r, n_features)
        self.eye = torch.eye(self.stacked_shape[0]).to(self.basis)
        self.no_t = scaled.full(0, 0.0)

    def stacked(self, V: Tensor) -> Tensor:
        """Put the groups' parts of (r, F) below each other.

        Each has its own columns, and 0 in those of the others: the singular values of all are those
        of the whole matrix, and its products with itself are block diagonal.
        """
        if len(self.columns) == 1:
            return V
        found = V.new_zeros(self.stacked_shape)
        for own, columns in zip(self.own, self.columns, strict=True):
            found[own, columns] = V[:, columns]
        return found

    def unstacked(self, W: Tensor) -> Tensor:
        """Return (r, F) of what has the shape of W."""
        return W.reshape(len(self.columns), *self.shape).sum(0)

    def parts(self, A: Tensor) -> list[Tensor]:
        """Return the columns of each group."""
        whole = self.unstacked(A)
        return [whole[:, columns] for columns in self.columns]

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Return V and equal multipliers."""
        return ConePoint(V, self.no_t, total / len(self.eye) * self.eye, self.eye - V @ V.T)

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """V, its norm at most 1/2, and R and T of products mu."""
        W = V * min(1.0, 0.5 / max(self.dual_norm(V), TINY))
        T = self.eye - W @ W.T
        return ConePoint(W, self.no_t, symmetric(mu * torch.linalg.inv(T)), T)

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near zeta."""
        T = symmetric(self.eye - V @ V.T)
        size, turn = torch.linalg.eigh(primal @ primal.T)
        root = size.clamp(min=0.0).sqrt()
        R = symmetric((turn * root) @ turn.T + mu * torch.linalg.inv(T))
        return ConePoint(V, self.no_t, R, T)

    def zeta(self) -> Tensor:
        """R W."""
        return self.conjugate

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        self.point = point
        self.Y = point.W
        self.conjugate = point.R @ point.W
        self.missing = V - point.W
        self.set_margins(self.conjugate, V)

    def scale(self) -> None:
        """Compute S."""
        W = self.point.W
        self.S = scaling(self.point.R, self.point.T)
        self.SW = self.S @ W
        self.rest = symmetric(self.eye - W @ W.T)  # what T is to be

    def times_K(self, U: Tensor) -> Tensor:
        """K U."""
        return self.point.R @ U + self.S @ sides(U, self.point.W) @ self.SW

    def row_matrix(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K: the mask of R, and the borders of all groups."""
        rows = self.scaled.rows
        labels = self.labels
        borders, slacks, weighted = [], [], []
        for own in self.own:
            size, turn = torch.linalg.eigh(self.S[own, own])
            i, j = torch.triu_indices(len(size), len(size)).to(size.device)
            twice = torch.where(i == j, 1.0, 2.0**0.5).to(size)
            b = labels @ turn
            v = rows.products(self.point.W[own]) @ turn
            borders.append((b[:, i] * v[:, j] + b[:, j] * v[:, i]) * twice)  # (P, r (r + 1) / 2)
            slacks.append(2.0 / (size[i] * size[j]))
            weighted.append(labels @ self.point.R[own, own])
        Q = rows.masked_by_labels(self.grams, weighted, labels)
        return Q, torch.hstack(borders), torch.cat(slacks)

    @cached_property
    def grams(self) -> list[Tensor]:
        """Inner products of the samples' inputs in each group, (n, n)."""
        parts = [self.scaled.rows.X[:, columns] for columns in self.columns]
        return [part @ part.T for part in parts]

    def terms(self, mu: float, predictor: Direction | None, weight: float) -> ConeTerms:
        """Right-hand sides of a step to mu."""
        slack, second = self._second_order(predictor, weight)
        fixed = scaled_products(mu, self.point.R, self.point.T, self.S, slack)
        return ConeTerms(fixed @ self.point.W + second, 0.0, fixed, slack)

    def _second_order(self, predictor: Direction | None, weight: float) -> tuple[Tensor, Tensor]:
        """Return what T lacks to be I - W W', and the conjugate's own second-order term."""
        slack = self.rest - self.point.T
        if predictor is None:
            return slack, torch.zeros_like(self.point.W)
        U = predictor.U
        return slack - weight * (U @ U.T), weight * (predictor.R @ U)

    def change(self, terms: ConeTerms, U: Tensor) -> ConePoint:
        """Return what the cone's variables change by, in the rows."""
        both = sides(U, self.point.W)
        R = symmetric(terms.R + self.S @ both @ self.S)
        return ConePoint(U, self.no_t, R, symmetric(terms.T - both))

    def feature_matrix(self) -> tuple[ConeMatrix, Tensor]:
        """Return the matrix of R U and z, and the directions E_ij W."""
        bases, sizes = [], []
        for own in self.own:
            size, turn = torch.linalg.eigh(self.S[own, own])
            i, j = torch.triu_indices(len(size), len(size)).to(size.device)
            outer = torch.einsum("ai,bi->iab", turn[:, i], turn[:, j])
            share = torch.where(i == j, 0.5, 0.5**0.5).to(size)
            basis = size.new_zeros(len(i), len(self.eye), len(self.eye))
            basis[:, own, own] = (outer + outer.mT) * share[:, None, None]
            bases.append(basis)
            sizes.append(size[i] * size[j])
        self.E = torch.cat(bases)  # (q, G r, G r)
        self.sizes = torch.cat(sizes)  # size_i size_j, (q,)
        self.R_inverse = torch.cholesky_inverse(cholesky(self.point.R))
        r, n_features = self.shape
        of_U = self.R_inverse.new_zeros(r, n_features, r, n_features)
        for own, columns in zip(self.own, self.columns, strict=True):
            of_U[:, columns, :, columns] = self.R_inverse[own, own]
        matrix = ConeMatrix(of_U.reshape(r * n_features, r * n_features), 0.5 / self.sizes)
        directions = [self.unstacked(direction).reshape(-1) for direction in self.E @ self.point.W]
        return matrix, torch.stack(directions)

    def feature_terms(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, Tensor]:
        """Right-hand sides of a step to mu; what T lacks to be mu R^-1 is kept."""
        slack, second = self._second_order(predictor, weight)
        lacking = mu * self.R_inverse - self.point.T
        of_z = 0.5 * torch.einsum("qab,ab->q", self.E, lacking - slack)
        of_z = of_z + torch.einsum("qab,ab->q", self.E, self.missing @ self.point.W.T)
        of_U = self.unstacked(self.missing + self.R_inverse @ second).reshape(-1)
        return torch.cat([of_U, of_z]), lacking

    def feature_change(self, kept: Any, alpha: Tensor, x: Tensor) -> tuple[ConePoint, Tensor]:
        """Return the change of W, R and T."""
        z = x[len(x) - len(self.sizes) :]
        U = self.dual_vectors(alpha) + self.missing
        R = torch.einsum("q,qab->ab", z, self.E)
        T = kept - torch.einsum("q,qab->ab", z / self.sizes, self.E)
        return ConePoint(U, self.no_t, symmetric(R), symmetric(T)), U


class EntryCone(FreeRadiusCone):
    """l_p of the entries, or its sum over groups: T = (w - W, w + W) and R entry by entry.

    w and u = R_0 + R_1 shall lie on the curve u = (w / t)^(p - 1). A step aims at its tangent where
    the curve is below both: at (t y, v), of which one is the iterate's.
    """

    # l1 and l_inf are taken for l_p with these p: up to 1e-12 of log n they are the same.
    nearest_to_1: ClassVar[float] = 1.0 + 1e-12
    nearest_to_inf: ClassVar[float] = 1e12
    # Under l1 the first norm is larger by this factor.
    sparser: ClassVar[float] = 10.0
    # Of the interval of a radius that a warm start looks for.
    halvings: ClassVar[int] = 30

    def __init__(self, scaled: ScaledProblem) -> None:
        super().__init__(scaled, np.eye(scaled.layout.rows.width))
        norm = scaled.layout.problem.norm
        entries = entries_of(norm)
        assert entries is not None
        self.exponent = min(max(entries.exponent, self.nearest_to_1), self.nearest_to_inf)
        self.columns = columns_of_groups(scaled)
        self.group = torch.zeros(self.shape[1], dtype=torch.int64, device=scaled.device)
        for g, columns in enumerate(self.columns):
            self.group[columns] = g

    def parts(self, A: Tensor) -> list[Tensor]:
        """Return the columns of each group."""
        return [A[:, columns] for columns in self.columns]

    def order_at(self, primal: Tensor) -> int:
        """Count both slacks of each entry."""
        return 2 * primal.numel()

    def of_columns(self, t: Tensor) -> Tensor:
        """Return the radius of each column, (F,)."""
        return t[self.group]

    def of_radii(self, values: Tensor) -> Tensor:
        """Sum (r, F) over the entries of each radius."""
        if len(self.columns) == 1:
            return values.sum()[None]
        return values.new_zeros(len(self.columns)).index_add_(0, self.group, values.sum(0))

    def by_radius(self, values: Tensor) -> Tensor:
        """Return (r, F) for each radius, 0 in the columns of the others, in a stack."""
        return torch.stack([values * (self.group == g) for g in range(len(self.columns))])

    def inner_point(self, V: Tensor, total: float) -> ConePoint:
        """Return w and u of equal entries in each group, and zeta along V."""
        n = self.of_radii(torch.ones_like(V))
        p = self.exponent
        # Radii of sparse entries are far from equal ones: more of these are far enough inside.
        t = total * self.sparser ** max(2.0 / p - 1.0, 0.0) / V.numel() * n
        u = self.of_columns(n ** (1.0 / p - 1.0))
        w = self.of_columns(t * n ** (-1.0 / p))
        half = 0.5 * (V / u).clamp(-1.0, 1.0)
        both = torch.stack([1.0 + half, 1.0 - half])
        return ConePoint(w * half, t, 0.5 * u * both, w * both.flip(0))

    def centred_point(self, V: Tensor, mu: float) -> ConePoint:
        """Return zeta = 0, and R and T of products mu."""
        return self.inner_point(0.0 * V, 2.0 * mu * V.numel())

    def warm_point(self, V: Tensor, primal: Tensor, mu: float) -> ConePoint:
        """Return a point near zeta.

        The entries' radii w satisfy u = |V| + mu / (w - W) + mu / (w + W) on the curve, found by
        halving. Near its corner (w small at p near 1, u small at a large p) the iterate is to be
        beyond it: a tangent is taken where the curve is below.
        """
        norm: Any = self.part_norm
        norms = self.scaled.tensor(np.array([norm.value(part) for part in self.parts(primal)]))
        t = norms.clamp(min=(1.0 - WARM_SHARE) * float(norms.max())) / WARM_SHARE
        radius = self.of_columns(t)
        size = primal.abs()
        multiplier = V.abs()
        low = size
        high = (size + 2.0 * mu / (1.0 - multiplier)).clamp(min=radius)
        for _ in range(self.halvings):
            w = 0.5 * (low + high)
            u = multiplier + mu / (w - size) + mu / (w + size)
            below = (w / radius) ** (self.exponent - 1.0) < u
            low, high = torch.where(below, w, low), torch.where(below, high, w)
        w = low if self.exponent < 2.0 else high
        T = torch.stack([w - primal, w + primal])
        return ConePoint(primal, t, torch.stack([V, -V]).clamp(min=0.0) + mu / T, T)

    def update(self, point: Iterate, V: Tensor) -> None:
        """Move to an iterate."""
        self.point = point
        self.t = self.of_columns(point.t)
        self.w = 0.5 * point.T.sum(0)
        self.u = point.R.sum(0)
        self.Y = torch.zeros_like(point.W)
        self.conjugate = point.R[0] - point.R[1]
        self.missing = V - self.conjugate
        self.set_margins(point.W, V)

    def scale(self) -> None:
        """Compute K and the derivatives by t; w is eliminated."""
        p = self.exponent
        ratio = self.point.R / self.point.T
        self.y = torch.minimum(self.w / self.t, self.u ** (1.0 / (p - 1.0)))
        self.v = torch.minimum(self.u, (self.w / self.t) ** (p - 1.0))
        self.slope = (p - 1.0) * self.v / (self.t * self.y)  # of the curve
        both = ratio.sum(0)
        across = 4.0 * ratio.prod(0)
        self.curvature = self.slope + both  # of w, once R is eliminated
        self.lean = ratio[0] - ratio[1]  # what R_0 - R_1 and u have of each other
        self.w_by_t = self.y * self.slope / self.curvature
        self.K = (both * self.slope + across) / self.curvature
        self.k_t = self.lean * self.w_by_t
        self.k_tt = self.of_radii(self.y * self.w_by_t * both)
        # Of t, once U is eliminated.
        self.slack_of_t = self.of_radii(self.y * self.w_by_t * across / self.K)

    def times_K(self, U: Tensor) -> Tensor:
        """K U."""
        return self.K * U

    def matrix_K(self) -> Tensor:
        """K, diagonal, for U in C order: (r F,)."""
        return self.K.reshape(-1)

    def solve_K(self, values: Tensor) -> Tensor:
        """K^-1 of (r, F)."""
        return values / self.K

    def row_matrix(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what rows see of K^-1."""
        rows = self.scaled.rows
        weights = self.basis.diagonal()[:, None] ** 2 / self.K

        def of_class(c: int, touching: Touching) -> Tensor:
            at, sign = touching.at, touching.sign
            X = rows.X[touching.samples] * weights[c].sqrt()
            return (X @ X.T)[at[:, None], at] * (sign[:, None] * sign)

        A = rows.over_classes(of_class, weights.new_zeros(len(rows), len(rows)))
        return A, self.radius_border(), self.slack_of_t

    def terms(self, mu: float, predictor: Direction | None, weight: float) -> ConeTerms:
        """Right-hand sides of a step to mu."""
        R, T = self.point.R, self.point.T
        products = mu - R * T
        if predictor is not None:
            products = products - weight * predictor.R * predictor.T
        fixed = products / T
        away = self.slope * (self.w - self.t * self.y)
        of_w = fixed.sum(0) + (self.u - self.v) - away
        missing = 1.0 - self.of_radii(self.y * self.v)
        radius = self.of_radii(self.w_by_t * of_w + self.y * away)
        radius = radius - (1.0 - 1.0 / self.exponent) * missing
        w = of_w / self.curvature
        conjugate = fixed[0] - fixed[1] - self.lean * w
        return ConeTerms(conjugate, radius, fixed, torch.stack([w, w]))

    def change(self, terms: ConeTerms, U: Tensor, dt: Tensor) -> ConePoint:
        """Return what the cone's variables change by."""
        w = self.w_by_t * self.of_columns(dt) + self.lean / self.curvature * U
        T = terms.T + torch.stack([w - U, w + U])
        return ConePoint(U, dt, terms.R - self.point.R / self.point.T * T, T)


def class_cone(problem: MarginProblem) -> type[EntryCone | SpectralCone | NuclearCone]:
    """Return the cone of a norm that is no sum of Euclidean norms."""
    if entries_of(problem.norm) is not None:
        return EntryCone
    return SpectralCone if problem.norm == Spectral() else NuclearCone


# --- matrices ------------------------------------------------------------------------------------


def sum_free_basis(n_classes: int) -> Array:
    """Orthonormal coordinates of what sums to 0 over all classes, (K, K - 1)."""
    return np.asarray(scipy.linalg.helmert(n_classes).T)


def columns_of_groups(scaled: ScaledProblem) -> list[Tensor]:
    """Columns of the features in each group of a norm, in C order of gates and inputs."""
    problem = scaled.layout.problem
    norm = problem.norm
    if not isinstance(norm, SumOverGroups):
        return [torch.arange(scaled.rows.X.shape[1], device=scaled.device)]
    of_gates = norm.groups[:, None] if norm.axis == -2 else norm.groups
    group = np.broadcast_to(of_gates, problem.norm_shape[1:]).reshape(-1)
    return [scaled.index(np.flatnonzero(group == g)) for g in range(group.max() + 1)]


def scaling(R: Tensor, T: Tensor) -> Tensor:
    """Nesterov and Todd's S, S T S = R."""
    left, right = cholesky(R), cholesky(T)
    _, size, turn = torch.linalg.svd(right.T @ left)
    half = left @ turn.T / size.sqrt()
    return half @ half.T


def scaled_products(mu: float, R: Tensor, T: Tensor, S: Tensor, slack: Tensor) -> Tensor:
    """Return mu T^-1 - R - S slack S, what R changes by where U and dt are 0.

    Both halves of a step, of the conjugate and of R, must see the same matrix: S grows like
    mu^(-1/2), and S of an asymmetry in the last digit would be lost on one side only.
    """
    return symmetric(mu * torch.cholesky_inverse(cholesky(T)) - R - S @ slack @ S)


def sides(U: Tensor, Y: Tensor) -> Tensor:
    """U Y' + Y U'."""
    product = U @ Y.T
    return product + product.T


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


def factor(
    matrix: Callable[[], Tensor],
    ridges: tuple[float, ...] = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11),
) -> Tensor:
    """Return the lower factor of a matrix by columns, made anew for each trial, in its place.

    The diagonal may be raised by the shares ``ridges``, where rounding made a matrix indefinite.

    Raises
    ------
    Breakdown
        Not positive definite even with a little more on the diagonal.
    """
    for size in ridges:
        A = matrix()
        if size:
            A.diagonal().mul_(1.0 + size)
        info = torch.empty((), dtype=torch.int32, device=A.device)
        torch.linalg.cholesky_ex(A, out=(A, info))
        if not info:
            return A
    raise Breakdown
