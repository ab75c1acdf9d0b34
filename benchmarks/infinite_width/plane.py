"""What each norm makes of the same points in the plane, and how many neurons the optimum needs.

A row of pictures: random features under the l2 norm, gates frozen at random, the variation norm,
and a trained network. Each of the first three has the largest margin under its own norm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.harness import Experiment, Verdict
from benchmarks.infinite_width.clusters import Trained, clusters, train
from benchmarks.infinite_width.live_and_frozen import gated_optimum
from benchmarks.infinite_width.shared import SizeOptions, at_sizes, with_sizes
from implicit_bias.problem import MarginProblem, gated_linear
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, VERMILION
from implicit_bias.solvers import solve
from implicit_bias.theory.arrangement import Lines, maximise
from implicit_bias.theory.infinite_width import (
    InfiniteWidthSolution,
    NetworkGrade,
    max_margin,
)
from implicit_bias.validation import Array

# Points along each axis of a picture, and the picture's half width.
GRID, HALF = 300, 0.56
# Peaks of |h| this near to 1 touch the bound; those nearer than this angle are one.
TOUCHES, SAME = 1e-4, 0.02
# Units tried through each point of the picture of |h|.
ANGLES = 400
# Neurons of less weight than this share of the largest are not drawn.
FAINT = 0.02


@dataclass(frozen=True)
class Predictor:
    """A function of inputs (n, 3), its name, and the neurons to draw, if it has few."""

    name: str
    decision: Callable[[Array], Array]
    directions: Array | None = None
    coef: Array | None = None


def predictors(
    X: Array,
    y: Array,
    *,
    features: int = 2000,
    gates: int = 400,
    width: int = 500,
    steps: int = 300_000,
) -> list[Predictor]:
    """Random features, frozen random gates, all margins live, and training: the same data."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(features, X.shape[1]))
    live = max_margin(X, y)
    trained = train(X[None], y[None], width, steps)
    share = trained.margins[-1, 0] * live.certificate.upper
    return [
        random_features(X, y, weights),
        frozen_gates(X, y, rng.normal(size=(gates, X.shape[1]))),
        Predictor(
            f"variation norm\n{len(live.coef)} live neurons",
            live.decision,
            live.directions,
            live.coef,
        ),
        Predictor(
            f"both layers trained, {width} units\n{100 * share:.0f} % of the maximum margin",
            lambda inputs: _network(trained, inputs),
            trained.first[0],
            trained.readout[0] / width,
        ),
    ]


def random_features(X: Array, y: Array, weights: Array) -> Predictor:
    """Maximise the margin under the l2 norm over fixed random ReLU features."""

    def features(inputs: Array) -> Array:
        return np.maximum(inputs @ weights.T, 0.0) / np.sqrt(len(weights))

    problem = MarginProblem(features(X), y, np.ones((len(X), 1)), np.zeros(1, dtype=np.int64))
    coef = solve(problem, tol=1e-4).coef[0]
    return Predictor(
        f"l2 norm\n{len(weights):,} random features", lambda inputs: features(inputs) @ coef
    )


def frozen_gates(X: Array, y: Array, weights: Array) -> Predictor:
    """Maximise the margin under the group norm over units whose gates are fixed half planes."""

    def gates(inputs: Array) -> Array:
        return (inputs @ weights.T > 0).astype(np.float64)

    coef = gated_optimum(X, y, gates(X)).coef
    return Predictor(
        f"group norm\n{len(weights)} frozen random gates",
        lambda inputs: gated_linear(inputs, gates(inputs), coef),
    )


def _network(trained: Trained, inputs: Array) -> Array:
    hidden = np.maximum(inputs @ trained.first[0].T, 0.0)
    return np.asarray(hidden @ trained.readout[0] / trained.readout.shape[1])


def draw_row(X: Array, y: Array, shown: list[Predictor]) -> Figure:
    """One panel a predictor: its values scaled to margin 1, its boundary, its neurons' kinks."""
    figure = Figure(figsize=(2.75 * len(shown), 3.3), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12)  # type: ignore[union-attr, call-arg]
    for ax, predictor in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        _panel(ax, X, y, predictor)
    return figure


def draw_escape(
    X: Array, y: Array, grade: NetworkGrade, decision: Callable[[Array], Array]
) -> Figure:
    """Show where one more unit would lower a network's norm, and |h| over all half planes.

    Left: the network's values and the kink of the missing unit. Right: max |h| over the units
    whose kink passes each point of the plane, above 1 where the bound is broken.
    """
    figure = Figure(figsize=(6.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    _panel(left, X, y, Predictor("the network, and the unit it lacks", decision))
    _kink(left, grade.escape, color=GREEN, linewidth=2.2)
    inputs, axis = _grid_inputs()
    at_points = _largest_through(grade, inputs).reshape(GRID // 3, GRID // 3)
    image = right.contourf(axis, axis, at_points, levels=20, cmap="viridis")
    right.contour(axis, axis, at_points, [1.0], colors="white", linewidths=1)
    figure.colorbar(image, ax=right, label="largest |h| of a unit with its kink here")
    right.set_title("where the oracle exceeds 1")
    _bare(right)
    return figure


def _largest_through(grade: NetworkGrade, inputs: Array) -> Array:
    """Max |h| over units (directions orthogonal to the point's input), on some of them: (n,)."""
    problem = grade.solution.problem
    first = np.cross(inputs, np.array([0.3, -0.5, 0.81]))
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(inputs, first)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    best = np.zeros(len(inputs))
    for angle in np.linspace(0.0, 2.0 * np.pi, ANGLES, endpoint=False):
        units = np.cos(angle) * first + np.sin(angle) * second
        best = np.maximum(best, np.abs(problem.dual_values(grade.alpha, units)))
    return best


def _grid_inputs() -> tuple[Array, Array]:
    axis = np.linspace(-HALF, HALF, GRID // 3)
    a, b = np.meshgrid(axis, axis)
    return np.column_stack([np.ones(a.size), a.ravel(), b.ravel()]), axis


def _panel(ax: Axes, X: Array, y: Array, predictor: Predictor) -> None:
    axis = np.linspace(-HALF, HALF, GRID)
    a, b = np.meshgrid(axis, axis)
    inputs = np.column_stack([np.ones(a.size), a.ravel(), b.ravel()])
    margin = float(np.min(y * predictor.decision(X)))
    values = predictor.decision(inputs).reshape(GRID, GRID) / abs(margin)
    ax.imshow(
        np.tanh(0.7 * values),
        cmap="RdBu_r",
        vmin=-1.6,
        vmax=1.6,
        extent=(-HALF, HALF, -HALF, HALF),
        origin="lower",
        interpolation="bilinear",
    )
    if predictor.coef is not None and predictor.directions is not None:
        weights = np.abs(predictor.coef) * np.linalg.norm(predictor.directions, axis=1)
        strengths = weights / weights.max()
        for direction, strength in zip(predictor.directions, strengths, strict=True):
            if strength > FAINT:
                _kink(ax, direction, color=GREY, linewidth=0.3 + 1.5 * strength, alpha=0.55)
    ax.contour(axis, axis, values, [-1.0, 1.0], colors=BLACK, linewidths=0.6, linestyles=":")
    ax.contour(axis, axis, values, [0.0], colors=BLACK, linewidths=1.6)
    for label, colour, marker in ((-1, BLUE, "o"), (1, VERMILION, "^")):
        one, two = X[y == label, 1:3].T
        ax.scatter(one, two, s=9, c=colour, marker=marker, linewidths=0, zorder=3)
    ax.set_title(predictor.name, fontsize=9)
    _bare(ax)


def _kink(ax: Axes, direction: Array, **look: object) -> None:
    """Draw the line on which a unit of inputs (1, x1, x2) changes its slope."""
    offset, normal = direction[0], direction[1:3]
    length = float(np.linalg.norm(normal))
    if length == 0:
        return
    foot = -offset * normal / length**2
    along = np.array([-normal[1], normal[0]]) / length * 3.0
    ax.plot(*np.column_stack([foot - along, foot + along]), zorder=2, **look)  # type: ignore[arg-type]


def _bare(ax: Axes) -> None:
    ax.set(xlim=(-HALF, HALF), ylim=(-HALF, HALF), xticks=[], yticks=[], aspect="equal")
    for spine in ax.spines.values():
        spine.set_visible(False)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Grids of clusters, samples and draws of the count of neurons."""

    grids: tuple[int, ...] = (2, 3, 4)
    samples: tuple[int, ...] = (16, 32, 64, 128, 256)
    draws: int = 20


FULL = Sizes()
MINUTES = Sizes(draws=5)
QUICK = Sizes(grids=(2, 3), samples=(16, 32), draws=2)


def measure(sizes: Sizes = FULL) -> pd.DataFrame:
    """One row a draw: neurons of the optimum, contacts of the dual bound, and uniqueness."""
    rows = []
    for k in sizes.grids:
        for samples in sizes.samples:
            for draw in range(sizes.draws):
                live = max_margin(*clusters(k, samples, draw), tol=1e-8)
                contacts, rank, function_rank = contact_points(live)
                rows.append(
                    {
                        "k": k,
                        "samples": samples,
                        "draw": draw,
                        "norm": live.certificate.upper,
                        "gap": live.certificate.gap,
                        "seconds": live.seconds,
                        "neurons": len(live.coef),
                        "support": int((live.alpha > 1e-6 * live.alpha.max()).sum()),
                        "contacts": contacts,
                        "unique_measure": rank == contacts,
                        "unique_function": rank == function_rank,
                    }
                )
    return pd.DataFrame(rows)


def contact_points(live: InfiniteWidthSolution) -> tuple[int, int, int]:
    """Count directions at which |h| touches 1, and what their activations determine.

    Every optimal measure lives on these directions and has margin 1 on the support vectors. If the
    activations there have full rank, there is one optimal measure. If they have the rank of the
    functions themselves (a kink on the line of w, and a linear function), there is one
    optimal function.

    Returns
    -------
    contacts, rank, function_rank : int
        Directions, rank of their activations on the support vectors, rank of their functions.
    """
    peaks = maximise(live.problem.dual_function(live.alpha), floor=1.0 - TOUCHES)
    points = peaks.points[peaks.values >= 1.0 - TOUCHES]
    chosen: list[Array] = []
    while len(points):
        chosen.append(points[0])
        points = points[np.linalg.norm(points - points[0], axis=1) > SAME]
    directions = np.array(chosen)
    support = live.alpha > 1e-6 * live.alpha.max()
    activations = live.problem.activations(directions @ live.problem.basis.T)[support]
    kinks = np.eye(len(chosen))[:, Lines.of(directions, SAME).line]  # one row a line
    functions = np.column_stack([kinks.T, directions])
    return len(chosen), _rank(activations), _rank(functions)


def _rank(matrix: Array) -> int:
    return int(np.linalg.matrix_rank(matrix, tol=1e-6 * float(np.abs(matrix).max())))


def draw(frame: pd.DataFrame) -> Figure:
    """Neurons of the optimum against samples, by the number of clusters."""
    figure = Figure(figsize=(4.6, 3.3), layout="constrained")
    ax = figure.add_subplot()
    for colour, marker, (k, rows) in zip(
        (BLUE, VERMILION, GREEN), "o^s", frame.groupby("k"), strict=False
    ):
        by_size = rows.groupby("samples")["neurons"]
        middle = by_size.median()
        ax.errorbar(
            middle.index,
            middle,
            yerr=[middle - by_size.min(), by_size.max() - middle],
            color=colour,
            marker=marker,
            markersize=4,
            capsize=2,
            linewidth=1.2,
            label=f"{k} × {k}",
        )
    sizes = sorted(frame["samples"].unique())
    ax.set(xscale="log", xlabel="samples", ylabel="neurons of the optimum")
    ax.set_xticks(sizes, labels=[str(n) for n in sizes])
    ax.set_xticks([], minor=True)
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y")
    ax.legend(title="clusters (median, range)")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    largest = frame[frame["samples"] == frame["samples"].max()]
    counts = largest.groupby("k")["neurons"].median()
    words = ", ".join(f"{count:.0f} for {k} × {k} clusters" for k, count in counts.items())
    return (
        f"With {frame['samples'].max()} samples the optimum has {words} (medians), fewer than "
        f"samples. Its function is unique, as the contact points tell, in "
        f"{100 * frame['unique_function'].mean():.0f} % of the draws, its measure in "
        f"{100 * frame['unique_measure'].mean():.0f} %: where h is even, w and -w can share a "
        "linear function in many ways at the same norm."
    )


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Median number of neurons, a row a number of samples, a column a number of clusters."""
    return frame.groupby(["samples", "k"])["neurons"].median().unstack()


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    counts = medians(frame)
    sparse = (frame["neurons"] < frame["samples"]).all()
    level = (counts.iloc[-1] < 2.0 * counts.iloc[len(counts) // 2]).all()
    return Verdict.of(sparse and level, sparse)


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Median number of neurons by samples and clusters, and the largest certified gap."""
    counts = medians(frame)
    cells = {f"{k} × {k} clusters": counts[k].map("{:.0f}".format) for k in counts}
    gaps = frame.groupby("samples")["gap"].max().map("{:.1e}".format)
    return pd.DataFrame({**cells, "largest gap": gaps}).reset_index().astype(str)


EXPERIMENT = Experiment(
    claim="The optimum over infinitely many neurons needs few, and their number grows much more "
    "slowly than that of the samples.",
    how="The optimum is certified, rounded to the fewest neurons that attain it, and the "
    "directions at which the dual function touches its bound are counted: by the rank of what they "
    "do on the support vectors they tell whether another optimum exists.",
    measure=at_sizes(measure, quick=QUICK, minutes=MINUTES, full=FULL),
    draw=draw,
    found=with_sizes(found),
    rule="It stands if every optimum has fewer neurons than samples, and the median at the most "
    "samples is less than twice that at the middle number of them, for each number of clusters; "
    "in part if the first holds.",
    verdict=verdict,
    tabulate=tabulate,
    alt="Neurons of the optimum against samples, by the number of clusters",
    options=SizeOptions,
)
