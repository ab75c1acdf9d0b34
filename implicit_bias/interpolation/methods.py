r"""How each norm is solved.

=====================================  ============================================================
norm                                   method
=====================================  ============================================================
l2, spectral, nuclear, Schatten        closed form: all have the solution of least Euclidean norm
sums over groups of l2 or nuclear      interior point, V in the cone (`group_path`)
sums over groups of spectral           interior point, zeta in the cone (`spectral_path`)
l1, l_p, l_inf, sums of these          interior point, zeta in the cone (`entry_path`)
maxima over groups of any of these     the same, of the dual norm: swapped, see below
others, and custom ones                Clarabel, else SCS, through CVXPY
=====================================  ============================================================

**Closed form.** Let P be the projection on the span of the rows of A. Each zeta with A zeta_k = y_k
has the same zeta P, which interpolates, too. A norm of the singular values of (K, F) does not grow
when the matrix is multiplied by P from the right. So zeta P = Y' A is a minimiser under every such
norm: l2, spectral, nuclear, Schatten (not the only one under the spectral norm). With zeta = U S W'
the dual solution is V = U f(S) W', f the derivative of the norm of the singular values, whose rows
are in that span, too: alpha = A V'.

**Swapping.** With N an orthonormal basis of the complement of the rows of A and zeta_0 = Y' A, V is
alpha' A for some alpha if N V_k = 0 for all k, and then <alpha, Y> = <zeta_0, V>. So the dual is

        minimise Omega_*(V)   subject to   N V_k = 0,   <zeta_0, V> = 1

up to a factor: again a problem of smallest norm with orthonormal rows, N and zeta_0 over its norm.
Its multipliers (c, d) give zeta = zeta_0 + N' c ||zeta_0|| / d, and its V gives alpha = A V'.

**Fewer columns.** Under l2, spectral and nuclear norms of groups only inner products within each
group matter. So a group of more columns than equations, A_g = L_g W_g' with orthonormal W_g (F_g,
n), is replaced by L_g, and its coefficients are zeta_g W_g': of a gated network with many inputs
G n columns are left of M D.

**Cleaning.** An interior point leaves small numbers where the solution has zeros. Entries or groups
whose slack in the dual ball exceeds their size, relative to the largest one, are set to 0, and the
others are moved onto the equations again. That is kept if the norm does not grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from implicit_bias.base.validation import Array
from implicit_bias.interpolation.entry_path import EntryPath
from implicit_bias.interpolation.group_path import (
    CoupledNuclearTerms,
    EuclideanTerms,
    GroupPath,
    NuclearTerms,
)
from implicit_bias.interpolation.interior_point import InteriorPoint, Path
from implicit_bias.interpolation.spectral_path import SpectralPath
from implicit_bias.interpolation.system import LinearSystem, Point, least_change
from implicit_bias.norms import (
    L2,
    GroupNorm,
    MaxOverGroups,
    Norm,
    Nuclear,
    OfSingularValues,
    Spectral,
    SumOverGroups,
    entries_of,
)
from implicit_bias.norms.norm import ConjugatedNorm, Shape
from implicit_bias.problem.constraints import Integers


def solve_system(system: LinearSystem) -> Point:
    """Solve by the method of the norm; see the module's head.

    Raises
    ------
    ValueError
        No method takes the norm.
    ImportError
        CVXPY would be needed, and is not installed.
    """
    singular = of_singular_values(system.norm, system.shape)
    if singular is not None:
        return closed_form(system, singular)
    smaller = with_fewer_columns(system)
    if smaller is not None:
        return smaller.expanded(solve_system(smaller.system))
    path = path_of(system)
    if path is not None:
        point = InteriorPoint().follow(path)
        if path.system is not system:  # coupled
            zeta = system.corrected(point.zeta.reshape(system.flat))
            return replace(point, zeta=zeta, alpha=point.alpha.reshape(system.Y.shape[::-1]).T)
        groups = groups_of_zeros(system)
        if groups is None:
            return point
        return cleaned(system, point, groups)
    swapped = swapped_system(system)
    if swapped is not None:
        path = path_of(swapped)
        if path is not None:
            return swapped_back(system, InteriorPoint().follow(path), swapped)

    from implicit_bias.solvers.cvxpy_solver import interpolate

    zeta, alpha, method, iterations = interpolate(
        system.A, system.Y, system.norm, system.shape, system.tolerance, system.deadline
    )
    return Point(system.corrected(zeta), alpha, method, iterations)


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
        groups = groups_of_entries(norm, system.shape)[0].reshape(-1)
    else:
        return None
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


def path_of(system: LinearSystem) -> Path | None:
    """Return the central path of the norm at its first point, if it has one here."""
    norm = system.norm
    flat = system.flat
    partition = norm.partition(system.shape)
    if partition is not None and partition.inner == "l2":
        groups = partition.groups.reshape(flat)
        return GroupPath(system, EuclideanTerms(groups, int(groups.max()) + 1))
    if isinstance(norm, SumOverGroups) and norm.norm == Nuclear():
        columns = groups_of_entries(norm, system.shape)[0].reshape(-1)
        # Of a swapped system rows are of all outputs.
        terms = NuclearTerms if flat[0] == system.shape[0] else CoupledNuclearTerms
        return GroupPath(system, terms(columns, int(columns.max()) + 1, system.shape[0]))
    if isinstance(norm, SumOverGroups) and norm.norm == Spectral():
        columns = groups_of_entries(norm, system.shape)[0].reshape(-1)
        return SpectralPath(coupled(system), columns, system.shape[0])
    if partition is not None and partition.inner == "linf":
        # l1 and l_inf by other names, too: groups of one entry each, or of all.
        groups = partition.groups.reshape(flat)
        if groups_of_zeros(system) is not None:
            return EntryPath(system, 1.0, np.zeros_like(groups))
        return EntryPath(system, math.inf, groups)
    entries = entries_of(norm)
    if entries is not None:
        groups = groups_of_entries(norm, system.shape).reshape(flat)
        return EntryPath(system, entries.exponent, groups)
    return None


def coupled(system: LinearSystem) -> LinearSystem:
    """Return the equations of all outputs as those of one output, rows (K n, K F)."""
    K = len(system.Y.T)
    return replace(
        system,
        A=np.asarray(np.kron(np.eye(K), system.A), dtype=np.float64),
        Y=system.Y.T.reshape(-1, 1),
    )


def groups_of_zeros(system: LinearSystem) -> Integers | None:
    """Group of each entry, (K, F), where a solution may be 0 in whole groups, or in entries."""
    partition = system.norm.partition(system.shape)
    if partition is None:
        return None
    groups = partition.groups.reshape(system.flat)
    if partition.inner == "l2" or len(np.unique(groups)) == groups.size:
        return groups
    return None


def swapped_system(system: LinearSystem, most_rows: int = 3000) -> LinearSystem | None:
    """Return the dual as another system, in V and the dual norm; see the module's head.

    None where it has more than ``most_rows``, so that a step takes longer than all of Clarabel.
    """
    K, F = system.flat
    n = len(system.A)
    if not isinstance(system.norm, ConjugatedNorm) or K * (F - n) + 1 > most_rows:
        return None
    complement = scipy.linalg.qr(system.A.T)[0][:, n:].T  # (F - n, F)
    zeta = system.dual_vectors(system.Y).reshape(-1)
    size = float(np.linalg.norm(zeta))
    rows = np.vstack([np.kron(np.eye(K), complement), zeta / size])
    values = np.zeros((len(rows), 1))
    values[-1] = 1.0 / size
    return replace(system, A=rows, Y=values, norm=system.norm.conjugate)


def swapped_back(system: LinearSystem, point: Point, swapped: LinearSystem) -> Point:
    """Return coefficients and multipliers of a system from those of the swapped one."""
    zeta = swapped.dual_vectors(point.alpha) / (point.alpha[-1] * swapped.Y[-1])
    V = point.zeta.reshape(system.flat)
    return replace(point, zeta=system.corrected(zeta.reshape(system.flat)), alpha=system.A @ V.T)


def of_singular_values(norm: Norm, shape: Shape) -> ConjugatedNorm | None:
    """Return a norm of the singular values of the whole matrix that a norm is, if it is one."""
    if isinstance(norm, OfSingularValues | L2):
        return norm
    partition = norm.partition(shape)
    if partition is not None and partition.inner == "l2" and not partition.groups.any():
        return L2()
    return None


def groups_of_entries(norm: Norm, shape: Shape) -> Integers:
    """Group of each entry of a norm over groups of columns; 0 of other norms."""
    if not isinstance(norm, SumOverGroups | MaxOverGroups):
        return np.zeros(shape, dtype=np.int64)
    groups = norm.groups
    if norm.axis == -2:
        groups = groups[:, None]
    return np.array(np.broadcast_to(groups, shape))


def closed_form(system: LinearSystem, norm: ConjugatedNorm) -> Point:
    """Return the solution of least Euclidean norm, and the multipliers of a norm."""
    zeta = system.dual_vectors(system.Y)
    V = norm.conjugate.maximiser(zeta)
    return Point(zeta, system.A @ V.T, "closed form")


def cleaned(system: LinearSystem, point: Point, groups: Integers, share: float = 1e-9) -> Point:
    """Set entries to 0 whose groups are inactive, and move the others onto the equations."""
    n_groups = int(groups.max()) + 1
    V = system.dual_vectors(point.alpha)
    V = V / system.dual(V)

    def norms(values: Array) -> Array:
        return np.sqrt(np.bincount(groups.ravel(), (values**2).ravel(), n_groups))

    size = norms(point.zeta)
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
    off = np.abs(system.residual(found)) > 1e-13 * (size_of_rows + np.abs(system.Y))
    if off.any() or system.value(found) > system.value(point.zeta) * (1.0 + share):
        return point
    return replace(point, zeta=found)
