"""Finite gates against the kernel of infinitely many, and the smallest eigenvalue lambda(X).

m inputs on the unit sphere of R^d, k Gaussian filters, hard gates. Left: ||K/k - kappa||_F against
its root mean square, sqrt(sum p (1 - p) <x, x'>^2 / k), p the probability that a filter is open on
both inputs (not in the paper; derived here). Right: lambda_min(K/k), its limit lambda(X), and the
width of lemma 1 for a failure of 1 %.

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, lemma 1.
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
    """Measure finite gates at several widths."""
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


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the two panels."""
    figure, (distance, eigenvalue) = subplots((8.4, 3.6), 1, 2)
    m, d = int(frame["m"].iloc[0]), int(frame["d"].iloc[0])
    expected = frame.groupby("k")["expected_distance"].mean()
    distance.plot(expected.index, expected, "--", color=BLACK, label="expected, order 1/sqrt(k)")
    distance.plot(frame["k"], frame["distance"], "o", color=BLUE, alpha=0.6, label="measured")
    distance.set(xscale="log", yscale="log", xlabel="filters k", ylabel="distance of K/k to kappa")
    limit = frame["limit"].mean()
    eigenvalue.axhline(limit, color=BLACK, linestyle="--", label="lambda(X)")
    eigenvalue.axhline(limit / 2, color=GREY, linestyle=":", label="lambda(X) / 2")
    eigenvalue.axvline(m / d, color=ORANGE, linestyle="-.", label="k = m/d")
    label = "lemma 1: lambda(X) / 2, 99 %"
    eigenvalue.axvline(frame["printed_width"].mean(), color=GREY, label=label)
    eigenvalue.plot(frame["k"], frame["eigenvalue"], "o", color=BLUE, alpha=0.6, label="measured")
    eigenvalue.set(xscale="log", xlabel="filters k", ylabel="smallest eigenvalue of K/k")
    distance.legend()
    eigenvalue.legend(loc="lower right", frameon=True, framealpha=1.0, edgecolor="none")
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say how far finite gates are from the limit."""
    m, d = int(frame["m"].iloc[0]), int(frame["d"].iloc[0])
    means = by_width(frame)
    half = means.index[means["eigenvalue"] >= means["limit"] / 2].min()
    ratios = means["distance"] / means["expected_distance"]
    wide = frame[frame["k"] >= frame["printed_width"]]
    return (
        f"m = {m} inputs on the sphere of R^{d}, mean of {frame['seed'].nunique()} draw(s).\n\n"
        f"- **From lemma 1's width on, k = {frame['printed_width'].mean():,.0f}, the smallest "
        f"eigenvalue of K/k is at least {(wide['eigenvalue'] / wide['limit']).min():.2f} "
        f"lambda(X) (1/2 is asked); half is reached at k = {half:.0f}, where m/d = {m / d:.0f}.** "
        "With the constant 6.518 that its matrix Chernoff bound needs in place of 8 the width is "
        f"{frame['sufficient_width'].mean():,.0f}.\n"
        "- K/k goes to kappa like 1/sqrt(k), with the constant of the theory: measured over "
        f"expected distance is {span(ratios, '.2f')}."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Distances and eigenvalues at some of the widths."""
    means = by_width(frame)
    return means.iloc[:: max(1, len(means) // 6)].reset_index()


def by_width(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the draws, for each width k."""
    return frame.groupby("k")[["distance", "expected_distance", "eigenvalue", "limit"]].mean()


def verdict(frame: pd.DataFrame, share: float = 0.5) -> Verdict:
    """Judge lemma 1 by the rule, with a share of lambda(X) that is reached at its width."""
    wide = frame[frame["k"] >= frame["printed_width"]]
    if wide.empty:
        return Verdict.UNTESTED
    return Verdict.of((wide["eigenvalue"] >= share * wide["limit"]).all())


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, draw)
