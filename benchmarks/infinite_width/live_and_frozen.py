"""What frozen gates can and cannot say of live ones: norms of gated relaxations, certified.

A gated network with the gates of a ReLU network can do what that network does, so its optimum is at
most as large. But a gated unit need not have its weight on the active side of its gate: over all
cells the optimum is a lower bound of the variation norm, and a loose one. With the constraints that
it leaves out, a cone a unit, it is the variation norm (Pilanci and Ergen, 2020).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.harness import Row, Rows, Verdict, parts
from benchmarks.infinite_width.clusters import clusters, path_margin, train
from benchmarks.sizes import grid, sized
from benchmarks.words import span
from implicit_bias import Certificate, MarginProblem, Status, certify, solve
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import InfiniteWidthSolution, max_margin
from implicit_bias.infinite_width.arrangement import cell_signs
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

LEARNED, ALL = "gates of a trained network (SVM-LC)", "all cells"
IN_CONES = "all cells, weights in their cones"
RANDOM_GATES = (16, 64, 256, 1024)
LOOKS = {
    "16 random gates": (SKY, "v:"),
    "64 random gates": (BLUE, "^:"),
    "256 random gates": (PURPLE, "D:"),
    "1,024 random gates": (GREY, "x:"),
    LEARNED: (ORANGE, "P--"),
    "gates of the optimum": (GREEN, "s--"),
    ALL: (VERMILION, "o-"),
    IN_CONES: (BLACK, "*-"),
}
CLUSTERS, GAUSSIAN = "clusters", "Gaussian"
GAP = 1e-4
# Gates with which a gated problem is solved at first, and that join at once.
AT_ONCE = 256
# The rule of the verdict: a ratio this near to 1.
NEAR = 0.05


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of samples, draws of each, and the training of the network that gives gates."""

    k: int = 3
    samples: tuple[int, ...] = (8, 16, 32, 64, 128)
    most_in_cones: int = 32
    draws: int = 5
    width: int = 128
    steps: int = 5000


QUICK = Sizes(samples=(8, 16), draws=1, width=32, steps=200)


def settings(sizes: Sizes) -> list[Row]:
    """Kinds of data, and numbers of samples."""
    return grid(data=(CLUSTERS, GAUSSIAN), samples=sizes.samples)


def rows(sizes: Sizes, data: str, samples: int) -> Rows:
    """One row a draw and family of gates: the gated norm and the ratio."""
    for draw in range(sizes.draws):
        drawn = clusters(sizes.k, samples, draw) if data == CLUSTERS else gaussian(samples, draw)
        yield from ({"draw": draw, **row} for row in _of_draw(sizes, *drawn, draw))


def gaussian(samples: int, seed: int) -> tuple[Array, Array]:
    """Draw standard normal inputs (n, 3), a random half of them labelled -1."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, 3)), np.sign(rng.permutation(samples) - samples // 2 + 0.5)


def _of_draw(sizes: Sizes, X: Array, y: Array, draw: int) -> Rows:
    live = max_margin(X, y)
    trained = train(X[None], y[None], sizes.width, sizes.steps, seed=draw)
    rng = np.random.default_rng(draw)
    families = {
        f"{count:,} random gates": rng.normal(size=(count, X.shape[1])) for count in RANDOM_GATES
    } | {LEARNED: trained.first[0], "gates of the optimum": live.directions}
    gates = {name: gates_of(X, weights) for name, weights in families.items()}
    gates[ALL] = all_gates(live)
    for name, Z in gates.items():
        _, certificate = gated_optimum(X, y, Z)
        yield {
            "gates": name,
            "n_gates": Z.shape[1],
            "norm": certificate.lower if np.isinf(certificate.upper) else certificate.upper,
            "separates": np.isfinite(certificate.upper),
            "gap": certificate.gap,
            "ratio": live.certificate.lower / certificate.upper,
        }
    if len(X) <= sizes.most_in_cones:
        norm = norm_in_cones(X, y, gates[ALL])
        exact = {"gates": IN_CONES, "n_gates": gates[ALL].shape[1], "separates": True}
        yield exact | {"norm": norm, "ratio": live.certificate.lower / norm}


def gates_of(X: Array, weights: Array) -> Array:
    """Distinct gates of units on the data, and one that is always on: (n, M)."""
    active = (X @ weights.T > 0).astype(np.float64)
    return np.unique(np.column_stack([np.ones(len(X)), active]), axis=1)


def all_gates(live: InfiniteWidthSolution) -> Array:
    """Gates of all cells: (n, M)."""
    lines = live.problem.lines
    sides = cell_signs(lines.normals)[:, lines.line] * np.sign(lines.lengths)
    return np.unique((sides > 0).T.astype(np.float64), axis=1)


def gated_optimum(X: Array, y: Array, gates: Array) -> tuple[Array, Certificate]:
    """Solve the margin problem with one unit a gate: coefficients (M, D), graded over all gates.

    Of many gates few have weights. So the problem is solved over some of them, and those whose
    dual norm exceeds the bound join.
    """
    n_gates = gates.shape[1]
    problem = MarginProblem(X, y, gates, np.arange(n_gates))
    chosen = np.unique(np.linspace(0, n_gates - 1, AT_ONCE).astype(np.int64))
    while True:
        some = MarginProblem(X, y, gates[:, chosen], np.arange(len(chosen)))
        found = solve(some, tol=GAP / 10)
        coef = np.zeros((n_gates, X.shape[1]))
        coef[chosen] = found.coef
        if len(chosen) == n_gates:
            return coef, found.certificate
        if found.status is Status.NOT_SEPARABLE:  # its proof has no scale to compare norms with
            new = np.setdiff1d(np.arange(n_gates), chosen)[:AT_ONCE]
        else:
            norms = problem.dual_norms(found.alpha)
            above = np.flatnonzero(norms > 1.0 + GAP / 10)
            new = np.setdiff1d(above[np.argsort(-norms[above])][:AT_ONCE], chosen)
        if not len(new):
            return coef, certify(problem, coef=coef, alpha=found.alpha)
        chosen = np.append(chosen, new)


def norm_in_cones(X: Array, y: Array, gates: Array) -> float:
    """Norm at margin 1 of the best network whose units stay on the active side of gates (n, M).

    By CVXPY with Clarabel; the norm is that of the units found, whatever they are worth.
    """
    import cvxpy as cp

    plus, minus = (cp.Variable((X.shape[1], gates.shape[1])) for _ in range(2))
    outputs = cp.sum(cp.multiply(gates, X @ (plus - minus)), axis=1)
    in_cones = [cp.multiply(2 * gates - 1, X @ units) >= 0 for units in (plus, minus)]
    norm = cp.sum(cp.norm(cp.hstack([plus, minus]), axis=0))
    cp.Problem(cp.Minimize(norm), [cp.multiply(y, outputs) >= 1, *in_cones]).solve(cp.CLARABEL)
    units = np.hstack([plus.value, minus.value]).T
    return 1.0 / path_margin(X, y, units, np.repeat([1.0, -1.0], gates.shape[1]))


def draw(frame: pd.DataFrame) -> Figure:
    """Ratio of the live to the frozen norm against the number of samples, by family of gates."""
    figure, axes = subplots(
        (8.6, 3.4), 1, 2, sharey=True, grid="y", y="variation norm / gated optimum"
    )
    for ax, (data, part) in zip(axes, parts(frame, "data"), strict=True):
        for name, (colour, look) in LOOKS.items():
            rows = part[(part["gates"] == name) & part["separates"]]
            by_size = rows.groupby("samples")["ratio"].median()
            label = name if ax is axes[0] else None
            ax.plot(by_size.index, by_size, look, color=colour, label=label, markersize=5)
        ax.axhline(1.0, color=GREY, linewidth=1)
        ax.set(xscale="log", yscale="log", xlabel="samples", title=data, ylim=(0.8, None))
        tick_values(ax, part["samples"])
    ratios = [ratio for ratio in (1, 2, 5, 10, 20, 50, 100) if ratio < 1.5 * frame["ratio"].max()]
    tick_values(axes[0], ratios, along="y")
    figure.legend(loc="outside right upper")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    sizes = sorted(set(frame["samples"]))
    medians = ratios(frame)
    largest, of_clusters = medians[sizes[-1]], medians[sizes[-1]][CLUSTERS]
    cones = frame[frame["gates"] == IN_CONES]
    least, most = np.sqrt(np.log(sizes[0])), np.sqrt(np.log(sizes[-1]))
    return (
        f"With {sizes[-1]} samples of clusters the variation norm is {of_clusters[ALL]:.1f} "
        "times the gated optimum over all cells, "
        f"{of_clusters[LEARNED]:.2f} times that over the gates of a trained "
        f"network, and {of_clusters['gates of the optimum']:.2f} times that over the gates of the "
        f"optimal network itself (medians). Control: with weights in their cones, as computed for "
        f"{len(cones)} small sets, it is {span(cones['ratio'], '.4f')} times the optimum. On "
        f"Gaussian data the ratio over all cells goes from {medians[sizes[0]][GAUSSIAN][ALL]:.1f} "
        f"with {sizes[0]} samples to {largest[GAUSSIAN][ALL]:.0f} with {sizes[-1]}, while "
        f"sqrt(log n) goes from {least:.1f} to {most:.1f}."
    )


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Median ratio of the live to the frozen norm, a row a family of gates, a column a size.

    Where gates cannot separate the samples their norm is infinite, and the ratio 0; where it was
    not computed it is nan.
    """
    medians = frame.groupby(["data", "gates", "samples"], sort=False)["ratio"].median().unstack()
    return medians.loc[[(data, name) for data in (CLUSTERS, GAUSSIAN) for name in LOOKS]]


def verdict(frame: pd.DataFrame, off: float = NEAR) -> Verdict:
    """Judge the claim by the rule, which is of the clusters."""
    off_one = (ratios(frame).drop(IN_CONES, level="gates") - 1.0).abs()
    far = off_one.max(axis=1)[CLUSTERS]
    decisive = far[["gates of the optimum", ALL]]
    return Verdict.of(decisive.max() < off, far.min() < off)


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Median ratios of each family of gates, by number of samples."""
    medians = ratios(frame).map("{:.2f}".format).replace("nan", "-")
    return medians.rename(columns="{} samples".format).reset_index()


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
