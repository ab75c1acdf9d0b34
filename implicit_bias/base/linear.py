"""Linear programs with a limit on their time that does not depend on the clock of the wall."""

from __future__ import annotations

from typing import Any

import scipy.optimize

from implicit_bias.base.deadline import Deadline

# How HiGHS says that it had no more time.
LATE = "Time limit"


def linprog(
    *program: Any, deadline: Deadline, options: dict[str, Any] | None = None, **more: Any
) -> Any:
    """Solve a linear program by HiGHS until a deadline.

    HiGHS measures its time by a clock that can be set. Where it ends too early by that, because the
    clock was put forward, it starts again.

    Parameters
    ----------
    program, options, more
        Of ``scipy.optimize.linprog``, whose result is returned.
    deadline : Deadline
        When to give up.

    Examples
    --------
    >>> from implicit_bias.base.deadline import NEVER
    >>> float(linprog([1.0], A_ub=[[-1.0]], b_ub=[-2.0], deadline=NEVER).fun)
    2.0
    """
    while True:
        limits = {**(options or {}), "time_limit": deadline.left}
        found = scipy.optimize.linprog(*program, **more, options=limits)
        if LATE not in found.message or deadline.passed:
            return found
