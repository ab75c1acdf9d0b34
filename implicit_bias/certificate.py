r"""The one judge: bounds on the optimum from any coefficients and any dual variables.

upper  For any zeta, min over c >= 0 of Omega(c zeta) + C sum_n max(0, 1 - c y_n f(x_n));
       with the hard margin this is Omega(zeta) / min_n y_n f(x_n), if that margin is positive.
lower  For any alpha >= 0, sum(alpha) scaled so that max_g ||V_g(alpha)|| = 1 (and alpha <= C).

Both hold for every iterate of every solver and for a network trained by gradient descent, and
are computed here alone, in numpy and float64, on the unscaled data. If some alpha >= 0 has
sum(alpha) = 1 and V = 0, no zeta separates the data (Gordan); numerically the lower bound,
1 / max_g ||V_g||, bounds the norm of any separator from below.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from implicit_bias.problem import MarginProblem
from implicit_bias.validation import Array, as_finite

# Bounds computed in float64 may cross by rounding; by more than this share they are wrong.
CONTRADICTION = 1e-9


class Status(Enum):
    """How a solve ended; each member carries its message."""

    OPTIMAL = "the certified gap is within the tolerance"
    NOT_SEPARABLE = (
        "the data are not separable with these gates, and alpha proves it (choose a finite C, more "
        "units, or on_failure='soft' or 'drop' of the classes)"
    )
    ITERATION_LIMIT = "the iteration limit came first; the bounds are certified nevertheless"
    INTERRUPTED = "Ctrl-C came first; the bounds are certified nevertheless"
    MEMORY_LIMIT = "the memory limit came first; the bounds are certified nevertheless"
    NUMERICAL_TROUBLE = "rounding errors stopped the solver; the bounds are certified nevertheless"

    @property
    def message(self) -> str:
        """One sentence for people."""
        return self.value

    @property
    def label(self) -> str:
        """The name in lower-case words, for tables."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True)
class Certificate:
    """Certified bounds on the optimal value of a margin problem.

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them. inf as lower bound: not separable.
    gap : float
        (upper - lower) / lower: the coefficients' norm exceeds the optimum by at most this
        share; inf where a bound is missing, nan where rounding has made the bounds contradict
        each other.
    min_margin : float
        Smallest y_n f(x_n) of the coefficients as they were given; nan without coefficients.
    dual_norms : ndarray of shape (G,)
        ||V_g|| at alpha scaled to be feasible, at most 1. A group below 1 is switched off at
        the optimum; nan without alpha.
    """

    lower: float
    upper: float
    gap: float
    min_margin: float
    dual_norms: Array


@dataclass(frozen=True)
class Conflict:
    """A plain reason why no coefficients can separate the data.

    Attributes
    ----------
    cause : str
        One sentence that names the cause and the cure.
    samples : ndarray of int
        The samples that cause it.
    alpha : ndarray of shape (N,)
        Gordan's certificate: alpha >= 0, sum 1, V(alpha) = 0.
    """

    cause: str
    samples: NDArray[np.int64]
    alpha: Array


def certify(
    problem: MarginProblem, coef: ArrayLike | None = None, alpha: ArrayLike | None = None
) -> Certificate:
    """Bound the optimum of a problem by any coefficients and/or any dual variables.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    coef : array_like of shape (M, D), optional
        Coefficients zeta; without them the upper bound is inf (hard margin) or C N.
    alpha : array_like of shape (N,), optional
        Dual variables, not negative; without them the lower bound is 0.

    Returns
    -------
    Certificate

    Raises
    ------
    ValueError
        Shapes that do not fit, NaN, negative alpha.
    """
    upper = _value_of_zero(problem)
    min_margin = np.nan
    if coef is not None:
        coef = _as_shape(coef, "coef", (problem.n_gates, problem.X.shape[1]))
        margins = problem.y * problem.decision(coef)
        min_margin = float(margins.min())
        upper = primal_bound(problem, coef, margins)
    lower, dual_norms = 0.0, np.full(problem.n_groups, np.nan)
    if alpha is not None:
        alpha = _as_shape(alpha, "alpha", (problem.n_samples,))
        dual_norms = problem.dual_norms(alpha)
        scale = dual_scale(problem, alpha, dual_norms)
        lower = float(alpha.sum()) * scale if alpha.any() else 0.0
        if np.isfinite(scale):
            dual_norms = dual_norms * scale
    return Certificate(lower, upper, _gap(lower, upper), min_margin, dual_norms)


def primal_bound(problem: MarginProblem, coef: Array, margins: Array) -> float:
    """Return the smallest primal value of c * coef over c >= 0, given its margins (N,)."""
    norm = float(problem.group_norms(coef).sum())
    seen = _seen_margins(problem, coef, margins)
    scale = _best_scale(norm, seen, problem.C)
    value = _primal_value(scale, norm, seen, problem.C) if scale > 0 else np.inf
    return min(value, _value_of_zero(problem))


def primal_scale(problem: MarginProblem, coef: Array) -> float:
    """Return the c >= 0 for which c * coef has the smallest primal value; 0 if there is none."""
    norm = float(problem.group_norms(coef).sum())
    margins = problem.y * problem.decision(coef)
    return _best_scale(norm, _seen_margins(problem, coef, margins), problem.C)


def dual_scale(problem: MarginProblem, alpha: Array, dual_norms: Array | None = None) -> float:
    """Return the largest c for which c * alpha is dual feasible; inf where every V_g is 0."""
    if dual_norms is None:
        dual_norms = problem.dual_norms(alpha)
    largest, top = float(dual_norms.max()), float(alpha.max())
    by_norm = 1.0 / largest if largest > 0 else np.inf
    by_box = problem.C / top if top > 0 else np.inf
    return min(by_norm, by_box)


def gordan_ratio(problem: MarginProblem, alpha: Array, dual_norms: Array | None = None) -> float:
    """sum_n alpha_n ||phi_n|| / max_g ||V_g(alpha)||, phi_n the features of sample n.

    Unlike the lower bound it does not change with the scale of single samples, as separability
    does not; inf is Gordan's proof that no coefficients separate.
    """
    if dual_norms is None:
        dual_norms = problem.dual_norms(alpha)
    largest = float(dual_norms.max())
    return float(alpha @ problem.feature_norms) / largest if largest > 0 else np.inf


def find_conflict(problem: MarginProblem) -> Conflict | None:
    """Look for the plain causes of non-separability.

    A sample whose features are all zero (all its gates are off, or its input is 0); two
    identical inputs, with identical gates, of opposite labels. A finite C forgives both.
    """
    if not problem.hard_margin:
        return None
    silent = np.flatnonzero(problem.silent)
    if len(silent):
        alpha = np.zeros(problem.n_samples)
        alpha[silent] = 1.0 / len(silent)
        return Conflict(
            f"{_name_samples(silent)} with all gates off (or an input of zeros), so the "
            "predictor is 0 there: add a unit that is always on, drop the sample "
            "(the classes do so with on_failure='drop'), or choose a finite C (soft margin)",
            silent,
            alpha,
        )
    twins = _opposite_twins(problem)
    if twins is not None:
        alpha = np.zeros(problem.n_samples)
        alpha[twins] = 0.5
        return Conflict(
            f"samples {twins[0]} and {twins[1]} are identical but have opposite labels: drop one "
            "(the classes do so with on_failure='drop'), or choose a finite C (soft margin)",
            twins,
            alpha,
        )
    return None


def _seen_margins(problem: MarginProblem, coef: Array, margins: Array) -> Array:
    """Margins (N,) of coef without what the norm does not see: that must not predict."""
    if problem.metric is not None:
        margins = problem.y * problem.decision(problem.projected(coef))
    return np.where(problem.silent, 0.0, margins)


def _value_of_zero(problem: MarginProblem) -> float:
    """C N with a soft margin; with the hard margin zeta = 0 is no solution."""
    return np.inf if problem.hard_margin else problem.C * problem.n_samples


def _gap(lower: float, upper: float) -> float:
    """(upper - lower) / lower; nan for bounds that contradict each other beyond rounding."""
    if lower > upper * (1.0 + CONTRADICTION):
        return np.nan
    if np.isinf(upper) or lower <= 0:
        return np.inf
    return max(upper - lower, 0.0) / lower


def _best_scale(norm: float, margins: Array, C: float) -> float:
    """Minimise c * norm + C * sum(max(0, 1 - c * margins)) over c >= 0."""
    if not np.isfinite(norm):
        return 0.0
    if np.isinf(C):
        smallest = float(margins.min())
        return 1.0 / smallest if smallest > 0 else 0.0
    # Convex and piecewise linear: the slope rises by C m at c = 1 / m, for each margin m > 0.
    positive = np.sort(margins[margins > 0])[::-1]
    slope = norm - C * float(margins.sum())
    if slope >= 0 or len(positive) == 0:
        return 0.0
    after = slope + C * np.cumsum(positive)
    turn = int(np.searchsorted(after, 0.0))  # `after` rises, so this is the first one >= 0
    return float(1.0 / positive[min(turn, len(positive) - 1)])


def _primal_value(scale: float, norm: float, margins: Array, C: float) -> float:
    if np.isinf(C):
        return scale * norm
    return scale * norm + C * float(np.maximum(0.0, 1.0 - scale * margins).sum())


def _as_shape(values: ArrayLike, name: str, shape: tuple[int, ...]) -> Array:
    array = as_finite(values, name, len(shape))
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    if name == "alpha" and (array < 0).any():
        raise ValueError(f"alpha must not be negative, got {array.min():.3g}: clip it at 0")
    return array


def _name_samples(samples: NDArray[np.int64]) -> str:
    names = ", ".join(str(n) for n in samples[:5])
    more = f" and {len(samples) - 5} more" if len(samples) > 5 else ""
    return f"sample{'s' if len(samples) > 1 else ''} {names}{more}"


def _opposite_twins(problem: MarginProblem) -> NDArray[np.int64] | None:
    """Two samples of equal inputs and gates and of opposite labels."""
    same_input: dict[bytes, list[int]] = {}
    for n, row in enumerate(problem.X):
        same_input.setdefault(_digest(row), []).append(n)
    for samples in same_input.values():
        if len(set(problem.y[samples])) == 2:
            gates = sp.csr_array(problem.gates[samples]).toarray()
            first: dict[bytes, int] = {}
            for n, row in zip(samples, gates, strict=True):
                m = first.setdefault(_digest(row), n)
                if problem.y[m] != problem.y[n]:
                    return np.array([m, n])
    return None


def _digest(row: Array) -> bytes:
    """Equal for equal rows (adding 0.0 turns -0.0 to 0.0), practically never else."""
    return blake2b((row + 0.0).tobytes(), digest_size=16).digest()
