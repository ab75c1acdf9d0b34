r"""Cones of the matrix of all classes' coefficients, (r, F): entries, or singular values.

Their W, the multiplier R and the slack T change with U, the change of W at a fixed radius, and with
the radius t. Once R and T are eliminated, the conjugate of W changes by K U - k_t dt, and where t
is free its equation by k_tt dt - <k_t, U>; each cone's head has its K. So a Newton step solves

    dV = ... + dW,   dzeta = K U                         W is V, t = 1: `ClassCone`
    dV = ... + K U - k_t dt,   dzeta = dW = U + Y dt     W is zeta, t free: `FreeRadiusCone`

together with the equations of the rows (`newton`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.norms import SumOverGroups, entries_of, nuclear_groups
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Constraints
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.cones.cone import (
    ConeMatrix,
    ConePoint,
    Coordinates,
    Direction,
    FeatureCone,
)
from implicit_bias.solvers.scaling import Layout, ScaledProblem


@dataclass(frozen=True, eq=False)
class RightSides:
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
    """A cone of the matrix of all classes' coefficients.

    Attributes
    ----------
    shape : tuple of int
        (r, F) of zeta.
    V_residual : Tensor
        What V is beyond W, or beyond the conjugate where W is zeta.
    """

    shape: tuple[int, int]
    V_residual: Tensor

    def __init__(self, scaled: ScaledProblem, basis: Array) -> None:
        norm = scaled.layout.problem.norm
        self.scaled = scaled
        # A sum over groups has a cone for each term, and the dual norm is the largest of their dual
        # norms.
        self.part_norm = norm  # of a group
        if isinstance(norm, SumOverGroups):
            self.part_norm = norm.norm
        self.coordinates = Coordinates(scaled.rows, scaled.tensor(basis))
        self.basis = self.coordinates.basis  # from coordinates to classes, (K', r)
        self.shape = (basis.shape[1], scaled.rows.X.shape[1])

    @staticmethod
    def layout(problem: MarginProblem, rows: Constraints) -> Layout:
        """Return the layout of explicit features."""
        # To merge constant features into one is to rotate them. No rotation changes the singular
        # values. It does change entries, and it would mix features of several groups.
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
        norm: Any = self.part_norm  # typed for arrays, but it takes tensors, too
        return sum(norm.value(part) for part in self.parts(primal))

    def dual_norm(self, V: Tensor) -> float:
        """Omega_* of V."""
        norm: Any = self.part_norm
        return max(norm.dual(part) for part in self.parts(V))

    def primal_of(self, start: Start, V: Tensor) -> tuple[Tensor, Tensor]:
        """Zeta of a start, and its margins."""
        zeta = self.stacked(self.basis.T @ self.scaled.start_coef(start))
        return zeta, self.apply(zeta)

    def count_products(self, primal: Tensor) -> int:
        """Count the eigenvalues of the slack: one per row of W."""
        return len(primal)

    @abstractmethod
    def zeta(self) -> Tensor:
        """W or its conjugate."""

    def set_margins_and_norms(self, zeta: Tensor, V: Tensor) -> None:
        """Set what `Cone` has of an iterate: the margins and norm of zeta, and the norm of V."""
        self.margins = self.apply(zeta)
        self.norm_of_zeta = self.norm(zeta)
        self.norm_of_V = self.dual_norm(V)

    def primal(self) -> tuple[Tensor, Tensor]:
        """Zeta of the classes, (K', 1, F), and a scale of 1."""
        of_classes = (self.basis @ self.unstacked(self.zeta()))[:, None]
        return of_classes, of_classes.new_ones(1)

    # --- the Newton system in the rows -----------------------------------------------------------

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
    def right_sides(self, mu: float, predictor: Direction | None, weight: float) -> RightSides:
        """Right-hand sides of a step to mu, with ``weight`` times the second-order terms."""


class FreeRadiusCone(ClassCone):
    """A cone around zeta, of which the radius t is a variable: W is zeta.

    Attributes
    ----------
    Y : Tensor of shape (r, F)
        W changes by U + Y dt: W / t; 0 for entries.
    k_t : Tensor of shape (r, F)
        The conjugate changes by K U - k_t dt.
    k_tt : Tensor
        Curvature of each radius.
    """

    Y: Tensor
    k_t: Tensor
    k_tt: Tensor

    def zeta(self) -> Tensor:
        """W."""
        return self.point.W

    @abstractmethod
    def radius_of_columns(self, t: Tensor) -> Tensor | float:
        """Return the radius of each column, (F,), or the only one."""

    @abstractmethod
    def sum_per_radius(self, values: Tensor) -> Tensor:
        """Sum (r, F) over the entries of each radius."""

    @abstractmethod
    def split_by_radius(self, values: Tensor) -> Tensor:
        """Return (r, F) for each radius, 0 in the columns of the others, in a stack."""

    @abstractmethod
    def matrix_K(self) -> Tensor:
        """K, for U in C order: (r F, r F), or (r F,) where it is diagonal."""

    @abstractmethod
    def solve_K(self, values: Tensor) -> Tensor:
        """K^-1 of (r, F), after `row_matrix`."""

    def radius_border(self) -> Tensor:
        """Phi (K^-1 k_t + Y) of each radius, (P, q)."""
        parts = self.split_by_radius(self.solve_K(self.k_t) + self.Y)
        return torch.stack([self.apply(part) for part in parts], 1)

    @abstractmethod
    def back_substitute(self, right: RightSides, U: Tensor, dt: Tensor) -> ConePoint:
        """Return what the cone's variables change by."""

    # --- the Newton system in the features -------------------------------------------------------

    def feature_matrix(self) -> tuple[ConeMatrix, Tensor]:
        """Return the matrix of U and dt, and Y as directions of zeta."""
        # The equations of the head: K U - k_t dt = ... and k_tt dt - <k_t, U> = ...
        # One unknown a radius, so that k_t and Y are cut into the columns of each.
        border = -self.split_by_radius(self.k_t).flatten(1)
        directions = self.split_by_radius(self.Y).flatten(1)
        return ConeMatrix(self.matrix_K(), self.k_tt, border), directions

    def feature_right_sides(
        self, mu: float, predictor: Direction | None, weight: float
    ) -> tuple[Tensor, RightSides]:
        """Right-hand sides of a step to mu: of U and dt, and those of R and T."""
        right = self.right_sides(mu, predictor, weight)
        # The right-hand sides right_U and right_t of `FreeRadiusRowNewton` in `newton`.
        of_U = (self.V_residual - right.conjugate).reshape(-1)
        of_t = right.radius + self.sum_per_radius(self.V_residual * self.Y)
        return torch.cat([of_U, of_t]), right

    def feature_back_substitute(
        self, saved: Any, alpha: Tensor, x: Tensor
    ) -> tuple[ConePoint, Tensor]:
        """Return the change of the cone's variables, and U."""
        n = len(x) - len(self.point.t)
        U = x[:n].reshape(self.shape)
        return self.back_substitute(saved, U, x[n:]), U


def columns_of_groups(scaled: ScaledProblem) -> list[Tensor]:
    """Columns of the features in each group of a norm, in C order of gates and inputs."""
    problem = scaled.layout.problem
    norm = problem.norm
    if not isinstance(norm, SumOverGroups):
        return [torch.arange(scaled.rows.X.shape[1], device=scaled.device)]
    groups = norm.groups  # of inputs
    if norm.axis == -2:
        groups = groups[:, None]  # of gates
    of_features = np.broadcast_to(groups, problem.norm_shape[1:]).reshape(-1)
    columns = []
    for g in range(of_features.max() + 1):
        columns.append(scaled.index(np.flatnonzero(of_features == g)))
    return columns
