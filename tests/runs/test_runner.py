"""Running grids: what a cell computes, resuming, failures, and several runs of one store."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pytest

from implicit_bias.base.processes import Pipe, Process, ProcessEnded
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.runs.backends import Backend, Outcomes
from implicit_bias.runs.cell import Origin, Outcome, compute
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.export import tables
from implicit_bias.runs.grid import Grid, cell_key
from implicit_bias.runs.runner import run_grid
from implicit_bias.runs.store import Record, Store, StoreError
from system import Panic

SMALL = {"train_size": 40, "models": ["svm-gln", "svm-linear"], "units": 3}
# More training samples than there are digits.
TOO_MANY = 5000


def quick(config: RunConfig) -> Outcome:
    return Outcome("done", Origin.here(), 0.0)


@dataclass(frozen=True)
class Here:
    """A backend that computes in this process, and remembers what it was asked for."""

    name: str = "here"
    asked: list[RunConfig] = field(default_factory=list)
    work: Callable[[RunConfig], Outcome] = quick

    def run(self, cells: Collection[RunConfig]) -> Outcomes:
        """Compute one after the other."""
        for cell in cells:
            self.asked.append(cell)
            yield cell, self.work(cell)


def seeds(count: int) -> Grid:
    return Grid.from_mapping({**SMALL, "seed": list(range(1, count + 1))})


def finish(grid: Grid, store: Store, backend: Backend) -> list[Record]:
    return list(run_grid(grid, store, backend))


def snapshot(store: Store) -> dict[str, tuple[bytes, int]]:
    files = (store.folder / "cells").glob("*.json")
    return {file.stem: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def claims(store: Store) -> list[Path]:
    return list((store.folder / "claims").iterdir())


# --- what a cell computes ----------------------------------------------------------------------


def test_a_cell_has_rows_of_models_and_pairs() -> None:
    config = RunConfig(train_size=60, units=3, steps=20, models=("gd-gln", "svm-gln", "svm-l2"))
    outcome = compute(config)
    assert outcome.status == "done"
    assert [row["model"] for row in outcome.models] == list(config.models)
    assert len(outcome.pairs) == 3
    network, svm, _ = outcome.models
    assert svm["status"] == "optimal"
    assert svm["lower"] <= svm["upper"] <= svm["lower"] * (1 + config.tol)
    assert network["optimum"] == svm["lower"]
    assert 0 < sum(row["seconds"] for row in outcome.models) <= outcome.seconds
    # Else a table of models beside their configuration would have a column twice.
    assert not {name for row in outcome.models for name in row} & {
        f.name for f in fields(RunConfig)
    }


def test_warnings_and_errors_are_part_of_the_outcome(capfd: pytest.CaptureFixture[str]) -> None:
    config = RunConfig(dataset="xor", train_size=40, models=("svm-linear",))
    outcome = compute(config)
    assert any("not separable" in warning for warning in outcome.warnings)
    assert outcome.models[0]["norm"] == np.inf
    failed = compute(RunConfig(train_size=TOO_MANY))
    assert failed.status == "failed"
    assert "ValueError: train_size=5000" in str(failed.error)
    assert "Traceback" in str(failed.traceback)

    def stops(error: type[BaseException]) -> Outcome:
        def stop(*_: object) -> Iterator[tuple[str, BinaryClassifier]]:
            raise error("rust")

        return compute(config, stop)

    assert stops(Panic).error == "Panic: rust"
    for error in (KeyboardInterrupt, SystemExit):
        with pytest.raises(error, match="rust"):
            stops(error)
    assert capfd.readouterr() == ("", "")


# --- policy: what is computed, what is kept ----------------------------------------------------


def test_a_bad_cell_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    grid = Grid.from_mapping({**SMALL, "train_size": [40, TOO_MANY, 50]})
    store, backend = Store(tmp_path), Here(work=compute)
    statuses = [record.outcome.status for record in finish(grid, store, backend)]
    assert statuses == ["done", "failed", "done"]
    found = store.inventory(grid.by_key)
    frames = tables([*found.done.values(), *found.failed.values()])
    rows = {name: len(frame) for name, frame in frames.items()}
    assert rows == {"cells": 3, "models": 4, "pairs": 2}
    # Neither is computed again, unless failed cells are asked for.
    assert finish(grid, store, backend) == []
    again = list(run_grid(grid, store, backend, retry_failed=True))
    assert [record.setting["train_size"] for record in again] == [TOO_MANY]


def test_grids_that_overlap_share_their_cells(tmp_path: Path) -> None:
    store, second = Store(tmp_path), Here()
    finish(seeds(2), store, Here())
    finish(Grid.from_mapping({"seed": [3, 2], **SMALL}), store, second)
    assert [cell.seed for cell in second.asked] == [3]


@pytest.mark.parametrize("disk", ["free", "full"])
def test_a_run_that_stops_keeps_what_was_finished(
    disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, flush = Store(tmp_path), os.fsync

    def full(descriptor: int) -> None:
        if len(snapshot(store)) == 2:
            raise OSError(28, os.strerror(28))
        flush(descriptor)

    if disk == "full":
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            finish(seeds(3), store, Here())
        monkeypatch.undo()
    else:
        with closing(run_grid(seeds(3), store, Here())) as records:
            next(records), next(records)
    kept, second = snapshot(store), Here()
    assert kept
    finish(seeds(3), store, second)
    assert len(second.asked) == 3 - len(kept)
    assert kept.items() <= snapshot(store).items()
    assert len(store.inventory(seeds(3).by_key).done) == 3
    assert not claims(store)


def test_a_damaged_record_is_reported_and_computed_again(tmp_path: Path) -> None:
    grid, store, backend = seeds(2), Store(tmp_path), Here()
    finish(grid, store, Here())
    file = store.file(cell_key(grid.cells[1]))
    file.write_text(file.read_text()[:100])
    with pytest.warns(UserWarning, match="is damaged: .*; the cell is computed again"):
        finish(grid, store, backend)
    assert [cell.seed for cell in backend.asked] == [2]
    assert len(store.inventory(grid.by_key).done) == 2


def test_data_that_change_meanwhile_are_told(tmp_path: Path) -> None:
    file, store = tmp_path / "own.csv", Store(tmp_path / "store")
    file.write_text("a,kind\n1,x\n2,y\n")
    grid = Grid.from_mapping({"data": str(file), "target": "kind", "seed": [1, 2]})
    records = run_grid(grid, store, Here())
    next(records)
    file.write_text("a,kind\n1,x\n3,y\n")
    with pytest.raises(StoreError, match="changed"):
        next(records)
    assert len(snapshot(store)) == 1


def test_what_cannot_be_computed_or_written_is_told(tmp_path: Path) -> None:
    def broken(config: RunConfig) -> Outcome:
        raise RuntimeError("no worker")

    store, unused = Store(tmp_path / "store"), Here()
    with pytest.raises(RuntimeError, match="no worker"):
        finish(seeds(1), store, Here(work=broken))
    assert not claims(store)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make the folder"):
        finish(seeds(1), Store(tmp_path / "file" / "store"), unused)
    assert not unused.asked


# --- several runs of one store -----------------------------------------------------------------


def test_two_runs_of_one_store_share_its_cells(tmp_path: Path) -> None:
    store, first, second = Store(tmp_path), Here(), Here()
    with (
        closing(run_grid(seeds(4), store, first)) as ours,
        closing(run_grid(seeds(4), Store(tmp_path), second)) as theirs,
    ):
        next(ours)  # of seed 1
        next(theirs)
        next(ours)
        assert len(list(theirs)) == 1
        assert not list(ours)
    assert [cell.seed for cell in (*first.asked, *second.asked)] == [1, 3, 2, 4]
    assert len(store.inventory(seeds(4).by_key).done) == 4
    assert not claims(store)


def test_a_claimed_cell_is_left_alone_until_its_process_has_died(tmp_path: Path) -> None:
    """Whatever its file says, and whenever it was made."""
    store = Store(tmp_path)
    store.prepare()
    first, second = seeds(2).by_key
    assert store.claim(first)
    [claim] = claims(store)
    store.release(first)
    hold = f"import filelock\nwith filelock.FileLock({str(claim)!r}): print(1), input()"
    pipe, other = subprocess.PIPE, [sys.executable, "-u", "-c", hold]
    with subprocess.Popen(other, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        os.utime(claim, (0, 0))
        assert [record.key for record in finish(seeds(2), store, Here())] == [second]
        process.kill()
    assert claim.exists()  # killed, it could not delete it
    os.utime(claim, (2**33, 2**33))
    assert [record.key for record in finish(seeds(2), store, Here())] == [first]


def test_cells_of_a_run_that_stopped_are_taken_over_at_the_end(tmp_path: Path) -> None:
    other = Store(tmp_path)
    other.prepare()
    first, *rest = seeds(3).by_key
    assert other.claim(first)
    records = run_grid(seeds(3), Store(tmp_path), Here())
    assert next(records).key == rest[0]
    other.release(first)
    assert [record.key for record in records] == [rest[1], first]


def fill(pipe: Pipe, folder: Path, grid: Grid) -> None:
    for record in run_grid(grid, Store(folder), Here()):
        pipe.send(record.key)


@pytest.mark.slow
def test_runs_that_are_killed_at_any_moment_compute_no_cell_again(tmp_path: Path) -> None:
    """Two at a time, eight in all."""
    store, rng = Store(tmp_path), np.random.default_rng(0)
    for _ in range(4):
        kept = snapshot(store)
        with (
            Process(fill, (tmp_path, seeds(200))) as first,
            Process(fill, (tmp_path, seeds(200))) as second,
            suppress(ProcessEnded),
        ):
            for process, count in zip((first, second), rng.integers(1, 5, size=2), strict=True):
                for _ in range(count):
                    process.receive()
        assert kept.items() <= snapshot(store).items()
    kept = snapshot(store)
    assert len(finish(seeds(200), store, Here())) == 200 - len(kept)
    assert kept.items() <= snapshot(store).items()
    assert len(store.inventory(seeds(200).by_key).done) == 200
