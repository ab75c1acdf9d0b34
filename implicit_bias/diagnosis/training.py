"""How a module was trained, and whether further training leads to the limit that is measured.

===============================  ==================================================================
finding                          what the training converges to instead
===============================  ==================================================================
a loss without exponential tail  no limit in direction, or another one (`loss_tail`)
weight decay                     a KKT point of the loss over a ball, or of the penalized loss
                                 (`box`)
an unknown or another norm       a KKT point in that norm
a gradient that underflows       none: the gradient is 0, or its direction is rounding errors
eps above the gradients          the limit of gradient descent, as steps are g / eps; none where
                                 the squares of the gradients underflow, too
Adam with beta1 > beta2          not known: the theorem asks for beta1 <= beta2
Adam's memory                    not known: gradients shrink faster than beta2 forgets them, so
                                 that its steps are no sign descent
===============================  ==================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from implicit_bias.diagnosis.box import BoxLimit
from implicit_bias.diagnosis.findings import GRADIENT_DESCENTS, WORDS, Code, Finding
from implicit_bias.diagnosis.loss_tail import JudgedLoss
from implicit_bias.modules import optimizers
from implicit_bias.modules.optimizers import MeasuredNorm
from implicit_bias.modules.steps import (
    RULES,
    Group,
    OptimizerError,
    UpdateRule,
    class_known_by_name,
    each_of,
    name_of,
    number_in,
    size_beside_eps,
)
from implicit_bias.modules.subject import Subject
from implicit_bias.modules.tangent_program import loss_weights
from implicit_bias.training.losses import MarginLoss


class TrainingThresholds:
    """What keeps a training from its limit.

    Attributes
    ----------
    short : float
        Adam is no sign descent if all gradients are below this fraction of those it remembers.
    """

    short: Final = 0.1


def _against(measured: MeasuredNorm) -> Iterator[Finding]:
    """Say why the optimizer does not converge to KKT points in the norm that is measured."""
    name = measured.norm.name
    if measured.unknown is not None:
        yield Finding(Code.UNKNOWN_LIMIT, details={"norm": name, "error": measured.unknown})
    own = measured.of_optimizer
    if own is not None and own.norm != measured.norm:
        names = {"optimizer": own.words, "own": own.norm.name, "norm": name}
        yield Finding(Code.OTHER_NORM, details=names)


def weight_decay(optimizer: object, box: BoxLimit | None = None) -> Finding | None:
    """Return what an optimizer's weight decay means for the limit; None where there is no decay.

    Decoupled decay (AdamW, Muon) keeps the weights in a ball of the steps' norm: Xie and Li (2024),
    Chen, Li and Liu (2025). SGD's is a penalty. Whether this problem or the margin problem
    describes the weights depends on how far decay has acted.
    """
    for group, known_rule in _groups_with_rules(optimizer):
        # Decay of unknown steps is a penalty, or the group says that it is not.
        rule = known_rule or RULES["SGD"]
        decay = rule.decay_in(group)
        if decay > 0.0:
            return _finding_of_decay(group, rule, box)
    return None


def _finding_of_decay(group: Group, rule: UpdateRule, box: BoxLimit | None) -> Finding:
    """Say where decay leads, and whether the weights are there, as far as the box tells."""
    decay = rule.decay_in(group)
    decoupled = rule.is_decoupled_in(group)
    # A decoupled step p <- (1 - eta lambda) p - eta s u with ||u|| = 1 is at rest where ||p|| = s /
    # lambda.
    most = 1.0 / decay
    aim = "penalty"
    if decoupled:
        aim = {"linf": "entries", "spectral": "singular-values"}.get(rule.norm, "ball")
    if aim == "entries":
        trained = next(p for p in group["params"] if p.requires_grad)
        most *= rule.scale(group, trained.shape)
    details: dict[str, object] = {"aim": WORDS["aims"][aim].format(most=most, half=decay / 2.0)}
    if box is None:
        return Finding(Code.WEIGHT_DECAY, decay, details=details)
    details["score"] = box.score
    if math.isnan(box.score):
        details["score"] = box.penalty_score
    # Under a schedule it is unknown how far decay has acted, but not that its limit is near.
    if box.describes is False:
        return Finding(Code.DECAY_HAS_HARDLY_ACTED, box.decayed, details=details)
    if box.near:
        return Finding(Code.NEAR_IN_THE_BOX, box.decayed, details=details)
    if box.describes:
        return Finding(Code.NOT_NEAR_IN_THE_BOX, box.decayed, details=details)
    if not decoupled and rule.norm != "l2":
        # Adam divides its penalty by gradients, so that no rates say how far it has acted.
        return Finding(Code.WEIGHT_DECAY, decay, details=details)
    return Finding(Code.DECAY_IS_UNKNOWN, decay, details=details)


def _groups_with_rules(optimizer: object) -> list[tuple[Group, UpdateRule | None]]:
    """Parameter groups with the rule of their steps; None for it where one of them is not known."""
    try:
        return list(optimizers.rules_of(optimizer))
    except OptimizerError:
        return [(group, None) for group in optimizers.groups_of(optimizer)]


def of_training(
    subject: Subject,
    measured: MeasuredNorm,
    optimizer: object,
    loss: object,
    judged: JudgedLoss,
    box: BoxLimit | None = None,
) -> list[Finding]:
    """Find what is known of a training: of its loss, its optimizer and their last gradients.

    Parameters
    ----------
    subject : Subject
        The module.
    measured : MeasuredNorm
        The norm in which it is measured, and that of the optimizer.
    optimizer : torch.optim.Optimizer, its class, its name, a sequence of optimizers, or None
        What trained the module.
    loss : str, MarginLoss, callable or None
        What was minimized; None is cross-entropy of many classes, the logistic loss of two.
    judged : JudgedLoss
        What `judge_loss` found of it.
    box : BoxLimit or None
        Where the module is in the limit with weight decay.
    """
    known = measured.trained_by or optimizer is None
    found = list[Finding]()
    of_decay = weight_decay(optimizer, box)
    if of_decay is not None:
        found.append(of_decay)
    found += _against(measured)
    found += _betas(optimizer)
    found += _known_by_name(optimizer)
    if judged.refusal is not None:
        name = name_of(loss)
        if isinstance(loss, MarginLoss):
            name = loss.name
        found.append(Finding(judged.refusal, details={"loss": name}))
    elif known and not judged.logarithm:
        # The logarithm of a loss has a gradient that does not vanish with the loss, so that it
        # needs no such checks.
        lost = list(_lost_gradient(subject.module_itself, loss))
        found += lost
        # Of gradients that are 0 in the module's precision no other size is of interest.
        if not any(finding.code is Code.GRADIENT_OF_ZERO for finding in lost):
            found += _small_gradients(subject.module_itself, optimizer)
    if not any(finding.code.keeps_from_limit for finding in found):
        rate = Code.CONSTANT_RATE
        if measured.norm.name in GRADIENT_DESCENTS and not judged.logarithm:
            rate = Code.LOGARITHMIC_RATE
        found.append(Finding(rate))
    return found


def _small_gradients(subject: Subject, optimizer: object) -> Iterator[Finding]:
    """Find an optimizer that divides its gradients by something far above their size.

    Its eps is above all of them, or they are small beside those that it remembers. Their size
    is the root mean square of the entries if each entry has a divisor of its own (Adam), and
    the Euclidean norm if a matrix has one for all entries (Muon).
    """
    norms = dict[Tensor, float]()
    fractions = list[float]()
    for one in each_of(optimizer):
        for group, rule in _groups_with_rules(one):
            eps = number_in(group, "eps")
            if math.isnan(eps):
                continue
            norms = norms or _gradient_norms(subject)
            measured = [p for p in group["params"] if p in norms]
            sizes = list[float]()
            for p in measured:
                divides_entries = rule is None or rule.norm == "linf"
                sizes.append(size_beside_eps(norms[p], p.numel(), by_entry=divides_entries))
            # Steps are g / (|g| + eps): with eps above all of |g| they are those of gradient
            # descent.
            if sizes and eps > max(sizes):
                dtype = measured[0].dtype
                details = {
                    "optimizer": name_of(one),
                    "eps": eps,
                    "dtype": _name_of(dtype),
                }
                # Both divide by the root of squares. Where these are 0 no eps is small enough.
                code = Code.EPSILON
                if not torch.tensor(max(sizes), dtype=dtype).square():
                    code = Code.SQUARES_OF_ZERO
                yield Finding(code, max(sizes), details=details)
                return
            for p in measured:
                fractions += _fraction_of_memory(group, one, p, norms[p])
    if fractions and max(fractions) < TrainingThresholds.short:
        yield Finding(Code.ADAMS_MEMORY, max(fractions))


def _betas(optimizer: object) -> Iterator[Finding]:
    """Find an Adam that averages gradients for longer than their squares.

    Its steps are then not bounded by the rate, and the theorem on its limit does not cover it.
    """
    for group in optimizers.groups_of(optimizer):
        # Lion has betas, too, and no eps: its steps are signs, of length eta whatever the betas
        # are.
        if "betas" not in group or "eps" not in group:
            continue
        beta1, beta2 = (float(beta) for beta in group["betas"][:2])
        if beta1 > beta2:
            yield Finding(Code.BETAS, beta1, details={"other": beta2})
            return


def _known_by_name(optimizer: object) -> Iterator[Finding]:
    """Find an optimizer whose class has the name of one in the table, and may be another one."""
    for one in each_of(optimizer):
        found = class_known_by_name(one)
        if found is not None:
            where = {"optimizer": found.__name__, "origin": found.__module__}
            yield Finding(Code.KNOWN_BY_NAME, details=where)


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _lost_gradient(subject: Subject, loss: object) -> Iterator[Finding]:
    """Find a gradient that is 0, or rounding errors, in the module's precision.

    The logistic loss and cross-entropy have a gradient of about exp(-margin). Cross-entropy
    computes that of the own class as p - 1, of which only rounding is left where p is nearly 1.
    """
    function = subject.function
    margin = subject.min_margin
    trained = dict(function.module.named_parameters())
    # The gradient that training saw, in the precision of the weights; the measurement is in
    # float64.
    dtype = next(trained[name].dtype for name in function.shapes)
    by_torch = (None, "cross_entropy", "cross-entropy", nn.functional.cross_entropy)
    rounds = loss in by_torch or isinstance(loss, nn.CrossEntropyLoss)
    precision = {"dtype": _name_of(dtype)}
    # Of the smallest margin, whose gradient is the largest: if that is 0, all are.
    if not torch.exp(torch.tensor(-margin, dtype=dtype)):
        yield Finding(Code.GRADIENT_OF_ZERO, margin, details=precision)
    elif function.classes is not None and rounds and margin > -math.log(torch.finfo(dtype).eps):
        yield Finding(Code.GRADIENT_OF_ROUNDING_ERRORS, margin, details=precision)


def _gradient_norms(subject: Subject) -> dict[Tensor, float]:
    """Euclidean norm of the mean loss's gradient in each parameter.

    `loss_weights` scales the weights to largest 1. The factor that it leaves out is the largest of
    exp(-q_nk) / (1 + sum_k exp(-q_nk)), over the number of samples.
    """
    function = subject.function
    # In logarithms, as exp(-q) of large margins is 0 in float64.
    q = subject.margins.reshape(len(function.labels), -1)
    log_total = np.logaddexp(0.0, np.logaddexp.reduce(-q, axis=1))
    largest = math.exp((-q.min(axis=1) - log_total).max()) / len(q)
    weights = loss_weights(subject.margins, function.rivals)
    slopes = function.parameters(function.vjp(function.theta, weights))
    trained = dict(function.module.named_parameters())
    return {trained[name]: largest * float(slope.norm()) for name, slope in slopes.items()}


def _fraction_of_memory(group: Group, optimizer: object, p: Tensor, norm: float) -> Iterator[float]:
    """Yield the size of a gradient over that by which Adam divides, if Adam's state is known.

    The gradient is the average that Adam has, or that of the mean loss if that is larger. The first
    is too small if gradients change sign, the second if the loss was a sum over the samples.
    """
    state = getattr(optimizer, "state", {}).get(p, {})
    if {"exp_avg", "exp_avg_sq", "step"} <= state.keys():
        # Averages over t steps are biased towards 0 by 1 - beta^t.
        beta1, beta2 = group["betas"]
        steps = float(state["step"])
        average = float(state["exp_avg"].norm()) / (1.0 - float(beta1) ** steps)
        root = float(state["exp_avg_sq"].sqrt().norm()) / math.sqrt(1.0 - float(beta2) ** steps)
        if root > 0.0:
            yield max(norm, average) / root
