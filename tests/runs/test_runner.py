"""Running grids: resuming, failures, workers that die, and a real Dask cluster."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest

from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.runs.backends import (
    Backend,
    BackendError,
    DaskScheduler,
    LocalProcesses,
    Outcomes,
    gather,
)
from implicit_bias.runs.cell import Origin, Outcome, compute
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.export import tables
from implicit_bias.runs.grid import Grid, cell_key
from implicit_bias.runs.processes import Process, ProcessEnded
from implicit_bias.runs.runner import inventory, run_grid
from implicit_bias.runs.store import Record, Store, StoreError

SMALL = {"train_size": 40, "models": ["svm-gln", "svm-linear"], "units": 3}
# More training samples than there are digits.
TOO_MANY = 5000
# Without it Dask asks the network for an address of its own, which there need not be.
LOCALLY: Any = {"host": "127.0.0.1", "protocol": "tcp://"}


@dataclass(frozen=True)
class Here:
    """A backend that computes in this process, and remembers what it was asked for."""

    name: str = "here"
    asked: list[RunConfig] = field(default_factory=list)
    work: Callable[[RunConfig], Outcome] = compute

    def run(self, cells: Collection[RunConfig]) -> Outcomes:
        """Compute one after the other."""
        for cell in cells:
            self.asked.append(cell)
            yield cell, self.work(cell)


def quick(config: RunConfig) -> Outcome:
    return Outcome("done", Origin.here(), 0.0)


def snapshot(store: Store) -> dict[str, tuple[bytes, int]]:
    files = (store.folder / "cells").glob("*.json")
    return {file.stem: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def finish(grid: Grid, store: Store, backend: Backend) -> list[Record]:
    return list(run_grid(grid, store, backend))


# --- what a cell computes ----------------------------------------------------------------------


def test_a_cell_has_rows_of_models_and_pairs() -> None:
    config = RunConfig(train_size=60, units=3, steps=20, models=("gd-gln", "svm-gln", "svm-l2"))
    outcome = compute(config)
    assert outcome.status == "done"
    assert [row["model"] for row in outcome.models] == list(config.models)
    assert [(row["first"], row["second"]) for row in outcome.pairs] == [
        ("gd-gln", "svm-gln"),
        ("gd-gln", "svm-l2"),
        ("svm-gln", "svm-l2"),
    ]
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
    outcome = compute(RunConfig(dataset="xor", train_size=40, models=("svm-linear",)))
    assert outcome.status == "done"
    assert any("not separable" in warning for warning in outcome.warnings)
    assert outcome.models[0]["norm"] == np.inf
    failed = compute(RunConfig(train_size=TOO_MANY))
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.startswith("ValueError: train_size=5000")
    assert failed.traceback is not None
    assert "Traceback" in failed.traceback
    assert capfd.readouterr() == ("", "")


class Panic(BaseException):
    """As Rust's, which is no Exception."""


@pytest.mark.parametrize("error", [Panic, KeyboardInterrupt, SystemExit])
def test_a_panic_is_an_error_of_the_cell(error: type[BaseException]) -> None:
    def panic(*_: object) -> Iterator[tuple[str, BinaryClassifier]]:
        raise error("rust")

    config = RunConfig(dataset="xor", train_size=40, models=("svm-linear",))
    if error is Panic:
        assert compute(config, panic).error == "Panic: rust"
    else:
        with pytest.raises(error):
            compute(config, panic)


# --- policy: what is computed, what is kept ----------------------------------------------------


def test_a_bad_cell_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    grid = Grid.from_mapping({**SMALL, "train_size": [40, TOO_MANY, 50]})
    store, backend = Store(tmp_path), Here()
    statuses = [record.outcome.status for record in finish(grid, store, backend)]
    assert statuses == ["done", "failed", "done"]
    found = inventory(grid, store)
    assert len(found.done) == 2
    assert [record.setting["train_size"] for record in found.failed.values()] == [TOO_MANY]
    frames = tables([*found.done.values(), *found.failed.values()])
    assert {name: len(frame) for name, frame in frames.items()} == {
        "cells": 3,
        "models": 4,
        "pairs": 2,
    }
    # Neither is computed again, unless failed cells are asked for.
    assert finish(grid, store, backend) == []
    again = list(run_grid(grid, store, backend, retry_failed=True))
    assert [record.setting["train_size"] for record in again] == [TOO_MANY]


def test_grids_that_overlap_share_their_cells(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finish(Grid.from_mapping({**SMALL, "seed": [1, 2]}), store, Here(work=quick))
    second = Here(work=quick)
    finish(Grid.from_mapping({"seed": [3, 2], **SMALL}), store, second)
    assert [cell.seed for cell in second.asked] == [3]


def test_a_stop_keeps_what_was_finished(tmp_path: Path) -> None:
    grid = Grid.from_mapping({**SMALL, "seed": [1, 2, 3]})
    store, first, second = Store(tmp_path), Here(work=quick), Here(work=quick)
    with closing(run_grid(grid, store, first)) as records:
        next(records)
        next(records)
    kept = snapshot(store)
    assert len(kept) == 2
    finish(grid, store, second)
    assert [cell.seed for cell in second.asked] == [3]
    assert kept.items() <= snapshot(store).items()


def test_a_full_disk_stops_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid.from_mapping({**SMALL, "seed": [1, 2, 3]})
    store = Store(tmp_path)
    flush = os.fsync

    def full(descriptor: int) -> None:
        if len(snapshot(store)) == 2:
            raise OSError(28, os.strerror(28))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        finish(grid, store, Here(work=quick))
    monkeypatch.undo()
    kept = snapshot(store)
    second = Here(work=quick)
    finish(grid, store, second)
    assert len(second.asked) == 3 - len(kept)
    assert kept.items() <= snapshot(store).items()
    assert len(inventory(grid, store).done) == 3


def test_two_runs_of_one_store_share_its_cells(tmp_path: Path) -> None:
    grid = Grid.from_mapping({**SMALL, "seed": [1, 2, 3, 4]})
    store, first, second = Store(tmp_path), Here(work=quick), Here(work=quick)
    with (
        closing(run_grid(grid, store, first)) as ours,
        closing(run_grid(grid, Store(tmp_path), second)) as theirs,
    ):
        next(ours)  # of seed 1
        next(theirs)
        next(ours)
        assert len(list(theirs)) == 1
        assert not list(ours)
    assert [cell.seed for cell in (*first.asked, *second.asked)] == [1, 3, 2, 4]
    assert len(inventory(grid, store).done) == 4
    assert not list((tmp_path / "claims").iterdir())


def hold(pipe: Connection, folder: Path, key: str) -> None:
    store = Store(folder)
    pipe.send(store.claim(key))
    pipe.recv()


def test_a_claimed_cell_is_left_alone_until_its_process_has_died(tmp_path: Path) -> None:
    """Whatever its file says, and whenever it was made."""
    grid, store = Grid.from_mapping({**SMALL, "seed": [1, 2]}), Store(tmp_path)
    store.prepare()
    first, second = grid.by_key()
    with Process(hold, (tmp_path, first), preload=["implicit_bias.runs.store"]) as process:
        assert process.receive()
        [claim] = (tmp_path / "claims").iterdir()
        os.utime(claim, (0, 0))
        assert [record.key for record in finish(grid, store, Here(work=quick))] == [second]
    assert claim.exists()  # killed, it could not delete it
    os.utime(claim, (2**33, 2**33))
    assert [record.key for record in finish(grid, store, Here(work=quick))] == [first]


def fill(pipe: Connection, folder: Path, grid: Grid) -> None:
    for record in run_grid(grid, Store(folder), Here(work=quick)):
        pipe.send(record.key)


@pytest.mark.slow
def test_runs_that_are_killed_at_any_moment_compute_no_cell_again(tmp_path: Path) -> None:
    """Two at a time, sixteen in all."""
    grid = Grid.from_mapping({**SMALL, "seed": list(range(200))})
    store, rng = Store(tmp_path), np.random.default_rng(0)
    for _ in range(8):
        kept = snapshot(store)
        preload = ["implicit_bias.runs.runner"]
        with (
            Process(fill, (tmp_path, grid), preload=preload) as first,
            Process(fill, (tmp_path, grid), preload=preload) as second,
            suppress(ProcessEnded),
        ):
            for process, count in zip((first, second), rng.integers(0, 4, size=2), strict=True):
                for _ in range(count):
                    process.receive()
        assert kept.items() <= snapshot(store).items()
    kept = snapshot(store)
    assert len(finish(grid, store, Here(work=quick))) == 200 - len(kept)
    assert kept.items() <= snapshot(store).items()
    assert len(inventory(grid, store).done) == 200


def test_cells_of_a_run_that_stopped_are_taken_over_at_the_end(tmp_path: Path) -> None:
    grid = Grid.from_mapping({**SMALL, "seed": [1, 2, 3]})
    other = Store(tmp_path)
    other.prepare()
    first, *rest = grid.by_key()
    assert other.claim(first)
    records = run_grid(grid, Store(tmp_path), Here(work=quick))
    assert next(records).key == rest[0]
    other.release(first)
    assert [record.key for record in records] == [rest[1], first]


def test_data_that_change_meanwhile_are_told(tmp_path: Path) -> None:
    file, store = tmp_path / "own.csv", Store(tmp_path / "store")
    file.write_text("a,kind\n1,x\n2,y\n")
    grid = Grid.from_mapping({"data": str(file), "target": "kind", "seed": [1, 2]})
    records = run_grid(grid, store, Here(work=quick))
    next(records)
    file.write_text("a,kind\n1,x\n3,y\n")
    with pytest.raises(StoreError, match="changed"):
        next(records)
    assert len(snapshot(store)) == 1


def test_more_cells_than_a_scheduler_is_given_at_once() -> None:
    """As many are claimed, each by an open file, and all are computed."""
    cells = [RunConfig(seed=seed) for seed in range(7)]
    begun = []

    def claimed() -> Iterator[RunConfig]:
        for cell in cells:
            begun.append(cell)
            yield cell

    with distributed.Client(
        processes=False, n_workers=1, dashboard_address=":0", **LOCALLY
    ) as client:
        outcomes = gather(client, quick, claimed(), at_once=3)
        next(outcomes)
        assert len(begun) <= 4
        assert len(list(outcomes)) == 6


def test_claims_leave_files_to_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    grid = Grid.from_mapping({**SMALL, "seed": list(range(300))})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with distributed.LocalCluster(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", **LOCALLY
    ) as here:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        try:
            records = run_grid(grid, Store(tmp_path), DaskScheduler(here.scheduler_address, quick))
            with closing(records):
                assert next(records).outcome.status == "done"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not list((tmp_path / "claims").iterdir())


def test_a_failure_releases_the_claims(tmp_path: Path) -> None:
    def broken(config: RunConfig) -> Outcome:
        raise RuntimeError("no worker")

    with pytest.raises(RuntimeError, match="no worker"):
        finish(Grid.from_mapping(SMALL), Store(tmp_path), Here(work=broken))
    assert not list((tmp_path / "claims").iterdir())


def test_a_damaged_record_is_reported_and_computed_again(tmp_path: Path) -> None:
    grid = Grid.from_mapping({**SMALL, "seed": [1, 2]})
    store, backend = Store(tmp_path), Here(work=quick)
    finish(grid, store, Here(work=quick))
    file = store.file(cell_key(grid.cells()[1]))
    file.write_text(file.read_text()[:100])
    with pytest.warns(UserWarning, match="is damaged: .*; the cell is computed again"):
        finish(grid, store, backend)
    assert [cell.seed for cell in backend.asked] == [2]
    assert len(inventory(grid, store).done) == 2


def test_a_folder_that_cannot_be_written_is_told_before_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    backend = Here(work=quick)
    with pytest.raises(StoreError, match="cannot write to"):
        finish(Grid(()), Store(tmp_path / "file" / "store"), backend)
    assert not backend.asked


# --- processes of this machine -----------------------------------------------------------------


def test_a_number_of_processes() -> None:
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        LocalProcesses(0)
    assert LocalProcesses(3).name == "this machine, processes: 3"


def kill_children() -> None:
    while not multiprocessing.active_children():
        time.sleep(0.01)
    for child in multiprocessing.active_children():
        child.kill()


@pytest.mark.slow
def test_a_cell_whose_worker_dies_twice_fails_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    grid = Grid.from_mapping({**SMALL, "seed": [1, 2]})
    store = Store(tmp_path)
    killer = threading.Thread(target=kill_children)
    killer.start()  # the worker of seed 1
    records = run_grid(grid, store, LocalProcesses(1))
    first = next(records)
    killer.join()
    assert (first.setting["seed"], first.outcome.status) == (2, "done")
    assert first.outcome.origin.threads == 1
    kill_children()  # the one that is to try seed 1 again
    [second] = records
    assert (second.setting["seed"], second.outcome.status) == (1, "failed")
    assert second.outcome.error is not None
    assert "the worker process died 2 times (exit code -9; exit code -9" in second.outcome.error
    assert not multiprocessing.active_children()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT], ids=["kill-9", "Ctrl-C"])
def test_an_interrupted_sweep_resumes(blow: signal.Signals, tmp_path: Path) -> None:
    grid_file = tmp_path / "grid.toml"
    grid_file.write_text(
        'train_size = 40\nunits = 3\nsteps = [1, 2, 100_000]\nseed = [1, 2]\nmodels = ["gd-gln"]\n'
    )
    command = [sys.executable, "-m", "implicit_bias"]
    sweep = [*command, "sweep", str(grid_file), "--store", str(tmp_path / "store"), "--json"]
    store = Store(tmp_path / "store")
    running = subprocess.Popen(
        [*sweep, "--processes", "2"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so do their children if nobody resets it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: len(snapshot(store)) >= 4)  # now in one of the long cells
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    running.send_signal(blow)
    _, errors = running.communicate()
    assert running.returncode == (-blow if blow == signal.SIGKILL else 130)
    assert blow == signal.SIGKILL or "the same command goes on from there" in errors
    wait_until(lambda: not any(is_alive(int(child)) for child in children), 10)
    kept = snapshot(store)
    assert len(kept) == 4
    # The long cells made short: a grid that shares the finished ones.
    grid_file.write_text(grid_file.read_text().replace("100_000", "3"))
    done = subprocess.run([*sweep, "--processes", "1"], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert (facts["cells"], facts["computed"], facts["done"]) == (6, 2, 6)
    assert kept.items() <= snapshot(store).items()


# --- a cluster ---------------------------------------------------------------------------------


def test_no_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("implicit_bias.runs.backends.CONNECT_TIMEOUT", 0.5)
    with pytest.raises(BackendError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        finish(Grid.from_mapping(SMALL), Store(tmp_path), DaskScheduler("tcp://127.0.0.1:9"))


@dataclass
class Cluster:
    """A scheduler and the processes of its workers."""

    address: str
    workers: list[subprocess.Popen[bytes]]
    scheduler: subprocess.Popen[bytes]


def dask(*arguments: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | environment)


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Start a scheduler and two workers; the parameter is how often a cell may lose its worker."""
    file = tmp_path / "scheduler.json"
    there = ["--host", "127.0.0.1", "--scheduler-file", str(file)]
    environment = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(request.param)}
    scheduler = dask(
        "scheduler", "--port", "0", *there, log=tmp_path / "scheduler.log", **environment
    )
    processes = [scheduler]
    try:
        wait_until(file.exists)
        wait_until(lambda: file.read_text().rstrip().endswith("}"))
        # Without nannies, which would start a killed worker again.
        there = ["--host", "127.0.0.1", "--nthreads", "1", "--no-nanny"]
        address = json.loads(file.read_text())["address"]
        for n in range(2):
            local = ["--local-directory", str(tmp_path / f"worker{n}")]
            processes.append(
                dask("worker", address, *there, *local, log=tmp_path / f"worker{n}.log")
            )
        with distributed.Client(address) as client:
            client.wait_for_workers(2, timeout=60)
        yield Cluster(address, processes[1:], scheduler)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_dask_with_a_worker_that_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    facts = {**SMALL, "models": ["gd-gln", "svm-gln"], "steps": 300, "seed": list(range(12))}
    grid = Grid.from_mapping({**facts, "train_size": [40, TOO_MANY]})
    store = Store(tmp_path / "store")
    records = run_grid(grid, store, DaskScheduler(cluster.address))
    first = [next(records) for _ in range(4)]
    cluster.workers[0].kill()
    rest = list(records)
    assert len(first) + len(rest) == 24
    found = inventory(grid, store)
    assert len(found.done) == 12
    assert {record.setting["train_size"] for record in found.failed.values()} == {TOO_MANY}
    assert finish(grid, store, DaskScheduler(cluster.address)) == []


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [0], indirect=True)
def test_dask_gives_up_a_cell_whose_workers_die(cluster: Cluster, tmp_path: Path) -> None:
    facts = {**SMALL, "models": ["gd-gln"], "seed": list(range(6)), "steps": 2000}
    grid, store = Grid.from_mapping(facts), Store(tmp_path / "store")
    records = run_grid(grid, store, DaskScheduler(cluster.address))
    next(records)
    cluster.workers[0].kill()
    assert len(list(records)) == 5
    found = inventory(grid, store)
    assert found.done
    assert found.failed
    assert all("its workers died" in str(r.outcome.error) for r in found.failed.values())
    # Asked again, the worker that is left computes them.
    retried = list(run_grid(grid, store, DaskScheduler(cluster.address), retry_failed=True))
    assert len(retried) == len(found.failed)
    assert len(inventory(grid, store).done) == 6


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_workers_that_have_all_died_are_told(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid.from_mapping({**SMALL, "models": ["gd-gln"], "steps": [1, 200_000]})
    store = Store(tmp_path / "store")
    records = run_grid(grid, store, DaskScheduler(cluster.address))
    next(records)
    monkeypatch.setattr("implicit_bias.runs.backends.CONNECT_TIMEOUT", 2)
    for process in cluster.workers:
        process.kill()
    with pytest.raises(BackendError, match=f"no worker: start one .*{cluster.address}"):
        next(records)
    assert len(inventory(grid, store).done) == 1
    assert not list((store.folder / "claims").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_a_scheduler_that_goes_is_told(cluster: Cluster, tmp_path: Path) -> None:
    grid = Grid.from_mapping({**SMALL, "models": ["gd-gln"], "steps": [1, 200_000]})
    store = Store(tmp_path / "store")
    records = run_grid(grid, store, DaskScheduler(cluster.address))
    next(records)
    cluster.scheduler.kill()
    with pytest.raises(BackendError, match="the scheduler has gone"):
        next(records)
    assert len(inventory(grid, store).done) == 1


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_no_worker_and_one_of_several_threads(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for process in cluster.workers:
        process.kill()
        process.wait()
    monkeypatch.setattr("implicit_bias.runs.backends.CONNECT_TIMEOUT", 2)
    grid, store = Grid.from_mapping({**SMALL, "seed": [1, 2, 3]}), Store(tmp_path / "store")
    with pytest.raises(
        BackendError, match=f"no worker: start one with `dask worker {cluster.address}"
    ):
        finish(grid, store, DaskScheduler(cluster.address))
    monkeypatch.undo()
    there = ["--host", "127.0.0.1", "--nthreads", "2", "--no-nanny"]
    worker = dask("worker", cluster.address, *there, log=tmp_path / "worker.log")
    try:
        with pytest.warns(UserWarning, match="a worker has several threads"):
            finish(grid, store, DaskScheduler(cluster.address))
    finally:
        worker.kill()
        worker.wait()
    assert len(inventory(grid, store).done) == 3


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_a_worker_that_lacks_the_function_is_told(cluster: Cluster, tmp_path: Path) -> None:
    def elsewhere(config: RunConfig) -> Outcome:
        raise AssertionError("pickled by name, and not found")

    elsewhere.__module__ = "a_package_of_this_machine"
    backend = DaskScheduler(cluster.address, elsewhere)
    with pytest.raises(BackendError, match="a worker cannot compute"):
        finish(Grid.from_mapping(SMALL), Store(tmp_path / "store"), backend)
