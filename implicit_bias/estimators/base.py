"""What the estimators share: checks of samples and weights, and the margin problem's side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from implicit_bias.base.validation import (
    Array,
    check_choice,
    check_columns,
    check_one_type,
    detached,
    pointing_to_the_page,
)
from implicit_bias.bounds.balance import repaired
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.gating import HyperplaneContexts, Threshold
from implicit_bias.solvers import Solution

if TYPE_CHECKING:
    from implicit_bias.training.history import HistoryPoint

ClassWeight: TypeAlias = dict[Any, float] | Literal["balanced"] | None
# How scikit-learn is to check inputs.
AS_INPUTS: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}


# --- checks, called by `fit` and `predict` alone -----------------------------------------------


@pointing_to_the_page()
def checked_samples(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, **how: Any
) -> tuple[Array, NDArray[Any]]:
    """Check inputs (n, D) and labels or targets (n,) as scikit-learn does, and return them."""
    check_columns(X, "X")
    inputs, labels = validate_data(estimator, detached(X), detached(y), **AS_INPUTS, **how)
    return dense(inputs), np.asarray(labels)


def checked_inputs(estimator: BaseEstimator, X: ArrayLike) -> Array:
    """Check that an estimator is fitted to inputs such as X (n, D), and return them."""
    check_is_fitted(estimator)
    check_columns(X, "X")
    return dense(validate_data(estimator, detached(X), reset=False, **AS_INPUTS))


def dense(X: Any) -> Any:
    """Return a sparse X (n, D) as an array, and anything else as it is."""
    if sp.issparse(X):
        return np.asarray(X.toarray(order="C"))
    return X


def sample_weights(
    sample_weight: ArrayLike | None, class_weight: ClassWeight, X: Array, y: NDArray[Any]
) -> Array:
    """Return the weight of each sample, (n,): its own times that of its class.

    Raises
    ------
    ValueError
        Negative, not finite, all 0, of another shape, or names of classes that do not occur.
    """
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
    if class_weight is not None:
        classes, codes = np.unique(y, return_inverse=True)
        if isinstance(class_weight, str):
            check_choice(class_weight, "class_weight", ("balanced",), "a dict")
            # Each class that has a sample of positive weight gets the same sum.
            # Weighted: samples of weight 0 are as good as absent, and a class of them must not
            # count.
            sums = np.bincount(codes, weights)
            factors = sums.sum() / np.count_nonzero(sums) / np.where(sums > 0, sums, 1.0)
        else:
            factors = compute_class_weight(class_weight, classes=classes, y=y)
        weights = weights * factors[codes]
    if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
        raise ValueError(
            "weights of samples and classes must be finite, not negative and not all zero, got "
            f"{weights.min():.3g} to {weights.max():.3g}: 0 leaves a sample out"
        )
    return weights


def classes_of(y: NDArray[Any]) -> NDArray[Any]:
    """Return the classes of labels, in order, and refuse a single one."""
    classes: NDArray[Any] = np.unique(y)
    if len(classes) == 1:
        raise ValueError(
            f"y contains one class only, {classes.tolist()[0]!r}: a classifier needs samples of "
            "two classes at least, of weights that are not zero"
        )
    return classes


def contexts_of(
    given: HyperplaneContexts | None,
    X: Array,
    n_units: int,
    n_hyperplanes: int,
    threshold: Threshold,
    rng: np.random.Generator,
) -> HyperplaneContexts:
    """Return the contexts that a classifier was given, or draw those of its parameters."""
    if given is None:
        return HyperplaneContexts.random(
            X, n_units, n_hyperplanes, threshold=threshold, random_state=rng
        )
    return given


# --- what `margin_view` returns ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FittedMargin:
    """A fitted classifier as a solution, good or bad, of a margin problem.

    Attributes
    ----------
    architecture : Architecture
        Gates and groups.
    coef : ndarray of shape (M, D) or (K, M, D)
        Its coefficients zeta.
    solution : Solution or None
        What the solver returned, for an SVM.
    C : float or ndarray of shape (N,)
        inf for a network; one per sample of the problem where these are weighted.
    dropped : ndarray of int
        Training samples left out of the problem.
    local : bool
        For a network: whether each unit learned by itself, so that no SVM is known to be its limit.
    intercept : float, ndarray of shape (K,), or None
        The unpenalized intercept of its predictor; None where its problem has none.
    relaxed : bool
        For a network: whether the problem has more freedom than it, so that the optimum is only a
        lower bound on the norm that it needs (`Network.relaxed`).
    geometry : str
        For a network: the norm in which its optimizer moves the parameters, "l2" where that is not
        known. The problem's optimum is the limit of training in l2 only.
    constrained : bool
        For a network: whether weight decay bounded its weights, so that no margin is maximized.
    failure : Solution or None
        For an SVM: the proof that the hard margin has no solution; ``solution`` itself where no
        other problem was solved.
    """

    architecture: Architecture
    coef: Array
    solution: Solution | None = None
    C: float | Array = np.inf
    dropped: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    local: bool = False
    intercept: float | Array | None = None
    relaxed: bool = False
    geometry: str = "l2"
    constrained: bool = False
    failure: Solution | None = None

    @property
    def offset(self) -> float | Array:
        """What the predictor adds to that of the coefficients: the intercept, or 0."""
        if self.intercept is None:
            return 0.0
        return self.intercept

    def problem(self, X: ArrayLike, signs: ArrayLike) -> MarginProblem:
        """Margin problem on samples X (n, D) with labels (n,) in {-1, +1}.

        On the samples that the model was fitted to it is the problem that was solved, without
        those that fitting left out.

        Raises
        ------
        ValueError
            Other samples than those it was fitted to: each of those had its own weight.
        """
        solution = self.solution
        labels = np.asarray(signs)
        # The problem that was solved has the dual variables and, where weighted, its samples' C.
        if solution is not None and len(labels) == len(solution.alpha):
            # In the inputs of the problem, which of a hidden layer are its activations.
            inputs = self.architecture.inputs(X)[self._kept]
            solved = solution.problem
            same_labels = np.array_equal(labels[self._kept], solved.y)
            if same_labels and np.array_equal(inputs, solved.X):
                return solved
        if np.ndim(self.C):
            raise ValueError(
                "the SVM has one C per sample, those of its training samples (sample_weight, "
                "class_weight), so that its problem is not known for others: pass these"
            )
        # Some samples may lack a class, so the number of classes is that of the coefficients.
        classes: int | None = None
        if self.coef.ndim == 3:
            classes = len(self.coef)
        has_intercept = self.intercept is not None
        return self.architecture.problem(X, signs, self.C, has_intercept, classes)

    def alpha(self, problem: MarginProblem) -> Array | None:
        """Dual variables of a problem that `problem` built; None unless their number fits it.

        They need not be of these samples: any alpha >= 0 proves a lower bound on the optimum,
        balanced between the classes where there is an intercept.
        """
        # Of other samples, as many as were fitted, the same alpha are a bound, if a weak one.
        if self.solution is None or problem.n_samples != len(self._kept):
            return None
        alpha = self.solution.alpha[self._kept]
        return repaired(problem, alpha, problem.box)

    @property
    def has_predictor(self) -> bool:
        """Whether there are coefficients; False for an SVM whose samples are not separable."""
        return self.solution is None or not self.solution.status.inseparable

    @property
    def inseparable(self) -> bool:
        """Whether an SVM has proven that no coefficients separate the samples of its problem."""
        # A soft margin was solved because nothing separates the samples: its failure is the proof.
        soft = bool(np.isfinite(self.C).all())
        return not self.has_predictor or (soft and self.failure is not None)

    @property
    def support(self) -> NDArray[np.int64]:
        """Support vectors, as indices of the training samples; none for a network."""
        if self.solution is None or not self.has_predictor:
            return np.zeros(0, dtype=np.int64)
        return self.solution.support

    @property
    def _kept(self) -> NDArray[np.int64]:
        """Training samples that the problem of an SVM has, shape (N,)."""
        if self.solution is None:
            return np.zeros(0, dtype=np.int64)
        return np.delete(np.arange(len(self.solution.alpha)), self.dropped)


# --- classifiers -------------------------------------------------------------------------------


class NotSeparableWarning(ConvergenceWarning):  # type: ignore[misc]
    """The samples have no hard margin, so that an SVM has solved another problem, or none.

    ``failure_`` of the SVM has the proof, and ``on_failure`` says what it does then:
    ``on_failure="raise"`` has an error instead.

    Examples
    --------
    >>> import warnings
    >>> from implicit_bias import MaxMarginSVC
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = MaxMarginSVC().fit([[0.0], [1.0], [2.0]], [0, 1, 0])
    >>> caught[0].category.__name__, model.failure_.status.label, model.solution_.status.label
    ('NotSeparableWarning', 'not separable', 'optimal')
    """


class BinaryClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Classes of any label type, from a real-valued decision function.

    With two classes its sign decides. With more the decision function has one column per class, and
    the largest decides.
    """

    classes_: NDArray[Any]
    n_features_in_: int

    @abstractmethod
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to inputs X (n, D) and labels y (n,)."""

    def margin_view(self) -> FittedMargin | None:
        """Return the margin problem's side of the model; None where it has none."""
        return None

    def history(self) -> tuple[HistoryPoint, ...]:
        """Training history; empty where nothing was trained."""
        return ()

    @abstractmethod
    def _decide(self, X: Array) -> Array:
        """f(x_n), shape (n,), of validated inputs."""

    def decision_function(self, X: ArrayLike) -> Array:
        """Predictor f(x_n), (n,), positive for ``classes_[1]``; (n, K) with more classes."""
        return self._decide(checked_inputs(self, X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class of each input, shape (n,)."""
        return self.classes_of(self.decision_function(X))

    def classes_of(self, decision: Array) -> NDArray[Any]:
        """Class (n,) of each value of the predictor, (n,) or (n, K)."""
        if decision.ndim == 2:
            return self.classes_[decision.argmax(axis=1)]
        # f(x) = 0 goes to the first class: predict has to answer; `compare` counts it as undecided.
        return self.classes_[(decision > 0).astype(int)]

    def signs(self, y: ArrayLike) -> Array:
        """Labels (n,) as -1 and +1, by the classes seen in fitting; more classes as 0 .. K - 1.

        Raises
        ------
        ValueError
            A label that fitting did not see.
        """
        check_is_fitted(self)
        labels = np.asarray(y)
        # searchsorted would give an unknown label the place of a known one.
        if not np.isin(labels, self.classes_).all():
            raise ValueError(f"labels must be among the fitted classes {self.classes_}")
        if len(self.classes_) > 2:
            return np.searchsorted(self.classes_, labels).astype(np.float64)
        return np.where(labels == self.classes_[1], 1.0, -1.0)

    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[Any]]:
        """Return inputs (n, D) and labels (n,) of any type."""
        if y is not None:
            given = np.asarray(detached(y))
            missing = np.sum(pd.isna(given))  # scikit-learn overlooks None
            if missing:
                raise ValueError(
                    f"y lacks the labels of {missing} samples (NaN or None): leave these out"
                )
            check_one_type(given, "y")
        X, labels = checked_samples(self, X, y)
        check_classification_targets(labels)
        return X, labels

    def _validate(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        """Return inputs (n, D) and labels (n,) as `signs` has them, and set ``classes_``."""
        X, labels = self._checked(X, y)
        self.classes_ = classes_of(labels)
        return X, self.signs(labels)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
