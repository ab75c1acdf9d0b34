"""ReLU networks and their SVMs on random, learned and fixed gates: figures 3 and 5.

The cells have N = 500, 1,000 or 2,000 samples of MNIST, H = 10, 20, 50 or 100 units, three seeds,
and networks with momentum 0.9 and without. Samples that nothing separates are left out, and
counted in ``dropped``. Networks of 500 and 1,000 units have SVM-HL alone, which figure 3c shows up
to that width. At N = 500 the network and SVM-RC have three more seeds. The columns are those of
`cells.measured`.

Source: Lippl, Abbott, Chung (2022), section 5.2 and appendix C.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022.cells import Setting, measured
from benchmarks.lippl2022.gln import RELEASED_SEEDS, TRAIN_SIZES, UNITS

COST = 72
WIDE_UNITS, MORE_SEEDS = (500, 1000), (4, 5, 6)
ALL, OF_WIDE, OF_MORE_SEEDS = (
    "gd-relu,svm-rc,svm-lc,svm-hl",
    "gd-relu,svm-hl",
    "gd-relu,svm-rc",
)


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell."""
    if quick:
        for seed in (1, 2):
            setting = {"dataset": "digits", "train_size": 100, "units": 20, "momentum": 0.9}
            yield part(cell, seed=seed, models=ALL, **setting)
        return
    for momentum in (0.0, 0.9):
        yield from cells(TRAIN_SIZES, UNITS, RELEASED_SEEDS, momentum, ALL)
        yield from cells(TRAIN_SIZES, WIDE_UNITS, RELEASED_SEEDS, momentum, OF_WIDE)
        yield from cells(TRAIN_SIZES[:1], UNITS, MORE_SEEDS, momentum, OF_MORE_SEEDS)


def cells(
    train_sizes: tuple[int, ...],
    widths: tuple[int, ...],
    seeds: tuple[int, ...],
    momentum: float,
    models: str,
) -> Iterator[Part]:
    """Yield the cells of some sizes."""
    for train_size, units, seed in product(train_sizes, widths, seeds):
        setting = {"dataset": "mnist", "train_size": train_size, "units": units}
        yield part(cell, seed=seed, momentum=momentum, models=models, **setting)


def cell(models: str, **setting: Any) -> Iterator[dict[str, Any]]:
    """Train the network of a cell and solve its SVMs."""
    return measured(Setting(models=tuple(models.split(",")), on_failure="drop", **setting))


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say how many cells there are, and how many SVMs leave samples out."""
    return {
        "cells": int((frame["model"] == "gd-relu").sum()),
        "left_out": int((frame["dropped"] > 0).sum()),
    }
