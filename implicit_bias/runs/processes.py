"""Functions in processes of their own: messages as they come, limits, and why a process ended.

A solver that hangs, takes all memory or crashes must not take its caller with it. So whoever runs
one gives it a `Process`: a function whose first argument is its end of a pipe, on which it sends
what it has found. The caller asks for these messages one by one; when no more will come,
`Process.receive` raises `ProcessEnded`, which says why: the function returned or raised, or the
process exceeded its time or its memory, or died.

A process also ends when its caller does, even if that was killed and could not stop it.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

GIB = 2**30


class Reason(Enum):
    """Why a process sends no more messages."""

    RETURNED = "returned"
    RAISED = "raised"
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    DIED = "died"


class ProcessEnded(Exception):
    """No more messages will come from a process.

    Attributes
    ----------
    reason : Reason
        Why.
    detail : str
        The limit, the error or the exit code, in words.
    exit_code : int or None
        Of the process; negative if a signal ended it.
    """

    def __init__(self, reason: Reason, detail: str = "", exit_code: int | None = None) -> None:
        super().__init__(reason, detail, exit_code)  # all of them, so that it can be pickled
        self.reason = reason
        self.detail = detail
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


class Process:
    """A function in a process of its own, and this end of the pipe to it; a context manager.

    It is not made by fork, which would copy the caller in the middle of torch's threads.

    Parameters
    ----------
    function : callable
        Called with its end of the pipe and the arguments. Found by its name, so it is a function
        of a module.
    arguments : sequence
        Pickled.
    memory : float
        GiB of data that it may hold.
    preload : sequence of str
        Modules that a server imports once, and that all processes forked from it then have. Without
        any, each process starts from nothing.
    """

    def __init__(
        self,
        function: Callable[..., None],
        arguments: Sequence[Any] = (),
        *,
        memory: float = math.inf,
        preload: Sequence[str] = (),
    ) -> None:
        context = multiprocessing.get_context("forkserver" if preload else "spawn")
        if preload:
            context.set_forkserver_preload(list(preload))
        self.pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_run, args=(theirs, function, tuple(arguments), memory), daemon=True
        )
        self._process.start()
        theirs.close()  # the process now holds the only other end: if it dies, this one ends
        self.allow(math.inf)

    def allow(self, seconds: float) -> None:
        """Give the process this many seconds from now."""
        self._seconds = seconds
        self._deadline = time.perf_counter() + seconds

    def send(self, message: Any) -> None:
        """Send a message; to a process that has died, which `receive` reports, nothing is sent."""
        with suppress(BrokenPipeError):
            self.pipe.send(message)

    def receive(self) -> Any:
        """Wait for the next message.

        Raises
        ------
        ProcessEnded
            There will be none.
        """
        left = self._deadline - time.perf_counter()
        try:
            if left < math.inf and not self.pipe.poll(max(left, 0.0)):
                self.stop()
                raise ProcessEnded(Reason.TIME_LIMIT, f"more than {self._seconds:g} s")
            message = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            code = self._process.exitcode
            if code == -signal.SIGXCPU:
                raise ProcessEnded(Reason.TIME_LIMIT, "of the processor", code) from None
            if code:
                raise ProcessEnded(Reason.DIED, f"exit code {code}", code) from None
            raise ProcessEnded(Reason.RETURNED, exit_code=code) from None
        if isinstance(message, ProcessEnded):
            raise message
        return message

    def stop(self) -> None:
        """End the process now."""
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _run(
    pipe: Connection, function: Callable[..., None], arguments: tuple[Any, ...], memory: float
) -> None:
    """Call the function; its failure is the last message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if memory < math.inf:
        _limit_memory(memory)
    with suppress(BrokenPipeError):  # nobody asks any more
        try:
            function(pipe, *arguments)
        except MemoryError:
            pipe.send(ProcessEnded(Reason.OUT_OF_MEMORY, f"more than {memory:g} GiB"))
        except (BrokenPipeError, SystemExit):
            raise
        except BaseException as error:  # a Rust panic is no Exception
            pipe.send(ProcessEnded(Reason.RAISED, f"{type(error).__name__}: {error}"))


def _end_with_parent() -> None:
    """Exit when the parent process has died: killed with -9, it cannot stop us itself."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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


def _limit_memory(gib: float) -> None:
    import resource  # not on Windows, where memory has no limit

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * GIB), most))
