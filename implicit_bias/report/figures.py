"""The figures of a page, each with its words, and how models are drawn in all of them.

=============  =====================================================================
errors         with their intervals; how far norms exceed the certified minimum
training       how far the norm exceeds the minimum, over the steps of training
margins        of the training samples, a histogram for each model
plane          decision regions, for inputs in the plane
support        support vectors as images
=============  =====================================================================

Each is drawn by a function of plain numbers; ``..._plots`` take these from a comparison.

Source: Lippl, Abbott, Chung (2022), figure 1, for decision regions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import style
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import minus, percent
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.comparison.verdict import WORDS
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.report.words import class_as_sign, class_names, names_of


@dataclass(frozen=True, eq=False)
class Plot:
    """One figure.

    Attributes
    ----------
    name : str
        Stem of its file, unique in a report.
    figure : Figure
        What was drawn.
    alt : str
        What it shows, as alternative text.
    caption : str
        What to look for in it.
    raster : bool
        Whether it is made of pixels, so that PNG serves it better than SVG.
    """

    name: str
    figure: Figure
    alt: str
    caption: str
    raster: bool = False


@dataclass(frozen=True, eq=False)
class Section:
    """Figures that belong together, with a heading and an introduction."""

    name: str
    title: str
    note: str
    plots: tuple[Plot, ...]


def with_words(
    name: str, figure: Figure, words: str, *, raster: bool = False, **facts: object
) -> Plot:
    """Give a figure the two texts that words.toml has under ``[figures.WORDS]``, filled in."""
    texts = WORDS["figures"][words]
    alt = texts["alt"].format(**facts)
    caption = texts["caption"].format(**facts)
    return Plot(name, figure, alt, caption, raster)


def looks(comparison: Comparison) -> dict[str, style.Look]:
    """Return how each model is drawn, by its place in the comparison."""
    return {model.name: style.look(number) for number, model in enumerate(comparison.models)}


# --- errors and training --------------------------------------------------------------------------


def error_plots(comparison: Comparison, drawn_as: Mapping[str, style.Look]) -> Iterator[Plot]:
    """Draw the errors of the models."""
    figure, ax = style.panel(height=1.3 + 0.55 * len(comparison.models))
    draw_errors(ax, comparison.models, drawn_as)
    style.legend(figure)
    errors = []
    for model in comparison.models:
        error = "unknown"
        if model.has_predictor:
            error = f"{percent(model.error)} ({model.count})"
        errors.append(f"{model.name} {error}")
    n_samples = comparison.n_samples
    yield with_words("errors", figure, "errors", n_samples=n_samples, errors="; ".join(errors))


def overview(comparison: Comparison) -> Figure:
    """Draw a comparison; see `Comparison.plot`."""
    drawn_as = looks(comparison)
    excess_of = {}
    for model in comparison.models:
        if model.margin is not None and math.isfinite(model.margin.excess):
            excess_of[model.name] = model.margin.excess
    n_panels = 1
    if excess_of:
        n_panels = 2
    with style.style():
        height = min(style.HEIGHT, 1.1 + 0.45 * len(comparison.models))
        figure, axes = style.panels(n_panels, height=height)
        draw_errors(axes[0], comparison.models, drawn_as)
        if excess_of:
            draw_excesses(axes[1], excess_of, drawn_as)
    return figure


def draw_errors(
    ax: Axes, models: Sequence[ModelResult], drawn_as: Mapping[str, style.Look]
) -> None:
    """Draw the error of each model with its interval, and its training error."""
    # The legend explains full and open marks in grey, as each model has another colour.
    ax.plot([], [], "o", color=style.GREY, label="test samples")
    if any(model.train_wrong is not None for model in models):
        ax.plot([], [], "o", color=style.GREY, markerfacecolor="none", label="training samples")
    for row, model in enumerate(models):
        if not model.has_predictor:
            _write_at(ax, row, 0.0, "no predictor: not separable")
            continue
        # The error on the test samples is in the middle of a row, its number above. That on the
        # training samples is below. Rows count downwards.
        look = drawn_as[model.name]
        low, high = model.count.interval
        (interval,) = ax.plot([100 * low, 100 * high], [row, row], color=look.colour)
        interval.set(linewidth=1.6, solid_capstyle="butt")
        # A mark at 0 is whole: it is not cut off at the edge of the axes.
        (mark,) = ax.plot(100 * model.error, row, look.marker, color=look.colour)
        mark.set(markersize=7, clip_on=False)
        _write_at(ax, row - 0.25, model.error, percent(model.error))
        if model.train_wrong is not None:
            error = model.train_error
            (mark,) = ax.plot(100 * error, row + 0.25, look.marker, color=look.colour)
            mark.set(markersize=6, markerfacecolor="none", clip_on=False)
            _write_at(ax, row + 0.25, error, percent(error), colour=style.GREY)
    _name_rows(ax, [style.short_label(model.name) for model in models])
    _percent_axis(ax, "error, % of the samples")


def draw_excesses(
    ax: Axes, excess_of: Mapping[str, float], drawn_as: Mapping[str, style.Look]
) -> None:
    """Draw how far the norm of each model at unit margin is above the certified minimum."""
    for row, (name, excess) in enumerate(excess_of.items()):
        look = drawn_as[name]
        ax.plot(100 * excess, row, look.marker, color=look.colour, clip_on=False)
        _write_at(ax, row, excess, percent(excess))
    _name_rows(ax, [style.short_label(name) for name in excess_of])
    # Longer than an axis of errors: an excess has no upper end at 100 %, and its numbers are long.
    _percent_axis(ax, "norm above the certified minimum, %", room=1.35, most=math.inf)


def _write_at(ax: Axes, row: float, share: float, text: str, *, colour: str = style.BLACK) -> None:
    """Write a text right of the mark of a fraction."""
    words = ax.annotate(text, (100 * share, row), (7, 0), textcoords="offset points")
    words.set(va="center", fontsize=8.5, color=colour)


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Name the rows of a chart, the first on top."""
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0, pad=8)  # a mark at 0 does not touch a name
    ax.set_ylim(len(names) - 0.4, -0.6)  # the larger limit first: rows count downwards


def _percent_axis(ax: Axes, label: str, *, room: float = 1.22, most: float = 100.0) -> None:
    """Let the axis begin at zero, and leave room for the numbers beside the last mark.

    ``room`` is the length of the axis over that of the data; line and ticks end at ``most``.
    """
    ax.set_xlabel(label)
    # Where all fractions are 0 the axis has a length nevertheless.
    ax.set_xlim(0, max(room * min(ax.get_xlim()[1], most), 1.0))
    # The room for numbers may go beyond 100 %, the axis itself does not.
    end = min(ax.get_xlim()[1], most)
    ticks = np.asarray(MaxNLocator(5).tick_values(0, end))
    ax.set_xticks(ticks[(ticks >= 0) & (ticks <= end)])
    ax.spines.bottom.set_bounds(0, end)
    ax.grid(axis="x")


def training_plots(comparison: Comparison, drawn_as: Mapping[str, style.Look]) -> Iterator[Plot]:
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
    curves: Mapping[str, tuple[list[int], list[float]]], drawn_as: Mapping[str, style.Look]
) -> Figure:
    """Draw the excess of each network (%), by its name, by step; nan where it has none."""
    figure, ax = style.panel()
    for name, (steps, excess) in curves.items():
        look = drawn_as[name]
        (line,) = ax.plot(steps, excess, linestyle=look.line, color=look.colour)
        line.set(marker=look.marker, markersize=3.5, markevery=4, label=style.short_label(name))
    style.logarithmic(ax)
    ax.set(xlabel="training step", ylabel="norm above the certified minimum, %")
    style.legend(figure)
    return figure


# --- margins --------------------------------------------------------------------------------------


def margin_plots(
    comparison: Comparison, drawn_as: Mapping[str, style.Look], *, n_bins: int = 40
) -> Iterator[Plot]:
    """Draw a histogram of margins for each model, those of one problem on common axes."""
    label = "y f(x) / norm"
    if comparison.many_classes:
        label = "smallest margin of a sample / norm"
    number = 0
    for models in comparison.problems():
        # Margins that are all 0 are those of weights 0: their histogram is one bar, and its bins
        # have no width.
        shown = {}
        for model in models:
            if model.has_predictor and model.known_margin.margins.any():
                shown[model.name] = model.known_margin

        if not shown:
            continue
        edges = _bins([margin.margins for margin in shown.values()], models[0], n_bins)
        # One scale of counts for all models of a problem, so that the panels compare at a glance.
        highest = 0
        for margin in shown.values():
            highest = max(highest, np.histogram(margin.margins, edges)[0].max())

        for name, margin in shown.items():
            number += 1
            largest = "not known"
            if margin.inseparable:
                largest = "none is positive (not separable: proven)"
            elif margin.largest_margin is not None:
                largest = f"{margin.largest_margin:.3g}"
            yield with_words(
                f"margins-{number}",
                margin_histogram(
                    margin.margins,
                    edges,
                    title=style.short_label(name),
                    label=label,
                    colour=drawn_as[name].colour,
                    top=1.05 * highest,
                    largest=margin.largest_margin,
                ),
                "margins",
                model=name,
                n_samples=len(margin.margins),
                smallest=minus(f"{margin.min_margin:.3g}"),
                largest=largest,
            )


def _bins(margins: list[Array], model: ModelResult, n_bins: int) -> Array:
    """Return edges of about ``n_bins`` bins that cover the margins of models of one problem.

    Zero is an edge, and so is the maximum margin, where it is known and bins are no wider.
    """
    values = np.concatenate([np.zeros(1), *margins])
    largest = model.known_margin.largest_margin
    if largest is not None:
        values = np.append(values, largest)
    width = (values.max() - values.min()) / n_bins
    if largest is not None and largest > width / 2:
        # Support vectors of an SVM have the maximum margin up to the gap of its solution. The edge
        # is a little below, so that they are all in the bin that begins there.
        edge = largest * (1 - 1e-4)
        width = edge / max(1, round(edge / width))
    first = np.floor(values.min() / width)
    last = np.ceil(values.max() / width)
    return width * np.arange(first, last + 1)


def margin_histogram(
    margins: Array,
    edges: Array,
    *,
    title: str,
    label: str,
    colour: str,
    top: float,
    largest: float | None,
) -> Figure:
    """Draw a histogram of margins (N,), zero, and the maximum margin where that is known.

    ``top`` is the upper end of the axis of counts: that of all models of the problem.
    """
    figure, ax = style.panel(height=2.8)
    bins = edges.tolist()
    ax.hist(margins, bins, color=colour, alpha=0.8, edgecolor="white", linewidth=0.4)
    ax.axvline(0, color=style.GREY, linewidth=1)
    if largest is not None:
        ax.axvline(largest, color=style.BLACK, linestyle="--", label="maximum margin")
        style.legend(figure)
    ax.set_ylim(0, top)
    ax.set_title(title)
    ax.set(xlabel=label, ylabel="training samples")
    ax.locator_params(axis="x", nbins=6)
    return figure


# --- the plane ------------------------------------------------------------------------------------


def plane_plots(comparison: Comparison, train: Dataset, *, n_grid: int = 240) -> Iterator[Plot]:
    """Draw the decision regions of each model, by its predictions on an n_grid x n_grid grid."""
    # Two pixels would be two inputs as well, but no plane to look at.
    if train.n_features - train.has_constant != 2 or train.image_shape is not None:
        return
    low = train.X[:, :2].min(axis=0)
    high = train.X[:, :2].max(axis=0)
    if (low == high).any():  # no plane, or inputs that are no numbers
        return

    # A grid over the samples, with some room around them; y is the slow axis.
    room = 0.08 * np.maximum(high - low, 1e-9)
    x, y = np.linspace(low - room, high + room, n_grid).T
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    if train.has_constant:
        points = np.column_stack([points, np.ones(len(points))])
    inputs: ArrayLike = points
    if isinstance(comparison.X, pd.DataFrame):
        # Pipelines that were fitted to a frame choose columns by name.
        inputs = pd.DataFrame(points, columns=comparison.X.columns)

    n_classes = len(class_names(comparison, train))
    class_looks = [style.look(number) for number in range(n_classes)]
    # Files are numbered by the models of the comparison, of which some may have no predictor.
    for number, model in enumerate(comparison.models, 1):
        if not model.has_predictor:
            continue
        labels = np.asarray(comparison.estimators[model.name].predict(inputs))
        classes = np.searchsorted(comparison.classes, labels).reshape(n_grid, n_grid)
        figure, ax = style.panel(height=style.WIDTH - 0.3)
        ax.set_title(style.short_label(model.name))
        ax.set(xlabel="input 1", ylabel="input 2")
        draw_regions(ax, x, y, classes, [look.colour for look in class_looks])
        samples = []
        for (label, name), look in zip(train.names.items(), class_looks, strict=True):
            points_of_class = train.X[train.y == label, :2]
            samples.append((style.short_label(name), points_of_class, look))
        draw_samples(ax, samples)
        ring_x, ring_y = train.X[support_vectors(model, len(train)), :2].T
        ax.scatter(ring_x, ring_y, s=60, facecolors="none", edgecolors=style.BLACK, linewidths=1.2)
        style.legend(figure)
        yield with_words(f"regions-{number}", figure, "regions", model=model.name)


def draw_regions(
    ax: Axes, x: Array, y: Array, classes: NDArray[np.int64], colours: list[str], tint: float = 0.25
) -> None:
    """Draw the classes (Y, X) of the points of a grid, and the boundaries between them.

    ``tint`` is the fraction of a class's colour in its region, mixed with white.
    """
    tints: list[Any] = []
    for colour in colours:
        tints.append(1.0 - tint * (1.0 - np.array(to_rgb(colour))))
    # An image of the grid, not filled contours: between classes 0 and 2 a contour would draw a band
    # of class 1.
    ax.imshow(
        classes,
        ListedColormap(tints),
        origin="lower",
        extent=(x[0], x[-1], y[0], y[-1]),
        vmin=0,
        vmax=len(tints) - 1,
        interpolation="nearest",
        aspect="auto",
    )
    # Of K classes the level sets {class >= k} have all boundaries between neighbouring regions.
    for label in np.unique(classes)[1:]:
        inside = (classes >= label).astype(float)
        ax.contour(x, y, inside, [0.5], colors=style.BLACK, linewidths=1.5)


def draw_samples(
    ax: Axes, samples: Sequence[tuple[str, Array, style.Look]], *, most_shapes: int = 2000
) -> None:
    """Draw name and samples (n, 2) of each class; more than ``most_shapes`` in all as pixels."""
    total = sum(len(points) for _, points, _ in samples)
    for name, points, look in samples:
        x, y = points.T
        marks = ax.scatter(x, y, s=14, c=look.colour, marker=look.marker, linewidths=0)
        # An SVG has a path for each shape: thousands of them make a page slow.
        marks.set(alpha=0.9, label=name, rasterized=total > most_shapes)


# --- support vectors ------------------------------------------------------------------------------


def support_plots(comparison: Comparison, train: Dataset, *, most: int = 8) -> Iterator[Plot]:
    """Show the support vectors of largest alpha of each SVM as images, ``most`` of them."""
    if train.image_shape is None:
        return
    height, width = train.image_shape
    pixels = train.X[:, : height * width]
    images = pixels.reshape(-1, height, width)  # row-major, as a row of X is
    limits = (float(pixels.min()), float(pixels.max()))
    number = 0
    for model in comparison.models:
        support = support_vectors(model, len(train))
        if model.fitted is None or model.fitted.solution is None or len(support) == 0:
            continue
        # Files are numbered by the figures that there are, not by models, whose names may be no
        # file names.
        number += 1
        # Of many classes a sample has one alpha for each rival, which count together.
        alpha = model.fitted.solution.alpha
        alpha = alpha.reshape(len(alpha), -1).sum(axis=1)
        largest = support[np.argsort(-alpha[support], kind="stable")][:most]
        tiles = []
        for n in largest:
            if train.classes is None:
                label = class_as_sign(train.y[n])
            else:
                label = style.short_label(train.names[int(train.y[n])])
            tiles.append((f"{label}   α {alpha[n]:.2g}", images[n]))
        yield with_words(
            f"support-{number}",
            style.image_grid(model.name, tiles, colours="gray_r", limits=limits),
            "support",
            raster=True,
            model=model.name,
            shown=len(largest),
            support_vectors=len(support),
        )


def support_vectors(model: ModelResult, n_train: int) -> NDArray[np.int64]:
    """Return the support vectors of a model, as indices of ``n_train`` training samples.

    There are none for a network, nor if the number of samples says that others are shown.
    """
    none = np.empty(0, dtype=np.int64)
    if model.fitted is None or model.fitted.solution is None:
        return none
    # Other samples are shown than the training samples, whose indices mean nothing for them.
    if len(model.fitted.solution.alpha) != n_train:
        return none
    return model.fitted.support
