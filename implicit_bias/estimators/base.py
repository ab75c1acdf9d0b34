"""What all classifiers share: two classes of any label type, and the margin problem's side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import (
    TYPE_CHECKING,
    Any,
    Self,
    TypeAlias,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from implicit_bias.problem import MarginProblem, Structure
from implicit_bias.solvers import Solution
from implicit_bias.validation import Array

if TYPE_CHECKING:
    from implicit_bias.networks import Network
    from implicit_bias.training.history import HistoryPoint
    from implicit_bias.training.limit import LimitResult
    from implicit_bias.training.minibatch import TrainingResult

    Trainer: TypeAlias = Callable[[Network, Array, Array], TrainingResult | LimitResult]


RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None


@dataclass(frozen=True, eq=False)
class MarginView:
    """A fitted classifier as a solution, good or bad, of a margin problem.

    Attributes
    ----------
    structure : Structure
        Gates, groups and metric.
    coef : ndarray of shape (M, D)
        Its coefficients zeta.
    solution : Solution or None
        What the solver returned, for an SVM.
    C : float
        inf for a network.
    dropped : ndarray of int
        Training samples left out of the problem.
    samples : str
        Fingerprint of the training samples; empty for a network.
    local : bool
        For a network: whether each unit learned by itself, so that no SVM is known to be its limit.
    """

    structure: Structure
    coef: Array
    solution: Solution | None = None
    C: float = np.inf
    dropped: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    samples: str = ""
    local: bool = False

    def problem(self, X: ArrayLike, signs: ArrayLike) -> MarginProblem:
        """Margin problem on samples X (n, D) with labels (n,) in {-1, +1}.

        On the training samples themselves, those that fitting left out are left out again.
        """
        posed = self.structure.problem(X, signs, self.C)
        if len(self.dropped) == 0 or not self._fitted_to(X, signs):
            return posed
        return posed.subset(np.setdiff1d(np.arange(posed.n_samples), self.dropped))

    def alpha(self, X: ArrayLike, signs: ArrayLike) -> Array | None:
        """Dual variables of `problem`; None unless these are the training samples."""
        if self.solution is None or not self._fitted_to(X, signs):
            return None
        return np.delete(self.solution.alpha, self.dropped)

    def _fitted_to(self, X: ArrayLike, signs: ArrayLike) -> bool:
        return self.samples == fingerprint(np.asarray(X), np.asarray(signs))


def fingerprint(X: Array, signs: Array) -> str:
    """Digest of samples: equal for equal inputs (n, D) and labels (n,)."""
    digest = blake2b(digest_size=16)
    for array in (X, signs):
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


class BinaryClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Two classes of any label type, from the sign of a real-valued decision function."""

    classes_: NDArray[Any]
    n_features_in_: int

    @abstractmethod
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to inputs X (n, D) and labels y (n,)."""

    @abstractmethod
    def margin_view(self) -> MarginView | None:
        """Return the margin problem's side of the model; None where it has none."""

    @abstractmethod
    def history(self) -> tuple[HistoryPoint, ...]:
        """Training history; empty where nothing was trained."""

    @abstractmethod
    def _decide(self, X: Array) -> Array:
        """f(x_n), shape (n,), of validated inputs."""

    def decision_function(self, X: ArrayLike) -> Array:
        """Predictor f(x_n), shape (n,); positive for ``classes_[1]``."""
        check_is_fitted(self)
        return self._decide(validate_data(self, X, reset=False, dtype=np.float64, order="C"))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each input, shape (n,)."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def signs(self, y: ArrayLike) -> Array:
        """Labels (n,) as -1 and +1, by the classes seen in fitting.

        Raises
        ------
        ValueError
            A label that fitting did not see.
        """
        check_is_fitted(self)
        labels = np.asarray(y)
        if not np.isin(labels, self.classes_).all():
            raise ValueError(f"labels must be among the fitted classes {self.classes_}")
        return np.where(labels == self.classes_[1], 1.0, -1.0)

    def _validate(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        self.classes_ = np.unique(y)
        if len(self.classes_) == 1:
            raise ValueError(
                f"y contains one class only, {self.classes_.tolist()[0]!r}: a classifier needs "
                "samples of two classes"
            )
        return np.asarray(X), self.signs(y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Make a numpy generator of anything that scikit-learn takes as a seed."""
    # A RandomState lends its bit generator, so that scikit-learn's seeds work as they are.
    bits = random_state._bit_generator if isinstance(random_state, np.random.RandomState) else None
    return np.random.default_rng(random_state if bits is None else bits)
