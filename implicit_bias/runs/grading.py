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

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from implicit_bias.base.options import DEFAULTS, SolverOptions
from implicit_bias.base.strict_json import attributes
from implicit_bias.base.wording import percent
from implicit_bias.bounds.certificate import certify
from implicit_bias.bounds.status import excess
from implicit_bias.comparison import training_of
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier
from implicit_bias.measure import stationarity
from implicit_bias.measure.stationarity import NetworkCertificate
from implicit_bias.networks import Network
from implicit_bias.problem import C_in_words, MarginProblem
from implicit_bias.solvers import Solution, solve

# By how much the dual norm of a dead unit must exceed 1 to be worth reporting.
REACH = 0.01
# Said of networks whose margin problem has more freedom than they have.
RELAXED = (
    "The margin problem of many classes has more freedom than this network: its optimum is a lower "
    "bound, which the network need not reach."
)


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
    solving: SolverOptions | None = DEFAULTS,
    multipliers: bool | None = None,
) -> Grade:
    """Bound how far a fitted model is from the optimum of its own program.

    Parameters
    ----------
    model : BinaryClassifier
        An SVM or a network, fitted.
    samples : Dataset
        The samples that it was fitted to.
    solving : SolverOptions or None
        How to solve the program, for a lower bound; None uses the model's own dual variables.
    multipliers : bool, optional
        Whether to measure how stationary a network of one hidden layer is; by default where that
        takes a moment only.
    """
    if not isinstance(model, GLNClassifier | ReLUClassifier):
        graded = _grade_svm(model, samples, solving)
    elif not model.network_.has_margin_structure:
        graded = _grade_deep(model.network_, samples)
    else:
        if multipliers is None:
            multipliers = len(samples) <= stationarity.FEW_SAMPLES
        graded = _grade_network(model, samples, solving, multipliers)
    training = training_of(model)
    if training is None:
        return graded
    # How long the network was trained that the model is, or has its gates from.
    done, planned = training.steps, training.config.steps
    values = {"steps": done, "planned_steps": planned, "interrupted": training.interrupted}
    note = f"Training was interrupted after {done:,} of {planned:,} steps."
    notes = (note, *graded.notes) if training.interrupted else graded.notes
    return Grade({**graded.values, **values}, notes)


def _solved(problem: MarginProblem, solving: SolverOptions | None) -> Solution | None:
    return None if solving is None else solve(problem, *solving)


def _grade_svm(model: BinaryClassifier, samples: Dataset, solving: SolverOptions | None) -> Grade:
    view = model.margin_view()
    assert view is not None
    assert view.solution is not None
    problem = view.problem(samples.X, samples.y)
    alpha, status = view.alpha(problem), view.solution.status
    if (solution := _solved(problem, solving)) is not None:
        alpha, status = solution.alpha, solution.status
    bounds = certify(problem, view.coef, alpha, view.intercept)
    facts = {
        "status": status.label,
        "samples": problem.n_samples,
        "left out": len(samples) - problem.n_samples,
        "C": view.C if np.ndim(view.C) == 0 else C_in_words(view.C),
    }
    notes = () if view.search is None else (f"{view.search}.",)
    return Grade(attributes(bounds, "lower", "upper", "gap", "min_margin") | facts, notes)


def _grade_network(
    model: GLNClassifier | ReLUClassifier,
    samples: Dataset,
    solving: SolverOptions | None,
    multipliers: bool,
) -> Grade:
    """Bounds on a network of one hidden layer: by its multipliers, and by the solved SVM."""
    network, coef = model.network_, model.network_.coef()
    found = stationarity.certify_network(network, samples.X, samples.y, multipliers=multipliers)
    problem = found.problem
    solution = _solved(problem, solving)
    if solution is not None:
        found = replace(found, given=certify(problem, coef, solution.alpha))
    bounds = found.certificate
    # Over the optimum it is an excess; over what the network's own multipliers prove, a gap.
    distance = "gap" if solution is None else "excess"
    values: dict[str, Any] = {
        "lower": bounds.lower,
        "lower_from": _source(found, solution),
        "upper": bounds.upper,
        distance: excess(bounds.upper, bounds.lower),
        "min_margin": bounds.min_margin,
        "misclassified": int(np.count_nonzero(problem.margins(problem.decision(coef)) <= 0)),
        "svm_status": None if solution is None else solution.status.label,
        "samples": problem.n_samples,
        "balance": found.balance,
    }
    if not multipliers:
        note = "`implicit-bias certify` bounds how far the network is from the limit."
        return Grade(values, (note,))
    if found.stationarity is not None and found.by_multipliers is not None:
        own = found.by_multipliers.lower
        values |= {"lower_by_multipliers": own, **found.stationarity.measures()}
    values["dead_units"] = [
        {**_unit(network, h), "norm": found.unit_norms[h], "dual_norm": found.dual_norms[h]}
        for h in found.dead.tolist()
    ]
    notes = [*_notes(network, found, model.training_.local, model.training_.config.limit_norm)]
    if solution is None and found.certificate.lower > 0:
        notes.append(
            "That gap is over the lower bound of the network's own multipliers: `implicit-bias "
            "certify` solves the SVM, and finds the excess over its optimum."
        )
    return Grade(values, tuple(notes))


def _source(found: NetworkCertificate, solution: Solution | None) -> str:
    """Name what proves the lower bound: the network's multipliers alone prove less than the SVM."""
    if found.certificate.lower <= 0:
        return "nothing: no multipliers are known"
    if solution is not None and found.certificate is found.given:
        return "the SVM, solved"
    return "the network's own multipliers"


def _unit(network: Network, place: int) -> dict[str, int]:
    """Say which unit is the one in this place among all, and, one network a class, of which."""
    if network.n_networks == 1:
        return {"unit": place}
    owner, unit = divmod(place, network.readout.shape[1])
    return {"class": owner, "unit": unit}


def _grade_deep(network: Network, samples: Dataset) -> Grade:
    """Stationarity of a network of several hidden layers, which has no convex program."""
    found = stationarity.stationarity(
        network, network.prepare(samples.X), samples.y, classes=network.classes
    )
    facts = {"samples": len(samples), "balance": stationarity.balance(network)}
    note = (
        "A network of several hidden layers has no convex program, so there are no bounds on its "
        "norm: kkt gap 0 is a stationary point."
    )
    return Grade({"min_margin": found.min_margin, **facts, **found.measures()}, (note,))


def _notes(
    network: Network, found: NetworkCertificate, local: bool, limit_norm: str
) -> Iterator[str]:
    """Say in words what the bounds of a network mean, whose units may each learn by itself.

    ``limit_norm`` is the norm of its optimizer's limit, "" where it is not known.
    """
    gap = found.certificate.gap
    if limit_norm not in ("", "l2"):
        yield (
            "The bounds are those of gradient descent's geometry; the optimizer goes to the "
            f"{limit_norm} margin instead."
        )
    if not network.homogeneous:
        yield "The readout's bias is left out of the bounds, margins and norm."
    if found.obstacle:
        lacking = "upper bound, excess or " if math.isinf(found.certificate.upper) else ""
        yield f"The network has no {lacking}multipliers: {found.obstacle}."
    if 0 < gap < math.inf:
        goal = "the limit" if network.fixed_gates else "the limit that it has if its gates stay"
        if limit_norm not in ("", "l2"):
            goal = "the optimum of gradient descent's geometry, which is not its own"
        elif local:
            goal = "the optimum; its units learned one by one, so that need not be its limit"
        if network.relaxed:
            yield RELAXED
            goal = "a lower bound on the norm that any such network needs"
        yield f"The network is within {percent(gap, 2, space=' ')} of {goal}."
    reaching = [h for h in found.dead if found.dual_norms[h] > 1.0 + REACH]
    if reaching and not local:
        units = (".".join(map(str, _unit(network, h).values())) for h in reaching)
        yield (
            f"Dead with a dual norm above 1 (up to {found.dual_norms[reaching].max():.4g}): units "
            f"{', '.join(units)}. With them the norm could be "
            "lower; unless training revives them, it goes to another stationary point than the SVM."
        )
