r"""The lower bound on the optimum: dual variables, and the dual norm of their V.

        lower = sum_p alpha_p / Omega_*(V),   V = sum_n a_n (x) phi_n,   a_n = sum of alpha_p b_p,

for any alpha >= 0 (and at most sum_p alpha_p times the least C_n / sum of a sample's alpha_p, with
a soft margin). With an intercept sum_n a_n must be 0, exactly, or the bound is 0. The sum is
rounded down and the norm up: V is known up to the rounding errors of its products (`rounding`), and
these are evaluated again with more digits where the bound suffers from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import rounding
from implicit_bias.base.validation import Array, as_finite, check_shape
from implicit_bias.bounds.balance import balanced, is_balanced
from implicit_bias.norms import GroupNorm, Norm
from implicit_bias.problem import Features, MarginProblem, are_few


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Dual variables times 2^-exponent, the largest alpha_p ||phi_p|| about 1.

    Attributes
    ----------
    problem : MarginProblem
        The problem.
    values : ndarray of shape (R,)
        alpha of its constraints, times 2^-exponent.
    exponent : int
        That of the power of two.
    precise : Enclosure of shape (G,), optional
        ||V_g||, where they were evaluated with more digits.
    """

    problem: MarginProblem
    values: Array
    exponent: int
    precise: rounding.Enclosure | None = None

    @classmethod
    def of(cls, problem: MarginProblem, given: ArrayLike) -> DualPoint:
        """Check dual variables in the problem's shape, and bring them to a size of about 1.

        Raises
        ------
        ValueError
            Another shape, NaN, negative, or not 0 at a sample's own class.
        """
        values = checked_values(problem, as_finite(given, "alpha", len(problem.alpha_shape)))
        unit = unit_values(problem, values)
        exponents = [math.frexp(part.max(initial=0.0))[1] for part in (values, unit)]
        return cls(problem, unit, exponents[0] - exponents[1])

    @cached_property
    def norms(self) -> rounding.Enclosure:
        """||V_g||, shape (G,): the terms of Omega_*(V)."""
        if self.precise is not None:
            return self.precise
        rows = self.problem.constraints
        return dual_norms(self.problem, rows.weights(self.values), roundings=rows.n_classes - 2)

    def scale(self, exponent: int) -> float:
        """Largest c for which c 2^exponent times the values is feasible; inf where V = 0."""
        largest = float(self.norms.value.max())
        by_norm = float(rounding.ldexp(1.0 / largest, -exponent)) if largest > 0 else np.inf
        totals = rounding.ldexp(self.problem.constraints.totals(self.values), exponent)
        boxed = totals > 0
        return min(by_norm, float((self.problem.box[boxed] / totals[boxed]).min(initial=np.inf)))

    def balanced(self) -> DualPoint:
        """Return a point near this one that obeys the equation of an intercept, if there is one."""
        if not self.problem.intercept:
            return self
        values = balanced(self.problem.constraints, self.values)
        return replace(self, values=values, precise=None)

    def scaled(self) -> DualPoint:
        """Return the feasible point, balanced where there is an intercept, as it is stored.

        Dual variables that are feasible up to a solver's own rounding (`rounding.NEAR`) stay.
        """
        problem, rows, point = self.problem, self.problem.constraints, self.balanced()
        if not point.values.any():
            return point
        for exponent in (self.exponent, 0):  # c may be beyond float64 in the units of one of them
            c, alpha = point.scale(exponent), rounding.ldexp(point.values, exponent)
            total = float(alpha.sum())
            if c >= rounding.SMALLEST_NORMAL and c * total < rounding.LARGEST:
                break
        else:
            c = 1.0 / total
        near = exponent == self.exponent and abs(c - 1.0) <= rounding.NEAR
        values = in_box(problem, alpha if near else alpha * c)
        if problem.intercept:
            values = balanced(rows, values, problem.box)
        if near and np.array_equal(values, alpha):
            return point
        return DualPoint.of(problem, rows.alpha(values))

    def refined(self) -> DualPoint:
        """Evaluate V with more digits."""
        precise = precise_dual_norms(self.problem, *self._weights_and_rest())
        return replace(self, precise=precise)

    def _weights_and_rest(self) -> tuple[Array, Array]:
        """Return a_n (N, K'), and what rounding took from the sums over a sample's rivals."""
        rows = self.problem.constraints
        weights, rest = rows.weights(self.values), np.zeros((rows.n_samples, rows.width))
        if rows.n_classes == 2:
            return weights, rest
        for n, (own, terms) in enumerate(zip(rows.own, rows.by_sample(self.values), strict=True)):
            weights[n, own] = math.fsum(terms.tolist())
            rest[n, own] = math.fsum([*terms.tolist(), -weights[n, own]])
        return weights, rest

    @property
    def alpha(self) -> Array:
        """The dual variables, about 1, in the problem's shape."""
        return self.problem.constraints.alpha(self.values)

    @property
    def as_given(self) -> Array:
        """The dual variables in the problem's shape and units."""
        return rounding.ldexp(self.alpha, self.exponent)

    @cached_property
    def sum(self) -> float:
        """sum_p alpha_p; 0 where that does not bound, for the intercept's sake."""
        if self.problem.intercept and not is_balanced(self.problem.constraints, self.values):
            return 0.0
        return rounding.down(math.fsum(self.values[self.values > 0].tolist()))

    @cached_property
    def bound(self) -> float:
        """The lower bound."""
        return self._value(float(self.norms.magnitude.max()))

    @cached_property
    def central(self) -> float:
        """The lower bound without allowance for rounding."""
        return self._value(float(self.norms.value.max()))

    @property
    def allowance(self) -> float:
        """Share of the lower bound that rounding may cost; inf where it may be all."""
        bound, central = self.bound, self.central
        if bound == central:
            return 0.0
        return central / bound - 1.0 if bound > 0 else math.inf

    @property
    def scaled_norms(self) -> Array:
        """||V_g|| (G,) of feasible alpha."""
        norms = np.minimum(self.norms.magnitude, rounding.LARGEST)
        largest = float(norms.max())
        if largest == 0 or self.sum == 0:
            return norms
        return np.asarray(norms / largest * min(1.0, self._by_box / self.sum * largest))

    @property
    def gordan_ratio(self) -> float:
        """sum_n alpha_n ||phi_n|| / max_g ||V_g(alpha)||, phi_n the features of sample n.

        Bounded from below, up to the rounding of the sum. Unlike the lower bound it does not change
        with the scale of single samples, as separability does not: with all features scaled to norm
        1, the margin of any separator of norm 1 is at most its inverse.
        """
        problem, largest = self.problem, float(self.norms.magnitude.max())
        total = float(problem.constraints.totals(self.values) @ problem.feature_norms)
        return total / largest if largest > 0 else math.inf

    @cached_property
    def _by_box(self) -> float:
        """sum_p alpha_p, rounded down, where a sample's total is its C, and no other's is more."""
        if self.problem.hard_margin:
            return math.inf
        rows = self.problem.constraints
        totals = rows.totals(self.values) * (1.0 + rounding.gamma(rows.n_classes - 2))
        parts = np.nextafter(totals / self.sum, np.inf)  # of the sum
        return rounding.down(float((self.problem.box / parts)[totals > 0].min(initial=np.inf)))

    def _value(self, largest: float) -> float:
        if self.sum == 0 or math.isnan(largest):
            return 0.0
        by_norm = (
            min(rounding.down(self.sum / largest), rounding.LARGEST) if largest > 0 else math.inf
        )
        return min(by_norm, self._by_box)


def checked_values(problem: MarginProblem, alpha: NDArray[Any]) -> NDArray[Any]:
    """Check dual variables, float64 or exact, and return those of the constraints, (R,).

    Raises
    ------
    ValueError
        Another shape than the problem's, negative, or not 0 at a sample's own class.
    """
    check_shape(alpha, "alpha", problem.alpha_shape, "one entry a sample, or (N, K)")
    rows = problem.constraints
    values = rows.values(alpha)
    if alpha.ndim > 1 and (rows.alpha(values) != alpha).any():
        raise ValueError("alpha must be 0 at each sample's own class: alpha[n, y[n]] = 0")
    if (values < 0).any():
        smallest = float(min(values))
        raise ValueError(f"alpha must not be negative, got {smallest:.3g}: clip it at 0")
    return values


def unit_values(problem: MarginProblem, values: Array) -> Array:
    """Return alpha (R,) times a power of two such that the largest alpha_p ||phi_p|| is about 1."""
    return rounding.unit_weights(values, problem.feature_norms[problem.constraints.samples])


def in_box(problem: MarginProblem, values: Array) -> Array:
    """Return alpha (R,) scaled so that no sample has more than its C in all.

    One factor for all entries, which costs its share of the bound. Entries that were cut one by one
    would no longer cancel in V(alpha), which costs far more.
    """
    totals = problem.constraints.totals(values)
    beyond = totals > problem.box
    if not beyond.any():
        return values
    share = float((problem.box[beyond] / totals[beyond]).min())
    return values * (share * (1.0 - rounding.gamma(problem.constraints.n_classes + 1)))


def dual_norms(problem: MarginProblem, weights: Array, roundings: int = 0) -> rounding.Enclosure:
    """Terms of Omega_*(V), (G,), of weights a_n (N, K') that have this many roundings.

    Where the norm depends on the norms of the rows of V alone, their errors cost less to bound.
    """
    features, norm = problem.features, problem.norm
    columns = _columns(features, weights)
    gates, X = features.fast_gates, features.X
    if isinstance(norm, GroupNorm):
        of_each = gates, X, features.input_norms
        few = are_few(gates)
        rows = [rounding.dual_vector_norms(*of_each, w, few, roundings) for w in columns]
        return norm.of_rows(_joined(rows))
    return _norms_of(norm, [rounding.dual_vectors(gates, X, w, roundings) for w in columns])


def precise_dual_norms(problem: MarginProblem, weights: Array, rest: Array) -> rounding.Enclosure:
    """Terms of Omega_*(V), (G,), of weights + rest (N, K'), V with about 28 digits."""
    features, norm = problem.features, problem.norm
    columns = zip(_columns(features, weights), _columns(features, rest), strict=True)
    return _norms_of(norm, [_precise_dual_vectors(features, *pair) for pair in columns])


def _precise_dual_vectors(features: Features, weights: Array, rest: Array) -> rounding.Enclosure:
    """V (M, D) of a class, of weights + rest (N,), with more digits."""
    value, radius = np.zeros(features.shape), np.zeros(features.shape)
    for columns, V in rounding.precise_dual_vectors(features.fast_gates, features.X, weights):
        value[:, columns], radius[:, columns] = V.value, V.radius
    if rest.any():
        small = rounding.dual_vectors(features.fast_gates, features.X, rest, 1)
        value += small.value
        radius += small.radius + 2 * rounding.UNIT * np.abs(value)
    return rounding.Enclosure(value, rounding.SAFETY * radius)


def _columns(features: Features, weights: Array) -> list[Array]:
    """Weights (N,) of each class, of the samples that have features."""
    seen = np.where(features.zero[:, None], 0.0, weights)
    return [np.ascontiguousarray(column) for column in seen.T]


def _norms_of(norm: Norm, parts: list[rounding.Enclosure]) -> rounding.Enclosure:
    """Omega_* (G,) of V (K', M, D), whose parts (M, D) are those of the classes."""
    V = rounding.Enclosure(np.stack([V.value for V in parts]), np.stack([V.radius for V in parts]))
    value = norm.dual_norms(V.value)
    return rounding.Enclosure(value, np.maximum(norm.dual_bounds(V) - value, 0.0))


def _joined(parts: list[rounding.Enclosure]) -> rounding.Enclosure:
    """Return one part after the other."""
    value = np.concatenate([part.value for part in parts])
    return rounding.Enclosure(value, np.concatenate([part.radius for part in parts]))
