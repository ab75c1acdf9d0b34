"""Errors with their intervals, disagreements beside the level of chance, and excesses of norms."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from implicit_bias.base.wording import percent
from implicit_bias.comparison import Comparison
from implicit_bias.report.figures.base import Plot, Subject, look, short_label
from implicit_bias.report.style import BLACK, GREY, HEIGHT, PURPLE, WIDTH, legend, panel, style


def error_plots(subject: Subject) -> Iterator[Plot]:
    """Errors of the models, and disagreements of the pairs."""
    comparison = subject.comparison
    figure, ax = panel(height=1.3 + 0.55 * len(comparison.models))
    _draw_errors(ax, comparison)
    legend(figure)
    errors = []
    for model in comparison.models:
        error = "unknown"
        if model.has_predictor:
            error = f"{percent(model.error)} ({model.count.count} of {model.count.total})"
        errors.append(f"{model.name} {error}")
    yield Plot(
        "errors",
        figure,
        f"Error of each model on {comparison.n_samples} test samples: {'; '.join(errors)}",
        "Errors on the test samples (filled, with the 95 % interval) and on the training samples "
        "(hollow). Where intervals overlap widely, the table of differences says whether the same "
        "samples tell two models apart.",
    )
    if any(np.isfinite(pair.disagreement) for pair in comparison.pairs):
        pairs = []
        for pair in comparison.pairs:
            found = percent(pair.disagreement)
            chance = percent(pair.by_chance)
            pairs.append(f"{pair.first} and {pair.second} {found}, by chance {chance}")
        yield Plot(
            "disagreement",
            _disagreements(comparison),
            f"Disagreement of each pair of models: {'; '.join(pairs)}",
            "Disagreement (filled) beside that of independent models with the same error rates "
            "(hollow). Where it is far lower, the models make the same mistakes.",
        )


def overview(comparison: Comparison) -> Figure:
    """Draw a comparison; see `Comparison.plot`."""
    known = [m for m in comparison.models if m.margin and math.isfinite(m.margin.excess)]
    n_panels = 2 if known else 1
    with style():
        height = min(HEIGHT, 1.1 + 0.45 * len(comparison.models))
        figure = Figure(figsize=(n_panels * WIDTH, height), layout="constrained")
        panels = figure.subplots(1, n_panels, squeeze=False)[0]
        _draw_errors(panels[0], comparison)
        for ax in panels[1:]:
            for row, model in enumerate(known):
                excess = model.known_margin.excess
                drawn = look(comparison, model.name)
                ax.plot(100 * excess, row, drawn.marker, color=drawn.colour)
                _write_at(ax, row, excess, percent(excess))
            _name_rows(ax, [model.name for model in known])
            label = "norm above the certified minimum, %"
            _percent_axis(ax, label, room=1.35, most=math.inf)
    return figure


def _draw_errors(ax: Axes, comparison: Comparison) -> None:
    """Draw the error of each model with its interval, and its training error."""
    # One entry each in the legend, whatever the colours of the models.
    ax.plot([], [], "o", color=GREY, label="test samples")
    if any(model.train_wrong for model in comparison.models):
        ax.plot([], [], "o", color=GREY, mfc="none", label="training samples")
    for row, model in enumerate(comparison.models):
        if not model.has_predictor:
            _write_at(ax, row, 0.0, "no predictor: not separable")
            continue
        drawn = look(comparison, model.name)
        low, high = model.count.interval
        ax.plot(
            [100 * low, 100 * high],
            [row, row],
            color=drawn.colour,
            linewidth=1.6,
            solid_capstyle="butt",
        )
        ax.plot(100 * model.error, row, drawn.marker, color=drawn.colour, ms=7)
        _write_at(ax, row - 0.25, model.error, percent(model.error))
        if model.train_wrong is not None:
            (mark,) = ax.plot(100 * model.train_error, row + 0.25, drawn.marker, color=drawn.colour)
            mark.set(markerfacecolor="none", markersize=6, clip_on=False)
            _write_at(ax, row + 0.25, model.train_error, percent(model.train_error), faint=True)
    _name_rows(ax, [short_label(model.name) for model in comparison.models])
    _percent_axis(ax, "error, % of the samples")


def _disagreements(comparison: Comparison) -> Figure:
    pairs = comparison.pairs
    names = [f"{short_label(pair.first)}\n– {short_label(pair.second)}" for pair in pairs]
    lines = 1 + max(name.count("\n") for name in names)
    figure, ax = panel(height=1.3 + 0.17 * lines * len(pairs))
    for row, pair in enumerate(pairs):
        if np.isnan(pair.disagreement):
            _write_at(ax, row, 0.0, "not separable")
            continue
        ends = [100 * pair.disagreement, 100 * pair.by_chance]
        ax.plot(ends, [row, row], color=GREY, linewidth=1.2)
        _write_at(ax, row - 0.25, pair.disagreement, percent(pair.disagreement))
        _write_at(ax, row + 0.25, pair.by_chance, percent(pair.by_chance), faint=True)
    rows = range(len(pairs))
    found = [100 * pair.disagreement for pair in pairs]
    chance = [100 * pair.by_chance for pair in pairs]
    ax.plot(found, rows, "o", color=PURPLE, ms=7, label="found", clip_on=False)
    ax.plot(chance, rows, "D", color=BLACK, mfc="none", label="expected by chance", clip_on=False)
    _name_rows(ax, names)
    _percent_axis(ax, "disagreement, % of the samples")
    legend(figure)
    return figure


def _write_at(ax: Axes, row: float, share: float, text: str, *, faint: bool = False) -> None:
    """Write a text right of the mark of a fraction."""
    words = ax.annotate(text, (100 * share, row), (7, 0), textcoords="offset points")
    words.set(va="center", fontsize=8.5, color=GREY if faint else BLACK)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a chart, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.4, -0.6)


def _percent_axis(ax: Axes, label: str, *, room: float = 1.22, most: float = 100.0) -> None:
    """Let the axis begin at zero, and leave room for the numbers beside the last mark."""
    ax.set_xlabel(label)
    ax.set_xlim(0, max(room * min(ax.get_xlim()[1], most), 1.0))
    end = min(ax.get_xlim()[1], most)
    ax.set_xticks([tick for tick in MaxNLocator(5).tick_values(0, end) if 0 <= tick <= end])
    ax.spines.bottom.set_bounds(0, end)
    ax.grid(axis="x")
