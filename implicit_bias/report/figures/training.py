"""Networks over the steps of their training."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from implicit_bias.base.wording import minus
from implicit_bias.comparison import ModelResult
from implicit_bias.report.conclusion import WORDS
from implicit_bias.report.figures.base import Plot, Subject
from implicit_bias.report.figures.margins import largest_margins
from implicit_bias.report.style import BLACK, GREY, legend, logarithmic, panel
from implicit_bias.report.words import names_of
from implicit_bias.training.history import HistoryPoint


@dataclass(frozen=True)
class Curve:
    """A quantity over the steps, and the networks that have it."""

    value: Callable[[ModelResult, HistoryPoint], float]
    log: bool = False
    belongs: Callable[[ModelResult], bool] = lambda model: True


def _is_certified(model: ModelResult) -> bool:
    margin = model.margin
    if margin is None or model.inseparable:
        return False
    return any(margin.excess_at(point) > 0 for point in model.history)


CURVES = {
    "loss": Curve(lambda model, p: p.loss, log=True),
    "error": Curve(lambda model, p: 100 * p.error),
    "margin": Curve(lambda model, p: p.normalised_margin),
    "excess": Curve(lambda model, p: model.known_margin.excess_at(p), True, _is_certified),
    "gates": Curve(lambda model, p: 100 * p.gates_changed, belongs=lambda model: model.gates_moved),
}


def training_plots(subject: Subject) -> Iterator[Plot]:
    """Curves of each trained network over its steps."""
    for name, curve in CURVES.items():
        networks = [m for m in subject.comparison.models if m.history and curve.belongs(m)]
        levels = largest_margins(networks) if name == "margin" else []
        if not networks:
            continue
        said, of_levels = WORDS["curves"][name], WORDS["curves"]["levels"]
        alt, caption = f"{said['alt']}, for {names_of(networks)}", said["caption"]
        if levels:
            alt, caption = f"{alt}, {of_levels['alt']}", f"{caption} {of_levels['caption']}"
        figure = _curves(subject, networks, curve, levels)
        figure.axes[0].set_ylabel(said["label"])
        yield Plot(f"training-{name}", figure, alt, caption)


def _curves(
    subject: Subject, networks: Sequence[ModelResult], curve: Curve, levels: Sequence[float]
) -> Figure:
    figure, ax = panel()
    for network in networks:
        steps = [point.step for point in network.history]
        values = [curve.value(network, point) for point in network.history]
        subject.draw(ax, network.name, steps, values, markersize=3.5, markevery=4)
    ax.set_xscale("symlog", linthresh=1)  # a logarithm that has room for step 0
    ax.set_xlim(left=0)
    for level in levels:
        ax.axhline(level, color=BLACK, linewidth=1.2, label="_level")
    if levels:
        ax.axhline(0, color=GREY, linewidth=1, linestyle=":")
        ax.margins(y=0.12)
    shown = [value for line in ax.lines for value in np.asarray(line.get_ydata(), dtype=float)]
    if curve.log and any(0.0 < value < np.inf for value in shown):
        logarithmic(ax, x=False)
    _end_values(ax)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("step")
    ax.grid(True)
    legend(figure)
    return figure


def _end_values(ax: Axes) -> None:
    """Write the last value of each curve right of the axes, none over another."""
    ends = []
    ax.get_ylim()  # settles the limits, on which the places depend
    for line in ax.lines:
        x, y = (np.asarray(data, dtype=float) for data in line.get_data())
        known = np.flatnonzero(np.isfinite(y))
        if len(known) and not str(line.get_label()).startswith("_child"):
            place = ax.transData.transform((x[known[-1]], y[known[-1]]))
            # A loss that has underflowed to 0 ends at the bottom of a logarithmic axis.
            height = float(np.clip(ax.transAxes.inverted().transform(place)[1], 0.0, 1.0))
            ends.append((height, float(y[known[-1]]), line.get_color()))
    lowest = -np.inf
    for height, value, colour in sorted(ends, key=lambda end: end[:2]):
        lowest = max(height, lowest + 0.075)
        text = ax.text(1.015, lowest, minus(f"{value:.3g}"), transform=ax.transAxes)
        text.set(color=colour, fontsize=8.5, va="center")
