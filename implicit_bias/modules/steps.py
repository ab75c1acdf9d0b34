r"""How an optimizer moves each tensor: the norm of its steps, their scale, and its weight decay.

A step of rate eta moves tensor p to

    theta_p <- (1 - eta lambda_p) theta_p - eta s_p u_p        decoupled weight decay lambda_p,
    theta_p <- theta_p - eta s_p u_p(g_p + lambda_p theta_p)   coupled decay, a penalty,

where u_p is the unit direction of steepest descent in the tensor's norm.

=========================  ========  ===========================================  =================
optimizer                  norm      s_p                                          decay
=========================  ========  ===========================================  =================
SGD                        l2        the gradient's norm                          coupled
Adam, NAdam, RAdam         linf      1                                            either, as set
AdamW, Lion, Signum, ...   linf      1                                            decoupled
Adamax, RMSprop            linf      1                                            coupled
Muon of torch              spectral  sqrt(max(1, rows / columns)), or             decoupled
                                     .2 sqrt(max(rows, columns))
Muon of Keller Jordan      spectral  sqrt(max(1, rows / columns))                 decoupled
=========================  ========  ===========================================  =================

Source: the optimizers' own code; Chen et al. (2023) for Lion, Jordan (2024) for Muon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from implicit_bias.base.options import OPTIMIZER_LIMITS

StepNorm: TypeAlias = Literal["l2", "linf", "spectral"]
StepScale: TypeAlias = Callable[[Mapping[str, Any], torch.Size], float]


# The norm in which full batches go to the maximum margin, by the optimizer's class.
LIMIT_NORMS = dict[str, str]()
for _limit in OPTIMIZER_LIMITS.values():
    for _class in _limit.classes:
        LIMIT_NORMS[_class] = _limit.norm


class OptimizerError(ValueError):
    """Optimizers for which no norm is known."""


@dataclass(frozen=True)
class Kind:
    """What the steps of an optimizer's class are.

    Attributes
    ----------
    norm : str
        Of each tensor.
    scale : callable
        s_p, of the parameter group and the tensor's shape.
    decoupled : bool
        Whether weight decay shrinks the weights themselves, where the group does not say.
    """

    norm: StepNorm
    scale: StepScale
    decoupled: bool


def unit_scale(group: Mapping[str, Any], shape: torch.Size) -> float:
    """Return 1: the step is as long as the rate in its norm."""
    return 1.0


def muon_scale(group: Mapping[str, Any], shape: torch.Size) -> float:
    """Return the factor by which Muon lengthens the steps of a matrix."""
    rows = shape[0]
    columns = math.prod(shape[1:])
    if group.get("adjust_lr_fn") == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


KINDS: dict[str, Kind] = {
    "SGD": Kind("l2", unit_scale, decoupled=False),
    "Muon": Kind("spectral", muon_scale, decoupled=True),
}
for _name in ("Adam", "NAdam", "RAdam", "Adamax", "RMSprop"):
    KINDS[_name] = Kind("linf", unit_scale, decoupled=False)
for _name in ("AdamW", "Lion", "Sign", "SignDescent", "SignSGD", "Signum"):
    KINDS[_name] = Kind("linf", unit_scale, decoupled=True)


def register(
    optimizer_class: type | str,
    norm: StepNorm,
    scale: StepScale = unit_scale,
    *,
    decoupled: bool = True,
) -> None:
    """Say how an optimizer of your own moves the weights.

    Parameters
    ----------
    optimizer_class : type or str
        Its class, or the name of that.
    norm : {"l2", "linf", "spectral"}
        Norm of each tensor in which a step has the length of its rate times ``scale``.
    scale : callable
        s_p, of the parameter group and the tensor's shape; 1 by default.
    decoupled : bool
        Whether its weight decay shrinks the weights (AdamW), or is added to the gradient (SGD).

    Examples
    --------
    >>> from implicit_bias.modules.steps import register
    >>> register("MySign", "linf")
    """
    name = optimizer_class if isinstance(optimizer_class, str) else optimizer_class.__name__
    if norm not in ("l2", "linf", "spectral"):
        raise ValueError(f"norm must be l2, linf or spectral, got {norm!r}")
    KINDS[name] = Kind(norm, scale, decoupled)


@dataclass(frozen=True, eq=False)
class Step:
    """How one tensor is moved.

    Attributes
    ----------
    name : str
        Of the parameter.
    parameter : Tensor
        Its values.
    norm : str
        Of the step.
    scale : float
        s_p.
    decay : float
        lambda_p.
    decoupled : bool
        Whether the decay shrinks the weights themselves.
    rate : float
        eta, as it is now.
    first_rate : float
        eta at the start, where a scheduler says so.
    taken : float
        Number of steps that were taken, by the optimizer's state; nan where that does not say.
    scheduled : bool
        Whether a scheduler sets the rate.
    """

    name: str
    parameter: Tensor
    norm: StepNorm
    scale: float
    decay: float
    decoupled: bool
    rate: float
    first_rate: float
    taken: float
    scheduled: bool


def steps_of(optimizer: object, module: nn.Module) -> list[Step]:
    """Return how each trained tensor of a module is moved.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer, a wrapper of one, or a sequence of them
        What trains the module.
    module : nn.Module
        Which is trained.

    Raises
    ------
    OptimizerError
        Of a class whose steps are not known, or that holds no parameter of the module; two
        optimizers hold the same one.
    TypeError
        No optimizer object: its parameter groups are read.
    """
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    found: dict[str, Step] = {}
    for given in each_of(optimizer):
        inner = unwrapped(given)
        if not hasattr(inner, "param_groups"):
            raise TypeError(
                f"optimizer must be an optimizer with its parameter groups, or several, got "
                f"{given!r}: the weight decay of each tensor is read from them"
            )
        for group, parameter in _trained(inner):
            if id(parameter) not in names:
                continue
            name = names[id(parameter)]
            if name in found:
                raise OptimizerError(f"two optimizers hold {name!r}: give it to one of them")
            found[name] = _step(inner, group, name, parameter)
    if not found:
        raise OptimizerError(
            "the optimizer holds none of the module's parameters that require a gradient: pass "
            "the one that trained this module"
        )
    return list(found.values())


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer within wrappers that hold it as ``.optimizer``."""
    while hasattr(optimizer, "optimizer") and hasattr(optimizer.optimizer, "param_groups"):
        optimizer = optimizer.optimizer
    return optimizer


def kind_of(optimizer: Any, group: Mapping[str, Any]) -> Kind:
    """Return the kind of an optimizer's class, or of the nearest one that it derives from."""
    lineage = [base.__name__ for base in type(optimizer).__mro__]
    if any(name.endswith("MuonWithAuxAdam") for name in lineage):  # Keller Jordan's
        return KINDS["Muon"] if group.get("use_muon", False) else KINDS["AdamW"]
    for name in lineage:
        if name in KINDS:
            return KINDS[name]
    raise OptimizerError(
        f"the steps of {name_of(optimizer)} are not known (known are {', '.join(KINDS)}): tell "
        "them by implicit_bias.modules.steps.register(optimizer_class, norm, scale)"
    )


def _trained(optimizer: Any) -> Iterator[tuple[Mapping[str, Any], Tensor]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                yield group, parameter


def _step(optimizer: Any, group: Mapping[str, Any], name: str, parameter: Tensor) -> Step:
    kind = kind_of(optimizer, group)
    state = getattr(optimizer, "state", {}).get(parameter, {})
    return Step(
        name=name,
        parameter=parameter,
        norm=kind.norm,
        scale=kind.scale(group, parameter.shape),
        decay=float(group.get("weight_decay", 0.0)),
        # Adam says so itself; a class that is AdamW has the option set.
        decoupled=bool(group.get("decoupled_weight_decay", kind.decoupled)),
        rate=float(group["lr"]),
        first_rate=float(group.get("initial_lr", group["lr"])),
        taken=float(state.get("step", math.nan)),
        scheduled="initial_lr" in group,
    )


def each_of(optimizer: object) -> list[object]:
    """Return an optimizer, its class or its name, or several, as a list."""
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]


def name_of(thing: object) -> str:
    """Name an optimizer, a loss, or its class, as it is known here or by itself."""
    name = thing if isinstance(thing, str) else getattr(thing, "__name__", type(thing).__name__)
    known = {key.lower(): key for key in LIMIT_NORMS}
    return known.get(name.lower(), str(name))
