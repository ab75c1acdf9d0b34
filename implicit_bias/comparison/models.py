"""What a fitted classifier answers: its predictions, and the margin problem that it solves.

A pipeline is its last step on the inputs that the steps before it make, and a search such as
scikit-learn's GridSearchCV is the best model that it found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from implicit_bias.base.counts import Count
from implicit_bias.base.validation import Array
from implicit_bias.bounds.status import Status
from implicit_bias.estimators.base import BinaryClassifier, FittedMargin, dense
from implicit_bias.estimators.networks import NetworkClassifier
from implicit_bias.estimators.svm import GatedReLUSVC, HiddenLayerSVC

if TYPE_CHECKING:
    from implicit_bias.estimators.networks import AnyTraining


@runtime_checkable
class Predicts(Protocol):
    """Any fitted scikit-learn classifier."""

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each input."""


@runtime_checkable
class Searched(Protocol):
    """A search such as scikit-learn's GridSearchCV, which predicts by the best that it found."""

    best_estimator_: Predicts


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model answers for samples.

    Attributes
    ----------
    inputs : array_like of shape (n, D)
        The inputs of its last step; dense for a classifier of this package.
    classes : ndarray of shape (n,)
        The predicted classes; None, which equals no label, where the model is undecided.
    wrong : ndarray of bool, shape (n,)
        Which of these differ from the labels; empty, shape (0,), without a predictor.
    scores : mapping from class to ndarray of shape (n,)
        Decision values; of two classes f(x) is that of the second. Empty for a classifier of
        another package.
    """

    inputs: ArrayLike
    classes: NDArray[Any]
    wrong: NDArray[np.bool_]
    scores: Mapping[Any, Array]

    @property
    def count(self) -> Count | None:
        """How many are wrong; None without a predictor."""
        if len(self.wrong) == 0:
            return None
        return Count(int(np.count_nonzero(self.wrong)), len(self.wrong))


@dataclass(frozen=True, eq=False)
class LastStep:
    """The classifier that predicts, and how its inputs are made.

    Attributes
    ----------
    model : Predicts
        The classifier.
    transform : callable
        Makes its inputs from those that the pipeline is given.
    """

    model: Predicts
    transform: Callable[[ArrayLike], ArrayLike]

    @property
    def classifier(self) -> BinaryClassifier | None:
        """The model, if it is a classifier of this package."""
        if isinstance(self.model, BinaryClassifier):
            return self.model
        return None

    @cached_property
    def fitted(self) -> FittedMargin | None:
        """The model as a solution of a margin problem; None where it is none."""
        if self.classifier is None:
            return None
        return self.classifier.margin_view()

    def predictions(self, X: ArrayLike, y: NDArray[Any]) -> Predictions:
        """Predict the classes of samples X (n, D), which the whole pipeline is given.

        Raises
        ------
        ValueError
            Labels (n,) that the model does not know, or not one per sample.
        """
        inputs = self.transform(X)
        scores: dict[Any, Array] = {}
        if self.classifier is None:
            # As objects, so that None can stand for an undecided model beside labels of any type.
            predicted = np.asarray(self.model.predict(inputs), dtype=object)
        else:
            self.classifier.signs(y)  # refuses labels that the model does not know
            inputs = dense(inputs)  # a pipeline may make sparse ones
            decision = self.classifier.decision_function(inputs)
            predicted = self.classifier.classes_of(decision).astype(object)
            classes = self.classifier.classes_.tolist()
            # A model is undecided where f(x) = 0, or where two f_k(x) are the largest.
            if decision.ndim == 1:
                undecided = decision == 0
                scores = {classes[-1]: decision}
            else:
                undecided = (decision == decision.max(axis=1, keepdims=True)).sum(axis=1) > 1
                scores = dict(zip(classes, decision.T, strict=True))
            predicted[undecided] = None
        if predicted.shape != y.shape:
            raise ValueError(
                f"labels have the shape {y.shape}, and predictions {predicted.shape}: pass one "
                "label a sample"
            )
        # None differs from every label, so an undecided model is wrong.
        wrong = np.asarray(predicted != y, dtype=bool)
        # An SVM without a predictor has coefficients 0, whose errors would mean nothing.
        if self.fitted is not None and not self.fitted.has_predictor:
            wrong = wrong[:0]
        return Predictions(inputs, predicted, wrong, scores)


def last_step(model: Predicts) -> LastStep:
    """Return the classifier of this package that a pipeline ends in; else the model as it is.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from implicit_bias import MaxMarginSVC
    >>> pipeline = make_pipeline(StandardScaler(), MaxMarginSVC())
    >>> last_step(pipeline.fit([[1.0], [3.0]], [0, 1])).transform([[2.0]]).tolist()
    [[0.0]]
    """
    if isinstance(model, Searched):
        return last_step(model.best_estimator_)
    if isinstance(model, Pipeline):
        # The last step may be a pipeline or a search itself.
        last = last_step(model.steps[-1][1])
        # A slice of a pipeline shares its fitted steps.
        before = model[:-1]

        def transform(X: ArrayLike) -> ArrayLike:
            if len(before):
                X = before.transform(X)
            return last.transform(X)

        # A pipeline that ends in a classifier of another package predicts as a whole: there are no
        # margins, so that the inputs of that classifier are not needed.
        if last.classifier is not None:
            return LastStep(last.model, transform)
    return LastStep(model, lambda X: X)


def training_of(model: Predicts) -> AnyTraining | None:
    """Training of a network, or of the network whose gates or activations an SVM was given."""
    match model:
        case (
            (NetworkClassifier() as network)
            | GatedReLUSVC(gates=NetworkClassifier() as network)
            | HiddenLayerSVC(network=NetworkClassifier() as network)
        ):
            return network.training_
    return None


def is_interrupted(model: Predicts) -> bool:
    """Whether Ctrl-C ended the solve of a fitted model, or the training that it rests on."""
    training = training_of(model)
    # An SVM on the gates of a network is as unfinished as that network.
    if training is not None and training.interrupted:
        return True
    fitted = last_step(model).fitted
    if fitted is None or fitted.solution is None:
        return False
    return fitted.solution.status is Status.INTERRUPTED
