"""The store: what is written comes back, damage is found, and a full disk loses nothing."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from implicit_bias.base.atomic import write_atomically, write_tables
from implicit_bias.runs.cell import Origin, Outcome, failure
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.export import tables
from implicit_bias.runs.grid import cell_key
from implicit_bias.runs.store import DamagedRecord, Store, StoreError
from modules import known
from system import limited

CONFIG = RunConfig(train_size=60, models=("svm-gln", "svm-l2"))
KEY = cell_key(CONFIG)


def outcome() -> Outcome:
    return Outcome(
        status="done",
        origin=Origin.here(),
        seconds=1.25,
        models=(
            {"model": "svm-gln", "norm": 1.1, "program_C": np.inf, "status": "optimal"},
            {"model": "svm-l2", "norm": 0.1 + 0.2, "program_C": np.inf, "status": None},
        ),
        pairs=({"first": "svm-gln", "second": "svm-l2", "disagreement": 0.25, "kappa": np.nan},),
        warnings=("some warning",),
    )


def refuse(constant: str) -> None:
    raise AssertionError(constant)


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert store.read(KEY) is None
    store.prepare()
    written = store.write(CONFIG, outcome())
    found = known(Store(tmp_path / "store").read(KEY))
    assert found.key == KEY == written.key
    assert RunConfig.from_metadata(found.setting) == CONFIG
    assert found.outcome.models == outcome().models  # to the last bit, and infinity
    assert found.outcome.pairs[0]["kappa"] is None  # no number
    assert found.outcome.warnings == ("some warning",)
    assert found.outcome.origin == written.outcome.origin
    assert found.outcome.origin.dependencies["numpy"] == np.__version__
    content = json.loads(store.file(KEY).read_text(), parse_constant=refuse)  # strict JSON
    assert content["record"]["outcome"]["models"][0]["program_C"] == "inf"
    store.write(CONFIG, replace(failure("ValueError: no", 0.5), traceback="Traceback ..."))
    inventory = store.inventory([KEY])
    assert inventory.failed[KEY].outcome.error == "ValueError: no"
    assert inventory.failed[KEY].outcome.traceback == "Traceback ..."
    assert not inventory.done


def forged(text: str, **changes: object) -> str:
    """Change a record, and its checksum."""
    record = json.dumps(json.loads(text)["record"] | changes)
    digest = hashlib.sha256(record.encode()).hexdigest()
    return f'{{"sha256": "{digest}", "record": {record}}}'


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda text: "", "is damaged"),
        (lambda text: text.replace("1.25", "1.26"), "checksum is wrong"),
        (lambda text: "[]", "is damaged"),
        (lambda text: "{}", "is damaged"),
        (lambda text: forged(text, setting=None), "is damaged"),
        (lambda text: forged(text, outcome={**asdict(outcome()), "models": [1]}), "is damaged"),
        (lambda text: forged(text, outcome={**asdict(outcome()), "seconds": "x"}), "is damaged"),
    ],
    ids=["truncated", "empty", "changed", "list", "no-record", "no-setting", "no-row", "no-time"],
)
def test_damage_is_found(damage: Callable[[str], str], reason: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(CONFIG, outcome())
    text = store.file(KEY).read_text()
    store.file(KEY).write_text(damage(text))
    with pytest.raises(DamagedRecord, match=reason):
        store.read(KEY)
    found = store.inventory([KEY, "other"])
    assert KEY in found.damaged
    assert found.missing == ("other",)
    store.write(CONFIG, outcome())
    assert store.read(KEY) is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.file(KEY).parent.mkdir()
    os.mkfifo(store.file(KEY))
    with pytest.raises(DamagedRecord, match="regular file"):
        store.read(KEY)
    with pytest.raises(StoreError, match="regular file"):
        store.write(CONFIG, outcome())


def test_a_record_in_the_wrong_place_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(CONFIG, outcome())
    store.file(KEY).rename(store.file("other"))
    with pytest.raises(DamagedRecord, match=f"holds another cell, {KEY}"):
        store.read("other")


def test_a_full_disk_keeps_what_there_was(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(CONFIG, outcome())
    before = store.file(KEY).read_bytes()
    kept = r"File too large; the cells .* are kept"
    with limited(100):
        with pytest.raises(StoreError, match=kept) as told:
            store.write(CONFIG, failure("new", 0.0))
        with pytest.raises(StoreError, match=kept):
            store.write(replace(CONFIG, seed=2), outcome())
    assert str(told.value).count(str(tmp_path)) == 1
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [f"{KEY}.json"]
    assert store.file(KEY).read_bytes() == before


def test_files_are_flushed_before_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    flush, rename = os.fsync, os.replace

    def noted_flush(descriptor: int) -> None:
        events.append("flush")
        flush(descriptor)

    def noted_rename(old: Path, new: Path) -> None:
        events.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_flush)
    monkeypatch.setattr(os, "replace", noted_rename)
    write_atomically(tmp_path / "file", lambda partial: partial.write_text("text"))
    assert events == ["flush", "rename", "flush"]  # the file, its name, the folder
    assert (tmp_path / "file").read_text() == "text"


def test_other_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(StoreError, match="is no store of results"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="is no store of results"):
        Store(tmp_path / "letter.txt")
    (tmp_path / "store.json").write_text('{"format": "implicit-bias results 99"}')
    with pytest.raises(StoreError, match="is in the format 'implicit-bias results 99'"):
        Store(tmp_path)
    (tmp_path / "store.json").write_text("{")
    with pytest.raises(
        StoreError, match="does not say the format.*write {.format.: .*another folder"
    ):
        Store(tmp_path)
    (tmp_path / "killed").mkdir()  # at its birth: one all the same
    (tmp_path / "killed" / ".store.json.k2j3").write_text("{")
    Store(tmp_path / "killed").prepare()
    assert Store(tmp_path / "killed").inventory([KEY]).missing == (KEY,)


def test_tables(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    done = store.write(CONFIG, outcome())
    failed = store.write(replace(CONFIG, units=4), failure("ValueError: \udcff.csv", 0.5))
    read = [store.read(record.key) for record in (done, failed)]
    frames = tables(record for record in read if record is not None)
    files = write_tables(tmp_path / "tables", frames)
    assert {file.suffix for file in files} == {".parquet", ".csv"}
    for name, rows in {"cells": 2, "models": 2, "pairs": 1}.items():
        csv = pd.read_csv(tmp_path / "tables" / f"{name}.csv")
        parquet = pd.read_parquet(tmp_path / "tables" / f"{name}.parquet")
        assert len(csv) == len(parquet) == rows
        assert list(csv.columns) == list(parquet.columns)
        assert len(set(csv.columns)) == len(csv.columns)
    models = pd.read_parquet(tmp_path / "tables" / "models.parquet")
    assert list(models["model"]) == ["svm-gln", "svm-l2"]
    assert list(models["cell"]) == [KEY, KEY]
    assert models["units"].eq(CONFIG.units).all()
    assert models["C"].eq(math.inf).all()
    assert models["norm"][1] == 0.1 + 0.2
    cells = pd.read_parquet(tmp_path / "tables" / "cells.parquet")
    assert list(cells["status"]) == ["done", "failed"]
    assert cells["error"][1] == r"ValueError: \udcff.csv"  # as a name that is no UTF-8
