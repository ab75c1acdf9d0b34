"""Figure 2 (a, b, c): distances, dimensions and spectra of CIFAR-10 images.

The images are prepared as in the paper's section 2: one scale for all, a coordinate that fills up
the length, a constant. "Renormalize each x_i" can also mean a scale for each image: distances are
measured with both readings.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg
import torch
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from benchmarks.bench import Part, part
from benchmarks.data import data_file
from benchmarks.drawing import Figure, subplots
from benchmarks.panigrahi2020.gram_spectrum import preprocess
from benchmarks.panigrahi2020.shared import COLOUR, FIGURE_2, LOOK
from implicit_bias.base.style import BLUE, GREY
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams

COST = 15
PUBLISHED_WIDTH = 10**5
# How images are scaled, and whether the mean is taken off.
TOGETHER, EACH = "one scale for all", "a scale for each"
CENTRED, AS_THEY_ARE = "centred", "as they are"
# The distance that the paper reports, and the bins of the histogram.
REPORTED = 0.1
BINS = np.linspace(0, np.sqrt(2), 201)
# Rows of distances that are held at once, and digits that are kept of eigenvalues.
ROWS, DIGITS = 1000, 3


def images(n_samples: int) -> tuple[Array, Array]:
    """Return images of the CIFAR-10 subset, equally many a class, as the paper prepares them.

    The file has the arrays ``images``, uint8 (10000, 32, 32, 3), and ``labels`` (10000,), as many
    of each class.

    Returns
    -------
    ndarray of float64, shape (n_samples, 3074)
    ndarray of int64, shape (n_samples,)

    Raises
    ------
    DataError
        The file is not there.
    """
    with np.load(data_file("cifar10-subset.npz")) as content:
        pixels, labels = content["images"], content["labels"]
    in_turn = np.argsort(labels, kind="stable").reshape(10, -1).T.reshape(-1)  # one of each class
    chosen = in_turn[:n_samples]
    rows = pixels[chosen].reshape(len(chosen), -1)  # C order: row, column, channel
    return preprocess(rows / 255.0), labels[chosen].astype(np.int64)


def measure(quick: bool) -> Iterator[Part]:
    """Distances of all pairs, covariance and singular values, eigenvalues of G."""
    n, some, width = (200, 100, 500) if quick else (10**4, 1000, PUBLISHED_WIDTH)
    for scaled in (TOGETHER, EACH):
        yield part(distances, n=n, scaled=scaled)
    for prepared in (CENTRED, AS_THEY_ARE):
        yield part(cumulative, n=n, prepared=prepared)
    for activation in FIGURE_2:
        yield part(spectrum, n=n, activation=activation, width=0)
        yield part(spectrum, n=some, activation=activation, width=width)


def distances(n: int, scaled: str) -> pd.DataFrame:
    """Histogram of the distances of all pairs, with the smallest of them and how many are close."""
    X, _ = images(n)
    if scaled == EACH:
        pixels = grams.normalise(X[:, :-2]) * math.sqrt(0.5)  # less what was appended
        X = np.column_stack([pixels, np.full(n, math.sqrt(0.5))])
    samples = X.astype(np.float32)
    counts, least, close = np.zeros(len(BINS) - 1, dtype=np.int64), math.inf, 0
    for start in range(0, n, ROWS):
        block = samples[start : start + ROWS]
        squares = 2 - 2 * block @ samples[start:].T  # unit vectors
        upper = np.arange(squares.shape[1])[None, :] > np.arange(len(block))[:, None]
        pairs = np.sqrt(np.clip(squares[upper], 0.0, None))
        counts += np.histogram(pairs, BINS)[0]
        least = min(least, float(pairs.min(initial=math.inf)))
        close += int((pairs < REPORTED).sum())
    return pd.DataFrame({"x": BINS[:-1], "y": counts, "least": least, "close": close})


def cumulative(n: int, prepared: str) -> pd.DataFrame:
    """Share of the squares of the singular values that is left after so many, largest first."""
    X, _ = images(n)
    if prepared == CENTRED:
        X = X - X.mean(axis=0)
    squares = scipy.linalg.eigvalsh((X.T @ X) if len(X) > X.shape[1] else (X @ X.T))[::-1]
    shares = np.clip(squares, 0.0, None).cumsum()
    left = 1.0 - shares / shares[-1]
    return pd.DataFrame({"x": np.arange(1, len(left) + 1), "y": rounded(left, DIGITS + 2)})


def spectrum(n: int, activation: str, width: int) -> pd.DataFrame:
    """Eigenvalues of G, largest first; width 0 is infinite width."""
    (X, _), phi = images(n), grams.ACTIVATIONS[activation]
    if width:
        weights = grams.gaussian_weights(width, X.shape[1])
        generator = torch.Generator().manual_seed(1)
        readouts = torch.randn(width, generator=generator, dtype=torch.float64)
        gram = grams.finite_gram(X, phi, weights, readouts=readouts)
    else:
        gram = grams.infinite_gram(X, phi)
    values = grams.eigenvalues(gram)
    return pd.DataFrame({"x": np.arange(1, len(values) + 1), "y": rounded(values)})


def rounded(values: Array, digits: int = DIGITS) -> NDArray[np.float32]:
    """Round to so many digits, so that the table is small."""
    exponents = np.floor(np.log10(np.maximum(np.abs(values), 1e-300)))
    scale = 10.0 ** (digits - 1 - exponents)
    return (np.round(values * scale) / scale).astype(np.float32)


# --- what the table shows ------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return distances, dimensions, and how the spectra of four activations compare."""
    pairs, alone = (frame[frame["scaled"] == scaled] for scaled in (TOGETHER, EACH))
    n = int(frame["n"].max())
    found: dict[str, Any] = {
        "n": n,
        "least": pairs["least"].iloc[0],
        "least_each": alone["least"].iloc[0],
        "close": int(pairs["close"].iloc[0]),
        "pairs": int(pairs["y"].sum()),
        "log_n": math.log(n),
    }
    for prepared, name in ((CENTRED, "covariance"), (AS_THEY_ARE, "squares")):
        left = frame[frame["prepared"] == prepared]["y"]
        for percent in (90, 99):
            found[f"{name}_{percent}"] = int((left > 1 - percent / 100).sum()) + 1
    found["covariance_times"] = found["covariance_99"] / found["log_n"]
    limit = frame[(frame["width"] == 0) & (frame["n"] == n)]
    lines = limit.pivot(index="x", columns="activation", values="y")
    others, ratio = lines.drop(columns="relu").max(axis=1), lines["elu"] / lines["tanh"]
    middle = lines.index[len(lines) // 2]
    found |= {
        "above": (lines["relu"] > others).mean(),
        "factor": lines["relu"][middle] / others[middle],
        "middle": ratio[middle],
        "alike_2": ratio.between(1 / 2, 2).mean(),
        "alike_3": ratio.between(1 / 3, 3).mean(),
        "last": ratio.iloc[-1],
    }
    for activation in FIGURE_2:
        found[f"smallest_{activation}"] = lines[activation].iloc[-1]
    return found


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the three panels."""
    figure, (a, b, c) = subplots((9.6, 4), 1, 3)
    a.stairs(frame[frame["scaled"] == TOGETHER]["y"], BINS, fill=True, color=BLUE)
    a.axvline(REPORTED, color=GREY, linestyle="--")
    a.set(title="(a) distances of all pairs", xlabel="distance", ylabel="pairs")
    for prepared, line, label in ((CENTRED, "-", "covariance"), (AS_THEY_ARE, "--", "not centred")):
        cells = frame[frame["prepared"] == prepared]
        b.plot(cells["x"], 1 - cells["y"], line, color=BLUE, label=label)
    n = frame["n"].max()
    b.axvline(np.log(n), color=GREY, linestyle=":", label=f"log n = {np.log(n):.1f}")
    b.set(title="(b) cumulative eigenvalues", xlabel="index", xscale="log")
    b.set_ylabel("share of the sum")
    b.legend()
    for activation in FIGURE_2:
        rows = frame[frame["activation"] == activation]
        limit = rows[(rows["width"] == 0) & (rows["n"] == n)]
        marked = [i for i in (0, 9, 99, 999, len(limit) - 1) if i < len(limit)]
        c.plot(limit["x"], limit["y"], markevery=marked, **LOOK[activation])
        finite = rows[rows["width"] > 0]
        c.plot(finite["x"], finite["y"], ":", color=COLOUR[activation])
    c.set(xscale="log", yscale="log", title="(c) eigenvalues of G", xlabel="index")
    finite = frame[frame["width"] > 0]
    width, some = finite["width"].iloc[0], finite["n"].iloc[0]
    handles = [
        *(Line2D([], [], label=name, **LOOK[name]) for name in FIGURE_2),
        Line2D([], [], color=GREY, label=f"infinite width, n = {n:,}"),
        Line2D([], [], color=GREY, ls=":", label=f"m = {width:,.0f}, n = {some:,}"),
    ]
    c.legend(handles=handles, fontsize=7)
    return figure
