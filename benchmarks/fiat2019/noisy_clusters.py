"""Clustered data with noisy labels: training and test error of GaLU and ReLU networks.

n = 30 Gaussian centres in R^30, inputs at a centre plus noise of standard deviation 0.1; 1,000
training and 9,000 test samples. Regression: the target of a centre is N(0, 1), the noise has
standard deviation s; squared loss. Classification: the label of a centre is a fair coin, flipped
with probability p; hinge loss. k = 30 units, hard gates, readout trained too, no bias units. The
published training: Adam, rate 0.001 throughout, batches of 128 cut from permutations, 100,000
steps. Smaller than published: four noises in place of eleven, and fewer repeats than 16. The best
possible: s^2 and p.

Source: Fiat, Malach, Shalev-Shwartz, submission of 2018, figure 3; the values are those of the
figure's file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.fiat2019.published_training import (
    STEPS,
    LossName,
    outputs_of,
    train_as_published,
)
from benchmarks.harness import Experiment, Run, Verdict
from implicit_bias.theory.galu_networks import GatedLayers, Kind
from implicit_bias.training.losses import hinge
from implicit_bias.validation import Array

NETWORKS: dict[str, Kind] = {"GaLU": "hard", "ReLU": "relu"}
REPEATS, PUBLISHED_REPEATS = 5, 16
# Noise: s, or twice the probability of a flip; and figure 3: mean squared errors, and shares of
# samples that are misclassified, then mean hinge losses.
NOISE = (0.0, 0.3, 0.6, 1.0)
PUBLISHED = {
    ("regression", "ReLU", "train"): (0.0002, 0.0204, 0.0898, 0.258),
    ("regression", "ReLU", "test"): (0.0024, 0.216, 0.798, 2.14),
    ("regression", "GaLU", "train"): (0.0002, 0.0217, 0.0891, 0.259),
    ("regression", "GaLU", "test"): (0.0039, 0.350, 1.27, 3.26),
    ("classification", "ReLU", "train"): (0.0, 0.0025, 0.0288, 0.0486),
    ("classification", "ReLU", "test"): (0.0, 0.267, 0.430, 0.501),
    ("classification", "GaLU", "train"): (0.0, 0.0009, 0.0221, 0.0439),
    ("classification", "GaLU", "test"): (0.0, 0.280, 0.430, 0.502),
}
PUBLISHED_HINGE = {
    ("ReLU", "test"): (np.nan, 0.904, 1.36, 1.55),
    ("GaLU", "test"): (np.nan, 1.34, 1.85, 2.01),
}
UNPUBLISHED = (np.nan,) * len(NOISE)
TASKS: dict[str, LossName] = {"regression": "squared", "classification": "hinge"}


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
        return {"error": float(np.mean((outputs - targets) ** 2))}
    margins = outputs * targets
    return {
        "error": float(np.mean(margins <= 0)),
        "hinge": float(hinge(torch.tensor(margins)).mean()),
    }


def squared_norm(network: GatedLayers) -> float:
    """||w||^2 of the coefficients a_j w_j, the hidden weights with the readout absorbed."""
    hidden, readout = (layer.weight.detach().double() for layer in network.layers)
    return float((readout.square().sum(dim=0) * hidden.square().sum(dim=1)).sum())


def trained(
    network: GatedLayers, task: str, X: Array, y: Array, *, m: int, steps: int, seed: int
) -> list[dict[str, Any]]:
    """Train on the first m samples; errors of both parts after a tenth, half and all steps."""
    targets, rows = y[:, None], []

    def record(step: int) -> bool:
        if step in (steps // 10, steps // 2, steps):
            outputs = outputs_of(network, X)
            for part, rows_of in (("train", slice(0, m)), ("test", slice(m, None))):
                found = errors(task, outputs[rows_of], targets[rows_of])
                size = squared_norm(network)
                rows.append({"part": part, "steps": step, "squared_norm": size, **found})
        return False

    train_as_published(
        network, X[:m], targets[:m], TASKS[task], steps=steps, watch=record, seed=seed
    )
    return rows


def measure(run: Run[Any]) -> Iterator[pd.DataFrame]:
    """Train both networks at each noise; a repeat more at a time."""
    m, tests, steps = (100, 500, 2000) if run.quick else (1000, 9000, STEPS)
    frame = run.kept if "squared_norm" in run.kept else pd.DataFrame()
    done = set() if frame.empty else set(frame["seed"])
    for seed in sorted(set(range(1 if run.quick else REPEATS)) - done):
        rows: list[dict[str, Any]] = []
        for task, (i, noise), (name, kind) in itertools.product(
            TASKS, enumerate(NOISE), NETWORKS.items()
        ):
            rng = np.random.default_rng([seed, i])
            X, y = clusters(m + tests, 30, 30, noise, task, rng)
            network = GatedLayers([30, 30, 1], kind, bias=False, seed=seed)
            best = noise**2 if task == "regression" else noise / 2
            shared = {"task": task, "noise": noise, "seed": seed, "network": name, "m": m}
            rows += [
                {**shared, "best": best, **row}
                for row in trained(network, task, X, y, m=m, steps=steps, seed=seed)
            ]
        frame = pd.concat([frame, pd.DataFrame(rows)], ignore_index=True)
        run.say(f"repeat {seed} is done")
        yield frame


EXPERIMENT = Experiment(claim="", how="", measure=measure, found=lambda f: "", rule="", verdict=lambda f: Verdict.STANDS, tabulate=lambda f: f)
