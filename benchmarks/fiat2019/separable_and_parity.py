"""Where both networks succeed and where both fail: separable data and full parity in d = 100.

Left: x ~ N(0, I_100), w uniform on the sphere, labels sign<w, x>, samples of margin |<w, x>| at
least 0.01. Middle: x uniform on {-1, 1}^100, labels the product of all bits. 50,000 training and
10,000 test samples, hard gates, readout trained too, no bias units, by the published training
(Adam, rate 0.001, batches of 128, 100,000 steps). The paper says neither the loss nor the widths:
the hinge loss and k = 16 and 64 are ours; it averages 3 repeats. Right: the root mean square
correlation of the parity of d bits with a gated coordinate (the gradient at initialisation, for
both networks), against a Monte Carlo mean over filters; for odd d it is 0. (Not in the paper;
derived here.)

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, figure 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.fiat2019.parity_correlation import parity_correlation
from benchmarks.fiat2019.published_training import STEPS, outputs_of, train_as_published
from benchmarks.harness import Experiment, Run, Verdict
from implicit_bias.gating import UnitGates
from implicit_bias.report.style import BLUE, VERMILION
from implicit_bias.theory.galu_networks import GatedLayers, Kind
from implicit_bias.theory.gradient_gram import normalise
from implicit_bias.validation import Array

NETWORKS: dict[str, Kind] = {"GaLU": "hard", "ReLU": "relu"}
COLOURS = {"GaLU": BLUE, "ReLU": VERMILION}
LARGEST_CUBE = 12
MARGIN = 0.01
REPEATS, PUBLISHED_REPEATS = 2, 3
WIDTHS = (16, 64)


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


def monte_carlo(d: int, filters: int) -> float:
    """Root mean square correlation over random filters, exact in the 2^d inputs."""
    cube = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    gates = UnitGates.random(
        cube, filters, threshold="zero", firing=">", always_on=False, random_state=d
    ).gates(cube)
    correlations = (cube.prod(axis=1)[:, None] * gates).T @ cube / len(cube)
    return float(np.sqrt(np.mean(correlations**2)))


def measure(run: Run[Any]) -> Iterator[pd.DataFrame]:
    """Measure test errors by task and width, and correlations by dimension."""
    d, m, tests, steps = (20, 500, 500, 1000) if run.quick else (100, 50_000, 10_000, STEPS)
    largest, filters = (6, 200) if run.quick else (LARGEST_CUBE, 2000)
    frame = run.kept if "train_error" in run.kept else pd.DataFrame()
    if frame.empty:
        rows: list[dict[str, Any]] = []
        for bits in range(2, 20 if run.quick else 101, 2):
            row = {"part": "correlation", "d": bits, "correlation": parity_correlation(bits)}
            rows.append(
                row | {"measured": monte_carlo(bits, filters) if bits <= largest else np.nan}
            )
        frame = pd.DataFrame(rows)
    done = set(frame["seed"].dropna()) if "seed" in frame else set()
    for seed in sorted(set(range(1 if run.quick else REPEATS)) - done):
        rows = []
        for (task, draw_data), width, (name, kind) in itertools.product(
            TASKS.items(), WIDTHS, NETWORKS.items()
        ):
            X, y = draw_data(m + tests, d, np.random.default_rng(seed))
            network = GatedLayers([d, width, 1], kind, bias=False, seed=seed)
            train_as_published(network, X[:m], y[:m, None], "hinge", steps=steps, seed=seed)
            wrong = outputs_of(network, X)[:, 0] * y <= 0
            row = {"part": "error", "d": d, "m": m, "seed": seed, "task": task, "network": name}
            row |= {"width": width, "steps": steps}
            row |= {"train_error": float(wrong[:m].mean()), "error": float(wrong[m:].mean())}
            rows.append(row)
        frame = pd.concat([frame, pd.DataFrame(rows)], ignore_index=True)
        run.say(f"repeat {seed} is done")
        yield frame


EXPERIMENT = Experiment(
    claim="",
    how="",
    measure=measure,
    found=lambda f: "",
    rule="",
    verdict=lambda f: Verdict.STANDS,
    tabulate=lambda f: f,
)
