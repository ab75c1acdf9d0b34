"""Figures of a training towards the limit: how fast it gets there.

A quantity that decays like steps^p is a straight line of slope p where both axes are logarithmic.
The exponent is fitted, by least squares of the logarithms, to the last factor 10 of the steps.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from implicit_bias.comparison.verdict import WORDS
from implicit_bias.report.figures.base import Plot, with_words
from implicit_bias.report.style import BLUE, logarithmic, panel
from implicit_bias.training.limit import LimitResult


def decay_exponent(
    steps: Sequence[float], values: Sequence[float], *, tail: float = 10.0, least_points: int = 3
) -> float:
    """Fit p of values ~ steps^p over the last steps; nan where it cannot be.

    Values that are not positive and finite have no logarithm and are left out.

    Parameters
    ----------
    steps, values : sequence of float
        The curve.
    tail : float
        Factor between the last step and the first one that counts.
    least_points : int
        Fewer points than these give no exponent.
    """
    x = np.asarray(steps, dtype=float)
    y = np.asarray(values, dtype=float)
    if len(x) == 0:
        return math.nan
    counts = (x > 0) & (x >= x.max() / tail) & (y > 0) & np.isfinite(y)
    if np.count_nonzero(counts) < least_points:
        return math.nan
    return float(np.polyfit(np.log(x[counts]), np.log(y[counts]), 1)[0])


def limit_plots(name: str, result: LimitResult, columns: Sequence[str]) -> Iterator[Plot]:
    """Draw columns of a history against the steps, each with its fitted exponent.

    Parameters
    ----------
    name : str
        How the network is called.
    result : LimitResult
        Its training.
    columns : sequence of str
        Columns of `LimitResult.frame`, the caller's own measures among them. One that has no
        positive value gives no figure.

    Yields
    ------
    Plot
        To be drawn and saved inside `style`.
    """
    frame = result.frame()
    for column in columns:
        shown = frame[(frame["step"] > 0) & (frame[column] > 0) & np.isfinite(frame[column])]
        if shown.empty:
            continue
        exponent = decay_exponent(frame["step"].tolist(), frame[column].tolist())
        rate = ""
        if math.isfinite(exponent):
            rate = f", ~ steps^{exponent:.2g}"
        figure, ax = panel()
        ax.plot(shown["step"], shown[column], color=BLUE, label=f"{name}{rate}")
        label = WORDS["curves"].get(column, column.replace("_", " "))
        ax.set(xlabel="steps", ylabel=label)
        logarithmic(ax)
        figure.legend(loc="outside lower center", ncols=1)
        last = f"{shown[column].iloc[-1]:.3g}{rate}"
        file = column.replace("_", "-")
        yield with_words(file, figure, "limit", curve=label, network=name, last=last)
