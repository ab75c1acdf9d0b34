"""Does the effect of the norm depend on the data? Other tasks, and other splits.

===========  =====================================================================================
task         what differs from the cells of `gln` with two contexts and medians
===========  =====================================================================================
odd          MNIST, odd against even digits; N = 500 and 1,000; momentum 0.9
fashion      Fashion-MNIST, classes 0-4 against 5-9; networks in float64 without a bias, medians of
             the training samples; N = 500, 1,000 and 2,000; momentum 0.9
split 2, 3   two more splits into training and validation images; N = 500; no momentum
===========  =====================================================================================

The columns are those of `cells.measured`.

Source: not in the paper; the cells are those of Lippl, Abbott, Chung (2022), section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022.cells import Setting, measured
from benchmarks.lippl2022.gln import MODELS, RELEASED_SEEDS, UNITS
from benchmarks.lippl2022.matching import matched, minus

COST = 30
TASKS: dict[str, dict[str, Any]] = {
    "odd": {"positive": (1, 3, 5, 7, 9), "negative": (0, 2, 4, 6, 8), "momentum": 0.9},
    "fashion": {"dataset": "fashion-mnist", "momentum": 0.9},
    "split 2": {"split_seed": 2},
    "split 3": {"split_seed": 3},
    "digits": {"dataset": "digits", "momentum": 0.9},
}
SIZES = {"odd": (500, 1000), "fashion": (500, 1000, 2000), "split 2": (500,), "split 3": (500,)}
KEYS = ("train_size", "units", "seed")


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell."""
    if quick:
        for seed in (1, 2):
            yield part(cell, task="digits", train_size=100, units=4, seed=seed)
        return
    for task, sizes in SIZES.items():
        for train_size, units, seed in product(sizes, UNITS, RELEASED_SEEDS):
            yield part(cell, task=task, train_size=train_size, units=units, seed=seed)


def cell(task: str, **setting: Any) -> Iterator[dict[str, Any]]:
    """Train the network of a cell and solve its SVMs."""
    return measured(Setting(models=MODELS, **setting, **TASKS[task]))


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the error of SVM-L2 minus that of SVM-GLN for each task."""
    found = {}
    for task in SIZES:
        table = matched(frame[frame["task"] == task], "error", KEYS)
        found[task.replace(" ", "_")] = minus(table, "svm-l2", "svm-gln")
    return found
