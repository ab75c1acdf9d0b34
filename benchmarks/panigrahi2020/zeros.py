"""Theorem 4.3: how many eigenvalues of G, and of G + H, are 0 for polynomial activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.harness import Experiment, Verdict, whole
from benchmarks.panigrahi2020.gram_bounds import polynomial_constraints, zero_index
from benchmarks.panigrahi2020.shared import in_subspace, parts, plain_numbers
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import (
    Activation,
    eigenvalues,
    finite_gram,
    gaussian_weights,
    infinite_gram,
    polynomial,
    polynomial_rank,
)
from implicit_bias.report.style import BLACK, COLOURS, GREY, MARKERS

# Relative to the largest, an eigenvalue above this is not 0, in the count of zeros.
NOT_ZERO = 1e-10
DEGREES = ((1,), (2,), (3,), (4,), (1, 2), (1, 2, 3))


def measure(quick: bool) -> pd.DataFrame:
    """Count the eigenvalues that are not 0, for polynomials."""
    dimensions, largest, points, width = (
        ((2, 3), 24, 6, 1024) if quick else ((2, 3, 4), 160, 9, 1024)
    )
    sizes = np.unique(np.append(np.geomspace(2, largest, points).astype(int), 10))
    return pd.DataFrame(
        count(dimension, degrees, int(n), width)
        for dimension in dimensions
        for degrees in DEGREES
        for n in sizes
    )


def count(dimension: int, degrees: tuple[int, ...], n: int, width: int) -> dict[str, Any]:
    """Count for one activation and n random samples of a subspace of R^10."""
    phi = polynomial([float(degree in degrees) for degree in range(max(degrees) + 1)])
    X = in_subspace(n, dimension)
    return {
        "dimension": dimension,
        "phi": phi.name,
        "degree": max(degrees),
        "n": n,
        "width": width,
        "finite": rank(weights_gram(X, phi, width)),
        "infinite": rank(infinite_gram(X, phi)),
        "both": rank(weights_gram(X, phi, width, train_readouts=True)),
        "exact": min(n, polynomial_rank(degrees, dimension)),
        "constraints": polynomial_constraints(max(degrees), dimension),
        "index": zero_index(n, dimension, max(degrees)) or np.nan,
        "index_both": zero_index(n, dimension, max(degrees), train_readouts=True) or np.nan,
    }


def weights_gram(X: Array, phi: Activation, width: int, *, train_readouts: bool = False) -> Array:
    """G, or G + H, of a network at the start."""
    weights = gaussian_weights(width, X.shape[1])
    return finite_gram(X, phi, weights, train_readouts=train_readouts)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw counted eigenvalues as marks and both formulas as lines."""
    groups = parts(frame, "dimension")
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    for ax, (dimension, rows) in zip(axes, groups, strict=True):
        ax.plot(rows["n"].unique(), rows["n"].unique(), ":", color=BLACK)
        for i, (_, cells) in enumerate(parts(rows, "phi")):
            ax.plot(cells["n"], cells["exact"], color=COLOURS[i])
            ax.plot(cells["n"], cells[["n", "constraints"]].min(axis=1), "--", color=COLOURS[i])
            for column, fill, size in (("finite", "none", 7), ("infinite", "full", 3)):
                look: dict[str, Any] = {"color": COLOURS[i], "fillstyle": fill, "ms": size}
                ax.plot(cells["n"], cells[column], MARKERS[i], **look)
        ax.set(xscale="log", yscale="log", title=f"span of {dimension} dimensions")
        ax.set_xlabel("samples n")
        plain_numbers(ax)
    axes[0].set_ylabel("eigenvalues of G that are not 0")
    handles = [
        *(
            Line2D([], [], color=COLOURS[i], marker=MARKERS[i], ls="", label=phi)
            for i, (phi, _) in enumerate(parts(frame, "phi"))
        ),
        Line2D([], [], color=GREY, marker="o", ls="", fillstyle="none", ms=7, label="finite width"),
        Line2D([], [], color=GREY, marker="o", ls="", ms=3, label="infinite width"),
        Line2D([], [], color=GREY, label="exact rank"),
        Line2D([], [], color=GREY, ls="--", label="C(d' + p, p) - 1"),
        Line2D([], [], color=BLACK, ls=":", label="all n"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, markerscale=1)
    return figure


def wrong_indices(frame: pd.DataFrame) -> pd.DataFrame:
    """Cells in which the eigenvalue of the theorem's index, counted from 1, is not 0."""
    return frame[frame["index"].notna() & (frame["finite"] >= frame["index"])]


def found(frame: pd.DataFrame) -> str:
    """Say how many cells agree."""
    off = frame[["finite", "infinite"]].ne(frame["exact"], axis=0).any(axis=1).sum()
    zero = frame[frame["constraints"] < frame["n"]]
    applies, wrong = frame[frame["index"].notna()], wrong_indices(frame)
    cases = ", ".join(
        f"{row.phi} with d' = {row.dimension} and n = {row.n}" for row in wrong.itertuples()
    )
    both = frame["both"].eq(frame["finite"]).sum()
    linear = frame[frame["degree"] == 1]
    return (
        f"{len(frame)} cells: random samples in subspaces of R^10, infinite width and m = "
        f"{frame['width'].iloc[0]:,}.\n\n"
        f"- First part: C(d' + p, p) < n + 1 holds in {len(zero)} cells, and in "
        f"{int((zero['finite'] < zero['n']).sum())} of them lambda_min = 0 at both widths. The "
        "rank exceeds C(d' + p, p) - 1 in "
        f"{int((frame['finite'] > frame['constraints']).sum())} cells. Lemma F.1, p = 1: n - d' "
        f"zeros in {int((linear['finite'] == linear[['n', 'dimension']].min(axis=1)).sum())} of "
        f"{len(linear)}.\n"
        f"- Second part: lambda_k = 0 for all k >= ceil(n / d'), under its condition: in "
        f"{len(applies) - len(wrong)} of {len(applies)} cells. The exception is the case of "
        f"equality, C(d' + p, p) - 1 = n / d' ({cases or 'none here'}): there the eigenvalue of "
        "that very index is not 0.\n"
        "- Theorem M.3, trained readouts: the index ceil(2 n / d') is right in "
        f"{_right_both(frame)} of {int(frame['index_both'].notna().sum())} cells; in fact H adds "
        f"no rank at all in {both} of {len(frame)} cells, for its features are the same monomials "
        "(not in the paper; derived here).\n"
        f"- Not in the paper; derived here: the exact rank, `polynomial_rank`, agrees in "
        f"{len(frame) - off} of {len(frame)} cells."
    )


def _right_both(frame: pd.DataFrame) -> int:
    """Count the cells in which theorem M.3 holds."""
    applies = frame[frame["index_both"].notna()]
    return int((applies["both"] < applies["index_both"]).sum())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show counts, and their predictions, at the largest n."""
    last = frame.groupby(["dimension", "phi"], sort=False).last().reset_index()
    return pd.DataFrame(
        {
            "d'": last["dimension"].astype(str),
            "phi": last["phi"],
            "n": last["n"].astype(str),
            "not 0, finite width": last["finite"].astype(str),
            "infinite width": last["infinite"].astype(str),
            "G + H": last["both"].astype(str),
            "C(d' + p, p) - 1": last["constraints"].astype(str),
            "exact rank": last["exact"].astype(str),
            "0 from index": last["index"].map(lambda k: "" if np.isnan(k) else f"{k:.0f}"),
        }
    )


def rank(gram: Array) -> int:
    """Count the eigenvalues that are not rounding."""
    values = eigenvalues(gram)
    return int(np.count_nonzero(values > NOT_ZERO * values[0]))


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    zero = frame[frame["constraints"] < frame["n"]]
    first = bool((zero[["finite", "infinite"]].lt(zero["n"], axis=0)).all(axis=None))
    holds = first and len(zero) > 0 and _right_both(frame) == frame["index_both"].notna().sum()
    return Verdict.of(holds and wrong_indices(frame).empty, holds)


EXPERIMENT = Experiment(
    measure=whole(measure), draw=draw, found=found, verdict=verdict, tabulate=tabulate
)
