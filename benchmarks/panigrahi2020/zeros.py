"""How many eigenvalues of G are not 0 for polynomial activations."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.harness import Experiment, Verdict, whole
from benchmarks.panigrahi2020.shared import parts, plain_numbers
from implicit_bias.report.style import BLACK, COLOURS, GREY, MARKERS
from implicit_bias.theory.gradient_gram import (
    activation_gram,
    eigenvalues,
    gaussian_weights,
    infinite_gram,
    normalise,
    polynomial,
    polynomial_rank,
)
from implicit_bias.validation import Array

# Relative to the largest, an eigenvalue above this is not 0, in the count of zeros.
NOT_ZERO = 1e-10


def measure(quick: bool) -> pd.DataFrame:
    """Count the eigenvalues that are not 0, for polynomials."""
    dimensions, largest, points, width = (
        ((2, 3), 24, 6, 1024) if quick else ((2, 3, 4), 80, 16, 4096)
    )
    rows = []
    for dimension in dimensions:
        for degrees in ((2,), (3,), (4,), (1, 2, 3)):
            phi = polynomial([float(degree in degrees) for degree in range(max(degrees) + 1)])
            for n in np.unique(np.geomspace(2, largest, points).astype(int)):
                X = in_subspace(int(n), dimension)
                finite = activation_gram(X, phi, gaussian_weights(width, X.shape[1]))
                rows.append(
                    {
                        "dimension": dimension,
                        "phi": phi.name,
                        "n": n,
                        "width": width,
                        "finite": _rank(finite),
                        "infinite": _rank(infinite_gram(X, phi)),
                        "theory": min(n, polynomial_rank(degrees, dimension)),
                    }
                )
    return pd.DataFrame(rows)


def in_subspace(n_samples: int, dimension: int, n_features: int = 10) -> Array:
    """Draw unit vectors (n_samples, n_features) in a random subspace."""
    rng = np.random.default_rng(1)
    basis, _ = np.linalg.qr(rng.standard_normal((n_features, dimension)))
    return normalise(rng.standard_normal((n_samples, dimension)) @ basis.T)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw counted eigenvalues as marks and the formula as lines."""
    groups = parts(frame, "dimension")
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for ax, (dimension, rows) in zip(axes, groups, strict=True):
        ax.plot(rows["n"].unique(), rows["n"].unique(), ":", color=BLACK)
        for i, (_, cells) in enumerate(parts(rows, "phi")):
            ax.plot(cells["n"], cells["theory"], color=COLOURS[i])
            for column, fill, size in (("finite", "none", 7), ("infinite", "full", 3)):
                look = {"color": COLOURS[i], "fillstyle": fill, "ms": size}
                ax.plot(cells["n"], cells[column], MARKERS[i], **look)
        ax.set(xscale="log", yscale="log", title=f"span of {dimension} dimensions")
        ax.set_xlabel("samples n")
        plain_numbers(ax)
    axes[0].set_ylabel("eigenvalues of G that are not 0")
    marks = [
        Line2D([], [], color=COLOURS[i], marker=MARKERS[i], ls="", label=phi)
        for i, (phi, _) in enumerate(parts(frame, "phi"))
    ]
    lines = [
        Line2D([], [], color=GREY, marker="o", ls="", fillstyle="none", ms=7, label="finite width"),
        Line2D([], [], color=GREY, marker="o", ls="", ms=3, label="infinite width"),
        Line2D([], [], color=GREY, label="theory"),
        Line2D([], [], color=BLACK, ls=":", label="all n"),
    ]
    figure.legend(handles=[*marks, *lines], loc="outside lower center", ncols=4, markerscale=1)
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say how many cells agree."""
    off = frame[["finite", "infinite"]].ne(frame["theory"], axis=0).any(axis=1).sum()
    return (
        f"In {len(frame) - off} of {len(frame)} cells, random samples in subspaces of R^10, the "
        "count at infinite width and the count at finite width "
        f"(m = {frame['width'].iloc[0]:,}) are both exactly min(n, rank) with the rank of "
        "`polynomial_rank`, which counts monomials of the highest even and odd degree. The table "
        "has the largest n."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Count, and its prediction, at the largest n."""
    last = frame.groupby(["dimension", "phi"], sort=False).last().reset_index()
    return pd.DataFrame(
        {
            "d'": last["dimension"].astype(str),
            "phi": last["phi"],
            "n": last["n"].astype(str),
            "not 0, finite width": last["finite"].astype(str),
            "not 0, infinite width": last["infinite"].astype(str),
            "theory": last["theory"].astype(str),
        }
    )


def _rank(gram: Array) -> int:
    values = eigenvalues(gram)
    return int(np.count_nonzero(values > NOT_ZERO * values[0]))


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    exact = frame[["finite", "infinite"]].eq(frame["theory"], axis=0).all(axis=None)
    return Verdict.of(bool(exact) and bool((frame["theory"] < frame["n"]).any()))


EXPERIMENT = Experiment(
    claim="Theorem 4.3: for a polynomial activation and many samples that span few dimensions, "
    "eigenvalues of G are 0. (The full text was not at hand: their exact number is ours. With "
    "degree p and a span of d' dimensions all but O(d'^p) are.)",
    how=(
        "Random samples in subspaces of R^10; eigenvalues that are not rounding are counted, at "
        "infinite and at finite width."
    ),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if both counts are those of the formula in every cell, and some eigenvalues "
        "are 0."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Eigenvalues that are not 0 against the samples, counted and as the formula has them",
)
