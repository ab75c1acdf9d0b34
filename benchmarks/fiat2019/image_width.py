"""Width against accuracy on MNIST, Fashion-MNIST and small digits: GaLU0, ReLU, linear networks.

Ten classes, cross-entropy, bias units. MNIST and Fashion-MNIST: images reduced to their first 64
principal components, each of variance 1, fitted on the training images; two hidden layers of k
units. GaLU0: the gates of both layers are sigmoids of random projections of the network's input, of
standard deviation 1/(8 alpha). The published training, Adam, batches of 128, 100,000 steps, at
rates of the published search (0.001, 0.0005, 0.0001) and, for GaLU0, at all of its slopes (alpha =
0.01 to 10); shown is, in each cell, the setting with the least *test* error, as published. One
repeat of 4.

Digits of 8 x 8 pixels (16 components; 1,200 to train, 597 to test): one hidden layer, hard gates,
the same training, and ReLU with the readout alone trained.

Source: Fiat, Malach, Shalev-Shwartz, figure 1 of the submission of 2018, whose file's values are
published; figure 3 of arXiv:1906.05032 (2019), whose sizes are not said.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.fiat2019.published_training import (
    STEPS,
    outputs_of,
    train_as_published,
)
from benchmarks.harness import Experiment, Run, Verdict, growing
from implicit_bias.base.validation import Array
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.images import load_digits, load_fashion_mnist, load_mnist
from implicit_bias.kernels.gated_layers import GatedLayers, Kind
from implicit_bias.report.style import BLUE, GREEN, GREY, ORANGE, VERMILION

NETWORKS: dict[str, Kind] = {"ReLU": "relu", "linear": "linear", "GaLU0": "sigmoid"}
READOUT = "ReLU, readout only"
# On the digits: gates, and whether the readout alone is trained.
SMALL: dict[str, tuple[Kind, bool]] = {
    "ReLU": ("relu", False),
    "GaLU": ("hard", False),
    "linear": ("linear", False),
    READOUT: ("relu", True),
}
SMALL_WIDTHS = (16, 64)
# Of the published search.
RATES = (0.001, 0.0005, 0.0001)
ALPHAS = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0)
# Widths, and test errors of the published figure 1; those of linear networks are not at hand for
# two widths, between others that differ by 0.0006 at most.
WIDTHS, COMPONENTS = (16, 32, 48, 64, 80, 96), 64
PUBLISHED = {
    ("MNIST", "ReLU"): (0.0408, 0.0353, 0.0324, 0.0267, 0.0238, 0.0218),
    ("MNIST", "GaLU0"): (0.0567, 0.0421, 0.0351, 0.0322, 0.0308, 0.0281),
    ("MNIST", "linear"): (0.0828, 0.0830, np.nan, 0.0832, np.nan, 0.0834),
    ("Fashion-MNIST", "ReLU"): (0.139, 0.130, 0.129, 0.128, 0.126, 0.127),
    ("Fashion-MNIST", "GaLU0"): (0.149, 0.136, 0.130, 0.128, 0.123, 0.123),
    ("Fashion-MNIST", "linear"): (0.168,) * 6,
}
# Ten classes, and bias units in place of a constant.
ALL: Any = {"classes": ("all",), "append_constant": False}
LOADERS = {"MNIST": load_mnist, "Fashion-MNIST": load_fashion_mnist}
CELL = ["dataset", "network", "width"]
SETTING = [*CELL, "rate", "alpha"]


def reduced(train_X: Array, test_X: Array, components: int) -> tuple[Array, Array]:
    """First principal components of the training images, scaled to variance 1, of both sets."""
    mean = train_X.mean(axis=0)
    centred = train_X - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(train_X))
    directions = vectors[:, -components:] / np.sqrt(values[-components:])
    return centred @ directions, (test_X - mean) @ directions


def both_reduced(first: Dataset, last: Dataset, components: int) -> tuple[Dataset, Dataset]:
    """Return training and test images by their components, those of the training images."""
    X, test_X = reduced(first.X, last.X, components)
    return replace(first, X=X, image_shape=None), replace(last, X=test_X, image_shape=None)


def measure(run: Run[Any]) -> Iterator[pd.DataFrame]:
    """Train on the digits, then at every setting on images, which --quick leaves out."""
    frame = run.kept if "alpha" in run.kept else pd.DataFrame()
    if frame.empty:
        frame = on_digits(200 if run.quick else STEPS).assign(rate=RATES[0], alpha=0.0)
        yield frame
    data = cache(images)

    def trained(
        dataset: str, network: str, width: int, rate: float, alpha: float
    ) -> Iterator[dict[str, Any]]:
        sizes, sharpness = [COMPONENTS, width, width, 10], 1 / (8 * alpha) if alpha else 1.0
        layers = GatedLayers(sizes, NETWORKS[network], bias=True, sharpness=sharpness, seed=0)
        first, last = data(dataset)
        train_as_published(layers, first.X, np.eye(10)[first.y], "cross-entropy", rate=rate)
        yield {
            "steps": STEPS,
            "train_error": error(layers, first),
            "test_error": error(layers, last),
        }

    wanted = [] if run.quick else [dict(zip(SETTING, each, strict=True)) for each in settings()]
    yield from growing(run, wanted, trained, frame)


def settings() -> list[tuple[str, str, int, float, float]]:
    """Dataset, network, width, rate and alpha of each training; alpha 0 where gates have no slope.

    One rate after the other, and GaLU0 with its many slopes last: each is a whole curve.
    """
    return [
        (dataset, name, width, rate, alpha)
        for rate, name, dataset, width in itertools.product(RATES, NETWORKS, LOADERS, WIDTHS)
        for alpha in (ALPHAS if NETWORKS[name] == "sigmoid" else (0.0,))
    ]


def images(dataset: str) -> tuple[Dataset, Dataset]:
    """Return training and test images, reduced."""
    first, last = (LOADERS[dataset](subset=part, **ALL) for part in ("train", "test"))
    return both_reduced(first, last, COMPONENTS)


def on_digits(steps: int) -> pd.DataFrame:
    """Errors of one hidden layer on the digits, by the published training."""
    digits = load_digits(**ALL)
    train_part, test_part = np.split(np.arange(len(digits)), [1200])
    first, last = both_reduced(digits.take(train_part), digits.take(test_part), 16)
    rows: list[dict[str, Any]] = []
    for (name, (kind, readout_only)), width in itertools.product(SMALL.items(), SMALL_WIDTHS):
        network = GatedLayers([16, width, 10], kind, bias=True, readout_only=readout_only, seed=0)
        train_as_published(network, first.X, np.eye(10)[first.y], "cross-entropy", steps=steps)
        row = {"dataset": "digits", "network": name, "width": width, "steps": steps}
        row |= {"train_error": error(network, first), "test_error": error(network, last)}
        rows.append(row)
    return pd.DataFrame(rows)


def error(network: GatedLayers, data: Dataset) -> float:
    """Share of the samples that are misclassified."""
    return float(np.mean(outputs_of(network, data.X).argmax(axis=1) != data.y))


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each cell the training with the least test error, beside the published error."""
    images_first = frame.sort_values("dataset", key=lambda names: names == "digits", kind="stable")
    best = frame.loc[images_first.groupby(CELL, sort=False)["test_error"].idxmin()]
    published = {
        (*cell, width): error
        for cell, errors in PUBLISHED.items()
        for width, error in zip(WIDTHS, errors, strict=True)
    }
    cells = best[CELL].itertuples(index=False, name=None)
    return best.assign(published=[published.get(cell, np.nan) for cell in cells])


def whole_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """Digits, and of images the rates at which a network has all widths and slopes."""
    rate_of = ["dataset", "network", "rate"]
    asked = pd.DataFrame(settings(), columns=SETTING).groupby(rate_of)["alpha"].count()
    trained = frame.groupby(rate_of)["alpha"].transform("count")
    wanted = frame.join(asked.rename("wanted"), on=rate_of)["wanted"]
    return frame[(frame["dataset"] == "digits") | (trained == wanted)]


def with_one_setting(frame: pd.DataFrame) -> pd.Series[float]:
    """Test errors by cell with one rate and slope for all widths: of the least mean."""
    errors = frame.pivot_table(
        index=["network", "dataset", "width"], columns=["rate", "alpha"], values="test_error"
    )
    networks = errors.groupby(["network", "dataset"])
    kept = [cells.dropna(axis="columns") for _, cells in networks]
    return pd.concat([cells[cells.mean().idxmin()] for cells in kept])


COLOURS = {
    "ReLU": VERMILION,
    "GaLU0": BLUE,
    "GaLU": BLUE,
    "linear": GREEN,
    READOUT: ORANGE,
}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the test error against the width; crosses are the published values."""
    panels_of = chosen(whole_rates(frame)).groupby("dataset", sort=False)
    figure = Figure(figsize=(3.9 * len(panels_of), 3.8), layout="constrained")
    panels = figure.subplots(1, len(panels_of), squeeze=False)[0]
    for ax, (dataset, rows) in zip(panels, panels_of, strict=True):
        for name, cells in rows.groupby("network", sort=False):
            colour = COLOURS[str(name)]
            ax.plot(cells["width"], 100 * cells["test_error"], "-o", color=colour, label=name)
            ax.plot(cells["width"], 100 * cells["published"], "x", color=colour)
        if dataset != "digits":
            ax.plot([], [], "x", color=GREY, label="published")
        ax.set(title=str(dataset), xlabel="width k", xticks=sorted(rows["width"].unique()))
        ax.set_ylim(bottom=0)
        ax.legend()
    panels[0].set_ylabel("test error, %")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Compare errors with the published ones, and the digits' networks with each other."""
    small = (
        100 * frame[frame["dataset"] == "digits"].groupby(["network", "width"])["test_error"].mean()
    )
    lines = "; ".join(
        f"k = {width}: " + ", ".join(f"{name} {small[name, width]:.1f} %" for name in SMALL)
        for width in SMALL_WIDTHS
    )
    readout = (small[READOUT] - small["ReLU"]).min()
    digits = (
        f"- Digits, one hidden layer, hard gates: {lines}. ReLU with the readout "
        f"alone trained is worse than ReLU by {readout:.1f} points or more (the paper says much "
        "poorer, without a drawing). GaLU with its hard gates is "
        f"{(small['GaLU'] - small['linear']).min():+.1f} to "
        f"{(small['GaLU'] - small['linear']).max():+.1f} points off the linear network here."
    )
    trained = whole_rates(frame[frame["dataset"] != "digits"])
    if trained.empty:
        return digits
    best = chosen(trained).set_index(["network", "dataset", "width"])
    errors, theirs = 100 * best["test_error"], 100 * best["published"]
    apart, published = (values["GaLU0"] - values["ReLU"] for values in (errors, theirs))
    linear = errors["linear"] - errors["GaLU0"]
    off = errors - theirs
    one = 100 * with_one_setting(trained)
    dearer = (one - errors).groupby("network").max()
    rates = "; ".join(
        f"{name} on {dataset} {', '.join(f'{rate:g}' for rate in rows['rate'].unique())}"
        for (name, dataset), rows in trained.groupby(["network", "dataset"], sort=False)
    )
    return (
        f"One training of {trained['steps'].iloc[0]:,} steps a cell and setting on images. Rates, "
        f"of the published {', '.join(f'{rate:g}' for rate in RATES)}: {rates}; of GaLU0 each with "
        f"{len(ALPHAS)} slopes. Each cell has the setting with the least test error, as published "
        "(but of single trainings, where the paper has means of 4, so that ours is flattered "
        "more); in brackets the published value.\n\n"
        f"- **GaLU0 is {apart.min():.1f} to {apart.max():.1f} points above ReLU (published "
        f"{published.min():.1f} to {published.max():.1f}), and {linear.min():.1f} to "
        f"{linear.max():.1f} below the linear network.**\n"
        f"- Our errors are {off.min():+.1f} to {off.max():+.1f} points off the published ones.\n"
        "- The least test error of many settings flatters who has more of them. With one rate and "
        "slope for all widths, that of the least mean, an error is higher by at most "
        + ", ".join(f"{value:.2f} points ({name})" for name, value in dearer.items())
        + f".\n{digits}"
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Test errors, and the published ones in brackets."""
    cells = chosen(whole_rates(frame))
    published = (100 * cells["published"]).map(" ({:.1f})".format)
    cells["cell"] = (100 * cells["test_error"]).map("{:.1f}".format)
    cells["cell"] += published.where(cells["published"].notna(), "")
    rows = cells.pivot(index=["dataset", "network"], columns="width", values="cell")
    rows = rows.loc[list(cells["dataset"].unique())]  # in the order of the picture
    rows.columns = [f"k = {width}" for width in rows.columns]
    rows.insert(0, "test error, %", rows.index.map(", ".join))
    return rows.fillna("-")


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    small = frame[frame["dataset"] == "digits"].groupby(["network", "width"])["test_error"].mean()
    poorer = bool((small[READOUT] > small["ReLU"] + 0.01).all())
    trained = whole_rates(frame[frame["dataset"] != "digits"])
    if trained.empty:
        return Verdict.OPEN
    errors = chosen(trained).set_index(["network", "dataset", "width"])["test_error"]
    cells = errors.unstack("network")
    better = bool((cells[["ReLU", "GaLU0"]].max(axis=1) < cells["linear"]).all())
    widest = errors.xs(trained["width"].max(), level="width").unstack("network")
    near = (widest["GaLU0"] - widest["ReLU"]).abs() < (widest["linear"] - widest["ReLU"]) / 4
    hard = bool((small["GaLU"] < small["linear"]).all())
    return Verdict.of(better and bool(near.all()) and poorer and hard, better)


EXPERIMENT = Experiment(measure=measure, draw=draw, found=found, verdict=verdict, tabulate=tabulate)
