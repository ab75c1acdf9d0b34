"""Excess of the networks over the steps of their training."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes

from implicit_bias.base.wording import minus
from implicit_bias.comparison import ModelResult
from implicit_bias.comparison.verdict import WORDS
from implicit_bias.report.figures.base import Plot, Subject
from implicit_bias.report.style import legend, logarithmic, panel
from implicit_bias.report.words import names_of

# Least distance of two values that are written beside the curves, as a fraction of the axis.
LINE_HEIGHT = 0.075


def training_plots(subject: Subject) -> Iterator[Plot]:
    """Draw the excess of each trained network whose optimum is known."""
    networks = [model for model in subject.comparison.models if _has_excess(model)]
    if not networks:
        return
    figure, ax = panel()
    for network in networks:
        steps = [point.step for point in network.history]
        excess = [network.known_margin.excess_at(point) for point in network.history]
        subject.draw(ax, network.name, steps, excess, markersize=3.5, markevery=4)
    logarithmic(ax)
    _write_last_values(ax)
    words = WORDS["curves"]["excess"]
    ax.set(xlabel="step", ylabel=words["label"])
    legend(figure)
    alt = f"{words['alt']}, for {names_of(networks)}"
    yield Plot("training-excess", figure, alt, words["caption"])


def _has_excess(model: ModelResult) -> bool:
    """Whether a logarithmic axis can show the excess at any point of a training."""
    if model.margin is None or model.inseparable:
        return False
    return any(model.margin.excess_at(point) > 0 for point in model.history)


def _write_last_values(ax: Axes) -> None:
    """Write the last value of each curve right of the axes, none over another."""
    ends = []
    ax.get_ylim()  # settles the limits, on which the places depend
    for line in ax.lines:
        x = np.asarray(line.get_xdata(), dtype=float)
        y = np.asarray(line.get_ydata(), dtype=float)
        last = np.flatnonzero(np.isfinite(y))[-1]
        place = ax.transAxes.inverted().transform(ax.transData.transform((x[last], y[last])))
        # An excess of 0, or below it by rounding, is at the bottom of a logarithmic axis.
        height = float(np.clip(place[1], 0.0, 1.0))
        ends.append((height, float(y[last]), line.get_color()))
    lowest = -np.inf
    for height, value, colour in sorted(ends, key=lambda end: end[:2]):
        lowest = max(height, lowest + LINE_HEIGHT)
        text = ax.text(1.015, lowest, minus(f"{value:.3g}"), transform=ax.transAxes)
        text.set(color=colour, fontsize=8.5, va="center")
