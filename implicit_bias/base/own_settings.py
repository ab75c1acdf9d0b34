"""Settings that a caller has made for computations of his own, and that do not reach ours.

`numpy.seterr(all="raise")` makes an error of each number that rounds to 0,
`torch.set_default_device` says where tensors are that are made without a device, and
`torch.no_grad` switches gradients off. Code of the caller's that is called from ours, a module's
forward pass or a training of his own, has his default device and his way with errors of numpy.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

# What numpy does at errors, and the default device if it is not the CPU, while ours hold.
_OF_THE_CALLER: ContextVar[tuple[Any, Any] | None] = ContextVar("settings", default=None)


@contextmanager
def own_settings() -> Iterator[None]:
    """Compute with this package's settings; as a decorator, a whole function does.

    Overflow gives infinity and underflow 0, without warnings: bounds and checks refuse values that
    are not finite.

    Examples
    --------
    >>> with np.errstate(all="raise"), own_settings():
    ...     print(np.exp(-1000.0))
    0.0
    """
    torch = sys.modules.get("torch")  # without it, nobody has set its device
    with ExitStack() as stack:
        if torch and (torch.is_inference_mode_enabled() or not torch.is_grad_enabled()):
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
        if _OF_THE_CALLER.get() is None:  # else one of ours calls another
            default = torch.empty(0).device if torch else None
            device = default if default and default.type != "cpu" else None
            token = _OF_THE_CALLER.set((np.geterr(), device))
            stack.callback(_OF_THE_CALLER.reset, token)
            stack.enter_context(np.errstate(all="ignore"))
            if torch and device:
                stack.enter_context(torch.device("cpu"))
        yield


@contextmanager
def settings_of_the_caller() -> Iterator[None]:
    """Within `own_settings`, call code of the caller's as he would have called it."""
    errors, device = _OF_THE_CALLER.get() or ({}, None)
    token = _OF_THE_CALLER.set(None)
    try:
        with np.errstate(**errors), device or nullcontext():
            yield
    finally:
        _OF_THE_CALLER.reset(token)
