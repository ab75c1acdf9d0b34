"""Samples that lie in a file and are never in memory as a whole: a memory map, on a Dask cluster.

The file is written in blocks to a temporary folder; the scheduler and the workers are local
processes of one thread each. The working set is in the process of the caller.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Row
from benchmarks.processes import GIB
from benchmarks.speed import runs
from implicit_bias.solvers.base import OnProgress, no_report
from implicit_bias.solvers.out_of_core import solve_out_of_core

WORKERS, WORKER_MEMORY = 2, "2GiB"
FEATURES, CLEAR = 20, 0.5
CHUNK = 500_000


def write_samples(folder: Path, N: int) -> tuple[np.memmap[Any, Any], NDArray[np.int8]]:
    """Write Gaussian samples of two classes to a file, but those near the boundary.

    Returns
    -------
    X : memmap of shape (N, 20)
        Read-only.
    y : ndarray of shape (N,)
        Labels.
    """
    rng, file = np.random.default_rng(0), folder / "X.npy"
    w = rng.normal(size=FEATURES)
    X = np.lib.format.open_memmap(file, mode="w+", dtype=np.float64, shape=(N, FEATURES))
    y = np.empty(N, dtype=np.int8)
    filled = 0
    while filled < N:
        drawn = rng.normal(size=(CHUNK, FEATURES))
        scores = drawn @ w
        clear = np.flatnonzero(np.abs(scores) > CLEAR)[: N - filled]
        X[filled : filled + len(clear)] = drawn[clear]
        y[filled : filled + len(clear)] = np.sign(scores[clear])
        filled += len(clear)
    X.flush()
    return np.load(file, mmap_mode="r"), y


def measure_on_disk(N: int, tol: float, on_progress: OnProgress = no_report) -> Row:
    """Write the samples, solve them on a local cluster, and return what was found and its cost.

    Seconds are those of all processors, of this process and of the workers; ``gib`` is the most
    that any worker held.
    """
    from distributed import Client, LocalCluster

    with tempfile.TemporaryDirectory() as folder:
        X, y = write_samples(Path(folder), N)
        runs.forget_peak("cpu")
        cluster = LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=WORKER_MEMORY,
            dashboard_address=None,
        )
        with cluster, Client(cluster) as client:
            before = _used(client)
            began, cpu = time.perf_counter(), time.process_time()
            found = solve_out_of_core(X, y, tol=tol, on_progress=on_progress)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            after = _used(client)
        del X
    seconds = cpu + sum(used[0] for used in after) - sum(used[0] for used in before)
    return {
        "outcome": runs.ANSWERED,
        "status": found.status.name,
        "method": f"out of core, {WORKERS} workers",
        **runs.bounds_of(found.certificate),
        "seconds": seconds,
        "wall_seconds": wall,
        "gib": max(used[1] for used in after) / GIB,
        "detail": f"{len(found.history)} passes; the process of the working set held "
        f"{runs.peak_memory('cpu') / GIB:.2g} GiB",
    }


def _used(client: Any) -> list[tuple[float, float]]:
    """Return seconds and most bytes of each worker."""
    return list(client.run(_of_process).values())


def _of_process() -> tuple[float, float]:
    return time.process_time(), float(runs.peak_memory("cpu"))
