"""SVMs of one layer, with a weight vector for each context of k hyperplanes: figure 2c.

N = 500, 1,000 or 2,000 samples of MNIST, k = 0 to 15, thresholds at medians or as drawn, three
seeds. ``unseen`` counts the validation images in contexts without training samples. There the SVM
predicts 0, which the released code counts as an error; a fair coin would err on half.

Source: Lippl, Abbott, Chung (2022), section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022.cells import Models, Setting
from benchmarks.lippl2022.gln import RELEASED_SEEDS, THRESHOLDS, TRAIN_SIZES
from implicit_bias.estimators.svm import MarginSVC

COST = 24
MOST_HYPERPLANES = 15
N_VALIDATION = 12_000


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell."""
    if quick:
        for k in (0, 1):
            setting = {"dataset": "digits", "train_size": 100, "threshold": "median", "seed": 1}
            yield part(cell, hyperplanes=k, **setting)
        return
    ks = range(MOST_HYPERPLANES + 1)
    for train_size, k, threshold, seed in product(TRAIN_SIZES, ks, THRESHOLDS, RELEASED_SEEDS):
        setting = {"dataset": "mnist", "train_size": train_size, "hyperplanes": k}
        yield part(cell, threshold=threshold, seed=seed, **setting)


def cell(**setting: Any) -> Iterator[dict[str, Any]]:
    """Solve the SVM of a cell."""
    models = Models(Setting(models=("svm-shallow",), units=1, **setting))
    images = models.data.parts.validation
    svm = models.fit_one("svm-shallow")
    assert isinstance(svm, MarginSVC)
    solution = svm.solution_
    # An output of 0 is an error, whatever the label.
    wrong = np.sign(svm.decision_function(images.X)) != images.y
    yield {
        "model": "svm-shallow",
        "error": float(wrong.mean()),
        "unseen": int(np.count_nonzero(svm.architecture_.gating.unseen(images.X))),
        "gap": solution.certificate.gap,
        "status": solution.status.label,
    }


def with_a_fair_coin(frame: pd.DataFrame) -> pd.DataFrame:
    """Let half of the images in contexts without training samples be right."""
    return frame.assign(error=frame["error"] - 0.5 * frame["unseen"] / N_VALIDATION)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the number of cells."""
    return {"cells": len(frame)}
