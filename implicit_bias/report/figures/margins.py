"""Margins of the training samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from implicit_bias.comparison import ModelResult
from implicit_bias.report.figures.base import Plot, Subject, margin_of, short_label
from implicit_bias.report.figures.questions import not_separable, programs, undecided
from implicit_bias.report.style import BLACK, GREY, legend, panel
from implicit_bias.validation import Array


def margin_plots(subject: Subject) -> Iterator[Plot]:
    """Draw a histogram of margins for each model, those of one program on common axes."""
    number = 0
    for twins in programs(subject.comparison):
        decided = [t for t in twins if not undecided(t) and margin_of(t).margins.any()]
        margins = [margin_of(twin).margins for twin in decided]
        edges = _edges([*margins, bounds_of(subject, decided)])
        for twin in decided:
            number += 1
            margin, bound = margin_of(twin), _bound(subject, twin)
            at_most = (
                "" if bound is None else f", at most {bound:.3g} for any predictor with these gates"
            )
            if not_separable(subject.comparison, twin):
                at_most = (
                    "; none is positive for any predictor with these gates (not separable: proven)"
                )
            yield Plot(
                f"margins-{number}",
                _margin_histogram(subject, twin, edges),
                f"Histogram of the margins of {len(margin.margins)} training samples for "
                f"{twin.name}: the smallest is {margin.min_margin:.3g}{at_most}",
                f"{twin.name}: smallest margin {margin.min_margin:.3g}{at_most}.",
            )


def _margin_histogram(subject: Subject, model: ModelResult, edges: Array) -> Figure:
    figure, ax = panel(height=2.8)
    look = subject.look(model.name)
    margins = margin_of(model).margins
    ax.hist(margins, edges.tolist(), color=look.colour, alpha=0.8, edgecolor="white", linewidth=0.4)
    ax.axvline(0, color=GREY, linewidth=1)
    bound = _bound(subject, model)
    if bound is not None:
        ax.axvline(bound, color=BLACK, linestyle="--", label="largest possible smallest margin")
        legend(figure)
    ax.set_title(short_label(model.name))
    ax.set(xlabel="y f(x) / norm", ylabel="training samples")
    ax.locator_params(axis="x", nbins=6)
    return figure


def _bound(subject: Subject, model: ModelResult) -> float | None:
    """1 / optimum: no predictor of the model's program has a larger smallest margin.

    None where the optimum is not known, is one of a soft margin, or nothing separates.
    """
    if not_separable(subject.comparison, model):
        return None
    optimum = 0.0 if model.margin is None else model.margin.optimum
    hard = optimum > 0 and np.isinf(subject.views[model.name].C)
    return 1.0 / optimum if hard and np.isfinite(optimum) else None


def bounds_of(subject: Subject, models: Iterable[ModelResult]) -> list[float]:
    """Largest margins that are possible in the programs of some models, ascending."""
    found = {_bound(subject, model) for model in models}
    return sorted(bound for bound in found if bound is not None)


def _edges(shown: Iterable[ArrayLike], n_bins: int = 40) -> Array:
    """Edges of a histogram (n_bins + 1,) that has room for all that is to be shown, and zero."""
    values = np.concatenate([[0.0], *map(np.asarray, shown)])
    return np.linspace(values.min(), values.max(), n_bins + 1)
