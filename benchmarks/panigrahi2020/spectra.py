"""Eigenvalues of G at finite and infinite width: circle, MNIST, CIFAR-10."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.harness import Experiment, Verdict, whole
from benchmarks.panigrahi2020.shared import COLOUR, DRAWN, ROUNDING, SMOOTH, number, parts
from implicit_bias.datasets.files import DATA_VARIABLE, DataError
from implicit_bias.datasets.images import load_digits, load_mnist
from implicit_bias.report.style import BLACK, GREY
from implicit_bias.theory.gradient_gram import (
    ACTIVATIONS,
    activation_gram,
    circle_eigenvalues,
    circle_points,
    eigenvalue_bounds,
    eigenvalues,
    gaussian_weights,
    infinite_gram,
    normalise,
    preprocess,
    separation,
)
from implicit_bias.validation import Array


def measure(quick: bool) -> pd.DataFrame:
    """Eigenvalues of G at finite and infinite width: circle, MNIST, CIFAR-10 subset."""
    sizes, width, image_width, images = (
        ((10,), 10**4, 10**3, 50) if quick else ((10, 50), 10**6, 10**4, 500)
    )
    data: dict[str, Array] = {}
    for n in sizes:
        whole = circle_points(n, arc=2 * math.pi)
        data[f"half circle, n = {n}"] = circle_points(n)
        data[f"circle, n = {n}"] = whole
        data[f"preprocessed circle, n = {n}"] = preprocess(whole)
    if quick:
        digits = load_digits(append_constant=False).X[:images]
        data[f"digits, n = {images}"] = normalise((digits + 1) / 2)
    else:
        data[f"MNIST, n = {images}"] = mnist(images)
        data[f"CIFAR-10, n = {images}"] = cifar(images)
    return pd.concat(
        spectrum(name, X, activation, width if "circle" in name else image_width)
        for name, X in data.items()
        for activation in DRAWN
    ).reset_index(drop=True)


def spectrum(data: str, X: Array, activation: str, width: int) -> pd.DataFrame:
    """Eigenvalues of one Gram matrix, largest first, and what theory says of them."""
    phi, n = ACTIVATIONS[activation], len(X)
    dimension = int(np.linalg.matrix_rank(X))
    exact = np.full(n, np.nan)
    if data.startswith("circle") and activation in SMOOTH:
        exact = circle_eigenvalues(phi, n)
    if data.startswith("half") and activation == "tanh":
        exact = circle_eigenvalues(phi, 2 * n)[:n] / 2
    return pd.DataFrame(
        {
            "data": data,
            "separation": separation(X),
            "dimension": dimension,
            "activation": activation,
            "width": width,
            "index": np.arange(1, n + 1),
            "finite": eigenvalues(activation_gram(X, phi, gaussian_weights(width, X.shape[1]))),
            "infinite": eigenvalues(infinite_gram(X, phi)),
            "exact": exact,
            "bound": eigenvalue_bounds(phi, n, dimension),
        }
    )


def mnist(n_samples: int) -> Array:
    """Return the first images of MNIST, pixels in [0, 1], scaled to length 1."""
    return normalise((load_mnist(append_constant=False).X[:n_samples] + 1) / 2)


def cifar(n_samples: int) -> Array:
    """Return images of the CIFAR-10 subset, equally many a class, scaled to length 1.

    The file has the arrays ``images``, uint8 (10000, 32, 32, 3), and ``labels`` (10000,), as many
    of each class.

    Raises
    ------
    DataError
        The file is not there.
    """
    file = Path(os.environ.get(DATA_VARIABLE, "data")) / "cifar10-subset.npz"
    if not file.is_file():
        raise DataError(
            f"{file} is missing: set {DATA_VARIABLE} to the folder that has it, or use --quick"
        )
    with np.load(file) as content:
        images, labels = content["images"], content["labels"]
    in_turn = np.argsort(labels, kind="stable").reshape(10, -1).T.reshape(-1)  # one of each class
    pixels = images[in_turn[:n_samples]].reshape(n_samples, -1)  # C order: row, column, channel
    return normalise(pixels / 255.0)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw infinite width as lines, finite width as dots, and theory for tanh."""
    groups = parts(frame, "data")
    figure = Figure(figsize=(13, 6.6) if len(groups) > 4 else (13, 3.8), layout="constrained")
    axes = figure.subplots(math.ceil(len(groups) / 4), 4, squeeze=False).T.reshape(-1)
    circles = [group for group in groups if "circle" in group[0]]
    others = [group for group in groups if "circle" not in group[0]]
    # Data of one size in a row, images in the last column.
    ordered = [*sorted(circles, key=lambda group: _kind(group[0])), *others]
    for ax, (name, rows) in zip(axes, ordered, strict=True):
        for activation, values in parts(rows, "activation"):
            for column, look in (("infinite", "-"), ("finite", ".")):
                shown = values[values[column] > ROUNDING * values[column].max()]
                ax.plot(shown["index"], shown[column], look, color=COLOUR[activation], ms=3.5)
            if activation == "tanh" and values["dimension"].iloc[0] < len(values) / 2:
                theory = values["exact"].fillna(values["bound"])
                drawn = theory > ROUNDING**2 * theory.max()  # not below where floats end
                ax.plot(values["index"][drawn], theory[drawn], ":", color=BLACK)
        top = rows["infinite"].max()
        ax.set(yscale="log", title=name, ylim=(0.2 * _least(rows) * top, 3 * top))
        ax.set_xlabel("index of the eigenvalue")
        ax.grid(axis="y")
    axes[0].set_ylabel("eigenvalues of G")
    handles = [
        *(Line2D([], [], color=COLOUR[name], label=name) for name in DRAWN),
        Line2D([], [], color=GREY, marker=".", linestyle="", label="finite width"),
        Line2D([], [], color=GREY, label="infinite width"),
        Line2D([], [], color=BLACK, linestyle=":", label="tanh: closed form; preprocessed: bound"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def _kind(name: str) -> int:
    return ("half circle", "circle", "preprocessed circle").index(name.split(",")[0])


def _least(rows: pd.DataFrame) -> float:
    """Smallest share of the largest eigenvalue that is no rounding."""
    shares = rows["infinite"] / rows["infinite"].max()
    return float(shares[shares > ROUNDING].min())


def found(frame: pd.DataFrame) -> str:
    """Say what the spectra show."""
    ends, circles = _ends(frame), parts(frame[frame["exact"].notna()], "data")
    half = [name for name, _ in circles if name.startswith("half")][-1]  # the largest n
    circle = half.removeprefix("half ")
    exact = frame[(frame["data"] == half) & (frame["activation"] == "tanh")]["exact"]
    lost = {
        activation: int((values["infinite"] <= ROUNDING * values["infinite"].max()).sum())
        for activation, values in parts(frame[frame["data"] == circle], "activation")
    }
    flat = "; ".join(
        f"{name}: ReLU {number(ratios['relu'])}, tanh {number(ratios['tanh'])}, "
        f"swish {number(ratios['swish'])}"
        for name, ratios in ends.items()
        if "circle" not in name
    )
    return (
        f"So it is on the {half}: the smallest eigenvalue is {number(ends[half]['relu'])} of "
        f"the largest for ReLU, {number(ends[half]['elu'])} for ELU, and "
        f"{number(exact.iloc[-1] / exact.iloc[0])} for tanh, by the closed form. "
        "An even number of points on the whole circle are opposite pairs: their separation is 0, "
        f"the assumption fails, and on the {circle}, {lost['relu']} eigenvalues of ReLU and "
        f"{lost['tanh']} of tanh vanish: ReLU's odd frequencies from 3 on, tanh's even ones. After "
        "preprocessing (length 1, a constant appended) the smallest is "
        f"{number(ends[f'preprocessed {circle}']['relu'])} of the largest for ReLU. "
        "The images span as many dimensions as there are samples, and there smooth activations "
        f"lose a factor to ReLU, not ten orders of magnitude ({flat}). At finite width no "
        f"eigenvalue is off by more than {100 * _deviations(frame).max():.1f} % of "
        "the largest. The table has the smallest eigenvalue over the largest, at infinite width "
        "(0: below rounding), the dimension d' of the span and the separation delta; in its "
        "column 'finite' how far eigenvalues at width m are off."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Smallest over largest eigenvalue."""
    ends, deviations = _ends(frame), _deviations(frame)
    rows = []
    for name, values in parts(frame, "data"):
        first = values.iloc[0]
        rows.append(
            {
                "data": name,
                "d'": str(first["dimension"]),
                "delta": f"{first['separation']:.3f}",
                "width m": f"{first['width']:,}",
                "finite": f"{100 * deviations[name]:.2f} %",
                **{
                    activation: number(ratio) if ratio > ROUNDING else "0"
                    for activation, ratio in ends[name].items()
                },
            }
        )
    return pd.DataFrame(rows)


def _ends(frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Smallest over largest eigenvalue at infinite width, by data and activation."""
    return {
        name: {
            activation: float(values["infinite"].iloc[-1] / values["infinite"].iloc[0])
            for activation, values in parts(rows, "activation")
        }
        for name, rows in parts(frame, "data")
    }


def _deviations(frame: pd.DataFrame) -> pd.Series[float]:
    """Largest change of an eigenvalue from finite to infinite width, over the largest: by data."""
    change = (frame["finite"] - frame["infinite"]).abs()
    largest = frame.groupby(["data", "activation"])["infinite"].transform("max")
    return (change / largest).groupby(frame["data"]).max()


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    ends = _ends(frame)
    half = [name for name in ends if name.startswith("half")][-1]
    kinked = all(ends[half][activation] > ROUNDING for activation in ("relu", "selu", "elu"))
    exact = frame[(frame["data"] == half) & (frame["activation"] == "tanh")]["exact"]
    spread = all(ratios["tanh"] > 1e-6 for name, ratios in ends.items() if "circle" not in name)
    holds = [kinked, exact.iloc[-1] < 1e-10 * exact.iloc[0], spread]
    return Verdict.of(all(holds), any(holds))


EXPERIMENT = Experiment(
    claim="Figure 1 (c, d): the eigenvalues of G for n = 10 and 50 points of a circle in the "
    "sphere of R^10, at initialisation. All eigenvalues are large for ReLU, SELU and ELU if the "
    "samples are separated (assumption 1); for tanh and swish the smallest can be small if the "
    "samples span few dimensions, and are large if they span many. (From the abstract and the "
    "caption of the figure: we had no full text. Whether its points lie on the whole circle or on "
    "half of it we do not know, so here are both.)",
    how=(
        "Eigenvalues of G by its closed form at infinite width, and of one draw of weights at "
        "width m; n images or points of a circle, labels play no part."
    ),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if on the half circle all eigenvalues of ReLU, SELU and ELU are above rounding"
        " while the smallest of tanh is below 1e-10 of the largest, and on images those of tanh "
        "are above 1e-6."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Eigenvalues of G against their index, a panel a data set, with theory for tanh",
)
