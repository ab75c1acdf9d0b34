"""Width against accuracy on MNIST and Fashion-MNIST: GaLU0, GaLU, ReLU and linear networks.

Ten classes, cross-entropy, bias units, the published training: Adam, batches of 128, 100,000 steps.

Figure 1 of the submission: images reduced to their first 64 principal components, each of variance
1, fitted on the training images; two hidden layers of k units. GaLU0: the gates of both layers are
sigmoids of random projections of the network's input, of standard deviation 1/(8 alpha). Rates of
the published search (0.001, 0.0005, 0.0001; GaLU0 without the last) and, for GaLU0, all of its
slopes (alpha = 0.01 to 10); shown is, in each cell, the setting with the least *test* error, as
published. ReLU and GaLU0 are trained anew at it, by two other seeds, as what is chosen so looks
better than it is. At the rate 0.001 alone: GaLU0 with hard gates, and ReLU with only the readout
trained.

Figure 3 of the arXiv version: one hidden layer, hard gates, all pixels, the rate 0.001, three seeds
of start, gates and batches; and a linear network of the same inputs. The paper says neither widths
nor loss: ours.

Source: Fiat, Malach, Shalev-Shwartz, figure 1 of the submission of 2018, whose values are those of
the authors' file; figure 3 of arXiv:1906.05032 (2019), whose values are not published.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, common_legend, subplots, tick_values
from benchmarks.effects import Effect
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.fiat2019.published_training import STEPS, outputs_of, train_as_published
from benchmarks.summaries import low_high
from implicit_bias.base.style import BLUE, GREEN, GREY, ORANGE, VERMILION
from implicit_bias.base.validation import Array
from implicit_bias.datasets.images import load_digits, load_fashion_mnist, load_mnist

COST = 350

WIDTHS, COMPONENTS = (16, 32, 48, 64, 80, 96), 64
# Test errors of the submission's figure 1, at these widths.
PUBLISHED = {
    ("MNIST", "ReLU"): (0.0408, 0.0353, 0.0324, 0.0267, 0.0238, 0.0218),
    ("MNIST", "GaLU0"): (0.0567, 0.0421, 0.0351, 0.0322, 0.0308, 0.0281),
    ("MNIST", "linear"): (0.0828, 0.0830, 0.0830, 0.0832, 0.0834, 0.0834),
    ("Fashion-MNIST", "ReLU"): (0.139, 0.130, 0.129, 0.128, 0.126, 0.127),
    ("Fashion-MNIST", "GaLU0"): (0.149, 0.136, 0.130, 0.128, 0.123, 0.123),
    ("Fashion-MNIST", "linear"): (0.168, 0.168, 0.168, 0.168, 0.168, 0.168),
}
LOADERS = {"MNIST": load_mnist, "Fashion-MNIST": load_fashion_mnist}


@dataclass(frozen=True, kw_only=True)
class Network:
    """What is trained, and by which rates, slopes of the gates, and seeds.

    Attributes
    ----------
    alphas : tuple of float
        The slopes; 0 for gates that have none.
    anew : tuple of int
        Seeds of further trainings at the setting with the least test error.
    """

    kind: Kind
    hidden: int = 2
    components: int = COMPONENTS
    readout_only: bool = False
    widths: tuple[int, ...] = WIDTHS
    rates: tuple[float, ...] = (0.001,)
    alphas: tuple[float, ...] = (0.0,)
    seeds: tuple[int, ...] = (0,)
    anew: tuple[int, ...] = ()


def one_layer(kind: Kind) -> Network:
    """Of figure 3 of the arXiv version."""
    return Network(kind=kind, hidden=1, components=0, widths=(16, 64), seeds=(0, 1, 2))


GALU, RELU, LINEAR = "GaLU, one layer", "ReLU, one layer", "linear, one layer"
HARD, READOUT = "GaLU0, hard gates", "ReLU, readout only"
SLOPES = (0.01, 0.1, 0.5, 1.0, 2.0, 10.0)
NETWORKS = {
    GALU: one_layer("hard"),
    RELU: one_layer("relu"),
    LINEAR: one_layer("linear"),
    READOUT: Network(kind="relu", readout_only=True),
    HARD: Network(kind="hard"),
    "ReLU": Network(kind="relu", rates=(0.001, 0.0005, 0.0001), anew=(1, 2)),
    "linear": Network(kind="linear", rates=(0.001, 0.0005, 0.0001)),
    "GaLU0": Network(kind="sigmoid", rates=(0.001, 0.0005), alphas=SLOPES, anew=(1, 2)),
}
CELL = ["dataset", "network", "width"]
SETTING = ["rate", "alpha"]


def measure(quick: bool) -> Iterator[Part]:
    """Train every cell; quick: the widest of each network, on digits of 8 x 8 pixels."""
    for name, network in NETWORKS.items():
        if quick:
            yield part(cell, dataset="digits", network=name, width=network.widths[-1], steps=200)
            continue
        for dataset, width in itertools.product(LOADERS, network.widths):
            yield part(cell, dataset=dataset, network=name, width=width, steps=STEPS)


def cell(dataset: str, network: str, width: int, steps: int) -> list[dict[str, Any]]:
    """Train at every setting, and anew at the one with the least test error."""
    model = NETWORKS[network]
    data = images(dataset, model.components)
    rows = [
        trained(model, data, width, rate, alpha, seed, steps)
        for rate, alpha, seed in itertools.product(model.rates, model.alphas, model.seeds)
    ]
    best = min(rows, key=lambda row: row["test_error"])
    for seed in model.anew:
        rows.append(trained(model, data, width, best["rate"], best["alpha"], seed, steps))
    return rows


def trained(
    model: Network,
    data: tuple[Array, Array, Array, Array],
    width: int,
    rate: float,
    alpha: float,
    seed: int,
    steps: int,
) -> dict[str, Any]:
    """Train one network."""
    X, test_X, y, test_y = data
    network = GatedLayers(
        [X.shape[1], *[width] * model.hidden, 10],
        model.kind,
        bias=True,
        readout_only=model.readout_only,
        sharpness=1 / (8 * alpha) if alpha else 1.0,
        seed=seed,
    )
    labels = np.eye(10)[y]
    train_as_published(network, X, labels, "cross-entropy", steps=steps, rate=rate, seed=seed)
    return {
        "rate": rate,
        "alpha": alpha,
        "seed": seed,
        "train_error": float(np.mean(outputs_of(network, X).argmax(axis=1) != y)),
        "test_error": float(np.mean(outputs_of(network, test_X).argmax(axis=1) != test_y)),
    }


@cache
def images(dataset: str, components: int) -> tuple[Array, Array, Array, Array]:
    """Return training and test inputs, reduced or with all pixels, and both sets' classes."""
    # Ten classes, and bias units in place of a constant.
    if dataset == "digits":
        digits = load_digits(classes=("all",), append_constant=False)
        X, test_X = np.split(digits.X, [1200])
        y, test_y = np.split(digits.y, [1200])
        components = min(components, 16)
    else:
        load = LOADERS[dataset]
        first = load(subset="train", classes=("all",), append_constant=False)
        last = load(subset="test", classes=("all",), append_constant=False)
        X, y, test_X, test_y = first.X, first.y, last.X, last.y
    if components:
        X, test_X = reduced(X, test_X, components)
    return X, test_X, y, test_y


def reduced(train_X: Array, test_X: Array, components: int) -> tuple[Array, Array]:
    """First principal components of the training images, scaled to variance 1, of both sets."""
    mean = train_X.mean(axis=0)
    centred = train_X - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(train_X))
    directions = vectors[:, -components:] / np.sqrt(values[-components:])
    return centred @ directions, (test_X - mean) @ directions


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """Trainings of each cell at the setting with the least test error: those anew, if any.

    The setting is chosen by the first trainings, of seed 0 or of all seeds of one layer.
    """
    anew = frame["network"].map(lambda name: NETWORKS[name].anew)
    is_anew = pd.Series(
        [seed in seeds for seed, seeds in zip(frame["seed"], anew, strict=True)], frame.index
    )
    means = frame[~is_anew].groupby([*CELL, *SETTING])["test_error"].mean().reset_index()
    best = means.loc[means.groupby(CELL)["test_error"].idxmin(), [*CELL, *SETTING]]
    shown = frame[is_anew | (anew.map(len) == 0)]
    return best.merge(shown, on=[*CELL, *SETTING])


def errors_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean test error at the chosen settings, by dataset and width, a column a network."""
    return chosen(frame).pivot_table(
        index=["dataset", "width"], columns="network", values="test_error"
    )


def published() -> pd.DataFrame:
    """Return the published test errors, by dataset and width, a column a network."""
    found = {
        (dataset, width, network): error
        for (dataset, network), errors in PUBLISHED.items()
        for width, error in zip(WIDTHS, errors, strict=True)
    }
    return pd.Series(found).unstack()


def difference(frame: pd.DataFrame, one: str, other: str) -> Effect:
    """Test error of one network minus that of another, by the seeds that both have."""
    rows = chosen(frame)
    both = rows.pivot_table(
        index=["seed", "dataset", "width"], columns="network", values="test_error"
    )
    apart = (both[one] - both[other]).reset_index(name="apart")
    return Effect.of(apart["apart"], apart["seed"])


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Compare test errors with those of the linear network, and with the published ones."""
    errors = errors_of(frame)
    theirs = published().reindex(errors.index)
    above = errors["GaLU0"] - errors["ReLU"]
    way = above / (errors["linear"] - errors["ReLU"])
    one_layer = errors[GALU] - errors[RELU]
    found: dict[str, Any] = {
        "above": difference(frame, "GaLU0", "ReLU"),
        "one_layer": difference(frame, GALU, RELU),
        "less_than_half": int((way < 0.5).sum()),
        "cells": int(way.count()),
        **low_high("above", above),
        **low_high("published_above", theirs["GaLU0"] - theirs["ReLU"]),
        **low_high("way", way),
        **low_high("readout", errors[READOUT] / errors["ReLU"]),
        **low_high("hard", errors[HARD] - errors["GaLU0"]),
        **low_high("one_layer_way", one_layer / (errors[LINEAR] - errors[RELU])),
        **low_high("off_published", (errors[theirs.columns] - theirs).to_numpy().ravel()),
    }
    names = {"galu0": "GaLU0", "relu": "ReLU", "linear": "linear", "hard": HARD}
    names |= {"one_galu": GALU, "one_relu": RELU, "one_linear": LINEAR}
    # A quick table has neither of the two sets.
    for word, dataset in (("mnist", "MNIST"), ("fashion", "Fashion-MNIST")):
        for key, name in names.items():
            found[f"{key}_{word}"] = errors[name].get((dataset, 64), np.nan)
        for key in ("galu0", "relu", "linear"):
            found[f"published_{key}_{word}"] = theirs[names[key]].get((dataset, 64), np.nan)
    return found


LOOKS = {
    "ReLU": (VERMILION, "o-"),
    "GaLU0": (BLUE, "s-"),
    HARD: (BLUE, "s:"),
    "linear": (GREEN, "v-"),
    READOUT: (ORANGE, "^:"),
    RELU: (VERMILION, "D--"),
    GALU: (BLUE, "P--"),
    LINEAR: (GREEN, "*--"),
}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the test error against the width; crosses are the reported values."""
    errors = 100 * errors_of(frame)
    datasets = list(dict.fromkeys(frame["dataset"]))
    size = (8.8, 4.6)
    figure, panels = subplots(size, 1, len(datasets), squeeze=False, y="test error, %")
    for ax, dataset in zip(panels[0], datasets, strict=True):
        rows = errors.loc[dataset]
        theirs = 100 * published().reindex(errors.index).loc[dataset]
        for name, (colour, line) in LOOKS.items():
            cells = rows[name].dropna()
            ax.plot(cells.index, cells, line, color=colour, fillstyle="none", label=name)
            if name in theirs:
                ax.plot(theirs.index, theirs[name], "x", color=colour)
        ax.plot([], [], "x", color=GREY, label="reported")
        ax.set(title=dataset, xlabel="width k", xticks=rows.index)
        low, high = 0.8 * np.nanmin(rows), 1.15 * np.nanmax(rows)
        ticks = [tick for tick in (2, 3, 5, 8, 12, 16, 20, 30, 50) if low < tick < high]
        ax.set(yscale="log", ylim=(low, high))
        tick_values(ax, ticks, along="y")
    return common_legend(figure, panels[0], 4)
