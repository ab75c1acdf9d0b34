r"""Certified bounds on the smallest norm that interpolates.

**Lower.** For any alpha, free in sign, and any zeta with <zeta_k, phi(x_n)> + b_k = y_nk,

        <alpha, Y> = <zeta, V(alpha)> + sum_k b_k sum_n alpha_nk <= Omega(zeta) Omega_*(V(alpha)),

if sum_n alpha_nk = 0 where there are offsets. So <alpha, Y> / Omega_*(V(alpha)) is a lower bound.
It needs alpha alone: <alpha, Y> is computed exactly, and Omega_*(V) is rounded up with the
enclosures of `bounds`. Multipliers are brought to a grid on which their sums are exactly 0 first.

**Upper.** Float64 coefficients do not interpolate: they leave residuals r = y - f(x). But zeta +
delta interpolates, where delta interpolates r, and Omega(zeta + delta) <= Omega(zeta) +
Omega(delta). With B and E = I - A B of `equations.RightInverse`, A the rows of the independent
equations, delta = B (I - E)^-1 r is such a delta if ||E|| < 1, so that

        optimum <= Omega(zeta) + c ||B|| / (1 - ||E||) ||r||,    c = max Omega(delta) / ||delta||.

1 / ||B (I - E)^-1|| is a certified bound on the smallest singular value of the features. r is
enclosed with more digits, so the last term is about the condition of the features times 1e-16.
The other equations hold at zeta + delta where they follow from the independent ones exactly.

**Slack.** Where they follow from these only up to rounding (or ||E|| is not below 1), nothing in
float64 tells whether the equations have a solution at all. Then the bounds are those of the relaxed
problem |f_k(x_n) - y_nk| <= slack, slack the largest residual, rounded up:

        (<alpha, Y> - slack sum |alpha|) / Omega_*(V(alpha))  <=  optimum  <=  Omega(zeta),

since f = y + s with |s| <= slack costs <alpha, s> at most in the first inequality above.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from implicit_bias.base.rounding import (
    LARGEST,
    SAFETY,
    SMALLEST_NORMAL,
    UNIT,
    Enclosure,
    down,
    ldexp_up,
    row_norms,
    up,
)
from implicit_bias.base.validation import Array
from implicit_bias.bounds.lower import dual_norms, precise_dual_norms
from implicit_bias.bounds.products import precise_predictions, unit_weights
from implicit_bias.interpolation.equations import Equations
from implicit_bias.interpolation.problem import InterpolationProblem
from implicit_bias.norms import GroupNorm
from implicit_bias.norms.norm import ConjugatedNorm


def lower_bound(problem: InterpolationProblem, alpha: Array, slack: float = 0.0) -> float:
    """Lower bound on the optimum by multipliers (N, K), of any size and sign.

    It is inf where V is exactly 0 and <alpha, Y> is not. With a slack it is that of the problem
    whose equations hold up to it.
    """
    if not np.isfinite(alpha).all() or not alpha.any():
        return 0.0
    # Scaled by a power of two, so that the products of V neither over- nor underflow: the bound
    # does not depend on the size of alpha.
    norms = np.repeat(problem.features.norms, alpha.shape[1])
    scaled = unit_weights(np.abs(alpha).ravel(), norms).reshape(alpha.shape)
    scaled = np.copysign(scaled, alpha)
    if problem.intercept:
        scaled = summing_to_0(scaled)
    # The sum cancels where alpha has both signs, so it is exact.
    total = Fraction(0)
    for a, y in zip(scaled.ravel().tolist(), problem.Y.ravel().tolist(), strict=True):
        if a:
            total += Fraction(a) * Fraction(y)
            if slack:
                total -= abs(Fraction(a)) * Fraction(slack)
    if total <= 0:
        return 0.0
    found = dual_norms(problem, scaled)
    # More digits where rounding may cost more than this fraction of the bound.
    if (found.radius > 1e-10 * found.value).any():
        found = precise_dual_norms(problem, scaled, np.zeros_like(scaled))
    largest = float(found.magnitude.max())
    # What overflowed bounds nothing.
    if not math.isfinite(largest):
        return 0.0
    # Features that cancel with values that do not: no coefficients interpolate.
    if largest == 0.0:
        return math.inf
    # The quotient is exact before it is rounded to float64, downwards.
    quotient = total / Fraction(largest)
    if quotient >= LARGEST:
        return LARGEST
    return down(float(quotient))


def summing_to_0(alpha: Array, bits_of_sum: int = 52) -> Array:
    """Return multipliers (N, K) near those given whose sum over the samples is exactly 0.

    They are integers times a power of two, of so few bits that all sums have ``bits_of_sum`` at
    most, and are exact. The largest one of each output takes what the others leave.
    """
    found = np.zeros_like(alpha)
    for k, column in enumerate(alpha.T):
        largest = float(np.abs(column).max())
        if largest == 0:
            continue
        bits = bits_of_sum - math.ceil(math.log2(len(column) + 1))
        exponent = math.frexp(largest)[1] - bits
        whole = [round(value) for value in np.ldexp(column, -exponent).tolist()]
        # The largest one changes by the least fraction of itself.
        place = int(np.abs(column).argmax())
        whole[place] -= sum(whole)
        found[:, k] = np.ldexp(np.array(whole, dtype=np.float64), exponent)
    return found


def residuals(problem: InterpolationProblem, coef: Array, offsets: Array) -> Enclosure:
    """Return y - f(x), (N, K), of coefficients (K, M, D) and offsets (K,), enclosed."""
    features = problem.features
    samples = np.arange(len(features))
    values = []
    radii = []
    for of_output, offset, y in zip(coef, offsets, problem.Y.T, strict=True):
        # Coefficients of size 1 keep the products with more digits within float64.
        exponent = math.frexp(float(np.abs(of_output).max()))[1]
        found = precise_predictions(
            features.fast_gates, features.X, np.ldexp(of_output, -exponent), samples
        )
        f = np.ldexp(found.value, exponent)
        whole = f + offset
        rest = y - whole
        # What the features' rounding makes of f, and three roundings here.
        radius = ldexp_up(found.radius, exponent) + SMALLEST_NORMAL
        radius += UNIT * (np.abs(f) + np.abs(whole) + np.abs(rest))
        values.append(rest)
        radii.append(SAFETY * radius)
    return Enclosure(np.stack(values, axis=1), np.stack(radii, axis=1))


def norm_bound(problem: InterpolationProblem, coef: Array) -> float:
    """Upper bound on Omega of coefficients (K, M, D), whatever their size."""
    exponent = math.frexp(float(np.abs(coef).max()))[1]
    bound = problem.norm.value_bound(np.ldexp(coef, -exponent))
    return float(ldexp_up(bound, exponent))


def upper_bound(
    problem: InterpolationProblem, equations: Equations, coef: Array, residual: Enclosure
) -> float:
    """Upper bound on the optimum, of the equations without slack; inf where there is no proof."""
    value = norm_bound(problem, coef)
    index = equations.independent
    sizes = np.ldexp(residual.magnitude[index], -equations.exponents[index, None])
    distance = SAFETY * float(row_norms(sizes.reshape(1, -1))[0])
    if distance == 0:
        return value
    n_features = math.prod(problem.features.shape)
    # The norm counts the features' part of the right inverse alone: the offset costs nothing.
    step = equations.inverse.norm(n_features) * distance
    return up(value + SAFETY * euclidean_constant(problem) * step)


def euclidean_constant(problem: InterpolationProblem) -> float:
    """Upper bound on Omega(delta) over ||delta||: the root of sum_j Omega(e_j)^2.

    Each Omega(e_j) is 1, but for custom norms.
    """
    size = math.prod(problem.norm_shape)
    if isinstance(problem.norm, ConjugatedNorm | GroupNorm):
        return SAFETY * math.sqrt(size)
    unit = np.zeros(problem.norm_shape)
    total = 0.0
    for place in np.ndindex(problem.norm_shape):
        unit[place] = 1.0
        total += problem.norm.value_bound(unit) ** 2
        unit[place] = 0.0
    return SAFETY * math.sqrt(total)
