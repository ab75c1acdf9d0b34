"""Appendices D and M: trained readouts, several classes, and standard initialisations."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.drawing import subplots
from benchmarks.harness import Experiment, Verdict, whole
from benchmarks.panigrahi2020.shared import COLOUR, MARKER, number, parts, plain_numbers, power
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import (
    ACTIVATIONS,
    INITIALISATIONS,
    Activation,
    circle_points,
    eigenvalues,
    finite_gram,
    infinite_gram,
    sphere_eigenvalues,
)

N, CLASSES = 10, 3
KINDS = ("relu", "elu", "tanh")


def measure(quick: bool) -> pd.DataFrame:
    """Distances from the limits, and smallest eigenvalues under three initialisations."""
    widths, runs = ((64, 256), 2) if quick else ((64, 256, 1024, 4096, 16384), 5)
    X = circle_points(N, 3)
    rows = []
    for activation in KINDS:
        phi = ACTIVATIONS[activation]
        blocks = infinite_gram(X, phi, readouts=np.eye(CLASSES))
        both = infinite_gram(X, phi, train_readouts=True)
        for width in widths:
            for run in range(runs):
                rows.append(
                    {
                        "activation": activation,
                        "width": width,
                        "run": run,
                        **distances(X, phi, width, run, blocks, both),
                        **{name: smallest(X, phi, width, run, name) for name in INITIALISATIONS},
                        "limit": sphere_eigenvalues(X, phi)[-1]
                        if activation == "tanh"
                        else eigenvalues(infinite_gram(X, phi))[-1],
                        "limit_both": eigenvalues(both)[-1],
                    }
                )
    return pd.DataFrame(rows)


def distances(
    X: Array, phi: Activation, width: int, seed: int, blocks: Array, both: Array
) -> dict[str, float]:
    """Distances from the limits, over their norms, and the size of blocks of two classes."""
    weights, _, _ = INITIALISATIONS["dzps"].draw(width, X.shape[1], seed=seed)
    generator = torch.Generator().manual_seed(10**6 + seed)
    readouts = torch.randn((width, CLASSES), generator=generator, dtype=torch.float64)
    gram = finite_gram(X, phi, [weights], readouts=readouts)
    mixed = gram.copy()
    for start, end in pairwise(range(0, CLASSES * N + 1, N)):
        mixed[start:end, start:end] = 0.0
    trained = finite_gram(X, phi, [weights], readouts=readouts[:, 0], train_readouts=True)
    return {
        "classes": float(np.linalg.norm(gram - blocks) / np.linalg.norm(blocks)),
        "mixed": float(np.linalg.norm(mixed) / np.linalg.norm(blocks)),
        "trained": float(np.linalg.norm(trained - both) / np.linalg.norm(both)),
        "both": float(eigenvalues(trained)[-1]),
    }


def smallest(X: Array, phi: Activation, width: int, seed: int, name: str) -> float:
    """Smallest eigenvalue of G at the start, biases held fixed; 0 where it is rounding."""
    weights, biases, readouts = INITIALISATIONS[name].draw(width, X.shape[1], seed=seed)
    values = eigenvalues(finite_gram(X, phi, [weights], readouts=readouts, biases=biases))
    return float(values[-1]) if values[-1] > 1e-14 * values[0] else 0.0


def draw(frame: pd.DataFrame) -> Figure:
    """Draw distances from the limits, and smallest eigenvalues, against the width."""
    figure, (left, right) = subplots((11, 4.4), 1, 2)
    means = frame.groupby(["activation", "width"], sort=False).mean(numeric_only=True).reset_index()
    for activation, cells in parts(means, "activation"):
        look = {"color": COLOUR[activation], "marker": MARKER[activation]}
        left.plot(cells["width"], cells["mixed"], label=f"{activation}: two classes", **look)
        left.plot(
            cells["width"],
            cells["trained"],
            "--",
            label=f"{activation}: G + H",
            fillstyle="none",
            **look,
        )
        for name, line in zip(INITIALISATIONS, ("-", "--", ":"), strict=True):
            right.plot(cells["width"], cells[name], line, label=f"{activation}: {name}", **look)
    left.set(xscale="log", yscale="log", xlabel="width m", ylabel="distance from the limit")
    right.set(xscale="log", yscale="log", xlabel="width m", ylabel="smallest eigenvalue of G")
    for ax in (left, right):
        plain_numbers(ax, ordinate=False)
        ax.legend(fontsize=7)
    return figure


def last(frame: pd.DataFrame) -> pd.DataFrame:
    """Means of the runs at the largest width, by activation."""
    widest = frame[frame["width"] == frame["width"].max()]
    return widest.groupby("activation", sort=False).mean(numeric_only=True)


def slopes(frame: pd.DataFrame) -> dict[str, float]:
    """Powers of m of the distances, over all activations."""
    means = frame.groupby("width").mean(numeric_only=True)
    widths = means.index.to_numpy(dtype=np.float64)
    return {name: power(widths, means[name].to_numpy()) for name in ("mixed", "trained")}


def found(frame: pd.DataFrame) -> str:
    """Say what the limits are."""
    ends, rates = last(frame), slopes(frame)
    width = int(frame["width"].max())
    return (
        f"Half circle, n = {N}, readouts N(0, 1), {frame['run'].nunique()} draws.\n\n"
        f"- M.3 (cross entropy, {CLASSES} classes): the Gram matrix is block diagonal in the "
        f"limit: blocks of two classes fall as m^{rates['mixed']:.2f}, to "
        f"{100 * ends['mixed'].max():.1f} % of the norm at m = {width:,}, and the others go to G.\n"
        f"- M.2 (trained readouts): G + H; the distance from the limit falls as "
        f"m^{rates['trained']:.2f}. H adds to the smallest eigenvalue: at infinite width it is "
        + ", ".join(
            f"{number(row.limit_both)} for {number(row.limit)} ({name})"
            for name, row in ends.iterrows()
        )
        + ".\n"
        f"- Appendix D: with fan-in, of smaller hidden inputs, the smallest eigenvalue at m = "
        f"{width:,} is "
        + ", ".join(f"{number(row['fan-in'])} ({name})" for name, row in ends.iterrows())
        + "; with fan-out, of hidden inputs of size 1/sqrt m, "
        + ", ".join(f"{number(row['fan-out'])} ({name})" for name, row in ends.iterrows())
        + " (0: below rounding). As the corollaries have it, only ReLU does not depend on the "
        "scale but through the biases, ELU loses, and tanh and swish remain small."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Smallest eigenvalues at the largest width."""
    rows = [
        {
            "activation": str(name),
            "infinite width": number(row["limit"]),
            "G + H, infinite width": number(row["limit_both"]),
            **{scheme: number(row[scheme]) for scheme in INITIALISATIONS},
            "two classes, share of norm": f"{100 * row['mixed']:.2f} %",
        }
        for name, row in last(frame).iterrows()
    ]
    return pd.DataFrame(rows)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    rates, ends = slopes(frame), last(frame)
    elu = {name: float(ends[name].loc["elu"]) for name in INITIALISATIONS}
    limits = all(abs(rate + 0.5) < 0.1 for rate in rates.values())
    return Verdict.of(
        limits
        and bool((ends["limit_both"] >= ends["limit"]).all())
        and elu["fan-out"] < elu["fan-in"] < elu["dzps"]
    )


EXPERIMENT = Experiment(
    measure=whole(measure), draw=draw, found=found, verdict=verdict, tabulate=tabulate
)
