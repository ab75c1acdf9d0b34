"""A process with limits: what it returns, and when a call has no answer."""

import operator
import time

import pytest

from benchmarks.processes import FAILED, TIME_LIMIT, NoAnswer, Worker


def test_functions_get_what_is_kept_first_and_may_take_too_long() -> None:
    worker = Worker(30.0)
    assert worker.call(operator.sub, 1) == 29
    with pytest.raises(NoAnswer, match="ZeroDivisionError") as ended:
        worker.call(operator.truediv, 0)
    assert ended.value.outcome == FAILED
    assert worker.call(operator.sub, 2) == 28  # it goes on after an error
    with pytest.raises(NoAnswer, match="more than 0.2 s") as late:
        worker.call(time.sleep, seconds=0.2)
    assert late.value.outcome == TIME_LIMIT
    assert 0.0 <= late.value.seconds < 0.5  # of the processor
    with pytest.raises(NoAnswer):
        worker.call(operator.sub, 3)
