"""The progress bar of a training, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

# Called with the steps done, and with what else there is to say.
OnProgress: TypeAlias = Callable[[int, str], object]


@contextmanager
def progress_bar(steps: int) -> Iterator[OnProgress]:
    """Show a bar of this many steps, and yield the function that moves it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    with Progress(
        TextColumn("{task.completed:,} / {task.total:,} steps"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("", total=steps, detail="")
        yield lambda step, detail: bar.update(task, completed=step, detail=detail)
