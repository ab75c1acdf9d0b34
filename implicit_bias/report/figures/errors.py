"""Errors with their intervals, disagreements beside the level of chance, and excesses of norms."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from implicit_bias.base.wording import percent
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.report.figures.base import Plot, Subject, look, short_label
from implicit_bias.report.style import BLACK, GREY, HEIGHT, PURPLE, WIDTH, legend, panel, style


def error_plots(subject: Subject) -> Iterator[Plot]:
    """Errors of the models, and disagreements of the pairs."""
    comparison = subject.comparison
    listed = "; ".join(f"{model.name} {_error(model)}" for model in comparison.models)
    yield Plot(
        "errors",
        _errors(subject),
        f"Error of each model on {comparison.n_samples} evaluation samples: {listed}",
        "Errors on the evaluation samples (filled, with the 95 % interval of what more samples "
        "would show) and on the training samples (hollow). Where intervals overlap widely, the "
        "table of differences says whether the same samples tell two models apart.",
    )
    if any(np.isfinite(pair.disagreement) for pair in comparison.pairs):
        listed = "; ".join(
            f"{pair.first} and {pair.second} {percent(pair.disagreement)}, by chance "
            f"{percent(pair.by_chance)}"
            for pair in comparison.pairs
        )
        yield Plot(
            "disagreement",
            _disagreements(comparison),
            f"Disagreement of each pair of models: {listed}",
            "Disagreement (filled) against the level of chance (hollow). Where the two are far "
            "apart, the models make the same mistakes.",
        )


def _error(model: ModelResult) -> str:
    count = model.count
    return f"{percent(model.error)} ({count.count} of {count.total})" if count.total else "unknown"


def _errors(subject: Subject) -> Figure:
    figure, ax = panel(height=1.3 + 0.55 * len(subject.comparison.models))
    _draw_errors(ax, subject.comparison)
    legend(figure)
    return figure


def _draw_errors(ax: Axes, comparison: Comparison) -> None:
    """Draw the error of each model with its interval, and its training error."""
    models = comparison.models
    # One entry each in the legend, whatever the colours of the models.
    ax.plot([], [], "o", color=GREY, label="evaluation samples")
    if any(model.train_wrong for model in models):
        ax.plot([], [], "o", color=GREY, mfc="none", label="training samples")
    for row, model in enumerate(models):
        drawn = look(comparison, model.name)
        if not model.count.total:
            _write_at(ax, row, 0.0, "no predictor: not separable")
            continue
        low, high = (100 * end for end in model.count.interval)
        ax.plot([low, high], [row, row], color=drawn.colour, linewidth=1.6, solid_capstyle="butt")
        ax.plot(100 * model.error, row, drawn.marker, color=drawn.colour, ms=7)
        _write_at(ax, row - 0.25, model.error, percent(model.error))
        if model.train_wrong is not None:
            place = 100 * model.train_error, row + 0.25
            ax.plot(*place, drawn.marker, color=drawn.colour, mfc="none", ms=6, clip_on=False)
            _write_at(ax, row + 0.25, model.train_error, percent(model.train_error), faint=True)
    _name_rows(ax, [short_label(model.name) for model in models])
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
        ends = 100 * pair.disagreement, 100 * pair.by_chance
        ax.plot(ends, (row, row), color=GREY, linewidth=1.2)
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
    """Write a text right of the mark of a share."""
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


def overview(comparison: Comparison) -> Figure:
    """Draw a comparison; see `Comparison.plot`."""
    known = [m for m in comparison.models if m.margin and math.isfinite(m.margin.excess)]
    with style():
        height = min(HEIGHT, 1.1 + 0.45 * len(comparison.models))
        figure = Figure(figsize=(WIDTH * (2 if known else 1), height), layout="constrained")
        axes = figure.subplots(1, 2 if known else 1, squeeze=False)[0]
        _draw_errors(axes[0], comparison)
        if known:
            for row, model in enumerate(known):
                share, drawn = model.known_margin.excess, look(comparison, model.name)
                axes[1].plot(100 * share, row, drawn.marker, color=drawn.colour)
                _write_at(axes[1], row, share, percent(share))
            _name_rows(axes[1], [model.name for model in known])
            _percent_axis(axes[1], "norm above the certified optimum, %", room=1.35, most=math.inf)
    return figure
