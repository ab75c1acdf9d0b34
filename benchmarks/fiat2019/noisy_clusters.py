"""Clustered data with noisy labels: training and test error of GaLU and ReLU networks.

n = 30 Gaussian centres in R^30, inputs at a centre plus noise of standard deviation 0.1; 1,000
training and 9,000 test samples. Regression: the target of a centre is N(0, 1), the noise has
standard deviation s; squared loss. Classification: the label of a centre is a fair coin, flipped
with probability p = s/2; hinge loss. k = 30 units, hard gates, readout trained too, no bias units.
The published training: Adam, rate 0.001 throughout, batches of 128 cut from permutations, 100,000
steps; eleven noises and 16 repeats, as published. The best possible error is s^2, or p.

Source: Fiat, Malach, Shalev-Shwartz, submission of 2018, figure 3; the values are those of the
authors' file of results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.fiat2019.published_training import STEPS, LossName, outputs_of, train_as_published
from benchmarks.summaries import low_high
from implicit_bias.base.validation import Array

COST = 180

NETWORKS: dict[str, Kind] = {"GaLU": "hard", "ReLU": "relu"}
TASKS: dict[str, LossName] = {"regression": "squared", "classification": "hinge"}
REPEATS = 16
# The noise s, and the published test errors: mean squared errors, or shares misclassified.
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
PUBLISHED = {
    ("regression", "ReLU"): (
        *(0.00235, 0.0271, 0.099, 0.216, 0.373, 0.57),
        *(0.798, 1.07, 1.4, 1.75, 2.14),
    ),
    ("regression", "GaLU"): (
        *(0.00394, 0.0457, 0.164, 0.35, 0.6, 0.908),
        *(1.27, 1.69, 2.16, 2.68, 3.26),
    ),
    ("classification", "ReLU"): (
        *(0.0, 0.0928, 0.186, 0.267, 0.333, 0.389),
        *(0.43, 0.458, 0.483, 0.494, 0.501),
    ),
    ("classification", "GaLU"): (
        *(4.86e-05, 0.107, 0.204, 0.28, 0.345, 0.394),
        *(0.43, 0.462, 0.482, 0.496, 0.502),
    ),
}


def measure(quick: bool) -> Iterator[Part]:
    """Train both networks at each noise; a repeat more at a time."""
    size = {"m": 1000, "tests": 9000, "steps": STEPS}
    if quick:
        size = {"m": 100, "tests": 500, "steps": 2000}
    repeats = 1 if quick else REPEATS
    for seed, task, noise, network in itertools.product(range(repeats), TASKS, NOISE, NETWORKS):
        yield part(trained, task=task, noise=noise, network=network, seed=seed, **size)


def trained(
    task: str, noise: float, network: str, seed: int, m: int, tests: int, steps: int
) -> list[dict[str, Any]]:
    """Train on m samples; errors of both samples after a tenth, half and all steps."""
    rng = np.random.default_rng([seed, round(10 * noise)])
    X, y = clusters(m + tests, 30, 30, noise, task, rng)
    layers = GatedLayers([30, 30, 1], NETWORKS[network], bias=False, seed=seed)
    targets = y[:, None]
    rows = list[dict[str, Any]]()

    def record(step: int) -> bool:
        if step in (steps // 10, steps // 2, steps):
            outputs = outputs_of(layers, X)
            for sample, chosen in (("train", slice(0, m)), ("test", slice(m, None))):
                found = errors(task, outputs[chosen], targets[chosen])
                rows.append({"sample": sample, "step": step, **found})
        return False

    train_as_published(
        layers, X[:m], targets[:m], TASKS[task], steps=steps, watch=record, seed=seed
    )
    return rows


def clusters(
    m: int, d: int, centres: int, noise: float, task: str, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw m inputs (m, d) around the centres and their noisy targets (m,)."""
    places = rng.normal(size=(centres, d))
    of_centre = rng.normal(size=centres)
    which = rng.integers(centres, size=m)
    X = places[which] + 0.1 * rng.normal(size=(m, d))
    if task == "regression":
        return X, of_centre[which] + noise * rng.normal(size=m)
    flipped = rng.random(m) < noise / 2
    return X, np.sign(of_centre[which]) * np.where(flipped, -1.0, 1.0)


def errors(task: str, outputs: Array, targets: Array) -> dict[str, float]:
    """Mean squared error; or share of wrong signs, and mean hinge loss. Arrays of shape (n, 1)."""
    if task == "regression":
        return {"error": float(np.mean((outputs - targets) ** 2)), "hinge": np.nan}
    margins = outputs * targets
    hinge = np.maximum(0.0, 1.0 - margins)
    return {"error": float(np.mean(margins <= 0)), "hinge": float(hinge.mean())}


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Compare the networks with each other, and their errors with the published ones."""
    noisy = frame[frame["noise"] > 0]
    last = noisy[noisy["step"] == noisy["step"].max()]
    cell = ["task", "network", "noise"]
    means = last.groupby([*cell, "sample"])[["error", "hinge"]].mean()
    train = means["error"].xs("train", level="sample")
    test = means["error"].xs("test", level="sample")
    hinge = means["hinge"].xs("test", level="sample")["classification"].unstack("network")
    theirs = published()[test.index]
    ours = ratios(test)
    later = noisy[(noisy["task"] == "regression") & (noisy["sample"] == "test")]
    steps = later.groupby(["network", "noise", "step"])["error"].mean().unstack("step")
    most = max(NOISE)
    return {
        "repeats": frame["seed"].nunique(),
        "galu_noisiest": test["regression", "GaLU", most],
        "relu_noisiest": test["regression", "ReLU", most],
        "published_galu_noisiest": theirs["regression", "GaLU", most],
        "published_relu_noisiest": theirs["regression", "ReLU", most],
        "galu_flipped": test["classification", "GaLU", 0.3],
        "relu_flipped": test["classification", "ReLU", 0.3],
        "published_galu_flipped": theirs["classification", "GaLU", 0.3],
        "published_relu_flipped": theirs["classification", "ReLU", 0.3],
        "training_share": (train / test).max(),
        "off_published": (test / theirs - 1).abs().max(),
        **low_high("regression", ours["regression"]),
        **low_high("classification", ours["classification"]),
        **low_high("published_regression", ratios(theirs)["regression"]),
        **low_high("published_classification", ratios(theirs)["classification"]),
        **low_high("hinge", hinge["GaLU"] / hinge["ReLU"]),
        **low_high("steps", steps.iloc[:, -1] / steps.iloc[:, 0]),
    }


def published() -> pd.Series[float]:
    """Return the published test errors by task, network and noise."""
    found = {
        (task, network, noise): error
        for (task, network), errors in PUBLISHED.items()
        for noise, error in zip(NOISE, errors, strict=True)
    }
    return pd.Series(found).rename_axis(["task", "network", "noise"])


def ratios(errors: pd.Series[float]) -> pd.DataFrame:
    """Error of GaLU over that of ReLU by noise, a column a task."""
    both = errors.unstack("network")
    return (both["GaLU"] / both["ReLU"]).unstack("task")
