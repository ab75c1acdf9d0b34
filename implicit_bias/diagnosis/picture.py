"""A diagnosis as a picture of three panels."""

from __future__ import annotations

import math

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from implicit_bias.base.colours import BLUE, GREY, VERMILION
from implicit_bias.diagnosis.result import Diagnosis

# Size in inches.
SIZE = (12.6, 3.2)
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
# Pairs that are drawn, those of the smallest margins; layers.
MOST_PAIRS, MOST_LAYERS = 5000, 8


def draw(diagnosis: Diagnosis) -> Figure:
    """Draw margins with their multipliers, the gaps by geometry, and the layers' bounds."""
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=SIZE, layout="constrained")
        margins, gaps, layers = figure.subplots(1, 3)
        finite = np.isfinite(diagnosis.margins)
        q, weights = diagnosis.margins[finite], diagnosis.multipliers[finite]
        order = np.argsort(q)[:MOST_PAIRS]
        q, share = q[order], weights[order] / (weights.max() or 1.0)
        active = share > 0
        margins.scatter(q[~active], share[~active], s=9, color=GREY, label="multiplier 0")
        margins.scatter(q[active], share[active], s=16, marker="^", color=BLUE, label="positive")
        margins.set(
            xscale="log",
            xlabel="margin / smallest margin",
            ylabel="multiplier / largest",
            title="Who is at the margin",
        )
        margins.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        margins.xaxis.set_major_formatter("{x:g}")
        margins.xaxis.set_minor_formatter(NullFormatter())
        margins.legend()

        names = [diagnosis.norm, *(name for name in diagnosis.gaps if name != diagnosis.norm)]
        values = [diagnosis.gaps[name] for name in names]
        colours = [VERMILION, *([GREY] * (len(names) - 1))]
        gaps.barh(names[::-1], values[::-1], color=colours[::-1])
        gaps.set(
            xlim=(0, 1),
            xlabel="KKT gap (grey: upper bound)\nacross norms only 0 compares",
            title="In which geometry",
        )
        for place, value in enumerate(values[::-1]):
            inside = value > 0.7
            gaps.annotate(
                f"{value:.3g}",
                (value, place),
                xytext=(-4 if inside else 4, 0),
                textcoords="offset points",
                ha="right" if inside else "left",
                va="center",
                color="white" if inside else "black",
            )

        bounded = [layer for layer in diagnosis.layers if not math.isnan(layer.gap)]
        shown = sorted(bounded, key=lambda layer: -layer.gap)[:MOST_LAYERS][::-1]
        layers.barh([layer.name for layer in shown], [layer.gap for layer in shown], color=BLUE)
        layers.set(xlim=(0, 1), xlabel="KKT gap of the layer alone", title="Which layer can shrink")
        if not shown:
            layers.text(
                0.5, 0.5, "no layer is linear alone", ha="center", transform=layers.transAxes
            )
            layers.set_yticks([])
    return figure
