"""`implicit-bias certify`: how far a saved model is from the optimum of its own program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from implicit_bias.cli.choices import load_data
from implicit_bias.cli.options import (
    DeviceOption,
    JsonOption,
    SolverOption,
    TolOption,
    TrainSizeOption,
)
from implicit_bias.cli.output import bad_use, cell, out, percent, print_json

if TYPE_CHECKING:
    from implicit_bias.datasets.dataset import Dataset
    from implicit_bias.estimators.base import BinaryClassifier
    from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier
    from implicit_bias.networks import Network
    from implicit_bias.runs.configuration import Data, Setting
    from implicit_bias.stationarity import NetworkCertificate, Stationarity

# By how much the dual norm of a dead unit must exceed 1 to be worth a word.
REACH = 0.01
# What a table shows as percentages, and as unknown where it is 0 or infinite.
SHARES = ("gap", "excess", "residual", "slackness", "kkt_gap", "balance")
BOUNDS = ("lower", "lower_by_multipliers", "upper", "gap", "excess")
# The measures of stationarity, in a line below the table.
LEGEND = {
    "residual": "share of the weights that no multipliers explain",
    "slackness": "share of the multipliers that is off the margin",
    "kkt_gap": "residual^2 + 2 slackness, 0 at stationary points only",
    "epsilon": "residual, not as a share",
    "delta": "largest lambda_n (q_n - 1), with epsilon as in Lyu and Li (2020)",
}


def certify(
    file: Annotated[Path, typer.Argument(help="A model that fit, train or compare saved.")],
    dataset: Annotated[
        str | None, typer.Option(help="Data set; by default the one in the file.")
    ] = None,
    train_size: TrainSizeOption = None,
    split_seed: Annotated[int | None, typer.Option(help="By default the one in the file.")] = None,
    solve: Annotated[
        bool, typer.Option(help="Solve the program for a lower bound; else use the file's own.")
    ] = True,
    solver: SolverOption = "auto",
    tol: TolOption = 1e-6,
    device: DeviceOption = "cpu",
    multipliers: Annotated[
        bool, typer.Option(help="Measure how stationary a network is; slow for large ones.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Bound how far a saved network or SVM is from the optimum of its own program."""
    from implicit_bias.runs.configuration import Setting
    from implicit_bias.saved_models import load_model

    saved = load_model(file)
    if not saved.facts and dataset is None:
        raise typer.BadParameter(f"{file} does not say what data it was fitted to: --dataset ...")
    changes = {"dataset": dataset, "train_size": train_size, "split_seed": split_seed}
    known = {**saved.facts, **{key: value for key, value in changes.items() if value is not None}}
    with bad_use():
        setting = Setting.from_facts({**known, "solver": solver, "tol": tol, "device": device})
    data = load_data(setting)
    print_certificate(file, saved.model, setting, data, solve, as_json, multipliers=multipliers)


def print_certificate(
    file: Path,
    model: BinaryClassifier,
    setting: Setting,
    loaded: Data,
    solve: bool,
    as_json: bool,
    *,
    multipliers: bool | None = None,
) -> None:
    """Certify a model on the samples it was fitted to, and print the bounds and what they mean.

    Without ``multipliers`` those of a network are found where that takes a moment only.
    """
    from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier

    samples, notes = loaded.parts.train, list[str]()
    if not isinstance(model, GLNClassifier | ReLUClassifier):
        facts = _svm_facts(model, samples, setting, solve)
    elif model.network_.has_margin_structure:
        facts, notes = _network_facts(model, samples, setting, solve, multipliers)
    else:
        facts, notes = _deep_facts(model.network_, samples)
    if as_json:
        print_json({"file": str(file), **facts, "notes": notes})
        return
    table = Table("", file.name, title=f"Certified bounds on {facts['samples']} samples")
    for name, value in facts.items():
        table.add_row(_words(name), _cell(name, value))
    out.print(table)
    print_legend(facts)
    for note in notes:
        out.print(note, soft_wrap=True, highlight=False, markup=False)


def print_legend(facts: Mapping[str, Any]) -> None:
    """Say in one line what the measures of stationarity in a table are."""
    said = [f"{_words(name)}: {meaning}" for name, meaning in LEGEND.items() if name in facts]
    if said:
        out.print("; ".join(said) + ".", soft_wrap=True, highlight=False)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _svm_facts(
    model: BinaryClassifier, samples: Dataset, setting: Setting, solve: bool
) -> dict[str, Any]:
    from implicit_bias import certificate
    from implicit_bias.solvers import solve as solve_problem

    view = model.margin_view()
    assert view is not None
    assert view.solution is not None
    problem = view.problem(samples.X, samples.y)
    alpha, status = view.alpha(problem), view.solution.status
    if solve:
        solution = solve_problem(problem, setting.solver, setting.tol, setting.device)
        alpha, status = solution.alpha, solution.status
    bounds = certificate.certify(problem, coef=view.coef, alpha=alpha)
    return {
        "lower": bounds.lower,
        "upper": bounds.upper,
        "gap": bounds.gap,
        "min_margin": bounds.min_margin,
        "status": status.label,
        "samples": problem.n_samples,
        "left out": len(samples) - problem.n_samples,
        "C": view.C,
    }


def _network_facts(
    model: GLNClassifier | ReLUClassifier,
    samples: Dataset,
    setting: Setting,
    solve: bool,
    multipliers: bool | None,
) -> tuple[dict[str, Any], list[str]]:
    """Bounds on a network of one hidden layer: by its multipliers, and by the solved SVM."""
    import numpy as np

    from implicit_bias import certificate, stationarity
    from implicit_bias.solvers import solve as solve_problem

    X, y, network = samples.X, samples.y, model.network_
    problem, coef = network.architecture().problem(X, y), network.coef()
    solution = None
    if solve:
        solution = solve_problem(problem, setting.solver, setting.tol, setting.device)
    alpha = None if solution is None else solution.alpha
    if multipliers is None:
        multipliers = len(y) <= stationarity.FEW_SAMPLES
    found = stationarity.certify_network(network, X, y, alpha=alpha) if multipliers else None
    bounds = certificate.certify(problem, coef, alpha) if found is None else found.certificate
    facts: dict[str, Any] = {
        "lower": bounds.lower,
        "upper": bounds.upper,
        "excess": bounds.gap,
        "min_margin": bounds.min_margin,
        "misclassified": int(np.count_nonzero(y * problem.decision(coef) <= 0)),
        "svm_status": None if solution is None else solution.status.label,
        "samples": problem.n_samples,
        "balance": stationarity.balance(network),
    }
    if found is None:
        return facts, ["`implicit-bias certify` bounds how far the network is from the limit."]
    if found.stationarity is not None:
        own = certificate.certify(problem, alpha=found.stationarity.multipliers)
        facts |= {"lower_by_multipliers": own.lower, **_measures(found.stationarity)}
    facts["dead_units"] = [
        {"unit": h, "norm": found.unit_norms[h], "dual_norm": found.dual_norms[h]}
        for h in found.dead.tolist()
    ]
    return facts, _notes(network, found, model.training_.local)


def _deep_facts(network: Network, samples: Dataset) -> tuple[dict[str, Any], list[str]]:
    """Stationarity of a network of several hidden layers, which has no convex program."""
    from implicit_bias.stationarity import balance, stationarity

    found = stationarity(network, network.prepare(samples.X), samples.y)
    facts = {
        "min_margin": found.min_margin,
        "samples": len(samples),
        "balance": balance(network),
        **_measures(found),
    }
    return facts, [
        "A network of several hidden layers has no convex program, so there are no bounds on its "
        "norm: kkt gap 0 is a stationary point."
    ]


def _measures(found: Stationarity) -> dict[str, float]:
    return {
        "degree": found.degree,
        "normalised_margin": found.normalised_margin,
        "residual": found.residual,
        "slackness": found.slackness,
        "kkt_gap": found.gap,
        "epsilon": found.epsilon,
        "delta": found.delta,
    }


def _notes(network: Network, found: NetworkCertificate, local: bool) -> list[str]:
    """Say in words what the bounds of a network mean, whose units may each learn by itself."""
    notes = []
    if not network.homogeneous:
        notes.append("The readout's bias is left out of the bounds, margins and norm.")
    if found.obstacle:
        lacking = "upper bound, excess or " if math.isinf(found.certificate.upper) else ""
        notes.append(f"The network has no {lacking}multipliers: {found.obstacle}.")
    if 0 < found.certificate.gap < math.inf:
        goal = "the limit" if network.fixed_gates else "the limit that it has if its gates stay"
        if local:
            goal = "the optimum; its units learned one by one, so that need not be its limit"
        notes.append(f"The network is within {percent(found.certificate.gap)} of {goal}.")
    reaching = [h for h in found.dead if found.dual_norms[h] > 1.0 + REACH]
    if reaching and not local:
        notes.append(
            f"Dead with a dual norm above 1 (up to {found.dual_norms[reaching].max():.4g}): units "
            f"{', '.join(map(str, reaching))}. With them the norm could be lower; unless training "
            "revives them, it goes to another stationary point than the SVM."
        )
    return notes


def _cell(name: str, value: Any) -> str:
    if name in BOUNDS and (value == math.inf or value == 0.0):
        return "-"
    if name in SHARES:
        return percent(value)
    if name == "dead_units":
        return ", ".join(str(entry["unit"]) for entry in value) or "none"
    return cell(value)
