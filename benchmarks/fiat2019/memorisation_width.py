"""The smallest width at which GaLU and ReLU networks memorise random labels.

m Gaussian inputs of dimension d with Gaussian labels; memorised: mean squared error below 0.01. The
width is found by binary search; the data and the filters of a search are the same. Both networks by
the published training (Adam, rate 0.001, batches of 128, 100,000 steps; it ends once the error of
all samples, looked at every 1,000 steps, is below 0.01), and GaLU in closed form, too. The paper
says neither d nor the values of m: d = 16 and m = 64 to 256 are ours, and small; the published 5
repeats.

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, figure 1 and table 1.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.fiat2019.published_training import STEPS, squared_error, train_as_published
from benchmarks.harness import Experiment, Frames, Rows, Run, Verdict, rows_of, tabled
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.kernels.least_squares import least_squares
from implicit_bias.problem.gating import UnitGates
from implicit_bias.report.style import BLACK, BLUE, GREY, VERMILION

MEMORISED = 0.01
REPEATS = 5
SIZES, INPUTS = (64, 128, 256), 16


def smallest(memorises: Callable[[int], bool], most: int) -> int:
    """Smallest width in 1 .. most that memorises, taken to be monotone, by binary search."""
    least = 1
    while least < most:
        middle = (least + most) // 2
        if memorises(middle):
            most = middle
        else:
            least = middle + 1
    return least


def closed_form_error(width: int, X: Array, y: Array, seed: int) -> float:
    """Mean squared error of least squares with so many hard gates; wider ones keep the filters."""
    filters = np.random.default_rng(seed).normal(size=(width, X.shape[1]))
    gates = UnitGates(filters, np.zeros(width), ">=").gates(X)
    return least_squares(X, gates, y).loss


def trained_error(width: int, X: Array, y: Array, seed: int, *, kind: Kind, steps: int) -> float:
    """Mean squared error that training reaches."""
    network = GatedLayers([X.shape[1], width, 1], kind, bias=False, seed=seed)
    targets = y[:, None]
    train_as_published(
        network,
        X,
        targets,
        "squared",
        steps=steps,
        watch=lambda _: squared_error(network, X, targets) < MEMORISED,
        seed=seed,
    )
    return squared_error(network, X, targets)


class Untried(Exception):
    """A search has come to a width that no row of the table has."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.width = width


def searched(tried: pd.DataFrame, most: int) -> int:
    """Smallest width by the errors of the widths that were tried.

    Raises
    ------
    Untried
        The search needs one more.
    """
    errors = dict(zip(tried["width"], tried["error"], strict=True))

    def memorises(width: int) -> bool:
        if width not in errors:
            raise Untried(width)
        return bool(errors[width] < MEMORISED)

    return smallest(memorises, most)


def widest(m: int, d: int) -> int:
    """Where searches end, taken to memorise."""
    return 3 * math.ceil(m / d)


def measure(run: Run[Any]) -> Frames:
    """Try what the searches ask for: a row is a width, and the error at it."""
    sizes, d, repeats, steps = (
        ((32, 64), 16, 1, 1000) if run.quick else (SIZES, INPUTS, REPEATS, STEPS)
    )
    columns = ["m", "d", "seed", "network", "width", "error"]
    frame = run.kept if "error" in run.kept else pd.DataFrame(columns=columns)
    methods: dict[str, Callable[..., float]] = {
        "closed": closed_form_error,
        "GaLU": partial(trained_error, kind="hard", steps=steps),
        "ReLU": partial(trained_error, kind="relu", steps=steps),
    }
    for seed, m, (name, method) in itertools.product(range(repeats), sizes, methods.items()):
        rng = np.random.default_rng([seed, m])
        X, y = rng.normal(size=(m, d)), rng.normal(size=m)
        case = {"m": m, "d": d, "seed": seed, "network": name}
        while True:
            same = (frame["m"] == m) & (frame["seed"] == seed) & (frame["network"] == name)
            try:
                searched(frame[same], widest(m, d))
                break
            except Untried as asked:
                row = case | {"width": asked.width, "error": method(asked.width, X, y, seed)}
            frame = pd.DataFrame([*rows_of(frame), row])
            run.say(f"m = {m}, {name}, k = {row['width']}: {row['error']:.4f}")
            yield frame


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the widths against m/d; a dot is a draw of the data."""
    figure, ax = subplots((5.6, 3.8))
    frame = widths_found(frame)
    ratio = frame["m"] / frame["d"]
    line = np.geomspace(ratio.min(), ratio.max())
    ax.plot(line, line, color=BLACK, linestyle="--", label="m/d")
    ax.plot(line, needed(line), color=GREY, linestyle=":", label="m/d, and few samples silent")
    for name, colour, marker in NETWORKS:
        rows = frame[frame["network"] == name]
        look = {"color": colour, "alpha": 0.6, "label": LABELS[name]}
        ax.plot(rows["m"] / rows["d"], rows["width"], marker, **look)
    ax.set(xscale="log", yscale="log", xlabel="m/d", ylabel="smallest width that memorises")
    tick_values(ax, ratio)
    widths = np.geomspace(frame["width"].min(), frame["width"].max(), 5)
    tick_values(ax, widths.round(), along="y")
    ax.legend()
    return figure


NETWORKS = (("closed", GREY, "s"), ("GaLU", BLUE, "o"), ("ReLU", VERMILION, "^"))
LABELS = {"closed": "GaLU, closed form", "GaLU": "GaLU, trained", "ReLU": "ReLU, trained"}


def needed(ratio: Array) -> Array:
    """Width that GaLU networks need where m/d is ``ratio``."""
    return np.maximum(ratio, math.log2(1 / MEMORISED))


def found(frame: pd.DataFrame) -> str:
    """Compare the widths with m/d."""
    means = by_size(frame)
    ratios = means[[*LABELS]].div(means["m/d"], axis=0)
    beside = means[["GaLU", "ReLU"]].div(means["closed"], axis=0).to_numpy()
    words = "; ".join(f"{label} {span(ratios[name], '.2f')}" for name, label in LABELS.items())
    repeats = frame.groupby(["m", "network"])["seed"].nunique()
    return (
        f"d = {frame['d'].iloc[0]}, mean of {span(repeats)} repeats ({REPEATS} published).\n\n"
        f"**Widths over m/d: {words}.** The trained ones are {span(beside, '.2f')} times those "
        "of the closed form, whose filters are others."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Widths for each size."""
    return by_size(frame).rename(columns=LABELS).map("{:.1f}".format).reset_index().astype(str)


@tabled
def widths_found(frame: pd.DataFrame) -> Rows:
    """Smallest width of each search."""
    for _, tried in frame.groupby(["m", "d", "seed", "network"]):
        case = rows_of(tried[["m", "d", "seed", "network"]])[0]
        yield case | {"width": searched(tried, widest(case["m"], case["d"]))}


def by_size(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean width of each network, m/d, and the width needed, for each m."""
    frame = widths_found(frame)
    widths = frame.pivot_table(index="m", columns="network", values="width")
    ratio = frame.groupby("m")["m"].first() / frame.groupby("m")["d"].first()
    widths.insert(0, "m/d", ratio)
    widths.insert(1, "needed", needed(ratio.to_numpy()))
    return widths[["m/d", "needed", "closed", "GaLU", "ReLU"]]


def verdict(frame: pd.DataFrame, most: float = 2.0) -> Verdict:
    """Judge the claim by the rule."""
    means = by_size(frame)
    ratios = pd.concat([means[name] / means["m/d"] for name in ("GaLU", "ReLU")])
    return Verdict.each(ratios.between(1 / most, most))


EXPERIMENT = Experiment(measure, found, tabulate, verdict, draw)
