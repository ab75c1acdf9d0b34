"""What the experiments on speed share: rows of a run in a process, and how they came about."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from implicit_bias.base.processes import ProcessEnded, Reason
from implicit_bias.problem import MarginProblem

Row: TypeAlias = dict[str, Any]
# How a row came about. All but the first leave its bounds empty.
ANSWERED, TIME_LIMIT, OUT_OF_MEMORY, CRASHED, NOT_TRIED = (
    "answered",
    "time limit",
    "out of memory",
    "crashed",
    "not tried",
)


def machine() -> str:
    """Words for the kind of processor."""
    return platform.processor() or platform.machine()


def outcome(ended: ProcessEnded) -> Row:
    """Say why a process gave no answer; nothing, if it has given all of it."""
    match ended.reason:
        case Reason.RETURNED:
            return {}
        case Reason.TIME_LIMIT:
            return {"outcome": TIME_LIMIT, "detail": ended.detail}
        case Reason.OUT_OF_MEMORY:
            return {"outcome": OUT_OF_MEMORY, "detail": ended.detail}
        case Reason.RAISED | Reason.DIED:
            return {"outcome": CRASHED, "detail": ended.detail}


def warm_up() -> MarginProblem:
    """Two samples: what a solver imports and sets up once is no part of its time."""
    return MarginProblem(np.eye(2), np.array([1.0, -1.0]), np.ones((2, 1)), np.zeros(1, dtype=int))


def few_digits(value: float) -> str:
    """Write a number of two digits, or a whole one."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def span(values: Sequence[float]) -> str:
    """Write the smallest and the largest of some numbers."""
    low, high = few_digits(min(values)), few_digits(max(values))
    return low if low == high else f"{low} to {high}"


def limit_processor_time(seconds: float) -> None:
    """Give this process so many more seconds of the processor, after which it ends.

    Unlike those of the clock they do not depend on what else the machine does. `Process.receive`
    reports the end as a time limit.
    """
    import resource  # not on Windows

    if seconds < math.inf:
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        limit = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, most))
