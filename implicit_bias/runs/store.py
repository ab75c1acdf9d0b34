"""A store: a folder with one file a cell, written at once and never half.

::

    FOLDER/store.json            says that this is a store, and its format
    FOLDER/cells/KEY.json        {"sha256": of the record's text, "record": {...}}
    FOLDER/claims/KEY.lock       locked by the process that computes the cell now

A file is written beside its place, flushed to the disk and then renamed: after kill -9, a power
cut or a full disk it is there whole or not at all. What is damaged all the same (the checksum
tells) counts as missing, and is reported.

Several processes may fill one store at a time. Each claims a cell before it computes it, by a lock
of the operating system, and releases it when the record is there. The system releases the locks of
a process that dies, however it dies. Processes of several machines need a file system whose locks
hold between them: NFS from version 4 on, Lustre mounted with ``flock``. On one without any locks
filelock warns, and marks claims by files; that of a process that died may then have to be deleted.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from implicit_bias.base import strict_json
from implicit_bias.base.atomic import make_folder, write_text
from implicit_bias.runs.cell import Origin, Outcome
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.grid import cell_key

FORMAT = "implicit-bias results 1"
HEAD = "store.json"
CELLS = "cells"
CLAIMS = "claims"


class StoreError(RuntimeError):
    """A folder that is no store, or a store that cannot be written; the message has the cure."""


class DamagedRecord(ValueError):
    """A cell's file is not what was once written."""


@dataclass(frozen=True)
class Record:
    """A cell and what came of it.

    Attributes
    ----------
    key : str
        From `cell_key`.
    setting : mapping
        `RunConfig.metadata` of the cell.
    outcome : Outcome
        Results, or the error.
    """

    key: str
    setting: Mapping[str, Any]
    outcome: Outcome


@dataclass(frozen=True)
class Inventory:
    """What a store has of some cells.

    Attributes
    ----------
    done, failed : mapping from key to Record
        In the order asked for.
    damaged : mapping from key to str
        What is wrong with the file of a cell.
    missing : tuple of str
        Keys of the cells without a file.
    """

    done: Mapping[str, Record]
    failed: Mapping[str, Record]
    damaged: Mapping[str, str]
    missing: tuple[str, ...]


class Store:
    """Records of cells in a folder.

    Parameters
    ----------
    folder : str or Path
        A store, or a folder that is empty or absent.

    Raises
    ------
    StoreError
        The folder holds something else.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._claims: dict[str, BaseFileLock] = {}
        head = self.folder / HEAD
        # In this order: another process may make it a store in between.
        there = list(self.folder.iterdir()) if self.folder.is_dir() else []
        # A killed run may have left hidden files.
        is_empty = all(item.name.startswith(".") for item in there)
        is_new = is_empty and (self.folder.is_dir() or not self.folder.exists())
        if head.is_file():
            _check_head(head)
        elif not is_new:
            raise StoreError(f"{self.folder} is no store of results: name an empty or new folder")

    def prepare(self) -> None:
        """Make the folder a store, before anything is computed for it.

        Raises
        ------
        StoreError
            No permission, or no space left.
        """
        if not (self.folder / HEAD).exists():
            self._write(self.folder / HEAD, json.dumps({"format": FORMAT}))

    def file(self, key: str) -> Path:
        """Return where the record of a cell is, or would be."""
        return self.folder / CELLS / f"{key}.json"

    def claim(self, key: str) -> bool:
        """Claim a cell for this process; False where another process has it.

        Raises
        ------
        StoreError
            No space left, or no permission.
        """
        try:
            file = make_folder(self.folder / CLAIMS) / f"{key}.lock"
            lock = FileLock(file, thread_local=False)
            lock.acquire(blocking=False)
        except Timeout:
            return False
        except OSError as error:
            raise self._unwritable(error) from error
        self._claims[key] = lock
        return True

    def release(self, key: str) -> None:
        """Give up the claim of this process to a cell."""
        lock = self._claims.pop(key)
        with suppress(OSError):  # the file is not the claim, and may stay
            # While it is locked: afterwards it may be the claim of another process.
            Path(lock.lock_file).unlink()
        lock.release()

    def write(self, config: RunConfig, outcome: Outcome) -> Record:
        """Keep the outcome of a cell; when this returns it is on the disk.

        Raises
        ------
        StoreError
            No space left, or no permission. What was written before is untouched.
        """
        record = Record(cell_key(config), config.metadata(), outcome)
        text = strict_json.dumps(asdict(record))
        envelope = f'{{"sha256": "{_digest(text)}", "record": {text}}}\n'
        self._write(self.file(record.key), envelope)
        return record

    def read(self, key: str) -> Record | None:
        """Return the record of a cell; None where there is none.

        Raises
        ------
        DamagedRecord
            The file is not what was written.
        """
        file = self.file(key)
        if file.exists() and not file.is_file():  # a pipe would never end
            raise DamagedRecord(f"{file} is no regular file: delete it")
        try:
            return record_of(key, file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise DamagedRecord(f"{file} is damaged: {error}") from error

    def inventory(self, keys: Iterable[str]) -> Inventory:
        """Read the records of these cells."""
        done: dict[str, Record] = {}
        failed: dict[str, Record] = {}
        damaged: dict[str, str] = {}
        missing = []
        folder = self.folder / CELLS
        there = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
        for key in keys:
            try:
                record = self.read(key) if self.file(key).name in there else None
            except DamagedRecord as error:
                damaged[key] = str(error)
                continue
            if record is None:
                missing.append(key)
            else:
                (done if record.outcome.status == "done" else failed)[key] = record
        return Inventory(done, failed, damaged, tuple(missing))

    def _write(self, file: Path, text: str) -> None:
        try:
            write_text(file, text)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> StoreError:
        said = error.strerror or str(error)
        if str(self.folder) not in said:  # a file of the store, which the error names, says enough
            said = f"cannot write to {self.folder}: {said}"
        return StoreError(f"{said}; the cells written before are kept")


def _check_head(head: Path) -> None:
    try:
        found = strict_json.loads(head.read_text(encoding="utf-8"))["format"]
    except (ValueError, TypeError, KeyError) as error:
        cure = f"write {strict_json.dumps({'format': FORMAT})} into it"
        raise StoreError(
            f"{head} does not say the format of a store ({error}): if this version wrote its "
            f"cells, {cure}; else name another folder"
        ) from error
    if found != FORMAT:
        raise StoreError(
            f"{head.parent} is in the format {found!r}, this version writes {FORMAT!r}: name "
            "another folder"
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def record_of(key: str, text: str) -> Record:
    """Read the record of a cell from the text of its file.

    Raises
    ------
    ValueError
        The text is not what was written, or is that of another cell.
    """
    content = strict_json.loads(text)
    try:
        fields = content["record"]
        # Python writes a number as the shortest text that reads back to it, so text and checksum
        # are the same again.
        if _digest(json.dumps(fields)) != content["sha256"]:
            raise ValueError("the checksum is wrong")
        outcome = dict(fields["outcome"])
        outcome["origin"] = Origin(**outcome["origin"])
        outcome["seconds"] = float(outcome["seconds"])
        outcome["warnings"] = tuple(outcome["warnings"])
        for table in ("models", "pairs"):
            outcome[table] = tuple(map(dict, strict_json.decode(outcome[table])))
        record = Record(fields["key"], dict(fields["setting"]), Outcome(**outcome))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if record.key != key:
        raise ValueError(f"it holds another cell, {record.key}")
    return record
