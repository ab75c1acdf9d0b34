"""A call in a process of its own, which ends when its time is up: for libraries without a limit.

The process is a new interpreter, on every system. Those of `multiprocessing` would import the
user's script again, and so run it again where it has no ``if __name__ == "__main__"``; and a
worker of a pool could not start them. It ends with its caller, even if that is killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

# The new interpreter finds what its caller finds; its time begins before the imports.
BOOT = """
import pickle, sys, time
began = time.perf_counter()
sys.path[:] = pickle.load(sys.stdin.buffer)
from implicit_bias.solvers.own_process import serve
serve(began)
"""


def call_within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, which is killed when its time is up.

    Parameters
    ----------
    seconds : float
        Its time, which includes the imports of a new interpreter: a second or two.
    function : callable
        Called with the arguments and the seconds that are left then. What a script defines, or a
        notebook, can be called, too.
    *arguments
        Pickled, as is what the function returns or raises.

    Raises
    ------
    TimeoutError
        No answer within that time.
    RuntimeError
        The process died.
    """
    from joblib import wrap_non_picklable_objects  # such as what a script defines

    call = wrap_non_picklable_objects(partial(function, *arguments))
    request = pickle.dumps(sys.path) + pickle.dumps((call, seconds))
    end = time.perf_counter() + seconds
    command = [sys.executable, "-P", "-c", BOOT]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    clock = threading.Timer(min(seconds, threading.TIMEOUT_MAX), process.kill)
    clock.start()
    try:
        with suppress(OSError):  # it died
            process.stdin.write(request)
            process.stdin.flush()
        reply = process.stdout.read()
        process.wait()
    finally:
        clock.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        with suppress(OSError):
            process.stdin.close()
    try:
        returned, value = pickle.loads(reply)
    except (EOFError, pickle.UnpicklingError):
        if time.perf_counter() >= end:
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        code = process.returncode
        raise RuntimeError(f"the process of the solver died with exit code {code}") from None
    if returned:
        return value
    raise value


def serve(began: float) -> None:
    """Answer the call on standard input, in the process that `call_within` starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who stops us
    # What libraries print is no part of the answer.
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        requests = sys.stdin.buffer
        reply = _reply(requests, began)
        answer.write(reply)
    os._exit(0)  # the thread that reads standard input cannot be joined


def _reply(requests: BinaryIO, began: float) -> bytes:
    try:
        call, seconds = pickle.load(requests)
        threading.Thread(target=_end_with_caller, args=(requests,), daemon=True).start()
        value = call(seconds - (time.perf_counter() - began))
        return pickle.dumps((True, value))
    except BaseException as error:
        with suppress(Exception):
            reply = pickle.dumps((False, error))
            pickle.loads(reply)
            return reply
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def _end_with_caller(requests: BinaryIO) -> None:
    """Exit when the caller closes its end of standard input, or dies."""
    requests.read()
    os._exit(1)
