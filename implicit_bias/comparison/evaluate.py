"""Compare classifiers: errors, disagreement beyond chance, and how far each is from the limit.

On the test samples: the error p of each model; for each pair the disagreement, and the disagreement
expected of independent models with these errors p and q. With K classes independence gives

    p (1 - q) + q (1 - p) + p q (K - 2) / (K - 1),

the last term for two wrong answers that differ, each spread evenly over the K - 1 wrong classes;
with K = 2 it is 0.

On the training samples, for the models with a margin problem (SVMs, and networks of one hidden
layer): the normalized margin, the norm at unit margin, its excess over the certified minimum of
that problem, active units, and support vectors.

Source: Lippl, Abbott, Chung (2022), section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import labels_of_any_type
from implicit_bias.bounds.certificate import certify
from implicit_bias.comparison.comparison import MODELS_DIFFER, TRUE_LABEL, Comparison
from implicit_bias.comparison.models import (
    LastStep,
    Predictions,
    Predicts,
    is_interrupted,
    last_step,
)
from implicit_bias.comparison.results import MarginResult, ModelResult, PairResult
from implicit_bias.estimators.base import FittedMargin
from implicit_bias.estimators.networks import NetworkClassifier
from implicit_bias.norms import Norm
from implicit_bias.problem import MarginProblem


def compare(
    models: Mapping[str, Predicts],
    X: ArrayLike,
    y: ArrayLike,
    *,
    train: tuple[ArrayLike, ArrayLike] | None = None,
) -> Comparison:
    """Compare fitted classifiers on test samples.

    Parameters
    ----------
    models : mapping from name to fitted classifier
        This package's classifiers, pipelines that end in one, searches among these, or any of
        scikit-learn's interface (errors and disagreement only).
    X : array_like of shape (n, D)
        Test inputs.
    y : array_like of shape (n,)
        Their labels.
    train : tuple (X, y), optional
        The samples that the models were fitted to; margins and norms need them.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        No models, no samples, labels that a model does not know, or not one per sample; a model
        called "true label" or "models differ", as columns of the predictions are.
    TypeError
        Models that are no mapping, or do not predict.

    Examples
    --------
    >>> from implicit_bias import GLNSVC, MaxMarginSVC, compare
    >>> from implicit_bias.datasets import make_toy, split
    >>> moons = split(make_toy("blobs", 60), 40)
    >>> X, y = moons.train.X, moons.train.y
    >>> models = {"gated": GLNSVC(3, random_state=0).fit(X, y), "linear": MaxMarginSVC().fit(X, y)}
    >>> result = compare(models, moons.validation.X, moons.validation.y, train=(X, y))
    >>> print(result)
    model   error  95 % interval  margin  norm   excess
    gated   0 %    0 to 24 %      0.7595  1.317  < 0.001 %
    linear  0 %    0 to 24 %      0.8282  1.207  < 0.001 %
    <BLANKLINE>
    first model  second model  agreement  if independent  samples
    gated        linear        100 %      100 %           12 of 12
    <BLANKLINE>
    Margins and norms compare only between models of the same optimization problem: others have \
another norm, other gates or another C.
    <BLANKLINE>
    No model has a significantly lower error than all others: gated misclassifies 0 of 12 test \
samples (0 %); its difference from linear is not significant (McNemar’s exact test).
    >>> page = result.report("my-report")  # doctest: +SKIP
    """
    # Labels and inputs are checked below, when each model predicts.
    if not isinstance(models, Mapping):
        raise TypeError('models must be a mapping from names to classifiers, as {"svm": svm}')
    for name, model in models.items():
        if name in (TRUE_LABEL, MODELS_DIFFER):
            raise ValueError(
                f"{name!r} is a column of the predictions beside those of the models: give the "
                "model another name"
            )
        if not isinstance(model, Predicts):
            raise TypeError(
                f"{name!r} is a {type(model).__name__}, which has no predict(X): pass a fitted "
                "classifier (a torch module on its own is measured by diagnose)"
            )
    if train is not None and not (isinstance(train, tuple | list) and len(train) == 2):
        raise ValueError("train must be a pair: pass the inputs and their labels, train=(X, y)")
    labels = labels_of_any_type(y)
    if not models or len(labels) == 0:
        raise ValueError("compare needs at least one fitted model and one test sample")

    # What each model predicts, on the test samples and on those that it was fitted to. The margin
    # problem of a pipeline is that of its last step, whose inputs the steps before it make.
    steps = {name: last_step(model) for name, model in models.items()}
    on_test = {name: step.predictions(X, labels) for name, step in steps.items()}
    on_train: dict[str, Predictions] = {}
    margins: dict[str, MarginResult] = {}
    train_samples = None
    if train is not None:
        train_samples = (train[0], labels_of_any_type(train[1]))
        for name, step in steps.items():
            on_train[name] = step.predictions(*train_samples)
        margins = _margin_results(steps, on_train, train_samples[1])

    # All classes that occur anywhere, sorted: numbers before names.
    found = set(labels.tolist())
    for name, step in steps.items():
        found |= set(on_test[name].classes.tolist())
        if step.classifier is not None:
            # Also classes that no test sample has: a model may predict them.
            found |= set(step.classifier.classes_.tolist())
    found.discard(None)  # where a model is undecided
    classes = np.array(sorted(found, key=lambda label: (isinstance(label, str), label)))

    results = []
    for name, step in steps.items():
        result = ModelResult(
            name=name,
            fitted=step.fitted,
            margin=margins.get(name),
            interrupted=is_interrupted(step.model),
            predicted=on_test[name].classes,
            wrong=on_test[name].wrong,
            scores=on_test[name].scores,
        )
        if isinstance(step.model, NetworkClassifier):
            planned_steps = step.model.training_.config.steps
            result = replace(result, history=step.model.history(), planned_steps=planned_steps)
        if name in on_train:
            result = replace(result, train_wrong=on_train[name].count)
        results.append(result)
    return Comparison(
        models=tuple(results),
        pairs=tuple(_pair(*pair, len(classes)) for pair in combinations(results, 2)),
        classes=classes,
        estimators=dict(models),
        X=X,
        y=labels,
        train=train_samples,
    )


def _pair(first: ModelResult, second: ModelResult, n_classes: int) -> PairResult:
    """Return the disagreement of two models, and that of independent models with their errors."""
    # The symbols of the head of this file.
    p = first.error
    q = second.error
    if np.isnan(p) or np.isnan(q):
        return PairResult(first.name, second.name, np.nan, np.nan)
    disagreement = float((first.predicted != second.predicted).mean())
    # One of two independent models is wrong, or both are, with different answers.
    by_chance = p * (1 - q) + q * (1 - p)
    if n_classes > 2:
        by_chance += p * q * (n_classes - 2) / (n_classes - 1)
    return PairResult(first.name, second.name, disagreement, by_chance)


def _margin_results(
    steps: Mapping[str, LastStep], on_train: Mapping[str, Predictions], y: NDArray[Any]
) -> dict[str, MarginResult]:
    """Return the `MarginResult` of each model that has a margin problem, by its name."""
    # The margin problem of each model on all training samples, even if an SVM was solved on some.
    fitted: dict[str, FittedMargin] = {}
    problems: dict[str, MarginProblem] = {}
    for name, step in steps.items():
        if step.classifier is not None and step.fitted is not None:
            fitted[name] = step.fitted
            signs = step.classifier.signs(y)
            problems[name] = step.fitted.problem(on_train[name].inputs, signs)

    # Bounds of each: the norm at unit margin is an upper bound, dual variables give a lower one.
    certificates = {}
    for name, problem in problems.items():
        solution = fitted[name].solution
        # `FittedMargin.problem` returns the very object that was solved, if the samples are the
        # same. Then its certificate is known.
        if solution is not None and solution.problem is problem:
            certificates[name] = solution.certificate
        else:
            alpha = fitted[name].alpha(problem)
            certificates[name] = certify(problem, fitted[name].coef, alpha, fitted[name].intercept)

    names = list(problems)
    results = {}
    for name, problem in problems.items():
        same_gates = []
        for other in names:
            # Gates are compared by their values at the samples: models of different types may have
            # the same ones. A model is among its own ``same_gates``.
            if problem is problems[other] or problem.has_features_of(problems[other]):
                same_gates.append(other)
        # Any dual variables of a problem bound its optimum: models of one problem share the best.
        optimum = 0.0
        same_problem = []
        for other in same_gates:
            if _same_problem(problem, problems[other]):
                same_problem.append(other)
                optimum = max(optimum, certificates[other].lower)
        # A proof that nothing separates with these gates holds under every norm. But a proof
        # without an intercept says nothing about a problem with one, and with a finite C there
        # always is a solution.
        inseparable = False
        for other in same_gates:
            has_offset = problems[other].intercept or not problem.intercept
            if problem.hard_margin and fitted[other].inseparable and has_offset:
                inseparable = True
        model = fitted[name]
        group_norms = problem.group_norms(model.coef)
        norm = float(group_norms.sum()) or 1.0  # weights of 0 have margins of 0, not of nan
        results[name] = MarginResult(
            fitted=model,
            # Models that share gates, or a problem, have the number of the first of them.
            gates=names.index(same_gates[0]),
            problem=names.index(same_problem[0]),
            inseparable=inseparable,
            certificate=certificates[name],
            optimum=optimum,
            unit_norms=group_norms / norm,
            margins=problem.margins(problem.decision(model.coef), model.offset) / norm,
        )
    return results


def _same_problem(a: MarginProblem, b: MarginProblem) -> bool:
    """Whether two problems of the same gates and groups are the same optimization problem."""
    return (
        np.array_equal(a.C, b.C)
        and a.intercept == b.intercept
        and a.classes == b.classes
        and _equal(_norm_of(a), _norm_of(b))
    )


def _norm_of(problem: MarginProblem) -> Norm:
    """Return the norm of a problem, in one form for each norm.

    A group norm may have groups of its own for each of many classes (``apart``). With two classes
    there is one vector of coefficients, and both forms are the same norm.
    """
    if problem.is_binary_group_lasso:
        return replace(problem.gate_norm, apart=False)
    return problem.norm


def _equal(a: Any, b: Any) -> bool:
    """Whether two norms, or two values of their fields, are the same; some fields are arrays."""
    if is_dataclass(a) and type(a) is type(b):
        given = [each.name for each in fields(a) if each.init]  # and no caches
        return all(_equal(getattr(a, name), getattr(b, name)) for name in given)
    return bool(np.array_equal(a, b))
