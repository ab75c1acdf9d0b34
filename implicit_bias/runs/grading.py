"""Grade a fitted model: certified bounds on the optimum of its own program, and what they mean.

=====================================  ======================================================
model                                  what it is graded by
=====================================  ======================================================
SVM                                    the bounds of its coefficients and dual variables
network of one hidden layer            the bounds of its coefficients, and of its multipliers
                                       or the solved SVM; how stationary it is
network of several hidden layers       how stationary it is: it has no convex program
=====================================  ======================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from implicit_bias.certificate import certify, excess
from implicit_bias.comparison import training_of
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier
from implicit_bias.networks import Network
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import Solution
from implicit_bias.solvers import solve as solve_problem
from implicit_bias.stationarity import (
    FEW_SAMPLES,
    NetworkCertificate,
    Stationarity,
    balance,
    certify_network,
    stationarity,
)

# Solves a program, or does not.
Solved: TypeAlias = Callable[[MarginProblem], Solution | None]

# By how much the dual norm of a dead unit must exceed 1 to be worth reporting.
REACH = 0.01


@dataclass(frozen=True)
class Grade:
    """What is known of a model.

    Attributes
    ----------
    values : mapping from name to value
        Bounds, margins and measures, as ``implicit-bias certify --json`` prints them.
    notes : tuple of str
        What they mean, in sentences.
    """

    values: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def grade(
    model: BinaryClassifier,
    samples: Dataset,
    *,
    solve: bool = True,
    solver: str = "auto",
    tol: float = 1e-6,
    device: str = "cpu",
    multipliers: bool | None = None,
) -> Grade:
    """Bound how far a fitted model is from the optimum of its own program.

    Parameters
    ----------
    model : BinaryClassifier
        An SVM or a network, fitted.
    samples : Dataset
        The samples that it was fitted to.
    solve : bool
        Solve the program for a lower bound; else use the model's own dual variables.
    solver, tol, device
        As in `implicit_bias.solve`.
    multipliers : bool, optional
        Whether to measure how stationary a network of one hidden layer is; by default where that
        takes a moment only.
    """

    def solved(problem: MarginProblem) -> Solution | None:
        return solve_problem(problem, solver, tol, device) if solve else None

    if not isinstance(model, GLNClassifier | ReLUClassifier):
        return _with_training(model, _grade_svm(model, samples, solved))
    if not model.network_.has_margin_structure:
        return _with_training(model, _grade_deep(model.network_, samples))
    if multipliers is None:
        multipliers = len(samples) <= FEW_SAMPLES
    return _with_training(model, _grade_network(model, samples, solved, multipliers))


def _with_training(model: BinaryClassifier, graded: Grade) -> Grade:
    """Add how long the network was trained that a model is, or has its gates from."""
    training = training_of(model)
    if training is None:
        return graded
    done, planned = training.steps, training.config.steps
    values = {"steps": done, "planned_steps": planned, "interrupted": training.interrupted}
    note = f"Training was interrupted after {done:,} of {planned:,} steps."
    notes = (note, *graded.notes) if training.interrupted else graded.notes
    return Grade({**graded.values, **values}, notes)


def _grade_svm(model: BinaryClassifier, samples: Dataset, solved: Solved) -> Grade:
    view = model.margin_view()
    assert view is not None
    assert view.solution is not None
    problem = view.problem(samples.X, samples.y)
    alpha, status = view.alpha(problem), view.solution.status
    if (solution := solved(problem)) is not None:
        alpha, status = solution.alpha, solution.status
    bounds = certify(problem, view.coef, alpha, view.intercept)
    return Grade(
        {
            "lower": bounds.lower,
            "upper": bounds.upper,
            "gap": bounds.gap,
            "min_margin": bounds.min_margin,
            "status": status.label,
            "samples": problem.n_samples,
            "left out": len(samples) - problem.n_samples,
            "C": view.C,
        }
    )


def _grade_network(
    model: GLNClassifier | ReLUClassifier, samples: Dataset, solved: Solved, multipliers: bool
) -> Grade:
    """Bounds on a network of one hidden layer: by its multipliers, and by the solved SVM."""
    network, coef = model.network_, model.network_.coef()
    found = certify_network(network, samples.X, samples.y, multipliers=multipliers)
    problem = found.problem
    solution = solved(problem)
    if solution is not None:
        found = replace(found, given=certify(problem, coef, solution.alpha))
    bounds = found.certificate
    values: dict[str, Any] = {
        "lower": bounds.lower,
        "upper": bounds.upper,
        "excess": excess(bounds.upper, bounds.lower),
        "min_margin": bounds.min_margin,
        "misclassified": int(np.count_nonzero(problem.y * problem.decision(coef) <= 0)),
        "svm_status": None if solution is None else solution.status.label,
        "samples": problem.n_samples,
        "balance": found.balance,
    }
    if not multipliers:
        note = "`implicit-bias certify` bounds how far the network is from the limit."
        return Grade(values, (note,))
    if found.stationarity is not None and found.by_multipliers is not None:
        own = found.by_multipliers.lower
        values |= {"lower_by_multipliers": own, **_measures(found.stationarity)}
    values["dead_units"] = [
        {"unit": h, "norm": found.unit_norms[h], "dual_norm": found.dual_norms[h]}
        for h in found.dead.tolist()
    ]
    return Grade(values, tuple(_notes(network, found, model.training_.local)))


def _grade_deep(network: Network, samples: Dataset) -> Grade:
    """Stationarity of a network of several hidden layers, which has no convex program."""
    found = stationarity(network, network.prepare(samples.X), samples.y)
    return Grade(
        {
            "min_margin": found.min_margin,
            "samples": len(samples),
            "balance": balance(network),
            **_measures(found),
        },
        (
            "A network of several hidden layers has no convex program, so there are no bounds on "
            "its norm: kkt gap 0 is a stationary point.",
        ),
    )


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


def _notes(network: Network, found: NetworkCertificate, local: bool) -> Iterator[str]:
    """Say in words what the bounds of a network mean, whose units may each learn by itself."""
    gap = found.certificate.gap
    if not network.homogeneous:
        yield "The readout's bias is left out of the bounds, margins and norm."
    if found.obstacle:
        lacking = "upper bound, excess or " if math.isinf(found.certificate.upper) else ""
        yield f"The network has no {lacking}multipliers: {found.obstacle}."
    if 0 < gap < math.inf:
        goal = "the limit" if network.fixed_gates else "the limit that it has if its gates stay"
        if local:
            goal = "the optimum; its units learned one by one, so that need not be its limit"
        yield f"The network is within {100 * gap:.2f} % of {goal}."
    reaching = [h for h in found.dead if found.dual_norms[h] > 1.0 + REACH]
    if reaching and not local:
        yield (
            f"Dead with a dual norm above 1 (up to {found.dual_norms[reaching].max():.4g}): units "
            f"{', '.join(map(str, reaching))}. With them the norm could be lower; unless training "
            "revives them, it goes to another stationary point than the SVM."
        )
