"""Looks of the methods, the same in all pictures."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes

from implicit_bias.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

# Colour and line of each method.
LOOKS = {
    "theorem 3": (BLUE, "o-"),
    "ReLU network": (SKY, "s-"),
    "NTK regime": (VERMILION, "^--"),
    "ReLU features": (GREEN, "v:"),
    "Gaussian features": (PURPLE, "D:"),
    "group SVM": (ORANGE, "P--"),
}


def tick_values(ax: Axes, values: Iterable[float]) -> None:
    """Label the x axis at these values and nowhere else."""
    ticks = sorted(set(values))
    ax.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    ax.set_xticks([], minor=True)
