"""Sums and maxima of a norm over groups of gate columns or features, and norms in rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import Enclosure, sum_up
from implicit_bias.base.validation import Array, check_not_masked
from implicit_bias.norms.entries import INNER, L2
from implicit_bias.norms.norm import BoundedNorm, ConjugatedNorm, Norm, Partition, Shape, SumNorm


@dataclass(frozen=True, eq=False)
class _OverGroups(Norm):
    """One norm of each of the groups of gate columns, or of features."""

    treats_classes_alike: ClassVar[bool] = True

    norm: ConjugatedNorm
    groups: NDArray[np.int64]
    axis: int = -2

    def __post_init__(self) -> None:
        _check_parts(self.norm, self.axis)
        object.__setattr__(self, "groups", as_groups(self.groups))

    def _parts(self, coef: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the parts of coefficients that belong to each group, by group."""
        if coef.shape[self.axis] != len(self.groups):
            columns = "features" if self.axis == -1 else "gate columns"
            raise ValueError(
                f"the norm has groups of {len(self.groups)} {columns}, the coefficients "
                f"{coef.shape}"
            )
        groups = range(int(self.groups.max()) + 1)
        return [np.compress(self.groups == g, coef, axis=self.axis) for g in groups]

    def _bounds(self, norm: ConjugatedNorm, A: Enclosure) -> list[float]:
        """Return upper bounds on the norms of the groups, over an enclosure."""
        parts = zip(self._parts(A.value), self._parts(A.radius), strict=True)
        return [norm.bound(Enclosure(*part)) for part in parts]

    def _put(self, array: NDArray[Any], g: int, part: NDArray[Any]) -> None:
        """Set one group's part of an array."""
        last = np.moveaxis(array, self.axis, -1)  # a view
        last[..., self.groups == g] = np.moveaxis(part, self.axis, -1)

    def _atoms(self, zeta: Any, shape: Shape, cp: Any) -> list[Any]:
        """Return the norms of the groups as CVXPY expressions."""
        places = self._parts(np.arange(math.prod(shape)).reshape(shape))
        return [self.norm.atom(zeta[part.ravel()], part.shape, cp) for part in places]


@dataclass(frozen=True, eq=False)
class SumOverGroups(_OverGroups, SumNorm, BoundedNorm):
    """A sum of one norm over groups of gate columns, or of features.

    Parameters
    ----------
    norm : Norm
        That of each group: any of this module but `GroupNorm` and sums.
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

    def group_norms(self, coef: Array) -> Array:
        """Norm of each group, shape (G,)."""
        return np.array([self.norm.value(part) for part in self._parts(coef)])

    def dual_norms(self, V: Array) -> Array:
        """Dual norm of each group, shape (G,)."""
        return np.array([self.norm.dual(part) for part in self._parts(V)])

    def _bound(self, A: Enclosure) -> float:
        return sum_up(self._bounds(self.norm, A))

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on the groups' dual norms, shape (G,)."""
        return np.array(self._bounds(self.norm.conjugate, V))

    def maximiser(self, V: Array) -> Array:
        """Return that of the group with the largest dual norm."""
        best = int(self.dual_norms(V).argmax())
        found = np.zeros_like(V, dtype=np.float64)
        self._put(found, best, self.norm.maximiser(self._parts(V)[best]))
        return found

    def partition(self, shape: Shape) -> Partition | None:
        """Return the groups of the groups, where the norm of each is a sum over groups."""
        whole, count, inner = np.zeros(shape, dtype=np.int64), 0, INNER[2.0]
        for g, part in enumerate(self._parts(whole)):
            found = self.norm.partition(part.shape)
            if found is None:
                return None
            self._put(whole, g, count + found.groups)
            count, inner = count + int(found.groups.max()) + 1, found.inner
        return Partition(whole, inner)

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return sum(self._atoms(zeta, shape, cp))


@dataclass(frozen=True, eq=False)
class MaxOverGroups(_OverGroups, ConjugatedNorm):
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
    def conjugate(self) -> ConjugatedNorm:
        """The sum of the groups' dual norms."""
        return _SumInOne(SumOverGroups(self.norm.conjugate, self.groups, self.axis))

    def value(self, coef: Array) -> float:
        """Maximum of the groups' norms."""
        return max(self.norm.value(part) for part in self._parts(coef))

    def _bound(self, A: Enclosure) -> float:
        return max(self._bounds(self.norm, A))

    def maximiser(self, V: Array) -> Array:
        """Return those of all groups."""
        found = np.zeros_like(V, dtype=np.float64)
        for g, part in enumerate(self._parts(V)):
            self._put(found, g, self.norm.maximiser(part))
        return found

    def partition(self, shape: Shape) -> Partition | None:
        """Return that of a single group's norm, if there is one group only, or maxima."""
        found = self.norm.partition(shape)
        single = self.groups.max() == 0 or (
            found is not None and found.inner == "linf" and found.groups.max() == 0
        )
        return found if single else None

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return cp.maximum(*self._atoms(zeta, shape, cp), 0.0)


@dataclass(frozen=True, eq=False)
class _SumInOne(ConjugatedNorm):
    """A sum over groups as one norm: the dual of a maximum."""

    whole: SumOverGroups

    @property
    def conjugate(self) -> MaxOverGroups:
        return MaxOverGroups(self.whole.norm.conjugate, self.whole.groups, self.whole.axis)

    def value(self, coef: Array) -> float:
        return self.whole.value(coef)

    def _bound(self, A: Enclosure) -> float:
        return self.whole.bound(A)

    def maximiser(self, V: Array) -> Array:
        return self.whole.maximiser(V)

    def partition(self, shape: Shape) -> Partition | None:
        return self.whole.partition(shape)

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        return self.whole.atom(zeta, shape, cp)


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
    return SumOverGroups(L2(), np.asarray(groups), axis=-1)


def _check_parts(norm: object, axis: int) -> None:
    if not isinstance(norm, ConjugatedNorm):
        raise ValueError(
            f"groups take one of L1, L2, LInf, Lp, Spectral and Nuclear, got {norm!r}: a sum of "
            "Euclidean norms with a metric is GroupNorm"
        )
    if axis not in (-1, -2):
        raise ValueError(f"axis must be -2 (gate columns) or -1 (features), got {axis!r}")


@dataclass(frozen=True, eq=False)
class InRows(SumNorm):
    """A norm that takes the coefficients of two classes as a matrix of several rows.

    Of coefficients (R M, D), or (1, R M, D), it is the norm of (R, M, D): columns r M + m of the
    gates are column m of row r.

    Parameters
    ----------
    norm : Norm
        Of coefficients (R, M, D).
    n_rows : int
        R.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.norms import InRows, L2, Nuclear
    >>> coef = np.array([[1.0, 0.0], [0.0, 1.0]])  # two rows of one gate column each
    >>> InRows(Nuclear(), 2).value(coef), round(L2().value(coef), 4)
    (2.0, 1.4142)
    """

    norm: Norm
    n_rows: int

    def maximiser(self, V: Array) -> Array:
        """Return that of the rows."""
        return self.norm.maximiser(self._folded(V)).reshape(V.shape)

    def group_norms(self, coef: Array) -> Array:
        """Return the terms of Omega, shape (G,)."""
        return self.norm.group_norms(self._folded(coef))

    def dual_norms(self, V: Array) -> Array:
        """Return the terms of Omega_*, shape (G,)."""
        return self.norm.dual_norms(self._folded(V))

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as a real number."""
        return self.norm.value_bound(self._folded(coef))

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return upper bounds on the dual norms, shape (G,)."""
        folded = Enclosure(self._folded(V.value), self._folded(V.radius))
        return self.norm.dual_bounds(folded)

    def partition(self, shape: Shape) -> Partition | None:
        """Return that of the rows."""
        found = self.norm.partition(self._folded_shape(shape))
        return None if found is None else Partition(found.groups.reshape(shape), found.inner)

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Say it in CVXPY."""
        return self.norm.atom(zeta, self._folded_shape(shape), cp)

    def _folded_shape(self, shape: Shape) -> Shape:
        columns, rest = divmod(math.prod(shape[:-1]), self.n_rows)
        if rest:
            raise ValueError(
                f"a norm of {self.n_rows} rows needs as many times the same gate columns, got "
                f"coefficients {shape}"
            )
        return self.n_rows, columns, shape[-1]

    def _folded(self, coef: Array) -> Array:
        # Row-major: the columns of a row lie together.
        return coef.reshape(self._folded_shape(coef.shape))


def as_groups(groups: ArrayLike) -> NDArray[np.int64]:
    """Convert to groups (M,) and refuse all but 0 .. G - 1, none left out."""
    check_not_masked(groups, "groups")
    array = np.asarray(groups)
    if array.dtype.kind == "f" and (array == np.floor(array)).all():  # as np.loadtxt reads them
        array = array.astype(np.int64)
    if array.ndim != 1 or len(array) == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"groups must be a 1-D array of whole numbers, got {array.dtype} {array.shape}: number "
            "them, as np.unique(groups, return_inverse=True)[1] does"
        )
    found = np.unique(array)
    if not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            f"groups must be numbered 0 .. G - 1 with none left out, got {found[:10]}: "
            "renumber with np.unique(groups, return_inverse=True)[1]"
        )
    return array.astype(np.int64)
