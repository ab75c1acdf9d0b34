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
`benchmarks.lippl2022.gln_predictors`.

Source: Lippl, Abbott, Chung (2022), program (6) and theorem 3.1, for any depth; the bound is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Experiment, Frames, Misuse, Options, Rows, Run, Verdict, option
from benchmarks.lippl2022 import gln_predictors as gln
from benchmarks.sizes import grid
from benchmarks.words import span
from implicit_bias import LimitConfig, MarginProblem, Solution, certify, solve, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.bounds.status import excess
from implicit_bias.datasets.dataset import Split
from implicit_bias.modules.stationarity import stationarity
from implicit_bias.networks import GLN
from implicit_bias.problem import Architecture, gated_linear
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.report.style import BLUE, GREEN, ORANGE, PURPLE, VERMILION
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory

# How the quantities of the table are written.
WRITTEN: dict[str, str | Callable[[float], str]] = {
    **{"ratio": ".4f", "dependence": ".2f", "sharing": ".4f", "residual": ".3f"},
    **dict.fromkeys(("conditional_excess", "error", "path_error"), percent),
    **{f"from_{other}": percent for other in ("two_layers", "paths", "seeds", "conditional")},
}
# What the networks of a run have in common.
GIVEN = ("dataset", "train_size", "units", "steps")


@dataclass(frozen=True, kw_only=True)
class DeepOptions(Options):
    """What one can ask of it; rows of other choices stay in the table."""

    dataset: str = option("digits", "digits, mnist, ...")
    train_size: int = option(500, "training samples")
    units: int = option(24, "hidden units in all, dealt out evenly")
    layers: tuple[int, ...] = option((2, 3, 4), "depths L")
    draws: tuple[int, ...] = option((1, 2, 3), "seeds of the hyperplanes")
    seeds: tuple[int, ...] = option((0, 1, 2), "seeds of the initial weights")
    steps: int = option(5000, "steps towards the limit")


def measure(run: Run[DeepOptions]) -> Frames:
    """Train the networks and solve the SVMs of the depths that are not in the table."""
    asked = run.options
    if run.quick:
        asked = replace(asked, train_size=100, units=6, layers=(2, 3), draws=(1,), steps=100)
    given = {name: getattr(asked, name) for name in GIVEN}

    def trained(draw: int, layers: int, **others: Any) -> Rows:
        setting = RunConfig(
            dataset=asked.dataset, train_size=asked.train_size, units=asked.units, seed=draw
        )
        data = load_data(setting)
        contexts = ModelFactory(setting, data).contexts
        gatings = dealt_out(contexts, layers - 1, data.parts.train.X)
        networks = [GLN(gatings, seed=seed) for seed in asked.seeds]
        for network in networks:
            config = LimitConfig(steps=asked.steps)
            train_to_limit(network, data.parts.train.X, data.parts.train.y, config)
        two_layers, _ = _svm(Architecture(contexts), data.parts)
        return measured(networks, list(asked.seeds), data.parts, two_layers)

    def enough(rows: pd.DataFrame, _: object) -> bool:
        return set(asked.seeds) <= set(rows["seed"])

    cells = [given | cell for cell in grid(draw=asked.draws, layers=asked.layers)]
    return harness.growing(run, cells, trained, enough=enough)


def dealt_out(contexts: HyperplaneContexts, n_layers: int, X: Array) -> list[HyperplaneContexts]:
    """Cut the units of one hidden layer into so many hidden layers of equal width."""
    if n_layers < 1 or contexts.n_units % n_layers:
        raise Misuse(
            f"{contexts.n_units} units cannot be dealt out evenly to {n_layers} hidden layers: "
            "choose --units that all of --layers, less one, divide"
        )
    parts = zip(
        np.split(contexts.weights, n_layers), np.split(contexts.thresholds, n_layers), strict=True
    )
    return [HyperplaneContexts.from_hyperplanes(X, *part) for part in parts]


def measured(
    networks: list[GLN], seeds: list[int], data: Split, two_layers: NDArray[np.bool_]
) -> Rows:
    """Compare networks of one architecture in the limit, trained from the weights of several seeds.

    ==========================  ==================================================================
    layers, seed                L, and the seed of the initial weights
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
        by_conditional = gated_linear(validation.X, gates, conditional.coef) > 0
        others = [other for j, other in enumerate(predictions) if j != i]
        given_upper = certify(given, gln.first_layer_coef(network)).upper
        apart = [_share(predicted, other) for other in others]
        yield {
            "layers": degree,
            "seed": seed,
            "optimum": optimum,
            "norm": norm / found.min_margin,
            "balance": norm / float(np.prod(sizes)),
            "dependence": float(np.prod(sizes)) / gln.path_norm(network),
            "sharing": gln.path_norm(network) / found.min_margin / optimum,
            "residual": found.residual,
            "conditional_excess": excess(given_upper, conditional.certificate.lower),
            "error": _share(predicted, validation.y > 0),
            "path_error": _share(by_paths, validation.y > 0),
            "from_two_layers": _share(predicted, two_layers),
            "from_paths": _share(predicted, by_paths),
            "from_conditional": _share(predicted, by_conditional),
            "from_seeds": float(np.mean(apart)) if apart else np.nan,
        }


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the first choice of data, width and steps, with norm / bound."""
    first = (frame[list(GIVEN)] == frame[list(GIVEN)].iloc[0]).all(axis=1)
    return frame[first].assign(ratio=frame["norm"] / frame["optimum"])


def found(frame: pd.DataFrame) -> str:
    """Say what the norm predicts, layer by layer."""
    shown = _shown(frame)
    deep, two = shown[shown["layers"] > 2], shown[shown["layers"] == 2]
    first = shown.iloc[0]
    more = frame[frame["steps"] > first["steps"]]
    later = ""
    if len(more):
        norms = " and ".join(
            span(rows["norm"] / rows["optimum"], ".2f") for _, rows in more.groupby("layers")
        )
        later = (
            f", and more steps do not bring them together: after {more['steps'].iloc[0]:,} those "
            f"of the first draw have norms of {norms} times the bound, and disagree by "
            f"{span(more['from_seeds'], percent)}. Their KKT residuals, "
            f"{span(more['residual'], '.3f')} by then, still fall slowly: what is left is in the "
            "upper layers"
        )
    return (
        f"{first['dataset']}, N = {first['train_size']}; {first['units']} hyperplanes dealt out, "
        f"so that all depths see the same contexts; {first['steps']:,} accelerated steps from "
        f"{shown['seed'].nunique()} initial weights each, of {shown['draw'].nunique()} draws of "
        "hyperplanes, smallest to largest.\n\n"
        "- **With two layers the norm predicts the limit, whatever the initial weights "
        f"(norm / bound {span(two['ratio'], '.4f')}); with more layers norms are "
        f"{span(deep['ratio'], '.2f')} times the bound, and networks from different weights "
        f"disagree on {span(deep['from_seeds'], percent)}.**\n"
        "- With more layers it predicts the first layer, given what the upper ones have learned: "
        f"there the network is within {percent(deep['conditional_excess'].max())} of a convex "
        f"optimum, and disagrees with it on {span(deep['from_conditional'], percent)}.\n"
        f"- It misses the upper layers. The networks are {span(deep['ratio'], '.2f')} times above "
        f"the bound by paths. The layers are nearly balanced ({span(deep['balance'], '.2f')}) and "
        f"nearly independent ({span(deep['dependence'], '.2f')}), so this comes from what the "
        "bound lets paths do and weights that paths share do not (or from stationary points far "
        "above the best: the two cannot be told apart by a lower bound alone).\n"
        "- The limit depends on the initial weights. Networks of one architecture disagree with "
        f"each other on {span(deep['from_seeds'], percent)}, with the two-layer SVM on "
        f"{span(deep['from_two_layers'], percent)}{later}."
    )


def verdict(frame: pd.DataFrame, most: float = 0.01) -> Verdict:
    """Judge the claim by the rule."""
    shown = _shown(frame)
    exact = shown["ratio"] < 1 + most
    return Verdict.of(exact.all(), exact[shown["layers"] == 2].all())


def tabulate(frame: pd.DataFrame) -> Rows:
    """Range of each quantity over the draws and initial weights, by depth."""
    for depth, there in _shown(frame).groupby("layers"):
        yield {"layers": depth} | {
            name: span(there[name], write) for name, write in WRITTEN.items()
        }


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the factors of norm / bound and the disagreements, by depth; a dot is a network."""
    frame = _shown(frame)
    figure, (factors, disagreements) = subplots((8.6, 4.0), 1, 2)
    ratio = (frame["norm"] / frame["optimum"]).rename("norm / bound by paths")
    columns = [
        (ratio, VERMILION, "o"),
        (frame["sharing"].rename("shared weights of a unit"), BLUE, "^"),
        (frame["dependence"].rename("dependence of layers"), GREEN, "s"),
    ]
    _dots(factors, frame["layers"], columns)
    factors.set_ylim(bottom=0)
    factors.set_ylabel("factor (1: the two-layer norm is exact)")
    shares = [
        (100 * frame[name].rename(label), colour, marker)
        for name, label, colour, marker in (
            ("from_two_layers", "two-layer SVM-GLN", VERMILION, "o"),
            ("from_paths", "SVM-GLN on the paths", BLUE, "^"),
            ("from_seeds", "other initial weights", ORANGE, "s"),
            ("from_conditional", "SVM given the upper layers", PURPLE, "D"),
        )
    ]
    _dots(disagreements, frame["layers"], shares)
    disagreements.set_ylim(bottom=0)
    disagreements.set_ylabel("disagreement with ..., % of the samples")
    return figure


def _dots(
    ax: Axes, layers: pd.Series[int], columns: list[tuple[pd.Series[float], str, str]]
) -> None:
    depths = sorted(layers.unique())
    for i, (values, colour, marker) in enumerate(columns):
        shift = 0.12 * (i - (len(columns) - 1) / 2)  # side by side
        ax.plot(layers + shift, values, marker, color=colour, label=values.name, alpha=0.8)
    ax.set_xticks(depths)
    ax.set_xlabel("layers L")
    ax.grid(axis="y")
    ax.margins(y=0.05)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0))


def _svm(architecture: Architecture, data: Split) -> tuple[NDArray[np.bool_], Solution]:
    """Predictions on the validation samples of the SVM of a architecture, and its solution."""
    solution = solve(architecture.problem(data.train.X, data.train.y))
    solution.raise_for_status()
    return architecture.decision(data.validation.X, solution.coef) > 0, solution


def _share(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float(np.mean(one != other))


EXPERIMENT = Experiment(measure, found, tabulate, verdict, draw, options=DeepOptions)
