"""How time and memory of the native solver grow: samples N, hidden units H, contexts C.

SVM-GLN on binary MNIST (Lippl, Abbott, Chung 2022): the published split, so that smaller N are
parts of larger ones, the published draws of contexts, thresholds at the medians over all images,
and a certified gap of 1e-6. Lines in N, H and C meet at N = 2,000, H = 100, C = 2. Each point is
solved in a process of its own, between two runs of a yardstick, 20 float64 Cholesky factorisations
of order 2,000: the ratio of the two times is what exponents are fitted to, as it depends less on
the machine than seconds do. Memory is the peak of the process, data included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks import summaries
from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.processes import GIB, Worker, forget_peak, peak_memory
from benchmarks.speed.datasets.gated import Dataset
from implicit_bias import MarginProblem, solve
from implicit_bias.base.style import BLUE, GREY, VERMILION
from implicit_bias.solvers import INTERIOR_POINT_LIMIT

COST = 10
LIMIT = 900.0
# The yardstick.
FACTORISATIONS, ORDER = 20, 2000
MIDDLE = {"N": 2000, "H": 100, "C": 2}
LINES = {
    "N": (500, 1000, 2000, 5000, 10_000, 20_000, 40_000, 60_000),
    "H": (10, 20, 50, 100, 200, 400),
    "C": (2, 4, 8),
}
QUICK = {"N": 60, "H": 3, "C": 2}
ANSWERED, NO_GPU = "answered", "no GPU"
# Colour and words of each method.
LOOKS = {
    "interior-point": (BLUE, "interior point"),
    "working-set": (VERMILION, "working set"),
}


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each point, on the processor and on a GPU."""
    points = [MIDDLE | {axis: value} for axis, values in LINES.items() for value in values]
    if quick:
        points = [QUICK, QUICK | {"N": 80}]
    once = dict.fromkeys(tuple(point.items()) for point in points)
    for device in ("cpu",) if quick else ("cpu", "cuda"):
        for point in once:
            data = "digits" if quick else "mnist"
            yield part(grow, data=data, device=device, **dict(point))


def grow(data: str, device: str, N: int, H: int, C: int) -> Iterator[dict[str, Any]]:  # noqa: N803
    """Yield the row of a point."""
    row: dict[str, Any] = {"outcome": NO_GPU, "solver": ""}
    row |= dict.fromkeys(("solve_seconds", "ratio", "peak_gib", "support", "gap"), np.nan)
    if device == "cpu" or torch.cuda.is_available():
        dataset = Dataset.get_instance(data=data, model="svm-gln", N=N, H=H, C=C)
        row |= Worker(dataset.get_data()["problem"], device).row(_solved, seconds=LIMIT)
    yield row


def _solved(problem: MarginProblem, device: str) -> dict[str, Any]:
    if device == "cpu":
        torch.set_num_threads(1)
    solve(problem.subset(np.arange(20)), device=device)  # what is imported and set up once
    before = yardstick(device)
    forget_peak()
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    found = solve(problem, device=device)
    peak = peak_memory() if device == "cpu" else torch.cuda.max_memory_allocated(device)
    seconds = found.stats.seconds
    return {
        "outcome": ANSWERED,
        "solver": found.stats.solver,
        "solve_seconds": seconds,
        "ratio": seconds / ((before + yardstick(device)) / 2),
        "peak_gib": peak / GIB,
        "support": float(len(found.support)),
        "gap": found.certificate.gap,
    }


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


# --- the page ------------------------------------------------------------------------------------


def middle_of(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the point in which all lines meet: it has the values that most points have."""
    return {name: frame[name].mode().iloc[0] for name in MIDDLE}


def line(frame: pd.DataFrame, axis: str, device: str = "cpu") -> pd.DataFrame:
    """Return the answered rows that differ from the middle point in one axis alone, in order."""
    rows = frame[(frame["device"] == device) & (frame["outcome"] == ANSWERED)]
    for name, value in middle_of(frame).items():
        if name != axis:
            rows = rows[rows[name] == value]
    return rows.sort_values(axis)


def exponent(x: Sequence[float] | pd.Series, y: Sequence[float] | pd.Series) -> float:
    """Return the least-squares exponent p of y = c x^p; NaN of fewer than three points."""
    if len(x) < 3:
        return np.nan
    return summaries.exponent(x, y)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the table of the line in N, exponents, and the largest point."""
    rows = line(frame, "N")
    gpu = line(frame, "N", "cuda").set_index("N")["solve_seconds"]
    small = rows[rows["N"] <= INTERIOR_POINT_LIMIT]
    large = rows[rows["N"] > INTERIOR_POINT_LIMIT]
    largest = rows.iloc[-1]
    table = pd.DataFrame(
        {
            "N": [f"{N:,}" for N in rows["N"]],
            "CPU, s": rows["solve_seconds"].map("{:.2g}".format).tolist(),
            "CPU / 20 Choleskys": rows["ratio"].map("{:.2g}".format).tolist(),
            "GPU, s": [f"{gpu[N]:.2g}" if N in gpu.index else "-" for N in rows["N"]],
            "support vectors": [f"{count:,.0f}" for count in rows["support"]],
            "GiB": rows["peak_gib"].map("{:.2g}".format).tolist(),
        }
    )
    return {
        "table": table,
        **{f"seconds_{N}": s for N, s in zip(rows["N"], rows["solve_seconds"], strict=True)},
        **{f"gpu_seconds_{N}": seconds for N, seconds in gpu.items()},
        "largest": f"{largest['N']:,}",
        "seconds": float(largest["solve_seconds"]),
        "gib": float(largest["peak_gib"]),
        "support": float(largest["support"]),
        "gap": float(largest["gap"]),
        "exponent_small": exponent(small["N"], small["ratio"]),
        "exponent_large": exponent(large["N"], large["ratio"]),
        "exponent_support": exponent(large["N"], large["support"]),
        "exponent_H": exponent(line(frame, "H")["H"], line(frame, "H")["ratio"]),
        "exponent_C": exponent(line(frame, "C")["C"], line(frame, "C")["ratio"]),
    }


def draw(frame: pd.DataFrame) -> Figure:
    """Time and memory against N, and the power law of each method's time."""
    figure, (left, right) = subplots((9.0, 3.6), 1, 2)
    rows = line(frame, "N")
    for solver, points in rows.groupby("solver", sort=False):
        colour, name = LOOKS[str(solver)]
        power = exponent(points["N"], points["ratio"])
        left.plot(points["N"], points["ratio"], "o", color=colour)
        right.plot(points["N"], points["peak_gib"], "o", color=colour, label=name)
        if np.isfinite(power):
            level = np.exp((np.log(points["ratio"]) - power * np.log(points["N"])).mean())
            law = level * points["N"] ** power
            left.plot(points["N"], law, color=colour, label=f"{name}: N^{power:.2f}")
    left.set_ylabel("time of the solve / time of 20 Choleskys")
    right.set_ylabel("GiB at the peak")
    for ax, values in ((left, (0.1, 1.0, 10.0)), (right, (0.5, 1.0, 2.0))):
        middle = middle_of(frame)
        others = ", ".join(f"{name} = {middle[name]}" for name in ("H", "C"))
        ax.set(xscale="log", yscale="log", xlabel=f"samples N   ({others})")
        tick_values(ax, rows["N"], write="{:,}", rotation=45)
        tick_values(ax, values, along="y")
        ax.grid(visible=True, color=GREY, alpha=0.3)
        if ax.get_legend_handles_labels()[0]:  # two points have no power law
            ax.legend(frameon=False, fontsize="small")
    return figure
