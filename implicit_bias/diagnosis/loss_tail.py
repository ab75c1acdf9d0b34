r"""Whether a function of outputs and targets is a loss whose training maximises the margin.

Its training converges in direction to a KKT point of the max-margin problem if along each ray of
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
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from implicit_bias.diagnosis.findings import Code
from implicit_bias.training.losses import LossError, MarginLoss, as_loss, check_exponential_like

Loss = Callable[..., Any]
# The loss of one sample as a function of its margin, along a ray of outputs.
Ray = Callable[[float], float]
# What a loss raises on targets that it does not take.
OF_OTHER_TARGETS = (RuntimeError, ValueError, TypeError, IndexError)


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
    exponential : bool
        Whether the tail is exponential.
    fall : callable
        Margin to the fall of the logarithm of the loss around it, nan where it is not known.
    """

    margin: float
    growth: float
    rises: bool
    logarithm: bool
    exponential: bool
    fall: Ray


@dataclass(frozen=True)
class JudgedLoss:
    """What is known of the training on a loss.

    Attributes
    ----------
    refusal : Code or None
        Why it does not maximise the margin; None where it does.
    logarithm : bool
        Whether the function is the logarithm of a loss: negative where that is small.
    """

    refusal: Code | None
    logarithm: bool


def judge_loss(loss: object, classes: int | None) -> JudgedLoss:
    """Find whether training on a loss maximises the margin.

    Parameters
    ----------
    loss : str, MarginLoss, callable or None
        A name or object of `implicit_bias.training.losses`, or a function (or torch module) of
        outputs and targets as torch's losses are.
    classes : int or None
        K.
    """
    if loss is None:
        return JudgedLoss(None, logarithm=False)
    if isinstance(loss, (str, MarginLoss)):
        if loss == "cross_entropy":  # as torch spells it
            loss = "cross-entropy"
        margin_loss = as_loss(loss)  # type: ignore[arg-type]
        try:
            check_exponential_like(margin_loss)
        except LossError:
            log_loss = margin_loss.log_loss
            tail = TailTest().tail(lambda q: float(log_loss(torch.tensor(q, dtype=torch.float64))))
            if tail.rises:
                return JudgedLoss(Code.FINITE_MINIMISER, logarithm=False)
            return JudgedLoss(Code.NO_EXPONENTIAL_TAIL, logarithm=False)
        return JudgedLoss(None, logarithm=False)
    if not callable(loss):
        raise TypeError(
            f"loss must be a name, a MarginLoss or a function of outputs and targets, got {loss!r}"
        )
    try:
        return TailTest().judge(loss, classes)
    except OF_OTHER_TARGETS:
        return JudgedLoss(Code.LOSS_NOT_CHECKED, logarithm=False)


@dataclass(frozen=True)
class TailTest:
    """How a loss is read, and what counts as an exponential tail.

    Attributes
    ----------
    least_power, most_power : int
        Margins that are looked at are powers of 2, from the first up to below the last.
    refined : int
        Steps between the last two powers of 2 in which the last margin with digits is found.
    places : tuple of float
        Where the loss is read to find its fall at a margin, as fractions of the margin.
    agree : float
        Falls between neighbouring places agree up to this factor.
    tail_growth : float
        f'(q) q grows by this factor at least over a fourfold margin where a tail is exponential.
    slowly : float
        Where values end, f'(q) q grew by this factor at most over the last quarter octave (by 1.2
        for an exponential tail), unless the loss reaches its infimum.
    compared : float
        Falls along several rays are compared at this fraction of the last margin with digits.
    same_rate : float
        They are the same if they differ by less than this fraction.
    rounding : float
        What rounding changes in a loss of outputs of size q, relative to q.
    loss_rounding : float
        What rounding changes in a loss, relative to it.
    above_0 : float
        A loss is above 0 far out if it is above this fraction of its value at 0.
    labels : int
        Labels that are tried, at most.

    Examples
    --------
    >>> from torch.nn import functional as F
    >>> TailTest().judge(lambda s, t: F.cross_entropy(s / 0.07, t), 10).refusal is None
    True
    >>> TailTest().judge(F.mse_loss, None).refusal
    <Code.FINITE_MINIMISER: 'finite-minimiser'>
    """

    least_power: int = -20
    most_power: int = 27
    refined: int = 16
    places: tuple[float, ...] = (0.98, 0.99, 1.0, 1.01, 1.02)
    agree: float = 1.5
    tail_growth: float = 1.5
    slowly: float = 2.0
    compared: float = 0.75
    same_rate: float = 0.1
    rounding: float = 1e-13
    loss_rounding: float = 1e-9
    above_0: float = 1e-3
    labels: int = 8

    def judge(self, loss: Loss, classes: int | None) -> JudgedLoss:
        """Find whether training on a loss maximises the margin.

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
        """
        # A loss is asked for each kind of targets that it may take, as it does not say which.
        refusals = list[Code | None]()
        logarithm = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a target that this loss does not like
            rays_by_target = self._binary_rays(loss)
            if classes is not None:
                rays_by_target = self._rays_of_classes(loss, classes)
            for rays in rays_by_target:
                tails = [self.tail(ray) for ray in rays]
                refusals.append(self._refusal(tails))
                logarithm = logarithm or tails[0].logarithm
        if not refusals:
            raise ValueError("the loss could not be evaluated")
        if None in refusals:
            return JudgedLoss(None, logarithm)
        # A kind of targets that is not the loss's own leaves less of a tail.
        for refusal in (Code.OTHER_MARGIN, Code.NO_EXPONENTIAL_TAIL):
            if refusal in refusals:
                return JudgedLoss(refusal, logarithm)
        return JudgedLoss(Code.FINITE_MINIMISER, logarithm)

    def _refusal(self, tails: list[Tail]) -> Code | None:
        """Judge a loss by its tails along all rays: (1), (2) and (3) in turn."""
        if any(tail.rises for tail in tails):
            return Code.FINITE_MINIMISER
        if not any(tail.exponential for tail in tails):
            return Code.NO_EXPONENTIAL_TAIL
        if not all(tail.exponential for tail in tails):
            return Code.OTHER_MARGIN
        # (3): on each ray the loss falls at the same rate, where all rays have digits.
        margin = self.compared * min(tail.margin for tail in tails)
        falls = [tail.fall(margin) for tail in tails]
        if max(falls) <= (1.0 + self.same_rate) * min(falls):
            return None
        return Code.OTHER_MARGIN

    def tail(self, value: Ray) -> Tail:
        """Follow a loss along a ray, from its values at margins q >= 0."""
        # The loss at 0 and at all powers of 2 at which it is finite.
        margins = [0.0]
        values = [value(0.0)]
        for power in range(self.least_power, self.most_power):
            loss = value(2.0**power)
            if math.isfinite(loss):
                margins.append(2.0**power)
                values.append(loss)
        logarithm = min(values) < 0.0

        # What the loss keeps for good, as per-class sigmoids do of the other classes, is no tail.
        kept = 0.0
        if len(values) > 1 and not logarithm and values[-1] > self.above_0 * values[0]:
            if abs(values[-1] - values[-2]) <= self.loss_rounding * values[-1]:
                kept = values[-1]

        def log_loss(q: float) -> float:
            if logarithm:
                return value(q)
            left = value(q) - kept
            if left > 0.0:
                return math.log(left)
            return -math.inf

        def fall(q: float) -> float:
            """Fall of the logarithm from .99 q to 1.01 q; nan where neighbours do not agree."""
            logs = [log_loss(place * q) for place in self.places]
            falls = [before - after for before, after in pairwise(logs)]
            if not all(0.0 < each < math.inf for each in falls):
                return math.nan
            if max(falls) > self.agree * min(falls):
                return math.nan
            return falls[1] + falls[2]

        # (1): the loss must not rise, but for rounding.
        lowest = math.inf
        rises = False
        for q, loss in zip(margins, values, strict=True):
            rounding = self.rounding * q + self.loss_rounding * abs(lowest)
            rises = rises or loss > lowest + rounding
            lowest = min(lowest, loss)

        margin = self._last_known(fall)
        if not margin:
            return Tail(0.0, 0.0, rises, logarithm, False, fall)

        # (2): growth of f'(q) q over the last fourfold margin with digits. A loss that reaches its
        # infimum, as a hinge does, falls faster and faster towards the margin where values end.
        first = fall(margin / 4.0)
        last = fall(margin)
        growth = math.inf
        if first > 0.0:
            growth = last / first
        ends = margin < 2.0 ** (self.most_power - 1) and not fall(2.0 * margin) > 0.0
        if ends and last > self.slowly * fall(margin * 2.0**-0.25):
            rises = True
        exponential = not rises and growth >= self.tail_growth
        return Tail(margin, growth, rises, logarithm, exponential, fall)

    def _last_known(self, fall: Ray) -> float:
        """Return the largest margin up to which a fall is known; 0 without one."""
        # From 1 down to a margin at which the fall is known: losses of a small temperature have
        # digits at small margins only.
        power = 0
        while power > self.least_power and not fall(2.0**power) > 0.0:
            power -= 1
        if power == self.least_power:
            return 0.0
        # Up from there to the last power of 2, and in 16 steps beyond it.
        while power < self.most_power - 1 and fall(2.0 ** (power + 1)) > 0.0:
            power += 1
        between = [2.0 ** (power + step / self.refined) for step in range(self.refined)]
        return max(q for q in between if fall(q) > 0.0)

    def _binary_rays(self, loss: Loss) -> Iterator[list[Ray]]:
        """Rays of both labels, of which the other one is 0 or -1, for each kind of targets."""
        for shape in ((1,), (1, 1)):
            for kind in (torch.float64, torch.int64):
                positive = ray_of(loss, torch.ones(shape), torch.ones(shape, dtype=kind))
                if not _has_values(positive):
                    continue
                negative = list[Ray]()
                for label in (0, -1):
                    target = torch.full(shape, label, dtype=kind)
                    ray = ray_of(loss, -torch.ones(shape), target)
                    if _has_values(ray):
                        negative.append(ray)
                # The loss's own label is that of an exponential tail, if there is one.
                negative.sort(key=lambda ray: not self.tail(ray).exponential)
                yield [positive, *negative[:1]]

    def _rays_of_classes(self, loss: Loss, classes: int) -> Iterator[list[Ray]]:
        """Rays of smallest margin 1 of each label, for targets as indices and as one-hot rows."""
        labels = range(0, classes, math.ceil(classes / self.labels))
        for one_hot in (False, True):
            rays = list[Ray]()
            for label in labels:
                target = torch.tensor([label])
                if one_hot:
                    target = nn.functional.one_hot(target, classes).double()
                for outputs in _outputs(label, classes):
                    ray = ray_of(loss, outputs[None], target)
                    if _has_values(ray):
                        rays.append(ray)
            if rays:
                yield rays


def ray_of(loss: Loss, direction: Tensor, target: Tensor) -> Ray:
    """Return the loss of one sample as a function of the margin along a ray of outputs."""
    direction = direction.double()
    return lambda margin: float(loss_at(loss, margin * direction, target))


def loss_at(loss: Loss, outputs: Tensor, target: Tensor) -> Tensor:
    """Loss of one sample."""
    return torch.as_tensor(loss(outputs, target))


def _has_values(ray: Ray) -> bool:
    """Whether a loss takes these targets, and has values at small margins."""
    with suppress(*OF_OTHER_TARGETS):
        # The logarithm of a loss that is 0 in float64 is -infinity.
        return math.isfinite(ray(0.0)) and ray(1.0) < math.inf
    return False


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
