"""Figures of a report, each drawn by one function, and the sections they stand in.

A figure is one small panel, wide as a phone: the page puts panels side by side where there is
room. Colours are Okabe and Ito's; line, marker and hatch say the same without colour.

Source: Lippl, Abbott, Chung (2022), section 4 and, for the plane, their figure 1.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from implicit_bias.certificate import Status
from implicit_bias.comparison import Comparison, MarginResult, ModelResult, Predicts
from implicit_bias.datasets import Dataset
from implicit_bias.estimators import MarginView
from implicit_bias.training import HistoryPoint
from implicit_bias.validation import Array

# Size of a panel in inches, at 96 CSS pixels an inch.
WIDTH, HEIGHT = 4.2, 3.2
# Most units, contexts and support vectors shown as images.
MAX_UNITS, MAX_CONTEXTS, MAX_SUPPORT, IMAGES_A_ROW = 4, 4, 8, 4
# Where the norm does not tell units apart.
ONE_GROUP = " (the norm is over all units at once, so this is only their share in its square)"
# Points along each axis at which a picture of the plane is computed.
GRID = 240
# With more contexts than this their hyperplanes are drawn only where they rule.
MAX_EXTENDED = 8
# Above this many samples a picture draws them as pixels, not as shapes.
MAX_SHAPES = 2000

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
GREY = "#767676"
NEGATIVE_TINT, POSITIVE_TINT = "#cfe3f1", "#fbdcc4"
CONTEXT_TINTS = ("#f4f4f4", "#e2ecf3", "#f7eedd", "#e0f0ea", "#f6e6ee", "#e3e3e3", "#fbf6d9")

STYLE: dict[str, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.markerscale": 1.4,
    "hatch.linewidth": 0.7,
    "savefig.dpi": 160,
    "svg.hashsalt": "implicit_bias",  # the same identifiers in each run
    "text.parse_math": False,  # a dollar sign in a model's name is a dollar sign
}


@dataclass(frozen=True)
class Look:
    """How a model is drawn in every figure: each of the three tells it from its neighbours."""

    colour: str
    line: str
    marker: str


COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
LINES = ("-", "--", "-.", ":")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*", "<")


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
        What it shows, for who cannot see it.
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
    """Figures that belong together, with a heading and a word of introduction."""

    name: str
    title: str
    note: str
    plots: tuple[Plot, ...]


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report is about.

    Attributes
    ----------
    comparison : Comparison
        Its numbers.
    models : mapping from name to fitted classifier
        The models compared.
    views : mapping from name to MarginView
        The margin problem's side of those that have one.
    train : Dataset
        The samples the models were fitted to.
    """

    comparison: Comparison
    models: Mapping[str, Predicts]
    views: Mapping[str, MarginView]
    train: Dataset

    def look(self, name: str) -> Look:
        """Return how the model of this name is drawn."""
        i = [model.name for model in self.comparison.models].index(name)
        return Look(*(cycle[i % len(cycle)] for cycle in (COLOURS, LINES, MARKERS)))


def style() -> AbstractContextManager[None]:
    """Return the settings to draw and save figures under, whatever the user's own are."""
    return matplotlib.style.context(["default", STYLE])


def sections(subject: Subject) -> tuple[Section, ...]:
    """Draw all sections for which there are data; call it inside `style`."""
    drawn = [
        Section(
            "errors",
            "Errors and disagreement",
            "How often each model is wrong, and how often two models say different things. Two "
            "models that go to the same place disagree far less than chance would have it.",
            tuple(_error_plots(subject)),
        ),
        Section(
            "units",
            "Which units are kept",
            "The norm is a sum over hidden units, so its minimum can switch whole units off"
            f"{_kept_by_svms(subject.comparison)}. The share of each unit in the norm shows "
            "whether gradient descent does the same.",
            tuple(_unit_plots(subject)),
        ),
        Section(
            "margins",
            "Margins of the training samples",
            "y f(x) divided by the norm, of each training sample. The smallest one is the margin; "
            "where there is a dashed line, no predictor of the same program can push it past that.",
            tuple(_margin_plots(subject)),
        ),
        Section(
            "training",
            "Training",
            "The networks over the steps of their training, on all training samples.",
            tuple(_training_plots(subject)),
        ),
        Section(
            "predictors",
            "Learned predictors",
            "The weights zeta with which a unit reads the image, one picture for each of its "
            "contexts: orange pixels speak for +1, purple ones for −1.",
            tuple(_predictor_plots(subject)),
        ),
        Section(
            "support",
            "Support vectors",
            "The training samples that hold the margin in place, those with the largest dual "
            f"variable alpha first. {_classes(subject.train)}",
            tuple(_support_plots(subject)),
        ),
        Section(
            "plane",
            "The plane",
            "What the models make of the two inputs. A ring marks a support vector."
            + "".join(
                f" {model.name} has no predictor: not separable, proven."
                for model in subject.comparison.models
                if _undecided(model)
            ),
            tuple(_plane_plots(subject)),
        ),
    ]
    return tuple(section for section in drawn if section.plots)


def programs(comparison: Comparison) -> list[list[ModelResult]]:
    """Models with a margin, those of one and the same program together."""
    grouped: dict[int, list[ModelResult]] = {}
    for model in comparison.models:
        if model.margin is not None:
            grouped.setdefault(model.margin.program, []).append(model)
    return list(grouped.values())


def not_separable(comparison: Comparison, model: ModelResult) -> bool:
    """Whether an SVM has proven that nothing of the model's program separates the samples."""
    return model.margin is not None and any(
        _undecided(other) and _margin(other).program == model.margin.program
        for other in comparison.models
    )


def _undecided(model: ModelResult) -> bool:
    """Whether the model is an SVM that found no predictor."""
    return model.margin is not None and model.margin.status is Status.NOT_SEPARABLE


def gates_moved(network: ModelResult) -> bool:
    """Whether training changed any gate, so that the program is that of the last step only."""
    return any(point.gates_changed > 0 for point in network.history)


def svm_among(twins: Sequence[ModelResult]) -> ModelResult | None:
    """Return the (first) SVM among models of one program."""
    return next((twin for twin in twins if _margin(twin).status is not None), None)


def _reference(twins: Sequence[ModelResult]) -> ModelResult:
    """Return the model to which those of one program are compared: the SVM if there is one."""
    return svm_among([twin for twin in twins if not _undecided(twin)]) or twins[0]


def percent(share: float) -> str:
    """Write a share for people: 0.0332 as "3.3 %", with a space that does not break."""
    if not np.isfinite(share):
        return "∞" if share > 0 else "–"
    if 0 < share < 1e-5:
        return "<\u00a00.001\u00a0%"
    digits = 3 if abs(share) >= 1 else 2
    return f"{float(f'{100 * share:.{digits}g}'):g}\u00a0%"


# --- errors and disagreement ---------------------------------------------------------------


def _error_plots(subject: Subject) -> Iterator[Plot]:
    comparison = subject.comparison
    listed = "; ".join(f"{model.name} {percent(model.error)}" for model in comparison.models)
    yield Plot(
        "errors",
        _error_bars(subject),
        f"Bars of the error of each model on {comparison.n_samples} evaluation samples: {listed}",
        "Errors on the evaluation samples (filled) and on the training samples (hatched).",
    )
    if any(np.isfinite(pair.disagreement) for pair in comparison.pairs):
        listed = "; ".join(
            f"{pair.first} and {pair.second} {percent(pair.disagreement)}, by chance "
            f"{percent(pair.by_chance)}"
            for pair in comparison.pairs
        )
        yield Plot(
            "disagreement",
            _disagreement_bars(comparison),
            f"Bars of the disagreement of each pair of models: {listed}",
            "Disagreement (bar) against the level of chance (diamond). Where a bar ends far left "
            "of its diamond, the two make the same mistakes.",
        )


def _error_bars(subject: Subject) -> Figure:
    models = subject.comparison.models
    figure, ax = _panel(height=0.9 + 0.55 * len(models))
    for row, model in enumerate(models):
        colour = subject.look(model.name).colour
        for shift, error, hatch in ((-0.2, model.error, ""), (0.2, model.train_error, "/////")):
            if np.isfinite(error):
                _bar(ax, row + shift, error, colour=colour, hatch=hatch)
                _write(ax, row + shift, error, percent(error))
        if np.isnan(model.error):
            _write(ax, row, 0.0, "no predictor: not separable")
    _name_rows(ax, [model.name for model in models])
    _percent_axis(ax, "error, % of the samples")
    return figure


def _disagreement_bars(comparison: Comparison) -> Figure:
    pairs = comparison.pairs
    figure, ax = _panel(height=1.2 + 0.45 * len(pairs))
    for row, pair in enumerate(pairs):
        if np.isnan(pair.disagreement):
            _write(ax, row, 0.0, "not separable", gap=8)
            continue
        _bar(ax, row, pair.disagreement, colour=SKY, height=0.55)
        end = max(pair.disagreement, pair.by_chance)
        _write(ax, row, end, f"{percent(pair.disagreement)} vs {percent(pair.by_chance)}", gap=8)
    chance = [100 * pair.by_chance for pair in pairs]
    ax.plot(chance, range(len(pairs)), "D", color=BLACK, label="expected by chance")
    _name_rows(ax, [f"{_label(pair.first)}\n– {_label(pair.second)}" for pair in pairs], wrap=False)
    _percent_axis(ax, "disagreement, % of the samples", room=1.6)
    _legend(figure)
    return figure


def _bar(
    ax: Axes, row: float, share: float, *, colour: str, hatch: str = "", height: float = 0.36
) -> None:
    face = "white" if hatch else colour
    ax.barh(row, 100 * share, height, color=face, edgecolor=colour, hatch=hatch)


def _write(ax: Axes, row: float, share: float, text: str, *, gap: float = 3) -> None:
    """Write a text right of the place where a bar of this length ends."""
    place, shift = (100 * share, row), (gap, 0)
    ax.annotate(text, place, shift, textcoords="offset points", va="center", fontsize=8.5)


def _name_rows(ax: Axes, names: Sequence[str], *, wrap: bool = True) -> None:
    ax.set_yticks(range(len(names)), [_label(name) if wrap else name for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.4, -0.6)  # the first on top


def _percent_axis(ax: Axes, label: str, *, room: float = 1.22) -> None:
    ax.set_xlabel(label)
    longest = min(ax.get_xlim()[1], 100.0)
    ax.set_xlim(0, max(room * longest, 1.0))  # room for the numbers
    ticks = MaxNLocator(5).tick_values(0, min(ax.get_xlim()[1], 100.0))
    ax.set_xticks([tick for tick in ticks if 0 <= tick <= min(ax.get_xlim()[1], 100.0)])
    ax.spines.bottom.set_bounds(0, min(ax.get_xlim()[1], 100.0))
    ax.grid(axis="x")


# --- units ---------------------------------------------------------------------------------


def _several_units(comparison: Comparison) -> list[list[ModelResult]]:
    """Models of each program whose norm has several groups, less those without a predictor."""
    shared = [[t for t in twins if not _undecided(t)] for twins in programs(comparison)]
    return [twins for twins in shared if twins and len(_margin(twins[0]).unit_norms) > 1]


def _kept(model: ModelResult) -> str:
    kept, units = _margin(model).active_units, len(_margin(model).unit_norms)
    return f"{model.name} keeps {'all' if kept == units else f'{kept} of'} {units}"


def _kept_by_svms(comparison: Comparison) -> str:
    svms = [svm for twins in _several_units(comparison) if (svm := svm_among(twins))]
    return f"; here {', '.join(map(_kept, svms))}" if svms else ""


def _unit_plots(subject: Subject) -> Iterator[Plot]:
    for i, twins in enumerate(_several_units(subject.comparison), 1):
        first = _reference(twins)
        n_units = len(_margin(first).unit_norms)
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
    order = np.argsort(-_margin(_reference(twins)).unit_norms, kind="stable")
    figure, ax = _panel()
    for twin in twins:
        look = subject.look(twin.name)
        ax.plot(
            np.arange(1, len(order) + 1),
            100 * _margin(twin).unit_norms[order],
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markersize=4,
            linewidth=1.2,
            label=_label(twin.name),
        )
    ax.axhline(100 / len(order), color=GREY, linestyle=":", linewidth=1.2)
    ax.set_ylim(bottom=0)
    ax.set(xlabel="unit, by rank", ylabel="share of the norm, %")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y")
    _legend(figure)
    return figure


# --- margins -------------------------------------------------------------------------------


def _margin_plots(subject: Subject) -> Iterator[Plot]:
    number = 0
    for twins in programs(subject.comparison):
        decided = [t for t in twins if not _undecided(t) and _margin(t).margins.any()]
        margins = [_margin(twin).margins for twin in decided]
        edges = _edges([*margins, _bounds(subject, decided)])
        for twin in decided:
            number += 1
            margin, bound = _margin(twin), _bound(subject, twin)
            at_most = (
                "" if bound is None else f", at most {bound:.3g} for any predictor with these gates"
            )
            if not_separable(subject.comparison, twin):
                at_most = (
                    "; none is positive for any predictor with these gates (not separable: proven)"
                )
            yield Plot(
                f"margins-{number}",
                _margin_histogram(subject, twin, edges),
                f"Histogram of the margins of {len(margin.margins)} training samples for "
                f"{twin.name}: the smallest is {margin.min_margin:.3g}{at_most}",
                f"{twin.name}: smallest margin {margin.min_margin:.3g}{at_most}.",
            )


def _margin_histogram(subject: Subject, model: ModelResult, edges: Array) -> Figure:
    figure, ax = _panel(height=2.8)
    look = subject.look(model.name)
    margins = _margin(model).margins
    ax.hist(margins, edges.tolist(), color=look.colour, alpha=0.8, edgecolor="white", linewidth=0.4)
    ax.axvline(0, color=GREY, linewidth=1)
    bound = _bound(subject, model)
    if bound is not None:
        ax.axvline(bound, color=BLACK, linestyle="--", label="largest possible smallest margin")
        _legend(figure)
    ax.set_title(_label(model.name))
    ax.set(xlabel="y f(x) / norm", ylabel="training samples")
    ax.locator_params(axis="x", nbins=6)
    return figure


def _bound(subject: Subject, model: ModelResult) -> float | None:
    """1 / optimum: no predictor of the model's program has a larger smallest margin.

    None where the optimum is not known, is one of a soft margin, or nothing separates.
    """
    if not_separable(subject.comparison, model):
        return None
    optimum = 0.0 if model.margin is None else model.margin.optimum
    hard = optimum > 0 and np.isinf(subject.views[model.name].C)
    return 1.0 / optimum if hard and np.isfinite(optimum) else None


def _bounds(subject: Subject, models: Iterable[ModelResult]) -> list[float]:
    found = {_bound(subject, model) for model in models}
    return sorted(bound for bound in found if bound is not None)


def _edges(shown: Iterable[ArrayLike], n_bins: int = 40) -> Array:
    """Edges of a histogram (n_bins + 1,) that has room for all that is to be shown, and zero."""
    values = np.concatenate([[0.0], *map(np.asarray, shown)])
    return np.linspace(values.min(), values.max(), n_bins + 1)


# --- training ------------------------------------------------------------------------------


def _training_plots(subject: Subject) -> Iterator[Plot]:
    networks = [model for model in subject.comparison.models if model.history]
    if not networks:
        return
    names, bounds = _names(networks), _bounds(subject, networks)
    yield Plot(
        "training-loss",
        _curves(subject, networks, lambda model, p: p.loss, "mean loss", log=True),
        f"Mean training loss against the step, for {names}",
        "Once all samples are right the loss can still fall: by weights that grow without bound.",
    )
    yield Plot(
        "training-error",
        _curves(subject, networks, lambda model, p: 100 * p.error, "training error, %"),
        f"Training error against the step, for {names}",
        "At 0 the network separates its training samples; only then has it a norm at margin 1.",
    )
    yield Plot(
        "training-margin",
        _curves(
            subject,
            networks,
            lambda model, p: p.normalised_margin,
            "normalised margin",
            levels=bounds,
        ),
        f"Normalised margin against the step, for {names}"
        + (", with the largest possible as a line" if bounds else ""),
        "min y f(x) / norm: positive once all samples are right."
        + (
            " The black line is the level of the SVM with the gates at the end, 1 / optimum: the "
            "limit of gradient descent, if the gates stay and it runs for ever."
            if bounds
            else ""
        ),
    )
    certified = [
        network
        for network in networks
        if _has_excess(network) and not not_separable(subject.comparison, network)
    ]
    if certified:
        yield Plot(
            "training-excess",
            _curves(subject, certified, _excess, "norm / optimum − 1", log=True),
            f"Excess of the norm over the certified optimum, for {_names(certified)}",
            "How much larger the norm is than it need be, from the step on at which all samples "
            "are right; the optimum is that of the gates at the end. It falls to 0 if training "
            "finds the SVM.",
        )
    moved = [network for network in networks if gates_moved(network)]
    if moved:
        yield Plot(
            "training-gates",
            _curves(
                subject,
                moved,
                lambda model, p: 100 * p.gates_changed,
                "gates changed since step 0, %",
            ),
            f"Share of the gates that differ from those of step 0, for {_names(moved)}",
            "Pairs of a training sample and a unit whose gate is not what it was before training. "
            "The theory of fixed gates applies as far as this curve is flat.",
        )


def _curves(
    subject: Subject,
    networks: Sequence[ModelResult],
    value: Callable[[ModelResult, HistoryPoint], float],
    label: str,
    *,
    log: bool = False,
    levels: Sequence[float] = (),
) -> Figure:
    figure, ax = _panel()
    for network in networks:
        look = subject.look(network.name)
        ax.plot(
            [point.step for point in network.history],
            [value(network, point) for point in network.history],
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markersize=3.5,
            markevery=4,
            label=_label(network.name),
        )
    ax.set_xscale("symlog", linthresh=1)  # a logarithm that has room for step 0
    ax.set_xlim(left=0)
    for level in levels:
        ax.axhline(level, color=BLACK, linewidth=1.2, label="_level")
    if levels:
        ax.axhline(0, color=GREY, linewidth=1, linestyle=":")
        ax.margins(y=0.12)
    if log:
        _log_scale(ax)
    _end_values(ax)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="step", ylabel=label)
    ax.grid()
    _legend(figure)
    return figure


def _log_scale(ax: Axes) -> None:
    """Make the y axis logarithmic with three numbers beside it at least, or leave it linear."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in ax.lines])
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        return
    low, high = values.min() / 1.2, values.max() * 1.2
    ticks = _log_ticks(low, high)
    if len(ticks) < 3:
        ax.set_ylim(bottom=0)
        return
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_locator(NullLocator())


def _log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two positive ones: three to eight, where a coarse enough grid has."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for mantissas in ((1,), (1, 2, 5), tuple(range(1, 10))):
        ticks = [float(f"{m}e{decade:.0f}") for decade in decades for m in mantissas]
        shown = [tick for tick in ticks if low <= tick <= high]
        if len(shown) >= 3:
            return shown[:: -(-len(shown) // 8)]
    return []


def _end_values(ax: Axes) -> None:
    """Write the last value of each curve right of the axes, none over another."""
    ends = []
    ax.get_ylim()  # settles the limits, on which the places depend
    for line in ax.lines:
        x, y = (np.asarray(data, dtype=float) for data in line.get_data())
        known = np.flatnonzero(np.isfinite(y))
        if len(known) and not str(line.get_label()).startswith("_child"):
            place = ax.transData.transform((x[known[-1]], y[known[-1]]))
            height = float(ax.transAxes.inverted().transform(place)[1])
            if np.isfinite(height):
                ends.append((height, float(y[known[-1]]), line.get_color()))
    lowest = -np.inf
    for height, value, colour in sorted(ends, key=lambda end: end[:2]):
        lowest = max(height, lowest + 0.075)
        ax.text(
            1.015,
            lowest,
            f"{value:.3g}",
            transform=ax.transAxes,
            color=colour,
            fontsize=8.5,
            va="center",
        )


def _excess(model: ModelResult, point: HistoryPoint) -> float:
    """Excess at a point of the history; nan where the network does not separate its samples."""
    if point.min_margin <= 0:
        return np.nan
    return point.norm / point.min_margin / _margin(model).optimum - 1.0


def _has_excess(model: ModelResult) -> bool:
    known = model.margin is not None and 0 < model.margin.optimum < np.inf
    return known and any(_excess(model, point) > 0 for point in model.history)


# --- images --------------------------------------------------------------------------------


def _predictor_plots(subject: Subject) -> Iterator[Plot]:
    if subject.train.image_shape is None:
        return
    number = 0
    for twins in programs(subject.comparison):
        pictured = [twin for twin in twins if _reads_inputs(subject.views[twin.name])]
        if not pictured:
            continue
        coefs = {twin.name: _unit_coef(subject.views[twin.name]) for twin in pictured}
        first = _reference(pictured).name
        one_group = len(_margin(twins[0]).unit_norms) == 1
        largest = "longest zeta" if one_group else "largest norm"
        chosen = f"the units with the {largest} in {first}"
        rows = _tiles(coefs[first], subject.views[first].structure.gating.groups)
        columns = [column for row in rows for column, _ in row]
        pixels = np.prod(subject.train.image_shape)
        limit = max(np.abs(coef[columns, :pixels]).max() for coef in coefs.values())
        for name, coef in coefs.items():
            number += 1
            yield Plot(
                f"predictors-{number}",
                _predictor_images(name, coef, rows, limit, subject.train.image_shape),
                f"Weights of {name} as images, of {chosen}",
                f"{name}: {chosen}"
                + (ONE_GROUP if one_group else "")
                + ". The colour scale is the same for all models of this program, whose weights "
                "have total length 1.",
                raster=True,
            )


def _reads_inputs(view: MarginView) -> bool:
    """Whether the coefficients apply to the inputs themselves, and are not all zero."""
    return view.structure.representation is None and bool(np.any(view.coef))


def _unit_coef(view: MarginView) -> Array:
    return view.coef / np.linalg.norm(view.coef)


def _tiles(coef: Array, units: NDArray[np.int64]) -> list[list[tuple[int, str]]]:
    """Gate columns to show, each with its title: a row a unit, or one row for all.

    ``coef`` is (M, D); ``units`` (M,) is the unit of each column.
    """
    squares = np.einsum("md,md->m", coef, coef)
    norms = np.bincount(units, weights=squares)
    rows = []
    for unit in np.argsort(-norms, kind="stable")[:MAX_UNITS]:
        columns = np.flatnonzero(units == unit)
        largest = np.argsort(-squares[columns], kind="stable")[:MAX_CONTEXTS]
        rows.append([(int(columns[c]), f"unit {unit}, context {c}") for c in np.sort(largest)])
    if len(units) == len(norms):  # one column a unit
        return [[(column, f"unit {units[column]}") for row in rows for column, _ in row]]
    return rows


def _predictor_images(
    name: str,
    coef: Array,
    rows: Sequence[Sequence[tuple[int, str]]],
    limit: float,
    shape: tuple[int, int],
) -> Figure:
    tiles = [
        (title, coef[column, : shape[0] * shape[1]].reshape(shape))  # C order, as in Dataset
        for row in rows
        for column, title in row
    ]
    return _image_grid(name, tiles, max(map(len, rows)), "PuOr_r", (-limit, limit))


def _support_plots(subject: Subject) -> Iterator[Plot]:
    if subject.train.image_shape is None:
        return
    solved = [name for name in subject.views if len(_support(subject, name))]
    for i, name in enumerate(solved, 1):
        support = _support(subject, name)
        yield Plot(
            f"support-{i}",
            _support_images(subject, name),
            f"Images of the support vectors of {name} with the largest alpha",
            f"{name}: {min(MAX_SUPPORT, len(support))} of its {len(support)} support vectors, "
            "with label and alpha.",
            raster=True,
        )


def _support_images(subject: Subject, name: str) -> Figure:
    train, solution = subject.train, subject.views[name].solution
    if train.image_shape is None or solution is None:
        raise ValueError(f"{name} has no support vectors that are images")
    support = _support(subject, name)
    largest = support[np.argsort(-solution.alpha[support], kind="stable")][:MAX_SUPPORT]
    pixels = train.X[:, : train.image_shape[0] * train.image_shape[1]]
    tiles = [
        (f"{_signed(train.y[n])}   α {solution.alpha[n]:.2g}", pixels[n].reshape(train.image_shape))
        for n in largest
    ]
    limits = (float(pixels.min()), float(pixels.max()))
    return _image_grid(name, tiles, IMAGES_A_ROW, "gray_r", limits)


def _image_grid(
    title: str,
    tiles: Sequence[tuple[str, Array]],
    n_columns: int,
    colours: str,
    limits: tuple[float, float],
) -> Figure:
    """Images in rows of ``n_columns``, each under its own title."""
    n_columns = min(n_columns, len(tiles))
    n_rows = -(-len(tiles) // n_columns)
    side = min(WIDTH / n_columns, WIDTH / 2.6)
    figure = Figure(figsize=(WIDTH, 0.4 + n_rows * (side + 0.2)), layout="constrained")
    figure.suptitle(_label(title), fontsize=10, fontweight="bold")
    for ax in (grid := figure.subplots(n_rows, n_columns, squeeze=False)).flat:
        ax.set_axis_off()
    for ax, (name, image) in zip(grid.flat, tiles, strict=False):
        ax.imshow(image, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        ax.set_title(name, fontsize=8.5, fontweight="normal", pad=3)
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=GREY)
    return figure


# --- the plane -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Plane:
    """A grid over the training samples of two inputs.

    Attributes
    ----------
    x, y : ndarray of shape (GRID,)
        Coordinates along the axes.
    has_constant : bool
        Whether inputs end with a constant 1.
    """

    x: Array
    y: Array
    has_constant: bool

    @classmethod
    def around(cls, data: Dataset) -> Plane:
        """Cover the samples, with some room."""
        low, high = data.X[:, :2].min(axis=0), data.X[:, :2].max(axis=0)
        room = 0.08 * np.maximum(high - low, 1e-9)
        x, y = np.linspace(low - room, high + room, GRID).T
        return cls(x, y, data.has_constant)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top."""
        return self.x[0], self.x[-1], self.y[0], self.y[-1]

    def points(self) -> Array:
        """Return the inputs (GRID^2, D) at the grid's points: y is the slow axis."""
        x, y = np.meshgrid(self.x, self.y)
        return self.inputs(np.column_stack([x.ravel(), y.ravel()]))

    def inputs(self, points: Array) -> Array:
        """Points (n, 2) with the constant, where there is one."""
        return np.column_stack([points, np.ones(len(points))]) if self.has_constant else points

    def line(self, coef: Array) -> Array:
        """Points (n, 2) of <coef, x> = 0 that cross the grid; none where there is no line."""
        normal, offset = coef[:2], coef[2] if self.has_constant else 0.0
        square = float(normal @ normal)
        if square == 0:
            return np.empty((0, 2))
        centre = np.array([self.x.mean(), self.y.mean()])
        foot = centre - (normal @ centre + offset) / square * normal
        reach = np.hypot(np.ptp(self.x), np.ptp(self.y))
        along = np.linspace(-reach, reach, 8 * GRID) / np.sqrt(square)
        return foot + along[:, None] * np.array([-normal[1], normal[0]])


def _plane_plots(subject: Subject) -> Iterator[Plot]:
    train = subject.train
    if train.n_features - train.has_constant != 2 or train.image_shape is not None:
        return
    plane = Plane.around(train)
    for i, name in enumerate(subject.models, 1):
        if _undecided(subject.comparison.model(name)):
            continue
        yield Plot(
            f"regions-{i}",
            _decision_regions(subject, name, plane),
            f"Regions of the plane that {name} gives to each class, with the training samples",
            f"{name}: what it predicts. The line is where it changes its mind.",
        )
    for i, (name, view) in enumerate(subject.views.items(), 1):
        if _has_contexts(view, plane):
            yield Plot(
                f"contexts-{i}",
                _contexts(subject, name, plane),
                f"Contexts of {name}: the cells cut by the gates, and the hyperplane of each",
                f"{name}: the gates cut the plane into cells (dashed). In each cell rules one "
                "linear predictor; its zero set is solid where it rules, and, where the cells are "
                "few, dotted elsewhere.",
            )


def _decision_regions(subject: Subject, name: str, plane: Plane) -> Figure:
    figure, ax = _plane_panel(name)
    positive = np.asarray(subject.models[name].predict(plane.points())) == 1
    regions = positive.reshape(GRID, GRID)
    _tint(ax, plane, regions, (NEGATIVE_TINT, POSITIVE_TINT))
    _boundary(ax, plane, regions, colors=BLACK, linewidths=1.5)
    _samples(ax, subject, name)
    _legend(figure)
    return figure


def _contexts(subject: Subject, name: str, plane: Plane) -> Figure:
    figure, ax = _plane_panel(name)
    view = subject.views[name]
    gates = _gates(view, plane.points())
    cells, cell = np.unique(gates, axis=0, return_inverse=True)
    _tint(ax, plane, cell.reshape(GRID, GRID) % len(CONTEXT_TINTS), CONTEXT_TINTS)
    # A gate and its complement share their boundary.
    for changed in np.unique(np.abs(gates - gates[0]), axis=1).T:
        edges = changed.reshape(GRID, GRID) > 0
        _boundary(ax, plane, edges, colors=GREY, linewidths=0.9, linestyles="dashed")
    _samples(ax, subject, name, faint=True)
    for code in cells:
        line = plane.line(code @ view.coef)
        if not len(line):
            continue
        rules = (_gates(view, plane.inputs(line)) == code).all(axis=1)
        if len(cells) <= MAX_EXTENDED:
            ax.plot(*line.T, color=GREEN, linestyle=":", linewidth=1)
        ax.plot(*np.where(rules[:, None], line, np.nan).T, color=BLACK, linewidth=2)
    ax.set(xlim=plane.extent[:2], ylim=plane.extent[2:])
    _legend(figure)
    return figure


def _gates(view: MarginView, X: Array) -> Array:
    """Gates (n, M) of inputs (n, D), dense."""
    return sp.csr_array(view.structure.gating.gates(X)).toarray()


def _has_contexts(view: MarginView, plane: Plane) -> bool:
    """Whether the gates are functions of the inputs that cut the plane in pieces."""
    if not _reads_inputs(view):
        return False
    gates = _gates(view, plane.points())
    return bool(np.isin(gates, (0.0, 1.0)).all() and (gates != gates[0]).any())


def _tint(ax: Axes, plane: Plane, numbers: NDArray[Any], tints: Sequence[str]) -> None:
    """Colour the plane by whole numbers (GRID, GRID), each the index of a tint."""
    ax.imshow(
        numbers,
        ListedColormap(tints),
        vmin=0,
        vmax=len(tints) - 1,
        extent=plane.extent,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )


def _boundary(ax: Axes, plane: Plane, inside: NDArray[np.bool_], **options: Any) -> None:
    if inside.any() and not inside.all():
        ax.contour(plane.x, plane.y, inside.astype(float), [0.5], **options)


def _samples(ax: Axes, subject: Subject, name: str, *, faint: bool = False) -> None:
    train = subject.train
    classes = ((-1, BLUE, "o"), (1, VERMILION, "^"))
    names = train.class_names if has_class_names(train) else ("class −1", "class +1")
    for (label, colour, marker), class_name in zip(classes, names, strict=True):
        x, y = train.X[train.y == label, :2].T
        ax.scatter(
            x,
            y,
            s=14,
            c=colour,
            marker=marker,
            alpha=0.5 if faint else 0.9,
            linewidths=0,
            label=_label(class_name),
            rasterized=len(train) > MAX_SHAPES,
        )
    support = _support(subject, name)
    x, y = train.X[support, :2].T
    ax.scatter(x, y, s=60, facecolors="none", edgecolors=BLACK, linewidths=1.2)


def _plane_panel(name: str) -> tuple[Figure, Axes]:
    figure, ax = _panel(height=WIDTH - 0.3)
    ax.set_title(_label(name))
    ax.set(xlabel="input 1", ylabel="input 2")
    return figure, ax


# --- common --------------------------------------------------------------------------------


def _panel(*, height: float = HEIGHT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def _legend(figure: Figure) -> None:
    """Name what the only axes show, below them."""
    (ax,) = figure.axes
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)


def _label(name: str) -> str:
    """Name that fits a figure: at most two short lines."""
    lines = textwrap.wrap(name, width=18, max_lines=2, placeholder="…") or ["(no name)"]
    # A label that begins with an underscore would be kept out of legends.
    return "\n".join(lines) if not name.startswith("_") else " " + "\n".join(lines)


def _signed(label: float) -> str:
    return "+1" if label > 0 else "−1"


def _names(models: Iterable[ModelResult]) -> str:
    return ", ".join(model.name for model in models)


def _classes(data: Dataset) -> str:
    negative, positive = data.class_names
    return f"+1 is {positive}, −1 is {negative}." if has_class_names(data) else ""


def has_class_names(data: Dataset) -> bool:
    """Whether the names of the classes say more than their signs do."""
    return any(
        name.strip().replace("−", "-").lstrip("+") != sign
        for name, sign in zip(data.class_names, ("-1", "1"), strict=True)
    )


def _margin(model: ModelResult) -> MarginResult:
    if model.margin is None:
        raise ValueError(f"{model.name} has no margin structure")
    return model.margin


def _support(subject: Subject, name: str) -> NDArray[np.int64]:
    """Support vectors of a model, as indices of the training samples; none for a network."""
    view = subject.views.get(name)
    solution = None if view is None else view.solution
    if (
        solution is None
        or solution.status is Status.NOT_SEPARABLE
        or len(solution.alpha) != len(subject.train)
    ):
        return np.empty(0, dtype=np.int64)
    return solution.support


# --- contexts along a training -----------------------------------------------------------------


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
