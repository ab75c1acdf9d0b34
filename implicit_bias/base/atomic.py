"""Writing files that are at no time half there."""

from __future__ import annotations

import os
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

    When this returns, the file is on the disk and outlives a crash of the machine.

    Parameters
    ----------
    path : str or Path
        The file; its folder is made if need be. What was there stays until all is written.
    write : callable
        Called with the temporary file's path.

    Raises
    ------
    OSError
        No space left, no permission, a folder that cannot be made, or something there that is no
        file, such as a device; then ``path`` is as it was.
    """
    path = Path(path)
    _make_place(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        draft = Path(name)
        try:
            write(draft)
            _flush(draft)  # else a crash could leave the new name with nothing behind it
            draft.chmod(0o666 & ~_umask())
            os.replace(draft, path)
            _flush(path.parent)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def check_writable(path: str | Path) -> None:
    """Raise OSError where `write_atomically` could not write: before the work, not after it."""
    path = Path(path)
    _make_place(path)
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


def _make_place(path: Path) -> None:
    """Make the folder of a file, unless something else has the file's name."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path} is there, and no regular file: write to another path")
    make_folder(path.parent)


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
        files = [place for place in (path, *path.parents) if os.path.isfile(place)]
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
        parquet, csv = Path(folder) / f"{name}.parquet", Path(folder) / f"{name}.csv"
        write_atomically(parquet, partial(frame.to_parquet, index=False))
        write_atomically(csv, partial(frame.to_csv, index=False))
        files += [parquet, csv]
    return files


def _flush(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # only POSIX opens folders
    # Windows flushes only what is open for writing.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """Permissions that new files lack; mkstemp's own are for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
