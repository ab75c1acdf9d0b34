"""Margins of the training samples."""

from collections.abc import Iterable, Iterator

import numpy as np
from matplotlib.figure import Figure

from implicit_bias.base.validation import Array
from implicit_bias.base.wording import minus
from implicit_bias.comparison import ModelResult
from implicit_bias.report.figures.base import Plot, Subject, look, short_label
from implicit_bias.report.style import BLACK, GREY, legend, panel

# Of a histogram that has room for all margins of a program, the largest possible one, and zero.
BINS = 40


def margin_plots(subject: Subject) -> Iterator[Plot]:
    """Draw a histogram of margins for each model, those of one program on common axes."""
    number = 0
    for same in subject.comparison.programs():
        decided = [m for m in same if m.has_predictor and m.known_margin.margins.any()]
        margins = (m.known_margin.margins for m in decided)
        shown = np.concatenate([[0.0], *margins, largest_margins(decided)])
        edges = np.linspace(shown.min(), shown.max(), BINS + 1)
        bins = [np.histogram(m.known_margin.margins, edges)[0].max() for m in decided]
        for model in decided:
            number, margin, at_most = number + 1, model.known_margin, ""
            if margin.inseparable:
                at_most = (
                    "; none is positive for any predictor with these gates (not separable: proven)"
                )
            elif margin.largest_margin is not None:
                at_most = (
                    f", at most {margin.largest_margin:.3g} for any predictor with these gates"
                )
            smallest = minus(f"{margin.min_margin:.3g}{at_most}")
            yield Plot(
                f"margins-{number}",
                _margin_histogram(subject, model, edges, 1.05 * max(bins)),
                f"Histogram of the margins of {len(margin.margins)} training samples for "
                f"{model.name}: the smallest is {smallest}",
                f"{model.name}: smallest margin {smallest}.",
            )


def _margin_histogram(subject: Subject, model: ModelResult, edges: Array, highest: float) -> Figure:
    figure, ax = panel(height=2.8)
    drawn, margin = look(subject.comparison, model.name), model.known_margin
    bins = edges.tolist()
    ax.hist(margin.margins, bins, color=drawn.colour, alpha=0.8, edgecolor="white", linewidth=0.4)
    ax.axvline(0, color=GREY, linewidth=1)
    if margin.largest_margin is not None:
        possible = "largest possible smallest margin"
        ax.axvline(margin.largest_margin, color=BLACK, linestyle="--", label=possible)
        legend(figure)
    ax.set_ylim(0, highest)  # that of all models of the program
    ax.set_title(short_label(model.name))
    margins = "smallest margin of a sample / norm" if subject.train.classes else "y f(x) / norm"
    ax.set(xlabel=margins, ylabel="training samples")
    ax.locator_params(axis="x", nbins=6)
    return figure


def largest_margins(models: Iterable[ModelResult]) -> list[float]:
    """Largest margins that are possible in the programs of some models, ascending."""
    found = {None if model.margin is None else model.margin.largest_margin for model in models}
    return sorted(margin for margin in found if margin is not None)
