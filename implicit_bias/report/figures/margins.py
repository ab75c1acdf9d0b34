"""Margins of the training samples."""

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from implicit_bias.base.validation import Array
from implicit_bias.base.wording import minus
from implicit_bias.comparison import ModelResult
from implicit_bias.report.figures.base import Plot, Subject, look, short_label
from implicit_bias.report.style import BLACK, GREY, legend, panel

# Bins of a histogram that has room for all margins of a program, the maximum margin, and zero.
BINS = 40


def margin_plots(subject: Subject) -> Iterator[Plot]:
    """Draw a histogram of margins for each model, those of one program on common axes."""
    number = 0
    for models in subject.comparison.programs():
        decided = [m for m in models if m.has_predictor and m.known_margin.margins.any()]
        shown = [np.zeros(1)]
        for model in decided:
            shown.append(model.known_margin.margins)
            if model.known_margin.largest_margin is not None:
                shown.append(np.array([model.known_margin.largest_margin]))
        together = np.concatenate(shown)
        edges = np.linspace(together.min(), together.max(), BINS + 1)
        highest = 0
        for model in decided:
            highest = max(highest, np.histogram(model.known_margin.margins, edges)[0].max())
        for model in decided:
            number += 1
            margin = model.known_margin
            smallest = minus(f"{margin.min_margin:.3g}")
            caption = f"{model.name}: normalized margin {smallest}."
            if margin.inseparable:
                caption += (
                    " It is positive for no predictor with these gates (not separable: proven)."
                )
            elif margin.largest_margin is not None:
                caption += f" Maximum margin with these gates: {margin.largest_margin:.3g}."
            yield Plot(
                f"margins-{number}",
                _margin_histogram(subject, model, edges, 1.05 * highest),
                f"Histogram of the margins of {len(margin.margins)} training samples. {caption}",
                caption,
            )


def _margin_histogram(subject: Subject, model: ModelResult, edges: Array, highest: float) -> Figure:
    figure, ax = panel(height=2.8)
    margin = model.known_margin
    ax.hist(
        margin.margins,
        edges.tolist(),
        color=look(subject.comparison, model.name).colour,
        alpha=0.8,
        edgecolor="white",
        linewidth=0.4,
    )
    ax.axvline(0, color=GREY, linewidth=1)
    if margin.largest_margin is not None:
        ax.axvline(margin.largest_margin, color=BLACK, linestyle="--", label="maximum margin")
        legend(figure)
    ax.set_ylim(0, highest)  # that of all models of the program
    ax.set_title(short_label(model.name))
    label = "smallest margin of a sample / norm" if subject.train.classes else "y f(x) / norm"
    ax.set(xlabel=label, ylabel="training samples")
    ax.locator_params(axis="x", nbins=6)
    return figure
