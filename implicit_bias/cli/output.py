"""Two consoles, tables and JSON values, and the policy of errors: a message and an exit status."""

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from implicit_bias.base.atomic import check_writable, free_path
from implicit_bias.base.wording import UNKNOWN, number
from implicit_bias.base.wording import percent as write_percent

# Programs that do not know the width of the terminal call it 0: all tables would be empty.
if os.environ.get("COLUMNS") == "0":
    del os.environ["COLUMNS"]
out = Console()
err = Console(stderr=True)


def fail(message: str, status: int) -> NoReturn:
    """Say what went wrong in one line, and exit; a message of several lines keeps them."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    if lines:  # none where help was printed instead
        err.print("implicit-bias: " + "\n".join(lines), markup=False, soft_wrap=True)
    sys.exit(status)


def show_warning(message: Warning | str, *args: Any, **options: Any) -> None:
    """Print a warning in one line, without its place in the code."""
    warn(str(message))


@contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Turn errors about the user's own choices (by default of any value) into exit status 2."""
    kinds = kinds or (ValueError, TypeError)
    try:
        yield
    except kinds as error:
        raise typer.BadParameter(str(error)) from error


def numbered(path: Path, free: Callable[[Path], Path]) -> Path:
    """Return the path that is free instead of one that is taken, and say so."""
    with usage_errors():
        found = free(path)
    if found != path:
        err.print(
            f"{path} is kept: the result is written to {found}", highlight=False, markup=False
        )
    return found


def new_file(path: Path) -> Path:
    """Return a file that overwrites nothing, of this name or the next, and can be written."""
    file = numbered(path, partial(free_path, taken=Path.is_file, suffix=path.suffix))
    check_writable(file)
    return file


@contextmanager
def training_bar() -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on a terminal while networks train, and yield the function that moves it.

    It is an `implicit_bias.training.history.OnProgress`. The bar of a network goes once all its
    steps are done, and the next network's takes its place.
    """
    columns = (
        SpinnerColumn(),
        TextColumn("training: {task.completed:,} / {task.total:,} steps"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", visible=False, detail="")

        def move(done: int, steps: int, detail: str) -> None:
            bar.update(task, completed=done, total=steps, detail=detail, visible=done < steps)

        yield move


def show(text: str) -> None:
    """Print a line that may be longer than the terminal is wide, as it is."""
    out.print(text, soft_wrap=True, highlight=False, markup=False)


def warn(text: str) -> None:
    """Print a warning in one line."""
    err.print(f"implicit-bias: warning: {text}", markup=False, soft_wrap=True)


def percent(fraction: float) -> str:
    """Write a fraction for a table, in percent with two decimals."""
    return write_percent(fraction, decimals=2)


def print_table(*headings: str, rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print rows of text under headings."""
    # No line between columns, and long words are broken: nothing is cut at 80 columns.
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    first, *others = headings
    table.add_column(first, overflow="fold", min_width=10)  # it names the rows, as svm-linear
    for heading in others:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def print_values(name: str, title: str, values: Mapping[str, Any]) -> None:
    """Print what is known of a model as a table."""
    rows = ((key.replace("_", " "), _cell(value)) for key, value in values.items())
    print_table("", name, rows=rows, title=title)


def print_json(values: Mapping[str, Any]) -> None:
    """Print one line of JSON, which has null for nan, and the word "inf" for infinity."""
    sys.stdout.write(json.dumps(_plain(values), allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # a scalar of numpy
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value


def _cell(value: Any) -> str:
    """Write a value for a table."""
    if value is None:
        return UNKNOWN
    if hasattr(value, "item"):  # a scalar of numpy
        value = value.item()
    if isinstance(value, float):
        return number(value)
    return str(value)
