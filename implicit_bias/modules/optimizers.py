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

import inspect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from implicit_bias.base.options import OPTIMIZER_LIMITS
from implicit_bias.norms import LInf
from implicit_bias.norms.tensors import PARAMETER_NORMS, ComposedNorm, ParameterNorm

# The norm of each tensor, by the optimizer's class.
LIMIT_NORMS = dict[str, str]()
for _limit in OPTIMIZER_LIMITS.values():
    for _class in _limit.classes:
        LIMIT_NORMS[_class] = _limit.norm
# Ratios of rates that differ by this share have other schedules.
SAME_SCHEDULE = 1e-6


class OptimizerError(ValueError):
    """Optimizers for which no norm is known."""


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

    # --- the norm and the rate of each tensor of the module
    names = {id(p): name for name, p in module.named_parameters()}
    inner = dict[str, str]()
    rates = dict[str, float]()
    changes = list[float]()  # what schedules made of the rates
    held = list[_HeldTensor]()
    for one, kind in zip(several, kinds, strict=True):
        for tensor in _held_tensors(one, kind):
            held.append(tensor)
            name = names.get(id(tensor.parameter))
            if name is None:
                continue
            if name in inner:
                raise OptimizerError(f"two optimizers hold {name!r}: give it to one of them")
            inner[name] = kind
            rates[name] = tensor.rate
            changes.append(tensor.change)

    # --- optimizers of another copy of the module: all is known of one optimizer with one rate
    if not inner:
        shapes = Counter(tensor.parameter.shape for tensor in held)
        trained = Counter(p.shape for p in module.parameters() if p.requires_grad)
        one_rate = len({tensor.rate for tensor in held}) <= 1
        if len(several) > 1 or not one_rate or shapes != trained:
            raise OptimizerError(
                "the optimizer holds none of the module's parameters, so the norm and the rate of "
                "each tensor are not known: pass the one that trained this module"
            )
        return Geometry(PARAMETER_NORMS[kinds[0]], words)
    if max(changes) > (1.0 + SAME_SCHEDULE) * min(changes):
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


class _HeldTensor(NamedTuple):
    """A trained tensor of an optimizer."""

    parameter: Tensor
    rate: float  # how far it moves in a step, at the start of a schedule
    change: float  # the rate now over that at the start


def _held_tensors(optimizer: Any, kind: str) -> Iterator[_HeldTensor]:
    """Yield the trained tensors of an optimizer."""
    for group in optimizer.param_groups:
        trained = [p for p in group["params"] if p.requires_grad]
        if not trained:
            continue
        now = float(group["lr"])
        first = float(group.get("initial_lr", now))
        if not 0 < first < math.inf:
            raise OptimizerError(
                f"the rate of a group of {name_of(optimizer)} is {first:g}, so its tensors are "
                "not trained, or it has been set to 0 by hand: pass it with the rate that it had, "
                "or freeze the tensors with requires_grad_(False)"
            )
        for p in trained:
            rate = first
            if kind == "spectral":
                rate *= muon_scale(group, p.shape)
            yield _HeldTensor(p, rate, now / first)


def muon_scale(group: Mapping[str, Any], shape: torch.Size) -> float:
    """Return the factor by which Muon lengthens the steps of a matrix."""
    rows = shape[0]
    columns = math.prod(shape[1:])
    if group.get("adjust_lr_fn") == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


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
        keys = ["lr", "adjust_lr_fn"] if name == "Muon" else ["lr"]
        for key in keys:
            if key not in group:
                raise OptimizerError(
                    f"this {name} does not say in its param_groups how it scales its steps "
                    f"({key}), so the weights of its norm are not known: take one of torch.optim, "
                    f"or {cure}"
                )
    return LIMIT_NORMS[name]


def each_of(optimizer: object) -> list[object]:
    """Return an optimizer, its class or its name, or several, as a list."""
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]


def groups_of(optimizer: object) -> list[dict[str, Any]]:
    """Parameter groups of an optimizer, or of several; none of a class or a name."""
    groups = list[dict[str, Any]]()
    for one in each_of(optimizer):
        if isinstance(one, torch.optim.Optimizer):
            groups += one.param_groups
    return groups


def default_groups(optimizer: object, params: Iterable[Tensor]) -> list[dict[str, Any]]:
    """Group in which an optimizer of torch, given by class or name, would hold parameters."""
    group: dict[str, Any] = {"params": params}
    kind = getattr(torch.optim, name_of(optimizer), None)
    if kind is not None:
        for name, option in inspect.signature(kind).parameters.items():
            group.setdefault(name, option.default)
    return [group]


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
    if any("ns_steps" in group for group in groups):
        details.append("singular values of its steps are within about 0.5 and 1.2 only")
    if not details:
        return name
    return f"{name} ({', '.join(details)})"


def name_of(thing: object) -> str:
    """Name an optimizer, a loss, or its class, as it is known here or by itself."""
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", type(thing).__name__)
    known = {key.lower(): key for key in LIMIT_NORMS}
    return known.get(name.lower(), str(name))
