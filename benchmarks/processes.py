"""Functions in processes of their own: messages as they come, limits, and why a process ended.

A computation that hangs, takes all memory or crashes must not take its caller with it. So its
caller gives it a `Process`: a function whose first argument is its end of a pipe, on which it sends
what it has found. The caller asks for these messages one by one; when no more will come,
`Process.receive` raises `ProcessEnded`, which says why: the function returned or raised, or the
process exceeded its time or its memory, or died.

A process is a new interpreter, on every system. Those of `multiprocessing` would import the user's
script again, and so run it again where it has no ``if __name__ == "__main__"``; a worker of a pool
could not start them; and a fork would copy the caller in the middle of torch's threads. A process
ends when its caller does, even if that was killed and could not stop it, and when it is forgotten.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from queue import SimpleQueue
from typing import Any, BinaryIO

GIB = 2**30
# The new interpreter finds what its caller finds.
BOOT = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from benchmarks.processes import serve
serve()
"""


class Reason(Enum):
    """Why a process sends no more messages."""

    RETURNED = "returned"
    RAISED = "raised"
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    DIED = "died"


@dataclass(eq=False)
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
    error : BaseException or None
        What the function raised, where that can be pickled.
    """

    reason: Reason
    detail: str = ""
    exit_code: int | None = None
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was not sent is for nobody
                stream.close()


class Process:
    """A function in a process of its own, and this end of the pipe to it; a context manager.

    Parameters
    ----------
    function : callable
        Called with its `Pipe` and the arguments. Found by its name, so it is a function of a
        module.
    arguments : sequence
        Pickled.
    memory : float
        GiB of data that it may hold.
    seconds : float
        Its time, which begins before its imports; see `allow`.
    """

    def __init__(
        self,
        function: Callable[..., None],
        arguments: Sequence[Any] = (),
        *,
        memory: float = math.inf,
        seconds: float = math.inf,
    ) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        # Also if what follows raises. A finaliser runs before those of a cycle with the process.
        self._end_it = weakref.finalize(self, _end, self._process)
        self.allow(seconds)
        self._write(pickle.dumps(sys.path) + pickle.dumps((function, tuple(arguments), memory)))

    def allow(self, seconds: float) -> None:
        """Give the process this many seconds from now."""
        self._seconds = seconds
        self._end = time.perf_counter() + seconds

    def send(self, message: Any) -> None:
        """Send a message; to a process that has died, which `receive` reports, nothing is sent."""
        self._write(pickle.dumps(pickle.dumps(message)))

    def receive(self) -> Any:
        """Wait for the next message.

        Raises
        ------
        ProcessEnded
            There will be none.
        """
        assert self._process.stdout is not None
        try:
            with self._within_its_time():
                message = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):  # nothing, or a part of a message
            message = self._how_it_ended()
        if isinstance(message, ProcessEnded):
            raise message
        return message

    def stop(self) -> None:
        """End the process now."""
        self._end_it()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._within_its_time():
            self._process.stdin.write(data)
            self._process.stdin.flush()

    @contextmanager
    def _within_its_time(self) -> Iterator[None]:
        """Kill the process if its time is up before this ends."""
        left = max(self._end - time.perf_counter(), 0.0)
        clock = threading.Timer(min(left, threading.TIMEOUT_MAX), self._process.kill)
        if left < math.inf:
            clock.start()
        try:
            yield
        finally:
            clock.cancel()

    def _how_it_ended(self) -> ProcessEnded:
        code = self._process.wait()
        if time.perf_counter() >= self._end:
            return ProcessEnded(Reason.TIME_LIMIT, f"more than {self._seconds:g} s")
        if code == -getattr(signal, "SIGXCPU", math.nan):  # Windows has none
            return ProcessEnded(Reason.TIME_LIMIT, "of the processor", code)
        if code:
            return ProcessEnded(Reason.DIED, f"exit code {code}", code)
        return ProcessEnded(Reason.RETURNED, exit_code=code)


# --- in the process ------------------------------------------------------------------------------


class Pipe:
    """The end of a pipe that a process has."""

    def __init__(self, inbox: BinaryIO, outbox: BinaryIO) -> None:
        self._inbox, self._outbox = inbox, outbox
        self._messages: SimpleQueue[bytes] = SimpleQueue()

    def send(self, message: Any) -> None:
        """Send a message to the caller."""
        self._outbox.write(pickle.dumps(message))
        self._outbox.flush()

    def recv(self) -> Any:
        """Wait for a message from the caller."""
        return pickle.loads(self._messages.get())

    def listen(self) -> None:
        """Take in messages; exit when the caller closes its end, or has died."""
        with suppress(EOFError, pickle.UnpicklingError):
            while True:
                self._messages.put(pickle.load(self._inbox))
        os._exit(1)


def serve() -> None:
    """Call the function that `Process` sends; its failure is the last message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who stops us
    pipe = Pipe(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what libraries print is no message
    memory = math.inf
    with suppress(OSError):  # nobody asks any more
        try:
            function, arguments, memory = pickle.load(sys.stdin.buffer)
            threading.Thread(target=pipe.listen, daemon=True).start()
            if memory < math.inf:
                _limit_memory(memory)
            function(pipe, *arguments)
        except BaseException as error:  # a Rust panic is no Exception
            reason, said = Reason.RAISED, f"{type(error).__name__}: {error}"
            if isinstance(error, MemoryError):
                reason, said = Reason.OUT_OF_MEMORY, f"more than {memory:g} GiB"
            pipe.send(ProcessEnded(reason, said, error=_as_received(error)))
    os._exit(0)  # the thread that reads cannot be joined


def _as_received(error: BaseException) -> BaseException | None:
    """Return an error as the caller has it; None where it cannot be pickled."""
    with suppress(Exception):
        return pickle.loads(pickle.dumps(error))
    return None


def _limit_memory(gib: float) -> None:
    import resource  # not on Windows, where memory has no limit

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * GIB), most))
