"""How a module was trained, and whether training on leads to the limit that is measured.

===============================  ==================================================================
finding                          where the training goes instead
===============================  ==================================================================
a loss without exponential tail  nowhere in direction, or to another limit (`loss_tail`)
weight decay                     to a KKT point of the loss over a ball, or of the penalised loss
an unknown or another norm       to the limit of that norm
an underflowed gradient          nowhere: the gradient is 0, or its direction is rounding errors
eps above the gradients          to the limit of gradient descent, where steps are g / eps
Adam's memory                    out of the sign-descent regime (`modules.optimizers`)
===============================  ==================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from implicit_bias.diagnosis.findings import GRADIENT_DESCENTS, WORDS, Code, Finding
from implicit_bias.diagnosis.loss_tail import OF_OTHER_TARGETS, JudgedLoss, TailTest, loss_at
from implicit_bias.modules import optimizers
from implicit_bias.modules.multipliers import loss_weights
from implicit_bias.modules.subject import Subject
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm
from implicit_bias.training.losses import LossError, MarginLoss, as_loss, check_exponential_like


@dataclass(frozen=True)
class Limit:
    """The norm whose max-margin problem a training is measured in.

    Attributes
    ----------
    norm : ParameterNorm
        The norm asked for; else that of the optimizer; else l2.
    trained_by : str
        The optimizers that converge to KKT points in this norm, with what their limit depends on;
        empty where they are not known, or converge elsewhere.
    findings : tuple of Finding
        Why the training does not converge to KKT points in this norm.
    """

    norm: ParameterNorm
    trained_by: str
    findings: tuple[Finding, ...]


def limit_of(module: nn.Module, norm: ParameterNorm | None, optimizer: object) -> Limit:
    """Find the norm to measure in, and what the optimizer says against it.

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
        return Limit(norm or PARAMETER_NORMS["l2"], "", ())
    decay = tuple(_weight_decay(optimizer))[:1]
    try:
        own = optimizers.geometry_of(optimizer, module)
    except optimizers.OptimizerError as error:
        if norm is None:
            raise
        unknown = Finding(Code.UNKNOWN_LIMIT, details={"norm": norm.name, "error": error})
        return Limit(norm, "", (unknown, *decay))
    if norm is None or norm == own.norm:
        return Limit(own.norm, own.words, decay)
    names = {"optimizer": own.words, "own": own.norm.name, "norm": norm.name}
    return Limit(norm, "", (Finding(Code.OTHER_NORM, details=names), *decay))


def _weight_decay(optimizer: object) -> Iterator[Finding]:
    """Find weight decay, and what a training with it minimises.

    Decay apart from the gradients (AdamW, Muon) keeps the weights in a ball of the steps' norm:
    Xie and Li (2024), Chen, Li and Liu (2025). SGD's is a penalty.
    """
    for group in optimizers.groups_of(optimizer):
        decay = float(group.get("weight_decay", 0.0))
        if not decay or not any(p.requires_grad for p in group["params"]):
            continue
        kind = "penalty"
        if "ns_steps" in group:  # Muon
            kind = "singular-values"
        elif group.get("decoupled_weight_decay"):
            kind = "entries"
        aim = WORDS["aims"][kind].format(most=1.0 / decay, half=decay / 2.0)
        yield Finding(Code.WEIGHT_DECAY, decay, details={"aim": aim})


# A group of an optimizer that has an epsilon: the optimizer, the group, and the Euclidean norms of
# the mean loss's gradients in the parameters that it holds.
Group = tuple[object, dict[str, Any], dict[Tensor, float]]


@dataclass(frozen=True)
class TrainingTest:
    """What stands between a training and the limit that is measured.

    Attributes
    ----------
    rounded : float
        Gradients that miss their sum, 0, by this share of the largest are rounding errors.
    above_least : float
        An epsilon can be far below the gradients, and above those whose squares lose digits, where
        gradients are this many times the least whose squares have digits.
    short : float
        Adam is no sign descent where gradients are a smaller share of those that it remembers.
    """

    rounded: float = 0.5
    above_least: float = 1e4
    short: float = 0.1

    def findings(
        self, subject: Subject, limit: Limit, optimizer: object, loss: object, judged: JudgedLoss
    ) -> list[Finding]:
        """Find what is known of a training: of its loss, its optimizer and their last gradients.

        Parameters
        ----------
        subject : Subject
            The module.
        limit : Limit
            What `limit_of` found of the optimizer.
        optimizer : torch.optim.Optimizer, its class, its name, a sequence of optimizers, or None
            What trained the module; of a class or a name the epsilon is taken to be the default.
        loss : str, MarginLoss, callable or None
            What was minimised; None is cross-entropy of many classes, the logistic loss of two.
        judged : JudgedLoss
            What `judge` found of it.
        """
        known = limit.trained_by or optimizer is None
        found = list(limit.findings)
        if judged.refusal is not None:
            name = loss.name if isinstance(loss, MarginLoss) else optimizers.name_of(loss)
            found.insert(0, Finding(judged.refusal, details={"loss": name}))
        elif known and not judged.logarithm:
            # Of the logarithm of a loss the gradient neither vanishes nor is it rounding errors.
            found += self._gradients(subject.itself, optimizer, loss)
        if not any(finding.code.blocks for finding in found):
            slow = limit.norm.name in GRADIENT_DESCENTS and not judged.logarithm
            found.append(Finding(Code.LOGARITHMIC_RATE if slow else Code.CONSTANT_RATE))
        return found

    def _gradients(self, subject: Subject, optimizer: object, loss: object) -> Iterator[Finding]:
        """Find what brings a training to a halt at the parameters as they are."""
        gradients = subject.gradients
        shapes = gradients.shapes
        trained = {k: p for k, p in gradients.module.named_parameters() if k in shapes}
        dtype = next(iter(trained.values())).dtype
        fault = self._fault(loss, subject.min_margin, gradients.classes, dtype)
        if fault is not None:
            precision = {"dtype": str(dtype).removeprefix("torch.")}
            yield Finding(fault, subject.min_margin, details=precision)

        groups = [
            (one, group)
            for one in optimizers.each_of(optimizer)
            for group in optimizers.groups_of(one)
            or optimizers.default_groups(one, trained.values())
            if "eps" in group
        ]
        if not groups:
            return
        # The mean loss's gradient in each parameter. The loss's weights are known up to a factor:
        # the largest of exp(-q_nk) / (1 + sum_k exp(-q_nk)) over the number of samples.
        q = subject.margins.reshape(len(gradients.labels), -1)
        log_total = np.logaddexp(0.0, np.logaddexp.reduce(-q, axis=1))
        largest = math.exp((-q.min(axis=1) - log_total).max()) / len(q)
        v = gradients.combine(gradients.theta, loss_weights(subject.margins, gradients.rivals))
        slopes = gradients.parameters(v)
        norms = {p: largest * float(slopes[name].norm()) for name, p in trained.items()}
        held = list[Group]()
        for one, group in groups:
            own = {p: norms[p] for p in group["params"] if p in norms}
            if own:
                held.append((one, group, own))

        epsilon = self._epsilon(held)
        if epsilon is not None:
            yield epsilon
        elif (share := _share_of_the_memory(held)) < self.short:
            yield Finding(Code.ADAMS_MEMORY, share)

    def _fault(
        self, loss: object, margin: float, classes: int | None, dtype: torch.dtype
    ) -> Code | None:
        """Find what is wrong with the loss's gradient in a precision at a margin.

        A loss of differences of outputs has gradients that sum to 0. Cross-entropy computes that of
        the own class as p - 1, of which only rounding is left where p is nearly 1.
        """
        if margin <= 0:
            return None
        if not torch.exp(torch.tensor(-margin, dtype=dtype)):
            return Code.GRADIENT_OF_ZERO
        if classes is None or isinstance(loss, MarginLoss):
            return None
        function = loss if callable(loss) else nn.functional.cross_entropy
        outputs = torch.zeros(1, classes, dtype=dtype)  # of one sample of the first class
        outputs[0, 0] = margin
        outputs.requires_grad_()
        try:
            total = loss_at(function, outputs, torch.zeros(1, dtype=torch.int64))
            (slopes,) = torch.autograd.grad(total, outputs)
        except OF_OTHER_TARGETS:  # one-hot targets, say
            return None
        if slopes.sum().abs() > self.rounded * slopes.abs().max():
            return Code.GRADIENT_OF_ROUNDING_ERRORS
        return None

    def _epsilon(self, groups: list[Group]) -> Finding | None:
        """Find an optimizer that does not see the gradients of one of its groups.

        Its epsilon is above all of them, or they are so small that their squares lose digits: about
        1e-19 in single precision, and in torch's Muon, which computes in bfloat16, in any.

        Sizes are root mean squares of the entries where steps are divided by those of each entry,
        and Euclidean norms where they are divided by that of the matrix (Muon).
        """
        for one, group, norms in groups:
            muon = "ns_steps" in group
            eps = float(group["eps"])
            if muon:
                size = max(norms.values())
                kinds = {torch.bfloat16}
            else:
                size = max(norm / math.sqrt(p.numel()) for p, norm in norms.items())
                kinds = {p.dtype for p in group["params"]}
            least = max(torch.finfo(kind).tiny ** 0.5 for kind in kinds)
            if max(eps, least) <= size:
                continue
            code = Code.DEFAULT_EPSILON
            if optimizers.groups_of(one):  # else the epsilon may not be the one that was used
                code = Code.SQUARES_UNDERFLOW
                if size > self.above_least * least:
                    code = Code.EPSILON
            details = {"optimizer": optimizers.name_of(one), "eps": eps}
            return Finding(code, size, details=details)
        return None


def _share_of_the_memory(groups: list[Group]) -> float:
    """Gradients over those that Adam's kind divides by; infinite where these are not known.

    They are the average gradient, or if it is larger that of the mean loss: the former is small of
    gradients that change sign, the latter where losses are summed, and one over a few samples.
    """
    shares = list[float]()
    for one, group, norms in groups:
        for p, norm in norms.items():
            state = getattr(one, "state", {}).get(p, {})
            if not {"exp_avg", "exp_avg_sq", "step"} <= state.keys():
                continue
            # Averages over t steps are biased towards 0 by 1 - beta^t.
            first, second = (1.0 - float(beta) ** float(state["step"]) for beta in group["betas"])
            now = max(norm, float(state["exp_avg"].norm()) / first)
            memory = float(state["exp_avg_sq"].sqrt().norm()) / math.sqrt(second)
            if memory > 0.0:
                shares.append(now / memory)
    return max(shares, default=math.inf)


def judge(loss: object, classes: int | None) -> JudgedLoss:
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
            refusal = Code.FINITE_MINIMISER if tail.rises else Code.NO_EXPONENTIAL_TAIL
            return JudgedLoss(refusal, logarithm=False)
        return JudgedLoss(None, logarithm=False)
    if not callable(loss):
        raise TypeError(
            f"loss must be a name, a MarginLoss or a function of outputs and targets, got {loss!r}"
        )
    try:
        return TailTest().judge(loss, classes)
    except OF_OTHER_TARGETS:
        return JudgedLoss(Code.LOSS_NOT_CHECKED, logarithm=False)
