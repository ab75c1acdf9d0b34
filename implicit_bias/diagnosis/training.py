"""How a module was trained, and whether further training leads to the limit that is measured.

===============================  ==================================================================
finding                          what the training converges to instead
===============================  ==================================================================
a loss without exponential tail  no limit in direction, or another one (`loss_tail`)
weight decay                     a KKT point of the loss over a ball, or of the penalised loss
an unknown or another norm       a KKT point in that norm
an underflowed gradient          none: the gradient is 0, or its direction is rounding errors
eps above the gradients          the limit of gradient descent, as steps are g / eps
Adam's memory                    not known: it is no sign descent (`modules.optimizers`)
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
from implicit_bias.diagnosis.loss_tail import OF_OTHER_TARGETS, JudgedLoss, Loss, loss_at
from implicit_bias.modules import optimizers
from implicit_bias.modules.multipliers import loss_weights
from implicit_bias.modules.subject import Subject
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm
from implicit_bias.training.losses import MarginLoss


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
        The norm asked for; by default that of the optimizer, or l2.
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
    except optimizers.OptimizerError as error:  # a norm that is asked for does without
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


@dataclass(frozen=True)
class Group:
    """Parameters to which an optimizer applies one epsilon.

    Attributes
    ----------
    optimizer : object
        The optimizer, or its class or name.
    options : dict from str to object
        The parameter group, as torch has it.
    norms : dict from Tensor to float
        Euclidean norm of the mean loss's gradient in each parameter that is measured.
    """

    optimizer: object
    options: dict[str, Any]
    norms: dict[Tensor, float]


@dataclass(frozen=True)
class TrainingTest:
    """What stands between a training and the limit that is measured.

    Attributes
    ----------
    rounded : float
        Gradients that miss their sum, 0, by this fraction of the largest are rounding errors.
    above_least : float
        An epsilon can be far below the gradients, and above those whose squares lose digits, where
        gradients are this many times the least whose squares have digits.
    short : float
        Adam is no sign descent where gradients are a smaller fraction of those that it remembers.
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
            What `judge_loss` found of it.
        """
        known = limit.trained_by or optimizer is None
        found = list(limit.findings)
        if judged.refusal is not None:
            name = optimizers.name_of(loss)
            if isinstance(loss, MarginLoss):
                name = loss.name
            found.insert(0, Finding(judged.refusal, details={"loss": name}))
        elif known and not judged.logarithm:
            # Of the logarithm of a loss the gradient neither vanishes nor is it rounding errors.
            found += self._gradients(subject.itself, optimizer, loss)
        if not any(finding.code.blocks for finding in found):
            rate = Code.CONSTANT_RATE
            if limit.norm.name in GRADIENT_DESCENTS and not judged.logarithm:
                rate = Code.LOGARITHMIC_RATE
            found.append(Finding(rate))
        return found

    def _gradients(self, subject: Subject, optimizer: object, loss: object) -> Iterator[Finding]:
        """Find what brings a training to a halt at the parameters as they are."""
        gradients = subject.gradients
        trained = dict[str, nn.Parameter]()
        for name, p in gradients.module.named_parameters():
            if name in gradients.shapes:
                trained[name] = p
        dtype = next(iter(trained.values())).dtype
        fault = self._fault(loss, subject.min_margin, gradients.classes, dtype)
        if fault is not None:
            precision = {"dtype": str(dtype).removeprefix("torch.")}
            yield Finding(fault, subject.min_margin, details=precision)

        # What follows concerns optimizers that divide gradients by their size.
        groups = list[Group]()
        for one in optimizers.each_of(optimizer):
            known = optimizers.groups_of(one)
            for options in known or optimizers.default_groups(one, trained.values()):
                if "eps" in options:
                    groups.append(Group(one, options, {}))
        if not groups:
            return
        norms = self._gradient_norms(subject, trained)
        for group in groups:
            for p in group.options["params"]:
                if p in norms:
                    group.norms[p] = norms[p]
        groups = [group for group in groups if group.norms]

        epsilon = self._epsilon(groups)
        if epsilon is not None:
            yield epsilon
            return
        fraction = _fraction_of_memory(groups)
        if fraction < self.short:
            yield Finding(Code.ADAMS_MEMORY, fraction)

    def _gradient_norms(
        self, subject: Subject, trained: dict[str, nn.Parameter]
    ) -> dict[Tensor, float]:
        """Euclidean norm of the mean loss's gradient in each parameter.

        The loss's weights are known up to a factor: the largest of exp(-q_nk) / (1 + sum_k
        exp(-q_nk)) over the number of samples.
        """
        gradients = subject.gradients
        q = subject.margins.reshape(len(gradients.labels), -1)
        log_total = np.logaddexp(0.0, np.logaddexp.reduce(-q, axis=1))
        largest = math.exp((-q.min(axis=1) - log_total).max()) / len(q)
        weights = loss_weights(subject.margins, gradients.rivals)
        slopes = gradients.parameters(gradients.combine(gradients.theta, weights))
        return {p: largest * float(slopes[name].norm()) for name, p in trained.items()}

    def _fault(
        self, loss: object, margin: float, classes: int | None, dtype: torch.dtype
    ) -> Code | None:
        """Find what is wrong with the loss's gradient in a precision at a margin.

        A loss of differences of outputs has gradients that sum to 0. Cross-entropy computes that of
        the own class as p - 1, of which only rounding is left where p is nearly 1.
        """
        # The logistic loss and cross-entropy have a gradient of about exp(-margin).
        if margin <= 0:
            return None
        if not torch.exp(torch.tensor(-margin, dtype=dtype)):
            return Code.GRADIENT_OF_ZERO
        if classes is None or isinstance(loss, MarginLoss):
            return None
        function: Loss = nn.functional.cross_entropy
        if callable(loss):
            function = loss
        # One sample of the first class, with this margin over all rivals.
        outputs = torch.zeros(1, classes, dtype=dtype)
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
        for group in groups:
            eps = float(group.options["eps"])
            if "ns_steps" in group.options:  # Muon
                size = max(group.norms.values())
                kinds = {torch.bfloat16}
            else:
                size = max(norm / math.sqrt(p.numel()) for p, norm in group.norms.items())
                kinds = {p.dtype for p in group.options["params"]}
            # Below the root of the least normal number squares lose digits.
            least = max(torch.finfo(kind).tiny ** 0.5 for kind in kinds)
            if max(eps, least) <= size:
                continue
            if not optimizers.groups_of(group.optimizer):
                code = Code.DEFAULT_EPSILON  # which may not be the one that was used
            elif size > self.above_least * least:
                code = Code.EPSILON
            else:
                code = Code.SQUARES_UNDERFLOW
            details = {"optimizer": optimizers.name_of(group.optimizer), "eps": eps}
            return Finding(code, size, details=details)
        return None


def _fraction_of_memory(groups: list[Group]) -> float:
    """Gradients over those that Adam's kind divides by; infinite where these are not known.

    They are the average gradient, or if it is larger that of the mean loss: the former is small of
    gradients that change sign, the latter where losses are summed, and one over a few samples.
    """
    fractions = list[float]()
    for group in groups:
        states = getattr(group.optimizer, "state", {})
        for p, norm in group.norms.items():
            state = states.get(p, {})
            if not {"exp_avg", "exp_avg_sq", "step"} <= state.keys():
                continue
            # Averages over t steps are biased towards 0 by 1 - beta^t.
            beta1, beta2 = group.options["betas"]
            steps = float(state["step"])
            average = float(state["exp_avg"].norm()) / (1.0 - float(beta1) ** steps)
            root = float(state["exp_avg_sq"].sqrt().norm())
            memory = root / math.sqrt(1.0 - float(beta2) ** steps)
            if memory > 0.0:
                fractions.append(max(norm, average) / memory)
    return max(fractions, default=math.inf)
