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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from benchmarks import harness
from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.lippl2022 import draws
from benchmarks.processes import Pipe
from benchmarks.speed import runs
from benchmarks.words import markdown_table, span
from implicit_bias.base.validation import Array
from implicit_bias.datasets import load, split_indices
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.gating import GateMatrix, HyperplaneContexts
from implicit_bias.report.style import BLACK, BLUE, GREY, VERMILION
from implicit_bias.solvers import INTERIOR_POINT_LIMIT, solve

SEED = 1


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
            # Multiples, which are exact, so that the conflict is one of real numbers, too.
            return np.stack([4.0 * X[0], 2.0 * X[0]]), np.array([y[0], -y[0]])


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
        contexts = draws.draw_contexts(
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


def key_of(point: Point, tol: float, device: str) -> harness.Row:
    """Return the columns that tell its row apart."""
    return {**asdict(point), "tol": tol, "device": device}


def measure_point(
    point: Point, *, tol: float, device: str, limit: float, say: Callable[[str], None]
) -> harness.Row:
    """Solve a point; the row says so if that fails."""
    row: harness.Row = {"limit": limit, "detail": "", "machine": runs.machine()}
    row |= dict.fromkeys(QUANTITIES, np.nan)  # until there is an answer
    arguments = (point.problem(), tol, device)
    return row | runs.in_process(_work, arguments, limit, lambda line: say(f"{point.name}: {line}"))


def _work(pipe: Pipe, problem: MarginProblem, tol: float, device: str) -> None:
    solve(runs.warm_up(), device=device)
    found, cost = runs.beside_yardstick(
        lambda: solve(problem, tol=tol, device=device, on_progress=pipe.send), device
    )
    pipe.send(
        {
            "outcome": runs.ANSWERED,
            "solver": found.stats.solver,
            "status": found.status.name,
            "iterations": found.stats.iterations,
            **runs.bounds_of(found.certificate),
            "support": len(found.support),
            "active": int(found.active.sum()),
            "seconds": found.stats.seconds,
            **cost,
            "ratio": runs.in_yardsticks(found.stats.seconds, cost),
            "threads": torch.get_num_threads(),
            "hardware": torch.cuda.get_device_name() if device != "cpu" else "",
        }
    )


# --- the results, kept from run to run -------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScalingOptions(runs.RowOptions):
    """What one can ask of it."""

    tol: float = harness.option(1e-6, "certified gap to solve to")
    device: str = harness.option("cpu", "cpu or cuda")
    time_limit: float = harness.option(900.0, "seconds of a point")


def measure(run: harness.Run[ScalingOptions]) -> harness.Frames:
    """Measure the points that are missing."""
    tol, device, limit = run.options.tol, run.options.device, run.options.time_limit
    return runs.missing_rows(
        run,
        {point.name: point for point in (QUICK if run.quick else GRID)},
        lambda point: key_of(point, tol, device),
        lambda point, _: measure_point(point, tol=tol, device=device, limit=limit, say=run.say),
    )


# --- exponents and the picture ---------------------------------------------------------------

AXES = {"N": "samples N", "H": "hidden units H", "C": "contexts a unit C"}
QUANTITIES = {
    "ratio": "time of the solve\n/ time of 20 Choleskys",
    "solve_gib": "GiB of the solve",
}
# Each method has a colour, for its points and the law fitted to them.
COLOURS = {"interior-point": BLUE, "working-set": VERMILION}
PANEL = (3.0, 2.9)
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


def pieces(rows: pd.DataFrame, axis: str, quantity: str) -> harness.Frames:
    """Parts of a line that one power law may describe: those of one solver, with 3 points."""
    rows = _fitted(rows, quantity)
    parts = (
        [rows]
        if axis != "N"
        else [
            rows[rows["N"] <= INTERIOR_POINT_LIMIT],
            rows[rows["N"] > INTERIOR_POINT_LIMIT],
        ]
    )
    return (part for part in parts if len(part) >= 3)


def draw(frame: pd.DataFrame, middle: Point | None = None) -> Figure:
    """Time and memory along each axis that has more than one point, with fitted exponents.

    Of the first device alone: what is divided by a device's own yardstick compares no devices.
    """
    middle = middle or _middle(frame)
    lines = {axis: line(_here(frame), axis, middle) for axis in AXES}
    drawn = [axis for axis in AXES if lines[axis][axis].nunique() > 1] or ["N"]
    size = (len(drawn) * PANEL[0] + 1, len(QUANTITIES) * PANEL[1])
    shared: dict[str, Any] = {"sharex": "col", "sharey": "row", "squeeze": False}
    figure, axes = subplots(size, len(QUANTITIES), len(drawn), **shared)
    for row, (quantity, label) in zip(axes, QUANTITIES.items(), strict=True):
        row[0].set_ylabel(label)
        for ax, axis in zip(row, drawn, strict=True):
            _panel(ax, lines[axis], axis, quantity)
    for ax, axis in zip(axes[-1], drawn, strict=True):
        others = ", ".join(f"{name} = {getattr(middle, name)}" for name in AXES if name != axis)
        ax.set_xlabel(f"{AXES[axis]}   ({others})", fontsize="small")
    marks: dict[str, Line2D] = {}
    for ax in figure.axes:
        shown = [drawn for drawn in ax.lines if not str(drawn.get_label()).startswith("_")]
        laws = [law for law in shown if law.get_marker() == "None"]
        marks |= {str(mark.get_label()): mark for mark in shown if mark not in laws}
        if laws:
            ax.legend(handles=laws, loc="upper left")
    figure.legend(handles=[*marks.values()], loc="outside lower center", ncols=4)
    return figure


def _panel(ax: Axes, rows: pd.DataFrame, axis: str, quantity: str) -> None:
    ax.set(xscale="log", yscale="log")
    ax.grid(visible=True, which="major", alpha=0.3)
    if len(rows):
        ax.set_xlim(rows[axis].min() / 1.4, rows[axis].max() * 1.4)
        tick_values(ax, rows[axis], write="{:,}", rotation=45)
    answered = rows[rows["outcome"] == runs.ANSWERED]
    for solver, points in answered.groupby("solver") if len(answered) else ():
        marker = "s" if solver == "working-set" else "o"
        look: dict[str, Any] = {"color": _colour(solver), "linestyle": "", "marker": marker}
        fitted = _fitted(points, quantity)
        ax.plot(fitted[axis], fitted[quantity], label=solver, **look)
        left = points.drop(fitted.index)
        left = left[left[quantity] > 0]  # no more memory than before, on a logarithmic axis
        if len(left):
            words = f"{solver}, below {LEAST_GIB:g} GiB: in no fit"
            ax.plot(left[axis], left[quantity], markerfacecolor="none", label=words, **look)
    for part in pieces(answered, axis, quantity):
        slope, factor = exponent(part[axis], part[quantity])
        law = factor * part[axis] ** slope
        colour = _colour(part["solver"].iloc[0])
        ax.plot(part[axis], law, color=colour, linewidth=1, label=f"{axis}^{slope:.2f}")
    stopped = rows[rows["outcome"] != runs.ANSWERED]
    if len(stopped):  # they have no time and no memory: above the panel
        above: dict[str, Any] = {
            "transform": ax.get_xaxis_transform(),
            "clip_on": False,
            "linestyle": "",
        }
        place = np.full(len(stopped), 1.03)
        ax.plot(stopped[axis], place, marker="^", color=GREY, label="no answer", **above)


def _fitted(rows: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Rows that say something of a quantity: of memory, those above what the yardstick left."""
    return rows[rows[quantity] >= LEAST_GIB] if quantity == "solve_gib" else rows


def _colour(solver: object) -> str:
    return COLOURS.get(str(solver), BLACK)


# --- what it shows ---------------------------------------------------------------------------


# Columns that only answers have.
SHOWN = ["iterations", "support", "seconds", "gap"]


def _middle(frame: pd.DataFrame) -> Point:
    """Return the point in which the lines meet, of the data set of the table."""
    grid = GRID if (frame["dataset"] == GRID[0].dataset).any() else QUICK
    return grid[0]


def _here(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the first device: of the processor, where there are any."""
    return frame[frame["device"] == frame["device"].min()]


def _answers(frame: pd.DataFrame) -> pd.DataFrame:
    """Answered rows without a conflict, on the first device, by size."""
    known = frame[(frame["conflict"] == "none") & (frame["outcome"] == runs.ANSWERED)]
    known = known.reindex(columns=frame.columns.union(SHOWN))  # a table without any answer
    return _here(known).sort_values(["N", "H", "C"])


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Cost of every point without a conflict."""
    rows = _answers(frame)
    return rows.assign(seconds=rows["seconds"].map(runs.few_digits))


def _exponents(frame: pd.DataFrame) -> dict[str, list[float]]:
    """Exponents of time along each axis, a piece of the line each."""
    middle, answers = _middle(frame), _answers(frame)
    return {
        axis: [
            exponent(part[axis], part["ratio"])[0]
            for part in pieces(line(answers, axis, middle), axis, "ratio")
        ]
        for axis in AXES
    }


def found(frame: pd.DataFrame) -> str:
    """Say how time and memory grow, and what a proof of conflict costs."""
    answers, exponents = _answers(frame), _exponents(frame)
    largest = answers.iloc[-1] if len(answers) else None
    if largest is None:
        return "Nothing was answered."
    grown = line(answers, "N", _middle(frame))
    beyond = grown[grown["N"] > INTERIOR_POINT_LIMIT]
    support = ""
    if len(beyond) >= 3:
        power = exponent(beyond["N"], beyond["support"])[0]
        support = (
            f": support vectors grow like N^{power:.2f}, and the factorisations like their cube"
        )
    growth = ", and beyond (the working set) like ".join(f"N^{p:.1f}" for p in exponents["N"])
    others = " and ".join(f"{axis}^{p[0]:.2f}" for axis in "HC" if (p := exponents[axis]))
    here = _here(frame)
    yardsticks = (here["yardstick_before"] + here["yardstick_after"]) / 2
    lines = [
        f"- The largest point, {runs.made(Point, largest).name}: a certified gap of "
        f"{largest['gap']:.0e} after {largest['seconds']:.3g} s, {largest['support']:,} support "
        f"vectors, and {largest['peak_gib']:.1f} GiB at the peak, data included.",
    ]
    if growth:
        lines.append(
            f"- Time grows up to {INTERIOR_POINT_LIMIT:,} samples (the interior point) like "
            f"{growth}{support}."
        )
    if others:
        lines.append(
            f"- At N = {_middle(frame).N} it grows like {others}: the Choleskys do not depend on H "
            "and C, the products through feature space and the rows of the Schur complement do. "
            "The points are single runs, and exponents of memory below 0.2 GiB say little."
        )
    return (
        f"Gap {frame['tol'].iloc[0]:g}, threads: {answers['threads'].iloc[0]:.0f}, "
        f"{largest['machine']}; 20 Choleskys beside each point took {span(yardsticks, '.2g')} s."
        "\n\n" + "\n".join(lines) + _of_conflicts(here) + _elsewhere(frame)
    )


def _of_conflicts(frame: pd.DataFrame) -> str:
    """Time of the proof of a conflict over 20 Choleskys, beside that of the solve."""
    ratios = frame[frame["outcome"] == runs.ANSWERED].pivot_table(
        index=["N", "H", "C"], columns="conflict", values="ratio"
    )
    if not {"none", "twin", "between"} <= set(ratios):
        return ""
    ratios = ratios.dropna()
    cells = ratios[["twin", "between", "none"]].map(runs.few_digits).reset_index()
    cells = cells.rename(columns={"none": "the solve without it"}).drop(columns=["H", "C"])
    cells["N"] = cells["N"].map("{:,}".format)
    share = ratios["between"] / ratios["none"]
    return (
        "\n\nConflicts, in the middle of the data, time / 20 Choleskys:\n\n"
        f"{markdown_table(cells.astype(str))}\n\n"
        "A sample with both labels is found by comparing rows. Where no two samples are equal, the "
        f"proof that nothing separates them takes {span(share, '.1f')} times as long as the solve."
    )


def _elsewhere(frame: pd.DataFrame) -> str:
    """Seconds on another device beside those of the first, along the line of N."""
    answered = frame[frame["outcome"] == runs.ANSWERED]
    rows = line(answered.sort_values("device"), "N", _middle(frame))
    rows = rows.replace({"hardware": {"": "the processor"}})
    seconds = rows.pivot_table(index="N", columns="hardware", values="seconds")
    if len(seconds.columns) < 2:
        return ""
    bounds = rows.pivot_table(index="N", columns="hardware", values="upper")
    apart = (bounds.max(axis=1) / bounds.min(axis=1) - 1).max()
    cells = seconds[rows["hardware"].unique()].map(runs.few_digits).reset_index()
    cells["N"] = cells["N"].map("{:,}".format)
    return (
        f"\n\nSeconds of the solve by device:\n\n{markdown_table(cells.astype(str))}\n\n"
        f"Their upper bounds differ by at most {apart:.0e} of themselves."
    )


def verdict(frame: pd.DataFrame) -> harness.Verdict:
    """Judge the claim by the rule."""
    largest = _answers(frame).nlargest(1, "N")
    whole = largest["N"] >= 60_000
    return harness.Verdict.of((whole & (largest["gap"] <= frame["tol"].max())).any())


EXPERIMENT = harness.Experiment(measure, found, tabulate, verdict, draw, options=ScalingOptions)
