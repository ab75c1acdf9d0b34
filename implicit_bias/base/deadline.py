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
        # A float16 would make the sum a float16, too coarse for a clock.
        return cls() if seconds is None else cls(time.perf_counter() + float(seconds))

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
        return None if np.isinf(self.end) else max(self.end - time.perf_counter(), 1e-9)

    @property
    def passed(self) -> bool:
        """Whether that was before."""
        return time.perf_counter() >= self.end

    def sooner(self, share: float) -> Self:
        """Stop after this share of the time that is left."""
        return type(self)() if self.left is None else self.after(share * self.left)

    def within(self, seconds: float) -> Self:
        """Stop so many seconds from now, if that is sooner."""
        return min(self, self.after(seconds), key=lambda deadline: deadline.end)

    def allows(self, seconds: float) -> bool:
        """Whether what takes so long would end before."""
        return time.perf_counter() + seconds < self.end

    def leaving(self, seconds: float) -> Self:
        """Stop so many seconds before, or now if these are not left."""
        return self if np.isinf(self.end) else type(self)(self.end - seconds)

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
