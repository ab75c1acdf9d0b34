"""Files of tensors with a JSON header that says what they are: models.

A file is in the safetensors format, so reading it runs no code. The header is JSON with Python's
words for what is not finite. Beside it is a checksum of header and tensors, which files of an older
format lack: it tells damage, not who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from implicit_bias.base.atomic import write_atomically
from implicit_bias.base.validation import existing_file

Tensors: TypeAlias = Mapping[str, NDArray[Any]]
T = TypeVar("T")


class FileError(ValueError):
    """A file that is not of the format asked for, or damaged; the message names it."""


# All formats by the names that headers have.
FORMATS: dict[str, TensorFormat] = {}


@dataclass(frozen=True)
class TensorFormat:
    """A kind of file.

    Parameters
    ----------
    name : str
        Format that the header names.
    older : tuple of str
        Names of formats that are read, too.
    what, cure : str
        How an error calls such a file, and what it advises.
    error : type of FileError
        Raised where a file is damaged.
    wanted : str
        What to pass instead of a file of another format.
    """

    name: str
    older: tuple[str, ...]
    what: str
    cure: str
    error: type[FileError] = FileError
    wanted: str = ""

    def __post_init__(self) -> None:
        FORMATS.update(dict.fromkeys((self.name, *self.older), self))

    def write(self, path: str | Path, tensors: Tensors, header: Mapping[str, Any]) -> None:
        """Write a file, replacing one of that name only once all is written.

        Parameters
        ----------
        path : str or Path
            The file; its folder is made if need be.
        tensors : mapping from str to ndarray
            Row-major arrays of numbers or bools.
        header : mapping
            What JSON can hold, and floats that it cannot.

        Raises
        ------
        OSError
            No space left, no permission; then the old file is as it was.
        """
        text = json.dumps({"format": self.name, **header})
        metadata = {"header": text, "sha256": _digest(text, tensors)}

        def save(partial: Path) -> None:
            try:
                safetensors.numpy.save_file(dict(tensors), partial, metadata=metadata)
            except safetensors.SafetensorError as error:  # so it calls what the disk refuses
                raise OSError(str(error)) from error

        write_atomically(path, save)

    def read(self, path: str | Path, decode: Callable[[dict[str, Any], Tensors], T]) -> T:
        """Read a file that `write` wrote, and return what ``decode`` makes of header and tensors.

        Raises
        ------
        FileError
            Not such a file, or a damaged one: whatever ``decode`` raises counts as damage.
        FileNotFoundError
            No such file.
        """
        path = existing_file(path)
        try:
            with safetensors.safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                text = metadata["header"]
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            if metadata.get("sha256") not in (None, _digest(text, tensors)):
                raise ValueError("the checksum is wrong")
            header = json.loads(text)
            if header["format"] not in (self.name, *self.older):
                other = FORMATS.get(header["format"])
                kind = f"it is a {other.what}" if other else f"its format is {header['format']!r}"
                raise ValueError(f"{kind}{self.wanted and f'; pass {self.wanted}'}")
            if header["format"] == self.name and "sha256" not in metadata:
                raise ValueError("its checksum is missing")
            return decode(header, tensors)
        except Exception as error:  # an untrusted file can make these steps raise anything
            raise self.error(
                f"{path} is no {self.what}, or is damaged ({error}): {self.cure}"
            ) from error


def _digest(text: str, tensors: Tensors) -> str:
    """SHA-256 of a header and of names, types, shapes and values of tensors."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()
