r"""Bounds in exact rational arithmetic, for answers that float64 numbers cannot hold.

Where any separator's margin is tiny relative to the features, V(alpha) is a small difference of
large numbers: rounding alpha to float64 changes it by more than its size, and the lower bound of
the rounded alpha says little. The same holds for coefficients and their margins. An answer in
rational numbers has no such limit; its bounds are those of `certificate`,

    lower = sum(alpha) / Omega_*(V(alpha)),    upper = Omega(zeta) / min_n q_n

(or C sum(alpha) / max_n sum_k alpha_nk if less, and Omega(zeta) + C sum_n xi_n, with a soft
margin). V(alpha) and the margins q_n are exact, and so is the intercept's equation. Norms of groups
are sums of square roots, which are rounded outwards. Other norms are bounded from above in
float64, of V(alpha) as it is rounded, with that rounding. Of coefficients, which are c when
rounded, and with what rounding leaves, r, they are bounded by

    Omega(zeta) <= Omega(c) + sum_j Omega(r_j e_j).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

import gmpy2
import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.rounding import Enclosure, sum_up
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate, relative_gap
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import Rows

# Bits of a square root.
ROOT_BITS = 256

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
        Shapes that do not fit, an intercept that the problem lacks, or alpha that is negative or
        not 0 at a sample's own class.

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
    alpha = rationals(answer.alpha)
    shapes = problem.alpha_shape, _plain_shape(problem)
    if (alpha.shape, np.shape(answer.plain_coef)) != shapes:
        raise ValueError(
            f"alpha and plain_coef must have the shapes {shapes[0]} and {shapes[1]}, got "
            f"{alpha.shape} and {np.shape(answer.plain_coef)}"
        )
    if problem.classes is not None and alpha[np.arange(len(alpha)), problem.owners].any():
        raise ValueError("alpha must be 0 at each sample's own class: alpha[n, y[n]] = 0")
    offset, shape = np.asarray(answer.offset), np.shape(problem.no_offset)
    if offset.shape != shape:
        raise ValueError(f"intercept must have the shape {shape}, got {offset.shape}")
    if not problem.intercept and rationals(np.asarray(answer.intercept, dtype=object)).any():
        raise ValueError("the problem has no intercept: pass intercept=True to it, or leave it out")
    if (alpha < 0).any():
        smallest = float(alpha.min())
        raise ValueError(f"alpha must not be negative, got {smallest:.3g}: clip it at 0")
    margins = _margins(problem, answer)
    lower, dual_norms = _lower(problem, alpha)
    upper = _upper(problem, rationals(answer.plain_coef), margins)
    smallest = _rounded(min(margins), down=True)
    return Certificate(lower, upper, relative_gap(lower, upper), smallest, dual_norms)


def balanced_exactly(rows: Rows, alpha: Rationals) -> Rationals:
    """Return fractions (P,) that obey the intercept's equation exactly, near those that all but do.

    What classes lack is passed on along a tree of the heaviest rows, from its leaves to its root.
    Weights that it would make negative are returned as they are: they bound nothing.
    """
    if not rows.n_offsets:
        return alpha
    owners = (rows.y > 0).astype(np.int64) if rows.owners is None else rows.owners
    rivals = 1 - owners if rows.rivals is None else rows.rivals
    lacks = {int(k): Fraction(0) for k in np.union1d(owners, rivals)}
    for owner, rival, weight in zip(owners, rivals, alpha, strict=True):
        lacks[owner] -= weight
        lacks[rival] += weight
    roots = {k: k for k in lacks}
    edges: list[int] = []
    for p in sorted(range(len(alpha)), key=lambda p: alpha[p], reverse=True):
        one, other = roots[owners[p]], roots[rivals[p]]
        if one != other and alpha[p] > 0:
            edges.append(p)
            roots = {k: one if root == other else root for k, root in roots.items()}
    balanced = alpha.copy()
    while edges:
        ends = [k for p in edges for k in (owners[p], rivals[p])]
        p = next(p for p in edges if 1 in (ends.count(owners[p]), ends.count(rivals[p])))
        edges.remove(p)
        leaf, rest = (
            (owners[p], rivals[p]) if ends.count(owners[p]) == 1 else (rivals[p], owners[p])
        )
        balanced[p] += lacks[leaf] if leaf == owners[p] else -lacks[leaf]
        lacks[rest] += lacks[leaf]
    return balanced if (balanced >= 0).all() else alpha


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
    scores = scores + rationals(np.asarray(answer.intercept, dtype=object))
    own = np.arange(len(scores)), problem.owners
    rivals = [np.delete(row, k) for row, k in zip(scores, problem.owners, strict=True)]
    return np.asarray(scores[own] - np.array([row.max() for row in rivals], dtype=object))


def _lower(problem: MarginProblem, alpha: Rationals) -> tuple[float, Array]:
    """Return the lower bound, and bounds (G,) on the terms of Omega_*(V) of scaled alpha."""
    gates, X = _data(problem)
    if problem.classes is None:
        weights = (alpha * rationals(problem.y))[:, None]  # labels as floats would round
    else:
        weights = cast(Rationals, problem.weights(cast(Any, alpha)))
    norms = _dual_norms(problem, np.stack([(gates * w[:, None]).T @ X for w in weights.T]))
    totals = alpha.reshape(len(alpha), -1).sum(axis=1)
    total, finite = totals.sum(), [norm for norm in norms if norm is not None]
    balanced = not problem.intercept or not weights.sum(axis=0).any()
    if total == 0 or not balanced or len(finite) < len(norms):
        return 0.0, np.array([math.inf if norm is None else _rounded(norm) for norm in norms])
    scales = [1 / max(finite)] if max(finite) > 0 else []
    if not problem.hard_margin:
        scales.append(gmpy2.mpq(problem.C) / max(totals))
    if not scales:
        return math.inf, np.zeros(len(norms))
    dual_norms = np.array([_rounded(norm * min(scales)) for norm in finite])
    return _rounded(total * min(scales), down=True), dual_norms


def _upper(problem: MarginProblem, coef: Rationals, margins: Rationals) -> float:
    norm = _norm(problem, coef if problem.classes is not None else coef[None])
    if norm is None or (problem.hard_margin and min(margins) <= 0):
        return math.inf
    if problem.hard_margin:
        return _rounded(norm / min(margins))
    losses = sum((1 - margin for margin in margins if margin < 1), gmpy2.mpq(0))
    return _rounded(norm + gmpy2.mpq(problem.C) * losses)


# --- norms, from above; None is infinity ---------------------------------------------------------


def _dual_norms(problem: MarginProblem, V: Rationals) -> list[gmpy2.mpq | None]:
    """Return upper bounds on the terms of Omega_*(V), V (K, M', D)."""
    if problem.norm is problem.gate_norm:
        return [_root_above(square) for square in _group_squares(problem, V)]
    enclosure, unit = _enclosed(V)
    return [_times(bound, unit) for bound in problem.norm.dual_bounds(enclosure)]


def _norm(problem: MarginProblem, coef: Rationals) -> gmpy2.mpq | None:
    """Return an upper bound on Omega of plain coefficients (K, M', D)."""
    if problem.norm is problem.gate_norm:
        roots = [_root_above(square) for square in _group_squares(problem, coef)]
        return sum(roots, gmpy2.mpq(0))
    rounded, unit = _enclosed(coef)
    terms = [problem.norm.value_bound(rounded.value)]
    for j in np.flatnonzero(rounded.radius):
        entry = np.zeros(coef.shape)
        entry.flat[j] = rounded.radius.flat[j]
        terms.append(problem.norm.value_bound(entry))
    return _times(sum_up(terms), unit)


def _times(bound: float, unit: gmpy2.mpq) -> gmpy2.mpq | None:
    return gmpy2.mpq(bound) * unit if math.isfinite(bound) else None


def _enclosed(values: Rationals) -> tuple[Enclosure, gmpy2.mpq]:
    """Return numbers over a power of two, none above 1, in float64, and that power."""
    sizes = [v.numerator.bit_length() - v.denominator.bit_length() for v in values.ravel() if v]
    unit = gmpy2.mpq(2) ** (max(sizes, default=0) + 1)
    scaled = values / unit
    nearest = scaled.astype(np.float64)
    left = abs(scaled - rationals(nearest))
    return Enclosure(nearest, np.frompyfunc(_rounded, 1, 1)(left).astype(np.float64)), unit


def _group_squares(problem: MarginProblem, rows: Rationals) -> list[gmpy2.mpq]:
    """Return the sum of squares of each group of rows (K, M', D)."""
    sums = [gmpy2.mpq(0)] * problem.n_groups
    groups = problem.gate_norm.groups_of_rows(len(rows))
    for group, square in zip(groups, (rows * rows).sum(axis=-1).ravel(), strict=True):
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
