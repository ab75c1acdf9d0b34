r"""How fast different methods enlarge the l2 margin of a linear predictor, against time.

With z_n = y_n x_n scaled to length at most 1 and q = softmax(-Z w), -Z' q is the gradient of the
log of the exponential loss, the soft minimum of the margins.

==================  ===============================================================================
method              step t
==================  ===============================================================================
gradient descent    w += 2 Z' exp(-Z w) / N
normalised GD       w += Z' q: the gradient over the loss
momentum            g = t/(t+1) (g + Z' q);  w += g + Z' q   (Nesterov's acceleration of the dual)
averaged            w += Z' q / ||Z' q|| / sqrt(t);  measured at the mean of the iterates, the t-th
                    with weight t
train_to_limit      `implicit_bias.train_to_limit` of a linear network (accelerated)
SVM                 `implicit_bias.solve`, at several tolerances
==================  ===============================================================================

Sources: Soudry et al. (2018); Nacson et al. (2019) and Ji, Telgarsky (2021) for normalised steps;
Ji, Srebro, Telgarsky (2021) for the momentum; Wang, Abernethy et al. (2023) for averages.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import pandas as pd
import scipy.special
import torch

from benchmarks.drawing import Figure, common_legend, curves, subplots
from benchmarks.harness import Row, Rows, Verdict
from benchmarks.sizes import grid, log_spaced, sized
from implicit_bias import LimitConfig, max_margin, solve, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.datasets import load_mnist, split
from implicit_bias.training.history import HistoryPoint

POINTS = 40
# Exponents of the theory, which bound rates from above, and how far a fitted one may be below.
EXPONENTS = {"normalised GD": -1.0, "momentum": -2.0}
OFF = 0.25
# Of the rule, from the least excess at the end to the largest.
ORDER = ("momentum", "normalised GD", "gradient descent")
TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: images of MNIST (published split), and steps of each method."""

    samples: int = 500
    steps: int = 30_000


QUICK = Sizes(samples=50, steps=200)


# Of y_n x_n (N, D): the weights (D,) after each step, from 0.
Method = Callable[[Array], Iterator[Array]]


def ascent(signed: Array, w: Array) -> Array:
    """Gradient (D,) of the soft minimum of margins Z w: minus that of the log exponential loss.

    Parameters
    ----------
    signed : ndarray of shape (N, D)
        Z, with rows y_n x_n.
    w : ndarray of shape (D,)
        A predictor of two classes.
    """
    return np.asarray(scipy.special.softmax(-signed @ w) @ signed)


def gradient_descent(Z: Array) -> Iterator[Array]:
    """Descend the exponential loss."""
    w = np.zeros(Z.shape[1])
    while True:
        w = w + 2.0 * np.exp(-Z @ w) @ Z / len(Z)
        yield w


def normalised(Z: Array) -> Iterator[Array]:
    """Descend the log of the loss, with step size 1."""
    w = np.zeros(Z.shape[1])
    while True:
        w = w + ascent(Z, w)
        yield w


def momentum(Z: Array) -> Iterator[Array]:
    """Descend with the momentum of Ji, Srebro and Telgarsky."""
    w, g = np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
    for t in count(1):
        descent = ascent(Z, w)
        g = t / (t + 1) * (g + descent)
        w = w + g + descent
        yield w


def averaged(Z: Array) -> Iterator[Array]:
    """Take normalised steps of size 1 / sqrt(t), measured at a weighted mean."""
    w, mean = np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
    for t in count(1):
        descent = ascent(Z, w)
        w = w + descent / np.linalg.norm(descent) / t**0.5
        mean = mean + 2 / (t + 1) * (w - mean)
        yield mean


METHODS: dict[str, Method] = {
    "gradient descent": gradient_descent,
    "normalised GD": normalised,
    "momentum": momentum,
    "averaged": averaged,
}
# In the order in which they are measured.
THEORY = {
    "gradient descent": "1 / log t",
    "normalised GD": "1 / t",
    "momentum": "1 / t^2",
    "averaged": "-",
    "train_to_limit": "-",
    "SVM": "-",
}


def settings(sizes: Sizes) -> list[Row]:
    """Every method once."""
    return grid(method=THEORY)


def posed(sizes: Sizes) -> tuple[Array, Array, Array]:
    """Return inputs (N, D), labels (N,), and y x over the largest ||x||."""
    part = split(load_mnist(), sizes.samples, 1).train
    signed = part.y[:, None] * part.X
    return part.X, part.y, signed / np.linalg.norm(part.X, axis=1).max()


def rows(sizes: Sizes, method: str) -> Rows:
    """One row a point: seconds, steps, and the norm at margin 1 over the certified optimum."""
    X, y, Z = posed(sizes)
    optimum = solve(max_margin(X, y), tol=1e-10).certificate
    measured = {"train_to_limit": _network, "SVM": _svm}.get(method)
    points = measured(X, y, sizes) if measured else taken(METHODS[method](Z), sizes.steps, POINTS)
    for step, seconds, w in points:
        yield {
            "step": step,
            "seconds": seconds,
            "excess": excess(w, y * (X @ w), optimum.lower),
            "optimum": optimum.lower,
            "gap": optimum.gap,
        }


def excess(w: Array, margins: Array, optimum: float) -> float:
    """Excess of the norm of w at margin 1 over the optimum; inf where w does not separate."""
    smallest = float(margins.min())
    return float(np.linalg.norm(w) / smallest / optimum - 1) if smallest > 0 else np.inf


def taken(weights: Iterator[Array], steps: int, points: int) -> Iterator[tuple[int, float, Array]]:
    """Take steps, and yield some with their seconds, without those of the grading."""
    kept = set(log_spaced(steps, points))
    seconds = 0.0
    for t in range(1, steps + 1):
        started = time.perf_counter()
        w = next(weights)
        seconds += time.perf_counter() - started
        if t in kept:
            yield t, seconds, w


def _network(X: Array, y: Array, sizes: Sizes) -> Iterator[tuple[int, float, Array]]:
    torch.manual_seed(0)
    linear = torch.nn.Linear(X.shape[1], 1, bias=False, dtype=torch.float64)
    found: list[tuple[int, float, Array]] = []
    started = time.perf_counter()

    def keep(point: HistoryPoint) -> None:
        seconds = time.perf_counter() - started
        found.append((point.step, seconds, linear.weight.detach().numpy()[0].copy()))

    config = LimitConfig(steps=sizes.steps // 10, record=10)
    train_to_limit(linear, X, y, config, on_point=keep)
    yield from found[1:]


def _svm(X: Array, y: Array, sizes: Sizes) -> Iterator[tuple[int, float, Array]]:
    for tol in TOLERANCES:
        started = time.perf_counter()
        solution = solve(max_margin(X, y), tol=tol)
        yield solution.stats.iterations, time.perf_counter() - started, solution.coef[0]


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each method's last row, with the exponent a of excess like steps^a, over a decade."""
    last = frame.groupby("method", sort=False).last()
    last["rate"] = [rate(run) for _, run in frame.groupby("method", sort=False)]
    return last.reset_index()


def rate(run: pd.DataFrame) -> float:
    """Exponent of the excess against steps over the last decade, while above the bound's gap.

    Of the SVM there is none: its points are tolerances.
    """
    late = run[(run["step"] >= run["step"].max() / 10) & (run["excess"] > 10 * run["gap"])]
    if len(late) <= len(TOLERANCES) or not np.isfinite(late["excess"]).all():
        return float("nan")
    return float(np.polyfit(np.log(late["step"]), np.log(late["excess"]), 1)[0])


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = at_end(frame).set_index("method")
    ends = "; ".join(
        f"{name} {_excess(row['excess'])} after {row['step']:,.0f} steps"
        for name, row in last.iterrows()
    )
    rates = ", ".join(
        f"{name} {_rate(last['rate'][name])} (said: {power:g})" for name, power in EXPONENTS.items()
    )
    theirs = "; ".join(f"{name} {_excess(last['excess'][name])}" for name in ORDER)
    return (
        "**Power of the steps by which the excess of the norm at margin 1 over the certified "
        f"optimum falls in the last decade: {rates}. Excess after {frame['step'].max():,} steps: "
        f"{theirs}.** All: {ends}."
    )


def _rate(power: float) -> str:
    return f"{power:.2f}" if np.isfinite(power) else "not known"


def verdict(frame: pd.DataFrame, off: float = OFF) -> Verdict:
    """Judge the claim by the rule."""
    last = at_end(frame).set_index("method")
    order = last["excess"][list(ORDER)]
    rates = last["rate"][list(EXPONENTS)] / pd.Series(EXPONENTS)
    ordered = bool(order.is_monotonic_increasing)
    return Verdict.limit(ordered & (rates >= 1 - off), ordered & rates.isna())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show the ends of all methods, with fitted and predicted rates."""
    last = at_end(frame)
    return last.assign(excess=last["excess"].map(_excess), theory=last["method"].map(THEORY))


def _excess(excess: float) -> str:
    return f"{excess:.1e}" if np.isfinite(excess) else "does not separate"


def draw(frame: pd.DataFrame) -> Figure:
    """Excess against steps, and against seconds, of the methods that separate the samples."""
    figure, panels = subplots(
        (8.6, 3.9), 1, 2, sharey=True, grid="both", y="norm / certified optimum - 1"
    )
    shown = frame[np.isfinite(frame["excess"])]
    shown = shown.assign(excess=shown["excess"].clip(lower=1e-10))
    for ax, along in zip(panels, ("step", "seconds"), strict=True):
        curves(ax, shown, "method", along, "excess", markers=True, markersize=3.5)
        ax.set(xscale="log", yscale="log", xlabel="steps" if along == "step" else along)
    return common_legend(figure, panels[:1], 3)


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
