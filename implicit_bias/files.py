"""Writing files that are at no time half there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in its place.

    Parameters
    ----------
    path : str or Path
        The file; its folder is made if need be. What was there stays until all is written.
    write : callable
        Called with the temporary file's path.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    partial = Path(name)
    try:
        write(partial)
        partial.chmod(0o666 & ~_umask())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _umask() -> int:
    """Permissions that new files lack; mkstemp's own are for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
