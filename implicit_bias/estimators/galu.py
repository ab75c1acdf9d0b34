"""GaLU networks with random gates, fitted in closed form: a regressor and a classifier.

What their papers prove of them, theorem by theorem, is in `benchmarks/fiat2019`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin

from implicit_bias.base.validation import Array, RandomState, as_generator
from implicit_bias.estimators import base
from implicit_bias.kernels.least_squares import LeastSquares, least_squares
from implicit_bias.problem.gating import GateFunction, UnitGates

GateThreshold: TypeAlias = Literal["median", "random", "zero"]


@dataclass(eq=False, repr=False)
class _GaLU(BaseEstimator):  # type: ignore[misc]
    """Random gates, a constant feature, and least squares."""

    n_units: int = 50
    _: KW_ONLY
    gates: GateFunction = ">="
    threshold: GateThreshold = "zero"
    always_on: bool = False
    fit_intercept: bool = True
    ridge: float = 0.0
    random_state: RandomState = None

    # What `fit` sets.
    n_features_in_: int = field(init=False)
    gating_: UnitGates = field(init=False)
    fit_: LeastSquares = field(init=False)

    def _fit_targets(self, X: Array, targets: Array) -> None:
        """Draw the gates, and fit targets (n,) or (n, p)."""
        self.gating_ = UnitGates.random(
            X,
            self.n_units,
            threshold=self.threshold,
            firing=self.gates,
            always_on=self.always_on,
            random_state=as_generator(self.random_state),
        )
        gates = self.gating_.gates(X)
        self.fit_ = least_squares(self._inputs(X), gates, targets, ridge=self.ridge)
        self.coef_ = self.fit_.coef
        self.rank_ = self.fit_.rank

    def _inputs(self, X: Array) -> Array:
        """Append a 1 to the inputs of the linear maps, so that each unit has a bias."""
        if not self.fit_intercept:
            return X
        return np.column_stack([X, np.ones(len(X))])

    def _decide(self, X: Array) -> Array:
        """Predictor f(x_n), shape (n,) or (n, p)."""
        return self.fit_.decision(self._inputs(X), self.gating_.gates(X))


class GaLURegressor(RegressorMixin, _GaLU):  # type: ignore[misc]
    """Least squares on the features of a GaLU network with one hidden layer of random gates.

    f(x) = sum_h z_h(x) <w_h, (x, 1)>, gates z drawn once; of all best coefficients the smallest.
    With n_units * (n_features + 1) near the number of samples and no ridge it interpolates, with
    large coefficients: a wider network, or a ridge, generalizes better there.

    Parameters
    ----------
    n_units : int
        k, the number of random gates.
    gates : {">=", ">", "sigmoid"} or callable
        s of the projections: 0/1 gates, the logistic function, or any function that acts entrywise.
    threshold : {"zero", "median", "random"}
        What projections are compared with, as in `implicit_bias.problem.gating.UnitGates.random`.
    always_on : bool
        Add a unit whose gate is 1, a linear model.
    fit_intercept : bool
        Append a 1 to the inputs of each unit.
    ridge : float
        Weight of the squared norm of the coefficients.
    random_state : int, Generator, RandomState or None
        Seed of the gates.

    Attributes
    ----------
    coef_ : ndarray of shape (k, D) or (p, k, D)
        w_h; the last of the D columns is that of the appended 1.
    rank_ : int
        Rank of the features on the training samples.
    gating_ : UnitGates
        The gates.
    fit_ : LeastSquares
        The fit, with its training loss.

    References
    ----------
    Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity", arXiv:1906.05032 (2019).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 20)[:, None]
    >>> model = GaLURegressor(5, random_state=0).fit(X, np.abs(X[:, 0]))
    >>> bool(model.score(X, np.abs(X[:, 0])) > 0.99)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to inputs X (n, D) and targets y, (n,) or (n, p)."""
        X, targets = base.checked_samples(self, X, y, multi_output=True, y_numeric=True)
        self._fit_targets(X, targets.astype(np.float64))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predictions, shape (n,) or (n, p)."""
        return self._decide(base.checked_inputs(self, X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        return tags


class GaLUClassifier(_GaLU, base.BinaryClassifier):
    r"""Classes by `GaLURegressor`'s least squares, on targets -1 and +1.

    .. math:: \min_w \; \sum_n (y_n - f(x_n))^2, \qquad
        f(x) = \sum_h z_h(x) \langle w_h, (x, 1) \rangle

    Two classes have one predictor, more have one each, and the largest decides.

    Parameters
    ----------
    n_units, gates, threshold, always_on, fit_intercept, ridge, random_state
        As in `GaLURegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        Class labels; of two, ``classes_[1]`` is the positive one.
    coef_, rank_, gating_, fit_
        As in `GaLURegressor`; ``coef_`` has K predictors where K > 2.

    References
    ----------
    Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity", arXiv:1906.05032 (2019).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]])
    >>> GaLUClassifier(20, random_state=0).fit(X, ["a", "b", "a", "b"]).predict(X).tolist()
    ['a', 'b', 'a', 'b']
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to inputs X (n, D) and labels y (n,).

        Raises
        ------
        ValueError
            One class only; labels of several types.
        """
        X, labels = self._validate(X, y)
        count = len(self.classes_)
        if count > 2:  # one against all others, (n, K)
            labels = np.where(labels[:, None] == np.arange(count), 1.0, -1.0)
        self._fit_targets(X, labels)
        return self
