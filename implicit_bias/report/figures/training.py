"""Excess of the networks over the steps of their training."""

from collections.abc import Iterator, Mapping

from matplotlib.figure import Figure

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
