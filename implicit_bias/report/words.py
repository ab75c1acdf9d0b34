"""Numbers and sentences for people: what a page says, without what draws it."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import implicit_bias
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.wording import number as number
from implicit_bias.wording import percent as percent


def signed(label: float) -> str:
    """Write a class as +1 or −1."""
    return "+1" if label > 0 else "−1"


def trained(model: ModelResult) -> str:
    """Say how long a network was trained, and whether it should have been longer."""
    if model.interrupted:
        return f"interrupted after {model.steps:,} of {model.planned_steps:,} steps"
    return f"trained, {model.steps:,} steps" if model.steps else "trained"


def names_of(models: Iterable[ModelResult]) -> str:
    """Join the models' names."""
    return ", ".join(model.name for model in models)


def class_note(data: Dataset) -> str:
    """Say which class is +1, where the classes have names."""
    negative, positive = data.class_names
    return f"+1 is {positive}, −1 is {negative}." if has_class_names(data) else ""


def has_class_names(data: Dataset) -> bool:
    """Whether the names of the classes say more than their signs do."""
    return any(
        name.strip().replace("−", "-").lstrip("+") != sign
        for name, sign in zip(data.class_names, ("-1", "1"), strict=True)
    )


def data_facts(train: Dataset, evaluation: Dataset, given: Mapping[str, str]) -> dict[str, str]:
    """State what a page says of its data, and what else it is given to state."""
    negative, positive = train.class_names
    classes = {"class +1": positive, "class −1": negative}
    if not has_class_names(train):
        n_positive = int(np.count_nonzero(train.y == 1))
        classes = {"of class +1 / −1": f"{n_positive:,} / {len(train) - n_positive:,} (training)"}
    return {
        "data set": train.name,
        "training samples": f"{len(train):,}",
        "evaluation samples": f"{len(evaluation):,}",
        "inputs": f"{train.n_features - train.has_constant:,}"
        + (" and the constant 1" if train.has_constant else ""),
        **classes,
        "implicit_bias": implicit_bias.__version__,
        **given,
    }


def headlines(comparison: Comparison, *, held_out: bool = True) -> list[str]:
    """State the result in sentences: one for each trained network, or one for all models.

    Parameters
    ----------
    comparison : Comparison
        The numbers.
    held_out : bool
        Whether the evaluation samples are others than the training samples.
    """
    samples = f"{comparison.n_samples:,} {'unseen' if held_out else 'training'} samples"
    networks = [model for model in comparison.models if model.history]
    if networks:
        return [_network_headline(comparison, network, samples) for network in networks]
    solved = [model for model in comparison.models if model.margin]
    return [_solved_headline(solved, samples) if solved else _plain_headline(comparison, samples)]


def _network_headline(comparison: Comparison, network: ModelResult, samples: str) -> str:
    svm = comparison.svm_of(network)
    wrong = f"{network.name} is wrong on {percent(network.error)} of {samples}"
    local = network.fitted is not None and network.fitted.local
    alone = " Each of its units learned by itself, so no SVM is known to be its limit." * local
    if local and svm is None:
        return f"{wrong}.{alone}"
    if svm is None or network.margin is None:
        others = [
            f"the C = {soft.known_margin.C:g} of {soft.name} is finite, so that is another program"
            for soft in comparison.soft_svms_of(network)
        ]
        missing = "; ".join(others) or "no SVM of its program is among the models"
        return f"{wrong}; {missing}. How far it is from its limit is not known."
    if network.inseparable:
        program = f"No weights of {network.name}’s program separate the training samples"
        if network.gates_moved:
            program = f"With the gates {network.name} has now no weights separate its samples"
        return f"{program} (proven by {svm.name}), so there is no limit to go to. {wrong}."
    pair = comparison.pair(network.name, svm.name)
    disagreement = (
        f"it disagrees with {svm.name} on {percent(pair.disagreement)} of {samples} (chance "
        f"would give {percent(pair.by_chance)})"
    )
    if not math.isfinite(network.margin.norm):
        return (
            f"{network.name} does not separate its training samples{'' if local else ' yet'} "
            f"({percent(network.train_error)} are wrong), so its norm at margin 1 is infinite; "
            f"{disagreement}.{alone}"
        )
    gates = ", with the gates it has now," if network.gates_moved else ""
    return (
        f"{network.name}’s norm{gates} exceeds the certified optimum of {svm.name}’s program by "
        f"{percent(network.margin.excess)}; {disagreement}.{alone}"
    )


def _solved_headline(solved: Sequence[ModelResult], samples: str) -> str:
    found = [model for model in solved if not math.isnan(model.error)]
    if not found:
        return f"{names_of(solved)}: not separable, proven. There is no predictor to evaluate."
    best = min(found, key=lambda model: model.error)
    count = f"Of {len(solved)} SVMs {best.name}" if len(solved) > 1 else best.name
    gap, quality = best.known_margin.gap, "its training samples are not separated"
    if math.isfinite(gap):
        quality = f"its norm is certified to be within {number(gap, 1)} of the optimum (relative)"
    least = "is wrong least often" if len(solved) > 1 else "is wrong"
    return f"{count} {least}, on {percent(best.error)} of {samples}; {quality}."


def _plain_headline(comparison: Comparison, samples: str) -> str:
    found = [model for model in comparison.models if not math.isnan(model.error)]
    if not found:
        return "No model has a predictor: not separable, proven."
    best = min(found, key=lambda model: model.error)
    known = [pair for pair in comparison.pairs if math.isfinite(pair.disagreement)]
    if not known:
        return f"{best.name} is wrong on {percent(best.error)} of {samples}."
    apart = max(known, key=lambda pair: pair.disagreement)
    return (
        f"{best.name} is wrong least often, on {percent(best.error)} of {samples}; "
        f"{apart.first} and {apart.second} disagree on {percent(apart.disagreement)} (chance "
        f"would give {percent(apart.by_chance)})."
    )
