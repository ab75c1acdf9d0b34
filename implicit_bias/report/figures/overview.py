"""One small figure of a comparison: errors with their intervals, and the excess of the norms."""

import math

from matplotlib.figure import Figure

from implicit_bias.base.wording import percent
from implicit_bias.comparison import Comparison
from implicit_bias.report.figures.base import look
from implicit_bias.report.figures.errors import draw_errors, name_rows, percent_axis, write_at
from implicit_bias.report.style import HEIGHT, WIDTH, style


def overview(comparison: Comparison) -> Figure:
    """Draw a comparison; see `Comparison.plot`."""
    known = [m for m in comparison.models if m.margin and math.isfinite(m.margin.excess)]
    with style():
        height = min(HEIGHT, 1.1 + 0.45 * len(comparison.models))
        figure = Figure(figsize=(WIDTH * (2 if known else 1), height), layout="constrained")
        axes = figure.subplots(1, 2 if known else 1, squeeze=False)[0]
        draw_errors(axes[0], comparison)
        if known:
            for row, model in enumerate(known):
                share, drawn = model.known_margin.excess, look(comparison, model.name)
                axes[1].plot(100 * share, row, drawn.marker, color=drawn.colour)
                write_at(axes[1], row, share, percent(share))
            name_rows(axes[1], [model.name for model in known])
            percent_axis(axes[1], "norm above the certified optimum, %", room=1.35, most=math.inf)
    return figure
