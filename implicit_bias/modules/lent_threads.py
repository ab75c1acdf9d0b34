"""One thread for a module whose forward and backward passes are short."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from torch import nn

from implicit_bias.base.threads import threads

# Parameters times samples, and times positions of a sample, of a pass that has one thread.
SMALL_PASS = 3e7


def one_thread_if_small(module: nn.Module, inputs: object) -> AbstractContextManager[None]:
    """Lend one thread to what evaluates a module often, if its passes are short.

    A pass multiplies each parameter with each sample, at each position of a sample (a pixel, a
    token). Below `SMALL_PASS` of these products it takes milliseconds, and two threads wait for
    each other as long as they compute. On two cores, both busy, a gradient of 16,000 parameters on
    1,000 samples took 14 milliseconds with one thread and 53 with two; from 10^9 products on, two
    are as fast. What there was before comes back at the end.

    Parameters
    ----------
    module : nn.Module
        What is evaluated.
    inputs : Tensor, array_like or tuple of them
        Its arguments, each with the samples as first axis.

    Examples
    --------
    >>> import torch
    >>> before = torch.get_num_threads()
    >>> with one_thread_if_small(torch.nn.Linear(3, 1), torch.ones(5, 3)):
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    first = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
    # What has no shape is a list, of few samples, or no input at all, which is refused later.
    shape = tuple(getattr(first, "shape", ())) or (1,)
    positions = 1
    if len(shape) > 2:  # the smallest axis is that of the channels, or of the features of tokens
        positions = int(np.prod(shape[1:])) // max(1, min(shape[1:]))
    parameters = sum(parameter.numel() for parameter in module.parameters())
    if parameters * shape[0] * positions < SMALL_PASS:
        return threads(1)
    return nullcontext()
