"""GLNs of two, three and four layers in the limit: what the two-layer norm predicts of them.

    python benchmarks/deep_gln.py                                   # digits: a minute or two
    IMPLICIT_BIAS_DATA=... python benchmarks/deep_gln.py --dataset mnist

One draw of hyperplanes is dealt out to one, two or three hidden layers of equal width, so that
networks of all depths see the same joint contexts. Each is trained towards the limit from some
initial weights. Its norm, at smallest margin 1, exceeds the certified optimum of the SVM-GLN on
its paths by the factor

    (||theta||^2 / L)^(L/2)      (||theta||^2 / L)^(L/2)     prod_l ||W_l||     sum_p ||zeta_p||
    -----------------------  =  -------------------------  x  ----------------  x  ----------------
        path SVM's norm              prod_l ||W_l||           sum_p ||zeta_p||     path SVM's norm

each at least 1: balance of the layers, dependence of their units, and what the paths lose
because those through a unit share its weights. With two layers all three are 1 in the limit. The
conditional SVM is that of the first layer, in the gates that the upper layers have learned. See
`implicit_bias.theory.gln_predictors`.

Source: Lippl, Abbott, Chung (2022), program (6) and theorem 3.1, for any depth; the bound is ours.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from implicit_bias.certificate import certify
from implicit_bias.datasets.dataset import Split
from implicit_bias.gating import HyperplaneContexts
from implicit_bias.networks import GLN
from implicit_bias.problem import MarginProblem, Structure, gated_linear
from implicit_bias.report.style import BLUE, GREEN, ORANGE, PURPLE, VERMILION, style
from implicit_bias.runs.configuration import Builders, Setting, load_data
from implicit_bias.solvers import Solution, solve
from implicit_bias.stationarity import stationarity
from implicit_bias.theory.gln_predictors import (
    first_layer_coef,
    first_layer_gates,
    path_contexts,
    path_norm,
)
from implicit_bias.training.limit import LimitConfig, train_to_limit
from implicit_bias.validation import Array


@dataclass(frozen=True)
class Trained:
    """A network in the limit; disagreements are shares of the validation samples.

    Attributes
    ----------
    layers, seed : int
        L, and the seed of the initial weights.
    optimum : float
        Certified lower bound on the norm of the path SVM, so on that of any such network.
    norm : float
        (||theta||^2 / L)^(L/2) at smallest margin 1.
    balance, dependence, sharing : float
        The factors of norm / optimum; see the head.
    residual : float
        KKT residual of theorem 3.1.
    conditional_excess : float
        Share by which the network's norm is above the optimum of the conditional SVM.
    error, path_error : float
        Errors of the network and of the path SVM.
    from_two_layers, from_paths, from_conditional, from_seeds : float
        Disagreement with the SVM-GLN of one hidden layer, with the path SVM, with the
        conditional SVM, and with networks of other initial weights (mean).
    """

    layers: int
    seed: int
    optimum: float
    norm: float
    balance: float
    dependence: float
    sharing: float
    residual: float
    conditional_excess: float
    error: float
    path_error: float
    from_two_layers: float
    from_paths: float
    from_conditional: float
    from_seeds: float = np.nan


def main(
    dataset: str = "digits",
    train_size: int = 500,
    units: Annotated[int, typer.Option(help="Hidden units in all, dealt out evenly.")] = 24,
    layers: Annotated[str, typer.Option(help="Depths L, separated by commas.")] = "2,3,4",
    seeds: Annotated[str, typer.Option(help="Seeds of the initial weights.")] = "0,1,2",
    steps: Annotated[int, typer.Option(help="Steps towards the limit.")] = 5000,
    picture: Path = Path("benchmarks/pictures/deep_gln.png"),
    out: Annotated[Path | None, typer.Option(help="Parquet file of the results.")] = None,
) -> None:
    """Train the networks, solve the SVMs, print the table, and draw the picture."""
    setting = Setting(dataset=dataset, train_size=train_size, units=units)
    data = load_data(setting)
    contexts = Builders(setting, data).contexts()
    two_layers, _ = _svm(Structure(contexts), data.parts)
    config = LimitConfig(steps=steps)
    rows: list[Trained] = []
    for depth in _numbers(layers):
        gatings = dealt_out(contexts, depth - 1, data.parts.train.X)
        networks = [GLN(gatings, seed=seed) for seed in _numbers(seeds)]
        for network in networks:
            train_to_limit(network, data.parts.train.X, data.parts.train.y, config)
        rows += measured(networks, _numbers(seeds), data.parts, two_layers)
    frame = pd.DataFrame([asdict(row) for row in rows])
    show(frame)
    picture.parent.mkdir(parents=True, exist_ok=True)
    with style():
        draw(frame).savefig(picture)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(out)


def dealt_out(contexts: HyperplaneContexts, n_layers: int, X: Array) -> list[HyperplaneContexts]:
    """Cut the units of one hidden layer into so many hidden layers of equal width."""
    if n_layers < 1 or contexts.n_units % n_layers:
        raise typer.BadParameter(
            f"{contexts.n_units} units cannot be dealt out evenly to {n_layers} hidden layers: "
            "choose --units that all of --layers, less one, divide"
        )
    parts = zip(
        np.split(contexts.weights, n_layers), np.split(contexts.thresholds, n_layers), strict=True
    )
    return [HyperplaneContexts.from_hyperplanes(X, *part) for part in parts]


def measured(
    networks: list[GLN], seeds: list[int], data: Split, two_layers: NDArray[np.bool_]
) -> list[Trained]:
    """Compare networks of one architecture, trained from the weights of several seeds."""
    train, validation = data.train, data.validation
    paths = Structure(path_contexts(networks[0].gatings, train.X))
    by_paths, solution = _svm(paths, data)
    optimum = solution.certificate.lower
    predictions = [network.decision(validation.X) > 0 for network in networks]
    rows = []
    for i, (network, seed, predicted) in enumerate(zip(networks, seeds, predictions, strict=True)):
        found = stationarity(network, network.prepare(train.X), train.y)
        sizes = np.array([float(weights.detach().norm()) for weights in network.parameters()])
        degree = network.n_layers
        norm = float(np.mean(sizes**2) ** (degree / 2))
        given = MarginProblem(
            train.X, train.y, first_layer_gates(network, train.X), network.gatings[0].groups
        )
        conditional = solve(given)
        gates = first_layer_gates(network, validation.X)
        by_conditional = gated_linear(validation.X, gates, conditional.coef) > 0
        others = [other for j, other in enumerate(predictions) if j != i]
        rows.append(
            Trained(
                layers=degree,
                seed=seed,
                optimum=optimum,
                norm=norm / found.min_margin,
                balance=norm / float(np.prod(sizes)),
                dependence=float(np.prod(sizes)) / path_norm(network),
                sharing=path_norm(network) / found.min_margin / optimum,
                residual=found.residual,
                conditional_excess=certify(given, first_layer_coef(network)).upper
                / conditional.certificate.lower
                - 1.0,
                error=_share(predicted, validation.y > 0),
                path_error=_share(by_paths, validation.y > 0),
                from_two_layers=_share(predicted, two_layers),
                from_paths=_share(predicted, by_paths),
                from_conditional=_share(predicted, by_conditional),
                from_seeds=float(np.mean([_share(predicted, other) for other in others]))
                if others
                else np.nan,
            )
        )
    return rows


def show(frame: pd.DataFrame) -> None:
    """Print one row a network."""
    table = Table(
        "L",
        "seed",
        "norm / bound",
        "balance",
        "dependence",
        "sharing",
        "KKT residual",
        "conditional excess",
        "error (paths)",
        "vs two layers",
        "vs paths",
        "vs conditional",
        "vs seeds",
    )
    for _, row in frame.iterrows():
        table.add_row(
            f"{row['layers']:.0f}",
            f"{row['seed']:.0f}",
            f"{row['norm'] / row['optimum']:.4f}",
            f"{row['balance']:.4f}",
            f"{row['dependence']:.4f}",
            f"{row['sharing']:.4f}",
            f"{row['residual']:.1e}",
            f"{100 * row['conditional_excess']:.2f} %",
            f"{100 * row['error']:.1f} ({100 * row['path_error']:.1f}) %",
            *(
                f"{100 * row[name]:.1f} %"
                for name in ("from_two_layers", "from_paths", "from_conditional", "from_seeds")
            ),
        )
    Console(width=170).print(table)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the factors of norm / bound and the disagreements, by depth; a dot is a network."""
    figure = Figure(figsize=(8.6, 4.0), layout="constrained")
    factors, disagreements = figure.subplots(1, 2)
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


def _svm(structure: Structure, data: Split) -> tuple[NDArray[np.bool_], Solution]:
    """Predictions on the validation samples of the SVM of a structure, and its solution."""
    solution = solve(structure.problem(data.train.X, data.train.y))
    solution.raise_for_status()
    return structure.decision(data.validation.X, solution.coef) > 0, solution


def _share(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float(np.mean(one != other))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    typer.run(main)
