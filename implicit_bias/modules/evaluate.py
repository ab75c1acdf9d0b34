"""Evaluate a torch module at other values of its parameters, and leave it as it was.

Everything that measures a module goes through this file. `evaluate` is
`torch.func.functional_call`: a shared part or a tied weight is one parameter, which gets the same
value wherever it is registered. `undisturbed` puts back the attributes that a forward pass sets in
the parts of a module, a cache say. There is one check of a module (`as_module`), one of what it
computes (`check_outputs`), and one of its samples (`as_arguments`, `as_inputs`, `labels_as_array`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
from implicit_bias.modules.torch_errors import evaluated_at
from implicit_bias.networks import Network

# Samples on which a module is checked.
PROBES = 256
# Outputs may differ by this share of the largest from those of another batch, by rounding.
BATCH_TOLERANCE = 1e-9

RECOMPUTED = (
    "it computes parts anew in its backward pass, when other parameters are in it: switch off "
    "activation checkpointing, which torch.utils.checkpoint does, and hooks of saved tensors"
)


# --- the module ----------------------------------------------------------------------------------


@validation.pointing_to_the_page()
def as_module(module: object) -> nn.Module:
    """Return a module that can be measured, as it is given.

    Raises
    ------
    TypeError
        A classifier, say; a part that torch has compiled, scripted or spread over devices.
    ValueError
        Parameters without values; complex or sparse ones, or of 8 bits; a trained one in whose
        memory another tensor lies; a cache of parametrised weights.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"a torch module is measured, not a {type(module).__name__}: of a classifier of "
            "this package pass classifier.network_"
        )
    for part in module.modules():
        compiled = hasattr(part, "_orig_mod") or part._compiled_call_impl is not None
        spread = isinstance(part, (nn.DataParallel, nn.parallel.DistributedDataParallel))
        if compiled or spread or isinstance(part, torch.jit.ScriptModule):
            raise TypeError(
                f"{type(part).__name__} cannot be evaluated at other values of its parameters: "
                "pass the plain module that was compiled (module._orig_mod, or a copy that was "
                "made before module.compile()), scripted or traced, or spread over devices "
                "(module.module)"
            )
    if parametrize._cache_enabled:
        raise ValueError(
            "weights are kept by parametrize.cached(), whatever their parameters are: measure the "
            "module outside"
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
    _check_memory(module)
    return module


def _check_memory(module: nn.Module) -> None:
    """Refuse a trained tensor whose range of memory overlaps with that of another one.

    Raises
    ------
    ValueError
        It has both names.
    """
    ranges = list[tuple[int, int, str, bool]]()
    for name, tensor in _named(module):
        if tensor.layout == torch.strided and tensor.numel():
            last = 0
            for size, step in zip(tensor.shape, tensor.stride(), strict=True):
                last += (size - 1) * step
            start = tensor.data_ptr()
            end = start + (last + 1) * tensor.itemsize
            ranges.append((start, end, name, tensor.requires_grad))
    for (_, end, one, first), (start, _, other, second) in pairwise(sorted(ranges)):
        if start < end and (first or second):
            raise ValueError(
                f"{one!r} and {other!r} share memory, so that each step of a training moves both, "
                "while they would be measured as parameters of their own: let both names have one "
                "nn.Parameter (b.weight = a.weight), or take a clone() of its values"
            )


def _named(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


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
    outputs = functional_call(module, everywhere, inputs, tie_weights=False)
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
    values = values_of(module)
    inputs = tuple(tensor[:PROBES] for tensor in inputs)
    n = len(inputs[0])
    if not n:
        raise ValueError("there are no samples to measure or to train on: pass at least one")

    # --- one pass, of copies: the module may write into what it is given
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

    # --- the same samples once more, and each half of them alone
    tolerance = BATCH_TOLERANCE * outputs.abs().max()
    half = (n + 1) // 2
    parts = [slice(0, n), slice(0, half)]
    if half < n:
        parts.append(slice(half, n))
    for rows in parts:
        some = tuple(tensor[rows].clone() for tensor in inputs)
        with torch.no_grad(), evaluated_at(inputs):  # a module may take one size of batch only
            again = evaluate(module, values, some)
        if not (again - outputs[rows]).abs().max() > tolerance:  # so also where some are NaN
            continue
        if rows == parts[0]:
            raise ValueError(
                "the module's outputs are random, or depend on earlier ones: two evaluations "
                "differ. Call module.eval(), and switch off what draws random numbers there, too, "
                "such as dropout(training=True)"
            )
        raise ValueError(
            "a sample's output depends on the other samples of its batch (batch "
            "statistics?): the module must treat its samples one by one; call "
            "module.eval() where a normalisation in training mode does that"
        )
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


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
    array = np.asarray(given)
    if array.dtype.kind in "biufc" and array.dtype != np.longdouble:  # torch has none
        return array
    # A frame's columns of several types make objects, which may all be numbers.
    return validation.as_finite(cast(ArrayLike, given), "inputs", array.ndim)


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
    inputs = list[Tensor]()
    for argument in given:
        if isinstance(argument, Tensor):
            inputs.append(argument)
        else:  # of any memory order and byte order, which torch does not take
            native = argument.dtype.newbyteorder("=")
            inputs.append(torch.tensor(np.ascontiguousarray(argument, dtype=native)))
    if any(tensor.ndim == 0 or len(tensor) != n_samples for tensor in inputs):
        raise ValueError(
            f"each input must have the {n_samples} samples as its first axis, got shapes "
            f"{[tuple(tensor.shape) for tensor in inputs]}: pass the module's arguments as a "
            "tuple of tensors"
        )
    if any(tensor.is_meta for tensor in inputs):
        raise ValueError("inputs on the meta device have no values: pass those on another one")
    converted = [double(tensor).to(device) for tensor in inputs]
    # Tensors that were made in inference mode cannot be in a graph, unlike copies of them.
    return tuple(tensor.clone() if tensor.is_inference() else tensor for tensor in converted)
