"""What a `Recorder` has recorded: margins and KKT gaps against the steps."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from implicit_bias.report import style

# From this many steps on their axis is logarithmic, but between 0 and the first one after it.
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
            elif frame["step"].min() == 0:
                first, last = sorted(frame["step"])[1], frame["step"].max()
                ticks = ax.xaxis.get_major_locator().tick_values(first, last)
                ax.set_xscale("symlog", linthresh=first)
                ax.set_xticks([0, *(tick for tick in ticks if first <= tick <= last)])
                ax.xaxis.set_major_formatter("{x:g}")
                ax.set_xlim(0, last)
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
    for start, end in zip(steps[missing], np.append(steps[1:], steps[-1])[missing], strict=True):
        ax.axvspan(start, end, color=style.GREY, alpha=0.2, linewidth=0)
    ax.set_xlim(steps[0], max(steps[-1], steps[0] + 1))
    if missing.all():
        ax.set(yscale="linear", ylim=(0, 1.05))
    ax.annotate(
        f"grey: not separated yet\n({missing.sum()} of {len(missing)} points)",
        (0.03, 0.03),
        xycoords="axes fraction",
        fontsize="small",
    )
