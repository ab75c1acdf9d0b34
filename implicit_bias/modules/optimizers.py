r"""The norm in which optimizers go to the maximum margin, read from their parameter groups.

Where each step moves every tensor p by s_p times the unit direction of steepest descent in a norm
of its own, the whole is steepest descent in

    ||theta|| = max_p ||theta_p||_p / s_p,     ||v||_* = sum_p s_p ||v_p||_{p,*},

so that several optimizers which hold all trained parameters together have one norm: Muon on the
matrices and Adam on the rest, say. Gradient descent moves a tensor by s_p times its gradient: that
is the gradient flow of theta_p / sqrt(s_p), which goes to KKT points in their l2 norm.

==============  =========  =========================================================================
optimizer       of tensor  s_p
==============  =========  =========================================================================
SGD             l2         rate; beside other optimizers there is no limit that is known
Adam, AdamW,    linf       rate, with full batches, as long as gradients shrink slower than the
NAdam, RAdam,              average of their squares forgets (beta2) and stay above epsilon
Adamax
SignDescent,    linf       rate
SignSGD, ...
Muon            spectral   rate times sqrt(max(1, rows / columns)) ("original"), or times
                           0.2 sqrt(max(rows, columns)) ("match_rms_adamw"); the singular values of
                           torch's steps lie within about 0.5 and 1.2
==============  =========  =========================================================================

Only ratios of rates count, and schedules that are the same for all tensors keep them: where a
scheduler is attached, the rates at its start are read.

Source: Tsilivis et al. (2024) for steepest descent; Gronich, Vardi (2026) for several norms at
once, in smooth homogeneous models; torch.optim.Muon for its scales; `base.options.OPTIMIZER_LIMITS`
for each optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from implicit_bias.modules.steps import (
    LIMIT_NORMS,
    OptimizerError,
    StepNorm,
    each_of,
    name_of,
    steps_of,
)
from implicit_bias.norms import LInf
from implicit_bias.norms.tensors import PARAMETER_NORMS, ComposedNorm, ParameterNorm

__all__ = [
    "Geometry",
    "OptimizerError",
    "each_of",
    "geometry_of",
    "groups_of",
    "left_out",
    "name_of",
]


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
    are_objects = all(isinstance(one, torch.optim.Optimizer) for one in several)
    if not several or (len(several) > 1 and not are_objects):
        raise TypeError(
            f"optimizer must be an optimizer, its class or name, or several optimizers, got "
            f"{optimizer!r}: the tensors that each one holds are read from it"
        )
    kinds = [_norm_of(one) for one in several]
    words = ", ".join(_words(one) for one in several)
    if not are_objects:
        return Geometry(PARAMETER_NORMS[kinds[0]], words)

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


def _composed(inner: Mapping[str, str], rates: Mapping[str, float]) -> ParameterNorm:
    """Put the tensors' norms together, with scales by their rates."""
    kinds = sorted(set(inner.values()))
    if "l2" in kinds and len(kinds) > 1:
        raise OptimizerError(
            "where plain gradient descent on some tensors goes beside another optimizer on others "
            "is not known: their steps shrink at different rates; train all by one kind"
        )
    # Gradient descent is the gradient flow of theta over the roots of the rates.
    power = 0.5 if kinds == ["l2"] else 1.0
    largest = max(rates.values())
    scale = dict[str, float]()
    for name, rate in rates.items():
        if rate != largest:
            scale[name] = (rate / largest) ** power
    if len(kinds) == 1:
        plain = PARAMETER_NORMS[kinds[0]]
        if not scale:
            return plain
        return ComposedNorm(plain.inner, plain.outer, f"weighted {plain.name}", scale)
    norms = {name: PARAMETER_NORMS[kind].inner_of(name) for name, kind in inner.items()}
    words = "/".join(kinds)
    return ComposedNorm(norms, LInf(), f"weighted {words}" if scale else words, scale)


def _norm_of(optimizer: object) -> str:
    """Name of the norm of the tensors of an optimizer."""
    name = name_of(optimizer)
    cure = (
        "pass norm= to measure in one nevertheless, or in one for each part of the module: "
        'norm={"out": "linf", "": "spectral"}'
    )
    if name not in LIMIT_NORMS:
        raise OptimizerError(
            f"where {name} goes is not known as a norm of the parameters (known are "
            f"{', '.join(LIMIT_NORMS)}): {cure}"
        )
    for group in groups_of(optimizer):
        if group.get("amsgrad", False):
            raise OptimizerError(
                f"{name} with amsgrad divides by the largest gradients that there were, so it ends "
                "as gradient descent in a metric of the run's own, not in a norm that is known: "
                f"{cure}"
            )
    return LIMIT_NORMS[name]


def groups_of(optimizer: object) -> list[dict[str, Any]]:
    """Parameter groups of an optimizer, or of several; none of a class or a name."""
    groups = list[dict[str, Any]]()
    for one in each_of(optimizer):
        if isinstance(one, torch.optim.Optimizer):
            groups += one.param_groups
    return groups


def left_out(module: nn.Module, optimizer: object) -> tuple[str, ...]:
    """Names of trained parameters that no optimizer was given; none where nothing is known."""
    held = {id(p) for group in groups_of(optimizer) for p in group["params"]}
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    missing = tuple(name for name, p in trained.items() if id(p) not in held)
    if len(missing) == len(trained):
        return ()  # an optimizer of another copy of the module
    return missing


def _words(optimizer: object) -> str:
    """Say an optimizer, with what its limit depends on."""
    name = name_of(optimizer)
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
