"""How a module was trained, and whether training on leads to the limit that is measured.

Each `Obstacle` is a warning of `diagnose`, and the advice of its verdict, so that the two agree.
Some set another limit: the loss, the optimizer, weight decay, an epsilon above the gradients. Some
only stop the way to it: margins at which the loss's gradient is 0 in the module's precision, a gap
that rises while training.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_bias.base.wording import number, percent
from implicit_bias.diagnosis import loss_tail
from implicit_bias.diagnosis.loss_tail import OF_OTHER_TARGETS, Refusal, refusal_of, tail_of
from implicit_bias.diagnosis.recorder import Recorder
from implicit_bias.modules import optimizers
from implicit_bias.modules.multipliers import loss_weights
from implicit_bias.modules.subject import Subject
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm
from implicit_bias.training.losses import LossError, MarginLoss, as_loss, check_exponential_like

# Gradients of a loss that miss their sum, 0, by this share of the largest are rounding errors.
ROUNDED = 0.5
# What is wrong with a loss, and what to do.
REFUSALS: dict[Refusal, tuple[str, str]] = {
    Refusal.NO_TAIL: (
        "has no exponential tail, so training need not go to a maximum margin at all",
        "train with cross-entropy, the logistic or the exponential loss",
    ),
    Refusal.OTHER_MARGIN: (
        "has an exponential tail in another margin than the smallest one over the rivals of each "
        "label, as per-class sigmoids and temperatures of each label do, so training goes to the "
        "limit of another problem",
        "train with cross-entropy over all classes, at one temperature",
    ),
    Refusal.FINITE: (
        "has a finite minimiser, so the weights have no limit in direction",
        "train with cross-entropy, the logistic or the exponential loss, on labels that are not "
        "smoothed (label_smoothing=0)",
    ),
}
# Whom the advice to minimise the logarithm does not concern.
UNLESS = (
    "gradients of the logarithm do not shrink: if it was minimised already, as `train_to_limit` "
    "does, this does not matter, and loss= says so"
)
# An epsilon can be far below gradients, and above those whose squares lose digits, of this ratio.
ABOVE_LEAST = 1e4
# Adam is no sign descent where gradients are a smaller share of those that it remembers than this.
SHORT = 0.1
# The norms of gradient descent.
GRADIENT_DESCENTS = ("l2", "weighted l2")
# A gap has risen if it is above an earlier one by this share.
ROSE = 1e-2


@dataclass(frozen=True)
class Obstacle:
    """Why training on as before does not lead to the limit that is measured.

    Attributes
    ----------
    reason : str
        What is in the way.
    cure : str
        What to do instead.
    warns : bool
        Whether the limit is another, so that the numbers mean less.
    advises : bool
        False where it could not be checked whether anything is in the way, or another says it.
    """

    reason: str
    cure: str
    warns: bool = True
    advises: bool = True

    @property
    def warning(self) -> str:
        """Both in a sentence."""
        return f"{self.reason}: {self.cure}"

    @property
    def advice(self) -> str:
        """What helps, and why where no warning says it."""
        return self.cure if self.warns else f"{self.cure}, as {self.reason}"


def loss_obstacle(loss: object, classes: int | None) -> Obstacle | None:
    """Say what is wrong with a loss; None if nothing is.

    Parameters
    ----------
    loss : str, MarginLoss, or callable
        A name or object of `implicit_bias.training.losses`, or a function (or torch module) of
        outputs and targets as torch's losses are.
    classes : int or None
        K.
    """
    if loss is None:
        return None
    if isinstance(loss, (str, MarginLoss)):
        if loss in ("cross-entropy", "cross_entropy"):
            return None
        margin_loss = as_loss(loss)  # type: ignore[arg-type]
        try:
            check_exponential_like(margin_loss)
        except LossError as error:
            what, cure = REFUSALS[_refusal_of_margin_loss(margin_loss)]
            return Obstacle(f"the loss {margin_loss.name!r} {what} ({error})", cure)
        return None
    name = optimizers.name_of(loss)
    if not callable(loss):
        raise TypeError(
            f"loss must be a name, a MarginLoss or a function of outputs and targets, got {loss!r}"
        )
    try:
        refusal = refusal_of(loss, classes)
    except OF_OTHER_TARGETS:
        return Obstacle(
            f"the loss {name} could not be evaluated as a function of outputs and targets, so it "
            "was not checked",
            "pass a function of both",
            advises=False,
        )
    if refusal is None:
        return None
    what, cure = REFUSALS[refusal]
    return Obstacle(f"the loss {name} {what}", cure)


def _refusal_of_margin_loss(loss: MarginLoss) -> Refusal:
    """Name the reason for which a loss of a margin is not exponential-like."""

    def log_loss(margin: float) -> float:
        return float(loss.log_loss(torch.tensor(margin, dtype=torch.float64)))

    tail = tail_of(log_loss)
    return Refusal.FINITE if tail.rises else Refusal.NO_TAIL


def is_logarithm(loss: object, classes: int | None) -> bool:
    """Whether a loss is a function of outputs and targets that is the logarithm of a loss."""
    if not callable(loss) or isinstance(loss, MarginLoss):
        return False
    return loss_tail.is_logarithm(loss, classes)


def limit_of(
    module: nn.Module, norm: ParameterNorm | None, optimizer: object
) -> tuple[ParameterNorm, str, list[Obstacle]]:
    """Return the norm to measure in, who goes there, and what is wrong with that.

    Parameters
    ----------
    module : nn.Module
        Of whose parameters the norm is.
    norm : ParameterNorm or None
        The geometry asked for; by default that of the optimizer, or l2.
    optimizer : torch.optim.Optimizer, its class, its name, a sequence of optimizers, or None
        What trained the module.

    Raises
    ------
    OptimizerError
        No norm is given, and none is known for the optimizer.
    """
    if optimizer is None:
        return norm or PARAMETER_NORMS["l2"], "", []
    obstacles = list[Obstacle]()
    if aims := list(dict.fromkeys(_aims_of_decay(optimizer))):
        others = ", in other groups otherwise" if aims[1:] else ""
        decayed = f"so it does not maximise the margin: {aims[0]}{others}"
        cure = "train with weight_decay=0"
        obstacles.append(Obstacle(f"the optimizer has weight decay, {decayed}", cure))
    try:
        own = optimizers.geometry_of(optimizer, module)
    except optimizers.OptimizerError as error:
        if norm is None:
            raise
        unknown = Obstacle(
            f"a gap in {norm.name} says nothing of this training ({error})",
            "train with an optimizer whose limit is known",
        )
        return norm, "", [unknown, *obstacles]
    if norm is None or norm == own.norm:
        return own.norm, own.words, obstacles
    plain = PARAMETER_NORMS.get(own.norm.name) == own.norm
    cure = f"pass norm={own.norm.name!r}" if plain else "leave norm= out"
    other = f"{own.words} goes to KKT points in the {own.norm.name} norm, not in {norm.name}"
    return norm, "", [Obstacle(other, cure), *obstacles]


def _aims_of_decay(optimizer: object) -> Iterator[str]:
    """Say what weight decay leads to: the set where the weights stay, or what is added to the loss.

    Decay apart from the gradients (AdamW, Muon) keeps the weights in a ball of the steps' norm:
    Xie and Li (2024), Chen, Li and Liu (2025).
    """
    for group in optimizers.groups_of(optimizer):
        decay = float(group.get("weight_decay", 0.0))
        if not decay or not any(p.requires_grad for p in group["params"]):
            continue
        if "ns_steps" in group:  # Muon
            most = f"{number(1 / decay)} times the scale of a matrix's steps"
            yield f"it minimises the loss over singular values up to {most}"
        elif group.get("decoupled_weight_decay"):
            yield f"it minimises the loss over entries up to {number(1 / decay)}"
        else:
            yield f"it minimises the loss and {number(decay / 2)} times the squared l2 norm"


def call_towards(subject: Subject, norm: str, *, read: bool) -> str:
    """Write the call that trains a module to the limit in a norm, or in its optimizer's (read)."""
    given = repr(norm) if norm in PARAMETER_NORMS else "norm"
    return subject.training_call("optimizer=optimizer" if read else f"LimitConfig(norm={given})")


def once(text: str) -> str:
    """Spell out a call, and whom it does not concern, where a text has them first only."""
    calls = dict.fromkeys(re.findall(r"`train_to_limit\(.*?\)`", text), "that call")
    for phrase, later in (calls | {f" ({UNLESS})": ""}).items():
        head, found, tail = text.partition(phrase)
        text = head + found + tail.replace(phrase, later)
    return text


def standstill(
    subject: Subject, call: str, optimizer: object, loss: object = None
) -> Iterator[Obstacle]:
    """Say what brings the training to a halt at the parameters as they are.

    Parameters
    ----------
    subject : Subject
        The module.
    call : str
        What trains it on, to its limit.
    optimizer : torch.optim.Optimizer, its class, its name, a sequence of optimizers, or None
        What trained the module; of a class or a name the epsilon is taken to be the default.
    loss : str, MarginLoss, callable or None
        What was minimised; None is cross-entropy of many classes, the logistic loss of two. Of the
        logarithm of a loss the gradient neither vanishes nor is it rounding errors.
    """
    subject = subject.itself
    if is_logarithm(loss, subject.gradients.classes):
        return
    smallest, names = subject.min_margin, subject.gradients.shapes
    trained = {k: p for k, p in subject.gradients.module.named_parameters() if k in names}
    dtype = next(iter(trained.values())).dtype
    fault = _fault_of_slopes(loss, smallest, subject.gradients.classes, dtype)
    if fault:
        double = "" if dtype == torch.float64 else "in float64, or "
        yield Obstacle(
            f"at the module's smallest margin, {number(smallest, 3)}, the loss's gradient {fault} "
            f"in {str(dtype).removeprefix('torch.')} ({UNLESS})",
            f"train on {double}by `{call}`, which takes the loss's logarithm",
            warns=False,
        )
    groups = _groups_with_norms(subject, trained, optimizer)
    name, eps, size, least = _epsilon(groups)
    if name:
        held = size > ABOVE_LEAST * least
        known = bool(optimizers.groups_of(optimizer))
        default = "" if known else "default "  # which may not be the one that was used
        smaller = f"an eps far below {size:.2g}, but above {least:.0e}, or "
        why = f"{default}eps of {eps:.3g} is above the gradients of the loss (at most {size:.2g})"
        if eps <= size:
            why = f"precision loses digits of the squares of gradients of at most {size:.2g}"
        yield Obstacle(
            f"{name}'s {why}, so its steps are not those of its limit",
            f"train on {f'with {smaller}' if held else ''}by `{call}` ({UNLESS})",
            warns=known,
            advises=held or not fault,  # the loss's own advice is the same
        )
    elif (share := _share_of_the_memory(groups)) < SHORT:
        yield Obstacle(
            f"gradients are at most {share:.1g} of those that Adam divides by: they shrank faster "
            "than the average of their squares forgets (beta2), so that this is no sign descent",
            f"minimise the logarithm of the loss, or train on by `{call}`",
            warns=False,
        )


def onward(cures: Sequence[str], norm: str, call: str, optimizer: object, *, log: bool) -> str:
    """Say how to get nearer to a limit: what is in the way, or else what the rest depends on.

    In l2 the gap falls as 1 / log(steps), unless the logarithm of the loss (log) is minimised. As
    its weights grow, steps of a fixed length move the margins of a network by more and more, so
    that the loss's weights jump between samples, and the gap stays or rises.
    """
    if cures:
        return f"what helps: {once('; '.join(cures))}"
    if norm in GRADIENT_DESCENTS and not log:
        return (
            f"train longer by `{call}`, as gradient descent on the loss itself nears it with the "
            "logarithm of its steps only"
        )
    remembers = any("betas" in group for group in optimizers.groups_of(optimizer))
    slow = ", at which gradients shrink slower than beta2 forgets them" * remembers
    return f"train longer at a rate that falls{slow}, or by `{call}`: at a fixed rate the gap stays"


def _fault_of_slopes(
    loss: object, margin: float, classes: int | None, dtype: torch.dtype
) -> str | None:
    """Say what is wrong with the loss's gradient in a precision at a margin; None if nothing is.

    A loss of differences of outputs has gradients that sum to 0. Cross-entropy computes that of the
    own class as p - 1, of which only rounding is left where p is nearly 1.
    """
    if margin <= 0:
        return None
    if not torch.exp(torch.tensor(-margin, dtype=dtype)):
        return "is 0"
    if classes is None or isinstance(loss, MarginLoss):
        return None
    # One sample of the first class.
    loss = nn.functional.cross_entropy if loss is None or isinstance(loss, str) else loss
    outputs = torch.zeros(1, classes, dtype=dtype)
    outputs[0, 0] = margin
    outputs.requires_grad_()
    try:
        total = loss_tail.loss_at(loss, outputs, torch.zeros(1, dtype=torch.int64))  # type: ignore[arg-type]
        (slopes,) = torch.autograd.grad(total, outputs)
    except OF_OTHER_TARGETS:
        return None
    if slopes.sum().abs() > ROUNDED * slopes.abs().max():
        return "is mostly rounding errors"
    return None


# An optimizer, a group of it that has an epsilon, and norms of the mean loss's gradients in that.
WithNorms = tuple[object, dict[str, Any], dict[Tensor, float]]


def _groups_with_norms(
    subject: Subject, trained: dict[str, nn.Parameter], optimizer: object
) -> list[WithNorms]:
    """Return the groups that hold parameters of the module, with the gradients' Euclidean norms."""
    groups = [
        (one, group)
        for one in optimizers.each_of(optimizer)
        for group in optimizers.groups_of(one) or optimizers.default_groups(one, trained.values())
        if "eps" in group
    ]
    if not groups:
        return []
    gradients, q = subject.gradients, subject.margins.reshape(len(subject.gradients.labels), -1)
    # The loss's weights are known up to a factor: the largest of exp(-q_nk) / (1 + sum exp(-q_n)).
    log_total = np.logaddexp(0.0, np.logaddexp.reduce(-q, axis=1))
    largest = math.exp((-q.min(axis=1) - log_total).max()) / len(q)
    v = gradients.combine(gradients.theta, loss_weights(subject.margins, gradients.rivals))
    by_name = gradients.parameters(v)
    norms = {p: largest * float(by_name[name].norm()) for name, p in trained.items()}
    held = [{p: norms[p] for p in group["params"] if p in norms} for _, group in groups]
    return [(*group, own) for group, own in zip(groups, held, strict=True) if own]


def _epsilon(groups: Sequence[WithNorms]) -> tuple[str, float, float, float]:
    """Return an optimizer that does not see the gradients of a group, its epsilon, and their size.

    The epsilon is above all of them, or they are below the last number, so that their squares lose
    digits: about 1e-19 in single precision, and in torch's Muon in any.

    Sizes are root mean squares of the entries where steps are divided by those of each entry, and
    Euclidean norms where they are divided by that of the matrix (Muon).
    """
    for one, group, norms in groups:
        muon, eps = "ns_steps" in group, float(group["eps"])
        size = max(g / (1.0 if muon else math.sqrt(p.numel())) for p, g in norms.items())
        kinds = {torch.bfloat16 if muon else p.dtype for p in group["params"]}
        least = max(torch.finfo(kind).tiny ** 0.5 for kind in kinds)
        if max(eps, least) > size:
            return optimizers.name_of(one), eps, size, least
    return "", 0.0, 0.0, 0.0


def _share_of_the_memory(groups: Sequence[WithNorms]) -> float:
    """Gradients over those that Adam's kind divides by; infinite where these are not known.

    They are the average gradient, or if it is larger that of the mean loss: the former is small of
    gradients that change sign, the latter where losses are summed, and one over a few samples.
    """
    shares = list[float]()
    for one, group, norms in groups:
        for p, g in norms.items():
            state = getattr(one, "state", {}).get(p, {})
            if {"exp_avg", "exp_avg_sq", "step"} <= state.keys():
                free = [1.0 - float(beta) ** float(state["step"]) for beta in group["betas"]]
                now = max(g, float(state["exp_avg"].norm()) / free[0])
                memory = float(state["exp_avg_sq"].sqrt().norm()) / math.sqrt(free[1])
                shares.append(now / memory if memory else math.inf)
    return max(shares, default=math.inf)


def gap_rose(recorder: Recorder, norm: str, gap_lower: float, call: str) -> Obstacle | None:
    """Say that a gap is above an earlier one for certain, by its lower bound.

    Parameters
    ----------
    recorder : Recorder
        Of the training.
    norm : str
        Name of the norm.
    gap_lower : float
        Lower bound on the gap of today.
    call : str
        What trains the module on, to its limit.

    Raises
    ------
    ValueError
        The recorder has no gaps in this norm.
    """
    column = f"gap_{norm}"
    if not isinstance(recorder, Recorder):
        raise TypeError(f"recorder must be a Recorder of the training, got {recorder!r:.99}")
    if column not in recorder.measurements:
        raise ValueError(
            f"the recorder has no gaps in {norm}: pass one of Recorder(..., norms=[{norm!r}]), or "
            "leave recorder out"
        )
    known = [(row[column], row["step"]) for row in recorder.rows if math.isfinite(row[column])]
    least, step = min(known, default=(math.inf, 0))
    if gap_lower <= (1.0 + ROSE) * least:
        return None
    before, now = (percent(gap, space=" ") for gap in (least, gap_lower))
    return Obstacle(
        f"the gap in {norm} rose while training, from at most {before} at step {step:.0f} to at "
        f"least {now}",
        f"lower the rate, or train by `{call}`",
        warns=False,
    )
