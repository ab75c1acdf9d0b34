"""Generalization gap of least-squares GaLU against the 1- and 2-norm of its coefficients.

Regression on clusters, as in noisy_clusters.py, with k = 30 hard gates fitted by least squares:
900 coefficients, 1,000 training and 4,000 test samples; 6 draws of inputs and filters, 4 of the
noise for each. Theory (not in the paper; derived here), given inputs and filters: of the noise
alone, of standard deviation sigma,

    E ||W||_2^2 = ||Phi^+ f*||^2 + sigma^2 tr(K^+),      E training loss = a + sigma^2 (1 - r/m),
    E test loss = b + sigma^2 (1 + tr(C (Phi'Phi)^+)),   C = E phi(x) phi(x)' of a test sample,

so the mean gap is linear in the mean squared 2-norm, with slope
(r/m + tr(C (Phi'Phi)^+)) / tr(K^+).

Source: Fiat, Malach, Shalev-Shwartz, submission of 2018, 4.2.1 and figure 4; the published values
are those of the authors' file.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.fiat2019.noisy_clusters import clusters
from benchmarks.summaries import low_high
from implicit_bias.base.validation import Array
from implicit_bias.kernels.least_squares import gated_gram, least_squares, positive_eigen
from implicit_bias.problem import decision
from implicit_bias.problem.gating import UnitGates

COST = 1

NOISE = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# Squared 2-norm of the published figure 4 at these noises.
PUBLISHED = (8.98, 575, 2280, 5120, 9100, 14200)
NORMS = ["two_norm", "one_norm"]


def measure(quick: bool) -> Iterator[Part]:
    """Fit some draws of the noise for each draw of inputs and filters."""
    sizes = {"m": 120, "tests": 400, "k": 10} if quick else {"m": 1000, "tests": 4000, "k": 30}
    for seed in range(1 if quick else 6):
        yield part(fits, seed=seed, draws=2 if quick else 4, **sizes)


def fits(seed: int, draws: int, m: int, tests: int, k: int) -> Iterator[dict[str, Any]]:
    """Fit the first m samples at each noise: squared norms of the coefficients, and the gap."""
    d = k
    rng = np.random.default_rng(seed)
    gating = UnitGates(rng.normal(size=(k, d)), np.zeros(k))
    X, clean = clusters(m + tests, d, 30, 0.0, "regression", rng)
    gates = gating.gates(X)
    start = fitted(X, gates, clean, m)
    slope = predicted_slope(X[:m], gates[:m], X[m:], gates[m:])
    for noise, draw in itertools.product(NOISE, range(draws)):
        y = clean + noise * rng.normal(size=m + tests)
        row = fitted(X, gates, y, m)
        theory = start["gap"] + slope * (row["two_norm"] - start["two_norm"])
        yield {"noise": noise, "draw": draw, **row, "theory": theory}


def fitted(X: Array, gates: Array, y: Array, m: int) -> dict[str, float]:
    """Fit the first m samples: squared norms, and test less training loss."""
    coef = least_squares(X[:m], gates[:m], y[:m]).coef
    square = (decision(X, gates, coef) - y) ** 2
    return {
        "two_norm": float(np.sum(coef**2)),
        "one_norm": float(np.abs(coef).sum() ** 2),
        "gap": float(np.mean(square[m:]) - np.mean(square[:m])),
    }


def predicted_slope(X: Array, gates: Array, test_X: Array, test_gates: Array) -> float:
    """Slope of the gap in the squared 2-norm: (r/m + tr(C (Phi'Phi)^+)) / tr(K^+)."""
    values, vectors = positive_eigen(gated_gram(X, gates))
    cross = (test_X @ X.T) * (test_gates @ gates.T)  # phi(x)' Phi', (n', m)
    # (Phi'Phi)^+ = Phi' (K^+)^2 Phi.
    test_variance = float(np.mean(np.sum((cross @ vectors / values) ** 2, axis=1)))
    return (len(values) / len(X) + test_variance) / float(np.sum(1 / values))


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say how nearly the gap is proportional to each squared norm, in each draw of the inputs."""
    noisy = frame[frame["noise"] > 0]
    means = noisy.groupby(["seed", "noise"])[[*NORMS, "gap", "theory"]].mean()
    slopes = means[NORMS].rdiv(means["gap"], axis=0)
    off = (slopes / slopes.groupby("seed").transform("mean") - 1).abs().max()
    correlations = means.groupby("seed")[[*NORMS, "gap"]].corr()["gap"].unstack()[NORMS]
    theirs = pd.Series(PUBLISHED, NOISE)[list(means.index.unique("noise"))]
    ratio = means["two_norm"].groupby("noise").mean() / theirs
    return {
        "draws": frame["seed"].nunique(),
        "two_norm_off": off["two_norm"],
        "one_norm_off": off["one_norm"],
        "correlation": correlations.to_numpy().min(),
        "theory_off": (means["gap"] / means["theory"] - 1).abs().max(),
        **low_high("norm_over_published", ratio),
    }
