"""The smallest width that memorises random labels: GaLU and ReLU networks against m/d.

m Gaussian inputs of dimension d with random labels -1 and +1; memorised: mean squared error below
0.01. The width is found by binary search. GaLU networks (hard gates) are fitted by least squares;
ReLU networks, without bias units, by Adam on all samples at once, at most 1,500 steps.
Theory: the rank of the gated Gram matrix is min(m, k d), so GaLU networks need k = m/d. But a
share 2^-k of the samples has all hard gates closed, so they need k = log2(1/0.01), too (ours).

Source: Fiat, Malach, Shalev-Shwartz (2019): widths slightly above m/d suffice in practice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch.nn.functional import mse_loss

from benchmarks.fiat2019.gated_layers import GatedLayers, as_tensors, train
from benchmarks.harness import Experiment, Verdict, middle_of, whole
from implicit_bias.gating import UnitGates
from implicit_bias.report.style import BLACK, BLUE, GREY, VERMILION
from implicit_bias.theory.gated_least_squares import least_squares
from implicit_bias.validation import Array

MEMORISED = 0.01


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


def galu_memorises(width: int, X: Array, y: Array, seed: int) -> bool:
    """Whether least squares with so many hard gates does; a wider network keeps the filters."""
    filters = np.random.default_rng(seed).normal(size=(width, X.shape[1]))
    gates = UnitGates(filters, np.zeros(width)).gates(X)
    return least_squares(X, gates, y).loss < MEMORISED


def relu_memorises(width: int, X: Array, y: Array, seed: int, *, steps: int) -> bool:
    """Whether a trained ReLU network does."""
    inputs, targets = as_tensors(X, y[:, None])
    network = GatedLayers([X.shape[1], width, 1], "relu", bias=False, seed=seed)
    found = train(network, inputs, targets, mse_loss, steps=steps, rate=0.02, stop_below=MEMORISED)
    return found < MEMORISED


def measure(quick: bool) -> pd.DataFrame:
    """Search the width for each dimension and seed."""
    m, dimensions, seeds, steps = (
        (64, (8, 16), 1, 300) if quick else (512, (8, 16, 32, 64, 128), 2, 1500)
    )
    rows = []
    for d in dimensions:
        most = 3 * math.ceil(m / d)
        for seed in range(seeds):
            rng = np.random.default_rng([seed, d])
            X, y = rng.normal(size=(m, d)), rng.choice([-1.0, 1.0], m)
            searches = {
                "GaLU": partial(galu_memorises, X=X, y=y, seed=seed),
                "ReLU": partial(relu_memorises, X=X, y=y, seed=seed, steps=steps),
            }
            rows += [
                {"m": m, "d": d, "seed": seed, "network": name, "width": smallest(search, most)}
                for name, search in searches.items()
            ]
    return pd.DataFrame(rows).assign(ratio=lambda frame: frame["m"] / frame["d"])


def needed(ratio: Array) -> Array:
    """Width that GaLU networks need where m/d is ``ratio``."""
    return np.maximum(ratio, math.log2(1 / MEMORISED))


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the widths against m/d; a dot is a draw of the data."""
    figure = Figure(figsize=(5.6, 3.8), layout="constrained")
    ax = figure.subplots()
    line = np.geomspace(frame["ratio"].min(), frame["ratio"].max())
    ax.plot(line, line, color=BLACK, linestyle="--", label="m/d")
    ax.plot(line, needed(line), color=GREY, linestyle=":", label="m/d, and few samples silent")
    for name, colour, marker in (("GaLU", BLUE, "o"), ("ReLU", VERMILION, "^")):
        rows = frame[frame["network"] == name]
        ax.plot(rows["ratio"], rows["width"], marker, color=colour, alpha=0.6, label=name)
    ax.set(xscale="log", yscale="log", xlabel="m/d", ylabel="smallest width that memorises")
    ticks = sorted(frame["ratio"].unique())
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(ticks, [f"{tick:.0f}" for tick in ticks])
        axis.set_minor_formatter(NullFormatter())
    ax.legend()
    return figure


def found(frame: pd.DataFrame) -> str:
    """Compare the widths with m/d."""
    means = by_dimension(frame)
    galu, relu = means["GaLU"] / means["needed"], means["ReLU"] / means["ratio"]
    return (
        f"m = {frame['m'].iloc[0]}, mean of {frame['seed'].nunique()} draw(s).\n\n"
        f"- GaLU: {galu.min():.2f} to {galu.max():.2f} times the width that theory needs, which is "
        "m/d but where so few hard gates leave samples with all of them closed.\n"
        f"- ReLU, by Adam: {relu.min():.2f} to {relu.max():.2f} times m/d. It may be narrower, as "
        "its gates are trained, too; and a width that it needs is one that *this* training needs."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Widths for each dimension."""
    means = by_dimension(frame)
    rows = {
        "m/d": means["ratio"].map("{:.0f}".format),
        "needed": means["needed"].map("{:.1f}".format),
        "GaLU": means["GaLU"].map("{:.1f}".format),
        "ReLU": means["ReLU"].map("{:.1f}".format),
    }
    return pd.DataFrame(rows).reset_index().astype(str)


def by_dimension(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean width of each network, m/d, and the width needed, for each dimension d."""
    ratio = frame.groupby("d")["ratio"].first()
    widths = frame.pivot_table(index="d", columns="network", values="width")
    return widths.assign(ratio=ratio, needed=needed(ratio.to_numpy()))


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    means = by_dimension(frame)
    return Verdict.of(bool((means[["GaLU", "ReLU"]].max(axis=1) <= 3 * means["needed"]).all()))


EXPERIMENT = Experiment(
    claim=(
        "To memorise m labels in dimension d, theory of ReLU networks asks for a width of the "
        "order of m^2/d, while slightly above m/d suffices in practice; for GaLU networks the "
        "order of m/d, up to logarithms, is proved."
    ),
    how=middle_of(__doc__),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if the widths of both networks are at most three times what GaLU networks need."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Smallest width against m/d for GaLU and ReLU networks, with the lines of theory",
)
