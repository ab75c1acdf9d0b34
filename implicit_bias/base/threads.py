"""Threads by the size of matrices.

Two threads factorise a small matrix hardly faster than one, and wait for each other at each of its
blocks: beside other busy processes for milliseconds each time. Measured on ten classes of digits
with a soft margin, two cores: idle .7 s with two threads and .4 s with one, beside two busy
processes 3 to 18 s and .6 s. From an order of about 1,500 on two threads save time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController

# Below this order of its largest matrix a computation has one thread.
SMALL_ORDER = 1500


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


@lru_cache
def _libraries(with_torch: bool) -> ThreadpoolController:
    """Return the libraries with threads that are loaded: looked for once, and again with torch."""
    import scipy.linalg  # noqa: F401 - whose BLAS is its own

    return ThreadpoolController()
