"""Time the native solver against its peers on a grid of sizes, side by side.

Each solver gets the same `MarginProblem` in a process of its own and is asked for the same gap;
each answer is graded by the same `certify`. CVXPY's solvers get each formulation of
`implicit_bias.solvers.cvxpy_solver`, the slow one of the source paper and the small ones; programs
of one group go to scikit-learn's SVC, too. The native solver runs in the same process before
and after each peer, so that the ratio compares neighbours in time; the median of its runs
counts. A peer that answers within seconds is timed up to five times.

A peer that exceeds the time limit is stopped, and is not tried on larger cells: both are rows
of the results. Rows already in the results are kept, so that a run can be stopped and continued.

    python benchmarks/solvers.py                          # the whole grid: hours
    python benchmarks/solvers.py --quick                  # small cells of the digits: a minute
    python benchmarks/solvers.py --only "N=500 H=10 "     # some cells
"""

from __future__ import annotations

import multiprocessing
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
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
from matplotlib.lines import Line2D
from rich.console import Console
from rich.table import Table
from sklearn.svm import SVC

from implicit_bias.certificate import Status, certify
from implicit_bias.problem import MarginProblem
from implicit_bias.runs.configuration import Setting, fit_models, load_data
from implicit_bias.solvers import Tolerances, solve
from implicit_bias.solvers.base import Candidate
from implicit_bias.solvers.cvxpy_solver import FORMULATIONS, SAFETY, Formulation, Reference
from implicit_bias.storage.atomic import write_atomically

FOLDER = Path(__file__).parent
# A solve is repeated up to so many times while all of its runs take less than so many seconds.
MAX_RUNS, RUN_SECONDS = 5, 5.0
GIB = 2**30
# Imported once by the server that the processes are forked from.
PRELOAD = ["implicit_bias.runs.configuration", "implicit_bias.solvers.cvxpy_solver", "sklearn.svm"]


# --- what is solved, and by whom -------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One problem of the grid: data, number of samples, and architecture."""

    dataset: str
    model: str
    N: int
    H: int
    C: int

    @property
    def name(self) -> str:
        """Words for tables, and what ``--only`` looks in."""
        return f"{self.dataset} {self.model} {self.size}"

    @property
    def size(self) -> str:
        """Samples, units, contexts a unit."""
        return f"N={self.N} H={self.H} C={self.C}"

    @property
    def one_group(self) -> bool:
        """Whether the norm is that of one group."""
        return self.model != "svm-gln"

    def problem(self) -> MarginProblem:
        """Pose it: the published split and draws on MNIST."""
        setting = Setting(
            dataset=self.dataset,
            protocol="lippl2022" if self.dataset == "mnist" else "default",
            train_size=self.N,
            units=self.H,
            hyperplanes=self.C.bit_length() - 1,
            models=(self.model,),
        )
        data = load_data(setting)
        train = data.parts.train
        ((_, model),) = fit_models(setting, data)
        view = model.margin_view()
        assert view is not None
        return view.structure.problem(train.X, train.y)


GLN_MODELS = ("svm-gln", "svm-l2")
DIGITS = [(100, 10, 2), (300, 10, 2), (1000, 20, 2)]
MNIST = [
    (500, 10, 2),
    (500, 100, 2),
    (1000, 20, 2),
    (1000, 20, 4),
    (2000, 100, 2),
    (2000, 100, 4),
]
# Smaller cells first: what exceeds the limit there is not tried on larger ones.
QUICK = [
    Cell(dataset="digits", model=model, N=N, H=H, C=C)
    for model in GLN_MODELS
    for N, H, C in DIGITS[:2]
]
GRID = [
    *[
        Cell(dataset=dataset, model=model, N=N, H=H, C=C)
        for dataset, sizes in [("digits", DIGITS), ("mnist", MNIST)]
        for model in GLN_MODELS
        for N, H, C in sizes
    ],
    Cell(dataset="mnist", model="svm-linear", N=500, H=1, C=1),
]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A solver, what it is given, and where it computes."""

    solver: str
    formulation: Formulation | Literal["native", "kernel"]
    device: str = "cpu"

    @property
    def name(self) -> str:
        """Words for tables."""
        where = "" if self.device == "cpu" else f" ({self.device})"
        formulation = "" if self.formulation == "native" else f" {self.formulation}"
        return f"{self.solver}{formulation}{where}"

    def takes(self, cell: Cell) -> bool:
        """Whether it solves such problems: OSQP and SVC those of one group."""
        return cell.one_group or self.solver not in ("osqp", "svc")

    def solve(self, problem: MarginProblem, tol: float) -> Candidate:
        """Its answer; each is asked for the same gap."""
        match self.formulation:
            case "native":
                found = solve(problem, "auto", tol, self.device)
                return Candidate(found.alpha, found.coef, found.status, found.stats.iterations)
            case "kernel":
                return _svc(problem, tol)
            case formulation:
                tolerances = Tolerances(gap=tol)
                backend = self.solver
                return Reference(
                    backend=backend, formulation=formulation, tolerances=tolerances
                ).run(problem)


NATIVE = Peer(solver="native", formulation="native")


def peers() -> Iterator[Peer]:
    """All of them; the native solver on a GPU where there is one."""
    yield NATIVE
    if torch.cuda.is_available():
        yield replace(NATIVE, device="cuda")
    yield Peer(solver="svc", formulation="kernel")
    for solver in ("osqp", "scs", "clarabel", "ecos"):
        for formulation in FORMULATIONS:
            yield Peer(solver=solver, formulation=formulation)


def _svc(problem: MarginProblem, tol: float) -> Candidate:
    """scikit-learn's SVC with C = inf on the kernel of one group.

    SVC fits an offset, which this program has not. With each sample mirrored, (-x, -y), the
    offset is 0 by symmetry, and the constraints are the same twice. libsvm keeps the kernel in
    single precision, which bounds the gap that it can reach.
    """
    Q = problem.gram(0) / problem.scale**2
    kernel = Q * np.outer(problem.y, problem.y)
    mirrored = np.block([[kernel, -kernel], [-kernel, kernel]])
    labels = np.concatenate([problem.y, -problem.y])
    svc = SVC(kernel="precomputed", C=np.inf, tol=SAFETY * tol, cache_size=1000)
    svc.fit(mirrored, labels)
    alpha = np.zeros(len(labels))
    alpha[svc.support_] = np.abs(svc.dual_coef_[0])
    alpha = alpha.reshape(2, -1).sum(axis=0)  # the samples, then their mirror images
    coef = problem.coef_of(alpha, np.ones(1))
    status = Status.OPTIMAL if svc.fit_status_ == 0 else Status.NUMERICAL_TROUBLE
    return Candidate(alpha, coef, status, int(svc.n_iter_.sum()))


# --- one row: a peer on a cell, in a process that can be stopped -----------------------------

Row: TypeAlias = dict[str, Any]
# How a row came about. All but the first leave its bounds empty.
ANSWERED, TIME_LIMIT, OUT_OF_MEMORY, CRASHED, NOT_TRIED = (
    "answered",
    "time limit",
    "out of memory",
    "crashed",
    "not tried",
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a solver may use: seconds for its first run, and GiB of memory."""

    seconds: float
    memory: float


def measure(peer: Peer, problem: MarginProblem, *, tol: float, limits: Limits) -> Row:
    """Time a peer between native runs; the row says so if it does not answer."""
    row: Row = {"detail": "", "machine": platform.processor() or platform.machine()}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, peer, problem, tol, limits.memory))
    process.start()
    theirs.close()
    try:
        row |= ours.recv()  # the native runs before
        if not ours.poll(limits.seconds):
            process.kill()
            row |= {"outcome": TIME_LIMIT, "detail": f"more than {limits.seconds:g} s"}
        while True:  # the answer, then more runs and the native ones after
            row |= ours.recv()
    except EOFError:
        process.join()
    if process.exitcode and row.get("outcome") != TIME_LIMIT:
        row |= {"outcome": CRASHED, "detail": f"exit code {process.exitcode}"}
    return row


def _work(pipe: Connection, peer: Peer, problem: MarginProblem, tol: float, memory: float) -> None:
    _limit_memory(memory)
    try:
        for facts in _stages(peer, problem, tol):
            pipe.send(facts)
    except MemoryError:
        pipe.send({"outcome": OUT_OF_MEMORY, "detail": f"more than {memory:g} GiB"})
    except Exception as error:  # a peer's failure is a result, and the other peers go on
        pipe.send({"outcome": CRASHED, "detail": f"{type(error).__name__}: {error}"})


def _stages(peer: Peer, problem: MarginProblem, tol: float) -> Iterator[Row]:
    """Facts of a row as they come: before the peer's first run, after it, and at the end."""
    run = _timed(lambda: peer.solve(problem, tol))
    native = _timed(lambda: NATIVE.solve(problem, tol))
    peer.solve(_warm_up(), tol)
    native()
    before = _repeat(native)
    yield {"native_seconds": statistics.median(before), "threads": torch.get_num_threads()}
    first, answer = run()
    certificate = certify(problem, coef=answer.coef, alpha=answer.alpha)
    yield {
        "outcome": ANSWERED,
        "status": answer.status.name,
        "iterations": answer.iterations,
        "lower": certificate.lower,
        "upper": certificate.upper,
        "gap": certificate.gap,
        "seconds": first,
    }
    runs = _repeat(run, first)
    seconds = statistics.median(runs)
    native_seconds = statistics.median(before + _repeat(native))
    yield {
        "seconds": seconds,
        "runs": len(runs),
        "native_seconds": native_seconds,
        "ratio": seconds / native_seconds,
    }


def _limit_memory(gib: float) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * GIB), most))


def _warm_up() -> MarginProblem:
    """Two samples: what a solver imports and sets up once is no part of its time."""
    return MarginProblem(np.eye(2), np.array([1.0, -1.0]), np.ones((2, 1)), np.zeros(1, dtype=int))


def _timed(call: Callable[[], Candidate]) -> Callable[[], tuple[float, Candidate]]:
    def run() -> tuple[float, Candidate]:
        start = time.perf_counter()
        answer = call()
        return time.perf_counter() - start, answer

    return run


def _repeat(run: Callable[[], tuple[float, Candidate]], *done: float) -> list[float]:
    """Seconds of the runs done and of more, as many as `MAX_RUNS` and `RUN_SECONDS` allow."""
    seconds = list(done)
    while not seconds or (len(seconds) < MAX_RUNS and sum(seconds) < RUN_SECONDS):
        seconds.append(run()[0])
    return seconds


# --- the results, kept from run to run -------------------------------------------------------


def run_grid(
    cells: Sequence[Cell],
    rows: list[Row],
    *,
    tol: float,
    limits: Limits,
    solvers: Sequence[Peer],
    save: Callable[[list[Row]], None],
) -> list[Row]:
    """Measure what is missing in the rows, cell by cell; save after each row."""
    for cell in cells:
        kept = [peer for peer in solvers if peer.takes(cell)]
        missing = [peer for peer in kept if not _is_done(rows, cell, peer, tol, limits)]
        problem: MarginProblem | None = None
        for peer in missing:
            rows = [row for row in rows if not _is_row_of(row, cell, peer, tol)]
            row: Row = {**asdict(cell), **asdict(peer), "tol": tol}
            row |= {"limit": limits.seconds, "memory": limits.memory}
            if reason := exceeded(rows, cell, peer, tol):
                row |= {"outcome": NOT_TRIED, "detail": reason}
            else:
                problem = problem or cell.problem()
                row |= measure(peer, problem, tol=tol, limits=limits)
            rows = [*rows, row]
            save(rows)
    return rows


def exceeded(rows: Sequence[Row], cell: Cell, peer: Peer, tol: float) -> str:
    """Why not to try a peer on a cell: the limit that it exceeded on a smaller one, or ""."""
    for row in rows:
        other = _cell_of(row)
        smaller = other.N <= cell.N and other.H <= cell.H and other.C <= cell.C
        same = (other.dataset, other.model) == (cell.dataset, cell.model)
        stopped = row["outcome"] in (TIME_LIMIT, OUT_OF_MEMORY)
        if smaller and same and stopped and _is_row_of(row, other, peer, tol):
            return f"{row['outcome']} at {other.size}"
    return ""


def _is_row_of(row: Row, cell: Cell, peer: Peer, tol: float) -> bool:
    return (_cell_of(row), _peer_of(row), row["tol"]) == (cell, peer, tol)


def _is_done(rows: Sequence[Row], cell: Cell, peer: Peer, tol: float, limits: Limits) -> bool:
    """Whether there is an answer, or none under limits no tighter than these."""

    def settles(row: Row) -> bool:
        stopped = row["outcome"] in (TIME_LIMIT, OUT_OF_MEMORY, NOT_TRIED)
        enough = row["limit"] >= limits.seconds and row["memory"] >= limits.memory
        return row["outcome"] == ANSWERED or (stopped and enough)

    return any(settles(row) for row in rows if _is_row_of(row, cell, peer, tol))


# --- the picture -----------------------------------------------------------------------------

# Okabe and Ito's colours for the solvers, a shape for each formulation.
COLOURS = {
    "native": "#000000",
    "svc": "#CC79A7",
    "osqp": "#E69F00",
    "scs": "#009E73",
    "clarabel": "#0072B2",
    "ecos": "#D55E00",
}
SHAPES = {"native": "*", "kernel": "P", "primal": "o", "reduced": "s", "dual": "^"}
GPU, GREY = "#56B4E9", "#767676"
COLUMNS, PANEL = 3, (3.4, 2.8)
# Gaps are drawn between these; above stand the solvers without an answer or a bound.
LEAST_GAP, MOST_GAP = 1e-16, 1.0
NO_ANSWER = 1e2


def draw(frame: pd.DataFrame) -> Figure:
    """Certified gap against time, a panel a cell; hollow at the top: no answer."""
    cells = list(_by_cell(frame))
    n_rows = -(-len(cells) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * PANEL[0], n_rows * PANEL[1] + 0.6), layout="constrained")
    axes = figure.subplots(n_rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for ax, (cell, rows) in zip(axes.flat, cells, strict=False):
        _panel(ax, cell, rows)
    for ax in axes.flat[len(cells) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("certified gap")
    for ax in axes.flat[max(0, len(cells) - COLUMNS) : len(cells)]:  # the last of each column
        ax.set_xlabel("seconds")
        ax.tick_params(labelbottom=True)
    figure.legend(
        handles=_legend(frame), loc="outside upper center", ncols=7, frameon=False, fontsize="small"
    )
    return figure


def _panel(ax: Axes, cell: Cell, rows: list[Row]) -> None:
    ax.set(xscale="log", yscale="log", ylim=(LEAST_GAP / 10, NO_ANSWER * 30))
    ax.set_yticks(
        [*(10.0**k for k in range(-16, 1, 4)), NO_ANSWER],
        labels=[*(f"1e{k}" for k in range(-16, 0, 4)), "1", "none"],
    )
    ax.minorticks_off()
    ax.axhline(np.sqrt(MOST_GAP * NO_ANSWER), color=GREY, linewidth=0.8)
    ax.set_title(cell.name, fontsize="small")
    answered = [row for row in rows if row["outcome"] == ANSWERED]
    for row in answered:
        gap = np.clip(row["gap"], LEAST_GAP, MOST_GAP) if np.isfinite(row["gap"]) else NO_ANSWER
        ax.plot(row["seconds"], gap, **_style(_peer_of(row)))
    # They have no time: side by side across the panel.
    stopped = [row for row in rows if row["outcome"] != ANSWERED]
    for place, row in zip(np.linspace(0, 1, len(stopped) + 2)[1:], stopped, strict=False):
        style = _style(_peer_of(row), hollow=True)
        ax.plot(place, NO_ANSWER, transform=ax.get_yaxis_transform(), **style)


def _style(peer: Peer, *, hollow: bool = False) -> dict[str, Any]:
    colour = GPU if peer.device != "cpu" else COLOURS[peer.solver]
    return {
        "linestyle": "",
        "marker": SHAPES[peer.formulation],
        "color": colour,
        "markerfacecolor": "none" if hollow else colour,
        "alpha": 0.8,
    }


def _legend(frame: pd.DataFrame) -> list[Line2D]:
    drawn = {_peer_of(row): None for row in _records(frame)}
    answers = [Line2D([], [], label=peer.name, **_style(peer)) for peer in peers() if peer in drawn]
    style = {**_style(NATIVE, hollow=True), "marker": "o", "color": GREY}
    return [*answers, Line2D([], [], label="no answer: limit, or not tried", **style)]


# --- the command -----------------------------------------------------------------------------


def main(
    quick: Annotated[bool, typer.Option(help="The small cells of the digits only.")] = False,
    only: Annotated[str, typer.Option(help="Cells whose name contains this.")] = "",
    tol: Annotated[float, typer.Option(help="Certified gap asked of every solver.")] = 1e-6,
    time_limit: Annotated[float, typer.Option(help="Seconds of a solver on a cell.")] = 120.0,
    memory_limit: Annotated[float, typer.Option(help="GiB of a solver.")] = 8.0,
    fresh: Annotated[bool, typer.Option(help="Forget the results so far.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="Where results/ and pictures/ are; --quick: a temporary folder."),
    ] = None,
) -> None:
    """Run the grid, save each row as soon as it is there, print the table, and draw it."""
    home = kept_in(FOLDER, folder, quick=quick, name="solvers")
    picture = home / "pictures" / "solvers.png"
    out = home / "results" / "solvers.parquet"
    console = Console()
    cells = [cell for cell in (QUICK if quick else GRID) if only in f"{cell.name} "]
    if not cells:
        names = ", ".join(cell.name for cell in GRID)
        raise typer.BadParameter(f"no cell's name contains {only!r}; there are {names}")
    limits = Limits(seconds=time_limit, memory=memory_limit)
    solvers = list(peers())
    rows = [] if fresh or not out.exists() else _load(out)
    missing = sum(
        peer.takes(cell) and not _is_done(rows, cell, peer, tol, limits)
        for cell in cells
        for peer in solvers
    )
    console.print(
        f"{len(cells)} cells, {missing} rows to measure: at most {missing * time_limit / 3600:.1f} "
        f"hours (the sum of the limits of {time_limit:g} s); {len(rows)} rows are in {out}"
    )

    def save(rows: list[Row]) -> None:
        write_atomically(out, pd.DataFrame(rows).to_parquet)
        console.print(
            f"{_cell_of(rows[-1]).name}, {_peer_of(rows[-1]).name}: {rows[-1]['outcome']}"
        )

    rows = run_grid(cells, rows, tol=tol, limits=limits, solvers=solvers, save=save)
    frame = pd.DataFrame(rows)
    _show(console, frame)
    picture.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.style.context("default"):
        draw(frame[frame["tol"] == tol]).savefig(picture, dpi=150)


def _load(path: Path) -> list[Row]:
    frame = pd.read_parquet(path)
    if "outcome" not in frame:
        raise typer.BadParameter(
            f"{path} is not of this benchmark: use --fresh, or another --folder"
        )
    return _records(frame)


def _show(console: Console, frame: pd.DataFrame) -> None:
    for cell, rows in _by_cell(frame):
        table = Table("solver", "seconds", "native", "ratio", "gap", "outcome", title=cell.name)
        for row in rows:
            figures = [""] * 4
            outcome = f"{row['outcome']}: {row['detail']}"
            if row["outcome"] == ANSWERED:
                figures = [f"{row[key]:.3f}" for key in ("seconds", "native_seconds")]
                figures += [f"{row['ratio']:.3g}", f"{row['gap']:.1e}"]
                outcome = row["status"].lower().replace("_", " ")
            table.add_row(_peer_of(row).name, *figures, outcome)
        console.print(table)


def _cell_of(row: Row) -> Cell:
    return Cell(**{field.name: row[field.name] for field in fields(Cell)})


def _peer_of(row: Row) -> Peer:
    return Peer(**{field.name: row[field.name] for field in fields(Peer)})


def _by_cell(frame: pd.DataFrame) -> Iterator[tuple[Cell, list[Row]]]:
    cells: dict[Cell, list[Row]] = {}
    for row in _records(frame):
        cells.setdefault(_cell_of(row), []).append(row)
    yield from cells.items()


def _records(frame: pd.DataFrame) -> list[Row]:
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


if __name__ == "__main__":
    typer.run(main)
