"""How the native solvers' time and memory grow: samples N, hidden units H, contexts C.

Each point of the grid is solved in a process of its own, between two runs of a yardstick: 20
float64 Cholesky factorisations of order 2000. The ratio of the two times is comparable between
machines, and between busy and idle moments of one, so it is what exponents are fitted to. Memory
is the peak of the solve, less what the process had held before. Data: MNIST, in the order of the
published split (so smaller N are parts of larger ones), the published draws of contexts, and
thresholds at the medians over all images.

Some points have a conflict, so that no coefficients separate their samples: a sample once more
with the opposite label ("twin"), or such a one between two samples of the other class that share
their gates ("between": no two samples are equal, and only a solver can tell).

A point that exceeds the time limit is stopped and shown as such. Rows in the results are kept, so
that a run can be stopped and continued.

    IMPLICIT_BIAS_DATA=... python benchmarks/scaling.py                      # up to N = 60,000
    IMPLICIT_BIAS_DATA=... python benchmarks/scaling.py --max-samples 10000
    IMPLICIT_BIAS_DATA=... python benchmarks/scaling.py --device cuda
    python benchmarks/scaling.py --quick                                     # digits: seconds
"""

from __future__ import annotations

import multiprocessing
import platform
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import matplotlib.style
import numpy as np
import pandas as pd
import torch
import typer
from implicit_bias.report.gallery import kept_in
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from rich.table import Table

from implicit_bias.datasets.catalogue import load
from implicit_bias.datasets.dataset import split_indices
from implicit_bias.gating import GateMatrix, HyperplaneContexts
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import INTERIOR_POINT_LIMIT, Progress, solve
from implicit_bias.storage.atomic import write_atomically
from implicit_bias.validation import Array

FOLDER = Path(__file__).parent
GIB = 2**30
# The yardstick.
FACTORISATIONS, ORDER = 20, 2000
SEED = 1
# Imported once by the server that the processes are forked from.
PRELOAD = ["implicit_bias.problem", "implicit_bias.solvers.working_set"]


# --- the grid --------------------------------------------------------------------------------

Conflict: TypeAlias = Literal["none", "twin", "between"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One problem: an SVM-GLN on some samples, maybe with a conflict among them."""

    dataset: str
    N: int
    H: int
    C: int
    conflict: Conflict = "none"

    @property
    def name(self) -> str:
        """Words for tables, and what ``--only`` looks in."""
        conflict = "" if self.conflict == "none" else f" {self.conflict}"
        return f"{self.dataset} N={self.N} H={self.H} C={self.C}{conflict}"

    @property
    def expected(self) -> float:
        """Seconds that it may take on one core: a guess, for the estimate of a run's length."""
        return 2.0 + 0.4 * (1 + self.H * self.C / 200) * (self.N / 2000) ** 1.7

    def problem(self) -> MarginProblem:
        """Pose it."""
        X, y, gates, groups = _samples(self.dataset, self.N, self.H, self.C)
        added, labels = _conflicting(self.conflict, X, y)
        # In the middle: a working set may well begin with the first and the last samples.
        middle = [len(y) // 2] * len(labels)
        rows = np.insert(np.arange(len(y)), middle, 0)
        return MarginProblem(
            np.insert(X, middle, added, axis=0), np.insert(y, middle, labels), gates[rows], groups
        )


def _conflicting(conflict: Conflict, X: Array, y: Array) -> tuple[Array, Array]:
    """Return inputs and labels of the samples to add, with the gates of sample 0."""
    match conflict:
        case "none":
            return X[:0], y[:0]
        case "twin":
            return X[:1], -y[:1]
        case "between":
            friend = X[np.flatnonzero(y == y[0])[1]]
            between = 0.3 * X[0] + 0.7 * friend
            return np.stack([friend, between]), np.array([y[0], -y[0]])


@lru_cache(maxsize=1)  # the two conflicts of a point share them
def _samples(
    dataset: str, N: int, H: int, C: int
) -> tuple[Array, Array, GateMatrix, NDArray[np.int64]]:
    """Return inputs (N, D), labels (N,), gates (N, H C) and their groups."""
    everything = load(dataset)
    n, n_hyperplanes = len(everything.y), C.bit_length() - 1
    order = np.concatenate(split_indices(n, n - 1, 1, SEED))[:N]
    X, y = everything.X[order], everything.y[order]
    if dataset == "mnist":
        contexts = HyperplaneContexts.published(
            X, H, n_hyperplanes, threshold="median", reference=everything.X, seed=SEED
        )
    else:
        contexts = HyperplaneContexts.random(X, H, n_hyperplanes, random_state=SEED)
    return X, y, contexts.gates(X), contexts.groups


def lines(dataset: str, N: Sequence[int], H: Sequence[int], C: Sequence[int]) -> list[Point]:
    """Three lines of points, which differ in N, H or C alone and meet in the first of each."""
    middle = Point(dataset=dataset, N=N[0], H=H[0], C=C[0])
    points = [
        middle,
        *(replace(middle, C=value) for value in C),
        *(replace(middle, H=value) for value in H),
        *(replace(middle, N=value) for value in N),
    ]
    return list(dict.fromkeys(points))


def conflicts(points: Iterable[Point]) -> list[Point]:
    """Both conflicts at each of the points."""
    kinds: tuple[Conflict, ...] = ("twin", "between")
    return [replace(point, conflict=kind) for point in points for kind in kinds]


GROWTH = lines(
    "mnist",
    N=(2000, 500, 1000, 5000, 10_000, 20_000, 40_000, 60_000),
    H=(100, 10, 20, 50, 200, 400),
    C=(2, 4, 8),
)
GRID = [
    *GROWTH,
    *conflicts(Point(dataset="mnist", N=N, H=100, C=2) for N in (2000, 10_000, 60_000)),
]
SMALL = lines("digits", N=(300, 100, 600, 1200), H=(20, 10, 40), C=(2, 4))
QUICK = [*SMALL, *conflicts(SMALL[:1])]


# --- one row: a point, in a process that can be stopped --------------------------------------

Row: TypeAlias = dict[str, Any]
ANSWERED, TIME_LIMIT, CRASHED = "answered", "time limit", "crashed"


def measure(
    point: Point, *, tol: float, device: str, limit: float, report: Callable[[str], None]
) -> Row:
    """Solve a point; the row says so if that fails."""
    row: Row = {**asdict(point), "tol": tol, "device": device, "limit": limit, "detail": ""}
    row |= {"machine": platform.processor() or platform.machine()}
    row |= dict.fromkeys(QUANTITIES, np.nan)  # until there is an answer
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, point.problem(), tol, device))
    process.start()
    theirs.close()
    deadline = time.perf_counter() + limit
    try:
        while ours.poll(max(deadline - time.perf_counter(), 0.0)):
            match ours.recv():
                case Progress() as line:
                    report(f"{point.name}: {line.lower:.7g} to {line.upper:.7g}")
                case facts:
                    row |= facts
        row |= {"outcome": TIME_LIMIT, "detail": f"more than {limit:g} s"}
    except EOFError:
        process.join()
        if process.exitcode:
            row |= {"outcome": CRASHED, "detail": f"exit code {process.exitcode}"}
    finally:
        process.kill()
    return row


def _work(pipe: Connection, problem: MarginProblem, tol: float, device: str) -> None:
    try:
        pipe.send(_facts(pipe, problem, tol, device))
    except Exception as error:  # a failure is a result, and the other points go on
        pipe.send({"outcome": CRASHED, "detail": f"{type(error).__name__}: {error}"})


def _facts(pipe: Connection, problem: MarginProblem, tol: float, device: str) -> Row:
    solve(_warm_up(), device=device)
    held = _peak_memory(device)
    before = _yardstick(device)
    _forget_peak(device)
    found = solve(problem, tol=tol, device=device, report=pipe.send)
    peak, after = _peak_memory(device), _yardstick(device)
    yardstick = (before + after) / 2
    return {
        "outcome": ANSWERED,
        "solver": found.stats.solver,
        "status": found.status.name,
        "iterations": found.stats.iterations,
        "lower": found.certificate.lower,
        "upper": found.certificate.upper,
        "gap": found.certificate.gap,
        "support": len(found.support),
        "active": int(found.active.sum()),
        "seconds": found.stats.seconds,
        "yardstick_before": before,
        "yardstick_after": after,
        "ratio": found.stats.seconds / yardstick,
        "peak_gib": peak / GIB,
        "solve_gib": (peak - held) / GIB,
        "threads": torch.get_num_threads(),
        "hardware": torch.cuda.get_device_name() if device != "cpu" else "",
    }


def _warm_up() -> MarginProblem:
    """Two samples: what is imported and set up once is no part of the time."""
    return MarginProblem(np.eye(2), np.array([1.0, -1.0]), np.ones((2, 1)), np.zeros(1, dtype=int))


def _yardstick(device: str) -> float:
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


def _forget_peak(device: str) -> None:
    """Start to measure peaks anew, where the system lets us."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux alone
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory(device: str) -> int:
    """Most bytes held: by the process, or by torch on a GPU."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# --- the results, kept from run to run -------------------------------------------------------


def run_grid(
    points: Sequence[Point],
    rows: list[Row],
    *,
    tol: float,
    device: str,
    limit: float,
    save: Callable[[list[Row]], None],
    report: Callable[[str], None],
) -> list[Row]:
    """Measure what is missing in the rows; save after each."""
    for point in missing(points, rows, tol=tol, device=device, limit=limit):
        rows = [row for row in rows if not _is_row_of(row, point, tol, device)]
        rows = [*rows, measure(point, tol=tol, device=device, limit=limit, report=report)]
        save(rows)
    return rows


def missing(
    points: Sequence[Point], rows: Sequence[Row], *, tol: float, device: str, limit: float
) -> list[Point]:
    """Points without an answer, and not stopped under a limit as wide."""

    def settles(row: Row) -> bool:
        return row["outcome"] == ANSWERED or (
            row["outcome"] == TIME_LIMIT and row["limit"] >= limit
        )

    return [
        point
        for point in points
        if not any(settles(row) for row in rows if _is_row_of(row, point, tol, device))
    ]


def _is_row_of(row: Row, point: Point, tol: float, device: str) -> bool:
    return (_point_of(row), row["tol"], row["device"]) == (point, tol, device)


def _point_of(row: Row) -> Point:
    return Point(**{field.name: row[field.name] for field in fields(Point)})


def _records(frame: pd.DataFrame) -> list[Row]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


# --- exponents and the picture ---------------------------------------------------------------

AXES = {"N": "samples N", "H": "hidden units H", "C": "contexts a unit C"}
QUANTITIES = {
    "ratio": "time of the solve\n/ time of 20 Choleskys",
    "solve_gib": "GiB of the solve",
}
# Okabe and Ito's colours.
COLOURS = {"cpu": "#0072B2", "cuda": "#D55E00"}
GREY = "#767676"
PANEL = (3.6, 2.9)
# Memory below this is what the yardstick left behind.
LEAST_GIB = 0.1


def exponent(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Least-squares exponent and factor of y = factor * x^exponent."""
    slope, level = np.polyfit(np.log(x), np.log(y), 1)
    return float(slope), float(np.exp(level))


def line(frame: pd.DataFrame, axis: str, middle: Point) -> pd.DataFrame:
    """Rows that differ from the middle point in one axis alone, in its order."""
    here = frame[frame["conflict"] == "none"]
    for name in {"dataset", *AXES} - {axis}:
        here = here[here[name] == getattr(middle, name)]
    return here.sort_values(axis)


def pieces(rows: pd.DataFrame, axis: str, quantity: str) -> Iterator[pd.DataFrame]:
    """Parts of a line that one power law may describe: those of one solver, with 3 points."""
    if quantity == "solve_gib":
        rows = rows[rows[quantity] >= LEAST_GIB]
    parts = (
        [rows]
        if axis != "N"
        else [
            rows[rows["N"] <= INTERIOR_POINT_LIMIT],
            rows[rows["N"] > INTERIOR_POINT_LIMIT],
        ]
    )
    return (part for part in parts if len(part) >= 3)


def draw(frame: pd.DataFrame, middle: Point) -> Figure:
    """Time and memory along the three axes, with fitted exponents."""
    size = (len(AXES) * PANEL[0], len(QUANTITIES) * PANEL[1])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(QUANTITIES), len(AXES), sharex="col", sharey="row")
    for row, (quantity, label) in zip(axes, QUANTITIES.items(), strict=True):
        row[0].set_ylabel(label)
        for ax, axis in zip(row, AXES, strict=True):
            _panel(ax, line(frame, axis, middle), axis, quantity)
    for ax, (axis, label) in zip(axes[-1], AXES.items(), strict=True):
        others = ", ".join(f"{name} = {getattr(middle, name)}" for name in AXES if name != axis)
        ax.set_xlabel(f"{label}   ({others})", fontsize="small")
    return figure


def _panel(ax: Axes, rows: pd.DataFrame, axis: str, quantity: str) -> None:
    ax.set(xscale="log", yscale="log")
    ax.grid(visible=True, which="major", alpha=0.3)
    if len(rows):
        ax.set_xlim(rows[axis].min() / 1.4, rows[axis].max() * 1.4)
        values = sorted(set(rows[axis]))
        ax.set_xticks(values, labels=[f"{value:,}" for value in values], rotation=45)
        ax.xaxis.set_minor_locator(NullLocator())
    for device, there in rows.groupby("device"):
        colour = COLOURS[str(device).partition(":")[0]]
        answered = there[there["outcome"] == ANSWERED]
        if quantity == "solve_gib":
            answered = answered[answered[quantity] >= LEAST_GIB]
        ax.plot(answered[axis], answered[quantity], "o", color=colour, label=str(device))
        stopped = there[there["outcome"] == TIME_LIMIT]
        if quantity == "ratio" and len(stopped):  # they have no ratio: at the top
            top = np.full(len(stopped), 0.95)
            at_top = ax.get_xaxis_transform()
            ax.plot(stopped[axis], top, "^", color=GREY, transform=at_top, label="stopped")
        for part in pieces(answered, axis, quantity):
            slope, factor = exponent(part[axis], part[quantity])
            fitted = factor * part[axis] ** slope
            ax.plot(part[axis], fitted, color=colour, linewidth=1, label=f"{axis}^{slope:.2f}")
    if ax.has_data():
        ax.legend(frameon=False, fontsize="x-small")


# --- the command -----------------------------------------------------------------------------


def main(
    quick: Annotated[bool, typer.Option(help="Small points of the digits only.")] = False,
    only: Annotated[str, typer.Option(help="Points whose name contains this.")] = "",
    max_samples: Annotated[int, typer.Option(help="Points up to this N.")] = 60_000,
    tol: Annotated[float, typer.Option(help="Certified gap to solve to.")] = 1e-6,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    time_limit: Annotated[float, typer.Option(help="Seconds of a point.")] = 900.0,
    fresh: Annotated[bool, typer.Option(help="Forget the results so far.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where results/ and pictures/ are; --quick: a temporary folder."),
    ] = None,
) -> None:
    """Run the grid, save each row as soon as it is there, print the table, and draw it."""
    home = kept_in(FOLDER, folder, quick=quick, name="scaling")
    picture = home / "pictures" / "scaling.png"
    out = home / "results" / "scaling.parquet"
    console = Console()
    grid = QUICK if quick else GRID
    points = [point for point in grid if only in f"{point.name} " and point.N <= max_samples]
    if not points:
        raise typer.BadParameter(f"no point's name contains {only!r}")
    rows = [] if fresh or not out.exists() else _records(pd.read_parquet(out))
    left = missing(points, rows, tol=tol, device=device, limit=time_limit)
    minutes = sum(min(point.expected, time_limit) for point in left) / 60
    console.print(
        f"{len(points)} points, {len(left)} to solve: about {minutes:.1f} minutes of an idle core; "
        f"{len(rows)} rows are in {out}"
    )

    def save(rows: list[Row]) -> None:
        write_atomically(out, pd.DataFrame(rows).to_parquet)
        console.print(f"{_point_of(rows[-1]).name}: {rows[-1]['outcome']}")

    with console.status("") as status:
        rows = run_grid(
            points,
            rows,
            tol=tol,
            device=device,
            limit=time_limit,
            save=save,
            report=status.update,
        )
    frame = pd.DataFrame(rows)
    frame = frame[frame["tol"] == tol]
    _show(console, frame)
    picture.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context("default"):
        draw(frame, grid[0]).savefig(picture, dpi=150)


def _show(console: Console, frame: pd.DataFrame) -> None:
    columns = ("point", "device", "seconds", "ratio", "GiB", "steps", "support", "gap", "outcome")
    table = Table(*columns)
    for row in _records(frame.sort_values(["conflict", "dataset", "N", "H", "C", "device"])):
        figures = [""] * 6
        outcome = f"{row['outcome']}: {row['detail']}"
        if row["outcome"] == ANSWERED:
            figures = [f"{row[key]:.3g}" for key in ("seconds", "ratio", "solve_gib")]
            figures += [f"{row[key]:.0f}" for key in ("iterations", "support")]
            figures += [f"{row['gap']:.1e}"]
            outcome = row["status"].lower().replace("_", " ")
        table.add_row(_point_of(row).name, row["device"], *figures, outcome)
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
