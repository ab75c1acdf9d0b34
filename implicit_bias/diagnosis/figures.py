"""A diagnosis as a picture of two or three panels; recorders and traces against the steps."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from implicit_bias.base import style
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.diagnosis.box import BoxThresholds
from implicit_bias.diagnosis.result import Diagnosis


def draw_diagnosis(
    diagnosis: Diagnosis, *, most_pairs: int = 5000, most_layers: int = 8, most_named: int = 5
) -> Figure:
    """Draw margins with their multipliers, KKT gaps by norm, and KKT gaps by layer.

    Parameters
    ----------
    diagnosis : Diagnosis
        What is drawn.
    most_pairs : int
        Pairs of a sample and a rival class that are drawn at most, those of the smallest margins.
    most_layers : int
        Layers that are drawn at most, those of the largest gaps.
    most_named : int
        Samples that are named at most, those of the largest multipliers.
    """
    bounded = [layer for layer in diagnosis.layers if not math.isnan(layer.gap)]
    n_panels = 2
    if bounded:  # where no layer is linear by itself there is no gap by layer
        n_panels = 3
    with style.style():
        figure, (margins, gaps, *others) = style.panels(n_panels)

        # Margins and multipliers of the pairs that are nearest to the margin.
        finite = np.isfinite(diagnosis.margins)
        order = np.argsort(diagnosis.margins[finite])[:most_pairs]
        q = diagnosis.margins[finite][order]
        weights = diagnosis.multipliers[finite]
        # Multipliers have no unit that a reader knows, their shares of the largest one do without.
        share = weights[order] / (weights.max() or 1.0)
        active = share > 0
        margins.scatter(q[~active], share[~active], s=9, color=style.GREY, label="multiplier 0")
        margins.scatter(
            q[active], share[active], s=16, marker="^", color=style.BLUE, label="multiplier > 0"
        )
        style.logarithmic(margins)
        largest = ", ".join(str(n) for n, _, _ in diagnosis.largest_shares(most_named))
        # `logarithmic` set both axes; most multipliers are 0, which only a linear axis has.
        margins.set(yscale="linear", title="Margins and multipliers")
        margins.set_xlabel(f"margin / smallest margin\nlargest multipliers: samples {largest}")
        margins.set_ylabel("multiplier / largest")
        margins.legend()

        # The norm of the diagnosis comes last, which is on top.
        names = sorted(diagnosis.gaps, key=lambda name: name == diagnosis.norm)
        bars = gaps.barh(names, [diagnosis.gaps[name] for name in names], color="none")
        numbers = []
        for name, bar in zip(names, bars, strict=True):
            bar.set_edgecolor(style.GREY)
            number = f"{diagnosis.gaps[name]:.3g}"
            if name == diagnosis.norm:
                bar.set_color(style.VERMILION)
            if name != diagnosis.norm or diagnosis.gap_lower < diagnosis.gap:
                number = f"≤ {number}"
            numbers.append(number)
        gaps.set(title="KKT gap by norm")
        # Gaps of different norms do not compare, but 0 means a KKT point in each.
        gaps.set_xlabel(
            "KKT gap (filled: the norm of this diagnosis)\n"
            "hollow: upper bounds; diagnose(norm=...) has the gap\n"
            "across norms only gaps near 0 compare"
        )
        gaps.bar_label(bars, labels=numbers, padding=4)
        gaps.set_xlim(0, 1)

        shown = sorted(bounded, key=lambda layer: layer.gap)[-most_layers:]
        for ax in others:  # one or none
            layers = [layer.name for layer in shown]
            drawn = ax.barh(layers, [layer.gap for layer in shown], color=style.BLUE)
            ax.set(title="KKT gap by layer", xlabel="KKT gap of the layer alone", xlim=(0, 1))
            ax.bar_label(drawn, fmt="{:.3g}", padding=4)
    return figure


def draw_support(diagnosis: Diagnosis, images: NDArray[np.generic], count: int) -> Figure:
    """Draw the images of the largest multipliers, each with its fraction of their sum."""
    pictures = _as_pictures(images, diagnosis)
    tiles = []
    for n, share, words in diagnosis.largest_shares(count):
        title = f"{n}: {percent(share, space=' ')}\n{words}".rstrip()
        tiles.append((title, pictures[n]))
    with style.style():
        return style.image_grid(
            "samples, fractions of all multipliers", tiles, colours="gray", limits=(0.0, 1.0)
        )


def _as_pictures(images: NDArray[np.generic], diagnosis: Diagnosis) -> Array:
    """Return images (N, h, w) or (N, h, w, 3), each scaled to values from 0 to 1."""
    n = len(diagnosis.margins)
    pictures = images
    if images.ndim == 4 and images.shape[1] in (1, 3):  # torch has the channels first
        pictures = np.moveaxis(images, 1, -1)
        if pictures.shape[-1] == 1:
            pictures = pictures[..., 0]
    is_coloured = pictures.ndim == 4 and pictures.shape[-1] == 3
    if len(pictures) != n or not (pictures.ndim == 3 or is_coloured):
        raise ValueError(
            f"images must be of shape ({n}, height, width) or ({n}, 1 or 3, height, width), got "
            f"{images.shape}: reshape the samples of the diagnosis"
        )
    # Each by its own darkest and brightest pixel; an image of one value is black.
    values = pictures.astype(np.float64)
    axes = tuple(range(1, values.ndim))
    least = values.min(axis=axes, keepdims=True)
    span = values.max(axis=axes, keepdims=True) - least
    return np.asarray((values - least) / np.where(span > 0, span, 1.0))


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
            first = frame["step"].min()
            last = frame["step"].max()
            if first == last:
                # One point is in the middle of two steps.
                ax.set_xscale("linear")
                ax.set_xlim(first - 1, first + 1)
            elif last < many_steps:
                ax.set_xscale("linear")
            elif first == 0:
                # A logarithmic axis has no 0: it is linear up to the first step after it.
                ax.set_xscale("symlog", linthresh=sorted(frame["step"])[1])
                # Not as formulas: the style takes dollar signs as they are.
                ax.xaxis.set_major_formatter("{x:g}")
                ax.set_xlim(0, last)
            _shade_before_separation(ax, frame)
        axes[0].set_yscale("linear")
        axes[0].set(ylim=(0, 1.05), title="Margin, over its largest recorded")
        axes[0].set_ylabel("margin / norm^L, relative")
        axes[0].legend(title="norm", loc="lower right")
        if gaps:
            axes[1].set(title="Distance from a KKT point", ylabel="KKT gap")
    return figure


def _shade_before_separation(ax: Axes, frame: pd.DataFrame) -> None:
    """Shade the points at which a sample is misclassified: they have no gap."""
    # A point is shaded up to the next one, and the last one up to the end of the axis.
    steps = frame["step"].to_numpy()
    missing = ~(frame["min_margin"] > 0).to_numpy()
    if not missing.any():
        return
    ends = np.append(steps[1:], max(ax.get_xlim()))
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
            title="Distance from a KKT point of the box",
        )
        style.logarithmic(left, x=False)
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
    """Draw normalized margins with bounds on their maximum, and alignments.

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
        left.set(xlabel="steps", ylabel="normalized margin", title="The maximum margin")
        left.legend(loc="best")
        right.plot(steps, frame["alignment"], color=style.COLOURS[0])
        right.axhline(1.0, color=style.GREY, linestyle=":")
        right.set(xlabel="steps", title="Alignment of weights and gradient")
    return figure
