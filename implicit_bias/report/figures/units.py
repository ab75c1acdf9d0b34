"""The share of each hidden unit in the norm."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from implicit_bias.comparison import Comparison, ModelResult, first_svm
from implicit_bias.report.figures.base import Plot, Subject
from implicit_bias.report.style import GREY, legend, panel

# Where the norm does not tell units apart.
ONE_GROUP = " (the norm is over all units at once, so this is only their share in its square)"


def _several_units(comparison: Comparison) -> list[list[ModelResult]]:
    """Models of each program whose norm has several groups, less those without a predictor."""
    shared = [[m for m in same if m.has_predictor] for same in comparison.programs()]
    return [same for same in shared if same and same[0].known_margin.units > 1]


def _active(subject: Subject, model: ModelResult) -> str:
    margin, names = model.known_margin, subject.class_names
    active, units = margin.active_units, margin.units
    said = f"{model.name} keeps {'all' if active == units else f'{active} of'} {units}"
    if margin.fitted.architecture.apart and margin.fitted.coef.shape[:-2] == (len(names),):
        counts = margin.active.reshape(len(names), -1).sum(axis=1)
        said += f" ({', '.join(f'{name} {n}' for name, n in zip(names, counts, strict=True))})"
    return said


def active_in_svms(subject: Subject) -> str:
    """Say how many units each SVM keeps, and of which class, where each has its own."""
    svms = [svm for same in _several_units(subject.comparison) if (svm := first_svm(same))]
    return f"; here {', '.join(_active(subject, svm) for svm in svms)}" if svms else ""


def unit_plots(subject: Subject) -> Iterator[Plot]:
    """Units by their share in the norm, a figure a program."""
    for i, same in enumerate(_several_units(subject.comparison), 1):
        first = first_svm(same) or same[0]
        n_units = first.known_margin.units
        active = "; ".join(_active(subject, model) for model in same)
        joined = "A line joins what the models make of one unit; sorted" if same[1:] else "Sorted"
        yield Plot(
            f"units-{i}",
            _unit_shares(subject, same, first),
            f"Share of each of {n_units} units in the norm, for models of one program: {active}",
            f"Units: {active}. {joined} by {first.name}. The dotted line is an equal share for all."
            + (" No SVM to compare with: not separable, proven." if first.inseparable else ""),
        )


def _unit_shares(subject: Subject, models: Sequence[ModelResult], first: ModelResult) -> Figure:
    order = np.argsort(-first.known_margin.unit_norms, kind="stable")
    figure, ax = panel()
    rank = np.arange(1, len(order) + 1)
    shares = {m.name: 100 * m.known_margin.unit_norms[order] for m in models}
    if len(models) > 1:
        ends = np.array(list(shares.values()))
        ax.vlines(rank, ends.min(axis=0), ends.max(axis=0), color=GREY, linewidth=1.2)
    for name, share in shares.items():
        subject.draw(ax, name, rank, share, markersize=5, linestyle="", clip_on=False)
    ax.axhline(100 / len(order), color=GREY, linestyle=":", linewidth=1.2)
    ax.set_ylim(bottom=0)
    ax.set(xlim=(0.5, len(order) + 0.5), xlabel="unit, by rank", ylabel="share of the norm, %")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y")
    legend(figure)
    return figure
