"""What all classifiers share: two classes of any label type, and the margin problem's side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from implicit_bias.base import validation
from implicit_bias.base.validation import Array
from implicit_bias.bounds.balance import repaired
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.gating import HyperplaneContexts, Threshold
from implicit_bias.solvers import Solution

if TYPE_CHECKING:
    from implicit_bias.training.history import HistoryPoint

ClassWeight: TypeAlias = dict[Any, float] | Literal["balanced"] | None
# Entries of a sparse X that are made dense: 2 GiB.
MOST_ENTRIES = 2**28


class NotSeparableWarning(ConvergenceWarning):  # type: ignore[misc]
    """The samples have no hard margin, so that an SVM has solved another program, or none.

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
        inf for a network; one a sample of the problem where these are weighted.
    dropped : ndarray of int
        Training samples left out of the problem.
    local : bool
        For a network: whether each unit learned by itself, so that no SVM is known to be its limit.
    intercept : float, ndarray of shape (K,), or None
        The free offset of its predictor; None where its program has none.
    relaxed : bool
        For a network: whether the problem has more freedom than it, so that the optimum is only a
        lower bound on the norm that it needs (`Network.relaxed`).
    geometry : str
        For a network: the norm in which its optimizer moves the parameters, "l2" where that is not
        known. The problem's optimum is the limit of training in l2 only.
    failure : Solution or None
        For an SVM: the proof that the hard margin has no solution, where another one was solved.
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
    failure: Solution | None = None

    @property
    def offset(self) -> float | Array:
        """What the predictor adds to that of the coefficients: the intercept, or 0."""
        return 0.0 if self.intercept is None else self.intercept

    def problem(self, X: ArrayLike, signs: ArrayLike) -> MarginProblem:
        """Margin problem on samples X (n, D) with labels (n,) in {-1, +1}.

        On the samples that the model was fitted to it is the problem that was solved, without
        those that fitting left out.

        Raises
        ------
        ValueError
            Other samples than those it was fitted to, of which each had a weight of its own.
        """
        solution, labels = self.solution, np.asarray(signs)
        if solution is not None and len(labels) == len(solution.alpha):
            kept = self._kept if len(self.dropped) else slice(None)
            inputs, labels = self.architecture.inputs(X)[kept], labels[kept]
            if np.array_equal(labels, solution.problem.y) and np.array_equal(
                inputs, solution.problem.X
            ):
                return solution.problem
        if np.ndim(self.C):
            raise ValueError(
                "the SVM has one C a sample, those of its training samples (sample_weight, "
                "class_weight), so that its program is not known for others: pass these"
            )
        return self._posed(X, signs)

    def _posed(self, X: ArrayLike, signs: ArrayLike) -> MarginProblem:
        classes = len(self.coef) if self.coef.ndim == 3 else None
        return self.architecture.problem(X, signs, self.C, self.intercept is not None, classes)

    def alpha(self, problem: MarginProblem) -> Array | None:
        """Dual variables of a problem that `problem` posed; None unless their number fits it.

        They need not be of these samples: any alpha >= 0 proves a lower bound on the optimum,
        balanced between the classes where there is an intercept.
        """
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
        n_fitted = 0 if self.solution is None else len(self.solution.alpha)
        return np.delete(np.arange(n_fitted), self.dropped)


class BinaryClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Classes of any label type, from a real-valued decision function.

    With two classes its sign decides. With more the decision function has one column a class, and
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
        _check_labelled(labels)
        if not np.isin(labels, self.classes_).all():
            raise ValueError(f"labels must be among the fitted classes {self.classes_}")
        if len(self.classes_) > 2:
            return np.searchsorted(self.classes_, labels).astype(np.float64)
        return np.where(labels == self.classes_[1], 1.0, -1.0)

    def _validate(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        X, y = self._checked(X, y)
        self.classes_ = classes_of(y)
        return X, self.signs(y)

    @validation.pointing_to_the_page()
    def _checked(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[Any]]:
        """Check inputs (n, D), sparse ones too, and labels (n,), all of them text or all numbers.

        Raises
        ------
        ValueError
            Labels of both kinds, which numpy makes text; fractions; whole numbers that it rounds.
        """
        X, labels = checked_samples(self, X, y)
        if labels.dtype.kind == "f":
            validation.check_told_apart(y, labels.astype(np.float64), "y")
        if labels.dtype.kind in "OU" and not (isinstance(y, np.ndarray) and y.dtype.kind == "U"):
            types = {type(label) for label in np.asarray(y, dtype=object).ravel().tolist()}
            if not all(issubclass(kind, str) for kind in types):
                names = ", ".join(sorted(kind.__name__ for kind in types))
                raise ValueError(
                    f"Unknown label type: y holds objects of the type {names}: make all labels "
                    "text, by astype(str), or all numbers, by astype(int)"
                )
        check_classification_targets(labels)
        return X, labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Put an estimator back as it was where fitting it anew fails, or is ended by Ctrl-C."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


# How scikit-learn is to check inputs.
AS_INPUTS: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}


def checked_inputs(estimator: BaseEstimator, X: ArrayLike) -> Array:
    """Check that an estimator is fitted to inputs such as X (n, D), sparse ones too."""
    check_is_fitted(estimator)
    return _validated(estimator, X, reset=False)


def _check_labelled(labels: NDArray[Any]) -> None:
    """Refuse objects or dates of which some stand for a missing label."""
    if labels.dtype.kind in "OMm":
        import pandas as pd  # which knows all that stand for one

        if lacking := int(pd.isna(labels).sum()):
            raise ValueError(f"y lacks the labels of {lacking} samples: leave these out")


def checked_samples(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike, **how: Any
) -> tuple[Array, NDArray[Any]]:
    """Check inputs (n, D), sparse ones too, and labels or targets (n,), which none may lack."""
    for parameter in fields(estimator) if is_dataclass(estimator) else ():
        value = getattr(estimator, parameter.name, None)
        optional = parameter.type == "bool | None" and value is not None
        if parameter.init and (optional or parameter.type in (bool, "bool")):
            validation.check_flag(value, parameter.name)
    validation.check_not_masked(y, "y")
    y = _plain(validation.detached(y), "y")
    if sp.issparse(y):
        raise ValueError("y must be dense, but is sparse: pass y.toarray()")
    if y is not None:
        labels = np.asarray(y)
        if labels.dtype.names is not None:
            raise ValueError(f"y has named fields: pass one of {', '.join(labels.dtype.names)}")
        if labels.shape[1:] != (1,) and "multi_output" not in how:
            validation.check_one_each(labels, "y")
        _check_labelled(labels)
        y = labels.astype(object) if labels.dtype.kind == "T" else y
    inputs, y = _validated(estimator, X, y, **how)
    return inputs, np.asarray(y)


def _plain(table: Any, name: str) -> Any:
    """Return what scikit-learn takes of a frame; anything else as it is.

    Raises
    ------
    ValueError
        Several columns of one name.
    """
    names = list(getattr(table, "columns", ()))
    if len(names) > len({*map(str, names)}):
        raise ValueError(f"{name} has several columns of one name: rename them")
    if not hasattr(table, "sparse"):
        return table
    kinds = table.dtypes if hasattr(table, "columns") else [table.dtype]
    filled = any(kind.fill_value != 0 for kind in kinds)
    return table.sparse.to_dense() if filled else table


def _validated(estimator: BaseEstimator, X: Any, *y: Any, **how: Any) -> Any:
    """Check as scikit-learn does, and what it does not: no mask, dates or rounding gets lost.

    Raises
    ------
    ValueError
        Sparse inputs of more than MOST_ENTRIES entries, too.
    """
    validation.check_not_masked(X, "X")
    X = validation.detached(X)
    if hasattr(X, "to_pandas") and not hasattr(X, "dtypes"):
        X = X.to_pandas()  # a table of pyarrow, whose dates would become numbers
    for column in X.dtypes if hasattr(X, "columns") else [getattr(X, "dtype", None)]:
        if getattr(column, "kind", "") in validation.DATES:
            raise ValueError("X has dates or durations: pass numbers of a unit that you choose")
    X = _plain(X, "X")
    try:
        checked = validate_data(estimator, X, *y, **AS_INPUTS, **how)
    except OverflowError as error:
        raise ValueError(f"X has numbers beyond the range of float64: {error}") from error
    inputs = checked[0] if y else checked
    if not sp.issparse(inputs):
        inputs = np.asarray(inputs)
        validation.check_told_apart(X, inputs, "X")
    else:
        entries = sp.coo_matrix(X).data
        validation.check_told_apart(entries, entries.astype(np.float64), "X")
        inputs = dense(inputs)
    return (inputs, *checked[1:]) if y else inputs


def dense(X: Any) -> Any:
    """Return a sparse X (n, D) as an array, and anything else as it is."""
    if not sp.issparse(X):
        return X
    if (entries := X.shape[0] * X.shape[1]) > MOST_ENTRIES:
        raise ValueError(
            f"X is sparse and would take {8 * entries / 2**30:.1f} GiB as a dense array, which "
            f"these classifiers need, more than {8 * MOST_ENTRIES / 2**30:.0f}: select or project "
            "features first (SelectKBest, TruncatedSVD), or pass fewer samples"
        )
    return np.asarray(X.toarray(order="C"))


def sample_weights(
    sample_weight: ArrayLike | None, class_weight: ClassWeight, X: Array, y: NDArray[Any]
) -> Array:
    """Return the weight of each sample, (n,): its own times that of its class.

    Raises
    ------
    ValueError
        Negative, not finite, all 0, of another shape, or names of classes that do not occur.
    """
    if sample_weight is not None:
        sample_weight = validation.as_numbers(sample_weight, "sample_weight")
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
    if class_weight is not None:
        classes, codes = np.unique(y, return_inverse=True)
        if isinstance(class_weight, str):
            validation.check_choice(class_weight, "class_weight", ("balanced",), "a dict")
            sums = np.bincount(codes, weights)
            of_classes = sums.sum() / np.count_nonzero(sums) / np.where(sums > 0, sums, 1.0)
        else:
            of_classes = compute_class_weight(class_weight, classes=classes, y=y)
        weights = weights * of_classes[codes]
    if not ((np.isfinite(weights) & (weights >= 0)).all() and weights.any()):
        raise ValueError(
            "weights of samples and classes must be finite, not negative and not all zero, got "
            f"{weights.min():.3g} to {weights.max():.3g}: 0 leaves a sample out"
        )
    return weights


def classes_of(y: ArrayLike) -> NDArray[Any]:
    """Return the classes of labels, in order, and refuse a single one."""
    classes: NDArray[Any] = np.unique(np.asarray(y))
    if len(classes) == 1:
        raise ValueError(
            f"y contains one class only, {classes.tolist()[0]!r}: a classifier needs samples of "
            "two classes at least, of weights that are not zero"
        )
    return classes


class DrawsContexts(Protocol):
    """A classifier whose hidden units have hyperplanes, drawn or given."""

    n_hyperplanes: int
    threshold: Threshold
    contexts: HyperplaneContexts | None


def drawn_or_given(
    model: DrawsContexts, X: Array, n_units: int, rng: np.random.Generator
) -> HyperplaneContexts:
    """Return the contexts that a classifier was given, or draw those of its parameters."""
    given = model.contexts
    if given is None:
        return HyperplaneContexts.random(
            X, n_units, model.n_hyperplanes, threshold=model.threshold, random_state=rng
        )
    if not isinstance(given, HyperplaneContexts):
        raise TypeError(
            f"contexts must be HyperplaneContexts or None, not {given!r}: for a number of contexts "
            "2^k pass n_hyperplanes=k"
        )
    return given
