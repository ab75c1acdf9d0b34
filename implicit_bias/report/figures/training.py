"""Excess of the networks over the steps of their training."""

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from implicit_bias.base.wording import minus
from implicit_bias.comparison import Comparison
from implicit_bias.report.figures.base import Plot, short_label, with_words
from implicit_bias.report.style import Look, legend, logarithmic, panel
from implicit_bias.report.words import names_of


def training_plots(comparison: Comparison, drawn_as: Mapping[str, Look]) -> Iterator[Plot]:
    """Draw the excess of each trained network whose optimum is known."""
    networks = []
    curves = {}
    for model in comparison.models:
        if model.margin is None or model.inseparable:
            continue
        steps = [point.step for point in model.history]
        excess = [model.margin.excess_at(point) for point in model.history]
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
    """Draw the excess of each network, by its name, against the steps; nan where it has none."""
    figure, ax = panel()
    for name, (steps, excess) in curves.items():
        look = drawn_as[name]
        (line,) = ax.plot(steps, excess, linestyle=look.line, color=look.colour)
        line.set(marker=look.marker, markersize=3.5, markevery=4, label=short_label(name))
    logarithmic(ax)
    _write_last_values(ax)
    ax.set(xlabel="step", ylabel="norm / minimum − 1")
    legend(figure)
    return figure


def _write_last_values(ax: Axes, *, apart: float = 0.075) -> None:
    """Write the last value of each curve right of the axes, at least ``apart`` from each other.

    The distance is a fraction of the height of the axes.
    """
    ends = []
    ax.get_ylim()  # settles the limits, on which the places depend
    for line in ax.lines:
        x = np.asarray(line.get_xdata(), dtype=float)
        y = np.asarray(line.get_ydata(), dtype=float)
        last = np.flatnonzero(np.isfinite(y))[-1]
        # From the data to fractions of the axes.
        place = ax.transAxes.inverted().transform(ax.transData.transform((x[last], y[last])))
        # An excess of 0, or below it by rounding, is at the bottom of a logarithmic axis.
        height = float(np.clip(place[1], 0.0, 1.0))
        ends.append((height, float(y[last]), line.get_color()))
    # From the bottom up: a value that would cover the one below moves up.
    lowest = -np.inf
    for height, value, colour in sorted(ends, key=lambda end: end[:2]):
        lowest = max(height, lowest + apart)
        text = ax.text(1.015, lowest, minus(f"{value:.3g}"), transform=ax.transAxes)
        text.set(color=colour, fontsize=8.5, va="center")
