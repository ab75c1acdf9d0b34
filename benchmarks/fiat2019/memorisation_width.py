"""The smallest width at which GaLU and ReLU networks memorise random labels.

m Gaussian inputs of dimension d with Gaussian labels; memorised: mean squared error below 0.01. The
width is found by binary search; the data and the filters of a search are the same. Both networks by
the published training (Adam, rate 0.001, batches of 128, 100,000 steps; it ends once the error of
all samples, looked at every 1,000 steps, is below 0.01), and GaLU in closed form, too. The paper
says neither d nor the values of m: d = 16 and m = 64 to 256 are ours, and small; the published 5
repeats.

A closed form needs m/d, as kd coefficients fit no more than kd labels. Few hard gates need more: on
average a share 2^-k of the samples has all gates closed, so k >= log2(1 / 0.01). (Not in the paper;
derived here.)

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, figure 1 and table 1.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.fiat2019.published_training import STEPS, squared_error, train_as_published
from benchmarks.summaries import low_high
from implicit_bias.base.validation import Array
from implicit_bias.kernels.least_squares import least_squares
from implicit_bias.problem.gating import UnitGates

COST = 10

MEMORISED = 0.01
SIZES, INPUTS, REPEATS = (64, 128, 256), 16, 5
KINDS: dict[str, Kind] = {"GaLU": "hard", "ReLU": "relu"}
NETWORKS = ("closed", *KINDS)


def measure(quick: bool) -> Iterator[Part]:
    """Search the width of each network for each sample."""
    sizes, repeats, steps = ((32, 64), 1, 1000) if quick else (SIZES, REPEATS, STEPS)
    for seed, m, network in itertools.product(range(repeats), sizes, NETWORKS):
        yield part(searched, m=m, d=INPUTS, seed=seed, network=network, steps=steps)


def searched(m: int, d: int, seed: int, network: str, steps: int) -> Iterator[dict[str, Any]]:
    """Yield the widths that a search tries, and the error at each."""
    rng = np.random.default_rng([seed, m])
    X = rng.normal(size=(m, d))
    y = rng.normal(size=m)
    tried = dict[int, float]()

    def memorises(width: int) -> bool:
        if network == "closed":
            tried[width] = closed_form_error(width, X, y, seed)
        else:
            tried[width] = trained_error(width, X, y, seed, kind=KINDS[network], steps=steps)
        return tried[width] < MEMORISED

    smallest(memorises, widest(m, d))
    for width, error in tried.items():
        yield {"width": width, "error": error}


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


def widest(m: int, d: int) -> int:
    """Where searches end, taken to memorise."""
    return 3 * math.ceil(m / d)


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


def widths(frame: pd.DataFrame) -> pd.DataFrame:
    """Smallest width over m/d, of each sample size and network: means over the repeats.

    A binary search ends at the smallest width that it has found to memorise, or where it began.
    """
    search = ["m", "d", "seed", "network"]
    searches = frame.groupby(search)["width"].count().index.to_frame(index=False)
    memorised = frame[frame["error"] < MEMORISED].groupby(search)["width"].min()
    found = searches.join(memorised, on=search)
    begun = [widest(m, d) for m, d in zip(found["m"], found["d"], strict=True)]
    found["ratio"] = found["width"].fillna(pd.Series(begun)) * found["d"] / found["m"]
    return found.pivot_table(index="m", columns="network", values="ratio")


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Widths over m/d."""
    ratios = widths(frame)
    largest = ratios.loc[ratios.index.max()]
    return {
        "inputs": int(frame["d"].iloc[0]),
        "repeats": frame["seed"].nunique(),
        "galu_largest": largest["GaLU"],
        "relu_largest": largest["ReLU"],
        **low_high("closed", ratios["closed"]),
        **low_high("galu", ratios["GaLU"]),
        **low_high("relu", ratios["ReLU"]),
        **low_high("samples", ratios.index),
    }
