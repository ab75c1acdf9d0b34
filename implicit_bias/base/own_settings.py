"""Settings that a caller has made for computations of his own, and that do not reach ours.

`numpy.seterr(all="raise")` makes an error of each number that rounds to 0,
`torch.set_default_device` says where tensors are that are made without a device, and loops that
measure switch gradients off.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

_OF_THE_CALLER: ContextVar[Any] = ContextVar("default device of the caller", default=None)


@contextmanager
def own_settings() -> Iterator[None]:
    """Compute with this package's settings; as a decorator, a whole function does.

    What overflows is infinite, what underflows is 0, without a word of numpy: bounds and checks
    take no such value for a number.

    Examples
    --------
    >>> with np.errstate(all="raise"), own_settings():
    ...     print(np.exp(-1000.0))
    0.0
    """
    torch = sys.modules.get("torch")  # without it, nobody has set its device
    with np.errstate(all="ignore"), ExitStack() as stack:
        if torch is not None:
            if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
                stack.enter_context(torch.inference_mode(False))
                stack.enter_context(torch.enable_grad())
            if (theirs := torch.empty(0).device).type != "cpu":
                stack.callback(_OF_THE_CALLER.reset, _OF_THE_CALLER.set(theirs))
                stack.enter_context(torch.device("cpu"))
        yield


@contextmanager
def settings_of_the_caller() -> Iterator[None]:
    """Within `own_settings`, call code of the caller's with the default device that he has set."""
    theirs = _OF_THE_CALLER.get()
    if theirs is None:
        yield
    else:
        with theirs:
            yield
