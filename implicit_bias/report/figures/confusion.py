"""Confusion matrices of many classes."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from implicit_bias.base.wording import percent
from implicit_bias.comparison import ModelResult
from implicit_bias.report.figures.base import Plot, Subject, short_label
from implicit_bias.report.style import BLACK, WIDTH, panel

# Up to this many classes each cell has its number of samples in it.
MOST_NUMBERS = 12
# From this share on a cell is dark, so that its number is white.
DARK_SHARE = 0.5


def confusion_plots(subject: Subject) -> Iterator[Plot]:
    """Draw a confusion matrix for each model that has a predictor, of more than two classes."""
    comparison = subject.comparison
    if not comparison.many_classes:
        return
    names = subject.class_names
    for number, model in enumerate(comparison.models, 1):
        if model.confusion is not None:
            said = _worst(model.confusion, names)
            yield Plot(
                f"confusion-{number}",
                _matrix(model, model.confusion, names),
                f"Confusion matrix of {model.name} on {comparison.n_samples} evaluation samples, "
                f"{percent(model.error)} of them wrong: {said}",
                f"{model.name}: {said}.",
            )


def _matrix(model: ModelResult, counts: NDArray[np.int64], names: Sequence[str]) -> Figure:
    figure, ax = panel(height=WIDTH)
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.maximum(totals, 1)
    ax.imshow(shares, cmap="Greys", vmin=0.0, vmax=1.0, interpolation="nearest")
    if len(names) <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[row, column] >= DARK_SHARE else BLACK
                options = {"ha": "center", "va": "center", "fontsize": 7.5, "color": colour}
                ax.text(column, row, f"{count:,}", options)
    labels = [short_label(name) for name in names]
    turned = 90 if max(map(len, labels)) > 3 else 0
    ax.set_xticks(range(len(names)), labels, rotation=turned)
    ax.set_yticks(range(len(names)), labels)
    ax.tick_params(length=0)
    ax.spines[:].set(visible=False)
    ax.set(xlabel="predicted class", ylabel="class")
    ax.set_title(short_label(model.name))
    return figure


def _worst(counts: NDArray[np.int64], names: Sequence[str]) -> str:
    """Say which class is taken for which other one most often."""
    others = counts.copy()
    np.fill_diagonal(others, 0)
    row, column = divmod(int(others.argmax()), len(others))
    if not others[row, column]:
        return "no class is taken for another"
    return (
        f"most often {names[row]} is taken for {names[column]}, {others[row, column]:,} times in "
        f"{counts[row].sum():,}"
    )
