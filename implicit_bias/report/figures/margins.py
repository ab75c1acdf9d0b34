"""Margins of the training samples."""

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.figure import Figure

from implicit_bias.base.style import BLACK, GREY, Look, legend, panel, short_label
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import minus
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.report.figures.base import Plot, with_words


def margin_plots(
    comparison: Comparison, drawn_as: Mapping[str, Look], *, n_bins: int = 40
) -> Iterator[Plot]:
    """Draw a histogram of margins for each model, those of one problem on common axes."""
    label = "y f(x) / norm"
    if comparison.many_classes:
        label = "smallest margin of a sample / norm"
    number = 0
    for models in comparison.problems():
        # Margins that are all 0 are those of weights 0: their histogram is one bar, and its bins
        # have no width.
        shown = {}
        for model in models:
            if model.has_predictor and model.known_margin.margins.any():
                shown[model.name] = model.known_margin

        if not shown:
            continue
        edges = _bins([margin.margins for margin in shown.values()], models[0], n_bins)
        # One scale of counts for all models of a problem, so that the panels compare at a glance.
        highest = 0
        for margin in shown.values():
            highest = max(highest, np.histogram(margin.margins, edges)[0].max())

        for name, margin in shown.items():
            number += 1
            largest = "not known"
            if margin.inseparable:
                largest = "none is positive (not separable: proven)"
            elif margin.largest_margin is not None:
                largest = f"{margin.largest_margin:.3g}"
            yield with_words(
                f"margins-{number}",
                margin_histogram(
                    margin.margins,
                    edges,
                    title=short_label(name),
                    label=label,
                    colour=drawn_as[name].colour,
                    top=1.05 * highest,
                    largest=margin.largest_margin,
                ),
                "margins",
                model=name,
                n_samples=len(margin.margins),
                smallest=minus(f"{margin.min_margin:.3g}"),
                largest=largest,
            )


def _bins(margins: list[Array], model: ModelResult, n_bins: int) -> Array:
    """Return edges of about ``n_bins`` bins that cover the margins of models of one problem.

    Zero is an edge, and so is the maximum margin, where it is known and bins are no wider.
    """
    values = np.concatenate([np.zeros(1), *margins])
    largest = model.known_margin.largest_margin
    if largest is not None:
        values = np.append(values, largest)
    width = (values.max() - values.min()) / n_bins
    if largest is not None and largest > width / 2:
        # Support vectors of an SVM have the maximum margin up to the gap of its solution. The edge
        # is a little below, so that they are all in the bin that begins there.
        edge = largest * (1 - 1e-4)
        width = edge / max(1, round(edge / width))
    first = np.floor(values.min() / width)
    last = np.ceil(values.max() / width)
    return width * np.arange(first, last + 1)


def margin_histogram(
    margins: Array,
    edges: Array,
    *,
    title: str,
    label: str,
    colour: str,
    top: float,
    largest: float | None,
) -> Figure:
    """Draw a histogram of margins (N,), zero, and the maximum margin where that is known.

    ``top`` is the upper end of the axis of counts: that of all models of the problem.
    """
    figure, ax = panel(height=2.8)
    bins = edges.tolist()
    ax.hist(margins, bins, color=colour, alpha=0.8, edgecolor="white", linewidth=0.4)
    ax.axvline(0, color=GREY, linewidth=1)
    if largest is not None:
        ax.axvline(largest, color=BLACK, linestyle="--", label="maximum margin")
        legend(figure)
    ax.set_ylim(0, top)
    ax.set_title(title)
    ax.set(xlabel=label, ylabel="training samples")
    ax.locator_params(axis="x", nbins=6)
    return figure
