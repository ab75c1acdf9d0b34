"""When a computation has to end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

import numpy as np

from implicit_bias.base.validation import check_number


@dataclass(frozen=True)
class Deadline:
    """When to stop, by a clock that is never set; never without a time."""

    end: float = np.inf

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Stop so many seconds from now; None is never."""
        if seconds is None:
            return cls()
        return cls(time.perf_counter() + float(seconds))

    @classmethod
    def asked(cls, max_seconds: float | None) -> Self:
        """Stop as a caller's ``max_seconds`` asks.

        Raises
        ------
        TypeError, ValueError
            No number, or none in (0, inf).
        """
        if max_seconds is not None:
            check_number(max_seconds, "max_seconds", "(0, inf)")
        return cls.after(max_seconds)

    @property
    def left(self) -> float | None:
        """Seconds until then, positive even if it has passed; None is no limit."""
        if np.isinf(self.end):
            return None
        # Not 0, which solvers refuse: a method that starts too late ends at its first step.
        return max(self.end - time.perf_counter(), 1e-9)

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return time.perf_counter() >= self.end

    def sooner(self, share: float) -> Self:
        """Stop after this fraction of the time that is left."""
        # A fraction of no limit is no limit.
        left = self.left
        if left is None:
            return type(self)()
        return self.after(share * left)

    def within(self, seconds: float) -> Self:
        """Stop so many seconds from now, if that is sooner."""
        return min(self, self.after(seconds), key=lambda deadline: deadline.end)

    def allows(self, seconds: float) -> bool:
        """Whether a step of this duration would end in time."""
        return time.perf_counter() + seconds < self.end

    def leaving(self, seconds: float) -> Self:
        """Stop this many seconds earlier."""
        return type(self)(self.end - seconds)

    def check(self) -> None:
        """End a long loop where the time is up.

        Raises
        ------
        TimeoutError
            The deadline has passed.
        """
        if self.passed:
            raise TimeoutError("the time is up")


NEVER = Deadline()
