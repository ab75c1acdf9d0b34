"""Workers that die, sweeps that are killed, and a real Dask cluster."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import distributed
import pytest

from implicit_bias.runs.backends import BackendError, DaskScheduler, LocalProcesses, gather
from implicit_bias.runs.cell import Outcome
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.grid import Grid
from implicit_bias.runs.runner import run_grid
from implicit_bias.runs.store import Store
from runs.test_runner import SMALL, TOO_MANY, finish, quick, seeds, snapshot
from system import LOCALLY, limited


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# --- processes of this machine -----------------------------------------------------------------


def test_a_number_of_processes() -> None:
    with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
        LocalProcesses(0)
    assert LocalProcesses(3).name == "this machine, processes: 3"


@pytest.mark.slow
def test_a_cell_whose_worker_dies_twice_fails_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    others = children(os.getpid())

    def workers() -> list[int]:
        return [child for child in children(os.getpid()) if child not in others]

    def kill_workers() -> None:
        wait_until(workers)
        for worker in workers():
            os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill_workers)
    killer.start()  # the worker of seed 1
    records = run_grid(seeds(2), Store(tmp_path), LocalProcesses(1))
    first = next(records)
    killer.join()
    assert (first.setting["seed"], first.outcome.status) == (2, "done")
    assert first.outcome.origin.threads == 1
    kill_workers()  # the one that is to try seed 1 again
    [second] = records
    assert (second.setting["seed"], second.outcome.status) == (1, "failed")
    assert "the worker process died 2 times" in str(second.outcome.error)
    assert str(second.outcome.error).count("exit code -9;") == 2
    assert not workers()


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT], ids=["kill-9", "Ctrl-C"])
def test_an_interrupted_sweep_resumes(blow: signal.Signals, tmp_path: Path) -> None:
    grid_file, store = tmp_path / "grid.toml", Store(tmp_path / "store")
    grid_file.write_text(
        'train_size = 40\nunits = 3\nsteps = [1, 2, 100_000]\nseed = [1, 2]\nmodels = ["gd-gln"]\n'
    )
    command = [sys.executable, "-m", "implicit_bias"]
    sweep = [*command, "sweep", str(grid_file), "--store", str(store.folder), "--json"]
    running = subprocess.Popen(
        [*sweep, "--processes", "2"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so do their children if nobody resets it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: len(snapshot(store)) >= 4)  # now in one of the long cells
    workers = children(running.pid)
    assert len(workers) == 2
    running.send_signal(blow)
    _, errors = running.communicate()
    assert running.returncode == (-blow if blow == signal.SIGKILL else 130)
    assert blow == signal.SIGKILL or "the same command goes on from there" in errors
    wait_until(lambda: not any(map(is_alive, workers)), 10)
    kept = snapshot(store)
    assert len(kept) == 4
    # The long cells made short: a grid that shares the finished ones.
    grid_file.write_text(grid_file.read_text().replace("100_000", "3"))
    done = subprocess.run([*sweep, "--processes", "1"], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert (facts["cells"], facts["computed"], facts["done"]) == (6, 2, 6)
    assert kept.items() <= snapshot(store).items()


# --- a cluster ---------------------------------------------------------------------------------


def test_no_scheduler(tmp_path: Path) -> None:
    nowhere = DaskScheduler("tcp://127.0.0.1:9", patience=0.5)
    with pytest.raises(BackendError, match="no Dask scheduler answers at tcp://127.0.0.1:9"):
        finish(seeds(1), Store(tmp_path), nowhere)


@pytest.mark.slow
def test_cells_are_claimed_as_a_scheduler_takes_them(tmp_path: Path) -> None:
    """Each claim is an open file, of which a process has not many."""
    cells, begun = [RunConfig(seed=seed) for seed in range(7)], []

    def claimed() -> Iterator[RunConfig]:
        for cell in cells:
            begun.append(cell)
            yield cell

    with (
        distributed.LocalCluster(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", **LOCALLY
        ) as here,
        distributed.Client(here) as client,
    ):
        outcomes = gather(client, quick, claimed(), at_once=3)
        next(outcomes)
        assert len(begun) <= 4
        assert len(list(outcomes)) == 6
        dask = DaskScheduler(here.scheduler_address, quick)
        with (
            limited(256, "RLIMIT_NOFILE"),
            closing(run_grid(seeds(300), Store(tmp_path), dask)) as records,
        ):
            assert next(records).outcome.status == "done"
    assert not list((tmp_path / "claims").iterdir())


@dataclass
class Cluster:
    """A scheduler and the processes of its workers, with the folder of their logs."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]
    folder: Path

    def add_worker(self, threads: int = 1) -> None:
        """Start a worker without a nanny, which would start it again once it is killed."""
        name = f"worker{len(self.workers)}"
        options = ["--host", "127.0.0.1", "--nthreads", str(threads), "--no-nanny"]
        options += ["--local-directory", str(self.folder / name)]
        log = self.folder / f"{name}.log"
        self.workers.append(start_dask("worker", self.address, *options, log=log))

    def kill_workers(self, count: int = 2) -> None:
        """Kill the first of them."""
        for worker in self.workers[:count]:
            worker.kill()
            worker.wait()


def start_dask(*arguments: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | environment)


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Start a scheduler and two workers; the parameter is how often a cell may lose its worker."""
    file = tmp_path / "scheduler.json"
    there = ["--host", "127.0.0.1", "--scheduler-file", str(file), "--port", "0"]
    allowed = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(request.param)}
    started = Cluster(
        "", start_dask("scheduler", *there, log=tmp_path / "log", **allowed), [], tmp_path
    )
    try:
        wait_until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        started.address = json.loads(file.read_text())["address"]
        for _ in range(2):
            started.add_worker()
        with distributed.Client(started.address) as client:
            client.wait_for_workers(2, timeout=60)
        yield started
    finally:
        for process in (started.scheduler, *started.workers):
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_dask_goes_on_while_it_has_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    facts = {**SMALL, "models": ["gd-gln", "svm-gln"], "steps": 300, "seed": list(range(6))}
    grid = Grid.from_mapping({**facts, "train_size": [40, TOO_MANY]})
    store, dask = Store(tmp_path / "store"), DaskScheduler(cluster.address, patience=10)
    with closing(run_grid(grid, store, dask)) as records:
        first = [next(records) for _ in range(4)]
        cluster.kill_workers(1)
        assert len(first) + len(list(records)) == 12
    failed = store.inventory(grid.by_key).failed.values()
    assert [record.setting["train_size"] for record in failed] == 6 * [TOO_MANY]
    assert finish(grid, store, dask) == []
    long = Grid.from_mapping({**facts, "models": ["gd-gln"], "steps": [1, 200_000], "seed": 7})
    records = run_grid(long, store, dask)
    next(records)
    cluster.kill_workers()
    for left in (records, run_grid(long, store, dask)):
        with pytest.raises(BackendError, match=f"no worker: start one .*{cluster.address}"):
            next(left)
    assert len(store.inventory(long.by_key).done) == 1
    assert not list((store.folder / "claims").iterdir())
    cluster.add_worker(threads=2)
    short = Grid.from_mapping({**SMALL, "seed": [1, 2, 3]})
    with pytest.warns(UserWarning, match="a worker has several threads"):
        finish(short, store, DaskScheduler(cluster.address))
    assert len(store.inventory(short.by_key).done) == 3


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [0], indirect=True)
def test_dask_gives_up_a_cell_whose_workers_die(cluster: Cluster, tmp_path: Path) -> None:
    facts = {**SMALL, "models": ["gd-gln"], "seed": list(range(6)), "steps": 2000}
    grid, store = Grid.from_mapping(facts), Store(tmp_path / "store")
    records = run_grid(grid, store, DaskScheduler(cluster.address))
    next(records)
    cluster.kill_workers(1)
    assert len(list(records)) == 5
    found = store.inventory(grid.by_key)
    assert found.done
    assert found.failed
    assert all("its workers died" in str(r.outcome.error) for r in found.failed.values())
    # Asked again, the worker that is left computes them.
    retried = list(run_grid(grid, store, DaskScheduler(cluster.address), retry_failed=True))
    assert len(retried) == len(found.failed)
    assert len(store.inventory(grid.by_key).done) == 6


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [3], indirect=True)
def test_what_a_scheduler_lacks_is_told(cluster: Cluster, tmp_path: Path) -> None:
    def elsewhere(config: RunConfig) -> Outcome:
        raise AssertionError("pickled by name, and not found")

    elsewhere.__module__ = "a_package_of_this_machine"
    store = Store(tmp_path / "store")
    with pytest.raises(BackendError, match="a worker cannot compute"):
        finish(seeds(1), store, DaskScheduler(cluster.address, elsewhere))
    grid = Grid.from_mapping({**SMALL, "models": ["gd-gln"], "steps": [1, 200_000]})
    records = run_grid(grid, store, DaskScheduler(cluster.address))
    next(records)
    cluster.scheduler.kill()
    with pytest.raises(BackendError, match="the scheduler has gone"):
        next(records)
    assert len(store.inventory(grid.by_key).done) == 1
