"""SVM-LC along a training."""

import pandas as pd
from matplotlib.figure import Figure

from implicit_bias.report.style import BLACK, BLUE, VERMILION


def trajectory_figure(frame: pd.DataFrame) -> Figure:
    """Draw SVM-LC with the gates of each step: errors, disagreement and gates, norm."""
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    errors, apart, norm = figure.subplots(1, 3)
    steps = frame["step"]
    curves = (
        (errors, "network_error", "o-", BLUE, "network"),
        (errors, "error", "^--", VERMILION, "SVM with its gates"),
        (apart, "disagreement", "o-", BLUE, "network of this step"),
        (apart, "disagreement_at_end", "^--", VERMILION, "trained network"),
        (apart, "gates_left", "s:", BLACK, "gates unlike the last ones"),
    )
    for ax, column, line, colour, label in curves:
        ax.plot(steps, 100 * frame[column], line, color=colour, label=label)
    norm.plot(steps, frame["optimum"], "^--", color=VERMILION, label="certified optimum")
    errors.set_ylabel("error, % of unseen samples")
    apart.set_ylabel("disagreement of the SVM, %")
    norm.set_ylabel("norm at margin 1")
    for step, optimum, dropped in frame[["step", "optimum", "dropped"]].itertuples(index=False):
        if dropped:
            norm.annotate(f"{dropped} left out", (step, optimum), fontsize=8)
    for ax in (errors, apart, norm):
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xticks(steps, [f"{step:,}" for step in steps], fontsize=8)
        ax.minorticks_off()
        ax.set_xlabel("step at which the gates are taken")
        ax.set_ylim(bottom=0)
        ax.legend(fontsize=8.5)
    return figure
