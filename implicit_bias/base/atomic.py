"""Files that are written whole: under a temporary name, flushed to the disk, then renamed."""

from __future__ import annotations

import itertools
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path``.

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
    # In the same folder, as a rename is atomic within one file system alone. The random part keeps
    # two writers of one file apart.
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
    # Permissions do not say it all: the file system may be full, or read-only.
    with tempfile.TemporaryFile(dir=path.parent):
        pass


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
    """
    if not taken(path):
        return path
    named = path
    # "." and ".." have no name of their own that a number could follow.
    if path.name in ("", ".."):
        named = path.resolve()
    stem = named.name.removesuffix(suffix)
    for number in itertools.count(2):
        candidate = named.with_name(f"{stem}-{number}{suffix}")
        if not taken(candidate):
            break
    return candidate


def make_folder(path: str | Path) -> Path:
    """Make a folder and those above it where they are missing, and return its path."""
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole, as UTF-8; what UTF-8 lacks, in a file's name say, is escaped."""
    write_atomically(path, lambda draft: draft.write_bytes(escaped(text).encode()))


def escaped(text: str) -> str:
    """Escape characters that UTF-8 lacks."""
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
