"""Errors of all models by N, and figure 2 as released and as computed here.

All GLN models are without momentum and at median thresholds, means over H = 10, 20, 50, 100, two
and four contexts, and three seeds; ReLU models with momentum 0.9, means over H and seeds. As
released: the settings that are released.

Source: Lippl, Abbott, Chung (2022), figures 2 and 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.effects import Effect
from benchmarks.lippl2022.gln import RELEASED_SEEDS, TRAIN_SIZES, UNITS
from benchmarks.lippl2022.matching import GLN_KEYS, mean
from benchmarks.lippl2022.shallow import with_a_fair_coin
from implicit_bias.base.style import GREEN, GREY, ORANGE, VERMILION

READS = ("gln", "relu", "shallow", "released")
# Of each row of the table: key of its numbers, heading, and table and model it is of.
ROWS = (
    ("gd_gln", "GD-GLN, the network", "gln", "gd-gln"),
    ("svm_gln", "SVM-GLN, its limit", "gln", "svm-gln"),
    ("svm_l2", "SVM-L2, exact", "gln", "svm-l2"),
    ("svm_l2_released", "SVM-L2, as released", "released", "SVM-L2"),
    ("svm_l2_formula", "SVM-L2 by formula (23), right groups", "gln", "svm-l2-formula"),
    ("svm_shallow", "SVM-shallow, mean over k = 0 to 15", "shallow", "svm-shallow"),
    ("gd_relu", "GD-ReLU, the network", "relu", "gd-relu"),
    ("svm_hl", "SVM-HL, on its hidden layer", "relu", "svm-hl"),
    ("svm_lc", "SVM-LC, its learned contexts", "relu", "svm-lc"),
    ("svm_rc", "SVM-RC, random contexts", "relu", "svm-rc"),
)
# Figure 2: of each model the colour and marker, and its names here and in the released values.
LOOKS = {
    "SVM-GLN": (VERMILION, "s", "svm-gln"),
    "SVM-L2": (GREEN, "^", "svm-l2"),
}


def shown(
    gln: pd.DataFrame, relu: pd.DataFrame, shallow: pd.DataFrame, released: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Keep the cells of the table: medians; no momentum for GLNs, 0.9 for ReLU networks."""
    few = relu["seed"].isin(RELEASED_SEEDS) & (relu["units"] <= max(UNITS))
    return {
        "gln": at_medians(gln[gln["seed"].isin(RELEASED_SEEDS)]),
        "relu": relu[few & (relu["momentum"] == 0.9)],
        "shallow": with_a_fair_coin(shallow[shallow["threshold"] == "median"]),
        "released": released[released["threshold"] == "median"],
    }


def at_medians(gln: pd.DataFrame) -> pd.DataFrame:
    """Keep cells of GLNs at median thresholds without momentum."""
    return gln[(gln["momentum"] == 0.0) & (gln["threshold"] == "median")]


def numbers(*tables: pd.DataFrame) -> dict[str, Any]:
    """Return the mean error of each model at each N, and the table of all."""
    frames = shown(*tables)
    found: dict[str, Any] = {}
    lines = []
    for key, heading, table, model in ROWS:
        rows = frames[table][frames[table]["model"] == model]
        line = [heading]
        for size in TRAIN_SIZES:
            part = rows[rows["train_size"] == size]
            error = mean(part["error"], part["seed"])
            found[f"{key}_{size}"] = error
            line.append(format(error, ".1%") if isinstance(error, Effect) else "-")
        lines.append(line)
    headings = ["error, %", *(f"N = {size:,}" for size in TRAIN_SIZES)]
    return found | {"table": pd.DataFrame(lines, columns=headings)}


def draw(*tables: pd.DataFrame) -> Figure:
    """Draw figure 2 (a) and (b) at medians, as released and as computed here."""
    frames = shown(*tables)
    ours, theirs = frames["gln"], frames["released"]
    figure, axes = subplots((8.4, 6.6), 2, 2, sharex=True, sharey="row", grid="both")
    sides = (("as released", theirs, "GD-GLN"), ("computed here", ours, "gd-gln"))
    for column, (title, frame, network) in enumerate(sides):
        networks = frame[(frame["model"] == network) & ~(frame["momentum"] > 0)]
        errors = networks.set_index(list(GLN_KEYS))["error"]
        for label, (colour, marker, own_name) in LOOKS.items():
            name = label if frame is theirs else own_name
            rows = frame[frame["model"] == name].set_index(list(GLN_KEYS))
            rows = rows.assign(of_network=errors.reindex(rows.index))
            look = {"color": colour, "marker": marker, "linestyle": "", "ms": 4.5, "alpha": 0.8}
            for ax, value in zip(axes[:, column], ("error", "from_network"), strict=True):
                ax.plot(100 * rows["of_network"], 100 * rows[value], label=label, **look)
        axes[0, column].set_title(title, loc="left")
    _finish(axes)
    return common_legend(figure, figure.axes, 4)


def _finish(axes: Any) -> None:
    """Draw equality and chance, and label the axes."""
    p = np.linspace(0.05, 0.2, 101)
    above, below = axes
    for ax in above:
        ax.axline((10, 10), slope=1, color=GREY, linewidth=1.2, label="equal errors")
    for ax in below:
        ax.plot(100 * p, 100 * 2 * p * (1 - p), color=ORANGE, label="chance, 2p(1 − p)")
        ax.set_xlabel("error of GD-GLN, %")
    first: Axes = above[0]
    first.set_ylabel("error of the SVM, %")
    below[0].set_ylabel("disagreement with GD-GLN, %")
