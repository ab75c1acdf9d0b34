"""Evaluate a torch module at other values of its parameters, and leave it as it was.

Everything that measures a module goes through this file. `evaluate` is
`torch.func.functional_call`: a shared part or a tied weight is one parameter, which gets the same
value wherever it is registered. `undisturbed` puts back the attributes that a forward pass sets in
the parts of a module, a cache say, and `check_outputs` is the one check of what a module computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from implicit_bias.base import validation
from implicit_bias.base.validation import Array
from implicit_bias.networks import Network

# Samples on which a module is checked.
PROBES = 256
# What torch says, by a mere RuntimeError, where the processor has no memory left.
OF_MEMORY = "DefaultCPUAllocator"
# Outputs may differ by this share of the largest from those of another batch, by rounding.
BATCH_TOLERANCE = 1e-9

RECOMPUTED = (
    "it computes parts anew in its backward pass, when other parameters are in it: switch off "
    "activation checkpointing, which torch.utils.checkpoint does, and hooks of saved tensors"
)


@validation.pointing_to_the_page()
def as_module(module: object) -> nn.Module:
    """Return a module that can be measured, as it is given.

    Raises
    ------
    TypeError
        A classifier, say; a part that torch has compiled, scripted or spread over devices.
    ValueError
        Parameters without values; complex or sparse ones, or of 8 bits; a trained one in whose
        memory another tensor lies.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"a torch module is measured, not a {type(module).__name__}: of a classifier of "
            "this package pass classifier.network_"
        )
    for part in module.modules():
        cure = _unwrapping(part)
        if cure:
            raise TypeError(
                f"{type(part).__name__} cannot be evaluated at other values of its parameters: "
                f"pass {cure}"
            )
    for name, tensor in _named(module):
        if is_lazy(tensor) or tensor.is_meta:
            raise ValueError(
                f"{name!r} has no values yet: initialise the module (call a lazy one on a batch, "
                "move one on the meta device with to_empty and draw its weights)"
            )
        if tensor.grad_fn is not None:
            raise ValueError(
                f"the buffer {name!r} was computed from tensors that require a gradient, and does "
                "not follow them: compute it in forward, or keep its .detach()"
            )
    for name, parameter in module.named_parameters():
        coarse = parameter.is_floating_point() and parameter.itemsize < 2
        if parameter.is_complex() or parameter.layout != torch.strided or coarse:
            raise ValueError(
                f"parameter {name!r} is {parameter.layout} of {parameter.dtype}, and norms here "
                "are of dense real numbers of at least 16 bits: hold the real and imaginary parts "
                "of complex ones in parameters of their own, and take others .to_dense(), .float()"
            )
    for one, other in _overlapping(module):
        raise ValueError(
            f"{one!r} and {other!r} share memory, so that each step of a training moves both, "
            "while they would be measured as parameters of their own: let both names have one "
            "nn.Parameter (b.weight = a.weight), or take a clone() of its values"
        )
    return module


def _unwrapping(part: nn.Module) -> str:
    """Say what to pass in the place of a compiled, scripted or data-parallel part; "" of others."""
    if hasattr(part, "_orig_mod"):
        return "the module that torch.compile was given, module._orig_mod"
    if part._compiled_call_impl is not None:
        return "a copy of the module that was made before module.compile()"
    if isinstance(part, torch.jit.ScriptModule):
        return "the module that was scripted or traced"
    if isinstance(part, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return "the module that it spreads over devices, module.module"
    return ""


def _named(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _overlapping(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield names of tensors, of which one is trained, whose ranges of memory overlap."""
    ranges = list[tuple[int, int, str, bool]]()
    for name, tensor in _named(module):
        if tensor.layout == torch.strided and tensor.numel():
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            last = sum((size - 1) * step for size, step in steps)
            start = tensor.data_ptr()
            end = start + (last + 1) * tensor.itemsize
            ranges.append((start, end, name, tensor.requires_grad))
    for (_, end, one, first), (start, _, other, second) in pairwise(sorted(ranges)):
        if start < end and (first or second):
            yield one, other


def values_of(module: nn.Module) -> dict[str, Tensor]:
    """Copy all parameters and buffers in float64, each once, under the first of its names."""
    return {name: double(tensor).clone() for name, tensor in _named(module)}


def double(tensor: Tensor) -> Tensor:
    """Floating point as float64; indices and masks as they are."""
    plain = tensor.detach().resolve_neg()
    return plain.double() if plain.is_floating_point() else plain


def drawn_like(tensor: Tensor, seed: int = 0) -> Tensor:
    """Draw a tensor of the same shape with normal entries, the same ones every time."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Put back torch's random numbers, and the attributes that passes set in a module's parts.

    A pass of the float64 copies that `evaluate` takes may leave one in a cache, say.
    """
    kept = [(vars(part), dict(vars(part))) for part in module.modules()]
    try:
        cuda = {p.device for p in module.parameters() if p.is_cuda}
        # A recorder is often called in an evaluation under `torch.no_grad`, but needs gradients.
        with torch.random.fork_rng([*cuda]), torch.enable_grad():
            yield
    finally:
        for attributes, before in kept:
            attributes.update(before)
            for name in attributes.keys() - before.keys():
                del attributes[name]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[dict[nn.Module, bool]]:
    """Put a module into evaluation mode, undisturbed; yields which of its parts were training."""
    modes = {part: part.training for part in module.modules()}
    with undisturbed(module):
        # Not by `eval()`: a part may have one of its own, that merges weights, say.
        set_modes(dict.fromkeys(modes, False))
        yield modes


def set_modes(modes: Mapping[nn.Module, bool]) -> None:
    """Set which parts are in training mode."""
    for part, mode in modes.items():
        part.training = mode


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
        The output is no dense tensor of real numbers.
    """
    given = {id(own): values[name] for name, own in _named(module) if name in values}
    # A tied weight has several names, and all of them get its value. A part that is registered
    # twice is named once, as functional_call would not put it back otherwise.
    everywhere = dict[str, Tensor]()
    for path, part in module.named_modules():
        for name, own in chain(part._parameters.items(), part._buffers.items()):
            if id(own) in given:
                everywhere[f"{path}.{name}" if path else name] = given[id(own)]
    parametrize._cache.clear()  # of `parametrize.cached`: made of the module's own tensors
    try:
        outputs = functional_call(module, everywhere, inputs, tie_weights=False)
    finally:
        parametrize._cache.clear()
    dense = isinstance(outputs, Tensor) and outputs.layout == torch.strided
    if not dense or outputs.is_complex() or outputs.dtype == torch.bool:
        kind = f" of {outputs.dtype}" if dense else ""
        raise ValueError(
            f"the module returns a {type(outputs).__name__}{kind}, but must return one tensor of "
            "outputs (N,) or (N, K), dense and real: wrap it in a module that does"
        )
    return outputs


def check_outputs(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Refuse outputs that do not belong to one sample each, in the modes that a module is in.

    Parameters
    ----------
    module : nn.Module
        Left as it is, but for torch's random numbers.
    inputs : tuple of Tensor
        Its arguments, as `as_inputs` makes them; the first `PROBES` samples are looked at.

    Returns
    -------
    Tensor of shape (n,) or (n, K)
        Outputs of the first samples; (n,) of a module with outputs (n, 1), too.

    Raises
    ------
    ValueError
        Inputs that the module does not take; inputs or parameters into which it writes; outputs of
        another shape, not finite, random, dependent on the other samples of a batch, or on tensors
        that are trained and no parameters.
    """
    values, inputs = values_of(module), tuple(tensor[:PROBES] for tensor in inputs)
    n, everything = len(inputs[0]), slice(None)
    if not n:
        raise ValueError("there are no samples to measure or to train on: pass at least one")

    def outputs_of(rows: slice) -> Tensor:
        # Copies, of the values too: the module may write into what it is given.
        return evaluate(module, values, tuple(tensor[rows].clone() for tensor in inputs)).detach()

    given = tuple(tensor.clone() for tensor in inputs)
    recomputed = torch.autograd.graph.disable_saved_tensors_hooks(RECOMPUTED)
    with evaluated_at(inputs), torch.enable_grad(), recomputed:
        outputs = evaluate(module, values, given)
    if outputs.requires_grad:  # of no value: these are copies
        raise ValueError(
            "the module computes with tensors that require a gradient and are not among its "
            "parameters, so neither an optimizer nor this package finds them: keep parts in an "
            "nn.ModuleList and tensors in an nn.ParameterList, not in a list, and read parameters "
            "from the module in forward"
        )
    outputs = outputs.detach()
    for tensor, original in zip(given, inputs, strict=True):
        if not torch.equal(tensor.nan_to_num(), original.nan_to_num()):
            raise ValueError(
                "the module writes into its inputs, so a second evaluation sees other ones: "
                "compute x = x * 2 instead of x *= 2, and leave inplace=True out of its first layer"
            )
    for name, parameter in module.named_parameters():
        if not torch.equal(values[name].nan_to_num(), double(parameter).nan_to_num()):
            raise ValueError(
                f"the module writes into its parameter {name!r} when it is evaluated (max_norm, a "
                "projection?), so it is no function of its parameters: do that in the training loop"
            )
    if outputs.ndim not in (1, 2) or len(outputs) != n or outputs.numel() == 0:
        raise ValueError(
            f"the module's outputs have shape {tuple(outputs.shape)} for {n} samples, but must be "
            "(N,) or (N, 1) for labels -1 and +1, or (N, K) for classes 0 .. K - 1: flatten them, "
            "or average over positions"
        )
    tolerance = BATCH_TOLERANCE * outputs.abs().max()
    half = (n + 1) // 2
    with torch.no_grad(), evaluated_at(inputs):  # a module may take one size of batch only
        if (outputs_of(everything) - outputs).abs().max() > tolerance:
            raise ValueError(
                "the module's outputs are random, or depend on earlier ones: two evaluations "
                "differ. Call module.eval(), and switch off what draws random numbers there, too, "
                "such as dropout(training=True)"
            )
        for rows in (slice(half), slice(half, n))[:n]:
            if (outputs_of(rows) - outputs[rows]).abs().max() > tolerance:
                raise ValueError(
                    "a sample's output depends on the other samples of its batch (batch "
                    "statistics?): the module must treat its samples one by one; call "
                    "module.eval() where a normalisation in training mode does that"
                )
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


def as_arguments(given: Any, module: nn.Module) -> tuple[Tensor | Array, ...]:
    """Arguments of a module, from a tuple of them or from a single one, or samples of a Network.

    Raises
    ------
    ValueError
        None; one that is no dense array or tensor of numbers.
    """
    if isinstance(module, Network) and not isinstance(given, tuple):
        given = module.prepare(validation.as_features(given, module.n_features))
    arguments = given if isinstance(given, tuple) else (given,)
    if not arguments or given is None:
        raise ValueError("there are no inputs: pass X, or a tuple of the module's arguments")
    return tuple(map(_as_argument, arguments))


def _as_argument(given: object) -> Tensor | Array:
    if isinstance(given, Tensor):
        if given.layout != torch.strided:
            raise ValueError("inputs must be dense, but are sparse: pass inputs.to_dense()")
        return given
    validation.check_not_masked(given, "inputs")
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"inputs are no array ({error}): pass X, or a tuple of the module's arguments"
        ) from error
    # A frame's columns of several types make objects, which may all be numbers.
    numeric = array.dtype.kind in "biufc" and array.dtype != np.longdouble  # torch has none
    return array if numeric else validation.as_finite(cast(ArrayLike, given), "inputs", array.ndim)


def labels_as_array(labels: ArrayLike | Tensor) -> NDArray[Any]:
    """Labels (N,) or (N, 1), of any type of array or tensor, as an array (N,).

    Raises
    ------
    ValueError
        Rows of several entries; what is no array, or has no order.
    """
    validation.check_not_masked(labels, "labels")
    # As float64, for numpy knows no bfloat16.
    try:
        array = np.asarray(double(labels).cpu() if isinstance(labels, Tensor) else labels)
        np.unique(array)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise ValueError(
            f"labels are no array of numbers ({error}): pass one a sample, and none missing"
        ) from error
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
    inputs = tuple(t if isinstance(t, Tensor) else _as_tensor(t) for t in given)
    if any(tensor.ndim == 0 or len(tensor) != n_samples for tensor in inputs):
        raise ValueError(
            f"each input must have the {n_samples} samples as its first axis, got shapes "
            f"{[tuple(tensor.shape) for tensor in inputs]}: pass the module's arguments as a "
            "tuple of tensors"
        )
    if any(tensor.is_meta for tensor in inputs):
        raise ValueError("inputs on the meta device have no values: pass those on another one")
    converted = (double(tensor).to(device) for tensor in inputs)
    # Tensors that were made in inference mode cannot be in a graph, unlike copies of them.
    return tuple(tensor.clone() if tensor.is_inference() else tensor for tensor in converted)


def _as_tensor(array: Array) -> Tensor:
    """Copy an array of any memory order and byte order, which torch does not take."""
    return torch.tensor(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")))


@contextmanager
def explained(
    explain: Callable[[Exception], str], kind: type[Exception] = RuntimeError
) -> Iterator[None]:
    """Say what an error of torch's, or of a module's, means, but for a lack of memory.

    Raises
    ------
    ValueError
        An error of the kind was raised, which is its cause.
    """
    try:
        yield
    except (ValueError, MemoryError, torch.OutOfMemoryError):
        raise
    except kind as error:
        if OF_MEMORY in str(error):
            raise
        raise ValueError(explain(error)) from error


def evaluated_at(inputs: tuple[Tensor, ...]) -> AbstractContextManager[None]:
    """Say what the inputs are where a module cannot be evaluated at them."""
    given = ", ".join(f"{tuple(tensor.shape)} of {tensor.dtype}" for tensor in inputs)
    return explained(
        lambda error: (
            f"the module cannot be evaluated at inputs of shapes {given} ({type(error).__name__}: "
            f"{error}): pass them as it takes them in training, several arguments as a tuple, and "
            "numbers with a decimal point where it multiplies them with weights; tensors of the "
            "module's own that are neither parameters nor buffers are not taken to float64: "
            "register them"
        ),
        Exception,  # the module's own code can raise anything
    )
