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
    from rich import progress
    from rich.console import Console

    with progress.Progress(
        progress.TextColumn("training: {task.completed:,} / {task.total:,} steps"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[detail]}"),
        console=Console(stderr=True),
    ) as bar:
        task = bar.add_task("", total=steps, detail="")
        yield lambda step, detail: bar.update(task, completed=step, detail=detail)
