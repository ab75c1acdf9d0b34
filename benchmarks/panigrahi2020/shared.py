"""What the experiments on the activation Gram matrix share: looks, cuts, and small helpers."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from implicit_bias.report.style import COLOURS, MARKERS

DRAWN = ("relu", "leaky-relu", "selu", "elu", "swish", "tanh", "quadratic")
COLOUR = dict(zip(DRAWN, COLOURS, strict=True))
MARKER = dict(zip(DRAWN, MARKERS, strict=False))
TRAINED = ("relu", "selu", "elu", "swish", "tanh")
SMOOTH = ("swish", "tanh")
# Relative to the largest, an eigenvalue of a float64 matrix below this is rounding.
ROUNDING = 1e-13


def parts(frame: pd.DataFrame, column: str) -> list[tuple[str, pd.DataFrame]]:
    """Split rows by the value of a column, in the order of the frame."""
    return [(str(value), rows) for value, rows in frame.groupby(column, sort=False)]


def number(value: float) -> str:
    """Write a number to two digits."""
    return f"{value:.2g}"


def plain_numbers(ax: Axes, *, ordinate: bool = True) -> None:
    """Write small numbers on logarithmic axes as they are, and only some of them."""
    for axis in (ax.xaxis, ax.yaxis) if ordinate else (ax.xaxis,):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
