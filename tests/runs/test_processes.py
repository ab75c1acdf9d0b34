"""Functions in processes of their own: their messages, and each way in which they end."""

import os
import signal
import time
from multiprocessing.connection import Connection

import numpy as np
import pytest

from implicit_bias.runs.processes import Process, ProcessEnded, Reason, limit_processor_time


def count(pipe: Connection, n: int) -> None:
    for number in range(n):
        pipe.send(number)


def answer_squares(pipe: Connection) -> None:
    while True:
        pipe.send(pipe.recv() ** 2)


def hang(pipe: Connection) -> None:
    pipe.send("started")
    time.sleep(600)


def compute(pipe: Connection) -> None:
    limit_processor_time(0.0)  # rounded up to whole seconds
    while True:
        pass


def fill(pipe: Connection) -> None:
    pipe.send(np.ones(2**30).sum())  # 8 GiB


def crash(pipe: Connection) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(pipe: Connection) -> None:
    raise KeyError("stranger")


class Panic(BaseException):
    """As Rust's, which is no Exception."""


def panic(pipe: Connection) -> None:
    raise Panic("rust")


def end_of(process: Process) -> ProcessEnded:
    with process, pytest.raises(ProcessEnded) as raised:
        process.receive()
    return raised.value


def test_messages_come_in_their_order_and_then_it_has_returned() -> None:
    with Process(count, (2,), preload=["json"]) as process:
        assert [process.receive(), process.receive()] == [0, 1]
        with pytest.raises(ProcessEnded) as raised:
            process.receive()
    assert (raised.value.reason, raised.value.exit_code) == (Reason.RETURNED, 0)


def test_a_process_answers() -> None:
    with Process(answer_squares, preload=["json"]) as process:
        for number in (3, 4):
            process.send(number)
            assert process.receive() == number**2


def test_a_limit_of_time_counts_from_where_it_is_given() -> None:
    with Process(hang, preload=["json"]) as process:
        assert process.receive() == "started"
        process.allow(0.01)
        with pytest.raises(ProcessEnded, match="0.01 s") as raised:
            process.receive()
    assert raised.value.reason is Reason.TIME_LIMIT


@pytest.mark.slow
def test_a_limit_of_the_processors_time() -> None:
    ended = end_of(Process(compute, preload=["json"]))
    assert ended.reason is Reason.TIME_LIMIT
    assert "processor" in ended.detail


@pytest.mark.parametrize(
    ("process", "reason", "word", "code"),
    [
        (crash, Reason.DIED, "-9", -9),
        (fail, Reason.RAISED, "stranger", None),
        (panic, Reason.RAISED, "rust", None),
        (fill, Reason.OUT_OF_MEMORY, "4 GiB", None),
    ],
)
def test_why_a_process_ended(process: object, reason: Reason, word: str, code: int | None) -> None:
    ended = end_of(Process(process, memory=4.0, preload=["numpy"]))  # type: ignore[arg-type]
    assert (ended.reason, ended.exit_code) == (reason, code)
    assert word in ended.detail


def test_what_died_takes_no_message() -> None:
    process = Process(crash, preload=["json"])
    assert end_of(process).reason is Reason.DIED
