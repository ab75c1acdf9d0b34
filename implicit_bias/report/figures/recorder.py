"""What a `Recorder` has recorded: margins and KKT gaps against the steps."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from implicit_bias.report import style

# From this many steps on their axis is logarithmic, so that step 0 is not shown.
MANY_STEPS = 100


def draw_recorder(frame: pd.DataFrame, norms: tuple[str, ...], *, gaps: bool) -> Figure:
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
    with style.style():
        figure = Figure(figsize=((1 + gaps) * style.WIDTH, style.HEIGHT), layout="constrained")
        margins, *others = figure.subplots(1, 1 + gaps, squeeze=False)[0]
        for i, name in enumerate(norms):
            margin = frame[f"margin_{name}"].where(frame["min_margin"] > 0)
            panels = [
                (margins, margin / margin.max()),
                *((ax, frame[f"gap_{name}"]) for ax in others),
            ]
            for ax, values in panels:
                shown = values > 0
                ax.plot(
                    frame["step"][shown],
                    values[shown],
                    style.LINES[i % len(style.LINES)],
                    color=style.COLOURS[i % len(style.COLOURS)],
                    marker=style.MARKERS[i % len(style.MARKERS)],
                    markersize=3.5,
                    markevery=max(1, len(frame) // 12),
                    label=name,
                )
        margins.set(title="Margin", ylabel="margin / norm^L, share of the largest")
        for ax in others:
            ax.set(title="Distance from a KKT point", ylabel="KKT gap")
        for ax in (margins, *others):
            ax.set(xlabel="steps")
            style.logarithmic(ax)
            if frame["step"].max() < MANY_STEPS:
                ax.set_xscale("linear")
            _before_separation(ax, frame)
        margins.set_yscale("linear")
        margins.set(ylim=(0, 1.05))
        margins.legend(title="norm", loc="lower right")
    return figure


def _before_separation(ax: Axes, frame: pd.DataFrame) -> None:
    """Shade the points at which a sample is on the wrong side: they have no gap, and no share."""
    steps, missing = frame["step"].to_numpy(), ~(frame["min_margin"] > 0).to_numpy()
    if not missing.any():
        return
    shown = steps[steps > 0] if ax.get_xscale() == "log" else steps
    low, high = (shown.min(), shown.max()) if len(shown) else (1, 1)
    for start, end in zip(steps[missing], np.append(steps[1:], steps[-1])[missing], strict=True):
        ax.axvspan(max(start, low), max(end, low), color=style.GREY, alpha=0.2, linewidth=0)
    ax.set_xlim(low, high if high > low else low + 1)
    if missing.all():
        ax.set(yscale="linear", ylim=(0, 1.05))
    ax.annotate(
        f"grey: not separated yet\n({missing.sum()} of {len(missing)} points)",
        (0.03, 0.03),
        xycoords="axes fraction",
        fontsize="small",
    )
