r"""Certified bounds on the optimum, from any coefficients and any dual variables.

upper  For any zeta and b, min over c >= 0 of Omega(c zeta) + sum_n C_n max(0, 1 - c q_n), with the
       margins q_n = y_n (f(x_n) + b); with the hard margin this is Omega(zeta) / min_n q_n, if that
       margin is positive.
lower  For any alpha >= 0, sum(alpha) scaled so that max_g ||V_g(alpha)|| = 1 (and alpha_n <= C_n).
       With an intercept sum_n alpha_n y_n must be 0, exactly: alpha is balanced first (`balance`).

With another norm Omega_*(V) takes the place of max_g ||V_g||. With many classes q_n is the smallest
margin f_{y_n} + b_{y_n} - f_k - b_k of a sample, alpha has shape (N, K), sum_k alpha_nk is at most
C_n, and the equation of the intercept is sum_n a_n = 0 (`problem.constraints`).

Both hold for every iterate of every solver and for a network trained by gradient descent. They are
computed here and nowhere else, in numpy, on the unscaled data: the files are `upper` and `lower`.

The guarantee is rigorous, rounding included: lower <= optimum <= upper for the problem whose data
are the stored float64 values. The optimum is inf where no coefficients separate. Each bound has an
allowance for all rounding errors on the way to it (`products`). Where the allowance would exceed
REFINE and a hundredth of the gap, the products are evaluated again with 28 digits. Neither bound
depends on the scale of coef or alpha, which are normalized by powers of two first.

If some alpha >= 0, not 0, has V = 0, no zeta separates the data (Gordan). The lower bound is inf
where that is proven (`gordan`), and finite where V is merely small: any separator is at
least that large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array
from implicit_bias.bounds.gordan import Proof, prove_not_separable
from implicit_bias.bounds.lower import DualPoint, checked_alpha
from implicit_bias.bounds.status import Certificate, Status, relative_gap
from implicit_bias.bounds.upper import (
    PrimalPoint,
    best_scale,
    checked_coef,
    checked_offsets,
    offsets_of_zero,
    score_enclosures,
    smallest_margins,
)
from implicit_bias.problem import MarginProblem, check_problem

# Most callers of `certify` and `grade` need these, too, and import them from here.
__all__ = ["Certificate", "Status"]

# Products are evaluated again where rounding may cost more than this fraction of a bound.
REFINE = 1e-10


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # an infinite bound is no bound
def certify(
    problem: MarginProblem,
    coef: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
    intercept: ArrayLike | None = None,
) -> Certificate:
    r"""Bound the optimum of a problem by any coefficients and/or any dual variables.

    .. math:: \frac{\sum_n \alpha_n}{\Omega_*(V(\alpha))} \;\le\; \text{optimum} \;\le\;
        \frac{\Omega(\zeta)}{\min_n y_n (f(x_n) + b)}, \qquad
        V(\alpha) = \sum_n \alpha_n y_n \, z(x_n) \otimes x_n

    at the hard margin, for every alpha >= 0 and every zeta that separates the samples. With a
    finite C the upper bound has the hinge losses, too, and the lower one needs alpha_n <= C_n.
    Both bounds include all rounding errors.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    coef : array_like of shape (M, D) or (K, M, D), optional
        Coefficients zeta; without them the upper bound is that of zeta = 0.
    alpha : array_like of shape (N,) or (N, K), optional
        Dual variables, not negative; without them the lower bound is 0. Where the problem has an
        intercept, they are balanced first: changed by a little, to obey its equation exactly.
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

    Notes
    -----
    Weak duality of the problem of Lippl, Abbott, Chung (2022), sections 3 and 4. An infinite
    lower bound is a proof of Gordan's alternative: some alpha >= 0, not 0, has V(alpha) = 0.

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
    zeta = None
    values = None
    offsets = None
    if coef is not None:
        zeta = checked_coef(problem, coef)
    if alpha is not None:
        values = checked_alpha(problem, alpha)
    if intercept is not None:
        offsets = checked_offsets(problem, intercept)
    return certificate_of(problem, zeta, values, offsets)


def certificate_of(
    problem: MarginProblem, coef: Array | None, values: Array | None, offsets: Array | None
) -> Certificate:
    """Bound the optimum, as `certify` does, by arrays that were checked.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    coef : ndarray in the problem's shape, optional
        Coefficients.
    values : ndarray of shape (R,), optional
        Dual variables of the constraints, not negative.
    offsets : ndarray of shape (K',), optional
        Those that go with ``coef``; the best ones where not given.
    """
    primal = None
    dual = None
    given = None
    if coef is not None:
        primal = PrimalPoint.of(problem, coef, offsets)
    if values is not None:
        given = DualPoint.of(problem, values)
        dual = given.balanced()
    return _certificate(problem, primal, dual, given)[0]


def _certificate(
    problem: MarginProblem,
    primal: PrimalPoint | None,
    dual: DualPoint | None,
    given: DualPoint | None,
    proof: Proof | None = None,
    deadline: Deadline = NEVER,
) -> tuple[Certificate, Proof | None]:
    """Return the bounds of a primal and a dual point, evaluated with more digits where it matters.

    A proof that the data are not separable starts from the dual variables as they were ``given``.
    ``dual`` is balanced, which leaves only zeros if a single class has weight.
    """
    # The allowance for rounding that a bound may have, as in the head.
    target = REFINE
    if primal is not None and dual is not None:
        rough = relative_gap(dual.central, primal.central)
        if math.isfinite(rough):
            target = max(REFINE, 0.01 * rough)

    # Without coefficients zeta = 0 gives the upper bound, without dual variables 0 is the lower.
    upper = problem.value_of_zero
    min_margin = math.nan
    if primal is not None:
        if primal.allowance > target:
            primal = primal.refined()
        upper = primal.bound
        min_margin = primal.min_margin

    lower = 0.0
    norms = np.full(problem.n_groups, np.nan)
    if dual is not None:
        if dual.allowance > target:
            dual = dual.refined()
        lower = dual.bound
        norms = dual.scaled_norms

    # Coefficients with a finite bound separate the data, and a soft margin is always finite.
    if math.isfinite(upper) or not problem.hard_margin:
        proof = None
    elif proof is None and given is not None and given.gordan_ratio > 1e5:
        # Any separator has a margin below 1e-5 relative to the features: perhaps there is none.
        proof = prove_not_separable(problem, given.alpha, deadline)
    if proof is not None:
        lower = math.inf  # no coefficients are feasible: the optimum is infinite
    gap = relative_gap(lower, upper)
    soft_margin = not problem.hard_margin
    return Certificate(lower, upper, gap, min_margin, norms, soft_margin), proof


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
    scores = score_enclosures(problem.features, coef.reshape(problem.norm_shape))
    return smallest_margins(problem, scores, np.asarray(offsets, dtype=np.float64))


# --- progress of a solver, without allowance for rounding ------------------------------------


def primal_estimate(problem: MarginProblem, coef: Array, margins: Array) -> float:
    """Estimate the smallest primal value of c * coef over c >= 0, given its margins (N,).

    It is no bound, as it has no allowance for rounding. It shows the progress of a solver, whose
    answer `grade` certifies.
    """
    norm = float(problem.group_norms(coef).sum())
    scale = best_scale(norm, margins, problem.box)
    zero = problem.value_of_zero
    if scale == 0 or not np.isfinite(scale):
        return zero
    loss = 0.0
    if not problem.hard_margin:
        loss = float(problem.box @ np.maximum(0.0, 1.0 - scale * margins))
    return min(scale * norm + loss, zero)


# --- grading of a candidate ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Graded:
    """A candidate, scaled to be feasible, with the status that its bounds earn.

    Attributes
    ----------
    alpha : ndarray of shape (N,) or (N, K)
        Feasible up to 1e-11, at most its C each; sum 1 where the data are proven not to be
        separable.
    coef : ndarray of shape (M, D) or (K, M, D)
        Attains the upper bound, with ``intercept``; 0 where the data are not separable.
    intercept : float or ndarray of shape (K,)
        The offset, or one a class; 0 without one.
    certificate : Certificate
        That of these coef, alpha and intercept.
    status : Status
        What the certificate supports.
    group_norms : ndarray of shape (G,)
        ||zeta_g||.
    margins : ndarray of shape (N,)
        y_n (f(x_n) + b); with classes, the smallest margin of each sample.
    proof : Proof or None
        That nothing separates the samples, where the status says so.
    """

    alpha: Array
    coef: Array
    intercept: float | Array
    certificate: Certificate
    status: Status
    group_norms: Array
    margins: Array
    proof: Proof | None = None


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # an infinite bound is no bound
def grade(
    problem: MarginProblem,
    coef: Array,
    alpha: Array,
    claim: Status,
    *,
    intercept: ArrayLike | None = None,
    gap: float = 1e-6,
    infeasibility: float = 1e-9,
    proof: Proof | None = None,
    deadline: Deadline = NEVER,
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
    proof : Proof, optional
        That nothing separates the samples; else one is sought.
    deadline : Deadline
        When to give up a proof that nothing separates the samples.
    """
    coef = np.where(np.isfinite(coef), coef, 0.0)
    alpha = np.where(np.isfinite(alpha), alpha, 0.0)
    offsets = None
    if intercept is not None and np.isfinite(intercept).all():
        offsets = np.asarray(intercept, dtype=np.float64).reshape(-1)

    # Scaled to be feasible, and to have the smallest primal value.
    given = DualPoint.of(problem, problem.constraints.alpha_of_rows(np.maximum(alpha, 0.0)))
    dual = given.scaled()
    primal = PrimalPoint.of(problem, coef, offsets).scaled()
    if primal.bound > problem.value_of_zero:  # rounding may cost more than they gain
        primal = PrimalPoint.of(problem, 0.0 * coef, offsets_of_zero(problem), as_stored=True)

    certificate, proof = _certificate(problem, primal, dual, given, proof, deadline)

    # The status: what is proven comes first, then what float64 shows, last what the solver says.
    nearly_inseparable = (
        math.isinf(certificate.upper)
        and certificate.lower > 0
        and dual.gordan_ratio > 1.0 / infeasibility
    )
    if proof is not None:
        status = Status.NOT_SEPARABLE
    elif certificate.gap <= gap:
        status = Status.OPTIMAL
    elif nearly_inseparable:
        status = Status.NEARLY_INSEPARABLE
    elif claim in (Status.OPTIMAL, Status.NOT_SEPARABLE, Status.NEARLY_INSEPARABLE):
        status = Status.NUMERICAL_TROUBLE  # the bounds do not support what the solver claims
    else:
        status = claim

    if status.inseparable:  # the coefficients separate nothing
        return Graded(
            alpha=dual.as_given if proof is None else proof.alpha,
            coef=np.zeros(problem.coef_shape),
            intercept=problem.no_offset,
            certificate=certificate,
            status=status,
            group_norms=np.zeros(problem.n_groups),
            margins=np.zeros(problem.n_samples),
            proof=proof,
        )
    coef, offset = primal.as_given
    return Graded(
        alpha=dual.as_given,
        coef=coef,
        intercept=offset,
        certificate=certificate,
        status=status,
        group_norms=primal.group_norms,
        margins=primal.margins,
    )
