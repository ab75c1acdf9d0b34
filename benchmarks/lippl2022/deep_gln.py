"""GLNs of two, three and four layers in the limit: what the two-layer norm predicts of them.

A draw of hyperplanes is dealt out to one, two or three hidden layers of equal width, so that
networks of all depths see the same joint contexts. Each is trained towards the limit from some
initial weights. Its norm, at smallest margin 1, exceeds the certified optimum of the SVM-GLN on
its paths by the factor

    (||theta||^2 / L)^(L/2)      (||theta||^2 / L)^(L/2)     prod_l ||W_l||     sum_p ||zeta_p||
    -----------------------  =  -------------------------  x  ----------------  x  ----------------
        path SVM's norm              prod_l ||W_l||           sum_p ||zeta_p||     path SVM's norm

each at least 1: balance of the layers, dependence of their units, and what the paths lose
because those through a unit share its weights. With two layers all three are 1 in the limit. The
conditional SVM is that of the first layer, in the gates that the upper layers have learned. See
`gln_predictors`.

Source: Lippl, Abbott, Chung (2022), program (6) and theorem 3.1, for any depth; the bound is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.bench import Part, part
from benchmarks.lippl2022 import gln_predictors as gln
from implicit_bias import LimitConfig, MarginProblem, Solution, certify, solve, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.bounds.status import excess
from implicit_bias.datasets.dataset import Split
from implicit_bias.modules.stationarity import stationarity
from implicit_bias.networks import GLN
from implicit_bias.problem import Architecture, decision
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory

COST = 5
LAYERS, DRAWS, SEEDS = (2, 3, 4), (1, 2, 3), (0, 1, 2)
STEPS, MORE_STEPS = 5_000, 20_000


def measure(quick: bool) -> Iterator[Part]:
    """Yield a part for each depth and draw of hyperplanes; deep ones of a draw with more steps."""
    if quick:
        for layers in (2, 3):
            cell = {"dataset": "digits", "train_size": 100, "units": 6, "steps": 100}
            yield part(trained, draw=1, layers=layers, **cell)
        return
    cell = {"dataset": "digits", "train_size": 500, "units": 24}
    for draw in DRAWS:
        for layers in LAYERS:
            yield part(trained, draw=draw, layers=layers, steps=STEPS, **cell)
    for layers in LAYERS[1:]:
        yield part(trained, draw=1, layers=layers, steps=MORE_STEPS, **cell)


def trained(
    dataset: str, train_size: int, units: int, draw: int, layers: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Train networks from several initial weights, and compare each with its SVMs."""
    setting = RunConfig(dataset=dataset, train_size=train_size, units=units, seed=draw)
    data = load_data(setting)
    samples = data.parts.train
    contexts = ModelFactory(setting, data).contexts
    gatings = dealt_out(contexts, layers - 1, samples.X)
    networks = [GLN(gatings, seed=seed) for seed in SEEDS]
    for network in networks:
        train_to_limit(network, samples.X, samples.y, LimitConfig(steps=steps))
    two_layers, _ = _svm(Architecture(contexts), data.parts)
    return measured(networks, list(SEEDS), data.parts, two_layers)


def dealt_out(contexts: HyperplaneContexts, n_layers: int, X: Array) -> list[HyperplaneContexts]:
    """Cut the units of one hidden layer into so many hidden layers of equal width."""
    if n_layers < 1 or contexts.n_units % n_layers:
        raise ValueError(
            f"{contexts.n_units} units cannot be dealt out evenly to {n_layers} hidden layers: "
            "choose a number of units that the number of hidden layers divides"
        )
    parts = zip(
        np.split(contexts.weights, n_layers), np.split(contexts.thresholds, n_layers), strict=True
    )
    return [HyperplaneContexts.from_hyperplanes(X, *part) for part in parts]


def measured(
    networks: list[GLN], seeds: list[int], data: Split, two_layers: NDArray[np.bool_]
) -> Iterator[dict[str, Any]]:
    """Compare networks of one architecture in the limit, trained from the weights of several seeds.

    ==========================  ==================================================================
    seed                        of the initial weights
    optimum                     certified lower bound on the norm of the path SVM, so on that of
                                any such network
    norm                        (||theta||^2 / L)^(L/2) at smallest margin 1
    balance, dependence,        the factors of norm / optimum; see the head
    sharing
    residual                    KKT residual of theorem 3.1
    conditional_excess          share by which the network's norm is above the optimum of the
                                conditional SVM
    error, path_error           errors of the network and of the path SVM
    from_two_layers,            disagreement, as a share of the validation samples, with the
    from_paths,                 SVM-GLN of one hidden layer, with the path SVM, with the
    from_conditional,           conditional SVM, and with networks of other initial weights (mean)
    from_seeds
    ==========================  ==================================================================
    """
    train, validation = data.train, data.validation
    paths = Architecture(gln.path_contexts(networks[0].gatings, train.X))
    by_paths, solution = _svm(paths, data)
    optimum = solution.certificate.lower
    predictions = [network.decision(validation.X) > 0 for network in networks]
    for i, (network, seed, predicted) in enumerate(zip(networks, seeds, predictions, strict=True)):
        found = stationarity(network, network.prepare(train.X), train.y)
        sizes = np.array([float(weights.detach().norm()) for weights in network.parameters()])
        degree = network.n_layers
        norm = float(np.mean(sizes**2) ** (degree / 2))
        given = MarginProblem(
            train.X, train.y, gln.first_layer_gates(network, train.X), network.gatings[0].groups
        )
        conditional = solve(given)
        gates = gln.first_layer_gates(network, validation.X)
        by_conditional = decision(validation.X, gates, conditional.coef) > 0
        others = [other for j, other in enumerate(predictions) if j != i]
        given_upper = certify(given, gln.first_layer_coef(network)).upper
        apart = [_share(predicted, other) for other in others]
        yield {
            "seed": seed,
            "optimum": optimum,
            "norm": norm / found.program.min_margin,
            "balance": norm / float(np.prod(sizes)),
            "dependence": float(np.prod(sizes)) / gln.path_norm(network),
            "sharing": gln.path_norm(network) / found.program.min_margin / optimum,
            "residual": found.residual,
            "conditional_excess": excess(given_upper, conditional.certificate.lower),
            "error": _share(predicted, validation.y > 0),
            "path_error": _share(by_paths, validation.y > 0),
            "from_two_layers": _share(predicted, two_layers),
            "from_paths": _share(predicted, by_paths),
            "from_conditional": _share(predicted, by_conditional),
            "from_seeds": float(np.mean(apart)) if apart else np.nan,
        }


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return ranges of norm / bound, and of the disagreement of networks from other weights."""
    frame = frame.assign(ratio=frame["norm"] / frame["optimum"])
    frame = frame[frame["steps"] == frame["steps"].min()]
    two, deep = frame[frame["layers"] == 2], frame[frame["layers"] > 2]
    return {
        "two_least": float(two["ratio"].min()),
        "two_most": float(two["ratio"].max()),
        "deep_least": float(deep["ratio"].min()),
        "deep_most": float(deep["ratio"].max()),
        "seeds_least": float(deep["from_seeds"].min()),
        "seeds_most": float(deep["from_seeds"].max()),
    }


def _svm(architecture: Architecture, data: Split) -> tuple[NDArray[np.bool_], Solution]:
    """Predictions on the validation samples of the SVM of a architecture, and its solution."""
    solution = solve(architecture.problem(data.train.X, data.train.y))
    solution.raise_for_status()
    return architecture.decision(data.validation.X, solution.coef) > 0, solution


def _share(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float(np.mean(one != other))
