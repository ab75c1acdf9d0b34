r"""Certified bounds for training with finite weight decay: group lasso over gated features.

What convex reformulations of two-layer ReLU and gated ReLU networks minimise. Gates, groups and
metric are those of a `MarginProblem`; its own C plays no part here.

Primal  minimise  sum_n loss(t_n, f(x_n)) + weight * Omega(zeta),   Omega = sum_g ||zeta_g||
Dual    maximise  sum_n value(t_n, theta_n)
        subject to  ||sum_n theta_n z(x_n) (x) x_n||_g <= weight for all groups g

=========  =======================  ==================================  =====================
loss       loss(t, f)               theta = -loss'                      value(t, theta)
=========  =======================  ==================================  =====================
squared    1/2 (t - f)^2            t - f                               t theta - theta^2 / 2
logistic   log(1 + exp(-t f))       t a, a = 1 / (1 + exp(t f))         -a log a - (1-a) log(1-a)
hinge      max(0, 1 - t f)          t a, a = 1 where t f < 1, else 0    a, for a in [0, 1]
=========  =======================  ==================================  =====================

Any coefficients have a primal value: an upper bound of the optimum. Their loss's own slopes theta,
scaled by a c for which c theta is feasible, have a dual value: a lower bound, best over c. At the
optimum the two meet. (The dual is Fenchel's: value(t, theta) = -loss*(t, -theta).) The hinge has a
kink at t f = 1, where its slope is any a in [0, 1]: those a are fitted to what KKT demands,
V_g = weight * zeta_g / ||zeta_g||.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import lsq_linear, minimize_scalar
from scipy.special import entr, expit

from implicit_bias.base.rounding import UNIT, Enclosure, down, sum_up, up
from implicit_bias.base.validation import Array, as_finite
from implicit_bias.bounds.certificate import dual_norm_bounds
from implicit_bias.bounds.status import CONTRADICTION
from implicit_bias.bounds.upper import score_enclosures
from implicit_bias.problem import MarginProblem

LossName: TypeAlias = Literal["squared", "logistic", "hinge"]
# Margins this near to 1 are on the hinge's kink.
KINK = 1e-3
MOST_REPAIRS = 4


@dataclass(frozen=True, eq=False)
class RegularisedCertificate:
    """Certified bounds on the optimum of a regularised problem.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them; ``upper`` is the value of the coefficients.
    gap : float
        (upper - lower) / upper, in [0, 1]: the coefficients' value exceeds the optimum by at most
        this share of itself. 0 where both are 0; nan where rounding makes the bounds contradict.
    loss, norm : float
        The two parts of ``upper``: sum_n loss, and Omega(zeta) before the weight.
    dual : ndarray of shape (N,)
        The feasible theta of the lower bound.
    """

    lower: float
    upper: float
    gap: float
    loss: float
    norm: float
    dual: Array


Values: TypeAlias = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class _Loss:
    """One row of the module's table.

    Attributes
    ----------
    values : callable
        Losses (N,) of targets and outputs.
    slopes : callable
        Minus their derivatives: theta (N,).
    dual_values : callable
        Terms of the dual (N,), of targets and theta.
    furthest : callable
        The c, of targets and theta, beyond which the dual value of c theta falls or there is none.
    """

    values: Values
    slopes: Values
    dual_values: Values
    furthest: Callable[[Array, Array], float]

    def most(self, targets: Array, outputs: Enclosure) -> Array:
        """Upper bounds (N,) on the losses of outputs that are known up to their radius."""
        both = (outputs.value - outputs.radius, outputs.value + outputs.radius)
        return np.maximum(*(self.values(targets, end) for end in both)) * (1.0 + 16 * UNIT)

    def scale(self, targets: Array, theta: Array, largest: float) -> float:
        """Find the c in [0, largest] for which c theta has the largest dual value."""
        largest = min(largest, self.furthest(targets, theta))

        def negative(c: float) -> float:
            return -float(self.dual_values(targets, c * theta).sum())

        found = minimize_scalar(
            negative, bounds=(0.0, largest), method="bounded", options={"xatol": 1e-13 * largest}
        )
        return min((largest, float(found.x), min(1.0, largest)), key=negative)


def _within_one(targets: Array, theta: Array) -> float:
    """Return the c at which the largest share t c theta is 1; 0 where there is none."""
    top = float((targets * theta).max())
    return 1.0 / top if top > 0 else 0.0


def _squared_best(targets: Array, theta: Array) -> float:
    """Return the best c of the squared loss, whose dual value is a parabola in c."""
    square = float(theta @ theta)
    return max(float(targets @ theta) / square, 0.0) if square > 0 else 0.0


def _entropies(targets: Array, theta: Array) -> Array:
    shares = np.clip(targets * theta, 0.0, 1.0)
    return np.asarray(entr(shares) + entr(1.0 - shares))


LOSSES: dict[str, _Loss] = {
    "squared": _Loss(
        values=lambda t, f: 0.5 * (t - f) ** 2,
        slopes=lambda t, f: t - f,
        dual_values=lambda t, theta: t * theta - 0.5 * theta**2,
        furthest=_squared_best,
    ),
    "logistic": _Loss(
        values=lambda t, f: np.logaddexp(0.0, -t * f),
        slopes=lambda t, f: t * expit(-t * f),
        dual_values=_entropies,
        furthest=_within_one,
    ),
    "hinge": _Loss(
        values=lambda t, f: np.maximum(0.0, 1.0 - t * f),
        slopes=lambda t, f: np.where(t * f < 1.0, t, 0.0),
        dual_values=lambda t, theta: t * theta,
        furthest=_within_one,
    ),
}


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what is infinite bounds nothing
def certify_regularised(
    problem: MarginProblem,
    coef: ArrayLike,
    *,
    loss: LossName = "squared",
    weight: float,
    targets: ArrayLike | None = None,
    dual: ArrayLike | None = None,
) -> RegularisedCertificate:
    """Bound the optimum of sum_n loss + weight * Omega by any coefficients.

    Parameters
    ----------
    problem : MarginProblem
        Of two classes and the group norm, without intercept; its C is not used.
    coef : array_like of shape (M, D)
        Coefficients zeta, such as those of a trained convex reformulation.
    loss : {"squared", "logistic", "hinge"}
        See the module's table; sums over the samples, not means.
    weight : float
        Weight of the norm, positive.
    targets : array_like of shape (N,), optional
        Real targets, of the squared loss alone; the problem's labels where not given.
    dual : array_like of shape (N,), optional
        Theta, of any scale, where a solver has better ones than the loss's slopes; for a loss of
        classes with the signs of the labels.

    Returns
    -------
    RegularisedCertificate

    Examples
    --------
    >>> problem = MarginProblem([[2.0]], [1], np.ones((1, 1)), [0])
    >>> round(certify_regularised(problem, [[0.25]], loss="squared", weight=1.0).gap, 9)
    0.0
    """
    terms = LOSSES[loss]
    zeta = as_finite(coef, "coef", 2)
    t = problem.y if targets is None else as_finite(targets, "targets", 1)
    with np.errstate(over="ignore", invalid="ignore"):  # of coefficients that overflow, see below
        scores = score_enclosures(problem.features, zeta[None])
        found = Enclosure(scores.value[:, 0], scores.radius[:, 0])
        losses = _total(terms.values(t, found.value))
        norm = problem.norm.value(zeta)
        upper = _total(terms.most(t, found)) + up(weight * problem.norm.value_bound(zeta))
    if math.isinf(upper):  # coefficients that prove nothing above have no slopes either
        zeta, found = 0.0 * zeta, Enclosure(0.0 * t, 0.0 * t)
    if dual is None:
        theta = _dual_of(problem, zeta, loss, weight, t, found.value)
    else:
        theta = as_finite(dual, "dual", 1)
        theta = np.ldexp(theta, -int(np.frexp(np.abs(theta).max(initial=0.0))[1]))
    largest = float(dual_norm_bounds(problem, theta).max())
    c = terms.scale(t, theta, weight / largest if largest > 0 else np.inf)
    theta = _feasible(problem, theta * c if np.isfinite(c) else 0.0 * theta, weight)
    values = terms.dual_values(t, theta)
    rounding = 8 * UNIT * (float(np.abs(values).sum()) + float(np.abs(t * theta).sum()))
    rounding += 16 * UNIT * len(t) * (loss == "logistic")
    lower = max(0.0, down(math.fsum(values.tolist()) - rounding))
    return RegularisedCertificate(lower, up(upper), _gap(lower, upper), losses, norm, theta)


def _feasible(problem: MarginProblem, theta: Array, weight: float) -> Array:
    """Shrink theta until its dual norms are at most the weight as real numbers; 0 if need be."""
    for _ in range(MOST_REPAIRS):
        largest = float(dual_norm_bounds(problem, theta).max())
        if largest <= weight:
            return theta
        theta = theta * (weight / largest * (1.0 - 8 * UNIT))
    return 0.0 * theta


def _total(values: Array) -> float:
    """Sum, rounded up, or inf where it overflows."""
    return sum_up(np.where(np.isnan(values), np.inf, values).tolist())


def _gap(lower: float, upper: float) -> float:
    if lower > upper * (1.0 + CONTRADICTION):
        return float("nan")
    if math.isinf(upper):
        return 1.0
    return max(upper - lower, 0.0) / upper if upper > 0 else 0.0


def _dual_of(
    problem: MarginProblem, coef: Array, loss: LossName, weight: float, t: Array, outputs: Array
) -> Array:
    """Minus the loss's derivatives; on the hinge's kink those nearest to KKT."""
    theta = LOSSES[loss].slopes(t, outputs)
    on_kink = np.flatnonzero(np.abs(t * outputs - 1.0) <= KINK)
    if loss != "hinge" or not len(on_kink):
        return theta
    theta = theta.copy()
    theta[on_kink] = 0.0
    features = problem.features
    norms = problem.group_norms(coef)
    active = (norms > 1e-6 * norms.max())[features.groups] if norms.max() > 0 else None
    if active is None or not active.any():
        return theta
    # sum over the kink of a_n t_n z(x_n) (x) x_n should be what KKT demands of the active groups.
    demanded = weight * coef / np.maximum(norms, 1e-300)[features.groups][:, None]
    missing = (demanded - features.adjoint(theta[:, None])[0])[active]
    gates, X = features.sparse_gates[on_kink].toarray()[:, active], features.X[on_kink]
    products = gates[:, :, None] * X[:, None, :] * t[on_kink][:, None, None]
    fitted = lsq_linear(products.reshape(len(on_kink), -1).T, missing.ravel(), bounds=(0.0, 1.0))
    theta[on_kink] = t[on_kink] * np.clip(fitted.x, 0.0, 1.0)
    return theta
