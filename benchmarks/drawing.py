"""What pictures of several studies share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def common_legend(figure: Figure, axes: Iterable[Axes], columns: int) -> Figure:
    """Put one legend below all panels, every label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        drawn, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    return figure
