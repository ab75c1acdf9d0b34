r"""Bounds in exact rational arithmetic, for answers that float64 numbers cannot hold.

Where any separator's margin is tiny relative to the features, V(alpha) is a small difference of
large numbers: rounding alpha to float64 changes it by more than its size, and the lower bound of
the rounded alpha says little. The same holds for coefficients and their margins. An answer in
rational numbers has no such limit; its bounds are those of `certificate`,

    lower = sum(alpha) / Omega_*(V(alpha)),    upper = Omega(zeta) / min_n q_n

(or sum(alpha) times the least C_n / sum_k alpha_nk if less, and Omega(zeta) + sum_n C_n xi_n, with
a soft margin). V(alpha) and the margins q_n are exact, and so is the intercept's equation. Norms of
groups are sums of square roots, which are rounded outwards. Other norms are bounded from above in
float64, of V(alpha) as it is rounded, with that rounding. Of coefficients, which are c when
rounded, and with what rounding leaves, r, they are bounded by

    Omega(zeta) <= Omega(c) + sum_j Omega(r_j e_j).

Rational numbers are those of FLINT, which is imported when the first one is made.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import Enclosure, sum_up
from implicit_bias.base.validation import Array, check_shape
from implicit_bias.bounds.balance import is_balanced
from implicit_bias.bounds.lower import checked_values
from implicit_bias.bounds.status import Certificate, relative_gap
from implicit_bias.bounds.upper import checked_offsets
from implicit_bias.problem import MarginProblem, check_problem

# Bits of a square root.
ROOT_BITS = 256

Rationals: TypeAlias = NDArray[np.object_]
Rational: TypeAlias = Any  # flint.fmpq, which has no type hints


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
        return problem.of_plain(nearest(self.plain_coef))

    @property
    def offset(self) -> float | Array:
        """The intercept, rounded to float64."""
        if isinstance(self.intercept, np.ndarray):
            return nearest(self.intercept)
        return float(nearest(self.intercept))

    def margins(self, problem: MarginProblem) -> Array:
        """Return each sample's smallest margin, shape (N,), rounded to float64."""
        return nearest(problem.constraints.smallest(_margins(problem, self)))


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
        Shapes that do not fit, an intercept that the problem lacks, numbers that are not rational,
        or alpha that is negative or not 0 at a sample's own class.
    TypeError
        Not a `MarginProblem`, or no `ExactAnswer`.

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
    >>> bounds.lower, bounds.upper
    (1.0, 1.0)
    """
    check_problem(problem, "certify_exact")
    if not isinstance(answer, ExactAnswer):
        raise TypeError(
            f"certify_exact takes an ExactAnswer, not a {type(answer).__name__}: a Solution has "
            "one, its exact, where float64 does not attain the bounds; else use certify"
        )
    plain, coef = (*problem.coef_shape[:-2], *problem.features.shape), rationals(answer.plain_coef)
    check_shape(coef, "plain_coef", plain, "(M', D), a row a plain gate, or (K, M', D)")
    checked_offsets(problem, rationals(answer.intercept))
    values = checked_values(problem, rationals(answer.alpha))
    margins = problem.constraints.smallest(_margins(problem, answer))
    lower, dual_norms = _lower(problem, values)
    upper = _upper(problem, coef, margins)
    smallest = _rounded(min(margins), down=True)
    return Certificate(lower, upper, relative_gap(lower, upper), smallest, dual_norms)


def rationals(values: ArrayLike | Fraction) -> Rationals:
    """Return the same real numbers as an array of FLINT's rationals.

    Raises
    ------
    ValueError
        Some are no finite real numbers.
    """
    from flint import fmpq

    def rational(value: Any) -> Rational:
        if isinstance(value, fmpq):
            return value
        try:
            return fmpq(*value.as_integer_ratio())
        except (AttributeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{value!r} is no rational number: pass instances of fractions.Fraction, whole "
                "numbers or finite floats"
            ) from error

    return np.asarray(np.frompyfunc(rational, 1, 1)(values), dtype=object)


def nearest(values: Rationals | Fraction) -> Array:
    """Return rational numbers as float64, those beyond its range as its largest numbers."""

    def number(value: Any) -> float:
        try:
            return float(value)
        except OverflowError:
            return sys.float_info.max if value > 0 else -sys.float_info.max

    return np.asarray(np.frompyfunc(number, 1, 1)(values), dtype=np.float64)


def _rational(value: float) -> Rational:
    return rationals(np.array(value)).item()


def scores(problem: MarginProblem, plain_coef: Rationals) -> Rationals:
    """Return f_k(x_n), (N, K'), of coefficients of the plain gates, exactly."""
    gates, X = rationals(problem.plain_gates.toarray()), rationals(problem.X)
    coef = plain_coef.reshape(-1, *plain_coef.shape[-2:])
    return np.stack([((X @ part.T) * gates).sum(axis=1) for part in coef], axis=1)


def _margins(problem: MarginProblem, answer: ExactAnswer) -> Rationals:
    """Return the margins of all constraints, shape (R,)."""
    offsets = rationals(np.asarray(answer.intercept, dtype=object).reshape(-1))
    return problem.constraints.margins(scores(problem, rationals(answer.plain_coef)) + offsets)


def _lower(problem: MarginProblem, values: Rationals) -> tuple[float, Array]:
    """Return the lower bound, and bounds (G,) on the terms of Omega_*(V) of scaled alpha."""
    rows, gates = problem.constraints, rationals(problem.plain_gates.toarray())
    X, weights = rationals(problem.X), rows.weights(values)
    norms = _dual_norms(problem, np.stack([(gates * w[:, None]).T @ X for w in weights.T]))
    total, finite = sum(values), [norm for norm in norms if norm is not None]
    balanced = not problem.intercept or is_balanced(rows, values)
    if total == 0 or not balanced or len(finite) < len(norms):
        return 0.0, np.array([math.inf if norm is None else _rounded(norm) for norm in norms])
    scales = [1 / max(finite)] if max(finite) > 0 else []
    if not problem.hard_margin:
        totals = rows.totals(values)
        scales.append((rationals(problem.box)[totals > 0] / totals[totals > 0]).min())
    if not scales:
        return math.inf, np.zeros(len(norms))
    dual_norms = np.array([_rounded(norm * min(scales)) for norm in finite])
    return _rounded(total * min(scales), down=True), dual_norms


def _upper(problem: MarginProblem, coef: Rationals, margins: Rationals) -> float:
    norm = _norm(problem, coef.reshape(-1, *coef.shape[-2:]))
    if norm is None or (problem.hard_margin and min(margins) <= 0):
        return math.inf
    if problem.hard_margin:
        return _rounded(norm / min(margins))
    short = margins < 1
    return _rounded(norm + (rationals(problem.box)[short] * (1 - margins[short])).sum())


# --- norms, from above; None is infinity ---------------------------------------------------------


def _dual_norms(problem: MarginProblem, V: Rationals) -> list[Rational | None]:
    """Return upper bounds on the terms of Omega_*(V), V (K, M', D)."""
    if problem.norm is problem.gate_norm:
        return [_root_above(square) for square in _group_squares(problem, V)]
    enclosure, unit = _enclosed(V)
    return [_times(bound, unit) for bound in problem.norm.dual_bounds(enclosure)]


def _norm(problem: MarginProblem, coef: Rationals) -> Rational | None:
    """Return an upper bound on Omega of plain coefficients (K, M', D)."""
    if problem.norm is problem.gate_norm:
        return sum(_root_above(square) for square in _group_squares(problem, coef))
    rounded, unit = _enclosed(coef)
    terms = [problem.norm.value_bound(rounded.value)]
    for j in np.flatnonzero(rounded.radius):
        entry = np.zeros(coef.shape)
        entry.flat[j] = rounded.radius.flat[j]
        terms.append(problem.norm.value_bound(entry))
    return _times(sum_up(terms), unit)


def _times(bound: float, unit: Rational) -> Rational | None:
    return _rational(bound) * unit if math.isfinite(bound) else None


def _enclosed(values: Rationals) -> tuple[Enclosure, Rational]:
    """Return numbers over a power of two, none above 1, in float64, and that power."""
    sizes = [_bits(value.numerator) - _bits(value.denominator) for value in values.ravel() if value]
    unit = _rational(2.0) ** (max(sizes, default=0) + 1)
    scaled = values / unit
    nearest = scaled.astype(np.float64)
    left = abs(scaled - rationals(nearest))
    return Enclosure(nearest, np.frompyfunc(_rounded, 1, 1)(left).astype(np.float64)), unit


def _group_squares(problem: MarginProblem, rows: Rationals) -> list[Rational]:
    """Return the sum of squares of each group of rows (K, M', D)."""
    squares = np.zeros(problem.n_groups, dtype=object)
    np.add.at(squares, problem.gate_norm.groups_of_rows(len(rows)), (rows * rows).sum(-1).ravel())
    return squares.tolist()


def _root_above(square: Rational) -> Rational:
    """Return a rational number that is at least a square root, by a share of 2^-255 at most."""
    # The root of p / q is that of p q, over q.
    whole = int(square.numerator * square.denominator) << 2 * ROOT_BITS
    root = math.isqrt(whole)
    above = root + (root * root < whole)
    return above / (_rational(2.0) ** ROOT_BITS * square.denominator)


def _bits(value: Any) -> int:
    return int(value).bit_length()


def _rounded(value: Rational, down: bool = False) -> float:
    """Return the float64 next above a rational number, or below."""
    if value < 0:
        return -_rounded(-value, not down)
    if value > _rational(sys.float_info.max):
        return sys.float_info.max if down else math.inf
    nearest = int(value.numerator) / int(value.denominator)
    error = _rational(nearest) - value
    if error == 0 or (error < 0) == down:
        return nearest
    return math.nextafter(nearest, 0.0 if down else math.inf)
