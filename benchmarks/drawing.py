"""What pictures of several studies share."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Figure
from PIL import Image

from implicit_bias.base.style import COLOURS, LINES, MARKERS

DPI, N_COLOURS = 150, 256


def subplots(
    size: tuple[float, float],
    rows: int = 1,
    columns: int = 1,
    *,
    grid: Literal["x", "y", "both"] | None = None,
    x: str = "",
    y: str = "",
    **options: Any,
) -> Any:
    """Return a figure of a size in inches and its panels, as matplotlib's function does.

    All panels have the grid, those in the last row a label x, and those on the left a label y.
    """
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, **options)
    for place, ax in enumerate(figure.axes):
        last, left = place >= (rows - 1) * columns, place % columns == 0
        ax.set(xlabel=x * last, ylabel=y * left)
        if grid:
            ax.grid(axis=grid)
    return figure, panels


def look_of(place: int, *, markers: bool = False) -> dict[str, Any]:
    """Tell the curve of a place apart from the others, by colour, line and perhaps marker."""
    look = {"color": COLOURS[place], "linestyle": LINES[place % len(LINES)]}
    return look | {"marker": MARKERS[place]} if markers else look


def curves(
    ax: Axes,
    frame: pd.DataFrame,
    by: str,
    x: str,
    y: str,
    *,
    label: str = "{}",
    markers: bool = False,
    **look: Any,
) -> None:
    """Draw a curve for each value of a column, told apart by colour, line and perhaps marker.

    Points that are not finite are left out.
    """
    for place, (value, run) in enumerate(frame.groupby(by, sort=False)):
        run = run[np.isfinite(run[y])]
        shown = look | look_of(place, markers=markers)
        ax.plot(run[x], run[y], label=label.format(value), **shown)


def tick_values(
    ax: Axes,
    values: Iterable[float],
    *,
    along: Literal["x", "y"] = "x",
    write: str = "{:g}",
    **options: Any,
) -> None:
    """Label an axis at these values and nowhere else."""
    ticks, axis = sorted(set(values)), ax.xaxis if along == "x" else ax.yaxis
    axis.set_ticks(ticks, labels=[write.format(tick) for tick in ticks], **options)
    axis.set_ticks([], minor=True)


def common_legend(figure: Figure, axes: Iterable[Axes], columns: int, **look: Any) -> Figure:
    """Put one legend below all panels, every label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        drawn, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    look |= {"loc": "outside lower center", "ncols": columns}
    figure.legend(handles.values(), handles.keys(), **look)
    return figure


def of_few_colours(figure: Figure, dpi: int = DPI) -> bytes:
    """Return a small PNG whose few colours are chosen to keep small markers apart."""
    drawn, small = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi)
    image = Image.open(drawn).convert("RGB")
    few = image.quantize(N_COLOURS, method=Image.Quantize.MAXCOVERAGE)
    few.save(small, "png", optimize=True)
    return small.getvalue()
