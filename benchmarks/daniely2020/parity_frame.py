"""What the experiments on parities share: a table that is measured, its picture, and its words.

An experiment measures a table and says what the paper claims and what the table shows. Its command
prints the latter and keeps results/daniely2020/NAME.parquet and pictures/daniely2020/NAME.png
beside this folder; `parity_page` writes the page from what is kept, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from implicit_bias.files import write_atomically
from implicit_bias.report.figures import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, style
from implicit_bias.validation import Array

PAPER = Path(__file__).parent.name
# Colour and line of each method, the same in all pictures.
LOOKS = {
    "theorem 3": (BLUE, "o-"),
    "ReLU network": (SKY, "s-"),
    "frozen gates": (VERMILION, "^--"),
    "ReLU features": (GREEN, "v:"),
    "Gaussian features": (PURPLE, "D:"),
    "group SVM": (ORANGE, "P--"),
}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment of the page.

    Attributes
    ----------
    name : str
        Its command, and the stem of its files.
    title, claim : str
        Heading, and what the paper says, in our words.
    measure : callable
        Returns the table that is kept; whether in seconds, on small sizes.
    table : callable
        Of what was measured, what a reader wants to see: text in every cell.
    finding : callable
        Our measurement in words, with the numbers of the table.
    draw : callable
        The picture, the theory's curve in it.
    alt : str
        The picture for who cannot see it.
    """

    name: str
    title: str
    claim: str
    measure: Callable[[bool], pd.DataFrame]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    finding: Callable[[pd.DataFrame], str]
    draw: Callable[[pd.DataFrame], Figure]
    alt: str

    def results(self, folder: Path) -> Path:
        """File of the table that is kept under a folder."""
        return folder / "results" / PAPER / f"{self.name}.parquet"

    def picture(self, folder: Path) -> Path:
        """File of the picture under a folder."""
        return folder / "pictures" / PAPER / f"{self.name}.png"

    def run(self, *, quick: bool, folder: Path) -> pd.DataFrame:
        """Measure and draw, and keep both under a folder."""
        frame = self.measure(quick)
        write_atomically(self.results(folder), frame.to_parquet)
        self.redraw(folder)
        return frame

    def redraw(self, folder: Path) -> None:
        """Draw what is kept under a folder."""
        frame = pd.read_parquet(self.results(folder))
        with style(), matplotlib.rc_context({"text.parse_math": True}):  # powers of ten on axes
            figure = self.draw(frame)
            write_atomically(self.picture(folder), lambda path: figure.savefig(path, format="png"))


def common_legend(figure: Figure, axes: Iterable[Axes], columns: int) -> Figure:
    """Put one legend below all panels, every label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        drawn, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    return figure


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


def percent(share: float) -> str:
    """Per cent, with one digit behind the point."""
    return f"{100 * share:.1f} %"


def error_rate(outputs: Array, y: Array) -> float:
    """Share of samples on which the sign of f is wrong, or f is 0."""
    return float(np.mean(y * outputs <= 0))


def rms(values: ArrayLike) -> float:
    """Root mean square of all entries."""
    return math.sqrt(float(np.mean(np.square(values))))
