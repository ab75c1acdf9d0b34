r"""Bounds in exact rational arithmetic, for answers that float64 numbers cannot hold.

Where any separator's margin is tiny relative to the features, V(alpha) is a small difference of
large numbers: rounding alpha to float64 changes it by more than its size, and the lower bound of
the rounded alpha says little. The same holds for coefficients and their margins. An answer in
rational numbers has no such limit; its bounds are those of `certificate`,

    lower = sum(alpha) / Omega_*(V(alpha)),    upper = Omega(zeta) / min_n q_n

(or C sum(alpha) / max_n sum_k alpha_nk if less, and Omega(zeta) + C sum_n xi_n, with a soft
margin). V(alpha) and the margins q_n are exact, and so is the intercept's equation. Norms are
bounded from above in float64, of V(alpha) as it is rounded, with that rounding. Of the rounded
coefficients c and what rounding leaves, r, they are bounded by

    Omega(zeta) <= Omega(c) + sum_j abs(r_j) Omega(e_j).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from fractions import Fraction

import gmpy2
import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import Certificate, relative_gap
from implicit_bias.problem import MarginProblem
from implicit_bias.rounding import Enclosure, ldexp_up, sum_up
from implicit_bias.validation import Array

Rationals = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class ExactAnswer:
    """Coefficients and dual variables as rational numbers.

    Attributes
    ----------
    plain_coef : ndarray of Fraction, shape (M', D) or (K, M', D)
        Coefficients of the problem's plain gates (those of ``problem.gates``, without a metric).
    alpha : ndarray of Fraction, shape (N,) or (N, K)
        Dual variables, not negative; 0 at each sample's own class.
    intercept : Fraction, or ndarray of Fraction, shape (K,)
        The offset b.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import numpy as np
    >>> third = np.array([[Fraction(1, 3)]])
    >>> ExactAnswer(plain_coef=third, alpha=third[0]).intercept
    Fraction(0, 1)
    """

    plain_coef: Rationals = field(repr=False)
    alpha: Rationals = field(repr=False)
    intercept: Fraction | Rationals = Fraction(0)

    def coef(self, problem: MarginProblem) -> Array:
        """Return the coefficients of the problem's gates, rounded to float64."""
        return problem.of_plain(self.plain_coef.astype(np.float64))

    @property
    def offset(self) -> float | Array:
        """The intercept, rounded to float64."""
        if isinstance(self.intercept, np.ndarray):
            return self.intercept.astype(np.float64)
        return float(self.intercept)

    def margins(self, problem: MarginProblem) -> Array:
        """Return each sample's smallest margin, shape (N,), rounded to float64."""
        return _margins(problem, self).astype(np.float64)


def certify_exact(problem: MarginProblem, answer: ExactAnswer) -> Certificate:
    """Bound the optimum of a problem by coefficients and dual variables in rational numbers.

    Parameters
    ----------
    problem : MarginProblem
        The problem: that of its stored float64 data (with a metric: of its plain gates).
    answer : ExactAnswer
        Such as the ``exact`` of a `Solution`.

    Returns
    -------
    Certificate

    Raises
    ------
    ValueError
        Shapes that do not fit, or negative alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from fractions import Fraction
    >>> from implicit_bias import MarginProblem
    >>> problem = MarginProblem([[1e9], [1e9 + 2]], [-1, 1], np.ones((2, 1)), [0], intercept=True)
    >>> answer = ExactAnswer(
    ...     np.array([[Fraction(1)]]), np.array([Fraction(1, 2)] * 2), -Fraction(10**9 + 1)
    ... )
    >>> bounds = certify_exact(problem, answer)
    >>> print(f"{bounds.lower:.9f}, {bounds.upper:.9f}")
    1.000000000, 1.000000000
    """
    alpha = rationals(answer.alpha)
    shapes = problem.alpha_shape, _plain_shape(problem)
    if (alpha.shape, np.shape(answer.plain_coef)) != shapes:
        raise ValueError(
            f"alpha and plain_coef must have the shapes {shapes[0]} and {shapes[1]}, got "
            f"{alpha.shape} and {np.shape(answer.plain_coef)}"
        )
    if (alpha < 0).any():
        smallest = float(alpha.min())
        raise ValueError(f"alpha must not be negative, got {smallest:.3g}: clip it at 0")
    margins = _margins(problem, answer)
    lower, dual_norms = _lower(problem, alpha)
    upper = _upper(problem, rationals(answer.plain_coef), margins)
    smallest = _rounded(min(margins), down=True)
    return Certificate(lower, upper, relative_gap(lower, upper), smallest, dual_norms)


def rationals(values: Array | Rationals) -> Rationals:
    """Return the same real numbers as an array of gmpy2's rationals."""
    return np.asarray(np.frompyfunc(gmpy2.mpq, 1, 1)(values), dtype=object)


def _plain_shape(problem: MarginProblem) -> tuple[int, ...]:
    shape = (problem.plain_gates.shape[1], problem.X.shape[1])
    return shape if problem.classes is None else (problem.classes, *shape)


def _data(problem: MarginProblem) -> tuple[Rationals, Rationals]:
    """Plain gates (N, M') and inputs (N, D)."""
    return rationals(problem.plain_gates.toarray()), rationals(problem.X)


def _margins(problem: MarginProblem, answer: ExactAnswer) -> Rationals:
    """Return each sample's smallest margin, shape (N,)."""
    gates, X = _data(problem)
    coef = rationals(answer.plain_coef)
    if problem.classes is None:
        f = ((X @ coef.T) * gates).sum(axis=1) + gmpy2.mpq(answer.intercept)
        return np.asarray(rationals(problem.y) * f)
    scores = np.stack([((X @ part.T) * gates).sum(axis=1) for part in coef], axis=1)
    scores = scores + rationals(np.broadcast_to(answer.intercept, problem.classes))
    own = np.arange(len(scores)), problem.owners
    rivals = [np.delete(row, k) for row, k in zip(scores, problem.owners, strict=True)]
    return np.asarray(scores[own] - np.array([row.max() for row in rivals], dtype=object))


def _lower(problem: MarginProblem, alpha: Rationals) -> tuple[float, Array]:
    """Return the lower bound, and bounds (G,) on the terms of Omega_*(V)."""
    gates, X = _data(problem)
    if problem.classes is None:
        weights = (alpha * rationals(problem.y))[:, None]
    else:
        own = np.arange(len(alpha)), problem.owners
        weights = -alpha
        weights[own] = alpha.sum(axis=1) + weights[own]
    V = np.stack([(gates * column[:, None]).T @ X for column in weights.T])
    enclosure, exponent = _enclosed(
        V if problem.classes is not None else V.reshape(problem.norm_shape)
    )
    norms = ldexp_up(problem.norm.dual_bounds(enclosure), exponent)
    total, largest = alpha.sum(), float(norms.max())
    balanced = not problem.intercept or not weights.sum(axis=0).any()
    if total == 0 or not balanced or not math.isfinite(largest):
        return 0.0, norms
    scales = [1 / gmpy2.mpq(largest)] if largest > 0 else []
    if not problem.hard_margin:
        scales.append(gmpy2.mpq(problem.C) / max(problem.totals(alpha)))
    return (_rounded(total * min(scales), down=True) if scales else math.inf), norms


def _upper(problem: MarginProblem, coef: Rationals, margins: Rationals) -> float:
    norm = gmpy2.mpq(found) if math.isfinite(found := _norm_above(problem, coef)) else None
    if norm is None or (problem.hard_margin and min(margins) <= 0):
        return math.inf
    if problem.hard_margin:
        return _rounded(norm / min(margins))
    losses = sum((1 - margin for margin in margins if margin < 1), gmpy2.mpq(0))
    return _rounded(norm + gmpy2.mpq(problem.C) * losses)


def _norm_above(problem: MarginProblem, coef: Rationals) -> float:
    """Return an upper bound on Omega of plain coefficients."""
    rounded, exponent = _enclosed(coef if problem.classes is not None else coef[None])
    if problem.metric is not None:  # of groups, whose norms and dual norms are the same
        norm = sum_up(problem.gate_norm.dual_bounds(rounded).tolist())
    else:
        shape = problem.norm_shape
        terms = [problem.norm.value_bound(rounded.value.reshape(shape))]
        for j in np.flatnonzero(rounded.radius):
            unit = np.zeros(rounded.radius.size)
            unit[j] = rounded.radius.flat[j]
            terms.append(problem.norm.value_bound(unit.reshape(shape)))
        norm = sum_up(terms)
    return float(ldexp_up(norm, exponent))


def _enclosed(values: Rationals) -> tuple[Enclosure, int]:
    """Return numbers over a power of two, the largest about 1, in float64, and its exponent."""
    sizes = [_exponent(value) for value in values.ravel() if value]
    exponent = max(sizes, default=0)
    scaled = values / gmpy2.mpq(2) ** exponent
    nearest = scaled.astype(np.float64)
    left = abs(scaled - rationals(nearest))
    radius = np.frompyfunc(_rounded, 1, 1)(left).astype(np.float64)
    return Enclosure(nearest, radius), exponent


def _exponent(value: gmpy2.mpq) -> int:
    """Return an exponent e with abs(value) < 2^e, and not far below."""
    return int(value.numerator.bit_length() - value.denominator.bit_length() + 1)


def _rounded(value: gmpy2.mpq, down: bool = False) -> float:
    """Return the float64 next above a rational number, or below."""
    if value < 0:
        return -_rounded(-value, not down)
    if value > gmpy2.mpq(sys.float_info.max):
        return sys.float_info.max if down else math.inf
    nearest = float(value)
    error = gmpy2.mpq(nearest) - value
    if error == 0 or (error < 0) == down:
        return nearest
    return math.nextafter(nearest, 0.0 if down else math.inf)
