"""What keeps a module from having a limit that can be measured, each with its name and its cure.

Some traps can be mended here (a module in training mode, parameters that get no gradient): the
user is warned. Others make the question meaningless (a bias, softmax attention): an error says
which part of the module it is. All tests are of what the module computes; the module's forward
pass is watched only to name the culprit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode

from implicit_bias.diagnosis.homogeneity import TRAPS, degree_or_cause, listed
from implicit_bias.margin_gradients import MarginGradients, Pairs, as_inputs, double, evaluated_at
from implicit_bias.networks import Network
from implicit_bias.validation import Array

# Outputs may differ by this share from those of another batch, by rounding.
BATCH_TOLERANCE = 1e-9
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


@contextmanager
def evaluating(module: nn.Module) -> Iterator[dict[nn.Module, bool]]:
    """Put a module into evaluation mode, and each of its parts back; yields who was training."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        # The caller may have switched gradients off, as loops do where they measure.
        with torch.inference_mode(False), torch.enable_grad():
            yield modes
    finally:
        _set(modes)


def _set(modes: Mapping[nn.Module, bool]) -> None:
    for part, mode in modes.items():
        part.training = mode


def mode_matters(
    module: nn.Module, inputs: tuple[Tensor, ...], modes: Mapping[nn.Module, bool]
) -> bool:
    """Whether a module's outputs in the modes it was in differ from those in evaluation mode.

    It is left in evaluation mode. Its buffers, which batch statistics would move, are copied, and
    torch's random numbers are put back.
    """
    if not any(modes.values()):
        return False

    def outputs() -> Tensor:
        values = {k: double(t).clone() for k, t in itertools.chain(*_named(module))}
        found = torch.func.functional_call(module, values, tuple(t[:WATCHED] for t in inputs))
        return cast(Tensor, found)

    with torch.no_grad(), torch.random.fork_rng():
        evaluated = outputs()
        _set(modes)
        try:
            return not torch.equal(outputs(), evaluated)
        except ValueError:  # batch statistics of a single sample
            return True
        finally:
            module.eval()


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
    values = {k: double(t) for k, t in itertools.chain(*_named(module))}
    few = tuple(tensor[:WATCHED].clone() for tensor in inputs)
    with evaluated_at(inputs), torch.no_grad(), watch.following(), watch:
        torch.func.functional_call(module, values, few)
    for tensor, original in zip(few, inputs, strict=True):
        if not torch.equal(tensor.nan_to_num(), original[:WATCHED].nan_to_num()):
            raise ValueError(
                "the module writes into its inputs, so a second evaluation sees other ones: "
                "compute x = x * 2 instead of x *= 2, and leave inplace=True out of its first layer"
            )
    return watch.seen


def _named(module: nn.Module) -> tuple[Iterator[tuple[str, Tensor]], Iterator[tuple[str, Tensor]]]:
    return module.named_parameters(), module.named_buffers()


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
    for name, parameter in module.named_parameters():
        if parameter.is_complex():
            raise ValueError(
                f"parameter {name!r} is complex, and norms here are of real numbers: hold its real "
                "and imaginary parts in parameters of their own"
            )
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    inputs = as_inputs(given, len(given[0]) if given[0].ndim else 0, device)
    seen = functions_used(module, inputs)
    classes = _classes(module, inputs, labels)
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
    _check_outputs(gradients)
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


def _classes(module: nn.Module, inputs: tuple[Tensor, ...], labels: ArrayLike) -> int | None:
    """K of outputs (N, K); None of outputs (N,) or (N, 1)."""
    values = {k: double(t) for k, t in itertools.chain(*_named(module))}
    with torch.no_grad():
        outputs = torch.func.functional_call(module, values, tuple(t[:WATCHED] for t in inputs))
    n = min(WATCHED, len(inputs[0]))
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the module returns a {type(outputs).__name__}, but must return one tensor of outputs "
            "(N,) or (N, K): wrap it in a module that does"
        )
    if outputs.ndim not in (1, 2) or len(outputs) != n or outputs.numel() == 0:
        raise ValueError(
            f"the module's outputs have shape {tuple(outputs.shape)} for {n} samples, but must be "
            "(N,) or (N, 1) for labels -1 and +1, or (N, K) for classes 0 .. K - 1: flatten them, "
            "or average over positions"
        )
    classes = None if outputs.ndim == 1 or outputs.shape[1] == 1 else outputs.shape[1]
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


def _check_outputs(gradients: MarginGradients) -> None:
    """Refuse outputs that are not finite, or that depend on more than the sample."""
    theta = gradients.theta
    outputs = gradients.outputs(theta)
    if not np.isfinite(outputs).all():
        raise ValueError(
            "the module's outputs contain NaN or infinity: are its inputs finite, and did its "
            "training diverge?"
        )
    size = np.abs(outputs).max()
    if np.abs(gradients.outputs(theta) - outputs).max() > BATCH_TOLERANCE * size:
        raise ValueError(
            "the module's outputs are random: two evaluations differ. Switch off what draws random "
            "numbers in evaluation mode, such as dropout(training=True)"
        )
    half = (len(outputs) + 1) // 2
    with torch.no_grad():
        alone = gradients.outputs_of(theta, slice(0, half)).cpu().numpy()
    if np.abs(alone - outputs[:half]).max() > BATCH_TOLERANCE * size:
        raise ValueError(
            "a sample's output depends on the other samples of its batch (batch statistics?): the "
            "module must treat its samples one by one"
        )


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


def check_module(module: object) -> nn.Module:
    """Refuse what is no module.

    Raises
    ------
    TypeError
        A classifier, say.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"diagnose takes a torch module, not a {type(module).__name__}: of a classifier of "
            "this package pass classifier.network_, with network_.prepare(X) as inputs"
        )
    return module


def is_gated(module: nn.Module) -> bool:
    """Whether a module is one of this package's networks with fixed gates and one hidden layer."""
    return isinstance(module, Network) and module.fixed_gates and module.has_margin_structure
