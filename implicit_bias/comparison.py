"""Compare classifiers: errors, disagreement beyond chance, and how far each is from the limit.

On the evaluation samples: the error p of each model; for each pair the disagreement, the
disagreement p (1 - q) + q (1 - p) expected by chance of independent models with these errors,
their ratio, and Cohen's kappa. On the training samples, for the models with a margin structure
(SVMs, and networks of one hidden layer): the smallest margin at norm 1, the norm at margin 1,
its excess over the certified optimum of that structure, active units, and support vectors.

Source: Lippl, Abbott, Chung (2022), section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.certificate import Certificate, Status, certify
from implicit_bias.estimators.base import BinaryClassifier, MarginView
from implicit_bias.problem import MarginProblem
from implicit_bias.stationarity import live_units
from implicit_bias.validation import Array

if TYPE_CHECKING:
    import pandas as pd

    from implicit_bias.training.history import HistoryPoint


class Predicts(Protocol):
    """Any fitted scikit-learn classifier."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each input."""


@dataclass(frozen=True, eq=False)
class MarginResult:
    """A model as a solution of its margin problem on the training samples.

    Attributes
    ----------
    program : int
        Equal for models that solve one and the same program (gates, groups, metric, C).
    certificate : Certificate
        Bounds from the model's coefficients and, for an SVM, its dual variables.
    optimum : float
        Largest certified lower bound on the optimal norm among the compared models of the same
        structure; 0 where none has dual variables.
    min_margin : float
        min_n y_n f(x_n) / norm: with a hard margin at most 1 / optimum; negative where a sample
        is misclassified.
    norm : float
        Norm at smallest margin 1 (with C finite: the primal value); inf where not separated.
    excess : float
        norm / optimum - 1; nan where no optimum is known.
    unit_norms : ndarray of shape (G,)
        Share of each group in the norm.
    active_units : int
        Groups that the norm has not switched off: for an SVM by its multipliers, for a network
        those with at least 1 % of the largest norm.
    support_vectors : int or None
        For an SVM that separates its training samples.
    status : Status or None
        How the solve ended, for an SVM.
    C : float
        Weight of the hinge loss in its program.
    dropped : int
        Training samples left out of its program, because they cannot be separated with the rest.
    margins : ndarray of shape (N,)
        y_n f(x_n) / norm of each training sample.
    local : bool
        For a network: whether each unit learned by itself, so that no SVM is known to be its limit.
    """

    program: int
    certificate: Certificate
    optimum: float
    min_margin: float
    norm: float
    excess: float
    unit_norms: Array
    active_units: int
    support_vectors: int | None
    status: Status | None
    C: float
    dropped: int
    margins: Array
    local: bool


@dataclass(frozen=True, eq=False)
class ModelResult:
    """One model of a comparison.

    Attributes
    ----------
    name : str
        As the user called it.
    error : float
        Share of evaluation samples on the wrong side; f(x) = 0 counts as wrong. nan for an SVM
        that found no predictor, because its training samples are not separable.
    train_error : float
        The same on the training samples; nan where they were not given.
    margin : MarginResult or None
        For models with a margin structure, where training samples were given.
    history : tuple of HistoryPoint
        Training history of a network; empty for an SVM.
    unseen : int
        Evaluation samples in a context (of one unit at least) that no training sample was in.
    """

    name: str
    error: float
    train_error: float
    margin: MarginResult | None
    history: tuple[HistoryPoint, ...]
    unseen: int = 0


@dataclass(frozen=True)
class PairResult:
    """Two models on the evaluation samples.

    Attributes
    ----------
    first, second : str
        Their names.
    disagreement : float
        Share of samples on which their predictions differ; nan, like the rest, where one of them
        has no predictor.
    by_chance : float
        p (1 - q) + q (1 - p): what independent models of these errors would show.
    ratio : float
        disagreement / by_chance; nan where both models make no error.
    kappa : float
        Cohen's kappa of the predictions; nan where both predict one same class throughout.
    """

    first: str
    second: str
    disagreement: float
    by_chance: float
    ratio: float
    kappa: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    models : tuple of ModelResult
        In the order given.
    pairs : tuple of PairResult
        Each pair once.
    n_samples : int
        Evaluation samples.
    n_train : int
        Training samples; 0 where they were not given.
    """

    models: tuple[ModelResult, ...]
    pairs: tuple[PairResult, ...]
    n_samples: int
    n_train: int

    def model(self, name: str) -> ModelResult:
        """Return the model of this name; KeyError if there is none."""
        return {model.name: model for model in self.models}[name]

    def pair(self, first: str, second: str) -> PairResult:
        """Return the pair of these names, in either order; KeyError if there is none."""
        pairs = {frozenset((pair.first, pair.second)): pair for pair in self.pairs}
        return pairs[frozenset((first, second))]

    def model_frame(self) -> pd.DataFrame:
        """One row a model: scalars only."""
        import pandas as pd

        return pd.DataFrame([_model_row(model) for model in self.models])

    def pair_frame(self) -> pd.DataFrame:
        """One row a pair."""
        import pandas as pd

        return pd.DataFrame([asdict(pair) for pair in self.pairs])


def compare(
    models: Mapping[str, Predicts],
    X: ArrayLike,
    y: ArrayLike,
    *,
    train: tuple[ArrayLike, ArrayLike] | None = None,
) -> Comparison:
    """Compare fitted classifiers on evaluation samples.

    Parameters
    ----------
    models : mapping from name to fitted classifier
        This package's classifiers, or any of scikit-learn's interface (errors and disagreement
        only).
    X : array_like of shape (n, D)
        Evaluation inputs.
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
        No models, no samples, or labels that a model does not know.
    """
    labels = np.asarray(y)
    if not models or len(labels) == 0:
        raise ValueError("compare needs at least one fitted model and one evaluation sample")
    for model in models.values():
        if isinstance(model, BinaryClassifier):
            model.signs(labels)  # refuses labels that it does not know
    predictions = {name: _predictions(model, X) for name, model in models.items()}
    errors = {name: _error(model, predictions[name], labels) for name, model in models.items()}
    margins: dict[str, MarginResult] = {}
    train_errors: dict[str, float] = {}
    if train is not None:
        margins = _margin_results(models, *train)
        train_errors = {
            name: _error(model, _predictions(model, train[0]), np.asarray(train[1]))
            for name, model in models.items()
        }
    return Comparison(
        models=tuple(
            ModelResult(
                name=name,
                error=errors[name],
                train_error=train_errors.get(name, np.nan),
                margin=margins.get(name),
                history=model.history() if isinstance(model, BinaryClassifier) else (),
                unseen=_unseen(model, X),
            )
            for name, model in models.items()
        ),
        pairs=tuple(
            _pair(first, second, predictions, errors) for first, second in combinations(models, 2)
        ),
        n_samples=len(labels),
        n_train=0 if train is None else len(np.asarray(train[1])),
    )


def margin_view(model: Predicts) -> MarginView | None:
    """Return the margin problem's side of a model; None for models that have none."""
    return model.margin_view() if isinstance(model, BinaryClassifier) else None


def _predictions(model: Predicts, X: ArrayLike) -> NDArray[Any]:
    """Classes (n,); None, which no label equals, where the model is undecided (f = 0)."""
    predicted = np.asarray(model.predict(X), dtype=object)
    if isinstance(model, BinaryClassifier):
        predicted[model.decision_function(X) == 0] = None
    return predicted


def _unseen(model: Predicts, X: ArrayLike) -> int:
    view = margin_view(model)
    if view is None:
        return 0
    return int(np.count_nonzero(view.structure.gating.unseen(view.structure.inputs(X))))


def _error(model: Predicts, predicted: NDArray[Any], labels: NDArray[Any]) -> float:
    view = margin_view(model)
    solution = None if view is None else view.solution
    if solution is not None and solution.status is Status.NOT_SEPARABLE:
        return np.nan
    return float((predicted != labels).mean())


def _pair(
    first: str,
    second: str,
    predictions: Mapping[str, NDArray[Any]],
    errors: Mapping[str, float],
) -> PairResult:
    p, q = errors[first], errors[second]
    if np.isnan(p) or np.isnan(q):
        return PairResult(first, second, np.nan, np.nan, np.nan, np.nan)
    disagreement = float((predictions[first] != predictions[second]).mean())
    by_chance = p * (1 - q) + q * (1 - p)
    return PairResult(
        first=first,
        second=second,
        disagreement=disagreement,
        by_chance=by_chance,
        ratio=disagreement / by_chance if by_chance > 0 else np.nan,
        kappa=_kappa(predictions[first], predictions[second]),
    )


def _kappa(first: NDArray[Any], second: NDArray[Any]) -> float:
    from sklearn.metrics import cohen_kappa_score

    first, second = first.astype(str), second.astype(str)
    if len(np.unique([first, second])) == 1:
        return np.nan
    return float(cohen_kappa_score(first, second))


def _margin_results(
    models: Mapping[str, Predicts], X: ArrayLike, y: ArrayLike
) -> dict[str, MarginResult]:
    views: dict[str, MarginView] = {}
    problems: dict[str, MarginProblem] = {}
    certificates: dict[str, Certificate] = {}
    for name, model in models.items():
        view = margin_view(model)
        if view is None or not isinstance(model, BinaryClassifier):
            continue
        problem = view.problem(X, model.signs(y))
        views[name], problems[name] = view, problem
        certificates[name] = certify(problem, coef=view.coef, alpha=view.alpha(problem))
    names = list(problems)
    results = {}
    for name, problem in problems.items():
        twins = [other for other in names if _same_program(problem, problems[other])]
        results[name] = _margin_result(
            views[name],
            problem,
            certificates[name],
            program=names.index(twins[0]),
            optimum=max(certificates[twin].lower for twin in twins),
        )
    return results


def _margin_result(
    view: MarginView,
    problem: MarginProblem,
    certificate: Certificate,
    *,
    program: int,
    optimum: float,
) -> MarginResult:
    group_norms = problem.group_norms(view.coef)
    total = float(group_norms.sum())
    norm = total if total > 0 else 1.0
    solution = view.solution
    active = live_units(group_norms) if solution is None else solution.active
    separated = solution is not None and solution.status is not Status.NOT_SEPARABLE
    return MarginResult(
        program=program,
        certificate=certificate,
        optimum=optimum,
        min_margin=certificate.min_margin / norm,
        norm=certificate.upper,
        excess=certificate.upper / optimum - 1.0 if 0 < optimum < np.inf else np.nan,
        unit_norms=group_norms / norm,
        active_units=int(np.count_nonzero(active)),
        support_vectors=len(solution.support) if solution is not None and separated else None,
        status=None if solution is None else solution.status,
        C=view.C,
        dropped=len(view.dropped),
        margins=problem.y * problem.decision(view.coef) / norm,
        local=view.local,
    )


def _same_program(a: MarginProblem, b: MarginProblem) -> bool:
    """Whether two problems on the same samples are one and the same program."""
    if a is b:
        return True
    metric_a, metric_b = a.metric or {}, b.metric or {}
    return (
        a.C == b.C
        and a.has_gates_of(b)
        and metric_a.keys() == metric_b.keys()
        and all(np.array_equal(metric_a[g], metric_b[g]) for g in metric_a)
    )


def _model_row(model: ModelResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": model.name,
        "error": model.error,
        "train_error": model.train_error,
        "unseen": model.unseen,
    }
    margin = model.margin
    if margin is not None:
        row |= {
            "min_margin": margin.min_margin,
            "norm": margin.norm,
            "optimum": margin.optimum,
            "excess": margin.excess,
            "gap": margin.certificate.gap,
            "units": len(margin.unit_norms),
            "active_units": margin.active_units,
            "support_vectors": margin.support_vectors,
            "C": margin.C,
            "dropped": margin.dropped,
            "status": None if margin.status is None else margin.status.label,
        }
    return row
