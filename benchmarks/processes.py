"""A process that computes for its caller, within limits of time and memory.

A solver that hangs, takes all memory or crashes must not take its caller with it. A `Worker` is a
new interpreter (the start method "spawn" of `multiprocessing`), which gets some objects once, and
then calls functions with them. It ends when its caller does.
"""

from __future__ import annotations

import ctypes
import math
import multiprocessing
import os
import platform
import signal
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

GIB = 2**30
# Why a call has no answer.
TIME_LIMIT, OUT_OF_MEMORY, CRASHED, FAILED = "time limit", "out of memory", "crashed", "failed"


class NoAnswer(Exception):
    """A call has no answer.

    Parameters
    ----------
    outcome : str
        ``TIME_LIMIT``, ``OUT_OF_MEMORY``, ``CRASHED`` (the process died) or ``FAILED`` (the
        function raised).
    detail : str
        The limit, the exit code, or the error.
    seconds : float
        Of the processor, that a call had before it was stopped at its time limit; else NaN.
    """

    def __init__(self, outcome: str, detail: str, seconds: float = math.nan) -> None:
        super().__init__(outcome, detail, seconds)
        self.outcome = outcome
        self.detail = detail
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.outcome}: {self.detail}"


class Worker:
    """A process, and the objects that its functions get first.

    Parameters
    ----------
    *kept : object
        The first arguments of all calls; sent once.
    memory : float
        GiB of data that the process may hold.
    """

    def __init__(self, *kept: Any, memory: float = math.inf) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, end = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(end, kept, memory), daemon=True)
        self._process.start()
        end.close()
        self._end = weakref.finalize(self, _end, self._process, self._pipe)

    def call(
        self, function: Callable[..., Any], *arguments: Any, seconds: float | None = None
    ) -> Any:
        """Return what a function of a module returns in the process.

        Parameters
        ----------
        function : callable
            Called with the objects that are kept, and then with the arguments.
        *arguments : object
            Pickled.
        seconds : float, optional
            After these the process is stopped.

        Raises
        ------
        NoAnswer
            The function takes too long or too much memory, raises, or its process dies.
        """
        try:
            before = self._processor_seconds()
            self._pipe.send((function, arguments))
            if not self._pipe.poll(seconds):
                spent = self._processor_seconds() - before
                self.stop()
                raise NoAnswer(TIME_LIMIT, f"more than {seconds:g} s", spent)
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise NoAnswer(CRASHED, f"exit code {self._process.exitcode}") from None
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    def row(self, function: Callable[..., dict[str, Any]], *, seconds: float) -> dict[str, Any]:
        """Call a function once, and end: the row that it returns, or else the ``outcome`` alone."""
        try:
            return dict(self.call(function, seconds=seconds))
        except NoAnswer as ended:
            return {"outcome": ended.outcome}
        finally:
            self.stop()

    def stop(self) -> None:
        """End the process now."""
        self._end()

    def _processor_seconds(self) -> float:
        """Return what the process has had of the processor; NaN where the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # Linux alone
            return math.nan
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end(process: SpawnProcess, pipe: Connection) -> None:
    process.kill()
    process.join()
    pipe.close()


def _serve(pipe: Connection, kept: tuple[Any, ...], memory: float) -> None:
    """Call what the caller asks for, one function after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller
    threading.Thread(target=_end_with_caller, daemon=True).start()
    if memory < math.inf:
        _limit_memory(memory)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:  # nobody asks any more
            return
        try:
            answer = function(*kept, *arguments)
        except MemoryError:
            answer = NoAnswer(OUT_OF_MEMORY, f"more than {memory:g} GiB")
        except BaseException as error:  # a panic of a library in Rust is no Exception
            answer = NoAnswer(FAILED, f"{type(error).__name__}: {error}"[:200])
        pipe.send(answer)


def _end_with_caller() -> None:
    caller = multiprocessing.parent_process()
    assert caller is not None
    caller.join()
    os._exit(1)


def _limit_memory(gib: float) -> None:
    import resource  # not on Windows, where memory has no limit

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * GIB), most))


# --- memory that this process has held -----------------------------------------------------------


def forget_peak() -> None:
    """Give freed memory back, and start to measure the peak anew, where the system lets us."""
    with suppress(AttributeError, OSError):  # glibc alone
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):  # Linux alone
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the most bytes that the process has held since `forget_peak`."""
    with suppress(OSError):  # Linux alone
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    import resource  # not on Windows

    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
