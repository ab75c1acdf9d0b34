"""Tensors with a header: what comes back is what was written."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from implicit_bias.base.tensors import FileError, TensorFormat, Tensors
from system import limited

NOTES = TensorFormat("notes 2", older=("notes 1",), what="file of notes", cure="write them again")
ARRAYS: dict[str, NDArray[Any]] = {
    "numbers": np.array([[1.5, np.nan], [-np.inf, -0.0]]),
    "few": np.array([0.1], dtype=np.float32),
    "flags": np.array([True, False]),
}


def everything(header: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    return header, tensors


def test_round_trip(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "notes.safetensors"
    NOTES.write(file, ARRAYS, {"C": math.inf, "history": [{"excess": -math.inf}, ("a", 0.1)]})
    header, tensors = NOTES.read(file, everything)
    assert header == {
        "format": "notes 2",
        "C": math.inf,
        "history": [{"excess": -math.inf}, ["a", 0.1]],
    }
    assert tensors.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert tensors[name].dtype == array.dtype
        assert tensors[name].tobytes() == array.tobytes()


def test_a_changed_file_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "notes.safetensors"
    NOTES.write(file, ARRAYS, {"C": 1.0})
    whole = file.read_bytes()
    for position in (len(whole) - 1, whole.index(b"1.0")):  # in a tensor, in the header
        changed = bytearray(whole)
        changed[position] ^= 1
        file.write_bytes(changed)
        with pytest.raises(FileError, match="checksum"):
            NOTES.read(file, everything)


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path) -> None:
    with limited(64), pytest.raises(OSError, match=r"notes\.safetensors"):
        NOTES.write(tmp_path / "notes.safetensors", ARRAYS, {})
    assert not list(tmp_path.iterdir())


def test_older_formats_are_read(tmp_path: Path) -> None:
    file = tmp_path / "notes.safetensors"
    header = json.dumps({"format": "notes 1", "C": math.inf})  # not strict
    safetensors.numpy.save_file({}, file, metadata={"header": header})
    assert NOTES.read(file, everything)[0]["C"] == math.inf


@pytest.mark.parametrize(
    "header", ['{"format": "notes 3"}', "{}", "[]", "no", '{"format": "notes 2"}']
)
def test_other_formats_are_refused_and_this_one_without_its_checksum(
    header: str, tmp_path: Path
) -> None:
    file = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({}, file, metadata={"header": header})
    words = "checksum" if "notes 2" in header else r"other\.safetensors"
    with pytest.raises(FileError, match=words):
        NOTES.read(file, everything)


def test_a_header_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "notes.safetensors"
    NOTES.write(file, {}, {"kept": 1})
    with pytest.raises(TypeError):
        NOTES.write(file, {}, {"set": {1}})
    assert NOTES.read(file, everything)[0]["kept"] == 1
