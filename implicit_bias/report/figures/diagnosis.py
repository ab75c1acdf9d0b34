"""A diagnosis as a picture of two or three panels, and the samples that its module remembers."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.diagnosis.result import Diagnosis
from implicit_bias.report.figures.support import IMAGES_A_ROW, image_grid
from implicit_bias.report.style import BLUE, GREY, HEIGHT, VERMILION, WIDTH, logarithmic, style

# Pairs that are drawn, those of the smallest margins; layers; samples that are named.
MOST_PAIRS, MOST_LAYERS, MOST_NAMED = 5000, 8, 5


def draw_diagnosis(diagnosis: Diagnosis) -> Figure:
    """Draw margins with their multipliers, the gaps by geometry, and the layers' bounds."""
    with style():
        bounded = [layer for layer in diagnosis.layers if not math.isnan(layer.gap)]
        panels = 3 if bounded else 2
        figure = Figure(figsize=(panels * WIDTH, HEIGHT), layout="constrained")
        margins, gaps, *layers = figure.subplots(1, panels)
        finite = np.isfinite(diagnosis.margins)
        q, weights = diagnosis.margins[finite], diagnosis.multipliers[finite]
        order = np.argsort(q)[:MOST_PAIRS]
        q, share = q[order], weights[order] / (weights.max() or 1.0)
        active = share > 0
        margins.scatter(q[~active], share[~active], s=9, color=GREY, label="multiplier 0")
        margins.scatter(q[active], share[active], s=16, marker="^", color=BLUE, label="positive")
        logarithmic(margins)
        margins.set(yscale="linear", title="Who is at the margin")
        most = ", ".join(str(n) for n, _, _ in diagnosis.largest_shares(MOST_NAMED))
        margins.set_xlabel(f"margin / smallest margin\nlargest shares: samples {most}")
        margins.set_ylabel("multiplier / largest")
        margins.legend()

        names = sorted(diagnosis.gaps, key=lambda name: name == diagnosis.norm)
        colours = [VERMILION if name == diagnosis.norm else GREY for name in names]
        gaps.barh(names, [diagnosis.gaps[name] for name in names], color=colours)
        gaps.set(title="In which geometry")
        gaps.set_xlabel("KKT gap (grey: upper bound)\nacross norms only 0 compares")

        shown = sorted(bounded, key=lambda layer: -layer.gap)[:MOST_LAYERS][::-1]
        for axes in layers:  # none where no layer is linear alone
            axes.barh([each.name for each in shown], [each.gap for each in shown], color=BLUE)
            axes.set(title="Which layer can shrink", xlabel="KKT gap of the layer alone")
        for axes in (gaps, *layers):
            axes.set_xlim(0, 1)
            axes.bar_label(axes.containers[0], fmt="{:.3g}", padding=4)
    return figure


def draw_support(diagnosis: Diagnosis, images: NDArray[np.generic], count: int) -> Figure:
    """Draw the images of the largest shares in the multipliers, with these."""
    pictures = _as_pictures(images, diagnosis)
    named = diagnosis.largest_shares(count)
    tiles = [
        (f"{n}: {percent(share, space=' ')}\n{said}".rstrip(), pictures[n])
        for n, share, said in named
    ]
    with style():
        return image_grid("largest multipliers", tiles, IMAGES_A_ROW, "gray", (0.0, 1.0))


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
