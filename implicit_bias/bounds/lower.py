r"""The lower bound on the optimum: dual variables, and the dual norm of their V.

        lower = sum_p alpha_p / Omega_*(V),   V = sum_n a_n (x) phi_n,   a_n = sum of alpha_p b_p,

for any alpha >= 0. That is the sum of alpha scaled until Omega_*(V) = 1. With a soft margin the
scaling ends before, if the alpha_p of some sample n sum to C_n. With an intercept sum_n a_n must be
0, exactly, or the bound is 0.

The sum is rounded down and the norm up: V is known up to the rounding errors of its products
(`products`), and these are evaluated again with more digits where the bound suffers from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.rounding import (
    LARGEST,
    SAFETY,
    UNIT,
    Enclosure,
    down,
    gamma,
    times_two_to,
)
from implicit_bias.base.validation import Array, as_finite, check_shape
from implicit_bias.bounds.balance import balanced, is_balanced
from implicit_bias.bounds.products import (
    dual_vector_norms,
    dual_vectors,
    precise_dual_vectors,
    unit_weights,
)
from implicit_bias.norms import GroupNorm, Norm
from implicit_bias.problem import Features, MarginProblem, sparse_is_faster

# A scale that differs from 1 by less is a solver's rounding: its dual variables are not rescaled.
NEAR = 1e-11


def checked_alpha(problem: MarginProblem, given: ArrayLike, name: str = "alpha") -> Array:
    """Check dual variables of a caller, and return those of the constraints, (R,).

    Raises
    ------
    ValueError
        Another shape than the problem's, NaN, negative, or not 0 at a sample's own class.
    """
    alpha = as_finite(given, name, len(problem.alpha_shape))
    check_shape(alpha, name, problem.alpha_shape, "one entry per sample, or (N, K)")
    values = problem.constraints.alpha_of_rows(alpha)
    # What the constraints do not take from alpha are the entries of samples' own classes.
    if (problem.constraints.alpha(values) != alpha).any():
        raise ValueError(f"{name} must be 0 at each sample's own class: {name}[n, y[n]] = 0")
    if (values < 0).any():
        raise ValueError(f"{name} must not be negative, got {values.min():.3g}: clip it at 0")
    return values


@dataclass(frozen=True, eq=False)
class DualPoint:
    """Dual variables times 2^-exponent, the largest alpha_p ||phi_p|| about 1.

    Attributes
    ----------
    problem : MarginProblem
        The problem.
    values : ndarray of shape (R,)
        alpha of its constraints, not negative, times 2^-exponent.
    exponent : int
        That of the power of two.
    precise : Enclosure of shape (G,), optional
        ||V_g||, where they were evaluated with more digits.
    """

    problem: MarginProblem
    values: Array
    exponent: int
    precise: Enclosure | None = None

    @classmethod
    def of(cls, problem: MarginProblem, values: Array) -> DualPoint:
        """Bring dual variables of the constraints, (R,), to a size of about 1."""
        # Powers of two change no digits: the exponent can be read off the largest entry.
        scaled = unit_values(problem, values)
        before = math.frexp(values.max(initial=0.0))[1]
        after = math.frexp(scaled.max(initial=0.0))[1]
        return cls(problem, scaled, before - after)

    @cached_property
    def norms(self) -> Enclosure:
        """||V_g||, shape (G,): the terms of Omega_*(V)."""
        if self.precise is not None:
            return self.precise
        rows = self.problem.constraints
        return dual_norms(self.problem, rows.weights(self.values), roundings=rows.n_classes - 2)

    # --- the bound

    @cached_property
    def bound(self) -> float:
        """The lower bound."""
        return self._bound_of(float(self.norms.magnitude.max()))

    @cached_property
    def central(self) -> float:
        """The lower bound without allowance for rounding."""
        return self._bound_of(float(self.norms.value.max()))

    @property
    def allowance(self) -> float:
        """Fraction of the lower bound that rounding may cost; inf where it may be all."""
        if self.bound == self.central:
            return 0.0
        if self.bound == 0:
            return math.inf
        return self.central / self.bound - 1.0

    def _bound_of(self, norm: float) -> float:
        """Return the lower bound where Omega_*(V) is at most this."""
        if self.sum == 0 or math.isnan(norm):
            return 0.0
        if norm == 0:  # V is exactly 0, so that the boxes alone bound alpha
            return self._sum_in_boxes
        # alpha is scaled until Omega_*(V) is 1 or a sample reaches its C, whichever comes first.
        return min(down(self.sum / norm), LARGEST, self._sum_in_boxes)

    @cached_property
    def sum(self) -> float:
        """sum_p alpha_p, rounded down; 0 where alpha does not obey the equation of an intercept."""
        if self.problem.intercept and not is_balanced(self.problem.constraints, self.values):
            return 0.0
        return down(math.fsum(self.values[self.values > 0].tolist()))

    @cached_property
    def _sum_in_boxes(self) -> float:
        """sum_p alpha_p, rounded down, of alpha scaled until a sample reaches its C.

        inf with a hard margin, which has no C to reach.
        """
        if self.problem.hard_margin:
            return math.inf
        rows = self.problem.constraints
        totals = rows.totals(self.values) * (1.0 + gamma(rows.n_classes - 2))
        # A sample with the fraction r_n of the sum reaches C_n when the sum is C_n / r_n.
        fractions = np.nextafter(totals / self.sum, np.inf)
        reached = (self.problem.box / fractions)[totals > 0]
        return down(float(reached.min(initial=np.inf)))

    @property
    def scaled_norms(self) -> Array:
        """||V_g|| (G,) of feasible alpha."""
        norms = np.minimum(self.norms.magnitude, LARGEST)
        largest = float(norms.max())
        if largest == 0 or self.sum == 0:
            return norms
        # Scaled until the largest is 1. Where a sample reaches its C before, the sum is smaller by
        # the factor `_sum_in_boxes` / (sum / largest), and so are the norms.
        return np.asarray(norms / largest * min(1.0, self._sum_in_boxes / self.sum * largest))

    @property
    def gordan_ratio(self) -> float:
        """sum_n alpha_n ||phi_n|| / max_g ||V_g(alpha)||, phi_n the features of sample n.

        It is rounded down, but for the rounding of the sum. Unlike the lower bound, and like
        separability, it does not depend on the scale of single samples: with all features scaled to
        norm 1, the margin of any separator of norm 1 is at most the inverse of this ratio.
        """
        largest = float(self.norms.magnitude.max())
        if not largest > 0:
            return math.inf
        totals = self.problem.constraints.totals(self.values)
        return float(totals @ self.problem.feature_norms) / largest

    # --- other points

    def refined(self) -> DualPoint:
        """Evaluate V with more digits."""
        rows = self.problem.constraints
        weights = rows.weights(self.values)
        rest = np.zeros_like(weights)
        if rows.n_classes > 2:
            # The weight of a sample's own class is the sum of its alpha_p; ``rest`` is what its
            # rounding leaves out.
            by_sample = rows.by_sample(self.values).tolist()
            for n, (label, terms) in enumerate(zip(rows.sample_classes, by_sample, strict=True)):
                weights[n, label] = math.fsum(terms)
                rest[n, label] = math.fsum([*terms, -weights[n, label]])
        return replace(self, precise=precise_dual_norms(self.problem, weights, rest))

    def balanced(self) -> DualPoint:
        """Return a point near this one that obeys the equation of an intercept, if there is one."""
        if not self.problem.intercept:
            return self
        values = balanced(self.problem.constraints, self.values)
        return replace(self, values=values, precise=None)

    def scale(self, exponent: int) -> float:
        """Largest c for which c 2^exponent times the values is feasible; inf if V = 0."""
        largest = float(self.norms.value.max())
        by_norm = math.inf
        if largest > 0:
            by_norm = float(times_two_to(1.0 / largest, -exponent))
        totals = times_two_to(self.problem.constraints.totals(self.values), exponent)
        some = totals > 0
        by_box = float((self.problem.box[some] / totals[some]).min(initial=np.inf))
        return min(by_norm, by_box)

    def scaled(self) -> DualPoint:
        """Return the feasible point, balanced where there is an intercept, as it is stored.

        Dual variables that are feasible up to a solver's own rounding (`NEAR`) stay.
        """
        problem = self.problem
        rows = problem.constraints
        point = self.balanced()
        if not point.values.any():
            return point
        # The alpha that was given, 2^exponent times the values, stays if it needs no scaling. Else
        # the values are scaled, for which the exponent does not matter.
        near = abs(point.scale(self.exponent) - 1.0) <= NEAR
        if near:
            alpha = times_two_to(point.values, self.exponent)
        else:
            c = point.scale(0)
            if math.isinf(c):  # V is exactly 0: any scale is feasible, as the one of sum 1
                c = 1.0 / float(point.values.sum())
            alpha = point.values * c
        values = in_box(problem, alpha)
        if problem.intercept:
            values = balanced(rows, values, problem.box)
        if near and np.array_equal(values, alpha):
            return point
        return DualPoint.of(problem, values)

    @property
    def alpha(self) -> Array:
        """The dual variables, about 1, in the problem's shape."""
        return self.problem.constraints.alpha(self.values)

    @property
    def as_given(self) -> Array:
        """The dual variables in the problem's shape and units."""
        return times_two_to(self.alpha, self.exponent)


def unit_values(problem: MarginProblem, values: Array) -> Array:
    """Return alpha (R,) times a power of two such that the largest alpha_p ||phi_p|| is about 1."""
    return unit_weights(values, problem.feature_norms[problem.constraints.samples])


def in_box(problem: MarginProblem, values: Array) -> Array:
    """Return alpha (R,) scaled so that no sample has more than its C in all.

    One factor for all entries, which costs its fraction of the bound. Entries that were cut one by
    one would no longer cancel in V(alpha), which costs far more.
    """
    totals = problem.constraints.totals(values)
    beyond = totals > problem.box
    if not beyond.any():
        return values
    factor = float((problem.box[beyond] / totals[beyond]).min())
    return values * (factor * (1.0 - gamma(problem.constraints.n_classes + 1)))


# --- the dual norm of V ----------------------------------------------------------------------


class HasFeatures(Protocol):
    """A margin problem or an interpolation problem: what its dual norms depend on."""

    @property
    def features(self) -> Features:
        """Features of the samples."""

    @property
    def norm(self) -> Norm:
        """Omega."""


def dual_norms(problem: HasFeatures, weights: Array, roundings: int = 0) -> Enclosure:
    """Terms of Omega_*(V), (G,), of weights a_n (N, K') with this many roundings each.

    A group norm depends on the norms of the rows of V alone, whose errors cost less to bound than
    those of all entries.
    """
    features = problem.features
    gates = features.fast_gates
    norm = problem.norm
    columns = _weights_by_class(features, weights)
    if not isinstance(norm, GroupNorm):
        V = [dual_vectors(gates, features.X, column, roundings) for column in columns]
        return _dual_norms_of(norm, V)
    values = []
    radii = []
    for column in columns:
        rows = dual_vector_norms(
            gates, features.X, features.input_norms, column, sparse_is_faster(gates), roundings
        )
        values.append(rows.value)
        radii.append(rows.radius)
    return norm.from_row_norms(Enclosure(np.concatenate(values), np.concatenate(radii)))


def precise_dual_norms(problem: HasFeatures, weights: Array, rest: Array) -> Enclosure:
    """Terms of Omega_*(V), (G,), of weights + rest (N, K'), V with about 28 digits."""
    features = problem.features
    gates = features.fast_gates
    mains = _weights_by_class(features, weights)
    smalls = _weights_by_class(features, rest)
    V = []
    for main, small in zip(mains, smalls, strict=True):
        value = np.zeros(features.shape)
        radius = np.zeros(features.shape)
        for columns, part in precise_dual_vectors(gates, features.X, main):
            value[:, columns] = part.value
            radius[:, columns] = part.radius
        if small.any():
            # The rest is far below the weights: float64 is precise enough for it.
            added = dual_vectors(gates, features.X, small, 1)
            value += added.value
            radius += added.radius + 2 * UNIT * np.abs(value)
        V.append(Enclosure(value, SAFETY * radius))
    return _dual_norms_of(problem.norm, V)


def _weights_by_class(features: Features, weights: Array) -> list[Array]:
    """Return the weights (N,) of each class, with 0 for the samples without features."""
    seen = np.where(features.zero[:, None], 0.0, weights)
    return [np.ascontiguousarray(column) for column in seen.T]


def _dual_norms_of(norm: Norm, parts: list[Enclosure]) -> Enclosure:
    """Omega_* (G,) of V (K', M, D), whose parts (M, D) are those of the classes."""
    V = Enclosure(np.stack([V.value for V in parts]), np.stack([V.radius for V in parts]))
    value = norm.dual_norms(V.value)
    return Enclosure(value, np.maximum(norm.dual_bounds(V) - value, 0.0))
