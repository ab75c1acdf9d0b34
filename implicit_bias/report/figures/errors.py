"""Errors with their intervals, excesses of norms, and excesses over the steps of training."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from implicit_bias.base.style import (
    BLACK,
    GREY,
    HEIGHT,
    Look,
    legend,
    logarithmic,
    panel,
    panels,
    short_label,
    style,
)
from implicit_bias.base.wording import percent
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.report.figures.base import Plot, looks, with_words
from implicit_bias.report.words import names_of


def error_plots(comparison: Comparison, drawn_as: Mapping[str, Look]) -> Iterator[Plot]:
    """Draw the errors of the models."""
    figure, ax = panel(height=1.3 + 0.55 * len(comparison.models))
    draw_errors(ax, comparison.models, drawn_as)
    legend(figure)
    errors = []
    for model in comparison.models:
        error = "unknown"
        if model.has_predictor:
            error = f"{percent(model.error)} ({model.count})"
        errors.append(f"{model.name} {error}")
    n_samples = comparison.n_samples
    yield with_words("errors", figure, "errors", n_samples=n_samples, errors="; ".join(errors))


def overview(comparison: Comparison) -> Figure:
    """Draw a comparison; see `Comparison.plot`."""
    drawn_as = looks(comparison)
    excess_of = {}
    for model in comparison.models:
        if model.margin is not None and math.isfinite(model.margin.excess):
            excess_of[model.name] = model.margin.excess
    n_panels = 1
    if excess_of:
        n_panels = 2
    with style():
        height = min(HEIGHT, 1.1 + 0.45 * len(comparison.models))
        figure, axes = panels(n_panels, height=height)
        draw_errors(axes[0], comparison.models, drawn_as)
        if excess_of:
            draw_excesses(axes[1], excess_of, drawn_as)
    return figure


def draw_errors(ax: Axes, models: Sequence[ModelResult], drawn_as: Mapping[str, Look]) -> None:
    """Draw the error of each model with its interval, and its training error."""
    # The legend explains full and open marks in grey, as each model has another colour.
    ax.plot([], [], "o", color=GREY, label="test samples")
    if any(model.train_wrong is not None for model in models):
        ax.plot([], [], "o", color=GREY, markerfacecolor="none", label="training samples")
    for row, model in enumerate(models):
        if not model.has_predictor:
            _write_at(ax, row, 0.0, "no predictor: not separable")
            continue
        # The error on the test samples is in the middle of a row, its number above. That on the
        # training samples is below. Rows count downwards.
        look = drawn_as[model.name]
        low, high = model.count.interval
        (interval,) = ax.plot([100 * low, 100 * high], [row, row], color=look.colour)
        interval.set(linewidth=1.6, solid_capstyle="butt")
        # A mark at 0 is whole: it is not cut off at the edge of the axes.
        (mark,) = ax.plot(100 * model.error, row, look.marker, color=look.colour)
        mark.set(markersize=7, clip_on=False)
        _write_at(ax, row - 0.25, model.error, percent(model.error))
        if model.train_wrong is not None:
            error = model.train_error
            (mark,) = ax.plot(100 * error, row + 0.25, look.marker, color=look.colour)
            mark.set(markersize=6, markerfacecolor="none", clip_on=False)
            _write_at(ax, row + 0.25, error, percent(error), colour=GREY)
    _name_rows(ax, [short_label(model.name) for model in models])
    _percent_axis(ax, "error, % of the samples")


def draw_excesses(ax: Axes, excess_of: Mapping[str, float], drawn_as: Mapping[str, Look]) -> None:
    """Draw how far the norm of each model at unit margin is above the certified minimum."""
    for row, (name, excess) in enumerate(excess_of.items()):
        look = drawn_as[name]
        ax.plot(100 * excess, row, look.marker, color=look.colour, clip_on=False)
        _write_at(ax, row, excess, percent(excess))
    _name_rows(ax, [short_label(name) for name in excess_of])
    # Longer than an axis of errors: an excess has no upper end at 100 %, and its numbers are long.
    _percent_axis(ax, "norm above the certified minimum, %", room=1.35, most=math.inf)


def _write_at(ax: Axes, row: float, share: float, text: str, *, colour: str = BLACK) -> None:
    """Write a text right of the mark of a fraction."""
    words = ax.annotate(text, (100 * share, row), (7, 0), textcoords="offset points")
    words.set(va="center", fontsize=8.5, color=colour)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a chart, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0, pad=8)  # a mark at 0 does not touch a name
    ax.set_ylim(len(names) - 0.4, -0.6)  # the larger limit first: rows count downwards


def _percent_axis(ax: Axes, label: str, *, room: float = 1.22, most: float = 100.0) -> None:
    """Let the axis begin at zero, and leave room for the numbers beside the last mark.

    ``room`` is the length of the axis over that of the data; line and ticks end at ``most``.
    """
    ax.set_xlabel(label)
    # Where all fractions are 0 the axis has a length nevertheless.
    ax.set_xlim(0, max(room * min(ax.get_xlim()[1], most), 1.0))
    # The room for numbers may go beyond 100 %, the axis itself does not.
    end = min(ax.get_xlim()[1], most)
    ticks = np.asarray(MaxNLocator(5).tick_values(0, end))
    ax.set_xticks(ticks[(ticks >= 0) & (ticks <= end)])
    ax.spines.bottom.set_bounds(0, end)
    ax.grid(axis="x")


def training_plots(comparison: Comparison, drawn_as: Mapping[str, Look]) -> Iterator[Plot]:
    """Draw the excess of each trained network whose optimum is known."""
    networks = []
    curves = {}
    for model in comparison.models:
        if model.margin is None or model.inseparable:
            continue
        steps = [point.step for point in model.history]
        excess = [100 * model.margin.excess_at(point) for point in model.history]
        # A logarithmic axis shows the points at which the network separates, above the optimum.
        if any(value > 0 for value in excess):
            networks.append(model)
            curves[model.name] = (steps, excess)
    if curves:
        figure = draw_excess(curves, drawn_as)
        yield with_words("training-excess", figure, "training", models=names_of(networks))


def draw_excess(
    curves: Mapping[str, tuple[list[int], list[float]]], drawn_as: Mapping[str, Look]
) -> Figure:
    """Draw the excess of each network (%), by its name, by step; nan where it has none."""
    figure, ax = panel()
    for name, (steps, excess) in curves.items():
        look = drawn_as[name]
        (line,) = ax.plot(steps, excess, linestyle=look.line, color=look.colour)
        line.set(marker=look.marker, markersize=3.5, markevery=4, label=short_label(name))
    logarithmic(ax)
    ax.set(xlabel="training step", ylabel="norm above the certified minimum, %")
    legend(figure)
    return figure
