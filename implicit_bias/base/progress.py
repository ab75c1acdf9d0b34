"""What a terminal shows while something takes longer than a second.

`showing` writes one line, which vanishes at the end: what is done, for how long, and what `say`
adds, also from within the functions that are called, whose own lines do not appear then. A notebook
shows it below the cell, if ipywidgets is installed. Pipes and logs get nothing, and nobody does
where the environment variable IMPLICIT_BIAS_PROGRESS is 0.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress

# Called with the steps done, and what is to stand beside them.
OnProgress: TypeAlias = Callable[[int, str], object]
# Seconds before a line appears.
DELAY = 1.0
SWITCH = "IMPLICIT_BIAS_PROGRESS"


class _Line:
    """A line that appears after a delay, drawn by a thread of its own."""

    def __init__(self, what: str, delay: float) -> None:
        self._what, self._detail = what, ""
        self._bar: Progress | None = None
        self._ended, self._lock = False, threading.Lock()
        self._timer = threading.Timer(delay, self._show)
        self._timer.daemon = True
        self._timer.start()

    def say(self, detail: str) -> None:
        with self._lock:
            self._detail = detail
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], detail=detail)

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()
                if self._bar.live.ipy_widget is not None:
                    self._bar.live.ipy_widget.close()  # it would stay below the notebook's cell

    def _show(self) -> None:
        from rich import progress
        from rich.console import Console

        with self._lock:
            if self._ended:
                return
            bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}"),
                progress.TimeElapsedColumn(),
                progress.TextColumn("{task.fields[detail]}"),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            bar.add_task(self._what, total=None, detail=self._detail)
            bar.start()
            self._bar = bar


# What this process shows, one thing at a time, and within it what has no line of its own.
_SHOWN: list[_Line | None] = []


@contextmanager
def showing(what: str, delay: float = DELAY) -> Iterator[None]:
    """Show what is done within, as a context or around a function.

    Parameters
    ----------
    what : str
        Such as "solving".
    delay : float
        Seconds before the line appears.

    Examples
    --------
    >>> @showing("waiting for nothing")
    ... def nothing() -> int:
    ...     say("{} of {}", 0, 0)
    ...     return 0
    >>> nothing()
    0
    """
    if _SHOWN or not _is_wanted():
        yield
        return
    line = _Line(what, delay)
    with _taking(line), closing(line):
        yield


def say(detail: str, *values: object) -> None:
    """Add a detail, a format string and its values, to the line that is shown, if there is one."""
    if line := next(reversed(_SHOWN), None):
        line.say(detail.format(*values))


@contextmanager
def progress_bar(steps: int) -> Iterator[OnProgress]:
    """Show a bar of this many steps of training, and yield the function that moves it."""
    from rich import progress
    from rich.console import Console

    with (
        _taking(),
        progress.Progress(
            progress.TextColumn("training: {task.completed:,} / {task.total:,} steps"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[detail]}"),
            console=Console(stderr=True),
        ) as bar,
    ):
        task = bar.add_task("", total=steps, detail="")
        yield lambda step, detail: bar.update(task, completed=step, detail=detail)


@contextmanager
def _taking(line: _Line | None = None) -> Iterator[None]:
    _SHOWN.append(line)
    try:
        yield
    finally:
        _SHOWN.pop()


def _is_wanted() -> bool:
    """Whether somebody looks: at a notebook, or a terminal that can move its cursor."""
    if os.environ.get(SWITCH) == "0" or sys.stderr is None:
        return False
    if "ipykernel" in sys.modules:
        return find_spec("ipywidgets") is not None  # without it rich only warns
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
