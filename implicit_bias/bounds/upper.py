r"""The upper bound on the optimum: coefficients, their norm, and their margins.

        upper = min over c >= 0 of  c Omega(zeta) + sum_n C_n max(0, 1 - c q_n),

q_n the smallest margin of sample n, offsets included; with the hard margin that is Omega(zeta) over
the smallest q_n, if it is positive. Norm and losses are rounded up. Scores are known up to the
rounding errors of their products (`products`), and those that decide on the bound are evaluated
again with more digits where it suffers from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import LARGEST, SAFETY, UNIT, Enclosure, sum_up, times_two_to, up
from implicit_bias.base.validation import Array, as_finite, as_numbers, check_shape
from implicit_bias.bounds.lower import NEAR
from implicit_bias.bounds.products import precise_predictions, score_errors
from implicit_bias.problem import Features, MarginProblem

# Coefficients whose best scale gains less than this fraction of their norm are graded as they are.
SAME = 1e-14


def checked_coef(problem: MarginProblem, given: ArrayLike) -> Array:
    """Check coefficients of a caller: ValueError for another shape than the problem's, or NaN."""
    coef = as_finite(given, "coef", len(problem.coef_shape))
    check_shape(coef, "coef", problem.coef_shape, "(M, D), a row per gate column, or (K, M, D)")
    return coef


def checked_offsets(problem: MarginProblem, given: ArrayLike) -> Array:
    """Check an intercept of a caller, a number or (K,) with many classes: offsets (K',).

    Raises
    ------
    ValueError
        Another shape, NaN or infinity, or an intercept of a problem without one.
    """
    offsets = as_numbers(given, "intercept")
    check_shape(offsets, "intercept", np.shape(problem.no_offset), "a number, or one per class")
    if not np.isfinite(offsets).all():
        raise ValueError(f"intercept must be finite, got {offsets}")
    if offsets.any() and not problem.intercept:
        raise ValueError(
            f"the problem has no intercept, got {offsets}: pass MarginProblem(..., intercept=True)"
        )
    return offsets.reshape(-1)


@dataclass(frozen=True, eq=False)
class PrimalPoint:
    """Coefficients times 2^-exponent, the largest about 1, and their scores.

    Bounds on the rounding errors of scores are computed when they are first asked for: the best
    scale c is found without them.

    Attributes
    ----------
    problem : MarginProblem
        The problem.
    coef : ndarray of shape (K', M, D)
        Coefficients.
    exponent : int
        That of the power of two.
    given_offsets : ndarray of shape (K',), or None
        Offsets that go with ``coef``; None for the best ones.
    score_values : ndarray of shape (N, K')
        f_k(x_n), without offsets.
    as_stored : bool
        With a soft margin, whether the bound is taken at the coefficients' own scale, c =
        2^exponent, instead of the best one.
    score_radius : ndarray of shape (N, K'), optional
        What rounding may have added to ``score_values``, where it is known.
    """

    problem: MarginProblem
    coef: Array
    exponent: int
    given_offsets: Array | None
    score_values: Array
    as_stored: bool
    score_radius: Array | None = None

    @classmethod
    def of(
        cls,
        problem: MarginProblem,
        coef: Array,
        offsets: Array | None,
        as_stored: bool = False,
    ) -> PrimalPoint:
        """Evaluate coefficients in the problem's shape, with offsets (K',) or the best ones.

        A problem without an intercept has no offsets, whatever is given.
        """
        if not problem.intercept:
            offsets = np.zeros(problem.norm_shape[0])
        # A power of two changes no digits.
        exponent = math.frexp(np.abs(coef).max())[1]
        if offsets is not None:
            offsets = np.ldexp(offsets, -exponent)
        coef = np.ldexp(coef, -exponent).reshape(problem.norm_shape)
        return cls(problem, coef, exponent, offsets, problem.features.scores(coef), as_stored)

    @cached_property
    def norm(self) -> float:
        """Upper bound on Omega(coef)."""
        return self.problem.norm.value_bound(self.coef)

    @cached_property
    def scores(self) -> Enclosure:
        """f_k(x_n), (N, K'), without offsets."""
        if self.score_radius is not None:
            return Enclosure(self.score_values, self.score_radius)
        return score_enclosures(self.problem.features, self.coef, self.score_values)

    @cached_property
    def offsets(self) -> Array:
        """Offsets (K',) that go with ``coef``: those given, or the best ones."""
        if self.given_offsets is not None:
            return self.given_offsets
        if self.problem.norm_shape[0] > 1:
            return _offsets_of_largest_margin(self.problem, self.score_values)
        return self._best_offset_of_two_classes()

    @cached_property
    def sample_margins(self) -> Enclosure:
        """Smallest margin q_n of each sample, (N,), of ``coef`` and ``offsets``."""
        return smallest_margins(self.problem, self.scores, self.offsets)

    # --- the bound

    @cached_property
    def bound(self) -> float:
        """The upper bound."""
        return self._bound_with(self.sample_margins.radius)

    @cached_property
    def central(self) -> float:
        """The upper bound without allowance for the rounding of scores."""
        return self._bound_with(np.zeros(()))

    @property
    def allowance(self) -> float:
        """Fraction of the upper bound that rounding may cost; inf where it may cost all of it."""
        if not math.isfinite(self.bound):
            # With more digits the coefficients may turn out to separate the samples, unless some
            # margin is certainly not positive.
            high = self.sample_margins.value + self.sample_margins.radius
            if np.isfinite(self.norm) and high.min() > 0:
                return math.inf
            return 0.0
        if self.central > 0:
            return self.bound / self.central - 1.0
        # Without rounding the bound would be 0.
        if self.bound > 0:
            return math.inf
        return 0.0

    def _bound_with(self, radius: Array) -> float:
        """Return the bound where margins err by this radius (N,) at most."""
        problem = self.problem
        zero = problem.value_of_zero
        if not np.isfinite(self.norm):
            return zero
        if problem.hard_margin:
            smallest = float((self.sample_margins.value - radius).min())
            if smallest > 0:
                return up(self.norm / smallest)
            return math.inf
        if self.scale == 0:
            return zero
        bound, _ = self._soft_bound(radius)
        if self.as_stored:
            return bound
        return min(zero, bound)

    def _soft_bound(self, radius: Array) -> tuple[float, float]:
        """Return a bound on the soft margin's primal value, and the stretch at which it holds.

        That is the value at the scale (1 + stretch) c. At a large C the rounding of margins near 1
        costs more than a slightly larger scale, at which they exceed 1. The stretch is 0 where it
        gains next to nothing, so that grading what was graded before changes nothing.
        """
        # Margins at the scale c. Their errors are the radius, and the rounding of the products with
        # c and of the losses.
        margins = self.scale * self.sample_margins.value
        error = SAFETY * (self.scale * radius + 8 * UNIT * (np.abs(margins) + 1.0))
        plain = self._primal_value(margins, error, 0.0)
        # A stretch of twice the largest error brings all margins that may be 1 above it.
        near = np.abs(margins - 1.0) <= 2 * error
        stretch = 2 * float(error[near].max(initial=0.0))
        stretched = self._primal_value(margins, error, stretch)
        if stretched < plain * (1.0 - SAME) and not self.as_stored:
            return stretched, stretch
        return plain, 0.0

    def _primal_value(self, margins: Array, error: Array, stretch: float) -> float:
        """Return a bound on the primal value at the scale (1 + stretch) c, of margins at c."""
        lowest = (margins - error) * (1.0 + stretch)
        losses = np.maximum(0.0, 1.0 - lowest)
        if not np.isfinite(losses).all():
            return math.inf
        # Each product is rounded up, but for an exact 0.
        costs = np.nextafter(self.problem.box * losses, np.where(losses > 0, np.inf, 0.0))
        norm = up(up(self.scale * self.norm) * up(1.0 + stretch))
        return up(norm + sum_up(costs.tolist()))

    # --- the best scale and offset, without allowance for rounding

    @property
    def _own_scale(self) -> float:
        """The c of the coefficients as given, 2^exponent, as far as float64 has it."""
        return math.ldexp(1.0, min(self.exponent, 1000))

    @cached_property
    def scale(self) -> float:
        """The c at which c ``coef`` has the smallest primal value; 0 where zeta = 0 is as good.

        With a hard margin it is 0 where no c separates the samples.
        """
        problem = self.problem
        rows = problem.constraints
        unit = self._own_scale
        q = rows.smallest(rows.margins(self.score_values + self.offsets))
        if problem.hard_margin:
            # The c that takes the coefficients to unit margin.
            c = 0.0
            if q.min() > 2.0**-1000:  # below it margins are rounding, and 1 / c^2 underflows
                c = 1.0 / q.min()
            if abs(c - unit) <= NEAR * unit:
                return unit
            return c
        if not np.isfinite(self.norm):
            return 0.0
        if self.given_offsets is not None and self.as_stored and self.norm > 0:
            return unit
        c = best_scale(self.norm, q, problem.box)
        # The own scale stays where another one gains next to nothing.
        best = self._estimate(c, q)
        zero = problem.value_of_zero
        gain = self._estimate(unit, q) - min(best, zero)
        if c > 0 and self.norm > 0 and gain <= SAME * unit * self.norm:
            return unit
        if best < zero:
            return c
        return 0.0

    def _estimate(self, c: float, q: Array) -> float:
        """Primal value of a soft margin, without allowance, of margins c q_n."""
        return c * self.norm + float(self.problem.box @ np.maximum(0.0, 1.0 - c * q))

    def _best_offset_of_two_classes(self) -> Array:
        """Return the offset (1,) of the smallest primal value over offsets and scales c."""
        problem = self.problem
        f = self.score_values
        positive = problem.sample_classes == 0
        if problem.hard_margin:
            # Half way between the classes.
            return np.asarray(-0.5 * (f[positive].min(axis=0) + f[~positive].max(axis=0)))
        if not (np.isfinite(self.norm) and self.norm > 0):
            return offsets_of_zero(problem)
        # With the best offset for each c, the primal value is convex in c: golden section finds it.
        # The slope in b, for b -> -infinity: every positive sample has a loss, and no other one.
        slope = -problem.shares[positive].sum()

        def offset(c: float) -> float:
            # As a function of c b the hinge loss of a sample has a breakpoint at y_n - c f_n, where
            # its margin is 1. Where the sum is flat, the middle is taken.
            left, right = _flat_between(slope, problem.y - c * f[:, 0], problem.shares)
            return 0.5 * (left + right) / c

        def value(c: float) -> float:
            return self._estimate(c, problem.y * (f[:, 0] + offset(c)))

        # A larger c has a norm above the whole value of zeta = 0.
        best = golden_section(value, problem.value_of_zero / self.norm)
        c = min((best, self._own_scale), key=value)
        return np.array([offset(c)])

    # --- other points

    def refined(self, rounds: int = 5) -> PrimalPoint:
        """Evaluate with more digits the scores that decide on the bound.

        With smaller errors other samples may decide: they follow in the next round.
        """
        features = self.problem.features
        found = self
        done = np.zeros(self.problem.n_samples, dtype=bool)
        for _ in range(rounds):
            samples = np.flatnonzero(found._decisive & ~done)
            if len(samples) == 0:
                break
            done[samples] = True
            values = found.score_values.copy()
            radius = found.scores.radius.copy()
            for k, of_class in enumerate(self.coef):
                part = precise_predictions(features.fast_gates, features.X, of_class, samples)
                values[samples, k] = part.value
                radius[samples, k] = part.radius
            found = replace(found, score_values=values, score_radius=radius)
        return found

    @property
    def _decisive(self) -> NDArray[np.bool_]:
        """The samples whose scores may decide on the bound, shape (N,)."""
        low = self.sample_margins.value - self.sample_margins.radius
        if not self.problem.hard_margin:
            # Those that may have a loss.
            return 1.0 - self.scale * low > 0
        high = self.sample_margins.value + self.sample_margins.radius
        if self.given_offsets is not None:
            # Those that may have the smallest margin.
            return low <= high.min()
        # The best offsets make the smallest margins of all classes equal, so each of these counts.
        owners = self.problem.sample_classes
        least = np.full(int(owners.max()) + 1, np.inf)
        np.minimum.at(least, owners, high)
        return low <= least[owners]

    def scaled(self) -> PrimalPoint:
        """Return the point of the smallest primal value, as it is stored.

        With a hard margin, coefficients that misclassify are feasible at no scale: then the point
        keeps its scale.
        """
        problem = self.problem
        c = self.scale
        if c > 0 and not problem.hard_margin:
            c *= 1.0 + self._soft_bound(self.sample_margins.radius)[1]
        if c == self._own_scale or (c == 0 and problem.hard_margin):
            return replace(self, given_offsets=self.offsets, as_stored=True)
        # At c = 0 offsets alone are left.
        offsets = offsets_of_zero(problem)
        if c > 0:
            offsets = self.offsets * c
        offsets = np.clip(offsets, -LARGEST, LARGEST)
        return PrimalPoint.of(problem, self.coef * c, offsets, as_stored=True)

    @property
    def as_given(self) -> tuple[Array, float | Array]:
        """Coefficients and intercept in the problem's shapes and units."""
        coef = times_two_to(self.coef, self.exponent).reshape(self.problem.coef_shape)
        offsets = np.clip(times_two_to(self.offsets, self.exponent), -LARGEST, LARGEST)
        return coef, self.problem.as_intercept(offsets)

    @property
    def group_norms(self) -> Array:
        """Norms (G,) of the coefficients as given."""
        return np.ldexp(self.problem.group_norms(self.coef), self.exponent)

    @property
    def margins(self) -> Array:
        """Smallest margins (N,) of the coefficients as given."""
        return np.ldexp(self.sample_margins.value, self.exponent)

    @property
    def min_margin(self) -> float:
        """Smallest margin of the coefficients as given."""
        return float(self.margins.min())


# --- margins ---------------------------------------------------------------------------------


def score_enclosures(features: Features, coef: Array, values: Array | None = None) -> Enclosure:
    """Scores (N, K') of coefficients (K', M, D), with what rounding may have added to them.

    ``values`` are the scores, where they were computed before.
    """
    if values is None:
        values = features.scores(coef)
    radii = [score_errors(features.fast_gates, features.input_norms, part) for part in coef]
    return Enclosure(values, np.stack(radii, axis=1))


def smallest_margins(problem: MarginProblem, scores: Enclosure, offsets: Array) -> Enclosure:
    """Smallest margin of each sample, (N,), of scores (N, K') and offsets (K',)."""
    rows = problem.constraints
    value = scores.value + offsets
    margins = rows.margins(value)
    # Errors of the scores and of their sums with offsets, and of the difference of two of these.
    error = rows.margin_errors(scores.radius + 2 * UNIT * np.abs(value))
    error = SAFETY * (error + 2 * UNIT * np.abs(margins))
    # The smallest of the true margins is between the smallest of their lower and upper bounds.
    least = rows.smallest(margins)
    below = rows.smallest(margins - error)
    above = rows.smallest(margins + error)
    return Enclosure(least, SAFETY * np.maximum(least - below, above - least))


# --- coefficients 0, and the best scale and offsets of others --------------------------------


def offsets_of_zero(problem: MarginProblem) -> Array:
    """Return the best offsets (K',) of zeta = 0: for the class of the largest total C, or 0."""
    classes = np.arange(problem.norm_shape[0])
    weights = np.bincount(problem.sample_classes, problem.shares)
    if not problem.intercept or 2 * weights.max() <= weights.sum():
        return np.zeros(len(classes))
    largest = weights.argmax()
    if largest == len(classes):  # a class without scores wins where all others are negative
        return np.full(len(classes), -1.0)
    return np.where(classes == largest, 1.0, 0.0)


def best_scale(norm: float, margins: Array, C: float | Array) -> float:
    """Minimize c * norm + sum(C * max(0, 1 - c * margins)) over c >= 0, of one C or one each."""
    if not np.isfinite(norm):
        return 0.0
    largest = np.max(C)
    if np.isinf(largest):
        smallest = float(margins.min())
        if smallest > 0:
            return 1.0 / smallest
        return 0.0
    # At c = 0 every sample has a loss, which changes at the rate -C m, m its margin. The loss of a
    # sample with m > 0 ends at c = 1 / m, and the slope rises there by C m. All is divided by the
    # largest C, which may be huge.
    rises = margins * (C / largest)
    slope = norm / largest - float(rises.sum())  # at c = 0
    positive = margins > 0
    if slope >= 0 or not positive.any():
        return 0.0
    return _flat_between(slope, 1.0 / margins[positive], rises[positive])[0]


def golden_section(value: Callable[[float], float], right: float, steps: int = 90) -> float:
    """Minimize a convex function on [0, right]."""
    # Each step keeps the part around the smaller of two inner values, one of which is used again.
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    left = 0.0
    low = right * (1.0 - ratio)
    high = right * ratio
    at_low = value(low)
    at_high = value(high)
    for _ in range(steps):
        if at_low <= at_high:
            right = high
            high = low
            at_high = at_low
            low = right - ratio * (right - left)
            at_low = value(low)
        else:
            left = low
            low = high
            at_low = at_high
            high = left + ratio * (right - left)
            at_high = value(high)
    return low if at_low <= at_high else high


def _flat_between(slope: float, breakpoints: Array, rises: Array) -> tuple[float, float]:
    """Return the two breakpoints between which a convex piecewise linear function is smallest.

    ``slope`` is the one left of all breakpoints, below 0; it rises at each of them. Where it jumps
    over 0 at a breakpoint, this one is returned twice.
    """
    order = np.argsort(breakpoints)
    after = slope + np.cumsum(rises[order])
    last = len(breakpoints) - 1
    left = min(int(np.searchsorted(after, 0.0, "left")), last)
    right = min(int(np.searchsorted(after, 0.0, "right")), last)
    return float(breakpoints[order[left]]), float(breakpoints[order[right]])


def _offsets_of_largest_margin(problem: MarginProblem, scores: Array) -> Array:
    """Return the offsets (K',) of the largest smallest margin.

    A linear program in the classes alone: max t subject to q_jk + b_j - b_k >= t, q_jk the
    smallest margin of the samples of class j against class k.
    """
    rows = problem.constraints
    n = rows.n_classes
    smallest = np.full((n, n), np.inf)
    np.minimum.at(smallest, (rows.owners, rows.rivals), rows.margins(scores))
    label, rival = np.nonzero(np.isfinite(smallest))
    # Minimize -t over (b, t), subject to t - b_j + b_k <= q_jk. Bounds on b make the optimum finite
    # without a constraint for some class, and are too wide to matter otherwise.
    pairs = np.arange(len(label))
    A = np.zeros((len(label), n + 1))
    A[pairs, label] = -1.0
    A[pairs, rival] = 1.0
    A[:, -1] = 1.0
    reach = 2.0 * n * (1.0 + float(np.abs(scores).max()))
    bounds = [(-reach, reach)] * n + [(None, None)]
    cost = np.append(np.zeros(n), -1.0)
    found = scipy.optimize.linprog(cost, A, smallest[label, rival], bounds=bounds)
    if found.x is None:
        return np.zeros(n)
    return np.asarray(found.x[:-1])
