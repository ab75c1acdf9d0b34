"""Functions in processes of their own: their messages, and each way in which they end."""

import gc
import os
import pickle
import signal
import time
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.processes import (
    Pipe,
    Process,
    ProcessEnded,
    Reason,
)


def answer_squares(pipe: Pipe) -> None:
    print("on standard output")
    pipe.send("started")
    while (number := pipe.recv()) is not None:
        pipe.send(number**2)


def hang(pipe: Pipe) -> None:
    time.sleep(600)


def compute(pipe: Pipe) -> None:
    # Each process imports this file: all others need no benchmarks.
    from benchmarks.speed.runs import limit_processor_time

    limit_processor_time(0.0)  # rounded up to whole seconds
    while True:
        pass


def fill(pipe: Pipe) -> None:
    pipe.send(np.ones(2**30).sum())  # 8 GiB


def crash(pipe: Pipe) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(pipe: Pipe) -> None:
    raise KeyError("stranger")


def panic(pipe: Pipe) -> None:
    class Panic(BaseException):
        """As Rust's, which is no Exception; and no other process knows it."""

    raise Panic("rust")


def test_messages_go_both_ways_until_it_has_returned() -> None:
    with Process(answer_squares) as process:
        assert process.receive() == "started"
        for number in (3, 4):
            process.send(number)
            assert process.receive() == number**2
        process.send(None)
        with pytest.raises(ProcessEnded) as ended:
            process.receive()
    assert (ended.value.reason, ended.value.exit_code) == (Reason.RETURNED, 0)


def test_a_process_that_is_forgotten_ends() -> None:
    """Also one that is part of a cycle, as with a traceback, or that could not be begun."""
    forgotten = Process(answer_squares)
    number = forgotten.receive() and forgotten._process.pid
    cycle: list[object] = [forgotten]
    cycle.append(cycle)
    del forgotten, cycle
    gc.collect()  # a ResourceWarning would be an error
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        Process(lambda pipe: None)
    gc.collect()


def test_a_limit_of_time_counts_from_where_it_is_given() -> None:
    with Process(answer_squares) as process:
        assert process.receive() == "started"
        process.allow(0.01)
        with pytest.raises(ProcessEnded, match="0.01 s") as ended:
            process.receive()
    assert ended.value.reason is Reason.TIME_LIMIT


@pytest.mark.fast("crash", "fail", "panic", "fill")
@pytest.mark.parametrize(
    ("function", "reason", "word", "code"),
    [
        (crash, Reason.DIED, "-9", -9),
        (fail, Reason.RAISED, "stranger", None),
        (panic, Reason.RAISED, "rust", None),
        (fill, Reason.OUT_OF_MEMORY, "4 GiB", None),
        (compute, Reason.TIME_LIMIT, "processor", -signal.SIGXCPU),
    ],
    ids=["crash", "fail", "panic", "fill", "compute"],
)
def test_why_a_process_ended(
    function: Callable[[Pipe], None], reason: Reason, word: str, code: int | None
) -> None:
    with Process(function, memory=4.0) as process:
        with pytest.raises(ProcessEnded, match=word) as ended:
            process.receive()
        process.send("nothing")  # is for nobody, and no error
    assert (ended.value.reason, ended.value.exit_code) == (reason, code)
