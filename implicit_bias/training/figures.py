"""The figure of a training towards its limit: what it has recorded, against its steps."""

from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from implicit_bias.base import style
from implicit_bias.base.atomic import write_atomically
from implicit_bias.training.limit import LimitResult


def write_limit(file: Path, result: LimitResult) -> Path:
    """Write the figure of a training (PNG) and return its file."""
    with style.style():
        figure = draw_limit(result)
        write_atomically(file, partial(figure.savefig, format="png", metadata={"Software": None}))
    return file


def draw_limit(result: LimitResult) -> Figure:
    """Draw the normalized margin beside its upper bound, and what tends to 0, where it is known."""
    frame = result.frame()
    # The axes are logarithmic, and training begins at step 0.
    frame = frame[frame["step"] > 0]
    # What tends to 0 in the limit; each is known of some networks only.
    distances = {
        "excess": "norm / minimum − 1",
        "gap": "KKT gap in the norm of the training",
        "residual": "KKT residual",
    }
    curves = {}
    for column, label in distances.items():
        if column in frame:
            shown = frame[np.isfinite(frame[column]) & (frame[column] > 0)]
            if len(shown):
                curves[label] = (shown["step"], shown[column])

    n_panels = 1
    if curves:
        n_panels = 2
    figure, (margins, *others) = style.panels(n_panels)
    margins.plot(frame["step"], frame["normalised_margin"], color=style.BLUE, label="margin / norm")
    known = frame[np.isfinite(frame["excess"])]
    if len(known):
        # excess = norm / margin / minimum − 1, so the bound 1 / minimum is the same at each point.
        last = known.iloc[-1]
        bound = last["normalised_margin"] * (1.0 + last["excess"])
        margins.axhline(
            bound, color=style.VERMILION, linestyle="--", label="1 / certified minimum norm"
        )
    margins.set(xlabel="step", xscale="log", title="Normalized margin")
    margins.xaxis.set_major_formatter("{x:g}")
    margins.legend(loc="best")

    for ax in others:
        for number, (label, (steps, values)) in enumerate(curves.items()):
            look = style.look(number)
            ax.plot(steps, values, look.line, color=look.colour, label=label)
        style.logarithmic(ax)
        ax.set(xlabel="step", title="Distance from the limit")
        ax.legend(loc="best")
    return figure
