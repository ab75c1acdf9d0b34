"""How each norm is solved.

======================================  ==========================================================
norm                                    method
======================================  ==========================================================
l2, spectral, nuclear, Schatten         closed form: all have the solution of least Euclidean norm
sums over groups of l2 or nuclear       interior point, V in the cone (`group_path`)
l1, l_p, l_inf, sums of one over groups  interior point, zeta in the cone (`entry_path`)
others, and custom ones                 Clarabel, else SCS, through CVXPY
======================================  ==========================================================

**Closed form.** Let P be the projection on the span of the rows of A. Each zeta with A zeta_k = y_k
has the same zeta P, which interpolates, too. A norm of the singular values of (K, F) does not grow
when the matrix is multiplied by P from the right. So zeta P = Y' A is a minimiser under every such
norm: l2, spectral, nuclear, Schatten (not the only one under the spectral norm). With zeta = U S W'
the dual solution is V = U f(S) W', f the derivative of the norm of the singular values, whose rows
are in that span, too: alpha = A V'.

**Cleaning.** An interior point leaves small numbers where the solution has zeros. Entries or groups
whose slack in the dual ball exceeds their size, relative to the largest one, are set to 0, and the
others are moved onto the equations again. That is kept if the norm does not grow.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from implicit_bias.base.validation import Array
from implicit_bias.interpolation.entry_path import EntryPath
from implicit_bias.interpolation.group_path import EuclideanTerms, GroupPath, NuclearTerms
from implicit_bias.interpolation.interior_point import InteriorPoint
from implicit_bias.interpolation.system import LinearSystem, Point, least_change
from implicit_bias.norms import (
    L2,
    Norm,
    Nuclear,
    OfSingularValues,
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
    norm = system.norm
    shape = system.shape
    flat = shape[0], shape[1] * shape[2]
    partition = norm.partition(shape)
    singular = of_singular_values(norm, shape)
    if singular is not None:
        return closed_form(system, singular)
    if partition is not None and partition.inner == "l2":
        groups = partition.groups.reshape(flat)
        path = GroupPath(system, EuclideanTerms(groups, int(groups.max()) + 1))
        point = InteriorPoint().follow(path)
        return cleaned(system, point, groups)
    if isinstance(norm, SumOverGroups) and norm.norm == Nuclear():
        columns = groups_of_entries(norm, shape)[0].reshape(-1)
        path = GroupPath(system, NuclearTerms(columns, int(columns.max()) + 1, shape[0]))
        return InteriorPoint().follow(path)
    entries = entries_of(norm)
    if partition is not None and partition.inner == "linf":
        # l1 and l_inf by other names, too: groups of one entry each, or of all.
        groups = partition.groups.reshape(flat)
        p = math.inf
        if len(np.unique(groups)) == groups.size:
            groups = np.zeros_like(groups)
            p = 1.0
    elif entries is not None:
        groups = groups_of_entries(norm, shape).reshape(flat)
        p = entries.exponent
    else:
        from implicit_bias.solvers.cvxpy_solver import interpolate

        zeta, alpha, method, iterations = interpolate(
            system.A, system.Y, norm, shape, system.tolerance, system.deadline
        )
        return Point(system.corrected(zeta), alpha, method, iterations)
    entry_path = EntryPath(system, p, groups)
    point = InteriorPoint().follow(entry_path)
    if p == 1.0:
        return cleaned(system, point, np.arange(groups.size).reshape(flat))
    return point


def of_singular_values(norm: Norm, shape: Shape) -> ConjugatedNorm | None:
    """Return a norm of the singular values of the whole matrix that a norm is, if it is one."""
    if isinstance(norm, OfSingularValues | L2):
        return norm
    partition = norm.partition(shape)
    if partition is not None and partition.inner == "l2" and not partition.groups.any():
        return L2()
    return None


def groups_of_entries(norm: Norm, shape: Shape) -> Integers:
    """Group of each entry of a sum of norms over groups of columns; 0 of other norms."""
    if not isinstance(norm, SumOverGroups):
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
