"""When has a ReLU network finished choosing its contexts? SVM-LC along its training.

At chosen steps the gates of the network are taken as they are then, and the SVM with these gates is
solved. Its certified optimum, its error and its disagreement with the network say how much of the
network's generalization lies in the contexts that it has learned by then, and how much in the
weights on top of them. The networks have 50 units and N = 500, 1,000 or 2,000 samples of MNIST, ten
starts each.

======================  ========================================================================
step                    when the gates were taken
gates_left              share of the gates of training samples that differ from the last ones
network_error, error    of the network at that step, and of SVM-LC; nan without a predictor
optimum, gap            certified lower bound on the norm of SVM-LC, and relative gap
dropped                 training samples that no coefficients classify together with the others
disagreement            with the network of that step
disagreement_at_end     with the trained network
======================  ========================================================================

Source: Lippl, Abbott, Chung (2022), section 5.2, for SVM-LC; the trajectory is not in the paper.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.bench import Part, part
from implicit_bias.estimators.networks import ReLUClassifier
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data, load_data
from implicit_bias.runs.models import ModelFactory

COST = 5
STEPS = (0, 10, 30, 100, 300, 1000, 3200)
TRAIN_SIZES, SEEDS = (500, 1000, 2000), 10
KEYS = ["train_size", "seed"]


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each network."""
    if quick:
        for seed in (1, 2):
            setting = {"dataset": "digits", "units": 10, "steps": 100, "train_size": 100}
            yield part(network, seed=seed, **setting)
        return
    for train_size in TRAIN_SIZES:
        for seed in range(1, SEEDS + 1):
            setting = {"dataset": "mnist", "units": 50, "steps": 3200, "train_size": train_size}
            yield part(network, seed=seed, **setting)


def network(**setting: Any) -> Iterator[dict[str, Any]]:
    """Train a network, and solve SVM-LC with its gates at some steps."""
    config = RunConfig(**setting)
    return context_trajectory(config, load_data(config))


def context_trajectory(
    config: RunConfig, data: Data, steps: tuple[int, ...] = STEPS
) -> Iterator[dict[str, Any]]:
    """Train the ``gd-relu`` of a configuration and solve SVM-LC with its gates at some steps.

    Parameters
    ----------
    config : RunConfig
        Data, width, seeds, training and solver.
    data : Data
        From `load_data`.
    steps : tuple of int
        When to take the gates; those beyond ``config.steps`` are left out.

    Yields
    ------
    dict
        A row of the table.
    """
    train, validation = data.parts.train, data.parts.validation
    factory = ModelFactory(replace(config, on_failure="drop"), data)
    asked = tuple(step for step in steps if step <= config.steps)
    relu = factory.build("gd-relu").set_params(checkpoints=asked).fit(train.X, train.y)
    assert isinstance(relu, ReLUClassifier)
    if relu.training_.interrupted:  # by Ctrl-C, which training answers with the network so far
        raise KeyboardInterrupt
    at_end = relu.predict(validation.X)
    prepared = relu.network_.prepare(train.X)
    last_gates = relu.network_.gate_pattern(*prepared)
    for step, checkpoint in relu.checkpoints_.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # ``dropped`` has what it left out
            svm = factory.build("svm-lc", checkpoint).fit(train.X, train.y)
        view = svm.margin_view()
        assert view is not None
        assert view.solution is not None
        solved = not view.solution.status.inseparable
        predicted = svm.predict(validation.X)
        then = relu.classes_of(checkpoint.decision(validation.X))
        gates = checkpoint.gate_pattern(*prepared)
        yield {
            "step": step,
            "gates_left": (gates != last_gates).double().mean().item(),
            "network_error": float(np.mean(then != validation.y)),
            "error": _share(predicted != validation.y, solved),
            "optimum": view.solution.certificate.lower,
            "gap": view.solution.certificate.gap,
            "dropped": len(view.dropped),
            "disagreement": _share(predicted != then, solved),
            "disagreement_at_end": _share(predicted != at_end, solved),
        }


def _share(mask: NDArray[np.bool_], known: bool) -> float:
    return float(mask.mean()) if known else np.nan


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Say when contexts become better than random ones, and how many gates have moved early."""
    better_from, left = [], []
    for _, run in frame.groupby(KEYS):
        first, early, last = run.iloc[0], run.iloc[1], run.iloc[-1]
        left.append(early["gates_left"] / first["gates_left"])
        if last["error"] < first["error"]:
            no_better = run["step"][run["error"] >= first["error"]].max()
            better_from.append(run["step"][run["step"] > no_better].min())
    return {
        "networks": len(left),
        "better": len(better_from),
        "first": float(min(better_from, default=np.nan)),
        "last": float(max(better_from, default=np.nan)),
        "half": sum(bool(part <= 0.5) for part in left),
        "left_least": float(min(left)),
        "left_most": float(max(left)),
    }
