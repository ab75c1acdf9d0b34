"""How the activation decides how fast a wide network of two layers learns.

    IMPLICIT_BIAS_DATA=... python benchmarks/panigrahi2020/activation_gram.py spectra
    python benchmarks/panigrahi2020/activation_gram.py zeros        # or decay, training, depth
    python benchmarks/panigrahi2020/activation_gram.py page         # README.md, from what is kept

Each experiment measures a table, prints the paper's claim beside what was found, and keeps the
table (Parquet) and its picture; ``--quick`` takes seconds, on small sizes, and keeps nothing unless
a folder is named. `implicit_bias.activation_gram` has the mathematics and the symbols.

Source: Panigrahi, Shetty, Goyal (ICLR 2020), theorem 4.3, equation (3), and their figure 1.
"""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeAlias

import matplotlib
import numpy as np
import pandas as pd
import torch
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray
from rich.console import Console
from rich.markdown import Markdown
from torch import Tensor

from implicit_bias.activation_gram import (
    ACTIVATIONS,
    Activation,
    activation_gram,
    circle_eigenvalues,
    circle_points,
    correlations,
    eigenvalue_bounds,
    eigenvalues,
    gaussian_weights,
    infinite_gram,
    normalise,
    polynomial,
    polynomial_rank,
    preprocess,
    separation,
)
from implicit_bias.datasets import DATA_VARIABLE, DataError, load_digits, load_mnist
from implicit_bias.files import write_atomically
from implicit_bias.galu import predicted_losses
from implicit_bias.report.figures import BLACK, COLOURS, GREY, MARKERS, style
from implicit_bias.validation import Array

BENCHMARKS = Path(__file__).parents[1]
PAPER = Path(__file__).parent.name

DRAWN = ("relu", "leaky-relu", "selu", "elu", "swish", "tanh", "quadratic")
COLOUR = dict(zip(DRAWN, COLOURS, strict=True))
MARKER = dict(zip(DRAWN, MARKERS, strict=False))
TRAINED = ("relu", "selu", "elu", "swish", "tanh")
SMOOTH = ("swish", "tanh")
# r where the r-th derivative of phi jumps: lambda_min ~ n^(1 - 2r) on the half circle.
KINKS = {"relu": 1, "leaky-relu": 1, "selu": 1, "elu": 2}
# Relative to the largest, an eigenvalue of a float64 matrix below this is rounding.
ROUNDING = 1e-13
# Relative to the largest, an eigenvalue above this is not 0, in the count of zeros.
NOT_ZERO = 1e-10
# Share of its limit at which an eigenvalue counts as large, and the n drawn against depth.
ENOUGH, SHOWN = 0.5, 20


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A measurement, its picture, and the section of the page that they make.

    Attributes
    ----------
    name, title : str
        Of its files and command; of its section.
    claim : str
        What the paper says, and what of it could be verified.
    measure : callable
        The table, small (True) or of the size that is kept.
    draw : callable
        The picture of a table.
    found : callable
        A table's paragraph: what was measured.
    tabulate : callable
        A table's summary, of strings.
    """

    name: str
    title: str
    claim: str
    measure: Callable[[bool], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    found: Callable[[pd.DataFrame], str]
    tabulate: Callable[[pd.DataFrame], pd.DataFrame]

    def results(self, folder: Path) -> Path:
        """Return the file of the table."""
        return folder / "results" / PAPER / f"{self.name}.parquet"

    def run(self, *, quick: bool, folder: Path | None) -> None:
        """Measure, print the section, and keep table and picture under a folder, if any."""
        started = time.process_time()
        frame = self.measure(quick)
        frame.attrs["cpu_seconds"] = time.process_time() - started  # kept in the Parquet file
        Console(width=140).print(Markdown(self.section(frame)))
        if folder is None:
            return
        write_atomically(self.results(folder), lambda path: frame.to_parquet(path, index=False))
        self.keep_picture(frame, folder)

    def keep_picture(self, frame: pd.DataFrame, folder: Path) -> None:
        """Draw a table, and keep the picture under a folder."""
        picture = folder / "pictures" / PAPER / f"{self.name}.png"
        with style(), matplotlib.rc_context({"text.parse_math": True}):  # powers of ten on axes
            figure = self.draw(frame)
            write_atomically(picture, lambda path: figure.savefig(path, format="png"))

    def section(self, frame: pd.DataFrame) -> str:
        """Write the section of the page, in Markdown."""
        paragraphs = (f"**The paper.** {self.claim}", f"**Here.** {self.found(frame)}")
        return "\n\n".join(
            (
                f"## {self.title}",
                *(textwrap.fill(paragraph, 100) for paragraph in paragraphs),
                _markdown(self.tabulate(frame)),
                f"![{self.title}](../pictures/{PAPER}/{self.name}.png)",
                f"`python benchmarks/{PAPER}/{Path(__file__).name} {self.name}`: "
                f"{frame.attrs['cpu_seconds']:.0f} s on one core.",
            )
        )


def parts(frame: pd.DataFrame, column: str) -> list[tuple[str, pd.DataFrame]]:
    """Split rows by the value of a column, in the order of the frame."""
    return [(str(value), rows) for value, rows in frame.groupby(column, sort=False)]


def number(value: float) -> str:
    """Write a number to two digits."""
    return f"{value:.2g}"


# --- spectra -------------------------------------------------------------------------------


def measure_spectra(quick: bool) -> pd.DataFrame:
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


def draw_spectra(frame: pd.DataFrame) -> Figure:
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


def found_spectra(frame: pd.DataFrame) -> str:
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


def table_spectra(frame: pd.DataFrame) -> pd.DataFrame:
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


SPECTRA = Experiment(
    name="spectra",
    title="Spectra: circle, MNIST, CIFAR-10",
    claim="Figure 1 (c, d): the eigenvalues of G for n = 10 and 50 points of a circle in the "
    "sphere of R^10, at initialisation. All eigenvalues are large for ReLU, SELU and ELU if the "
    "samples are separated (assumption 1); for tanh and swish the smallest can be small if the "
    "samples span few dimensions, and are large if they span many. (From the abstract and the "
    "caption of the figure: we had no full text. Whether its points lie on the whole circle or on "
    "half of it we do not know, so here are both.)",
    measure=measure_spectra,
    draw=draw_spectra,
    found=found_spectra,
    tabulate=table_spectra,
)


# --- zero eigenvalues ----------------------------------------------------------------------


def measure_zeros(quick: bool) -> pd.DataFrame:
    """Count the eigenvalues that are not 0, for polynomials."""
    dimensions, largest, points, width = (
        ((2, 3), 24, 6, 1024) if quick else ((2, 3, 4), 80, 16, 4096)
    )
    rows = []
    for dimension in dimensions:
        for degrees in ((2,), (3,), (4,), (1, 2, 3)):
            phi = polynomial([float(degree in degrees) for degree in range(max(degrees) + 1)])
            for n in np.unique(np.geomspace(2, largest, points).astype(int)):
                X = in_subspace(int(n), dimension)
                finite = activation_gram(X, phi, gaussian_weights(width, X.shape[1]))
                rows.append(
                    {
                        "dimension": dimension,
                        "phi": phi.name,
                        "n": n,
                        "width": width,
                        "finite": _rank(finite),
                        "infinite": _rank(infinite_gram(X, phi)),
                        "theory": min(n, polynomial_rank(degrees, dimension)),
                    }
                )
    return pd.DataFrame(rows)


def in_subspace(n_samples: int, dimension: int, n_features: int = 10) -> Array:
    """Draw unit vectors (n_samples, n_features) in a random subspace."""
    rng = np.random.default_rng(1)
    basis, _ = np.linalg.qr(rng.standard_normal((n_features, dimension)))
    return normalise(rng.standard_normal((n_samples, dimension)) @ basis.T)


def draw_zeros(frame: pd.DataFrame) -> Figure:
    """Draw counted eigenvalues as marks and the formula as lines."""
    groups = parts(frame, "dimension")
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for ax, (dimension, rows) in zip(axes, groups, strict=True):
        ax.plot(rows["n"].unique(), rows["n"].unique(), ":", color=BLACK)
        for i, (_, cells) in enumerate(parts(rows, "phi")):
            ax.plot(cells["n"], cells["theory"], color=COLOURS[i])
            for column, fill, size in (("finite", "none", 7), ("infinite", "full", 3)):
                look = {"color": COLOURS[i], "fillstyle": fill, "ms": size}
                ax.plot(cells["n"], cells[column], MARKERS[i], **look)
        ax.set(xscale="log", yscale="log", title=f"span of {dimension} dimensions")
        ax.set_xlabel("samples n")
        _plain(ax)
    axes[0].set_ylabel("eigenvalues of G that are not 0")
    marks = [
        Line2D([], [], color=COLOURS[i], marker=MARKERS[i], ls="", label=phi)
        for i, (phi, _) in enumerate(parts(frame, "phi"))
    ]
    lines = [
        Line2D([], [], color=GREY, marker="o", ls="", fillstyle="none", ms=7, label="finite width"),
        Line2D([], [], color=GREY, marker="o", ls="", ms=3, label="infinite width"),
        Line2D([], [], color=GREY, label="theory"),
        Line2D([], [], color=BLACK, ls=":", label="all n"),
    ]
    figure.legend(handles=[*marks, *lines], loc="outside lower center", ncols=4, markerscale=1)
    return figure


def found_zeros(frame: pd.DataFrame) -> str:
    """Say how many cells agree."""
    off = frame[["finite", "infinite"]].ne(frame["theory"], axis=0).any(axis=1).sum()
    return (
        f"In {len(frame) - off} of {len(frame)} cells, random samples in subspaces of R^10, the "
        "count at infinite width and the count at finite width "
        f"(m = {frame['width'].iloc[0]:,}) are both exactly min(n, rank) with the rank of "
        "`polynomial_rank`, which counts monomials of the highest even and odd degree. The table "
        "has the largest n."
    )


def table_zeros(frame: pd.DataFrame) -> pd.DataFrame:
    """Count, and its prediction, at the largest n."""
    last = frame.groupby(["dimension", "phi"], sort=False).last().reset_index()
    return pd.DataFrame(
        {
            "d'": last["dimension"].astype(str),
            "phi": last["phi"],
            "n": last["n"].astype(str),
            "not 0, finite width": last["finite"].astype(str),
            "not 0, infinite width": last["infinite"].astype(str),
            "theory": last["theory"].astype(str),
        }
    )


def _rank(gram: Array) -> int:
    values = eigenvalues(gram)
    return int(np.count_nonzero(values > NOT_ZERO * values[0]))


ZEROS = Experiment(
    name="zeros",
    title="Zero eigenvalues of polynomial activations",
    claim="Theorem 4.3: for a polynomial activation and many samples that span few dimensions, "
    "eigenvalues of G are 0. (The full text was not at hand: their exact number is ours. With "
    "degree p and a span of d' dimensions all but O(d'^p) are.)",
    measure=measure_zeros,
    draw=draw_zeros,
    found=found_zeros,
    tabulate=table_zeros,
)


# --- decay with the number of samples ------------------------------------------------------


def measure_decay(quick: bool) -> pd.DataFrame:
    """Smallest eigenvalue on the half circle against n, at infinite width."""
    sizes = (4, 8, 16, 32) if quick else (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    rows = []
    for activation in (*KINKS, *SMOOTH):
        phi = ACTIVATIONS[activation]
        for n in sizes:
            values = eigenvalues(infinite_gram(circle_points(n), phi))
            theory = np.nan
            if activation in SMOOTH:
                theory = circle_eigenvalues(phi, 2 * n)[n - 1] / (2 if activation == "tanh" else 1)
            rows.append(
                {
                    "activation": activation,
                    "n": n,
                    "smallest": values[-1] if values[-1] > ROUNDING * values[0] else np.nan,
                    "theory": theory,
                }
            )
    frame = pd.DataFrame(rows)
    for activation, kink in KINKS.items():  # the power law, through the last point
        chosen = frame["activation"] == activation
        last = frame[chosen].iloc[-1]
        scaled = (frame.loc[chosen, "n"] / last["n"]) ** (1 - 2 * kink)
        frame.loc[chosen, "theory"] = last["smallest"] * scaled
    return frame


def draw_decay(frame: pd.DataFrame) -> Figure:
    """Draw the smallest eigenvalues as marks, and what theory says as lines."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    ax = figure.subplots()
    for activation, cells in parts(frame, "activation"):
        colour = COLOUR[activation]
        kind = {"tanh": "closed form", "swish": "bound"}.get(activation, "power law")
        ax.plot(cells["n"], cells["smallest"], MARKER[activation], color=colour, label=activation)
        line = "--" if activation == "swish" else "-"
        ax.plot(cells["n"], cells["theory"], line, color=colour, label=f"{activation}: {kind}")
    ax.set(xscale="log", yscale="log", ylim=(max(1e-21, frame["theory"].min() / 3), 1))
    ax.set(xlabel="samples n on the half circle", ylabel="smallest eigenvalue of G")
    ax.grid(axis="y")
    _plain(ax, ordinate=False)
    figure.legend(loc="outside right center")
    return figure


def found_decay(frame: pd.DataFrame) -> str:
    """Say which law holds."""
    return (
        "On the half circle of n points, with separation delta = sin(pi / n), the smallest "
        "eigenvalue falls as n^(1 - 2r), the power 2r - 1 of delta, where the r-th derivative of "
        "phi jumps (r = 1 for ReLU, leaky ReLU and SELU, 2 for ELU), and for tanh as "
        "n exp(-3/2 (pi n)^(2/3)), from the closed form `circle_eigenvalues`, which for swish is "
        "an upper bound. The laws for this arrangement are ours. Measured exponents are fits to "
        "the last points; for tanh, matrix and closed form agree to "
        f"{100 * _tanh_error(frame):.2g} % wherever the matrix is above rounding."
    )


def _tanh_error(frame: pd.DataFrame) -> float:
    rows = frame[frame["activation"] == "tanh"]
    return float((rows["smallest"] / rows["theory"] - 1).abs().max())


def table_decay(frame: pd.DataFrame) -> pd.DataFrame:
    """Fitted against predicted laws."""
    rows = []
    for activation, cells in parts(frame, "activation"):
        if activation in KINKS:
            tail = cells.iloc[-3:]
            slope = np.polyfit(np.log(tail["n"]), np.log(tail["smallest"]), 1)[0]
            theory, measured = f"n^{1 - 2 * KINKS[activation]}", f"n^{slope:.2f}"
        elif activation == "tanh":
            tail = cells[cells["n"].between(8, 96)].iloc[-4:]
            slope = np.polyfit(tail["n"] ** (2 / 3), np.log(tail["theory"] / tail["n"]), 1)[0]
            theory = f"n exp(-{1.5 * math.pi ** (2 / 3):.2f} n^(2/3))"
            measured = f"n exp({slope:.2f} n^(2/3)), of the closed form"
        else:
            tail = cells.dropna().iloc[-1:]
            theory = f"at most {number(tail['theory'].item())}"
            measured = number(tail["smallest"].item())
        fitted = " to ".join(map(str, dict.fromkeys((tail["n"].min(), tail["n"].max()))))
        rows.append({"activation": activation, "theory": theory, "measured": measured, "n": fitted})
    return pd.DataFrame(rows)


DECAY = Experiment(
    name="decay",
    title="Decay of the smallest eigenvalue",
    claim="With a kink in phi all eigenvalues are large under minimal assumptions on the data. "
    "For smooth activations such as tanh the smallest can be exponentially small, depending on the "
    "span of the data. (From the abstracts of both versions; the theorems' exponents and constants "
    "were not at hand.)",
    measure=measure_decay,
    draw=draw_decay,
    found=found_decay,
    tabulate=table_decay,
)


# --- training ------------------------------------------------------------------------------


def measure_training(quick: bool) -> pd.DataFrame:
    """Training curves of the first layer against equation (3): half circle, random labels."""
    widths = {10: (256, 4096)} if quick else {10: (512, 4096, 32768), 50: (512, 16384)}
    steps = 100 if quick else 1000
    recorded = np.unique(np.append(0, np.geomspace(1, steps, 25).astype(int)))
    return pd.concat(
        training_curve(activation, n, width, recorded)
        for n in widths
        for width in widths[n]
        for activation in TRAINED
    ).reset_index(drop=True)


def training_curve(
    activation: str, n_samples: int, width: int, recorded: NDArray[np.int64]
) -> pd.DataFrame:
    """Train one network, and predict its loss; losses are shares of the one at the start.

    The network's first output is subtracted, so that u = 0 at the start and the residual is -y, as
    in the equation.
    """
    phi = ACTIVATIONS[activation]
    X = circle_points(n_samples, 2)  # lifted or not is the same: steps stay in the plane
    weights = torch.cat(list(gaussian_weights(width, X.shape[1])))
    rng = np.random.default_rng(1)
    y = rng.choice((-1.0, 1.0), n_samples)
    readout = torch.tensor(rng.choice((-1.0, 1.0), width)) / math.sqrt(width)
    gram, limit = activation_gram(X, phi, [weights]), infinite_gram(X, phi)
    step_size = 1 / float(eigenvalues(limit)[0])
    residuals = train(phi, X, y, weights, readout, step_size, recorded)
    return pd.DataFrame(
        {
            "n": n_samples,
            "width": width,
            "activation": activation,
            "step": recorded,
            "loss": [float(r @ r) / n_samples for r in residuals],
            "predicted": predicted_losses(gram, y, step_size=step_size, steps=recorded),
            "limit": predicted_losses(limit, y, step_size=step_size, steps=recorded),
        }
    )


def train(
    phi: Activation,
    X: Array,
    y: Array,
    weights: Tensor,
    readout: Tensor,
    step_size: float,
    recorded: NDArray[np.int64],
) -> Iterator[Array]:
    """Descend on 1/2 ||u - y||^2 in the first layer, and yield u - y (n,) at the recorded steps."""
    inputs, weights = torch.tensor(X), weights.clone().requires_grad_(True)
    target = torch.tensor(y) + (phi.value(inputs @ weights.T) @ readout).detach()
    for step in range(int(recorded[-1]) + 1):
        residual = phi.value(inputs @ weights.T) @ readout - target
        if step in recorded:
            yield residual.detach().numpy()
        (gradient,) = torch.autograd.grad(residual @ residual / 2, weights)
        with torch.no_grad():
            weights -= step_size * gradient


def draw_training(frame: pd.DataFrame) -> Figure:
    """Draw the measured loss as marks, filled for the widest networks, and equation (3)."""
    groups = parts(frame[frame["step"] > 0], "n")
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for ax, (n, rows) in zip(axes, groups, strict=True):
        widths = [int(width) for width, _ in parts(rows, "width")]
        for activation, values in parts(rows, "activation"):
            for width in (widths[0], widths[-1]):
                measured = values[values["width"] == width]
                fill = "full" if width == widths[-1] else "none"
                ax.plot(
                    measured["step"],
                    measured["loss"],
                    MARKER[activation],
                    color=COLOUR[activation],
                    fillstyle=fill,
                    ms=4,
                )
            ax.plot(measured["step"], measured["predicted"], color=COLOUR[activation])
        ax.set(xscale="log", ylim=(0, 1.05), xlabel="step")
        ax.set_title(f"n = {n}: m = {widths[0]:,} (open) and {widths[-1]:,} (full)")
        ax.grid(axis="y")
        _plain(ax)
    axes[0].set_ylabel("squared error, share of the start")
    handles = [
        *(
            Line2D([], [], color=COLOUR[name], marker=MARKER[name], linestyle="", label=name)
            for name in TRAINED
        ),
        Line2D([], [], color=GREY, label="equation (3), spectrum of G of the widest"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6)
    return figure


def found_training(frame: pd.DataFrame) -> str:
    """Say how well the equation predicts, and how that goes with the width."""
    few, many = frame["n"].iloc[0], frame["n"].iloc[-1]
    errors = _training_errors(frame[frame["n"] == few]).loc["relu"]
    (narrow, *_, wide), (worst, *_, best) = errors.index, errors.to_numpy(dtype=np.float64)
    power = math.log(best / worst) / math.log(wide / narrow)
    farthest = _training_errors(frame[frame["n"] == many]).iloc[:, -1]
    off = ", ".join(f"{activation} {error:.3f}" for activation, error in farthest.items())
    return (
        "Half circle, random labels, step 1 / lambda_max, only the first layer trained, its first "
        "output subtracted so that u = 0 at the start. ReLU and SELU, whose small eigenvalues are "
        "the largest, are ahead, and swish is last. Equation (3) holds in the limit of wide "
        "networks: its error, the largest difference between measured and predicted ||u - y|| over "
        "||y||, falls with the width, slowest where a kink lets gates flip: for ReLU at "
        f"n = {few} from {worst:.2f} at m = {narrow:,} to {best:.2f} at m = {wide:,}, as "
        f"m^{power:.2f}. At n = {many}, m = {farthest.name:,} it is {off}: with a jump in phi' "
        "more units are needed."
    )


def table_training(frame: pd.DataFrame) -> pd.DataFrame:
    """Loss left by the widest network, measured and predicted, and the error of each width."""
    rows = []
    for n, networks in parts(frame, "n"):
        errors = _training_errors(networks)
        for activation, curves in parts(networks, "activation"):
            last = curves.iloc[-1]
            rows.append(
                {
                    "n": n,
                    "phi": activation,
                    "loss left": f"{100 * last['loss']:.2f} %",
                    "equation (3), G(W)": f"{100 * last['predicted']:.2f} %",
                    "m infinite": f"{100 * last['limit']:.2f} %",
                    "m": " / ".join(f"{width:,}" for width in errors.columns),
                    "error of (3)": " / ".join(f"{x:.3f}" for x in errors.loc[activation]),
                }
            )
    return pd.DataFrame(rows)


def _training_errors(frame: pd.DataFrame) -> pd.DataFrame:
    """Largest | ||r|| - predicted ||r|| | / ||y|| of each curve: activation by width."""
    errors = (frame["loss"] ** 0.5 - frame["predicted"] ** 0.5).abs()
    return errors.groupby([frame["activation"], frame["width"]], sort=False).max().unstack()


TRAINING = Experiment(
    name="training",
    title="Training curves against the spectrum",
    claim="Equation (3), after Arora et al. (2019): ||u - y||^2 at step t is about "
    "sum_i (1 - s lambda_i)^(2t) <v_i, y>^2. Figure 1 (a, b): networks on the circle with "
    "n = 10 and 50 train at rates in the order of their eigenvalues.",
    measure=measure_training,
    draw=draw_training,
    found=found_training,
    tabulate=table_training,
)


# --- depth ---------------------------------------------------------------------------------


def measure_depth(quick: bool) -> pd.DataFrame:
    """Smallest eigenvalue of the last hidden layer's G against depth, at infinite width."""
    sizes, most = ((5, 10, 20), 110) if quick else ((5, 10, 20, 40, 80, 160), 200)
    rows = []
    for activation in TRAINED:
        phi = ACTIVATIONS[activation]
        diagonal = float(phi.kappa(1.0))
        for n in sizes:
            X = circle_points(n)
            for count, rho in enumerate(islice(correlations(X, phi), most), 1):
                smallest = float(eigenvalues(rho * phi.kappa(rho))[-1])
                rows.append(
                    {
                        "activation": activation,
                        "expansion": phi.expansion,
                        "n": n,
                        "separation": separation(X),
                        "hidden_layers": count,
                        "smallest": smallest,
                        # Schur's product theorem, and the diagonal.
                        "lower": diagonal * max(float(eigenvalues(rho)[-1]), 0.0),
                        "upper": diagonal,
                    }
                )
                if smallest > ENOUGH * diagonal:
                    break
    return pd.DataFrame(rows)


def draw_depth(frame: pd.DataFrame) -> Figure:
    """Draw the smallest eigenvalue against depth, and the depth it takes against separation."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for activation, rows in parts(frame, "activation"):
        look = {"color": COLOUR[activation], "marker": MARKER[activation]}
        cells = rows[rows["n"] == SHOWN]
        left.plot(cells["hidden_layers"], cells["smallest"] / cells["upper"], ls="", ms=3.5, **look)
        bound = cells[cells["lower"] > ROUNDING]
        left.plot(bound["hidden_layers"], bound["lower"] / bound["upper"], color=COLOUR[activation])
        needed = _needed(rows)
        right.plot(
            1 / needed["separation"], needed["hidden_layers"], ls="", label=activation, **look
        )
        right.plot(
            1 / needed["separation"],
            needed["theory"],
            color=COLOUR[activation],
            label=f"{activation}: theory",
        )
    left.set(xscale="log", yscale="log", xlabel="hidden layers L", ylim=(1e-13, 1))
    left.set(ylabel="smallest eigenvalue of G over its diagonal")
    left.set_title(f"n = {SHOWN}; lines: lower bound")
    left.axhline(ENOUGH, color=GREY, linestyle=":")
    left.grid(axis="y")
    _plain(left, ordinate=False)
    right.set(xscale="log", xlabel="1 / delta", ylabel="hidden layers until one half")
    right.set_title("lines: slope 2 / log(expansion)")
    _plain(right, ordinate=False)
    return _with_legend(figure, right, 5)


def _needed(frame: pd.DataFrame) -> pd.DataFrame:
    """Layers at which one activation's eigenvalue is large, and theory through the last point."""
    enough = frame[frame["smallest"] > ENOUGH * frame["upper"]]
    needed = enough.groupby("n").first().reset_index()
    slope = 2 / np.log(needed["expansion"])
    farther = np.log(needed["separation"] / needed["separation"].iloc[-1])
    needed["theory"] = needed["hidden_layers"].iloc[-1] - slope * farther
    return needed


def found_depth(frame: pd.DataFrame) -> str:
    """Say what depth does."""
    start = frame[(frame["n"] == SHOWN) & (frame["hidden_layers"] == 1)].set_index("activation")
    layers = {activation: _needed(rows) for activation, rows in parts(frame, "activation")}
    reached = ", ".join(
        f"{name} {needed.loc[needed['n'] == SHOWN, 'hidden_layers'].item()}"
        for name, needed in layers.items()
    )
    shares = start["smallest"] / start["upper"]
    return (
        "At infinite width, G of the last hidden layer, hidden layers shifted and scaled to mean 0 "
        "and variance 1 (ours; it stands for normalisation). On the half circle with "
        f"n = {SHOWN}, where one hidden layer has a smallest eigenvalue of "
        f"{number(shares['tanh'])} of the diagonal for tanh and {number(shares['relu'])} for ReLU, "
        f"it is one half with so many hidden layers: {reached}. It never falls (Schur). A layer "
        "drives close samples apart by the factor `expansion`, E phi'^2 / Var phi > 1, "
        "so that the depth needed grows as 2 log(1 / delta) / log(expansion), smooth or not: in "
        "the table the growth from half the largest n to the largest, for which delta halves."
    )


def table_depth(frame: pd.DataFrame) -> pd.DataFrame:
    """Layers needed, and their growth."""
    rows = []
    for activation, values in parts(frame, "activation"):
        needed = _needed(values).set_index("n")["hidden_layers"]
        expansion = float(values["expansion"].iloc[0])
        rows.append(
            {
                "phi": activation,
                "expansion": f"{expansion:.3f}",
                **{f"L, n = {n}": str(count) for n, count in needed.items()},
                "growth": str(needed.iloc[-1] - needed.iloc[-2]),
                "theory": f"{2 * math.log(2) / math.log(expansion):.1f}",
            }
        )
    return pd.DataFrame(rows)


DEPTH = Experiment(
    name="depth",
    title="Depth",
    claim="With enough hidden layers, samples in few dimensions are no limitation: the smallest "
    "eigenvalue is large for smooth activations, too. (Abstract; the theorem's network and its "
    "constants were not at hand.)",
    measure=measure_depth,
    draw=draw_depth,
    found=found_depth,
    tabulate=table_depth,
)


# --- pictures and page ---------------------------------------------------------------------


def _plain(ax: Axes, *, ordinate: bool = True) -> None:
    """Write small numbers on logarithmic axes as they are, and only some of them."""
    for axis in (ax.xaxis, ax.yaxis) if ordinate else (ax.xaxis,):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())


def _with_legend(figure: Figure, ax: Axes, columns: int) -> Figure:
    """Put the legend of one panel below all."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    return figure


def _markdown(table: pd.DataFrame) -> str:
    """Write a table of strings in Markdown."""
    lines = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(folder: Path) -> str:
    """Write the page from the tables that are kept under a folder."""
    sections = (
        experiment.section(pd.read_parquet(experiment.results(folder)))
        for experiment in EXPERIMENTS
    )
    return "\n\n".join((HEAD, *sections)) + "\n"


EXPERIMENTS = (SPECTRA, ZEROS, DECAY, TRAINING, DEPTH)

HEAD = """\
# The activation Gram matrix

Panigrahi, Shetty and Goyal, "Effect of Activation Functions on the Training of Overparametrized
Neural Nets" (ICLR 2020): a wide network of two layers learns as fast as the eigenvalues of one
matrix allow, G_ij = <x_i, x_j> mean_k phi'(<w_k, x_i>) phi'(<w_k, x_j>), and the activation phi
decides how small they are. It is this package's masked Gram matrix with the gates phi'.
[`implicit_bias/activation_gram.py`](../../implicit_bias/activation_gram.py) has the mathematics.

Each experiment is one command, and `--quick` runs it small, in seconds. Tables are kept under
`../results/panigrahi2020`, and `python benchmarks/panigrahi2020/activation_gram.py page` writes the
pictures and this page from them. Spectra need MNIST and `cifar10-subset.npz` (1,000 training
images a class) in the folder `IMPLICIT_BIAS_DATA`."""


app = typer.Typer(help=__doc__, pretty_exceptions_enable=False, add_completion=False)

Quick: TypeAlias = Annotated[bool, typer.Option("--quick", help="Small sizes: seconds.")]
Folder: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Where results/ and pictures/ go: benchmarks; nowhere with --quick."),
]


def add_command(experiment: Experiment) -> None:
    """Make an experiment a command."""

    @app.command(experiment.name, help=f"{experiment.title}.")
    def run(quick: Quick = False, folder: Folder = None) -> None:
        kept = BENCHMARKS if folder is None and not quick else folder
        experiment.run(quick=quick, folder=kept)


for _experiment in EXPERIMENTS:
    add_command(_experiment)


@app.command("page")
def write_page() -> None:
    """Write README.md and the pictures from the tables that are kept."""
    for experiment in EXPERIMENTS:
        experiment.keep_picture(pd.read_parquet(experiment.results(BENCHMARKS)), BENCHMARKS)
    text = page(BENCHMARKS)
    file = Path(__file__).with_name("README.md")
    write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    app()
