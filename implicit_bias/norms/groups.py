"""A norm of each group, of gate columns or of features, and one over these norms."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array, as_numbers, detached
from implicit_bias.norms.entries import INNER, L1, L2, Entrywise, LInf
from implicit_bias.norms.norm import ConjugatedNorm, Partition, Shape, UndividedNorm, exactly


@dataclass(frozen=True, eq=False)
class _OverGroups(ConjugatedNorm):
    """One norm of each of the groups of gate columns, or of features, and one over these norms.

    The norm over them grows with each of them, so that the dual norm is the same of the duals.
    """

    norm: ConjugatedNorm
    groups: NDArray[np.int64]
    axis: int = -2

    def __post_init__(self) -> None:
        if not isinstance(self.norm, ConjugatedNorm):
            raise ValueError(
                f"groups take one of L1, L2, LInf, Lp, Spectral and Nuclear, got {self.norm!r}: a "
                "sum of Euclidean norms is GroupNorm"
            )
        if self.axis not in (-1, -2):
            raise ValueError(f"axis must be -2 (gate columns) or -1 (features), got {self.axis!r}")
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
        return self._outer.bound(exactly(self._bounds(A)))

    def _bounds(self, A: Enclosure) -> Array:
        """Return upper bounds on the norms of the groups, over an enclosure."""
        parts = zip(self._parts(A.value), self._parts(A.radius), strict=True)
        return np.array([self.norm.bound(Enclosure(*part)) for part in parts])

    @final
    def maximiser(self, V: Array) -> Array:
        """Return that of each group, times that of the groups' dual norms."""
        parts = self._parts(V)
        found = np.zeros(V.shape)
        shares = self._outer.maximiser(np.array([self.norm.dual(part) for part in parts]))
        for share, part, places in zip(shares, parts, self._places(V.shape), strict=True):
            if share:
                np.put(found, places, share * self.norm.maximiser(part))
        return found

    @final
    def partition(self, shape: Shape) -> Partition | None:
        """Return the terms of all groups, where the norm sums them or is the largest entry."""
        parts = self._places(shape)
        if self._outer == LInf() and len(parts) > 1:
            found = self.norm.partition(shape)
            largest = found is not None and found.inner == "linf" and not found.groups.any()
            return found if largest else None
        whole, count, kind = np.zeros(shape, dtype=np.int64), 0, INNER[2.0]
        for places in parts:
            found = self.norm.partition(places.shape)
            if found is None:
                return None
            np.put(whole, places, count + found.groups)
            count, kind = count + int(found.groups.max()) + 1, found.inner
        return Partition(whole, kind)

    @final
    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        atoms = [self.norm.atom(zeta[p.ravel()], p.shape, cp) for p in self._places(shape)]
        return sum(atoms) if self._outer == L1() else cp.maximum(*atoms, 0.0)

    def _places(self, shape: Shape) -> list[NDArray[Any]]:
        """Return the places of the groups' entries, in C order."""
        return self._parts(np.arange(math.prod(shape)).reshape(shape))

    @final
    def _parts(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the entries of each group, of an array of the shape of coefficients."""
        if array.shape[self.axis] != len(self.groups):
            columns = "features" if self.axis == -1 else "gate columns"
            raise ValueError(
                f"the norm has groups of {len(self.groups)} {columns}, the coefficients "
                f"{array.shape}"
            )
        groups = range(int(self.groups.max()) + 1)
        return [np.compress(self.groups == g, array, axis=self.axis) for g in groups]


@dataclass(frozen=True, eq=False)
class SumOverGroups(_OverGroups):
    """A sum of one norm over groups of gate columns, or of features.

    Parameters
    ----------
    norm : Norm
        That of each group: any of this module but `GroupNorm`.
    groups : array_like of int, shape (M,) or (D,)
        Group of each gate column (or feature), 0 .. G - 1, none left out.
    axis : {-2, -1}
        -2 for gate columns, -1 for features.

    Raises
    ------
    ValueError
        Groups that are not 0 .. G - 1, or another axis.

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
        return self.conjugate._bounds(V)

    @property
    def _outer(self) -> L1:
        return L1()


@dataclass(frozen=True, eq=False)
class MaxOverGroups(_OverGroups, UndividedNorm):
    """The maximum of one norm over groups of gate columns, or of features.

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
    """Return the sum of Euclidean norms over groups of features: the group lasso.

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
    """Convert to groups (M,); numbers must be 0 .. G - 1, none left out, and names get some.

    Raises
    ------
    ValueError
        Not a number or a name per feature (or gate column); numbers that are left out.
    """
    entries = _entries(groups)
    if lists := [entry for entry in entries if isinstance(entry, (list, tuple, np.ndarray))]:
        raise ValueError(
            "groups must be one number or name per feature (or gate column), not lists of their "
            f"indices: {_as_numbers_in_words(entries)}got {lists[0]!r}"
        )
    if any(isinstance(entry, str) for entry in entries):
        for place, entry in enumerate(entries):
            if not isinstance(entry, str):
                raise ValueError(
                    "groups must be one number or one name per feature (or gate column), but "
                    f"entry {place} is {entry!r} among names: name its group, too"
                )
        return np.unique(np.array(entries), return_inverse=True)[1].astype(np.int64)
    numbers, given = as_numbers(groups, "groups"), np.asarray(detached(groups)).dtype
    whole = given.kind in "iuf" and (numbers == np.floor(numbers)).all()  # np.loadtxt reads floats
    if numbers.ndim != 1 or len(numbers) == 0 or not whole:
        raise ValueError(
            f"groups must be a 1-D array of whole numbers, got {given} {numbers.shape}: number "
            "them, as np.unique(groups, return_inverse=True)[1] does"
        )
    found = np.unique(numbers)
    if not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            "groups must be one number per feature (or gate column), 0 .. G - 1 with none left "
            f"out, got {found[:10]}: renumber with np.unique(groups, return_inverse=True)[1]; of "
            "sizes of groups make numbers with np.repeat(np.arange(len(sizes)), sizes)"
        )
    return numbers.astype(np.int64)


def _entries(groups: ArrayLike) -> list[Any]:
    """Entries of a list or an array of objects; none of what has a type of its own."""
    plain = detached(groups)
    if isinstance(plain, (list, tuple)):
        return list(plain)
    values = np.asarray(plain)
    return values.tolist() if values.dtype.kind in "OUT" and values.ndim == 1 else []


def _as_numbers_in_words(lists: list[Any]) -> str:
    """Say what to pass instead of lists of indices, where these are a partition."""
    try:
        index = np.concatenate([np.asarray(entry) for entry in lists])
        if not np.array_equal(np.sort(index), np.arange(len(index))):
            return ""
        numbers = np.empty(len(index), dtype=np.int64)
        for number, entry in enumerate(lists):
            numbers[np.asarray(entry)] = number
    except (ValueError, TypeError, IndexError):
        return ""
    shown = ", ".join(map(str, numbers[:10].tolist())) + (", ..." if len(numbers) > 10 else "")
    return f"pass [{shown}], "
