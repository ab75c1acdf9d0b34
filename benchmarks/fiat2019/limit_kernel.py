"""Finite gates against the kernel of infinitely many, and the smallest eigenvalue lambda(X).

m inputs on the unit sphere of R^d, k Gaussian filters, hard gates. Left: ||K/k - kappa||_F against
its root mean square, sqrt(sum p (1 - p) <x, x'>^2 / k), p the probability that a filter is open on
both inputs (not in the paper; derived here). Middle: lambda_min(K/k), its limit lambda(X), and the
widths of lemma 1 for a failure of 1 %, with the printed constant 8 and with 6.518. Right: lambda(X)
and its lower bound sigma_min(X*X)^2/(2 pi), the middle step of lemma 2, for inputs of several
dimensions.

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, lemmas 1 and 2.
"""

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots
from benchmarks.fiat2019 import theorems_1_and_2
from benchmarks.fiat2019.constants import sphere
from benchmarks.harness import Experiment, Rows, Verdict, whole
from benchmarks.words import span
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels.least_squares import gated_gram
from implicit_bias.problem.gating import UnitGates
from implicit_bias.report.style import BLACK, BLUE, GREY, ORANGE


def measure(quick: bool) -> Rows:
    """Measure finite gates at several widths, and the eigenvalue at several dimensions."""
    m, d, seeds = (30, 10, 1) if quick else (200, 40, 3)
    widths = [2**i for i in range(2, 8 if quick else 16)]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X = sphere(m, d, rng)
        kappa, eigenvalue, sufficient = (
            galu.limit_kernel(X),
            galu.smallest_eigenvalue(X),
            theorems_1_and_2.sufficient_width(X),
        )
        printed = theorems_1_and_2.sufficient_width(X, constant=theorems_1_and_2.PUBLISHED_CHERNOFF)
        inner = X @ X.T
        both = np.divide(kappa, inner, out=np.zeros_like(kappa), where=inner != 0)
        spread = np.sqrt(np.sum(both * (1 - both) * inner**2))
        for k in widths:
            gates = UnitGates(rng.normal(size=(k, d)), np.zeros(k)).gates(X)
            gram = gated_gram(X, gates) / k
            yield {
                "part": "width",
                "m": m,
                "d": d,
                "seed": seed,
                "k": k,
                "distance": np.linalg.norm(gram - kappa),
                "expected_distance": spread / np.sqrt(k),
                "eigenvalue": max(np.linalg.eigvalsh(gram)[0], 0.0),
                "limit": eigenvalue,
                "sufficient_width": sufficient,
                "printed_width": printed,
            }
        for dimension in (5, 10) if quick else (10, 20, 40, 80, 160, 320):
            X = sphere(m, dimension, rng)
            yield {
                "part": "dimension",
                "m": m,
                "d": dimension,
                "seed": seed,
                "eigenvalue": galu.smallest_eigenvalue(X),
                "khatri_rao": theorems_1_and_2.khatri_rao_bound(X),
            }


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the three panels."""
    figure, (distance, eigenvalue, dimension) = subplots((10, 3.4), 1, 3)
    widths, dimensions = (frame[frame["part"] == part] for part in ("width", "dimension"))
    m, d = int(widths["m"].iloc[0]), int(widths["d"].iloc[0])
    expected = widths.groupby("k")["expected_distance"].mean()
    distance.plot(expected.index, expected, "--", color=BLACK, label="expected, order 1/sqrt(k)")
    distance.plot(widths["k"], widths["distance"], "o", color=BLUE, alpha=0.6, label="measured")
    distance.set(xscale="log", yscale="log", xlabel="filters k", ylabel="distance of K/k to kappa")
    limit = widths["limit"].mean()
    eigenvalue.axhline(limit, color=BLACK, linestyle="--", label="lambda(X)")
    eigenvalue.axhline(limit / 2, color=GREY, linestyle=":", label="lambda(X) / 2")
    eigenvalue.axvline(m / d, color=ORANGE, linestyle="-.", label="k = m/d")
    eigenvalue.axvline(
        widths["printed_width"].mean(), color=GREY, label="lemma 1: lambda(X) / 2, 99 %"
    )
    eigenvalue.plot(widths["k"], widths["eigenvalue"], "o", color=BLUE, alpha=0.6, label="measured")
    eigenvalue.set(xscale="log", xlabel="filters k", ylabel="smallest eigenvalue of K/k")
    means = dimensions.groupby("d")[["eigenvalue", "khatri_rao"]].mean()
    dimension.plot(means.index, means["khatri_rao"], ":", color=ORANGE, label="lemma 2's step")
    dimension.plot(means.index, means["eigenvalue"], "o", color=BLUE, label="lambda(X)")
    dimension.set(xscale="log", xlabel=f"dimension d (m = {m})", ylabel="smallest eigenvalue")
    distance.legend()
    eigenvalue.set_ylim(bottom=-0.09)  # room for the legend below the marks
    eigenvalue.legend(loc="lower right", frameon=True, framealpha=1.0, edgecolor="none")
    dimension.legend()
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say how far finite gates are from the limit, and the bound from the eigenvalue."""
    widths, dimensions = (frame[frame["part"] == part] for part in ("width", "dimension"))
    m, d = int(widths["m"].iloc[0]), int(widths["d"].iloc[0])
    means = by_width(frame)
    half = means.index[means["eigenvalue"] >= means["limit"] / 2].min()
    ratios = means["distance"] / means["expected_distance"]
    wide = widths[widths["k"] >= widths["printed_width"]]
    bounds = dimensions.groupby("d")[["eigenvalue", "khatri_rao"]].mean()
    lines = "; ".join(
        f"d = {d}: {row.eigenvalue:.3f}, {row.khatri_rao:.3f}" for d, row in bounds.iterrows()
    )
    return (
        f"m = {m} inputs on the sphere of R^{d}, mean of {widths['seed'].nunique()} draw(s).\n\n"
        "- K/k goes to kappa like 1/sqrt(k), with the constant of the theory: measured over "
        f"expected distance is {span(ratios, '.2f')}.\n"
        f"- **From lemma 1's width on, k = {widths['printed_width'].mean():,.0f}, the smallest "
        f"eigenvalue of K/k is at least {(wide['eigenvalue'] / wide['limit']).min():.2f} "
        f"lambda(X) (1/2 is asked); half is reached at k = {half:.0f}, where m/d = {m / d:.0f}.** "
        "With the constant 6.518 that its matrix Chernoff bound needs in place of 8 the width is "
        f"{widths['sufficient_width'].mean():,.0f}.\n"
        f"- lambda(X), and lemma 2's step, m = {m}: {lines}. Lemma 2's step keeps one term of the "
        "series of kappa. It is 0 for m > d(d+1)/2, which m <= c2 d^2 excludes."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Distances and eigenvalues at some of the widths."""
    means = by_width(frame)
    shown = means.iloc[:: max(1, len(means) // 6)]
    rows = {
        "distance of K/k": shown["distance"].map("{:.3f}".format),
        "expected": shown["expected_distance"].map("{:.3f}".format),
        "smallest eigenvalue of K/k": shown["eigenvalue"].map("{:.4f}".format),
        "lambda(X)": shown["limit"].map("{:.4f}".format),
    }
    return pd.DataFrame(rows).reset_index().astype(str)


def by_width(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the draws, for each width k."""
    widths = frame[frame["part"] == "width"].astype({"k": int})
    return widths.groupby("k")[["distance", "expected_distance", "eigenvalue", "limit"]].mean()


def verdict(frame: pd.DataFrame, off: float = 0.2) -> Verdict:
    """Judge the claim by the rule."""
    means = by_width(frame)
    ratios = means["distance"] / means["expected_distance"]
    last = means.iloc[-1]
    converges = (
        bool(ratios.between(1 - off, 1 + off).all()) and last["eigenvalue"] > 0.95 * last["limit"]
    )
    dimensions = frame[frame["part"] == "dimension"]
    below = dimensions["khatri_rao"].le(dimensions["eigenvalue"]).all()
    widths = frame[frame["part"] == "width"]
    wide = widths[widths["k"] >= widths["printed_width"]]
    half = len(wide) > 0 and bool((2 * wide["eigenvalue"] >= wide["limit"]).all())
    return Verdict.of(converges and below and half)


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, draw)
