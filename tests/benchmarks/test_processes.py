"""A process with limits: what it returns, and each way in which a call has no answer."""

import operator
import os
import time

import numpy as np
import pytest

from benchmarks.processes import CRASHED, FAILED, OUT_OF_MEMORY, TIME_LIMIT, NoAnswer, Worker


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


def test_memory_is_limited_and_a_crash_is_seen() -> None:
    worker = Worker(memory=4.0)
    with pytest.raises(NoAnswer, match="4 GiB") as full:
        worker.call(np.ones, 2**30)  # 8 GiB
    assert full.value.outcome == OUT_OF_MEMORY
    with pytest.raises(NoAnswer, match="exit code -6") as crashed:
        worker.call(os.abort)
    assert crashed.value.outcome == CRASHED
