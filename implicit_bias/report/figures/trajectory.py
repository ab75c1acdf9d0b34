"""SVM-LC along a training."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from implicit_bias.report.style import BLACK, BLUE, VERMILION


def trajectory_figure(frame: pd.DataFrame) -> Figure:
    """Draw SVM-LC with the gates of each step: errors, disagreement and gates, norm."""
    figure = Figure(figsize=(11.0, 3.4), layout="constrained")
    errors, apart, norm = figure.subplots(1, 3)
    steps = frame["step"]
    errors.plot(steps, 100 * frame["network_error"], "o-", color=BLUE, label="network")
    errors.plot(steps, 100 * frame["error"], "^--", color=VERMILION, label="SVM with its gates")
    errors.set_ylabel("error, % of unseen samples")
    apart.plot(steps, 100 * frame["disagreement"], "o-", color=BLUE, label="network of this step")
    apart.plot(
        steps, 100 * frame["disagreement_at_end"], "^--", color=VERMILION, label="trained network"
    )
    apart.plot(steps, 100 * frame["gates_changed"], "s:", color=BLACK, label="gates changed")
    apart.set_ylabel("disagreement of the SVM, %")
    norm.plot(steps, frame["optimum"], "^--", color=VERMILION, label="certified optimum")
    for step, optimum, dropped in frame[["step", "optimum", "dropped"]].itertuples(index=False):
        if dropped:
            norm.annotate(f"{dropped} left out", (step, optimum), fontsize=8)
    norm.set_ylabel("norm at margin 1")
    for ax in (errors, apart, norm):
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xticks(steps, [f"{step:,}" for step in steps], fontsize=8)
        ax.minorticks_off()
        ax.set_xlabel("step at which the gates are taken")
        ax.set_ylim(bottom=0)
        ax.legend(fontsize=8.5)
    return figure
