"""Errors and disagreement as bars."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from implicit_bias.comparison import Comparison
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.style import BLACK, SKY, legend, panel
from implicit_bias.report.words import percent


def error_plots(subject: Subject) -> Iterator[Plot]:
    """Errors of the models, and disagreements of the pairs."""
    comparison = subject.comparison
    listed = "; ".join(f"{model.name} {percent(model.error)}" for model in comparison.models)
    yield Plot(
        "errors",
        _error_bars(subject),
        f"Bars of the error of each model on {comparison.n_samples} evaluation samples: {listed}",
        "Errors on the evaluation samples (filled) and on the training samples (hatched).",
    )
    if any(np.isfinite(pair.disagreement) for pair in comparison.pairs):
        listed = "; ".join(
            f"{pair.first} and {pair.second} {percent(pair.disagreement)}, by chance "
            f"{percent(pair.by_chance)}"
            for pair in comparison.pairs
        )
        yield Plot(
            "disagreement",
            _disagreement_bars(comparison),
            f"Bars of the disagreement of each pair of models: {listed}",
            "Disagreement (bar) against the level of chance (diamond). Where a bar ends far left "
            "of its diamond, the two make the same mistakes.",
        )


def _error_bars(subject: Subject) -> Figure:
    models = subject.comparison.models
    figure, ax = panel(height=0.9 + 0.55 * len(models))
    for row, model in enumerate(models):
        colour = subject.look(model.name).colour
        for shift, error, hatch in ((-0.2, model.error, ""), (0.2, model.train_error, "/////")):
            if np.isfinite(error):
                _bar(ax, row + shift, error, colour=colour, hatch=hatch)
                _write(ax, row + shift, error, percent(error))
        if np.isnan(model.error):
            _write(ax, row, 0.0, "no predictor: not separable")
    _name_rows(ax, [short_label(model.name) for model in models])
    _percent_axis(ax, "error, % of the samples")
    return figure


def _disagreement_bars(comparison: Comparison) -> Figure:
    pairs = comparison.pairs
    figure, ax = panel(height=1.2 + 0.45 * len(pairs))
    for row, pair in enumerate(pairs):
        if np.isnan(pair.disagreement):
            _write(ax, row, 0.0, "not separable", gap=8)
            continue
        _bar(ax, row, pair.disagreement, colour=SKY, height=0.55)
        end = max(pair.disagreement, pair.by_chance)
        _write(ax, row, end, f"{percent(pair.disagreement)} vs {percent(pair.by_chance)}", gap=8)
    chance = [100 * pair.by_chance for pair in pairs]
    ax.plot(chance, range(len(pairs)), "D", color=BLACK, label="expected by chance")
    _name_rows(ax, [f"{short_label(pair.first)}\n– {short_label(pair.second)}" for pair in pairs])
    _percent_axis(ax, "disagreement, % of the samples", room=1.6)
    legend(figure)
    return figure


def _bar(
    ax: Axes, row: float, share: float, *, colour: str, hatch: str = "", height: float = 0.36
) -> None:
    face = "white" if hatch else colour
    ax.barh(row, 100 * share, height, color=face, edgecolor=colour, hatch=hatch)


def _write(ax: Axes, row: float, share: float, text: str, *, gap: float = 3) -> None:
    """Write a text right of the place where a bar of this length ends."""
    place, shift = (100 * share, row), (gap, 0)
    ax.annotate(text, place, shift, textcoords="offset points", va="center", fontsize=8.5)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.4, -0.6)  # the first on top


def _percent_axis(ax: Axes, label: str, *, room: float = 1.22) -> None:
    ax.set_xlabel(label)
    longest = min(ax.get_xlim()[1], 100.0)
    ax.set_xlim(0, max(room * longest, 1.0))  # room for the numbers
    end = min(ax.get_xlim()[1], 100.0)
    ax.set_xticks([tick for tick in MaxNLocator(5).tick_values(0, end) if 0 <= tick <= end])
    ax.spines.bottom.set_bounds(0, end)
    ax.grid(axis="x")
