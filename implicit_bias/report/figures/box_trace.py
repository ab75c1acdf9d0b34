"""What a `BoxTrace` has recorded: scores, and the way of the weights to their walls."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from implicit_bias.diagnosis.box import BoxThresholds
from implicit_bias.report import style


def draw_box_trace(frame: pd.DataFrame) -> Figure:
    """Draw scores of averaged gradients and of batches, norms over radii, and shares.

    Parameters
    ----------
    frame : DataFrame
        From `BoxTrace.frame`.
    """
    with style.style():
        figure = Figure(figsize=(2 * style.WIDTH, style.HEIGHT), layout="constrained")
        left, right = figure.subplots(1, 2)
        steps = frame["step"]
        # The axis is logarithmic. Outside of the box, and by rounding, a score may be 0 or less.
        batches = frame["score_of_batch"]
        positive = batches > 0
        left.plot(
            steps[positive], batches[positive], color=style.GREY, linewidth=0.8, label="one batch"
        )
        positive = frame["score"] > 0
        left.plot(
            steps[positive],
            frame["score"][positive],
            color=style.COLOURS[0],
            label="averaged gradient",
        )
        # Below this line a diagnosis calls the weights near a KKT point.
        left.axhline(BoxThresholds.near, color=style.GREY, linestyle=":")
        left.set(
            xlabel="steps",
            ylabel="Frank-Wolfe gap, relative",
            yscale="log",
            title="Distance from a KKT point of the box",
        )
        left.legend(loc="best")
        curves = {
            "reached": "largest norm / radius",
            "at_wall": "weights at their wall",
            "decayed": "decay that has acted",
        }
        # All three are fractions: one axis of per cent does.
        for i, (column, label) in enumerate(curves.items()):
            right.plot(steps, frame[column], style.LINES[i], color=style.COLOURS[i], label=label)
        right.set(xlabel="steps", ylim=(0, None), title="The box that weight decay sets")
        right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        right.legend(loc="best")
    return figure
