"""Figure 1 (c, d): eigenvalues of G at the start, at the published width and at infinite width."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, subplots
from benchmarks.panigrahi2020.gram_spectrum import (
    circle_points,
    preprocess,
    separation,
    sphere_eigenvalues,
)
from benchmarks.panigrahi2020.shared import (
    DRAWN,
    FIGURE_1,
    LEAST,
    LOOK,
    ROUNDING,
    gaussian_readouts,
    key,
)
from implicit_bias.base.style import GREY
from implicit_bias.base.validation import Array
from implicit_bias.datasets.images import load_digits, load_mnist
from implicit_bias.kernels import gradient_gram as grams

COST = 0.6
HALF, WHOLE, PREPROCESSED = "half circle", "circle", "preprocessed circle"
MNIST, DIGITS = "MNIST", "8 x 8 digits"
# What has no kink, so that its eigenvalues are known below the rounding of a matrix.
EXACT = ("swish", "tanh", "quadratic")


def measure(quick: bool) -> Iterator[Part]:
    """Eigenvalues of G: circles of both sizes, and MNIST.

    The paper's equally spaced points on S^1 read as those of the whole circle, where an even number
    of them are opposite pairs: delta = 0, and its assumption 2 fails. The half circle has none.
    """
    sizes, width, runs = ((10,), 10**4, 2) if quick else ((10, 50), 10**6, 5)
    for data in (HALF, WHOLE, PREPROCESSED):
        for n in sizes:
            for activation in DRAWN:
                drawn = runs if data == HALF and activation in FIGURE_1 else 0
                yield part(spectrum, data=data, n=n, activation=activation, width=width, runs=drawn)
    images, n = (DIGITS, 50) if quick else (MNIST, 500)
    for activation in DRAWN:
        yield part(spectrum, data=images, n=n, activation=activation, width=width, runs=0)


def samples(data: str, n: int) -> Array:
    """Return the unit vectors (n, d) of a data set."""
    if data == HALF:
        return circle_points(n)
    if data in (WHOLE, PREPROCESSED):
        circle = circle_points(n, arc=2 * math.pi)
        return preprocess(circle) if data == PREPROCESSED else circle
    load = load_mnist if data == MNIST else load_digits
    return preprocess((load(append_constant=False).X[:n] + 1) / 2)


def spectrum(data: str, n: int, activation: str, width: int, runs: int) -> pd.DataFrame:
    """Eigenvalues of one Gram matrix, largest first; 0 where they are below the rounding.

    At infinite width by the closed form, and of smooth activations on circles by harmonics; at
    finite width the mean of the runs, and how far an eigenvalue of any run is off, at most.
    """
    X, phi = samples(data, n), grams.ACTIVATIONS[activation]
    limit = grams.eigenvalues(grams.infinite_gram(X, phi))
    infinite, rounding = limit, ROUNDING
    if activation in EXACT and data in (HALF, WHOLE, PREPROCESSED):
        infinite, rounding = sphere_eigenvalues(X, phi), LEAST
    finite = np.full((1, n), np.nan)
    if runs:
        finite = np.stack([at_width(X, phi, width, run) for run in range(runs)])
    return pd.DataFrame(
        {
            "separation": separation(X),
            "dimension": int(np.linalg.matrix_rank(X)),
            "index": np.arange(1, n + 1),
            "infinite": np.where(infinite > rounding * infinite[0], infinite, 0.0),
            "rounding": rounding,
            "finite": finite.mean(axis=0),
            "deviation": np.abs(finite - limit).max() / limit[0],
        }
    )


def at_width(X: Array, phi: grams.Activation, width: int, seed: int) -> Array:
    """Eigenvalues of G of one network at the start, readouts N(0, 1)."""
    weights = grams.gaussian_weights(width, X.shape[1], seed=seed)
    gram = grams.finite_gram(X, phi, weights, readouts=gaussian_readouts(width, seed))
    return grams.eigenvalues(gram)


# --- what the table shows ------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return smallest eigenvalues over the largest ones, and where whole spectra are ahead."""
    found: dict[str, Any] = {"table": table(frame)}
    for _, rows in frame.groupby(["data", "n", "activation"], sort=False):
        first = rows.iloc[0]
        name = f"{str(first['data']).replace(' ', '_')}_{first['n']}_{key(first['activation'])}"
        found[name.lower()] = rows["infinite"].iloc[-1] / first["infinite"]
        if first["runs"]:
            found[f"deviation_{name}".lower()] = first["deviation"]
    circles = frame[frame["data"].isin([HALF, WHOLE])]
    lines = circles.pivot(index=["data", "n", "index"], columns="activation", values="infinite")
    smooth = lines[["swish", "tanh"]].max(axis=1)
    for activation in ("relu", "elu"):
        above = (lines[activation] > smooth).groupby(["data", "n"]).mean()
        for data in (HALF, WHOLE):
            n = frame["n"][frame["data"] == data].max()
            found[f"above_{data.replace(' ', '_')}_{activation}"] = above[data, n]
    return found


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest eigenvalue over the largest one, a row for each data set."""
    lines = list[dict[str, Any]]()
    for _, cells in frame.groupby(["data", "n"], sort=False):
        first = cells.iloc[0]
        line = {
            "data": f"{first['data']}, n = {first['n']}",
            "d'": str(first["dimension"]),
            "delta": f"{first['separation']:.3f}",
        }
        for activation in ("relu", "selu", "elu", "tanh", "swish"):
            rows = cells[cells["activation"] == activation]
            share = rows["infinite"].iloc[-1] / rows["infinite"].iloc[0]
            below = f"below {rows['rounding'].iloc[0]:.0e}"
            line[activation] = f"{share:.2g}" if share else below
        lines.append(line)
    return pd.DataFrame(lines)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the activations of figure 1 (c, d): infinite width as lines, finite width as marks."""
    circles = frame[frame["data"].isin([HALF, WHOLE])]
    figure, axes = subplots(
        (9.6, 7.6), 2, circles["n"].nunique(), squeeze=False, grid="y", y="eigenvalues of G"
    )
    panels = circles.groupby(["data", "n"], sort=False)
    for ax, ((data, n), cells) in zip(axes.reshape(-1), panels, strict=True):
        top = cells["infinite"].max()
        for activation in FIGURE_1:
            rows = cells[cells["activation"] == activation]
            look: dict[str, Any] = LOOK[activation]
            line = rows[rows["infinite"] > 1e-21 * top]
            marker = {"marker": ""} if data == HALF else {"ms": 3}
            ax.plot(line["index"], line["infinite"], **look | marker)
            marks = rows[rows["finite"] > ROUNDING * top]
            ax.plot(marks["index"], marks["finite"], ls="", ms=4, **look)
        ax.set(yscale="log", title=f"{data}, n = {n}", ylim=(1e-20 * top, 5 * top))
        ax.set_xlabel("index of the eigenvalue")
    finite = f"m = {frame['width'].iloc[0]:,}, mean of {frame['runs'].max()} runs (half circle)"
    handles = [
        *(Line2D([], [], label=name, **LOOK[name]) for name in FIGURE_1),
        Line2D([], [], color=GREY, marker="o", ls="", label=finite),
        Line2D([], [], color=GREY, label="infinite width"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure
