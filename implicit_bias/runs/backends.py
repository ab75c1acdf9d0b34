"""Where cells are computed: processes of this machine, or the workers of a Dask scheduler.

A backend takes settings and yields each with its outcome as soon as it is there, in any order.
Only outcomes travel: whoever asked writes them, so that workers need not share a disk. A cell
whose worker dies (for want of memory, say) is tried again, and fails if that happens once more
(Dask: as often as the scheduler's ``allowed-failures`` say). When the caller stops early, cells
being computed are given up.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeAlias

import joblib
import threadpoolctl
import torch

from implicit_bias.base.processes import Pipe, Process, ProcessEnded
from implicit_bias.base.validation import check_count
from implicit_bias.runs.cell import Outcome, compute, failure
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.grid import cell_key

if TYPE_CHECKING:
    import distributed

# Its caller closes a backend's generator, and so stops the computation.
Outcomes: TypeAlias = Generator[tuple[RunConfig, Outcome], None, None]
# Computes a cell; workers import it by its name, so it is a function of a module that they have.
Compute: TypeAlias = Callable[[RunConfig], Outcome]

# A cell is given to this many workers that die before it fails.
ATTEMPTS = 2
# Cells that a scheduler has at once, if this process may open twice as many files: each is claimed
# by an open file.
AT_ONCE = 500
# Seconds between two questions whether a scheduler has an outcome.
POLL = 0.01


class BackendError(RuntimeError):
    """No worker can compute: the message has the cause and the cure."""


class Backend(Protocol):
    """Computes cells."""

    @property
    def name(self) -> str:
        """What it is, for the user."""

    def run(self, cells: Collection[RunConfig]) -> Outcomes:
        """Yield each cell with its outcome as soon as it is there.

        Cells that another run computes are left out when the sequence is iterated, so it may
        yield fewer than its length.
        """


# --- processes of this machine -----------------------------------------------------------------


@dataclass(frozen=True)
class LocalProcesses:
    """Processes of this machine, which share its cores.

    Parameters
    ----------
    processes : int or None
        How many; None for one a core. Each takes its share of the cores as threads, and no more
        than ``OMP_NUM_THREADS``.
    compute : callable
        Computes a cell: the function of this package, or one that adds models.

    Raises
    ------
    ValueError
        Less than one process.
    """

    processes: int | None = None
    compute: Compute = compute

    def __post_init__(self) -> None:
        if self.processes is not None:
            check_count(self.processes, "processes")

    @property
    def name(self) -> str:
        """How many processes."""
        return f"this machine, processes: {self._count()}"

    def _count(self) -> int:
        return self.processes or joblib.cpu_count()

    def run(self, cells: Collection[RunConfig]) -> Outcomes:
        """Yield each cell with its outcome as soon as it is there."""
        count = min(self._count(), len(cells))
        if not count:
            return
        waiting = map(_Job, cells)  # asked for one at a time: each claims its cell
        threads = max(1, joblib.cpu_count() // count)
        again = deque[_Job]()
        idle: list[Process] = []
        busy: dict[Future[Outcome], tuple[Process, _Job]] = {}
        with ThreadPoolExecutor(count) as listeners:
            try:
                while True:
                    while len(busy) < count:
                        job = next(waiting, None) or (again.popleft() if again else None)
                        if job is None:
                            break
                        process = idle.pop() if idle else Process(_serve, (self.compute, threads))
                        busy[listeners.submit(job.outcome, process)] = process, job
                    if not busy:
                        break
                    for future in wait(busy, return_when=FIRST_COMPLETED).done:
                        process, job = busy.pop(future)
                        try:
                            outcome = future.result()
                        except ProcessEnded as ended:
                            process.stop()
                            job.ends.append(str(ended))
                            if len(job.ends) < ATTEMPTS:
                                again.append(job)
                                continue
                            outcome = job.failure()
                        else:
                            idle.append(process)
                        yield job.cell, outcome
            finally:
                for process in (*idle, *(process for process, _ in busy.values())):
                    process.stop()


@dataclass
class _Job:
    """A cell on its way through the workers, and how those ended that died of it."""

    cell: RunConfig
    started: float = 0.0
    ends: list[str] = field(default_factory=list)

    def outcome(self, process: Process) -> Outcome:
        """Wait for what a process makes of the cell."""
        self.started = time.perf_counter()
        process.send(self.cell)
        found: Outcome = process.receive()
        return found

    def failure(self) -> Outcome:
        """Say that all workers died."""
        return failure(
            f"the worker process died {len(self.ends)} times ({'; '.join(self.ends)}; exit code -9 "
            "is often a lack of memory: fewer processes leave more to each)",
            time.perf_counter() - self.started,
        )


def _serve(pipe: Pipe, compute: Compute, threads: int) -> None:
    """Compute what comes through the pipe."""
    threads = min(threads, torch.get_num_threads())
    torch.set_num_threads(threads)
    threadpoolctl.threadpool_limits(threads)
    while True:
        pipe.send(compute(pipe.recv()))


# --- a cluster ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class DaskScheduler:
    """The workers of a Dask scheduler.

    A worker computes one cell at a time, on the threads that its environment gives it: start
    several of one thread (``dask worker ADDRESS --nworkers 8 --nthreads 1``). They need this
    package, and the data sets, in the same version.

    Parameters
    ----------
    address : str
        Such as tcp://10.0.0.1:8786.
    compute : callable
        As in `LocalProcesses`.
    patience : float
        Seconds to wait for a scheduler, for its first worker, and for another when all have died.
    """

    address: str
    compute: Compute = compute
    patience: float = 30.0

    @property
    def name(self) -> str:
        """The address."""
        return self.address

    def run(self, cells: Collection[RunConfig]) -> Outcomes:
        """Yield each cell with its outcome as soon as it is there."""
        try:
            import distributed
        except ImportError as error:
            raise BackendError(
                "a Dask scheduler needs dask.distributed: pip install 'implicit-bias[cluster]'"
            ) from error
        try:
            client = distributed.Client(self.address, timeout=self.patience)
        except (OSError, ValueError) as error:
            raise BackendError(f"no Dask scheduler answers at {self.address}: {error}") from error
        with client:
            _wait_for_worker(client, self.patience)
            threads = client.nthreads().values()
            if max(threads, default=1) > 1:
                warnings.warn(
                    "a worker has several threads, but computes one cell at a time: start "
                    "workers with --nthreads 1",
                    stacklevel=2,
                )
            at_once = min(AT_ONCE, _open_files() // 2)
            yield from gather(client, self.compute, cells, at_once, self.patience)


def gather(
    client: distributed.Client,
    compute: Compute,
    cells: Iterable[RunConfig],
    at_once: int = AT_ONCE,
    patience: float = 30.0,
) -> Outcomes:
    """Yield each cell with its outcome, while so many are with the scheduler."""
    from distributed import CancelledError, KilledWorker, as_completed

    start = time.perf_counter()
    waiting: dict[distributed.Future, RunConfig] = {}
    completed, left = as_completed(), iter(cells)

    def submit(count: int) -> None:
        for cell in islice(left, count):
            key = f"implicit-bias-{cell_key(cell)}"
            waiting[future := client.submit(compute, cell, key=key, pure=False)] = cell
            completed.add(future)

    try:
        submit(at_once)
        while waiting:
            asked = time.perf_counter()
            while not completed.has_ready():
                time.sleep(POLL)
                # A scheduler whose workers have all died waits for others without a word.
                if time.perf_counter() - asked > patience:
                    _wait_for_worker(client, patience)
                    asked = time.perf_counter()
            future = next(completed)
            cell = waiting.pop(future)
            try:
                outcome = future.result()
            except KilledWorker as error:
                outcome = failure(f"its workers died: {error}", time.perf_counter() - start)
            except CancelledError as error:
                raise BackendError("the scheduler has gone: start it and run again") from error
            except Exception as error:  # `compute` raises none: the worker has no such function
                raise BackendError(
                    f"a worker cannot compute: {error}; it needs this package in this version"
                ) from error
            yield cell, outcome
            future.release()
            submit(1)
    finally:
        client.cancel(list(waiting))


def _wait_for_worker(client: distributed.Client, patience: float) -> None:
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError as error:
        raise BackendError(
            "the scheduler has no worker: start one with `dask worker "
            f"{client.scheduler_info()['address']}`, and run again"
        ) from error


def _open_files() -> int:
    """How many files this process may open at a time; on macOS 256 unless told otherwise."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return 2 * AT_ONCE
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * AT_ONCE if soft == resource.RLIM_INFINITY else soft
