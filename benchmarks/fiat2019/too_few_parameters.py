"""The loss that is left with too few parameters, against 1 - kd/m; random-filter improvement.

m Gaussian inputs of dimension d, independent N(0, 1) targets, no bias units. All published sizes
with these kd/m: m in {1024, 768, 512, 256}, d and k in {32, 24, 16, 8}, one draw of each where 16
are published; means over equal kd/m. GaLU with hard gates by least squares; GaLU(512), the same
after 512 filters have been redrawn one at a time and kept where the loss does not rise (algorithm 1),
for m up to 512 here; ReLU networks by the published training, Adam, rate 0.001, batches of 128,
100,000 steps.

Source: Fiat, Malach, Shalev-Shwartz, theorem 1 and figure 2 of the submission of 2018; theorem 2
and figure 2 of arXiv:1906.05032 (2019). The values are those of the figure's file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.fiat2019.published_training import STEPS, squared_error, train_as_published
from benchmarks.fiat2019.search_procedures import improve_filters
from benchmarks.harness import Experiment, Run, Verdict, middle_of
from implicit_bias.gating import UnitGates
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, VERMILION
from implicit_bias.theory.galu_networks import GatedLayers
from implicit_bias.theory.gated_least_squares import (
    expected_loss,
    gated_features,
    least_squares,
)
from implicit_bias.validation import Array

IMPROVED = "GaLU(512)"
# kd/m, and the mean squared errors of the paper's figure 2.
PUBLISHED = {
    "share": (0.0625, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0),
    "ReLU": (0.915, 0.824, 0.641, 0.470, 0.325, 0.105, 0.010),
    "GaLU": (0.958, 0.877, 0.744, 0.625, 0.505, 0.256, 0.001),
    IMPROVED: (0.882, 0.771, 0.599, 0.463, 0.321, 0.124, 0.000),
}
SAMPLES, SIZES = (1024, 768, 512, 256), (32, 24, 16, 8)
PROPOSALS, PUBLISHED_REPEATS = 512, 16
# GaLU(512) for no more samples than these: its cost grows with the cube.
MOST_SEARCHED = 512


def cases(quick: bool) -> list[tuple[int, int, int]]:
    """Sizes (m, d, k) whose kd/m is one of the published shares in the table above."""
    if quick:
        return [(128, 8, round(share * 16)) for share in PUBLISHED["share"]]
    return [
        (m, d, k)
        for m, d, k in itertools.product(SAMPLES, SIZES, SIZES)
        if k * d / m in PUBLISHED["share"]
    ]


def relu_loss(X: Array, y: Array, width: int, seed: int, steps: int) -> float:
    """Mean squared error of a trained ReLU network."""
    network = GatedLayers([X.shape[1], width, 1], "relu", bias=False, seed=seed)
    train_as_published(network, X, y[:, None], "squared", steps=steps, seed=seed)
    return squared_error(network, X, y[:, None])


def measure(run: Run[Any]) -> Iterator[pd.DataFrame]:
    """Fit each size."""
    proposals, steps = (30, 500) if run.quick else (PROPOSALS, STEPS)
    frame = run.kept if "variance" in run.kept else pd.DataFrame()
    done = set() if frame.empty else set(zip(frame["m"], frame["d"], frame["k"], strict=True))
    for m, d, k in cases(run.quick):
        if (m, d, k) in done:
            continue
        rng = np.random.default_rng([m, d, k])
        X, y = rng.normal(size=(m, d)), rng.normal(size=m)
        gating = UnitGates(rng.normal(size=(k, d)), np.zeros(k), ">=")
        gates = gating.gates(X)
        found = least_squares(X, gates, y)
        shared = {"m": m, "d": d, "k": k, "share": k * d / m, "rank": found.rank}
        shared |= {"theory": expected_loss(found.rank, m), "variance": float(np.mean(y**2))}
        rows: list[dict[str, Any]] = [
            {"network": "GaLU", "loss": found.loss},
            {"network": "ReLU", "loss": relu_loss(X, y, k, 0, steps)},
        ]
        if m <= MOST_SEARCHED:
            start = process_time()
            search = improve_filters(gating, X, y, proposals=proposals, random_state=0)
            searched = process_time()
            np.linalg.pinv(gated_features(X, gates), rcond=1e-5) @ y
            rows.append(
                {
                    "network": IMPROVED,
                    "loss": search.losses[-1],
                    "proposals": proposals,
                    "accepted": int(np.sum(np.diff(search.losses) < 0)),
                    "seconds_a_proposal": (searched - start) / proposals,
                    "seconds_a_solve": process_time() - searched,
                }
            )
        frame = pd.concat([frame, pd.DataFrame([shared | row for row in rows])], ignore_index=True)
        run.say(f"m = {m}, d = {d}, k = {k}")
        yield frame


EXPERIMENT = Experiment(claim="", how="", measure=measure, found=lambda f: "", rule="", verdict=lambda f: Verdict.STANDS, tabulate=lambda f: f)
