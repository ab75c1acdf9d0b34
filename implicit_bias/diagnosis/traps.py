"""What keeps a module from having a limit that can be measured, each with its name and its cure.

Some traps can be mended here (a module in training mode, parameters that get no gradient): the
user is warned. Others make the question meaningless (a bias, softmax attention): an error says
which part of the module it is. All tests are of what the module computes; the module's forward
pass is watched only to name the culprit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from implicit_bias.base.validation import Array
from implicit_bias.diagnosis.homogeneity import TRAPS, degree_or_cause, listed
from implicit_bias.measure.margin_gradients import MarginGradients, Pairs
from implicit_bias.measure.modules import (
    as_inputs,
    check_finite,
    check_outputs,
    evaluate,
    set_modes,
    values_of,
)
from implicit_bias.networks import Network

# Samples on which the forward pass is watched.
WATCHED = 4
# Functions that drop units out.
DROPOUT = (
    "dropout",
    "alpha_dropout",
    "feature_alpha_dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
)


class DiagnosisWarning(UserWarning):
    """A number that `diagnose` reports means less than it seems.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", DiagnosisWarning)  # where none is to pass unseen
    >>> warnings.simplefilter("default", DiagnosisWarning)
    """


def mode_matters(
    module: nn.Module, inputs: tuple[Tensor, ...], modes: Mapping[nn.Module, bool]
) -> bool:
    """Whether a module's outputs in the modes it was in differ from those in evaluation mode.

    It is left in evaluation mode.
    """
    if not any(modes.values()):
        return False

    def outputs() -> Tensor:
        return evaluate(module, values_of(module), tuple(t[:WATCHED] for t in inputs))

    with torch.no_grad():
        evaluated = outputs()
        set_modes(modes)
        try:
            return not torch.equal(outputs(), evaluated)
        except ValueError:  # batch statistics of a single sample
            return True
        finally:
            set_modes(dict.fromkeys(modes, False))


class _Watch(TorchFunctionMode):
    """Writes down which functions a forward pass calls, and in which part of the module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.names = {id(part): name for name, part in module.named_modules()}
        self.inside: list[str] = []
        self.seen: dict[str, list[str]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "").strip("_")
        if name in TRAPS or name in DROPOUT:
            places = self.seen.setdefault(name, [])
            if self.place not in places:
                places.append(self.place)
        return func(*args, **(kwargs or {}))

    @property
    def place(self) -> str:
        """Name of the part that is running; empty for the module itself."""
        return next((name for name in reversed(self.inside) if name), "")

    @contextmanager
    def following(self) -> Iterator[None]:
        """Know which part is running."""

        def enter(part: nn.Module, _: Any) -> None:
            self.inside.append(self.names.get(id(part), ""))

        def leave(part: nn.Module, _: Any, __: Any) -> None:
            self.inside.pop()

        handles = [
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def functions_used(module: nn.Module, inputs: tuple[Tensor, ...]) -> dict[str, list[str]]:
    """Which of the functions in `TRAPS` and `DROPOUT` a forward pass calls, and in which parts."""
    watch = _Watch(module)
    with torch.no_grad(), watch.following(), watch:
        evaluate(module, values_of(module), tuple(tensor[:WATCHED] for tensor in inputs))
    return watch.seen


@dataclass(frozen=True, eq=False)
class Checked:
    """A module with samples that it can be measured on.

    Attributes
    ----------
    gradients : MarginGradients
        Of the parameters that count.
    degree : float
        L.
    excluded : tuple of str
        Names of the parameters that do not count.
    warnings : tuple of str
        What the user must know.
    """

    gradients: MarginGradients
    degree: float
    excluded: tuple[str, ...]
    warnings: tuple[str, ...]


def check(
    module: nn.Module,
    given: tuple[Tensor | Array, ...],
    labels: ArrayLike,
    *,
    modes: Mapping[nn.Module, bool],
    optimizer: object,
) -> Checked:
    """Check all that does not depend on the norm, of a module in evaluation mode.

    Raises
    ------
    HomogeneityError
        The module is not homogeneous; the message names the part that breaks it, with a cure.
    ValueError
        Inputs, outputs or labels that do not fit; outputs that are random, depend on the other
        samples of a batch, are not finite, or have no second derivatives in torch.
    """
    warnings = list[str]()
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    inputs = as_inputs(given, len(given[0]) if given[0].ndim else 0, device)
    classes = _classes(check_outputs(module, inputs), labels)
    seen = functions_used(module, inputs)
    if mode_matters(module, inputs, modes):
        warnings.append(
            "the module is in training mode, where its outputs differ from those in evaluation "
            "mode; it was measured in the latter and left as it was: call module.eval() first"
        )
    dropped = [place for name in DROPOUT for place in seen.get(name, ())]
    if dropped:
        warnings.append(
            f"dropout in {listed(dropped)} is off here, while training with it minimises another "
            "loss: leave it out of a training whose limit is asked for"
        )
    pairs = Pairs.of(labels, len(inputs[0]), classes)
    gradients = MarginGradients(module, inputs, pairs)
    check_finite(gradients.outputs(gradients.theta))
    excluded = without_gradient(gradients)
    warnings += [
        f"parameter {name!r} gets no gradient from any sample (a gate's own weights, or units that "
        "are all dead), so it is not trained and does not count in the norm: freeze it with "
        "requires_grad_(False), or make it a buffer"
        for name in excluded
    ]
    untouched = _left_out(module, optimizer)
    warnings += [
        f"parameter {name!r} is not among those of the optimizer, so it does not count in the "
        "norm: freeze it with requires_grad_(False), or give it to the optimizer"
        for name in untouched
    ]
    excluded = tuple(dict.fromkeys([*excluded, *untouched]))
    if excluded:
        names = [name for name in gradients.shapes if name not in excluded]
        if not names:
            raise ValueError(
                "no parameter gets a gradient, so nothing is trained: is the output computed from "
                "the parameters without detach() and without no_grad()?"
            )
        gradients = gradients.restricted(names, gradients.theta)
    return Checked(gradients, degree_or_cause(gradients, seen), excluded, tuple(warnings))


def _classes(outputs: Tensor, labels: ArrayLike) -> int | None:
    """K of outputs (n, K), None of outputs (n,), if the labels are of that kind."""
    classes = outputs.shape[1] if outputs.ndim == 2 else None
    found = np.unique(np.asarray(labels))
    if classes is None and set(found.tolist()) == {0, 1}:
        raise ValueError(
            "labels are 0 and 1, but the module has one output a sample: recode them as -1 and +1 "
            "(2 * labels - 1)"
        )
    if classes is not None and -1 in found:
        raise ValueError(
            f"labels are {found[:5].tolist()}, but the module has {classes} outputs a sample: pass "
            f"classes 0 .. {classes - 1}"
        )
    return classes


def without_gradient(gradients: MarginGradients) -> tuple[str, ...]:
    """Names of the parameters, not 0, in which a random combination of margins has no gradient."""
    weights = np.random.default_rng(0).random(len(gradients.pairs))
    theta = gradients.parameters(gradients.theta)
    v = gradients.parameters(gradients.combine(gradients.theta, weights))
    none = tuple(name for name, part in v.items() if theta[name].any() and not part.any())
    # Where all margins are 0 they do not show which parameters could get a gradient.
    shown = gradients.margins(gradients.theta).any() or any(part.any() for part in v.values())
    return none if shown else ()


def _left_out(module: nn.Module, optimizer: object) -> tuple[str, ...]:
    """Names of trained parameters that an optimizer was not given."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return ()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    own = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not any(id(p) in held for _, p in own):
        return ()  # of another copy of the module
    return tuple(name for name, p in own if id(p) not in held)


def is_gated(module: nn.Module) -> bool:
    """Whether a module is one of this package's networks with fixed gates and one hidden layer."""
    return isinstance(module, Network) and module.fixed_gates and module.has_margin_structure
