r"""The upper bound on the optimum: coefficients, their norm, and their margins.

        upper = min over c >= 0 of  c Omega(zeta) + sum_n C_n max(0, 1 - c q_n),

q_n the smallest margin of sample n, offsets included; with the hard margin that is Omega(zeta) over
the smallest q_n, if it is positive. Norm and losses are rounded up. Scores are known up to the
rounding errors of their products (`rounding`), and those that decide on the bound are evaluated
again with more digits where it suffers from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import (
    LARGEST,
    NEAR,
    SAFETY,
    UNIT,
    Enclosure,
    ldexp,
    precise_predictions,
    predictions,
    sum_up,
    up,
)
from implicit_bias.base.validation import Array, as_finite, as_numbers, check_shape
from implicit_bias.problem import Features, MarginProblem

# Coefficients whose best scale gains less than this share of their norm are graded as they are.
SAME = 1e-14
GOLDEN_STEPS = 90
MOST_REFINEMENTS = 5
# Margins of coefficients of about 1 below this are rounding, and their inverse has no square.
SMALLEST_MARGIN = 2.0**-1000
# An offset may exceed the coefficients by this power of two.
LARGEST_OFFSET = 900


@dataclass(frozen=True, eq=False)
class PrimalPoint:
    """Coefficients times 2^-exponent, the largest about 1, and their scores.

    What rounding adds is bounded where it is asked for: the best scale is found without.

    Attributes
    ----------
    problem : MarginProblem
        The problem.
    coef : ndarray of shape (K', M, D)
        Coefficients.
    exponent : int
        See above.
    given : ndarray of shape (K',), or None
        Offsets that go with ``coef``; None for the best ones.
    values : ndarray of shape (N, K')
        f_k(x_n), without offsets.
    as_stored : bool
        With a soft margin, whether the bound is that of the coefficients at their own scale.
    radius : ndarray of shape (N, K'), optional
        What rounding may have added to ``values``, where it is known.
    """

    problem: MarginProblem
    coef: Array
    exponent: int
    given: Array | None
    values: Array
    as_stored: bool
    radius: Array | None = None

    @classmethod
    def of(
        cls,
        problem: MarginProblem,
        given: ArrayLike,
        intercept: ArrayLike | None,
        as_stored: bool = False,
    ) -> PrimalPoint:
        """Check coefficients and an intercept in the problem's shapes, and evaluate them.

        Raises
        ------
        ValueError
            Other shapes, NaN, or an intercept of a problem without one.
        """
        coef = as_finite(given, "coef", len(problem.coef_shape))
        check_shape(coef, "coef", problem.coef_shape, "(M, D), a row a gate column, or (K, M, D)")
        offsets = None if problem.intercept else np.zeros(problem.norm_shape[0])
        if intercept is not None:
            offsets = checked_offsets(problem, as_numbers(intercept, "intercept"))
        sizes = [math.frexp(np.abs(coef).max())[1]]
        if offsets is not None:
            sizes.append(math.frexp(np.abs(offsets).max())[1] - LARGEST_OFFSET)
        exponent = max(sizes)
        coef = np.ldexp(coef, -exponent).reshape(problem.norm_shape)
        values = problem.features.apply(coef)
        offsets = None if offsets is None else np.ldexp(offsets, -exponent)
        return cls(problem, coef, exponent, offsets, values, as_stored)

    def refined(self) -> PrimalPoint:
        """Evaluate with more digits the scores that decide."""
        features = self.problem.features
        found, done = self, np.zeros(self.problem.n_samples, dtype=bool)
        for _ in range(MOST_REFINEMENTS):
            samples = np.flatnonzero(found._decisive & ~done)
            if len(samples) == 0:
                break
            done[samples] = True
            value, radius = found.values.copy(), found.scores.radius.copy()
            for k, of_class in enumerate(self.coef):
                part = precise_predictions(features.fast_gates, features.X, of_class, samples)
                value[samples, k], radius[samples, k] = part.value, part.radius
            found = replace(found, values=value, radius=radius)
        return found

    @cached_property
    def norm(self) -> float:
        """Upper bound on Omega(coef)."""
        return self.problem.norm.value_bound(self.coef)

    @cached_property
    def scores(self) -> Enclosure:
        """f_k(x_n), (N, K'), without offsets."""
        if self.radius is not None:
            return Enclosure(self.values, self.radius)
        return score_enclosures(self.problem.features, self.coef, self.values)

    @cached_property
    def offsets(self) -> Array:
        """Offsets (K',) that go with ``coef``: those given, or the best ones."""
        return self._best_offsets() if self.given is None else self.given

    @cached_property
    def smallest(self) -> Enclosure:
        """Smallest margin q_n of each sample, (N,), of ``coef`` and ``offsets``."""
        return smallest_margins(self.problem, self.scores, self.offsets)

    @cached_property
    def scale(self) -> float:
        """The c of the smallest primal value of c ``coef``; 0 where zeta = 0 has it, or none."""
        rows, unit = self.problem.constraints, self._own_scale
        q = rows.smallest(rows.margins(self.values + self.offsets))
        if self.problem.hard_margin:
            c = 1.0 / q.min() if q.min() > SMALLEST_MARGIN else 0.0
            return unit if abs(c - unit) <= NEAR * unit else c
        if not np.isfinite(self.norm):
            return 0.0
        if self.given is not None and self.as_stored and self.norm > 0:
            return unit
        c = best_scale(self.norm, q, self.problem.box)
        best, zero = self._value_at(c, q), value_of_zero(self.problem)
        gain = self._value_at(unit, q) - min(best, zero)
        if c > 0 and self.norm > 0 and gain <= SAME * unit * self.norm:
            return unit
        return c if best < zero else 0.0

    def scaled(self) -> PrimalPoint:
        """Return the point of the smallest primal value, as it is stored.

        No scale makes a hard-margin candidate feasible that misclassifies: it stays as it is.
        """
        problem, c = self.problem, self.scale
        if c > 0 and not problem.hard_margin:
            c *= 1.0 + self._soft_bound(self.smallest.radius)[1]
        if c == self._own_scale or (c == 0 and problem.hard_margin):
            return replace(self, given=self.offsets, as_stored=True)
        coef, offsets = self.coef * c, self.offsets * c if c > 0 else offsets_of_zero(problem)
        intercept = problem.as_intercept(np.clip(offsets, -LARGEST, LARGEST))
        return PrimalPoint.of(problem, coef.reshape(problem.coef_shape), intercept, as_stored=True)

    @property
    def as_given(self) -> tuple[Array, float | Array]:
        """Coefficients and intercept in the problem's shapes and units."""
        coef, offsets = (ldexp(part, self.exponent) for part in (self.coef, self.offsets))
        intercept = self.problem.as_intercept(np.clip(offsets, -LARGEST, LARGEST))
        return coef.reshape(self.problem.coef_shape), intercept

    @property
    def group_norms(self) -> Array:
        """Norms (G,) of the coefficients as given."""
        return np.ldexp(self.problem.group_norms(self.coef), self.exponent)

    @property
    def margins(self) -> Array:
        """Smallest margins (N,) of the coefficients as given."""
        return np.ldexp(self.smallest.value, self.exponent)

    @property
    def min_margin(self) -> float:
        """Smallest margin of the coefficients as given."""
        return float(self.margins.min())

    @cached_property
    def bound(self) -> float:
        """The upper bound."""
        return self._value(self.smallest.radius)

    @cached_property
    def central(self) -> float:
        """The upper bound without allowance for the rounding of scores."""
        return self._value(np.zeros(()))

    @property
    def allowance(self) -> float:
        """Share of the upper bound that rounding may cost; inf where it may be all."""
        bound, central = self.bound, self.central
        if math.isinf(bound):
            high = self.smallest.value + self.smallest.radius
            return math.inf if np.isfinite(self.norm) and high.min() > 0 else 0.0
        return bound / central - 1.0 if central > 0 else math.inf * (bound > 0)

    @property
    def _own_scale(self) -> float:
        """The scale of the coefficients as given."""
        return math.ldexp(1.0, min(self.exponent, 1000))

    @property
    def _decisive(self) -> NDArray[np.bool_]:
        """The samples whose scores may decide on the bound, shape (N,)."""
        q, radius = self.smallest.value, self.smallest.radius
        if not self.problem.hard_margin:
            return 1.0 - self.scale * (q - radius) > 0
        high, owners = q + radius, self.problem.owners
        least = np.full(int(owners.max()) + 1, np.inf)
        np.minimum.at(least, owners, high)
        # The best offsets make the smallest margins of classes equal: of each it must be known.
        limit = least[owners] if self.given is None else high.min()
        return q - radius <= limit

    def _value(self, radius: Array) -> float:
        zero = value_of_zero(self.problem)
        if not np.isfinite(self.norm) or (self.scale == 0 and not self.problem.hard_margin):
            return zero
        if self.problem.hard_margin:
            smallest = float((self.smallest.value - radius).min())
            return up(self.norm / smallest) if smallest > 0 else math.inf
        bound, _ = self._soft_bound(radius)
        return bound if self.as_stored else min(zero, bound)

    def _soft_bound(self, radius: Array) -> tuple[float, float]:
        """Bound on the soft margin's primal value, and the stretch of c, as a share, that has it.

        At a large C the rounding of margins near 1 costs more than a scale a little larger, at
        which they exceed 1. None where it gains next to nothing, so that grades repeat.
        """
        margins = self.scale * self.smallest.value
        error = SAFETY * (self.scale * radius + 8 * UNIT * (np.abs(margins) + 1.0))
        near = np.abs(margins - 1.0) <= 2 * error
        stretch = 2 * float(error[near].max(initial=0.0))
        plain, stretched = (self._bound_at(margins, error, by) for by in (0.0, stretch))
        gains = stretched < plain * (1.0 - SAME) and not self.as_stored
        return (stretched, stretch) if gains else (plain, 0.0)

    def _bound_at(self, margins: Array, error: Array, by: float) -> float:
        """Bound on the soft margin's primal value at a scale (1 + by) times c."""
        losses = np.maximum(0.0, 1.0 - (margins - error) * (1.0 + by) + 2 * by * error)
        if not np.isfinite(losses).all():
            return math.inf
        # A product of numbers from 0 on, rounded up; 0 stays.
        costs = np.nextafter(self.problem.box * losses, np.where(losses > 0, np.inf, 0.0))
        return up(up(up(self.scale * self.norm) * up(1.0 + by)) + sum_up(costs.tolist()))

    def _value_at(self, c: float, q: Array) -> float:
        """Primal value of a soft margin, without allowance, of margins c q_n."""
        return c * self.norm + float(self.problem.box @ np.maximum(0.0, 1.0 - c * q))

    def _best_offsets(self) -> Array:
        """Return the offsets (K',) of the smallest primal value of two classes.

        With a hard margin, and of more classes, those of the largest smallest margin.
        """
        problem, f = self.problem, self.values
        if problem.norm_shape[0] > 1:
            return _offsets_of_largest_margin(problem, f)
        positive = problem.owners == 0
        if problem.hard_margin:
            return np.asarray(-0.5 * (f[positive].min(axis=0) + f[~positive].max(axis=0)))
        if not (np.isfinite(self.norm) and self.norm > 0):
            return offsets_of_zero(problem)
        # The value is convex in c, with the best offset at each c.

        def offset(c: float) -> float:
            # The hinge loss of c (f + b) as a function of c b: half way where it is flat.
            slope = -problem.shares[positive].sum()
            return 0.5 * sum(_flat_between(slope, problem.y - c * f[:, 0], problem.shares)) / c

        def value(c: float) -> float:
            return self._value_at(c, problem.y * (f[:, 0] + offset(c)))

        best = golden(value, value_of_zero(problem) / self.norm)
        c = min((best, self._own_scale), key=value)
        return np.array([offset(c)])


def score_enclosures(features: Features, coef: Array, values: Array | None = None) -> Enclosure:
    """Scores (N, K') of coefficients (K', M, D), with what rounding may have added to them.

    ``values`` are the scores as they were computed, where they were.
    """
    values = features.apply(coef) if values is None else values
    given, pairs = (features.fast_gates, features.input_norms), zip(coef, values.T, strict=True)
    return Enclosure(values, np.stack([predictions(*given, *pair).radius for pair in pairs], 1))


def smallest_margins(problem: MarginProblem, scores: Enclosure, offsets: Array) -> Enclosure:
    """Smallest margin of each sample, (N,), of scores (N, K') and offsets (K',)."""
    rows, value = problem.constraints, scores.value + offsets
    margins = rows.margins(value)
    error = rows.sizes(scores.radius + 2 * UNIT * np.abs(value)) + 2 * UNIT * np.abs(margins)
    error *= SAFETY
    least, below, above = (rows.smallest(q) for q in (margins, margins - error, margins + error))
    return Enclosure(least, SAFETY * np.maximum(least - below, above - least))


def value_of_zero(problem: MarginProblem) -> float:
    """Return the primal value of zeta = 0, which is no solution of the hard margin.

    sum_n C_n with a soft margin; with an intercept for the heaviest class, each sample of the
    others costs 2 C_n.
    """
    if problem.hard_margin:
        return math.inf
    value = sum_up(problem.box.tolist())
    if problem.intercept:
        others = problem.owners != np.bincount(problem.owners, problem.shares).argmax()
        value = min(value, 2.0 * sum_up(problem.box[others].tolist()))
    return value


def offsets_of_zero(problem: MarginProblem) -> Array:
    """Return the best offsets (K',) of zeta = 0: those of the heaviest class, or none."""
    classes = np.arange(problem.norm_shape[0])
    weights = np.bincount(problem.owners, problem.shares)
    if not problem.intercept or 2 * weights.max() <= weights.sum():
        return np.zeros(len(classes))
    largest = weights.argmax()
    # A class without scores wins where all others are negative.
    return np.where(classes == largest, 1.0, -1.0 if largest >= len(classes) else 0.0)


def best_scale(norm: float, margins: Array, C: float | Array) -> float:
    """Minimise c * norm + sum(C * max(0, 1 - c * margins)) over c >= 0, of one C or one each."""
    if not np.isfinite(norm):
        return 0.0
    largest = np.max(C)
    if np.isinf(largest):
        smallest = float(margins.min())
        return 1.0 / smallest if smallest > 0 else 0.0
    # Its slope rises by C m at c = 1 / m, for each margin m > 0. All over the largest C, which may
    # be huge.
    rises, positive = margins * (C / largest), margins > 0
    slope = norm / largest - float(rises.sum())
    if slope >= 0 or not positive.any():
        return 0.0
    return _flat_between(slope, 1.0 / margins[positive], rises[positive])[0]


def golden(value: Callable[[float], float], right: float) -> float:
    """Minimise a convex function on [0, right]."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    left, inner = 0.0, [right * (1.0 - ratio), right * ratio]
    values = [value(c) for c in inner]
    for _ in range(GOLDEN_STEPS):
        if values[0] <= values[1]:
            right, inner = inner[1], [inner[1] - ratio * (inner[1] - left), inner[0]]
            values = [value(inner[0]), values[0]]
        else:
            left, inner = inner[0], [inner[1], inner[0] + ratio * (right - inner[0])]
            values = [values[1], value(inner[1])]
    return inner[0] if values[0] <= values[1] else inner[1]


def _flat_between(slope: float, kinks: Array, rises: Array) -> tuple[float, float]:
    """Return the kinks between which a convex piecewise linear function is smallest.

    Its slope rises at each kink, from the one that is given, below 0; where it goes through 0 at a
    kink both are this one.
    """
    order = np.argsort(kinks)
    after = slope + np.cumsum(rises[order])
    turns = [np.searchsorted(after, 0.0, side) for side in ("left", "right")]
    left, right = kinks[order[np.minimum(turns, len(kinks) - 1)]]
    return float(left), float(right)


def _offsets_of_largest_margin(problem: MarginProblem, scores: Array) -> Array:
    """Return the offsets (K',) of the largest smallest margin.

    A linear program in the classes alone: max t subject to q_jk + b_j - b_k >= t, q_jk the
    smallest margin of the samples of class j against class k.
    """
    rows, n = problem.constraints, problem.constraints.n_classes
    smallest = np.full((n, n), np.inf)
    np.minimum.at(smallest, (rows.owners, rows.rivals), rows.margins(scores))
    own, rival = np.nonzero(np.isfinite(smallest))
    A, pairs = np.zeros((len(own), n + 1)), np.arange(len(own))
    A[pairs, own], A[pairs, rival], A[:, -1] = -1.0, 1.0, 1.0
    reach = 2.0 * n * (1.0 + float(np.abs(scores).max()))
    bounds, cost = [(-reach, reach)] * n + [(None, None)], np.append(np.zeros(n), -1.0)
    found = scipy.optimize.linprog(cost, A, smallest[own, rival], bounds=bounds)
    return np.zeros(n) if found.x is None else np.asarray(found.x[:-1])


def checked_offsets(problem: MarginProblem, intercept: NDArray[Any]) -> NDArray[Any]:
    """Check an intercept, a number or (K,) with many classes, float64 or exact: offsets (K',).

    Raises
    ------
    ValueError
        Another shape, NaN or infinity, or an intercept of a problem without one.
    """
    check_shape(intercept, "intercept", np.shape(problem.no_offset), "a number, or one a class")
    if intercept.any() and not problem.intercept:
        raise ValueError(
            f"the problem has no intercept, got {intercept}: pass MarginProblem(..., "
            "intercept=True)"
        )
    if intercept.dtype != object and not np.isfinite(intercept).all():
        raise ValueError(f"intercept must be finite, got {intercept}")
    return intercept.reshape(-1)
