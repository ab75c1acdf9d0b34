"""The classifier of an infinitely wide two-layer network. No numerics here."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from implicit_bias.base.options import TOLERANCE
from implicit_bias.base.validation import Array, RandomState, as_generator
from implicit_bias.bounds.certificate import Status
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.infinite_width import Activation, InfiniteWidthSolution, max_margin
from implicit_bias.solvers import SolveError


@dataclass(eq=False, repr=False)
class InfiniteWidthSVC(BinaryClassifier):
    """Max-margin two-layer network of infinite width, under the variation norm.

    ::

        minimize  sum_j |a_j| + C sum_n xi_n  subject to  y_n f(x_n) >= 1 - xi_n,  xi >= 0

    with f(x) = sum_j a_j phi(<w_j, x>), over all numbers of units of unit directions w_j. Finitely
    many units attain it. It is the implicit bias of gradient descent on both layers. With
    K > 2 classes each unit has one output weight per class.

    Parameters
    ----------
    C : float
        Weight of the hinge loss; inf is the hard margin, which exists wherever no input comes
        with two labels, if ``fit_intercept``. The norm is not squared, see `MarginProblem`.
    activation : {"relu", "leaky relu", "absolute value", "linear plus relu"} or (float, float)
        Of the units, or its slopes below and above 0.
    fit_intercept : bool
        Whether each unit has an offset: a constant 1 then joins the inputs, in the norm.
    tol : float
        Relative gap between the certified bounds at which to stop.
    max_rounds : int
        Limit on the rounds of column generation.
    random_state : int, Generator, RandomState or None
        Seed of the local searches, where the inputs with their constant have a rank above 3.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The classes; of two, the second is the positive one.
    solution_ : InfiniteWidthSolution
        Status, certificate, dual variables and the problem that was solved.
    directions_ : ndarray of shape (J, D)
        Unit vectors, the first-layer weights; the last of the D columns is that of the constant.
    coef_ : ndarray of shape (J,) or (J, K)
        Output weights of the units.
    support_ : ndarray of int
        Training samples with a dual variable above 0.
    n_iter_ : int
        Rounds, at least 1.

    See Also
    --------
    implicit_bias.infinite_width.max_margin : The same on arrays.

    Notes
    -----
    The bounds meet for inputs (with the constant) of rank 3, such as points in the plane, and up to
    rank 5 while the support vectors are few. Beyond, the bounds hold, but a gap stays, and `fit`
    warns.

    Chizat and Bach (2020) for the implicit bias.

    Examples
    --------
    >>> from implicit_bias import InfiniteWidthSVC
    >>> from implicit_bias.datasets import make_toy
    >>> circles = make_toy("circles", 60)
    >>> svm = InfiniteWidthSVC(fit_intercept=False).fit(circles.X, circles.y)
    >>> print(svm.solution_.status.label, svm.score(circles.X, circles.y))
    optimal 1.0
    """

    C: float = np.inf
    activation: Activation = "relu"
    fit_intercept: bool = True
    _: KW_ONLY
    tol: float = TOLERANCE
    max_rounds: int = 300
    random_state: RandomState = None
    solution_: InfiniteWidthSolution = field(init=False)

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the network of the maximum margin.

        Parameters
        ----------
        X : array_like of shape (n, D)
            Inputs.
        y : array_like of shape (n,)
            Labels of two classes or more.

        Raises
        ------
        ValueError
            NaN, one class, parameters out of range.
        SolveError
            No network was found that separates the data.
        """
        X, labels = self._validate(X, y)
        found = max_margin(
            self._inputs(X),
            labels,
            self.C,
            self.tol,
            activation=self.activation,
            max_rounds=self.max_rounds,
            random_state=as_generator(self.random_state),
        )
        if not np.isfinite(found.certificate.upper):
            cure = ""
            if not found.conflict:  # else the message names the samples, and what to do
                cure = "choose a finite C (soft margin)"
            raise SolveError(found, cure)
        if found.status is not Status.OPTIMAL:
            warnings.warn(found.message, ConvergenceWarning, stacklevel=2)
        self.solution_ = found
        return self

    def _inputs(self, X: Array) -> Array:
        if not self.fit_intercept:
            return X
        return np.column_stack([X, np.ones(len(X))])

    @property
    def directions_(self) -> Array:
        """First-layer weights of unit length, shape (J, D)."""
        return self.solution_.directions

    @property
    def coef_(self) -> Array:
        """Output weights of the units, shape (J,), or (J, K) with classes."""
        return self.solution_.coef

    @property
    def support_(self) -> NDArray[np.int64]:
        """Indices of the support vectors, shape (n_support,)."""
        alpha = self.solution_.alpha  # (n,) or (n, K)
        return np.flatnonzero(alpha.reshape(len(alpha), -1).any(axis=1))

    @property
    def n_iter_(self) -> int:
        """Rounds of column generation, at least 1."""
        return max(1, len(self.solution_.history))

    def _decide(self, X: Array) -> Array:
        return self.solution_.decision(self._inputs(X))
