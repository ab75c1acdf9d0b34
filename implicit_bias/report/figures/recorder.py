"""What a `Recorder` has recorded: margins and KKT gaps against the steps."""

import pandas as pd
from matplotlib.figure import Figure

from implicit_bias.report.figures.limit import logarithmic
from implicit_bias.report.style import COLOURS, HEIGHT, LINES, MARKERS, WIDTH, style

# From this many steps on their axis is logarithmic, so that step 0 is not shown.
MANY_STEPS = 100


def draw(frame: pd.DataFrame, norms: tuple[str, ...], *, gaps: bool) -> Figure:
    """Draw margins, as shares of the largest of the same norm, and gaps.

    Parameters
    ----------
    frame : DataFrame
        From `Recorder.frame`.
    norms : tuple of str
        Their names.
    gaps : bool
        Whether gaps were recorded, too.
    """
    with style():
        figure = Figure(figsize=((1 + gaps) * WIDTH, HEIGHT), layout="constrained")
        margins, *others = figure.subplots(1, 1 + gaps, squeeze=False)[0]
        for i, name in enumerate(norms):
            margin = frame[f"margin_{name}"]
            panels = [
                (margins, margin / margin.max()),
                *((ax, frame[f"gap_{name}"]) for ax in others),
            ]
            for ax, values in panels:
                shown = values > 0
                ax.plot(
                    frame["step"][shown],
                    values[shown],
                    LINES[i % len(LINES)],
                    color=COLOURS[i % len(COLOURS)],
                    marker=MARKERS[i % len(MARKERS)],
                    markersize=3.5,
                    markevery=max(1, len(frame) // 12),
                    label=name,
                )
        margins.set(title="Margin", ylabel="margin / norm^L, share of the largest")
        for ax in others:
            ax.set(title="Distance from a KKT point", ylabel="KKT gap")
        for ax in (margins, *others):
            ax.set(xlabel="steps")
            logarithmic(ax)
            if frame["step"].max() < MANY_STEPS:
                ax.set_xscale("linear")
        margins.set_yscale("linear")
        margins.set(ylim=(0, 1.05))
        margins.legend(title="norm", loc="lower right")
    return figure
