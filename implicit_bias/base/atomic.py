"""Writing files that are at no time half there."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Paths of one name, with numbers behind it.
MOST_PATHS = 10_000


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in its place.

    Parameters
    ----------
    path : str or Path
        The file; its folder is made if need be. What was there stays until all is written.
    write : callable
        Called with the temporary file's path.

    Raises
    ------
    OSError
        No space left, no permission, or a folder that cannot be made; then ``path`` is as it was.
    """
    path = Path(path)
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        write(draft)
        # Else a crash of the machine could leave the new name with nothing behind it.
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


def check_writable(path: str | Path) -> None:
    """Raise OSError where `write_atomically` could not write: before the work, not after it."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is there, and no regular file: write to another path")
    make_folder(path.parent)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def free_path(path: Path, taken: Callable[[Path], bool] = Path.exists, *, suffix: str = "") -> Path:
    """Return a path where nothing is overwritten: this one, or the next of its name.

    Parameters
    ----------
    path : Path
        If it is taken, NAME-2, NAME-3, ... are tried.
    taken : callable
        Whether something is there that must stay.
    suffix : str
        The end of its name, before which the number comes.

    Raises
    ------
    ValueError
        All are taken.
    """
    named = path if path.name not in ("", "..") else path.resolve()
    stem = named.name.removesuffix(suffix)
    others = (named.with_name(f"{stem}-{n}{suffix}") for n in range(2, MOST_PATHS))
    for candidate in (path, *others):
        if not taken(candidate):
            return candidate
    raise ValueError(f"there are {path} to {candidate}: name another path")


def make_folder(path: str | Path) -> Path:
    """Make a folder and those above it where they are missing, and return its path.

    Raises
    ------
    OSError
        A file has its name or that of a folder above it, or the system refuses to make it.
    """
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        files = [place for place in (path, *path.parents) if place.is_file()]
        cause = f"{files[0]} is a file" if files else error.strerror
        raise OSError(f"cannot make the folder {path} ({cause}): name another folder") from error
    return path


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in this way, as UTF-8; what is none, in a file's name say, is escaped."""
    write_atomically(path, lambda draft: draft.write_bytes(escaped(text).encode()))


def escaped(text: str) -> str:
    """Escape what is no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def write_tables(folder: str | Path, frames: Mapping[str, pd.DataFrame]) -> list[Path]:
    """Write each table as NAME.parquet and NAME.csv, and return the files."""
    files = []
    for name, frame in frames.items():
        parquet = Path(folder) / f"{name}.parquet"
        csv = Path(folder) / f"{name}.csv"
        write_atomically(parquet, partial(frame.to_parquet, index=False))
        write_atomically(csv, partial(frame.to_csv, index=False))
        files += [parquet, csv]
    return files
