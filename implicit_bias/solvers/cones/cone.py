r"""What the interior point asks of the cone of a norm, and the variables of its iterates.

A norm Omega bounds a matrix W by a radius t: its cone is {(W, t): slack T >= 0}. The multiplier of
the slack is R >= 0, and their products tend to 0 along the central path, R T = mu I. R makes of W
the conjugate matrix: zeta where W is V, and V where W is zeta.

==============  =======  ======================  =================================================
cone            W, t     slack T                 conjugate, and the equation of a free t
==============  =======  ======================  =================================================
`groups`        V, 1     1/2 - ||W_g||^2 / 2     R_g W_g
`nuclear`       V, 1     I - W W'                R W
`spectral`      zeta, t  t I - W W' / t          R W / t;  tr R (I + W W' / t^2) = 2
`entries`, l_p  zeta, t  rho - W and rho + W,    R_0 - R_1;  R_0 + R_1 = (rho / t)^(p - 1), and
                         entry by entry          the sum of (R_0 + R_1) rho is t
==============  =======  ======================  =================================================

A cone object belongs to one scaled problem. `Cone.update` sets what the cone says of an iterate,
and `Cone.scale` what a Newton system needs beside that. A `FeatureCone` gives the system in the
space of the features its part of the matrix and of the right-hand sides (`newton`).

======  ========  ==========================================================================
W, V    (r, F)    in class coordinates: r = K - 1 orthonormal ones of the sum-free vectors, or the
                  K classes themselves for entries
R, T    (r, r)    multiplier and slack, positive definite; (G,) for groups; (2, r, F) for entries,
                  of W <= rho and of W >= -rho
U       (r, F)    change of W at a fixed t
======  ========  ==========================================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Constraints
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.cones.matrices import relative_eigenvalues
from implicit_bias.solvers.iteration import Breakdown, Point
from implicit_bias.solvers.scaled_rows import ScaledRows
from implicit_bias.solvers.scaling import Layout, ScaledProblem


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
    def n_cone_products(self) -> int:
        """Count the complementary products of the cone."""
        # A matrix R has one for each eigenvalue, other R one for each entry.
        if self.R.ndim == 2:
            return len(self.R)
        return self.R.numel()

    def complementarity(self) -> float:
        """Mean of the complementary products, mu: of their eigenvalues where they are matrices."""
        # tr(R T) is the sum of the eigenvalues of the products, for matrices as for entries.
        total = self.alpha @ self.s + self.w @ self.xi + (self.R * self.T).sum()
        return float(total) / (self.alpha.numel() + self.w.numel() + self.n_cone_products)

    def step_to_boundary(self, step: Iterate) -> float:
        """Longest multiple of a step, at most 1, that keeps all variables positive (definite).

        One step for all variables: the conjugate is bilinear, and unequal steps would undo the
        progress of its residual.
        """
        rates = []  # relative changes, the least of which sets the step
        for name in ("alpha", "s", "w", "xi", "t", "R", "T"):
            value = getattr(self, name)
            change = getattr(step, name)
            if not value.numel():
                continue
            if value.ndim == 2:
                # A + l dA is definite as long as I + l A^-1 dA has positive eigenvalues.
                rates.append(relative_eigenvalues(value, change))
            else:
                # x + l dx is positive as long as 1 + l dx / x is.
                rates.append((change / value).reshape(-1))
        least = float(torch.cat(rates).min())
        # The line below would take NaN for a full step: max(1.0, NaN) is 1.0 in Python.
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


class Cone(ABC):
    """The cone of a norm, and what it says of the present iterate.

    Attributes
    ----------
    scaled : ScaledProblem
        The problem.
    has_W : bool
        Whether W is a variable beside alpha.
    warm_share : float
        A point that is moved into the interior has norms of at most this fraction of the radius.
    margins : Tensor of shape (P,)
        Those of zeta at the iterate, without the offset.
    norm_of_zeta, norm_of_V : float
        Omega(zeta) and Omega_*(V) at the iterate.
    """

    scaled: ScaledProblem
    has_W: ClassVar[bool] = True
    warm_share: ClassVar[float] = 0.98
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
    def count_products(self, primal: Tensor) -> int:
        """Count the complementary products R T of the cone, for zeta or the group scales."""

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
        """Return V and d of the iterate, of which zeta is d V: a class cone has zeta and 1."""

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
        With explicit features, F of a sample.
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
        of_cone = x[len(self.inner) :]
        if self.inner.ndim == 1:
            inner = self.inner * of_zeta
        else:
            inner = self.inner @ of_zeta
        corner = self.corner * of_cone
        if self.border is not None:
            inner = inner + of_cone @ self.border
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
    def feature_right_sides(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, Any]:
        """Right-hand sides of a step to mu, with a fraction of the predictor's second-order terms.

        And what `feature_back_substitute` needs of them.
        """

    @abstractmethod
    def feature_back_substitute(
        self, saved: Any, alpha: Tensor, x: Tensor
    ) -> tuple[ConePoint, Tensor]:
        """Return the change of the cone's variables, and U, of a change of alpha and of x.

        ``saved`` is what `feature_right_sides` returned of the same step.
        """
