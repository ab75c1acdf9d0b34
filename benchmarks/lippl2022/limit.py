"""Networks trained towards the limit, beside their certified SVM.

The paper leaves open whether its networks differ from SVM-GLN for want of time. Here GLNs in the
same contexts start from orthogonal weights, without a bias of the readout, in float64, and are
trained by `LIMIT_STEPS` steps of `implicit_bias.train_to_limit`: at N = 500 with every width and
seed of the paper, and at N = 500, 1,000 and 2,000 with 10 units, two or four contexts, and both
kinds of thresholds. ``excess`` is the norm at smallest margin 1 over the certified lower bound,
less 1; the other columns are those of `cells.measured`.

Source: Lippl, Abbott, Chung (2022), discussion, and theorem 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022 import gln
from benchmarks.lippl2022.cells import Setting, measured
from benchmarks.lippl2022.further_models import limit_models
from benchmarks.lippl2022.gln import HYPERPLANES, RELEASED_SEEDS, THRESHOLDS, TRAIN_SIZES, UNITS

COST = 89


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each cell, once."""
    if quick:
        setting = {"train_size": 100, "units": 4, "hyperplanes": 1, "threshold": "median"}
        yield part(cell, dataset="digits", seed=1, **setting)
        return
    narrow = gln.settings(TRAIN_SIZES[:1], hyperplanes=HYPERPLANES[:1], thresholds=THRESHOLDS[:1])
    wider = gln.settings(widths=UNITS[:1], seeds=RELEASED_SEEDS[:1])
    once = dict.fromkeys(tuple(setting.items()) for setting in (*narrow, *wider))
    for setting in map(dict, once):
        yield part(cell, **setting)


def cell(**setting: Any) -> Iterator[dict[str, Any]]:
    """Solve SVM-GLN, and train the network from which it is the limit."""
    rows = list(measured(Setting(models=("svm-gln",), **setting), limit_models))
    lower = rows[0]["lower"]
    for row in rows:
        yield row | {"excess": row["norm"] / lower - 1.0}


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say how near to the optimum the networks are."""
    limit = frame[frame["model"] == "limit-gln"]
    return {
        "settings": len(limit),
        "infinite": float(limit["from_svm_gln"].mean()),
        "largest_excess": float(limit["excess"].max()),
        "mean_excess": float(limit["excess"].mean()),
    }
