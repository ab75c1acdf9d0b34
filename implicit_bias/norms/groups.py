r"""A norm of each group, of gate columns or of features, and one over these norms.

=============  ==========================  ==========================  ==============
norm           Omega(zeta)                 Omega_*(V)                  groups of
=============  ==========================  ==========================  ==============
GroupNorm      sum_g ||zeta_g||_2          max_g ||V_g||_2             gate columns
SumOverGroups  sum_g of any norm           max_g of its dual           either
MaxOverGroups  max_g of any norm           sum_g of its dual           either
=============  ==========================  ==========================  ==============

A norm sqrt(tr(zeta_g' P_g^+ zeta_g)) with P_g = R_g R_g' is a `GroupNorm` for the gates Z_g R_g:
zeta_g = R_g u_g has the norm ||u_g|| (`gating.CombinedGates`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Number
from typing import Any, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import (
    SAFETY,
    SMALLEST_NORMAL,
    Enclosure,
    gamma,
    root_sums,
    row_norms,
    sum_up,
)
from implicit_bias.base.validation import Array, as_numbers, detached
from implicit_bias.norms.entries import L1, L2, Entrywise, LInf
from implicit_bias.norms.norm import (
    ConjugatedNorm,
    InnerNorm,
    Partition,
    Shape,
    SumNorm,
    UndividedNorm,
    exactly,
)


@dataclass(frozen=True, eq=False)
class GroupNorm(SumNorm):
    r"""The sum of the Euclidean norms of groups of gate columns.

    .. math:: \Omega(\zeta) = \sum_g \|\zeta_g\|_2, \qquad \Omega_*(V) = \max_g \|V_g\|_2

    Parameters
    ----------
    groups : array_like of int, shape (M,)
        Group of each column, 0 .. G - 1, none left out.
    apart : bool
        Whether each of K classes has separate groups, (k, g), K G in all: one network per class.
        By default a group has the columns of all classes.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1.

    Notes
    -----
    Lippl, Abbott, Chung (2022), section 3: one group per hidden unit of a gated network.

    Examples
    --------
    >>> import numpy as np
    >>> norm = GroupNorm(np.array([0, 0, 1]))  # two columns in the first group, one in the second
    >>> norm.value(np.array([[3.0], [4.0], [1.0]]))
    6.0
    """

    groups: NDArray[np.int64]
    apart: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", as_groups(self.groups))

    @property
    def n_groups(self) -> int:
        """G, of one class where the classes have separate groups."""
        return int(self.groups.max()) + 1

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,), of coefficients (M, D) or (K, M, D)."""
        norms = row_norms(coef.reshape(-1, coef.shape[-1]))
        return root_sums(norms, self.groups_of_rows(len(norms) // len(self.groups)))

    def dual_norms(self, V: Array) -> Array:
        """||V_g|| of each group, shape (G,): primal and dual are the same."""
        return self.group_norms(V)

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        norms = self.group_norms(coef)
        groups = self.groups_of_rows(math.prod(coef.shape[:-2]))
        # Roundings: of squares and sums within a row and a group, and 10 of roots and scalings.
        rounding = gamma(coef.shape[-1] + int(np.bincount(groups).max()) + 10)
        return sum_up((norms * (1.0 + rounding) + SMALLEST_NORMAL * (norms > 0)).tolist())

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on ||V_g||, shape (G,)."""
        width = V.value.shape[-1]
        norms = row_norms(V.value.reshape(-1, width))
        radius = row_norms(V.radius.reshape(-1, width))
        # ||row + E|| <= ||row|| + ||E||, and the rounding of both norms.
        rounding = gamma(width + 4) * (norms + radius)
        return self.from_row_norms(Enclosure(norms, SAFETY * (radius + rounding))).magnitude

    def from_row_norms(self, rows: Enclosure) -> Enclosure:
        """Return ||V_g|| (G,) from the norms of the rows of V (M, D), or of (K, M, D)."""
        groups = self.groups_of_rows(len(rows.value) // len(self.groups))
        rounding = gamma(int(np.bincount(groups).max()) + 4)
        value = root_sums(rows.value, groups)
        # ||V_g + E|| <= ||V_g|| + ||E||: radii of rows combine as the rows do.
        radius = root_sums(rows.radius, groups)
        # A norm of numbers near the smallest ones may lose all its digits.
        underflow = SMALLEST_NORMAL * ((value > 0) | (radius > 0))
        return Enclosure(value, SAFETY * (radius + rounding * value) + underflow)

    def maximiser(self, V: Array) -> Array:
        """Return V_g over its norm, of the group with the largest dual norm."""
        # The dual norm is a maximum over groups, and one group alone attains it.
        norms = self.dual_norms(V)
        factors = np.zeros(len(norms))
        factors[norms.argmax()] = 1.0 / (norms.max() or 1.0)  # 1 where V is 0
        return self.aligned(V, factors)

    def partition(self, shape: Shape) -> Partition:
        """Return the groups of gate columns."""
        rows = self.groups_of_rows(math.prod(shape[:-2]))
        return Partition(np.repeat(rows, shape[-1]).reshape(shape), "l2")

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY."""
        of_entries = self.partition(shape).groups.ravel()
        return sum(cp.norm(zeta[np.flatnonzero(of_entries == g)], 2) for g in np.unique(of_entries))

    def aligned(self, V: Array, group_norms: Array) -> Array:
        """Return zeta_g = d_g V_g, as KKT demands, in the shape of V, from V and d (G,).

        At an optimum d_g is ||zeta_g||, as ||V_g|| = 1 where zeta_g is not 0.
        """
        if self.apart:
            # The groups (k, g) of a class k are those of its own coefficients.
            by_class = group_norms.reshape(-1, self.n_groups)
            return V * by_class[:, self.groups, None]
        return V * group_norms[self.groups][:, None]

    def groups_of_rows(self, n_classes: int) -> NDArray[np.int64]:
        """Group of each row of coefficients (K, M, D), flattened: (K M,), the class slowest."""
        if n_classes == 1:
            return self.groups
        groups = np.tile(self.groups, n_classes)
        if not self.apart:
            return groups
        return groups + self.n_groups * np.repeat(np.arange(n_classes), len(self.groups))


@dataclass(frozen=True, eq=False)
class _OverGroups(ConjugatedNorm):
    """A norm of each group, of gate columns or of features, and an outer norm of these norms.

    The outer norm grows with each group's norm. So the dual norm is composed alike: the dual of the
    outer norm, taken of the groups' dual norms.
    """

    norm: ConjugatedNorm
    groups: NDArray[np.int64]
    axis: int = -2

    def __post_init__(self) -> None:
        if not isinstance(self.norm, ConjugatedNorm):
            raise ValueError(
                f"groups take a norm of entries or of singular values, such as L2() or Nuclear(), "
                f"got {self.norm!r}: a sum of Euclidean norms is GroupNorm"
            )
        object.__setattr__(self, "groups", as_groups(self.groups))

    @property
    @abstractmethod
    def _outer(self) -> Entrywise:
        """The norm over those of the groups."""

    @final
    def value(self, coef: Array) -> float:
        """Norm of the groups' norms."""
        return self._outer.value(np.array([self.norm.value(part) for part in self._parts(coef)]))

    @final
    def _bound(self, A: Enclosure) -> float:
        return self._outer.bound(exactly(self._bounds_of_groups(A)))

    def _bounds_of_groups(self, A: Enclosure) -> Array:
        """Return upper bounds on the norms of the groups, over an enclosure."""
        bounds = []
        for value, radius in zip(self._parts(A.value), self._parts(A.radius), strict=True):
            bounds.append(self.norm.bound(Enclosure(value, radius)))
        return np.array(bounds)

    @final
    def maximiser(self, V: Array) -> Array:
        """Return a_g u_g: a maximizes over the groups' dual norms, u_g within the group."""
        parts = self._parts(V)
        weights = self._outer.maximiser(np.array([self.norm.dual(part) for part in parts]))
        found = np.zeros(V.shape)
        for weight, part, places in zip(weights, parts, self._places(V.shape), strict=True):
            if weight:  # most groups have none under a sum
                np.put(found, places, weight * self.norm.maximiser(part))
        return found

    @final
    def partition(self, shape: Shape) -> Partition | None:
        """Return the partitions of all groups as one where the outer norm sums; else None.

        The exception is a maximum of maxima: the largest absolute value of all entries.
        """
        parts = self._places(shape)
        # One group alone is the sum of all groups and their maximum.
        if self._outer == LInf() and len(parts) > 1:
            # A maximum over groups is no sum. But the maximum of maxima is that of all entries.
            found = self.norm.partition(shape)
            if found is not None and found.inner == "linf" and not found.groups.any():
                return found
            return None
        # The partition of one group after the other, numbered on.
        whole = np.zeros(shape, dtype=np.int64)
        count = 0
        inner: InnerNorm = "l2"
        for places in parts:
            found = self.norm.partition(places.shape)
            if found is None:
                return None
            np.put(whole, places, count + found.groups)
            count += int(found.groups.max()) + 1
            inner = found.inner
        return Partition(whole, inner)

    @final
    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY."""
        atoms = [self.norm.atom(zeta[p.ravel()], p.shape, cp) for p in self._places(shape)]
        if self._outer == L1():
            return sum(atoms)
        # A norm is not below 0, which makes a second argument: `maximum` needs two.
        return cp.maximum(*atoms, 0.0)

    def _places(self, shape: Shape) -> list[NDArray[Any]]:
        """Return the places of the groups' entries, in C order."""
        return self._parts(np.arange(math.prod(shape)).reshape(shape))

    @final
    def _parts(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the entries of each group, of an array of the shape of coefficients."""
        if array.shape[self.axis] != len(self.groups):
            column = "gate column"
            if self.axis == -1:
                column = "feature"
            raise ValueError(
                f"groups must have one entry per {column}, {array.shape[self.axis]}, got "
                f"{len(self.groups)} (coefficients have shape {array.shape})"
            )
        groups = range(int(self.groups.max()) + 1)
        return [np.compress(self.groups == g, array, axis=self.axis) for g in groups]


@dataclass(frozen=True, eq=False)
class SumOverGroups(_OverGroups):
    r"""A sum of one norm over groups of gate columns, or of features.

    .. math:: \Omega(\zeta) = \sum_g \omega(\zeta_g), \qquad \Omega_*(V) = \max_g \omega_*(V_g)

    Parameters
    ----------
    norm : Norm
        That of each group: any of `implicit_bias.norms` but `GroupNorm` and custom norms.
    groups : array_like of int, shape (M,) or (D,)
        Group of each gate column (or feature), 0 .. G - 1, none left out.
    axis : {-2, -1}
        -2 for gate columns, -1 for features.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1.

    Examples
    --------
    >>> from implicit_bias.norms import Nuclear
    >>> norm = SumOverGroups(Nuclear(), [0, 0, 1])  # of coefficients (K, 3, D)
    """

    @property
    def conjugate(self) -> MaxOverGroups:
        """The maximum of the groups' dual norms."""
        return MaxOverGroups(self.norm.conjugate, self.groups, self.axis)

    def group_norms(self, coef: Array) -> Array:
        """Norm of each group, shape (G,)."""
        return np.array([self.norm.value(part) for part in self._parts(coef)])

    def dual_norms(self, V: Array) -> Array:
        """Dual norm of each group, shape (G,)."""
        return np.array([self.norm.dual(part) for part in self._parts(V)])

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on the groups' dual norms, shape (G,)."""
        return self.conjugate._bounds_of_groups(V)

    @property
    def _outer(self) -> L1:
        return L1()


@dataclass(frozen=True, eq=False)
class MaxOverGroups(_OverGroups, UndividedNorm):
    r"""The maximum of one norm over groups of gate columns, or of features.

    .. math:: \Omega(\zeta) = \max_g \omega(\zeta_g), \qquad \Omega_*(V) = \sum_g \omega_*(V_g)

    Parameters
    ----------
    norm, groups, axis
        As in `SumOverGroups`.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import L2, MaxOverGroups
    >>> norm = MaxOverGroups(L2(), np.array([0, 0, 1]))
    >>> print(f"{norm.value(np.array([[3.0], [4.0], [6.0]])):.1f}")
    6.0
    """

    @property
    def conjugate(self) -> SumOverGroups:
        """The sum of the groups' dual norms."""
        return SumOverGroups(self.norm.conjugate, self.groups, self.axis)

    @property
    def _outer(self) -> LInf:
        return LInf()


def GroupL2(groups: ArrayLike) -> SumOverGroups:  # noqa: N802 - one of the norms
    r"""Return the sum of Euclidean norms over groups of features: the group lasso.

    .. math:: \Omega(\zeta) = \sum_g \|\zeta_g\|_2, \qquad \Omega_*(V) = \max_g \|V_g\|_2

    Parameters
    ----------
    groups : array_like of int, shape (D,)
        Group of each feature, 0 .. G - 1, none left out.

    Examples
    --------
    >>> GroupL2([0, 0, 1]).value(np.array([[3.0, 4.0, -2.0]]))
    7.0
    """
    return SumOverGroups(L2(), cast(Any, groups), axis=-1)


def as_groups(groups: ArrayLike) -> NDArray[np.int64]:
    """Convert to groups (M,): numbers 0 .. G - 1 without a gap, or names, which are numbered.

    Raises
    ------
    ValueError
        Not a number or a name per feature (or gate column), as lists of the features of each group
        are not; numbers that are left out; names beside others that are none.
    """
    wanted = "groups must be one number or name per feature (or gate column)"
    as_lists = "for lists of features, number the group of each feature instead"
    try:
        given = np.asarray(detached(groups))
    except ValueError:  # numpy's, of lists of several lengths
        raise ValueError(f"{wanted}, got lists of several lengths: {as_lists}") from None
    if given.ndim != 1 or len(given) == 0:
        raise ValueError(f"{wanted}, got shape {given.shape}: {as_lists}")
    # Names are strings of numpy's kinds O, U and T. Numbers may be of kind O, too, as in a table.
    if given.dtype.kind in "OUT" and not all(isinstance(each, Number) for each in given):
        for name in given:
            if not isinstance(name, str):
                raise ValueError(f"{wanted}, got {name!r} among names: name its group, too")
        return np.unique(given, return_inverse=True)[1].astype(np.int64)
    numbers = as_numbers(groups, "groups")
    found = np.unique(numbers)
    if not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            "groups must be one number per feature (or gate column), 0 .. G - 1 with none left "
            f"out, got {found[:10]}: renumber with np.unique(groups, return_inverse=True)[1]"
        )
    return numbers.astype(np.int64)
