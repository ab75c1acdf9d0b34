"""Writing files that are at no time half there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


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
        No space left, no permission; then ``path`` is as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    partial = Path(name)
    try:
        write(partial)
        _flush(partial)  # else a crash could leave the new name with nothing behind it
        partial.chmod(0o666 & ~_umask())
        os.replace(partial, path)
        _flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


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
