"""Evaluate a torch module at other values of its parameters, and leave it as it was.

Everything that measures a module goes through this file. `undisturbed` makes a copy of a module's
parts that shares its tensors, so that modes and attributes are set on the copy alone, and
`evaluate` is `torch.func.functional_call`: a shared part or a tied weight is one parameter, which
gets the same value wherever it is registered. There is one check of a module (`as_module`), one of
what it computes (`check_outputs`), and one of its samples (`as_arguments`, `as_inputs`,
`labels_as_array`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from types import MethodType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call

from implicit_bias.base import validation
from implicit_bias.base.validation import Array
from implicit_bias.networks import Network

# Samples on which a module is checked.
PROBES = 64


# --- the module ----------------------------------------------------------------------------------


@validation.pointing_to_the_page()
def as_module(module: object) -> nn.Module:
    """Return a module that can be measured, as it is given.

    Raises
    ------
    TypeError
        A classifier, say; a part that torch has compiled, scripted or spread over devices.
    ValueError
        Complex or sparse parameters; two that lie in the same memory.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"a torch module is measured, not a {type(module).__name__}: of a classifier of "
            "this package pass classifier.network_"
        )
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel, torch.jit.ScriptModule)
    for part in module.modules():
        compiled = hasattr(part, "_orig_mod") or part._compiled_call_impl is not None
        if compiled or isinstance(part, wrappers):
            raise TypeError(
                f"{type(part).__name__} is compiled, scripted or spread over devices, and cannot "
                "be evaluated at other values of its parameters: pass the plain module "
                "(module._orig_mod, module.module)"
            )
    owners = dict[int, str]()
    for name, parameter in module.named_parameters():
        if parameter.is_complex() or parameter.layout != torch.strided:
            raise ValueError(
                f"parameter {name!r} is {parameter.layout} of {parameter.dtype}, and norms here "
                "are of dense real numbers: hold real and imaginary parts in parameters of their "
                "own, and take sparse ones .to_dense()"
            )
        if parameter.numel():
            other = owners.setdefault(parameter.data_ptr(), name)
            if other != name:
                raise ValueError(
                    f"{other!r} and {name!r} share memory, so that each step of a training moves "
                    "both: let both names have one nn.Parameter (b.weight = a.weight)"
                )
    return module


def same_random_numbers(module: nn.Module) -> AbstractContextManager[None]:
    """Return a context after which torch draws the same random numbers as without it."""
    return torch.random.fork_rng({p.device for p in module.parameters() if p.is_cuda})


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a copy of a module's parts that shares its tensors, and put back random numbers.

    A forward pass may set attributes (a cache, say), and does so in the copy. `evaluate` passes
    other tensors in the place of parameters and buffers, so a pass cannot change these. Gradients
    are enabled, as a recorder is often called in an evaluation under `torch.no_grad`.
    """
    shared = dict[int, Any]()
    for part in module.modules():
        for value in chain(vars(part).values(), part._parameters.values(), part._buffers.values()):
            # Parts, containers of parts, and methods bound to them are copied, all else is not: it
            # may be large, or have no copy (the tensor that a pass left behind, a trainer).
            if not isinstance(value, (nn.Module, dict, list, tuple, set, MethodType)):
                shared[id(value)] = value
    with same_random_numbers(module), torch.enable_grad():
        yield copy.deepcopy(module, shared)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[tuple[nn.Module, dict[nn.Module, bool]]]:
    """Yield an `undisturbed` copy in evaluation mode, and which of its parts are training."""
    with undisturbed(module) as copied:
        modes = {part: part.training for part in copied.modules()}
        # Not by `eval()`: a part may have one of its own, that merges weights, say.
        for part in modes:
            part.training = False
        yield copied, modes


def _named(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def values_of(module: nn.Module) -> dict[str, Tensor]:
    """Copy all parameters and buffers in float64, each once, under the first of its names."""
    # Clones, as `double` returns a tensor of float64 itself, and the module may write into what it
    # is given.
    return {name: double(tensor).clone() for name, tensor in _named(module)}


def double(tensor: Tensor) -> Tensor:
    """Floating point as float64; indices and masks as they are."""
    plain = tensor.detach()
    if plain.is_floating_point():
        return plain.double()
    return plain


def drawn_like(tensor: Tensor, seed: int = 0) -> Tensor:
    """Draw a tensor of the same shape with normal entries, the same ones every time."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)


# --- its outputs ---------------------------------------------------------------------------------


def evaluate(module: nn.Module, values: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    """Call a module with other tensors in the place of its parameters and buffers.

    Parameters
    ----------
    module : nn.Module
        Left as it is.
    values : mapping from name to Tensor
        Parameters and buffers by the names of `values_of`; those not named stay. The module may
        write into them.
    inputs : tuple of Tensor
        Its arguments.

    Raises
    ------
    ValueError
        The output is no tensor.
    """
    given = dict[int, Tensor]()
    for name, tensor in _named(module):
        if name in values:
            given[id(tensor)] = values[name]
    # A tied weight has several names, and all of them get its value. A part that is registered
    # twice is named once, as functional_call would not put it back otherwise.
    everywhere = dict[str, Tensor]()
    for path, part in module.named_modules():
        for name, tensor in chain(part._parameters.items(), part._buffers.items()):
            if id(tensor) not in given:
                continue
            if path:  # that of the module itself is empty
                name = f"{path}.{name}"
            everywhere[name] = given[id(tensor)]
    outputs = functional_call(module, everywhere, inputs, tie_weights=False)
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the module returns a {type(outputs).__name__}, but must return one tensor of outputs "
            "(N,) or (N, K): wrap it in a module that does"
        )
    return outputs


def check_outputs(module: nn.Module, inputs: tuple[Tensor, ...], tolerance: float = 1e-9) -> Tensor:
    """Refuse outputs that do not belong to one sample each, in the modes that a module is in.

    Parameters
    ----------
    module : nn.Module
        Left as it is, but for torch's random numbers.
    inputs : tuple of Tensor
        Its arguments, as `as_inputs` makes them; the first `PROBES` samples are looked at.
    tolerance : float
        Outputs may differ by this fraction of the largest from those of another batch, by rounding.

    Returns
    -------
    Tensor of shape (n,) or (n, K)
        Outputs of the first samples; (n,) of a module with outputs (n, 1), too.

    Raises
    ------
    ValueError
        Inputs into which the module writes; outputs of another shape, random, dependent on the
        other samples of a batch, or on tensors that are trained and no parameters.
    """
    values = values_of(module)
    inputs = tuple(tensor[:PROBES] for tensor in inputs)
    n = len(inputs[0])
    if not n:
        raise ValueError("there are no samples to measure or to train on: pass at least one")

    # --- one pass, of copies: the module may write into what it is given
    given = tuple(tensor.clone() for tensor in inputs)
    # A backward pass that computes anew would find other parameters in the module, and gradients
    # would be wrong in silence.
    refusal = "a module is measured without activation checkpointing and hooks of saved tensors"
    no_checkpoints = torch.autograd.graph.disable_saved_tensors_hooks(refusal)
    try:
        with torch.enable_grad(), no_checkpoints:
            outputs = evaluate(module, values, given)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or refusal in str(error):
            raise
        # Mostly a layer got another number of features than it was built for.
        shapes = ", ".join(str(tuple(tensor.shape[1:])) for tensor in inputs)
        raise ValueError(
            f"the module fails on inputs whose samples have shape {shapes} ({error}): pass the "
            "inputs, and as many features, as the module takes"
        ) from error
    if outputs.requires_grad:  # of no value: these are copies
        raise ValueError(
            "the module computes with tensors that require a gradient and are not among its "
            "parameters, so neither an optimizer nor this package finds them: keep parts in an "
            "nn.ModuleList and tensors in an nn.ParameterList, not in a list, and read parameters "
            "from the module in forward"
        )
    outputs = outputs.detach()
    # Inputs are held for all later passes, so one that is written into spoils them in silence.
    for tensor, original in zip(given, inputs, strict=True):
        if not torch.equal(tensor.nan_to_num(), original.nan_to_num()):
            raise ValueError(
                "the module writes into its inputs, so a second evaluation sees other ones: "
                "compute x = x * 2 instead of x *= 2, and leave inplace=True out of its first layer"
            )
    if outputs.ndim not in (1, 2) or len(outputs) != n or outputs.numel() == 0:
        raise ValueError(
            f"the module's outputs have shape {tuple(outputs.shape)} for {n} samples, but must be "
            "(N,) or (N, 1) for labels -1 and +1, or (N, K) for classes 0 .. K - 1: flatten them, "
            "or average over positions"
        )

    # --- the same samples once more, and the first half of them alone
    allowed = tolerance * outputs.abs().max()
    for count in (n, (n + 1) // 2):
        some = tuple(tensor[:count].clone() for tensor in inputs)
        with torch.no_grad():
            again = evaluate(module, values, some)
        if (again - outputs[:count]).abs().max() > allowed:  # not where some are NaN
            raise ValueError(
                "a sample's output is random, or depends on earlier passes or on the other samples "
                "of its batch: call module.eval(), and switch off what draws random numbers there, "
                "too, such as dropout(training=True)"
            )
    if outputs.ndim == 2 and outputs.shape[1] == 1:
        return outputs[:, 0]
    return outputs


# --- its samples ---------------------------------------------------------------------------------


def as_arguments(given: Any, module: nn.Module) -> tuple[Tensor | Array, ...]:
    """Arguments of a module, from a tuple of them or from a single one, or samples of a Network.

    Raises
    ------
    ValueError
        None; one that is no dense array or tensor of numbers.
    """
    if isinstance(module, Network) and not isinstance(given, tuple):
        given = module.prepare(validation.as_features(given, module.n_features))
    arguments = given
    if not isinstance(given, tuple):
        arguments = (given,)
    if not arguments or given is None:
        raise ValueError("there are no inputs: pass X, or a tuple of the module's arguments")
    return tuple(map(_as_argument, arguments))


def _as_argument(given: object) -> Tensor | Array:
    if isinstance(given, Tensor):
        if given.layout != torch.strided:
            raise ValueError("inputs must be dense, but are sparse: pass inputs.to_dense()")
        return given
    validation.check_not_masked(given, "inputs")
    array = np.asarray(given)
    if array.dtype.kind in "biuf":
        return array
    # A frame's columns of several types make objects, which may all be numbers.
    return validation.as_finite(cast(ArrayLike, given), "inputs", array.ndim)


def labels_as_array(labels: ArrayLike | Tensor) -> NDArray[Any]:
    """Labels (N,) or (N, 1), of any type of array or tensor, as an array (N,).

    Raises
    ------
    ValueError
        Rows of several entries; what is no number.
    """
    validation.check_not_masked(labels, "labels")
    if isinstance(labels, Tensor):
        labels = double(labels).cpu().numpy()  # in float64, for numpy knows no bfloat16
    array = np.asarray(labels)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            "labels must be numbers, one a sample, and none missing: number the classes, as "
            "np.unique(labels, return_inverse=True)[1] does"
        )
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    validation.check_one_each(array, "labels")
    return array


def as_inputs(
    given: tuple[Tensor | Array, ...], n_samples: int, device: torch.device
) -> tuple[Tensor, ...]:
    """Convert the arguments of a module: floating point as float64, on its device.

    Raises
    ------
    ValueError
        Not the samples as first axis of each.
    """
    inputs = list[Tensor]()
    for argument in given:
        if isinstance(argument, Tensor):
            inputs.append(argument)
        else:  # contiguous, as torch takes no negative strides
            inputs.append(torch.tensor(np.ascontiguousarray(argument)))
    shapes = [tuple(tensor.shape) for tensor in inputs]
    for shape in shapes:
        if shape[:1] != (n_samples,):
            raise ValueError(
                f"each input must have the {n_samples} samples as its first axis, got shapes "
                f"{shapes}: pass the module's arguments as a tuple of tensors"
            )
    return tuple(double(tensor).to(device) for tensor in inputs)
