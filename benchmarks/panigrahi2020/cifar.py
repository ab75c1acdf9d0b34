"""Figure 2 (a, b, c): distances, singular values and spectra of CIFAR-10 images."""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy.linalg
import torch
from matplotlib.figure import Figure

from benchmarks.data import data_file
from benchmarks.drawing import subplots
from benchmarks.harness import Experiment, Verdict, whole
from benchmarks.panigrahi2020.shared import COLOUR, number, parts
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import (
    ACTIVATIONS,
    eigenvalues,
    finite_gram,
    gaussian_weights,
    infinite_gram,
    preprocess,
)
from implicit_bias.report.style import BLUE, GREY

FIGURE_2 = ("relu", "tanh", "swish", "elu")
PUBLISHED_WIDTH = 10**5
BINS = np.linspace(0, np.sqrt(2), 201)
# Rows of distances that are held at once.
ROWS = 1000


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


def measure(quick: bool) -> pd.DataFrame:
    """Distances of all pairs, singular values, and eigenvalues of G."""
    n, finite, width = (200, 100, 500) if quick else (10**4, 1000, PUBLISHED_WIDTH)
    X, _ = images(n)
    frames = [distances(X), singular_values(X)]
    for activation in FIGURE_2:
        phi = ACTIVATIONS[activation]
        values = eigenvalues(infinite_gram(X, phi))
        frames.append(spectrum("infinite", activation, values))
        generator = torch.Generator().manual_seed(1)
        readouts = torch.randn(width, generator=generator, dtype=torch.float64)
        weights = gaussian_weights(width, X.shape[1])
        values = eigenvalues(finite_gram(X[:finite], phi, weights, readouts=readouts))
        frames.append(spectrum("finite", activation, values).assign(width=width))
        values = eigenvalues(infinite_gram(X[:finite], phi))
        frames.append(spectrum("infinite, same images", activation, values))
    return pd.concat(frames, ignore_index=True)


def distances(X: Array) -> pd.DataFrame:
    """Histogram of the distances of all pairs, and the four smallest of them."""
    samples = X.astype(np.float32)
    counts, least = np.zeros(len(BINS) - 1, dtype=np.int64), np.full(4, np.inf)
    for start in range(0, len(X), ROWS):
        block = samples[start : start + ROWS]
        squares = 2 - 2 * block @ samples[start:].T  # unit vectors
        upper = np.arange(squares.shape[1])[None, :] > np.arange(len(block))[:, None]
        pairs = np.sqrt(np.clip(squares[upper], 0.0, None))
        counts += np.histogram(pairs, BINS)[0]
        least = np.sort(np.concatenate([least, pairs]))[:4]
    frame = pd.DataFrame({"part": "distances", "x": BINS[:-1], "y": counts.astype(float)})
    smallest = pd.DataFrame({"part": "least distances", "x": np.arange(1.0, 5.0), "y": least})
    return pd.concat([frame.assign(n=len(X)), smallest.assign(n=len(X))])


def singular_values(X: Array) -> pd.DataFrame:
    """Cumulative sum of the squares of the singular values, over their sum, largest first."""
    squares = scipy.linalg.eigvalsh((X.T @ X) if len(X) > X.shape[1] else (X @ X.T))[::-1]
    shares = np.clip(squares, 0.0, None).cumsum()
    index = np.arange(1.0, len(shares) + 1)
    return pd.DataFrame(
        {"part": "singular values", "x": index, "y": shares / shares[-1], "n": len(X)}
    )


def spectrum(part: str, activation: str, values: Array) -> pd.DataFrame:
    """Eigenvalues, largest first."""
    index = np.arange(1.0, len(values) + 1)
    return pd.DataFrame(
        {"part": part, "activation": activation, "x": index, "y": values, "n": len(values)}
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the three panels."""
    figure, (a, b, c) = subplots((12, 4), 1, 3)
    cells = frame[frame["part"] == "distances"]
    a.stairs(cells["y"], BINS, fill=True, color=BLUE)
    a.axvline(0.1, color=GREY, linestyle="--")
    a.set(title="(a) distances of all pairs", xlabel="distance", ylabel="pairs")
    cells = frame[frame["part"] == "singular values"]
    b.plot(cells["x"], cells["y"], color=BLUE)
    b.set(title="(b) cumulative squares", xlabel="singular values", xscale="log")
    b.set_ylabel("share of the sum")
    for activation, rows in parts(frame[frame["part"] == "infinite"], "activation"):
        c.plot(
            rows["x"], rows["y"], color=COLOUR[activation], label=f"{activation}, n = {len(rows):,}"
        )
    for activation, rows in parts(frame[frame["part"] == "finite"], "activation"):
        label = f"{activation}, m = {rows['width'].iloc[0]:,.0f}, n = {len(rows):,}"
        c.plot(rows["x"], rows["y"], ":", color=COLOUR[activation], label=label)
    c.set(xscale="log", yscale="log", title="(c) eigenvalues of G", xlabel="index")
    c.legend(fontsize=7)
    return figure


def smallest(frame: pd.DataFrame, part: str) -> dict[str, float]:
    """Smallest eigenvalue by activation."""
    cells = frame[frame["part"] == part]
    return {name: float(rows["y"].iloc[-1]) for name, rows in parts(cells, "activation")}


def middle(frame: pd.DataFrame) -> dict[str, float]:
    """Eigenvalue in the middle of the spectrum by activation, infinite width."""
    cells = frame[frame["part"] == "infinite"]
    return {
        name: float(rows["y"].iloc[len(rows) // 2]) for name, rows in parts(cells, "activation")
    }


def found(frame: pd.DataFrame) -> str:
    """Say what the images are like."""
    least = frame[frame["part"] == "least distances"]["y"].to_numpy()
    pairs = frame[frame["part"] == "distances"]
    close = pairs.loc[pairs["x"] < 0.1 - 1e-9, "y"].sum()
    values = frame[frame["part"] == "singular values"]
    n = int(values["n"].iloc[0])
    needed = {share: int((values["y"] < share).sum()) + 1 for share in (0.9, 0.99, 0.999)}
    ends, finite, centre = smallest(frame, "infinite"), smallest(frame, "finite"), middle(frame)
    same = smallest(frame, "infinite, same images")
    sizes = frame[frame["part"].isin(["infinite", "finite"])].groupby("part")["n"].first()
    width = int(frame["width"].dropna().iloc[0])
    return (
        f"{n:,} images, {n // 10:,} of each class, decoded from JPEG copies.\n\n"
        f"- (a) The smallest distances of {n * (n - 1) // 2:,} pairs are "
        + ", ".join(f"{value:.3f}" for value in least)
        + f"; {close:,.0f} pairs are closer than 0.1 (the paper reads off delta >= 0.1). One scale "
        "for all rows leaves dark images close to each other; how the paper scales pixels before "
        "is not said.\n"
        "- (b) Singular values that hold "
        + ", ".join(f"{100 * share:g} % of the squares: {k:,}" for share, k in needed.items())
        + f". The span has {len(values):,} dimensions, far above log n = {np.log(n):.1f}, as the "
        "paper says; but the squares are concentrated in few of them, the first of which is the "
        "mean of what is not centred.\n"
        f"- (c) n = {sizes['infinite']:,} images at infinite width, and n = {sizes['finite']:,} of "
        f"them at m = {width:,} ({PUBLISHED_WIDTH:,} published). Smallest eigenvalue, infinite "
        "width: "
        + ", ".join(f"{name} {number(value)}" for name, value in ends.items())
        + f"; n = {sizes['finite']:,}, m = {width:,}: "
        + ", ".join(f"{name} {number(value)}" for name, value in finite.items())
        + " (the same images at infinite width: "
        + ", ".join(f"{name} {number(value)}" for name, value in same.items())
        + "); in the middle of the spectrum, infinite width: "
        + ", ".join(f"{name} {number(value)}" for name, value in centre.items())
        + f". Reported: ReLU above the others, ELU about as tanh; in the middle ReLU has "
        f"{centre['relu'] / max(centre[name] for name in FIGURE_2[1:]):.0f} times the largest of "
        f"the others, ELU {centre['elu'] / centre['tanh']:.2f} times tanh's."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Eigenvalues at some indices, infinite width."""
    cells = frame[frame["part"] == "infinite"]
    rows = []
    for activation, values in parts(cells, "activation"):
        count = len(values)
        shown = (1, count // 10, count // 2, count * 9 // 10, count)
        rows.append(
            {
                "activation": activation,
                **{f"lambda_{k:,}": number(values["y"].iloc[k - 1]) for k in shown},
            }
        )
    return pd.DataFrame(rows)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    ends, centre = smallest(frame, "infinite"), middle(frame)
    order = all(
        values["relu"] > max(values[name] for name in ("tanh", "swish", "elu"))
        for values in (ends, centre)
    )
    alike = 1 / 3 < centre["elu"] / centre["tanh"] < 3
    values = frame[frame["part"] == "singular values"]
    many = int((values["y"] < 0.99).sum()) > 10 * np.log(values["n"].iloc[0])
    least = frame[frame["part"] == "least distances"]["y"].min()
    return Verdict.of(order and alike and many and least >= 0.1, order)


EXPERIMENT = Experiment(
    measure=whole(measure), draw=draw, found=found, verdict=verdict, tabulate=tabulate
)
