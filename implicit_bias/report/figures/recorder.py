"""What a `Recorder` has recorded: margins and KKT gaps against the steps."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from implicit_bias.report import style


def draw_recorder(
    frame: pd.DataFrame, norms: tuple[str, ...], *, gaps: bool, many_steps: int = 100
) -> Figure:
    """Draw margins, as fractions of the largest of the same norm, and gaps.

    Parameters
    ----------
    frame : DataFrame
        From `Recorder.frame`.
    norms : tuple of str
        Their names.
    gaps : bool
        Whether gaps were recorded, too.
    many_steps : int
        From this many steps on their axis is logarithmic, but between 0 and the first one after it.
    """
    panels = 1
    if gaps:
        panels = 2
    separated = frame["min_margin"] > 0
    with style.style():
        figure = Figure(figsize=(panels * style.WIDTH, style.HEIGHT), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
        for i, name in enumerate(norms):
            # Margins of different norms have different scales: each over its own largest.
            margin = frame[f"margin_{name}"].where(separated)
            curves = [margin / margin.max()]
            if gaps:
                curves.append(frame[f"gap_{name}"])
            for ax, values in zip(axes, curves, strict=True):
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
        for ax in axes:
            ax.set_xlabel("steps")
            style.logarithmic(ax)
            if frame["step"].max() < many_steps:
                ax.set_xscale("linear")
            elif frame["step"].min() == 0:
                # A logarithmic axis has no 0: it is linear up to the first step after it.
                ax.set_xscale("symlog", linthresh=sorted(frame["step"])[1])
                ax.set_xlim(0, frame["step"].max())
            _shade_before_separation(ax, frame)
        axes[0].set_yscale("linear")
        axes[0].set(ylim=(0, 1.05), title="Margin", ylabel="margin / norm^L, over its largest")
        axes[0].legend(title="norm", loc="lower right")
        if gaps:
            axes[1].set(title="Distance from a KKT point", ylabel="KKT gap")
    return figure


def _shade_before_separation(ax: Axes, frame: pd.DataFrame) -> None:
    """Shade the points at which a sample is misclassified: they have no gap."""
    # A point is shaded up to the next one.
    steps = frame["step"].to_numpy()
    missing = ~(frame["min_margin"] > 0).to_numpy()
    if not missing.any():
        return
    ends = np.append(steps[1:], steps[-1])
    for start, end in zip(steps[missing], ends[missing], strict=True):
        ax.axvspan(start, end, color=style.GREY, alpha=0.2, linewidth=0)
    ax.annotate("grey: not separated yet", (0.03, 0.03), xycoords="axes fraction", fontsize="small")
