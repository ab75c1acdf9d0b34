"""Time the native solver against its peers on a grid of sizes, side by side.

Each solver gets the same `MarginProblem` in a process of its own and is asked for the same gap;
each answer is graded by the same `certify`. CVXPY's solvers get each formulation of
`implicit_bias.solvers.cvxpy_solver`, the slow one of the source paper and the small ones; programs
of one group go to scikit-learn's SVC, too. The native solver runs in the same process before
and after each peer, so that the ratio compares neighbours in time; the median of its runs
counts. A peer that answers within seconds is timed up to five times.

A peer that exceeds the time limit is stopped, and is not tried on larger cells: both are rows
of the results. Rows already in the results are kept, so that a run can be stopped and continued.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
import torch
from matplotlib.lines import Line2D
from sklearn.svm import SVC

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Experiment, Frames, Row, Rows, Run, Verdict, option, rows_of
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.processes import Pipe, Process, ProcessEnded
from benchmarks.speed import runs
from benchmarks.speed.formulations import FORMULATIONS, Formulated, Formulation
from benchmarks.speed.runs import few_digits
from benchmarks.words import span
from implicit_bias import MarginProblem, Status, certify, solve
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from implicit_bias.solvers import Tolerances
from implicit_bias.solvers.base import Candidate
from implicit_bias.solvers.cvxpy_solver import CvxpySolver

T = TypeVar("T")

# A solve is repeated up to so many times while all of its runs take less than so many seconds.
MAX_RUNS, RUN_SECONDS = 5, 2.0


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
        """Pose it: the published split and draws."""
        setting = Setting(
            dataset=self.dataset,
            train_size=self.N,
            units=self.H,
            hyperplanes=self.C.bit_length() - 1,
            models=(self.model,),
        )
        models = Models(setting)
        train = models.data.parts.train
        ((_, model),) = models.fit()
        view = model.margin_view()
        assert view is not None
        return view.architecture.problem(train.X, train.y)


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
                return Candidate(
                    found.alpha,
                    found.coef,
                    status=found.status,
                    iterations=found.stats.iterations,
                )
            case "kernel":
                return _svc(problem, tol)
            case formulation:
                tolerances = Tolerances(gap=tol)
                backend = self.solver
                return Formulated(
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
    svc = SVC(kernel="precomputed", C=np.inf, tol=CvxpySolver.safety * tol, cache_size=1000)
    svc.fit(mirrored, labels)
    alpha = np.zeros(len(labels))
    alpha[svc.support_] = np.abs(svc.dual_coef_[0])
    alpha = alpha.reshape(2, -1).sum(axis=0)  # the samples, then their mirror images
    coef = problem.coef_of(alpha, np.ones(1))
    status = Status.OPTIMAL if svc.fit_status_ == 0 else Status.NUMERICAL_TROUBLE
    return Candidate(alpha, coef, status=status, iterations=int(svc.n_iter_.sum()))


# --- one row: a peer on a cell, in a process that can be stopped -----------------------------


def measure_peer(
    peer: Peer, problem: MarginProblem, *, tol: float, limit: float, memory: float
) -> Row:
    """Time a peer between native runs; the row says so if it does not answer.

    Its first run may take ``limit`` seconds, and the process ``memory`` GiB.
    """
    row: Row = {"limit": limit, "memory": memory, "detail": "", "machine": runs.machine()}
    arguments = (peer, problem, tol)
    with Process(_work, arguments, memory=memory) as process:
        try:
            row |= process.receive()  # the native runs before
            process.allow(limit)
            row |= process.receive()  # the answer
            process.allow(math.inf)
            while True:  # more runs, and the native ones after
                row |= process.receive()
        except ProcessEnded as ended:
            row |= runs.outcome(ended)
    return row


def _work(pipe: Pipe, peer: Peer, problem: MarginProblem, tol: float) -> None:
    for facts in _stages(peer, problem, tol):
        pipe.send(facts)


def _stages(peer: Peer, problem: MarginProblem, tol: float) -> Iterator[Row]:
    """Facts of a row as they come: before the peer's first run, after it, and at the end."""
    run = _timed(lambda: peer.solve(problem, tol))
    native = _timed(lambda: NATIVE.solve(problem, tol))
    peer.solve(runs.warm_up(), tol)
    native()
    before = _repeat(native)
    yield {"native_seconds": statistics.median(before), "threads": torch.get_num_threads()}
    first, answer = run()
    certifying = _timed(lambda: certify(problem, coef=answer.coef, alpha=answer.alpha))
    certify_seconds, certificate = certifying()
    yield {
        "outcome": runs.ANSWERED,
        "status": answer.status.name,
        "iterations": answer.iterations,
        **runs.bounds_of(certificate),
        "seconds": first,
    }
    several = _repeat(run, first)
    seconds = statistics.median(several)
    certify_seconds = statistics.median(_repeat(certifying, certify_seconds))
    native_seconds = statistics.median(before + _repeat(native))
    yield {
        "seconds": seconds,
        "runs": len(several),
        "native_seconds": native_seconds,
        "ratio": seconds / native_seconds,
        "certify_seconds": certify_seconds,
    }


def _timed(call: Callable[[], T]) -> Callable[[], tuple[float, T]]:
    def run() -> tuple[float, T]:
        start = time.perf_counter()
        answer = call()
        return time.perf_counter() - start, answer

    return run


def _repeat(run: Callable[[], tuple[float, Any]], *done: float) -> list[float]:
    """Seconds of the runs done and of more, as many as `MAX_RUNS` and `RUN_SECONDS` allow."""
    seconds = list(done)
    while not seconds or (len(seconds) < MAX_RUNS and sum(seconds) < RUN_SECONDS):
        seconds.append(run()[0])
    return seconds


# --- the results, kept from run to run -------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SolverOptions(runs.RowOptions):
    """What one can ask of it."""

    tol: float = option(1e-6, "certified gap asked of every solver")
    time_limit: float = option(120.0, "seconds of a solver on a cell")
    memory_limit: float = option(8.0, "GiB of a solver")


def measure(
    run: Run[SolverOptions], cells: Sequence[Cell] = (), solvers: Sequence[Peer] = ()
) -> Frames:
    """Measure what is missing, cell by cell."""
    tol = run.options.tol
    limits = {"limit": run.options.time_limit, "memory": run.options.memory_limit}
    wanted = {
        f"{cell.name} {peer.name}": (cell, peer)
        for cell in cells or (QUICK if run.quick else GRID)
        for peer in solvers or peers()
        if peer.takes(cell)
    }
    problem_of = lru_cache(maxsize=1)(Cell.problem)

    def row(of: tuple[Cell, Peer], rows: list[Row]) -> Row:
        if reason := exceeded(rows, *of, tol):
            return {**limits, "outcome": runs.NOT_TRIED, "detail": reason}
        cell, peer = of
        return measure_peer(peer, problem_of(cell), tol=tol, **limits)

    return runs.missing_rows(run, wanted, lambda of: key_of(*of, tol), row, **limits)


def exceeded(rows: Sequence[Row], cell: Cell, peer: Peer, tol: float) -> str:
    """Why not to try a peer on a cell: the limit that it exceeded on a smaller one, or ""."""
    of_peer = {**asdict(peer), "tol": tol}
    for row in rows:
        other = runs.made(Cell, row)
        smaller = other.N <= cell.N and other.H <= cell.H and other.C <= cell.C
        same = (other.dataset, other.model) == (cell.dataset, cell.model)
        stopped = row["outcome"] in (runs.TIME_LIMIT, runs.OUT_OF_MEMORY)
        if smaller and same and stopped and of_peer.items() <= row.items():
            return f"{row['outcome']} at {other.size}"
    return ""


def key_of(cell: Cell, peer: Peer, tol: float) -> Row:
    """Return the columns that tell a row apart."""
    return {**asdict(cell), **asdict(peer), "tol": tol}


# --- the picture -----------------------------------------------------------------------------

# A colour for each solver, and a half that is filled, which tells them apart in grey, too; a shape
# for each formulation.
COLOURS = {
    "native": BLACK,
    "svc": PURPLE,
    "osqp": ORANGE,
    "scs": GREEN,
    "clarabel": BLUE,
    "ecos": VERMILION,
}
HALVES = {"scs": "left", "clarabel": "bottom", "ecos": "right"}
SHAPES = {"native": "*", "kernel": "P", "primal": "o", "reduced": "s", "dual": "^"}
# Formulations of one solver stand side by side, this far apart, where none of them has a time.
ABREAST = {"native": 0.0, "kernel": 0.0, "primal": -0.27, "reduced": 0.0, "dual": 0.27}
# An answer whose certified gap is more than so many times the gap asked for is marked.
LOOSE = 10.0


def draw(frame: pd.DataFrame) -> Figure:
    """Seconds of each peer, a line a problem; who did not answer stands apart, at no time."""
    frame = frame[frame["tol"] == frame["tol"].iloc[-1]]
    cells = list(_by_cell(frame))
    solvers = [name for name in COLOURS if (frame["solver"] == name).any()]
    stopped = frame[frame["outcome"] != runs.ANSWERED]
    silent = [name for name in solvers if (stopped["solver"] == name).any()]
    widths = [3.4, 0.35 * len(silent)] if silent else [1.0]
    shared: dict[str, Any] = {"sharey": True, "squeeze": False, "width_ratios": widths}
    figure, (axes,) = subplots((10.0, 1.6 + 0.42 * len(cells)), 1, len(widths), **shared)
    for place, (_, rows) in enumerate(cells):
        for row in rows:
            peer = runs.made(Peer, row)
            if row["outcome"] == runs.ANSWERED:
                # A lane a solver, so that equal times do not hide one another.
                lane = place + 0.7 * ((solvers.index(peer.solver) + 0.5) / len(solvers) - 0.5)
                axes[0].plot(row["seconds"], lane, **_style(peer))
                if not row["gap"] <= LOOSE * row["tol"]:  # a gap that is not known is not small
                    loose = {"marker": "x", "color": BLACK, "markersize": 9, "linestyle": ""}
                    axes[0].plot(row["seconds"], lane, **loose)
            else:
                beside = silent.index(peer.solver) + ABREAST[peer.formulation]
                axes[-1].plot(beside, place, **_style(peer, hollow=True))
    axes[0].set(xscale="log", xlabel="seconds")
    axes[0].set_yticks(range(len(cells)), labels=[_words(cell) for cell, _ in cells])
    axes[0].set_ylim(len(cells) - 0.5, -0.5)
    axes[0].grid(visible=True, axis="x", alpha=0.3)
    axes[0].set_title("answered", fontsize="small")
    for ax in axes:
        ax.tick_params(axis="y", length=0)
        for edge in range(1, len(cells)):
            ax.axhline(edge - 0.5, color=GREY, linewidth=0.4, alpha=0.5)
    if silent:
        axes[1].set_title("no answer: limit, or not tried", fontsize="small")
        axes[1].set_xlim(-0.6, len(silent) - 0.4)
        axes[1].set_xticks(range(len(silent)), labels=silent, rotation=45)
    figure.legend(
        handles=_legend(frame), loc="outside upper center", ncols=6, frameon=False, fontsize="small"
    )
    return figure


def _words(cell: Cell) -> str:
    return f"{WORDS[cell.dataset]} {WORDS[cell.model]}, {cell.size}"


def _style(peer: Peer, *, hollow: bool = False) -> dict[str, Any]:
    colour = SKY if peer.device != "cpu" else COLOURS[peer.solver]
    return {
        "linestyle": "",
        "marker": SHAPES[peer.formulation],
        "markersize": 8 if peer.formulation == "native" else 6,
        "color": colour,
        "markerfacecolor": "none" if hollow else colour,
        "markerfacecoloralt": "none" if hollow else "white",
        "fillstyle": HALVES.get(peer.solver, "full"),
    }


def _legend(frame: pd.DataFrame) -> list[Line2D]:
    drawn = {runs.made(Peer, row): None for row in rows_of(frame)}
    marks = [Line2D([], [], label=peer.name, **_style(peer)) for peer in peers() if peer in drawn]
    answered = frame[frame["outcome"] == runs.ANSWERED]
    if not (answered["gap"] <= LOOSE * answered["tol"]).all():
        label = f"gap above {LOOSE:g} times the one asked for"
        marks.append(Line2D([], [], marker="x", color=BLACK, linestyle="", label=label))
    return marks


# --- what it shows ---------------------------------------------------------------------------

# Columns of the table: of each peer its best formulation, and of one the published program.
COLUMN_PEERS = {
    "ECOS primal": ("ecos", "primal"),
    "ECOS": ("ecos", None),
    "CLARABEL": ("clarabel", None),
    "SCS": ("scs", None),
    "OSQP": ("osqp", None),
    "SVC": ("svc", None),
}
WORDS = {"digits": "digits", "mnist": "MNIST"}
WORDS |= {"svm-gln": "SVM-GLN", "svm-l2": "SVM-L2", "svm-linear": "linear SVM"}


def _best(rows: list[Row], solver: str, formulation: str | None) -> Row | None:
    """Return the answer of a peer that took least time."""
    answers = [
        row
        for row in rows
        if row["solver"] == solver
        and formulation in (None, row["formulation"])
        and row["outcome"] == runs.ANSWERED
    ]
    return min(answers, key=lambda row: float(row["ratio"]), default=None)


def tabulate(frame: pd.DataFrame) -> Rows:
    """Seconds of the native solver, and multiples of it that each peer takes."""
    for cell, rows in _by_cell(frame):
        native = _best(rows, NATIVE.solver, None)
        line = {"problem": _words(cell)}
        line["native"] = f"{few_digits(native['seconds'])} s" if native else ""
        for column, (solver, formulation) in COLUMN_PEERS.items():
            found = _best(rows, solver, formulation)
            tried = any(row["solver"] == solver for row in rows)
            line[column] = few_digits(found["ratio"]) if found else "limit" if tried else ""
            if found and solver != "svc" and formulation is None:
                line[column] += f" {found['formulation']}"
        yield line


def _published(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of SVM-GLN at which ECOS answers the published program, the largest last."""
    by_ecos = (frame["solver"] == "ecos") & (frame["formulation"] == "primal")
    answered = (frame["outcome"] == runs.ANSWERED) & (frame["model"] == "svm-gln")
    return frame[by_ecos & answered].sort_values("N", kind="stable")


def found(frame: pd.DataFrame) -> str:
    """Say who is faster, and by how much."""
    lines = []
    limit = frame["limit"].min()
    if published := rows_of(_published(frame)):
        *smaller, last = published
        lines.append(
            "- ECOS on the program as published takes "
            f"{few_digits(last['ratio'])} times as long as the native solver at "
            f"{runs.made(Cell, last).name}, the largest size where ECOS answers in time"
            + "".join(f", {few_digits(row['ratio'])} times at N={row['N']}" for row in smaller)
            + "."
        )
    answered = frame[frame["outcome"] == runs.ANSWERED]
    one_group = answered["model"] != "svm-gln"
    small = answered[~one_group & (answered["dataset"] == "mnist")]
    small = small[small["solver"].isin(["ecos", "clarabel", "scs"])]
    if len(small):
        sizes = small.assign(size=[runs.made(Cell, row).size for row in rows_of(small)])
        best = sizes.groupby(["size", "solver"], sort=False)["ratio"].min()
        words = "; ".join(
            f"{span(ratios, few_digits)} at {size}"
            for size, ratios in best.groupby("size", sort=False)
        )
        lines.append(
            "- Most of that is the formulation. In the best one of each the peers' times are, on "
            f"MNIST and SVM-GLN, multiples of the native one: {words}. Where a size is missing, "
            f"none answered within {limit:g} s."
        )
    peers_of_one = answered[one_group & (answered["solver"] != "native")]
    faster = peers_of_one[peers_of_one["ratio"] < 1]
    if len(faster):
        row = rows_of(faster.nsmallest(1, "ratio"))[0]
        lines.append(
            "- One group (SVM-L2) is a quadratic program in N variables, and others are good at "
            f"those. Faster somewhere: {', '.join(sorted(set(faster['solver'])))}, by a factor of "
            f"up to {few_digits(1 / row['ratio'])} ({runs.made(Peer, row).name} at "
            f"{runs.made(Cell, row).name}), to gaps of {span(faster['gap'], '.0e')}. (SVC's kernel "
            "is in single precision.)"
        )
    svc = frame[frame["solver"] == "svc"]
    svc = svc.reindex(columns=["seconds", "certify_seconds", "native_seconds"]).dropna()
    if len(svc):
        certified = (svc["seconds"] + svc["certify_seconds"]) / svc["native_seconds"]
        lines.append(
            "- A gap takes a certificate, which the native times include and those of the peers do "
            f"not. SVC and `certify` take {span(certified, few_digits)} times what the native "
            "solver takes on the problems of one group."
        )
    threads = " or ".join(f"{n:.0f} threads" for n in sorted(frame["threads"].dropna().unique()))
    stopped = int(frame["outcome"].isin([runs.TIME_LIMIT, runs.NOT_TRIED]).sum())
    return (
        "Seconds of the native solver, and the time of each peer as a multiple of it, each with "
        f"{threads} of {', '.join(sorted(set(frame['machine'].dropna())))}, limit {limit:g} s; "
        '"limit": no formulation answered within it, here or on a smaller problem '
        f"({stopped} of {len(frame)} rows).\n\n" + "\n".join(lines)
    )


def verdict(frame: pd.DataFrame, least: float = 100.0) -> Verdict:
    """Judge the claim by the rule."""
    ratios = _published(frame)["ratio"]
    return Verdict.of((ratios.tail(1) >= least).any(), (ratios >= 10).any())


def _by_cell(frame: pd.DataFrame) -> Iterator[tuple[Cell, list[Row]]]:
    cells: dict[Cell, list[Row]] = {}
    for row in rows_of(frame):
        cells.setdefault(runs.made(Cell, row), []).append(row)
    yield from cells.items()


EXPERIMENT = Experiment(measure, found, tabulate, verdict, draw, options=SolverOptions)
