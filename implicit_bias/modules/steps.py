r"""How an optimizer moves each tensor: the norm of its steps, their scale, and its weight decay.

A step of rate eta moves tensor p to

    theta_p <- (1 - eta lambda_p) theta_p - eta s_p u_p        decoupled weight decay lambda_p,
    theta_p <- theta_p - eta s_p u_p(g_p + lambda_p theta_p)   coupled decay, a penalty,

where u_p is the unit direction of steepest descent in the tensor's norm.

Which optimizer has which norm, s_p and decay is one table, `base.options.ALL_OPTIMIZER_LIMITS`,
beside `NO_OPTIMIZER_LIMIT`: why no limit is known of others. Most classes have one `UpdateRule`. Of
some (Muon, Scion, Shampoo) the parameter groups say more, and a function of each reads them.

A subclass is read as the nearest class that is known, and a wrapper as what it holds.

Source: the optimizers' own code: torch 2.13; github.com/KellerJordan/Muon, muon.py, `muon_update`;
github.com/LIONS-EPFL/scion, scion.py, the `lmo` of each norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from implicit_bias.base.options import ALL_OPTIMIZER_LIMITS, NO_OPTIMIZER_LIMIT

# "rows" and "columns": the largest l2 norm of any row, or column.
StepNorm: TypeAlias = Literal["l2", "linf", "spectral", "rows", "columns"]
Group: TypeAlias = Mapping[str, Any]
StepScale: TypeAlias = Callable[[Group, torch.Size], float]


class OptimizerError(ValueError):
    """Optimizers for which no norm is known."""


@dataclass(frozen=True)
class UpdateRule:
    """What the steps of an optimizer's class are.

    Attributes
    ----------
    norm : str
        Of each tensor.
    scale : callable
        s_p, of the parameter group and the tensor's shape.
    decoupled : bool
        Whether weight decay shrinks the weights themselves, where the group does not say.
    decay : float or None
        lambda_p; None where it is the group's ``weight_decay``.
    """

    norm: StepNorm
    scale: StepScale
    decoupled: bool
    decay: float | None = None

    def decay_in(self, group: Group) -> float:
        """Return lambda_p in a parameter group."""
        if self.decay is not None:
            return self.decay
        return float(group.get("weight_decay", 0.0))

    def is_decoupled_in(self, group: Group) -> bool:
        """Return whether decay shrinks the weights themselves, in a parameter group."""
        for option in ("decoupled_weight_decay", "weight_decouple"):  # torch, pytorch_optimizer
            if option in group:
                return bool(group[option])
        return self.decoupled


def unit_scale(group: Group, shape: torch.Size) -> float:
    """Return 1: the step is as long as the rate in its norm."""
    return 1.0


# --- optimizers whose groups say more than their class --------------------------------------------


def _read_muon(group: Group, shape: torch.Size) -> UpdateRule:
    """Read torch's Muon, or Keller Jordan's, which has the same name."""
    # Two classes of this name scale their steps differently, and one's options tell which it is.
    if "adjust_lr_fn" in group:
        return UpdateRule("spectral", _torch_muon_scale, decoupled=True)
    jordans = {"params", "lr", "momentum", "weight_decay", "use_muon", "initial_lr"}
    if set(group) <= jordans:
        return UpdateRule("spectral", _jordans_muon_scale, decoupled=True)
    raise OptimizerError(
        "this Muon is neither torch's nor Keller Jordan's, so that the scale of its steps is not "
        "known: tell it by implicit_bias.modules.steps.register('Muon', 'spectral', scale)"
    )


def _torch_muon_scale(group: Group, shape: torch.Size) -> float:
    """Return the factor by which Muon lengthens the steps of a matrix."""
    rows = shape[0]
    columns = math.prod(shape[1:])
    # All singular values of a step are 1, so that its entries have the root mean square 1 /
    # sqrt(max(rows, columns)); that of AdamW's steps is about 0.2.
    if group["adjust_lr_fn"] == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    # The other rules (None, "original") are Jordan's.
    return math.sqrt(max(1.0, rows / columns))


def _jordans_muon_scale(group: Group, shape: torch.Size) -> float:
    """Return the same of `muon_update`: of a convolution, the last axes are those of a kernel."""
    if len(shape) not in (2, 4):
        raise OptimizerError(
            f"Keller Jordan's Muon takes matrices and convolutions, not shape {tuple(shape)}: it "
            "orthogonalises each matrix of a stack alone"
        )
    return math.sqrt(max(1.0, shape[-2] / shape[-1]))


def _read_muon_with_adam(group: Group, shape: torch.Size) -> UpdateRule:
    """Read Keller Jordan's Muon that has an Adam for the other groups."""
    if "use_muon" not in group:
        raise OptimizerError(
            "which tensors Muon moves is set per group (use_muon): pass the optimizer itself"
        )
    if group["use_muon"]:
        return UpdateRule("spectral", _jordans_muon_scale, decoupled=True)
    return RULES["AdamW"]


def _read_scion(group: Group, shape: torch.Size) -> UpdateRule:
    """Read the norm of a group of Scion; constrained, a step is p <- (1 - lr) p - lr s_p u_p."""
    if "norm" not in group:
        raise OptimizerError("Scion's norms are set per group: pass the optimizer itself")
    norm, length = _scion_norm(group["norm"], group["norm_kwargs"] or {}, shape)
    scale = float(group["scale"]) * length
    decay = 0.0 if group["unconstrained"] else 1.0
    return UpdateRule(norm, lambda group, shape: scale, decoupled=True, decay=decay)


def _scion_norm(name: str, options: Mapping[str, Any], shape: torch.Size) -> tuple[StepNorm, float]:
    """Return a norm of Scion, and the length of its steps in that norm."""
    if name == "Auto":
        by_axes = {0: "BiasRMS", 1: "BiasRMS", 2: "Spectral", 3: "SpectralConv", 4: "SpectralConv"}
        return _scion_norm(by_axes[len(shape)], {}, shape)
    if name == "BiasRMS":
        if not shape:  # a number is a vector of one entry
            return "spectral", 1.0
        # Of a vector, which is a column, the spectral norm is the Euclidean one.
        if len(shape) == 1:
            return "spectral", math.sqrt(shape[0])
        return "columns", math.sqrt(shape[0])
    rows, columns, *kernel = shape
    normalized = options.get("normalized", name != "ColNorm")
    # A convolution of k x k kernels is bounded by k^2 matrices, one for each place of the kernel.
    if name == "SpectralConv":
        return "spectral", math.sqrt(rows / columns) / kernel[0] ** len(kernel)
    if name == "Spectral":
        length = math.sqrt(rows)
        if normalized:
            length = math.sqrt(rows / columns)
        if options.get("max", False):
            length = max(1.0, length)
        return "spectral", length
    if name == "Sign":
        if normalized:
            return "linf", 1.0 / columns
        return "linf", 1.0
    if name in ("ColNorm", "RowNorm"):
        # Transposed, a row of the norm is a column of the tensor, and the sizes change places.
        transposed = options.get("transpose", False)
        if transposed:
            rows, columns = columns, rows
        length = 1.0
        if name == "ColNorm":
            length = math.sqrt(rows)
            if normalized:
                length /= columns
        elif normalized:
            length = 1.0 / math.sqrt(columns)
        if (name == "ColNorm") != transposed:
            return "columns", length
        return "rows", length
    raise OptimizerError(f"Scion's norm {name!r} is not known: register the class")


def _read_shampoo(group: Group, shape: torch.Size) -> UpdateRule | None:
    """Read Shampoo: without accumulation a step is the polar factor of the gradient."""
    betas = group.get("betas", (0.0, 1.0))
    # With beta2 = 0 the factors are those of this gradient alone: (G G')^(-1/4) G (G' G)^(-1/4) is
    # its polar factor U V'. With a memory they are no function of the gradient.
    if betas[1] != 0.0:
        return None
    return UpdateRule("spectral", unit_scale, decoupled=False)


# None: with these options no limit is known.
READERS: dict[str, Callable[[Group, torch.Size], UpdateRule | None]] = {
    "Muon": _read_muon,
    "MuonWithAuxAdam": _read_muon_with_adam,
    "SingleDeviceMuonWithAuxAdam": _read_muon_with_adam,
    "Scion": _read_scion,
    "ScionLight": _read_scion,
    "Shampoo": _read_shampoo,
    "DistributedShampoo": _read_shampoo,
}
SCALES: dict[str, StepScale] = {"SingleDeviceMuon": _jordans_muon_scale}
# Classes that `register` was given; None where it was given a name.
REGISTERED: dict[str, type | None] = {}
# All others, and those that are registered: these come first.
RULES: dict[str, UpdateRule] = {}
for _limit in ALL_OPTIMIZER_LIMITS.values():
    for _name in _limit.classes:
        if _name not in READERS:
            RULES[_name] = UpdateRule(
                _limit.norm,  # type: ignore[arg-type]
                SCALES.get(_name, unit_scale),
                decoupled=_limit.decay == "decoupled",
            )


CURE = (
    "Pass norm= to measure in one nevertheless, or in one for each part of the module: "
    'norm={"out": "linf", "": "spectral"}'
)


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
    norm : {"l2", "linf", "spectral", "rows", "columns"}
        Norm of each tensor in which a step has the length of its rate times ``scale``; "l2" is
        gradient descent, whose steps are the gradients times the rate.
    scale : callable
        s_p, of the parameter group and the tensor's shape; 1 by default.
    decoupled : bool
        Whether its weight decay shrinks the weights (AdamW), or is added to the gradient (SGD).

    Examples
    --------
    >>> from implicit_bias.modules.steps import register
    >>> register("MySign", "linf")
    """
    name = optimizer_class
    if isinstance(name, type):
        name = name.__name__
    known = get_args(StepNorm)
    if norm not in known:
        raise ValueError(f"norm must be one of {', '.join(known)}, got {norm!r}")
    RULES[name] = UpdateRule(norm, scale, decoupled)
    REGISTERED[name] = None if isinstance(optimizer_class, str) else optimizer_class


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
    eps : float
        What is added to the divisor of a gradient; nan of optimizers without it.
    momentum_gain : float
        By how much momentum lengthens steps along a constant gradient.
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
    eps: float
    momentum_gain: float

    @property
    def shrinking(self) -> float:
        """How much decay shrinks the weights, over the rate; nan where that depends on gradients.

        Coupled decay is a part of the gradient. So momentum lengthens it, and a step that is
        normalized, as Adam's, divides it by the size of the whole.
        """
        if self.decoupled or self.decay == 0.0:
            return self.decay
        if self.norm != "l2":
            return math.nan
        return self.decay * self.momentum_gain


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
    for one in each_of(optimizer):
        if not is_optimizer(one):
            raise TypeError(
                f"optimizer must be an optimizer with its parameter groups, or several, got "
                f"{one!r}: the weight decay of each tensor is read from them"
            )
        for group, parameter in _trained(one):
            if id(parameter) not in names:
                continue
            name = names[id(parameter)]
            if name in found:
                raise OptimizerError(f"two optimizers hold {name!r}: give it to one of them")
            found[name] = _step(one, group, name, parameter)
    if not found:
        raise OptimizerError(
            "the optimizer holds none of the module's parameters that require a gradient: pass "
            "the one that trained this module. A copy (copy.deepcopy) has other parameters than "
            "the module that the optimizer was made for: call module.double() on that module "
            "itself, which keeps its parameters. `diagnose` also takes the norm by its name "
            "(norm='linf' for Adam)"
        )
    return list(found.values())


def is_optimizer(given: object) -> bool:
    """Return whether this is an optimizer object, with its parameter groups."""
    return not isinstance(given, type) and hasattr(given, "param_groups")


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer within wrappers, as accelerate's (``.optimizer``) and Lightning's.

    A wrapper that is in a table itself, as one that averages weights is, stays.
    """
    while not isinstance(optimizer, (str, type)) and not nearest_class(optimizer):
        inner = getattr(optimizer, "optimizer", getattr(optimizer, "_optimizer", None))
        if not is_optimizer(inner):
            break
        optimizer = inner
    return optimizer


def nearest_class(optimizer: object) -> str:
    """Name the nearest class in the table that an optimizer, or its class, derives from; or ""."""
    for name in _lineage(optimizer):
        if name in RULES or name in READERS or name in NO_OPTIMIZER_LIMIT:
            return name
    return ""


def class_known_by_name(optimizer: object) -> type | None:
    """Return the class that an optimizer is read as, if nothing but its name says that it is that.

    The classes of torch and of this package are known for sure, and so is what `register` was told.
    The others of the table are of libraries that are not imported here: any class may have their
    names.
    """
    name = nearest_class(optimizer)
    if not name or isinstance(optimizer, str):
        return None  # nothing is known of it, or the caller gave a name
    nearest = next(base for base in _bases(optimizer) if base.__name__ == name)
    if name in REGISTERED and REGISTERED[name] in (None, nearest):
        return None
    if nearest.__module__.startswith(("torch.optim.", "implicit_bias.")):
        return None
    return nearest


def _bases(optimizer: object) -> tuple[type, ...]:
    """Return the classes that an optimizer, or its class, derives from, nearest first."""
    of_class = optimizer if isinstance(optimizer, type) else type(optimizer)
    return of_class.__mro__


def _lineage(optimizer: object) -> list[str]:
    """Names of the classes that an optimizer, or its class, derives from, nearest first."""
    if isinstance(optimizer, str):
        for name in (*RULES, *READERS, *NO_OPTIMIZER_LIMIT):
            if name.lower() == optimizer.lower():
                return [name]
        return [optimizer]
    return [base.__name__ for base in _bases(optimizer)]


def rule_of(optimizer: object, group: Group, shape: torch.Size) -> UpdateRule:
    """Return the rule of an optimizer's class, or of the nearest one that it derives from.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer, its class or its name
        Not wrapped.
    group : mapping
        The parameter group.
    shape : torch.Size
        Of the tensor.

    Raises
    ------
    OptimizerError
        Of a class for which no limit is known, with the reason; of an unknown one.
    """
    name = nearest_class(optimizer)
    if name in RULES:
        return RULES[name]
    if name in READERS:
        rule = READERS[name](group, shape)
        # None falls through to the refusal below: with these options the class has no limit.
        if rule is not None:
            return rule
    if name:
        raise OptimizerError(
            f"the max-margin limit of {name} is not known: {NO_OPTIMIZER_LIMIT[name]}. {CURE}"
        )
    raise OptimizerError(
        f"the steps of {name_of(optimizer)} are not known (known are "
        f"{', '.join(dict.fromkeys((*RULES, *READERS)))}): tell them by "
        f"implicit_bias.modules.steps.register(optimizer_class, norm, scale). {CURE}"
    )


def _trained(optimizer: Any) -> Iterator[tuple[Group, Tensor]]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                yield group, parameter


def _step(optimizer: Any, group: Group, name: str, parameter: Tensor) -> Step:
    rule = rule_of(optimizer, group, parameter.shape)
    states = getattr(optimizer, "state", {})
    state = states.get(parameter, {})
    taken = math.nan
    # A tensor that never had a gradient has no state where others have theirs.
    if parameter not in states and any("step" in other for other in states.values()):
        taken = 0.0
    return Step(
        name=name,
        parameter=parameter,
        norm=rule.norm,
        scale=rule.scale(group, parameter.shape),
        decay=rule.decay_in(group),
        decoupled=rule.is_decoupled_in(group),
        rate=float(group["lr"]),
        # Schedulers of torch write `initial_lr` into the group when they are attached.
        first_rate=float(group.get("initial_lr", group["lr"])),
        taken=float(state.get("step", taken)),
        scheduled="initial_lr" in group,
        eps=number_in(group, "eps"),
        momentum_gain=_momentum_gain(group),
    )


def _momentum_gain(group: Group) -> float:
    """Return the length of a late step of SGD along a constant gradient, over rate and gradient."""
    momentum = number_in(group, "momentum", 0.0)
    if momentum == 0.0:
        return 1.0
    if momentum >= 1.0:
        return math.nan  # steps grow without end
    # m <- momentum m + (1 - dampening) g tends to this multiple of g.
    return (1.0 - number_in(group, "dampening", 0.0)) / (1.0 - momentum)


def size_beside_eps(norm: float, entries: int, *, by_entry: bool) -> float:
    """Return the size of a gradient of this Euclidean norm that an optimizer's eps is added to.

    Adam divides each entry by a number of its own, of the size of their root mean square; Muon a
    matrix by its norm.
    """
    if by_entry:
        return norm / math.sqrt(entries)
    return norm


def number_in(group: Group, option: str, otherwise: float = math.nan) -> float:
    """Return an option of a parameter group that is one number, or else what is given."""
    value = group.get(option)
    # An optimizer of one's own may have None, or a pair, as the eps of Adafactor.
    if isinstance(value, Real):
        return float(value)
    return otherwise


def each_of(optimizer: object) -> list[Any]:
    """Return an optimizer, its class or its name, or several, as a list, without wrappers."""
    if isinstance(optimizer, (list, tuple)):
        return list(map(unwrapped, optimizer))
    return [unwrapped(optimizer)]


def name_of(thing: object) -> str:
    """Name an optimizer, a loss, or its class, as it is known here or by itself."""
    if isinstance(thing, str):
        return _lineage(thing)[0]
    return str(getattr(thing, "__name__", type(thing).__name__))
