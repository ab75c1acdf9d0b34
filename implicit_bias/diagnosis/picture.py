"""A diagnosis as a picture of three panels."""

from __future__ import annotations

import math

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from implicit_bias.base.colours import BLUE, GREY, VERMILION
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.diagnosis.result import Diagnosis

# Size in inches.
SIZE = (12.6, 3.2)
STYLE = {"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}
# Pairs that are drawn, those of the smallest margins; layers.
MOST_PAIRS, MOST_LAYERS = 5000, 8
# Images a row, and the size of one in inches.
IMAGES_A_ROW, IMAGE_SIZE = 8, 1.2


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


def draw_support(diagnosis: Diagnosis, images: NDArray[np.generic], count: int) -> Figure:
    """Draw the images of the largest shares in the multipliers, with these."""
    pictures, shares = _as_pictures(images, diagnosis), diagnosis.sample_shares
    order = np.argsort(-shares, kind="stable")[:count]
    chosen = order[shares[order] > 0]
    columns = min(IMAGES_A_ROW, max(len(chosen), 1))
    rows = max(1, math.ceil(len(chosen) / columns))
    with matplotlib.style.context(["default", STYLE]):
        size = (IMAGE_SIZE * columns, 1.35 * IMAGE_SIZE * rows)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis in axes:
            axis.set_axis_off()
        for axis, n in zip(axes, chosen, strict=False):
            axis.imshow(pictures[n], cmap="gray")
            said = f"{n}: {percent(shares[n], space=' ')}"
            if diagnosis.multipliers.ndim == 2:
                label, rival = diagnosis.margins[n].argmax(), diagnosis.multipliers[n].argmax()
                said += f"\n{label} against {rival}"
            axis.set_title(said, fontsize=8)
    return figure


def _as_pictures(images: NDArray[np.generic], diagnosis: Diagnosis) -> Array:
    """Images (N, h, w) or (N, h, w, 3) of values from 0 to 1."""
    n = len(diagnosis.margins)
    if images.ndim == 4 and images.shape[1] in (1, 3):
        images = np.moveaxis(images, 1, -1)
        images = images[..., 0] if images.shape[-1] == 1 else images
    if images.ndim != 3 + (images.ndim == 4 and images.shape[-1] == 3) or len(images) != n:
        raise ValueError(
            f"images must be of shape ({n}, height, width) or ({n}, 1 or 3, height, width), got "
            f"{images.shape}: reshape the samples of the diagnosis"
        )
    values = images.astype(np.float64)
    flat = values.reshape(n, -1)
    least, most = flat.min(axis=1), flat.max(axis=1)
    places = (n, *(1,) * (values.ndim - 1))
    span = np.where(most > least, most - least, 1.0)
    return np.asarray((values - least.reshape(places)) / span.reshape(places))
