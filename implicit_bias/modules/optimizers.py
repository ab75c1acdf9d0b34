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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from implicit_bias.base.options import OPTIMIZER_LIMITS
from implicit_bias.norms import LInf
from implicit_bias.norms.tensors import PARAMETER_NORMS, ComposedNorm, ParameterNorm

# The norm of each tensor, by the optimizer's class.
LIMIT_NORMS: dict[str, str] = {
    name: limit.norm for limit in OPTIMIZER_LIMITS.values() for name in limit.classes
}
# Ratios of rates that differ by this share have other schedules.
SAME_SCHEDULE = 1e-6


class OptimizerError(ValueError):
    """Optimizers for which no norm is known."""


@dataclass(frozen=True)
class Geometry:
    """A norm, and who goes there.

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
    if not several or (len(several) > 1 and not _objects(several)):
        raise TypeError(
            f"optimizer must be an optimizer, its class or name, or several optimizers, got "
            f"{optimizer!r}: the tensors that each one holds are read from it"
        )
    norms = [_limit(one) for one in several]
    words = ", ".join(map(_words, several))
    if not _objects(several):
        return Geometry(PARAMETER_NORMS[norms[0]], words)
    names = {id(p): name for name, p in module.named_parameters()}
    inner, rates, drifts, alike = dict[str, str](), dict[str, float](), set[float](), set[Any]()
    held = Counter[torch.Size]()
    for one, norm in zip(several, norms, strict=True):
        for rate, drift, p in _tensors(one):
            alike.add((norm, rate))
            held[p.shape] += 1
            if id(p) not in names:
                continue
            name = names[id(p)]
            if name in inner:
                raise OptimizerError(f"two optimizers hold {name!r}: give it to one of them")
            inner[name], rates[name] = norm, rate
            drifts.add(drift)
    if not inner:
        trained = Counter(p.shape for p in module.parameters() if p.requires_grad)
        # Of one optimizer with one rate, of another copy of the module, all is known.
        if len(several) > 1 or len(alike) > 1 or held != trained:
            raise OptimizerError(
                "the optimizer holds none of the module's parameters, so the norm and the rate of "
                "each tensor are not known: pass the one that trained this module"
            )
        return Geometry(PARAMETER_NORMS[norms[0]], words)
    if max(drifts) > (1.0 + SAME_SCHEDULE) * min(drifts):
        raise OptimizerError(
            "the rates of the tensors follow different schedules, so they have no ratio in the "
            "limit: give all groups the same schedule"
        )
    return Geometry(_composed(inner, rates), words)


def _composed(inner: Mapping[str, str], rates: Mapping[str, float]) -> ParameterNorm:
    """Put the tensors' norms together."""
    kinds, most = sorted(set(inner.values())), max(rates.values())
    if "l2" in kinds and len(kinds) > 1:
        raise OptimizerError(
            "where plain gradient descent on some tensors goes beside another optimizer on others "
            "is not known: their steps shrink at different rates; train all by one kind"
        )
    # Gradient descent is the gradient flow of theta over the roots of the rates.
    scale = {k: (r / most) ** (0.5 if kinds == ["l2"] else 1.0) for k, r in rates.items()}
    scale = {k: s for k, s in scale.items() if s != 1.0}
    norms = {name: PARAMETER_NORMS[kind].inner_of(name) for name, kind in inner.items()}
    if len(kinds) == 1:
        plain = PARAMETER_NORMS[kinds[0]]
        weighted = ComposedNorm(plain.inner, plain.outer, f"weighted {plain.name}", scale)
        return weighted if scale else plain
    name = "/".join(kinds)
    return ComposedNorm(norms, LInf(), f"weighted {name}" if scale else name, scale)


def _tensors(optimizer: Any) -> Iterator[tuple[float, float, Tensor]]:
    """Yield how far each trained tensor moves a step, what a schedule made of that, and it."""
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
            yield first * _adjusted(group, p), now / first, p


def _adjusted(group: Mapping[str, Any], p: Tensor) -> float:
    """Factor by which Muon lengthens the steps of a matrix."""
    if "adjust_lr_fn" not in group:
        return 1.0
    rows, columns = p.shape[0], math.prod(p.shape[1:])
    if group["adjust_lr_fn"] == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


def _limit(optimizer: object) -> str:
    """Name of the norm of the tensors of an optimizer."""
    name = name_of(optimizer)
    known = {key.lower(): norm for key, norm in LIMIT_NORMS.items()}
    cure = (
        "pass norm= to measure in one nevertheless, or in one for each part of the module: "
        'norm={"out": "linf", "": "spectral"}'
    )
    if name.lower() not in known:
        raise OptimizerError(
            f"where {name} goes is not known as a norm of the parameters (known are "
            f"{', '.join(LIMIT_NORMS)}): {cure}"
        )
    groups = groups_of(optimizer)
    if any(group.get("amsgrad", False) for group in groups):
        raise OptimizerError(
            f"{name} with amsgrad divides by the largest gradients that there were, so it ends as "
            f"gradient descent in a metric of the run's own, not in a norm that is known: {cure}"
        )
    for key in ("lr", "adjust_lr_fn") if name == "Muon" else ("lr",):
        if any(key not in group for group in groups):
            raise OptimizerError(
                f"this {name} does not say in its param_groups how it scales its steps ({key}), so "
                f"the weights of its norm are not known: take one of torch.optim, or {cure}"
            )
    return known[name.lower()]


def each_of(optimizer: object) -> list[object]:
    """Return an optimizer, its class or its name, or several, as a list."""
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]


def groups_of(optimizer: object) -> list[dict[str, Any]]:
    """Parameter groups of an optimizer, or of several; none of a class or a name."""
    several = each_of(optimizer)
    held = (one.param_groups for one in several if isinstance(one, torch.optim.Optimizer))
    return [group for groups in held for group in groups]


def default_groups(optimizer: object, params: Iterable[Tensor]) -> list[dict[str, Any]]:
    """Group in which an optimizer of torch, given by class or name, would hold parameters."""
    kind = getattr(torch.optim, name_of(optimizer), None)
    options = inspect.signature(kind).parameters if kind else {}
    return [{name: option.default for name, option in options.items()} | {"params": params}]


def left_out(module: nn.Module, optimizer: object) -> tuple[str, ...]:
    """Names of trained parameters that no optimizer was given; none where nothing is known."""
    held = {id(p) for group in groups_of(optimizer) for p in group["params"]}
    own = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not any(id(p) in held for _, p in own):
        return ()  # of another copy of the module
    return tuple(name for name, p in own if id(p) not in held)


def _objects(several: Sequence[object]) -> bool:
    return all(isinstance(one, torch.optim.Optimizer) for one in several)


def _words(optimizer: object) -> str:
    """Say an optimizer, with what its limit depends on."""
    name, groups = name_of(optimizer), groups_of(optimizer)
    rates = {float(group["lr"]) for group in groups}
    said = [f"rate {rate:.3g}" for rate in rates if len(rates) == 1]
    beta2 = {group["betas"][1] for group in groups if "betas" in group}
    said += [f"beta2 {value:g}" for value in sorted(beta2)]
    if any("ns_steps" in group for group in groups):
        said.append("singular values of its steps are within about 0.5 and 1.2 only")
    return f"{name} ({', '.join(said)})" if said else name


def name_of(thing: object) -> str:
    """Name an optimizer, a loss, or its class, as it is known here or by itself."""
    if isinstance(thing, str):
        known = {key.lower(): key for key in LIMIT_NORMS}
        return known.get(thing.lower(), thing)
    return str(getattr(thing, "__name__", type(thing).__name__))
