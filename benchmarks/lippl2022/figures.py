"""Figures 1 to 5 of the paper, as released and exact, side by side, and what lies beyond.

Drawn from the tables of the grids and of the released values. A row is a panel of the paper; on the
left are all released values, on the right ours, with the norms of the theory. Colour and marker say
the model, the line N. An open marker is an SVM that leaves training samples out, because nothing
separates them; a cross at the top of a panel marks a cell that was tried and has no predictor. A
value that is not there is not drawn, and no line crosses its place. Bars are standard deviations
over seeds, as the paper's text says; its own figures draw standard errors.

Chance: two classifiers of one and the same error p, independent of each other, disagree on
2 p (1 - p) of the samples. p is the network's error, as in the paper.

Source: Lippl, Abbott, Chung (2022), figures 1 to 5; 4 and 5 have the settings that 2 and 3 leave
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from pandas.api.typing import SeriesGroupBy

from benchmarks.drawing import Figure, common_legend, mean_bars, median_bars, subplots, tick_values
from benchmarks.lippl2022.paired import Pairs, matched
from benchmarks.lippl2022.published import of_paper, with_networks
from benchmarks.lippl2022.values import SIDES, TRAIN_SIZES, Tables, of_momentum
from implicit_bias.datasets.files import DataError
from implicit_bias.estimators.svm import GLNSVC
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.report import style

FIGURE_WIDTH, PANEL_HEIGHT = 8.4, 2.6  # inches
WIDTHS, DEPTHS = (10, 20, 50, 100), tuple(range(16))
TITLES = {"published": "as released", "corrected": "exact"}
NOTHING = {"published": "not released", "corrected": "not yet computed"}
THRESHOLDS = {"median": "median thresholds", "random": "random thresholds"}
GLN, RELU = ("GD-GLN", "SVM-GLN", "SVM-L2"), ("GD-ReLU", "SVM-HL", "SVM-LC", "SVM-RC")
SHALLOW, GATES = ("GD-shallow", "SVM-shallow"), ("SVM-gates",)
COLOURS = {
    "GD-GLN": style.BLUE,
    "GD-ReLU": style.BLUE,
    "GD-shallow": style.SKY,
    "SVM-shallow": style.ORANGE,
    "SVM-GLN": style.VERMILION,
    "SVM-L2": style.GREEN,
    "SVM-HL": style.PURPLE,
    "SVM-LC": style.ORANGE,
    "SVM-RC": style.GREEN,
    "SVM-gates": style.BLACK,
}
MARKERS: dict[str, Literal["o", "P", "X", "s", "^", "v", "D"]] = {
    "GD-GLN": "o",
    "GD-ReLU": "o",
    "GD-shallow": "P",
    "SVM-shallow": "D",
    "SVM-GLN": "s",
    "SVM-L2": "^",
    "SVM-HL": "v",
    "SVM-LC": "D",
    "SVM-RC": "P",
    "SVM-gates": "X",
}
LINES: dict[int, Literal[":", "--", "-"]] = {500: ":", 1000: "--", 2000: "-"}
DOT = 4.5

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


def figure_2(values: pd.DataFrame) -> Figure:
    """Draw GLNs and their SVMs: errors, disagreement, the best networks, errors against H."""
    median = _gln(values, "median")
    best = {
        "shallow": ("GD-shallow", "SVM-shallow"),
        "2 layers,\nGLN norm": ("GD-GLN", "SVM-GLN"),
        "2 layers,\nL2 norm": ("SVM-L2",),
    }
    two = median[median["hyperplanes"] == 1]
    return _sides(
        [
            Panel("a  error", median, draw_errors),
            Panel("b  disagreement", median, draw_disagreement),
            Panel("c  best of all settings", _models(values, (*GLN, *SHALLOW)), _best(best)),
            Panel("d  two contexts a unit", two, _against_width("error")),
        ]
    )


def figure_3(values: pd.DataFrame) -> Figure:
    """Draw ReLU networks and their SVMs with momentum, as figure 2 does GLNs."""
    narrow = values[(values["units"] <= 50) & (values["hyperplanes"] == 1)]
    best = {"GD": ("GD-ReLU",), "HL": ("SVM-HL",), "LC": ("SVM-LC",), "RC": ("SVM-RC",)}
    shown = pd.concat([_models(values, RELU), _models(narrow, ("SVM-GLN",))])
    errors, apart, *by_size = _relu_panels(values, 0.9)
    least = Panel("c  best of all settings", shown, _best(best | {"GLN": ("SVM-GLN",)}))
    return _sides([errors, apart, least, *by_size])


def figure_4(values: pd.DataFrame) -> Figure:
    """Draw what figure 2 leaves out: random thresholds, and four contexts a unit."""
    median, random = (_gln(values, name) for name in THRESHOLDS)
    widths = [
        Panel(
            f"c  {THRESHOLDS[name]}, {2**k} contexts",
            frame[frame["hyperplanes"] == k],
            _against_width("error"),
        )
        for name, frame, k in (("median", median, 2), ("random", random, 1), ("random", random, 2))
    ]
    return _sides(
        [
            Panel("a  random thresholds", random, draw_errors),
            Panel("b  random thresholds", random, draw_disagreement),
            *widths,
        ]
    )


def figure_5(values: pd.DataFrame) -> Figure:
    """Draw figure 3 without momentum, and a linear SVM on the open gates alone."""
    gates = of_momentum(_models(values, GATES), 0.0)
    return _sides(
        [
            *_relu_panels(values, 0.0),
            Panel("SVM-gates", gates, _against_width("error")),
        ]
    )


def _gln(values: pd.DataFrame, threshold: str) -> pd.DataFrame:
    """Keep GLNs and their SVMs without momentum, of one kind of thresholds."""
    rows = of_momentum(_models(values, GLN), 0.0)
    return rows[rows["threshold"] == threshold]


def _relu_panels(values: pd.DataFrame, momentum: float) -> list[Panel]:
    """Errors, disagreement, and errors against the width, a panel an N."""
    relu = of_momentum(_models(values, RELU), momentum)
    return [
        Panel("a  error", relu, draw_errors),
        Panel("b  disagreement", relu, draw_disagreement),
        *(
            Panel(f"d  N = {size:,}", relu[relu["train_size"] == size], _against_width("error"))
            for size in TRAIN_SIZES
        ),
    ]


def shallow(values: pd.DataFrame) -> Figure:
    """Draw shallow GLNs against the number k of their hyperplanes."""
    frame = of_momentum(_models(values, SHALLOW), 0.0)
    return _sides(
        [
            Panel(text, frame[frame["threshold"] == name], _against_depth(column))
            for column in ("error", "disagreement")
            for name, text in THRESHOLDS.items()
        ]
    )


def figure_1() -> Figure:
    """Draw figure 1: a GLN of two units with two contexts each, and what it has learned.

    The network is the SVM-GLN of sixty samples in the plane, whose third input is a constant 1.
    """
    rng = np.random.default_rng(0)
    points = rng.uniform(-1.9, 1.9, (60, 2))
    score = (np.abs(points) @ [1.0, 1.2] - 2.0) + 0.8 * points[:, 0]
    points, labels = points[np.abs(score) > 0.35], np.sign(score[np.abs(score) > 0.35])
    X = np.hstack([points, np.ones((len(points), 1))])
    contexts = HyperplaneContexts.from_hyperplanes(X, np.eye(3)[:2, None], np.zeros((2, 1)))
    svm = GLNSVC(2, 1, contexts=contexts).fit(X, labels)
    side = np.linspace(-2, 2, 201)
    first, second = np.meshgrid(side, side)
    grid = np.stack([first, second, np.ones_like(first)], axis=-1)
    on = (first > 0).astype(int), (second > 0).astype(int)
    zeta = svm.coef_.reshape(2, 2, 3)  # row-major: unit, context, input
    pieces = [np.einsum("ijd,ijd->ij", grid, zeta[h][on[h]]) for h in (0, 1)]
    figure, axes = subplots((FIGURE_WIDTH, 4.6), 2, 4)
    _sketch(axes[0, 0])
    axes[1, 3].axis("off")
    titles = (
        *("b  contexts, unit 1", "c  contexts, unit 2", "d  data"),
        *("e  output of unit 1", "f  output of unit 2", "g  output"),
    )
    shades = (on[0], on[1], None, *pieces, pieces[0] + pieces[1])
    borders = ((0,), (1,), (), (0,), (1,), (0, 1))
    for ax, title, shade, cut in zip(axes.flat[1:], titles, shades, borders, strict=False):
        ax.set_title(title, fontweight="normal", loc="left")
        ax.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xticks=[], yticks=[])
        ax.set(xlabel="input 1", ylabel="input 2")
        if shade is not None:
            level = 0.5 if shade.dtype == int else 0.0
            ax.contourf(side, side, shade, levels=[-1e9, level, 1e9], colors=["#fde3c8", "#a9c9e3"])
        for h in cut:
            (ax.axvline, ax.axhline)[h](0, color=style.GREY, linewidth=1, linestyle="--")
        if shade is not None and shade.dtype != int:
            ax.contour(side, side, shade, levels=[0.0], colors=[style.BLACK], linewidths=1.8)
    for ax in (axes[0, 3], axes[1, 2]):
        for sign, marker, colour in ((1, "o", style.BLUE), (-1, "^", style.VERMILION)):
            ax.plot(*points[labels == sign].T, marker, color=colour, ms=3.5)
    return figure


def _sketch(ax: Axes) -> None:
    """Draw the network: two inputs, two linear units with two weight vectors each, an output."""
    inputs, units, output = ((0, 0.8), (0, 0.2)), ((1, 0.8), (1, 0.2)), (2, 0.5)
    for h, (x, y) in enumerate(units):
        for start in inputs:
            for shift, line in ((0.03, "-"), (-0.03, ":")):
                at = [start[1] + shift, y + shift]
                ax.plot(
                    [start[0], x], at, line, color=(style.BLUE, style.VERMILION)[h], linewidth=1.4
                )
        ax.plot([x, output[0]], [y, output[1]], color=style.BLACK, linewidth=1.2)
    for x, y in (*inputs, *units, output):
        ax.plot(x, y, "o", color=style.BLACK, mfc="white", ms=11, mew=1.2)
    ax.set_title("a  network", fontweight="normal", loc="left")
    for x, text in enumerate(("inputs", "units", "output")):
        ax.text(x, -0.05, text, ha="center", fontsize=8)
    ax.set(xlim=(-0.4, 2.4), ylim=(-0.12, 1.05))
    ax.axis("off")


def differences(values: pd.DataFrame) -> Figure:
    """Draw SVM-L2 minus SVM-GLN at medians against H, released and exact, with intervals."""
    rows = of_momentum(_models(values, ("SVM-GLN", "SVM-L2")), 0.0)
    rows = rows[rows["threshold"] == "median"]
    looks = {
        "paper": ("published", "as released", "s--", style.GREY),
        "ours": ("corrected", "exact", "o-", style.VERMILION),
    }
    keys = ("train_size", "units", "hyperplanes", "seed")
    figure, axes = subplots((8.4, 3.4), 1, 2, grid="y")
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
        ax.axhline(0, color=style.BLACK, linewidth=0.8)
        ax.set(xscale="log", xlabel="hidden units H", ylabel="SVM-L2 − SVM-GLN, points")
        ax.set_title(titles[column], loc="left")
        tick_values(ax, WIDTHS)
        ax.legend()
    return figure


# --- beyond the paper ----------------------------------------------------------------------


def larger(tables: Tables) -> Figure | None:
    """Draw errors and disagreement against N, up to 48,000; None where there is no cell."""
    models = tables.models[of_paper(tables.models)]
    large = models[models["train_size"] > max(TRAIN_SIZES)]
    shapes = large[["units", "hyperplanes", "threshold"]].drop_duplicates()
    models = models.merge(shapes)
    if large.empty:
        return None
    pairs = disagreements(tables).merge(models[["cell"]].drop_duplicates())
    figure, (errors, apart) = subplots((8.4, 3.6), 1, 2, grid="y")
    solved = models[models["model"].isin(list(SOLVED))]
    for (name, units, k), rows in _grouped(solved, ["model", "units", "hyperplanes"]):
        _curve(errors, rows, "train_size", "validation_error", name, k, units)
    for (units, k), rows in _grouped(pairs, ["units", "hyperplanes"]):
        _curve(apart, rows, "train_size", "finite", "gd-gln", k, units)
    for ax, label in ((errors, "error, %"), (apart, "disagreement, GD and SVM, %")):
        ax.set(xscale="log", xlabel="training samples N", ylabel=label)
        tick_values(ax, models["train_size"], write="{:,}", rotation=45)
        ax.set_ylim(bottom=0)
    return common_legend(figure, [errors], 3, handlelength=3.5)


def infinite_time(tables: Tables) -> Figure | None:
    """Draw the disagreement with SVM-GLN in finite and in infinite time, at every H of one N."""
    frame = disagreements(tables)
    frame = frame[frame["infinite"].notna() & (frame["train_size"] == TRAIN_SIZES[0])]
    frame = frame[(frame["hyperplanes"] == 1) & (frame["threshold"] == "median")]
    if frame.empty:
        return None
    figure, (apart, norm) = subplots((8.4, 3.6), 1, 2, grid="y")
    looks = {
        "finite": ("trained as released (3,200 steps)", style.BLUE, "o"),
        "infinite": ("trained towards the limit", style.VERMILION, "s"),
    }
    for column, (label, colour, marker) in looks.items():
        look = {"color": colour, "marker": marker, "label": label, "clip_on": False}
        mean_bars(apart, frame, "units", column, linestyle="-", **look)
        over = 100 * frame[f"{column}_excess"]
        shown = over[np.isfinite(over)]  # which a logarithmic axis can show
        median_bars(norm, shown, frame["units"], color=colour, marker=marker)
    look = {"color": style.GREY, "label": "chance, 2p(1 − p)", "clip_on": False}
    mean_bars(apart, frame, "units", "chance", linestyle=":", **look)
    apart.set(xscale="log", xlabel="hidden units H", ylabel="disagreement with SVM-GLN, %")
    norm.set(xscale="log", yscale="log", xlabel="hidden units H", ylabel="excess of the norm, %")
    apart.set_ylim(bottom=0)
    norm.yaxis.set_major_formatter("{x:g}")
    for ax in (apart, norm):
        tick_values(ax, frame["units"])
    return common_legend(figure, [apart], 3)


def other_tasks(tables: Tables) -> Figure | None:
    """Draw errors and disagreement for other classes and Fashion-MNIST; None without a cell."""
    frame = tables.beyond().models
    frame = frame[frame["model"].isin(list(SOLVED)) & ~of_paper(frame)]
    frame = frame[frame["split_seed"] == 1]  # further splits of the same digits are no other task
    if frame.empty:
        return None
    frame = frame.assign(task=task_names(frame))
    pairs = disagreements(tables).merge(frame[["cell", "task"]].drop_duplicates())
    tasks = sorted(frame["task"].unique())
    figure, (errors, apart) = subplots((8.4, 1.6 + 0.5 * len(tasks)), 1, 2, sharey=True)
    rows = {task: float(row) for row, task in enumerate(tasks)}
    for shift, (name, (label, colour, marker)) in zip(
        (-0.2, 0.0, 0.2), SOLVED.items(), strict=True
    ):
        found = frame[frame["model"] == name].groupby("task")["validation_error"]
        _row_marks(errors, rows, found, shift, colour, marker, label)
    _row_marks(apart, rows, pairs.groupby("task")["finite"], 0.0, style.BLUE, "o", "_")
    by_task = pairs.groupby("task")["chance"]
    _row_marks(apart, rows, by_task, 0.0, style.GREY, "D", "chance, 2p(1 − p)")
    errors.set_yticks(list(rows.values()), list(rows))
    errors.set_ylim(len(tasks) - 0.5, -0.5)
    errors.set_xlabel("error, %")
    apart.set_xlabel("disagreement, GD and SVM, %")
    for ax in (errors, apart):
        ax.set_xlim(left=0)
        ax.grid(axis="x")
    return common_legend(figure, (errors, apart), 4)


# The norms and programs behind SVM-L2, with colour, marker and line.
PROGRAMS = {
    "svm-gln": ("SVM-GLN", style.VERMILION, "s", "-"),
    "svm-l2": ("SVM-L2, exact", style.GREEN, "^", "-"),
    "svm-l2-formula": ("formula as printed, units as groups", style.BLUE, "D", "--"),
    "svm-l2-published": ("released program, smallest free part", style.PURPLE, "v", "-."),
    "svm-l2-osqp": ("released program, OSQP", style.ORANGE, "o", ":"),
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
    figure, axes = subplots(
        (8.4, 6.2), 2, 2, sharex=True, sharey=True, grid="y", x="hidden units H", y="error, %"
    )
    panels = [(threshold, k) for threshold in THRESHOLDS for k in (1, 2)]
    for ax, (threshold, k) in zip(axes.flat, panels, strict=True):
        for name, (label, colour, marker, line) in PROGRAMS.items():
            chosen = (rows["hyperplanes"] == k) & (rows["threshold"] == threshold)
            part = rows[(rows["model"] == name) & chosen]
            look = {"color": colour, "marker": marker, "linestyle": line, "label": label}
            mean_bars(ax, part, "units", "validation_error", **look)
        ax.set(xscale="log", title=f"{THRESHOLDS[threshold]}, {2**k} contexts a unit")
        tick_values(ax, WIDTHS)
    return common_legend(figure, axes[0, :1], 3)


# Models that the tables beyond the paper share: label, colour, marker.
SOLVED = {
    "gd-gln": ("GD-GLN", style.MODEL_COLOURS["gd-gln"], "o"),
    "svm-gln": ("SVM-GLN", style.MODEL_COLOURS["svm-gln"], "s"),
    "svm-l2": ("SVM-L2", style.MODEL_COLOURS["svm-l2"], "^"),
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
        apart = with_networks(tables.pairs, [name], ["cell", "grid"])
        apart = apart.loc[apart["name"] == "svm-gln", ["cell", "grid", "disagreement"]]
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


def task_names(frame: pd.DataFrame) -> list[str]:
    """Name data and classes of each row: "MNIST: 0,2,4 / 1,3,5"."""
    titles = frame["dataset"].replace({"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"})
    first, second = (frame[name].fillna("rest") for name in ("positive", "negative"))
    classes = (first + " / " + second).replace("rest / rest", "0-4 / 5-9")
    return (titles + ": " + classes).to_list()


# --- drawing -------------------------------------------------------------------------------


def draw_errors(ax: Axes, values: pd.DataFrame) -> bool:
    """Draw the error of each SVM against that of its network, and the line of equality."""
    shown = values.dropna(subset=["gd_error", "error"])
    _scatter(ax, shown, "error")
    ax.axline((10, 10), slope=1, color=style.GREY, linewidth=1.2, zorder=1)
    ax.set(xlabel="error of the network, %", ylabel="error of the SVM, %")
    return not shown.empty


def draw_disagreement(ax: Axes, values: pd.DataFrame) -> bool:
    """Draw the disagreement of each SVM with its network against its error, and chance."""
    shown = values.dropna(subset=["gd_error", "disagreement"])
    _scatter(ax, shown, "disagreement")
    limits = ax.get_xlim()
    p = pd.Series(np.linspace(0, 0.5, 201))
    ax.plot(100 * p, 100 * chance(p), color=style.GREY, linewidth=1.2, zorder=1)
    ax.set(xlabel="error of the network, %", ylabel="disagreement, %", xlim=limits)
    highest = [chance(shown["gd_error"]).max(), shown["disagreement"].max(), 0.0]
    ax.set_ylim(0, 105 * max(value for value in highest if np.isfinite(value)) or 1.0)
    return not shown.empty


def _scatter(ax: Axes, values: pd.DataFrame, column: str) -> None:
    for (model, left_out), rows in _grouped(values, ["model", "left_out"]):
        _marks(ax, 100 * rows["gd_error"], 100 * rows[column], model, left_out)


def _best(columns: Mapping[str, Sequence[str]]) -> Draw:
    """Draw the least error over all settings of each seed, its mean and deviation over seeds."""

    def draw(ax: Axes, values: pd.DataFrame) -> bool:
        solved = values.dropna(subset=["error"])
        least = solved.groupby(["model", "train_size", "seed"])["error"].min()
        found = least.groupby(level=[0, 1])
        means, spread = (100 * found.mean()).to_dict(), (100 * found.std()).to_dict()
        # Network and SVM of one column stand side by side.
        places = {
            model: x + 0.16 * (i - (len(models) - 1) / 2)
            for x, models in enumerate(columns.values())
            for i, model in enumerate(models)
        }
        for size, line in LINES.items():
            for kind in ("GD", "SVM"):
                known = [m for m in places if m.startswith(kind) and (m, size) in means]
                at, heights = [places[m] for m in known], [means[m, size] for m in known]
                ax.plot(at, heights, line, color=style.GREY, linewidth=1)
                for m, x, y in zip(known, at, heights, strict=True):
                    ax.errorbar(x, y, spread[m, size], color=COLOURS[m], linewidth=1.2)
                    _marks(ax, pd.Series([x]), pd.Series([y]), m)
        ax.set_xticks(range(len(columns)), list(columns))
        ax.set_xlim(-0.5, len(columns) - 0.5)
        ax.set_ylabel("least error, %")
        return not solved.empty

    return draw


def _against_width(column: str) -> Draw:
    def draw(ax: Axes, values: pd.DataFrame) -> bool:
        ax.set_xscale("log")
        _lines(ax, values, "units", WIDTHS, column, dodge=lambda x, i: x * 1.035**i)
        tick_values(ax, WIDTHS)
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
                ax.plot(DEPTHS, 100 * level, LINES[size], color=style.GREY, linewidth=0.9)
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
    for (model, size), rows in _grouped(values, ["model", "train_size"]):
        by_x = rows.groupby(x)
        table = 100 * by_x[column].agg(["mean", "std"]).reindex(list(grid))
        left_out = by_x["left_out"].any().reindex(list(grid), fill_value=False).astype(bool)
        places = pd.Series([dodge(float(at), shift[model]) for at in grid], index=table.index)
        ax.errorbar(
            places,
            table["mean"],
            table["std"],
            color=COLOURS[model],
            linestyle=LINES[size],
            linewidth=1.3,
            elinewidth=1,
        )
        for some in (False, True):
            here = left_out == some
            _marks(ax, places[here], table["mean"][here], model, some)
    unsolved = values[values["state"] != "solved"]
    for (model,), rows in _grouped(unsolved, ["model"]):
        level = 0.98 - 0.05 * models.index(model)
        at = [dodge(float(place), shift[model]) for place in sorted(set(rows[x]))]
        transform = ax.get_xaxis_transform()
        ax.plot(at, [level] * len(at), "x", color=COLOURS[model], transform=transform, ms=5)


def _marks(
    ax: Axes, x: pd.Series[float], y: pd.Series[float], model: str, left_out: bool = False
) -> None:
    colour = COLOURS[model]
    face = "white" if left_out else colour
    ax.plot(x, y, MARKERS[model], color=colour, mfc=face, ms=DOT, mew=0.9, alpha=0.9)


def _curve(
    ax: Axes, rows: pd.DataFrame, x: str, y: str, model: str, hyperplanes: int, units: int
) -> None:
    """Draw means and standard deviations of a model of one width."""
    label, colour, marker = SOLVED[model]
    line = "-" if hyperplanes == 1 else "--"
    text = f"{label}, H = {units}, {2**hyperplanes} contexts"
    mean_bars(ax, rows, x, y, color=colour, linestyle=line, marker=marker, label=text)


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


# --- layout --------------------------------------------------------------------------------


def _sides(panels: Sequence[Panel]) -> Figure:
    """Lay out each panel twice, with the same axes: as released on the left, exact on the right."""
    size = (FIGURE_WIDTH, len(panels) * PANEL_HEIGHT + 0.6)
    figure, grid = subplots(size, len(panels), len(SIDES), squeeze=False, grid="y")
    source = {"published": "paper", "corrected": "ours"}
    shown = []
    for row, panel in zip(grid, panels, strict=True):
        for ax, side in zip(row, SIDES, strict=True):
            chosen = (panel.values["side"] == side) & (panel.values["source"] == source[side])
            shown.append(panel.values[chosen])
            found = panel.draw(ax, shown[-1])
            nothing = NOTHING[side] if shown[-1].empty else "no predictor"
            ax.set_title(f"{panel.title}, {TITLES[side]}", fontweight="normal", loc="left")
            if not found:
                ax.text(0.5, 0.3, nothing, color=style.GREY, ha="center", transform=ax.transAxes)
        _share_limits(row)
    figure.legend(handles=_legend(pd.concat(shown)), loc="outside lower center", ncols=5)
    return figure


def _share_limits(axes: Sequence[Axes]) -> None:
    """Give panels of the same axes the same limits, those of the ones with data."""
    with_data = [ax for ax in axes if not ax.texts] or list(axes)
    limits = np.array([[*ax.get_xlim(), *ax.get_ylim()] for ax in with_data])
    low, high = limits.min(axis=0), limits.max(axis=0)
    for ax in axes:
        ax.set(xlim=(low[0], high[1]), ylim=(low[2], high[3]))


def _legend(shown: pd.DataFrame) -> list[Line2D]:
    """Return a key for each mark that the values need."""
    models = set(shown["model"])
    drawn = [name for name in COLOURS if name in models]
    keys = [_symbol(name, COLOURS[name], marker=MARKERS[name]) for name in drawn]
    keys += [_symbol(f"N = {n:,}", style.BLACK, linestyle=line) for n, line in LINES.items()]
    if shown["left_out"].any():
        keys.append(_symbol("samples left out", style.BLACK, marker="D", mfc="white"))
    if (shown["state"] != "solved").any():
        keys.append(_symbol("no predictor", style.BLACK, marker="x"))
    return keys


def _symbol(label: str, colour: str, **look: Any) -> Line2D:
    return Line2D([], [], color=colour, ms=DOT, label=label, **{"linestyle": "", **look})


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
        "causes": lambda: causes(tables),
        "infinite-time": lambda: infinite_time(tables),
        "larger": lambda: larger(tables),
        "other-tasks": lambda: other_tasks(tables),
    }
    figure = figures[name]()
    if figure is None:
        raise DataError(f"no cell that {name} shows is measured: python -m benchmarks lippl2022")
    return figure
