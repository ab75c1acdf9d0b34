"""Threads by the size of what is computed: one for small matrices and short passes.

Two threads factorize a small matrix hardly faster than one, and wait for each other at each of its
blocks: beside other busy processes for milliseconds each time. Measured on ten classes of digits
with a soft margin, two cores: idle .7 s with two threads and .4 s with one, beside two busy
processes 3 to 18 s and .6 s. From an order of about 1,500 on two threads save time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from torch import nn

# Below this order of its largest matrix a computation has one thread.
SMALL_ORDER = 1500
# Parameters times samples, and times positions of a sample, of a pass that has one thread.
SMALL_PASS = 3e7


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Lend BLAS, LAPACK and torch so many threads; None leaves them as they are.

    They are those of this process, and what they were before comes back at the end.

    Examples
    --------
    >>> import torch
    >>> with threads(1):
    ...     print(torch.get_num_threads())
    1
    """
    if count is None:
        yield
        return
    torch = sys.modules.get("torch")
    with _libraries(torch is not None).limit(limits=count):
        if torch is None:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def threads_for(order: float, asked: int | None = None) -> int | None:
    """Return how many threads to lend to matrices of this order: those asked for, one, or None."""
    if asked is not None:
        return asked
    if order < SMALL_ORDER:
        return 1
    return None


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


@lru_cache
def _libraries(with_torch: bool) -> ThreadpoolController:
    """Return the libraries with threads that are loaded: looked for once, and again with torch."""
    import scipy.linalg  # noqa: F401 - whose BLAS is its own

    return ThreadpoolController()
