"""Figures 2 to 5 of the paper, as released and corrected, side by side, and what lies beyond.

Drawn from the tables of the grids and of the released values. The left
half of a figure shows all released values, with our run of the released operators as rings; the
right half the corrected ones, where a ring says that the released solver had failed on a cell. A
value that is not there is not drawn, and no line crosses its place; a cross at the top of a panel
marks a cell that was tried and has no predictor. Bars are standard deviations over seeds, as the
paper's text says; its own figures draw standard errors.

Chance: two classifiers of one and the same error p, independent of each other, disagree on
2 p (1 - p) of the samples. p is the network's error, as in the paper.

Source: Lippl, Abbott, Chung (2022), figures 2 to 5; 4 and 5 are 2 and 3 for all settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from pandas.api.typing import SeriesGroupBy

from benchmarks.drawing import subplots
from benchmarks.lippl2022.gln_predictors import AdditivePredictors
from benchmarks.lippl2022.paired import Pairs, matched
from benchmarks.lippl2022.values import (
    SIDES,
    TRAIN_SIZES,
    Tables,
    in_study,
    of_momentum,
)
from implicit_bias.datasets.files import DataError
from implicit_bias.report.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    MODEL_COLOURS,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
)

PANEL_WIDTH, PANEL_HEIGHT = 2.9, 2.7  # inches
WIDTHS, DEPTHS = (10, 20, 50, 100), tuple(range(16))
TITLES = {"published": "As released", "corrected": "Corrected"}
TINTS = {"published": "#f5f5f2", "corrected": "white"}
NOTHING = {"published": "not released", "corrected": "not yet computed"}
RINGS = {
    "published": "dots: released values; rings: our run of the released operators",
    "corrected": "rings: the released solver failed on this cell",
}
THRESHOLDS = {"median": "median thresholds", "random": "random thresholds"}
GLN, RELU = ("GD-GLN", "SVM-GLN", "SVM-L2"), ("GD-ReLU", "SVM-HL", "SVM-LC", "SVM-RC")
SHALLOW, GATES = ("GD-shallow", "SVM-shallow"), ("SVM-gates",)
COLOURS = {
    "GD-GLN": BLUE,
    "GD-ReLU": BLUE,
    "GD-shallow": SKY,
    "SVM-shallow": ORANGE,
    "SVM-GLN": VERMILION,
    "SVM-L2": GREEN,
    "SVM-HL": PURPLE,
    "SVM-LC": ORANGE,
    "SVM-RC": GREEN,
    "SVM-gates": BLACK,
}
LINES: dict[int, Literal[":", "--", "-"]] = {500: ":", 1000: "--", 2000: "-"}
MARKERS = {500: "o", 1000: "^", 2000: "s"}
DOT, RING = 4.0, 7.0

# Draws the values of one side, and says whether there was anything to draw.
Draw: TypeAlias = Callable[[Axes, pd.DataFrame], bool]


@dataclass(frozen=True, eq=False)
class Panel:
    """A panel that both halves of a figure have.

    Attributes
    ----------
    title : str
        Heading.
    values : DataFrame
        What it shows, of both sides.
    draw : callable
        Draws the values of one side, and returns whether there are any.
    """

    title: str
    values: pd.DataFrame
    draw: Draw


def chance(p: pd.Series[float]) -> pd.Series[float]:
    """Disagreement of two independent classifiers of the same error p."""
    return 2.0 * p * (1.0 - p)


# --- the figures of the paper --------------------------------------------------------------


def figure_2(values: pd.DataFrame, momentum: float = 0.0) -> Figure:
    """Draw GLNs and their SVMs: errors, disagreement, the best networks, errors against H."""
    gln = _models(of_momentum(values, momentum), GLN)
    median = gln[gln["threshold"] == "median"]
    best = {
        "shallow": ("GD-shallow", "SVM-shallow"),
        "2 layers,\nGLN norm": ("GD-GLN", "SVM-GLN"),
        "2 layers,\nL2 norm": ("SVM-L2",),
    }
    panels = [
        [
            Panel("a  error of SVM and network", median, draw_errors),
            Panel("b  disagreement with network", median, draw_disagreement),
        ],
        [
            Panel("c  best of all settings", _models(values, (*GLN, *SHALLOW)), _best(best)),
            Panel(
                "d  two contexts a unit",
                median[median["hyperplanes"] == 1],
                _against_width("error"),
            ),
        ],
    ]
    return _halves(panels, f"Figure 2. GLNs on binary MNIST (momentum {momentum:g})")


def figure_3(values: pd.DataFrame, momentum: float = 0.9) -> Figure:
    """Draw ReLU networks and their SVMs, as figure 2 does GLNs."""
    values, dead = _without_dead(values)
    relu = _models(of_momentum(values, momentum), RELU)
    narrow = values[(values["units"] <= 50) & (values["hyperplanes"] == 1)]
    gln = _models(narrow, ("SVM-GLN",))
    best = {"GD": ("GD-ReLU",), "HL": ("SVM-HL",), "LC": ("SVM-LC",), "RC": ("SVM-RC",)}
    panels = [
        [
            Panel("a  error of SVM and network", relu, draw_errors),
            Panel("b  disagreement with network", relu, draw_disagreement),
        ],
        [
            Panel(
                "c  best of all settings",
                pd.concat([_models(values, RELU), gln]),
                _best(best | {"GLN": ("SVM-GLN",)}),
            ),
            *_by_size("d  error", relu)[:1],
        ],
        _by_size("d  error", relu)[1:],
    ]
    return _halves(panels, f"Figure 3. ReLU networks on binary MNIST (momentum {momentum:g}{dead})")


def _by_size(title: str, frame: pd.DataFrame) -> list[Panel]:
    """Panels of the error against the width, one an N."""
    return [
        Panel(f"{title}, N = {size:,}", frame[frame["train_size"] == size], _against_width("error"))
        for size in TRAIN_SIZES
    ]


def _without_dead(values: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Leave out ReLU networks that are worse than a coin, and say how many of ours."""
    dead = (values["model"] == "GD-ReLU") & (values["error"] > 0.5)
    ours = values[dead & (values["side"] == "corrected")]
    networks = "network" if len(ours) == 1 else "networks"
    note = f"; without {len(ours)} dead {networks}" if len(ours) else ""
    return values[~dead & ~(values["model"].isin(RELU) & (values["gd_error"] > 0.5))], note


def figure_4(values: pd.DataFrame, momentum: float = 0.0) -> Figure:
    """Draw figure 2 for all thresholds and numbers of contexts."""
    gln = _models(of_momentum(values, momentum), GLN)
    split = {text: gln[gln["threshold"] == name] for name, text in THRESHOLDS.items()}
    panels = [
        [Panel(f"a  {text}", frame, draw_errors) for text, frame in split.items()],
        [Panel(f"b  {text}", frame, draw_disagreement) for text, frame in split.items()],
    ]
    for k in (1, 2):
        panels.append(
            [
                Panel(
                    f"c  {text}, {2**k} contexts",
                    frame[frame["hyperplanes"] == k],
                    _against_width("error"),
                )
                for text, frame in split.items()
            ]
        )
    return _halves(panels, f"Figure 4. GLNs, all settings (momentum {momentum:g})")


def figure_5(values: pd.DataFrame) -> Figure:
    """Draw figure 3 with and without momentum."""
    values, dead = _without_dead(values)
    split = {momentum: _models(of_momentum(values, momentum), RELU) for momentum in (0.0, 0.9)}
    kinds: list[tuple[str, Draw]] = [
        ("a  errors", draw_errors),
        ("b  disagreement", draw_disagreement),
    ]
    panels = [
        [Panel(f"{title}, momentum {m:g}", frame, draw) for m, frame in split.items()]
        for title, draw in kinds
    ]
    by_size = [_by_size(f"c  momentum {m:g}", frame) for m, frame in split.items()]
    panels += [list(row) for row in zip(*by_size, strict=True)]
    gates = {m: of_momentum(values[values["model"] == "SVM-gates"], m) for m in split}
    panels.append(
        [
            Panel(
                f"SVM-gates, momentum {m:g}", frame[frame["units"] <= 100], _against_width("error")
            )
            for m, frame in gates.items()
        ]
    )
    return _halves(panels, f"Figure 5. ReLU networks, all settings{dead}")


def shallow(values: pd.DataFrame, momentum: float = 0.0) -> Figure:
    """Draw shallow GLNs against the number k of their hyperplanes."""
    frame = _models(of_momentum(values, momentum), SHALLOW)
    split = {text: frame[frame["threshold"] == name] for name, text in THRESHOLDS.items()}
    panels = [
        [Panel(f"errors, {t}", part, _against_depth("error")) for t, part in split.items()],
        [
            Panel(f"disagreement, {t}", part, _against_depth("disagreement"))
            for t, part in split.items()
        ],
    ]
    return _halves(panels, f"Shallow GLNs: one unit, k hyperplanes (momentum {momentum:g})")


def figure_1() -> Figure:
    """Draw figure 1: two inputs, two units of two contexts, four regions, four predictors."""
    lines = ((1.0, 0.35, 0.1), (-0.45, 1.0, -0.15))  # w_1, w_2 and threshold of each unit
    zeta = np.array([[[1.0, 0.3], [-0.3, 0.6]], [[0.2, 0.9], [0.8, -0.5]]])  # unit, context, input
    beta = AdditivePredictors.from_coef(zeta.reshape(4, 2), 2)  # row h C + c
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 401)] * 2), axis=-1)
    on = [(grid @ line[:2] > line[2]).astype(int) for line in lines]
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    shades = (("white", "#cfe3f3"), ("white", "#fde3c8"))
    titles = ("unit 1: two contexts", "unit 2: two contexts", "network: four joint contexts")
    axes = figure.subplots(1, 3)
    for ax, title in zip(axes, titles, strict=True):
        ax.set(title=title, xlabel="input 1", xlim=(-2, 2), ylim=(-2, 2), aspect="equal")
        ax.set_xticks([-2, 0, 2])
        ax.set_yticks([-2, 0, 2])
    axes[0].set_ylabel("input 2")
    for h, (ax, gate, pair) in enumerate(zip(axes, on, shades, strict=False)):
        ax.contourf(grid[..., 0], grid[..., 1], gate, levels=[-0.5, 0.5, 1.5], colors=pair)
        for c in (0, 1):
            centre = grid[gate == c].mean(axis=0)
            _arrow(ax, centre, zeta[h, c], f"ζ$_{{{h + 1},{c}}}$", (BLUE, VERMILION)[h])
    for gate in on:
        for ax in axes:
            ax.contour(grid[..., 0], grid[..., 1], gate, levels=[0.5], colors=GREY, linewidths=1)
    for first in (0, 1):
        for second in (0, 1):
            here = (on[0] == first) & (on[1] == second)
            (vector,) = beta.at(np.array([[first, second]]))
            label = f"ζ$_{{1,{first}}}$ + ζ$_{{2,{second}}}$"
            _arrow(axes[2], grid[here].mean(axis=0), vector, label, BLACK)
    return figure


def _arrow(ax: Axes, at: Any, vector: Any, label: str, colour: str) -> None:
    start, end = at - 0.35 * vector, at + 0.35 * vector
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.6})
    above = (at[0], max(start[1], end[1]))
    ax.annotate(
        label,
        above,
        (0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=8,
        color=colour,
        parse_math=True,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
    )


def differences(values: pd.DataFrame) -> Figure:
    """Draw SVM-L2 minus SVM-GLN at medians against H, released and exact, with intervals."""
    rows = of_momentum(_models(values, ("SVM-GLN", "SVM-L2")), 0.0)
    rows = rows[rows["threshold"] == "median"]
    looks = {
        "paper": ("published", "as released", "s--", GREY),
        "ours": ("corrected", "exact", "o-", VERMILION),
    }
    keys = ("train_size", "units", "hyperplanes", "seed")
    figure, axes = subplots((8.4, 3.4), 1, 2)
    titles = {"error": "errors", "disagreement": "disagreements with GD-GLN"}
    for ax, column in zip(axes, titles, strict=True):
        for source, (side, label, line, colour) in looks.items():
            part = rows[(rows["source"] == source) & (rows["side"] == side)]
            pairs = Pairs.by(matched(part, column, keys), "units", "SVM-L2", "SVM-GLN")
            mean, low, high = (
                100 * np.array([getattr(pair, name) for pair in pairs.values()])
                for name in ("mean", "low", "high")
            )
            at = [int(width) for width in pairs]
            bars = [mean - low, high - mean]
            ax.errorbar(at, mean, bars, fmt=line, color=colour, label=label, capsize=3)
        ax.axhline(0, color=BLACK, linewidth=0.8)
        ax.set(xscale="log", xlabel="hidden units H", ylabel="SVM-L2 − SVM-GLN, points")
        ax.set_title(titles[column], loc="left")
        _ticks(ax, WIDTHS)
        ax.grid(axis="y")
        ax.legend()
    return figure


# --- beyond the paper ----------------------------------------------------------------------


def larger(tables: Tables) -> Figure | None:
    """Draw errors and disagreement against N, up to 48,000; None where there is no cell."""
    models = tables.models[_mnist_digits(tables.models)]
    large = models[models["train_size"] > max(TRAIN_SIZES)]
    shapes = large[["units", "hyperplanes", "threshold"]].drop_duplicates()
    models = models.merge(shapes)
    if large.empty:
        return None
    pairs = disagreements(tables).merge(models[["cell"]].drop_duplicates())
    figure, (errors, apart) = subplots((8.4, 3.6), 1, 2)
    solved = models[models["model"].isin(list(SOLVED))]
    for (name, units, k), rows in _grouped(solved, ["model", "units", "hyperplanes"]):
        _curve(errors, rows, "train_size", "validation_error", name, k, units)
    for (units, k), rows in _grouped(pairs, ["units", "hyperplanes"]):
        _curve(apart, rows, "train_size", "finite", "gd-gln", k, units)
    for ax, label in ((errors, "error, %"), (apart, "disagreement, GD and SVM, %")):
        ax.set(xscale="log", xlabel="training samples N", ylabel=label)
        sizes = sorted(models["train_size"].unique())
        _ticks(ax, sizes)
        ax.tick_params(axis="x", labelrotation=45)
        ax.set_ylim(bottom=0)
        ax.grid(axis="y")
    handles, labels = errors.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def infinite_time(tables: Tables) -> Figure | None:
    """Draw the disagreement with SVM-GLN in finite and in infinite time, at every H."""
    frame = disagreements(tables)
    frame = frame[frame["infinite"].notna()]
    if frame.empty:
        return None
    figure, (apart, norm) = subplots((8.4, 3.6), 1, 2)
    looks = {
        "finite": ("trained as released (3,200 steps)", BLUE, "o"),
        "infinite": ("trained towards the limit", VERMILION, "s"),
    }
    for column, (label, colour, marker) in looks.items():
        _mean_curve(apart, frame, "units", column, label, colour, marker)
        _median_curve(norm, frame, "units", f"{column}_excess", colour, marker)
    _mean_curve(apart, frame, "units", "chance", "chance, 2p(1 − p)", GREY, "")
    apart.set(xscale="log", xlabel="hidden units H", ylabel="disagreement with SVM-GLN, %")
    norm.set(xscale="log", yscale="log", xlabel="hidden units H", ylabel="excess of the norm, %")
    apart.set_ylim(bottom=0)
    norm.yaxis.set_major_formatter("{x:g}")
    for ax in (apart, norm):
        _ticks(ax, sorted(frame["units"].unique()))
        ax.grid(axis="y")
    figure.legend(*apart.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def other_tasks(tables: Tables) -> Figure | None:
    """Draw errors and disagreement for other classes and Fashion-MNIST; None without a cell."""
    frame = tables.beyond().models
    frame = frame[frame["model"].isin(list(SOLVED)) & ~_mnist_digits(frame)]
    frame = frame[frame["split_seed"] == 1]  # further splits of the same digits are no other task
    if frame.empty:
        return None
    frame = frame.assign(task=[task_name(*row) for row in _task_columns(frame)])
    pairs = disagreements(tables).merge(frame[["cell", "task"]].drop_duplicates())
    tasks = sorted(frame["task"].unique())
    figure, (errors, apart) = subplots((8.4, 1.6 + 0.5 * len(tasks)), 1, 2, sharey=True)
    rows = {task: float(row) for row, task in enumerate(tasks)}
    for shift, (name, (label, colour, marker)) in zip(
        (-0.2, 0.0, 0.2), SOLVED.items(), strict=True
    ):
        found = frame[frame["model"] == name].groupby("task")["validation_error"]
        _row_marks(errors, rows, found, shift, colour, marker, label)
    _row_marks(apart, rows, pairs.groupby("task")["finite"], 0.0, BLUE, "o", "_")
    by_task = pairs.groupby("task")["chance"]
    _row_marks(apart, rows, by_task, 0.0, GREY, "D", "chance, 2p(1 − p)")
    errors.set_yticks(list(rows.values()), list(rows))
    errors.set_ylim(len(tasks) - 0.5, -0.5)
    errors.set_xlabel("error, %")
    apart.set_xlabel("disagreement, GD and SVM, %")
    for ax in (errors, apart):
        ax.set_xlim(left=0)
        ax.grid(axis="x")
    handles = [*errors.get_legend_handles_labels()[0], *apart.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


# The norms and programs behind SVM-L2, with colour, marker and line.
PROGRAMS = {
    "svm-gln": ("SVM-GLN", VERMILION, "s", "-"),
    "svm-l2": ("SVM-L2, exact norm", GREEN, "^", "-"),
    "svm-l2-formula": ("formula as printed, right fold", BLUE, "D", "--"),
    "svm-l2-published": ("released fold, smallest free part", PURPLE, "v", "-."),
    "svm-l2-osqp": ("released fold, OSQP", ORANGE, "o", ":"),
}


def causes(tables: Tables) -> Figure | None:
    """Draw the steps from the exact norm to the released SVM-L2; None without a cell."""
    models = tables.study().models
    rows = models[models["train_size"] == 500]
    rows = rows[rows["model"].isin(list(PROGRAMS))].drop_duplicates(
        ["model", "units", "hyperplanes", "threshold", "seed"]
    )
    if rows.empty:
        return None
    figure, axes = subplots((8.4, 6.2), 2, 2, sharex=True, sharey=True)
    panels = [(threshold, k) for threshold in THRESHOLDS for k in (1, 2)]
    for ax, (threshold, k) in zip(axes.flat, panels, strict=True):
        for name, (label, colour, marker, line) in PROGRAMS.items():
            chosen = (rows["hyperplanes"] == k) & (rows["threshold"] == threshold)
            part = rows[(rows["model"] == name) & chosen]
            table = part.groupby("units")["validation_error"].agg(["mean", "std"])
            ax.errorbar(
                table.index,
                100 * table["mean"],
                100 * table["std"],
                color=colour,
                marker=marker,
                linestyle=line,
                label=label,
            )
        ax.set(xscale="log", title=f"{THRESHOLDS[threshold]}, {2**k} contexts a unit")
        _ticks(ax, WIDTHS)
        ax.grid(axis="y")
    for ax in axes[:, 0]:
        ax.set_ylabel("error, %")
    for ax in axes[1]:
        ax.set_xlabel("hidden units H")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


# Models that the tables beyond the paper share: label, colour, marker.
SOLVED = {
    "gd-gln": ("GD-GLN", MODEL_COLOURS["gd-gln"], "o"),
    "svm-gln": ("SVM-GLN", MODEL_COLOURS["svm-gln"], "s"),
    "svm-l2": ("SVM-L2", MODEL_COLOURS["svm-l2"], "^"),
}


def disagreements(tables: Tables) -> pd.DataFrame:
    """One row a cell with SVM-GLN: how far networks in finite and infinite time are from it.

    Columns: cell and setting; finite, infinite (disagreement of "gd-gln" and "limit-gln" with
    "svm-gln"), finite_excess, infinite_excess (of the norm over the optimum), chance. The network
    at finite time of a cell with "limit-gln" is that without momentum of the same contexts.
    """
    setting = ["dataset", "positive", "negative", "split_seed", "train_size", "units"]
    setting += ["hyperplanes", "threshold", "seed"]
    columns = ["cell", "grid", *setting, "momentum"]
    frame = tables.models.loc[tables.models["model"] == "svm-gln", columns]
    for column, name in (("finite", "gd-gln"), ("infinite", "limit-gln")):
        pairs = tables.pairs
        forth = (pairs["first"] == name) & (pairs["second"] == "svm-gln")
        back = (pairs["first"] == "svm-gln") & (pairs["second"] == name)
        apart = pairs.loc[forth | back, ["cell", "grid", "disagreement"]]
        frame = frame.merge(apart.rename(columns={"disagreement": column}), how="left")
        own = tables.models.loc[tables.models["model"] == name, ["cell", "grid", "excess"]]
        frame = frame.merge(own.rename(columns={"excess": f"{column}_excess"}), how="left")
    errors = tables.models.loc[
        tables.models["model"] == "gd-gln", ["cell", "grid", "validation_error"]
    ]
    frame = frame.merge(errors.rename(columns={"validation_error": "gd_error"}), how="left")
    of_finite = ["finite", "finite_excess", "gd_error"]
    plain = frame[frame["infinite"].isna() & (frame["momentum"] == 0)]
    plain = plain.dropna(subset=["finite"]).drop_duplicates(setting)
    limit = frame[frame["infinite"].notna()]
    beside = limit.drop(columns=of_finite).merge(
        plain[[*setting, *of_finite]], on=setting, how="left"
    )
    for column in of_finite:  # where no such cell is, the network of the cell itself
        beside[column] = beside[column].fillna(limit[column].reset_index(drop=True))
    frame = pd.concat([frame[frame["infinite"].isna()], beside], ignore_index=True)
    return frame.assign(chance=chance(frame["gd_error"])).drop(columns="grid")


def task_name(dataset: str, positive: str | None, negative: str | None) -> str:
    """Name data and classes: "mnist: 0,2,4 / 1,3,5"."""
    title = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}.get(dataset, dataset)
    if positive is None and negative is None:
        return f"{title}: 0-4 / 5-9"
    return f"{title}: {positive or 'rest'} / {negative or 'rest'}"


def _task_columns(frame: pd.DataFrame) -> Iterable[tuple[str, str | None, str | None]]:
    known = frame[["positive", "negative"]].astype(object).where(frame["positive"].notna(), None)
    return zip(frame["dataset"], known["positive"], known["negative"], strict=True)


def _mnist_digits(frame: pd.DataFrame) -> pd.Series[bool]:
    """Whether a row is of the paper's data and protocol, at any N."""
    return in_study(frame.assign(train_size=TRAIN_SIZES[0]))


# --- drawing -------------------------------------------------------------------------------


def draw_errors(ax: Axes, values: pd.DataFrame) -> bool:
    """Draw the error of each SVM against that of its network, and the line of equality."""
    shown = values.dropna(subset=["gd_error", "error"])
    _scatter(ax, shown, "error")
    ax.axline((10, 10), slope=1, color=GREY, linewidth=1.2, zorder=1)
    ax.set(xlabel="error of the network, %", ylabel="error of the SVM, %")
    return not shown.empty


def draw_disagreement(ax: Axes, values: pd.DataFrame) -> bool:
    """Draw the disagreement of each SVM with its network against its error, and chance."""
    shown = values.dropna(subset=["gd_error", "disagreement"])
    _scatter(ax, shown, "disagreement")
    limits = ax.get_xlim()
    p = pd.Series(np.linspace(0, 0.5, 201))
    ax.plot(100 * p, 100 * chance(p), color=GREY, linewidth=1.2, zorder=1)
    ax.set(xlabel="error of the network, %", ylabel="disagreement, %", xlim=limits)
    highest = [chance(shown["gd_error"]).max(), shown["disagreement"].max(), 0.0]
    ax.set_ylim(0, 105 * max(value for value in highest if np.isfinite(value)) or 1.0)
    return not shown.empty


def _scatter(ax: Axes, values: pd.DataFrame, column: str) -> None:
    for (model, size, ring), rows in _grouped(values, ["model", "train_size", "ring"]):
        _marks(ax, 100 * rows["gd_error"], 100 * rows[column], model, size, ring)


def _best(columns: Mapping[str, Sequence[str]]) -> Draw:
    """Draw the least error over all settings of each seed, its mean and deviation over seeds."""

    def draw(ax: Axes, values: pd.DataFrame) -> bool:
        places = {model: x for x, models in enumerate(columns.values()) for model in models}
        solved = values.dropna(subset=["error"])
        least = solved.groupby(["model", "train_size", "source", "ring_source", "seed"])["error"]
        table = least.min().groupby(level=[0, 1, 2, 3]).agg(["mean", "std"]).reset_index()
        for (size, ring), rows in _grouped(table, ["train_size", "ring_source"]):
            for kind in ("GD", "SVM"):
                line = rows[rows["model"].str.startswith(kind)]
                line = line.assign(x=line["model"].map(places)).sort_values("x")
                if not ring:
                    full = line.set_index("x")["mean"].reindex(range(len(columns)))
                    ax.plot(full.index, 100 * full, LINES[size], color=GREY, linewidth=1)
                for x, model, mean, std in line[["x", "model", "mean", "std"]].itertuples(
                    index=False
                ):
                    ax.errorbar(x, 100 * mean, 100 * std, color=COLOURS[model], linewidth=1.2)
                    point = pd.Series([x]), pd.Series([100 * mean])
                    _marks(ax, *point, model, size, ring)
        ax.set_xticks(range(len(columns)), list(columns))
        ax.set_xlim(-0.5, len(columns) - 0.5)
        ax.set_ylabel("least error, %")
        return not solved.empty

    return draw


def _against_width(column: str) -> Draw:
    def draw(ax: Axes, values: pd.DataFrame) -> bool:
        ax.set_xscale("log")
        _lines(ax, values, "units", WIDTHS, column, dodge=lambda x, i: x * 1.035**i)
        _ticks(ax, WIDTHS)
        ax.set(xlabel="hidden units H", ylabel=f"{column}, %", xlim=(8, 125))
        return bool(values[column].notna().any())

    return draw


def _against_depth(column: str) -> Draw:
    def draw(ax: Axes, values: pd.DataFrame) -> bool:
        _lines(ax, values, "hyperplanes", DEPTHS, column, dodge=lambda x, i: x + 0.1 * i)
        if column == "disagreement":
            by = values.assign(chance=chance(values["gd_error"]))
            for (size,), rows in _grouped(by, ["train_size"]):
                level = rows.groupby("hyperplanes")["chance"].mean().reindex(DEPTHS)
                ax.plot(DEPTHS, 100 * level, LINES[size], color=GREY, linewidth=0.9)
        ax.set(xlabel="hyperplanes k", ylabel=f"{column}, %", xlim=(-0.6, 15.6))
        ax.set_xticks(DEPTHS[::3])
        return bool(values[column].notna().any())

    return draw


def _lines(
    ax: Axes,
    values: pd.DataFrame,
    x: str,
    grid: Sequence[int],
    column: str,
    *,
    dodge: Callable[[float, float], float],
) -> None:
    """Draw means over seeds on a grid of x; a line ends where the grid has no value."""
    models = [model for model in COLOURS if model in set(values["model"])]
    shift = {model: i - (len(models) - 1) / 2 for i, model in enumerate(models)}
    for (model, size, source), rows in _grouped(values, ["model", "train_size", "source"]):
        colour = COLOURS[model]
        by_x = rows.groupby(x)
        table = by_x[column].agg(["mean", "std"]).reindex(list(grid))
        rings = by_x["ring"].any().reindex(list(grid), fill_value=False).astype(bool)
        places = pd.Series([dodge(float(at), shift[model]) for at in grid], index=table.index)
        alone = source == "ours" and bool(rings.all())
        ax.errorbar(
            places,
            100 * table["mean"],
            100 * table["std"],
            color=colour,
            linestyle=LINES[size],
            linewidth=0.7 if alone else 1.3,
            elinewidth=1,
        )
        for ring in (False, True):
            mean = 100 * table["mean"][rings == ring]
            _marks(ax, places[rings == ring], mean, model, size, ring)
    unsolved = values[values["state"] != "solved"]
    for (model,), rows in _grouped(unsolved, ["model"]):
        level = 0.98 - 0.05 * models.index(model)
        at = [dodge(float(place), shift[model]) for place in sorted(set(rows[x]))]
        transform = ax.get_xaxis_transform()
        ax.plot(at, [level] * len(at), "x", color=COLOURS[model], transform=transform, ms=5)


def _marks(
    ax: Axes, x: pd.Series[float], y: pd.Series[float], model: str, size: int, ring: bool
) -> None:
    colour = COLOURS[model]
    ax.plot(
        x,
        y,
        MARKERS[size],
        color=colour,
        mfc="none" if ring else colour,
        ms=RING if ring else DOT,
        mew=0.9,
        alpha=0.9,
    )


def _curve(
    ax: Axes, rows: pd.DataFrame, x: str, y: str, model: str, hyperplanes: int, units: int
) -> None:
    label, colour, marker = SOLVED[model]
    line = "-" if hyperplanes == 1 else "--"
    text = f"{label}, H = {units}, {2**hyperplanes} contexts"
    table = rows.groupby(x)[y].agg(["mean", "std"])
    mean, std = 100 * table["mean"], 100 * table["std"]
    ax.errorbar(table.index, mean, std, color=colour, linestyle=line, marker=marker, label=text)


def _mean_curve(
    ax: Axes, frame: pd.DataFrame, x: str, y: str, label: str, colour: str, marker: str
) -> None:
    table = frame.groupby(x)[y].agg(["mean", "std"])
    mean, std = 100 * table["mean"], 100 * table["std"]
    line = "-" if marker else ":"
    ax.errorbar(
        table.index,
        mean,
        std,
        color=colour,
        marker=marker,
        linestyle=line,
        label=label,
        clip_on=False,
    )


def _median_curve(ax: Axes, frame: pd.DataFrame, x: str, y: str, colour: str, marker: str) -> None:
    """Draw medians and the whole range of what is finite, which a logarithmic axis can show."""
    finite = frame[np.isfinite(frame[y])]
    table = 100 * finite.groupby(x)[y].agg(["median", "min", "max"])
    middle = table["median"]
    beside = [middle - table["min"], table["max"] - middle]
    ax.errorbar(table.index, middle, beside, color=colour, marker=marker)


def _row_marks(
    ax: Axes,
    rows: Mapping[str, float],
    grouped: SeriesGroupBy[float, Any],
    shift: float,
    colour: str,
    marker: str,
    label: str,
) -> None:
    table = 100 * grouped.agg(["mean", "std"])
    at = [rows[str(task)] + shift for task in table.index]
    ax.errorbar(
        table["mean"], at, xerr=table["std"], fmt=marker, color=colour, label=label, ms=DOT + 1
    )


def _ticks(ax: Axes, places: Sequence[float]) -> None:
    ax.set_xticks(list(places), [f"{place:,}" for place in places])
    ax.xaxis.set_minor_locator(NullLocator())


# --- layout --------------------------------------------------------------------------------


def _halves(panels: Sequence[Sequence[Panel]], title: str) -> Figure:
    """Lay out the panels twice: as published on the left, corrected on the right."""
    height, width = len(panels), len(panels[0])
    size = (2 * width * PANEL_WIDTH, height * PANEL_HEIGHT + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    halves = figure.subfigures(1, 2, squeeze=False, wspace=0.02)[0]
    alike: dict[tuple[int, str, str], list[Axes]] = {}
    for half, side in zip(halves, SIDES, strict=True):
        half.set_facecolor(TINTS[side])
        half.suptitle(TITLES[side], fontsize=11)
        grid = half.subplots(height, width, squeeze=False)
        for i, row in enumerate(panels):
            for ax, panel in zip(grid[i], row, strict=True):
                ax.set_facecolor("none")
                shown = _with_rings(panel.values[panel.values["side"] == side])
                found = panel.draw(ax, shown)
                ax.set_title(panel.title, fontsize=9, fontweight="normal", loc="left")
                ax.grid(axis="y")
                if not found:
                    ax.text(
                        0.5, 0.3, NOTHING[side], color=GREY, ha="center", transform=ax.transAxes
                    )
                alike.setdefault((i, ax.get_xlabel(), ax.get_ylabel()), []).append(ax)
        half.legend(handles=[_symbol("o", RINGS[side], ring=True)], loc="outside lower center")
    for axes in alike.values():
        _share_limits(axes)
    handles = _legend({model for row in panels for panel in row for model in panel.values["model"]})
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _share_limits(axes: Sequence[Axes]) -> None:
    """Give panels of the same axes the same limits, those of the ones with data."""
    with_data = [ax for ax in axes if not ax.texts] or list(axes)
    limits = np.array([[*ax.get_xlim(), *ax.get_ylim()] for ax in with_data])
    low, high = limits.min(axis=0), limits.max(axis=0)
    for ax in axes:
        ax.set(xlim=(low[0], high[1]), ylim=(low[2], high[3]))


def _legend(models: Iterable[str]) -> list[Line2D]:
    named = [_symbol("o", model, colour) for model, colour in COLOURS.items() if model in models]
    sizes = [_symbol(MARKERS[n], f"N = {n:,}", line=LINES[n]) for n in TRAIN_SIZES]
    return [*named, *sizes, _symbol("x", "no predictor")]


def _symbol(
    marker: str,
    label: str,
    colour: str = BLACK,
    *,
    line: Literal["", ":", "--", "-"] = "",
    ring: bool = False,
) -> Line2D:
    face, size = ("none", RING) if ring else (colour, DOT)
    return Line2D(
        [], [], color=colour, marker=marker, mfc=face, ms=size, linestyle=line, label=label
    )


def _with_rings(values: pd.DataFrame) -> pd.DataFrame:
    """Say which markers are rings: ours on the published side, their failures on the other."""
    ours = (values["side"] == "published") & (values["source"] == "ours")
    return values.assign(ring=ours | values["their_failure"], ring_source=ours)


def _models(values: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Keep some models, and of the wide networks none: the paper's figures end at 100 units."""
    return values[values["model"].isin(models) & (values["units"] <= max(WIDTHS))]


def _grouped(
    frame: pd.DataFrame, columns: list[str]
) -> Iterable[tuple[tuple[Any, ...], pd.DataFrame]]:
    return frame.groupby(columns)


def draw(name: str, values: pd.DataFrame, tables: Tables) -> Figure:
    """Draw a figure; DataError if the tables have nothing of it."""
    figures: dict[str, Callable[[], Figure | None]] = {
        "figure-1": figure_1,
        "differences": lambda: differences(values),
        "figure-2": lambda: figure_2(values),
        "figure-3": lambda: figure_3(values),
        "figure-4": lambda: figure_4(values),
        "figure-5": lambda: figure_5(values),
        "shallow": lambda: shallow(values),
        "figure-2-momentum-0.9": lambda: figure_2(values, 0.9),
        "figure-4-momentum-0.9": lambda: figure_4(values, 0.9),
        "shallow-momentum-0.9": lambda: shallow(values, 0.9),
        "causes": lambda: causes(tables),
        "infinite-time": lambda: infinite_time(tables),
        "larger": lambda: larger(tables),
        "other-tasks": lambda: other_tasks(tables),
    }
    figure = figures[name]()
    if figure is None:
        raise DataError(f"no cell that {name} shows is measured: python -m benchmarks lippl2022")
    return figure
