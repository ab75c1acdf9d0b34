"""What errors mean that torch, or the code of a module, raises while a module is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

# What torch says, by a mere RuntimeError, where the processor has no memory left.
OF_MEMORY = "DefaultCPUAllocator"


@contextmanager
def explained(
    explain: Callable[[Exception], str], kind: type[Exception] = RuntimeError
) -> Iterator[None]:
    """Say what an error means, but for a lack of memory.

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


def defined() -> AbstractContextManager[None]:
    """Say that a module has no outputs at other parameters than its own, scaled or 0, say."""
    return explained(
        lambda error: (
            "the module has outputs at its own parameters, but not at all multiples of them "
            f"({type(error).__name__}: {error}): let its forward pass invert no trained matrix, "
            "and check no sizes of numbers"
        )
    )


def differentiated(module: nn.Module) -> AbstractContextManager[None]:
    """Say what keeps a module from being differentiated, and what to do."""
    return explained(
        lambda error: (
            f"the module cannot be differentiated as is needed here: {hindrance(module)} (torch "
            f"says: {error})"
        )
    )


def hooked(module: nn.Module) -> list[str]:
    """Names of the parts that have a full backward hook: torch has no public list of these."""
    found = list[str]()
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            found.append(name)
    return found


def hindrance(module: nn.Module) -> str:
    """Say what of a module has no second derivatives, by name where it is known."""
    parts_with_hooks = hooked(module)
    if parts_with_hooks:
        return (
            f"the part {parts_with_hooks[0]!r} has a full backward hook, through which torch takes "
            "no second derivative; remove it (handle.remove()) before measuring"
        )
    for name, part in module.named_modules():
        if isinstance(part, nn.EmbeddingBag):
            return (
                f"{name!r} is an EmbeddingBag, which has no second derivative in torch; take "
                "nn.Embedding and sum (or average) its outputs over the tokens"
            )
    return (
        "its forward pass branches on the data, writes into what its backward pass needs, computes "
        "parts anew there (activation checkpointing), has sparse gradients or buffers (take "
        "sparse=False, .to_dense()), a function without second derivatives, or an "
        "autograd.Function of your own without setup_context; write it in functions of torch that "
        "have them"
    )
