"""Where both networks succeed and where both fail: separable data and full parity in d = 100.

Separable: x ~ N(0, I_100), w uniform on the sphere, labels sign<w, x>, samples of margin |<w, x>|
at least 0.01. Parity: x uniform on {-1, 1}^100, labels the product of all bits. 50,000 training and
10,000 test samples, hard gates, readout trained too, no bias units, by the published training
(Adam, rate 0.001, batches of 128, 100,000 steps), mean of the published 3 repeats. The paper says
neither the loss nor the widths: the hinge loss and k = 16 and 64 are ours.

Beside them the root mean square correlation of the parity of 100 bits with a gated coordinate: the
gradient at initialisation, for both networks, of inputs x / sqrt d in the unit ball, where theorem
4 applies. (Not in the paper; derived here.)

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, figure 4.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.effects import Effect
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.fiat2019.parity_correlation import parity_correlation
from benchmarks.fiat2019.published_training import STEPS, outputs_of, train_as_published
from benchmarks.summaries import low_high
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import normalise

COST = 15

NETWORKS: dict[str, Kind] = {"GaLU": "hard", "ReLU": "relu"}
MARGIN = 0.01
REPEATS = 3
WIDTHS = (16, 64)


def measure(quick: bool) -> Iterator[Part]:
    """Train both networks on both tasks; and the first gradient of a parity."""
    size = {"d": 100, "m": 50_000, "tests": 10_000, "steps": STEPS}
    if quick:
        size = {"d": 20, "m": 500, "tests": 500, "steps": 1000}
    repeats = 1 if quick else REPEATS
    yield part(first_gradient, bits=size["d"])
    for seed, width, task, network in itertools.product(range(repeats), WIDTHS, TASKS, NETWORKS):
        yield part(trained, seed=seed, width=width, task=task, network=network, **size)


def first_gradient(bits: int) -> Iterator[dict[str, Any]]:
    """Root mean square correlation of a parity with a gated coordinate."""
    yield {"correlation": parity_correlation(bits)}


def trained(
    seed: int, width: int, task: str, network: str, d: int, m: int, tests: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Share of the training and of the test samples that a trained network misclassifies."""
    X, y = TASKS[task](m + tests, d, np.random.default_rng(seed))
    layers = GatedLayers([d, width, 1], NETWORKS[network], bias=False, seed=seed)
    train_as_published(layers, X[:m], y[:m, None], "hinge", steps=steps, seed=seed)
    wrong = outputs_of(layers, X)[:, 0] * y <= 0
    yield {"train_error": float(wrong[:m].mean()), "error": float(wrong[m:].mean())}


def separable(n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw n Gaussian inputs (n, d) of margin at least 0.01, and their labels (n,)."""
    w = normalise(rng.normal(size=(1, d)))[0]
    X = rng.normal(size=(2 * n, d))
    X = X[np.abs(X @ w) >= MARGIN][:n]  # a share of about 0.99 is kept
    return X, np.sign(X @ w)


def parity(n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw n inputs (n, d) of bits -1 and 1, and their parities (n,)."""
    X = rng.choice([-1.0, 1.0], size=(n, d))
    return X, X.prod(axis=1)


TASKS = {"separable": separable, "parity": parity}


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Test errors by task, network and width."""
    errors = frame.dropna(subset="error").astype({"width": int})
    parity = errors[errors["task"] == "parity"]
    separable = errors[errors["task"] == "separable"]
    found: dict[str, Any] = {
        "repeats": errors["seed"].nunique(),
        "separable_worst": separable["error"].max(),
        "parity_train": parity["train_error"].min(),
        "correlation": frame["correlation"].max(),
        **low_high("parity", parity["error"]),
    }
    for width, rows in separable.groupby("width"):
        by_seed = rows.pivot_table(index="seed", columns="network", values="error")
        found[f"galu_{width}"] = by_seed["GaLU"].mean()
        found[f"relu_{width}"] = by_seed["ReLU"].mean()
        found[f"lead_{width}"] = Effect.of(by_seed["GaLU"] - by_seed["ReLU"])
    return found
