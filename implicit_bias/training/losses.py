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

Of many classes they are losses of the log-sum-exp margin, `margins.logsumexp_margins`; the logistic
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
            f"training need not maximize the margin: {condition}, but it is {measured:.6g} at "
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


def f_and_slope(loss: MarginLoss, margins: Array) -> tuple[Array, Array]:
    """Compute f and f' at margins (n,), and refuse a loss where one of them is not finite."""
    q = torch.tensor(margins, dtype=torch.float64, requires_grad=True)
    log_loss = loss.log_loss(q)
    (gradient,) = torch.autograd.grad(log_loss.sum(), q)
    f = -log_loss.detach().numpy()
    slope = -gradient.numpy()
    for values in (f, slope):
        finite = np.isfinite(values)
        if not finite.all():
            first = int(np.argmin(finite))
            raise LossError(loss, "f and f' must be finite", values[first], margins[first])
    return f, slope


@dataclass(frozen=True)
class TailCheck:
    """Checks numerically that a loss is exponential-like, on margins from -10 to ``largest``.

    Conditions (2) and (3) are checked; (1) and (4), on the regularity of f, are not. No finite
    check is a proof: what a loss does beyond the range is not seen.

    Parameters
    ----------
    largest : float
        The largest q at which the loss is looked at.
    large : float
        From here on what must hold "for large q" is looked at.
    a_decade : int
        Points of the grid for each power of ten.
    rounding : float
        What rounding may take from f'(q) q between neighbours, relative to it.
    least_growth : float
        f'(q) q must grow at least as this power of q.
    """

    largest: float = 1e8
    large: float = 1e2
    a_decade: int = 400
    rounding: float = 1e-7
    least_growth: float = 1e-2

    def check(self, loss: MarginLoss) -> None:
        """Raise LossError where a condition does not hold."""
        decades = round(math.log10(self.largest))
        beyond_1 = np.geomspace(1.0, self.largest, self.a_decade * decades)
        grid = np.concatenate([np.linspace(-10, 1, 1101)[:-1], beyond_1])
        f, slope = f_and_slope(loss, grid)

        # (2), and the loss must fall below 1.
        least = int(slope.argmin())
        if slope[least] <= 0:
            raise LossError(loss, "f'(q) must be positive", slope[least], grid[least])
        middle = math.sqrt(self.large * self.largest)
        place = int(np.searchsorted(grid, middle))
        if f[place] <= 0:
            raise LossError(loss, "f must be positive for large q", f[place], grid[place])

        # (3): what grows from some margin on has its last fall before the middle of the range.
        q_large = grid[grid >= self.large]
        product = (slope * grid)[grid >= self.large]
        falls = np.flatnonzero(np.diff(product) < -self.rounding * product[:-1])
        if len(falls) and q_large[falls[-1]] > middle:
            ratio = product[falls[-1] + 1] / product[falls[-1]]
            condition = (
                "f'(q) q must not decrease for large q (ratio of neighbouring points: at least 1)"
            )
            raise LossError(loss, condition, ratio, q_large[falls[-1]])
        # And it goes to infinity: by (4) it is about a power of q, whose exponent must not vanish.
        first = int(np.searchsorted(q_large, middle))
        growth = math.log(product[-1] / product[first]) / math.log(q_large[-1] / q_large[first])
        if growth < self.least_growth:
            condition = f"f'(q) q must go to infinity (as q to a power of {self.least_growth:g})"
            more = f" (the power up to there), where f'(q) q = {product[-1]:.6g}"
            raise LossError(loss, condition, growth, self.largest, more)


@cache
def check_exponential_like(loss: MarginLoss) -> None:
    """Check numerically that a loss is exponential-like, see `TailCheck`.

    Raises
    ------
    LossError
        A condition does not hold.
    """
    TailCheck().check(loss)
