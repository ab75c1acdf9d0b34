"""Gated linear networks and their SVMs: figures 2 and 4, and seven more seeds.

The cells of the paper have N = 500, 1,000 or 2,000 samples of MNIST (0-4 against 5-9), H = 10, 20,
50 or 100 units with two or four contexts each, thresholds at medians or as drawn, three seeds, and
networks with and without momentum. Those of N = 500 without momentum have seven more seeds. The
columns are those of `cells.measured`, the models of the released code those of `as_published`.

Source: Lippl, Abbott, Chung (2022), section 4.1 and appendix C.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022.as_published import gln_models
from benchmarks.lippl2022.cells import Setting, measured, no_more

COST = 110
MODELS = ("gd-gln", "svm-gln", "svm-l2")
TRAIN_SIZES, UNITS, HYPERPLANES = (500, 1000, 2000), (10, 20, 50, 100), (1, 2)
THRESHOLDS, RELEASED_SEEDS = ("median", "random"), (1, 2, 3)
MORE_SEEDS = (4, 5, 6, 7, 8, 9, 10)


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell."""
    if quick:
        for seed in (1, 2):
            setting = {"units": 4, "hyperplanes": 1, "threshold": "median", "momentum": 0.0}
            yield part(cell, dataset="digits", train_size=100, seed=seed, **setting)
        return
    for seed, momentum in product(RELEASED_SEEDS, (0.0, 0.9)):
        for setting in settings(seeds=(seed,)):
            yield part(cell, momentum=momentum, **setting)
    for seed in MORE_SEEDS:
        for setting in settings(TRAIN_SIZES[:1], seeds=(seed,)):
            yield part(cell, momentum=0.0, **setting)


def settings(
    train_sizes: Sequence[int] = TRAIN_SIZES,
    widths: Sequence[int] = UNITS,
    hyperplanes: Sequence[int] = HYPERPLANES,
    thresholds: Sequence[str] = THRESHOLDS,
    seeds: Sequence[int] = RELEASED_SEEDS,
) -> Iterator[dict[str, Any]]:
    """Yield the settings of cells on MNIST, of all combinations; by default of the paper's."""
    axes = (train_sizes, widths, hyperplanes, thresholds, seeds)
    for train_size, units, k, threshold, seed in product(*axes):
        yield {
            "dataset": "mnist",
            "train_size": train_size,
            "units": units,
            "hyperplanes": k,
            "threshold": threshold,
            "seed": seed,
        }


def cell(**setting: Any) -> Iterator[dict[str, Any]]:
    """Train the network of a cell and solve its SVMs, for the paper's seeds as released, too.

    SVMs do not depend on the momentum: those of the released code are solved where there is none.
    """
    as_released = setting["seed"] in RELEASED_SEEDS and setting["momentum"] == 0.0
    more = gln_models if as_released else no_more
    return measured(Setting(models=MODELS, **setting), more)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say how many cells there are, and how well they are solved."""
    solved = frame[frame["model"].str.startswith("svm")]
    return {
        "cells": int((frame["model"] == "gd-gln").sum()),
        "svms": len(solved),
        "largest_gap": float(solved["gap"].max()),
    }
