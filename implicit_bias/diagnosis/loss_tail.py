r"""Whether a function of outputs and targets is a loss whose training maximizes the margin.

Its training converges in direction to a KKT point of the max-margin problem if along each ray of
outputs on which the smallest margin q = min_k (s_y - s_k) (or y s with one output) grows,

(1)  l falls as q grows, to its infimum: no finite outputs minimize it;
(2)  f'(q) q grows without bound, l = inf l + exp(-f(q)): the tail is exponential in q, as
     exp(-c q) of any rate c > 0 is, or exp(-q^2), and (1 + q)^-p is not;
(3)  f' is the same function of q on each ray and for each label.

Cross-entropy passes at any temperature and with any number of classes. Mean squared error and label
smoothing fail (1), a polynomial fails (2), and per-class sigmoids (one against the rest) fail (3).

**In logarithms.** The tail is judged by the fall of log l from .99 q to 1.01 q, which is
.02 f'(q) q, at the last margin at which the loss has digits and at a quarter of it. It grows
fourfold in between for an exponential tail, twofold for exp(-sqrt q), and not at all for a power.
Where the digits end depends on how a loss is computed: cross-entropy of outputs s is exactly 0 in
float64 from c q = 37 on, and (1 + q)^-20 has all its digits at q = 10^6. So a fall counts where the
falls over its halves and beside it agree. A function that has negative values is taken for the
logarithm of a loss.

**Many classes.** On the ray of margin q to all of K - 1 rivals cross-entropy is
log(1 + (K - 1) e^-q), whose tail begins where q is above log K. So (3) is tested twice, at one
margin and at each ray's own last margin with digits, where losses are alike: rates that differ do
so at both.

**In double precision.** A loss that rounds to float32 has no digits from c q = 17 on, which with
many classes is where its tail begins, and how it rounds there depends on the processor. But the
function is what (1) to (3) are about, so it is followed in double precision whatever it rounds to.

Source: Lyu and Li (2020), appendix A, (B3); `training.losses` for losses given by their logarithm.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from implicit_bias.diagnosis.findings import Code
from implicit_bias.training.losses import LossError, MarginLoss, as_loss, check_exponential_like

# Of outputs and targets.
Loss: TypeAlias = Callable[[Any, Any], Any]
# The label beside 1 of one output, and whether outputs are (N,).
Targets = tuple[float, bool]


class InDoublePrecision(TorchFunctionMode):
    """Compute in double precision what a function would round to a lower one.

    Every function of torch takes its tensors, and the precision that it is asked for, in double
    precision: a cast to float32 does nothing, a tensor made without a dtype is float64, and one of
    the caller's own in float32, as weights of classes, is read as float64. What is written to that
    one is read again within the mode, and the caller's own stays as it is.

    Examples
    --------
    >>> s = torch.tensor([40.0, 0.0], dtype=torch.float64)
    >>> with InDoublePrecision():
    ...     probability = s.float().softmax(0)[1]
    >>> f"{float(probability):.4e}"
    '4.2484e-18'
    """

    def __init__(self) -> None:
        super().__init__()
        # The caller's own tensors of lower precision, by their id, and their copies in double
        # precision. They are kept beside them, so that no other tensor gets their id.
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        args = self.in_double(args)
        kwargs = {name: self.in_double(value) for name, value in (kwargs or {}).items()}
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            return args[0].double()
        return self.in_double(func(*args, **kwargs))

    def in_double(self, value: Any) -> Any:
        """Return real tensors and dtypes, also in lists, in double precision; others as is."""
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return torch.float64
        if type(value) in (tuple, list):
            return type(value)(self.in_double(each) for each in value)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        if value.dtype is torch.float64:
            return value
        # One copy each: a loss that writes outputs into a tensor of its own reads them there.
        if id(value) not in self._copies:
            self._copies[id(value)] = value, value.double()
        return self._copies[id(value)][1]


@dataclass(frozen=True, eq=False)
class Ray:
    """The loss of one sample as a function of its margin, along a ray of outputs.

    Attributes
    ----------
    loss : callable
        Of outputs and targets.
    direction : Tensor
        Outputs of unit margin.
    target : Tensor
        What the loss compares them with.
    """

    loss: Loss
    direction: Tensor
    target: Tensor

    def __call__(self, margin: float) -> float:
        """Return the loss at a margin, which leaves targets and buffers as they were."""
        # A loss may write to its arguments, and to buffers as a running mean: each call has copies.
        arguments = (margin * self.direction, self.target.clone())
        # A loss is the caller's own code: on targets that it does not take it may raise anything,
        # as an assertion on their shape.
        try:
            with InDoublePrecision():
                return float(self._called(arguments))
        except Exception as error:
            raise ValueError(f"the loss failed: {error}") from error

    def _called(self, arguments: tuple[Tensor, Tensor]) -> Any:
        # Of a compiled TorchScript module no buffer can be exchanged.
        if isinstance(self.loss, nn.Module) and not isinstance(self.loss, torch.jit.ScriptModule):
            buffers = {name: buffer.clone() for name, buffer in self.loss.named_buffers()}
            return functional_call(self.loss, buffers, arguments)
        return self.loss(*arguments)


@dataclass(frozen=True)
class JudgedLoss:
    """What is known of the training on a loss.

    Attributes
    ----------
    refusal : Code or None
        Why it does not maximize the margin, or that this was not checked; None where it does.
    logarithm : bool
        Whether the function is the logarithm of a loss: negative where that is small.
    low_label : float
        The label that it takes beside 1, -1 or 0, where there is one output.
    flat : bool
        Whether it takes outputs (N,), or (N, 1) alone.
    """

    refusal: Code | None
    logarithm: bool = False
    low_label: float = -1.0
    flat: bool = True


def judge_loss(loss: object, classes: int | None) -> JudgedLoss:
    """Find whether training on a loss maximizes the margin.

    Parameters
    ----------
    loss : str, MarginLoss, callable or None
        A name or object of `implicit_bias.training.losses`, or a function (or torch module) of
        outputs and targets as torch's losses are.
    classes : int or None
        K.
    """
    if loss is None or loss == "cross_entropy":  # as torch spells it
        return JudgedLoss(None)
    if isinstance(loss, (str, MarginLoss)):
        margin_loss = as_loss(loss)  # type: ignore[arg-type]
        try:
            check_exponential_like(margin_loss)
        except LossError:
            return JudgedLoss(Code.NO_EXPONENTIAL_TAIL)
        return JudgedLoss(None)
    if not callable(loss):
        raise TypeError(
            f"loss must be a name, a MarginLoss or a function of outputs and targets, got {loss!r}"
        )
    return TailTest().judge(loss, classes)


@dataclass(frozen=True)
class Tail:
    """A loss along one ray of outputs.

    Attributes
    ----------
    margin : float
        The last margin at which its values have digits; 0 without one.
    rises : bool
        Whether the loss has a finite minimiser on the ray.
    exponential : bool
        Whether the tail is exponential.
    logarithm : bool
        Whether it is the logarithm of a loss.
    fall : callable
        Margin to the fall of the logarithm of the loss around it, nan where that has no digits.
    """

    margin: float
    rises: bool
    exponential: bool
    logarithm: bool
    fall: Callable[[float], float]


@dataclass(frozen=True)
class TailTest:
    """How a loss is read, and what counts as an exponential tail.

    Attributes
    ----------
    least_power, most_power : int
        Margins that are looked at are between these powers of 2.
    steps : int
        Margins between neighbouring powers of 2 at which the last digits are looked for.
    agree : float
        A loss has digits where falls between neighbouring places agree up to this factor.
    reached : float
        A loss that is 0 right after a value above this fraction has a finite minimiser, as a hinge.
    tail_growth : float
        f'(q) q grows by this factor at least over a fourfold margin where a tail is exponential.
    compared : float
        Falls along several rays are compared at this fraction of the last margin with digits: there
        rounding is of no account.
    same_rate : float
        They are the same if they differ by less than this fraction.
    rounding : float
        What rounding changes in a loss of outputs of size q, in units of q times the precision.
    loss_rounding : float
        What rounding changes in a loss, relative to it.

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
    steps: int = 4
    agree: float = 1.5
    reached: float = 1e-3
    tail_growth: float = 1.5
    compared: float = 0.75
    same_rate: float = 0.1
    rounding: float = 100.0
    loss_rounding: float = 1e-9

    def judge(self, loss: Loss, classes: int | None) -> JudgedLoss:
        """Find whether training on a loss maximizes the margin.

        Parameters
        ----------
        loss : callable
            Outputs (1, K) and targets (1,) or (1, K), or outputs (1,) or (1, 1) and targets of that
            shape, to a number.
        classes : int or None
            K; None with one output a sample.
        """
        refusals = list[Code | None]()
        fitting = list[Targets]()
        logarithm = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a target that this loss does not like
            # A loss does not say which targets it takes, so every kind is tried.
            for targets, rays in _rays_by_target(loss, classes):
                # Of those that it does not take a ray raises ValueError.
                with suppress(ValueError):
                    tails = [self.tail(ray) for ray in rays]
                    refusals.append(self._refusal(tails))
                    logarithm = logarithm or tails[0].logarithm
                    if refusals[-1] is None:
                        fitting.append(targets)
        if not refusals:
            return JudgedLoss(Code.LOSS_NOT_CHECKED)
        if fitting:
            return JudgedLoss(None, logarithm, *fitting[0])
        # On targets that are not its own a loss fails earlier in (1), (2), (3): of several refusals
        # the one of the last condition counts.
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
        # (3): on each ray the loss falls at the same rate f'(q), where all have digits, or where it
        # is about as small on each.
        nearest = min(tail.margin for tail in tails)
        for margins in ([nearest] * len(tails), [tail.margin for tail in tails]):
            rates = list[float]()
            for tail, last in zip(tails, margins, strict=True):
                rates.append(self._rate(tail, self.compared * last))
            # A rate that is nan is not above 0.
            known = all(rate > 0.0 for rate in rates)
            if known and max(rates) <= (1.0 + self.same_rate) * min(rates):
                return None
        return Code.OTHER_MARGIN

    def _rate(self, tail: Tail, margin: float) -> float:
        """Return .02 f'(q) at a margin q, or a little below it; nan where that has no digits.

        A sum over many classes may lose digits at some margins in between, as where each of its
        terms is about half of what rounding loses.
        """
        for step in range(self.steps + 1):
            q = margin * 2.0 ** (-step / self.steps)
            fall = tail.fall(q)
            if fall > 0.0:
                return fall / q
        return math.nan

    def tail(self, ray: Ray) -> Tail:
        """Follow a loss along a ray, from its values at margins q >= 0."""
        value = cache(ray)  # (1) and (2) look at the same margins
        eps = torch.finfo(torch.float64).eps
        margins = [0.0]
        for power in range(self.least_power, self.most_power):
            margins.append(2.0**power)
        values = [value(q) for q in margins]
        if not math.isfinite(values[0]):
            raise ValueError("the loss has no value at outputs of 0")
        logarithm = min(values) < 0.0

        # A constant that the loss tends to (per-class sigmoids have that of the other classes) is
        # subtracted, as inf l of (2).
        kept = 0.0
        flat = abs(values[-1] - values[-2]) <= self.loss_rounding * abs(values[-1])
        if not logarithm and flat and values[-1] > self.reached * values[0]:
            kept = values[-1]

        def log_loss(q: float) -> float:
            if logarithm:
                return value(q)
            left = value(q) - kept
            if left > 0.0:
                return math.log(left)
            return -math.inf

        def fall(q: float) -> float:
            """Fall of the logarithm from .99 q to 1.01 q; nan where rounding makes some of it."""
            if not math.isfinite(log_loss(q)):
                return math.nan
            logs = [log_loss(place * q) for place in (0.98, 0.99, 1.0, 1.01, 1.02)]
            if not math.isfinite(sum(logs)):
                return math.nan
            falls = [before - after for before, after in pairwise(logs)]
            if not 0.0 < max(falls) <= self.agree * min(falls):
                return math.nan
            return falls[1] + falls[2]

        # (1): the loss must not rise, but for rounding.
        lowest = math.inf
        rises = False
        for q, loss in zip(margins, values, strict=True):
            if math.isfinite(loss):
                rounding = self.rounding * eps * q + self.loss_rounding * abs(lowest)
                rises = rises or loss > lowest + rounding
                lowest = min(lowest, loss)

        # (1), too: it must not reach its infimum. A hinge does: it is 0 right after a high value.
        before = log_loss(0.0)
        high = before + math.log(self.reached)
        for step in range(self.steps * self.least_power, self.steps * (self.most_power - 1) + 1):
            there = log_loss(2.0 ** (step / self.steps))
            rises = rises or (there == -math.inf and before > high)
            before = there

        if rises:
            return Tail(margin=0.0, rises=True, exponential=False, logarithm=logarithm, fall=fall)

        # The last margin at which the loss has digits, where its fall is not nan.
        last = 0.0
        for step in range(self.steps * self.most_power, self.steps * self.least_power, -1):
            q = 2.0 ** (step / self.steps)
            if fall(q) > 0.0:
                last = q
                break

        # (2): growth of f'(q) q over the last fourfold margin with digits.
        exponential = last > 0.0 and fall(last) >= self.tail_growth * fall(last / 4.0) > 0.0
        return Tail(
            margin=last, rises=False, exponential=exponential, logarithm=logarithm, fall=fall
        )


def _rays_by_target(loss: Loss, classes: int | None) -> Iterator[tuple[Targets, list[Ray]]]:
    """Yield each kind of targets, and the rays of outputs on which a loss is followed with it.

    Point q of a ray has smallest margin q; each label has rays of its own.
    """
    if classes is None:
        # One output, whose other label is 0 or -1.
        for shape in ((1,), (1, 1)):
            one = torch.ones(shape, dtype=torch.float64)
            for other in (0.0, -1.0):
                yield (
                    (other, len(shape) == 1),
                    [Ray(loss, one, one), Ray(loss, -one, other * one)],
                )
        return
    for one_hot in (False, True):
        rays = []
        for label in (0, classes - 1):
            target = torch.tensor([label])
            if one_hot:
                target = nn.functional.one_hot(target, classes).double()
            of_label = torch.zeros(1, classes, dtype=torch.float64)
            of_label[0, label] = 1.0
            # With margin q to all rivals: s = (q, 0, ..., 0), and the same less its mean. With
            # margin q to one rival alone: s = (q, 0, -9 q, ..., -9 q), where the K - 2 others add
            # K e^-10q to cross-entropy, which is small beside e^-q long before the digits end.
            nearest = 10.0 * of_label - 9.0
            nearest[0, (label + 1) % classes] = 0.0
            for outputs in (of_label, of_label - 1.0 / classes, nearest):
                rays.append(Ray(loss, outputs, target))
        yield (0.0, False), rays
