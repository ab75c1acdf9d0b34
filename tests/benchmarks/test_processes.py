"""A process with limits: what it returns, and each way in which a call has no answer."""

import math
import operator
import os
import time

import numpy as np
import pytest

from benchmarks.processes import CRASHED, FAILED, OUT_OF_MEMORY, TIME_LIMIT, NoAnswer, Worker


def test_functions_get_what_is_kept_first() -> None:
    worker = Worker([2, 3])
    assert worker.call(math.prod) == 6
    assert worker.call(operator.getitem, 1) == 3
    with pytest.raises(NoAnswer, match="IndexError") as ended:
        worker.call(operator.getitem, 7)
    assert ended.value.outcome == FAILED
    assert worker.call(math.prod) == 6  # it goes on after an error
    worker.stop()
    with pytest.raises(NoAnswer):
        worker.call(math.prod)


def test_a_call_that_takes_too_long_ends_its_process() -> None:
    worker = Worker()
    assert worker.call(int, "7") == 7
    began = time.perf_counter()
    with pytest.raises(NoAnswer, match="more than 0.2 s") as ended:
        worker.call(sum, range(10**12), seconds=0.2)
    assert ended.value.outcome == TIME_LIMIT
    assert 0.0 <= ended.value.seconds < 0.5
    assert time.perf_counter() - began < 60


def test_memory_is_limited_and_a_crash_is_seen() -> None:
    worker = Worker(memory=4.0)
    with pytest.raises(NoAnswer, match="4 GiB") as full:
        worker.call(np.ones, 2**30)  # 8 GiB
    assert full.value.outcome == OUT_OF_MEMORY
    with pytest.raises(NoAnswer, match="exit code -6") as crashed:
        worker.call(os.abort)
    assert crashed.value.outcome == CRASHED
