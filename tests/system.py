"""What tests ask of the machine: processes of their own, limits, Ctrl-C, and damaged files."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Without it Dask asks the network for an address of its own, which there need not be.
LOCALLY: Any = {"host": "127.0.0.1", "protocol": "tcp://"}


def python(code: str, *arguments: str, folder: Path | None = None) -> str:
    """Run code in a process of its own, which must end well, and return what it has printed."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Panic(BaseException):
    """As Rust's, which is no Exception."""


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Let no file grow above a size, as on a full disk."""
    resource = pytest.importorskip("resource")
    number = resource.RLIMIT_FSIZE
    limits = resource.getrlimit(number)
    resource.setrlimit(number, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(number, limits)


def stop_at(step: int) -> Callable[[Any], None]:
    """Press Ctrl-C at the first point of a history that has come so far."""

    def on_point(point: Any) -> None:
        if point.step >= step:
            raise KeyboardInterrupt

    return on_point
