"""Numbers and sentences for people: what a page says, without what draws it."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from implicit_bias.base.counts import PairedDifference
from implicit_bias.base.version import VERSION
from implicit_bias.base.wording import number, percent, percent_range
from implicit_bias.comparison import Comparison, MarginResult, ModelResult
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.labels import label_text
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.norms.named import name_of
from implicit_bias.problem import C_in_words
from implicit_bias.report import conclusion

# How to train a model on from Python; a command line has its own.
TRAIN_ON = "from implicit_bias import train_to_limit; models[{!r}].fit_by(X, y, train_to_limit)"


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


def programs_in_words(comparison: Comparison) -> dict[str, str]:
    """Name the program of each model; that gates differ is said of the later one of two."""
    said, firsts = dict[str, str](), dict[str, ModelResult]()
    for model in comparison.models:
        if model.fitted is None:
            continue
        words = _program_words(model.fitted)
        first = firsts.setdefault(words, model)
        differ = model.margin and first.margin and model.margin.gates != first.margin.gates
        said[model.name] = f"{words}, other gates or inputs than {first.name}" if differ else words
    return said


def _program_words(fitted: FittedMargin) -> str:
    """Name the norm, the gates and C of the program that a model solves, or should."""
    model = fitted.architecture
    groups = model.gating.groups if model.groups is None else model.groups
    grouped = "l2 over groups" if groups.any() else "l2"
    gates = re.sub("(?<=[a-z])(?=[A-Z])", " ", type(model.gating).__name__).lower()
    margin = "hard margin" if np.isinf(fitted.C).all() else f"C = {C_in_words(fitted.C)}"
    norm = grouped if model.norm is None else name_of(model.norm)
    return f"{norm}, {gates}, {margin}"


def class_names(comparison: Comparison, data: Dataset) -> tuple[str, ...]:
    """Names of the classes (K,) of a comparison, by a data set that has as many."""
    names = tuple(map(label_text, comparison.classes.tolist()))
    return data.class_names if len(data.class_names) == len(names) else names


def class_note(data: Dataset) -> str:
    """Say which class is +1, where the classes have names."""
    if data.classes is not None:
        return "Each has its class above it."
    negative, positive = data.class_names
    return f"+1 is {positive}, −1 is {negative}." if has_class_names(data) else ""


def has_class_names(data: Dataset) -> bool:
    """Whether the names of the classes say more than their signs do."""
    return any(
        name.strip().replace("−", "-").lstrip("+") != sign
        for name, sign in zip(data.class_names, map(str, data.names), strict=True)
    )


def margin_words(data: Dataset) -> str:
    """Say what the margin of a sample is."""
    if data.classes is None:
        return "y f(x)"
    return "The smallest f_y(x) − f_k(x), y the sample’s class and k any other,"


def data_facts(
    train: Dataset | None, evaluation: Dataset, given: Mapping[str, str]
) -> dict[str, str]:
    """State what a page says of its data, and what else it is given to state."""
    described = evaluation if train is None else train
    if described.classes is not None:
        classes = {f"{described.classes} classes": ", ".join(described.class_names)}
    elif has_class_names(described):
        negative, positive = described.class_names
        classes = {"class +1": positive, "class −1": negative}
    else:
        n_positive = int(np.count_nonzero(described.y == 1))
        which = "" if train is None else " (training)"
        n_negative = len(described) - n_positive
        classes = {"of class +1 / −1": f"{n_positive:,} / {n_negative:,}{which}"}
    return {
        "data set": described.name,
        **({} if train is None else {"training samples": f"{len(train):,}"}),
        "evaluation samples": f"{len(evaluation):,}",
        "inputs": f"{described.n_features - described.has_constant:,}"
        + (" and the constant 1" if described.has_constant else ""),
        **classes,
        "implicit_bias": VERSION,
        **given,
    }


def conclusions(
    comparison: Comparison, *, train_on: Mapping[str, str] | None = None
) -> list[conclusion.Conclusion]:
    """State the result: a conclusion for each trained network, or one for all models.

    On data of the user's own that of all models comes first: which is wrong how often.

    Parameters
    ----------
    comparison : Comparison
        The numbers.
    train_on : mapping from name to command, optional
        How to train the networks towards their limits; by default as in Python.
    """
    networks = [model for model in comparison.models if model.history]
    said = [conclusion.conclude(_standing(comparison, network, train_on)) for network in networks]
    return [_ranking(comparison), *said] if ranks(comparison) else said


def ranks(comparison: Comparison) -> bool:
    """Whether the models are compared by their errors, and not only by their limits."""
    return comparison.own is not None or not any(model.history for model in comparison.models)


def _standing(
    comparison: Comparison, network: ModelResult, train_on: Mapping[str, str] | None
) -> conclusion.Standing:
    """Gather what `conclude` needs to know of a network."""
    margin, softs = network.margin, comparison.soft_svms_of(network)
    svm = comparison.svm_of(network) or next(iter(softs), None)
    commands = {network.name: TRAIN_ON.format(network.name)} if train_on is None else train_on
    dead: Sequence[int | str] = ()
    agreement, by_chance = None, math.nan
    if svm is not None:
        agreement = comparison.agreement(network.name, svm.name)
        by_chance = 1 - comparison.pair(network.name, svm.name).by_chance
        solution = svm.known_margin.fitted.solution
        if margin is not None and solution is not None and margin.units > 1:
            # Not those that are merely small: they have a gradient, and may grow.
            asleep = (margin.unit_norms == 0) & solution.active
            dead = _unit_names(np.flatnonzero(asleep).tolist(), margin)
    return conclusion.Standing(
        network=network.name,
        svm=None if svm is None else svm.name,
        soft=C_in_words(svm.known_margin.C) if svm is not None and svm in softs else "",
        no_svm="" if comparison.n_train else "the training samples were not given (train=)",
        excess=math.nan if margin is None else margin.excess,
        train_wrong=network.train_wrong,
        wrong=network.count if network.count.total else None,
        svm_wrong=None if svm is None or not svm.count.total else svm.count,
        agreement=agreement,
        by_chance=by_chance,
        held_out=comparison.held_out,
        inseparable=network.inseparable,
        dead=dead,
        gates_moved=network.gates_moved,
        relaxed=network.fitted is not None and network.fitted.relaxed,
        geometry="l2" if network.fitted is None else network.fitted.geometry,
        local=network.fitted is not None and network.fitted.local,
        train_on=commands.get(network.name, ""),
    )


def _unit_names(places: Sequence[int], margin: MarginResult) -> tuple[int | str, ...]:
    """Name units by their numbers, and where each class has a network by its class, too."""
    classes = len(margin.fitted.coef) if margin.fitted.coef.ndim == 3 else 1
    count = margin.units // classes
    if classes == 1:
        return tuple(places)
    return tuple(f"{place % count} of class {place // count}" for place in places)


def _baseline(comparison: Comparison, best: ModelResult) -> str:
    """Say how often the class would be wrong that most training samples have, beside the best."""
    of, own = comparison.of, comparison.own
    if of.train is None:
        return ""
    classes, counts = np.unique(np.asarray(of.train[1]), return_counts=True)
    most = classes.tolist()[counts.argmax()]
    name = own.train.names[int(most)] if own else label_text(most)
    wrong = np.asarray(of.y) != most
    against, tail = PairedDifference.of(best.wrong, wrong), "."
    if against.difference >= 0:
        tail = ", and no model is better."
    elif not against.decided:
        tail = f", and too few samples tell {best.name} from that."
    error = conclusion.term(percent(float(wrong.mean())), "error")
    return f" Always answering “{name}” would be wrong on {error}{tail}"


def unlike(comparison: Comparison) -> tuple[list[str], list[str]]:
    """Name hard margins, and soft ones for want of those, which are not ranked beside hard ones."""
    found = [model for model in comparison.models if model.count.total]
    fitted = {m.name: m.fitted for m in found if m.fitted is not None and m.fitted.solution}
    hard = [name for name, f in fitted.items() if f.failure is None and np.isinf(f.C).all()]
    return hard, [name for name, f in fitted.items() if f.failure and np.isfinite(f.C).all()]


def refusal(comparison: Comparison) -> str:
    """Say why such models are not ranked; nothing where there are none."""
    hard, soft = unlike(comparison)
    if not (hard and soft):
        return ""
    return (
        f"No ranking: a hard margin ({', '.join(hard)}) is beside a soft one ({', '.join(soft)}), "
        f"which was solved for want of a hard one; {conclusion.command('--C 0.1')} (in Python "
        "C=0.1) gives all of them a soft one. "
    )


def _least(comparison: Comparison, found: Sequence[ModelResult], best: ModelResult) -> str:
    """Say which model is wrong least often, as far as the samples tell."""
    apart = {m.name: comparison.difference(best.name, m.name) for m in found if m is not best}
    level = [name for name, gap in apart.items() if gap is None or not gap.decided]
    error = conclusion.term(percent(best.error), "error")
    count = f"{best.count} {conclusion.SAMPLES[comparison.held_out]}"
    refused = refusal(comparison)
    if level and not refused:
        return (
            f"No ranking: {best.name} is wrong on {error} ({count}), and too few samples tell it "
            f"from {', '.join(level)}."
        )
    ranked = apart and not refused
    return (
        f"{refused}{best.name} is wrong {'least often, on' if ranked else 'on'} {error} ({count}; "
        f"95 % interval {percent_range(*best.count.interval)})"
        f"{'; no other is level with it' if ranked else ''}."
    )


def _ranking(comparison: Comparison) -> conclusion.Conclusion:
    found = [model for model in comparison.models if model.count.total]
    solved = [model for model in comparison.models if model.margin]
    if not found:
        return conclusion.Conclusion(
            conclusion.Verdict.INSEPARABLE,
            f"{names_of(comparison.models)}: not separable, proven. There is no predictor.",
        )
    best = min(found, key=lambda model: model.error)
    headline = _least(comparison, found, best) + _baseline(comparison, best)
    evidence = []
    if len(found) == 2:
        differ = comparison.pair(*(model.name for model in found)).disagreement
        evidence.append(f"The two differ on {conclusion.term(percent(differ), 'disagreement')}.")
    if certified := [m for m in solved if math.isfinite(m.known_margin.gap) and m.count.total]:
        gaps = ((conclusion.term(number(m.known_margin.gap, 1), "gap"), m) for m in certified)
        within = ", ".join(f"{gap} ({m.name})" for gap, m in gaps)
        evidence.append(f"Norm certified, as a share of the optimum, within {within}.")
    evidence += [f"{m.name}: not separable, proven." for m in solved if not m.count.total]
    return conclusion.Conclusion(conclusion.Verdict.SOLVED, headline, tuple(evidence))
