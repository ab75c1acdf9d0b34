"""Files that are at no time half there."""

import os
import stat
from pathlib import Path

import pytest

from implicit_bias.storage.atomic import write_text


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """A device, or here a named pipe, stays what it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no regular file"):
        write_text(pipe, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write_text(tmp_path / "file", "one")
    write_text(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "two"
