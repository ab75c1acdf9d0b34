"""scikit-learn classifiers that solve a margin problem. No numerics here."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol, Self, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from implicit_bias.base.options import TOLERANCE, OnFailure, SolverOptions
from implicit_bias.base.validation import (
    Array,
    RandomState,
    as_generator,
    check_choice,
)
from implicit_bias.estimators import base
from implicit_bias.norms import HasValueAndDual, Norm, as_norm
from implicit_bias.problem import Architecture, HasHiddenLayer, check_C
from implicit_bias.problem.gating import (
    Gating,
    GlobalContexts,
    HyperplaneContexts,
    NoGates,
    Threshold,
    UnitGates,
    l2_gates,
)
from implicit_bias.solvers import Solution, solve_relaxed
from implicit_bias.solvers.base import Solver


@runtime_checkable
class HasGating(Protocol):
    """A network or classifier with gates."""

    def gating(self) -> Gating:
        """Gates of the hidden units."""


@dataclass(eq=False, repr=False, kw_only=True)
class MarginSVC(base.BinaryClassifier, ABC):
    """Max-margin classifier of one margin problem; subclasses define gates and norm.

    ::

        minimize  Omega(zeta) + sum_n C_n xi_n  subject to  y_n (f(x_n) + b) >= 1 - xi_n,  xi >= 0

    with f(x) = sum_m z_m(x) <zeta_m, x> for gates z; see `MarginProblem`, also for K > 2 classes.

    Parameters
    ----------
    C, solver, tol, device, on_failure, soft_C, class_weight
        As in `MaxMarginSVC`.
    fit_intercept : bool or None
        Whether the predictor has an unpenalized intercept (not in the norm). A constant feature,
        which the data sets of this package have, gives it one that is: then pass False. None is
        True for a linear SVM, and False with gates.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        The classes; of two, the second is the positive one.
    architecture_ : Architecture
        Gates and groups.
    solution_ : Solution
        Dual variables, status and certificate, and the problem that was solved.
    failure_ : Solution or None
        The proof that the hard margin has no solution; ``solution_`` itself where ``on_failure``
        is "warn": then ``coef_`` is 0, and all predictions are the first class.
    fitted_C_ : float or ndarray
        The C of ``solution_``: ``soft_C`` where the hard margin had no solution and
        ``on_failure="soft"``. Where weights differ, that of each sample that was not left out.
    has_intercept_ : bool
        Whether the problem that was solved has an intercept.
    dropped_ : ndarray of int
        Training samples that ``on_failure="drop"`` left out, or that have no weight.
    dual_coef_ : ndarray of shape (1, n_support) or (K, n_support)
        y_n alpha_n of the support vectors, as in scikit-learn's SVC; with more classes, a_n.
    """

    C: float = np.inf
    solver: str | Solver = "auto"
    tol: float = TOLERANCE
    device: str = "cpu"
    on_failure: OnFailure = "soft"
    soft_C: float | None = None
    fit_intercept: bool | None = None
    class_weight: base.ClassWeight = None
    architecture_: Architecture = field(init=False)
    solution_: Solution = field(init=False)
    failure_: Solution | None = field(init=False)
    fitted_C_: float | Array = field(init=False)
    has_intercept_: bool = field(init=False)
    dropped_: NDArray[np.int64] = field(init=False)
    dual_coef_: Array = field(init=False)

    @abstractmethod
    def _architecture(self, X: Array) -> Architecture:
        """Build gates and groups from the training inputs (n, D)."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Build the gates from the training inputs and solve the margin problem.

        Parameters
        ----------
        X : array_like or sparse array of shape (n, D)
            Inputs; include a constant column where the norm should count the offset, too. Sparse
            ones are made dense.
        y : array_like of shape (n,)
            Labels of two classes or more.
        sample_weight : array_like of shape (n,), optional
            Not negative: its sample's C is the classifier's times this. A sample of weight 0 is
            left out, one of weight 2 counts twice; at the hard margin all others count alike.

        Raises
        ------
        ValueError
            NaN, one class, parameters or weights out of range.
        SolveError
            Not separable, or the tolerance was not reached, and ``on_failure="raise"``.

        Warns
        -----
        NotSeparableWarning
            The samples have no hard margin.
        """
        check_choice(self.on_failure, "on_failure", get_args(OnFailure))
        C = check_C(self.C)
        X, y = self._checked(X, y)

        # Samples without weight are left out of the problem, of its gates and of its classes.
        weights = base.sample_weights(sample_weight, self.class_weight, X, y)
        n_given = len(y)
        kept = np.flatnonzero(weights)
        if len(kept) < n_given:
            X = X[kept]
            y = y[kept]
            weights = weights[kept]
        self.classes_ = base.classes_of(y)

        # Build: a weight multiplies the C of its sample, the upper end of its dual variable.
        self.architecture_ = self._architecture(X)
        # Gates multiply all inputs, so that a constant among them already gives each gate an
        # offset.
        if self.fit_intercept is None:
            self.has_intercept_ = isinstance(self.architecture_.gating, NoGates)
        else:
            self.has_intercept_ = bool(self.fit_intercept)
        problem = self.architecture_.problem(X, self.signs(y), C * weights, self.has_intercept_)

        # Solve.
        solving = SolverOptions(self.solver, self.tol, self.device)
        relaxed = solve_relaxed(problem, self.on_failure, self.soft_C, solving, weights)
        found = relaxed.solution

        # Expose: in the numbers of the samples that were given.
        self.dual_coef_ = np.atleast_2d(problem.weights(found.alpha).T)[:, found.support]
        relaxed = relaxed.among(n_given, kept)
        self.solution_ = relaxed.solution
        self.failure_ = relaxed.failure
        self.fitted_C_ = relaxed.C
        self.dropped_ = relaxed.dropped

        # Report: the solver's message, and how to get another answer where nothing separates.
        separable = self.failure_ is None and not found.status.inseparable
        cure = ""
        if relaxed.done:  # another problem was tried instead
            cure = (
                "set a finite C (--C) for a soft margin without this warning, or on_failure='raise'"
                " (--on-failure raise) for the hard margin or an error"
            )
        elif not separable:
            cure = (
                "or set on_failure='soft' (--on-failure soft), which solves the soft margin "
                "instead, or 'drop', which leaves out the samples that it misclassifies"
            )
        if self.on_failure == "raise":
            self.solution_.raise_for_status(cure)
        if separable and relaxed.message:
            warnings.warn(relaxed.message, ConvergenceWarning, stacklevel=2)
        elif relaxed.message:
            warnings.warn(f"{relaxed.message}; {cure}", base.NotSeparableWarning, stacklevel=2)
        return self

    @property
    def coef_(self) -> Array:
        """Coefficients zeta of each gate column, shape (M, D), or (K, M, D) with more classes."""
        return self.solution_.coef

    @property
    def intercept_(self) -> Array:
        """The unpenalized intercept, shape (1,) or (K,); 0 where the problem has none."""
        return np.atleast_1d(np.asarray(self.solution_.intercept))

    @property
    def support_(self) -> NDArray[np.int64]:
        """Indices of the support vectors, shape (n_support,)."""
        return self.solution_.support

    @property
    def support_vectors_(self) -> Array:
        """Inputs of the support vectors (n_support, D); of a hidden layer its activations."""
        kept = np.delete(np.arange(len(self.solution_.alpha)), self.dropped_)
        # `support_` counts the samples as given, the problem has those that were kept.
        return self.solution_.problem.X[np.searchsorted(kept, self.support_)]

    @property
    def group_norms_(self) -> Array:
        """||zeta_g|| of each group, shape (G,): 0 for inactive groups.

        There is one group per hidden unit. Where each of K > 2 classes has its own units
        (``coef_`` has K rows), ``group_norms_.reshape(K, -1)[k, h]`` is that of unit h of
        ``classes_[k]``. With ``groups`` of named features the order is that of
        ``np.unique(groups)``.
        """
        # An interior point leaves small norms where the solution has zeros: the multipliers tell
        # which.
        return np.where(self.solution_.active, self.solution_.group_norms, 0.0)

    @property
    def n_iter_(self) -> int:
        """Iterations of the solver, at least 1."""
        # scikit-learn's checks want one at least; a conflict of two samples takes none.
        return max(1, self.solution_.stats.iterations)

    def margin_view(self) -> base.FittedMargin:
        """Architecture, coefficients and solution."""
        check_is_fitted(self)
        intercept: float | Array | None = None
        if self.has_intercept_:
            intercept = self.solution_.intercept
        return base.FittedMargin(
            self.architecture_,
            self.solution_.coef,
            self.solution_,
            self.fitted_C_,
            self.dropped_,
            intercept=intercept,
            failure=self.failure_,
        )

    def _decide(self, X: Array) -> Array:
        return self.architecture_.decision(X, self.solution_.coef) + self.solution_.intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Without an offset each predictor is 0 at the origin, so that a score may be poor on data
        # without a constant. None is an offset unless there are gates, which are built in fitting.
        tags.classifier_tags.poor_score = not self.fit_intercept
        return tags


@dataclass(eq=False, repr=False)
class MaxMarginSVC(MarginSVC):
    """Linear maximum-margin classifier under any norm, for any number of classes.

    ::

        minimize  ||w|| + C sum_n xi_n  subject to  y_n (<w, x_n> + b) >= 1 - xi_n,  xi >= 0

    with xi = 0 at the hard margin, C = inf, the default. With K > 2 classes the margins are
    <w_{y_n} - w_k, x_n> + b_{y_n} - b_k for all other classes k.

    It is the implicit bias of linear models, trained by steepest descent in the norm: "l2"
    gradient descent, "linf" sign descent and Adam, "l1" coordinate descent and boosting,
    ``Lp(p)`` mirror descent, "spectral" spectral descent and Muon.

    Parameters
    ----------
    norm : str or Norm
        "l1", "l2", "linf", "spectral", "nuclear", an object of `implicit_bias.norms`, or a custom
        norm with ``value(coef)`` and ``dual(V)``.
    groups : array_like of int or str, shape (D,), optional
        Groups of features over which to sum the norm, by number or name: with "l2" the group lasso.
    fit_intercept : bool
        Whether each predictor has an unpenalized intercept, which is not in the norm.
    C : float
        Weight of the hinge loss, times the sample's weight; inf is the hard margin. The norm is not
        squared, unlike scikit-learn's: the problem is ||w|| + C hinge here, ||w||^2 / 2 + C hinge
        in ``SVC``. With two classes, l2 and an intercept both have the same w if the C of ``SVC``
        is ||w|| times this C.
    solver : str or solver
        "auto", or another name or object that `solve` takes as its solver.
    tol : float
        Relative gap between the certified bounds.
    device : str
        Where the built-in solvers compute: "cpu", "cuda".
    on_failure : {"soft", "raise", "warn", "drop"}
        What to do where the samples are not separable: "soft" solves a soft margin; "raise" raises
        `SolveError`; "warn" keeps the proof, with ``coef_`` 0 and all predictions the first class;
        "drop" leaves out the samples that the soft margin misclassifies. All but "raise" warn.
        Where the tolerance was not reached, "raise" raises, too, and the others warn.
    soft_C : float or None
        C of the soft margin that "soft" and "drop" then solve, times the sample's weight; None is
        100 over the root mean square of the feature norms.
    class_weight : dict or "balanced", optional
        Weight of each class, by its label, which multiplies those of its samples; "balanced" gives
        all classes the same sum. At the hard margin weights above 0 change nothing.

    Attributes
    ----------
    coef_ : ndarray of shape (1, D) or (K, D)
        Coefficients w, with unit margin at the hard margin.
    intercept_ : ndarray of shape (1,) or (K,)
        The unpenalized intercept b; 0 without one.
    classes_ : ndarray of shape (K,)
        The classes; of two, the second is the positive one.
    support_ : ndarray of int, shape (n_support,)
        Indices of the support vectors among the training samples.
    support_vectors_ : ndarray of shape (n_support, D)
        Their inputs.
    dual_coef_ : ndarray of shape (1, n_support) or (K, n_support)
        y_n alpha_n of the support vectors, as in scikit-learn's SVC; with more classes, their
        weights in the V(alpha) of each class.
    group_norms_ : ndarray of shape (G,)
        Norm of the coefficients of each group; G = 1 without ``groups``.
    solution_ : Solution
        Dual variables, status and certificate, and the problem that was solved. At a finite C its
        certificate bounds the norm plus C times the hinge losses.
    failure_ : Solution or None
        The proof that the hard margin has no solution (``failure_.proof``); ``solution_`` itself
        where ``on_failure`` is "warn". None where there is a hard margin, or C is finite.
    fitted_C_ : float or ndarray
        The C of ``solution_``: that of the soft margin where the hard margin had no solution and
        ``on_failure="soft"``. Where weights differ, that of each sample that was not left out.
    has_intercept_ : bool
        Whether the problem that was solved has an intercept.
    dropped_ : ndarray of int
        Training samples that ``on_failure="drop"`` left out, or that have no weight.
    n_iter_ : int
        Iterations of the solver, at least 1.
    architecture_ : Architecture
        The linear model: one gate that is always 1, and the norm.

    Notes
    -----
    Soudry et al. (2018) for gradient descent; Gunasekar et al. (2018) for steepest descent in
    any norm.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import MaxMarginSVC
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]])
    >>> model = MaxMarginSVC("linf", fit_intercept=False).fit(X, ["a", "b", "c"])
    >>> model.predict([[0.1, 2.0]]).tolist(), round(float(model.solution_.certificate.upper), 6)
    (['a'], 0.5)
    """

    norm: str | Norm | HasValueAndDual = "l2"
    _: KW_ONLY
    groups: ArrayLike | None = None
    fit_intercept: bool | None = True

    @property
    def coef_(self) -> Array:
        """Coefficients, shape (1, D), or (K, D) with more classes."""
        return self.solution_.coef.reshape(-1, self.n_features_in_)

    def _architecture(self, X: Array) -> Architecture:
        return Architecture(NoGates(X.shape[1]), norm=as_norm(self.norm, self.groups))


@dataclass(eq=False, repr=False)
class GatedSVC(MarginSVC):
    """Max-margin classifier on given gates, under their group norm.

    ::

        minimize  sum_g ||zeta_g|| + C sum_n xi_n
        subject to  y_n (f(x_n) + b) >= 1 - xi_n,  xi >= 0

    with f(x) = sum_m z_m(x) <zeta_m, x> for gates z_m. Without a gating it is the linear SVM.
    With several groups, each of K > 2 classes has its own groups: one network per class.

    Parameters
    ----------
    gating : Gating or None
        Gates and groups; None is the constant gate 1.
    norm : Norm, optional
        Of the coefficients (K, M, D) instead of the group norm: ``SumOverGroups(Nuclear(),
        gating.groups)`` is that of hidden units which K classes share. CVXPY solves it, which is
        for small problems.
    fit_intercept : bool or None
        Whether each predictor has an unpenalized intercept, not in the norm. None is False; with
        ``gating=None`` it is True.
    C, solver, tol, device, on_failure, soft_C, class_weight
        As in `MaxMarginSVC`.

    Notes
    -----
    Lippl, Abbott, Chung (2022), section 3.

    Examples
    --------
    >>> from implicit_bias import GatedSVC
    >>> from implicit_bias.datasets import make_toy
    >>> from implicit_bias.problem.gating import UnitGates
    >>> circles = make_toy("circles", 60)
    >>> gates = UnitGates.random(circles.X, 20, random_state=0)
    >>> svm = GatedSVC(gates).fit(circles.X, circles.y)
    >>> print(svm.group_norms_.shape, svm.score(circles.X, circles.y))
    (21,) 1.0
    """

    gating: Gating | None = None
    _: KW_ONLY
    norm: Norm | None = None

    def _architecture(self, X: Array) -> Architecture:
        gating = self.gating
        if gating is None:
            gating = NoGates(X.shape[1])
        if not isinstance(gating, Gating):
            raise ValueError(
                f"gating must be a Gating, such as UnitGates(weights, thresholds), got a "
                f"{type(gating).__name__}: gates of given samples alone go into a MarginProblem"
            )
        # Apart, each class has groups of its own. One group stays the norm of all classes together:
        # the classical SVM.
        apart = bool(gating.groups.max() > 0)
        return Architecture(gating, norm=self.norm, apart=apart)


@dataclass(eq=False, repr=False)
class GLNSVC(MarginSVC):
    """Max-margin classifier on the gates of a gated linear network.

    ::

        minimize  Omega(zeta) + C sum_n xi_n  subject to  y_n (f(x_n) + b) >= 1 - xi_n,  xi >= 0

    SVM-GLN (norm="gln") has Omega = sum_h ||zeta_h||, the sum of the units' l2 norms: the implicit
    bias of the network. SVM-L2 (norm="l2") has the l2 norm over all joint contexts. With one unit
    both are the shallow GLN, whose contexts without training samples predict 0. With K > 2 classes
    SVM-GLN is the implicit bias of one network per class, with groups (class, unit); SVM-L2 and the
    shallow GLN have the Euclidean norm over all classes.

    Parameters
    ----------
    n_units, n_hyperplanes : int
        H hidden units, each with C = 2^k contexts cut by k hyperplanes.
    norm : {"gln", "l2"}
        Sum of the units' norms, or the exact ||beta||_2 over all joint contexts.
    threshold : {"median", "random", "zero"} or array of shape (H, k)
        See `HyperplaneContexts.random`; the median is that of the training inputs.
    fit_intercept : bool or None
        Whether each predictor has an unpenalized intercept, not in the norm. None is False.
    C, solver, tol, device, on_failure, soft_C, class_weight
        As in `MaxMarginSVC`.
    random_state : int, Generator, RandomState or None
        Seed of the hyperplanes; `GLNClassifier` draws the same ones from the same seed.
    contexts : HyperplaneContexts, optional
        Contexts to use instead of drawing any; the parameters that would shape them are then
        ignored.

    Notes
    -----
    Lippl, Abbott, Chung (2022), sections 3 and 4.

    Examples
    --------
    >>> from implicit_bias import GLNSVC
    >>> from implicit_bias.datasets import make_toy
    >>> circles = make_toy("circles", 60)
    >>> svm = GLNSVC(n_units=10, random_state=0).fit(circles.X, circles.y)
    >>> print(svm.solution_.status.label, svm.score(circles.X, circles.y))
    optimal 1.0
    """

    n_units: int = 50
    n_hyperplanes: int = 1
    norm: Literal["gln", "l2"] = "gln"
    threshold: Threshold = "median"
    _: KW_ONLY
    random_state: RandomState = None
    contexts: HyperplaneContexts | None = None

    def _architecture(self, X: Array) -> Architecture:
        check_choice(self.norm, "norm", ("gln", "l2"))
        contexts = base.contexts_of(
            self.contexts,
            X,
            self.n_units,
            self.n_hyperplanes,
            self.threshold,
            as_generator(self.random_state),
        )
        # One unit with readout weight 1 is the shallow GLN.
        if contexts.n_units == 1:
            return Architecture(GlobalContexts.collapse(contexts, X))
        if self.norm == "gln":
            return Architecture(contexts, apart=True)
        return Architecture(l2_gates(contexts))


@dataclass(eq=False, repr=False)
class GatedReLUSVC(MarginSVC):
    """Max-margin classifier on the gates of a ReLU network: SVM-RC, or SVM-LC for learned gates.

    ::

        minimize  sum_h ||zeta_h|| + C sum_n xi_n
        subject to  y_n (f(x_n) + b) >= 1 - xi_n,  xi >= 0

    with f(x) = sum_h z_h(x) <zeta_h, x> for fixed gates z_h. It is the implicit bias of a ReLU
    network whose gates are fixed. With K > 2 classes there is one network per class, with groups
    (class, unit).

    Parameters
    ----------
    n_units : int
        H; with random gates.
    gates : "random", or a network or classifier with a ``gating()``
        Random gates are SVM-RC; those of a trained network are SVM-LC. In grid searches and
        cross-validation pass ``classifier.network_``: scikit-learn un-fits a classifier that it
        clones.
    always_on : bool
        Append a unit that is always on to random gates, so that no sample has all gates off.
    fit_intercept : bool or None
        Whether each predictor has an unpenalized intercept, not in the norm. None is False.
    C, solver, tol, device, on_failure, soft_C, class_weight
        As in `MaxMarginSVC`.
    random_state : int, Generator, RandomState or None
        Seed of random gates.
    init : {"normal", "orthogonal"}
        Directions of random gates.
    threshold : {"median", "random", "zero"} or array of shape (H,)
        Thresholds of random gates.

    Notes
    -----
    Lippl, Abbott, Chung (2022), section 5.2 has SVM-RC and SVM-LC.

    Examples
    --------
    >>> from implicit_bias import GatedReLUSVC
    >>> from implicit_bias.datasets import make_toy
    >>> circles = make_toy("circles", 60)
    >>> svm = GatedReLUSVC(n_units=20, random_state=0).fit(circles.X, circles.y)
    >>> print(svm.solution_.status.label)
    optimal
    """

    n_units: int = 50
    gates: Literal["random"] | HasGating = "random"
    always_on: bool = True
    _: KW_ONLY
    random_state: RandomState = None
    init: Literal["normal", "orthogonal"] = "normal"
    threshold: Threshold = "median"

    def _architecture(self, X: Array) -> Architecture:
        if isinstance(self.gates, HasGating):
            return Architecture(self.gates.gating(), apart=True)
        if isinstance(self.gates, str) and self.gates == "random":
            gating = UnitGates.random(
                X,
                self.n_units,
                init=self.init,
                threshold=self.threshold,
                always_on=self.always_on,
                random_state=as_generator(self.random_state),
            )
            return Architecture(gating, apart=True)
        raise ValueError(
            "gates must be 'random', or a network or classifier with gates, got a "
            f"{type(self.gates).__name__}: other gatings go into GatedSVC"
        )


@dataclass(eq=False, repr=False)
class HiddenLayerSVC(MarginSVC):
    """Max-margin classifier on the hidden activations of a network: SVM-HL.

    ::

        minimize  ||w|| + C sum_n xi_n  subject to  y_n (<w, a(x_n)> + b) >= 1 - xi_n,  xi >= 0

    with the activations a(x) of the network.

    Parameters
    ----------
    network : network or classifier with ``hidden_activations(X)``, or None
        None is the linear SVM on the inputs. In grid searches and cross-validation pass
        ``classifier.network_``: scikit-learn un-fits a classifier that it clones.
    fit_intercept : bool or None
        Whether each predictor has an unpenalized intercept, not in the norm. None is True.
    C, solver, tol, device, on_failure, soft_C, class_weight
        As in `MaxMarginSVC`.

    Notes
    -----
    ``coef_`` has shape (1, H): one weight per hidden unit. The published SVM-HL has no intercept:
    pass ``fit_intercept=False``.

    Lippl, Abbott, Chung (2022), section 5.2.

    Examples
    --------
    >>> from implicit_bias import HiddenLayerSVC, ReLUClassifier
    >>> from implicit_bias.datasets import make_toy
    >>> circles = make_toy("circles", 60)
    >>> network = ReLUClassifier(n_units=30, steps=100, random_state=0).fit(circles.X, circles.y)
    >>> svm = HiddenLayerSVC(network).fit(circles.X, circles.y)
    >>> print(svm.solution_.coef.shape)
    (1, 30)
    """

    network: HasHiddenLayer | None = None

    def _architecture(self, X: Array) -> Architecture:
        if self.network is None:
            return Architecture(NoGates(X.shape[1]))
        if not isinstance(self.network, HasHiddenLayer):
            raise TypeError(
                "network must be a network or classifier with hidden_activations(X), got a "
                f"{type(self.network).__name__}: of your module fit MaxMarginSVC to its activations"
            )
        # Networks do not all say how wide they are; one sample shows it.
        n_hidden = self.network.hidden_activations(X[:1]).shape[1]
        return Architecture(NoGates(n_hidden), representation=self.network)
