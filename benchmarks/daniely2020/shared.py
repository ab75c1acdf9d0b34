"""What the experiments on parities share: looks of the methods, means, and rates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from implicit_bias.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from implicit_bias.validation import Array

# Colour and line of each method, the same in all pictures.
LOOKS = {
    "theorem 3": (BLUE, "o-"),
    "ReLU network": (SKY, "s-"),
    "frozen gates": (VERMILION, "^--"),
    "ReLU features": (GREEN, "v:"),
    "Gaussian features": (PURPLE, "D:"),
    "group SVM": (ORANGE, "P--"),
}


def tick_values(ax: Axes, values: Iterable[float]) -> None:
    """Label the x axis at these values and nowhere else."""
    ticks = sorted(set(values))
    ax.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)


def by_method(frame: pd.DataFrame, x: str, y: str) -> dict[str, dict[int, float]]:
    """Mean of column y for each method and each x, both in the order of the table."""
    found: dict[str, dict[int, float]] = {}
    at: Any  # method and x
    for at, value in frame.groupby(["method", x], sort=False)[y].mean().items():
        found.setdefault(at[0], {})[at[1]] = value
    return found


def error_rate(outputs: Array, y: Array) -> float:
    """Share of samples on which the sign of f is wrong, or f is 0."""
    return float(np.mean(y * outputs <= 0))


def rms(values: ArrayLike) -> float:
    """Root mean square of all entries."""
    return math.sqrt(float(np.mean(np.square(values))))
