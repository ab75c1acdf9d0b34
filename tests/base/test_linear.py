"""Tests of linear programs until a deadline: a clock that is set must not end them."""

from typing import Any

import pytest
import scipy.optimize

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.linear import linprog

PROGRAM: dict[str, Any] = {"c": [1.0], "A_ub": [[-1.0]], "b_ub": [-2.0]}


def test_a_clock_that_is_put_forward_ends_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, limits = scipy.optimize.linprog, []

    def jumps(*program: Any, options: dict[str, Any], **more: Any) -> Any:
        limits.append(options["time_limit"])
        if len(limits) == 1:  # HiGHS believes that it is late
            return scipy.optimize.OptimizeResult(x=None, status=1, message="Time limit reached.")
        return solve(*program, options=options, **more)

    monkeypatch.setattr(scipy.optimize, "linprog", jumps)
    found = linprog(**PROGRAM, deadline=Deadline.after(1000.0))
    assert found.status == 0
    assert found.fun == 2.0
    assert len(limits) == 2


def test_a_program_without_a_deadline_is_solved() -> None:
    assert linprog(**PROGRAM, deadline=NEVER).status == 0
