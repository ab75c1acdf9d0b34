r"""The norm whose margin optimizers maximize in the limit, read from their parameter groups.

Where each step moves every tensor p by s_p times the unit direction of steepest descent in a norm
of its own, the whole is steepest descent in

    ||theta|| = max_p ||theta_p||_p / s_p,     ||v||_* = sum_p s_p ||v_p||_{p,*},

so that several optimizers which hold all trained parameters together have one norm: Muon on the
matrices and Adam on the rest, say. Gradient descent moves a tensor by s_p times its gradient: that
is the gradient flow of theta_p / sqrt(s_p), which converges in direction to KKT points in their l2
norm.

The norm of each optimizer's steps, their s_p, what the limit requires and who proves it is one
table, `base.options.ALL_OPTIMIZER_LIMITS`; `modules.steps` reads it off parameter groups. Beside
plain gradient descent on some tensors other optimizers have no limit that is known.

Only ratios of rates count, and schedules that are the same for all tensors keep them: where a
scheduler is attached, the rates at its start are read.

Source: Tsilivis et al. (2024) for steepest descent; Gronich, Vardi (2026) for several norms at
once, in smooth homogeneous models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from implicit_bias.base.options import NO_LIMIT_WITH
from implicit_bias.modules.steps import (
    CURE,
    Group,
    OptimizerError,
    StepNorm,
    UpdateRule,
    each_of,
    is_optimizer,
    name_of,
    nearest_class,
    rule_of,
    steps_of,
)
from implicit_bias.norms import LInf
from implicit_bias.norms.tensors import (
    PARAMETER_NORMS,
    ComposedNorm,
    GivenNorm,
    ParameterNorm,
    as_parameter_norm,
)


@dataclass(frozen=True)
class Geometry:
    """A norm, and the optimizers whose implicit bias it is.

    Attributes
    ----------
    norm : ParameterNorm
        Of the module's parameters.
    words : str
        The optimizers, with what their limit depends on.
    """

    norm: ParameterNorm
    words: str


def geometry_of(optimizer: object, module: nn.Module) -> Geometry:
    """Read the norm of optimizers.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer, its class or its name, or a sequence of optimizers
        What trains the module; of a class or a name all tensors are taken to have one rate.
    module : nn.Module
        Of whose parameters the norm is.

    Raises
    ------
    OptimizerError
        No limit is known: of this optimizer, of the mixture, of these schedules.
    TypeError
        Neither an optimizer, nor a class or name of one.
    """
    several = each_of(optimizer)
    are_objects = all(map(is_optimizer, several))
    # Two classes do not say which of them holds which tensor.
    if not several or (len(several) > 1 and not are_objects):
        raise TypeError(
            f"optimizer must be an optimizer, its class or name, or several optimizers, got "
            f"{optimizer!r}: the tensors that each one holds are read from it"
        )
    for one in several:
        _check_options(one)
    words = ", ".join(_words(one) for one in several)
    if not are_objects:
        return Geometry(_norm_of_class(several[0]), words)

    inner = dict[str, StepNorm]()
    rates = dict[str, float]()  # how far a step moves each tensor, at the start of a schedule
    changes = list[float]()  # what schedules made of the rates
    for step in steps_of(several, module):
        if not 0 < step.first_rate < math.inf:
            raise OptimizerError(
                f"the rate of {step.name!r} is {step.first_rate:g}, so it is not trained, or it "
                "has been set to 0 by hand: pass the optimizer with the rate that it had, or "
                "freeze the tensor with requires_grad_(False)"
            )
        inner[step.name] = step.norm
        rates[step.name] = step.first_rate * step.scale
        changes.append(step.rate / step.first_rate)
    # A schedule that is the same for all tensors keeps the ratios of their rates.
    if not math.isclose(max(changes), min(changes), rel_tol=1e-6, abs_tol=0.0):
        raise OptimizerError(
            "the rates of the tensors follow different schedules, so they have no ratio in the "
            "limit: give all groups the same schedule"
        )
    return Geometry(_composed(inner, rates), words)


@dataclass(frozen=True)
class MeasuredNorm:
    """The norm in which a module is measured, beside that of its optimizer.

    Attributes
    ----------
    norm : ParameterNorm
        The norm asked for; else that of the optimizer; else l2.
    of_optimizer : Geometry or None
        The norm of the optimizer; None without an optimizer, or where its norm is not known.
    unknown : OptimizerError or None
        Why the norm of the optimizer is not known.
    """

    norm: ParameterNorm
    of_optimizer: Geometry | None = None
    unknown: OptimizerError | None = None

    @property
    def trained_by(self) -> str:
        """The optimizers, if they converge to KKT points in this norm; else empty."""
        # In any other norm than its own the training is no steepest descent.
        if self.of_optimizer is None or self.of_optimizer.norm != self.norm:
            return ""
        return self.of_optimizer.words


def measured_norm(module: nn.Module, norm: ParameterNorm | None, optimizer: object) -> MeasuredNorm:
    """Find the norm in which to measure a module.

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
        return MeasuredNorm(norm or PARAMETER_NORMS["l2"])
    try:
        geometry = geometry_of(optimizer, module)
    except OptimizerError as error:
        # A module can be measured in a norm that is asked for, wherever its training goes.
        if norm is None:
            raise
        return MeasuredNorm(norm, unknown=error)
    return MeasuredNorm(norm or geometry.norm, geometry)


def norm_of(given: GivenNorm | Optimizer | Sequence[Optimizer], module: nn.Module) -> ParameterNorm:
    """Return a norm that is given as such, by its name, or by the optimizers whose bias it is."""
    if isinstance(given, (Optimizer, Sequence)) and not isinstance(given, str):
        return geometry_of(given, module).norm
    return as_parameter_norm(given)


def _composed(inner: Mapping[str, str], rates: Mapping[str, float]) -> ParameterNorm:
    """Put the tensors' norms together, with scales by their rates."""
    kinds = sorted(set(inner.values()))
    for kind in kinds:
        _check_norm(kind)
    if "l2" in kinds and len(kinds) > 1:
        raise OptimizerError(
            "where plain gradient descent on some tensors goes beside another optimizer on others "
            "is not known: their steps shrink at different rates; train all by one kind"
        )
    power = 1.0
    if kinds == ["l2"]:
        power = 0.5  # gradient descent is the gradient flow of theta over the roots of the rates
    largest = max(rates.values())
    scale = dict[str, float]()
    for name, rate in rates.items():
        # Equal rates leave no scale: the plain norm, for which there are solvers and theorems.
        if rate != largest:
            scale[name] = (rate / largest) ** power
    if len(kinds) == 1:
        plain = PARAMETER_NORMS[kinds[0]]
        if not scale:
            return plain
        return ComposedNorm(plain.inner, plain.outer, f"weighted {plain.name}", scale)
    # Steepest descent in several norms at once is that in the largest of them.
    norms = {name: PARAMETER_NORMS[kind].inner_of(name) for name, kind in inner.items()}
    words = "/".join(kinds)
    if scale:
        words = f"weighted {words}"
    return ComposedNorm(norms, LInf(), words, scale)


def _norm_of_class(optimizer: object) -> ParameterNorm:
    """Norm of an optimizer's class or name, of which all tensors have one rate."""
    # Muon of one rate for all tensors: a matrix of as many rows as columns.
    norm = rule_of(optimizer, {}, torch.Size((1, 1))).norm
    _check_norm(norm)
    return PARAMETER_NORMS[norm]


def _check_norm(norm: str) -> None:
    """Refuse norms of steps that have no norm of all parameters here."""
    if norm not in PARAMETER_NORMS:
        raise OptimizerError(
            f"steps that normalize {norm} have no max-margin problem here; box_gap measures their "
            f"limit with weight decay. {CURE}"
        )


def _check_options(optimizer: object) -> None:
    """Refuse options with which a class that has a limit has none that is known."""
    name = nearest_class(optimizer)
    for group in groups_of(optimizer):
        reason = ""
        if group.get("amsgrad", False):
            reason = NO_LIMIT_WITH["amsgrad"]
        elif name == "RMSprop" and group.get("centered", False):
            reason = NO_LIMIT_WITH["centered"]
        elif name == "RMSprop" and group.get("momentum", 0.0) > 0.0:
            reason = NO_LIMIT_WITH["momentum"]
        # RAdam divides by its second moments once 2 / (1 - beta2) - 1 > 5, that is beta2 > 2 / 3.
        # Below it is momentum for ever.
        elif name == "RAdam" and group["betas"][1] <= 2.0 / 3.0:
            reason = NO_LIMIT_WITH["small_beta2"]
        if reason:
            raise OptimizerError(
                f"the max-margin limit of this {name} is not known: {reason}. {CURE}"
            )


def rules_of(optimizer: object) -> Iterator[tuple[Group, UpdateRule]]:
    """Yield the parameter groups that are trained, and the rule of their steps.

    Of a group whose tensors differ in rule (Scion's "Auto") it is that of the first one. Nothing is
    yielded of a class or a name.

    Raises
    ------
    OptimizerError
        Of a class whose steps are not known.
    """
    for one in each_of(optimizer):
        for group in groups_of(one):
            trained = [p for p in group["params"] if p.requires_grad]
            if trained:
                yield group, rule_of(one, group, trained[0].shape)


def has_decay(optimizer: object) -> bool:
    """Return whether an optimizer, whose steps are known, has weight decay."""
    try:
        return any(rule.decay_in(group) > 0.0 for group, rule in rules_of(optimizer))
    except OptimizerError:
        return False


def groups_of(optimizer: object) -> list[dict[str, Any]]:
    """Parameter groups of an optimizer, or of several; none of a class or a name."""
    groups = list[dict[str, Any]]()
    for one in each_of(optimizer):
        if is_optimizer(one):
            groups += one.param_groups
    return groups


def left_out(module: nn.Module, optimizer: object) -> tuple[str, ...]:
    """Names of trained parameters that no optimizer was given; none where nothing is known."""
    # Parameters are known by identity: optimizers do not store names.
    held = set[int]()
    for group in groups_of(optimizer):
        held.update(map(id, group["params"]))
    n_trained = 0
    missing = list[str]()
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            n_trained += 1
            if id(parameter) not in held:
                missing.append(name)
    if len(missing) == n_trained:
        return ()  # an optimizer of another copy of the module
    return tuple(missing)


def _words(optimizer: object) -> str:
    """Say an optimizer, with what its limit depends on."""
    name = nearest_class(optimizer) or name_of(optimizer)
    groups = groups_of(optimizer)
    details = list[str]()
    rates = {float(group["lr"]) for group in groups}
    if len(rates) == 1:
        details.append(f"rate {rates.pop():.3g}")
    beta2 = {group["betas"][1] for group in groups if "betas" in group}
    details += [f"beta2 {value:g}" for value in sorted(beta2)]
    if not details:
        return name
    return f"{name} ({', '.join(details)})"
