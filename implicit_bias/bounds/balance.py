r"""Dual variables that obey the equation of an intercept exactly: flows between the classes.

With an intercept alpha must satisfy sum_p alpha_p b_p = 0, b_p = e_{y_n} - e_k. As flows: what
leaves each class (alpha_p of its samples) equals what enters it (alpha_p of the constraints in
which it is the rival). Rounding leaves a residual, and with a residual alpha bounds nothing. So

1. where classes are out of balance by more than rounding, their flows are scaled (Osborne): what
   leaves a class by 1 / s, what enters it by s. s is the fourth root of the ratio of what leaves to
   what enters. This balances two classes in one step, and more classes do not overshoot;
2. class by class, single entries change by the residual until it is 0 exactly. The classes are the
   nodes of a tree of the heaviest pairs, and each class comes before its parent. Only its flows to
   and from classes that are not balanced yet change; its parent is among these. The root is
   balanced when all others are, as the residuals sum to 0;
3. where step 2 fails, as no entry has digits as fine as the residual, all entries are rounded down
   to a grid on which sums are exact, and step 2 is done again.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.constraints import Integers


def repaired(problem: MarginProblem, alpha: Array, cap: ArrayLike = np.inf) -> Array:
    """Do as `balanced` for dual variables in the problem's shape, if it has an intercept.

    Parameters
    ----------
    problem : MarginProblem
        The problem; without an intercept alpha is returned as it is.
    alpha : ndarray of shape (N,) or (N, K)
        Dual variables, not negative.
    cap : float or array_like of shape (N,)
        As in `balanced`.

    Returns
    -------
    ndarray of shape (N,) or (N, K)
        They obey the equation of the intercept. Zeros where nothing near does, as where only one
        class has weight.
    """
    if not problem.intercept:
        return alpha
    rows = problem.constraints
    return rows.alpha(balanced(rows, rows.alpha_of_rows(alpha), cap))


def is_balanced(rows: Constraints, values: Array) -> bool:
    """Whether sum_p alpha_p b_p is exactly 0, without rounding."""
    return not any(_residual(rows, values, k) for k in range(rows.width))


def balanced(rows: Constraints, values: Array, cap: ArrayLike = np.inf) -> Array:
    """Return values (R,) near those given with sum_p alpha_p b_p = 0, exactly.

    Parameters
    ----------
    rows : Constraints
        The constraints.
    values : ndarray of shape (R,)
        Their dual variables, not negative.
    cap : float or array_like of shape (N,)
        No sample's total grows beyond it, except by rounding.

    Returns
    -------
    ndarray of shape (R,)
        Zeros where nothing near obeys the equation.
    """
    caps = np.broadcast_to(np.asarray(cap, dtype=np.float64), rows.n_samples)
    row_caps = caps[rows.samples]
    found = values.copy()

    # 1. Scale flows, then all of them into the caps.
    _scale_flows(rows, found)
    totals = rows.totals(found)
    over = totals > caps
    if over.any():
        found = np.minimum(found * (caps[over] / totals[over]).min(), row_caps)
    if not 0.0 < found.sum() < np.inf:
        return np.zeros_like(values)

    # 2. Change single entries by the residual.
    changed = found.copy()
    if _cancel_residuals(rows, changed, row_caps):
        return changed

    # 3. The same on a grid of 2^-52 of the sum, on which no sum of entries is rounded.
    exponent = int(np.frexp(found.sum())[1]) - 52
    found = np.ldexp(np.floor(np.ldexp(found, -exponent)), exponent)
    if _cancel_residuals(rows, found, row_caps):
        return found
    return np.zeros_like(values)


def _scale_flows(rows: Constraints, values: Array, most_steps: int = 100) -> None:
    """Scale what leaves and enters each class towards balance, in place (Osborne)."""
    n = rows.n_classes
    owners = rows.owners
    rivals = rows.rivals
    largest = np.zeros(n)
    np.maximum.at(largest, owners, values)
    np.maximum.at(largest, rivals, values)
    # Classes that are out of balance by 1 % of their largest entry are left to step 2. If any class
    # is farther from balance, all flows are scaled until only rounding is left.
    allowed = 0.01 * largest
    for _ in range(most_steps):
        leaving = np.bincount(owners, weights=values, minlength=n)
        entering = np.bincount(rivals, weights=values, minlength=n)
        if (np.abs(leaving - entering) <= allowed).all():
            break
        # A class that flows only leave, or only enter, cannot be balanced: its entries become 0.
        both = (leaving > 0) & (entering > 0)
        values[~(both[owners] & both[rivals])] = 0.0
        scale = (np.where(both, leaving, 1.0) / np.where(both, entering, 1.0)) ** 0.25
        values *= scale[rivals] / scale[owners]
        allowed = np.full(n, 1e-12 * leaving.max())


def _cancel_residuals(
    rows: Constraints, values: Array, cap: Array, most_changes: int = 100
) -> bool:
    """Change single entries, in place, until all classes are balanced; return whether they are."""
    is_open = np.ones(rows.n_classes, dtype=bool)  # classes that are not balanced yet
    for k in _leaves_first(rows, values):
        leaving = np.flatnonzero((rows.owners == k) & is_open[rows.rivals])
        entering = np.flatnonzero((rows.rivals == k) & is_open[rows.owners])
        for _ in range(most_changes):
            residual = _residual(rows, values, k)
            if residual == 0:
                break
            larger = leaving
            smaller = entering
            if residual < 0:
                larger = entering
                smaller = leaving
            # The larger flow shrinks by the residual. Where none of its entries has digits as fine,
            # the smaller one may grow by it.
            size = abs(residual)
            if not (_move(values, larger, -size, cap) or _move(values, smaller, size, cap)):
                return False
        else:  # the residual is not 0 after the last change
            return False
        is_open[k] = False
    return True


def _leaves_first(rows: Constraints, values: Array) -> list[int]:
    """Return all classes but the root of a tree of the heaviest pairs, the leaves first (Prim)."""
    heaviest = np.zeros((rows.n_classes, rows.n_classes))
    np.maximum.at(heaviest, (rows.owners, rows.rivals), values)
    heaviest = np.maximum(heaviest, heaviest.T)
    order = [int(heaviest.max(axis=1).argmax())]
    left = np.delete(np.arange(rows.n_classes), order[0])
    reach = heaviest[order[0]]  # the heaviest pair of each class with one of the tree
    while len(left):
        place = int(reach[left].argmax())
        order.append(int(left[place]))
        reach = np.maximum(reach, heaviest[order[-1]])
        left = np.delete(left, place)
    return order[:0:-1]  # backwards, without the root


def _residual(rows: Constraints, values: Array, k: int) -> float:
    """Return what leaves a class less what enters it, rounded once: 0 only if it is exactly 0."""
    leaving = values[rows.owners == k].tolist()
    entering = (-values[rows.rivals == k]).tolist()
    return math.fsum(leaving + entering)


def _move(values: Array, members: Integers, change: float, cap: Array) -> bool:
    """Change one of some entries, in place and within its cap; return whether one has changed.

    It is the largest entry whose digits are fine enough for the change, else the smallest one that
    the change leaves at 0 or above.
    """
    size = abs(change)
    fit = members[values[members] >= size]
    if np.isfinite(cap).all():
        fit = fit[values[fit] + change <= cap[fit]]
    if len(fit) == 0:
        return False
    near = fit[values[fit] <= 2.0**32 * size]  # a change keeps most of its digits
    if len(near):
        n = near[np.argmax(values[near])]
    else:
        n = fit[np.argmin(values[fit])]
    before = values[n]
    values[n] += change
    return bool(values[n] != before)
