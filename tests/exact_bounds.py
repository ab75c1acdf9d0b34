"""Both bounds of a hard margin by their definition, in rational numbers: an oracle of tests."""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from implicit_bias import Certificate, MarginProblem
from implicit_bias.base.validation import Array
from implicit_bias.norms import L1, GroupNorm, LInf

# Digits of the exact square roots.
DIGITS = Fraction(1, 10**50)


def fractions(values: Any) -> Any:
    """Array of the same real numbers."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(values, dtype=np.float64))


def root(value: Fraction) -> Fraction:
    """Square root to 60 digits."""
    bits = value.denominator.bit_length() - value.numerator.bit_length()
    scale = 10**120 * 4 ** max(0, 600 + bits)
    return Fraction(math.isqrt(int(value * scale)), math.isqrt(scale))


def exact_norms(problem: MarginProblem, values: Any, *, dual: bool = False) -> list[Fraction]:
    """Norms of the groups of rational numbers (K, M, D); of l1 and l_inf the one norm."""
    sum_of_sizes = L1 if not dual else LInf
    if isinstance(problem.norm, (L1, LInf)):
        sizes = np.abs(values)
        return [sizes.sum() if isinstance(problem.norm, sum_of_sizes) else sizes.max()]
    squares = (values**2).sum(axis=2)  # (K, M)
    if not (isinstance(problem.norm, GroupNorm) and problem.norm.apart):
        squares = squares.sum(axis=0)[None]
    groups = [problem.groups == g for g in np.unique(problem.groups)]
    return [root(Fraction(row[group].sum())) for row in squares for group in groups]


def exact_bounds(
    problem: MarginProblem, coef: Array, alpha: Array, offset: Any = 0.0
) -> tuple[Fraction | float, Fraction | float]:
    """Lower bound of dual variables, upper bound of coefficients and an offset."""
    gates, X = fractions(problem.plain_gates.toarray()), fractions(problem.X)
    phi = (gates[:, :, None] * X[:, None])[:, None]  # (N, 1, M, D)
    if problem.classes is None:
        labels = fractions(problem.y)[:, None, None]
    else:
        unit = fractions(np.eye(problem.classes))
        labels = unit[problem.y.astype(int)][:, None] - unit  # (N, K, K)
    a = fractions(alpha)
    weights = (a.reshape(labels.shape[:2])[:, :, None] * labels).sum(axis=1)  # (N, K')
    V = (weights[:, :, None, None] * phi).sum(axis=0)
    zeta = fractions(coef).reshape(V.shape)
    scores = (zeta * phi).sum(axis=(2, 3)) + fractions(offset).reshape(1, -1)
    margin = (labels * scores[:, None]).sum(axis=2)[(labels != 0).any(axis=2)].min()
    size, dual = sum(exact_norms(problem, zeta)), max(exact_norms(problem, V, dual=True))
    upper = size / margin if margin > 0 else math.inf
    if not a.any() or (problem.intercept and weights.sum(axis=0).any()):
        return 0.0, upper
    return (a.sum() / dual if dual else math.inf), upper


def hold(
    problem: MarginProblem, found: Certificate, coef: Array, alpha: Array, offset: Any = 0.0
) -> None:
    """Check that bounds hold as real numbers."""
    lower, upper = exact_bounds(problem, coef, alpha, offset)
    assert found.lower <= lower * (1 + DIGITS)
    assert found.upper >= upper * (1 - DIGITS)
