"""The share of each hidden unit in the norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.report.figures.base import Plot, Subject, margin_of, short_label
from implicit_bias.report.figures.questions import (
    not_separable,
    programs,
    reference_of,
    svm_among,
    undecided,
)
from implicit_bias.report.style import GREY, legend, panel

# Where the norm does not tell units apart.
ONE_GROUP = " (the norm is over all units at once, so this is only their share in its square)"


def _several_units(comparison: Comparison) -> list[list[ModelResult]]:
    """Models of each program whose norm has several groups, less those without a predictor."""
    shared = [[t for t in twins if not undecided(t)] for twins in programs(comparison)]
    return [twins for twins in shared if twins and len(margin_of(twins[0]).unit_norms) > 1]


def _kept(model: ModelResult) -> str:
    kept, units = margin_of(model).active_units, len(margin_of(model).unit_norms)
    return f"{model.name} keeps {'all' if kept == units else f'{kept} of'} {units}"


def kept_by_svms(comparison: Comparison) -> str:
    """Say how many units each SVM keeps."""
    svms = [svm for twins in _several_units(comparison) if (svm := svm_among(twins))]
    return f"; here {', '.join(map(_kept, svms))}" if svms else ""


def unit_plots(subject: Subject) -> Iterator[Plot]:
    """Units by their share in the norm, a figure a program."""
    for i, twins in enumerate(_several_units(subject.comparison), 1):
        first = reference_of(twins)
        n_units = len(margin_of(first).unit_norms)
        kept = "; ".join(map(_kept, twins))
        unknown = not_separable(subject.comparison, first)
        yield Plot(
            f"units-{i}",
            _unit_shares(subject, twins),
            f"Share of each of {n_units} units in the norm, for models of one program: {kept}",
            f"Units: {kept}. Sorted by {first.name}; the dotted line is an equal share for all."
            + (" No SVM to compare with: not separable, proven." if unknown else ""),
        )


def _unit_shares(subject: Subject, twins: Sequence[ModelResult]) -> Figure:
    order = np.argsort(-margin_of(reference_of(twins)).unit_norms, kind="stable")
    figure, ax = panel()
    for twin in twins:
        look = subject.look(twin.name)
        ax.plot(
            np.arange(1, len(order) + 1),
            100 * margin_of(twin).unit_norms[order],
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markersize=4,
            linewidth=1.2,
            label=short_label(twin.name),
        )
    ax.axhline(100 / len(order), color=GREY, linestyle=":", linewidth=1.2)
    ax.set_ylim(bottom=0)
    ax.set(xlabel="unit, by rank", ylabel="share of the norm, %")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y")
    legend(figure)
    return figure
