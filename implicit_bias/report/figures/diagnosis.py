"""A diagnosis as a picture of two or three panels, and the samples that its module remembers."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.diagnosis.result import Diagnosis
from implicit_bias.report.figures.support import image_grid
from implicit_bias.report.style import BLUE, GREY, VERMILION, logarithmic, panels, style


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
    with style():
        figure, (margins, gaps, *others) = panels(n_panels)

        # Margins and multipliers of the pairs that are nearest to the margin.
        finite = np.isfinite(diagnosis.margins)
        order = np.argsort(diagnosis.margins[finite])[:most_pairs]
        q = diagnosis.margins[finite][order]
        weights = diagnosis.multipliers[finite]
        # Multipliers have no unit that a reader knows, their shares of the largest one do without.
        share = weights[order] / (weights.max() or 1.0)
        active = share > 0
        margins.scatter(q[~active], share[~active], s=9, color=GREY, label="multiplier 0")
        margins.scatter(q[active], share[active], s=16, marker="^", color=BLUE, label="positive")
        logarithmic(margins)
        largest = ", ".join(str(n) for n, _, _ in diagnosis.largest_shares(most_named))
        # `logarithmic` set both axes; most multipliers are 0, which only a linear axis has.
        margins.set(yscale="linear", title="Margins and multipliers")
        margins.set_xlabel(f"margin / smallest margin\nlargest multipliers: samples {largest}")
        margins.set_ylabel("multiplier / largest")
        margins.legend()

        # The norm of the diagnosis comes last, which is on top.
        names = sorted(diagnosis.gaps, key=lambda name: name == diagnosis.norm)
        bars = gaps.barh(names, [diagnosis.gaps[name] for name in names], color=GREY)
        for name, bar in zip(names, bars, strict=True):
            if name == diagnosis.norm:
                bar.set_color(VERMILION)
        gaps.set(title="KKT gap by norm")
        # Gaps of different norms do not compare, but 0 means a KKT point in each.
        gaps.set_xlabel("KKT gap (grey: upper bound)\nacross norms only 0 compares")

        shown = sorted(bounded, key=lambda layer: layer.gap)[-most_layers:]
        drawn = [bars]
        for ax in others:  # one or none
            layers = [layer.name for layer in shown]
            drawn.append(ax.barh(layers, [layer.gap for layer in shown], color=BLUE))
            ax.set(title="KKT gap by layer", xlabel="KKT gap of the layer alone")
        for ax, labelled in zip((gaps, *others), drawn, strict=True):
            ax.set_xlim(0, 1)
            ax.bar_label(labelled, fmt="{:.3g}", padding=4)
    return figure


def draw_support(diagnosis: Diagnosis, images: NDArray[np.generic], count: int) -> Figure:
    """Draw the images of the largest multipliers, each with its fraction of their sum."""
    pictures = _as_pictures(images, diagnosis)
    tiles = []
    for n, share, words in diagnosis.largest_shares(count):
        title = f"{n}: {percent(share, space=' ')}\n{words}".rstrip()
        tiles.append((title, pictures[n]))
    with style():
        return image_grid("largest multipliers", tiles, colours="gray", limits=(0.0, 1.0))


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
