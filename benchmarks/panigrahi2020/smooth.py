"""Theorem 4.4: how small eigenvalues are for tanh and swish in few dimensions."""

import itertools
import math

import numpy as np
import pandas as pd
import torch

from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Judged, Rows, Verdict, parts, whole
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.finite_spectrum import finite_eigenvalues
from benchmarks.panigrahi2020.gram_spectrum import sphere_eigenvalues
from benchmarks.panigrahi2020.shared import LOOK, SMOOTH, in_subspace, number
from benchmarks.words import span
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.report.style import BLACK

# Below this share of the largest an eigenvalue is rounding, here.
LEAST = 1e-23
# The columns of eigenvalues that each claim is about, and those of the largest beside them.
CLAIMED = {
    "theorem-4-4": {"smallest": "largest", "finite_smallest": "finite_largest"},
    "corollary-f10": {"at_index": "largest", "finite_at_index": "finite_largest"},
    "theorem-m4": {"both_at_index": "both_largest"},
}


def measure(quick: bool) -> Rows:
    """Smallest eigenvalue and that of index ceil(n / d'), at infinite and at finite width."""
    sizes = (8, 16, 32) if quick else (8, 12, 16, 24, 32, 48, 64, 96, 128)
    width, runs = (256, 1) if quick else (1024, 2)
    for activation, d, n, run in itertools.product(SMOOTH, (2, 3, 4), sizes, range(runs)):
        phi = grams.ACTIVATIONS[activation]
        index, index_both = (
            bounds.smooth_index(n, d, train_readouts=trained) for trained in (False, True)
        )
        X = in_subspace(n, d, d, seed=run)
        exact = sphere_eigenvalues(X, phi)
        generator = torch.Generator().manual_seed(10**6 + run)
        readouts = torch.randn(width, generator=generator, dtype=torch.float64)
        weights = list(grams.gaussian_weights(width, d, seed=run))
        finite, both = (
            finite_eigenvalues(X, phi, weights, readouts=readouts, train_readouts=trained)
            for trained in (False, True)
        )
        yield {
            "activation": activation,
            "dimension": d,
            "n": n,
            "run": run,
            "width": width,
            "index": index,
            "largest": exact[0],
            "smallest": exact[-1],
            "at_index": exact[index - 1],
            "finite_smallest": finite[-1],
            "finite_at_index": finite[index - 1],
            "finite_largest": finite[0],
            "both_at_index": both[index_both - 1],
            "both_largest": both[0],
        }


def means(frame: pd.DataFrame) -> pd.DataFrame:
    """-log of the eigenvalues, mean of the runs; NaN where one is rounding, beside the largest."""
    logs = pd.DataFrame(
        {
            column: -np.log(frame[column].where(frame[column] > LEAST * frame[largest]))
            for claimed in CLAIMED.values()
            for column, largest in claimed.items()
        }
    )
    keys = [frame[column] for column in ("activation", "dimension", "n")]
    found = logs.groupby(keys, sort=False).mean().reset_index()
    found["exponent"] = [
        bounds.smooth_exponent(n, d) for n, d in zip(found["n"], found["dimension"], strict=True)
    ]
    return found


def draw(frame: pd.DataFrame) -> Figure:
    """Draw -log of both eigenvalues against the theorem's exponent."""
    figure, axes = subplots((10, 4.4), 1, 3, sharey=True, grid="y", y="-log(eigenvalue)")
    for ax, (dimension, rows) in zip(axes, parts(means(frame), "dimension"), strict=True):
        for activation, cells in parts(rows, "activation"):
            for column, line, label in (
                ("smallest", "-", "min"),
                ("at_index", "--", "index ceil(n / d')"),
                ("finite_smallest", "", "min, finite width"),
            ):
                fill = {"fillstyle": "full" if line == "-" else "none", "ms": 6 if line else 9}
                look = LOOK[activation] | fill | {"ls": line, "label": f"{activation}: {label}"}
                ax.plot(cells["exponent"], cells[column], **look)
        x = rows["exponent"].unique()
        slope = (rows["smallest"] / rows["exponent"]).min()
        ax.plot(x, slope * x, ":", color=BLACK, label="theorem 4.4: proportional, or above")
        ax.set(title=f"d' = {dimension}", xlabel="n^(1 / (2 d'))")
    return common_legend(figure, axes, 4)


def found(frame: pd.DataFrame) -> str:
    """Say how the eigenvalues fall."""
    n, d = int(frame["n"].max()), 4
    width = int(frame["width"].dropna().iloc[0])
    nontrivial = next(
        size
        for size in (10**k for k in range(1, 30))
        if bounds.small_width_bound(size, size, 2) < 1e-3
    )
    return (
        f"Finite networks have m = {width:,}. Theorem F.8 with all constants 1 is "
        f"{number(bounds.small_width_bound(n, width, d))} at n = {n}, d' = {d}, and F.9 "
        f"{number(bounds.large_width_bound(n, width, d))}: neither says anything at these sizes. "
        f"With d' = 2 and m = n, F.8 is below 0.001 from about n = {nontrivial:.0e} on."
    )


def tabulate(frame: pd.DataFrame) -> Rows:
    """Eigenvalues at some n."""
    rows = means(frame)
    sizes = [n for n in (16, 64, 128) if n in set(rows["n"])]
    for (activation, dimension), values in rows.groupby(["activation", "dimension"], sort=False):
        by_size = values.set_index("n")
        line = {"activation": str(activation), "d'": str(dimension)}
        for n in sizes:
            for column, name in (("smallest", "min"), ("at_index", "index ceil(n / d')")):
                log = float(by_size[column].loc[n])
                line[f"{name}, n = {n}"] = "rounding" if math.isnan(log) else number(math.exp(-log))
        yield line


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    rows, judged = means(frame), {}
    for name, columns in CLAIMED.items():
        ratios = rows[list(columns)].div(rows["exponent"], axis=0)
        series = ratios.groupby([rows["activation"], rows["dimension"]])
        first, last = (
            pd.concat([ends[column] for column in columns])
            for ends in (series.first(), series.last())
        )
        grows = last > first.clip(lower=0)
        judged[name] = Judged(
            verdict=Verdict.each(grows),
            result=f"-log(lambda) over n^(1/(2 d')) grows in {grows.sum()} of {len(grows)} series, "
            f"at last {span(last, number)}.",
        )
    return judged


EXPERIMENT = Experiment(whole(measure), found, tabulate, draw=draw, judge=judge)
