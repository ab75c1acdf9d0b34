"""The base of all solvers: each solves in a process with limits, and its import costs no time."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.processes import GIB, Worker, forget_peak, peak_memory
from benchmarks.speed.bases import BaseSolver
from benchmarks.speed.reference import Reference
from implicit_bias import MarginProblem
from implicit_bias.base.validation import Array

# A solve is repeated while all of its runs take less than so many seconds.
RUN_SECONDS = 2.0
# GiB of data that a process may hold.
MEMORY = 8.0
# Seconds for a process to import what it needs.
STARTING = 120.0


class Answer(NamedTuple):
    """What a solver returns; dual variables where it has them."""

    coef: Array
    alpha: Array | None = None


class Measured(NamedTuple):
    """An answer, and its cost.

    Attributes
    ----------
    answer : Answer
        Coefficients and dual variables.
    seconds, wall_seconds : float
        Of the processor and by the clock, medians of the runs.
    runs : int
        How many there were.
    gib : float
        What the first run added to the memory of the process, at its peak.
    """

    answer: Answer
    seconds: float
    wall_seconds: float
    runs: int
    gib: float


class GuardedSolver(BaseSolver):
    """A solver in a process with limits; the file of a subclass is named as the solver.

    The process starts, imports and solves a part of the problem before the timing begins.
    """

    time_limit: ClassVar[float] = 120.0
    # The program that a solver is given, and its own tolerance.
    formulation: str
    tol: float

    @classmethod
    def solve(
        cls, problem: MarginProblem, reference: Reference, formulation: str, tol: float
    ) -> Answer:
        """Solve a problem; called in the process."""
        raise NotImplementedError

    @classmethod
    def unsuited(cls, problem: MarginProblem, formulation: str) -> str:
        """Return why it is not given a problem in a formulation, or ""."""
        return ""

    def skip(self, problem: MarginProblem, reference: Reference) -> tuple[bool, str | None]:
        """Tell benchopt whether the solver takes no part, and why."""
        reason = self.unsuited(problem, self.formulation)
        return bool(reason), reason or None

    def set_objective(self, problem: MarginProblem, reference: Reference) -> None:
        """Start a process."""
        self.use(started(problem, reference))

    def use(self, worker: Worker) -> None:
        """Use a process that is there, and prepare it."""
        self._worker = worker
        worker.call(_warm_up, self._file, self._options, seconds=STARTING)

    def run(self, _: Any) -> None:
        """Solve once."""
        self._answer = self.measured(runs=1, seconds=self.time_limit).answer

    def get_result(self) -> dict[str, Any]:
        """Return what the objective grades."""
        return self._answer._asdict()

    def measured(self, *, runs: int, seconds: float) -> Measured:
        """Solve, and again while `RUN_SECONDS` last.

        Raises
        ------
        NoAnswer
            It takes more than these seconds or too much memory, or fails.
        """
        found = self._worker.call(_measure, self._file, self._options, runs, seconds=seconds)
        assert isinstance(found, Measured)
        return found

    @property
    def _file(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    @property
    def _options(self) -> dict[str, Any]:
        return {"formulation": self.formulation, "tol": self.tol}


def started(problem: MarginProblem, reference: Reference) -> Worker:
    """Start a process that has a problem, for any of the solvers."""
    return Worker(problem, reference, memory=MEMORY)


# --- in the process ------------------------------------------------------------------------------


def _solver(file: str) -> type[GuardedSolver]:
    solver = import_module(f"benchmarks.speed.solvers.{file}").Solver
    assert issubclass(solver, GuardedSolver)
    return solver


def _warm_up(
    problem: MarginProblem, reference: Reference, file: str, options: Mapping[str, Any]
) -> None:
    """Solve a part of the problem: what is imported and set up once is no part of the time."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    threadpool_limits(1)
    few = [np.flatnonzero(problem.y == label)[:3] for label in np.unique(problem.y)]
    with suppress(Exception):  # a solver that fails does so again when it is measured
        _solver(file).solve(problem.subset(np.sort(np.concatenate(few))), reference, **options)


def _measure(
    problem: MarginProblem,
    reference: Reference,
    file: str,
    options: Mapping[str, Any],
    most_runs: int,
) -> Measured:
    solver = _solver(file)
    seconds = list[float]()
    wall_seconds = list[float]()
    gib = 0.0
    forget_peak()
    held = peak_memory()
    while not seconds or (len(seconds) < most_runs and sum(wall_seconds) < RUN_SECONDS):
        fresh = replace(problem)  # a problem keeps what was once computed of it
        began = time.perf_counter()
        before = time.process_time()
        answer = solver.solve(fresh, reference, **options)
        seconds.append(time.process_time() - before)
        wall_seconds.append(time.perf_counter() - began)
        if len(seconds) == 1:
            gib = (peak_memory() - held) / GIB
    return Measured(
        answer, statistics.median(seconds), statistics.median(wall_seconds), len(seconds), gib
    )
