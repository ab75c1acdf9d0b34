"""What a forward pass does in which part of a module: the functions it calls, and what scales.

The message of a refusal names the functions and parts that are found here. Whether a module is
refused is decided by its outputs and gradients (`homogeneity`). Only normalization in a limit is
refused for a call alone (`leading`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from implicit_bias.modules.evaluate import evaluate, values_of
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.partial_degrees import HOMOGENEITY_TOLERANCE


def _names_of_parts(module: nn.Module) -> dict[nn.Module, str]:
    """Return the name of each part of a module; "" of the module itself."""
    return {part: name for name, part in module.named_modules()}


# --- the functions of torch that it calls --------------------------------------------------------


def functions_used(margins: Margins, functions: Collection[str]) -> dict[str, list[str]]:
    """Which of some functions of torch a forward pass calls, and in which parts of the module.

    Only those calls count whose input depends on trained parameters.
    """
    watch = FunctionWatch(functions)
    names = _names_of_parts(margins.module)

    def enter(part: nn.Module, given: object) -> None:
        # A part that is made within the pass has no name: its calls count for the part around it.
        watch.places.append(names.get(part, watch.places[-1]))

    def leave(part: nn.Module, given: object, outputs: object) -> None:
        watch.places.pop()

    # Global hooks, as torch's own tracker of parts fails in a module that takes gradients.
    before = register_module_forward_pre_hook(enter)
    after = register_module_forward_hook(leave)
    with torch.enable_grad(), before, after, watch:
        _outputs_of_few(margins, trained=True)
    return watch.seen


class FunctionWatch(TorchFunctionMode):
    """Notes which functions a forward pass calls, and in which part of the module.

    Attributes
    ----------
    seen : dict from name to list of str
        Functions that were called, and the parts in which they were.
    places : list of str
        A stack: the part where the pass is now is the last one, after those that contain it.
    """

    def __init__(self, functions: Collection[str]) -> None:
        super().__init__()
        self.functions = functions
        self.seen = dict[str, list[str]]()
        self.places = [""]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # In place, as an operator or on its own it has one name: softmax_, __matmul__, matmul.
        name = getattr(func, "__name__", "").strip("_")
        if name in self.functions and _has_trained(name, args, kwargs):
            places = self.seen.setdefault(name, [])
            if self.places[-1] not in places:
                places.append(self.places[-1])
        return func(*args, **kwargs)


def _has_trained(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether trained parameters enter a function where it does not scale.

    A normalization does scale in its affine weights, and attention in its values: these may be
    trained.
    """
    # The input, or query and key.
    given = list(args[:2]) or list(kwargs.values())[:2]
    if name == "multi_head_attention_forward":
        # And the weights that make query and key: in_proj_weight to bias_v, the sixth to the ninth
        # argument, or one for each where the inputs differ in size.
        given += args[5:9]
        given.append(kwargs.get("q_proj_weight"))
        given.append(kwargs.get("k_proj_weight"))
    for value in given:
        if isinstance(value, Tensor) and value.requires_grad:
            return True
    return False


# --- the part that does not scale ----------------------------------------------------------------


def unscaled_part(margins: Margins) -> str | None:
    """Name the first part whose inputs scale with the parameters, while its outputs do not.

    A part ends before the one that contains it, so it is the innermost one: a block that adds terms
    of two degrees, for example, and not the network of blocks. None if it is the module itself.
    """
    once = _calls_of_parts(margins, 1.0)
    twice = _calls_of_parts(margins, 2.0)
    # Not strict: branches on the data may call other parts at doubled parameters.
    for call, doubled in zip(once, twice, strict=False):
        inputs_scale = all(map(_scales, call.given, doubled.given))
        if call.part and inputs_scale and not _scales(call.result, doubled.result):
            return call.part
    return None


class _Call(NamedTuple):
    """What a part of a module was given, and what it made of it."""

    part: str
    given: list[Tensor]
    result: Tensor


def _calls_of_parts(margins: Margins, scale: float) -> list[_Call]:
    """Return the calls of all parts at scaled parameters, in the order in which they end."""
    names = _names_of_parts(margins.module)
    found = list[_Call]()

    def leave(part: nn.Module, given: tuple[Any, ...], outputs: Any) -> None:
        result = outputs
        if isinstance(outputs, tuple):  # attention returns its weights, too
            result = outputs[0]
        if not isinstance(result, Tensor):
            return
        # Copies, as the pass may write into a tensor that it needs no longer. Indices and masks do
        # not scale.
        inputs = list[Tensor]()
        for value in given:
            if isinstance(value, Tensor) and value.is_floating_point():
                inputs.append(value.detach().clone())
        found.append(_Call(names.get(part, ""), inputs, result.detach().clone()))

    with torch.no_grad(), register_module_forward_hook(leave):
        _outputs_of_few(margins, scale)
    return found


def _scales(tensor: Tensor, doubled: Tensor) -> bool:
    """Whether a tensor is a multiple of itself at twice the parameters."""
    # By which multiple does not matter: parts of any degree scale.
    size = float(tensor.abs().max())
    most = float(doubled.abs().max())
    if size == 0.0:
        return most == 0.0
    return float((doubled - (most / size) * tensor).abs().max()) <= HOMOGENEITY_TOLERANCE * most


def _outputs_of_few(margins: Margins, scale: float = 1.0, *, trained: bool = False) -> Tensor:
    """Evaluate the module at scaled parameters and the first samples."""
    values = values_of(margins.module)
    for name, part in margins.parameters(margins.theta).items():
        values[name] = (scale * part).detach().requires_grad_(trained)
    # What a part calls, and whether it scales, does not depend on the samples: four show it.
    few = tuple(tensor[:4] for tensor in margins.inputs)
    return evaluate(margins.module, values, few)
