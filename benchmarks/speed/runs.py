"""What the experiments on speed share: rows of a run in a process, and how they came about.

Times are comparable between machines, and between busy and idle moments of one, as multiples of
those of a yardstick beside them: 20 float64 Cholesky factorisations of order 2000.
"""

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from benchmarks.harness import Frames, Misuse, Options, Row, Run, option, rows_of
from benchmarks.processes import GIB, Pipe, Process, ProcessEnded, Reason
from implicit_bias import Certificate, MarginProblem
from implicit_bias.solvers import BoundsAt

T = TypeVar("T")
# The yardstick.
FACTORISATIONS, ORDER = 20, 2000
# How a row came about. All but the first leave its bounds empty.
ANSWERED, TIME_LIMIT, OUT_OF_MEMORY, CRASHED, NOT_TRIED = (
    "answered",
    "time limit",
    "out of memory",
    "crashed",
    "not tried",
)


def machine() -> str:
    """Words for the kind of processor."""
    return platform.processor() or platform.machine()


def outcome(ended: ProcessEnded) -> Row:
    """Say why a process gave no answer; nothing, if it has given all of it."""
    if ended.reason is Reason.RETURNED:
        return {}
    limits = {Reason.TIME_LIMIT: TIME_LIMIT, Reason.OUT_OF_MEMORY: OUT_OF_MEMORY}
    return {"outcome": limits.get(ended.reason, CRASHED), "detail": ended.detail}


def in_process(
    work: Callable[..., None],
    arguments: tuple[Any, ...],
    limit: float,
    say: Callable[[str], None],
    memory: float = math.inf,
) -> Row:
    """Return the facts that a process sends, and why it has ended, where it has not sent all.

    Bounds that it sends on its way are said.
    """
    facts: Row = {}
    with Process(work, arguments, memory=memory) as process:
        process.allow(limit)
        try:
            while True:
                match process.receive():
                    case BoundsAt() as line:
                        say(between(line))
                    case more:
                        facts |= more
        except ProcessEnded as ended:
            return facts | outcome(ended)


def between(line: BoundsAt) -> str:
    """Write the bounds of a step."""
    return f"{line.lower:.7g} to {line.upper:.7g}"


class Renewed:
    """A process that is asked again and again, and begun anew once it has ended.

    Where ``starting`` is given, it says within this many seconds that it is ready.
    """

    def __init__(self, work: Callable[[Pipe], None], starting: float | None = None) -> None:
        self._work, self._starting = work, starting
        self._process: Process | None = None

    def asked(self, question: Any, limit: float, answers: int = 1) -> Iterator[Row]:
        """Ask, and yield the facts that it sends, each within a limit of seconds.

        Raises
        ------
        ProcessEnded
            It sends none.
        """
        try:
            if self._process is None:
                self._process = Process(self._work)
                if self._starting is not None:
                    self._process.allow(self._starting)
                    self._process.receive()
            self._process.send(question)
            for _ in range(answers):
                self._process.allow(limit)
                yield self._process.receive()
        except ProcessEnded:
            self.close()
            raise

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.stop()
        self._process = None


def is_done(rows: Iterable[Row], key: Row, **limits: float) -> bool:
    """Whether a row with these columns is an answer, or is none under limits as wide as these.

    A limit is compared with the row's column of its name.
    """
    stopped = (TIME_LIMIT, OUT_OF_MEMORY, NOT_TRIED)
    return any(
        row["outcome"] == ANSWERED
        or (row["outcome"] in stopped and all(row[name] >= limits[name] for name in limits))
        for row in rows
        if key.items() <= row.items()
    )


def made(kind: type[T], row: Any) -> T:
    """Make what a row is of, a dataclass, whose fields are columns."""
    return kind(**{name: row[name] for name in kind.__dataclass_fields__})  # type: ignore[attr-defined]


def bounds_of(certificate: Certificate) -> Row:
    """Return the columns of the bounds on an optimum."""
    return {"lower": certificate.lower, "upper": certificate.upper, "gap": certificate.gap}


@dataclass(frozen=True, kw_only=True)
class RowOptions(Options):
    """What one can ask of an experiment whose rows are measured one by one."""

    only: str = option("", "rows that have all of these words in their names")
    anew: bool = option(False, "measure these rows anew, and keep the others")
    time_limit: float = option(600.0, "seconds of a row")


def missing_rows(
    run: Run[Any],
    wanted: Mapping[str, T],
    key: Callable[[T], Row],
    measure: Callable[[T, list[Row]], Row],
    **limits: float,
) -> Frames:
    """Measure the rows that are missing, or were stopped by limits narrower than these.

    Parameters
    ----------
    run : Run
        What is asked: `RowOptions`.
    wanted : mapping
        What rows are of, by their names.
    key : callable
        The columns that tell a row apart.
    measure : callable
        Gets what a row is of, and the other rows so far, and returns the row's other columns.
    **limits : float
        See `is_done`; one is ``limit``, in seconds.
    """
    words, limits = set(run.options.only.split()), {"limit": run.options.time_limit, **limits}
    chosen = {name: of for name, of in wanted.items() if words <= set(name.split())}
    if not chosen:
        raise Misuse(f"no row is called {run.options.only!r}; there are {', '.join(wanted)}")
    rows, anew = rows_of(run.kept), run.options.anew
    left = [name for name, of in chosen.items() if anew or not is_done(rows, key(of), **limits)]
    run.say(
        f"{len(chosen)} rows, {len(left)} to measure: {len(left) * limits['limit'] / 3600:.1f} "
        f"hours by their limit; {len(rows)} rows are in {run.file}"
    )
    for name in left:
        columns = key(chosen[name])
        rows = [row for row in rows if not columns.items() <= row.items()]
        rows.append({**columns, **measure(chosen[name], rows)})
        run.say(f"{name}: {rows[-1]['outcome']}")
        yield pd.DataFrame(rows)


def warm_up() -> MarginProblem:
    """Two samples: what a solver imports and sets up once is no part of its time."""
    return MarginProblem(np.eye(2), np.array([1.0, -1.0]), np.ones((2, 1)), np.zeros(1, dtype=int))


def few_digits(value: float) -> str:
    """Write a number of two digits, or a whole one."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def limit_processor_time(seconds: float) -> None:
    """Give this process so many more seconds of the processor, after which it ends.

    Unlike those of the clock they do not depend on what else the machine does. `Process.receive`
    reports the end as a time limit.
    """
    import resource  # not on Windows

    if seconds < math.inf:
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        limit = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, most))


# --- cost --------------------------------------------------------------------------------------


def beside_yardstick(call: Callable[[], T], device: str = "cpu") -> tuple[T, Row]:
    """Return what a call returns, and its memory, between two runs of the yardstick."""
    before = yardstick(device)
    forget_peak(device)
    held = peak_memory(device)
    found = call()
    peak, after = peak_memory(device), yardstick(device)
    return found, {
        "yardstick_before": before,
        "yardstick_after": after,
        "peak_gib": peak / GIB,
        "solve_gib": (peak - held) / GIB,
    }


def in_yardsticks(seconds: float, cost: Row) -> float:
    """Divide by the mean of the yardsticks before and after."""
    return seconds / ((cost["yardstick_before"] + cost["yardstick_after"]) / 2)


def yardstick(device: str) -> float:
    """Seconds of 20 Cholesky factorisations."""
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(ORDER, ORDER + 50, generator=generator, dtype=torch.float64)
    matrix = (factor @ factor.T).to(device)
    torch.linalg.cholesky(matrix)
    start = time.perf_counter()
    for _ in range(FACTORISATIONS):
        pivot = torch.linalg.cholesky(matrix)[-1, -1]
    float(pivot)  # wait for the device
    return time.perf_counter() - start


def forget_peak(device: str) -> None:
    """Start to measure peaks anew, where the system lets us."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux alone
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: str) -> int:
    """Most bytes held since :func:`forget_peak`: by the process, or by torch on a GPU.

    Linux tells the high-water mark of this program; the one of ``getrusage`` begins at that of the
    process that started it, and is never forgotten.
    """
    if device != "cpu":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):  # Linux alone
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    import resource  # not on Windows

    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
