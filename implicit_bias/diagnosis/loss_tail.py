r"""Whether a function of outputs and targets is a loss whose training maximises the margin.

Its training goes, in direction, to a KKT point of the max-margin problem if along each ray of
outputs on which the smallest margin q = min_k (s_y - s_k) (or y s with one output) grows,

(1)  l falls as q grows, to its infimum: no finite outputs minimise it;
(2)  f'(q) q grows without bound, l = inf l + exp(-f(q)): the tail is exponential in q, as
     exp(-c q) of any rate c > 0 is, or exp(-q^2), and (1 + q)^-p is not;
(3)  f' is the same function of q on each ray and for each label.

Cross-entropy passes at any temperature and with any number of classes. Mean squared error and label
smoothing fail (1), a polynomial fails (2), and per-class sigmoids (one against the rest) fail (3).

**In logarithms.** A loss is looked at through the fall of log l from .99 q to 1.01 q, and as far
out as its values have digits: cross-entropy computed from outputs s is exactly 0 in float64 from
c q = 37 on, and the logarithm of that is -infinity. So q is doubled from 1, or halved if nothing is
known at 1, until falls between neighbours no longer agree, and the tail is judged at the last q at
which they do and at a quarter of it. f'(q) q grows fourfold in between for an exponential tail,
twofold for exp(-sqrt q), and not at all for a power, far enough out. A function that has negative
values is taken for the logarithm of a loss.

Source: Lyu and Li (2020), appendix A, (B3); `training.losses` for losses given by their logarithm.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

# What a loss raises on targets that it does not take.
OF_OTHER_TARGETS = (RuntimeError, ValueError, TypeError, IndexError)

# The margins that are looked at, powers of 2 from 1 on and below, and steps between the last two.
LEAST_POWER, MOST_POWER, REFINED = -20, 27, 16
# Where the loss is read to find its fall at a margin, as shares of the margin.
PLACES = (0.98, 0.99, 1.0, 1.01, 1.02)
# Falls between neighbouring places agree up to this factor.
AGREE = 1.5
# f'(q) q grows by this factor at least over a fourfold margin where a tail is exponential.
TAIL_GROWTH = 1.5
# Where values end, f'(q) q grew by this factor at most over the last quarter octave (by 1.2 for
# an exponential tail), unless the loss reaches its infimum.
SLOWLY = 2.0
# Falls along several rays are compared at this share of the last margin with digits; they are the
# same if they differ by less than the other share.
COMPARED, SAME_RATE = 0.75, 0.1
# What rounding changes in a loss of outputs of size q, relative to q, and in the loss itself.
ROUNDED, ROUNDED_LOSS = 1e-13, 1e-9
# A loss is above 0 far out if it is above this share of its value at 0.
ABOVE_0 = 1e-3
# Labels that are tried, at most.
LABELS = 8

Loss = Callable[..., Any]
# A loss of a margin.
Values = Callable[[float], float]


class Refusal(Enum):
    """Why the training on a loss does not maximise the margin."""

    FINITE = "a finite minimiser"
    NO_TAIL = "no exponential tail"
    OTHER_MARGIN = "another margin"


@dataclass(frozen=True)
class Tail:
    """A loss along one ray of outputs.

    Attributes
    ----------
    margin : float
        The largest margin at which its values have digits; 0 without one.
    growth : float
        By how much f'(q) q grows from a quarter of that margin on.
    rises : bool
        Whether the loss has a finite minimiser on the ray.
    logarithm : bool
        Whether it is the logarithm of a loss.
    fall : callable
        Margin to the fall of the logarithm of the loss around it, nan where it is not known.
    """

    margin: float
    growth: float
    rises: bool
    logarithm: bool
    fall: Callable[[float], float]

    @property
    def exponential(self) -> bool:
        """Whether the tail is exponential."""
        return not self.rises and self.growth >= TAIL_GROWTH


def refusal_of(loss: Loss, classes: int | None) -> Refusal | None:
    """Find why training on a loss does not maximise the margin; None where it does.

    Parameters
    ----------
    loss : callable
        Outputs (1, K) and targets (1,) or (1, K), or outputs (1,) or (1, 1) and targets of that
        shape, to a number.
    classes : int or None
        K; None with one output a sample.

    Raises
    ------
    ValueError
        The loss has no value at any of these.

    Examples
    --------
    >>> from torch.nn import functional as F
    >>> refusal_of(lambda s, t: F.cross_entropy(s / 0.07, t), 10) is None
    True
    >>> refusal_of(F.mse_loss, None)
    <Refusal.FINITE: 'a finite minimiser'>
    """
    found = [_judged([*map(tail_of, values)]) for values in _kinds(loss, classes)]
    if not found:
        raise ValueError("the loss could not be evaluated")
    if None in found:
        return None
    # A kind of targets that is not the loss's own leaves less of a tail.
    return next(reason for reason in reversed(Refusal) if reason in found)


def is_logarithm(loss: Loss, classes: int | None) -> bool:
    """Whether a function of outputs and targets is the logarithm of a loss, negative when small."""
    return any(tail_of(values[0]).logarithm for values in _kinds(loss, classes))


def tail_of(value: Values) -> Tail:
    """Follow a loss along a ray, from its values at margins q >= 0."""
    known, values = [0.0], [value(0.0)]
    for power in range(LEAST_POWER, MOST_POWER):
        found = value(2.0**power)
        if math.isfinite(found):
            known.append(2.0**power)
            values.append(found)
    logarithm = any(each < 0.0 for each in values)
    # What the loss keeps for good, as per-class sigmoids do of the other classes, is no tail.
    kept = 0.0
    if len(known) > 1 and not logarithm:
        flat = abs(values[-1] - values[-2]) <= ROUNDED_LOSS * values[-1]
        if flat and values[-1] > ABOVE_0 * values[0]:
            kept = values[-1]

    def log_loss(q: float) -> float:
        found = value(q) if logarithm else value(q) - kept
        if logarithm or not found > 0.0:
            return found if logarithm else -math.inf
        return math.log(found)

    def fall(q: float) -> float:
        """Fall of the logarithm from .99 q to 1.01 q; nan where neighbours do not agree."""
        logs = [log_loss(share * q) for share in PLACES]
        falls = [before - after for before, after in zip(logs, logs[1:], strict=False)]
        if not all(0.0 < each < math.inf for each in falls) or max(falls) > AGREE * min(falls):
            return math.nan
        return falls[1] + falls[2]

    margin = _last_known(fall)
    lowest, rises = math.inf, False
    for q, found in zip(known, values, strict=True):
        rises = rises or found > lowest + ROUNDED * q + ROUNDED_LOSS * abs(lowest)
        lowest = min(lowest, found)
    if not margin:
        return Tail(0.0, 0.0, rises, logarithm, fall)
    first, last = fall(margin / 4.0), fall(margin)
    growth = last / first if first > 0.0 else math.inf
    ends = margin < 2.0 ** (MOST_POWER - 1) and not fall(2.0 * margin) > 0.0
    stops = ends and last > SLOWLY * fall(margin * 2.0**-0.25)
    return Tail(margin, growth, rises or stops, logarithm, fall)


def _last_known(fall: Callable[[float], float]) -> float:
    """Return the largest margin up to which a fall is known; 0 without one."""
    power = 0
    while power > LEAST_POWER and not fall(2.0**power) > 0.0:
        power -= 1
    if power == LEAST_POWER:
        return 0.0
    while power < MOST_POWER - 1 and fall(2.0 ** (power + 1)) > 0.0:
        power += 1
    steps = (2.0 ** (power + step / REFINED) for step in range(REFINED))
    return max(q for q in steps if fall(q) > 0.0)


def _judged(rays: list[Tail]) -> Refusal | None:
    """Judge a loss by its tails along all rays."""
    if any(ray.rises for ray in rays):
        return Refusal.FINITE
    exponential = [ray for ray in rays if ray.exponential]
    if not exponential:
        return Refusal.NO_TAIL
    if len(exponential) < len(rays):
        return Refusal.OTHER_MARGIN
    margin = COMPARED * min(ray.margin for ray in rays)
    falls = [ray.fall(margin) for ray in rays]
    same = max(falls) <= (1.0 + SAME_RATE) * min(falls)
    return None if same else Refusal.OTHER_MARGIN


def _kinds(loss: Loss, classes: int | None) -> Iterator[list[Values]]:
    """Yield the loss along all rays, for each kind of targets with which it has values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a target that this loss does not like
        yield from _binary_rays(loss) if classes is None else _rays_of_classes(loss, classes)


def _binary_rays(loss: Loss) -> Iterator[list[Values]]:
    """Values along the rays of both labels, of which the other one is 0 or -1."""
    for shape in ((1,), (1, 1)):
        for kind in (torch.float64, torch.int64):
            rays = [_value(loss, torch.ones(shape), torch.ones(shape, dtype=kind))]
            if not _has_values(rays[0]):
                continue
            others = [
                _value(loss, -torch.ones(shape), torch.full(shape, other, dtype=kind))
                for other in (0, -1)
            ]
            others = [other for other in others if _has_values(other)]
            exponential = (other for other in others if tail_of(other).exponential)
            other = next(exponential, others[0] if others else None)
            yield rays if other is None else [*rays, other]


def _rays_of_classes(loss: Loss, classes: int) -> Iterator[list[Values]]:
    """Values along rays of smallest margin 1 of each label."""
    labels = range(0, classes, math.ceil(classes / LABELS))
    for as_target in (_index, _one_hot):
        rays = list[Values]()
        for label in labels:
            target = as_target(label, classes)
            rays += [_value(loss, outputs[None], target) for outputs in _outputs(label, classes)]
        rays = [ray for ray in rays if _has_values(ray)]
        if rays:
            yield rays


def _outputs(label: int, classes: int) -> Iterator[Tensor]:
    """Yield outputs (K,) of smallest margin 1: rivals at 0, at -1, around 0, and one rival alone.

    Of labels but the first there is only the last of them.
    """
    own = torch.zeros(classes)
    own[label] = 1.0
    if label == 0:
        yield own
        yield own - 1.0
        yield own - 1.0 / classes
    nearest = -torch.ones(classes)
    nearest[label] = 1.0
    if classes > 1:
        nearest[(label + 1) % classes] = 0.0
    yield nearest


def _index(label: int, classes: int) -> Tensor:
    return torch.tensor([label])


def _one_hot(label: int, classes: int) -> Tensor:
    target = torch.zeros(1, classes, dtype=torch.float64)
    target[0, label] = 1.0
    return target


def _has_values(value: Values) -> bool:
    """Whether a loss takes these targets, and has values at small margins."""
    with suppress(*OF_OTHER_TARGETS):
        # The logarithm of a loss that is 0 in float64 is -infinity.
        return math.isfinite(value(0.0)) and value(1.0) < math.inf
    return False


def _value(loss: Loss, direction: Tensor, target: Tensor) -> Values:
    """Return the loss of one sample as a function of the margin along a ray of outputs."""
    direction = direction.double()

    def value(margin: float) -> float:
        return float(loss_at(loss, margin * direction, target))

    return value


def loss_at(loss: Loss, outputs: Tensor, target: Tensor) -> Tensor:
    """Loss of one sample."""
    return torch.as_tensor(loss(outputs, target))
