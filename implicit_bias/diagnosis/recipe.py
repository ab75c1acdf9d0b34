"""How a module was trained: which losses and optimizers have the limit that is measured."""

from __future__ import annotations

import inspect
import math
import warnings as python_warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from implicit_bias.measure.optimizers import OptimizerError, geometry_of, groups_of
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm
from implicit_bias.training.losses import LossError, MarginLoss, as_loss, check_exponential_like

# f'(q) q must grow by this factor from the first of these margins to the second one. It grows
# fourfold for an exponential tail, twofold for exp(-sqrt q), 1.14-fold for (1 + q)^-p.
TAIL_MARGINS, TAIL_GROWTH, NEAR = (5.0, 20.0), 1.5, (0.99, 1.01)


def loss_warning(loss: object, classes: int | None) -> str:
    """Say what is wrong with a loss; empty if nothing is.

    Parameters
    ----------
    loss : str, MarginLoss, or callable
        A name or object of `implicit_bias.training.losses`, or a function (or torch module) of
        outputs and targets as torch's losses are.
    classes : int or None
        K.
    """
    if loss is None:
        return ""
    cure = "train with cross-entropy, the logistic or the exponential loss"
    if isinstance(loss, (str, MarginLoss)):
        if loss in ("cross-entropy", "cross_entropy"):
            return ""
        margin_loss = as_loss(loss)  # type: ignore[arg-type]
        try:
            check_exponential_like(margin_loss)
        except LossError as error:
            return f"the loss {margin_loss.name!r} is not exponential-like ({error}): {cure}"
        return ""
    name = _name_of(loss)
    if not callable(loss):
        raise TypeError(
            f"loss must be a name, a MarginLoss or a function of outputs and targets, got {loss!r}"
        )
    if getattr(loss, "label_smoothing", 0.0):
        return (
            f"the loss {name} smooths its labels, so it has a finite minimiser and no limit in "
            "direction: train with label_smoothing=0"
        )
    growth = _tail_growth(loss, classes)
    if growth is None:
        return (
            f"the loss {name} could not be evaluated as a function of outputs and targets, so it "
            "was not checked: pass a function of both"
        )
    if growth < TAIL_GROWTH:
        return (
            f"the loss {name} is not exponential-like: its tail does not fall exponentially, so "
            f"training need not go to a maximum margin at all: {cure}"
        )
    return ""


def _tail_growth(loss: Callable[..., Any], classes: int | None) -> float | None:
    """How much f'(q) q grows, loss = exp(-f(q)); 0 where the loss does not fall; None: no value."""
    width, growth = classes or 1, None
    for target in _targets(width):
        slopes = list[float]()
        try:
            for q in TAIL_MARGINS:
                before, after = (_loss_at(loss, factor * q, classes, target) for factor in NEAR)
                falls = before > after > 0
                slopes.append(math.log(before / after) if falls else 0.0)
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue  # not the target that this loss takes
        growth = max(growth or 0.0, slopes[1] / slopes[0] if slopes[0] > 0 else 0.0)
    return growth


def _loss_at(loss: Callable[..., Any], margin: float, classes: int | None, target: Tensor) -> float:
    """Loss of one sample of the first class."""
    outputs = torch.zeros(1, classes or 1, dtype=torch.float64)
    outputs[0, 0] = margin
    given = outputs if classes is not None or target.ndim == 2 else outputs[:, 0]
    with python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")  # of a target that this loss does not like
        return float(loss(given, target))


def _targets(width: int) -> Iterator[Tensor]:
    """Targets of one sample of the first class, as losses of torch like them."""
    yield torch.zeros(1, dtype=torch.int64)
    for shape in ((1,), (1, width)):
        target = torch.zeros(shape, dtype=torch.float64)
        target[..., 0] = 1.0
        yield target


def limit_of(
    module: nn.Module, norm: ParameterNorm | None, optimizer: object
) -> tuple[ParameterNorm, str, list[str]]:
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
    warnings = list[str]()
    if any(float(group.get("weight_decay", 0.0)) for group in groups_of(optimizer)):
        warnings.append(
            "the optimizer has weight decay, which stops the weights from growing: the limit is "
            "that of a penalised loss, not of the margin; train with weight_decay=0"
        )
    try:
        own = geometry_of(optimizer, module)
    except OptimizerError as error:
        if norm is None:
            raise
        return norm, "", [f"a gap in {norm.name} says nothing of this training: {error}", *warnings]
    if norm is None or norm == own.norm:
        return own.norm, own.words, warnings
    plain = PARAMETER_NORMS.get(own.norm.name) == own.norm
    cure = f"pass norm={own.norm.name!r}" if plain else "leave norm= out"
    other = f"{own.words} goes to KKT points in the {own.norm.name} norm, not in {norm.name}"
    return norm, "", [f"{other}: {cure}", *warnings]


def _name_of(thing: object) -> str:
    if inspect.isclass(thing) or inspect.isfunction(thing) or inspect.isbuiltin(thing):
        return str(thing.__name__)
    return type(thing).__name__
