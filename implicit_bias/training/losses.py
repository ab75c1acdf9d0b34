r"""Losses with an implicit bias towards the maximum margin, and a check that a loss is one.

A loss is written l(q) = exp(-f(q)) of the margin q = y f(x). It is exponential-like if

(1)  f is continuously differentiable;
(2)  f'(q) > 0 for all q;
(3)  there is b_f >= 0 such that f'(q) q is non-decreasing for q > b_f, and f'(q) q -> infinity;
(4)  with g = f^(-1) there is K >= 1 such that g'(x) <= K g'(theta x) and f'(y) <= K f'(theta y)
     for all large x, y and all theta in [1/2, 1).

Then gradient descent on separable data goes, in direction, to a KKT point of the margin problem.
The logistic and the exponential loss are such; a loss with a polynomial tail is none: f'(q) q
stays bounded.

Of many classes they are losses of the soft smallest margin, `margins.soft_margins`; the logistic
loss is the cross-entropy then.

The losses are computed from their logarithm -f(q), which is still a number of ordinary size where
the loss itself, exp(-100000) say, has long been 0 in any floating-point format.

Source: Lyu and Li (2020), appendix A, (B3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from implicit_bias.base.options import LossName as LossName
from implicit_bias.base.validation import Array, check_choice

# From here on log(1 + e) = e - e^2 / 2 to the last bit of float64, e = exp(-margin).
TAIL = 20.0

# The check looks at margins up to LARGEST. What must hold "for large q" is looked at from LARGE on,
# and what may fail at first must hold from MIDDLE on.
LARGEST = 1e8
LARGE = 1e2
MIDDLE = math.sqrt(LARGE * LARGEST)
# What rounding may take from f'(q) q between neighbours, or from f, relative to it.
ROUNDING = 1e-7


class LossError(ValueError):
    """A loss that is not exponential-like; the message names the condition and the value measured.

    Attributes
    ----------
    condition : str
        What does not hold.
    measured : float
        The value that was found.
    """

    def __init__(
        self, loss: MarginLoss, condition: str, measured: float, q: float, more: str = ""
    ) -> None:
        super().__init__(
            f"loss {loss.name!r} is not exponential-like (Lyu and Li 2020, (B3)), so its "
            f"training need not maximise the margin: {condition}, but it is {measured:.6g} at "
            f"q = {q:.6g}{more}. log_loss must be the logarithm of the loss of each margin, in "
            "torch, and hold from -10 to 1e8"
        )
        self.condition = condition
        self.measured = measured


@dataclass(frozen=True)
class MarginLoss:
    """The loss of a margin, known by its logarithm.

    Parameters
    ----------
    name : str
        How it is called.
    log_loss : callable
        Margins q, of any shape, to -f(q) = log l(q), differentiable by autograd and accurate for
        enormous margins.
    direct : callable or None
        l(q) itself, where it can be had with less rounding than as exp(-f(q)).

    Examples
    --------
    >>> import torch
    >>> loss = MarginLoss("squared exponential", lambda q: -q * q.abs() - q)
    >>> float(loss.log_loss(torch.tensor(3.0)))
    -12.0
    """

    name: str
    log_loss: Callable[[Tensor], Tensor]
    direct: Callable[[Tensor], Tensor] | None = None

    def __call__(self, margins: Tensor) -> Tensor:
        """l(q) of each margin; 0 where it is too small for the format."""
        if self.direct is not None:
            return self.direct(margins)
        return self.log_loss(margins).exp()


def _log_logistic(margins: Tensor) -> Tensor:
    """Compute log log(1 + exp(-q)), to the last bits for all q."""
    tail = torch.exp(-margins.clamp(min=TAIL))
    # Clamped, so that no branch overflows and spoils the gradient of the other.
    body = torch.logaddexp(margins.new_zeros(()), -margins.clamp(max=TAIL)).log()
    return torch.where(margins < TAIL, body, torch.log1p(-tail / 2) - margins)


LOSSES: dict[str, MarginLoss] = {
    "logistic": MarginLoss("logistic", _log_logistic, lambda margins: softplus(-margins)),
    "exponential": MarginLoss("exponential", lambda margins: -margins),
}


def as_loss(loss: LossName | MarginLoss) -> MarginLoss:
    """Return the loss of this name, or the loss itself.

    Raises
    ------
    ValueError
        Neither.
    """
    if isinstance(loss, MarginLoss):
        return loss
    check_choice(loss, "loss", (*LOSSES, "cross-entropy"), "a MarginLoss")
    if loss == "cross-entropy":
        return LOSSES["logistic"]
    return LOSSES[loss]


@cache
def check_exponential_like(loss: MarginLoss) -> float:
    """Check numerically that a loss is exponential-like, on margins from -10 to 1e8.

    No finite check is a proof: what a loss does beyond the range, or between neighbouring points
    of the grid without a trace there, is not seen.

    Returns
    -------
    float
        The largest K of condition (4) that was met.

    Raises
    ------
    LossError
        A condition does not hold.
    """
    # Conditions (1) to (3), on a grid of steps of 0.01 up to 1 and of 400 points a decade after it.
    grid = np.concatenate([np.linspace(-10, 1, 1101)[:-1], geometric(1.0)])
    f, slope = f_and_slope(loss, grid)
    require_finite(loss, grid, f)
    require_finite(loss, grid, slope)
    least = int(slope.argmin())
    if slope[least] <= 0:
        raise LossError(loss, "f'(q) must be positive", slope[least], grid[least])
    middle = int(np.searchsorted(grid, MIDDLE))
    if f[middle] <= 0:
        raise LossError(loss, "f must be positive for large q", f[middle], grid[middle])
    _check_continuous(loss, grid, f, slope)
    _check_growth(loss, grid, slope)

    # Condition (4). As g'(x) = 1 / f'(g(x)), its first inequality at x = f(q) is
    # f'(g(theta x)) <= K f'(q).
    q = geometric(LARGE)
    f, slope = f_and_slope(loss, q)
    positive = f > 0  # where the inverse is needed
    q = q[positive]
    f = f[positive]
    slope = slope[positive]
    of_inverse = _largest_ratio(loss, "g'(x) <= K g'(theta x)", q, f, 1.0 / slope)
    of_slope = _largest_ratio(loss, "f'(y) <= K f'(theta y)", q, q, slope)
    return max(of_inverse, of_slope)


def geometric(first: float) -> Array:
    """Grid from the given margin to the largest, of 400 points a decade."""
    return np.geomspace(first, LARGEST, round(400 * math.log10(LARGEST / first)))


def f_and_slope(loss: MarginLoss, margins: Array) -> tuple[Array, Array]:
    """Compute f and f' at margins (n,)."""
    q = torch.tensor(margins, dtype=torch.float64, requires_grad=True)
    f = -loss.log_loss(q)
    (slope,) = torch.autograd.grad(f.sum(), q)
    return f.detach().numpy(), slope.numpy()


def require_finite(loss: MarginLoss, margins: Array, values: Array) -> None:
    """Refuse a loss where f or f' (n,) is not finite at some margins (n,)."""
    finite = np.isfinite(values)
    if not finite.all():
        first = int(np.argmin(finite))
        raise LossError(loss, "f and f' must be finite", values[first], margins[first])


def _check_continuous(loss: MarginLoss, grid: Array, f: Array, slope: Array) -> None:
    """Condition (1): f' must be continuous, and the derivative of f."""
    # Around each of the largest steps of f' the interval is halved on the side of the larger step:
    # the step of a continuous f' vanishes with the interval, a jump stays.
    steps = np.abs(np.diff(slope)) / np.maximum(np.abs(slope[1:]), np.abs(slope[:-1]))
    for start in np.argsort(-steps)[:8]:
        left, right = grid[start : start + 2]
        for _ in range(50):
            middle = 0.5 * (left + right)
            _, at = f_and_slope(loss, np.array([left, middle, right]))
            if not left < middle < right:
                break
            if abs(at[1] - at[0]) < abs(at[2] - at[1]):
                left = middle
            else:
                right = middle
        jump = float(np.ptp(at) / np.abs(at).max())
        if jump > 1e-3:
            condition = "f' must be continuous (no jump, relative to it)"
            raise LossError(loss, condition, jump, middle)
    # Between grid points f must be the integral of f', by the trapezoidal rule: a jump of f itself
    # shows here.
    integral = np.diff(grid) * (slope[1:] + slope[:-1]) / 2
    scale = np.maximum(integral, ROUNDING * np.abs(f[1:]))
    apart = np.abs(np.diff(f) - integral) / np.where(scale > 0, scale, 1.0)
    worst = int(apart.argmax())
    if apart[worst] > 0.05:
        condition = "f must be the integral of f' (relative deviation between two points: 0)"
        raise LossError(loss, condition, apart[worst], grid[worst])


def _check_growth(loss: MarginLoss, grid: Array, slope: Array) -> None:
    """Condition (3): from some margin in the lower half of the range on, f'(q) q only grows."""
    # What grows from some margin on has its last fall before the middle of the range.
    q = grid[grid >= LARGE]
    product = (slope * grid)[grid >= LARGE]
    falls = np.flatnonzero(np.diff(product) < -ROUNDING * product[:-1])
    if len(falls) and q[falls[-1]] > MIDDLE:
        ratio = product[falls[-1] + 1] / product[falls[-1]]
        condition = (
            "f'(q) q must not decrease for large q (ratio of neighbouring points: at least 1)"
        )
        raise LossError(loss, condition, ratio, q[falls[-1]])
    # (4) makes f'(q) q a power of q, and its exponent must not vanish.
    first = int(np.searchsorted(q, MIDDLE))
    growth = math.log(product[-1] / product[first]) / math.log(q[-1] / q[first])
    least = 1e-2
    if growth < least:
        condition = f"f'(q) q must go to infinity (as q to a power of at least {least:g})"
        more = f" (the power up to there), where f'(q) q = {product[-1]:.6g}"
        raise LossError(loss, condition, growth, LARGEST, more)


def _largest_ratio(loss: MarginLoss, inequality: str, q: Array, x: Array, slope: Array) -> float:
    """Condition (4): the largest ratio of a slope at x to that at theta x, theta in [1/2, 1).

    This is K, which must not grow along the range: it may be larger by half in the upper half.
    """
    # The slope at theta x is interpolated in logarithms, in which a power of x is a line.
    largest = np.ones(len(x))
    for theta in (0.5, 0.6, 0.75, 0.9, 0.99):
        inside = theta * x >= x[0]
        before = np.exp(np.interp(np.log(theta * x[inside]), np.log(x), np.log(slope)))
        largest[inside] = np.maximum(largest[inside], slope[inside] / before)
    half = len(x) // 2
    lower = float(largest[:half].max())
    upper = float(largest[half:].max())
    if upper > 1.5 * lower:
        condition = f"{inequality} must hold with one K for all large arguments ({lower:.3g} below)"
        raise LossError(loss, condition, upper, q[half], " and above")
    return max(lower, upper)
