"""Norms by name, custom norms, and the structure of norms that solvers use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.options import NORM_SYNONYMS
from implicit_bias.base.rounding import SAFETY, Enclosure, gamma
from implicit_bias.base.validation import Array, UnsuitableError, check_choice
from implicit_bias.norms.entries import L1, L2, Entrywise, LInf, Lp
from implicit_bias.norms.groups import MaxOverGroups, SumOverGroups
from implicit_bias.norms.matrices import Nuclear, OfSingularValues, Schatten, Spectral
from implicit_bias.norms.norm import (
    ConjugatedNorm,
    HasAtom,
    HasValueAndDual,
    Norm,
    OneGroupNorm,
    Shape,
)


def as_norm(norm: Norm | HasValueAndDual | str, groups: ArrayLike | None = None) -> Norm:
    """Return a norm from an object or a name.

    Parameters
    ----------
    norm : Norm, str, or object with ``value`` and ``dual``
        Names are "l1", "l2", "linf", "spectral" and "nuclear".
    groups : array_like of int or str, shape (D,), optional
        Group of each feature: the sum of the norm over these groups. Names are numbered in the
        order of ``np.unique``.

    Raises
    ------
    ValueError
        No such name, or groups with a norm that cannot be summed over them, such as a custom one.
    TypeError
        Neither a name, nor a norm.

    Examples
    --------
    >>> as_norm("linf").dual(np.array([[3.0, -4.0]]))
    7.0
    """
    if groups is not None:
        return SumOverGroups(cast(ConjugatedNorm, as_norm(norm)), cast(Any, groups), axis=-1)
    if isinstance(norm, str):
        check_choice(norm, "norm", NAMES, "an object such as Lp(3)", NORM_SYNONYMS)
        return NAMES[norm]
    if isinstance(norm, Norm):
        return norm
    if isinstance(norm, type) or not isinstance(norm, HasValueAndDual):
        raise TypeError(
            f"norm must be a name or an object with value(coef) and dual(V), got {norm!r}: pass "
            "one of implicit_bias.norms, such as L1()"
        )
    return OwnNorm(norm)


def as_norm_of_one_row(norm: Norm) -> Norm:
    """Return an equal norm of coefficients (1, M, D) that ignores their first axis.

    A single row has one singular value, its Euclidean norm.

    Examples
    --------
    >>> as_norm_of_one_row(SumOverGroups(Nuclear(), [0, 1, 1], axis=-1)).norm
    L2()
    """
    if isinstance(norm, OfSingularValues):
        return L2()
    if isinstance(norm, SumOverGroups | MaxOverGroups):
        return replace(norm, norm=cast(ConjugatedNorm, as_norm_of_one_row(norm.norm)))
    return norm


class AtomError(ValueError):
    """The `atom` of a custom norm failed: no trouble of a solver."""


@dataclass(frozen=True, eq=False)
class OwnNorm(OneGroupNorm):
    """A norm that is given by its value and its dual alone.

    Both are trusted up to 16 roundings per entry. Over an enclosure of V the triangle
    inequality gives the bound Omega_*(V + E) <= Omega_*(V) + sum_j radius_j Omega_*(e_j).

    Parameters
    ----------
    given : object with ``value(coef)`` and ``dual(V)``
        The norm; for a solver with ``atom(zeta, shape, cp)``, too.
    """

    # Per entry: of an array of n entries, value and dual have relative error gamma(16 (n + 4)).
    roundings: ClassVar[int] = 16

    given: HasValueAndDual
    _unit_duals: dict[Shape, Array] = field(default_factory=dict, init=False, repr=False)

    def value(self, coef: Array) -> float:
        """Omega of coefficients."""
        return float(self.given.value(coef))

    def dual(self, V: Array) -> float:
        """Omega_* of V."""
        return float(self.given.dual(V))

    def value_bound(self, coef: Array) -> float:
        """Return an upper bound on Omega, as far as its value can be trusted."""
        return self.value(coef) * (1.0 + SAFETY * gamma(self.roundings * (coef.size + 4)))

    def dual_bounds(self, V: Enclosure) -> Array:
        """Return an upper bound on Omega_*, shape (1,)."""
        rounding = 1.0 + SAFETY * gamma(self.roundings * (V.value.size + 4))
        of_radius = 0.0
        if V.radius.any():
            of_radius = float((V.radius * self._duals_of_units(V.value.shape)).sum())
        return np.array([(self.dual(V.value) + of_radius) * rounding])

    def maximiser(self, V: Array) -> Array:
        """Refuse: value and dual alone do not give it at a low cost."""
        raise NotImplementedError(f"{self.given!r} has no maximiser")

    def partition(self, shape: Shape) -> None:
        """Return None: nothing is known of its structure."""
        return

    def atom(self, zeta: Any, shape: Shape, cp: Any) -> Any:
        """Return the norm in CVXPY, where it has an expression."""
        if not isinstance(self.given, HasAtom):
            raise UnsuitableError(
                f"{self.given!r} has no expression for CVXPY, so no solver takes it: give it a "
                "method atom(zeta, shape, cp), or certify your coefficients"
            )
        try:
            return self.given.atom(zeta, shape, cp)
        except Exception as error:
            raise AtomError(
                f"{type(self.given).__name__}.atom failed on coefficients of shape {shape}, which "
                f"it gets flattened in C order: {type(error).__name__}: {error}"
            ) from error

    def _duals_of_units(self, shape: Shape) -> Array:
        """Omega_*(e_j) of the unit vector of each entry j, as an array of this shape."""
        # They cost a dual norm per entry: each shape's are kept.
        if shape not in self._unit_duals:
            units = np.zeros(shape)
            found = np.zeros(shape)
            for place in np.ndindex(shape):
                units[place] = 1.0
                found[place] = self.dual(units)
                units[place] = 0.0
            self._unit_duals[shape] = found
        return self._unit_duals[shape]


NAMES: dict[str, Norm] = {
    "l1": L1(),
    "l2": L2(),
    "linf": LInf(),
    "spectral": Spectral(),
    "nuclear": Nuclear(),
}


def name_of(norm: Norm) -> str:
    """Return a norm's name as text, or that of its class."""
    if isinstance(norm, SumOverGroups):
        return f"{name_of(norm.norm)} over groups"
    for name, known in NAMES.items():
        if known == norm:
            return name
    if isinstance(norm, Lp | Schatten):
        return repr(norm)
    if isinstance(norm, OwnNorm):
        return type(norm.given).__name__
    return type(norm).__name__


def entries_of(norm: Norm) -> Entrywise | None:
    """Return the l_p norm, p other than 2, that a norm is or sums over groups; else None."""
    inner = norm
    if isinstance(norm, SumOverGroups):
        inner = norm.norm
    if isinstance(inner, Entrywise) and inner.exponent != 2.0:
        return inner
    return None


def is_of_singular_values(norm: Norm) -> bool:
    """Whether built-in solvers take a norm as one of the classes' singular values.

    These are the spectral and the nuclear norm, and the sum of nuclear norms over groups of gates.
    """
    return norm in (Nuclear(), Spectral()) or nuclear_groups(norm) is not None


def nuclear_groups(norm: Norm) -> NDArray[np.int64] | None:
    """Return the group of each gate column, if a norm is the sum of the groups' nuclear norms."""
    if isinstance(norm, SumOverGroups) and norm.norm == Nuclear() and norm.axis == -2:
        return np.asarray(norm.groups)
    return None
