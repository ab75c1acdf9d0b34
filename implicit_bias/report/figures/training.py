"""What a training has recorded, against its steps: towards its limit, and along any loop."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from implicit_bias.base.atomic import write_atomically
from implicit_bias.diagnosis.box import BoxThresholds
from implicit_bias.report import style
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
    n_panels = 1
    if gaps:
        n_panels = 2
    separated = frame["min_margin"] > 0
    with style.style():
        figure, axes = style.panels(n_panels)
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


def draw_box_trace(frame: pd.DataFrame) -> Figure:
    """Draw scores of averaged gradients and of batches, norms over radii, and shares.

    Parameters
    ----------
    frame : DataFrame
        From `BoxTrace.frame`.
    """
    with style.style():
        figure, (left, right) = style.panels(2)
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


def draw_margin_trace(frame: pd.DataFrame) -> Figure:
    """Draw normalised margins with bounds on their maximum, and alignments.

    Parameters
    ----------
    frame : DataFrame
        From `MarginTrace.frame`.
    """
    with style.style():
        figure, (left, right) = style.panels(2)
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
