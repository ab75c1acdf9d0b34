r"""How each norm is solved: in closed form, or by Clarabel through CVXPY.

        minimize Omega(zeta)   subject to   A zeta_k = y_k for all outputs k

The equations of a problem, rows Phi and values Y, are replaced by these, whose rows are
orthonormal. An unpenalized intercept is eliminated first: with d its column in the rows and H an
orthonormal basis of what is orthogonal to d, they are H Phi zeta_k = H y_k. Then Phi' = Q R gives
A = Q' and R^-T Y: however badly conditioned the features are, no method squares it. Multipliers go
the other way: R^-1 alpha, and then H' times it, whose product with d is 0.

======  ========  ==========================================================================
A       (n, F)    orthonormal rows: A A' = I, so that A' is a right inverse;  F = M D in C order
Y       (n, K)    values
zeta    (K, F)    coefficients
alpha   (n, K)    multipliers; V = alpha' A, (K, F)
======  ========  ==========================================================================

**Closed form.** Let P be the projection on the span of the rows of A. Each zeta with A zeta_k = y_k
has the same zeta P, which interpolates, too. A norm of the singular values of (K, F) does not grow
when the matrix is multiplied by P from the right. So zeta P = Y' A is a minimiser under every such
norm: l2, spectral, nuclear, Schatten (not the only one under the spectral norm). With zeta = U S W'
the dual solution is V = U f(S) W', f the derivative of the norm of the singular values, whose rows
are in that span, too: alpha = A V'.

**All other norms.** Clarabel solves the primal through CVXPY, and of nuclear norms of groups the
dual, whose cones are sparse (`solvers.cvxpy_solver.interpolate`).

**Fewer columns.** Under l2, spectral and nuclear norms of groups only inner products within each
group matter. So a group of more columns than equations, A_g = L_g W_g' with orthonormal W_g (F_g,
n), is replaced by L_g, and its coefficients are zeta_g W_g': of a gated network with many inputs
G n columns are left of M D.

**Cleaning.** An interior point leaves small numbers where the solution has zeros. Entries or groups
whose slack in the dual ball exceeds their size, relative to the largest one, are set to 0, and the
others are moved onto the equations again. That is kept if the norm does not grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.package import check_installed
from implicit_bias.base.validation import Array
from implicit_bias.norms import (
    L2,
    GroupNorm,
    MaxOverGroups,
    Norm,
    Nuclear,
    OfSingularValues,
    Spectral,
    SumOverGroups,
)
from implicit_bias.norms.norm import ConjugatedNorm, Shape
from implicit_bias.problem.constraints import Integers


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """Equations A zeta_k = y_k with orthonormal rows, and the norm; see the module's head.

    Attributes
    ----------
    A : ndarray of shape (n, F)
        Rows.
    Y : ndarray of shape (n, K)
        Values.
    norm : Norm
        Omega.
    shape : tuple of int
        (K, M, D), in which the norm sees the coefficients.
    tolerance : float
        Relative gap at which a method may stop.
    deadline : Deadline
        When it has to.
    """

    A: Array
    Y: Array
    norm: Norm
    shape: tuple[int, int, int]
    tolerance: float = 1e-9
    deadline: Deadline = NEVER

    @property
    def flat(self) -> tuple[int, int]:
        """(K, F)."""
        return self.Y.shape[1], self.A.shape[1]

    def value(self, zeta: Array) -> float:
        """Omega of (K, F)."""
        return self.norm.value(zeta.reshape(self.shape))

    def dual(self, V: Array) -> float:
        """Omega_* of (K, F)."""
        return self.norm.dual(V.reshape(self.shape))

    def dual_vectors(self, alpha: Array) -> Array:
        """V, (K, F)."""
        return alpha.T @ self.A

    def residual(self, zeta: Array) -> Array:
        """Y - A zeta, (n, K)."""
        return self.Y - self.A @ zeta.T

    def corrected(self, zeta: Array) -> Array:
        """Return zeta moved onto the equations, by the least Euclidean change."""
        # The rows of A are orthonormal, so that A' is its pseudo-inverse.
        return zeta + self.residual(zeta).T @ self.A


@dataclass(frozen=True, eq=False)
class Point:
    """What a method found: coefficients (K, F) and multipliers (n, K), and how.

    Attributes
    ----------
    zeta : ndarray of shape (K, F)
        Coefficients.
    alpha : ndarray of shape (n, K)
        Multipliers.
    method : str
        Its name.
    iterations : int
        Its iterations; 0 of a closed form.
    """

    zeta: Array
    alpha: Array
    method: str
    iterations: int = 0


def check_solver(norm: Norm, shape: Shape) -> None:
    """Refuse a norm that needs CVXPY where that is not installed.

    Raises
    ------
    ImportError
        It names the norms that need it, and how to install it.
    """
    if of_singular_values(norm, shape) is None:
        check_installed(
            "cvxpy",
            "min_norm needs CVXPY for every norm but l2, spectral, nuclear and Schatten norms of "
            "all coefficients, which have a closed form",
            "cvxpy",
        )


def solve_system(system: LinearSystem) -> Point:
    """Solve in closed form or by CVXPY; see the module's head.

    Raises
    ------
    ValueError
        CVXPY has no expression for the norm.
    """
    singular = of_singular_values(system.norm, system.shape)
    # First: a closed form is exact, and needs no smaller system.
    if singular is not None:
        return closed_form(system, singular)
    smaller = with_fewer_columns(system)
    if smaller is not None:
        return smaller.expanded(solve_system(smaller.system))

    from implicit_bias.solvers.cvxpy_solver import interpolate

    # Values of size 1, because the solvers' tolerances are absolute in part.
    size = float(np.linalg.norm(system.Y))
    found = interpolate(
        system.A, system.Y / size, system.norm, system.shape, system.tolerance, system.deadline
    )
    if found is None:
        # The l2 solution and its multipliers bound the optimum of any norm.
        return closed_form(system, L2())
    zeta, alpha, method, iterations = found
    point = Point(system.corrected(size * zeta), alpha, method, iterations)
    groups = groups_of_zeros(system)
    if groups is None:
        return point
    return cleaned(system, point, groups)


# --- closed form ----------------------------------------------------------------------------------


def of_singular_values(norm: Norm, shape: Shape) -> ConjugatedNorm | None:
    """Return a norm of the singular values of the whole matrix that a norm is, if it is one."""
    if isinstance(norm, OfSingularValues | L2):
        return norm
    partition = norm.partition(shape)
    if partition is not None and partition.inner == "l2" and not partition.groups.any():
        return L2()
    return None


def closed_form(system: LinearSystem, norm: ConjugatedNorm) -> Point:
    """Return the solution of least Euclidean norm, and the multipliers of a norm."""
    zeta = system.dual_vectors(system.Y)
    # V of dual norm 1 with <zeta, V> = Omega(zeta): strong duality, so that alpha = A V' proves the
    # optimum.
    V = norm.conjugate.maximiser(zeta)
    return Point(zeta, system.A @ V.T, "closed form")


# --- fewer columns --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FewerColumns:
    """A system whose groups of columns are replaced by as many as there are equations.

    Attributes
    ----------
    system : LinearSystem
        The smaller system.
    groups : ndarray of int, shape (F,)
        Group of each column of the larger one.
    bases : list of ndarray, shapes (F_g, c_g)
        W_g of each group.
    """

    system: LinearSystem
    groups: Integers
    bases: list[Array]

    def expanded(self, point: Point) -> Point:
        """Return the point of the larger system."""
        zeta = np.empty((len(point.zeta), len(self.groups)))
        start = 0
        for g, W in enumerate(self.bases):
            width = W.shape[1]
            zeta[:, self.groups == g] = point.zeta[:, start : start + width] @ W.T
            start += width
        return replace(point, zeta=zeta)


def with_fewer_columns(system: LinearSystem) -> FewerColumns | None:
    """Replace groups of more columns than equations; None where there are none, or other norms."""
    norm = system.norm
    inner: ConjugatedNorm = L2()
    over: type[SumOverGroups] | type[MaxOverGroups] = SumOverGroups
    if isinstance(norm, GroupNorm) and not norm.apart:
        groups = np.repeat(norm.groups, system.shape[2])
    elif isinstance(norm, SumOverGroups | MaxOverGroups):
        inner = norm.norm
        over = type(norm)
        of_columns = norm.groups
        if norm.axis == -2:
            of_columns = norm.groups[:, None]
        groups = np.broadcast_to(of_columns, system.shape[1:]).reshape(-1)
    else:
        return None
    # They do not change when the columns of a group are rotated.
    invariant = inner in (L2(), Nuclear(), Spectral())
    if not invariant or np.bincount(groups).max() <= len(system.A):
        return None
    parts = []
    bases = []
    for g in range(int(groups.max()) + 1):
        part = system.A[:, groups == g]
        W = np.eye(part.shape[1])
        if part.shape[1] > len(part):
            W, R = scipy.linalg.qr(part.T, mode="economic", check_finite=False)
            part = R.T
        parts.append(part)
        bases.append(W)
    widths = [part.shape[1] for part in parts]
    smaller = replace(
        system,
        A=np.hstack(parts),
        norm=over(inner, np.repeat(np.arange(len(parts)), widths), -1),
        shape=(system.shape[0], 1, sum(widths)),
    )
    return FewerColumns(smaller, groups, bases)


# --- cleaning -------------------------------------------------------------------------------------


def groups_of_zeros(system: LinearSystem) -> Integers | None:
    """Group of each entry, (K, F), where a solution may be 0 in whole groups, or in entries."""
    partition = system.norm.partition(system.shape)
    if partition is None:
        return None
    groups = partition.groups.reshape(system.flat)
    if partition.inner == "l2" or len(np.unique(groups)) == groups.size:
        return groups
    return None


def cleaned(system: LinearSystem, point: Point, groups: Integers, share: float = 1e-9) -> Point:
    """Set entries to 0 whose groups are inactive, and move the others onto the equations."""
    n_groups = int(groups.max()) + 1
    V = system.dual_vectors(point.alpha)
    V = V / system.dual(V)

    def norms(values: Array) -> Array:
        return np.sqrt(np.bincount(groups.ravel(), (values**2).ravel(), n_groups))

    size = norms(point.zeta)
    # At a solution either the group is 0 or ||V_g|| is 1: of the two distances the larger one
    # tells.
    inactive = size / size.max() < 1.0 - norms(V)
    active = ~inactive[groups]
    if active.all():
        return point
    zeta = np.where(active, point.zeta, 0.0)
    found = np.zeros_like(zeta)
    for k, (of_output, columns) in enumerate(zip(zeta, active, strict=True)):
        part = system.A[:, columns]
        rest = system.Y[:, k] - part @ of_output[columns]
        found[k, columns] = of_output[columns] + least_change(part, rest)
    size_of_rows = np.abs(system.A) @ np.abs(found).T
    # Without the entries that were set to 0 the equations may have no solution: then nothing is
    # cleaned.
    off = np.abs(system.residual(found)) > 1e-13 * (size_of_rows + np.abs(system.Y))
    if off.any() or system.value(found) > system.value(point.zeta) * (1.0 + share):
        return point
    return replace(point, zeta=found)


def least_change(A: Array, rest: Array) -> Array:
    """Return x of least norm with A x near what is left, (n,): a small correction, of a few digits.

    Of more columns than rows by their Gram matrix, which takes the fewest operations.
    """
    n, columns = A.shape
    if columns == 0:
        return np.zeros(0)
    if columns > n:
        try:
            factor = scipy.linalg.cho_factor(A @ A.T, check_finite=False)
            return np.asarray(A.T @ scipy.linalg.cho_solve(factor, rest, check_finite=False))
        except np.linalg.LinAlgError:
            pass  # the rows are dependent in these columns
    found = scipy.linalg.lstsq(A, rest, lapack_driver="gelsy", check_finite=False)[0]
    return np.asarray(found)
