"""Figures of a training towards the limit: how fast it gets there.

A quantity that decays like steps^p is a straight line of slope p where both axes are logarithmic.
The exponent is fitted, by least squares of the logarithms, to the last factor `TAIL` of the steps.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from implicit_bias.report.figures.base import Plot
from implicit_bias.report.style import BLUE, logarithmic, panel
from implicit_bias.training.limit import LimitResult

# Factor between the last step and the first one that counts for the exponent.
TAIL = 10.0
# Least points of a fit.
LEAST_POINTS = 3
LABELS = {
    "excess": "excess over the optimum",
    "disagreement": "disagreement with the reference",
    "min_margin": "normalized margin",
    "residual": "KKT residual",
    "slackness": "complementary slackness",
    "balance": "deviation from |w| = ||W||",
}


def decay_exponent(steps: Sequence[float], values: Sequence[float]) -> float:
    """Fit p of values ~ steps^p over the last factor `TAIL` of the steps; nan where it cannot be.

    Values that are not positive and finite have no logarithm and are left out.
    """
    x = np.asarray(steps, dtype=float)
    y = np.asarray(values, dtype=float)
    if len(x) == 0:
        return math.nan
    counts = (x > 0) & (x >= x.max() / TAIL) & (y > 0) & np.isfinite(y)
    if np.count_nonzero(counts) < LEAST_POINTS:
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
        rate = "" if math.isnan(exponent) else f", ~ steps^{exponent:.2g}"
        figure, ax = panel()
        ax.plot(shown["step"], shown[column], color=BLUE, label=f"{name}{rate}")
        label = LABELS.get(column, column.replace("_", " "))
        ax.set(xlabel="steps", ylabel=label)
        logarithmic(ax)
        figure.legend(loc="outside lower center", ncols=1)
        yield Plot(
            column.replace("_", "-"),
            figure,
            f"{label} against the steps, both logarithmic: {name} ends at "
            f"{shown[column].iloc[-1]:.3g}{rate}",
            f"{label[0].upper()}{label[1:]}. A straight line is a power of the steps; the exponent "
            f"is that of the last factor {TAIL:g}.",
        )
