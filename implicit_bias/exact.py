r"""Bounds in exact rational arithmetic, for answers that float64 numbers cannot hold.

Where any separator's margin is tiny relative to the features, V(alpha) is a small difference of
large numbers: rounding alpha to float64 changes it by more than its size, and the lower bound of
the rounded alpha says little. The same holds for coefficients and their margins. An answer in
rational numbers has no such limit; its bounds are those of `certificate`,

    lower = sum(alpha) / max_g ||V_g(alpha)||,    upper = Omega(zeta) / min_n y_n (f(x_n) + b)

(or C sum(alpha) / max(alpha) if less, and Omega(zeta) + C sum_n xi_n, with a soft margin), each
evaluated exactly, but for square roots and the result, which are rounded outwards.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from fractions import Fraction

import gmpy2
import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import Certificate
from implicit_bias.problem import MarginProblem
from implicit_bias.validation import Array

# Bits of a square root beyond those of float64.
ROOT_BITS = 256

Rationals = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class ExactAnswer:
    """Coefficients and dual variables as rational numbers.

    Attributes
    ----------
    plain_coef : ndarray of Fraction, shape (M', D)
        Coefficients of the problem's plain gates (those of ``problem.gates``, without a metric).
    alpha : ndarray of Fraction, shape (N,)
        Dual variables, not negative.
    intercept : Fraction
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
    intercept: Fraction = Fraction(0)

    def coef(self, problem: MarginProblem) -> Array:
        """Return the coefficients (M, D) of the problem's gates, rounded to float64."""
        return problem.of_plain(self.plain_coef.astype(np.float64))

    def margins(self, problem: MarginProblem) -> Array:
        """Return y_n (f(x_n) + b), shape (N,), rounded to float64."""
        gates, coef = rationals(problem.plain_gates.toarray()), rationals(self.plain_coef)
        return _margins(problem, gates, rationals(problem.X), coef, self).astype(np.float64)


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
        Shapes that do not fit, negative alpha, many classes, or another norm than that of groups
        of gate columns.

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
    if not problem.is_binary_group_lasso:
        raise ValueError(
            "bounds in rational numbers are those of two classes and of the group norm of gate "
            "columns: use certify"
        )
    alpha, coef = rationals(answer.alpha), rationals(answer.plain_coef)
    shapes = (problem.n_samples,), (problem.plain_gates.shape[1], problem.X.shape[1])
    if (alpha.shape, coef.shape) != shapes:
        raise ValueError(
            f"alpha and plain_coef must have the shapes {shapes[0]} and {shapes[1]}, got "
            f"{alpha.shape} and {coef.shape}"
        )
    if (alpha < 0).any():
        raise ValueError(f"alpha must not be negative, got {float(min(alpha)):.3g}: clip it at 0")
    gates, signs = rationals(problem.plain_gates.toarray()), rationals(problem.y)
    X = rationals(problem.X)
    V = (gates * (alpha * signs)[:, None]).T @ X
    norms = [_root_above(square) for square in _group_squares(problem, V)]
    margins = _margins(problem, gates, X, coef, answer)
    size = sum((_root_above(square) for square in _group_squares(problem, coef)), gmpy2.mpq(0))
    lower, upper = _lower(problem, alpha, signs, max(norms)), _upper(problem, size, margins)
    return Certificate(
        lower,
        upper,
        (upper - lower) / lower if 0 < lower <= upper < math.inf else math.inf,
        _rounded(min(margins), down=True),
        np.array([_rounded(norm) for norm in norms]),
    )


def rationals(values: Array | Rationals) -> Rationals:
    """Return the same real numbers as an array of gmpy2's rationals."""
    return np.asarray(np.frompyfunc(gmpy2.mpq, 1, 1)(values), dtype=object)


def _margins(
    problem: MarginProblem, gates: Rationals, X: Rationals, coef: Rationals, answer: ExactAnswer
) -> Rationals:
    f = ((X @ coef.T) * gates).sum(axis=1)
    return np.asarray(rationals(problem.y) * (f + gmpy2.mpq(answer.intercept)))


def _lower(problem: MarginProblem, alpha: Rationals, signs: Rationals, largest: gmpy2.mpq) -> float:
    total = alpha.sum()
    if total == 0 or (problem.intercept and (alpha * signs).sum() != 0):
        return 0.0
    scales = [] if largest == 0 else [1 / largest]
    if not problem.hard_margin:
        scales.append(gmpy2.mpq(problem.C) / max(alpha))
    return _rounded(total * min(scales), down=True) if scales else math.inf


def _upper(problem: MarginProblem, norm: gmpy2.mpq, margins: Rationals) -> float:
    if problem.hard_margin:
        smallest = min(margins)
        return _rounded(norm / smallest) if smallest > 0 else math.inf
    losses = sum((1 - margin for margin in margins if margin < 1), gmpy2.mpq(0))
    return _rounded(norm + gmpy2.mpq(problem.C) * losses)


def _group_squares(problem: MarginProblem, rows: Rationals) -> list[gmpy2.mpq]:
    """Return the sum of squares of each group of rows."""
    sums = [gmpy2.mpq(0)] * problem.n_groups
    for group, square in zip(problem.plain_groups, (rows * rows).sum(axis=1), strict=True):
        sums[group] += square
    return sums


def _root_above(square: gmpy2.mpq) -> gmpy2.mpq:
    """Return a rational number that is at least a square root, by a share of 2^-255 at most."""
    if square == 0:
        return square
    shift = 2 * ROOT_BITS + square.denominator.bit_length() - square.numerator.bit_length()
    shift += shift % 2
    scaled = square * gmpy2.mpq(2) ** shift
    root, rest = gmpy2.isqrt_rem(scaled.numerator // scaled.denominator)
    above = root + (rest > 0 or scaled.denominator > 1)
    return above / gmpy2.mpq(2) ** (shift // 2)


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
