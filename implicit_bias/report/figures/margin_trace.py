"""What a `MarginTrace` has recorded: margins below their bounds, and alignments."""

import pandas as pd
from matplotlib.figure import Figure

from implicit_bias.report import style


def draw_margin_trace(frame: pd.DataFrame) -> Figure:
    """Draw normalised margins with bounds on their maximum, and alignments.

    Parameters
    ----------
    frame : DataFrame
        From `MarginTrace.frame`.
    """
    with style.style():
        figure = Figure(figsize=(2 * style.WIDTH, style.HEIGHT), layout="constrained")
        left, right = figure.subplots(1, 2)
        steps = frame["step"]
        left.plot(steps, frame["margin"], color=style.COLOURS[0], label="margin of the batch")
        if frame["upper"].notna().any():
            left.plot(
                steps, frame["upper"], color=style.GREY, linewidth=0.8, label="bound by gradients"
            )
            left.plot(
                steps, frame["best_upper"], color=style.COLOURS[1], label="least bound so far"
            )
        left.set(xlabel="steps", ylabel="normalised margin", title="The maximum margin")
        left.legend(loc="best")
        right.plot(steps, frame["alignment"], color=style.COLOURS[0])
        right.axhline(1.0, color=style.GREY, linestyle=":")
        right.set(xlabel="steps", title="Alignment of weights and gradient")
    return figure
