r"""Certified bounds on the optimum, from any coefficients and any dual variables.

upper  For any zeta and b, min over c >= 0 of Omega(c zeta) + C sum_n max(0, 1 - c q_n), with the
       margins q_n = y_n (f(x_n) + b); with the hard margin this is Omega(zeta) / min_n q_n, if that
       margin is positive.
lower  For any alpha >= 0, sum(alpha) scaled so that max_g ||V_g(alpha)|| = 1 (and alpha <= C).
       With an intercept sum_n alpha_n y_n must be 0, exactly, or the bound is 0 (see `balanced`).

With another norm Omega_*(V) is in the place of max_g ||V_g||. With many classes q_n is the
smallest margin f_{y_n} + b_{y_n} - f_k - b_k of a sample, alpha has shape (N, K), sum_k alpha_nk is
at most C, and the equation of the intercept is sum_n a_n = 0 (see `balanced_flow`).

Both hold for every iterate of every solver and for a network trained by gradient descent, and are
computed here alone, in numpy, on the unscaled data.

What is guaranteed: lower <= optimum <= upper, as real numbers, of the problem whose data are the
stored float64 values (with a metric: of its plain gates, see `MarginProblem.plain_gates`). The
optimum is inf where no coefficients separate. Each bound contains an allowance for all rounding
errors on the way to it (`rounding`). Where the allowance would exceed REFINE and a hundredth of the
gap, the products are evaluated again with 28 digits. Neither bound depends on the scale of coef or
alpha, which are normalised by powers of two first.

If some alpha >= 0, not 0, has V = 0, no zeta separates the data (Gordan). The lower bound is inf
where that is proven (`separability`), and finite where V is merely small: any separator is at
least that large.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.rounding import (
    SAFETY,
    UNIT,
    Enclosure,
    balance,
    down,
    dual_vector_norms,
    dual_vectors,
    gamma,
    ldexp_up,
    precise_dual_vectors,
    precise_predictions,
    predictions,
    row_norms,
    sum_up,
    unit_weights,
    up,
)
from implicit_bias.base.validation import Array, as_finite
from implicit_bias.bounds.separability import (
    Conflict,
    Proof,
    find_conflict,
    prove_not_separable,
)
from implicit_bias.problem import MarginProblem, are_few, check_problem, decision, gated_linear

__all__ = [
    "Certificate",
    "Conflict",
    "Graded",
    "Proof",
    "Status",
    "balanced",
    "balanced_flow",
    "certify",
    "dual_norm_bounds",
    "dual_scale",
    "excess",
    "find_conflict",
    "gordan_ratio",
    "grade",
    "margin_enclosures",
    "norm_at_margin_1",
    "primal_bound",
    "primal_scale",
    "prove_not_separable",
    "relative_gap",
    "repaired",
]

# Bounds that cross contradict each other: by more than this share, something is wrong.
CONTRADICTION = 1e-9
# Products are evaluated again where rounding may cost more than this share of a bound and more
# than REFINE_GAP of the gap.
REFINE = 1e-10
REFINE_GAP = 0.01
# Where the Gordan ratio exceeds this, a proof that the data are not separable is tried.
TRY_PROOF = 1e7
# Coefficients whose best scale gains less than this share of their norm are graded as they are.
SAME = 1e-14
LARGEST = sys.float_info.max
GOLDEN_STEPS = 90
MOST_REPAIRS = 100
MOST_REFINEMENTS = 5
# No bound takes what overflows for a number: it is then infinite, or 0.
QUIET = np.errstate(over="ignore", invalid="ignore", divide="ignore")
# Margins of coefficients of about 1 below this are rounding, and their inverse has no square.
SMALLEST_MARGIN = 2.0**-1000
# An offset may exceed the coefficients by this power of two.
LARGEST_OFFSET = 900
# An entry of alpha this much larger than a change keeps most of its digits.
MUCH_LARGER = 2.0**32


class Status(Enum):
    """How a solve ended; each member carries its message.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import Status, max_margin, solve
    >>> same_input_twice = max_margin(np.array([[1.0], [1.0]]), np.array([1.0, -1.0]))
    >>> solve(same_input_twice).status is Status.NOT_SEPARABLE
    True
    """

    OPTIMAL = "the certified gap is within the tolerance"
    NOT_SEPARABLE = (
        "the data are not separable with these gates, which is proven (choose a finite C, more "
        "units or other features)"
    )
    NEARLY_INSEPARABLE = (
        "any separator is so large, and its margin relative to the features so small, that float64 "
        "can neither find one nor prove that there is none (center or scale the features, or "
        "choose a finite C)"
    )
    ITERATION_LIMIT = "the iteration limit came first"
    TIME_LIMIT = "the time limit came first"
    INTERRUPTED = "Ctrl-C came first"
    MEMORY_LIMIT = "the memory limit came first"
    NUMERICAL_TROUBLE = "rounding errors stopped the solver"

    @property
    def message(self) -> str:
        """One sentence for people."""
        return self.value

    @property
    def label(self) -> str:
        """The name in lower-case words, for tables."""
        return self.name.lower().replace("_", " ")

    @property
    def inseparable(self) -> bool:
        """Whether no coefficients separate the samples, proven or as far as float64 can tell."""
        return self in (Status.NOT_SEPARABLE, Status.NEARLY_INSEPARABLE)

    def explain(self, certificate: Certificate) -> str:
        """Return the message, with what is certified of the optimum nevertheless."""
        if self in (Status.OPTIMAL, Status.NOT_SEPARABLE):
            return self.message
        return f"{self.message}; {certificate.statement}"


@dataclass(frozen=True, eq=False)
class Certificate:
    """Certified bounds on the optimal value of a margin problem.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them. inf as lower bound: not separable, proven.
    gap : float
        (upper - lower) / lower: the coefficients' norm exceeds the optimum by at most this
        share; inf where a bound is missing, nan where the bounds contradict each other.
    min_margin : float
        Smallest y_n (f(x_n) + b) of the coefficients as they were given; nan without coefficients.
    dual_norms : ndarray of shape (G,)
        ||V_g|| at alpha scaled to be feasible, at most 1. A group below 1 is switched off at
        the optimum; nan without alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import certify, max_margin
    >>> problem = max_margin(np.array([[2.0], [-1.0]]), np.array([1.0, -1.0]))
    >>> bounds = certify(problem, coef=np.array([[1.0]]), alpha=np.array([0.0, 1.0]))
    >>> print(f"between {bounds.lower:.3f} and {bounds.upper:.3f}; {bounds.gap < 1e-12}")
    between 1.000 and 1.000; True
    """

    lower: float
    upper: float
    gap: float
    min_margin: float
    dual_norms: Array

    @property
    def statement(self) -> str:
        """What is certified of the optimum, in words."""
        if math.isinf(self.lower):
            return "no coefficients separate the data"
        if math.isinf(self.upper):
            known = f"the optimum is at least {self.lower:.6g}" if self.lower > 0 else "nothing"
            return f"certified: {known}, and no upper bound"
        return f"certified: the optimum is between {self.lower:.6g} and {self.upper:.6g}"


@QUIET
def certify(
    problem: MarginProblem,
    coef: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
    intercept: ArrayLike | None = None,
) -> Certificate:
    """Bound the optimum of a problem by any coefficients and/or any dual variables.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    coef : array_like of shape (M, D) or (K, M, D), optional
        Coefficients zeta; without them the upper bound is that of zeta = 0.
    alpha : array_like of shape (N,) or (N, K), optional
        Dual variables, not negative; without them the lower bound is 0.
    intercept : float or array_like of shape (K,), optional
        The offset b that belongs to coef, where the problem has one; the best one by default
        (with many classes, those of the largest smallest margin).

    Returns
    -------
    Certificate

    Raises
    ------
    ValueError
        Shapes that do not fit, NaN, alpha that is negative or not 0 at a sample's own class, an
        intercept of a problem without one.

    Examples
    --------
    Half of the best coefficients prove as much as all of them; any multipliers bound the optimum
    from below.

    >>> import numpy as np
    >>> from implicit_bias import certify, max_margin
    >>> problem = max_margin(np.array([[2.0], [-1.0]]), np.array([1.0, -1.0]))
    >>> print(f"{certify(problem, coef=np.array([[0.5]])).upper:.3f}")
    1.000
    >>> print(f"{certify(problem, alpha=np.array([1.0, 1.0])).lower:.3f}")
    0.667
    """
    check_problem(problem, "certify")
    if coef is None and intercept is not None:
        raise ValueError("intercept without coef bounds nothing: pass both")
    primal = None if coef is None else _Primal.of(problem, coef, intercept)
    dual = None if alpha is None else _Dual.of(problem, alpha)
    return _certificate(problem, primal, dual)


def _certificate(
    problem: MarginProblem,
    primal: _Primal | None,
    dual: _Dual | None,
    suspect: Array | None = None,
) -> Certificate:
    """Bounds from what was evaluated, again and with more digits where rounding matters.

    A proof that the data are not separable is looked for near the dual variables, and near
    ``suspect``, to which the equation of the intercept was not yet applied.
    """
    rough = relative_gap(dual.central, primal.central) if primal and dual else 0.0
    target = max(REFINE, REFINE_GAP * rough) if np.isfinite(rough) else REFINE
    if primal is not None and primal.allowance > target:
        primal = primal.refined()
    if dual is not None and dual.allowance > target:
        dual = dual.refined()
    lower = 0.0 if dual is None else dual.bound
    upper = _value_of_zero(problem) if primal is None else primal.bound
    if dual is not None and math.isinf(upper) and problem.hard_margin:
        near = [dual.alpha] if dual.gordan_ratio > TRY_PROOF else []
        if problem.intercept and suspect is not None:
            near += [suspect] if gordan_ratio(problem, suspect) > TRY_PROOF else []
        lower = np.inf if any(prove_not_separable(problem, alpha) for alpha in near) else lower
    return Certificate(
        lower,
        upper,
        relative_gap(lower, upper),
        np.nan if primal is None else primal.min_margin,
        np.full(problem.n_groups, np.nan) if dual is None else dual.scaled_norms,
    )


@QUIET
def dual_norm_bounds(problem: MarginProblem, weights: Array) -> Array:
    """Upper bounds on ||sum_n weights_n z(x_n) (x) x_n||_g, shape (G,), of weights of any sign.

    They hold as real numbers, like those of `certify`.
    """
    if not weights.any():
        return np.zeros(problem.n_groups)
    size = np.abs(weights)
    scaled = unit_weights(size, problem.feature_norms)
    exponent = int(np.frexp(size.max())[1] - np.frexp(scaled.max())[1])
    signed = np.copysign(scaled, weights) * problem.y  # V takes alpha_n y_n
    gates = problem.plain_gates_for_products
    rows = dual_vector_norms(gates, problem.X, _weights(problem, signed), are_few(gates))
    dual = _Dual(problem, signed, problem.gate_norm.of_rows(rows))
    if (dual.norms.radius > REFINE * dual.norms.value).any():
        dual = dual.refined()
    return ldexp_up(dual.norms.magnitude, exponent)


@QUIET
def margin_enclosures(problem: MarginProblem, coef: Array, offsets: float | Array) -> Enclosure:
    """Smallest margin of each sample, (N,), with what rounding may have added to it.

    Parameters
    ----------
    problem : MarginProblem
        The samples; whether its predictors have an intercept does not matter.
    coef : ndarray of shape (M, D) or (K, M, D)
        Coefficients, the largest about 1.
    offsets : float or ndarray of shape (K,)
        Added to the predictions.
    """
    plain, gates = problem.plain_coef(coef), problem.plain_gates_for_products
    if problem.classes is None:
        f = predictions(gates, problem.X, plain, gated_linear(problem.X, gates, plain))
        value = np.asarray(problem.y * (f.value + offsets))
        return Enclosure(value, f.radius + 4 * UNIT * np.abs(value))
    scores = _scores(problem, gates, plain)
    return _Classes(scores, np.asarray(offsets, np.float64)).smallest(problem)


def norm_at_margin_1(norm: float, min_margin: float) -> float:
    """Return the norm once the smallest margin is scaled to 1; inf where a margin is negative."""
    return norm / min_margin if min_margin > 0 else math.inf


def excess(norm: float, optimum: float) -> float:
    """How far a norm at margin 1 is above its optimum, as a share of it.

    norm / optimum - 1: inf for an infinite norm (not separated), nan where no optimum is known.
    """
    return norm / optimum - 1.0 if 0 < optimum < math.inf else math.nan


# --- scaling and grading of a candidate ------------------------------------------------------


@QUIET
def primal_bound(problem: MarginProblem, coef: Array, margins: Array) -> float:
    """Estimate the smallest primal value of c * coef over c >= 0, given its margins (N,).

    Without allowance for rounding: for the progress of a solver, which `certify` checks.
    """
    norm = float(problem.group_norms(coef).sum())
    scale = _best_scale(norm, margins, problem.C)
    zero = _value_of_zero(problem)
    if scale == 0 or not np.isfinite(scale):
        return zero
    loss = 0.0
    if not problem.hard_margin:
        loss = problem.C * float(np.maximum(0.0, 1.0 - scale * margins).sum())
    return min(scale * norm + loss, zero)


@QUIET
def primal_scale(problem: MarginProblem, coef: Array, intercept: float | None = None) -> float:
    """Return the c >= 0 for which c * coef has the smallest primal value; 0 if there is none."""
    return _Primal.of(problem, coef, intercept).best[0]


def dual_scale(problem: MarginProblem, alpha: Array, dual_norms: Array | None = None) -> float:
    """Return the largest c for which c * alpha is dual feasible; inf where every V_g is 0."""
    if dual_norms is None:
        dual_norms = problem.dual_norms(alpha)
    largest, top = float(dual_norms.max()), float(problem.totals(alpha).max())
    by_norm = 1.0 / largest if largest > 0 else np.inf
    by_box = problem.C / top if top > 0 else np.inf
    return min(by_norm, by_box)


def gordan_ratio(problem: MarginProblem, alpha: Array, dual_norms: Array | None = None) -> float:
    """sum_n alpha_n ||phi_n|| / max_g ||V_g(alpha)||, phi_n the features of sample n.

    Unlike the lower bound it does not change with the scale of single samples, as separability
    does not: with all features scaled to norm 1, the margin of any separator of norm 1 is at
    most its inverse.
    """
    if dual_norms is None:
        dual_norms = problem.dual_norms(alpha)
    largest = float(dual_norms.max())
    total = float(problem.totals(alpha) @ problem.feature_norms)
    return total / largest if largest > 0 else np.inf


def balanced(alpha: Array, y: Array, cap: float = np.inf) -> Array:
    """Return alpha (N,) >= 0 with sum_n alpha_n y_n = 0, exactly, near the alpha given.

    The heavier class is scaled down where the sums differ much; then single entries change by
    what is left, mostly by rounding errors, until the sum is 0 as real numbers. No entry grows
    beyond ``cap``. Zeros where one class has no weight.
    """
    alpha = np.array(alpha, dtype=np.float64)
    sums = {sign: math.fsum(alpha[y == sign].tolist()) for sign in (-1.0, 1.0)}
    if min(sums.values()) == 0:
        return np.zeros_like(alpha)
    heavy = max(sums, key=sums.__getitem__)
    if sums[heavy] - sums[-heavy] > 0.01 * alpha[y == heavy].max():
        alpha[y == heavy] *= sums[-heavy] / sums[heavy]
    for _ in range(MOST_REPAIRS):
        rest = balance(alpha, y)
        if rest == 0:
            return alpha
        if not _move(alpha, np.flatnonzero(y == np.sign(rest)), -abs(rest)):
            # The heavier class has no entry as fine as the rest, so the lighter one has.
            if not _move(alpha, np.flatnonzero(y == -np.sign(rest)), abs(rest), cap):
                break
    return _on_grid(alpha, y)


def balanced_flow(alpha: Array, y: NDArray[np.int64]) -> Array:
    """Return alpha (N, K) >= 0 with sum_n a_n = 0, exactly, near the alpha given.

    alpha_nk is a flow from the class of sample n to class k, and the equation says that as much
    leaves each class as enters it. The classes' flows are scaled towards that (Osborne: what
    leaves a class by 1 / s, what enters it by s, s the root of their ratio); then all is rounded
    down to a grid on which sums are exact, and what is left is sent back: from the classes that
    receive too much to those that send too much, by the largest entries. Zeros where that cannot
    be, as where only one class has samples, or where numbers are not finite.

    Parameters
    ----------
    alpha : ndarray of shape (N, K)
        Dual variables, not negative, 0 at a sample's own class.
    y : ndarray of int, shape (N,)
        Classes of the samples.
    """
    alpha = np.array(alpha, dtype=np.float64)
    n_classes = alpha.shape[1]
    empty = np.bincount(y, minlength=n_classes) == 0
    alpha[:, empty] = 0.0  # an offset far below all others wins these pairs
    for _ in range(MOST_REPAIRS):
        leaving = np.bincount(y, weights=alpha.sum(axis=1), minlength=n_classes)
        entering = alpha.sum(axis=0)
        if (np.abs(leaving - entering) <= 1e-12 * leaving.max()).all():
            break
        both = (leaving > 0) & (entering > 0)
        scale = np.sqrt(np.where(both, leaving, 1.0) / np.where(both, entering, 1.0))
        alpha *= scale[None, :] / scale[y][:, None]
        alpha[:, leaving == 0], alpha[(entering == 0)[y]] = 0.0, 0.0
    total = alpha.sum()
    if not 0.0 < total < np.inf:
        return np.zeros_like(alpha)
    exponent = int(np.frexp(total)[1]) - 50
    units = np.floor(np.ldexp(alpha, -exponent))
    leaving = np.bincount(y, weights=units.sum(axis=1), minlength=n_classes)
    excess = leaving - units.sum(axis=0)  # exact: integers below 2^53
    while excess.any():
        sender, receiver = int(excess.argmin()), int(excess.argmax())
        amount = min(-excess[sender], excess[receiver])
        members = np.flatnonzero(y == sender)
        units[members[np.argmax(units[members, receiver])], receiver] += amount
        excess[sender] += amount
        excess[receiver] -= amount
    return np.ldexp(units, exponent)


@dataclass(frozen=True, eq=False)
class Graded:
    """A candidate, scaled to be feasible, with the status that its bounds earn.

    Attributes
    ----------
    alpha : ndarray of shape (N,) or (N, K)
        Feasible, at most C; sum 1 where the data are proven not to be separable.
    coef : ndarray of shape (M, D) or (K, M, D)
        Attains the upper bound, with ``intercept``; 0 where the data are not separable.
    intercept : float or ndarray of shape (K,)
        The offset, or one a class; 0 without one.
    certificate : Certificate
        That of these coef, alpha and intercept.
    status : Status
        What the certificate bears out.
    group_norms : ndarray of shape (G,)
        ||zeta_g||.
    margins : ndarray of shape (N,)
        y_n (f(x_n) + b); with classes, the smallest margin of each sample.
    """

    alpha: Array
    coef: Array
    intercept: float | Array
    certificate: Certificate
    status: Status
    group_norms: Array
    margins: Array


@QUIET
def grade(
    problem: MarginProblem,
    coef: Array,
    alpha: Array,
    claim: Status,
    *,
    intercept: ArrayLike | None = None,
    gap: float = 1e-6,
    infeasibility: float = 1e-9,
) -> Graded:
    """Scale what a solver found, certify it, and decide how the solve ended.

    Parameters
    ----------
    problem : MarginProblem
        What was solved.
    coef, alpha : ndarray of shape (M, D) and (N,), or (K, M, D) and (N, K)
        What the solver found; negative alpha counts as 0.
    claim : Status
        How the solver thinks it ended.
    intercept : float or ndarray of shape (K,), optional
        Its offset; the best one by default.
    gap, infeasibility : float
        See `Tolerances`.
    """
    coef, alpha = (np.where(np.isfinite(part), part, 0.0) for part in (coef, alpha))
    suspect = alpha = _unit(problem, _of_rivals(problem, np.maximum(alpha, 0.0)))
    alpha = repaired(problem, alpha)
    if alpha.any():
        scale, total = dual_scale(problem, alpha), float(alpha.sum())
        scale = scale if scale * total < LARGEST else 1.0 / total
        alpha = repaired(problem, _in_box(problem, alpha * scale), problem.C)
    if intercept is not None and np.isfinite(intercept).all():
        intercept = _below_all_others(problem, coef, intercept)
    else:
        intercept = None
    coef, offset = _Primal.of(problem, coef, intercept).scaled()
    primal = _Primal.of(problem, coef, offset if problem.intercept else None, as_stored=True)
    if primal.bound > _value_of_zero(problem):
        coef, offset = 0.0 * coef, primal.offset_of_zero
        primal = _Primal.of(problem, coef, offset if problem.intercept else None, as_stored=True)
    dual = _Dual.of(problem, alpha)
    certificate = _certificate(problem, primal, dual, suspect)
    status = claim
    if math.isinf(certificate.lower):
        weights = alpha if alpha.any() else suspect
        status, alpha = Status.NOT_SEPARABLE, weights / weights.sum()
    elif certificate.gap <= gap:
        status = Status.OPTIMAL
    elif (
        math.isinf(certificate.upper)
        and certificate.lower > 0
        and dual.gordan_ratio > 1.0 / infeasibility
    ):
        status = Status.NEARLY_INSEPARABLE
    elif claim in (Status.OPTIMAL, Status.NOT_SEPARABLE, Status.NEARLY_INSEPARABLE):
        status = Status.NUMERICAL_TROUBLE  # the bounds do not bear out what the solver claims
    if status.inseparable:  # the coefficients separate nothing
        nothing = np.zeros(problem.n_groups), np.zeros(problem.n_samples)
        return Graded(alpha, 0.0 * coef, problem.no_offset, certificate, status, *nothing)
    return Graded(alpha, coef, offset, certificate, status, primal.group_norms, primal.margins)


# --- the lower bound -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Dual:
    """Dual variables, the largest alpha_n ||phi_n|| about 1, and the norms of their V_g."""

    problem: MarginProblem
    alpha: Array
    norms: Enclosure  # (G,)

    @classmethod
    def of(cls, problem: MarginProblem, given: ArrayLike) -> _Dual:
        alpha = as_finite(given, "alpha", len(problem.alpha_shape))
        meaning = "one entry a sample" if problem.classes is None else "(N, K), with K classes"
        _check_shape(alpha, "alpha", problem.alpha_shape, meaning)
        if (alpha < 0).any():
            raise ValueError(f"alpha must not be negative, got {alpha.min():.3g}: clip it at 0")
        if (_of_rivals(problem, alpha) != alpha).any():
            raise ValueError("alpha must be 0 at each sample's own class: alpha[n, y[n]] = 0")
        alpha = _unit(problem, alpha)
        gates, weights = problem.plain_gates_for_products, _weights(problem, alpha)
        if not problem.norm.by_rows:
            parts = [
                dual_vectors(gates, problem.X, column, problem.classes or 0)
                for column in _columns(weights)
            ]
            return cls(problem, alpha, _norms_of(problem, parts))
        few, roundings = are_few(gates), problem.classes or 0
        norms = [
            dual_vector_norms(gates, problem.X, column, few, roundings)
            for column in _columns(weights)
        ]
        return cls(problem, alpha, problem.gate_norm.of_rows(_joined(norms)))

    def refined(self) -> _Dual:
        """Evaluate V with more digits."""
        problem = self.problem
        if not problem.norm.by_rows:
            parts = [self._precise(k) for k in range(problem.classes or 1)]
            return replace(self, norms=_norms_of(problem, parts))
        gates, weights = problem.plain_gates_for_products, _weights(problem, self.alpha)
        if problem.classes is not None:
            rows = [_row_norms(self._precise(k)) for k in range(problem.classes)]
            return replace(self, norms=problem.gate_norm.of_rows(_joined(rows)))
        norms, errors = np.zeros(gates.shape[1]), np.zeros(gates.shape[1])
        for _, V in precise_dual_vectors(gates, problem.X, weights):
            norms = np.hypot(norms, row_norms(V.value))  # whose squares may underflow
            errors = np.hypot(errors, row_norms(V.radius))
        radius = errors + gamma(2 * problem.X.shape[1] + 8) * norms
        rows_of_V = Enclosure(norms, SAFETY * radius)
        return replace(self, norms=problem.gate_norm.of_rows(rows_of_V))

    def _precise(self, k: int) -> Enclosure:
        """V (M, D) of class k (or of both of two) with more digits.

        The weights of a class's own samples are sums over their rivals, as high + low.
        """
        problem, gates = self.problem, self.problem.plain_gates_for_products
        weights = _columns(_weights(problem, self.alpha))[k]
        low = np.zeros_like(weights)
        if problem.classes is not None:
            for n in np.flatnonzero((problem.owners == k) & (weights != 0)):
                terms = self.alpha[n].tolist()
                weights[n] = math.fsum(terms)
                low[n] = math.fsum([*terms, -weights[n]])
        value = np.zeros((gates.shape[1], problem.X.shape[1]))
        radius = np.zeros_like(value)
        for columns, V in precise_dual_vectors(gates, problem.X, weights):
            value[:, columns], radius[:, columns] = V.value, V.radius
        if low.any():
            rest = dual_vectors(gates, problem.X, low, 1)
            value += rest.value
            radius += rest.radius + 2 * UNIT * np.abs(value)
        return Enclosure(value, SAFETY * radius)

    @cached_property
    def sum(self) -> float:
        """sum_n alpha_n; 0 where that does not bound, for the intercept's sake."""
        if self.problem.intercept and not _is_balanced(self.problem, self.alpha):
            return 0.0
        return down(math.fsum(self.alpha[self.alpha > 0].tolist()))

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
        return central / bound - 1.0 if bound > 0 else np.inf

    @property
    def scaled_norms(self) -> Array:
        """||V_g|| (G,) of feasible alpha."""
        norms = np.minimum(self.norms.magnitude, LARGEST)
        largest = float(norms.max())
        if largest == 0 or self.sum == 0:
            return norms
        share = min(1.0, self.problem.C / self._top * largest)
        return norms / largest * share

    @property
    def gordan_ratio(self) -> float:
        """As the function of this name, bounded from below."""
        largest = float(self.norms.magnitude.max())
        total = float(self.problem.totals(self.alpha) @ self.problem.feature_norms)
        return total / largest if largest > 0 else np.inf

    @property
    def _top(self) -> float:
        """Largest sum_k alpha_nk, rounded up: what the box bounds."""
        top = float(self.problem.totals(self.alpha).max())
        return top if self.problem.classes is None else top * (1.0 + gamma(self.alpha.shape[1]))

    def _value(self, largest: float) -> float:
        if self.sum == 0 or math.isnan(largest):
            return 0.0
        by_norm = min(down(self.sum / largest), LARGEST) if largest > 0 else np.inf
        by_box = down(self.problem.C * down(self.sum / self._top))
        return by_norm if math.isinf(self.problem.C) else min(by_norm, by_box)


def _weights(problem: MarginProblem, alpha: Array) -> Array:
    """alpha_n y_n (N,), or a_n (N, K), of the samples that have features."""
    zero = problem.zero_features if alpha.ndim == 1 else problem.zero_features[:, None]
    return np.where(zero, 0.0, problem.weights(alpha))


def _columns(weights: Array) -> list[Array]:
    """Weights (N,) of each class, or of both of two classes at once."""
    return [weights] if weights.ndim == 1 else [np.ascontiguousarray(w) for w in weights.T]


def _unit(problem: MarginProblem, alpha: Array) -> Array:
    """Return alpha times a power of two such that the largest alpha_n ||phi_n|| is about 1."""
    if problem.classes is None:
        return unit_weights(alpha, problem.feature_norms)
    norms = np.broadcast_to(problem.feature_norms[:, None], alpha.shape)
    return unit_weights(alpha, norms)


def _of_rivals(problem: MarginProblem, alpha: Array) -> Array:
    """Return alpha with 0 at each sample's own class."""
    if problem.classes is None:
        return alpha
    alpha = alpha.copy()
    alpha[np.arange(problem.n_samples), problem.owners] = 0.0
    return alpha


def _in_box(problem: MarginProblem, alpha: Array) -> Array:
    """Return alpha with sum_k alpha_nk <= C."""
    if problem.classes is None:
        return np.minimum(alpha, problem.C)
    totals = problem.totals(alpha)
    over = totals > problem.C
    shrink = np.where(over, problem.C / np.where(over, totals, 1.0), 1.0)
    return alpha * shrink[:, None]


def repaired(problem: MarginProblem, alpha: Array, cap: float = np.inf) -> Array:
    """Return alpha near the one given that obeys the equation of the intercept, if there is one.

    See `balanced` and `balanced_flow`; ``cap`` bounds the entries with two classes.
    """
    if not problem.intercept:
        return alpha
    if problem.classes is None:
        return balanced(alpha, problem.y, cap)
    return balanced_flow(alpha, problem.owners)


def _is_balanced(problem: MarginProblem, alpha: Array) -> bool:
    """Whether sum_n alpha_n y_n, or sum_n a_n, is 0 as real numbers."""
    if problem.classes is None:
        return balance(alpha, problem.y) == 0
    for k in range(problem.classes):
        leaving = alpha[problem.owners == k].ravel().tolist()
        if math.fsum([*leaving, *(-alpha[:, k]).tolist()]) != 0:
            return False
    return True


def _norms_of(problem: MarginProblem, parts: list[Enclosure]) -> Enclosure:
    """Omega_* (G,) of V (K, M, D), whose parts (M, D) are those of the classes."""
    V = Enclosure(np.stack([V.value for V in parts]), np.stack([V.radius for V in parts]))
    value = problem.norm.dual_norms(V.value)
    return Enclosure(value, np.maximum(problem.norm.dual_bounds(V) - value, 0.0))


def _row_norms(V: Enclosure) -> Enclosure:
    """Norms (M,) of the rows of V (M, D), and what its radius may add to them."""
    norms = row_norms(V.value)
    rounding = gamma(V.value.shape[1] + 4) * norms
    return Enclosure(norms, SAFETY * (row_norms(V.radius) + rounding))


def _joined(parts: list[Enclosure]) -> Enclosure:
    """Return one part after the other."""
    value = np.concatenate([part.value for part in parts])
    return Enclosure(value, np.concatenate([part.radius for part in parts]))


# --- the upper bound -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Primal:
    """Coefficients times 2^-exponent, the largest about 1, and their predictions.

    With many classes f_n is the smallest margin of sample n, offsets included, and all signs are 1:
    what is left is a problem of two classes without an intercept.
    """

    problem: MarginProblem
    coef: Array
    exponent: int
    intercept: float | None
    norm: float
    f: Enclosure  # (N,), without intercept
    as_stored: bool  # with a soft margin, whether the bound is that of scale 1
    signs: Array  # (N,)
    classes: _Classes | None = None

    @classmethod
    def of(
        cls,
        problem: MarginProblem,
        given: ArrayLike,
        intercept: ArrayLike | None,
        as_stored: bool = False,
    ) -> _Primal:
        coef = as_finite(given, "coef", len(problem.coef_shape))
        meaning = "(M, D), one row a gate column"
        meaning = meaning if problem.classes is None else f"(K, M, D), K classes of {meaning}"
        _check_shape(coef, "coef", problem.coef_shape, meaning)
        offsets = None if intercept is None else _as_offsets(problem, intercept)
        exponent = int(np.frexp(np.abs(coef).max())[1])
        if offsets is not None:
            exponent = max(exponent, int(np.frexp(np.abs(offsets).max())[1]) - LARGEST_OFFSET)
        coef = np.ldexp(coef, -exponent)
        offsets = None if offsets is None else np.ldexp(offsets, -exponent)
        plain = problem.plain_coef(coef)
        norm = problem.norm.value_bound(coef.reshape(problem.norm_shape))
        gates = problem.plain_gates_for_products
        if problem.classes is None:
            f = predictions(gates, problem.X, plain, gated_linear(problem.X, gates, plain))
            one = None if offsets is None else float(offsets)
            one = one if problem.intercept else 0.0
            return cls(problem, coef, exponent, one, norm, f, as_stored, problem.y)
        scores = _scores(problem, gates, plain)
        if offsets is None or not problem.intercept:
            offsets = _best_offsets(problem, scores.value)
        classes = _Classes(scores, offsets)
        ones, f = np.ones(problem.n_samples), classes.smallest(problem)
        return cls(problem, coef, exponent, 0.0, norm, f, as_stored, ones, classes)

    def refined(self) -> _Primal:
        """Evaluate with more digits the predictions that decide."""
        plain = self.problem.plain_coef(self.coef)
        gates = self.problem.plain_gates_for_products
        found, done = self, np.zeros(len(self.f.value), dtype=bool)
        for _ in range(MOST_REFINEMENTS):
            rows = np.flatnonzero(found._decisive & ~done)
            if len(rows) == 0:
                break
            done[rows] = True
            parts = [
                precise_predictions(gates, self.problem.X, part, rows)
                for part in plain.reshape(-1, *plain.shape[-2:])
            ]
            if found.classes is not None:
                classes = found.classes.updated(rows, parts)
                found = replace(found, classes=classes, f=classes.smallest(self.problem))
                continue
            value, radius = found.f.value.copy(), found.f.radius.copy()
            value[rows], radius[rows] = parts[0].value, parts[0].radius
            found = replace(found, f=Enclosure(value, radius))
        return found

    @cached_property
    def best(self) -> tuple[float, float]:
        """C and b of the smallest primal value, with margins y_n (c f_n + b), in given units."""
        c, b = self._best
        return float(np.ldexp(c, -self.exponent)) if c > 0 else 0.0, b

    def scaled(self) -> tuple[Array, float | Array]:
        """Coefficients and offset of the smallest primal value.

        No scale makes a hard-margin candidate feasible that misclassifies: it stays as it is.
        """
        c, b = self._best
        if c == 0 and self.problem.hard_margin:
            offset = float(np.clip(np.ldexp(b, self.exponent), -LARGEST, LARGEST))
            scale = math.ldexp(1.0, min(self.exponent, 1000))
            return np.ldexp(self.coef, self.exponent), self._offsets_at(scale, offset)
        if not self.problem.hard_margin and c > 0:
            margins, error, stretch = self._kinks(c, b, self.f.radius)
            _, by = self._stretched_if_less(c, margins, error, stretch)
            c, b = c * (1.0 + by), b * (1.0 + by)
        return self.coef * c, self._offsets_at(c, b)

    @property
    def offset_of_zero(self) -> float | Array:
        """The best offset of zeta = 0, or those of many classes."""
        many = self.classes is not None
        return _majority_offsets(self.problem) if many else _majority(self.problem)

    def _offsets_at(self, c: float, b: float) -> float | Array:
        """Return the offset b, or all of many classes, that go with c times the coefficients."""
        if self.classes is None:
            return b
        if c == 0:
            return self.offset_of_zero
        return np.clip(c * self.classes.offsets, -LARGEST, LARGEST)

    @property
    def group_norms(self) -> Array:
        """Norms (G,) of the coefficients as given."""
        return np.ldexp(self.problem.group_norms(self.coef), self.exponent)

    @property
    def margins(self) -> Array:
        """Margins (N,) of the coefficients as given."""
        return np.ldexp(self.signs * (self.f.value + self._offset), self.exponent)

    @cached_property
    def bound(self) -> float:
        """The upper bound."""
        return self._value(self.f.radius, self.norm)

    @cached_property
    def central(self) -> float:
        """The upper bound without allowance for rounding."""
        return self._value(np.zeros(()), self.norm)

    @property
    def allowance(self) -> float:
        """Share of the upper bound that rounding may cost; inf where it may be all."""
        bound, central = self.bound, self.central
        if math.isinf(bound):
            low, high = self._margins
            return np.inf if np.isfinite(self.norm) and high.min() > 0 else 0.0
        return bound / central - 1.0 if central > 0 else np.inf * (bound > 0)

    @property
    def min_margin(self) -> float:
        """Smallest margin of the coefficients as given."""
        f = self.f.value
        if self.problem.metric is not None:
            f = self.problem.decision(self.coef)
            f = f if self.classes is None else self.problem.margins(f, self.classes.offsets)
        return float(np.ldexp((self.signs * (f + self._offset)).min(), self.exponent))

    @property
    def _offset(self) -> float:
        """The intercept, in the units of ``coef``: as given, or the best one."""
        if self.intercept is not None:
            return self.intercept
        c, b = self._best
        return b / c if c > 0 and not self.problem.hard_margin else self._midpoint

    @property
    def _midpoint(self) -> float:
        """The offset halfway between the classes."""
        positive = self.signs > 0
        return -0.5 * float(self.f.value[positive].min() + self.f.value[~positive].max())

    @property
    def _margins(self) -> tuple[Array, Array]:
        """Bounds on the margins of ``coef`` from below and above, shape (N,)."""
        value = self.signs * (self.f.value + self._offset)
        radius = self.f.radius + 2 * UNIT * np.abs(value)
        return value - radius, value + radius

    @property
    def _decisive(self) -> NDArray[np.bool_]:
        """The samples whose predictions may decide on the bound, shape (N,)."""
        if not self.problem.hard_margin:
            c, b = self._best
            return 1.0 - self.signs * (c * self.f.value + b) + c * self.f.radius > 0
        low, high = self._margins
        if self.intercept is not None:
            return low <= high.min()
        positive = self.signs > 0
        limit = np.where(positive, high[positive].min(), high[~positive].min())
        return low <= limit

    @cached_property
    def _best(self) -> tuple[float, float]:
        """C and b as in `best`, for the coefficients as normalised."""
        problem, y, f = self.problem, self.signs, self.f.value
        if not np.isfinite(self.norm):
            return 0.0, 0.0
        if problem.hard_margin:
            b = self._midpoint if self.intercept is None else self.intercept
            smallest = float((y * (f + b)).min())
            return (1.0 / smallest, b / smallest) if smallest > SMALLEST_MARGIN else (0.0, b)
        if self.intercept is not None:
            unit = math.ldexp(1.0, min(self.exponent, 1000))
            stored = unit, unit * self.intercept
            if self.as_stored and self.norm > 0:
                return stored
            c = _best_scale(self.norm, y * (f + self.intercept), problem.C)
            if c == 0:
                return 0.0, _majority(problem)
            best, zero = self._at(c, c * self.intercept), _value_of_zero(problem)
            gain = self._at(*stored) - min(best, zero)
            if self.norm > 0 and gain <= SAME * unit * self.norm:
                return stored
            return (c, c * self.intercept) if best < zero else (0.0, _majority(problem))
        if self.norm == 0:
            return 0.0, _majority(problem)
        # The value is convex in c, with the best b of each c.
        zero, given = _value_of_zero(problem), math.ldexp(1.0, min(self.exponent, 1000))
        c = _golden(lambda c: self._at(c, _best_offset(problem, c * f)), zero / self.norm)
        found = [(c, _best_offset(problem, c * f)), (given, _best_offset(problem, given * f))]
        c, b = min(found, key=lambda pair: self._at(*pair))
        more = _best_scale(c * self.norm, y * (c * f + b), problem.C)  # to the last digit
        if self._at(more * c, more * b) < self._at(c, b):
            c, b = more * c, more * b
        return (c, b) if self._at(c, b) < zero else (0.0, _majority(problem))

    def _at(self, c: float, b: float) -> float:
        """Primal value of a soft margin, without allowance."""
        losses = np.maximum(0.0, 1.0 - self.signs * (c * self.f.value + b))
        return c * self.norm + self.problem.C * float(losses.sum())

    def _value(self, radius: Array, norm: float) -> float:
        zero = _value_of_zero(self.problem)
        c, b = self._best
        if not np.isfinite(norm) or (c == 0 and not self.problem.hard_margin):
            return zero
        y, f = self.signs, self.f.value
        if self.problem.hard_margin:
            margins = y * (f + self._offset)
            smallest = float((margins - (radius + 4 * UNIT * np.abs(margins))).min())
            return up(norm / smallest) if smallest > 0 else np.inf
        margins, error, stretch = self._kinks(c, b, radius)
        if self.as_stored:
            return self._stretched(c, margins, error, 0.0)
        return min(zero, self._stretched_if_less(c, margins, error, stretch)[0])

    def _kinks(self, c: float, b: float, radius: Array) -> tuple[Array, Array, float]:
        """Margins (N,) at c and b, bounds on their errors, and by how much c should exceed this.

        At a large C the rounding of margins near 1 costs more than a scale a little larger, at
        which they exceed 1.
        """
        f = self.f.value
        margins = self.signs * (c * f + b)
        error = SAFETY * (c * radius + 8 * UNIT * (c * np.abs(f) + abs(b) + 1.0))
        near = np.abs(margins - 1.0) <= 2 * error
        return margins, error, 2 * float(error[near].max(initial=0.0))

    def _stretched_if_less(
        self, c: float, margins: Array, error: Array, stretch: float
    ) -> tuple[float, float]:
        """Bound and stretch; none where it gains next to nothing, so that grades repeat."""
        plain = self._stretched(c, margins, error, 0.0)
        stretched = self._stretched(c, margins, error, stretch)
        return (stretched, stretch) if stretched < plain * (1.0 - SAME) else (plain, 0.0)

    def _stretched(self, c: float, margins: Array, error: Array, by: float) -> float:
        """Bound on the soft margin's primal value at a scale (1 + by) times c."""
        losses = np.maximum(0.0, 1.0 - (margins - error) * (1.0 + by) + 2 * by * error)
        if not np.isfinite(losses).all():
            return np.inf
        total = sum_up(losses.tolist())
        return up(up(up(c * self.norm) * up(1.0 + by)) + up(self.problem.C * total))


@dataclass(frozen=True, eq=False)
class _Classes:
    """Predictions of many classes, and their offsets, in the units of the coefficients."""

    scores: Enclosure  # (N, K), without the offsets
    offsets: Array  # (K,)

    def smallest(self, problem: MarginProblem) -> Enclosure:
        """Return the smallest margin of each sample over its rivals, shape (N,)."""
        value, radius = self.scores.value, self.scores.radius
        rows, own = np.arange(problem.n_samples), problem.owners
        margins = problem.pair_margins(value, self.offsets)
        size = np.abs(value) + np.abs(self.offsets)
        error = radius[rows, own][:, None] + radius
        error = SAFETY * (error + 4 * UNIT * (size[rows, own][:, None] + size))
        error[rows, own] = 0.0
        least = margins.min(axis=1)
        below, above = (margins - error).min(axis=1), (margins + error).min(axis=1)
        return Enclosure(least, SAFETY * np.maximum(least - below, above - least))

    def updated(self, rows: NDArray[np.int64], parts: list[Enclosure]) -> _Classes:
        """Replace the predictions of some samples, given class by class."""
        value, radius = self.scores.value.copy(), self.scores.radius.copy()
        value[rows] = np.stack([part.value for part in parts], axis=1)
        radius[rows] = np.stack([part.radius for part in parts], axis=1)
        return replace(self, scores=Enclosure(value, radius))


def _scores(problem: MarginProblem, gates: Array | sp.csr_array, plain: Array) -> Enclosure:
    """Predictions (N, K) of plain coefficients (K, M', D), without the offsets."""
    columns = decision(problem.X, gates, plain).T
    parts = [predictions(gates, problem.X, *pair) for pair in zip(plain, columns, strict=True)]
    return Enclosure(
        np.stack([part.value for part in parts], axis=1),
        np.stack([part.radius for part in parts], axis=1),
    )


def _as_offsets(problem: MarginProblem, intercept: ArrayLike) -> Array:
    """Check an intercept: a number, or (K,) with many classes."""
    shape = () if problem.classes is None else (problem.classes,)
    offsets = np.asarray(intercept, dtype=np.float64)
    if offsets.shape != shape:
        raise ValueError(f"intercept must have shape {shape}, got {offsets.shape}")
    if not (problem.intercept or not offsets.any()):
        raise ValueError(
            f"the problem has no intercept, got {intercept!r}: pass MarginProblem(..., "
            "intercept=True)"
        )
    if not np.isfinite(offsets).all():
        raise ValueError(f"intercept must be finite, got {intercept!r}")
    return offsets


def _best_offsets(problem: MarginProblem, scores: Array) -> Array:
    """Return the offsets (K,) of the largest smallest margin, 0 without an intercept.

    A linear program in the classes alone: max t subject to q_jk + b_j - b_k >= t, q_jk the
    smallest margin of the samples of class j against class k.
    """
    n_classes = scores.shape[1]
    if not problem.intercept:
        return np.zeros(n_classes)
    margins = problem.pair_margins(scores)
    present = np.unique(problem.owners)
    rows, right = [], []
    for j in present:
        smallest = margins[problem.owners == j].min(axis=0)
        for k in np.flatnonzero(np.isfinite(smallest)):
            row = np.zeros(n_classes + 1)
            row[[j, k, -1]] = -1.0, 1.0, 1.0
            rows.append(row)
            right.append(smallest[k])
    # Offsets so far apart that a class without samples never wins.
    reach = 2.0 * n_classes * (1.0 + float(np.abs(scores).max()))
    bounds = [(-reach, reach)] * n_classes + [(None, None)]
    cost = np.append(np.zeros(n_classes), -1.0)
    found = scipy.optimize.linprog(cost, np.array(rows), np.array(right), bounds=bounds)
    return np.zeros(n_classes) if found.x is None else np.asarray(found.x[:-1])


def _below_all_others(problem: MarginProblem, coef: Array, intercept: ArrayLike) -> ArrayLike:
    """Return an intercept with which classes without samples, if any, win nowhere.

    No solver determines their offsets: the lower, the better.
    """
    present = np.unique(problem.owners) if problem.classes is not None else np.zeros(0)
    if not problem.intercept or problem.classes in (None, len(present)):
        return intercept
    offsets = np.array(intercept, dtype=np.float64)
    reach = float(np.abs(problem.decision(coef)).max() + np.abs(offsets).max())
    reach = float(np.fmin(reach, LARGEST / 8.0))
    offsets[~np.isin(np.arange(len(offsets)), present)] = -4.0 * reach - 2.0
    return offsets


def _majority_offsets(problem: MarginProblem) -> Array:
    """Return the best offsets (K,) of zeta = 0: those of the largest class, or none."""
    counts = np.bincount(problem.owners, minlength=problem.classes or 2)
    offsets = np.zeros(len(counts))
    if problem.intercept and 2 * counts.max() > problem.n_samples:
        offsets[counts.argmax()] = 1.0
    return offsets


def _value_of_zero(problem: MarginProblem) -> float:
    """Return the primal value of zeta = 0, which is no solution of the hard margin.

    C N with a soft margin; with an intercept the majority's sign misses the other class only. With
    many classes each sample of another class than the majority's then costs 2 C.
    """
    if problem.hard_margin:
        return np.inf
    count = problem.n_samples
    if problem.intercept and problem.classes is None:
        count = 2 * min(int((problem.y > 0).sum()), int((problem.y < 0).sum()))
    elif problem.intercept:
        count = min(count, 2 * (count - int(np.bincount(problem.owners).max())))
    value = problem.C * count
    return value if Fraction(value) >= Fraction(problem.C) * count else up(value)


def _majority(problem: MarginProblem) -> float:
    """Return the best offset of zeta = 0; of many classes that is `_majority_offsets`."""
    if problem.classes is not None or not problem.intercept:
        return 0.0
    return float(np.sign(problem.y.sum()) or 1.0)


def _best_scale(norm: float, margins: Array, C: float) -> float:
    """Minimise c * norm + C * sum(max(0, 1 - c * margins)) over c >= 0."""
    if not np.isfinite(norm):
        return 0.0
    if np.isinf(C):
        smallest = float(margins.min())
        return 1.0 / smallest if smallest > 0 else 0.0
    # Convex and piecewise linear: its slope rises by C m at c = 1 / m, for each margin m > 0.
    positive = np.sort(margins[margins > 0])[::-1]
    slope = norm / C - float(margins.sum())  # over C, which may be huge
    if slope >= 0 or len(positive) == 0:
        return 0.0
    after = slope + np.cumsum(positive)
    turn = int(np.searchsorted(after, 0.0))  # `after` rises, so this is the first one >= 0
    return float(1.0 / positive[min(turn, len(positive) - 1)])


def _best_offset(problem: MarginProblem, f: Array) -> float:
    """Minimise sum_n max(0, 1 - y_n (f_n + b)) over b: convex, piecewise linear.

    The slope is -N_+ far to the left, and rises by 1 at each b = y_n - f_n.
    """
    kinks = np.sort(problem.y - f)
    turn = int((problem.y > 0).sum())
    return 0.5 * float(kinks[turn - 1] + kinks[turn])


def _golden(value: Callable[[float], float], right: float) -> float:
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


# --- the equation of the intercept -----------------------------------------------------------


def _move(alpha: Array, members: NDArray[np.int64], change: float, cap: float = np.inf) -> bool:
    """Change one of some entries, in place: whether there is one that can take it.

    The largest whose digits are fine enough, so that the change is a small share of it.
    """
    size = abs(change)
    fit = members[(alpha[members] >= size) & (alpha[members] + change <= cap)]
    if len(fit) == 0:
        return False
    near = fit[alpha[fit] <= MUCH_LARGER * size]
    n = near[np.argmax(alpha[near])] if len(near) else fit[np.argmin(alpha[fit])]
    before, alpha[n] = alpha[n], alpha[n] + change
    return bool(alpha[n] != before)


def _on_grid(alpha: Array, y: Array) -> Array:
    """Round down to a grid on which all sums are exact, and take the rest off the largest."""
    exponent = int(np.frexp(alpha.sum())[1]) - 52
    counts = np.floor(np.ldexp(alpha, -exponent))
    rest = float((counts * y).sum())
    heavy = np.flatnonzero(y == np.sign(rest))
    for n in heavy[np.argsort(-counts[heavy], kind="stable")]:
        taken = min(float(counts[n]), abs(rest))
        counts[n] -= taken
        rest = math.copysign(abs(rest) - taken, rest)
        if rest == 0:
            break
    return np.ldexp(counts, exponent)


# --- small things ----------------------------------------------------------------------------


def relative_gap(lower: float, upper: float) -> float:
    """(upper - lower) / lower; nan for bounds that contradict each other."""
    if lower > upper * (1.0 + CONTRADICTION):
        return np.nan
    if np.isinf(upper) or lower <= 0:
        return np.inf
    return max(upper - lower, 0.0) / lower


def _check_shape(array: Array, name: str, shape: tuple[int, ...], meaning: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}: {meaning}")
