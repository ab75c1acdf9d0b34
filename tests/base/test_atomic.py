"""Files that are written whole."""

import re
from pathlib import Path

import pandas as pd
import pytest

from implicit_bias.base import atomic
from system import limited


def test_a_file_is_replaced_and_readable_like_others(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    atomic.write_text(tmp_path / "file", "one")
    atomic.write_text(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "two"
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "file", "kept")
    with limited(100), pytest.raises(OSError, match=re.escape(str(tmp_path / "file"))):
        atomic.write_text(tmp_path / "file", "x" * 10_000)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["kept"]


def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    assert atomic.make_folder(tmp_path / "new" / "deeper").is_dir()
    assert atomic.make_folder(tmp_path / "new").is_dir(), "what is there stays"
    (tmp_path / "file").touch()
    for below in ("file", "file/deeper"):
        with pytest.raises(OSError, match="file"):
            atomic.make_folder(tmp_path / below)


def test_the_next_path_of_a_name_is_free(tmp_path: Path) -> None:
    file = tmp_path / "model.joblib"
    assert atomic.free_path(file, suffix=".joblib") == file
    file.touch()
    (tmp_path / "model-2.joblib").touch()
    assert atomic.free_path(file, suffix=".joblib") == tmp_path / "model-3.joblib"


def test_a_place_is_tried_before_the_work(tmp_path: Path) -> None:
    atomic.check_writable(tmp_path / "new" / "file")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").touch()
    for taken in (tmp_path, tmp_path / "file" / "deeper"):
        with pytest.raises(OSError, match=str(tmp_path)):
            atomic.check_writable(taken)


def test_names_that_are_no_utf8_are_escaped(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "page", "\u00e9 of \udcff.csv")
    assert (tmp_path / "page").read_text("utf-8") == "\u00e9 of \\udcff.csv"


def test_text_with_quotes_and_ends_of_lines_reads_as_it_was_written(tmp_path: Path) -> None:
    names = ["=1+2", "l\nl", 'a"b', "x,y", " s ", "007"]
    frame = pd.DataFrame({"row": range(6), "id": names})
    csv, parquet = sorted(atomic.write_tables(tmp_path, {"names": frame}))
    for found in (pd.read_csv(csv, dtype={"id": str}), pd.read_parquet(parquet)):
        assert (found["row"].tolist(), found["id"].tolist()) == ([*range(6)], names)
