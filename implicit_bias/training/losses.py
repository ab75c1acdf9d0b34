r"""Losses whose training goes to a max-margin direction, and a check that a loss is one of them.

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

# The numerical check: margins up to LARGEST, and what is large from LARGE on.
LARGEST, LARGE = 1e8, 1e2
# What need not hold at once must hold from the middle of that range on.
MIDDLE = math.sqrt(LARGE * LARGEST)
POINTS_A_DECADE = 400
THETAS = (0.5, 0.6, 0.75, 0.9, 0.99)
# What rounding may take from f'(q) q between neighbours, relative to it.
ROUNDING = 1e-7
# Least exponent with which f'(q) q must grow. (4) makes it a power of q.
LEAST_GROWTH = 1e-2
# K may differ between the two halves of the range by this factor, and is then called bounded.
BOUNDED = 1.5
# A step of f' that stays, relative to f', however close its two sides are, is a jump.
JUMP = 1e-3


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
        self.condition, self.measured = condition, measured


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


# Other names of the losses.
SYNONYMS: dict[str, str] = {"cross-entropy": "logistic"}


def as_loss(loss: LossName | MarginLoss) -> MarginLoss:
    """Return the loss of this name, or the loss itself.

    Raises
    ------
    ValueError
        Neither.
    """
    if isinstance(loss, MarginLoss):
        return loss
    check_choice(loss, "loss", (*LOSSES, *SYNONYMS), "a MarginLoss")
    return LOSSES[SYNONYMS.get(loss, loss)]


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
    grid = np.concatenate([np.linspace(-10, 1, 1101)[:-1], geometric(1.0)])
    f, slope = f_and_slope(loss, grid)
    for values in (f, slope):
        require_finite(loss, grid, values)
    least, middle = int(slope.argmin()), int(np.searchsorted(grid, MIDDLE))
    if slope[least] <= 0:
        raise LossError(loss, "f'(q) must be positive", slope[least], grid[least])
    if f[middle] <= 0:
        raise LossError(loss, "f must be positive for large q", f[middle], grid[middle])
    _check_continuous(loss, grid, slope)
    _check_growth(loss, grid, slope)
    return max(_bound(loss, inverse=True), _bound(loss, inverse=False))


def geometric(first: float) -> Array:
    """Grid from the given margin to the largest."""
    return np.geomspace(first, LARGEST, round(POINTS_A_DECADE * math.log10(LARGEST / first)))


def f_and_slope(loss: MarginLoss, margins: Array) -> tuple[Array, Array]:
    """Compute f and f' at margins (n,)."""
    q = torch.tensor(margins, dtype=torch.float64, requires_grad=True)
    f = -loss.log_loss(q)
    (slope,) = torch.autograd.grad(f.sum(), q)
    return f.detach().numpy(), slope.numpy()


def require_finite(loss: MarginLoss, margins: Array, values: Array) -> None:
    """Refuse a loss where f or f' (n,) is not finite at some margins (n,)."""
    if not np.isfinite(values).all():
        first = int(np.argmin(np.isfinite(values)))
        raise LossError(loss, "f and f' must be finite", values[first], margins[first])


def _check_continuous(loss: MarginLoss, grid: Array, slope: Array) -> None:
    """Condition (1): f' must be continuous, and the derivative of f.

    Around each of the largest steps of f' the interval is halved on the side of the larger step:
    the step of a continuous f' vanishes with the interval, a jump stays. Between grid points f
    must be the integral of f', by the trapezoidal rule: a jump of f itself shows here.
    """
    steps = np.abs(np.diff(slope)) / np.maximum(np.abs(slope[1:]), np.abs(slope[:-1]))
    for start in np.argsort(-steps)[:8]:
        ends = grid[start : start + 2]
        for _ in range(50):
            points = np.array([ends[0], ends.mean(), ends[1]])
            f, at = f_and_slope(loss, points)
            left = int(abs(at[1] - at[0]) < abs(at[2] - at[1]))
            ends = points[left : left + 2]
            if not points[0] < points[1] < points[2]:
                break
        jump = float(np.ptp(at) / np.abs(at).max())
        if jump > JUMP:
            condition = "f' must be continuous (no jump, relative to it)"
            raise LossError(loss, condition, jump, points[1])
    f, _ = f_and_slope(loss, grid)
    integral = np.diff(grid) * (slope[1:] + slope[:-1]) / 2
    scale = np.maximum(integral, ROUNDING * np.abs(f[1:]))
    apart = np.abs(np.diff(f) - integral) / np.where(scale > 0, scale, 1.0)
    worst = int(apart.argmax())
    if apart[worst] > 0.05:
        condition = "f must be the integral of f' (relative deviation between two points: 0)"
        raise LossError(loss, condition, apart[worst], grid[worst])


def _check_growth(loss: MarginLoss, grid: Array, slope: Array) -> None:
    """Condition (3): from some margin in the lower half of the range on, f'(q) q only grows."""
    large = grid >= LARGE
    q, product = grid[large], (slope * grid)[large]
    fall = np.flatnonzero(np.diff(product) < -ROUNDING * product[:-1])
    if len(fall) and q[fall[-1]] > MIDDLE:
        ratio = product[fall[-1] + 1] / product[fall[-1]]
        condition = (
            "f'(q) q must not decrease for large q (ratio of neighbouring points: at least 1)"
        )
        raise LossError(loss, condition, ratio, q[fall[-1]])
    upper = q >= MIDDLE
    growth = math.log(product[-1] / product[upper][0]) / math.log(q[-1] / q[upper][0])
    if growth < LEAST_GROWTH:
        condition = f"f'(q) q must go to infinity (as q to a power of at least {LEAST_GROWTH:g})"
        more = f" (the power up to there), where f'(q) q = {product[-1]:.6g}"
        raise LossError(loss, condition, growth, LARGEST, more)


def _bound(loss: MarginLoss, *, inverse: bool) -> float:
    """Condition (4): K of g' (``inverse``) or of f', which must not grow along the range.

    As g'(x) = 1 / f'(g(x)), the first inequality at x = f(q) is f'(g(theta x)) <= K f'(q).
    """
    q = geometric(LARGE)
    f, slope = f_and_slope(loss, q)
    if f[0] <= 0:  # the inverse is needed where f is positive
        q, f, slope = q[f > 0], f[f > 0], slope[f > 0]
    largest, x = np.ones(len(q)), f if inverse else q
    for theta in THETAS:
        reached = theta * x >= x[0]
        before = np.exp(np.interp(np.log(theta * x[reached]), np.log(x), np.log(slope)))
        ratio = before / slope[reached] if inverse else slope[reached] / before
        largest[reached] = np.maximum(largest[reached], ratio)
    half = len(q) // 2
    lower, upper = float(largest[:half].max()), float(largest[half:].max())
    if upper > BOUNDED * lower:
        inequality = "g'(x) <= K g'(theta x)" if inverse else "f'(y) <= K f'(theta y)"
        condition = f"{inequality} must hold with one K for all large arguments ({lower:.3g} below)"
        raise LossError(loss, condition, upper, q[half], " and above")
    return max(lower, upper)
