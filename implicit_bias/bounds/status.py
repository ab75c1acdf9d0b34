"""Status of a solve, and the certified bounds on the optimum that it ended with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from implicit_bias.base.validation import Array


class WordedStatus(Enum):
    """How something ended; each member's value is its message."""

    @property
    def message(self) -> str:
        """One sentence for people."""
        return str(self.value)

    @property
    def label(self) -> str:
        """The name in lower-case words, for tables."""
        return self.name.lower().replace("_", " ")


class Status(WordedStatus):
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
        "the data are not separable in these features, which is proven (choose a finite C, other "
        "features, or more units where there are gates)"
    )
    NEARLY_INSEPARABLE = (
        "any separator is so large, and its margin relative to the features so small, that float64 "
        "can neither find one nor prove that there is none (center or scale the features, or "
        "choose a finite C)"
    )
    ITERATION_LIMIT = "the iteration limit came first"
    TIME_LIMIT = "the time limit came first"
    INTERRUPTED = "Ctrl-C came first"
    NUMERICAL_TROUBLE = (
        "rounding in float64 decides: no method brings the bounds closer (center and scale the "
        "features, or choose a finite C)"
    )

    def __reduce__(self) -> tuple[type[Status], tuple[str]]:
        """Rebuild from the value, for skops; pickle has another way for an Enum."""
        return Status, (self.value,)

    @property
    def inseparable(self) -> bool:
        """Whether no coefficients separate the samples, proven or as far as float64 can tell."""
        return self in (Status.NOT_SEPARABLE, Status.NEARLY_INSEPARABLE)

    def explain(self, certificate: Certificate) -> str:
        """Return the message, with what is certified of the optimum nevertheless."""
        if self in (Status.OPTIMAL, Status.NOT_SEPARABLE):
            return self.message
        if math.isnan(certificate.gap):
            return certificate.statement
        return f"{self.message}; {certificate.statement}"


@dataclass(frozen=True, eq=False)
class Certificate:
    r"""Certified bounds on the optimal value of a margin problem.

    .. math:: \text{lower} \le \text{optimum} \le \text{upper}, \qquad
        \text{gap} = (\text{upper} - \text{lower}) / \text{lower}

    Attributes
    ----------
    lower, upper : float
        The optimum lies between them. inf as lower bound: not separable, proven.
    gap : float
        (upper - lower) / lower: the coefficients' norm exceeds the optimum by at most this
        fraction; inf where a bound is missing, nan where the bounds contradict each other.
    min_margin : float
        Smallest y_n (f(x_n) + b) of the coefficients as they were given; nan without coefficients.
    dual_norms : ndarray of shape (G,)
        ||V_g|| at alpha scaled to be feasible, at most 1; nan without alpha. A group whose norm
        is below 1 at the optimal alpha has zero coefficients.
    soft_margin : bool
        Whether the optimum is of the norm plus C times the hinge loss, and not of the norm alone.

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
    soft_margin: bool = False

    def __str__(self) -> str:
        if math.isfinite(self.gap):
            return f"{self.statement}, gap {self.gap:.2g}"
        return self.statement

    @property
    def objective(self) -> str:
        """What the bounds are of, in words."""
        if self.soft_margin:
            return "optimum (norm + C hinge)"
        return "optimum"

    @property
    def statement(self) -> str:
        """What is certified of the optimum, in words."""
        if math.isnan(self.gap):
            return (
                f"nothing is certified: the optimum would be at least {self.lower:.6g} and at most "
                f"{self.upper:.6g}, which contradict each other, so that value and dual are not of "
                "one norm (try random ones: <coef, V> is at most value(coef) dual(V), and reaches "
                "it)"
            )
        if math.isinf(self.lower):
            return "no coefficients separate the data"
        optimum = f"the {self.objective}"
        if math.isinf(self.upper):
            if self.lower > 0:
                return f"certified: {optimum} is at least {self.lower:.6g}, and no upper bound"
            return "certified: nothing, and no upper bound"
        return f"certified: {optimum} is between {self.lower:.6g} and {self.upper:.6g}"


def relative_gap(lower: float, upper: float) -> float:
    """Relative duality gap (upper - lower) / lower; nan for bounds that contradict each other."""
    # Values without an allowance for rounding may cross by a little. Bounds that cross by more are
    # not of one norm: the value and the dual of a user's own norm do not belong together.
    if lower > upper * (1.0 + 1e-9):
        return math.nan
    if math.isinf(upper) or lower <= 0:
        return math.inf
    return max(upper - lower, 0.0) / lower


def norm_at_margin_1(norm: float, min_margin: float) -> float:
    """Return the norm once the smallest margin is scaled to 1; inf if it is not positive."""
    if min_margin > 0:
        return norm / min_margin
    return math.inf


def excess(norm: float, optimum: float) -> float:
    """Relative suboptimality of a norm at unit margin.

    norm / optimum - 1: inf for an infinite norm (not separated), nan where no optimum is known.
    """
    if 0 < optimum < math.inf:
        return norm / optimum - 1.0
    return math.nan
