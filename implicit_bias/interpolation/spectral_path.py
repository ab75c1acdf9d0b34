r"""Sums over groups of spectral norms: the central path, with zeta in the cone.

Each group of columns has a radius t, ||Z|| <= t for its part Z (K, c) of zeta.

Cone    T = t I - Z Z' / t >= 0

KKT     V = R Y,   tr R (I + Y Y') = 2,   R T = mu I,   A zeta = y,        Y = Z / t

It is the cone of `solvers.cones.spectral`. With dZ = U + Y dt, Nesterov and Todd's S, S T S = R,
and P = I - Y Y', the linearised slack and products are

        dT = P dt - (U Y' + Y U') - U_p U_p' / t
        dR = mu T^-1 - R - S dT S

so that V changes by K U - k_t dt and the equation of t by k_tt dt - <k_t, U>, where

        K U = R U / t + S (U Y' + Y U') S Y,   k_t = S P S Y,   k_tt = tr (S P S P) / 2

K is written out for each group, (K c, K c). With U eliminated, a step solves

        A K^-1 A' dalpha + A (K^-1 k_t + Y) dt = y - A zeta - A K^-1 right_U
        (k_tt - <k_t, K^-1 k_t>) dt - <A (K^-1 k_t + Y), dalpha> = right_t + <k_t, K^-1 right_U>

The system is one of a single output, whose rows (n, K F) are of all rows of the matrices.

======  ==========  ========================================================================
R, T    (G, K, K)   multipliers and slacks
t       (G,)        radii
Z, U    (K, F)      coefficients and their change at a fixed Y; V and Y alike
======  ==========  ========================================================================
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from implicit_bias.base.validation import Array
from implicit_bias.interpolation.interior_point import (
    NewtonMatrix,
    Path,
    Step,
    longest_inside,
    nesterov_todd,
    step_in_cone,
)
from implicit_bias.interpolation.system import LinearSystem
from implicit_bias.problem.constraints import Integers


class SpectralPath(Path):
    """The iterate alpha, Z, t and R; T is a function of Z and t.

    Parameters
    ----------
    system : LinearSystem
        The equations, of one output, and the norm.
    groups : ndarray of int, shape (F,)
        Group of each column.
    order : int
        K.
    """

    # Radii of the first point over the largest singular value of zeta.
    first_radius: ClassVar[float] = 2.0

    def __init__(self, system: LinearSystem, groups: Integers, order: int) -> None:
        self.system = system
        self.columns = [np.flatnonzero(groups == g) for g in range(int(groups.max()) + 1)]
        self.order = order
        self.n_products = len(self.columns) * order
        self.eye = np.eye(order)
        self.Z = system.dual_vectors(system.Y).reshape(order, -1)
        largest = max(np.linalg.norm(part, 2) for part in self._parts(self.Z))
        self.t = np.full(len(self.columns), self.first_radius * largest)
        squares = np.array([(part**2).sum() for part in self._parts(self.Z)]) / self.t**2
        # tr R (I + Y Y') = 2 for R a multiple of I.
        size = 2.0 / (order + squares)
        self.R = size[:, None, None] * self.eye
        self.T = self._slack(self.Z, self.t)
        self.alpha = float((size / self.t).mean()) * system.Y

    def _parts(self, values: Array) -> list[Array]:
        """Return the groups' columns of (K, F)."""
        return [values[:, columns] for columns in self.columns]

    def _joined(self, parts: list[Array]) -> Array:
        """Return (K, F) of the groups' columns."""
        found = np.empty_like(self.Z)
        for columns, part in zip(self.columns, parts, strict=True):
            found[:, columns] = part
        return found

    def _slack(self, Z: Array, t: Array) -> Array:
        """T of coefficients and radii."""
        parts = zip(self._parts(Z), t, strict=True)
        return np.stack([radius * self.eye - part @ part.T / radius for part, radius in parts])

    def zeta(self) -> Array:
        """Return the coefficients, in a row."""
        return self.Z.reshape(1, -1)

    def mean_product(self, step: Step | None = None, length: float = 0.0) -> float:
        """Mean of the eigenvalues of R T."""
        R = self.R
        T = self.T
        if step is not None:
            _, dR, dZ, dt, _ = step
            R = R + length * dR
            T = self._slack(self.Z + length * dZ, self.t + length * dt)
        return float((R * T).sum()) / self.n_products

    def factorise(self) -> None:
        """Write out K of each group, and factorise the system of the module's head."""
        A = self.system.A.reshape(len(self.system.A), self.order, -1)
        self.S, self.T_inverse, self.inverse_root = nesterov_todd(self.R, self.T)
        self.Y = self._joined(
            [part / radius for part, radius in zip(self._parts(self.Z), self.t, strict=True)]
        )
        self.factors = []
        self.k_t = []
        self.directions = []  # K^-1 k_t + Y
        halves = []
        border = []
        slack = []
        groups = zip(self.columns, self._parts(self.Y), self.R, self.S, self.t, strict=True)
        for columns, Y, R, S, t in groups:
            r, c = Y.shape
            SY = S @ Y
            # S U Y' S Y and S Y U' S Y, entry (i, f) by entry (j, g).
            K = np.einsum("ij,fg->ifjg", S, Y.T @ SY) + np.einsum("ig,jf->ifjg", SY, SY)
            # R U / t acts on each column alone.
            K = K.reshape(r * c, r * c) + np.kron(R / t, np.eye(c))
            factor = scipy.linalg.cho_factor(0.5 * (K + K.T), lower=True, check_finite=False)
            P = self.eye - Y @ Y.T
            SPS = S @ P @ S
            k_t = SPS @ Y
            solved = _solve(factor, k_t)
            rows = A[:, :, columns].reshape(len(A), -1)
            half = scipy.linalg.solve_triangular(factor[0], rows.T, lower=True, check_finite=False)
            halves.append(half)
            border.append(rows @ (solved + Y).ravel())
            # Of t, once U is eliminated; rounding may take it below 0.
            slack.append(max(0.5 * float((SPS * P).sum()) - float((k_t * solved).sum()), 0.0))
            self.factors.append(factor)
            self.k_t.append(k_t)
            self.directions.append(solved + Y)
        # A K^-1 A' is a sum over groups of half' half: it is symmetric and positive to rounding.
        whole = np.concatenate(halves)
        self.matrix = NewtonMatrix(
            [whole.T @ whole], np.stack(border, axis=1)[None], np.array(slack)
        )

    def direction(self, mu: float, predictor: Step | None) -> Step:
        """Return the changes of alpha, R, Z, t, and U."""
        system = self.system
        V = system.dual_vectors(self.alpha).reshape(self.order, -1)
        constants = mu * self.T_inverse - self.R
        right_U = []
        right_t = []
        for g, (Y, V_g) in enumerate(zip(self._parts(self.Y), self._parts(V), strict=True)):
            R = self.R[g]
            t = self.t[g]
            second_of_V = np.zeros_like(Y)
            second_of_t = 0.0
            if predictor is not None:
                _, dR, _, dt, U = predictor
                U_g = U[:, self.columns[g]]
                constants[g] += self.S[g] @ (U_g @ U_g.T) @ self.S[g] / t
                second_of_V = (dR[g] @ U_g - R @ U_g * (dt[g] / t)) / t
                second_of_t = 0.5 * float((R * (U_g @ U_g.T)).sum()) / t**2
            square = Y @ Y.T
            lacks = V_g - R @ Y
            # What the equation of t lacks, halved, as k_tt is.
            of_radius = 0.5 * float((R * (self.eye + square)).sum()) - 1.0
            of_radius += 0.5 * float((constants[g] * (self.eye - square)).sum()) + second_of_t
            right_U.append(lacks - constants[g] @ Y - second_of_V)
            right_t.append(of_radius + float((lacks * Y).sum()))
        solved = [_solve(f, part) for f, part in zip(self.factors, right_U, strict=True)]
        right = system.residual(self.zeta()) - system.A @ self._joined(solved).reshape(-1, 1)
        pairs = zip(self.k_t, solved, strict=True)
        of_border = np.array(right_t) + np.array([float((k * u).sum()) for k, u in pairs])
        alpha, dt = self.matrix.solve(right, self._gram_times, of_border)
        # Back substitution.
        dV = system.dual_vectors(alpha).reshape(self.order, -1)
        changes = []
        dR = np.empty_like(self.R)
        for g, (Y, dV_g) in enumerate(zip(self._parts(self.Y), self._parts(dV), strict=True)):
            U_g = _solve(self.factors[g], right_U[g] + dV_g + self.k_t[g] * dt[g])
            cross = U_g @ Y.T
            dT = (self.eye - Y @ Y.T) * dt[g] - cross - cross.T
            change = constants[g] - self.S[g] @ dT @ self.S[g]
            # Both factors of the next step need exact symmetry.
            dR[g] = 0.5 * (change + change.T)
            changes.append(U_g)
        U = self._joined(changes)
        pairs_of_radii = zip(changes, self._parts(self.Y), dt, strict=True)
        dZ = self._joined([U_g + Y * radius for U_g, Y, radius in pairs_of_radii])
        return alpha, dR, dZ, dt, U

    def _gram_times(self, alpha: Array) -> Array:
        """Return A K^-1 A' alpha."""
        V = self.system.dual_vectors(alpha).reshape(self.order, -1)
        parts = [_solve(f, part) for f, part in zip(self.factors, self._parts(V), strict=True)]
        return self.system.A @ self._joined(parts).reshape(-1, 1)

    def step_to_boundary(self, step: Step) -> float:
        """Return the longest multiple of a step that keeps R and T positive definite."""
        _, dR, dZ, dt, _ = step

        def inside(length: float) -> bool:
            t = self.t + length * dt
            # The slack of a negative t may be positive, too.
            if not t.min() > 0:
                return False
            T = self.inverse_root @ self._slack(self.Z + length * dZ, t) @ self.inverse_root
            return bool(np.linalg.eigvalsh(T).min() > 0)

        # T is concave in Z and t: the lengths that keep it positive are an interval.
        return longest_inside(inside, step_in_cone(self.R, dR))

    def move(self, step: Step, length: float) -> None:
        """Go this length of a step."""
        alpha, dR, dZ, dt, _ = step
        self.alpha = self.alpha + length * alpha
        self.R = self.R + length * dR
        self.Z = self.Z + length * dZ
        self.t = self.t + length * dt
        self.T = self._slack(self.Z, self.t)


def _solve(factor: tuple[Array, bool], values: Array) -> Array:
    """K^-1 of the columns of a group, (K, c)."""
    flat = scipy.linalg.cho_solve(factor, values.ravel(), check_finite=False)
    return np.asarray(flat.reshape(values.shape))
