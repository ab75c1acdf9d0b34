"""Which functions of torch a forward pass calls, in which parts of a module, and from what.

A refusal names the function, the part and the parameters by this; nothing is decided by it alone
but where a module calls what is known not to scale (`homogeneity`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from implicit_bias.modules.evaluate import evaluate, values_of
from implicit_bias.modules.margins import Margins

# Samples on which the forward pass is watched, and the cause of a refusal is looked for.
WATCHED = 4
# Names of functions that add a bias, their third argument, and of those that add two tensors.
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
BIASED = ("linear", *_CONVOLUTIONS, *_TRANSPOSED)
ADDITIONS = ("add", "iadd", "radd")


def functions_used(
    gradients: Margins, functions: Collection[str], *, trained: bool = True
) -> dict[str, list[str]]:
    """Which of some functions of torch a forward pass calls, and in which parts of the module.

    By default only those calls count whose input depends on trained parameters.
    """
    return watched(gradients, functions, trained=trained)[0].seen


def watched(
    gradients: Margins,
    functions: Collection[str],
    *,
    trained: bool,
    scale: float = 1.0,
    at_0: Collection[str] = (),
) -> tuple[ForwardWatch, Tensor]:
    """Evaluate a module under a watch, its parameters scaled or at 0; return its outputs, too."""
    module = gradients.module
    watch = ForwardWatch(module, functions, trained=trained)
    values = values_of(module)
    for name, part in gradients.parameters(gradients.theta).items():
        own = torch.zeros_like(part) if name in at_0 else scale * part
        values[name] = own.detach().requires_grad_(trained)
        watch.leaves[name] = values[name]
        watch.names_of_leaves[id(values[name])] = name
    few = tuple(tensor[:WATCHED] for tensor in gradients.inputs)
    before = register_module_forward_pre_hook(watch.enter)
    after = register_module_forward_hook(watch.leave)
    with torch.set_grad_enabled(trained), before, after, watch:
        outputs = evaluate(module, values, few)
    return watch, outputs


def listed(names: Collection[str]) -> str:
    """List parts or parameters of a module by name, the first four of them."""
    shown = [repr(name) if name else "the module's forward" for name in names]
    more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
    return ", ".join(shown[:4]) + more


class ForwardWatch(TorchFunctionMode):
    """Writes down which functions a forward pass calls, and in which part of the module.

    Attributes
    ----------
    seen : dict from name to list of str
        Functions that were called, and the parts in which they were.
    biases : list of str
        Trained biases that are added to what depends on trained parameters.
    sums : list of (str, Tensor, Tensor)
        Place and terms of each sum of two tensors of the same shape.
    leaves : dict from name to Tensor
        The trained parameters, as the pass sees them.
    """

    def __init__(self, module: nn.Module, functions: Collection[str], *, trained: bool) -> None:
        super().__init__()
        self.module = module
        self.functions = functions
        self.trained = trained
        self.seen = dict[str, list[str]]()
        self.biases = list[str]()
        self.sums = list[tuple[str, Tensor, Tensor]]()
        self.leaves = dict[str, Tensor]()
        self.names_of_leaves = dict[int, str]()
        self._results = dict[str, Any]()
        self._given = dict[str, list[Tensor]]()  # what depends on trained parameters
        self._names = {part: name for name, part in module.named_modules()}
        self._places = [""]  # where the pass is now

    def enter(self, part: nn.Module, given: object) -> None:
        """Note that a part begins; torch's own tracker fails in a module that takes gradients."""
        self._places.append(self._names.get(part, self._places[-1]))

    def leave(self, part: nn.Module, given: object, outputs: object) -> None:
        """Note that a part is done."""
        self._places.pop()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        if name in BIASED:
            self._note_bias(args, kwargs)
        elif name in ADDITIONS and name in self.functions:
            self._note_sum(args)
        elif name in self.functions:
            self._note_call(name, args, kwargs)
        result = func(*args, **kwargs)
        if name in self.functions:
            self._results[name] = result
        return result

    def _note_bias(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note a trained bias of a linear layer or convolution whose input is trained, too."""
        given = args[0] if args else kwargs.get("input")
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        if not (isinstance(given, Tensor) and given.requires_grad):
            return
        name = self.names_of_leaves.get(id(bias))
        if name is not None and name not in self.biases:
            self.biases.append(name)

    def _note_sum(self, args: tuple[Any, ...]) -> None:
        terms = [term.detach().clone() for term in args[:2] if isinstance(term, Tensor)]
        if len(terms) == 2 and terms[0].shape == terms[1].shape:
            self.sums.append((self._places[-1], terms[0], terms[1]))

    def _note_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.trained:
            found = _trained_among(name, args, kwargs)
            if not found:
                return
            self._given.setdefault(name, []).extend(found)
        places = self.seen.setdefault(name, [])
        if self._places[-1] not in places:
            places.append(self._places[-1])

    def in_front_of(self, function: str) -> list[str]:
        """Names of the trained parameters from which a function's input was computed."""
        total = torch.zeros(())
        for tensor in self._given.get(function, []):
            total = total + tensor.sum()
        leaves = list(self.leaves.values())
        with torch.enable_grad():
            slopes = torch.autograd.grad(total, leaves, allow_unused=True)
        pairs = zip(self.leaves, slopes, strict=True)
        return [name for name, slope in pairs if slope is not None]

    def owners(self, names: Collection[str]) -> list[nn.Module]:
        """Parts of the module that own some parameters, but the module itself."""
        own = dict(self.module.named_modules())
        found = dict.fromkeys(name.rpartition(".")[0] for name in names)
        return [own[owner] for owner in found if owner and owner in own]

    def listed(self, places: list[str]) -> str:
        """List parts by name and type."""
        own = dict(self.module.named_modules())
        kinds = dict.fromkeys(type(own[place]).__name__ for place in places if place in own)
        if "" in places or not kinds:  # by no layer of its own
            return listed(places)
        return f"{listed(places)} ({', '.join(kinds)})"

    def last(self, outputs: Tensor) -> str | None:
        """Return the function that gave the module's outputs, as they are or as a view of them."""
        memory = outputs.untyped_storage().data_ptr()
        for name, result in self._results.items():
            if isinstance(result, Tensor) and result.untyped_storage().data_ptr() == memory:
                return name
        return None


def _trained_among(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Tensors that depend on trained parameters, of those that a function does not scale in."""
    # Its input, or query and key; affine weights after a normalisation scale.
    given = args[:2] or tuple(kwargs.values())[:2]
    if name == "multi_head_attention_forward":  # its values and its last layer may be trained
        projections = ("q_proj_weight", "k_proj_weight")
        given = (*given, *args[5:9], *(kwargs.get(key) for key in projections))
    return [value for value in given if isinstance(value, Tensor) and value.requires_grad]
